//! Parses and prints bandwidth limits: `1MB/s`, `1MB/s burst 64KB`, `100KB/s per client/24`.

use std::num::NonZeroU64;

use balance::AddressPrefixes;
use mistake::nearest;
use shape::{Limit, Model};

use crate::document::value_error::{ValueError, ValueFault};
use crate::option::keys::{client, written_client};
use crate::option::kind::Text;
use crate::option::matching::NOT_KNOWN;
use crate::option::quantity::{rate, size, written_rate, written_size};

const EXPECTED: &str = "a rate such as 1MB/s or 10Mbit/s, with `burst 64KB` behind it for a token bucket, and `per client`, \
                        `per client/24`, `per connection` or `per request`";

/// The highest rate. A higher one would slow down nothing.
const RATE_MAX: u64 = 1_000_000_000_000;
const BURST_MAX: u64 = 1_000_000_000_000;

/// The keywords after a rate.
const BURST: &str = "burst";
const PER: &str = "per";
const CONNECTION: &str = "connection";
const REQUEST: &str = "request";

pub(crate) const BANDWIDTH: Text<Bandwidth> =
    Text { expected: EXPECTED, read: bandwidth, print: written_bandwidth };

/// Parses a bandwidth limit: a rate, optionally `burst` with a size, and `per` with the scope.
pub fn bandwidth(text: &str) -> Result<Bandwidth, ValueError> {
    let mut words = text.split_whitespace();
    let number = words.next().ok_or_else(|| refusal(ValueFault::Empty))?;
    let bytes_per_second = rate(number).map_err(|error| refusal(error.fault))?;
    let mut bandwidth = Bandwidth::link(within(bytes_per_second, RATE_MAX, number)?);
    while let Some(word) = words.next() {
        let value = words.next().unwrap_or_default();
        match word {
            BURST => bandwidth.limit = Limit { model: model(value)?, ..bandwidth.limit },
            PER => bandwidth.scope = scope(value)?,
            other => return Err(unknown(other, &[BURST, PER])),
        }
    }
    Ok(bandwidth)
}

/// Rejects a rate without a unit. A file may have one in bytes/s; a command says what it means.
///
/// # Errors
/// The rate has no unit.
pub fn check_rate_unit(text: &str) -> Result<(), ValueError> {
    let number = text.split_whitespace().next().unwrap_or_default();
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Ok(());
    }
    let nearest = Some(text.trim().replacen(number, &format!("{number}B/s"), 1));
    Err(refusal(ValueFault::Unknown { written: number.to_owned(), why: "has no unit", nearest }))
}

fn model(text: &str) -> Result<Model, ValueError> {
    let burst_bytes = size(text).map_err(|error| refusal(error.fault))?;
    let burst_bytes = within(burst_bytes, BURST_MAX, text)?.get();
    Ok(Model::TokenBucket { burst_bytes })
}

fn within(number: u64, most: u64, written: &str) -> Result<NonZeroU64, ValueError> {
    let number = NonZeroU64::new(number).ok_or_else(|| refusal(ValueFault::Nothing(written.to_owned())))?;
    if number.get() > most { Err(refusal(ValueFault::TooLarge(written.to_owned()))) } else { Ok(number) }
}

fn scope(text: &str) -> Result<Scope, ValueError> {
    match text {
        CONNECTION => Ok(Scope::Connection),
        REQUEST => Ok(Scope::Request),
        _ => match text.strip_prefix("client").filter(|bits| bits.is_empty() || bits.starts_with('/')) {
            Some(bits) => client(text, bits, EXPECTED).map(Scope::Client),
            None => Err(unknown(text, &["client", CONNECTION, REQUEST])),
        },
    }
}

fn unknown(written: &str, words: &[&str]) -> ValueError {
    let nearest = nearest(written, words.iter().copied()).map(str::to_owned);
    refusal(ValueFault::Unknown { written: written.to_owned(), why: NOT_KNOWN, nearest })
}

fn refusal(fault: ValueFault) -> ValueError {
    ValueError { fault, expected: EXPECTED }
}

/// Prints a bandwidth limit as in a file.
pub fn written_bandwidth(Bandwidth { limit, scope }: &Bandwidth) -> String {
    let mut written = written_rate(limit.rate_bytes_per_second.get());
    if let Model::TokenBucket { burst_bytes } = limit.model {
        written += &format!(" {BURST} {}", written_size(burst_bytes));
    }
    let scope = match scope {
        Scope::All => return written,
        Scope::Client(prefixes) => written_client(*prefixes),
        Scope::Connection => CONNECTION.to_owned(),
        Scope::Request => REQUEST.to_owned(),
    };
    format!("{written} {PER} {scope}")
}

/// Bandwidth limits on bodies. All of them apply together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bandwidths {
    /// From servers to clients.
    pub down: Vec<Bandwidth>,
    /// From clients to servers.
    pub up: Vec<Bandwidth>,
}

/// A bandwidth limit and its scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bandwidth {
    /// The rate and burst.
    pub limit: Limit,
    /// The scope of the limit.
    pub scope: Scope,
}

impl Bandwidth {
    /// A link of this rate, shared by everything.
    pub fn link(rate_bytes_per_second: NonZeroU64) -> Self {
        Self { limit: Limit::link(rate_bytes_per_second), scope: Scope::All }
    }
}

/// The scope of a bandwidth limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Everything that the limit applies to.
    All,
    /// All clients of one network; of one address unless the prefixes say otherwise.
    Client(AddressPrefixes),
    Connection,
    Request,
}

#[cfg(test)]
mod tests {
    use balance::AddressPrefixes;

    use super::*;

    #[test]
    fn limits_are_read_and_written_alike() {
        let prefixes = AddressPrefixes { v4: 24, ..AddressPrefixes::default() };
        let bucket = Model::TokenBucket { burst_bytes: 64_000 };
        for (text, rate, model, scope, again) in [
            ("5KB/s", 5_000, Model::Link, Scope::All, "5KB/s"),
            ("10Mbit/s", 1_250_000, Model::Link, Scope::All, "10Mbit/s"),
            (" 1MB/s  burst 64KB", 1_000_000, bucket, Scope::All, "1MB/s burst 64KB"),
            ("1MB/s per request", 1_000_000, Model::Link, Scope::Request, "1MB/s per request"),
            (
                "1MB/s per client",
                1_000_000,
                Model::Link,
                Scope::Client(AddressPrefixes::default()),
                "1MB/s per client",
            ),
            (
                "1MB/s per client/24 burst 64KB",
                1_000_000,
                bucket,
                Scope::Client(prefixes),
                "1MB/s burst 64KB per client/24",
            ),
            ("1MB/s per connection", 1_000_000, Model::Link, Scope::Connection, "1MB/s per connection"),
        ] {
            let read = bandwidth(text).unwrap();
            let rate_bytes_per_second = NonZeroU64::new(rate).unwrap();
            assert_eq!(read, Bandwidth { limit: Limit { rate_bytes_per_second, model }, scope }, "{text}");
            assert_eq!(written_bandwidth(&read), again);
        }
    }

    #[test]
    fn a_command_names_the_unit_of_a_rate() {
        for text in ["5KB/s", "5k", "10Mbit/s per client", "none", "", "fast"] {
            assert_eq!(check_rate_unit(text), Ok(()), "{text}");
        }
        for (text, meant) in [("5000", "5000B/s"), (" 1.5 per client", "1.5B/s per client"), ("0", "0B/s")] {
            assert_eq!(check_rate_unit(text).unwrap_err().fault.meant().as_deref(), Some(meant));
        }
    }

    #[test]
    fn what_is_no_limit_is_refused_with_what_was_meant() {
        for (text, meant) in [
            ("", None),
            ("0", None),
            ("2000GB/s", None),
            ("1MB/s burst", None),
            ("1MB/s burst 0", None),
            ("1mb/s", Some("MB/s")),
            ("1MB/s brust 64KB", Some("burst")),
            ("1MB/s per clients", Some("client")),
            ("1MB/s per client/33", None),
            ("1MB/s per", None),
        ] {
            let error = bandwidth(text).expect_err(text);
            assert_eq!(error.fault.meant().as_deref(), meant, "{text}");
        }
    }
}
