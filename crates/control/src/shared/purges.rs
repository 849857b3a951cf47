//! Purges for all instances: a stream in Redis, in which each has a number. An instance that was away goes on where it was; if
//! it cannot know what it missed it empties its cache.

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
use super::link::{ANSWER_MAX, Link};
use crate::change::Control;

/// So many purges are kept for instances that are away, at least.
const KEPT: usize = 10_000;
/// How many are read at once.
const READ_AT_ONCE: usize = 100;
/// Purges that wait for Redis. Where there are more, everything is purged instead.
const WAITING_MAX: usize = 1000;
/// How long other instances have, before it is told that they have not purged.
const KNOWN_MAX: Duration = Duration::from_secs(1);
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
/// How long Redis holds back the answer that there is nothing new.
const HELD: Duration = Duration::from_secs(1);

/// Numbers are without gaps, so that an instance knows whether it has missed one. A Redis that has lost them goes on from the
/// last one that this instance knows.
const PUBLISH: &str = r"
local number = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), tonumber(ARGV[4])) + 1
redis.call('SET', KEYS[1], string.format('%.0f', number))
local id = string.format('%.0f-1', number)
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[1], id, 'from', ARGV[2], 'what', ARGV[3])
return number";

/// Tells the last number, how many purges may have numbers that were given before, since Redis has lost them, and what comes
/// next.
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

/// The names of the keys.
struct Keys {
    number: String,
    stream: String,
    /// The last purge of each instance.
    done: String,
    instances: String,
}

/// Tells other instances what is purged here.
pub(super) struct Publisher {
    keys: Rc<Keys>,
    instance: String,
    way: UnboundedSender<Publication>,
    publications: UnboundedReceiver<Publication>,
    /// What Redis does not know yet.
    waiting: VecDeque<Vec<u8>>,
    /// See [`Follower`].
    last: Rc<Cell<Option<u64>>>,
}

/// Purges what others tell, and invalidates what they have.
pub(super) struct Follower {
    control: Weak<Control>,
    keys: Rc<Keys>,
    instance: String,
    /// The last purge that was done here; `None` before Redis was reached.
    last: Rc<Cell<Option<u64>>>,
    invalid: Hearer,
}

pub(super) fn begin(control: &Weak<Control>, settings: &Redis, instance: &str) -> (Publisher, Follower) {
    let key = |name: &str| format!("{}:{name}", settings.name);
    let keys = Rc::new(Keys {
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
    (publisher, Follower { control, keys, instance: instance.to_owned(), last, invalid })
}

impl Publisher {
    /// The way of purges to this one.
    pub(super) fn way(&self) -> UnboundedSender<Publication> {
        self.way.clone()
    }

    /// Keeps what is purged while Redis is gone, for ever.
    pub(super) async fn alone(&mut self, why: &str) -> String {
        while let Some(Publication { messages, told }) = self.publications.recv().await {
            self.wait(messages);
            let problem = format!("Redis is not reached, others purge once it is: {why}");
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

    /// Tells it over a connection. Returns why Redis does not answer.
    pub(super) async fn go_on(&mut self, link: &Arc<Link>) -> String {
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
                    let problem = Some(format!("Redis is lost, others purge once it is back: {why}"));
                    let _ = told.send(PurgedElsewhere { problem, ..PurgedElsewhere::default() });
                    return why;
                }
            }
        }
        "the proxy ends".to_owned()
    }

    /// Tells all that waits. Returns the number of the last one.
    async fn tell(&mut self, publish: &str, link: &Link) -> Result<u64, String> {
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

/// Waits until all instances have done a purge, for a limited time.
async fn known(link: &Link, keys: &Keys, missing: &str, number: u64) -> PurgedElsewhere {
    let began = Instant::now();
    loop {
        let mut command = redis::cmd("EVALSHA");
        command.arg(missing).arg(2).arg(&keys.instances).arg(&keys.done).arg(number);
        let elsewhere = match link.ask::<(usize, Vec<String>)>(&command).await {
            Ok((instances, missing)) => PurgedElsewhere { instances, missing, problem: None },
            Err(why) => {
                let problem = Some(format!("Redis is lost, others may have purged: {why}"));
                return PurgedElsewhere { problem, ..PurgedElsewhere::default() };
            }
        };
        if elsewhere.missing.is_empty() || began.elapsed() > KNOWN_MAX {
            return elsewhere;
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

/// A purge of an instance.
struct Purge {
    number: u64,
    from: String,
    what: Vec<u8>,
}

impl Follower {
    /// Purges what others tell over a connection. Returns why Redis does not answer.
    pub(super) async fn go_on(&mut self, settings: &Redis, link: &Link) -> String {
        self.follow(settings, link).await.err().unwrap_or_else(|| "the proxy ends".to_owned())
    }

    async fn follow(&mut self, settings: &Redis, link: &Link) -> Result<(), String> {
        // A connection of its own: its answers are held back.
        let held = Link::open_for(settings, HELD + ANSWER_MAX).await?;
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
                Next::Nothing => {
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
                Next::Purge(number) => {
                    let others = purges.into_iter().filter(|purge| purge.from != self.instance);
                    self.obey(others.map(|purge| purge.what).collect()).await;
                    last = number;
                }
                Next::Lost(number) => {
                    message::warn("the cache is emptied: purges of other instances are lost");
                    self.obey(vec![proxy::cache::purge_of_everything()]).await;
                    last = number;
                }
            }
            self.done(link, last).await?;
        }
    }

    /// Where an instance begins that has just been started: where it ended, if Redis knows.
    async fn first(&self, link: &Link) -> Result<u64, String> {
        let mut command = redis::cmd("HGET");
        if let Some(last) = link.ask(command.arg(&self.keys.done).arg(&self.instance)).await? {
            return Ok(last);
        }
        let last: Option<u64> = link.ask(redis::cmd("GET").arg(&self.keys.number)).await?;
        let last = last.unwrap_or(0);
        // There may be responses on the disk, and a few since the start.
        self.obey(vec![proxy::cache::purge_of_everything()]).await;
        self.done(link, last).await?;
        Ok(last)
    }

    async fn done(&self, link: &Link, last: u64) -> Result<(), String> {
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
        // It may wait for the next process, and looks at what is stored.
        let _ = tokio::task::spawn_blocking(work).await;
    }
}

/// An entry of the stream; `None` if it is none of ours.
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

/// What follows from what Redis has.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Nothing is new.
    Nothing,
    /// These are to be done, up to this one.
    Purge(u64),
    /// Some are lost, up to this one.
    Lost(u64),
}

/// `last` is the last purge that was done, `number` the last one of all, and `found` are those behind `last` that Redis has;
/// of `again` it is not known whether they were done.
fn next(last: u64, number: u64, again: u64, found: &[u64]) -> Next {
    if again > 0 {
        return Next::Lost(number);
    }
    let is_whole = found.iter().zip(last + 1..).all(|(found, expected)| *found == expected);
    match found.last() {
        _ if number <= last && found.is_empty() => Next::Nothing,
        Some(newest) if is_whole => Next::Purge(*newest),
        _ => Next::Lost(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_knows_whether_it_has_missed_a_purge() {
        for (last, number, found, expected) in [
            (0, 0, &[][..], Next::Nothing),
            (7, 7, &[], Next::Nothing),
            (7, 8, &[8], Next::Purge(8)),
            (7, 10, &[8, 9, 10], Next::Purge(10)),
            // More than are read at once.
            (7, 200, &[8, 9], Next::Purge(9)),
            // The stream has forgotten some, or all.
            (7, 10, &[9, 10], Next::Lost(10)),
            (7, 10, &[], Next::Lost(10)),
            (7, 10, &[8, 10], Next::Lost(10)),
        ] {
            assert_eq!(next(last, number, 0, found), expected, "{last} {number} {found:?}");
        }
        // Redis has begun anew, and another instance knew of fewer.
        assert_eq!(next(7, 7, 1, &[]), Next::Lost(7));
    }
}
