//! Shared checks of all peers' tests: results are valid, and no statement is lost.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::source::SourceFiles;
use crate::{Adapted, RemarkKind};

/// Replaces the marks in a sample by addresses and folders.
pub(crate) fn filled(text: &str) -> String {
    text.replace("@LISTEN@", "127.0.0.1:80")
        .replace("@IP@", "127.0.0.1")
        .replace("@PORT@", "80")
        .replace("@SECOND_PORT@", "8000")
        .replace("@TLS@", "127.0.0.1:443")
        .replace("@ORIGIN_IP@", "127.0.0.1")
        .replace("@ORIGIN_PORT@", "9001")
        .replace("@ORIGIN@", "127.0.0.1:9001")
        .replace("@ORIGIN2@", "127.0.0.1:9002")
        .replace("@DIR@", "/srv/vanward")
        .replace("@PHP_SOCKET@", "/run/php/php.sock")
        .replace("@PHP_ROOT@", "/srv/php")
}

pub(crate) fn nothing(_: &str) -> Result<Vec<(String, String)>, String> {
    Err("there is none".to_owned())
}

/// Checks that the result is valid, and that it or a remark names each statement.
#[track_caller]
pub(crate) fn whole(source: &SourceFiles, adapted: &Adapted) {
    valid(adapted);
    assert_eq!(lost(source, adapted), Vec::<String>::new(), "{}", adapted.toml);
}

/// Checks that the result is a valid configuration, except for missing files. Maps of files are empty.
#[track_caller]
pub(crate) fn valid(adapted: &Adapted) {
    let mut toml = String::new();
    let mut lines = adapted.toml.lines().peekable();
    while let Some(line) = lines.next() {
        toml += match (line.starts_with("file = "), lines.peek()) {
            (true, Some(&"format = \"keys\"")) => {
                lines.next();
                "entries = []"
            }
            (true, _) => "entries = {}",
            (false, _) => line,
        };
        toml.push('\n');
    }
    let reading = config::examine(&toml, "vanward.toml");
    let are_files = ["No such file", "there is no file", "does not exist"];
    let mistakes: Vec<String> = reading
        .mistakes
        .iter()
        .map(ToString::to_string)
        .filter(|mistake| !are_files.iter().any(|said| mistake.contains(said)))
        .collect();
    assert!(mistakes.is_empty(), "{mistakes:#?}\n{}", adapted.toml);
    assert_eq!(adapted.taken + adapted.needless + adapted.refused(), adapted.directives);
}

/// Returns the statements that neither a comment nor a remark names.
fn lost(source: &SourceFiles, adapted: &Adapted) -> Vec<String> {
    let told: BTreeSet<(usize, &str)> =
        adapted.remarks.iter().map(|remark| (remark.line, remark.directive.as_str())).collect();
    let refused = adapted.remarks.iter().filter(|remark| remark.kind >= RemarkKind::Unused);
    let refused: BTreeSet<(usize, &str)> =
        refused.map(|remark| (remark.line, remark.directive.as_str())).collect();
    let mut cited = BTreeSet::new();
    for comments in adapted.toml.lines().filter_map(|line| line.split("  # ").nth(1)) {
        cited.extend(comments.split(", "));
    }
    // The remark on a block is about what is in it, too.
    let mut told_before = 0;
    let lost = source.places.iter().enumerate().filter(|(number, place)| {
        let comment = format!("{}:{} {}", source.files[place.file], place.line, place.name);
        let is_told = told.contains(&(place.line, place.text.as_str()));
        if refused.contains(&(place.line, place.text.as_str())) {
            told_before = told_before.max(number + 1 + place.inner);
        }
        !cited.contains(comment.as_str()) && !is_told && *number >= told_before
    });
    lost.map(|(_, place)| format!("{}: {}", place.line, place.text)).collect()
}

/// Returns the lines with options, without comments.
pub(crate) fn options(adapted: &Adapted) -> Vec<String> {
    let plain = |line: &str| line.split("  # ").next().unwrap_or_default().to_owned();
    adapted.toml.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(plain).collect()
}

/// Returns the routes, each with its options in one line.
pub(crate) fn routes(adapted: &Adapted) -> Vec<String> {
    let text = options(adapted).join("\n");
    let routes = text.split("[[route]]\n").skip(1);
    routes.map(|route| route.split("\n[").next().unwrap_or_default().trim().replace('\n', "; ")).collect()
}

/// Generates words: meaningful ones from a list, a line each (`\n` stands for a line end), and random ones.
pub(crate) fn word(words: &'static str) -> impl Strategy<Value = String> {
    let words: Vec<&str> = words.lines().collect();
    let known = proptest::sample::select(words).prop_map(|word| word.replace("\\n", "\n"));
    prop_oneof![12 => known, 1 => any::<String>()]
}

/// Checks that the result for any text is TOML, and that it or a remark names each statement.
pub(crate) fn sound(source: &SourceFiles, adapted: &Adapted) {
    assert_eq!(lost(source, adapted), Vec::<String>::new());
    let parsed = config::examine(&adapted.toml, "v.toml");
    let is_syntax = |message: &str| message.contains("TOML") || message.contains("closing");
    let syntax = parsed.mistakes.iter().find(|mistake| is_syntax(&mistake.message));
    assert!(syntax.is_none(), "{syntax:?}\n{}", adapted.toml);
}
