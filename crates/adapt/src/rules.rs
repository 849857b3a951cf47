//! Converts ordered rules to routes: other proxies apply rules in order, Vanward uses the most specific route.
//!
//! Each combination of host and path that conditions distinguish is a region. The rules are evaluated for each region;
//! other conditions are decided in order, and each path through these decisions is a route. Routes that change no
//! result are dropped. So order, negation and rules that fall through need no counterpart.

/// Conditions on requests.
mod atom;
/// Conditions as formulas, and as texts for `when`.
mod formula;
/// Combined conditions.
mod expression;
/// Hosts and paths.
mod space;
/// An evaluation of the rules, and its decisions.
mod holds;
/// Results of a region, in order.
mod leaves;
/// Routes as tables.
mod tables;

pub(crate) use atom::{Atom, HostIs, PathIs, TextIs, is_host, is_path};
pub(crate) use expression::Expression;
pub(crate) use formula::{Formula, literal, spelled};
pub(crate) use holds::{FieldNow, Holds, PathNow};

use std::collections::BTreeSet;

use ::expression::Schema;

use atom::Meet;
use leaves::{Explorer, Leaf, are_the_same};
use space::{Region, Space};

use crate::draft::{DraftTable, DraftValue, StatementOrigin};

/// The most regions, about. Further paths and hosts are decided within regions.
const REGIONS_MAX: usize = 4000;
/// The most hosts of regions. Each is compared with all others.
const HOSTS_MAX: usize = 1000;
/// The most paths of regions, for the same reason.
const PATHS_MAX: usize = 250;

#[derive(Debug, Clone)]
pub(crate) struct Test {
    pub(crate) atom: Atom,
    pub(crate) from: Vec<StatementOrigin>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct RegionOutcome {
    pub(crate) from: Vec<StatementOrigin>,
    pub(crate) options: DraftTable,
}

pub(crate) struct Routes {
    pub(crate) tables: Vec<DraftTable>,
    /// Conditions whose overlap with others matters, but that no route can express.
    pub(crate) unsaid: Vec<StatementOrigin>,
    /// Conditions of rules that have more results than can become routes: their requests get 501.
    pub(crate) dropped: Vec<StatementOrigin>,
}

/// Converts ordered rules to routes. `judge` evaluates them for a region and one path through its decisions. `schema` has
/// the names that their conditions may use.
///
/// Where a path repeats many rules, it is decided within regions instead, if that takes fewer routes. Hosts stay options
/// of routes, because certificates go by them, unless rules would be lost.
pub(crate) fn routes(
    tests: &[Test],
    schema: &Schema,
    judge: &mut dyn FnMut(&Holds<'_>) -> RegionOutcome,
) -> Routes {
    let mut best = attempt(tests, schema, &BTreeSet::new(), Explorer::new(judge));
    if !best.routes.dropped.is_empty() {
        // With one region, each rule is decided once.
        let places = tests.iter().map(|test| test.atom.clone()).collect();
        let other = attempt(tests, schema, &places, Explorer::new(judge));
        return if other.routes.dropped.is_empty() { other.routes } else { best.routes };
    }
    if best.repeated.is_empty() {
        return best.routes;
    }
    let is_path = |atom: &&Atom| matches!(atom, Atom::Path(_));
    let repeated = best.repeated.clone();
    let paths: BTreeSet<Atom> = tests.iter().map(|test| &test.atom).filter(is_path).cloned().collect();
    for open in [repeated, paths] {
        let other = attempt(tests, schema, &open, Explorer::strict(judge));
        // Options of routes are preferred where they cost a few routes: they are faster and easier to read.
        if !other.is_abandoned && other.routes.tables.len() * 4 <= best.routes.tables.len() * 3 {
            best = other;
        }
    }
    best.routes
}

struct RouteAttempt {
    routes: Routes,
    /// Paths that repeat rules.
    repeated: BTreeSet<Atom>,
    is_abandoned: bool,
}

fn attempt(
    tests: &[Test],
    schema: &Schema,
    opened: &BTreeSet<Atom>,
    mut explorer: Explorer<'_>,
) -> RouteAttempt {
    /// Each round evaluates all rules.
    const ROUNDS_MAX: usize = 5;
    let mut open = opened.clone();
    let mut round = 1;
    loop {
        let space = Space::new(tests, schema, &open);
        explorer.restart();
        let found = kept(&space, &mut explorer);
        let overlapping = unsaid(&space, &mut explorer);
        if !explorer.is_abandoned && round < ROUNDS_MAX && !overlapping.is_empty() {
            // Decided within regions, each request gets the result of all of its conditions.
            open.extend(overlapping);
            round += 1;
            continue;
        }
        let from = |atom: &Atom| {
            let test = tests.iter().find(|test| test.atom == *atom);
            test.map_or(Vec::new(), |test| test.from.clone())
        };
        let all = || tests.iter().flat_map(|test| test.from.clone()).collect();
        let routes = Routes {
            tables: tables::tables(&space, &found.kept, tests),
            unsaid: overlapping.iter().flat_map(from).collect(),
            dropped: if explorer.is_cut { all() } else { Vec::new() },
        };
        return RouteAttempt { routes, repeated: found.repeated, is_abandoned: explorer.is_abandoned };
    }
}

/// The results of regions that are written, and paths that repeat rules.
#[derive(Default)]
struct FoundRegions {
    kept: Vec<(Region, Vec<Leaf>)>,
    repeated: BTreeSet<Atom>,
}

/// Returns the results of regions that others do not give, in the order of precedence.
fn kept(space: &Space, explorer: &mut Explorer<'_>) -> FoundRegions {
    /// A region with more results repeats rules.
    const REPEATED_MIN: usize = 2;
    let mut known: Vec<(Region, Vec<Leaf>)> = Vec::new();
    let mut found = FoundRegions::default();
    // General regions come first, because the fallback of a region is decided before it.
    for region in space.regions() {
        let leaves = explorer.leaves(space, &[region]);
        let fallback = known
            .iter()
            .filter(|(known, _)| space.takes(*known, region))
            .min_by_key(|(known, _)| space.rank(*known));
        // What the fallback gives as well is left to it.
        let shared = fallback.and_then(|(_, fallback)| {
            let rest = leaves.len().checked_sub(fallback.len())?;
            are_the_same(&leaves[rest..], fallback).then_some(rest)
        });
        let own = &leaves[..shared.unwrap_or(leaves.len())];
        if !own.is_empty() {
            if own.len() > REPEATED_MIN {
                found.repeated.extend(space.paths_of(region));
            }
            found.kept.push((region, own.to_vec()));
        }
        known.push((region, leaves));
    }
    // Among equally specific routes, the later one is inside the other.
    found.kept.reverse();
    found.kept.sort_by_key(|(region, _)| space.rank(*region));
    found
}

/// Finds pairs of path conditions that may both hold, where such a request gets another result than each alone.
/// Returns one of each.
fn unsaid(space: &Space, explorer: &mut Explorer<'_>) -> Vec<Atom> {
    /// Each pair evaluates the rules twice.
    const PAIRS_MAX: usize = 1000;
    let region = |path: usize| Region { host: 0, path };
    let mut found = Vec::new();
    let mut pairs = 0;
    for one in 1..space.paths.len() {
        for other in one + 1..space.paths.len() {
            if space.paths[one].meet(&space.paths[other], space.patterns()) != Meet::Unsaid
                || pairs == PAIRS_MAX
            {
                continue;
            }
            pairs += 1;
            let chosen = if space.rank(region(one)) <= space.rank(region(other)) { one } else { other };
            let alone = explorer.leaves(space, &[region(chosen)]);
            let both = explorer.leaves(space, &[region(one), region(other)]);
            if !are_the_same(&alone, &both) {
                found.push(Atom::Path(match &space.paths[one + other - chosen] {
                    PathIs::Both(_, pattern) => PathIs::Pattern(pattern.clone()),
                    path => path.clone(),
                }));
            }
        }
    }
    found
}

pub(crate) fn answer(status: u64, body: Option<(&str, &str)>) -> DraftValue {
    let mut pairs = vec![("status".to_owned(), DraftValue::Number(status))];
    if let Some((text, kind)) = body {
        pairs.push(("body".to_owned(), text.into()));
        pairs.push(("content_type".to_owned(), kind.into()));
    }
    DraftValue::Table(pairs)
}

#[cfg(test)]
mod tests;
