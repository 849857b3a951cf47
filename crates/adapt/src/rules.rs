//! Converts ordered rules to routes: other proxies apply rules in order, Vanward uses the most specific route.
//!
//! Each combination of conditions that a request can meet is a region. The rules are evaluated once for each region.
//! Regions whose result does not change without them are dropped; the others become routes. So order, negation and
//! rules that fall through need no counterpart.

/// Conditions on requests.
mod atom;
/// Combined conditions.
mod expression;

pub(crate) use atom::{Atom, HostIs, PathIs, TextIs, is_host, is_path};
pub(crate) use expression::Expression;
use std::collections::BTreeMap;

use atom::{Meet, Patterns};

use crate::draft::{DraftTable, DraftValue, StatementOrigin};

/// Maximum number of hosts. For paths the limit is a quarter of it, for other conditions a fortieth.
const REGIONS_MAX: usize = 1000;
/// Above this number of regions, only those with one kind of condition (host, path, others) are evaluated.
const COMBINATIONS_MAX: usize = 5000;
/// Up to this number of conditions on methods, fields and clients, all combinations are evaluated.
const COMBINED_MAX: usize = 6;

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

/// Conditions that hold together, as indices into the lists of `Space`; 0 is no condition.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Region {
    host: usize,
    path: usize,
    rest: usize,
}

/// The conditions that hold for all requests of a region.
pub(crate) struct Holds<'s> {
    space: &'s Space,
    truth: Vec<bool>,
}

impl Holds<'_> {
    /// Whether a condition holds. It must be one of the tests.
    pub(crate) fn atom(&self, atom: &Atom) -> bool {
        self.space.places.get(atom).is_some_and(|place| self.truth[*place])
    }

    /// The host of these requests, if it is exact.
    pub(crate) fn host(&self) -> Option<&str> {
        let held = self.space.atoms.iter().zip(&self.truth).filter(|(_, holds)| **holds);
        let mut hosts = held.filter_map(|(atom, _)| match atom {
            Atom::Host(HostIs::Exact(host)) => Some(host.as_str()),
            _ => None,
        });
        hosts.next()
    }
}

pub(crate) struct Routes {
    pub(crate) tables: Vec<DraftTable>,
    /// Conditions whose overlap with others matters, but that no route can express.
    pub(crate) unsaid: Vec<StatementOrigin>,
    pub(crate) dropped: Vec<StatementOrigin>,
}

/// Warnings for prefix conditions, by statement: a route's prefix matches whole segments only.
pub(crate) fn segments(tests: &[Test]) -> Vec<(usize, String)> {
    let mut said = Vec::new();
    for test in tests {
        let Atom::Path(PathIs::Prefix(prefix)) = &test.atom else { continue };
        for origin in test.from.iter().filter(|_| !prefix.ends_with('/')) {
            if let StatementOrigin::Directive(number) = origin {
                said.push((*number, format!("{prefix} matches whole segments: not {prefix}x")));
            }
        }
    }
    said
}

/// The remedy in these warnings.
pub(crate) const SEGMENTS_INSTEAD: &str =
    "where a rule has to refuse those as well, write `path = \"~ /path.*\"`";

/// Converts ordered rules to routes. `judge` evaluates them for a region.
pub(crate) fn routes(tests: &[Test], judge: &mut dyn FnMut(&Holds<'_>) -> RegionOutcome) -> Routes {
    let space = Space::from_tests(tests);
    let mut kept: Vec<(Region, RegionOutcome)> = Vec::new();
    // General regions come first, because the fallback of a region is decided before it.
    for region in space.regions() {
        let outcome = judge(&space.holds(&[region]));
        let fallback = kept
            .iter()
            .filter(|(known, _)| space.takes(*known, region))
            .min_by_key(|(known, _)| space.rank(*known));
        if fallback.is_none_or(|(_, known)| !known.options.says_the_same(&outcome.options)) {
            kept.push((region, outcome));
        }
    }
    let unsaid = unsaid(&space, tests, judge);
    let mut dropped = space.dropped.clone();
    if space.count() > COMBINATIONS_MAX {
        dropped.extend(tests.iter().flat_map(|test| test.from.clone()));
    }
    // Among equally specific routes, the later one is inside the other.
    kept.reverse();
    kept.sort_by_key(|(region, _)| space.rank(*region));
    Routes { tables: tables(&space, &kept, tests), unsaid, dropped }
}

/// Finds pairs of path conditions that may both hold, where such a request gets another result than each alone.
fn unsaid(
    space: &Space,
    tests: &[Test],
    judge: &mut dyn FnMut(&Holds<'_>) -> RegionOutcome,
) -> Vec<StatementOrigin> {
    /// Each pair evaluates the rules twice.
    const PAIRS_MAX: usize = 1000;
    let region = |path: usize| Region { host: 0, path, rest: 0 };
    let mut found = Vec::new();
    let mut pairs = 0;
    for one in 1..space.paths.len() {
        for other in one + 1..space.paths.len() {
            if space.paths[one].meet(&space.paths[other], &space.patterns) != Meet::Unsaid
                || pairs == PAIRS_MAX
            {
                continue;
            }
            pairs += 1;
            let chosen = if space.rank(region(one)) <= space.rank(region(other)) { one } else { other };
            let alone = judge(&space.holds(&[region(chosen)]));
            let both = judge(&space.holds(&[region(one), region(other)]));
            if !alone.options.says_the_same(&both.options) {
                let wanted = Atom::Path(space.paths[one + other - chosen].clone());
                let from = tests.iter().find(|test| test.atom == wanted).map(|test| test.from.clone());
                found.extend(from.unwrap_or_default());
            }
        }
    }
    found
}

/// All hosts, paths and combinations of other conditions, and the implications between them.
struct Space {
    /// The first entry of each list stands for no condition.
    hosts: Vec<HostIs>,
    paths: Vec<PathIs>,
    rest: Vec<Vec<Atom>>,
    implied_hosts: Vec<Vec<bool>>,
    implied_paths: Vec<Vec<bool>>,
    implied_rest: Vec<Vec<bool>>,
    /// `taken_paths[path][route]`: whether the route takes all requests of the path.
    taken_paths: Vec<Vec<bool>>,
    /// All conditions in the order of their first tests.
    atoms: Vec<Atom>,
    places: BTreeMap<Atom, usize>,
    patterns: Patterns,
    dropped: Vec<StatementOrigin>,
}

impl Space {
    fn from_tests(tests: &[Test]) -> Self {
        let patterns = Patterns::default();
        let (mut hosts, mut paths) =
            (vec![HostIs::Pattern(String::new())], vec![PathIs::Prefix(String::new())]);
        let mut others: Vec<Atom> = Vec::new();
        let mut dropped = Vec::new();
        for test in tests {
            match &test.atom {
                Atom::Host(host) if hosts.len() < REGIONS_MAX => push_new(&mut hosts, host.clone()),
                Atom::Path(path) if paths.len() < REGIONS_MAX / 4 => {
                    push_new(&mut paths, path.clone());
                    // `/a/` is the prefix `/a` of a route, which also matches `/a` itself.
                    if let PathIs::Prefix(prefix) = path
                        && let Some(bare) = prefix.strip_suffix('/').filter(|bare| !bare.is_empty())
                    {
                        push_new(&mut paths, PathIs::Exact(bare.to_owned()));
                    }
                }
                Atom::Host(_) | Atom::Path(_) => dropped.extend(test.from.clone()),
                other if others.len() < REGIONS_MAX / 40 => push_new(&mut others, other.clone()),
                _ => dropped.extend(test.from.clone()),
            }
        }
        paths.extend(both(&paths[1..], &patterns));
        let rest = atom::subsets(&others, COMBINED_MAX, &patterns);
        let square = |size: usize, implies: &dyn Fn(usize, usize) -> bool| -> Vec<Vec<bool>> {
            (0..size).map(|one| (0..size).map(|other| implies(one, other)).collect()).collect()
        };
        let none_or = |one: usize, other: usize| other == 0 || one == other;
        let implied_hosts = square(hosts.len(), &|one, other| {
            none_or(one, other) || one > 0 && hosts[one].implies(&hosts[other], &patterns)
        });
        let implied_paths = square(paths.len(), &|one, other| {
            none_or(one, other) || one > 0 && paths[one].implies(&paths[other], &patterns)
        });
        let implied_rest = square(rest.len(), &|one, other| {
            let has = |wanted| rest[one].iter().any(|known| atom::implies(known, wanted, &patterns));
            rest[other].iter().all(has)
        });
        let taken_paths = square(paths.len(), &|one, other| {
            none_or(one, other) || one > 0 && paths[one].is_taken_by(&paths[other], &patterns)
        });
        let mut atoms: Vec<Atom> = Vec::new();
        let mut places = BTreeMap::new();
        for test in tests {
            if !places.contains_key(&test.atom) {
                places.insert(test.atom.clone(), atoms.len());
                atoms.push(test.atom.clone());
            }
        }
        Self {
            hosts,
            paths,
            rest,
            implied_hosts,
            implied_paths,
            implied_rest,
            taken_paths,
            atoms,
            places,
            patterns,
            dropped,
        }
    }

    fn count(&self) -> usize {
        self.hosts.len().saturating_mul(self.paths.len()).saturating_mul(self.rest.len())
    }

    /// All regions, each after those that contain it.
    fn regions(&self) -> Vec<Region> {
        let count = |implied: &[Vec<bool>]| -> Vec<usize> {
            implied.iter().map(|row| row.iter().filter(|is| **is).count()).collect()
        };
        let (hosts, paths) = (count(&self.implied_hosts), count(&self.taken_paths));
        let rest = count(&self.implied_rest);
        let mut all = Vec::new();
        for host in 0..hosts.len() {
            for path in 0..paths.len() {
                for set in 0..rest.len() {
                    // Too many combinations: only those with one kind of condition.
                    let kinds = [host, path, set].iter().filter(|place| **place > 0).count();
                    if self.count() <= COMBINATIONS_MAX || kinds < 2 {
                        all.push(Region { host, path, rest: set });
                    }
                }
            }
        }
        all.sort_by_key(|region| hosts[region.host] + paths[region.path] + rest[region.rest]);
        all
    }

    /// Whether a route for the first region takes all requests of the second, if no other route does.
    fn takes(&self, route: Region, region: Region) -> bool {
        self.implied_hosts[region.host][route.host]
            && self.taken_paths[region.path][route.path]
            && self.implied_rest[region.rest][route.rest]
    }

    /// Returns the conditions that hold in the intersection of these regions.
    fn holds(&self, regions: &[Region]) -> Holds<'_> {
        let mut truth = vec![false; self.atoms.len()];
        let mut hold = |atom: Atom| {
            if let Some(place) = self.places.get(&atom) {
                truth[*place] = true;
            }
        };
        for region in regions {
            for host in (1..self.hosts.len()).filter(|host| self.implied_hosts[region.host][*host]) {
                hold(Atom::Host(self.hosts[host].clone()));
            }
            for path in (1..self.paths.len()).filter(|path| self.implied_paths[region.path][*path]) {
                hold(Atom::Path(self.paths[path].clone()));
            }
            for atom in self.atoms.iter().filter(|_| region.rest > 0) {
                if self.rest[region.rest].iter().any(|known| atom::implies(known, atom, &self.patterns)) {
                    hold(atom.clone());
                }
            }
        }
        Holds { space: self, truth }
    }

    /// Vanward's precedence of routes: the smallest rank first.
    fn rank(&self, region: Region) -> [usize; 9] {
        let host = match &self.hosts[region.host] {
            _ if region.host == 0 => (3, 0),
            HostIs::Exact(_) => (0, 0),
            HostIs::Below(domain) => (1, usize::MAX - domain.len()),
            HostIs::Pattern(_) => (2, region.host),
        };
        // Expressions with a prefix come before those without, and longer prefixes first.
        let path = match &self.paths[region.path] {
            PathIs::Exact(_) => (0, 0),
            PathIs::Both(prefix, _) => (1, usize::MAX - prefix.len()),
            PathIs::Pattern(_) => (2, region.path),
            PathIs::Prefix(prefix) => (3, usize::MAX - prefix.len()),
        };
        let rest = &self.rest[region.rest];
        let fewer = |is_it: fn(&Atom) -> bool| usize::MAX - rest.iter().filter(|atom| is_it(atom)).count();
        let methods = rest.iter().find_map(|atom| match atom {
            Atom::Methods(methods) => Some(methods.len()),
            _ => None,
        });
        let clients = rest.iter().find_map(|atom| match atom {
            Atom::Clients(networks) => networks.iter().map(|network| crate::values::host_bits(network)).max(),
            _ => None,
        });
        [
            host.0,
            host.1,
            path.0,
            path.1,
            methods.unwrap_or(usize::MAX),
            fewer(|atom| matches!(atom, Atom::Header(..))),
            fewer(|atom| matches!(atom, Atom::Cookie(..))),
            fewer(|atom| matches!(atom, Atom::Query(..))),
            clients.unwrap_or(usize::MAX),
        ]
    }
}

/// Returns the combinations of a prefix and an expression that a request may both match.
fn both(paths: &[PathIs], patterns: &Patterns) -> Vec<PathIs> {
    let mut found = Vec::new();
    for path in paths.iter().filter(|path| matches!(path, PathIs::Pattern(_))) {
        for prefix in paths.iter().filter(|path| matches!(path, PathIs::Prefix(_))) {
            if let Meet::Is(met @ PathIs::Both(..)) = prefix.meet(path, patterns)
                && found.len() < REGIONS_MAX / 4
            {
                push_new(&mut found, met);
            }
        }
    }
    found
}

fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// Writes routes as tables, and merges those that differ only in their host.
fn tables(space: &Space, kept: &[(Region, RegionOutcome)], tests: &[Test]) -> Vec<DraftTable> {
    let is_pattern = |host: usize| host == 0 || matches!(space.hosts[host], HostIs::Pattern(_));
    let mut merged: Vec<(Region, &RegionOutcome, Vec<usize>)> = Vec::new();
    for (region, outcome) in kept {
        // For path expressions, the order in the file counts, for each host.
        let is_ordered = matches!(space.paths[region.path], PathIs::Pattern(_) | PathIs::Both(..));
        let same = merged.iter_mut().find(|(known, other, hosts)| {
            !is_ordered
                && !is_pattern(region.host)
                && !hosts.iter().any(|host| is_pattern(*host))
                && (known.path, known.rest) == (region.path, region.rest)
                && other.options.says_the_same(&outcome.options)
        });
        match same {
            Some((.., hosts)) => hosts.push(region.host),
            None => merged.push((*region, outcome, vec![region.host])),
        }
    }
    let mut places: Vec<String> = Vec::new();
    let mut tables = Vec::new();
    for (region, outcome, hosts) in merged {
        let mut table = DraftTable::new("[[route]]", outcome.from.clone());
        let mut hosts = hosts;
        hosts.sort_unstable();
        let hosts: Vec<&HostIs> =
            hosts.iter().filter(|host| **host > 0).map(|host| &space.hosts[*host]).collect();
        conditions(&mut table, space, region, &hosts, tests);
        // `/a` and `/a/` are the same path here: the longer one came first.
        let place = table.place();
        if !places.contains(&place) {
            places.push(place);
            table.append(&outcome.options);
            tables.push(table);
        }
    }
    tables
}

fn conditions(table: &mut DraftTable, space: &Space, region: Region, hosts: &[&HostIs], tests: &[Test]) {
    let origins = |is_it: &dyn Fn(&Atom) -> bool| -> Vec<StatementOrigin> {
        let mut all: Vec<StatementOrigin> = Vec::new();
        for origin in tests.iter().filter(|test| is_it(&test.atom)).flat_map(|test| &test.from) {
            push_new(&mut all, origin.clone());
        }
        all
    };
    if !hosts.is_empty() {
        let written: Vec<String> = hosts.iter().map(|host| host.written()).collect();
        let from = origins(&|atom| matches!(atom, Atom::Host(host) if hosts.contains(&host)));
        table.set("host", crate::sheet::one_or_list(&written), from);
    }
    if region.path > 0 {
        let path = &space.paths[region.path];
        let from =
            origins(&|atom| matches!(atom, Atom::Path(wanted) if path.implies(wanted, &space.patterns)));
        let from = if from.is_empty() {
            vec![StatementOrigin::Default("the prefix does not match it")]
        } else {
            from
        };
        table.set("path", path.written(), from);
    }
    for known in &space.rest[region.rest] {
        let from = origins(&|atom| atom::implies(known, atom, &space.patterns));
        match known {
            Atom::Methods(methods) => table.set("methods", crate::sheet::one_or_list(methods), from),
            Atom::Clients(networks) => table.set("clients", networks.clone(), from),
            Atom::Header(name, text) => table.extend("headers", (name, text.written()), from),
            Atom::Cookie(name, text) => table.extend("cookie", (name, text.written()), from),
            Atom::Query(name, text) => table.extend("query", (name, text.written()), from),
            Atom::Host(_) | Atom::Path(_) => {}
        }
    }
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
