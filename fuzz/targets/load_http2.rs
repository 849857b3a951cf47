//! The load generator's HTTP/2 client: frames, header blocks and their Huffman code, as a server sends them. Any split reads
//! alike, and what it sends in return are whole frames.

#![no_main]

use std::sync::LazyLock;
use std::time::Instant;

use bytes::Bytes;
use connection::{Asked, Connection, Ended};
use encode::{Block, Common};
use frame::{HEAD_BYTES, Head, PREFACE};
use fuzz::cuts;
use http::Request;
use libfuzzer_sys::fuzz_target;

/// State of a connection and its streams.
#[allow(dead_code, unreachable_pub, reason = "taken from the crate load, of which this is a part")]
#[path = "../../crates/load/src/http2/connection.rs"]
mod connection;
/// Reads header blocks.
#[allow(dead_code, unreachable_pub, reason = "taken from the crate load, of which this is a part")]
#[path = "../../crates/load/src/http2/decode.rs"]
mod decode;
/// Renders header blocks.
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
/// Responses as they arrive.
#[allow(dead_code, unreachable_pub, reason = "taken from the crate load, of which this is a part")]
#[path = "../../crates/load/src/http2/incoming.rs"]
mod incoming;
/// Checks of responses.
#[allow(dead_code, unreachable_pub, reason = "taken from the crate load, of which this is a part")]
#[path = "../../crates/load/src/watch.rs"]
mod watch;

/// More than the first window of a stream.
static BODY: [u8; 70_000] = [b'x'; 70_000];

/// The requests: one whose fields are kept, one for a head alone, and one that may have a body.
static REQUESTS: LazyLock<[(Common, Block); 3]> = LazyLock::new(|| {
    ["GET", "HEAD", "POST"].map(|method| {
        let head = Request::builder().method(method).uri("http://a.test/").body(()).expect("a head");
        let common = Common::of([&head].into_iter());
        let block = common.block(&head);
        (common, block)
    })
});

fuzz_target!(|bytes: &[u8]| {
    assert_eq!(read(bytes, cuts(bytes)), read(bytes, [bytes.len()].into_iter()));
});

/// What has become of a request: status, size of the body, and fields.
type Told = Option<Result<(u16, u64, Vec<(String, Vec<u8>)>), Ended>>;

/// Whether the connection goes on, how many streams it takes, what it sends, and what has become of the requests.
fn read(bytes: &[u8], cuts: impl Iterator<Item = usize>) -> (bool, usize, bool, Vec<u8>, [Told; 3]) {
    let mut connection = Connection::new(3);
    for (place, (common, block)) in REQUESTS.iter().enumerate() {
        // Not for each input: it waits for windows, and costs time.
        let has_body = place == 2 && bytes.len().is_multiple_of(4);
        let body = if has_body { Bytes::from_static(&BODY) } else { Bytes::new() };
        connection.ask(
            place,
            Asked { common, block, body, is_head: place == 1, keeps_fields: place == 0, watch: None },
        );
    }
    let (mut from, mut goes_on) = (0, true);
    for cut in cuts {
        goes_on = goes_on && connection.receive(&bytes[from..cut], Instant::now());
        from = cut;
    }
    let told = [0, 1, 2].map(|place| {
        let result = connection.take(place)?;
        Some(result.map(|received| (received.status, received.body_bytes, received.fields)))
    });
    let out = std::mem::take(&mut connection.out);
    check(&out);
    // It can be used, and given up, whatever has happened.
    for place in 0..3 {
        connection.cancel(place);
    }
    connection.upload();
    connection.lose();
    (goes_on, connection.most(), connection.is_over(), out, told)
}

/// That these are whole frames, behind the preface.
fn check(out: &[u8]) {
    let mut rest = out.strip_prefix(PREFACE).expect("the preface");
    while let Some(head) = rest.first_chunk() {
        let head = Head::read(head);
        rest = rest.get(HEAD_BYTES + head.bytes..).expect("a whole frame");
    }
    assert!(rest.is_empty());
}
