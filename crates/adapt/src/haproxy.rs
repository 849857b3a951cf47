//! Reads HAProxy's configuration and writes what Vanward can say of it.

/// The text of the files.
mod syntax;
/// Log formats as texts with variables.
mod format;
/// Conditions.
mod acl;
/// What there is once for the process: `global`, timeouts, logs.
mod process;
/// Listeners, from `bind`.
mod binds;
/// Frontends: their rules, once for each kind of request.
mod frontends;
/// What rules do.
mod actions;
/// Backends: servers, balancing, checks, sessions.
mod backends;
/// Keywords that no option comes from.
mod known;
/// Values: times and sizes.
mod values;

use std::collections::{BTreeMap, BTreeSet};

use mistake::Mistake;

use crate::sheet::{Said, Sheet};
use crate::{Adapted, Include, Kind};
use acl::Acls;
use syntax::{Line, Section};

/// Adapts a configuration of HAProxy. `file` is its name for messages and comments; `include` reads files of patterns.
///
/// # Errors
/// The text is not of HAProxy's syntax, or has more than 100000 lines.
pub fn adapt(text: &str, file: &str, include: Include<'_>) -> Result<Adapted, Box<Mistake>> {
    let (sections, source) = syntax::read(text, file)?;
    let mut adapter = Adapter {
        sheet: Sheet::new(&source),
        defaults: inheritance(&sections),
        acls: sections.iter().map(|section| acl::acls(section, include)).collect(),
        sections: &sections,
        upstreams: BTreeMap::new(),
        met: BTreeSet::new(),
    };
    adapter.global();
    adapter.frontends(include);
    adapter.left_backends();
    Ok(adapter.finish())
}

struct Adapter<'s> {
    sheet: Sheet<'s>,
    sections: &'s [Section],
    /// For each section the places of the `defaults` that it inherits, the nearest first.
    defaults: Vec<Vec<usize>>,
    acls: Vec<Acls>,
    /// The names of upstreams, by the places of their sections.
    upstreams: BTreeMap<usize, String>,
    /// Lines of rules and conditions that were gone through.
    met: BTreeSet<usize>,
}

/// For each section the `defaults` that it inherits: those it names, else the last before it.
fn inheritance(sections: &[Section]) -> Vec<Vec<usize>> {
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

impl<'s> Adapter<'s> {
    /// The last line of a section that begins with these words, else of what it inherits.
    fn one(&self, place: usize, words: &[&str]) -> Option<&'s Line> {
        self.levels(place).find_map(|level| level.lines.iter().rev().find(|line| line.is(words)))
    }

    /// The lines of a section that begin with a word, behind those that it inherits.
    fn all(&self, place: usize, word: &str) -> Vec<&'s Line> {
        let mut levels: Vec<&Section> = self.levels(place).collect();
        levels.reverse();
        levels.iter().flat_map(|level| &level.lines).filter(|line| line.word(0) == word).collect()
    }

    /// A section, and the `defaults` that it inherits.
    fn levels(&self, place: usize) -> impl Iterator<Item = &'s Section> + use<'s> {
        let sections = self.sections;
        let mut places = vec![place];
        places.extend(self.defaults.get(place).cloned().unwrap_or_default());
        places.into_iter().filter_map(move |place| sections.get(place))
    }

    /// Whether a line stands in a `defaults` section.
    fn is_default(&self, line: &Line) -> bool {
        let mut defaults = self.sections.iter().filter(|section| section.kind() == "defaults");
        defaults.any(|section| section.lines.iter().any(|known| known.number == line.number))
    }

    /// Whether a section passes bytes on, without HTTP.
    fn is_tcp(&self, place: usize) -> bool {
        // HAProxy's own default is tcp.
        self.one(place, &["mode"]).is_none_or(|mode| mode.word(1) == "tcp")
    }

    fn finish(mut self) -> Adapted {
        for number in std::mem::take(&mut self.met) {
            self.sheet.say_if_unsaid(number, Kind::NeedsNothing, "no request gets anything else without it");
        }
        self.sheet.finish("haproxy", &by_name)
    }
}

fn by_name(name: &str, text: &str) -> Said {
    known::known(name, text)
}

#[cfg(test)]
mod tests;
