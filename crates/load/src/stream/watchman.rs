//! Ends a run with fan-out: receivers cannot know of the last message, because the senders are in other threads.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::worker::LoadWorker;

const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// Maximum wait for messages after the last was sent.
const WAIT_MOST: Duration = Duration::from_millis(800);

/// Ends this thread's run once its receivers have all senders' messages, or some time after the last was sent.
pub(super) async fn watch(worker: Rc<LoadWorker>) {
    let Some(prepared) = &worker.shared.streams else { return };
    let plan = &worker.shared.plan;
    let streams = (0..worker.senders()).map(|local| {
        (local / plan.streams * plan.threads + worker.thread()) * plan.streams + local % plan.streams
    });
    let receivers = streams.filter(|number| *number >= prepared.sent.len()).count() as u64;
    let mut ended: Option<Instant> = None;
    loop {
        tokio::time::sleep(BETWEEN_LOOKS).await;
        if prepared.ended.load(Ordering::Acquire) < prepared.sent.len() {
            continue;
        }
        let now = Instant::now();
        let since = *ended.get_or_insert(now);
        let sent: u64 = prepared.sent.iter().map(|sent| sent.load(Ordering::Relaxed)).sum();
        let is_past_end = worker.window().is_none_or(|window| window.end.is_none_or(|end| now >= end));
        if is_past_end && (worker.arrived.get() >= sent * receivers || now - since > WAIT_MOST) {
            worker.stream_done.notify_one();
            return;
        }
    }
}
