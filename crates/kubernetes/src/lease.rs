//! Which of several instances writes statuses: the one that holds a lease. All of them serve.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::{Client, Failure, version};
use crate::time::now_us;

/// A holder that has not renewed the lease for so long has lost it.
const DURATION: Duration = Duration::from_secs(15);
/// How often it is looked at.
pub(crate) const TICK: Duration = Duration::from_secs(3);

/// What an instance knows of the lease.
pub(crate) struct Election {
    client: Client,
    namespace: String,
    name: String,
    own: String,
    /// What was last seen of another holder, and when that was first seen. Clocks of machines differ: only how long it
    /// stays the same counts.
    seen: Option<(String, Instant)>,
    /// Until when this instance holds it.
    held_until: Option<Instant>,
}

impl Election {
    pub(crate) fn new(client: Client, namespace: String, name: String, own: String) -> Self {
        Self { client, namespace, name, own, seen: None, held_until: None }
    }

    /// Whether this instance holds the lease.
    pub(crate) fn holds(&self) -> bool {
        self.held_until.is_some_and(|until| Instant::now() < until)
    }

    /// Takes or renews the lease if that is possible.
    pub(crate) async fn tick(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        let (lease, is_new) = match self.client.lease(&self.namespace, &self.name).await {
            Ok(lease) => (lease, false),
            Err(failure) if failure.is_missing() => (Value::Null, true),
            Err(failure) => return Err(failure),
        };
        if !self.may_take(&lease, now) {
            self.held_until = None;
            return Ok(());
        }
        let written = self.written(&lease);
        match self.client.put_lease(&self.namespace, &self.name, written, is_new).await {
            Ok(()) => {
                // From before the question on: another one counts from the answer on.
                self.held_until = Some(now + DURATION - TICK);
                Ok(())
            }
            Err(failure) if failure.is_conflict() => {
                self.held_until = None;
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    fn may_take(&mut self, lease: &Value, now: Instant) -> bool {
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        if holder.is_empty() || holder == self.own {
            self.seen = None;
            return true;
        }
        let version = version(lease);
        let since = match &self.seen {
            Some((known, since)) if *known == version => *since,
            _ => self.seen.insert((version, now)).1,
        };
        let seconds = lease["spec"]["leaseDurationSeconds"].as_u64();
        now.duration_since(since) >= seconds.map_or(DURATION, Duration::from_secs)
    }

    fn written(&self, before: &Value) -> Value {
        let spec = &before["spec"];
        let now = now_us();
        let is_own = spec["holderIdentity"] == *self.own;
        let acquired = spec["acquireTime"].as_str().filter(|_| is_own).unwrap_or(&now).to_owned();
        let transitions = spec["leaseTransitions"].as_u64().unwrap_or(0);
        let mut metadata = json!({ "name": self.name, "namespace": self.namespace });
        if !before.is_null() {
            metadata["resourceVersion"] = version(before).into();
        }
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": self.own,
                "leaseDurationSeconds": DURATION.as_secs(),
                "acquireTime": acquired,
                "renewTime": now,
                "leaseTransitions": if is_own { transitions } else { transitions + 1 },
            },
        })
    }

    /// Gives the lease up, so that another instance need not wait.
    pub(crate) async fn release(&mut self) {
        if !self.holds() {
            return;
        }
        let Ok(lease) = self.client.lease(&self.namespace, &self.name).await else { return };
        if lease["spec"]["holderIdentity"] == *self.own {
            let mut written = self.written(&lease);
            written["spec"]["holderIdentity"] = "".into();
            written["spec"]["leaseDurationSeconds"] = 1.into();
            let _ = self.client.put_lease(&self.namespace, &self.name, written, false).await;
        }
    }
}
