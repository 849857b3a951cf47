//! What instances say of requests: what is read is written as it was, but for the form of the address.

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
