//! Sends messages at a rate, with number and time: server-sent events, or a gRPC call. Also a gRPC call that echoes.

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{Instant, sleep_until};

use crate::connection::Stop;
use crate::exchange::OriginExchange;
use crate::head::{Length, OriginHead};
use crate::target::{InvalidTarget, QueryPairs};

/// Maximum messages per second of a stream.
const RATE_MAX: f64 = 1_000_000.0;
const MESSAGE_BYTES_MAX: u64 = 1024 * 1024;
/// Maximum size of a batch, which is sent when a stream is late.
const TOGETHER_BYTES: usize = 64 * 1024;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Feed {
    per_second: f64,
    /// Minimum size of a message: shorter ones are padded.
    bytes: usize,
    /// The stream ends after this many messages; `None` for no end.
    count: Option<u64>,
    /// Time that the client is asked to wait before it reconnects.
    retry: Option<Duration>,
}

/// `Eq` holds, because the rate is a finite number.
impl Eq for Feed {}

impl Feed {
    pub(crate) fn new(query: &QueryPairs) -> Result<Self, InvalidTarget> {
        let rate = query.text("rate").unwrap_or("10");
        let per_second = rate.parse().ok().filter(|rate: &f64| *rate > 0.0 && *rate <= RATE_MAX);
        let wrong =
            || InvalidTarget::new("rate", rate, "messages per second, more than 0 and up to a million");
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

    /// Sends each message when it is due, the first at once. `frame` appends one.
    async fn send(
        &self,
        exchange: &mut OriginExchange<'_>,
        frame: impl Fn(u64, &[u8], &mut Vec<u8>),
    ) -> Result<(), Stop> {
        let (start, mut number) = (Instant::now(), 0);
        let (mut message, mut out) = (Vec::new(), Vec::new());
        while self.count.is_none_or(|count| number < count) {
            let due = start + self.due(number);
            let now = Instant::now();
            // Due times are absolute, so a late message does not delay the rest.
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

/// Makes a message: `seq=NUMBER sent_ns=NANOSECONDS`, padded with dots.
fn stamp(number: u64, bytes: usize, message: &mut Vec<u8>) {
    message.clear();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let _ = write!(message, "seq={number} sent_ns={} ", now.as_nanos());
    message.resize(bytes.max(message.len()), b'.');
}

/// Sends the messages as server-sent events, with their numbers as IDs.
pub(crate) async fn events(exchange: &mut OriginExchange<'_>, feed: Feed) -> Result<(), Stop> {
    let head = OriginHead::new(200, Length::Chunked).field("Content-Type", "text/event-stream");
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

fn grpc_head() -> OriginHead {
    OriginHead::new(200, Length::Chunked).field("Content-Type", "application/grpc")
}

async fn end_call(exchange: &mut OriginExchange<'_>, status: u16) -> Result<(), Stop> {
    exchange.finish(&[("grpc-status", status.to_string().as_bytes())]).await
}

/// A gRPC call that sends the messages, each with its prefix.
pub(crate) async fn grpc_feed(
    exchange: &mut OriginExchange<'_>,
    feed: Feed,
    status: u16,
) -> Result<(), Stop> {
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

/// A gRPC call that returns the received bytes at once.
pub(crate) async fn grpc_echo(exchange: &mut OriginExchange<'_>, status: u16) -> Result<(), Stop> {
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
