//! The servers of an upstream and the rules for them: created from a configuration, shared by all workers.
//!
//! Changing state is in each server's `ServerHealth`. New servers, weights or rules make a new fleet, which takes over
//! the `ServerHealth`.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::breaker::{BreakerSettings, BreakerTurn, Flow, Passage};
use crate::eject::EjectionSettings;
use crate::hash::ServerId;
use crate::health::{Changes, InFlight, IneligibleCause, RequestOutcome, ServerHealth};
use crate::policy::PolicyRow;
use crate::policy::maglev::Maglev;
use crate::time::Time;

// Places of the hash table are two bytes, and its largest size gives each of so many servers about 500 places.
pub const SERVERS_MAX: usize = 16_384;
pub const WEIGHT_MAX: u32 = 1000;

#[derive(Debug, Clone)]
pub struct FleetMember {
    /// The server keeps it over reloads.
    pub id: ServerId,
    /// Relative to the other servers, from 1 to `WEIGHT_MAX`.
    pub weight: u32,
    /// The priority group. The lowest number is used first, the next one if too few servers are up.
    pub priority: u16,
    /// Limit on requests in progress over all workers.
    pub in_flight_max: Option<NonZeroU32>,
    pub health: Arc<ServerHealth>,
}

impl FleetMember {
    /// A server without a limit on requests.
    pub fn new(id: ServerId, weight: u32, health: &Arc<ServerHealth>) -> Self {
        Self { id, weight, priority: 0, in_flight_max: None, health: Arc::clone(health) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FleetSettings {
    /// How long a server that comes up takes to get its full weight; zero for at once.
    pub slow_start: Duration,
    /// The percentage of a priority group's weight that must be up. Below it, the next group is used as well. At 0, one
    /// server suffices. At most 100.
    pub group_suffices_percent: u8,
    pub none_up: NoneUp,
    /// For consistent hashing: the load at which keys go to other servers, in percent of a server's fair share; 125 is
    /// usual. `None` keeps keys on their server.
    pub load_bound_percent: Option<NonZeroU32>,
    /// How long a response influences a server's response time.
    pub latency_memory: Duration,
    pub breaker: Option<BreakerSettings>,
    pub ejection: Option<EjectionSettings>,
}

impl Default for FleetSettings {
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

/// The reaction while checks and ejections leave no server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoneUp {
    /// Uses the servers as if all were up, except drained ones and open circuits. If all checks fail, the checks are
    /// probably wrong, and trying costs less than an outage.
    TryAll,
    /// Rejects requests.
    Refuse,
    /// Rejects requests as a mistake of the configuration: waiting for a server is useless.
    Fail,
}

/// The servers of an upstream. A server is identified by its index in the list that the fleet was created from.
#[derive(Debug)]
pub struct Fleet {
    pub(crate) members: Box<[FleetMember]>,
    pub(crate) settings: FleetSettings,
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
pub enum ServerEvent {
    Ejected(Time),
    /// The server fails as those of earlier priorities did, so those are used again.
    Recalled,
    CircuitOpened(Time),
    CircuitClosed,
}

impl Fleet {
    /// # Panics
    /// Without servers or with more than `SERVERS_MAX`, with an invalid weight, with a repeated ID, or if the members
    /// do not share their `Changes`: no configuration gives these.
    pub fn new(policy: &'static PolicyRow, members: Vec<FleetMember>, settings: FleetSettings) -> Self {
        assert!((1..=SERVERS_MAX).contains(&members.len()), "a fleet has servers, and a limited number");
        assert!(
            members.iter().all(|member| (1..=WEIGHT_MAX).contains(&member.weight)),
            "weights are positive"
        );
        let changes = Arc::clone(members[0].health.changes());
        let shares_changes = |member: &FleetMember| Arc::ptr_eq(member.health.changes(), &changes);
        assert!(members.iter().all(shares_changes), "the standings of a fleet share their changes");
        let mut by_id: Box<[_]> = members.iter().map(|member| member.id).zip(0..).collect();
        by_id.sort_unstable();
        // Sessions and cookies name servers by ID: a repeated one would lead to the wrong server.
        assert!(by_id.windows(2).all(|pair| pair[0].0 != pair[1].0), "an id names one server");
        let mut by_priority: Box<[u32]> = (0..).take(members.len()).collect();
        // Stable, so that servers of one priority keep their order.
        by_priority.sort_by_key(|&server| members[server as usize].priority);
        let shares = || members.iter().map(|member| (member.id, member.weight));
        Self {
            maglev: policy.hashes.then(|| Maglev::new(shares())),
            // A lone server is never ejected, so counting its responses would be two atomic operations for nothing.
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

    pub fn members(&self) -> &[FleetMember] {
        &self.members
    }

    pub fn settings(&self) -> &FleetSettings {
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

    pub fn index_of(&self, id: ServerId) -> Option<usize> {
        let found = self.by_id.binary_search_by_key(&id, |(known, _)| *known).ok()?;
        Some(self.by_id[found].1 as usize)
    }

    /// Starts a request to a server. It counts as in progress until the returned value is dropped. `None` if the server
    /// has reached its limit meanwhile.
    #[inline]
    pub fn begin(&self, server: usize) -> Option<InFlight> {
        let member = &self.members[server];
        InFlight::begin(Arc::clone(&member.health), member.in_flight_max)
    }

    /// The server's response time as the policy sees it. `None` if it is unknown, or not measured.
    pub fn response_time(&self, server: usize, now: Time) -> Option<Duration> {
        let micros = self.members[server].health.latency.micros(now, self.settings.latency_memory);
        (self.policy.measures && micros > 0.0).then(|| Duration::from_micros(micros as u64))
    }

    /// The requests that the server's circuit lets through.
    pub fn flow(&self, server: usize, now: Time) -> Flow {
        match &self.settings.breaker {
            Some(settings) => self.members[server].health.breaker.flow(settings, now),
            None => Flow::Closed,
        }
    }

    /// Passes the server's circuit. Call it for each pick, before the request is sent. `None` if another worker has
    /// taken the last slot.
    #[inline]
    pub fn admit(&self, server: usize, now: Time) -> Option<Passage> {
        match &self.settings.breaker {
            Some(settings) => self.members[server].health.breaker.admit(settings, now),
            None => Some(Passage::Whole),
        }
    }

    /// Reports the end of a request that passed no circuit, or a closed one.
    #[inline]
    pub fn end(&self, server: usize, outcome: RequestOutcome, now: Time) -> Option<ServerEvent> {
        self.end_passed(server, Passage::Whole, outcome, now)
    }

    /// Reports the end of a request that passed its circuit like this. Call it once per sent request.
    #[inline]
    pub fn end_passed(
        &self,
        server: usize,
        passage: Passage,
        outcome: RequestOutcome,
        now: Time,
    ) -> Option<ServerEvent> {
        let health = &self.members[server].health;
        let failures_in_a_row = health.count(outcome);
        if self.compares {
            health.add_to_interval(outcome);
        }
        if self.policy.measures {
            match outcome {
                // Not timed, such as a response before the end of an upload, whose time is the client's.
                RequestOutcome::Answered(None) => {}
                RequestOutcome::Answered(Some(latency)) => {
                    health.latency.answered(latency, now, self.settings.latency_memory);
                }
                RequestOutcome::Failed => health.latency.failed(now, self.settings.latency_memory),
                RequestOutcome::Abandoned => {}
            }
        }
        // An opened circuit already keeps requests away, so it takes the place of an ejection.
        if let Some(event) = self.turn_circuit(health, passage, outcome, now) {
            return Some(event);
        }
        let ejection = self.settings.ejection.as_ref()?;
        let is_enough = ejection.failures_in_a_row.is_some_and(|enough| failures_in_a_row >= enough.get());
        if is_enough { self.failed_in_a_row(server, failures_in_a_row, now) } else { None }
    }

    /// Ends the ejection of a server that has responded to a request sent as a last resort. Returns whether it was
    /// ejected.
    pub fn revive(&self, server: usize, now: Time) -> bool {
        self.members[server].health.restore(IneligibleCause::Ejection, now)
    }

    fn turn_circuit(
        &self,
        health: &ServerHealth,
        passage: Passage,
        outcome: RequestOutcome,
        now: Time,
    ) -> Option<ServerEvent> {
        let settings = self.settings.breaker.as_ref()?;
        let turn = match outcome {
            RequestOutcome::Answered(_) => health.breaker.succeeded(settings, passage),
            RequestOutcome::Failed => health.breaker.failed(settings, passage, now),
            RequestOutcome::Abandoned => {
                health.breaker.abandoned(passage);
                None
            }
        }?;
        if turn == BreakerTurn::Closed {
            // The waiting requests would otherwise meet a server that has just recovered, all at once.
            health.starts_slowly(now);
        }
        health.changed();
        Some(match turn {
            BreakerTurn::Opened(until) => ServerEvent::CircuitOpened(until),
            BreakerTurn::Closed => ServerEvent::CircuitClosed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::HealthState;
    use crate::policy;

    fn fleet(servers: u64, settings: FleetSettings) -> Fleet {
        let changes = Arc::default();
        let member = |id| FleetMember::new(ServerId::from_u64(id), 1, &ServerHealth::new(&changes));
        Fleet::new(policy::DEFAULT, (0..servers).map(member).collect(), settings)
    }

    #[test]
    fn servers_are_found_by_id() {
        let fleet = fleet(9, FleetSettings::default());
        for server in 0..9 {
            assert_eq!(fleet.index_of(ServerId::from_u64(server as u64)), Some(server));
        }
        assert_eq!(fleet.index_of(ServerId::from_u64(9)), None);
    }

    #[test]
    fn failures_in_a_row_eject_a_server_but_the_last() {
        let ejection = EjectionSettings { failures_in_a_row: NonZeroU32::new(2), ..Default::default() };
        let fleet = fleet(2, FleetSettings { ejection: Some(ejection), ..FleetSettings::default() });
        let (now, until) = (Time::START, Time::START + ejection.base);
        assert_eq!(fleet.end(0, RequestOutcome::Failed, now), None);
        assert_eq!(fleet.end(0, RequestOutcome::Abandoned, now), None);
        assert_eq!(fleet.end(0, RequestOutcome::Failed, now), Some(ServerEvent::Ejected(until)));
        assert_eq!(fleet.members()[0].health.state(), HealthState::Ejected);
        for _ in 0..9 {
            assert_eq!(fleet.end(1, RequestOutcome::Failed, now), None, "the last one stays");
        }
        assert_eq!(fleet.members()[1].health.state(), HealthState::Up);
    }

    #[test]
    fn a_circuit_that_closes_is_a_change_and_a_slow_start() {
        let breaker = BreakerSettings { failures: 1, successes: 1, ..BreakerSettings::default() };
        let fleet = fleet(1, FleetSettings { breaker: Some(breaker), ..FleetSettings::default() });
        let health = &fleet.members()[0].health;
        let until = Time::START + breaker.open;
        assert_eq!(
            fleet.end(0, RequestOutcome::Failed, Time::START),
            Some(ServerEvent::CircuitOpened(until))
        );
        assert_eq!(fleet.admit(0, until), Some(Passage::Probe));
        let answered = RequestOutcome::Answered(Some(Duration::from_millis(1)));
        assert_eq!(fleet.end(0, answered, until), None, "sent before it opened");
        assert_eq!(fleet.end_passed(0, Passage::Probe, answered, until), Some(ServerEvent::CircuitClosed));
        assert_eq!((health.returned_at(), fleet.changes.count()), (Some(until), 2));
    }

    #[test]
    #[should_panic(expected = "an id names one server")]
    fn an_id_names_one_server() {
        let health = ServerHealth::new(&Arc::default());
        let member = FleetMember::new(ServerId::from_u64(1), 1, &health);
        Fleet::new(policy::DEFAULT, vec![member.clone(), member], FleetSettings::default());
    }

    #[test]
    fn stopped_servers_stay_stopped_in_the_next_fleet() {
        let before = fleet(1, FleetSettings::default());
        before.members()[0].health.stop(IneligibleCause::Drain);
        let after = Fleet::new(policy::DEFAULT, before.members().to_vec(), FleetSettings::default());
        assert_eq!(after.members()[0].health.state(), HealthState::Draining);
    }
}
