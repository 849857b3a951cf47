//! The tests named in the table of threats exist.

use super::Finding;
use crate::workspace::TextFile;

const TABLE: &str = "docs/security.md";

pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let Some(table) = files.iter().find(|file| file.path == TABLE) else { return Vec::new() };
    let mut findings = Vec::new();
    let rows = (1..).zip(table.text.lines());
    let named = rows.flat_map(|(line, text)| tests_in(text).map(move |test| (line, test)));
    for (line, (place, name)) in named {
        let ends = |file: &&TextFile| file.path == place || file.path.ends_with(&format!("/{place}"));
        let function = format!("fn {name}(");
        let is_there = files.iter().filter(ends).any(|file| file.text.contains(&function));
        if !is_there {
            findings.push(Finding {
                path: TABLE.to_owned(),
                line,
                what: format!("there is no test {place}::{name}"),
                remedy: "name the test that shows what the row says",
            });
        }
    }
    findings
}

/// Returns the tests named as `FILE.rs::TEST` in a line.
fn tests_in(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.split('`').skip(1).step_by(2).filter_map(|code| {
        let (place, name) = code.split_once("::")?;
        place.ends_with(".rs").then_some((place, name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_is_not_there_is_found() {
        let file = |path: &str, text: &str| TextFile { path: path.to_owned(), text: text.to_owned() };
        let files = |table: &str| {
            [
                file(TABLE, table),
                file("crates/a/tests/x/b.rs", "#[test]\nfn holds() {}\nfn holds_more() {}\n"),
            ]
        };
        for (table, expected) in [
            ("| threat | `x/b.rs::holds`, `a::b` |", None),
            (
                "\n| threat | `b.rs::holds` and `b.rs::holds_less` |",
                Some((2, "there is no test b.rs::holds_less")),
            ),
            ("`x/c.rs::holds`", Some((1, "there is no test x/c.rs::holds"))),
            ("`b.rs::hold`", Some((1, "there is no test b.rs::hold"))),
        ] {
            let found = check(&files(table));
            let found = found.first().map(|finding| (finding.line, finding.what.as_str()));
            assert_eq!(found, expected, "{table}");
        }
    }
}
