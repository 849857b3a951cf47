//! Requests that go to a server by themselves: what changes things there, and what the store has no answer for.

use ::cache::{
    CacheStatus, Ending, Force, Forward, Handling, Key, OriginError, Refusal, also_invalid, invalidates,
};

use wire::Method;

use super::{Ask, Miss, Way, fetch, hit, live, tally, uri};
use crate::client::Next;
use crate::exchange::{Admitted, Call};
use crate::failure::{Failure, Party};
use crate::forward::{self, Reply};
use crate::lane::Memory;
use crate::record::Record;
use crate::respond;

/// Forwards a request, and passes the response on; what is stored stands in for a server that has failed.
pub(super) async fn pass(
    call: &Call<'_>,
    admitted: &Admitted,
    memory: &mut Memory,
    ask: &Ask<'_>,
    miss: Miss,
    record: &mut Record<'_>,
) -> Result<Next, Failure> {
    ask.cache.store.note(ask.key, ask.now_ms, miss.forward);
    let outcome = forward::forward(call, admitted, memory, record).await;
    let error = match &outcome {
        Ok(_) => OriginError::of_status(memory.response.head.start.status),
        Err(failure) => (failure.facts().party != Party::Client).then_some(OriginError::Unreachable),
    };
    if let (Some(error), Some(object)) = (error, &miss.found)
        && ask.stands_in(object, error)
    {
        tally::stale(call, admitted);
        if outcome.is_ok() {
            record.received_apart(memory.response.head.len as u64);
        }
        let status = outcome.is_ok().then_some(memory.response.head.start.status);
        let (forward, is_stored, is_collapsed) = (miss.forward, false, false);
        let told = ask.told(call, Handling::Forwarded { forward, status, is_stored, is_collapsed });
        return hit::stored(call, admitted, memory, object, told, record).await;
    }
    let reply = outcome?;
    if let (Method::Head, 200, Some(object)) =
        (ask.asked.method, memory.response.head.start.status, &miss.found)
    {
        fetch::freshen(call, memory, ask, object);
    }
    let reply = match fetch::part(call, admitted, memory, ask, reply, record) {
        Ok(reader) => {
            let (forward, is_stored, is_collapsed) = (miss.forward, true, false);
            let told = Handling::Forwarded { forward, status: None, is_stored, is_collapsed };
            return live::coming(call, admitted, memory, reader, ask.told(call, told), record).await;
        }
        Err(reply) => reply,
    };
    let refusal = match miss.way {
        // It was refused before: what can be stored by now is fetched for all again.
        Way::Fetch => {
            let opening = fetch::opening(call, admitted, ask, &memory.request, &memory.response, &reply);
            opening.map_err(Some).map_or_else(
                |refusal| refusal,
                |_| {
                    ask.cache.store.forget_pass(ask.key);
                    None
                },
            )
        }
        Way::Pass | Way::Change => None,
    };
    ask.settle(memory.response.head.start.status, refusal.map_or(Ending::Passed, Ending::Refused));
    relay(call, admitted, memory, (reply, miss.forward, refusal), record).await
}

/// Forwards what changes things: what is stored of its target is invalid then, if it succeeds.
pub(super) async fn change(
    call: &Call<'_>,
    admitted: &Admitted,
    memory: &mut Memory,
    ask: &Ask<'_>,
    forward: Forward,
    record: &mut Record<'_>,
) -> Result<Next, Failure> {
    let reply = forward::forward(call, admitted, memory, record).await?;
    invalidate(call, admitted, memory, ask);
    relay(call, admitted, memory, (reply, forward, None), record).await
}

/// RFC 9111 §4.4: what is stored of the target, and of what the response names of the same origin.
fn invalidate(call: &Call<'_>, admitted: &Admitted, memory: &Memory, ask: &Ask<'_>) {
    let Memory { request, response } = memory;
    if !invalidates(&ask.asked, response.head.start.status) {
        return;
    }
    let store = &ask.cache.store;
    store.purge_key(ask.key, Force::Hard);
    let bytes = request.head_bytes();
    let target = uri(call, admitted, request);
    for path_and_query in also_invalid(&response.head, response.buffer.filled(), &target) {
        let named = ::cache::Uri::new(target.is_https, target.authority, &path_and_query);
        store
            .purge_key(Key::of(ask.cache.secret, &named, &ask.policy.key, &request.head, bytes), Force::Hard);
    }
}

/// Passes a response on, and says why it is not from the store, nor in it.
pub(super) async fn relay(
    call: &Call<'_>,
    admitted: &Admitted,
    memory: &mut Memory,
    (reply, forward, refusal): (Reply, Forward, Option<Refusal>),
    record: &mut Record<'_>,
) -> Result<Next, Failure> {
    if memory.response.head.start.status != 101 {
        let handling = Handling::Forwarded { forward, status: None, is_stored: false, is_collapsed: false };
        let detail = refusal.map(|refusal| refusal.row().word);
        CacheStatus { handling, ttl_seconds: None, key: None, detail }.write(&mut memory.response.added);
    }
    respond::respond(call, admitted, memory, reply, record).await
}
