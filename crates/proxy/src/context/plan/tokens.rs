//! Tokens as the request path uses them: rules, keys, and recently verified tokens.
//!
//! The control side (`control/keys`) fetches keys from a URL and replaces them here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use config::{Jwt, KeySource, TokenKeys};
use jwt::{KeySet, TokenDigest, VerifiedTokens};
use route::TokenSource;
use tokio::sync::{Notify, watch};

use super::routes::secret;
use crate::shared::vouched::Vouched;

/// How many verified tokens are remembered, and in how many shards.
const VERIFIED_MAX: usize = 16_384;
const SHARDS: usize = 16;
/// How many fetches requests may cause at once because of an unknown key, and the interval until another one.
const ASKED_MAX: u64 = 4;
const ASKED_EVERY_NS: u64 = 30_000_000_000;

/// Verifies the tokens of a route. Shared by all workers.
pub struct Tokens {
    pub(crate) settings: Jwt,
    pub(crate) keys: Arc<LiveTokenKeys>,
    verified: [Mutex<VerifiedTokens<Vouched>>; SHARDS],
}

impl Tokens {
    /// Creates the tokens of a route. Fetched keys of `before` are kept.
    pub(super) fn new(settings: &Jwt, before: Option<Arc<LiveTokenKeys>>) -> Self {
        let secret = secret();
        Self {
            settings: settings.clone(),
            keys: before.unwrap_or_else(|| Arc::new(LiveTokenKeys::new(&settings.keys))),
            verified: [(); SHARDS].map(|()| Mutex::new(VerifiedTokens::new(VERIFIED_MAX / SHARDS, secret))),
        }
    }

    /// Returns the digest of a token, and its bearer if these keys have verified it.
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

    fn shard(&self, shard: u8) -> std::sync::MutexGuard<'_, VerifiedTokens<Vouched>> {
        let shard = &self.verified[usize::from(shard) % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cookie that is removed from requests to servers.
    pub(crate) fn removed_cookie(&self) -> Option<&str> {
        match &self.settings.from {
            TokenSource::Cookie(name) if self.settings.remove_token => Some(name),
            _ => None,
        }
    }

    /// The query parameter that is removed from requests to servers.
    pub(crate) fn removed_parameter(&self) -> Option<&str> {
        self.settings.from.parameter().filter(|_| self.settings.remove_token)
    }

    /// The client's fields that are removed from requests to servers: those for claims, and the token's.
    pub(super) fn removed_fields(&self) -> impl Iterator<Item = &str> {
        let of_token = match &self.settings.from {
            TokenSource::Cookie(_) | TokenSource::Query(_) => None,
            TokenSource::Bearer => Some("Authorization"),
            TokenSource::Header(name) => Some(name.as_str()),
        };
        let of_claims = self.settings.rules.passed.iter().map(|(field, _)| field.as_str());
        of_claims.chain(of_token.filter(|_| self.settings.remove_token))
    }

    /// Whether the token is in Authorization.
    pub(crate) fn is_bearer(&self) -> bool {
        self.settings.from == TokenSource::Bearer
    }

    /// Whether the server learns the user, by the token or by claims. Its response may then be for that user only.
    pub(crate) fn tells_server(&self) -> bool {
        !self.settings.remove_token || !self.settings.rules.passed.is_empty()
    }
}

/// Keys, which may be replaced while requests are under way.
pub struct LiveTokenKeys {
    current: ArcSwapOption<NumberedKeys>,
    /// `None` if they are from a file.
    pub remote: Option<RemoteKeys>,
}

/// A key set with a unique number.
pub struct NumberedKeys {
    number: u64,
    pub(crate) set: Arc<KeySet>,
}

/// Connects workers with the control side, which fetches keys.
pub struct RemoteKeys {
    pub source: KeySource,
    /// Notified when a token names an unknown key.
    pub wanted: Notify,
    /// Counts the fetches that have ended.
    fetches: watch::Sender<u64>,
    asked: Mutex<KeyFetchBucket>,
}

/// A bucket that limits the fetches caused by requests.
#[derive(Default)]
struct KeyFetchBucket {
    /// The time up to which the bucket is used, if its fetches were spread evenly.
    spent_until_ns: u64,
    /// Value of `fetches` when a fetch was last requested.
    last: Option<u64>,
}

impl LiveTokenKeys {
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

    /// The keys in use; `None` until they are fetched.
    pub fn current(&self) -> arc_swap::Guard<Option<Arc<NumberedKeys>>> {
        self.current.load()
    }

    /// Replaces the keys by fetched ones, unless they are equal; `None` if the fetch failed. Returns whether the keys
    /// have changed.
    pub fn fetched(&self, set: Option<KeySet>) -> bool {
        // An equal set keeps its number, and so all tokens that it has verified.
        let is_new = |set: &KeySet| self.current.load().as_ref().is_none_or(|known| *known.set != *set);
        let news = set.filter(is_new);
        let has_news = news.is_some();
        if let Some(set) = news {
            self.current.store(Some(Arc::new(NumberedKeys::new(Arc::new(set)))));
        }
        // Counted after the keys are in place, because requests that wait read them then.
        if let Some(remote) = &self.remote {
            remote.fetches.send_modify(|count| *count += 1);
        }
        has_news
    }
}

impl NumberedKeys {
    fn new(set: Arc<KeySet>) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        // Numbers are unique in the process: what one set has verified never counts for another.
        Self { number: NUMBER.fetch_add(1, Ordering::Relaxed), set }
    }
}

impl RemoteKeys {
    /// Returns a receiver that reports the end of the first fetch, if that is under way.
    pub(crate) fn first(&self) -> Option<watch::Receiver<u64>> {
        let fetches = self.fetches.subscribe();
        let is_first = *fetches.borrow() == 0;
        is_first.then_some(fetches)
    }

    /// Requests a fetch, unless there were too many lately. The receiver reports its end.
    #[cold]
    pub(crate) fn ask(&self, now_ns: u64) -> Option<watch::Receiver<u64>> {
        // Subscribed before the count is read, so that a fetch that ends in between is noticed.
        let fetches = self.fetches.subscribe();
        let count = *fetches.borrow();
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        // A fetch under way serves all waiting requests.
        if asked.last != Some(count) {
            let spent_until_ns = asked.spent_until_ns.max(now_ns) + ASKED_EVERY_NS;
            if spent_until_ns > now_ns + ASKED_MAX * ASKED_EVERY_NS {
                return None;
            }
            *asked = KeyFetchBucket { spent_until_ns, last: Some(count) };
            self.wanted.notify_one();
        }
        Some(fetches)
    }
}
