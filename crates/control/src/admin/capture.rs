//! The admin API of captures: the response is the traffic itself, line by line.
//!
//! Secrets are not masked here, because only the user of the process may open the socket. The command masks them before it
//! writes its file.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use api::capture::{CaptureEnd, CaptureOrder};
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use hyper::body::Frame;
use proxy::shared::captures::{BegunCapture, CapturedRoutes};
use telemetry::message;
use tokio::time::{Instant, Interval, interval};

use super::{AdminOrder, ending, refused};
use crate::change::Control;
use crate::service::Lasting;

/// Each takes a connection of the admin socket.
const CAPTURES_MAX: usize = 8;
/// How often a line is sent while there is no traffic. It finds clients that have left.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

pub(super) async fn begin(
    State(control): State<Weak<Control>>,
    AdminOrder(order): AdminOrder<CaptureOrder>,
) -> Response {
    let Some(strong) = control.upgrade() else { return ending() };
    let CaptureOrder { routes, requests, seconds, bodies } = order;
    let known = &strong.plan().config.routes;
    if let Some(unknown) = routes.iter().find(|name| known.iter().all(|route| route.name != **name)) {
        return refused(StatusCode::NOT_FOUND, &format!("no route is named {unknown:?}"));
    }
    if requests == 0 {
        return refused(StatusCode::BAD_REQUEST, "requests is 0: nothing would be captured");
    }
    if strong.captures.count() >= CAPTURES_MAX {
        let error = format!("{CAPTURES_MAX} captures are in progress: end one first");
        return refused(StatusCode::CONFLICT, &error);
    }
    let told =
        if routes.is_empty() { "all requests".to_owned() } else { format!("route {}", routes.join(", ")) };
    let routes = if routes.is_empty() { CapturedRoutes::All } else { CapturedRoutes::Labelled(routes) };
    let begun = strong.captures.begin(routes, requests, bodies);
    message::info(&format!("a capture of {told} begins, by the admin API"));
    let body = CaptureBody {
        begun,
        control,
        ends: seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds)),
        sign: interval(SIGN_OF_LIFE),
        is_over: false,
    };
    (Extension(Lasting), [(CONTENT_TYPE, "application/x-ndjson")], Body::new(body)).into_response()
}

/// The lines of a capture.
struct CaptureBody {
    begun: BegunCapture,
    control: Weak<Control>,
    ends: Option<Instant>,
    sign: Interval,
    is_over: bool,
}

impl CaptureBody {
    /// Ends the capture. Requests that wait are still sent.
    fn end(&self) {
        if let Some(control) = self.control.upgrade() {
            control.captures.end(self.begun.id);
        }
    }
}

impl hyper::body::Body for CaptureBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        if this.is_over {
            return Poll::Ready(None);
        }
        let line = loop {
            match this.begun.requests.poll_recv(context) {
                Poll::Ready(Some(request)) => break capture::request_line(&request),
                Poll::Ready(None) => {
                    this.is_over = true;
                    let lost = this.begun.lost.load(Ordering::Relaxed);
                    break serde_json::to_string(&CaptureEnd { lost }).unwrap_or_default() + "\n";
                }
                Poll::Pending => {}
            }
            ready!(this.sign.poll_tick(context));
            if this.ends.take_if(|ends| *ends <= Instant::now()).is_none() {
                break "\n".to_owned();
            }
            this.end();
        };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(line)))))
    }
}

impl Drop for CaptureBody {
    fn drop(&mut self) {
        self.end();
    }
}
