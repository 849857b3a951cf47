//! Answers to certificate authorities that ask for a file (HTTP-01), before any route, policy or redirect.

use ::tls::Challenges;
use http1::Method;

use crate::context::client::Next;
use crate::context::exchange::Exchange;
use crate::context::failure::Failure;
use crate::forward::answer;

/// RFC 8555 §8.3: where authorities ask for the key authorization of a token.
const FOLDER: &[u8] = b"/.well-known/acme-challenge/";

/// Answers the request if it asks for a challenge that is under way. Others go on: another client of an authority may run
/// on a server behind.
pub(crate) async fn answer(
    exchange: &mut Exchange<'_, '_>,
    challenges: &Challenges,
) -> Result<Option<Next>, Failure> {
    let request = &exchange.memory.request;
    let path = exchange.routed.target.path_and_query.of(request.buffer.filled());
    let token = path.strip_prefix(FOLDER).and_then(|token| std::str::from_utf8(token).ok());
    let is_read = matches!(exchange.routed.method, Method::Get | Method::Head);
    let Some(body) = token.filter(|_| is_read).and_then(|token| challenges.file(token)) else {
        return Ok(None);
    };
    let out = &mut exchange.memory.response.out;
    answer::begin(out, 200);
    answer::push_content(out, 200, "application/octet-stream", body.as_bytes());
    answer::own(exchange, (200, body.as_bytes())).await.map(Some)
}
