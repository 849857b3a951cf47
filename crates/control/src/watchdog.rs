//! The watchdog of the service manager (sd_watchdog_enabled(3)): notified while every worker responds.

use std::sync::Arc;
use std::time::Duration;

use proxy::context::worker::WorkerMessage;
use telemetry::message;
use tokio::sync::mpsc::unbounded_channel;

use crate::change::Control;
use crate::notify;

/// Environment variables: the interval of notifications in microseconds, and the process that sends them.
const PERIOD: &str = "WATCHDOG_USEC";
pub(crate) const PROCESS: &str = "WATCHDOG_PID";

/// Notifies the service manager twice in each interval if all workers respond. If one does not, it sends nothing,
/// and the service manager restarts the proxy. Never ends.
pub(crate) async fn run(control: &Arc<Control>) {
    let asked = |name| std::env::var(name).ok();
    let Some(period) = period(asked(PERIOD).as_deref(), asked(PROCESS).as_deref(), std::process::id()) else {
        return std::future::pending().await;
    };
    let turn = period / 2;
    loop {
        let next = tokio::time::Instant::now() + turn;
        match tokio::time::timeout_at(next, all_answer(control)).await {
            Ok(()) => notify::tell("WATCHDOG=1"),
            Err(_) => message::error(&format!(
                "a worker has not answered for {} s: the service manager gets no notification (watchdog)",
                turn.as_secs_f64()
            )),
        }
        tokio::time::sleep_until(next).await;
    }
}

async fn all_answer(control: &Control) {
    let (heard, mut all_heard) = unbounded_channel();
    control.tell_workers(|| WorkerMessage::Answer(heard.clone()));
    drop(heard);
    // It ends when each has dropped its sender.
    while all_heard.recv().await.is_some() {}
}

/// Returns the interval for the process with the ID `own`; `None` if the service manager expects nothing from it.
fn period(usec: Option<&str>, process: Option<&str>, own: u32) -> Option<Duration> {
    if process.is_some_and(|process| process.parse() != Ok(own)) {
        return None;
    }
    usec?.parse().ok().filter(|usec| *usec > 0).map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_manager_asks_one_process() {
        for (usec, process, expected) in [
            (Some("3000000"), Some("17"), Some(Duration::from_secs(3))),
            (Some("3000000"), None, Some(Duration::from_secs(3))),
            (Some("3000000"), Some("18"), None),
            (Some("3000000"), Some("x"), None),
            (Some("0"), None, None),
            (Some("soon"), None, None),
            (None, None, None),
        ] {
            assert_eq!(period(usec, process, 17), expected, "{usec:?} {process:?}");
        }
    }
}
