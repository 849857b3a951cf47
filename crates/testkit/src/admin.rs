//! Client of the admin API, over its Unix socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::wait::PATIENCE;

/// Returns status and body.
pub fn asks(socket: &Path, method: &str, place: &str, body: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("is a socket");
    let length = body.len();
    let head = format!(
        "{method} {place} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let status = answer.get(9..12).and_then(|status| status.parse().ok()).expect("it has a status");
    (status, answer.split_once("\r\n\r\n").expect("it has a head").1.to_owned())
}
