//! What agents and whoever asks them say to each other: lines of JSON.

use std::io::{BufRead, Read as _, Write};

use load::{Outcome, ToldSecond};
use serde::{Deserialize, Serialize};

/// The longest line: a result with its histograms.
const LINE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// What an agent is asked for.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ask {
    /// Reads arguments of `vanward load`, of which it has a part.
    Prepare { version: String, arguments: Vec<String>, number: usize, of: usize },
    /// Sends the load.
    Begin,
}

/// What it answers.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// It waits for [`Ask::Begin`].
    Ready {
        /// How long the measured window is, if it has an end.
        window_seconds: Option<f64>,
        /// What comes before and after it, at most.
        around_seconds: f64,
    },
    Failed(String),
    /// The load goes on.
    Runs,
    /// A second of it has ended.
    Second(Box<ToldSecond>),
    Ended(Box<Outcome>),
}

pub(super) fn write(output: &mut impl Write, value: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}

/// The next line; `None` if there is none, an error if it cannot be understood.
pub(super) fn read<T: for<'de> Deserialize<'de>>(input: &mut impl BufRead) -> Option<Result<T, ()>> {
    let mut line = Vec::new();
    match input.take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
        Ok(1..) => Some(serde_json::from_slice(&line).map_err(drop)),
        Ok(0) | Err(_) => None,
    }
}
