//! Requests between instances: an accepted one is written again with the same bytes, except for the form of the
//! address.

#![no_main]

use cache::PeerRequest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(request) = PeerRequest::parse(bytes) else { return };
    let mut out = Vec::new();
    request.write(&mut out);
    let value = out.strip_prefix(b"vanward-peer: ").and_then(|line| line.strip_suffix(b"\r\n"));
    assert_eq!(PeerRequest::parse(value.expect("it is a line")), Some(request));
});
