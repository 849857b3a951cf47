//! Expressions of conditions, and their evaluation.

use super::{Atom, Holds, Test};
use crate::draft::StatementOrigin;

/// Conditions combined by all, any, not.
#[derive(Debug, Clone)]
pub(crate) enum Expression {
    All(Vec<Expression>),
    Either(Vec<Expression>),
    Not(Box<Expression>),
    /// At least one of these, from the statement with this number.
    Any(Vec<Atom>, usize),
    Tls,
    /// Unsupported by routes, for this reason.
    Unsaid(String),
}

impl Expression {
    pub(crate) fn all(mut parts: Vec<Self>) -> Self {
        if parts.len() == 1 { parts.remove(0) } else { Self::All(parts) }
    }

    pub(crate) fn not(self) -> Self {
        Self::Not(Box::new(self))
    }

    /// Evaluates the condition, or returns why that is impossible.
    pub(crate) fn verdict(&self, holds: &Holds<'_>, has_tls: bool) -> Result<bool, String> {
        match self {
            Self::All(parts) => Self::first(parts, false, holds, has_tls),
            Self::Either(parts) => Self::first(parts, true, holds, has_tls),
            Self::Not(inner) => inner.verdict(holds, has_tls).map(|is| !is),
            Self::Any(atoms, _) => Ok(atoms.iter().any(|atom| holds.atom(atom))),
            Self::Tls => Ok(has_tls),
            Self::Unsaid(why) => Err(why.clone()),
        }
    }

    /// Evaluates parts until one decides, even if others are unsupported.
    fn first(parts: &[Self], decides: bool, holds: &Holds<'_>, has_tls: bool) -> Result<bool, String> {
        let mut unsaid = None;
        for part in parts {
            match part.verdict(holds, has_tls) {
                Ok(is) if is == decides => return Ok(decides),
                Ok(_) => {}
                Err(why) => unsaid = Some(why),
            }
        }
        unsaid.map_or(Ok(!decides), Err)
    }

    pub(crate) fn tests(&self, into: &mut Vec<Test>) {
        match self {
            Self::All(parts) | Self::Either(parts) => parts.iter().for_each(|part| part.tests(into)),
            Self::Not(inner) => inner.tests(into),
            Self::Any(atoms, number) => into.extend(
                atoms
                    .iter()
                    .map(|atom| Test { atom: atom.clone(), from: vec![StatementOrigin::Directive(*number)] }),
            ),
            Self::Tls | Self::Unsaid(_) => {}
        }
    }

    pub(crate) fn numbers(&self) -> Vec<usize> {
        match self {
            Self::All(parts) | Self::Either(parts) => parts.iter().flat_map(Self::numbers).collect(),
            Self::Not(inner) => inner.numbers(),
            Self::Any(_, number) => vec![*number],
            Self::Tls | Self::Unsaid(_) => Vec::new(),
        }
    }
}
