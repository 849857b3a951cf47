//! Translates a Caddyfile.

/// Parses Caddyfiles.
mod syntax;
/// Placeholders as variables.
mod format;
/// Placeholders of `map` and `vars`.
mod texts;
/// Conditions on requests.
mod matchers;
/// Conditions as expressions.
mod cel;
/// Sites: their addresses, listeners and certificates.
mod sites;
/// Applies directives in Caddy's order to each kind of request.
mod directives;
/// Directives for servers and files.
mod servers;
/// Applications behind FastCGI.
mod php;
/// Servers that answer errors.
mod errors;

use mistake::Mistake;

use crate::draft::StatementOrigin;
use crate::known::KnownDirective;
use crate::sheet::{Said, Sheet};
use crate::source::Directive;
use crate::{Adapted, Include, RemarkKind, values};
pub(crate) use syntax::read;

/// Translates a Caddyfile. `file` is its name for messages and comments. Fails on a syntax error or an exceeded limit:
/// blocks 32 deep, imports 16 deep, 1000 files, 100000 directives.
pub fn adapt(text: &str, file: &str, include: Include<'_>) -> Result<Adapted, Box<Mistake>> {
    let (tree, source) = syntax::read(text, file, include)?;
    let mut adapter = CaddyAdapter {
        sheet: Sheet::new(&source),
        ports: (80, 443),
        has_automatic_tls: true,
        has_redirects: true,
        has_access_logs: sites::have_access_logs(&tree),
        secured: Vec::new(),
    };
    adapter.all(&tree);
    Ok(adapter.sheet.finish("caddy", &by_name))
}

struct CaddyAdapter<'s> {
    sheet: Sheet<'s>,
    /// The ports of HTTP and HTTPS.
    ports: (u16, u16),
    has_automatic_tls: bool,
    has_redirects: bool,
    /// Whether some site is logged. Others are not, then.
    has_access_logs: bool,
    secured: Vec<sites::SecuredSite>,
}

fn from(directive: &Directive) -> Vec<StatementOrigin> {
    vec![StatementOrigin::Directive(directive.number)]
}

impl CaddyAdapter<'_> {
    fn unread(&mut self, directive: &Directive) {
        let instead = "Caddy refuses it as well, or it is newer than this";
        self.sheet.refuse(directive.number, "its value is not understood", instead);
    }
}

pub(crate) const KNOWN: KnownDirective = KnownDirective(include_str!("caddy/known.txt"));

fn by_name(name: &str, text: &str) -> Said {
    match name.chars().next() {
        Some('@') => {
            (RemarkKind::NeedsNothing, "no directive that was taken over uses it".to_owned(), String::new())
        }
        Some('(') => (RemarkKind::NeedsNothing, "it is read where it is imported".to_owned(), String::new()),
        _ => KNOWN.said(name, text),
    }
}

/// Parses a time in Go's notation to milliseconds: `30s`, `1h30m`, `5m`, `2d`.
pub(crate) fn milliseconds(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 5] =
        [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    values::sum(text, &UNITS).filter(|time| *time > 0)
}

/// Parses a size to bytes: `10MB`, `1MiB`, `512`.
fn bytes(text: &str) -> Option<u64> {
    let units = [("kb", 1000), ("k", 1000), ("mb", 1_000_000), ("m", 1_000_000), ("gb", 1_000_000_000)];
    let more =
        [("g", 1_000_000_000), ("kib", 1 << 10), ("mib", 1 << 20), ("gib", 1 << 30), ("", 1), ("b", 1)];
    values::measure(&text.to_ascii_lowercase(), &[&units[..], &more].concat())
}

#[cfg(test)]
mod tests;
