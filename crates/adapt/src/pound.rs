//! Translates configurations of Pound (2 to 4), and of zproxy, which has the same form.

/// Parses statements, blocks and includes.
mod syntax;
/// Listeners.
mod listeners;
/// Services: conditions and actions.
mod services;
/// Conditions of services.
mod conditions;

use std::collections::BTreeMap;

use mistake::Mistake;

use crate::draft::StatementOrigin;
use crate::known::KnownDirective;
use crate::sheet::{Said, Sheet};
use crate::source::Directive;
use crate::{Adapted, Include};

/// Translates a configuration of Pound. `file` is its name for messages and comments. Fails on an unclosed block, an
/// end without a block, an unclosed quote, includes 16 deep, or more than 100000 statements.
pub fn pound(text: &str, file: &str, include: Include<'_>) -> Result<Adapted, Box<Mistake>> {
    adapt("pound", text, file, include)
}

/// Translates a configuration of zproxy, as [`pound`].
pub fn zproxy(text: &str, file: &str, include: Include<'_>) -> Result<Adapted, Box<Mistake>> {
    adapt("zproxy", text, file, include)
}

fn adapt(peer: &str, text: &str, file: &str, include: Include<'_>) -> Result<Adapted, Box<Mistake>> {
    let (all, source) = syntax::read(text, file, include)?;
    let mut adapter =
        PoundAdapter { sheet: Sheet::new(&source), upstreams: BTreeMap::new(), ignores_case: false };
    adapter.once(&all);
    adapter.listeners(&all);
    Ok(adapter.sheet.finish(peer, &by_name))
}

struct PoundAdapter<'s> {
    sheet: Sheet<'s>,
    upstreams: BTreeMap<usize, String>,
    /// Whether conditions ignore case unless a service overrides it.
    ignores_case: bool,
}

fn from(directive: &Directive) -> Vec<StatementOrigin> {
    vec![StatementOrigin::Directive(directive.number)]
}

/// Whether a statement enables something.
fn is_on(directive: &Directive) -> bool {
    !matches!(directive.word(0).to_ascii_lowercase().as_str(), "0" | "no" | "false" | "off")
}

impl PoundAdapter<'_> {
    fn once(&mut self, all: &[Directive]) {
        for directive in all {
            match directive.name.as_str() {
                "ignorecase" => {
                    self.ignores_case = is_on(directive);
                    self.sheet.needless(directive.number, "it is in the expressions of routes");
                }
                "grace" => self.time("drain", directive),
                "client" => self.time("client_header", directive),
                "timeout" => self.response_time(directive),
                "connto" => self.time("upstream_connect", directive),
                "control" if directive.word(0).starts_with('/') => {
                    self.sheet.top.set("admin", directive.word(0), from(directive));
                }
                "loglevel" if directive.word(0) != "0" => {
                    self.sheet.once("[log]", "target", "syslog", directive.number);
                    let why = "the log is the extended Combined Log Format";
                    self.sheet.differs(
                        directive.number,
                        why,
                        "`format` of [log] takes other forms: docs/logging.md",
                    );
                }
                _ => {}
            }
        }
    }

    /// Translates a number of seconds to a timeout.
    fn time(&mut self, key: &str, directive: &Directive) {
        match directive.word(0).parse::<u64>() {
            Ok(seconds @ 1..=86_400) => {
                self.sheet.once("[timeouts]", key, crate::values::duration(seconds * 1000), directive.number);
            }
            _ => {
                let instead = "see [timeouts] in docs/configuration.md";
                self.sheet.refuse(directive.number, "it is no time from 1 s to a day", instead);
            }
        }
    }

    /// Sets a server's timeout for the first byte and for each further one.
    fn response_time(&mut self, directive: &Directive) {
        self.time("upstream_first_byte", directive);
        self.time("upstream_body", directive);
    }
}

pub(crate) const KNOWN: KnownDirective = KnownDirective(include_str!("pound/known.txt"));

fn by_name(name: &str, text: &str) -> Said {
    KNOWN.said(&name.to_ascii_lowercase(), text)
}

#[cfg(test)]
mod tests;
