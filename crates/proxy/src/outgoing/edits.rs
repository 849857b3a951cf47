//! Edits heads by a route's policies: fields, Host, Location, cookies, CORS and Proxy-Status.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use config::HostHeader;
use expression::{Expression, Fact, FactFamily};
use http1::{BodyFraming, RequestRewrite, RequestTarget, ResponseRewrite, Via, host_without_port};
use route::{
    ActiveEdits, Captures, Cors, HeaderEdits, LaterFacts, LocationRewrite, Present, SignIn, VariableValues,
};

use crate::context::client_tls::ClientTls;
use crate::context::exchange_slot::{CurrentRequest, CurrentResponse, Texts};
use crate::context::later::{self, ExchangeConditions, KnownResponse};
use crate::context::plan::{RoutePolicies, ServerPlan};
use crate::context::request_values::RequestValues;
use crate::context::routed::{ExchangeContext, RoutedRequest};
use crate::context::seen::{self, RequestFields};
use crate::failure::Failure;
use crate::outgoing::asking::{AuthRequestEdits, drops_authorization, kept_target};
use crate::outgoing::proxy_status::{self, StatusSource};

/// Facts about a request that edits need, also after a failure.
#[derive(Clone, Copy)]
pub(crate) struct PolicySubject {
    pub(crate) route: usize,
    pub(crate) target: RequestTarget,
    pub(crate) client: IpAddr,
    /// Index of the authenticated user.
    pub(crate) user: Option<usize>,
    /// The framing of the request's body.
    pub(crate) framing: BodyFraming,
}

impl PolicySubject {
    pub(crate) fn from_routed(routed: &RoutedRequest) -> Self {
        let &RoutedRequest { route, target, client, user, framing, .. } = routed;
        Self { route, target, client, user, framing }
    }

    /// The values of the request, for its templates, as far as they are known once the client is authenticated; `None` if
    /// the route has none. `texts` are those of the request, which may be taken out.
    #[inline]
    pub(crate) fn values<'a>(
        &self,
        ctx: &'a ExchangeContext<'a>,
        policies: &'a RoutePolicies,
        request: &'a CurrentRequest,
        texts: &'a Texts,
    ) -> Option<RequestValues<'a>> {
        let values = || {
            let later = later::of_client(Some(policies), self.user, texts);
            RequestValues::new(ctx, (self.target, self.framing), self.client, request).with(later)
        };
        if policies.has_values { Some(values()) } else { None }
    }
}

/// Writes the head of the request for the server. Called per attempt, for routes with policies.
pub(crate) fn write_request(
    ctx: &ExchangeContext<'_>,
    policies: &RoutePolicies,
    routed: &RoutedRequest,
    server: &str,
    request: &mut CurrentRequest,
    rewrite: RequestRewrite<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let edits = &policies.settings.request_headers;
    let active = request_edits(ctx, policies, routed, server, request);
    // Taken out, because the request is borrowed below.
    let mut texts = std::mem::take(&mut request.texts);
    let mut host_text = std::mem::take(&mut texts.host);
    let Texts { path, conditions, .. } = &texts;
    let kept_target = kept_target(routed, &texts);
    let bytes = request.head_bytes();
    let fields = RequestFields::new(&request.head, bytes);
    let host_has_groups = policies.settings.rewrite.host.as_ref().is_some_and(route::HostRewrite::has_groups);
    let has_groups = edits.has_groups() || host_has_groups;
    // Matching the path costs a search, so only templates with groups cause it.
    let captures = captures(policies, has_groups, routed.target.path.for_bytes(bytes));
    let subject = PolicySubject::from_routed(routed);
    let upstream = ctx.snapshot.plan.upstreams[routed.upstream.get()].config.name.as_str();
    let computed = subject.values(ctx, policies, request, &texts).map(|values| {
        let later = LaterFacts { upstream, server, ..values.later };
        values.with(later)
    });
    let has_variables = edits.has_variables() || policies.settings.rewrite.host.is_some();
    let values = VariableValues {
        upstream,
        server,
        captures: captures.as_ref(),
        ..facts_if(has_variables, ctx, policies, &subject, request, (&fields, computed.as_ref()), &texts)
    };
    let values = with_kept_query(values, kept_target);
    host_text.clear();
    let filled =
        policies.settings.rewrite.host.as_ref().map(|rewrite| rewrite.apply(&values, &mut host_text));
    let filled = match filled {
        Some(Ok(())) => Ok(Some(host_text.as_slice())),
        Some(Err(_)) => Err(Failure::BadHost),
        None => Ok(rewrite.host),
    };
    let outcome = filled.map(|host| {
        let own_lines = texts.vouched.as_ref().map_or(&b""[..], |vouched| &vouched.request_lines);
        let edited = Edited::new((edits, active), own_lines, values);
        let edits = (!edits.is_empty() || !own_lines.is_empty()).then_some(&edited as &dyn http1::Edits);
        let drops_authorization = drops_authorization(routed, policies);
        let drops_cookie = policies.tokens().and_then(|tokens| tokens.removed_cookie());
        let asking = AuthRequestEdits::new(conditions.as_deref(), drops_authorization, drops_cookie, edits);
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

/// Returns the edits of a request that apply; called before its texts are taken out.
fn request_edits(
    ctx: &ExchangeContext<'_>,
    policies: &RoutePolicies,
    routed: &RoutedRequest,
    server: &str,
    request: &CurrentRequest,
) -> ActiveEdits {
    let edits = &policies.settings.request_headers;
    if !edits.has_conditions() {
        return ActiveEdits::FIRST;
    }
    let conditions = ExchangeConditions::new(ctx, routed, request).forwarded(server);
    edits.active(|when| conditions.hold(when))
}

/// Returns the edits of a response that apply, and what their values may ask for; `None` if these ask for no response.
#[inline]
fn response_edits<'a>(
    ctx: &ExchangeContext<'a>,
    policies: &RoutePolicies,
    routed: &'a RoutedRequest,
    request: &'a CurrentRequest,
    response: KnownResponse<'a>,
) -> (ActiveEdits, Option<LaterFacts<'a>>) {
    if !policies.edits_ask {
        return (ActiveEdits::FIRST, None);
    }
    let conditions = ExchangeConditions::new(ctx, routed, request).answered(response);
    let active = policies.settings.response_headers.active(|when| conditions.hold(when));
    (active, Some(conditions.later()))
}

pub(crate) fn via(settings: &config::Via) -> Via<'_> {
    match settings {
        config::Via::Own => Via::Own,
        config::Via::Named(name) => Via::Named(name),
        config::Via::Off => Via::Off,
    }
}

/// Properties of a response that its edits depend on.
pub(crate) struct ResponseSource<'a> {
    /// The authority of the server; empty if none was asked.
    pub(crate) server: &'a str,
    /// Whether an error page of the proxy replaces the content.
    pub(crate) has_page: bool,
}

/// Writes the head of a server's response for the client. Called for routes with policies.
pub(crate) fn write_response(
    ctx: &ExchangeContext<'_>,
    policies: &RoutePolicies,
    routed: &RoutedRequest,
    ResponseSource { server, has_page }: ResponseSource<'_>,
    request: &CurrentRequest,
    response: &mut CurrentResponse,
    rewrite: ResponseRewrite<'_>,
) {
    let (via, passes_alt_svc) = (via(&policies.settings.options.via), policies.settings.options.alt_svc);
    let rewrite = ResponseRewrite { via, passes_alt_svc, ..rewrite };
    if !is_response_edited(policies, request, has_page) {
        let CurrentResponse { head, buffer, out, .. } = response;
        return http1::write_response(out, head, buffer.filled(), &rewrite);
    }
    let bytes = request.head_bytes();
    let fields = RequestFields::new(&request.head, bytes);
    let upstream = &ctx.snapshot.plan.upstreams[routed.upstream.get()].config;
    let headers = &policies.settings.response_headers;
    let CurrentResponse { head: parsed, buffer, out, .. } = response;
    let (status, head) = (parsed.start.status, &buffer.filled()[..parsed.len]);
    let known = KnownResponse { status, head, size: None, server };
    let (active, later) = response_edits(ctx, policies, routed, request, known);
    let captures = captures(policies, headers.has_groups(), routed.target.path.for_bytes(bytes));
    let subject = PolicySubject::from_routed(routed);
    let computed =
        subject.values(ctx, policies, request, &request.texts).map(|values| values.with_known(later));
    // Location is rewritten to the scheme of the client.
    let has_variables = headers.has_variables() || policies.settings.location.is_some();
    let known = (&fields, computed.as_ref());
    let values = VariableValues {
        upstream: &upstream.name,
        server,
        status: Some(status),
        captures: captures.as_ref(),
        ..facts_if(has_variables, ctx, policies, &subject, request, known, &request.texts)
    };
    // Servers make URLs from the Host that they were sent, which may not be the client's.
    let mut stored_host = Vec::new();
    let path = routed.target.path.for_bytes(bytes);
    let mut servers = Vec::new();
    if policies.settings.location.is_some() && has_mapped_url(parsed, buffer.filled()) {
        let host = sent_host(policies, &values, &upstream.host, (routed, server), request, &mut stored_host);
        servers = named_servers(ctx, routed, server, host);
    }
    let location = policies.settings.location.map(|urls| LocationRewrite {
        urls,
        servers: &servers,
        server_has_tls: !servers.is_empty()
            && possible_servers(ctx, routed, server).any(|known| known.tls.is_some()),
        client_scheme: values.scheme,
        client_host: seen::authority(ctx, &request.head, bytes, &routed.target),
        prefixes: policies.settings.rewrite.path.as_ref().and_then(route::PathRewrite::prefixes),
        paths: (path, request.texts.path.split(|&byte| byte == b'?').next().unwrap_or(path)),
    });
    let cookies = policies.settings.cookies.as_deref();
    let response_edits = Some((location, cookies));
    let source = if server.is_empty() { StatusSource::Proxy } else { StatusSource::Server(status) };
    let edited = Edited {
        split_cookie: &request.texts.split_cookie,
        rate_limit: &request.texts.rate_limit,
        response: response_edits,
        has_page,
        besides: rewrite.edits,
        cors: cors_fields(policies, false),
        proxy_status: proxy_status(policies, source),
        ..Edited::new((headers, active), response_lines(request), values)
    };
    let rewrite = ResponseRewrite { edits: Some(&edited), ..rewrite };
    http1::write_response(out, parsed, buffer.filled(), &rewrite);
}

/// Returns the servers that a response can be from. A stored response has none: it can be from any of the upstream.
fn possible_servers<'a>(
    ctx: &'a ExchangeContext<'_>,
    routed: &RoutedRequest,
    server: &str,
) -> impl Iterator<Item = &'a Arc<ServerPlan>> {
    let all = ctx.snapshot.plan.upstreams[routed.upstream.get()].servers.iter();
    all.filter(move |known| server.is_empty() || known.authority == server)
}

/// Returns the hosts by which a response may name its server: addresses, and the Host that was sent.
fn named_servers<'a>(
    ctx: &'a ExchangeContext<'_>,
    routed: &RoutedRequest,
    server: &str,
    host: &'a [u8],
) -> Vec<&'a str> {
    // A Host that is not UTF-8 matches no server.
    let host = std::str::from_utf8(host).ok().filter(|host| !host.is_empty());
    possible_servers(ctx, routed, server).map(|known| known.authority.as_str()).chain(host).collect()
}

/// Returns how `location` maps a field with this name.
fn mapped_url(name: &[u8]) -> Option<Mapped> {
    // The length decides first, which spares nearly all comparisons.
    match name.len() {
        8 if name.eq_ignore_ascii_case(b"location") => Some(Mapped::Location),
        16 if name.eq_ignore_ascii_case(b"content-location") => Some(Mapped::Location),
        7 if name.eq_ignore_ascii_case(b"refresh") => Some(Mapped::Refresh),
        _ => None,
    }
}

/// Whether a response has a field with a URL that `location` maps.
fn has_mapped_url(head: &http1::ResponseHead, bytes: &[u8]) -> bool {
    head.fields.iter().any(|field| mapped_url(field.name.for_bytes(bytes)).is_some())
}

/// Returns the Host that a server was sent. For a stored response, no head was written for a server: `stored` gets the host.
fn sent_host<'a>(
    policies: &RoutePolicies,
    values: &VariableValues<'_, RequestFields<'_>>,
    setting: &'a HostHeader,
    (routed, server): (&RoutedRequest, &'a str),
    request: &'a CurrentRequest,
    stored: &'a mut Vec<u8>,
) -> &'a [u8] {
    match (setting, &policies.settings.rewrite.host) {
        _ if !request.texts.host.is_empty() => &request.texts.host,
        (_, Some(rewrite)) if server.is_empty() => {
            // Without a valid host, no server was asked for the response.
            let _ = rewrite.apply(values, stored);
            stored
        }
        (HostHeader::Pass, _) => routed.target.authority.for_bytes(request.head_bytes()),
        (HostHeader::Server, _) => server.as_bytes(),
        (HostHeader::Set(host), _) => host.as_bytes(),
    }
}

/// Whether the policies of the route, or what is noted for the request, change a server's response.
#[inline]
fn is_response_edited(policies: &RoutePolicies, request: &CurrentRequest, has_page: bool) -> bool {
    let config::Policies { response_headers, location, cookies, cors, options, .. } = &*policies.settings;
    let Texts { split_cookie, rate_limit, .. } = &request.texts;
    location.is_some()
        || has_page
        || !response_headers.is_empty()
        || cookies.is_some()
        || cors.is_some()
        || options.proxy_status.is_some()
        || !(split_cookie.is_empty() && rate_limit.is_empty() && response_lines(request).is_empty())
}

fn cors_fields(policies: &RoutePolicies, is_preflight: bool) -> Option<CorsFields<'_>> {
    policies.settings.cors.as_ref().map(|cors| CorsFields::new(cors, is_preflight))
}

/// Returns the name of this proxy in Proxy-Status, with the source of a response; `None` if the route does not send it.
fn proxy_status(policies: &RoutePolicies, source: StatusSource) -> Option<(&str, StatusSource)> {
    Some((policies.settings.options.proxy_status.as_deref()?, source))
}

/// Properties of a response that the proxy itself makes.
#[derive(Clone, Copy)]
pub(crate) struct OwnResponse {
    pub(crate) status: u16,
    pub(crate) source: StatusSource,
    pub(crate) is_preflight: bool,
}

/// Applies the edits to a response of the proxy, whose fields begin at `start`.
pub(crate) fn edit_own(
    ctx: &ExchangeContext<'_>,
    policies: &RoutePolicies,
    subject: &PolicySubject,
    OwnResponse { status, source, is_preflight }: OwnResponse,
    request: &CurrentRequest,
    start: usize,
    out: &mut Vec<u8>,
) {
    let headers = &policies.settings.response_headers;
    let own_lines = response_lines(request);
    let cors = cors_fields(policies, is_preflight);
    let proxy_status = proxy_status(policies, source);
    let rate_limit = &request.texts.rate_limit;
    let has_lines = !own_lines.is_empty() || !rate_limit.is_empty();
    // Nothing to edit: the lines are not searched.
    if headers.is_empty() && !has_lines && cors.is_none() && proxy_status.is_none() {
        return;
    }
    let PolicySubject { route, target, client, user, framing } = *subject;
    let (routed, copied);
    let (active, later) = if policies.edits_ask {
        let known =
            RoutedRequest { route, target, client, user, framing, ..RoutedRequest::new(ctx, &request.head) };
        routed = later::routed_again(ctx, request, known);
        copied = head_for_values(headers, out);
        let known = KnownResponse { status, head: out, size: None, server: "" };
        let (active, _) = response_edits(ctx, policies, &routed, request, known);
        // The lines change while values are computed from them.
        let known = KnownResponse { status, head: &copied, size: None, server: "" };
        (active, Some(ExchangeConditions::new(ctx, &routed, request).answered(known).later()))
    } else {
        (ActiveEdits::FIRST, None)
    };
    let bytes = request.head_bytes();
    let fields = RequestFields::new(&request.head, bytes);
    let captures = captures(policies, headers.has_groups(), subject.target.path.for_bytes(bytes));
    let computed =
        subject.values(ctx, policies, request, &request.texts).map(|values| values.with_known(later));
    let known = (&fields, computed.as_ref());
    let values = VariableValues {
        status: Some(status),
        captures: captures.as_ref(),
        ..facts_if(headers.has_variables(), ctx, policies, subject, request, known, &request.texts)
    };
    let edited =
        Edited { cors, proxy_status, rate_limit, ..Edited::new((headers, active), own_lines, values) };
    http1::edit_lines(out, start, &edited);
}

/// Returns a copy of a response's head, if values of its edits ask for it.
#[cold]
fn head_for_values(headers: &HeaderEdits, head: &[u8]) -> Vec<u8> {
    let reads_head = |value: &Arc<Expression>| {
        value.asks_for_family(FactFamily::ResponseHeaders) || value.asks_for(Fact::ResponseSize)
    };
    if headers.values().any(reads_head) { head.to_vec() } else { Vec::new() }
}

/// Returns fields of the authentication server for the client.
fn response_lines(request: &CurrentRequest) -> &[u8] {
    request.texts.vouched.as_ref().map_or(b"", |vouched| &vouched.response_lines)
}

/// Returns what edits can refer to once the route is known.
pub(crate) fn facts<'a>(
    ctx: &ExchangeContext<'a>,
    policies: &'a RoutePolicies,
    subject: &PolicySubject,
    request: &'a CurrentRequest,
    (fields, values): (&'a RequestFields<'a>, Option<&'a RequestValues<'a>>),
    texts: &'a Texts,
) -> VariableValues<'a, RequestFields<'a>> {
    let bytes = request.head_bytes();
    let seen = seen::request(ctx, &subject.target, bytes, subject.client, fields, &request.head);
    let seen = match values {
        Some(conditions) => route::RequestParts { conditions, ..seen },
        None => seen,
    };
    VariableValues {
        // IDs are only made for routes whose templates use them.
        request_id: if policies.names_request { &texts.id } else { b"" },
        hostname: &ctx.snapshot.plan.hostname,
        proxy: Some(&ctx.worker.all_counters),
        unix_ms,
        user: policies.user(subject.user, texts.user()),
        route: &ctx.snapshot.plan.routes[subject.route].label,
        tls: ctx.client.tls.as_deref().map(ClientTls::variables).unwrap_or_default(),
        host: host_without_port(seen::authority(ctx, &request.head, bytes, &subject.target)),
        port: seen::port(ctx, &request.head, bytes, &subject.target),
        ..VariableValues::from_request(seen, seen::scheme(ctx, &request.head, bytes))
    }
}

/// Reads the clock: texts with the time are for measurements, for which the tick of the worker is too old.
fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Returns the same as [`facts`]; only the fields of the request if no value has variables, which spares searches.
fn facts_if<'a>(
    has_variables: bool,
    ctx: &ExchangeContext<'a>,
    policies: &'a RoutePolicies,
    subject: &PolicySubject,
    request: &'a CurrentRequest,
    (fields, values): (&'a RequestFields<'a>, Option<&'a RequestValues<'a>>),
    texts: &'a Texts,
) -> VariableValues<'a, RequestFields<'a>> {
    if has_variables {
        return facts(ctx, policies, subject, request, (fields, values), texts);
    }
    let only_fields = route::RequestParts {
        listener: 0,
        host: b"",
        path: b"",
        query: None,
        method: b"",
        client: subject.client,
        fields,
        conditions: &route::NoConditions,
    };
    VariableValues::from_request(only_fields, "")
}

/// Appends the fields of a request for an error page, by the client's request.
pub(crate) fn write_page_fields(
    ctx: &ExchangeContext<'_>,
    routed: &RoutedRequest,
    request: &CurrentRequest,
    (edits, status): (&HeaderEdits, u16),
    out: &mut Vec<u8>,
) {
    let Some(policies) = routed.policies(ctx).filter(|_| !edits.is_empty()) else { return };
    let subject = PolicySubject::from_routed(routed);
    let fields = RequestFields::new(&request.head, request.head_bytes());
    let computed = subject.values(ctx, policies, request, &request.texts);
    let values = VariableValues {
        status: Some(status),
        ..facts(ctx, policies, &subject, request, (&fields, computed.as_ref()), &request.texts)
    };
    edits.write(&values, Present::default(), ActiveEdits::FIRST, out);
}

/// Appends the URL of a login page for a client.
///
/// # Errors
/// If its host is empty.
pub(crate) fn sign_in(
    ctx: &ExchangeContext<'_>,
    page: &SignIn,
    subject: &PolicySubject,
    request: &CurrentRequest,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let Some(policies) = ctx.snapshot.plan.routes[subject.route].policies.as_deref() else { return Ok(()) };
    let bytes = request.head_bytes();
    let fields = RequestFields::new(&request.head, bytes);
    let computed = subject.values(ctx, policies, request, &request.texts);
    let values = facts(ctx, policies, subject, request, (&fields, computed.as_ref()), &request.texts);
    let url = seen::url(ctx, &request.head, bytes, &subject.target);
    page.location(&values, &url, out).map_err(|_| Failure::BadHost)
}

/// Returns the same facts with the query that the server gets, where the cache omits a part of it.
pub(crate) fn with_kept_query<'a>(
    values: VariableValues<'a, RequestFields<'a>>,
    kept_target: Option<&'a [u8]>,
) -> VariableValues<'a, RequestFields<'a>> {
    let Some(target) = kept_target else { return values };
    let query = target.iter().position(|&byte| byte == b'?').map(|mark| &target[mark + 1..]);
    VariableValues { request: route::RequestParts { query, ..values.request }, ..values }
}

/// Returns what the groups in the route's path matched, if an edit refers to one.
fn captures(policies: &RoutePolicies, has_groups: bool, path: &[u8]) -> Option<Captures> {
    let pattern = policies.pattern.as_ref().filter(|_| has_groups)?;
    pattern.captures_of_path(path)
}

/// The edits of one message, for the writer of heads in `http1`.
struct Edited<'a> {
    headers: &'a HeaderEdits,
    /// The edits whose conditions hold.
    active: ActiveEdits,
    /// Fields with a default that were seen so far.
    present: Cell<Present>,
    /// Lines from authentication, each with CRLF.
    own_lines: &'a [u8],
    /// In a response: the Set-Cookie line that keeps the client on its side of a split.
    split_cookie: &'a [u8],
    /// In a response: the lines with the remaining rate limit.
    rate_limit: &'a [u8],
    values: VariableValues<'a, RequestFields<'a>>,
    /// In a server's response: the rewrites of its URLs and of its cookies.
    response: Option<(Option<LocationRewrite<'a>>, Option<&'a route::CookieRewrite>)>,
    /// Whether an error page of the proxy replaces the server's content.
    has_page: bool,
    /// Edits that are independent of the route.
    besides: Option<&'a dyn http1::Edits>,
    cors: Option<CorsFields<'a>>,
    proxy_status: Option<(&'a str, StatusSource)>,
}

struct CorsFields<'a> {
    cors: &'a Cors,
    is_preflight: bool,
    /// Whether Vary has named Origin so far.
    is_named: Cell<bool>,
}

impl<'a> CorsFields<'a> {
    fn new(cors: &'a Cors, is_preflight: bool) -> Self {
        Self { cors, is_preflight, is_named: Cell::new(!cors.varies()) }
    }

    /// Appends a server's Vary, extended by Origin.
    fn extend_vary(&self, value: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(value);
        if !Cors::is_named_in(value) && !self.is_named.get() {
            out.extend_from_slice(if value.is_empty() { b"Origin" } else { b", Origin" });
        }
        self.is_named.set(true);
    }

    fn write(&self, fields: &RequestFields<'_>, out: &mut Vec<u8>) {
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

/// A field whose value is rewritten.
enum Mapped {
    /// Location or Content-Location.
    Location,
    Refresh,
    SetCookie,
    /// Vary, if the response depends on Origin.
    Vary,
}

impl<'a> Edited<'a> {
    /// The edits of every message: those of the route, and lines of the authentication's.
    fn new(
        (headers, active): (&'a HeaderEdits, ActiveEdits),
        own_lines: &'a [u8],
        values: VariableValues<'a, RequestFields<'a>>,
    ) -> Self {
        Self {
            headers,
            active,
            present: Cell::default(),
            own_lines,
            split_cookie: b"",
            rate_limit: b"",
            values,
            response: None,
            has_page: false,
            besides: None,
            cors: None,
            proxy_status: None,
        }
    }

    /// Whether a server's field is dropped.
    fn drops(&self, name: &[u8]) -> bool {
        http1::Edits::removes(self, name) || (self.has_page && is_of_content(name))
    }

    fn mapped(&self, name: &[u8]) -> Option<Mapped> {
        let (location, cookies) = self.response.as_ref()?;
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        // The length decides first, which spares nearly all comparisons.
        match name.len() {
            4 if self.cors.is_some() && is(b"vary") => Some(Mapped::Vary),
            10 if cookies.is_some() && is(b"set-cookie") => Some(Mapped::SetCookie),
            _ if location.is_some() => mapped_url(name),
            _ => None,
        }
    }

    /// Appends a rewritten value. Returns false, and appends nothing, if the value stays unchanged.
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
                    // An unchanged value must leave nothing behind.
                    out.truncate(start);
                }
                is_mapped
            }
            (Mapped::SetCookie, _, Some(cookies)) => cookies.apply(value, out),
            _ => false,
        }
    }
}

/// Whether a field describes the content (RFC 9110 §8, RFC 9530). Other fields are about the error, such as
/// Retry-After, or about its display, such as Content-Security-Policy.
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
        let is_removed = self.headers.remove(name, self.active)
            || self.besides.is_some_and(|besides| besides.removes(name))
            || (self.cors.is_some() && Cors::replaces(name));
        // A removed field counts as missing, so that its default is written.
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
        out.extend_from_slice(self.rate_limit);
        self.headers.write(&self.values, self.present.get(), self.active, out);
        if let Some(cors) = &self.cors {
            cors.write(self.values.request.fields, out);
        }
        if let Some((name, source)) = self.proxy_status {
            proxy_status::write(name, source, out);
        }
    }
}
