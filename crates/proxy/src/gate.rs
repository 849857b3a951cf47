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
/// Limits on requests under way.
pub(crate) mod concurrency;
/// The action of a route.
mod action;

use std::io::Write as _;

use config::DenyRule;
use route::{AccessDecision, RateVerdict, RequestConditions};

use crate::context::exchange_slot::CurrentRequest;
use crate::context::later;
use crate::context::plan::{Limit, RoutePolicies};
use crate::context::request_values::RequestValues;
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::context::seen::{self, RequestFields, SeenConditions};
use crate::exchange::ExchangeState;
use crate::failure::Failure;
use crate::shared::tracing;
pub(crate) use action::{LocalResponse, act, take_else_path};

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
    admit_network(ctx, policies, routed, request, state)?;
    if let Some(maintenance) = &policies.settings.options.maintenance
        && maintenance.refuses(routed.client)
    {
        // With 0, clients would come back at once.
        state.retry_after_seconds = maintenance.retry_after.as_secs().max(1);
        return Err(Failure::Maintenance);
    }
    if policies.limits.is_empty() { Ok(()) } else { count(ctx, policies, routed, request, state, false) }
}

/// Counts a request against rate limits: those whose key depends on the user (`has_user`, after authentication), or the
/// others (before it).
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
    let unknown = SeenConditions::new(ctx, routed, &request.head, bytes);
    let known = RequestValues::from_routed(ctx, routed, request);
    let conditions: &dyn RequestConditions = if has_user { &known } else { &unknown };
    let seen = seen::request(ctx, &routed.target, bytes, routed.client, &fields, &request.head);
    let seen = route::RequestParts { conditions, ..seen };
    let user = if has_user { policies.user(routed.user, request.texts.user()) } else { "" };
    let now_ns = ctx.worker.time_ns();
    let counts = |limit: &&Limit| {
        limit.of_users == has_user && later::holds(ctx, routed, request, limit.settings.when.as_deref())
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

/// Checks whether the client's network may use the route, and whether a condition denies the request. Called before
/// rates, and for preflights.
pub(crate) fn admit_network(
    ctx: &ExchangeContext<'_>,
    policies: &RoutePolicies,
    routed: &RoutedRequest,
    request: &CurrentRequest,
    state: &mut ExchangeState<'_>,
) -> Result<(), Failure> {
    let Some(access) = &policies.access else { return Ok(()) };
    if access.networks.access(routed.client) == AccessDecision::Denied {
        return Err(Failure::Forbidden);
    }
    let (head, bytes) = (&request.head, request.head_bytes());
    let denies = |rule: &&DenyRule| seen::holds(ctx, routed, head, bytes, Some(&rule.when));
    match access.rules.iter().find(denies) {
        Some(rule) => {
            state.denied_status = rule.status;
            Err(Failure::Denied)
        }
        None => Ok(()),
    }
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
