//! Resilience runs: load at a constant rate, with events at known times: servers die, links slow down, configurations
//! are reloaded. The results of the clients are judged phase by phase.

/// Plan: events, faults and phases. No I/O.
mod plan;
/// Expectations of phases, and recovery. No I/O.
mod judge;
/// Launch and reload of each proxy.
mod suited;
/// Servers that can be killed and paused, with the faults in front of them.
mod servers;
/// Counts of the requests that each fault affected. No I/O.
mod effects;
/// Vanward as a fault injector.
mod faults;
/// Run of a plan.
mod run;

pub use judge::Expect;
pub(crate) use judge::condition;
pub use plan::{Action, At, FaultKind, FaultPlace, PlanEvent, PlanFault, ResiliencePlan};
pub(crate) use plan::{DURATION_MAX, SLOT};
pub use run::{RunReport, run};
