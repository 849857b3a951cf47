//! HTTPS requests to authorities, over the proxy's own connections. The library wants a client that may go to any thread:
//! it hands requests over to a task of the control thread.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{Request, Response};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};

use crate::outbound::{Outbound, Requests};

/// The largest answer: a chain of certificates.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// A client of one authority.
#[derive(Clone)]
pub(crate) struct Client {
    requests: Requests,
    heard: Arc<Mutex<Heard>>,
}

/// What answers have said that the library does not hand on.
#[derive(Default)]
struct Heard {
    retry_after: Option<String>,
    /// The names of the authority in DNS, of the last challenge that had any.
    issuers: Vec<String>,
}

impl Client {
    /// Starts the task that connects, for an authority whose server's certificate these CAs have signed. It ends with
    /// the last copy of the client.
    pub(crate) fn new(outbound: Rc<Outbound>, ca: Option<PathBuf>) -> Self {
        let exchange = async move |request| exchange(&outbound, request, ca.clone()).await;
        Self { requests: Requests::new(exchange), heard: Arc::default() }
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
            let (parts, body) = client.requests.make(request).await.map_err(failed)?.into_parts();
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
    outbound.exchange("acme", (&url, config::UpstreamTls::trusting(ca)), &request, ANSWER_BYTES_MAX).await
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
