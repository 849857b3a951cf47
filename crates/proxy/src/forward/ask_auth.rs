//! Asks an authentication server whether a client is let in (forward authentication): a request of the proxy's own,
//! without a body. The client's body is left where it is.
//!
//! If there is no valid answer in time, the client is not let in.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ::cache::ResponseDirectives;
use http1::{Head, Name};
use telemetry::{AuthCell, Trace};

use crate::context::exchange::{Exchange, ExchangeContext, RoutedRequest};
use crate::context::exchange_slot::Request;
use crate::context::exchange_state::ExchangeState;
use crate::context::failure::Failure;
use crate::context::plan::{
    AuthDecision, AuthQuestion, Decisions, ForwardAuth, Joined, RefusedAnswer, Told, read_decision,
};
use crate::context::record::AUTH_SPAN;
use crate::context::seen::{self, Fields};
use crate::context::vouched::Vouched;
use crate::forward::subrequest::{self, Subrequest};
use crate::forward::{self, unless_gone};
use transport::deadline::Ticks;

/// The largest body of an answer that is passed on.
const BODY_BYTES_MAX: usize = 256 * 1024;
/// How long other instances are asked at most: the control side answers in a fifth of that.
const ELSEWHERE_MAX: Ticks = Ticks(1);
/// The largest key of a decision, and answer, that are remembered.
const KEPT_BYTES_MAX: usize = 8 * 1024;

/// The decision about a request that is remembered, if there is one.
#[inline]
pub(crate) fn known(
    ctx: &ExchangeContext<'_>,
    auth: &ForwardAuth,
    routed: &RoutedRequest,
    request: &Request,
) -> Option<AuthDecision> {
    let decisions = auth.memory.as_ref()?;
    let key = key(ctx, decisions, routed, request)?;
    let decision = decisions.known(&key, ctx.worker.coarse_time())?;
    if let Some(cell) = cell(ctx, routed) {
        cell.cached.increment();
    }
    Some(decision)
}

/// The key of the decision about a request; `None` if it is nobody's, or too long.
fn key(
    ctx: &ExchangeContext<'_>,
    decisions: &Decisions,
    routed: &RoutedRequest,
    request: &Request,
) -> Option<Vec<u8>> {
    let bytes = request.head_bytes();
    let fields = Fields::of(&request.head, bytes);
    let seen = seen::request(ctx, &routed.target, bytes, routed.client, &fields, &request.head);
    let mut key = Vec::with_capacity(128);
    let names_client = route::write_auth_key(&decisions.settings.key, &seen, &mut key);
    (names_client && key.len() <= KEPT_BYTES_MAX).then_some(key)
}

/// The counters of the route's questions, if they are kept.
fn cell<'a>(ctx: &ExchangeContext<'a>, routed: &RoutedRequest) -> Option<&'a AuthCell> {
    let places = ctx.snapshot.plan.places.as_deref()?;
    Some(ctx.worker.series.route(places.route(Some(routed.route))).forward_auth.cell())
}

/// Gets the decision about a request.
///
/// # Errors
/// If there is none.
pub(crate) async fn ask(
    ctx: &ExchangeContext<'_>,
    auth: &ForwardAuth,
    routed: &RoutedRequest,
    request: &Request,
    state: &mut ExchangeState<'_>,
) -> Result<AuthDecision, Failure> {
    let asking = Asking { ctx, auth, routed, request };
    let Some(decisions) = &auth.memory else { return asking.ask(state).await.map(|answer| answer.decision) };
    let Some(key) = key(ctx, decisions, routed, request) else {
        return asking.ask(state).await.map(|answer| answer.decision);
    };
    loop {
        let mut told = match decisions.join(&key, ctx.worker.coarse_time()) {
            Joined::Known(decision) => return Ok(decision),
            Joined::Asks(question) => return asking.ask_for_all(question, state).await,
            Joined::Waits(told) => told,
        };
        if let Some(cell) = cell(ctx, routed) {
            cell.waits.increment();
        }
        let wait = pin!(told.wait_for(Option::is_some));
        let wait = unless_gone(ctx.client, wait).await.map_err(|_| Failure::ClientGone)?;
        // Whoever asked has gone if it is told nothing: then another one asks.
        let told = wait.ok().and_then(|told| told.clone());
        match told {
            Some(Told::Decision(decision)) => return Ok(decision),
            Some(Told::Failed(failure)) => return Err(failure),
            Some(Told::Private) => return asking.ask(state).await.map(|answer| answer.decision),
            None => {}
        }
    }
}

/// An answer, and for whom it is.
struct Answer {
    decision: AuthDecision,
    /// Whether it is for other requests with the same key as well.
    is_shared: bool,
    /// How long it counts for later ones.
    lifetime: Option<Duration>,
}

#[derive(Clone, Copy)]
struct Asking<'a> {
    ctx: &'a ExchangeContext<'a>,
    auth: &'a ForwardAuth,
    routed: &'a RoutedRequest,
    request: &'a Request,
}

impl Asking<'_> {
    /// Asks for all that wait for the same decision.
    async fn ask_for_all(
        &self,
        question: AuthQuestion<'_>,
        state: &mut ExchangeState<'_>,
    ) -> Result<AuthDecision, Failure> {
        if let Some((decision, lifetime)) = self.known_elsewhere(&question).await? {
            if let Some(cell) = cell(self.ctx, self.routed) {
                cell.cached.increment();
            }
            let told = Told::Decision(decision.clone());
            question.answer(told, Some(lifetime), self.ctx.worker.coarse_time());
            return Ok(decision);
        }
        let answer = self.ask(state).await;
        if let Ok(Answer { decision, is_shared: true, lifetime: Some(lifetime) }) = &answer
            && let Some(elsewhere) = self.auth.memory.as_ref().and_then(|memory| memory.elsewhere.as_ref())
        {
            let until_ms = self.ctx.worker.unix_ms().saturating_add(lifetime.as_millis() as u64);
            elsewhere.keep(question.key, decision, until_ms, *lifetime);
        }
        let (told, lifetime) = match &answer {
            Ok(Answer { decision, is_shared: true, lifetime }) => {
                (Told::Decision(decision.clone()), *lifetime)
            }
            Ok(_) => (Told::Private, None),
            // The next one asks.
            Err(Failure::ClientGone) => return Err(Failure::ClientGone),
            Err(failure) => (Told::Failed(*failure), None),
        };
        question.answer(told, lifetime, self.ctx.worker.coarse_time());
        answer.map(|answer| answer.decision)
    }

    /// What other instances know, and how long that still counts: no longer than this one's answers would.
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
            AuthDecision::Refused(_) => memory.settings.negative_ttl.unwrap_or_default(),
        };
        let left = Duration::from_millis(until_ms.saturating_sub(self.ctx.worker.unix_ms())).min(longest);
        Ok((!left.is_zero()).then_some((decision, left)))
    }

    /// Asks the server.
    async fn ask(&self, state: &mut ExchangeState<'_>) -> Result<Answer, Failure> {
        let Self { ctx, auth, routed, request } = *self;
        let began = state.record.is_timed().then(std::time::Instant::now);
        let subrequest = Subrequest::new(
            (ctx, routed),
            auth.settings.upstream,
            &self.head(),
            (forwarding_lines(ctx, routed, request), span(request.texts.trace)),
        )?;
        let mut outcome = Err(Failure::AuthFailed);
        let mut detail = None;
        let run = subrequest.run(async |exchange: &mut Exchange<'_, '_>| {
            outcome = answer(exchange, auth).await;
            detail = exchange.state.record.detail.take();
        });
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

    /// The head of the question, as if the client had asked it.
    fn head(&self) -> Vec<u8> {
        let bytes = self.request.head_bytes();
        let authority = self.routed.target.authority.of(bytes);
        let mut head = Vec::with_capacity(512);
        head.extend_from_slice(b"GET ");
        head.extend_from_slice(self.auth.settings.path.as_bytes());
        if authority.is_empty() {
            // Only a request of HTTP/1.0 has no Host.
            head.extend_from_slice(b" HTTP/1.0\r\n");
        } else {
            head.extend_from_slice(b" HTTP/1.1\r\n");
            push(&mut head, b"Host", authority);
        }
        let listed = self.auth.settings.request_headers.as_deref();
        for (name, value) in route::Fields::lines(&Fields::of(&self.request.head, bytes)) {
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

/// Whether the authentication server gets a field of the client. What only trusted clients may say is dropped when the
/// head is written, and so are fields about the connection, conditions and ranges.
fn is_passed(name: &[u8], listed: Option<&[String]>) -> bool {
    match Name::of(name) {
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
    let is_like = |known: &[u8]| {
        let folded = |byte: &u8| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
        name.len() >= known.len() && name[..known.len()].iter().map(folded).eq(known.iter().copied())
    };
    let is_written =
        [&b"x-original-"[..], b"x-forwarded-method", b"x-forwarded-uri"].into_iter().any(is_like);
    if is_written || is_like(b"content-") {
        return false;
    }
    listed.is_none_or(|listed| listed.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(name)))
}

/// The span of a question in the trace of the request.
fn span(trace: Option<Trace>) -> Option<Trace> {
    trace.map(|trace| trace.child(trace.attempt_id(AUTH_SPAN)))
}

/// What is told of the request in fields that Traefik's and nginx's users know.
fn forwarding_lines(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, request: &Request) -> Vec<u8> {
    let bytes = request.head_bytes();
    let method = request.head.start.method_span.of(bytes);
    let target = routed.target.path_and_query.of(bytes);
    let mut lines = Vec::with_capacity(256);
    push(&mut lines, b"X-Forwarded-Method", method);
    push(&mut lines, b"X-Forwarded-Uri", target);
    push(&mut lines, b"X-Original-Method", method);
    push(&mut lines, b"X-Original-URI", target);
    push(&mut lines, b"X-Original-URL", &seen::url(ctx, &request.head, bytes, &routed.target));
    lines
}

/// Asks, and reads the answer.
async fn answer(exchange: &mut Exchange<'_, '_>, auth: &ForwardAuth) -> Result<Answer, Failure> {
    let reply = forward::forward(exchange).await.map_err(of_auth)?;
    let response = &exchange.memory.response;
    let (head, bytes) = (&response.head, response.buffer.filled());
    let status = head.start.status;
    let directives = ResponseDirectives::of(head, bytes);
    let decision = if (200..300).contains(&status) {
        let decision = AuthDecision::Admitted(Arc::new(vouched(auth, head, bytes)));
        subrequest::receive(exchange, reply, None).await.map_err(of_auth)?;
        decision
    } else {
        let lines = passed_lines(head, bytes);
        let mut body = Vec::new();
        subrequest::receive(exchange, reply, Some((&mut body, BODY_BYTES_MAX))).await.map_err(of_auth)?;
        AuthDecision::Refused(Arc::new(RefusedAnswer { status, lines, body }))
    };
    let is_shared = !directives.no_store && !decision.sets_cookies();
    let lifetime = auth.memory.as_ref().and_then(|memory| lifetime(memory, &decision, &directives));
    Ok(Answer { decision, is_shared, lifetime })
}

/// What an answer tells of a client that is let in.
fn vouched<Start>(auth: &ForwardAuth, head: &Head<Start>, bytes: &[u8]) -> Vouched {
    let fields = Fields::of(head, bytes);
    let mut vouched = Vouched::default();
    for name in &auth.settings.copy_headers {
        for value in route::Fields::values(&fields, name.as_bytes()) {
            push(&mut vouched.request_lines, name.as_bytes(), value);
        }
    }
    if let Some(name) = &auth.settings.user_header
        && let Some(user) = route::Fields::value(&fields, name.as_bytes())
    {
        vouched.user = String::from_utf8_lossy(user).into_owned();
    }
    if auth.settings.sets_cookies {
        for value in route::Fields::values(&fields, b"set-cookie") {
            push(&mut vouched.response_lines, b"Set-Cookie", value);
        }
    }
    vouched
}

/// The fields of an answer that is passed on: all but those about the connection (RFC 9110 §7.6.1) and the length.
fn passed_lines<Start>(head: &Head<Start>, bytes: &[u8]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(256);
    let fields = Fields::of(head, bytes);
    let is_named = |name: &[u8]| {
        let mut values = head.values(bytes, Name::Connection);
        values.any(|value| {
            value.split(|&byte| byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(name))
        })
    };
    for (name, value) in route::Fields::lines(&fields) {
        let is_ours = matches!(
            Name::of(name),
            Name::Connection
                | Name::KeepAlive
                | Name::ProxyConnection
                | Name::ProxyAuthenticate
                | Name::Te
                | Name::Trailer
                | Name::TransferEncoding
                | Name::ContentLength
                | Name::Upgrade
                | Name::Date
        );
        if !is_ours && !is_named(name) {
            push(&mut lines, name, value);
        }
    }
    lines
}

/// How long a decision counts for later requests.
fn lifetime(
    memory: &Decisions,
    decision: &AuthDecision,
    directives: &ResponseDirectives,
) -> Option<Duration> {
    let longest = match decision {
        AuthDecision::Admitted(_) => memory.settings.ttl,
        AuthDecision::Refused(answer) => {
            let is_short = answer.lines.len() + answer.body.len() <= KEPT_BYTES_MAX;
            let is_remembered = matches!(answer.status, 401 | 403) && is_short && !decision.sets_cookies();
            memory.settings.negative_ttl.filter(|_| is_remembered)?
        }
    };
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

    /// Whether the client gets cookies with it.
    fn sets_cookies(&self) -> bool {
        match self {
            Self::Admitted(vouched) => !vouched.response_lines.is_empty(),
            Self::Refused(answer) => answer.cookies().next().is_some(),
        }
    }
}

impl RefusedAnswer {
    /// The lines with cookies.
    pub(crate) fn cookies(&self) -> impl Iterator<Item = &[u8]> {
        let name = b"set-cookie:".as_slice();
        let is_it =
            |line: &&[u8]| line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        self.lines.split_inclusive(|&byte| byte == b'\n').filter(is_it)
    }
}

/// What a failure to ask means for the client: nobody is let in without an answer.
fn of_auth(failure: Failure) -> Failure {
    match failure {
        Failure::UpstreamRefused | Failure::UpstreamUnknown | Failure::UpstreamHandshake => {
            Failure::AuthUnreachable
        }
        Failure::UpstreamConnectTimeout
        | Failure::UpstreamTimeout
        | Failure::UpstreamStalled
        | Failure::QueueTimeout => Failure::AuthTimeout,
        failure if failure.is_of_load() => Failure::AuthUnavailable,
        Failure::ClientGone | Failure::AuthTooLarge => failure,
        _ => Failure::AuthFailed,
    }
}
