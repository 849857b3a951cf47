//! Which certificates have a name: exactly, or by a wildcard of one label.

use std::collections::HashMap;

/// Names and the certificates that have them, as indices.
#[derive(Debug, Default)]
pub(crate) struct Names {
    exact: HashMap<String, Vec<usize>>,
    /// By what is behind the first dot: `*.example.com` is `example.com`.
    wildcard: HashMap<String, Vec<usize>>,
}

impl Names {
    /// From the names of each certificate, lower case.
    pub(crate) fn new<'n>(certificates: impl IntoIterator<Item = &'n [String]>) -> Self {
        let mut names = Self::default();
        for (index, own) in certificates.into_iter().enumerate() {
            for name in own {
                let (map, name) = match name.strip_prefix("*.") {
                    Some(parent) => (&mut names.wildcard, parent),
                    None => (&mut names.exact, name.as_str()),
                };
                // RFC 9525 §6.3: a wildcard is the whole of the first label, and nowhere else.
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

    /// The certificates that have this name, lower case: those that have it exactly, then those by a wildcard.
    pub(crate) fn having<'n>(&'n self, name: &str) -> impl Iterator<Item = usize> + Clone + use<'n> {
        let name = name.strip_suffix('.').unwrap_or(name);
        let exact = self.exact.get(name);
        let wildcard = name.split_once('.').and_then(|(_, parent)| self.wildcard.get(parent));
        exact.into_iter().chain(wildcard).flatten().copied()
    }
}
