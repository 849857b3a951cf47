//! Rules for Rust files: a short doc comment at the head, a maximum length, and no vague names of files and folders.

use super::Finding;
use super::items::is_reason;
use crate::workspace::TextFile;

const FILE_LINES_MAX: usize = 800;
const HEAD_LINES_MAX: usize = 5;

/// Files that may be longer, each with its reason. Only tables and tests.
const LONG_FILES: &[(&str, &str)] = &[];

/// Vague names, which do not tell what is inside.
pub(super) const VAGUE_NAMES: &[&str] =
    &["core", "common", "util", "utils", "helper", "helpers", "manager", "misc"];

pub(super) fn check(file: &TextFile, findings: &mut Vec<Finding>) {
    let mut find =
        |line, what, remedy| findings.push(Finding { path: file.path.clone(), line, what, remedy });

    let lines = file.text.lines().filter(|line| !is_reason(line)).count();
    let may_be_long = LONG_FILES.iter().any(|(path, _)| *path == file.path);
    if lines > FILE_LINES_MAX && !may_be_long {
        let what = format!("{lines} lines, more than {FILE_LINES_MAX}");
        find(0, what, "split it where its parts have names of their own");
    }

    match file.text.lines().take_while(|line| line.starts_with("//!")).count() {
        0 => find(1, "no `//!` at the head".to_owned(), "say the file's purpose, and what it does not do"),
        1..=HEAD_LINES_MAX => {}
        head => {
            let what = format!("{head} lines of `//!` at the head, more than {HEAD_LINES_MAX}");
            find(HEAD_LINES_MAX + 1, what, "move what is about one item to that item");
        }
    }

    let parts = file.path.trim_end_matches(".rs").split('/');
    if let Some(vague) = parts.into_iter().find(|part| VAGUE_NAMES.contains(part)) {
        find(0, format!("`{vague}` says nothing about what is inside"), "name it after what it holds");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: String) -> Vec<String> {
        let mut findings = Vec::new();
        check(&TextFile { path: path.to_owned(), text }, &mut findings);
        findings.into_iter().map(|finding| format!("{}: {}", finding.line, finding.what)).collect()
    }

    #[test]
    fn heads() {
        for (head, found) in [
            ("//! Purpose.\n", vec![]),
            ("//! 1\n//!\n//! 3\n//! 4\n//! 5\n", vec![]),
            (
                "//! 1\n//! 2\n//! 3\n//! 4\n//! 5\n//! 6\n",
                vec!["6: 6 lines of `//!` at the head, more than 5"],
            ),
            ("", vec!["1: no `//!` at the head"]),
            ("\n//! Late.\n", vec!["1: no `//!` at the head"]),
            ("// A plain comment.\n", vec!["1: no `//!` at the head"]),
        ] {
            assert_eq!(
                findings("crates/http1/src/head.rs", format!("{head}fn f() {{}}\n")),
                found,
                "{head:?}"
            );
        }
    }

    #[test]
    fn lengths() {
        let file = |lines: usize| format!("//! Long.\n{}", "\n".repeat(lines - 1));
        assert_eq!(findings("a.rs", file(800)), Vec::<String>::new());
        assert_eq!(findings("a.rs", file(801)), ["0: 801 lines, more than 800"]);
    }

    #[test]
    fn names() {
        let head = || "//! Purpose.\n".to_owned();
        for path in ["crates/http1/src/utils.rs", "crates/common/src/lib.rs", "crates/lab/src/helpers/mod.rs"]
        {
            assert_eq!(findings(path, head()).len(), 1, "{path}");
        }
        for path in ["crates/http1/src/commonality.rs", "crates/lab/src/lib.rs"] {
            assert_eq!(findings(path, head()), Vec::<String>::new(), "{path}");
        }
    }
}
