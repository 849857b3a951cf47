//! A fake API server: its lists, its watches, and the requests it got.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpSocket;

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) address: SocketAddr,
    shared: Arc<(Mutex<State>, Condvar)>,
    /// A port reserved for this test, which the gateway may share.
    port: Arc<TcpSocket>,
}

#[derive(Default)]
struct State {
    /// Listed objects, by the plural of the kind.
    objects: BTreeMap<String, Vec<Value>>,
    version: u64,
    watches: Vec<(String, TcpStream)>,
    /// Statuses sent in place of a watch, by the plural.
    refusals: Vec<(String, u16)>,
    /// Paths that get 404, by their beginning.
    unknown: Vec<String>,
    /// Bodies sent in place of a list, by the plural.
    garbled: Vec<(String, Value)>,
    lease: Value,
    events: Vec<Value>,
    asked: Vec<Asked>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) token: String,
    pub(crate) body: Value,
}

impl Api {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = TcpSocket::new_v4().expect("a socket");
        // The socket never listens, so the port counts as free.
        port.set_reuseaddr(true).expect("it can be shared");
        port.set_reuseport(true).expect("it can be shared");
        port.bind("0.0.0.0:0".parse().expect("an address")).expect("a port");
        let address = listener.local_addr().expect("it listens");
        let api = Self { address, shared: Arc::default(), port: port.into() };
        api.state().version = 10;
        let server = api.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = server.clone();
                thread::spawn(move || server.serve(stream));
            }
        });
        api
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.local_addr().expect("it is bound").port()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().expect("no test panics while it holds it")
    }

    pub(crate) fn has(&self, plural: &str, object: Value) {
        self.state().objects.entry(plural.to_owned()).or_default().push(object);
    }

    pub(crate) fn is(&self, plural: &str, objects: Vec<Value>, version: u64) {
        let mut state = self.state();
        state.objects.insert(plural.to_owned(), objects);
        state.version = version;
    }

    pub(crate) fn leases(&self, lease: Value) {
        self.state().lease = lease;
    }

    pub(crate) fn refuses_watch(&self, plural: &str, status: u16) {
        self.state().refusals.push((plural.to_owned(), status));
    }

    pub(crate) fn does_not_know(&self, path: &str) {
        self.state().unknown.push(path.to_owned());
    }

    pub(crate) fn answers_list(&self, plural: &str, body: Value) {
        self.state().garbled.push((plural.to_owned(), body));
    }

    pub(crate) fn tells(&self, plural: &str, kind: &str, object: &Value) {
        let line = json!({ "type": kind, "object": object }).to_string() + "\n";
        let chunk = format!("{:x}\r\n{line}\r\n", line.len());
        for (known, stream) in &mut self.state().watches {
            if known == plural {
                // Old watches may be closed.
                let _ = stream.write_all(chunk.as_bytes());
            }
        }
    }

    pub(crate) fn loses(&self, plural: &str) {
        self.state().watches.retain(|(known, stream)| {
            let is_lost = known == plural;
            if is_lost {
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
            !is_lost
        });
    }

    pub(crate) fn count(&self, is_meant: impl Fn(&Asked) -> bool) -> usize {
        self.state().asked.iter().filter(|asked| is_meant(asked)).count()
    }

    pub(crate) fn waits_for(&self, times: usize, is_meant: impl Fn(&Asked) -> bool) -> Asked {
        let is_missing =
            |state: &mut State| state.asked.iter().filter(|asked| is_meant(asked)).count() < times;
        let (mut state, waited) =
            self.shared.1.wait_timeout_while(self.state(), PATIENCE, is_missing).expect("it is not poisoned");
        assert!(!waited.timed_out(), "{:#?}", state.asked);
        state.asked.iter_mut().filter(|asked| is_meant(asked)).nth(times - 1).expect("it was asked").clone()
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
        while let Some(asked) = request(&mut reader) {
            let plural = plural(&asked.path);
            let is_watch = asked.path.contains("watch=1");
            let mut state = self.state();
            let is_unknown = state.unknown.iter().any(|path| asked.path.starts_with(path));
            let answer = match state.refusals.iter().position(|(known, _)| is_watch && *known == plural) {
                Some(place) => Some((state.refusals.remove(place).1, json!({ "message": "refused" }))),
                None if is_unknown => Some((404, json!({ "message": "not found" }))),
                None if is_watch => None,
                None => Some(state.answer(&asked, &plural)),
            };
            state.asked.push(asked);
            match answer {
                Some((status, body)) => {
                    let body = body.to_string();
                    let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", body.len());
                    let _ = stream.write_all((head + &body).as_bytes());
                }
                None => {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
                    state.watches.push((plural, stream.try_clone().expect("a socket")));
                }
            }
            self.shared.1.notify_all();
        }
    }
}

impl State {
    fn answer(&mut self, asked: &Asked, plural: &str) -> (u16, Value) {
        match (asked.method.as_str(), plural) {
            ("GET", "leases") if self.lease.is_null() => (404, json!({ "message": "not found" })),
            ("GET", "leases") => (200, self.lease.clone()),
            ("POST" | "PUT", "leases") => {
                self.lease = asked.body.clone();
                self.lease["metadata"]["resourceVersion"] = "1".into();
                (200, self.lease.clone())
            }
            ("POST", "events") => {
                let name = asked.body["metadata"]["name"].clone();
                let is_there = self.events.contains(&name);
                self.events.push(name);
                if is_there { (409, json!({ "message": "it exists" })) } else { (201, json!({})) }
            }
            ("PATCH", _) => (200, json!({})),
            _ if self.garbled.iter().any(|(known, _)| known == plural) => {
                let place = self.garbled.iter().position(|(known, _)| known == plural);
                (200, self.garbled.remove(place.unwrap_or(0)).1)
            }
            _ => {
                let objects = self.objects.get(plural).cloned().unwrap_or_default();
                (
                    200,
                    json!({ "metadata": { "resourceVersion": self.version.to_string() }, "items": objects }),
                )
            }
        }
    }
}

/// Extracts the plural from a path such as `/apis/GROUP/v1/namespaces/NS/PLURAL/NAME`.
fn plural(path: &str) -> String {
    let path = path.split('?').next().unwrap_or_default();
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let behind = if parts[0] == "api" { 2 } else { 3 };
    match parts[behind..] {
        ["namespaces", _, plural, ..] => plural.to_owned(),
        [plural, ..] => plural.to_owned(),
        [] => String::new(),
    }
}

fn request(reader: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
    let mut parts = line.split(' ');
    let mut asked =
        Asked { method: parts.next()?.to_owned(), path: parts.next()?.to_owned(), ..Asked::default() };
    let mut len = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(": ")?;
        match name.to_ascii_lowercase().as_str() {
            "content-length" => len = value.parse().ok()?,
            "authorization" => asked.token = value.to_owned(),
            _ => {}
        }
    }
    let mut body = vec![0; len];
    reader.read_exact(&mut body).ok()?;
    asked.body = serde_json::from_slice(&body).unwrap_or_default();
    Some(asked)
}
