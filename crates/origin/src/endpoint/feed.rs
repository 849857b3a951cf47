//! Messages at a rate, each with its number and the time when it was sent: as server-sent events, or as a gRPC call.
//! And a gRPC call that echoes.

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{Instant, sleep_until};

use crate::connection::Stop;
use crate::exchange::Exchange;
use crate::head::{Head, Length};
use crate::target::{Query, Wrong};

/// Maximum messages per second of a stream.
const RATE_MAX: f64 = 1_000_000.0;
/// Maximum size of a message.
const MESSAGE_BYTES_MAX: u64 = 1024 * 1024;
/// Bytes that are sent together, if a stream is late.
const TOGETHER_BYTES: usize = 64 * 1024;

/// Messages at a rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Feed {
    per_second: f64,
    /// Size of a message: shorter ones are filled up.
    bytes: usize,
    /// Ends after so many messages; `None` for no end.
    count: Option<u64>,
    /// How long a client is asked to wait before it connects again.
    retry: Option<Duration>,
}

/// The rate is a finite number.
impl Eq for Feed {}

impl Feed {
    pub(crate) fn of(query: &Query) -> Result<Self, Wrong> {
        let rate = query.text("rate").unwrap_or("10");
        let per_second = rate.parse().ok().filter(|rate: &f64| *rate > 0.0 && *rate <= RATE_MAX);
        let wrong = || Wrong::new("rate", rate, "messages per second, more than 0 and up to a million");
        Ok(Self {
            per_second: per_second.ok_or_else(wrong)?,
            bytes: query.size("size", MESSAGE_BYTES_MAX)?.unwrap_or(0) as usize,
            count: query.size("count", u64::MAX)?,
            retry: query.wait("retry")?,
        })
    }

    fn due(&self, number: u64) -> Duration {
        Duration::try_from_secs_f64(number as f64 / self.per_second).unwrap_or(Duration::MAX)
    }

    /// Sends the messages when they are due: the first at once. `frame` appends one.
    async fn send(
        &self,
        exchange: &mut Exchange<'_>,
        frame: impl Fn(u64, &[u8], &mut Vec<u8>),
    ) -> Result<(), Stop> {
        let (start, mut number) = (Instant::now(), 0);
        let (mut message, mut out) = (Vec::new(), Vec::new());
        while self.count.is_none_or(|count| number < count) {
            let due = start + self.due(number);
            let now = Instant::now();
            // Each is due on a schedule of its own: a late one does not delay the rest.
            if due > now || out.len() > TOGETHER_BYTES {
                exchange.piece(&out).await?;
                out.clear();
                sleep_until(due).await;
            }
            number += 1;
            stamp(number, self.bytes, &mut message);
            frame(number, &message, &mut out);
        }
        exchange.piece(&out).await
    }
}

/// A message: `seq=NUMBER sent_ns=NANOSECONDS`, filled up with dots.
fn stamp(number: u64, bytes: usize, message: &mut Vec<u8>) {
    message.clear();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Writing to a vector does not fail.
    let _ = write!(message, "seq={number} sent_ns={} ", now.as_nanos());
    message.resize(bytes.max(message.len()), b'.');
}

/// Sends the messages as server-sent events, with their numbers as IDs.
pub(crate) async fn events(exchange: &mut Exchange<'_>, feed: Feed) -> Result<(), Stop> {
    let head = Head::new(200, Length::Chunked).field("Content-Type", "text/event-stream");
    exchange.begin(head.field("Cache-Control", "no-store"));
    exchange.flush().await?;
    if !exchange.sends_body() {
        return Ok(());
    }
    if let Some(retry) = feed.retry {
        exchange.piece(format!("retry: {}\n\n", retry.as_millis()).as_bytes()).await?;
    }
    let frame = |number, message: &[u8], out: &mut Vec<u8>| {
        let _ = write!(out, "id: {number}\ndata: ");
        out.extend_from_slice(message);
        out.extend_from_slice(b"\n\n");
    };
    feed.send(exchange, frame).await?;
    exchange.finish(&[]).await
}

fn grpc_head() -> Head {
    Head::new(200, Length::Chunked).field("Content-Type", "application/grpc")
}

async fn end_call(exchange: &mut Exchange<'_>, status: u16) -> Result<(), Stop> {
    exchange.finish(&[("grpc-status", status.to_string().as_bytes())]).await
}

/// A gRPC call that sends the messages, each with its prefix.
pub(crate) async fn grpc_feed(exchange: &mut Exchange<'_>, feed: Feed, status: u16) -> Result<(), Stop> {
    exchange.begin(grpc_head());
    exchange.flush().await?;
    let frame = |_, message: &[u8], out: &mut Vec<u8>| {
        out.push(0);
        out.extend_from_slice(&(message.len() as u32).to_be_bytes());
        out.extend_from_slice(message);
    };
    feed.send(exchange, frame).await?;
    end_call(exchange, status).await
}

/// A gRPC call that returns what comes, as it comes.
pub(crate) async fn grpc_echo(exchange: &mut Exchange<'_>, status: u16) -> Result<(), Stop> {
    exchange.begin(grpc_head());
    exchange.flush().await?;
    let mut piece = Vec::new();
    while exchange.body_piece(|bytes| piece.extend_from_slice(bytes)).await? {
        exchange.piece(&piece).await?;
        piece.clear();
    }
    end_call(exchange, status).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_due_at_even_times_and_have_their_size() {
        let feed = Feed { per_second: 4.0, bytes: 0, count: None, retry: None };
        assert_eq!([0, 1, 6].map(|number| feed.due(number).as_millis()), [0, 250, 1500]);
        let mut message = Vec::new();
        stamp(17, 50, &mut message);
        let text = String::from_utf8_lossy(&message);
        assert!(text.starts_with("seq=17 sent_ns=1") && text.len() == 50 && text.ends_with('.'), "{text}");
        stamp(18, 3, &mut message);
        assert!(message.ends_with(b" "));
    }
}
