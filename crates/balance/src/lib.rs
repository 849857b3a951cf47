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
/// Priorities that take over for others.
mod backup;
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

pub use breaker::{Breaker, BreakerSettings, BreakerTurn, Flow, Passage};
pub use check::{CheckSettings, CheckTurn, Health};
pub use eject::{EjectionSettings, Ejector, Judgement, Outlier, Spared};
pub use fleet::{Fleet, FleetMember, FleetSettings, NoneUp, SERVERS_MAX, ServerEvent, WEIGHT_MAX};
pub use hash::{HashSecret, ServerId};
pub use health::{
    Changes, HealthState, InFlight, IneligibleCause, Inherited, IntervalCounts, RequestOutcome, ServerHealth,
};
pub use idle::IdleConnections;
pub use picker::{Pick, PickInput, Picker, Room, SessionLoss};
pub use policy::round_robin::RoundRobin;
pub use policy::{AddressPrefixes, DEFAULT, POLICIES, PolicyRow, client_key, policy};
pub use queue::{Queue, Ticket, WaitingWorkers};
pub use retry::{RetryBudget, RetryReserve, RetrySettings};
pub use session::{
    CookieAttributes, FoundSession, InsertedCookie, SameSite, SessionFields, SessionKey, SessionParts,
    SessionSource, Sessions, Stuck, learnt_cookie,
};
pub use shed::{SAMPLES_MAX, Shed, ShedSettings, Work};
pub use time::Time;
