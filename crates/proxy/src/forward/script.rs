//! Finds the script of a request to an application behind FastCGI, before a server is chosen.
//!
//! A worker never waits for a disk: another thread looks for files whose metadata is not in memory.

use std::sync::Arc;

use ::files::MayBlock;
use config::{Action, Fastcgi};
use fastcgi::{Script, ScriptCandidates, ScriptForm};
use http1::BodyFraming;

use crate::context::exchange_slot::{CurrentRequest, ScriptText};
use crate::context::plan::UpstreamPlan;
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::forward::buffered;
use crate::open_files::{OpenFiles, failure};
use crate::outgoing::send::Delivery;
use transport::cold::cold;
use transport::tcp::Follows;

/// Whether the request goes to an application that runs scripts.
#[inline]
pub(crate) fn is_wanted(ctx: &ExchangeContext<'_>, routed: &RoutedRequest) -> bool {
    // A route without an upstream has none at this place.
    ctx.snapshot
        .plan
        .upstreams
        .get(routed.upstream.get())
        .is_some_and(|upstream| upstream.config.fastcgi.is_some())
}

/// Finds the script of a request, and keeps it for `take`.
pub(crate) async fn find(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &mut CurrentRequest,
) -> Result<ScriptForm, Failure> {
    let upstream = &ctx.snapshot.plan.upstreams[routed.upstream.get()];
    let Some(settings) = &upstream.config.fastcgi else { return Err(Failure::NoFile) };
    let mut script = request.texts.script.take().unwrap_or_default();
    let mut found = Err(Failure::NoFile);
    if is_of_directory(ctx, routed) {
        let own = routed.target.path.for_bytes(request.head_bytes()).to_vec();
        found = cold(|| find_for(ctx, upstream, settings, &own, &mut script)).await;
    }
    if matches!(found, Ok(ScriptForm::DirectoryIndex | ScriptForm::DirectoryWithoutSlash)) {
        // Such a request keeps its target.
        request.texts.path.clear();
    } else {
        found = match find_at_once(ctx, settings, path(routed, request), &mut script) {
            Found::Script(form) => Ok(form),
            Found::Nothing(failure) => Err(failure),
            Found::Unknown => {
                let path = path(routed, request).to_vec();
                cold(|| find_elsewhere(ctx, upstream, path, &mut script)).await
            }
        };
    }
    script.is_found = found.is_ok();
    request.texts.script = Some(script);
    found
}

/// Whether a request that has another path for missing files may still be for the script of a directory.
#[inline]
fn is_of_directory(ctx: &ExchangeContext<'_>, routed: &RoutedRequest) -> bool {
    routed.policies(ctx).is_some_and(|policies| match &policies.action {
        Action::Files(files) => files.else_path.is_some() && !files.index.is_empty(),
        _ => false,
    })
}

/// Finds the script of a path, wherever its metadata is.
async fn find_for(
    ctx: &ExchangeContext<'_>,
    upstream: &Arc<UpstreamPlan>,
    settings: &Fastcgi,
    path: &[u8],
    script: &mut ScriptText,
) -> Result<ScriptForm, Failure> {
    match find_at_once(ctx, settings, path, script) {
        Found::Script(form) => Ok(form),
        Found::Nothing(failure) => Err(failure),
        Found::Unknown => find_elsewhere(ctx, upstream, path.to_vec(), script).await,
    }
}

/// Prepares a request for an application: finds its script, unless the path of the request has done so. Asks for a body
/// that its client holds back, because no application sends 100 (Continue).
pub(super) async fn prepare(exchange: &mut Exchange<'_, '_>) -> Result<(), Failure> {
    let Exchange { ctx, routed, .. } = *exchange;
    let request = &mut exchange.memory.request;
    if !std::mem::take(&mut request.texts.script_mut().is_found) {
        find(ctx, routed, request).await?;
        request.texts.script_mut().is_found = false;
    }
    // A body that is buffered is asked for there.
    if routed.framing != BodyFraming::None
        && buffered::wanted(ctx, routed).is_none()
        && buffered::is_awaiting_go_ahead(routed, request)
    {
        let delivery = Delivery::from_ctx(ctx, routed);
        cold(|| delivery.send(b"HTTP/1.1 100 Continue\r\n\r\n", Follows::Nothing)).await?;
    }
    Ok(())
}

/// Returns the path that names the script: the request's, or the one that `rewrite` made.
fn path<'a>(routed: &RoutedRequest, request: &'a CurrentRequest) -> &'a [u8] {
    match request.texts.path.as_slice() {
        b"" => routed.target.path.for_bytes(request.head_bytes()),
        rewritten => rewritten.split(|&byte| byte == b'?').next().unwrap_or_default(),
    }
}

enum Found {
    Script(ScriptForm),
    Nothing(Failure),
    /// A disk must be asked.
    Unknown,
}

/// Finds a script among those looked up recently, or whose metadata is in memory.
fn find_at_once(ctx: &ExchangeContext<'_>, settings: &Fastcgi, path: &[u8], text: &mut ScriptText) -> Found {
    let mut memory = std::mem::take(&mut text.memory);
    let found = match candidates(settings, path, &mut memory) {
        Ok(candidates) => first(ctx, settings, candidates, text),
        Err(failure) => Found::Nothing(failure),
    };
    text.memory = memory;
    found
}

/// RFC 3875 §4.1.13: a path that could be read in two ways names no script.
fn candidates<'a>(
    settings: &'a Fastcgi,
    path: &[u8],
    memory: &'a mut Vec<u8>,
) -> Result<ScriptCandidates<'a>, Failure> {
    ScriptCandidates::new(path, settings.rules(), memory).map_err(|_| Failure::AmbiguousPath)
}

fn first(
    ctx: &ExchangeContext<'_>,
    settings: &Fastcgi,
    candidates: ScriptCandidates<'_>,
    text: &mut ScriptText,
) -> Found {
    let (open_files, now) = (&ctx.worker.open_files, ctx.worker.deadlines.now());
    for script in candidates {
        let exists = if settings.check_files {
            open_files.has_script_at_once(&settings.root, script.name, now)
        } else {
            Ok(is_assumed(settings, &script))
        };
        match exists {
            Ok(false) => {}
            Ok(true) => {
                text.set(&script);
                return Found::Script(script.form);
            }
            Err(::files::OpenError::WouldWait) => return Found::Unknown,
            Err(error) => return Found::Nothing(failure(&error)),
        }
    }
    Found::Nothing(Failure::NoFile)
}

/// Whether a script is taken for existing where the proxy sees no files. Without files, a directory and a path of a
/// front controller look alike, and the latter is the usual case.
fn is_assumed(settings: &Fastcgi, script: &Script<'_>) -> bool {
    match script.form {
        ScriptForm::Script | ScriptForm::Front => true,
        ScriptForm::DirectoryIndex => {
            !settings.front_controller || script.name.get(1..) == Some(settings.index.as_bytes())
        }
        ScriptForm::DirectoryWithoutSlash => false,
    }
}

/// Looks for a script on another thread.
async fn find_elsewhere(
    ctx: &ExchangeContext<'_>,
    upstream: &Arc<UpstreamPlan>,
    path: Vec<u8>,
    text: &mut ScriptText,
) -> Result<ScriptForm, Failure> {
    let open_files = &ctx.worker.open_files;
    let plan = Arc::clone(upstream);
    let look = move || {
        let Some(settings) = &plan.config.fastcgi else { return Ok((Vec::new(), None)) };
        let Some(root) = OpenFiles::root_of_scripts(&settings.root)? else { return Ok((Vec::new(), None)) };
        let (mut looked, mut memory) = (Vec::new(), Vec::new());
        let Ok(candidates) = candidates(settings, &path, &mut memory) else { return Ok((looked, None)) };
        for script in candidates {
            let exists = root.has_file(&script.name[1..], MayBlock::Maybe)?;
            looked.push((script.name.to_vec(), exists));
            if exists {
                let mut found = ScriptText::default();
                found.set(&script);
                return Ok((looked, Some((found, script.form))));
            }
        }
        Ok((looked, None))
    };
    let (looked, found) =
        ctx.worker.holding.during(open_files.elsewhere(look)).await.map_err(|error| failure(&error))?;
    if let Some(settings) = &upstream.config.fastcgi {
        let now = ctx.worker.deadlines.now();
        for (name, exists) in looked {
            open_files.script_was_found(&settings.root, &name, exists, now);
        }
    }
    let (found, form) = found.ok_or(Failure::NoFile)?;
    text.set(&found.script());
    Ok(form)
}
