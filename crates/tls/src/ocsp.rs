//! Parses OCSP responses (RFC 6960). Does not verify their signatures: clients do that.

use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

use crate::certificate::{Certificate, written_time};
use crate::der::{Der, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE};
use crate::problem::CertificateFault;

/// An OCSP response that may be stapled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Staple {
    /// End of the validity, in seconds since 1970; `None` if the responder gives no end.
    pub(crate) until: Option<i64>,
}

/// Checks whether a DER response is valid for `certificate`, so that it may be stapled.
pub(crate) fn judge(
    response: &[u8],
    certificate: &Certificate,
    now: i64,
) -> Result<Staple, CertificateFault> {
    let responses = responses(response).ok_or(CertificateFault::NotAnOcspResponse)?;
    let of_this = responses.iter().find(|single| single.serial == certificate.serial);
    let single = of_this.ok_or(CertificateFault::OcspOfAnother)?;
    match single.status {
        GOOD => {}
        REVOKED => return Err(CertificateFault::OcspNotGood("revoked")),
        _ => return Err(CertificateFault::OcspNotGood("unknown to the responder")),
    }
    match single.until {
        Some(until) if until < now => Err(CertificateFault::OcspStale { until: written_time(until) }),
        until => Ok(Staple { until }),
    }
}

/// RFC 6960 §4.2.1: `SingleResponse`.
struct Single<'d> {
    serial: &'d [u8],
    status: u8,
    until: Option<i64>,
}

/// Tags of `CertStatus`: good is an implicit NULL, revoked a sequence.
const GOOD: u8 = 0x80;
const REVOKED: u8 = 0xa1;

const ENUMERATED: u8 = 0x0a;
const GENERALIZED_TIME: u8 = 0x18;
/// `[0]`, constructed.
const TAGGED_0: u8 = 0xa0;
/// id-pkix-ocsp-basic.
const BASIC: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01, 0x01];

/// RFC 6960 §4.2.1: from `OCSPResponse` down to its `SingleResponse`s.
fn responses(response: &[u8]) -> Option<Vec<Single<'_>>> {
    let mut outer = Der(Der(response).inside(SEQUENCE)?);
    let successful = outer.inside(ENUMERATED)? == [0];
    let mut bytes = Der(Der(outer.inside(TAGGED_0)?).inside(SEQUENCE)?);
    let is_basic = bytes.inside(OBJECT_IDENTIFIER)? == BASIC;
    let mut basic = Der(Der(bytes.inside(OCTET_STRING)?).inside(SEQUENCE)?);
    let mut data = Der(basic.inside(SEQUENCE)?);
    if !successful || !is_basic {
        return None;
    }
    if data.tag() == Some(TAGGED_0) {
        data.element()?; // The version.
    }
    data.element()?; // The responder's name or key.
    data.inside(GENERALIZED_TIME)?;
    let mut list = Der(data.inside(SEQUENCE)?);
    let mut singles = Vec::new();
    while list.tag().is_some() {
        singles.push(single(Der(list.inside(SEQUENCE)?))?);
    }
    Some(singles)
}

fn single(mut fields: Der<'_>) -> Option<Single<'_>> {
    let mut id = Der(fields.inside(SEQUENCE)?);
    id.inside(SEQUENCE)?; // The hash algorithm.
    id.inside(OCTET_STRING)?; // The issuer's name.
    id.inside(OCTET_STRING)?; // The issuer's key.
    let serial = id.inside(INTEGER)?;
    let status = fields.tag()?;
    fields.element()?;
    fields.inside(GENERALIZED_TIME)?;
    let until = match fields.tag() {
        Some(TAGGED_0) => {
            let (_, time) = ASN1Time::from_der(fields.inside(TAGGED_0)?).ok()?;
            Some(time.timestamp())
        }
        _ => None,
    };
    Some(Single { serial, status, until })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tests of the crate use whole responses; these tests only broken ones.
    fn certificate() -> Certificate {
        Certificate { names: Vec::new(), serial: vec![1], from: 0, until: i64::MAX }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_judged(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64)) {
            proptest::prop_assert!(judge(&bytes, &certificate(), 0).is_err());
        }

        #[test]
        fn lengths_never_reach_beyond_the_end(length in proptest::prelude::any::<u32>(), more in 0_usize..8) {
            let mut bytes = vec![SEQUENCE, 0x84];
            bytes.extend(length.to_be_bytes());
            bytes.resize(bytes.len() + more, 0);
            let inside = Der(&bytes).inside(SEQUENCE);
            proptest::prop_assert_eq!(inside.map(<[u8]>::len), Some(length as usize).filter(|length| *length <= more));
        }
    }
}
