//! What was purged, as rules that look-ups compare objects with: a purge costs the same however much it meets.
//!
//! Each purge has a number, its epoch, and each object the epoch in which its fetch began: it is purged by every later
//! rule that names it. So what was under way when a purge came is purged too. Knows no store and no lock.

use std::collections::HashMap;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::key::{Key, KeySecret, Uri};
use crate::pattern::Pattern;
use crate::policy::KeyOptions;

/// What an object can be purged by beside its key: a host, a tag or a URI, as a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label(u64);

impl Label {
    /// Everything of a host; the case of its name does not count.
    pub fn host(secret: KeySecret, host: &[u8]) -> Self {
        Self::of(secret, b'h', host.iter().map(u8::to_ascii_lowercase))
    }

    /// A tag, of `Surrogate-Key` or `Cache-Tag`.
    pub fn tag(secret: KeySecret, tag: &[u8]) -> Self {
        Self::of(secret, b't', tag.iter().copied())
    }

    /// Everything of a URI, whatever else its keys have.
    pub fn uri(secret: KeySecret, uri: &Uri<'_>, options: &KeyOptions) -> Self {
        Self(Key::of_uri(secret, uri, options).as_u128() as u64)
    }

    /// From a number that `as_u64` gave.
    pub const fn from_u64(number: u64) -> Self {
        Self(number)
    }

    /// As a number, to be written down.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    fn of(secret: KeySecret, kind: u8, name: impl Iterator<Item = u8>) -> Self {
        let (first, second) = secret.halves();
        let mut hasher = SipHasher13::new_with_keys(first, second);
        hasher.write_u8(kind);
        name.for_each(|byte| hasher.write_u8(byte));
        Self(hasher.finish())
    }
}

/// What a purge does to what it meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// It is gone.
    Hard,
    /// It is stale: it may be validated, or served where stale responses may be.
    Soft,
}

/// What a purge meets, where that is not one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    All,
    /// What has this label.
    Label(Label),
    /// What has a key whose text begins so.
    Prefix(Box<[u8]>),
    /// What has a key that a pattern meets.
    Pattern(Pattern),
}

/// There are as many rules as there may be, all newer than what is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RulesFull;

impl std::fmt::Display for RulesFull {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .write_str("too many purges since the cache was last swept; purge less finely, or everything")
    }
}

impl std::error::Error for RulesFull {}

/// The purges since the last sweep.
#[derive(Debug, Default)]
pub struct Rules {
    /// The number of the last purge.
    epoch: u64,
    /// Purges up to this one may be forgotten.
    forgotten: u64,
    all: Epochs,
    labels: HashMap<Label, Epochs>,
    texts: Vec<(Texts, Epochs)>,
}

/// Keys by their text.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Texts {
    Prefix(Box<[u8]>),
    Pattern(Pattern),
}

impl Texts {
    fn has(&self, key_text: &[u8]) -> bool {
        match self {
            Self::Prefix(prefix) => key_text.starts_with(prefix),
            Self::Pattern(pattern) => pattern.meets(key_text),
        }
    }
}

/// When something was last purged; 0 for never.
#[derive(Debug, Clone, Copy, Default)]
struct Epochs {
    hard: u64,
    soft: u64,
    /// When that was, in seconds since 1970; 0 where nobody has said.
    soft_seconds: u32,
}

impl Rules {
    /// As many hosts and tags can be remembered as purged. Each takes some 30 bytes.
    pub const LABELS_MAX: usize = 1 << 18;
    /// As many prefixes and patterns. An object is compared with all of them, once.
    pub const TEXTS_MAX: usize = 256;

    /// Adds a purge with its number, which is greater than all before.
    ///
    /// # Errors
    /// If there are too many rules: then a sweep has to come first.
    pub fn add(&mut self, scope: &Scope, force: Force, epoch: u64) -> Result<(), RulesFull> {
        self.add_at(scope, force, epoch, 0)
    }

    /// The same with the time of the purge, in seconds since 1970: what it meets is stale from then on.
    ///
    /// # Errors
    /// If there are too many rules: then a sweep has to come first.
    pub fn add_at(
        &mut self,
        scope: &Scope,
        force: Force,
        epoch: u64,
        at_seconds: u32,
    ) -> Result<(), RulesFull> {
        match scope {
            Scope::All => self.all.set(force, epoch, at_seconds),
            Scope::Label(label) => {
                if self.labels.len() >= Self::LABELS_MAX && !self.labels.contains_key(label) {
                    return Err(RulesFull);
                }
                self.labels.entry(*label).or_default().set(force, epoch, at_seconds);
            }
            Scope::Prefix(prefix) => self.text(Texts::Prefix(prefix.clone()))?.set(force, epoch, at_seconds),
            Scope::Pattern(pattern) => {
                self.text(Texts::Pattern(pattern.clone()))?.set(force, epoch, at_seconds);
            }
        }
        self.epoch = epoch;
        Ok(())
    }

    fn text(&mut self, texts: Texts) -> Result<&mut Epochs, RulesFull> {
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

    /// What was asked for before this purge may have been met by one that is forgotten.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.labels.len() + self.texts.len() + usize::from(self.all.last() > 0)
    }

    /// Whether nothing was purged since the last sweep.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What became of an object whose fetch began in this epoch, by all purges since. One step for each label, and one
    /// for each prefix and pattern that is known.
    pub fn verdict(&self, epoch: u64, key_text: &[u8], labels: &[Label]) -> Option<Force> {
        let mut verdict = None;
        for epochs in self.met(key_text, labels) {
            if epochs.hard > epoch {
                return Some(Force::Hard);
            }
            if epochs.soft > epoch {
                verdict = Some(Force::Soft);
            }
        }
        verdict
    }

    /// When the first of the soft purges was that have met such an object, as far as is still known; 0 where it is not.
    pub fn stale_since_seconds(&self, epoch: u64, key_text: &[u8], labels: &[Label]) -> u32 {
        let soft = self.met(key_text, labels).filter(|epochs| epochs.soft > epoch);
        soft.map(|epochs| epochs.soft_seconds).filter(|seconds| *seconds > 0).min().unwrap_or(0)
    }

    /// The rules that name an object.
    fn met(&self, key_text: &[u8], labels: &[Label]) -> impl Iterator<Item = &Epochs> {
        let by_label = labels.iter().filter_map(|label| self.labels.get(label));
        let by_text = self.texts.iter().filter(|(texts, _)| texts.has(key_text));
        std::iter::once(&self.all).chain(by_label).chain(by_text.map(|(_, epochs)| epochs))
    }

    /// Forgets the purges up to this one: nobody is left whom they meet.
    pub fn forget(&mut self, epoch: u64) {
        self.forgotten = self.forgotten.max(epoch);
        if self.all.last() <= epoch {
            self.all = Epochs::default();
        }
        self.labels.retain(|_, epochs| epochs.last() > epoch);
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
