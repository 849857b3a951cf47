//! Sessions for all instances. Each is stored under a name and with a tag that only the instances can compute. A number
//! in Redis counts moves of sessions to other servers. When it changes, instances look up the sessions in their tables.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use balance::{ServerId, SessionKey, Time};
use proxy::context::plan::{InstanceWay, Precedence, SessionExchange};

use super::engine::Engine;
use super::exchanges::{ANSWER_MAX, Exchanges};
use crate::change::Control;

const EVERY: Duration = Duration::from_secs(1);
const MOVES: &str = "session-moves";

/// Stores a session, unless another one takes precedence. Returns whether it did, and the number of moves if it is one.
const TELL: &str = r"
local known = redis.call('GET', KEYS[1])
if known and (known == ARGV[1] or ARGV[3] == 'known') then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return {known == ARGV[1] and 1 or 0, 0}
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {1, known and redis.call('INCR', KEYS[2]) or 0}";

#[derive(Debug, Default)]
pub(super) struct SessionCounts {
    pub(super) found: AtomicU64,
    /// Sessions not found, or found too late.
    pub(super) missed: AtomicU64,
    pub(super) told: AtomicU64,
}

pub(super) struct SharedSessions {
    control: Weak<Control>,
    exchanges: Exchanges<SessionExchange>,
    counts: Arc<SessionCounts>,
    moves: Arc<AtomicU64>,
}

impl SharedSessions {
    pub(super) fn new(control: &Weak<Control>, counts: Arc<SessionCounts>) -> Self {
        Self { control: Weak::clone(control), exchanges: Exchanges::new(), counts, moves: Arc::default() }
    }

    pub(super) fn way(&self) -> InstanceWay<SessionExchange> {
        self.exchanges.way()
    }

    /// Looks up and stores sessions over a connection. Returns why Redis does not answer.
    pub(super) async fn go_on(&mut self, engine: Option<Arc<Engine>>) -> String {
        let Some(engine) = engine else { return std::future::pending().await };
        let script = match engine.script(TELL).await {
            Ok(script) => script,
            Err(why) => return why,
        };
        // Moves in the meantime were not reported.
        doubt(&self.control);
        let (control, counts, moves) = (&self.control, &self.counts, &self.moves);
        let exchange = |engine: Arc<Engine>, exchange| {
            let told = Teller {
                control: Weak::clone(control),
                engine,
                script: script.clone(),
                counts: Arc::clone(counts),
                moves: Arc::clone(moves),
            };
            async move { told.exchange(exchange).await }
        };
        tokio::select! {
            why = self.exchanges.go_on(&engine, exchange) => why,
            why = watch(control, &engine, moves) => why,
        }
    }
}

/// Marks all sessions of the plan in force, so that they are looked up at their next use.
fn doubt(control: &Weak<Control>) {
    let Some(control) = control.upgrade() else { return };
    let now = Time::from_micros(control.time_ns() / 1000);
    control.plan().shared_sessions().for_each(|(_, shared)| shared.doubt(now));
}

/// Checks repeatedly whether sessions have moved. Returns why Redis does not answer.
async fn watch(control: &Weak<Control>, engine: &Engine, moves: &AtomicU64) -> String {
    loop {
        crate::tick::tick(EVERY).await;
        let is_shared = |control: Arc<Control>| control.plan().shared_sessions().next().is_some();
        match control.upgrade().map(is_shared) {
            None => return "the proxy ends".to_owned(),
            Some(false) => continue,
            Some(true) => {}
        }
        let count: Option<u64> = match engine.ask(redis::cmd("GET").arg(engine.key(MOVES))).await {
            Ok(count) => count,
            Err(why) => return why,
        };
        let count = count.unwrap_or(0);
        if moves.swap(count, Ordering::Relaxed) != count {
            doubt(control);
        }
    }
}

struct Teller {
    control: Weak<Control>,
    engine: Arc<Engine>,
    script: String,
    counts: Arc<SessionCounts>,
    moves: Arc<AtomicU64>,
}

impl Teller {
    async fn exchange(&self, exchange: SessionExchange) {
        let count = |count: &AtomicU64| _ = count.fetch_add(1, Ordering::Relaxed);
        match exchange {
            // Its request has selected a server by now.
            SessionExchange::Look { found, .. } if found.is_closed() => {}
            SessionExchange::Look { key, found } => {
                // Without an answer, the request keeps its server.
                let Ok(Ok(server)) = tokio::time::timeout(ANSWER_MAX, self.look(key)).await else {
                    count(&self.counts.missed);
                    return;
                };
                count(if server.is_some() { &self.counts.found } else { &self.counts.missed });
                // The request may be gone.
                let _ = found.send(server);
            }
            SessionExchange::Tell { key, server, lifetime, precedence } => {
                if let Ok(is_kept) = self.tell(key, server, lifetime, precedence).await {
                    count(&self.counts.told);
                    if !is_kept {
                        self.forget(key);
                    }
                }
            }
        }
    }

    /// Returns the server of a session, if Redis has one.
    async fn look(&self, key: SessionKey) -> Result<Option<ServerId>, String> {
        let place = place(key);
        let kept: Option<Vec<u8>> = self.engine.ask(redis::cmd("GET").arg(self.engine.key(&place))).await?;
        Ok(kept.and_then(|kept| read(&self.engine, &place, &kept)))
    }

    /// Stores the server of a session. Returns whether it is valid for all.
    async fn tell(
        &self,
        key: SessionKey,
        server: ServerId,
        lifetime: Duration,
        precedence: Precedence,
    ) -> Result<bool, String> {
        let place = place(key);
        let word = match precedence {
            Precedence::Known => "known",
            Precedence::New => "new",
        };
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.script).arg(2).arg(self.engine.key(&place)).arg(self.engine.key(MOVES));
        command.arg(written(&self.engine, &place, server)).arg(lifetime.as_millis() as u64).arg(word);
        let (is_kept, number): (bool, u64) = self.engine.ask(&command).await?;
        // A move by this instance alone needs no look-up.
        let before = number.wrapping_sub(1);
        let _ = self.moves.compare_exchange(before, number, Ordering::Relaxed, Ordering::Relaxed);
        Ok(is_kept)
    }

    /// Marks a session for a look-up, because others have it on another server.
    fn forget(&self, key: SessionKey) {
        let Some(control) = self.control.upgrade() else { return };
        // Keys of different tables differ.
        control.plan().shared_sessions().for_each(|(sessions, _)| _ = sessions.forget(key));
    }
}

fn place(key: SessionKey) -> String {
    format!("session:{:032x}", key.as_u128())
}

/// Writes a server for Redis: the same text for the same server, which no other party can compute for this place.
fn written(engine: &Engine, place: &str, server: ServerId) -> String {
    let server = format!("{:016x}", server.as_u64());
    let tag = engine.seal.name(format!("{place}={server}").as_bytes());
    server + &tag
}

/// Reads the server of a place; `None` if it was not written for it with this secret.
fn read(engine: &Engine, place: &str, kept: &[u8]) -> Option<ServerId> {
    let number = std::str::from_utf8(kept.get(..16)?).ok()?;
    let server = ServerId::from_u64(u64::from_str_radix(number, 16).ok()?);
    (written(engine, place, server).as_bytes() == kept).then_some(server)
}

/// Connects the session tables of the plan in force to this channel.
pub(super) fn attach(control: &Weak<Control>, way: &InstanceWay<SessionExchange>) {
    let Some(control) = control.upgrade() else { return };
    control.plan().shared_sessions().for_each(|(_, shared)| shared.share_by(Some(way.clone())));
}
