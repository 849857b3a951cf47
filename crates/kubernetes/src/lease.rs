//! Elects the instance that writes statuses: the holder of a lease. All instances serve.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::{ClusterClient, ClusterFailure, version};
use crate::time::now_us;

/// A holder loses the lease if it does not renew it within this time.
const DURATION: Duration = Duration::from_secs(15);
pub(crate) const TICK: Duration = Duration::from_secs(3);

pub(crate) struct Election {
    client: ClusterClient,
    namespace: String,
    name: String,
    own: String,
    /// The other holder's last record, and when it was first seen: clocks differ, so only time without a change counts.
    seen: Option<(String, Instant)>,
    held_until: Option<Instant>,
}

impl Election {
    pub(crate) fn new(client: ClusterClient, namespace: String, name: String, own: String) -> Self {
        Self { client, namespace, name, own, seen: None, held_until: None }
    }

    pub(crate) fn holds(&self) -> bool {
        self.held_until.is_some_and(|until| Instant::now() < until)
    }

    pub(crate) async fn tick(&mut self) -> Result<(), ClusterFailure> {
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
                // Counted from before the request; other instances count from its response.
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

    /// Releases the lease, so that another instance need not wait for its end.
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
