//! Error output of applications behind FastCGI becomes messages with the name of its request.

use std::io::{Read, Write};
use std::net::TcpListener;

use rustix::process::Signal;
use testkit::php_fpm::PhpFpm;

use crate::process::{Process, connect, response};

/// Reads records up to the empty one that ends the body of a request.
pub(crate) fn reads_request(stream: &mut impl Read) -> std::io::Result<()> {
    loop {
        let mut header = [0; 8];
        stream.read_exact(&mut header)?;
        let mut content = vec![0; u16::from_be_bytes([header[4], header[5]]).into()];
        stream.read_exact(&mut content)?;
        // STDIN.
        if header[1] == 5 && content.is_empty() {
            return Ok(());
        }
    }
}

pub(crate) fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).expect("it is short").to_be_bytes();
    [&[1, kind, 0, 1, high, low, 0, 0], content].concat()
}

#[test]
fn error_output_is_a_message_with_the_name_of_its_request() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("index.php"), "").expect("it is writable");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let application = listener.local_addr().expect("it is bound");
    let text = format!(
        "workers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nupstream = \"app\"\n\
         request_headers = {{ set = {{ X-Request-ID = \"$request_id\" }} }}\n[upstream.app]\nservers = \
         [\"fcgi://{application}\"]\nfastcgi = {{ root = \"{}\" }}\n",
        folder.path().display()
    );
    std::fs::write(folder.path().join("vanward.toml"), text).expect("it is writable");
    let mut proxy = Process::start_in(folder.path(), &["run"]);
    let mut client = connect(proxy.address());
    client
        .write_all(b"GET /cart?token=secret HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .expect("it reads");
    let (mut stream, _) = listener.accept().expect("the proxy connects");
    reads_request(&mut stream).expect("a request");
    let long = "x".repeat(20_000);
    for (kind, content) in [
        (7, "PHP message: one\nPHP message: two"),
        (6, "Status: 500\r\n\r\nbroken"),
        (7, long.as_str()),
        (3, "\0\0\0\0\0\0\0\0"),
    ] {
        stream.write_all(&record(kind, content.as_bytes())).expect("it reads");
    }
    let mut response = String::new();
    client.read_to_string(&mut response).expect("a response");
    assert!(response.starts_with("HTTP/1.1 500"), "{response}");
    proxy.signal(Signal::TERM);
    let errors = proxy.ended().with_code(0).errors;
    let lines: Vec<&str> = errors.lines().filter(|line| line.contains("error output")).collect();
    let [first, second] = lines.as_slice() else { panic!("two messages: {errors}") };
    let start = format!("upstream app, server {application}: error output of GET /cart, request ");
    for (line, expected) in [(first, "PHP message: one"), (second, "bytes more)")] {
        assert!(line.contains(&start) && line.contains(expected), "{line}");
        assert!(line.contains("[warn]") && !line.contains("secret"), "{line}");
    }
    assert!(first.contains("PHP message: two"), "{first}");
}

#[test]
fn error_output_of_php_fpm_names_its_request() {
    let script = "<?php error_log('what went wrong'); http_response_code(500); echo 'broken';";
    let Some(fpm) = PhpFpm::start(&[("error.php", script)]) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let text = format!(
        "workers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nupstream = \"php\"\n\
         request_headers = {{ set = {{ X-Request-ID = \"$request_id\" }} }}\n\
         response_headers = {{ set = {{ X-Request-ID = \"$request_id\" }} }}\n{}",
        fpm.upstream("php")
    );
    std::fs::write(folder.path().join("vanward.toml"), text).expect("it is writable");
    let mut proxy = Process::start_in(folder.path(), &["run"]);
    let response = response(proxy.address(), "/error.php?token=secret", "");
    assert!(response.starts_with("HTTP/1.1 500 ") && response.contains("broken"), "{response}");
    let id = response.lines().find_map(|line| line.strip_prefix("X-Request-ID: ")).expect("it has an ID");
    proxy.signal(Signal::TERM);
    let errors = proxy.ended().with_code(0).errors;
    let told = format!("error output of GET /error.php, request {id}: ");
    let lines: Vec<&str> = errors.lines().filter(|line| line.contains(&told)).collect();
    let [line] = lines.as_slice() else { panic!("one message with {told:?}: {errors}") };
    assert!(line.contains("[warn] upstream php, server ") && line.contains("what went wrong"), "{line}");
}
