//! The servers of an upstream and the rules for them: created from a configuration, shared by all workers.
//!
//! Changing state is in each server's `ServerHealth`. New servers, weights or rules make a new fleet, which takes over
//! the `ServerHealth`.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::breaker::{BreakerSettings, Flow, Passage, Turn};
use crate::eject::EjectionSettings;
use crate::hash::ServerId;
use crate::health::{Cause, Changes, InFlight, Outcome, ServerHealth};
use crate::policy::PolicyRow;
use crate::policy::maglev::Maglev;
use crate::time::Time;

/// The most servers in a fleet.
pub const SERVERS_MAX: usize = 16_384;
/// The highest weight.
pub const WEIGHT_MAX: u32 = 1000;

/// A server of a fleet.
#[derive(Debug, Clone)]
pub struct Member {
    /// The ID of the server, which it keeps over reloads.
    pub id: ServerId,
    /// The weight relative to the other servers, from 1 to `WEIGHT_MAX`.
    pub weight: u32,
    /// The priority group. The lowest number is used first, the next one if too few servers are up.
    pub priority: u16,
    /// The most requests in progress over all workers.
    pub in_flight_max: Option<NonZeroU32>,
    /// The state of the server, shared by all workers.
    pub health: Arc<ServerHealth>,
}

impl Member {
    /// A server without a limit on requests.
    pub fn new(id: ServerId, weight: u32, health: &Arc<ServerHealth>) -> Self {
        Self { id, weight, priority: 0, in_flight_max: None, health: Arc::clone(health) }
    }
}

/// The rules of a fleet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// How long a server that comes up takes to get its full weight; zero for at once.
    pub slow_start: Duration,
    /// The percentage of a priority group's weight that must be up; below it, the next group is used as well. At 0, one
    /// server suffices. At most 100.
    pub group_suffices_percent: u8,
    /// What to do while no server is up.
    pub none_up: NoneUp,
    /// For consistent hashing: the load at which keys go to other servers, in percent of a server's fair share; 125 is
    /// usual. `None` keeps keys on their server.
    pub load_bound_percent: Option<NonZeroU32>,
    /// How long a response influences a server's response time.
    pub latency_memory: Duration,
    /// The circuit breaker, if there is one.
    pub breaker: Option<BreakerSettings>,
    /// The passive ejection, if there is one.
    pub ejection: Option<EjectionSettings>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            slow_start: Duration::ZERO,
            group_suffices_percent: 0,
            none_up: NoneUp::TryAll,
            load_bound_percent: NonZeroU32::new(125),
            latency_memory: Duration::from_secs(10),
            breaker: None,
            ejection: None,
        }
    }
}

/// What to do while checks and ejections leave no server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoneUp {
    /// Ask the servers as if all were up, except drained ones and open circuits: if all checks fail, the checks are
    /// probably wrong, and trying costs less than an outage.
    TryAll,
    /// Reject requests.
    Refuse,
    /// Reject requests, and say that this is a mistake of the configuration: there is nobody to wait for.
    Fail,
}

/// The servers of an upstream. A server is identified by its index in the list that the fleet was created from.
#[derive(Debug)]
pub struct Fleet {
    pub(crate) members: Box<[Member]>,
    pub(crate) settings: Settings,
    pub(crate) policy: &'static PolicyRow,
    /// Server indices by priority, then by index.
    pub(crate) by_priority: Box<[u32]>,
    /// Server indices by ID.
    by_id: Box<[(ServerId, u32)]>,
    /// The hash table, for policies that hash.
    pub(crate) maglev: Option<Maglev>,
    pub(crate) changes: Arc<Changes>,
    /// Whether servers are compared for ejection; never with a single server.
    compares: bool,
    /// Held while a server is ejected, so that two threads never eject the last two servers at once.
    pub(crate) is_ejecting: AtomicBool,
}

/// A change of a server's state at the end of a request, for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The server is ejected until this time.
    Ejected(Time),
    /// The server's circuit is open until this time.
    CircuitOpened(Time),
    /// The server's circuit is closed again.
    CircuitClosed,
}

impl Fleet {
    /// A fleet of these servers.
    ///
    /// # Panics
    /// Without servers or with more than `SERVERS_MAX`, with an invalid weight, with a repeated ID, or if the members
    /// do not share their `Changes`: no configuration gives these.
    pub fn new(policy: &'static PolicyRow, members: Vec<Member>, settings: Settings) -> Self {
        assert!((1..=SERVERS_MAX).contains(&members.len()), "a fleet has servers, and a limited number");
        assert!(
            members.iter().all(|member| (1..=WEIGHT_MAX).contains(&member.weight)),
            "weights are positive"
        );
        let changes = Arc::clone(members[0].health.changes());
        let shares_changes = |member: &Member| Arc::ptr_eq(member.health.changes(), &changes);
        assert!(members.iter().all(shares_changes), "the standings of a fleet share their changes");
        let mut by_id: Box<[_]> = members.iter().map(|member| member.id).zip(0..).collect();
        by_id.sort_unstable();
        assert!(by_id.windows(2).all(|pair| pair[0].0 != pair[1].0), "an id names one server");
        let mut by_priority: Box<[u32]> = (0..).take(members.len()).collect();
        by_priority.sort_by_key(|&server| members[server as usize].priority);
        let shares = || members.iter().map(|member| (member.id, member.weight));
        Self {
            maglev: policy.hashes.then(|| Maglev::new(shares())),
            compares: settings.ejection.is_some() && members.len() > 1,
            members: members.into_boxed_slice(),
            settings,
            policy,
            by_priority,
            by_id,
            changes,
            is_ejecting: AtomicBool::new(false),
        }
    }

    /// The servers.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The rules.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether the policy chooses by a key.
    pub fn hashes(&self) -> bool {
        self.policy.hashes
    }

    /// Whether the policy needs response times.
    pub fn measures(&self) -> bool {
        self.policy.measures
    }

    /// Whether every response must be timed, for the policy or for ejection.
    pub fn times_all(&self) -> bool {
        let latency_factor = self.settings.ejection.and_then(|ejection| ejection.latency_factor);
        self.policy.measures || (self.compares && latency_factor.is_some())
    }

    /// The index of the server with this ID.
    pub fn index_of(&self, id: ServerId) -> Option<usize> {
        let found = self.by_id.binary_search_by_key(&id, |(known, _)| *known).ok()?;
        Some(self.by_id[found].1 as usize)
    }

    /// Starts a request to a server; it counts as in progress until the returned value is dropped. `None` if the server
    /// has reached its limit meanwhile.
    #[inline]
    pub fn begin(&self, server: usize) -> Option<InFlight> {
        let member = &self.members[server];
        InFlight::begin(Arc::clone(&member.health), member.in_flight_max)
    }

    /// The server's response time as the policy sees it; `None` if it is unknown, or not measured.
    pub fn response_time(&self, server: usize, now: Time) -> Option<Duration> {
        let micros = self.members[server].health.latency.micros(now, self.settings.latency_memory);
        (self.policy.measures && micros > 0.0).then(|| Duration::from_micros(micros as u64))
    }

    /// What the server's circuit lets through.
    pub fn flow(&self, server: usize, now: Time) -> Flow {
        match &self.settings.breaker {
            Some(settings) => self.members[server].health.breaker.flow(settings, now),
            None => Flow::Closed,
        }
    }

    /// Passes the server's circuit: call it for each pick, before the request is sent. `None` if another worker has
    /// taken the last slot.
    #[inline]
    pub fn enter(&self, server: usize, now: Time) -> Option<Passage> {
        match &self.settings.breaker {
            Some(settings) => self.members[server].health.breaker.enter(settings, now),
            None => Some(Passage::Whole),
        }
    }

    /// Reports the end of a request that passed no circuit, or a closed one.
    #[inline]
    pub fn end(&self, server: usize, outcome: Outcome, now: Time) -> Option<Event> {
        self.end_passed(server, Passage::Whole, outcome, now)
    }

    /// Reports the end of a request that passed its circuit like this. Call it once per sent request.
    #[inline]
    pub fn end_passed(&self, server: usize, passage: Passage, outcome: Outcome, now: Time) -> Option<Event> {
        let health = &self.members[server].health;
        let failures_in_a_row = health.count(outcome);
        if self.compares {
            health.add_to_interval(outcome);
        }
        if self.policy.measures {
            match outcome {
                Outcome::Answered(None) => {}
                Outcome::Answered(Some(latency)) => {
                    health.latency.answered(latency, now, self.settings.latency_memory);
                }
                Outcome::Failed => health.latency.failed(now, self.settings.latency_memory),
                Outcome::Abandoned => {}
            }
        }
        if let Some(event) = self.turn_circuit(health, passage, outcome, now) {
            return Some(event);
        }
        let ejection = self.settings.ejection.as_ref()?;
        let is_enough = ejection.failures_in_a_row.is_some_and(|enough| failures_in_a_row >= enough.get());
        if is_enough && self.fails_more_than_another(server) {
            self.eject(server, now).ok().map(Event::Ejected)
        } else {
            None
        }
    }

    /// Ends the ejection of a server that was asked nevertheless, and has responded. Returns whether it was ejected.
    pub fn revive(&self, server: usize, now: Time) -> bool {
        self.members[server].health.restore(Cause::Ejection, now)
    }

    fn turn_circuit(
        &self,
        health: &ServerHealth,
        passage: Passage,
        outcome: Outcome,
        now: Time,
    ) -> Option<Event> {
        let settings = self.settings.breaker.as_ref()?;
        let turn = match outcome {
            Outcome::Answered(_) => health.breaker.succeeded(settings, passage),
            Outcome::Failed => health.breaker.failed(settings, passage, now),
            Outcome::Abandoned => {
                health.breaker.abandoned(passage);
                None
            }
        }?;
        if turn == Turn::Closed {
            health.starts_slowly(now);
        }
        health.changed();
        Some(match turn {
            Turn::Opened(until) => Event::CircuitOpened(until),
            Turn::Closed => Event::CircuitClosed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::State;
    use crate::policy;

    fn fleet(servers: u64, settings: Settings) -> Fleet {
        let changes = Arc::default();
        let member = |id| Member::new(ServerId::from_u64(id), 1, &ServerHealth::new(&changes));
        Fleet::new(policy::DEFAULT, (0..servers).map(member).collect(), settings)
    }

    #[test]
    fn servers_are_found_by_id() {
        let fleet = fleet(9, Settings::default());
        for server in 0..9 {
            assert_eq!(fleet.index_of(ServerId::from_u64(server as u64)), Some(server));
        }
        assert_eq!(fleet.index_of(ServerId::from_u64(9)), None);
    }

    #[test]
    fn failures_in_a_row_eject_a_server_but_the_last() {
        let ejection = EjectionSettings { failures_in_a_row: NonZeroU32::new(2), ..Default::default() };
        let fleet = fleet(2, Settings { ejection: Some(ejection), ..Settings::default() });
        let (now, until) = (Time::START, Time::START + ejection.base);
        assert_eq!(fleet.end(0, Outcome::Failed, now), None);
        assert_eq!(fleet.end(0, Outcome::Abandoned, now), None);
        assert_eq!(fleet.end(0, Outcome::Failed, now), Some(Event::Ejected(until)));
        assert_eq!(fleet.members()[0].health.state(), State::Ejected);
        for _ in 0..9 {
            assert_eq!(fleet.end(1, Outcome::Failed, now), None, "the last one stays");
        }
        assert_eq!(fleet.members()[1].health.state(), State::Up);
    }

    #[test]
    fn a_circuit_that_closes_is_a_change_and_a_slow_start() {
        let breaker = BreakerSettings { failures: 1, successes: 1, ..BreakerSettings::default() };
        let fleet = fleet(1, Settings { breaker: Some(breaker), ..Settings::default() });
        let health = &fleet.members()[0].health;
        let until = Time::START + breaker.open;
        assert_eq!(fleet.end(0, Outcome::Failed, Time::START), Some(Event::CircuitOpened(until)));
        assert_eq!(fleet.enter(0, until), Some(Passage::Probe));
        let answered = Outcome::Answered(Some(Duration::from_millis(1)));
        assert_eq!(fleet.end(0, answered, until), None, "sent before it opened");
        assert_eq!(fleet.end_passed(0, Passage::Probe, answered, until), Some(Event::CircuitClosed));
        assert_eq!((health.returned_at(), fleet.changes.count()), (Some(until), 2));
    }

    #[test]
    #[should_panic(expected = "an id names one server")]
    fn an_id_names_one_server() {
        let health = ServerHealth::new(&Arc::default());
        let member = Member::new(ServerId::from_u64(1), 1, &health);
        Fleet::new(policy::DEFAULT, vec![member.clone(), member], Settings::default());
    }

    #[test]
    fn what_is_stopped_stays_stopped_in_the_next_fleet() {
        let before = fleet(1, Settings::default());
        before.members()[0].health.stop(Cause::Drain);
        let after = Fleet::new(policy::DEFAULT, before.members().to_vec(), Settings::default());
        assert_eq!(after.members()[0].health.state(), State::Draining);
    }
}
