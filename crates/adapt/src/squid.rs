//! Translates Squid's configuration for a reverse proxy (accel).

/// Parses lines and includes.
mod syntax;
/// ACLs as conditions.
mod acl;
/// Listeners and servers.
mod places;
/// Applies rules in order to each kind of request.
mod access;

use std::collections::BTreeMap;

use mistake::Mistake;

use crate::draft::{DraftTable, StatementOrigin};
use crate::known::KnownDirective;
use crate::rules::Expression;
use crate::sheet::{Said, Sheet};
use crate::{Adapted, Include};
use syntax::SquidLine;

/// Translates a configuration of Squid. `file` is its name for messages and comments. Fails on an unclosed quote,
/// includes 16 deep, or more than 100000 lines.
pub fn adapt(text: &str, file: &str, include: Include<'_>) -> Result<Adapted, Box<Mistake>> {
    let (lines, source) = syntax::read(text, file, include)?;
    let mut adapter = SquidAdapter {
        sheet: Sheet::new(&source),
        lines: &lines,
        acls: acl::all(&lines),
        upstreams: BTreeMap::new(),
    };
    adapter.once();
    adapter.listeners();
    adapter.routes();
    Ok(adapter.sheet.finish("squid", &by_name))
}

struct SquidAdapter<'s> {
    sheet: Sheet<'s>,
    lines: &'s [SquidLine],
    acls: BTreeMap<String, Expression>,
    /// Names of upstreams, by the lines of their servers.
    upstreams: BTreeMap<Vec<usize>, String>,
}

impl<'s> SquidAdapter<'s> {
    fn all(&self, name: &'static str) -> impl Iterator<Item = &'s SquidLine> + use<'s> {
        self.lines.iter().filter(move |line| line.word(0) == name)
    }

    fn once(&mut self) {
        let lines = self.lines;
        for line in lines {
            let from = vec![StatementOrigin::Directive(line.number)];
            let time = line.milliseconds(1).map(|time| crate::values::duration(time.clamp(1, 86_400_000)));
            let option = match line.word(0) {
                "workers" => {
                    if let Ok(count @ 1..=1024) = line.word(1).parse::<u64>() {
                        self.sheet.top.set("workers", count, from);
                    }
                    continue;
                }
                "access_log" | "cache_access_log" => {
                    self.log(line);
                    continue;
                }
                "connect_timeout" => ("upstream_connect", time),
                "request_timeout" => ("client_header", time),
                "client_idle_pconn_timeout" => ("keep_alive", time),
                "read_timeout" => {
                    if let Some(time) = time {
                        for key in ["upstream_first_byte", "upstream_body"] {
                            self.sheet.once("[timeouts]", key, time.as_str(), line.number);
                        }
                    }
                    continue;
                }
                "shutdown_lifetime" => ("drain", time),
                "request_body_max_size" => {
                    if let Some(size) = line.bytes(1) {
                        let size = if size == 0 { "none".to_owned() } else { crate::values::size(size) };
                        self.sheet.once("[limits]", "body_bytes", size, line.number);
                    }
                    continue;
                }
                _ => continue,
            };
            match option {
                (key, Some(time)) => self.sheet.once("[timeouts]", key, time, line.number),
                (_, None) => self.sheet.refuse(
                    line.number,
                    "its value is not understood",
                    "see [timeouts] in docs/configuration.md",
                ),
            }
        }
        self.cache();
    }

    fn cache(&mut self) {
        let mut table = DraftTable::new("[cache]", Vec::new());
        let memory = self.all("cache_mem").last();
        match memory.and_then(|line| Some((line, line.bytes(1)?))) {
            Some((line, bytes)) => {
                table.set(
                    "memory",
                    crate::values::size(bytes.max(1 << 20)),
                    vec![StatementOrigin::Directive(line.number)],
                );
            }
            None => table.set(
                "memory",
                "256MiB",
                vec![StatementOrigin::Default("the default of Squid's cache_mem")],
            ),
        }
        let object =
            self.all("maximum_object_size_in_memory").last().or(self.all("maximum_object_size").last());
        if let Some((line, bytes)) = object.and_then(|line| Some((line, line.bytes(1)?))) {
            let most = memory.and_then(|line| line.bytes(1)).unwrap_or(256 << 20).max(1 << 20) / 8;
            table.set(
                "object",
                crate::values::size(bytes.clamp(1 << 10, most)),
                vec![StatementOrigin::Directive(line.number)],
            );
        }
        if let Some(folder) = self.all("cache_dir").find(|line| line.word(2).starts_with('/')) {
            let megabytes = folder.word(3).parse::<u64>().unwrap_or(100).clamp(16, 1 << 24);
            let pairs = [
                ("path".to_owned(), folder.word(2).into()),
                ("size".to_owned(), format!("{megabytes}MiB").into()),
            ];
            table.set(
                "disk",
                crate::draft::DraftValue::Table(pairs.into()),
                vec![StatementOrigin::Directive(folder.number)],
            );
            let why = "the folder has another format: responses that Squid stored are not used";
            self.sheet.differs(folder.number, why, "empty it, or name another one");
        }
        self.sheet.tables.push(table);
    }

    fn log(&mut self, line: &SquidLine) {
        let target = line.word(1).trim_start_matches("stdio:").trim_start_matches("daemon:");
        match target {
            "none" => self.sheet.needless(line.number, "there is no log without [log]"),
            target if target.starts_with('/') => {
                self.sheet.once("[log]", "target", target, line.number);
                let why = "the log is the extended Combined Log Format";
                self.sheet.differs(line.number, why, "`format` of [log] takes other forms: docs/logging.md");
            }
            _ => {
                let instead = "`target` of [log] names receivers: docs/logging.md";
                self.sheet.refuse(line.number, "this target is written in another way", instead);
            }
        }
    }
}

pub(crate) const KNOWN: KnownDirective = KnownDirective(include_str!("squid/known.txt"));

fn by_name(name: &str, text: &str) -> Said {
    KNOWN.said(name, text)
}

#[cfg(test)]
mod tests;
