//! The routing table: a request takes the most specific matching rule, regardless of the order in the file.
//!
//! A lookup goes from the host to the path to the other conditions, through tables for each step, and allocates nothing
//! except where documented. `RouteTable::explain` explains a decision in words.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use crate::host::{Hosts, without_dot};
use crate::path::{Doubt, canonical_text, has, has_dot_segments, with_reading};
use crate::pattern::Patterns;
use crate::prefixes::{Prefixes, canonical_prefix};
use crate::readings;
use crate::request::{FieldLookup, RequestParts};
use crate::rule::{Conditions, HostRule, PathRule, RouteRule, Strictness};
use crate::text_map::{TextMap, hash_on};
use crate::text_prefixes::TextPrefixes;
use crate::token::ReadClaims;

/// The routes of a proxy, as indices into the list of rules that they were made from.
///
/// # The order of rules
/// Several rules may match a request. The first of these lines in which they differ decides which one is taken:
///
/// 1. **Listener**: a rule for some listeners before one for all.
/// 2. **Host**: an exact name; then the nearest name above it (`*.b.example` before `*.example`); then patterns, in the
///    order in which they were first written; then every host.
/// 3. **Path**: an exact path; then patterns, in the order in which they were first written for that host; then the
///    longest prefix. Of equally long prefixes, one of whole segments comes before one of text.
/// 4. **Method**: fewer methods before more, any number before all.
/// 5. **Header**: more conditions before fewer; with equal numbers, exact values before patterns before prefixes before
///    mere presence.
/// 6. **Cookie**, **query** and **claim**, in this order: as for headers.
/// 7. **When**: a rule with this condition before one without.
/// 8. **Client**: the narrower network before the wider, any before none; in a rule with several, the widest counts.
/// 9. The rule that was written first.
///
/// If a rule's host matches but its other conditions do not, the next rule is tried. With rules for `shop.example` and
/// `/cart`, and for every host and `/`, the second gets `shop.example/blog`.
///
/// ```
/// use route::{HostRule, NoConditions, NoFields, PathRule, RequestParts, RouteTable, RouteRule};
///
/// let path = PathRule::Prefix("/api".to_owned());
/// let table = RouteTable::compile(vec![
///     RouteRule { host: HostRule::from_text("*.example.com"), ..RouteRule::default() },
///     RouteRule { path, methods: vec!["GET".to_owned()], ..RouteRule::default() },
/// ]);
/// let request = RequestParts {
///     listener: 0,
///     host: b"example.com",
///     path: b"/api/users",
///     query: None,
///     method: b"GET",
///     client: [127, 0, 0, 1].into(),
///     fields: &NoFields,
///     conditions: &NoConditions,
/// };
/// assert_eq!(table.choose(&request), Some(1));
/// assert_eq!(table.choose(&RequestParts { host: b"www.example.com", ..request }), Some(0));
/// println!("{}", table.explain(&request));
/// ```
///
/// # Cloning
/// A clone shares the programs of patterns, and has separate scratch space. Threads that search one table with patterns
/// sometimes wait for each other; give each a clone.
#[derive(Debug, Clone, Default)]
pub struct RouteTable {
    /// Hosts of rules for some listeners, by listener. Few.
    by_listener: Vec<(usize, Hosts<Paths>)>,
    any_listener: Hosts<Paths>,
    depends_on_path: bool,
    /// The route of every request, if there is only one and it has no conditions: the most common table.
    everything: Option<usize>,
    /// The original rules, for explanations; shared by clones. Empty in a table from `choosing`.
    pub(crate) rules: Arc<[RouteRule]>,
    /// The rules whose paths have parameters (`;`), sorted. Few.
    with_parameters: Arc<[usize]>,
}

impl RouteTable {
    /// Compiles routes, each given as a host (`None` for every host) and a path prefix.
    ///
    /// Of two routes with one host and prefix the first is taken; the reader of the configuration should warn of the
    /// second.
    pub fn new<'a>(routes: impl IntoIterator<Item = (Option<&'a str>, &'a str)>) -> Self {
        let rules = routes.into_iter().map(|(host, prefix)| RouteRule {
            host: host.map_or(HostRule::Any, |host| HostRule::Exact(host.to_owned())),
            path: PathRule::Prefix(prefix.to_owned()),
            ..RouteRule::default()
        });
        Self::compile(rules.collect())
    }

    /// Compiles rules. A route is the index of its rule in the list.
    pub fn compile(rules: Vec<RouteRule>) -> Self {
        let table = Self::choosing(&rules.iter().collect::<Vec<_>>());
        Self { rules: rules.into(), ..table }
    }

    /// Compiles rules that the table does not keep. It takes less memory, and cannot explain decisions.
    pub fn choosing(rules: &[&RouteRule]) -> Self {
        let ranks = ranks(rules.iter().copied());
        let mut order: Vec<usize> = (0..rules.len()).collect();
        order.sort_by_key(|index| ranks[*index]);

        let first = order.first().copied();
        let with_parameters = (0..rules.len()).filter(|index| names_parameters(&rules[*index].path));
        let mut table = Self { with_parameters: with_parameters.collect(), ..Self::default() };
        for index in order {
            let rule = rules[index];
            if rule.listeners.is_empty() {
                add(&mut table.any_listener, rule, index);
            }
            let mut listeners = rule.listeners.clone();
            listeners.sort_unstable();
            listeners.dedup();
            for listener in listeners {
                let known = table.by_listener.iter().position(|(known, _)| *known == listener);
                let place = known.unwrap_or_else(|| {
                    table.by_listener.push((listener, Hosts::default()));
                    table.by_listener.len() - 1
                });
                add(&mut table.by_listener[place].1, rule, index);
            }
        }
        let all = table.by_listener.iter_mut().map(|(_, hosts)| hosts).chain([&mut table.any_listener]);
        for hosts in all {
            hosts.link();
            hosts.values_mut().for_each(Paths::link);
            table.depends_on_path |= hosts.values().any(|paths| !paths.is_everything_or_nothing());
        }
        // A condition on the path must not be evaded by another spelling of it.
        table.depends_on_path |= rules.iter().any(|rule| rule.asks_for_path());
        if table.by_listener.is_empty() && !table.any_listener.has_names() && !table.depends_on_path {
            let asks_for_nothing = |index: &usize| Conditions::from_rule(rules[*index]).is_none();
            table.everything = first.filter(asks_for_nothing);
        }
        table
    }

    /// The route for a request, if one matches.
    ///
    /// Host and path are read as described at [`RouteTable::find`]. Allocates only for a path of more than 1 KiB that
    /// has escapes or repeated slashes, and for a parameter with escapes that is compared with a pattern.
    #[inline]
    pub fn choose<F: FieldLookup + ?Sized>(&self, request: &RequestParts<'_, F>) -> Option<usize> {
        let own = self.by_listener.iter().find(|(listener, _)| *listener == request.listener);
        let read = ReadClaims::default();
        let hold = |conditions: &Conditions| conditions.hold(request, &read);
        self.search(own.map(|(_, hosts)| hosts), request.host, request.path, hold)
    }

    /// The route for a host and a path. Rules with further conditions, such as a listener or a method, are skipped: see
    /// [`RouteTable::choose`].
    ///
    /// `host` has no port; case and a trailing dot do not matter. Routes of this host are preferred to routes without a
    /// host, and among the routes of one host the longest prefix wins. Prefixes match whole segments: `/api` (or
    /// `/api/`) matches `/api` and `/api/x`, not `/apix`.
    ///
    /// `path` has no query; the empty path and `*` match only `/`. Prefix and path are compared as a lenient server
    /// reads them, so that no spelling slips past a route. Escapes are decoded once (`/%61pi` and `/api%2Fx` are under
    /// `/api`), and repeated slashes count as one (`//api` is under `/api`, too). Dot segments are not resolved, and
    /// path parameters (`/api;v=1`) and backslashes are ordinary bytes. Servers may read them differently, so ask
    /// [`RouteTable::is_ambiguous`] first.
    #[inline]
    pub fn find(&self, host: &[u8], path: &[u8]) -> Option<usize> {
        self.search(None, host, path, |_| false)
    }

    /// The route of every request, if there is only one and it has no conditions. Equals the result of `choose`,
    /// without a request.
    #[inline]
    pub fn only(&self) -> Option<usize> {
        self.everything
    }

    /// Whether two paths of one host can have different routes. If not, ambiguous paths do no harm.
    pub fn depends_on_path(&self) -> bool {
        self.depends_on_path
    }

    /// Whether some servers would read the path as one with another route. A proxy rejects the request with 400. Always
    /// false if routes do not depend on the path.
    ///
    /// Ambiguous are paths that take another route once dot segments are resolved (`/x/../admin`), backslashes become
    /// slashes (`/\\admin`), or path parameters are removed (`/admin;v=1/x`). A route with a `;` in its own path is
    /// assumed to know about parameters.
    #[inline]
    pub fn is_ambiguous<F: FieldLookup + ?Sized>(&self, request: &RequestParts<'_, F>) -> bool {
        self.depends_on_path
            && Doubt::from_path(request.path) == Doubt::Reading
            && self.depends_on_reading(request)
    }

    #[inline(never)]
    fn depends_on_reading<F: FieldLookup + ?Sized>(&self, request: &RequestParts<'_, F>) -> bool {
        if request.path.len() > readings::READ_BYTES_MAX {
            return true;
        }
        let route = self.choose(request);
        let names_parameters = route.is_some_and(|route| self.with_parameters.binary_search(&route).is_ok());
        // `..;v` is a dot segment to servers that cut off parameters.
        let cuts = !names_parameters || has_dot_segments(request.path);
        readings::any(request.path, cuts, |path| self.choose(&RequestParts { path, ..*request }) != route)
    }

    /// Searches the table of the listener, if it has one, then that of all listeners.
    #[inline]
    fn search(
        &self,
        own: Option<&Hosts<Paths>>,
        host: &[u8],
        path: &[u8],
        hold: impl Fn(&Conditions) -> bool,
    ) -> Option<usize> {
        if self.everything.is_some() {
            return self.everything;
        }
        let search = |path: &[u8]| {
            let within = |hosts: &Hosts<Paths>| hosts.first(host, |paths| paths.first(path, &hold));
            own.and_then(within).or_else(|| within(&self.any_listener))
        };
        if self.depends_on_path { with_reading(path, search) } else { search(path) }
    }
}

fn names_parameters(path: &PathRule) -> bool {
    match path {
        PathRule::Exact(path) | PathRule::Prefix(path) | PathRule::TextPrefix(path) => {
            has(path.as_bytes(), b';')
        }
        PathRule::Pattern(pattern) => pattern.as_str().contains(';'),
    }
}

fn add(hosts: &mut Hosts<Paths>, rule: &RouteRule, route: usize) {
    let paths = hosts.entry(&rule.host);
    let candidates = match &rule.path {
        PathRule::Exact(path) => {
            let path: Vec<u8> = with_reading(path.as_bytes(), <[u8]>::to_vec);
            paths.exact.entry(hash_on(0, &path), &path, Vec::new)
        }
        PathRule::Prefix(prefix) => paths.prefixes.entry(prefix, Vec::new),
        PathRule::TextPrefix(text) => {
            paths.text_prefixes.get_or_insert_default().entry(canonical_text(text), Vec::new)
        }
        PathRule::Pattern(pattern) => paths.patterns.get_or_insert_default().entry(pattern, Vec::new),
    };
    candidates.push(Candidate { route, conditions: Conditions::from_rule(rule) });
}

/// The routes of one host, by path.
#[derive(Debug, Clone, Default)]
struct Paths {
    exact: TextMap<Vec<Candidate>>,
    /// Boxed, as the last field is: few hosts have any, and there may be many hosts.
    patterns: Option<Box<Patterns<Vec<Candidate>>>>,
    prefixes: Prefixes<Vec<Candidate>>,
    text_prefixes: Option<Box<TextPrefixes<Vec<Candidate>>>>,
}

/// A possible route for a host and a path.
#[derive(Debug, Clone)]
struct Candidate {
    route: usize,
    /// Further conditions; `None` if there are none.
    conditions: Option<Box<Conditions>>,
}

impl Paths {
    fn link(&mut self) {
        self.patterns.iter_mut().for_each(|patterns| patterns.link());
        self.prefixes.link();
        self.text_prefixes.iter_mut().for_each(|texts| texts.link());
        let of_patterns = self.patterns.iter_mut().flat_map(|patterns| patterns.values_mut());
        let all = self.exact.values_mut().chain(of_patterns).chain(self.prefixes.values_mut());
        let all = all.chain(self.text_prefixes.iter_mut().flat_map(|texts| texts.values_mut()));
        for candidates in all {
            // Candidates behind one without conditions are never reached.
            let reached = candidates.iter().position(|candidate| candidate.conditions.is_none());
            candidates.truncate(reached.map_or(candidates.len(), |last| last + 1));
            // Most lists have one entry, and a vector starts with room for four.
            candidates.shrink_to_fit();
        }
    }

    #[inline]
    fn first(&self, path: &[u8], hold: &impl Fn(&Conditions) -> bool) -> Option<usize> {
        let take = |candidates: &Vec<Candidate>| {
            let held = |candidate: &&Candidate| candidate.conditions.as_deref().is_none_or(hold);
            candidates.iter().find(held).map(|candidate| candidate.route)
        };
        if !self.exact.is_empty()
            && let Some(candidates) = self.exact.find(hash_on(0, path), |known| known == path)
            && let Some(route) = take(candidates)
        {
            return Some(route);
        }
        if let Some(patterns) = &self.patterns
            && let Some(route) = patterns.matching(path).find_map(take)
        {
            return Some(route);
        }
        match &self.text_prefixes {
            None => self.prefixes.above(path).find_map(|(_, candidates)| take(candidates)),
            Some(texts) => self.of_both_prefixes(path, texts, take),
        }
    }

    /// Goes through the prefixes of segments and of text, longest first.
    fn of_both_prefixes(
        &self,
        path: &[u8],
        texts: &TextPrefixes<Vec<Candidate>>,
        take: impl Fn(&Vec<Candidate>) -> Option<usize>,
    ) -> Option<usize> {
        let mut texts = texts.above(path).peekable();
        for (len, candidates) in self.prefixes.above(path) {
            while let Some((_, longer)) = texts.next_if(|(text_len, _)| *text_len > len) {
                if let Some(route) = take(longer) {
                    return Some(route);
                }
            }
            if let Some(route) = take(candidates) {
                return Some(route);
            }
        }
        texts.find_map(|(_, candidates)| take(candidates))
    }

    fn is_everything_or_nothing(&self) -> bool {
        self.exact.is_empty()
            && self.patterns.is_none()
            && self.text_prefixes.is_none()
            && self.prefixes.is_everything_or_nothing()
    }
}

/// The precedence of a rule, as described at [`RouteTable`]; the smallest value comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) is_for_every_listener: bool,
    pub(crate) host: HostRank,
    pub(crate) path: PathRank,
    pub(crate) strictness: Strictness,
    index: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HostRank {
    Exact,
    /// Ordered by length: of two parents of a host, the longer one is nearer.
    Below(Reverse<usize>),
    /// Ordered by the first rule with this pattern.
    Pattern(usize),
    Any,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PathRank {
    Exact,
    /// Ordered by the first rule with this pattern and this host.
    Pattern(usize),
    Prefix(Reverse<usize>, PrefixKind),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PrefixKind {
    Segments,
    Text,
}

pub(crate) fn ranks<'r>(rules: impl Iterator<Item = &'r RouteRule>) -> Vec<Rank> {
    // There may be many patterns; a map finds the first rule of each in one step.
    let mut first_of_host = HashMap::new();
    let mut first_of_path = HashMap::new();
    let rank = |(index, rule): (usize, &RouteRule)| Rank {
        is_for_every_listener: rule.listeners.is_empty(),
        host: match &rule.host {
            HostRule::Exact(_) => HostRank::Exact,
            HostRule::Below(parent) => HostRank::Below(Reverse(without_dot(parent.as_bytes()).len())),
            HostRule::Pattern(pattern) => {
                HostRank::Pattern(*first_of_host.entry(pattern.as_str().to_owned()).or_insert(index))
            }
            HostRule::Any => HostRank::Any,
        },
        path: match &rule.path {
            PathRule::Exact(_) => PathRank::Exact,
            PathRule::Pattern(pattern) => {
                let key = (host_key(&rule.host), pattern.as_str().to_owned());
                PathRank::Pattern(*first_of_path.entry(key).or_insert(index))
            }
            PathRule::Prefix(prefix) => {
                PathRank::Prefix(Reverse(canonical_prefix(prefix).len()), PrefixKind::Segments)
            }
            PathRule::TextPrefix(text) => {
                PathRank::Prefix(Reverse(canonical_text(text).len()), PrefixKind::Text)
            }
        },
        strictness: Strictness::from_rule(rule),
        index,
    };
    rules.enumerate().map(rank).collect()
}

/// The key of a host; equal for two spellings of one host.
pub(crate) fn host_key(host: &HostRule) -> (u8, Vec<u8>) {
    let canonical = |name: &str| without_dot(name.as_bytes()).to_ascii_lowercase();
    match host {
        HostRule::Any => (0, Vec::new()),
        HostRule::Exact(name) => (1, canonical(name)),
        HostRule::Below(parent) => (2, canonical(parent)),
        HostRule::Pattern(pattern) => (3, pattern.as_str().as_bytes().to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::NoConditions;
    use crate::pattern::BytePattern;
    use crate::request::NoFields;
    use proptest::prelude::*;

    const ROUTES: [(Option<&str>, &str); 14] = [
        (None, "/"),
        (None, "/api"),
        (None, "/api/v1"),
        (None, "/api-old"),
        (None, "/api/v1/users/"),
        (None, "/caf%C3%A9"),
        (Some("shop.example"), "/cart"),
        (Some("shop.example"), "/cart/pay"),
        (Some("Blog.Example."), "/"),
        (Some("blog.example"), "/api"),
        (Some("[::1]"), "/"),
        (Some("blog.example"), "//api/"),
        (None, "/%61pi"),
        (None, "/*"),
    ];

    #[test]
    fn the_most_specific_route_wins() {
        let table = RouteTable::new(ROUTES);
        for (host, path, route) in [
            // By path, for any host.
            ("other.example", "/", 0),
            ("other.example", "", 0),
            ("other.example", "*", 0),
            ("other.example", "/x", 0),
            ("", "/api", 1),
            ("other.example", "/api", 1),
            ("other.example", "/api/", 1),
            ("other.example", "/api/v2", 1),
            ("other.example", "/api/v1", 2),
            ("other.example", "/api/v10", 1),
            ("other.example", "/api/v1/user", 2),
            ("other.example", "/api/v1/users", 4),
            ("other.example", "/api/v1/users/7", 4),
            ("other.example", "/api-old", 3),
            ("other.example", "/api-older", 0),
            ("other.example", "/api.html", 0),
            ("other.example", "/apix", 0),
            ("other.example", "/ap", 0),
            ("other.example", "/API", 0),
            ("other.example", "/*", 13),
            // By host; its routes take precedence even if another prefix is longer.
            ("blog.example", "/x", 8),
            ("blog.example", "/api/v1/users", 9),
            ("BLOG.EXAMPLE", "/api", 9),
            ("blog.example.", "/api", 9),
            ("[::1]", "/api", 10),
            // A host without a route for the path falls back.
            ("shop.example", "/cart/pay/now", 7),
            ("shop.example", "/cart", 6),
            ("shop.example", "/cart-2", 0),
            ("shop.example", "/api", 1),
            ("blog.example..", "/x", 0),
            ("sub.blog.example", "/x", 0),
        ] {
            assert_eq!(table.find(host.as_bytes(), path.as_bytes()), Some(route), "{host} {path}");
        }
    }

    #[test]
    fn texts_and_segments_the_longest_prefix_wins() {
        let text = |text: &str| PathRule::TextPrefix(text.to_owned());
        let segments = |text: &str| PathRule::Prefix(text.to_owned());
        let paths = [
            segments("/"),
            segments("/api"),
            text("/api"),
            text("/api/"),
            segments("/api/v1"),
            text("/wp-"),
            PathRule::Exact("/wp-x".to_owned()),
        ];
        let rules = paths.into_iter().map(|path| RouteRule { path, ..RouteRule::default() });
        let table = RouteTable::compile(rules.collect());
        for (path, route) in [
            ("/", 0),
            ("*", 0),
            ("/ap", 0),
            ("/api", 1),
            ("/api/", 3),
            ("//api%2fx", 3),
            ("/api/v1", 4),
            ("/api/v10", 3),
            ("/apix", 2),
            ("/%61pix/y", 2),
            ("/wp-login.php", 5),
            ("/wp-", 5),
            ("/wp-x", 6),
            ("/wp", 0),
        ] {
            assert_eq!(table.find(b"a.example", path.as_bytes()), Some(route), "{path}");
        }
        let only = RouteTable::compile(vec![RouteRule { path: text("/a"), ..RouteRule::default() }]);
        assert!(only.depends_on_path() && only.find(b"", b"/b").is_none());
    }

    /// RFC 3986 §6.2.2, and other spellings that servers read as the same path.
    #[test]
    fn no_spelling_of_a_path_slips_past_its_route() {
        let table = RouteTable::new(ROUTES);
        for (path, route) in [
            ("//api", 1),
            ("/api//v1", 2),
            ("/%61pi/v1", 2),
            ("/%61%70%69", 1),
            ("/api%2Fv1", 2),
            ("/api%2fv1%2Fx", 2),
            ("/%2Fapi", 1),
            ("/caf%c3%a9/menu", 5),
            ("/%2561pi", 0),
            ("/api;v=1", 0),
        ] {
            assert_eq!(table.find(b"other.example", path.as_bytes()), Some(route), "{path}");
        }
    }

    /// Servers cut parameters off, before or after they decode a path, and some read a backslash as a slash.
    #[test]
    fn a_path_that_servers_may_read_as_that_of_another_route_is_ambiguous() {
        let named = |pattern: &str| PathRule::Pattern(BytePattern::new(pattern).unwrap());
        let table = RouteTable::compile(
            [
                PathRule::Prefix("/".to_owned()),
                PathRule::Prefix("/admin".to_owned()),
                PathRule::Exact("/login".to_owned()),
                PathRule::Prefix("/matrix;v=1".to_owned()),
                named("/files(;[a-z]+)?/.*"),
                PathRule::Prefix("/admin/open".to_owned()),
            ]
            .into_iter()
            .map(|path| RouteRule { path, ..RouteRule::default() })
            .collect(),
        );
        let everything = RouteTable::new([(None, "/")]);
        let too_long = format!("/x/./{}", "y".repeat(1024));
        for (path, is_ambiguous) in [
            ("/admin;x=1/secret", true),
            ("/admin%3Bx/secret", true),
            ("/admin;/", true),
            ("/;x/admin", true),
            ("/x;/../admin", true),
            ("/admin;a%2Fopen", true),
            ("/login;jsessionid=1", true),
            ("/\\admin/secret", true),
            ("/admin\\secret", true),
            ("/%5Cadmin", true),
            ("/x\\..\\admin", true),
            ("/x/%2e%2e/admin", true),
            ("/admin/../x", true),
            ("/admin/%2e%2e%2fx", true),
            ("/admin//../../x", true),
            ("/%2E/admin", true),
            // Every reading leads to the same route.
            ("/x\\y", false),
            ("/x/../y", false),
            ("/x/..\\y", false),
            ("/../x", false),
            ("/admin/a/../b", false),
            ("/admin/a\\b", false),
            ("/admin/./b", false),
            ("/files/..;a/x", true),
            (too_long.as_str(), true),
            ("/admin/secret", false),
            ("/admin/secret;x=1/y", false),
            ("/admin/open;x/y", true),
            ("/x;jsessionid=1", false),
            ("/x%3By/z", false),
            ("/matrix;v=1/x", false),
            ("/files;admin/x", false),
            ("/adminx;y", false),
        ] {
            let request = RequestParts {
                listener: 0,
                host: b"a.example",
                path: path.as_bytes(),
                query: None,
                method: b"GET",
                client: [127, 0, 0, 1].into(),
                fields: &NoFields,
                conditions: &NoConditions,
            };
            assert_eq!(table.is_ambiguous(&request), is_ambiguous, "{path}");
            assert!(!everything.is_ambiguous(&request), "{path}");
        }
    }

    #[test]
    fn nothing_matches_where_no_route_is_for_everything() {
        let table = RouteTable::new([(Some("a.example"), "/"), (None, "/api")]);
        assert_eq!(table.find(b"b.example", b"/"), None);
        assert_eq!(table.find(b"a.example", b"/"), Some(0));
        assert_eq!(table.find(b"b.example", b"/api"), Some(1));
        assert_eq!(RouteTable::default().find(b"a.example", b"/"), None);
        let long = "a".repeat(300);
        assert_eq!(RouteTable::new([(Some(long.as_str()), "/")]).find(long.as_bytes(), b"/"), None);
    }

    #[test]
    fn whether_the_path_matters() {
        for (routes, matters) in [
            (&[][..], false),
            (&[(None, "/")][..], false),
            (&[(Some("a"), "/"), (Some("b"), "/"), (None, "/")][..], false),
            (&[(None, "/api")][..], true),
            (&[(None, "/"), (Some("a"), "/api")][..], true),
            (&[(None, "/"), (None, "/api")][..], true),
        ] {
            assert_eq!(RouteTable::new(routes.iter().copied()).depends_on_path(), matters, "{routes:?}");
        }
    }

    #[test]
    fn ten_thousand_routes() {
        let texts: Vec<(String, String)> =
            (0..10_000).map(|n| (format!("host-{}.example", n % 100), format!("/p/{}/q", n / 100))).collect();
        let table = RouteTable::new(texts.iter().map(|(host, path)| (Some(host.as_str()), path.as_str())));
        for (index, (host, path)) in texts.iter().enumerate() {
            assert_eq!(table.find(host.as_bytes(), format!("{path}/x").as_bytes()), Some(index));
            assert_eq!(table.find(host.as_bytes(), format!("{path}x").as_bytes()), None);
        }
    }

    /// The rules as documented, tested one route after the other.
    fn reference(routes: &[(Option<String>, String)], host: &str, path: &str) -> Option<usize> {
        let segments = |path: &str| -> Vec<String> {
            path.split('/').filter(|segment| !segment.is_empty()).map(str::to_owned).collect()
        };
        let path = segments(path);
        let best = |of: Option<&str>| {
            let of_host = routes.iter().enumerate().filter(|(_, (name, _))| name.as_deref() == of);
            let matching = of_host.filter(|(_, (_, prefix))| path.starts_with(&segments(prefix)));
            let longest = matching.rev().max_by_key(|(_, (_, prefix))| segments(prefix).len());
            longest.map(|(index, _)| index)
        };
        best(Some(host)).or_else(|| best(None))
    }

    proptest! {
        #[test]
        fn the_table_agrees_with_the_rules(
            routes in prop::collection::vec((prop::option::of("[ab]"), "(/[ab.-]{0,2}){1,4}"), 0..24),
            host in "[abc]",
            path in "(/[ab.-]{0,2}){1,5}",
        ) {
            let table = RouteTable::new(routes.iter().map(|(host, path)| (host.as_deref(), path.as_str())));
            let found = table.find(host.as_bytes(), path.as_bytes());
            prop_assert_eq!(found, reference(&routes, &host, &path));
        }

        #[test]
        fn escaping_a_byte_changes_nothing(path in "(/[ab.-]{0,2}){1,5}", escaped in any::<prop::sample::Index>()) {
            let table = RouteTable::new([(None, "/a"), (None, "/a/b"), (None, "/b-"), (None, "/")]);
            let at = escaped.index(path.len());
            let spelt = format!("{}%{:02x}{}", &path[..at], path.as_bytes()[at], &path[at + 1..]);
            prop_assert_eq!(table.find(b"", spelt.as_bytes()), table.find(b"", path.as_bytes()));
        }
    }
}
