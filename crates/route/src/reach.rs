//! Finds rules that no request can reach, because another rule with precedence takes all their requests.
//!
//! Only as far as the rules themselves show it: overlaps of patterns are not computed.

use std::borrow::Borrow;
use std::collections::HashMap;

use expression::Expression;
use ipnet::IpNet;

use crate::path::{LenientPath, canonical_text, end_of_prefix};
use crate::prefixes::canonical_prefix;
use crate::rule::{HostRule, PathRule, RouteRule, ValueRule};
use crate::table::{host_key, ranks};

/// The most rules that a rule is compared with. There may be thousands that differ only in a header.
const COMPARED_MAX: usize = 256;

/// Finds the rules that are never taken, each with the rule that takes its requests, as indices into `rules`.
/// `listeners` is the number of listeners. Each rule is compared with at most 256 others of a matching host and path.
///
/// ```
/// use route::{HostRule, RouteRule, covered};
///
/// let of_all = RouteRule { listeners: vec![0, 1], ..RouteRule::default() };
/// let of_one = RouteRule { host: HostRule::from_text("www.example.com"), ..RouteRule::default() };
/// assert_eq!(covered(&[of_one, of_all], 2), [(0, 1)]);
/// ```
pub fn covered<R: Borrow<RouteRule>>(rules: &[R], listeners: usize) -> Vec<(usize, usize)> {
    let rules: Vec<&RouteRule> = rules.iter().map(Borrow::borrow).collect();
    let ranks = ranks(rules.iter().copied());
    let index = Index::from_rules(&rules);
    let cover = |rule: usize| {
        let others = index.wider(rules[rule]).filter(|&other| ranks[other] < ranks[rule]);
        others.take(COMPARED_MAX).find(|&other| covers(rules[other], rules[rule], listeners))
    };
    (0..rules.len()).filter_map(|rule| Some((rule, cover(rule)?))).collect()
}

/// Rules by host and path.
struct Index {
    by_place: HashMap<(Key, Key), Vec<usize>>,
    /// Rules with a pattern in host or path, which cannot be found by key.
    with_patterns: Vec<usize>,
    has_text_prefixes: bool,
}

/// The kind of a host or path, and its text.
type Key = (u8, Vec<u8>);

const ANY_HOST: u8 = 0;
const BELOW: u8 = 2;
const PREFIX: u8 = 0;
const TEXT_PREFIX: u8 = 3;

impl Index {
    fn from_rules(rules: &[&RouteRule]) -> Self {
        let has_text_prefixes = rules.iter().any(|rule| matches!(rule.path, PathRule::TextPrefix(_)));
        let mut index = Self { by_place: HashMap::new(), with_patterns: Vec::new(), has_text_prefixes };
        for (place, rule) in rules.iter().enumerate() {
            index.by_place.entry((host_key(&rule.host), path_key(&rule.path))).or_default().push(place);
            if matches!(rule.host, HostRule::Pattern(_)) || matches!(rule.path, PathRule::Pattern(_)) {
                index.with_patterns.push(place);
            }
        }
        index
    }

    /// Rules whose host and path may match every request that this rule's match.
    fn wider(&self, rule: &RouteRule) -> impl Iterator<Item = usize> {
        let mut paths = wider_paths(&rule.path);
        if self.has_text_prefixes {
            paths.extend(wider_texts(&rule.path));
        }
        let places = wider_hosts(&rule.host)
            .into_iter()
            .flat_map(move |host| paths.clone().into_iter().map(move |path| (host.clone(), path)));
        let found = places.filter_map(|place| self.by_place.get(&place)).flatten();
        found.chain(&self.with_patterns).copied()
    }
}

fn path_key(path: &PathRule) -> Key {
    match path {
        PathRule::Prefix(prefix) => (PREFIX, canonical_prefix(prefix)),
        PathRule::TextPrefix(text) => (TEXT_PREFIX, canonical_text(text)),
        PathRule::Exact(path) => (1, LenientPath::from_path(path.as_bytes()).collect()),
        PathRule::Pattern(pattern) => (2, pattern.as_str().as_bytes().to_vec()),
    }
}

/// The host itself, its parents, and the wildcard for all hosts.
fn wider_hosts(host: &HostRule) -> Vec<Key> {
    let own = host_key(host);
    let mut all = vec![(ANY_HOST, Vec::new())];
    if let HostRule::Exact(_) | HostRule::Below(_) = host {
        let dots = own.1.iter().enumerate().filter(|(_, byte)| **byte == b'.');
        all.extend(dots.map(|(dot, _)| (BELOW, own.1[dot + 1..].to_vec())));
    }
    if own.0 != ANY_HOST {
        all.push(own);
    }
    all
}

/// The path itself, and the prefixes that contain it.
fn wider_paths(path: &PathRule) -> Vec<Key> {
    let own = path_key(path);
    let mut all = vec![(PREFIX, Vec::new())];
    if !matches!(path, PathRule::Pattern(_)) {
        let slashes = own.1.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/');
        all.extend(slashes.map(|(slash, _)| (PREFIX, own.1[..slash].to_vec())));
        // An exact path is below the prefix with the same text.
        all.push((PREFIX, own.1.clone()));
    }
    all.push(own);
    all.dedup();
    all
}

/// The texts that a path starts with, longest first.
fn wider_texts(path: &PathRule) -> Vec<Key> {
    let own = path_key(path).1;
    match path {
        PathRule::Pattern(_) => Vec::new(),
        // `path_key` has the own text of a text prefix already.
        PathRule::TextPrefix(_) => {
            (1..own.len()).rev().map(|end| (TEXT_PREFIX, own[..end].to_vec())).collect()
        }
        PathRule::Exact(_) | PathRule::Prefix(_) => {
            (1..=own.len()).rev().map(|end| (TEXT_PREFIX, own[..end].to_vec())).collect()
        }
    }
}

/// Whether one rule matches every request that the other matches.
fn covers(one: &RouteRule, other: &RouteRule, listeners: usize) -> bool {
    let RouteRule {
        listeners: of_listeners,
        host,
        path,
        methods,
        headers,
        cookies,
        query,
        claims,
        when,
        clients,
    } = one;
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
        && covers_values(cookies, &other.cookies, str::eq)
        && covers_values(query, &other.query, str::eq)
        && (claims.values.is_empty() || claims.from == other.claims.from)
        && covers_values(&claims.values, &other.claims.values, str::eq)
        && covers_condition(when.as_deref(), other.when.as_deref())
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
        // `/api` does not contain `/apix`, which starts with the text `/api`.
        (PathRule::Prefix(prefix), PathRule::TextPrefix(text)) => {
            canonical_text(text).len() > canonical_prefix(prefix).len() && is_below(text, prefix)
        }
        (PathRule::TextPrefix(one), PathRule::TextPrefix(other) | PathRule::Exact(other)) => {
            canonical_text(other).starts_with(&canonical_text(one))
        }
        (PathRule::TextPrefix(text), PathRule::Prefix(prefix)) => {
            canonical_prefix(prefix).starts_with(&canonical_text(text))
        }
        (PathRule::Exact(one), PathRule::Exact(other)) => one == other,
        (PathRule::Pattern(one), PathRule::Pattern(other)) => one.as_str() == other.as_str(),
        (PathRule::Pattern(pattern), PathRule::Exact(path)) => pattern.matches(path.as_bytes()),
        _ => false,
    }
}

/// Whether each condition in `one` also occurs in `other`, or follows from a condition there.
fn covers_values(
    one: &[(String, ValueRule)],
    other: &[(String, ValueRule)],
    is_same_name: impl Fn(&str, &str) -> bool,
) -> bool {
    one.iter().all(|(name, wanted)| {
        other.iter().any(|(known, value)| is_same_name(name, known) && follows(wanted, value))
    })
}

/// Whether every value that passes `value` passes `wanted`.
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

fn covers_condition(one: Option<&Expression>, other: Option<&Expression>) -> bool {
    one.is_none_or(|one| other.is_some_and(|other| other.implies(one)))
}

fn covers_networks(one: &[IpNet], other: &[IpNet]) -> bool {
    other.iter().all(|network| one.iter().any(|wider| wider.contains(network)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::BytePattern;

    fn from_host(host: &str, path: &str) -> RouteRule {
        RouteRule {
            host: HostRule::from_text(host),
            path: PathRule::Prefix(path.to_owned()),
            ..RouteRule::default()
        }
    }

    fn of_text(text: &str) -> RouteRule {
        RouteRule { path: PathRule::TextPrefix(text.to_owned()), ..RouteRule::default() }
    }

    fn of_pattern(text: &str) -> RouteRule {
        RouteRule { path: PathRule::Pattern(BytePattern::new(text).unwrap()), ..RouteRule::default() }
    }

    #[test]
    fn rules_that_are_never_taken() {
        let with_method =
            |method: &str| RouteRule { methods: vec![method.to_owned()], ..from_host("*", "/a") };
        let with_header =
            |value| RouteRule { headers: vec![("X-A".to_owned(), value)], ..from_host("*", "/a") };
        let at = |listeners: &[usize], rule: RouteRule| RouteRule { listeners: listeners.to_vec(), ..rule };
        let from =
            |network: &str| RouteRule { clients: vec![network.parse().unwrap()], ..from_host("*", "/a") };
        for (what, rules, covered_rules) in [
            ("the more specific path comes first", vec![from_host("*", "/"), from_host("*", "/a")], vec![]),
            ("a host before all", vec![from_host("*", "/"), from_host("a.example", "/")], vec![]),
            (
                "listeners come before hosts",
                vec![from_host("a.example", "/a"), at(&[0, 1], from_host("*", "/"))],
                vec![(0, 1)],
            ),
            (
                "hosts and paths far above",
                vec![from_host("d.c.b.example", "/x/y/z"), at(&[0, 1], from_host("*.example", "/x"))],
                vec![(0, 1)],
            ),
            (
                "an exact path below its own prefix",
                vec![
                    RouteRule { path: PathRule::Exact("/x/y".to_owned()), ..RouteRule::default() },
                    at(&[0, 1], from_host("*", "/x/y")),
                ],
                vec![(0, 1)],
            ),
            (
                "a text and what starts with it",
                vec![
                    of_text("/api"),
                    at(&[0, 1], of_text("/ap")),
                    from_host("*", "/a"),
                    at(&[0, 1], of_text("/a")),
                ],
                vec![(0, 1), (2, 3)],
            ),
            (
                "a text beside segments",
                vec![of_text("/api"), of_text("/api/"), at(&[0, 1], from_host("*", "/api"))],
                vec![(1, 2)],
            ),
            (
                "a text that ends with a slash",
                vec![from_host("*", "/a"), at(&[0, 1], of_text("/a/"))],
                vec![],
            ),
            (
                "beside the prefix",
                vec![
                    from_host("*", "/xy"),
                    from_host("b.example", "/"),
                    at(&[0, 1], from_host("*", "/x")),
                    at(&[0, 1], from_host("*.b.example", "/")),
                ],
                vec![],
            ),
            ("not all listeners", vec![from_host("a.example", "/a"), at(&[0], from_host("*", "/"))], vec![]),
            (
                "of one listener",
                vec![at(&[0], from_host("a.example", "/a")), at(&[0], from_host("*", "/"))],
                vec![],
            ),
            ("conditions come first", vec![with_method("GET"), from_host("*", "/a")], vec![]),
            (
                "fewer methods come first",
                vec![
                    RouteRule { methods: vec!["GET".to_owned(), "PUT".to_owned()], ..from_host("*", "/a") },
                    with_method("GET"),
                ],
                vec![],
            ),
            ("another method", vec![with_method("PUT"), with_method("GET")], vec![]),
            ("a pattern before what follows", vec![of_pattern("/a/.*"), of_pattern("/a/.*")], vec![(1, 0)]),
            ("patterns that overlap", vec![of_pattern("/a/.*"), of_pattern("/a/b.*")], vec![]),
            (
                "an exact path before a pattern",
                vec![
                    of_pattern("/a"),
                    RouteRule { path: PathRule::Exact("/a".to_owned()), ..RouteRule::default() },
                ],
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
            (
                "a case of its own",
                vec![from_host("A.example.", "/x"), from_host("a.example", "/x")],
                vec![(1, 0)],
            ),
        ] {
            // A rule that is reported as covered is never taken.
            assert_eq!(covered(&rules, 2), covered_rules, "{what}");
        }
    }
}
