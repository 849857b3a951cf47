//! What the client is sent of a server: its response, or an upgraded connection's bytes.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use config::Page;
use http1::{ChunkError, ClientConnection, Framing, ResponseHead, ResponseRewrite, Version, Via};
use shape::Fault;

use crate::body::omitted_fields::{OmittedFields, TAGS};
use crate::body::pump::{End, Ends, Incoming, Side, Stop};
use crate::body::tunnel::{self, Flow};
use crate::body::upload::Until;
use crate::context::client::Next;
use crate::context::exchange::{Exchange, ExchangeContext, RoutedRequest};
use crate::context::exchange_slot::{Memory, Request, Response};
use crate::context::exchange_state::ExchangeState;
use crate::context::failure::Failure;
use crate::context::seen;
use crate::faults::messages;
use crate::forward::Reply;
use crate::forward::answer::{self, Content};
use crate::forward::policies::{self, Sender};
use crate::shaping::{Direction, Pace};
use transport::cold::{cold, poll_once};
use transport::endpoint::Endpoint;
use transport::tcp::Follows;

/// Passes the response on, and gives the connection back where both ends keep theirs open.
pub(crate) async fn respond(exchange: &mut Exchange<'_, '_>, mut reply: Reply) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let ExchangeContext { worker, snapshot, client, .. } = *ctx;
    if let Some(page) =
        answer::stand_in(ctx, routed.policies(ctx), exchange.memory.response.head.start.status)
    {
        return cold(|| stand_in(exchange, reply, page)).await;
    }
    let mut plan = Plan::new(ctx, routed, &exchange.memory.response, &reply);
    let Memory { request, response } = exchange.memory;
    let mut fault = None;
    if exchange.state.has_fault() {
        fault = messages::plan(ctx, routed, response, &mut plan, &reply, exchange.state);
    }
    let fault = fault.as_ref();
    render(ctx, routed, request, response, &reply, &plan);
    if let Some(fault) = fault {
        messages::alter(fault, ctx, response, &mut plan);
    }
    let status = response.head.start.status;
    exchange.state.answers(status);
    exchange.state.record.head_bytes_sent = response.out.len() as u64;
    if status == 101 {
        return cold(|| switch(exchange, &reply, fault)).await;
    }
    let is_chunked = plan.framing == Framing::Chunked && !client.socket.frames_itself();
    begin(ctx, routed, response, &reply, is_chunked, fault)
        .inspect_err(|_| exchange.state.answers_nothing())?;
    if let Some(fault) = fault {
        cold(|| messages::begun(fault, ctx, &mut response.out)).await?;
    }
    let pace = pace(ctx, response, exchange.state.record.head_bytes_sent);
    let mut is_long = false;
    let closes_sink = plan.client_connection == ClientConnection::Close && reply.upload.is_done();
    let outcome = match leave_at_once(ctx, response, &reply, &pace, closes_sink) {
        Some(outcome) => {
            exchange.state.record.upstream_ended();
            outcome
        }
        None => {
            let ends = ends(ctx, routed, &reply, &pace, closes_sink);
            is_long = response.body.will_splice(&ends);
            let relay = pin!(async {
                let outcome = relay(ctx, &ends, response).await;
                exchange.state.record.upstream_ended();
                outcome
            });
            reply.upload.beside(ctx, routed, &reply, request, Until::End, relay).await
        }
    };
    exchange.state.body_bytes_sent = response.body.passed_on();
    if let Err(failure) = outcome {
        break_off(ctx, &plan, failure, (exchange.memory, exchange.state));
        if let (Some(fault), Failure::FaultInjected) = (fault, failure) {
            cold(|| messages::broken_off(fault, ctx)).await?;
        }
        return Ok(Next::Drop);
    }
    let has_uploaded = reply.upload.is_done();
    reply.expects_long = is_long;
    // RFC 9112 §9.3: what a server sends beyond its response belongs to no request.
    if reply.persists && has_uploaded && response.buffer.is_empty() {
        let server = &snapshot.upstreams[routed.upstream].servers[reply.server];
        server.release(reply, client, &worker.deadlines);
    }
    worker.buffers.wait(&mut response.buffer);
    Ok(plan.next(has_uploaded))
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
fn break_off(
    ctx: &ExchangeContext<'_>,
    plan: &Plan,
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
async fn stand_in(exchange: &mut Exchange<'_, '_>, mut reply: Reply, page: &Page) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let Memory { request, response } = exchange.memory;
    let (status, framing) = (response.head.start.status, reply.framing);
    reply.framing = Framing::Length(page.body.len() as u64);
    answer::push_content(&mut response.added, status, page.content_type, &page.body);
    let plan = Plan { has_page: true, ..Plan::new(ctx, routed, response, &reply) };
    render(ctx, routed, request, response, &reply, &plan);
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
    let has_uploaded = reply.upload.is_done();
    if reply.persists && has_uploaded && is_whole {
        let server = &ctx.snapshot.upstreams[routed.upstream].servers[reply.server];
        server.release(reply, ctx.client, &ctx.worker.deadlines);
    } else {
        // Before a client that is slow to take the page.
        drop(reply);
    }
    let content = Content::new(routed.version, routed.method, &page.body);
    answer::whole(ctx, out, content, plan.next(has_uploaded), exchange.state).await
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
        is_tunnel: false,
    }
}

/// The pace of the body. Its head is not counted: in the buffer before it, unless it is in `out` and leaves alone.
fn pace(ctx: &ExchangeContext<'_>, response: &Response, head_bytes: u64) -> Pace {
    let pace = Pace::new(Direction::Down, ctx.worker);
    pace.pass(if response.out.is_empty() { head_bytes as usize } else { 0 });
    pace
}

/// What is decided about a response before its first byte leaves.
pub(crate) struct Plan {
    pub(crate) framing: Framing,
    pub(crate) client_connection: ClientConnection,
    /// Whether a page stands in for what the server says.
    has_page: bool,
}

impl Plan {
    fn new(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, response: &Response, reply: &Reply) -> Self {
        let ExchangeContext { worker, snapshot, client, .. } = *ctx;
        let framing = match (reply.framing, routed.version) {
            // RFC 9112 §7.1: HTTP/1.0 knows no chunks; there the end of the connection ends the body.
            (Framing::Chunked | Framing::UntilClose, Version::Http10) => Framing::UntilClose,
            (Framing::Chunked | Framing::UntilClose, _) => Framing::Chunked,
            (framing, _) => framing,
        };
        let limit = snapshot.plan.config.limits.requests_per_connection;
        let persists = routed.connection.persists(routed.version)
            && framing != Framing::UntilClose
            && reply.upload.is_done()
            && limit.is_none_or(|limit| client.served < limit)
            && !client.socket.is_key_exhausted()
            && worker.keeps(&client.listening);
        let client_connection = match (response.head.start.status, persists, routed.version) {
            (101, ..) => ClientConnection::Upgrade,
            (_, true, Version::Http10) => ClientConnection::KeepAlive,
            (_, true, _) => ClientConnection::Persist,
            (_, false, _) => ClientConnection::Close,
        };
        Self { framing, client_connection, has_page: false }
    }

    /// What becomes of the client's connection once it has the response.
    fn next(&self, has_uploaded: bool) -> Next {
        match (self.client_connection, has_uploaded) {
            (ClientConnection::Close, true) => Next::Close,
            (_, false) => Next::Linger,
            _ => Next::Reuse,
        }
    }
}

/// Writes the new head to `Response::out`.
fn render(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &Request,
    response: &mut Response,
    reply: &Reply,
    plan: &Plan,
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
        via: Via::Own,
    };
    response.out.clear();
    ctx.worker.buffers.warm_text(&mut response.out);
    match routed.policies(ctx) {
        Some(policies) => {
            let server = &ctx.snapshot.upstreams[routed.upstream].servers[reply.server].plan.authority;
            let sender = Sender { server, has_page: plan.has_page };
            policies::write_response(ctx, policies, routed, sender, request, response, rewrite);
        }
        None => http1::write_response(&mut response.out, &response.head, response.buffer.filled(), &rewrite),
    }
    response.added = own;
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
    routed: &RoutedRequest,
    response: &mut Response,
    reply: &Reply,
    is_chunked: bool,
    fault: Option<&Fault>,
) -> Result<(), Failure> {
    let Response { head, buffer, out, body, .. } = response;
    buffer.consume(head.len);
    body.begin(reply.framing, is_chunked, None);
    if reply.framing == Framing::Chunked
        && let Some(omitted) = OmittedFields::in_responses(ctx, routed)
    {
        body.leave_out(omitted);
    }
    if let Some(fault) = fault {
        messages::alter_body(fault, body);
    }
    body.take_in(buffer).map_err(outcome)?;
    // Where the head is too large for the room in front it stays in `out`, and leaves alone. So does one that drips.
    if !matches!(fault, Some(Fault::Drip { .. })) && body.lead_with(buffer, out) {
        out.clear();
        ctx.worker.buffers.warm_text(out);
    }
    Ok(())
}

async fn relay(ctx: &ExchangeContext<'_>, ends: &Ends<'_>, response: &mut Response) -> Result<(), Failure> {
    if !response.out.is_empty() {
        send(ctx, &response.out, Follows::Nothing).await?;
    }
    response.body.run(ends, &mut response.buffer).await.map_err(|stop| match outcome(stop) {
        Failure::UpstreamTruncated => cut_short(ends.source, response),
        failure => failure,
    })
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
        Stop::Malformed(_) | Stop::TooLarge => Failure::UpstreamFraming,
        Stop::Cut => Failure::FaultInjected,
    }
}

/// Passes an interim response on (RFC 9110 §15.2).
pub(crate) async fn interim(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    response: &mut Response,
) -> Result<(), Failure> {
    write_interim(ctx, routed, response)?;
    send(ctx, &response.out, Follows::Nothing).await
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
        via: routed.policies(ctx).map_or(Via::Own, |policies| policies::via(&policies.settings.options.via)),
    };
    response.out.clear();
    http1::write_response(&mut response.out, &response.head, bytes, &rewrite);
    Ok(())
}

/// Passes a switch of protocols on, and then the bytes of the new one.
async fn switch(
    exchange: &mut Exchange<'_, '_>,
    reply: &Reply,
    fault: Option<&Fault>,
) -> Result<Next, Failure> {
    let ctx = exchange.ctx;
    if !reply.upload.is_done() {
        exchange.state.answers_nothing();
        return Err(Failure::UpstreamSwitch);
    }
    if let Some(fault) = fault {
        messages::begun(fault, ctx, &mut exchange.memory.response.out).await?;
    }
    tunnel(exchange, reply).await
}

/// RFC 9110 §7.8: after 101 the connection is the new protocol's, both ways, and each way ends by itself.
async fn tunnel(exchange: &mut Exchange<'_, '_>, reply: &Reply) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let Memory { request, response } = exchange.memory;
    let ExchangeContext { worker, client, .. } = *ctx;
    worker.counters.tunnels.increment();
    send(ctx, &response.out, Follows::Nothing).await?;
    response.buffer.consume(response.head.len);
    request.keep_head();
    // Of the request itself, which is over; it is counted with what the tunnel moves.
    let request_bytes = request.body.moved;
    let ways = [
        Flow { body: &mut request.body, buffer: &mut request.buffer },
        Flow { body: &mut response.body, buffer: &mut response.buffer },
    ];
    let server = &reply.socket;
    match tunnel::run(routed.place(ctx), server, routed.ticks(ctx).tunnel_idle, ways).await {
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

/// Sends these bytes to the client.
pub(crate) async fn send(ctx: &ExchangeContext<'_>, bytes: &[u8], follows: Follows) -> Result<(), Failure> {
    send_both(ctx, bytes, b"", follows).await
}

/// Sends a head and the body behind it from where they are, no faster than bodies may pass.
pub(crate) async fn send_paced(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    pace: &Pace,
    (mut head, mut body): (&[u8], &[u8]),
    follows: Follows,
) -> Result<(), Failure> {
    pace.pass(head.len());
    while !head.is_empty() || !body.is_empty() {
        let (place, wanted) = (routed.place(ctx), head.len() + body.len());
        let allowed = poll_fn(|context| pace.poll_allowance(context, &place, wanted)).await;
        // What is allowed is the head at least.
        let (part, rest) = body.split_at(allowed - head.len());
        let follows = if rest.is_empty() { follows } else { Follows::Nothing };
        send_both(ctx, head, part, follows).await?;
        pace.sent(allowed);
        (head, body) = (b"", rest);
    }
    Ok(())
}

/// Sends a head and the body behind it from where they are, at once as far as the client takes them.
pub(crate) async fn send_both(
    ctx: &ExchangeContext<'_>,
    head: &[u8],
    body: &[u8],
    follows: Follows,
) -> Result<(), Failure> {
    send_counted(ctx, (head, body), follows, &mut 0).await
}

/// The same, and counts what is sent of them, also where it comes to nothing.
pub(crate) async fn send_counted(
    ctx: &ExchangeContext<'_>,
    (mut head, mut body): (&[u8], &[u8]),
    follows: Follows,
    sent: &mut usize,
) -> Result<(), Failure> {
    while !head.is_empty() || !body.is_empty() {
        let socket = &ctx.client.socket;
        let count = in_time(ctx, |context| socket.poll_write_both(context, head, body, follows)).await?;
        *sent += count;
        let of_head = count.min(head.len());
        head = &head[of_head..];
        body = &body[count - of_head..];
    }
    Ok(())
}

/// What a write to the client has come to, which may take only so long.
pub(crate) async fn in_time(
    ctx: &ExchangeContext<'_>,
    mut write: impl FnMut(&mut Context<'_>) -> Poll<io::Result<usize>>,
) -> Result<usize, Failure> {
    let ExchangeContext { snapshot, client, .. } = *ctx;
    let written = match poll_once(&mut write) {
        Some(written) => written,
        None => {
            let written = client.deadline.within(snapshot.ticks.client_write, poll_fn(write)).await;
            written.map_err(|_| Failure::ClientStalled)?
        }
    };
    written.map_err(|_| Failure::ClientGone)
}
