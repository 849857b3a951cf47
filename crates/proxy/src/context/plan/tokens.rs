//! Tokens as the request path uses them: rules, keys, and the tokens that were verified lately.
//!
//! Keys from a URL are fetched on the control side (`control/keys`), which finds them here and replaces them here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use config::{Jwt, KeySource, TokenKeys};
use jwt::{KeySet, TokenDigest, Verified};
use route::TokenSource;
use tokio::sync::{Notify, watch};

use super::routes::secret;
use crate::context::vouched::Vouched;

/// How many verified tokens are remembered, and the locks that they are spread over.
const VERIFIED_MAX: usize = 16_384;
const SHARDS: usize = 16;
/// Fetches that requests may cause at once, for want of a key, and how long it takes until another one may.
const ASKED_MAX: u64 = 4;
const ASKED_EVERY_NS: u64 = 30_000_000_000;

/// How a route verifies tokens. Shared by all workers.
pub struct Tokens {
    pub(crate) settings: Jwt,
    pub(crate) keys: Arc<Keys>,
    verified: [Mutex<Verified<Vouched>>; SHARDS],
}

impl Tokens {
    /// The tokens of a route. Keys that are fetched stay those of `before`.
    pub(super) fn new(settings: &Jwt, before: Option<Arc<Keys>>) -> Self {
        let secret = secret();
        Self {
            settings: settings.clone(),
            keys: before.unwrap_or_else(|| Arc::new(Keys::new(&settings.keys))),
            verified: [(); SHARDS].map(|()| Mutex::new(Verified::new(VERIFIED_MAX / SHARDS, secret))),
        }
    }

    /// The digest of a token, and who bears it if these keys have verified it.
    pub(crate) fn known(
        &self,
        token: &[u8],
        keys: &NumberedKeys,
        now_s: u64,
    ) -> (TokenDigest, Option<Arc<Vouched>>) {
        // All shards have the same secret.
        let digest = self.shard(0).digest(token);
        let bearer = self.shard(digest.shard()).bearer(&digest, keys.number, now_s);
        (digest, bearer)
    }

    /// Remembers a token as verified, until the second `until_s` since 1970.
    pub(crate) fn keep(&self, digest: TokenDigest, keys: &NumberedKeys, until_s: u64, bearer: &Arc<Vouched>) {
        self.shard(digest.shard()).keep(digest, keys.number, until_s, bearer);
    }

    fn shard(&self, shard: u8) -> std::sync::MutexGuard<'_, Verified<Vouched>> {
        let shard = &self.verified[usize::from(shard) % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The field that the token is in.
    pub(crate) fn field(&self) -> &str {
        match &self.settings.from {
            TokenSource::Bearer => "Authorization",
            TokenSource::Header(name) => name,
            TokenSource::Cookie(_) => "Cookie",
        }
    }

    /// The cookie that servers do not get.
    pub(crate) fn removed_cookie(&self) -> Option<&str> {
        match &self.settings.from {
            TokenSource::Cookie(name) if self.settings.remove_token => Some(name),
            _ => None,
        }
    }

    /// Fields that servers do not get from clients: those that claims are passed on in, and that of the token.
    pub(super) fn removed_fields(&self) -> impl Iterator<Item = &str> {
        let of_token = match &self.settings.from {
            TokenSource::Cookie(_) => None,
            TokenSource::Bearer | TokenSource::Header(_) => Some(self.field()),
        };
        let of_claims = self.settings.rules.passed.iter().map(|(field, _)| field.as_str());
        of_claims.chain(of_token.filter(|_| self.settings.remove_token))
    }

    /// Whether the token is in Authorization.
    pub(crate) fn is_bearer(&self) -> bool {
        self.settings.from == TokenSource::Bearer
    }

    /// Whether the server learns who asks: by the token or by claims. Its response may then be for one user alone.
    pub(crate) fn tells_server(&self) -> bool {
        !self.settings.remove_token || !self.settings.rules.passed.is_empty()
    }
}

/// Keys, which may be replaced while requests are under way.
pub struct Keys {
    current: ArcSwapOption<NumberedKeys>,
    /// Where they are fetched from; `None` if they are from a file.
    pub remote: Option<RemoteKeys>,
}

/// A key set with a number of its own.
pub struct NumberedKeys {
    number: u64,
    pub(crate) set: Arc<KeySet>,
}

/// What workers and the control side tell each other about keys that are fetched.
pub struct RemoteKeys {
    /// The URL.
    pub source: KeySource,
    /// Told when a token names an unknown key.
    pub wanted: Notify,
    /// Counts the fetches that have ended.
    fetches: watch::Sender<u64>,
    asked: Mutex<Asked>,
}

/// A bucket of fetches that requests may cause.
#[derive(Default)]
struct Asked {
    /// The time of those so far, if they had been spread evenly.
    spent_until_ns: u64,
    /// The fetch that was asked for last, as a count.
    last: Option<u64>,
}

impl Keys {
    pub(super) fn new(keys: &TokenKeys) -> Self {
        let keys_of = |set: &Arc<KeySet>, remote| {
            let current = ArcSwapOption::empty();
            current.store(Some(Arc::new(NumberedKeys::new(Arc::clone(set)))));
            Self { current, remote }
        };
        match keys {
            TokenKeys::File(_, set) | TokenKeys::Secret(_, set) => keys_of(set, None),
            TokenKeys::Fetched(source) => Self {
                current: ArcSwapOption::empty(),
                remote: Some(RemoteKeys {
                    source: source.clone(),
                    wanted: Notify::new(),
                    fetches: watch::Sender::new(0),
                    asked: Mutex::default(),
                }),
            },
        }
    }

    /// The keys in use; `None` until they have been fetched.
    pub fn current(&self) -> arc_swap::Guard<Option<Arc<NumberedKeys>>> {
        self.current.load()
    }

    /// Replaces the keys by fetched ones, unless they are the same; `None` if the fetch failed. Returns whether other keys
    /// count now.
    pub fn fetched(&self, set: Option<KeySet>) -> bool {
        let is_new = |set: &KeySet| self.current.load().as_ref().is_none_or(|known| *known.set != *set);
        let news = set.filter(is_new);
        let has_news = news.is_some();
        if let Some(set) = news {
            self.current.store(Some(Arc::new(NumberedKeys::new(Arc::new(set)))));
        }
        if let Some(remote) = &self.remote {
            remote.fetches.send_modify(|count| *count += 1);
        }
        has_news
    }
}

impl NumberedKeys {
    fn new(set: Arc<KeySet>) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        Self { number: NUMBER.fetch_add(1, Ordering::Relaxed), set }
    }
}

impl RemoteKeys {
    /// The first fetch, if it is under way: what is returned changes when it has ended.
    pub(crate) fn first(&self) -> Option<watch::Receiver<u64>> {
        let fetches = self.fetches.subscribe();
        let is_first = *fetches.borrow() == 0;
        is_first.then_some(fetches)
    }

    /// Asks for a fetch, unless there were too many lately. What is returned changes when the fetch has ended.
    #[cold]
    pub(crate) fn ask(&self, now_ns: u64) -> Option<watch::Receiver<u64>> {
        let fetches = self.fetches.subscribe();
        let count = *fetches.borrow();
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is under way serves all who wait.
        if asked.last != Some(count) {
            let spent_until_ns = asked.spent_until_ns.max(now_ns) + ASKED_EVERY_NS;
            if spent_until_ns > now_ns + ASKED_MAX * ASKED_EVERY_NS {
                return None;
            }
            *asked = Asked { spent_until_ns, last: Some(count) };
            self.wanted.notify_one();
        }
        Some(fetches)
    }
}
