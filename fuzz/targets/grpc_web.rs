//! gRPC-Web: the first byte says how to split the rest, which is a body, a text or trailers. Any split has the same
//! result, encoded data decodes to itself, and a body ends with its trailers.

#![no_main]

use grpc::{CallForm, CallStatus, ContentType, TextDecoder, TextEncoder, Unary, WebBody};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let piece = usize::from(first % 16) + 1;
    let _ = (ContentType::parse(rest), CallStatus::of_field(rest).code());

    // Text, in one piece and in several.
    let whole = decoded(rest, rest.len().max(1));
    assert_eq!(decoded(rest, piece), whole);

    // Bytes to text and back.
    let (mut encoder, mut text) = (TextEncoder::default(), Vec::new());
    for part in rest.chunks(piece) {
        encoder.push(part, &mut text);
        if first >= 128 {
            encoder.flush(&mut text);
        }
    }
    encoder.flush(&mut text);
    assert_eq!(decoded(&text, piece).as_deref(), Some(rest));

    // A body in each form.
    let trailers = &rest[rest.len() / 2..];
    let [binary, text] = [CallForm::Web, CallForm::WebText].map(|form| {
        let (mut body, mut out) = (WebBody::new(form, false), Vec::new());
        rest.chunks(piece).for_each(|part| body.push(part, &mut out));
        body.end(trailers, &mut out);
        out
    });
    assert_eq!(decoded(&text, piece), Some(binary.clone()));
    assert!(binary.starts_with(rest));
    let frame = &binary[rest.len()..];
    let length = u32::from_be_bytes([frame[1], frame[2], frame[3], frame[4]]);
    assert_eq!((frame[0], length as usize), (0x80, frame.len() - 5));
    assert!(frame[5..].is_empty() || frame.ends_with(b"\r\n"));

    let mut one = Unary::new(64);
    let is_one = rest.chunks(rest.len().max(1)).all(|part| one.take(part));
    let mut several = Unary::new(64);
    assert_eq!(rest.chunks(piece).all(|part| several.take(part)), is_one);
});

fn decoded(text: &[u8], piece: usize) -> Option<Vec<u8>> {
    let (mut decoder, mut out) = (TextDecoder::default(), Vec::new());
    for part in text.chunks(piece) {
        let mut part = part.to_vec();
        let len = decoder.decode(&mut part).ok()?;
        out.extend_from_slice(&part[..len]);
    }
    decoder.is_whole().then_some(out)
}
