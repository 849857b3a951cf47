//! ChunkedDecoder bodies: any split decodes alike, also compared with a simple decoder. Data that is encoded again decodes
//! to the same data.

#![no_main]

use fuzz::cuts;
use http1::{ChunkError, ChunkLimits, ChunkedDecoder, chunk_prefix};
use libfuzzer_sys::fuzz_target;

const LIMITS: ChunkLimits = ChunkLimits { extension_bytes: 64, trailer_bytes: 128 };

fuzz_target!(|bytes: &[u8]| {
    let whole = decode(bytes, [bytes.len()].into_iter());
    assert_eq!(decode(bytes, cuts(bytes)), whole);
    match (&whole, read_slowly(bytes)) {
        (Ok(body), slow) => assert_eq!(
            body.is_done.then_some((&body.data, body.consumed)),
            slow.as_ref().map(|(data, len)| (data, *len))
        ),
        (Err(_), None) => {}
        // The simple decoder knows neither limits nor fields.
        (
            Err(ChunkError::ExtensionsTooLarge | ChunkError::TrailersTooLarge | ChunkError::Trailer),
            Some(_),
        ) => {}
        (Err(error), Some(_)) => panic!("refused with {error:?}, though it is right"),
    }
    if let Ok(body) = whole
        && body.is_done
    {
        let anew = encode(&body);
        let again = decode(&anew, cuts(&anew)).expect("what is encoded is valid");
        assert_eq!((&again.data, &again.trailers, again.consumed), (&body.data, &body.trailers, anew.len()));
    }
});

#[derive(Debug, PartialEq, Eq)]
struct Body {
    data: Vec<u8>,
    trailers: Vec<u8>,
    consumed: usize,
    is_done: bool,
}

fn decode(bytes: &[u8], cuts: impl Iterator<Item = usize>) -> Result<Body, ChunkError> {
    let mut chunked = ChunkedDecoder::default();
    let mut body = Body { data: Vec::new(), trailers: Vec::new(), consumed: 0, is_done: false };
    for cut in cuts {
        let mut piece = bytes[body.consumed.min(cut)..cut].to_vec();
        let decoded = chunked.decode(&mut piece, &LIMITS)?;
        body.data.extend_from_slice(&piece[..decoded.data]);
        assert!(decoded.data <= decoded.consumed);
        body.consumed += decoded.consumed;
        body.is_done = decoded.done;
    }
    body.trailers.extend_from_slice(chunked.trailers());
    Ok(body)
}

fn encode(body: &Body) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in body.data.chunks(7) {
        let (prefix, start) = chunk_prefix(piece.len());
        bytes.extend([&prefix[start..], piece, b"\r\n"].concat());
    }
    bytes.extend([b"0\r\n", body.trailers.as_slice(), b"\r\n"].concat());
    bytes
}

/// Decodes a whole body. Returns its data and length; `None` if it is malformed or incomplete.
fn read_slowly(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut data, mut rest) = (Vec::new(), bytes);
    loop {
        let (line, behind) = line(rest)?;
        let text = std::str::from_utf8(line.split(|&byte| byte == b';').next()?).ok()?;
        let is_size = (1..=15).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let size = is_size.then(|| usize::from_str_radix(text, 16).ok())??;
        if line.iter().any(|&byte| (byte < b' ' && byte != b'\t') || byte == 0x7f) {
            return None;
        }
        rest = behind;
        if size == 0 {
            break;
        }
        data.extend_from_slice(rest.get(..size)?);
        rest = rest[size..].strip_prefix(b"\r\n")?;
    }
    loop {
        let (line, behind) = line(rest)?;
        rest = behind;
        if line.is_empty() {
            return Some((data, bytes.len() - rest.len()));
        }
    }
}

/// Splits at the first LF, which must follow a CR.
fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    Some((bytes[..end].strip_suffix(b"\r")?, &bytes[end + 1..]))
}
