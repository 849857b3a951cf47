//! A proxy with an application behind it, which speaks FastCGI.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use fastcgi::{Header, ParamPairs, RecordType};
use testkit::ports;
use testkit::scene::Scene;
use testkit::wait::PATIENCE;

/// A route to one application, whose scripts are in `{dir}`. `upstream` has further options of the upstream, or of its
/// tables.
pub(crate) fn configuration(upstream: &str) -> String {
    format!(
        "[[route]]\npath = \"/\"\nupstream = \"app\"\n\n[upstream.app]\nservers = [\"fcgi://{{0}}\"]\n\
         fastcgi = {{ root = \"{{dir}}\" }}\n{upstream}\n"
    )
}

/// The scripts `/index.php` and `/a.php`, and an upload.
pub(crate) const FILES: &[(&str, &str)] = &[("index.php", ""), ("a.php", ""), ("x.jpg", "")];

/// A proxy with one application.
pub(crate) fn scene(upstream: &str) -> Scene {
    Scene::with_files(FILES, &configuration(upstream))
}

/// The end of an application's connection.
pub(crate) struct Application {
    stream: TcpStream,
}

/// A request as an application gets it.
pub(crate) struct Asked {
    pub(crate) params: BTreeMap<String, String>,
    /// Whether the connection is kept.
    pub(crate) keep: bool,
    pub(crate) body: Vec<u8>,
}

impl Asked {
    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        self.params.get(name).map(String::as_str)
    }
}

impl Application {
    /// Accepts a connection.
    pub(crate) fn accept(scene: &Scene, server: usize) -> Self {
        Self::from_stream(ports::accept(&scene.listener(server)))
    }

    pub(crate) fn from_stream(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("is a socket");
        Self { stream }
    }

    fn exactly<const LEN: usize>(&mut self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        self.stream.read_exact(&mut bytes).expect("the proxy sends on");
        bytes
    }

    /// Reads a record: its type and content.
    pub(crate) fn record(&mut self) -> (u8, Vec<u8>) {
        let header = Header::decode(self.exactly());
        assert_eq!((header.version, header.id), (1, 1));
        let mut content = vec![0; header.content.into()];
        self.stream.read_exact(&mut content).expect("the proxy sends on");
        let mut padding = vec![0; header.padding.into()];
        self.stream.read_exact(&mut padding).expect("the proxy sends on");
        (header.kind, content)
    }

    /// Reads the beginning of a request and its parameters.
    pub(crate) fn gets_params(&mut self) -> Asked {
        let (kind, content) = self.record();
        assert_eq!(kind, RecordType::BeginRequest as u8);
        assert_eq!(content[..2], [0, 1], "the role is that of a responder");
        let mut params = BTreeMap::new();
        loop {
            let (kind, record) = self.record();
            assert_eq!(kind, RecordType::Params as u8);
            if record.is_empty() {
                return Asked { params, keep: content[2] == 1, body: Vec::new() };
            }
            for pair in ParamPairs::new(&record) {
                let (name, value) = pair.expect("no pair is split");
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("is text");
                assert_eq!(params.insert(text(name), text(value)), None, "each parameter is sent once");
            }
        }
    }

    /// Reads the next piece of the body; empty at its end.
    pub(crate) fn gets_piece(&mut self) -> Vec<u8> {
        let (kind, piece) = self.record();
        assert_eq!(kind, RecordType::Stdin as u8);
        piece
    }

    /// Reads a whole request.
    pub(crate) fn gets(&mut self) -> Asked {
        let mut asked = self.gets_params();
        loop {
            let piece = self.gets_piece();
            if piece.is_empty() {
                return asked;
            }
            asked.body.extend(piece);
        }
    }

    pub(crate) fn sends(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the proxy reads on");
    }

    /// Returns false if the proxy has closed the connection.
    pub(crate) fn can_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Answers with this text of head and body.
    pub(crate) fn answers(&mut self, text: &str) {
        self.sends([stdout(text), end(0)].concat());
    }

    /// Reads a request, and answers with this text of head and body.
    pub(crate) fn serves(&mut self, text: &str) -> Asked {
        let asked = self.gets();
        self.answers(text);
        asked
    }

    /// Expects that the proxy closes the connection.
    pub(crate) fn is_closed(&mut self) {
        match self.stream.read(&mut [0]) {
            Ok(0) => {}
            Ok(_) => panic!("the proxy sends more"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
}

/// A record of the application.
pub(crate) fn record(kind: RecordType, content: &[u8]) -> Vec<u8> {
    let header = Header::new(kind, u16::try_from(content.len()).expect("fits a record"));
    [&header.encode(), content].concat()
}

pub(crate) fn stdout(text: &str) -> Vec<u8> {
    record(RecordType::Stdout, text.as_bytes())
}

pub(crate) fn stderr(text: &str) -> Vec<u8> {
    record(RecordType::Stderr, text.as_bytes())
}

/// The end of a response with this protocol status.
pub(crate) fn end(protocol_status: u8) -> Vec<u8> {
    record(RecordType::EndRequest, &[0, 0, 0, 0, protocol_status, 0, 0, 0])
}
