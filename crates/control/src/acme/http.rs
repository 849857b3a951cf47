//! HTTPS requests to authorities, over the proxy's own connections. The library wants a client that may go to any thread:
//! it hands requests over to a task of the control thread.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use config::KeyUrl;
use http::{Method, Request, Response};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use tokio::sync::{mpsc, oneshot};

use crate::outbound::Outbound;
use crate::probe::{self, ProbeResponse};

/// The largest answer: a chain of certificates.
const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// A whole exchange, from the look-up of the name to the last byte.
const EXCHANGE_MAX: Duration = Duration::from_secs(30);

/// A client of one authority.
#[derive(Clone)]
pub(crate) struct Client {
    asked: mpsc::UnboundedSender<Asked>,
    heard: Arc<Mutex<Heard>>,
}

/// What answers have said that the library does not hand on.
#[derive(Default)]
struct Heard {
    retry_after: Option<String>,
    /// The names of the authority in DNS, of the last challenge that had any.
    issuers: Vec<String>,
}

struct Asked {
    request: Request<Bytes>,
    answer: oneshot::Sender<Result<Response<Bytes>, String>>,
}

impl Client {
    /// Starts the task that connects, for an authority whose server's certificate these CAs have signed. It ends with
    /// the last copy of the client.
    pub(crate) fn new(outbound: Rc<Outbound>, ca: Option<PathBuf>) -> Self {
        let (asked, mut requests) = mpsc::unbounded_channel::<Asked>();
        tokio::task::spawn_local(async move {
            while let Some(Asked { request, answer }) = requests.recv().await {
                let (outbound, ca) = (Rc::clone(&outbound), ca.clone());
                tokio::task::spawn_local(async move {
                    let exchange = tokio::time::timeout(EXCHANGE_MAX, exchange(&outbound, request, ca));
                    let outcome = exchange.await.unwrap_or_else(|_| Err("no answer in time".to_owned()));
                    let _ = answer.send(outcome);
                });
            }
        });
        Self { asked, heard: Arc::default() }
    }

    /// The Retry-After of the last refusal since the last call.
    pub(crate) fn take_retry_after(&self) -> Option<String> {
        self.heard().retry_after.take()
    }

    /// The names by which the authority is called in DNS, as it last said.
    pub(crate) fn issuers(&self) -> Vec<String> {
        self.heard().issuers.clone()
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, parts: &http::response::Parts, body: &[u8]) {
        let is_refusal = parts.status.is_client_error() || parts.status.is_server_error();
        if is_refusal {
            let said = parts.headers.get("retry-after").and_then(|value| value.to_str().ok());
            self.heard().retry_after = said.map(str::to_owned);
        }
        let issuers = issuers(body);
        if !issuers.is_empty() {
            self.heard().issuers = issuers;
        }
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.clone();
        Box::pin(async move {
            let failed = |why: String| Error::Other(why.into());
            let (parts, body) = request.into_parts();
            let body = BytesResponse::from(Response::new(body)).body.into_bytes().await;
            let request = Request::from_parts(parts, body.map_err(Error::Other)?);
            let (answer, answered) = oneshot::channel();
            let ending = || failed("the proxy is ending".to_owned());
            client.asked.send(Asked { request, answer }).map_err(|_| ending())?;
            let (parts, body) = answered.await.map_err(|_| ending())?.map_err(failed)?.into_parts();
            client.hear(&parts, &body);
            if parts.status.is_client_error() || parts.status.is_server_error() {
                // RFC 8555 §6.7: a refusal is a problem document; what is in front of the authority says otherwise.
                let is_problem = parts
                    .headers
                    .get("content-type")
                    .is_some_and(|kind| kind.to_str().is_ok_and(|kind| kind.contains("json")));
                if !is_problem {
                    return Err(failed(format!(
                        "the authority answers with status {}",
                        parts.status.as_u16()
                    )));
                }
            }
            Ok(BytesResponse { parts, body: Box::new(body) })
        })
    }
}

async fn exchange(
    outbound: &Outbound,
    request: Request<Bytes>,
    ca: Option<PathBuf>,
) -> Result<Response<Bytes>, String> {
    let url = config::directory(&request.uri().to_string())
        .map_err(|_| format!("the authority's URL {} is not one of https", request.uri()))?;
    let named = |why: String| format!("{}: {why}", url.server.authority());
    let connection = outbound.connect("acme", &url.server, ca).await.map_err(named)?;
    let bytes = written(&url, &request);
    let is_head = request.method() == Method::HEAD;
    let answer = probe::exchange(&connection, &bytes, (is_head, ANSWER_BYTES_MAX + 1)).await;
    let ProbeResponse { status, headers, body } = answer.map_err(named)?;
    if body.len() > ANSWER_BYTES_MAX {
        return Err(named(format!("its answer is larger than {} KiB", ANSWER_BYTES_MAX >> 10)));
    }
    let mut response = Response::builder().status(status);
    for (name, value) in &headers {
        response = response.header(name.as_str(), &value[..]);
    }
    response.body(Bytes::from(body)).map_err(|error| named(error.to_string()))
}

/// The `issuer-domain-names` of an authorization's challenge (draft-ietf-acme-dns-persist).
fn issuers(body: &[u8]) -> Vec<String> {
    const FIELD: &str = "issuer-domain-names";
    if !body.windows(FIELD.len()).any(|window| window == FIELD.as_bytes()) {
        return Vec::new();
    }
    let told: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let challenges = told["challenges"].as_array().into_iter().flatten();
    let names = challenges.filter_map(|challenge| challenge[FIELD].as_array()).flatten();
    let is_name =
        |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    names.filter_map(|name| name.as_str()).filter(is_name).map(str::to_owned).collect()
}

/// The bytes of a request. RFC 8555 §6.1: with User-Agent; a URL comes from the authority, and was parsed.
fn written(url: &KeyUrl, request: &Request<Bytes>) -> Vec<u8> {
    let (method, path, host) = (request.method(), &url.path, url.server.authority());
    let mut text = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: vanward/{}\r\nAccept: */*\r\nConnection: close\r\n",
        env!("CARGO_PKG_VERSION")
    )
    .into_bytes();
    if let Some(kind) = request.headers().get("content-type") {
        text.extend_from_slice(b"Content-Type: ");
        text.extend_from_slice(kind.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    if request.method() == Method::POST {
        text.extend_from_slice(format!("Content-Length: {}\r\n", request.body().len()).as_bytes());
    }
    text.extend_from_slice(b"\r\n");
    text.extend_from_slice(request.body());
    text
}
