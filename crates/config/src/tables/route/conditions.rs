//! The conditions of all options of a route, in the order in which requests meet them.

use std::sync::Arc;

use expression::{Expression, Fact, FactFamily};

use crate::document::reader::{Reader, Span};
use crate::option::kind::Located;
use crate::option::table::Element;
use crate::tables::log::RouteLog;
use crate::tables::route::options::RouteWritten;
use crate::tables::route::{Action, Route};

/// A condition of an option.
#[derive(Debug, Clone, Copy)]
pub struct RouteCondition<'r> {
    /// The option, such as `mirror`.
    pub option: &'static str,
    pub when: &'r Arc<Expression>,
}

impl Route {
    /// The conditions of the route's options, without that of the route.
    pub fn conditions(&self) -> impl Iterator<Item = RouteCondition<'_>> {
        let policies = &*self.policies;
        let options = &policies.options;
        let of = |option| move |when| RouteCondition { option, when };
        let split = match &self.action {
            Action::Split(split) => Some(split),
            Action::Upstream(_)
            | Action::Named(_)
            | Action::Redirect(_)
            | Action::Respond(_)
            | Action::Files(_) => None,
        };
        let log = match &options.access_log {
            Some(RouteLog::When(when, _)) => Some(when),
            Some(RouteLog::All | RouteLog::Off | RouteLog::Share(_)) | None => None,
        };
        let compress = options.compress.as_ref().and_then(|compress| compress.when.as_ref());
        let limits = policies.rate_limits.iter().filter_map(|limit| limit.when.as_ref());
        let concurrency = policies.concurrency.iter().filter_map(|limit| limit.when.as_ref());
        let mirror = policies.mirror.iter().filter_map(|mirror| mirror.when.as_ref());
        (policies.access.rules.iter().map(|rule| &rule.when).map(of("deny")))
            .chain(limits.map(of("rate_limit")))
            .chain(concurrency.map(of("concurrency")))
            .chain(
                split.into_iter().flat_map(|split| split.conditions().map(|(_, when)| when)).map(of("split")),
            )
            .chain(mirror.map(of("mirror")))
            .chain(self.cache_when.iter().map(of("cache")))
            .chain(policies.request_headers.conditions().map(of("request_headers")))
            .chain(self.cache_rules.iter().map(|rule| &rule.when).map(of("cache.rules")))
            .chain(policies.response_headers.conditions().map(of("response_headers")))
            .chain(compress.into_iter().map(of("compress")))
            .chain(log.into_iter().map(of("access_log")))
    }
}

/// Returns the claims that the route's conditions and values ask for, each once.
fn claims(route: &Route) -> Vec<String> {
    let of_values = route.values.expressions().map(Arc::as_ref);
    let all = route.conditions().map(|condition| &**condition.when).chain(of_values);
    let asking = all.filter(|one| one.asks_for_family(FactFamily::JwtClaims));
    let asked = asking.flat_map(|one| one.keys(FactFamily::JwtClaims));
    let mut names: Vec<String> = asked.map(str::to_owned).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Rejects conditions on claims in a route without tokens, and warns of conditions on users in a route that knows none. Has
/// the claims remembered that conditions and values ask for.
pub(crate) fn check(
    Element { value: written, at, .. }: &Element<RouteWritten>,
    route: &mut Route,
    is_nobody: bool,
    reader: &mut Reader<'_>,
) {
    let places = places(written);
    for RouteCondition { option, when } in route.conditions() {
        let place = places.iter().find(|(known, _)| Arc::ptr_eq(known, when)).map_or(at, |(_, place)| place);
        if when.asks_for_family(FactFamily::JwtClaims) && route.policies.jwt.is_none() {
            let message =
                format!("{option}: the route has no jwt, so no token is verified and there are no claims");
            reader.add(reader.mistake(place, message).expecting("jwt, in this route or in [route_defaults]"));
        } else if when.asks_for(Fact::ClientUser) && is_nobody {
            let message = format!(
                "{option}: client.user is always absent here, since the route does not authenticate clients"
            );
            reader.warn(reader.mistake(place, message));
        }
    }
    let claims = claims(route);
    // A change copies the policies, which routes share.
    if !claims.is_empty()
        && let Some(jwt) = &mut route.policies.jwt
    {
        jwt.rules.kept = claims;
    }
}

/// The conditions that have a position.
fn places(written: &RouteWritten) -> Vec<(&Arc<Expression>, &Span)> {
    let RouteWritten { deny, rate_limit, concurrency, mirror, cache, split, .. } = written;
    let RouteWritten { request_headers, response_headers, .. } = written;
    let edits = request_headers.iter().chain(response_headers).filter_map(|table| table.value.when.as_ref());
    let cached = cache.iter().flat_map(|cache| {
        let rules = cache.value.rules.iter().filter_map(|rule| rule.value.when.as_ref());
        cache.value.when.iter().chain(rules)
    });
    let shares = split.iter().flat_map(|split| &split.value);
    let all = (deny.rules.iter().filter_map(|rule| rule.value.when.as_ref()))
        .chain(rate_limit.iter().filter_map(|limit| limit.value.when.as_ref()))
        .chain(concurrency.iter().filter_map(|limit| limit.value.when.as_ref()))
        .chain(shares.filter_map(|share| share.value.when.as_ref()))
        .chain(mirror.iter().filter_map(|mirror| mirror.value.when.as_ref()))
        .chain(cached)
        .chain(edits);
    all.map(|Located { value, at }| (value, at)).collect()
}
