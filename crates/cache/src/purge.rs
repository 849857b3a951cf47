//! Purges as rules, which lookups compare with stored responses: the cost of a purge does not depend on how many match.
//!
//! Each purge has a number, its epoch, and each stored response has the epoch in which its fetch began. Later rules
//! that match purge it, so fetches in progress are purged as well. Knows no store and no lock.

use std::collections::HashMap;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::key::{CacheKey, KeySecret, Uri};
use crate::pattern::PurgePattern;
use crate::policy::KeyOptions;

/// A label that responses can be purged by: a host, a tag or a URI, as a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label(u64);

impl Label {
    /// The label of a host name, ignoring case.
    pub fn host(secret: KeySecret, host: &[u8]) -> Self {
        Self::new(secret, b'h', host.iter().map(u8::to_ascii_lowercase))
    }

    /// The label of a tag, as in `Surrogate-Key` or `Cache-Tag`.
    pub fn tag(secret: KeySecret, tag: &[u8]) -> Self {
        Self::new(secret, b't', tag.iter().copied())
    }

    /// The label of a URI, regardless of other parts of its keys.
    pub fn uri(secret: KeySecret, uri: &Uri<'_>, options: &KeyOptions) -> Self {
        Self(CacheKey::of_uri(secret, uri, options).as_u128() as u64)
    }

    pub const fn from_u64(number: u64) -> Self {
        Self(number)
    }

    pub const fn as_u64(self) -> u64 {
        self.0
    }

    fn new(secret: KeySecret, kind: u8, name: impl Iterator<Item = u8>) -> Self {
        let (first, second) = secret.halves();
        let mut hasher = SipHasher13::new_with_keys(first, second);
        // A host and a tag of one name are two labels.
        hasher.write_u8(kind);
        name.for_each(|byte| hasher.write_u8(byte));
        Self(hasher.finish())
    }
}

/// The kind of purge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// Deletes responses.
    Hard,
    /// Makes responses stale. They may be validated, or used where stale responses may be.
    Soft,
}

/// The responses that a purge matches, unless it is for one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PurgeScope {
    All,
    Label(Label),
    /// Responses whose key text has a prefix.
    Prefix(Box<[u8]>),
    /// Responses whose key matches a pattern.
    Pattern(PurgePattern),
}

/// The number of purge rules has reached its limit, and fetches in progress still need all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RulesFull;

impl std::fmt::Display for RulesFull {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .write_str("too many purges since the cache was last swept; purge less finely, or everything")
    }
}

impl std::error::Error for RulesFull {}

/// The purge rules since the last sweep.
#[derive(Debug, Default)]
pub struct PurgeRules {
    /// The number of the last purge.
    epoch: u64,
    /// The last purge that may have been forgotten.
    forgotten: u64,
    all: Epochs,
    labels: HashMap<Label, Epochs>,
    texts: Vec<(Texts, Epochs)>,
}

/// Rules that are compared with key texts.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Texts {
    Prefix(Box<[u8]>),
    Pattern(PurgePattern),
}

impl Texts {
    fn has(&self, key_text: &[u8]) -> bool {
        match self {
            Self::Prefix(prefix) => key_text.starts_with(prefix),
            Self::Pattern(pattern) => pattern.meets(key_text),
        }
    }
}

/// The epochs of the last purges; 0 for never.
#[derive(Debug, Clone, Copy, Default)]
struct Epochs {
    hard: u64,
    soft: u64,
    /// The time of the soft purge, in seconds since 1970; 0 if unknown.
    soft_seconds: u32,
}

impl PurgeRules {
    /// The most purge rules for hosts, tags and URIs. Each takes about 30 bytes.
    pub const LABELS_MAX: usize = 1 << 18;
    /// The most purge rules for prefixes and patterns. Each stored response is compared with all of them, once.
    // Unlike labels they cannot be looked up by hash.
    pub const TEXTS_MAX: usize = 256;

    /// Adds a purge. Its number must be greater than all before.
    ///
    /// # Errors
    /// There are too many rules: a sweep has to come first.
    pub fn add(&mut self, scope: &PurgeScope, force: Force, epoch: u64) -> Result<(), RulesFull> {
        self.add_at(scope, force, epoch, 0)
    }

    /// Adds a purge at a time in seconds since 1970, from which softly purged responses are stale.
    ///
    /// # Errors
    /// There are too many rules: a sweep has to come first.
    pub fn add_at(
        &mut self,
        scope: &PurgeScope,
        force: Force,
        epoch: u64,
        at_seconds: u32,
    ) -> Result<(), RulesFull> {
        match scope {
            PurgeScope::All => self.all.set(force, epoch, at_seconds),
            PurgeScope::Label(label) => {
                // A label that is known takes no more room, however often it is purged.
                if self.labels.len() >= Self::LABELS_MAX && !self.labels.contains_key(label) {
                    return Err(RulesFull);
                }
                self.labels.entry(*label).or_default().set(force, epoch, at_seconds);
            }
            PurgeScope::Prefix(prefix) => {
                self.text(Texts::Prefix(prefix.clone()))?.set(force, epoch, at_seconds);
            }
            PurgeScope::Pattern(pattern) => {
                self.text(Texts::Pattern(pattern.clone()))?.set(force, epoch, at_seconds);
            }
        }
        // Only after the rule was added: a purge that failed must not count as in force.
        self.epoch = epoch;
        Ok(())
    }

    fn text(&mut self, texts: Texts) -> Result<&mut Epochs, RulesFull> {
        // A repeated purge takes the place of the earlier one, so that a loop of purges does not fill the table.
        let known = self.texts.iter().position(|(known, _)| *known == texts);
        if known.is_none() && self.texts.len() >= Self::TEXTS_MAX {
            return Err(RulesFull);
        }
        let index = known.unwrap_or_else(|| {
            self.texts.push((texts, Epochs::default()));
            self.texts.len() - 1
        });
        Ok(&mut self.texts[index].1)
    }

    /// The number of the last purge.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The last forgotten purge. Responses requested before it may have matched forgotten rules.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    pub fn len(&self) -> usize {
        self.labels.len() + self.texts.len() + usize::from(self.all.last() > 0)
    }

    /// Whether there was no purge since the last sweep.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Decides how later purges affect a response whose fetch began in `epoch`. Costs one step per label, and one per rule with
    /// a prefix or pattern.
    pub fn verdict(&self, epoch: u64, key_text: &[u8], labels: &[Label]) -> Option<Force> {
        let mut verdict = None;
        for epochs in self.met(key_text, labels) {
            if epochs.hard > epoch {
                // No other rule can make it worse.
                return Some(Force::Hard);
            }
            if epochs.soft > epoch {
                verdict = Some(Force::Soft);
            }
        }
        verdict
    }

    /// The time of the first soft purge that matched the response, in seconds since 1970; 0 if it is not known any
    /// more.
    pub fn stale_since_seconds(&self, epoch: u64, key_text: &[u8], labels: &[Label]) -> u32 {
        let soft = self.met(key_text, labels).filter(|epochs| epochs.soft > epoch);
        // The first purge counts, since the response has been stale from then on.
        soft.map(|epochs| epochs.soft_seconds).filter(|seconds| *seconds > 0).min().unwrap_or(0)
    }

    /// The rules that match a response.
    fn met(&self, key_text: &[u8], labels: &[Label]) -> impl Iterator<Item = &Epochs> {
        let by_label = labels.iter().filter_map(|label| self.labels.get(label));
        let by_text = self.texts.iter().filter(|(texts, _)| texts.has(key_text));
        std::iter::once(&self.all).chain(by_label).chain(by_text.map(|(_, epochs)| epochs))
    }

    /// Forgets all purges up to `epoch`, once no response is left that they could match.
    pub fn forget(&mut self, epoch: u64) {
        self.forgotten = self.forgotten.max(epoch);
        if self.all.last() <= epoch {
            self.all = Epochs::default();
        }
        self.labels.retain(|_, epochs| epochs.last() > epoch);
        // A burst of purges must not keep its memory.
        self.labels.shrink_to(self.labels.len() * 2);
        self.texts.retain(|(_, epochs)| epochs.last() > epoch);
    }
}

impl Epochs {
    fn set(&mut self, force: Force, epoch: u64, at_seconds: u32) {
        match force {
            Force::Hard => self.hard = epoch,
            Force::Soft => (self.soft, self.soft_seconds) = (epoch, at_seconds),
        }
    }

    fn last(self) -> u64 {
        self.hard.max(self.soft)
    }
}
