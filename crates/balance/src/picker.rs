//! Which server gets a request: the fleet's policy, asked by one worker for the servers that may be asked.
//!
//! Each worker has a picker of its own and lends it mutably; what must be right over all workers lies in the fleet's
//! standings. Nothing allocates once a picker is made.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::breaker::Flow;
use crate::fleet::{Fleet, Member};
use crate::hash::{ServerId, below, mix};
use crate::health::{Cause, ServerHealth, State};
use crate::policy::Policy;
use crate::time::Time;
use crate::view::{Difference, View};

/// What a pick has to know of a request.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Now. A coarse clock will do.
    pub now: Time,
    /// 64 random bits.
    pub random: u64,
    /// The hash of what is to stay on one server, for policies that hash: a request without goes anywhere.
    pub key: Option<u64>,
    /// Servers that this request was tried on.
    pub tried: &'a [usize],
}

/// The answer to a pick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// This server.
    Server(usize),
    /// None has room: all that may be asked, and were not tried, have as much under way as they may have.
    Full,
    /// None may be asked: they are down, drained, tried, or their circuits are open.
    None,
}

/// Which servers are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Those that have room now.
    Now,
    /// Those as well that would have to be waited for.
    OrNot,
}

/// Why a session cannot stay on its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The server is not in the configuration any more.
    Removed,
    /// It is down or ejected.
    Stopped,
    /// Its circuit is open.
    CircuitOpen,
    /// This request was tried on it.
    Tried,
    /// It has as much under way as it may have. The session may wait for it, or move.
    Full,
}

/// One worker's picks among the servers of a fleet.
#[derive(Debug, Clone)]
pub struct Picker {
    fleet: Arc<Fleet>,
    view: View,
    policy: Policy,
    has_limits: bool,
}

impl Picker {
    /// A picker of this fleet. `seed` differs between workers, so that they do not all begin with the same server.
    pub fn new(fleet: Arc<Fleet>, seed: u64) -> Self {
        Self {
            view: View::new(fleet.members.len()),
            policy: (fleet.policy.build)(fleet.members.len(), mix(seed)),
            has_limits: fleet.members.iter().any(|member| member.in_flight_max.is_some()),
            fleet,
        }
    }

    /// The fleet.
    pub fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// The server for a request. `Fleet::begin` and `Fleet::enter` take its place there, which another worker may have got
    /// meanwhile; `Fleet::end` tells what became of it.
    #[inline]
    pub fn pick(&mut self, ask: &Ask<'_>) -> Pick {
        if self.view.is_stale(&self.fleet, ask.now) {
            self.refresh(ask.now);
        }
        let is_free = ask.tried.is_empty() && !self.has_limits && !self.view.is_guarded;
        if is_free {
            let candidates = Candidates { view: &self.view, fleet: &self.fleet, ask, is_free };
            let place = self.policy.pick(&candidates);
            return place.map_or(Pick::None, |place| Pick::Server(self.view.servers[place] as usize));
        }
        self.pick_guarded(ask)
    }

    /// Whether there is a server that a request was not tried on and that it may be sent to, if only as the last resort.
    /// Takes nothing.
    pub fn has_untried(&mut self, ask: &Ask<'_>, room: Room) -> bool {
        if self.view.is_stale(&self.fleet, ask.now) {
            self.refresh(ask.now);
        }
        self.fleet.members.iter().enumerate().any(|(index, member)| {
            let is_asked = self.view.place(index).is_some()
                || matches!(member.health.state(), State::Ejected | State::Down)
                    && !member.health.is_stopped_by(Cause::Drain);
            is_asked
                && !ask.tried.contains(&index)
                && (room == Room::OrNot || has_room(member))
                && self.flows(index, ask.now)
        })
    }

    /// A server that is ejected or down, for a request that all others were tried for: a try costs less than a failure.
    /// One that is ejected comes first, as it may be well again without anybody having looked.
    pub fn last_resort(&self, ask: &Ask<'_>) -> Option<usize> {
        let of = |state: State| {
            let is_one = |(index, member): &(usize, &Member)| {
                member.health.state() == state
                    && !member.health.is_stopped_by(Cause::Drain)
                    && !ask.tried.contains(index)
                    && has_room(member)
                    && self.flows(*index, ask.now)
            };
            let found = self.fleet.members.iter().enumerate().filter(is_one);
            let count = found.clone().count() as u64;
            found.map(|(index, _)| index).nth(below(ask.random, count.max(1)) as usize)
        };
        of(State::Ejected).or_else(|| of(State::Down))
    }

    /// The server of a session, if it may be asked: a server that drains keeps its sessions.
    ///
    /// # Errors
    /// Why it may not: the session moves on, by `pick`.
    pub fn follow(&mut self, server: ServerId, ask: &Ask<'_>) -> Result<usize, Loss> {
        if self.view.is_stale(&self.fleet, ask.now) {
            self.refresh(ask.now);
        }
        let index = self.fleet.index_of(server).ok_or(Loss::Removed)?;
        let member = &self.fleet.members[index];
        match member.health.state() {
            State::Up | State::Draining => {}
            // Where none is up the view holds those that are tried all the same.
            State::Down | State::Ejected if self.view.place(index).is_some() => {}
            State::Down | State::Ejected => return Err(Loss::Stopped),
        }
        match () {
            () if ask.tried.contains(&index) => Err(Loss::Tried),
            () if !has_room(member) => Err(Loss::Full),
            () if !self.flows(index, ask.now) => Err(Loss::CircuitOpen),
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
    fn pick_guarded(&mut self, ask: &Ask<'_>) -> Pick {
        let candidates = Candidates { view: &self.view, fleet: &self.fleet, ask, is_free: false };
        if let Some(place) = self.policy.pick(&candidates) {
            return Pick::Server(self.view.servers[place] as usize);
        }
        let is_full = |&server: &u32| {
            let server = server as usize;
            !ask.tried.contains(&server) && !has_room(&self.fleet.members[server])
        };
        if self.view.servers.iter().any(is_full) { Pick::Full } else { Pick::None }
    }

    /// Whether its circuit lets a request through.
    fn flows(&self, server: usize, now: Time) -> bool {
        !matches!(self.fleet.flow(server, now), Flow::Open(_))
    }
}

fn has_room(member: &Member) -> bool {
    member.in_flight_max.map_or(u32::MAX, NonZeroU32::get) > member.health.in_flight()
}

/// What a policy chooses from. Servers are named by their place in the view.
pub(crate) struct Candidates<'a> {
    pub(crate) view: &'a View,
    pub(crate) fleet: &'a Fleet,
    pub(crate) ask: &'a Ask<'a>,
    /// Whether each of them may be picked for this request.
    pub(crate) is_free: bool,
}

impl Candidates<'_> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.view.servers.len()
    }

    /// What the server weighs now.
    #[inline]
    pub(crate) fn weight(&self, place: usize) -> u32 {
        self.view.weights[place]
    }

    #[inline]
    pub(crate) fn health(&self, place: usize) -> &ServerHealth {
        &self.fleet.members[self.view.servers[place] as usize].health
    }

    /// Whether the server may be picked for this request: it was not tried, has room, and its circuit lets one through.
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
