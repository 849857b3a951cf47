//! Runs each fuzz target of `fuzz/` with a number of inputs, or for a time. A finding ends the run; libFuzzer prints the path of its
//! input.

use std::process::{Command, Stdio};

use crate::say;
use crate::step::{self, Steps};
use crate::workspace::{Workspace, targets};

/// Which targets, and how long.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Inputs that each target gets.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    runs: u64,
    /// Run each target for this long, in place of a number of inputs.
    #[arg(long, value_name = "N", conflicts_with = "runs")]
    seconds: Option<u32>,
    /// Targets to run; all of them unless given.
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
}

const HOW_TO_INSTALL: &str = "\
fuzzing needs cargo-fuzz and a nightly toolchain, which has the sanitizers. Install them with:
  rustup toolchain install nightly --profile minimal
  cargo install cargo-fuzz";

pub(crate) fn run(arguments: &Args) -> Result<(), String> {
    let workspace = Workspace::find()?;
    let manifest = "fuzz/Cargo.toml";
    if !workspace.root.join(manifest).exists() {
        return Err(format!("there is no {manifest}: the project has no fuzz targets yet"));
    }
    let packages = workspace.packages(manifest)?;
    let known: Vec<&str> = packages.iter().flat_map(|package| targets(package, "bin")).collect();
    if let Some(unknown) = arguments.targets.iter().find(|target| !known.contains(&target.as_str())) {
        return Err(format!("there is no fuzz target {unknown}; there are: {}", known.join(", ")));
    }
    if !cargo_fuzz_is_there() {
        return Err(HOW_TO_INSTALL.to_owned());
    }

    let (limit, extent) = match arguments.seconds {
        Some(seconds) => (format!("-max_total_time={seconds}"), format!("{seconds} s")),
        None => (format!("-runs={}", arguments.runs), format!("{} inputs", arguments.runs)),
    };
    let mut steps = Steps::default();
    for target in known {
        if !arguments.targets.is_empty() && !arguments.targets.iter().any(|wanted| wanted == target) {
            continue;
        }
        let mut command = Command::new("cargo");
        // What the fuzzer finds goes to the first folder; the second is where it starts from.
        let (corpus, seeds) = (format!("fuzz/corpus/{target}"), format!("fuzz/seeds/{target}"));
        std::fs::create_dir_all(workspace.root.join(&corpus))
            .map_err(|error| format!("cannot create {corpus}: {error}"))?;
        command.args(["+nightly", "fuzz", "run", target, &corpus, &seeds, "--", &limit]);
        command.current_dir(&workspace.root);
        steps.run(target, &step::shown(&command), || step::run(&mut command))?;
    }
    say(format_args!("\nNo finding in {extent} each.\n{}", steps.summary()));
    Ok(())
}

fn cargo_fuzz_is_there() -> bool {
    let mut command = Command::new("cargo");
    command.args(["+nightly", "fuzz", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
