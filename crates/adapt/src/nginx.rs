//! Reads nginx's configuration and writes what Vanward can say of it.

/// Access: networks, passwords, authentication servers, rates.
mod access;
/// What comes from the cache's and the compression's directives.
mod bodies;
/// Files, fixed answers and redirects.
mod content;
/// Listeners, from `listen` and the TLS directives of its servers.
mod doors;
/// Directives that no option comes from, by name.
mod known;
/// Locations to routes.
mod locations;
/// Which directive holds where: those of inner blocks hide those of outer ones.
mod scope;
/// Servers to hosts and routes.
mod servers;
/// TCP servers of the `stream` block.
mod streams;
/// The text of the files.
mod syntax;
/// Upstreams, from blocks and from `proxy_pass`.
mod upstreams;
/// Times, sizes, variables, expressions.
mod values;

use std::collections::{BTreeMap, BTreeSet};

use mistake::Mistake;

use crate::draft::{Origin, Value};
use crate::sheet::{Said, Sheet};
use crate::source::Source;
use crate::values as written;
use crate::{Adapted, Include, Kind};
use doors::Door;
use scope::Scope;
use syntax::Directive;

/// Adapts a configuration of nginx. `file` is its name for messages and comments.
///
/// A file may be a whole configuration or a part of one, such as a single `server` block.
///
/// # Errors
/// The text is not of nginx's syntax, or exceeds a limit: blocks 32 deep, includes 16 deep, 1000 files, 100000 directives.
pub fn adapt(text: &str, file: &str, include: Include<'_>) -> Result<Adapted, Box<Mistake>> {
    let (tree, source) = syntax::read(text, file, include)?;
    let mut adapter = Adapter::new(&source);
    adapter.all(&tree);
    Ok(adapter.finish())
}

struct Adapter<'s> {
    sheet: Sheet<'s>,
    doors: Vec<Door>,
    /// The blocks `upstream`, by name.
    groups: BTreeMap<&'s str, &'s Directive>,
    /// Host, listener and path of each route: two routes with the same are a mistake.
    taken: BTreeSet<(String, String, String)>,
}

fn from(directive: &Directive) -> Vec<Origin> {
    vec![Origin::Directive(directive.number)]
}

impl<'s> Adapter<'s> {
    fn new(source: &'s Source) -> Self {
        Self { sheet: Sheet::new(source), doors: Vec::new(), groups: BTreeMap::new(), taken: BTreeSet::new() }
    }

    fn all(&mut self, tree: &'s [Directive]) {
        for directive in tree {
            match directive.name.as_str() {
                "worker_processes" => match directive.word(0).parse::<u64>() {
                    Ok(count @ 1..=1024) => self.sheet.top.set("workers", count, from(directive)),
                    _ => self.note(
                        directive,
                        Kind::NeedsNothing,
                        "one worker for each core is the default",
                        "",
                    ),
                },
                "http" => self.http(directive.inner()),
                "stream" => self.stream(directive.inner()),
                _ => {}
            }
        }
        // A part of a configuration, such as a file of sites-available.
        if !tree.iter().any(|directive| matches!(directive.name.as_str(), "http" | "stream")) {
            self.http(tree);
        }
    }

    fn http(&mut self, level: &'s [Directive]) {
        for map in
            level.iter().filter(|directive| directive.name == "map" && directive.word(0) == "$http_upgrade")
        {
            self.note(map, Kind::NeedsNothing, "upgrades are passed on as clients ask for them", "");
        }
        for group in level.iter().filter(|directive| directive.name == "upstream") {
            self.groups.insert(group.word(0), group);
        }
        let scope = Scope::of(level);
        self.for_all_requests(&scope);
        self.servers(&scope);
    }

    /// What Vanward has once for the whole file.
    fn for_all_requests(&mut self, scope: &Scope<'s>) {
        match scope.one("client_max_body_size") {
            Some(limit) => {
                if let Some(size) = self.body_size(limit) {
                    self.sheet.set("[limits]", "body_bytes", size, from(limit));
                }
            }
            None => {
                let default = vec![Origin::Default("the default of nginx's client_max_body_size")];
                self.sheet.set("[limits]", "body_bytes", "1MiB", default);
            }
        }
        self.trusted(scope);
        self.cache_path(scope);
        self.log(scope);
    }

    /// A size of `client_max_body_size`, where 0 is none.
    fn body_size(&mut self, directive: &Directive) -> Option<String> {
        let bytes = values::bytes(directive.word(0));
        match bytes {
            Some(0) => Some("none".to_owned()),
            Some(bytes) => Some(written::size(bytes)),
            None => {
                self.unread_value(directive);
                None
            }
        }
    }

    /// An option that there is once, for all routes and listeners; of several values the first holds.
    fn once(&mut self, header: &str, key: &str, value: impl Into<Value>, directive: &Directive) {
        self.sheet.once(header, key, value, directive.number);
    }

    /// Addresses of proxies in front.
    fn trusted(&mut self, scope: &Scope<'s>) {
        for network in scope.all("set_real_ip_from") {
            if written::is_network(network.word(0)) {
                self.sheet.top.push("trusted_proxies", network.word(0).into(), from(network));
            } else {
                let instead = "write its address into `trusted_proxies`";
                self.note(network, Kind::Refused, "it is no network", instead);
            }
        }
        if let Some(field) = scope.one("real_ip_header") {
            match field.word(0).to_ascii_lowercase().as_str() {
                "x-forwarded-for" | "forwarded" => {
                    self.note(
                        field,
                        Kind::NeedsNothing,
                        "`trusted_proxies` reads X-Forwarded-For and Forwarded",
                        "",
                    );
                }
                "proxy_protocol" => {
                    self.note(
                        field,
                        Kind::NeedsNothing,
                        "`proxy_protocol` of [[listen]] names the client",
                        "",
                    );
                }
                _ => {
                    let instead = "have the proxy in front send X-Forwarded-For";
                    self.note(
                        field,
                        Kind::Refused,
                        "clients are read from X-Forwarded-For and Forwarded only",
                        instead,
                    );
                }
            }
        }
        if let Some(recursive) = scope.one("real_ip_recursive") {
            let why = "the last address that is not trusted is the client";
            self.note(recursive, Kind::NeedsNothing, why, "");
        }
    }

    fn log(&mut self, scope: &Scope<'s>) {
        let logs = scope.all("access_log");
        let Some(log) = logs.first() else { return };
        for more in &logs[1..] {
            let instead = "write a second table: [[log]]";
            self.note(more, Kind::Refused, "only the first log was taken over", instead);
        }
        self.log_to(log);
    }

    /// The access log, where a directive says one.
    fn log_to(&mut self, log: &Directive) {
        let target = match log.word(0) {
            "off" => return self.note(log, Kind::NeedsNothing, "there is no log without [log]", ""),
            "/dev/stdout" => "stdout",
            target => target,
        };
        if target.starts_with("syslog:") || target.contains('$') {
            let instead = "see docs/logging.md for `target` of [log]";
            return self.note(log, Kind::Refused, "this target is written in another way", instead);
        }
        let target = if target == "stdout" || target.contains('/') {
            target.to_owned()
        } else {
            format!("./{target}")
        };
        if !matches!(target.as_str(), "stdout") && !target.starts_with('/') {
            let why = "the path is relative to the working directory here, not to nginx's prefix";
            self.note(log, Kind::Differs, why, "write the absolute path");
        }
        self.once("[log]", "target", target, log);
        self.sheet.table("[log]").set("format", "combined", from(log));
        if !matches!(log.word(1), "" | "combined") {
            let why = "the log has the Combined Log Format";
            self.note(log, Kind::Differs, why, "`format` of [log] takes other forms: docs/logging.md");
        }
    }

    fn note(&mut self, directive: &Directive, kind: Kind, why: &str, instead: &str) {
        self.sheet.note(directive.number, kind, why, instead);
    }

    fn unread_value(&mut self, directive: &Directive) {
        let instead = "nginx refuses it as well, or it is newer than this";
        self.note(directive, Kind::Refused, "its value is not understood", instead);
    }

    /// Says of a directive what its name alone tells.
    fn note_by_name(&mut self, number: usize) {
        let place = &self.sheet.source.places[number];
        let (kind, why, instead) = by_name(&place.name, &place.text);
        self.sheet.note(number, kind, &why, &instead);
    }

    fn finish(mut self) -> Adapted {
        self.sheet.listeners = self.doors.into_iter().map(Door::table).collect();
        self.sheet.finish("nginx", &by_name)
    }
}

fn by_name(name: &str, text: &str) -> Said {
    let refused = |why: &str, instead: &str| (Kind::Refused, why.to_owned(), instead.to_owned());
    match known::known(name) {
        Some((kind, why, instead)) => (kind, why.to_owned(), instead.to_owned()),
        None if text == format!("{name} off") => {
            (Kind::NeedsNothing, "it is off without an option".to_owned(), String::new())
        }
        None if known::is_used(name) => refused(
            "no request that is answered here uses it, or it stands in a block that was not taken over",
            "leave it out, or see what is said of the block around it",
        ),
        None => refused(
            "`vanward adapt` does not know this directive",
            "look for what it does in docs/configuration.md",
        ),
    }
}

#[cfg(test)]
mod tests;
