//! Passive ejection: servers that respond worse than the others get no requests for a while, longer each time.
//!
//! Only real requests are judged, so no probes are needed. Similar to Envoy's outlier detection, but latencies are
//! compared with the median. An ejection ends automatically (`backup`), and a slow start follows.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::fleet::{Fleet, FleetMember};
use crate::hash::ServerId;
use crate::health::{HealthState, IneligibleCause, IntervalCounts, ServerHealth};
use crate::time::Time;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EjectionSettings {
    /// Failures in a row that eject a server at once, unless the others fail alike.
    pub failures_in_a_row: Option<NonZeroU32>,
    /// How often the servers are compared.
    pub interval: Duration,
    /// The fewest requests per interval for a server to be compared.
    pub requests_min: u32,
    /// The percentage of failures from which a server is an outlier, if it is also well above that of the others.
    pub failures_percent: Option<NonZeroU32>,
    /// The multiple of the median latency from which a server is an outlier, if it exceeds it in two intervals in a
    /// row.
    pub latency_factor: Option<NonZeroU32>,
    /// Latencies up to this are never outliers. Otherwise, a server in the next building with 1 ms would be one beside
    /// servers in the rack with 0.1 ms.
    pub latency_floor: Duration,
    /// How long the first ejection lasts. Each further one lasts this much longer.
    pub base: Duration,
    pub longest: Duration,
    /// The percentage of a priority group's servers that stays; always at least one server. A group whose servers all
    /// fail is ejected nevertheless, if a later group has a better server.
    pub up_percent_min: u32,
}

impl Default for EjectionSettings {
    fn default() -> Self {
        Self {
            failures_in_a_row: NonZeroU32::new(5),
            interval: Duration::from_secs(1),
            requests_min: 20,
            failures_percent: NonZeroU32::new(20),
            latency_factor: NonZeroU32::new(5),
            latency_floor: Duration::from_millis(2),
            // After 5 s, a server that is slow for good was asked again, judged again, and made the 99th percentile
            // its own.
            base: Duration::from_secs(30),
            longest: Duration::from_secs(300),
            up_percent_min: 50,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Outlier {
    /// The server's share of failures is too far above that of the others.
    Failures {
        percent: f64,
        /// The percentage of failures of all other servers together.
        others_percent: f64,
    },
    /// The server's latency is too far above the median.
    Latency {
        /// The mean latency of the server.
        mean: Duration,
        /// The median of the servers' mean latencies.
        median: Duration,
    },
}

/// Why an outlier is not ejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spared {
    /// Too few servers would be left.
    TooFewLeft,
    /// The server gets no requests anyway.
    NotUp,
    /// Another server is being ejected at this moment; the next failure will decide.
    Busy,
}

/// The judgement about one server, for the log.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judgement {
    /// Index in the fleet.
    pub server: usize,
    pub outlier: Outlier,
    /// The end of the ejection, or why the server is not ejected.
    pub ejected: Result<Time, Spared>,
}

/// The multiple of the others' share of failures from which a server is an outlier: if all fail alike, none is.
const FAILURES_FACTOR: f64 = 2.0;

impl Fleet {
    /// Ejects a server, if enough of its group stay up. Any worker may call it.
    ///
    /// # Errors
    /// Why the server was not ejected.
    pub fn eject(&self, server: usize, now: Time) -> Result<Time, Spared> {
        let settings = self.settings.ejection.unwrap_or_default();
        self.eject_where(server, now, || self.has_enough_without(server, &settings))
    }

    /// Ejects a server, if `is_allowed` holds while no other thread ejects one.
    pub(crate) fn eject_where(
        &self,
        server: usize,
        now: Time,
        is_allowed: impl FnOnce() -> bool,
    ) -> Result<Time, Spared> {
        let settings = self.settings.ejection.unwrap_or_default();
        let health = &self.members[server].health;
        if health.state() != HealthState::Up {
            return Err(Spared::NotUp);
        }
        let _ejecting = self.ejecting().ok_or(Spared::Busy)?;
        if !is_allowed() {
            return Err(Spared::TooFewLeft);
        }
        // A server that comes back only to fail again is asked less and less often.
        let longer = settings.base.saturating_mul(health.ejections() + 1);
        let until = now + longer.min(settings.longest.max(settings.base));
        health.count_ejection(until);
        health.stop(IneligibleCause::Ejection);
        Ok(until)
    }

    /// Ejects an outlier. One that mostly fails is ejected although too few of its priority stay, if no other of them
    /// is better and a later priority can take over.
    fn eject_outlier(&self, server: usize, outlier: Outlier, now: Time) -> Result<Time, Spared> {
        let ejected = self.eject(server, now);
        let is_skipped = ejected == Err(Spared::TooFewLeft)
            && matches!(outlier, Outlier::Failures { .. })
            && self.fails_mostly(server)
            && !self.fails_more_than_another(server)
            && self.has_backup(server);
        if is_skipped { self.eject_with_priority(server, now).ok_or(Spared::TooFewLeft) } else { ejected }
    }

    /// Whether another server of the group fails far less. If all fail alike, as in an overload, an ejection only
    /// increases the load of the others.
    #[cold]
    pub(crate) fn fails_more_than_another(&self, server: usize) -> bool {
        let FleetMember { priority, health, .. } = &self.members[server];
        let share = health.failed_share();
        let is_better = |(index, other): (usize, &FleetMember)| {
            index != server
                && other.priority == *priority
                && other.health.state() == HealthState::Up
                && other.health.is_far_better_than(share)
        };
        self.members.iter().enumerate().any(is_better)
    }

    fn has_enough_without(&self, server: usize, settings: &EjectionSettings) -> bool {
        let priority = self.members[server].priority;
        let (mut all, mut up) = (0, 0);
        for member in self.members.iter().filter(|member| member.priority == priority) {
            all += 1;
            up += u64::from(member.health.state() == HealthState::Up);
        }
        let enough = (all * u64::from(settings.up_percent_min.min(100))).div_ceil(100).max(1);
        // Otherwise the rest would get the load of all ejected servers, and fail in turn.
        up > enough
    }
}

/// Compares the servers of a fleet once per interval. For the control thread, because it allocates.
#[derive(Debug, Default)]
pub struct Ejector {
    judged_at: Time,
    /// Earlier counts of servers with too few requests per interval. Without them, a server that returns slowly would
    /// count as bad for as long as it gets few requests.
    gathered: HashMap<ServerId, (IntervalCounts, Time)>,
    /// Servers that were slow in the last interval. They are ejected only if they are slow in the next one as well,
    /// because a pause or a few slow responses can happen by chance.
    suspected: HashMap<ServerId, Time>,
    /// Recently ejected servers with too few requests to judge, and since when.
    unjudged: HashMap<ServerId, Time>,
}

/// The number of intervals over which counts are collected.
// Older counts say nothing about the server as it is now.
const GATHERED_INTERVALS_MAX: u32 = 10;

/// The divisor of `requests_min` for suspected servers, because a slow server gets few requests.
const SUSPECTED_SHARE: u32 = 4;

impl Ejector {
    /// When `judge` is due.
    pub fn due(&self, fleet: &Fleet) -> Time {
        fleet.settings.ejection.map_or(Time::NEVER, |settings| self.judged_at + settings.interval)
    }

    /// Ejects the servers that were worse than the others since the last call. The worst goes first, because not all
    /// may be ejected.
    pub fn judge(&mut self, fleet: &Fleet, now: Time) -> Vec<Judgement> {
        self.judged_at = now;
        let Some(settings) = fleet.settings.ejection else { return Vec::new() };
        let known_for = settings.interval * GATHERED_INTERVALS_MAX;
        // Removes servers that have left the fleet.
        self.gathered.retain(|id, _| fleet.index_of(*id).is_some());
        self.unjudged.retain(|id, _| fleet.index_of(*id).is_some());
        self.suspected.retain(|id, since| fleet.index_of(*id).is_some() && now.since(*since) <= known_for);
        let mut counted = Vec::with_capacity(fleet.members.len());
        for (server, member) in fleet.members.iter().enumerate() {
            // Taken from servers that are not up as well, so that old counts do not wait for their return.
            let fresh = member.health.take_counts();
            if member.health.state() != HealthState::Up {
                self.gathered.remove(&member.id);
                self.suspected.remove(&member.id);
                self.unjudged.remove(&member.id);
                continue;
            }
            let (before, since) =
                self.gathered.remove(&member.id).unwrap_or((IntervalCounts::default(), now));
            let counts = before.and(fresh);
            let share = if self.suspected.contains_key(&member.id) { SUSPECTED_SHARE } else { 1 };
            if counts.requests >= (settings.requests_min / share).max(1) {
                counted.push((server, counts));
                self.unjudged.remove(&member.id);
                continue;
            }
            self.forgive_in_time(member, counts, now, known_for);
            if now.since(since) < known_for && counts.requests > 0 {
                self.gathered.insert(member.id, (counts, since));
            }
        }
        let mut outliers = self.sure(fleet, &counted, outliers(&counted, &settings), now);
        // The minimum of servers that stay may not permit to eject all.
        outliers.sort_by(|(_, one), (_, other)| other.badness().total_cmp(&one.badness()));
        let eject = |(server, outlier)| Judgement {
            server,
            outlier,
            ejected: fleet.eject_outlier(server, outlier, now),
        };
        let judgements: Vec<Judgement> = outliers.into_iter().map(eject).collect();
        for (server, _) in counted {
            if !judgements.iter().any(|judgement| judgement.server == server) {
                fleet.members[server].health.forgive_ejection();
            }
        }
        judgements
    }

    /// Forgives an ejection of a server with few requests after a time without failures.
    fn forgive_in_time(
        &mut self,
        member: &FleetMember,
        counts: IntervalCounts,
        now: Time,
        known_for: Duration,
    ) {
        if member.health.ejections() == 0 || counts.failures > 0 {
            self.unjudged.remove(&member.id);
            return;
        }
        let since = self.unjudged.entry(member.id).or_insert(now);
        // Too few requests to be counted would otherwise mean that the long ejections stay for ever.
        if now.since(*since) >= known_for {
            *since = now;
            member.health.forgive_ejection();
        }
    }

    /// The outliers that are certain, not only suspected.
    fn sure(
        &mut self,
        fleet: &Fleet,
        counted: &[(usize, IntervalCounts)],
        outliers: Vec<(usize, Outlier)>,
        now: Time,
    ) -> Vec<(usize, Outlier)> {
        let is_sure = |&(server, outlier): &(usize, Outlier)| match outlier {
            Outlier::Failures { .. } => true,
            Outlier::Latency { .. } => {
                let FleetMember { id, health, .. } = &fleet.members[server];
                // A recently ejected server was worse before, so it needs no second interval.
                health.ejections() > 0 || self.suspected.contains_key(id)
            }
        };
        let (sure, slow): (Vec<_>, Vec<_>) = outliers.into_iter().partition(is_sure);
        let id_of = |server: usize| fleet.members[server].id;
        for (server, _) in counted {
            self.suspected.remove(&id_of(*server));
        }
        self.suspected.extend(slow.into_iter().map(|(server, _)| (id_of(server), now)));
        sure
    }
}

impl ServerHealth {
    /// Whether a server fails far less than another one with this share of failures.
    pub(crate) fn is_far_better_than(&self, share: f64) -> bool {
        share > FAILURES_FACTOR * self.failed_share()
    }
}

impl Outlier {
    /// The ratio to the others, for sorting.
    fn badness(self) -> f64 {
        match self {
            // A failing server does more harm than a slow one.
            Outlier::Failures { percent, others_percent } => 1e6 * percent / others_percent.max(1.0),
            Outlier::Latency { mean, median } => mean.as_secs_f64() / median.as_secs_f64().max(1e-6),
        }
    }
}

impl IntervalCounts {
    fn and(self, other: Self) -> Self {
        let answers = |counts: Self| counts.requests.saturating_sub(counts.failures);
        let all = answers(self) + answers(other);
        let taken = self.latency * answers(self) + other.latency * answers(other);
        Self {
            requests: self.requests.saturating_add(other.requests),
            failures: self.failures.saturating_add(other.failures),
            latency: taken.checked_div(all).unwrap_or_default(),
        }
    }
}

fn outliers(counted: &[(usize, IntervalCounts)], settings: &EjectionSettings) -> Vec<(usize, Outlier)> {
    // There is nothing to compare with.
    if counted.len() < 2 {
        return Vec::new();
    }
    let sum =
        |of: fn(&IntervalCounts) -> u32| counted.iter().map(|(_, counts)| u64::from(of(counts))).sum::<u64>();
    let (requests, failures) = (sum(|counts| counts.requests), sum(|counts| counts.failures));
    let mut means: Vec<Duration> = counted
        .iter()
        .filter(|(_, counts)| counts.failures < counts.requests)
        .map(|(_, c)| c.latency)
        .collect();
    means.sort_unstable();
    // The lower one of two: with two servers, the better one sets the measure.
    // A mean would include the outlier itself, and hide it among few servers.
    let median = if means.len() < 2 { Duration::MAX } else { means[(means.len() - 1) / 2] };

    let outlier = |&(server, counts): &(usize, IntervalCounts)| {
        let percent_of = |failures: u64, requests: u64| 100.0 * failures as f64 / requests.max(1) as f64;
        let percent = percent_of(u64::from(counts.failures), u64::from(counts.requests));
        let others_percent =
            percent_of(failures - u64::from(counts.failures), requests - u64::from(counts.requests));
        let fails = settings.failures_percent.is_some_and(|enough| percent >= f64::from(enough.get()))
            // Suspected servers are counted with fewer requests, which is enough for latency, not for shares.
            && counts.requests >= settings.requests_min
            && percent > FAILURES_FACTOR * others_percent;
        let mean = counts.latency;
        let is_slow = settings
            .latency_factor
            .is_some_and(|factor| mean > settings.latency_floor.max(median.saturating_mul(factor.get())));
        match () {
            () if fails => Some((server, Outlier::Failures { percent, others_percent })),
            () if is_slow => Some((server, Outlier::Latency { mean, median })),
            () => None,
        }
    };
    counted.iter().filter_map(outlier).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fleet::{FleetMember, FleetSettings};
    use crate::hash::ServerId;
    use crate::health::RequestOutcome;
    use crate::policy;

    const SECOND: Duration = Duration::from_secs(1);

    fn fleet(servers: u64, ejection: EjectionSettings) -> Fleet {
        let changes = Arc::default();
        let member = |id| FleetMember::new(ServerId::from_u64(id), 1, &ServerHealth::new(&changes));
        let settings = FleetSettings { ejection: Some(ejection), ..FleetSettings::default() };
        Fleet::new(policy::DEFAULT, (0..servers).map(member).collect(), settings)
    }

    /// Reports this many responses of this latency, and this many failures, never enough in a row to eject at once.
    fn serve(fleet: &Fleet, server: usize, answers: u32, micros: u64, failures: u32) {
        let answered = RequestOutcome::Answered(Some(Duration::from_micros(micros)));
        for request in 0..answers.max(failures) {
            if request < failures {
                fleet.members()[server].health.add_to_interval(RequestOutcome::Failed);
            }
            if request < answers {
                fleet.members()[server].health.add_to_interval(answered);
            }
        }
    }

    /// The servers that are judged to be outliers in an interval.
    fn judged(ejector: &mut Ejector, fleet: &Fleet, interval: u32) -> Vec<usize> {
        let judgements = ejector.judge(fleet, Time::START + interval * SECOND);
        judgements.iter().map(|judgement| judgement.server).collect()
    }

    #[test]
    fn outliers_are_worse_than_the_others() {
        // Per server: responses, microseconds, failures.
        for (served, ejected) in [
            (&[(100, 20_000, 0), (100, 20_000, 0), (100, 20_000, 0), (100, 1_000_000, 0)][..], &[3][..]),
            (&[(100, 20_000, 0), (100, 1_000_000, 0)], &[1]),
            (&[(100, 20_000, 0), (100, 20_000, 0), (100, 99_000, 0)], &[]),
            (&[(100, 100, 0), (100, 100, 0), (100, 5_000, 0)], &[2]),
            (&[(100, 100, 0), (100, 100, 0), (100, 2_000, 0)], &[]),
            (&[(100, 0, 0), (100, 0, 0), (100, 2_001, 0)], &[2]),
            (&[(100, 20_000, 0), (100, 20_000, 0), (9, 1_000_000, 0)], &[]),
            (&[(100, 20_000, 0), (100, 20_000, 1), (70, 20_000, 30)], &[2]),
            (&[(70, 20_000, 30), (70, 20_000, 30), (70, 20_000, 30)], &[]),
            (&[(100, 20_000, 0), (90, 20_000, 10)], &[]),
            (&[(100, 20_000, 0), (0, 20_000, 30)], &[1]),
            (&[(0, 20_000, 30), (0, 20_000, 30)], &[]),
            (&[(100, 1_000_000, 0)], &[]),
            (
                &[(50, 20_000, 0), (50, 20_000, 0), (50, 20_000, 0), (50, 900_000, 0), (20, 20_000, 40)],
                &[4, 3],
            ),
        ] {
            let fleet = fleet(served.len() as u64, EjectionSettings::default());
            let mut ejector = Ejector::default();
            let mut servers = Vec::new();
            for interval in 0..2 {
                for (server, &(answers, micros, failures)) in served.iter().enumerate() {
                    serve(&fleet, server, answers, micros, failures);
                }
                servers.extend(judged(&mut ejector, &fleet, interval));
            }
            assert_eq!(servers, ejected, "{served:?}");
        }
    }

    #[test]
    fn failures_in_a_row_eject_no_server_if_all_fail_alike() {
        // Per server: responses and failures before the first server fails in a row. And whether that is then ejected.
        for (served, expected) in [
            (&[(0, 0), (0, 0)][..], true),
            (&[(100, 0), (100, 0)], true),
            (&[(100, 3), (100, 2)], true),
            // An overload: requests time out on all servers.
            (&[(20, 40), (20, 40)], false),
            (&[(0, 40), (10, 30), (10, 30)], false),
            // All servers of a rack have failed, and one elsewhere has not.
            (&[(100, 10), (100, 10), (100, 10), (100, 0)], true),
            (&[(50, 20), (90, 10)], true),
        ] {
            for intervals in 0..2 {
                let fleet = fleet(served.len() as u64, EjectionSettings::default());
                for (server, &(answers, failures)) in served.iter().enumerate() {
                    serve(&fleet, server, answers, 1000, failures);
                    // The previous interval counts, too.
                    for _ in 0..intervals {
                        let _ = fleet.members()[server].health.take_counts();
                    }
                }
                let is_ejected = (0..5).any(|_| fleet.end(0, RequestOutcome::Failed, Time::START).is_some());
                assert_eq!(is_ejected, expected, "{served:?}, {intervals} intervals ago");
            }
        }
    }

    #[test]
    fn a_server_with_few_requests_is_forgiven_in_time() {
        // One request per second and server, which is too few to compare them.
        for (failures, ejections) in [(0, [2, 2, 1, 1, 0, 0]), (1, [2; 6])] {
            let fleet = fleet(2, EjectionSettings::default());
            let health = &fleet.members()[0].health;
            let mut ejector = Ejector::default();
            (0..2).for_each(|_| health.count_ejection(Time::START));
            let mut found = Vec::new();
            for interval in 0..=25 {
                serve(&fleet, 0, 1 - failures, 500, failures);
                serve(&fleet, 1, 1, 500, 0);
                assert_eq!(judged(&mut ejector, &fleet, interval), []);
                if interval % 5 == 0 {
                    found.push(health.ejections());
                }
            }
            assert_eq!(found, ejections, "{failures} failures");
        }
    }

    #[test]
    fn one_slow_interval_makes_suspicious_and_the_next_ejects() {
        let fleet = fleet(3, EjectionSettings::default());
        let mut ejector = Ejector::default();
        // The latency of the last server in each interval. An occasional pause of all servers is not its fault.
        let (usual, slow) = (500, 50_000);
        for (interval, micros, ejected) in
            [(0, usual, &[][..]), (1, slow, &[]), (2, usual, &[]), (3, slow, &[]), (4, slow, &[2])]
        {
            (0..2).for_each(|server| serve(&fleet, server, 100, usual, 0));
            serve(&fleet, 2, 100, micros, 0);
            assert_eq!(judged(&mut ejector, &fleet, interval), ejected, "{interval}");
        }
        // A server that returns as slow as before is ejected without suspicion.
        fleet.members()[2].health.restore(IneligibleCause::Ejection, Time::START + 40 * SECOND);
        (0..2).for_each(|server| serve(&fleet, server, 100, usual, 0));
        serve(&fleet, 2, 100, slow, 0);
        assert_eq!(judged(&mut ejector, &fleet, 40), [2]);
    }

    #[test]
    fn a_suspicion_ends_with_its_cause() {
        let fleet = fleet(3, EjectionSettings::default());
        let mut ejector = Ejector::default();
        for interval in [0, 30] {
            (0..2).for_each(|server| serve(&fleet, server, 100, 500, 0));
            serve(&fleet, 2, 100, 50_000, 0);
            assert_eq!(judged(&mut ejector, &fleet, interval), [], "{interval}");
        }
        // The smaller number of requests suffices for suspicion, but not for judging failures.
        (0..2).for_each(|server| serve(&fleet, server, 100, 500, 0));
        serve(&fleet, 2, 6, 500, 3);
        assert_eq!(judged(&mut ejector, &fleet, 31), []);
    }

    #[test]
    fn never_below_the_minimum_and_the_worst_goes_first() {
        let settings = EjectionSettings { up_percent_min: 60, ..EjectionSettings::default() };
        let fleet = fleet(5, settings);
        let mut ejector = Ejector::default();
        for (interval, expected) in [(0, &[][..]), (1, &[3, 2])] {
            for (server, micros) in [(0, 20_000), (1, 20_000), (2, 400_000), (3, 2_000_000), (4, 20_000)] {
                serve(&fleet, server, 100, micros, 0);
            }
            let judgements = ejector.judge(&fleet, Time::START + interval * SECOND);
            assert_eq!(judgements.iter().map(|judgement| judgement.server).collect::<Vec<_>>(), expected);
            assert!(judgements.iter().all(|judgement| judgement.ejected.is_ok()));
        }
        for server in [0, 1, 4] {
            assert_eq!(fleet.eject(server, Time::START), Err(Spared::TooFewLeft));
        }
        assert_eq!(fleet.eject(3, Time::START), Err(Spared::NotUp));
        fleet.members()[2].health.restore(IneligibleCause::Ejection, Time::START);
        assert!(fleet.eject(0, Time::START).is_ok(), "one has returned");
    }

    #[test]
    fn the_lock_of_ejections_is_held_until_its_holder_drops_it() {
        let fleet = fleet(8, EjectionSettings::default());
        let held = fleet.ejecting();
        assert!(held.is_some());
        for _ in 0..2 {
            assert_eq!(fleet.eject(0, Time::START), Err(Spared::Busy));
        }
        drop(held);
        assert!(fleet.eject(0, Time::START).is_ok());
    }

    #[test]
    fn workers_that_eject_at_once_keep_to_the_minimum() {
        for _ in 0..50 {
            let fleet = fleet(8, EjectionSettings::default());
            std::thread::scope(|scope| {
                for worker in 0..4 {
                    let fleet = &fleet;
                    scope.spawn(move || {
                        (0..8).map(|n| (n + worker) % 8).for_each(|server| {
                            let _ = fleet.eject(server, Time::START);
                        });
                    });
                }
            });
            let up = fleet.members().iter().filter(|member| member.health.state() == HealthState::Up).count();
            assert!(up >= 4, "{up} of 8 are left");
        }
    }

    #[test]
    fn each_ejection_is_longer_until_good_intervals_are_counted() {
        let longest = 18 * SECOND;
        let base = 5 * SECOND;
        let fleet = fleet(3, EjectionSettings { base, longest, ..EjectionSettings::default() });
        let health = &fleet.members()[0].health;
        let mut now = Time::START;
        for seconds in [5, 10, 15, 18, 18] {
            assert_eq!(fleet.eject(0, now), Ok(now + seconds * SECOND));
            now = now + seconds * SECOND;
            assert!(health.restore(IneligibleCause::Ejection, now));
        }
        let mut ejector = Ejector::default();
        for _ in 0..4 {
            (0..3).for_each(|server| serve(&fleet, server, 100, 1000, 0));
            assert_eq!(ejector.judge(&fleet, now), []);
        }
        assert_eq!(fleet.eject(0, now), Ok(now + 10 * SECOND));
    }

    #[test]
    fn a_server_that_is_asked_little_is_judged_once_it_was_asked_enough() {
        let settings = EjectionSettings::default();
        // Requests per interval, and the interval of the ejection: suspected once it had 20, certain with 5 more.
        for (requests, expected) in [(20, Some(1)), (10, Some(2)), (7, Some(3)), (2, Some(12)), (1, None)] {
            let fleet = fleet(3, settings);
            let mut ejector = Ejector::default();
            let mut found = None;
            for interval in 0..20 {
                (0..2).for_each(|server| serve(&fleet, server, 100, 20_000, 0));
                serve(&fleet, 2, requests, 1_000_000, 0);
                let servers = judged(&mut ejector, &fleet, interval);
                found = found.or(servers.first().map(|&server| (interval, server)));
            }
            assert_eq!(found, expected.map(|interval| (interval, 2)), "{requests} requests");
        }
    }

    #[test]
    fn servers_are_compared_once_an_interval() {
        let fleet = fleet(2, EjectionSettings::default());
        let mut ejector = Ejector::default();
        assert_eq!(ejector.due(&fleet), Time::START + SECOND);
        ejector.judge(&fleet, Time::START + SECOND);
        assert_eq!(ejector.due(&fleet), Time::START + 2 * SECOND);
    }
}
