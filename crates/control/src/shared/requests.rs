//! Limits on requests under way over all instances. Redis has the number of requests of each key and instance. An
//! instance asks it for permits, for many keys at once, and gives unused ones back some milliseconds later.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use config::Redis;
use proxy::context::plan::{Plan, SharedConcurrency};
use route::{ConcurrencyDemand, ShareStanding};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::link::RedisLink;
use crate::change::Control;

/// How long unused permits are kept for the next request of their key. Requests in a queue ask as often.
const PERIOD: Duration = Duration::from_millis(10);
/// After this number of idle intervals, it waits for a call.
const PERIODS_QUIET: u32 = 10;
/// Maximum number of keys in a script, because a script blocks Redis.
const KEYS_AT_ONCE: usize = 500;
/// How long the requests of an instance count after its last sign of life.
const LEASE: Duration = Duration::from_secs(5);
const LEASE_EXTENDED_EVERY: Duration = Duration::from_secs(1);
/// Redis forgets a key after this time without a report, in case its instance has died.
const KEY_LIFETIME: Duration = Duration::from_secs(300);
const KEY_EXTENDED_EVERY: Duration = Duration::from_secs(60);

/// Extends the lease of an instance. The first answer is whether the lease was valid until now. The others are how many
/// requests of each key the instance may have under way: as many as it wants, up to the rest that others leave. An
/// instance above its fair share leaves room for those below it that wait.
///
/// The value of a field is the number of requests that count, and of those with others that wait.
const ASK: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local holders, me, lifetime = KEYS[1], ARGV[1], ARGV[3]
redis.call('ZREMRANGEBYSCORE', holders, '-inf', now)
local answers = {1 - redis.call('ZADD', holders, now + ARGV[2], me)}
redis.call('PEXPIRE', holders, lifetime)
for index = 2, #KEYS do
  local key, at = KEYS[index], 5 * index - 6
  local field, under_way, wanted = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local queue, max = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local entries, others, held = redis.call('HGETALL', key), {}, 0
  for entry = 1, #entries, 2 do
    local name, counts, wants = entries[entry], string.match(entries[entry + 1], '(%d+) (%d+)')
    if name == field then
      held = tonumber(counts)
    elseif redis.call('ZSCORE', holders, string.match(name, '[^/]*')) then
      others[#others + 1] = {tonumber(counts), tonumber(wants)}
    else
      redis.call('HDEL', key, name)
    end
  end
  local fair = math.floor(max / (#others + 1))
  if fair == 0 and held > 0 then fair = 1 end
  local free = max
  for _, other in ipairs(others) do
    free = free - math.max(other[1], math.min(other[2], fair))
  end
  local permits = math.max(0, math.min(wanted, free))
  local counts = math.max(permits, under_way)
  local wants = counts + math.min(math.max(wanted - counts, 0), queue)
  if wants == 0 then
    redis.call('HDEL', key, field)
  else
    redis.call('HSET', key, field, counts .. ' ' .. wants)
    redis.call('PEXPIRE', key, lifetime)
  end
  answers[index] = permits
end
return answers";

pub(super) struct SharedRequests {
    control: Weak<Control>,
    name: String,
    called: Arc<Notify>,
    plan: Weak<Plan>,
    limits: Vec<HeldLimit>,
    /// The name of this instance in Redis. It differs for each connection, so that what an earlier one has left counts
    /// no more.
    holder: String,
    asked: Instant,
    /// The standing of limits that are left.
    alone: ShareStanding,
}

/// A limit of the plan in force, or of an earlier one whose requests are still under way.
struct HeldLimit {
    /// Distinguishes limiters of one limit, for example of two plans.
    serial: u64,
    limit: SharedConcurrency,
}

impl Drop for SharedRequests {
    fn drop(&mut self) {
        // No request waits for an answer that never comes.
        self.limits.iter().for_each(|held| held.limit.stand(self.alone));
    }
}

impl SharedRequests {
    pub(super) fn new(control: &Weak<Control>, settings: &Redis) -> Self {
        Self {
            control: Weak::clone(control),
            name: settings.name.clone(),
            called: Arc::default(),
            plan: Weak::new(),
            limits: Vec::new(),
            holder: String::new(),
            asked: Instant::now(),
            alone: ShareStanding::Alone(settings.instances),
        }
    }

    pub(super) fn stand(&mut self, standing: ShareStanding) {
        let (ShareStanding::Together(instances) | ShareStanding::Alone(instances)) = standing;
        self.alone = ShareStanding::Alone(instances);
        self.look(standing);
        self.limits.iter().for_each(|held| held.limit.stand(standing));
    }

    /// Asks over a connection. `script` is from [`begin`](Self::begin), `instances` the number of instances. Returns why
    /// Redis does not answer.
    pub(super) async fn go_on(&mut self, link: &RedisLink, script: &str, instances: &Cell<u32>) -> String {
        let (mut due, mut extended, mut quiet) = (Instant::now(), Instant::now(), 0);
        loop {
            self.look(ShareStanding::Together(instances.get()));
            if extended.elapsed() >= KEY_EXTENDED_EVERY {
                self.limits.iter().for_each(|held| held.limit.tell_all());
                extended = Instant::now();
            }
            let is_due = Instant::now() >= due;
            let asked = match self.ask(script, link, is_due).await {
                Ok(asked) => asked,
                Err(why) => return why,
            };
            if is_due {
                due = Instant::now() + PERIOD;
                quiet += 1;
            }
            if asked > 0 {
                quiet = 0;
            }
            let may_rest = quiet >= PERIODS_QUIET && self.limits.iter().all(|held| held.limit.rest());
            let until = if may_rest { Instant::now() + LEASE_EXTENDED_EVERY } else { due };
            let _ = tokio::time::timeout_at(until, self.called.notified()).await;
        }
    }

    /// Shares limits over a new connection: takes a new lease, and ends that of the last one. Returns the hash of the
    /// script.
    pub(super) async fn begin(&mut self, link: &RedisLink, instances: &Cell<u32>) -> Result<String, String> {
        let script = link.script(ASK).await?;
        let before = std::mem::replace(&mut self.holder, format!("{:016x}", fastrand::u64(..)));
        let _: u64 = link.ask(redis::cmd("ZREM").arg(self.holders()).arg(before)).await?;
        self.run(&script, link, &[]).await?;
        self.stand(ShareStanding::Together(instances.get()));
        Ok(script)
    }

    fn holders(&self) -> String {
        format!("{}:requests-of", self.name)
    }

    fn look(&mut self, standing: ShareStanding) {
        let Some(control) = self.control.upgrade() else { return };
        let plan = control.plan();
        if self.plan.as_ptr() == Arc::as_ptr(&plan) {
            return;
        }
        self.plan = Arc::downgrade(&plan);
        let known: HashSet<usize> = self.limits.iter().map(|held| held.limit.address()).collect();
        let mut current = HashSet::new();
        for limit in plan.shared_concurrency() {
            current.insert(limit.address());
            if !known.contains(&limit.address()) {
                let called = Arc::clone(&self.called);
                limit.call_with(move || called.notify_one());
                limit.stand(standing);
                self.limits.push(HeldLimit { serial: fastrand::u64(..), limit });
            }
        }
        self.limits.retain(|HeldLimit { limit, .. }| {
            let stays = current.contains(&limit.address()) || !limit.is_unused();
            if !stays {
                // A request of the earlier plan may still come.
                limit.stand(self.alone);
            }
            stays
        });
    }

    /// Asks for what requests wait for, or for all. Returns the number of keys.
    async fn ask(&mut self, script: &str, link: &RedisLink, all: bool) -> Result<usize, String> {
        let (mut demands, mut taken) = (Vec::new(), Vec::new());
        for (index, held) in self.limits.iter().enumerate() {
            held.limit.take_demands(all, &mut taken);
            demands.extend(taken.drain(..).map(|demand| (index, demand)));
        }
        if demands.is_empty() && !self.limits.is_empty() && self.asked.elapsed() >= LEASE_EXTENDED_EVERY {
            self.run(script, link, &[]).await?;
        }
        for demands in demands.chunks(KEYS_AT_ONCE) {
            let Some(permits) = self.run(script, link, demands).await? else { break };
            for ((index, demand), permits) in demands.iter().zip(permits) {
                self.limits[*index].limit.learn(demand, permits);
            }
        }
        Ok(demands.len())
    }

    /// Runs the script. Returns `None` if Redis did not know this instance, which then reports all keys again.
    async fn run(
        &mut self,
        script: &str,
        link: &RedisLink,
        demands: &[(usize, ConcurrencyDemand)],
    ) -> Result<Option<Vec<u32>>, String> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(script).arg(demands.len() + 1).arg(self.holders());
        for (index, demand) in demands {
            let SharedConcurrency { id, .. } = self.limits[*index].limit;
            command.arg(format!("{}:requests:{id:016x}:{:016x}", self.name, demand.key));
        }
        command.arg(&self.holder).arg(LEASE.as_millis() as u64).arg(KEY_LIFETIME.as_millis() as u64);
        for (index, ConcurrencyDemand { under_way, waiting, waiting_max, max, .. }) in demands {
            command.arg(format!("{}/{:x}", self.holder, self.limits[*index].serial));
            command.arg(under_way).arg(under_way.saturating_add(*waiting)).arg(waiting_max).arg(max);
        }
        let mut answers: Vec<u32> = link.ask(&command).await?;
        if answers.len() != demands.len() + 1 {
            return Err(format!("an answer with {} numbers for {} keys", answers.len(), demands.len()));
        }
        self.asked = Instant::now();
        if let (false, Some(control)) = (demands.is_empty(), self.control.upgrade()) {
            control.shared.counts.tells.fetch_add(1, Ordering::Relaxed);
        }
        if answers.remove(0) == 0 {
            self.limits.iter().for_each(|held| held.limit.stand(ShareStanding::Together(1)));
            return Ok(None);
        }
        Ok(Some(answers))
    }
}
