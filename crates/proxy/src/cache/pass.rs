//! Requests that bypass the store: unsafe methods, and requests that no stored response can answer.

use ::cache::{CacheStatus, Ending, Forward, Handling, OriginError, Refusal};

use http1::Method;

use super::{Ask, Miss, counters, fetch, hit, invalidate, live, peers};
use crate::context::client::Next;
use crate::context::exchange::Exchange;
use crate::context::failure::{Failure, Party};
use crate::forward::respond;
use crate::forward::{self, Reply};
use transport::cold::cold;

/// Forwards a request and its response. If the server fails, a stored response may replace it.
pub(super) async fn pass(
    exchange: &mut Exchange<'_, '_>,
    ask: &Ask<'_>,
    miss: Miss,
) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    ask.cache.store.note(ask.key, ask.now_ms, miss.forward);
    let is_stored_here = ask.may_store() && miss.owner.is_none();
    let apart = is_stored_here.then(|| ask.cache.store.apart(ask.key, ask.now_ms / 1000));
    let outcome = peers::forward(exchange, ask, miss.owner.as_ref()).await;
    let error = match &outcome {
        Ok(_) => OriginError::of_status(exchange.memory.response.head.start.status),
        Err(failure) => (failure.facts().party != Party::Client).then_some(OriginError::Unreachable),
    };
    if let (Some(error), Some(object)) = (error, &miss.found)
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
    if let (Method::Head, 200, Some(object)) =
        (ask.asked.method, exchange.memory.response.head.start.status, &miss.found)
    {
        fetch::freshen(ctx, exchange.memory, ask, object);
    }
    if miss.owner.is_some() {
        return peers::relay(exchange, ask, (reply, miss.forward)).await;
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
        Some(apart) => match fetch::settle_apart(exchange, ask, (apart, reply)) {
            Ok(reader) => {
                let (forward, is_stored, is_collapsed) = (miss.forward, true, false);
                let report = Handling::Forwarded { forward, status: None, is_stored, is_collapsed };
                return live::coming(exchange, reader, ask.report(ctx, report)).await;
            }
            Err(passing) => passing,
        },
        None => (reply, None),
    };
    ask.settle(exchange.memory.response.head.start.status, refusal.map_or(Ending::Passed, Ending::Refused));
    relay(exchange, (reply, miss.forward, refusal)).await
}

/// Forwards a request with an unsafe method. If it succeeds, stored responses for its target are invalidated.
pub(super) async fn change(exchange: &mut Exchange<'_, '_>, forward: Forward) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let reply = forward::forward(exchange).await?;
    if let Some(told) = invalidate(ctx, routed, exchange.memory) {
        cold(|| told.known(ctx)).await;
    }
    relay(exchange, (reply, forward, None)).await
}

/// Forwards a response, and tells why it is neither from the store nor stored.
pub(super) async fn relay(
    exchange: &mut Exchange<'_, '_>,
    (reply, forward, refusal): (Reply, Forward, Option<Refusal>),
) -> Result<Next, Failure> {
    if exchange.memory.response.head.start.status != 101 {
        let handling = Handling::Forwarded { forward, status: None, is_stored: false, is_collapsed: false };
        let detail = refusal.map(|refusal| refusal.row().word);
        CacheStatus { handling, ttl_seconds: None, key: None, detail }
            .write(&mut exchange.memory.response.added);
    }
    respond::respond(exchange, reply).await
}
