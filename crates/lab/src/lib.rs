//! Lab: reads a plan, starts the proxies, warms up, measures, and returns results.
//!
//! It talks to every proxy, Vanward included, over sockets and as a separate process; it does not link the proxy. The
//! crate `report` interprets the results.

/// Plan: cases, proxies and durations.
pub mod plan;
/// Plan files.
pub mod written;
/// Command-line changes to a plan.
mod changes;
/// Built-in experiments.
pub mod experiments;
/// Expectations of a plan, and their results.
pub mod expect;
/// Drivers of the proxies, one file each.
pub mod proxies;
/// Assignment of CPU cores.
pub mod cores;
/// Certificate of the proxies.
pub mod certificate;
/// Process groups that always end.
pub mod group;
/// Starts processes and probes them.
mod start;
/// Test servers of a run.
mod origins;
/// Expected responses of the lab's own origins.
mod pages;
/// CPU time, memory, threads and context switches of process trees.
mod usage;
/// CPU time of control groups.
mod charged;
/// Processes in /proc.
mod stat;
/// TCP connections by port and state.
mod connections;
/// Bytes of TCP connections by port.
mod traffic;
/// TCP counters of the kernel.
mod network;
/// Samples the usage of the parts while load runs.
mod watch;
/// Load generators.
pub mod generator;
/// Agent on each machine.
mod agent;
/// Machine of a run: the connection to its agent.
mod site;
/// All machines of a run, and their parts.
mod sites;
/// Description of the machine, for the report.
pub mod machine;
/// Run of a plan.
mod experiment;
/// Resilience runs: faults and events beside the load.
pub mod resilience;
/// A proxy that stays running, for people to try.
mod serving;
/// Errors of a run.
mod error;

pub use agent::agent;
pub use agent::words::{AgentService, WantedProxies};
pub use changes::Changes;
pub use error::Error;
pub use experiment::{ExperimentProgress, Forecast, Watcher, run};
pub use plan::{
    CasePlan, Deviation, Features, LabPlan, OriginPayload, OriginPlan, OriginSource, OriginsTls, OwnProgram,
    PlanLoad, RequestList, RequestOptions, StreamPlan, Timing,
};
pub use serving::Serving;
pub use site::Host;
pub use sites::{Placement, Sites};
pub use written::{Grammar, MeasuredService, WrittenPlan, authority_of};
