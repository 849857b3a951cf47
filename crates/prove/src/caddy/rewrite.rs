//! Rewrites a Caddyfile for a proof: addresses, servers, networks and files, and a mark at each matcher and place.
//!
//! A mark is a variable; a field of the response has the marks of its request.

use adapt::statements::Statement;

use super::{PLACES, Ports, addresses, is_definition, is_site, parts, upstream};
use crate::old::{OldConfiguration, StatementPlace, split_port};
use crate::stand_in::{self, BlockMark, Original, Replaced, StandIns, THEIR_LOG};

/// The field of the response with the marks.
const REACHED: &str = "X-Vanward-Reached";
/// Global options about the process, its addresses and its certificates.
const OF_THE_PROCESS: [&str; 22] = [
    "admin",
    "http_port",
    "https_port",
    "default_bind",
    "local_certs",
    "skip_install_trust",
    "storage",
    "log",
    "email",
    "acme_ca",
    "acme_ca_root",
    "acme_eab",
    "acme_dns",
    "cert_issuer",
    "on_demand_tls",
    "debug",
    "grace_period",
    "ocsp_stapling",
    "renew_interval",
    "storage_clean_interval",
    "key_type",
    "persist_config",
];
/// Directives that are left out.
const LEFT_OUT: [&str; 4] = ["bind", "tls", "import", "log_append"];

pub(crate) fn original(old: &OldConfiguration, stand_ins: &StandIns) -> Original {
    let made = Original { text: String::new(), lines: Vec::new(), marks: Vec::new(), replaced: Vec::new() };
    let mut writer = CaddyWriter { old, stand_ins, made, depth: 0 };
    writer.globals();
    for site in old.statements.iter().filter(|statement| is_site(statement)) {
        writer.site(site);
    }
    // All marks are known when the fields are written.
    let marks: String = (0..writer.made.marks.len()).map(|number| format!("{{vars.m{number}}}")).collect();
    let mut made = writer.made;
    made.text = made.text.replace("@MARKS@", &marks);
    made
}

struct CaddyWriter<'w> {
    old: &'w OldConfiguration,
    stand_ins: &'w StandIns,
    made: Original,
    depth: usize,
}

impl CaddyWriter<'_> {
    fn line(&mut self, text: &str, place: Option<StatementPlace>) {
        self.made.line(&"\t".repeat(self.depth), text, place);
    }

    fn replaced(&mut self, old: impl Into<String>, new: impl Into<String>) {
        self.made.replace(Replaced::new(old, new));
    }

    fn globals(&mut self) {
        let (folder, ports) = (&self.stand_ins.folder, Ports::read(&self.old.statements));
        let mut lines = vec!["admin off".to_owned(), format!("storage file_system {folder}/caddy")];
        lines.extend(["local_certs", "skip_install_trust", "grace_period 1s"].map(str::to_owned));
        if let Some(address) = self.stand_ins.doors.first() {
            lines.push(format!("default_bind {}", address.ip()));
        }
        // Redirects name any other port of HTTPS.
        for (name, port) in [("http_port", ports.http), ("https_port", ports.https)] {
            let of_port =
                self.old.doors.iter().zip(&self.stand_ins.doors).find(|(door, _)| door.port == port);
            if let Some((_, address)) = of_port {
                lines.push(format!("{name} {}", address.port()));
            }
        }
        self.line("{", None);
        self.depth += 1;
        for line in lines {
            self.line(&line, None);
        }
        let globals: Vec<&Statement> =
            self.old.statements.iter().filter(|statement| statement.name == "{").collect();
        for option in globals.into_iter().flat_map(Statement::inner) {
            if !OF_THE_PROCESS.contains(&option.name.as_str()) {
                self.whole(option);
            }
        }
        self.depth -= 1;
        self.line("}", None);
    }

    fn site(&mut self, site: &Statement) {
        let mut all = Vec::new();
        for address in addresses(site) {
            let port = parts(&address).port;
            let door =
                self.old.doors.iter().zip(&self.stand_ins.doors).find(|(door, _)| Some(door.port) == port);
            let new = match (port, door) {
                (Some(port), Some((_, stand_in))) => {
                    address.replace(&format!(":{port}"), &format!(":{}", stand_in.port()))
                }
                _ => address.clone(),
            };
            self.replaced(format!("site {address}"), new.clone());
            all.push(new);
        }
        let place = StatementPlace::of(site);
        self.line(&format!("{} {{", all.join(", ")), Some(place.clone()));
        self.depth += 1;
        self.mark(site, "");
        self.field();
        self.block(site);
        if site.inner().iter().all(|inner| inner.name != "handle_errors") {
            // Errors leave the fields of the response out. Without another handler, the status stays as it is.
            self.line("handle_errors {", None);
            self.depth += 1;
            self.field();
            self.depth -= 1;
            self.line("}", None);
        }
        self.depth -= 1;
        self.line("}", Some(place));
    }

    /// Sends the marks to the client.
    fn field(&mut self) {
        self.line("header {", None);
        self.line(&format!("\t{REACHED} \"@MARKS@\""), None);
        self.line("\tdefer", None);
        self.line("}", None);
    }

    /// Sets a mark for requests of a matcher.
    fn mark(&mut self, at: &Statement, matcher: &str) {
        let number = self.made.marks.len();
        let statements =
            at.inner().iter().filter(|inner| !inner.name.starts_with('@')).map(StatementPlace::of).collect();
        self.made.marks.push(BlockMark { place: StatementPlace::of(at), statements });
        self.line(
            &format!("vars {matcher} m{number} m{number}.").replace("  ", " "),
            Some(StatementPlace::of(at)),
        );
    }

    fn block(&mut self, block: &Statement) {
        for inner in block.inner() {
            self.directive(inner);
        }
    }

    fn directive(&mut self, directive: &Statement) {
        let name = directive.name.as_str();
        if LEFT_OUT.contains(&name) || is_definition(directive) {
            return;
        }
        if name == "log" {
            return self.access_log(directive);
        }
        if self.stand_ins.is_rejected(directive) {
            let place = StatementPlace::of(directive).to_string();
            return self.replaced(place, "left out: the installed caddy does not accept it");
        }
        let first = directive.word(0);
        if PLACES.contains(&name) {
            let words = directive.words.iter().fold(name.to_owned(), |text, word| text + " " + &quoted(word));
            self.line(&format!("{words} {{"), Some(StatementPlace::of(directive)));
            self.depth += 1;
            self.mark(directive, "");
            if name == "handle_errors" {
                self.field();
            }
            self.block(directive);
            self.depth -= 1;
            return self.line("}", None);
        }
        let has_matcher = first.starts_with('@') || first.starts_with('/') && name != "root";
        if has_matcher && !name.starts_with('@') {
            self.mark(directive, first);
        }
        self.whole(directive);
    }

    /// Writes the access log of a site to a file. It has the numbers of requests, among their fields.
    fn access_log(&mut self, log: &Statement) {
        let place = StatementPlace::of(log);
        self.line("log {", Some(place.clone()));
        self.depth += 1;
        for inner in
            log.inner().iter().filter(|inner| inner.name == "hostnames" || inner.name == "no_hostname")
        {
            self.whole(inner);
        }
        let file = format!("{}/{THEIR_LOG}", self.stand_ins.folder);
        self.replaced("`log`", file.clone());
        for line in [&format!("output file {file} {{"), "\troll_disabled", "}", "format json"] {
            self.line(line, Some(place.clone()));
        }
        self.depth -= 1;
        self.line("}", Some(place));
    }

    /// Writes a statement with its block, and with stand-ins.
    fn whole(&mut self, statement: &Statement) {
        let name = statement.name.as_str();
        if name == "transport" && statement.inner().iter().any(|inner| inner.name.starts_with("tls")) {
            return self.replaced(statement.text(), "left out: stand-ins of servers have no TLS");
        }
        let is_expression =
            name == "expression" || statement.word(0) == "expression" && name.starts_with('@');
        if is_expression {
            let (before, words) = if name == "expression" {
                ("expression".to_owned(), statement.words.as_slice())
            } else {
                (format!("{name} expression"), statement.words.get(1..).unwrap_or_default())
            };
            return self
                .line(&format!("{before} `{}`", words.join(" ")), Some(StatementPlace::of(statement)));
        }
        let words: Vec<String> = statement.words.iter().map(|word| self.word(statement, word)).collect();
        let line = words.iter().fold(quoted(name), |text, word| text + " " + &quoted(word));
        match &statement.block {
            None => self.line(&line, Some(StatementPlace::of(statement))),
            Some(block) => {
                self.line(&format!("{line} {{"), Some(StatementPlace::of(statement)));
                self.depth += 1;
                block.iter().for_each(|inner| self.whole(inner));
                self.depth -= 1;
                self.line("}", None);
            }
        }
    }

    fn word(&mut self, statement: &Statement, word: &str) -> String {
        let new = match statement.name.as_str() {
            "reverse_proxy" | "forward_auth" | "php_fastcgi" | "to" => upstream(word)
                .and_then(|(_, address)| self.stand_ins.server(self.old, address))
                .map(|address| address.to_string()),
            "root" if word != "*" && !word.starts_with('@') => Some(self.stand_ins.file(word)),
            _ => stand_in::network(self.old, word).or_else(|| {
                // A value of `map`.
                let known = split_port(word).1.and_then(|_| self.stand_ins.server(self.old, word));
                known.map(|address| address.to_string())
            }),
        };
        let Some(new) = new else { return word.to_owned() };
        self.replaced(word, new.clone());
        new
    }
}

/// Quotes a word, if it has letters with a meaning. Environment variables are written as Caddy has them.
fn quoted(word: &str) -> String {
    let word = word.replace("${env:", "{$").replace("${", "{$").replace(":-", ":");
    let is_plain = |letter: char| !letter.is_whitespace() && !matches!(letter, '"' | '`' | '#');
    if !word.is_empty() && word != "{" && word != "}" && word.chars().all(is_plain) {
        return word;
    }
    format!("\"{}\"", word.replace('"', "\\\""))
}
