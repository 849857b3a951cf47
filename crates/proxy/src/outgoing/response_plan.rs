//! Decides how a response is sent, before its first byte is sent: the body's framing, the future of the client's
//! connection, and the filters.
//!
//! Responses from servers, from the cache and from the proxy itself are all planned here.

use http1::{BodyFraming, ClientConnection, HttpVersion, Method, is_bodiless};

use crate::body::filters::Filters;
use crate::context::client::AfterExchange;
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::shared::request_fields::fields_of_text;
use transport::tcp::Follows;

#[derive(Debug)]
pub(crate) struct ResponsePlan {
    /// The framing of the body for the client.
    pub(crate) framing: BodyFraming,
    /// The head's statement about the client's connection.
    pub(crate) client_connection: ClientConnection,
    /// Nearly always empty.
    pub(crate) filters: Filters,
}

impl ResponsePlan {
    /// Plans the final response to a routed request, from a server or from the cache. `source` is the framing in which
    /// the body arrives. `has_whole_request`: the whole request was received, so the next one may follow.
    pub(crate) fn new(
        ctx: &ExchangeContext<'_>,
        routed: &RoutedRequest,
        status: u16,
        source: BodyFraming,
        has_whole_request: bool,
    ) -> Self {
        let framing = match (source, routed.version) {
            // RFC 9112 §7.1: HTTP/1.0 has no chunks, so the end of the connection ends the body.
            (BodyFraming::Chunked | BodyFraming::UntilClose, HttpVersion::Http10) => BodyFraming::UntilClose,
            (BodyFraming::Chunked | BodyFraming::UntilClose, _) => BodyFraming::Chunked,
            (framing, _) => framing,
        };
        let persists = routed.connection.persists(routed.version)
            && framing != BodyFraming::UntilClose
            && has_whole_request
            && may_go_on(ctx);
        let client_connection = match (status, persists, routed.version) {
            (101, ..) => ClientConnection::Upgrade,
            (_, true, HttpVersion::Http10) => ClientConnection::KeepAlive,
            (_, true, _) => ClientConnection::Persist,
            (_, false, _) => ClientConnection::Close,
        };
        Self { framing, client_connection, filters: Filters::default() }
    }

    /// Plans a response of the proxy, whose whole body is known.
    pub(crate) fn own(framing: BodyFraming, persists: bool) -> Self {
        let client_connection = if persists { ClientConnection::Persist } else { ClientConnection::Close };
        Self { framing, client_connection, filters: Filters::default() }
    }

    /// Asserts in debug builds that a head states where its body ends. Otherwise a client would take the next response
    /// for the rest of this one (RFC 9112 §6.3).
    #[inline]
    pub(crate) fn check_end(&self, ctx: &ExchangeContext<'_>, routed: &RoutedRequest, head: &[u8]) {
        debug_assert!(
            self.ends_connection() || ctx.client.socket.frames_itself() || tells_end(routed.method, head),
            "the response has no end: {}",
            String::from_utf8_lossy(head)
        );
    }

    pub(crate) fn ends_connection(&self) -> bool {
        self.client_connection == ClientConnection::Close
    }

    /// Decides what happens to the client's connection after the response, if the whole request was received.
    pub(crate) fn next(&self) -> AfterExchange {
        if self.ends_connection() { AfterExchange::Close } else { AfterExchange::Reuse }
    }

    pub(crate) fn at_end(&self) -> Follows {
        if self.ends_connection() { Follows::Close } else { Follows::End }
    }

    /// Whether the body is sent in chunks: only over HTTP/1.1.
    pub(crate) fn is_chunked(&self, ctx: &ExchangeContext<'_>) -> bool {
        self.framing == BodyFraming::Chunked && !ctx.client.socket.frames_itself()
    }
}

/// Returns the framing of a body whose coding changes in transit. Its new length is unknown until its end. An empty
/// body stays empty: its length must be stated, unless the response has no body at all.
pub(crate) fn changed_framing(source: BodyFraming, status: u16, method: Method) -> BodyFraming {
    match source {
        BodyFraming::None if is_bodiless(status, method == Method::Head) => BodyFraming::None,
        BodyFraming::None | BodyFraming::Length(0) => BodyFraming::Length(0),
        BodyFraming::Length(_) | BodyFraming::Chunked | BodyFraming::UntilClose => BodyFraming::Chunked,
    }
}

/// Whether the client's connection may serve another request, apart from the present exchange.
pub(crate) fn may_go_on(ctx: &ExchangeContext<'_>) -> bool {
    let limit = ctx.snapshot.plan.config.limits.requests_per_connection;
    // A TLS connection whose keys are used up ends between two exchanges.
    limit.is_none_or(|limit| ctx.client.served < limit)
        && !ctx.client.socket.is_key_exhausted()
        && ctx.worker.keeps(&ctx.client.listening)
}

/// Whether an HTTP/1.1 head states where its body ends, on a connection that stays open.
fn tells_end(method: Method, head: &[u8]) -> bool {
    // The version before it has a fixed length.
    let status = head.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    let tells = |name: &[u8]| {
        name.eq_ignore_ascii_case(b"content-length") || name.eq_ignore_ascii_case(b"transfer-encoding")
    };
    status.is_some_and(|status| status == 101 || is_bodiless(status, method == Method::Head))
        || fields_of_text(head).any(|(name, _)| tells(name))
}
