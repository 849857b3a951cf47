//! Writes the values of constant variables where they are used: `set $app shop; proxy_pass http://$app:80;`.

use std::collections::{BTreeMap, BTreeSet};

use super::syntax::Directive;
use super::values::split_name;

/// Directives whose words name variables, rather than use them.
const NAMING: [&str; 9] =
    ["set", "if", "map", "geo", "split_clients", "auth_request_set", "perl_set", "js_set", "log_format"];

/// Directives that may move a request to another location, or run a part of it there.
const MOVING: [&str; 6] = ["rewrite", "error_page", "try_files", "index", "auth_request", "mirror"];

/// The directives without constant variables.
#[derive(Default)]
pub(super) struct Folded {
    pub(super) tree: Vec<Directive>,
    /// Numbers of the `set` directives that are done.
    pub(super) done: BTreeSet<usize>,
    /// Numbers of the `proxy_pass` directives that had variables: a path there is that of every request.
    pub(super) passes: BTreeSet<usize>,
}

/// Replaces variables by their values.
///
/// A variable is constant within a block if the block sets it once, to a text without other variables, and no `if`
/// in it sets it. An inner block may set it again. A request keeps its variables when it moves to another location, so
/// where requests may move, a variable that another location sets is not constant.
pub(super) fn fold(tree: Vec<Directive>) -> Folded {
    let mut folded = Folded::default();
    let tree = level(tree, false, &BTreeMap::new(), &mut folded);
    Folded { tree, ..folded }
}

fn level(
    block: Vec<Directive>,
    is_if: bool,
    outer: &BTreeMap<String, String>,
    folded: &mut Folded,
) -> Vec<Directive> {
    let mut known = outer.clone();
    let mut changed = BTreeSet::new();
    for directive in block.iter().filter(|directive| directive.name == "if") {
        set_within(directive, &mut changed);
    }
    known.retain(|name, _| !changed.contains(name));
    // What an `if` sets is known at its end only.
    for directive in block.iter().filter(|_| !is_if) {
        let Some(name) = set_by(directive) else { continue };
        let is_once = block.iter().filter(|other| set_by(other) == Some(name)).count() == 1;
        let value = replaced(directive.word(1), &known);
        if is_once && !changed.contains(name) && !value.contains('$') {
            known.insert(name.to_owned(), value);
            folded.done.insert(directive.number);
        } else {
            known.remove(name);
        }
    }
    let moved = if block.iter().any(may_move) { set_by_blocks(&block) } else { BTreeMap::new() };
    let fold_one = |mut directive: Directive| {
        if directive.name == "proxy_pass" && directive.word(0).contains('$') {
            folded.passes.insert(directive.number);
        }
        if !NAMING.contains(&directive.name.as_str()) {
            directive.words.iter_mut().for_each(|word| *word = replaced(word, &known));
        }
        let mut own = BTreeSet::new();
        set_within(&directive, &mut own);
        let is_if = directive.name == "if";
        directive.block = directive.block.map(|inner| {
            let is_kept =
                |name: &String| moved.get(name).is_none_or(|count| *count == usize::from(own.contains(name)));
            let kept = known.iter().filter(|(name, _)| is_kept(name));
            level(inner, is_if, &kept.map(|(name, value)| (name.clone(), value.clone())).collect(), folded)
        });
        directive
    };
    block.into_iter().map(fold_one).collect()
}

/// Counts the locations of a server that set each variable, if requests may move between them.
pub(super) fn set_by_locations(level: &[Directive]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    if level.iter().any(may_move) {
        for location in level.iter().filter(|directive| directive.name == "location") {
            for name in set_in(location) {
                *counts.entry(name).or_default() += 1;
            }
        }
    }
    counts
}

/// The variables that a block sets.
pub(super) fn set_in(block: &Directive) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    set_within(block, &mut names);
    names
}

/// Whether a directive, or one within it, may move a request to another location.
fn may_move(directive: &Directive) -> bool {
    MOVING.contains(&directive.name.as_str()) || directive.inner().iter().any(may_move)
}

/// Counts the blocks that set each variable.
fn set_by_blocks(block: &[Directive]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for directive in block {
        let mut names = BTreeSet::new();
        set_within(directive, &mut names);
        names.into_iter().for_each(|name| *counts.entry(name).or_default() += 1);
    }
    counts
}

/// Returns the variable that a directive sets, without its dollar sign.
fn set_by(directive: &Directive) -> Option<&str> {
    let is_set = directive.name == "set" && directive.words.len() == 2;
    directive.word(0).strip_prefix('$').filter(|_| is_set)
}

fn set_within(block: &Directive, changed: &mut BTreeSet<String>) {
    for directive in block.inner() {
        changed.extend(set_by(directive).map(str::to_owned));
        set_within(directive, changed);
    }
}

/// Replaces `$name` and `${name}`, for these names.
fn replaced(text: &str, known: &BTreeMap<String, String>) -> String {
    let mut made = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        made.push_str(&rest[..dollar]);
        let (name, after) = split_name(&rest[dollar + 1..]);
        match known.get(name) {
            Some(value) => made.push_str(value),
            None => made.push_str(&rest[dollar..rest.len() - after.len()]),
        }
        rest = after;
    }
    made.push_str(rest);
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_where_nginx_ends_them() {
        let known = [("app", "shop"), ("port", "80")];
        let known = known.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        for (text, expected) in [
            ("http://$app:$port/$uri", "http://shop:80/$uri"),
            ("${app}_x $app_x $", "shop_x $app_x $"),
            ("$$app ${none} ${app", "$shop ${none} ${app"),
        ] {
            assert_eq!(replaced(text, &known), expected, "{text}");
        }
    }
}
