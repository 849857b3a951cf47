//! Rewrites VCL for a proof: servers and networks, and a mark in each subroutine and branch.
//!
//! A mark is a part of a field; the response has the marks of its request.

use std::collections::BTreeSet;

use adapt::statements::Statement;

use super::{backend, entries, is_reached};
use crate::old::{OldConfiguration, StatementPlace};
use crate::stand_in::{self, BlockMark, Original, Replaced, StandIns};

/// Fields with the marks.
const REACHED: &str = "X-Vanward-Reached";

/// Subroutines before those of the configuration: they hand the marks to the client.
const FIRST: &str = "sub vcl_backend_fetch { unset bereq.http.X-Vanward-Reached; }
sub vcl_deliver { set resp.http.X-Vanward-Reached = resp.http.X-Vanward-Reached + req.http.X-Vanward-Reached; }
sub vcl_synth { set resp.http.X-Vanward-Reached = req.http.X-Vanward-Reached; }";

pub(crate) fn original(old: &OldConfiguration, stand_ins: &StandIns) -> Original {
    let made = Original { text: String::new(), lines: Vec::new(), marks: Vec::new(), replaced: Vec::new() };
    let mut writer = VclWriter { old, stand_ins, made, depth: 0 };
    // The version comes first.
    let (versions, others): (Vec<&Statement>, Vec<&Statement>) =
        old.statements.iter().partition(|statement| statement.name == "vcl");
    if versions.is_empty() {
        writer.line("vcl 4.1;", None);
    }
    versions.iter().for_each(|version| writer.declaration(version, ""));
    let (subs, others): (Vec<&Statement>, Vec<&Statement>) =
        others.into_iter().partition(|statement| statement.name == "sub");
    others.iter().for_each(|declaration| writer.declaration(declaration, ""));
    writer.line(FIRST, None);
    let of_servers = called_by_servers(&subs);
    for sub in subs {
        let field = match sub.word(0) {
            "vcl_deliver" | "vcl_synth" => "resp",
            "vcl_backend_response" | "vcl_backend_error" => "beresp",
            "vcl_backend_fetch" => "",
            name if of_servers.contains(name) || !is_reached(sub) => "",
            _ => "req",
        };
        writer.declaration(sub, field);
    }
    writer.made
}

/// Subroutines that those of servers call: their fields are others.
fn called_by_servers(subs: &[&Statement]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut waiting: Vec<&Statement> =
        subs.iter().filter(|sub| sub.word(0).starts_with("vcl_backend")).copied().collect();
    while let Some(block) = waiting.pop() {
        for inner in block.inner() {
            if inner.name == "call" && all.insert(inner.word(0).to_owned()) {
                waiting.extend(subs.iter().filter(|sub| sub.word(0) == inner.word(0)));
            }
            waiting.push(inner);
        }
    }
    all
}

struct VclWriter<'w> {
    old: &'w OldConfiguration,
    stand_ins: &'w StandIns,
    made: Original,
    depth: usize,
}

impl VclWriter<'_> {
    fn line(&mut self, text: &str, place: Option<StatementPlace>) {
        self.made.line(&"    ".repeat(self.depth), text, place);
    }

    fn replaced(&mut self, old: impl Into<String>, new: impl Into<String>) {
        self.made.replace(Replaced::new(old, new));
    }

    /// `field` is where marks go; empty for none.
    fn declaration(&mut self, statement: &Statement, field: &str) {
        let place = Some(StatementPlace::of(statement));
        match statement.name.as_str() {
            "sub" => {
                self.line(&format!("sub {} {{", statement.word(0)), place.clone());
                self.block(statement, field);
                self.line("}", place);
            }
            "acl" => self.acl(statement),
            _ if statement.inner().is_empty() => {
                self.line(&format!("{} {};", statement.name, statement.words.join(" ")), place);
            }
            _ => self.fields(statement),
        }
    }

    fn acl(&mut self, acl: &Statement) {
        self.line(&format!("acl {} {{", acl.word(0)), Some(StatementPlace::of(acl)));
        for entry in entries(acl) {
            let network =
                stand_in::network(self.old, &entry.network).unwrap_or_else(|| entry.network.clone());
            self.replaced(entry.network.clone(), network.clone());
            let (address, length) = network.split_once('/').unwrap_or((network.as_str(), ""));
            let sign = if entry.is_excluded { "! " } else { "" };
            let length = if length.is_empty() { String::new() } else { format!("/{length}") };
            self.line(&format!("    {sign}\"{address}\"{length};"), Some(StatementPlace::of(acl)));
        }
        self.line("}", Some(StatementPlace::of(acl)));
    }

    /// A backend or a probe. Fields of an inner block have the name of the outer one before theirs.
    fn fields(&mut self, declaration: &Statement) {
        let head = format!("{} {} {{", declaration.name, declaration.words.join(" "));
        self.line(&head, Some(StatementPlace::of(declaration)));
        let address = match declaration.name.as_str() {
            "backend" => backend(declaration).and_then(|written| self.stand_ins.server(self.old, &written)),
            _ => None,
        };
        let mut outer: Option<&str> = None;
        for field in declaration.inner() {
            let name = field.name.as_str();
            if let Some(before) = outer.filter(|before| !name.starts_with(&format!("{before}."))) {
                self.line("    }", None);
                outer = (name == before).then_some(before);
            }
            let value = match (name, address) {
                (".host", Some(address)) => format!("\"{}\"", address.ip()),
                (".port", Some(_)) => continue,
                _ => field.words.join(" "),
            };
            if value.is_empty() {
                self.line(&format!("    {name} = {{"), Some(StatementPlace::of(field)));
                outer = Some(name);
                continue;
            }
            let inner = outer.map_or(name, |before| &name[before.len()..]);
            self.line(&format!("    {inner} = {value};"), Some(StatementPlace::of(field)));
        }
        if outer.is_some() {
            self.line("    }", None);
        }
        if let Some(address) = address {
            self.line(&format!("    .port = \"{}\";", address.port()), Some(StatementPlace::of(declaration)));
            self.replaced(backend(declaration).unwrap_or_default(), address.to_string());
        }
        self.line("}", None);
    }

    fn block(&mut self, block: &Statement, field: &str) {
        self.depth += 1;
        if !field.is_empty() {
            let number = self.made.marks.len();
            let statements =
                block.inner().iter().filter(|inner| inner.block.is_none()).map(StatementPlace::of).collect();
            self.made.marks.push(BlockMark { place: StatementPlace::of(block), statements });
            let name = format!("{field}.http.{REACHED}");
            self.line(&format!("set {name} = {name} + \"m{number}.\";"), Some(StatementPlace::of(block)));
        }
        for statement in block.inner() {
            let place = Some(StatementPlace::of(statement));
            let words = statement.words.join(" ");
            match statement.name.as_str() {
                "if" | "elseif" => self.line(&format!("{} ({words}) {{", statement.name), place),
                "else" => self.line("else {", place),
                name => {
                    self.line(&format!("{name} {words};"), place);
                    continue;
                }
            }
            self.block(statement, field);
            self.line("}", None);
        }
        self.depth -= 1;
    }
}
