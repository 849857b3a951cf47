//! Explains which time-out has expired, with its value.

use std::time::Duration;

use config::{RouteLimits, RouteTimeouts, Settings, Timeouts, Upstream};

use crate::context::exchange_slot::SlotMemory;
use crate::context::routed::ExchangeContext;
use crate::failure::Failure;

/// Facts about a request that failed.
pub(crate) struct FailedRequest {
    pub(crate) route: Option<usize>,
    pub(crate) upstream: Option<usize>,
    /// Indices of upstream and server.
    pub(crate) server: Option<(usize, usize)>,
    /// Whether the head was sent to a server.
    pub(crate) is_asked: bool,
    pub(crate) is_tunnel: bool,
}

impl FailedRequest {
    /// Returns why the last connection to the server failed.
    pub(super) fn trouble(&self, ctx: &ExchangeContext<'_>) -> Option<String> {
        let (upstream, server) = self.server?;
        ctx.snapshot.upstreams[upstream].servers[server].trouble()
    }
}

/// Whether a connection to the server could not be made, so that `trouble` knows why.
pub(super) fn is_of_server(failure: Failure) -> bool {
    failure.is_of_handshake()
        || matches!(failure, Failure::UpstreamRefused | Failure::OutOfPorts | Failure::OutOfDescriptors)
}

/// Names the time-out of a request that has expired, if one did.
pub(super) fn over(
    ctx: &ExchangeContext<'_>,
    memory: &SlotMemory,
    known: &FailedRequest,
    failure: Failure,
) -> Option<String> {
    let config = &ctx.snapshot.plan.config;
    let all = &config.timeouts;
    let policies = known.route.and_then(|route| ctx.snapshot.plan.routes[route].policies.as_deref());
    let own = policies.map_or_else(RouteTimeouts::default, |policies| *policies.settings.timeouts);
    let own_limits = policies.map_or_else(RouteLimits::default, |policies| *policies.settings.limits);
    let of = |option: &str, own: Option<Duration>, all: Duration| match own {
        Some(limit) => format!("timeouts.{option} of the route, {limit:?}"),
        None => named(option, all),
    };
    let over = |what: &str, (option, own, all)| format!("{what} within {}", of(option, own, all));
    let rate = || {
        let limits = &config.limits;
        let (own_rate, own_window) = (own_limits.minimum_rate_bytes_per_second, own_limits.rate_window);
        let whose = if own_rate.or(own_window.map(|_| 0)).is_some() { " of the route" } else { "" };
        let rate = own_rate.unwrap_or(limits.minimum_rate_bytes_per_second);
        let window = own_window.unwrap_or(limits.rate_window);
        format!("limits.minimum_rate{whose}, {rate} bytes a second over {window:?}")
    };
    let tunnel = || idle(&of("tunnel_idle", own.tunnel_idle, all.tunnel_idle));
    let (_, has_whole_request) = memory.request.body.taken();
    Some(match failure {
        Failure::TunnelIdle => tunnel(),
        Failure::ClientStalled | Failure::UpstreamStalled if known.is_tunnel => tunnel(),
        Failure::ClientBodyTimeout => {
            over("the client sent no more of the body", ("client_body", own.client_body, all.client_body))
        }
        Failure::ClientTooSlow => format!("the client sent the body more slowly than {}", rate()),
        Failure::ClientStalled => {
            let limit = of("client_write", own.client_write, all.client_write);
            let limits = policies.and_then(|policies| policies.client_limits.as_deref());
            let slower = if limits.unwrap_or(&ctx.snapshot.client_limits).minimum_rate.is_some() {
                format!(", or the response more slowly than {}", rate())
            } else {
                String::new()
            };
            format!("the client read nothing within {limit}{slower}")
        }
        Failure::ClientBehind => {
            "the client was too slow for a response that is shared and too large to be stored".to_owned()
        }
        Failure::UpstreamConnectTimeout => {
            connecting(all, known.upstream.map(|upstream| &*config.upstreams[upstream]), known.trouble(ctx))
        }
        Failure::UpstreamTimeout if known.is_asked && !has_whole_request => {
            over("the server read no more of the request", sending(&own, all))
        }
        Failure::UpstreamTimeout => over(
            "the server did not begin to answer",
            ("upstream_first_byte", own.upstream_first_byte, all.upstream_first_byte),
        ),
        Failure::UpstreamStalled => {
            over("the server sent no more data", ("upstream_body", own.upstream_body, all.upstream_body))
        }
        Failure::RequestTimeout => over(
            "the response was not complete",
            ("request", own.request.flatten(), all.request.unwrap_or_default()),
        ),
        Failure::QueueTimeout => queued(&config.upstreams[known.upstream?]),
        // The server has room for requests, but not for connections.
        Failure::UpstreamFull if known.server.is_some() => return known.trouble(ctx),
        Failure::UpstreamFull => full(&config.upstreams[known.upstream?]),
        _ => return None,
    })
}

/// Returns the time-out for a server that reads a request: option, the route's value, the global value.
fn sending(own: &RouteTimeouts, all: &Timeouts) -> (&'static str, Option<Duration>, Duration) {
    match (own.upstream_send, all.upstream_send) {
        // `upstream_send` defaults to `upstream_body`.
        (None, None) => ("upstream_body", own.upstream_body, all.upstream_body),
        (of_route, of_all) => ("upstream_send", of_route, of_all.unwrap_or_default()),
    }
}

/// Names the time-out of a layer 4 connection that has expired, if one did.
pub(crate) fn over_connection(
    config: &Settings,
    upstream: Option<&Upstream>,
    trouble: Option<String>,
    failure: Failure,
) -> Option<String> {
    let all = &config.timeouts;
    Some(match failure {
        Failure::TunnelIdle | Failure::ClientStalled | Failure::UpstreamStalled => {
            idle(&named("tunnel_idle", all.tunnel_idle))
        }
        Failure::UpstreamConnectTimeout => connecting(all, upstream, trouble),
        Failure::QueueTimeout => queued(upstream?),
        Failure::UpstreamFull => full(upstream?),
        failure if is_of_server(failure) => return trouble,
        _ => return None,
    })
}

fn named(option: &str, limit: Duration) -> String {
    format!("timeouts.{option}, {limit:?}")
}

fn idle(limit: &str) -> String {
    format!("neither side sent anything within {limit}")
}

/// `step` is the step that did not complete.
fn connecting(timeouts: &Timeouts, upstream: Option<&Upstream>, step: Option<String>) -> String {
    let own = upstream.and_then(|upstream| Some((&upstream.name, upstream.pool.connect_timeout?)));
    let limit = match own {
        Some((name, limit)) => format!("pool.connect_timeout of '{name}', {limit:?}"),
        None => named("upstream_connect", timeouts.upstream_connect),
    };
    let step = step.as_deref().unwrap_or("there was no connection");
    format!("{step} within {limit}")
}

fn full(upstream: &Upstream) -> String {
    let length = upstream.queue.length;
    format!("no server has room, and the queue of '{}' is full: queue.length, {length}", upstream.name)
}

fn queued(upstream: &Upstream) -> String {
    format!("no server had room within queue.timeout of '{}', {:?}", upstream.name, upstream.queue.timeout)
}
