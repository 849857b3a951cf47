//! Tokens and key sets of an issuer or an attacker: accepted or rejected, and only the issuer's signature grants
//! access.

#![no_main]

use std::sync::LazyLock;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use jwt::{Algorithm, Audience, KeySet, ParsedToken, Refusal, RequiredClaims};
use libfuzzer_sys::fuzz_target;

const NOW_S: u64 = 1_800_000_000;

static ISSUER: LazyLock<(Ed25519KeyPair, KeySet)> = LazyLock::new(|| {
    let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("is a seed");
    let set = format!(
        r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","x":"{}"}}]}}"#,
        encoded(key.public_key().as_ref())
    );
    (key, KeySet::parse(set.as_bytes()).expect("is a key set"))
});

fuzz_target!(|bytes: &[u8]| {
    let (key, keys) = &*ISSUER;
    let rules = RequiredClaims {
        algorithms: Algorithm::ASYMMETRIC.to_vec(),
        issuers: Vec::new(),
        audience: Audience::Anybody,
        leeway_s: 0,
        accepts_no_expiry: true,
        required: vec![("a.b".to_owned(), vec!["c".to_owned()])],
        user: "sub".to_owned(),
        passed: vec![("X-User".to_owned(), "sub".to_owned()), ("X-Roles".to_owned(), "roles".to_owned())],
        kept: vec!["a.b".to_owned(), "roles".to_owned()],
        token_bytes_max: 8192,
    };
    if let Ok(token) = ParsedToken::parse(bytes) {
        assert_eq!(bytes.iter().filter(|&&byte| byte == b'.').count(), 2);
        assert!(
            !token.algorithm.is_symmetric() || rules.check(bytes, keys, NOW_S) == Err(Refusal::Algorithm)
        );
    }
    assert!(rules.check(bytes, keys, NOW_S).is_err(), "nobody has signed this");
    if let Ok(set) = KeySet::parse(bytes) {
        assert!(!set.is_empty());
        let _ = rules.check(b"eyJhbGciOiJSUzI1NiJ9.e30.AAAA", &set, NOW_S);
    }
    let _ = KeySet::secret(bytes);
    // The same bytes as claims signed by the issuer.
    let signed = format!("{}.{}", encoded(br#"{"alg":"EdDSA"}"#), encoded(bytes));
    let token = format!("{signed}.{}", encoded(key.sign(signed.as_bytes()).as_ref()));
    let open = RequiredClaims { required: Vec::new(), ..rules };
    if let Ok(identity) = open.check(token.as_bytes(), keys, NOW_S) {
        assert!(identity.until_s() > NOW_S);
        assert!(!identity.user().chars().any(char::is_control));
        let lines = std::str::from_utf8(identity.lines()).expect("claims are text");
        for line in lines.split_terminator("\r\n") {
            assert!(line.starts_with("X-User: ") || line.starts_with("X-Roles: "));
            assert!(!line.chars().any(char::is_control));
        }
    }
});

fn encoded(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits =
            group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..=group.len() {
            text.push(char::from(DIGITS[(bits >> (18 - 6 * place)) as usize & 63]));
        }
    }
    text
}
