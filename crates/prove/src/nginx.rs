//! Facts of a configuration of nginx: servers, locations, conditions, limits.

/// Conditions of `if` and `map`.
mod conditions;
/// Rewrites the configuration.
mod rewrite;

use adapt::statements::Statement;

use crate::OldProxy;
use crate::old::{
    OldCondition, OldConfiguration, OldDoor, OldFileKind, OldRule, Site, StatementPlace, split_port,
};
use crate::pattern::TextPattern;
pub(crate) use rewrite::original;

/// More requests in a row are not sent for a limit.
const BURST_MAX: usize = 60;
/// Limits of more concurrent requests are not tested.
const AT_ONCE_MAX: usize = 100;
/// Concurrent requests beyond a limit.
const AT_ONCE_MORE: usize = 3;
/// Statements with servers of protocols that have no stand-ins.
const FOREIGN: [&str; 4] = ["uwsgi_pass", "scgi_pass", "grpc_pass", "memcached_pass"];
/// Requests beyond what a limit admits at once.
const BURST_MORE: usize = 5;

pub(crate) fn examine(statements: Vec<Statement>) -> OldConfiguration {
    let mut old = OldConfiguration::new(OldProxy::Nginx, statements);
    let statements = old.statements.clone();
    let mut http: Vec<&Statement> = Vec::new();
    for statement in &statements {
        match statement.name.as_str() {
            "http" => http.extend(statement.inner()),
            "stream" | "mail" => old.untested(statement, "only HTTP is proved"),
            _ => http.push(statement),
        }
    }
    let foreign = foreign(&statements);
    let mut reader = NginxFacts { groups: groups(&http), foreign, old: &mut old, everywhere: Vec::new() };
    reader.shared(&http);
    let mut sites = Vec::new();
    for server in http.iter().filter(|statement| statement.name == "server") {
        sites.push(reader.site(server));
    }
    let everywhere = reader.everywhere;
    for site in &mut sites {
        site.rules.extend(everywhere.iter().cloned());
    }
    old.sites = sites;
    old
}

fn groups(http: &[&Statement]) -> Vec<String> {
    let groups = http.iter().filter(|statement| statement.name == "upstream");
    groups.map(|group| group.word(0).to_owned()).collect()
}

/// The groups and servers of protocols without stand-ins.
pub(crate) fn foreign(statements: &[Statement]) -> Vec<String> {
    let mut all = Vec::new();
    for statement in statements {
        if is_foreign(statement) {
            let word = statement.word(0);
            all.push(word.split_once("://").map_or(word, |(_, authority)| authority).to_owned());
        }
        all.extend(foreign(statement.inner()));
    }
    all
}

/// Whether a statement names a server of such a protocol.
pub(crate) fn is_foreign(statement: &Statement) -> bool {
    FOREIGN.contains(&statement.name.as_str())
}

/// Whether a place is that of such a statement.
pub(crate) fn is_foreign_place(place: &StatementPlace) -> bool {
    place.text.split(' ').next().is_some_and(|name| FOREIGN.contains(&name))
}

struct NginxFacts<'o> {
    groups: Vec<String>,
    /// Groups whose servers have no stand-ins.
    foreign: Vec<String>,
    old: &'o mut OldConfiguration,
    /// Rules for all servers.
    everywhere: Vec<OldRule>,
}

impl NginxFacts<'_> {
    /// Reads what servers share.
    fn shared(&mut self, http: &[&Statement]) {
        for statement in http {
            match statement.name.as_str() {
                "upstream" => {
                    let is_foreign = self.foreign.iter().any(|group| group == statement.word(0));
                    let servers = statement.inner().iter().filter(|inner| inner.name == "server");
                    for server in servers.filter(|_| !is_foreign) {
                        self.old.server(server.word(0), 80, Some(statement.word(0)));
                    }
                }
                "map" | "geo" => self.table(statement),
                "server" => {}
                _ => {
                    let mut rules = Vec::new();
                    self.statement(statement, &[], &mut rules);
                    self.everywhere.extend(rules);
                }
            }
        }
    }

    /// Reads the keys of a map or a `geo` block.
    fn table(&mut self, table: &Statement) {
        for row in table.inner() {
            for word in &row.words {
                self.named_server(word);
            }
            if matches!(row.name.as_str(), "default" | "hostnames" | "volatile" | "include" | "ranges") {
                continue;
            }
            let condition = if table.name == "geo" {
                self.old.network(&row.name);
                Some(OldCondition::Clients(vec![row.name.clone()]))
            } else {
                conditions::of_variable(table.word(0), conditions::of_key(&row.name))
            };
            if let Some(condition) = condition {
                self.everywhere.push(OldRule { place: StatementPlace::of(row), conditions: vec![condition] });
            }
        }
    }

    fn site(&mut self, server: &Statement) -> Site {
        let mut site = Site { doors: Vec::new(), hosts: Vec::new(), rules: Vec::new() };
        let is_on =
            |name: &str| server.inner().iter().any(|inner| inner.name == name && inner.word(0) == "on");
        let (is_tls, has_http2) = (is_on("ssl"), is_on("http2"));
        for listen in server.inner().iter().filter(|inner| inner.name == "listen") {
            match door(listen, is_tls) {
                Some(mut door) => {
                    door.has_http2 = door.is_tls && (door.has_http2 || has_http2);
                    let index = self.old.door(door);
                    if !site.doors.contains(&index) {
                        site.doors.push(index);
                    }
                }
                None => self.old.untested(listen, "only TCP addresses have stand-ins"),
            }
        }
        if !server.inner().iter().any(|inner| inner.name == "listen") {
            let usual = OldDoor::plain(80);
            site.doors.push(self.old.door(usual));
        }
        for names in server.inner().iter().filter(|inner| inner.name == "server_name") {
            site.hosts.extend(names.words.iter().filter_map(|name| host(name)));
        }
        site.rules.push(OldRule { place: StatementPlace::of(server), conditions: Vec::new() });
        for statement in server.inner() {
            let mut rules = Vec::new();
            self.statement(statement, &[], &mut rules);
            site.rules.extend(rules);
        }
        site
    }

    /// Reads a statement of a block that requests with these conditions reach.
    fn statement(&mut self, statement: &Statement, base: &[OldCondition], rules: &mut Vec<OldRule>) {
        let rule = |more: OldCondition| {
            let conditions = base.iter().cloned().chain([more]).collect();
            OldRule { place: StatementPlace::of(statement), conditions }
        };
        let inside = |reader: &mut Self, base: Vec<OldCondition>, rules: &mut Vec<OldRule>| {
            for inner in statement.inner() {
                reader.statement(inner, &base, rules);
            }
        };
        match statement.name.as_str() {
            "location" => {
                let conditions = vec![within(base, location(statement))];
                rules.push(OldRule { place: StatementPlace::of(statement), conditions: conditions.clone() });
                inside(self, conditions, rules);
            }
            "if" => {
                let mut conditions = base.to_vec();
                conditions.extend(conditions::of_if(statement));
                rules.push(OldRule { place: StatementPlace::of(statement), conditions: conditions.clone() });
                inside(self, conditions, rules);
            }
            "limit_except" => {
                rules.push(rule(OldCondition::Methods(statement.words.clone())));
                inside(self, base.to_vec(), rules);
            }
            "allow" | "deny" if statement.word(0) != "all" => {
                self.old.network(statement.word(0));
                rules.push(rule(OldCondition::Clients(vec![statement.word(0).to_owned()])));
            }
            "set_real_ip_from" => self.old.network(statement.word(0)),
            "rewrite" => rules.push(rule(OldCondition::Path(expression(statement.word(0), false)))),
            "limit_req" => rules.push(rule(OldCondition::Burst(burst(statement)))),
            "limit_conn" => match statement.word(1).parse::<usize>() {
                Ok(most) if most <= AT_ONCE_MAX => {
                    rules.push(rule(OldCondition::AtOnce(most + AT_ONCE_MORE)));
                }
                _ => {
                    let why = format!("more than {AT_ONCE_MAX} concurrent requests are not sent");
                    self.old.untested(statement, &why);
                }
            },
            "error_page" => {
                rules.push(rule(OldCondition::ServerError));
                self.page(statement.words.last().map_or("", String::as_str));
            }
            "client_max_body_size" => {
                if let Some(bytes) = bytes(statement.word(0)) {
                    rules.push(rule(OldCondition::Body(bytes)));
                }
            }
            "auth_basic_user_file" => rules.push(rule(OldCondition::Credentials)),
            _ => {}
        }
        self.names(statement);
    }

    /// Reads the servers and files that a statement names.
    fn names(&mut self, statement: &Statement) {
        let first = statement.word(0);
        match statement.name.as_str() {
            "proxy_pass" => self.passed(first),
            "set" => self.named_server(statement.word(1)),
            "fastcgi_pass" if !first.contains('$') => self.old.application(first, 80),
            "fastcgi_pass" | "uwsgi_pass" | "scgi_pass" | "grpc_pass" | "memcached_pass" => {
                self.old.untested(statement, "only servers of HTTP and FastCGI have stand-ins");
            }
            "ssl_verify_client" | "ssl_client_certificate" => {
                self.old.untested(statement, "requests come without a certificate");
            }
            "root" | "alias" => self.old.file(first, OldFileKind::Folder),
            "auth_basic_user_file" => self.old.file(first, OldFileKind::Users),
            "ssl_certificate" => self.old.file(first, OldFileKind::Certificate),
            "ssl_certificate_key" => self.old.file(first, OldFileKind::Key),
            // Those before the last are often names that no file has.
            "try_files" => self.page(statement.words.last().map_or("", String::as_str)),
            _ => {}
        }
    }

    fn page(&mut self, word: &str) {
        if word.starts_with('/') && !word.contains('$') && word.len() > 1 {
            self.old.file(word, OldFileKind::Page);
        }
    }

    fn passed(&mut self, url: &str) {
        let Some(authority) = authority(url) else { return };
        if !authority.contains('$') && !self.groups.iter().any(|group| group == authority) {
            let port = if url.starts_with("https:") { 443 } else { 80 };
            self.old.server(authority, port, None);
        }
    }

    /// Reads a value that variables hand to `proxy_pass`.
    fn named_server(&mut self, value: &str) {
        let authority = authority(value).unwrap_or(value);
        let (host, port) = split_port(authority);
        let is_host = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
        if port.is_some() && is_host && !host.is_empty() {
            self.old.server(authority, 80, None);
        }
    }
}

/// The authority of `http://AUTHORITY/PATH`, also of `http://unix:/SOCKET:/PATH`.
fn authority(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))?;
    match rest.strip_prefix("unix:") {
        Some(socket) => {
            let length = socket.find(':').unwrap_or(socket.len());
            rest.get(..length + "unix:".len())
        }
        None => {
            let authority = rest.split(['/', '?']).next()?;
            // A variable behind the port is a path.
            let fixed = authority.split('$').next().filter(|fixed| split_port(fixed).1.is_some());
            Some(fixed.unwrap_or(authority))
        }
    }
}

fn location(statement: &Statement) -> OldCondition {
    let text = statement.word(1).to_owned();
    match statement.word(0) {
        "=" => OldCondition::Path(TextPattern::Exact(text)),
        "^~" => OldCondition::Path(TextPattern::Prefix(text)),
        "~" => OldCondition::Path(expression(&text, false)),
        "~*" => OldCondition::Path(expression(&text, true)),
        named if named.starts_with('@') => OldCondition::ServerError,
        prefix => OldCondition::Path(TextPattern::Prefix(prefix.to_owned())),
    }
}

/// The condition of a location within another one: an expression for the end of a path begins with the outer prefix.
fn within(outer: &[OldCondition], own: OldCondition) -> OldCondition {
    let prefix = outer.iter().find_map(|condition| match condition {
        OldCondition::Path(TextPattern::Prefix(prefix)) if prefix != "/" => Some(prefix),
        _ => None,
    });
    match (prefix, own) {
        (Some(prefix), OldCondition::Path(TextPattern::Regex { pattern, any_case }))
            if !pattern.starts_with('^') =>
        {
            let pattern = format!("^{}.*(?:{pattern})", regex_syntax::escape(prefix));
            OldCondition::Path(TextPattern::Regex { pattern, any_case })
        }
        (_, own) => own,
    }
}

fn expression(pattern: &str, any_case: bool) -> TextPattern {
    TextPattern::Regex { pattern: pattern.to_owned(), any_case }
}

fn host(name: &str) -> Option<TextPattern> {
    if let Some(pattern) = name.strip_prefix('~') {
        return Some(expression(pattern, true));
    }
    if let Some(domain) = name.strip_prefix('*').or_else(|| name.strip_prefix('.')) {
        let dot = if domain.starts_with('.') { "" } else { "." };
        return Some(TextPattern::Suffix(format!("{dot}{domain}")));
    }
    if let Some(start) = name.strip_suffix('*') {
        return Some(TextPattern::Prefix(start.to_owned()));
    }
    name.contains(|letter: char| letter.is_ascii_alphanumeric()).then(|| TextPattern::Exact(name.to_owned()))
}

/// The address of `listen`.
fn door(listen: &Statement, is_tls: bool) -> Option<OldDoor> {
    let written = listen.word(0);
    let is_quic = listen.words.iter().any(|word| word == "quic");
    if written.starts_with("unix:") || is_quic {
        return None;
    }
    let is_tls = is_tls || listen.words.iter().any(|word| word == "ssl");
    let has_proxy_header = listen.words.iter().any(|word| word == "proxy_protocol");
    let has_http2 = is_tls && listen.words.iter().any(|word| word == "http2");
    let (host, port) = match written.parse() {
        Ok(port) => ("*", port),
        Err(_) => match split_port(written) {
            (host, Some(port)) => (host, port),
            (host, None) => (host, 80),
        },
    };
    let host = match host {
        "0.0.0.0" | "[::]" | "*" => "*",
        "localhost" => "127.0.0.1",
        host => host,
    };
    Some(OldDoor { host: host.to_owned(), port, is_tls, has_proxy_header, has_http2 })
}

fn burst(limit: &Statement) -> usize {
    let burst = limit.words.iter().find_map(|word| word.strip_prefix("burst=")?.parse::<usize>().ok());
    (burst.unwrap_or(0) + BURST_MORE).min(BURST_MAX)
}

/// A size such as `10m`.
fn bytes(text: &str) -> Option<u64> {
    let unit = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
    match unit {
        "" => Some(number),
        "k" | "K" => Some(number << 10),
        "m" | "M" => Some(number << 20),
        "g" | "G" => Some(number << 30),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests;
