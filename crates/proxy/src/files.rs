//! Answers requests with files, according to the route's `files`.
//!
//! A complete file that is open is sent at once, in one or two system calls; everything else is boxed. Bodies go from
//! the file to the socket by sendfile(2), or through a buffer where TLS records or frames are needed.

/// Decides which part of a file is sent.
mod wanted;
/// Sends files.
mod send;
/// Files in another content coding.
mod coded;

use std::sync::Arc;

use ::files::{OpenError, PathError, PathForm, file_path, local_redirect};
use http1::{BodyFraming, Method};
use route::PathRewrite;

use crate::open_files::{Lookup, failure};
use crate::shared::route_files::RouteFiles;

use crate::answer;
use crate::body::transform::Choice;
use crate::context::client::AfterExchange;
use crate::context::exchange_slot::CurrentRequest;
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::exchange::{Exchange, FileOrder};
use crate::failure::Failure;
use crate::outgoing::delay;

/// The part of a server in a response with a file.
#[derive(Default, Clone, Copy)]
struct FileSource<'a> {
    /// Fields of the server's response, as lines. They replace the file's own.
    lines: &'a [u8],
    /// Whether the client's request has been read completely; `None` if that is not known yet.
    has_whole_request: Option<bool>,
}

/// The result of an attempt to answer without a wait.
pub(crate) enum AtOnce {
    /// The response was sent, or failed.
    Done(Result<AfterExchange, Failure>),
    /// Part of the response may have been sent: the rest waits for the client or for a disk.
    Rest(send::FileRest),
    /// There is no such file, so a server is asked.
    Absent,
    /// Nothing was sent: `serve` must answer.
    Unanswered,
}

/// Sends a complete open file, as far as the client's connection takes it without a wait. Called first for each request
/// for a file.
pub(crate) fn serve_at_once(exchange: &mut Exchange<'_, '_>, files: &RouteFiles) -> AtOnce {
    let Exchange { ctx, routed, .. } = *exchange;
    let route = &ctx.snapshot.plan.routes[routed.route];
    // A body must be taken first, and a delay or a fault needs a wait.
    let is_plain = matches!(routed.method, Method::Get | Method::Head)
        && routed.framing == BodyFraming::None
        && !routed.connection.upgrade
        && route.delay.is_none()
        && !exchange.state.has_fault();
    if !is_plain {
        return AtOnce::Unanswered;
    }
    let path = path(ctx, routed, &exchange.memory.request);
    let now = ctx.worker.deadlines.now();
    match ctx.worker.open_files.fresh(files, path, now) {
        Some(file)
            if route.compress.as_ref().is_none_or(|compression| {
                let request = &exchange.memory.request;
                let representation = file.choose(&request.head, request.head_bytes());
                if coded::compression(ctx, routed, request, representation).is_none() {
                    return true;
                }
                let choice = coded::choose(&compression.settings, request, representation);
                // Any other form needs a coder or another head, which the boxed path makes.
                choice == Choice::Unchanged { adds_vary: false }
            }) =>
        {
            send::at_once(exchange, file)
        }
        None if ctx.worker.open_files.is_absent(files, path, now) => AtOnce::Absent,
        Some(_) | None => AtOnce::Unanswered,
    }
}

/// Sends the rest of a response that `serve_at_once` has begun.
pub(crate) async fn serve_rest(
    exchange: &mut Exchange<'_, '_>,
    rest: send::FileRest,
) -> Result<AfterExchange, Failure> {
    send::rest(exchange, rest).await
}

/// Answers with the file, directory or redirect that the request's path leads to. Called if `serve_at_once` could not
/// answer. Returns `None` if there is no file and the route then asks a server.
pub(crate) async fn serve(
    exchange: &mut Exchange<'_, '_>,
    files: &Arc<RouteFiles>,
) -> Result<Option<AfterExchange>, Failure> {
    let ctx = exchange.ctx;
    let mut name = Vec::new();
    let found = found(exchange, files, &mut name).await;
    if let (Some(_), Err(Failure::NoFile | Failure::FileHidden | Failure::AmbiguousPath)) =
        (files.settings.otherwise, &found)
    {
        // The delay applies before the server.
        return Ok(None);
    }
    if let Some(delay) = &ctx.snapshot.plan.routes[exchange.routed.route].delay {
        delay::hold_back(ctx, delay, exchange.memory).await;
    }
    let next = match found? {
        Lookup::File(file) => send::file(exchange, file, FileSource::default()).await,
        Lookup::WithoutSlash => redirect(exchange).await,
        Lookup::Directory(root) => {
            let links = files.settings.symlinks;
            // Reading a directory may wait for a disk, so another thread does it.
            let list = move || {
                let mut page = Vec::new();
                let entries = ::files::entries(&root, &name, links)?;
                ::files::page(&name, &entries, &mut page);
                Ok(page)
            };
            let page = ctx.worker.open_files.elsewhere(list).await.map_err(|error| failure(&error))?;
            listing(exchange, &page).await
        }
    };
    next.map(Some)
}

/// Sends the file that a server has named in place of a body.
pub(crate) async fn serve_ordered(
    exchange: &mut Exchange<'_, '_>,
    order: Box<FileOrder>,
) -> Result<AfterExchange, Failure> {
    let outcome = serve_file(exchange, &order).await;
    if outcome.is_err() {
        exchange.state.record.detail = Some(order.named.into());
    }
    outcome
}

async fn serve_file(exchange: &mut Exchange<'_, '_>, order: &FileOrder) -> Result<AfterExchange, Failure> {
    let FileOrder { files, path, lines, has_whole_request, .. } = order;
    let ctx = exchange.ctx;
    let files = files.as_ref().ok_or(Failure::FileHidden)?;
    let mut name = Vec::with_capacity(path.len());
    let form = file_path(path, &mut name).map_err(|_| Failure::FileHidden)?;
    match ctx.worker.holding.during(look_up(ctx, files, path, &name, form)).await? {
        Lookup::File(file) => {
            let source = FileSource { lines, has_whole_request: Some(*has_whole_request) };
            send::file(exchange, file, source).await
        }
        Lookup::WithoutSlash | Lookup::Directory(_) => Err(Failure::NoFile),
    }
}

/// Looks up what the request's path leads to, and writes the path of the file to `name`.
async fn found(
    exchange: &Exchange<'_, '_>,
    files: &Arc<RouteFiles>,
    name: &mut Vec<u8>,
) -> Result<Lookup, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    if routed.connection.upgrade && ctx.client.socket.frames_itself() {
        // RFC 8441 §4: a success would open a tunnel. A server may open one.
        return Err(if files.settings.otherwise.is_some() {
            Failure::NoFile
        } else {
            Failure::ProtocolRefused
        });
    }
    if !matches!(routed.method, Method::Get | Method::Head) {
        return Err(Failure::FileMethod);
    }
    let request = &exchange.memory.request;
    let requested = path(ctx, routed, request);
    let mut form = file_path(requested, name).map_err(|error| match error {
        PathError::Ambiguous => Failure::AmbiguousPath,
        PathError::Hidden => Failure::FileHidden,
        PathError::TooLong => Failure::NoFile,
    })?;
    // The root below a prefix, requested without its slash.
    if requested.is_empty() && lacks_slash(routed, request) {
        form = PathForm::File;
    }
    ctx.worker.holding.during(look_up(ctx, files, requested, name, form)).await
}

/// Looks a path up among open files, or in the file system. If no descriptor is left, idle connections are closed once.
async fn look_up(
    ctx: &ExchangeContext<'_>,
    files: &Arc<RouteFiles>,
    requested: &[u8],
    name: &[u8],
    form: PathForm,
) -> Result<Lookup, Failure> {
    let worker = ctx.worker;
    let look = || {
        worker.open_files.look_up(files, requested, name, form, worker.deadlines.now(), worker.unix_seconds())
    };
    match look().await {
        Err(OpenError::NoDescriptor) if worker.give_up_idle() => {
            look().await.map_err(|error| failure(&error))
        }
        outcome => outcome.map_err(|error| failure(&error)),
    }
}

/// Returns the path that names the file: the request's, or the one that `rewrite` made. If `rewrite` replaces a prefix,
/// only the request's own slash counts for a directory: otherwise relative links would leave the prefix.
fn path<'a>(ctx: &ExchangeContext<'_>, routed: &RoutedRequest, request: &'a CurrentRequest) -> &'a [u8] {
    let rewritten = match request.texts.path.as_slice() {
        b"" => return routed.target.path.for_bytes(request.head_bytes()),
        rewritten => rewritten.split(|&byte| byte == b'?').next().unwrap_or_default(),
    };
    let rewrite = routed.policies(ctx).and_then(|policies| policies.settings.rewrite.path.as_ref());
    if !rewrite.is_some_and(PathRewrite::is_of_prefix) || !lacks_slash(routed, request) {
        return rewritten;
    }
    let end = rewritten.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    &rewritten[..end]
}

pub(crate) fn lacks_slash(routed: &RoutedRequest, request: &CurrentRequest) -> bool {
    // RFC 9110 §4.2.3: an empty path means `/`.
    routed.target.path.for_bytes(request.head_bytes()).last().is_some_and(|&byte| byte != b'/')
}

/// Redirects to a directory's path with a slash, which relative links need.
pub(crate) async fn redirect(exchange: &mut Exchange<'_, '_>) -> Result<AfterExchange, Failure> {
    let routed = exchange.routed;
    let request = &exchange.memory.request;
    let bytes = request.head_bytes();
    let path = routed.target.path.for_bytes(bytes);
    let query = routed.target.path_and_query.for_bytes(bytes).get(path.len() + 1..);
    let out = &mut exchange.memory.response.out;
    answer::begin(out, 301);
    out.extend_from_slice(b"Content-Length: 0\r\nLocation: ");
    local_redirect(path, query, out);
    out.extend_from_slice(b"\r\n");
    answer::own(exchange, 301, b"").await
}

async fn listing(exchange: &mut Exchange<'_, '_>, page: &[u8]) -> Result<AfterExchange, Failure> {
    let out = &mut exchange.memory.response.out;
    answer::begin(out, 200);
    answer::push_content(out, 200, "text/html; charset=utf-8", page);
    answer::own(exchange, 200, page).await
}
