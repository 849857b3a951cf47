//! The running instances: each reports to Redis once a second.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Weak;
use std::time::Duration;

use config::Redis;
use telemetry::message;

use super::link::RedisLink;
use crate::change::Control;

const EVERY: Duration = Duration::from_secs(1);
/// An instance counts as gone after this silence.
const GONE_AFTER: Duration = Duration::from_secs(5);

/// Uses the clock of Redis, because those of instances may differ. Names are sent only after a change: with many
/// instances they would be most of the traffic.
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
    /// Keys of the instances, of the ID that Redis loses with its data, and of the number of arrivals and departures.
    keys: [String; 3],
    count: Rc<Cell<u32>>,
    /// The ID of Redis at the last connection.
    known: Option<String>,
    /// The ID and the number of changes as Redis last sent them.
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

    pub(super) fn shares(&self) -> u32 {
        self.count.get()
    }

    /// The number of sharing instances, kept up to date.
    pub(super) fn count(&self) -> Rc<Cell<u32>> {
        Rc::clone(&self.count)
    }

    /// Reports this instance over a new connection. Returns all running ones.
    pub(super) async fn tell(&mut self, link: &RedisLink) -> Result<Vec<String>, String> {
        let script = link.script(TELL).await?;
        self.heard.clear();
        self.tell_by(&script, link).await.map(Option::unwrap_or_default)
    }

    /// Reports this instance. Returns all running ones if they changed.
    async fn tell_by(&mut self, script: &str, link: &RedisLink) -> Result<Option<Vec<String>>, String> {
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
                message::warn("Redis has lost its data: each key of a shared limit starts with a full burst");
            }
            _ => {}
        }
        self.known = Some(begun);
        Ok(has_changed.then_some(instances))
    }

    /// Reports repeatedly. Returns why Redis does not answer.
    pub(super) async fn go_on(&mut self, control: &Weak<Control>, link: &RedisLink) -> String {
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
