//! Facts of Traefik's files: entry points, routers, middlewares, services.

/// Statements by their keys, and chains of middlewares.
mod tree;
/// Entry points as doors.
mod points;
/// Rules of routers.
mod rule;
/// Conditions, servers and files of middlewares.
mod middlewares;
/// Rewrites the configuration.
mod rewrite;

use adapt::statements::Statement;

use crate::OldProxy;
use crate::old::{OldCondition, OldConfiguration, OldRule, Site, StatementPlace};
use crate::pattern::TextPattern;
use middlewares::MiddlewareFacts;
use points::EntryPoint;
pub(crate) use rewrite::{READY, original};
use rule::RuleWay;
use tree::{TraefikTree, UsedMiddleware, find, joined, place, word};

/// Ways to meet a rule that get requests for each middleware.
const GUARDED_WAYS_MAX: usize = 4;

pub(crate) fn examine(statements: Vec<Statement>) -> OldConfiguration {
    let mut old = OldConfiguration::new(OldProxy::Traefik, statements);
    let statements = old.statements.clone();
    let tree = TraefikTree(&statements);
    services(tree, &mut old);
    for outer in ["tcp", "udp"] {
        for router in tree.defined(outer, "routers") {
            untested(&mut old, place(&format!("{outer}.routers"), router), "only HTTP is compared");
        }
    }
    templates(&statements, "", &mut old);
    let points = points::points(tree);
    let mut sites: Vec<Site> = Vec::new();
    for point in &points {
        if let Some(redirection) = point.redirection() {
            let door = old.door(point.door(tree));
            let rule = OldRule { place: redirection, conditions: Vec::new() };
            sites.push(Site { doors: vec![door], hosts: Vec::new(), rules: vec![rule] });
        }
        point.forwarded(&mut old);
    }
    for router in tree.defined("http", "routers") {
        let served: Vec<&EntryPoint<'_>> =
            points.iter().filter(|point| point.redirection().is_none() && point.has(router, tree)).collect();
        let mut doors: Vec<usize> = Vec::new();
        for point in &served {
            let door = old.door(point.door(tree));
            if !doors.contains(&door) {
                doors.push(door);
            }
        }
        let mut facts = RouterFacts { tree, old: &mut old, rules: Vec::new(), hosts: Vec::new() };
        facts.router(router, &served);
        let RouterFacts { rules, hosts, .. } = facts;
        match sites.iter_mut().find(|site| site.doors == doors) {
            _ if doors.is_empty() => {}
            Some(site) => {
                site.rules.extend(rules);
                site.hosts.extend(hosts);
            }
            None => sites.push(Site { doors, hosts, rules }),
        }
    }
    for point in &points {
        let door = old.door(point.door(tree));
        for site in sites.iter_mut().filter(|site| site.doors.contains(&door)) {
            site.rules.extend(point.trusted());
            site.rules.extend(point.ping(tree));
        }
    }
    // Hosts have their redirects, too.
    let hosts: Vec<TextPattern> = sites.iter().flat_map(|site| site.hosts.clone()).collect();
    for site in &mut sites {
        if site.hosts.is_empty() {
            site.hosts.clone_from(&hosts);
        }
        let mut known: Vec<TextPattern> = Vec::new();
        for host in std::mem::take(&mut site.hosts) {
            if !known.contains(&host) {
                known.push(host);
            }
        }
        site.hosts = known;
    }
    old.sites = sites;
    old
}

fn untested(old: &mut OldConfiguration, place: StatementPlace, why: &str) {
    if !old.untested.iter().any(|(known, _)| *known == place) {
        old.untested.push((place, why.to_owned()));
    }
}

/// Notes statements with a Go template.
fn templates(statements: &[Statement], path: &str, old: &mut OldConfiguration) {
    for statement in statements {
        let has_template = |text: &String| text.contains("{{");
        if has_template(&statement.name) || statement.words.iter().any(has_template) {
            untested(old, place(path, statement), "templates are not evaluated");
        }
        templates(statement.inner(), &joined(path, &statement.name), old);
    }
}

/// Reads the servers of services. The servers of one service are one group.
fn services(tree: TraefikTree<'_>, old: &mut OldConfiguration) {
    for service in tree.defined("http", "services") {
        let path = format!("http.services.{}", service.name);
        let Some(balancer) = find(service, "loadBalancer") else { continue };
        for server in find(balancer, "servers").map_or(&[][..], Statement::inner) {
            let Some(url) = find(server, "url") else { continue };
            match server_of(url.word(0)) {
                Some((_, authority, port)) => old.server(authority, port, Some(&service.name)),
                None => untested(
                    old,
                    place(&format!("{path}.loadBalancer.servers"), url),
                    "only TCP servers have stand-ins",
                ),
            }
        }
    }
}

/// The scheme of a URL, its authority and the scheme's port.
fn server_of(url: &str) -> Option<(&str, &str, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split('/').next().unwrap_or_default();
    let port = match scheme.to_ascii_lowercase().as_str() {
        "http" | "h2c" => 80,
        "https" => 443,
        _ => return None,
    };
    (!authority.is_empty() && !authority.contains(['{', '@'])).then_some((scheme, authority, port))
}

/// Whether a service is Traefik's own, such as its dashboard, or of another provider. Its pages are not compared.
fn is_foreign(tree: TraefikTree<'_>, router: &Statement) -> bool {
    match word(router, "service") {
        None => true,
        Some("noop@internal" | "ping@internal") => false,
        Some(name) => tree.definition("http", "services", name).is_none(),
    }
}

/// Whether a server gets the requests that pass a middleware. Redirects answer themselves.
fn passes(used: &UsedMiddleware<'_>) -> bool {
    !used.kind_name().starts_with("redirect")
}

struct RouterFacts<'s, 'o> {
    tree: TraefikTree<'s>,
    old: &'o mut OldConfiguration,
    rules: Vec<OldRule>,
    hosts: Vec<TextPattern>,
}

impl<'s> RouterFacts<'s, '_> {
    fn router(&mut self, router: &'s Statement, points: &[&EntryPoint<'s>]) {
        let own = place("http.routers", router);
        let path = format!("http.routers.{}", router.name);
        let rule = word(router, "rule").unwrap_or("PathPrefix(`/`)");
        if rule.contains("{{") {
            // A template, which is named already.
            return;
        }
        let Some(ways) = rule::ways(rule) else {
            return untested(self.old, own, "its rule is not understood");
        };
        if is_foreign(self.tree, router) {
            untested(self.old, own.clone(), "its service is Traefik's own, or of another provider");
        }
        let mut chain: Vec<UsedMiddleware<'s>> = Vec::new();
        if let Some(list) = points.iter().find_map(|point| point.middlewares()) {
            chain.extend(self.tree.chain(list.0, &list.1));
        }
        if let Some(list) = find(router, "middlewares") {
            chain.extend(self.tree.chain(list, &joined(&path, &list.name)));
        }
        for way in &ways {
            self.networks(&way.conditions);
            self.networks(&way.excluded);
            let is_host = |condition: &&OldCondition| matches!(condition, OldCondition::Host(_));
            for condition in way.conditions.iter().chain(&way.excluded).filter(is_host) {
                if let OldCondition::Host(pattern) = condition {
                    self.hosts.push(pattern.clone());
                }
            }
            self.rules.push(OldRule { place: own.clone(), conditions: way.conditions.clone() });
        }
        for way in &ways {
            for excluded in &way.excluded {
                let conditions = way.conditions.iter().chain([excluded]).cloned().collect();
                self.rules.push(OldRule { place: own.clone(), conditions });
            }
        }
        let mut facts = MiddlewareFacts { old: &mut *self.old };
        let all: Vec<_> = chain.iter().map(|used| facts.read(used)).collect();
        for way in ways.iter().take(GUARDED_WAYS_MAX) {
            self.guarded(way, router, &chain, &all);
        }
    }

    /// Adds a rule for each middleware of a chain, and one for the service behind them.
    fn guarded(
        &mut self,
        way: &RuleWay,
        router: &Statement,
        chain: &[UsedMiddleware<'s>],
        all: &[middlewares::MiddlewareConditions],
    ) {
        let mut passing = way.conditions.clone();
        for (used, conditions) in chain.iter().zip(all) {
            for own in &conditions.reached {
                let mut met = passing.clone();
                // A path of its own takes the place of the rule's.
                if own.iter().any(|condition| matches!(condition, OldCondition::Path(_))) {
                    met.retain(|condition| !matches!(condition, OldCondition::Path(_)));
                }
                met.extend(own.iter().cloned());
                self.rules.push(OldRule { place: used.place.clone(), conditions: met });
            }
            passing.extend(conditions.passed.iter().cloned());
            if !passes(used) {
                return;
            }
        }
        if passing.len() > way.conditions.len()
            && let Some(service) = find(router, "service")
        {
            let path = format!("http.routers.{}", router.name);
            self.rules.push(OldRule { place: place(&path, service), conditions: passing });
        }
    }

    fn networks(&mut self, conditions: &[OldCondition]) {
        for condition in conditions {
            if let OldCondition::Clients(networks) = condition {
                networks.iter().for_each(|network| self.old.network(network));
            }
        }
    }
}

#[cfg(test)]
mod tests;
