//! Reads Traefik's static and dynamic files (YAML or TOML), and writes what Vanward can say of them.

/// Keys, texts, blocks.
mod syntax;
/// Rules of routers.
mod rule;
/// Entry points: listeners.
mod entry_points;
/// Routers: routes.
mod routers;
/// Middlewares in the order of a router.
mod middlewares;
/// The middlewares `headers` and those that ask who a client is.
mod guards;
/// What becomes of paths.
mod paths;
/// Services: upstreams.
mod services;
/// Servers, their checks and how they are reached.
mod servers;
/// Certificates, versions of TLS, resolvers.
mod certificates;
/// Routers of TCP.
mod tcp;
/// Log, metrics, traces and the like.
mod process;
/// Statements that no option comes from.
mod known;

use std::collections::{BTreeMap, BTreeSet};

use mistake::Mistake;

use crate::draft::Origin;
use crate::sheet::Sheet;
use crate::source::Directive;
use crate::{Adapted, Include, Kind};

/// Adapts a static file with the dynamic ones that its `providers.file` names, or a dynamic file alone. `file` is its name for
/// messages and comments.
///
/// # Errors
/// A file is neither YAML nor TOML, or exceeds a limit: blocks 32 deep, 100000 statements.
pub fn adapt(text: &str, file: &str, include: Include<'_>) -> Result<Adapted, Box<Mistake>> {
    let (tree, source) = syntax::read(text, file, include)?;
    let mut adapter = Adapter {
        sheet: Sheet::new(&source),
        tree: &tree,
        upstreams: BTreeMap::new(),
        used: BTreeSet::new(),
    };
    adapter.templates();
    adapter.all();
    Ok(adapter.sheet.finish("traefik", &known::known))
}

struct Adapter<'s> {
    sheet: Sheet<'s>,
    /// All that stands at the top of the files.
    tree: &'s [Directive],
    /// Upstreams of services, by the numbers of those.
    upstreams: BTreeMap<usize, services::Made>,
    /// Services, middlewares and the like that something names.
    used: BTreeSet<usize>,
}

fn from(directive: &Directive) -> Vec<Origin> {
    vec![Origin::Directive(directive.number)]
}

/// A statement in a block, whatever its case.
fn find<'d>(block: &'d Directive, name: &str) -> Option<&'d Directive> {
    block.inner().iter().find(|inner| inner.name.eq_ignore_ascii_case(name))
}

/// The text of a statement in a block.
fn text<'d>(block: &'d Directive, name: &str) -> Option<(&'d str, &'d Directive)> {
    find(block, name).map(|found| (found.word(0), found))
}

fn is_on(block: &Directive, name: &str) -> bool {
    text(block, name).is_some_and(|(word, _)| word.eq_ignore_ascii_case("true"))
}

/// The numbers of a statement and of all that stands in it.
fn numbers(directive: &Directive) -> Vec<usize> {
    let mut all = vec![directive.number];
    all.extend(directive.inner().iter().flat_map(numbers));
    all.dedup();
    all
}

/// A name without the provider behind it: `web@file`. `None` for what another provider has.
fn of_file(name: &str) -> Option<&str> {
    match name.split_once('@') {
        None => Some(name),
        Some((name, "file")) => Some(name),
        Some(_) => None,
    }
}

/// A time in milliseconds: `10s`, `1m30s`, `500ms`, or seconds alone.
fn milliseconds(text: &str) -> Option<u64> {
    match text.trim().parse::<u64>() {
        Ok(seconds) => seconds.checked_mul(1000),
        Err(_) => crate::caddy::milliseconds(text),
    }
}

impl<'s> Adapter<'s> {
    fn all(&mut self) {
        let points = self.entry_points();
        self.routers(&points);
        self.tcp_routers(&points);
        self.process(&points);
        self.unused();
    }

    /// The blocks of this name at the top of the files.
    fn top(&self, name: &'static str) -> impl Iterator<Item = &'s Directive> + use<'s> {
        self.tree.iter().filter(move |directive| directive.name.eq_ignore_ascii_case(name))
    }

    /// What is defined under two keys, such as `http.services`.
    fn defined(
        &self,
        outer: &'static str,
        inner: &'static str,
    ) -> impl Iterator<Item = &'s Directive> + use<'s> {
        self.top(outer).filter_map(move |block| find(block, inner)).flat_map(Directive::inner)
    }

    /// The definition of a name, and remembers that it is used.
    fn definition(&mut self, outer: &'static str, inner: &'static str, name: &str) -> Option<&'s Directive> {
        let name = of_file(name)?;
        let found = self.defined(outer, inner).find(|definition| definition.name == name)?;
        self.used.insert(found.number);
        Some(found)
    }

    /// Says something of a statement and of all that stands in it.
    fn refuse_all(&mut self, directive: &Directive, why: &str, instead: &str) {
        for number in numbers(directive) {
            self.sheet.refuse(number, why, instead);
        }
    }

    fn needless_all(&mut self, directive: &Directive, why: &str) {
        for number in numbers(directive) {
            self.sheet.needless(number, why);
        }
    }

    /// Dynamic files are templates of Go.
    fn templates(&mut self) {
        let source = self.sheet.source;
        for (number, place) in source.places.iter().enumerate().filter(|(_, place)| place.text.contains("{{"))
        {
            let why = format!("`{}` has a template, and none is evaluated", place.name);
            self.sheet.refuse(number, &why, "write what comes of it, or ${NAME} for an environment variable");
        }
    }

    /// What nothing names.
    fn unused(&mut self) {
        let kinds = [
            ("http", "services"),
            ("http", "middlewares"),
            ("http", "serversTransports"),
            ("tcp", "services"),
            ("tcp", "middlewares"),
            ("tcp", "serversTransports"),
        ];
        for (outer, inner) in kinds {
            for definition in self.defined(outer, inner) {
                for number in
                    numbers(definition).into_iter().filter(|_| !self.used.contains(&definition.number))
                {
                    self.sheet.say_if_unsaid(number, Kind::NeedsNothing, "nothing names it");
                }
            }
        }
    }

    fn unread(&mut self, directive: &Directive, expected: &str) {
        self.sheet.refuse(directive.number, "its value is not understood", &format!("write {expected}"));
    }
}

#[cfg(test)]
mod tests;
