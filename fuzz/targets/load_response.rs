//! The load generator's response reader: any split reads alike, with or without a known head. The proxy's parser
//! agrees on each complete response and its length.

#![no_main]

use fuzz::{LIMITS, cuts};
use http1::{BodyFraming, ChunkLimits, Parsed, ResponseHead};
use libfuzzer_sys::fuzz_target;

/// The response reader.
#[allow(dead_code, unreachable_pub, reason = "taken from the crate load, of which this is a part")]
#[path = "../../crates/load/src/check.rs"]
mod check;
/// Its chunked decoder.
#[allow(dead_code, unreachable_pub, reason = "taken from the crate load, of which this is a part")]
#[path = "../../crates/load/src/chunked.rs"]
mod chunked;
/// Pages: what the responses to a request have in common.
#[allow(dead_code, unreachable_pub, reason = "taken from the crate load, of which this is a part")]
#[path = "../../crates/load/src/page.rs"]
mod page;
/// Checks of responses.
#[allow(dead_code, unreachable_pub, reason = "taken from the crate load, of which this is a part")]
#[path = "../../crates/load/src/watch.rs"]
mod watch;

use check::{CheckedResponse, LastHead, Malformed, ResponseReader};

fuzz_target!(|bytes: &[u8]| {
    let mut last = LastHead::default();
    let whole = read(bytes, [bytes.len()].into_iter(), &mut last);
    assert_eq!(read(bytes, [bytes.len()].into_iter(), &mut last), whole, "with a head that is known");
    match (whole, read(bytes, cuts(bytes), &mut LastHead::default())) {
        // In pieces, a response may end before excess bytes arrive.
        (Err(Malformed::Excess), Ok(Some(_))) => {}
        (whole, pieces) => assert_eq!(pieces, whole),
    }
    if let Ok(Some(response)) = whole {
        check_with_wire(bytes, response);
    }
});

fn read(
    bytes: &[u8],
    cuts: impl Iterator<Item = usize>,
    last: &mut LastHead,
) -> Result<Option<CheckedResponse>, Malformed> {
    let mut reader = ResponseReader::new(false);
    let mut start = 0;
    for cut in cuts {
        if let Some(response) = reader.read(&bytes[start..cut], last)? {
            return Ok(Some(response));
        }
        start = cut;
    }
    Ok(None)
}

/// If the proxy's stricter parser accepts the response, both read the same.
fn check_with_wire(mut bytes: &[u8], response: CheckedResponse) {
    let mut head = ResponseHead::default();
    loop {
        head.clear();
        if head.parse(bytes, &LIMITS[0]) != Ok(Parsed::Complete) {
            return;
        }
        if head.start.status >= 200 {
            break;
        }
        bytes = &bytes[head.len..];
    }
    assert_eq!(head.start.status, response.status);
    let mut body = bytes[head.len..].to_vec();
    match http1::response_framing(&head, bytes, false) {
        Ok(BodyFraming::None) => assert_eq!((response.body_bytes, body.len()), (0, 0)),
        Ok(BodyFraming::Length(len)) => assert_eq!((response.body_bytes, body.len() as u64), (len, len)),
        Ok(BodyFraming::Chunked) => {
            let decoded = http1::ChunkedDecoder::default().decode(&mut body, &ChunkLimits::default());
            if let Ok(decoded) = decoded {
                assert!(decoded.done && decoded.consumed == body.len());
                assert_eq!(decoded.data as u64, response.body_bytes);
            }
        }
        Ok(BodyFraming::UntilClose) => panic!("such a body ends with its connection only"),
        Err(_) => {}
    }
}
