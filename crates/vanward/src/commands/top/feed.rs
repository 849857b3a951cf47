//! Polls the proxy once a second, and executes orders in between.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use api::live::LiveStatus;
use api::status::StatusReport;

use super::super::reach::AdminLine;
use super::{TopEvent, TopOrder};

/// Polling interval.
const PERIOD: Duration = Duration::from_secs(1);
/// A slower proxy counts as lost.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum time of an order, which waits for workers and name resolution.
const ORDER_PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Fresh {
    pub(super) status: StatusReport,
    pub(super) live: LiveStatus,
    pub(super) at: Instant,
}

/// Polls and sends results until the receiver is dropped.
pub(super) fn run(line: &AdminLine, orders: &Receiver<TopOrder>, tell: impl Fn(TopEvent) -> bool) {
    let mut next = Instant::now();
    loop {
        if !tell(TopEvent::Fresh(Box::new(ask(line)))) {
            return;
        }
        // No burst of polls after a slow response.
        next = (next + PERIOD).max(Instant::now());
        loop {
            match orders.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(order) => {
                    if !tell(TopEvent::Done(obey(line, &order))) {
                        return;
                    }
                    // The next poll shows its effect.
                    next = Instant::now();
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

fn ask(line: &AdminLine) -> Result<Fresh, String> {
    let get = |path| line.exchange("GET", path, b"", PATIENCE);
    let status = get("/status")?.read()?;
    let live = get("/live")?.read()?;
    Ok(Fresh { status, live, at: Instant::now() })
}

fn obey(line: &AdminLine, order: &TopOrder) -> Result<String, String> {
    let (method, path, body) = order.request();
    let answer = line.exchange(method, &path, body.as_bytes(), ORDER_PATIENCE)?;
    answer.read::<serde_json::Value>()?;
    Ok(order.done())
}
