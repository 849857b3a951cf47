//! Reads the server name and the protocols of a ClientHello (RFC 8446 §4.1.2) before the handshake. They select the
//! rules for a connection, or the destination of a passed-through one.
//!
//! Pure: bytes in, a hello or a fault out. rustls makes the stricter checks.

/// Bytes of records that a ClientHello may take: a post-quantum one takes 2 KiB, and with tickets and Encrypted Client
/// Hello 5 KiB.
pub const CLIENT_HELLO_MAX: usize = 32 * 1024;

/// RFC 8446 §5.1.
const RECORD_HEADER: usize = 5;
const HANDSHAKE: u8 = 22;
const FRAGMENT_MAX: usize = 1 << 14;
/// RFC 8446 §4.
const MESSAGE_HEADER: usize = 4;
const CLIENT_HELLO: u8 = 1;
/// RFC 6066 §3, RFC 7301 §3.1.
const SERVER_NAME: u16 = 0;
const PROTOCOLS: u16 = 16;
const HOST_NAME: u8 = 0;
/// RFC 1035 §2.3.4.
const NAME_MAX: usize = 255;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientHello {
    /// The server name (SNI), in lower case.
    pub server_name: Option<Box<str>>,
    /// The protocols (ALPN), in the client's order.
    pub protocols: Vec<Box<[u8]>>,
}

/// Why bytes are no ClientHello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoHello {
    NotTls,
    /// A record is empty or too long.
    BadRecord,
    /// The first message is another one.
    OtherMessage,
    /// More than [`CLIENT_HELLO_MAX`].
    TooLong,
    /// A length in the message does not fit.
    BadLength,
    /// An extension occurs twice.
    Repeated,
    /// The server name is no host name.
    BadName,
}

impl ClientHello {
    /// Reads a hello from the start of the received bytes. `None` if more bytes have to arrive.
    ///
    /// # Errors
    /// The bytes cannot become a ClientHello.
    pub fn read(received: &[u8]) -> Result<Option<Self>, NoHello> {
        let Some(message) = message(received)? else { return Ok(None) };
        Self::parse(&message).map(Some)
    }

    /// RFC 8446 §4.1.2.
    fn parse(message: &[u8]) -> Result<Self, NoHello> {
        let mut rest = HelloReader(message);
        // legacy_version and random.
        rest.take(2 + 32)?;
        let session = rest.vector_u8()?;
        let (ciphers, compressions) = (rest.vector_u16()?, rest.vector_u8()?);
        if session.0.len() > 32
            || ciphers.0.is_empty()
            || ciphers.0.len() % 2 != 0
            || compressions.0.is_empty()
        {
            return Err(NoHello::BadLength);
        }
        let mut hello = Self::default();
        if rest.0.is_empty() {
            // RFC 5246 §7.4.1.2: without extensions.
            return Ok(hello);
        }
        let mut extensions = rest.vector_u16()?;
        if !rest.0.is_empty() {
            return Err(NoHello::BadLength);
        }
        let mut has = [false; 2];
        while !extensions.0.is_empty() {
            let kind = extensions.u16()?;
            let content = extensions.vector_u16()?;
            // RFC 8446 §4.2: each extension occurs at most once.
            match kind {
                SERVER_NAME if std::mem::replace(&mut has[0], true) => return Err(NoHello::Repeated),
                PROTOCOLS if std::mem::replace(&mut has[1], true) => return Err(NoHello::Repeated),
                SERVER_NAME => hello.server_name = server_name(content)?,
                PROTOCOLS => hello.protocols = protocols(content)?,
                _ => {}
            }
        }
        Ok(hello)
    }
}

/// Assembles the message from its records. `None` if it is incomplete.
fn message(received: &[u8]) -> Result<Option<Vec<u8>>, NoHello> {
    let mut message = Vec::new();
    let mut rest = received;
    let is_long = received.len() >= CLIENT_HELLO_MAX;
    loop {
        // RFC 8446 §5.1: only the first byte of a record's version has a meaning.
        if rest.first().is_some_and(|kind| *kind != HANDSHAKE) || rest.get(1).is_some_and(|major| *major != 3)
        {
            return Err(NoHello::NotTls);
        }
        let Some((header, behind)) = rest.split_first_chunk::<RECORD_HEADER>() else {
            return if is_long { Err(NoHello::TooLong) } else { Ok(None) };
        };
        let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if len == 0 || len > FRAGMENT_MAX {
            return Err(NoHello::BadRecord);
        }
        message.extend_from_slice(&behind[..len.min(behind.len())]);
        if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(NoHello::OtherMessage);
        }
        if let Some([_, long, high, low]) = message.first_chunk::<MESSAGE_HEADER>() {
            let len = usize::from(u16::from_be_bytes([*high, *low]));
            if *long > 0 || len > CLIENT_HELLO_MAX {
                return Err(NoHello::TooLong);
            }
            if message.len() >= MESSAGE_HEADER + len {
                message.truncate(MESSAGE_HEADER + len);
                message.drain(..MESSAGE_HEADER);
                return Ok(Some(message));
            }
        }
        match behind.get(len..) {
            Some(next) => rest = next,
            None if is_long => return Err(NoHello::TooLong),
            None => return Ok(None),
        }
    }
}

/// RFC 6066 §3.
fn server_name(content: HelloReader<'_>) -> Result<Option<Box<str>>, NoHello> {
    let mut content = content;
    let mut names = content.vector_u16()?;
    let kind = names.u8()?;
    let name = names.vector_u16()?.0;
    // There is only one type of names, and only one name per type.
    if kind != HOST_NAME || !names.0.is_empty() || !content.0.is_empty() {
        return Err(NoHello::BadName);
    }
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > NAME_MAX || !name.iter().all(is_letter) {
        return Err(NoHello::BadName);
    }
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    Ok(Some(name.into()))
}

/// RFC 7301 §3.1.
fn protocols(mut content: HelloReader<'_>) -> Result<Vec<Box<[u8]>>, NoHello> {
    let mut list = content.vector_u16()?;
    let mut protocols = Vec::new();
    while !list.0.is_empty() {
        let protocol = list.vector_u8()?.0;
        if protocol.is_empty() {
            return Err(NoHello::BadLength);
        }
        protocols.push(protocol.into());
    }
    if protocols.is_empty() || !content.0.is_empty() { Err(NoHello::BadLength) } else { Ok(protocols) }
}

/// The rest of a message.
#[derive(Clone, Copy)]
struct HelloReader<'a>(&'a [u8]);

impl<'a> HelloReader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], NoHello> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(NoHello::BadLength)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, NoHello> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u16(&mut self) -> Result<u16, NoHello> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn vector_u8(&mut self) -> Result<Self, NoHello> {
        let len = self.u8()?;
        self.take(usize::from(len)).map(Self)
    }

    fn vector_u16(&mut self) -> Result<Self, NoHello> {
        let len = self.u16()?;
        self.take(usize::from(len)).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use rustls::crypto::aws_lc_rs::{default_provider, kx_group};

    use super::*;

    /// The first bytes from a client that uses rustls.
    fn sent(name: &str, protocols: &[&str], is_post_quantum: bool) -> Vec<u8> {
        let mut provider = default_provider();
        provider.kx_groups = match is_post_quantum {
            true => vec![kx_group::MLKEM1024, kx_group::X25519MLKEM768],
            false => vec![kx_group::X25519],
        };
        let builder = rustls::ClientConfig::builder_with_provider(Arc::new(provider));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(rustls::RootCertStore::empty());
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let name = name.to_owned().try_into().unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    fn hello(name: Option<&str>, protocols: &[&str]) -> ClientHello {
        ClientHello {
            server_name: name.map(Into::into),
            protocols: protocols.iter().map(|protocol| protocol.as_bytes().into()).collect(),
        }
    }

    #[test]
    fn hellos_of_a_client_are_understood_however_they_are_cut() {
        for (name, protocols, is_post_quantum, expected) in [
            (
                "WWW.example.com",
                &["h2", "http/1.1"][..],
                false,
                hello(Some("www.example.com"), &["h2", "http/1.1"]),
            ),
            ("a.example", &[], true, hello(Some("a.example"), &[])),
            ("192.0.2.1", &["x"], true, hello(None, &["x"])),
        ] {
            let bytes = sent(name, protocols, is_post_quantum);
            assert!(!is_post_quantum || bytes.len() > 1500, "{}", bytes.len());
            for len in 0..bytes.len() {
                assert_eq!(ClientHello::read(&bytes[..len]), Ok(None), "{name} {len}");
            }
            assert_eq!(ClientHello::read(&bytes), Ok(Some(expected.clone())), "{name}");
            // RFC 8446 §5.1: a message may be split into records at any byte.
            for piece in [1, 2, 3, 7, 100, 517, 1000] {
                let records = split(&bytes, piece);
                assert_eq!(ClientHello::read(&records), Ok(Some(expected.clone())), "{name} {piece}");
                assert_eq!(ClientHello::read(&records[..records.len() - 1]), Ok(None), "{name} {piece}");
            }
            // Bytes behind the message are ignored.
            let more = [&bytes[..], b"\x17\x03\x03\0\x01x"].concat();
            assert_eq!(ClientHello::read(&more), Ok(Some(expected)), "{name}");
        }
    }

    /// Splits the message into records of this length.
    fn split(record: &[u8], len: usize) -> Vec<u8> {
        let pieces = record[RECORD_HEADER..].chunks(len);
        pieces.flat_map(|piece| self::record(HANDSHAKE, piece)).collect()
    }

    fn record(kind: u8, content: &[u8]) -> Vec<u8> {
        let len = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[kind, 3, 1, len[0], len[1]], content].concat()
    }

    fn vector(bytes: &[u8]) -> Vec<u8> {
        [&u16::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
    }

    fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &vector(content)].concat()
    }

    /// A hello with these bytes behind its compression methods.
    fn message_with(extensions: &[u8]) -> Vec<u8> {
        let start = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0x13, 1], &[1, 0]].concat();
        let body = [&start[..], extensions].concat();
        let len = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[CLIENT_HELLO, len[1], len[2], len[3]], &body[..]].concat()
    }

    fn named(name: &[u8]) -> Vec<u8> {
        extension(SERVER_NAME, &vector(&[&[HOST_NAME], &vector(name)[..]].concat()))
    }

    #[test]
    fn malformed_hellos() {
        let extended = |extensions: &[&[u8]]| record(HANDSHAKE, &message_with(&vector(&extensions.concat())));
        let alpn = |list: &[u8]| extension(PROTOCOLS, &vector(list));
        let body =
            |bytes: &[u8]| record(HANDSHAKE, &[&[CLIENT_HELLO, 0, 0, bytes.len() as u8], bytes].concat());
        let start = [&[3, 3][..], &[7; 32]].concat();
        let behind = |bytes: &[u8]| body(&[&start[..], bytes].concat());
        for (what, bytes, expected) in [
            ("no extensions", record(HANDSHAKE, &message_with(b"")), Ok(hello(None, &[]))),
            ("empty extensions", extended(&[]), Ok(hello(None, &[]))),
            ("a name", extended(&[&named(b"A.example")]), Ok(hello(Some("a.example"), &[]))),
            ("protocols", extended(&[&alpn(b"\x02h2\x01\xff")]), {
                Ok(ClientHello { protocols: vec![(*b"h2").into(), [0xff].into()], ..hello(None, &[]) })
            }),
            (
                "unknown extensions, one of them twice",
                { extended(&[&extension(0x0a0a, b"x"), &extension(0x0a0a, b""), &named(b"b")]) },
                Ok(hello(Some("b"), &[])),
            ),
            ("HTTP", b"GET / HTTP/1.1\r\n".to_vec(), Err(NoHello::NotTls)),
            ("SSL 2.0", b"\x80\x2e\x01\x03\x01".to_vec(), Err(NoHello::NotTls)),
            ("another major version", b"\x16\x02\x00\x00\x01\x01".to_vec(), Err(NoHello::NotTls)),
            ("application data", record(23, b"x"), Err(NoHello::NotTls)),
            ("an alert", record(21, b"\x02\x28"), Err(NoHello::NotTls)),
            ("an empty record", b"\x16\x03\x01\0\0".to_vec(), Err(NoHello::BadRecord)),
            ("a record that is too long", b"\x16\x03\x01\x40\x01\x01".to_vec(), Err(NoHello::BadRecord)),
            ("ServerHello", record(HANDSHAKE, b"\x02\0\0\0"), Err(NoHello::OtherMessage)),
            (
                "an alert between the records",
                { [record(HANDSHAKE, b"\x01\0\0\x40"), record(21, b"\x02\x28")].concat() },
                Err(NoHello::NotTls),
            ),
            ("16 MiB", record(HANDSHAKE, b"\x01\xff\xff\xff"), Err(NoHello::TooLong)),
            ("more than anybody sends", record(HANDSHAKE, b"\x01\x00\x80\x01"), Err(NoHello::TooLong)),
            ("an empty message", body(b""), Err(NoHello::BadLength)),
            ("half a random", body(&start[..20]), Err(NoHello::BadLength)),
            ("nothing behind the random", body(&start), Err(NoHello::BadLength)),
            (
                "a session of 33 bytes",
                { behind(&[&[33][..], &[1; 33], &[0, 2, 0x13, 1, 1, 0]].concat()) },
                Err(NoHello::BadLength),
            ),
            ("no cipher suites", behind(b"\0\0\0\x01\0"), Err(NoHello::BadLength)),
            ("half a cipher suite", behind(b"\0\0\x03\x13\x01\x13\x01\0"), Err(NoHello::BadLength)),
            ("no compression methods", behind(b"\0\0\x02\x13\x01\0"), Err(NoHello::BadLength)),
            ("ciphers beyond the end", behind(b"\0\xff\xff\x13\x01"), Err(NoHello::BadLength)),
            (
                "a byte behind the compression methods",
                { record(HANDSHAKE, &message_with(b"\0")) },
                Err(NoHello::BadLength),
            ),
            (
                "extensions beyond the end",
                record(HANDSHAKE, &message_with(b"\0\x05\0")),
                Err(NoHello::BadLength),
            ),
            (
                "a byte behind the extensions",
                record(HANDSHAKE, &message_with(b"\0\0\0")),
                Err(NoHello::BadLength),
            ),
            ("half an extension", extended(&[b"\0\0\0"]), Err(NoHello::BadLength)),
            ("an extension beyond the others", extended(&[b"\0\0\0\x09x"]), Err(NoHello::BadLength)),
            (
                "an empty extension of the name",
                extended(&[&extension(SERVER_NAME, b"")]),
                Err(NoHello::BadLength),
            ),
            ("no name", extended(&[&extension(SERVER_NAME, b"\0\0")]), Err(NoHello::BadLength)),
            ("an empty name", extended(&[&named(b"")]), Err(NoHello::BadName)),
            ("a name with a zero", extended(&[&named(b"a\0b")]), Err(NoHello::BadName)),
            ("a name that is not ASCII", extended(&[&named("\u{e4}".as_bytes())]), Err(NoHello::BadName)),
            ("a name of 256 bytes", extended(&[&named(&[b'a'; 256])]), Err(NoHello::BadName)),
            (
                "a name of another kind",
                { extended(&[&extension(SERVER_NAME, &vector(b"\x01\0\x01a"))]) },
                Err(NoHello::BadName),
            ),
            (
                "two names in one extension",
                { extended(&[&extension(SERVER_NAME, &vector(b"\0\0\x01a\0\0\x01b"))]) },
                Err(NoHello::BadName),
            ),
            (
                "a name beyond its list",
                { extended(&[&extension(SERVER_NAME, &vector(b"\0\0\x09a"))]) },
                Err(NoHello::BadLength),
            ),
            ("two extensions of names", extended(&[&named(b"a"), &named(b"b")]), Err(NoHello::Repeated)),
            (
                "two extensions of protocols",
                extended(&[&alpn(b"\x01a"), &alpn(b"\x01b")]),
                Err(NoHello::Repeated),
            ),
            ("no protocols", extended(&[&alpn(b"")]), Err(NoHello::BadLength)),
            ("an empty protocol", extended(&[&alpn(b"\x02h2\0")]), Err(NoHello::BadLength)),
            ("a protocol beyond the list", extended(&[&alpn(b"\x09h2")]), Err(NoHello::BadLength)),
        ] {
            assert_eq!(ClientHello::read(&bytes), expected.map(Some), "{what}");
        }
    }

    #[test]
    fn a_hello_that_never_ends_is_given_up() {
        // In records of a byte each, the message is short, but its records are too long.
        let mut bytes = [b"\x01".as_slice(), &[0], b"\x40\0"].map(|piece| record(HANDSHAKE, piece)).concat();
        let more = record(HANDSHAKE, b"\0").repeat(500);
        while bytes.len() < CLIENT_HELLO_MAX {
            assert_eq!(ClientHello::read(&bytes), Ok(None), "{}", bytes.len());
            bytes.extend_from_slice(&more);
        }
        assert_eq!(ClientHello::read(&bytes), Err(NoHello::TooLong));
    }

    proptest! {
        #[test]
        fn no_bytes_stop_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..200), start in 0..4_usize) {
            let whole = sent("a.example", &["h2"], false);
            let mut changed = whole[..whole.len().min(start * 60)].to_vec();
            changed.extend(bytes);
            let _ = ClientHello::read(&changed);
        }
    }
}
