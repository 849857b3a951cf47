//! `cargo xtask adapt --planted`: plants mistakes in `adapt`, one at a time, in a copy of the workspace. The corpus
//! has to find each.
//!
//! `planted.toml` has the mistakes, and the files of the corpus that find them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Corpus, FOLDER, judged};
use crate::say;
use crate::step;
use crate::workspace::Workspace;

/// A mistake: a text of the source that is replaced.
struct PlantedMistake {
    name: String,
    file: String,
    old: String,
    new: String,
    /// Files of the corpus that find it.
    found_by: Vec<String>,
}

/// Plants each mistake, or those with such names.
pub(in super::super) fn check(workspace: &Workspace, names: &[String]) -> Result<(), String> {
    let mistakes = read(&workspace.root.join(FOLDER).join("planted.toml"))?;
    let is_named = |mistake: &&PlantedMistake| names.is_empty() || names.contains(&mistake.name);
    let chosen: Vec<&PlantedMistake> = mistakes.iter().filter(is_named).collect();
    if chosen.is_empty() {
        return Err(format!("no mistake of {FOLDER}/planted.toml has such a name"));
    }
    let copy = WorkspaceCopy::make(workspace)?;
    let mut missed = Vec::new();
    for mistake in &chosen {
        let found = copy.plant(workspace, mistake)?;
        say(format_args!("{}: {}", mistake.name, found.as_deref().unwrap_or("NOT FOUND")));
        if found.is_none() {
            missed.push(mistake.name.as_str());
        }
    }
    say(format_args!("\nThe corpus found {} of {} mistakes.", chosen.len() - missed.len(), chosen.len()));
    if missed.is_empty() { Ok(()) } else { Err(format!("not found: {}", missed.join(", "))) }
}

fn read(path: &Path) -> Result<Vec<PlantedMistake>, String> {
    let failed = |why: String| format!("{}: {why}", path.display());
    let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let document: toml::Table = text.parse().map_err(|error: toml::de::Error| failed(error.to_string()))?;
    let mut all = Vec::new();
    for (name, options) in document {
        let of = |option: &str| {
            let value = options.get(option).and_then(toml::Value::as_str);
            value.map(str::to_owned).ok_or_else(|| failed(format!("{name} has no text {option}")))
        };
        let files = options.get("found_by").and_then(toml::Value::as_array).into_iter().flatten();
        all.push(PlantedMistake {
            file: of("file")?,
            old: of("old")?,
            new: of("new")?,
            found_by: files.filter_map(toml::Value::as_str).map(str::to_owned).collect(),
            name,
        });
    }
    Ok(all)
}

/// A copy of the workspace, always at the same place, so that the next run builds only what has changed.
struct WorkspaceCopy {
    root: PathBuf,
    target: PathBuf,
}

impl WorkspaceCopy {
    fn make(workspace: &Workspace) -> Result<Self, String> {
        let folder = workspace.target_directory()?.join("planted");
        let copy = Self { root: folder.join("workspace"), target: folder.join("target") };
        for file in workspace.text_files()? {
            copy.write(&file.path, &file.text)?;
        }
        Ok(copy)
    }

    /// Writes a file of the copy, unless it is the same already.
    fn write(&self, path: &str, text: &str) -> Result<(), String> {
        let path = self.root.join(path);
        if fs::read_to_string(&path).is_ok_and(|known| known == text) {
            return Ok(());
        }
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
        written.map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Plants a mistake, and returns how the corpus finds it.
    fn plant(&self, workspace: &Workspace, mistake: &PlantedMistake) -> Result<Option<String>, String> {
        let PlantedMistake { name, file, old, new, found_by } = mistake;
        let text =
            fs::read_to_string(workspace.root.join(file)).map_err(|error| format!("{file}: {error}"))?;
        if text.matches(old.as_str()).count() != 1 {
            return Err(format!("{name}: {file} does not have the text once; write it as it is now"));
        }
        self.write(file, &text.replace(old, new))?;
        let mut build = Command::new("cargo");
        build.args(["build", "--quiet", "--package", "vanward"]);
        build.env("CARGO_TARGET_DIR", &self.target).current_dir(&self.root);
        let built = step::run(&mut build);
        let corpus = Corpus::read(&workspace.root)?;
        let found = built.and_then(|()| {
            let chosen = corpus.chosen(found_by, None);
            let all = judged(&corpus, &self.target.join("debug/vanward"), &chosen)?;
            let found = chosen.iter().zip(all).find(|(_, judged)| !judged.unmet.is_empty());
            Ok(found.map(|(file, judged)| format!("{}: {}", file.shown(), judged.unmet.join("; "))))
        });
        self.write(file, &text)?;
        found
    }
}
