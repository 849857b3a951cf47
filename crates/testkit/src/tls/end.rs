//! Client or server played by a test, with or without TLS; it sees exactly how the connection ends.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{
    ClientConfig, ClientConnection, Connection, Error, HandshakeKind, ServerConfig, ServerConnection,
};

use crate::http1::Http1Message;
use crate::wait::PATIENCE;

/// The end of a connection, as its reader sees it.
#[derive(Debug, Clone, PartialEq)]
pub enum TlsEnding {
    /// With TLS: close_notify. Without TLS: the end of the stream.
    Told,
    /// The end of the stream without close_notify.
    Cut,
    Reset,
    /// An alert, or bytes that are not a TLS record.
    Refused(Error),
}

pub struct TlsEnd {
    pub tcp: TcpStream,
    /// `None` without TLS.
    pub tls: Option<Connection>,
    received: Vec<u8>,
    /// The end of the other side, once received.
    ending: Option<TlsEnding>,
}

impl TlsEnd {
    pub fn plain(tcp: TcpStream) -> Self {
        tcp.set_read_timeout(Some(PATIENCE)).expect("is a socket");
        tcp.set_write_timeout(Some(PATIENCE)).expect("is a socket");
        tcp.set_nodelay(true).expect("is a socket");
        Self { tcp, tls: None, received: Vec::new(), ending: None }
    }

    /// Creates a TLS client, before its handshake.
    pub fn client(tcp: TcpStream, config: &Arc<ClientConfig>, name: &str) -> Self {
        let name = ServerName::try_from(name.to_owned()).expect("is a name");
        let connection = ClientConnection::new(Arc::clone(config), name).expect("it can begin");
        Self { tls: Some(connection.into()), ..Self::plain(tcp) }
    }

    /// Creates a TLS server, before its handshake.
    pub fn server(tcp: TcpStream, config: &Arc<ServerConfig>) -> Self {
        let connection = ServerConnection::new(Arc::clone(config)).expect("it can begin");
        Self { tls: Some(connection.into()), ..Self::plain(tcp) }
    }

    /// Panics without TLS.
    pub fn tls(&mut self) -> &mut Connection {
        self.tls.as_mut().expect("it has TLS")
    }

    pub fn shakes_hands(&mut self) -> Result<HandshakeKind, TlsEnding> {
        self.flush();
        while self.tls().is_handshaking() {
            if let Some(ending) = self.receive() {
                return Err(ending);
            }
        }
        Ok(self.tls().handshake_kind().expect("it is over"))
    }

    /// Completes the handshake, but sends the last message only with the next bytes.
    pub fn shakes_hands_all_but(&mut self) -> HandshakeKind {
        self.flush();
        while self.tls().is_handshaking() {
            assert_eq!(self.take_in(), None, "no handshake");
        }
        self.tls().handshake_kind().expect("it is over")
    }

    /// Waits until the client has this many TLS 1.3 tickets.
    pub fn has_tickets(&mut self, count: u32) {
        while let Some(Connection::Client(client)) = &self.tls
            && client.tls13_tickets_received() < count
        {
            assert_eq!(self.receive(), None, "within the tickets");
        }
    }

    pub fn flush(&mut self) {
        let Some(tls) = &mut self.tls else { return };
        let mut bytes = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut bytes).expect("memory takes all");
        }
        // A closed connection is noticed when reading.
        let _ = self.tcp.write_all(&bytes);
    }

    /// Encrypts bytes into records, without sending them.
    pub fn sealed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let tls = self.tls();
        tls.set_buffer_limit(None);
        tls.writer().write_all(bytes).expect("memory takes all");
        let mut sealed = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut sealed).expect("memory takes all");
        }
        sealed
    }

    pub fn sends(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let sealed = if self.tls.is_some() { self.sealed(bytes) } else { bytes.to_vec() };
        self.tcp.write_all(&sealed).unwrap_or_else(|error| panic!("it cannot send: {error}"));
    }

    /// Sends bytes, and returns itself for chaining.
    pub fn saying(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.sends(bytes);
        self
    }

    pub fn asks(&mut self, path: &str) {
        self.sends(format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
    }

    /// Sends a GET request, and returns itself for chaining.
    pub fn asking(mut self, path: &str) -> Self {
        self.asks(path);
        self
    }

    pub fn answers(&mut self, body: &[u8]) {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        self.sends([head.as_bytes(), body].concat());
    }

    /// Sends close_notify; receiving is still possible.
    pub fn tells_its_end(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
        self.flush();
    }

    /// Shuts down the sending side without close_notify.
    pub fn cuts(&mut self) {
        self.tcp.shutdown(Shutdown::Write).expect("is connected");
    }

    /// Waits for more bytes. Returns how the connection ended if there are none.
    fn receive(&mut self) -> Option<TlsEnding> {
        if self.ending.is_none() {
            let before = self.received.len();
            self.ending = self.receive_some();
            if self.received.len() > before {
                return None;
            }
        }
        self.ending.clone()
    }

    fn receive_some(&mut self) -> Option<TlsEnding> {
        let ending = self.take_in();
        if matches!(ending, None | Some(TlsEnding::Refused(_))) {
            self.flush();
        }
        ending
    }

    fn take_in(&mut self) -> Option<TlsEnding> {
        let mut bytes = [0; 64 * 1024];
        let count = match self.tcp.read(&mut bytes) {
            Ok(0) if self.tls.is_some() => return Some(TlsEnding::Cut),
            Ok(0) => return Some(TlsEnding::Told),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("nothing comes for {PATIENCE:?}"),
            Err(_) => return Some(TlsEnding::Reset),
        };
        let Some(tls) = &mut self.tls else {
            self.received.extend_from_slice(&bytes[..count]);
            return None;
        };
        let mut bytes = &bytes[..count];
        while !bytes.is_empty() {
            tls.read_tls(&mut bytes).expect("memory takes all");
            let state = match tls.process_new_packets() {
                Ok(state) => state,
                Err(error) => return Some(TlsEnding::Refused(error)),
            };
            let before = self.received.len();
            self.received.resize(before + state.plaintext_bytes_to_read(), 0);
            tls.reader().read_exact(&mut self.received[before..]).expect("as much is there");
            if state.peer_has_closed() {
                return Some(TlsEnding::Told);
            }
        }
        None
    }

    fn fill(&mut self, what: &str) {
        if let Some(ending) = self.receive() {
            let text = String::from_utf8_lossy(&self.received).into_owned();
            panic!("{ending:?} within {what}, after {} bytes: {text:.500}", self.received.len());
        }
    }

    pub fn head(&mut self) -> String {
        loop {
            if let Some(at) = self.received.windows(4).position(|window| window == b"\r\n\r\n") {
                let head: Vec<u8> = self.received.drain(..at + 4).collect();
                return String::from_utf8(head).expect("is text");
            }
            self.fill("a head");
        }
    }

    /// Receives any head, and returns itself for chaining.
    pub fn after_head(mut self) -> Self {
        self.head();
        self
    }

    pub fn exactly(&mut self, count: usize) -> Vec<u8> {
        while self.received.len() < count {
            self.fill("a body");
        }
        self.received.drain(..count).collect()
    }

    /// Receives a message with a Content-Length, or without a body.
    pub fn message(&mut self) -> Http1Message {
        let head = self.head();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let body = self.exactly(length.map_or(0, |length| length.parse().expect("is a number")));
        Http1Message { head, body }
    }

    pub fn rest(&mut self) -> (Vec<u8>, TlsEnding) {
        loop {
            if let Some(ending) = self.receive() {
                return (std::mem::take(&mut self.received), ending);
            }
        }
    }

    /// Expects the end of the connection, of this kind, and nothing before it.
    #[track_caller]
    pub fn ends(&mut self, expected: &TlsEnding) {
        let (rest, ending) = self.rest();
        assert_eq!((String::from_utf8_lossy(&rest).into_owned(), &ending), (String::new(), expected));
    }
}
