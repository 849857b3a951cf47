//! Rewrites a configuration of nginx for a proof: addresses, servers, networks and files, and a mark in each block.
//!
//! A mark is a variable that the block sets; the log has the marks that a request has met.

use adapt::statements::Statement;

use crate::old::{OldConfiguration, StatementPlace, split_port};
use crate::request::MARK;
use crate::stand_in::{self, BlockMark, NOWHERE, Original, Replaced, StandIns, THEIR_LOG};

/// Statements about the process, its logs and its sockets.
const OF_THE_PROCESS: [&str; 26] = [
    "user",
    "pid",
    "daemon",
    "master_process",
    "worker_processes",
    "worker_cpu_affinity",
    "worker_priority",
    "worker_rlimit_nofile",
    "error_log",
    "log_format",
    "open_log_file_cache",
    "lock_file",
    "events",
    "resolver",
    "client_body_temp_path",
    "proxy_temp_path",
    "fastcgi_temp_path",
    "uwsgi_temp_path",
    "scgi_temp_path",
    "ssl_dhparam",
    "ssl_stapling",
    "ssl_stapling_verify",
    "ssl_trusted_certificate",
    "ssl_client_certificate",
    "ssl_verify_client",
    "proxy_bind",
];
/// Stands for the marks in the format of a log until all are known.
const MARKS: &str = "@marks@";
/// The table of media types that distributions include around the files of sites.
const MEDIA_TYPES: &str = "/etc/nginx/mime.types";
/// Words of `listen` that stay.
const OF_LISTEN: [&str; 5] = ["default_server", "default", "ssl", "http2", "proxy_protocol"];

pub(crate) fn original(old: &OldConfiguration, stand_ins: &StandIns) -> Original {
    let made = Original { text: String::new(), lines: Vec::new(), marks: Vec::new(), replaced: Vec::new() };
    let mut writer = NginxWriter { old, stand_ins, made, depth: 0, defaults: Vec::new() };
    let folder = &stand_ins.folder;
    for line in ["daemon off;", "master_process off;", "error_log stderr crit;"] {
        writer.line(line, None);
    }
    writer.line(&format!("pid {folder}/nginx.pid;"), None);
    writer.line("events { worker_connections 512; }", None);
    let is_whole = old.statements.iter().any(|statement| statement.name == "http");
    let (outside, inside): (Vec<&Statement>, Vec<&Statement>) = if is_whole {
        old.statements.iter().partition(|statement| statement.name != "http")
    } else {
        (Vec::new(), old.statements.iter().collect())
    };
    for statement in outside.iter().filter(|statement| !matches!(statement.name.as_str(), "stream" | "mail"))
    {
        writer.statement(statement);
    }
    writer.line("http {", None);
    writer.depth += 1;
    let field = MARK.to_ascii_lowercase().replace('-', "_");
    writer.line(&format!("log_format vanward_proof escape=none '$http_{field}|{MARKS}';"), None);
    writer.line(&format!("log_format vanward_logged escape=none '$http_{field}';"), None);
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        writer.line(&format!("{kind}_temp_path {folder}/{kind};"), None);
    }
    if !is_whole && stand_ins.existing.contains(MEDIA_TYPES) {
        writer.line(&format!("include {MEDIA_TYPES};"), None);
    }
    for statement in &inside {
        match (&statement.block, is_whole) {
            (Some(block), true) => block.iter().for_each(|inner| writer.statement(inner)),
            _ => writer.statement(statement),
        }
    }
    let marks: String =
        (0..writer.made.marks.len()).map(|number| format!("$vanward_mark_{number}")).collect();
    writer.made.text = writer.made.text.replacen(MARKS, &marks, 1);
    writer.log_of_reached();
    writer.depth -= 1;
    writer.line("}", None);
    writer.made
}

struct NginxWriter<'w> {
    old: &'w OldConfiguration,
    stand_ins: &'w StandIns,
    made: Original,
    depth: usize,
    /// Doors that have a default server.
    defaults: Vec<usize>,
}

impl NginxWriter<'_> {
    fn line(&mut self, text: &str, place: Option<StatementPlace>) {
        self.made.line(&"    ".repeat(self.depth), text, place);
    }

    fn replaced(&mut self, old: impl Into<String>, new: impl Into<String>) {
        self.made.replace(Replaced::new(old, new));
    }

    fn statement(&mut self, statement: &Statement) {
        let name = statement.name.as_str();
        let is_rejected = self.stand_ins.is_rejected(statement);
        // `listen` has it, which older versions know as well.
        let is_http2 = name == "http2" && statement.words.len() == 1;
        if is_http2 || OF_THE_PROCESS.contains(&name) || name == "include" && statement.words.len() == 1 {
            return;
        }
        if is_rejected || name.ends_with("_by_lua_block") {
            let place = StatementPlace::of(statement).to_string();
            return self.replaced(place, "left out: the installed nginx does not accept it");
        }
        if name == "access_log" {
            return self.access_log(statement);
        }
        match &statement.block {
            Some(block) if matches!(name, "types" | "map" | "geo" | "split_clients" | "match") => {
                self.block(statement, block, NginxWriter::row);
            }
            Some(block) => self.block(statement, block, Self::statement),
            None => {
                let Some(words) = self.words(statement) else { return };
                self.line(&format!("{};", joined(name, &words)), Some(StatementPlace::of(statement)));
            }
        }
    }

    /// Writes the log of what was reached, which each block with another log needs as well.
    fn log_of_reached(&mut self) {
        let folder = &self.stand_ins.folder;
        self.line(&format!("access_log {folder}/reached.log vanward_proof;"), None);
    }

    /// Writes `access_log` with the numbers of requests.
    fn access_log(&mut self, statement: &Statement) {
        if statement.word(0) != "off" {
            let condition = statement.words.iter().find(|word| word.starts_with("if="));
            let condition = condition.map(|condition| format!(" {}", quoted(condition))).unwrap_or_default();
            let line = format!("access_log {}/{THEIR_LOG} vanward_logged{condition};", self.stand_ins.folder);
            self.line(&line, Some(StatementPlace::of(statement)));
        }
        self.log_of_reached();
    }

    fn block(&mut self, statement: &Statement, block: &[Statement], inner: impl Fn(&mut Self, &Statement)) {
        let place = StatementPlace::of(statement);
        self.line(&format!("{} {{", joined(&statement.name, &statement.words)), Some(place.clone()));
        self.depth += 1;
        if matches!(statement.name.as_str(), "server" | "location" | "if")
            && self.depth > 1
            && !is_of_upstream(statement)
        {
            let number = self.made.marks.len();
            let statements =
                block.iter().filter(|inner| inner.block.is_none()).map(StatementPlace::of).collect();
            self.made.marks.push(BlockMark { place: place.clone(), statements });
            self.line(&format!("set $vanward_mark_{number} {number},;"), Some(place));
        }
        if statement.name == "server" && !block.iter().any(|inner| inner.name == "listen") {
            self.listen(None, &[]);
        }
        let mut seen = Vec::new();
        for inside in block {
            if inside.name == "listen" {
                self.listen(Some(inside), &seen);
                seen.push(inside);
            } else {
                inner(self, inside);
            }
        }
        self.depth -= 1;
        self.line("}", None);
    }

    /// Writes `listen` with its stand-in, once for each door of a server.
    fn listen(&mut self, listen: Option<&Statement>, before: &[&Statement]) {
        let Some(listen) = listen else {
            let usual = self.old.doors.iter().position(|door| door.host == "*" && door.port == 80);
            if let Some(address) = usual.and_then(|index| self.stand_ins.doors.get(index)) {
                self.line(&format!("listen {address};"), None);
            }
            return;
        };
        let index = |listen: &Statement| {
            let door = super::door(listen, false)?;
            self.old.doors.iter().position(|known| known.host == door.host && known.port == door.port)
        };
        let Some(door) = index(listen) else { return };
        if before.iter().any(|other| index(other) == Some(door)) {
            return;
        }
        let Some(address) = self.stand_ins.doors.get(door) else { return };
        let mut line = format!("listen {address}");
        for word in listen.words.iter().skip(1).filter(|word| OF_LISTEN.contains(&word.as_str())) {
            if word.starts_with("default") {
                if self.defaults.contains(&door) {
                    continue;
                }
                self.defaults.push(door);
            }
            line += &format!(" {word}");
        }
        if self.old.doors[door].has_http2 && !listen.words.iter().any(|word| word == "http2") {
            line += " http2";
        }
        let address = address.to_string();
        self.replaced(listen.text(), format!("listen {address}"));
        self.line(&format!("{line};"), Some(StatementPlace::of(listen)));
    }

    /// A row of a map.
    fn row(&mut self, row: &Statement) {
        if row.name == "include" && row.words.len() == 1 {
            return;
        }
        let words: Vec<String> = row.words.iter().map(|word| self.value(word)).collect();
        let name = stand_in::network(self.old, &row.name).unwrap_or_else(|| row.name.clone());
        self.replaced(row.name.clone(), name.clone());
        let line = joined("", std::iter::once(&name).chain(&words));
        self.line(&format!("{};", line.trim_start()), Some(StatementPlace::of(row)));
    }

    /// The words of a statement with their stand-ins. None if the statement is left out.
    fn words(&mut self, statement: &Statement) -> Option<Vec<String>> {
        let mut words = statement.words.clone();
        let Some(first) = words.first_mut() else { return Some(words) };
        match statement.name.as_str() {
            "server" => {
                let known = self.stand_ins.server(self.old, first);
                *first = known.map_or_else(|| NOWHERE.to_owned(), |_| self.server(first));
                // One failure would mark a server as failed for some seconds.
                words.retain(|word| !word.starts_with("max_fails="));
                words.insert(1, "max_fails=0".to_owned());
            }
            "proxy_pass" | "fastcgi_pass" => *first = self.server(first),
            _ if super::is_foreign(statement) => {
                let (scheme, authority) = first.split_once("://").unwrap_or(("", first.as_str()));
                if split_port(authority).1.is_some() {
                    let scheme = if scheme.is_empty() { "" } else { "grpc://" };
                    *first = format!("{scheme}{NOWHERE}");
                }
            }
            "set" => {
                if let Some(value) = words.get_mut(1) {
                    *value = self.value(value);
                }
            }
            "allow" | "deny" | "set_real_ip_from" => *first = self.network(first),
            "root" | "alias" | "auth_basic_user_file" | "proxy_store" => *first = self.file(first),
            "proxy_cache_path" | "fastcgi_cache_path" => {
                *first = format!("{}/cache{}", self.stand_ins.folder, first.replace('/', "-"));
            }
            "ssl_certificate" => *first = self.given(statement, self.stand_ins.certificate.clone()),
            "ssl_certificate_key" => *first = self.given(statement, self.stand_ins.key.clone()),
            "load_module" => *first = self.module(statement)?,
            name if name.starts_with("proxy_ssl_") => return None,
            _ => {}
        }
        Some(words)
    }

    fn given(&mut self, statement: &Statement, stand_in: String) -> String {
        self.replaced(statement.text(), stand_in.clone());
        stand_in
    }

    /// A module, if it is in the usual folder.
    fn module(&mut self, statement: &Statement) -> Option<String> {
        let file = statement.word(0).rsplit('/').next()?;
        let path = format!("/usr/lib/nginx/modules/{file}");
        if self.stand_ins.existing.contains(&path) {
            return Some(path);
        }
        self.replaced(statement.text(), "left out: there is no such module");
        None
    }

    fn network(&mut self, written: &str) -> String {
        let Some(stand_in) = stand_in::network(self.old, written) else { return written.to_owned() };
        self.replaced(written, stand_in.clone());
        stand_in
    }

    fn file(&mut self, path: &str) -> String {
        let stand_in = self.stand_ins.file(path);
        self.replaced(path, stand_in.clone());
        stand_in
    }

    /// Replaces a server in `server` and `proxy_pass`.
    fn server(&mut self, written: &str) -> String {
        let authority = super::authority(written).unwrap_or(written);
        let Some(address) = self.stand_ins.server(self.old, authority) else { return plain_scheme(written) };
        let stand_in = address.to_string();
        self.replaced(authority, stand_in.clone());
        // A colon ends the path of a socket.
        let whole = format!("{authority}:");
        let is_socket = authority.starts_with("unix:") && written.contains(&whole);
        plain_scheme(&written.replacen(if is_socket { &whole } else { authority }, &stand_in, 1))
    }

    /// Replaces a server in a value of a variable.
    fn value(&mut self, written: &str) -> String {
        let authority = super::authority(written).unwrap_or(written);
        if split_port(authority).1.is_some() { self.server(written) } else { written.to_owned() }
    }
}

/// Stand-ins of servers have no TLS.
fn plain_scheme(url: &str) -> String {
    url.strip_prefix("https://").map_or_else(|| url.to_owned(), |rest| format!("http://{rest}"))
}

/// Whether the block is a `server` within `upstream`, which has no block.
fn is_of_upstream(statement: &Statement) -> bool {
    statement.name == "server" && !statement.words.is_empty()
}

fn joined<'w>(name: &str, words: impl IntoIterator<Item = &'w String>) -> String {
    let mut line = name.to_owned();
    for word in words {
        line.push(' ');
        line += &quoted(word);
    }
    line
}

/// Quotes a word, if it has letters with a meaning.
fn quoted(word: &str) -> String {
    let is_plain =
        |letter: char| letter.is_ascii_alphanumeric() || "/:.-_$=~^@*%+?&,!<>|[]()".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}
