//! The options `timeouts` and `limits` of a route.

use std::time::Duration;

use crate::kind::{Maybe, Unless};
use crate::options::{UP_TO_A_DAY, UP_TO_A_YEAR};
use crate::range::{Count, Unit, Wait};
use crate::settings::{RouteLimits, RouteTimeouts};
use crate::table::{Inline, Table, key};

pub(crate) const TIMEOUTS: Inline<RouteTimeouts> = Inline {
    title: "timeouts",
    example: "{ upstream_first_byte = \"5m\" }",
    table: &Table {
        options: &[
            &key(
                "client_body",
                Maybe(UP_TO_A_DAY),
                |timeouts: &mut RouteTimeouts| &mut timeouts.client_body,
                "Without a byte of the request body from the client, until the response begins; then 408. \
                 Raise it for streams with long pauses, such as gRPC.",
            ),
            &key(
                "client_write",
                Maybe(UP_TO_A_DAY),
                |timeouts: &mut RouteTimeouts| &mut timeouts.client_write,
                "Without the client accepting a byte of the response; then the connection is reset.",
            ),
            &key(
                "upstream_first_byte",
                Maybe(UP_TO_A_DAY),
                |timeouts: &mut RouteTimeouts| &mut timeouts.upstream_first_byte,
                "From the end of the request to the header section of the response; then 504.",
            ),
            &key(
                "upstream_body",
                Maybe(UP_TO_A_DAY),
                |timeouts: &mut RouteTimeouts| &mut timeouts.upstream_body,
                "Without a byte of the response body from the server, while no byte of the request body \
                 moves either; then the response is aborted.",
            ),
            &key(
                "upstream_send",
                Maybe(UP_TO_A_DAY),
                |timeouts: &mut RouteTimeouts| &mut timeouts.upstream_send,
                "Without the server accepting a byte of the request body; then 504. Default: that of \
                 `[timeouts]`, else `upstream_body`.",
            ),
            &key(
                "tunnel_idle",
                Maybe(UP_TO_A_YEAR),
                |timeouts: &mut RouteTimeouts| &mut timeouts.tunnel_idle,
                "Without a byte in either direction of an upgraded connection (WebSocket); then it is \
                 closed.",
            ),
        ],
    },
};

pub(crate) const LIMITS: Inline<RouteLimits> = Inline {
    title: "limits",
    example: "{ body_bytes = \"1GB\" }",
    table: &Table {
        options: &[
            &key(
                "body_bytes",
                Maybe(Unless { word: "none", kind: Count { range: 0..=u64::MAX, unit: Unit::Bytes } }),
                |limits: &mut RouteLimits| &mut limits.body_bytes,
                "Request body; beyond it 413. `\"none\"`: no limit.",
            ),
            &key(
                "minimum_rate",
                Maybe(Count { range: 0..=1_000_000_000, unit: Unit::BytesPerSecond }),
                |limits: &mut RouteLimits| &mut limits.minimum_rate_bytes_per_second,
                "Minimum rate, averaged over `rate_window`, at which a client must send a request body or \
                 accept a response; slower clients are disconnected. 0: no minimum.",
            ),
            &key(
                "rate_window",
                Maybe(Wait { range: Duration::from_secs(1)..=Duration::from_secs(3600) }),
                |limits: &mut RouteLimits| &mut limits.rate_window,
                "Averaging period of `minimum_rate`.",
            ),
        ],
    },
};
