//! Parses and prints faults: `503`, `delay 200ms±50ms`, `cut 10KB`; with a probability in front where no option gives
//! one: `1%:503`.

use std::time::Duration;

use shape::{Fault, Millionths, Occasion};

use crate::document::value_error::{self, ValueError};
use crate::option::delay::{drawn_delay, written_delay};
use crate::option::kind::Text;
use crate::option::matching::{NOT_KNOWN, unknown};
use crate::option::quantity::{duration, size, written_duration, written_size};
use crate::tables::fault::connection::{CONNECTION, connection, written as written_connection};

/// The kind of value for a fault, in a file or a header.
pub(crate) const INJECTED: Text<Fault> = Text { expected: EXPECTED, read: injected, print: written };

const EXPECTED: &str = "503 or another status, \"delay 200ms±50ms\", \"cut 10KB\", \"length +10\", bad-chunk, \
                        \"drip 100ms\", no-trailers, reset, goaway or \"connection reset\"";

/// The expected faults of a listener: one for all its connections, or one for a part of them.
const EXPECTED_OF_LISTENERS: &str =
    "\"connection refuse\" alone, or \"connection reset\" of some connections";

/// The kind of value for a share, such as `1%` or `0.5%`.
pub(crate) const SHARE: Text<Millionths> =
    Text { expected: EXPECTED_SHARE, read: share, print: written_share };

const EXPECTED_SHARE: &str = "a share such as 1%, 0.5% or 100%";

/// The longest that anything is put off: as long as the waits of the configuration.
const LATEST: Duration = Duration::from_secs(24 * 3600);
const WORDS: [&str; 9] =
    ["delay", "cut", "length", "bad-chunk", "drip", "no-trailers", "reset", "goaway", CONNECTION];

/// Parses `PROBABILITY:FAULT` or `FAULT`.
///
/// # Errors
/// What is wrong with it, and what is expected.
pub fn injection(text: &str) -> Result<(Occasion, Fault), ValueError> {
    if let Some(error) = misplaced_share(text) {
        return Err(error);
    }
    match text.split_once(':') {
        Some((probability, fault)) => {
            let (written, fault) = (probability, injected(fault)?);
            let probability = share(written).map_err(|error| match meant(text.trim()) {
                None => error,
                nearest => {
                    let (written, why) = (text.trim().to_owned(), NOT_KNOWN);
                    let fault = value_error::ValueFault::Unknown { written, why, nearest };
                    ValueError { fault, expected: EXPECTED }
                }
            })?;
            if fault.is_of_listeners() && probability != Millionths::WHOLE {
                let fault = value_error::ValueFault::AllOrNone(written.trim().to_owned());
                return Err(ValueError { fault, expected: EXPECTED_OF_LISTENERS });
            }
            Ok((Occasion { probability, ..Occasion::default() }, fault))
        }
        None => Ok((Occasion::default(), injected(text)?)),
    }
}

/// The mistake of a probability that does not stand in front with a colon: `10% 503`, `503 10%`, `503:10%`.
fn misplaced_share(text: &str) -> Option<ValueError> {
    let (before, behind) = text.split_once('%')?;
    let behind = behind.trim_start_matches([' ', ',', ';', '=']);
    if behind.starts_with(':') {
        return None;
    }
    let (fault, number) = match before.rsplit_once([' ', ':', ',']) {
        Some((fault, number)) => (fault.trim(), number.trim()),
        None => (behind.trim(), before.trim()),
    };
    let share = format!("{number}%");
    let refuse = |why, nearest| {
        let fault = value_error::ValueFault::Unknown { written: text.trim().to_owned(), why, nearest };
        ValueError { fault, expected: EXPECTED }
    };
    self::share(&share).ok()?;
    match fault {
        "" => Some(refuse("has no fault behind the probability", Some(format!("{share}:503")))),
        fault => {
            let meant = injected(fault).is_ok().then(|| format!("{share}:{fault}"));
            Some(refuse("is not PROBABILITY:FAULT, with a colon behind the %", meant))
        }
    }
}

/// A fault that is probably meant by one that is none.
fn meant(text: &str) -> Option<String> {
    let (word, extent) = text.split_once([' ', '=', ':']).unwrap_or((text, ""));
    let extent = extent.trim();
    let renamed = match word {
        "latency" | "slow" | "sleep" | "wait" | "lag" => format!("delay {extent}"),
        "error" | "status" | "abort" | "respond" | "return" | "fail" => extent.to_owned(),
        "truncate" => format!("cut {extent}"),
        "drop" | "close" | "kill" => "reset".to_owned(),
        // A number without a unit, or a duration alone.
        "delay" | "drip" if extent.bytes().all(|byte| byte.is_ascii_digit()) => format!("{word} {extent}s"),
        _ if drawn_delay(text).is_ok() => format!("delay {text}"),
        _ => match text.strip_prefix("delay") {
            Some(extent) => format!("delay {extent}"),
            None => format!("{CONNECTION} {text}"),
        },
    };
    injected_exactly(&renamed).is_ok().then_some(renamed)
}

fn injected(text: &str) -> Result<Fault, ValueError> {
    injected_exactly(text).map_err(|error| match (meant(text.trim()), error.fault) {
        (None, fault) => ValueError { fault, ..error },
        (nearest, value_error::ValueFault::Unknown { written, why, .. }) => {
            ValueError { fault: value_error::ValueFault::Unknown { written, why, nearest }, ..error }
        }
        (nearest, _) => {
            let (written, why) = (text.trim().to_owned(), "has no unit");
            ValueError { fault: value_error::ValueFault::Unknown { written, why, nearest }, ..error }
        }
    })
}

fn injected_exactly(text: &str) -> Result<Fault, ValueError> {
    let text = text.trim();
    let (word, extent) = text.split_once([' ', '=']).map_or((text, ""), |(word, rest)| (word, rest.trim()));
    let refuse = |fault| ValueError { fault, expected: EXPECTED };
    let alone =
        |fault: Fault| if extent.is_empty() { Ok(fault) } else { Err(unknown(text, &WORDS, EXPECTED)) };
    match word {
        "" => Err(refuse(value_error::ValueFault::Empty)),
        "delay" => {
            drawn_delay(extent).map(Fault::Delay).map_err(|error| ValueError { expected: EXPECTED, ..error })
        }
        "cut" => size(extent).map(|bytes| Fault::Cut { bytes }).map_err(|error| refuse(error.fault)),
        "length" => {
            length(extent).ok_or_else(|| refuse(value_error::ValueFault::NotANumber(extent.to_owned())))
        }
        "drip" => match duration(extent) {
            Ok(pause) if pause <= LATEST => Ok(Fault::Drip { pause }),
            Ok(_) => Err(refuse(value_error::ValueFault::TooLarge(extent.to_owned()))),
            Err(error) => Err(refuse(error.fault)),
        },
        "bad-chunk" => alone(Fault::BadChunk),
        "no-trailers" => alone(Fault::NoTrailers),
        "reset" => alone(Fault::Reset),
        "goaway" => alone(Fault::GoAway),
        CONNECTION => connection(extent).map(Fault::Connection),
        status if status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit()) => {
            match status.parse() {
                Ok(status @ 200..=599) => alone(Fault::Answer { status }),
                _ => Err(refuse(value_error::ValueFault::Unknown {
                    written: status.to_owned(),
                    why: "is no status from 200 to 599",
                    nearest: None,
                })),
            }
        }
        other => Err(unknown(other, &WORDS, EXPECTED)),
    }
}

/// `+10` or `-10`.
fn length(text: &str) -> Option<Fault> {
    let by = text.parse().ok().filter(|by| *by != 0)?;
    Some(Fault::Length { by })
}

fn written(fault: &Fault) -> String {
    match fault {
        Fault::Answer { status } => status.to_string(),
        Fault::Delay(delay) => format!("delay {}", written_delay(delay)),
        Fault::Cut { bytes } => format!("cut {}", written_size(*bytes)),
        Fault::Length { by } => format!("length {by:+}"),
        Fault::BadChunk => "bad-chunk".to_owned(),
        Fault::Drip { pause } => format!("drip {}", written_duration(*pause)),
        Fault::NoTrailers => "no-trailers".to_owned(),
        Fault::Reset => "reset".to_owned(),
        Fault::GoAway => "goaway".to_owned(),
        Fault::Connection(fault) => written_connection(fault),
    }
}

/// Prints a fault as in a file.
pub fn written_fault(fault: &Fault) -> String {
    written(fault)
}

fn share(text: &str) -> Result<Millionths, ValueError> {
    let refuse = |fault| ValueError { fault, expected: EXPECTED_SHARE };
    let written = text.trim();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some(number) = written.strip_suffix('%').map(str::trim_end) else {
        let nearest = is_number(written).then(|| format!("{written}%"));
        return Err(refuse(value_error::ValueFault::Unknown {
            written: written.to_owned(),
            why: "has no %",
            nearest,
        }));
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if !is_number(whole) || !is_number(fraction) {
        return Err(refuse(value_error::ValueFault::NotANumber(number.to_owned())));
    }
    let digits = fraction.trim_end_matches('0');
    if digits.len() > 4 {
        return Err(refuse(value_error::ValueFault::NotWhole {
            written: written.to_owned(),
            unit: "millionths",
        }));
    }
    // Four places of a per cent are millionths.
    let millionths = format!("{whole}{digits:0<4}").parse().ok().and_then(Millionths::of_millionths);
    millionths.ok_or_else(|| refuse(value_error::ValueFault::TooLarge(written.to_owned())))
}

/// Prints a share as in a file.
pub fn written_share(share: &Millionths) -> String {
    let millionths = share.millionths();
    let fraction = format!("{:04}", millionths % 10_000);
    match fraction.trim_end_matches('0') {
        "" => format!("{}%", millionths / 10_000),
        fraction => format!("{}.{fraction}%", millionths / 10_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_and_written_alike() {
        for (text, again) in [
            ("503", "503"),
            (" delay  50ms±10ms normal", "delay 50ms±10ms normal"),
            ("delay=1s", "delay 1s"),
            ("cut 0", "cut 0"),
            ("cut 10KB", "cut 10KB"),
            ("length +10", "length +10"),
            ("length -3", "length -3"),
            ("bad-chunk", "bad-chunk"),
            ("drip 100ms", "drip 100ms"),
            ("no-trailers", "no-trailers"),
            ("reset", "reset"),
            ("goaway", "goaway"),
            ("connection  slice 100", "connection slice 100"),
        ] {
            let read = injected(text).unwrap();
            assert_eq!(written(&read), again);
            assert_eq!(injected(again).unwrap(), read);
        }
    }

    #[test]
    fn what_is_no_fault_is_refused_with_what_may_be_meant() {
        for (text, said) in [
            ("", "it is empty"),
            ("99", "\"99\" is not known here"),
            ("600", "\"600\" is no status from 200 to 599"),
            ("101", "\"101\" is no status from 200 to 599"),
            ("dela 1s", "\"dela\" is not known here"),
            ("delay", "it is empty"),
            ("delay 5", "\"delay 5\" has no unit"),
            ("cut x", "\"x\" is not a number"),
            ("length 0", "\"0\" is not a number"),
            ("drip 3d", "3d is too large"),
            ("reset now", "\"reset now\" is not known here"),
        ] {
            let error = injected(text).unwrap_err();
            assert_eq!(error.fault.to_string(), said, "{text}");
            assert_eq!(error.expected, EXPECTED);
        }
        assert_eq!(injected("dela 1s").unwrap_err().fault.meant().as_deref(), Some("delay"));
    }

    #[test]
    fn what_is_nearly_a_fault_is_told_with_the_fault() {
        for (text, nearest) in [
            ("2s", "delay 2s"),
            ("2s±100ms", "delay 2s±100ms"),
            ("delay:2s", "delay 2s"),
            ("delay2s", "delay 2s"),
            ("delay 2", "delay 2s"),
            ("drip 2", "drip 2s"),
            ("latency 2s", "delay 2s"),
            ("error 503", "503"),
            ("abort:503", "503"),
            ("truncate 10KB", "cut 10KB"),
            ("drop", "reset"),
            ("refuse", "connection refuse"),
            ("black-hole 5s", "connection black-hole 5s"),
            ("10% 503", "10%:503"),
            ("10%503", "10%:503"),
            ("10% delay 2s", "10%:delay 2s"),
            ("503 10%", "10%:503"),
            ("503:10%", "10%:503"),
            ("0.5%", "0.5%:503"),
            ("10%:2s", "delay 2s"),
        ] {
            let error = injection(text).expect_err(text);
            assert_eq!(error.fault.meant().as_deref(), Some(nearest), "{text}: {error}");
        }
        let error = injection("10% 503").unwrap_err().to_string();
        assert!(error.contains("with a colon behind the %; did you mean \"10%:503\"?"), "{error}");
        assert_eq!(injection("10% nothing").unwrap_err().fault.meant(), None);
        assert_eq!(injection("10 % : 503").unwrap().0.probability.millionths(), 100_000);
    }

    #[test]
    fn shares() {
        for (text, millionths, again) in [
            ("1%", 10_000, "1%"),
            ("0.5%", 5_000, "0.5%"),
            ("0.0001 %", 1, "0.0001%"),
            ("100.00%", 1_000_000, "100%"),
            ("12.3400%", 123_400, "12.34%"),
            ("0%", 0, "0%"),
        ] {
            let read = share(text).unwrap();
            assert_eq!((read.millionths(), written_share(&read).as_str()), (millionths, again));
        }
        for text in ["", "%", "1", ".5%", "1.%", "-1%", "101%", "0.00001%", "x%", "9999999999999%"] {
            assert!(share(text).is_err(), "{text}");
        }
        assert_eq!(share("5").unwrap_err().fault.meant().as_deref(), Some("5%"));
    }

    #[test]
    fn a_probability_may_stand_before_a_fault() {
        let (occasion, fault) = injection("0.1%:cut 1KB").unwrap();
        assert_eq!((occasion.probability.millionths(), fault), (1000, Fault::Cut { bytes: 1000 }));
        assert_eq!(injection("503").unwrap(), (Occasion::default(), Fault::Answer { status: 503 }));
        assert!(injection("x:503").is_err() && injection("1%:").is_err());
        assert!(injection("connection refuse").is_ok() && injection("100%:connection refuse").is_ok());
        assert_eq!(
            injection("1%:connection refuse").unwrap_err().to_string(),
            "a listener refuses all connections or none, not 1% of them; expected \"connection refuse\" \
             alone, or \"connection reset\" of some connections"
        );
    }
}
