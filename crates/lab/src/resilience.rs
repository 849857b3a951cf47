//! Resilience runs: load at a constant rate, and beside it, at known times, servers that die, links that slow down and
//! configurations that are reloaded. What the clients got is judged phase by phase.

/// Plan: what happens when, and its phases. No I/O.
mod plan;
/// Expectations of phases, and recovery. No I/O.
mod judge;
/// How each proxy is started, and reloaded.
mod suited;
/// Servers that can be killed and paused, with the faults in front of them.
mod servers;
/// Vanward as the place where faults are injected.
mod faults;
/// Run of a plan.
mod run;

pub use judge::Expect;
pub(crate) use judge::condition;
pub use plan::{Action, At, Event, Fault, FaultKind, Place, Plan};
pub(crate) use plan::{DURATION_MAX, SLOT};
pub use run::{Told, run};
