//! Rewrites the files of Traefik as one file of YAML: addresses, servers, networks and files, and marks in chains.
//!
//! A mark is a middleware that adds a field of the response. It stands before the middleware or service that it is for.

use adapt::statements::Statement;

use super::points::{self, EntryPoint};
use super::tree::{self, TraefikTree, UsedMiddleware, find, joined, place};
use super::{is_foreign, passes, server_of};
use crate::old::{OldConfiguration, StatementPlace};
use crate::stand_in::{self, BlockMark, Original, Replaced, StandIns, TRAEFIK_USER};

/// Fields of the response with a mark each: the number of the mark is behind the name.
const REACHED: &str = "X-Vanward-Reached-";
/// The path of a router that answers when Traefik has read its file.
pub(crate) const READY: &str = "/vanward-proof-ready";
/// Options of servers that go by their health, which stand-ins do not have, and by TLS.
const OF_SERVERS: [&str; 3] = ["healthcheck", "passivehealthcheck", "serverstransport"];
/// Options of routers that are written in another way, or left out.
const OF_ROUTER: [&str; 6] = ["rule", "priority", "middlewares", "service", "tls", "observability"];
/// Lists of expressions: Traefik divides a single text at commas.
const LISTS: [&str; 2] = [".stripprefixregex.regex", ".accesscontrolalloworiginlistregex"];

pub(crate) fn original(old: &OldConfiguration, stand_ins: &StandIns) -> Original {
    let made = Original { text: String::new(), lines: Vec::new(), marks: Vec::new(), replaced: Vec::new() };
    let tree = TraefikTree(&old.statements);
    let mut writer =
        TraefikWriter { old, stand_ins, tree, made, depth: 0, marking: Vec::new(), numbers: Vec::new() };
    writer.service_of_program();
    writer.entry_points();
    writer.key("http", None);
    writer.depth += 1;
    writer.routers();
    writer.middlewares();
    writer.services();
    writer.made
}

struct TraefikWriter<'w> {
    old: &'w OldConfiguration,
    stand_ins: &'w StandIns,
    tree: TraefikTree<'w>,
    made: Original,
    depth: usize,
    /// Names of the middlewares that set marks, by number.
    marking: Vec<String>,
    /// The places of marks, by number.
    numbers: Vec<StatementPlace>,
}

impl<'w> TraefikWriter<'w> {
    fn line(&mut self, text: &str, place: Option<StatementPlace>) {
        self.made.line(&"  ".repeat(self.depth), text, place);
    }

    fn key(&mut self, name: &str, place: Option<StatementPlace>) {
        self.line(&format!("{}:", quoted(name)), place);
    }

    fn pair(&mut self, name: &str, value: &str, place: Option<StatementPlace>) {
        self.line(&format!("{}: {}", quoted(name), quoted(value)), place);
    }

    fn list(&mut self, name: &str, words: &[String], place: Option<StatementPlace>) {
        self.key(name, place.clone());
        for word in words {
            self.line(&format!("  - {}", quoted(word)), place.clone());
        }
    }

    fn replaced(&mut self, old: impl Into<String>, new: impl Into<String>) {
        self.made.replace(Replaced::new(old, new));
    }

    fn is_rejected(&mut self, statement: &Statement) -> bool {
        let is_it = self.stand_ins.is_rejected(statement);
        if is_it {
            let place = StatementPlace::of(statement).to_string();
            self.replaced(place, "left out: the installed traefik does not accept it");
        }
        is_it
    }

    /// Options for the whole process: log, files, certificate.
    fn service_of_program(&mut self) {
        let StandIns { folder, certificate, key, .. } = self.stand_ins;
        let lines = [
            "\"global\": { \"checkNewVersion\": \"false\", \"sendAnonymousUsage\": \"false\" }".to_owned(),
            format!(
                "\"log\": {{ \"level\": \"ERROR\", \"format\": \"json\", \"filePath\": {} }}",
                quoted(&format!("{folder}/traefik.json"))
            ),
            format!(
                "\"providers\": {{ \"file\": {{ \"filename\": {}, \"watch\": \"false\" }} }}",
                quoted(&format!("{folder}/original.yml"))
            ),
            format!(
                "\"tls\": {{ \"stores\": {{ \"default\": {{ \"defaultCertificate\": {{ \"certFile\": {}, \"keyFile\": {} }} }} }} }}",
                quoted(certificate),
                quoted(key)
            ),
        ];
        lines.iter().for_each(|line| self.line(line, None));
        let ping = self.tree.top("ping").find_map(|ping| find(ping, "entryPoint"));
        match ping {
            Some(point) => self.line(
                &format!("\"ping\": {{ \"entryPoint\": {} }}", quoted(point.word(0))),
                Some(place("ping", point)),
            ),
            None => self.line("\"ping\": { \"manualRouting\": \"true\" }", None),
        }
        for core in self.tree.top("core") {
            self.whole(core, "");
        }
        if self.tree.top("tls").next().is_some() {
            self.replaced("`tls` of the files", certificate.clone());
        }
    }

    fn entry_points(&mut self) {
        let points = points::points(self.tree);
        self.key("entryPoints", None);
        self.depth += 1;
        for point in &points {
            self.entry_point(point);
        }
        self.depth -= 1;
    }

    fn entry_point(&mut self, point: &EntryPoint<'w>) {
        let door = point.door(self.tree);
        let is_it = |known: &crate::old::OldDoor| known.host == door.host && known.port == door.port;
        let index = self.old.doors.iter().position(is_it);
        let Some(address) = index.and_then(|index| self.stand_ins.doors.get(index)).copied() else { return };
        let own = point.statement.map(|statement| place("entryPoints", statement));
        self.key(&point.name, own.clone());
        self.depth += 1;
        self.pair("address", &address.to_string(), own.clone());
        self.replaced(format!("entry point {}:{}", door.host, door.port), address.to_string());
        let path = format!("entryPoints.{}", point.name);
        let options = point.statement.map_or(&[][..], Statement::inner);
        for option in options {
            match option.name.to_ascii_lowercase().as_str() {
                "asdefault" | "forwardedheaders" | "http2" | "allowacmebypass" => self.whole(option, &path),
                "proxyprotocol" if door.has_proxy_header => self.whole(option, &path),
                "http" => self.http_of_point(point, option, &path),
                _ => {}
            }
        }
        self.depth -= 1;
    }

    /// Options for all routers of an entry point.
    fn http_of_point(&mut self, point: &EntryPoint<'w>, http: &'w Statement, path: &str) {
        let own = place(path, http);
        let path = joined(path, &http.name);
        let chain = point.middlewares().map(|(list, path)| self.tree.chain(list, &path)).unwrap_or_default();
        // Those of an entry point also have requests that it redirects.
        let mut names: Vec<String> =
            point.redirection().map(|place| self.mark(place, Vec::new())).into_iter().collect();
        self.chain(&chain, &mut names);
        let is_kept = |option: &&Statement| {
            !["middlewares", "maxheaderbytes"].iter().any(|name| option.name.eq_ignore_ascii_case(name))
        };
        let options: Vec<&Statement> = http.inner().iter().filter(is_kept).collect();
        if names.is_empty() && options.is_empty() {
            return;
        }
        self.key(&http.name, Some(own.clone()));
        self.depth += 1;
        if !names.is_empty() {
            self.list("middlewares", &names, Some(own));
        }
        for option in options {
            match option.name.eq_ignore_ascii_case("tls") {
                true => self.line("\"tls\": {}", Some(place(&path, option))),
                false => self.whole(option, &path),
            }
        }
        self.depth -= 1;
    }

    /// The number of a mark as the name of a middleware that sets it.
    fn mark(&mut self, at: StatementPlace, statements: Vec<StatementPlace>) -> String {
        let known = self.numbers.iter().position(|known| *known == at);
        let number = known.unwrap_or(self.numbers.len());
        if known.is_none() {
            self.numbers.push(at.clone());
            self.marking.push(format!("vanward-proof-{number}"));
            self.made.marks.push(BlockMark { place: at, statements });
        }
        format!("{}@file", self.marking[number])
    }

    /// Adds the names of a chain, with a mark before each. Returns whether requests may get past it.
    fn chain(&mut self, chain: &[UsedMiddleware<'w>], names: &mut Vec<String>) -> bool {
        for used in chain {
            let (Some(definition), Some(kind)) = (used.definition, used.kind()) else { return false };
            let mut statements = vec![place("http.middlewares", definition)];
            tree::options(&format!("http.middlewares.{}", definition.name), kind, &mut statements);
            names.push(self.mark(used.place.clone(), statements));
            if !matches!(used.kind_name().as_str(), "plugin") {
                names.push(used.name.to_owned());
            }
        }
        true
    }

    fn routers(&mut self) {
        self.key("routers", None);
        self.depth += 1;
        self.ready();
        for router in self.tree.defined("http", "routers") {
            if !self.is_rejected(router) {
                self.router(router);
            }
        }
        self.depth -= 1;
    }

    /// Routers that tell when the file has been read: one for entry points with TLS, and one for others.
    fn ready(&mut self) {
        let points = points::points(self.tree);
        for (name, is_tls) in [("vanward-proof-ready", false), ("vanward-proof-ready-tls", true)] {
            let fitting = points.iter().filter(|point| point.is_tls(self.tree) == is_tls);
            let names: Vec<String> = fitting.map(|point| point.name.clone()).collect();
            if names.is_empty() {
                continue;
            }
            self.key(name, None);
            self.depth += 1;
            self.pair("rule", &format!("Path(`{READY}`)"), None);
            self.pair("priority", "1000000000", None);
            self.list("entryPoints", &names, None);
            self.pair("service", "noop@internal", None);
            if is_tls {
                self.line("\"tls\": {}", None);
            }
            self.depth -= 1;
        }
    }

    fn router(&mut self, router: &'w Statement) {
        let own = place("http.routers", router);
        let path = format!("http.routers.{}", router.name);
        self.key(&router.name, Some(own.clone()));
        self.depth += 1;
        let mut statements = Vec::new();
        tree::options("http.routers", router, &mut statements);
        let mut names = vec![self.mark(own.clone(), statements)];
        let chain = find(router, "middlewares").map(|list| self.tree.chain(list, &joined(&path, &list.name)));
        let chain = chain.unwrap_or_default();
        let is_known = self.chain(&chain, &mut names);
        let service = find(router, "service");
        let name = match service {
            Some(service) if is_known && !is_foreign(self.tree, router) => service.word(0),
            // Its middlewares are there, too, and the status says what it stands for.
            _ => "noop@internal",
        };
        self.replaced(
            format!("{path}: service {}", service.map_or("none", |service| service.word(0))),
            format!("{path}: service {name}"),
        );
        if let Some(service) = service.filter(|_| chain.iter().all(passes) && !name.ends_with("@internal")) {
            let mut statements = Vec::new();
            if let Some(definition) = self.tree.definition("http", "services", name) {
                tree::options("http.services", definition, &mut statements);
            }
            names.push(self.mark(place(&path, service), statements));
        }
        self.rule(router, &path);
        self.list("middlewares", &names, Some(own.clone()));
        self.pair("service", name, Some(service.map_or(own, |service| place(&path, service))));
        for option in router.inner() {
            match option.name.to_ascii_lowercase().as_str() {
                // The certificate is that of the proof.
                "tls" => self.line("\"tls\": {}", Some(place(&path, option))),
                name if OF_ROUTER.contains(&name) => {}
                _ => self.whole(option, &path),
            }
        }
        self.depth -= 1;
    }

    /// A rule with stand-ins of networks. Its length is its priority, which stays the same.
    fn rule(&mut self, router: &Statement, path: &str) {
        let Some(rule) = find(router, "rule") else { return };
        let written = rule.word(0);
        let mut text = written.to_owned();
        for network in &self.old.networks {
            if let Some(new) = stand_in::network(self.old, network) {
                for quote in ['`', '"', '\''] {
                    text = text.replace(&format!("{quote}{network}{quote}"), &format!("{quote}{new}{quote}"));
                }
            }
        }
        self.replaced(written, text.clone());
        self.pair("rule", &text, Some(place(path, rule)));
        let priority = find(router, "priority").filter(|priority| priority.word(0) != "0");
        let told = priority.map_or_else(|| written.len().to_string(), |priority| priority.word(0).to_owned());
        self.pair("priority", &told, Some(place(path, priority.unwrap_or(rule))));
    }

    fn middlewares(&mut self) {
        let tree = self.tree;
        self.key("middlewares", None);
        self.depth += 1;
        for number in 0..self.marking.len() {
            let name = self.marking[number].clone();
            self.line(
                &format!(
                    "{}: {{ \"headers\": {{ \"customResponseHeaders\": {{ \"{REACHED}{number}\": \"{number}\" }} }} }}",
                    quoted(&name)
                ),
                None,
            );
        }
        for definition in tree.defined("http", "middlewares") {
            let Some(kind) = definition.inner().first() else { continue };
            let is_left_out = ["plugin", "chain"].iter().any(|name| kind.name.eq_ignore_ascii_case(name));
            if is_left_out || self.is_rejected(definition) {
                continue;
            }
            self.key(&definition.name, Some(place("http.middlewares", definition)));
            self.depth += 1;
            self.middleware(kind, &format!("http.middlewares.{}", definition.name));
            self.depth -= 1;
        }
        self.depth -= 1;
    }

    fn middleware(&mut self, kind: &'w Statement, path: &str) {
        let is_auth = kind.name.eq_ignore_ascii_case("basicAuth");
        let Some(users) = find(kind, "users").filter(|_| is_auth) else { return self.whole(kind, path) };
        let inner = joined(path, &kind.name);
        self.key(&kind.name, Some(place(path, kind)));
        self.depth += 1;
        for option in kind.inner() {
            if option.name.eq_ignore_ascii_case("users") {
                self.list(&option.name, &[TRAEFIK_USER.to_owned()], Some(place(&inner, users)));
                self.replaced(format!("{inner}.{}", option.name), "alice with the password secret");
            } else {
                self.whole(option, &inner);
            }
        }
        self.depth -= 1;
    }

    fn services(&mut self) {
        let tree = self.tree;
        self.key("services", None);
        self.depth += 1;
        // A block without content is not a block.
        self.line(
            "\"vanward-proof\": { \"loadBalancer\": { \"servers\": [{ \"url\": \"http://127.0.0.1:1\" }] } }",
            None,
        );
        for definition in tree.defined("http", "services") {
            if !self.is_rejected(definition) {
                self.whole(definition, "http.services");
            }
        }
        self.depth -= 1;
    }

    /// Writes a statement with all that is in it, and with stand-ins.
    fn whole(&mut self, statement: &'w Statement, path: &str) {
        if self.is_rejected(statement) {
            return;
        }
        let name = statement.name.to_ascii_lowercase();
        let own = Some(place(path, statement));
        let is_of_service = path.starts_with("http.services");
        if is_of_service && OF_SERVERS.contains(&name.as_str()) {
            let why = "left out: stand-ins of servers have no TLS, and are always healthy";
            return self.replaced(joined(path, &statement.name), why);
        }
        if path.starts_with("http.middlewares") && name == "tls" {
            return self
                .replaced(joined(path, &statement.name), "left out: stand-ins of servers have no TLS");
        }
        let path = joined(path, &statement.name);
        let is_item = statement.name == "-";
        let inner = statement.inner();
        if inner.is_empty() {
            let words: Vec<String> = statement.words.iter().map(|word| self.word(&name, word)).collect();
            let lower = path.to_ascii_lowercase();
            let is_list = words.len() > 1 || LISTS.iter().any(|list| lower.ends_with(list));
            match words.as_slice() {
                [] => self.line(&format!("{}: {{}}", quoted(&statement.name)), own),
                [word] if is_item => self.line(&format!("- {}", quoted(word)), own),
                [word] if !is_list => self.pair(&statement.name, word, own),
                words => self.list(&statement.name, words, own),
            }
            return;
        }
        match is_item {
            true => self.line("-", own),
            false => self.key(&statement.name, own),
        }
        self.depth += 1;
        inner.iter().for_each(|inner| self.whole(inner, &path));
        self.depth -= 1;
    }

    fn word(&mut self, name: &str, word: &str) -> String {
        let new = match name {
            "url" | "address" => self.url(word),
            "usersfile" => Some(self.stand_ins.file(word)),
            "sourcerange" | "trustedips" | "excludedips" => stand_in::network(self.old, word),
            _ => None,
        };
        let Some(new) = new else { return word.to_owned() };
        self.replaced(word, new.clone());
        new
    }

    /// A URL with the stand-in of its server.
    fn url(&self, url: &str) -> Option<String> {
        let (scheme, authority, _) = server_of(url)?;
        let address = self.stand_ins.server(self.old, authority)?;
        let path = &url[scheme.len() + "://".len() + authority.len()..];
        Some(format!("http://{address}{path}"))
    }
}

/// A text in double quotes, as YAML has them. Templates of Go see no braces.
fn quoted(text: &str) -> String {
    let mut made = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => made.extend(['\\', letter]),
            '{' => made += "\\x7b",
            '\n' => made += "\\n",
            '\t' => made += "\\t",
            letter if letter.is_control() => made += &format!("\\u{:04x}", u32::from(letter)),
            letter => made.push(letter),
        }
    }
    made.push('"');
    made
}
