//! Requests for libraries whose clients any thread may use. A task on the control thread makes each request over a
//! new connection.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use config::{KeyUrl, UpstreamTls};
use http::{Request, Response};
use tokio::sync::{mpsc, oneshot};

use super::Outbound;
use crate::probe::{self, ProbeResponse};

/// Maximum time of an exchange, from the name look-up to the last byte.
pub(crate) const EXCHANGE_MAX: Duration = Duration::from_secs(30);

/// Sends requests to the task that makes them. The task ends with the last copy.
#[derive(Debug, Clone)]
pub(crate) struct OutboundRequests {
    asked: mpsc::UnboundedSender<OutboundRequest>,
}

#[derive(Debug)]
struct OutboundRequest {
    request: Request<Bytes>,
    answer: oneshot::Sender<Result<Response<Bytes>, String>>,
}

impl OutboundRequests {
    /// Starts the task. `exchange` makes one request.
    pub(crate) fn new<F>(exchange: F) -> Self
    where
        F: AsyncFn(Request<Bytes>) -> Result<Response<Bytes>, String> + 'static,
    {
        let (asked, mut requests) = mpsc::unbounded_channel::<OutboundRequest>();
        let exchange = Rc::new(exchange);
        tokio::task::spawn_local(async move {
            while let Some(OutboundRequest { request, answer }) = requests.recv().await {
                let exchange = Rc::clone(&exchange);
                tokio::task::spawn_local(async move {
                    let outcome = tokio::time::timeout(EXCHANGE_MAX, exchange(request)).await;
                    let outcome = outcome.unwrap_or_else(|_| Err("no answer in time".to_owned()));
                    let _ = answer.send(outcome);
                });
            }
        });
        Self { asked }
    }

    pub(crate) async fn make(&self, request: Request<Bytes>) -> Result<Response<Bytes>, String> {
        let (answer, answered) = oneshot::channel();
        let ending = || "the proxy is ending".to_owned();
        self.asked.send(OutboundRequest { request, answer }).map_err(|_| ending())?;
        answered.await.map_err(|_| ending())?
    }
}

impl Outbound {
    /// Sends a request to a URL, regardless of the request's own URL, and reads the response with up to `bytes_max` of
    /// body. `user` is the purpose, for messages. Errors name the server.
    pub(crate) async fn exchange(
        &self,
        user: &str,
        (url, tls): (&KeyUrl, UpstreamTls),
        request: &Request<Bytes>,
        bytes_max: usize,
    ) -> Result<Response<Bytes>, String> {
        let named = |why: String| format!("{}: {why}", url.server.authority());
        let connection = self.connect(user, &url.server, tls).await.map_err(named)?;
        let written = written(url, request).map_err(named)?;
        // One byte more shows that the body is too large.
        let answer = probe::exchange(&connection.into(), &written, bytes_max + 1).await;
        let ProbeResponse { status, headers, body, .. } = answer.map_err(named)?;
        if body.len() > bytes_max {
            return Err(named(format!("its answer is larger than {} KiB", bytes_max >> 10)));
        }
        let mut response = Response::builder().status(status);
        for (name, value) in &headers {
            response = response.header(name.as_str(), &value[..]);
        }
        response.body(Bytes::from(body)).map_err(|error| named(error.to_string()))
    }
}

/// Serializes a request, with its fields for host, length and connection.
fn written(url: &KeyUrl, request: &Request<Bytes>) -> Result<Vec<u8>, String> {
    let host = url.server.authority();
    let mut fields = vec![
        ("Host", host.as_str()),
        ("User-Agent", concat!("vanward/", env!("CARGO_PKG_VERSION"))),
        ("Accept", "*/*"),
        ("Connection", "close"),
    ];
    for name in ["content-type", "content-encoding", "authorization"] {
        if let Some(value) = request.headers().get(name) {
            fields.push((name, value.to_str().map_err(|_| format!("the value of {name} is not text"))?));
        }
    }
    http_client::request(request.method().as_str(), &url.path, &fields, request.body())
}
