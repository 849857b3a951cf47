//! What the client is sent of a server: its response, or an upgraded connection's bytes.

use std::pin::pin;

use config::Page;
use http1::{ChunkError, ClientConnection, Framing, Method, ResponseHead, ResponseRewrite, Via};

use crate::body::arrivals::Arrivals;
use crate::body::ends::{End, Ends, Side};
use crate::body::filters::{Filter, Filters};
use crate::body::omitted_fields::{OmittedFields, TAGS};
use crate::body::pump::{Incoming, Stop};
use crate::body::response_plan::ResponsePlan;
use crate::body::send::Delivery;
use crate::body::transform::Choice;
use crate::body::tunnel::{self, Flow};
use crate::body::upload::Until;
use crate::context::client::Next;
use crate::context::exchange::{Exchange, ExchangeContext, Purpose, RoutedRequest};
use crate::context::exchange_slot::{Memory, Request, Response};
use crate::context::exchange_state::ExchangeState;
use crate::context::failure::Failure;
use crate::context::seen;
use crate::faults::messages;
use crate::forward::Reply;
use crate::forward::answer;
use crate::forward::coded;
use crate::forward::policies::{self, Sender};
use crate::forward::web;
use crate::shaping::{Direction, Pace};
use transport::cold::cold;
use transport::endpoint::Endpoint;
use transport::tcp::Follows;

/// Passes the response on, and gives the connection back where both ends keep theirs open.
pub(crate) async fn respond(exchange: &mut Exchange<'_, '_>, mut reply: Reply) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    if let Some(page) =
        answer::stand_in(ctx, routed.response_policies(ctx), exchange.memory.response.head.start.status)
    {
        return cold(|| stand_in(exchange, reply, page)).await;
    }
    let Memory { request, response, .. } = exchange.memory;
    if let Some(call) = &request.web
        && web::is_translated(response)
    {
        let form = call.form;
        return cold(|| web::respond(exchange, reply, form)).await;
    }
    if let Some(compression) = routed.compression(ctx) {
        let compress = &compression.settings;
        match coded::choose(routed, compress, request, response) {
            Choice::Unchanged { .. } => {}
            choice => return cold(|| coded::respond(exchange, reply, choice, compress)).await,
        }
    }
    let status = response.head.start.status;
    let arrivals = Arrivals::of_response(ctx, &exchange.state.record, reply.framing, response);
    let mut plan = plan(ctx, routed, status, &reply, reply.framing, exchange.state);
    render(ctx, routed, request, response, (&reply, &plan, false));
    if !plan.filters.is_empty() {
        plan.filters.change_head(&mut response.out, &mut plan.framing, ctx.client.socket.frames_itself());
    }
    exchange.state.answers(status);
    exchange.state.record.head_leaves(&response.out);
    if status == 101 {
        return cold(|| switch(exchange, &reply, plan.filters)).await;
    }
    let arrivals = arrivals.as_ref();
    begin(ctx, response, (&reply, arrivals), &mut plan).inspect_err(|_| exchange.state.answers_nothing())?;
    if response.body.filters().act_first() {
        let Response { body, out, .. } = response;
        let delivery = Delivery::of(ctx, routed);
        cold(|| body.filters().begin(&delivery, out)).await?;
    }
    let pace = pace(ctx, response, exchange.state.record.head_bytes_sent);
    let (mut is_long, closes_sink) = (false, plan.ends_connection() && reply.upload.is_done());
    let outcome = match leave_at_once(ctx, response, &reply, &pace, closes_sink) {
        Some(outcome) => {
            exchange.state.record.upstream_ended_at_once();
            outcome
        }
        None => {
            let ends = Ends { arrivals, ..ends(ctx, routed, &reply, &pace, closes_sink) };
            is_long = response.body.will_splice(&ends);
            let relay = pin!(async {
                let outcome = relay((ctx, routed), &ends, response).await;
                exchange.state.record.upstream_ended();
                outcome
            });
            reply.upload.beside(ctx, routed, &reply, request, Until::End, relay).await
        }
    };
    exchange.state.body_bytes_sent = response.body.passed_on();
    if let Err(failure) = outcome {
        break_off(ctx, &plan, failure, (exchange.memory, exchange.state));
        if failure == Failure::FaultInjected {
            let delivery = Delivery::of(ctx, routed);
            cold(|| exchange.memory.response.body.filters().break_off(&delivery)).await?;
        }
        return Ok(Next::Drop);
    }
    reply.expects_long = is_long;
    Ok(end(ctx, reply, response, &plan))
}

/// Gives the connection of a server back whose response has been sent. Says what becomes of the client's.
#[inline]
pub(crate) fn end(
    ctx: &ExchangeContext<'_>,
    reply: Reply,
    response: &mut Response,
    plan: &ResponsePlan,
) -> Next {
    let ExchangeContext { worker, snapshot, client, .. } = *ctx;
    let has_left_client = reply.upload.has_left_client();
    // RFC 9112 §9.3: what a server sends beyond its response belongs to no request.
    if reply.persists && reply.upload.is_done() && response.buffer.is_empty() {
        let server = &snapshot.upstreams[reply.upstream].servers[reply.server];
        server.release(reply, client, &worker.deadlines);
    }
    worker.buffers.wait(&mut response.buffer);
    next(plan, has_left_client)
}

/// Sends a response that is all here where it leaves without a wait: nearly every one. `None` where it does not, or not as
/// a whole.
fn leave_at_once(
    ctx: &ExchangeContext<'_>,
    response: &mut Response,
    reply: &Reply,
    pace: &Pace,
    closes_sink: bool,
) -> Option<Result<(), Failure>> {
    if !response.out.is_empty() || !reply.upload.is_done() || !pace.is_free(ctx.worker) {
        return None;
    }
    let sent = response.body.run_at_once(&ctx.client.socket, &mut response.buffer, closes_sink)?;
    Some(sent.map_err(outcome))
}

/// The head has left: all that can be said now is that the body is not whole.
#[cold]
pub(crate) fn break_off(
    ctx: &ExchangeContext<'_>,
    plan: &ResponsePlan,
    failure: Failure,
    (memory, state): (&mut Memory, &mut ExchangeState<'_>),
) {
    let socket = &ctx.client.socket;
    if plan.framing == Framing::UntilClose || socket.frames_itself() {
        socket.reset_on_drop();
    }
    state.failed(ctx, failure);
    state.record.explain(memory, failure);
}

/// Sends a page in the place of what a server says of an error. What it says itself is not waited for: where that is not
/// here as a whole, its connection ends.
async fn stand_in(exchange: &mut Exchange<'_, '_>, reply: Reply, page: &Page) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let Memory { request, response, .. } = exchange.memory;
    let (status, framing) = (response.head.start.status, reply.framing);
    answer::push_content(&mut response.added, status, page.content_type, &page.body);
    let length = Framing::Length(page.body.len() as u64);
    let mut plan = ResponsePlan::new(ctx, routed, status, length, reply.upload.has_left_client());
    if exchange.state.has_fault() {
        messages::add_to_routed(ctx, routed, &mut plan, (status, false), exchange.state);
    }
    render(ctx, routed, request, response, (&reply, &plan, true));
    exchange.state.answers(status);
    let Response { head, buffer, out, body, .. } = response;
    buffer.consume(head.len);
    body.begin(framing, false, None);
    let is_whole = body.take_in(buffer).is_ok() && {
        body.sent(buffer, body.unsent());
        body.is_done() && buffer.is_empty()
    };
    buffer.clear();
    exchange.state.record.upstream_ended();
    let has_left_client = reply.upload.has_left_client();
    if reply.persists && reply.upload.is_done() && is_whole {
        let server = &ctx.snapshot.upstreams[reply.upstream].servers[reply.server];
        server.release(reply, ctx.client, &ctx.worker.deadlines);
    } else {
        // Before a client that is slow to take the page.
        drop(reply);
    }
    let next = next(&plan, has_left_client);
    let body = if routed.method == Method::Head { b"".as_slice() } else { &page.body };
    answer::whole(ctx, out, body, plan, exchange.state).await.map(|()| next)
}

/// The two ends of a response's body.
fn ends<'a>(
    ctx: &ExchangeContext<'a>,
    routed: &RoutedRequest,
    reply: &'a Reply,
    pace: &'a Pace,
    closes_sink: bool,
) -> Ends<'a> {
    let ExchangeContext { worker, client, .. } = *ctx;
    Ends {
        worker,
        minimum_rate: routed.client_limits(ctx).minimum_rate,
        source: &reply.socket,
        sink: &client.socket,
        deadline: &client.deadline,
        source_limit: routed.ticks(ctx).upstream_body,
        sink_limit: routed.ticks(ctx).client_write,
        paced: Some(Side::Sink),
        closes_sink,
        pace,
        place: routed.place(ctx),
        activity: reply.upload.activity(),
        arrivals: None,
        is_tunnel: false,
    }
}

/// The pace of the body. Its head is not counted: in the buffer before it, unless it is in `out` and leaves alone.
fn pace(ctx: &ExchangeContext<'_>, response: &Response, head_bytes: u64) -> Pace {
    let pace = Pace::new(Direction::Down, ctx.worker);
    pace.pass(if response.out.is_empty() { head_bytes as usize } else { 0 });
    pace
}

/// What becomes of the client's connection behind a server's response.
pub(crate) fn next(plan: &ResponsePlan, has_left_client: bool) -> Next {
    if has_left_client { plan.next() } else { Next::Linger }
}

/// Plans the response of a server, with the filters of its route and of the drawn fault. `source` is the framing in which
/// the body comes to the client's side.
pub(crate) fn plan(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    status: u16,
    reply: &Reply,
    source: Framing,
    state: &mut ExchangeState<'_>,
) -> ResponsePlan {
    let mut plan = ResponsePlan::new(ctx, routed, status, source, reply.upload.has_left_client());
    let may_have_trailers = reply.framing == Framing::Chunked;
    if may_have_trailers && let Some(omitted) = OmittedFields::in_responses(ctx, routed) {
        plan.filters.push(Filter::OmitTrailers(omitted));
    }
    if state.has_fault() {
        messages::add_to_routed(ctx, routed, &mut plan, (status, may_have_trailers), state);
    }
    plan
}

/// Writes the new head to `Response::out`.
pub(crate) fn render(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &Request,
    response: &mut Response,
    (reply, plan, has_page): (&Reply, &ResponsePlan, bool),
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
    let rewrite = ResponseRewrite {
        edits: routed.hides_tags(ctx).then_some(&TAGS),
        added: lines,
        connection: reply.options,
        framing: plan.framing,
        client_connection: plan.client_connection,
        date: &date,
        // Who asks for its client says so itself.
        via: if routed.purpose == Purpose::Peer { Via::Off } else { Via::Own },
    };
    response.out.clear();
    ctx.worker.buffers.warm_text(&mut response.out);
    match routed.response_policies(ctx) {
        Some(policies) => {
            let server = server_of(ctx, routed, reply);
            let sender = Sender { server, has_page };
            policies::write_response(ctx, policies, routed, sender, request, response, rewrite);
        }
        None => http1::write_response(&mut response.out, &response.head, response.buffer.filled(), &rewrite),
    }
    response.added = own;
}

/// The server that a response is from; empty if another instance has given it, which may have stored it.
fn server_of<'a>(ctx: &ExchangeContext<'a>, routed: &RoutedRequest, reply: &Reply) -> &'a str {
    let is_of_peer = reply.upstream != routed.upstream;
    if is_of_peer { "" } else { &ctx.snapshot.plan.upstreams[reply.upstream].servers[reply.server].authority }
}

/// The listener's own lines, where the server has not said the same.
fn added<'a>(ctx: &ExchangeContext<'a>, request: &Request, response: &Response) -> &'a [u8] {
    let added = seen::added(ctx, &request.head, request.head_bytes());
    let name = b"strict-transport-security".as_slice();
    let bytes = response.buffer.filled();
    let is_said = |field: &http1::Field| field.name.of(bytes).eq_ignore_ascii_case(name);
    if added.is_empty() || response.head.fields.iter().any(is_said) { b"" } else { added }
}

/// Exchanges the server's head for the new one in the buffer, with the body's first piece behind it.
///
/// That piece is framed before anything is sent: where it is not valid the client gets a clear status instead.
fn begin(
    ctx: &ExchangeContext<'_>,
    response: &mut Response,
    (reply, arrivals): (&Reply, Option<&Arrivals<'_>>),
    plan: &mut ResponsePlan,
) -> Result<(), Failure> {
    let Response { head, buffer, out, body, .. } = response;
    buffer.consume(head.len);
    body.begin(reply.framing, plan.is_chunked(ctx), None);
    let delays_head = plan.filters.delays_head();
    if !plan.filters.is_empty() {
        body.filter(std::mem::take(&mut plan.filters));
    }
    body.take_in(buffer).map_err(outcome)?;
    if let Some(arrivals) = arrivals.filter(|_| body.moved > 0) {
        arrivals.piece();
    }
    // Where the head is too large for the room in front it stays in `out`, and leaves alone. So does one that drips.
    if !delays_head && body.lead_with(buffer, out) {
        out.clear();
        ctx.worker.buffers.warm_text(out);
    }
    Ok(())
}

async fn relay(
    (ctx, routed): (&ExchangeContext<'_>, &RoutedRequest),
    ends: &Ends<'_>,
    response: &mut Response,
) -> Result<(), Failure> {
    if !response.out.is_empty() {
        cold(|| send_head(ctx, routed, &response.out)).await?;
    }
    response.body.run(ends, &mut response.buffer).await.map_err(|stop| match outcome(stop) {
        Failure::UpstreamTruncated => cut_short(ends.source, response),
        failure => failure,
    })
}

/// Sends a head that leaves alone.
async fn send_head(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, head: &[u8]) -> Result<(), Failure> {
    Delivery::of(ctx, routed).send(head, Follows::Nothing).await
}

/// Why a body ended early: over HTTP/2 the stream may have been reset for what the server did wrong on it, as in trailers.
#[cold]
fn cut_short(server: &Endpoint, response: &mut Response) -> Failure {
    match server.wrong() {
        Some(wrong) if wrong.is_too_large => {
            response.wrong = Some(wrong.text);
            Failure::UpstreamHeadTooLarge
        }
        // How much came of a known length tells more.
        Some(wrong) if response.body.incoming() == Incoming::Chunked => {
            response.wrong = Some(wrong.text);
            Failure::UpstreamTruncated
        }
        _ => Failure::UpstreamTruncated,
    }
}

/// A response's pump stopped: why.
fn outcome(stop: Stop) -> Failure {
    match stop {
        Stop::Source(End::Gone) => Failure::UpstreamTruncated,
        Stop::Source(End::Stalled | End::TooSlow) => Failure::UpstreamStalled,
        Stop::Sink(End::Gone) => Failure::ClientGone,
        Stop::Sink(End::Stalled | End::TooSlow) => Failure::ClientStalled,
        Stop::Malformed(ChunkError::TrailersTooLarge) => Failure::UpstreamHeadTooLarge,
        Stop::Malformed(_) | Stop::BadText | Stop::TooLarge => Failure::UpstreamFraming,
        Stop::Cut => Failure::FaultInjected,
        // Of a response nothing is kept.
        Stop::Unreadable(_) => Failure::FileUnreadable,
    }
}

/// Passes an interim response on (RFC 9110 §15.2).
pub(crate) async fn interim(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    response: &mut Response,
) -> Result<(), Failure> {
    write_interim(ctx, routed, response)?;
    Delivery::of(ctx, routed).send(&response.out, Follows::Nothing).await
}

fn write_interim(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    response: &mut Response,
) -> Result<(), Failure> {
    let ResponseHead { start, .. } = &response.head;
    ctx.worker.counters.response(start.status);
    let bytes = response.buffer.filled();
    let options =
        http1::ConnectionOptions::of_response(&response.head, bytes).map_err(|_| Failure::UpstreamFraming)?;
    let omitted = OmittedFields::in_responses(ctx, routed);
    let rewrite = ResponseRewrite {
        edits: omitted.as_ref().map(|omitted| omitted as &dyn http1::Edits),
        added: b"",
        connection: options,
        framing: Framing::None,
        client_connection: ClientConnection::Persist,
        date: b"",
        via: routed
            .response_policies(ctx)
            .map_or(Via::Own, |policies| policies::via(&policies.settings.options.via)),
    };
    response.out.clear();
    http1::write_response(&mut response.out, &response.head, bytes, &rewrite);
    Ok(())
}

/// Passes a switch of protocols on, and then the bytes of the new one.
async fn switch(exchange: &mut Exchange<'_, '_>, reply: &Reply, filters: Filters) -> Result<Next, Failure> {
    if !reply.upload.is_done() {
        exchange.state.answers_nothing();
        return Err(Failure::UpstreamSwitch);
    }
    let delivery = Delivery::of(exchange.ctx, exchange.routed);
    filters.begin(&delivery, &mut exchange.memory.response.out).await?;
    tunnel(exchange, reply).await
}

/// RFC 9110 §7.8: after 101 the connection is the new protocol's, both ways, and each way ends by itself.
async fn tunnel(exchange: &mut Exchange<'_, '_>, reply: &Reply) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let Memory { request, response, .. } = exchange.memory;
    let ExchangeContext { worker, client, .. } = *ctx;
    worker.counters.tunnels.increment();
    Delivery::of(ctx, routed).send(&response.out, Follows::Nothing).await?;
    let arrivals = Arrivals::of_upgrade(ctx, &exchange.state.record, request);
    response.buffer.consume(response.head.len);
    request.keep_head();
    // Of the request itself, which is over; it is counted with what the tunnel moves.
    let request_bytes = request.body.moved;
    let ways = [
        Flow { body: &mut request.body, buffer: &mut request.buffer },
        Flow { body: &mut response.body, buffer: &mut response.buffer },
    ];
    let (server, limit) = (&reply.socket, routed.ticks(ctx).tunnel_idle);
    match tunnel::run(routed.place(ctx), server, limit, arrivals.as_ref(), ways).await {
        Ok(()) | Err(Failure::TunnelIdle) => {}
        // What broke on one side must not look like an end on the other.
        Err(_) => {
            client.socket.reset_on_drop();
            server.reset_on_drop();
        }
    }
    request.body.moved += request_bytes;
    exchange.state.body_bytes_sent = response.body.passed_on();
    exchange.state.record.upstream_ended();
    Ok(Next::Drop)
}
