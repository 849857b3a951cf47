//! Verifies published signatures, and refuses invalid ones.

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use signatures::{SignatureFault, SignatureTimes, SignedMessage, bot_signature};

/// RFC 9421 Appendix B.1.4, `test-key-ed25519`: d and x.
const SECRET: &str = "n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU";
const PUBLIC: &str = "JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs";
const THUMBPRINT: &str = "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";

const NOW: u64 = 1_735_689_700;
const TIMES: SignatureTimes = SignatureTimes { now_s: NOW, leeway_s: 5, lifetime_max_s: 86_400 };

fn decoded(text: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text).expect("is base64url")
}

fn verifies(base: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, decoded(PUBLIC)).verify(base, signature).is_ok()
}

/// RFC 9421 Appendix B.2.6, with an additional tag and expiry, which a bot's signature needs; every other line is from
/// the RFC.
#[test]
fn the_rfcs_signature_signs_this_text() {
    let theirs = "\"date\": Tue, 20 Apr 2021 02:07:55 GMT\n\"@method\": POST\n\"@path\": /foo\n\
                  \"@authority\": example.com\n\"content-type\": application/json\n\"content-length\": 18\n\
                  \"@signature-params\": (\"date\" \"@method\" \"@path\" \"@authority\" \"content-type\" \
                  \"content-length\");created=1618884473;keyid=\"test-key-ed25519\"";
    let signature =
        "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==";
    assert!(verifies(theirs.as_bytes(), &STANDARD.decode(signature).expect("is base64")));
    let parameters = ";created=1618884473;keyid=\"test-key-ed25519\"";
    let more = format!("{parameters};expires=1618884999;tag=\"web-bot-auth\"");
    let input = format!(
        "sig=(\"date\" \"@method\" \"@path\" \"@authority\" \"content-type\" \"content-length\"){more}"
    );
    let fields: [(&[u8], &[u8]); 5] = [
        (b"Date", b"Tue, 20 Apr 2021 02:07:55 GMT"),
        (b"Content-Type", b" application/json "),
        (b"content-length", b"18"),
        (b"Signature-Input", input.as_bytes()),
        (b"Signature", b"sig=:AAAA:"),
    ];
    let message = SignedMessage {
        method: b"POST",
        scheme: "https",
        authority: b"Example.com:443",
        path: b"/foo",
        query: Some(b"param=Value&Pet=dog"),
        fields: fields.to_vec(),
    };
    let times = SignatureTimes { now_s: 1_618_884_475, ..TIMES };
    let found = bot_signature(&message, times).expect("has one");
    assert_eq!(String::from_utf8(found.base).expect("is text"), theirs.replace(parameters, &more));
    assert_eq!((found.key_id.as_str(), found.agent), ("test-key-ed25519", None));
}

/// draft-meunier-web-bot-auth-architecture-05 Appendix A.2.1 and A.2.3, and the vector with a dictionary from Appendix
/// B.3.
#[test]
fn the_requests_of_the_draft_are_those_of_its_bot() {
    const AGENT: &str = "https://signature-agent.test";
    let string = format!("\"{AGENT}\"");
    let dictionary = format!("agent2=\"{AGENT}\"");
    for (components, agent, expires, nonce, signature) in [
        (
            "(\"@authority\")",
            None,
            4_889_289_600_u64,
            "g0iqFa9e1ffijlyOScDkXpfSmTbYpRNSGPJrQ1It20ahwgzB3jOUcdgLgFxUg7RMtW4V8IILaKKtA+YuSyIgJQ==",
            "FFASViSdcgsyaqqYiCnkHreeZzbNKcTzDvZC5uVlP/dn9IbWj8j0o4wKFTH3rBnUiSUBduwm1Gp5VlIPCp01Ag==",
        ),
        (
            "(\"@authority\" \"signature-agent\")",
            Some(string),
            1_735_693_200,
            "e8N7S2MFd/qrd6T2R3tdfAuuANngKI7LFtKYI/vowzk4lAZYadIX6wW25MwG7DCT9RUKAJ0qVkU0mEeLElW1qg==",
            "jdq0SqOwHdyHr9+r5jw3iYZH6aNGKijYp/EstF4RQTQdi5N5YYKrD+mCT1HA1nZDsi6nJKuHxUi/5Syp3rLWBA==",
        ),
        (
            "(\"@authority\" \"signature-agent\";key=\"agent2\")",
            Some(dictionary),
            4_889_289_600,
            "n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA==",
            "RdNFx5Bj6au3YgAMQL/RzmUlZE8QZLIaXGRpw985hWnwPfMxT228NMk6ehRS1PSl4e8PhbNZACSanGdhEwYCCg==",
        ),
    ] {
        let input = format!(
            "sig={components};created=1735689600;keyid=\"{THUMBPRINT}\";alg=\"ed25519\";expires={expires};\
             nonce=\"{nonce}\";tag=\"web-bot-auth\""
        );
        let has_agent = agent.is_some();
        let mut fields = vec![("Signature-Input", input), ("Signature", format!("sig=:{signature}:"))];
        fields.extend(agent.map(|agent| ("Signature-Agent", agent)));
        let times = SignatureTimes { lifetime_max_s: u64::MAX, ..TIMES };
        let found = bot_signature(&message(&fields), times).expect("has one");
        assert!(verifies(&found.base, &found.signature), "{}", String::from_utf8_lossy(&found.base));
        assert_eq!(found.key_id, THUMBPRINT);
        assert_eq!(found.agent.as_deref(), has_agent.then_some(AGENT));
    }
}

/// A request for `https://example.com/a?b` with these fields.
fn message<'m>(fields: &'m [(&'m str, String)]) -> SignedMessage<'m> {
    SignedMessage {
        method: b"GET",
        scheme: "https",
        authority: b"example.com",
        path: b"/a",
        query: Some(b"b"),
        fields: fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect(),
    }
}

fn parameters(more: &str) -> String {
    format!(";created={};expires={};keyid=\"{THUMBPRINT}\"{more};tag=\"web-bot-auth\"", NOW - 10, NOW + 50)
}

#[test]
fn signatures_of_bots_are_verified() {
    let key = Ed25519KeyPair::from_seed_and_public_key(&decoded(SECRET), &decoded(PUBLIC)).expect("is a key");
    let agent = "\"https://bot.example\"";
    for (components, agent, lines) in [
        ("(\"@authority\")", None, "\"@authority\": example.com\n"),
        (
            "(\"@authority\" \"signature-agent\")",
            Some(agent.to_owned()),
            "\"@authority\": example.com\n\"signature-agent\": \"https://bot.example\"\n",
        ),
        (
            "(\"@target-uri\" \"signature-agent\";key=\"s\")",
            Some(format!("r=\"https://other.example\",s={agent}")),
            "\"@target-uri\": https://example.com/a?b\n\"signature-agent\";key=\"s\": \"https://bot.example\"\n",
        ),
        (
            "(\"@scheme\" \"@authority\" \"@query\" \"@request-target\" \"@path\" \"@method\")",
            None,
            "\"@scheme\": https\n\"@authority\": example.com\n\"@query\": ?b\n\"@request-target\": /a?b\n\
             \"@path\": /a\n\"@method\": GET\n",
        ),
    ] {
        let parameters =
            parameters(";alg=\"ed25519\";nonce=\"e8N7S2MFd/qrd6T2R3tdfAuuANngKI7LFtKYI/vowzk4\"");
        let base = format!("{lines}\"@signature-params\": {components}{parameters}");
        let signature = STANDARD.encode(key.sign(base.as_bytes()));
        let mut fields = vec![
            ("Signature-Input", format!("other=(\"@method\");created=1, s={components}{parameters}")),
            ("Signature", format!("other=:AAAA:, s=:{signature}:")),
        ];
        fields.extend(agent.map(|agent| ("Signature-Agent", agent)));
        let has_agent = fields.len() > 2;
        let found = bot_signature(&message(&fields), TIMES).expect("has one");
        assert_eq!(String::from_utf8_lossy(&found.base), base);
        assert!(verifies(&found.base, &found.signature));
        assert_eq!(found.agent.as_deref(), has_agent.then_some("https://bot.example"));
        // The signature does not match a request for another host.
        let other = SignedMessage { authority: b"example.org", ..message(&fields) };
        let found = bot_signature(&other, TIMES).expect("has one");
        assert!(!verifies(&found.base, &found.signature));
    }
}

#[test]
fn faults_of_signatures_are_reported() {
    let covered = "(\"@authority\" \"signature-agent\")";
    let right = format!("s={covered}{}", parameters(""));
    let times = |created: u64, expires: u64| {
        format!("s={covered};created={created};expires={expires};keyid=\"k\";tag=\"web-bot-auth\"")
    };
    for (input, signature, expected) in [
        (right.clone(), "s=:AAAA:", None),
        (String::new(), "s=:AAAA:", Some(SignatureFault::Missing)),
        (right.replace("web-bot-auth", "other"), "s=:AAAA:", Some(SignatureFault::Missing)),
        (right.replace(";tag=\"web-bot-auth\"", ""), "s=:AAAA:", Some(SignatureFault::Missing)),
        (right.replace("\"web-bot-auth\"", "web-bot-auth"), "s=:AAAA:", Some(SignatureFault::Missing)),
        (
            format!("{right}, t={covered}{}", parameters("")),
            "s=:AAAA:, t=:AAAA:",
            Some(SignatureFault::Repeated),
        ),
        (format!("{right},"), "s=:AAAA:", Some(SignatureFault::Malformed)),
        (format!("{right}, {right}"), "s=:AAAA:", Some(SignatureFault::Malformed)),
        (right.clone(), "t=:AAAA:", Some(SignatureFault::Malformed)),
        (right.clone(), "s=\"AAAA\"", Some(SignatureFault::Malformed)),
        (right.clone(), "s=:A:", Some(SignatureFault::Malformed)),
        (right.replace("\"@authority\" ", ""), "s=:AAAA:", Some(SignatureFault::Uncovered)),
        (right.replace(" \"signature-agent\"", ""), "s=:AAAA:", Some(SignatureFault::Uncovered)),
        (right.replace("\"@authority\"", "\"@authority\";req"), "s=:AAAA:", Some(SignatureFault::Uncovered)),
        (right.replace("(\"@", "(\"x-missing\" \"@"), "s=:AAAA:", Some(SignatureFault::Uncovered)),
        (right.replace("(\"@", "(\"@status\" \"@"), "s=:AAAA:", Some(SignatureFault::Uncovered)),
        (
            right.replace("(\"@", "(\"@query-param\";name=\"b\" \"@"),
            "s=:AAAA:",
            Some(SignatureFault::Uncovered),
        ),
        (right.replace("(\"@", "(\"@authority\" \"@"), "s=:AAAA:", Some(SignatureFault::Uncovered)),
        (right.replace("signature-agent", "Signature-Agent"), "s=:AAAA:", Some(SignatureFault::Uncovered)),
        (right.replace("\"@authority\"", "@authority"), "s=:AAAA:", Some(SignatureFault::Malformed)),
        (right.replace(";keyid", ";kid"), "s=:AAAA:", Some(SignatureFault::Parameters)),
        (right.replace(";expires", ";until"), "s=:AAAA:", Some(SignatureFault::Parameters)),
        (right.replace(";created=", ";created=-"), "s=:AAAA:", Some(SignatureFault::Parameters)),
        (format!("{right};alg=\"hmac-sha256\""), "s=:AAAA:", Some(SignatureFault::Algorithm)),
        (format!("{right};alg=ed25519"), "s=:AAAA:", Some(SignatureFault::Algorithm)),
        (times(NOW + 5, NOW + 10), "s=:AAAA:", None),
        (times(NOW + 6, NOW + 10), "s=:AAAA:", Some(SignatureFault::NotYetValid)),
        (times(NOW - 60, NOW - 4), "s=:AAAA:", None),
        (times(NOW - 60, NOW - 5), "s=:AAAA:", Some(SignatureFault::Expired)),
        (times(NOW - 60, NOW - 60 + 86_400), "s=:AAAA:", None),
        (times(NOW - 60, NOW - 60 + 86_401), "s=:AAAA:", Some(SignatureFault::Expired)),
    ] {
        let mut fields = vec![
            ("signature", signature.to_owned()),
            ("signature-agent", "\"https://bot.example\"".to_owned()),
        ];
        if !input.is_empty() {
            fields.push(("signature-input", input.clone()));
        }
        assert_eq!(bot_signature(&message(&fields), TIMES).err(), expected, "{input} {signature}");
    }
    for agent in ["https://bot.example", "s=\"https://bot.example\"", "\"a\", \"b\"", "1", ""] {
        let fields = [
            ("signature", "s=:AAAA:".to_owned()),
            ("signature-agent", agent.to_owned()),
            ("signature-input", right.clone()),
        ];
        assert_eq!(bot_signature(&message(&fields), TIMES).err(), Some(SignatureFault::Malformed), "{agent}");
    }
}
