//! Sends the spans of requests to a collector (OTLP over HTTP), in a task on the control thread for each `[tracing]`.
//!
//! A collector that does not respond costs spans, never requests: the queue is bounded, and lost spans are counted.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Weak;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request};
use proxy::shared::tracing::Tracing;
use telemetry::{SpanSource, Spans, message, rejected_spans};
use tokio::sync::mpsc::Receiver;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::change::Control;
use crate::outbound::{EXCHANGE_MAX, Outbound};
use crate::service::ServedConnections;

/// A message of this size is sent at once.
const BATCH_BYTES: usize = 512 * 1024;
/// How long a span waits for others.
const GATHERING: Duration = Duration::from_secs(1);
/// Interval of fetching spans. Each fetch wakes this thread; waiting for spans would wake it with every request.
const FETCHING: Duration = Duration::from_millis(100);
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: usize = 64 * 1024;
const REASON_CHARACTERS: usize = 200;

/// Signals the end of the proxy, with the deadline for sending spans.
pub(crate) type Ending = watch::Receiver<Option<Instant>>;

/// Sends the spans of the plans in force, until the proxy ends: on `ending`, waiting spans are sent at once.
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
            let sender = SpanSender::new(Weak::clone(&control), &outbound, tracing);
            let ending = ending.clone();
            tokio::task::spawn_local(async move {
                sender.send_all(spans, ending).await;
                drop(guest);
            });
        }
        drop(plan);
        if changes.changed().await.is_err() {
            return;
        }
    }
}

struct SpanSender {
    control: Weak<Control>,
    outbound: Rc<Outbound>,
    settings: config::Tracing,
    source: SpanSource,
}

impl SpanSender {
    fn new(control: Weak<Control>, outbound: &Rc<Outbound>, tracing: &Tracing) -> Self {
        let settings = tracing.settings.clone();
        let source = SpanSource::new("vanward", |told| {
            told.word("service.name", &settings.service);
            told.word("service.version", env!("CARGO_PKG_VERSION"));
            told.number("process.pid", std::process::id().into());
        });
        Self { control, outbound: Rc::clone(outbound), settings, source }
    }

    async fn send_all(&self, mut spans: Receiver<Spans>, mut ending: Ending) {
        let mut lost_at_end = Lost::default();
        loop {
            let mut batch = tokio::select! {
                first = spans.recv() => match first {
                    Some(first) => first,
                    None => return,
                },
                _ = ends(&mut ending) => Spans::default(),
            };
            let until = Instant::now() + GATHERING;
            while batch.bytes() < BATCH_BYTES && Instant::now() < until && ending.borrow().is_none() {
                let _ = tokio::time::timeout(FETCHING, ends(&mut ending)).await;
                while batch.bytes() < BATCH_BYTES
                    && let Ok(more) = spans.try_recv()
                {
                    batch.append(&more);
                }
            }
            let is_ending = ending.borrow().is_some();
            while is_ending && let Ok(more) = spans.try_recv() {
                batch.append(&more);
            }
            if batch.count() > 0 {
                self.send(&batch, &mut ending, &mut lost_at_end).await;
            }
            if is_ending {
                return self.tell(&lost_at_end);
            }
        }
    }

    /// Sends a batch, with retries until it succeeds; only once if the proxy ends. Losses at the end are reported
    /// as one number, because a second message of the same kind would be held back and never written.
    async fn send(&self, batch: &Spans, ending: &mut Ending, lost_at_end: &mut Lost) {
        let (count, message) = (batch.count() as u64, Bytes::from(self.source.message(batch)));
        let mut retry = RETRY_MIN;
        let mut has_failed = false;
        loop {
            let ExportFailure { reason, may_succeed_later } = match self.attempt(&message, ending).await {
                Ok(answer) => return self.taken(count, &answer, has_failed),
                Err(refused) => refused,
            };
            let is_ending = ending.borrow().is_some();
            let is_last = !may_succeed_later || is_ending;
            if is_ending {
                *lost_at_end = Lost { spans: lost_at_end.spans + count, reason };
            } else if is_last {
                self.tell(&Lost { spans: count, reason });
            } else if !has_failed {
                let what = self.cannot_send(count, &reason);
                message::warn(&format!("{what}; kept while there is room"));
            }
            if is_last {
                return self.count(count, false);
            }
            has_failed = true;
            let _ = tokio::time::timeout(retry, ends(ending)).await;
            retry = (retry * 2).min(RETRY_MAX);
        }
    }

    /// Counts the spans that the collector accepted, which may be fewer than sent.
    fn taken(&self, count: u64, answer: &[u8], has_failed: bool) {
        // OTLP: rejected spans must not be sent again.
        let (rejected, why) = rejected_spans(answer).unwrap_or_default();
        let rejected = rejected.min(count);
        self.count(count - rejected, true);
        self.count(rejected, false);
        let why: String = why.chars().take(REASON_CHARACTERS).collect();
        if rejected > 0 {
            self.tell(&Lost {
                spans: rejected,
                reason: format!("it accepted the rest, and reports {why:?}"),
            });
        } else if !why.is_empty() {
            message::warn(&format!("{} accepts spans, and reports {why:?}", self.settings.collector));
        }
        if has_failed {
            message::info(&format!("{}: accepts spans again", self.settings.collector));
        }
    }

    fn tell(&self, lost: &Lost) {
        if lost.spans > 0 {
            message::warn(&format!("{}; lost", self.cannot_send(lost.spans, &lost.reason)));
        }
    }

    fn cannot_send(&self, count: u64, reason: &str) -> String {
        let spans = if count == 1 { "span" } else { "spans" };
        format!("cannot send {count} {spans} to {}: {reason}", self.settings.collector)
    }

    /// Sends a message once. Returns the collector's response if it accepts.
    async fn attempt(&self, message: &Bytes, ending: &mut Ending) -> Result<Bytes, ExportFailure> {
        let exchange = tokio::time::timeout(EXCHANGE_MAX, self.exchange(message));
        let outcome = tokio::select! {
            outcome = exchange => outcome.unwrap_or_else(|_| Err("no answer in time".to_owned())),
            () = is_out_of_time(ending) => {
                let reason = "it did not answer before the proxy ended".to_owned();
                return Err(ExportFailure { reason, may_succeed_later: false });
            }
        };
        let status = match outcome {
            Ok((200..300, answer)) => return Ok(answer),
            Ok((status, _)) => status,
            Err(reason) => return Err(ExportFailure { reason, may_succeed_later: true }),
        };
        // OTLP: after these statuses, a retry may succeed.
        let may_succeed_later = matches!(status, 429 | 502 | 503 | 504);
        Err(ExportFailure { reason: format!("it answers with status {status}"), may_succeed_later })
    }

    /// Sends a message. Returns status and body of the response.
    async fn exchange(&self, message: &Bytes) -> Result<(u16, Bytes), String> {
        let config::Tracing { collector, ca, authorization_file, .. } = &self.settings;
        let mut request = Request::new(message.clone());
        *request.method_mut() = Method::POST;
        request.headers_mut().insert("content-type", HeaderValue::from_static("application/x-protobuf"));
        let request = authorized(request, authorization_file.as_ref())?;
        let to = (collector, config::UpstreamTls::trusting(ca.clone()));
        let answer = self.outbound.exchange("tracing", to, &request, ANSWER_BYTES_MAX).await?;
        Ok((answer.status().as_u16(), answer.into_body()))
    }

    fn count(&self, spans: u64, are_sent: bool) {
        if spans > 0
            && let Some(control) = self.control.upgrade()
        {
            control.metrics.sent_spans(spans, are_sent);
        }
    }
}

#[derive(Default)]
struct Lost {
    spans: u64,
    reason: String,
}

struct ExportFailure {
    reason: String,
    may_succeed_later: bool,
}

/// Waits until the proxy ends. Returns the deadline for sending spans.
async fn ends(ending: &mut Ending) -> Instant {
    match ending.wait_for(Option::is_some).await.map(|by| *by) {
        Ok(Some(by)) => by,
        // The sender is dropped: the thread itself ends.
        _ => std::future::pending().await,
    }
}

/// Waits until the proxy ends and the deadline for spans has passed.
async fn is_out_of_time(ending: &mut Ending) {
    let by = ends(ending).await;
    tokio::time::sleep_until(by).await;
}

/// Adds the Authorization in a file. An error names the file, without its content.
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

#[cfg(test)]
mod tests {
    use super::*;

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
