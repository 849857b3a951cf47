//! BodyHead coding: any headers and bodies from clients and servers are accepted or rejected, within the memory limit.

#![no_main]

use coding::{Accepted, BodyChange, BodyDecoder, BodyHead, Coding, available_dictionary, match_of, matches};
use libfuzzer_sys::fuzz_target;

const ROOM: usize = 4096;
/// The largest body that the fuzzer decodes.
const BODY_BYTES_MAX: usize = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let accepted = Accepted::from_values(bytes.split(|byte| *byte == b'\n'));
    if let Some(coding) = accepted.choose(Coding::PLAIN) {
        assert!(accepted.takes(coding));
    }
    let fields = bytes.split(|byte| *byte == b'\n').filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b':')?;
        Some((&line[..at], &line[at + 1..]))
    });
    let content = BodyHead::from_fields(fields.clone());
    let _ = content.coding_to_remove(200, &accepted);
    let mut head = Vec::new();
    BodyChange::Code(Coding::Gzip).write(&mut head, fields);
    assert!(head.windows(24).any(|line| line == b"BodyHead-Encoding: gzip\r\n"));
    let _ = available_dictionary(bytes);
    let _ = match_of(bytes);
    let (pattern, path) = bytes.split_at(bytes.len() / 2);
    let _ = matches(pattern, path);
    for coding in Coding::PLAIN {
        let Some(mut decoder) = BodyDecoder::new(coding) else { continue };
        let (mut rest, mut total_bytes) = (bytes, 0);
        while total_bytes < BODY_BYTES_MAX {
            let mut out = Vec::new();
            let Ok(decoded) = decoder.decode(rest, ROOM, &mut out) else { break };
            assert!(out.len() <= ROOM && decoded.used <= rest.len());
            total_bytes += out.len();
            rest = &rest[decoded.used..];
            if rest.is_empty() && decoded.wants_input {
                break;
            }
        }
    }
});
