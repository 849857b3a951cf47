//! Delays that vary, as they are written: `2s`, `2s±100ms`, `50ms±10ms normal`.

use std::time::Duration;

use shape::{Delay, Jitter};

use crate::fault::{Fault, ValueError};
use crate::kind::Text;
use crate::quantity::{duration, written_duration};

const EXPECTED: &str = "a delay such as 50ms, 2s±100ms or 50ms±10ms normal";

/// The ways in which a delay varies, besides evenly.
const NORMAL: &str = "normal";
const PARETO: &str = "pareto";

pub(crate) const DELAY: Text<Delay> = Text { expected: EXPECTED, read: delay, print: written };

/// Reads a delay: `50ms`; `2s±100ms`, or `2s+-100ms`, which varies evenly; `2s±100ms normal` or `pareto`.
pub fn delay(text: &str) -> Result<Delay, ValueError> {
    let Some((mean, around)) = text.split_once('±').or_else(|| text.split_once("+-")) else {
        return Ok(Delay { mean_ns: nanoseconds(text)?, jitter: Jitter::None });
    };
    let (spread, way) = around.trim().split_once(' ').unwrap_or((around, ""));
    let (mean_ns, spread_ns) = (nanoseconds(mean)?, nanoseconds(spread)?);
    let jitter = match way.trim() {
        "" => Jitter::Uniform { spread_ns },
        NORMAL => Jitter::Normal { deviation_ns: spread_ns },
        PARETO => Jitter::Pareto { mean_ns: spread_ns },
        other => return Err(refusal(Fault::Unknown { written: other.to_owned(), nearest: None })),
    };
    Ok(Delay { mean_ns, jitter })
}

fn nanoseconds(text: &str) -> Result<u64, ValueError> {
    let length = duration(text).map_err(|ValueError { fault, .. }| refusal(fault))?;
    // Two years, which no duration is beyond, are less than 2^63 nanoseconds.
    Ok(length.as_nanos() as u64)
}

fn refusal(fault: Fault) -> ValueError {
    ValueError { fault, expected: EXPECTED }
}

pub(crate) fn written(delay: &Delay) -> String {
    let length = |ns: u64| written_duration(Duration::from_nanos(ns));
    let mean = length(delay.mean_ns);
    match &delay.jitter {
        Jitter::Uniform { spread_ns } => format!("{mean}±{}", length(*spread_ns)),
        Jitter::Normal { deviation_ns } => format!("{mean}±{} {NORMAL}", length(*deviation_ns)),
        Jitter::Pareto { mean_ns } => format!("{mean}±{} {PARETO}", length(*mean_ns)),
        // A trace is no text.
        Jitter::None | Jitter::Trace { .. } => mean,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn delays_are_read_and_written_alike() {
        let uniform = Jitter::Uniform { spread_ns: 100 * MS };
        let normal = Jitter::Normal { deviation_ns: 100 * MS };
        let pareto = Jitter::Pareto { mean_ns: 100 * MS };
        for (text, mean_ns, jitter, again) in [
            ("50ms", 50 * MS, Jitter::None, "50ms"),
            ("2s±100ms", 2_000 * MS, uniform.clone(), "2s±100ms"),
            (" 2s +- 100ms ", 2_000 * MS, uniform, "2s±100ms"),
            ("2s±100ms normal", 2_000 * MS, normal, "2s±100ms normal"),
            ("2s±100ms  pareto", 2_000 * MS, pareto, "2s±100ms pareto"),
        ] {
            let read = delay(text).unwrap();
            assert_eq!(read, Delay { mean_ns, jitter }, "{text}");
            assert_eq!(written(&read), again);
        }
    }

    #[test]
    fn what_is_no_delay_is_refused() {
        for text in ["", "50", "±5ms", "50ms±", "50ms±5", "50ms±5ms gauss", "3000d"] {
            assert!(delay(text).is_err(), "{text}");
        }
    }
}
