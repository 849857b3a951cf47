//! Parses faults of connections: `connection reset 10KB`, `connection slice 100 10ms up`.

use std::time::Duration;

use shape::{ConnectionFault, DatagramEffect, DirectionEnding, Directions, Effect};

use crate::document::value_error::{self, ValueError};
use crate::option::matching::unknown;
use crate::option::quantity::{duration, size, written_duration, written_size};

/// The keyword that starts every fault of a connection.
pub(crate) const CONNECTION: &str = "connection";

const EXPECTED: &str = "connection reset, \"connection reset 500ms\" or \"10KB\", \"connection black-hole 5s\", \"connection \
                        slow-start 2s\", \"connection slow-close 2s\", \"connection slice 100 10ms\", \"connection limit \
                        10KB\", \"connection half-open 10KB\", \"connection corrupt 1000\", connection bad-handshake, \
                        connection refuse, \"connection datagrams lose\", \"datagrams duplicate\" or \"datagrams delay 20ms\", \
                        with up, down or both behind it";

const RESET: &str = "reset";
const BLACK_HOLE: &str = "black-hole";
const SLOW_START: &str = "slow-start";
const SLOW_CLOSE: &str = "slow-close";
const SLICE: &str = "slice";
const LIMIT: &str = "limit";
const HALF_OPEN: &str = "half-open";
const CORRUPT: &str = "corrupt";
const BAD_HANDSHAKE: &str = "bad-handshake";
const REFUSE: &str = "refuse";
const DATAGRAMS: &str = "datagrams";
const WORDS: [&str; 11] = [
    RESET,
    BLACK_HOLE,
    SLOW_START,
    SLOW_CLOSE,
    SLICE,
    LIMIT,
    HALF_OPEN,
    CORRUPT,
    BAD_HANDSHAKE,
    REFUSE,
    DATAGRAMS,
];

const LOSE: &str = "lose";
const DUPLICATE: &str = "duplicate";
const DELAY: &str = "delay";

/// The longest that anything is put off: as long as the waits of the configuration.
const LATEST: Duration = Duration::from_secs(24 * 3600);

const DOWN: &str = "down";
const UP: &str = "up";
const BOTH: &str = "both";

/// Parses the part after `connection`.
pub(crate) fn connection(text: &str) -> Result<ConnectionFault, ValueError> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let ways = match words.last().copied() {
        Some(DOWN) => Some(Directions::Down),
        Some(UP) => Some(Directions::Up),
        Some(BOTH) => Some(Directions::Both),
        _ => None,
    };
    if ways.is_some() {
        words.pop();
    }
    let (word, extents) = match words.as_slice() {
        [word, extents @ ..] => (*word, extents),
        [] => return Err(refusal(value_error::ValueFault::Empty)),
    };
    let effect = match (word, extents) {
        (BAD_HANDSHAKE, []) if ways.is_none() => return Ok(ConnectionFault::BadHandshake),
        (REFUSE, []) if ways.is_none() => return Ok(ConnectionFault::Refuse),
        (DATAGRAMS, extents) => {
            let effect = match extents {
                [LOSE] => DatagramEffect::Lose,
                [DUPLICATE] => DatagramEffect::Duplicate,
                [DELAY, by] => DatagramEffect::Delay { by: time(by)? },
                [] => return Err(refusal(value_error::ValueFault::Empty)),
                [word, ..] => return Err(unknown(word, &[LOSE, DUPLICATE, DELAY], EXPECTED)),
            };
            return Ok(ConnectionFault::Datagrams { effect, ways: ways.unwrap_or(Directions::Both) });
        }
        (RESET, []) => Effect::ResetAfter { after: Duration::ZERO },
        (RESET, [extent]) => match time(extent) {
            Ok(after) => Effect::ResetAfter { after },
            Err(_) => Effect::LimitData { bytes: bytes(extent)?, ending: DirectionEnding::Reset },
        },
        (BLACK_HOLE, []) => Effect::Timeout { after: None },
        (BLACK_HOLE, [after]) => Effect::Timeout { after: Some(time(after)?) },
        (SLOW_START, [delay]) => Effect::SlowStart { delay: time(delay)? },
        (SLOW_CLOSE, [delay]) => Effect::SlowClose { delay: time(delay)? },
        (SLICE, [average]) => slices(average, Duration::ZERO)?,
        (SLICE, [average, delay]) => slices(average, time(delay)?)?,
        (LIMIT, [most]) => Effect::LimitData { bytes: bytes(most)?, ending: DirectionEnding::Close },
        (HALF_OPEN, [most]) => Effect::HalfOpen { bytes: bytes(most)? },
        (CORRUPT, [every]) => Effect::Corrupt { every_bytes: at_least_one(every)? },
        _ => return Err(unknown(word, &WORDS, EXPECTED)),
    };
    Ok(ConnectionFault::Toxic { effect, ways: ways.unwrap_or(usual(&effect)) })
}

/// The default direction: faults that stop all data affect both, others only data for clients.
fn usual(effect: &Effect) -> Directions {
    match effect {
        Effect::Timeout { .. } | Effect::SlowStart { .. } => Directions::Both,
        _ => Directions::Down,
    }
}

fn slices(average: &str, delay: Duration) -> Result<Effect, ValueError> {
    Ok(Effect::Slicer { average_bytes: at_least_one(average)?, variation_bytes: 0, delay })
}

fn time(text: &str) -> Result<Duration, ValueError> {
    match duration(text) {
        Ok(time) if time <= LATEST => Ok(time),
        Ok(_) => Err(refusal(value_error::ValueFault::TooLarge(text.to_owned()))),
        Err(error) => Err(refusal(error.fault)),
    }
}

fn bytes(text: &str) -> Result<u64, ValueError> {
    size(text).map_err(|error| refusal(error.fault))
}

fn at_least_one(text: &str) -> Result<u64, ValueError> {
    match bytes(text)? {
        0 => Err(refusal(value_error::ValueFault::Unknown {
            written: text.to_owned(),
            why: "is less than a byte",
            nearest: None,
        })),
        bytes => Ok(bytes),
    }
}

fn refusal(fault: value_error::ValueFault) -> ValueError {
    ValueError { fault, expected: EXPECTED }
}

pub(crate) fn written(fault: &ConnectionFault) -> String {
    let (effect, ways) = match fault {
        ConnectionFault::BadHandshake => return format!("{CONNECTION} {BAD_HANDSHAKE}"),
        ConnectionFault::Refuse => return format!("{CONNECTION} {REFUSE}"),
        ConnectionFault::Datagrams { effect, ways } => {
            let text = match effect {
                DatagramEffect::Lose => LOSE.to_owned(),
                DatagramEffect::Duplicate => DUPLICATE.to_owned(),
                DatagramEffect::Delay { by } => format!("{DELAY} {}", written_duration(*by)),
            };
            return format!("{CONNECTION} {DATAGRAMS} {text}{}", written_ways(*ways, Directions::Both));
        }
        ConnectionFault::Toxic { effect, ways } => (effect, ways),
    };
    let text = match effect {
        Effect::ResetAfter { after: Duration::ZERO } => RESET.to_owned(),
        Effect::ResetAfter { after } => format!("{RESET} {}", written_duration(*after)),
        Effect::LimitData { bytes, ending: DirectionEnding::Reset } => {
            format!("{RESET} {}", written_size(*bytes))
        }
        Effect::Timeout { after: None } => BLACK_HOLE.to_owned(),
        Effect::Timeout { after: Some(after) } => format!("{BLACK_HOLE} {}", written_duration(*after)),
        Effect::SlowStart { delay } => format!("{SLOW_START} {}", written_duration(*delay)),
        Effect::SlowClose { delay } => format!("{SLOW_CLOSE} {}", written_duration(*delay)),
        Effect::Slicer { average_bytes, delay: Duration::ZERO, .. } => {
            format!("{SLICE} {}", written_size(*average_bytes))
        }
        Effect::Slicer { average_bytes, delay, .. } => {
            format!("{SLICE} {} {}", written_size(*average_bytes), written_duration(*delay))
        }
        Effect::LimitData { bytes, .. } => format!("{LIMIT} {}", written_size(*bytes)),
        Effect::HalfOpen { bytes } => format!("{HALF_OPEN} {}", written_size(*bytes)),
        Effect::Corrupt { every_bytes } => format!("{CORRUPT} {}", written_size(*every_bytes)),
        // Not for connections of listeners: these have separate rates and delays.
        Effect::Latency { .. }
        | Effect::Bandwidth { .. }
        | Effect::ResetPeer { .. }
        | Effect::PacketLoss(_) => String::new(),
    };
    format!("{CONNECTION} {text}{}", written_ways(*ways, usual(effect)))
}

fn written_ways(ways: Directions, usual: Directions) -> &'static str {
    match ways {
        ways if ways == usual => "",
        Directions::Down => " down",
        Directions::Up => " up",
        Directions::Both => " both",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_faults_are_read_and_written_alike() {
        for (text, again) in [
            ("reset", "reset"),
            ("reset 0ms", "reset"),
            ("reset 500ms", "reset 500ms"),
            ("reset 10KB", "reset 10KB"),
            ("reset 512 up", "reset 512 up"),
            ("black-hole", "black-hole"),
            ("black-hole 5s down", "black-hole 5s down"),
            ("slow-start 2s both", "slow-start 2s"),
            ("slow-close 1.5s", "slow-close 1500ms"),
            ("slice 100", "slice 100"),
            ("slice  100 10ms  up", "slice 100 10ms up"),
            ("limit 0", "limit 0"),
            ("half-open 1KiB", "half-open 1KiB"),
            ("corrupt 1000", "corrupt 1KB"),
            ("bad-handshake", "bad-handshake"),
            ("refuse", "refuse"),
            ("datagrams lose", "datagrams lose"),
            ("datagrams duplicate both", "datagrams duplicate"),
            ("datagrams delay 20ms down", "datagrams delay 20ms down"),
        ] {
            let read = connection(text).unwrap_or_else(|error| panic!("{text}: {}", error.fault));
            assert_eq!(written(&read), format!("connection {again}"));
            assert_eq!(connection(again).unwrap(), read);
        }
    }

    #[test]
    fn what_is_no_connection_fault_is_refused_with_what_may_be_meant() {
        for (text, said) in [
            ("", "it is empty"),
            ("down", "it is empty"),
            ("rest", "\"rest\" is not known here"),
            ("reset soon", "\"soon\" is not a number"),
            ("reset 1s 1s", "\"reset\" is not known here"),
            ("slow-start", "\"slow-start\" is not known here"),
            ("slow-start 3d", "3d is too large"),
            ("black-hole 5", "5 has no unit"),
            ("slice 0", "\"0\" is less than a byte"),
            ("bad-handshake up", "\"bad-handshake\" is not known here"),
            ("refuse 5s", "\"refuse\" is not known here"),
        ] {
            let error = connection(text).unwrap_err();
            assert_eq!(error.fault.to_string(), said, "{text}");
            assert_eq!(error.expected, EXPECTED);
        }
        assert_eq!(connection("rest").unwrap_err().fault.meant().as_deref(), Some("reset"));
    }
}
