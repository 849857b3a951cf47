//! `cargo xtask package`: builds the packages of a release, and checks that each works as docs/install.md says.

/// Common content of all packages: the stripped program, man pages, completions, the list of libraries.
mod payload;
/// The list of linked libraries, as CycloneDX.
mod libraries;
/// The Debian package.
mod deb;
/// The tarball, and the Homebrew formula that downloads it.
mod tarball;
/// Tests the packages.
mod check;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use check::{BUILD, check, is_possible};
use payload::PackageFolder;

use crate::say;
use crate::step;
use crate::workspace::Workspace;

/// Selection of packages and targets.
#[derive(clap::Args)]
pub(crate) struct PackageArgs {
    /// Package this program instead of building one.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Target of the build; its toolchain and linker must be installed. Default: this machine's, linked with glibc.
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
    /// Download URL of the tarball, for the Homebrew formula.
    #[arg(long, value_name = "URL", default_value = "https://vanward.invalid/releases")]
    url: String,
    /// Build a container image of a program without the lab, too (needs buildah).
    #[arg(long)]
    image: bool,
    /// Package a build linked for this machine, and test each package; requires root.
    #[arg(long, conflicts_with_all = ["target", "image", "url"])]
    check: bool,
}

pub(crate) fn run(arguments: &PackageArgs) -> Result<(), String> {
    let workspace = Workspace::find()?;
    if arguments.check {
        return check(&workspace, arguments.program.as_deref());
    }
    release(&workspace, arguments)
}

fn release(workspace: &Workspace, arguments: &PackageArgs) -> Result<(), String> {
    let target = arguments.target.clone().map_or_else(|| workspace.host(), Ok)?;
    let program = match &arguments.program {
        Some(program) => absolute(program)?,
        None => build(workspace, &target, ProgramExtent::Whole)?,
    };
    let version = payload::version(workspace)?;
    let out = workspace.target_directory()?.join("package").join(&version);
    fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let payload = PackageFolder::stage(workspace, &program, &target)?;
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
            None => build(workspace, &target, ProgramExtent::Production)?,
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

/// The profile of packages: whole-program optimization, which takes a quarter of an hour on one core.
const PROFILE: &str = "dist";

#[derive(Clone, Copy, PartialEq, Eq)]
enum ProgramExtent {
    Whole,
    /// Without the lab, the load generator and the origin.
    Production,
}

/// Builds a static program without paths of this machine, so that another machine builds the same bytes.
fn build(workspace: &Workspace, target: &str, extent: ProgramExtent) -> Result<PathBuf, String> {
    let target_directory = workspace.target_directory()?;
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home = cargo_home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let cargo_home = cargo_home.ok_or("neither CARGO_HOME nor HOME is set: set one")?;
    // The last matching prefix counts.
    let places = [(&cargo_home, "/cargo"), (&workspace.root, "/vanward"), (&target_directory, "/target")];
    let mapped =
        |flag: &str| places.map(|(place, name)| format!("{flag}={}={name}", place.display())).join(" ");
    let mut command = Command::new("cargo");
    command.args(["build", "--profile", PROFILE, "--locked", "-p", "vanward", "--target", target]);
    command.args(match extent {
        ProgramExtent::Whole => &["--all-features"][..],
        ProgramExtent::Production => &["--no-default-features", "--features", "fleet,kubernetes"],
    });
    // Packed, the relocations are 30 KiB instead of 940, all of which a start reads. A static program does not depend on a loader
    // that knows them.
    // GNU ld 2.40 has them for x86-64 alone.
    let packed = if target.starts_with("x86_64") { "-C link-arg=-Wl,-z,pack-relative-relocs" } else { "" };
    let rust = format!("-C target-feature=+crt-static {packed} {}", mapped("--remap-path-prefix"));
    command.env("RUSTFLAGS", rust).env("CFLAGS", mapped("-ffile-prefix-map"));
    command.env("CARGO_INCREMENTAL", "0").env("SOURCE_DATE_EPOCH", payload::time_of_last_commit(workspace)?);
    step::run(command.current_dir(&workspace.root))?;
    Ok(target_directory.join(target).join(PROFILE).join("vanward"))
}

fn absolute(program: &Path) -> Result<PathBuf, String> {
    fs::canonicalize(program).map_err(|error| format!("{}: {error}", program.display()))
}

const SUMS: &str = "SHA256SUMS";

fn write_sums(out: &Path) -> Result<(), String> {
    let mut sums = Command::new("sh");
    sums.args(["-euc", "rm -f SHA256SUMS; sha256sum -- * >.sums; mv .sums SHA256SUMS"]).current_dir(out);
    step::run(&mut sums)
}
