//! Asks the proxy once a second, and carries out orders in between.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use api::live::LiveStatus;
use api::status::Status;

use super::super::reach::Line;
use super::{Order, Told};

/// Between two questions.
const PERIOD: Duration = Duration::from_secs(1);
/// A proxy that takes longer to answer counts as lost.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long an order may take: it waits for workers and name resolution.
const ORDER_PATIENCE: Duration = Duration::from_secs(60);

/// What the proxy has told.
pub(super) struct Fresh {
    pub(super) status: Status,
    pub(super) live: LiveStatus,
    pub(super) at: Instant,
}

/// Asks and tells until nobody listens any more.
pub(super) fn run(line: &Line, orders: &Receiver<Order>, tell: impl Fn(Told) -> bool) {
    let mut next = Instant::now();
    loop {
        if !tell(Told::Fresh(Box::new(ask(line)))) {
            return;
        }
        // No burst of questions after a long answer.
        next = (next + PERIOD).max(Instant::now());
        loop {
            match orders.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(order) => {
                    if !tell(Told::Done(obey(line, &order))) {
                        return;
                    }
                    // Its effect is to be seen at once.
                    next = Instant::now();
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

fn ask(line: &Line) -> Result<Fresh, String> {
    let get = |path| line.exchange("GET", path, b"", PATIENCE);
    let status = get("/status")?.read()?;
    let live = get("/live")?.read()?;
    Ok(Fresh { status, live, at: Instant::now() })
}

fn obey(line: &Line, order: &Order) -> Result<String, String> {
    let (method, path, body) = order.request();
    let answer = line.exchange(method, &path, body.as_bytes(), ORDER_PATIENCE)?;
    answer.read::<serde_json::Value>()?;
    Ok(order.done())
}
