//! Requests to servers of URLs, for libraries whose clients may be used by any thread: a task of the control thread makes
//! them, a connection for each.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use config::{KeyUrl, UpstreamTls};
use http::{Method, Request, Response};
use tokio::sync::{mpsc, oneshot};

use super::Outbound;
use crate::probe::{self, ProbeResponse};

/// A whole exchange, from the look-up of the name to the last byte.
pub(crate) const EXCHANGE_MAX: Duration = Duration::from_secs(30);

/// Hands requests over to the task that makes them. The task ends with the last copy.
#[derive(Debug, Clone)]
pub(crate) struct Requests {
    asked: mpsc::UnboundedSender<Asked>,
}

#[derive(Debug)]
struct Asked {
    request: Request<Bytes>,
    answer: oneshot::Sender<Result<Response<Bytes>, String>>,
}

impl Requests {
    /// Starts the task. `exchange` makes one request.
    pub(crate) fn new<F>(exchange: F) -> Self
    where
        F: AsyncFn(Request<Bytes>) -> Result<Response<Bytes>, String> + 'static,
    {
        let (asked, mut requests) = mpsc::unbounded_channel::<Asked>();
        let exchange = Rc::new(exchange);
        tokio::task::spawn_local(async move {
            while let Some(Asked { request, answer }) = requests.recv().await {
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

    /// Makes a request.
    ///
    /// # Errors
    /// Why there is no response, in words.
    pub(crate) async fn make(&self, request: Request<Bytes>) -> Result<Response<Bytes>, String> {
        let (answer, answered) = oneshot::channel();
        let ending = || "the proxy is ending".to_owned();
        self.asked.send(Asked { request, answer }).map_err(|_| ending())?;
        answered.await.map_err(|_| ending())?
    }
}

impl Outbound {
    /// Sends a request to a URL, whatever URL it names itself, and reads the response, up to `bytes_max` of body. `user` is
    /// what sends it, for messages.
    ///
    /// # Errors
    /// Why there is no response, in words that name the server.
    pub(crate) async fn exchange(
        &self,
        user: &str,
        (url, tls): (&KeyUrl, UpstreamTls),
        request: &Request<Bytes>,
        bytes_max: usize,
    ) -> Result<Response<Bytes>, String> {
        let named = |why: String| format!("{}: {why}", url.server.authority());
        let connection = self.connect(user, &url.server, tls).await.map_err(named)?;
        let is_head = request.method() == Method::HEAD;
        // One more, to tell what is too large.
        let answer =
            probe::exchange(&connection.into(), &written(url, request), (is_head, bytes_max + 1)).await;
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

/// The bytes of a request. What it says of its host, its length and its connection is written here.
fn written(url: &KeyUrl, request: &Request<Bytes>) -> Vec<u8> {
    let (method, path, host) = (request.method(), &url.path, url.server.authority());
    let mut text = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: vanward/{}\r\nAccept: */*\r\nConnection: close\r\n",
        env!("CARGO_PKG_VERSION")
    )
    .into_bytes();
    for name in ["content-type", "content-encoding", "authorization"] {
        if let Some(value) = request.headers().get(name) {
            for part in [name.as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                text.extend_from_slice(part);
            }
        }
    }
    if request.method() == Method::POST {
        text.extend_from_slice(format!("Content-Length: {}\r\n", request.body().len()).as_bytes());
    }
    text.extend_from_slice(b"\r\n");
    text.extend_from_slice(request.body());
    text
}
