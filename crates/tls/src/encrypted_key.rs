//! Decrypts private keys: PKCS#8 with a passphrase (RFC 5958 §3), by PBES2 with PBKDF2 and AES (RFC 8018), as OpenSSL
//! writes them. aws-lc-rs does the cryptography.
//!
//! Unsupported: scrypt, DES, RC2, and the older form with `Proc-Type`, whose key comes from one round of MD5.

use std::num::NonZeroU32;

use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, Algorithm, DecryptionContext, PaddedBlockDecryptingKey, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::pbkdf2;

use crate::der::{Der, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE};

/// The limit on PBKDF2 rounds: ten times the recommended number, a second of work.
const ROUNDS_MAX: u32 = 10_000_000;

/// RFC 8018 §A.4, §A.2, §B.1, §B.2.
const PBES2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0d];
const PBKDF2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0c];
const HMAC: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x02];
const AES_CBC: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x01];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The algorithm is unsupported.
    Algorithm,
    /// The passphrase is wrong, or the key is damaged.
    Passphrase,
}

struct Encryption<'d> {
    salt: &'d [u8],
    rounds: NonZeroU32,
    hash: pbkdf2::Algorithm,
    cipher: &'static Algorithm,
    iv: [u8; 16],
    encrypted: &'d [u8],
}

/// Decrypts `EncryptedPrivateKeyInfo` to `PrivateKeyInfo`, both in DER.
pub(crate) fn decrypt(der: &[u8], passphrase: &[u8]) -> Result<Vec<u8>, Failed> {
    let Encryption { salt, rounds, hash, cipher, iv, encrypted } = read(der).ok_or(Failed::Algorithm)?;
    let mut key = [0; 32];
    let len = match cipher {
        cipher if *cipher == AES_128 => 16,
        cipher if *cipher == AES_192 => 24,
        _ => 32,
    };
    let key = &mut key[..len];
    pbkdf2::derive(hash, rounds, salt, passphrase, key);
    let mut bytes = encrypted.to_vec();
    let decrypted =
        UnboundCipherKey::new(cipher, key).and_then(PaddedBlockDecryptingKey::cbc_pkcs7).and_then(|key| {
            let context = DecryptionContext::Iv128(FixedLength::from(&iv));
            key.decrypt(&mut bytes, context).map(|decrypted| decrypted.len())
        });
    let len = decrypted.map_err(|_| Failed::Passphrase)?;
    bytes.truncate(len);
    // A wrong passphrase may produce valid padding by chance, but hardly a complete key structure.
    let mut outer = Der(&bytes);
    let is_key = outer.inside(SEQUENCE).and_then(|inside| Der(inside).inside(INTEGER)).is_some();
    if is_key && outer.tag().is_none() { Ok(bytes) } else { Err(Failed::Passphrase) }
}

fn read(der: &[u8]) -> Option<Encryption<'_>> {
    let mut outer = Der(Der(der).inside(SEQUENCE)?);
    let mut algorithm = Der(outer.inside(SEQUENCE)?);
    let encrypted = outer.inside(OCTET_STRING)?;
    if algorithm.inside(OBJECT_IDENTIFIER)? != PBES2 {
        return None;
    }
    let mut parameters = Der(algorithm.inside(SEQUENCE)?);
    let mut derivation = Der(parameters.inside(SEQUENCE)?);
    let mut scheme = Der(parameters.inside(SEQUENCE)?);
    if derivation.inside(OBJECT_IDENTIFIER)? != PBKDF2 {
        return None;
    }
    let mut derivation = Der(derivation.inside(SEQUENCE)?);
    let salt = derivation.inside(OCTET_STRING)?;
    let rounds = number(derivation.inside(INTEGER)?).filter(|rounds| *rounds <= ROUNDS_MAX)?;
    if derivation.tag() == Some(INTEGER) {
        derivation.element()?; // The length of the key, which the cipher tells.
    }
    let hash = match derivation.tag() {
        None => 7, // HMAC-SHA-1 is the default.
        Some(_) => {
            *Der(derivation.inside(SEQUENCE)?).inside(OBJECT_IDENTIFIER)?.strip_prefix(HMAC)?.first()?
        }
    };
    let cipher = *scheme.inside(OBJECT_IDENTIFIER)?.strip_prefix(AES_CBC)?.first()?;
    Some(Encryption {
        salt,
        rounds: NonZeroU32::new(rounds)?,
        hash: match hash {
            7 => pbkdf2::PBKDF2_HMAC_SHA1,
            9 => pbkdf2::PBKDF2_HMAC_SHA256,
            10 => pbkdf2::PBKDF2_HMAC_SHA384,
            11 => pbkdf2::PBKDF2_HMAC_SHA512,
            _ => return None,
        },
        cipher: match cipher {
            2 => &AES_128,
            22 => &AES_192,
            42 => &AES_256,
            _ => return None,
        },
        iv: scheme.inside(OCTET_STRING)?.try_into().ok()?,
        encrypted,
    })
}

fn number(bytes: &[u8]) -> Option<u32> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let significant = &bytes[zeros..];
    (significant.len() <= 4 && bytes.first().is_some_and(|first| *first < 0x80))
        .then(|| significant.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    /// From OpenSSL 3.0: `openssl pkcs8 -topk8 -outform DER`, with the passphrase "corr ect".
    #[test]
    fn keys_of_openssl_are_decrypted() {
        let der = |text: &str| BASE64_STANDARD.decode(text.replace(' ', "")).unwrap();
        let plain = der(
            "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgmgu2WLtxis9iRyLR1cMPURKPzdY6ciyhmPs/M+VU9oKhRANC \
                 AATw8HRw7F+JnS99iZvsWDscN4A1RxjBU8IktI6RHJTf6VzxIGVTPm7Tcn7V9K/kYZJvwDRQwI2oDj9oHdOi8gT9",
        );
        for (what, is_known, text) in [
            (
                "aes-128-cbc, SHA-1",
                true,
                "MIHeMEkGCSqGSIb3DQEFDTA8MBsGCSqGSIb3DQEFDDAOBAiZXZrqOSqNVQICCAAwHQYJYIZIAWUDBAECBBBINBdzrb25Pmw+ \
                 +tJ1opnSBIGQyrx9cYJTyXqw5RuS/pUZOGJ8vkuWuNIt5qzlE7i3lWTjQBB+G7otPAlf2QYS0B0Cxa95AHYkd+4Rnq01cB2B \
                 nV1EesQzhe1UgJSvRCGnCx8VMneHxG5QGdqG2hiUTuxcauBEKSr9c4z26XT9Y/fxjVHmXA7vmW4ZyqFMD+EjESJvGWn+lHb2 \
                 vNvNVcrxcXxm",
            ),
            (
                "aes-192-cbc, SHA-384",
                true,
                "MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAgFnbb22EJtdgICCAAwDAYIKoZIhvcNAgoFADAdBglghkgBZQME \
                 ARYEEGFROuAm4tq9u43bjDxWnsgEgZD303hRZZNOd1pP6usUCM4Mfj8llCU0w4N3yfGElXD6Cw+49a4UXcd0liIHXTZ3+dpm \
                 JXO2wBRO+u6Ld7XezRRLxmEZ4D4Gt3nIyQa6CR8oQLQU6X9CyLc4xsHPclKVfR1SBMOto4//s7c95uHgTlTyv+ZZmRNIhdPP \
                 xqLGQ33HISNeYPwQCjKrj2+Kc9ojX+U=",
            ),
            (
                "aes-256-cbc, SHA-256",
                true,
                "MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAjQ5pqh6V4M6QICJxAwDAYIKoZIhvcNAgkFADAdBglghkgBZQME \
                 ASoEEBQtk6yoMyZQW89DFHcuAY8EgZBO80T3rwyLGaZWio+UheLAzrXLgLiCuyzb2LlEn5DeC6M2Rdk64lfFaaBe1+xNPS3y \
                 PU0z0ybY8HAdr4DtHpMqQrS5IdfQUwNLVmmml5XI4iVAhL3YyJqgGbHmWrMpl2q9+SCBUwGnuQMbun8QDXep5jZlB5fe5Z0c \
                 oKK6HiYyUNTLaD/KW89cVk6CByeXgHw=",
            ),
            (
                "aes-256-cbc, SHA-512",
                true,
                "MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAj3hcW+v00b3QICCAAwDAYIKoZIhvcNAgsFADAdBglghkgBZQME \
                 ASoEEJeGCb2iDiqR0cmRXvsjvikEgZATqGri2VmVW8vvah8d585ycYBHmUuThEbfSDxSy8YPfVLe9KNaqp1pbP9lrq0fbE09 \
                 Rq/uaqlDquEOSnMzgqxqGKd8GtY3SMD8iUJB/QEoHseL4mPRwuw+FFMMcGwfRBF9s3qLCParPvkLi/NtjVDc4b9VDwmzqOgt \
                 gS0JrbeezIVFhKKZE/IIXA4lRB5+l94=",
            ),
            (
                "scrypt",
                false,
                "MIHjME4GCSqGSIb3DQEFDTBBMCAGCSsGAQQB2kcECzATBAhd4V4qDZoYrwIBEAIBCAIBATAdBglghkgBZQMEASoEEMYr9Jhn \
                 b5F81cq1LGItTpMEgZCsLcO579RNpOsuW+ORCrxXRIQfAf37ATAPnlVFYzq0Eo0GK17e/f9yqUeu++UtVnzx3LS2CVkRVSax \
                 OC7+CGXc5siVwgbf/huQ9T+O5sZSbgO79A0f18hBWjxZbCGbRxZKzDLwHZfX5X7QVTdLrRxTvRrxC4Knmi6eoPAlmgAi1gUY \
                 FcbZd69jXW3wJQQjmAw=",
            ),
            (
                "triple DES",
                false,
                "MIHjME4GCSqGSIb3DQEFDTBBMCkGCSqGSIb3DQEFDDAcBAjlxrrGiE6CPQICCAAwDAYIKoZIhvcNAgkFADAUBggqhkiG9w0D \
                 BwQIw+GtdPaonWcEgZC56JVin6WqziXSUyXDCwnvXsBNx4Ht7NbWJ8lK7rXjyIodFXlIrERhCQV4XwsqI+3grUYxapLuvwly \
                 QoVg9hDiMevhrPVpdg6lxahrx9MbbfZsC4AdG6OmzwFD7fXDApBlGvUI2fW3877oqQ0/fL02Ys2i0nUCHtFwqwVMzwqP9vao \
                 rJmpZ60j3oSoc1Nlbr0=",
            ),
        ] {
            let encrypted = der(text);
            let expected = if is_known { Ok(plain.clone()) } else { Err(Failed::Algorithm) };
            assert_eq!(decrypt(&encrypted, b"corr ect"), expected, "{what}");
            if is_known {
                for wrong in [&b"correct"[..], b"", b"corr ect\n"] {
                    assert_eq!(decrypt(&encrypted, wrong), Err(Failed::Passphrase), "{what}");
                }
            }
            // A damaged key is rejected or becomes another key, and nothing panics.
            for len in 0..encrypted.len() {
                assert!(decrypt(&encrypted[..len], b"corr ect").is_err(), "{what} {len}");
            }
        }
    }

    #[test]
    fn more_rounds_than_a_second_takes_are_refused() {
        assert_eq!(number(&[0, 0x98, 0x96, 0x80]), Some(ROUNDS_MAX));
        for bytes in [&[][..], &[0xff], &[1, 0, 0, 0, 0]] {
            assert_eq!(number(bytes), None, "{bytes:?}");
        }
    }
}
