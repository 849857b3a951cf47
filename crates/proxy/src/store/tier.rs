//! The disk store behind the memory: responses are written when they are stored, and read when memory has none.
//!
//! The disk has separate threads, and only requests that would otherwise ask a server wait for it. Purges are recorded
//! on the disk, so that purged responses do not return with the next process.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use ::cache::{
    Behind, CacheKey, Force, KeySecret, Label, Object, PurgePattern, PurgeRules, PurgeScope, Recorded,
    RulesFull, VariantKey, Vary,
};
use config::CacheDisk;
use disk::{Disk, DiskSettings, DiskStanding, DiskTally, WrittenRecord};
use tokio::sync::oneshot;

use telemetry::message;

#[derive(Debug, Clone)]
pub(crate) enum SecondTier {
    Nothing,
    Tier(Arc<Tier>),
    /// The disk store could not be opened, with the reason.
    Failed(Arc<str>),
}

#[derive(Debug)]
pub(crate) struct Tier {
    disk: Disk,
    /// The purges of this process.
    rules: RwLock<PurgeRules>,
    /// The purges of earlier processes, once the disk has reported them: nothing is read before.
    earlier: Arc<OnceLock<Earlier>>,
    is_failure_told: AtomicBool,
}

/// The purges of earlier processes.
#[derive(Debug)]
struct Earlier {
    rules: PurgeRules,
    /// The number of this process among those that used the disk.
    run: u32,
}

/// A response found on the disk.
struct StoredHit {
    object: Arc<Object>,
    run: u32,
    /// The number of the last purge before it was written.
    epoch: u64,
}

impl SecondTier {
    pub(crate) fn open(settings: Option<&CacheDisk>) -> Self {
        let Some(CacheDisk { path, size_bytes }) = settings else { return Self::Nothing };
        let fresh_secret = u128::from_le_bytes(crate::shared::secret::secret());
        let settings = DiskSettings { path: path.clone(), size_bytes: *size_bytes, fresh_secret };
        let earlier = Arc::new(OnceLock::new());
        let report = Arc::clone(&earlier);
        let begin = move |notes: Vec<WrittenRecord>, run| {
            // Called once.
            let _ = report.set(Earlier { rules: rules_of(&notes), run });
        };
        match Disk::open(&settings, begin) {
            Ok(disk) => Self::Tier(Arc::new(Tier {
                disk,
                rules: RwLock::default(),
                earlier,
                is_failure_told: AtomicBool::new(false),
            })),
            Err(error) => {
                message::error(&format!("the cache does not use its disk until the next start: {error}"));
                Self::Failed(error.to_string().into())
            }
        }
    }

    pub(crate) fn tier(&self) -> Option<&Arc<Tier>> {
        match self {
            Self::Tier(tier) => Some(tier),
            Self::Nothing | Self::Failed(_) => None,
        }
    }

    /// The secret of the disk store's keys.
    pub(crate) fn secret(&self) -> Option<KeySecret> {
        self.tier().map(|tier| KeySecret::new(tier.disk.secret()))
    }

    /// The counters of the disk store; `None` without one.
    pub(crate) fn counters(&self) -> Option<DiskTally> {
        match self {
            Self::Nothing => None,
            Self::Tier(tier) => Some(tier.disk.tally()),
            Self::Failed(why) => {
                Some(DiskTally { state: DiskStanding::Failed(why.to_string()), ..DiskTally::default() })
            }
        }
    }
}

impl Tier {
    /// Whether the disk has a response for a key.
    pub(crate) fn has(&self, key: CacheKey) -> bool {
        self.disk.has(key.as_u128())
    }

    /// Reads the response for a request from the disk, unless it was purged.
    pub(crate) async fn recall(
        &self,
        key: CacheKey,
        variant_of: impl Fn(&Vary) -> VariantKey,
    ) -> Option<Arc<Object>> {
        // Only a response tells what the variants depend on, so the newest one is read first.
        let newest = self.read(key, None).await?;
        let wanted = variant_of(newest.object.vary());
        let found =
            if newest.object.variant() == wanted { newest } else { self.read(key, Some(wanted)).await? };
        let StoredHit { object, run, epoch } = found;
        // The record is found by one half of the variant's key, so the whole is compared here.
        if variant_of(object.vary()) != object.variant() {
            return None;
        }
        if let Some(force) = self.verdict(&object, run, epoch) {
            object.purge(force);
        }
        (!object.is_gone()).then_some(object)
    }

    async fn read(&self, key: CacheKey, variant: Option<VariantKey>) -> Option<StoredHit> {
        let (tell, report) = oneshot::channel();
        let earlier = Arc::clone(&self.earlier);
        let then = move |written: Option<WrittenRecord>| {
            // The waiting request may be gone.
            let _ = tell.send(written.and_then(|written| found(key, written, earlier.get()?)));
        };
        if !self.disk.read(key.as_u128(), variant.map(short), then) {
            return None;
        }
        report.await.ok().flatten()
    }

    /// Returns how a response was purged by any purge since it was written.
    fn verdict(&self, object: &Object, run: u32, epoch: u64) -> Option<Force> {
        let (text, labels) = (object.key_text(), object.labels());
        // The purge numbers of earlier processes do not compare with this one's: all purges of this process came later.
        let own = self.rules().verdict(object.epoch(), text, labels);
        let earlier = self.earlier.get()?;
        if run == earlier.run || own == Some(Force::Hard) {
            return own;
        }
        earlier.rules.verdict(stamp(run, epoch), text, labels).or(own)
    }

    /// Logs once that the disk has failed.
    pub(crate) fn tell_failure(&self) {
        if let DiskStanding::Failed(why) = self.disk.state()
            && !self.is_failure_told.swap(true, Relaxed)
        {
            message::error(&format!("the cache does not use its disk until the next start: {why}"));
        }
    }

    /// Leaves the disk to another process, once pending responses are written.
    pub(crate) fn close(&self) {
        self.disk.close();
    }

    /// Writes pending responses to the disk, and waits for that.
    pub(crate) fn finish(&self) {
        self.disk.finish();
    }

    fn rules(&self) -> RwLockReadGuard<'_, PurgeRules> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Behind for Tier {
    fn stored(&self, object: &Arc<Object>) {
        self.tell_failure();
        let key = object.key().as_u128();
        self.disk.put(key, short(object.variant()), object.record());
        // A concurrent purge was either recorded before this response, or is visible here.
        let is_purged = self.rules().verdict(object.epoch(), object.key_text(), object.labels()).is_some();
        if is_purged || object.is_gone() || object.is_softly_purged() {
            self.disk.remove(key);
        }
    }

    /// Soft purges, too, remove responses from the disk: it only keeps usable ones.
    fn purged_key(&self, key: CacheKey) -> usize {
        self.disk.remove(key.as_u128())
    }

    fn purged(&self, scope: &PurgeScope, force: Force, epoch: u64) {
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        let is_all = (scope, force) == (&PurgeScope::All, Force::Hard);
        if is_all || rules.add(scope, force, epoch).is_err() {
            // If the rules are full, everything is purged.
            begin_anew(&mut rules, epoch);
            self.disk.clear();
        } else {
            self.disk.note(note(scope, force, epoch));
        }
    }
}

/// The half of a variant's key that selects the record; the response itself contains the whole.
fn short(variant: VariantKey) -> u64 {
    variant.as_u128() as u64
}

fn found(key: CacheKey, written: WrittenRecord, earlier: &Earlier) -> Option<StoredHit> {
    let WrittenRecord { run, payload } = written;
    let Recorded { opening, epoch, body } = Recorded::read(&payload.into())?;
    // The number of an earlier process does not compare with those of this one.
    let known_epoch = if run == earlier.run { epoch } else { 0 };
    let object = Arc::new(Object::new(key, known_epoch, opening, &[body]));
    Some(StoredHit { object, run, epoch })
}

/// A number that orders purges and responses of all processes.
fn stamp(run: u32, epoch: u64) -> u64 {
    const EPOCH_BITS: u32 = 40;
    u64::from(run) << EPOCH_BITS | epoch.min((1 << EPOCH_BITS) - 1)
}

fn begin_anew(rules: &mut PurgeRules, epoch: u64) {
    *rules = PurgeRules::default();
    // There is always room for this rule.
    let _: Result<(), RulesFull> = rules.add(&PurgeScope::All, Force::Hard, epoch);
}

/// Decodes the recorded purges.
fn rules_of(notes: &[WrittenRecord]) -> PurgeRules {
    let mut rules = PurgeRules::default();
    for WrittenRecord { run, payload } in notes {
        let added = noted(payload)
            .is_some_and(|(scope, force, epoch)| rules.add(&scope, force, stamp(*run, epoch)).is_ok());
        if !added {
            // An unreadable note may have meant everything before it.
            begin_anew(&mut rules, stamp(*run, u64::MAX));
        }
    }
    rules
}

const ALL: u8 = 0;
const LABEL: u8 = 1;
const PREFIX: u8 = 2;
const PATTERN: u8 = 3;
const SOFT: u8 = 0x80;

/// Encodes a purge: kind and force, number, and the rest of the scope.
fn note(scope: &PurgeScope, force: Force, epoch: u64) -> Vec<u8> {
    let mut written = Vec::new();
    let (kind, rest): (u8, &[u8]) = match scope {
        PurgeScope::All => (ALL, b""),
        PurgeScope::Label(label) => (LABEL, &label.as_u64().to_le_bytes()),
        PurgeScope::Prefix(prefix) => (PREFIX, prefix),
        PurgeScope::Pattern(pattern) => {
            pattern.write(&mut written);
            (PATTERN, &written)
        }
    };
    let soft = if force == Force::Soft { SOFT } else { 0 };
    [&[kind | soft][..], &epoch.to_le_bytes(), rest].concat()
}

fn noted(payload: &[u8]) -> Option<(PurgeScope, Force, u64)> {
    let (&first, rest) = payload.split_first()?;
    let (epoch, rest) = rest.split_first_chunk()?;
    let scope = match first & !SOFT {
        ALL => PurgeScope::All,
        LABEL => PurgeScope::Label(Label::from_u64(u64::from_le_bytes(rest.try_into().ok()?))),
        PREFIX => PurgeScope::Prefix(rest.into()),
        PATTERN => PurgeScope::Pattern(PurgePattern::read(rest)?),
        _ => return None,
    };
    let force = if first & SOFT == 0 { Force::Hard } else { Force::Soft };
    Some((scope, force, u64::from_le_bytes(*epoch)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_as_they_were_written() {
        let scopes = [
            PurgeScope::All,
            PurgeScope::Label(Label::from_u64(u64::MAX - 1)),
            PurgeScope::Prefix(b"http://a.example/"[..].into()),
            PurgeScope::Pattern(PurgePattern::of_url(None, b"a", b"/*").expect("is short")),
        ];
        for scope in scopes {
            for force in [Force::Hard, Force::Soft] {
                assert_eq!(noted(&note(&scope, force, 7)), Some((scope.clone(), force, 7)));
            }
        }
        assert_eq!(noted(&[9; 20]), None);
    }

    #[test]
    fn purges_of_earlier_processes_meet_what_these_had_stored_before() {
        let label = Label::from_u64(3);
        let notes: Vec<WrittenRecord> = [(1, 5), (2, 1)]
            .map(|(run, epoch)| WrittenRecord {
                run,
                payload: note(&PurgeScope::Label(label), Force::Hard, epoch),
            })
            .into();
        let rules = rules_of(&notes[..1]);
        for (run, epoch, expected) in [(1, 4, Some(Force::Hard)), (1, 5, None), (1, 6, None), (2, 0, None)] {
            assert_eq!(rules.verdict(stamp(run, epoch), b"", &[label]), expected, "{run} {epoch}");
        }
        // The next process counts its own purges from one.
        let rules = rules_of(&notes);
        assert_eq!(rules.verdict(stamp(1, 900), b"", &[label]), Some(Force::Hard));
        assert_eq!(rules.verdict(stamp(2, 1), b"", &[label]), None);
    }

    #[test]
    fn a_note_that_says_nothing_may_have_meant_all() {
        let rules = rules_of(&[WrittenRecord { run: 3, payload: b"?".to_vec() }]);
        assert_eq!(rules.verdict(stamp(3, 1000), b"", &[]), Some(Force::Hard));
        assert_eq!(rules.verdict(stamp(4, 0), b"", &[]), None);
    }
}
