//! Evaluates the rules once for a region. Conditions that the region leaves open are decided in turn: first as
//! met, in a later evaluation as not met.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::atom::{self, Atom, HostIs, Meet, PathIs, Patterns, TextIs};
use super::formula::Formula;
use super::space::{Region, Space};

/// The value of a request field after rules that changed it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FieldNow {
    Absent,
    Is(String),
    /// A text with variables.
    Unknown,
}

/// The path of requests after rules that changed it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PathNow {
    Is(String),
    /// A path that begins with this text. The rest is unknown.
    Begins(String),
    /// The original path without this beginning.
    Without(String),
    Unknown,
}

impl PathNow {
    /// The condition on the original path that is equal to one on the new path; `None` if there is none.
    fn before(&self, path: &PathIs, patterns: &Patterns) -> Option<Formula> {
        match (self, path) {
            (Self::Is(now), path) => Some(Formula::Known(PathIs::Exact(now.clone()).implies(path, patterns))),
            (Self::Begins(begin), PathIs::Prefix(prefix)) if begin.starts_with(prefix) => {
                Some(Formula::Known(true))
            }
            (Self::Begins(begin), PathIs::Exact(path) | PathIs::Prefix(path)) => {
                (!path.starts_with(begin)).then_some(Formula::Known(false))
            }
            (Self::Begins(begin), PathIs::PrefixAnyCase(prefix))
                if begin.to_ascii_lowercase().starts_with(prefix) =>
            {
                Some(Formula::Known(true))
            }
            (Self::Begins(begin), PathIs::ExactAnyCase(path) | PathIs::PrefixAnyCase(path)) => {
                (!path.starts_with(&begin.to_ascii_lowercase())).then_some(Formula::Known(false))
            }
            (Self::Without(prefix), path) => path.behind(prefix).map(|path| Formula::Atom(Atom::Path(path))),
            _ => None,
        }
    }
}

/// The conditions that hold for the requests of an evaluation.
pub(crate) struct Holds<'s> {
    space: &'s Space,
    /// The evaluation is for their intersection.
    regions: Vec<Region>,
    /// Truth of each host and path of the space.
    truth: Vec<bool>,
    decisions: RefCell<Decisions>,
    changed: RefCell<BTreeMap<String, FieldNow>>,
    path: RefCell<Option<PathNow>>,
    takes_minor: bool,
}

#[derive(Default)]
struct Decisions {
    /// The answers to give, in order. After the last, conditions are met.
    script: Vec<bool>,
    taken: Vec<(Formula, bool)>,
    /// Conditions that follow from the answers.
    facts: BTreeMap<Formula, bool>,
    /// True facts, in order.
    met: Vec<Formula>,
    /// False atoms that others may imply, by their kind and name.
    unmet: BTreeMap<(u8, String), Vec<Atom>>,
}

impl<'s> Holds<'s> {
    pub(super) fn new(
        space: &'s Space,
        regions: &[Region],
        truth: Vec<bool>,
        script: Vec<bool>,
        takes_minor: bool,
    ) -> Self {
        let regions = regions.to_vec();
        let decisions = RefCell::new(Decisions { script, ..Decisions::default() });
        let (changed, path) = (RefCell::default(), RefCell::default());
        Self { space, regions, truth, decisions, changed, path, takes_minor }
    }

    pub(super) fn into_taken(self) -> Vec<(Formula, bool)> {
        self.decisions.into_inner().taken
    }

    /// Whether a condition holds.
    pub(crate) fn atom(&self, atom: &Atom) -> bool {
        self.decide(Formula::Atom(atom.clone()))
    }

    /// The host of these requests, if it is exact.
    pub(crate) fn host(&self) -> Option<&str> {
        self.space.atoms().zip(&self.truth).find_map(|(atom, holds)| match atom {
            Atom::Host(HostIs::Exact(host)) if *holds => Some(host.as_str()),
            _ => None,
        })
    }

    /// Whether rules about fields may branch here. Where routes would become too many, they may not.
    pub(super) fn takes_minor(&self) -> bool {
        self.takes_minor
    }

    /// Remembers that a rule changed a field of the request: later conditions see the new value.
    pub(crate) fn change_field(&self, name: &str, now: FieldNow) {
        self.changed.borrow_mut().insert(name.to_ascii_lowercase(), now);
    }

    /// The value of a field that a rule changed.
    pub(crate) fn changed_field(&self, name: &str) -> Option<FieldNow> {
        self.changed.borrow().get(&name.to_ascii_lowercase()).cloned()
    }

    /// Remembers that a rule changed the path. Returns the change before it, for [`restore_path`](Self::restore_path).
    pub(crate) fn change_path(&self, now: PathNow) -> Option<PathNow> {
        let mut path = self.path.borrow_mut();
        let now = if path.is_some() && !matches!(now, PathNow::Is(_)) { PathNow::Unknown } else { now };
        path.replace(now)
    }

    /// Takes a change back, after a block that alone sees it.
    pub(crate) fn restore_path(&self, before: Option<PathNow>) {
        *self.path.borrow_mut() = before;
    }

    /// The truth of an atom after changes by rules; `Err` if it cannot be known.
    pub(super) fn after_changes(&self, atom: &Atom) -> Result<Formula, String> {
        match atom {
            Atom::Path(path) => match &*self.path.borrow() {
                None => Ok(Formula::Atom(atom.clone())),
                Some(now) => now
                    .before(path, self.space.patterns())
                    .ok_or_else(|| "an earlier rule changes the path".to_owned()),
            },
            Atom::Header(name, text) => match self.changed.borrow().get(&name.to_ascii_lowercase()) {
                None => Ok(Formula::Atom(atom.clone())),
                Some(FieldNow::Absent) => Ok(Formula::Known(false)),
                Some(FieldNow::Is(value)) => {
                    let value = TextIs::Exact(value.clone());
                    Ok(Formula::Known(value.implies(text, self.space.patterns())))
                }
                Some(FieldNow::Unknown) => Err(format!("an earlier rule changes the field {name}")),
            },
            Atom::Host(host) => match self.changed.borrow().get("host") {
                None => Ok(Formula::Atom(atom.clone())),
                Some(FieldNow::Is(now)) => {
                    let now = HostIs::Exact(now.to_ascii_lowercase());
                    Ok(Formula::Known(now.implies(host, self.space.patterns())))
                }
                Some(_) => Err("an earlier rule changes the host".to_owned()),
            },
            Atom::When(text) => {
                let changed = self.changed.borrow();
                let name = changed.keys().find(|name| match name.as_str() {
                    "host" => text.contains("request.host"),
                    name => text.contains(&format!("request.headers[\"{name}\"]")),
                });
                match name {
                    Some(name) => Err(format!("an earlier rule changes the field {name}")),
                    None if self.path.borrow().is_some()
                        && (text.contains("request.path") || text.contains("request.raw_path")) =>
                    {
                        Err("an earlier rule changes the path".to_owned())
                    }
                    None => Ok(Formula::Atom(atom.clone())),
                }
            }
            _ => Ok(Formula::Atom(atom.clone())),
        }
    }

    /// Checks that no earlier rule changes what an expression asks for.
    ///
    /// # Errors
    /// What it changes.
    pub(crate) fn check_unchanged(&self, text: &str) -> Result<(), String> {
        self.after_changes(&Atom::When(text.to_owned())).map(drop)
    }

    /// Returns the rest of a condition for these requests.
    pub(crate) fn rest_of(&self, formula: Formula) -> Formula {
        let simplified = match formula {
            Formula::Known(is) => return Formula::Known(is),
            Formula::Atom(atom) => self.rest_of_atom(atom),
            Formula::Not(inner) => self.rest_of(*inner).negated(),
            Formula::All(parts) => Formula::all(parts.into_iter().map(|part| self.rest_of(part)).collect()),
            Formula::Any(parts) => Formula::any(parts.into_iter().map(|part| self.rest_of(part)).collect()),
        };
        self.space.add_work(1);
        let known = self.decisions.borrow().facts.get(&simplified).copied();
        known.map_or(simplified, Formula::Known)
    }

    fn rest_of_atom(&self, atom: Atom) -> Formula {
        if let Some(place) = self.space.place(&atom) {
            return Formula::Known(self.truth[place]);
        }
        if let Some(is) = self.regions.iter().find_map(|region| self.space.decides(*region, &atom)) {
            return Formula::Known(is);
        }
        let patterns = self.space.patterns();
        let decisions = self.decisions.borrow();
        if let Some(is) = decisions.met.iter().find_map(|fact| self.follows(fact, &atom)) {
            return Formula::Known(is);
        }
        let unmet = kind(&atom).and_then(|kind| decisions.unmet.get(&kind));
        for fact in unmet.into_iter().flatten() {
            self.space.add_work(1);
            if atom::implies(&atom, fact, patterns) {
                return Formula::Known(false);
            }
        }
        drop(decisions);
        Formula::Atom(atom)
    }

    /// The truth of an atom for requests that meet a condition, if each of its alternatives decides it.
    fn follows(&self, fact: &Formula, atom: &Atom) -> Option<bool> {
        self.space.add_work(1);
        match fact {
            Formula::Atom(fact) if atom::implies(fact, atom, self.space.patterns()) => Some(true),
            Formula::Atom(fact) if excludes(fact, atom, self.space.patterns()) => Some(false),
            Formula::Any(parts) => {
                let (first, rest) = parts.split_first()?;
                let is = self.follows(first, atom)?;
                rest.iter().all(|part| self.follows(part, atom) == Some(is)).then_some(is)
            }
            _ => None,
        }
    }

    /// Whether a condition holds: by the region and earlier decisions, or decided now.
    pub(crate) fn decide(&self, formula: Formula) -> bool {
        match self.rest_of(formula) {
            Formula::Known(is) => is,
            Formula::Not(inner) => !self.decide(*inner),
            Formula::All(parts) if !self.space.is_writable(&Formula::All(parts.clone())) => {
                parts.into_iter().all(|part| self.decide(part))
            }
            // Each half may be short enough.
            Formula::Any(mut parts) if !self.space.is_writable(&Formula::Any(parts.clone())) => {
                let other = parts.split_off(parts.len() / 2);
                self.decide(Formula::any(parts)) || self.decide(Formula::any(other))
            }
            formula => {
                let mut decisions = self.decisions.borrow_mut();
                let is = decisions.script.get(decisions.taken.len()).copied().unwrap_or(true);
                learn(&formula, is, &mut decisions);
                decisions.taken.push((formula, is));
                is
            }
        }
    }
}

/// Whether no request meets both.
fn excludes(one: &Atom, other: &Atom, patterns: &Patterns) -> bool {
    match (one, other) {
        (Atom::Methods(one), Atom::Methods(other)) => !one.iter().any(|method| other.contains(method)),
        (Atom::Host(HostIs::Exact(_)), Atom::Host(_)) => !atom::implies(one, other, patterns),
        (Atom::Path(one), Atom::Path(other)) => one.meet(other, patterns) == Meet::Nothing,
        _ => false,
    }
}

/// The kind of a condition that another one may imply, and its name. Equal conditions are found without it.
fn kind(atom: &Atom) -> Option<(u8, String)> {
    Some(match atom {
        Atom::Host(_) => (0, String::new()),
        Atom::Path(_) => (1, String::new()),
        Atom::Methods(_) => (2, String::new()),
        Atom::Clients(_) => (3, String::new()),
        Atom::Header(name, _) => (4, name.to_ascii_lowercase()),
        Atom::Cookie(name, _) => (5, name.clone()),
        Atom::Query(name, _) => (6, name.clone()),
        Atom::When(_) => return None,
    })
}

/// Whether another condition than an equal one may imply this.
fn is_wide(atom: &Atom) -> bool {
    match atom {
        Atom::Host(host) => !matches!(host, HostIs::Exact(_)),
        Atom::Path(path) => !matches!(path, PathIs::Exact(_) | PathIs::ExactAnyCase(_)),
        Atom::Header(_, text) | Atom::Cookie(_, text) | Atom::Query(_, text) => {
            !matches!(text, TextIs::Exact(_))
        }
        Atom::Methods(_) | Atom::Clients(_) => true,
        Atom::When(_) => false,
    }
}

/// Adds what follows from the truth of a condition.
fn learn(formula: &Formula, is: bool, decisions: &mut Decisions) {
    match formula {
        Formula::Not(inner) => learn(inner, !is, decisions),
        Formula::All(parts) if is => parts.iter().for_each(|part| learn(part, true, decisions)),
        Formula::Any(parts) if !is => parts.iter().for_each(|part| learn(part, false, decisions)),
        other => {
            decisions.facts.insert(other.clone(), is);
            match other {
                other if is => decisions.met.push(other.clone()),
                Formula::Atom(atom) => {
                    if let Some(kind) = kind(atom).filter(|_| is_wide(atom)) {
                        decisions.unmet.entry(kind).or_default().push(atom.clone());
                    }
                }
                _ => {}
            }
        }
    }
}
