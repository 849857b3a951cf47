//! Rewrites a configuration of HAProxy for a proof: addresses, servers, networks and files, and a mark before each rule.
//!
//! A mark is a variable that is set under the condition of the rule; the log has the marks of a request.

use adapt::statements::Statement;

use crate::old::{OldConfiguration, OldFileKind, StatementPlace};
use crate::request::MARK;
use crate::stand_in::{self, BlockMark, Original, Replaced, StandIns};

/// Lines of `global` that stay.
const OF_GLOBAL: [&str; 4] = ["setenv", "presetenv", "ssl-default-bind-options", "ssl-default-bind-ciphers"];
/// Lines that are left out elsewhere: logs, and what belongs to the process.
const LEFT_OUT: [&str; 8] = [
    "log",
    "log-format",
    "log-tag",
    "error-log-format",
    "log-format-sd",
    "email-alert",
    "unique-id-format-",
    "filter",
];
/// Options about logs.
const LOG_OPTIONS: [&str; 8] = [
    "httplog",
    "tcplog",
    "dontlognull",
    "dontlog-normal",
    "log-separate-errors",
    "logasap",
    "log-health-checks",
    "httpslog",
];
/// Words of `server` that stay, with the number of words behind them.
const OF_SERVER: [(&str, usize); 13] = [
    ("cookie", 1),
    ("weight", 1),
    ("backup", 0),
    ("check", 0),
    ("inter", 1),
    ("fall", 1),
    ("rise", 1),
    ("maxconn", 1),
    ("disabled", 0),
    ("redir", 1),
    ("track", 1),
    ("id", 1),
    ("observe", 1),
];

pub(crate) fn original(old: &OldConfiguration, stand_ins: &StandIns) -> Original {
    let made = Original { text: String::new(), lines: Vec::new(), marks: Vec::new(), replaced: Vec::new() };
    let mut writer = HaproxyWriter { old, stand_ins, made };
    writer.line("global", None);
    writer.line("    nbthread 1", None);
    writer.line("    log stdout len 65000 format raw local0", None);
    for section in old.statements.iter().filter(|section| section.name == "global") {
        for line in section.inner().iter().filter(|line| OF_GLOBAL.contains(&line.name.as_str())) {
            writer.plain(line);
        }
    }
    // All marks are known when the formats of logs are written.
    let mut formats = Vec::new();
    for section in old.statements.iter().filter(|section| is_written(section)) {
        writer.section(section);
        if matches!(section.name.as_str(), "frontend" | "listen") && !is_left_out(old, section) {
            formats.push(writer.made.text.len());
        }
    }
    let marks: String =
        (0..writer.made.marks.len()).map(|number| format!("%[var(txn.proof_{number})]")).collect();
    let line = format!(
        "    log global\n    log-format \"proof %[var(txn.proof)]|{marks}|%[var(txn.proof_level)]\"\n"
    );
    let mut made = writer.made;
    for place in formats.into_iter().rev() {
        let before = made.text[..place].matches('\n').count();
        made.text.insert_str(place, &line);
        drop(made.lines.splice(before..before, [None, None]));
    }
    made
}

fn is_written(section: &Statement) -> bool {
    matches!(
        section.name.as_str(),
        "defaults" | "frontend" | "backend" | "listen" | "userlist" | "cache" | "http-errors"
    )
}

/// Whether a section is not HTTP, so that it is left out.
fn is_left_out(old: &OldConfiguration, section: &Statement) -> bool {
    let place = StatementPlace::of(section);
    old.untested.iter().any(|(known, _)| *known == place)
}

struct HaproxyWriter<'w> {
    old: &'w OldConfiguration,
    stand_ins: &'w StandIns,
    made: Original,
}

impl HaproxyWriter<'_> {
    fn line(&mut self, text: &str, place: Option<StatementPlace>) {
        self.made.line("", text, place);
    }

    fn plain(&mut self, line: &Statement) {
        let text =
            line.words.iter().fold(format!("    {}", line.name), |text, word| text + " " + &quoted(word));
        self.line(&text, Some(StatementPlace::of(line)));
    }

    fn replaced(&mut self, old: impl Into<String>, new: impl Into<String>) {
        self.made.replace(Replaced::new(old, new));
    }

    fn section(&mut self, section: &Statement) {
        if is_left_out(self.old, section) {
            return;
        }
        let head = section.words.iter().fold(section.name.clone(), |text, word| text + " " + &quoted(word));
        self.line(&head, Some(StatementPlace::of(section)));
        if matches!(section.name.as_str(), "frontend" | "listen") {
            self.line(&format!("    http-request set-var(txn.proof) req.hdr({MARK})"), None);
        }
        if matches!(section.name.as_str(), "backend" | "listen") && is_used(self.old, section) {
            self.mark(section, section.inner().to_vec(), "http-request", "");
        }
        for line in section.inner() {
            self.rule(line);
        }
    }

    /// Sets a mark under a condition.
    fn mark(&mut self, at: &Statement, statements: Vec<Statement>, kind: &str, condition: &str) {
        let number = self.made.marks.len();
        let is_decisive = |line: &&Statement| !super::has_mark(line) && line.name != "acl";
        let statements = statements.iter().filter(is_decisive).map(StatementPlace::of).collect();
        self.made.marks.push(BlockMark { place: StatementPlace::of(at), statements });
        self.line(
            &format!("    {kind} set-var(txn.proof_{number}) str({number}.){condition}"),
            Some(StatementPlace::of(at)),
        );
    }

    fn rule(&mut self, line: &Statement) {
        let name = line.name.as_str();
        if self.stand_ins.is_rejected(line) {
            let place = StatementPlace::of(line).to_string();
            return self.replaced(place, "left out: the installed haproxy does not accept it");
        }
        let is_log =
            name == "option" && LOG_OPTIONS.contains(&line.word(0)) || name == "no" && line.word(0) == "log";
        if LEFT_OUT.contains(&name) || is_log {
            return;
        }
        let written = line;
        let mut line = self.with_stand_ins(written);
        match name {
            "bind" => return self.bind(written),
            "server" => self.server(&mut line),
            "errorfile" if !self.stand_ins.existing.contains(line.word(1)) => return,
            _ => {}
        }
        if super::has_mark(&line) {
            let start = line.words.iter().rposition(|word| word == "if" || word == "unless");
            let words = start.map(|start| &line.words[start..]).unwrap_or_default();
            let condition = words.iter().fold(String::new(), |text, word| text + " " + &quoted(word));
            let kind = if name == "http-response" { "http-response" } else { "http-request" };
            self.mark(written, Vec::new(), kind, &condition);
            if line.word(0) == "set-log-level" {
                // A silent request would hide its marks, so the log gets the level.
                let level = line.word(1);
                let text = format!("    {kind} set-var(txn.proof_level) str({level}){condition}");
                return self.line(&text, Some(StatementPlace::of(written)));
            }
        }
        self.plain(&line);
    }

    /// Replaces networks and files in a line.
    fn with_stand_ins(&mut self, line: &Statement) -> Statement {
        let mut made = line.clone();
        let files: Vec<_> = self.old.files.iter().filter(|file| file.kind == OldFileKind::Patterns).collect();
        let is_network = matches!(
            line.name.as_str(),
            "acl" | "http-request" | "http-response" | "use_backend" | "redirect" | "tcp-request"
        );
        for word in &mut made.words {
            for file in &files {
                let stand_in = self.stand_ins.file(&file.path);
                if *word == file.path {
                    word.clone_from(&stand_in);
                } else if word.contains("map") && word.contains(file.path.as_str()) {
                    *word = word.replace(&file.path, &stand_in);
                }
            }
            if is_network && let Some(network) = stand_in::network(self.old, word) {
                *word = network;
            }
        }
        for (old, new) in line.words.iter().zip(&made.words) {
            self.replaced(old.clone(), new.clone());
        }
        if is_network {
            self.with_ports(&mut made.words);
        }
        made
    }

    /// Replaces ports behind `dst_port` by those of their stand-ins.
    fn with_ports(&mut self, words: &mut Vec<String>) {
        let mut is_port = false;
        for word in std::mem::take(words) {
            let doors = self.old.doors.iter().zip(&self.stand_ins.doors);
            let of_it = doors.filter(|(door, _)| is_port && door.port.to_string() == word);
            let ports: Vec<String> = of_it.map(|(_, address)| address.port().to_string()).collect();
            is_port = word == "dst_port"
                || is_port && !matches!(word.as_str(), "}" | "{" | "or" | "||" | "if" | "unless");
            if ports.is_empty() {
                words.push(word);
            } else {
                self.replaced(format!("dst_port {word}"), format!("dst_port {}", ports.join(" ")));
                words.extend(ports);
            }
        }
    }

    fn bind(&mut self, bind: &Statement) {
        for door in super::doors(bind).into_iter().flatten() {
            let index =
                self.old.doors.iter().position(|known| known.host == door.host && known.port == door.port);
            let Some(address) = index.and_then(|index| self.stand_ins.doors.get(index)).copied() else {
                continue;
            };
            let mut line = format!("    bind {address}");
            if door.is_tls {
                line += &format!(" ssl crt {}/pair.pem", self.stand_ins.folder);
            }
            if door.has_http2 {
                line += " alpn h2,http/1.1";
            }
            if door.has_proxy_header {
                line += " accept-proxy";
            }
            self.replaced(bind.text(), line.trim().to_owned());
            self.line(&line, Some(StatementPlace::of(bind)));
        }
    }

    fn server(&mut self, server: &mut Statement) {
        let Some(address) = self.stand_ins.server(self.old, server.word(1)) else { return };
        self.replaced(server.word(1), address.to_string());
        let mut words = vec![server.word(0).to_owned(), address.to_string()];
        let mut rest = server.words.iter().skip(2);
        while let Some(word) = rest.next() {
            if let Some((_, count)) = OF_SERVER.iter().find(|(known, _)| known == word) {
                words.push(word.clone());
                words.extend(rest.by_ref().take(*count).cloned());
            }
        }
        server.words = words;
    }
}

/// Whether some frontend uses a backend.
fn is_used(old: &OldConfiguration, section: &Statement) -> bool {
    section.name == "listen"
        || old.statements.iter().flat_map(Statement::inner).any(|line| {
            matches!(line.name.as_str(), "use_backend" | "default_backend")
                && (line.word(0) == section.word(0) || line.word(0).contains('%'))
        })
}

/// Quotes a word, if it has letters with a meaning.
fn quoted(word: &str) -> String {
    let is_plain =
        |letter: char| letter.is_ascii_alphanumeric() || "/:.-_$=~^@*%+?&,!<>|[](){};".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) && !word.contains("${") {
        return word.to_owned();
    }
    if word.contains("${") {
        return format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""));
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
