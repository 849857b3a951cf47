//! Renders the pages of the stored results with the program of this tree.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step;
use crate::workspace::Workspace;

const FOLDER: &str = "docs/results";

pub(crate) fn run() -> Result<(), String> {
    let root = Workspace::find()?.root;
    let mut folders = Vec::new();
    find(&root.join(FOLDER), &mut folders)?;
    if folders.is_empty() {
        return Err(format!("{FOLDER} has no results"));
    }
    folders.sort_unstable();
    let mut command = Command::new("cargo");
    command.args(["run", "--quiet", "-p", "vanward", "--", "lab", "report", "--page"]).args(&folders);
    step::run(command.current_dir(root))
}

fn find(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            find(&path, found)?;
        } else if path.file_name().is_some_and(|name| name == "results.json" || name == "results.json.gz") {
            found.push(folder.to_owned());
        }
    }
    Ok(())
}
