//! Counts the stored responses that purges have matched, by visiting each response, one shard at a time.

use crate::purge::{Force, PurgeScope};
use crate::store::object::Object;
use crate::store::{MemoryStore, lock};

/// A purge in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgeRule {
    pub(crate) scope: PurgeScope,
    pub(crate) force: Force,
    pub(crate) epoch: u64,
}

/// The responses in memory that purges have matched.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Met {
    /// The number of matching responses for each purge.
    pub by_rule: Vec<usize>,
    /// The number of responses that match any purge.
    pub responses: usize,
}

impl PurgeRule {
    fn meets(&self, object: &Object) -> bool {
        object.epoch() < self.epoch
            && match &self.scope {
                PurgeScope::All => true,
                PurgeScope::Label(label) => object.labels().contains(label),
                PurgeScope::Prefix(prefix) => object.key_text().starts_with(prefix),
                PurgeScope::Pattern(pattern) => pattern.meets(object.key_text()),
            }
    }
}

impl MemoryStore {
    /// Counts and frees the responses that these purges have matched; earlier purges do not count. Takes time in
    /// proportion to responses times purges, and locks one shard at a time.
    pub fn count(&self, rules: &[PurgeRule]) -> Met {
        let mut met = Met { by_rule: vec![0; rules.len()], responses: 0 };
        let Some(first) = rules.iter().map(|rule| rule.epoch).min() else { return met };
        let _round = self.round();
        for shard in &self.shards {
            lock(shard).sweep(|object| {
                // A lookup may have applied the purge already.
                let is_known = object.checked() >= first;
                let (was_gone, was_stale) = (object.is_gone(), object.is_softly_purged());
                self.is_good(object);
                let mut is_met = false;
                for (rule, count) in rules.iter().zip(&mut met.by_rule) {
                    let was_purged = was_gone || (was_stale && rule.force == Force::Soft);
                    if (is_known || !was_purged) && rule.meets(object) {
                        *count += 1;
                        is_met = true;
                    }
                }
                met.responses += usize::from(is_met);
            });
        }
        met
    }
}
