//! Inheritance of directives: a block inherits those of outer blocks, unless it has the same directive.

use std::rc::Rc;

use super::locations::{self, LocationMatch};
use super::syntax::Directive;
use super::variables::SetVariables;

/// The blocks around a place.
#[derive(Clone)]
pub(crate) struct BlockScope<'s> {
    /// Innermost first.
    levels: Vec<&'s [Directive]>,
    /// Whether `error_page` has no effect, because the place is such a page.
    is_page: bool,
    /// How many of the innermost levels are blocks of `if`, which inherit the content of the block around them.
    ifs: usize,
    sets: Rc<SetVariables>,
}

impl<'s> BlockScope<'s> {
    pub(crate) fn from_level(level: &'s [Directive]) -> Self {
        Self { levels: vec![level], is_page: false, ifs: 0, sets: Rc::default() }
    }

    fn of_levels(&self, levels: &[&'s [Directive]]) -> Self {
        Self { levels: levels.to_vec(), is_page: self.is_page, ifs: 0, sets: Rc::clone(&self.sets) }
    }

    /// Returns the scope of a block inside this one.
    pub(crate) fn within(&self, level: &'s [Directive]) -> Self {
        let mut levels = vec![level];
        levels.extend(&self.levels);
        Self { levels, is_page: self.is_page, ifs: 0, sets: Rc::clone(&self.sets) }
    }

    /// Returns the scope of the block of an `if` inside this one.
    pub(crate) fn within_if(&self, level: &'s [Directive]) -> Self {
        Self { ifs: self.ifs + 1, ..self.within(level) }
    }

    /// Returns the scope of a page for errors.
    pub(crate) fn without_pages(&self) -> Self {
        Self { is_page: true, ..self.clone() }
    }

    /// Returns the scope with these variables instead of its own.
    pub(crate) fn with_sets(&self, sets: &Rc<SetVariables>) -> Self {
        Self { sets: Rc::clone(sets), ..self.clone() }
    }

    pub(crate) fn shared_sets(&self) -> Rc<SetVariables> {
        Rc::clone(&self.sets)
    }

    /// The variables that have values of `set` here.
    pub(crate) fn sets(&self) -> &SetVariables {
        &self.sets
    }

    /// The effective directive.
    pub(crate) fn one(&self, name: &str) -> Option<&'s Directive> {
        self.levels.iter().find_map(|level| level.iter().rev().find(|directive| directive.name == name))
    }

    /// The effective directives, from the innermost block that has any: a block with an `add_header` loses outer ones.
    pub(crate) fn all(&self, name: &str) -> Vec<&'s Directive> {
        if self.is_page && name == "error_page" {
            return Vec::new();
        }
        let levels =
            self.levels.iter().map(|level| level.iter().filter(|directive| directive.name == name).collect());
        levels.into_iter().find(|found: &Vec<_>| !found.is_empty()).unwrap_or_default()
    }

    /// As `all`, for two directives that nginx keeps in one list (`allow`, `deny`).
    pub(crate) fn all_of(&self, names: [&str; 2]) -> Vec<&'s Directive> {
        let is_one = |directive: &&Directive| names.contains(&directive.name.as_str());
        let levels = self.levels.iter().map(|level| level.iter().filter(is_one).collect());
        levels.into_iter().find(|found: &Vec<_>| !found.is_empty()).unwrap_or_default()
    }

    pub(crate) fn own(&self) -> &'s [Directive] {
        self.levels.first().copied().unwrap_or_default()
    }

    /// A directive of the innermost block. An `if` has those of the block around it, but tries no files.
    pub(crate) fn here(&self, name: &str) -> Option<&'s Directive> {
        let levels = if name == "try_files" { 1 } else { self.ifs + 1 };
        let find = |level: &&'s [Directive]| level.iter().rev().find(|directive| directive.name == name);
        self.levels.iter().take(levels).find_map(find)
    }

    /// A named location, and its scope.
    pub(crate) fn named(&self, name: &str) -> Option<(&'s Directive, Self)> {
        let is_it = |directive: &&Directive| directive.name == "location" && directive.word(0) == name;
        let found = |(place, level): (usize, &&'s [Directive])| Some((place, level.iter().find(is_it)?));
        let (place, block) = self.levels.iter().enumerate().find_map(found)?;
        Some((block, self.of_levels(&self.levels[place..]).within(block.inner())))
    }

    /// The location that nginx selects for a path, if a server answers there, and its scope.
    pub(crate) fn answering(
        &self,
        path: &str,
        server: &'s Directive,
    ) -> Option<(&'s Directive, Self, LocationMatch)> {
        let blocks = locations::leading_to(path, server.inner());
        let (block, outermost) = (*blocks.first()?, *blocks.last()?);
        let is_around = |level: &&'s [Directive]| level.iter().any(|inner| inner.number == outermost.number);
        let place = self.levels.iter().position(is_around)?;
        let mut scope = self.of_levels(&self.levels[place..]);
        for block in blocks.iter().rev() {
            scope = scope.within(block.inner());
        }
        scope.here("proxy_pass").is_some().then(|| (block, scope, LocationMatch::from_location(block)))
    }

    /// The directives of the outermost block.
    pub(crate) fn outermost(&self) -> &'s [Directive] {
        self.levels.last().copied().unwrap_or_default()
    }

    /// All directives of a name in the outermost block.
    pub(crate) fn outer(&self, name: &str) -> Vec<&'s Directive> {
        self.levels
            .last()
            .into_iter()
            .flat_map(|level| level.iter())
            .filter(|directive| directive.name == name)
            .collect()
    }

    pub(crate) fn is_outermost(&self, directive: &Directive) -> bool {
        self.levels.last().is_some_and(|level| level.iter().any(|other| other.number == directive.number))
    }
}
