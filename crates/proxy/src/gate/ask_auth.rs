//! Asks an authentication server whether a client is admitted (forward authentication), by a subrequest without a body.
//! The client's body stays unread.
//!
//! Without a valid answer in time, the client is not admitted.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ::cache::{ResponseDirectives, TARGETS};
use http1::{MessageHead, Name};
use telemetry::{AuthCell, Trace};

use crate::context::exchange_slot::CurrentRequest;
use crate::context::plan::{
    AuthDecision, AuthQuestion, DecisionSource, Decisions, ForwardAuth, QuestionOutcome, RefusedAnswer,
    read_decision,
};
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::context::seen::{self, RequestFields};
use crate::exchange::{Exchange, ExchangeState};
use crate::failure::{Cause, Failure};
use crate::forward::{self, unless_gone};
use crate::record::AUTH_SPAN;
use crate::shared::vouched::Vouched;
use crate::subrequest::{self, Subrequest};
use transport::deadline::Ticks;

/// The largest response body of an authentication server that is passed on.
const BODY_BYTES_MAX: usize = 256 * 1024;
/// Time limit for asking other instances. The control side answers within a fifth of it.
const ELSEWHERE_MAX: Ticks = Ticks(1);
/// The largest key and the largest response of a decision that is remembered.
const KEPT_BYTES_MAX: usize = 8 * 1024;

/// Returns the remembered decision about a request, if there is one.
#[inline]
pub(crate) fn known(
    ctx: &ExchangeContext<'_>,
    auth: &ForwardAuth,
    routed: &RoutedRequest,
    request: &CurrentRequest,
) -> Option<AuthDecision> {
    let decisions = auth.memory.as_ref()?;
    let key = key(ctx, decisions, routed, request)?;
    let decision = decisions.known(&key, ctx.worker.coarse_time())?;
    if let Some(cell) = cell(ctx, routed) {
        cell.cached.increment();
    }
    Some(decision)
}

/// Returns the key under which a decision is remembered. `None` if the request lacks a part of it, or it is too long.
fn key(
    ctx: &ExchangeContext<'_>,
    decisions: &Decisions,
    routed: &RoutedRequest,
    request: &CurrentRequest,
) -> Option<Vec<u8>> {
    let bytes = request.head_bytes();
    let fields = RequestFields::new(&request.head, bytes);
    let seen = seen::request(ctx, &routed.target, bytes, routed.client, &fields, &request.head);
    let mut key = Vec::with_capacity(128);
    // A long key is not remembered: clients could fill the memory with it.
    let names_client = route::write_auth_key(&decisions.settings.key, &seen, &mut key);
    (names_client && key.len() <= KEPT_BYTES_MAX).then_some(key)
}

/// Returns the counters of the route, if metrics are wanted.
fn cell<'a>(ctx: &ExchangeContext<'a>, routed: &RoutedRequest) -> Option<&'a AuthCell> {
    let places = ctx.snapshot.plan.places.as_deref()?;
    Some(ctx.worker.series.route(places.route(Some(routed.route))).forward_auth.cell())
}

/// Returns the decision about a request, asking the server or waiting for a request that asks already.
///
/// # Errors
/// If there is no valid decision.
pub(crate) async fn ask(
    ctx: &ExchangeContext<'_>,
    auth: &ForwardAuth,
    routed: &RoutedRequest,
    request: &CurrentRequest,
    state: &mut ExchangeState<'_>,
) -> Result<AuthDecision, Failure> {
    let asking = AuthRequest { ctx, auth, routed, request };
    let Some(decisions) = &auth.memory else { return asking.ask(state).await.map(|answer| answer.decision) };
    let Some(key) = key(ctx, decisions, routed, request) else {
        return asking.ask(state).await.map(|answer| answer.decision);
    };
    loop {
        let mut told = match decisions.join(&key, ctx.worker.coarse_time()) {
            DecisionSource::Known(decision) => return Ok(decision),
            DecisionSource::Asks(question) => return asking.ask_for_all(question, state).await,
            DecisionSource::Waits(told) => told,
        };
        if let Some(cell) = cell(ctx, routed) {
            cell.waits.increment();
        }
        let wait = pin!(told.wait_for(Option::is_some));
        let wait = unless_gone(ctx.client, wait).await.map_err(|_| Failure::ClientGone)?;
        // The request that asked sends nothing if its client has gone: then another one asks.
        let told = wait.ok().and_then(|told| told.clone());
        match told {
            Some(QuestionOutcome::Decision(decision)) => return Ok(decision),
            Some(QuestionOutcome::Failed(failure)) => return Err(failure),
            Some(QuestionOutcome::Private) => return asking.ask(state).await.map(|answer| answer.decision),
            None => {}
        }
    }
}

/// An answer of the authentication server.
struct AuthAnswer {
    decision: AuthDecision,
    /// Whether it also holds for other requests with the same key.
    is_shared: bool,
    /// How long it holds for later ones.
    lifetime: Option<Duration>,
}

#[derive(Clone, Copy)]
struct AuthRequest<'a> {
    ctx: &'a ExchangeContext<'a>,
    auth: &'a ForwardAuth,
    routed: &'a RoutedRequest,
    request: &'a CurrentRequest,
}

impl AuthRequest<'_> {
    /// Asks on behalf of all requests that wait for the same decision.
    async fn ask_for_all(
        &self,
        question: AuthQuestion<'_>,
        state: &mut ExchangeState<'_>,
    ) -> Result<AuthDecision, Failure> {
        // Another instance may know the decision, which costs less than asking the server.
        if let Some((decision, lifetime)) = self.known_elsewhere(&question).await? {
            if let Some(cell) = cell(self.ctx, self.routed) {
                cell.cached.increment();
            }
            let told = QuestionOutcome::Decision(decision.clone());
            question.answer(told, Some(lifetime), self.ctx.worker.coarse_time());
            return Ok(decision);
        }
        let answer = self.ask(state).await;
        if let Ok(AuthAnswer { decision, is_shared: true, lifetime: Some(lifetime) }) = &answer
            && let Some(elsewhere) = self.auth.memory.as_ref().and_then(|memory| memory.elsewhere.as_ref())
        {
            let until_ms = self.ctx.worker.unix_ms().saturating_add(lifetime.as_millis() as u64);
            elsewhere.keep(question.key, decision, until_ms, *lifetime);
        }
        let (told, lifetime) = match &answer {
            Ok(AuthAnswer { decision, is_shared: true, lifetime }) => {
                (QuestionOutcome::Decision(decision.clone()), *lifetime)
            }
            Ok(_) => (QuestionOutcome::Private, None),
            // The next request asks.
            Err(Failure::ClientGone) => return Err(Failure::ClientGone),
            Err(failure) => (QuestionOutcome::Failed(*failure), None),
        };
        question.answer(told, lifetime, self.ctx.worker.coarse_time());
        answer.map(|answer| answer.decision)
    }

    /// Returns the decision that other instances share, with its remaining lifetime: at most that of this instance's
    /// own answers.
    async fn known_elsewhere(
        &self,
        question: &AuthQuestion<'_>,
    ) -> Result<Option<(AuthDecision, Duration)>, Failure> {
        let Some(memory) = &self.auth.memory else { return Ok(None) };
        let found = memory.elsewhere.as_ref().and_then(|elsewhere| elsewhere.look(question.key));
        let Some(found) = found else { return Ok(None) };
        let deadline = self.ctx.worker.deadlines.deadline();
        let wait = pin!(deadline.within(ELSEWHERE_MAX, found));
        let found = unless_gone(self.ctx.client, wait).await.map_err(|_| Failure::ClientGone)?;
        let Some((decision, until_ms)) =
            found.ok().and_then(Result::ok).flatten().and_then(|bytes| read_decision(&bytes))
        else {
            return Ok(None);
        };
        let longest = match &decision {
            AuthDecision::Admitted(_) => memory.settings.ttl,
            // Without `negative_ttl`, refusals that other instances remember are not used here either.
            AuthDecision::Refused(_) => memory.settings.negative_ttl.unwrap_or_default(),
        };
        // Clocks of instances may differ, so the own settings bound the lifetime.
        let left = Duration::from_millis(until_ms.saturating_sub(self.ctx.worker.unix_ms())).min(longest);
        Ok((!left.is_zero()).then_some((decision, left)))
    }

    /// Sends a subrequest to the authentication server, and counts its outcome. Called when no remembered decision
    /// holds.
    async fn ask(&self, state: &mut ExchangeState<'_>) -> Result<AuthAnswer, Failure> {
        let Self { ctx, auth, routed, request } = *self;
        let began = state.record.is_timed().then(std::time::Instant::now);
        let subrequest = Subrequest::new(
            ctx,
            routed,
            auth.settings.upstream,
            &self.head(),
            forwarding_lines(ctx, routed, request),
            span(request.texts.trace),
        )?;
        let mut outcome = Err(Failure::AuthFailed);
        let mut detail = None;
        let run = subrequest.run(async |exchange: &mut Exchange<'_, '_>| {
            outcome = answer(exchange, auth).await;
            detail = exchange.state.record.detail.take();
        });
        // One deadline for the connection, all attempts, and the body of the answer.
        let deadline = ctx.worker.deadlines.deadline();
        let ended = {
            let run = pin!(deadline.within(auth.timeout, run));
            unless_gone(ctx.client, run).await.map_err(|_| Failure::ClientGone)?
        };
        if ended.is_err() {
            outcome = Err(Failure::AuthTimeout);
        }
        if outcome.is_err() {
            state.record.detail = detail;
        }
        state.record.asked(began, outcome.as_ref().err().copied());
        if let Some(cell) = cell(ctx, routed) {
            cell.responses.count(outcome.as_ref().map_or(0, |answer| answer.decision.status()));
            match (&outcome, began) {
                (Err(failure), _) => cell.failures.count(*failure as usize),
                (Ok(_), Some(began)) => cell.duration.observe(began.elapsed()),
                (Ok(_), None) => {}
            }
        }
        outcome
    }

    /// Returns the head of the subrequest, with the client's target and Host.
    fn head(&self) -> Vec<u8> {
        let bytes = self.request.head_bytes();
        let authority = self.routed.target.authority.for_bytes(bytes);
        let mut head = Vec::with_capacity(512);
        head.extend_from_slice(b"GET ");
        head.extend_from_slice(self.auth.settings.path.as_bytes());
        if authority.is_empty() {
            // Only HTTP/1.0 requests lack a Host.
            head.extend_from_slice(b" HTTP/1.0\r\n");
        } else {
            head.extend_from_slice(b" HTTP/1.1\r\n");
            push(&mut head, b"Host", authority);
        }
        let listed = self.auth.settings.request_headers.as_deref();
        for (name, value) in route::FieldLookup::lines(&RequestFields::new(&self.request.head, bytes)) {
            if is_passed(name, listed) {
                push(&mut head, name, value);
            }
        }
        head.extend_from_slice(b"\r\n");
        head
    }
}

fn push(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Whether a field of the client is sent to the authentication server. Fields that only trusted clients may set are
/// dropped when the head is written. Fields about the connection, conditions and ranges are dropped, too.
fn is_passed(name: &[u8], listed: Option<&[String]>) -> bool {
    match Name::from_name(name) {
        // The writer of heads extends or replaces these, as in any request.
        Name::Connection
        | Name::Forwarded
        | Name::XForwardedFor
        | Name::XForwardedProto
        | Name::XForwardedHost
        | Name::Via => return true,
        Name::Host
        | Name::ContentLength
        | Name::TransferEncoding
        | Name::DisguisedContentLength
        | Name::DisguisedTransferEncoding
        | Name::Trailer
        | Name::Expect
        | Name::MaxForwards => return false,
        _ => {}
    }
    // Many servers read an underscore as a hyphen, so both spellings count.
    let is_like = |known: &[u8]| {
        let folded = |byte: &u8| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
        name.len() >= known.len() && name[..known.len()].iter().map(folded).eq(known.iter().copied())
    };
    // This proxy writes these fields, which a client must not forge.
    let is_written =
        [&b"x-original-"[..], b"x-forwarded-method", b"x-forwarded-uri"].into_iter().any(is_like);
    if is_written || is_like(b"content-") {
        return false;
    }
    listed.is_none_or(|listed| listed.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(name)))
}

fn span(trace: Option<Trace>) -> Option<Trace> {
    trace.map(|trace| trace.child(trace.attempt_id(AUTH_SPAN)))
}

/// Returns fields that describe the request, named as Traefik and nginx name them.
fn forwarding_lines(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, request: &CurrentRequest) -> Vec<u8> {
    let bytes = request.head_bytes();
    let method = request.head.start.method_span.for_bytes(bytes);
    let target = routed.target.path_and_query.for_bytes(bytes);
    let mut lines = Vec::with_capacity(256);
    push(&mut lines, b"X-Forwarded-Method", method);
    push(&mut lines, b"X-Forwarded-Uri", target);
    push(&mut lines, b"X-Original-Method", method);
    push(&mut lines, b"X-Original-URI", target);
    push(&mut lines, b"X-Original-URL", &seen::url(ctx, &request.head, bytes, &routed.target));
    lines
}

/// Sends the subrequest, and reads the answer.
async fn answer(exchange: &mut Exchange<'_, '_>, auth: &ForwardAuth) -> Result<AuthAnswer, Failure> {
    let reply = forward::forward(exchange).await.map_err(of_auth)?;
    let response = &exchange.memory.response;
    let (head, bytes) = (&response.head, response.buffer.filled());
    let status = head.start.status;
    let directives = ResponseDirectives::from_head(head, bytes, &TARGETS);
    let decision = if (200..300).contains(&status) {
        let decision = AuthDecision::Admitted(Arc::new(vouched(auth, head, bytes)));
        // The body is not used. It is read, so that the connection can serve the next question.
        subrequest::receive(exchange, reply, None).await.map_err(of_auth)?;
        decision
    } else {
        let lines = passed_lines(head, bytes);
        let mut body = Vec::new();
        subrequest::receive(exchange, reply, Some((&mut body, BODY_BYTES_MAX))).await.map_err(of_auth)?;
        AuthDecision::Refused(Arc::new(RefusedAnswer { status, lines, body }))
    };
    // Cookies are meant for one client, so the answer must not serve another.
    let is_shared = !directives.no_store && !decision.sets_cookies();
    let lifetime = auth.memory.as_ref().and_then(|memory| lifetime(memory, &decision, &directives));
    Ok(AuthAnswer { decision, is_shared, lifetime })
}

/// Returns the fields that an admitting answer adds to the request and the response.
fn vouched<Start>(auth: &ForwardAuth, head: &MessageHead<Start>, bytes: &[u8]) -> Vouched {
    let fields = RequestFields::new(head, bytes);
    let mut vouched = Vouched::default();
    for copied in &auth.settings.copy_headers {
        for value in route::FieldLookup::values(&fields, copied.from.as_bytes()) {
            push(&mut vouched.request_lines, copied.to.as_bytes(), value);
        }
    }
    if let Some(name) = &auth.settings.user_header
        && let Some(user) = route::FieldLookup::value(&fields, name.as_bytes())
    {
        vouched.user = String::from_utf8_lossy(user).into_owned();
    }
    if auth.settings.sets_cookies {
        for value in route::FieldLookup::values(&fields, b"set-cookie") {
            push(&mut vouched.response_lines, b"Set-Cookie", value);
        }
    }
    vouched
}

/// Returns the fields of an answer that is passed on: all but the length and those about the connection (RFC 9110
/// §7.6.1).
fn passed_lines<Start>(head: &MessageHead<Start>, bytes: &[u8]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(256);
    let fields = RequestFields::new(head, bytes);
    let is_named = |name: &[u8]| {
        let mut values = head.values(bytes, Name::Connection);
        values.any(|value| {
            value.split(|&byte| byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(name))
        })
    };
    for (name, value) in route::FieldLookup::lines(&fields) {
        let known = Name::from_name(name);
        // The proxy writes Date itself, and Alt-Svc is about the authentication server.
        let is_ours = known.is_hop_by_hop()
            || matches!(known, Name::Trailer | Name::ContentLength | Name::Date | Name::AltSvc);
        if !is_ours && !is_named(name) {
            push(&mut lines, name, value);
        }
    }
    lines
}

/// Returns how long a decision holds for later requests; `None` if it is not remembered.
fn lifetime(
    memory: &Decisions,
    decision: &AuthDecision,
    directives: &ResponseDirectives,
) -> Option<Duration> {
    let longest = match decision {
        AuthDecision::Admitted(_) => memory.settings.ttl,
        AuthDecision::Refused(answer) => {
            let is_short = answer.lines.len() + answer.body.len() <= KEPT_BYTES_MAX;
            // Another status, such as 503, may be over in a moment.
            let is_remembered = matches!(answer.status, 401 | 403) && is_short && !decision.sets_cookies();
            memory.settings.negative_ttl.filter(|_| is_remembered)?
        }
    };
    // RFC 9111 §5.2.2.4, §5.2.2.5: the server wants to be asked each time.
    if directives.no_store || directives.no_cache {
        return None;
    }
    let said = directives.max_age_seconds.map(|seconds| Duration::from_secs(seconds.into()));
    Some(said.map_or(longest, |said| said.min(longest))).filter(|lifetime| !lifetime.is_zero())
}

impl AuthDecision {
    fn status(&self) -> u16 {
        match self {
            Self::Admitted(_) => 200,
            Self::Refused(answer) => answer.status,
        }
    }

    /// Whether it sets cookies for the client.
    fn sets_cookies(&self) -> bool {
        match self {
            Self::Admitted(vouched) => !vouched.response_lines.is_empty(),
            Self::Refused(answer) => answer.cookies().next().is_some(),
        }
    }
}

impl RefusedAnswer {
    /// Returns the Set-Cookie lines.
    pub(crate) fn cookies(&self) -> impl Iterator<Item = &[u8]> {
        self.named(b"set-cookie:")
    }

    /// Returns the WWW-Authenticate lines.
    pub(crate) fn challenges(&self) -> impl Iterator<Item = &[u8]> {
        self.named(b"www-authenticate:")
    }

    /// Returns the first Location line.
    pub(crate) fn location(&self) -> Option<&[u8]> {
        self.named(b"location:").next()
    }

    fn named(&self, name: &'static [u8]) -> impl Iterator<Item = &[u8]> {
        let is_it =
            move |line: &&[u8]| line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        self.lines.split_inclusive(|&byte| byte == b'\n').filter(is_it)
    }
}

/// Maps a failure of the subrequest to the client's failure: no client is admitted without an answer.
fn of_auth(failure: Failure) -> Failure {
    match failure.cause() {
        Cause::Unreachable | Cause::Handshake => Failure::AuthUnreachable,
        Cause::ConnectTimeout | Cause::Timeout | Cause::Stalled | Cause::Queued => Failure::AuthTimeout,
        Cause::Load | Cause::Full => Failure::AuthUnavailable,
        Cause::Other if matches!(failure, Failure::ClientGone | Failure::AuthTooLarge) => failure,
        Cause::Ended | Cause::Truncated | Cause::Other => Failure::AuthFailed,
    }
}
