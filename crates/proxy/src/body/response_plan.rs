//! Decides how a response is sent, before its first byte leaves: the framing of the body, the future of the client's
//! connection, and the filters.
//!
//! Responses of servers, of the cache and of the proxy itself are all planned here, and written according to the plan.

use http1::{ClientConnection, Framing, Version};

use crate::body::filters::Filters;
use crate::context::client::Next;
use crate::context::exchange::{ExchangeContext, RoutedRequest};
use transport::tcp::Follows;

/// The decisions about a response.
#[derive(Debug)]
pub(crate) struct ResponsePlan {
    /// The framing of the body that the client gets.
    pub(crate) framing: Framing,
    /// The head's statement about the client's connection.
    pub(crate) client_connection: ClientConnection,
    /// The filters of the response; nearly always empty.
    pub(crate) filters: Filters,
}

impl ResponsePlan {
    /// Plans the final response to a routed request, from a server or from the cache. `source` is the framing in which
    /// the body arrives; `has_whole_request` tells whether the whole request was received, so that the next one may
    /// follow.
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

    /// Plans a response of the proxy's own, whose whole body is known.
    pub(crate) fn own(framing: Framing, persists: bool) -> Self {
        let client_connection = if persists { ClientConnection::Persist } else { ClientConnection::Close };
        Self { framing, client_connection, filters: Filters::default() }
    }

    /// Whether the connection ends after the response.
    pub(crate) fn ends_connection(&self) -> bool {
        self.client_connection == ClientConnection::Close
    }

    /// What becomes of the client's connection after the response, if the whole request was received.
    pub(crate) fn next(&self) -> Next {
        if self.ends_connection() { Next::Close } else { Next::Reuse }
    }

    /// What follows the last byte of the response.
    pub(crate) fn at_end(&self) -> Follows {
        if self.ends_connection() { Follows::Close } else { Follows::End }
    }

    /// Whether the body leaves in chunks: on a connection without framing of its own (HTTP/1.1).
    pub(crate) fn is_chunked(&self, ctx: &ExchangeContext<'_>) -> bool {
        self.framing == Framing::Chunked && !ctx.client.socket.frames_itself()
    }
}

/// Whether the client's connection may serve another request, apart from the present exchange.
pub(crate) fn may_go_on(ctx: &ExchangeContext<'_>) -> bool {
    let limit = ctx.snapshot.plan.config.limits.requests_per_connection;
    limit.is_none_or(|limit| ctx.client.served < limit)
        && !ctx.client.socket.is_key_exhausted()
        && ctx.worker.keeps(&ctx.client.listening)
}
