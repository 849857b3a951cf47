//! Parses and prints rates of datagrams: `10Mbit/s`, `10Mbit/s queue 64KB`.

use std::num::NonZeroU64;

use mistake::nearest;
use shape::Bottleneck;

use crate::document::value_error::{ValueError, ValueFault};
use crate::option::kind::Text;
use crate::option::matching::NOT_KNOWN;
use crate::option::quantity::{rate, size, written_rate, written_size};

const EXPECTED: &str =
    "a rate of datagrams such as 10Mbit/s, with `queue 64KB` behind it for the size of its queue";

/// The highest rate. A higher one would slow down nothing.
const RATE_MAX: u64 = 1_000_000_000_000;
/// As much as the path holds in all.
const QUEUE_MAX: u64 = 16 << 20;
/// Without a size, what is sent in a tenth of a second may wait, and at least eleven datagrams.
const QUEUE_SHARE: u64 = 10;
const QUEUE_LEAST: u64 = 16_000;
const QUEUE: &str = "queue";

pub(crate) const BOTTLENECK: Text<Bottleneck> =
    Text { expected: EXPECTED, read: bottleneck, print: written_bottleneck };

/// Parses a rate of datagrams: a rate, optionally `queue` with a size.
fn bottleneck(text: &str) -> Result<Bottleneck, ValueError> {
    let mut words = text.split_whitespace();
    let number = words.next().ok_or_else(|| refusal(ValueFault::Empty))?;
    let bytes_per_second = rate(number).map_err(|error| refusal(error.fault))?;
    let rate_bytes_per_second = within(bytes_per_second, RATE_MAX, number)?;
    let queue_bytes = match (words.next(), words.next(), words.next()) {
        (None, ..) => usual_queue(rate_bytes_per_second),
        (Some(QUEUE), Some(queue), None) => {
            let bytes = size(queue).map_err(|error| refusal(error.fault))?;
            within(bytes, QUEUE_MAX, queue)?.get()
        }
        (Some(QUEUE), None, _) => return Err(refusal(ValueFault::Empty)),
        (Some(QUEUE), _, Some(other)) | (Some(other), ..) => {
            let nearest = nearest(other, [QUEUE]).map(str::to_owned);
            return Err(refusal(ValueFault::Unknown { written: other.to_owned(), why: NOT_KNOWN, nearest }));
        }
    };
    Ok(Bottleneck { rate_bytes_per_second, queue_bytes })
}

fn usual_queue(rate_bytes_per_second: NonZeroU64) -> u64 {
    (rate_bytes_per_second.get() / QUEUE_SHARE).clamp(QUEUE_LEAST, QUEUE_MAX)
}

fn within(number: u64, most: u64, written: &str) -> Result<NonZeroU64, ValueError> {
    let number = NonZeroU64::new(number).ok_or_else(|| refusal(ValueFault::Nothing(written.to_owned())))?;
    if number.get() > most { Err(refusal(ValueFault::TooLarge(written.to_owned()))) } else { Ok(number) }
}

fn refusal(fault: ValueFault) -> ValueError {
    ValueError { fault, expected: EXPECTED }
}

fn written_bottleneck(Bottleneck { rate_bytes_per_second, queue_bytes }: &Bottleneck) -> String {
    let rate = written_rate(rate_bytes_per_second.get());
    if *queue_bytes == usual_queue(*rate_bytes_per_second) {
        return rate;
    }
    format!("{rate} {QUEUE} {}", written_size(*queue_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_datagrams_are_read_and_written_alike() {
        for (text, bytes_per_second, queue_bytes, again) in [
            ("10Mbit/s", 1_250_000, 125_000, "10Mbit/s"),
            ("5KB/s", 5_000, 16_000, "5KB/s"),
            ("1000GB/s", 1_000_000_000_000, 16 << 20, "1000GB/s"),
            (" 1MB/s  queue 64KB", 1_000_000, 64_000, "1MB/s queue 64KB"),
            ("1MB/s queue 100KB", 1_000_000, 100_000, "1MB/s"),
            ("1MB/s queue 1", 1_000_000, 1, "1MB/s queue 1"),
        ] {
            let read = bottleneck(text).unwrap();
            assert_eq!(
                (read.rate_bytes_per_second.get(), read.queue_bytes),
                (bytes_per_second, queue_bytes),
                "{text}"
            );
            assert_eq!(written_bottleneck(&read), again);
            assert_eq!(bottleneck(again), Ok(read));
        }
        for text in [
            "",
            "0",
            "fast",
            "2000GB/s",
            "1MB/s queue",
            "1MB/s queue 0",
            "1MB/s queue 17MiB",
            "1MB/s queue 1KB 2KB",
            "1MB/s per client",
            "1MB/s burst 64KB",
        ] {
            assert!(bottleneck(text).is_err(), "{text}");
        }
    }
}
