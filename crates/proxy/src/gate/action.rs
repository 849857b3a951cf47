//! The action of a route: chooses the upstream and rewrites the path, or begins a response without a server.

use balance::SessionParts;
use config::{Action, Files};
use http1::Method;
use route::{LaterFacts, PathRewrite, RouteTemplate, SplitChoice, VariableValues};

use crate::answer;
use crate::context::exchange_slot::{CurrentRequest, CurrentResponse, Texts};
use crate::context::later::{self, ExchangeConditions};
use crate::context::plan::{NO_UPSTREAM, RoutePolicies, SplitAsking, SplitKey};
use crate::context::request_values::{KeyFields, RequestValues};
use crate::context::routed::{ExchangeContext, Purpose, RoutedRequest};
use crate::context::seen::{self, RequestFields};
use crate::failure::Failure;
use crate::outgoing::asking::kept_target;
use crate::outgoing::edits::{self, PolicySubject};

pub(crate) enum LocalResponse<'a> {
    /// A response whose head is begun in `out`.
    Own { status: u16, body: &'a [u8] },
    /// As `Own`, with the body that was filled in for the request.
    Filled { status: u16 },
    /// The file that the rewritten path names.
    File,
}

/// Texts that an action makes. They are taken out of the request while that is borrowed.
struct ActionTexts {
    path: Vec<u8>,
    split_cookie: Vec<u8>,
    body: Vec<u8>,
}

impl ActionTexts {
    /// Empties the texts of an earlier request.
    fn clear(texts: &mut Texts) {
        for text in [&mut texts.path, &mut texts.split_cookie, &mut texts.body, &mut texts.host] {
            text.clear();
        }
    }

    /// Takes the memory of the texts, which are empty then.
    fn take(texts: &mut Texts) -> Self {
        let [path, split_cookie, body] =
            [&mut texts.path, &mut texts.split_cookie, &mut texts.body].map(|text| {
                let mut text = std::mem::take(text);
                text.clear();
                text
            });
        Self { path, split_cookie, body }
    }

    fn give_back(self, texts: &mut Texts) {
        (texts.path, texts.split_cookie, texts.body) = (self.path, self.split_cookie, self.body);
    }
}

/// Runs the route's action: chooses the upstream, rewrites the path, or begins a response up to its fields. Called once
/// the client is admitted; returns the rest of such a response.
pub(crate) fn act<'a>(
    ctx: &ExchangeContext<'a>,
    policies: &'a RoutePolicies,
    routed: &mut RoutedRequest,
    request: &mut CurrentRequest,
    response: &mut CurrentResponse,
) -> Result<Option<LocalResponse<'a>>, Failure> {
    if let Some(upstream) = upstream_of_all(policies) {
        routed.upstream.set(upstream);
        ActionTexts::clear(&mut request.texts);
        return Ok(None);
    }
    // Before the texts are taken out, because conditions may ask for the user.
    let side = match &policies.action {
        Action::Split(split) => {
            let conditions = ExchangeConditions::new(ctx, routed, request);
            Some(split.among(|when| conditions.hold(when)))
        }
        _ => None,
    };
    let mut texts = std::mem::take(&mut request.texts);
    let mut made = ActionTexts::take(&mut texts);
    texts.host.clear();
    let bytes = request.head_bytes();
    let fields = RequestFields::new(&request.head, bytes);
    let subject = PolicySubject::from_routed(routed);
    let computed = subject.values(ctx, policies, request, &texts);
    let exchange = edits::facts(ctx, policies, &subject, request, (&fields, computed.as_ref()), &texts);
    let side = side.map(|side| (side, later::of_client(Some(policies), routed.user, &texts)));
    let answer = run(ctx, policies, side, (routed, request), &exchange, &mut made, response);
    let path = &mut made.path;
    let rewritten = match &policies.settings.rewrite.path {
        // Redirects and configured responses have no path for a server.
        Some(rewrite) if matches!(answer, Ok(None | Some(LocalResponse::File))) => {
            let kept_target = kept_target(routed, &texts);
            rewrite.apply(&edits::with_kept_query(exchange, kept_target), path)
        }
        _ => Ok(false),
    };
    let found = match (&policies.action, &rewritten) {
        (Action::Files(files), Ok(is_rewritten)) if files.below.is_some() => {
            let requested = if *is_rewritten { &b""[..] } else { routed.target.path.for_bytes(bytes) };
            path.extend_from_slice(requested);
            put_below(files, &exchange, path, &mut response.wrong)
        }
        _ => Ok(()),
    };
    // The token must not reach the server in the URL, which servers log.
    if let Some(name) = policies.tokens().and_then(|tokens| tokens.removed_parameter()) {
        let kept =
            kept_target(routed, &texts).unwrap_or_else(|| routed.target.path_and_query.for_bytes(bytes));
        if path.is_empty() {
            route::without_parameter(kept, name, path);
        } else {
            route::without_parameter(&std::mem::take(path), name, path);
        }
    }
    made.give_back(&mut texts);
    request.texts = texts;
    // Errors are returned last, when the texts are back in the request.
    rewritten.map_err(|_| Failure::AmbiguousPath)?;
    found?;
    if let (Ok(None), Some(rewrite)) = (&answer, policies.else_path()) {
        take_else_path(ctx, policies, rewrite, routed, request)?;
    }
    answer
}

/// Returns the upstream of a route whose requests all go to it with their path unchanged.
#[inline]
fn upstream_of_all(policies: &RoutePolicies) -> Option<usize> {
    let Action::Upstream(upstream) = policies.action else { return None };
    let removes_parameter = || policies.tokens().is_some_and(|tokens| tokens.removed_parameter().is_some());
    (policies.settings.rewrite.path.is_none() && !removes_parameter()).then_some(upstream)
}

/// Chooses the upstream, or begins the response of the proxy.
fn run<'a>(
    ctx: &ExchangeContext<'a>,
    policies: &'a RoutePolicies,
    side: Option<(SplitChoice<'_>, LaterFacts<'_>)>,
    (routed, request): (&mut RoutedRequest, &CurrentRequest),
    exchange: &VariableValues<'_, RequestFields<'_>>,
    texts: &mut ActionTexts,
    CurrentResponse { out, wrong, .. }: &mut CurrentResponse,
) -> Result<Option<LocalResponse<'a>>, Failure> {
    match &policies.action {
        Action::Upstream(upstream) => routed.upstream.set(*upstream),
        Action::Split(_) => {
            if let Some((side, later)) = side {
                routed.upstream.set(match &policies.split_key {
                    None => side.draw(fastrand::u64(..)),
                    Some(key) => {
                        side_of_key(ctx, side, key, (routed, later), request, &mut texts.split_cookie)
                    }
                });
            }
        }
        Action::Named(upstreams) => {
            // The path's memory is free until the path is rewritten.
            let name = &mut texts.path;
            upstreams.name.fill(exchange, name);
            let found = upstreams.find(name);
            if found.is_none() {
                *wrong = Some(unsuitable(name, "the name of the upstream is empty", "no upstream is named"));
            }
            name.clear();
            routed.upstream.set(found.ok_or(Failure::NamedUpstreamUnknown)?);
        }
        Action::Redirect(redirect) => {
            let status = redirect.status.code();
            answer::begin(out, status);
            out.extend_from_slice(b"Content-Length: 0\r\nLocation: ");
            let located = redirect.location(exchange, out);
            out.extend_from_slice(b"\r\n");
            located.map_err(|_| Failure::BadHost)?;
            return Ok(Some(LocalResponse::Own { status, body: b"" }));
        }
        Action::Respond(respond) => {
            let response = &respond.response;
            let status = match &respond.status {
                None => response.status(),
                Some(status) => computed_status(status, exchange, &mut texts.path, wrong)?,
            };
            answer::begin(out, status);
            let may_have_body = route::may_have_body(status);
            let Some(template) = respond.body.as_ref().filter(|_| may_have_body) else {
                let body = if may_have_body { response.body() } else { b"" };
                let page = || answer::page(ctx, Some(policies), status);
                if status >= 400
                    && body.is_empty()
                    && let Some(page) = page()
                {
                    answer::push_content(out, status, &page.content_type, &page.body);
                    return Ok(Some(LocalResponse::Own { status, body: &page.body }));
                }
                answer::push_content(out, status, response.content_type(), body);
                return Ok(Some(LocalResponse::Own { status, body }));
            };
            template.fill(exchange, &mut texts.body);
            answer::push_content(out, status, response.content_type(), &texts.body);
            return Ok(Some(LocalResponse::Filled { status }));
        }
        Action::Files(files) => return Ok(file(routed, files.otherwise)),
    }
    Ok(None)
}

/// Gives a request the path for the upstream for missing files. Called once it is known that there is no file.
#[cold]
pub(crate) fn take_else_path(
    ctx: &ExchangeContext<'_>,
    policies: &RoutePolicies,
    rewrite: &PathRewrite,
    routed: &RoutedRequest,
    request: &mut CurrentRequest,
) -> Result<(), Failure> {
    let mut texts = std::mem::take(&mut request.texts);
    let mut path = std::mem::take(&mut texts.path);
    path.clear();
    let bytes = request.head_bytes();
    let fields = RequestFields::new(&request.head, bytes);
    let subject = PolicySubject::from_routed(routed);
    let computed = subject.values(ctx, policies, request, &texts);
    let exchange = edits::facts(ctx, policies, &subject, request, (&fields, computed.as_ref()), &texts);
    let kept_target = kept_target(routed, &texts);
    let made = rewrite.apply(&edits::with_kept_query(exchange, kept_target), &mut path);
    texts.path = path;
    request.texts = texts;
    made.map(drop).map_err(|_| Failure::AmbiguousPath)
}

/// Decides whether a request to a route with files may be for a file, or is for the upstream that gets all others.
fn file<'a>(routed: &RoutedRequest, otherwise: Option<usize>) -> Option<LocalResponse<'a>> {
    // Files are only for GET and HEAD. Another instance has already looked for the file.
    let is_for_file = routed.purpose != Purpose::Peer && matches!(routed.method, Method::Get | Method::Head);
    let upstream = otherwise.filter(|_| !is_for_file);
    // No upstream's rate applies to a file.
    routed.upstream.set(upstream.unwrap_or(NO_UPSTREAM));
    upstream.is_none().then_some(LocalResponse::File)
}

/// Puts the folder that values name in front of a path.
fn put_below(
    files: &Files,
    exchange: &VariableValues<'_, RequestFields<'_>>,
    path: &mut Vec<u8>,
    wrong: &mut Option<String>,
) -> Result<(), Failure> {
    let len = path.len();
    path.push(b'/');
    let is_below = files.below.as_ref().is_some_and(|below| below.fill_folder(exchange, path));
    path.rotate_left(len);
    if is_below {
        return Ok(());
    }
    *wrong = Some("a value names no folder below the root".to_owned());
    Err(Failure::NoFile)
}

/// Computes the status of a response. `text` is empty memory.
fn computed_status(
    status: &RouteTemplate,
    exchange: &VariableValues<'_, RequestFields<'_>>,
    text: &mut Vec<u8>,
    wrong: &mut Option<String>,
) -> Result<u16, Failure> {
    status.fill(exchange, text);
    let found = route::response_status(text);
    if found.is_none() {
        *wrong = Some(unsuitable(text, "the status is empty", "no status from 200 to 599 is"));
    }
    text.clear();
    found.ok_or(Failure::StatusInvalid)
}

/// Describes the text of a value that an option cannot use, for the log.
#[cold]
fn unsuitable(text: &[u8], if_empty: &str, what: &str) -> String {
    const SHOWN_BYTES_MAX: usize = 100;
    match text {
        b"" => if_empty.to_owned(),
        text => format!("{what} \"{}\"", text[..text.len().min(SHOWN_BYTES_MAX)].escape_ascii()),
    }
}

/// Returns the upstream of a client that stays on one side of a split.
#[cold]
fn side_of_key(
    ctx: &ExchangeContext<'_>,
    split: SplitChoice<'_>,
    key: &SplitKey,
    (routed, later): (&RoutedRequest, LaterFacts<'_>),
    request: &CurrentRequest,
    set_cookie: &mut Vec<u8>,
) -> usize {
    let (bytes, target) = (request.head_bytes(), &routed.target);
    let path = target.path.for_bytes(bytes);
    let query = target.path_and_query.for_bytes(bytes).get(path.len() + 1..);
    let values = RequestValues::from_routed(ctx, routed, request).with(later);
    let fields = &KeyFields::with_values(routed.route, values);
    let parts = SessionParts { client: routed.client, path, query, fields };
    let asking = SplitAsking {
        unix_seconds: ctx.worker.unix_seconds(),
        is_https: seen::is_secure(ctx, &request.head, bytes),
    };
    key.choose(split, &parts, asking, set_cookie)
}
