//! Reads configurations of Pound (2 to 4) and of zproxy, which has the same form, and writes what Vanward can say of them.

/// Statements, blocks, files that are included.
mod syntax;
/// Listeners.
mod listeners;
/// Services: conditions, and what is done.
mod services;
/// Conditions of services.
mod conditions;
/// Statements that no option comes from.
mod known;

use std::collections::BTreeMap;

use mistake::Mistake;

use crate::draft::Origin;
use crate::sheet::{Said, Sheet};
use crate::source::Directive;
use crate::{Adapted, Include};

/// Adapts a configuration of Pound. `file` is its name for messages and comments.
///
/// # Errors
/// A block without its end, an end without a block, a quote that does not end, includes 16 deep, more than 100000 statements.
pub fn pound(text: &str, file: &str, include: Include<'_>) -> Result<Adapted, Box<Mistake>> {
    adapt("pound", text, file, include)
}

/// Adapts a configuration of zproxy, as [`pound`].
///
/// # Errors
/// As [`pound`].
pub fn zproxy(text: &str, file: &str, include: Include<'_>) -> Result<Adapted, Box<Mistake>> {
    adapt("zproxy", text, file, include)
}

fn adapt(peer: &str, text: &str, file: &str, include: Include<'_>) -> Result<Adapted, Box<Mistake>> {
    let (all, source) = syntax::read(text, file, include)?;
    let mut adapter = Adapter { sheet: Sheet::new(&source), upstreams: BTreeMap::new(), ignores_case: false };
    adapter.once(&all);
    adapter.listeners(&all);
    Ok(adapter.sheet.finish(peer, &by_name))
}

struct Adapter<'s> {
    sheet: Sheet<'s>,
    /// Names of upstreams, by the numbers of their services.
    upstreams: BTreeMap<usize, String>,
    /// Whether conditions ignore case unless a service says otherwise.
    ignores_case: bool,
}

fn from(directive: &Directive) -> Vec<Origin> {
    vec![Origin::Directive(directive.number)]
}

/// Whether a statement switches something on.
fn is_on(directive: &Directive) -> bool {
    !matches!(directive.word(0).to_ascii_lowercase().as_str(), "0" | "no" | "false" | "off")
}

impl Adapter<'_> {
    /// What there is once for the process.
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

    /// A number of seconds as a time-out.
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

    /// How long a server may take, for the first byte and for each further one.
    fn response_time(&mut self, directive: &Directive) {
        self.time("upstream_first_byte", directive);
        self.time("upstream_body", directive);
    }
}

fn by_name(name: &str, _: &str) -> Said {
    known::known(name)
}

#[cfg(test)]
mod tests;
