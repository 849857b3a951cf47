//! Errors that prevent or end a run. A failed measurement is a result, not an error.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Each message names a remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder for configurations and logs could not be written.
    #[error("cannot write {}: {source}; check the free space, or set TMPDIR to another folder", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// The program to be copied to another machine could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A part of the lab failed on its machine.
    #[error("{}{reason}", at.as_ref().map(|at| format!("on {at}: ")).unwrap_or_default())]
    There {
        /// The machine; `None` is this one.
        at: Option<String>,
        /// The error that the machine reported.
        reason: String,
    },
    /// The connection to an agent was lost.
    #[error("the connection to the agent on {at} was lost{}", said(log))]
    Lost {
        at: String,
        /// Last output of the agent or of ssh.
        log: String,
    },
    /// A machine can be reached, but not used.
    #[error("{at} cannot be used: {reason}")]
    Unusable {
        at: String,
        /// The reason and a remedy.
        reason: String,
    },
    /// A server that should run already does not answer.
    #[error("{server} does not answer: {reason}; start it, or let the lab start it with command in [origin]")]
    NoServer {
        /// As `http://HOST:PORT`.
        server: String,
        reason: String,
    },
    #[error("cannot start {program}: {source}; check that it is installed and may be executed")]
    Spawn { program: String, source: io::Error },
    /// The system refused a port, the CPU affinity or the process list.
    #[error("cannot {action}: {source}")]
    System { action: &'static str, source: io::Error },
    #[error("{name} ended unexpectedly ({status}){}", said(log))]
    Ended {
        name: String,
        /// Exit status.
        status: String,
        /// The end of its log.
        log: String,
    },
    /// A process runs but does not answer.
    #[error("{name} did not answer within {limit:?}: {last}{}", said(log))]
    Silent {
        name: String,
        /// How long the lab waited.
        limit: Duration,
        last: String,
        /// The end of its log.
        log: String,
    },
    /// A server that is killed or paused has served nothing, so nothing changes for the proxy.
    #[error("{0} had received no request before, so nothing changed for the proxy")]
    Unused(String),
    /// A proxy does not support a requested feature.
    #[error("{name} cannot be run with {what}")]
    Unsupported { name: &'static str, what: &'static str },
    #[error("the load generator returned no figures: {reason}{}", said(log))]
    Generator {
        reason: String,
        /// The end of its log.
        log: String,
    },
    /// The run was stopped by its user.
    #[error("interrupted before anything was measured")]
    Interrupted,
    /// An earlier run does not match, so it cannot be continued.
    #[error("the existing run cannot be continued: {0}; choose another folder with --out")]
    Another(String),
    #[error("the plan has no {0} to measure")]
    Empty(&'static str),
}

/// The end of a log, as the end of a sentence.
fn said(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("; it said: {log}") }
}
