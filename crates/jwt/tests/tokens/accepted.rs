//! Accepted tokens: every algorithm, every form of keys, claims and times.

use jwt::{Algorithm, Audience, KeyFault, KeySet, Refusal, RequiredClaims};

use crate::issuer::{ISSUER, NOW, SECRET, pem, rules, set};

#[test]
fn every_algorithm_verifies_with_its_own_kind_of_key() {
    let pems = ISSUER.pems();
    let sets = [
        ISSUER.keys(),
        KeySet::parse(pems[..5].concat().as_bytes()).expect("is PEM"),
        KeySet::parse(pems[1..].concat().as_bytes()).expect("is PEM"),
    ];
    for algorithm in Algorithm::ASYMMETRIC {
        let token = ISSUER.with_claims(*algorithm, "\"sub\":\"alice\"");
        for keys in &sets {
            let identity = rules().check(token.as_bytes(), keys, NOW);
            assert_eq!(identity.as_ref().map(jwt::TokenIdentity::user), Ok("alice"), "{algorithm:?}");
        }
        let others: Vec<Algorithm> =
            Algorithm::ASYMMETRIC.iter().copied().filter(|it| it != algorithm).collect();
        let narrow = RequiredClaims { algorithms: others, ..rules() };
        assert_eq!(narrow.check(token.as_bytes(), &sets[0], NOW), Err(Refusal::Algorithm), "{algorithm:?}");
    }
    let secret = KeySet::secret(&[b" ", SECRET, b"\n"].concat()).expect("is a secret");
    let symmetric = RequiredClaims { algorithms: Algorithm::SYMMETRIC.to_vec(), ..rules() };
    for algorithm in Algorithm::SYMMETRIC {
        let token = ISSUER.with_claims(*algorithm, "");
        assert!(symmetric.check(token.as_bytes(), &secret, NOW).is_ok(), "{algorithm:?}");
        assert_eq!(rules().check(token.as_bytes(), &secret, NOW), Err(Refusal::Algorithm), "{algorithm:?}");
    }
    assert!(!format!("{secret:?}").contains("secret of"), "no secret in messages");
}

/// RFC 7515 Appendix A.3: a token from another implementation.
#[test]
fn the_token_of_the_rfc_verifies() {
    let key = r#"{"keys":[{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#;
    let token = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
    let keys = KeySet::parse(key.as_bytes()).expect("is a key set");
    let rules =
        RequiredClaims { user: "iss".to_owned(), issuers: vec!["joe".to_owned()], leeway_s: 0, ..rules() };
    let before = rules.check(token.as_bytes(), &keys, 1_300_819_379);
    assert_eq!(before.as_ref().map(jwt::TokenIdentity::user), Ok("joe"));
    assert_eq!(before.map(|identity| identity.until_s()), Ok(1_300_819_380));
    assert_eq!(rules.check(token.as_bytes(), &keys, 1_300_819_380), Err(Refusal::Expired));
}

#[test]
fn claims_are_asked_for() {
    let keys = ISSUER.keys();
    let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let of = |all: &[&str]| RequiredClaims { audience: Audience::Of(texts(all)), ..rules() };
    let from = |all: &[&str]| RequiredClaims { issuers: texts(all), ..rules() };
    let needs = |claim: &str, values: &[&str]| RequiredClaims {
        required: vec![(claim.to_owned(), texts(values))],
        ..rules()
    };
    let anybody = RequiredClaims { audience: Audience::Anybody, ..rules() };
    for (claims, rules, expected) in [
        (r#""aud":"api""#, of(&["web", "api"]), None),
        (r#""aud":["x","api"]"#, of(&["api"]), None),
        (r#""aud":["x","y"]"#, of(&["api"]), Some(Refusal::Audience)),
        (r#""aud":[]"#, of(&["api"]), Some(Refusal::Audience)),
        (r#""aud":["api",1]"#, of(&["api"]), Some(Refusal::Audience)),
        (r#""aud":{"api":"api"}"#, of(&["api"]), Some(Refusal::Audience)),
        (r#""aud":"API""#, of(&["api"]), Some(Refusal::Audience)),
        (r#""aud":"apis""#, of(&["api"]), Some(Refusal::Audience)),
        ("", of(&["api"]), Some(Refusal::Audience)),
        (r#""aud":"api""#, rules(), Some(Refusal::Audience)),
        (r#""aud":"api""#, anybody.clone(), None),
        ("", anybody, None),
        (r#""iss":"https://id.test/""#, from(&["https://id.test/"]), None),
        (r#""iss":"https://id.test""#, from(&["https://id.test/"]), Some(Refusal::Issuer)),
        (r#""iss":["https://id.test/"]"#, from(&["https://id.test/"]), Some(Refusal::Issuer)),
        ("", from(&["https://id.test/"]), Some(Refusal::Issuer)),
        (r#""role":"admin""#, needs("role", &["admin"]), None),
        (r#""role":["user","admin"]"#, needs("role", &["owner", "admin"]), None),
        (r#""role":"administrator""#, needs("role", &["admin"]), Some(Refusal::Insufficient)),
        (r#""role":["user"]"#, needs("role", &["admin"]), Some(Refusal::Insufficient)),
        (r#""role":{"admin":true}"#, needs("role", &["admin"]), Some(Refusal::Insufficient)),
        (r#""role":null"#, needs("role", &[]), None),
        ("", needs("role", &[]), Some(Refusal::Insufficient)),
        (r#""scope":"read:a write:a""#, needs("scope", &["write:a"]), None),
        (r#""scope":"read:a write:ab""#, needs("scope", &["write:a"]), Some(Refusal::Insufficient)),
        (r#""role":"user admin""#, needs("role", &["admin"]), Some(Refusal::Insufficient)),
        (r#""email_verified":true"#, needs("email_verified", &["true"]), None),
        (r#""email_verified":"true""#, needs("email_verified", &["true"]), None),
        (r#""level":3"#, needs("level", &["3"]), None),
        (r#""realm_access":{"roles":["a","b"]}"#, needs("realm_access.roles", &["b"]), None),
        (r#""https://x.test/roles":["a"]"#, needs("https://x.test/roles", &["a"]), None),
    ] {
        let token = ISSUER.with_claims(Algorithm::Es256, claims);
        assert_eq!(rules.check(token.as_bytes(), &keys, NOW).err(), expected, "{claims} {rules:?}");
    }
}

#[test]
fn times_count_with_a_leeway() {
    let keys = ISSUER.keys();
    let lenient = || RequiredClaims { accepts_no_expiry: true, ..rules() };
    for (claims, rules, expected) in [
        (format!(r#""exp":{}"#, NOW + 1), rules(), Ok(NOW + 6)),
        (format!(r#""exp":{}"#, NOW - 4), rules(), Ok(NOW + 1)),
        (format!(r#""exp":{}"#, NOW - 5), rules(), Err(Refusal::Expired)),
        (format!(r#""exp":{}.5"#, NOW - 5), rules(), Ok(NOW + 1)),
        (r#""exp":0"#.to_owned(), rules(), Err(Refusal::Expired)),
        (r#""exp":1e300"#.to_owned(), rules(), Ok(u64::MAX)),
        (r#""exp":-1"#.to_owned(), rules(), Err(Refusal::Claims)),
        (format!(r#""exp":"{}""#, NOW + 1), rules(), Err(Refusal::Claims)),
        (r#""exp":null"#.to_owned(), rules(), Err(Refusal::Claims)),
        (r#""exp":null"#.to_owned(), lenient(), Err(Refusal::Claims)),
        (r#""iat":1"#.to_owned(), rules(), Err(Refusal::NoExpiry)),
        (r#""iat":1"#.to_owned(), lenient(), Ok(u64::MAX)),
        (format!(r#""exp":{},"nbf":{}"#, NOW + 9, NOW + 5), rules(), Ok(NOW + 14)),
        (format!(r#""exp":{},"nbf":{}"#, NOW + 9, NOW + 6), rules(), Err(Refusal::NotYetValid)),
        (format!(r#""exp":{},"nbf":"now""#, NOW + 9), rules(), Err(Refusal::Claims)),
    ] {
        let token = ISSUER.token(Algorithm::EdDsa, r#"{"alg":"EdDSA"}"#, &format!("{{{claims}}}"));
        let checked = rules.check(token.as_bytes(), &keys, NOW);
        assert_eq!(checked.map(|identity| identity.until_s()), expected, "{claims}");
    }
}

#[test]
fn claims_become_fields() {
    let keys = ISSUER.keys();
    let passed = [("X-User", "sub"), ("X-Roles", "roles"), ("X-Tenant", "org.id")];
    let passed = passed.map(|(field, claim)| (field.to_owned(), claim.to_owned())).to_vec();
    let rules = RequiredClaims { passed, user: "email".to_owned(), ..rules() };
    let ok = |user: &str, lines: &str| Ok((user.to_owned(), lines.to_owned()));
    let long = "x".repeat(9000);
    for (claims, expected) in [
        (
            r#""sub":"a b","email":"a@x.test","roles":["r","s"],"org":{"id":7}"#.to_owned(),
            ok("a@x.test", "X-User: a b\r\nX-Roles: r,s\r\nX-Tenant: 7\r\n"),
        ),
        (r#""sub":true"#.to_owned(), ok("", "X-User: true\r\n")),
        (r#""sub":"é""#.to_owned(), ok("", "X-User: é\r\n")),
        (r#""roles":[]"#.to_owned(), ok("", "X-Roles: \r\n")),
        // Values with a line break, or that the server would read as two.
        (r#""sub":"a\r\nX-Admin: 1""#.to_owned(), Err(Refusal::Claims)),
        (r#""sub":"a\u0000""#.to_owned(), Err(Refusal::Claims)),
        (r#""sub":" a""#.to_owned(), Err(Refusal::Claims)),
        (r#""roles":["r,admin"]"#.to_owned(), Err(Refusal::Claims)),
        (r#""roles":[["r"]]"#.to_owned(), Err(Refusal::Claims)),
        (r#""roles":{"r":1}"#.to_owned(), Err(Refusal::Claims)),
        (r#""email":"a\nb""#.to_owned(), Err(Refusal::Claims)),
        (format!(r#""email":"{}""#, &long[..300]), Err(Refusal::Claims)),
        (format!(r#""sub":"{long}""#), Err(Refusal::Claims)),
    ] {
        let token = ISSUER.with_claims(Algorithm::Es256, &claims);
        let wide = RequiredClaims { token_bytes_max: 99_999, ..rules.clone() };
        let checked = wide.check(token.as_bytes(), &keys, NOW).map(|identity| {
            (identity.user().to_owned(), String::from_utf8(identity.lines().to_vec()).expect("is text"))
        });
        assert_eq!(checked, expected, "{claims:.60}");
    }
}

/// Conditions ask for the same texts as `required` compares.
#[test]
fn the_claims_that_conditions_ask_for_are_remembered() {
    let kept = ["roles", "scope", "realm.level", "missing"].map(str::to_owned).to_vec();
    let rules = RequiredClaims { kept, ..rules() };
    let claims = r#""roles":["user","admin"],"scope":"read write","realm":{"level":7},"sub":"ann""#;
    let token = ISSUER.with_claims(Algorithm::Es256, claims);
    let identity = rules.check(token.as_bytes(), &ISSUER.keys(), NOW).expect("is valid");
    let texts = |name: &str| -> Vec<String> {
        let values = identity.claims().values(name.as_bytes());
        values.map(|text| String::from_utf8_lossy(text).into_owned()).collect()
    };
    assert_eq!(texts("roles"), ["user", "admin"]);
    assert_eq!(texts("scope"), ["read", "write"]);
    assert_eq!(texts("realm.level"), ["7"]);
    assert_eq!((texts("missing"), texts("sub")), (Vec::new(), Vec::new()), "only what is asked for");
}

#[test]
fn a_key_is_chosen_by_its_name() {
    let other =
        aws_lc_rs::signature::EcdsaKeyPair::generate(&aws_lc_rs::signature::ECDSA_P256_SHA256_FIXED_SIGNING)
            .expect("a key");
    let point = aws_lc_rs::signature::KeyPair::public_key(&other).as_ref()[1..].to_vec();
    let (x, y) = (crate::issuer::encoded(&point[..32]), crate::issuer::encoded(&point[32..]));
    let other = |id: &str| format!(r#"{{"kty":"EC","crv":"P-256","x":"{x}","y":"{y}","kid":"{id}"}}"#);
    let ours = |id: &str| ISSUER.jwks(&format!(r#","kid":"{id}""#))[1].clone();
    let token = |id: &str| {
        let header = format!(r#"{{"alg":"ES256"{id}}}"#);
        ISSUER.token(Algorithm::Es256, &header, &format!("{{\"exp\":{}}}", NOW + 1))
    };
    let (a, none) = (token(r#","kid":"a""#), token(""));
    let many = |ours_at: usize| -> Vec<String> {
        (0..6).map(|at| if at == ours_at { ours("z") } else { other(&at.to_string()) }).collect()
    };
    for (keys, token, expected) in [
        (vec![ours("a"), other("b")], &a, None),
        (vec![other("b"), ours("a")], &a, None),
        (vec![other("a"), ours("b")], &a, Some(Refusal::Signature)),
        (vec![ours("b")], &a, Some(Refusal::UnknownKey)),
        (vec![other("a"), ours("a")], &a, None),
        (vec![other("b"), ours("a")], &none, None),
        (many(3), &none, None),
        // A token without `kid` is tried with a few keys only.
        (many(4), &none, Some(Refusal::Signature)),
    ] {
        let keys = KeySet::parse(set(&keys).as_bytes()).expect("is a key set");
        assert_eq!(rules().check(token.as_bytes(), &keys, NOW).err(), expected);
    }
}

#[test]
fn key_files_are_read_or_the_reason_is_given() {
    let pems = ISSUER.pems();
    let [rsa, p256, ..] = ISSUER.jwks(r#","kid":"k""#);
    let with = |jwk: &str, members: &str| set(&[jwk.replacen('{', &format!("{{{members},"), 1)]);
    for (text, expected) in [
        (pems[0].clone(), Ok(1)),
        (format!("# the issuer's\n{}\n{}", pems[1], pems[0]), Ok(2)),
        (set(&[rsa.clone(), p256.clone()]), Ok(2)),
        (with(&rsa, r#""use":"sig","key_ops":["verify"],"alg":"RS256","x5c":["a"]"#), Ok(1)),
        (String::new(), Err("it has neither a public key in PEM nor a JSON Web Key Set")),
        (p256.clone(), Err("it is no JSON Web Key Set: an object with a list \"keys\"")),
        ("{\"keys\":[]}".to_owned(), Err("none of its keys can be used")),
        (with(&rsa, r#""use":"enc""#), Err("none of its keys can be used: key 1 (k) is not for signatures")),
        (
            with(&rsa, r#""key_ops":["encrypt"]"#),
            Err("none of its keys can be used: key 1 (k) is not for verifying"),
        ),
        (
            with(&rsa, r#""alg":"ES256""#),
            Err("none of its keys can be used: key 1 (k) is for an algorithm that it does not fit"),
        ),
        (
            with(&rsa, r#""alg":"none""#),
            Err("none of its keys can be used: key 1 (k) is for an algorithm that is not supported"),
        ),
        (
            r#"{"keys":[{"kty":"oct","k":"AAAA"}]}"#.to_owned(),
            Err("none of its keys can be used: key 1 is a secret, which is for the option `secret` alone"),
        ),
        (
            r#"{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}"#.to_owned(),
            Err("none of its keys can be used: key 1 is no RSA key of 2048 to 8192 bits"),
        ),
        (
            pem("PUBLIC KEY", b"nonsense"),
            Err("key 1 of it is no RSA key of 2048 to 8192 bits, and none on P-256, P-384, P-521 or Ed25519"),
        ),
        (
            pem("CERTIFICATE", b""),
            Err(
                "it has a certificate, which is no public key; openssl x509 -pubkey -noout prints the key of a \
                 certificate",
            ),
        ),
        (
            pem("PRIVATE KEY", b""),
            Err(
                "it has a private key, which is no public key; keep it at the issuer: openssl pkey -pubout prints \
                 its public key",
            ),
        ),
    ] {
        let read = KeySet::parse(text.as_bytes()).map(|set| set.len()).map_err(|fault| fault.to_string());
        assert_eq!(read, expected.map_err(str::to_owned), "{text:.80}");
    }
    let mixed = KeySet::parse(set(&[rsa, r#"{"kty":"AKP"}"#.to_owned()]).as_bytes()).expect("one will do");
    assert_eq!(
        (mixed.len(), mixed.skipped().join("")),
        (1, "key 2 is of a kind that is not supported".to_owned())
    );
    for (secret, expected) in [
        (b"short".to_vec(), KeyFault::Short),
        ([b" ".as_slice(), &[b'x'; 31], b"\n"].concat(), KeyFault::Short),
        (pems[0].clone().into_bytes(), KeyFault::NoSecret),
        (set(&ISSUER.jwks("")).into_bytes(), KeyFault::NoSecret),
    ] {
        assert_eq!(KeySet::secret(&secret).err(), Some(expected));
    }
}
