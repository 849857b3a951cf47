//! Accept-Encoding (RFC 9110 §12.5.3).

use std::borrow::Borrow;

use crate::Coding;

/// Weight of a coding in thousandths; 0 is not acceptable.
type Weight = u16;

const FULL: Weight = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Accepted {
    named: [Option<Weight>; 5],
    identity: Option<Weight>,
    /// Weight of `*`: for all codings that are not named.
    others: Option<Weight>,
}

impl Accepted {
    /// Parses the values of Accept-Encoding, one per line. A malformed member counts as not acceptable.
    pub fn from_values<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut accepted = Self::default();
        for member in values.into_iter().flat_map(|value| value.split(|byte| *byte == b',')) {
            let mut parts = member.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let name = parts.next().unwrap_or_default();
            let weight = parts.next().map_or(FULL, |parameter| weight(parameter).unwrap_or(0));
            if name == b"*" {
                accepted.others = Some(weight);
            } else if name.eq_ignore_ascii_case(b"identity") {
                accepted.identity = Some(weight);
            } else if let Some(coding) = Coding::named(name) {
                accepted.named[coding as usize] = Some(weight);
            }
        }
        accepted
    }

    /// A coding with a dictionary counts only if it is named.
    fn weight(&self, coding: Coding) -> Weight {
        let others = if Coding::PLAIN.contains(&coding) { self.others } else { None };
        self.named[coding as usize].or(others).unwrap_or(0)
    }

    pub fn takes(&self, coding: Coding) -> bool {
        self.weight(coding) > 0
    }

    /// Whether the client accepts a response without a coding; true unless the fields exclude it.
    pub fn takes_identity(&self) -> bool {
        self.identity.or(self.others) != Some(0)
    }

    /// Returns the coding with the highest weight; among equals, the first of `offered`. `None` means no coding.
    pub fn choose(&self, offered: impl IntoIterator<Item = impl Borrow<Coding>>) -> Option<Coding> {
        // `identity` wins only if the client gives it a higher weight.
        let least = self.identity.unwrap_or(0).max(1);
        let mut best = None;
        for coding in offered {
            let coding = *coding.borrow();
            let weight = self.weight(coding);
            if weight >= least && best.is_none_or(|(_, known)| weight > known) {
                best = Some((coding, weight));
            }
        }
        best.map(|(coding, _)| coding)
    }
}

/// Parses a weight such as `q=0.5` into thousandths (RFC 9110 §12.4.2); `None` if it is malformed.
fn weight(parameter: &[u8]) -> Option<Weight> {
    let [b'q' | b'Q', b'=', number @ ..] = parameter else { return None };
    let (whole, fraction) = match number {
        [whole @ (b'0' | b'1')] | [whole @ (b'0' | b'1'), b'.'] => (*whole, &b""[..]),
        [whole @ (b'0' | b'1'), b'.', fraction @ ..] if fraction.len() <= 3 => (*whole, fraction),
        _ => return None,
    };
    let mut thousandths = 0;
    for place in 0..3 {
        let digit = match fraction.get(place) {
            None => 0,
            Some(digit @ b'0'..=b'9') => Weight::from(digit - b'0'),
            Some(_) => return None,
        };
        thousandths = thousandths * 10 + digit;
    }
    let weight = Weight::from(whole - b'0') * FULL + thousandths;
    (weight <= FULL).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Coding; 3] = [Coding::Zstd, Coding::Brotli, Coding::Gzip];

    fn from_values(values: &[&str]) -> Accepted {
        Accepted::from_values(values.iter().map(|value| value.as_bytes()))
    }

    #[test]
    fn the_coding_with_the_greatest_weight_is_chosen() {
        use Coding::{Brotli, Gzip, Zstd};
        let rows: &[(&[&str], Option<Coding>)] = &[
            (&[], None),
            (&[""], None),
            (&["identity"], None),
            (&["gzip"], Some(Gzip)),
            (&["GZIP"], Some(Gzip)),
            (&["x-gzip"], Some(Gzip)),
            (&["gzip, deflate, br, zstd"], Some(Zstd)),
            (&["gzip", "br"], Some(Brotli)),
            (&["gzip;q=1, br;q=0.9"], Some(Gzip)),
            (&["gzip;q=0.500,br;q=0.501"], Some(Brotli)),
            (&["gzip ; q=0.5 , br ; Q=0.4"], Some(Gzip)),
            (&["*"], Some(Zstd)),
            (&["*;q=0.5, zstd;q=0"], Some(Brotli)),
            (&["gzip;q=0"], None),
            (&["gzip;q=0.000"], None),
            (&["br;q=0.5, identity;q=0.6"], None),
            (&["br;q=0.6, identity;q=0.6"], Some(Brotli)),
            (&["identity;q=0, *"], Some(Zstd)),
            // Malformed members are not acceptable.
            (&["gzip;q=1.001"], None),
            (&["gzip;q=2"], None),
            (&["gzip;q=0.1234"], None),
            (&["gzip;q="], None),
            (&["gzip;q=-1"], None),
            (&["gzip;level=9"], None),
            (&["gzipp, xgzip, deflate"], None),
        ];
        for (values, expected) in rows {
            assert_eq!(from_values(values).choose(ALL), *expected, "{values:?}");
        }
    }

    /// Only some of the codings may be available, such as the precompressed siblings of a file.
    #[test]
    fn only_what_is_there_is_chosen() {
        use Coding::{Brotli, Gzip, Zstd};
        const ALL: &[Coding] = &[Brotli, Zstd, Gzip];
        for (accepts, there, expected) in [
            ("", ALL, None),
            ("br", ALL, Some(Brotli)),
            ("gzip, deflate, br, zstd", ALL, Some(Brotli)),
            ("gzip, deflate, br, zstd", &[Gzip, Zstd][..], Some(Zstd)),
            ("gzip, deflate", &[Brotli][..], None),
            ("GZIP", ALL, Some(Gzip)),
            ("x-gzip", ALL, Some(Gzip)),
            ("gzip;q=1.0, br;q=0.5", ALL, Some(Gzip)),
            ("gzip ; q=0.001, br;q=0", ALL, Some(Gzip)),
            ("gzip;q=0", ALL, None),
            ("*", ALL, Some(Brotli)),
            ("*;q=0, gzip", ALL, Some(Gzip)),
            ("*;q=0", ALL, None),
            ("br;q=0, *", ALL, Some(Zstd)),
            ("identity, gzip;q=0.9", ALL, None),
            ("identity;q=0.5, gzip;q=0.5", ALL, Some(Gzip)),
            ("identity;q=0, gzip;q=0.1", ALL, Some(Gzip)),
            ("identity;q=0", ALL, None),
            // Malformed members are ignored.
            ("br;q=2, gzip", ALL, Some(Gzip)),
            ("br;q=1.001, zstd;q=0.0001, gzip", ALL, Some(Gzip)),
            ("br;q=x", ALL, None),
            (" , ,br,", ALL, Some(Brotli)),
        ] {
            let offered: Vec<Coding> = ALL.iter().copied().filter(|coding| there.contains(coding)).collect();
            assert_eq!(from_values(&[accepts]).choose(&offered), expected, "{accepts} {there:?}");
        }
        // Several fields are one list (RFC 9110 §5.3).
        assert_eq!(from_values(&["gzip;q=0.1", "zstd"]).choose(ALL), Some(Zstd));
    }

    #[test]
    fn identity_is_taken_unless_the_client_says_otherwise() {
        for (values, expected) in [
            ("", true),
            ("gzip", true),
            ("*", true),
            ("*;q=0", false),
            ("identity;q=0", false),
            ("identity, *;q=0", true),
            ("gzip, identity;q=0.1, *;q=0", true),
        ] {
            assert_eq!(from_values(&[values]).takes_identity(), expected, "{values}");
        }
    }

    #[test]
    fn a_coding_with_a_dictionary_has_to_be_named() {
        assert!(!from_values(&["*"]).takes(Coding::DictionaryZstd));
        assert!(from_values(&["gzip, dcz"]).takes(Coding::DictionaryZstd));
        assert!(!from_values(&["gzip, dcz;q=0"]).takes(Coding::DictionaryZstd));
    }
}
