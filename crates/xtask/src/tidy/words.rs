//! Forbidden words: paths of one machine, hosts that only a package client should know, and notes about work that
//! belongs in the tracker. They are split in two here, so that this file passes, too.

use super::Finding;
use crate::workspace::TextFile;

/// A forbidden text, whether it must be a whole word, and the remedy.
struct Forbidden {
    text: &'static str,
    whole_word: bool,
    remedy: &'static str,
}

const fn path(text: &'static str) -> Forbidden {
    Forbidden { text, whole_word: true, remedy: "use a path relative to the project, or a placeholder" }
}

const fn note(text: &'static str) -> Forbidden {
    Forbidden { text, whole_word: true, remedy: "do it, or file it in the tracker" }
}

const fn host(text: &'static str) -> Forbidden {
    Forbidden { text, whole_word: false, remedy: "name the package; its client knows where to get it" }
}

const FORBIDDEN: &[Forbidden] = &[
    path(concat!("/ro", "ot/")),
    path(concat!("/ho", "me/")),
    path(concat!("/wo", "rk/")),
    Forbidden {
        text: concat!("../sh", "ared"),
        whole_word: false,
        remedy: "state what is meant where it is needed",
    },
    note(concat!("TO", "DO")),
    note(concat!("FIX", "ME")),
    host(concat!("crates", ".io")),
    host(concat!("pypi", ".org")),
    host(concat!("pythonhosted", ".org")),
    host(concat!("npmjs", ".org")),
    // Not the domain alone: Go's packages have it in their names.
    host(concat!("proxy.golang", ".org")),
    host(concat!("sum.golang", ".org")),
    host(concat!("maven", ".org")),
    host(concat!("deb.debian", ".org")),
];

/// Files that may contain forbidden words: cargo writes its registry into lock files.
const EXEMPT: &[&str] = &["Cargo.lock", "fuzz/Cargo.lock"];

pub(super) fn check(file: &TextFile, findings: &mut Vec<Finding>) {
    if EXEMPT.contains(&file.path.as_str()) {
        return;
    }
    for (number, line) in file.text.lines().enumerate() {
        for Forbidden { text, whole_word, remedy } in FORBIDDEN {
            if contains(line, text, *whole_word) {
                let what = format!("`{text}` has no place in the project");
                findings.push(Finding { path: file.path.clone(), line: number + 1, what, remedy });
            }
        }
    }
}

/// Whether a line contains the text. A whole word has no letter, digit or dot before it, and no letter or digit after
/// it, unless it ends with a slash.
pub(super) fn contains(line: &str, text: &str, whole_word: bool) -> bool {
    line.match_indices(text).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + text.len()..].chars().next();
        let joined = |character: char| character.is_alphanumeric() || character == '_';
        !whole_word
            || (!before.is_some_and(|character| joined(character) || character == '.')
                && (text.ends_with('/') || !after.is_some_and(joined)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_where_they_stand_alone() {
        for (line, found) in [
            (concat!("see /wo", "rk/main"), true),
            (concat!("(/ho", "me/me/file)"), true),
            (concat!("https://example.test/ho", "me/"), false),
            (concat!("./wo", "rk/x"), false),
            (concat!("// TO", "DO: later"), true),
            (concat!("// FIX", "ME"), true),
            (concat!("AUTO", "DOCS MASTO", "DON"), false),
            (concat!("https://static.crates", ".io/x"), true),
            (concat!("docs in ../sh", "ared/x"), true),
            ("nothing", false),
        ] {
            let mut findings = Vec::new();
            check(
                &TextFile { path: "README.md".to_owned(), text: format!("first\n{line}\n") },
                &mut findings,
            );
            assert_eq!(!findings.is_empty(), found, "{line}: {findings:?}");
            assert!(findings.iter().all(|finding| finding.line == 2));
        }
    }
}
