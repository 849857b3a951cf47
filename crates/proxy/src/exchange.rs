//! The path of a request: admit, route, ask, pick, forward, respond, log.
//!
//! Every path ends in the log. Every error is a `Failure`, answered in one place.

/// Requests of other instances.
pub(crate) mod of_peer;

use crate::forward;
use crate::forward::answer;
use crate::forward::authenticate::{self, Course};
use crate::forward::challenge;
use crate::forward::mirror;
use crate::forward::policies::{self, Answer};
use crate::forward::respond;
use crate::forward::web;
use std::net::IpAddr;
use std::pin::pin;

use ::cache::is_unsafe;
use http1::{ConnectionOptions, Framing, Method, RequestHead, Target, TargetForm, host_without_port};

use crate::cache::{self, Looked};
use crate::context::client::Next;
use crate::context::exchange::{Exchange, ExchangeContext, RoutedRequest};
use crate::context::exchange_slot::{Memory, Request};
use crate::context::exchange_state::ExchangeState;
use crate::context::failure::Failure;
use crate::context::plan::Policies;
use crate::context::record;
use crate::context::seen::{self, Fields};
use crate::context::tracing;
use crate::faults::messages;
use crate::files::{self, AtOnce};
use crate::shaping::{self};
use transport::cold::cold;

/// Serves the request whose head is at the front of the exchange slot's buffer.
pub(crate) async fn exchange(ctx: &ExchangeContext<'_>, memory: &mut Memory) -> Next {
    framed(ctx, memory, async |memory, state| match run(ctx, memory, state).await {
        Ok(next) => next,
        Err(failure) => cold(|| fail(ctx, memory, state, failure)).await,
    })
    .await
}

/// Answers a request that is malformed or incomplete.
pub(crate) async fn refuse(ctx: &ExchangeContext<'_>, memory: &mut Memory, failure: Failure) -> Next {
    framed(ctx, memory, async |memory, state| fail(ctx, memory, state, failure).await).await
}

/// Does the steps of an exchange between its beginning and the one exit: what came of it is traced, counted and logged.
async fn framed(
    ctx: &ExchangeContext<'_>,
    memory: &mut Memory,
    steps: impl AsyncFnOnce(&mut Memory, &mut ExchangeState<'_>) -> Next,
) -> Next {
    let is_traced = begin_trace(ctx, memory);
    let waits = record::waits(ctx, is_traced);
    let mut state = ExchangeState::new(ctx, &waits, is_traced);
    let next = {
        let steps = pin!(steps(memory, &mut state));
        waits.watch(&ctx.worker.holding, steps).await
    };
    state.finish(memory);
    memory.request.end();
    next
}

/// Finds the place of the request in its trace, if there are traces. Returns whether its spans may be wanted.
#[inline]
fn begin_trace(ctx: &ExchangeContext<'_>, memory: &mut Memory) -> bool {
    let tracing = ctx.snapshot.plan.tracing.as_ref();
    tracing.is_some_and(|tracing| tracing::begin(ctx, tracing, &mut memory.request))
}

async fn run(
    ctx: &ExchangeContext<'_>,
    memory: &mut Memory,
    state: &mut ExchangeState<'_>,
) -> Result<Next, Failure> {
    let Memory { request, note, .. } = &mut *memory;
    let mut routed = RoutedRequest::new(ctx, &request.head);
    let admission = admit(&mut routed, ctx, &request.head, request.buffer.filled(), state);
    if admission.is_ok() {
        name_request(ctx, &routed, request);
        if ctx.snapshot.is_watched {
            state.record.noted(note.as_ref(), &routed, request);
        }
    }
    let exchange = &mut Exchange { ctx, routed: &routed, memory, state };
    if is_answered_early(ctx, &admission)
        && let Some(next) = cold(|| answer_early(exchange)).await?
    {
        return Ok(next);
    }
    admission?;
    let request = &mut exchange.memory.request;
    if is_addressed_to_us(&routed, &request.head, request.buffer.filled()) {
        return answer::options(exchange).await;
    }
    if cache::is_purge(ctx, &routed, request) {
        return cold(|| cache::purge(exchange)).await;
    }
    if let Some(port) = ctx.listener.redirect_port
        && is_redirected(ctx, &routed, request)
    {
        return answer::redirect(exchange, port).await;
    }
    if routed.is_cached {
        cache::prepare(ctx, &routed, request);
    }
    if let Some(policies) = routed.policies(ctx) {
        if policies.settings.cors.is_some() && is_preflight(&routed, &exchange.memory.request) {
            return cold(|| answer::preflight(exchange, policies)).await;
        }
        if let Some(course) = admit_client(ctx, policies, &mut routed, memory, state)?
            && let Some(next) =
                cold(|| authenticate::in_time(ctx, course, &mut routed, memory, state)).await?
        {
            return Ok(next);
        }
        if let Some(answer) = act(ctx, policies, &mut routed, memory, state)? {
            let exchange = &mut Exchange { ctx, routed: &routed, memory, state };
            return without_server(exchange, answer).await;
        }
    }
    let exchange = &mut Exchange { ctx, routed: &routed, memory, state };
    if routed.is_cached {
        return match cache::look(ctx, &routed, &exchange.memory.request)? {
            Looked::Hit(hit) => cache::serve(exchange, &hit).await,
            Looked::Miss(miss) => cold(|| cache::ask(exchange, miss)).await,
        };
    }
    if let Some(delay) = &ctx.snapshot.plan.routes[routed.route].delay {
        cold(|| shaping::hold_back(ctx, delay, exchange.memory)).await;
    }
    let reply = forward::forward(exchange).await?;
    if let Some(told) = invalidate(ctx, &routed, exchange.memory) {
        cold(|| told.known(ctx)).await;
    }
    if let Some(delay) = &ctx.snapshot.plan.routes[routed.route].response_delay {
        cold(|| shaping::hold_back(ctx, delay, exchange.memory)).await;
    }
    respond::respond(exchange, reply).await
}

/// Whether a challenge or a fault may answer a request, also one that no route is for.
fn is_answered_early(ctx: &ExchangeContext<'_>, admission: &Result<(), Failure>) -> bool {
    let is_challenged = ctx.listener.challenges.as_ref().is_some_and(|challenges| challenges.is_any());
    (ctx.worker.faults.is_on() || is_challenged) && matches!(admission, Ok(()) | Err(Failure::NoRoute))
}

/// Answers a request whatever its route says, if a challenge or a fault asks for it.
async fn answer_early(exchange: &mut Exchange<'_, '_>) -> Result<Option<Next>, Failure> {
    let ctx = exchange.ctx;
    if let Some(challenges) = &ctx.listener.challenges
        && let Some(next) = challenge::answer(exchange, challenges).await?
    {
        return Ok(Some(next));
    }
    if ctx.worker.faults.is_on()
        && let Some(answer) = messages::request(exchange).await?
    {
        return answer::injected(exchange, answer).await.map(Some);
    }
    Ok(None)
}

/// Answers a request that needs no server.
async fn without_server(exchange: &mut Exchange<'_, '_>, answer: Answer<'_>) -> Result<Next, Failure> {
    let files = exchange.routed.policies(exchange.ctx).and_then(|policies| policies.files.as_ref());
    match (answer, files) {
        (Answer::Own { status, body }, _) => answer::own(exchange, (status, body)).await,
        (Answer::File, None) => Err(Failure::NoFile),
        (Answer::File, Some(files)) => match files::serve_at_once(exchange, files) {
            AtOnce::Done(outcome) => outcome,
            AtOnce::Rest(rest) => cold(|| files::serve_rest(exchange, rest)).await,
            AtOnce::Unanswered => cold(|| files::serve(exchange, files)).await,
        },
    }
}

/// Decides whether a request may go on, and where to.
///
/// What is decided is written where it stays: as one value at the end it would be moved before it has left the processor,
/// which makes that wait.
fn admit(
    routed: &mut RoutedRequest,
    ctx: &ExchangeContext<'_>,
    head: &RequestHead,
    bytes: &[u8],
    state: &mut ExchangeState<'_>,
) -> Result<(), Failure> {
    if ctx.worker.is_short_of_memory() {
        state.record.detours.shed = Some("memory");
        return Err(Failure::ShortOfMemory);
    }
    routed.target = Target::of(head, bytes)?;
    if ctx.listener.reads_client_hello && is_misdirected(ctx, &routed.target, bytes) {
        return Err(Failure::Misdirected);
    }
    // CONNECT asks for a tunnel to anywhere; TRACE would show a client what was added behind its back.
    if matches!(head.start.method, Method::Connect | Method::Trace) {
        return Err(Failure::MethodRefused);
    }
    routed.framing = http1::request_framing(head, bytes)?;
    routed.connection = ConnectionOptions::of(head, bytes).map_err(|_| too_long_or_unclear(head, bytes))?;
    routed.wants_upgrade = http1::wants_upgrade(head, bytes, routed.connection);
    routed.client = seen::client(ctx, head, bytes);
    if routed.client != ctx.client.address {
        state.record.named = Some(routed.client);
    }
    let route = match ctx.snapshot.table.only() {
        Some(route) => route,
        None => choose(ctx, &routed.target, head, bytes, routed.client)?,
    };
    state.takes_route(route);
    let settings = &ctx.snapshot.plan.routes[route];
    routed.route = route;
    routed.upstream = settings.upstream;
    routed.has_policies = settings.policies.is_some();
    routed.is_cached = settings.is_cached;
    if let Framing::Length(length) = routed.framing
        && routed.client_limits(ctx).body_bytes.is_some_and(|limit| length > limit)
    {
        return Err(Failure::BodyTooLarge);
    }
    Ok(())
}

/// RFC 9110 §15.5.20: whether the host has another rule about client certificates than that by which the connection was
/// made. The client makes another connection for it, and is asked for its certificate there.
#[cold]
fn is_misdirected(ctx: &ExchangeContext<'_>, target: &Target, bytes: &[u8]) -> bool {
    let Some((tls, session)) = ctx.listener.tls.as_ref().zip(ctx.client.tls.as_deref()) else { return false };
    let host = host_without_port(target.authority.of(bytes)).to_ascii_lowercase();
    let host = String::from_utf8_lossy(&host);
    !session.satisfies(tls.asked_for((!host.is_empty()).then_some(&host)))
}

/// What is wrong with a Connection that is refused.
#[cold]
fn too_long_or_unclear(head: &RequestHead, bytes: &[u8]) -> Failure {
    if http1::is_connection_too_long(head, bytes) { Failure::HeadTooLarge } else { Failure::BadFraming }
}

/// The index of the route that the request takes.
#[inline(never)]
fn choose(
    ctx: &ExchangeContext<'_>,
    target: &Target,
    head: &RequestHead,
    bytes: &[u8],
    client: IpAddr,
) -> Result<usize, Failure> {
    let fields = Fields::of(head, bytes);
    ctx.snapshot.table.choose(&seen::request(ctx, target, bytes, client, &fields, head))
}

/// Invalidates what another route may have stored of the resource that the request has changed. Returns who else was told.
#[inline]
fn invalidate(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    memory: &Memory,
) -> Option<cache::invalidated::Told> {
    if is_unsafe(routed.method) { cache::invalidate(ctx, routed, memory) } else { None }
}

/// Gives the request its ID, if the route uses it. First of all, as whatever answers it may say what it is called.
#[inline]
fn name_request(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, request: &mut Request) {
    if routed.policies(ctx).is_some_and(|policies| policies.names_request) {
        policies::name_request(ctx, request);
    }
}

/// Whether a request to a listener that redirects is redirected to https.
fn is_redirected(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, request: &Request) -> bool {
    !ctx.snapshot.plan.routes[routed.route].is_for_plain_http
        && !seen::is_secure(ctx, &request.head, request.head_bytes())
}

/// Checks whether the client may send the request, and who it is. `Some` if that takes a wait, or an answer.
fn admit_client<'a>(
    ctx: &ExchangeContext<'_>,
    policies: &'a Policies,
    routed: &mut RoutedRequest,
    memory: &mut Memory,
    state: &mut ExchangeState<'_>,
) -> Result<Option<Course<'a>>, Failure> {
    policies::permit(ctx, policies, routed, &memory.request, state)?;
    let Some(authentication) = &policies.authentication else { return Ok(None) };
    Ok(authenticate::at_once(ctx, authentication, routed, memory, state).err())
}

/// Whether a browser asks whether it may send a request to another origin.
fn is_preflight(routed: &RoutedRequest, request: &Request) -> bool {
    routed.method == Method::Options
        && route::Cors::is_preflight(&Fields::of(&request.head, request.head_bytes()))
}

/// Counts the request of a user, and decides where it goes. A response without a server is begun; a request for one is copied, if the route has a
/// mirror.
#[inline]
fn act<'a>(
    ctx: &ExchangeContext<'a>,
    policies: &'a Policies,
    routed: &mut RoutedRequest,
    Memory { request, response, .. }: &mut Memory,
    state: &mut ExchangeState<'_>,
) -> Result<Option<Answer<'a>>, Failure> {
    if policies.limits_users {
        policies::count(ctx, policies, routed, request, state, true)?;
    }
    if policies.settings.options.grpc_web {
        web::translate(ctx, routed, request)?;
    }
    let answer = policies::act(ctx, policies, routed, request, &mut response.out)?;
    if let (None, Some(mirror)) = (&answer, &policies.mirror) {
        mirror::mirror(ctx, mirror, routed, request);
    }
    Ok(answer)
}

/// RFC 9110 §7.6.2: OPTIONS that may make no further hop is answered here.
fn is_addressed_to_us(routed: &RoutedRequest, head: &RequestHead, bytes: &[u8]) -> bool {
    routed.method == Method::Options
        && routed.target.form != TargetForm::Authority
        && http1::max_forwards(head, bytes) == Some(0)
}

/// Answers a failure, where that is still possible.
async fn fail(
    ctx: &ExchangeContext<'_>,
    memory: &mut Memory,
    state: &mut ExchangeState<'_>,
    failure: Failure,
) -> Next {
    // Who was reset for what it did has not left.
    let failure = match failure {
        Failure::ClientGone if ctx.client.socket.wrong().is_some_and(|wrong| wrong.is_of_stream) => {
            Failure::Http2Malformed
        }
        failure => failure,
    };
    state.failed(ctx, failure);
    state.record.explain(memory, failure);
    answer::failure(ctx, memory, failure, state).await
}
