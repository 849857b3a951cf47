//! The lab: plan, start the proxies, warm up, measure, and hand over results.
//!
//! It talks to every proxy, ours included, over sockets and as a process of its own; it never links the proxy.
//! What the results mean is the crate `report`'s business.

/// What a run is to measure, and how long each part of it lasts.
pub mod plan;
/// The proxies that the lab can drive, a file each.
pub mod proxies;
/// Which cores each part has.
pub mod cores;
/// The certificate of a run.
pub mod certificate;
/// Processes that end with their group, whatever happens.
pub mod group;
/// Addresses, probes and logs of what was started.
mod start;
/// The test backends.
mod origins;
/// CPU time, memory and threads of a process tree.
pub mod usage;
/// The load generator as a process.
mod generator;
/// The machine, for the report.
mod machine;
/// The run itself.
mod experiment;
/// A proxy left running for people to try.
mod serving;
/// Why a run can't be.
mod error;

pub use error::Error;
pub use experiment::{Progress, run};
pub use plan::{CasePlan, Load, Own, Payload, Plan, Timing};
pub use serving::Serving;
