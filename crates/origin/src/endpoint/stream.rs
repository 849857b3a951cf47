//! Endpoints that stream bodies, in every framing and at a chosen speed.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::connection::Stop;
use crate::content;
use crate::exchange::OriginExchange;
use crate::head::{Length, OriginHead};

/// Minimum interval between two pieces of a slow body: the resolution of a timer.
const DRIP_INTERVAL_MIN: Duration = Duration::from_millis(2);

pub(crate) async fn chunked(
    exchange: &mut OriginExchange<'_>,
    bytes: u64,
    chunk_bytes: u64,
    trailers: bool,
) -> Result<(), Stop> {
    let mut head = OriginHead::new(200, Length::Chunked).field("Content-Type", "text/plain");
    if trailers {
        // RFC 9110 §6.6.2: Trailer announces the fields that will follow.
        head = head.field("Trailer", "X-Body-Bytes, X-Body-Chunks");
    }
    exchange.begin(head);
    let mut sent = 0;
    while sent < bytes && exchange.sends_body() {
        let piece = content::pattern(sent, chunk_bytes.min(bytes - sent));
        exchange.piece(piece).await?;
        sent += piece.len() as u64;
    }
    let (length, chunks) = (bytes.to_string(), bytes.div_ceil(chunk_bytes).to_string());
    let fields = [("X-Body-Bytes", length.as_bytes()), ("X-Body-Chunks", chunks.as_bytes())];
    exchange.finish(if trailers { &fields } else { &[] }).await
}

pub(crate) async fn close(exchange: &mut OriginExchange<'_>, bytes: u64) -> Result<(), Stop> {
    exchange.begin(OriginHead::new(200, Length::Close).field("Content-Type", "text/plain"));
    exchange.pattern(0, bytes).await?;
    exchange.finish(&[]).await
}

/// Sends the head at once, then the body at an even rate: the last byte at the end of `over`.
pub(crate) async fn drip(exchange: &mut OriginExchange<'_>, bytes: u64, over: Duration) -> Result<(), Stop> {
    exchange.begin(OriginHead::new(200, Length::Known(bytes)).field("Content-Type", "text/plain"));
    exchange.flush().await?;
    if !exchange.sends_body() {
        return Ok(());
    }
    let most = (over.as_nanos() / DRIP_INTERVAL_MIN.as_nanos()).max(1);
    let pieces = u64::try_from(most).unwrap_or(u64::MAX).min(bytes).max(1);
    let start = Instant::now();
    let mut sent = 0;
    for number in 1..=pieces {
        // Due times are absolute, so a late piece does not delay the rest.
        sleep_until(start + over.mul_f64(number as f64 / pieces as f64)).await;
        let due = (u128::from(bytes) * u128::from(number) / u128::from(pieces)) as u64;
        exchange.pattern(sent, due - sent).await?;
        sent = due;
    }
    exchange.finish(&[]).await
}
