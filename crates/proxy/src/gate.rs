//! Decides whether a request may go on, and where: networks, maintenance, rates, authentication, and the action of its
//! route.
//!
//! The crate `route` makes the decisions; texts that are made for the request stay in the exchange slot.

/// Decides whether a client is admitted.
pub(crate) mod authenticate;
/// Request IDs.
mod request_id;
/// Asks authentication servers.
pub(crate) mod ask_auth;
/// Verifies passwords on separate threads.
pub(crate) mod verify;
/// Verifies tokens.
pub(crate) mod token;
/// Verifies signatures of bots.
pub(crate) mod bots;

use std::io::Write as _;
use std::net::IpAddr;

use balance::SessionParts;
use config::Action;
use route::{AccessDecision, RateVerdict, Split};

use crate::answer;
use crate::context::exchange_slot::CurrentRequest;
use crate::context::plan::{Limit, RoutePolicies, SplitAsking, SplitKey};
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::context::seen::{self, RequestFields};
use crate::exchange::ExchangeState;
use crate::failure::Failure;
use crate::outgoing::asking::kept_target;
use crate::outgoing::edits::{self, PolicySubject};
use crate::shared::tracing;

/// Longest request ID that is accepted from a caller.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// Checks network, maintenance and rates. Called first for each request of a route with policies.
pub(crate) fn admit(
    ctx: &ExchangeContext<'_>,
    policies: &RoutePolicies,
    routed: &RoutedRequest,
    request: &mut CurrentRequest,
    state: &mut ExchangeState<'_>,
) -> Result<(), Failure> {
    // The network comes first, so that clients without access use up no rate.
    admit_network(policies, routed.client)?;
    if let Some(maintenance) = &policies.settings.options.maintenance
        && maintenance.refuses(routed.client)
    {
        // With 0, clients would come back at once.
        state.retry_after_seconds = maintenance.retry_after.as_secs().max(1);
        return Err(Failure::Maintenance);
    }
    if policies.limits.is_empty() { Ok(()) } else { count(ctx, policies, routed, request, state, false) }
}

/// Counts a request against rate limits: those whose key has the user (`has_user`, after authentication), or the others
/// (before it).
pub(crate) fn count(
    ctx: &ExchangeContext<'_>,
    policies: &RoutePolicies,
    routed: &RoutedRequest,
    request: &mut CurrentRequest,
    state: &mut ExchangeState<'_>,
    has_user: bool,
) -> Result<(), Failure> {
    let mut lines = std::mem::take(&mut request.texts.rate_limit);
    let bytes = request.head_bytes();
    let fields = RequestFields::new(&request.head, bytes);
    let seen = seen::request(ctx, &routed.target, bytes, routed.client, &fields, &request.head);
    let user = if has_user { policies.user(routed.user, request.texts.user()) } else { "" };
    let now_ns = ctx.worker.time_ns();
    let counts = |limit: &&Limit| {
        let when = limit.settings.when.as_deref();
        limit.of_users == has_user && seen::holds(ctx, routed, &request.head, bytes, when)
    };
    let mut limits = policies.limits.iter().filter(counts);
    // Stops at the first limit that refuses, so that the request does not count against later ones.
    let counted = limits.try_for_each(|limit| {
        let verdict = match &limit.told {
            None => limit.limiter.admit(&seen, user, now_ns),
            Some(told) => {
                let (verdict, quota) = limit.limiter.admit_with_quota(&seen, user, now_ns);
                lines.extend_from_slice(told);
                let _ = write!(lines, ";r={};t={}\r\n", quota.remaining, quota.reset_seconds);
                verdict
            }
        };
        match verdict {
            RateVerdict::Admitted => Ok(()),
            RateVerdict::Refused { retry_after_seconds } => {
                state.retry_after_seconds = retry_after_seconds;
                Err(Failure::RateLimited)
            }
        }
    });
    request.texts.rate_limit = lines;
    counted
}

/// Checks whether the client's network may use the route. Called before rates, and for preflights.
pub(crate) fn admit_network(policies: &RoutePolicies, client: IpAddr) -> Result<(), Failure> {
    match &policies.access {
        Some(access) if access.access(client) == AccessDecision::Denied => Err(Failure::Forbidden),
        _ => Ok(()),
    }
}

/// Runs the route's action: chooses the upstream, rewrites the path, or begins a response in `out` up to its fields.
/// Called once the client is admitted; returns the rest of such a response.
pub(crate) fn act<'a>(
    ctx: &ExchangeContext<'a>,
    policies: &'a RoutePolicies,
    routed: &mut RoutedRequest,
    request: &mut CurrentRequest,
    out: &mut Vec<u8>,
) -> Result<Option<LocalResponse<'a>>, Failure> {
    let mut texts = std::mem::take(&mut request.texts);
    let mut path = std::mem::take(&mut texts.path);
    path.clear();
    texts.host.clear();
    let mut split_cookie = std::mem::take(&mut texts.split_cookie);
    split_cookie.clear();
    let bytes = request.head_bytes();
    let fields = RequestFields::new(&request.head, bytes);
    let exchange = edits::facts(ctx, policies, &PolicySubject::from_routed(routed), request, &fields, &texts);
    let mut located = Ok(());
    let answer = match &policies.action {
        Action::Upstream(upstream) => {
            routed.upstream = *upstream;
            None
        }
        Action::Split(split) => {
            routed.upstream = match &policies.split_key {
                None => split.draw(fastrand::u64(..)),
                Some(key) => side(ctx, split, key, routed, request, &fields, &mut split_cookie),
            };
            None
        }
        Action::Redirect(redirect) => {
            let status = redirect.status.code();
            answer::begin(out, status);
            out.extend_from_slice(b"Content-Length: 0\r\nLocation: ");
            located = redirect.location(&exchange, out);
            out.extend_from_slice(b"\r\n");
            Some(LocalResponse::Own { status, body: b"" })
        }
        Action::Respond(respond) => {
            let response = &respond.response;
            answer::begin(out, response.status());
            answer::push_content(out, response.status(), response.content_type(), response.body());
            Some(LocalResponse::Own { status: response.status(), body: response.body() })
        }
        Action::Files(_) => Some(LocalResponse::File),
    };
    let rewritten = match &policies.settings.rewrite.path {
        // Redirects and configured responses have no path for a server.
        Some(rewrite) if !matches!(answer, Some(LocalResponse::Own { .. })) => {
            let kept_target = kept_target(routed, &texts);
            rewrite.apply(&edits::with_kept_query(exchange, kept_target), &mut path)
        }
        _ => Ok(false),
    };
    // The token must not reach the server in the URL, which servers log.
    if let Some(name) = policies.tokens().and_then(|tokens| tokens.removed_parameter()) {
        let kept =
            kept_target(routed, &texts).unwrap_or_else(|| routed.target.path_and_query.for_bytes(bytes));
        if path.is_empty() {
            route::without_parameter(kept, name, &mut path);
        } else {
            route::without_parameter(&std::mem::take(&mut path), name, &mut path);
        }
    }
    texts.path = path;
    texts.split_cookie = split_cookie;
    request.texts = texts;
    // Errors are returned last, when the texts are back in the request.
    rewritten.map_err(|_| Failure::AmbiguousPath)?;
    located.map_err(|_| Failure::BadHost)?;
    Ok(answer)
}

/// Returns the upstream of a client that stays on one side of a split.
#[cold]
fn side(
    ctx: &ExchangeContext<'_>,
    split: &Split,
    key: &SplitKey,
    routed: &RoutedRequest,
    request: &CurrentRequest,
    fields: &RequestFields<'_>,
    set_cookie: &mut Vec<u8>,
) -> usize {
    let (bytes, target) = (request.head_bytes(), &routed.target);
    let path = target.path.for_bytes(bytes);
    let query = target.path_and_query.for_bytes(bytes).get(path.len() + 1..);
    let parts = SessionParts { client: routed.client, path, query, fields };
    let asking = SplitAsking {
        unix_seconds: ctx.worker.unix_seconds(),
        is_https: seen::is_secure(ctx, &request.head, bytes),
    };
    key.choose(split, &parts, asking, set_cookie)
}

pub(crate) enum LocalResponse<'a> {
    /// A response whose head is begun in `out`.
    Own { status: u16, body: &'a [u8] },
    /// The file that the rewritten path names.
    File,
}

/// Accepts the request ID that the caller sent, if the listener trusts it, or makes one.
#[inline(never)]
pub(crate) fn name_request(ctx: &ExchangeContext<'_>, request: &mut CurrentRequest) {
    let mut id = std::mem::take(&mut request.texts.id);
    id.clear();
    let ids = &ctx.snapshot.plan.config.request_ids;
    let fields = RequestFields::new(&request.head, request.head_bytes());
    let is_followed = tracing::follows(ids.follow, ctx.client.is_trusted);
    let brought = is_followed.then(|| route::FieldLookup::value(&fields, ids.header.as_bytes())).flatten();
    // The ID appears in log lines and fields, so it must consist of visible characters.
    let is_name = |value: &&[u8]| {
        (1..=REQUEST_ID_BYTES_MAX).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic)
    };
    match brought.filter(is_name) {
        Some(brought) => id.extend_from_slice(brought),
        None => {
            let trace = request.texts.trace.map(|trace| trace.trace_id);
            request_id::make(ids.form, trace, ctx.worker.unix_ms(), &mut id);
        }
    }
    request.texts.id = id;
}
