//! TLS around a TCP connection: the test sends and receives plaintext, and a thread encrypts and decrypts.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConnection};
use socket2::SockRef;

use super::TestAuthority;

/// Server name of the TLS connections.
pub const NAME: &str = "a.example";
const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";

/// Wraps a client connection in TLS. Returns the plaintext end.
pub fn client(authority: &TestAuthority, speaks_http2: bool, stream: TcpStream) -> TcpStream {
    client_with(authority.client(&[&rustls::version::TLS13]), speaks_http2, stream)
}

/// Wraps a client connection with these settings, such as a client certificate.
pub fn client_with(mut config: ClientConfig, speaks_http2: bool, stream: TcpStream) -> TcpStream {
    config.alpn_protocols = vec![if speaks_http2 { HTTP2 } else { HTTP1 }.to_vec()];
    let name = ServerName::try_from(NAME).expect("is a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("it can begin");
    around(stream, connection.into())
}

/// Wraps a server connection in TLS. Returns the plaintext end.
pub fn server(authority: &TestAuthority, speaks_http2: bool, stream: TcpStream) -> TcpStream {
    server_named(authority, NAME, speaks_http2, stream)
}

/// Wraps a server connection in TLS, with a certificate for this name. Returns the plaintext end.
pub fn server_named(
    authority: &TestAuthority,
    name: &str,
    speaks_http2: bool,
    stream: TcpStream,
) -> TcpStream {
    let mut config = authority.server(&authority.issue(&[name]), &rustls::version::TLS13);
    config.alpn_protocols = vec![if speaks_http2 { HTTP2 } else { HTTP1 }.to_vec()];
    let connection = ServerConnection::new(Arc::new(config)).expect("it can begin");
    around(stream, connection.into())
}

/// Starts the thread; returns the plaintext end.
fn around(sealed: TcpStream, tls: Connection) -> TcpStream {
    let between = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let near = TcpStream::connect(between.local_addr().expect("it listens")).expect("it listens");
    let (plain, _) = between.accept().expect("it was connected");
    for stream in [&sealed, &plain] {
        stream.set_nonblocking(true).expect("is a socket");
        stream.set_nodelay(true).expect("is a socket");
    }
    std::thread::spawn(move || Veil { sealed, plain, tls, opened: Vec::new(), ends: [false; 2] }.pass());
    near
}

struct Veil {
    sealed: TcpStream,
    plain: TcpStream,
    tls: Connection,
    /// Decrypted bytes that are not passed on yet.
    opened: Vec<u8>,
    /// Which sides have ended: the encrypted one, the plaintext one.
    ends: [bool; 2],
}

impl Veil {
    /// Passes bytes on until both sides have ended. If one side fails, resets the other too.
    fn pass(mut self) {
        loop {
            match self.step() {
                Ok(true) => self.wait(),
                Ok(false) => return,
                Err(_) => {
                    for stream in [&self.sealed, &self.plain] {
                        let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
                    }
                    return;
                }
            }
        }
    }

    /// Passes on as much as is possible without waiting. Returns whether more may come.
    fn step(&mut self) -> std::io::Result<bool> {
        let Self { sealed, plain, tls, opened, ends } = self;
        if !ends[0] && opened.is_empty() {
            match tls.read_tls(sealed) {
                Ok(0) => ends[0] = true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            // A close_notify is not waited for: the connection may end without one, or later.
            let state = tls.process_new_packets().map_err(std::io::Error::other)?;
            let mut bytes = vec![0; state.plaintext_bytes_to_read()];
            tls.reader().read_exact(&mut bytes)?;
            opened.extend(bytes);
            if ends[0] && opened.is_empty() {
                plain.shutdown(Shutdown::Write)?;
            }
        }
        if !opened.is_empty() {
            match plain.write(opened) {
                Ok(count) => drop(opened.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if ends[0] && opened.is_empty() {
                plain.shutdown(Shutdown::Write)?;
            }
        }
        let mut bytes = [0; 16 * 1024];
        if !ends[1] && !tls.is_handshaking() && !tls.wants_write() {
            match plain.read(&mut bytes) {
                Ok(0) => {
                    ends[1] = true;
                    tls.send_close_notify();
                }
                Ok(count) => tls.writer().write_all(&bytes[..count])?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        while tls.wants_write() {
            match tls.write_tls(sealed) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(!(ends[0] && opened.is_empty() && (ends[1] || tls.is_handshaking())))
    }

    fn wait(&self) {
        let Self { sealed, plain, tls, opened, ends } = self;
        let mut of_sealed = PollFlags::empty();
        of_sealed.set(PollFlags::IN, !ends[0] && opened.is_empty());
        of_sealed.set(PollFlags::OUT, tls.wants_write());
        let mut of_plain = PollFlags::empty();
        of_plain.set(PollFlags::IN, !ends[1] && !tls.is_handshaking() && !tls.wants_write());
        of_plain.set(PollFlags::OUT, !opened.is_empty());
        // A socket without wanted events would still wake the thread when it ends.
        let both = [(sealed, of_sealed), (plain, of_plain)];
        let wanted = both.iter().filter(|(_, flags)| !flags.is_empty());
        let mut wanted: Vec<PollFd<'_>> = wanted.map(|(stream, flags)| PollFd::new(stream, *flags)).collect();
        let _ = poll(&mut wanted, None);
    }
}
