//! What each name waits for and why its last attempt failed, for the admin API and the metrics.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::schedule::Window;

/// The state of all names.
#[derive(Default)]
pub(crate) struct Progress(Mutex<HashMap<String, Entry>>);

#[derive(Default)]
struct Entry {
    state: State,
    wanted: Arc<Renewal>,
}

/// What has a name looked at before it is time: an operator's order, and another instance's certificate.
#[derive(Default)]
pub(crate) struct Renewal {
    ordered: Notify,
    found: Notify,
    /// Whether the old one is to be revoked.
    revokes: AtomicBool,
}

impl Renewal {
    /// Returns when a renewal is ordered.
    pub(crate) async fn ordered(&self) {
        self.ordered.notified().await;
    }

    /// Returns when another instance may have a newer certificate.
    pub(crate) async fn found(&self) {
        self.found.notified().await;
    }

    /// Whether the old certificate is to be revoked; says so once.
    pub(crate) fn takes_revocation(&self) -> bool {
        self.revokes.swap(false, Ordering::Relaxed)
    }
}

/// The state of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// When the next attempt is made, in seconds since 1970.
    pub(crate) next_at: i64,
    /// When the authority suggests to renew.
    pub(crate) suggested: Option<Suggested>,
    /// Whether another process that shares the folder asks for it.
    pub(crate) is_elsewhere: bool,
    /// Failures in a row.
    pub(crate) failures: u32,
    /// When the last attempt failed, and why, if it did.
    pub(crate) last_failure: Option<(i64, String)>,
    /// Certificates issued, and attempts that failed, since the start.
    pub(crate) issued: u64,
    pub(crate) failed: u64,
}

/// What an authority suggests (RFC 9773 §4.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Suggested {
    pub(crate) window: Window,
    /// A URL of a page for operators that says why.
    pub(crate) why: Option<String>,
}

impl Progress {
    /// Changes the state of a name.
    pub(crate) fn put(&self, name: &str, change: impl FnOnce(&mut State)) {
        change(&mut self.lock().entry(name.to_owned()).or_default().state);
    }

    /// What an operator wants of a name.
    pub(crate) fn wanted(&self, name: &str) -> Arc<Renewal> {
        Arc::clone(&self.lock().entry(name.to_owned()).or_default().wanted)
    }

    /// Has the certificate of a name renewed at once, and the old one revoked; false if it is not an automatic one.
    pub(crate) fn renew(&self, name: &str, revokes: bool) -> bool {
        let progress = self.lock();
        let Some(Entry { wanted, .. }) = progress.get(name) else { return false };
        wanted.revokes.store(revokes, Ordering::Relaxed);
        wanted.ordered.notify_one();
        true
    }

    /// Has a name looked at: another instance has got its certificate.
    pub(crate) fn wake(&self, name: &str) {
        if let Some(entry) = self.lock().get(name) {
            entry.wanted.found.notify_one();
        }
    }

    /// Has all names looked at.
    pub(crate) fn wake_all(&self) {
        self.lock().values().for_each(|entry| entry.wanted.found.notify_one());
    }

    /// Forgets all other names.
    pub(crate) fn keep(&self, is_kept: impl Fn(&str) -> bool) {
        self.lock().retain(|name, _| is_kept(name));
    }

    /// The state of a name.
    pub(crate) fn state(&self, name: &str) -> Option<State> {
        self.lock().get(name).map(|entry| entry.state.clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
