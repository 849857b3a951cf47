//! `cargo xtask arm64`: cross-builds Vanward for arm64 and runs it under an emulator. It runs the tests of the pure
//! crates, and a short run of the lab, which `vanward lab compare` compares with one of this machine.
//!
//! Times under an emulator are meaningless, so no figure of that run is judged.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::scratch::Scratch;
use crate::step::{self, Steps};
use crate::workspace::{Workspace, output_of, targets, text};
use crate::{say, strangers, tidy};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64-static";

/// The small test program of `vanward`. With other tests, it builds `vanward` with their features: nothing is built
/// twice.
pub(crate) const OF_PROGRAM: &str = "ending";
/// Modules and tests with long calculations, which take minutes under an emulator.
const LONG: [&str; 7] = [
    "overload::",
    "simulated_fleet::",
    "slowed::",
    "store::tests::policies",
    "store::tests::resident",
    "a_purge_looks_at_no_object_however_many_it_meets",
    "another_encoder_is_understood",
];
/// Few connections and no TLS: under an emulator, a handshake of an unoptimized program takes seconds.
const PLAN: &str = r#"
title = "Vanward, shortly"
proxies = ["direct", "vanward"]
repeats = 1
duration = "1s"

[[case]]
name = "{payload}"
payload = ["tiny", "large"]
connections = 4
load = "closed"
"#;

/// Runs its arguments where the kernel starts arm64 programs by the emulator. Programs that restart themselves need
/// that. The setting is limited to a namespace, and ends with it.
const EMULATED: &str = r#"
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
printf '%s' ':arm64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$1"':F' >/proc/sys/fs/binfmt_misc/register
shift
exec "$@"
"#;

pub(crate) fn run() -> Result<(), String> {
    check(&Workspace::find()?, &mut Steps::default())
}

/// Fails if a program is missing, with its package.
pub(crate) fn is_possible() -> Result<(), String> {
    let packages = "apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static";
    for (program, argument) in [(LINKER, "--version"), (EMULATOR, "--version")] {
        output_of(Command::new(program).arg(argument))
            .map_err(|_| format!("there is no {program}: {packages}"))?;
    }
    let mut rustc = Command::new("rustc");
    let libraries = output_of(rustc.args(["--print", "target-libdir", "--target", TARGET]))?;
    if !Path::new(libraries.trim()).is_dir() {
        return Err(format!("the standard library for {TARGET} is missing: rustup target add {TARGET}"));
    }
    output_of(&mut emulated(Path::new("true"))?).map(drop).map_err(|problem| {
        format!("a namespace cannot register a separate emulator, which needs Linux 6.7 and user namespaces: {problem}")
    })
}

pub(crate) fn check(workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
    is_possible()?;
    steps.run("arm64", "the program and the tests of the pure crates, built for arm64", || {
        step::run(&mut build(workspace)?)
    })?;
    steps.run("arm64", "the tests of the pure crates under qemu-user", || {
        let mut command = tests(workspace, emulated(Path::new("cargo"))?)?;
        command.arg("--");
        command.args(LONG.iter().flat_map(|name| ["--skip", name]));
        step::run(&mut command)
    })?;
    let heading = "a short run of the lab under qemu-user, compared with a native run";
    steps.run("arm64", heading, || compare(workspace))
}

/// Returns the command that builds everything, at low priority.
pub(crate) fn build(workspace: &Workspace) -> Result<Command, String> {
    let mut command = Command::new("nice");
    command.args(["-n", "19", "cargo"]);
    let mut command = tests(workspace, command)?;
    command.arg("--no-run");
    Ok(command)
}

fn program(workspace: &Workspace) -> Result<PathBuf, String> {
    Ok(target_directory(workspace)?.join(TARGET).join("debug/vanward"))
}

/// A separate folder, so that other builds need not wait for this one.
fn target_directory(workspace: &Workspace) -> Result<PathBuf, String> {
    Ok(workspace.target_directory()?.join("arm64"))
}

fn emulated(program: &Path) -> Result<Command, String> {
    let emulator = output_of(Command::new("sh").args(["-c", "command -v \"$1\"", "sh", EMULATOR]))?;
    let mut command = Command::new("unshare");
    command.args([
        "--user",
        "--map-root-user",
        "--mount",
        "--",
        "sh",
        "-euc",
        EMULATED,
        "sh",
        emulator.trim(),
    ]);
    command.arg(program);
    Ok(command)
}

/// `cargo test` of the pure crates, with the program. It is static as in the packages, so emulators need no libraries.
fn tests(workspace: &Workspace, mut command: Command) -> Result<Command, String> {
    command.args([
        "test",
        "--quiet",
        "--target",
        TARGET,
        "--lib",
        "--test",
        OF_PROGRAM,
        "--package",
        "vanward",
    ]);
    let mut programs = BTreeSet::new();
    let packages = workspace.packages("Cargo.toml")?;
    for package in packages.iter().filter(|package| tidy::is_pure(text(package, "name"))) {
        command.args(["--package", text(package, "name")]);
        programs.extend(targets(package, "test"));
    }
    command.args(programs.into_iter().flat_map(|name| ["--test", name]));
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS", "-C target-feature=+crt-static");
    command.env("CARGO_PROFILE_DEV_DEBUG", "0");
    // Each input takes many times longer under an emulator.
    command.env("PROPTEST_CASES", "16");
    command.env("CARGO_TARGET_DIR", target_directory(workspace)?).current_dir(&workspace.root);
    Ok(command)
}

/// Runs the lab with the native program and with that for arm64, and compares their results.
fn compare(workspace: &Workspace) -> Result<(), String> {
    let folder = Scratch::new("arm64")?;
    let native = strangers::build_vanward(workspace)?;
    let [before, after] = ["native", "arm64"].map(|name| folder.path().join(name));
    let plan = folder.path().join("short.toml");
    fs::write(&plan, PLAN).map_err(|error| format!("{}: {error}", plan.display()))?;
    let measure = |mut command: Command, out: &Path| {
        command.args(["lab", "run"]).arg(&plan).arg("--out").arg(out);
        // A busy machine, and an emulator, make figures invalid: the report says so.
        step::run_allowing(&mut command, &[step::INVALID_RUN])
    };
    measure(Command::new(&native), &before)?;
    measure(emulated(&program(workspace)?)?, &after)?;
    let architectures = [architecture(&before)?, architecture(&after)?];
    if architectures != [std::env::consts::ARCH, "aarch64"] {
        return Err(format!("the results are from {architectures:?}"));
    }
    let mut command = Command::new(&native);
    let said = output_of(command.args(["lab", "compare"]).args([&before, &after]))?;
    say(said.trim_end());
    match architectures.iter().find(|architecture| !said.contains(architecture.as_str())) {
        Some(missing) => Err(format!("`lab compare` does not name {missing}; see its output above")),
        None => Ok(()),
    }
}

/// Returns the architecture in the results of a folder, if Vanward has responded to requests. A busy machine, and
/// an emulator, fail some cases.
fn architecture(folder: &Path) -> Result<String, String> {
    let file = folder.join("results.json");
    let failed = |error: &dyn Display| format!("{}: {error}", file.display());
    let read = fs::read_to_string(&file).map_err(|error| failed(&error))?;
    let results: Value = serde_json::from_str(&read).map_err(|error| failed(&error))?;
    let runs = results["runs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let has_served = |run: &Value| run["proxy"] == "vanward" && run["outcome"]["requests"].as_u64() > Some(0);
    match runs.iter().any(has_served) {
        true => Ok(text(&results["machine"], "architecture").to_owned()),
        false => Err(failed(&"Vanward answered no request")),
    }
}
