//! Looks up path prefixes as texts: `/api` is also a prefix of `/apix`.
//!
//! A lookup is a binary search. The cost grows with the logarithm of the number of prefixes.

/// The values of prefixes, sorted by text.
#[derive(Debug, Clone)]
pub(crate) struct TextPrefixes<T> {
    nodes: Vec<TextNode<T>>,
}

#[derive(Debug, Clone)]
struct TextNode<T> {
    text: Box<[u8]>,
    value: T,
    /// The longest other prefix that this text starts with.
    parent: Option<usize>,
}

impl<T> Default for TextPrefixes<T> {
    fn default() -> Self {
        Self { nodes: Vec::new() }
    }
}

impl<T> TextPrefixes<T> {
    /// The value of a prefix in canonical form; created if missing.
    pub(crate) fn entry(&mut self, text: Vec<u8>, new: impl FnOnce() -> T) -> &mut T {
        let position = match self.nodes.binary_search_by(|node| (*node.text).cmp(&text)) {
            Ok(position) => position,
            Err(position) => {
                let node = TextNode { text: text.into(), value: new(), parent: None };
                self.nodes.insert(position, node);
                position
            }
        };
        &mut self.nodes[position].value
    }

    /// Determines the parent of each prefix, after all were added.
    pub(crate) fn link(&mut self) {
        for position in 0..self.nodes.len() {
            // Texts between a prefix and its longest extension all start with the prefix.
            let before = position.checked_sub(1);
            self.nodes[position].parent = self.longest(before, &self.nodes[position].text);
        }
        self.nodes.shrink_to_fit();
    }

    /// The values of the prefixes of a path with the lengths of their texts, longest first. The path must already be in
    /// canonical form.
    pub(crate) fn above<'s>(&'s self, path: &[u8]) -> impl Iterator<Item = (usize, &'s T)> {
        let before = self.nodes.partition_point(|node| *node.text <= *path).checked_sub(1);
        let mut next = self.longest(before, path);
        std::iter::from_fn(move || {
            let node = &self.nodes[next?];
            next = node.parent;
            Some((node.text.len(), &node.value))
        })
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.nodes.iter_mut().map(|node| &mut node.value)
    }

    /// The first prefix of a path among a node and its parents.
    fn longest(&self, from: Option<usize>, path: &[u8]) -> Option<usize> {
        let mut next = from;
        while let Some(position) = next {
            let node = &self.nodes[position];
            if path.starts_with(&node.text) {
                return Some(position);
            }
            next = node.parent;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefixes(list: &[&str]) -> TextPrefixes<usize> {
        let mut prefixes = TextPrefixes::default();
        for (index, text) in list.iter().enumerate() {
            prefixes.entry(text.as_bytes().to_vec(), || index);
        }
        prefixes.link();
        prefixes
    }

    fn above(table: &TextPrefixes<usize>, path: &str) -> Vec<usize> {
        table.above(path.as_bytes()).map(|(_, value)| *value).collect()
    }

    #[test]
    fn the_prefixes_of_a_path_the_longest_first() {
        let table = prefixes(&["/", "/api", "/api/", "/api/v1", "/apix", "/b", "/api"]);
        for (path, expected) in [
            ("/", &[0][..]),
            ("*", &[]),
            ("/ap", &[0]),
            ("/api", &[1, 0]),
            ("/api/", &[2, 1, 0]),
            ("/api/v10", &[3, 2, 1, 0]),
            ("/apis", &[1, 0]),
            ("/apixyz", &[4, 1, 0]),
            ("/bc", &[5, 0]),
        ] {
            assert_eq!(above(&table, path), expected, "{path}");
        }
        assert!(above(&prefixes(&[]), "/a").is_empty());
    }

    proptest! {
        #[test]
        fn as_if_each_prefix_were_compared(
            list in prop::collection::btree_set("(/[ab]{0,2}){1,3}", 0..20),
            path in "(/[abc]{0,3}){1,4}",
        ) {
            let texts: Vec<&str> = list.iter().map(String::as_str).collect();
            let mut expected: Vec<usize> =
                (0..texts.len()).filter(|index| path.starts_with(texts[*index])).collect();
            expected.sort_by_key(|index| std::cmp::Reverse(texts[*index].len()));
            prop_assert_eq!(above(&prefixes(&texts), &path), expected);
        }
    }
}
