//! Rules of the project that no compiler checks. Each finding has its place, the problem and a remedy.
//!
//! What rustfmt, clippy and rustdoc check is not checked here.

/// Allowed dependencies between crates.
mod arrows;
/// Rules for sentences in comments and pages.
mod english;
/// Rules for Rust files: head, length, name.
mod files;
/// Order of the folders of the proxy, and cycles between its modules.
mod folders;
/// Rules for the items of a Rust file: functions, modules, names, unsafe, purity.
mod items;
/// Names of types that several modules define.
mod names;
/// The contents of the book, and links of pages.
mod pages;
/// Test files that no program includes.
mod programs;
/// Tests that the table of threats names.
mod threats;
/// Forbidden words.
mod words;

use std::fmt;

pub(crate) use arrows::is_pure;

use crate::say;
use crate::workspace::Workspace;

#[derive(Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    /// Line number from 1; 0 for the whole file.
    line: usize,
    what: String,
    remedy: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, what, remedy } = self;
        write!(formatter, "{path}:{}: {what}; {remedy}", line.max(&1))
    }
}

pub(crate) fn run() -> Result<(), String> {
    let workspace = Workspace::find()?;
    let files = workspace.text_files()?;
    let mut findings = arrows::check(&workspace.packages("Cargo.toml")?, &workspace.root);
    findings.extend(folders::check(&files));
    findings.extend(programs::check(&files));
    findings.extend(threats::check(&files));
    findings.extend(pages::check(&files));
    let shared_names = names::check(&files, &mut findings);
    let mut english = english::Counts::default();
    for file in &files {
        words::check(file, &mut findings);
        english::check(file, &mut english, &mut findings);
        if file.path.ends_with(".rs") {
            files::check(file, &mut findings);
            items::check(file, &mut findings);
        }
    }

    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    for finding in &findings {
        say(finding);
    }
    say(format_args!("tidy: {english}"));
    say(format_args!("tidy: {shared_names}"));
    match findings.len() {
        0 => {
            say(format_args!("tidy: {} files, no problems", files.len()));
            Ok(())
        }
        1 => Err("tidy found one problem".to_owned()),
        count => Err(format!("tidy found {count} problems")),
    }
}
