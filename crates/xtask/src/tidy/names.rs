//! Names of types: at most a few are defined in several modules, so that a search finds the one that is meant.

use std::collections::BTreeMap;
use std::fmt;

use super::Finding;
use crate::workspace::TextFile;

/// Names that several modules define, of all names, in percent.
const SHARED_PERCENT_MAX: usize = 8;

/// Names that say nothing without a noun before them.
const BARE: &[&str] =
    &["State", "Place", "Entry", "Answer", "Known", "Wanted", "Asked", "Told", "Given", "Seen"];

pub(super) struct SharedNames {
    shared: usize,
    all: usize,
}

impl fmt::Display for SharedNames {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shared, all } = self;
        let tenths = shared * 1000 / (*all).max(1);
        write!(
            formatter,
            "{shared} of {all} names of types ({}.{}%) are defined in several modules",
            tenths / 10,
            tenths % 10
        )
    }
}

pub(super) fn check(files: &[TextFile], findings: &mut Vec<Finding>) -> SharedNames {
    let mut modules: BTreeMap<&str, Vec<(&str, usize)>> = BTreeMap::new();
    for file in files {
        let is_source = file.path.starts_with("crates/") && file.path.contains("/src/");
        if !is_source || !file.path.ends_with(".rs") {
            continue;
        }
        let code = file.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            let Some(name) = defined(line) else { continue };
            if BARE.contains(&name) {
                findings.push(Finding {
                    path: file.path.clone(),
                    line: number + 1,
                    what: format!("the type `{name}` has no noun before it"),
                    remedy: "name it after its subject, such as `RetryState`",
                });
            }
            let places = modules.entry(name).or_default();
            if places.last().is_none_or(|(path, _)| *path != file.path) {
                places.push((&file.path, number + 1));
            }
        }
    }
    let shared = modules.values().filter(|places| places.len() > 1).count();
    let found = SharedNames { shared, all: modules.len() };
    if shared * 100 > modules.len() * SHARED_PERCENT_MAX {
        for (name, places) in modules.iter().filter(|(_, places)| places.len() > 2) {
            let (path, line) = places[1];
            findings.push(Finding {
                path: path.to_owned(),
                line,
                what: format!("{} modules define a type `{name}`", places.len()),
                remedy: "put a noun before it that a reader would search for",
            });
        }
        findings.push(Finding {
            path: "crates".to_owned(),
            line: 0,
            what: format!("{found}, more than {SHARED_PERCENT_MAX}%"),
            remedy: "rename those that several modules define",
        });
    }
    found
}

/// The name of the type that a line defines.
fn defined(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let rest = ["struct ", "enum ", "trait ", "union "].iter().find_map(|word| line.strip_prefix(word))?;
    let end = rest.find(|character: char| !character.is_alphanumeric()).unwrap_or(rest.len());
    (end > 0).then_some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(texts: &[&str]) -> (String, usize) {
        let file = |(number, text): (usize, &&str)| TextFile {
            path: format!("crates/a/src/{number}.rs"),
            text: (*text).to_owned(),
        };
        let files: Vec<TextFile> = texts.iter().enumerate().map(file).collect();
        let mut findings = Vec::new();
        let found = check(&files, &mut findings);
        (found.to_string(), findings.len())
    }

    #[test]
    fn names_of_several_modules_are_counted_and_bounded() {
        let many: String = (0..49).map(|number| format!("struct T{number};\n")).collect();
        let few = "pub struct One;\n    pub(crate) enum Two {}\n";
        assert_eq!(
            findings(&[few]),
            ("0 of 2 names of types (0.0%) are defined in several modules".to_owned(), 0)
        );
        assert_eq!(
            findings(&[&format!("{many}{few}"), "struct One;\n"]),
            ("1 of 51 names of types (1.9%) are defined in several modules".to_owned(), 0)
        );
        assert_eq!(
            findings(&[few, "struct One;\n", "trait One {}\n"]),
            ("1 of 2 names of types (50.0%) are defined in several modules".to_owned(), 2)
        );
        assert_eq!(findings(&["struct State;\n"]).1, 1);
        assert_eq!(findings(&["struct RetryState;\n// struct State\n"]).1, 0);
        assert_eq!(findings(&["#[cfg(test)]\nmod tests {\n    struct State;\n}\n"]).1, 0);
    }
}
