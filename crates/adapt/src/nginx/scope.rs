//! Which directive holds at a place: nginx hands directives from outer blocks to inner ones, unless an inner one has its own.

use super::syntax::Directive;

/// The blocks around a place, the innermost first.
#[derive(Clone)]
pub(crate) struct Scope<'s>(Vec<&'s [Directive]>);

impl<'s> Scope<'s> {
    pub(crate) fn of(level: &'s [Directive]) -> Self {
        Self(vec![level])
    }

    /// The place in a block within this one.
    pub(crate) fn within(&self, level: &'s [Directive]) -> Self {
        let mut levels = vec![level];
        levels.extend(&self.0);
        Self(levels)
    }

    /// The directive that holds here.
    pub(crate) fn one(&self, name: &str) -> Option<&'s Directive> {
        self.0.iter().find_map(|level| level.iter().rev().find(|directive| directive.name == name))
    }

    /// Those that hold here: of the innermost block that has any. So a block with an `add_header` loses those above.
    pub(crate) fn all(&self, name: &str) -> Vec<&'s Directive> {
        let levels =
            self.0.iter().map(|level| level.iter().filter(|directive| directive.name == name).collect());
        levels.into_iter().find(|found: &Vec<_>| !found.is_empty()).unwrap_or_default()
    }

    /// The same, of two directives that nginx keeps in one list (`allow`, `deny`).
    pub(crate) fn all_of(&self, names: [&str; 2]) -> Vec<&'s Directive> {
        let is_one = |directive: &&Directive| names.contains(&directive.name.as_str());
        let levels = self.0.iter().map(|level| level.iter().filter(is_one).collect());
        levels.into_iter().find(|found: &Vec<_>| !found.is_empty()).unwrap_or_default()
    }

    /// The innermost block.
    pub(crate) fn own(&self) -> &'s [Directive] {
        self.0.first().copied().unwrap_or_default()
    }

    /// A directive of the innermost block.
    pub(crate) fn here(&self, name: &str) -> Option<&'s Directive> {
        self.own().iter().rev().find(|directive| directive.name == name)
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

    /// Whether a directive stands in the outermost block.
    pub(crate) fn is_outermost(&self, directive: &Directive) -> bool {
        self.0.last().is_some_and(|level| level.iter().any(|other| other.number == directive.number))
    }
}
