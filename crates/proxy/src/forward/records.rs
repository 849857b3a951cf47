//! Makes the records of a FastCGI request from the head that a server would get over HTTP/1.1.
//!
//! So all edits of the route apply to the variables, too. What a head does not say comes from the client's connection.

use std::net::SocketAddr;

use config::Fastcgi;
use fastcgi::{Gateway, ParamsError, ParamsLimits, Request, STDIN_END, Stdin};
use http1::{HeadLimits, Method, Parsed, RequestTarget};

use super::Attempt;
use crate::context::client_tls::ClientTls;
use crate::context::exchange_slot::CurrentRequest;
use crate::context::original_connection;
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::context::seen;
use crate::failure::Failure;
use crate::owned::record_scratch::RecordMemory;
use crate::upstream::ServerConnection;
use transport::endpoint::MessageEndpoint;
use transport::fastcgi_connection::{FastcgiConnection, FastcgiRequest};

/// SERVER_SOFTWARE.
const SOFTWARE: &str = concat!("vanward/", env!("CARGO_PKG_VERSION"));
/// The most bytes of the parameters of a request. Limits on heads are lower.
const PARAMS_MAX: usize = 1 << 20;

impl Attempt<'_> {
    /// Completes the rendered head with the first piece of the body. For an application behind FastCGI, both become
    /// records.
    #[inline]
    pub(super) fn complete(&self, request: &mut CurrentRequest, text: &mut Vec<u8>) -> Result<(), Failure> {
        let config = &self.upstream.plan.config;
        match &config.fastcgi {
            None => text.extend_from_slice(&request.first_piece),
            Some(settings) => {
                let keep = config.pool.idle > 0;
                let left = write(self.ctx, self.routed, settings, keep, request, text)?;
                request.texts.script_mut().body_left = left;
            }
        }
        Ok(())
    }
}

/// Replaces a head in `text` by the records of the request, with the first piece of its body. Returns how much of the
/// body is missing.
fn write(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    settings: &Fastcgi,
    keep: bool,
    request: &CurrentRequest,
    text: &mut Vec<u8>,
) -> Result<u64, Failure> {
    let RecordMemory { head, records } = &mut *ctx.worker.record_scratch.0.borrow_mut();
    head.clear();
    if head.parse(text, &HeadLimits::of_own(text))? != Parsed::Complete {
        return Err(Failure::BadRequest);
    }
    let Some(script) = &request.texts.script else { return Err(Failure::NoFile) };
    let (client_head, client_bytes) = (&request.head, request.head_bytes());
    let written = Request {
        target: RequestTarget::from_head(head, text)?,
        head,
        bytes: text,
        script: script.script(),
        uri: uri(ctx, routed, client_bytes),
        content_length: None,
        version: routed.version,
        is_tls: seen::is_secure(ctx, client_head, client_bytes),
        session: ctx.client.tls.as_deref().map(ClientTls::session),
        client: client(ctx, routed),
        local: local(ctx),
        port: Some(seen::port(ctx, client_head, client_bytes, &routed.target)),
        server_name: None,
        user: user(ctx, routed, request),
    };
    let gateway = Gateway {
        root: settings.root.as_bytes(),
        software: SOFTWARE.as_bytes(),
        params: &settings.params,
        keep,
        limits: ParamsLimits { bytes: PARAMS_MAX },
    };
    records.clear();
    let outline = written.write(&gateway, records).map_err(|error| match error {
        ParamsError::TooLarge(_) | ParamsError::PairTooLarge(_) => Failure::HeadTooLarge,
        ParamsError::LengthUnknown | ParamsError::Framing => Failure::BadFraming,
    })?;
    let mut body = Stdin::new(outline.body);
    let mut piece = request.first_piece.as_slice();
    while !piece.is_empty() {
        let (header, taken) = body.record(piece.len()).map_err(|_| Failure::BadFraming)?;
        records.extend_from_slice(&header);
        records.extend_from_slice(&piece[..taken]);
        piece = &piece[taken..];
    }
    if body.left() == 0 {
        records.extend_from_slice(&STDIN_END);
    }
    std::mem::swap(text, records);
    Ok(body.left())
}

/// Begins the request on its connection, if that leads to an application. Called before its first byte is written.
#[inline]
pub(super) fn begin(routed: &RoutedRequest, connection: &ServerConnection, request: &CurrentRequest) {
    if let MessageEndpoint::Fastcgi(application) = &connection.socket {
        begin_with(application, routed, request);
    }
}

#[inline(never)]
fn begin_with(application: &FastcgiConnection, routed: &RoutedRequest, request: &CurrentRequest) {
    let bytes = request.head_bytes();
    let method = request.head.start.method_span.for_bytes(bytes);
    // Without its query, which may have secrets.
    let path = routed.target.path.for_bytes(bytes);
    let name: &[&[u8]] = match request.texts.id.as_slice() {
        b"" => &[method, b" ", path],
        id => &[method, b" ", path, b", request ", id],
    };
    application.begin(&FastcgiRequest {
        record_bytes: request.out.len(),
        body: Stdin::new(request.texts.script.as_ref().map_or(0, |script| script.body_left)),
        to_head: routed.method == Method::Head,
        name,
    });
}

/// Returns the client's path and query, if the application gets another path for missing files.
fn uri<'a>(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let policies = routed.policies(ctx)?;
    // A token in the query must not reach the application.
    let has_token = policies.tokens().is_some_and(|tokens| tokens.removed_parameter().is_some());
    (!has_token && policies.else_path().is_some()).then(|| routed.target.path_and_query.for_bytes(bytes))
}

/// Returns the client's address, possibly as reported by trusted proxies; its port is then unknown. A Unix socket has
/// none.
fn client(ctx: &ExchangeContext<'_>, routed: &RoutedRequest) -> Option<SocketAddr> {
    let is_peer = routed.client == ctx.client.address;
    let is_unix = is_peer && ctx.client.port == 0 && ctx.client.address.is_unspecified();
    let port = if is_peer { ctx.client.port } else { 0 };
    (!is_unix).then(|| SocketAddr::new(routed.client, port))
}

/// Returns the address that the client has connected to. The kernel is asked once per connection.
fn local(ctx: &ExchangeContext<'_>) -> Option<SocketAddr> {
    let client = ctx.client;
    let local = client.local.get_or_init(|| {
        let known = client.original_connection.as_ref().map(|known| known.destination());
        Box::new(known.unwrap_or_else(|| original_connection::destination(&client.socket)))
    });
    (!local.ip().is_unspecified()).then_some(**local)
}

/// Returns the authenticated user, and the scheme by which.
fn user<'a>(
    ctx: &ExchangeContext<'a>,
    routed: &RoutedRequest,
    request: &'a CurrentRequest,
) -> Option<(&'a [u8], &'a [u8])> {
    let policies = routed.policies(ctx)?;
    let vouched = request.texts.user();
    let name = policies.user(routed.user, vouched);
    let scheme: &[u8] = match (vouched.is_empty(), policies.tokens().is_some()) {
        (true, _) => b"Basic",
        (false, true) => b"Bearer",
        (false, false) => b"Forward",
    };
    (!name.is_empty()).then_some((name.as_bytes(), scheme))
}
