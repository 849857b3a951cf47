//! Sends the spans of requests to a collector (OTLP over HTTP), a task of the control thread for each `[tracing]`.
//!
//! A collector that does not answer costs spans, never requests: what waits is bounded, and what is beyond is counted.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use proxy::context::tracing::{Spans, Tracing};
use telemetry::{Span, Value, message};
use tokio::sync::mpsc::Receiver;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::change::Control;
use crate::outbound::{Outbound, Requests};
use crate::service::ServedConnections;

/// Spans of one message to the collector.
const BATCH_MAX: usize = 512;
/// How long a span waits for others.
const GATHERING: Duration = Duration::from_secs(1);
/// How often those that wait are fetched meanwhile. Each fetch wakes this thread, and so would each request that hands its
/// spans over to somebody who waits for them.
const FETCHING: Duration = Duration::from_millis(100);
/// After a failure the next attempt comes after this, then twice that, and so on.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// The largest answer of a collector.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Says that the proxy ends, and until when spans may still be sent.
pub(crate) type Ending = watch::Receiver<Option<Instant>>;

/// Sends the spans of the plans in force, until the proxy ends: when `ending` says so, what waits is sent at once.
pub(crate) async fn run(
    control: Weak<Control>,
    outbound: Rc<Outbound>,
    guests: ServedConnections,
    ending: Ending,
) {
    let Some(mut changes) = control.upgrade().map(|control| control.changes.subscribe()) else { return };
    loop {
        changes.mark_unchanged();
        let Some(plan) = control.upgrade().map(|control| control.plan()) else { return };
        if let Some(tracing) = &plan.tracing
            && let Some(spans) = tracing.take_spans()
        {
            let guest = guests.enter();
            match Sender::new(Weak::clone(&control), &outbound, tracing) {
                Ok(sender) => {
                    let (ending, spans) = (ending.clone(), spans);
                    tokio::task::spawn_local(async move {
                        sender.send_all(spans, ending).await;
                        drop(guest);
                    });
                }
                Err(reason) => message::warn(&format!("traces are not sent: {reason}")),
            }
        }
        drop(plan);
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Sends spans to one collector.
struct Sender {
    control: Weak<Control>,
    url: String,
    exporter: SpanExporter,
    heard: Arc<Mutex<Heard>>,
}

/// What the last exchange came to; the library tells less.
#[derive(Default)]
struct Heard {
    /// The status; 0 if there was none.
    status: u16,
    /// Why there was no answer.
    failure: Option<String>,
}

/// A panic elsewhere leaves what was heard valid.
fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sender {
    fn new(control: Weak<Control>, outbound: &Rc<Outbound>, tracing: &Tracing) -> Result<Self, String> {
        let config::Tracing { collector, ca, authorization_file, service, .. } = tracing.settings.clone();
        let (url, outbound) = (collector.to_string(), Rc::clone(outbound));
        let requests = Requests::new(async move |request| {
            let request = authorized(request, authorization_file.as_ref())?;
            outbound.exchange("tracing", (&collector, ca.clone()), &request, ANSWER_BYTES_MAX).await
        });
        let heard = Arc::<Mutex<Heard>>::default();
        let client = Client { requests, heard: Arc::clone(&heard) };
        let exporter = SpanExporter::builder().with_http().with_http_client(client);
        // The library would sleep between its tries, and with it this thread, and would not hear of the proxy's end.
        let exporter = exporter.with_endpoint(url.as_str()).with_retry_policy(RetryPolicy::disabled());
        let mut exporter = exporter.build().map_err(|error| error.to_string())?;
        let attributes = [
            KeyValue::new("service.name", service),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("process.pid", i64::from(std::process::id())),
        ];
        exporter.set_resource(&Resource::builder_empty().with_attributes(attributes).build());
        Ok(Self { control, url, exporter, heard })
    }

    /// Sends what comes, until nothing can come any more.
    async fn send_all(&self, mut spans: Receiver<Spans>, mut ending: Ending) {
        let mut lost_at_end = Lost::default();
        loop {
            let mut batch = tokio::select! {
                first = spans.recv() => match first {
                    Some(first) => first,
                    None => return,
                },
                _ = ends(&mut ending) => Vec::new(),
            };
            let until = Instant::now() + GATHERING;
            while batch.len() < BATCH_MAX && Instant::now() < until && ending.borrow().is_none() {
                let _ = tokio::time::timeout(FETCHING, ends(&mut ending)).await;
                while batch.len() < BATCH_MAX
                    && let Ok(more) = spans.try_recv()
                {
                    batch.extend(more);
                }
            }
            let is_ending = ending.borrow().is_some();
            while is_ending && let Ok(more) = spans.try_recv() {
                batch.extend(more);
            }
            if !batch.is_empty() {
                self.send(batch, &mut ending, &mut lost_at_end).await;
            }
            if is_ending {
                return self.tell(&lost_at_end);
            }
        }
    }

    /// Sends a batch, however often that has to be tried; once only where the proxy ends. What is lost then is told at last,
    /// as one number: a second message like the first would be held back, and nothing follows that it could come with.
    async fn send(&self, batch: Spans, ending: &mut Ending, lost_at_end: &mut Lost) {
        let (count, batch) = (batch.len() as u64, batch.into_iter().map(exported).collect::<Vec<_>>());
        let mut retry = RETRY_MIN;
        let mut has_failed = false;
        loop {
            let Err(Refused { reason, may_succeed_later }) = self.attempt(batch.clone(), ending).await else {
                self.count(count, true);
                if has_failed {
                    message::info(&format!("{}: takes spans again", self.url));
                }
                return;
            };
            let is_ending = ending.borrow().is_some();
            let is_last = !may_succeed_later || is_ending;
            if is_ending {
                *lost_at_end = Lost { spans: lost_at_end.spans + count, reason };
            } else if is_last {
                self.tell(&Lost { spans: count, reason });
            } else if !has_failed {
                let what = self.cannot_send(count, &reason);
                message::warn(&format!("{what}; kept, as far as there is room"));
            }
            if is_last {
                return self.count(count, false);
            }
            has_failed = true;
            let _ = tokio::time::timeout(retry, ends(ending)).await;
            retry = (retry * 2).min(RETRY_MAX);
        }
    }

    fn tell(&self, lost: &Lost) {
        if lost.spans > 0 {
            message::warn(&format!("{}; lost", self.cannot_send(lost.spans, &lost.reason)));
        }
    }

    fn cannot_send(&self, count: u64, reason: &str) -> String {
        let spans = if count == 1 { "span" } else { "spans" };
        format!("cannot send {count} {spans} to {}: {reason}", self.url)
    }

    /// Sends a batch once.
    async fn attempt(&self, batch: Vec<SpanData>, ending: &mut Ending) -> Result<(), Refused> {
        *lock(&self.heard) = Heard::default();
        let outcome = tokio::select! {
            outcome = self.exporter.export(batch) => outcome,
            () = is_out_of_time(ending) => {
                let reason = "it did not answer before the proxy ended".to_owned();
                return Err(Refused { reason, may_succeed_later: false });
            }
        };
        let Err(error) = outcome else { return Ok(()) };
        let Heard { status, failure } = std::mem::take(&mut *lock(&self.heard));
        let reason = match failure {
            Some(failure) => failure,
            None if status > 0 => format!("it answers with status {status}"),
            None => error.to_string(),
        };
        // OTLP: of the statuses, these say that the same may be accepted later.
        Err(Refused { reason, may_succeed_later: matches!(status, 0 | 429 | 502 | 503 | 504) })
    }

    fn count(&self, spans: u64, are_sent: bool) {
        if let Some(control) = self.control.upgrade() {
            control.metrics.sent_spans(spans, are_sent);
        }
    }
}

/// Spans that no collector got.
#[derive(Default)]
struct Lost {
    spans: u64,
    /// Why the last ones did not.
    reason: String,
}

/// Why a collector did not take spans.
struct Refused {
    reason: String,
    may_succeed_later: bool,
}

/// Returns when the proxy ends: until when spans may be sent.
async fn ends(ending: &mut Ending) -> Instant {
    match ending.wait_for(Option::is_some).await.map(|by| *by) {
        Ok(Some(by)) => by,
        // Nobody says so any more: the thread itself ends.
        _ => std::future::pending().await,
    }
}

/// Returns when the proxy ends and spans have had their time.
async fn is_out_of_time(ending: &mut Ending) {
    let by = ends(ending).await;
    tokio::time::sleep_until(by).await;
}

/// Adds the Authorization that a file has. An error names the file, and nothing of what it has.
fn authorized(mut request: Request<Bytes>, file: Option<&PathBuf>) -> Result<Request<Bytes>, String> {
    let Some(file) = file else { return Ok(request) };
    let cannot = |why: String| format!("authorization_file {}: {why}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| cannot(error.to_string()))?;
    let value = HeaderValue::from_str(text.trim());
    let mut value = value.map_err(|_| cannot("it is not one line of text".to_owned()))?;
    value.set_sensitive(true);
    request.headers_mut().insert("authorization", value);
    Ok(request)
}

/// A span as OpenTelemetry's SDK has it.
fn exported(span: Span) -> SpanData {
    let Span { trace_id, span_id, parent_id, kind, name, began, ended, attributes, failure, .. } = span;
    let attributes = attributes.into_iter().map(|(name, value)| match value {
        Value::Text(text) => KeyValue::new(name, text),
        Value::Number(number) => KeyValue::new(name, number),
        Value::Flag(flag) => KeyValue::new(name, flag),
    });
    // What is recorded for its end was not sampled: whoever was asked on the way recorded nothing.
    let flags = if span.is_sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let id = |id: u64| SpanId::from_bytes(id.to_be_bytes());
    SpanData {
        span_context: SpanContext::new(
            TraceId::from_bytes(trace_id.to_be_bytes()),
            id(span_id),
            flags,
            false,
            TraceState::default(),
        ),
        parent_span_id: id(parent_id),
        parent_span_is_remote: span.has_remote_parent,
        span_kind: match kind {
            telemetry::SpanKind::Server => SpanKind::Server,
            telemetry::SpanKind::Client => SpanKind::Client,
            telemetry::SpanKind::Internal => SpanKind::Internal,
        },
        name: name.into(),
        start_time: began,
        end_time: ended,
        attributes: attributes.collect(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: failure.map_or(Status::Unset, Status::error),
        instrumentation_scope: InstrumentationScope::builder("vanward").build(),
    }
}

/// The client of the exporter, which may be used by any thread.
struct Client {
    requests: Requests,
    heard: Arc<Mutex<Heard>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Client")
    }
}

impl HttpClient for Client {
    fn send_bytes<'life0, 'async_trait>(
        &'life0 self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            let outcome = self.requests.make(request).await;
            let mut heard = lock(&self.heard);
            match &outcome {
                Ok(response) => heard.status = response.status().as_u16(),
                Err(failure) => heard.failure = Some(failure.clone()),
            }
            Ok(outcome?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn a_span_keeps_its_place_in_the_trace() {
        let span = Span {
            trace_id: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
            span_id: 2,
            parent_id: 1,
            has_remote_parent: true,
            is_sampled: true,
            kind: telemetry::SpanKind::Server,
            name: "GET /".to_owned(),
            began: SystemTime::UNIX_EPOCH,
            ended: SystemTime::UNIX_EPOCH + Duration::from_millis(5),
            attributes: vec![("http.response.status_code", Value::Number(502))],
            failure: Some("upstream-refused"),
        };
        let data = exported(span.clone());
        assert_eq!(data.span_context.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!((data.span_context.span_id(), data.parent_span_id), (SpanId::from(2), SpanId::from(1)));
        assert!(data.span_context.is_sampled() && data.parent_span_is_remote);
        assert_eq!(data.status, Status::error("upstream-refused"));
        let unsampled = exported(Span { is_sampled: false, failure: None, parent_id: 0, ..span });
        assert!(!unsampled.span_context.is_sampled() && unsampled.status == Status::Unset);
        assert_eq!(unsampled.parent_span_id, SpanId::INVALID);
    }

    #[test]
    fn an_authorization_is_one_line_of_a_file_and_is_not_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("authorization");
        let request = || Request::new(Bytes::new());
        std::fs::write(&file, "Bearer s3cret\n").unwrap();
        let authorized_request = authorized(request(), Some(&file)).unwrap();
        assert_eq!(authorized_request.headers()["authorization"], "Bearer s3cret");
        std::fs::write(&file, "Bearer s3cret\nX: y").unwrap();
        let reason = authorized(request(), Some(&file)).unwrap_err();
        assert!(reason.contains("it is not one line of text") && !reason.contains("s3cret"), "{reason}");
        let reason = authorized(request(), Some(&folder.path().join("none"))).unwrap_err();
        assert!(reason.contains("No such file"), "{reason}");
        assert!(authorized(request(), None).unwrap().headers().is_empty());
    }
}
