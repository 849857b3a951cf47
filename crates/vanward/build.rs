//! Puts the commit into `vanward --version`, and the functions of an optimized program into an order.
//! Outside a git checkout the version stands alone.

use std::env;
use std::process::Command;

fn main() {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=10", "HEAD"]).map_or(String::new(), |id| format!(" ({id})"));
    println!("cargo:rustc-env=VANWARD_VERSION={}{commit}", env!("CARGO_PKG_VERSION"));
    if let Some(head) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={head}");
    }
    let is = |variable, value: &str| env::var(variable).is_ok_and(|found| found == value);
    // Linkers of other systems have no such scripts.
    if is("PROFILE", "release") && is("CARGO_CFG_TARGET_OS", "linux") {
        let order = concat!(env!("CARGO_MANIFEST_DIR"), "/functions.ld");
        println!("cargo:rustc-link-arg-bins=-Wl,-T,{order}");
        println!("cargo:rerun-if-changed={order}");
    }
}
