//! Statements of Traefik by their keys, and chains of middlewares.

use adapt::statements::Statement;

use crate::old::StatementPlace;

/// Longer chains of middlewares, and deeper ones, are cut.
const CHAIN_MAX: usize = 64;
const DEPTH_MAX: usize = 16;

/// The blocks of all files. Keys ignore case, names do not.
#[derive(Clone, Copy)]
pub(super) struct TraefikTree<'s>(pub(super) &'s [Statement]);

/// A middleware where a router, an entry point or a chain names it.
pub(super) struct UsedMiddleware<'s> {
    pub(super) name: &'s str,
    pub(super) place: StatementPlace,
    /// `None`: it is of another provider, or missing.
    pub(super) definition: Option<&'s Statement>,
}

impl<'s> UsedMiddleware<'s> {
    /// Its kind with the options, such as `stripPrefix`.
    pub(super) fn kind(&self) -> Option<&'s Statement> {
        self.definition?.inner().first()
    }

    /// The kind's name in lower case.
    pub(super) fn kind_name(&self) -> String {
        self.kind().map(|kind| kind.name.to_ascii_lowercase()).unwrap_or_default()
    }
}

impl<'s> TraefikTree<'s> {
    pub(super) fn top(self, name: &'static str) -> impl Iterator<Item = &'s Statement> {
        self.0.iter().filter(move |statement| statement.name.eq_ignore_ascii_case(name))
    }

    /// Definitions under two keys, such as `http` and `services`. Of several with one name, the first counts.
    pub(super) fn defined(self, outer: &'static str, inner: &'static str) -> Vec<&'s Statement> {
        let mut all: Vec<&Statement> = Vec::new();
        let blocks = self.top(outer).filter_map(|block| find(block, inner));
        for definition in blocks.flat_map(Statement::inner) {
            if !all.iter().any(|known| known.name == definition.name) {
                all.push(definition);
            }
        }
        all
    }

    /// A definition of the files by its name, with or without `@file`.
    pub(super) fn definition(
        self,
        outer: &'static str,
        inner: &'static str,
        name: &str,
    ) -> Option<&'s Statement> {
        let name = name.strip_suffix("@file").unwrap_or(name);
        self.defined(outer, inner).into_iter().find(|definition| definition.name == name)
    }

    /// The middlewares of a list, with those of chains in their place. `path` is the list's place in the file.
    pub(super) fn chain(self, list: &'s Statement, path: &str) -> Vec<UsedMiddleware<'s>> {
        let mut all = Vec::new();
        self.add_chain(list, path, 0, &mut all);
        all
    }

    fn add_chain(self, list: &'s Statement, path: &str, depth: usize, all: &mut Vec<UsedMiddleware<'s>>) {
        for name in &list.words {
            let definition = self.definition("http", "middlewares", name);
            let chained = definition
                .and_then(|definition| Some((definition, definition.inner().first()?)))
                .filter(|(_, kind)| kind.name.eq_ignore_ascii_case("chain") && depth < DEPTH_MAX)
                .and_then(|(definition, kind)| Some((definition, kind, find(kind, "middlewares")?)));
            if let Some((definition, kind, inner)) = chained {
                let path = format!("http.middlewares.{}.{}.{}", definition.name, kind.name, inner.name);
                self.add_chain(inner, &path, depth + 1, all);
            } else if all.len() < CHAIN_MAX {
                let place = StatementPlace {
                    file: list.file.clone(),
                    line: list.line,
                    text: format!("{path} {name}"),
                };
                all.push(UsedMiddleware { name, place, definition });
            }
        }
    }
}

/// A statement in a block.
pub(super) fn find<'s>(block: &'s Statement, name: &str) -> Option<&'s Statement> {
    block.inner().iter().find(|inner| inner.name.eq_ignore_ascii_case(name))
}

/// The first word of a statement in a block.
pub(super) fn word<'s>(block: &'s Statement, name: &str) -> Option<&'s str> {
    find(block, name).map(|found| found.word(0))
}

pub(super) fn is_on(block: &Statement, name: &str) -> bool {
    word(block, name).is_some_and(|word| word.eq_ignore_ascii_case("true"))
}

/// The place of a statement, with its outer keys before its text.
pub(super) fn place(path: &str, statement: &Statement) -> StatementPlace {
    let whole = Statement {
        file: String::new(),
        line: 0,
        name: joined(path, &statement.name),
        words: statement.words.clone(),
        block: None,
    };
    StatementPlace { file: statement.file.clone(), line: statement.line, text: whole.text() }
}

pub(super) fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The places of a statement's options, at any depth.
pub(super) fn options(path: &str, statement: &Statement, all: &mut Vec<StatementPlace>) {
    let path = joined(path, &statement.name);
    for inner in statement.inner() {
        if inner.inner().is_empty() {
            all.push(place(&path, inner));
        }
        options(&path, inner, all);
    }
}
