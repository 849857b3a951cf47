//! A QPACK decoder that receives any instructions and field sections in any pieces. An encoder whose sections must
//! decode to their input while acknowledgments arrive late or are forged.

#![no_main]

use fields::compose::Encode;
use http3::{QpackDecoder, QpackEncoder, SectionOutcome};
use libfuzzer_sys::fuzz_target;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fuzz_target!(|bytes: &[u8]| {
    let whole = decode(bytes, usize::MAX);
    assert_eq!(decode(bytes, 1), whole);
    there_and_back(bytes);
});

/// Decodes sections between pieces of instructions of `piece` bytes.
fn decode(bytes: &[u8], piece: usize) -> Vec<String> {
    let mut decoder = QpackDecoder::new(256);
    let mut said = Vec::new();
    let mut rest = bytes;
    while let [selector, len, behind @ ..] = rest {
        let (part, behind) = behind.split_at(usize::from(*len).min(behind.len()));
        rest = behind;
        if selector & 1 == 0 {
            let mut pieces = part.chunks(piece.min(part.len().max(1)));
            if let Err(broken) = pieces.try_for_each(|piece| decoder.instruct(piece)) {
                said.push(broken.why().to_owned());
                break;
            }
        } else {
            let mut fields = Vec::new();
            let outcome = decoder.decode(u64::from(selector >> 1), part, |name, value| {
                fields.push((name.to_vec(), value.to_vec()));
            });
            assert!(fields.is_empty() || !matches!(outcome, Ok(SectionOutcome::Blocked(_))));
            said.push(format!("{outcome:?} {fields:?}"));
        }
    }
    let mut acknowledgments = Vec::new();
    decoder.acknowledge(&mut acknowledgments);
    said.push(format!("{acknowledgments:?}"));
    said
}

/// Encodes the fields that the input selects, and decodes them.
fn there_and_back(bytes: &[u8]) {
    const NAMES: [&str; 8] = ["server", "x-a", "x-bb", "etag", "cookie", ":path", "vary", "content-type"];
    const VALUES: [&str; 6] = ["", "a", "origin", "/", "a somewhat longer value, as many have", "\u{ff}\0"];
    let Some((&settings, steps)) = bytes.split_first() else { return };
    let (table_bytes, blocked_streams) = (usize::from(settings & 0x3f) * 8, u64::from(settings >> 6));
    let (mut encoder, mut decoder) = (QpackEncoder::default(), QpackDecoder::new(table_bytes));
    encoder.allow(table_bytes as u64, blocked_streams);
    let (mut instructions, mut acknowledgments) = (Vec::new(), Vec::new());
    let mut waiting: Vec<(u64, Vec<u8>, Fields)> = Vec::new();
    for (at, step) in (0..).zip(steps.chunks(4)) {
        let fields: Fields = step
            .iter()
            .map(|&byte| (NAMES[usize::from(byte) % 8], VALUES[usize::from(byte >> 3) % 6]))
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        // Some streams have several sections, as for trailers.
        let stream = u64::from(step[0] >> 6) + 4 * (at / 3);
        encoder.begin(stream, step[0] & 0x20 == 0);
        fields.iter().for_each(|(name, value)| encoder.field(name, value));
        let mut section = Vec::new();
        encoder.end(&mut section);
        encoder.take_instructions(&mut instructions);
        waiting.push((stream, section, fields));
        if step[0] & 1 != 0 {
            let part = instructions.len() / 2 + 1;
            let part: Vec<u8> = instructions.drain(..part.min(instructions.len())).collect();
            decoder.instruct(&part).expect("they are valid");
        }
        // Sections of a stream stay in order.
        let mut blocked: Vec<u64> = Vec::new();
        waiting.retain(|(stream, section, fields)| {
            let done = !blocked.contains(stream) && is_decoded(&mut decoder, *stream, section, fields);
            if !done && !blocked.contains(stream) {
                blocked.push(*stream);
            }
            !done
        });
        assert!(blocked.len() as u64 <= blocked_streams);
        if step[0] & 2 != 0 {
            decoder.acknowledge(&mut acknowledgments);
            let taken = encoder.acknowledged(&acknowledgments).expect("they are valid");
            assert_eq!(taken, acknowledgments.len());
            acknowledgments.clear();
        }
    }
    decoder.instruct(&instructions).expect("they are valid");
    for (stream, section, fields) in &waiting {
        assert!(is_decoded(&mut decoder, *stream, section, fields));
    }
    // Forged instructions may arrive, too.
    let _ = encoder.acknowledged(bytes);
}

fn is_decoded(
    decoder: &mut QpackDecoder,
    stream: u64,
    section: &[u8],
    fields: &[(Vec<u8>, Vec<u8>)],
) -> bool {
    let mut got = Vec::new();
    let field = |name: &[u8], value: &[u8]| got.push((name.to_vec(), value.to_vec()));
    match decoder.decode(stream, section, field).expect("it is readable") {
        SectionOutcome::Blocked(_) => false,
        SectionOutcome::Whole => {
            assert_eq!(got, fields);
            true
        }
    }
}
