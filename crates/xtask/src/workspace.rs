//! The workspace, with its packages and text files, from git and cargo.

use std::env;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The workspace from which this tool was started.
pub(crate) struct Workspace {
    /// Top directory of the workspace.
    pub(crate) root: PathBuf,
}

pub(crate) struct TextFile {
    /// Path relative to the top directory, with `/` as separator.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Workspace {
    /// Finds the workspace: two levels above this package.
    pub(crate) fn find() -> Result<Self, String> {
        let package = env::var_os("CARGO_MANIFEST_DIR")
            .ok_or("started outside of cargo; run it as `cargo xtask` in the project's directory")?;
        let root = Path::new(&package).ancestors().nth(2).ok_or(
            "the package xtask is not at crates/xtask of a workspace; run it from the project's directory",
        )?;
        Ok(Self { root: root.to_owned() })
    }

    /// Text files that git tracks or would add. Ignored files, and files that are not UTF-8, are left out.
    pub(crate) fn text_files(&self) -> Result<Vec<TextFile>, String> {
        let listed = output_of(
            Command::new("git")
                .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
                .current_dir(&self.root),
        )?;
        let mut paths: Vec<&str> = listed.split('\0').filter(|path| !path.is_empty()).collect();
        paths.sort_unstable();
        paths.dedup();
        // A deleted but uncommitted file is listed, too; it is skipped.
        let read = |path: &str| fs::read_to_string(self.root.join(path)).ok();
        Ok(paths
            .into_iter()
            .filter_map(|path| read(path).map(|text| TextFile { path: path.to_owned(), text }))
            .collect())
    }

    pub(crate) fn target_directory(&self) -> Result<PathBuf, String> {
        self.target_directory_of("Cargo.toml")
    }

    /// Target directory of the workspace to which a manifest belongs.
    pub(crate) fn target_directory_of(&self, manifest: &str) -> Result<PathBuf, String> {
        Ok(PathBuf::from(text(&self.metadata(manifest)?, "target_directory")))
    }

    /// The target for which this machine's compiler builds.
    pub(crate) fn host(&self) -> Result<String, String> {
        let mut rustc = Command::new("rustc");
        rustc.args(["--print", "host-tuple"]).current_dir(&self.root);
        output_of(&mut rustc).map(|said| said.trim().to_owned())
    }

    /// Packages of a workspace, as `cargo metadata` describes them.
    pub(crate) fn packages(&self, manifest: &str) -> Result<Vec<Value>, String> {
        match self.metadata(manifest)?["packages"].take() {
            Value::Array(packages) => Ok(packages),
            _ => {
                Err("cargo metadata lists no packages; a newer cargo may have changed its format".to_owned())
            }
        }
    }

    fn metadata(&self, manifest: &str) -> Result<Value, String> {
        let text = output_of(
            Command::new("cargo")
                .args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path", manifest])
                .current_dir(&self.root),
        )?;
        serde_json::from_str(&text).map_err(|error| format!("cargo metadata wrote no JSON: {error}"))
    }
}

/// Resolves a link relative to its file.
pub(crate) fn beside(file: &Path, link: &str) -> PathBuf {
    let mut path = file.to_owned();
    path.pop();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            part => path.push(part),
        }
    }
    path
}

/// A text in the metadata of a package; empty if it is missing.
pub(crate) fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

/// Names of a package's targets of one kind: `bin`, `bench`.
pub(crate) fn targets<'v>(package: &'v Value, kind: &str) -> Vec<&'v str> {
    let is_kind =
        |target: &&Value| target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|k| k == kind));
    let all = package["targets"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter(is_kind).map(|target| text(target, "name")).collect()
}

pub(crate) fn output_of(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{program} cannot be run: {error}; install it"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?} failed ({}):\n{}", output.status, said.trim_end()));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("{program} wrote something that is not UTF-8"))
}
