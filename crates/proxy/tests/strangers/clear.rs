//! HTTP/1.1 without TLS on both sides.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

use config::Config;
use control::Running;
use socket2::SockRef;

use super::curl::curl;
use super::installed::{PATIENCE, installed};
use super::nginx::{LARGE_BYTES, Nginx, large_body};

fn proxy_to(server: SocketAddr) -> Running {
    let url = format!("http://{server}").parse().expect("is a URL");
    control::start(Config::for_servers(vec![SocketAddr::from(([127, 0, 0, 1], 0))], vec![url]))
        .expect("it starts")
}

#[test]
fn curl_gets_pages_of_nginx() {
    let (Some(program), Some(nginx)) = (installed("curl"), Nginx::start()) else { return };
    let proxy = proxy_to(nginx.address);
    let front = format!("http://{}", proxy.addresses()[0]);
    let get = |arguments: &[&str], path: &str| {
        let url = format!("{front}{path}");
        curl(&program, &[arguments, &[url.as_str()]].concat()).stdout
    };
    for version in ["--http1.1", "--http1.0"] {
        assert_eq!(get(&[version], "/small.txt"), b"hello\n", "{version}");
        assert!(get(&[version], "/large.bin") == large_body(), "{version}");
        assert!(get(&[version, "--compressed"], "/zipped") == large_body(), "{version}, compressed");
    }
    let range = get(&["--range", "100-199"], "/large.bin");
    assert_eq!(range, large_body()[100..200]);
    let head = String::from_utf8(get(&["--head"], "/large.bin")).expect("is text");
    assert!(head.contains(&format!("Content-Length: {LARGE_BYTES}\r\n")), "{head}");
    let missing = get(&["--output", "/dev/null", "--write-out", "%{http_code}"], "/missing");
    assert_eq!(missing, b"404");
    let seen = String::from_utf8(get(&[], "/seen")).expect("is text");
    assert_eq!(seen, format!("{} 127.0.0.1 1.1 vanward\n", proxy.addresses()[0]));
    // Two pages on one connection.
    let both = format!("{front}/small.txt");
    let output = curl(&program, &[&both, &both, "--write-out", "%{num_connects}\n"]);
    assert_eq!(output.stdout, b"hello\n1\nhello\n0\n");
}

#[test]
fn curl_puts_files_on_nginx() {
    let (Some(program), Some(nginx)) = (installed("curl"), Nginx::start()) else { return };
    let proxy = proxy_to(nginx.address);
    let file = nginx.root().join("pages/large.bin");
    let file = file.to_str().expect("is text");
    let put = |name: &str, arguments: &[&str]| {
        let url = format!("http://{}/put/{name}", proxy.addresses()[0]);
        let status = ["--output", "/dev/null", "--write-out", "%{http_code}", url.as_str()];
        let said = curl(&program, &[arguments, &status].concat()).stdout;
        assert_eq!(String::from_utf8_lossy(&said), "201", "{name}");
        let stored = std::fs::read(nginx.root().join("put").join(name)).expect("it was stored");
        assert!(stored == large_body(), "{name}: what was stored is not what was sent");
    };
    put("length", &["--upload-file", file]);
    put("expect", &["--header", "Expect: 100-continue", "--upload-file", file]);
    put("chunked", &["--header", "Transfer-Encoding: chunked", "--upload-file", file]);
    put("http10", &["--http1.0", "--upload-file", file]);
}

#[test]
fn curl_posts_with_an_expectation() {
    let Some(program) = installed("curl") else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback is free");
    SockRef::from(&listener).set_read_timeout(Some(PATIENCE)).expect("is a socket");
    let proxy = proxy_to(listener.local_addr().expect("it listens"));
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), large_body()).expect("is writable");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the proxy connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("is a socket");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a head arrives");
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).expect("is text");
        assert!(head.contains("\r\nExpect: 100-continue\r\n"), "{head}");
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").expect("the proxy takes it");
        let mut body = vec![0; LARGE_BYTES];
        stream.read_exact(&mut body).expect("the body arrives");
        assert!(body == large_body(), "the body is not what was sent");
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").expect("the proxy takes it");
    });
    let data = format!("@{}", file.path().display());
    let url = format!("http://{}/", proxy.addresses()[0]);
    // Longer than any test: only the server's 100 (Continue) makes curl send.
    let arguments =
        ["--header", "Expect: 100-continue", "--expect100-timeout", "600", "--data-binary", &data, &url];
    assert_eq!(curl(&program, &arguments).stdout, b"done");
    server.join().expect("no panic");
}
