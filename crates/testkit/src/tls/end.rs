//! Client or server played by a test, with or without TLS; it sees exactly how the connection ends.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{
    ClientConfig, ClientConnection, Connection, Error, HandshakeKind, ServerConfig, ServerConnection,
};

use crate::http1::Message;
use crate::wait::PATIENCE;

/// How a connection ended for its reader.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// With TLS: close_notify. Without TLS: the end of the stream.
    Told,
    /// The end of the stream without close_notify.
    Cut,
    /// A reset.
    Reset,
    /// An alert, or bytes that are no TLS record.
    Refused(Error),
}

/// Client or server that the test plays, with or without TLS.
pub struct End {
    /// TCP socket of the connection.
    pub tcp: TcpStream,
    /// TLS state; `None` without TLS.
    pub tls: Option<Connection>,
    received: Vec<u8>,
    /// How the other side has ended, if it has.
    ending: Option<Ending>,
}

impl End {
    /// Creates a client or server without TLS.
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

    /// The TLS state. Panics without TLS.
    pub fn tls(&mut self) -> &mut Connection {
        self.tls.as_mut().expect("it has TLS")
    }

    /// Completes the handshake on this side.
    pub fn shakes_hands(&mut self) -> Result<HandshakeKind, Ending> {
        self.flush();
        while self.tls().is_handshaking() {
            if let Some(ending) = self.receive() {
                return Err(ending);
            }
        }
        Ok(self.tls().handshake_kind().expect("it is over"))
    }

    /// Completes the handshake without sending the last message, which is sent with the next bytes.
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

    /// Sends the bytes that TLS has buffered.
    pub fn flush(&mut self) {
        let Some(tls) = &mut self.tls else { return };
        let mut bytes = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut bytes).expect("memory takes all");
        }
        // Who has closed is noticed by reading.
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

    /// Sends bytes.
    pub fn sends(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let sealed = if self.tls.is_some() { self.sealed(bytes) } else { bytes.to_vec() };
        self.tcp.write_all(&sealed).unwrap_or_else(|error| panic!("it cannot send: {error}"));
    }

    /// Sends a GET request.
    pub fn asks(&mut self, path: &str) {
        self.sends(format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
    }

    /// Sends a response with this body.
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
    fn receive(&mut self) -> Option<Ending> {
        if self.ending.is_none() {
            let before = self.received.len();
            self.ending = self.receive_some();
            if self.received.len() > before {
                return None;
            }
        }
        self.ending.clone()
    }

    fn receive_some(&mut self) -> Option<Ending> {
        let ending = self.take_in();
        if matches!(ending, None | Some(Ending::Refused(_))) {
            self.flush();
        }
        ending
    }

    fn take_in(&mut self) -> Option<Ending> {
        let mut bytes = [0; 64 * 1024];
        let count = match self.tcp.read(&mut bytes) {
            Ok(0) if self.tls.is_some() => return Some(Ending::Cut),
            Ok(0) => return Some(Ending::Told),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("nothing comes for {PATIENCE:?}"),
            Err(_) => return Some(Ending::Reset),
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
                Err(error) => return Some(Ending::Refused(error)),
            };
            let before = self.received.len();
            self.received.resize(before + state.plaintext_bytes_to_read(), 0);
            tls.reader().read_exact(&mut self.received[before..]).expect("as much is there");
            if state.peer_has_closed() {
                return Some(Ending::Told);
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

    /// Receives a head, with its empty line.
    pub fn head(&mut self) -> String {
        loop {
            if let Some(at) = self.received.windows(4).position(|window| window == b"\r\n\r\n") {
                let head: Vec<u8> = self.received.drain(..at + 4).collect();
                return String::from_utf8(head).expect("is text");
            }
            self.fill("a head");
        }
    }

    /// Receives this many bytes.
    pub fn exactly(&mut self, count: usize) -> Vec<u8> {
        while self.received.len() < count {
            self.fill("a body");
        }
        self.received.drain(..count).collect()
    }

    /// Receives a message with a Content-Length, or without a body.
    pub fn message(&mut self) -> Message {
        let head = self.head();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let body = self.exactly(length.map_or(0, |length| length.parse().expect("is a number")));
        Message { head, body }
    }

    /// Receives everything up to the end of the connection.
    pub fn rest(&mut self) -> (Vec<u8>, Ending) {
        loop {
            if let Some(ending) = self.receive() {
                return (std::mem::take(&mut self.received), ending);
            }
        }
    }

    /// Receives the end of the connection, of this kind, and nothing before it.
    #[track_caller]
    pub fn ends(&mut self, expected: &Ending) {
        let (rest, ending) = self.rest();
        assert_eq!((String::from_utf8_lossy(&rest).into_owned(), &ending), (String::new(), expected));
    }
}
