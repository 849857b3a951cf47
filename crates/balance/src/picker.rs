//! Picks the server for a request: applies the fleet's policy to the available servers, for one worker.
//!
//! Each worker has its own picker; state that all workers share is in the fleet. Allocates nothing after creation.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::backup::Backups;
use crate::breaker::Flow;
use crate::fleet::{Fleet, FleetMember};
use crate::hash::{ServerId, below, mix};
use crate::health::{HealthState, ServerHealth};
use crate::policy::BalancePolicy;
use crate::time::Time;
use crate::view::{Difference, FleetView};

#[derive(Debug, Clone, Copy)]
pub struct PickInput<'a> {
    /// A coarse clock suffices.
    pub now: Time,
    /// 64 random bits.
    pub random: u64,
    /// The hash of the key, for policies that hash. Without it, any server is picked.
    pub key: Option<u64>,
    /// Servers that the request was already tried on.
    pub tried: &'a [usize],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    Server(usize),
    /// All available, untried servers have reached their limit.
    Full,
    /// No server is available: all are down, drained, tried, or their circuits are open.
    None,
}

/// Which servers to consider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Servers with room now.
    Now,
    /// Also servers at their limit, for which the request would have to wait.
    OrNot,
}

/// Why a session cannot stay on its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionLoss {
    /// The server is no longer configured.
    Removed,
    /// The server is down or ejected.
    Stopped,
    CircuitOpen,
    /// The request was already tried on the server.
    Tried,
    /// The server has reached its limit. The session may wait, or move.
    Full,
}

#[derive(Debug, Clone)]
pub struct Picker {
    fleet: Arc<Fleet>,
    view: FleetView,
    policy: BalancePolicy,
    /// `None` if all servers have one priority.
    backups: Option<Box<Backups>>,
    has_limits: bool,
}

impl Picker {
    /// Workers need different seeds, so that they do not all start with one server.
    pub fn new(fleet: Arc<Fleet>, seed: u64) -> Self {
        Self {
            view: FleetView::new(fleet.members.len()),
            policy: (fleet.policy.build)(fleet.members.len(), mix(seed)),
            backups: Backups::new(&fleet, mix(seed)),
            has_limits: fleet.members.iter().any(|member| member.in_flight_max.is_some()),
            fleet,
        }
    }

    pub fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// Picks a server. Reserve it with `Fleet::begin` and `Fleet::enter`, because another worker may have taken the
    /// last place, and report the end with `Fleet::end`.
    #[inline]
    pub fn pick(&mut self, ask: &PickInput<'_>) -> Pick {
        if self.view.is_stale(&self.fleet, ask.now) {
            self.refresh(ask.now);
        }
        let is_free = ask.tried.is_empty() && !self.has_limits && !self.view.is_guarded;
        // Most picks: no server has to be checked, so the policy reads only what it compares.
        if is_free {
            let candidates = Candidates { view: &self.view, fleet: &self.fleet, ask, is_free };
            let place = self.policy.pick(&candidates);
            return place.map_or(Pick::None, |place| Pick::Server(self.view.servers[place] as usize));
        }
        self.pick_guarded(ask)
    }

    /// The server of a skipped priority that is due for a trial, which this request becomes. Call it before `pick`, for
    /// a request that was not tried yet, and report a success with `Fleet::revive`.
    #[inline]
    pub fn trial(&mut self, now: Time) -> Option<usize> {
        if now < self.view.trial_at {
            return None;
        }
        // The next refresh sets it again: the trial that was taken is a change.
        self.view.trial_at = Time::NEVER;
        self.fleet.take_trial(now)
    }

    /// A server of a later priority, for a request that found no room in the current one.
    pub fn backup(&mut self, ask: &PickInput<'_>) -> Pick {
        match &mut self.backups {
            Some(backups) => backups.pick(&self.fleet, &self.view, ask),
            None => Pick::None,
        }
    }

    /// Whether there is an untried server for the request, even as a last resort. Reserves nothing.
    pub fn has_untried(&mut self, ask: &PickInput<'_>, room: Room) -> bool {
        if self.view.is_stale(&self.fleet, ask.now) {
            self.refresh(ask.now);
        }
        self.fleet.members.iter().enumerate().any(|(index, member)| {
            // Servers out of the view count as well: those of later priorities, and those of the last resort.
            let is_asked = self.view.place(index).is_some() || !member.health.is_withdrawn();
            is_asked
                && !ask.tried.contains(&index)
                && (room == Room::OrNot || has_room(member))
                && self.flows(index, ask.now)
        })
    }

    /// An ejected or down server, for a request that was tried on all others: trying costs less than failing. Ejected
    /// servers come first, because they may have recovered unnoticed.
    pub fn last_resort(&self, ask: &PickInput<'_>) -> Option<usize> {
        let of = |state: HealthState| {
            let is_one = |(index, member): &(usize, &FleetMember)| {
                member.health.state() == state
                    && !member.health.is_withdrawn()
                    && !ask.tried.contains(index)
                    && has_room(member)
                    && self.flows(*index, ask.now)
            };
            let found = self.fleet.members.iter().enumerate().filter(is_one);
            let count = found.clone().count() as u64;
            // By chance, so that not every failing request tries the first server of the list.
            found.map(|(index, _)| index).nth(below(ask.random, count.max(1)) as usize)
        };
        of(HealthState::Ejected).or_else(|| of(HealthState::Down))
    }

    /// The server of a session, if it is available; a draining server keeps its sessions.
    ///
    /// # Errors
    /// Why it is not: `pick` another server for the session.
    pub fn follow(&mut self, server: ServerId, ask: &PickInput<'_>) -> Result<usize, SessionLoss> {
        if self.view.is_stale(&self.fleet, ask.now) {
            self.refresh(ask.now);
        }
        let index = self.fleet.index_of(server).ok_or(SessionLoss::Removed)?;
        let member = &self.fleet.members[index];
        match member.health.state() {
            HealthState::Up | HealthState::Draining => {}
            // If no server is up, the view contains those that are used anyway.
            HealthState::Down | HealthState::Ejected if self.view.place(index).is_some() => {}
            HealthState::Down | HealthState::Ejected => return Err(SessionLoss::Stopped),
        }
        match () {
            () if ask.tried.contains(&index) => Err(SessionLoss::Tried),
            // Before the circuit: a session may wait for room, but not for a circuit.
            () if !has_room(member) => Err(SessionLoss::Full),
            () if !self.flows(index, ask.now) => Err(SessionLoss::CircuitOpen),
            () => Ok(index),
        }
    }

    #[cold]
    fn refresh(&mut self, now: Time) {
        if self.view.refresh(&self.fleet, now) == Difference::Some {
            self.policy.arrange(&self.view.weights);
        }
    }

    #[cold]
    fn pick_guarded(&mut self, ask: &PickInput<'_>) -> Pick {
        let candidates = Candidates { view: &self.view, fleet: &self.fleet, ask, is_free: false };
        if let Some(place) = self.policy.pick(&candidates) {
            return Pick::Server(self.view.servers[place] as usize);
        }
        // The difference decides whether the request waits for a place or fails.
        if candidates.are_full() {
            return Pick::Full;
        }
        // A retry continues with the next priority.
        if ask.tried.is_empty() { Pick::None } else { self.backup(ask) }
    }

    fn flows(&self, server: usize, now: Time) -> bool {
        !matches!(self.fleet.flow(server, now), Flow::Open(_))
    }
}

fn has_room(member: &FleetMember) -> bool {
    member.in_flight_max.map_or(u32::MAX, NonZeroU32::get) > member.health.in_flight()
}

/// The servers that a policy chooses from, identified by their places in the view.
pub(crate) struct Candidates<'a> {
    pub(crate) view: &'a FleetView,
    pub(crate) fleet: &'a Fleet,
    pub(crate) ask: &'a PickInput<'a>,
    /// Whether every one of these servers may be picked.
    pub(crate) is_free: bool,
}

impl Candidates<'_> {
    /// Whether an untried server is at its limit.
    pub(crate) fn are_full(&self) -> bool {
        let is_full = |&server: &u32| {
            let server = server as usize;
            !self.ask.tried.contains(&server) && !has_room(&self.fleet.members[server])
        };
        self.view.servers.iter().any(is_full)
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.view.servers.len()
    }

    #[inline]
    pub(crate) fn weight(&self, place: usize) -> u32 {
        self.view.weights[place]
    }

    #[inline]
    pub(crate) fn health(&self, place: usize) -> &ServerHealth {
        &self.fleet.members[self.view.servers[place] as usize].health
    }

    /// Whether a server may be picked for this request: untried, with room, and its circuit lets the request through.
    #[inline]
    pub(crate) fn allows(&self, place: usize) -> bool {
        self.is_free || self.allows_guarded(place)
    }

    fn allows_guarded(&self, place: usize) -> bool {
        let server = self.view.servers[place] as usize;
        let member = &self.fleet.members[server];
        let flows = |settings| !matches!(member.health.breaker.flow(settings, self.ask.now), Flow::Open(_));
        !self.ask.tried.contains(&server)
            && has_room(member)
            && self.fleet.settings.breaker.as_ref().is_none_or(flows)
    }
}
