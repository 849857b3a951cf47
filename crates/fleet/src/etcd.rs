//! A client of etcd 3.4 and later over its JSON gateway: reads, conditional writes, leases, and watches. The gRPC
//! API offers the same, but a client for it needs the protobuf compiler at build time.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use config::KeyPair;
use http_client::{ClientStream, DialedStream};
use serde_json::{Value, json};
use tls::ClientSide;

use crate::location::{EtcdEndpoint, Location};
use crate::store::now;

/// Maximum time for connecting to one server and its answer. Then the next server is asked.
const ANSWER_MAX: Duration = Duration::from_millis(800);
/// The largest answer: all stored versions, each as large as etcd's limit for a request.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// gRPC code for a missing or expired token.
const UNAUTHENTICATED: u64 = 16;

#[derive(Debug, Clone, Default)]
pub struct EtcdCredentials {
    /// CAs that sign the servers' certificates; `None` means the system's.
    pub ca: Option<PathBuf>,
    pub certificate: Option<KeyPair>,
    /// The user, and the file with the password.
    pub user: Option<(String, PathBuf)>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EtcdFailure {
    #[error("{0}")]
    Unreachable(String),
    #[error("etcd refuses: {0}")]
    Refused(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    pub key: String,
    pub value: Vec<u8>,
    /// The revision of the last write.
    pub modified: i64,
}

/// Keys to read: a single one, or all with a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtcdKeys {
    One(String),
    /// All keys with this prefix.
    Below(String),
    /// All keys with this prefix, without values.
    NamesBelow(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    Put {
        key: String,
        value: Vec<u8>,
        /// The lease that the key ends with; 0 means none.
        lease: i64,
    },
    Delete(EtcdKeys),
}

/// A client. Its futures stay on their thread.
pub struct EtcdClient {
    location: Location,
    tls: Option<ClientSide>,
    access: EtcdCredentials,
    /// The index of the server that answered last.
    preferred: Cell<usize>,
    /// The connection to the preferred server.
    open: RefCell<Option<(usize, Open)>>,
    token: RefCell<Option<String>>,
    /// When a server answered last, in seconds since 1970.
    answered: Cell<u64>,
    /// How often no server answered.
    failures: Cell<u64>,
}

type Open = ClientStream<Box<dyn DialedStream>>;

/// A watch of keys. It occupies a connection.
pub struct EtcdWatch {
    open: Open,
    /// The part of a line that has arrived.
    text: Vec<u8>,
    /// The server, for messages.
    place: String,
}

/// A change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdEvent {
    /// The key; after a deletion without a value.
    pub entry: KeyValue,
    pub is_deleted: bool,
}

impl EtcdWatch {
    /// Waits for the next changes, all those of a write together. `None` means that the server has compacted changes
    /// that were not reported. A call that is dropped loses nothing.
    pub async fn next(&mut self) -> Result<Option<Vec<EtcdEvent>>, EtcdFailure> {
        loop {
            // One JSON object a line.
            while let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                let told: Value = serde_json::from_slice(&line).unwrap_or_default();
                if let Some(error) = told.get("error") {
                    return Err(self.failed(error["message"].as_str().unwrap_or("it ends the watch")));
                }
                let told = &told["result"];
                if told["canceled"].as_bool() == Some(true) {
                    return Ok(None);
                }
                if let Some(events) = told["events"].as_array().filter(|events| !events.is_empty()) {
                    return Ok(Some(events.iter().filter_map(event).collect()));
                }
            }
            if self.text.len() > ANSWER_BYTES_MAX {
                return Err(self.failed("its answer has no end"));
            }
            match self.open.piece().await {
                Ok(Some(piece)) => self.text.extend_from_slice(&piece),
                Ok(None) => return Err(self.failed("the connection was closed")),
                Err(why) => return Err(self.failed(&why)),
            }
        }
    }

    fn failed(&self, why: &str) -> EtcdFailure {
        EtcdFailure::Unreachable(format!("{}: {why}", self.place))
    }
}

impl EtcdClient {
    /// Creates a client without connecting. Fails on mistakes in certificates and keys.
    pub fn new(location: Location, access: EtcdCredentials) -> Result<Self, String> {
        let servers = location.endpoints.iter();
        let servers =
            servers.map(|EtcdEndpoint { host, port }| http_client::server(host, *port, location.is_secure));
        let (ca, certificate) = (access.ca.clone(), access.certificate.clone());
        let tls = http_client::tls("etcd", servers.collect(), ca, certificate)?;
        Ok(Self {
            location,
            tls,
            access,
            preferred: Cell::new(0),
            open: RefCell::default(),
            token: RefCell::default(),
            answered: Cell::default(),
            failures: Cell::default(),
        })
    }

    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Returns the index of the server that answered last.
    pub(crate) fn server(&self) -> usize {
        self.preferred.get()
    }

    /// Returns when a server answered last, in seconds since 1970.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.get()
    }

    /// Returns how often no server answered.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.get()
    }

    pub async fn read(&self, keys: &[EtcdKeys]) -> Result<(i64, Vec<Vec<KeyValue>>), EtcdFailure> {
        let wanted: Vec<Value> = keys.iter().map(|keys| json!({ "request_range": range(keys) })).collect();
        let answer = self.call("/v3/kv/txn", json!({ "success": wanted })).await?;
        let found = answer["responses"].as_array().map(Vec::as_slice).unwrap_or_default();
        let entries = found.iter().map(|found| {
            let entries = found["response_range"]["kvs"].as_array().into_iter().flatten();
            entries.filter_map(entry).collect()
        });
        let mut entries: Vec<Vec<KeyValue>> = entries.collect();
        entries.resize(keys.len(), Vec::new());
        Ok((revision(&answer), entries))
    }

    /// Reads at most `count` keys with a prefix, in order, as they were at a revision: those from a key on.
    pub(crate) async fn page(
        &self,
        prefix: &str,
        from: &str,
        (count, at): (usize, i64),
    ) -> Result<Vec<KeyValue>, EtcdFailure> {
        let mut wanted = range(&EtcdKeys::Below(prefix.to_owned()));
        wanted["key"] = json!(BASE64.encode(from));
        (wanted["limit"], wanted["revision"]) = (json!(count.to_string()), json!(at.to_string()));
        let answer = self.call("/v3/kv/range", wanted).await?;
        Ok(answer["kvs"].as_array().into_iter().flatten().filter_map(entry).collect())
    }

    /// Writes all or nothing, if each of these keys was last written at its revision (0: if the key does not exist).
    /// Returns the revision of the write; `None` if a key was written meanwhile. After an error the write may have
    /// happened.
    pub async fn write(
        &self,
        conditions: &[(&str, i64)],
        writes: &[Write],
    ) -> Result<Option<i64>, EtcdFailure> {
        let compare: Vec<Value> = conditions
            .iter()
            .map(|(key, revision)| {
                let key = BASE64.encode(key);
                json!({ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string() })
            })
            .collect();
        let writes: Vec<Value> = writes.iter().map(written).collect();
        let answer = self.call("/v3/kv/txn", json!({ "compare": compare, "success": writes })).await?;
        Ok(answer["succeeded"].as_bool().unwrap_or(false).then(|| revision(&answer)))
    }

    /// Grants a lease. Keys bound to it are deleted unless it is kept alive within `ttl`.
    pub async fn lease(&self, ttl: Duration) -> Result<i64, EtcdFailure> {
        let answer = self.call("/v3/lease/grant", json!({ "TTL": ttl.as_secs().to_string() })).await?;
        number(&answer["ID"]).ok_or_else(|| EtcdFailure::Refused("it grants no lease".to_owned()))
    }

    /// Keeps a lease alive. Returns `false` if it had expired.
    pub async fn keep_alive(&self, lease: i64) -> Result<bool, EtcdFailure> {
        let answer = self.call("/v3/lease/keepalive", json!({ "ID": lease.to_string() })).await?;
        Ok(number(&answer["result"]["TTL"]).is_some_and(|ttl| ttl > 0))
    }

    /// Revokes a lease, which deletes the keys bound to it.
    pub async fn revoke(&self, lease: i64) -> Result<(), EtcdFailure> {
        self.call("/v3/lease/revoke", json!({ "ID": lease.to_string() })).await.map(drop)
    }

    /// Waits for the first change of keys at or after revision `from`. Also returns if the server has compacted that
    /// revision. Fails if the connection ends, or if the server has lost its cluster.
    pub async fn change(&self, keys: &EtcdKeys, from: i64) -> Result<(), EtcdFailure> {
        self.watch(keys, from).await?.next().await.map(drop)
    }

    /// Watches keys from revision `from` on.
    pub async fn watch(&self, keys: &EtcdKeys, from: i64) -> Result<EtcdWatch, EtcdFailure> {
        let mut wanted = range(keys);
        wanted["start_revision"] = json!(from.to_string());
        let request = json!({ "create_request": wanted });
        let server = self.preferred.get();
        let place = self.location.endpoints[server].to_string();
        // A separate connection, because a watch occupies it.
        let begin = async {
            let mut open = self.connect(server).await?;
            self.send(&mut open, server, "/v3/watch", &request).await?;
            Ok::<_, String>(open)
        };
        let begun = tokio::time::timeout(ANSWER_MAX, begin).await.unwrap_or_else(|_| Err(late()));
        match begun {
            Ok(open) => Ok(EtcdWatch { open, text: Vec::new(), place }),
            Err(why) => Err(EtcdFailure::Unreachable(format!("{place}: {why}"))),
        }
    }

    /// Tries the servers in turn, starting with the one that answered last.
    async fn call(&self, path: &str, request: Value) -> Result<Value, EtcdFailure> {
        let mut failures = Vec::new();
        let count = self.location.endpoints.len();
        let first = self.preferred.get();
        for server in (0..count).map(|turn| (first + turn) % count) {
            self.preferred.set(server);
            match self.ask(server, path, &request).await {
                Ok(EtcdResponse::Value(value)) => {
                    self.answered.set(now());
                    return Ok(value);
                }
                Ok(EtcdResponse::Refusal(why)) => return Err(EtcdFailure::Refused(why)),
                Err(why) => failures.push(format!("{}: {why}", self.location.endpoints[server])),
            }
            self.open.take();
        }
        self.preferred.set((first + 1) % count);
        self.failures.update(|count| count + 1);
        Err(EtcdFailure::Unreachable(failures.join("; ")))
    }

    async fn ask(&self, server: usize, path: &str, request: &Value) -> Result<EtcdResponse, String> {
        let needs_token = self.access.user.is_some() && self.token.borrow().is_none();
        if needs_token && let Some(refusal) = self.log_in(server).await? {
            return Ok(EtcdResponse::Refusal(refusal));
        }
        let (status, answer) = self.exchange(server, path, request).await?;
        if answer["code"].as_u64() == Some(UNAUTHENTICATED) && self.access.user.is_some() {
            self.token.take();
            if let Some(refusal) = self.log_in(server).await? {
                return Ok(EtcdResponse::Refusal(refusal));
            }
            let (status, answer) = self.exchange(server, path, request).await?;
            return judged(status, answer);
        }
        judged(status, answer)
    }

    async fn log_in(&self, server: usize) -> Result<Option<String>, String> {
        let Some((user, file)) = &self.access.user else { return Ok(None) };
        let password = match std::fs::read_to_string(file) {
            Ok(text) => text.lines().next().unwrap_or_default().to_owned(),
            Err(error) => return Ok(Some(format!("{}: {error}", file.display()))),
        };
        let request = json!({ "name": user, "password": password });
        let (status, answer) = self.exchange(server, "/v3/auth/authenticate", &request).await?;
        let refusal = match judged(status, answer)? {
            EtcdResponse::Refusal(why) => why,
            EtcdResponse::Value(answer) => match answer["token"].as_str() {
                Some(token) => {
                    self.token.replace(Some(token.to_owned()));
                    return Ok(None);
                }
                None => said(&answer),
            },
        };
        Ok(Some(format!("user {user}: {refusal}")))
    }

    /// Sends a request over the open connection, or over a new one. Returns the status and the answer.
    async fn exchange(&self, server: usize, path: &str, request: &Value) -> Result<(u16, Value), String> {
        let exchange = async {
            let mut kept = self.open.take().filter(|(kept, _)| *kept == server);
            let is_open = match &mut kept {
                Some((_, open)) => open.is_open().await,
                None => false,
            };
            let mut open = match kept {
                Some((_, open)) if is_open => open,
                _ => self.connect(server).await?,
            };
            let status = self.send(&mut open, server, path, request).await?;
            // One byte more shows that the body is too large.
            let body = open.body(ANSWER_BYTES_MAX + 1).await?;
            if body.len() > ANSWER_BYTES_MAX {
                return Err(format!("its answer is larger than {} MiB", ANSWER_BYTES_MAX >> 20));
            }
            self.open.replace(Some((server, open)));
            let value = serde_json::from_slice(&body).map_err(|_| not_json(status, &body))?;
            Ok((status, value))
        };
        tokio::time::timeout(ANSWER_MAX, exchange).await.unwrap_or_else(|_| Err(late()))
    }

    async fn send(&self, open: &mut Open, server: usize, path: &str, request: &Value) -> Result<u16, String> {
        let host = self.location.endpoints[server].to_string();
        let token = self.token.borrow().clone();
        let mut fields = vec![
            ("Host", host.as_str()),
            ("Content-Type", "application/json"),
            // A server that loses its leader then ends a watch instead of staying silent.
            ("Grpc-Metadata-Hasleader", "true"),
        ];
        fields.extend(token.as_deref().map(|token| ("Authorization", token)));
        let request = http_client::request("POST", path, &fields, request.to_string().as_bytes())?;
        open.ask(&request).await.map(|head| head.status)
    }

    async fn connect(&self, server: usize) -> Result<Open, String> {
        let EtcdEndpoint { host, port } = &self.location.endpoints[server];
        http_client::connect((host, *port), self.tls.as_ref(), server).await
    }
}

fn late() -> String {
    format!("no answer within {ANSWER_MAX:?}")
}

enum EtcdResponse {
    Value(Value),
    /// Another server would give the same answer.
    Refusal(String),
}

/// Distinguishes answers from refusals, and from servers that cannot answer now.
fn judged(status: u16, answer: Value) -> Result<EtcdResponse, String> {
    // gRPC codes DEADLINE_EXCEEDED and UNAVAILABLE.
    let is_unable = matches!(answer["code"].as_u64(), Some(4 | 14)) || matches!(status, 502..=504);
    match status {
        200 => Ok(EtcdResponse::Value(answer)),
        _ if is_unable => Err(said(&answer)),
        _ => Ok(EtcdResponse::Refusal(said(&answer))),
    }
}

/// Describes an answer that is not from etcd's API.
fn not_json(status: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(200)]);
    match text.lines().next().filter(|line| !line.trim().is_empty()) {
        // The gateway cannot forward the identity in a certificate.
        Some(line) if line.starts_with("CommonName") => {
            "a client's certificate must have no common name (CN); --etcd-user says who it is".to_owned()
        }
        Some(line) => format!("status {status}: {}; is this a port of etcd's clients?", line.trim()),
        None => format!("status {status}, and no JSON: is this a port of etcd's clients?"),
    }
}

fn said(answer: &Value) -> String {
    let text = answer["message"].as_str().or(answer["error"].as_str());
    text.unwrap_or("it does not say why").to_owned()
}

fn range(keys: &EtcdKeys) -> Value {
    match keys {
        EtcdKeys::One(key) => json!({ "key": BASE64.encode(key) }),
        EtcdKeys::Below(prefix) => {
            json!({ "key": BASE64.encode(prefix), "range_end": BASE64.encode(behind(prefix)) })
        }
        EtcdKeys::NamesBelow(prefix) => {
            let mut names = range(&EtcdKeys::Below(prefix.clone()));
            names["keys_only"] = json!(true);
            names
        }
    }
}

/// Returns the first key after all with this prefix: the last byte plus one. Prefixes here end in ASCII.
fn behind(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}

fn written(write: &Write) -> Value {
    match write {
        Write::Put { key, value, lease } => json!({ "request_put": {
            "key": BASE64.encode(key), "value": BASE64.encode(value), "lease": lease.to_string(),
        } }),
        Write::Delete(keys) => json!({ "request_delete_range": range(keys) }),
    }
}

fn event(told: &Value) -> Option<EtcdEvent> {
    let is_deleted = told["type"].as_str() == Some("DELETE");
    Some(EtcdEvent { entry: entry(&told["kv"])?, is_deleted })
}

fn entry(told: &Value) -> Option<KeyValue> {
    let bytes = |value: &Value| BASE64.decode(value.as_str().unwrap_or_default()).ok();
    Some(KeyValue {
        key: String::from_utf8(bytes(&told["key"])?).ok()?,
        value: bytes(&told["value"])?,
        modified: number(&told["mod_revision"])?,
    })
}

fn revision(answer: &Value) -> i64 {
    number(&answer["header"]["revision"]).unwrap_or(0)
}

/// 64-bit numbers are strings in the JSON form of protocol buffers.
fn number(value: &Value) -> Option<i64> {
    value.as_str().map_or_else(|| value.as_i64(), |text| text.parse().ok())
}
