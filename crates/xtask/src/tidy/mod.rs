//! The rules of the project that no compiler checks. Each finding says where, what and what to do about it.
//!
//! Not here: what rustfmt, clippy and rustdoc see already.

/// Which crate may depend on which.
mod arrows;
/// What a Rust file looks like from outside: head, length, name.
mod files;
/// Which folder of the proxy may use which.
mod folders;
/// What is inside a Rust file: functions, modules, names, unsafe, and purity.
mod items;
/// Words that have no place in the project.
mod words;

use std::fmt;

use crate::say;
use crate::workspace::Workspace;

/// A rule that is broken somewhere.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    /// From 1; 0 where it is about the file as a whole.
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
    for file in &files {
        words::check(file, &mut findings);
        if file.path.ends_with(".rs") {
            files::check(file, &mut findings);
            items::check(file, &mut findings);
        }
    }

    say(folders::allowed());
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    for finding in &findings {
        say(finding);
    }
    match findings.len() {
        0 => {
            say(format_args!("tidy: {} files, nothing to say", files.len()));
            Ok(())
        }
        1 => Err("tidy found one thing to mend".to_owned()),
        count => Err(format!("tidy found {count} things to mend")),
    }
}
