//! Repeatable measurements of the cost per request: microbenchmarks of the crates (instruction counts, which do not
//! drift with the machine), then the demo with the installed peers.

use std::process::Command;

use crate::say;
use crate::step::{self, Steps};
use crate::workspace::{Workspace, targets, text};

pub(crate) fn run() -> Result<(), String> {
    let workspace = Workspace::find()?;
    let mut steps = Steps::default();
    let cargo = |words: &[&str]| {
        let mut command = Command::new("cargo");
        command.args(words).current_dir(&workspace.root);
        command
    };

    let mut build = cargo(&["build", "--release", "-p", "vanward"]);
    steps.run("build", &step::shown(&build), || step::run(&mut build))?;

    let packages = workspace.packages("Cargo.toml")?;
    let mut benches = packages.iter().filter(|package| !targets(package, "bench").is_empty()).peekable();
    if benches.peek().is_none() {
        say("\nNo crate has microbenchmarks yet: put the first into crates/NAME/benches.");
    } else if Command::new("valgrind").arg("--version").output().is_err() {
        return Err("microbenchmarks count instructions with valgrind, which is missing: \
                    apt-get install valgrind"
            .to_owned());
    }
    for package in benches {
        let name = text(package, "name");
        let mut bench = cargo(&["bench", "-p", name, "--benches"]);
        steps.run(name, &step::shown(&bench), || step::run(&mut bench))?;
    }

    let mut demo = cargo(&["run", "--release", "--", "demo", "--json"]);
    steps.run("demo", &step::shown(&demo), || step::run(&mut demo))?;
    say(format_args!("\n{}", steps.summary()));
    Ok(())
}
