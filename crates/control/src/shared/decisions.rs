//! Decisions of authentication servers, shared by all instances. They are sealed, and stored under a name that only the
//! instances can compute. A request waits for Redis only a limited time, and then asks the authentication server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use proxy::context::plan::{DecisionExchange, InstanceWay};

use super::engine::Engine;
use super::exchanges::{ANSWER_MAX, Exchanges};
use crate::change::Control;

#[derive(Debug, Default)]
pub(super) struct DecisionCounts {
    pub(super) found: AtomicU64,
    /// Decisions not found, or found too late.
    pub(super) missed: AtomicU64,
    pub(super) kept: AtomicU64,
}

pub(super) struct Decisions {
    exchanges: Exchanges<DecisionExchange>,
    counts: Arc<DecisionCounts>,
}

impl Decisions {
    pub(super) fn new(counts: Arc<DecisionCounts>) -> Self {
        Self { exchanges: Exchanges::new(), counts }
    }

    pub(super) fn way(&self) -> InstanceWay<DecisionExchange> {
        self.exchanges.way()
    }

    /// Looks up and stores decisions over a connection, until that is dropped.
    pub(super) async fn go_on(&mut self, engine: Option<Arc<Engine>>) -> String {
        let Some(engine) = engine else { return std::future::pending().await };
        let counts = &self.counts;
        let exchange = |engine: Arc<Engine>, exchange| {
            let counts = Arc::clone(counts);
            async move { exchange_one(&engine, exchange, &counts).await }
        };
        self.exchanges.go_on(&engine, exchange).await
    }
}

async fn exchange_one(engine: &Engine, exchange: DecisionExchange, counts: &DecisionCounts) {
    let count = |count: &AtomicU64| _ = count.fetch_add(1, Ordering::Relaxed);
    match exchange {
        // Its request has asked the server by now.
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
            // The request may be gone.
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

/// Connects the routes of the plan in force to this channel.
pub(super) fn attach(control: &Weak<Control>, way: &InstanceWay<DecisionExchange>) {
    let Some(control) = control.upgrade() else { return };
    for decisions in control.plan().shared_decisions() {
        decisions.share_by(Some(way.clone()));
    }
}
