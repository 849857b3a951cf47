//! Facts of a configuration of Apache: listeners, virtual hosts, sections, `ProxyPass` and `Redirect`.

/// Rewrites the configuration.
mod rewrite;

use adapt::statements::Statement;

use crate::OldProxy;
use crate::old::{
    OldCondition, OldConfiguration, OldDoor, OldFileKind, OldRule, Site, StatementPlace, split_port,
};
use crate::pattern::TextPattern;
pub(crate) use rewrite::original;

pub(crate) fn examine(statements: Vec<Statement>) -> OldConfiguration {
    let mut old = OldConfiguration::new(OldProxy::Apache, statements);
    let statements = old.statements.clone();
    let hosts: Vec<&Statement> = statements.iter().filter(|inner| inner.name == "<virtualhost>").collect();
    let addresses = listened(&statements);
    if hosts.is_empty() {
        let doors: Vec<usize> =
            addresses.iter().map(|(host, port)| old.door(door(host, *port, &statements))).collect();
        let mut site = Site { doors, hosts: Vec::new(), rules: Vec::new() };
        ApacheFacts { old: &mut old, rules: &mut site.rules }.block(&statements, None);
        old.sites.push(site);
    }
    for host in &hosts {
        let at = |(known, port): &&(String, u16)| host.words.iter().any(|word| is_at(word, known, *port));
        let doors: Vec<usize> = addresses
            .iter()
            .filter(at)
            .map(|(known, port)| old.door(door(known, *port, host.inner())))
            .collect();
        let mut site = Site { doors, hosts: names(host.inner()), rules: Vec::new() };
        site.rules.push(OldRule { place: StatementPlace::of(host), conditions: Vec::new() });
        let mut facts = ApacheFacts { old: &mut old, rules: &mut site.rules };
        let of_all: Vec<Statement> =
            statements.iter().filter(|inner| inner.name.starts_with("<location")).cloned().collect();
        facts.block(&of_all, None);
        facts.block(host.inner(), None);
        if !site.doors.is_empty() {
            old.sites.push(site);
        }
    }
    let of_hosts = statements.iter().filter(|inner| inner.name == "<virtualhost>").flat_map(Statement::inner);
    for section in statements.iter().chain(of_hosts) {
        for member in section.inner().iter().filter(|inner| inner.name == "balancermember") {
            if let Some((_, authority, port)) = server_of(member.word(0)) {
                old.server(authority, port, Some(section.word(0).trim_end_matches('/')));
            }
        }
    }
    old
}

/// The addresses of `Listen`; without one, those of virtual hosts.
fn listened(statements: &[Statement]) -> Vec<(String, u16)> {
    let of = |name: &str| -> Vec<String> {
        let found = statements.iter().filter(|inner| inner.name == name);
        match name {
            "listen" => found.map(|listen| listen.word(0).to_owned()).collect(),
            _ => found.flat_map(|host| host.words.clone()).collect(),
        }
    };
    let mut words = of("listen");
    if words.is_empty() {
        words = of("<virtualhost>");
    }
    let mut all: Vec<(String, u16)> = Vec::new();
    for word in words {
        let found = match word.parse::<u16>() {
            Ok(port) => Some(("*".to_owned(), port)),
            Err(_) => match split_port(&word) {
                ("*" | "_default_" | "0.0.0.0" | "[::]", Some(port)) => Some(("*".to_owned(), port)),
                (host, port) => port.map(|port| (host.to_owned(), port)),
            },
        };
        all.extend(found.filter(|found| !all.contains(found)));
    }
    all
}

fn door(host: &str, port: u16, inner: &[Statement]) -> OldDoor {
    let is_tls =
        inner.iter().any(|inner| inner.name == "sslengine" && inner.word(0).eq_ignore_ascii_case("on"));
    OldDoor { host: host.to_owned(), port, is_tls, has_proxy_header: false, has_http2: false }
}

/// Whether a virtual host is at an address.
fn is_at(word: &str, host: &str, port: u16) -> bool {
    let (own, number) = word.rsplit_once(':').unwrap_or((word, "*"));
    let is_any = matches!(own, "*" | "_default_" | "0.0.0.0" | "[::]");
    (is_any || own == host) && (number == "*" || number.parse() == Ok(port))
}

fn names(inner: &[Statement]) -> Vec<TextPattern> {
    let named = inner.iter().filter(|inner| matches!(inner.name.as_str(), "servername" | "serveralias"));
    let pattern = |word: &String| {
        let word = word.rsplit_once("://").map_or(word.as_str(), |(_, rest)| rest);
        let name = word.split(':').next().unwrap_or_default().to_ascii_lowercase();
        match name.contains(['*', '?']) {
            true => {
                let pattern = regex::escape(&name).replace("\\*", ".*").replace("\\?", ".");
                TextPattern::Regex { pattern: format!("^{pattern}$"), any_case: true }
            }
            false => TextPattern::Exact(name),
        }
    };
    named.flat_map(|named| &named.words).map(pattern).collect()
}

/// The scheme of a server's URL, its authority and the scheme's port.
fn server_of(url: &str) -> Option<(&str, &str, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split('/').next().unwrap_or_default();
    let port = match scheme.to_ascii_lowercase().as_str() {
        "http" | "ws" => 80,
        "https" | "wss" => 443,
        _ => return None,
    };
    (!authority.is_empty() && !authority.contains('$')).then_some((scheme, authority, port))
}

/// The URL of a `ProxyPass`. In a section, it is the first word.
fn target(pass: &Statement) -> &str {
    pass.words.iter().map(String::as_str).find(|word| word.contains("://")).unwrap_or_default()
}

/// The path that a directive is for.
fn path_of(directive: &Statement) -> Option<TextPattern> {
    let expression = |text: &str| TextPattern::Regex { pattern: text.to_owned(), any_case: false };
    let path = directive.words.iter().map(String::as_str).find(|word| word.starts_with('/'));
    match directive.name.as_str() {
        "<location>" if directive.word(0) == "~" => Some(expression(directive.word(1))),
        "<locationmatch>" | "proxypassmatch" | "rewriterule" => Some(expression(directive.word(0))),
        "<location>" | "proxypass" | "redirect" | "redirectpermanent" | "redirecttemp" => {
            path.filter(|path| *path != "/").map(|path| TextPattern::Prefix(path.to_owned()))
        }
        _ => None,
    }
}

struct ApacheFacts<'o> {
    old: &'o mut OldConfiguration,
    rules: &'o mut Vec<OldRule>,
}

impl ApacheFacts<'_> {
    /// Reads a block; `path` is the condition of its section.
    fn block(&mut self, inner: &[Statement], path: Option<&OldCondition>) {
        for directive in inner {
            let own = path_of(directive).map(OldCondition::Path);
            let conditions: Vec<OldCondition> = own.as_ref().or(path).cloned().into_iter().collect();
            match directive.name.as_str() {
                "<location>" | "<locationmatch>" => {
                    self.rule(directive, conditions.clone());
                    self.block(directive.inner(), own.as_ref());
                    if let Some(passing) = self.guards(directive) {
                        self.rule(directive, [conditions, passing].concat());
                    }
                }
                "proxypass" | "proxypassmatch" => {
                    match server_of(target(directive)) {
                        Some((_, authority, port)) => self.old.server(authority, port, None),
                        None if directive
                            .words
                            .iter()
                            .any(|word| word == "!" || word.starts_with("balancer:")) => {}
                        None => self.old.untested(directive, "only servers of HTTP have stand-ins"),
                    }
                    self.rule(directive, conditions);
                }
                name if name.starts_with("redirect") || name == "rewriterule" => {
                    self.rule(directive, conditions);
                }
                "sslverifyclient" => self.old.untested(directive, "clients have no certificates"),
                "<if>" | "<limit>" | "<limitexcept>" => {
                    self.old.untested(directive, "its condition is not read");
                }
                _ => {}
            }
        }
    }

    fn rule(&mut self, directive: &Statement, conditions: Vec<OldCondition>) {
        self.rules.push(OldRule { place: StatementPlace::of(directive), conditions });
    }

    /// The conditions under which requests pass the guards of a section.
    fn guards(&mut self, section: &Statement) -> Option<Vec<OldCondition>> {
        let mut networks = Vec::new();
        let mut conditions = Vec::new();
        for inner in section.inner() {
            match (inner.name.as_str(), inner.word(0).to_ascii_lowercase().as_str()) {
                ("require", "ip") => networks.extend(inner.words.iter().skip(1).cloned()),
                ("require", "valid-user" | "user") => conditions.push(OldCondition::Credentials),
                ("authuserfile", _) => self.old.file(inner.word(0), OldFileKind::Users),
                _ => {}
            }
        }
        networks.iter().for_each(|network| self.old.network(network));
        if !networks.is_empty() {
            conditions.push(OldCondition::Clients(networks));
        }
        (!conditions.is_empty()).then_some(conditions)
    }
}

#[cfg(test)]
mod tests;
