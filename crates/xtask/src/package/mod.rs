//! `cargo xtask package`: what a release consists of, and the checks that each part does what docs/install.md says of it.

/// What all packages have: the stripped program, man pages, completions, the list of libraries.
mod payload;
/// The libraries that are linked in, as CycloneDX.
mod libraries;
/// The Debian package.
mod deb;
/// The tarball, and the Homebrew formula that downloads it.
mod tarball;
/// Tries what was packaged.
mod check;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use check::{check, is_possible};
use payload::Payload;

use crate::say;
use crate::step;
use crate::workspace::Workspace;

/// What is packaged, and for which machines.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Package this program in place of a release build.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Target of the build; its toolchain and linker must be installed. Default: this machine's, linked with glibc.
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
    /// Where the tarball is downloaded from, for the Homebrew formula.
    #[arg(long, value_name = "URL", default_value = "https://vanward.invalid/releases")]
    url: String,
    /// Make a container image of a program without the lab, too (needs buildah).
    #[arg(long)]
    image: bool,
    /// Package a release build as it is linked on this machine, and try each package; as root.
    #[arg(long, conflicts_with_all = ["target", "image", "url"])]
    check: bool,
}

pub(crate) fn run(arguments: &Args) -> Result<(), String> {
    let workspace = Workspace::find()?;
    if arguments.check {
        return check(&workspace, arguments.program.as_deref());
    }
    release(&workspace, arguments)
}

/// Makes all packages of a version in `target/package`.
fn release(workspace: &Workspace, arguments: &Args) -> Result<(), String> {
    let target = arguments.target.clone().map_or_else(|| workspace.host(), Ok)?;
    let program = match &arguments.program {
        Some(program) => absolute(program)?,
        None => build(workspace, &target, Extent::Whole)?,
    };
    let version = payload::version(workspace)?;
    let out = workspace.target_directory()?.join("package").join(&version);
    fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let payload = Payload::stage(workspace, &program, &target)?;
    payload.is_static()?;
    let name = format!("vanward-{version}-{target}");
    let tarball = out.join(format!("{name}.tar.gz"));
    tarball::build(workspace, &payload, &name, &tarball)?;
    let list = out.join(format!("{name}.cdx.json"));
    payload::copy(&payload.folder().join("sbom.cdx.json"), &list)?;
    let package = out.join(format!("vanward_{version}_{}.deb", deb::architecture(&target)?));
    deb::build(workspace, &payload, &version, deb::Compression::Small, &package)?;
    if arguments.image {
        let image = out.join(format!("{name}.image.tar"));
        let program = match &arguments.program {
            Some(_) => program,
            None => build(workspace, &target, Extent::Production)?,
        };
        step::run(Command::new(workspace.root.join("contrib/image/build")).arg(&program).arg(image))?;
    }
    tarball::write_formula(workspace, &version, &out, &arguments.url)?;
    write_sums(&out)?;
    say(format_args!("in {}:", out.display()));
    let sums = out.join(SUMS);
    say(fs::read_to_string(&sums).map_err(|error| format!("{}: {error}", sums.display()))?.trim_end());
    Ok(())
}

/// What is in a program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    /// Without the lab, the load generator and the origin.
    Production,
}

/// Builds a static program. No path of this machine gets into it, so that another one builds the same bytes.
fn build(workspace: &Workspace, target: &str, extent: Extent) -> Result<PathBuf, String> {
    let target_directory = workspace.target_directory()?;
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home = cargo_home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let cargo_home = cargo_home.ok_or("neither CARGO_HOME nor HOME is set: set one")?;
    // The last one that fits counts.
    let places = [(&cargo_home, "/cargo"), (&workspace.root, "/vanward"), (&target_directory, "/target")];
    let mapped =
        |flag: &str| places.map(|(place, name)| format!("{flag}={}={name}", place.display())).join(" ");
    let mut command = Command::new("cargo");
    command.args(["build", "--release", "--locked", "-p", "vanward", "--target", target]);
    if extent == Extent::Production {
        command.arg("--no-default-features");
    }
    let rust = format!("-C target-feature=+crt-static {}", mapped("--remap-path-prefix"));
    command.env("RUSTFLAGS", rust).env("CFLAGS", mapped("-ffile-prefix-map"));
    command.env("CARGO_INCREMENTAL", "0").env("SOURCE_DATE_EPOCH", payload::time_of_last_commit(workspace)?);
    step::run(command.current_dir(&workspace.root))?;
    Ok(target_directory.join(target).join("release/vanward"))
}

fn absolute(program: &Path) -> Result<PathBuf, String> {
    fs::canonicalize(program).map_err(|error| format!("{}: {error}", program.display()))
}

const SUMS: &str = "SHA256SUMS";

/// Writes the checksums of all packages beside them.
fn write_sums(out: &Path) -> Result<(), String> {
    let mut sums = Command::new("sh");
    sums.args(["-euc", "rm -f SHA256SUMS; sha256sum -- * >.sums; mv .sums SHA256SUMS"]).current_dir(out);
    step::run(&mut sums)
}
