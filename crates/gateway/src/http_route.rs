//! Translates HTTPRoutes: rules with matches, filters and backends become routes of Vanward, and conditions report
//! on them.

use std::collections::{BTreeMap, BTreeSet};

use crate::annotations::exactly;
use crate::attach::{self, Attaching, Attachment, attach};
use crate::backends::{Backends, Referring, Spoken};
use crate::client_identity::{self, Identity};
use crate::cluster::Cluster;
use crate::condition::{Fault, StatusCondition};
use crate::filters::{Filtered, Matched, filtered, redirect_of};
use crate::grpc_route;
use crate::kinds::{HttpMatch, HttpRoute, HttpRule, HttpTimeouts, NamedMatch};
use crate::listeners::{ListenerProtocol, OwnGateway, Port, is_of_narrower, on_port};
use crate::object::{Metadata, ObjectKind, Reference, unknown};
use crate::status::{ObjectStatus, ParentFound, StatusFindings};
use crate::translate::Refused;
use crate::written::{WrittenTable, inline, list, text};

const WEIGHT_MAX: u32 = 1000;
/// Stands for a disabled timeout.
const NEVER_MS: u64 = 24 * 3600 * 1000;

#[derive(Default)]
pub(crate) struct Translated {
    pub(crate) tables: Vec<(Reference, WrittenTable)>,
    pub(crate) statuses: Vec<ObjectStatus>,
    /// Findings that conditions have no room for.
    pub(crate) remarks: Vec<(Reference, String)>,
}

/// Adds the routes of HTTP and gRPC, oldest first, and returns their statuses.
pub(crate) fn translate(
    cluster: &Cluster,
    refused: &Refused,
    gateways: &mut [OwnGateway<'_>],
    backends: &mut Backends<'_>,
    claims: &mut Claims,
) -> Translated {
    let calls: Vec<HttpRoute> = cluster.grpc_routes.values().map(grpc_route::as_http).collect();
    let of_http = cluster.http_routes.values().map(|route| (ObjectKind::HttpRoute, route));
    let mut routes: Vec<_> =
        of_http.chain(calls.iter().map(|route| (ObjectKind::GrpcRoute, route))).collect();
    routes.sort_by_key(|(_, route)| route.metadata.age());
    let Translated { mut tables, mut statuses, mut remarks } = Translated::default();
    for (kind, route) in routes {
        let reference = Reference::new(kind, &route.metadata);
        let attaching = Attaching {
            kind: kind.name(),
            metadata: &route.metadata,
            parents: &route.spec.parent_refs,
            hosts: &route.spec.hostnames,
        };
        let attachments = attach(&attaching, gateways, cluster);
        let told = refused.get(&reference).map(|why| ("UnsupportedValue", why.clone()));
        let through: BTreeSet<usize> = attachments
            .iter()
            .flat_map(|attachment| attachment.listeners.iter().map(|(gateway, ..)| *gateway))
            .collect();
        let mut groups = Vec::new();
        for group in client_identity::groups(&through, gateways) {
            let rules = if attachments.is_empty() {
                GatewayRules::default()
            } else {
                let client = client_identity::of_group(&group, gateways);
                rules((kind, route), (&through, client), backends)
            };
            groups.push((group, rules));
        }
        let fault = told.or_else(|| groups[0].1.fault());
        if fault.is_none() {
            for (number, (group, rules)) in groups.iter().enumerate() {
                for (port, (protocol, hosts)) in
                    places(&attachments, gateways, |place| group.contains(&place))
                {
                    let place =
                        RoutePort { kind, route: &route.metadata, group: number, port, protocol, hosts };
                    rules.write(&place, claims, &mut tables);
                }
            }
            attach::count(&attachments, gateways);
        }
        remarks.extend(groups[0].1.more().map(|why| (reference.clone(), why)));
        statuses.push(status(reference, route.metadata.generation, &attachments, fault.as_ref(), &groups));
    }
    Translated { tables, statuses, remarks }
}

/// Returns the hosts of a route at each port, for the gateways that `is_meant` selects.
pub(crate) fn places(
    attachments: &[Attachment<'_>],
    gateways: &[OwnGateway<'_>],
    is_meant: impl Fn(usize) -> bool,
) -> BTreeMap<Port, (ListenerProtocol, Vec<Option<String>>)> {
    let mut places: BTreeMap<Port, (ListenerProtocol, Vec<Option<String>>)> = BTreeMap::new();
    let listeners = attachments.iter().flat_map(|attachment| &attachment.listeners);
    for (gateway, listener, hosts) in listeners.filter(|(gateway, ..)| is_meant(*gateway)) {
        let listener = &gateways[*gateway].listeners[*listener];
        let Some(protocol) = listener.served() else { continue };
        let lower = |listener: &crate::listeners::TranslatedListener<'_>| {
            listener.hostname().map(str::to_ascii_lowercase)
        };
        let all: Vec<Option<String>> = on_port(gateways, listener.port).map(lower).collect();
        let own = lower(listener);
        let (_, known) = places.entry(listener.port).or_insert_with(|| (protocol, Vec::new()));
        for host in hosts {
            // A request belongs to the listener with the most specific hostname, and only to routes attached there.
            let is_elsewhere = host.as_deref().is_some_and(|host| is_of_narrower(host, own.as_deref(), &all));
            if !is_elsewhere && !known.contains(host) {
                known.push(host.clone());
            }
        }
    }
    places
}

/// A route's rules, as far as they do not depend on the listener.
#[derive(Default)]
struct GatewayRules {
    rules: Vec<GatewayRule>,
    unresolved: Vec<Fault>,
}

struct GatewayRule {
    matches: Vec<RouteMatch>,
    unsupported: Option<String>,
}

struct RouteMatch {
    path: Matched,
    conditions: Vec<(&'static str, String)>,
    filtered: Filtered,
    action: Option<(&'static str, String)>,
    timeout: Option<String>,
}

fn rules(
    (kind, route): (ObjectKind, &HttpRoute),
    (through, client): (&BTreeSet<usize>, Option<&Identity>),
    backends: &mut Backends<'_>,
) -> GatewayRules {
    let mut out = GatewayRules::default();
    let spoken = if kind == ObjectKind::GrpcRoute { Spoken::Http2 } else { Spoken::Http1 };
    let namespace = &route.metadata.namespace;
    let from = Referring { kind: kind.name(), namespace, gateways: through, spoken, client, own: None };
    for rule in &route.spec.rules {
        let action = action(rule, from, backends, &mut out.unresolved);
        let (mut matches, mut unsupported) = (Vec::new(), rule_fault(rule));
        let every = [HttpMatch::default()];
        let wanted = if rule.matches.is_empty() { &every[..] } else { &rule.matches };
        for (place, wanted) in wanted.iter().enumerate() {
            match one(rule, wanted, &action, from, backends) {
                Ok((one, fault)) => {
                    if place == 0 {
                        out.unresolved.extend(one.filtered.unresolved.iter().cloned());
                    }
                    unsupported = unsupported.or(fault);
                    matches.push(one);
                }
                Err(why) => unsupported = Some(why),
            }
        }
        out.rules.push(GatewayRule { matches, unsupported });
    }
    out
}

fn rule_fault(rule: &HttpRule) -> Option<String> {
    let of_backends = || {
        let has_filters = rule.backend_refs.iter().any(|backend| !backend.filters.is_empty());
        has_filters.then(|| "filters of backendRefs are not supported".to_owned())
    };
    unknown(&rule.other).map(|names| format!("not supported: {names}")).or_else(of_backends)
}

/// Returns the option for a rule's backends; `None` for a redirect.
fn action(
    rule: &HttpRule,
    from: Referring<'_>,
    backends: &mut Backends<'_>,
    unresolved: &mut Vec<Fault>,
) -> Option<(&'static str, String)> {
    let (shares, faults) = backends.shares(from, &rule.backend_refs);
    let are_all_invalid = faults.len() == rule.backend_refs.len();
    unresolved.extend(faults);
    if rule.filters.iter().any(|filter| filter.kind == "RequestRedirect") {
        return None;
    }
    Some(if are_all_invalid || shares.is_empty() { failing() } else { shared(&shares) })
}

/// Returns the option for upstreams with weights: a single upstream, or a split.
pub(crate) fn shared(shares: &[(String, u32)]) -> (&'static str, String) {
    match shares {
        [(upstream, _)] => ("upstream", text(upstream)),
        several => {
            let highest = several.iter().map(|(_, weight)| *weight).max().unwrap_or(1);
            let shares =
                several.iter().map(|(name, weight)| (name.as_str(), scaled(*weight, highest).to_string()));
            ("split", inline(shares))
        }
    }
}

/// Scales a weight to the maximum, relative to the highest one.
fn scaled(weight: u32, highest: u32) -> u32 {
    match highest {
        0..=WEIGHT_MAX => weight,
        _ => (u64::from(weight) * u64::from(WEIGHT_MAX)).div_ceil(u64::from(highest)) as u32,
    }
}

/// Responds with 500 if no backend is valid.
fn failing() -> (&'static str, String) {
    ("respond", inline([("status", "500".to_owned())]))
}

/// Translates a match. Fails on an unsupported one, which cannot tell its requests from others: they get 500.
fn one(
    rule: &HttpRule,
    wanted: &HttpMatch,
    action: &Option<(&'static str, String)>,
    from: Referring<'_>,
    backends: &mut Backends<'_>,
) -> Result<(RouteMatch, Option<String>), String> {
    let path = matched(wanted)?;
    let mut conditions = Vec::new();
    if let Some(method) = &wanted.method {
        conditions.push(("methods", text(method)));
    }
    for (option, matches) in [("headers", &wanted.headers), ("query", &wanted.query_params)] {
        if !matches.is_empty() {
            conditions.push((option, named(option, matches)?));
        }
    }
    if let Some(names) = unknown(&wanted.other) {
        return Err(format!("matches: not supported: {names}"));
    }
    let done = done(rule, &path, action, from, backends);
    let ((filtered, timeout), fault) = match done {
        Ok(done) => (done, None),
        Err(why) => (Default::default(), Some(why)),
    };
    Ok((RouteMatch { path, conditions, filtered, action: action.clone(), timeout }, fault))
}

fn done(
    rule: &HttpRule,
    path: &Matched,
    action: &Option<(&'static str, String)>,
    from: Referring<'_>,
    backends: &mut Backends<'_>,
) -> Result<(Filtered, Option<String>), String> {
    let mut filtered = filtered(&rule.filters, path, from, backends)?;
    if let Some(redirect) = &filtered.redirect {
        // Mistakes in it are the same on every port.
        redirect_of(redirect, path, ListenerProtocol::Http, 80)?;
    }
    if matches!(action, Some(("respond", _))) {
        // No server gets the edited or copied request.
        filtered.options.retain(|(name, _)| matches!(*name, "response_headers" | "cors"));
    }
    let timeout = rule.timeouts.as_ref().map(timeout).transpose()?.flatten();
    Ok((filtered, timeout.filter(|_| matches!(action, Some(("upstream" | "split", _))))))
}

fn matched(wanted: &HttpMatch) -> Result<Matched, String> {
    let path = wanted.path.clone().unwrap_or_default();
    let value = path.value.unwrap_or_else(|| "/".to_owned());
    Ok(match path.kind.as_deref().unwrap_or("PathPrefix") {
        "Exact" => Matched::Exact(value),
        // Prefixes match whole segments, so a trailing slash has no meaning.
        "PathPrefix" => match value.trim_end_matches('/') {
            "" => Matched::Prefix("/".to_owned()),
            prefix => Matched::Prefix(prefix.to_owned()),
        },
        "RegularExpression" => Matched::Pattern(value),
        other => return Err(format!("matches: path of type {other} is not supported")),
    })
}

/// Converts conditions, sorted by name. If a name repeats, the first condition counts, as the API says.
fn named(option: &str, matches: &[NamedMatch]) -> Result<String, String> {
    let mut values: BTreeMap<String, String> = BTreeMap::new();
    for NamedMatch { kind, name, value } in matches {
        let value = match kind.as_deref().unwrap_or("Exact") {
            "Exact" => exactly(value),
            "RegularExpression" => format!("~ (?:{value})"),
            other => return Err(format!("matches: {option} of type {other} are not supported")),
        };
        // RFC 9110 §5.1: names of fields ignore case.
        let name = if option == "headers" { name.to_ascii_lowercase() } else { name.clone() };
        values.entry(name).or_insert_with(|| text(&value));
    }
    Ok(inline(values.iter().map(|(name, value)| (name.as_str(), value.clone()))))
}

/// `request` is the time-out of the whole request. `backendRequest`, or `request` without it, is that of a server's
/// response header section: a server may take as long as the request.
fn timeout(timeouts: &HttpTimeouts) -> Result<Option<String>, String> {
    if let Some(names) = unknown(&timeouts.other) {
        return Err(format!("timeouts: not supported: {names}"));
    }
    let read = |time: &Option<String>| match time {
        None => Ok(None),
        Some(text) => {
            milliseconds(text).map(Some).ok_or_else(|| format!("timeouts: {text:?} is not a duration"))
        }
    };
    let (request, backend) = (read(&timeouts.request)?, read(&timeouts.backend_request)?);
    let written = |ms: u64| text(&format!("{}ms", ms.min(NEVER_MS)));
    let whole = request.map(|ms| if ms == 0 { text("none") } else { written(ms) });
    let first_byte = backend.or(request).map(|ms| written(if ms == 0 { NEVER_MS } else { ms }));
    let options = [("request", whole), ("upstream_first_byte", first_byte)];
    let options = options.into_iter().filter_map(|(option, time)| Some((option, time?)));
    Ok(backend.or(request).map(|_| inline(options)))
}

/// Parses a duration of the Gateway API (GEP-2257): one to four of h, m, s and ms with up to five digits each.
fn milliseconds(text: &str) -> Option<u64> {
    let (mut total, mut rest, mut parts) = (0_u64, text, 0);
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|digit: char| digit.is_ascii_digit()).len();
        if !(1..=5).contains(&digits) || parts == 4 {
            return None;
        }
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let units = [("ms", 1), ("h", 3_600_000), ("m", 60_000), ("s", 1000)];
        let (unit, ms) = units.into_iter().find(|(unit, _)| rest.starts_with(unit))?;
        total += number * ms;
        rest = &rest[unit.len()..];
        parts += 1;
    }
    (parts > 0).then_some(total)
}

impl GatewayRules {
    /// Lists findings beyond the first of each condition.
    fn more(&self) -> impl Iterator<Item = String> {
        let unsupported = self.rules.iter().filter_map(|rule| rule.unsupported.clone()).skip(1);
        let unsupported = unsupported.map(|why| format!("requests of another rule get 500: {why}"));
        unsupported.chain(self.unresolved.iter().skip(1).map(|(_, why)| why.clone()))
    }

    /// Returns why the route is not served at all, if that holds for every rule.
    fn fault(&self) -> Option<Fault> {
        let faults: Vec<&String> = self.rules.iter().filter_map(|rule| rule.unsupported.as_ref()).collect();
        let is_all = !faults.is_empty() && faults.len() == self.rules.len();
        is_all.then(|| ("UnsupportedValue", faults[0].clone()))
    }

    /// Adds the routes at a port, except those with a claim of an older or earlier route.
    fn write(&self, at: &RoutePort<'_>, claims: &mut Claims, tables: &mut Vec<(Reference, WrittenTable)>) {
        let owner = Reference::new(at.kind, at.route);
        for (number, rule) in self.rules.iter().enumerate() {
            for (place, one) in rule.matches.iter().enumerate() {
                let claim = |host: &&Option<String>| {
                    claims.insert((at.port, (*host).clone(), one.written_path(), one.conditions.clone()))
                };
                let (named, any): (Vec<_>, Vec<_>) =
                    at.hosts.iter().filter(claim).partition(|host| host.is_some());
                let named = list(named.into_iter().flatten().map(|host| text(host)));
                let sides = [(named != list([]), Some(named), ""), (!any.is_empty(), None, " *")];
                for (_, hosts, mark) in sides.into_iter().filter(|(is_there, ..)| *is_there) {
                    let Metadata { namespace, name, .. } = at.route;
                    let grpc = if at.kind == ObjectKind::GrpcRoute { "grpc:" } else { "" };
                    let group = if at.group > 0 { format!(" ~{}", at.group) } else { String::new() };
                    let name = format!("{grpc}{namespace}/{name}/{number}/{place} {}{mark}{group}", at.port);
                    let table = one.table(&name, at, hosts, rule.unsupported.is_some());
                    tables.push((owner.clone(), table));
                }
            }
        }
    }
}

struct RoutePort<'a> {
    kind: ObjectKind,
    route: &'a Metadata,
    /// Number of the group of gateways, as several groups may share a port.
    group: usize,
    port: Port,
    protocol: ListenerProtocol,
    hosts: Vec<Option<String>>,
}

pub(crate) type Claims = BTreeSet<Claim>;

/// The unique key of a route: port, host, path, further conditions.
pub(crate) type Claim = (Port, Option<String>, String, Vec<(&'static str, String)>);

impl RouteMatch {
    fn written_path(&self) -> String {
        match &self.path {
            Matched::Exact(path) => format!("= {path}"),
            Matched::Prefix(path) => path.clone(),
            Matched::Pattern(pattern) => format!("~ {pattern}"),
        }
    }

    fn table(&self, name: &str, at: &RoutePort<'_>, hosts: Option<String>, fails: bool) -> WrittenTable {
        let mut table = WrittenTable::new("[[route]]")
            .with("name", text(name))
            .with("listener", list([text(&at.port.to_string())]))
            .maybe("host", hosts)
            .with("path", text(&self.written_path()));
        for (option, value) in &self.conditions {
            table = table.with(option, value.clone());
        }
        let redirect = self.filtered.redirect.as_ref();
        let redirect =
            redirect.map(|redirect| redirect_of(redirect, &self.path, at.protocol, at.port.number));
        match (redirect, &self.action) {
            _ if fails => return with_action(table, failing()),
            (Some(Ok(redirect)), _) => table = table.with("redirect", redirect),
            (Some(Err(_)), _) | (None, None) => return with_action(table, failing()),
            (None, Some(action)) => table = with_action(table, action.clone()),
        }
        for (option, value) in &self.filtered.options {
            table = table.with(option, value.clone());
        }
        table.maybe("timeouts", self.timeout.clone())
    }
}

fn with_action(table: WrittenTable, (option, value): (&'static str, String)) -> WrittenTable {
    table.with(option, value)
}

fn status(
    object: Reference,
    generation: i64,
    attachments: &[Attachment<'_>],
    fault: Option<&Fault>,
    groups: &[(BTreeSet<usize>, GatewayRules)],
) -> ObjectStatus {
    let of_parent = |attachment: &Attachment<'_>| {
        let gateway = attachment.listeners.first().map(|(gateway, ..)| gateway);
        let own = groups.iter().find(|(group, _)| gateway.is_some_and(|gateway| group.contains(gateway)));
        let (_, rules) = own.unwrap_or(&groups[0]);
        let resolved = rules.unresolved.first().cloned();
        let partial = rules.rules.iter().find_map(|rule| rule.unsupported.as_ref());
        let accepted = attachment.fault.as_ref().or(fault).cloned();
        let mut conditions = vec![
            StatusCondition::new("Accepted", "Accepted", accepted.clone()),
            StatusCondition::new("ResolvedRefs", "ResolvedRefs", resolved),
        ];
        if let (None, Some(why)) = (accepted, partial) {
            let message = format!("requests of some rules get 500: {why}");
            conditions.push(StatusCondition {
                kind: "PartiallyInvalid",
                holds: true,
                reason: "UnsupportedValue",
                message,
            });
        }
        let parent = serde_json::to_value(attachment.parent).unwrap_or_default();
        ParentFound { parent, conditions }
    };
    ObjectStatus {
        object,
        generation,
        found: StatusFindings::Route(attachments.iter().map(of_parent).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_the_gateway_api() {
        for (text, expected) in [
            ("0s", Some(0)),
            ("10s", Some(10_000)),
            ("1h30m", Some(5_400_000)),
            ("1m1s500ms", Some(61_500)),
            ("", None),
            ("10", None),
            ("1.5s", None),
            ("123456s", None),
            ("s", None),
            ("1d", None),
            ("1s1s1s1s1s", None),
        ] {
            assert_eq!(milliseconds(text), expected, "{text:?}");
        }
    }
}
