//! Clients of HTTP/3: requests and responses as with HTTP/1.1 and HTTP/2.

use std::fs;
use std::net::TcpListener;

use control::Running;
use tempfile::TempDir;
use testkit::http3::frame::request;
use testkit::http3::{Got, H3TestClient};
use testkit::ports;
use testkit::scene::read;

use super::application::{Application, end, stdout};

const OK: &str = "Content-Type: text/plain\r\n\r\nok";

struct Http3Scene {
    running: Running,
    server: TcpListener,
    _directory: TempDir,
}

impl Http3Scene {
    /// A proxy for HTTP/3 with one application, which may name files.
    fn new() -> Self {
        let (server, directory) = (ports::listen(), tempfile::tempdir().expect("a temporary directory"));
        for (name, text) in [("index.php", ""), ("a.php", ""), ("files/page.txt", "0123456789")] {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().expect("is in a directory")).expect("it can be made");
            fs::write(path, text).expect("it can be written");
        }
        let (root, address) = (directory.path().display(), ports::address_of(&server));
        let config = format!(
            "workers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\ntls = {{ self_signed = true }}\nhttp3 = true\n\
             [[route]]\nupstream = \"app\"\naccel = {{ \"/protected/\" = \"{root}/files\" }}\n\
             [upstream.app]\nservers = [\"fcgi://{address}\"]\nfastcgi = {{ root = \"{root}\" }}\npool = {{ idle = 0 }}\n"
        );
        let running = control::start(read(&config)).unwrap_or_else(|error| panic!("{error}"));
        Self { running, server, _directory: directory }
    }

    fn client(&self) -> H3TestClient {
        H3TestClient::connect(self.running.addresses()[0])
    }

    fn accept(&self) -> Application {
        Application::from_stream(ports::accept(&self.server))
    }
}

#[test]
fn an_application_gets_the_same_parameters() {
    let scene = Http3Scene::new();
    let client = scene.client();
    let mut stream = client.asks("GET", "/a.php/more%20info?q=1", "x-tag: one\ncookie: c=1\nproxy: forged\n");
    let asked = scene.accept().serves(OK);
    for (name, value) in [
        ("SCRIPT_NAME", Some("/a.php")),
        ("PATH_INFO", Some("/more info")),
        ("REQUEST_URI", Some("/a.php/more%20info?q=1")),
        ("REQUEST_METHOD", Some("GET")),
        ("SERVER_PROTOCOL", Some("HTTP/3.0")),
        ("REQUEST_SCHEME", Some("https")),
        ("HTTPS", Some("on")),
        ("SERVER_NAME", Some("test")),
        ("HTTP_HOST", Some("test")),
        ("HTTP_X_TAG", Some("one")),
        ("HTTP_COOKIE", Some("c=1")),
        ("HTTP_PROXY", None),
    ] {
        assert_eq!(asked.param(name), value, "{name} of {:#?}", asked.params);
    }
    assert_eq!(stream.response().1, b"ok");
}

#[test]
fn bodies_have_their_length_before() {
    let scene = Http3Scene::new();
    let client = scene.client();
    for length in ["content-length: 70000\n", ""] {
        let mut stream = client.open();
        stream.sends_head(&request("POST", "/form", length));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..7 {
                    stream.sends_data(&[b'x'; 10_000]);
                }
                stream.ends();
            });
            let asked = scene.accept().serves(OK);
            assert_eq!(
                (asked.param("CONTENT_LENGTH"), asked.body.len()),
                (Some("70000"), 70_000),
                "{length}"
            );
        });
        assert_eq!(stream.response().1, b"ok");
    }
}

#[test]
fn responses_have_status_fields_and_body() {
    let scene = Http3Scene::new();
    let client = scene.client();
    for (target, text, status, field, body) in [
        ("/", "Content-Type: text/plain\r\n\r\nhi", 200, "content-type: text/plain\n", "hi"),
        ("/", "Status: 404 Not Found\r\nX-A: b\r\n\r\nhi", 404, "x-a: b\n", "hi"),
        ("/", "Location: https://b.example/\n\n", 302, "location: https://b.example/\n", ""),
        ("/", "Status: 500\r\n\r\nhi", 500, "content-length: 2\n", "hi"),
        (
            "/",
            "X-Accel-Redirect: /protected/page.txt\r\nContent-Type: a/b\r\n\r\nx",
            200,
            "content-type: a/b\n",
            "0123456789",
        ),
        (
            "/",
            "X-Accel-Redirect: /protected/../a.php\r\n\r\nx",
            404,
            "content-type: text/plain\n",
            "There is no such file.\n",
        ),
    ] {
        let mut stream = client.asks("GET", target, "");
        scene.accept().serves(text);
        let (head, found, _) = stream.response();
        assert!(head.starts_with(&format!(":status: {status}\n")) && head.contains(field), "{text}: {head}");
        assert!(!head.contains("x-accel"), "{head}");
        assert_eq!(String::from_utf8_lossy(&found), body, "{text}");
    }
    let (head, ..) = client.asks("GET", "/%2e%2e/a.php", "").response();
    assert!(head.starts_with(":status: 400\n"), "{head}");
}

#[test]
fn pieces_pass_as_they_arrive_and_a_broken_response_is_reset() {
    let scene = Http3Scene::new();
    let client = scene.client();
    let mut stream = client.asks("GET", "/", "");
    let mut application = scene.accept();
    application.gets();
    application.sends(stdout("Content-Type: text/event-stream\r\n\r\nfirst"));
    assert!(stream.head().contains("content-type: text/event-stream\n"));
    assert_eq!(stream.gets(), Got::Data(b"first".to_vec()));
    application.sends(stdout("second"));
    assert_eq!(stream.gets(), Got::Data(b"second".to_vec()));
    application.sends([stdout(""), end(0)].concat());
    assert_eq!(stream.gets(), Got::End);
    let mut stream = client.asks("GET", "/", "");
    let mut application = scene.accept();
    application.gets();
    application.sends(stdout("A: b\r\n\r\npart"));
    stream.head();
    assert_eq!(stream.gets(), Got::Data(b"part".to_vec()));
    drop(application);
    assert!(matches!(stream.gets(), Got::Reset(_)));
    let mut stream = client.asks("POST", "/", "content-length: 0\n");
    drop(scene.accept());
    let (head, ..) = stream.response();
    assert!(head.starts_with(":status: 502\n"), "{head}");
}
