//! An origin whose pages echo the request: target, the fields that configurations send, and the body.
//!
//! `/missing` is 404, an upgrade is 101 with a few bytes, and `/named/FILE` names a file in X-Accel-Redirect. A second
//! origin has `/missing`, and says in each page that it is the second.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Fields that configurations send to servers.
const TOLD: [&str; 6] = ["host:", "x-site:", "x-real-ip:", "x-secret:", "x-tenant:", "x-odd:"];

/// The response to an upgrade with the key of [`super::asked`], and the first bytes after it.
const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                        Sec-WebSocket-Accept: ICX+Yqv66kxgM0FcWaLWlFLwTAI=\r\n\r\nhello";

/// Starts the origin, which ends with the process.
pub(crate) fn origin() -> SocketAddr {
    start(false)
}

/// Starts a second origin, as [`origin`] does.
pub(crate) fn second() -> SocketAddr {
    start(true)
}

fn start(is_second: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it listens");
    std::thread::spawn(move || {
        for stream in listener.incoming().filter_map(Result::ok) {
            std::thread::spawn(move || serve(stream, is_second));
        }
    });
    address
}

fn serve(mut stream: TcpStream, is_second: bool) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        let mut request = line.split(' ');
        let (method, target) = (request.next()?.to_owned(), request.next()?.to_owned());
        let mut told: Vec<String> = Vec::new();
        let (mut length, mut is_chunked, mut is_upgrade, mut is_last) = (0, false, false, false);
        loop {
            let mut field = String::new();
            reader.read_line(&mut field).ok().filter(|bytes| *bytes > 0)?;
            let lower = field.trim_end().to_ascii_lowercase();
            if lower.is_empty() {
                break;
            }
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            is_chunked |= lower.starts_with("transfer-encoding:");
            is_upgrade |= lower.starts_with("upgrade:");
            is_last |= lower == "connection: close";
            if TOLD.iter().any(|name| lower.starts_with(name)) {
                told.push(lower.replace(": ", ":"));
            }
        }
        if is_upgrade {
            stream.write_all(SWITCHED.as_bytes()).ok()?;
            return None;
        }
        let body = if is_chunked { chunks(&mut reader)? } else { bytes(&mut reader, length)? };
        told.sort_unstable();
        let mark = if is_second { "second\n" } else { "" };
        let page = format!("{mark}{target}\n{}\n{body}\n", told.join("\n"));
        let is_missing = target.starts_with("/missing") && !is_second;
        let status = if is_missing { "404 Not Found" } else { "200 OK" };
        let sent = if method == "HEAD" { "" } else { page.as_str() };
        let length = page.len();
        let named = target.strip_prefix("/named").map(|file| format!("X-Accel-Redirect: {file}\r\n"));
        let named = named.unwrap_or_default();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nContent-Type: text/plain\r\nX-Powered-By: origin\r\n{named}\r\n"
        );
        stream.write_all((head + sent).as_bytes()).ok()?;
        if is_last {
            return None;
        }
    }
}

fn bytes(reader: &mut impl Read, length: usize) -> Option<String> {
    let mut bytes = vec![0; length];
    reader.read_exact(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn chunks(reader: &mut impl BufRead) -> Option<String> {
    let mut all = String::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let length = usize::from_str_radix(line.trim(), 16).ok()?;
        all += &bytes(reader, length)?;
        let mut end = String::new();
        reader.read_line(&mut end).ok()?;
        if length == 0 {
            return Some(all);
        }
    }
}
