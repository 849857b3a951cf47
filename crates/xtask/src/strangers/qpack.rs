//! QPACK with ls-qpack, by its Python package. The test is in the crate `http3`.

use std::path::Path;
use std::process::Command;

use super::programs;
use crate::step;
use crate::workspace::Workspace;

const PACKAGE: &str = "pylsqpack==1.0.0";

pub(super) fn check(workspace: &Workspace, scratch: &Path) -> Result<(), String> {
    let python = programs::from_pip(workspace, "pylsqpack", &[PACKAGE], scratch)?;
    let mut test = Command::new("cargo");
    test.args(["test", "--quiet", "--workspace", "--all-features", "--test", "lsqpack", "--", "--ignored"]);
    step::run(test.env("LSQPACK_PYTHON", python).current_dir(&workspace.root))
}
