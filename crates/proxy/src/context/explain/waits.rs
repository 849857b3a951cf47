//! Explains which time-out has expired, with its value.

use std::time::Duration;

use config::{RouteLimits, RouteTimeouts, Settings, Timeouts, Upstream};

use crate::context::exchange::ExchangeContext;
use crate::context::exchange_slot::Memory;
use crate::context::failure::Failure;

/// Facts about a request that failed.
pub(crate) struct Known {
    /// The index of the route.
    pub(crate) route: Option<usize>,
    /// The index of the upstream.
    pub(crate) upstream: Option<usize>,
    /// Whether the head was sent to a server.
    pub(crate) is_asked: bool,
    /// Whether the connection has become a tunnel.
    pub(crate) is_tunnel: bool,
}

/// Explains which time-out of a request expired, if one did.
pub(super) fn over(
    ctx: &ExchangeContext<'_>,
    memory: &Memory,
    known: &Known,
    failure: Failure,
) -> Option<String> {
    let config = &ctx.snapshot.plan.config;
    let all = &config.timeouts;
    let policies = known.route.and_then(|route| ctx.snapshot.plan.routes[route].policies.as_deref());
    let own = policies.map_or_else(RouteTimeouts::default, |policies| policies.settings.timeouts);
    let own_limits = policies.map_or_else(RouteLimits::default, |policies| policies.settings.limits);
    let of = |option: &str, own: Option<Duration>, all: Duration| match own {
        Some(limit) => format!("timeouts.{option} of the route, {limit:?}"),
        None => named(option, all),
    };
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
            format!("no more of the body came within {}", of("client_body", own.client_body, all.client_body))
        }
        Failure::ClientTooSlow => format!("the body came more slowly than {}", rate()),
        Failure::ClientStalled => {
            let limit = of("client_write", own.client_write, all.client_write);
            let limits = policies.and_then(|policies| policies.client_limits.as_ref());
            let slower = if limits.unwrap_or(&ctx.snapshot.client_limits).minimum_rate.is_some() {
                format!(", or the response more slowly than {}", rate())
            } else {
                String::new()
            };
            format!("the client took nothing within {limit}{slower}")
        }
        Failure::UpstreamConnectTimeout => {
            connecting(all, known.upstream.map(|upstream| &config.upstreams[upstream]))
        }
        Failure::UpstreamTimeout if known.is_asked && !has_whole_request => {
            let limit = match (own.upstream_send, all.upstream_send) {
                (None, None) => of("upstream_body", own.upstream_body, all.upstream_body),
                (of_route, of_all) => of("upstream_send", of_route, of_all.unwrap_or_default()),
            };
            format!("the server took no more of the request within {limit}")
        }
        Failure::UpstreamTimeout => {
            let limit = of("upstream_first_byte", own.upstream_first_byte, all.upstream_first_byte);
            format!("the server did not begin to answer within {limit}")
        }
        Failure::UpstreamStalled => {
            let limit = of("upstream_body", own.upstream_body, all.upstream_body);
            format!("no more of the answer came within {limit}")
        }
        Failure::QueueTimeout => queued(&config.upstreams[known.upstream?]),
        _ => return None,
    })
}

/// Explains which time-out of a layer 4 connection expired, if one did.
pub(crate) fn over_connection(
    config: &Settings,
    upstream: Option<&Upstream>,
    failure: Failure,
) -> Option<String> {
    let all = &config.timeouts;
    Some(match failure {
        Failure::TunnelIdle | Failure::ClientStalled | Failure::UpstreamStalled => {
            idle(&named("tunnel_idle", all.tunnel_idle))
        }
        Failure::UpstreamConnectTimeout => connecting(all, upstream),
        Failure::QueueTimeout => queued(upstream?),
        _ => return None,
    })
}

fn named(option: &str, limit: Duration) -> String {
    format!("timeouts.{option}, {limit:?}")
}

fn idle(limit: &str) -> String {
    format!("neither side sent anything within {limit}")
}

fn connecting(timeouts: &Timeouts, upstream: Option<&Upstream>) -> String {
    let own = upstream.and_then(|upstream| Some((&upstream.name, upstream.pool.connect_timeout?)));
    let limit = match own {
        Some((name, limit)) => format!("pool.connect_timeout of '{name}', {limit:?}"),
        None => named("upstream_connect", timeouts.upstream_connect),
    };
    format!("there was no connection within {limit}")
}

fn queued(upstream: &Upstream) -> String {
    format!("no server had room within queue.timeout of '{}', {:?}", upstream.name, upstream.queue.timeout)
}
