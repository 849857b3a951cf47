//! Rules that no request reaches, since another one that comes before takes all of theirs.
//!
//! As far as that is seen from how they are written: what patterns have in common is not worked out.

use ipnet::IpNet;

use crate::path::end_of_prefix;
use crate::rule::{HostRule, PathRule, Rule, ValueRule};
use crate::table::ranks;

/// The rules that are never taken, each with the one that takes its requests; both are places in the list. `listeners` is how
/// many there are. It compares each rule with each: for whoever checks a configuration.
///
/// ```
/// use route::{HostRule, Rule, covered};
///
/// let of_all = Rule { listeners: vec![0, 1], ..Rule::default() };
/// let of_one = Rule { host: HostRule::of("www.example.com"), ..Rule::default() };
/// assert_eq!(covered(&[of_one, of_all], 2), [(0, 1)]);
/// ```
pub fn covered(rules: &[Rule], listeners: usize) -> Vec<(usize, usize)> {
    let ranks = ranks(rules);
    let cover = |index: usize| {
        (0..rules.len())
            .find(|&other| ranks[other] < ranks[index] && covers(&rules[other], &rules[index], listeners))
    };
    (0..rules.len()).filter_map(|index| Some((index, cover(index)?))).collect()
}

/// Whether one rule holds for every request that the other holds for.
fn covers(one: &Rule, other: &Rule, listeners: usize) -> bool {
    let Rule { listeners: of_listeners, host, path, methods, headers, query, clients } = one;
    let has_listener = |listener: usize| of_listeners.contains(&listener);
    let holds_listeners = of_listeners.is_empty()
        || if other.listeners.is_empty() {
            (0..listeners).all(has_listener)
        } else {
            other.listeners.iter().copied().all(has_listener)
        };
    let holds_methods = methods.is_empty()
        || (!other.methods.is_empty() && other.methods.iter().all(|method| methods.contains(method)));
    holds_listeners
        && covers_host(host, &other.host)
        && covers_path(path, &other.path)
        && holds_methods
        && covers_values(headers, &other.headers, str::eq_ignore_ascii_case)
        && covers_values(query, &other.query, str::eq)
        && (clients.is_empty() || (!other.clients.is_empty() && covers_networks(clients, &other.clients)))
}

fn covers_host(one: &HostRule, other: &HostRule) -> bool {
    let plain = |host: &str| host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let is_below = |host: &str, parent: &str| {
        plain(host).strip_suffix(&plain(parent)).is_some_and(|rest| rest.ends_with('.'))
    };
    match (one, other) {
        (HostRule::Any, _) => true,
        (HostRule::Exact(one), HostRule::Exact(other)) => plain(one) == plain(other),
        (HostRule::Below(parent), HostRule::Exact(host)) => is_below(host, parent),
        (HostRule::Below(one), HostRule::Below(other)) => plain(one) == plain(other) || is_below(other, one),
        (HostRule::Pattern(one), HostRule::Pattern(other)) => one.as_str() == other.as_str(),
        (HostRule::Pattern(pattern), HostRule::Exact(host)) => pattern.matches(plain(host).as_bytes()),
        _ => false,
    }
}

fn covers_path(one: &PathRule, other: &PathRule) -> bool {
    let is_below = |path: &str, prefix: &str| {
        let prefix = prefix.trim_end_matches('/');
        end_of_prefix(path.as_bytes(), prefix.as_bytes()).is_some()
    };
    match (one, other) {
        (PathRule::Prefix(prefix), _) if prefix.trim_end_matches('/').is_empty() => true,
        (PathRule::Prefix(prefix), PathRule::Exact(path) | PathRule::Prefix(path)) => is_below(path, prefix),
        (PathRule::Exact(one), PathRule::Exact(other)) => one == other,
        (PathRule::Pattern(one), PathRule::Pattern(other)) => one.as_str() == other.as_str(),
        (PathRule::Pattern(pattern), PathRule::Exact(path)) => pattern.matches(path.as_bytes()),
        _ => false,
    }
}

/// Whether each of some conditions is among others, or follows from one of them.
fn covers_values(
    one: &[(String, ValueRule)],
    other: &[(String, ValueRule)],
    is_same_name: impl Fn(&str, &str) -> bool,
) -> bool {
    one.iter().all(|(name, wanted)| {
        other.iter().any(|(known, value)| is_same_name(name, known) && follows(wanted, value))
    })
}

/// Whether what passes `value` passes `wanted`.
fn follows(wanted: &ValueRule, value: &ValueRule) -> bool {
    match (wanted, value) {
        (ValueRule::Present, _) => true,
        (ValueRule::Prefix(prefix), ValueRule::Prefix(text) | ValueRule::Exact(text)) => {
            text.starts_with(prefix.as_str())
        }
        (ValueRule::Pattern(pattern), ValueRule::Exact(text)) => pattern.matches(text.as_bytes()),
        (wanted, value) => wanted == value,
    }
}

fn covers_networks(one: &[IpNet], other: &[IpNet]) -> bool {
    other.iter().all(|network| one.iter().any(|wider| wider.contains(network)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Pattern;

    fn of(host: &str, path: &str) -> Rule {
        Rule { host: HostRule::of(host), path: PathRule::Prefix(path.to_owned()), ..Rule::default() }
    }

    fn of_pattern(text: &str) -> Rule {
        Rule { path: PathRule::Pattern(Pattern::new(text).unwrap()), ..Rule::default() }
    }

    #[test]
    fn rules_that_are_never_taken() {
        let with_method = |method: &str| Rule { methods: vec![method.to_owned()], ..of("*", "/a") };
        let with_header = |value| Rule { headers: vec![("X-A".to_owned(), value)], ..of("*", "/a") };
        let at = |listeners: &[usize], rule: Rule| Rule { listeners: listeners.to_vec(), ..rule };
        let from = |network: &str| Rule { clients: vec![network.parse().unwrap()], ..of("*", "/a") };
        for (what, rules, covered_rules) in [
            ("the more specific path comes first", vec![of("*", "/"), of("*", "/a")], vec![]),
            ("a host before all", vec![of("*", "/"), of("a.example", "/")], vec![]),
            (
                "listeners come before hosts",
                vec![of("a.example", "/a"), at(&[0, 1], of("*", "/"))],
                vec![(0, 1)],
            ),
            ("not all listeners", vec![of("a.example", "/a"), at(&[0], of("*", "/"))], vec![]),
            ("of one listener", vec![at(&[0], of("a.example", "/a")), at(&[0], of("*", "/"))], vec![]),
            ("conditions come first", vec![with_method("GET"), of("*", "/a")], vec![]),
            (
                "fewer methods come first",
                vec![
                    Rule { methods: vec!["GET".to_owned(), "PUT".to_owned()], ..of("*", "/a") },
                    with_method("GET"),
                ],
                vec![],
            ),
            ("another method", vec![with_method("PUT"), with_method("GET")], vec![]),
            ("a pattern before what follows", vec![of_pattern("/a/.*"), of_pattern("/a/.*")], vec![(1, 0)]),
            ("patterns that overlap", vec![of_pattern("/a/.*"), of_pattern("/a/b.*")], vec![]),
            (
                "an exact path before a pattern",
                vec![of_pattern("/a"), Rule { path: PathRule::Exact("/a".to_owned()), ..Rule::default() }],
                vec![],
            ),
            (
                "the same value",
                vec![
                    with_header(ValueRule::Exact("1".to_owned())),
                    with_header(ValueRule::Exact("1".to_owned())),
                ],
                vec![(1, 0)],
            ),
            (
                "another value",
                vec![
                    with_header(ValueRule::Exact("1".to_owned())),
                    with_header(ValueRule::Exact("2".to_owned())),
                ],
                vec![],
            ),
            ("a network within", vec![from("10.0.0.0/8"), from("10.1.0.0/16")], vec![]),
            ("a case of its own", vec![of("A.example.", "/x"), of("a.example", "/x")], vec![(1, 0)]),
        ] {
            // What is said to be covered never is taken, whatever else is true.
            assert_eq!(covered(&rules, 2), covered_rules, "{what}");
        }
    }
}
