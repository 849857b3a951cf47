//! Finds certificates by host name: exactly, by a wildcard for one label, or by one for any number of labels.

use std::collections::HashMap;

/// Host names, with the indices of the certificates for each.
#[derive(Debug, Default)]
pub struct HostNames {
    exact: HashMap<String, Vec<usize>>,
    /// By the text behind the first dot: `*.example.com` is `example.com`.
    wildcard: HashMap<String, Vec<usize>>,
    /// By the text behind the first dot: `**.example.com` is `example.com`.
    deep: HashMap<String, Vec<usize>>,
}

impl HostNames {
    /// Builds the index from the lower-case names of each certificate.
    pub fn new<'n>(certificates: impl IntoIterator<Item = &'n [String]>) -> Self {
        let mut names = Self::default();
        for (index, own) in certificates.into_iter().enumerate() {
            for name in own {
                let (map, name) = match (name.strip_prefix("**."), name.strip_prefix("*.")) {
                    (Some(parent), _) => (&mut names.deep, parent),
                    (None, Some(parent)) => (&mut names.wildcard, parent),
                    (None, None) => (&mut names.exact, name.as_str()),
                };
                // RFC 9525 §6.3: a wildcard is the whole first label, and occurs nowhere else.
                if !name.contains('*') && !name.is_empty() {
                    let indices = map.entry(name.to_owned()).or_default();
                    if indices.last() != Some(&index) {
                        indices.push(index);
                    }
                }
            }
        }
        names
    }

    /// The certificates for a lower-case host name: first those with the exact name, then those with a matching
    /// wildcard. Among wildcards for any number of labels, those with more labels come first.
    pub fn having<'n>(&'n self, name: &'n str) -> impl Iterator<Item = usize> + Clone + use<'n> {
        let name = name.strip_suffix('.').unwrap_or(name);
        let exact = self.exact.get(name);
        let wildcard = name.split_once('.').and_then(|(_, parent)| self.wildcard.get(parent));
        let mut below = (!self.deep.is_empty()).then_some(name);
        let deep = std::iter::from_fn(move || {
            let (_, parent) = below?.split_once('.')?;
            below = Some(parent);
            Some(self.deep.get(parent))
        });
        exact.into_iter().chain(wildcard).chain(deep.flatten()).flatten().copied()
    }
}

/// Whether one of a certificate's names is for a host: the same name, or a wildcard in place of its first label (RFC
/// 9525 §6.3).
pub fn is_for(names: &[String], host: &str) -> bool {
    let parent = host.split_once('.').map(|(_, parent)| parent);
    names.iter().any(|name| {
        let wildcard = name.strip_prefix("*.").filter(|_| !host.starts_with("*."));
        name.eq_ignore_ascii_case(host)
            || wildcard.zip(parent).is_some_and(|(of, parent)| of.eq_ignore_ascii_case(parent))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc9525_names_and_wildcards_of_certificates() {
        for (names, host, expected) in [
            (&["a.example"][..], "a.example", true),
            (&["b.example", "A.Example"], "a.example", true),
            (&["a.example"], "b.example", false),
            (&["*.example"], "a.example", true),
            (&["*.example"], "b.a.example", false),
            (&["*.example"], "example", false),
            (&["*.example"], "*.example", true),
            (&["a.example"], "*.example", false),
            (&["*.example"], "*.a.example", false),
            (&["192.0.2.1"], "192.0.2.1", true),
            (&[], "a.example", false),
        ] {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            assert_eq!(is_for(&names, host), expected, "{names:?} {host}");
        }
    }

    #[test]
    fn exact_names_come_before_wildcards_of_one_label() {
        let certificates: [&[&str]; 7] = [
            &["example.com", "www.example.com"],
            &["*.example.com", "example.com"],
            &["api.example.com", "*.api.example.com"],
            &["f*.example.net", "*", "*.*.example.net", ""],
            &["www.example.com", "www.example.com"],
            &["**.deep.example", "**.*.example"],
            &["**.b.deep.example", "*.deep.example"],
        ];
        let owned = certificates.map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>());
        let names = HostNames::new(owned.iter().map(Vec::as_slice));
        for (name, expected) in [
            ("example.com", &[0, 1][..]),
            ("example.com.", &[0, 1]),
            ("www.example.com", &[0, 4, 1]),
            ("other.example.com", &[1]),
            ("api.example.com", &[2, 1]),
            ("v1.api.example.com", &[2]),
            ("a.b.example.com", &[]),
            ("a.v1.api.example.com", &[]),
            ("com", &[]),
            ("foo.example.net", &[]),
            ("a.b.example.net", &[]),
            ("*.example.com", &[1]),
            ("", &[]),
            (".", &[]),
            (".example.com", &[1]),
            ("deep.example", &[]),
            ("a.deep.example", &[6, 5]),
            ("x.a.deep.example", &[5]),
            ("b.deep.example", &[6, 5]),
            ("x.y.b.deep.example.", &[6, 5]),
            ("a.b.example", &[]),
        ] {
            assert_eq!(names.having(name).collect::<Vec<_>>(), expected, "{name}");
        }
    }
}
