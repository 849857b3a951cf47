//! Finds tests that never run. If a manifest lists its test programs, cargo finds no others, and a file needs a
//! `mod`. If a manifest disables doc tests, its library must have no examples.

use super::Finding;
use crate::workspace::TextFile;

pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let text_of = |path: &str| files.iter().find(|file| file.path == path).map_or("", |file| &file.text);
    let lists_its_programs =
        |package: &str| text_of(&format!("{package}/Cargo.toml")).contains("autotests = false");
    let mut findings = Vec::new();
    for file in files {
        if let Some((package, _)) = file.path.split_once("/src/")
            && text_of(&format!("{package}/Cargo.toml")).contains("doctest = false")
            && let Some(line) = example_in(&file.text)
        {
            findings.push(Finding {
                path: file.path.clone(),
                line,
                what: "an example that no test runs".to_owned(),
                remedy: "remove `doctest = false` from the manifest, or mark it as `text`",
            });
        }
        let Some((package, inner)) = file.path.split_once("/tests/") else { continue };
        let Some(inner) = inner.strip_suffix(".rs") else { continue };
        if !lists_its_programs(package) || is_program(inner, text_of(&format!("{package}/Cargo.toml"))) {
            continue;
        }
        let module = inner.strip_suffix("/mod").unwrap_or(inner);
        let (folder, name) = module.rsplit_once('/').unwrap_or(("", module));
        let beside = format!("{package}/tests/{folder}").trim_end_matches('/').to_owned();
        let above = format!("{beside}.rs");
        let names_it = |other: &TextFile| {
            let is_beside = other.path.rsplit_once('/').is_some_and(|(place, _)| place == beside);
            (is_beside || other.path == above) && other.text.lines().any(|line| declares(line, name))
        };
        if !files.iter().any(names_it) {
            findings.push(Finding {
                path: file.path.clone(),
                line: 0,
                what: "no program has this file".to_owned(),
                remedy: "name it with `mod` in the program of the crate's tests",
            });
        }
    }
    findings
}

/// Whether the manifest lists this file as a program: `NAME.rs` or `NAME/main.rs`.
fn is_program(inner: &str, manifest: &str) -> bool {
    let name = inner.strip_suffix("/main").unwrap_or(inner);
    let listed = manifest.split("[[test]]").skip(1);
    listed
        .filter_map(|entry| entry.trim_start().lines().next())
        .any(|line| line == format!("name = {name:?}"))
}

fn declares(line: &str, name: &str) -> bool {
    let named = line.trim().strip_suffix(';').and_then(|line| line.split_once("mod "));
    named
        .is_some_and(|(visible, module)| module == name && (visible.is_empty() || visible.starts_with("pub")))
}

/// The line of the first code block in a doc comment that is not marked as another language.
fn example_in(text: &str) -> Option<usize> {
    let fence = |line: &str| {
        let comment = line.trim_start().strip_prefix("///").or(line.trim_start().strip_prefix("//!"))?;
        comment.trim_start().strip_prefix("```").map(|language| ["", "rust", "no_run"].contains(&language))
    };
    // Every second fence ends a block.
    let mut fences = (1..).zip(text.lines()).filter_map(|(line, text)| Some((line, fence(text)?))).step_by(2);
    fences.find(|(_, is_example)| *is_example).map(|(line, _)| line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_that_are_not_run() {
        assert_eq!(example_in("/// ```text\n/// a\n/// ```\nfn f() {}\n    //! ```\n    //! ```\n"), Some(5));
        assert_eq!(example_in("/// ```text\n/// ```\nlet fence = \"```\";\n"), None);
    }

    #[test]
    fn files_without_a_program() {
        let file = |path: &str, text: &str| TextFile { path: path.to_owned(), text: text.to_owned() };
        let manifest = "autotests = false\n[[test]]\nname = \"all\"\n\n[[test]]\nname = \"apart\"\n";
        let files = [
            file("crates/a/Cargo.toml", manifest),
            file("crates/a/tests/all.rs", "mod one;\n/// Two.\npub(crate) mod two;\n"),
            file("crates/a/tests/one.rs", ""),
            file("crates/a/tests/two/mod.rs", "mod three;\n"),
            file("crates/a/tests/two/three.rs", "mod four;\n"),
            file("crates/a/tests/two/three/four.rs", ""),
            file("crates/a/tests/two/one.rs", ""),
            file("crates/a/tests/apart/main.rs", ""),
            file("crates/a/tests/forgotten.rs", ""),
            file("crates/a/tests/two/data.txt", ""),
            file("crates/b/Cargo.toml", "[package]\n"),
            file("crates/b/tests/found.rs", ""),
        ];
        let found: Vec<String> = check(&files).into_iter().map(|finding| finding.path).collect();
        assert_eq!(found, ["crates/a/tests/two/one.rs", "crates/a/tests/forgotten.rs"]);
    }
}
