//! The lab: plan, start the proxies, warm up, measure, and hand over results.
//!
//! It talks to every proxy, ours included, over sockets and as a process of its own; it never links the proxy.
//! What the results mean is the crate `report`'s business.

/// What a run is to measure, and how long each part of it lasts.
pub mod plan;
/// A plan as a file has it.
pub mod written;
/// What a command line takes of it.
mod changes;
/// The experiments that the program has with it.
pub mod experiments;
/// What a plan expects, and whether it came true.
pub mod expect;
/// Durations, sizes and rates.
mod quantity;
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
/// CPU time, memory, threads and switches of process trees.
mod usage;
/// What the kernel charges control groups for.
mod charged;
/// TCP connections by port and state.
mod connections;
/// Bytes of TCP connections by port.
mod traffic;
/// What the kernel's TCP counts.
mod network;
/// What the parts use while load runs.
mod watch;
/// What sends the requests: ours, or another to cross-check it.
pub mod generator;
/// The hands of the lab on one machine.
mod agent;
/// A machine of a run: its agent, here or at the other end of ssh.
mod site;
/// The machines of a run, and what each is for.
mod sites;
/// The machine, for the report.
pub mod machine;
/// The run itself.
mod experiment;
/// A proxy left running for people to try.
mod serving;
/// Why a run can't be.
mod error;

pub use agent::agent;
pub use agent::words::Wanted;
pub use changes::Changes;
pub use error::Error;
pub use experiment::{Forecast, Progress, Watcher, run};
pub use plan::{CasePlan, Deviation, Features, Load, Own, Payload, Plan, Timing};
pub use serving::Serving;
pub use site::Host;
pub use sites::{Placement, Sites};
pub use written::Written;
