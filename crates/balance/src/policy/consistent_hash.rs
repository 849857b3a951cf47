//! Consistent hashing with bounded load: a key goes to one server. If that has far more than its share in progress, the
//! key goes to another, always the same one while the overload lasts.
//!
//! Mirrokni, Thorup and Zadimoghaddam, "Consistent hashing with bounded loads" (2016), with random jumps as in Chen,
//! Coleman and Shrivastava, "Revisiting consistent hashing with bounded loads" (2021).

use crate::picker::Candidates;
use crate::time::Time;

/// How many servers' loads are added up per pick on average, if picks follow closely: the sum is renewed after one pick
/// for each this many servers.
const ADDED_PER_PICK: usize = 16;

#[derive(Debug, Clone, Default)]
pub(crate) struct ConsistentHash {
    weight: u64,
    /// The load of all servers when it was last added up.
    load: u64,
    /// The number of picks until the load is added up again.
    picks_left: usize,
    added_at: Time,
}

impl ConsistentHash {
    pub(crate) fn arrange(&mut self, weights: &[u32]) {
        self.weight = weights.iter().map(|&weight| u64::from(weight)).sum();
        // Other servers, another sum: the next pick adds up again.
        self.picks_left = 0;
    }

    #[inline]
    pub(crate) fn pick(&mut self, candidates: &Candidates<'_>) -> Option<usize> {
        let maglev = candidates.fleet.maglev.as_ref()?;
        let key = candidates.ask.key.unwrap_or(candidates.ask.random);
        let Some(percent) = candidates.fleet.settings.load_bound_percent else {
            return maglev.find(candidates, key, |place| candidates.allows(place));
        };
        self.add_up(candidates);
        // A bound below the share itself would leave no server for some keys.
        let allowed = (self.load + 1) * u64::from(percent.get().max(101));
        let weight_in_percent = self.weight * 100;
        maglev.find(candidates, key, |place| {
            // Rounded up, as in the paper: rounded down, light servers could never take a request.
            let bound = (allowed * u64::from(candidates.weight(place))).div_ceil(weight_in_percent);
            u64::from(candidates.health(place).in_flight()) < bound && candidates.allows(place)
        })
    }

    fn add_up(&mut self, candidates: &Candidates<'_>) {
        // Also after a time without picks, when the requests of the old sum have ended long ago.
        if self.picks_left == 0 || self.added_at != candidates.ask.now {
            self.added_at = candidates.ask.now;
            let load = |place| u64::from(candidates.health(place).in_flight());
            self.load = (0..candidates.len()).map(load).sum();
            self.picks_left = candidates.len() / ADDED_PER_PICK;
        } else {
            self.picks_left -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::fleet::{Fleet, FleetMember, FleetSettings};
    use crate::hash::{ServerId, mix};
    use crate::health::ServerHealth;
    use crate::picker::{Pick, PickInput, Picker};
    use crate::policy::policy;
    use crate::time::Time;

    fn picker(servers: u64, settings: FleetSettings) -> Picker {
        let changes = Arc::default();
        let member = |id| FleetMember::new(ServerId::from_u64(id), 1, &ServerHealth::new(&changes));
        let row = policy("consistent-hash").expect("a policy");
        Picker::new(Arc::new(Fleet::new(row, (0..servers).map(member).collect(), settings)), 0)
    }

    fn picked(picker: &mut Picker, key: u64) -> usize {
        picked_at(picker, key, Time::START)
    }

    fn picked_at(picker: &mut Picker, key: u64, now: Time) -> usize {
        match picker.pick(&PickInput { now, random: 0, key: Some(key), tried: &[] }) {
            Pick::Server(server) => server,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_busy_key_stays_within_the_bound_and_others_stay_where_they_are() {
        for servers in [10, 100] {
            let mut picker = picker(servers, FleetSettings::default());
            let fleet = Arc::clone(picker.fleet());
            let busy_key = mix(7);
            let mut under_way = Vec::new();
            for begun in 1..=100 * servers {
                under_way.push(fleet.begin(picked(&mut picker, busy_key)));
                let most = fleet.members().iter().map(|member| member.health.in_flight()).max();
                let bound = (begun as f64 * 1.25 / servers as f64).ceil() as u32;
                assert!(most.is_some_and(|most| most <= bound), "{most:?} of {begun} with one server");
            }
        }
    }

    #[test]
    fn without_a_bound_a_key_stays_whatever_is_under_way() {
        let mut picker = picker(10, FleetSettings { load_bound_percent: None, ..FleetSettings::default() });
        let fleet = Arc::clone(picker.fleet());
        let server = picked(&mut picker, 1);
        let _under_way: Vec<_> = (0..1000).map(|_| fleet.begin(server)).collect();
        assert_eq!(picked(&mut picker, 1), server);
    }

    #[test]
    fn an_outdated_sum_of_requests_bounds_nothing() {
        let mut picker = picker(64, FleetSettings::default());
        let fleet = Arc::clone(picker.fleet());
        let key = mix(7);
        let server = picked(&mut picker, key);
        // The sum was taken without requests. Now each server has a few, and one more must not move a key.
        let _under_way: Vec<_> = (0..64 * 4).map(|request| fleet.begin(request % 64)).collect();
        assert_eq!(picked_at(&mut picker, key, Time::from_millis(5000)), server);
    }
}
