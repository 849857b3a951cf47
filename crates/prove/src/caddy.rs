//! Facts of a Caddyfile: sites, matchers, directives.

/// Matchers.
mod matchers;
/// Rewrites the configuration.
mod rewrite;

use adapt::statements::Statement;

use crate::OldProxy;
use crate::old::{
    OldCondition, OldConfiguration, OldDoor, OldFileKind, OldRule, Site, StatementPlace, split_port,
};
use crate::pattern::TextPattern;
use matchers::Matchers;
pub(crate) use rewrite::original;

/// Directives that begin a place of their own.
const PLACES: [&str; 4] = ["handle", "handle_path", "route", "handle_errors"];

pub(crate) fn examine(statements: Vec<Statement>) -> OldConfiguration {
    let mut old = OldConfiguration::new(OldProxy::Caddy, with_braces(statements));
    let statements = old.statements.clone();
    let ports = Ports::read(&statements);
    for statement in statements.iter().filter(|statement| is_site(statement)) {
        let mut site = Site { doors: Vec::new(), hosts: Vec::new(), rules: Vec::new() };
        for address in addresses(statement) {
            let (doors, host) = ports.doors(&address, statement);
            for door in doors {
                let index = old.door(door);
                if !site.doors.contains(&index) {
                    site.doors.push(index);
                }
            }
            site.hosts.extend(host);
        }
        site.rules.push(OldRule { place: StatementPlace::of(statement), conditions: Vec::new() });
        let mut reader = CaddyFacts { old: &mut old, rules: Vec::new(), known: Matchers::default() };
        reader.block(statement, &[]);
        site.rules.extend(reader.rules);
        old.sites.push(site);
    }
    old
}

/// A file may have one site without braces: its first line is the address.
fn with_braces(statements: Vec<Statement>) -> Vec<Statement> {
    let is_global = |statement: &Statement| statement.name == "{";
    let start = statements.iter().position(|statement| !is_global(statement) && !is_definition(statement));
    match start {
        Some(start) if statements[start].block.is_none() => {
            let mut all = statements;
            let inner = all.split_off(start + 1);
            if let Some(site) = all.last_mut() {
                site.block = Some(inner);
            }
            all
        }
        _ => statements,
    }
}

fn is_definition(statement: &Statement) -> bool {
    statement.name.starts_with('(') || statement.name == "import"
}

fn is_site(statement: &Statement) -> bool {
    statement.name != "{" && !is_definition(statement) && statement.block.is_some()
}

fn addresses(site: &Statement) -> Vec<String> {
    let all = std::iter::once(&site.name).chain(&site.words);
    let parts = all.flat_map(|word| word.split(','));
    parts.map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// The ports of HTTP and HTTPS.
struct Ports {
    http: u16,
    https: u16,
    /// Whether sites with a host get certificates, and redirects from HTTP.
    has_tls: bool,
    has_redirects: bool,
}

/// An address of a site, in parts.
struct SiteAddress<'a> {
    scheme: Option<&'a str>,
    host: &'a str,
    port: Option<u16>,
}

fn parts(address: &str) -> SiteAddress<'_> {
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme, rest)) => (Some(scheme), rest),
        None => (None, address),
    };
    let (host, port) = split_port(rest.split('/').next().unwrap_or_default());
    SiteAddress { scheme, host, port }
}

impl Ports {
    fn read(statements: &[Statement]) -> Self {
        let mut ports = Self { http: 80, https: 443, has_tls: true, has_redirects: true };
        let globals = statements.iter().filter(|statement| statement.name == "{");
        for option in globals.flat_map(Statement::inner) {
            match option.name.as_str() {
                "http_port" => ports.http = option.word(0).parse().unwrap_or(80),
                "https_port" => ports.https = option.word(0).parse().unwrap_or(443),
                "auto_https" => {
                    ports.has_tls = option.word(0) != "off";
                    ports.has_redirects = !matches!(option.word(0), "off" | "disable_redirects");
                }
                _ => {}
            }
        }
        ports
    }

    /// The doors of an address, with that of the redirect from HTTP, and its host.
    fn doors(&self, address: &str, site: &Statement) -> (Vec<OldDoor>, Option<TextPattern>) {
        let SiteAddress { scheme, host, port } = parts(address);
        let has_tls = site.inner().iter().any(|inner| inner.name == "tls");
        let is_plain = scheme == Some("http") || port == Some(self.http);
        let is_tls = !is_plain && (scheme == Some("https") || has_tls || self.has_tls && !host.is_empty());
        let usual = if is_tls { self.https } else { self.http };
        let bound = site.inner().iter().find(|inner| inner.name == "bind").map_or("*", |bind| bind.word(0));
        let bound =
            if matches!(bound, "0.0.0.0" | "[::]" | "::") || bound.contains('{') { "*" } else { bound };
        let door = |port, is_tls| OldDoor {
            host: bound.to_owned(),
            port,
            is_tls,
            has_proxy_header: false,
            has_http2: is_tls,
        };
        let mut doors = vec![door(port.unwrap_or(usual), is_tls)];
        if is_tls && self.has_redirects {
            doors.push(door(self.http, false));
        }
        let host = match host.strip_prefix('*') {
            Some(domain) => Some(TextPattern::Suffix(domain.to_owned())),
            None => (!host.is_empty()).then(|| TextPattern::Exact(host.to_owned())),
        };
        (doors, host)
    }
}

struct CaddyFacts<'o> {
    old: &'o mut OldConfiguration,
    rules: Vec<OldRule>,
    known: Matchers,
}

impl CaddyFacts<'_> {
    /// Reads the directives of a block that requests with these conditions reach.
    fn block(&mut self, block: &Statement, base: &[OldCondition]) {
        block.inner().iter().filter(|inner| inner.name == "map").for_each(|map| self.known.map(map));
        for named in block.inner().iter().filter(|inner| inner.name.starts_with('@')) {
            self.known.add(named);
            for network in matchers::networks(named) {
                self.old.network(network);
            }
        }
        for directive in block.inner().iter().filter(|inner| !inner.name.starts_with('@')) {
            self.directive(directive, base);
        }
    }

    fn directive(&mut self, directive: &Statement, base: &[OldCondition]) {
        let is_place = PLACES.contains(&directive.name.as_str());
        let mut conditions = base.to_vec();
        if directive.name == "handle_errors" {
            conditions.push(OldCondition::ServerError);
        }
        let first = with_defaults(directive.word(0));
        let first = first.as_str();
        let has_matcher = first.starts_with(['/', '@']) && directive.name != "root" || first.starts_with('@');
        if has_matcher {
            let own = self.known.conditions(first);
            if own.iter().any(|condition| matches!(condition, OldCondition::Path(_))) {
                conditions.retain(|condition| !matches!(condition, OldCondition::Path(_)));
            }
            conditions.extend(own);
        }
        if is_place || has_matcher {
            self.rules.push(OldRule { place: StatementPlace::of(directive), conditions: conditions.clone() });
        }
        for excluded in self.known.excluded(first) {
            let conditions = conditions.iter().cloned().chain([excluded.clone()]).collect();
            self.rules.push(OldRule { place: StatementPlace::of(directive), conditions });
        }
        self.names(directive, &conditions);
        if is_place {
            self.block(directive, &conditions);
        }
    }

    /// Reads the servers, files and sizes that a directive names.
    fn names(&mut self, directive: &Statement, conditions: &[OldCondition]) {
        match directive.name.as_str() {
            "reverse_proxy" | "forward_auth" => {
                let group = format!("{}:{}", directive.file, directive.line);
                for word in upstreams(directive) {
                    match upstream(word) {
                        Some((scheme, address)) => {
                            let port = if scheme == "https" { 443 } else { 80 };
                            self.old.server(address, port, Some(&group));
                        }
                        // The rows of `map` have the servers.
                        None if word.starts_with('{') && self.old.any(&|known| known.name == "map") => {}
                        None => self.old.untested(directive, "only TCP servers have stand-ins"),
                    }
                }
                if directive.inner().iter().any(|inner| inner.name == "dynamic") {
                    self.old.untested(directive, "servers of DNS have no stand-in");
                }
            }
            "php_fastcgi" => {
                for word in upstreams(directive) {
                    match upstream(word) {
                        Some((_, address)) => self.old.application(address, 80),
                        None => self.old.untested(directive, "only TCP servers have stand-ins"),
                    }
                }
            }
            "map" => {
                for value in directive.inner().iter().flat_map(|row| &row.words) {
                    if split_port(value).1.is_some()
                        && let Some((_, address)) = upstream(value)
                    {
                        self.old.server(address, 80, None);
                    }
                }
            }
            "basicauth" | "basic_auth" => self.old.untested(directive, "no password is known"),
            "root" => self.old.file(directive.words.last().map_or("", String::as_str), OldFileKind::Folder),
            "file_server" => {
                for root in directive.inner().iter().filter(|inner| inner.name == "root") {
                    self.old.file(root.word(0), OldFileKind::Folder);
                }
            }
            "try_files" => {
                for page in directive.words.iter().filter(|word| word.starts_with('/') && !word.contains('{'))
                {
                    self.old.file(page, OldFileKind::Page);
                }
            }
            "request_body" => {
                for limit in directive.inner().iter().filter(|inner| inner.name == "max_size") {
                    if let Some(bytes) = bytes(limit.word(0)) {
                        let conditions =
                            conditions.iter().cloned().chain([OldCondition::Body(bytes)]).collect();
                        self.rules.push(OldRule { place: StatementPlace::of(directive), conditions });
                    }
                }
            }
            _ => {}
        }
    }
}

/// A text with the defaults of its variables of the environment.
fn with_defaults(text: &str) -> String {
    let Some((before, rest)) = text.split_once("${") else { return text.to_owned() };
    let Some((variable, behind)) = rest.split_once('}') else { return text.to_owned() };
    let Some((_, default)) = variable.split_once(":-") else { return text.to_owned() };
    format!("{before}{default}{}", with_defaults(behind))
}

/// The words of a directive that name servers.
fn upstreams(directive: &Statement) -> Vec<&str> {
    let own = directive.words.iter().filter(|word| !word.starts_with(['/', '@', '*']));
    let inner = directive.inner().iter().filter(|inner| inner.name == "to").flat_map(|to| &to.words);
    own.chain(inner).map(String::as_str).collect()
}

/// The scheme of a server, and its address. Of a variable of the environment, that is its default.
fn upstream(word: &str) -> Option<(&str, &str)> {
    let word = crate::old::default_of(word);
    let (scheme, address) = word.split_once("://").unwrap_or(("http", word));
    let is_tcp = !word.starts_with("unix/") && !word.contains('{') && !scheme.starts_with("srv");
    (is_tcp && !address.is_empty()).then_some((scheme, address))
}

/// A size such as `10MB`.
fn bytes(text: &str) -> Option<u64> {
    let unit = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1000,
        "kib" => 1 << 10,
        "m" | "mb" => 1_000_000,
        "mib" => 1 << 20,
        "g" | "gb" => 1_000_000_000,
        "gib" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(factor)
}

#[cfg(test)]
mod tests;
