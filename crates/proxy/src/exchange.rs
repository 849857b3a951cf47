//! The path of a request: admit, route, ask, pick, forward, respond, log.
//!
//! Every way through ends in the log. What goes wrong anywhere is a `Failure`, answered in one place.

use crate::forward;
use crate::forward::answer;
use crate::forward::policies;
use crate::forward::respond;
use crate::forward::verify;
use std::net::IpAddr;

use ::cache::is_unsafe;
use http1::{ConnectionOptions, Framing, Method, RequestHead, Target, TargetForm};

use crate::cache::{self, Looked};
use crate::context::client::Next;
use crate::context::exchange::{Admitted, Call, Exchange};
use crate::context::exchange_slot::Memory;
use crate::context::exchange_state::ExchangeState;
use crate::context::failure::Failure;
use crate::context::seen::{self, Fields};
use crate::faults::messages;
use crate::shaping::{self};
use transport::cold::cold;

/// Serves the request whose head is at the front of the lane's buffer.
pub(crate) async fn exchange(call: &Call<'_>, memory: &mut Memory) -> Next {
    let mut state = ExchangeState::new(call);
    let next = match run(call, memory, &mut state).await {
        Ok(next) => next,
        Err(failure) => cold(|| fail(call, memory, &mut state, failure)).await,
    };
    end(memory, &mut state);
    next
}

/// Answers what is no request, or not a whole one.
pub(crate) async fn refuse(call: &Call<'_>, memory: &mut Memory, failure: Failure) -> Next {
    let mut state = ExchangeState::new(call);
    let next = fail(call, memory, &mut state, failure).await;
    end(memory, &mut state);
    next
}

async fn run(call: &Call<'_>, memory: &mut Memory, state: &mut ExchangeState<'_>) -> Result<Next, Failure> {
    let request = &mut memory.request;
    let mut admitted = Admitted::new(call, &request.head);
    let admission = admit(&mut admitted, call, &request.head, request.buffer.filled(), state);
    // First of all, as whatever answers it may say what it is called.
    if admission.is_ok() && admitted.policies(call).is_some_and(|policies| policies.names_request) {
        policies::name_request(call, request);
    }
    let exchange = &mut Exchange { call, admitted: &admitted, memory, state };
    // Faults may meet a request that no route is for.
    if call.worker.faults.is_on()
        && matches!(admission, Ok(()) | Err(Failure::NoRoute))
        && let Some(next) = cold(|| messages::request(exchange)).await?
    {
        return Ok(next);
    }
    admission?;
    let request = &mut exchange.memory.request;
    if is_addressed_to_us(&admitted, &request.head, request.buffer.filled()) {
        return answer::options(exchange).await;
    }
    if cache::is_purge(call, &admitted, request) {
        return cold(|| cache::purge(exchange)).await;
    }
    if let Some(port) = call.listener.redirect_port
        && !call.snapshot.plan.routes[admitted.route].is_for_plain_http
        && !seen::is_secure(call, &request.head, request.head_bytes())
    {
        return answer::redirect(exchange, port).await;
    }
    if admitted.is_cached {
        cache::prepare(call, &admitted, request);
    }
    if let Some(policies) = admitted.policies(call) {
        if let Some(claim) = policies::ask(call, policies, &mut admitted, &memory.request, state)? {
            admitted.user = Some(cold(|| verify::verify(call, claim)).await?);
            state.knows_user(admitted.user);
        }
        let Memory { request, response } = memory;
        if let Some(answer) = policies::act(call, policies, &mut admitted, request, &mut response.out)? {
            let exchange = &mut Exchange { call, admitted: &admitted, memory, state };
            return answer::own(exchange, (answer.status, answer.body)).await;
        }
    }
    let exchange = &mut Exchange { call, admitted: &admitted, memory, state };
    if admitted.is_cached {
        return match cache::look(call, &admitted, &exchange.memory.request)? {
            Looked::Hit(hit) => cache::serve(exchange, &hit).await,
            Looked::Miss(miss) => cold(|| cache::ask(exchange, miss)).await,
        };
    }
    if let Some(delay) = &call.snapshot.plan.routes[admitted.route].delay {
        cold(|| shaping::hold_back(call, delay, exchange.memory)).await;
    }
    let reply = forward::forward(exchange).await?;
    // Another route may store what this one changes.
    if is_unsafe(admitted.method)
        && let Some(known) = cache::invalidate(call, &admitted, exchange.memory)
    {
        cold(|| cache::heir::known(call, known)).await;
    }
    if let Some(delay) = &call.snapshot.plan.routes[admitted.route].response_delay {
        cold(|| shaping::hold_back(call, delay, exchange.memory)).await;
    }
    respond::respond(exchange, reply).await
}

/// Decides whether a request may go on, and where to.
///
/// What is decided is written where it stays: as one value at the end it would be moved before it has left the processor,
/// which makes that wait.
fn admit(
    admitted: &mut Admitted,
    call: &Call<'_>,
    head: &RequestHead,
    bytes: &[u8],
    state: &mut ExchangeState<'_>,
) -> Result<(), Failure> {
    if call.worker.is_short_of_memory() {
        state.record.detours.shed = Some("memory");
        return Err(Failure::ShortOfMemory);
    }
    admitted.target = Target::of(head, bytes)?;
    // CONNECT asks for a tunnel to anywhere; TRACE would show a client what was added behind its back.
    if matches!(head.start.method, Method::Connect | Method::Trace) {
        return Err(Failure::MethodRefused);
    }
    admitted.framing = http1::request_framing(head, bytes)?;
    admitted.connection = ConnectionOptions::of(head, bytes).map_err(|_| too_long_or_unclear(head, bytes))?;
    admitted.wants_upgrade = http1::wants_upgrade(head, bytes, admitted.connection);
    admitted.client = seen::client(call, head, bytes);
    if admitted.client != call.client.address {
        state.record.named = Some(admitted.client);
    }
    let route = match call.snapshot.table.only() {
        Some(route) => route,
        None => choose(call, &admitted.target, head, bytes, admitted.client)?,
    };
    state.takes_route(route);
    let meant = &call.snapshot.plan.routes[route];
    admitted.route = route;
    admitted.upstream = meant.upstream;
    admitted.has_policies = meant.policies.is_some();
    admitted.is_cached = meant.is_cached;
    if let Framing::Length(length) = admitted.framing
        && admitted.client_limits(call).body_bytes.is_some_and(|limit| length > limit)
    {
        return Err(Failure::BodyTooLarge);
    }
    Ok(())
}

/// What is wrong with a Connection that is refused.
#[cold]
fn too_long_or_unclear(head: &RequestHead, bytes: &[u8]) -> Failure {
    if http1::is_connection_too_long(head, bytes) { Failure::HeadTooLarge } else { Failure::BadFraming }
}

/// The index of the route that the request takes.
#[inline(never)]
fn choose(
    call: &Call<'_>,
    target: &Target,
    head: &RequestHead,
    bytes: &[u8],
    client: IpAddr,
) -> Result<usize, Failure> {
    let fields = Fields::of(head, bytes);
    call.snapshot.table.choose(&seen::request(call, target, bytes, client, &fields, head))
}

/// RFC 9110 §7.6.2: OPTIONS that may make no further hop is answered here.
fn is_addressed_to_us(admitted: &Admitted, head: &RequestHead, bytes: &[u8]) -> bool {
    admitted.method == Method::Options
        && admitted.target.form != TargetForm::Authority
        && http1::max_forwards(head, bytes) == Some(0)
}

/// Answers a failure, where that is still possible.
async fn fail(call: &Call<'_>, memory: &mut Memory, state: &mut ExchangeState<'_>, failure: Failure) -> Next {
    // Who was reset for what it did has not left.
    let failure = match failure {
        Failure::ClientGone if call.client.socket.wrong().is_some_and(|wrong| wrong.is_of_stream) => {
            Failure::Http2Malformed
        }
        failure => failure,
    };
    state.failed(call, failure);
    state.record.explain(memory, failure);
    answer::failure(call, memory, failure, state).await
}

/// The one exit: what came of it is counted and logged.
fn end(memory: &mut Memory, state: &mut ExchangeState<'_>) {
    state.finish(memory);
    memory.request.end();
}
