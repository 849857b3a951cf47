//! Servers that others know of, found as a user would have it.

/// SRV records of BIND.
mod dns;

use std::path::Path;

use super::programs;
use crate::scratch::Scratch;
use crate::workspace::Workspace;

pub(super) fn check(workspace: &Workspace, scratch: &Scratch) -> Result<(), String> {
    let vanward = programs::build_vanward(workspace)?;
    let folder: &Path = scratch.path();
    dns::check(&vanward, folder)
}
