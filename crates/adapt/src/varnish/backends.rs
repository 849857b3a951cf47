//! Backends, probes, directors and ACLs.

use super::syntax::{Declaration, Statement, VclToken};
use super::{VarnishAdapter, milliseconds};
use crate::draft::{DraftTable, DraftValue, StatementOrigin};
use crate::sheet::name_of;
use crate::values::duration;

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

pub(super) struct Backend {
    pub(super) name: String,
    /// The name of its upstream; `None` for `none`.
    pub(super) upstream: Option<String>,
    /// Timeouts of its routes: option, value, statement.
    pub(super) timeouts: Vec<(&'static str, String, usize)>,
    server: Option<DraftValue>,
    options: DraftTable,
    /// The declaration, and the statements that became part of `server`.
    from: Vec<StatementOrigin>,
    is_used: bool,
}

/// An option with its origins.
type Shared = (&'static str, (DraftValue, Vec<StatementOrigin>));

impl Backend {
    /// Takes options of a backend that a director sets for all. Returns those that another backend sets differently.
    fn take(&mut self, options: Vec<Shared>) -> Vec<(&'static str, Vec<StatementOrigin>)> {
        let mut other = Vec::new();
        for (key, (value, from)) in options {
            match self.options.get(key) {
                None => self.options.set(key, value, from),
                Some(known) if *known == value => {
                    from.into_iter().for_each(|origin| self.options.cite(key, origin));
                }
                Some(_) => other.push((key, from)),
            }
        }
        other
    }
}

impl<'s> VarnishAdapter<'s> {
    pub(super) fn all_backends(&mut self, declarations: &'s [Declaration]) {
        for declaration in declarations {
            match declaration {
                Declaration::Block { number, kind, name, fields } if kind == "backend" => {
                    self.backend(*number, name, fields, declarations);
                }
                _ => {}
            }
        }
        let init: Vec<&Statement> = self.subs.get("vcl_init").cloned().unwrap_or_default();
        for statement in init {
            if let Statement::Plain { number, name, tokens } = statement {
                self.director(*number, name, tokens);
            }
        }
    }

    fn backend(
        &mut self,
        number: usize,
        name: &str,
        fields: &'s [(usize, String, Vec<VclToken>)],
        declarations: &'s [Declaration],
    ) {
        let text = |wanted: &str| {
            let field = fields.iter().find(|(_, name, _)| name == wanted)?;
            Some((field.0, field.2.iter().map(VclToken::text).collect::<String>()))
        };
        let mut origins = vec![StatementOrigin::Directive(number)];
        let host = text(".host").or_else(|| text(".path"));
        let mut made = DraftTable::new("", Vec::new());
        let server = host.map(|(at, host)| {
            origins.push(StatementOrigin::Directive(at));
            if host.starts_with('/') {
                return format!("http+unix:{host}");
            }
            let port = text(".port").map(|(at, port)| {
                origins.push(StatementOrigin::Directive(at));
                format!(":{port}")
            });
            let host = if host.contains(':') { format!("[{host}]") } else { host };
            format!("http://{host}{}", port.unwrap_or_default())
        });
        let mut server = server.map(DraftValue::from);
        if let (Some((at, most)), Some(url)) = (text(".max_connections"), server.clone())
            && let Ok(most @ 1..=1_000_000) = most.parse::<u64>()
        {
            origins.push(StatementOrigin::Directive(at));
            server = Some(DraftValue::Table(vec![
                ("url".to_owned(), url),
                ("max_requests".to_owned(), DraftValue::Number(most)),
            ]));
        }
        if let Some(server) = &server {
            made.push("servers", server.clone(), origins.clone());
        }
        if let Some((at, host)) = text(".host_header") {
            made.set(
                "host",
                DraftValue::Table(vec![("set".to_owned(), host.into())]),
                vec![StatementOrigin::Directive(at)],
            );
        }
        if let Some((at, version)) = text(".proxy_header") {
            made.set("send_proxy_protocol", format!("v{version}"), vec![StatementOrigin::Directive(at)]);
        }
        let timeouts = timeouts(&text);
        if let Some((at, time)) = text(".connect_timeout")
            && let Some(time @ 1..) = milliseconds(&time)
        {
            let time = duration(time.min(DAY)).into();
            made.extend("pool", ("connect_timeout", time), vec![StatementOrigin::Directive(at)]);
        }
        self.probe(fields, declarations, &mut made);
        let name = name.to_owned();
        self.backends.push(Backend {
            name,
            upstream: None,
            timeouts,
            server,
            options: made,
            from: origins,
            is_used: false,
        });
    }

    /// Translates `.probe`, by name or as a block.
    fn probe(
        &mut self,
        fields: &'s [(usize, String, Vec<VclToken>)],
        declarations: &'s [Declaration],
        made: &mut DraftTable,
    ) {
        let Some((at, _, value)) = fields.iter().find(|(_, name, _)| name == ".probe") else { return };
        let named = value.first().map(VclToken::text);
        let mut own: Vec<(usize, &str, &[VclToken])> = Vec::new();
        let mut origins = vec![StatementOrigin::Directive(*at)];
        for declaration in declarations {
            if let Declaration::Block { number, kind, name, fields } = declaration
                && kind == "probe"
                && Some(name.as_str()) == named
            {
                origins.push(StatementOrigin::Directive(*number));
                own.extend(
                    fields.iter().map(|(number, name, value)| (*number, name.as_str(), value.as_slice())),
                );
            }
        }
        let inner = fields.iter().filter_map(|(number, name, value)| {
            Some((*number, name.strip_prefix(".probe")?, value.as_slice()))
        });
        own.extend(inner.filter(|(_, name, _)| !name.is_empty()));
        made.extend("check", ("type", "http".into()), origins);
        for (number, name, value) in own {
            let text: String = value.iter().map(VclToken::text).collect();
            let time = milliseconds(&text).map(|time| DraftValue::from(duration(time.clamp(10, HOUR))));
            let option = match (name, time) {
                (".url", _) => Some(("path", text.into())),
                (".interval", Some(time)) => Some(("interval", time)),
                (".timeout", Some(time)) => Some(("timeout", time)),
                (".expected_response", _) => {
                    text.parse::<u64>().ok().map(|status| ("status", DraftValue::Number(status)))
                }
                _ => None,
            };
            match option {
                Some(option) => made.extend("check", option, vec![StatementOrigin::Directive(number)]),
                None => self.sheet.differs(
                    number,
                    "a server is up or down after `rise` or `fall` checks in a row",
                    "",
                ),
            }
        }
        if made.inner("check", "status").is_none() {
            made.extend("check", ("status", DraftValue::Number(200)), Vec::new());
        }
        if made.inner("check", "interval").is_none() {
            made.extend("check", ("interval", "5s".into()), Vec::new());
        }
    }

    /// Translates `new NAME = directors.round_robin();` and `NAME.add_backend(BACKEND);`.
    fn director(&mut self, number: usize, name: &str, tokens: &[VclToken]) {
        let words: Vec<&str> = tokens.iter().map(VclToken::text).collect();
        let origin = || vec![StatementOrigin::Directive(number)];
        if let ("new", [name, "=", kind, ..]) = (name, words.as_slice()) {
            return self.new_director(number, name, kind);
        }
        let Some((director, "add_backend")) = name.rsplit_once('.') else { return };
        let member = self.backends.iter_mut().find(|known| words.contains(&known.name.as_str()));
        let (mut server, mut shared, mut timeouts, mut origins) = (None, Vec::new(), Vec::new(), origin());
        if let Some(member) = member {
            member.is_used = true;
            server = member.server.clone();
            shared = ["check", "pool"]
                .iter()
                .filter_map(|key| Some((*key, member.options.option(key)?)))
                .collect();
            timeouts = member.timeouts.clone();
            origins.extend(member.from.clone());
        }
        let weight = words
            .iter()
            .rev()
            .find_map(|word| word.parse::<f64>().ok())
            .map(|weight| weight.clamp(1.0, 1000.0) as u64);
        let (Some(director), Some(server)) =
            (self.backends.iter_mut().find(|known| known.name == director), server)
        else {
            return self.sheet.refuse(
                number,
                "no backend has this name",
                "write it into `servers` of [upstream.NAME]",
            );
        };
        let mut pairs = match server {
            DraftValue::Table(pairs) => pairs,
            url => vec![("url".to_owned(), url)],
        };
        let members = match director.options.get("servers") {
            Some(DraftValue::List(known)) => known.len(),
            _ => 0,
        };
        match director.options.get("priority_suffices") {
            Some(_) if members > 0 => pairs.push(("priority".to_owned(), DraftValue::Number(members as u64))),
            None => pairs.extend(
                weight
                    .filter(|weight| *weight > 1)
                    .map(|weight| ("weight".to_owned(), DraftValue::Number(weight))),
            ),
            Some(_) => {}
        }
        let value = if pairs.len() == 1 { pairs.remove(0).1 } else { DraftValue::Table(pairs) };
        director.options.push("servers", value, origins);
        let other = director.take(shared);
        if director.timeouts.is_empty() {
            director.timeouts = timeouts;
        }
        for (key, from) in other {
            let why = format!("`{key}` is one for all servers of a director: that of its first backend");
            for origin in from {
                if let StatementOrigin::Directive(number) = origin {
                    self.sheet.differs(number, &why, "put the others into a separate [upstream.NAME]");
                }
            }
        }
    }

    fn new_director(&mut self, number: usize, name: &str, kind: &str) {
        let from = || vec![StatementOrigin::Directive(number)];
        let policy = match kind {
            "directors.round_robin" | "directors.fallback" => "round-robin",
            "directors.random" => "two-choices",
            "directors.hash" | "directors.shard" => "consistent-hash",
            _ => {
                let instead = "write an [upstream.NAME] with its servers";
                return self.sheet.refuse(number, "this object has no equivalent", instead);
            }
        };
        let mut options = DraftTable::new("", from());
        options.set("balance", policy, from());
        if kind == "directors.fallback" {
            options.set("priority_suffices", "0%", Vec::new());
        }
        self.backends.push(Backend {
            name: name.to_owned(),
            upstream: None,
            timeouts: Vec::new(),
            server: None,
            options,
            from: Vec::new(),
            is_used: false,
        });
    }

    pub(super) fn upstream(&mut self, name: &str) -> Option<String> {
        let place = self.backends.iter().position(|known| known.name == name)?;
        self.backends[place].is_used = true;
        let backend = &self.backends[place];
        if backend.upstream.is_none() && backend.options.get("servers").is_some() {
            let table = backend.options.clone();
            let made = self.sheet.upstream(&name_of(name), table);
            self.backends[place].upstream = Some(made);
        }
        self.backends[place].upstream.clone()
    }

    /// Handles backends without a route.
    pub(super) fn left_backends(&mut self) {
        for place in 0..self.backends.len() {
            let Backend { name, is_used, from, .. } = &self.backends[place];
            let (name, first) = (name.clone(), from.first().cloned());
            if !is_used
                && self.upstream(&name).is_some()
                && let Some(StatementOrigin::Directive(number)) = first
            {
                self.sheet.differs(
                    number,
                    "no route leads to it",
                    "have a [[route]] lead to it, or leave it out",
                );
            }
        }
    }

    /// Translates the permission to purge: the ACL of a condition on PURGE.
    pub(super) fn purge(&mut self) {
        let recv: Vec<&Statement> = self.subs.get("vcl_recv").cloned().unwrap_or_default();
        for statement in recv {
            let Statement::If(branches) = statement else { continue };
            let [(number, condition, body)] = branches.as_slice() else { continue };
            let words: Vec<&str> = condition.iter().map(VclToken::text).collect();
            if !words.starts_with(&["req.method", "==", "PURGE"]) {
                continue;
            }
            let mut numbers = vec![*number];
            let mut acl = None;
            look(body, &mut numbers, &mut acl);
            look_at(condition, &mut acl);
            self.purges.insert(*number);
            let networks = acl.as_deref().and_then(|name| self.acls.get(name).cloned().flatten());
            let origins: Vec<StatementOrigin> =
                numbers.iter().map(|number| StatementOrigin::Directive(*number)).collect();
            let purgers = match (networks, acl) {
                (Some(AclNetworks { within, except }), _) if except.is_empty() => within,
                (_, Some(acl)) => {
                    let why =
                        format!("the networks of {acl} are not translated; so only this machine may purge");
                    self.sheet.refuse(*number, &why, "write `purge_from` of [cache]");
                    vec!["127.0.0.0/8".to_owned(), "::1".to_owned()]
                }
                (_, None) => vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()],
            };
            self.sheet.set("[cache]", "purge_from", purgers, origins);
            self.sheet.differs(*number, "other clients get 403, and a purge applies to all variants", "");
        }
    }
}

fn timeouts(text: &dyn Fn(&str) -> Option<(usize, String)>) -> Vec<(&'static str, String, usize)> {
    let mut timeouts = Vec::new();
    for (name, key) in
        [(".first_byte_timeout", "upstream_first_byte"), (".between_bytes_timeout", "upstream_body")]
    {
        if let Some((at, time)) = text(name)
            && let Some(time @ 1..) = milliseconds(&time)
        {
            timeouts.push((key, duration(time.min(DAY)), at));
        }
    }
    timeouts
}

/// Collects the statements of a block, and the ACL in one of its conditions.
fn look(body: &[Statement], numbers: &mut Vec<usize>, acl: &mut Option<String>) {
    for statement in body {
        match statement {
            Statement::Plain { number, .. } => numbers.push(*number),
            Statement::If(branches) => {
                for (number, condition, body) in branches {
                    numbers.push(*number);
                    look_at(condition, acl);
                    look(body, numbers, acl);
                }
            }
        }
    }
}

fn look_at(condition: &[VclToken], acl: &mut Option<String>) {
    let words: Vec<&str> = condition.iter().map(VclToken::text).collect();
    let place = words.windows(3).position(|three| three[0] == "client.ip" && three[1].ends_with('~'));
    if let Some(place) = place {
        *acl = Some(words[place + 2].to_owned());
    }
}

/// Networks of an ACL, and exceptions within them.
#[derive(Debug, Clone, Default)]
pub(super) struct AclNetworks {
    pub(super) within: Vec<String>,
    pub(super) except: Vec<String>,
}

/// Returns the networks of an ACL; `None` if an entry is a name.
pub(super) fn networks(entries: &[VclToken]) -> Option<AclNetworks> {
    let mut networks = AclNetworks::default();
    for entry in entries.split(|token| token.is(";")).filter(|entry| !entry.is_empty()) {
        let text: String =
            entry.iter().map(VclToken::text).filter(|text| !matches!(*text, "(" | ")")).collect();
        let (text, list) = match text.strip_prefix('!') {
            Some(text) => (text, &mut networks.except),
            None => (text.as_str(), &mut networks.within),
        };
        match text {
            "localhost" => list.extend(["127.0.0.1".to_owned(), "::1".to_owned()]),
            network if crate::values::is_network(network) => list.push(network.to_owned()),
            _ => return None,
        }
    }
    // The longest prefix decides: an exception must be the narrower one.
    let is_narrow =
        |except: &String| !networks.within.iter().any(|within| crate::values::is_within(within, except));
    (!networks.within.is_empty() && networks.except.iter().all(is_narrow)).then_some(networks)
}
