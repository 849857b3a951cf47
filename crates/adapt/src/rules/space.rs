//! The hosts and paths that conditions distinguish, and the implications between them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use expression::Schema;

use super::atom::{Atom, HostIs, Meet, PathIs, Patterns};
use super::formula::Formula;
use super::holds::Holds;
use super::{HOSTS_MAX, PATHS_MAX, REGIONS_MAX, Test};

/// Conditions that hold together, as indices into the lists of `Space`; 0 is no condition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Region {
    pub(super) host: usize,
    pub(super) path: usize,
}

/// Hosts and paths, and the conditions on them.
struct DistinguishedPlaces {
    hosts: Vec<HostIs>,
    paths: Vec<PathIs>,
    atoms: Vec<Atom>,
}

impl DistinguishedPlaces {
    fn new(tests: &[Test], open: &BTreeSet<Atom>) -> Self {
        let (hosts, paths) = (vec![HostIs::Pattern(String::new())], vec![PathIs::Prefix(String::new())]);
        let mut made = Self { hosts, paths, atoms: Vec::new() };
        let mut seen: BTreeSet<&Atom> = BTreeSet::new();
        let hosts = hosts_of(tests);
        for Test { atom, .. } in tests {
            if open.contains(atom) || !seen.insert(atom) {
                continue;
            }
            let is_kept = match atom {
                Atom::Host(host) if made.hosts.len() < HOSTS_MAX => {
                    push_new(&mut made.hosts, host.clone());
                    true
                }
                Atom::Path(path) => {
                    // All combinations with hosts are regions.
                    let has_room =
                        made.paths.len() < PATHS_MAX && (made.paths.len() + 2) * hosts < REGIONS_MAX;
                    if has_room {
                        push_new(&mut made.paths, path.clone());
                    }
                    has_room
                }
                _ => false,
            };
            if is_kept {
                made.atoms.push(atom.clone());
            }
        }
        made
    }
}

/// All hosts and paths of regions. Other conditions are decided within a region.
pub(super) struct Space {
    /// The first entry of each list stands for no condition.
    pub(super) hosts: Vec<HostIs>,
    pub(super) paths: Vec<PathIs>,
    implied_hosts: Vec<Vec<bool>>,
    /// Atoms that hold for each path.
    implied_atoms: Vec<Vec<bool>>,
    /// `taken_paths[path][route]`: whether the route takes all requests of the path.
    taken_paths: Vec<Vec<bool>>,
    atoms: Vec<Atom>,
    places: BTreeMap<Atom, usize>,
    patterns: Patterns,
    schema: Schema,
    writable: RefCell<BTreeMap<Formula, bool>>,
    /// Comparisons of conditions so far.
    work: Cell<u64>,
}

impl Space {
    /// Collects hosts and paths, except for those in `open`, which are decided within regions as others are.
    pub(super) fn new(tests: &[Test], schema: &Schema, open: &BTreeSet<Atom>) -> Self {
        let patterns = Patterns::default();
        let DistinguishedPlaces { hosts, mut paths, atoms } = DistinguishedPlaces::new(tests, open);
        let places = atoms.iter().cloned().enumerate().map(|(place, atom)| (atom, place)).collect();
        paths.extend(both(&paths[1..], &patterns));
        let square = |size: usize, implies: &dyn Fn(usize, usize) -> bool| -> Vec<Vec<bool>> {
            (0..size).map(|one| (0..size).map(|other| implies(one, other)).collect()).collect()
        };
        let none_or = |one: usize, other: usize| other == 0 || one == other;
        let implied_hosts = square(hosts.len(), &|one, other| {
            none_or(one, other) || one > 0 && hosts[one].implies(&hosts[other], &patterns)
        });
        let implied = |path: usize, atom: &Atom| match atom {
            Atom::Path(wanted) => path > 0 && paths[path].implies(wanted, &patterns),
            _ => false,
        };
        let implied_atoms =
            (0..paths.len()).map(|path| atoms.iter().map(|atom| implied(path, atom)).collect()).collect();
        let taken_paths = square(paths.len(), &|one, other| {
            none_or(one, other) || one > 0 && paths[one].implies(&paths[other], &patterns)
        });
        let (writable, work) = (RefCell::default(), Cell::default());
        Self {
            hosts,
            paths,
            implied_hosts,
            implied_atoms,
            taken_paths,
            atoms,
            places,
            patterns,
            schema: schema.clone(),
            writable,
            work,
        }
    }

    pub(super) fn atoms(&self) -> impl Iterator<Item = &Atom> {
        self.atoms.iter()
    }

    pub(super) fn place(&self, atom: &Atom) -> Option<usize> {
        self.places.get(atom).copied()
    }

    pub(super) fn patterns(&self) -> &Patterns {
        &self.patterns
    }

    /// The names that conditions may use.
    pub(super) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The conditions on paths that make a region.
    pub(super) fn paths_of(&self, region: Region) -> Vec<Atom> {
        let paths = match &self.paths[region.path] {
            _ if region.path == 0 => Vec::new(),
            PathIs::Both(path, pattern) => {
                vec![PathIs::Prefix(path.clone()), PathIs::Pattern(pattern.clone())]
            }
            path => vec![path.clone()],
        };
        paths.into_iter().map(Atom::Path).collect()
    }

    pub(super) fn add_work(&self, comparisons: usize) {
        self.work.set(self.work.get() + comparisons as u64);
    }

    /// Whether more evaluations would take too long.
    pub(super) fn is_exhausted(&self) -> bool {
        const WORK_MAX: u64 = 4_000_000;
        self.work.get() > WORK_MAX
    }

    /// Whether a condition can be decided as a whole: by an option of a route, or by `when`.
    pub(super) fn is_writable(&self, formula: &Formula) -> bool {
        if let Some(known) = self.writable.borrow().get(formula) {
            return *known;
        }
        let is = formula.written(&self.schema).is_some();
        self.writable.borrow_mut().insert(formula.clone(), is);
        is
    }

    /// All regions, each after those that contain it.
    pub(super) fn regions(&self) -> Vec<Region> {
        let count = |implied: &[Vec<bool>]| -> Vec<usize> {
            implied.iter().map(|row| row.iter().filter(|is| **is).count()).collect()
        };
        let (hosts, paths) = (count(&self.implied_hosts), count(&self.taken_paths));
        let mut all: Vec<Region> = (0..hosts.len())
            .flat_map(|host| (0..paths.len()).map(move |path| Region { host, path }))
            .collect();
        all.sort_by_key(|region| hosts[region.host] + paths[region.path]);
        all
    }

    /// The truth of an atom for all requests of a region, if that is known.
    pub(super) fn decides(&self, region: Region, atom: &Atom) -> Option<bool> {
        match atom {
            Atom::Path(wanted) if region.path > 0 => {
                let path = &self.paths[region.path];
                if path.implies(wanted, &self.patterns) {
                    return Some(true);
                }
                let is_apart =
                    matches!(path, PathIs::Exact(_)) || path.meet(wanted, &self.patterns) == Meet::Nothing;
                is_apart.then_some(false)
            }
            Atom::Host(wanted) if region.host > 0 => {
                let host = &self.hosts[region.host];
                let is = host.implies(wanted, &self.patterns);
                (is || matches!(host, HostIs::Exact(_))).then_some(is)
            }
            _ => None,
        }
    }

    /// Whether a route for the first region takes all requests of the second, if no other route does.
    pub(super) fn takes(&self, route: Region, region: Region) -> bool {
        self.implied_hosts[region.host][route.host] && self.taken_paths[region.path][route.path]
    }

    /// Begins an evaluation for the intersection of these regions.
    pub(super) fn holds(&self, regions: &[Region], script: Vec<bool>, takes_minor: bool) -> Holds<'_> {
        let mut truth = vec![false; self.atoms.len()];
        for region in regions {
            for host in (1..self.hosts.len()).filter(|host| self.implied_hosts[region.host][*host]) {
                if let Some(place) = self.places.get(&Atom::Host(self.hosts[host].clone())) {
                    truth[*place] = true;
                }
            }
            let paths = self.implied_atoms[region.path].iter().enumerate();
            paths.filter(|(_, is)| **is).for_each(|(place, _)| truth[place] = true);
        }
        Holds::new(self, regions, truth, script, takes_minor)
    }

    /// Vanward's precedence of hosts and paths: the smallest rank first.
    pub(super) fn rank(&self, region: Region) -> [usize; 4] {
        let host = match &self.hosts[region.host] {
            _ if region.host == 0 => (3, 0),
            HostIs::Exact(_) => (0, 0),
            HostIs::Below(domain) => (1, usize::MAX - domain.len()),
            HostIs::Pattern(_) => (2, region.host),
        };
        // Expressions with a prefix come before those without, and longer prefixes first.
        let path = match &self.paths[region.path] {
            PathIs::Exact(_) => (0, 0),
            // These are expressions in a route, too.
            PathIs::ExactAnyCase(_) => (1, region.path),
            PathIs::Both(prefix, _) => (2, usize::MAX - prefix.len()),
            PathIs::Pattern(_) => (3, region.path),
            PathIs::PrefixAnyCase(prefix) => (4, usize::MAX - prefix.len()),
            PathIs::Prefix(prefix) => (5, usize::MAX - prefix.len()),
        };
        [host.0, host.1, path.0, path.1]
    }
}

/// The number of hosts of regions, with that of all others.
fn hosts_of(tests: &[Test]) -> usize {
    let hosts: BTreeSet<&Atom> =
        tests.iter().map(|test| &test.atom).filter(|atom| matches!(atom, Atom::Host(_))).collect();
    hosts.len().min(HOSTS_MAX) + 1
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

pub(super) fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}
