//! The available servers of a fleet and their current weights, as one worker sees them.
//!
//! Evaluates priority groups, slow start, and ends of ejections and open circuits, but only after a change or when a
//! time has come, so that picks need not. Never allocates after creation.

use crate::breaker::Flow;
use crate::fleet::{Fleet, NoneUp};
use crate::health::{HealthState, ServerHealth};
use crate::time::{Time, micros};

/// The warmth of a server that gets its full weight. Warmth is the share of the weight, in 64ths.
pub(crate) const WARM: u8 = 64;
/// The warmth of a server that has just come up: about a tenth.
// More than nothing, so that the server gets some requests by which it can warm up.
const COLD: u8 = 6;

/// The available servers. Places here are not indices in the fleet.
#[derive(Debug, Clone)]
pub(crate) struct FleetView {
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
    /// When a server of a skipped priority may be tried; `NEVER` in most cases.
    pub(crate) trial_at: Time,
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

impl FleetView {
    pub(crate) fn new(servers: usize) -> Self {
        Self {
            changes: None,
            due: Time::NEVER,
            servers: Vec::with_capacity(servers),
            weights: Vec::with_capacity(servers),
            warmth: Vec::with_capacity(servers),
            places: vec![None; servers],
            trial_at: Time::NEVER,
            is_guarded: false,
            servers_before: Vec::with_capacity(servers),
            weights_before: Vec::with_capacity(servers),
        }
    }

    #[inline]
    pub(crate) fn is_stale(&self, fleet: &Fleet, now: Time) -> bool {
        // Each pick asks this, so it is one load and two comparisons.
        self.changes != Some(fleet.changes.count()) || now >= self.due
    }

    #[inline]
    pub(crate) fn place(&self, server: usize) -> Option<usize> {
        self.places[server].map(|place| place as usize)
    }

    pub(crate) fn refresh(&mut self, fleet: &Fleet, now: Time) -> Difference {
        // Read before the servers, so that the next renewal sees changes made meanwhile.
        self.changes = Some(fleet.changes.count());
        self.trial_at = fleet.end_ejections(now, |_| {});
        self.keep_for_comparison();
        let is_up = |health: &ServerHealth| health.state() == HealthState::Up;
        let is_ejected =
            |health: &ServerHealth| health.state() == HealthState::Ejected && !health.is_withdrawn();
        let is_any_up = self.fill(fleet, now, is_up)
            // An ejection alone never leaves a request without a server.
            || self.fill(fleet, now, |health| is_up(health) || is_ejected(health));
        // Servers that an operator has taken out stay out: that was no mistake of a check.
        if !is_any_up && fleet.settings.none_up == NoneUp::TryAll {
            self.fill(fleet, now, |health| !health.is_withdrawn());
        }
        self.compare()
    }

    /// Shows the servers of one group that are up, regardless of the others.
    pub(crate) fn show(&mut self, fleet: &Fleet, group: &[u32], now: Time) -> Difference {
        self.keep_for_comparison();
        self.clear();
        for &server in group {
            if fleet.members[server as usize].health.state() == HealthState::Up {
                self.take(fleet, server, now);
            }
        }
        self.compare()
    }

    /// Swaps the servers with those of the previous view, so that comparing allocates nothing.
    fn keep_for_comparison(&mut self) {
        std::mem::swap(&mut self.servers, &mut self.servers_before);
        std::mem::swap(&mut self.weights, &mut self.weights_before);
    }

    fn compare(&mut self) -> Difference {
        self.places.fill(None);
        for (place, &server) in (0..).zip(&self.servers) {
            self.places[server as usize] = Some(place);
        }
        let is_same = self.servers == self.servers_before && self.weights == self.weights_before;
        if is_same { Difference::None } else { Difference::Some }
    }

    /// Adds groups in turn until the total suffices. Returns whether any added server accepts every request.
    fn fill(&mut self, fleet: &Fleet, now: Time, may_be_asked: impl Fn(&ServerHealth) -> bool) -> bool {
        let mut is_any_up = false;
        self.clear();
        let priority = |server: &u32| fleet.members[*server as usize].priority;
        for group in fleet.by_priority.chunk_by(|a, b| priority(a) == priority(b)) {
            let (mut weight, mut weight_up) = (0u64, 0u64);
            for &server in group {
                let member = &fleet.members[server as usize];
                weight += u64::from(member.weight);
                if may_be_asked(&member.health) && self.take(fleet, server, now) {
                    weight_up += u64::from(member.weight);
                }
                // The end of an ejection is no event, so the view looks again at that time. After it, a trial decides.
                if member.health.state() == HealthState::Ejected && now < member.health.ejected_until() {
                    self.due = self.due.min(member.health.ejected_until());
                }
            }
            is_any_up |= weight_up > 0;
            let enough = weight * u64::from(fleet.settings.group_suffices_percent.min(100));
            // At 0 percent, one server of the group suffices, but there must be one.
            if weight_up > 0 && weight_up * 100 >= enough {
                break;
            }
        }
        is_any_up
    }

    fn clear(&mut self) {
        self.servers.clear();
        self.weights.clear();
        self.warmth.clear();
        self.is_guarded = false;
        self.due = Time::NEVER;
    }

    /// Adds a server, unless its circuit is open. Returns whether it accepts every request: one with a half-open
    /// circuit accepts only a few, so it does not replace another.
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
                // Even if all its probe slots are taken now: they become free with its next response, and each pick
                // checks.
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

/// The warmth of a server, and when it changes next. It grows evenly from the return on.
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
    use crate::fleet::{FleetMember, FleetSettings};
    use crate::hash::ServerId;
    use crate::health::{IneligibleCause, RequestOutcome};
    use crate::policy;

    const START: Time = Time::START;

    /// Servers of these priorities and weights.
    fn fleet(servers: &[(u16, u32)], settings: FleetSettings) -> Fleet {
        let changes = Arc::default();
        let member = |(id, &(priority, weight)): (u64, &(u16, u32))| FleetMember {
            priority,
            ..FleetMember::new(ServerId::from_u64(id), weight, &ServerHealth::new(&changes))
        };
        Fleet::new(policy::DEFAULT, (0..).zip(servers).map(member).collect(), settings)
    }

    fn seen(fleet: &Fleet, now: Time) -> Vec<u32> {
        let mut view = FleetView::new(fleet.members().len());
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
            let fleet = fleet(
                &servers,
                FleetSettings { group_suffices_percent: suffices, ..FleetSettings::default() },
            );
            for &server in down {
                fleet.members()[server].health.stop(IneligibleCause::Check);
            }
            assert_eq!(seen(&fleet, START), expected, "{suffices}% suffices, {down:?} down");
        }
    }

    #[test]
    fn where_none_is_up_drained_servers_are_not_tried() {
        let refuse = FleetSettings { none_up: NoneUp::Refuse, ..FleetSettings::default() };
        for (settings, expected) in [(FleetSettings::default(), &[1][..]), (refuse, &[])] {
            let fleet = fleet(&[(0, 1), (0, 1)], settings);
            fleet.members()[0].health.stop(IneligibleCause::Drain);
            fleet.members()[1].health.stop(IneligibleCause::Check);
            assert_eq!(seen(&fleet, START), expected);
        }
    }

    #[test]
    fn a_server_that_comes_up_gets_its_weight_little_by_little() {
        let slow_start = Duration::from_secs(58);
        let fleet = fleet(&[(0, 2), (0, 10)], FleetSettings { slow_start, ..FleetSettings::default() });
        let mut view = FleetView::new(2);
        assert_eq!(view.refresh(&fleet, START), Difference::Some);
        assert_eq!(view.weights, [128, 640], "all warm from the start");
        let health = &fleet.members()[1].health;
        health.stop(IneligibleCause::Check);
        assert!(view.is_stale(&fleet, START));
        assert_eq!(view.refresh(&fleet, START), Difference::Some);
        health.restore(IneligibleCause::Check, Time::from_millis(1000));
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
        let settings = FleetSettings {
            ejection: Some(ejection),
            slow_start: Duration::from_secs(10),
            ..FleetSettings::default()
        };
        let fleet = fleet(&[(0, 1), (0, 1)], settings);
        let mut view = FleetView::new(2);
        view.refresh(&fleet, START);
        fleet.end(0, RequestOutcome::Failed, START);
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
        let fleet =
            fleet(&[(0, 1), (0, 1)], FleetSettings { breaker: Some(breaker), ..FleetSettings::default() });
        fleet.end(1, RequestOutcome::Failed, START);
        let mut view = FleetView::new(2);
        view.refresh(&fleet, START);
        assert_eq!((view.servers.as_slice(), view.is_guarded, view.place(1)), (&[0][..], false, None));
        let now = START + breaker.open;
        assert!(view.is_stale(&fleet, now));
        view.refresh(&fleet, now);
        assert_eq!((view.servers.as_slice(), view.is_guarded, view.place(1)), (&[0, 1][..], true, Some(1)));
        // A view that is made while the request is in progress contains the server as well.
        assert_eq!(fleet.admit(1, now), Some(Passage::Probe));
        assert_eq!(seen(&fleet, now), [0, 1]);
        let mut view = FleetView::new(2);
        view.refresh(&fleet, now);
        fleet.end_passed(1, Passage::Probe, RequestOutcome::Answered(None), now);
        assert_eq!((view.is_stale(&fleet, now), view.is_guarded, view.place(1)), (false, true, Some(1)));
    }

    #[test]
    fn a_half_open_circuit_stands_in_for_no_other_server() {
        let breaker = BreakerSettings { failures: 1, ..BreakerSettings::default() };
        let settings = FleetSettings { breaker: Some(breaker), ..FleetSettings::default() };
        let now = START + breaker.open;
        let lower_group = fleet(&[(0, 1), (1, 1)], settings);
        lower_group.end(0, RequestOutcome::Failed, START);
        assert_eq!(seen(&lower_group, now), [0, 1]);
        let down = fleet(&[(0, 1), (0, 1)], settings);
        down.end(0, RequestOutcome::Failed, START);
        down.members()[1].health.stop(IneligibleCause::Check);
        assert_eq!(seen(&down, now), [0, 1], "as if all were up");
    }
}
