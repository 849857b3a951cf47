//! How many stored responses purges have met: found by a look at each, a shard's at a time.

use crate::purge::{Force, Scope};
use crate::store::object::Object;
use crate::store::{Store, lock};

/// A purge that is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub(crate) scope: Scope,
    pub(crate) force: Force,
    pub(crate) epoch: u64,
}

/// What purges have met in memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Met {
    /// Responses that each of the purges has met.
    pub by_rule: Vec<usize>,
    /// Responses that any has met.
    pub responses: usize,
}

impl Rule {
    fn meets(&self, object: &Object) -> bool {
        object.epoch() < self.epoch
            && match &self.scope {
                Scope::All => true,
                Scope::Label(label) => object.labels().contains(label),
                Scope::Prefix(prefix) => object.key_text().starts_with(prefix),
                Scope::Pattern(pattern) => pattern.meets(object.key_text()),
            }
    }
}

impl Store {
    /// Counts what these purges have made unusable, and frees it. What had been purged before is not counted. It takes as
    /// long as there are responses times purges, and holds up look-ups of a shard at a time.
    pub fn count(&self, rules: &[Rule]) -> Met {
        let mut met = Met { by_rule: vec![0; rules.len()], responses: 0 };
        let Some(first) = rules.iter().map(|rule| rule.epoch).min() else { return met };
        let _round = self.round();
        for shard in &self.shards {
            lock(shard).sweep(|object| {
                // A look-up may have found the purge already.
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
