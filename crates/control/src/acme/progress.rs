//! The state of each name and the reason of its last failure, for the admin API and metrics.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::schedule::RenewalWindow;

#[derive(Default)]
pub(crate) struct AcmeProgress(Mutex<HashMap<String, NameEntry>>);

#[derive(Default)]
struct NameEntry {
    state: NameState,
    wanted: Arc<EarlyRenewal>,
}

/// Wakes a name's task early: for an operator's order, or another instance's certificate.
#[derive(Default)]
pub(crate) struct EarlyRenewal {
    ordered: Notify,
    found: Notify,
    revokes: AtomicBool,
}

impl EarlyRenewal {
    pub(crate) async fn ordered(&self) {
        self.ordered.notified().await;
    }

    /// Waits until another instance may have a newer certificate.
    pub(crate) async fn found(&self) {
        self.found.notified().await;
    }

    /// Takes the request to revoke the old certificate.
    pub(crate) fn takes_revocation(&self) -> bool {
        self.revokes.swap(false, Ordering::Relaxed)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NameState {
    /// Time of the next attempt, in seconds since 1970.
    pub(crate) next_at: i64,
    pub(crate) suggested: Option<Suggested>,
    /// Whether another process with the same folder orders.
    pub(crate) is_elsewhere: bool,
    pub(crate) failures: u32,
    /// Time (seconds since 1970) and reason of the last failure.
    pub(crate) last_failure: Option<(i64, String)>,
    /// Issued certificates and failed attempts since the start.
    pub(crate) issued: u64,
    pub(crate) failed: u64,
}

/// An authority's suggestion (RFC 9773 §4.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Suggested {
    pub(crate) window: RenewalWindow,
    /// URL of an explanation for operators.
    pub(crate) why: Option<String>,
}

impl AcmeProgress {
    pub(crate) fn put(&self, name: &str, change: impl FnOnce(&mut NameState)) {
        change(&mut self.lock().entry(name.to_owned()).or_default().state);
    }

    /// The channel for requests about the certificate with these names.
    pub(crate) fn wanted(&self, names: &[String]) -> Arc<EarlyRenewal> {
        let mut progress = self.lock();
        let first = names.first().cloned().unwrap_or_default();
        let wanted = Arc::clone(&progress.entry(first).or_default().wanted);
        for name in names.iter().skip(1) {
            progress.entry(name.clone()).or_default().wanted = Arc::clone(&wanted);
        }
        wanted
    }

    /// Requests a renewal at once, and if asked the revocation of the old certificate; `false` if it is not automatic.
    pub(crate) fn renew(&self, name: &str, revokes: bool) -> bool {
        let progress = self.lock();
        let Some(NameEntry { wanted, .. }) = progress.get(name) else { return false };
        wanted.revokes.store(revokes, Ordering::Relaxed);
        wanted.ordered.notify_one();
        true
    }

    /// Wakes the task of a name: another instance has its certificate.
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "instances share them through Redis"))]
    pub(crate) fn wake(&self, name: &str) {
        if let Some(entry) = self.lock().get(name) {
            entry.wanted.found.notify_one();
        }
    }

    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "instances share them through Redis"))]
    pub(crate) fn wake_all(&self) {
        self.lock().values().for_each(|entry| entry.wanted.found.notify_one());
    }

    /// Drops the states of all other names.
    pub(crate) fn keep(&self, is_kept: impl Fn(&str) -> bool) {
        self.lock().retain(|name, _| is_kept(name));
    }

    pub(crate) fn state(&self, name: &str) -> Option<NameState> {
        self.lock().get(name).map(|entry| entry.state.clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, NameEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
