//! Translates nginx's configuration.

/// Access control: networks, passwords, authentication servers, rates.
mod access;
/// Compression.
mod bodies;
/// The rewrite phase of servers and locations.
mod branches;
/// Caches of responses.
mod caches;
/// Servers that a variable chooses.
mod chosen;
/// Conditions of `if`.
mod conditions;
/// Constant variables.
mod constants;
/// Files, fixed answers and redirects.
mod content;
/// Listeners, from `listen` and the servers' TLS directives.
mod doors;
/// Values as expressions and maps.
mod expressions;
/// nginx's own variables.
mod facts;
/// Servers of named locations.
mod fallbacks;
/// Applications behind FastCGI.
mod fastcgi;
/// Groups of the expressions in `if`.
mod groups;
/// Files that servers name.
mod internal;
/// Keys of rate limits and caches.
mod keys;
/// Converts locations to routes.
mod locations;
/// The access log.
mod logs;
/// Expressions that look ahead.
mod look_ahead;
/// URLs and cookies of servers in responses.
mod mapped_back;
/// The blocks `map` and `geo`.
mod maps;
/// Locations that send requests on.
mod onward;
/// Servers that admit clients.
mod questions;
/// Pages that may lead to a location.
mod referers;
/// Signed links.
mod links;
/// Clients that need no password.
mod satisfied;
/// Inheritance of directives: inner blocks hide outer ones.
mod scope;
/// Converts servers to hosts and routes.
mod servers;
/// TCP servers of the `stream` block.
mod streams;
/// Parses the files.
mod syntax;
/// Texts with variables.
mod templates;
/// Conditions, joined and simplified.
mod truth;
/// Upstreams, from blocks and from `proxy_pass`.
mod upstreams;
/// Times, sizes, names of variables.
mod values;
/// Values of variables.
mod variables;

use std::collections::{BTreeMap, BTreeSet};

use mistake::Mistake;

use crate::draft::{DraftValue, StatementOrigin};
use crate::known::KnownDirective;
use crate::sheet::{Said, Sheet};
use crate::source::SourceFiles;
use crate::values as written;
use crate::{Adapted, Include, RemarkKind};
use constants::Folded;
use doors::Door;
use scope::BlockScope;
use syntax::Directive;
pub(crate) use syntax::read;
use variables::Declarations;

/// Translates a configuration of nginx, or a part, such as a `server` block. `file` is its name for messages and
/// comments. Fails on a syntax error or an exceeded limit: blocks 32 deep, includes 16 deep, 1000 files, 100000
/// directives.
pub fn adapt(text: &str, file: &str, include: Include<'_>) -> Result<Adapted, Box<Mistake>> {
    let (tree, source) = syntax::read(text, file, include)?;
    let Folded { tree, done, passes } = constants::fold(tree);
    let mut adapter = NginxAdapter::new(&source);
    adapter.passes = passes;
    for number in done {
        adapter.sheet.needless(number, "its value is written where it is used");
    }
    adapter.all(&tree);
    Ok(adapter.finish())
}

struct NginxAdapter<'s> {
    sheet: Sheet<'s>,
    doors: Vec<Door>,
    groups: BTreeMap<&'s str, &'s Directive>,
    /// Host, listener and path of each route. A second route with the same would be a mistake.
    taken: BTreeSet<(String, String, String)>,
    /// Zones of limits that a route counts with, and their keys.
    counted: BTreeMap<usize, DraftValue>,
    /// Named locations whose server is part of a route.
    named: BTreeSet<usize>,
    declarations: Declarations<'s>,
    /// The `proxy_pass` directives that had variables.
    passes: BTreeSet<usize>,
    /// Whether an application gets the requests without a file of the location that is read.
    has_application: bool,
}

fn from(directive: &Directive) -> Vec<StatementOrigin> {
    vec![StatementOrigin::Directive(directive.number)]
}

impl<'s> NginxAdapter<'s> {
    fn new(source: &'s SourceFiles) -> Self {
        Self {
            sheet: Sheet::new(source),
            doors: Vec::new(),
            groups: BTreeMap::new(),
            taken: BTreeSet::new(),
            counted: BTreeMap::new(),
            named: BTreeSet::new(),
            declarations: Declarations::new(&[], BTreeSet::new()),
            passes: BTreeSet::new(),
            has_application: false,
        }
    }

    fn all(&mut self, tree: &'s [Directive]) {
        for directive in tree {
            match directive.name.as_str() {
                "worker_processes" => match directive.word(0).parse::<u64>() {
                    Ok(count @ 1..=1024) => self.sheet.top.set("workers", count, from(directive)),
                    _ => self.note(
                        directive,
                        RemarkKind::NeedsNothing,
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
            self.note(map, RemarkKind::NeedsNothing, "upgrades are forwarded automatically", "");
        }
        for group in level.iter().filter(|directive| directive.name == "upstream") {
            self.groups.insert(group.word(0), group);
        }
        let unread = self.sheet.source.unread.iter().map(|(number, _)| *number).collect();
        self.declarations = Declarations::new(level, unread);
        let scope = BlockScope::from_level(level);
        self.for_all_requests(&scope);
        self.servers(&scope);
    }

    /// Translates settings that Vanward has once for all requests.
    fn for_all_requests(&mut self, scope: &BlockScope<'s>) {
        match scope.one("client_max_body_size") {
            Some(limit) => {
                if let Some(size) = self.body_size(limit) {
                    self.sheet.set("[limits]", "body_bytes", size, from(limit));
                }
            }
            None => {
                let default = vec![StatementOrigin::Default("the default of nginx's client_max_body_size")];
                self.sheet.set("[limits]", "body_bytes", "1MiB", default);
            }
        }
        self.trusted(scope);
        self.cache_path(scope);
        self.log(scope);
    }

    /// Converts the size of `client_max_body_size`; 0 means unlimited.
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

    /// Sets an option that exists once, for all routes and listeners. The first value wins.
    fn once(&mut self, header: &str, key: &str, value: impl Into<DraftValue>, directive: &Directive) {
        self.sheet.once(header, key, value, directive.number);
    }

    /// Translates addresses of proxies in front.
    fn trusted(&mut self, scope: &BlockScope<'s>) {
        for network in scope.all("set_real_ip_from") {
            if written::is_network(network.word(0)) {
                self.sheet.top.push("trusted_proxies", network.word(0).into(), from(network));
            } else {
                let instead = "write its address into `trusted_proxies`";
                self.note(network, RemarkKind::Refused, "it is no network", instead);
            }
        }
        if let Some(field) = scope.one("real_ip_header") {
            match field.word(0).to_ascii_lowercase().as_str() {
                "x-forwarded-for" | "forwarded" => {
                    self.note(
                        field,
                        RemarkKind::NeedsNothing,
                        "`trusted_proxies` reads X-Forwarded-For and Forwarded",
                        "",
                    );
                }
                "proxy_protocol" => {
                    self.note(
                        field,
                        RemarkKind::NeedsNothing,
                        "`proxy_protocol` of [[listen]] names the client",
                        "",
                    );
                }
                _ => {
                    let instead = "have the proxy in front send X-Forwarded-For";
                    self.note(
                        field,
                        RemarkKind::Refused,
                        "clients are read from X-Forwarded-For and Forwarded only",
                        instead,
                    );
                }
            }
        }
        if let Some(recursive) = scope.one("real_ip_recursive") {
            let why = "the last address that is not trusted is the client";
            self.note(recursive, RemarkKind::NeedsNothing, why, "");
        }
    }

    fn note(&mut self, directive: &Directive, kind: RemarkKind, why: &str, instead: &str) {
        self.sheet.note(directive.number, kind, why, instead);
    }

    fn unread_value(&mut self, directive: &Directive) {
        let instead = "nginx refuses it as well, or it is newer than this";
        self.note(directive, RemarkKind::Refused, "its value is not understood", instead);
    }

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

pub(crate) const KNOWN: KnownDirective = KnownDirective(include_str!("nginx/known.txt"));

fn by_name(name: &str, text: &str) -> Said {
    let value = text.split_once(' ').map_or("", |(_, value)| value);
    if matches!(name, "charset" | "source_charset")
        && !["utf-8", "off"].contains(&value.to_ascii_lowercase().as_str())
    {
        let instead = "set Content-Type in `response_headers`, or convert the files".to_owned();
        return (RemarkKind::Refused, "text is UTF-8".to_owned(), instead);
    }
    KNOWN.said(name, text)
}

#[cfg(test)]
mod tests;
