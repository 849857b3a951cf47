//! A request as routes and policies see it.

use std::net::IpAddr;

use http1::{Chain, Field, Head, RequestHead, Target, host_without_port};

use crate::context::exchange::ExchangeContext;

/// The fields of a head, for look-ups by name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a> {
    fields: &'a [Field],
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    /// An empty head without fields.
    pub(crate) const NONE: Self = Self { fields: &[], bytes: &[] };

    pub(crate) fn of<Start>(head: &'a Head<Start>, bytes: &'a [u8]) -> Self {
        Self { fields: &head.fields, bytes }
    }
}

/// The value of the first field line with this name, for names that `http1` does not know.
pub(crate) fn line<'a, Start>(head: &Head<Start>, bytes: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let field = head.fields.iter().find(|field| field.name.of(bytes).eq_ignore_ascii_case(name))?;
    Some(field.value.of(bytes))
}

impl route::Fields for Fields<'_> {
    fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|field| (field.name.of(self.bytes), field.value.of(self.bytes)))
    }
}

impl balance::Fields for Fields<'_> {
    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        route::Fields::values(self, name.as_bytes())
    }
}

/// The request as routes see it: host, path, fields, client.
pub(crate) fn request<'a>(
    ctx: &ExchangeContext<'_>,
    target: &Target,
    bytes: &'a [u8],
    client: IpAddr,
    fields: &'a Fields<'a>,
    head: &RequestHead,
) -> route::Request<'a, Fields<'a>> {
    let path = target.path.of(bytes);
    let query = target.path_and_query.of(bytes).get(path.len()..).and_then(|rest| rest.strip_prefix(b"?"));
    route::Request {
        // Of one that is not listened on any more no rule can know.
        listener: ctx.client.listening.place().unwrap_or(usize::MAX),
        host: host_without_port(target.authority.of(bytes)),
        path,
        query,
        method: head.start.method_span.of(bytes),
        client,
        fields,
    }
}

/// The chain of proxies that a trusted peer reports; `None` if the peer is not trusted.
#[inline]
pub(crate) fn chain(ctx: &ExchangeContext<'_>, head: &RequestHead, bytes: &[u8]) -> Option<Chain> {
    if ctx.client.is_trusted { Some(read_chain(ctx, head, bytes)) } else { None }
}

#[cold]
fn read_chain(ctx: &ExchangeContext<'_>, head: &RequestHead, bytes: &[u8]) -> Chain {
    Chain::of(head, bytes, ctx.client.address, |address| ctx.snapshot.plan.trusts(address))
}

/// The client's address: the peer's, or the one that a trusted peer reports.
#[inline]
pub(crate) fn client(ctx: &ExchangeContext<'_>, head: &RequestHead, bytes: &[u8]) -> IpAddr {
    chain(ctx, head, bytes).map_or(ctx.client.address, |chain| chain.address)
}

/// The scheme that the peer used, to this proxy or to the one that sent its PROXY header.
#[inline]
pub(crate) fn scheme_of_peer(ctx: &ExchangeContext<'_>) -> &'static str {
    let is_secure_before = || ctx.client.original_connection.as_ref().is_some_and(|known| known.is_secure);
    if ctx.client.tls.is_some() || is_secure_before() { "https" } else { "http" }
}

/// The scheme that the client used, as far as it is known here.
#[inline]
pub(crate) fn scheme(ctx: &ExchangeContext<'_>, head: &RequestHead, bytes: &[u8]) -> &'static str {
    let told = chain(ctx, head, bytes).and_then(|chain| chain.scheme(head, bytes));
    told.unwrap_or_else(|| scheme_of_peer(ctx))
}

/// The authority that the client asked for, with a port if it named one: from Host, or as a trusted proxy reports it.
pub(crate) fn authority<'a>(
    ctx: &ExchangeContext<'_>,
    head: &RequestHead,
    bytes: &'a [u8],
    target: &Target,
) -> &'a [u8] {
    let told = chain(ctx, head, bytes).and_then(|chain| chain.host(head, bytes));
    told.unwrap_or_else(|| target.authority.of(bytes))
}

/// The URL that the client asked for.
pub(crate) fn url(ctx: &ExchangeContext<'_>, head: &RequestHead, bytes: &[u8], target: &Target) -> Vec<u8> {
    let authority = authority(ctx, head, bytes, target);
    let path = target.path_and_query.of(bytes);
    [scheme(ctx, head, bytes).as_bytes(), b"://", authority, path].concat()
}

/// The port that the client asked for: as a trusted proxy reports it, else from the authority, else the scheme's
/// default.
pub(crate) fn port(ctx: &ExchangeContext<'_>, head: &RequestHead, bytes: &[u8], target: &Target) -> u16 {
    let told = chain(ctx, head, bytes).and_then(|chain| chain.port(head, bytes));
    let written = || {
        let authority = authority(ctx, head, bytes, target);
        let port = authority.get(host_without_port(authority).len() + 1..)?;
        std::str::from_utf8(port).ok()?.parse().ok()
    };
    let usual = || if scheme(ctx, head, bytes) == "https" { 443 } else { 80 };
    told.or_else(written).unwrap_or_else(usual)
}

/// Header lines that the listener adds to responses: Strict-Transport-Security and Alt-Svc, if the client used https.
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
