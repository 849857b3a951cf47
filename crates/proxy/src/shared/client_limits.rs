//! Limits on clients and servers, global or of a route: sizes, minimum rate, time-outs.

use crate::shared::minimum_rate::MinimumRate;
use transport::deadline::Ticks;

/// The limits on a client: sizes and minimum rate.
pub(crate) struct ClientLimits {
    /// `None` is unlimited.
    pub(crate) body_bytes: Option<u64>,
    pub(crate) minimum_rate: Option<MinimumRate>,
}

impl ClientLimits {
    /// Returns the limits of a route that sets some of them.
    pub(crate) fn of_route(limits: &config::Limits, own: &config::RouteLimits) -> Self {
        let bytes_per_second =
            own.minimum_rate_bytes_per_second.unwrap_or(limits.minimum_rate_bytes_per_second);
        let window = own.rate_window.unwrap_or(limits.rate_window);
        Self {
            body_bytes: own.body_bytes.unwrap_or(limits.body_bytes),
            minimum_rate: MinimumRate::new(bytes_per_second, window),
        }
    }
}

pub(crate) struct TimeoutTicks {
    pub(crate) client_header: Ticks,
    pub(crate) client_body: Ticks,
    pub(crate) client_write: Ticks,
    pub(crate) keep_alive: Ticks,
    pub(crate) upstream_first_byte: Ticks,
    pub(crate) upstream_body: Ticks,
    pub(crate) upstream_send: Ticks,
    pub(crate) tunnel_idle: Ticks,
    /// For a whole request; `None` is unlimited.
    pub(crate) request: Option<Ticks>,
}

impl TimeoutTicks {
    pub(crate) fn new(timeouts: &config::Timeouts) -> Self {
        Self {
            client_header: timeouts.client_header.into(),
            client_body: timeouts.client_body.into(),
            client_write: timeouts.client_write.into(),
            keep_alive: timeouts.keep_alive.into(),
            upstream_first_byte: timeouts.upstream_first_byte.into(),
            upstream_body: timeouts.upstream_body.into(),
            upstream_send: timeouts.upstream_send.unwrap_or(timeouts.upstream_body).into(),
            tunnel_idle: timeouts.tunnel_idle.into(),
            request: timeouts.request.map(Ticks::from),
        }
    }

    /// Returns the time-outs of a route that sets some of them.
    pub(crate) fn of_route(timeouts: &config::Timeouts, own: &config::RouteTimeouts) -> Self {
        Self::new(&timeouts.with(own))
    }
}
