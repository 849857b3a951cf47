//! Lifetimes of stored responses by the conditions of a route (`cache.rules`).

use ::cache::Object;

use crate::context::exchange_slot::{CurrentRequest, CurrentResponse, SlotMemory};
use crate::context::later::{self, KnownResponse};
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::forward::Reply;

/// Returns the lifetime that a rule sets for a server's response, in milliseconds; 0 forbids storing it.
pub(super) fn of_response(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &CurrentRequest,
    response: &CurrentResponse,
    reply: &Reply,
) -> Option<u64> {
    let (status, head) = (response.head.start.status, &response.buffer.filled()[..response.head.len]);
    let server = &ctx.snapshot.plan.upstreams[reply.upstream].servers[reply.server];
    // Another instance that has answered is no server of the route.
    let server = if reply.upstream == routed.upstream.get() { server.authority.as_str() } else { "" };
    later::ttl_ms(ctx, routed, request, KnownResponse { status, head, size: None, server })
}

/// Returns the lifetime that a rule sets for a stored response, which a server's response renews.
pub(super) fn of_renewed(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    SlotMemory { request, response, .. }: &SlotMemory,
    object: &Object,
) -> Option<u64> {
    if ctx.snapshot.plan.config.routes[routed.route].cache_rules.is_empty() {
        return None;
    }
    // RFC 9111 §3.2: the new fields replace stored ones of the same name, so they are found first.
    let head = [&response.buffer.filled()[..response.head.len], object.head()].concat();
    let (status, size) = (object.stored().status, Some(object.body_bytes()));
    later::ttl_ms(ctx, routed, request, KnownResponse { status, head: &head, size, server: "" })
}
