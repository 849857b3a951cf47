//! Purges stored responses in all spaces, and counts the matches.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ::cache::{Force, MemoryStore, Ordered, PurgeRule, PurgeTarget, RulesFull, Space};
use tokio::sync::oneshot;

use super::Cache;
use api::cache::{PurgeMatch, Purged};

impl Cache {
    /// Purges the named responses in all spaces, for all workers. [`Purging::count`] counts the matches.
    ///
    /// # Errors
    /// If the maximum number of purge rules is reached; some of the purges may be done then.
    pub fn purge(&self, spaces: &[Space], named: &[PurgeTarget], force: Force) -> Result<Purging, RulesFull> {
        let now_ms = unix_ms();
        // Counted before the purge, which removes records.
        let disk_records = self.second_tier.counters().map_or(0, |counters| counters.records);
        let purge = |each: &PurgeTarget| {
            Ok((each.clone(), each.purge(&self.store, self.secret, spaces, force, now_ms)?))
        };
        let ordered = named.iter().map(purge).collect::<Result<_, RulesFull>>()?;
        if let Some(hot) = self.hot.get() {
            // The owner may still have the response, and copies have no tags. So all copies are dropped, and not kept
            // again for a while.
            for key in hot.hold_off(now_ms / 1000) {
                self.store.purge_key(key, Force::Hard);
            }
        }
        Ok(Purging { store: Arc::clone(&self.store), ordered, disk_records })
    }

    /// Passes a purge on to the next process, if there is one. The receiver reports when it is done there.
    pub fn hand_on(&self, named: Vec<PurgeTarget>, force: Force) -> Option<oneshot::Receiver<()>> {
        self.successor.tell(named, force)
    }
}

/// Purges that are in force, but whose matches are not counted yet.
pub struct Purging {
    store: Arc<MemoryStore>,
    pub(crate) ordered: Vec<(PurgeTarget, Ordered)>,
    /// Responses that the disk had before.
    disk_records: u64,
}

impl Purging {
    /// Whether counting must visit all stored responses.
    pub(crate) fn has_rules(&self) -> bool {
        self.ordered.iter().any(|(_, ordered)| !ordered.rules.is_empty())
    }

    /// Counts the matches in memory, and on the disk those by URL or of everything. Other matches on the disk are
    /// unknown until they are read.
    pub fn count(self) -> Purged {
        let rules: Vec<PurgeRule> =
            self.ordered.iter().flat_map(|(_, ordered)| ordered.rules.clone()).collect();
        let met = self.store.count(&rules);
        let mut by_rule = met.by_rule.into_iter();
        let mut purged = Purged { named: self.ordered.len(), responses: met.responses, ..Purged::default() };
        for (named, Ordered { responses, rules }) in self.ordered {
            purged.responses += responses;
            let mut count = responses + by_rule.by_ref().take(rules.len()).sum::<usize>();
            if named == PurgeTarget::All {
                let on_disk = usize::try_from(self.disk_records).unwrap_or(usize::MAX);
                // The disk may have all that memory has, so the larger count is reported.
                (count, purged.responses) = (count.max(on_disk), purged.responses.max(on_disk));
            } else if !rules.is_empty() {
                purged.is_more_on_disk |= self.disk_records > 0;
            }
            purged.met.push(PurgeMatch { what: named.to_string(), responses: count });
        }
        purged
    }
}

/// Unix time in milliseconds from the system clock, because the control thread has no worker's clock.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
