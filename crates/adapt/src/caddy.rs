//! Reads a Caddyfile and writes what Vanward can say of it.

/// The text of the files.
mod syntax;
/// Placeholders as variables.
mod format;
/// Matchers: conditions on requests.
mod matchers;
/// Sites: their addresses, listeners and certificates.
mod sites;
/// Directives in Caddy's order, gone through for each kind of request.
mod directives;
/// Servers and files.
mod servers;
/// Directives that no option comes from.
mod known;

use std::collections::BTreeSet;

use mistake::Mistake;

use crate::draft::Origin;
use crate::sheet::{Said, Sheet};
use crate::source::Directive;
use crate::{Adapted, Include, Kind};

/// Adapts a Caddyfile. `file` is its name for messages and comments.
///
/// # Errors
/// The text is not of a Caddyfile's syntax, or exceeds a limit: blocks 32 deep, imports 16 deep, 1000 files, 100000 directives.
pub fn adapt(text: &str, file: &str, include: Include<'_>) -> Result<Adapted, Box<Mistake>> {
    let (tree, source) = syntax::read(text, file, include)?;
    let mut adapter = Adapter {
        sheet: Sheet::new(&source),
        met: BTreeSet::new(),
        ports: (80, 443),
        has_automatic_tls: true,
    };
    adapter.all(&tree);
    Ok(adapter.finish())
}

struct Adapter<'s> {
    sheet: Sheet<'s>,
    /// Directives that were gone through.
    met: BTreeSet<usize>,
    /// Those of HTTP and HTTPS.
    ports: (u16, u16),
    has_automatic_tls: bool,
}

fn from(directive: &Directive) -> Vec<Origin> {
    vec![Origin::Directive(directive.number)]
}

impl Adapter<'_> {
    fn finish(mut self) -> Adapted {
        for number in std::mem::take(&mut self.met) {
            self.sheet.say_if_unsaid(number, Kind::NeedsNothing, "no request gets anything else without it");
        }
        self.sheet.finish("caddy", &by_name)
    }

    fn unread(&mut self, directive: &Directive) {
        let instead = "Caddy refuses it as well, or it is newer than this";
        self.sheet.refuse(directive.number, "its value is not understood", instead);
    }
}

fn by_name(name: &str, _: &str) -> Said {
    known::known(name)
}

/// A time in milliseconds, as Go writes it: `30s`, `1h30m`, `5m`, `2d`.
pub(crate) fn milliseconds(text: &str) -> Option<u64> {
    let (mut total, mut rest): (u64, &str) = (0, text.trim());
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest.get(..digits)?.parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let unit = match &rest[..letters] {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        rest = &rest[letters..];
        total = total.checked_add(number.checked_mul(unit)?)?;
    }
    (total > 0).then_some(total)
}

/// A size in bytes: `10MB`, `1MiB`, `512`.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text.get(..digits)?.parse().ok()?;
    let unit: u64 = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" | "k" => 1000,
        "mb" | "m" => 1_000_000,
        "gb" | "g" => 1_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests;
