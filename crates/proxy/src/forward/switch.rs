//! Checks whether a server that switches protocols does so as its request asked (RFC 9110 §7.8, RFC 6455 §4.1).

use http1::ConnectionOptions;

use crate::context::exchange_slot::{Request, Response};

const KEY: &[u8] = b"sec-websocket-key";
const ACCEPT: &[u8] = b"sec-websocket-accept";

/// Whether the 101 response is the switch that the request asked for. `made_key` says whether the proxy created the key
/// of the WebSocket handshake (over HTTP/2, RFC 8441 §5): then only the proxy can check the answer to it.
#[cold]
pub(crate) fn is_asked_for(
    request: &Request,
    response: &Response,
    options: ConnectionOptions,
    made_key: bool,
) -> bool {
    let (asked, answered) = (request.head_bytes(), response.buffer.filled());
    if !http1::is_switch_asked_for((&request.head, asked), (&response.head, answered), options) {
        return false;
    }
    let key = request.head.fields.iter().find(|field| field.name.of(asked).eq_ignore_ascii_case(KEY));
    let Some(key) = key.filter(|_| made_key) else { return true };
    // RFC 6455 §4.1: the one field whose value is the digest of the key.
    let mut accepts =
        response.head.fields.iter().filter(|field| field.name.of(answered).eq_ignore_ascii_case(ACCEPT));
    let expected = http2::accept_of(key.value.of(asked));
    accepts.next().is_some_and(|field| field.value.of(answered) == expected.as_bytes())
        && accepts.next().is_none()
}
