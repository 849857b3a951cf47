//! Invalidations by unsafe requests (RFC 9111 §4.4), for all instances. They have a separate stream, because
//! clients decide their number and must not displace purges. Lost ones are not repeated: other instances rely on
//! the lifetime of their responses.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use config::Redis;
use redis::Value;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::link::RedisLink;

const WAITING_MAX: usize = 1000;
/// Invalidations within this time are sent together.
const PERIOD: Duration = Duration::from_millis(10);
/// Batch size of reads and writes, because each one blocks Redis.
pub(super) const AT_ONCE: usize = 500;
/// Minimum number of entries kept for absent instances.
const KEPT: usize = 10_000;

const TELL: &str = r"
for index = 3, #ARGV do
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'from', ARGV[1], 'what', ARGV[index])
end
return 0";

/// Publishes invalidations of this instance.
pub(super) struct Teller {
    key: String,
    instance: String,
    way: Sender<Vec<u8>>,
    waiting: Receiver<Vec<u8>>,
    batch: Vec<Vec<u8>>,
    counts: Arc<InvalidationCounts>,
}

#[derive(Debug, Default)]
pub(super) struct InvalidationCounts {
    pub(super) told: AtomicU64,
    /// Invalidations without room in the queue.
    pub(super) lost: Arc<AtomicU64>,
}

impl Teller {
    pub(super) fn new(settings: &Redis, instance: &str, counts: Arc<InvalidationCounts>) -> Self {
        let (way, waiting) = channel(WAITING_MAX);
        Self { key: key(settings), instance: instance.to_owned(), way, waiting, batch: Vec::new(), counts }
    }

    pub(super) fn way(&self) -> Sender<Vec<u8>> {
        self.way.clone()
    }

    /// Publishes over a connection. Returns why Redis does not answer.
    pub(super) async fn go_on(&mut self, link: &RedisLink) -> String {
        let script = match link.script(TELL).await {
            Ok(script) => script,
            Err(why) => return why,
        };
        loop {
            if self.batch.is_empty() {
                // `recv` never ends, because this one holds a sender.
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

/// The ID of an entry. Redis assigns increasing ones.
type Id = (u64, u64);

type Entry = (String, Vec<Value>);

/// Receives invalidations of other instances.
pub(super) struct Hearer {
    key: String,
    instance: String,
    /// The ID of the last entry read; `None` before the first connection.
    last: Option<Id>,
}

impl Hearer {
    pub(super) fn new(settings: &Redis, instance: &str) -> Self {
        Self { key: key(settings), instance: instance.to_owned(), last: None }
    }

    /// Begins with the next entry, or continues after the last one.
    pub(super) async fn begin(&mut self, link: &RedisLink) -> Result<(), String> {
        let mut command = redis::cmd("XREVRANGE");
        let newest: Vec<Entry> =
            link.ask(command.arg(&self.key).arg("+").arg("-").arg("COUNT").arg(1)).await?;
        let newest = newest.first().and_then(|(id, _)| parsed(id)).unwrap_or_default();
        // A restored Redis may assign IDs from an earlier time.
        self.last = Some(self.last.map_or(newest, |last| last.min(newest)));
        Ok(())
    }

    /// The name of the stream, and the ID after which to continue.
    pub(super) fn place(&self) -> (&str, String) {
        let (time, number) = self.last.unwrap_or_default();
        (&self.key, format!("{time}-{number}"))
    }

    /// Extracts other instances' invalidations from the entries read.
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
    fn invalidations_of_others_are_received_once() {
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
