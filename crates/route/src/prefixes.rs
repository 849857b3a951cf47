//! Looks up path prefixes by whole segments.
//!
//! A lookup walks along the path once and hashes segment after segment. Its cost does not depend on the number of
//! prefixes.

use crate::path::canonical_text;
use crate::text_map::{TextMap, hash_on};

#[derive(Debug, Clone)]
pub(crate) struct Prefixes<T> {
    /// The value of `/`, which matches every path.
    root: Option<T>,
    /// The values of the other prefixes, which start with a slash and do not end with one.
    nodes: TextMap<PrefixNode<T>>,
    /// The numbers of segments that prefixes have, as bits: bit n for n + 1 segments. The last bit stands for all
    /// longer ones.
    depths: u64,
}

#[derive(Debug, Clone)]
struct PrefixNode<T> {
    value: T,
    /// The longest other prefix, except the root, that contains this one.
    parent: Option<usize>,
}

impl<T> Default for Prefixes<T> {
    fn default() -> Self {
        Self { root: None, nodes: TextMap::default(), depths: 0 }
    }
}

/// A prefix as a lenient server reads it, without a trailing slash; `/` becomes empty.
pub(crate) fn canonical_prefix(prefix: &str) -> Vec<u8> {
    let mut text = canonical_text(prefix);
    if text.last() == Some(&b'/') {
        text.pop();
    }
    text
}

impl<T> Prefixes<T> {
    /// The value of a prefix; created if missing. A prefix that does not start with a slash is never found.
    pub(crate) fn entry(&mut self, prefix: &str, new: impl FnOnce() -> T) -> &mut T {
        let text = canonical_prefix(prefix);
        if text.is_empty() {
            return self.root.get_or_insert_with(new);
        }
        let (hash, depth) =
            Segments::from_path(&text).enumerate().last().map_or((0, 0), |(depth, (hash, _))| (hash, depth));
        self.depths |= bit(depth);
        &mut self.nodes.entry(hash, &text, || PrefixNode { value: new(), parent: None }).value
    }

    /// Determines the parent of each prefix, after all were added.
    pub(crate) fn link(&mut self) {
        for position in 0..self.nodes.len() {
            let text = self.nodes.text(position);
            let parent =
                text.iter().rposition(|&byte| byte == b'/').and_then(|end| self.last_node(&text[..end]));
            self.nodes.at_mut(position).parent = parent;
        }
    }

    /// The values of the prefixes that contain a path with the lengths of their texts, longest first. The path must already
    /// be in canonical form.
    #[inline]
    pub(crate) fn above<'s>(&'s self, path: &[u8]) -> impl Iterator<Item = (usize, &'s T)> {
        let mut next = self.last_node(path);
        let nodes = std::iter::from_fn(move || {
            let position = next?;
            let node = self.nodes.at(position);
            next = node.parent;
            Some((self.nodes.text(position).len(), &node.value))
        });
        nodes.chain(self.root.iter().map(|value| (0, value)))
    }

    /// Whether all paths have one result.
    pub(crate) fn is_everything_or_nothing(&self) -> bool {
        self.nodes.is_empty()
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.root.iter_mut().chain(self.nodes.values_mut().map(|node| &mut node.value))
    }

    /// The longest prefix, except the root, that contains a path.
    #[inline]
    fn last_node(&self, path: &[u8]) -> Option<usize> {
        let mut found = None;
        let mut depths_left = self.depths;
        let mut segments = Segments::from_path(path).enumerate();
        while depths_left != 0 {
            let Some((depth, (hash, end))) = segments.next() else { break };
            if depths_left & bit(depth) != 0 {
                let prefix = &path[..end];
                found = self.nodes.position(hash, |known| known == prefix).or(found);
            }
            // The deeper prefixes remain; the last bit stays.
            depths_left &= u64::MAX << (depth + 1).min(LAST_BIT);
        }
        found
    }
}

const LAST_BIT: usize = 63;

fn bit(depth: usize) -> u64 {
    1 << depth.min(LAST_BIT)
}

/// The ends of a path's segments, each with a hash of the path up to there. Empty for a path without a leading slash.
struct Segments<'a> {
    path: &'a [u8],
    /// The position of the slash before the next segment.
    at: usize,
    hash: u64,
}

impl<'a> Segments<'a> {
    #[inline]
    fn from_path(path: &'a [u8]) -> Self {
        Self { path, at: 0, hash: 0 }
    }
}

impl Iterator for Segments<'_> {
    type Item = (u64, usize);

    #[inline]
    fn next(&mut self) -> Option<(u64, usize)> {
        let [b'/', rest @ ..] = self.path.get(self.at..)? else { return None };
        let len = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
        self.hash = hash_on(self.hash, &rest[..len]);
        self.at += 1 + len;
        Some((self.hash, self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes(list: &[&str]) -> Prefixes<usize> {
        let mut prefixes = Prefixes::default();
        for (index, prefix) in list.iter().enumerate() {
            prefixes.entry(prefix, || index);
        }
        prefixes.link();
        prefixes
    }

    #[test]
    fn the_prefixes_above_a_path_the_longest_first() {
        let table = prefixes(&["/", "/a", "/a/b/c", "/a/b", "/x/y/z", "/a/", "//a", "/%61", "a"]);
        for (path, above) in [
            ("/", &[0][..]),
            ("*", &[0]),
            ("a", &[0]),
            ("/a", &[1, 0]),
            ("/a/", &[1, 0]),
            ("/ab", &[0]),
            ("/a/b", &[3, 1, 0]),
            ("/a/b/c/d/e", &[2, 3, 1, 0]),
            ("/a/b/cd", &[3, 1, 0]),
            ("/x/y", &[0]),
            ("/x/y/z/", &[4, 0]),
        ] {
            assert_eq!(
                table.above(path.as_bytes()).map(|(_, value)| *value).collect::<Vec<_>>(),
                above,
                "{path}"
            );
        }
        assert_eq!(prefixes(&["/a"]).above(b"/b").count(), 0);
        assert!(prefixes(&["/"]).is_everything_or_nothing() && !prefixes(&["/a"]).is_everything_or_nothing());
    }

    #[test]
    fn prefixes_of_very_many_segments() {
        let deep = "/s".repeat(100);
        let deeper = "/s".repeat(70);
        let table = prefixes(&[&deep, &deeper, "/s/s"]);
        assert_eq!(table.above(deep.as_bytes()).map(|(_, value)| *value).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(
            table.above("/s".repeat(99).as_bytes()).map(|(_, value)| *value).collect::<Vec<_>>(),
            [1, 2]
        );
        assert_eq!(
            table.above("/s".repeat(3000).as_bytes()).map(|(_, value)| *value).collect::<Vec<_>>(),
            [0, 1, 2]
        );
        assert_eq!(table.above(b"/s/s/t").map(|(_, value)| *value).collect::<Vec<_>>(), [2]);
    }
}
