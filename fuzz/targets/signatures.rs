//! The fields `Signature-Input`, `Signature` and `Signature-Agent`, separated by lines: accepted or rejected. The
//! signed text of an accepted one contains the values that were read.

#![no_main]

use libfuzzer_sys::fuzz_target;
use signatures::{SignatureTimes, SignedMessage, bot_signature};

fuzz_target!(|bytes: &[u8]| {
    let mut lines = bytes.split(|&byte| byte == b'\n');
    let names: [&[u8]; 4] = [b"signature-input", b"signature", b"signature-agent", b"x-other"];
    let fields: Vec<(&[u8], &[u8])> = names.into_iter().zip(&mut lines).collect();
    let message = SignedMessage {
        method: b"GET",
        scheme: "https",
        authority: b"Example.com:443",
        path: b"/a",
        query: Some(b"b"),
        fields,
    };
    let times = SignatureTimes { now_s: 1_735_689_700, leeway_s: 5, lifetime_max_s: 86_400 };
    let Ok(found) = bot_signature(&message, times) else { return };
    let base = std::str::from_utf8(&found.base).expect("is text");
    assert!(
        base.contains("\"@authority\": example.com\n")
            || base.contains("\"@target-uri\": https://example.com/a?b\n")
    );
    let last = base.lines().last().expect("has lines");
    assert!(last.starts_with("\"@signature-params\": (") && last.contains(";tag=\"web-bot-auth\""));
    // Repeating it has the same result.
    assert_eq!(bot_signature(&message, times).as_ref(), Ok(&found));
});
