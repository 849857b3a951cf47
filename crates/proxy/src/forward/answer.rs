//! Responses without a server: failures, redirects, configured responses.
//!
//! They do not wait for the rest of a request: if some is still to come, the connection ends, slowly enough to be read.

use std::io::Write;

use ::cache::PEER_FIELD;
use config::Page;
use http1::{ChainKind, Framing, Method, Span, Target, Version};
use jwt::Refusal;

use crate::body::response_plan::{ResponsePlan, may_go_on};
use crate::body::send::Delivery;
use crate::body::sink::BodySink;
use crate::context::client::Next;
use crate::context::exchange::{Exchange, ExchangeContext};
use crate::context::exchange_slot::{Memory, Request};
use crate::context::exchange_state::{ExchangeState, Sent};
use crate::context::failure::{Failure, Party};
use crate::context::plan::{Authentication, Policies};
use crate::context::proxy_status::Source;
use crate::context::seen;
use crate::faults::messages::{self, InjectedAnswer, Outline};
use crate::forward::coded;
use crate::forward::grpc;
use crate::forward::policies::{self, OwnResponse, Subject};
use transport::cold::cold;
use transport::tcp::Follows;

/// A body up to this length is copied behind its head; a longer one leaves from where it is.
const ONE_PIECE_BYTES_MAX: usize = 16 * 1024;

/// The methods that are passed on, besides any extension.
const METHODS: &[u8] = b"GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH";

/// RFC 9110 §7.6.2: answers OPTIONS with Max-Forwards 0.
pub(crate) async fn options(exchange: &mut Exchange<'_, '_>) -> Result<Next, Failure> {
    let out = &mut exchange.memory.response.out;
    begin(out, 204);
    out.extend_from_slice(b"Allow: ");
    out.extend_from_slice(METHODS);
    out.extend_from_slice(b"\r\n");
    own(exchange, (204, b"")).await
}

/// The body of an answer that no server gave.
const INJECTED: &[u8] = b"This answer was injected on purpose: no server gave it.\n";

/// Answers in place of a server, as an injected fault demands.
pub(crate) async fn injected(
    exchange: &mut Exchange<'_, '_>,
    InjectedAnswer { status }: InjectedAnswer,
) -> Result<Next, Failure> {
    let out = &mut exchange.memory.response.out;
    begin(out, status);
    let body = if matches!(status, 204 | 304) { b"" } else { INJECTED };
    push_content(out, status, "text/plain", body);
    own(exchange, (status, body)).await
}

/// RFC 9110 §15.4.9: redirects a request to https.
pub(crate) async fn redirect(exchange: &mut Exchange<'_, '_>, port: u16) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    if routed.target.authority == Span::default() {
        // An HTTP/1.0 request without Host: nobody knows where it was to go.
        return Err(Failure::BadHost);
    }
    let Memory { request, response, .. } = exchange.memory;
    let bytes = request.buffer.filled();
    let out = &mut response.out;
    begin(out, 308);
    out.extend_from_slice(b"Content-Length: 0\r\nLocation: https://");
    let authority = seen::authority(ctx, &request.head, bytes, &routed.target);
    out.extend_from_slice(http1::host_without_port(authority));
    // A proxy in front that says whom it forwards for has an https port of its own.
    let is_told = seen::chain(ctx, &request.head, bytes).is_some_and(|chain| chain.kind != ChainKind::None);
    if port != 443 && !is_told {
        // Writing into a Vec does not fail.
        let _ = write!(out, ":{port}");
    }
    let path = routed.target.path_and_query.of(bytes);
    out.extend_from_slice(if path.starts_with(b"/") { b"" } else { b"/" });
    // The form of OPTIONS to a server as a whole is no part of a URL.
    out.extend_from_slice(if path == b"*" { b"" } else { path });
    out.extend_from_slice(b"\r\n");
    own(exchange, (308, b"")).await
}

/// Answers a preflight (Fetch, §3.3.2), for clients from permitted networks. No password and no rate is asked for: browsers
/// send none with it, and a script can read no 429 to a preflight.
pub(crate) async fn preflight(exchange: &mut Exchange<'_, '_>, policies: &Policies) -> Result<Next, Failure> {
    policies::enter(policies, exchange.routed.client)?;
    begin(&mut exchange.memory.response.out, 204);
    send_own(exchange, (204, b""), true).await
}

/// Appends the start line of a response of the proxy's own.
pub(crate) fn begin(out: &mut Vec<u8>, status: u16) {
    out.clear();
    let _ = write!(out, "HTTP/1.1 {status} {}\r\n", http1::reason_phrase(status));
}

/// Appends the fields that describe the body.
pub(crate) fn push_content(out: &mut Vec<u8>, status: u16, content_type: &str, body: &[u8]) {
    if !body.is_empty() {
        let _ = write!(out, "Content-Type: {content_type}\r\n");
    }
    push_length(out, status, body.len());
}

/// Appends the length of the body.
pub(crate) fn push_length(out: &mut Vec<u8>, status: u16, length: usize) {
    // RFC 9110 §8.6: no Content-Length in a 204; that of a 304 would be another response's.
    if status != 204 && status != 304 {
        let _ = write!(out, "Content-Length: {length}\r\n");
    }
}

/// Sends a response of the proxy's own with this status and body; its head has been begun.
pub(crate) async fn own(exchange: &mut Exchange<'_, '_>, response: (u16, &[u8])) -> Result<Next, Failure> {
    send_own(exchange, response, false).await
}

async fn send_own(
    exchange: &mut Exchange<'_, '_>,
    (told, body): (u16, &[u8]),
    is_preflight: bool,
) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let Memory { request, response, .. } = exchange.memory;
    let out = &mut response.out;
    exchange.state.answers(told);
    let body =
        if told >= 300 && answers_call(ctx, request, told, "", exchange.state, out) { b"" } else { body };
    let coded = match routed.compression(ctx) {
        Some(compression) => coded::own(ctx, compression, request, out, (told, body)),
        None => None,
    };
    let body = coded.as_deref().unwrap_or(body);
    out.extend_from_slice(seen::added(ctx, &request.head, request.head_bytes()));
    push_date(ctx, out);
    if let Some(policies) = routed.response_policies(ctx) {
        let start = start_line_len(out);
        let own = OwnResponse { status: told, source: Source::Proxy, is_preflight };
        policies::edit_own(ctx, policies, &Subject::of(routed), own, request, start, out);
    }
    let persists = routed.version != Version::Http10
        && routed.connection.persists(routed.version)
        && may_go_on(ctx)
        && (routed.framing == Framing::None || has_taken_body(ctx, request, Ok(routed.framing)));
    let content = Content::new(routed.version, routed.method, body);
    let plan = content.plan(ctx, out, persists, exchange.state);
    out.extend_from_slice(if plan.ends_connection() { b"Connection: close\r\n\r\n" } else { b"\r\n" });
    let next = next(&plan);
    whole(ctx, out, content.body, plan, exchange.state).await.map(|()| next)
}

/// What becomes of the client's connection behind an answer of our own: the rest of a request may be on its way.
fn next(plan: &ResponsePlan) -> Next {
    if plan.ends_connection() { Next::Linger } else { Next::Reuse }
}

/// Answers a call of gRPC in its own words; false where it is none.
#[cold]
fn answers_call(
    ctx: &ExchangeContext<'_>,
    request: &Request,
    status: u16,
    message: &str,
    state: &mut ExchangeState<'_>,
    out: &mut Vec<u8>,
) -> bool {
    let Some(content_type) = content_type_of_call(request) else { return false };
    let message = if message.is_empty() { http1::reason_phrase(status) } else { message };
    grpc::write(out, content_type, status, message, ctx.client.socket.frames_itself());
    state.answers(200);
    true
}

/// Whether a request is a gRPC call.
pub(crate) fn is_call(request: &Request) -> bool {
    content_type_of_call(request).is_some()
}

/// The content type of a gRPC call; `None` if the request is none.
fn content_type_of_call(request: &Request) -> Option<&[u8]> {
    if request.head.len == 0 {
        return None;
    }
    match &request.web {
        Some(call) => Some(call.content_type.as_slice()),
        None => grpc::content_type(&request.head, request.head_bytes()),
    }
}

/// Whether all of the request's body has been read, so that what follows is the next request. What is here of it is taken,
/// and thrown away.
#[cold]
pub(crate) fn has_taken_body(
    ctx: &ExchangeContext<'_>,
    request: &mut Request,
    framing: Result<Framing, http1::FramingError>,
) -> bool {
    let Ok(framing) = framing else { return false };
    if framing == Framing::None {
        return true;
    }
    if !request.has_body_begun() {
        request.keep_head();
        request.body.begin(framing, false, ctx.snapshot.plan.config.limits.body_bytes);
    }
    let Request { body, buffer, .. } = request;
    loop {
        body.sent(buffer, body.unsent().min(buffer.len()));
        if body.is_done() || body.taken().1 {
            return body.is_done();
        }
        if buffer.is_empty() || body.take_in(buffer).is_err() {
            return false;
        }
    }
}

/// What is sent behind a head of our own.
#[derive(Clone, Copy)]
struct Content<'a> {
    version: Version,
    is_of_head: bool,
    body: &'a [u8],
}

impl<'a> Content<'a> {
    /// The answer to a request. That to a HEAD has no body, whatever its head says.
    fn new(version: Version, method: Method, body: &'a [u8]) -> Self {
        let is_of_head = method == Method::Head;
        Self { version, is_of_head, body: if is_of_head { b"" } else { body } }
    }

    /// Plans the answer, whose head is written as far as what it says of the body.
    fn plan(
        &self,
        ctx: &ExchangeContext<'_>,
        head: &[u8],
        persists: bool,
        state: &mut ExchangeState<'_>,
    ) -> ResponsePlan {
        let mut plan = ResponsePlan::own(Framing::Length(self.body.len() as u64), persists);
        if state.has_fault() {
            self.add_fault(ctx, head, &mut plan, state);
        }
        plan
    }

    #[cold]
    fn add_fault(
        &self,
        ctx: &ExchangeContext<'_>,
        head: &[u8],
        plan: &mut ResponsePlan,
        state: &mut ExchangeState<'_>,
    ) {
        plan.framing = self.framing(head);
        let outline = Outline {
            version: self.version,
            status: state.status(),
            framing: plan.framing,
            may_have_trailers: false,
            is_framed: ctx.client.socket.frames_itself(),
        };
        messages::add_to(plan, outline, state);
    }

    /// How its end is told, by what the head says.
    fn framing(&self, head: &[u8]) -> Framing {
        let name = b"content-length:".as_slice();
        let is_said =
            |line: &[u8]| line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        if !self.is_of_head && head.split(|byte| *byte == b'\n').any(is_said) {
            Framing::Length(self.body.len() as u64)
        } else {
            Framing::None
        }
    }
}

/// Sends a head and its body, through the filters of the plan.
pub(crate) async fn whole(
    ctx: &ExchangeContext<'_>,
    head: &mut Vec<u8>,
    body: &[u8],
    plan: ResponsePlan,
    state: &mut ExchangeState<'_>,
) -> Result<(), Failure> {
    if plan.filters.is_empty() {
        return send_whole(ctx, head, body, state).await;
    }
    cold(|| filtered_whole(ctx, head, body, plan, state)).await
}

async fn filtered_whole(
    ctx: &ExchangeContext<'_>,
    head: &mut Vec<u8>,
    body: &[u8],
    plan: ResponsePlan,
    state: &mut ExchangeState<'_>,
) -> Result<(), Failure> {
    let sink = BodySink::unpaced(ctx, plan, head, state);
    sink.begin(head).await?;
    let taken = sink.takes(body.len());
    let sent = sink.send(head, &body[..taken], Follows::End).await;
    state.body_bytes_sent = sink.sent_bytes();
    sent
}

async fn send_whole(
    ctx: &ExchangeContext<'_>,
    head: &mut Vec<u8>,
    body: &[u8],
    state: &mut ExchangeState<'_>,
) -> Result<(), Failure> {
    let head_bytes = head.len();
    state.record.head_leaves(head);
    state.body_bytes_sent = body.len() as u64;
    let delivery = Delivery::new(ctx, state.route());
    let mut sent = 0;
    let outcome = if body.len() <= ONE_PIECE_BYTES_MAX {
        head.extend_from_slice(body);
        delivery.send_both((head, b""), Follows::End, &mut sent).await
    } else {
        delivery.send_both((head, body), Follows::End, &mut sent).await
    };
    if outcome.is_err() {
        state.body_bytes_sent = sent.saturating_sub(head_bytes) as u64;
    }
    outcome
}

/// Answers a failure, if a response is still possible.
pub(crate) async fn failure(
    ctx: &ExchangeContext<'_>,
    memory: &mut Memory,
    failure: Failure,
    state: &mut ExchangeState<'_>,
) -> Next {
    let facts = failure.facts();
    if facts.status == 0 || state.sent != Sent::Nothing {
        return Next::Drop;
    }
    let Memory { request, response, .. } = memory;
    let policies = state.route().and_then(|route| ctx.snapshot.plan.routes[route].policies.as_deref());
    let persists = outlives(ctx, request, failure);
    let told = FailureHead {
        page: page_of_maintenance(policies, failure).or_else(|| page(ctx, policies, facts.status)),
        added: seen::added(ctx, &request.head, request.head_bytes()),
        authentication: policies.and_then(|policies| policies.authentication.as_ref()),
        refusal: state.refusal,
        retry_after_seconds: state.retry_after_seconds,
    };
    let out = &mut response.out;
    state.answers(facts.status);
    let body = if answers_call(ctx, request, facts.status, facts.text, state, out) {
        b"".as_slice()
    } else {
        write_content(out, failure, &told)
    };
    let start = &request.head.start;
    let method = if request.head.len > 0 { start.method } else { Method::Get };
    let content = Content::new(start.version, method, body);
    let plan = content.plan(ctx, out, persists, state);
    write_besides(out, failure, &ctx.worker.date(), (&told, &plan));
    if let (Some(policies), Some(subject)) = (policies, subject(ctx, request, state)) {
        let start = start_line_len(out);
        let source = Source::Failure(failure);
        let own = OwnResponse { status: facts.status, source, is_preflight: false };
        policies::edit_own(ctx, policies, &subject, own, request, start, out);
    }
    out.extend_from_slice(b"\r\n");
    let next = next(&plan);
    whole(ctx, out, content.body, plan, state).await.map_or(Next::Drop, |()| next)
}

/// Answers another instance, without a body: with a status, and a word about it.
pub(crate) async fn to_peer(
    ctx: &ExchangeContext<'_>,
    memory: &mut Memory,
    (status, word): (u16, &[u8]),
    state: &mut ExchangeState<'_>,
) -> Next {
    if state.sent != Sent::Nothing {
        return Next::Drop;
    }
    let out = &mut memory.response.out;
    begin(out, status);
    push_length(out, status, 0);
    if !word.is_empty() {
        out.extend_from_slice(PEER_FIELD.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    push_date(ctx, out);
    out.extend_from_slice(b"\r\n");
    state.answers(status);
    let plan = ResponsePlan::own(Framing::Length(0), true);
    whole(ctx, out, b"", plan, state).await.map_or(Next::Drop, |()| Next::Reuse)
}

/// Whether the connection goes on: after a request that was whole, and not at fault itself.
fn outlives(ctx: &ExchangeContext<'_>, request: &mut Request, failure: Failure) -> bool {
    if request.head.len == 0 || request.head.start.version == Version::Http10 {
        return false;
    }
    let bytes = request.head_bytes();
    let framing = http1::request_framing(&request.head, bytes);
    (failure.facts().party != Party::Client || failure.is_of_policy())
        && http1::ConnectionOptions::of(&request.head, bytes)
            .is_ok_and(|options| options.persists(Version::Http11))
        && may_go_on(ctx)
        && has_taken_body(ctx, request, framing)
}

/// What the request is about, if it came that far.
fn subject(ctx: &ExchangeContext<'_>, request: &Request, state: &ExchangeState<'_>) -> Option<Subject> {
    let bytes = request.head_bytes();
    let target = Target::of(&request.head, bytes).ok()?;
    Some(Subject {
        route: state.route()?,
        target,
        client: seen::client(ctx, &request.head, bytes),
        user: state.user(),
    })
}

/// The page that replaces a server's error response, if the route has one for the status.
#[inline]
pub(crate) fn stand_in<'a>(
    ctx: &ExchangeContext<'a>,
    policies: Option<&'a Policies>,
    status: u16,
) -> Option<&'a Page> {
    let policies = policies.filter(|policies| policies.settings.options.replace_errors)?;
    page(ctx, Some(policies), status)
}

/// The page for a status: the route's, or that of all.
pub(crate) fn page<'a>(
    ctx: &ExchangeContext<'a>,
    policies: Option<&'a Policies>,
    status: u16,
) -> Option<&'a Page> {
    let own = policies.and_then(|policies| policies.settings.options.error_pages.page(status));
    own.or_else(|| ctx.snapshot.plan.config.error_pages.page(status))
}

/// The page of a route that is under maintenance.
fn page_of_maintenance(policies: Option<&Policies>, failure: Failure) -> Option<&Page> {
    let policies = policies.filter(|_| failure == Failure::Maintenance)?;
    policies.settings.options.maintenance.as_ref()?.page.as_ref()
}

/// What is said beside a failure.
struct FailureHead<'a> {
    page: Option<&'a Page>,
    /// Lines of the listener.
    added: &'a [u8],
    /// How to say who one is.
    authentication: Option<&'a Authentication>,
    /// What is wrong with the client's token.
    refusal: Option<Refusal>,
    /// When to come again; 0 is not said.
    retry_after_seconds: u64,
}

/// Begins the head of the response to a failure, with what it says of its body; returns that.
fn write_content<'a>(out: &mut Vec<u8>, failure: Failure, told: &FailureHead<'a>) -> &'a [u8] {
    let facts = failure.facts();
    begin(out, facts.status);
    match told.page {
        Some(page) => {
            push_content(out, facts.status, page.content_type, &page.body);
            &page.body
        }
        None => {
            push_content(out, facts.status, "text/plain", facts.text.as_bytes());
            facts.text.as_bytes()
        }
    }
}

/// Appends what is said of a failure besides its content.
fn write_besides(
    out: &mut Vec<u8>,
    failure: Failure,
    date: &[u8],
    (told, plan): (&FailureHead<'_>, &ResponsePlan),
) {
    if failure == Failure::MethodRefused {
        // RFC 9110 §15.5.6.
        out.extend_from_slice(b"Allow: ");
        out.extend_from_slice(METHODS);
        out.extend_from_slice(b"\r\n");
    }
    if failure == Failure::FileMethod {
        // RFC 9110 §15.5.6.
        out.extend_from_slice(b"Allow: GET, HEAD\r\n");
    }
    if failure.asks_for_proof() {
        // RFC 9110 §15.5.2; RFC 6750 §3.
        let asked = told.authentication.iter();
        for challenge in asked.flat_map(|authentication| authentication.challenges(told.refusal)) {
            let _ = write!(out, "WWW-Authenticate: {challenge}\r\n");
        }
    }
    let retry_after_seconds = told.retry_after_seconds.max(u64::from(failure.is_of_load()));
    if retry_after_seconds > 0 {
        let _ = write!(out, "Retry-After: {retry_after_seconds}\r\n");
    }
    if plan.ends_connection() {
        out.extend_from_slice(b"Connection: close\r\n");
    }
    out.extend_from_slice(told.added);
    out.extend_from_slice(b"Date: ");
    out.extend_from_slice(date);
    out.extend_from_slice(b"\r\n");
}

/// Appends a complete minimal response for a failure, after which the connection ends.
pub(crate) fn last_words(out: &mut Vec<u8>, failure: Failure, date: &[u8]) {
    let told =
        FailureHead { page: None, added: b"", authentication: None, refusal: None, retry_after_seconds: 0 };
    let body = write_content(out, failure, &told);
    let plan = ResponsePlan::own(Framing::Length(body.len() as u64), false);
    write_besides(out, failure, date, (&told, &plan));
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
}

fn push_date(ctx: &ExchangeContext<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"Date: ");
    out.extend_from_slice(&ctx.worker.date());
    out.extend_from_slice(b"\r\n");
}

/// Where the fields begin.
pub(crate) fn start_line_len(head: &[u8]) -> usize {
    head.iter().position(|&byte| byte == b'\n').map_or(0, |at| at + 1)
}
