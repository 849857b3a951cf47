//! The load generator's readers of streams: server-sent events, WebSocket frames and gRPC messages. Any split reads
//! alike, up to the byte that breaks the format.

#![no_main]

use fuzz::cuts;
use libfuzzer_sys::fuzz_target;

/// Assembles bytes from pieces.
#[allow(dead_code, unreachable_pub, reason = "taken from the crate load, of which this is a part")]
#[path = "../../crates/load/src/stream/assembled.rs"]
mod assembled;
/// gRPC messages.
#[allow(dead_code, unreachable_pub, reason = "taken from the crate load, of which this is a part")]
#[path = "../../crates/load/src/stream/grpc.rs"]
mod grpc;
/// Server-sent events.
#[allow(dead_code, unreachable_pub, reason = "taken from the crate load, of which this is a part")]
#[path = "../../crates/load/src/stream/sse.rs"]
mod sse;
/// WebSocket frames.
#[allow(dead_code, unreachable_pub, reason = "taken from the crate load, of which this is a part")]
#[path = "../../crates/load/src/stream/websocket.rs"]
mod websocket;

fuzz_target!(|bytes: &[u8]| {
    let whole = || [bytes.len()].into_iter();
    assert_eq!(events(bytes, cuts(bytes)), events(bytes, whole()));
    assert_eq!(frames(bytes, cuts(bytes)), frames(bytes, whole()));
    assert_eq!(messages(bytes, cuts(bytes)), messages(bytes, whole()));

    // Framed messages are read again.
    let mut framed = Vec::new();
    for part in bytes.chunks(7) {
        grpc::append(part, &mut framed);
    }
    let (found, broken) = messages(&framed, cuts(&framed));
    assert_eq!((found.concat(), broken), (bytes.to_vec(), None));
});

fn pieces(bytes: &[u8], cuts: impl Iterator<Item = usize>) -> impl Iterator<Item = &[u8]> {
    let mut from = 0;
    cuts.map(move |cut| {
        let piece = &bytes[from..cut];
        from = cut;
        piece
    })
}

fn events(bytes: &[u8], cuts: impl Iterator<Item = usize>) -> (Vec<[Vec<u8>; 3]>, Option<u64>) {
    let (mut events, mut found) = (sse::SseReader::default(), Vec::new());
    for piece in pieces(bytes, cuts) {
        let take =
            |event: sse::SseEvent<'_>| found.push([event.name, event.data, event.id].map(<[u8]>::to_vec));
        events.read(piece, take).expect("short lines");
    }
    (found, events.retry_ms())
}

fn frames(bytes: &[u8], cuts: impl Iterator<Item = usize>) -> (Vec<String>, Option<websocket::Violation>) {
    let (mut frames, mut found) = (websocket::Frames::default(), Vec::new());
    for piece in pieces(bytes, cuts) {
        if let Err(violation) = frames.read(piece, |received| found.push(format!("{received:?}"))) {
            return (found, Some(violation));
        }
    }
    (found, None)
}

fn messages(bytes: &[u8], cuts: impl Iterator<Item = usize>) -> (Vec<Vec<u8>>, Option<grpc::GrpcViolation>) {
    let (mut messages, mut found) = (grpc::Messages::default(), Vec::new());
    for piece in pieces(bytes, cuts) {
        if let Err(broken) = messages.read(piece, |message| found.push(message.to_vec())) {
            return (found, Some(broken));
        }
    }
    (found, messages.end().err())
}
