//! Translates VCL.

/// Parses tokens, declarations and statements.
mod syntax;
/// Conditions.
mod conditions;
/// Backends, probes, directors, ACLs.
mod backends;
/// Applies subroutines to each kind of request.
mod subroutines;
/// Statements about responses.
mod responses;
/// Requests that are sent again because of a status.
mod repeats;

use std::collections::{BTreeMap, BTreeSet};

use mistake::Mistake;

use crate::draft::StatementOrigin;
use crate::known::KnownDirective;
use crate::sheet::{Said, Sheet};
use crate::{Adapted, Include};
use backends::{AclNetworks, Backend};
use conditions::SpelledPaths;
use repeats::Attempt;
pub(crate) use syntax::{Declaration, Statement, VclToken, read};

/// Translates a configuration of Varnish (VCL). `file` is its name for messages and comments. Fails on a syntax error
/// or an exceeded limit: blocks 32 deep, includes 16 deep, 100000 statements.
pub fn adapt(text: &str, file: &str, include: Include<'_>) -> Result<Adapted, Box<Mistake>> {
    let (declarations, source) = syntax::read(text, file, include)?;
    let mut adapter = VarnishAdapter {
        sheet: Sheet::new(&source),
        backends: Vec::new(),
        acls: BTreeMap::new(),
        subs: BTreeMap::new(),
        purges: BTreeSet::new(),
        attempt: Attempt::First,
        spelled: BTreeMap::new(),
    };
    adapter.all(&declarations);
    Ok(adapter.sheet.finish("varnish", &by_name))
}

struct VarnishAdapter<'s> {
    sheet: Sheet<'s>,
    /// Backends and directors in order.
    backends: Vec<Backend>,
    /// Networks by name; `None` for an unsupported list.
    acls: BTreeMap<&'s str, Option<AclNetworks>>,
    /// Subroutines with the same name are concatenated.
    subs: BTreeMap<&'s str, Vec<&'s Statement>>,
    /// Statements only about purges.
    purges: BTreeSet<usize>,
    /// The attempt for which conditions are evaluated.
    attempt: Attempt,
    /// By the number of the condition.
    spelled: BTreeMap<usize, SpelledPaths>,
}

impl<'s> VarnishAdapter<'s> {
    fn all(&mut self, declarations: &'s [Declaration]) {
        for declaration in declarations {
            match declaration {
                Declaration::Sub { name, body, .. } => self.subs.entry(name).or_default().extend(body),
                Declaration::Acl { number, name, entries } => {
                    self.acls.insert(name, backends::networks(entries));
                    self.sheet.met.insert(*number);
                }
                Declaration::Block { .. } => {}
            }
        }
        self.all_backends(declarations);
        self.purge();
        let default = vec![StatementOrigin::Default("the default of varnishd -a")];
        let mut listener = crate::draft::DraftTable::new("[[listen]]", Vec::new());
        listener.set("address", "*:6081", default);
        self.sheet.listeners.push(listener);
        self.sheet.set(
            "[cache]",
            "memory",
            "100MiB",
            vec![StatementOrigin::Default("the default of varnishd -s")],
        );
        self.routes();
    }
}

pub(crate) const KNOWN: KnownDirective = KnownDirective(include_str!("varnish/known.txt"));

fn by_name(name: &str, text: &str) -> Said {
    KNOWN.said(if name.starts_with('.') { ".*" } else { name }, text)
}

/// Parses a time to milliseconds: `10s`, `500ms`, `1.5m`, `2h`, `1d`, `1w`.
fn milliseconds(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let number: f64 = text.get(..digits)?.parse().ok()?;
    let unit = match &text[digits..] {
        "ms" => 1.0,
        "s" => 1000.0,
        "m" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        "w" => 7.0 * 86_400_000.0,
        "y" => 365.0 * 86_400_000.0,
        _ => return None,
    };
    let time = number * unit;
    (0.0..=1e15).contains(&time).then_some(time as u64)
}

#[cfg(test)]
mod tests;
