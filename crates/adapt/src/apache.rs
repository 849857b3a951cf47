//! Translates configurations of Apache httpd as a reverse proxy (`mod_proxy`).
//!
//! It reads virtual hosts, `ProxyPass`, `Location`, `Redirect`, `Require` and header fields. Everything else is refused
//! with its reason; a section with a guard that is not understood answers 501.

/// Parses directives, sections and includes.
mod syntax;
/// Listeners and virtual hosts.
mod hosts;
/// Sections with guards and fields.
mod sections;
/// Servers, redirects and paths.
mod targets;

use std::collections::BTreeMap;

use mistake::Mistake;

use crate::draft::StatementOrigin;
use crate::known::KnownDirective;
use crate::sheet::{Said, Sheet};
use crate::source::Directive;
use crate::{Adapted, Include};
pub(crate) use syntax::read;

/// Translates a configuration of Apache. `file` is its name for messages and comments. Fails on an unclosed section or
/// quote, includes 16 deep, or more than 100000 statements.
pub fn adapt(text: &str, file: &str, include: Include<'_>) -> Result<Adapted, Box<Mistake>> {
    let (all, source) = syntax::read(text, file, include)?;
    let mut adapter = ApacheAdapter { sheet: Sheet::new(&source), upstreams: BTreeMap::new() };
    adapter.hosts(&all);
    Ok(adapter.sheet.finish("apache", &by_name))
}

struct ApacheAdapter<'s> {
    sheet: Sheet<'s>,
    /// Upstreams by the server's URL and whether it gets the client's host.
    upstreams: BTreeMap<(String, bool), String>,
}

fn from(directive: &Directive) -> Vec<StatementOrigin> {
    vec![StatementOrigin::Directive(directive.number)]
}

fn is_on(directive: &Directive) -> bool {
    directive.word(0).eq_ignore_ascii_case("on")
}

/// The last directive with a name: later ones win.
fn last<'d>(all: &'d [Directive], name: &str) -> Option<&'d Directive> {
    all.iter().rev().find(|directive| directive.name == name)
}

const KNOWN: KnownDirective = KnownDirective(include_str!("apache/known.txt"));

fn by_name(name: &str, text: &str) -> Said {
    KNOWN.said(&name.to_ascii_lowercase(), text)
}

#[cfg(test)]
mod tests;
