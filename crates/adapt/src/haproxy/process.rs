//! Process-wide settings: `global`, client timeouts, the log.

use super::syntax::{HaproxyLine, HaproxySection};
use super::{HaproxyAdapter, values};
use crate::draft::{DraftValue, StatementOrigin};

pub(super) const DAY: u64 = 86_400_000;

impl<'s> HaproxyAdapter<'s> {
    pub(super) fn global(&mut self) {
        for section in self.sections.iter().filter(|section| section.kind() == "global") {
            for line in &section.lines {
                self.global_line(line);
            }
        }
    }

    fn global_line(&mut self, line: &'s HaproxyLine) {
        let from = vec![StatementOrigin::Directive(line.number)];
        match line.word(0) {
            "nbthread" => match line.word(1).parse::<u64>() {
                Ok(count @ 1..=1024) => self.sheet.top.set("workers", count, from),
                _ => self.sheet.needless(line.number, "one worker for each core is the default"),
            },
            "maxconn" => match line.word(1).parse::<u64>() {
                Ok(count @ 1..=10_000_000) => self.sheet.once("[limits]", "connections", count, line.number),
                _ => self.unread(line),
            },
            "hard-stop-after" => match values::time(line.word(1), DAY) {
                Some(time) => self.sheet.once("[timeouts]", "drain", time, line.number),
                None => self.unread(line),
            },
            "stats" if line.word(1) == "socket" && line.word(2).starts_with('/') => {
                if self.sheet.top.get("admin").is_none() {
                    self.sheet.top.set("admin", line.word(2), from);
                }
                let why = "`vanward status`, `drain`, `weigh` and others talk to it, not socat";
                self.sheet.differs(line.number, why, "use another path if HAProxy still runs");
            }
            "log" => self.log(line),
            _ => {}
        }
    }

    /// Translates timeouts that Vanward has only once.
    pub(super) fn timeouts(&mut self, place: usize) {
        let names = [
            ("http-request", &["client_header"][..]),
            ("http-keep-alive", &["keep_alive"]),
            ("client", &["client_body", "client_write"]),
        ];
        for (name, keys) in names {
            let Some(line) = self.one(place, &["timeout", name]) else { continue };
            match values::time(line.word(2), DAY) {
                Some(time) => {
                    for key in keys {
                        self.sheet.once("[timeouts]", key, time.as_str(), line.number);
                    }
                }
                None => self.unread(line),
            }
        }
        // Timeouts of a backend are in its routes.
        for (name, keys, most) in [
            ("server", &["upstream_first_byte", "upstream_body"][..], DAY),
            ("tunnel", &["tunnel_idle"], 365 * DAY),
        ] {
            let Some(line) = self.one(place, &["timeout", name]).filter(|line| self.is_default(line)) else {
                continue;
            };
            match values::time(line.word(2), most) {
                Some(time) => {
                    for key in keys {
                        self.sheet.once("[timeouts]", key, time.as_str(), line.number);
                    }
                }
                None => self.unread(line),
            }
        }
        if let Some(most) = self.one(place, &["maxconn"]) {
            match most.word(1).parse::<u64>() {
                Ok(count @ 1..=10_000_000) => {
                    self.sheet.once("[limits]", "connections", count, most.number);
                    let why = "connections are counted for all listeners together";
                    self.sheet.differs(most.number, why, "");
                }
                _ => self.unread(most),
            }
        }
        for log in self.all(place, "log") {
            self.log(log);
        }
    }

    fn log(&mut self, line: &'s HaproxyLine) {
        let target = line.word(1);
        if target == "global" {
            return self.sheet.needless(line.number, "[log] applies to all routes");
        }
        let facility = line
            .words
            .iter()
            .skip(2)
            .find(|word| word.starts_with("local") || *word == "daemon" || *word == "user");
        if matches!(target, "stdout" | "stderr") || target.starts_with("fd@") {
            self.sheet.once("[log]", "target", "stdout", line.number);
        } else if target == "/dev/log" {
            self.sheet.once("[log]", "target", "syslog", line.number);
            if let Some(facility) = facility {
                let table = DraftValue::Table(vec![("facility".to_owned(), facility.as_str().into())]);
                let log = self.sheet.table("[log]");
                if log.get("syslog").is_none() {
                    log.set("syslog", table, vec![StatementOrigin::Directive(line.number)]);
                }
            }
        } else {
            let instead = "`target` of [log] names receivers: docs/logging.md";
            return self.sheet.refuse(line.number, "this target is written in another way", instead);
        }
        let why = "the log has a line for each request, in the extended Combined Log Format";
        self.sheet.differs(line.number, why, "`format` of [log] takes other forms: docs/logging.md");
    }

    pub(super) fn unread(&mut self, line: &HaproxyLine) {
        let instead = "HAProxy refuses it as well, or it is newer than this";
        self.sheet.refuse(line.number, "its value is not understood", instead);
    }

    /// Resolves certificate files relative to the base folder in `global`.
    pub(super) fn based(&self, keyword: &str, file: &str) -> (String, Option<usize>) {
        let mut globals = self.sections.iter().filter(|section: &&HaproxySection| section.kind() == "global");
        let base = globals.find_map(|section| section.lines.iter().find(|line| line.word(0) == keyword));
        match base.filter(|_| !file.starts_with('/')) {
            Some(base) => (format!("{}/{file}", base.word(1).trim_end_matches('/')), Some(base.number)),
            None => (file.to_owned(), None),
        }
    }
}
