//! Chooses among the precompressed siblings of a file (RFC 9110 §12.5.3).

/// A content coding of which files have siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// Brotli, `.br`.
    Brotli,
    /// Zstandard, `.zst`.
    Zstandard,
    /// Gzip, `.gz`.
    Gzip,
}

impl Coding {
    /// The one that is usually shorter first.
    pub const ALL: [Coding; 3] = [Coding::Brotli, Coding::Zstandard, Coding::Gzip];

    /// What the sibling's name has behind that of the file.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Coding::Brotli => ".br",
            Coding::Zstandard => ".zst",
            Coding::Gzip => ".gz",
        }
    }

    /// The name in Content-Encoding.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Zstandard => "zstd",
            Coding::Gzip => "gzip",
        }
    }
}

/// The weights of a client's codings, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Accepted {
    brotli: Option<u16>,
    zstandard: Option<u16>,
    gzip: Option<u16>,
    identity: Option<u16>,
    others: Option<u16>,
}

impl Accepted {
    /// Reads the values of Accept-Encoding. Without the field nothing but the file itself is wanted.
    #[must_use]
    pub fn of<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut accepted = Self::default();
        for member in values.flat_map(|value| value.split(|&byte| byte == b',')) {
            let mut parts = member.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
            let coding = parts.next().unwrap_or_default();
            let Some(weight) = parts.try_fold(1000, |weight, part| weight_of(part, weight)) else { continue };
            let is = |name: &str| coding.eq_ignore_ascii_case(name.as_bytes());
            let place = if is("br") {
                &mut accepted.brotli
            } else if is("zstd") {
                &mut accepted.zstandard
            } else if is("gzip") || is("x-gzip") {
                &mut accepted.gzip
            } else if is("identity") {
                &mut accepted.identity
            } else if is("*") {
                &mut accepted.others
            } else {
                continue;
            };
            *place = Some(weight);
        }
        accepted
    }

    /// The coding to send, of those that there are; `None` is the file itself, also where the client takes nothing that
    /// there is (RFC 9110 §12.5.3).
    #[must_use]
    pub fn choose(&self, is_there: impl Fn(Coding) -> bool) -> Option<Coding> {
        // What is not named is the least wanted, but acceptable.
        let identity = self.identity.unwrap_or_else(|| self.others.map_or(1, |others| others.min(1)));
        let there = Coding::ALL.into_iter().filter(|coding| is_there(*coding));
        let weighed = there.map(|coding| (self.weight(coding), coding));
        // Of equals the first: `max_by_key` would take the last.
        let best = weighed.rev().max_by_key(|(weight, _)| *weight)?;
        (best.0 > 0 && best.0 >= identity).then_some(best.1)
    }

    fn weight(&self, coding: Coding) -> u16 {
        let named = match coding {
            Coding::Brotli => self.brotli,
            Coding::Zstandard => self.zstandard,
            Coding::Gzip => self.gzip,
        };
        named.or(self.others).unwrap_or(0)
    }
}

/// `q=0.5` as thousandths (RFC 9110 §12.4.2); other parameters leave the weight as it is. `None` where it is malformed:
/// such a member is ignored.
fn weight_of(parameter: &[u8], before: u16) -> Option<u16> {
    let [b'q' | b'Q', b'=', weight @ ..] = parameter else { return Some(before) };
    let (whole, fraction) = match weight {
        [whole] => (*whole, &b""[..]),
        [whole, b'.', fraction @ ..] => (*whole, fraction),
        _ => return None,
    };
    if !matches!(whole, b'0' | b'1') || fraction.len() > 3 || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |at: usize| fraction.get(at).map_or(0, |digit| u16::from(digit - b'0'));
    let thousandths = digit(0) * 100 + digit(1) * 10 + digit(2);
    match whole {
        b'1' if thousandths > 0 => None,
        b'1' => Some(1000),
        _ => Some(thousandths),
    }
}

#[cfg(test)]
mod tests {
    use super::Coding::{Brotli, Gzip, Zstandard};
    use super::*;

    #[test]
    fn rfc9110_12_5_3_the_weights_decide() {
        const ALL: &[Coding] = &Coding::ALL;
        for (accepts, there, expected) in [
            ("", ALL, None),
            ("br", ALL, Some(Brotli)),
            ("gzip, deflate, br, zstd", ALL, Some(Brotli)),
            ("gzip, deflate, br, zstd", &[Gzip, Zstandard][..], Some(Zstandard)),
            ("gzip, deflate", &[Brotli][..], None),
            ("GZIP", ALL, Some(Gzip)),
            ("x-gzip", ALL, Some(Gzip)),
            ("gzip;q=1.0, br;q=0.5", ALL, Some(Gzip)),
            ("gzip ; q=0.001, br;q=0", ALL, Some(Gzip)),
            ("gzip;q=0", ALL, None),
            ("*", ALL, Some(Brotli)),
            ("*;q=0, gzip", ALL, Some(Gzip)),
            ("*;q=0", ALL, None),
            ("br;q=0, *", ALL, Some(Zstandard)),
            ("identity, gzip;q=0.9", ALL, None),
            ("identity;q=0.5, gzip;q=0.5", ALL, Some(Gzip)),
            ("identity;q=0, gzip;q=0.1", ALL, Some(Gzip)),
            ("identity;q=0", ALL, None),
            // What is malformed is ignored.
            ("br;q=2, gzip", ALL, Some(Gzip)),
            ("br;q=1.001, zstd;q=0.0001, gzip", ALL, Some(Gzip)),
            ("br;q=x", ALL, None),
            (" , ,br,", ALL, Some(Brotli)),
        ] {
            let accepted = Accepted::of([accepts.as_bytes()].into_iter());
            assert_eq!(accepted.choose(|coding| there.contains(&coding)), expected, "{accepts} {there:?}");
        }
        // Several fields are one list (RFC 9110 §5.3).
        let two = Accepted::of([b"gzip;q=0.1".as_slice(), b"zstd"].into_iter());
        assert_eq!(two.choose(|_| true), Some(Zstandard));
    }
}
