//! Inheritance of directives: a block inherits those of outer blocks, unless it has the same directive.

use super::locations::{self, LocationMatch};
use super::syntax::Directive;

/// The blocks around a place, innermost first.
#[derive(Clone)]
pub(crate) struct BlockScope<'s>(Vec<&'s [Directive]>);

impl<'s> BlockScope<'s> {
    pub(crate) fn from_level(level: &'s [Directive]) -> Self {
        Self(vec![level])
    }

    /// Returns the scope of a block inside this one.
    pub(crate) fn within(&self, level: &'s [Directive]) -> Self {
        let mut levels = vec![level];
        levels.extend(&self.0);
        Self(levels)
    }

    /// The effective directive.
    pub(crate) fn one(&self, name: &str) -> Option<&'s Directive> {
        self.0.iter().find_map(|level| level.iter().rev().find(|directive| directive.name == name))
    }

    /// The effective directives, from the innermost block that has any: a block with an `add_header` loses outer ones.
    pub(crate) fn all(&self, name: &str) -> Vec<&'s Directive> {
        let levels =
            self.0.iter().map(|level| level.iter().filter(|directive| directive.name == name).collect());
        levels.into_iter().find(|found: &Vec<_>| !found.is_empty()).unwrap_or_default()
    }

    /// As `all`, for two directives that nginx keeps in one list (`allow`, `deny`).
    pub(crate) fn all_of(&self, names: [&str; 2]) -> Vec<&'s Directive> {
        let is_one = |directive: &&Directive| names.contains(&directive.name.as_str());
        let levels = self.0.iter().map(|level| level.iter().filter(is_one).collect());
        levels.into_iter().find(|found: &Vec<_>| !found.is_empty()).unwrap_or_default()
    }

    pub(crate) fn own(&self) -> &'s [Directive] {
        self.0.first().copied().unwrap_or_default()
    }

    /// A directive of the innermost block.
    pub(crate) fn here(&self, name: &str) -> Option<&'s Directive> {
        self.own().iter().rev().find(|directive| directive.name == name)
    }

    /// A named location, and its scope.
    pub(crate) fn named(&self, name: &str) -> Option<(&'s Directive, Self)> {
        let is_it = |directive: &&Directive| directive.name == "location" && directive.word(0) == name;
        let found = |(place, level): (usize, &&'s [Directive])| Some((place, level.iter().find(is_it)?));
        let (place, block) = self.0.iter().enumerate().find_map(found)?;
        Some((block, Self(self.0[place..].to_vec()).within(block.inner())))
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
        let place = self.0.iter().position(is_around)?;
        let mut scope = Self(self.0[place..].to_vec());
        for block in blocks.iter().rev() {
            scope = scope.within(block.inner());
        }
        scope.here("proxy_pass").is_some().then(|| (block, scope, LocationMatch::from_location(block)))
    }

    /// The directives of the outermost block.
    pub(crate) fn outermost(&self) -> &'s [Directive] {
        self.0.last().copied().unwrap_or_default()
    }

    /// All directives of a name in the outermost block.
    pub(crate) fn outer(&self, name: &str) -> Vec<&'s Directive> {
        self.0
            .last()
            .into_iter()
            .flat_map(|level| level.iter())
            .filter(|directive| directive.name == name)
            .collect()
    }

    pub(crate) fn is_outermost(&self, directive: &Directive) -> bool {
        self.0.last().is_some_and(|level| level.iter().any(|other| other.number == directive.number))
    }
}
