//! Rate limits over all instances. An instance reports its admitted requests to Redis in batches, slightly later,
//! and receives the state that results from all instances.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use config::Redis;
use proxy::context::plan::{Plan, SharedLimit};
use route::{Rate, ShareStanding, Spent};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::link::RedisLink;
use crate::change::Control;

/// Interval of reports for up to ten instances; more instances report less often.
const PERIOD: Duration = Duration::from_millis(10);
const INSTANCES_PER_PERIOD: u32 = 10;
/// Minimum interval if a limit calls for a report.
const PERIOD_MIN: Duration = Duration::from_millis(2);
/// After this number of idle intervals, it waits for a call.
const PERIODS_QUIET: u32 = 10;
/// Maximum number of keys in a report, because a report blocks Redis.
const KEYS_AT_ONCE: usize = 500;

/// The rate limiting algorithm (see `route`), by the clock of Redis in microseconds. A key expires once its time is
/// in the past. A key's debt is bounded, in case the clock is set back.
const TELL: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local ahead = {}
for index, key in ipairs(KEYS) do
  local cost, most = tonumber(ARGV[2 * index - 1]), tonumber(ARGV[2 * index])
  local due = math.max(tonumber(redis.call('GET', key) or 0), now) + cost
  due = math.min(due, now + most)
  redis.call('SET', key, string.format('%.0f', due), 'PX', math.floor((due - now) / 1000) + 1)
  ahead[index] = due - now
end
return ahead";

pub(super) struct SharedLimits {
    control: Weak<Control>,
    name: String,
    called: Arc<Notify>,
    plan: Weak<Plan>,
    limits: Vec<SharedLimit>,
}

/// A limit's report about one of its keys.
struct LimitReport {
    limit: usize,
    spent: Spent,
}

impl SharedLimits {
    pub(super) fn new(control: &Weak<Control>, settings: &Redis) -> Self {
        let called = control.upgrade().map(|control| Arc::clone(&control.shared.called));
        let name = settings.name.clone();
        let called = called.unwrap_or_default();
        Self { control: Weak::clone(control), name, called, plan: Weak::new(), limits: Vec::new() }
    }

    pub(super) fn stand(&mut self, standing: ShareStanding) {
        self.look(standing);
        self.limits.iter().for_each(|limit| limit.limiter.stand(standing));
    }

    /// Shares limits over a new connection. Returns the hash of the script.
    pub(super) async fn begin(&mut self, link: &RedisLink, instances: &Cell<u32>) -> Result<String, String> {
        let script = link.script(TELL).await?;
        // Requests admitted without Redis were within each instance's share.
        drop(self.take());
        self.stand(ShareStanding::Together(instances.get()));
        Ok(script)
    }

    /// Reports and receives over a connection. `script` is from [`begin`](Self::begin), `instances` the number of
    /// instances. Returns why Redis does not answer.
    pub(super) async fn go_on(&mut self, link: &RedisLink, script: &str, instances: &Cell<u32>) -> String {
        let (mut stands, mut quiet) = (instances.get(), 0);
        loop {
            self.look(ShareStanding::Together(stands));
            if stands != instances.get() {
                stands = instances.get();
                self.stand(ShareStanding::Together(stands));
            }
            let told = self.take();
            quiet = if told.is_empty() { quiet + 1 } else { 0 };
            if let Err(why) = self.tell(script, link, &told).await {
                return why;
            }
            self.wait(stands, quiet >= PERIODS_QUIET).await;
        }
    }

    /// Waits until there is something to report. `may_rest`: there was nothing for a while.
    async fn wait(&self, instances: u32, may_rest: bool) {
        let periods = instances.div_ceil(INSTANCES_PER_PERIOD).max(1);
        let due = Instant::now() + PERIOD * periods;
        if may_rest && self.limits.iter().all(|limit| limit.limiter.rest()) {
            // A new plan may have new limits that cannot call yet.
            let _ = tokio::time::timeout(Duration::from_secs(1), self.called.notified()).await;
            return;
        }
        tokio::time::sleep(PERIOD_MIN).await;
        let _ = tokio::time::timeout_at(due, self.called.notified()).await;
    }

    fn look(&mut self, standing: ShareStanding) {
        let Some(control) = self.control.upgrade() else { return };
        let plan = control.plan();
        if self.plan.as_ptr() == Arc::as_ptr(&plan) {
            return;
        }
        self.plan = Arc::downgrade(&plan);
        self.limits = plan.shared_limits().collect();
        for limit in &self.limits {
            limit.limiter.stand(standing);
            let called = Arc::clone(&self.called);
            limit.limiter.call_with(move || called.notify_one());
        }
    }

    fn take(&self) -> Vec<LimitReport> {
        let (mut all, mut spent) = (Vec::new(), Vec::new());
        for (limit, shared) in self.limits.iter().enumerate() {
            shared.limiter.take_spent(&mut spent);
            all.extend(spent.drain(..).map(|spent| LimitReport { limit, spent }));
        }
        all
    }

    async fn tell(&self, script: &str, link: &RedisLink, told: &[LimitReport]) -> Result<(), String> {
        for told in told.chunks(KEYS_AT_ONCE) {
            let mut command = redis::cmd("EVALSHA");
            command.arg(script).arg(told.len());
            for LimitReport { limit, spent } in told {
                command
                    .arg(format!("{}:limit:{:016x}:{:016x}", self.name, self.limits[*limit].id, spent.key));
            }
            for LimitReport { limit, spent } in told {
                let (cost_us, most_us) = cost(self.limits[*limit].limiter.rate(), spent.requests);
                command.arg(cost_us).arg(most_us);
            }
            let ahead_us: Vec<u64> = link.ask(&command).await?;
            let Some(control) = self.control.upgrade() else { return Ok(()) };
            let now_ns = control.time_ns();
            for (LimitReport { limit, spent }, ahead_us) in told.iter().zip(ahead_us) {
                self.limits[*limit].limiter.learn(*spent, ahead_us.saturating_mul(1000), now_ns);
            }
            let counts = &control.shared.counts;
            counts.tells.fetch_add(1, Ordering::Relaxed);
            let requests = told.iter().map(|told| u64::from(told.spent.requests)).sum();
            counts.requests.fetch_add(requests, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Returns the cost of requests, and a key's maximum debt, in microseconds.
fn cost(rate: Rate, requests: u32) -> (u64, u64) {
    let cost_us = rate.interval_ns().saturating_mul(requests.into()).div_ceil(1000);
    // All instances may have admitted a burst and a little more before they learned of each other.
    let most_us = (rate.tolerance_ns() / 1000).saturating_mul(2) + (rate.interval_ns() / 1000 + 1) * 10;
    (cost_us, most_us.max(cost_us))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    #[test]
    fn costs() {
        let rate = |requests, seconds, burst| {
            let number = |number| NonZeroU32::new(number).unwrap();
            Rate::new(number(requests), Duration::from_secs(seconds), number(burst)).unwrap()
        };
        for (rate, requests, expected) in [
            (rate(10, 1, 1), 1, (100_000, 1_000_010)),
            (rate(10, 1, 11), 3, (300_000, 3_000_010)),
            (rate(3, 1, 1), 3, (1_000_001, 3_333_340)),
            (rate(1_000_000, 1, 1), 5000, (5000, 5000)),
            // The smallest interval is a tenth of a microsecond.
            (rate(10_000_000, 1, 10), 1, (1, 10)),
        ] {
            assert_eq!(cost(rate, requests), expected, "{rate:?}");
        }
    }
}
