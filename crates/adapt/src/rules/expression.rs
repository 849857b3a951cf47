//! Conditions that are put together of others: all, one, none.

use super::{Atom, Holds, Test};
use crate::draft::Origin;

/// A condition on requests.
#[derive(Debug, Clone)]
pub(crate) enum Expression {
    All(Vec<Expression>),
    Either(Vec<Expression>),
    Not(Box<Expression>),
    /// One of these, from the statement with this number.
    Any(Vec<Atom>, usize),
    /// Whether the client uses TLS.
    Tls,
    /// What no route can say, and why.
    Unsaid(String),
}

impl Expression {
    /// Of these conditions all.
    pub(crate) fn all(mut parts: Vec<Self>) -> Self {
        if parts.len() == 1 { parts.remove(0) } else { Self::All(parts) }
    }

    pub(crate) fn not(self) -> Self {
        Self::Not(Box::new(self))
    }

    /// Whether it holds, or why that cannot be said.
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

    /// What decides is the first part that is so, even where others cannot be said.
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

    /// All conditions that routes can have.
    pub(crate) fn tests(&self, into: &mut Vec<Test>) {
        match self {
            Self::All(parts) | Self::Either(parts) => parts.iter().for_each(|part| part.tests(into)),
            Self::Not(inner) => inner.tests(into),
            Self::Any(atoms, number) => into.extend(
                atoms.iter().map(|atom| Test { atom: atom.clone(), from: vec![Origin::Directive(*number)] }),
            ),
            Self::Tls | Self::Unsaid(_) => {}
        }
    }

    /// The statements that it came from.
    pub(crate) fn numbers(&self) -> Vec<usize> {
        match self {
            Self::All(parts) | Self::Either(parts) => parts.iter().flat_map(Self::numbers).collect(),
            Self::Not(inner) => inner.numbers(),
            Self::Any(_, number) => vec![*number],
            Self::Tls | Self::Unsaid(_) => Vec::new(),
        }
    }
}
