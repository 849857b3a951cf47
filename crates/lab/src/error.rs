//! Why a run can't begin or go on. What goes wrong with a single measurement is a result, not an error.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// What stopped the lab, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder for configurations and logs.
    #[error("cannot write {}: {source}; check the free space, or set TMPDIR to another folder", path.display())]
    Write {
        /// Which file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The program that is to be copied to another machine.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// What could not be done where a part of the lab runs.
    #[error("{}{reason}", at.as_ref().map(|at| format!("on {at}: ")).unwrap_or_default())]
    There {
        /// The machine; `None` is this one.
        at: Option<String>,
        /// What was said there.
        reason: String,
    },
    /// An agent that is gone.
    #[error("the connection to the agent on {at} was lost{}", said(log))]
    Lost {
        /// Which machine.
        at: String,
        /// What it, or ssh, said last.
        log: String,
    },
    /// A machine that can be reached and not be used.
    #[error("{at} cannot be used: {reason}")]
    Unusable {
        /// Which machine.
        at: String,
        /// Why, and what helps.
        reason: String,
    },
    /// A program that did not start at all.
    #[error("cannot start {program}: {source}; check that it is installed and may be executed")]
    Spawn {
        /// As it was to be started.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// No port, no affinity, no process list.
    #[error("cannot {action}: {source}")]
    System {
        /// What was wanted.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A process that ended by itself.
    #[error("{name} ended by itself ({status}){}", said(log))]
    Ended {
        /// Which.
        name: String,
        /// How it ended.
        status: String,
        /// The end of what it wrote.
        log: String,
    },
    /// A process that runs but does not answer.
    #[error("{name} did not answer within {limit:?}: {last}{}", said(log))]
    Silent {
        /// Which.
        name: String,
        /// How long it was given.
        limit: Duration,
        /// What the last attempt met.
        last: String,
        /// The end of what it wrote.
        log: String,
    },
    /// What a proxy can't be configured to do.
    #[error("{name} cannot be run with {what}")]
    Unsupported {
        /// Which proxy.
        name: &'static str,
        /// Which feature.
        what: &'static str,
    },
    /// A generator that gave no figures.
    #[error("the load generator gave no figures: {reason}{}", said(log))]
    Generator {
        /// What came instead.
        reason: String,
        /// The end of what it wrote.
        log: String,
    },
    /// Stopped by who started it.
    #[error("interrupted before anything was measured")]
    Interrupted,
    /// An earlier run whose figures are not to stand beside new ones.
    #[error("the run that is there cannot be gone on with: {0}; choose another folder with --out")]
    Another(String),
    /// A plan that asks for nothing.
    #[error("the plan has no {0} to measure")]
    Empty(&'static str),
}

/// The end of a log as the end of a sentence.
fn said(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("; it said: {log}") }
}
