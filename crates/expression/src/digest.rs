//! Digests of texts, as texts: for signed links, and for keys that do not show what they are made of.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use md5::Md5;
use sha2::{Digest, Sha256};

/// Names of digests, as expressions write them.
pub(crate) const DIGESTS: [(&str, DigestKind); 2] =
    [("sha256", DigestKind::Sha256), ("md5", DigestKind::Md5)];
/// Names of forms of digests.
pub(crate) const FORMS: [(&str, DigestForm); 2] =
    [("hex", DigestForm::Hex), ("base64url", DigestForm::Base64Url)];

/// The longest digest as a text: SHA-256 in hexadecimal digits.
pub(crate) const DIGEST_BYTES_MAX: u64 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DigestKind {
    Sha256,
    /// Not secure against collisions. Signed links of nginx have it.
    Md5,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DigestForm {
    Hex,
    /// RFC 4648 §5, without padding.
    Base64Url,
}

/// The digest of bytes as a text.
pub(crate) fn digest(kind: DigestKind, form: DigestForm, bytes: &[u8]) -> DigestText {
    let mut raw = [0; 32];
    let length = match kind {
        DigestKind::Sha256 => put(&mut raw, &Sha256::digest(bytes)[..]),
        DigestKind::Md5 => put(&mut raw, &Md5::digest(bytes)[..]),
    };
    let raw = &raw[..length];
    let mut text = [0; DIGEST_BYTES_MAX as usize];
    let length = match form {
        DigestForm::Hex => {
            const DIGITS: &[u8; 16] = b"0123456789abcdef";
            for (pair, byte) in text.chunks_exact_mut(2).zip(raw) {
                pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
            }
            raw.len() * 2
        }
        // 32 bytes are 43 characters, so there is room.
        DigestForm::Base64Url => URL_SAFE_NO_PAD.encode_slice(raw, &mut text).unwrap_or_default(),
    };
    DigestText { text, length }
}

fn put(raw: &mut [u8; 32], made: &[u8]) -> usize {
    let length = made.len().min(raw.len());
    raw[..length].copy_from_slice(&made[..length]);
    length
}

pub(crate) struct DigestText {
    text: [u8; DIGEST_BYTES_MAX as usize],
    length: usize,
}

impl DigestText {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.text[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_as_texts() {
        for (kind, form, text, expected) in [
            (DigestKind::Md5, DigestForm::Hex, "", "d41d8cd98f00b204e9800998ecf8427e"),
            (DigestKind::Md5, DigestForm::Base64Url, "abc", "kAFQmDzST7DWlj99KOF_cg"),
            (
                DigestKind::Sha256,
                DigestForm::Hex,
                "abc",
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
            (DigestKind::Sha256, DigestForm::Base64Url, "abc", "ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0"),
        ] {
            let made = digest(kind, form, text.as_bytes());
            assert_eq!(String::from_utf8_lossy(made.as_bytes()), expected, "{text}");
        }
    }
}
