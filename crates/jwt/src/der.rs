//! Reads the DER structures of public keys in PEM files: SubjectPublicKeyInfo (RFC 5280 §4.1) and RSAPublicKey (RFC
//! 8017 §A.1.1).

#[derive(Debug, PartialEq)]
pub(crate) enum PublicKey<'d> {
    Rsa {
        modulus: &'d [u8],
        exponent: &'d [u8],
    },
    /// An uncompressed point, as those below.
    P256(&'d [u8]),
    P384(&'d [u8]),
    P521(&'d [u8]),
    Ed25519(&'d [u8]),
}

/// `rsaEncryption` with NULL parameters (RFC 3279 §2.3.1).
const RSA: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00";
/// `id-ecPublicKey` with `secp256r1`, `secp384r1` and `secp521r1` (RFC 5480 §2.1.1).
const P256: &[u8] = b"\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07";
const P384: &[u8] = b"\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x22";
const P521: &[u8] = b"\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x23";
/// `id-Ed25519` (RFC 8410 §3).
const ED25519: &[u8] = b"\x06\x03\x2b\x65\x70";

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const SEQUENCE: u8 = 0x30;

/// Reads a SubjectPublicKeyInfo; `None` if it is invalid, or its algorithm is not supported.
pub(crate) fn public_key_info(der: &[u8]) -> Option<PublicKey<'_>> {
    let (outer, rest) = element(der, SEQUENCE)?;
    let (algorithm, key) = element(outer, SEQUENCE)?;
    let (key, behind) = element(key, BIT_STRING)?;
    // The number of unused bits is 0.
    let key = key.strip_prefix(b"\0")?;
    if !rest.is_empty() || !behind.is_empty() {
        return None;
    }
    match algorithm {
        RSA => rsa(key),
        P256 if is_point(key, 32) => Some(PublicKey::P256(key)),
        P384 if is_point(key, 48) => Some(PublicKey::P384(key)),
        P521 if is_point(key, 66) => Some(PublicKey::P521(key)),
        ED25519 if key.len() == 32 => Some(PublicKey::Ed25519(key)),
        _ => None,
    }
}

/// Reads an RSAPublicKey.
pub(crate) fn rsa(der: &[u8]) -> Option<PublicKey<'_>> {
    let (outer, rest) = element(der, SEQUENCE)?;
    let (modulus, exponent) = element(outer, INTEGER)?;
    let (exponent, behind) = element(exponent, INTEGER)?;
    if !rest.is_empty() || !behind.is_empty() {
        return None;
    }
    // The leading zero keeps the integer positive.
    let modulus = modulus.strip_prefix(b"\0").unwrap_or(modulus);
    Some(PublicKey::Rsa { modulus, exponent })
}

fn is_point(key: &[u8], coordinate_bytes: usize) -> bool {
    key.len() == 1 + 2 * coordinate_bytes && key[0] == 4
}

/// The content of the first element, and the bytes behind it; `None` if the element has another tag.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, first], rest) = der.split_first_chunk()?;
    if found != tag {
        return None;
    }
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => (usize::from(*rest.first()?), &rest[1..]),
        0x82 => {
            let (length, rest) = rest.split_first_chunk()?;
            (usize::from(u16::from_be_bytes(*length)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}
