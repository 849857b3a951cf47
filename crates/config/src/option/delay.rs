//! Parses and prints delays with jitter (`2s`, `2s±100ms`, `50ms±10ms normal`, `trace FILE`), and packet loss.

use std::path::Path;
use std::time::Duration;

use shape::{Delay, Jitter, LinkLoss};
use toml::de::DeValue;

use crate::document::reader::Reader;
use crate::document::surroundings::{NAMED_FILE_BYTES, read_bytes};
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::form::Form;
use crate::option::kind::{Described, Kind, Text, quoted, refuse_type};
use crate::option::quantity::{duration, written_duration};
use crate::option::table::Written;

const EXPECTED: &str = "a delay such as 50ms, 2s±100ms, 50ms±10ms normal or 50ms trace FILE";
const EXPECTED_LOSS: &str = "a share of packets and the time until each is sent again, such as `0.5% 300ms`";

/// The ways in which a delay varies, besides evenly.
const NORMAL: &str = "normal";
const PARETO: &str = "pareto";
/// A file with a delay on each line comes behind it.
const TRACE: &str = "trace";
/// Values in such a file: a day of one a second.
const TRACE_MAX: usize = 86_400;

/// A delay, whose file is one of the reader's surroundings.
pub(crate) struct DelayKind;

pub(crate) const DELAY: DelayKind = DelayKind;

impl Described for DelayKind {
    fn form(&self) -> Form {
        Form::words(EXPECTED)
    }
}

impl Kind<Delay> for DelayKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Delay> {
        let DeValue::String(text) = written.value.get_ref() else {
            refuse_type(written, self.expected(), reader);
            return None;
        };
        let read = delay_with(text, |path| reader.surroundings().named_file(path, NAMED_FILE_BYTES));
        read.map_err(|error| reader.refuse(&written.value.span(), written.name, &error)).ok()
    }

    fn print(&self, value: &Delay) -> Option<String> {
        Some(quoted(&written_delay(value)))
    }
}

pub(crate) const LOSS: Text<LinkLoss> = Text { expected: EXPECTED_LOSS, read: loss, print: written_loss };

/// Parses a delay: `50ms`; `2s±100ms` or `2s+-100ms`, with uniform jitter; `2s±100ms normal` or `pareto`; `trace FILE`
/// or `50ms trace FILE`, where each line of the file gives a delay to add.
pub fn delay(text: &str) -> Result<Delay, ValueError> {
    delay_with(text, read_bytes)
}

fn delay_with(text: &str, file: impl FnOnce(&Path) -> Result<Vec<u8>, String>) -> Result<Delay, ValueError> {
    if let Some((mean, path)) = text.split_once(TRACE).filter(|(_, path)| path.starts_with(' ')) {
        let mean_ns = if mean.trim().is_empty() { 0 } else { nanoseconds(mean)? };
        return trace(path.trim(), file).map(|jitter| Delay { mean_ns, jitter });
    }
    drawn_delay(text)
}

/// Parses a delay that names no file, for untrusted sources such as request headers.
pub(crate) fn drawn_delay(text: &str) -> Result<Delay, ValueError> {
    let Some((mean, around)) = text.split_once('±').or_else(|| text.split_once("+-")) else {
        return Ok(Delay { mean_ns: nanoseconds(text)?, jitter: Jitter::None });
    };
    let (spread, way) = around.trim().split_once(' ').unwrap_or((around, ""));
    let (mean_ns, spread_ns) = (nanoseconds(mean)?, nanoseconds(spread)?);
    let jitter = match way.trim() {
        "" => Jitter::Uniform { spread_ns },
        NORMAL => Jitter::Normal { deviation_ns: spread_ns },
        PARETO => Jitter::Pareto { mean_ns: spread_ns },
        other => {
            return Err(refusal(ValueFault::Unknown {
                written: other.to_owned(),
                why: "is not a known distribution",
                nearest: None,
            }));
        }
    };
    Ok(Delay { mean_ns, jitter })
}

fn trace(source: &str, file: impl FnOnce(&Path) -> Result<Vec<u8>, String>) -> Result<Jitter, ValueError> {
    let path = Path::new(source);
    let refuse = |problem| refusal(ValueFault::File { path: path.to_path_buf(), problem });
    let bytes = file(path).map_err(refuse)?;
    let text = String::from_utf8(bytes).map_err(|_| refuse("it is not UTF-8 text".to_owned()))?;
    let mut added_ns = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let (sign, length) = match line.trim().strip_prefix('-') {
            Some(length) => (-1, length),
            None => (1, line.trim()),
        };
        let length_ns =
            nanoseconds(length).map_err(|error| refuse(format!("line {}: {}", number + 1, error.fault)))?;
        added_ns.push(sign * i64::try_from(length_ns).unwrap_or(i64::MAX));
    }
    match added_ns.len() {
        0 => Err(refuse("it has no delay".to_owned())),
        len if len > TRACE_MAX => Err(refuse(format!("it has more than {TRACE_MAX} delays"))),
        _ => Ok(Jitter::Trace { source: source.into(), added_ns: added_ns.into() }),
    }
}

/// Parses packet loss: `0.5% 300ms`.
pub fn loss(text: &str) -> Result<LinkLoss, ValueError> {
    let refuse = |fault| ValueError { fault, expected: EXPECTED_LOSS };
    let unknown = || refuse(ValueFault::Unknown { written: text.to_owned(), why: "has no %", nearest: None });
    let (share, stall) = text.trim().split_once('%').ok_or_else(unknown)?;
    let percent: f64 = share.parse().map_err(|_| refuse(ValueFault::NotANumber(share.to_owned())))?;
    if !(0.0..=100.0).contains(&percent) {
        return Err(refuse(ValueFault::TooLarge(share.to_owned())));
    }
    let stall = duration(stall).map_err(|error| refuse(error.fault))?;
    Ok(LinkLoss { per_million: (percent * 10_000.0).round() as u32, stall_ns: stall.as_nanos() as u64 })
}

/// Prints packet loss as in a file.
pub fn written_loss(loss: &LinkLoss) -> String {
    let stall = written_duration(Duration::from_nanos(loss.stall_ns));
    format!("{}% {stall}", f64::from(loss.per_million) / 10_000.0)
}

fn nanoseconds(text: &str) -> Result<u64, ValueError> {
    let length = duration(text).map_err(|ValueError { fault, .. }| refusal(fault))?;
    // Two years, which no duration is beyond, are less than 2^63 nanoseconds.
    Ok(length.as_nanos() as u64)
}

fn refusal(fault: ValueFault) -> ValueError {
    ValueError { fault, expected: EXPECTED }
}

/// Prints a delay as in a file.
pub fn written_delay(delay: &Delay) -> String {
    let length = |ns: u64| written_duration(Duration::from_nanos(ns));
    let mean = length(delay.mean_ns);
    match &delay.jitter {
        Jitter::Uniform { spread_ns } => format!("{mean}±{}", length(*spread_ns)),
        Jitter::Normal { deviation_ns } => format!("{mean}±{} {NORMAL}", length(*deviation_ns)),
        Jitter::Pareto { mean_ns } => format!("{mean}±{} {PARETO}", length(*mean_ns)),
        Jitter::Trace { source, .. } => format!("{mean} {TRACE} {source}"),
        Jitter::None => mean,
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
            assert_eq!(written_delay(&read), again);
        }
    }

    #[test]
    fn a_trace_is_read_from_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("delays");
        let text = |mean: &str| format!("{mean}trace {}", path.display());
        std::fs::write(&path, "5ms\n\n-1ms\n").unwrap();
        for (mean, mean_ns) in [("", 0), ("50ms ", 50 * MS)] {
            let read = delay(&text(mean)).unwrap();
            assert_eq!(read.mean_ns, mean_ns);
            assert!(
                matches!(&read.jitter, Jitter::Trace { added_ns, .. } if **added_ns == [5 * MS as i64, -(MS as i64)])
            );
            assert_eq!(delay(&written_delay(&read)).unwrap(), read);
        }
        for bad in ["", "5ms\nsoon\n"] {
            std::fs::write(&path, bad).unwrap();
            assert!(delay(&text("")).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn losses_are_read_and_written_alike() {
        for (text, per_million, stall_ms) in
            [("0.5% 300ms", 5_000, 300), ("100% 1s", 1_000_000, 1_000), ("0.01% 2ms", 100, 2)]
        {
            let read = loss(text).unwrap();
            assert_eq!(read, LinkLoss { per_million, stall_ns: stall_ms * MS });
            assert_eq!(written_loss(&read), text);
        }
        for text in ["", "1", "1%", "101% 1s", "-1% 1s", "x% 1s", "1% 5"] {
            assert!(loss(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_delay_is_refused() {
        for text in ["", "50", "±5ms", "50ms±", "50ms±5", "50ms±5ms gauss", "3000d"] {
            assert!(delay(text).is_err(), "{text}");
        }
    }
}
