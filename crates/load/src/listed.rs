//! Requests of a list, with their weights and the checks of their responses.
//!
//! Plain serialisable values, like the plan's.

use std::ops::RangeInclusive;

use memchr::memmem::Finder;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::random::Random;
use crate::watch::Checker;

pub const LISTED_MAX: usize = 10_000;
pub const WEIGHT_MAX: u32 = 10_000;
/// Maximum length of the sequence that weights make: their sum, divided by their greatest common divisor.
const SEQUENCE_MAX: u64 = 1_000_000;
/// Minimum length of a shuffled sequence, so that a short one does not repeat one order.
const SHUFFLED_MIN: usize = 10_000;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Listed {
    /// Name in tables; `None` takes the one of the URL.
    pub name: Option<String>,
    pub method: String,
    /// Absolute URL.
    pub url: String,
    /// Header fields, `Name: value`. They replace those of the plan with the same name.
    pub headers: Vec<String>,
    /// Empty for none.
    pub body: Vec<u8>,
    /// How often it is sent, relative to the others; 0 is never.
    pub weight: u32,
    pub check: Check,
    /// Whether URL, header fields and body have values such as `{{counter}}`, which differ each time.
    pub is_template: bool,
    /// Whether the body is sent unchanged, even if it contains `{{`.
    pub is_literal_body: bool,
    /// Where it is written, for error messages: `orders.toml:3:1`.
    pub place: String,
}

impl Listed {
    /// The request for people: its name, otherwise method and URL.
    pub(crate) fn label(&self) -> String {
        match &self.name {
            Some(name) => name.clone(),
            None => format!("{} {}", self.method, self.url),
        }
    }
}

/// Requirements for the response to a request. A response that misses one is an error of class `check`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Check {
    /// Ranges of good statuses, first and last; empty for 2xx and 3xx.
    pub status: Vec<(u16, u16)>,
    /// Names of header fields and their values, in which `*` stands for any text.
    pub header: Vec<(String, String)>,
    /// Texts that the body contains. A compressed body is not decoded.
    pub contains: Vec<String>,
    /// Minimum and maximum bytes of the body.
    pub size: Option<(u64, u64)>,
    /// Digest of the body, computed by [`crate::digest`].
    pub digest: Option<u32>,
}

impl Check {
    /// `None` if there is nothing to check.
    pub(crate) fn checker(&self) -> Option<Checker> {
        let finder = |text: &String| Finder::new(text.as_bytes()).into_owned();
        let range = |(first, last): &(u16, u16)| RangeInclusive::new(*first, *last);
        (*self != Self::default()).then(|| Checker {
            statuses: self.status.iter().map(range).collect(),
            fields: self.header.clone(),
            contains: self.contains.iter().map(finder).collect(),
            size: self.size.map(|(least, most)| least..=most),
            digest: self.digest,
        })
    }
}

/// Order of requests with these weights, which repeats: at the most equal intervals, or shuffled with a seed.
pub(crate) fn sequence(listed: &[Listed], shuffle_seed: Option<u64>) -> Result<Vec<u32>, Error> {
    let divisor = listed.iter().map(|request| request.weight).fold(0, greatest_common_divisor);
    let weights = || listed.iter().map(|request| u64::from(request.weight / divisor.max(1)));
    let total: u64 = weights().sum();
    if total == 0 || total > SEQUENCE_MAX || listed.iter().any(|request| request.weight > WEIGHT_MAX) {
        let expected =
            format!("0 to {WEIGHT_MAX}, not all 0, and together at most {SEQUENCE_MAX}; write smaller ones");
        return Err(Error::Plan { what: "the weights of requests", expected });
    }
    // A request of weight w is due at (2k + 1) / 2w of the sequence, for each k below w.
    let mut places: Vec<(u64, u32)> = Vec::with_capacity(total as usize);
    for (request, weight) in (0..).zip(weights()) {
        places.extend((0..weight).map(|turn| ((((2 * turn) + 1) << 32) / (2 * weight), request)));
    }
    places.sort_unstable();
    let mut sequence: Vec<u32> = places.into_iter().map(|(_, request)| request).collect();
    if let Some(seed) = shuffle_seed {
        let copies = SHUFFLED_MIN.div_ceil(sequence.len());
        sequence = sequence.repeat(copies);
        Random::new(seed).shuffle(&mut sequence);
    }
    Ok(sequence)
}

fn greatest_common_divisor(first: u32, second: u32) -> u32 {
    if second == 0 { first } else { greatest_common_divisor(second, first % second) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_weights(weights: &[u32], seed: Option<u64>) -> Result<Vec<u32>, Error> {
        let listed: Vec<Listed> =
            weights.iter().map(|weight| Listed { weight: *weight, ..Listed::default() }).collect();
        sequence(&listed, seed)
    }

    #[test]
    fn weights_are_kept_at_equal_intervals() {
        for (weights, expected) in [
            (&[1, 1, 1][..], &[0, 1, 2][..]),
            (&[30, 10], &[0, 0, 1, 0]),
            (&[2, 0, 1], &[0, 2, 0]),
            (&[0, 5], &[1]),
            (&[5, 1, 1], &[0, 0, 0, 1, 2, 0, 0]),
        ] {
            assert_eq!(from_weights(weights, None).expect("weights"), expected, "{weights:?}");
        }
        let count = |sequence: &[u32], of: u32| sequence.iter().filter(|request| **request == of).count();
        let shuffled = from_weights(&[3, 1], Some(7)).expect("weights");
        assert_eq!((count(&shuffled, 0), count(&shuffled, 1)), (7500, 2500));
        assert_eq!(shuffled, from_weights(&[3, 1], Some(7)).expect("weights"));
        assert_ne!(shuffled, from_weights(&[3, 1], Some(8)).expect("weights"));
        assert_ne!(shuffled[..4], shuffled[4..8]);
    }

    #[test]
    fn weights_that_make_no_sequence_are_refused() {
        let many: Vec<u32> = (0..500).map(|index| 9_999 - index % 2).collect();
        for weights in [&[][..], &[0, 0], &[WEIGHT_MAX + 1], &many] {
            let error = from_weights(weights, None).expect_err("no sequence").to_string();
            assert!(error.contains("weights"), "{error}");
        }
    }
}
