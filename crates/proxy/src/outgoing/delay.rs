//! Delays messages, by routes and faults.

use crate::context::exchange_slot::SlotMemory;
use crate::context::routed::ExchangeContext;
use transport::delay::Delayed;

/// Delays a message. Meanwhile the exchange only holds the memory that its bytes need.
pub(crate) async fn hold_back(ctx: &ExchangeContext<'_>, delay: &Delayed, memory: &mut SlotMemory) {
    let ExchangeContext { worker, .. } = *ctx;
    memory.park(worker);
    worker.holding.during(worker.shaper.alarms().wait(delay)).await;
    memory.unpark(worker);
}
