//! Which instances there are: each tells Redis once a second that it runs.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Weak;
use std::time::Duration;

use config::Redis;
use telemetry::message;

use super::link::Link;
use crate::change::Control;

/// How often an instance tells that it runs.
const EVERY: Duration = Duration::from_secs(1);
/// One that has not told for so long is taken for gone.
const GONE_AFTER: Duration = Duration::from_secs(5);

/// By the clock of Redis: those of instances may differ. Who has heard of all that have come and gone is told no names: with many
/// instances these would be most of what goes over the network.
const TELL: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local changed = redis.call('ZADD', KEYS[1], now, ARGV[1])
changed = changed + redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('SET', KEYS[2], ARGV[3], 'NX')
if changed > 0 then redis.call('INCR', KEYS[3]) end
local begun = redis.call('GET', KEYS[2])
local heard = begun .. ':' .. (redis.call('GET', KEYS[3]) or '0')
if heard == ARGV[4] then return {begun, heard, {}} end
return {begun, heard, redis.call('ZRANGE', KEYS[1], 0, -1)}";

pub(super) struct Members {
    instance: String,
    /// The keys: of the instances, of what tells a Redis that has lost all from one that has not, and of how often instances have
    /// come and gone.
    keys: [String; 3],
    /// How many instances there are, for shares.
    count: Rc<Cell<u32>>,
    /// What Redis was called when it was reached last.
    known: Option<String>,
    /// Up to when it has heard who has come and gone, as Redis says it.
    heard: String,
}

impl Members {
    pub(super) fn new(settings: &Redis, instance: String) -> Self {
        let keys = ["instances", "begun", "instance-changes"].map(|key| format!("{}:{key}", settings.name));
        Self {
            instance,
            keys,
            count: Rc::new(Cell::new(settings.instances)),
            known: None,
            heard: String::new(),
        }
    }

    /// How many share.
    pub(super) fn shares(&self) -> u32 {
        self.count.get()
    }

    /// The same, for whoever follows it.
    pub(super) fn count(&self) -> Rc<Cell<u32>> {
        Rc::clone(&self.count)
    }

    /// Tells that this instance runs, over a new connection. Returns all that do.
    ///
    /// # Errors
    /// Why Redis does not answer.
    pub(super) async fn tell(&mut self, link: &Link) -> Result<Vec<String>, String> {
        let script = link.script(TELL).await?;
        self.heard.clear();
        self.tell_by(&script, link).await.map(Option::unwrap_or_default)
    }

    /// Tells it. Returns all that run, if that has changed.
    async fn tell_by(&mut self, script: &str, link: &Link) -> Result<Option<Vec<String>>, String> {
        let mut command = redis::cmd("EVALSHA");
        let new = format!("{:016x}", fastrand::u64(..));
        command.arg(script).arg(3).arg(&self.keys).arg(&self.instance).arg(GONE_AFTER.as_millis() as u64);
        let command = command.arg(new).arg(&self.heard);
        let (begun, heard, instances): (String, String, Vec<String>) = link.ask(command).await?;
        let has_changed = std::mem::replace(&mut self.heard, heard) != self.heard;
        if has_changed {
            let count = u32::try_from(instances.len()).unwrap_or(u32::MAX);
            self.count.set(count.max(1));
        }
        match &self.known {
            Some(known) if *known != begun => {
                message::warn("Redis has lost what it knew: keys of shared limits begin with a whole burst");
            }
            _ => {}
        }
        self.known = Some(begun);
        Ok(has_changed.then_some(instances))
    }

    /// Tells it again and again. Returns why Redis does not answer.
    pub(super) async fn go_on(&mut self, control: &Weak<Control>, link: &Link) -> String {
        let script = match link.script(TELL).await {
            Ok(script) => script,
            Err(why) => return why,
        };
        loop {
            crate::tick::tick(EVERY).await;
            match self.tell_by(&script, link).await {
                Err(why) => return why,
                Ok(changed) => {
                    let Some(control) = control.upgrade() else { return "the proxy ends".to_owned() };
                    if let Some(instances) = changed {
                        control.shared.reached(instances);
                    }
                }
            }
        }
    }
}
