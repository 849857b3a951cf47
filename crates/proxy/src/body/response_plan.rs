//! The one decision about a response before its first byte leaves: how the client is told where the body ends, what becomes
//! of the client's connection, and which filters the response passes through.
//!
//! Responses of servers, of the cache and of the proxy itself are all planned here, and written by what the plan says.

use http1::{ClientConnection, Framing, Version};

use crate::body::filters::Filters;
use crate::context::client::Next;
use crate::context::exchange::{ExchangeContext, RoutedRequest};
use transport::tcp::Follows;

/// What is decided about a response.
#[derive(Debug)]
pub(crate) struct ResponsePlan {
    /// How the client is told where the body ends.
    pub(crate) framing: Framing,
    /// What the head says of the client's connection.
    pub(crate) client_connection: ClientConnection,
    /// What changes the response on its way; empty for nearly every one.
    pub(crate) filters: Filters,
}

impl ResponsePlan {
    /// Plans the final response to a routed request, from a server or from the cache. `source` is how its body comes;
    /// `has_whole_request` tells whether all of the request has been taken, so that the next one can follow it.
    pub(crate) fn new(
        ctx: &ExchangeContext<'_>,
        routed: &RoutedRequest,
        status: u16,
        source: Framing,
        has_whole_request: bool,
    ) -> Self {
        let framing = match (source, routed.version) {
            // RFC 9112 §7.1: HTTP/1.0 knows no chunks; there the end of the connection ends the body.
            (Framing::Chunked | Framing::UntilClose, Version::Http10) => Framing::UntilClose,
            (Framing::Chunked | Framing::UntilClose, _) => Framing::Chunked,
            (framing, _) => framing,
        };
        let persists = routed.connection.persists(routed.version)
            && framing != Framing::UntilClose
            && has_whole_request
            && may_go_on(ctx);
        let client_connection = match (status, persists, routed.version) {
            (101, ..) => ClientConnection::Upgrade,
            (_, true, Version::Http10) => ClientConnection::KeepAlive,
            (_, true, _) => ClientConnection::Persist,
            (_, false, _) => ClientConnection::Close,
        };
        Self { framing, client_connection, filters: Filters::default() }
    }

    /// Plans an answer of the proxy's own, whose body is all here.
    pub(crate) fn own(framing: Framing, persists: bool) -> Self {
        let client_connection = if persists { ClientConnection::Persist } else { ClientConnection::Close };
        Self { framing, client_connection, filters: Filters::default() }
    }

    /// Whether the connection ends behind the response.
    pub(crate) fn ends_connection(&self) -> bool {
        self.client_connection == ClientConnection::Close
    }

    /// What becomes of the client's connection behind the response, if the request was read as a whole.
    pub(crate) fn next(&self) -> Next {
        if self.ends_connection() { Next::Close } else { Next::Reuse }
    }

    /// What the last byte is sent with.
    pub(crate) fn at_end(&self) -> Follows {
        if self.ends_connection() { Follows::Close } else { Follows::End }
    }

    /// Whether the body leaves in chunks: on a connection that frames nothing itself.
    pub(crate) fn is_chunked(&self, ctx: &ExchangeContext<'_>) -> bool {
        self.framing == Framing::Chunked && !ctx.client.socket.frames_itself()
    }
}

/// Whether the client's connection may serve another request, as far as the present one does not decide.
pub(crate) fn may_go_on(ctx: &ExchangeContext<'_>) -> bool {
    let limit = ctx.snapshot.plan.config.limits.requests_per_connection;
    limit.is_none_or(|limit| ctx.client.served < limit)
        && !ctx.client.socket.is_key_exhausted()
        && ctx.worker.keeps(&ctx.client.listening)
}
