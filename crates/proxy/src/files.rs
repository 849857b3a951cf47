//! Answers requests with files, as the route's `files` says.
//!
//! What is open and wanted as a whole is sent at once, in one or two system calls; all else is begun behind a pointer.
//! Bodies go from the file to the socket by sendfile(2), or through the path's buffer where records or frames go around
//! them.

/// The open files of a worker.
mod open_files;
/// One representation of a file, and the lines of its head.
mod representation;
/// Decides what of a file is sent.
mod wanted;
/// Sends files.
mod send;
/// Files in another content coding.
mod coded;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::files::{Form, OpenError, PathError, file_path, local_redirect};
use http1::{Framing, Method};
use rustix::io::Errno;
use telemetry::message;

use open_files::Lookup;
pub(crate) use open_files::OpenFiles;

use crate::body::transform::Choice;
use crate::context::client::Next;
use crate::context::exchange::{Exchange, ExchangeContext, RoutedRequest};
use crate::context::exchange_slot::Request;
use crate::context::failure::Failure;
use crate::forward::answer;
use crate::shaping;

/// The files of a route.
pub(crate) struct RouteFiles {
    /// Tells the files of routes apart in the workers' tables, and those of a plan from those of the one before.
    id: u64,
    settings: Arc<config::Files>,
}

impl RouteFiles {
    pub(crate) fn new(settings: &Arc<config::Files>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed), settings: Arc::clone(settings) }
    }

    /// Whether these are the same files, sent in the same way.
    pub(crate) fn is_of(&self, settings: &config::Files) -> bool {
        *self.settings == *settings
    }
}

/// What came of an attempt to answer without a wait.
pub(crate) enum AtOnce {
    /// The response has left, or failed.
    Done(Result<Next, Failure>),
    /// Some of the response may have left: the rest waits for the client or for a disk.
    Rest(send::Rest),
    /// Nothing was sent: the request takes the long way.
    Unanswered,
}

/// Sends a file that is open and wanted as a whole, as far as the client's connection takes it.
pub(crate) fn serve_at_once(exchange: &mut Exchange<'_, '_>, files: &RouteFiles) -> AtOnce {
    let Exchange { ctx, routed, .. } = *exchange;
    let route = &ctx.snapshot.plan.routes[routed.route];
    let is_plain = matches!(routed.method, Method::Get | Method::Head)
        && routed.framing == Framing::None
        && !routed.connection.upgrade
        && route.delay.is_none()
        && !exchange.state.has_fault();
    if !is_plain {
        return AtOnce::Unanswered;
    }
    let path = path(routed, &exchange.memory.request);
    match ctx.worker.open_files.fresh(files, path, ctx.worker.deadlines.now()) {
        Some(file)
            if route.compress.as_ref().is_none_or(|compression| {
                let request = &exchange.memory.request;
                let representation = file.choose(&request.head, request.head_bytes());
                let choice = coded::choose(&compression.settings, request, representation);
                choice == Choice::Unchanged { adds_vary: false }
            }) =>
        {
            send::at_once(exchange, file)
        }
        Some(_) | None => AtOnce::Unanswered,
    }
}

/// Sends the rest of a response.
pub(crate) async fn serve_rest(exchange: &mut Exchange<'_, '_>, rest: send::Rest) -> Result<Next, Failure> {
    send::rest(exchange, rest).await
}

/// Answers with whatever the path of the request names.
pub(crate) async fn serve(exchange: &mut Exchange<'_, '_>, files: &Arc<RouteFiles>) -> Result<Next, Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    if routed.connection.upgrade && ctx.client.socket.frames_itself() {
        // RFC 8441 §4: a success would be a tunnel.
        return Err(Failure::ProtocolRefused);
    }
    if !matches!(routed.method, Method::Get | Method::Head) {
        return Err(Failure::FileMethod);
    }
    if let Some(delay) = &ctx.snapshot.plan.routes[routed.route].delay {
        shaping::hold_back(ctx, delay, exchange.memory).await;
    }
    let requested = path(routed, &exchange.memory.request);
    let mut name = Vec::with_capacity(requested.len());
    let form = file_path(requested, &mut name).map_err(|error| match error {
        PathError::Ambiguous => Failure::AmbiguousPath,
        PathError::Hidden => Failure::FileHidden,
        PathError::TooLong => Failure::NoFile,
    })?;
    let looked_up = ctx.worker.holding.during(look_up(ctx, files, requested, (&name, form)));
    match looked_up.await? {
        Lookup::File(file) => send::file(exchange, file).await,
        Lookup::WithoutSlash => redirect(exchange).await,
        Lookup::Directory(root) => {
            let links = files.settings.symlinks;
            let list = move || {
                let mut page = Vec::new();
                let entries = ::files::entries(&root, &name, links)?;
                ::files::page(&name, &entries, &mut page);
                Ok(page)
            };
            let page = ctx.worker.open_files.elsewhere(list).await.map_err(|error| failure(&error))?;
            listing(exchange, &page).await
        }
    }
}

/// What is open for a path, or what is found now. Where no descriptor is left, idle ones make room once.
async fn look_up(
    ctx: &ExchangeContext<'_>,
    files: &Arc<RouteFiles>,
    requested: &[u8],
    (name, form): (&[u8], Form),
) -> Result<Lookup, Failure> {
    let worker = ctx.worker;
    let look = || worker.open_files.look_up(files, requested, (name, form), worker);
    match look().await {
        Err(OpenError::NoDescriptor) if worker.give_up_idle() => {
            look().await.map_err(|error| failure(&error))
        }
        outcome => outcome.map_err(|error| failure(&error)),
    }
}

/// The path that names the file: that of the request, or what the route's `rewrite` has made of it.
fn path<'a>(routed: &RoutedRequest, request: &'a Request) -> &'a [u8] {
    match request.texts.path.as_slice() {
        b"" => routed.target.path.of(request.head_bytes()),
        rewritten => {
            let end = rewritten.iter().position(|&byte| byte == b'?').unwrap_or(rewritten.len());
            &rewritten[..end]
        }
    }
}

/// Why no file is sent.
fn failure(error: &OpenError) -> Failure {
    match error {
        OpenError::NotFound => Failure::NoFile,
        OpenError::Hidden => Failure::FileHidden,
        OpenError::Forbidden => Failure::FileForbidden,
        OpenError::NoDescriptor => Failure::OutOfDescriptors,
        OpenError::WouldWait => Failure::FileUnreadable,
        OpenError::Failed(error) => {
            message::error(&unreadable(error));
            Failure::FileUnreadable
        }
    }
}

/// What the operator reads of a file that the system does not open. Same texts are said once a second.
fn unreadable(error: &std::io::Error) -> String {
    let remedy = if error.raw_os_error() == Some(Errno::NOSYS.raw_os_error()) {
        "; openat2 is refused, by a kernel before Linux 5.6 or by a filter of system calls, such as that of \
         RestrictSUIDSGID= in a unit of systemd"
    } else {
        ""
    };
    format!("a file cannot be opened: {error}{remedy}")
}

/// Redirects to the path of a directory, with the slash that relative links need.
async fn redirect(exchange: &mut Exchange<'_, '_>) -> Result<Next, Failure> {
    let routed = exchange.routed;
    let request = &exchange.memory.request;
    let bytes = request.head_bytes();
    let path = routed.target.path.of(bytes);
    let query = routed.target.path_and_query.of(bytes).get(path.len() + 1..);
    let out = &mut exchange.memory.response.out;
    answer::begin(out, 301);
    out.extend_from_slice(b"Content-Length: 0\r\nLocation: ");
    local_redirect(path, query, out);
    out.extend_from_slice(b"\r\n");
    answer::own(exchange, (301, b"")).await
}

async fn listing(exchange: &mut Exchange<'_, '_>, page: &[u8]) -> Result<Next, Failure> {
    let out = &mut exchange.memory.response.out;
    answer::begin(out, 200);
    answer::push_content(out, 200, "text/html; charset=utf-8", page);
    answer::own(exchange, (200, page)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_opened_is_told_with_its_reason() {
        let told = |errno: Errno| unreadable(&errno.into());
        assert_eq!(told(Errno::IO), "a file cannot be opened: Input/output error (os error 5)");
        assert!(told(Errno::NOSYS).contains("RestrictSUIDSGID="), "{}", told(Errno::NOSYS));
    }
}
