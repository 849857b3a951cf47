//! A server of any HTTP version that has received a request.

use testkit::http1::Http1Peer;
use testkit::http2::H2End;
use testkit::http2::frame::{ENABLE_CONNECT_PROTOCOL, data, headers, reset};
use testkit::http3::{H3TestStream, frame};
use testkit::ports;

use super::scene::{Scene, Spoken};

pub(crate) enum Asked {
    One(Http1Peer),
    Two(H2End),
    /// With the connection, which ends when it is dropped.
    Three(H3TestStream, testkit::http3::Served),
    Gone,
}

impl Asked {
    pub(crate) fn by(scene: &Scene, spoken: Spoken) -> Self {
        match spoken {
            Spoken::Http1 => {
                let mut server = scene.accept1();
                server.head();
                Self::One(server)
            }
            Spoken::Http2 => {
                let mut server = scene.accept2();
                server.whole(1);
                Self::Two(server)
            }
            Spoken::Http3 => {
                let served = scene.quic.accept();
                let mut stream = served.request();
                stream.response();
                Self::Three(stream, served)
            }
        }
    }

    /// Accepts an upgrade request, and switches to the protocol.
    pub(crate) fn switches(scene: &Scene, spoken: Spoken, protocol: &str) -> Self {
        match spoken {
            Spoken::Http1 => {
                let mut server = scene.accept1();
                server.head();
                let lines = format!("Connection: upgrade\r\nUpgrade: {protocol}\r\n");
                server.sends(format!("HTTP/1.1 101 Switching Protocols\r\n{lines}\r\n"));
                Self::One(server)
            }
            Spoken::Http2 => {
                let mut server = H2End::server(ports::accept(&scene.tcp), &[(ENABLE_CONNECT_PROTOCOL, 1)]);
                server.next_on(1);
                server.sends(headers(1, ":status: 200\n"));
                Self::Two(server)
            }
            Spoken::Http3 => {
                let mut served = scene.quic.accept_silently();
                // SETTINGS_ENABLE_CONNECT_PROTOCOL: 1 (RFC 9220 §3).
                served.control(&[0x04, 0x02, 0x08, 0x01]);
                let mut stream = served.request();
                stream.head();
                stream.sends_head(":status: 200\n");
                Self::Three(stream, served)
            }
        }
    }

    /// Sends a head with status 200 and these lines, `name: value`.
    pub(crate) fn sends_head(&mut self, lines: &str) {
        self.sends_status(200, lines);
    }

    /// Sends a head with this status and these lines.
    pub(crate) fn sends_status(&mut self, status: u16, lines: &str) {
        match self {
            Self::One(server) => {
                let lines = lines.replace('\n', "\r\n");
                server.sends(format!("HTTP/1.1 {status} \r\n{lines}\r\n"));
            }
            Self::Two(server) => server.sends(headers(1, &format!(":status: {status}\n{lines}"))),
            Self::Three(stream, _) => stream.sends_head(&format!(":status: {status}\n{lines}")),
            Self::Gone => {}
        }
    }

    /// Sends a body of this length, or as much of it as the proxy takes.
    pub(crate) fn sends_long(&mut self, length: usize) {
        let bytes = vec![b'x'; length];
        match self {
            Self::One(server) => drop(server.can_send(&bytes)),
            Self::Two(server) => {
                let mut sent = 0;
                while sent < length {
                    sent += server.sends_what_it_may(1);
                }
            }
            Self::Three(stream, _) => {
                stream.can_send(&[&frame::head(frame::DATA, length)[..], &bytes].concat());
            }
            Self::Gone => {}
        }
    }

    pub(crate) fn sends_data(&mut self, bytes: &[u8]) {
        match self {
            Self::One(server) => server.sends(bytes),
            Self::Two(server) => server.sends(data(1, bytes)),
            Self::Three(stream, _) => stream.sends_data(bytes),
            Self::Gone => {}
        }
    }

    /// Ends the response as if it were complete.
    pub(crate) fn ends(&mut self) {
        match self {
            Self::One(_) | Self::Gone => {}
            Self::Two(server) => server.sends(testkit::http2::frame::last_data(1, "")),
            Self::Three(stream, _) => stream.ends(),
        }
    }

    /// Resets the stream, or the connection of HTTP/1.
    pub(crate) fn resets(&mut self) {
        match self {
            Self::One(_) => {
                if let Self::One(server) = std::mem::replace(self, Self::Gone) {
                    server.resets();
                }
            }
            Self::Two(server) => server.sends(reset(1, testkit::http2::frame::INTERNAL_ERROR)),
            Self::Three(stream, _) => stream.resets(0x102),
            Self::Gone => {}
        }
    }

    /// Closes the connection without a response.
    pub(crate) fn leaves(&mut self) {
        if let Self::Three(_, served) = std::mem::replace(self, Self::Gone) {
            served.closes(0x100);
        }
    }
}
