//! Requests that bypass the store: unsafe methods, and requests that no stored response can answer.

use ::cache::{CacheStatus, Forward, Handling, MissEnding, NotStored, OriginError};

use http1::Method;

use super::{CacheRequest, Miss, counters, fetch, hit, invalidate, live, peers};
use crate::context::client::AfterExchange;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::forward::respond;
use crate::forward::{self, Reply};
use transport::cold::cold;

/// Forwards a request and its response. If the server fails, a stored response may replace it. Called for a miss whose
/// response serves no other request.
pub(super) async fn pass(
    exchange: &mut Exchange<'_, '_>,
    ask: &CacheRequest<'_>,
    miss: Miss,
) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    ask.cache.store.note(ask.key, ask.now_ms, miss.forward);
    let is_stored_here = ask.may_store() && miss.owner.is_none();
    // Taken before the request is sent: a purge that comes meanwhile must keep the response out of the store.
    let apart = is_stored_here.then(|| ask.cache.store.apart(ask.key, ask.now_ms / 1000));
    let outcome = peers::forward(exchange, ask, miss.owner.as_ref()).await;
    let error = match &outcome {
        Ok(_) => OriginError::of_status(exchange.memory.response.head.start.status),
        // A failure of the client says nothing about the server.
        Err(failure) => (!failure.is_of_request()).then_some(OriginError::Unreachable),
    };
    if let (Some(error), Some(object)) = (error, &miss.found)
        && miss.owner.is_none()
        && ask.stands_in(object, error)
    {
        counters::stale(ctx, routed);
        if outcome.is_ok() {
            exchange.state.record.received_apart(exchange.memory.response.head.len as u64);
        }
        let status = outcome.is_ok().then_some(exchange.memory.response.head.start.status);
        let (forward, is_stored, is_collapsed) = (miss.forward, false, false);
        let report = ask.report(ctx, Handling::Forwarded { forward, status, is_stored, is_collapsed });
        return hit::stored(exchange, object, report).await;
    }
    let reply = outcome?;
    let status = exchange.memory.response.head.start.status;
    let mut outdated = ask.outdated(exchange.memory, miss.found.as_ref());
    ask.forget_unread(exchange.memory, &miss);
    if let (Method::Head, 200, Some(object), None) = (ask.asked.method, status, &miss.found, &outdated) {
        fetch::freshen((ctx, routed), exchange.memory, ask, object);
    }
    // No response to this request replaces it in the store.
    if let Some(outdated) = outdated.take_if(|_| apart.is_none() || status == 206) {
        ask.cache.store.withdraw(&outdated);
    }
    if miss.owner.is_some() {
        return peers::relay(exchange, ask, reply, miss.forward).await;
    }
    let reply = match fetch::part(exchange, ask, reply) {
        Ok(reader) => {
            let (forward, is_stored, is_collapsed) = (miss.forward, true, false);
            let report = Handling::Forwarded { forward, status: None, is_stored, is_collapsed };
            return live::coming(exchange, reader, ask.report(ctx, report)).await;
        }
        Err(reply) => reply,
    };
    let (reply, refusal) = match apart {
        Some(apart) => match fetch::settle_apart(exchange, ask, apart, reply, outdated) {
            Ok(reader) => {
                let (forward, is_stored, is_collapsed) = (miss.forward, true, false);
                let report = Handling::Forwarded { forward, status: None, is_stored, is_collapsed };
                return live::coming(exchange, reader, ask.report(ctx, report)).await;
            }
            Err(passing) => passing,
        },
        None => (reply, None),
    };
    ask.settle(status, refusal.map_or(MissEnding::Passed, MissEnding::Refused));
    relay(exchange, reply, miss.forward, refusal).await
}

/// Forwards a request with an unsafe method, and invalidates stored responses for its target if it succeeds. Called for
/// a miss with such a method.
pub(super) async fn change(
    exchange: &mut Exchange<'_, '_>,
    forward: Forward,
) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let reply = forward::forward(exchange).await?;
    // The client is answered last, so that its next request finds the old response nowhere.
    if let Some(told) = invalidate(ctx, routed, exchange.memory) {
        cold(|| told.known(ctx)).await;
    }
    relay(exchange, reply, forward, None).await
}

/// Forwards a response with the reason why it is neither from the store nor stored.
pub(super) async fn relay(
    exchange: &mut Exchange<'_, '_>,
    reply: Reply,
    forward: Forward,
    refusal: Option<NotStored>,
) -> Result<AfterExchange, Failure> {
    // After a 101 another protocol begins, which no cache describes.
    if exchange.memory.response.head.start.status != 101 {
        let handling = Handling::Forwarded { forward, status: None, is_stored: false, is_collapsed: false };
        let detail = refusal.map(|refusal| refusal.row().word);
        CacheStatus { handling, ttl_seconds: None, key: None, detail }
            .write(&mut exchange.memory.response.added);
    }
    respond::respond(exchange, reply).await
}
