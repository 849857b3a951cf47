//! The results of the rules within a region, as an ordered list: the first whose conditions hold decides.

use super::atom::{self, Atom};
use super::formula::Formula;
use super::holds::Holds;
use super::space::{Region, Space};
use super::{RegionOutcome, answer};
use crate::draft::{DraftTable, StatementOrigin};

/// Above this number of results in a region, rules about fields no longer branch.
const MINOR_MAX: usize = 64;
/// The most results in a region. The other requests get 501.
const LEAVES_MAX: usize = 1000;
/// The most evaluations of the rules.
const JUDGEMENTS_MAX: usize = 20_000;
/// Above this number, results are not compared with each other, which takes time with the third power.
const COMPARED_MAX: usize = 128;

/// A result, and the conditions that must hold for it. The last of a list has none.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    pub(super) conditions: Vec<Formula>,
    pub(super) outcome: RegionOutcome,
}

impl Leaf {
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        self.conditions == other.conditions && self.outcome.options.says_the_same(&other.outcome.options)
    }

    /// Whether each condition in it is also one of these.
    fn is_implied_by(&self, conditions: &[Formula]) -> bool {
        self.conditions.iter().all(|condition| conditions.contains(condition))
    }
}

pub(super) fn are_the_same(one: &[Leaf], other: &[Leaf]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.says_the_same(other))
}

/// Evaluates rules.
pub(super) struct Explorer<'j> {
    judge: &'j mut dyn FnMut(&Holds<'_>) -> RegionOutcome,
    left: usize,
    /// Whether the rules of every region must have a translation, else the attempt is abandoned.
    is_strict: bool,
    pub(super) is_abandoned: bool,
    /// Whether a region has more results than are written.
    pub(super) is_cut: bool,
}

impl<'j> Explorer<'j> {
    pub(super) fn new(judge: &'j mut dyn FnMut(&Holds<'_>) -> RegionOutcome) -> Self {
        Self { judge, left: JUDGEMENTS_MAX, is_strict: false, is_abandoned: false, is_cut: false }
    }

    pub(super) fn strict(judge: &'j mut dyn FnMut(&Holds<'_>) -> RegionOutcome) -> Self {
        Self { is_strict: true, ..Self::new(judge) }
    }

    pub(super) fn restart(&mut self) {
        (self.left, self.is_cut) = (JUDGEMENTS_MAX, false);
    }

    /// Evaluates the rules for the intersection of regions, once for each path through their decisions.
    pub(super) fn leaves(&mut self, space: &Space, regions: &[Region]) -> Vec<Leaf> {
        let mut takes_minor = true;
        let mut leaves: Vec<Leaf> = Vec::new();
        let mut script: Vec<bool> = Vec::new();
        loop {
            let is_late = self.left == 0 || space.is_exhausted();
            let is_full = is_late || leaves.len() >= LEAVES_MAX;
            self.is_abandoned |= self.is_strict && (is_full || leaves.len() >= MINOR_MAX);
            if self.is_abandoned {
                return leaves;
            }
            if takes_minor && (is_full || leaves.len() >= MINOR_MAX) && !is_late {
                takes_minor = false;
                (leaves, script) = (Vec::new(), Vec::new());
                continue;
            }
            if is_full {
                self.is_cut = true;
                leaves.push(Leaf { conditions: Vec::new(), outcome: too_many() });
                break;
            }
            self.left -= 1;
            let holds = space.holds(regions, script, takes_minor);
            let outcome = (self.judge)(&holds);
            let taken = holds.into_taken();
            script = taken.iter().map(|(_, is)| *is).collect();
            let met = taken.into_iter().filter(|(_, is)| *is).map(|(formula, _)| formula);
            let conditions = Formula::all(met.collect()).conjuncts();
            leaves.push(Leaf { conditions, outcome });
            while script.last() == Some(&false) {
                script.pop();
            }
            match script.last_mut() {
                Some(last) => *last = false,
                None => break,
            }
        }
        reduced(leaves)
    }
}

/// The response where rules have more results than can become routes.
fn too_many() -> RegionOutcome {
    let mut options = DraftTable::default();
    let body = Some(("more conditions than can become routes\n", "text/plain"));
    options.set("respond", answer(501, body), vec![StatementOrigin::Default("too many conditions")]);
    RegionOutcome { from: Vec::new(), options }
}

/// Removes results that requests get without them.
fn reduced(mut leaves: Vec<Leaf>) -> Vec<Leaf> {
    let same = |one: &Leaf, other: &Leaf| one.outcome.options.says_the_same(&other.outcome.options);
    if leaves.len() <= COMPARED_MAX {
        // A result with fewer conditions moves ahead, if requests between the two already get it.
        let mut at = 0;
        while at < leaves.len() {
            let wider = (at + 1..leaves.len()).find(|later| {
                let (one, other) = (&leaves[at], &leaves[*later]);
                let both = |between: &Leaf| [&between.conditions[..], &other.conditions].concat();
                other.conditions.len() < one.conditions.len()
                    && same(one, other)
                    && other.is_implied_by(&one.conditions)
                    && leaves[at + 1..*later]
                        .iter()
                        .all(|between| same(between, one) || one.is_implied_by(&both(between)))
            });
            match wider {
                Some(later) => leaves[at] = leaves.remove(later),
                None => at += 1,
            }
        }
    }
    let mut kept: Vec<Leaf> = Vec::new();
    for leaf in leaves.into_iter().rev() {
        let mut next = kept.iter().rev().take_while(|later| same(&leaf, later));
        let is_needless = next.any(|later| later.is_implied_by(&leaf.conditions));
        if !is_needless {
            // Nothing behind a result without conditions is reached.
            if leaf.conditions.is_empty() {
                kept.clear();
            }
            kept.push(leaf);
        }
    }
    kept.reverse();
    kept
}

/// Form of a route: options, and the rest as `when`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RouteForm {
    pub(super) options: Vec<Atom>,
    pub(super) when: Option<String>,
    /// Whether the condition cannot be written: the route stands for more requests, which get 501.
    pub(super) is_cut: bool,
}

impl RouteForm {
    /// Options where possible.
    fn with_options(conditions: &[Formula], space: &Space) -> Self {
        let patterns = space.patterns();
        let (mut options, mut rest): (Vec<Atom>, Vec<Formula>) = (Vec::new(), Vec::new());
        for condition in conditions {
            let Formula::Atom(atom) = condition else {
                rest.push(condition.clone());
                continue;
            };
            let has_option = !matches!(atom, Atom::Host(_) | Atom::Path(_) | Atom::When(_));
            if has_option && options.iter().any(|known| atom::implies(known, atom, patterns)) {
                continue;
            }
            match atom::with(&options, atom, patterns).filter(|_| has_option) {
                Some(more) => options = more,
                None => rest.push(condition.clone()),
            }
        }
        Self::new(options, rest, space)
    }

    /// As `when` alone.
    fn alone(conditions: &[Formula], space: &Space) -> Self {
        Self::new(Vec::new(), conditions.to_vec(), space)
    }

    fn new(options: Vec<Atom>, mut rest: Vec<Formula>, space: &Space) -> Self {
        let mut is_cut = false;
        let when = loop {
            match Formula::all(rest.clone()) {
                Formula::Known(true) => break None,
                formula => match formula.written(space.schema()) {
                    Some(text) => break Some(text),
                    // Fewer conditions stand for more requests.
                    None => {
                        rest.pop();
                        is_cut = true;
                    }
                },
            }
        };
        Self { options, when, is_cut }
    }

    /// Vanward's precedence within a host and path: the smallest first; for equal ones, the first in the file.
    fn rank(&self) -> [usize; 9] {
        let of = |is_it: fn(&Atom) -> Option<usize>| {
            let strict: Vec<usize> = self.options.iter().filter_map(is_it).collect();
            (usize::MAX - strict.len(), usize::MAX - strict.iter().sum::<usize>())
        };
        let methods = self.options.iter().find_map(|atom| match atom {
            Atom::Methods(methods) => Some(methods.len()),
            _ => None,
        });
        let clients = self.options.iter().find_map(|atom| match atom {
            Atom::Clients(networks) => networks.iter().map(|network| crate::values::host_bits(network)).max(),
            _ => None,
        });
        let headers = of(|atom| matches!(atom, Atom::Header(..)).then(|| atom.strictness()));
        let cookies = of(|atom| matches!(atom, Atom::Cookie(..)).then(|| atom.strictness()));
        let query = of(|atom| matches!(atom, Atom::Query(..)).then(|| atom.strictness()));
        [
            methods.unwrap_or(usize::MAX),
            headers.0,
            headers.1,
            cookies.0,
            cookies.1,
            query.0,
            query.1,
            usize::from(self.when.is_none()),
            clients.unwrap_or(usize::MAX),
        ]
    }

    /// Whether no request meets both.
    fn excludes(&self, other: &Self) -> bool {
        let methods = |form: &Self| {
            form.options.iter().find_map(|atom| match atom {
                Atom::Methods(methods) => Some(methods.clone()),
                _ => None,
            })
        };
        match (methods(self), methods(other)) {
            (Some(one), Some(other)) => !one.iter().any(|method| other.contains(method)),
            _ => false,
        }
    }
}

/// Chooses forms such that Vanward takes the results in their order.
pub(super) fn forms(leaves: &[Leaf], space: &Space) -> Vec<RouteForm> {
    let mut forms: Vec<RouteForm> =
        leaves.iter().map(|leaf| RouteForm::with_options(&leaf.conditions, space)).collect();
    let mut is_alone: Vec<bool> = leaves
        .iter()
        .zip(&forms)
        .map(|(leaf, form)| form.options.is_empty() || leaf.conditions.is_empty())
        .collect();
    let mut ranks: Vec<[usize; 9]> = forms.iter().map(RouteForm::rank).collect();
    // Each round writes at least one more as `when` alone, or is the last.
    let mut is_done = false;
    while !is_done {
        is_done = true;
        for (early, later) in (0..forms.len()).flat_map(|later| (0..later).map(move |early| (early, later))) {
            let are_alone = is_alone[early] && is_alone[later];
            let is_wrong = ranks[early] > ranks[later]
                && !are_alone
                && !forms[early].excludes(&forms[later])
                && !leaves[early].outcome.options.says_the_same(&leaves[later].outcome.options);
            if is_wrong {
                let place = if is_alone[later] { early } else { later };
                is_alone[place] = true;
                forms[place] = RouteForm::alone(&leaves[place].conditions, space);
                ranks[place] = forms[place].rank();
                is_done = false;
            }
        }
    }
    forms
}
