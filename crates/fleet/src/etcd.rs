//! A client of etcd 3.4 and later by its JSON gateway: reads, conditional writes, leases, and waiting for changes. Its
//! gRPC API says the same; a client of that would need the compiler of its messages to build.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use config::{KeyPair, Scheme, Server, ServerHost, Upstream, UpstreamTls};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tls::ClientSide;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

use crate::location::{Endpoint, Location};

/// How long one server has for a connection and an answer. Another one is asked then.
const ANSWER_MAX: Duration = Duration::from_millis(800);
/// The largest answer: all versions that are kept, each as large as etcd takes a request.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Code of gRPC: a token is missing, or no longer valid.
const UNAUTHENTICATED: u64 = 16;

/// How to be let in.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// A file with the CAs that sign the certificates of the servers; `None` means the system's.
    pub ca: Option<PathBuf>,
    /// The client's certificate.
    pub certificate: Option<KeyPair>,
    /// A user, and the file with the password.
    pub user: Option<(String, PathBuf)>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No server answers.
    #[error("{0}")]
    Unreachable(String),
    /// etcd refuses the request.
    #[error("etcd refuses: {0}")]
    Refused(String),
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// The revision of the store that wrote it last.
    pub modified: i64,
}

/// Keys to read: one, or all that begin alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keys {
    /// One key.
    One(String),
    /// All keys with this beginning.
    Below(String),
    /// The same, without their values.
    NamesBelow(String),
}

/// A write that is made if the whole transaction is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Sets a key.
    Put {
        /// The key.
        key: String,
        /// Its value.
        value: Vec<u8>,
        /// The lease that it ends with; 0 means none.
        lease: i64,
    },
    /// Deletes keys.
    Delete(Keys),
}

/// A client. Its futures stay on their thread.
pub struct Client {
    location: Location,
    tls: Option<ClientSide>,
    access: Access,
    /// The index of the server that answered last.
    preferred: Cell<usize>,
    /// The connection to that one.
    open: RefCell<Option<Open>>,
    token: RefCell<Option<String>>,
}

/// A connection, and the task that drives it.
struct Open {
    send: SendRequest<Full<Bytes>>,
    server: usize,
    task: AbortHandle,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Client {
    /// A client that has not connected yet.
    ///
    /// # Errors
    /// What is wrong with certificates and keys.
    pub fn new(location: Location, access: Access) -> Result<Self, String> {
        let tls = UpstreamTls {
            ca: access.ca.clone(),
            certificate: access.certificate.clone(),
            ..UpstreamTls::default()
        };
        let scheme = if location.is_secure { Scheme::Https } else { Scheme::Http };
        let servers = location.endpoints.iter().map(|Endpoint { host, port }| {
            let host = match host.parse() {
                Ok(address) => ServerHost::Address(address),
                Err(_) => ServerHost::Name(host.clone()),
            };
            Server {
                name: None,
                scheme,
                host,
                port: *port,
                weight: 1,
                down: false,
                priority: 0,
                max_requests: None,
            }
        });
        let upstream = Upstream { tls, ..Upstream::of("etcd", servers.collect()) };
        let tls = ClientSide::load(&upstream)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
        Ok(Self {
            location,
            tls,
            access,
            preferred: Cell::new(0),
            open: RefCell::default(),
            token: RefCell::default(),
        })
    }

    /// Where it reads and writes.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// The server that answered last, by its index.
    pub(crate) fn server(&self) -> usize {
        self.preferred.get()
    }

    /// Reads keys, all at one revision of the store, which it returns too.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn read(&self, keys: &[Keys]) -> Result<(i64, Vec<Vec<Entry>>), Failure> {
        let wanted: Vec<Value> = keys.iter().map(|keys| json!({ "request_range": range(keys) })).collect();
        let answer = self.call("/v3/kv/txn", json!({ "success": wanted })).await?;
        let found = answer["responses"].as_array().map(Vec::as_slice).unwrap_or_default();
        let entries = found.iter().map(|found| {
            let entries = found["response_range"]["kvs"].as_array().into_iter().flatten();
            entries.filter_map(entry).collect()
        });
        let mut entries: Vec<Vec<Entry>> = entries.collect();
        entries.resize(keys.len(), Vec::new());
        Ok((revision(&answer), entries))
    }

    /// Writes all or nothing, if each of these keys was last written at its revision (0: if it is not there). Returns
    /// whether it was written.
    ///
    /// # Errors
    /// Why there is no answer; it may have been written then.
    pub async fn write(&self, conditions: &[(&str, i64)], writes: &[Write]) -> Result<bool, Failure> {
        let compare: Vec<Value> = conditions
            .iter()
            .map(|(key, revision)| {
                let key = BASE64.encode(key);
                json!({ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string() })
            })
            .collect();
        let writes: Vec<Value> = writes.iter().map(written).collect();
        let answer = self.call("/v3/kv/txn", json!({ "compare": compare, "success": writes })).await?;
        Ok(answer["succeeded"].as_bool().unwrap_or(false))
    }

    /// A lease: what is bound to it is deleted unless it is kept alive within `ttl`.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn lease(&self, ttl: Duration) -> Result<i64, Failure> {
        let answer = self.call("/v3/lease/grant", json!({ "TTL": ttl.as_secs().to_string() })).await?;
        number(&answer["ID"]).ok_or_else(|| Failure::Refused("it grants no lease".to_owned()))
    }

    /// Keeps a lease alive. Returns whether it still was.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn keep_alive(&self, lease: i64) -> Result<bool, Failure> {
        let answer = self.call("/v3/lease/keepalive", json!({ "ID": lease.to_string() })).await?;
        Ok(number(&answer["result"]["TTL"]).is_some_and(|ttl| ttl > 0))
    }

    /// Ends a lease: what is bound to it is deleted.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn revoke(&self, lease: i64) -> Result<(), Failure> {
        self.call("/v3/lease/revoke", json!({ "ID": lease.to_string() })).await.map(drop)
    }

    /// Waits for a change of keys at a revision from `from` on. Returns at the first one, or once the server does not know
    /// any more what it was (compaction).
    ///
    /// # Errors
    /// The connection has ended, or the server has lost the others.
    pub async fn change(&self, keys: &Keys, from: i64) -> Result<(), Failure> {
        let mut wanted = range(keys);
        wanted["start_revision"] = json!(from.to_string());
        let request = json!({ "create_request": wanted });
        let server = self.preferred.get();
        let failed =
            |why: String| Failure::Unreachable(format!("{}: {why}", self.location.endpoints[server]));
        let late = |_| failed(late());
        // A connection of its own: it is for this answer alone.
        let begin = async {
            let mut open = self.connect(server).await?;
            let answer = self.send(&mut open, server, "/v3/watch", &request).await?;
            Ok::<_, String>((open, answer))
        };
        let (_open, answer) = tokio::time::timeout(ANSWER_MAX, begin).await.map_err(late)?.map_err(failed)?;
        let mut body = answer.into_body();
        let mut text = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| failed(error.to_string()))?;
            text.extend_from_slice(frame.data_ref().map(|bytes| &bytes[..]).unwrap_or_default());
            // An object a line.
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                let told: Value = serde_json::from_slice(&line).unwrap_or_default();
                if let Some(error) = told.get("error") {
                    return Err(failed(error["message"].as_str().unwrap_or("it ends the watch").to_owned()));
                }
                let told = &told["result"];
                let has_events = told["events"].as_array().is_some_and(|events| !events.is_empty());
                if has_events || told["canceled"].as_bool() == Some(true) {
                    return Ok(());
                }
            }
            if text.len() > ANSWER_BYTES_MAX {
                return Err(failed("its answer has no end".to_owned()));
            }
        }
        Err(failed("the connection was closed".to_owned()))
    }

    /// Asks one server after the other, the one that answered last first.
    async fn call(&self, path: &str, request: Value) -> Result<Value, Failure> {
        let mut failures = Vec::new();
        let count = self.location.endpoints.len();
        let first = self.preferred.get();
        for server in (0..count).map(|turn| (first + turn) % count) {
            self.preferred.set(server);
            match self.ask(server, path, &request).await {
                Ok(Answer::Value(value)) => return Ok(value),
                Ok(Answer::Refusal(why)) => return Err(Failure::Refused(why)),
                Err(why) => failures.push(format!("{}: {why}", self.location.endpoints[server])),
            }
            self.open.take();
        }
        self.preferred.set((first + 1) % count);
        Err(Failure::Unreachable(failures.join("; ")))
    }

    async fn ask(&self, server: usize, path: &str, request: &Value) -> Result<Answer, String> {
        let needs_token = self.access.user.is_some() && self.token.borrow().is_none();
        if needs_token && let Some(refusal) = self.log_in(server).await? {
            return Ok(Answer::Refusal(refusal));
        }
        let (status, answer) = self.exchange(server, path, request).await?;
        if answer["code"].as_u64() == Some(UNAUTHENTICATED) && self.access.user.is_some() {
            self.token.take();
            if let Some(refusal) = self.log_in(server).await? {
                return Ok(Answer::Refusal(refusal));
            }
            let (status, answer) = self.exchange(server, path, request).await?;
            return judged(status, answer);
        }
        judged(status, answer)
    }

    /// Asks for a token. Returns why there is none.
    async fn log_in(&self, server: usize) -> Result<Option<String>, String> {
        let Some((user, file)) = &self.access.user else { return Ok(None) };
        let password = match std::fs::read_to_string(file) {
            Ok(text) => text.lines().next().unwrap_or_default().to_owned(),
            Err(error) => return Ok(Some(format!("{}: {error}", file.display()))),
        };
        let request = json!({ "name": user, "password": password });
        let (status, answer) = self.exchange(server, "/v3/auth/authenticate", &request).await?;
        let refusal = match judged(status, answer)? {
            Answer::Refusal(why) => why,
            Answer::Value(answer) => match answer["token"].as_str() {
                Some(token) => {
                    self.token.replace(Some(token.to_owned()));
                    return Ok(None);
                }
                None => said(&answer),
            },
        };
        Ok(Some(format!("user {user}: {refusal}")))
    }

    /// One request on the kept connection, or on a new one. Returns the status and the answer.
    async fn exchange(&self, server: usize, path: &str, request: &Value) -> Result<(u16, Value), String> {
        let exchange = async {
            let kept = self.open.take().filter(|open| open.server == server && open.send.is_ready());
            let mut open = match kept {
                Some(open) => open,
                None => self.connect(server).await?,
            };
            let answer = self.send(&mut open, server, path, request).await?;
            let status = answer.status().as_u16();
            let body = http_body_util::Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
            let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
            self.open.replace(Some(open));
            let value = serde_json::from_slice(&body).map_err(|_| not_json(status, &body))?;
            Ok((status, value))
        };
        tokio::time::timeout(ANSWER_MAX, exchange).await.unwrap_or_else(|_| Err(late()))
    }

    async fn send(
        &self,
        open: &mut Open,
        server: usize,
        path: &str,
        request: &Value,
    ) -> Result<Response<Incoming>, String> {
        let mut head = Request::post(path)
            .header("host", self.location.endpoints[server].to_string())
            .header("content-type", "application/json")
            // A server that has lost the others ends a watch then, rather than to be silent.
            .header("grpc-metadata-hasleader", "true");
        if let Some(token) = &*self.token.borrow() {
            head = head.header("authorization", token);
        }
        let request =
            head.body(Full::new(Bytes::from(request.to_string()))).map_err(|error| error.to_string())?;
        open.send.ready().await.map_err(|error| error.to_string())?;
        open.send.send_request(request).await.map_err(|error| error.to_string())
    }

    async fn connect(&self, server: usize) -> Result<Open, String> {
        let Endpoint { host, port } = &self.location.endpoints[server];
        let tcp = TcpStream::connect((host.as_str(), *port)).await.map_err(|error| error.to_string())?;
        let _ = tcp.set_nodelay(true);
        match self.tls.as_ref().and_then(|tls| Some((tls.config(), tls.name(server)?.clone()))) {
            None => begin(tcp, server).await,
            Some((config, name)) => {
                let tls = TlsConnector::from(Arc::clone(&config)).connect(name, tcp).await;
                begin(tls.map_err(|error| error.to_string())?, server).await
            }
        }
    }
}

fn late() -> String {
    format!("no answer within {ANSWER_MAX:?}")
}

/// Begins HTTP/1.1 on a connection.
async fn begin(stream: impl AsyncRead + AsyncWrite + Unpin + 'static, server: usize) -> Result<Open, String> {
    let (send, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let task = tokio::task::spawn_local(async move {
        // What went wrong is told to whoever waits for an answer.
        let _ = connection.await;
    });
    Ok(Open { send, server, task: task.abort_handle() })
}

/// What a server says.
enum Answer {
    Value(Value),
    /// Another server would say the same.
    Refusal(String),
}

/// Tells answers from refusals, and from servers that are not able to answer now.
fn judged(status: u16, answer: Value) -> Result<Answer, String> {
    // Codes of gRPC: DEADLINE_EXCEEDED, UNAVAILABLE.
    let is_unable = matches!(answer["code"].as_u64(), Some(4 | 14)) || matches!(status, 502..=504);
    match status {
        200 => Ok(Answer::Value(answer)),
        _ if is_unable => Err(said(&answer)),
        _ => Ok(Answer::Refusal(said(&answer))),
    }
}

/// What to say of an answer that is not one of etcd's API.
fn not_json(status: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(200)]);
    match text.lines().next().filter(|line| !line.trim().is_empty()) {
        // The gateway cannot hand on whom a certificate stands for.
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

fn range(keys: &Keys) -> Value {
    match keys {
        Keys::One(key) => json!({ "key": BASE64.encode(key) }),
        Keys::Below(prefix) => {
            json!({ "key": BASE64.encode(prefix), "range_end": BASE64.encode(behind(prefix)) })
        }
        Keys::NamesBelow(prefix) => {
            let mut names = range(&Keys::Below(prefix.clone()));
            names["keys_only"] = json!(true);
            names
        }
    }
}

/// The first key behind all that begin with a text: its last byte is one higher. Texts here end in ASCII.
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

fn entry(told: &Value) -> Option<Entry> {
    let bytes = |value: &Value| BASE64.decode(value.as_str().unwrap_or_default()).ok();
    Some(Entry {
        key: String::from_utf8(bytes(&told["key"])?).ok()?,
        value: bytes(&told["value"])?,
        modified: number(&told["mod_revision"])?,
    })
}

fn revision(answer: &Value) -> i64 {
    number(&answer["header"]["revision"]).unwrap_or(0)
}

/// Numbers of 64 bits are texts in the JSON of protocol buffers.
fn number(value: &Value) -> Option<i64> {
    value.as_str().map_or_else(|| value.as_i64(), |text| text.parse().ok())
}
