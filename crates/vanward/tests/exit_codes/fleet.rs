//! `vanward fleet` ends with 0 only if every instance runs the version in etcd: each row is a state of the fleet.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::process::{self, Ended, Process, run_in};

const FAILED: i32 = 1;

#[test]
fn a_fleet_is_in_order_only_if_every_instance_runs_the_version_in_etcd() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let etcd = Etcd::start();
    let url = format!("etcd+http://{}/edge", etcd.address);
    let fleet =
        |arguments: &[&str]| run_in(folder.path(), &[&["fleet"], arguments, &["--config", &url]].concat());
    let ends = |state: &str, ended: Ended, code: i32, said: &str| {
        assert_eq!(ended.status.code(), Some(code), "{state}: {ended:?}");
        assert!(ended.output.contains(said), "{state}: {ended:?}");
    };
    ends("etcd is empty", fleet(&[]), FAILED, "etcd has no configuration");

    push(folder.path(), &url, "first");
    ends("no instance runs", fleet(&[]), FAILED, "no instance");

    let start = |name: &str| {
        let state = folder.path().join(name);
        let state = state.to_str().expect("is text");
        Process::start_in(folder.path(), &["run", "--config", &url, "--instance", name, "--fleet-dir", state])
    };
    let _first = start("edge-1");
    ends("each instance runs it", fleet(&["--wait", "5m"]), 0, "edge-1");
    let second = start("edge-2");
    etcd.waits_for("/edge.fleet/instances/edge-2");
    ends("both run it", fleet(&["--wait", "5m"]), 0, "edge-2");

    // After it is killed, its old version stays listed until its lease ends, which never happens here.
    drop(second);
    push(folder.path(), &url, "second");
    ends("an instance runs an older version", fleet(&["--wait", "1s"]), FAILED, "edge-2");
}

fn push(folder: &Path, url: &str, body: &str) {
    let text = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nrespond = {{ status = 200, body = {body:?} }}\n"
    );
    std::fs::write(folder.join("vanward.toml"), text).expect("a file");
    run_in(folder, &["fleet", "push", "vanward.toml", "--config", url]).with_code(0);
}

/// The part of etcd's JSON gateway that fleets use. Leases never end.
struct Etcd {
    address: SocketAddr,
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
}

impl Etcd {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it listens");
        let shared = Arc::new(Shared::default());
        let served = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&served);
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { address, shared }
    }

    fn waits_for(&self, prefix: &str) {
        let is_missing = |store: &mut Store| !store.keys.keys().any(|key| key.starts_with(prefix.as_bytes()));
        let waited =
            self.shared.changed.wait_timeout_while(self.shared.locked(), process::PATIENCE, is_missing);
        assert!(!waited.expect("no thread panics").1.timed_out(), "{prefix} is not written");
    }
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, Store> {
        self.store.lock().expect("no thread panics")
    }
}

impl Store {
    /// Executes a transaction if its conditions hold.
    fn transact(&mut self, asked: &Value) -> Value {
        let conditions = asked["compare"].as_array().into_iter().flatten();
        let is_met = conditions.clone().all(|condition| {
            let expected =
                condition["mod_revision"].as_str().and_then(|revision| revision.parse().ok()).unwrap_or(0);
            self.keys.get(&bytes(&condition["key"])).map_or(0, |(_, revision)| *revision) == expected
        });
        let steps = if is_met { asked["success"].as_array() } else { None };
        let steps: Vec<&Value> = steps.into_iter().flatten().collect();
        if steps.iter().any(|step| step.get("request_range").is_none()) {
            self.revision += 1;
        }
        let responses: Vec<Value> = steps.into_iter().map(|step| self.step(step)).collect();
        json!({ "header": { "revision": self.revision.to_string() }, "succeeded": is_met, "responses": responses })
    }

    fn step(&mut self, step: &Value) -> Value {
        if let Some(range) = step.get("request_range") {
            let found = self.keys.iter().filter(|(key, _)| is_within(range, key));
            let found: Vec<Value> = found
                .map(|(key, (value, revision))| {
                    json!({ "key": text(key), "value": text(value), "mod_revision": revision.to_string() })
                })
                .collect();
            return json!({ "response_range": { "kvs": found } });
        }
        if let Some(put) = step.get("request_put") {
            self.keys.insert(bytes(&put["key"]), (bytes(&put["value"]), self.revision));
        } else {
            self.keys.retain(|key, _| !is_within(&step["request_delete_range"], key));
        }
        json!({})
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) {
    let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
    while let Some((path, asked)) = request(&mut reader) {
        let answer = match path.as_str() {
            "/v3/kv/txn" => shared.locked().transact(&asked),
            "/v3/lease/grant" => json!({ "ID": "7", "TTL": asked["TTL"] }),
            "/v3/lease/keepalive" => json!({ "result": { "ID": "7", "TTL": "60" } }),
            "/v3/watch" => return watch(stream, shared, &asked["create_request"]),
            _ => json!({}),
        };
        shared.changed.notify_all();
        let body = answer.to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        if stream.write_all((head + &body).as_bytes()).is_err() {
            return;
        }
    }
}

/// Reports the first change of a range from a revision on.
fn watch(mut stream: TcpStream, shared: &Shared, range: &Value) {
    let from = range["start_revision"].as_str().and_then(|revision| revision.parse().ok()).unwrap_or(0);
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let begun = json!({ "result": { "created": true } });
    if stream.write_all(format!("{head}{}", chunk(&begun)).as_bytes()).is_err() {
        return;
    }
    let is_unchanged = |store: &mut Store| {
        !store.keys.iter().any(|(key, (_, revision))| is_within(range, key) && *revision >= from)
    };
    let changed = shared.changed.wait_while(shared.locked(), is_unchanged);
    drop(changed.expect("no thread panics"));
    let told = chunk(&json!({ "result": { "events": [{}] } }));
    // An instance that has ended reads no more.
    let _ = stream.write_all(told.as_bytes());
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

fn is_within(range: &Value, key: &[u8]) -> bool {
    let (first, end) = (bytes(&range["key"]), bytes(&range["range_end"]));
    if end.is_empty() { key == first } else { key >= &first[..] && key < &end[..] }
}

fn bytes(value: &Value) -> Vec<u8> {
    BASE64_STANDARD.decode(value.as_str().unwrap_or_default()).expect("is base64")
}

fn text(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}
