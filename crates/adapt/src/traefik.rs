//! Translates Traefik's static and dynamic files (YAML or TOML).

/// Parses keys, texts and blocks.
mod syntax;
/// Parses rules of routers.
mod rule;
/// Converts entry points to listeners.
mod entry_points;
/// Converts routers to routes.
mod routers;
/// Applies middlewares in a router's order.
mod middlewares;
/// Middlewares for headers, authentication and rates.
mod guards;
/// The middleware `errors`.
mod errors;
/// Middlewares that change paths.
mod paths;
/// Converts services to upstreams.
mod services;
/// Servers, their checks and transport.
mod servers;
/// Certificates, TLS versions, resolvers.
mod certificates;
/// Routers of TCP.
mod tcp;
/// Log, metrics, traces and the like.
mod process;
/// Verdicts on statements without an option.
mod known;

use std::collections::{BTreeMap, BTreeSet};

use mistake::Mistake;

use crate::draft::StatementOrigin;
use crate::sheet::Sheet;
use crate::source::Directive;
use crate::{Adapted, Include, RemarkKind};
pub(crate) use syntax::read;

/// Translates a static file with the dynamic ones of its `providers.file`, or a dynamic file. `file` is its name for
/// messages and comments. Fails if a file is neither YAML nor TOML, or above a limit: blocks 32 deep, 100000
/// statements.
pub fn adapt(text: &str, file: &str, include: Include<'_>) -> Result<Adapted, Box<Mistake>> {
    let (tree, source) = syntax::read(text, file, include)?;
    let mut adapter = TraefikAdapter {
        sheet: Sheet::new(&source),
        tree: &tree,
        upstreams: BTreeMap::new(),
        used: BTreeSet::new(),
    };
    adapter.templates();
    adapter.all();
    Ok(adapter.sheet.finish("traefik", &known::known))
}

struct TraefikAdapter<'s> {
    sheet: Sheet<'s>,
    tree: &'s [Directive],
    /// Upstreams of services, by the services' numbers.
    upstreams: BTreeMap<usize, services::ServiceDraft>,
    /// Services, middlewares and the like that others refer to.
    used: BTreeSet<usize>,
}

fn from(directive: &Directive) -> Vec<StatementOrigin> {
    vec![StatementOrigin::Directive(directive.number)]
}

/// Returns a statement in a block; names ignore case.
fn find<'d>(block: &'d Directive, name: &str) -> Option<&'d Directive> {
    block.inner().iter().find(|inner| inner.name.eq_ignore_ascii_case(name))
}

fn text<'d>(block: &'d Directive, name: &str) -> Option<(&'d str, &'d Directive)> {
    find(block, name).map(|found| (found.word(0), found))
}

fn is_on(block: &Directive, name: &str) -> bool {
    text(block, name).is_some_and(|(word, _)| word.eq_ignore_ascii_case("true"))
}

/// The numbers of a statement and of all inner ones.
fn numbers(directive: &Directive) -> Vec<usize> {
    let mut all = vec![directive.number];
    all.extend(directive.inner().iter().flat_map(numbers));
    all.dedup();
    all
}

/// Removes the provider from a name: `web@file`. `None` for another provider.
fn of_file(name: &str) -> Option<&str> {
    match name.split_once('@') {
        None => Some(name),
        Some((name, "file")) => Some(name),
        Some(_) => None,
    }
}

/// Parses a time to milliseconds: `10s`, `1m30s`, `500ms`, or a number of seconds.
fn milliseconds(text: &str) -> Option<u64> {
    match text.trim().parse::<u64>() {
        Ok(seconds) => seconds.checked_mul(1000),
        Err(_) => crate::caddy::milliseconds(text),
    }
}

impl<'s> TraefikAdapter<'s> {
    fn all(&mut self) {
        let points = self.entry_points();
        self.routers(&points);
        self.tcp_routers(&points);
        self.process(&points);
        self.unused();
    }

    fn top(&self, name: &'static str) -> impl Iterator<Item = &'s Directive> + use<'s> {
        self.tree.iter().filter(move |directive| directive.name.eq_ignore_ascii_case(name))
    }

    /// The definitions under two keys, such as `http.services`.
    fn defined(
        &self,
        outer: &'static str,
        inner: &'static str,
    ) -> impl Iterator<Item = &'s Directive> + use<'s> {
        self.top(outer).filter_map(move |block| find(block, inner)).flat_map(Directive::inner)
    }

    fn definition(&mut self, outer: &'static str, inner: &'static str, name: &str) -> Option<&'s Directive> {
        let name = of_file(name)?;
        let found = self.defined(outer, inner).find(|definition| definition.name == name)?;
        self.used.insert(found.number);
        Some(found)
    }

    /// Adds a note to a statement and all inner ones.
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

    /// Reports Go templates in dynamic files.
    fn templates(&mut self) {
        let source = self.sheet.source;
        for (number, place) in source.places.iter().enumerate().filter(|(_, place)| place.text.contains("{{"))
        {
            let why = format!("`{}` has a template, and none is evaluated", place.name);
            self.sheet.refuse(number, &why, "write its result, or ${NAME} for an environment variable");
        }
    }

    /// Reports definitions that nothing refers to.
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
                    self.sheet.say_if_unsaid(number, RemarkKind::NeedsNothing, "it is not used");
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
