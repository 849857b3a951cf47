//! The available servers of a fleet and their current weights, as one worker sees them.
//!
//! Evaluates priority groups, slow start, and ends of ejections and open circuits, but only after a change or when a
//! time has come, so that picks need not. Never allocates after creation.

use crate::breaker::Flow;
use crate::fleet::{Fleet, NoneUp};
use crate::health::{Cause, ServerHealth, State};
use crate::time::{Time, micros};

/// Warmth is the share of its weight that a server gets, in 64ths: the full weight.
pub(crate) const WARM: u8 = 64;
/// The warmth of a server that has just come up: about a tenth.
const COLD: u8 = 6;

/// The available servers. Places here are not indices in the fleet.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// The count of changes when the view was made; `None` before.
    changes: Option<u32>,
    /// When the view must be renewed even without a change.
    due: Time,
    /// The fleet's server indices, by place.
    pub(crate) servers: Vec<u32>,
    /// The current weights, by place: weight times warmth.
    pub(crate) weights: Vec<u32>,
    /// The warmth of each server, by place, up to `WARM`.
    pub(crate) warmth: Vec<u8>,
    /// The place of each server of the fleet, if it is available.
    places: Vec<Option<u32>>,
    /// Whether a circuit is half open, so that not every request passes.
    pub(crate) is_guarded: bool,
    /// The servers of the previous view.
    servers_before: Vec<u32>,
    weights_before: Vec<u32>,
}

/// Whether renewing a view has changed its servers or their weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Difference {
    None,
    Some,
}

impl View {
    pub(crate) fn new(servers: usize) -> Self {
        Self {
            changes: None,
            due: Time::NEVER,
            servers: Vec::with_capacity(servers),
            weights: Vec::with_capacity(servers),
            warmth: Vec::with_capacity(servers),
            places: vec![None; servers],
            is_guarded: false,
            servers_before: Vec::with_capacity(servers),
            weights_before: Vec::with_capacity(servers),
        }
    }

    #[inline]
    pub(crate) fn is_stale(&self, fleet: &Fleet, now: Time) -> bool {
        self.changes != Some(fleet.changes.count()) || now >= self.due
    }

    /// The place of a server in the view.
    #[inline]
    pub(crate) fn place(&self, server: usize) -> Option<usize> {
        self.places[server].map(|place| place as usize)
    }

    /// Renews the view from all servers.
    pub(crate) fn refresh(&mut self, fleet: &Fleet, now: Time) -> Difference {
        // Before anything is looked at: what changes meanwhile is seen next time.
        self.changes = Some(fleet.changes.count());
        std::mem::swap(&mut self.servers, &mut self.servers_before);
        std::mem::swap(&mut self.weights, &mut self.weights_before);
        let is_any_up = self.fill(fleet, now, is_up);
        if !is_any_up && fleet.settings.none_up == NoneUp::TryAll {
            self.fill(fleet, now, |health, _| !health.is_withdrawn());
        }
        self.places.fill(None);
        for (place, &server) in (0..).zip(&self.servers) {
            self.places[server as usize] = Some(place);
        }
        let is_same = self.servers == self.servers_before && self.weights == self.weights_before;
        if is_same { Difference::None } else { Difference::Some }
    }

    /// Takes the groups in turn until one suffices, with what was taken before. Says whether any server takes whatever it
    /// is sent.
    fn fill(&mut self, fleet: &Fleet, now: Time, may_be_asked: impl Fn(&ServerHealth, Time) -> bool) -> bool {
        let mut is_any_up = false;
        self.servers.clear();
        self.weights.clear();
        self.warmth.clear();
        self.is_guarded = false;
        self.due = Time::NEVER;
        let priority = |server: &u32| fleet.members[*server as usize].priority;
        for group in fleet.by_priority.chunk_by(|a, b| priority(a) == priority(b)) {
            let (mut weight, mut weight_up) = (0u64, 0u64);
            for &server in group {
                let member = &fleet.members[server as usize];
                weight += u64::from(member.weight);
                if may_be_asked(&member.health, now) {
                    if self.take(fleet, server, now) {
                        weight_up += u64::from(member.weight);
                    }
                } else if member.health.state() == State::Ejected {
                    self.due = self.due.min(member.health.ejected_until());
                }
            }
            is_any_up |= weight_up > 0;
            let enough = weight * u64::from(fleet.settings.group_suffices_percent.min(100));
            if weight_up > 0 && weight_up * 100 >= enough {
                break;
            }
        }
        is_any_up
    }

    /// Takes a server in, unless its circuit is open. Says whether it takes whatever it is sent: one whose circuit is half
    /// open takes a request now and then, and so stands in for no other.
    fn take(&mut self, fleet: &Fleet, server: u32, now: Time) -> bool {
        let member = &fleet.members[server as usize];
        let mut is_whole = true;
        if let Some(settings) = &fleet.settings.breaker {
            let breaker = &member.health.breaker;
            match breaker.flow(settings, now) {
                Flow::Closed => {}
                Flow::Open(until) if !breaker.is_half_open() => {
                    self.due = self.due.min(until);
                    return false;
                }
                // All its places may be taken now: they are free again as soon as it has answered, and each pick looks.
                Flow::Open(_) | Flow::Probe => {
                    is_whole = false;
                    self.is_guarded = true;
                }
            }
        }
        let (warmth, until) = warmth(&member.health, fleet, now);
        self.due = self.due.min(until);
        self.servers.push(server);
        self.weights.push(member.weight * u32::from(warmth));
        self.warmth.push(warmth);
        is_whole
    }
}

/// Whether a server is up; an ejection whose time is over is ended.
fn is_up(health: &ServerHealth, now: Time) -> bool {
    if health.is_stopped_by(Cause::Ejection) && now >= health.ejected_until() {
        health.restore(Cause::Ejection, now);
    }
    health.state() == State::Up
}

/// How much of its weight a server is given, and until when: it grows evenly from when it came up.
fn warmth(health: &ServerHealth, fleet: &Fleet, now: Time) -> (u8, Time) {
    let whole = micros(fleet.settings.slow_start);
    let Some(returned_at) = health.returned_at().filter(|_| whole > 0) else { return (WARM, Time::NEVER) };
    let up = micros(now.since(returned_at));
    if up >= whole {
        return (WARM, Time::NEVER);
    }
    let steps = u64::from(WARM - COLD);
    let step = up.saturating_mul(steps) / whole;
    let next_micros = (whole.saturating_mul(step + 1)).div_ceil(steps);
    (COLD + step as u8, returned_at + std::time::Duration::from_micros(next_micros))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::breaker::{BreakerSettings, Passage};
    use crate::eject::EjectionSettings;
    use crate::fleet::{Member, Settings};
    use crate::hash::ServerId;
    use crate::health::Outcome;
    use crate::policy;

    const START: Time = Time::START;

    /// Servers of these priorities and weights.
    fn fleet(servers: &[(u16, u32)], settings: Settings) -> Fleet {
        let changes = Arc::default();
        let member = |(id, &(priority, weight)): (u64, &(u16, u32))| Member {
            priority,
            ..Member::new(ServerId::from_u64(id), weight, &ServerHealth::new(&changes))
        };
        Fleet::new(policy::DEFAULT, (0..).zip(servers).map(member).collect(), settings)
    }

    fn seen(fleet: &Fleet, now: Time) -> Vec<u32> {
        let mut view = View::new(fleet.members().len());
        view.refresh(fleet, now);
        view.servers
    }

    #[test]
    fn lower_groups_are_used_where_too_little_of_the_better_is_up() {
        let servers = [(1, 1), (0, 1), (0, 1), (0, 2), (2, 1)];
        for (suffices, down, expected) in [
            (0, &[][..], &[1, 2, 3][..]),
            (0, &[1, 3], &[2]),
            (0, &[1, 2, 3], &[0]),
            (0, &[0, 1, 2, 3], &[4]),
            (50, &[3], &[1, 2]),
            (51, &[3], &[1, 2, 0]),
            (100, &[1], &[2, 3, 0]),
            (100, &[1, 0], &[2, 3, 4]),
            (0, &[0, 1, 2, 3, 4], &[1, 2, 3]),
        ] {
            let fleet = fleet(&servers, Settings { group_suffices_percent: suffices, ..Settings::default() });
            for &server in down {
                fleet.members()[server].health.stop(Cause::Check);
            }
            assert_eq!(seen(&fleet, START), expected, "{suffices}% suffices, {down:?} down");
        }
    }

    #[test]
    fn where_none_is_up_drained_servers_are_not_tried() {
        let refuse = Settings { none_up: NoneUp::Refuse, ..Settings::default() };
        for (settings, expected) in [(Settings::default(), &[1][..]), (refuse, &[])] {
            let fleet = fleet(&[(0, 1), (0, 1)], settings);
            fleet.members()[0].health.stop(Cause::Drain);
            fleet.members()[1].health.stop(Cause::Check);
            assert_eq!(seen(&fleet, START), expected);
        }
    }

    #[test]
    fn a_server_that_comes_up_gets_its_weight_little_by_little() {
        let slow_start = Duration::from_secs(58);
        let fleet = fleet(&[(0, 2), (0, 10)], Settings { slow_start, ..Settings::default() });
        let mut view = View::new(2);
        assert_eq!(view.refresh(&fleet, START), Difference::Some);
        assert_eq!(view.weights, [128, 640], "all warm from the start");
        let health = &fleet.members()[1].health;
        health.stop(Cause::Check);
        assert!(view.is_stale(&fleet, START));
        assert_eq!(view.refresh(&fleet, START), Difference::Some);
        health.restore(Cause::Check, Time::from_millis(1000));
        let mut before = 0;
        for second in 1..=59 {
            let now = Time::from_millis(1000 * second);
            assert!(view.is_stale(&fleet, now), "a step each second");
            assert_eq!(view.refresh(&fleet, now), Difference::Some);
            assert!(!view.is_stale(&fleet, now + Duration::from_millis(999)) || second == 59);
            assert!(view.weights[1] > before && view.weights[0] == 128);
            before = view.weights[1];
        }
        assert_eq!(view.weights, [128, 640]);
        assert!(!view.is_stale(&fleet, Time::from_millis(1 << 50)));
    }

    #[test]
    fn an_ejection_ends_by_itself() {
        let ejection = EjectionSettings { failures_in_a_row: NonZeroU32::new(1), ..Default::default() };
        let settings =
            Settings { ejection: Some(ejection), slow_start: Duration::from_secs(10), ..Settings::default() };
        let fleet = fleet(&[(0, 1), (0, 1)], settings);
        let mut view = View::new(2);
        view.refresh(&fleet, START);
        fleet.end(0, Outcome::Failed, START);
        view.refresh(&fleet, START);
        assert_eq!(view.servers, [1]);
        let end = START + ejection.base;
        assert!(!view.is_stale(&fleet, Time::from_micros(end.as_micros() - 1)) && view.is_stale(&fleet, end));
        assert_eq!(view.refresh(&fleet, end), Difference::Some);
        assert_eq!((view.servers.as_slice(), view.warmth.as_slice()), (&[0, 1][..], &[COLD, WARM][..]));
    }

    #[test]
    fn an_open_circuit_hides_a_server_and_a_half_open_one_guards_it() {
        let breaker = BreakerSettings { failures: 1, ..BreakerSettings::default() };
        let fleet = fleet(&[(0, 1), (0, 1)], Settings { breaker: Some(breaker), ..Settings::default() });
        fleet.end(1, Outcome::Failed, START);
        let mut view = View::new(2);
        view.refresh(&fleet, START);
        assert_eq!((view.servers.as_slice(), view.is_guarded, view.place(1)), (&[0][..], false, None));
        let now = START + breaker.open;
        assert!(view.is_stale(&fleet, now));
        view.refresh(&fleet, now);
        assert_eq!((view.servers.as_slice(), view.is_guarded, view.place(1)), (&[0, 1][..], true, Some(1)));
        // A view that is made while a request tries it has it as well.
        assert_eq!(fleet.enter(1, now), Some(Passage::Probe));
        assert_eq!(seen(&fleet, now), [0, 1]);
        let mut view = View::new(2);
        view.refresh(&fleet, now);
        fleet.end_passed(1, Passage::Probe, Outcome::Answered(None), now);
        assert_eq!((view.is_stale(&fleet, now), view.is_guarded, view.place(1)), (false, true, Some(1)));
    }

    #[test]
    fn a_half_open_circuit_stands_in_for_no_other_server() {
        let breaker = BreakerSettings { failures: 1, ..BreakerSettings::default() };
        let settings = Settings { breaker: Some(breaker), ..Settings::default() };
        let now = START + breaker.open;
        let lower_group = fleet(&[(0, 1), (1, 1)], settings);
        lower_group.end(0, Outcome::Failed, START);
        assert_eq!(seen(&lower_group, now), [0, 1]);
        let down = fleet(&[(0, 1), (0, 1)], settings);
        down.end(0, Outcome::Failed, START);
        down.members()[1].health.stop(Cause::Check);
        assert_eq!(seen(&down, now), [0, 1], "as if all were up");
    }
}
