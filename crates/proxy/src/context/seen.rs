//! A request as routes and policies see it.

use std::cell::OnceCell;
use std::net::IpAddr;

use expression::{Expression, ExpressionTrace, Value, ValueMemory};
use http1::{BodyFraming, Chain, RequestHead, RequestTarget, host_without_port};
use route::{MapLookup, RequestConditions, RequestSource, TlsFacts};

use crate::context::client_tls::ClientTls;
use crate::context::request_values;
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::shared::live_maps::MapsView;
pub(crate) use crate::shared::request_fields::{RequestFields, line, query};

/// Returns the request as routes see it: host, path, fields, client.
pub(crate) fn request<'a>(
    ctx: &ExchangeContext<'_>,
    target: &RequestTarget,
    bytes: &'a [u8],
    client: IpAddr,
    fields: &'a RequestFields<'a>,
    head: &RequestHead,
) -> route::RequestParts<'a, RequestFields<'a>> {
    route::RequestParts {
        // A removed listener matches no rule.
        listener: ctx.client.listening.place().unwrap_or(usize::MAX),
        host: host_without_port(target.authority.for_bytes(bytes)),
        path: target.path.for_bytes(bytes),
        query: query(target, bytes),
        method: head.start.method_span.for_bytes(bytes),
        client,
        fields,
        conditions: &route::NoConditions,
    }
}

/// A request as conditions and values see it. Each fact is computed when an expression asks for it.
pub(crate) struct SeenConditions<'a> {
    ctx: ExchangeContext<'a>,
    routed: &'a RoutedRequest,
    head: &'a RequestHead,
    bytes: &'a [u8],
    fields: RequestFields<'a>,
    /// The maps in force, from the first look-up on.
    maps: OnceCell<MapsView<'a>>,
}

impl<'a> SeenConditions<'a> {
    #[inline]
    pub(crate) fn new(
        ctx: &ExchangeContext<'a>,
        routed: &'a RoutedRequest,
        head: &'a RequestHead,
        bytes: &'a [u8],
    ) -> Self {
        let fields = RequestFields::new(head, bytes);
        Self { ctx: *ctx, routed, head, bytes, fields, maps: OnceCell::new() }
    }
}

impl<'a> RequestSource for SeenConditions<'a> {
    type Fields = RequestFields<'a>;

    fn method(&self) -> &[u8] {
        self.head.start.method_span.for_bytes(self.bytes)
    }

    fn host(&self) -> &[u8] {
        host_without_port(self.routed.target.authority.for_bytes(self.bytes))
    }

    fn query(&self) -> Option<&[u8]> {
        query(&self.routed.target, self.bytes)
    }

    fn fields(&self) -> &RequestFields<'a> {
        &self.fields
    }

    fn scheme(&self) -> &str {
        scheme(&self.ctx, self.head, self.bytes)
    }

    fn version(&self) -> &str {
        self.head.start.version.number()
    }

    fn size(&self) -> Option<u64> {
        match self.routed.framing {
            BodyFraming::None => Some(0),
            BodyFraming::Length(length) => Some(length),
            BodyFraming::Chunked | BodyFraming::UntilClose => None,
        }
    }

    fn client(&self) -> IpAddr {
        self.routed.client
    }

    fn client_port(&self) -> u16 {
        self.ctx.client.port
    }

    fn listener(&self) -> &str {
        let listeners = &self.ctx.snapshot.plan.config.listeners;
        self.ctx.client.listening.place().map_or("", |place| &listeners[place].name)
    }

    fn tls(&self) -> TlsFacts<'_> {
        self.ctx.client.tls.as_deref().map(ClientTls::variables).unwrap_or_default()
    }

    fn time_ns(&self) -> i64 {
        request_values::time_ns(&self.ctx)
    }

    fn lookup(&self, map: u16, key: Value<'_>) -> Option<Value<'_>> {
        let worker = self.ctx.worker;
        let maps = self.maps.get_or_init(|| self.ctx.snapshot.plan.maps.view(worker.index, worker.unix_ms()));
        maps.lookup(map, key)
    }

    fn memory(&self) -> Option<&ValueMemory> {
        Some(self.ctx.values)
    }
}

/// Whether the condition of an option holds for a request; true without one.
#[inline]
pub(crate) fn holds(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    head: &RequestHead,
    bytes: &[u8],
    condition: Option<&Expression>,
) -> bool {
    condition.is_none_or(|condition| {
        let condition = ctx.snapshot.conditions.own(condition);
        let path = routed.target.path.for_bytes(bytes);
        SeenConditions::new(ctx, routed, head, bytes).hold(condition, path)
    })
}

impl RequestConditions for SeenConditions<'_> {
    fn hold(&self, condition: &Expression, path: &[u8]) -> bool {
        let scratch = &mut self.ctx.worker.expression_scratch.borrow_mut();
        self.hold_with(condition, path, scratch)
    }

    fn explain(&self, condition: &Expression, path: &[u8]) -> ExpressionTrace {
        self.explain_with(condition, path)
    }

    fn value(&self, value: &Expression, path: &[u8], then: &mut dyn FnMut(&[u8])) {
        let scratch = &mut self.ctx.worker.expression_scratch.borrow_mut();
        self.value_with(value, path, scratch, then);
    }
}

/// Returns the chain of proxies that a trusted peer reports; `None` if the peer is not trusted.
#[inline]
pub(crate) fn chain(ctx: &ExchangeContext<'_>, head: &RequestHead, bytes: &[u8]) -> Option<Chain> {
    // Any other client could forge these fields.
    if ctx.client.is_trusted { Some(read_chain(ctx, head, bytes)) } else { None }
}

#[cold]
fn read_chain(ctx: &ExchangeContext<'_>, head: &RequestHead, bytes: &[u8]) -> Chain {
    Chain::new(head, bytes, ctx.client.address, |address| ctx.snapshot.plan.trusts(address))
}

/// Returns the client's address: the peer's, or the one that a trusted peer reports.
#[inline]
pub(crate) fn client(ctx: &ExchangeContext<'_>, head: &RequestHead, bytes: &[u8]) -> IpAddr {
    chain(ctx, head, bytes).map_or(ctx.client.address, |chain| chain.address)
}

/// Returns the scheme that the peer used, to this proxy or to the one that sent its PROXY header.
#[inline]
pub(crate) fn scheme_of_peer(ctx: &ExchangeContext<'_>) -> &'static str {
    let is_secure_before = || ctx.client.original_connection.as_ref().is_some_and(|known| known.is_secure);
    if ctx.client.tls.is_some() || is_secure_before() { "https" } else { "http" }
}

/// Returns the scheme that the client used, as reported by trusted proxies.
#[inline]
pub(crate) fn scheme(ctx: &ExchangeContext<'_>, head: &RequestHead, bytes: &[u8]) -> &'static str {
    let told = chain(ctx, head, bytes).and_then(|chain| chain.scheme(head, bytes));
    told.unwrap_or_else(|| scheme_of_peer(ctx))
}

/// Returns the authority that the client requested, with a port if it named one: from Host, or as a trusted proxy
/// reports it.
pub(crate) fn authority<'a>(
    ctx: &ExchangeContext<'_>,
    head: &RequestHead,
    bytes: &'a [u8],
    target: &RequestTarget,
) -> &'a [u8] {
    let told = chain(ctx, head, bytes).and_then(|chain| chain.host(head, bytes));
    told.unwrap_or_else(|| target.authority.for_bytes(bytes))
}

pub(crate) fn url(
    ctx: &ExchangeContext<'_>,
    head: &RequestHead,
    bytes: &[u8],
    target: &RequestTarget,
) -> Vec<u8> {
    let authority = authority(ctx, head, bytes, target);
    let path = target.path_and_query.for_bytes(bytes);
    [scheme(ctx, head, bytes).as_bytes(), b"://", authority, path].concat()
}

/// Returns the port that the client requested: as a trusted proxy reports it, else from the authority, else the
/// scheme's default.
pub(crate) fn port(
    ctx: &ExchangeContext<'_>,
    head: &RequestHead,
    bytes: &[u8],
    target: &RequestTarget,
) -> u16 {
    let told = chain(ctx, head, bytes).and_then(|chain| chain.port(head, bytes));
    let written = || {
        let authority = authority(ctx, head, bytes, target);
        let port = authority.get(host_without_port(authority).len() + 1..)?;
        std::str::from_utf8(port).ok()?.parse().ok()
    };
    let usual = || if scheme(ctx, head, bytes) == "https" { 443 } else { 80 };
    told.or_else(written).unwrap_or_else(usual)
}

/// Returns the lines that the listener adds to responses: Strict-Transport-Security and Alt-Svc, if the client used
/// https.
///
/// RFC 6797 §7.2: the field is not sent over plain HTTP.
#[inline]
pub(crate) fn added<'a>(ctx: &ExchangeContext<'a>, head: &RequestHead, bytes: &[u8]) -> &'a [u8] {
    let added = ctx.listener.added.get().map_or(&b""[..], Vec::as_slice);
    if added.is_empty() || is_secure(ctx, head, bytes) { added } else { b"" }
}

/// Whether the client used https. If the head could not be read, only the connection counts.
pub(crate) fn is_secure(ctx: &ExchangeContext<'_>, head: &RequestHead, bytes: &[u8]) -> bool {
    let scheme = if head.len > 0 { scheme(ctx, head, bytes) } else { scheme_of_peer(ctx) };
    scheme == "https"
}
