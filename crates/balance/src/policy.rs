//! Load balancing policies. Each is one file, one variant of `Policy` and one row of `POLICIES`.
//!
//! A policy chooses among the servers of a `View`, by their places in it; the view decides which servers are available.

/// Weighted round robin.
pub(crate) mod round_robin;
/// Least requests in progress, by weight.
mod least_connections;
/// Two random choices and one remembered server, of which the least busy is taken.
mod two_choices;
/// Two random choices and one remembered server, of which the fastest is taken.
mod response_time;
/// Hash of the client address.
mod client_address;
/// Consistent hashing with bounded load.
mod consistent_hash;
/// Weighted random choice.
mod draw;
/// Requests in progress relative to weight.
mod load;
/// The Maglev hash table.
pub(crate) mod maglev;

pub use client_address::{AddressPrefixes, client_key};

use self::client_address::ClientAddress;
use self::consistent_hash::ConsistentHash;
use self::least_connections::LeastConnections;
use self::response_time::ResponseTime;
use self::round_robin::RoundRobin;
use self::two_choices::TwoChoices;
use crate::picker::Candidates;

/// In the order of documentation; the first is the default.
pub static POLICIES: [PolicyRow; 6] = [
    PolicyRow {
        name: "round-robin",
        what: "servers take turns, by weight",
        hashes: false,
        measures: false,
        build: |servers, seed| BalancePolicy::RoundRobin(RoundRobin::among(servers, seed)),
    },
    PolicyRow {
        name: "least-connections",
        what: "the server with the fewest running requests for its weight",
        hashes: false,
        measures: false,
        build: |servers, seed| BalancePolicy::LeastConnections(LeastConnections::new(servers, seed)),
    },
    PolicyRow {
        name: "two-choices",
        what: "the least busy of two random servers, drawn by weight, and the best of the last choice",
        hashes: false,
        measures: false,
        build: |servers, _| BalancePolicy::TwoChoices(TwoChoices::new(servers)),
    },
    PolicyRow {
        name: "response-time",
        what: "of two random servers, drawn by weight, and the best of the last choice, the one likely to respond \
               first",
        hashes: false,
        measures: true,
        build: |servers, _| BalancePolicy::ResponseTime(ResponseTime::new(servers)),
    },
    PolicyRow {
        name: "client-address",
        what: "always the same server for a client address",
        hashes: true,
        measures: false,
        build: |_, _| BalancePolicy::ClientAddress(ClientAddress),
    },
    PolicyRow {
        name: "consistent-hash",
        what: "always the same server for a key, unless it is far busier than the others",
        hashes: true,
        measures: false,
        build: |_, _| BalancePolicy::ConsistentHash(ConsistentHash::default()),
    },
];

pub static DEFAULT: &PolicyRow = &POLICIES[0];

/// A load balancing policy, as the configuration knows it.
#[derive(Debug, Clone, Copy)]
pub struct PolicyRow {
    pub name: &'static str,
    /// A description in half a sentence.
    pub what: &'static str,
    /// Whether the policy chooses by `Ask::key`.
    pub hashes: bool,
    /// Whether the policy needs response times, and thus a clock.
    pub measures: bool,
    /// Creates the policy's state for this many servers. `seed` differs between workers.
    pub(crate) build: fn(servers: usize, seed: u64) -> BalancePolicy,
}

/// Compares by name; names are unique.
impl PartialEq for PolicyRow {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for PolicyRow {}

pub fn policy(name: &str) -> Option<&'static PolicyRow> {
    POLICIES.iter().find(|row| row.name == name)
}

/// A policy, and one worker's state for it.
#[derive(Debug, Clone)]
pub(crate) enum BalancePolicy {
    RoundRobin(RoundRobin),
    LeastConnections(LeastConnections),
    TwoChoices(TwoChoices),
    ResponseTime(ResponseTime),
    ClientAddress(ClientAddress),
    ConsistentHash(ConsistentHash),
}

impl BalancePolicy {
    /// The place of the server for a request. `None` if no candidate is allowed.
    #[inline]
    pub(crate) fn pick(&mut self, candidates: &Candidates<'_>) -> Option<usize> {
        match self {
            BalancePolicy::RoundRobin(policy) => policy.pick_from(candidates),
            BalancePolicy::LeastConnections(policy) => policy.pick(candidates),
            BalancePolicy::TwoChoices(policy) => policy.pick(candidates),
            BalancePolicy::ResponseTime(policy) => policy.pick(candidates),
            BalancePolicy::ClientAddress(policy) => policy.pick(candidates),
            BalancePolicy::ConsistentHash(policy) => policy.pick(candidates),
        }
    }

    /// Applies new weights of the servers.
    pub(crate) fn arrange(&mut self, weights: &[u32]) {
        match self {
            BalancePolicy::RoundRobin(policy) => policy.arrange(weights),
            BalancePolicy::LeastConnections(policy) => policy.arrange(weights),
            BalancePolicy::TwoChoices(policy) => policy.arrange(weights),
            BalancePolicy::ResponseTime(policy) => policy.arrange(weights),
            BalancePolicy::ClientAddress(_) => {}
            BalancePolicy::ConsistentHash(policy) => policy.arrange(weights),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::Arc;

    use super::*;
    use crate::fleet::{Fleet, FleetMember, FleetSettings, NoneUp};
    use crate::hash::{ServerId, mix};
    use crate::health::{HealthState, IneligibleCause, ServerHealth};
    use crate::picker::{Pick, PickInput, Picker, Room, SessionLoss};
    use crate::time::Time;

    fn fleet(policy: &'static PolicyRow, weights: &[u32], limit: Option<u32>) -> Arc<Fleet> {
        let changes = Arc::default();
        let member = |(id, &weight): (u64, &u32)| FleetMember {
            in_flight_max: limit.and_then(NonZeroU32::new),
            ..FleetMember::new(ServerId::from_u64(id), weight, &ServerHealth::new(&changes))
        };
        let settings = FleetSettings { none_up: NoneUp::Refuse, ..FleetSettings::default() };
        Arc::new(Fleet::new(policy, (0..).zip(weights).map(member).collect(), settings))
    }

    fn ask(turn: u64, tried: &[usize]) -> PickInput<'_> {
        PickInput { now: Time::START, random: mix(turn), key: Some(mix(!turn)), tried }
    }

    #[test]
    fn every_policy_serves_one_server_and_several() {
        for row in &POLICIES {
            let mut one = Picker::new(fleet(row, &[7], None), 1);
            assert_eq!(one.pick(&ask(0, &[])), Pick::Server(0), "{}", row.name);
            assert_eq!(one.pick(&ask(1, &[0])), Pick::None, "{}", row.name);
            let mut three = Picker::new(fleet(row, &[1, 2, 3], None), 1);
            let mut tried = Vec::new();
            for turn in 0..3 {
                let Pick::Server(server) = three.pick(&ask(turn, &tried)) else { panic!("{}", row.name) };
                assert!(!tried.contains(&server), "{}: each server once", row.name);
                tried.push(server);
            }
            assert_eq!(three.pick(&ask(3, &tried)), Pick::None, "{}", row.name);
        }
    }

    #[test]
    fn shares_are_the_weights_under_every_policy() {
        let weights = [1, 2, 3, 4, 2, 8];
        let total: u32 = weights.iter().sum();
        const REQUESTS: u64 = 100_000;
        for row in &POLICIES {
            let mut picker = Picker::new(fleet(row, &weights, None), 3);
            let mut counts = [0u32; 6];
            for turn in 0..REQUESTS {
                let Pick::Server(server) = picker.pick(&ask(turn, &[])) else { panic!("{}", row.name) };
                counts[server] += 1;
            }
            // Without requests in progress, only the weight counts. Response time is tested below with equal weights,
            // because for it a heavier server is a faster one.
            if row.measures {
                continue;
            }
            for (count, weight) in counts.into_iter().zip(weights) {
                let share = f64::from(count) / REQUESTS as f64;
                let due = f64::from(weight) / f64::from(total);
                assert!((share - due).abs() < 0.005, "{}: {counts:?}", row.name);
            }
        }
    }

    #[test]
    fn equal_servers_have_equal_shares_under_every_policy() {
        for row in &POLICIES {
            let mut picker = Picker::new(fleet(row, &[5; 8], None), 3);
            let mut counts = [0i64; 8];
            for turn in 0..80_000 {
                let Pick::Server(server) = picker.pick(&ask(turn, &[])) else { panic!("{}", row.name) };
                counts[server] += 1;
            }
            let chi_square: f64 = counts.iter().map(|count| ((count - 10_000) as f64).powi(2) / 1e4).sum();
            // 7 degrees of freedom: chance exceeds 24.3 once in a thousand; a Maglev table adds a little.
            assert!(chi_square < 24.3, "{}: {chi_square}, {counts:?}", row.name);
        }
    }

    #[test]
    fn servers_that_are_full_or_stopped_are_passed_over_under_every_policy() {
        for row in &POLICIES {
            let fleet = fleet(row, &[1, 9, 1, 1], Some(1));
            let mut picker = Picker::new(Arc::clone(&fleet), 3);
            let _busy = fleet.begin(1).expect("room");
            assert!(fleet.begin(1).is_none());
            fleet.members()[2].health.stop(IneligibleCause::Check);
            for turn in 0..100 {
                let pick = picker.pick(&ask(turn, &[3]));
                assert_eq!(pick, Pick::Server(0), "{}", row.name);
                assert_eq!(picker.pick(&ask(turn, &[0, 3])), Pick::Full, "{}", row.name);
            }
            fleet.members()[1].health.stop(IneligibleCause::Drain);
            assert_eq!(picker.pick(&ask(0, &[0, 3])), Pick::None, "{}", row.name);
        }
    }

    #[test]
    fn the_last_resort_is_one_that_is_ejected_then_one_that_is_down() {
        let fleet = fleet(DEFAULT, &[1, 1, 1, 1], None);
        let picker = Picker::new(Arc::clone(&fleet), 3);
        let tried = [0];
        let of = |random| picker.last_resort(&ask(random, &tried));
        assert_eq!(of(0), None, "those that are up are for `pick`");
        fleet.members()[1].health.stop(IneligibleCause::Check);
        assert_eq!(of(0), Some(1));
        [2, 3]
            .iter()
            .for_each(|&server| assert!(fleet.members()[server].health.stop(IneligibleCause::Ejection)));
        let found: Vec<_> = (0..20).map(of).collect();
        assert!(found.iter().all(|server| matches!(server, Some(2 | 3))), "{found:?}");
        assert!(found.contains(&Some(2)) && found.contains(&Some(3)), "{found:?}");
        [1, 2, 3]
            .iter()
            .for_each(|&server| assert!(fleet.members()[server].health.stop(IneligibleCause::Drain)));
        assert_eq!(of(0), None, "one that drains stays alone");
        fleet.members()[2].health.restore(IneligibleCause::Drain, Time::START);
        assert!(fleet.revive(2, Time::START) && !fleet.revive(2, Time::START));
        assert_eq!(fleet.members()[2].health.state(), HealthState::Up);
    }

    #[test]
    fn sessions_stay_for_as_long_as_their_server_may_be_asked() {
        let fleet = fleet(DEFAULT, &[1, 1], Some(1));
        let mut picker = Picker::new(Arc::clone(&fleet), 3);
        let id = |server: usize| fleet.members()[server].id;
        let health = &fleet.members()[0].health;
        let ask = ask(0, &[]);
        assert_eq!(picker.follow(ServerId::from_u64(77), &ask), Err(SessionLoss::Removed));
        assert_eq!(picker.follow(id(0), &ask), Ok(0));
        health.stop(IneligibleCause::Drain);
        assert_eq!(picker.follow(id(0), &ask), Ok(0), "a server that drains keeps its sessions");
        assert_eq!(picker.pick(&ask), Pick::Server(1), "and gets no new ones");
        health.stop(IneligibleCause::Check);
        assert_eq!(picker.follow(id(0), &ask), Err(SessionLoss::Stopped));
        health.restore(IneligibleCause::Check, Time::START);
        assert_eq!(picker.follow(id(0), &PickInput { tried: &[0], ..ask }), Err(SessionLoss::Tried));
        let _busy = fleet.begin(0);
        assert_eq!(picker.follow(id(0), &ask), Err(SessionLoss::Full));
    }

    #[test]
    fn a_disabled_server_gets_nothing_not_even_as_the_last_resort() {
        let fleet = fleet(DEFAULT, &[1, 1], None);
        let mut picker = Picker::new(Arc::clone(&fleet), 3);
        let [disabled, other] = [0, 1].map(|server: usize| &fleet.members()[server].health);
        let (ask, id) = (ask(0, &[]), fleet.members()[0].id);
        disabled.stop(IneligibleCause::Disabled);
        assert_eq!(disabled.state(), HealthState::Down);
        assert_eq!(picker.follow(id, &ask), Err(SessionLoss::Stopped), "its sessions move");
        assert_eq!(picker.pick(&ask), Pick::Server(1));
        // A server that checks have found down is used after all others were tried.
        other.stop(IneligibleCause::Check);
        assert_eq!(picker.last_resort(&ask), Some(1));
        let tried = PickInput { tried: &[1], ..ask };
        assert_eq!((picker.last_resort(&tried), picker.has_untried(&tried, Room::OrNot)), (None, false));
        // Successful checks do not bring it back.
        disabled.stop(IneligibleCause::Check);
        disabled.restore(IneligibleCause::Check, Time::START);
        assert_eq!(disabled.state(), HealthState::Down);
        disabled.restore(IneligibleCause::Disabled, Time::START);
        assert_eq!(picker.follow(id, &ask), Ok(0));
    }
}
