//! Servers: their hosts at each listener, and their routes.

use super::doors::Door;
use super::scope::BlockScope;
use super::syntax::Directive;
use super::truth::{Binding, NginxCondition};
use super::{NginxAdapter, access, from};
use crate::RemarkKind;
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::sheet::one_or_list;
use crate::values;

/// A route of a server, without hosts and listeners.
#[derive(Clone)]
pub(super) struct RouteEntry {
    /// A path as in [[route]].
    pub(super) path: String,
    pub(super) from: Vec<StatementOrigin>,
    /// Replaces the server's hosts.
    pub(super) host: Option<(String, Vec<StatementOrigin>)>,
    pub(super) methods: Option<(DraftValue, Vec<StatementOrigin>)>,
    pub(super) when: Option<(String, Vec<StatementOrigin>)>,
    /// A condition under which a variable in `proxy_pass` names no server.
    pub(super) nowhere: Option<NginxCondition>,
    /// A condition under which clients need no password (`satisfy any`).
    pub(super) admitted: Option<NginxCondition>,
    pub(super) options: DraftTable,
}

impl RouteEntry {
    pub(super) fn new(path: impl Into<String>, from: Vec<StatementOrigin>) -> Self {
        Self {
            path: path.into(),
            from,
            host: None,
            methods: None,
            when: None,
            nowhere: None,
            admitted: None,
            options: DraftTable::default(),
        }
    }

    /// Whether the route leads to a server.
    pub(super) fn has_server(&self) -> bool {
        ["upstream", "split"].iter().any(|option| self.options.get(option).is_some())
    }

    /// The route, and one before it for requests whose variable names no server.
    pub(super) fn with_nowhere(mut self) -> Vec<Self> {
        let Some(nowhere) = self.nowhere.take() else { return vec![self] };
        let given = self.when.as_ref().map(|(when, _)| NginxCondition::Text(when.clone(), Binding::Choice));
        let when = NginxCondition::all(given.into_iter().chain([nowhere]).collect());
        let mut answer = Self { admitted: None, options: DraftTable::default(), ..self.clone() };
        let from = self.options.option("upstream").map(|(_, from)| from).unwrap_or_default();
        answer.when = Some((when.written(), from.clone()));
        let status = DraftValue::Table(vec![("status".to_owned(), 500.into())]);
        answer.options.set("respond", status, from);
        vec![answer, self]
    }

    /// Adds a condition to that of the route.
    pub(super) fn only_if(&mut self, condition: &str) {
        let (own, origins) = self.when.take().unwrap_or_default();
        let both = if own.is_empty() { condition.to_owned() } else { format!("({own}) && {condition}") };
        self.when = Some((both, origins));
    }

    /// A text that differs for routes with different conditions besides host and path.
    fn conditions(&self) -> String {
        let methods = self.methods.as_ref().map(|(methods, _)| format!("{methods:?}"));
        let when = self.when.as_ref().map(|(when, _)| when.as_str());
        methods.unwrap_or_default() + when.unwrap_or_default()
    }
}

/// A server with the properties that distinguish its requests.
struct NginxSite<'s> {
    block: &'s Directive,
    scope: BlockScope<'s>,
    hosts: Vec<String>,
    named: Vec<StatementOrigin>,
    doors: Vec<usize>,
}

impl<'s> NginxAdapter<'s> {
    pub(super) fn servers(&mut self, scope: &BlockScope<'s>) {
        let blocks: Vec<&Directive> =
            scope.own().iter().filter(|directive| directive.name == "server").collect();
        let mut sites = Vec::new();
        for (index, block) in blocks.into_iter().enumerate() {
            let scope = scope.within(block.inner());
            let doors = self.listen(index, &scope);
            let (hosts, named) = self.hosts(&scope);
            sites.push(NginxSite { block, scope, hosts, named, doors });
        }
        // Routes with a listener come before all others, so either all have one or none has.
        let has_listeners = sites.iter().any(|site| site.doors.len() != self.doors.len())
            || self.doors.windows(2).any(|pair| pair[0].default_server() != pair[1].default_server());
        for (index, site) in sites.iter().enumerate() {
            self.settings(&site.scope);
            let entries = self.entries(site.block, &site.scope);
            let entries: Vec<RouteEntry> = entries.into_iter().flat_map(RouteEntry::with_admitted).collect();
            self.write(index, site, &sites, &entries, has_listeners);
        }
    }

    /// Writes the routes of a server: once for its names, and once without host where it is the default server.
    fn write(
        &mut self,
        index: usize,
        site: &NginxSite<'s>,
        sites: &[NginxSite<'s>],
        entries: &[RouteEntry],
        with_doors: bool,
    ) {
        let is_default = |door: &&usize| self.doors[**door].default_server() == Some(index);
        let (defaults, others): (Vec<usize>, Vec<usize>) = site.doors.iter().partition(is_default);
        // A wildcard name of another server must not win over an exact name of this server.
        let is_vague = |host: &String| host.starts_with(['*', '~']);
        let has_rivals = sites
            .iter()
            .any(|other| other.block.number != site.block.number && other.hosts.iter().any(is_vague));
        let mut groups: Vec<(bool, Vec<usize>)> = Vec::new();
        if !site.hosts.is_empty() {
            let named = if has_rivals { site.doors.clone() } else { others.clone() };
            groups.push((true, named));
        } else if defaults.is_empty() {
            let why = "no request reaches a server without a name, unless it is the default of its address";
            self.note(site.block, RemarkKind::Refused, why, "give it a `server_name`, or leave it out");
        }
        groups.push((false, defaults));
        for (named, doors) in groups.into_iter().filter(|(_, doors)| !doors.is_empty()) {
            for entry in entries {
                let listeners: Vec<String> = if with_doors {
                    doors.iter().map(|door| self.doors[*door].address.clone()).collect()
                } else {
                    Vec::new()
                };
                self.route(site, entry, named, &listeners);
            }
        }
    }

    fn route(&mut self, site: &NginxSite<'s>, entry: &RouteEntry, named: bool, listeners: &[String]) {
        let mut header = from(site.block);
        header.extend(entry.from.clone());
        let mut route = DraftTable::new("[[route]]", header);
        if !listeners.is_empty() {
            route.set("listener", one_or_list(listeners), Vec::new());
        }
        match &entry.host {
            Some((host, origins)) => route.set("host", host.clone(), origins.clone()),
            None if named => {
                let hosts = self.free_hosts(site, entry, listeners);
                if hosts.is_empty() {
                    return;
                }
                route.set("host", one_or_list(&hosts), site.named.clone());
            }
            None => {
                let default = StatementOrigin::Default("any host: the default of its address");
                let origins: Vec<StatementOrigin> =
                    std::iter::once(default).chain(site.named.clone()).collect();
                route.from.extend(origins);
            }
        }
        route.set("path", entry.path.clone(), Vec::new());
        if let Some((methods, origins)) = &entry.methods {
            route.set("methods", methods.clone(), origins.clone());
        }
        if let Some((when, origins)) = &entry.when {
            route.set("when", DraftValue::Expression(when.clone()), origins.clone());
        }
        let host = route.get("host").map_or(String::new(), |host| format!("{host:?}"));
        let methods = entry.conditions();
        if !self.taken.insert((listeners.join(" "), host + &methods, entry.path.clone())) {
            let number = entry.from.iter().find_map(|origin| match origin {
                StatementOrigin::Directive(number) => Some(*number),
                StatementOrigin::Default(_) => None,
            });
            let why = "an earlier route has the same host and path";
            return self.sheet.note(
                number.unwrap_or(site.block.number),
                RemarkKind::Refused,
                why,
                "leave one out",
            );
        }
        route.append(&with_conditions(&entry.options));
        self.sheet.routes.push(route);
    }

    /// Returns the hosts of a server that no earlier server has at the same listeners and path.
    fn free_hosts(&mut self, site: &NginxSite<'s>, entry: &RouteEntry, listeners: &[String]) -> Vec<String> {
        let methods = entry.conditions();
        let place =
            |host: &String| (listeners.join(" "), format!("one {host} {methods}"), entry.path.clone());
        let mut free = Vec::new();
        for host in &site.hosts {
            if self.taken.insert(place(host)) {
                free.push(host.clone());
            } else {
                let why = format!("an earlier server has the host {host}");
                self.note(site.block, RemarkKind::Refused, &why, "leave one of them out");
            }
        }
        free
    }

    /// Returns the hosts in `server_name`; empty if no request could have one of the names.
    fn hosts(&mut self, scope: &BlockScope<'s>) -> (Vec<String>, Vec<StatementOrigin>) {
        let (mut hosts, mut named) = (Vec::new(), Vec::new());
        for directive in scope.own().iter().filter(|directive| directive.name == "server_name") {
            named.extend(from(directive));
            for name in &directive.words {
                match host(name) {
                    Ok(more) => hosts.extend(more),
                    Err(why) => {
                        let instead = "write the hosts that it is for";
                        self.note(directive, RemarkKind::Refused, &format!("{name}: {why}"), instead);
                    }
                }
            }
        }
        hosts.dedup();
        (hosts, named)
    }
}

/// Joins the edits of all responses with those that have a condition.
fn with_conditions(options: &DraftTable) -> DraftTable {
    let conditional = |key: &str| match key {
        access::OF_SUCCESSES => Some(access::SUCCESSES.to_owned()),
        key => key.strip_prefix(access::IF).map(str::to_owned),
    };
    let found: Vec<(String, String)> =
        options.pairs().filter_map(|(key, _)| Some((key.to_owned(), conditional(key)?))).collect();
    if found.is_empty() {
        return options.clone();
    }
    let mut made = options.clone();
    let (mut all, mut origins) = (Vec::new(), Vec::new());
    if let Some((of_all, from)) = options.option("response_headers") {
        all.push(of_all);
        origins.extend(from);
    }
    for (key, when) in found {
        made.without(&key);
        let Some((DraftValue::Table(edits), from)) = options.option(&key) else { continue };
        let when = ("when".to_owned(), DraftValue::Expression(when));
        all.push(DraftValue::Table(std::iter::once(when).chain(edits).collect()));
        origins.extend(from);
    }
    made.set("response_headers", DraftValue::List(all), origins);
    made
}

impl Door {
    /// Whether clients omit the port from the Host field.
    pub(super) fn has_usual_port(&self) -> bool {
        self.address.ends_with(":80") || self.address.ends_with(":443") || self.address.starts_with("unix:")
    }
}

/// Converts a server's name to hosts of a route.
fn host(name: &str) -> Result<Vec<String>, String> {
    let lower = name.to_ascii_lowercase();
    if let Some(pattern) = name.strip_prefix('~') {
        return values::expression(pattern, true).map(|pattern| vec![format!("~ {pattern}")]);
    }
    if let Some(domain) = lower.strip_prefix('.') {
        return Ok(vec![domain.to_owned(), format!("*.{domain}")]);
    }
    if let Some(beginning) = lower.strip_suffix(".*") {
        return Ok(vec![format!("~ (?i){}\\..*", values::escaped(beginning))]);
    }
    let rest = lower.strip_prefix("*.").unwrap_or(&lower);
    // `_`, `""` and the like are names that no request has.
    let is_name = rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
        && !rest.is_empty()
        && rest.split('.').all(|label| !label.is_empty() && !label.starts_with('-') && !label.ends_with('-'));
    if is_name || rest.parse::<std::net::IpAddr>().is_ok() {
        return Ok(vec![lower]);
    }
    if matches!(lower.as_str(), "" | "_" | "__" | "-" | "!@#" | "--") {
        Ok(Vec::new())
    } else {
        Err("it is no host".to_owned())
    }
}
