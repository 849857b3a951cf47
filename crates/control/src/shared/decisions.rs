//! Decisions of authentication servers for all instances: kept under a name that only they can make, and sealed. A request waits for
//! Redis no longer than for this side's patience, and asks the authentication server if that comes to nothing.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use proxy::context::plan::{DecisionExchange, DecisionWay};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::engine::Engine;
use crate::change::Control;

/// How long Redis has: one that is slower costs more than it saves.
const ANSWER_MAX: Duration = Duration::from_millis(20);
/// What waits for Redis, and what is under way, at most.
const WAITING_MAX: usize = 1024;

/// Counted since the start.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Decisions that others had.
    pub(super) found: AtomicU64,
    /// Decisions that nobody had, or that came too late.
    pub(super) missed: AtomicU64,
    /// Decisions that others were given.
    pub(super) kept: AtomicU64,
}

pub(super) struct Decisions {
    way: Sender<DecisionExchange>,
    waiting: Receiver<DecisionExchange>,
    is_open: Arc<AtomicBool>,
    counts: Arc<Counts>,
}

/// The way is open until this is dropped.
struct Open<'a>(&'a AtomicBool);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Decisions {
    pub(super) fn new(counts: Arc<Counts>) -> Self {
        let (way, waiting) = channel(WAITING_MAX);
        Self { way, waiting, is_open: Arc::default(), counts }
    }

    /// The way to this one.
    pub(super) fn way(&self) -> DecisionWay {
        DecisionWay { exchanges: self.way.clone(), is_open: Arc::clone(&self.is_open) }
    }

    /// Looks up and keeps decisions over a connection, until that is dropped.
    pub(super) async fn go_on(&mut self, engine: Option<Arc<Engine>>) -> String {
        let Some(engine) = engine else { return std::future::pending().await };
        let Self { waiting, is_open, counts, .. } = self;
        is_open.store(true, Ordering::Relaxed);
        let _open = Open(is_open);
        let room = Arc::new(Semaphore::new(WAITING_MAX));
        while let Some(exchange) = waiting.recv().await {
            // Without room a look-up finds nothing, and others ask for themselves.
            let Ok(permit) = Arc::clone(&room).try_acquire_owned() else { continue };
            let (engine, counts) = (Arc::clone(&engine), Arc::clone(counts));
            tokio::task::spawn_local(async move {
                exchange_one(&engine, exchange, &counts).await;
                drop(permit);
            });
        }
        "the proxy ends".to_owned()
    }
}

async fn exchange_one(engine: &Engine, exchange: DecisionExchange, counts: &Counts) {
    let count = |count: &AtomicU64| _ = count.fetch_add(1, Ordering::Relaxed);
    match exchange {
        // Who has waited for an earlier connection has asked the server by now.
        DecisionExchange::Look { found, .. } if found.is_closed() => {}
        DecisionExchange::Look { key, found } => {
            let place = place(engine, &key);
            let look = async {
                let kept: Result<Option<Vec<u8>>, String> =
                    engine.ask(redis::cmd("GET").arg(engine.key(&place))).await;
                engine.seal.open(&place, &kept.ok().flatten()?)
            };
            let decision = tokio::time::timeout(ANSWER_MAX, look).await.ok().flatten();
            count(if decision.is_some() { &counts.found } else { &counts.missed });
            // Who asked may be gone.
            let _ = found.send(decision);
        }
        DecisionExchange::Keep { key, decision, lifetime } => {
            let place = place(engine, &key);
            let Some(sealed) = engine.seal.seal(&place, &decision) else { return };
            let mut command = redis::cmd("SET");
            command.arg(engine.key(&place)).arg(sealed).arg("PX").arg(lifetime.as_millis().max(1) as u64);
            if engine.ask::<()>(&command).await.is_ok() {
                count(&counts.kept);
            }
        }
    }
}

fn place(engine: &Engine, key: &[u8]) -> String {
    format!("auth:{}", engine.seal.name(key))
}

/// Has the routes of the plan in force share decisions this way.
pub(super) fn attach(control: &Weak<Control>, way: &DecisionWay) {
    let Some(control) = control.upgrade() else { return };
    for decisions in control.plan().shared_decisions() {
        decisions.share_by(Some(way.clone()));
    }
}
