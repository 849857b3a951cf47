//! Tests the packages: the unit with its filter of system calls and under a booting systemd, installation to
//! removal of the Debian package, and reproducible builds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::deb::Compression;
use super::payload::PackageFolder;
use super::{PROFILE, absolute, deb, tarball};
use crate::say;
use crate::scratch::Scratch;
use crate::step;
use crate::workspace::{Workspace, output_of};

const NEEDED: [(&str, &str); 9] = [
    ("adduser", "adduser"),
    ("curl", "curl"),
    ("dpkg-shlibdeps", "dpkg-dev"),
    ("ip", "iproute2"),
    ("logrotate", "logrotate"),
    ("openssl", "openssl"),
    ("strace", "strace"),
    ("strip", "binutils"),
    ("systemd-analyze", "systemd"),
];

/// Fails if the checks cannot run: they mount and install, and need some programs.
pub(crate) fn is_possible() -> Result<(), String> {
    if output_of(Command::new("id").arg("-u"))?.trim() != "0" {
        return Err("packages are tested as root, in separate namespaces".to_owned());
    }
    let is_missing = |program: &str| {
        let mut found = Command::new("sh");
        found.args(["-c", "command -v \"$1\" >/dev/null", "sh", program]);
        !found.status().is_ok_and(|status| status.success())
    };
    let missing: Vec<_> =
        NEEDED.iter().filter(|(program, _)| is_missing(program)).map(|(_, package)| *package).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(format!("programs are missing: apt-get install {}", missing.join(" "))),
    }
}

/// Tests the unit and the packages with a program; without one, with a build for packages.
pub(crate) fn check(workspace: &Workspace, program: Option<&Path>) -> Result<(), String> {
    is_possible()?;
    let program = program.map_or_else(|| built(workspace), absolute)?;
    step::run(Command::new(workspace.root.join("contrib/systemd/check")).arg(&program))?;
    let payload = PackageFolder::stage(workspace, &program, &workspace.host()?)?;
    let folder = Scratch::new("packages")?;
    let [first, second] = ["1", "2"].map(|version| (version, folder.path().join(format!("{version}.deb"))));
    let build_deb =
        |(version, file): &(&str, PathBuf)| deb::build(workspace, &payload, version, Compression::Fast, file);
    is_repeatable("Debian package", &first.1, || build_deb(&first))?;
    let archive = folder.path().join("vanward.tar.gz");
    is_repeatable("tarball", &archive, || tarball::build(workspace, &payload, "vanward-1", &archive))?;
    tarball::fits_formula(workspace, &archive)?;
    build_deb(&second)?;
    step::run(Command::new(workspace.root.join("contrib/systemd/boot")).arg(&first.1))?;
    step::run(Command::new(workspace.root.join("contrib/debian/try")).args([first.1, second.1]))
}

fn built(workspace: &Workspace) -> Result<PathBuf, String> {
    let mut build = Command::new("cargo");
    step::run(build.args(BUILD).current_dir(&workspace.root))?;
    Ok(workspace.target_directory()?.join(PROFILE).join("vanward"))
}

/// Arguments of cargo for the program of packages, linked for this machine.
pub(crate) const BUILD: [&str; 7] =
    ["build", "--profile", PROFILE, "--all-features", "--quiet", "-p", "vanward"];

/// Builds a file twice, and fails if the two differ.
fn is_repeatable(what: &str, file: &Path, build: impl Fn() -> Result<(), String>) -> Result<(), String> {
    build()?;
    let first = tarball::digest(file)?;
    fs::remove_file(file).map_err(|error| format!("{}: {error}", file.display()))?;
    build()?;
    let again = tarball::digest(file)?;
    if first != again {
        return Err(format!("two builds of the {what} from one program differ: {first} and {again}"));
    }
    say(format_args!("{what}: two builds, one digest: {first}"));
    Ok(())
}
