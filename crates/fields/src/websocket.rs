//! The opening handshake of WebSockets, which differs between HTTP/1.1 and extended CONNECT (RFC 6455 §4, RFC 8441 §5,
//! RFC 9220).

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha1::{Digest, Sha1};

/// The constant in the computation of Sec-WebSocket-Accept (RFC 6455 §1.3).
const ACCEPT_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// As in the field Upgrade.
pub(crate) const WEBSOCKET: &[u8] = b"websocket";

/// A new Sec-WebSocket-Key (RFC 6455 §4.1). The nonce keeps caches from answering, so it need not be secret.
pub(crate) fn fresh_key() -> String {
    BASE64_STANDARD.encode(fastrand::u128(..).to_le_bytes())
}

/// RFC 6455 §4.2.2.
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
