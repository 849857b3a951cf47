//! The Connection field (RFC 9110 §7.6.1): options and fields that apply only to this hop.

use crate::head::{FieldLine, Fields, HttpVersion, MessageHead, RequestHead, ResponseHead};
use crate::name::{Name, NameSet, is};

/// The options in all Connection fields of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionOptions {
    pub close: bool,
    pub keep_alive: bool,
    pub upgrade: bool,
    /// Whether Connection names further fields, which end at this hop as well.
    pub names_fields: bool,
}

/// Connection is invalid: too long, or names a field that no hop may remove, such as Host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionError;

/// The longest total length of Connection values. Every field of the message is looked up in them.
// Without a limit, the work would be the product of the two lengths.
pub(crate) const OPTIONS_BYTES_MAX: usize = 1024;

/// Fields that Connection must not name. Without them the next hop would read the message differently, or not see which
/// proxies it passed.
pub(crate) const NEVER_NAMED: NameSet = NameSet::NONE
    .with(Name::Host)
    .with(Name::ContentLength)
    .with(Name::TransferEncoding)
    .with(Name::Via)
    .with(Name::Forwarded)
    .with(Name::XForwardedFor)
    .with(Name::XForwardedProto)
    .with(Name::XForwardedHost);

impl ConnectionOptions {
    #[inline]
    pub fn from_head<Start>(
        head: &MessageHead<Start>,
        bytes: &[u8],
    ) -> Result<ConnectionOptions, ConnectionError> {
        // Most messages have no Connection field.
        if !head.fields.names.has(Name::Connection) {
            return Ok(ConnectionOptions::default());
        }
        Self::of_fields(&head.fields, bytes, ConnectionOptions::add_name)
    }

    /// Reads the Connection options of a response. An option that names a field that no hop may remove is ignored, and
    /// the field is kept: a server's response cannot smuggle a request.
    ///
    /// # Errors
    /// The options are too long.
    #[inline]
    pub fn of_response(head: &ResponseHead, bytes: &[u8]) -> Result<ConnectionOptions, ConnectionError> {
        if !head.fields.names.has(Name::Connection) {
            return Ok(ConnectionOptions::default());
        }
        Self::of_fields(&head.fields, bytes, |options, token| {
            // Rejecting the response would blame a server for a name that has no effect here.
            let _ = options.add_name(token);
            Ok(())
        })
    }

    fn of_fields(
        fields: &Fields,
        bytes: &[u8],
        add_name: impl Fn(&mut Self, &[u8]) -> Result<(), ConnectionError>,
    ) -> Result<ConnectionOptions, ConnectionError> {
        let mut options = ConnectionOptions::default();
        let mut len = 0;
        for value in fields.values(bytes, Name::Connection) {
            len += value.len();
            if len > OPTIONS_BYTES_MAX {
                return Err(ConnectionError);
            }
            // Usually there is one option, and no list.
            if options.add_option(value) {
                continue;
            }
            for token in tokens(value) {
                if !options.add_option(token) {
                    add_name(&mut options, token)?;
                }
            }
        }
        Ok(options)
    }

    /// Adds an option that is not the name of a field. Returns false for any other token.
    #[inline]
    fn add_option(&mut self, token: &[u8]) -> bool {
        let (close, keep_alive, upgrade) =
            (is(token, b"close"), is(token, b"keep-alive"), is(token, b"upgrade"));
        self.close |= close;
        self.keep_alive |= keep_alive;
        self.upgrade |= upgrade;
        close | keep_alive | upgrade
    }

    fn add_name(&mut self, token: &[u8]) -> Result<(), ConnectionError> {
        let name = Name::from_name(token);
        if NEVER_NAMED.has(name) {
            return Err(ConnectionError);
        }
        // Hop-by-hop fields are dropped anyway. Without other names, copying needs no look at each field.
        self.names_fields |= !NameSet::HOP_BY_HOP.has(name);
        Ok(())
    }

    /// Whether the sender keeps the connection open after this message (RFC 9112 §9.3).
    pub fn persists(&self, version: HttpVersion) -> bool {
        match version {
            HttpVersion::Http11 | HttpVersion::Http2 | HttpVersion::Http3 => !self.close,
            HttpVersion::Http10 => self.keep_alive && !self.close,
        }
    }
}

/// Whether a request asks for an upgrade that the proxy forwards.
pub fn wants_upgrade(head: &RequestHead, bytes: &[u8], options: ConnectionOptions) -> bool {
    // RFC 9110 §7.8: an Upgrade in a request of HTTP/1.0 is ignored.
    options.upgrade && head.start.version != HttpVersion::Http10 && upgrades(head, bytes).next().is_some()
}

/// Whether a 101 response accepts an upgrade that the request offered (RFC 9110 §7.8): Connection has `upgrade`, and
/// Upgrade names only offered protocols.
pub fn is_switch_asked_for(
    request: (&RequestHead, &[u8]),
    response: (&ResponseHead, &[u8]),
    options: ConnectionOptions,
) -> bool {
    let is_offered =
        |protocol: &[u8]| upgrades(request.0, request.1).any(|it| it.eq_ignore_ascii_case(protocol));
    // RFC 9110 §15.2.2: a 101 must name its protocol; without one, the client would get a tunnel of unknown bytes.
    let mut protocols = response.0.values(response.1, Name::Upgrade).flat_map(tokens).peekable();
    options.upgrade && protocols.peek().is_some() && protocols.all(is_offered)
}

/// The protocols in Upgrade that are forwarded. Not `h2c`, `HTTP/2.0` or `TLS/1.0`, with which later requests would
/// bypass the proxy's rules.
pub(crate) fn upgrades<'a, Start>(
    head: &'a MessageHead<Start>,
    bytes: &'a [u8],
) -> impl Iterator<Item = &'a [u8]> {
    const REFUSED: [&[u8]; 4] = [b"h2c", b"h2", b"http", b"tls"];
    head.values(bytes, Name::Upgrade).flat_map(tokens).filter(|protocol| {
        let name_len = protocol.iter().position(|&byte| byte == b'/').unwrap_or(protocol.len());
        !REFUSED.iter().any(|refused| protocol[..name_len].eq_ignore_ascii_case(refused))
    })
}

/// Whether Connection removes this field at this hop.
pub(crate) fn is_named(fields: &Fields, bytes: &[u8], field: &FieldLine) -> bool {
    let name = field.name.for_bytes(bytes);
    // A response that names Content-Length here must keep it: see `of_response`.
    !NEVER_NAMED.has(field.known)
        && fields
            .values(bytes, Name::Connection)
            .flat_map(tokens)
            .any(|token| token.eq_ignore_ascii_case(name))
}

/// Whether a list-valued field contains this member, ignoring parameters.
pub(crate) fn has_member<Start>(head: &MessageHead<Start>, bytes: &[u8], field: Name, member: &[u8]) -> bool {
    head.values(bytes, field).flat_map(tokens).any(|token| {
        let end = token.iter().position(|&byte| byte == b';').unwrap_or(token.len());
        token[..end].trim_ascii().eq_ignore_ascii_case(member)
    })
}

/// The non-empty members of a comma-separated list (RFC 9110 §5.6.1).
pub(crate) fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|token| !token.is_empty())
}
