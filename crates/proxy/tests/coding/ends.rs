//! Every response states its end, in any coding, framing and segmentation by its server. Clients of all versions try
//! all combinations, on the same connections where those stay open.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use coding::{Accepted, BodyEncoder, Coding, Flush, Levels};
use testkit::http1::Http1Peer;
use testkit::http2::H2End;
use testkit::scene::{BodylessRequest, SceneClient, read};
use testkit::{http3, ports};

use super::{Answer, decode, gets, text};

/// Routes by host, with different effects on responses.
const ROUTES: [(&str, &str); 5] = [
    ("passed", ""),
    ("coded", "compress = { min_size = 0 }"),
    ("edited", "compress = true\nresponse_headers = { set = { x-route = \"$route\" } }"),
    ("kept", "cache = {}"),
    ("stored", "cache = {}\ncompress = { min_size = 0 }"),
];

const ACCEPTED: [&str; 4] = ["", "gzip", "br, zstd;q=0.5", "zstd, identity;q=0"];

/// The server's response; the path encodes it.
#[derive(Debug, Clone, Copy)]
struct Given {
    status: u16,
    framing: Framing,
    coding: Option<Coding>,
    /// Length of the decoded body. An empty body is never coded, whatever the head says.
    bytes: usize,
    /// Bytes per write and per chunk.
    piece: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length,
    Chunked,
    UntilClose,
}

const FRAMINGS: [Framing; 3] = [Framing::Length, Framing::Chunked, Framing::UntilClose];
const CODINGS: [Option<Coding>; 4] = [None, Some(Coding::Gzip), Some(Coding::Brotli), Some(Coding::Zstd)];

impl Given {
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for status in [200, 206, 302, 404, 416] {
            for (framing, coding) in
                FRAMINGS.into_iter().flat_map(|framing| CODINGS.map(|coding| (framing, coding)))
            {
                all.push(Self { status, framing, coding, bytes: 0, piece: 1 });
                if !matches!(status, 302 | 416) {
                    // Each piece is a write of the server and a read of the proxy, so few cases have the smallest
                    // pieces.
                    let pieces = [(1, 1), (40, 1), (300, 7), (300, 1000)];
                    all.extend(pieces.map(|(bytes, piece)| Self { status, framing, coding, bytes, piece }));
                }
            }
        }
        for (status, coding) in
            [204, 304].into_iter().flat_map(|status| CODINGS.map(|coding| (status, coding)))
        {
            all.push(Self { status, framing: Framing::Length, coding, bytes: 0, piece: 1 });
        }
        all
    }

    fn path(&self) -> String {
        let Self { status, framing, coding, bytes, piece } = *self;
        let framing = FRAMINGS.iter().position(|known| *known == framing).expect("is one of them");
        let coding = CODINGS.iter().position(|known| *known == coding).expect("is one of them");
        format!("/{status}/{framing}/{coding}/{bytes}/{piece}")
    }

    fn of(path: &str) -> Self {
        let numbers: Vec<usize> = path.split('/').filter_map(|part| part.parse().ok()).collect();
        let [status, framing, coding, bytes, piece] = numbers[..] else { panic!("no such path: {path}") };
        let (framing, coding) = (FRAMINGS[framing], CODINGS[coding]);
        Self { status: status as u16, framing, coding, bytes, piece }
    }

    fn body(&self) -> Vec<u8> {
        let body = text(self.bytes).into_bytes();
        let Some(coding) = self.coding.filter(|_| self.bytes > 0) else { return body };
        let mut coded = Vec::new();
        let mut encoder = BodyEncoder::new(coding, Levels::default(), None);
        encoder.encode(&body, Flush::End, &mut coded).expect("it has memory");
        coded
    }

    /// Returns the server's whole response.
    fn sent(&self, to_head: bool) -> Vec<u8> {
        let body = self.body();
        let coding =
            self.coding.map_or(String::new(), |coding| format!("Content-Encoding: {}\r\n", coding.name()));
        let framing = match self.framing {
            _ if matches!(self.status, 204 | 304) => String::new(),
            Framing::Length => format!("Content-Length: {}\r\n", body.len()),
            Framing::Chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
            Framing::UntilClose => "Connection: close\r\n".to_owned(),
        };
        let head = format!(
            "HTTP/1.1 {} Word\r\nContent-Type: text/html\r\nCache-Control: max-age=60\r\nETag: \"a\"\r\n{coding}{framing}\r\n",
            self.status
        );
        let mut sent = head.into_bytes();
        if to_head {
            return sent;
        }
        if self.framing != Framing::Chunked {
            sent.extend(body);
            return sent;
        }
        for chunk in body.chunks(self.piece) {
            sent.extend(format!("{:x}\r\n", chunk.len()).bytes());
            sent.extend(chunk);
            sent.extend(b"\r\n");
        }
        sent.extend(b"0\r\n\r\n");
        sent
    }
}

/// Answers each request according to its path, until the client closes.
fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        while let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") {
            let head: Vec<u8> = received.drain(..end + 4).collect();
            let head = String::from_utf8(head).expect("is text");
            let mut words = head.split(' ');
            let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let given = Given::of(path);
            let sent = given.sent(method == "HEAD");
            let of_head = sent.windows(4).position(|window| window == b"\r\n\r\n").expect("is a head") + 4;
            stream.write_all(&sent[..of_head])?;
            for piece in sent[of_head..].chunks(given.piece) {
                stream.write_all(piece)?;
            }
            if given.framing == Framing::UntilClose {
                return Ok(());
            }
        }
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        received.extend_from_slice(&buffer[..count]);
    }
}

enum Asking {
    Http1(SocketAddr, &'static str, Option<Http1Peer>),
    Http2(SocketAddr, Option<SceneClient>),
    Http3(SocketAddr, Option<http3::H3TestClient>),
}

impl Asking {
    fn gets(&mut self, (method, host, path, accepted): (&str, &str, &str, &str)) -> Answer {
        match self {
            Self::Http1(address, version, open) => {
                let mut peer = open.take().unwrap_or_else(|| {
                    Http1Peer::new("client", TcpStream::connect(*address).expect("the proxy listens"))
                });
                peer.sends(format!(
                    "{method} {path} {version}\r\nHost: {host}\r\nConnection: keep-alive\r\nAccept-Encoding: {accepted}\r\n\r\n"
                ));
                let (answer, stays_open) = gets_to_its_end(&mut peer, method, version);
                *open = stays_open.then_some(peer);
                answer
            }
            Self::Http2(address, open) => {
                // A connection serves some requests only, so that no window fills.
                let is_fresh = matches!(open, Some(SceneClient::Two(_, stream)) if *stream < 40);
                if !is_fresh {
                    let stream = TcpStream::connect(*address).expect("the proxy listens");
                    *open = Some(SceneClient::Two(Box::new(H2End::client(stream, &[])), 1));
                }
                let client = open.as_mut().expect("it is connected");
                client.asks(&BodylessRequest {
                    method,
                    host,
                    target: path,
                    fields: &format!("accept-encoding: {accepted}\n"),
                });
                gets(client)
            }
            Self::Http3(address, open) => {
                let mut stream = open.get_or_insert_with(|| http3::H3TestClient::connect(*address)).open();
                stream.sends_head(&format!(
                    ":method: {method}\n:scheme: https\n:authority: {host}\n:path: {path}\naccept-encoding: {accepted}\n"
                ));
                stream.ends();
                let (head, body, _) = stream.response();
                let status = head[9..12].parse().expect("is a status");
                Answer { status, fields: head, body }
            }
        }
    }
}

/// Receives an HTTP/1 response to the end that its head states. Returns whether the connection stays open.
fn gets_to_its_end(peer: &mut Http1Peer, method: &str, version: &str) -> (Answer, bool) {
    let head = peer.head();
    let status = head[9..12].parse().expect("is a status");
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    let fields = lines.map(|(name, value)| format!("{}: {value}\n", name.to_lowercase())).collect();
    let mut answer = Answer { status, fields, body: Vec::new() };
    let options = answer.all("connection").join(",");
    let stays_open = options == "keep-alive" || (version == "HTTP/1.1" && options != "close");
    let (length, coding) = (answer.field("content-length"), answer.field("transfer-encoding"));
    assert!(length.is_none() || coding.is_none(), "two framings: {head}");
    answer.body = match (length, coding) {
        _ if method == "HEAD" || matches!(status, 204 | 304) => Vec::new(),
        (Some(length), _) => peer.exactly(length.parse().expect("is a number")),
        (_, Some("chunked")) if version == "HTTP/1.1" => peer.chunks(),
        _ if !stays_open => {
            let (rest, ending) = peer.rest();
            assert_eq!(ending, testkit::http1::ReaderEnding::End, "{head}");
            return (Answer { body: rest, ..answer }, false);
        }
        _ => panic!("a response without an end: {head}"),
    };
    if stays_open {
        // Extra bytes would be read as the next response.
        peer.has_nothing();
    }
    (answer, stays_open)
}

/// Checks the client's response against the server's.
fn check(given: &Given, asked: (&str, &str, &str, &str), answer: &Answer) {
    let (method, host, _, accepted) = asked;
    let told = || format!("{given:?} {asked:?}: {answer:?}");
    assert_eq!(answer.status, given.status, "{}", told());
    assert!(answer.all("content-length").len() <= 1, "{}", told());
    let coding =
        answer.field("content-encoding").map(|name| Coding::named(name.as_bytes()).expect("is a coding"));
    if method == "HEAD" || matches!(given.status, 204 | 304) {
        assert_eq!(answer.body, b"", "{}", told());
    } else {
        let body = if let Some(coding) = coding { decode(coding, &answer.body) } else { answer.body.clone() };
        assert_eq!(String::from_utf8_lossy(&body), text(given.bytes), "{}", told());
    }
    let may_change = !matches!(host, "passed" | "kept") && !matches!(given.status, 204 | 206 | 304);
    let accepted = Accepted::from_values([accepted.as_bytes()]);
    if may_change && let Some(coding) = coding {
        assert!(accepted.takes(coding) || !accepted.takes_identity(), "{}", told());
    }
    let varies = answer.all("vary").iter().any(|value| value.eq_ignore_ascii_case("accept-encoding"));
    let is_tested = may_change && (given.coding.is_some() || coding.is_some());
    assert!(varies || !is_tested, "no Vary: {}", told());
}

#[test]
fn every_response_has_an_end() {
    let server = ports::listen();
    let address = server.local_addr().expect("it listens");
    thread::spawn(move || accept_all(&server));
    let mut config = "workers = 1\n[cache]\nmemory = \"64MiB\"\n".to_owned();
    for (host, settings) in ROUTES {
        config += &format!("[[route]]\nhost = \"{host}\"\nupstream = \"app\"\n{settings}\n");
    }
    config += &format!(
        "[upstream.app]\nservers = [\"http://{address}\"]\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[listen]]\naddress = \"127.0.0.1:0\"\ntls = {{ self_signed = true }}\nhttp3 = true\n"
    );
    let running = control::start(read(&config)).unwrap_or_else(|error| panic!("{error}"));
    let (plain, secured) = (running.addresses()[0], running.addresses()[1]);
    let clients = [
        Asking::Http1(plain, "HTTP/1.0", None),
        Asking::Http1(plain, "HTTP/1.1", None),
        Asking::Http2(plain, None),
        Asking::Http3(secured, None),
    ];
    // Empty bodies get all combinations; the others take turns.
    let ways: Vec<(&str, &str)> =
        ["GET", "HEAD"].into_iter().flat_map(|method| ACCEPTED.map(|accepted| (method, accepted))).collect();
    let mut turns = ways.iter().cycle();
    thread::scope(|scope| {
        for (number, mut client) in clients.into_iter().enumerate() {
            let mut requests = Vec::new();
            for (host, given) in ROUTES
                .into_iter()
                .flat_map(|(host, _)| Given::all().into_iter().map(move |given| (host, given)))
            {
                let count = if given.bytes == 0 { ways.len() } else { 2 };
                requests.extend(turns.by_ref().take(count).map(|way| (host, given, *way)));
            }
            scope.spawn(move || {
                for (host, given, (method, accepted)) in requests {
                    let path = format!("{}/client{number}", given.path());
                    let asked = (method, host, path.as_str(), accepted);
                    let answer = client.gets(asked);
                    check(&given, asked, &answer);
                }
            });
        }
    });
}

fn accept_all(server: &TcpListener) {
    for stream in server.incoming() {
        // A connection that is reset does not matter here.
        thread::spawn(|| stream.and_then(serve));
    }
}
