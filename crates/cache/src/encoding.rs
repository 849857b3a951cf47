//! Normalises Accept-Encoding, so that clients that accept equal codings share a variant.

use http1::{RequestHead, ResponseHead};

use crate::fields::{members, values};

/// The common content codings that a client accepts. Other codings make no variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Codings(u8);

const KNOWN: [(&[u8], &[u8], u8); 4] =
    [(b"gzip", b"x-gzip", 1), (b"br", b"br", 2), (b"zstd", b"zstd", 4), (b"deflate", b"deflate", 8)];
/// The client accepts only responses with a coding.
const NO_IDENTITY: u8 = 16;

impl Codings {
    /// Reads Accept-Encoding of a request (RFC 9110 §12.5.3).
    pub fn new(head: &RequestHead, bytes: &[u8]) -> Self {
        let (mut accepted, mut refused, mut takes_others) = (0, 0, None);
        for member in values(head, bytes, b"accept-encoding").flat_map(members) {
            let mut parts = member.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
            let coding = parts.next().unwrap_or_default();
            // Weights other than 0 only order codings, and the stored one is the server's choice.
            let is_refused = parts.any(is_zero_weight);
            match known(coding) {
                Some(bit) if is_refused => refused |= bit,
                Some(bit) => accepted |= bit,
                // RFC 9110 §12.5.3: `*` stands for codings that are not listed, so listed ones keep their own weight.
                None if coding == b"*" => takes_others = Some(!is_refused),
                None if coding.eq_ignore_ascii_case(b"identity") && is_refused => refused |= NO_IDENTITY,
                None if coding.eq_ignore_ascii_case(b"identity") => accepted |= NO_IDENTITY,
                None => {}
            }
        }
        let all = KNOWN.iter().fold(0, |sum, (.., bit)| sum | bit);
        let takes_identity =
            refused & NO_IDENTITY == 0 && (accepted & NO_IDENTITY != 0 || takes_others != Some(false));
        let codings = match takes_others {
            Some(true) => all & !refused,
            _ => accepted & all & !refused,
        };
        Self(codings | if takes_identity { 0 } else { NO_IDENTITY })
    }

    /// Whether all codings of a response are among the accepted ones. Otherwise the server's reason is not part of this
    /// value: no Accept-Encoding at all (RFC 9110 §12.5.3), or an uncommon coding.
    pub fn hold(self, head: &ResponseHead, bytes: &[u8]) -> bool {
        values(head, bytes, b"content-encoding").flat_map(members).all(|coding| {
            let bit = known(coding).unwrap_or(0);
            self.0 & bit != 0 || coding.eq_ignore_ascii_case(b"identity")
        })
    }

    /// The codings as a number, which is equal for clients that accept equal codings.
    pub const fn as_u8(self) -> u8 {
        self.0
    }
}

fn known(coding: &[u8]) -> Option<u8> {
    let mut known = KNOWN.iter();
    let is = |(name, alias, _): &&(&[u8], &[u8], u8)| {
        coding.eq_ignore_ascii_case(name) || coding.eq_ignore_ascii_case(alias)
    };
    known.find(is).map(|&(.., bit)| bit)
}

/// `q=0`, `q=0.000` (RFC 9110 §12.4.2).
fn is_zero_weight(parameter: &[u8]) -> bool {
    let [b'q' | b'Q', b'=', weight @ ..] = parameter else { return false };
    weight.first() == Some(&b'0') && weight[1..].iter().all(|byte| matches!(byte, b'.' | b'0'))
}
