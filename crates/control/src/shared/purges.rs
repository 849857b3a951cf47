//! Purges for all instances: a numbered stream in Redis. An instance that was absent continues after its last
//! purge. If it cannot know what it missed, it empties its cache.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::cache::PurgedElsewhere;
use config::Redis;
use proxy::cache::Publication;
use redis::Value;
use telemetry::message;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use super::invalid::{self, Hearer};
use super::link::{ANSWER_MAX, RedisLink};
use crate::change::Control;

/// Minimum number of purges kept for absent instances.
const KEPT: usize = 10_000;
const READ_AT_ONCE: usize = 100;
/// Maximum number of purges that wait for Redis. If there are more, everything is purged instead.
const WAITING_MAX: usize = 1000;
/// Maximum wait for the other instances, before the response says that they have not purged.
const KNOWN_MAX: Duration = Duration::from_secs(1);
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
/// How long Redis holds a read without new entries.
const HELD: Duration = Duration::from_secs(1);

/// Numbers have no gaps, so that an instance notices a missed purge. If Redis lost them, numbering continues after
/// the last one that this instance knows.
const PUBLISH: &str = r"
local number = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), tonumber(ARGV[4])) + 1
redis.call('SET', KEYS[1], string.format('%.0f', number))
local id = string.format('%.0f-1', number)
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[1], id, 'from', ARGV[2], 'what', ARGV[3])
return number";

/// Returns the last number, how many numbers may be reused because Redis lost their purges, and the next purges.
const NEXT: &str = r"
local number, last, again = tonumber(redis.call('GET', KEYS[1]) or 0), tonumber(ARGV[1]), 0
if number < last then
  again = redis.call('XLEN', KEYS[2])
  redis.call('SET', KEYS[1], ARGV[1])
  number = last
end
return {number, again, redis.call('XRANGE', KEYS[2], string.format('%.0f-0', last + 1), '+', 'COUNT', ARGV[2])}";

const MISSING: &str = r"
local missing, instances = {}, redis.call('ZRANGE', KEYS[1], 0, -1)
for _, instance in ipairs(instances) do
  if tonumber(redis.call('HGET', KEYS[2], instance) or 0) < tonumber(ARGV[1]) then
    missing[#missing + 1] = instance
  end
end
return {#instances, missing}";

struct PurgeKeys {
    number: String,
    stream: String,
    /// The last purge of each instance.
    done: String,
    instances: String,
}

/// Publishes purges of this instance.
pub(super) struct Publisher {
    keys: Rc<PurgeKeys>,
    instance: String,
    way: UnboundedSender<Publication>,
    publications: UnboundedReceiver<Publication>,
    /// Purges that Redis does not have yet.
    waiting: VecDeque<Vec<u8>>,
    /// See [`Follower`].
    last: Rc<Cell<Option<u64>>>,
}

/// Performs purges of other instances, and receives their invalidations.
pub(super) struct PurgeFollower {
    control: Weak<Control>,
    keys: Rc<PurgeKeys>,
    instance: String,
    /// The last performed purge; `None` before the first connection.
    last: Rc<Cell<Option<u64>>>,
    invalid: Hearer,
}

pub(super) fn begin(control: &Weak<Control>, settings: &Redis, instance: &str) -> (Publisher, PurgeFollower) {
    let key = |name: &str| format!("{}:{name}", settings.name);
    let keys = Rc::new(PurgeKeys {
        number: key("purge"),
        stream: key("purges"),
        done: key("purged"),
        instances: key("instances"),
    });
    let (way, publications) = unbounded_channel();
    let publisher = Publisher {
        keys: Rc::clone(&keys),
        instance: instance.to_owned(),
        way,
        publications,
        waiting: VecDeque::new(),
        last: Rc::default(),
    };
    let (control, last) = (Weak::clone(control), Rc::clone(&publisher.last));
    let invalid = Hearer::new(settings, instance);
    (publisher, PurgeFollower { control, keys, instance: instance.to_owned(), last, invalid })
}

impl Publisher {
    pub(super) fn way(&self) -> UnboundedSender<Publication> {
        self.way.clone()
    }

    /// Keeps purges while Redis is unreachable. Never returns.
    pub(super) async fn alone(&mut self, why: &str) -> String {
        while let Some(Publication { messages, told }) = self.publications.recv().await {
            self.wait(messages);
            let problem = format!("Redis cannot be reached, other instances purge after it is back: {why}");
            let _ = told.send(PurgedElsewhere { problem: Some(problem), ..PurgedElsewhere::default() });
        }
        "the proxy ends".to_owned()
    }

    fn wait(&mut self, messages: Vec<Vec<u8>>) {
        self.waiting.extend(messages);
        if self.waiting.len() > WAITING_MAX {
            self.waiting = [proxy::cache::purge_of_everything()].into();
        }
    }

    /// Publishes over a connection. Returns why Redis does not answer.
    pub(super) async fn go_on(&mut self, link: &Arc<RedisLink>) -> String {
        let scripts = async { Ok::<_, String>((link.script(PUBLISH).await?, link.script(MISSING).await?)) };
        let (publish, missing) = match scripts.await {
            Ok(scripts) => scripts,
            Err(why) => return why,
        };
        if let Err(why) = self.tell(&publish, link).await {
            return why;
        }
        while let Some(Publication { messages, told }) = self.publications.recv().await {
            self.wait(messages);
            match self.tell(&publish, link).await {
                Ok(number) => {
                    let (link, keys, missing) = (Arc::clone(link), Rc::clone(&self.keys), missing.clone());
                    tokio::task::spawn_local(async move {
                        let _ = told.send(known(&link, &keys, &missing, number).await);
                    });
                }
                Err(why) => {
                    let problem = Some(format!(
                        "the connection to Redis broke, other instances purge after it is back: {why}"
                    ));
                    let _ = told.send(PurgedElsewhere { problem, ..PurgedElsewhere::default() });
                    return why;
                }
            }
        }
        "the proxy ends".to_owned()
    }

    /// Publishes all waiting purges. Returns the number of the last one.
    async fn tell(&mut self, publish: &str, link: &RedisLink) -> Result<u64, String> {
        let mut last = 0;
        while let Some(message) = self.waiting.front() {
            let mut command = redis::cmd("EVALSHA");
            command.arg(publish).arg(2).arg(&self.keys.number).arg(&self.keys.stream);
            command.arg(KEPT).arg(&self.instance).arg(message);
            last = link.ask(command.arg(self.last.get().unwrap_or(0))).await?;
            self.waiting.pop_front();
        }
        Ok(last)
    }
}

/// Waits a limited time until all instances have performed a purge.
async fn known(link: &RedisLink, keys: &PurgeKeys, missing: &str, number: u64) -> PurgedElsewhere {
    let began = Instant::now();
    loop {
        let mut command = redis::cmd("EVALSHA");
        command.arg(missing).arg(2).arg(&keys.instances).arg(&keys.done).arg(number);
        let elsewhere = match link.ask::<(usize, Vec<String>)>(&command).await {
            Ok((instances, missing)) => PurgedElsewhere { instances, missing, problem: None },
            Err(why) => {
                let problem =
                    Some(format!("the connection to Redis broke, other instances may have purged: {why}"));
                return PurgedElsewhere { problem, ..PurgedElsewhere::default() };
            }
        };
        if elsewhere.missing.is_empty() || began.elapsed() > KNOWN_MAX {
            return elsewhere;
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

struct Purge {
    number: u64,
    from: String,
    what: Vec<u8>,
}

impl PurgeFollower {
    /// Performs other instances' purges over a connection. Returns why Redis does not answer.
    pub(super) async fn go_on(&mut self, settings: &Redis, link: &RedisLink) -> String {
        self.follow(settings, link).await.err().unwrap_or_else(|| "the proxy ends".to_owned())
    }

    async fn follow(&mut self, settings: &Redis, link: &RedisLink) -> Result<(), String> {
        // A separate connection, because Redis holds its answers.
        let held = RedisLink::open_for(settings, HELD + ANSWER_MAX).await?;
        let script = link.script(NEXT).await?;
        self.invalid.begin(link).await?;
        let mut last = match self.last.get() {
            Some(last) => last,
            None => self.first(link).await?,
        };
        loop {
            self.last.set(Some(last));
            let mut command = redis::cmd("EVALSHA");
            command.arg(&script).arg(2).arg(&self.keys.number).arg(&self.keys.stream);
            let (number, again, entries): (u64, u64, Vec<(String, Vec<Value>)>) =
                link.ask(command.arg(last).arg(READ_AT_ONCE)).await?;
            let purges: Vec<Purge> = entries.into_iter().filter_map(purge).collect();
            let numbers: Vec<u64> = purges.iter().map(|purge| purge.number).collect();
            match next(last, number, again, &numbers) {
                PurgeStep::Nothing => {
                    let mut command = redis::cmd("XREAD");
                    command.arg("COUNT").arg(invalid::AT_ONCE).arg("BLOCK").arg(HELD.as_millis() as u64);
                    let (stream, behind) = self.invalid.place();
                    command.arg("STREAMS").arg(&self.keys.stream).arg(stream);
                    let read = held.ask(command.arg(format!("{last}-1")).arg(behind)).await?;
                    let heard = self.invalid.heard(read);
                    if !heard.is_empty() {
                        self.obey(heard).await;
                    }
                    continue;
                }
                PurgeStep::Purge(number) => {
                    let others = purges.into_iter().filter(|purge| purge.from != self.instance);
                    self.obey(others.map(|purge| purge.what).collect()).await;
                    last = number;
                }
                PurgeStep::Lost(number) => {
                    message::warn("the cache is emptied: purges of other instances are lost");
                    self.obey(vec![proxy::cache::purge_of_everything()]).await;
                    last = number;
                }
            }
            self.done(link, last).await?;
        }
    }

    /// Returns where a starting instance begins: where it ended, if Redis knows.
    async fn first(&self, link: &RedisLink) -> Result<u64, String> {
        let mut command = redis::cmd("HGET");
        if let Some(last) = link.ask(command.arg(&self.keys.done).arg(&self.instance)).await? {
            return Ok(last);
        }
        let last: Option<u64> = link.ask(redis::cmd("GET").arg(&self.keys.number)).await?;
        let last = last.unwrap_or(0);
        // There may be responses on disk, and a few since the start.
        self.obey(vec![proxy::cache::purge_of_everything()]).await;
        self.done(link, last).await?;
        Ok(last)
    }

    async fn done(&self, link: &RedisLink, last: u64) -> Result<(), String> {
        let mut command = redis::cmd("HSET");
        link.ask(command.arg(&self.keys.done).arg(&self.instance).arg(last)).await
    }

    async fn obey(&self, messages: Vec<Vec<u8>>) {
        let Some(control) = self.control.upgrade() else { return };
        let work = move || {
            let plan = control.plan();
            let Some(cache) = &plan.cache else { return };
            messages.iter().for_each(|message| cache.obey(&plan.spaces, message));
        };
        // It scans the store, and may wait for the next process.
        let _ = tokio::task::spawn_blocking(work).await;
    }
}

/// Parses an entry of the stream; `None` if it is invalid.
fn purge((id, fields): (String, Vec<Value>)) -> Option<Purge> {
    let number = id.strip_suffix("-1")?.parse().ok()?;
    let mut of: Vec<Vec<u8>> = Vec::new();
    for value in fields {
        let Value::BulkString(bytes) = value else { return None };
        of.push(bytes);
    }
    match <[Vec<u8>; 4]>::try_from(of) {
        Ok([_, from, _, what]) => Some(Purge { number, from: String::from_utf8(from).ok()?, what }),
        Err(_) => None,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum PurgeStep {
    Nothing,
    /// Perform these, up to this number.
    Purge(u64),
    /// Some are lost, up to this number.
    Lost(u64),
}

/// `last` is the last performed purge, `number` the last of all. `found` are those after `last` that Redis has.
/// `again` counts purges that may or may not have been performed.
fn next(last: u64, number: u64, again: u64, found: &[u64]) -> PurgeStep {
    if again > 0 {
        return PurgeStep::Lost(number);
    }
    let is_whole = found.iter().zip(last + 1..).all(|(found, expected)| *found == expected);
    match found.last() {
        _ if number <= last && found.is_empty() => PurgeStep::Nothing,
        Some(newest) if is_whole => PurgeStep::Purge(*newest),
        _ => PurgeStep::Lost(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_knows_whether_it_has_missed_a_purge() {
        for (last, number, found, expected) in [
            (0, 0, &[][..], PurgeStep::Nothing),
            (7, 7, &[], PurgeStep::Nothing),
            (7, 8, &[8], PurgeStep::Purge(8)),
            (7, 10, &[8, 9, 10], PurgeStep::Purge(10)),
            // More than a batch.
            (7, 200, &[8, 9], PurgeStep::Purge(9)),
            // The stream has dropped some, or all.
            (7, 10, &[9, 10], PurgeStep::Lost(10)),
            (7, 10, &[], PurgeStep::Lost(10)),
            (7, 10, &[8, 10], PurgeStep::Lost(10)),
        ] {
            assert_eq!(next(last, number, 0, found), expected, "{last} {number} {found:?}");
        }
        // Redis lost its data, and another instance knew fewer purges.
        assert_eq!(next(7, 7, 1, &[]), PurgeStep::Lost(7));
    }
}
