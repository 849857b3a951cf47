//! Which server of an upstream answers a request, and for how long it may: policies, limits, health, sessions.
//!
//! No sockets, no clock, no randomness: time and random bits come in as values. A `Picker` is one worker's; what has
//! to be right over all workers lies in the `ServerHealth` of each server, in atomics that all share.

#![forbid(unsafe_code)]

/// A point in time, as a number.
mod time;
/// Keys and servers as numbers that never change.
mod hash;
/// How long a server takes to answer.
mod latency;
/// The circuit breaker of a server.
mod breaker;
/// How a server stands, as all workers know it.
mod health;
/// The servers of one upstream, and the rules for them.
mod fleet;
/// The servers that may be asked now.
mod view;
/// Which server gets a request.
mod picker;
/// The ways to choose.
mod policy;
/// Requests that wait for a server with room.
mod queue;
/// How many requests may be under way before more only wait for each other.
mod shed;
/// How many retries are allowed.
mod retry;
/// How many idle connections to a server are kept.
mod idle;
/// Active checks.
mod check;
/// Servers that are worse than the others.
mod eject;
/// What keeps a client on one server.
mod session;

pub use breaker::{Breaker, BreakerSettings, Flow, Passage, Turn};
pub use check::{CheckSettings, Health, Verdict};
pub use eject::{EjectionSettings, Ejector, Judgement, Outlier, Spared};
pub use fleet::{Event, Fleet, Member, NoneUp, SERVERS_MAX, Settings, WEIGHT_MAX};
pub use hash::{Secret, ServerId};
pub use health::{Cause, Changes, Counts, InFlight, Inherited, Outcome, ServerHealth, State};
pub use idle::Idle;
pub use picker::{Ask, Loss, Pick, Picker, Room};
pub use policy::round_robin::RoundRobin;
pub use policy::{AddressPrefixes, DEFAULT, POLICIES, PolicyRow, client_key, policy};
pub use queue::{Queue, Ticket, WaitingWorkers};
pub use retry::{RetryBudget, RetryReserve, RetrySettings};
pub use session::{
    CookieAttributes, Fields, InsertedCookie, Parts, SameSite, SessionKey, Sessions, Source, Stuck,
    learnt_cookie,
};
pub use shed::{SAMPLES_MAX, Shed, ShedSettings, Work};
pub use time::Time;
