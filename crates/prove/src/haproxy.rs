//! Facts of a configuration of HAProxy: frontends, conditions, backends.

/// Conditions.
mod conditions;
/// Rewrites the configuration.
mod rewrite;

use std::collections::BTreeMap;

use adapt::statements::Statement;

use crate::OldProxy;
use crate::old::{
    OldCondition, OldConfiguration, OldDoor, OldFileKind, OldRule, Site, StatementPlace, split_port,
};
use crate::pattern::TextPattern;
use conditions::{Acls, HaproxyTexts, acls};
pub(crate) use rewrite::original;

pub(crate) fn examine(statements: Vec<Statement>, include: adapt::Include<'_>) -> OldConfiguration {
    let mut old = OldConfiguration::new(OldProxy::Haproxy, statements);
    let sections = old.statements.clone();
    let texts = HaproxyTexts { users: users(&sections), maps: maps(&sections, include) };
    let is_http = modes(&sections);
    let sections: Vec<(&Statement, bool)> = sections.iter().zip(is_http).collect();
    let of_names: BTreeMap<&str, &Statement> = sections
        .iter()
        .filter(|(section, _)| matches!(section.name.as_str(), "backend" | "listen"))
        .map(|(section, _)| (section.word(0), *section))
        .collect();
    for (section, is_http) in &sections {
        let listens = matches!(section.name.as_str(), "frontend" | "listen");
        if !*is_http && listens {
            old.untested(section, "only HTTP is proved");
            continue;
        }
        if matches!(section.name.as_str(), "backend" | "listen") {
            servers(&mut old, section);
        }
        if listens {
            let site = site(&mut old, section, &of_names, &texts);
            old.sites.push(site);
        }
        section.inner().iter().for_each(|line| files(&mut old, line));
    }
    old
}

/// Whether each section has the mode `http`, also by its defaults.
fn modes(sections: &[Statement]) -> Vec<bool> {
    let mut of_defaults = false;
    let mode = |section: &Statement| {
        section.inner().iter().rev().find(|line| line.name == "mode").map(|mode| mode.word(0) == "http")
    };
    let mut all = Vec::new();
    for section in sections {
        let own = mode(section);
        if section.name == "defaults" {
            of_defaults = own.unwrap_or(false);
        }
        all.push(own.unwrap_or(of_defaults));
    }
    all
}

/// The credentials of each list of users, as in `Authorization`; none for hashed passwords.
fn users(sections: &[Statement]) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for list in sections.iter().filter(|section| section.name == "userlist") {
        for user in list.inner().iter().filter(|line| line.name == "user") {
            if user.word(1) == "insecure-password" {
                let pair = base64(&format!("{}:{}", user.word(0), user.word(2)));
                all.entry(list.word(0).to_owned()).or_insert(pair);
            }
        }
    }
    all
}

/// The keys and values of all maps that can be read.
fn maps(sections: &[Statement], include: adapt::Include<'_>) -> BTreeMap<String, Vec<(String, String)>> {
    let mut all = BTreeMap::new();
    for word in sections.iter().flat_map(Statement::inner).flat_map(|line| &line.words) {
        for file in conditions::map_files(word) {
            let Ok(read) = include(file) else { continue };
            let lines = read.iter().flat_map(|(_, text)| text.lines());
            let pair = |line: &str| {
                let (key, value) = line.trim().split_once(char::is_whitespace)?;
                (!key.starts_with('#')).then(|| (key.to_owned(), value.trim().to_owned()))
            };
            all.insert(file.to_owned(), lines.filter_map(pair).collect());
        }
    }
    all
}

fn site(
    old: &mut OldConfiguration,
    section: &Statement,
    backends: &BTreeMap<&str, &Statement>,
    texts: &HaproxyTexts,
) -> Site {
    let mut site = Site { doors: Vec::new(), hosts: Vec::new(), rules: Vec::new() };
    for bind in section.inner().iter().filter(|line| line.name == "bind") {
        for door in doors(bind) {
            match door {
                Some(door) => site.doors.push(old.door(door)),
                None => old.untested(bind, "only TCP addresses have stand-ins"),
            }
        }
    }
    let known = acls(section, texts);
    let mut reader = HaproxyFacts { old, rules: Vec::new(), texts };
    reader.pages(section);
    reader.section(section, &known, &[]);
    let mut seen: Vec<String> = Vec::new();
    // Backends with the conditions under which requests reach them.
    let mut chosen: Vec<(String, Vec<OldCondition>)> = Vec::new();
    for line in section.inner() {
        let sample = line.word(0).strip_prefix("%[").and_then(|rest| rest.strip_suffix(']'));
        match (line.name.as_str(), sample) {
            ("use_backend", Some(sample)) => {
                let mapped = texts.mapped(sample);
                chosen.extend(mapped.into_iter().map(|(condition, backend)| (backend, vec![condition])));
            }
            ("use_backend", None) => {
                let way = reader.ways(line, &known).into_iter().next();
                chosen.push((line.word(0).to_owned(), way.unwrap_or_default()));
            }
            ("default_backend", _) => chosen.push((line.word(0).to_owned(), Vec::new())),
            _ => {}
        }
    }
    for (name, base) in chosen {
        let is_new = !seen.contains(&name);
        let Some(backend) = backends.get(name.as_str()).filter(|_| is_new) else { continue };
        seen.push(name);
        reader.rules.push(OldRule { place: StatementPlace::of(backend), conditions: base.clone() });
        let known = acls(backend, texts);
        reader.section(backend, &known, &base);
    }
    site.rules = reader.rules;
    site
}

struct HaproxyFacts<'o> {
    old: &'o mut OldConfiguration,
    rules: Vec<OldRule>,
    texts: &'o HaproxyTexts,
}

impl HaproxyFacts<'_> {
    /// Reads the paths of HAProxy's own pages.
    fn pages(&mut self, section: &Statement) {
        for line in section.inner() {
            let path = match (line.name.as_str(), line.word(0)) {
                ("monitor-uri", path) => path,
                ("stats", "uri") => line.word(1),
                _ => continue,
            };
            let conditions = vec![OldCondition::Path(TextPattern::Exact(path.to_owned()))];
            self.rules.push(OldRule { place: StatementPlace::of(line), conditions });
        }
    }

    /// Reads the rules of a section that requests with these conditions reach.
    fn section(&mut self, section: &Statement, known: &Acls, base: &[OldCondition]) {
        for line in section.inner().iter().filter(|line| has_mark(line)) {
            for mut conditions in self.ways(line, known) {
                for condition in &conditions {
                    if let OldCondition::Clients(networks) = condition {
                        networks.iter().for_each(|network| self.old.network(network));
                    }
                }
                conditions.splice(0..0, base.iter().cloned());
                self.rules.push(OldRule { place: StatementPlace::of(line), conditions });
            }
            if line.word(0) == "auth" && self.texts.users.is_empty() {
                self.old.untested(line, "no password is known");
            }
        }
    }

    /// The conditions of a line: one list for each way to meet them.
    fn ways(&mut self, line: &Statement, known: &Acls) -> Vec<Vec<OldCondition>> {
        conditions::ways(line, known, self.texts)
    }
}

/// Whether a line is a rule whose use is logged.
fn has_mark(line: &Statement) -> bool {
    match line.name.as_str() {
        "http-request" | "redirect" | "use_backend" | "use-server" | "block" => true,
        "http-response" => !line.word(0).starts_with("cache"),
        _ => false,
    }
}

fn servers(old: &mut OldConfiguration, section: &Statement) {
    for line in section.inner() {
        match line.name.as_str() {
            "server" if line.word(1).starts_with(['/', '@']) || line.word(1).starts_with("unix") => {
                old.untested(line, "servers at Unix sockets have no stand-in");
            }
            "server" => {
                let port = if line.words.iter().any(|word| word == "ssl") { 443 } else { 80 };
                old.server(line.word(1), port, Some(section.word(0)));
            }
            "server-template" => old.untested(line, "servers of DNS have no stand-in"),
            _ => {}
        }
    }
}

/// Reads the files of patterns and of maps that a line names.
fn files(old: &mut OldConfiguration, line: &Statement) {
    for (index, word) in line.words.iter().enumerate() {
        if word == "-f" {
            old.file(line.word(index + 1), OldFileKind::Patterns);
        }
        for file in conditions::map_files(word) {
            old.file(file, OldFileKind::Patterns);
        }
    }
}

/// The addresses of `bind`; none for those without a stand-in.
fn doors(bind: &Statement) -> Vec<Option<OldDoor>> {
    let is_tls = bind.words.iter().any(|word| word == "ssl");
    let has_proxy_header = bind.words.iter().any(|word| word == "accept-proxy");
    let protocols = bind.words.iter().skip_while(|word| *word != "alpn").nth(1);
    let has_http2 = is_tls && protocols.is_some_and(|all| all.split(',').any(|protocol| protocol == "h2"));
    bind.word(0)
        .split(',')
        .map(|address| {
            let address = address.trim_start_matches("ipv4@").trim_start_matches("ipv6@");
            let (host, port) = split_port(address);
            let host = if matches!(host, "" | "*" | "0.0.0.0" | "::" | "[::]") { "*" } else { host };
            Some(OldDoor { host: host.to_owned(), port: port?, is_tls, has_proxy_header, has_http2 })
        })
        .collect()
}

fn base64(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut made = String::new();
    for three in text.as_bytes().chunks(3) {
        let joined = three.iter().fold(0_u32, |joined, byte| joined << 8 | u32::from(*byte))
            << (8 * (3 - three.len()));
        for place in 0..4 {
            let letter = LETTERS[(joined >> (18 - 6 * place) & 63) as usize];
            made.push(if place > three.len() { '=' } else { char::from(letter) });
        }
    }
    made
}

#[cfg(test)]
mod tests;
