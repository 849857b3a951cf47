//! Expressions of conditions, and their evaluation.

use super::{Atom, Formula, Holds, Test};
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
    /// Cannot be translated, for this reason.
    Unsaid(String),
}

/// A condition with parts that are not translated: what holds if they do not, and if they do.
struct Bounds {
    least: Formula,
    most: Formula,
    why: Option<String>,
}

impl Bounds {
    fn exact(formula: Formula) -> Self {
        Self { least: formula.clone(), most: formula, why: None }
    }

    fn unsaid(why: String) -> Self {
        Self { least: Formula::Known(false), most: Formula::Known(true), why: Some(why) }
    }

    fn joined(parts: Vec<Self>, join: fn(Vec<Formula>) -> Formula) -> Self {
        let why = parts.iter().find_map(|part| part.why.clone());
        let (least, most) = parts.into_iter().map(|part| (part.least, part.most)).unzip();
        Self { least: join(least), most: join(most), why }
    }
}

impl Expression {
    pub(crate) fn all(mut parts: Vec<Self>) -> Self {
        if parts.len() == 1 { parts.remove(0) } else { Self::All(parts) }
    }

    pub(crate) fn either(mut parts: Vec<Self>) -> Self {
        if parts.len() == 1 { parts.remove(0) } else { Self::Either(parts) }
    }

    pub(crate) fn not(self) -> Self {
        match self {
            Self::Not(inner) => *inner,
            other => Self::Not(Box::new(other)),
        }
    }

    pub(crate) fn fixed(is: bool) -> Self {
        if is { Self::All(Vec::new()) } else { Self::Either(Vec::new()) }
    }

    /// Whether the condition holds; or why it is unknown for these requests, which all meet its translated parts.
    pub(crate) fn verdict(&self, holds: &Holds<'_>, has_tls: bool) -> Result<bool, String> {
        let Bounds { least, most, why } = self.bounds(holds, has_tls);
        if !holds.decide(most) {
            return Ok(false);
        }
        let Some(why) = why else { return Ok(true) };
        if holds.decide(least) { Ok(true) } else { Err(why) }
    }

    /// As [`verdict`](Self::verdict), for a rule that only changes fields. Where routes would become too many, its
    /// condition is not decided.
    pub(crate) fn minor_verdict(&self, holds: &Holds<'_>, has_tls: bool) -> Result<bool, String> {
        if !holds.takes_minor() {
            let rest = holds.rest_of(self.bounds(holds, has_tls).most);
            if !matches!(rest, Formula::Known(_)) {
                return Err("it depends on more conditions than can become routes".to_owned());
            }
        }
        self.verdict(holds, has_tls)
    }

    /// Returns the rest of the condition for these requests, or why it is unknown.
    pub(crate) fn rest(&self, holds: &Holds<'_>, has_tls: bool) -> Result<Formula, String> {
        let Bounds { most, why, .. } = self.bounds(holds, has_tls);
        match (holds.rest_of(most), why) {
            (Formula::Known(false), _) => Ok(Formula::Known(false)),
            (_, Some(why)) => Err(why),
            (rest, None) => Ok(rest),
        }
    }

    fn bounds(&self, holds: &Holds<'_>, has_tls: bool) -> Bounds {
        let each = |parts: &[Self]| parts.iter().map(|part| part.bounds(holds, has_tls)).collect();
        match self {
            Self::All(parts) => Bounds::joined(each(parts), Formula::all),
            Self::Either(parts) => Bounds::joined(each(parts), Formula::any),
            Self::Not(inner) => {
                let Bounds { least, most, why } = inner.bounds(holds, has_tls);
                Bounds { least: most.negated(), most: least.negated(), why }
            }
            Self::Any(atoms, _) => {
                let atoms = atoms.iter().map(|atom| match holds.after_changes(atom) {
                    Ok(formula) => Bounds::exact(formula),
                    Err(why) => Bounds::unsaid(why),
                });
                Bounds::joined(atoms.collect(), Formula::any)
            }
            Self::Tls => Bounds::exact(Formula::Known(has_tls)),
            Self::Unsaid(why) => Bounds::unsaid(why.clone()),
        }
    }

    /// The condition for all requests.
    ///
    /// # Errors
    /// Why a part of it has no translation.
    pub(crate) fn formula(&self) -> Result<Formula, String> {
        let each = |parts: &[Self]| parts.iter().map(Self::formula).collect::<Result<Vec<_>, _>>();
        Ok(match self {
            Self::All(parts) => Formula::all(each(parts)?),
            Self::Either(parts) => Formula::any(each(parts)?),
            Self::Not(inner) => inner.formula()?.negated(),
            Self::Any(atoms, _) => Formula::any(atoms.iter().cloned().map(Formula::Atom).collect()),
            Self::Tls => Formula::Atom(Atom::When("has(client.tls.version)".to_owned())),
            Self::Unsaid(why) => return Err(why.clone()),
        })
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
