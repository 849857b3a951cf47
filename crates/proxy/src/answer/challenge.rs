//! Answers HTTP-01 challenges of certificate authorities, before any route, policy or redirect.

use ::tls::Challenges;
use http1::Method;

use crate::answer;
use crate::context::client::AfterExchange;
use crate::exchange::Exchange;
use crate::failure::Failure;

/// The folder where authorities look for the key authorization of a token (RFC 8555 §8.3).
const FOLDER: &[u8] = b"/.well-known/acme-challenge/";

/// Answers the request if it is for a challenge that is under way. Other tokens go on, because a server behind may run
/// its own ACME client.
pub(crate) async fn answer(
    exchange: &mut Exchange<'_, '_>,
    challenges: &Challenges,
) -> Result<Option<AfterExchange>, Failure> {
    let request = &exchange.memory.request;
    let path = exchange.routed.target.path_and_query.for_bytes(request.buffer.filled());
    let token = path.strip_prefix(FOLDER).and_then(|token| std::str::from_utf8(token).ok());
    // RFC 8555 §8.3: authorities ask with GET. Any other method is for the route.
    let is_read = matches!(exchange.routed.method, Method::Get | Method::Head);
    let Some(body) = token.filter(|_| is_read).and_then(|token| challenges.file(token)) else {
        return Ok(None);
    };
    let out = &mut exchange.memory.response.out;
    answer::begin(out, 200);
    answer::push_content(out, 200, "application/octet-stream", body.as_bytes());
    answer::own(exchange, 200, body.as_bytes()).await.map(Some)
}
