//! Looks up values by host: exact names first, then the nearest wildcard parent, then patterns, then the value for any
//! host.
//!
//! Different spellings of an IP address are not treated as equal.

use crate::pattern::Patterns;
use crate::rule::HostRule;
use crate::text_map::{TextMap, hash_ignoring_case, is_in_lower_case};

/// The longest host in a table. RFC 1035 §2.3.4 allows 253 bytes.
pub(crate) const HOST_BYTES_MAX: usize = 255;

#[derive(Debug, Clone)]
pub(crate) struct Hosts<T> {
    /// By host in lower case without a trailing dot.
    exact: TextMap<T>,
    /// Values of wildcard hosts, by the parent name.
    below: TextMap<T>,
    /// The numbers of labels that wildcard parents have, as bits.
    below_labels: u128,
    patterns: Patterns<T>,
    any: T,
    /// Whether there are values besides `any`.
    has_names: bool,
}

impl<T: Default> Default for Hosts<T> {
    fn default() -> Self {
        Self {
            exact: TextMap::default(),
            below: TextMap::default(),
            below_labels: 0,
            patterns: Patterns::default(),
            any: T::default(),
            has_names: false,
        }
    }
}

impl<T: Default> Hosts<T> {
    /// The value of a host; created if missing. A host that is too long is never found.
    pub(crate) fn entry(&mut self, host: &HostRule) -> &mut T {
        let canonical = |name: &str| without_dot(name.as_bytes()).to_ascii_lowercase();
        self.has_names |= *host != HostRule::Any;
        match host {
            HostRule::Any => &mut self.any,
            HostRule::Exact(name) => {
                let name = canonical(name);
                self.exact.entry(hash_ignoring_case(&name), &name, T::default)
            }
            HostRule::Below(parent) => {
                let parent = canonical(parent);
                self.below_labels |= label_bit(labels(&parent));
                self.below.entry(hash_ignoring_case(&parent), &parent, T::default)
            }
            HostRule::Pattern(pattern) => self.patterns.entry(pattern, T::default),
        }
    }

    pub(crate) fn has_names(&self) -> bool {
        self.has_names
    }

    /// Prepares the table for lookups, after all hosts were added.
    pub(crate) fn link(&mut self) {
        self.patterns.link();
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        let names = self.exact.values().chain(self.below.values());
        names.chain(self.patterns.values()).chain([&self.any])
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let names = self.exact.values_mut().chain(self.below.values_mut());
        names.chain(self.patterns.values_mut()).chain([&mut self.any])
    }

    /// Calls `take` with the values for a host, most specific first, and returns its first result.
    #[inline]
    pub(crate) fn first<R>(&self, host: &[u8], mut take: impl FnMut(&T) -> Option<R>) -> Option<R> {
        if self.has_names
            && let Some(taken) = self.first_named(without_dot(host), &mut take)
        {
            return Some(taken);
        }
        take(&self.any)
    }

    #[inline]
    fn first_named<R>(&self, host: &[u8], take: &mut impl FnMut(&T) -> Option<R>) -> Option<R> {
        if host.len() > HOST_BYTES_MAX {
            return None;
        }
        let exact = find(&self.exact, host).and_then(&mut *take);
        if exact.is_some() {
            return exact;
        }
        let above = if self.below_labels == 0 { None } else { self.first_above(host, take) };
        if above.is_some() || self.patterns.is_empty() {
            return above;
        }
        self.first_matching(host, take)
    }

    fn first_above<R>(&self, host: &[u8], take: &mut impl FnMut(&T) -> Option<R>) -> Option<R> {
        let mut labels_left = labels(host);
        for (at, _) in host.iter().enumerate().filter(|(_, byte)| **byte == b'.') {
            labels_left -= 1;
            // A host below a name has a non-empty label before it.
            if at > 0
                && self.below_labels & label_bit(labels_left) != 0
                && let Some(value) = find(&self.below, &host[at + 1..])
                && let Some(taken) = take(value)
            {
                return Some(taken);
            }
        }
        None
    }

    fn first_matching<R>(&self, host: &[u8], take: &mut impl FnMut(&T) -> Option<R>) -> Option<R> {
        let mut lower = [0; HOST_BYTES_MAX];
        let lower = &mut lower[..host.len()];
        lower.copy_from_slice(host);
        lower.make_ascii_lowercase();
        self.patterns.matching(lower).find_map(take)
    }
}

#[inline]
fn find<'t, T>(names: &'t TextMap<T>, host: &[u8]) -> Option<&'t T> {
    names.find(hash_ignoring_case(host), |name| is_in_lower_case(host, name))
}

/// A host name without its trailing dot, which stands for the root (RFC 1034 §3.1).
#[inline]
pub(crate) fn without_dot(host: &[u8]) -> &[u8] {
    host.strip_suffix(b".").unwrap_or(host)
}

fn labels(host: &[u8]) -> usize {
    host.iter().filter(|&&byte| byte == b'.').count() + 1
}

fn label_bit(labels: usize) -> u128 {
    1 << labels.min(127)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::BytePattern;

    #[test]
    fn patterns_with_capital_letters_match_hosts_in_any_case() {
        // Alone, and in a set.
        for others in [0, 5] {
            let mut hosts = Hosts::<usize>::default();
            for number in 0..others {
                *hosts.entry(&HostRule::Pattern(BytePattern::new(&format!("other{number}")).unwrap())) = 9;
            }
            *hosts
                .entry(&HostRule::Pattern(BytePattern::ignoring_case(r"(WWW|Api)\.Example\.com").unwrap())) =
                1;
            hosts.link();
            let taken = |host: &str| hosts.first(host.as_bytes(), |value| (*value > 0).then_some(*value));
            for host in ["www.example.com", "WWW.EXAMPLE.COM", "api.Example.com."] {
                assert_eq!(taken(host), Some(1), "{host}");
            }
            assert_eq!(taken("www.example.org"), None);
        }
    }

    #[test]
    fn the_most_specific_host_is_offered_first() {
        let mut hosts = Hosts::<usize>::default();
        let rules = [
            HostRule::Any,
            HostRule::from_text("a.example.com"),
            HostRule::from_text("*.example.com"),
            HostRule::from_text("*.Sub.Example.com"),
            HostRule::from_text("*.com."),
            HostRule::Pattern(BytePattern::new(r"[a-z]\.example\..*").unwrap()),
            HostRule::from_text("[::1]"),
            HostRule::from_text("*"),
            HostRule::Pattern(BytePattern::new(r".*\d").unwrap()),
        ];
        for (index, rule) in rules.iter().enumerate() {
            *hosts.entry(rule) = index;
        }
        hosts.link();
        for (host, offered) in [
            ("a.example.com", &[1, 2, 4, 5, 7][..]),
            ("A.Example.COM.", &[1, 2, 4, 5, 7]),
            ("x.y.example.com", &[2, 4, 7]),
            ("x.sub.example.com", &[3, 2, 4, 7]),
            ("x.y.sub.example.com", &[3, 2, 4, 7]),
            ("sub.example.com", &[2, 4, 7]),
            ("example.com", &[4, 7]),
            ("com", &[7]),
            (".example.com", &[4, 7]),
            (".com", &[7]),
            ("badexample.com", &[4, 7]),
            ("a.example.com..", &[5, 7]),
            ("B.EXAMPLE.org", &[5, 7]),
            ("[::1]", &[6, 7]),
            ("192.0.2.7", &[8, 7]),
            ("", &[7]),
            ("*.example.com", &[2, 4, 7]),
        ] {
            let mut seen = Vec::new();
            let taken: Option<()> = hosts.first(host.as_bytes(), |value| {
                seen.push(*value);
                None
            });
            assert_eq!((seen.as_slice(), taken), (offered, None), "{host}");
        }
        let long = format!("{}.example.com", "a.".repeat(150));
        assert_eq!(hosts.first(long.as_bytes(), |value| Some(*value)), Some(7));
        let deep = format!("{}example.com", "a.".repeat(120));
        assert_eq!(hosts.first(deep.as_bytes(), |value| Some(*value)), Some(2));
    }
}
