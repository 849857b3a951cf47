//! The path of a request: admit, route, ask, pick, forward, respond, log.
//!
//! Every exchange ends in the log. Every error is a `Failure`, answered in one place.

/// Requests from other instances.
pub(crate) mod of_peer;

use crate::answer;
use crate::answer::challenge;
use crate::forward;
use crate::forward::respond;
use crate::forward::script;
use crate::forward::tags;
use crate::forward::web;
use crate::gate::authenticate::{self, AuthCourse};
use crate::gate::concurrency::{self, WaitingRequest};
use crate::gate::{self, LocalResponse};
use crate::subrequest::mirror;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Instant;

use ::cache::is_unsafe;
use fastcgi::ScriptForm;
use http1::{
    BodyFraming, ConnectionOptions, Method, RequestHead, RequestTarget, TargetForm, host_without_port,
};

use crate::cache::{self, Looked};
use crate::context::client::AfterExchange;
use crate::context::exchange_slot::{CurrentRequest, SlotMemory};
use crate::context::later;
use crate::context::plan::{PlanRoute, RoutePolicies};
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::context::seen::{self, RequestFields, SeenConditions};
use crate::exchange::{Exchange, ExchangeState, FileOrder, SentProgress};
use crate::failure::Failure;
use crate::files::{self, AtOnce};
use crate::outgoing::delay;
use crate::outgoing::faults;
use crate::record;
use crate::record::tracing;
use transport::cold::cold;
use transport::deadline::{Deadline, Ticks};

/// Serves the request whose head is at the front of the exchange slot's buffer. Called once per request, after its head
/// was parsed; returns what happens to the connection.
pub(crate) async fn serve(ctx: &ExchangeContext<'_>, memory: &mut SlotMemory) -> AfterExchange {
    framed(ctx, memory, async |memory, state| {
        let next = match run(ctx, memory, state).await {
            Ok(next) => next,
            Err(failure) => cold(|| fail(ctx, memory, state, failure)).await,
        };
        match next {
            // Only HTTP/3 clients limit heads, and nothing of this one has left.
            AfterExchange::Drop if ctx.client.socket.is_head_refused() => {
                cold(|| replace_head(ctx, memory, state)).await
            }
            next => next,
        }
    })
    .await
}

/// Answers a request that is malformed or incomplete. Called in place of `serve` when no head could be parsed.
pub(crate) async fn refuse(
    ctx: &ExchangeContext<'_>,
    memory: &mut SlotMemory,
    failure: Failure,
) -> AfterExchange {
    framed(ctx, memory, async |memory, state| fail(ctx, memory, state, failure).await).await
}

/// Runs the steps of an exchange, from its start to its single exit, where it is traced, counted and logged. Called by
/// `serve` and `refuse`.
async fn framed(
    ctx: &ExchangeContext<'_>,
    memory: &mut SlotMemory,
    steps: impl AsyncFnOnce(&mut SlotMemory, &mut ExchangeState<'_>) -> AfterExchange,
) -> AfterExchange {
    ctx.values.clear();
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

/// Assigns the request to a trace, if tracing is configured. Returns whether its spans may be wanted.
#[inline]
fn begin_trace(ctx: &ExchangeContext<'_>, memory: &mut SlotMemory) -> bool {
    let tracing = ctx.snapshot.plan.tracing.as_ref();
    tracing.is_some_and(|tracing| tracing::begin(ctx, tracing, &mut memory.request))
}

/// Runs a request from admission to its response. A failure that it returns is answered by `fail`.
async fn run(
    ctx: &ExchangeContext<'_>,
    memory: &mut SlotMemory,
    state: &mut ExchangeState<'_>,
) -> Result<AfterExchange, Failure> {
    let request = &memory.request;
    let mut routed = RoutedRequest::new(ctx, &request.head);
    let admission = admit(&mut routed, ctx, &request.head, request.buffer.filled(), state);
    if admission.is_ok() {
        announce(ctx, &routed, memory, state);
    }
    let deadline = routed.ticks(ctx).request.map(|limit| begun(ctx, limit));
    let outcome = {
        let steps = pin!(take_steps(ctx, &mut routed, memory, state, admission));
        in_time(ctx, deadline.as_ref(), steps).await
    };
    match (&outcome, state.ordered.take()) {
        (Err(Failure::NoFile), Some(order)) => {
            let exchange = &mut Exchange { ctx, routed: &mut routed, memory, state };
            cold(|| serve_ordered(exchange, order, deadline)).await
        }
        _ => outcome,
    }
}

/// Sends the file that the server of a request has named, within the time that the request has left.
async fn serve_ordered(
    exchange: &mut Exchange<'_, '_>,
    order: Box<FileOrder>,
    deadline: Option<Deadline>,
) -> Result<AfterExchange, Failure> {
    let ctx = exchange.ctx;
    let steps = pin!(files::serve_ordered(exchange, order));
    in_time(ctx, deadline.as_ref(), steps).await
}

/// Runs the steps of a request until its deadline, if it has one, and drops them then. They are polled once more first:
/// a step that waits for a server reports that this server has not answered.
#[inline]
async fn in_time(
    ctx: &ExchangeContext<'_>,
    deadline: Option<&Deadline>,
    mut steps: Pin<&mut impl Future<Output = Result<AfterExchange, Failure>>>,
) -> Result<AfterExchange, Failure> {
    poll_fn(|context| match (steps.as_mut().poll(context), deadline) {
        (Poll::Pending, Some(deadline)) if !ctx.client.is_tunnel.get() => {
            deadline.poll(context).map(|()| last_poll(ctx, steps.as_mut(), context))
        }
        (polled, _) => polled,
    })
    .await
}

/// Polls the steps of a request whose time is over.
#[cold]
fn last_poll(
    ctx: &ExchangeContext<'_>,
    steps: Pin<&mut impl Future<Output = Result<AfterExchange, Failure>>>,
    context: &mut Context<'_>,
) -> Result<AfterExchange, Failure> {
    ctx.client.is_overdue.set(true);
    let polled = steps.poll(context);
    ctx.client.is_overdue.set(false);
    match polled {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => Err(Failure::RequestTimeout),
    }
}

/// The deadline of a request that begins now.
#[cold]
fn begun(ctx: &ExchangeContext<'_>, limit: Ticks) -> Deadline {
    let deadline = ctx.worker.deadlines.deadline();
    deadline.set(limit);
    deadline
}

/// Takes the steps of a request, if it is admitted. Challenges and faults may answer other requests, too.
async fn take_steps(
    ctx: &ExchangeContext<'_>,
    routed: &mut RoutedRequest,
    memory: &mut SlotMemory,
    state: &mut ExchangeState<'_>,
    admission: Result<(), Failure>,
) -> Result<AfterExchange, Failure> {
    let exchange = &mut Exchange { ctx, routed, memory, state };
    if is_answered_early(ctx, &admission)
        && let Some(next) = cold(|| answer_early(exchange)).await?
    {
        return Ok(next);
    }
    admission?;
    let request = &mut exchange.memory.request;
    // RFC 9110 §7.6.2: the client asks this proxy, so no route and no policy applies.
    if is_addressed_to_us(routed, &request.head, request.buffer.filled()) {
        return answer::options(exchange).await;
    }
    // Purges have a list of permitted networks for themselves, so the route's policies do not apply.
    if cache::is_purge(ctx, routed, request) {
        return cold(|| cache::purge(exchange)).await;
    }
    if let Some(port) = redirect_port(ctx, routed, request) {
        return answer::redirect(exchange, port).await;
    }
    cache::prepare(ctx, routed, request);
    if let Some(policies) = routed.policies(ctx) {
        // A preflight has no password, so it is answered before authentication. Networks still apply.
        if policies.settings.cors.is_some() && is_preflight(routed, &exchange.memory.request) {
            gate::admit_network(ctx, policies, routed, &exchange.memory.request, exchange.state)?;
            return cold(|| answer::preflight(exchange)).await;
        }
        if let Some(course) = admit_client(ctx, policies, routed, memory, state)?
            && let Some(next) = cold(|| authenticate::in_time(ctx, course, routed, memory, state)).await?
        {
            return Ok(next);
        }
        if let Some(waiting) = count(ctx, policies, routed, memory, state)? {
            cold(|| concurrency::in_time(ctx, policies, routed, memory, state, waiting)).await?;
        }
        if let Some(answer) = act(ctx, policies, routed, memory)?
            && let Some(next) =
                without_server(&mut Exchange { ctx, routed, memory, state }, policies, answer).await?
        {
            return Ok(next);
        }
    }
    let exchange = &mut Exchange { ctx, routed, memory, state };
    // Hits come before everything that slows a request down.
    if routed.is_cached {
        return through_cache(exchange).await;
    }
    if script::is_wanted(ctx, routed)
        && let Some(next) = find_script(exchange).await?
    {
        return Ok(next);
    }
    let settings = &ctx.snapshot.plan.routes[routed.route];
    let conditions = if settings.prepares_requests { prepare(exchange, settings).await } else { None };
    let reply = match conditions {
        Some(conditions) => cold(|| tags::forward(exchange, conditions)).await?,
        None if settings.falls_back => cold(|| forward::forward(exchange)).await?,
        None => forward::to_upstream(exchange).await?,
    };
    // RFC 9111 §4.4: other routes may have stored what this request has changed. The client is answered after that.
    if let Some(told) = invalidate(ctx, routed, exchange.memory) {
        cold(|| told.known(ctx)).await;
    }
    if let Some(delay) = &settings.response_delay {
        cold(|| delay::hold_back(ctx, delay, exchange.memory)).await;
    }
    respond::respond(exchange, reply).await
}

/// Answers a request of a route with a cache.
#[inline]
async fn through_cache(exchange: &mut Exchange<'_, '_>) -> Result<AfterExchange, Failure> {
    match cache::look(exchange.ctx, exchange.routed, &exchange.memory.request)? {
        Looked::Hit(hit) => cache::serve(exchange, &hit).await,
        Looked::Miss(miss) => {
            if script::is_wanted(exchange.ctx, exchange.routed)
                && let Some(next) = find_script(exchange).await?
            {
                return Ok(next);
            }
            cold(|| cache::ask(exchange, miss)).await
        }
    }
}

/// Finds the script of a request to an application behind FastCGI. Redirects the client if the path names the directory
/// of a script without the slash, which relative links need.
#[inline]
async fn find_script(exchange: &mut Exchange<'_, '_>) -> Result<Option<AfterExchange>, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let form = script::find(ctx, routed, &mut exchange.memory.request).await?;
    if form == ScriptForm::DirectoryWithoutSlash && files::lacks_slash(routed, &exchange.memory.request) {
        return cold(|| files::redirect(exchange)).await.map(Some);
    }
    Ok(None)
}

/// Whether an ACME challenge or a fault may answer the request, even if no route matches. Called after admission.
fn is_answered_early(ctx: &ExchangeContext<'_>, admission: &Result<(), Failure>) -> bool {
    let is_challenged = ctx.listener.challenges.as_ref().is_some_and(|challenges| challenges.is_any());
    (ctx.worker.faults.is_on() || is_challenged) && matches!(admission, Ok(()) | Err(Failure::NoRoute))
}

/// Answers a challenge under way, or injects a fault, before any policy of the route. Returns `None` if the request
/// goes on.
async fn answer_early(exchange: &mut Exchange<'_, '_>) -> Result<Option<AfterExchange>, Failure> {
    let ctx = exchange.ctx;
    if let Some(challenges) = &ctx.listener.challenges
        && let Some(next) = challenge::answer(exchange, challenges).await?
    {
        return Ok(Some(next));
    }
    if ctx.worker.faults.is_on()
        && let Some(answer) = faults::request(exchange).await?
    {
        return answer::injected(exchange, answer).await.map(Some);
    }
    Ok(None)
}

/// Answers a request with a configured response or a file. Called when the route's action needs no server. Returns
/// `None` if there is no file and the route then asks a server.
async fn without_server(
    exchange: &mut Exchange<'_, '_>,
    policies: &RoutePolicies,
    answer: LocalResponse<'_>,
) -> Result<Option<AfterExchange>, Failure> {
    let outcome = match (answer, policies.files.as_ref()) {
        (LocalResponse::Own { status, body }, _) => answer::own(exchange, status, body).await.map(Some),
        (LocalResponse::Filled { status }, _) => {
            // Taken out, because the exchange is borrowed while its bytes are sent.
            let body = std::mem::take(&mut exchange.memory.request.texts.body);
            let outcome = answer::own(exchange, status, &body).await;
            exchange.memory.request.texts.body = body;
            outcome.map(Some)
        }
        (LocalResponse::File, None) => Err(Failure::NoFile),
        (LocalResponse::File, Some(files)) => match files::serve_at_once(exchange, files) {
            AtOnce::Done(outcome) => outcome.map(Some),
            AtOnce::Rest(rest) => cold(|| files::serve_rest(exchange, rest)).await.map(Some),
            AtOnce::Absent => Ok(None),
            AtOnce::Unanswered => cold(|| files::serve(exchange, files)).await,
        },
    };
    if let Ok(None) = &outcome {
        let Exchange { ctx, routed, memory, .. } = exchange;
        routed.upstream.set(ctx.snapshot.plan.routes[routed.route].upstream);
        if let Some(rewrite) = policies.else_path() {
            gate::take_else_path(ctx, policies, rewrite, routed, &mut memory.request)?;
        }
        copy(ctx, policies, routed, &mut memory.request);
    }
    outcome
}

/// Parses and checks a request, and chooses its route. The first step of every request.
///
/// Written field by field: moving a whole struct would read back bytes that are still in the store buffer, and stall.
fn admit(
    routed: &mut RoutedRequest,
    ctx: &ExchangeContext<'_>,
    head: &RequestHead,
    bytes: &[u8],
    state: &mut ExchangeState<'_>,
) -> Result<(), Failure> {
    // Rejected before anything is parsed, because shedding must cost little.
    if ctx.worker.is_short_of_memory() {
        state.record.detours.shed = Some("memory");
        return Err(Failure::ShortOfMemory);
    }
    routed.target = RequestTarget::from_head(head, bytes)?;
    if ctx.listener.reads_client_hello && is_misdirected(ctx, &routed.target, bytes) {
        return Err(Failure::Misdirected);
    }
    // CONNECT would open a tunnel to any host; TRACE would show a client the fields that proxies add.
    if matches!(head.start.method, Method::Connect | Method::Trace) {
        return Err(Failure::MethodRefused);
    }
    routed.framing = http1::request_framing(head, bytes)?;
    routed.connection =
        ConnectionOptions::from_head(head, bytes).map_err(|_| too_long_or_unclear(head, bytes))?;
    routed.wants_upgrade = http1::wants_upgrade(head, bytes, routed.connection);
    routed.client = seen::client(ctx, head, bytes);
    if routed.client != ctx.client.address {
        state.record.named = Some(routed.client);
    }
    let route = match ctx.snapshot.table.only() {
        Some(route) => route,
        None => choose(ctx, routed, head, bytes)?,
    };
    state.takes_route(route);
    let settings = &ctx.snapshot.plan.routes[route];
    routed.route = route;
    routed.upstream.set(settings.upstream);
    routed.has_policies = settings.policies.is_some();
    routed.is_cached =
        settings.is_cached && seen::holds(ctx, routed, head, bytes, settings.cache_when.as_deref());
    // A known length is rejected before a byte of the body is read.
    if let BodyFraming::Length(length) = routed.framing
        && routed.client_limits(ctx).body_bytes.is_some_and(|limit| length > limit)
    {
        return Err(Failure::BodyTooLarge);
    }
    Ok(())
}

/// Whether the host requires another rule for client certificates than the connection was made with (RFC 9110
/// §15.5.20). The client then makes another connection for it, and is asked for its certificate there.
#[cold]
fn is_misdirected(ctx: &ExchangeContext<'_>, target: &RequestTarget, bytes: &[u8]) -> bool {
    let Some((tls, session)) = ctx.listener.tls.as_ref().zip(ctx.client.tls.as_deref()) else { return false };
    // RFC 9110 §4.2.3: host names are case-insensitive. Rules have them in lower case.
    let host = host_without_port(target.authority.for_bytes(bytes)).to_ascii_lowercase();
    let host = String::from_utf8_lossy(&host);
    !session.satisfies(tls.asked_for((!host.is_empty()).then_some(&host)))
}

/// Classifies a Connection field that was rejected: too long, or ambiguous.
#[cold]
fn too_long_or_unclear(head: &RequestHead, bytes: &[u8]) -> Failure {
    if http1::is_connection_too_long(head, bytes) { Failure::HeadTooLarge } else { Failure::BadFraming }
}

/// Chooses the route by the route table. Called during admission if there are several routes.
#[inline(never)]
fn choose(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    head: &RequestHead,
    bytes: &[u8],
) -> Result<usize, Failure> {
    let fields = RequestFields::new(head, bytes);
    let conditions = &SeenConditions::new(ctx, routed, head, bytes);
    let request = seen::request(ctx, &routed.target, bytes, routed.client, &fields, head);
    ctx.snapshot.table.choose(&route::RequestParts { conditions, ..request })
}

/// Invalidates responses that other routes may have stored for a resource, after an unsafe request has changed it.
/// Returns the instances to be notified.
#[inline]
fn invalidate(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    memory: &SlotMemory,
) -> Option<cache::invalidated::InvalidationWait> {
    if is_unsafe(routed.method) { cache::invalidate(ctx, routed, memory) } else { None }
}

/// Delays a request as its route says, before it goes to the upstream. Returns rewritten conditions if the client's
/// have entity tags that the server does not know.
async fn prepare(exchange: &mut Exchange<'_, '_>, settings: &PlanRoute) -> Option<Vec<u8>> {
    let Exchange { ctx, routed, .. } = *exchange;
    if let Some(delay) = &settings.delay {
        cold(|| delay::hold_back(ctx, delay, exchange.memory)).await;
    }
    tags::conditions(ctx, routed, &exchange.memory.request)
}

/// Gives the request its ID, and notes its time, if the route uses them. Called first, because any response may contain
/// the ID.
#[inline]
fn name_request(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, request: &mut CurrentRequest) {
    if let Some(policies) = routed.policies(ctx) {
        if policies.names_request {
            gate::name_request(ctx, request);
        }
        if policies.asks_time {
            request.texts.began = Some(Instant::now());
        }
    }
}

/// Names an admitted request, and notes it for operators who watch live requests.
#[inline]
fn announce(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    SlotMemory { request, note, .. }: &mut SlotMemory,
    state: &mut ExchangeState<'_>,
) {
    name_request(ctx, routed, request);
    if ctx.snapshot.is_watched {
        state.record.noted(note.as_ref(), routed, request);
    }
}

/// Returns the port of the https URL that a plain HTTP request is redirected to, if its listener redirects.
#[inline]
fn redirect_port(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, request: &CurrentRequest) -> Option<u16> {
    let port = ctx.listener.redirect_port?;
    let is_served = ctx.snapshot.plan.routes[routed.route].is_for_plain_http
        || seen::is_secure(ctx, &request.head, request.head_bytes());
    (!is_served).then_some(port)
}

/// Checks network, rates and identity of the client. Called for routes with policies. Returns `Some` if the decision
/// needs a wait, or a response.
fn admit_client<'a>(
    ctx: &ExchangeContext<'_>,
    policies: &'a RoutePolicies,
    routed: &mut RoutedRequest,
    memory: &mut SlotMemory,
    state: &mut ExchangeState<'_>,
) -> Result<Option<AuthCourse<'a>>, Failure> {
    gate::admit(ctx, policies, routed, &mut memory.request, state)?;
    let Some(authentication) = &policies.authentication else { return Ok(None) };
    Ok(authenticate::at_once(ctx, authentication, routed, memory, state).err())
}

/// Whether the request is a CORS preflight of a browser.
fn is_preflight(routed: &RoutedRequest, request: &CurrentRequest) -> bool {
    routed.method == Method::Options
        && route::Cors::is_preflight(&RequestFields::new(&request.head, request.head_bytes()))
}

/// Counts the request of a user, and requests under way. Called once the client is authenticated. Returns `Some` if the
/// request waits for others.
#[inline]
fn count(
    ctx: &ExchangeContext<'_>,
    policies: &RoutePolicies,
    routed: &RoutedRequest,
    memory: &mut SlotMemory,
    state: &mut ExchangeState<'_>,
) -> Result<Option<WaitingRequest>, Failure> {
    if policies.limits_users {
        gate::count(ctx, policies, routed, &mut memory.request, state, true)?;
    }
    if policies.concurrency.is_empty() {
        return Ok(None);
    }
    concurrency::enter(ctx, policies, routed, &mut memory.request, state, 0)
}

/// Runs the route's action. Called once the client is admitted. Begins a response without a server; copies a request to
/// the mirror, if the route has one.
#[inline]
fn act<'a>(
    ctx: &ExchangeContext<'a>,
    policies: &'a RoutePolicies,
    routed: &mut RoutedRequest,
    SlotMemory { request, response, .. }: &mut SlotMemory,
) -> Result<Option<LocalResponse<'a>>, Failure> {
    // A condition on the user of the cache: `admit` knows none.
    if routed.is_cached {
        routed.is_cached = later::holds(ctx, routed, request, policies.cache_when.as_deref());
    }
    // Translated first, so that splits, copies, retries and edits see a gRPC call.
    if policies.settings.options.grpc_web {
        web::translate(ctx, routed, request)?;
    }
    let answer = gate::act(ctx, policies, routed, request, response)?;
    // After the action, so that the copy has the rewritten path.
    if answer.is_none() {
        copy(ctx, policies, routed, request);
    }
    Ok(answer)
}

/// Copies a request that a server is asked for to the mirror, if the route has one.
#[inline]
fn copy(
    ctx: &ExchangeContext<'_>,
    policies: &RoutePolicies,
    routed: &RoutedRequest,
    request: &mut CurrentRequest,
) {
    if let Some(mirror) = &policies.mirror {
        mirror::mirror(ctx, mirror, routed, request);
    }
}

/// Whether OPTIONS may not be forwarded (RFC 9110 §7.6.2, Max-Forwards: 0), so that the proxy answers it.
fn is_addressed_to_us(routed: &RoutedRequest, head: &RequestHead, bytes: &[u8]) -> bool {
    routed.method == Method::Options
        && routed.target.form != TargetForm::Authority
        && http1::max_forwards(head, bytes) == Some(0)
}

/// Replaces a response whose head is larger than the client accepts (RFC 9114 §4.2.2).
async fn replace_head(
    ctx: &ExchangeContext<'_>,
    memory: &mut SlotMemory,
    state: &mut ExchangeState<'_>,
) -> AfterExchange {
    state.answers_nothing();
    let next = fail(ctx, memory, state, Failure::ClientHeadLimit).await;
    if ctx.client.socket.is_head_refused() {
        // Even this head is too large.
        state.answers_nothing();
    }
    next
}

/// Answers a failure, if the response has not begun. The single place where failures become responses.
async fn fail(
    ctx: &ExchangeContext<'_>,
    memory: &mut SlotMemory,
    state: &mut ExchangeState<'_>,
    failure: Failure,
) -> AfterExchange {
    if failure == Failure::RequestTimeout {
        // A delay that was dropped has not done so.
        memory.unpark(ctx.worker);
    }
    if failure == Failure::RequestTimeout
        && state.record.is_answered
        && matches!(state.sent, SentProgress::Head { .. })
    {
        // The dropped steps have not noted how much of the response was sent.
        state.body_bytes_sent = memory.response.body.passed_on();
    }
    state.failed(ctx, failure);
    // Explained before the answer, which may consume the rest of the message.
    state.record.explain(memory, failure);
    answer::failure(ctx, memory, failure, state).await
}
