//! Which route a host and a path lead to: the most specific one, whatever the order in which they were written.
//!
//! A look-up hashes the host and searches that host's sorted prefixes; it allocates nothing. Hosts are exact names:
//! no wildcards, and no two spellings of one IP address are equated.

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::path::Reading;

/// RFC 1035 §2.3.4 allows 253 bytes; a longer host is no host of a table.
const LONGEST_HOST: usize = 255;

/// The routes of a proxy, as indices into the list that they were made from.
#[derive(Debug, Clone, Default)]
pub struct RouteTable {
    /// By host in lower case, without a dot at its end.
    hosts: HashMap<Box<[u8]>, Prefixes>,
    /// Of the routes without a host.
    any_host: Prefixes,
}

impl RouteTable {
    /// Compiles routes, each a host or `None` for every host, and a path prefix.
    ///
    /// Of two routes for the same host and prefix the first is taken; whoever reads a configuration says that
    /// the second is never reached.
    pub fn new<'a>(routes: impl IntoIterator<Item = (Option<&'a str>, &'a str)>) -> Self {
        let mut table = Self::default();
        for (index, (host, prefix)) in routes.into_iter().enumerate() {
            let prefixes = match host {
                None => &mut table.any_host,
                Some(host) => {
                    let key = without_dot(host.as_bytes()).to_ascii_lowercase();
                    table.hosts.entry(key.into()).or_default()
                }
            };
            prefixes.add(prefix.as_bytes(), index);
        }
        table.any_host.link();
        table.hosts.values_mut().for_each(Prefixes::link);
        table
    }

    /// The index of the route for a request, or `None`.
    ///
    /// `host` is without its port; its case and a dot at its end do not matter. A route of this very host comes
    /// before those without a host, and of one host's routes the longest prefix wins. A prefix matches by whole
    /// segments: `/api`, which `/api/` means as well, matches `/api` and `/api/x`, not `/apix`.
    ///
    /// `path` is without its query; the empty path and `*` match `/` alone. Prefix and path are compared as a lenient
    /// server reads them, so that no spelling slips past a route: escapes are decoded once (`/%61pi` and `/api%2Fx`
    /// are under `/api`), and slashes in a row count as one (`//api` is as well). Dot segments are not resolved: see
    /// [`has_dot_segments`](crate::has_dot_segments). Path parameters (`/api;v=1`) and backslashes are ordinary bytes.
    #[inline]
    pub fn find(&self, host: &[u8], path: &[u8]) -> Option<usize> {
        self.of_host(host).and_then(|prefixes| prefixes.longest(path)).or_else(|| self.any_host.longest(path))
    }

    /// Whether two paths of one host can lead to two places; if not, it does not matter how a path is read.
    pub fn depends_on_path(&self) -> bool {
        self.hosts.values().chain([&self.any_host]).any(|prefixes| !prefixes.is_everything_or_nothing())
    }

    #[inline]
    fn of_host(&self, host: &[u8]) -> Option<&Prefixes> {
        let host = without_dot(host);
        if self.hosts.is_empty() || host.len() > LONGEST_HOST {
            return None;
        }
        let mut lower = [0; LONGEST_HOST];
        let lower = &mut lower[..host.len()];
        lower.copy_from_slice(host);
        lower.make_ascii_lowercase();
        self.hosts.get(&*lower)
    }
}

/// RFC 1034 §3.1: a dot at the end is the root, which every name ends in.
fn without_dot(host: &[u8]) -> &[u8] {
    host.strip_suffix(b".").unwrap_or(host)
}

/// The path prefixes of one host, sorted with `/` before every other byte, so that what is below a prefix
/// follows it at once.
#[derive(Debug, Clone, Default)]
struct Prefixes(Vec<Prefix>);

#[derive(Debug, Clone)]
struct Prefix {
    /// As a lenient server reads it, without a slash at its end; `/` is empty.
    path: Box<[u8]>,
    route: usize,
    /// The longest other prefix that this one is below.
    parent: Option<usize>,
}

impl Prefixes {
    fn add(&mut self, prefix: &[u8], route: usize) {
        let mut path: Vec<u8> = Reading::of(prefix).collect();
        if path.last() == Some(&b'/') {
            path.pop();
        }
        self.0.push(Prefix { path: path.into(), route, parent: None });
    }

    /// Sorts, drops what is written twice, and finds each prefix's parent.
    fn link(&mut self) {
        // Stable: of two equal prefixes the first stays.
        self.0.sort_by(|one, other| compare(&one.path, other.path.iter().copied()));
        self.0.dedup_by(|later, earlier| later.path == earlier.path);
        for index in 1..self.0.len() {
            let (before, rest) = self.0.split_at_mut(index);
            // In this order the parent is the prefix before, or above that one.
            let mut above = Some(index - 1);
            while let Some(candidate) = above {
                if is_below(rest[0].path.iter().copied(), &before[candidate].path) {
                    break;
                }
                above = before[candidate].parent;
            }
            rest[0].parent = above;
        }
    }

    #[inline]
    fn longest(&self, path: &[u8]) -> Option<usize> {
        let reading = Reading::of(path);
        let after =
            self.0.partition_point(|prefix| compare(&prefix.path, reading.clone()) != Ordering::Greater);
        // Every prefix of the path is the last one not behind it, or above that one.
        let mut candidate = after.checked_sub(1);
        while let Some(index) = candidate {
            let prefix = &self.0[index];
            if is_below(reading.clone(), &prefix.path) {
                return Some(prefix.route);
            }
            candidate = prefix.parent;
        }
        None
    }

    fn is_everything_or_nothing(&self) -> bool {
        match self.0.as_slice() {
            [] => true,
            [only] => only.path.is_empty(),
            _ => false,
        }
    }
}

/// Whether the path is the prefix or continues it with a whole segment.
fn is_below(mut path: impl Iterator<Item = u8>, prefix: &[u8]) -> bool {
    if prefix.is_empty() {
        return true;
    }
    prefix.iter().all(|&byte| path.next() == Some(byte)) && path.next().is_none_or(|byte| byte == b'/')
}

fn compare(prefix: &[u8], path: impl Iterator<Item = u8>) -> Ordering {
    let rank = |byte: u8| (byte != b'/', byte);
    prefix.iter().copied().map(rank).cmp(path.map(rank))
}

#[cfg(test)]
mod tests {
    use super::*;
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
            // By path, without a host of its own.
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
            // By host; its routes come first even where another's prefix is longer.
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

    /// RFC 3986 §6.2.2, and what servers behind a proxy read as the same path.
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

    /// The rules as they are said, one route after the other.
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
