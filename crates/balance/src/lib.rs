//! Load balancing: policies, concurrency limits, server health, and sticky sessions.
//!
//! No sockets, no clock, no randomness: time and random bits are passed in. Each worker has its own `Picker`; state
//! that all workers share is in the `ServerHealth` of each server, in atomics.

#![forbid(unsafe_code)]

/// Points in time, as numbers.
mod time;
/// Stable hashes of keys and servers.
mod hash;
/// Moving average of response times.
mod latency;
/// The circuit breaker.
mod breaker;
/// The state of a server, shared by all workers.
mod health;
/// The servers of an upstream, and the rules for them.
mod fleet;
/// The servers that may get requests now.
mod view;
/// Picks a server for a request.
mod picker;
/// Load balancing policies.
mod policy;
/// Wait queue for servers at their limit.
mod queue;
/// Load shedding by an adaptive concurrency limit.
mod shed;
/// The retry budget.
mod retry;
/// How many idle connections to keep.
mod idle;
/// Schedule and verdict of active health checks.
mod check;
/// Passive ejection of outliers.
mod eject;
/// Sticky sessions.
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
    CookieAttributes, Fields, FoundSession, InsertedCookie, Parts, SameSite, SessionKey, Sessions, Source,
    Stuck, learnt_cookie,
};
pub use shed::{SAMPLES_MAX, Shed, ShedSettings, Work};
pub use time::Time;
