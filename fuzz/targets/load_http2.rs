//! The load generator's HTTP/2 client: frames, header blocks and Huffman codes from a server. Any split reads
//! alike, and the client's output is whole frames.

#![no_main]

use std::sync::LazyLock;
use std::time::Instant;

use bytes::Bytes;
use connection::{H2LoadConnection, H2LoadRequest, H2StreamFailure};
use encode::{CommonFields, RequestBlock};
use frame::{HEAD_BYTES, LoadFrameHead, PREFACE};
use fuzz::cuts;
use http::Request;
use libfuzzer_sys::fuzz_target;

/// A connection and its streams.
#[allow(dead_code, unreachable_pub, reason = "taken from the crate load, of which this is a part")]
#[path = "../../crates/load/src/http2/connection.rs"]
mod connection;
/// Decodes header blocks.
#[allow(dead_code, unreachable_pub, reason = "taken from the crate load, of which this is a part")]
#[path = "../../crates/load/src/http2/decode.rs"]
mod decode;
/// Encodes header blocks.
#[allow(dead_code, unreachable_pub, reason = "taken from the crate load, of which this is a part")]
#[path = "../../crates/load/src/http2/encode.rs"]
mod encode;
/// Frames.
#[allow(dead_code, unreachable_pub, reason = "taken from the crate load, of which this is a part")]
#[path = "../../crates/load/src/http2/frame.rs"]
mod frame;
/// Heads of responses.
#[allow(dead_code, unreachable_pub, reason = "taken from the crate load, of which this is a part")]
#[path = "../../crates/load/src/http2/head.rs"]
mod head;
/// Incoming responses.
#[allow(dead_code, unreachable_pub, reason = "taken from the crate load, of which this is a part")]
#[path = "../../crates/load/src/http2/incoming.rs"]
mod incoming;
/// Pages: what the responses to a request have in common.
#[allow(dead_code, unreachable_pub, reason = "taken from the crate load, of which this is a part")]
#[path = "../../crates/load/src/page.rs"]
mod page;
/// Checks of responses.
#[allow(dead_code, unreachable_pub, reason = "taken from the crate load, of which this is a part")]
#[path = "../../crates/load/src/watch.rs"]
mod watch;

/// Larger than a stream's first window.
static BODY: [u8; 70_000] = [b'x'; 70_000];

/// Requests with indexed fields, without a body, and with an optional body.
static REQUESTS: LazyLock<[(CommonFields, RequestBlock); 3]> = LazyLock::new(|| {
    ["GET", "HEAD", "POST"].map(|method| {
        let head = Request::builder().method(method).uri("http://a.test/").body(()).expect("a head");
        let common = CommonFields::from_heads([&head].into_iter());
        let block = common.block(&head);
        (common, block)
    })
});

fuzz_target!(|bytes: &[u8]| {
    assert_eq!(read(bytes, cuts(bytes)), read(bytes, [bytes.len()].into_iter()));
});

type Told = Option<Result<(u16, u64, Vec<(String, Vec<u8>)>), H2StreamFailure>>;

fn read(bytes: &[u8], cuts: impl Iterator<Item = usize>) -> (bool, usize, bool, Vec<u8>, [Told; 3]) {
    let mut connection = H2LoadConnection::new(3);
    for (place, (common, block)) in REQUESTS.iter().enumerate() {
        // Not for each input, because waiting for windows costs time.
        let has_body = place == 2 && bytes.len().is_multiple_of(4);
        let body = if has_body { Bytes::from_static(&BODY) } else { Bytes::new() };
        connection.ask(
            place,
            H2LoadRequest {
                common,
                block,
                body,
                is_head: place == 1,
                keeps_fields: place == 0,
                observer: watch::Observer::default(),
            },
        );
    }
    let (mut from, mut goes_on) = (0, true);
    for cut in cuts {
        goes_on = goes_on && connection.receive(&bytes[from..cut], Instant::now());
        from = cut;
    }
    let told = [0, 1, 2].map(|place| {
        let result = connection.take(place)?;
        Some(result.map(|received| (received.page.status, received.page.body_bytes, received.fields)))
    });
    let out = std::mem::take(&mut connection.out);
    check(&out);
    // Every place can be cancelled and reused, whatever happened before.
    for place in 0..3 {
        connection.cancel(place);
    }
    connection.upload();
    connection.lose();
    (goes_on, connection.most(), connection.is_over(), out, told)
}

/// Asserts that the output is the preface and whole frames.
fn check(out: &[u8]) {
    let mut rest = out.strip_prefix(PREFACE).expect("the preface");
    while let Some(head) = rest.first_chunk() {
        let head = LoadFrameHead::read(head);
        rest = rest.get(HEAD_BYTES + head.bytes..).expect("a whole frame");
    }
    assert!(rest.is_empty());
}
