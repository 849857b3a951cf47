//! `cargo xtask cost`: instructions of a request in twenty cases, beside the figures of the last commit.
//!
//! Callgrind counts instructions, and misses in the caches of its model. A case costs what more requests on one connection
//! add.

/// Names the commit that made a case dearer.
mod bisect;
/// Cases: what is configured, and what is asked for.
mod cases;
/// The file with the figures of the last commit.
mod figures;
/// Runs a proxy under Callgrind.
mod measure;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::say;
use crate::step;
use crate::workspace::Workspace;
use cases::{CASES, CostCase};
use figures::{CostFigures, RequestCost};

/// Cases that are measured at the same time. Each mostly waits.
const AT_ONCE: usize = 2;
/// How often a case is measured that seems dearer than before.
const ATTEMPTS: usize = 3;

/// Flags of `cargo xtask cost`.
#[derive(clap::Args)]
pub(crate) struct CostArgs {
    /// Measure only these cases
    #[arg(value_name = "CASE")]
    cases: Vec<String>,
    /// A built program in place of target/release/vanward
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Write the figures to crates/xtask/cost.toml
    #[arg(long)]
    update: bool,
    /// Why cases became dearer, for the file
    #[arg(long, value_name = "REASON", requires = "update")]
    why: Option<String>,
    /// Name the commit since which this case is dearer
    #[arg(long, value_name = "CASE", conflicts_with_all = ["cases", "program", "update"])]
    bisect: Option<String>,
    /// The commit before, at which the case had its old cost [default: the last change of crates/xtask/cost.toml]
    #[arg(long, value_name = "COMMIT", requires = "bisect")]
    good: Option<String>,
}

/// Checks that the program that counts is installed.
pub(crate) fn is_possible() -> Result<(), String> {
    match Command::new("valgrind").arg("--version").output() {
        Ok(_) => Ok(()),
        Err(_) => Err("valgrind is missing, which counts instructions: apt-get install valgrind".to_owned()),
    }
}

/// Measures all cases with the program of the demo.
pub(crate) fn check() -> Result<(), String> {
    run(&CostArgs { cases: Vec::new(), program: None, update: false, why: None, bisect: None, good: None })
}

pub(crate) fn run(arguments: &CostArgs) -> Result<(), String> {
    let workspace = Workspace::find()?;
    is_possible()?;
    if let Some(name) = &arguments.bisect {
        return bisect::run(&workspace, known(name)?, arguments.good.as_deref());
    }
    let wanted: Vec<&'static CostCase> = match arguments.cases.as_slice() {
        [] => CASES.iter().collect(),
        names => names.iter().map(|name| known(name)).collect::<Result<_, _>>()?,
    };
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => built(&workspace.root, &workspace.target_directory()?)?,
    };
    let program = fs::canonicalize(&program).map_err(|error| format!("{}: {error}", program.display()))?;
    let file = workspace.root.join(figures::FILE);
    let mut figures = CostFigures::read(&file)?;
    let mut measured = Vec::new();
    say("\n| case | instructions | before | ratio | misses (L1i, L1d, last) |\n|---|---|---|---|---|");
    for together in wanted.chunks(AT_ONCE) {
        let costs = thread::scope(|scope| {
            let begun: Vec<_> =
                together.iter().map(|case| scope.spawn(|| least(&program, case, &figures))).collect();
            begun
                .into_iter()
                .map(|cost| cost.join().unwrap_or_else(|_| Err("it panicked".to_owned())))
                .collect::<Vec<_>>()
        });
        for (case, cost) in together.iter().zip(costs) {
            let cost = cost?;
            say(figures.row(case.name, &cost));
            measured.push((*case, cost));
        }
    }
    if arguments.update {
        return figures.update(&measured, arguments.why.as_deref(), &file);
    }
    judged(&figures, &measured)
}

/// Measures a case. One that seems dearer is measured again: data may have arrived in smaller pieces.
fn least(program: &Path, case: &CostCase, figures: &CostFigures) -> Result<RequestCost, String> {
    let mut least = measure::measure(program, case)?;
    for _ in 1..ATTEMPTS {
        if !figures.is_dearer(case, &least) {
            break;
        }
        let again = measure::measure(program, case)?;
        if again.instructions < least.instructions {
            least = again;
        }
    }
    Ok(least)
}

/// Fails if a case is dearer than the file says, or is not in it.
fn judged(figures: &CostFigures, measured: &[(&'static CostCase, RequestCost)]) -> Result<(), String> {
    let names = |is_one: &dyn Fn(&CostCase, &RequestCost) -> bool| -> Vec<&str> {
        measured.iter().filter(|(case, cost)| is_one(case, cost)).map(|(case, _)| case.name).collect()
    };
    let unknown = names(&|case, _| !figures.has(case.name));
    if !unknown.is_empty() {
        return Err(format!(
            "{} has no figures of {}: `--update` writes them",
            figures::FILE,
            unknown.join(", ")
        ));
    }
    if let Some(other) = figures.other_compiler()? {
        say(format_args!(
            "\nNot judged: the figures are of {other}. `cargo xtask cost --update` replaces them"
        ));
        return Ok(());
    }
    let dearer = names(&|case, cost| figures.is_dearer(case, cost));
    if dearer.is_empty() {
        return Ok(());
    }
    Err(format!(
        "dearer than tolerated: {}. `cargo xtask cost --bisect {}` names the commit; `cargo xtask cost {} --update --why \
         REASON` accepts it",
        dearer.join(", "),
        dearer[0],
        dearer.join(" "),
    ))
}

fn known(name: &str) -> Result<&'static CostCase, String> {
    let names = || CASES.iter().map(|case| case.name).collect::<Vec<_>>().join(", ");
    CASES
        .iter()
        .find(|case| case.name == name)
        .ok_or_else(|| format!("there is no case {name}; the cases are {}", names()))
}

/// Builds the program of a tree.
fn built(root: &Path, target: &Path) -> Result<PathBuf, String> {
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--quiet", "-p", "vanward"]).current_dir(root);
    step::run(build.env("CARGO_TARGET_DIR", target))?;
    Ok(target.join("release/vanward"))
}
