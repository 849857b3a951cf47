//! Content coding: whatever clients and servers say of it, and whatever a body is that they send, is read or refused, and
//! never takes more memory than there is room.

#![no_main]

use coding::{Accepted, Change, Coding, Content, Decoder, available_dictionary, match_of, matches};
use libfuzzer_sys::fuzz_target;

const ROOM: usize = 4096;
/// Bytes that a body of the fuzzer may become.
const BODY_BYTES_MAX: usize = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let accepted = Accepted::of(bytes.split(|byte| *byte == b'\n'));
    if let Some(coding) = accepted.choose(Coding::PLAIN) {
        assert!(accepted.takes(coding));
    }
    let fields = bytes.split(|byte| *byte == b'\n').filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b':')?;
        Some((&line[..at], &line[at + 1..]))
    });
    let content = Content::of(fields.clone());
    let _ = content.coding_to_remove(200, &accepted);
    let mut head = Vec::new();
    Change::Code(Coding::Gzip).write(&mut head, fields);
    assert!(head.windows(24).any(|line| line == b"Content-Encoding: gzip\r\n"));
    let _ = available_dictionary(bytes);
    let _ = match_of(bytes);
    let (pattern, path) = bytes.split_at(bytes.len() / 2);
    let _ = matches(pattern, path);
    for coding in Coding::PLAIN {
        let Some(mut decoder) = Decoder::new(coding) else { continue };
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
