//! The load generator: arrival schedule, send, check, record.
//!
//! It talks to any HTTP/1.1 server over sockets and shares no code with the proxy it measures: the reader of its
//! responses is its own. `run` blocks until the run is over; what single requests did is in the `Outcome`.

/// What a run is asked to do.
mod plan;
/// What a run measured.
mod outcome;
/// Why a run could not be started.
mod error;

pub use error::Error;
pub use outcome::{Cpu, Distribution, ErrorClass, Errors, Outcome, Problem, SCHEMA, ScheduleKept, Settings};
pub use plan::{Arrival, CONNECTIONS_MAX, Plan, THREADS_MAX, URLS_MAX};

/// Runs the plan to its end. Blocks the calling thread, which sends no load itself.
pub fn run(plan: &Plan) -> Result<Outcome, Error> {
    plan.check()?;
    Err(Error::ThreadEnded)
}
