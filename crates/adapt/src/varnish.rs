//! Reads VCL and writes what Vanward can say of it.

/// The text: tokens, declarations, statements.
mod syntax;
/// Conditions.
mod conditions;
/// Backends, probes, directors, ACLs.
mod backends;
/// Subroutines, gone through for each kind of request.
mod subroutines;
/// Statements that no option comes from.
mod known;

use std::collections::{BTreeMap, BTreeSet};

use mistake::Mistake;

use crate::draft::Origin;
use crate::sheet::{Said, Sheet};
use crate::{Adapted, Include, Kind};
use backends::Backend;
use syntax::{Declaration, Statement};

/// Adapts a configuration of Varnish (VCL). `file` is its name for messages and comments.
///
/// # Errors
/// The text is not of VCL's syntax, or exceeds a limit: blocks 32 deep, includes 16 deep, 100000 statements.
pub fn adapt(text: &str, file: &str, include: Include<'_>) -> Result<Adapted, Box<Mistake>> {
    let (declarations, source) = syntax::read(text, file, include)?;
    let mut adapter = Adapter {
        sheet: Sheet::new(&source),
        backends: Vec::new(),
        acls: BTreeMap::new(),
        subs: BTreeMap::new(),
        met: BTreeSet::new(),
        purges: BTreeSet::new(),
    };
    adapter.all(&declarations);
    Ok(adapter.finish())
}

struct Adapter<'s> {
    sheet: Sheet<'s>,
    /// Backends and directors, in their order.
    backends: Vec<Backend>,
    /// Networks by name; none for a list that cannot be said.
    acls: BTreeMap<&'s str, Option<Vec<String>>>,
    /// All subroutines of one name are one.
    subs: BTreeMap<&'s str, Vec<&'s Statement>>,
    /// Statements that were gone through.
    met: BTreeSet<usize>,
    /// Statements that are about purges alone.
    purges: BTreeSet<usize>,
}

impl<'s> Adapter<'s> {
    fn all(&mut self, declarations: &'s [Declaration]) {
        for declaration in declarations {
            match declaration {
                Declaration::Sub { name, body, .. } => self.subs.entry(name).or_default().extend(body),
                Declaration::Acl { number, name, entries } => {
                    self.acls.insert(name, backends::networks(entries));
                    self.met.insert(*number);
                }
                Declaration::Block { .. } => {}
            }
        }
        self.all_backends(declarations);
        self.purge();
        let default = vec![Origin::Default("the default of varnishd -a")];
        let mut listener = crate::draft::Table::new("[[listen]]", Vec::new());
        listener.set("address", "*:6081", default);
        self.sheet.listeners.push(listener);
        self.sheet.set("[cache]", "memory", "100MiB", vec![Origin::Default("the default of varnishd -s")]);
        self.routes();
    }

    fn finish(mut self) -> Adapted {
        for number in std::mem::take(&mut self.met) {
            self.sheet.say_if_unsaid(number, Kind::NeedsNothing, "no request gets anything else without it");
        }
        self.sheet.finish("varnish", &by_name)
    }
}

fn by_name(name: &str, _: &str) -> Said {
    known::known(name)
}

/// A time in milliseconds: `10s`, `500ms`, `1.5m`, `2h`, `1d`, `1w`.
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
