//! The programs of others: which are needed from the system, and the Go programs that are built from their modules.

use std::path::PathBuf;
use std::process::Command;

use crate::step;
use crate::workspace::Workspace;

/// A program that the system's packages have.
pub(super) struct Needed {
    program: &'static str,
    package: &'static str,
}

pub(super) const GO: Needed = Needed { program: "go", package: "golang-go" };
pub(super) const NGINX: Needed = Needed { program: "nginx", package: "nginx" };
pub(super) const NODE: Needed = Needed { program: "node", package: "nodejs" };
pub(super) const NPM: Needed = Needed { program: "npm", package: "npm" };
pub(super) const OPENSSL: Needed = Needed { program: "openssl", package: "openssl" };
pub(super) const PYTHON: Needed = Needed { program: "python3", package: "python3-venv" };
pub(super) const TESTSSL: Needed = Needed { program: "testssl", package: "testssl.sh" };

impl Needed {
    /// Where it is.
    pub(super) fn find(&self) -> Result<PathBuf, String> {
        let Self { program, package } = self;
        let path = std::env::var_os("PATH").unwrap_or_default();
        // Servers are installed where only root's path leads.
        let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
        let found = places.map(|place| place.join(program)).find(|file| file.is_file());
        found.ok_or_else(|| format!("{program} is not installed: apt-get install {package}"))
    }
}

/// Where `strangers.go` and its `go.mod` are.
pub(super) const MODULE: &str = "crates/xtask/strangers";

/// Builds Go programs into the target directory, and returns where they are, in the order of their packages. Go's own
/// cache makes this a second's work when nothing has changed.
pub(super) fn build<const N: usize>(
    workspace: &Workspace,
    packages: [&str; N],
) -> Result<[PathBuf; N], String> {
    let folder = workspace.target_directory()?.join("strangers");
    let mut command = Command::new(GO.find()?);
    command.arg("build").arg("-o").arg(&folder).args(packages).current_dir(workspace.root.join(MODULE));
    // The versions and hashes that are written down, and the toolchain that is installed.
    command.env("GOFLAGS", "-mod=readonly").env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0");
    std::fs::create_dir_all(&folder)
        .map_err(|error| format!("{} cannot be created: {error}", folder.display()))?;
    step::run(&mut command)?;
    Ok(packages.map(|package| folder.join(package.rsplit('/').next().unwrap_or(package))))
}

/// Builds `vanward` as the tests do, so that after them nothing is left to build.
pub(super) fn build_vanward(workspace: &Workspace) -> Result<PathBuf, String> {
    let mut command = Command::new("cargo");
    command.args(["build", "--quiet", "-p", "vanward"]).current_dir(&workspace.root);
    step::run(&mut command)?;
    Ok(workspace.target_directory()?.join("debug/vanward"))
}
