//! Messages between agents and their controller: lines of JSON.

use std::io::{BufRead, Read as _, Write};

use load::{RunOutcome, ToldSecond};
use serde::{Deserialize, Serialize};

/// The longest line: a result with its histograms.
const LINE_BYTES_MAX: u64 = 256 * 1024 * 1024;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AgentLineOrder {
    /// Read these arguments of `vanward load`, of which the agent sends its part.
    Prepare {
        version: String,
        arguments: Vec<String>,
        number: usize,
        of: usize,
    },
    Begin,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AgentLineReply {
    /// Waits for [`AgentLineOrder::Begin`].
    Ready {
        /// Duration of the measured window, if it has an end.
        window_seconds: Option<f64>,
        /// Maximum time before and after the window.
        around_seconds: f64,
    },
    Failed(String),
    Runs,
    Second(Box<ToldSecond>),
    Ended(Box<RunOutcome>),
}

pub(super) fn write(output: &mut impl Write, value: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}

/// Reads the next line; `None` at the end, an error if it cannot be parsed.
pub(super) fn read<T: for<'de> Deserialize<'de>>(input: &mut impl BufRead) -> Option<Result<T, ()>> {
    let mut line = Vec::new();
    match input.take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
        Ok(1..) => Some(serde_json::from_slice(&line).map_err(drop)),
        Ok(0) | Err(_) => None,
    }
}
