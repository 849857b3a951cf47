//! Converts routes back to parsed options, for printing.

use ::route::{CookieRewrite, HeaderEdit, HeaderEdits, PathRewrite, PathRule, Rule, ValueRule};

use crate::bot_options::BotsWritten;
use crate::cache_options;
use crate::cors_options;
use crate::files_options;
use crate::forward_auth_options;
use crate::jwt_options::JwtWritten;
use crate::kind::{Located, located};
use crate::matching::FieldName;
use crate::mirror_options;
use crate::pairs::{Pair, pair};
use crate::rate_limit_options::RateLimitWritten;
use crate::requests::Requests;
use crate::route_options::{
    AuthWritten, CookiesWritten, EditsWritten, RedirectWritten, RespondWritten, RewriteWritten, RouteWritten,
};
use crate::settings::{
    Action, Page, Policies, Respond, Rewrite, Route, RouteLimits, RouteTimeouts, Settings,
};
use crate::split_options;
use crate::table::{Element, element};

/// Converts a route back to parsed options, without positions.
pub(crate) fn route(route: &Route, config: &Settings) -> RouteWritten {
    let Route { name, rules, action, policies, shaping, cache } = route;
    let path = rules.first().map(|rule| rule.path.clone()).unwrap_or_default();
    let name_of = |index: usize| config.upstreams.get(index).map(|upstream| upstream.name.clone());
    let written = RouteWritten {
        name: Some(located(name.clone())),
        requests: Requests::written(rules, &config.listeners),
        claim: rules.first().and_then(written_claims),
        rate: shaping.bandwidths.down.clone(),
        upload_rate: shaping.bandwidths.up.clone(),
        weight: Some(shaping.weight),
        delay: shaping.delay.clone(),
        response_delay: shaping.response_delay.clone().map(located),
        cache: cache.as_ref().map(|cache| Box::new(cache_options::written(cache))),
        mirror: policies.mirror.as_ref().map(|mirror| mirror_options::written(mirror, name_of).into()),
        forward_auth: (policies.forward_auth.as_ref())
            .map(|auth| forward_auth_options::written(auth, name_of).into()),
        ..written_policies(policies, &path)
    };
    with_action(written, action, config)
}

fn written_claims(rule: &Rule) -> Option<Located<Vec<Pair<String, ValueRule>>>> {
    let pairs = rule.claims.values.iter().map(|(name, value)| pair(name.clone(), value.clone()));
    (!rule.claims.values.is_empty()).then(|| located(pairs.collect()))
}

fn with_action(written: RouteWritten, action: &Action, config: &Settings) -> RouteWritten {
    let name = |index: usize| config.upstreams.get(index).map(|upstream| upstream.name.clone());
    match action {
        Action::Upstream(index) => RouteWritten { upstream: name(*index).map(located), ..written },
        Action::Split(split) => {
            let shares = split.shares().filter_map(|(index, weight)| Some(pair(name(index)?, weight)));
            RouteWritten { split: Some(located(shares.collect())), ..written }
        }
        Action::Redirect(redirect) => {
            let to = Some(located(redirect.to().to_owned()));
            let of_route = match &written.requests.path {
                PathRule::Pattern(pattern) => Some(pattern),
                PathRule::Exact(_) | PathRule::Prefix(_) => None,
            };
            let own = redirect.pattern().filter(|own| Some(*own) != of_route);
            let pattern = own.cloned().map(located);
            RouteWritten {
                redirect: Some(boxed(RedirectWritten { to, status: redirect.status, pattern })),
                ..written
            }
        }
        Action::Respond(respond) => {
            RouteWritten { respond: Some(boxed(written_respond(respond))), ..written }
        }
        Action::Files(files) => RouteWritten { files: Some(files_options::written(files).into()), ..written },
    }
}

fn written_respond(Respond { response, file }: &Respond) -> RespondWritten {
    let body = String::from_utf8_lossy(response.body()).into_owned();
    let page = |path| Page { file: path, content_type: "", body: [].into() };
    RespondWritten {
        status: Some(located(response.status())),
        body: (file.is_none() && !body.is_empty()).then(|| located(body)),
        file: file.clone().map(|path| located(page(path))),
        content_type: Some(located(response.content_type().to_owned())),
    }
}

fn written_policies(policies: &Policies, path: &PathRule) -> RouteWritten {
    let Policies {
        access,
        auth,
        require,
        forward_auth,
        jwt,
        web_bot_auth,
        rate_limits,
        mirror: _,
        request_buffering,
        rewrite,
        request_headers,
        response_headers,
        location,
        split_key,
        cors,
        cookies,
        options,
        retry,
        timeouts,
        limits,
    } = policies;
    let ways = [auth.is_some(), jwt.is_some(), web_bot_auth.is_some(), forward_auth.is_some()];
    let is_several = ways.into_iter().filter(|way| *way).count() > 1;
    let auth = auth.as_ref().map(|auth| {
        boxed(AuthWritten { realm: auth.realm.clone(), users: Some((auth.file.clone(), auth.users.clone())) })
    });
    RouteWritten {
        allow: access.allow.clone(),
        deny: access.deny.clone(),
        auth,
        jwt: jwt.as_ref().map(|jwt| boxed(JwtWritten::from(jwt))),
        require: is_several.then(|| located(*require)),
        web_bot_auth: web_bot_auth.as_ref().map(|bots| boxed(BotsWritten::from(bots))),
        rate_limit: rate_limits.iter().map(|limit| element(RateLimitWritten::from(limit))).collect(),
        sticky: split_key.as_ref().map(|key| split_options::written(key).into()),
        cors: cors.as_ref().map(|cors| boxed(cors_options::written(cors))),
        rewrite: written_rewrite(rewrite, path).map(boxed),
        request_headers: written_edits(request_headers).map(boxed),
        response_headers: written_edits(response_headers).map(boxed),
        location: Some(*location),
        cookies: cookies.as_ref().map(|cookies| boxed(CookiesWritten::from(cookies))),
        request_buffering: request_buffering.map(|buffering| located(Some(buffering))),
        options: options.clone(),
        retry: retry.clone().map(boxed),
        timeouts: (*timeouts != RouteTimeouts::default()).then(|| boxed(*timeouts)),
        limits: (*limits != RouteLimits::default()).then(|| boxed(*limits)),
        ..RouteWritten::default()
    }
}

/// A table without a position, as routes have it.
fn boxed<V>(value: V) -> Box<Element<V>> {
    Box::new(element(value))
}

fn written_rewrite(rewrite: &Rewrite, path: &PathRule) -> Option<RewriteWritten> {
    if *rewrite == Rewrite::default() {
        return None;
    }
    let of_route = match path {
        PathRule::Pattern(pattern) => Some(pattern),
        PathRule::Exact(_) | PathRule::Prefix(_) => None,
    };
    let own = rewrite.path.as_ref().and_then(PathRewrite::of_pattern).filter(|own| Some(*own) != of_route);
    Some(RewriteWritten {
        path: rewrite.path.as_ref().map(|path| located(path.to().to_owned())),
        pattern: own.cloned().map(located),
        host: rewrite.host.as_ref().map(|host| located(host.as_str().to_owned())),
    })
}

fn written_edits(edits: &HeaderEdits) -> Option<EditsWritten> {
    if edits.is_empty() {
        return None;
    }
    let mut written = EditsWritten::default();
    let field = |name: &str, value: &str| pair(FieldName(name.to_owned()), located(value.to_owned()));
    for edit in edits.edits() {
        match edit {
            HeaderEdit::Set(name, value) => written.set.push(field(name, value)),
            HeaderEdit::Add(name, value) => written.add.push(field(name, value)),
            HeaderEdit::Default(name, value) => written.default.push(field(name, value)),
            HeaderEdit::Remove(name) => written.remove.push(located(name.to_owned())),
        }
    }
    Some(written)
}

impl From<&CookieRewrite> for CookiesWritten {
    fn from(cookies: &CookieRewrite) -> Self {
        Self {
            names: cookies.names.clone(),
            domain: cookies.domain.clone(),
            path: cookies.path.is_some(),
            secure: cookies.secure,
            http_only: cookies.http_only,
            same_site: cookies.same_site,
        }
    }
}
