//! What unsafe requests invalidate (RFC 9111 §4.4), for all instances: a stream of its own, since clients decide how much that is.
//! Purges must not be forgotten for it, so what is lost here is lost: the others go by the lifetime of their responses.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use config::Redis;
use redis::Value;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::link::Link;

/// What waits to be told, at most.
const WAITING_MAX: usize = 1000;
/// What follows so soon is told with it.
const PERIOD: Duration = Duration::from_millis(10);
/// How much is told and heard at once: Redis does nothing else meanwhile.
pub(super) const AT_ONCE: usize = 500;
/// So much is kept for instances that are away, at least.
const KEPT: usize = 10_000;

const TELL: &str = r"
for index = 3, #ARGV do
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'from', ARGV[1], 'what', ARGV[index])
end
return 0";

/// Tells other instances what was invalidated here.
pub(super) struct Teller {
    key: String,
    instance: String,
    way: Sender<Vec<u8>>,
    waiting: Receiver<Vec<u8>>,
    /// What is being told.
    batch: Vec<Vec<u8>>,
    counts: Arc<Counts>,
}

/// Counted since the start.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// What was told to others.
    pub(super) told: AtomicU64,
    /// What found no room.
    pub(super) lost: Arc<AtomicU64>,
}

impl Teller {
    pub(super) fn new(settings: &Redis, instance: &str, counts: Arc<Counts>) -> Self {
        let (way, waiting) = channel(WAITING_MAX);
        Self { key: key(settings), instance: instance.to_owned(), way, waiting, batch: Vec::new(), counts }
    }

    /// The way to this one.
    pub(super) fn way(&self) -> Sender<Vec<u8>> {
        self.way.clone()
    }

    /// Tells it over a connection. Returns why Redis does not answer.
    pub(super) async fn go_on(&mut self, link: &Link) -> String {
        let script = match link.script(TELL).await {
            Ok(script) => script,
            Err(why) => return why,
        };
        loop {
            if self.batch.is_empty() {
                // This one holds a sender.
                self.batch.extend(self.waiting.recv().await);
                tokio::time::sleep(PERIOD).await;
                self.batch.extend(std::iter::from_fn(|| self.waiting.try_recv().ok()).take(AT_ONCE - 1));
                let mut known = HashSet::new();
                self.batch.retain(|what| known.insert(what.clone()));
            }
            let mut command = redis::cmd("EVALSHA");
            command.arg(&script).arg(1).arg(&self.key).arg(&self.instance).arg(KEPT).arg(&self.batch);
            if let Err(why) = link.ask::<Value>(&command).await {
                return why;
            }
            self.counts.told.fetch_add(self.batch.len() as u64, Ordering::Relaxed);
            self.batch.clear();
        }
    }
}

fn key(settings: &Redis) -> String {
    format!("{}:invalid", settings.name)
}

/// The number of an entry, of which Redis gives each a later one.
type Id = (u64, u64);

/// An entry: its number, and its fields.
type Entry = (String, Vec<Value>);

/// Hears what others have invalidated.
pub(super) struct Hearer {
    key: String,
    instance: String,
    /// The last that was heard; `None` before Redis was reached.
    last: Option<Id>,
}

impl Hearer {
    pub(super) fn new(settings: &Redis, instance: &str) -> Self {
        Self { key: key(settings), instance: instance.to_owned(), last: None }
    }

    /// Begins with what comes next, or where it ended.
    pub(super) async fn begin(&mut self, link: &Link) -> Result<(), String> {
        let mut command = redis::cmd("XREVRANGE");
        let newest: Vec<Entry> =
            link.ask(command.arg(&self.key).arg("+").arg("-").arg("COUNT").arg(1)).await?;
        let newest = newest.first().and_then(|(id, _)| parsed(id)).unwrap_or_default();
        // A Redis that has begun anew may number from an earlier time.
        self.last = Some(self.last.map_or(newest, |last| last.min(newest)));
        Ok(())
    }

    /// The name of the stream, and behind which entry this goes on.
    pub(super) fn place(&self) -> (&str, String) {
        let (time, number) = self.last.unwrap_or_default();
        (&self.key, format!("{time}-{number}"))
    }

    /// What others have invalidated, of what was read from streams.
    pub(super) fn heard(&mut self, read: Option<Vec<(String, Vec<Entry>)>>) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        for (id, fields) in
            read.into_iter().flatten().filter(|(key, _)| *key == self.key).flat_map(|(_, all)| all)
        {
            self.last = parsed(&id).or(self.last);
            if let [_, Value::BulkString(from), _, Value::BulkString(what)] = &fields[..]
                && *from != self.instance.as_bytes()
            {
                all.push(what.clone());
            }
        }
        all
    }
}

fn parsed(id: &str) -> Option<Id> {
    let (time, number) = id.split_once('-')?;
    Some((time.parse().ok()?, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_have_invalidated_is_heard_once() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let entry = |id: &str, from: &str, what: &str| {
            (id.to_owned(), vec![text("from"), text(from), text("what"), text(what)])
        };
        let mut hearer =
            Hearer { key: "v:invalid".to_owned(), instance: "me".to_owned(), last: Some((1, 0)) };
        let read = vec![
            ("v:purges".to_owned(), vec![entry("9-1", "other", "a purge")]),
            (
                "v:invalid".to_owned(),
                vec![
                    entry("5-0", "other", "a"),
                    entry("5-1", "me", "b"),
                    entry("7-0", "other", "c"),
                    ("8-0".to_owned(), vec![]),
                ],
            ),
        ];
        assert_eq!(hearer.heard(Some(read)), [b"a".to_vec(), b"c".to_vec()]);
        assert_eq!(hearer.place(), ("v:invalid", "8-0".to_owned()));
        assert!(hearer.heard(None).is_empty());
        assert_eq!(hearer.place().1, "8-0");
    }
}
