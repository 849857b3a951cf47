//! The opening handshake of a WebSocket, which HTTP/1.1 has and HTTP/2 has not (RFC 6455 §4, RFC 8441 §5).

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha1::{Digest, Sha1};

/// RFC 6455 §1.3.
const ACCEPT_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The protocol, as Upgrade names it.
pub(crate) const WEBSOCKET: &[u8] = b"websocket";

/// RFC 6455 §4.1: a nonce. It keeps caches from answering, and keeps no secret.
pub(crate) fn fresh_key() -> String {
    BASE64_STANDARD.encode(fastrand::u128(..).to_le_bytes())
}

/// RFC 6455 §4.2.2: the Sec-WebSocket-Accept that answers this Sec-WebSocket-Key.
pub fn accept_of(key: &[u8]) -> String {
    BASE64_STANDARD.encode(Sha1::new().chain_update(key).chain_update(ACCEPT_SUFFIX).finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_6455() {
        assert_eq!(accept_of(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
