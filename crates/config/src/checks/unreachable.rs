//! Finds routes that no request ever reaches, and explains why.

use std::collections::HashMap;

use ::route::{RouteRule, covered};

use crate::document::reader::Reader;
use crate::option::kind::Located;
use crate::tables::file::File;
use crate::tables::listen::Listen;
use crate::tables::route::Route;

/// Warns of routes that are never reached. Does nothing if there are mistakes: the broken listener or route may be the
/// one that matters.
pub(crate) fn warn_of_unreachable(file: &File, routes: &[Option<Route>], reader: &mut Reader<'_>) {
    if reader.has_mistakes() {
        return;
    }
    let whole: Vec<&Route> = routes.iter().flatten().collect();
    let rules: Vec<(usize, &RouteRule)> = whole
        .iter()
        .enumerate()
        .flat_map(|(index, route)| route.rules.iter().map(move |rule| (index, rule)))
        .collect();
    let plain: Vec<&RouteRule> = rules.iter().map(|(_, rule)| *rule).collect();
    let covered: HashMap<usize, usize> = covered(&plain, file.listen.len()).into_iter().collect();
    let mut next = 0;
    for (index, route) in whole.iter().enumerate() {
        let first = next;
        next += route.rules.len();
        let Some(written) = file.routes.get(index) else { continue };
        let own = || first..first + route.rules.len();
        let cover = |rule: usize| covered.get(&rule).map(|by| rules[*by].0);
        let reason = if own().all(|rule| redirects(file, rules[rule].1)) {
            "all its listeners redirect to https".to_owned()
        } else if own().all(|rule| is_refused(rules[rule].1)) {
            "TRACE requests get 405 before any route applies".to_owned()
        } else if let Some(by) = own().map(cover).collect::<Option<Vec<usize>>>() {
            let lines: Vec<String> =
                by.iter().filter_map(|by| Some(reader.line(&file.routes.get(*by)?.at))).collect();
            let mut lines = lines;
            lines.dedup();
            format!("the route in {} takes its requests", lines.join(" and the one in "))
        } else {
            continue;
        };
        let warning =
            reader.mistake(&written.at, format!("route {:?} is never reached: {reason}", route.name));
        reader.warn(warning);
    }
}

/// Whether every listener that a rule is for redirects its requests. One that names listeners without `tls` alone is made for
/// them, and not redirected; what a proxy in front
/// says was https is not either.
fn redirects(file: &File, rule: &RouteRule) -> bool {
    let is_redirected = |listen: &Listen| {
        let Located { value: redirects, .. } = &listen.redirect_to_https;
        (*redirects && listen.proxy_protocol.is_empty()) || listen.tcp.is_some()
    };
    rule.listeners.is_empty()
        && file.trusted_proxies.is_empty()
        && file.listen.iter().any(|listen| listen.value.redirect_to_https.value)
        && file.listen.iter().all(|listen| is_redirected(&listen.value))
}

fn is_refused(rule: &RouteRule) -> bool {
    !rule.methods.is_empty() && rule.methods.iter().all(|method| method == "TRACE")
}
