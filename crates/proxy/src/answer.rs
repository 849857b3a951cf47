//! Responses without a server: failures, redirects, configured responses.
//!
//! They do not wait for the rest of a request: if some is still to come, the connection is closed slowly enough for the
//! client to read the response.

/// Responses of the proxy to gRPC calls.
pub(crate) mod grpc;
/// Answers to certificate authorities.
pub(crate) mod challenge;

use std::io::Write;

use ::cache::PEER_FIELD;
use config::Page;
use http1::{BodyFraming, ByteSpan, ChainKind, HttpVersion, Method, RequestTarget};
use jwt::Refusal;

use crate::context::client::AfterExchange;
use crate::context::exchange_slot::{CurrentRequest, SlotMemory};
use crate::context::later::{self, KnownResponse};
use crate::context::plan::{Authentication, RoutePolicies};
use crate::context::routed::ExchangeContext;
use crate::context::seen;
use crate::exchange::{Exchange, ExchangeState, SentProgress};
use crate::failure::{Failure, FailureFacts, Party};
use crate::outgoing::coded;
use crate::outgoing::edits::{self, OwnResponse, PolicySubject};
use crate::outgoing::faults::{self, InjectedAnswer, Outline};
use crate::outgoing::proxy_status::StatusSource;
use crate::outgoing::response_plan::{ResponsePlan, may_go_on};
use crate::outgoing::send::Delivery;
use crate::outgoing::sink::BodySink;
use transport::cold::cold;
use transport::tcp::Follows;

/// Up to this length, a body is copied behind its head; a longer one is sent from its place.
const ONE_PIECE_BYTES_MAX: usize = 16 * 1024;

/// Value of Allow: the methods that are forwarded, besides extension methods.
const METHODS: &[u8] = b"GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH";

/// Answers OPTIONS with Max-Forwards: 0 (RFC 9110 §7.6.2).
pub(crate) async fn options(exchange: &mut Exchange<'_, '_>) -> Result<AfterExchange, Failure> {
    let out = &mut exchange.memory.response.out;
    begin(out, 204);
    out.extend_from_slice(b"Allow: ");
    out.extend_from_slice(METHODS);
    out.extend_from_slice(b"\r\n");
    own(exchange, 204, b"").await
}

const INJECTED: &[u8] = b"This answer was injected on purpose: no server gave it.\n";

/// Answers with an injected fault's response, in place of a server. Called before the route's policies.
pub(crate) async fn injected(
    exchange: &mut Exchange<'_, '_>,
    InjectedAnswer { status, drawn }: InjectedAnswer,
) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, memory, .. } = exchange;
    let (request, out) = (&memory.request, &mut memory.response.out);
    let Some(response) = drawn.rule.settings.response.as_deref() else {
        begin(out, status);
        // RFC 9110 §15.3.5, §15.4.5: these statuses have no body; one would be read as the next response.
        let body = if matches!(status, 204 | 304) { b"" } else { INJECTED };
        push_content(out, status, "text/plain", body);
        return own(exchange, status, body).await;
    };
    let of_status = || (status >= 300).then(|| ::grpc::CallStatus::of_http(status).code());
    // gRPC clients report any other HTTP status as UNKNOWN, so the fault is sent as a gRPC status.
    if let Some(content_type) = content_type_of_call(request)
        && let Some(code) = response.grpc_status.or_else(of_status)
    {
        let message = response.grpc_message.as_deref().unwrap_or_else(|| http1::reason_phrase(status));
        grpc::write_status(out, content_type, code, message, ctx.client.socket.frames_itself());
        push_fields(out, &response.headers);
        return own(exchange, 200, b"").await;
    }
    begin(out, status);
    let body = match &response.body {
        Some(body) => body.as_bytes(),
        None if matches!(status, 204 | 304) => b"",
        None => INJECTED,
    };
    push_content(out, status, response.content_type.as_deref().unwrap_or("text/plain"), body);
    push_fields(out, &response.headers);
    own(exchange, status, body).await
}

/// Appends fields. The configuration has checked names and values.
fn push_fields(out: &mut Vec<u8>, fields: &[(String, String)]) {
    for (name, value) in fields {
        // Writing into a Vec cannot fail.
        let _ = write!(out, "{name}: {value}\r\n");
    }
}

/// Redirects a plain HTTP request to https (RFC 9110 §15.4.9). Called where the listener redirects.
pub(crate) async fn redirect(exchange: &mut Exchange<'_, '_>, port: u16) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    if routed.target.authority == ByteSpan::default() {
        // An HTTP/1.0 request without Host has no known destination.
        return Err(Failure::BadHost);
    }
    let SlotMemory { request, response, .. } = exchange.memory;
    let bytes = request.buffer.filled();
    let out = &mut response.out;
    begin(out, 308);
    out.extend_from_slice(b"Content-Length: 0\r\nLocation: https://");
    let authority = seen::authority(ctx, &request.head, bytes, &routed.target);
    out.extend_from_slice(http1::host_without_port(authority));
    // If a proxy in front reports its clients, clients use that proxy's https port.
    let is_told = seen::chain(ctx, &request.head, bytes).is_some_and(|chain| chain.kind != ChainKind::None);
    if port != 443 && !is_told {
        // Writing into a Vec cannot fail.
        let _ = write!(out, ":{port}");
    }
    let path = routed.target.path_and_query.for_bytes(bytes);
    out.extend_from_slice(if path.starts_with(b"/") { b"" } else { b"/" });
    // `*`, the target of a server-wide OPTIONS, is not part of a URL.
    out.extend_from_slice(if path == b"*" { b"" } else { path });
    out.extend_from_slice(b"\r\n");
    own(exchange, 308, b"").await
}

/// Answers a CORS preflight (Fetch, §3.3.2). It needs no password and counts against no rate: browsers send no password
/// with it, and a script cannot read a 429 to it.
pub(crate) async fn preflight(exchange: &mut Exchange<'_, '_>) -> Result<AfterExchange, Failure> {
    begin(&mut exchange.memory.response.out, 204);
    send_own(exchange, 204, b"", true).await
}

/// Begins a response in an empty buffer with its start line.
pub(crate) fn begin(out: &mut Vec<u8>, status: u16) {
    out.clear();
    let _ = write!(out, "HTTP/1.1 {status} {}\r\n", http1::reason_phrase(status));
}

/// Appends Content-Type and Content-Length.
pub(crate) fn push_content(out: &mut Vec<u8>, status: u16, content_type: &str, body: &[u8]) {
    if !body.is_empty() {
        let _ = write!(out, "Content-Type: {content_type}\r\n");
    }
    push_length(out, status, body.len());
}

/// Appends Content-Length, if the status allows it.
pub(crate) fn push_length(out: &mut Vec<u8>, status: u16, length: usize) {
    // RFC 9110 §8.6: a 204 has no Content-Length; in a 304 it would describe another response.
    if status != 204 && status != 304 {
        let _ = write!(out, "Content-Length: {length}\r\n");
    }
}

/// Completes and sends a response whose head has been begun. Called for configured responses, redirects and listings.
pub(crate) async fn own(
    exchange: &mut Exchange<'_, '_>,
    status: u16,
    body: &[u8],
) -> Result<AfterExchange, Failure> {
    send_own(exchange, status, body, false).await
}

/// Adds the fields that every response of the proxy has, and sends it.
async fn send_own(
    exchange: &mut Exchange<'_, '_>,
    told: u16,
    body: &[u8],
    is_preflight: bool,
) -> Result<AfterExchange, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let SlotMemory { request, response, .. } = exchange.memory;
    let out = &mut response.out;
    exchange.state.answers(told);
    // gRPC clients report an HTTP error as UNKNOWN, so a call gets a gRPC status in place of the body.
    let body =
        if told >= 300 && answers_call(ctx, request, told, "", exchange.state, out) { b"" } else { body };
    // Coding changes the fields about the body, so it comes before the edits and the plan, which see the final
    // head.
    let known = || KnownResponse { status: told, head: out, size: Some(body.len() as u64), server: "" };
    let coded = match later::compression(ctx, routed, request, known) {
        Some(compression) => coded::code_whole(ctx, compression, request, out, told, body),
        None => None,
    };
    let body = coded.as_deref().unwrap_or(body);
    out.extend_from_slice(seen::added(ctx, &request.head, request.head_bytes()));
    push_date(ctx, out);
    if let Some(policies) = routed.response_policies(ctx) {
        let start = start_line_len(out);
        let own = OwnResponse { status: told, source: StatusSource::Proxy, is_preflight };
        edits::edit_own(ctx, policies, &PolicySubject::from_routed(routed), own, request, start, out);
    }
    // The connection goes on only if the rest of the request is here. Otherwise its bytes would be parsed as the
    // next request.
    let persists = routed.version != HttpVersion::Http10
        && routed.connection.persists(routed.version)
        && may_go_on(ctx)
        && (routed.framing == BodyFraming::None || has_taken_body(ctx, request, Ok(routed.framing)));
    let content = AnswerBody::new(routed.version, routed.method, body);
    let plan = content.plan(ctx, out, persists, exchange.state);
    out.extend_from_slice(if plan.ends_connection() { b"Connection: close\r\n\r\n" } else { b"\r\n" });
    plan.check_end(ctx, routed, out);
    let next = next(&plan);
    whole(ctx, out, content.body, plan, exchange.state).await.map(|()| next)
}

/// Decides whether the client's connection goes on: part of the request may still be on its way.
fn next(plan: &ResponsePlan) -> AfterExchange {
    if plan.ends_connection() { AfterExchange::Linger } else { AfterExchange::Reuse }
}

/// Writes an error as a gRPC response, if the request is a gRPC call. Returns false for other requests.
#[cold]
fn answers_call(
    ctx: &ExchangeContext<'_>,
    request: &CurrentRequest,
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
pub(crate) fn is_call(request: &CurrentRequest) -> bool {
    content_type_of_call(request).is_some()
}

/// Returns the Content-Type of a gRPC call; `None` for other requests.
fn content_type_of_call(request: &CurrentRequest) -> Option<&[u8]> {
    if request.head.len == 0 {
        return None;
    }
    match &request.web {
        Some(call) => Some(call.content_type.as_slice()),
        None => grpc::content_type(&request.head, request.head_bytes()),
    }
}

/// Whether the whole request body has been read, so that the next request follows. Reads and discards the part that has
/// arrived.
#[cold]
pub(crate) fn has_taken_body(
    ctx: &ExchangeContext<'_>,
    request: &mut CurrentRequest,
    framing: Result<BodyFraming, http1::FramingError>,
) -> bool {
    let Ok(framing) = framing else { return false };
    if framing == BodyFraming::None {
        return true;
    }
    if !request.has_body_begun() {
        request.keep_head();
        request.body.begin(framing, false, ctx.snapshot.plan.config.limits.body_bytes);
    }
    let CurrentRequest { body, buffer, .. } = request;
    // Bytes that are still to come are not waited for: the connection lingers and closes instead.
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

/// The body of a response by the proxy, and what decides its framing.
#[derive(Clone, Copy)]
struct AnswerBody<'a> {
    version: HttpVersion,
    is_of_head: bool,
    body: &'a [u8],
}

impl<'a> AnswerBody<'a> {
    /// Returns the content of a response. A response to HEAD has no body, whatever its head says.
    fn new(version: HttpVersion, method: Method, body: &'a [u8]) -> Self {
        let is_of_head = method == Method::Head;
        Self { version, is_of_head, body: if is_of_head { b"" } else { body } }
    }

    /// Plans a response whose head is written up to the fields about its body.
    fn plan(
        &self,
        ctx: &ExchangeContext<'_>,
        head: &[u8],
        persists: bool,
        state: &mut ExchangeState<'_>,
    ) -> ResponsePlan {
        let mut plan = ResponsePlan::own(BodyFraming::Length(self.body.len() as u64), persists);
        if state.has_fault() {
            self.add_fault(ctx, head, &mut plan, state);
        }
        plan
    }

    /// Adds a drawn fault to the plan.
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
        faults::add_to(plan, outline, state);
    }

    /// Returns the framing that the written head announces.
    fn framing(&self, head: &[u8]) -> BodyFraming {
        let name = b"content-length:".as_slice();
        let is_said =
            |line: &[u8]| line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        if !self.is_of_head && head.split(|byte| *byte == b'\n').any(is_said) {
            BodyFraming::Length(self.body.len() as u64)
        } else {
            BodyFraming::None
        }
    }
}

/// Sends a head and its body, through the plan's filters. Called for every response that has no server.
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
    // Only faults add filters here. Boxed, their state takes no room in the future of every response.
    cold(|| filtered_whole(ctx, head, body, plan, state)).await
}

/// Sends a response that a fault delays, cuts or changes.
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
    // Cut on purpose: counted as injected, not as a failure of the client.
    if sent == Err(Failure::FaultInjected) {
        state.injected();
    }
    sent
}

/// Sends a response without filters, in one write if possible.
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
    // A short body is copied behind its head, as one buffer. A longer one leaves from where it lies, in the same
    // call.
    let outcome = if body.len() <= ONE_PIECE_BYTES_MAX {
        head.extend_from_slice(body);
        delivery.send_both(head, b"", Follows::End, &mut sent).await
    } else {
        delivery.send_both(head, body, Follows::End, &mut sent).await
    };
    // The whole body was assumed above. After an error, the log counts only the bytes that left.
    if outcome.is_err() {
        state.body_bytes_sent = sent.saturating_sub(head_bytes) as u64;
    }
    outcome
}

/// Answers a failure, if no response has begun. Called once per failed request, by `path` and `of_peer`.
pub(crate) async fn failure(
    ctx: &ExchangeContext<'_>,
    memory: &mut SlotMemory,
    failure: Failure,
    state: &mut ExchangeState<'_>,
) -> AfterExchange {
    let facts = state.facts(failure);
    // A response that has begun cannot be replaced: the client would take an error page for its rest.
    if facts.status == 0 || state.sent != SentProgress::Nothing {
        return AfterExchange::Drop;
    }
    let SlotMemory { request, response, .. } = memory;
    let policies = state.route().and_then(|route| ctx.snapshot.plan.routes[route].policies.as_deref());
    let persists = outlives(ctx, request, failure);
    let told = FailureHead {
        // A maintenance page is meant for this case alone; error pages are for any response with the status.
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
        write_content(out, facts, &told)
    };
    let start = &request.head.start;
    // Without a parsed head the method is unknown. As for GET, the error page is sent.
    let method = if request.head.len > 0 { start.method } else { Method::Get };
    let content = AnswerBody::new(start.version, method, body);
    let plan = content.plan(ctx, out, persists, state);
    write_besides(out, failure, &ctx.worker.date(), &told, &plan);
    if let (Some(policies), Some(subject)) = (policies, subject(ctx, request, state)) {
        let start = start_line_len(out);
        let source = StatusSource::Failure(failure);
        let own = OwnResponse { status: facts.status, source, is_preflight: false };
        edits::edit_own(ctx, policies, &subject, own, request, start, out);
    }
    out.extend_from_slice(b"\r\n");
    let next = next(&plan);
    whole(ctx, out, content.body, plan, state).await.map_or(AfterExchange::Drop, |()| next)
}

/// Answers another instance without a body: a status, and a word about it.
pub(crate) async fn to_peer(
    ctx: &ExchangeContext<'_>,
    memory: &mut SlotMemory,
    status: u16,
    word: &[u8],
    state: &mut ExchangeState<'_>,
) -> AfterExchange {
    if state.sent != SentProgress::Nothing {
        return AfterExchange::Drop;
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
    let plan = ResponsePlan::own(BodyFraming::Length(0), true);
    whole(ctx, out, b"", plan, state).await.map_or(AfterExchange::Drop, |()| AfterExchange::Reuse)
}

/// Whether the connection continues after a failure: the request must be complete, and not itself at fault.
fn outlives(ctx: &ExchangeContext<'_>, request: &mut CurrentRequest, failure: Failure) -> bool {
    if request.head.len == 0 || request.head.start.version == HttpVersion::Http10 {
        return false;
    }
    let bytes = request.head_bytes();
    let framing = http1::request_framing(&request.head, bytes);
    // After an error in the request itself, its framing cannot be trusted. A refusal by a policy leaves the framing
    // intact.
    (failure.facts().party != Party::Client || failure.is_of_policy())
        && http1::ConnectionOptions::from_head(&request.head, bytes)
            .is_ok_and(|options| options.persists(HttpVersion::Http11))
        && may_go_on(ctx)
        && has_taken_body(ctx, request, framing)
}

/// Returns what edits of the response need to know about the request, if its target could be parsed.
fn subject(
    ctx: &ExchangeContext<'_>,
    request: &CurrentRequest,
    state: &ExchangeState<'_>,
) -> Option<PolicySubject> {
    let bytes = request.head_bytes();
    let target = RequestTarget::from_head(&request.head, bytes).ok()?;
    Some(PolicySubject {
        route: state.route()?,
        target,
        client: seen::client(ctx, &request.head, bytes),
        user: state.user(),
        // Unclear framing has no length.
        framing: http1::request_framing(&request.head, bytes).unwrap_or(BodyFraming::Chunked),
    })
}

/// Returns the page that replaces a server's error response, if the route has one for the status.
#[inline]
pub(crate) fn stand_in<'a>(
    ctx: &ExchangeContext<'a>,
    policies: Option<&'a RoutePolicies>,
    status: u16,
) -> Option<&'a Page> {
    let policies = policies.filter(|policies| policies.settings.options.replace_errors)?;
    page(ctx, Some(policies), status)
}

/// Returns the error page for a status: the route's, or the global one.
pub(crate) fn page<'a>(
    ctx: &ExchangeContext<'a>,
    policies: Option<&'a RoutePolicies>,
    status: u16,
) -> Option<&'a Page> {
    let own = policies.and_then(|policies| policies.settings.options.error_pages.page(status));
    own.or_else(|| ctx.snapshot.plan.config.error_pages.page(status))
}

/// Returns the page of a route under maintenance.
fn page_of_maintenance(policies: Option<&RoutePolicies>, failure: Failure) -> Option<&Page> {
    let policies = policies.filter(|_| failure == Failure::Maintenance)?;
    policies.settings.options.maintenance.as_ref()?.page.as_ref()
}

/// Optional parts of an error response.
struct FailureHead<'a> {
    page: Option<&'a Page>,
    /// Fields that the listener adds.
    added: &'a [u8],
    /// Source of the WWW-Authenticate fields.
    authentication: Option<&'a Authentication>,
    refusal: Option<Refusal>,
    /// Value of Retry-After; 0 omits it.
    retry_after_seconds: u64,
}

/// Begins the head of an error response with the fields about its body. Returns the body.
fn write_content<'a>(out: &mut Vec<u8>, facts: FailureFacts, told: &FailureHead<'a>) -> &'a [u8] {
    begin(out, facts.status);
    match told.page {
        Some(page) => {
            push_content(out, facts.status, &page.content_type, &page.body);
            &page.body
        }
        None => {
            push_content(out, facts.status, "text/plain", facts.text.as_bytes());
            facts.text.as_bytes()
        }
    }
}

/// Appends the fields of an error response that do not describe its body.
fn write_besides(
    out: &mut Vec<u8>,
    failure: Failure,
    date: &[u8],
    told: &FailureHead<'_>,
    plan: &ResponsePlan,
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
    // A client that was refused because of load waits at least a second before it returns.
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

/// Appends a complete minimal error response, after which the connection closes. Called where no request could be read.
pub(crate) fn last_words(out: &mut Vec<u8>, failure: Failure, date: &[u8]) {
    let told =
        FailureHead { page: None, added: b"", authentication: None, refusal: None, retry_after_seconds: 0 };
    let body = write_content(out, failure.facts(), &told);
    // No request could be parsed, so the start of the next one is unknown: the connection ends.
    let plan = ResponsePlan::own(BodyFraming::Length(body.len() as u64), false);
    write_besides(out, failure, date, &told, &plan);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
}

fn push_date(ctx: &ExchangeContext<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"Date: ");
    out.extend_from_slice(&ctx.worker.date());
    out.extend_from_slice(b"\r\n");
}

/// Returns the index of the first field.
pub(crate) fn start_line_len(head: &[u8]) -> usize {
    head.iter().position(|&byte| byte == b'\n').map_or(0, |at| at + 1)
}
