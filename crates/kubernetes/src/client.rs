//! A client of the API of Kubernetes over HTTP/1.1: lists, watches, statuses and leases.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gateway::{ObjectKind, Reference};
use http_client::{ClientStream, DialedStream};
use serde_json::{Value, json};
use tls::ClientSide;

use crate::events::ClusterEvent;
use crate::location::ClusterCredentials;

const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The largest response: a page of a list.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// The largest object: etcd accepts 1.5 MiB.
const LINE_BYTES_MAX: usize = 16 << 20;
const PAGE: usize = 500;
/// The server ends a watch after this time, so that a lost connection is noticed.
const WATCH_SECONDS: u64 = 300;
/// A server sends bookmarks about once a minute. Longer silence means a lost connection.
const SILENCE_MAX: Duration = Duration::from_secs(WATCH_SECONDS + 30);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterFailure {
    #[error("{0}")]
    Unreachable(String),
    #[error("{}", said(*.0, .1))]
    Refused(u16, String),
}

fn said(status: u16, why: &str) -> String {
    if why.is_empty() {
        format!("the API server answers with {status}")
    } else {
        format!("the API server answers with {status}: {why}")
    }
}

impl ClusterFailure {
    /// Returns whether the object does not exist; for a kind, whether it is not installed (404).
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Refused(404, _))
    }

    /// Returns whether the requested version is too old (410).
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Refused(410, _))
    }

    /// Returns whether the object has changed since it was read (409).
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused(409, _))
    }
}

/// A client of the API. Its futures stay on their thread.
#[derive(Clone)]
pub struct ClusterClient {
    access: Arc<ClusterCredentials>,
    /// Kinds that the cluster knows by their older path alone.
    older: Arc<Mutex<BTreeSet<ObjectKind>>>,
}

pub(crate) struct KindWatch {
    open: Open,
    text: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum WatchEvent {
    Put(Value),
    Gone(Value),
    /// All changes up to this version were sent.
    Bookmark(String),
}

type Open = ClientStream<Box<dyn DialedStream>>;

impl ClusterClient {
    /// Fails on mistakes in the files for TLS.
    pub fn new(access: ClusterCredentials) -> Result<Self, String> {
        let client = Self { access: Arc::new(access), older: Arc::default() };
        client.tls()?;
        Ok(client)
    }

    /// Lists all objects of a kind, with the version of the list. Asks for the older path of the kind if the cluster does not
    /// know the other one; watches and statuses then use the same path.
    pub(crate) async fn list(&self, kind: ObjectKind) -> Result<(Vec<Value>, String), ClusterFailure> {
        let (listed, is_older) = match (self.list_at(kind, kind.path()).await, kind.older_path()) {
            (Err(failure), Some(older)) if failure.is_missing() => (self.list_at(kind, older).await, true),
            (listed, _) => (listed, false),
        };
        let listed = listed?;
        let mut older = self.older.lock().unwrap_or_else(PoisonError::into_inner);
        if is_older {
            older.insert(kind);
        } else {
            older.remove(&kind);
        }
        Ok(listed)
    }

    async fn list_at(
        &self,
        kind: ObjectKind,
        place: KindPath,
    ) -> Result<(Vec<Value>, String), ClusterFailure> {
        let (mut objects, mut next) = (Vec::new(), String::new());
        loop {
            let path = format!("{}?limit={PAGE}{}{}", path(place, ""), only(kind), continued(&next));
            let mut page = self.call("GET", &path, "", Value::Null).await?;
            let text = |key: &str| page["metadata"][key].as_str().unwrap_or_default().to_owned();
            let (version, rest) = (text("resourceVersion"), text("continue"));
            match page["items"].take() {
                Value::Array(items) => objects.extend(items),
                // Some servers write an empty list as null. Any other value says nothing about the objects.
                Value::Null if !version.is_empty() => {}
                _ => {
                    return Err(ClusterFailure::Unreachable(
                        "the response is not a list of objects".to_owned(),
                    ));
                }
            }
            next = rest;
            if next.is_empty() {
                return Ok((objects, version));
            }
        }
    }

    pub(crate) async fn watch(&self, kind: ObjectKind, version: &str) -> Result<KindWatch, ClusterFailure> {
        let path = format!(
            "{}?watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}{}",
            path(self.known_path(kind), ""),
            only(kind)
        );
        let begin = async {
            let mut open = self.connect().await?;
            match self.send(&mut open, "GET", &path, "", Value::Null).await? {
                200 => Ok(KindWatch { open, text: Vec::new() }),
                status => Err(refusal(status, &mut open).await),
            }
        };
        in_time(begin).await
    }

    /// Writes the status of an object, unless the object has changed since it was read.
    pub(crate) async fn write_status(
        &self,
        object: &Reference,
        version: &str,
        status: &Value,
    ) -> Result<(), ClusterFailure> {
        let path =
            format!("{}/{}/status", path(self.known_path(object.kind), &object.namespace), object.name);
        let patch = json!({ "metadata": { "resourceVersion": version }, "status": status });
        self.call("PATCH", &path, "application/merge-patch+json", patch).await.map(drop)
    }

    /// Returns the path by which the cluster knows a kind.
    fn known_path(&self, kind: ObjectKind) -> KindPath {
        let is_older = self.older.lock().unwrap_or_else(PoisonError::into_inner).contains(&kind);
        kind.older_path().filter(|_| is_older).unwrap_or_else(|| kind.path())
    }

    pub(crate) async fn lease(&self, namespace: &str, name: &str) -> Result<Value, ClusterFailure> {
        self.call("GET", &format!("{}/{name}", leases(namespace)), "", Value::Null).await
    }

    /// Creates a lease, or replaces the one that was read.
    pub(crate) async fn put_lease(
        &self,
        namespace: &str,
        name: &str,
        lease: Value,
        is_new: bool,
    ) -> Result<(), ClusterFailure> {
        let (method, path) = match is_new {
            true => ("POST", leases(namespace)),
            false => ("PUT", format!("{}/{name}", leases(namespace))),
        };
        self.call(method, &path, "application/json", lease).await.map(drop)
    }

    /// Creates an Event, or updates its series if it exists.
    pub(crate) async fn write_event(&self, event: ClusterEvent) -> Result<(), ClusterFailure> {
        let ClusterEvent { namespace, name, object, again } = event;
        let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        match self.call("POST", &path, "application/json", object).await {
            Err(failure) if failure.is_conflict() => {
                let path = format!("{path}/{name}");
                self.call("PATCH", &path, "application/merge-patch+json", again).await.map(drop)
            }
            other => other.map(drop),
        }
    }

    async fn call(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        content: Value,
    ) -> Result<Value, ClusterFailure> {
        let exchange = async {
            let mut open = self.connect().await?;
            let status = self.send(&mut open, method, path, content_type, content).await?;
            if !(200..300).contains(&status) {
                return Err(refusal(status, &mut open).await);
            }
            // One byte more shows that the body is too large.
            let body = open.body(ANSWER_BYTES_MAX + 1).await.map_err(ClusterFailure::Unreachable)?;
            if body.len() > ANSWER_BYTES_MAX {
                let why = format!("the response is larger than {} MiB", ANSWER_BYTES_MAX >> 20);
                return Err(ClusterFailure::Unreachable(why));
            }
            serde_json::from_slice(&body)
                .map_err(|_| ClusterFailure::Unreachable("the response is not JSON".to_owned()))
        };
        in_time(exchange).await
    }

    async fn send(
        &self,
        open: &mut Open,
        method: &str,
        path: &str,
        content_type: &str,
        content: Value,
    ) -> Result<u16, ClusterFailure> {
        let host = self.access.authority();
        let mut fields =
            vec![("Host", host.as_str()), ("Accept", "application/json"), ("User-Agent", "vanward")];
        let token = match &self.access.token {
            Some(token) => std::fs::read_to_string(token)
                .map_err(|error| ClusterFailure::Unreachable(format!("{}: {error}", token.display())))?,
            None => String::new(),
        };
        let token = format!("Bearer {}", token.trim());
        if self.access.token.is_some() {
            fields.push(("Authorization", &token));
        }
        if !content_type.is_empty() {
            fields.push(("Content-Type", content_type));
        }
        let body = if content.is_null() { String::new() } else { content.to_string() };
        let request = http_client::request(method, path, &fields, body.as_bytes())
            .map_err(|_| ClusterFailure::Unreachable("the token is not text".to_owned()))?;
        open.ask(&request).await.map(|head| head.status).map_err(ClusterFailure::Unreachable)
    }

    async fn connect(&self) -> Result<Open, ClusterFailure> {
        let ClusterCredentials { host, port, .. } = &*self.access;
        // The CA file may have changed.
        let open = match self.tls() {
            Ok(tls) => http_client::connect((host, *port), tls.as_ref(), 0).await,
            Err(why) => Err(why),
        };
        open.map_err(|why| ClusterFailure::Unreachable(format!("{}: {why}", self.access.authority())))
    }

    fn tls(&self) -> Result<Option<ClientSide>, String> {
        let ClusterCredentials { is_secure, host, port, ca, certificate, .. } = &*self.access;
        let server = http_client::server(host, *port, *is_secure);
        http_client::tls("kubernetes", vec![server], ca.clone(), certificate.clone())
    }
}

impl KindWatch {
    /// Returns the next change; `None` if the watch ended at its announced time.
    pub(crate) async fn next(&mut self) -> Result<Option<WatchEvent>, ClusterFailure> {
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                return told(&line).map(Some);
            }
            if self.text.len() > LINE_BYTES_MAX {
                return Err(ClusterFailure::Unreachable("an object in the watch is incomplete".to_owned()));
            }
            let piece = tokio::time::timeout(SILENCE_MAX, self.open.piece()).await;
            let piece = piece.map_err(|_| ClusterFailure::Unreachable("the watch is silent".to_owned()))?;
            let Some(piece) = piece.map_err(ClusterFailure::Unreachable)? else { return Ok(None) };
            self.text.extend_from_slice(&piece);
        }
    }
}

fn told(line: &[u8]) -> Result<WatchEvent, ClusterFailure> {
    let broken = || ClusterFailure::Unreachable("a line of the watch is not an event".to_owned());
    let mut event: Value = serde_json::from_slice(line).map_err(|_| broken())?;
    let object = event["object"].take();
    match event["type"].as_str() {
        Some("ADDED" | "MODIFIED") => Ok(WatchEvent::Put(object)),
        Some("DELETED") => Ok(WatchEvent::Gone(object)),
        Some("BOOKMARK") => Ok(WatchEvent::Bookmark(version(&object))),
        Some("ERROR") => {
            let code = object["code"].as_u64().and_then(|code| code.try_into().ok()).unwrap_or(500);
            Err(ClusterFailure::Refused(code, object["message"].as_str().unwrap_or_default().to_owned()))
        }
        _ => Err(broken()),
    }
}

pub(crate) fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}

async fn in_time<T>(exchange: impl Future<Output = Result<T, ClusterFailure>>) -> Result<T, ClusterFailure> {
    let late = |_| ClusterFailure::Unreachable("the API server does not answer in time".to_owned());
    tokio::time::timeout(ANSWER_MAX, exchange).await.map_err(late)?
}

/// Reads the reason of a refusal: a JSON object with a message.
async fn refusal(status: u16, open: &mut Open) -> ClusterFailure {
    let body = open.body(64 << 10).await.unwrap_or_default();
    let object: Value = serde_json::from_slice(&body).unwrap_or_default();
    ClusterFailure::Refused(status, object["message"].as_str().unwrap_or_default().to_owned())
}

/// Group, version and plural of a kind.
type KindPath = (&'static str, &'static str, &'static str);

fn path((group, version, plural): KindPath, namespace: &str) -> String {
    let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    match namespace {
        "" => format!("{root}/{plural}"),
        namespace => format!("{root}/namespaces/{namespace}/{plural}"),
    }
}

fn leases(namespace: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
}

/// Field selector: asks only for secrets that may be certificates or users, not those of other controllers.
fn only(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Secret => "&fieldSelector=type%3Dkubernetes.io%2Ftls",
        ObjectKind::Passwords => "&fieldSelector=type%3DOpaque",
        _ => "",
    }
}

/// Builds the query for the next page. The token is opaque, so it is escaped.
fn continued(place: &str) -> String {
    if place.is_empty() {
        return String::new();
    }
    let escaped = place.bytes().map(|byte| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    format!("&continue={}", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A watched kind that the service account may not read would keep a gateway from starting.
    #[test]
    fn the_manifests_permit_what_is_asked_for() {
        let manifests = include_str!("../../../contrib/kubernetes/vanward.yaml");
        let permitted = |verbs: &str| -> Vec<&str> {
            let rules =
                manifests.split("- apiGroups: ").filter(|rule| rule.contains(&format!("verbs: [{verbs}]")));
            let lists = rules.filter_map(|rule| rule.split("resources: [").nth(1)?.split(']').next());
            lists.flat_map(|list| list.split(", ")).collect()
        };
        let (read, patched) = (permitted("list, watch"), permitted("patch"));
        let paths = ObjectKind::ALL.iter().flat_map(|kind| [Some(kind.path()), kind.older_path()]).flatten();
        let plurals: BTreeSet<&str> = paths.clone().map(|(_, _, plural)| plural).collect();
        for (group, _, plural) in paths {
            assert!(read.contains(&plural), "{plural}");
            assert!(group.is_empty() || manifests.contains(&format!("- apiGroups: [{group}]")), "{group}");
        }
        let statuses = [
            "gatewayclasses/status",
            "gateways/status",
            "listenersets/status",
            "httproutes/status",
            "grpcroutes/status",
            "tlsroutes/status",
            "tcproutes/status",
            "backendtlspolicies/status",
            "xlistenersets/status",
            "ingresses/status",
        ];
        assert_eq!((read.len(), patched), (plurals.len(), statuses.to_vec()));
        assert_eq!(permitted("create, patch"), ["events"]);
    }

    #[test]
    fn paths_are_those_of_the_api() {
        assert_eq!(path(ObjectKind::Secret.path(), ""), "/api/v1/secrets");
        let of_namespace = "/apis/gateway.networking.k8s.io/v1/namespaces/shop/httproutes";
        assert_eq!(path(ObjectKind::HttpRoute.path(), "shop"), of_namespace);
        assert_eq!(continued(""), "");
        assert_eq!(continued("a+/="), "&continue=a%2B%2F%3D");
    }
}
