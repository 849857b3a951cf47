//! HTTPS requests to authorities over the proxy's own connections. The library requires a client that any thread
//! can use, so the client sends requests to a task on the control thread.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};

use crate::outbound::{Outbound, OutboundRequests};

/// The largest response: a certificate chain.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// Pauses before retries after a temporary failure: a lost connection, or a 5xx of the authority or its proxy.
const PAUSES: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8)];

#[derive(Clone)]
pub(crate) struct AcmeClient {
    requests: OutboundRequests,
    pauses: [Duration; PAUSES.len()],
    heard: Arc<Mutex<Heard>>,
}

/// Values from responses that the library does not pass on.
#[derive(Default)]
struct Heard {
    retry_after: Option<String>,
    /// The authority's DNS names from the last challenge that had any.
    issuers: Vec<String>,
}

impl AcmeClient {
    /// Starts the task that connects to an authority with a certificate of these CAs. It ends with the last clone.
    pub(crate) fn new(outbound: Rc<Outbound>, ca: Option<PathBuf>) -> Self {
        let exchange = async move |request| exchange(&outbound, request, ca.clone()).await;
        Self { requests: OutboundRequests::new(exchange), pauses: PAUSES, heard: Arc::default() }
    }

    /// Sends a request, and repeats it after a temporary failure, so that an almost finished order is not lost.
    ///
    /// A request may have arrived although its response was lost. Then its nonce is used, so the authority rejects
    /// the copy, and the library signs it again (RFC 8555 §6.5).
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, String> {
        let mut pauses = self.pauses.iter();
        loop {
            let outcome = self.requests.make(request.clone()).await;
            let pause = match (&outcome, pauses.next()) {
                (_, None) => return outcome,
                (Ok(response), Some(pause)) => {
                    let said = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
                    let asked = said.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
                    // An authority that asks for more time gets it between orders.
                    let is_soon =
                        said.is_none() || asked.is_some_and(|asked| asked <= PAUSES[PAUSES.len() - 1]);
                    if !response.status().is_server_error() || !is_soon {
                        return outcome;
                    }
                    asked.unwrap_or_default().max(*pause)
                }
                (Err(_), Some(pause)) => *pause,
            };
            tokio::time::sleep(pause).await;
        }
    }

    pub(crate) fn take_retry_after(&self) -> Option<String> {
        self.heard().retry_after.take()
    }

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

impl HttpClient for AcmeClient {
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
            let (parts, body) = client.send(request).await.map_err(failed)?.into_parts();
            client.hear(&parts, &body);
            if parts.status.is_client_error() || parts.status.is_server_error() {
                // RFC 8555 §6.7: a rejection is a problem document; other responses come from a proxy of the authority.
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
        .map_err(|_| format!("the authority's URL {} is not an https URL", request.uri()))?;
    outbound.exchange("acme", (&url, config::UpstreamTls::trusting(ca)), &request, ANSWER_BYTES_MAX).await
}

/// The `issuer-domain-names` in an authorization's challenge (draft-ietf-acme-dns-persist).
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn sent(answers: &[Result<(u16, &'static str), &'static str>]) -> (Result<u16, String>, usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("it starts");
        let left = Rc::new(RefCell::new(answers.iter().rev().copied().collect::<Vec<_>>()));
        let answered = Rc::clone(&left);
        let outcome = tokio::task::LocalSet::new().block_on(&runtime, async move {
            let exchange = async move |_| {
                let (status, retry_after) = answered.borrow_mut().pop().expect("no request too many")?;
                let mut response = Response::builder().status(status);
                if !retry_after.is_empty() {
                    response = response.header("retry-after", retry_after);
                }
                response.body(Bytes::from_static(b"{}")).map_err(|error| error.to_string())
            };
            let requests = OutboundRequests::new(exchange);
            let client = AcmeClient { requests, pauses: Default::default(), heard: Arc::default() };
            let request = Request::post("https://ca.test/order").body(Bytes::new()).expect("is a request");
            client.send(request).await.map(|response| response.status().as_u16())
        });
        (outcome, answers.len() - left.borrow().len())
    }

    #[test]
    fn passing_failures_are_retried() {
        let (ok, broken) = (Ok((200, "")), Err("the connection was reset"));
        assert_eq!(sent(&[ok, ok]), (Ok(200), 1));
        assert_eq!(sent(&[broken, Ok((503, "")), Ok((502, "0")), ok, ok]), (Ok(200), 4));
        assert_eq!(sent(&[Ok((500, "")); 6]), (Ok(500), 5), "not for ever");
        assert_eq!(sent(&[broken; 6]), (Err("the connection was reset".to_owned()), 5));
        // A rejection is final, and so is one that asks for more time.
        assert_eq!(sent(&[Ok((400, "")), ok]), (Ok(400), 1));
        assert_eq!(sent(&[Ok((429, "1")), ok]), (Ok(429), 1));
        assert_eq!(sent(&[Ok((503, "3600")), ok]), (Ok(503), 1));
        assert_eq!(sent(&[Ok((503, "Thu, 01 Jan 2026 00:00:00 GMT")), ok]), (Ok(503), 1));
    }
}
