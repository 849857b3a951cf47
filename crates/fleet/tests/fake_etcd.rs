//! The part of etcd's JSON gateway that followers use, with watches. Leases never end, and old revisions cannot be read.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

pub(crate) struct FakeEtcd {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    store: Mutex<Store>,
    changed: Condvar,
}

#[derive(Default)]
struct Store {
    revision: i64,
    /// Values, with the revision of their last write.
    keys: BTreeMap<Vec<u8>, (Vec<u8>, i64)>,
    /// All events, with the revision of each.
    events: Vec<(i64, Vec<u8>, Value)>,
    /// Open connections, while it runs.
    streams: Vec<TcpStream>,
    is_down: bool,
    /// Transactions with writes.
    writes: usize,
}

impl FakeEtcd {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it listens");
        let shared = Arc::new(Shared::default());
        let served = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&served);
                // A connection that is refused is closed before its first answer.
                let copy = stream.try_clone().expect("a descriptor");
                let mut store = shared.locked();
                if store.is_down {
                    continue;
                }
                store.streams.push(copy);
                drop(store);
                thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { address, shared }
    }

    pub(crate) fn put(&self, key: &str, value: &str) {
        let put = json!({ "request_put": { "key": text(key.as_bytes()), "value": text(value.as_bytes()) } });
        self.shared.locked().transact(&json!({ "success": [put] }));
        self.shared.changed.notify_all();
    }

    /// The keys with a prefix.
    pub(crate) fn keys(&self, prefix: &str) -> Vec<String> {
        let store = self.shared.locked();
        let keys = store.keys.keys().map(|key| String::from_utf8_lossy(key).into_owned());
        keys.filter(|key| key.starts_with(prefix)).collect()
    }

    pub(crate) fn writes(&self) -> usize {
        self.shared.locked().writes
    }

    /// Closes all connections and refuses others, or accepts them again.
    pub(crate) fn set_down(&self, is_down: bool) {
        let mut store = self.shared.locked();
        store.is_down = is_down;
        for stream in store.streams.drain(..) {
            // The client may have closed it.
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(store);
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, Store> {
        self.store.lock().expect("no thread panics")
    }
}

impl Store {
    fn transact(&mut self, asked: &Value) -> Value {
        let mut conditions = asked["compare"].as_array().into_iter().flatten();
        let is_met = conditions.all(|condition| {
            let written = self.keys.get(&bytes(&condition["key"])).map_or(0, |(_, revision)| *revision);
            written == number(&condition["mod_revision"])
        });
        let steps: Vec<&Value> =
            asked["success"].as_array().into_iter().flatten().filter(|_| is_met).collect();
        if steps.iter().any(|step| step.get("request_range").is_none()) {
            self.revision += 1;
            self.writes += 1;
            assert!(steps.len() <= 128, "etcd refuses {} operations", steps.len());
        }
        let responses: Vec<Value> = steps.into_iter().map(|step| self.step(step)).collect();
        json!({ "header": { "revision": self.revision.to_string() }, "succeeded": is_met, "responses": responses })
    }

    fn step(&mut self, step: &Value) -> Value {
        let revision = self.revision;
        if let Some(range) = step.get("request_range") {
            return json!({ "response_range": self.range(range) });
        }
        if let Some(put) = step.get("request_put") {
            let (key, value) = (bytes(&put["key"]), bytes(&put["value"]));
            assert!(value.len() < 1_500_000, "etcd refuses {} bytes", value.len());
            let event = json!({ "kv": written(&key, &value, revision) });
            self.keys.insert(key.clone(), (value, revision));
            self.events.push((revision, key, event));
            return json!({});
        }
        let range = &step["request_delete_range"];
        let gone: Vec<Vec<u8>> = self.keys.keys().filter(|key| is_within(range, key)).cloned().collect();
        for key in gone {
            self.keys.remove(&key);
            let event = json!({ "type": "DELETE", "kv": written(&key, b"", revision) });
            self.events.push((revision, key, event));
        }
        json!({})
    }

    fn range(&self, range: &Value) -> Value {
        let limit = usize::try_from(number(&range["limit"])).ok().filter(|limit| *limit > 0);
        let found = self.keys.iter().filter(|(key, _)| is_within(range, key));
        let found = found.take(limit.unwrap_or(usize::MAX));
        let entries: Vec<Value> =
            found.map(|(key, (value, revision))| written(key, value, *revision)).collect();
        json!({ "header": { "revision": self.revision.to_string() }, "kvs": entries })
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) {
    let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
    while let Some((path, asked)) = request(&mut reader) {
        let answer = match path.as_str() {
            "/v3/kv/txn" => shared.locked().transact(&asked),
            "/v3/kv/range" => shared.locked().range(&asked),
            "/v3/lease/grant" => json!({ "ID": "7", "TTL": asked["TTL"] }),
            "/v3/lease/keepalive" => json!({ "result": { "ID": "7", "TTL": "60" } }),
            "/v3/watch" => return watch(stream, shared, &asked["create_request"]),
            _ => json!({}),
        };
        shared.changed.notify_all();
        let body = answer.to_string();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        if stream.write_all((head + &body).as_bytes()).is_err() {
            return;
        }
    }
}

/// Reports the events of a range, those of one revision together, until the connection ends.
fn watch(mut stream: TcpStream, shared: &Shared, range: &Value) {
    let mut from = number(&range["start_revision"]);
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let begun = json!({ "result": { "created": true } });
    if stream.write_all(format!("{head}{}", chunk(&begun)).as_bytes()).is_err() {
        return;
    }
    loop {
        let next = |store: &Store| {
            let mut events = store.events.iter();
            events.find(|(revision, key, _)| *revision >= from && is_within(range, key)).map(|event| event.0)
        };
        let is_quiet = |store: &mut Store| next(store).is_none() && !store.is_down;
        let store = shared.changed.wait_while(shared.locked(), is_quiet).expect("no thread panics");
        let Some(revision) = next(&store).filter(|_| !store.is_down) else { return };
        let same = store.events.iter().filter(|(of, key, _)| *of == revision && is_within(range, key));
        let events: Vec<Value> = same.map(|(_, _, event)| event.clone()).collect();
        drop(store);
        from = revision + 1;
        let told = json!({ "result": { "header": { "revision": revision.to_string() }, "events": events } });
        if stream.write_all(chunk(&told).as_bytes()).is_err() {
            return;
        }
    }
}

fn chunk(line: &Value) -> String {
    let line = format!("{line}\n");
    format!("{:x}\r\n{line}\r\n", line.len())
}

/// Returns path and body of the next request; `None` at the end.
fn request(reader: &mut impl BufRead) -> Option<(String, Value)> {
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).ok().filter(|count| *count > 0)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().ok()?;
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((first.split(' ').nth(1)?.to_owned(), serde_json::from_slice(&body).ok()?))
}

fn written(key: &[u8], value: &[u8], revision: i64) -> Value {
    json!({ "key": text(key), "value": text(value), "mod_revision": revision.to_string() })
}

fn is_within(range: &Value, key: &[u8]) -> bool {
    let (first, end) = (bytes(&range["key"]), bytes(&range["range_end"]));
    if end.is_empty() { key == first } else { key >= &first[..] && key < &end[..] }
}

/// 64-bit numbers are strings in the JSON form of protocol buffers.
fn number(value: &Value) -> i64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn bytes(value: &Value) -> Vec<u8> {
    BASE64.decode(value.as_str().unwrap_or_default()).expect("is base64")
}

fn text(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}
