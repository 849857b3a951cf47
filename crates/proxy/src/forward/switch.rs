//! Checks that a server switches protocols as its request asked (RFC 9110 §7.8, RFC 6455 §4.1).

use http1::ConnectionOptions;

use crate::context::exchange_slot::{CurrentRequest, CurrentResponse};

const KEY: &[u8] = b"sec-websocket-key";
const ACCEPT: &[u8] = b"sec-websocket-accept";

/// Whether the 101 response is the requested switch. `made_key`: the proxy made the key of the WebSocket handshake
/// (over HTTP/2, RFC 8441 §5), so only the proxy can check the answer to it.
#[cold]
pub(crate) fn is_asked_for(
    request: &CurrentRequest,
    response: &CurrentResponse,
    options: ConnectionOptions,
    made_key: bool,
) -> bool {
    let (asked, answered) = (request.head_bytes(), response.buffer.filled());
    if !http1::is_switch_asked_for((&request.head, asked), (&response.head, answered), options) {
        return false;
    }
    let key = request.head.fields.iter().find(|field| field.name.for_bytes(asked).eq_ignore_ascii_case(KEY));
    let Some(key) = key.filter(|_| made_key) else { return true };
    // RFC 6455 §4.1: a single field with the digest of the key.
    let mut accepts = response
        .head
        .fields
        .iter()
        .filter(|field| field.name.for_bytes(answered).eq_ignore_ascii_case(ACCEPT));
    let expected = http2::accept_of(key.value.for_bytes(asked));
    accepts.next().is_some_and(|field| field.value.for_bytes(answered) == expected.as_bytes())
        && accepts.next().is_none()
}
