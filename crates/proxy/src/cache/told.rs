//! Waits, for a limited time, until others have purged; and applies the purges of the previous process.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use api::cache::PurgedElsewhere;
use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::sync::oneshot;

use crate::context::plan::Plan;
use crate::context::routed::ExchangeContext;
use crate::store::successor::{DONE, MESSAGE_BYTES_MAX};
use transport::deadline::Ticks;

/// Maximum time that a client waits for the next process.
const SUCCESSOR_LIMIT: Ticks = Ticks(10);
/// Maximum time that a client waits for other instances: slightly more than their own limit.
const OTHERS_LIMIT: Ticks = Ticks(13);

/// Waits until the next process has applied a purge, for a limited time.
pub(crate) async fn by_successor(ctx: &ExchangeContext<'_>, known: oneshot::Receiver<()>) {
    let deadline = ctx.worker.deadlines.deadline();
    // After the time-out, the purge is only confirmed for this process.
    let _ = deadline.within(SUCCESSOR_LIMIT, known).await;
}

/// Waits until other instances have purged, for a limited time.
pub(crate) async fn by_others(
    ctx: &ExchangeContext<'_>,
    elsewhere: oneshot::Receiver<PurgedElsewhere>,
) -> PurgedElsewhere {
    let deadline = ctx.worker.deadlines.deadline();
    let known = deadline.within(OTHERS_LIMIT, elsewhere).await;
    known.ok().and_then(Result::ok).unwrap_or_else(PurgedElsewhere::unknown)
}

/// Applies purges of the previous process on a separate thread, until that process ends.
///
/// `plan` returns the plan in force, or `None` once the proxy has ended.
pub fn listen(channel: OwnedFd, plan: impl Fn() -> Option<Arc<Plan>> + Send + 'static) {
    // No time limit, because purges may be rare.
    if set_socket_timeout(&channel, Timeout::Recv, None).is_err() {
        return;
    }
    let hear = move || {
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        while let Ok((count @ 1.., _)) = retry_on_intr(|| recv(&channel, &mut buffer[..], RecvFlags::empty()))
        {
            let Some(plan) = plan() else { return };
            if let Some(cache) = &plan.cache {
                cache.obey(&plan.spaces, &buffer[..count]);
            }
            if send(&channel, DONE, SendFlags::NOSIGNAL).is_err() {
                return;
            }
        }
    };
    // If no thread can be started, the channel closes, which the other process notices.
    let _ = std::thread::Builder::new().name("predecessor".to_owned()).spawn(hear);
}
