//! Everything that `examples/front-door.toml` promises, with the test's addresses and files.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;

use coding::{BodyDecoder, Coding};
use control::Running;
use rustls::ClientConfig;
use tempfile::TempDir;
use testkit::http1::Http1Message;
use testkit::tls::{TestAuthority, TlsEnd};
use testkit::wait::assert_soon;

const EXAMPLE: &str = include_str!("../../../examples/front-door.toml");
/// The password of `me` is `secret`.
const USERS: &str = "me:$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW\n";

struct FrontDoor {
    running: Running,
    folder: TempDir,
    tls: Arc<ClientConfig>,
    _authority: TestAuthority,
}

impl FrontDoor {
    fn open() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path();
        let authority = TestAuthority::new();
        for name in ["www.example.com", "api.example.com"] {
            let files = authority.files(name, &[name]);
            std::fs::copy(&files.pair.cert, root.join(format!("{name}.pem"))).expect("it is there");
            std::fs::copy(&files.pair.key, root.join(format!("{name}.key"))).expect("it is there");
        }
        std::fs::create_dir(root.join("www")).expect("it is new");
        for (name, text) in [
            ("404.html", "not here"),
            ("5xx.html", "out of order"),
            ("users", USERS),
            ("www/index.html", "<title>the application</title>"),
            ("www/app.js", &"export default 1;\n".repeat(200)),
            ("www/.secret", "hidden"),
        ] {
            std::fs::write(root.join(name), text).expect("is writable");
        }
        let mut text = EXAMPLE
            .replace("/etc/vanward", &root.display().to_string())
            .replace("/run/vanward", &root.display().to_string())
            .replace("/var/log/vanward", &root.display().to_string())
            .replace("/srv/www", &root.join("www").display().to_string())
            .replace("10.0.0.0/8", "127.0.0.0/8")
            // However slow the machine is, the burst is used up.
            .replace("rate = \"20/s\"", "rate = \"20/h\"")
            .replace("0.0.0.0:80\"", "127.0.0.1:0\"")
            .replace("0.0.0.0:443\"", "127.0.0.1:0\"");
        for (name, address) in [
            ("app-1", "10.0.0.11:8080"),
            ("app-2", "10.0.0.12:8080"),
            ("app-3", "10.0.0.13:8080"),
            ("next", "10.0.0.21:8080"),
            ("login", "10.0.0.31:9000"),
        ] {
            text = text.replace(address, &server(name).to_string());
        }
        assert!(!text.contains("10.0.0."), "all servers are the test's own");
        let config = testkit::scene::read(&format!("workers = 2\n{text}"));
        let running = control::start(config).unwrap_or_else(|error| panic!("{error}"));
        let tls = Arc::new(authority.client(&[&rustls::version::TLS13]));
        Self { running, folder, tls, _authority: authority }
    }

    fn connect(&self, host: &str) -> TlsEnd {
        let stream = TcpStream::connect(self.running.addresses()[1]).expect("it listens");
        TlsEnd::client(stream, &self.tls, host)
    }

    /// Sends an HTTPS request, as the load balancer of a client at this address.
    fn ask(&self, method: &str, host: &str, path: &str, fields: &str) -> Http1Message {
        let mut client = self.connect(host);
        client.sends(format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-For: 198.51.100.7\r\nX-Forwarded-Proto: https\r\n{fields}\r\n"
        ));
        message(&mut client)
    }

    fn get(&self, host: &str, path: &str, fields: &str) -> Http1Message {
        self.ask("GET", host, path, fields)
    }
}

/// Receives a message in any framing.
fn message(client: &mut TlsEnd) -> Http1Message {
    let head = client.head();
    let of = Http1Message { head, body: Vec::new() };
    if field(&of, "transfer-encoding").is_none() {
        let length = field(&of, "content-length").map_or(0, |length| length.parse().expect("is a number"));
        return Http1Message { body: client.exactly(length), ..of };
    }
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        while !line.ends_with("\r\n") {
            line.push(client.exactly(1)[0] as char);
        }
        let size = usize::from_str_radix(line.trim_end(), 16).expect("is the size of a chunk");
        body.extend(client.exactly(size));
        assert_eq!(client.exactly(2), b"\r\n", "a chunk ends with a line end, and there are no trailers");
        if size == 0 {
            return Http1Message { body, ..of };
        }
    }
}

fn field<'a>(message: &'a Http1Message, name: &str) -> Option<&'a str> {
    let mut lines = message.head.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn text(message: &Http1Message) -> String {
    let Some(coding) = field(message, "content-encoding") else {
        return String::from_utf8_lossy(&message.body).into_owned();
    };
    let mut decoder = BodyDecoder::new(Coding::named(coding.as_bytes()).expect("is a coding"))
        .expect("needs no dictionary");
    let (mut body, mut used) = (Vec::new(), 0);
    loop {
        let decoded = decoder.decode(&message.body[used..], 64 << 10, &mut body).expect("it is well coded");
        used += decoded.used;
        if used == message.body.len() && decoded.wants_input {
            return String::from_utf8(body).expect("is text");
        }
    }
}

/// A server that answers with its name and the request.
fn server(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it listens");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || while answer(name, &stream).is_some() {});
        }
    });
    address
}

fn answer(name: &str, mut stream: &TcpStream) -> Option<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let lower = head.to_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    std::io::copy(&mut stream.take(length.unwrap_or(0)), &mut std::io::sink()).ok()?;
    let path = head.split(' ').nth(1)?;
    let (status, fields) = match path {
        "/verify" if lower.contains("cookie: session=good\r\n") => ("200 OK", "X-User: eve\r\n"),
        "/verify" => ("401 Unauthorized", "X-Why: sign in\r\n"),
        "/live" => {
            let accept = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
            let switch = format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{accept}\r\n\r\n"
            );
            stream.write_all(switch.as_bytes()).ok()?;
            return std::io::copy(&mut { stream }, &mut { stream }).ok().and(None);
        }
        "/nothing" => ("404 Not Found", ""),
        _ => ("200 OK", ""),
    };
    let body = format!("{name}\n{head}{}", "and so on\n".repeat(200));
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(answer.as_bytes()).ok()
}

const WWW: &str = "www.example.com";
const API: &str = "api.example.com";

#[test]
fn the_example_is_valid_and_short() {
    assert!(EXAMPLE.lines().count() <= 100);
    assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/front-door.toml").is_file());
}

#[test]
fn files_come_with_a_fallback_compressed_and_secured() {
    let door = FrontDoor::open();
    let page = door.get(WWW, "/some/place/in/the/application", "");
    assert_eq!((page.status(), text(&page).as_str()), (200, "<title>the application</title>"));
    assert_eq!(field(&page, "content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(field(&page, "cache-control"), Some("no-cache"));
    assert_eq!(field(&page, "x-content-type-options"), Some("nosniff"));
    assert!(
        field(&page, "strict-transport-security").is_some_and(|value| value.starts_with("max-age=31536000"))
    );
    assert_ne!(text(&door.get(WWW, "/.secret", "")), "hidden");
    for (accepted, coding) in [("gzip", "gzip"), ("gzip, br", "br")] {
        let script = door.get(WWW, "/app.js", &format!("Accept-Encoding: {accepted}\r\n"));
        assert_eq!(field(&script, "content-encoding"), Some(coding), "{}", script.head);
        assert_eq!(text(&script), "export default 1;\n".repeat(200));
    }
}

#[test]
fn plain_http_is_redirected_and_the_client_is_whom_the_balancer_names() {
    let door = FrontDoor::open();
    let stream = TcpStream::connect(door.running.addresses()[0]).expect("it listens");
    let mut client = testkit::http1::Http1Peer::new("client", stream);
    client.sends("GET /a?b HTTP/1.1\r\nHost: www.example.com\r\n\r\n");
    let answer = client.message();
    assert_eq!(answer.status(), 308);
    assert!(field(&answer, "location").is_some_and(|url| url.starts_with("https://www.example.com")));
    let seen = text(&door.get(API, "/", ""));
    assert!(seen.contains("X-Forwarded-For: 198.51.100.7, 127.0.0.1\r\n"), "{seen}");
    assert!(seen.starts_with("app-"), "one of three servers: {seen}");
    let log = door.folder.path().join("access.log");
    assert_soon("the log names the client", || {
        std::fs::read_to_string(&log).is_ok_and(|log| log.contains("198.51.100.7") && log.starts_with('{'))
    });
}

#[test]
fn a_folder_is_cached() {
    let door = FrontDoor::open();
    let first = text(&door.get(WWW, "/media/a", ""));
    let second = door.get(WWW, "/media/a", "Accept-Encoding: gzip\r\n");
    assert!(field(&second, "cache-status").is_some_and(|status| status.contains("hit")));
    assert_eq!((text(&second), field(&second, "content-encoding")), (first, Some("gzip")));
}

#[test]
fn web_sockets_pass() {
    let door = FrontDoor::open();
    let mut client = door.connect(WWW);
    client.sends(
        "GET /live HTTP/1.1\r\nHost: www.example.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    assert!(client.head().starts_with("HTTP/1.1 101 "));
    client.sends("frames");
    assert_eq!(client.exactly(6), b"frames");
}

#[test]
fn bodies_are_limited_by_route() {
    let door = FrontDoor::open();
    let large = "Content-Length: 2000000\r\n";
    assert_eq!(door.ask("POST", WWW, "/media/a", large).status(), 413);
    let mut client = door.connect(WWW);
    client.sends(format!("POST /upload HTTP/1.1\r\nHost: {WWW}\r\n{large}\r\n{}", "x".repeat(2_000_000)));
    assert_eq!(message(&mut client).status(), 200);
}

#[test]
fn one_path_asks_for_a_password_and_one_asks_another_server() {
    let door = FrontDoor::open();
    let refused = door.get(WWW, "/admin", "");
    assert_eq!((refused.status(), field(&refused, "www-authenticate").is_some()), (401, true));
    let known = door.get(WWW, "/admin", "Authorization: Basic bWU6c2VjcmV0\r\n");
    assert_eq!(known.status(), 200);
    let refused = door.get(WWW, "/account", "X-User: eve\r\n");
    assert_eq!((refused.status(), field(&refused, "x-why")), (401, Some("sign in")));
    let known = door.get(WWW, "/account", "X-User: mallory\r\nCookie: session=good\r\n");
    assert_eq!(known.status(), 200);
    assert!(text(&known).contains("X-User: eve\r\n") && !text(&known).contains("mallory"));
}

#[test]
fn the_api_is_limited_open_to_the_site_and_has_a_canary() {
    let door = FrontDoor::open();
    let origin = "Origin: https://www.example.com\r\n";
    let preflight = door.ask("OPTIONS", API, "/", &format!("{origin}Access-Control-Request-Method: PUT\r\n"));
    assert_eq!(field(&preflight, "access-control-allow-origin"), Some("https://www.example.com"));
    assert_eq!(field(&door.get(API, "/", origin), "access-control-allow-credentials"), Some("true"));
    let other = door.get(API, "/", "Origin: https://evil.example\r\n");
    assert_eq!(field(&other, "access-control-allow-origin"), None);
    assert!(text(&door.get(API, "/", "Cookie: canary=1\r\n")).starts_with("next\n"));
    assert!(text(&door.get(API, "/", "Cookie: canary=2\r\n")).starts_with("app-"));
    // Pipelined, so that they exceed the limit however busy the machine is.
    let asked = format!(
        "GET / HTTP/1.1\r\nHost: {API}\r\nX-Forwarded-For: 198.51.100.7\r\nX-Forwarded-Proto: https\r\n\r\n"
    );
    let mut client = door.connect(API);
    client.sends(asked.repeat(100));
    let statuses: Vec<u16> = (0..100).map(|_| message(&mut client).status()).collect();
    assert!(statuses.contains(&200) && statuses.contains(&429), "{statuses:?}");
}

#[test]
fn errors_have_their_pages() {
    let door = FrontDoor::open();
    // No route matches this host.
    let mut client = door.connect(WWW);
    client.sends("GET / HTTP/1.1\r\nHost: nobody.example.com\r\n\r\n");
    let nobody = message(&mut client);
    assert_eq!((nobody.status(), text(&nobody).as_str()), (404, "not here"));
}
