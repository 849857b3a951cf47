//! Rewrites a configuration of Apache: addresses, servers, networks and files, and a mark in each section.
//!
//! A mark is a variable of the environment, which the log has for each request.

use adapt::statements::Statement;

use super::{is_at, listened, path_of, server_of};
use crate::old::{OldConfiguration, StatementPlace};
use crate::pattern::TextPattern;
use crate::request::MARK;
use crate::stand_in::{self, BlockMark, NO_FILES, Original, Replaced, StandIns};

/// Modules of Debian's package, in their order.
const MODULES: [&str; 24] = [
    "mpm_event",
    "authz_core",
    "authz_host",
    "authz_user",
    "authn_core",
    "authn_file",
    "auth_basic",
    "access_compat",
    "alias",
    "dir",
    "env",
    "setenvif",
    "headers",
    "rewrite",
    "proxy",
    "proxy_http",
    "proxy_wstunnel",
    "slotmem_shm",
    "proxy_balancer",
    "lbmethod_byrequests",
    "lbmethod_bytraffic",
    "lbmethod_bybusyness",
    "socache_shmcb",
    "ssl",
];
/// Directives that are left out: of the service, of logs, of modules, and those whose files were read.
const LEFT_OUT: [&str; 21] = [
    "listen",
    "loadmodule",
    "serverroot",
    "pidfile",
    "user",
    "group",
    "mutex",
    "defaultruntimedir",
    "errorlog",
    "loglevel",
    "customlog",
    "logformat",
    "include",
    "includeoptional",
    "define",
    "<ifmodule>",
    "protocols",
    "sslstaplingcache",
    "sslusestapling",
    "sslcertificatekeyfile",
    "typesconfig",
];

pub(crate) fn original(old: &OldConfiguration, stand_ins: &StandIns) -> Original {
    let made = Original { text: String::new(), lines: Vec::new(), marks: Vec::new(), replaced: Vec::new() };
    let mut writer = ApacheWriter { old, stand_ins, made, depth: 0 };
    let folder = &stand_ins.folder;
    for module in MODULES {
        writer.line(&format!("LoadModule {module}_module /usr/lib/apache2/modules/mod_{module}.so"), None);
    }
    for line in [
        format!("PidFile {folder}/apache.pid"),
        format!("DefaultRuntimeDir {folder}"),
        format!("ErrorLog {folder}/error.log"),
        "ServerName localhost".to_owned(),
        // Vanward has no files of its own.
        format!("DocumentRoot {}", stand_ins.file(NO_FILES)),
    ] {
        writer.line(&line, None);
    }
    for address in &stand_ins.doors {
        writer.line(&format!("Listen {address}"), None);
    }
    writer.block(&old.statements);
    let marks: String = (0..writer.made.marks.len()).map(|number| format!("%{{proof_{number}}}e.")).collect();
    writer.line(&format!("LogFormat \"%{{{MARK}}}i|{marks}\" proof"), None);
    writer.line(&format!("CustomLog {folder}/reached.log proof"), None);
    writer.made
}

struct ApacheWriter<'w> {
    old: &'w OldConfiguration,
    stand_ins: &'w StandIns,
    made: Original,
    depth: usize,
}

impl ApacheWriter<'_> {
    fn line(&mut self, text: &str, place: Option<StatementPlace>) {
        self.made.line(&"    ".repeat(self.depth), text, place);
    }

    fn replaced(&mut self, old: impl Into<String>, new: impl Into<String>) {
        self.made.replace(Replaced::new(old, new));
    }

    /// Sets a mark for paths that match.
    fn mark(&mut self, at: &Statement, pattern: &str) {
        let number = self.made.marks.len();
        let statements = at.inner().iter().map(StatementPlace::of).collect();
        self.made.marks.push(BlockMark { place: StatementPlace::of(at), statements });
        let line = format!("SetEnvIf Request_URI {} proof_{number}={number}", quoted(pattern));
        self.line(&line, Some(StatementPlace::of(at)));
    }

    fn block(&mut self, all: &[Statement]) {
        for statement in all {
            self.statement(statement);
        }
    }

    fn statement(&mut self, statement: &Statement) {
        let name = statement.name.as_str();
        if LEFT_OUT.contains(&name) {
            return;
        }
        if self.stand_ins.is_rejected(statement) {
            let place = StatementPlace::of(statement).to_string();
            return self.replaced(place, "left out: the installed apache does not accept it");
        }
        let place = StatementPlace::of(statement);
        if matches!(name, "proxypass" | "proxypassmatch" | "redirect" | "redirectpermanent" | "redirecttemp")
            && let Some(path) = path_of(statement)
        {
            self.mark(statement, &expression(&path));
        }
        let words: Vec<String> = match name {
            "<virtualhost>" => self.addresses(statement),
            _ => statement.words.iter().map(|word| self.word(name, word)).collect(),
        };
        let name = name.trim_matches(['<', '>']);
        let line = words.iter().fold(name.to_owned(), |line, word| line + " " + &quoted(word));
        if statement.block.is_none() {
            self.line(&line, Some(place.clone()));
            if name == "sslcertificatefile" {
                self.line(&format!("SSLCertificateKeyFile {}", self.stand_ins.key.clone()), Some(place));
            }
            return;
        }
        self.line(&format!("<{line}>"), Some(place.clone()));
        self.depth += 1;
        if matches!(name, "virtualhost" | "location" | "locationmatch") {
            self.mark(statement, "^");
        }
        self.block(statement.inner());
        self.depth -= 1;
        self.line(&format!("</{name}>"), Some(place));
    }

    /// The stand-ins of a virtual host's addresses.
    fn addresses(&mut self, host: &Statement) -> Vec<String> {
        let mut all = Vec::new();
        for (known, port) in listened(&self.old.statements) {
            let is_it = host.words.iter().any(|word| is_at(word, &known, port));
            let door = self.old.doors.iter().position(|door| door.host == known && door.port == port);
            if let Some(address) = door.filter(|_| is_it).and_then(|door| self.stand_ins.doors.get(door)) {
                all.push(address.to_string());
            }
        }
        self.replaced(host.words.join(" "), all.join(" "));
        all
    }

    fn word(&mut self, name: &str, word: &str) -> String {
        let new = match name {
            "sslcertificatefile" => Some(self.stand_ins.certificate.clone()),
            "authuserfile" => Some(self.stand_ins.file(word)),
            "require" => stand_in::network(self.old, word),
            _ => server_of(word).and_then(|(scheme, authority, _)| {
                let address = self.stand_ins.server(self.old, authority)?;
                let path = &word[scheme.len() + "://".len() + authority.len()..];
                let scheme = if scheme.to_ascii_lowercase().starts_with("ws") { "ws" } else { "http" };
                let is_server = name.starts_with("proxypass") || name == "balancermember";
                is_server.then(|| format!("{scheme}://{address}{path}"))
            }),
        };
        let Some(new) = new else { return word.to_owned() };
        self.replaced(word, new.clone());
        new
    }
}

/// The expression of paths that a directive is for. Prefixes end at slashes.
fn expression(path: &TextPattern) -> String {
    match path {
        TextPattern::Regex { pattern, .. } => pattern.clone(),
        TextPattern::Prefix(prefix) if prefix.ends_with('/') => format!("^{}", regex::escape(prefix)),
        TextPattern::Prefix(prefix) => format!("^{}(/|$)", regex::escape(prefix)),
        _ => "^".to_owned(),
    }
}

/// Quotes a word, if it has letters with a meaning.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| !letter.is_whitespace() && !matches!(letter, '"' | '\'' | '\\' | '#');
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}
