//! Translates HAProxy's configuration.

/// Parses the file.
mod syntax;
/// Log formats as texts with variables.
mod format;
/// Conditions.
mod acl;
/// Criteria of conditions.
mod samples;
/// Samples as expressions.
mod expressions;
/// Files of maps and lists.
mod maps;
/// Variables of requests.
mod variables;
/// Process-wide settings: `global`, timeouts, logs.
mod process;
/// Listeners, from `bind`.
mod binds;
/// Rules in their order.
mod rule_sets;
/// Applies the rules of frontends to each kind of request.
mod frontends;
/// Choice of backends.
mod choice;
/// Actions of rules.
mod actions;
/// Caches.
mod caches;
/// Backends: servers, balancing, checks, sessions.
mod backends;
/// Values: times and sizes.
mod values;

use std::collections::BTreeMap;

use mistake::Mistake;

use crate::known::KnownDirective;
use crate::sheet::{Said, Sheet};
use crate::{Adapted, Include, RemarkKind};
use acl::Acls;
use maps::PatternFiles;
pub(crate) use syntax::{HaproxyLine, HaproxySection, read};

/// Translates a configuration of HAProxy. `file` is its name for messages and comments; `include` reads pattern files.
/// Fails on a syntax error or more than 100000 lines.
pub fn adapt(text: &str, file: &str, include: Include<'_>) -> Result<Adapted, Box<Mistake>> {
    let (mut sections, source) = syntax::read(text, file)?;
    with_monitors(&mut sections);
    let mut adapter = HaproxyAdapter {
        sheet: Sheet::new(&source),
        defaults: inheritance(&sections),
        acls: sections.iter().map(acl::acls).collect(),
        sections: &sections,
        upstreams: BTreeMap::new(),
    };
    adapter.global();
    adapter.frontends(&mut PatternFiles::new(include));
    adapter.left_backends();
    for (number, _) in source.places.iter().enumerate().filter(|(_, place)| place.name == "stats uri") {
        let why = "there is no page of statistics at a listener; requests for it get 501";
        let instead = "use `dashboard` and `metrics` (an address each), `vanward top` and `vanward status`";
        adapter.sheet.refuse(number, why, instead);
    }
    Ok(adapter.sheet.finish("haproxy", &by_name))
}

struct HaproxyAdapter<'s> {
    sheet: Sheet<'s>,
    sections: &'s [HaproxySection],
    /// Inherited `defaults` of each section by index, the nearest first.
    defaults: Vec<Vec<usize>>,
    acls: Vec<Acls<'s>>,
    upstreams: BTreeMap<usize, String>,
}

/// Returns the `defaults` that each section inherits: the named one, else the last one before it.
fn inheritance(sections: &[HaproxySection]) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = Vec::new();
    let mut last: Option<usize> = None;
    for (place, section) in sections.iter().enumerate() {
        let is_defaults = section.kind() == "defaults";
        let named = section.head.behind("from").and_then(|name| {
            sections[..place].iter().rposition(|other| other.kind() == "defaults" && other.name() == name)
        });
        let inherits = matches!(section.kind(), "frontend" | "backend" | "listen");
        let from = named.or(last.filter(|_| inherits));
        let chain = from.map(|from| std::iter::once(from).chain(all[from].clone()).collect());
        all.push(chain.unwrap_or_default());
        if is_defaults {
            last = Some(place);
        }
    }
    all
}

/// Writes `monitor-uri` as a rule before all others of its section, and `stats uri` as one that refuses.
fn with_monitors(sections: &mut [HaproxySection]) {
    const PAGE: &str = "<html><body><h1>200 OK</h1>\nService ready.\n</body></html>\n";
    for section in sections {
        for line in section.lines.iter_mut().filter(|line| line.is(&["stats", "uri"])) {
            // It may ask for a password, and no server has it.
            let before = ["http-request", "deny", "deny_status", "501", "if", "{", "url_beg"];
            let words = before.into_iter().chain([line.word(2), "}"]);
            line.words = words.map(str::to_owned).collect();
        }
        for line in
            section.lines.iter_mut().filter(|line| line.word(0) == "monitor-uri" && !line.word(1).is_empty())
        {
            let before =
                ["http-request", "return", "status", "200", "content-type", "text/html", "string", PAGE];
            let field = ["hdr", "Cache-Control", "no-cache", "if", "{", "url"];
            let words = before.into_iter().chain(field).chain([line.word(1), "}"]);
            line.words = words.map(str::to_owned).collect();
        }
        section.lines.sort_by_key(|line| line.behind("string") != Some(PAGE));
    }
}

impl<'s> HaproxyAdapter<'s> {
    /// Returns the last line of a section that begins with these words, else an inherited one.
    fn one(&self, place: usize, words: &[&str]) -> Option<&'s HaproxyLine> {
        self.levels(place).find_map(|level| level.lines.iter().rev().find(|line| line.is(words)))
    }

    /// Returns the lines that begin with a word: inherited ones, then the section's.
    fn all(&self, place: usize, word: &str) -> Vec<&'s HaproxyLine> {
        let mut levels: Vec<&HaproxySection> = self.levels(place).collect();
        levels.reverse();
        levels.iter().flat_map(|level| &level.lines).filter(|line| line.word(0) == word).collect()
    }

    /// Iterates over a section and its inherited `defaults`.
    fn levels(&self, place: usize) -> impl Iterator<Item = &'s HaproxySection> + use<'s> {
        let sections = self.sections;
        let mut places = vec![place];
        places.extend(self.defaults.get(place).cloned().unwrap_or_default());
        places.into_iter().filter_map(move |place| sections.get(place))
    }

    fn is_default(&self, line: &HaproxyLine) -> bool {
        let mut defaults = self.sections.iter().filter(|section| section.kind() == "defaults");
        defaults.any(|section| section.lines.iter().any(|known| known.number == line.number))
    }

    /// Whether a section is layer 4, without HTTP.
    fn is_tcp(&self, place: usize) -> bool {
        // HAProxy's default is tcp.
        self.one(place, &["mode"]).is_none_or(|mode| mode.word(1) == "tcp")
    }
}

pub(crate) const KNOWN: KnownDirective = KnownDirective(include_str!("haproxy/known.txt"));

fn by_name(name: &str, text: &str) -> Said {
    let said = |kind: RemarkKind, why: &str, instead: &str| (kind, why.to_owned(), instead.to_owned());
    if name.starts_with("tune.") || name.starts_with("profiling.") || name.starts_with("shards") {
        return said(
            RemarkKind::NeedsNothing,
            "it changes how fast HAProxy is, and nothing that clients see",
            "",
        );
    }
    if name == "tcp-request" {
        let is_inspection = ["inspect-delay", "req_ssl_hello_type", "req.ssl_hello_type"]
            .iter()
            .any(|word| text.contains(word));
        return if is_inspection {
            said(
                RemarkKind::NeedsNothing,
                "the name that a client asks for is read before a server is chosen",
                "",
            )
        } else if text.contains("track-sc") {
            said(RemarkKind::NeedsNothing, "`rate_limit` and `concurrency` count automatically", "")
        } else {
            said(
                RemarkKind::Refused,
                "rules cannot refuse connections",
                "write `deny` or `concurrency` into the [[route]], `connections_per_client` into [[listen]], or [limits]",
            )
        };
    }
    let first = name.split(' ').next().unwrap_or_default();
    KNOWN.find(name, text).unwrap_or_else(|| KNOWN.said(first, text))
}

#[cfg(test)]
mod tests;
