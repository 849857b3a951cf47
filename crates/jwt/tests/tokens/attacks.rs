//! Refused tokens: confused keys, invalid signatures, ambiguous payloads, keys in the token's header.

use aws_lc_rs::hmac;
use jwt::{Algorithm, KeySet, Refusal, RequiredClaims};

use crate::issuer::{ISSUER, NOW, SECRET, encoded, rules, set};

/// A token signed with HMAC.
fn with_secret(secret: &[u8], header: &str) -> String {
    let signed = format!("{}.{}", encoded(header), encoded(format!("{{\"exp\":{}}}", NOW + 60)));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes());
    format!("{signed}.{}", encoded(tag))
}

#[test]
fn a_public_key_is_no_secret() {
    let [rsa, ..] = ISSUER.pems();
    let jwks = set(&ISSUER.jwks(""));
    // Keys must match the algorithm even if all algorithms are accepted.
    let all = [Algorithm::ASYMMETRIC, Algorithm::SYMMETRIC].concat();
    let rules = RequiredClaims { algorithms: all, ..rules() };
    let header = r#"{"alg":"HS256"}"#;
    for (keys, secrets) in [
        (&rsa, vec![rsa.as_bytes().to_vec(), rsa.trim_end().as_bytes().to_vec()]),
        (&jwks, vec![jwks.clone().into_bytes(), ISSUER.jwks("")[0].clone().into_bytes(), Vec::new()]),
    ] {
        let keys = KeySet::parse(keys.as_bytes()).expect("is a key set");
        for secret in secrets {
            let token = with_secret(&secret, header);
            assert_eq!(rules.check(token.as_bytes(), &keys, NOW), Err(Refusal::UnknownKey));
        }
    }
    // A secret does not verify a signature made with a private key.
    let secret = KeySet::secret(SECRET).expect("is a secret");
    let token = ISSUER.with_claims(Algorithm::Rs256, "");
    assert_eq!(rules.check(token.as_bytes(), &secret, NOW), Err(Refusal::UnknownKey));
}

#[test]
fn signatures_that_are_none() {
    let keys = ISSUER.keys();
    for algorithm in Algorithm::ASYMMETRIC {
        let token = ISSUER.with_claims(*algorithm, "");
        let (signed, signature) = token.rsplit_once('.').expect("has parts");
        let length = ISSUER.sign(*algorithm, b"").len();
        let refused = |signature: &[u8]| {
            let token = format!("{signed}.{}", encoded(signature));
            assert_eq!(rules().check(token.as_bytes(), &keys, NOW), Err(Refusal::Signature), "{algorithm:?}");
        };
        // CVE-2022-21449: r and s are zero.
        refused(&vec![0; length]);
        refused(&vec![0xff; length]);
        refused(&[0]);
        refused(&ISSUER.sign(*algorithm, b"something else"));
        let mut right = ISSUER.sign(*algorithm, signed.as_bytes());
        right.push(0);
        refused(&right);
        right.truncate(length - 1);
        refused(&right);
        // A byte of the signed part was changed.
        let other = format!("{}x.{signature}", &signed[..signed.len() - 1]);
        assert!(rules().check(other.as_bytes(), &keys, NOW).is_err());
    }
    // ECDSA in DER instead of r and s.
    let signed = format!("{}.{}", encoded(r#"{"alg":"ES256"}"#), encoded("{}"));
    let der = [b"\x30\x06\x02\x01\x01\x02\x01\x01".as_slice()].concat();
    let token = format!("{signed}.{}", encoded(der));
    assert_eq!(rules().check(token.as_bytes(), &keys, NOW), Err(Refusal::Signature));
}

#[test]
fn the_payload_is_one_object_with_each_name_once() {
    let keys = ISSUER.keys();
    let exp = NOW + 60;
    for payload in [
        format!(r#"{{"exp":{exp},"exp":1}}"#),
        format!(r#"{{"exp":1,"exp":{exp}}}"#),
        format!(r#"{{"exp":{exp},"sub":"a","sub":"admin"}}"#),
        format!(r#"{{"exp":{exp},"\u0065xp":9999999999}}"#),
        format!(r#"{{"exp":{exp},"org":{{"id":1,"id":2}}}}"#),
        format!(r#"{{"exp":{exp}}} "#) + "x",
        format!(r#"[{{"exp":{exp}}}]"#),
        "[".repeat(3000),
        "null".to_owned(),
        "\u{feff}{}".to_owned(),
    ] {
        let token = ISSUER.token(Algorithm::Es256, r#"{"alg":"ES256"}"#, &payload);
        assert_eq!(rules().check(token.as_bytes(), &keys, NOW), Err(Refusal::Claims), "{payload:.60}");
    }
}

#[test]
fn keys_that_a_token_names_or_brings_along_count_for_nothing() {
    let keys = KeySet::parse(set(&ISSUER.jwks(r#","kid":"a""#)).as_bytes()).expect("is a key set");
    let payload = format!("{{\"exp\":{}}}", NOW + 60);
    let token =
        |members: &str| ISSUER.token(Algorithm::Es256, &format!(r#"{{"alg":"ES256"{members}}}"#), &payload);
    let long = "k".repeat(513);
    for (members, expected) in [
        (r#","kid":"a""#.to_owned(), None),
        (r#","kid":"../../../dev/null""#.to_owned(), Some(Refusal::UnknownKey)),
        (r#","kid":"a' UNION SELECT 'secret""#.to_owned(), Some(Refusal::UnknownKey)),
        (r#","kid":"$(id)""#.to_owned(), Some(Refusal::UnknownKey)),
        (r#","kid":"A""#.to_owned(), Some(Refusal::UnknownKey)),
        (r#","kid":"""#.to_owned(), Some(Refusal::UnknownKey)),
        (r#","kid":"a\u0000""#.to_owned(), Some(Refusal::UnknownKey)),
        (format!(r#","kid":"{long}""#), Some(Refusal::Malformed)),
        (r#","kid":"a","kid":"b""#.to_owned(), Some(Refusal::Malformed)),
    ] {
        let checked = rules().check(token(&members).as_bytes(), &keys, NOW).err();
        assert_eq!(checked, expected, "{members:.60}");
    }
    // The attacker's key is in the header, and made the signature.
    let theirs = KeySet::parse(
        br#"{"keys":[{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#,
    )
    .expect("is a key set");
    for member in [
        format!(r#","jwk":{}"#, ISSUER.jwks("")[1]),
        r#","jku":"https://evil.test/jwks""#.to_owned(),
        r#","x5u":"https://evil.test/cert""#.to_owned(),
        r#","x5c":["AAAA"]"#.to_owned(),
    ] {
        assert_eq!(
            rules().check(token(&member).as_bytes(), &theirs, NOW),
            Err(Refusal::Signature),
            "{member:.40}"
        );
        assert!(rules().check(token(&member).as_bytes(), &keys, NOW).is_ok(), "{member:.40}");
    }
}

#[test]
fn a_token_has_a_length() {
    let keys = ISSUER.keys();
    let token = ISSUER.with_claims(Algorithm::EdDsa, "\"x\":\"yyyyyyyyyyyyyyyyyyyy\"");
    for (token_bytes_max, expected) in [(token.len(), None), (token.len() - 1, Some(Refusal::TooLong))] {
        let rules = RequiredClaims { token_bytes_max, ..rules() };
        assert_eq!(rules.check(token.as_bytes(), &keys, NOW).err(), expected);
    }
    let huge = "a".repeat(1 << 20);
    assert_eq!(rules().check(huge.as_bytes(), &keys, NOW), Err(Refusal::TooLong));
}
