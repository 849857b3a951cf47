//! Repeatable measurements of the cost per request, and of changes of large configurations.
//! Microbenchmarks of the crates come first (instruction counts, which do not vary with the machine's load). Changes
//! and the demo with the installed peers follow.

/// Measures changes of a configuration with many routes.
mod edits;
/// Measures proxies before php-fpm.
mod fastcgi;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::say;
use crate::step::{self, Steps};
use crate::workspace::{Workspace, targets, text};

/// Flags of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct BenchArgs {
    /// Measure only the cost of changes of a configuration with 1,000, 10,000 and 50,000 routes
    #[arg(long, group = "only")]
    edits: bool,
    /// Measure only the cost of requests to php-fpm, beside nginx and Caddy
    #[arg(long, group = "only")]
    fastcgi: bool,
    /// Measure with this program, instead of building one first
    #[arg(long, value_name = "PATH", requires = "only")]
    program: Option<PathBuf>,
    /// Length of each round of --fastcgi
    #[arg(long, value_name = "N", requires = "fastcgi", default_value_t = 5)]
    seconds: u32,
}

impl BenchArgs {
    /// Measures the part that was asked for alone; `None` for all parts.
    fn only(&self, program: &Path) -> Option<Result<(), String>> {
        match (self.edits, self.fastcgi) {
            (true, _) => Some(edits::run(program)),
            (_, true) => Some(fastcgi::run(program, self.seconds)),
            (false, false) => None,
        }
    }
}

pub(crate) fn run(arguments: &BenchArgs) -> Result<(), String> {
    if let Some(done) = arguments.program.as_deref().and_then(|program| arguments.only(program)) {
        return done;
    }
    let workspace = Workspace::find()?;
    let mut steps = Steps::default();
    let cargo = |words: &[&str]| {
        let mut command = Command::new("cargo");
        command.args(words).current_dir(&workspace.root);
        command
    };

    let mut build = cargo(&["build", "--profile", "dist", "-p", "vanward"]);
    steps.run("build", &step::shown(&build), || step::run(&mut build))?;

    let program = workspace.target_directory()?.join("dist/vanward");
    if let Some(done) = arguments.only(&program) {
        return done;
    }

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
        let mut bench = cargo(&["bench", "--profile", "dist", "-p", name, "--benches"]);
        steps.run(name, &step::shown(&bench), || step::run(&mut bench))?;
    }

    steps.run("edits", "changes of large configurations", || edits::run(&program))?;

    let mut demo = cargo(&["run", "--profile", "dist", "--", "demo", "--json"]);
    steps.run("demo", &step::shown(&demo), || step::run(&mut demo))?;
    say(format_args!("\n{}", steps.summary()));
    Ok(())
}
