//! Servers behind both proxies. They note each request, and answer as its field says.

/// Applications behind FastCGI.
mod application;

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use prove::{MARK, ORIGIN_LINE, OldServer, OriginBehaviour, SHARE, SeenRequest, WEBSOCKET_ACCEPT};

/// Longer heads and bodies end the connection.
const HEAD_BYTES_MAX: u64 = 256 << 10;
const BODY_BYTES_MAX: u64 = 8 << 20;
/// A late response comes by then, even if it is still held.
const HELD_MAX: Duration = Duration::from_secs(30);

/// Servers of one proxy; they end when this is dropped.
pub(super) struct ProofOrigins {
    pub(super) addresses: Vec<SocketAddr>,
    notes: Arc<Notes>,
}

#[derive(Default)]
struct Notes {
    is_over: AtomicBool,
    /// By the number of the request.
    seen: Mutex<HashMap<usize, Vec<SeenRequest>>>,
    late: Mutex<LateResponses>,
    changed: Condvar,
}

/// Responses that wait for others.
#[derive(Default)]
struct LateResponses {
    are_held: bool,
    count: usize,
}

impl Notes {
    /// Notes a request. Returns the response, once it is due, and its kind.
    fn noted(&self, seen: SeenRequest, name: &str) -> (Vec<u8>, OriginBehaviour) {
        let mark = seen.field(&MARK.to_ascii_lowercase()).unwrap_or_default().to_owned();
        let mut words = mark.split(' ');
        let number = words.next().and_then(|word| word.parse::<usize>().ok());
        let behaviour = words.next().and_then(OriginBehaviour::parse).unwrap_or(OriginBehaviour::Page);
        let answer = answer(&seen, behaviour, name);
        if let Some(number) = number {
            let mut all = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            all.entry(number).or_default().push(seen);
        }
        if behaviour == OriginBehaviour::Late {
            self.hold_late();
        }
        (answer, behaviour)
    }

    fn hold_late(&self) {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        late.count += 1;
        // It ends with the release, or with the time.
        drop(self.changed.wait_timeout_while(late, HELD_MAX, |late| late.are_held));
    }
}

impl ProofOrigins {
    /// Starts a stand-in for each server.
    pub(super) fn start(servers: &[OldServer]) -> std::io::Result<Self> {
        let notes = Arc::new(Notes::default());
        let mut addresses = Vec::new();
        for (index, server) in servers.iter().enumerate() {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            addresses.push(listener.local_addr()?);
            let (notes, name) = (Arc::clone(&notes), server.group.clone());
            let speak: Speak = if server.is_fastcgi { application::serve } else { serve };
            std::thread::spawn(move || accept(&listener, index, &name, &notes, speak));
        }
        Ok(Self { addresses, notes })
    }

    /// Holds late responses from now on.
    pub(super) fn hold(&self) {
        *self.notes.late.lock().unwrap_or_else(PoisonError::into_inner) =
            LateResponses { are_held: true, count: 0 };
    }

    /// The number of responses that are held.
    pub(super) fn held(&self) -> usize {
        self.notes.late.lock().unwrap_or_else(PoisonError::into_inner).count
    }

    pub(super) fn release(&self) {
        self.notes.late.lock().unwrap_or_else(PoisonError::into_inner).are_held = false;
        self.notes.changed.notify_all();
    }

    /// Returns what servers saw of a request, and forgets it.
    pub(super) fn take(&self, number: usize) -> Vec<SeenRequest> {
        self.notes.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(&number).unwrap_or_default()
    }
}

impl Drop for ProofOrigins {
    fn drop(&mut self) {
        self.notes.is_over.store(true, Ordering::Relaxed);
        for address in &self.addresses {
            // Wakes the thread that waits for a connection.
            let _ = TcpStream::connect(address);
        }
    }
}

/// Answers the requests of a connection.
type Speak = fn(&TcpStream, usize, &str, &Notes) -> Option<()>;

fn accept(listener: &TcpListener, server: usize, name: &str, notes: &Arc<Notes>, speak: Speak) {
    for stream in listener.incoming() {
        if notes.is_over.load(Ordering::Relaxed) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let (name, notes) = (name.to_owned(), Arc::clone(notes));
        // It ends with the connection, which ends with the proxy.
        std::thread::spawn(move || speak(&stream, server, &name, &notes));
    }
}

/// Answers the requests of a connection, until one is not understood.
fn serve(stream: &TcpStream, server: usize, name: &str, notes: &Notes) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut writer = stream.try_clone().ok()?;
    loop {
        let (seen, is_last) = read(&mut reader, &mut writer, server)?;
        let is_upgrade = seen.field("upgrade").is_some_and(|value| value.eq_ignore_ascii_case("websocket"));
        let (mut answer, behaviour) = notes.noted(seen, name);
        let end_of_line = answer.windows(2).position(|pair| pair == b"\r\n");
        if let Some(at) = end_of_line.filter(|_| is_last) {
            // RFC 9112 §9.6. A proxy that keeps the connection would lose its next request.
            answer.splice(at..at, *b"\r\nConnection: close");
        }
        if is_upgrade && behaviour == OriginBehaviour::Page {
            return websocket(&mut reader, &mut writer);
        }
        writer.write_all(&answer).ok()?;
        if is_last {
            return None;
        }
    }
}

/// Speaks WebSocket (RFC 6455 §5): greets, and sends the first message of the client back.
fn websocket(reader: &mut OriginReader, writer: &mut TcpStream) -> Option<()> {
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {WEBSOCKET_ACCEPT}\r\n\r\n"
    );
    writer.write_all(head.as_bytes()).ok()?;
    writer.write_all(b"\x81\x05hello").ok()?;
    let mut frame = [0; 6];
    reader.read_exact(&mut frame).ok()?;
    let [_, length, mask @ ..] = frame;
    let mut message = vec![0; usize::from(length & 0x7f)];
    reader.read_exact(&mut message).ok()?;
    for (byte, mask) in message.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
    writer.write_all(&[&[0x81, message.len() as u8], &message[..]].concat()).ok()
}

type OriginReader = BufReader<TcpStream>;

fn read(reader: &mut OriginReader, writer: &mut TcpStream, server: usize) -> Option<(SeenRequest, bool)> {
    let first = line(reader)?;
    let mut words = first.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let mut fields = Vec::new();
    loop {
        let line = line(reader)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        if fields.len() > 1000 {
            return None;
        }
    }
    let mut seen = SeenRequest {
        server,
        method: method.to_owned(),
        target: target.to_owned(),
        fields,
        body: Vec::new(),
    };
    if seen.field("expect").is_some() {
        writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
    }
    let length = seen.field("content-length").and_then(|length| length.parse::<u64>().ok());
    if seen.field("transfer-encoding").is_some() {
        seen.body = chunks(reader)?;
    } else if let Some(length) = length.filter(|length| *length <= BODY_BYTES_MAX) {
        seen.body = vec![0; length as usize];
        reader.read_exact(&mut seen.body).ok()?;
    }
    let connection = seen.field("connection").unwrap_or_default().to_ascii_lowercase();
    let is_last = match version {
        "HTTP/1.0" => connection != "keep-alive",
        _ => connection == "close",
    };
    Some((seen, is_last))
}

fn line(reader: &mut OriginReader) -> Option<String> {
    let mut bytes = Vec::new();
    reader.by_ref().take(HEAD_BYTES_MAX).read_until(b'\n', &mut bytes).ok().filter(|length| *length > 0)?;
    Some(String::from_utf8_lossy(&bytes).trim_end_matches(['\r', '\n']).to_owned())
}

fn chunks(reader: &mut OriginReader) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let digits = line(reader)?;
        let length = u64::from_str_radix(digits.split(';').next()?.trim(), 16).ok()?;
        if body.len() as u64 + length > BODY_BYTES_MAX {
            return None;
        }
        let start = body.len();
        body.resize(start + length as usize, 0);
        reader.read_exact(&mut body[start..]).ok()?;
        // The end of the chunk; behind the last one, that of the trailer.
        while !line(reader)?.is_empty() {}
        if length == 0 {
            return Some(body);
        }
    }
}

fn answer(seen: &SeenRequest, behaviour: OriginBehaviour, name: &str) -> Vec<u8> {
    let is_known =
        seen.field("if-none-match") == Some("\"proof\"") && matches!(seen.method.as_str(), "GET" | "HEAD");
    let host = seen.field("host").unwrap_or("localhost");
    let (status, more) = match behaviour {
        OriginBehaviour::Page if is_known => ("304 Not Modified", String::new()),
        OriginBehaviour::Page => ("200 OK", String::new()),
        OriginBehaviour::Missing => ("404 Not Found", String::new()),
        OriginBehaviour::Unavailable => ("503 Service Unavailable", String::new()),
        // A portal names its login page in the Location of a 401.
        OriginBehaviour::Unauthorized => (
            "401 Unauthorized",
            "WWW-Authenticate: Bearer\r\nLocation: https://portal.example/login\r\n".to_owned(),
        ),
        OriginBehaviour::Redirect => ("302 Found", format!("Location: http://{host}/moved?a=b\r\n")),
        OriginBehaviour::Cookie => {
            ("200 OK", "Cache-Control: max-age=3600\r\nSet-Cookie: sid=1; Path=/; HttpOnly\r\n".to_owned())
        }
        OriginBehaviour::Cacheable => ("200 OK", "Cache-Control: public, max-age=3600\r\n".to_owned()),
        OriginBehaviour::Private => ("200 OK", "Cache-Control: private, max-age=3600\r\n".to_owned()),
        OriginBehaviour::Moved => ("302 Found", "Location: /moved?a=b\r\n".to_owned()),
        OriginBehaviour::Late => ("200 OK", String::new()),
    };
    let body = format!("{} of {name}\n{}", behaviour.word(), format!("{ORIGIN_LINE}\n").repeat(60));
    let body = if status.starts_with("304") { String::new() } else { body };
    let mut head = format!("HTTP/1.1 {status}\r\nETag: \"proof\"\r\nX-Powered-By: origin\r\n{more}");
    if seen.field(&SHARE.to_ascii_lowercase()).is_some() {
        head += &format!("Vary: {SHARE}\r\n");
    }
    if !status.starts_with("304") {
        head += &format!("Content-Type: text/html\r\nContent-Length: {}\r\n", body.len());
    }
    head += "\r\n";
    if seen.method != "HEAD" {
        head += &body;
    }
    head.into_bytes()
}
