//! Priorities that take over for others: a priority whose servers all fail is skipped, and comes back after a trial.
//!
//! A skipped priority is one whose servers are all out of service, at least one of them ejected. One trial request at a
//! time shows whether it works again, so that the next priority serves all other requests meanwhile.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::fleet::{Fleet, FleetMember, ServerEvent};
use crate::health::{HealthState, IneligibleCause};
use crate::picker::{Candidates, Pick, PickInput};
use crate::policy::BalancePolicy;
use crate::time::Time;
use crate::view::{Difference, FleetView};

/// The share of failures above which all requests of a server count as failing.
const ALL_FAIL: f64 = 0.5;
/// The multiple of `failures_in_a_row` from which a server counts as failing, however well it responded a second ago.
// A busy server that dies has many good responses in its interval, and its retries would use up the budget.
const ROWS: u32 = 4;

impl Fleet {
    fn groups(&self) -> impl Iterator<Item = &[u32]> {
        let priority = |server: &u32| self.members[*server as usize].priority;
        self.by_priority.chunk_by(move |a, b| priority(a) == priority(b))
    }

    fn has_up(&self, mut is_meant: impl FnMut(&FleetMember) -> bool) -> bool {
        self.members.iter().any(|member| member.health.state() == HealthState::Up && is_meant(member))
    }

    /// Whether any server of the priority is up.
    pub fn has_priority_up(&self, priority: u16) -> bool {
        self.has_up(|member| member.priority == priority)
    }

    /// Decides what follows when a server has failed too often in a row.
    #[cold]
    pub(crate) fn failed_in_a_row(&self, server: usize, failures: u32, now: Time) -> Option<ServerEvent> {
        // In an overload all servers fail: ejecting one would give its load to the rest.
        if self.fails_more_than_another(server) {
            return self.eject(server, now).ok().map(ServerEvent::Ejected);
        }
        let enough = self.settings.ejection.unwrap_or_default().failures_in_a_row?.get();
        let is_certain = failures >= enough.saturating_mul(ROWS) || self.fails_mostly(server);
        if !is_certain {
            return None;
        }
        if self.has_backup(server) {
            return self.eject_with_priority(server, now).map(ServerEvent::Ejected);
        }
        self.recall(server, now).then_some(ServerEvent::Recalled)
    }

    pub(crate) fn fails_mostly(&self, server: usize) -> bool {
        self.members[server].health.failed_share() > ALL_FAIL
    }

    /// Whether a server of a later priority is up, and fails far less.
    pub(crate) fn has_backup(&self, server: usize) -> bool {
        let FleetMember { priority, health, .. } = &self.members[server];
        let share = health.failed_share();
        self.has_up(|other| other.priority > *priority && other.health.is_far_better_than(share))
    }

    /// Ejects a server although too few of its priority stay, because a later priority takes over.
    pub(crate) fn eject_with_priority(&self, server: usize, now: Time) -> Option<Time> {
        let settings = self.settings.ejection.unwrap_or_default();
        // 100% means that no server is ever ejected.
        if settings.up_percent_min >= 100 {
            return None;
        }
        self.eject_where(server, now, || true).ok()
    }

    /// Ends the ejections in the priorities before that of a server, because it fails as they did. Returns whether
    /// there were any.
    fn recall(&self, server: usize, now: Time) -> bool {
        let priority = self.members[server].priority;
        if self.has_up(|other| other.priority < priority) {
            return false;
        }
        let earlier = self.members.iter().filter(|member| member.priority < priority);
        // Each of them, so no `any`, which would stop at the first.
        earlier.filter(|member| member.health.restore(IneligibleCause::Ejection, now)).count() > 0
    }

    /// Ends the ejections whose time is over, and reports each. In a priority without another server that is up, an
    /// ejected one stays so until a trial succeeds. Returns when the next trial is due.
    pub fn end_ejections(&self, now: Time, mut ended: impl FnMut(usize)) -> Time {
        let mut trial_at = Time::NEVER;
        for group in self.groups() {
            let Some(first_end) = self.ejected(group).map(|(_, until)| until).min() else { continue };
            if self.is_skipped(group) {
                trial_at = trial_at.min(first_end);
                continue;
            }
            if now < first_end {
                continue;
            }
            // Any worker that looks first ends an ejection: no thread has to wait for its time.
            for (server, until) in self.ejected(group) {
                if now >= until && self.members[server].health.restore(IneligibleCause::Ejection, now) {
                    ended(server);
                }
            }
        }
        trial_at
    }

    /// Takes the trial that is due, and postpones the next one by the time of an ejection. `None` if another worker has
    /// taken it.
    #[cold]
    pub(crate) fn take_trial(&self, now: Time) -> Option<usize> {
        let pause = self.settings.ejection.unwrap_or_default().base;
        let skipped = self.groups().filter(|group| self.is_skipped(group));
        let mut due = skipped.flat_map(|group| self.ejected(group)).filter(|(_, until)| now >= *until);
        let taken = due.find(|(server, until)| {
            let member = &self.members[*server];
            !member.health.is_withdrawn() && member.health.postpone_return(*until, now + pause)
        });
        taken.map(|(server, _)| server)
    }

    /// The ejected servers of a group, and the end of each ejection.
    fn ejected<'f>(&'f self, group: &'f [u32]) -> impl Iterator<Item = (usize, Time)> + 'f {
        let each = group.iter().map(|&server| (server as usize, &self.members[server as usize].health));
        each.filter(|(_, health)| health.is_stopped_by(IneligibleCause::Ejection))
            .map(|(server, health)| (server, health.ejected_until()))
    }

    /// Whether no server of a group is up, but one of another group is.
    fn is_skipped(&self, group: &[u32]) -> bool {
        let Some(&first) = group.first() else { return false };
        let priority = self.members[first as usize].priority;
        let is_up = |server: &u32| self.members[*server as usize].health.state() == HealthState::Up;
        !group.iter().any(is_up) && self.has_up(|member| member.priority != priority)
    }

    /// Whether a server comes back only after a trial request, because it is ejected with its whole priority.
    pub fn awaits_trial(&self, server: usize) -> bool {
        let FleetMember { priority, health, .. } = &self.members[server];
        health.is_stopped_by(IneligibleCause::Ejection)
            && !self.has_priority_up(*priority)
            && self.has_up(|member| member.priority != *priority)
    }

    /// Takes the lock of ejections. `None` while another thread ejects a server.
    pub(crate) fn ejecting(&self) -> Option<Ejecting<'_>> {
        // A flag and no lock: a worker must not wait on the path of a request.
        let is_free = self.is_ejecting.compare_exchange(false, true, Acquire, Relaxed);
        // Lazily: a guard that is made and dropped would release the lock of the thread that holds it.
        is_free.is_ok().then(|| Ejecting(self))
    }
}

/// The lock of ejections, until it is dropped.
pub(crate) struct Ejecting<'a>(&'a Fleet);

impl Drop for Ejecting<'_> {
    fn drop(&mut self) {
        self.0.is_ejecting.store(false, Release);
    }
}

/// Picks a server of a later priority for a request that was tried on all available servers of the current one.
#[derive(Debug, Clone)]
pub(crate) struct Backups {
    /// The servers of the priority that was used last.
    view: FleetView,
    policy: BalancePolicy,
}

impl Backups {
    /// `None` if all servers have one priority.
    pub(crate) fn new(fleet: &Fleet, seed: u64) -> Option<Box<Self>> {
        let first = fleet.members.first()?.priority;
        let has_several = fleet.members.iter().any(|member| member.priority != first);
        let servers = fleet.members.len();
        let made = || Self { view: FleetView::new(servers), policy: (fleet.policy.build)(servers, seed) };
        has_several.then(|| Box::new(made()))
    }

    /// Picks by the policy among the servers that are up but not in `current`, in the first priority with one to try.
    #[cold]
    pub(crate) fn pick(&mut self, fleet: &Fleet, current: &FleetView, ask: &PickInput<'_>) -> Pick {
        let mut is_full = false;
        for group in fleet.groups() {
            let is_backup = |server: usize| {
                let is_up = fleet.members[server].health.state() == HealthState::Up;
                is_up && current.place(server).is_none() && !ask.tried.contains(&server)
            };
            if !group.iter().any(|&server| is_backup(server as usize)) {
                continue;
            }
            if self.view.show(fleet, group, ask.now) == Difference::Some {
                self.policy.arrange(self.view.weights.as_slice());
            }
            let candidates = Candidates { view: &self.view, fleet, ask, is_free: false };
            match self.policy.pick(&candidates) {
                Some(place) => return Pick::Server(self.view.servers[place] as usize),
                // A later priority has room perhaps, which is better than to wait.
                None => is_full |= candidates.are_full(),
            }
        }
        if is_full { Pick::Full } else { Pick::None }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::eject::EjectionSettings;
    use crate::fleet::{FleetSettings, NoneUp};
    use crate::hash::{ServerId, mix};
    use crate::health::{RequestOutcome, ServerHealth};
    use crate::picker::Picker;
    use crate::policy::{POLICIES, PolicyRow};

    const START: Time = Time::START;
    const BASE: Duration = Duration::from_secs(30);

    /// Servers of these priorities, ejected after two failures in a row.
    fn fleet_by(policy: &'static PolicyRow, priorities: &[u16], limit: Option<u32>) -> Arc<Fleet> {
        let changes = Arc::default();
        let member = |(id, &priority): (u64, &u16)| FleetMember {
            priority,
            in_flight_max: limit.and_then(NonZeroU32::new),
            ..FleetMember::new(ServerId::from_u64(id), 1, &ServerHealth::new(&changes))
        };
        let ejection =
            EjectionSettings { failures_in_a_row: NonZeroU32::new(2), base: BASE, ..Default::default() };
        let settings = FleetSettings { ejection: Some(ejection), ..FleetSettings::default() };
        Arc::new(Fleet::new(policy, (0..).zip(priorities).map(member).collect(), settings))
    }

    fn fleet(priorities: &[u16]) -> Arc<Fleet> {
        fleet_by(&POLICIES[0], priorities, None)
    }

    fn ask(now: Time, tried: &[usize]) -> PickInput<'_> {
        PickInput { now, random: mix(7), key: Some(mix(9)), tried }
    }

    /// The servers that a request is tried on, if each fails.
    fn tries(picker: &mut Picker) -> Vec<usize> {
        let mut tried = Vec::new();
        while let Pick::Server(server) = picker.pick(&ask(START, &tried)) {
            tried.push(server);
        }
        tried
    }

    fn fail(fleet: &Fleet, server: usize, times: u32, now: Time) -> Option<ServerEvent> {
        (0..times).filter_map(|_| fleet.end(server, RequestOutcome::Failed, now)).last()
    }

    #[test]
    fn a_retry_continues_with_the_next_priority_under_every_policy() {
        for row in &POLICIES {
            let mut picker = Picker::new(fleet_by(row, &[2, 0, 1, 0, 1], None), 1);
            let tried = tries(&mut picker);
            let mut groups: Vec<Vec<usize>> = tried.chunks(2).map(<[usize]>::to_vec).collect();
            groups.iter_mut().for_each(|group| group.sort_unstable());
            assert_eq!(groups, [vec![1, 3], vec![2, 4], vec![0]], "{}", row.name);
        }
    }

    #[test]
    fn a_key_has_the_server_of_its_retry_once_the_priority_is_skipped() {
        for row in POLICIES.iter().filter(|row| row.hashes) {
            for key in 0..50 {
                let fleet = fleet_by(row, &[0, 1, 1, 1], None);
                let mut picker = Picker::new(Arc::clone(&fleet), 1);
                let of_key = |tried| PickInput { key: Some(mix(key)), ..ask(START, tried) };
                let retried = picker.pick(&of_key(&[0]));
                assert!(matches!(fail(&fleet, 0, 2, START), Some(ServerEvent::Ejected(_))));
                assert_eq!(picker.pick(&of_key(&[])), retried, "{}", row.name);
            }
        }
    }

    #[test]
    fn a_priority_with_a_busy_server_is_waited_for_and_a_busy_backup_is_passed_over() {
        let fleet = fleet_by(&POLICIES[0], &[0, 0, 1, 2], Some(1));
        let mut picker = Picker::new(Arc::clone(&fleet), 1);
        let _busy = fleet.begin(1).expect("room");
        assert_eq!(picker.pick(&ask(START, &[0])), Pick::Full, "the priority still works");
        assert_eq!(picker.backup(&ask(START, &[0])), Pick::Server(2), "after the wait");
        let _backup = fleet.begin(2).expect("room");
        assert_eq!(picker.pick(&ask(START, &[0, 1])), Pick::Server(3));
        let _last = fleet.begin(3).expect("room");
        assert_eq!(picker.pick(&ask(START, &[0, 1])), Pick::Full);
        assert!(picker.has_untried(&ask(START, &[0, 1]), crate::picker::Room::OrNot));
    }

    #[test]
    fn a_priority_whose_servers_all_fail_is_skipped_and_comes_back_after_a_trial() {
        let fleet = fleet(&[0, 0, 1]);
        let mut workers = [Picker::new(Arc::clone(&fleet), 1), Picker::new(Arc::clone(&fleet), 2)];
        assert_eq!(fail(&fleet, 0, 2, START), Some(ServerEvent::Ejected(START + BASE)));
        assert_eq!(fail(&fleet, 1, 2, START), Some(ServerEvent::Ejected(START + BASE)), "the last one, too");
        let end = START + BASE;
        for picker in &mut workers {
            assert_eq!(picker.pick(&ask(START, &[])), Pick::Server(2));
            assert_eq!(picker.trial(START), None);
        }
        // At the end, one request for each ejected server shows whether it works. All others go to the backup.
        let mut trials = Vec::new();
        for turn in 0..10 {
            let picker = &mut workers[turn % 2];
            assert_eq!(picker.pick(&ask(end, &[])), Pick::Server(2));
            trials.extend(picker.trial(end));
        }
        assert_eq!(trials, [0, 1]);
        assert_eq!(fail(&fleet, 0, 1, end), None);
        let next = end + BASE;
        assert!(workers.iter_mut().all(|picker| picker.pick(&ask(next, &[])) == Pick::Server(2)));
        assert_eq!(workers[0].trial(next), Some(0));
        assert!(fleet.revive(0, next));
        let is_back = |picker: &mut Picker| matches!(picker.pick(&ask(next, &[])), Pick::Server(0 | 1));
        assert!(workers.iter_mut().all(is_back));
        // The other one is in a priority with a server again, so its time alone decides.
        assert_eq!(fleet.members()[1].health.state(), HealthState::Up);
    }

    #[test]
    fn a_priority_is_skipped_only_if_it_fails_and_a_later_one_does_not() {
        let ejected = |event| matches!(event, Some(ServerEvent::Ejected(_)));
        // One of the priority is well.
        let three = fleet(&[0, 0, 1]);
        assert!(ejected(fail(&three, 0, 2, START)));
        for _ in 0..100 {
            three.end(1, RequestOutcome::Answered(None), START);
        }
        assert!(!ejected(fail(&three, 1, 7, START)), "few in a row after many good responses");
        assert!(ejected(fail(&three, 1, 1, START)), "so many in a row are certain");
        // The backup fails alike.
        let two = fleet(&[0, 1]);
        assert_eq!(fail(&two, 1, 2, START), None, "the last priority is never skipped");
        assert_eq!(fail(&two, 0, 9, START), None);
        // An earlier priority takes over for none.
        let lone = fleet(&[0, 0]);
        assert!(ejected(fail(&lone, 0, 2, START)));
        assert_eq!(fail(&lone, 1, 9, START), None);
    }

    #[test]
    fn where_all_priorities_fail_the_first_is_used_again() {
        let fleet = fleet(&[0, 1, 2]);
        let mut picker = Picker::new(Arc::clone(&fleet), 1);
        for server in [0, 1] {
            assert!(matches!(fail(&fleet, server, 2, START), Some(ServerEvent::Ejected(_))));
        }
        assert_eq!(picker.pick(&ask(START, &[])), Pick::Server(2));
        assert_eq!(fail(&fleet, 2, 2, START), Some(ServerEvent::Recalled));
        assert_eq!(picker.pick(&ask(START, &[])), Pick::Server(0));
        assert_eq!(fail(&fleet, 2, 2, START), None, "once");
    }

    #[test]
    fn an_ejection_alone_leaves_no_request_without_a_server() {
        for none_up in [NoneUp::TryAll, NoneUp::Refuse, NoneUp::Fail] {
            let given = fleet(&[0, 1]);
            let settings = FleetSettings { none_up, ..*given.settings() };
            let fleet = Arc::new(Fleet::new(&POLICIES[0], given.members().to_vec(), settings));
            let mut picker = Picker::new(Arc::clone(&fleet), 1);
            fail(&fleet, 0, 2, START);
            assert_eq!(picker.pick(&ask(START, &[])), Pick::Server(1));
            fleet.members()[1].health.stop(IneligibleCause::Check);
            assert_eq!(picker.pick(&ask(START, &[])), Pick::Server(0), "{none_up:?}");
            fleet.members()[0].health.stop(IneligibleCause::Drain);
            let rest = if none_up == NoneUp::TryAll { Pick::Server(1) } else { Pick::None };
            assert_eq!(picker.pick(&ask(START, &[])), rest, "{none_up:?}: an operator has taken it out");
        }
    }
}
