//! Applies the policies of a route to its requests and responses.
//!
//! The crate `route` makes the decisions; texts for the request are kept in the exchange slot.

use std::cell::Cell;
use std::net::IpAddr;

use balance::Parts;
use config::{Action, HostHeader};
use http1::{RequestRewrite, ResponseRewrite, Target, Via, host_without_port};
use route::{
    Access, Captures, Cors, Exchange, HeaderEdits, LocationRewrite, Present, RateVerdict, SignIn, Split,
};

use crate::context::asking::{Asking, drops_authorization, kept_target};
use crate::context::client_tls::ClientTls;
use crate::context::exchange::{ExchangeContext, RoutedRequest};
use crate::context::exchange_slot::{Request, Response, Texts};
use crate::context::exchange_state::ExchangeState;
use crate::context::failure::Failure;
use crate::context::plan::Policies;
use crate::context::plan::{SplitAsking, SplitKey};
use crate::context::proxy_status::{self, Source};
use crate::context::request_id;
use crate::context::seen::{self, Fields};
use crate::context::tracing;
use crate::forward::answer;

/// Length of a name that a request may bring along.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// The facts about a request that policies need, also after a failure.
#[derive(Clone, Copy)]
pub(crate) struct Subject {
    pub(crate) route: usize,
    pub(crate) target: Target,
    pub(crate) client: IpAddr,
    /// The index of the authenticated user.
    pub(crate) user: Option<usize>,
}

impl Subject {
    pub(crate) fn of(routed: &RoutedRequest) -> Self {
        Self { route: routed.route, target: routed.target, client: routed.client, user: routed.user }
    }
}

/// Checks whether the request is permitted, by network, maintenance and rate.
pub(crate) fn permit(
    ctx: &ExchangeContext<'_>,
    policies: &Policies,
    routed: &RoutedRequest,
    request: &Request,
    state: &mut ExchangeState<'_>,
) -> Result<(), Failure> {
    enter(policies, routed.client)?;
    if let Some(maintenance) = &policies.settings.options.maintenance
        && maintenance.refuses(routed.client)
    {
        state.retry_after_seconds = maintenance.retry_after.as_secs().max(1);
        return Err(Failure::Maintenance);
    }
    if policies.limits.is_empty() { Ok(()) } else { count(ctx, policies, routed, request, state, false) }
}

/// Counts a request by the limits whose key has the user, once that is known, or by the others.
pub(crate) fn count(
    ctx: &ExchangeContext<'_>,
    policies: &Policies,
    routed: &RoutedRequest,
    request: &Request,
    state: &mut ExchangeState<'_>,
    has_user: bool,
) -> Result<(), Failure> {
    let bytes = request.head_bytes();
    let fields = Fields::of(&request.head, bytes);
    let seen = seen::request(ctx, &routed.target, bytes, routed.client, &fields, &request.head);
    let user = if has_user { policies.user(routed.user, &request.texts) } else { "" };
    let now_ns = ctx.worker.time_ns();
    for limit in policies.limits.iter().filter(|limit| limit.of_users == has_user) {
        if let RateVerdict::Refused { retry_after_seconds } = limit.limiter.admit(&seen, user, now_ns) {
            state.retry_after_seconds = retry_after_seconds;
            return Err(Failure::RateLimited);
        }
    }
    Ok(())
}

/// Checks whether a client's network may use the route.
pub(crate) fn enter(policies: &Policies, client: IpAddr) -> Result<(), Failure> {
    match &policies.access {
        Some(access) if access.access(client) == Access::Denied => Err(Failure::Forbidden),
        _ => Ok(()),
    }
}

/// Decides where the request goes, and its path there. A response without a server is begun in `out`, up to its fields;
/// the rest is returned.
pub(crate) fn act<'a>(
    ctx: &ExchangeContext<'a>,
    policies: &'a Policies,
    routed: &mut RoutedRequest,
    request: &mut Request,
    out: &mut Vec<u8>,
) -> Result<Option<Answer<'a>>, Failure> {
    let mut texts = std::mem::take(&mut request.texts);
    let mut path = std::mem::take(&mut texts.path);
    path.clear();
    texts.host.clear();
    let mut split_cookie = std::mem::take(&mut texts.split_cookie);
    split_cookie.clear();
    let bytes = request.head_bytes();
    let fields = Fields::of(&request.head, bytes);
    let exchange = exchange(ctx, policies, &Subject::of(routed), request, &fields, &texts);
    let mut located = Ok(());
    let answer = match &policies.action {
        Action::Upstream(upstream) => {
            routed.upstream = *upstream;
            None
        }
        Action::Split(split) => {
            routed.upstream = match &policies.split_key {
                None => split.draw(fastrand::u64(..)),
                Some(key) => side(ctx, (split, key), routed, request, &fields, &mut split_cookie),
            };
            None
        }
        Action::Redirect(redirect) => {
            let status = redirect.status.code();
            answer::begin(out, status);
            out.extend_from_slice(b"Content-Length: 0\r\nLocation: ");
            located = redirect.location(&exchange, out);
            out.extend_from_slice(b"\r\n");
            Some(Answer::Own { status, body: b"" })
        }
        Action::Respond(respond) => {
            let response = &respond.response;
            answer::begin(out, response.status());
            answer::push_content(out, response.status(), response.content_type(), response.body());
            Some(Answer::Own { status: response.status(), body: response.body() })
        }
        Action::Files(_) => Some(Answer::File),
    };
    let rewritten = match &policies.settings.rewrite.path {
        Some(rewrite) if !matches!(answer, Some(Answer::Own { .. })) => {
            let kept_target = kept_target(routed, &texts);
            rewrite.apply(&with_kept_query(exchange, kept_target), &mut path)
        }
        _ => Ok(false),
    };
    texts.path = path;
    texts.split_cookie = split_cookie;
    request.texts = texts;
    rewritten.map_err(|_| Failure::AmbiguousPath)?;
    located.map_err(|_| Failure::BadHost)?;
    Ok(answer)
}

/// The upstream of a request whose client keeps to its side of a split.
#[cold]
fn side(
    ctx: &ExchangeContext<'_>,
    (split, key): (&Split, &SplitKey),
    routed: &RoutedRequest,
    request: &Request,
    fields: &Fields<'_>,
    set_cookie: &mut Vec<u8>,
) -> usize {
    let (bytes, target) = (request.head_bytes(), &routed.target);
    let path = target.path.of(bytes);
    let query = target.path_and_query.of(bytes).get(path.len() + 1..);
    let parts = Parts { client: routed.client, path, query, fields };
    let asking = SplitAsking {
        unix_seconds: ctx.worker.unix_seconds(),
        is_https: seen::is_secure(ctx, &request.head, bytes),
    };
    key.choose(split, &parts, asking, set_cookie)
}

/// A response that needs no server.
pub(crate) enum Answer<'a> {
    /// One whose head has been begun.
    Own { status: u16, body: &'a [u8] },
    /// The file of the route that the path names, as it is rewritten.
    File,
}

/// Writes the head of the request for the server.
pub(crate) fn write_request(
    ctx: &ExchangeContext<'_>,
    policies: &Policies,
    routed: &RoutedRequest,
    server: &str,
    request: &mut Request,
    rewrite: RequestRewrite<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let mut texts = std::mem::take(&mut request.texts);
    let mut host_text = std::mem::take(&mut texts.host);
    let Texts { path, conditions, .. } = &texts;
    let kept_target = kept_target(routed, &texts);
    let bytes = request.head_bytes();
    let fields = Fields::of(&request.head, bytes);
    let edits = &policies.settings.request_headers;
    let host_has_groups = policies.settings.rewrite.host.as_ref().is_some_and(route::HostRewrite::has_groups);
    let has_groups = edits.has_groups() || host_has_groups;
    let captures = captures(policies, has_groups, routed.target.path.of(bytes));
    let exchange = Exchange {
        upstream: &ctx.snapshot.plan.upstreams[routed.upstream].config.name,
        server,
        captures: captures.as_ref(),
        ..exchange(ctx, policies, &Subject::of(routed), request, &fields, &texts)
    };
    let exchange = with_kept_query(exchange, kept_target);
    host_text.clear();
    let filled =
        policies.settings.rewrite.host.as_ref().map(|rewrite| rewrite.apply(&exchange, &mut host_text));
    let filled = match filled {
        Some(Ok(())) => Ok(Some(host_text.as_slice())),
        Some(Err(_)) => Err(Failure::BadHost),
        None => Ok(rewrite.host),
    };
    let outcome = filled.map(|host| {
        let own_lines = texts.vouched.as_ref().map_or(&b""[..], |vouched| &vouched.request_lines);
        let edited = Edited::new(edits, own_lines, exchange);
        let edits = (!edits.is_empty() || !own_lines.is_empty()).then_some(&edited as &dyn http1::Edits);
        let drops_authorization = drops_authorization(routed, policies);
        let drops_cookie = policies.tokens().and_then(|tokens| tokens.removed_cookie());
        let asking = Asking::of(conditions.as_deref(), drops_authorization, drops_cookie, edits);
        let rewrite = RequestRewrite {
            path_and_query: Some(path.as_slice()).filter(|path| !path.is_empty()).or(kept_target),
            host,
            via: via(&policies.settings.options.via),
            added: match (policies.settings.options.client_cert, ctx.client.tls.as_deref()) {
                (Some(wanted), Some(tls)) => tls.lines_with(wanted),
                _ => rewrite.added,
            },
            edits: asking.as_ref().map_or(edits, |asking| Some(asking)),
            ..rewrite
        };
        http1::write_request(out, &request.head, bytes, &rewrite);
    });
    texts.host = host_text;
    request.texts = texts;
    outcome
}

/// The Via entry for messages of a route.
pub(crate) fn via(settings: &config::Via) -> Via<'_> {
    match settings {
        config::Via::Own => Via::Own,
        config::Via::Named(name) => Via::Named(name),
        config::Via::Off => Via::Off,
    }
}

/// The source of a response.
pub(crate) struct Sender<'a> {
    /// The server; empty if none was asked.
    pub(crate) server: &'a str,
    /// Whether a page of the proxy replaces the content.
    pub(crate) has_page: bool,
}

/// Writes the head of the response for the client.
pub(crate) fn write_response(
    ctx: &ExchangeContext<'_>,
    policies: &Policies,
    routed: &RoutedRequest,
    Sender { server, has_page }: Sender<'_>,
    request: &Request,
    response: &mut Response,
    rewrite: ResponseRewrite<'_>,
) {
    let bytes = request.head_bytes();
    let fields = Fields::of(&request.head, bytes);
    let upstream = &ctx.snapshot.plan.upstreams[routed.upstream].config;
    let headers = &policies.settings.response_headers;
    let captures = captures(policies, headers.has_groups(), routed.target.path.of(bytes));
    let exchange = Exchange {
        upstream: &upstream.name,
        server,
        status: Some(response.head.start.status),
        captures: captures.as_ref(),
        ..exchange(ctx, policies, &Subject::of(routed), request, &fields, &request.texts)
    };
    let authority = routed.target.authority.of(bytes);
    let host = match &upstream.host {
        _ if !request.texts.host.is_empty() => &request.texts.host,
        HostHeader::Pass => authority,
        HostHeader::Server => server.as_bytes(),
        HostHeader::Set(host) => host.as_bytes(),
    };
    let path = routed.target.path.of(bytes);
    // What is no text is nobody's host.
    let servers = [server, std::str::from_utf8(host).unwrap_or_default()];
    let has_tls = || {
        let mut all = ctx.snapshot.plan.upstreams[routed.upstream].servers.iter();
        all.any(|known| known.authority == server && known.tls.is_some())
    };
    let location = policies.settings.location.then(|| LocationRewrite {
        servers: &servers,
        server_has_tls: has_tls(),
        client_scheme: exchange.scheme,
        client_host: seen::authority(ctx, &request.head, bytes, &routed.target),
        prefixes: policies.settings.rewrite.path.as_ref().and_then(route::PathRewrite::prefixes),
        paths: (path, request.texts.path.split(|&byte| byte == b'?').next().unwrap_or(path)),
    });
    let cookies = policies.settings.cookies.as_ref();
    let response_edits = Some((location, cookies));
    let source = if server.is_empty() { Source::Proxy } else { Source::Server(response.head.start.status) };
    let edited = Edited {
        split_cookie: &request.texts.split_cookie,
        response: response_edits,
        has_page,
        besides: rewrite.edits,
        cors: cors_fields(policies, false),
        proxy_status: proxy_status(policies, source),
        ..Edited::new(headers, response_lines(request), exchange)
    };
    let rewrite =
        ResponseRewrite { edits: Some(&edited), via: via(&policies.settings.options.via), ..rewrite };
    let Response { head, buffer, out, .. } = response;
    http1::write_response(out, head, buffer.filled(), &rewrite);
}

/// The CORS fields of a response, if the route has any.
fn cors_fields(policies: &Policies, is_preflight: bool) -> Option<CorsFields<'_>> {
    policies.settings.cors.as_ref().map(|cors| CorsFields::new(cors, is_preflight))
}

/// The name of this proxy in Proxy-Status, and what it says of a response.
fn proxy_status(policies: &Policies, source: Source) -> Option<(&str, Source)> {
    Some((policies.settings.options.proxy_status.as_deref()?, source))
}

/// What a response of the proxy's own is.
#[derive(Clone, Copy)]
pub(crate) struct OwnResponse {
    pub(crate) status: u16,
    pub(crate) source: Source,
    /// Whether it answers a preflight.
    pub(crate) is_preflight: bool,
}

/// Applies the edits to a response of the proxy's own, whose fields begin at `start`.
pub(crate) fn edit_own(
    ctx: &ExchangeContext<'_>,
    policies: &Policies,
    subject: &Subject,
    OwnResponse { status, source, is_preflight }: OwnResponse,
    request: &Request,
    start: usize,
    out: &mut Vec<u8>,
) {
    let headers = &policies.settings.response_headers;
    let own_lines = response_lines(request);
    let cors = cors_fields(policies, is_preflight);
    let proxy_status = proxy_status(policies, source);
    if headers.is_empty() && own_lines.is_empty() && cors.is_none() && proxy_status.is_none() {
        return;
    }
    let bytes = request.head_bytes();
    let fields = Fields::of(&request.head, bytes);
    let captures = captures(policies, headers.has_groups(), subject.target.path.of(bytes));
    let exchange = Exchange {
        status: Some(status),
        captures: captures.as_ref(),
        ..exchange(ctx, policies, subject, request, &fields, &request.texts)
    };
    let edited = Edited { cors, proxy_status, ..Edited::new(headers, own_lines, exchange) };
    http1::edit_lines(out, start, &edited);
}

/// What the authentication tells the client besides.
fn response_lines(request: &Request) -> &[u8] {
    request.texts.vouched.as_ref().map_or(b"", |vouched| &vouched.response_lines)
}

/// What is known of the request once its route is.
fn exchange<'a>(
    ctx: &ExchangeContext<'a>,
    policies: &'a Policies,
    subject: &Subject,
    request: &'a Request,
    fields: &'a Fields<'a>,
    texts: &'a Texts,
) -> Exchange<'a, Fields<'a>> {
    let bytes = request.head_bytes();
    let seen = seen::request(ctx, &subject.target, bytes, subject.client, fields, &request.head);
    Exchange {
        request_id: if policies.names_request { &texts.id } else { b"" },
        user: policies.user(subject.user, texts),
        route: &ctx.snapshot.plan.routes[subject.route].label,
        tls: ctx.client.tls.as_deref().map(ClientTls::variables).unwrap_or_default(),
        host: host_without_port(seen::authority(ctx, &request.head, bytes, &subject.target)),
        port: seen::port(ctx, &request.head, bytes, &subject.target),
        ..Exchange::of(seen, seen::scheme(ctx, &request.head, bytes))
    }
}

/// Appends the URL of a sign-in page for a client.
///
/// # Errors
/// Its host is empty.
pub(crate) fn sign_in(
    ctx: &ExchangeContext<'_>,
    page: &SignIn,
    subject: &Subject,
    request: &Request,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let Some(policies) = ctx.snapshot.plan.routes[subject.route].policies.as_deref() else { return Ok(()) };
    let bytes = request.head_bytes();
    let fields = Fields::of(&request.head, bytes);
    let exchange = exchange(ctx, policies, subject, request, &fields, &request.texts);
    let url = seen::url(ctx, &request.head, bytes, &subject.target);
    page.location(&exchange, &url, out).map_err(|_| Failure::BadHost)
}

/// The same of a request of which the cache keeps some of the query from servers.
fn with_kept_query<'a>(
    exchange: Exchange<'a, Fields<'a>>,
    kept_target: Option<&'a [u8]>,
) -> Exchange<'a, Fields<'a>> {
    let Some(target) = kept_target else { return exchange };
    let query = target.iter().position(|&byte| byte == b'?').map(|mark| &target[mark + 1..]);
    Exchange { request: route::Request { query, ..exchange.request }, ..exchange }
}

/// What the groups of the route's path matched, if anything names one.
fn captures(policies: &Policies, has_groups: bool, path: &[u8]) -> Option<Captures> {
    let pattern = policies.pattern.as_ref().filter(|_| has_groups)?;
    pattern.captures_of_path(path)
}

/// Takes the request ID that the caller sent, if it is followed, or makes one.
#[inline(never)]
pub(crate) fn name_request(ctx: &ExchangeContext<'_>, request: &mut Request) {
    let mut id = std::mem::take(&mut request.texts.id);
    id.clear();
    let ids = &ctx.snapshot.plan.config.request_ids;
    let fields = Fields::of(&request.head, request.head_bytes());
    let is_followed = tracing::follows(ids.follow, ctx.client.is_trusted);
    let brought = is_followed.then(|| route::Fields::value(&fields, ids.header.as_bytes())).flatten();
    let is_name = |value: &&[u8]| {
        (1..=REQUEST_ID_BYTES_MAX).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic)
    };
    match brought.filter(is_name) {
        Some(brought) => id.extend_from_slice(brought),
        None => {
            let trace = request.texts.trace.map(|trace| trace.trace_id);
            request_id::make(ids.form, trace, ctx.worker.unix_ms(), &mut id);
        }
    }
    request.texts.id = id;
}

/// The edits of one message.
struct Edited<'a> {
    headers: &'a HeaderEdits,
    /// The fields with a default that have been seen by now.
    present: Cell<Present>,
    /// Lines of the authentication's, each with CRLF.
    own_lines: &'a [u8],
    /// Of a response: the line that keeps the client on its side of a split.
    split_cookie: &'a [u8],
    exchange: Exchange<'a, Fields<'a>>,
    /// Of a server's response: where its URLs are for clients, and what its cookies are.
    response: Option<(Option<LocationRewrite<'a>>, Option<&'a route::CookieRewrite>)>,
    /// Whether a page of ours stands in for the server's content.
    has_page: bool,
    /// What is removed whatever the route says.
    besides: Option<&'a dyn http1::Edits>,
    /// Of a response: which other origins may read it.
    cors: Option<CorsFields<'a>>,
    /// Of a response: what Proxy-Status says.
    proxy_status: Option<(&'a str, Source)>,
}

/// The CORS fields of one response.
struct CorsFields<'a> {
    cors: &'a Cors,
    is_preflight: bool,
    /// Whether Vary names the origin by now.
    is_named: Cell<bool>,
}

impl<'a> CorsFields<'a> {
    fn new(cors: &'a Cors, is_preflight: bool) -> Self {
        Self { cors, is_preflight, is_named: Cell::new(!cors.varies()) }
    }

    /// Appends Vary as a server sent it, and the origin.
    fn extend_vary(&self, value: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(value);
        if !Cors::is_named_in(value) && !self.is_named.get() {
            out.extend_from_slice(if value.is_empty() { b"Origin" } else { b", Origin" });
        }
        self.is_named.set(true);
    }

    fn write(&self, fields: &Fields<'_>, out: &mut Vec<u8>) {
        if self.is_preflight {
            self.cors.write_preflight(fields, out);
        } else {
            self.cors.write_response(fields, out);
        }
        if !self.is_named.get() {
            out.extend_from_slice(b"Vary: Origin\r\n");
        }
    }
}

/// A field whose value is mapped.
enum Mapped {
    /// Location or Content-Location.
    Location,
    Refresh,
    SetCookie,
    /// Vary, if the response depends on the origin.
    Vary,
}

impl<'a> Edited<'a> {
    /// The edits of every message: those of the route, and lines of the authentication's.
    fn new(headers: &'a HeaderEdits, own_lines: &'a [u8], exchange: Exchange<'a, Fields<'a>>) -> Self {
        Self {
            headers,
            present: Cell::default(),
            own_lines,
            split_cookie: b"",
            exchange,
            response: None,
            has_page: false,
            besides: None,
            cors: None,
            proxy_status: None,
        }
    }

    /// Whether a server's field is left out.
    fn drops(&self, name: &[u8]) -> bool {
        http1::Edits::removes(self, name) || (self.has_page && is_of_content(name))
    }

    fn mapped(&self, name: &[u8]) -> Option<Mapped> {
        let (location, cookies) = self.response.as_ref()?;
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        match name.len() {
            4 if self.cors.is_some() && is(b"vary") => Some(Mapped::Vary),
            8 if location.is_some() && is(b"location") => Some(Mapped::Location),
            16 if location.is_some() && is(b"content-location") => Some(Mapped::Location),
            7 if location.is_some() && is(b"refresh") => Some(Mapped::Refresh),
            10 if cookies.is_some() && is(b"set-cookie") => Some(Mapped::SetCookie),
            _ => None,
        }
    }

    /// Appends a value as it is mapped; false, and nothing is appended, where it stays as it is.
    fn map(&self, mapped: &Mapped, value: &[u8], out: &mut Vec<u8>) -> bool {
        let Some((location, cookies)) = &self.response else { return false };
        match (mapped, location, cookies) {
            (Mapped::Vary, ..) => {
                let Some(cors) = &self.cors else { return false };
                cors.extend_vary(value, out);
                true
            }
            (Mapped::Location, Some(location), _) => location.apply(value, out),
            (Mapped::Refresh, Some(location), _) => {
                let Some(url) = route::url_of_refresh(value) else { return false };
                let start = out.len();
                out.extend_from_slice(&value[..url.start]);
                let is_mapped = location.apply(&value[url.clone()], out);
                if is_mapped {
                    out.extend_from_slice(&value[url.end..]);
                } else {
                    out.truncate(start);
                }
                is_mapped
            }
            (Mapped::SetCookie, _, Some(cookies)) => cookies.apply(value, out),
            _ => false,
        }
    }
}

/// RFC 9110 §8, RFC 9530: what a field says of the content that it came with. The rest is about the error, such as
/// Retry-After and WWW-Authenticate, or about what shows it, such as Content-Security-Policy.
fn is_of_content(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 14] = [
        b"content-type",
        b"content-encoding",
        b"content-language",
        b"content-length",
        b"content-location",
        b"content-range",
        b"content-disposition",
        b"content-digest",
        b"etag",
        b"last-modified",
        b"accept-ranges",
        b"trailer",
        b"digest",
        b"repr-digest",
    ];
    NAMES.iter().any(|known| name.eq_ignore_ascii_case(known))
}

impl http1::Edits for Edited<'_> {
    fn touches(&self, name: &[u8]) -> bool {
        self.drops(name) || self.mapped(name).is_some()
    }

    fn removes(&self, name: &[u8]) -> bool {
        let is_removed = self.headers.remove(name)
            || self.besides.is_some_and(|besides| besides.removes(name))
            || (self.cors.is_some() && Cors::replaces(name));
        if !is_removed {
            let mut present = self.present.get();
            self.headers.note(name, &mut present);
            self.present.set(present);
        }
        is_removed
    }

    fn replace(&self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let Some(mapped) = self.mapped(name).filter(|_| !self.drops(name)) else { return };
        out.extend_from_slice(name);
        out.extend_from_slice(b": ");
        if !self.map(&mapped, value, out) {
            out.extend_from_slice(value);
        }
        out.extend_from_slice(b"\r\n");
    }

    fn add(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.own_lines);
        out.extend_from_slice(self.split_cookie);
        self.headers.write(&self.exchange, self.present.get(), out);
        if let Some(cors) = &self.cors {
            cors.write(self.exchange.request.fields, out);
        }
        if let Some((name, source)) = self.proxy_status {
            proxy_status::write(name, source, out);
        }
    }
}
