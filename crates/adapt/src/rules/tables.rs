//! Writes the results of regions as routes, and merges those that differ only in their host.

use std::collections::BTreeSet;

use super::atom::{self, Atom, HostIs, PathIs};
use super::leaves::{Leaf, RouteForm, are_the_same, forms};
use super::space::{Region, Space, push_new};
use super::{Test, answer};
use crate::draft::{DraftTable, DraftValue, StatementOrigin};

/// Results of a region that are written: the last without conditions, or those before.
struct RoutePart {
    region: Region,
    leaves: Vec<Leaf>,
    hosts: Vec<usize>,
}

/// Writes the results of all regions, in the order of precedence.
pub(super) fn tables(space: &Space, kept: &[(Region, Vec<Leaf>)], tests: &[Test]) -> Vec<DraftTable> {
    let is_pattern = |host: usize| host == 0 || matches!(space.hosts[host], HostIs::Pattern(_));
    let mut parts: Vec<RoutePart> = Vec::new();
    for (region, leaves) in kept {
        let of_all = leaves.iter().position(|leaf| leaf.conditions.is_empty()).unwrap_or(leaves.len());
        let (before, last) = leaves.split_at(of_all);
        for leaves in [before, last].into_iter().filter(|leaves| !leaves.is_empty()) {
            // For path expressions, the order in the file counts, for each host.
            let is_ordered = !matches!(space.paths[region.path], PathIs::Exact(_) | PathIs::Prefix(_));
            let same = parts.iter_mut().find(|known| {
                !is_ordered
                    && !is_pattern(region.host)
                    && !known.hosts.iter().any(|host| is_pattern(*host))
                    && known.region.path == region.path
                    && are_the_same(&known.leaves, leaves)
            });
            match same {
                Some(known) => known.hosts.push(region.host),
                None => parts.push(RoutePart {
                    region: *region,
                    leaves: leaves.to_vec(),
                    hosts: vec![region.host],
                }),
            }
        }
    }
    let mut places: BTreeSet<String> = BTreeSet::new();
    let mut tables = Vec::new();
    for RoutePart { region, leaves, mut hosts } in parts {
        hosts.sort_unstable();
        let hosts: Vec<&HostIs> =
            hosts.iter().filter(|host| **host > 0).map(|host| &space.hosts[*host]).collect();
        let forms = forms(&leaves, space);
        for (leaf, form) in leaves.iter().zip(forms) {
            let mut table = DraftTable::new("[[route]]", leaf.outcome.from.clone());
            place(&mut table, space, region.path, &hosts, tests);
            conditions(&mut table, space, leaf, &form, tests);
            // `/a` and `/a/` are the same path here: the longer one came first.
            if !places.insert(table.place()) {
                continue;
            }
            if form.is_cut {
                let why = vec![StatementOrigin::Default("its condition is too long for an expression")];
                table.set("respond", answer(501, None), why);
            } else {
                table.append(&leaf.outcome.options);
            }
            tables.push(table);
        }
    }
    tables
}

/// Returns the statements with a condition.
fn origins(tests: &[Test], is_it: &dyn Fn(&Atom) -> bool) -> Vec<StatementOrigin> {
    let mut all: Vec<StatementOrigin> = Vec::new();
    for origin in tests.iter().filter(|test| is_it(&test.atom)).flat_map(|test| &test.from) {
        push_new(&mut all, origin.clone());
    }
    all
}

fn place(table: &mut DraftTable, space: &Space, path: usize, hosts: &[&HostIs], tests: &[Test]) {
    if !hosts.is_empty() {
        let written: Vec<String> = hosts.iter().map(|host| host.written()).collect();
        let from = origins(tests, &|atom| matches!(atom, Atom::Host(host) if hosts.contains(&host)));
        table.set("host", crate::sheet::one_or_list(&written), from);
    }
    if path > 0 {
        let path = &space.paths[path];
        let is_it =
            |atom: &Atom| matches!(atom, Atom::Path(wanted) if path.implies(wanted, space.patterns()));
        let mut from = origins(tests, &is_it);
        if from.is_empty() {
            from.push(StatementOrigin::Default("the prefix does not match it"));
        }
        table.set("path", path.written(), from);
    }
}

fn conditions(table: &mut DraftTable, space: &Space, leaf: &Leaf, form: &RouteForm, tests: &[Test]) {
    for known in &form.options {
        let from = origins(tests, &|atom| atom::implies(known, atom, space.patterns()));
        match known {
            Atom::Methods(methods) => table.set("methods", crate::sheet::one_or_list(methods), from),
            Atom::Clients(networks) => table.set("clients", networks.clone(), from),
            Atom::Header(name, text) => table.extend("headers", (name, text.written()), from),
            Atom::Cookie(name, text) => table.extend("cookie", (name, text.written()), from),
            Atom::Query(name, text) => table.extend("query", (name, text.written()), from),
            Atom::Host(_) | Atom::Path(_) | Atom::When(_) => {}
        }
    }
    if let Some(when) = &form.when {
        let mut atoms = Vec::new();
        leaf.conditions.iter().for_each(|condition| condition.atoms(&mut atoms));
        let atoms: BTreeSet<&Atom> = atoms.into_iter().collect();
        // Merged atoms are in none of the tests.
        let is_it = |wanted: &Atom| {
            atoms.contains(wanted)
                || atoms.iter().any(|atom| {
                    std::mem::discriminant(*atom) == std::mem::discriminant(wanted)
                        && atom::implies(wanted, atom, space.patterns())
                })
        };
        table.set("when", DraftValue::Expression(when.clone()), origins(tests, &is_it));
    }
}
