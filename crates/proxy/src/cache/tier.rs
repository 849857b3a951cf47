//! The disk store behind the memory: responses are written when they are stored, and read when memory has none.
//!
//! The disk has its own threads, and only requests that would otherwise ask a server wait for it. Purges are recorded
//! on the disk, so that purged responses do not come back with the next process.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use ::cache::{
    Behind, Force, Key, KeySecret, Label, Object, Pattern, Recorded, Rules, RulesFull, Scope, VariantKey,
    Vary,
};
use config::CacheDisk;
use disk::{Disk, DiskSettings, DiskStanding, DiskTally, Written};
use tokio::sync::oneshot;

use telemetry::message;

/// The store behind the memory of a cache.
#[derive(Debug, Clone)]
pub(super) enum SecondTier {
    Nothing,
    Tier(Arc<Tier>),
    /// The disk store could not be opened; with the reason.
    Failed(Arc<str>),
}

/// A disk store behind the memory of a cache.
#[derive(Debug)]
pub(super) struct Tier {
    disk: Disk,
    /// The purges of this process.
    rules: RwLock<Rules>,
    /// Those before, once the disk has told them: nothing is read until then.
    earlier: Arc<OnceLock<Earlier>>,
    is_failure_told: AtomicBool,
}

/// What earlier processes purged.
#[derive(Debug)]
struct Earlier {
    rules: Rules,
    /// The number of this process among those that had the disk.
    run: u32,
}

/// A response as it was found.
struct Found {
    object: Arc<Object>,
    run: u32,
    /// The last purge that was known to the process that wrote it.
    epoch: u64,
}

impl SecondTier {
    pub(super) fn open(settings: Option<&CacheDisk>) -> Self {
        let Some(CacheDisk { path, size_bytes }) = settings else { return Self::Nothing };
        let fresh_secret = u128::from_le_bytes(crate::context::plan::secret());
        let settings = DiskSettings { path: path.clone(), size_bytes: *size_bytes, fresh_secret };
        let earlier = Arc::new(OnceLock::new());
        let report = Arc::clone(&earlier);
        let begin = move |notes: Vec<Written>, run| {
            // It is called once.
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

    pub(super) fn tier(&self) -> Option<&Arc<Tier>> {
        match self {
            Self::Tier(tier) => Some(tier),
            Self::Nothing | Self::Failed(_) => None,
        }
    }

    /// The secret for the keys of the disk store.
    pub(crate) fn secret(&self) -> Option<KeySecret> {
        self.tier().map(|tier| KeySecret::new(tier.disk.secret()))
    }

    /// The counters of the disk store; `None` without one.
    pub(super) fn counters(&self) -> Option<DiskTally> {
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
    pub(super) fn has(&self, key: Key) -> bool {
        self.disk.has(key.as_u128())
    }

    /// Reads the response for a request from the disk, unless it was purged.
    pub(super) async fn recall(
        &self,
        key: Key,
        variant_of: impl Fn(&Vary) -> VariantKey,
    ) -> Option<Arc<Object>> {
        let newest = self.read(key, None).await?;
        let wanted = variant_of(newest.object.vary());
        let found =
            if newest.object.variant() == wanted { newest } else { self.read(key, Some(wanted)).await? };
        let Found { object, run, epoch } = found;
        if variant_of(object.vary()) != object.variant() {
            return None;
        }
        if let Some(force) = self.verdict(&object, run, epoch) {
            object.purge(force);
        }
        (!object.is_gone()).then_some(object)
    }

    async fn read(&self, key: Key, variant: Option<VariantKey>) -> Option<Found> {
        let (tell, report) = oneshot::channel();
        let earlier = Arc::clone(&self.earlier);
        let then = move |written: Option<Written>| {
            // Who asked may be gone.
            let _ = tell.send(written.and_then(|written| found(key, written, earlier.get()?)));
        };
        if !self.disk.read(key.as_u128(), variant.map(short), then) {
            return None;
        }
        report.await.ok().flatten()
    }

    /// What became of a response by all purges since it was written.
    fn verdict(&self, object: &Object, run: u32, epoch: u64) -> Option<Force> {
        let (text, labels) = (object.key_text(), object.labels());
        // For one of an earlier process the number of its own purges says nothing: all of this one came later.
        let own = self.rules().verdict(object.epoch(), text, labels);
        let earlier = self.earlier.get()?;
        if run == earlier.run || own == Some(Force::Hard) {
            return own;
        }
        earlier.rules.verdict(stamp(run, epoch), text, labels).or(own)
    }

    /// Reports once that the disk has failed.
    pub(super) fn tell_failure(&self) {
        if let DiskStanding::Failed(why) = self.disk.state()
            && !self.is_failure_told.swap(true, Relaxed)
        {
            message::error(&format!("the cache does not use its disk until the next start: {why}"));
        }
    }

    /// Leaves the disk to another process, once pending responses are written.
    pub(super) fn close(&self) {
        self.disk.close();
    }

    /// Writes pending responses to the disk, and waits for that.
    pub(super) fn finish(&self) {
        self.disk.finish();
    }

    fn rules(&self) -> RwLockReadGuard<'_, Rules> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Behind for Tier {
    fn stored(&self, object: &Arc<Object>) {
        self.tell_failure();
        let key = object.key().as_u128();
        self.disk.put(key, short(object.variant()), object.record());
        // A purge that came meanwhile is noted before it, or it is seen here.
        let is_purged = self.rules().verdict(object.epoch(), object.key_text(), object.labels()).is_some();
        if is_purged || object.is_gone() || object.is_softly_purged() {
            self.disk.remove(key);
        }
    }

    /// Softly as well: on the disk nothing is kept of what may not be used as it is.
    fn purged_key(&self, key: Key) -> usize {
        self.disk.remove(key.as_u128())
    }

    fn purged(&self, scope: &Scope, force: Force, epoch: u64) {
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        let is_all = (scope, force) == (&Scope::All, Force::Hard);
        if is_all || rules.add(scope, force, epoch).is_err() {
            // What is too much to be remembered is all.
            begin_anew(&mut rules, epoch);
            self.disk.clear();
        } else {
            self.disk.note(note(scope, force, epoch));
        }
    }
}

/// One look decides about a variant; what it found knows its own whole.
fn short(variant: VariantKey) -> u64 {
    variant.as_u128() as u64
}

fn found(key: Key, written: Written, earlier: &Earlier) -> Option<Found> {
    let Written { run, payload } = written;
    let Recorded { opening, epoch, body } = Recorded::read(&payload.into())?;
    let known_epoch = if run == earlier.run { epoch } else { 0 };
    let object = Arc::new(Object::new(key, known_epoch, opening, &[body]));
    Some(Found { object, run, epoch })
}

/// A number for purges and responses of all processes, in their order.
fn stamp(run: u32, epoch: u64) -> u64 {
    const EPOCH_BITS: u32 = 40;
    u64::from(run) << EPOCH_BITS | epoch.min((1 << EPOCH_BITS) - 1)
}

fn begin_anew(rules: &mut Rules, epoch: u64) {
    *rules = Rules::default();
    // There is always room for this one.
    let _: Result<(), RulesFull> = rules.add(&Scope::All, Force::Hard, epoch);
}

/// The purges that were noted.
fn rules_of(notes: &[Written]) -> Rules {
    let mut rules = Rules::default();
    for Written { run, payload } in notes {
        let added = noted(payload)
            .is_some_and(|(scope, force, epoch)| rules.add(&scope, force, stamp(*run, epoch)).is_ok());
        if !added {
            // Whatever it was, all before it may have been meant.
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

/// A purge as it is noted: what it meets and how, its number, and what of the scope is to be said.
fn note(scope: &Scope, force: Force, epoch: u64) -> Vec<u8> {
    let mut written = Vec::new();
    let (kind, rest): (u8, &[u8]) = match scope {
        Scope::All => (ALL, b""),
        Scope::Label(label) => (LABEL, &label.as_u64().to_le_bytes()),
        Scope::Prefix(prefix) => (PREFIX, prefix),
        Scope::Pattern(pattern) => {
            pattern.write(&mut written);
            (PATTERN, &written)
        }
    };
    let soft = if force == Force::Soft { SOFT } else { 0 };
    [&[kind | soft][..], &epoch.to_le_bytes(), rest].concat()
}

fn noted(payload: &[u8]) -> Option<(Scope, Force, u64)> {
    let (&first, rest) = payload.split_first()?;
    let (epoch, rest) = rest.split_first_chunk()?;
    let scope = match first & !SOFT {
        ALL => Scope::All,
        LABEL => Scope::Label(Label::from_u64(u64::from_le_bytes(rest.try_into().ok()?))),
        PREFIX => Scope::Prefix(rest.into()),
        PATTERN => Scope::Pattern(Pattern::read(rest)?),
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
            Scope::All,
            Scope::Label(Label::from_u64(u64::MAX - 1)),
            Scope::Prefix(b"http://a.example/"[..].into()),
            Scope::Pattern(Pattern::of_url(None, b"a", b"/*").expect("is short")),
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
        let notes: Vec<Written> = [(1, 5), (2, 1)]
            .map(|(run, epoch)| Written { run, payload: note(&Scope::Label(label), Force::Hard, epoch) })
            .into();
        let rules = rules_of(&notes[..1]);
        for (run, epoch, expected) in [(1, 4, Some(Force::Hard)), (1, 5, None), (1, 6, None), (2, 0, None)] {
            assert_eq!(rules.verdict(stamp(run, epoch), b"", &[label]), expected, "{run} {epoch}");
        }
        // The next process counts its own from one.
        let rules = rules_of(&notes);
        assert_eq!(rules.verdict(stamp(1, 900), b"", &[label]), Some(Force::Hard));
        assert_eq!(rules.verdict(stamp(2, 1), b"", &[label]), None);
    }

    #[test]
    fn a_note_that_says_nothing_may_have_meant_all() {
        let rules = rules_of(&[Written { run: 3, payload: b"?".to_vec() }]);
        assert_eq!(rules.verdict(stamp(3, 1000), b"", &[]), Some(Force::Hard));
        assert_eq!(rules.verdict(stamp(4, 0), b"", &[]), None);
    }
}
