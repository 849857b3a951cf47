//! Sends a server's response to the client, or switches to a tunnel.

use std::pin::pin;

use config::Page;
use http1::{BodyFraming, ChunkError, ClientConnection, Method, ResponseHead, ResponseRewrite, Via};

use crate::answer;
use crate::body::arrivals::StreamPieces;
use crate::body::ends::{Ends, PumpEnd, PumpSide};
use crate::body::filters::{Filter, Filters};
use crate::body::omitted_fields::{HiddenFields, OmittedFields};
use crate::body::pump::{PumpSource, Stop};
use crate::body::transform::Choice;
use crate::body::upload::Until;
use crate::context::client::AfterExchange;
use crate::context::exchange_slot::{CurrentRequest, CurrentResponse, SlotMemory};
use crate::context::later::{self, KnownResponse};
use crate::context::routed::{ExchangeContext, Purpose, RoutedRequest};
use crate::context::seen;
use crate::exchange::{Exchange, ExchangeState};
use crate::failure::Failure;
use crate::forward::Reply;
use crate::forward::accel;
use crate::forward::coded;
use crate::forward::tunnel::{self, Flow, Parties};
use crate::forward::web;
use crate::outgoing::edits::{self, ResponseSource};
use crate::outgoing::faults;
use crate::outgoing::response_plan::ResponsePlan;
use crate::outgoing::send::Delivery;
use crate::outgoing::streams;
use crate::record::explain;
use crate::shaping::Pace;
use transport::cold::cold;
use transport::endpoint::MessageEndpoint;
use transport::tcp::Follows;

/// Sends a server's response to the client. Called once per exchange with a server, after its head was read. Returns
/// the server's connection to the pool if it stays open.
pub(crate) async fn respond(exchange: &mut Exchange<'_, '_>, reply: Reply) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let status = exchange.memory.response.head.start.status;
    let mut reply = accel::take(exchange, reply)?;
    // The response of another upstream is an error page already.
    if let Some(page) = answer::stand_in(ctx, routed.response_policies(ctx), status)
        && exchange.state.record.fell_back.is_none()
    {
        return cold(|| stand_in(exchange, reply, page)).await;
    }
    let SlotMemory { request, response, .. } = exchange.memory;
    let form = request.web.as_ref().filter(|_| web::is_translated(response)).map(|call| call.form);
    if let Some(form) = form {
        return cold(|| web::respond(exchange, reply, form)).await;
    }
    let answer = || known(ctx, routed, response, &reply);
    if let Some(compression) = later::compression(ctx, routed, request, answer) {
        match coded::choose(routed, compression, request, response) {
            Choice::Unchanged { .. } => {}
            choice => return cold(|| coded::respond(exchange, reply, choice, compression)).await,
        }
    }
    let arrivals = streams::of_response(ctx, &exchange.state.record, reply.framing, response);
    let mut plan = plan(ctx, routed, status, &reply, reply.framing, exchange.state);
    render(ctx, routed, request, response, &reply, &plan, false);
    if !plan.filters.is_empty() {
        plan.filters.change_head(&mut response.out, &mut plan.framing, ctx.client.socket.frames_itself());
    }
    exchange.state.answers(status);
    exchange.state.record.head_leaves(&response.out);
    plan.check_end(ctx, routed, &response.out);
    if status == 101 {
        return cold(|| switch(exchange, &reply, plan.filters)).await;
    }
    begin(ctx, response, &reply, arrivals.as_ref(), &mut plan)
        .inspect_err(|_| exchange.state.answers_nothing())?;
    if response.body.filters().act_first() {
        let CurrentResponse { body, out, .. } = response;
        let delivery = Delivery::from_ctx(ctx, routed);
        cold(|| delivery.begin(body.filters(), out)).await?;
    }
    let pace = pace(ctx, response, exchange.state);
    let (mut is_long, closes_sink) = (false, plan.ends_connection() && reply.upload.is_done());
    let outcome = match leave_at_once(ctx, response, &reply, &pace, closes_sink) {
        Some(outcome) => {
            exchange.state.record.upstream_ended_at_once();
            outcome
        }
        None => {
            let ends = Ends { arrivals: arrivals.as_ref(), ..ends(ctx, routed, &reply, &pace, closes_sink) };
            is_long = response.body.will_splice(&ends);
            let relay = pin!(async {
                let outcome = relay(ctx, routed, &ends, response).await;
                exchange.state.record.upstream_ended();
                outcome
            });
            reply.upload.beside(ctx, routed, &reply, request, Until::End, relay).await
        }
    };
    exchange.state.body_bytes_sent = response.body.passed_on();
    if let Err(failure) = outcome {
        break_off(ctx, &plan, failure, exchange.memory, exchange.state);
        if failure == Failure::FaultInjected {
            let delivery = Delivery::from_ctx(ctx, routed);
            cold(|| delivery.break_off(exchange.memory.response.body.filters())).await?;
        }
        return Ok(AfterExchange::Drop);
    }
    reply.expects_long = is_long;
    Ok(end(ctx, reply, response, &plan))
}

/// Returns a server's response for conditions.
fn known<'a>(
    ctx: &ExchangeContext<'a>,
    routed: &RoutedRequest,
    response: &'a CurrentResponse,
    reply: &Reply,
) -> KnownResponse<'a> {
    let size = if let BodyFraming::Length(length) = reply.framing { Some(length) } else { None };
    KnownResponse {
        status: response.head.start.status,
        head: &response.buffer.filled()[..response.head.len],
        size,
        server: server_of(ctx, routed, reply),
    }
}

/// Returns the server's connection to the pool after a complete response. Returns what happens to the client's
/// connection.
#[inline]
pub(crate) fn end(
    ctx: &ExchangeContext<'_>,
    reply: Reply,
    response: &mut CurrentResponse,
    plan: &ResponsePlan,
) -> AfterExchange {
    let ExchangeContext { worker, snapshot, client, .. } = *ctx;
    let has_left_client = reply.upload.has_left_client();
    // RFC 9112 §9.3: bytes after a response belong to no request, so the connection is not reused.
    if reply.persists && reply.upload.is_done() && response.buffer.is_empty() {
        let server = &snapshot.upstreams[reply.upstream].servers[reply.server];
        server.release(reply, client, &worker.deadlines);
    }
    worker.buffers.wait(&mut response.buffer);
    next(plan, has_left_client)
}

/// Sends a response without a wait if it has arrived completely, as nearly every response has. Returns `None` if the
/// pump must send it, or the rest.
fn leave_at_once(
    ctx: &ExchangeContext<'_>,
    response: &mut CurrentResponse,
    reply: &Reply,
    pace: &Pace,
    closes_sink: bool,
) -> Option<Result<(), Failure>> {
    if !response.out.is_empty() || !reply.upload.is_done() || !pace.is_free(&ctx.worker.shaper) {
        return None;
    }
    let sent = response.body.run_at_once(&ctx.client.socket, &mut response.buffer, closes_sink)?;
    Some(sent.map_err(outcome))
}

/// Handles a failure after the head was sent: only a visibly incomplete body can report it.
#[cold]
pub(crate) fn break_off(
    ctx: &ExchangeContext<'_>,
    plan: &ResponsePlan,
    failure: Failure,
    memory: &mut SlotMemory,
    state: &mut ExchangeState<'_>,
) {
    let socket = &ctx.client.socket;
    state.failed(ctx, failure);
    state.record.explain(memory, failure);
    // With a length or chunks, the closed connection alone shows that the body is incomplete.
    if plan.framing == BodyFraming::UntilClose || socket.frames_itself() {
        socket.reset_on_drop();
    }
}

/// Ends a failed response from the cache or a file whose head may have left. Resets the connection, so that the body is
/// seen to be incomplete.
#[cold]
pub(crate) fn cut(exchange: &mut Exchange<'_, '_>, failure: Failure) -> AfterExchange {
    // An injected fault has ended the connection itself.
    if failure != Failure::FaultInjected {
        exchange.ctx.client.socket.reset_on_drop();
    }
    exchange.state.failed(exchange.ctx, failure);
    exchange.state.record.explain(exchange.memory, failure);
    AfterExchange::Drop
}

/// Sends an error page in place of a server's error response. The rest of that is not awaited: if it is incomplete, the
/// server's connection is closed.
async fn stand_in(
    exchange: &mut Exchange<'_, '_>,
    reply: Reply,
    page: &Page,
) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let SlotMemory { request, response, .. } = exchange.memory;
    let status = response.head.start.status;
    answer::push_content(&mut response.added, status, &page.content_type, &page.body);
    let length = BodyFraming::Length(page.body.len() as u64);
    let mut plan = ResponsePlan::new(ctx, routed, status, length, reply.upload.has_left_client());
    if exchange.state.has_fault() {
        faults::add_to_routed(ctx, routed, &mut plan, status, false, exchange.state);
    }
    render(ctx, routed, request, response, &reply, &plan, true);
    exchange.state.answers(status);
    let has_left_client = reply.upload.has_left_client();
    // Now, because the client may be slow to read the page.
    discard(ctx, response, reply);
    exchange.state.record.upstream_ended();
    let next = next(&plan, has_left_client);
    let body = if routed.method == Method::Head { b"".as_slice() } else { &page.body };
    answer::whole(ctx, &mut response.out, body, plan, exchange.state).await.map(|()| next)
}

/// Discards a response of which nothing is sent. The rest of it is not awaited: if it is incomplete, the server's
/// connection is closed.
pub(super) fn discard(ctx: &ExchangeContext<'_>, response: &mut CurrentResponse, reply: Reply) {
    let CurrentResponse { head, buffer, body, .. } = response;
    buffer.consume(head.len);
    body.begin(reply.framing, false, None);
    let is_whole = body.take_in(buffer).is_ok() && {
        body.sent(buffer, body.unsent());
        body.is_done() && buffer.is_empty()
    };
    buffer.clear();
    if reply.persists && reply.upload.is_done() && is_whole {
        let server = &ctx.snapshot.upstreams[reply.upstream].servers[reply.server];
        server.release(reply, ctx.client, &ctx.worker.deadlines);
    }
}

/// Returns the source and the sink of a response's body.
fn ends<'a>(
    ctx: &ExchangeContext<'a>,
    routed: &RoutedRequest,
    reply: &'a Reply,
    pace: &'a Pace,
    closes_sink: bool,
) -> Ends<'a> {
    let ExchangeContext { worker, client, .. } = *ctx;
    Ends {
        buffers: &worker.buffers,
        pipes: &worker.pipes,
        deadlines: &worker.deadlines,
        minimum_rate: routed.client_limits(ctx).minimum_rate,
        source: &reply.socket,
        sink: &client.socket,
        deadline: &client.deadline,
        source_limit: routed.ticks(ctx).upstream_body,
        sink_limit: routed.ticks(ctx).client_write,
        paced: Some(PumpSide::Sink),
        closes_sink,
        pace,
        place: routed.place(ctx),
        activity: reply.upload.activity(),
        arrivals: None,
        is_tunnel: false,
    }
}

/// Returns the pace of the body. The head is exempt: it is in the buffer before the body, unless it is in `out` and
/// sent separately.
fn pace(ctx: &ExchangeContext<'_>, response: &CurrentResponse, state: &ExchangeState<'_>) -> Pace {
    let pace = Pace::of_response(&ctx.worker.shaper, state.rate_bytes_per_second);
    pace.pass(if response.out.is_empty() { state.record.head_bytes_sent as usize } else { 0 });
    pace
}

/// Decides what happens to the client's connection after a server's response.
pub(crate) fn next(plan: &ResponsePlan, has_left_client: bool) -> AfterExchange {
    if has_left_client { plan.next() } else { AfterExchange::Linger }
}

/// Plans a server's response, with the filters of its route and of the drawn fault. `source` is the framing in which
/// the body arrives for the client.
pub(crate) fn plan(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    status: u16,
    reply: &Reply,
    source: BodyFraming,
    state: &mut ExchangeState<'_>,
) -> ResponsePlan {
    let mut plan = ResponsePlan::new(ctx, routed, status, source, reply.upload.has_left_client());
    // RFC 9112 §7.1.2: only chunks are followed by trailers.
    let may_have_trailers = reply.framing == BodyFraming::Chunked;
    if may_have_trailers
        && let Some(omitted) = OmittedFields::in_responses(routed.response_policies(ctx), routed.hiding(ctx))
    {
        plan.filters.push(Filter::OmitTrailers(omitted));
    }
    if state.has_fault() {
        faults::add_to_routed(ctx, routed, &mut plan, status, may_have_trailers, state);
    }
    plan
}

/// Renders the head for the client into `Response::out`.
pub(crate) fn render(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &CurrentRequest,
    response: &mut CurrentResponse,
    reply: &Reply,
    plan: &ResponsePlan,
    has_page: bool,
) {
    let date = ctx.worker.date();
    let of_listener = added(ctx, request, response);
    let mut own = std::mem::take(&mut response.added);
    let lines = if own.is_empty() {
        of_listener
    } else {
        own.extend_from_slice(of_listener);
        &own
    };
    let hidden = routed.hiding(ctx).map(HiddenFields);
    let rewrite = ResponseRewrite {
        edits: hidden.as_ref().map(|hidden| hidden as &dyn http1::Edits),
        added: lines,
        connection: reply.options,
        framing: plan.framing,
        client_connection: plan.client_connection,
        date: &date,
        // The instance that asks for its client adds its own Via.
        via: if routed.purpose == Purpose::Peer { Via::Off } else { Via::Own },
        passes_alt_svc: false,
    };
    response.out.clear();
    ctx.worker.buffers.warm_text(&mut response.out);
    match routed.response_policies(ctx) {
        Some(policies) => {
            let server = server_of(ctx, routed, reply);
            let sender = ResponseSource { server, has_page };
            edits::write_response(ctx, policies, routed, sender, request, response, rewrite);
        }
        None => http1::write_response(&mut response.out, &response.head, response.buffer.filled(), &rewrite),
    }
    response.added = own;
}

/// Returns the server's authority; empty if another instance has answered, because its response may be a stored one.
fn server_of<'a>(ctx: &ExchangeContext<'a>, routed: &RoutedRequest, reply: &Reply) -> &'a str {
    let is_of_peer = reply.upstream != routed.upstream.get();
    if is_of_peer { "" } else { &ctx.snapshot.plan.upstreams[reply.upstream].servers[reply.server].authority }
}

/// Returns the fields that the listener adds, without Strict-Transport-Security if the server has sent it.
fn added<'a>(ctx: &ExchangeContext<'a>, request: &CurrentRequest, response: &CurrentResponse) -> &'a [u8] {
    let added = seen::added(ctx, &request.head, request.head_bytes());
    let hsts = b"strict-transport-security".as_slice();
    // It is the first of the lines, if the listener adds it.
    if !added.get(..hsts.len()).is_some_and(|name| name.eq_ignore_ascii_case(hsts)) {
        return added;
    }
    // RFC 6797 §8.1: browsers obey the first of these fields only, which is the server's.
    let bytes = response.buffer.filled();
    let is_said = |field: &http1::FieldLine| field.name.for_bytes(bytes).eq_ignore_ascii_case(hsts);
    if response.head.fields.iter().any(is_said) {
        let line = added.iter().position(|byte| *byte == b'\n').map_or(added.len(), |end| end + 1);
        return &added[line..];
    }
    added
}

/// Replaces the server's head in the buffer by the new one, with the body's first piece behind it.
///
/// That piece is framed before anything is sent: if it is invalid, the client gets an error response.
fn begin(
    ctx: &ExchangeContext<'_>,
    response: &mut CurrentResponse,
    reply: &Reply,
    arrivals: Option<&StreamPieces<'_>>,
    plan: &mut ResponsePlan,
) -> Result<(), Failure> {
    let CurrentResponse { head, buffer, out, body, .. } = response;
    buffer.consume(head.len);
    body.begin(reply.framing, plan.is_chunked(ctx), None);
    // Read now, because the filters move into the pump below.
    let delays_head = plan.filters.delays_head();
    if !plan.filters.is_empty() {
        body.filter(std::mem::take(&mut plan.filters));
    }
    body.take_in(buffer).map_err(outcome)?;
    if let Some(arrivals) = arrivals.filter(|_| body.moved > 0) {
        arrivals.piece();
    }
    // A head that is too long for the space in front, or is sent slowly by a fault, stays in `out` and is sent
    // separately.
    if !delays_head && body.lead_with(buffer, out) {
        out.clear();
        ctx.worker.buffers.warm_text(out);
    }
    Ok(())
}

/// Runs the pump of the response's body.
async fn relay(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    ends: &Ends<'_>,
    response: &mut CurrentResponse,
) -> Result<(), Failure> {
    if !response.out.is_empty() {
        cold(|| send_head(ctx, routed, &response.out)).await?;
    }
    response.body.run(ends, &mut response.buffer).await.map_err(|stop| match outcome(stop) {
        Failure::UpstreamTruncated => cut_short(ends.source, response),
        failure => failure,
    })
}

/// Sends a head separately from the body.
async fn send_head(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, head: &[u8]) -> Result<(), Failure> {
    Delivery::from_ctx(ctx, routed).send(head, Follows::Nothing).await
}

/// Returns the failure of a body that ended early. The stream may have been reset for the server's error, such as in
/// trailers.
#[cold]
pub(super) fn cut_short(server: &MessageEndpoint, response: &mut CurrentResponse) -> Failure {
    match server.wrong() {
        Some(wrong) if wrong.is_too_large => {
            response.wrong = Some(wrong.text);
            Failure::UpstreamHeadTooLarge
        }
        Some(wrong) if response.body.incoming() == PumpSource::Chunked => {
            response.wrong = Some(wrong.text);
            Failure::UpstreamTruncated
        }
        Some(wrong) => {
            let came = explain::truncated(response);
            response.wrong =
                Some(came.map_or_else(|| wrong.text.clone(), |came| format!("{came}; {}", wrong.text)));
            Failure::UpstreamTruncated
        }
        None => {
            let reset = server.reset_code().zip(explain::truncated(response));
            response.wrong = reset.map(|(code, came)| format!("{came}; it reset the stream with {code}"));
            Failure::UpstreamTruncated
        }
    }
}

/// Maps the reason why a response's pump stopped to a failure.
fn outcome(stop: Stop) -> Failure {
    match stop {
        Stop::Source(PumpEnd::Gone) => Failure::UpstreamTruncated,
        Stop::Source(PumpEnd::Stalled | PumpEnd::TooSlow) => Failure::UpstreamStalled,
        Stop::Sink(PumpEnd::Gone) => Failure::ClientGone,
        Stop::Sink(PumpEnd::Stalled | PumpEnd::TooSlow) => Failure::ClientStalled,
        Stop::Malformed(ChunkError::TrailersTooLarge) => Failure::UpstreamHeadTooLarge,
        Stop::Malformed(_) | Stop::BadText | Stop::TooLarge => Failure::UpstreamFraming,
        Stop::Cut => Failure::FaultInjected,
        // A response body is never read from a file of kept bytes.
        Stop::Unreadable(_) => Failure::FileUnreadable,
    }
}

/// Passes an interim response on (RFC 9110 §15.2).
pub(crate) async fn interim(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    response: &mut CurrentResponse,
) -> Result<(), Failure> {
    write_interim(ctx, routed, response)?;
    Delivery::from_ctx(ctx, routed).send(&response.out, Follows::Nothing).await
}

/// Writes the head of an interim response, rewritten for the client, to `response.out`.
fn write_interim(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    response: &mut CurrentResponse,
) -> Result<(), Failure> {
    let ResponseHead { start, .. } = &response.head;
    ctx.worker.counters.response(start.status);
    let bytes = response.buffer.filled();
    let options =
        http1::ConnectionOptions::of_response(&response.head, bytes).map_err(|_| Failure::UpstreamFraming)?;
    let omitted = OmittedFields::in_responses(routed.response_policies(ctx), routed.hiding(ctx));
    let rewrite = ResponseRewrite {
        edits: omitted.as_ref().map(|omitted| omitted as &dyn http1::Edits),
        added: b"",
        connection: options,
        framing: BodyFraming::None,
        client_connection: ClientConnection::Persist,
        date: b"",
        via: routed
            .response_policies(ctx)
            .map_or(Via::Own, |policies| edits::via(&policies.settings.options.via)),
        passes_alt_svc: routed
            .response_policies(ctx)
            .is_some_and(|policies| policies.settings.options.alt_svc),
    };
    response.out.clear();
    http1::write_response(&mut response.out, &response.head, bytes, &rewrite);
    Ok(())
}

/// Sends the 101 response, and then tunnels the new protocol.
async fn switch(
    exchange: &mut Exchange<'_, '_>,
    reply: &Reply,
    filters: Filters,
) -> Result<AfterExchange, Failure> {
    // The rest of the body would be taken for bytes of the new protocol.
    if !reply.upload.is_done() {
        exchange.state.answers_nothing();
        return Err(Failure::UpstreamSwitch);
    }
    let delivery = Delivery::from_ctx(exchange.ctx, exchange.routed);
    delivery.begin(&filters, &mut exchange.memory.response.out).await?;
    tunnel(exchange, reply).await
}

/// Records why a tunnel broke. Both connections are reset, because a broken side must not look like an orderly end.
#[cold]
fn break_tunnel(exchange: &mut Exchange<'_, '_>, server: &MessageEndpoint, failure: Failure) {
    // An idle tunnel has lost nothing, so its ends may look orderly.
    if failure != Failure::TunnelIdle {
        exchange.ctx.client.socket.reset_on_drop();
        server.reset_on_drop();
    }
    exchange.memory.response.wrong = match failure {
        Failure::UpstreamReset => server.reset_code().map(|code| format!("it reset the stream with {code}")),
        _ => None,
    };
    exchange.state.failed(exchange.ctx, failure);
    exchange.state.record.explain(exchange.memory, failure);
}

/// Tunnels bytes both ways after a 101 response (RFC 9110 §7.8). Each direction ends separately.
async fn tunnel(exchange: &mut Exchange<'_, '_>, reply: &Reply) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let SlotMemory { request, response, .. } = exchange.memory;
    let ExchangeContext { worker, client, .. } = *ctx;
    worker.counters.tunnels.increment();
    client.is_tunnel.set(true);
    Delivery::from_ctx(ctx, routed).send(&response.out, Follows::Nothing).await?;
    let arrivals = streams::of_upgrade(ctx, &exchange.state.record, request);
    response.buffer.consume(response.head.len);
    request.keep_head();
    // Bytes of the request itself, counted with those of the tunnel.
    let request_bytes = request.body.moved;
    let ways = [
        Flow { body: &mut request.body, buffer: &mut request.buffer },
        Flow { body: &mut response.body, buffer: &mut response.buffer },
    ];
    let (server, limit) = (&reply.socket, routed.ticks(ctx).tunnel_idle);
    let parties = Parties { worker, client, server, place: routed.place(ctx), arrivals: arrivals.as_ref() };
    let outcome = tunnel::run(parties, limit, ways).await;
    request.body.moved += request_bytes;
    exchange.state.body_bytes_sent = response.body.passed_on();
    exchange.state.record.upstream_ended();
    if let Err(failure) = outcome {
        break_tunnel(exchange, server, failure);
    }
    Ok(AfterExchange::Drop)
}
