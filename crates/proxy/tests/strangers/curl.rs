//! curl, as a client.

use std::path::Path;
use std::process::{Command, Output};

/// Runs curl, silent except for errors, with a generous time limit.
pub(crate) fn curl(program: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(["-q", "--silent", "--show-error", "--max-time", "60", "--noproxy", "*"]).args(arguments);
    let output = command.output().expect("curl starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "curl {arguments:?}: {}: {said}", output.status);
    output
}
