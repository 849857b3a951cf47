//! The tables `[timeouts]` and `timeouts` of a route.

use std::time::Duration;

use crate::option::kind::{Maybe, Unless};
use crate::option::range::{DAY, UP_TO_A_DAY, UP_TO_A_YEAR, Wait};
use crate::option::table::{Inline, Table, key};

/// Time-outs. All are kept to within a tenth of a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first byte of a request (or from accept) to the end of its head; then 408.
    pub client_header: Duration,
    /// Without a byte of request body from the client; then 408.
    pub client_body: Duration,
    /// Without a byte of the response taken by the client; then the connection is dropped.
    pub client_write: Duration,
    /// Idle between two requests; then the connection is closed.
    pub keep_alive: Duration,
    /// To establish a connection to a server; then 504 (after the other addresses of its name).
    pub upstream_connect: Duration,
    /// From the end of the request to the head of the response; then 504.
    pub upstream_first_byte: Duration,
    /// Without a byte of response body; then the response is cut off.
    pub upstream_body: Duration,
    /// Without a byte of the request body taken by the server; then 504. `None` means `upstream_body`.
    pub upstream_send: Option<Duration>,
    /// Without a byte in either direction of an upgraded connection; then it is closed.
    pub tunnel_idle: Duration,
    /// For a whole request, from the end of its head to the end of the response; then 504. `None` means no limit.
    pub request: Option<Duration>,
    /// The longest time that a drain waits for requests to finish.
    pub drain: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            client_header: Duration::from_secs(10),
            client_body: Duration::from_secs(30),
            client_write: Duration::from_secs(30),
            keep_alive: Duration::from_secs(75),
            upstream_connect: Duration::from_secs(5),
            upstream_first_byte: Duration::from_secs(60),
            upstream_body: Duration::from_secs(60),
            upstream_send: None,
            tunnel_idle: Duration::from_secs(3600),
            request: None,
            drain: Duration::from_secs(30),
        }
    }
}

/// Time-outs of one route; `None` means the value in `Settings::timeouts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RouteTimeouts {
    pub client_body: Option<Duration>,
    pub client_write: Option<Duration>,
    pub upstream_first_byte: Option<Duration>,
    pub upstream_body: Option<Duration>,
    pub upstream_send: Option<Duration>,
    pub tunnel_idle: Option<Duration>,
    pub request: Option<Option<Duration>>,
}

impl Timeouts {
    /// These time-outs, with those that a route has itself.
    pub fn with(&self, own: &RouteTimeouts) -> Self {
        Self {
            client_body: own.client_body.unwrap_or(self.client_body),
            client_write: own.client_write.unwrap_or(self.client_write),
            upstream_first_byte: own.upstream_first_byte.unwrap_or(self.upstream_first_byte),
            upstream_body: own.upstream_body.unwrap_or(self.upstream_body),
            upstream_send: own.upstream_send.or(self.upstream_send),
            tunnel_idle: own.tunnel_idle.unwrap_or(self.tunnel_idle),
            request: own.request.unwrap_or(self.request),
            ..*self
        }
    }
}

const DEADLINE: Unless<Wait> = Unless { word: "none", kind: UP_TO_A_DAY };
const REQUEST: &str = "For a whole request, from the end of its header section: delays, reading its body, queue, all \
                       attempts and the response; then 504. A server that had at least half of this time and did not \
                       answer counts as failed (`eject`, `breaker`). If a part of the response has been sent, the connection or the stream \
                       is reset. Upgraded connections (WebSocket) have no such limit. `\"none\"`: no limit.";

pub(crate) static TIMEOUTS: Table<Timeouts> = Table {
    options: &[
        key!(
            "client_header",
            UP_TO_A_DAY,
            Timeouts.client_header,
            "From the first byte of a request, or from accept, to the end of its header section; then 408, \
             or with HTTP/2 the connection is closed.",
        ),
        key!(
            "client_body",
            UP_TO_A_DAY,
            Timeouts.client_body,
            "Without a byte of the request body from the client, until the response begins; then 408. Does \
             not count while the client waits for `100 Continue`.",
        ),
        key!(
            "client_write",
            UP_TO_A_DAY,
            Timeouts.client_write,
            "Without the client accepting a byte of the response; then the connection is reset.",
        ),
        key!(
            "keep_alive",
            UP_TO_A_DAY,
            Timeouts.keep_alive,
            "Idle time of a client connection between two requests; then it is closed.",
        ),
        key!(
            "upstream_connect",
            UP_TO_A_DAY,
            Timeouts.upstream_connect,
            "To connect to a server; then the next address of its name is tried, and after the last the \
             client gets 504. `pool.connect_timeout` of an upstream replaces it.",
        ),
        key!(
            "upstream_first_byte",
            UP_TO_A_DAY,
            Timeouts.upstream_first_byte,
            "From the end of the request to the header section of the response; then 504.",
        ),
        key!(
            "upstream_body",
            UP_TO_A_DAY,
            Timeouts.upstream_body,
            "Without a byte of the response body from the server, while no byte of the request body moves \
             either; then the response is aborted.",
        ),
        key!(
            "upstream_send",
            Maybe(UP_TO_A_DAY),
            Timeouts.upstream_send,
            "Without the server accepting a byte of the request body; then 504. Default: `upstream_body`.",
        ),
        key!(
            "tunnel_idle",
            UP_TO_A_YEAR,
            Timeouts.tunnel_idle,
            "Without a byte in either direction of an upgraded connection (WebSocket) or a `tcp` \
             connection; then it is closed.",
        ),
        key!("request", DEADLINE, Timeouts.request, REQUEST),
        key!(
            "drain",
            Wait { range: Duration::ZERO..=DAY },
            Timeouts.drain,
            "How long a drain waits for running requests.",
        ),
    ],
};

pub(crate) const ROUTE_TIMEOUTS: Inline<RouteTimeouts> = Inline {
    title: "timeouts",
    example: "{ upstream_first_byte = \"5m\" }",
    table: &Table {
        options: &[
            key!(
                "client_body",
                Maybe(UP_TO_A_DAY),
                RouteTimeouts.client_body,
                "Without a byte of the request body from the client, until the response begins; then 408. \
                 Raise it for streams with long pauses, such as gRPC.",
            ),
            key!(
                "client_write",
                Maybe(UP_TO_A_DAY),
                RouteTimeouts.client_write,
                "Without the client accepting a byte of the response; then the connection is reset.",
            ),
            key!(
                "upstream_first_byte",
                Maybe(UP_TO_A_DAY),
                RouteTimeouts.upstream_first_byte,
                "From the end of the request to the header section of the response; then 504.",
            ),
            key!(
                "upstream_body",
                Maybe(UP_TO_A_DAY),
                RouteTimeouts.upstream_body,
                "Without a byte of the response body from the server, while no byte of the request body \
                 moves either; then the response is aborted.",
            ),
            key!(
                "upstream_send",
                Maybe(UP_TO_A_DAY),
                RouteTimeouts.upstream_send,
                "Without the server accepting a byte of the request body; then 504. Default: that of \
                 `[timeouts]`, else `upstream_body`.",
            ),
            key!(
                "tunnel_idle",
                Maybe(UP_TO_A_YEAR),
                RouteTimeouts.tunnel_idle,
                "Without a byte in either direction of an upgraded connection (WebSocket); then it is \
                 closed.",
            ),
            key!("request", Maybe(DEADLINE), RouteTimeouts.request, REQUEST),
        ],
    },
};
