//! Builds the fuzz targets of `fuzz/` and runs each with a number of inputs, or for a time. A finding ends the run;
//! its input is kept.
//!
//! The project's compiler builds them with coverage for libFuzzer and overflow checks. The address sanitizer
//! requires a nightly compiler, so it is left to cargo-fuzz and OSS-Fuzz (`contrib/oss-fuzz`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::say;
use crate::step::{self, Steps};
use crate::workspace::{Workspace, output_of, targets, text};

/// Selection of targets, and duration.
#[derive(clap::Args)]
pub(crate) struct FuzzArgs {
    /// Inputs that each target gets.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    runs: u64,
    /// Run each target for this long, in place of a number of inputs.
    #[arg(long, value_name = "N", conflicts_with = "runs")]
    seconds: Option<u32>,
    /// Run only this many targets: the next ones with every other commit, so that all have their turn over several
    /// commits.
    #[arg(long, value_name = "N", conflicts_with = "targets")]
    turn: Option<usize>,
    /// Targets to run; all of them unless given.
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
}

/// Targets in each turn on CI: all of them within eighteen commits.
const TARGETS_OF_A_TURN: &str = "4";
const SECONDS_OF_A_TURN: &str = "60";

const MANIFEST: &str = "fuzz/Cargo.toml";

const CHECKED: [&str; 4] =
    ["--cfg=fuzzing", "-Cdebug-assertions", "-Coverflow-checks", "-Cpasses=sancov-module"];

/// Instrumentation for libFuzzer: counters and comparisons.
const COVERAGE: [&str; 4] = ["level=4", "inline-8bit-counters", "pc-table", "trace-compares"];

pub(crate) fn run(arguments: &FuzzArgs) -> Result<(), String> {
    let workspace = Workspace::find()?;
    let packages = workspace.packages(MANIFEST)?;
    let known: Vec<&str> = packages.iter().flat_map(|package| targets(package, "bin")).collect();
    if let Some(unknown) = arguments.targets.iter().find(|target| !known.contains(&target.as_str())) {
        return Err(format!("there is no fuzz target {unknown}; there are: {}", known.join(", ")));
    }
    let chosen: Vec<&str> = match arguments.turn {
        Some(count) => {
            let commits = commits(&workspace)?;
            // CI runs them with every other commit.
            let chosen = whose_turn_it_is(&known, count, commits / 2);
            say(format_args!(
                "commit {commits}: runs {} of {} targets this time: {}",
                chosen.len(),
                known.len(),
                chosen.join(", ")
            ));
            chosen
        }
        None if arguments.targets.is_empty() => known,
        None => arguments.targets.iter().map(String::as_str).collect(),
    };
    let (limit, extent) = match arguments.seconds {
        Some(seconds) => (format!("-max_total_time={seconds}"), format!("{seconds} s")),
        None => (format!("-runs={}", arguments.runs), format!("{} inputs", arguments.runs)),
    };
    let mut steps = Steps::default();
    let mut programs = PathBuf::new();
    steps.run("build", "the targets, with coverage", || {
        programs = build(&workspace, &packages, &chosen)?;
        Ok(())
    })?;
    for target in chosen {
        steps.run(target, &extent, || fuzz(&workspace.root, &programs, target, &limit))?;
    }
    say(format_args!("\nNo finding in {extent} each.\n{}", steps.summary()));
    Ok(())
}

pub(crate) fn turn(workspace: &Workspace) -> Result<Command, String> {
    let this =
        std::env::current_exe().map_err(|error| format!("the path of this program is unknown: {error}"))?;
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(this).arg("fuzz");
    command.args(["--seconds", SECONDS_OF_A_TURN, "--turn", TARGETS_OF_A_TURN]);
    command.current_dir(&workspace.root);
    Ok(command)
}

/// Whether libFuzzer can be compiled. On CI it must be.
pub(crate) fn is_possible() -> bool {
    let has_compiler = output_of(Command::new("c++").arg("--version")).is_ok();
    has_compiler || std::env::var_os("CI").is_some()
}

/// Returns the targets of a turn, and starts again after the last.
fn whose_turn_it_is<'t>(all: &[&'t str], count: usize, turn: usize) -> Vec<&'t str> {
    let count = count.min(all.len());
    all.iter().cycle().skip(turn.wrapping_mul(count) % all.len().max(1)).take(count).copied().collect()
}

/// Returns the number of commits up to this one. A clone without history has few: the same targets have their turn.
pub(crate) fn commits(workspace: &Workspace) -> Result<usize, String> {
    let mut git = Command::new("git");
    git.args(["rev-list", "--count", "HEAD"]).current_dir(&workspace.root);
    let said = output_of(&mut git)?;
    said.trim().parse().map_err(|_| format!("git counts commits as {said:?}"))
}

/// Builds targets and their dependencies. Returns the folder of the programs.
fn build(workspace: &Workspace, packages: &[Value], chosen: &[&str]) -> Result<PathBuf, String> {
    let host = workspace.host()?;
    let given = std::env::var("RUSTFLAGS").unwrap_or_default();
    let mut flags: Vec<String> = given.split_whitespace().map(str::to_owned).collect();
    flags.extend(CHECKED.map(str::to_owned));
    flags.extend(COVERAGE.map(|what| format!("-Cllvm-args=-sanitizer-coverage-{what}")));
    let mut cargo = Command::new("cargo");
    // With `--target`, build scripts and macros are not instrumented.
    cargo.args(["build", "--release", "--locked", "--manifest-path", MANIFEST, "--target", &host]);
    cargo.args(["--no-default-features", "--features", &features(packages, chosen)]);
    cargo.args(chosen.iter().flat_map(|target| ["--bin", target]));
    step::run(cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f")).current_dir(&workspace.root))?;
    let target_directory = workspace.target_directory_of(MANIFEST)?;
    Ok(target_directory.join(host).join("release"))
}

/// Returns the features that targets require, so that other libraries are left out.
fn features(packages: &[Value], chosen: &[&str]) -> String {
    let targets = packages.iter().filter_map(|package| package["targets"].as_array()).flatten();
    let needed = targets.filter(|target| chosen.contains(&text(target, "name")));
    let features = needed.filter_map(|target| target["required-features"].as_array()).flatten();
    let features: BTreeSet<&str> = features.filter_map(Value::as_str).collect();
    Vec::from_iter(features).join(",")
}

/// Runs a target. New inputs go to its corpus, from which it starts in addition to the seeds.
fn fuzz(root: &Path, programs: &Path, target: &str, limit: &str) -> Result<(), String> {
    let folder = |name: &str| {
        let folder = root.join("fuzz").join(name).join(target);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok::<_, String>(folder)
    };
    let mut command = Command::new(programs.join(target));
    command.arg(folder("corpus")?);
    let seeds = root.join("fuzz/seeds").join(target);
    if seeds.is_dir() {
        command.arg(seeds);
    }
    let prefix = format!("-artifact_prefix={}/", folder("artifacts")?.display());
    // As on OSS-Fuzz: an input that takes 25 s is a finding, too.
    command.args([limit, "-timeout=25", &prefix]).current_dir(root);
    let output = command.output().map_err(|error| format!("`{}`: {error}", step::shown(&command)))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        let done = said.lines().rfind(|line| line.contains("DONE")).unwrap_or_default();
        say(done);
        return if done.contains("cov:") { Ok(()) } else { Err("it was built without coverage".to_owned()) };
    }
    // All other lines report new inputs.
    let lines: Vec<&str> = said.lines().filter(|line| !line.starts_with('#')).collect();
    say(lines.join("\n"));
    Err(format!(
        "a finding, kept in fuzz/artifacts/{target}; repeat it with: {} FILE",
        programs.join(target).display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_targets_have_their_turn() {
        let all = ["a", "b", "c", "d", "e"];
        assert_eq!(whose_turn_it_is(&all, 2, 0), ["a", "b"]);
        assert_eq!(whose_turn_it_is(&all, 2, 1), ["c", "d"]);
        assert_eq!(whose_turn_it_is(&all, 2, 2), ["e", "a"]);
        assert_eq!(whose_turn_it_is(&all, 9, 3), all);
        assert!(whose_turn_it_is(&[], 2, 3).is_empty());
    }
}
