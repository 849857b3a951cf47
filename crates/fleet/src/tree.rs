//! A configuration in etcd: a single file, or a tree of files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use config::{Machine, Mistake, Reading, Surroundings};
use mistake::Excerpt;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::etcd::KeyValue;
use crate::location::Location;

/// The first file of a tree. It includes the others, with `include = "conf.d/*.toml"`.
pub const FIRST: &str = "vanward.toml";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WrittenSecrets {
    #[default]
    Refused,
    /// The operator considers etcd as safe as the machines.
    Allowed,
}

/// Files by name. A name is the key without the prefix.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tree {
    pub files: BTreeMap<String, String>,
}

impl Tree {
    pub fn new(location: &Location, entries: &[KeyValue]) -> Result<Self, String> {
        let mut files = BTreeMap::new();
        for KeyValue { key, value, .. } in entries {
            let name = match key.strip_prefix(&location.prefix) {
                Some("") => FIRST,
                Some(rest) => rest.trim_start_matches('/'),
                None => continue,
            };
            let text = String::from_utf8(value.clone())
                .map_err(|_| format!("etcd:{key}: this is not UTF-8 text"))?;
            files.insert(name.to_owned(), text);
        }
        Ok(Self { files })
    }

    /// Returns a digest of all files: the same files are the same version.
    pub fn version(&self) -> String {
        let mut digest = Sha256::new();
        for (name, text) in &self.files {
            for part in [name, text] {
                digest.update((part.len() as u64).to_be_bytes());
                digest.update(part.as_bytes());
            }
        }
        digest.finalize().iter().take(4).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Parses the configuration. Messages name files as `etcd:/prefix/name`. Secrets in the text are mistakes
    /// unless allowed, because every reader of etcd or of a backup could see them.
    pub fn examine(&self, location: &Location, secrets: WrittenSecrets) -> Reading {
        self.examine_as(false, location, secrets)
    }

    /// As `examine`, on a machine that need not have the instances' variables and files. If some are missing, there
    /// is no mistake but also no `Config`, and warnings list what only the instances can check.
    pub fn examine_for_others(&self, location: &Location, secrets: WrittenSecrets) -> Reading {
        self.examine_as(true, location, secrets)
    }

    fn examine_as(&self, is_for_others: bool, location: &Location, secrets: WrittenSecrets) -> Reading {
        let text = self.files.get(FIRST).map(String::as_str);
        let in_tree = InTree { tree: self, root: format!("etcd:{}/", location.prefix), is_for_others };
        // An empty file lacks listeners, and the mistake for that has a place.
        let mut reading = config::examine_in(text.unwrap_or_default(), &location.shown(FIRST), &in_tree);
        let has_secrets = match reading.config {
            None if is_for_others => self.files.values().any(|text| config::has_written_secret(text)),
            _ => reading.has_written_secrets(),
        };
        if secrets == WrittenSecrets::Refused && has_secrets {
            reading.config = None;
            reading.mistakes.push(Mistake {
                file: location.shown(FIRST),
                line: 1,
                column: 1,
                message: "a secret is written in this configuration, for everybody who reads etcd".to_owned(),
                expected: Some(
                    "${file:PATH} or ${NAME} in its place, which each instance reads itself, or --etcd-secrets"
                        .to_owned(),
                ),
                nearest: None,
                hint: None,
                excerpt: Excerpt::default(),
            });
        }
        reading
    }
}

/// Finds files of the tree in it, and all others on this machine: secrets and certificates are never in etcd.
struct InTree<'t> {
    tree: &'t Tree,
    /// Prefix of the names of all files in the tree.
    root: String,
    is_for_others: bool,
}

impl InTree<'_> {
    fn name<'p>(&self, path: &'p Path) -> Option<&'p str> {
        path.to_str()?.strip_prefix(&self.root)
    }
}

impl Surroundings for InTree<'_> {
    fn file(&self, path: &Path) -> Result<Vec<u8>, String> {
        match self.name(path) {
            Some(name) => {
                let text =
                    self.tree.files.get(name).ok_or_else(|| format!("etcd has no {}", path.display()))?;
                Ok(text.clone().into_bytes())
            }
            None => Machine.file(path),
        }
    }

    fn matches(&self, pattern: &str) -> Result<Vec<PathBuf>, String> {
        let Some(wanted) = pattern.strip_prefix(&self.root) else { return Machine.matches(pattern) };
        let names = self.tree.files.keys().filter(|name| is_match(wanted, name));
        Ok(names.map(|name| PathBuf::from(format!("{}{name}", self.root))).collect())
    }

    fn identity(&self, path: &Path) -> PathBuf {
        if self.name(path).is_some() { path.to_owned() } else { Machine.identity(path) }
    }

    fn variable(&self, name: &str) -> Option<Vec<u8>> {
        Machine.variable(name)
    }

    fn secret(&self, path: &Path) -> Result<(Vec<u8>, bool), String> {
        match self.name(path) {
            Some(_) => {
                Err("secrets are not read from etcd: name a file of the machine by its whole path".to_owned())
            }
            None => Machine.secret(path),
        }
    }

    fn named_file(&self, path: &Path, bytes_max: u64) -> Result<Vec<u8>, String> {
        Machine.named_file(path, bytes_max)
    }

    fn may_be_elsewhere(&self, path: Option<&Path>) -> bool {
        self.is_for_others && path.is_none_or(|path| self.name(path).is_none() && !path.exists())
    }
}

/// Matches a name with a pattern of `*` and `?`. Neither matches a slash or a leading dot.
fn is_match(pattern: &str, name: &str) -> bool {
    let (mut patterns, mut names) = (pattern.split('/'), name.split('/'));
    loop {
        match (patterns.next(), names.next()) {
            (None, None) => return true,
            (Some(pattern), Some(name)) => {
                let is_hidden = name.starts_with('.') && !pattern.starts_with('.');
                if is_hidden || !is_part_match(pattern.as_bytes(), name.as_bytes()) {
                    return false;
                }
            }
            _ => return false,
        }
    }
}

fn is_part_match(pattern: &[u8], name: &[u8]) -> bool {
    // Position of the last star, and how much of the name it has matched.
    let (mut at, mut read, mut star) = (0, 0, None);
    while read < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[read] => {
                at += 1;
                read += 1;
            }
            _ => match star {
                Some((star_at, taken)) => {
                    star = Some((star_at, taken + 1));
                    at = star_at + 1;
                    read = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location() -> Location {
        Location::parse("etcd://a/edge").expect("a URL")
    }

    fn entry(key: &str, value: &str) -> KeyValue {
        KeyValue { key: key.to_owned(), value: value.as_bytes().to_vec(), modified: 1 }
    }

    #[test]
    fn a_tree_is_one_key_or_those_behind_it() {
        let alone = Location::parse("etcd://a/edge.toml").expect("a URL");
        let one = Tree::new(&alone, &[entry("/edge.toml", "a = 1")]).expect("a tree");
        assert_eq!(one.files, BTreeMap::from([(FIRST.to_owned(), "a = 1".to_owned())]));
        let two = [entry("/edge/conf.d/x.toml", "b"), entry("/edge/vanward.toml", "a = 1")];
        let two = Tree::new(&location(), &two).expect("a tree");
        assert_eq!(two.files.keys().collect::<Vec<_>>(), ["conf.d/x.toml", FIRST]);
        assert_ne!(one.version(), two.version());
        let bytes = KeyValue { value: vec![0xff], ..entry("/edge/x", "") };
        assert!(
            Tree::new(&location(), &[bytes])
                .is_err_and(|why| why.contains("etcd:/edge/x: this is not UTF-8"))
        );
    }

    #[test]
    fn versions_differ_by_names_and_texts() {
        let tree = |files: &[(&str, &str)]| Tree {
            files: files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect(),
        };
        let versions = [
            tree(&[]),
            tree(&[("a", "")]),
            tree(&[("", "a")]),
            tree(&[("a", "b")]),
            tree(&[("ab", "")]),
            tree(&[("a", ""), ("b", "")]),
        ]
        .map(|tree| tree.version());
        let distinct: std::collections::BTreeSet<&String> = versions.iter().collect();
        assert_eq!(distinct.len(), versions.len());
        assert_eq!(versions[0].len(), 8);
    }

    #[test]
    fn files_include_others_of_the_tree_and_mistakes_name_their_keys() {
        const ROUTES: &str = "[[route]]\nupstream = \"app\"\n";
        const FIRST_TEXT: &str = "include = \"conf.d/*.toml\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
                                  [upstream.app]\nservers = [\"http://127.0.0.1:9\"]\n";
        let mut tree = Tree {
            files: [(FIRST, FIRST_TEXT), ("conf.d/routes.toml", ROUTES), ("other/x.toml", "wrong")]
                .map(|(name, text)| (name.to_owned(), text.to_owned()))
                .into(),
        };
        let reading = tree.examine(&location(), WrittenSecrets::Refused);
        assert!(reading.config.is_some(), "{:?}", reading.mistakes);
        tree.files.insert("conf.d/routes.toml".to_owned(), "[[route]]\nupstream = \"ap\"\n".to_owned());
        let told = tree
            .examine(&location(), WrittenSecrets::Refused)
            .mistakes
            .iter()
            .map(ToString::to_string)
            .collect::<String>();
        assert!(told.contains("etcd:/edge/conf.d/routes.toml:2:"), "{told}");
        const SECRET: &str =
            "[[route]]\nupstream = \"app\"\nrequest_headers = { set = { Authorization = \"Bearer x\" } }\n";
        tree.files.insert("conf.d/routes.toml".to_owned(), SECRET.to_owned());
        let told = tree.examine(&location(), WrittenSecrets::Refused).mistakes;
        assert!(told.iter().any(|mistake| mistake.message.contains("a secret is written")), "{told:?}");
        assert!(tree.examine(&location(), WrittenSecrets::Allowed).config.is_some());
        tree.files.remove(FIRST);
        assert!(tree.examine(&location(), WrittenSecrets::Refused).config.is_none());
    }

    /// `push` from another machine warns about what it cannot check, and checks everything else.
    #[test]
    fn variables_and_files_of_the_instances_may_be_missing_where_a_version_is_pushed() {
        const CONFIG: &str = "[[listen]]\naddress = \"${NO_SUCH_ADDRESS}:443\"\nREST\n[[route]]\nupstream = \"app\"\n\
                              auth = { users = \"/no/such/users\" }\nrequest_headers = { set = { Authorization = \"VALUE\" } }\n\
                              [upstream.app]\nservers = [\"http://127.0.0.1:${NO_SUCH_PORT}\"]\n";
        const REFERENCE: &str = "Bearer ${file:/no/such/token}";
        for (rest, value, mistakes) in [
            ("", REFERENCE, &[][..]),
            ("adress = 1", REFERENCE, &["adress"]),
            ("", "Bearer abc", &["a secret is written"]),
        ] {
            let text = CONFIG.replace("REST", rest).replace("VALUE", value);
            let tree = Tree { files: [(FIRST.to_owned(), text)].into() };
            let reading = tree.examine_for_others(&location(), WrittenSecrets::Refused);
            let found: Vec<String> = reading.mistakes.iter().map(ToString::to_string).collect();
            assert!(reading.config.is_none());
            assert_eq!(found.len(), mistakes.len(), "{found:?}");
            assert!(found.iter().zip(mistakes).all(|(found, part)| found.contains(part)), "{found:?}");
            let warnings: Vec<String> = reading.warnings.iter().map(ToString::to_string).collect();
            for missing in
                ["NO_SUCH_ADDRESS is not set; only the instances", "NO_SUCH_PORT", "/no/such/users"]
            {
                assert!(warnings.iter().any(|warning| warning.contains(missing)), "{missing}: {warnings:?}");
            }
            let here = tree.examine(&location(), WrittenSecrets::Refused).mistakes;
            assert!(here.iter().any(|mistake| mistake.message == "NO_SUCH_ADDRESS is not set"), "{here:?}");
        }
    }

    #[test]
    fn patterns_match_as_those_of_shells() {
        for (pattern, name, expected) in [
            ("conf.d/*.toml", "conf.d/a.toml", true),
            ("conf.d/*.toml", "conf.d/.a.toml", false),
            ("conf.d/*.toml", "conf.d/x/a.toml", false),
            ("conf.d/*.toml", "conf.d/a.tom", false),
            ("*", "a.toml", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a", "a", true),
            ("", "a", false),
        ] {
            assert_eq!(is_match(pattern, name), expected, "{pattern} {name}");
        }
    }
}
