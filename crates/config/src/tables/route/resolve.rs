//! Checks relations between the options of routes, and converts them to settings.

use std::num::NonZeroU32;
use std::sync::Arc;

use ::route::{
    CONDITIONAL_BRANCHES_MAX, ClaimRules, ContentSyntax, CookieRewrite, FixedResponse, FixedResponseError,
    HostRewrite, MappedUrls, NamedValues, OfClient, PathRewrite, PathRule, Redirect, RouteTemplate, Split,
    SplitShare, TemplateScope, TemplateStage, TemplateUse, response_status,
};

use cache::{ACCEL_EXPIRES, TargetedField};
use expression::{ExchangeStage, FactFamily, ValueType};
use mistake::nearest;

use crate::document::reader::{Reader, Span, refuse};
use crate::document::value_error::ValueFault;
use crate::option::kind::Located;
use crate::option::later_condition::check_value_of_key;
use crate::option::pairs::Pair;
use crate::option::table::Element;
use crate::option::templates::template;
use crate::option::value_key::name_in_expressions;
use crate::tables::cache::options as cache_options;
use crate::tables::files;
use crate::tables::forward_auth;
use crate::tables::headers::edits;
use crate::tables::jwt::options as jwt_options;
use crate::tables::names::{Names, WrongTexts};
use crate::tables::request_buffering;
use crate::tables::route::capture;
use crate::tables::route::concurrency::{ConcurrencyLimit, concurrency};
use crate::tables::route::kinds::{STATUS_EXPECTED, StatusWritten};
use crate::tables::route::options::{
    AuthWritten, CookiesWritten, RedirectWritten, RespondWritten, RewriteWritten, RouteWritten,
};
use crate::tables::route::rate_limit::rate_limit;
use crate::tables::route::relations::{Relations, RoutePlace};
use crate::tables::route::split::ShareWritten;
use crate::tables::route::{
    Access, Action, Auth, Policies, RateLimit, Require, Respond, Rewrite, Route, accel, conditions, cors,
    mirror, named_upstream, on_status, split, web_bot_auth,
};
use crate::tables::shaping::Shaping;
use crate::tables::values::{ValuesWritten, named};

/// Converts a route, except its name; `None` if there is a mistake, found here or before.
pub(crate) fn route(
    element: &Element<RouteWritten>,
    names: &Names<'_>,
    reader: &mut Reader<'_>,
) -> Option<Route> {
    let written = &element.value;
    let refused_before = reader.refused();
    let rules = written.requests.rules(claims(written, reader), names, reader);
    let pattern = match &written.requests.path {
        PathRule::Pattern(pattern) => Some(pattern),
        PathRule::Exact(_) | PathRule::Prefix(_) | PathRule::TextPrefix(_) => None,
    };
    let values = if written.values.is_empty() {
        Arc::clone(&names.values)
    } else {
        Arc::new(named(&names.values, &written.values))
    };
    let scope = TemplateScope { pattern, values: Some(&values) };
    let action = action(element, scope, names, reader);
    let mut policies = policies(written, scope, names, reader);
    match &action {
        Some(Action::Redirect(_) | Action::Respond(_)) => warn_of_idle(element, FOR_CLIENTS, reader),
        Some(Action::Files(files)) if files.otherwise.is_none() => {
            warn_of_idle(element, FOR_FILES, reader);
            // What a rewrite of the path maps back is of servers.
            if let Some(policies) = &mut policies {
                (policies.cookies, policies.location) = (None, None);
            }
        }
        Some(Action::Upstream(_) | Action::Split(_) | Action::Named(_) | Action::Files(_)) | None => {}
    }
    if let Some(policies) = &policies {
        warn_of_nobody(written, policies, reader);
        check_limits(written, policies, reader);
    }
    let cache = cache(written, &values, reader);
    check_cors(written, names, reader);
    if let (Some(policies), Some(cache)) = (&policies, &cache) {
        warn_of_unkeyed(written, policies, cache, reader);
    }
    check_relations(element, action.as_ref(), names, reader);
    if let (Some(written), Some(action), Some(policies)) = (&written.on_status, &action, &policies)
        && let Some(fallbacks) = &policies.on_status
    {
        on_status::check(written, fallbacks, action, reader);
    }
    let name = written.name.as_ref().map(|name| name.value.clone());
    let (action, policies) = action.zip(policies)?;
    let name = name.unwrap_or_else(|| Route::default_name(&rules[0]));
    let cached = written.cache.as_ref().map(|cache| &cache.value).filter(|_| cache.is_some());
    let mut route = Route {
        name,
        rules,
        action,
        policies: policies.into(),
        shaping: Shaping {
            bandwidths: written.bandwidths.clone(),
            weight: written.weight.unwrap_or(NonZeroU32::MIN),
            delay: written.delay.clone(),
            response_delay: written.response_delay.as_ref().map(|delay| delay.value.clone()),
        }
        .into(),
        cache_when: cached.and_then(|cache| cache.when.as_ref()).map(|when| Arc::clone(&when.value)),
        cache_rules: cached.map(cache_options::rules).unwrap_or_default(),
        cache: cache.map(Box::new),
        values,
    };
    conditions::check(element, &mut route, is_nobody(written), reader);
    check_keys(&written.values, &route, names, reader);
    (element.is_intact && reader.refused() == refused_before).then_some(route)
}

/// The cache policy of a route.
fn cache(
    written: &RouteWritten,
    values: &NamedValues,
    reader: &mut Reader<'_>,
) -> Option<cache::CachePolicy> {
    let Element { value, .. } = written.cache.as_deref()?;
    for Located { value: name, at } in &value.key_values {
        if let Some(value) = values.find(name) {
            check_value_of_key(("key_values", name), value, at, reader);
        } else if !reader.refuses_map(at, "key_values", name) {
            let mistake = reader.mistake(at, format!("key_values: no value is named {name:?}"));
            let near = nearest(name, values.names()).map(str::to_owned);
            reader.add(
                mistake
                    .meaning(near)
                    .expecting("a name of [values], of values of the route, or of a map such as map.NAME"),
            );
        }
    }
    let mut policy = cache_options::policy(value, reader)?;
    policy.ignore.origin = written.cors.is_some();
    if has_accel(written) && !policy.targets.iter().any(|target| target.name == ACCEL_EXPIRES) {
        policy.targets.insert(0, TargetedField { name: ACCEL_EXPIRES.into(), is_sent: false });
    }
    Some(policy)
}

/// Rejects values of a route that replace those in the keys of its upstreams, if they are known too late for these.
fn check_keys(values: &ValuesWritten, route: &Route, names: &Names<'_>, reader: &mut Reader<'_>) {
    let late = values.iter().filter(|value| value.value.stage() > ExchangeStage::Authenticated);
    for Pair { at, name, value } in late {
        let upstreams = route.upstreams().filter_map(|upstream| names.keyed_by.get(upstream));
        if let Some((option, _)) = upstreams.flatten().find(|(_, key)| key == name) {
            check_value_of_key((option, name), value, at, reader);
        }
    }
}

fn has_accel(written: &RouteWritten) -> bool {
    written.accel.as_ref().is_some_and(|folders| !folders.value.is_empty())
}

/// Rejects what takes effect against `cors`: methods without that of preflights, and fields that it writes.
fn check_cors(written: &RouteWritten, names: &Names<'_>, reader: &mut Reader<'_>) {
    let Some(cors) = &written.cors else { return };
    if !written.requests.has_method("OPTIONS") {
        let message = "cors: browsers send OPTIONS first, which methods of this route excludes";
        refuse(&cors.at, message, "methods with \"OPTIONS\"", reader);
    }
    let tables = written.response_headers.iter().flat_map(|edits| {
        let used = |name: &Located<String>| names.header_sets.get(name.value.as_str()).copied();
        edits.value.uses.iter().filter_map(used).chain([&edits.value])
    });
    let edits = tables.flat_map(|edits| edits.set.iter().chain(&edits.add).chain(&edits.default));
    for edit in edits.filter(|edit| ::route::Cors::replaces(edit.name.0.as_bytes())) {
        let message = format!("response_headers: cors writes {}", edit.name.0);
        refuse(&edit.at, &message, "one of them", reader);
    }
}

/// Rejects options that do not go together.
fn check_relations(
    Element { value: written, at, .. }: &Element<RouteWritten>,
    action: Option<&Action>,
    names: &Names<'_>,
    reader: &mut Reader<'_>,
) {
    let plain = |upstream: usize| {
        let protocol = names.protocols.get(upstream).filter(|protocol| !protocol.is_multiplexed())?;
        Some((*names.upstream_names.get(upstream)?, *protocol))
    };
    let plain = action.and_then(|action| action.upstreams().find_map(plain));
    let compress = written.options.compress.as_ref();
    let relations = Relations {
        // A table may be among what was lost.
        has_store: names.has_cache || !reader.is_whole(),
        has_cache: written.cache.is_some(),
        has_response_delay: written.response_delay.is_some(),
        has_files: action.is_some_and(Action::has_only_files),
        has_redirect: written.redirect.is_some(),
        asks_servers: action.map(|action| action.upstreams().next().is_some()),
        plain_upstream: plain,
        has_on_status: written.on_status.as_ref().is_some_and(|fallbacks| !fallbacks.value.is_empty()),
        has_accel: has_accel(written),
        has_grpc_web: written.options.grpc_web,
        has_alt_svc: written.options.alt_svc,
        has_compress: compress.is_some(),
        has_dictionaries: compress.is_some_and(|compress| !compress.dictionaries.is_empty()),
    };
    for (place, message, expected) in relations.broken() {
        let place = match place {
            RoutePlace::Route => at,
            RoutePlace::Cache => written.cache.as_ref().map_or(at, |cache| &cache.at),
            RoutePlace::ResponseDelay => written.response_delay.as_ref().map_or(at, |delay| &delay.at),
        };
        refuse(place, &message, &expected, reader);
    }
}

fn action(
    Element { value: written, at, is_intact, .. }: &Element<RouteWritten>,
    scope: TemplateScope<'_>,
    names: &Names<'_>,
    reader: &mut Reader<'_>,
) -> Option<Action> {
    let RouteWritten { upstream, split, redirect, respond, files, .. } = written;
    let places = [
        ("upstream", upstream.as_ref().map(|upstream| &upstream.at)),
        ("split", split.as_ref().map(|split| &split.at)),
        ("redirect", redirect.as_ref().map(|redirect| &redirect.at)),
        ("respond", respond.as_ref().map(|respond| &respond.at)),
        ("files", files.as_ref().map(|files| &files.at)),
    ];
    let mut there = places.iter().filter_map(|(option, at)| at.map(|at| (*option, at)));
    match (there.next(), there.next()) {
        (Some((first, _)), Some((second, at))) => {
            refuse(at, &format!("[[route]] has {first} and {second}"), "one of them", reader);
        }
        (None, _) if *is_intact && reader.is_whole() => {
            refuse(at, "[[route]] has no action", "upstream, split, redirect, respond or files", reader);
        }
        _ => {}
    }
    if let Some(upstream) = upstream {
        if upstream.value.contains('$') {
            return named_upstream::action(upstream, scope, names, reader);
        }
        names.http_upstream("upstream", &upstream.value, &upstream.at, reader).map(Action::Upstream)
    } else if let Some(Located { value, at }) = split {
        split_action(value, at, names, reader)
    } else if let Some(redirect) = redirect {
        redirect_action(&redirect.value, scope, reader)
    } else if let Some(files) = files {
        files::files(&files.value, scope, names, reader).map(|files| Action::Files(Arc::new(files)))
    } else {
        respond_action(&respond.as_ref()?.value, scope, names, reader)
    }
}

fn split_action(
    shares: &[Pair<String, ShareWritten>],
    at: &Span,
    names: &Names<'_>,
    reader: &mut Reader<'_>,
) -> Option<Action> {
    let mut found = Vec::with_capacity(shares.len());
    for Pair { at, name, value: ShareWritten { weight, when } } in shares {
        let upstream = names.http_upstream("split", name, at, reader)?;
        let when = when.as_ref().map(|when| Arc::clone(&when.value));
        found.push(SplitShare { upstream, name, weight: *weight, when });
    }
    let (mut has_shares, mut has_conditions) = (false, false);
    for share in found.iter().filter(|share| share.weight > 0) {
        has_shares = true;
        has_conditions |= share.when.is_some();
    }
    let split = Split::with_conditions(found);
    if split.is_none() {
        let (message, expected) = match (has_shares, has_conditions) {
            (true, true) if shares.len() > CONDITIONAL_BRANCHES_MAX => {
                ("split: there are too many upstreams for conditions", "at most 64")
            }
            (true, _) => (
                "split: a request may be outside of all conditions",
                "a weight above 0 without a condition, such as { app = 9, canary = { weight = 1, when = '…' } }",
            ),
            (false, _) => {
                ("split: no upstream gets a share", "a weight above 0, such as { app = 9, canary = 1 }")
            }
        };
        refuse(at, message, expected, reader);
    }
    split.map(Action::Split)
}

fn redirect_action(
    written: &RedirectWritten,
    scope: TemplateScope<'_>,
    reader: &mut Reader<'_>,
) -> Option<Action> {
    let to = written.to.as_ref()?;
    let pattern = written.pattern.as_ref().map(|pattern| &pattern.value).or(scope.pattern);
    let values = scope.values.unwrap_or(NamedValues::NONE);
    let redirect = Redirect::new(written.status, &to.value, pattern.cloned(), values);
    template(redirect, "to", &to.at, "a URL such as https://www.example.com$path, or a path", reader)
        .map(|redirect| Action::Redirect(Box::new(redirect)))
}

fn respond_action(
    written: &RespondWritten,
    scope: TemplateScope<'_>,
    names: &Names<'_>,
    reader: &mut Reader<'_>,
) -> Option<Action> {
    const PLAIN: &str = "text/plain; charset=utf-8";
    let RespondWritten { status, body, file, content_type } = written;
    if let (Some(_), Some(file)) = (body, file) {
        refuse(&file.at, "respond has body and file", "one of them", reader);
    }
    let Located { value: status, at: status_at } = status.as_ref()?;
    let (status, computed) = match status {
        StatusWritten::Fixed(status) => (*status, None),
        // What clients get if the value is no status.
        StatusWritten::Computed(text) => {
            (500, Some(computed_status((text, status_at), scope, names, reader)?))
        }
    };
    let page = file.as_ref().map(|file| &file.value);
    let bytes = match (page, body) {
        (Some(page), _) => page.body.to_vec(),
        (None, body) => body.as_ref().map(|body| body.value.clone().into_bytes()).unwrap_or_default(),
    };
    let of_file = page.map_or(PLAIN, |page| &page.content_type);
    let media_type = content_type.as_ref().map_or(of_file, |content_type| &content_type.value);
    let filled = match body.as_ref().filter(|body| page.is_none() && body.value.contains("${")) {
        Some(Located { value, at }) => {
            let place = TemplateUse::Content(ContentSyntax::of_media_type(media_type));
            // A pattern has groups, which a body may show, too.
            let made = RouteTemplate::new(value, place, TemplateStage::Authenticated, scope);
            Some(template(made, "body", at, "a text, with variables such as ${client_address}", reader)?)
        }
        None => None,
    };
    let bytes = match filled.as_ref().and_then(RouteTemplate::constant) {
        Some(constant) => constant.to_vec(),
        None => bytes,
    };
    let filled = filled.filter(|filled| filled.constant().is_none()).map(Arc::new);
    match FixedResponse::new(status, media_type, bytes) {
        Ok(response) => {
            let file = page.map(|page| page.file.clone());
            Some(Action::Respond(Respond {
                response: Arc::new(response),
                status: computed,
                body: filled,
                file,
            }))
        }
        Err(error) => {
            let body = body.as_ref().map(|body| &body.at).or(file.as_ref().map(|file| &file.at));
            let (option, at) = match &error {
                FixedResponseError::Status(_) => ("status", Some(status_at)),
                FixedResponseError::Body(_) => ("body", body),
                FixedResponseError::ContentType(_) => {
                    ("content_type", content_type.as_ref().map(|it| &it.at))
                }
            };
            let mistake = reader.mistake(at.unwrap_or(status_at), format!("{option}: {error}"));
            reader.add(mistake);
            None
        }
    }
}

/// A status with values. What it can be is checked, as far as it is known.
fn computed_status(
    (text, at): (&str, &Span),
    scope: TemplateScope<'_>,
    names: &Names<'_>,
    reader: &mut Reader<'_>,
) -> Option<Arc<RouteTemplate>> {
    const EXPECTED: &str = "a number or a text from 200 to 599";
    let made = RouteTemplate::new(text, TemplateUse::FieldValue, TemplateStage::Authenticated, scope);
    let status = template(made, "status", at, STATUS_EXPECTED, reader)?;
    let Some(value) = status.only_value() else { return Some(Arc::new(status)) };
    let of = value.kind().of;
    if !matches!(of, ValueType::Integer | ValueType::Text) {
        refuse(at, &format!("status: {text} is {of}, not a status"), EXPECTED, reader);
        return None;
    }
    if let Some(possible) = value.possible_texts() {
        let is_status = |text: &str| response_status(text.as_bytes()).is_some();
        let wrong = WrongTexts::find("status", &possible, names.maps, is_status);
        for (option, text) in &wrong.configured {
            refuse(at, &format!("{option}: {text:?} is not a status"), EXPECTED, reader);
        }
        if !wrong.configured.is_empty() {
            return None;
        }
        let expected = "200 to 599; requests with others get 500";
        wrong.warn_of_files("entries that are no status", expected, at, reader);
    }
    Some(Arc::new(status))
}

fn policies(
    written: &RouteWritten,
    scope: TemplateScope<'_>,
    names: &Names<'_>,
    reader: &mut Reader<'_>,
) -> Option<Policies> {
    let values = scope.values.unwrap_or(NamedValues::NONE);
    let auth = match written.auth.as_deref() {
        Some(Element { value, .. }) => Some(auth(value)?),
        None => None,
    };
    let jwt = match &written.jwt {
        Some(element) => Some(jwt_options::jwt(element, reader)?),
        None => None,
    };
    check_jwt(written, reader);
    let forward_auth = match &written.forward_auth {
        Some(element) => Some(forward_auth::forward_auth(element, values, names, reader)?),
        None => None,
    };
    check_copied(written, reader);
    let web_bot_auth = match &written.web_bot_auth {
        Some(element) => Some(web_bot_auth::web_bot_auth(element, reader)?),
        None => None,
    };
    let (rate_limits, concurrency) = limits(written, reader);
    let rewrite = match written.rewrite.as_deref() {
        Some(Element { value, is_intact: true, .. }) => {
            rewrite(value, &written.requests.path, values, reader)?
        }
        // Groups of a pattern that could not be read are none of the route's path.
        Some(_) => return None,
        None => Rewrite::default(),
    };
    let cookies = match &written.cookies {
        Some(element) => Some(cookies(element, rewrite.path.as_ref(), reader)?),
        None => mapped_paths(rewrite.path.as_ref()),
    };
    let cors = match &written.cors {
        Some(element) => Some(cors::cors(element, written.options.grpc_web, reader)?),
        None => None,
    };
    let request_buffering = request_buffering::of_route(written.request_buffering.as_ref(), reader);
    let (of_requests, of_responses) = ((TemplateStage::Forward, scope), (TemplateStage::Response, scope));
    Some(Policies {
        access: access(written).into(),
        auth: auth.map(Box::new),
        require: require(written, reader),
        forward_auth: forward_auth.map(Box::new),
        jwt: jwt.map(Box::new),
        web_bot_auth: web_bot_auth.map(Box::new),
        rate_limits,
        concurrency,
        mirror: mirror::mirror(written.mirror.as_deref(), names, reader).map(Box::new),
        capture: capture::of_route(written.capture.as_deref(), request_buffering, reader).map(Box::new),
        on_status: on_status::fallbacks(written.on_status.as_ref(), names, reader)?,
        accel: accel::folders(written.accel.as_ref(), reader),
        request_buffering,
        request_headers: edits(&written.request_headers, of_requests, names, reader)?,
        response_headers: edits(&written.response_headers, of_responses, names, reader)?,
        location: mapped_urls(written, &rewrite),
        rewrite: rewrite.into(),
        split_key: split::split_key(written, reader).map(Box::new),
        cors: cors.map(Box::new),
        cookies: cookies.map(Box::new),
        options: written.options.clone().into(),
        retry: written.retry.as_ref().map(|retry| Box::new(retry.value.clone())),
        timeouts: written.timeouts.as_ref().map(|timeouts| timeouts.value).unwrap_or_default().into(),
        limits: written.limits.as_ref().map(|limits| limits.value).unwrap_or_default().into(),
    })
}

fn limits(written: &RouteWritten, reader: &mut Reader<'_>) -> (Box<[RateLimit]>, Box<[ConcurrencyLimit]>) {
    let rates = written.rate_limit.iter().filter_map(|limit| rate_limit(&limit.value, reader)).collect();
    (rates, written.concurrency.iter().filter_map(|limit| concurrency(limit, reader)).collect())
}

fn auth(written: &AuthWritten) -> Option<Auth> {
    let (file, users) = written.users.clone()?;
    Some(Auth { realm: written.realm.clone(), file, users })
}

fn access(RouteWritten { allow, deny, .. }: &RouteWritten) -> Access {
    Access { allow: allow.clone(), deny: deny.networks.clone(), rules: deny.rules() }
}

/// How many of the ways to prove who one is are needed. Without several the option is a mistake.
fn require(written: &RouteWritten, reader: &mut Reader<'_>) -> Require {
    let Some(Located { value, at }) = &written.require else { return Require::All };
    let ways = [
        written.auth.is_some(),
        written.jwt.is_some(),
        written.web_bot_auth.is_some(),
        written.forward_auth.is_some(),
    ];
    if ways.into_iter().filter(|way| *way).count() < 2 {
        refuse(
            at,
            "require: the route has fewer than two authentication methods",
            "two of auth, jwt, web_bot_auth and forward_auth",
            reader,
        );
    }
    *value
}

/// Rejects edits of fields that an authentication server writes.
fn check_copied(written: &RouteWritten, reader: &mut Reader<'_>) {
    let Some(auth) = &written.forward_auth else { return };
    let tables = written.request_headers.iter().map(|edits| &edits.value);
    for Pair { at, name, .. } in tables.flat_map(|edits| edits.set.iter().chain(&edits.add)) {
        if auth.value.copies(&name.0) {
            let message = format!("request_headers: {} is one of forward_auth.copy_headers", name.0);
            refuse(at, &message, "another name in one of them", reader);
        }
    }
}

fn rewrite(
    written: &RewriteWritten,
    path: &PathRule,
    values: &NamedValues,
    reader: &mut Reader<'_>,
) -> Option<Rewrite> {
    let RewriteWritten { path: to, pattern, normalize, host } = written;
    let groups = match path {
        PathRule::Pattern(pattern) => Some(pattern),
        PathRule::Exact(_) | PathRule::Prefix(_) | PathRule::TextPrefix(_) => None,
    };
    if let (None, Some(pattern)) = (to, pattern) {
        refuse(
            &pattern.at,
            "rewrite has pattern without path",
            "path, the replacement for matching paths",
            reader,
        );
    }
    let of_prefix =
        to.is_some() && pattern.is_none() && matches!(path, PathRule::Prefix(_) | PathRule::TextPrefix(_));
    if let Some(Located { value: true, at }) = normalize
        && !of_prefix
    {
        refuse(
            at,
            "rewrite.normalize is for the rest of a path behind a prefix",
            "path without pattern, in a route for a prefix",
            reader,
        );
    }
    let path = match to {
        Some(Located { value: to, at }) => {
            let rewrite = match (pattern, path) {
                (Some(own), _) => PathRewrite::pattern(own.value.clone(), to, values),
                (None, PathRule::Pattern(pattern)) => PathRewrite::pattern(pattern.clone(), to, values),
                (None, PathRule::Prefix(prefix)) => PathRewrite::prefix(prefix, to, values),
                (None, PathRule::TextPrefix(text)) => PathRewrite::text_prefix(text, to, values),
                (None, PathRule::Exact(_)) => PathRewrite::whole(to, values),
            };
            let expected = "a path such as /v1, or with variables /users/$1";
            let rewrite = template(rewrite, "path", at, expected, reader)?;
            let normalizes = normalize.as_ref().is_some_and(|normalize| normalize.value);
            Some(if normalizes { rewrite.normalized() } else { rewrite })
        }
        None => None,
    };
    let scope = TemplateScope { pattern: groups, values: Some(values) };
    let host = match host {
        Some(Located { value, at }) => {
            let expected = "a host such as $host or tenant.internal:8080";
            Some(template(HostRewrite::new(value, scope), "host", at, expected, reader)?)
        }
        None => None,
    };
    Some(Rewrite { path, host })
}

/// Prefixes that paths of cookies are mapped back by.
fn cookie_prefixes(path: Option<&PathRewrite>) -> Option<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (client, server) = path.and_then(PathRewrite::prefixes)?;
    (client != server).then(|| (text(client), text(server)))
}

/// The URLs that are mapped: by default all, if there is a rewrite.
fn mapped_urls(written: &RouteWritten, rewrite: &Rewrite) -> Option<MappedUrls> {
    written.location.unwrap_or_else(|| (*rewrite != Rewrite::default()).then_some(MappedUrls::All))
}

/// The default cookie rewrite: as with Location, paths follow the prefix of the path rewrite.
fn mapped_paths(path: Option<&PathRewrite>) -> Option<CookieRewrite> {
    let path = Some(cookie_prefixes(path)?);
    Some(CookieRewrite { path, ..CookieRewrite::default() })
}

fn cookies(
    Element { value: written, at, .. }: &Element<CookiesWritten>,
    path: Option<&PathRewrite>,
    reader: &mut Reader<'_>,
) -> Option<CookieRewrite> {
    let rewrite = CookieRewrite {
        names: written.names.clone(),
        domain: written.domain.clone(),
        path: cookie_prefixes(path.filter(|_| written.path)),
        secure: written.secure,
        http_only: written.http_only,
        same_site: written.same_site,
    };
    match rewrite.check() {
        Ok(()) => Some(rewrite),
        Err(error) => {
            let mistake = reader.mistake(at, format!("cookies: {}", ValueFault::Cookies(error)));
            reader.add(mistake);
            None
        }
    }
}

/// Warns of options that a route without a server does not use, but for those that it does.
fn warn_of_idle(
    Element { value: written, .. }: &Element<RouteWritten>,
    used: &[&str],
    reader: &mut Reader<'_>,
) {
    for (option, at) in for_servers(written).into_iter().filter(|(option, _)| !used.contains(option)) {
        if let Some(at) = at {
            let warning = reader.mistake(at, format!("{option}: this route asks no server"));
            reader.warn(warning);
        }
    }
}

/// Options of servers that also apply to files: these are found by the path that a server would get, and have bodies. That
/// `cache` does not is a mistake (see `relations`).
pub(crate) const FOR_FILES: &[&str] = &["rewrite", "timeouts", "limits", "cache"];

/// Options of servers that also apply to every response: they bound how slowly a client may read it.
pub(crate) const FOR_CLIENTS: &[&str] = &["timeouts", "limits"];

/// The options that only mean something for servers, and where a route has them.
pub(crate) fn for_servers(written: &RouteWritten) -> [(&'static str, Option<&Span>); 9] {
    [
        ("mirror", written.mirror.as_ref().map(|it| &it.at)),
        ("request_buffering", written.request_buffering.as_ref().map(|it| &it.at)),
        ("rewrite", written.rewrite.as_ref().map(|it| &it.at)),
        ("request_headers", written.request_headers.first().map(|it| &it.at)),
        ("cookies", written.cookies.as_ref().map(|it| &it.at)),
        ("retry", written.retry.as_ref().map(|it| &it.at)),
        ("timeouts", written.timeouts.as_ref().map(|it| &it.at)),
        ("limits", written.limits.as_ref().map(|it| &it.at)),
        ("cache", written.cache.as_ref().map(|it| &it.at)),
    ]
}

/// The conditions on claims. The route has to verify every token: claims are read before that.
fn claims(written: &RouteWritten, reader: &mut Reader<'_>) -> ClaimRules {
    let Some(Located { value: pairs, at }) = &written.claim else { return ClaimRules::default() };
    let values = pairs.iter().map(|pair| (pair.name.clone(), pair.value.clone())).collect();
    let is_any = written.require.as_ref().is_some_and(|require| require.value == Require::Any);
    match &written.jwt {
        Some(_) if is_any => {
            let message = "claim: with require = \"any\", another authentication method may admit a forged \
                           token";
            refuse(at, message, "require = \"all\", or another route", reader);
            ClaimRules::default()
        }
        Some(jwt) => jwt.value.claim_rules(values),
        None => {
            let message = "claim: the route has no jwt, so the token is not verified";
            refuse(at, message, "jwt, in this route or in [route_defaults]", reader);
            ClaimRules::default()
        }
    }
}

/// Rejects limits of users on a route that does not ask who a client is.
fn check_limits(written: &RouteWritten, policies: &Policies, reader: &mut Reader<'_>) {
    if !is_nobody(written) {
        return;
    }
    let of_rates = policies.rate_limits.iter().any(|limit| limit.key.has_user());
    let rates = written.rate_limit.first().filter(|_| of_rates).map(|limit| ("rate_limit", &limit.at));
    let of_concurrency = policies.concurrency.iter().any(|limit| limit.key.has_user());
    let concurrency = written.concurrency.first().filter(|_| of_concurrency);
    for (option, at) in rates.into_iter().chain(concurrency.map(|limit| ("concurrency", &limit.at))) {
        let message =
            format!("{option}: the route does not authenticate clients, so there is no user to count by");
        let expected = "auth, jwt, web_bot_auth, or forward_auth with user, or another key";
        refuse(at, &message, expected, reader);
    }
}

/// Whether a route never knows a user.
fn is_nobody(written: &RouteWritten) -> bool {
    written.auth.is_none()
        && written.jwt.is_none()
        && written.web_bot_auth.is_none()
        && written.forward_auth.as_ref().is_none_or(|auth| !auth.value.names_user())
}

/// Rejects what a route with `jwt` cannot have besides.
fn check_jwt(written: &RouteWritten, reader: &mut Reader<'_>) {
    let Some(Element { value: jwt, at, .. }) = written.jwt.as_deref() else { return };
    if let Some(auth) = &written.auth
        && jwt.is_bearer()
        && written.require.as_ref().is_none_or(|require| require.value == Require::All)
    {
        let message = "auth and jwt both need Authorization, but a request has only one";
        refuse(
            &auth.at,
            message,
            "require = \"any\", one of them, or jwt with from = \"header:NAME\" or \"cookie:NAME\"",
            reader,
        );
    }
    if let Some(Element { value: forward_auth, .. }) = written.forward_auth.as_deref()
        && let Some((at, name)) = jwt.fields().find(|(_, name)| forward_auth.copies(name))
    {
        let message = format!("claims: {name} is one of forward_auth.copy_headers");
        refuse(at, &message, "another name in one of them", reader);
    }
    let tables = written.request_headers.iter().map(|edits| &edits.value);
    for Pair { at: edit, name, .. } in tables.flat_map(|edits| edits.set.iter().chain(&edits.add)) {
        if jwt.passes(&name.0) {
            let line = reader.line(at);
            let message = format!("request_headers: {} is written by jwt.claims, in {line}", name.0);
            refuse(edit, &message, "another name in one of them", reader);
        }
    }
}

/// Warns of `$user`, and of values that ask for the user, in a route without `auth`, `jwt` or `web_bot_auth`, where there is
/// none. Warns of values that ask for claims in a route without `jwt`.
fn warn_of_nobody(written: &RouteWritten, policies: &Policies, reader: &mut Reader<'_>) {
    let is_nobody = is_nobody(written);
    let edits = [
        ("request_headers", &written.request_headers, &policies.request_headers),
        ("response_headers", &written.response_headers, &policies.response_headers),
    ];
    for (option, written, edits) in edits {
        if let (true, Some(element), Some(variable)) = (is_nobody, written.first(), edits.user_variable()) {
            let what = match variable {
                "$user" => "$user is always empty here".to_owned(),
                value => format!("{value} asks for the user, which is always absent here"),
            };
            let what = format!("{option}: {what}, since the route does not authenticate clients");
            let warning = reader.mistake(&element.at, what);
            reader.warn(warning);
        }
        let mut values = edits.values();
        let claim = values.find(|value| value.asks_for_family(FactFamily::JwtClaims));
        if let (false, None, Some(element), Some(value)) = (is_nobody, &policies.jwt, written.first(), claim)
        {
            let value = value.as_str();
            let what = format!(
                "{option}: {value} asks for a claim, which is always absent here, since the route has no jwt"
            );
            reader.warn(reader.mistake(&element.at, what));
        }
    }
}

/// Warns of rewrites with variables of the client that are not part of the cache key.
fn warn_of_unkeyed(
    written: &RouteWritten,
    policies: &Policies,
    cache: &cache::CachePolicy,
    reader: &mut Reader<'_>,
) {
    let Some(element) = &written.rewrite else { return };
    let Rewrite { path, host } = &*policies.rewrite;
    let named =
        path.iter().flat_map(PathRewrite::of_client).chain(host.iter().flat_map(HostRewrite::of_client));
    let text = String::from_utf8_lossy;
    for variable in named {
        let (what, remedy) = match variable {
            OfClient::Header(name) if cache.key.headers.iter().any(|key| key.eq_ignore_ascii_case(name)) => {
                continue;
            }
            OfClient::Cookie(name) if cache.key.cookies.iter().any(|key| **key == *name) => continue,
            OfClient::Value(name) if cache.key.values.iter().any(|key| name == name_in_expressions(key)) => {
                continue;
            }
            OfClient::Value(name) => (name.to_owned(), "; name the value in cache.key_values"),
            OfClient::Header(name) => {
                (format!("$header.{}", text(name)), "; name the field in cache.key_headers")
            }
            OfClient::Cookie(name) => {
                (format!("$cookie.{}", text(name)), "; name the cookie in cache.key_cookies")
            }
            OfClient::Other(name) => (name.to_owned(), "; leave it out, or the cache"),
        };
        let what = format!(
            "rewrite: {what} is not in the cache key, so one client gets responses stored for another{remedy}"
        );
        let warning = reader.mistake(&element.at, what);
        reader.warn(warning);
    }
}
