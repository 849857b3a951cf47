//! All checks of CI, in order; stops at the first failure. `.ci/run` only installs what they need.
//!
//! The processor is the bottleneck. So builds run during steps that mostly wait, and the two most expensive builds
//! take turns.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use serde_json::{Value, json};

use crate::scratch::Scratch;
use crate::step::{self, Steps};
use crate::workspace::{Workspace, text};
use crate::{arm64, cost, fuzz, package, say, strangers, tidy};

/// Selection of steps.
#[derive(clap::Args)]
pub(crate) struct CiArgs {
    /// Run only this step; may be given several times.
    #[arg(long, value_enum, value_name = "STEP")]
    only: Vec<CiStep>,
}

/// The checks of CI, in order.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum CiStep {
    /// All tests, by the command of the README.
    Test,
    /// Checks that rustfmt changes nothing.
    Format,
    /// Checks that no target has a warning.
    Clippy,
    /// The project's own rules.
    Tidy,
    /// Checks that rustdoc has no warning.
    Docs,
    /// A production build and its tests: without the lab, the load generator and the origin.
    Production,
    /// The proxy with programs of other projects: h2spec, gRPC, Toxiproxy's clients, testssl.
    Strangers,
    /// The fuzz targets whose turn it is; they run during the steps before. Alternates with `arm64`.
    Fuzz,
    /// The demo, for a few seconds.
    Demo,
    /// Instructions of a request in twenty cases, beside those of the last commit.
    Cost,
    /// Tests of the pure crates and a demo for arm64, under an emulator. Alternates with `fuzz`.
    Arm64,
    /// The unit and the Debian package with a program built like theirs: installed, upgraded under load, removed.
    Package,
    /// The built-in resilience plans, short, with Vanward and the peers.
    Resilience,
}

/// Steps that take turns by the number of commits: each takes a quarter of an hour of CPU time, mostly for the build.
const TURNS: [CiStep; 2] = [CiStep::Fuzz, CiStep::Arm64];

const PLANS: [&str; 4] = ["dying-servers", "slow-server", "reload-storm", "overload"];
/// Steps whose builds, or which as a whole, run during the steps before.
const BUILT_BESIDE: [CiStep; 4] = [CiStep::Demo, CiStep::Package, CiStep::Fuzz, CiStep::Arm64];
const DEMO_SECONDS: &str = "10";

pub(crate) fn run(arguments: &CiArgs) -> Result<(), String> {
    let workspace = Workspace::find()?;
    let mut steps = Steps::default();
    // Without git the turn is unknown, and no step is left out.
    let commits = fuzz::commits(&workspace).ok().filter(|_| arguments.only.is_empty());
    let left_out = commits.map(turn_of_another);
    let is_wanted = |step: CiStep| match arguments.only.is_empty() {
        true => left_out != Some(step),
        false => arguments.only.contains(&step),
    };
    let mut beside: Vec<Beside> = Vec::new();
    for &step in <CiStep as clap::ValueEnum>::value_variants().iter().filter(|step| is_wanted(**step)) {
        // The tests are built first. They wait more than they compute, and leave the processor to concurrent builds.
        if step == CiStep::Test && BUILT_BESIDE.into_iter().any(is_wanted) {
            build_tests(&workspace.root, &mut steps)?;
        }
        if matches!(step, CiStep::Test | CiStep::Clippy | CiStep::Strangers) {
            for of in BUILT_BESIDE.into_iter().filter(|of| is_wanted(*of)) {
                begin_once(&mut beside, of, &workspace)?;
            }
        }
        let build = beside.iter().position(|begun| begun.of == step).map(|at| beside.remove(at));
        let is_done = build.is_some() && step == CiStep::Fuzz;
        let built = build.map_or(Ok(()), |build| build.finish(&mut steps));
        let outcome = if is_done { built } else { built.and_then(|()| step.run(&workspace, &mut steps)) };
        outcome.map_err(|problem| format!("{problem}\n{}", again(step)))?;
    }
    if let Some(step) = left_out {
        say(format_args!(
            "\n=== {}: left out for this commit: it alternates with another step. {}",
            step.name(),
            again(step)
        ));
    }
    say(format_args!("\nAll checks passed.\n{}", steps.summary()));
    Ok(())
}

/// Returns the alternating step that this commit leaves out.
fn turn_of_another(commits: usize) -> CiStep {
    TURNS[(commits + 1) % TURNS.len()]
}

/// Starts the command for a step during the steps before, unless it has been started.
fn begin_once(beside: &mut Vec<Beside>, of: CiStep, workspace: &Workspace) -> Result<(), String> {
    if beside.iter().any(|begun| begun.of == of) {
        return Ok(());
    }
    if let Some(command) = build_beside(workspace, of)? {
        beside.push(Beside::begin(of, command)?);
    }
    Ok(())
}

/// Returns the command for a step that can run during other steps, if there is one.
fn build_beside(workspace: &Workspace, step: CiStep) -> Result<Option<Command>, String> {
    match step {
        CiStep::Demo => Ok(Some(nice_build(&workspace.root, &["build", "--release", "--quiet"]))),
        CiStep::Package if package::is_possible().is_ok() => {
            Ok(Some(nice_build(&workspace.root, &package::BUILD)))
        }
        CiStep::Fuzz if fuzz::is_possible() => fuzz::turn(workspace).map(Some),
        CiStep::Arm64 if arm64::is_possible().is_ok() => arm64::build(workspace).map(Some),
        _ => Ok(None),
    }
}

impl CiStep {
    fn name(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::Format => "format",
            Self::Clippy => "clippy",
            Self::Tidy => "tidy",
            Self::Docs => "docs",
            Self::Production => "production",
            Self::Strangers => "strangers",
            Self::Fuzz => "fuzz",
            Self::Demo => "demo",
            Self::Cost => "cost",
            Self::Arm64 => "arm64",
            Self::Package => "package",
            Self::Resilience => "resilience",
        }
    }

    fn run(self, workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
        let root = workspace.root.as_path();
        let command = match self {
            Self::Test => cargo(root, &["test", "--workspace", "--all-features"]),
            Self::Format => cargo(root, &["fmt", "--all", "--", "--check"]),
            Self::Clippy => return clippy(workspace, steps),
            Self::Tidy => return steps.run(self.name(), "structure, sizes and words", tidy::run),
            Self::Docs => {
                let mut command = cargo(root, &["doc", "--workspace", "--all-features", "--no-deps"]);
                command.env("RUSTDOCFLAGS", "-D warnings");
                command
            }
            Self::Production => return production(workspace, steps),
            Self::Strangers => return strangers::run_all(workspace, steps),
            Self::Fuzz if !fuzz::is_possible() => {
                say("\n=== fuzz: left out: there is no C++ compiler: apt-get install g++");
                return Ok(());
            }
            Self::Fuzz => fuzz::turn(workspace)?,
            Self::Demo => return demo(root, steps),
            Self::Cost => return cost_where_possible(steps),
            Self::Arm64 => return arm64_where_possible(workspace, steps),
            Self::Package => return try_packages(workspace, steps),
            Self::Resilience => return resilience(root, steps),
        };
        steps.run(self.name(), &step::shown(&command), || step::run(&mut { command }))
    }
}

/// Builds the tests before they run, so that the release build can start during them.
fn build_tests(root: &Path, steps: &mut Steps) -> Result<(), String> {
    let mut command = cargo(root, &["test", "--workspace", "--all-features", "--no-run", "--quiet"]);
    steps.run("build", &step::shown(&command), || step::run(&mut command))
}

/// A low-priority command during steps that wait or only compile: the demo's build, the packages' build (whose
/// whole-program optimization uses one core), the fuzz targets, the arm64 build. Dropping it ends it.
struct Beside {
    of: CiStep,
    child: Child,
    shown: String,
    /// Its output, which is shown at its end, and the folder.
    said: (PathBuf, Scratch),
}

impl Beside {
    fn begin(of: CiStep, mut command: Command) -> Result<Self, String> {
        let shown = step::shown(&command);
        let failed = |error| format!("`{shown}` cannot be run: {error}");
        let folder = Scratch::new(of.name())?;
        let said = folder.path().join("said");
        let file = File::create(&said).map_err(failed)?;
        command.stdout(file.try_clone().map_err(failed)?).stderr(file);
        let child = command.spawn().map_err(failed)?;
        Ok(Self { of, child, shown, said: (said, folder) })
    }

    fn finish(mut self, steps: &mut Steps) -> Result<(), String> {
        let heading = format!("the rest of {}", self.shown);
        steps.run(self.of.name(), &heading, || {
            let status = self.child.wait().map_err(|error| format!("it cannot be waited for: {error}"))?;
            say(fs::read_to_string(&self.said.0).unwrap_or_default().trim_end());
            if status.success() { Ok(()) } else { Err(format!("it ended with {status}; see above")) }
        })
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Checks all targets with Clippy, including the fuzz targets, a separate workspace that no other check builds.
fn clippy(workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
    let root = workspace.root.as_path();
    let words = ["--all-targets", "--", "-D", "warnings"];
    let mut all = cargo(root, &["clippy", "--workspace", "--all-features"]);
    all.args(words);
    let mut fuzz = cargo(root, &["clippy", "--manifest-path", "fuzz/Cargo.toml"]);
    fuzz.args(words);
    // Nothing is linked, so the fuzzer's own library, which requires a C++ compiler, need not exist.
    fuzz.env("CUSTOM_LIBFUZZER_PATH", "/libnone.a").env("CARGO_TARGET_DIR", workspace.target_directory()?);
    let heading = format!("{} && {}", step::shown(&all), step::shown(&fuzz));
    steps.run(CiStep::Clippy.name(), &heading, || {
        step::run(&mut all)?;
        step::run(&mut fuzz)
    })
}

/// Checks a production build. Clippy runs first: it finds code that only the lab uses, and undeclared needs of
/// libraries. The tests reuse the build of all tests.
fn production(workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
    let root = workspace.root.as_path();
    let mut lint = cargo(root, &["clippy", "-p", "vanward", "--no-default-features", "--", "-D", "warnings"]);
    let mut test = cargo(root, &["test", "--workspace", "--no-default-features", "--bin", "vanward"]);
    test.args(production_tests(workspace)?.iter().flat_map(|name| ["--test", name]));
    let heading = format!("{} && {}", step::shown(&lint), step::shown(&test));
    steps.run(CiStep::Production.name(), &heading, || {
        step::run(&mut lint)?;
        step::run(&mut test)
    })
}

fn production_tests(workspace: &Workspace) -> Result<Vec<String>, String> {
    let packages = workspace.packages("Cargo.toml")?;
    let program = packages.iter().find(|package| text(package, "name") == "vanward");
    let targets = program.and_then(|package| package["targets"].as_array()).map_or(&[][..], Vec::as_slice);
    let is_test =
        |target: &&Value| target["kind"] == json!(["test"]) && target["required-features"].is_null();
    let names: Vec<String> =
        targets.iter().filter(is_test).map(|test| text(test, "name").to_owned()).collect();
    if names.is_empty() { Err("cargo metadata lists no test of vanward".to_owned()) } else { Ok(names) }
}

/// Runs the demo with a temporary output directory, and checks that it wrote a report.
fn demo(root: &Path, steps: &mut Steps) -> Result<(), String> {
    let directory = Scratch::new("demo")?;
    let mut command = cargo(root, &["run", "--release", "--", "demo", "--seconds", DEMO_SECONDS, "--out"]);
    command.arg(directory.path());
    steps.run(CiStep::Demo.name(), &step::shown(&command), || {
        // A busy machine makes figures invalid: the report says so, and the code is not at fault.
        step::run_allowing(&mut command, &[step::INVALID_RUN])?;
        let report = directory.path().join("report.html");
        match fs::metadata(&report) {
            Ok(file) if file.len() > 0 => Ok(()),
            Ok(_) => Err("the demo wrote an empty report.html".to_owned()),
            Err(error) => Err(format!("the demo left no report.html: {error}")),
        }
    })
}

/// Counts instructions. Outside of CI that is skipped without Valgrind.
fn cost_where_possible(steps: &mut Steps) -> Result<(), String> {
    if std::env::var_os("CI").is_none()
        && let Err(missing) = cost::is_possible()
    {
        say(format_args!("\n=== cost: left out: {missing}"));
        return Ok(());
    }
    steps.run(CiStep::Cost.name(), "cargo xtask cost", cost::check)
}

/// Runs the arm64 check. Outside of CI it is skipped if a program is missing.
fn arm64_where_possible(workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
    if std::env::var_os("CI").is_none()
        && let Err(missing) = arm64::is_possible()
    {
        say(format_args!("\n=== arm64: left out: {missing}"));
        return Ok(());
    }
    arm64::check(workspace, steps)
}

/// Tests the packages. Outside of CI that is skipped if a program is missing.
fn try_packages(workspace: &Workspace, steps: &mut Steps) -> Result<(), String> {
    if std::env::var_os("CI").is_none()
        && let Err(missing) = package::is_possible()
    {
        say(format_args!("\n=== package: left out: {missing}"));
        return Ok(());
    }
    let heading = "the unit and the packages: calls, two builds, install, upgrade under load, remove, purge";
    steps.run(CiStep::Package.name(), heading, || package::check(workspace, None))
}

/// Runs each built-in resilience plan with `--quick` and the demo's program. Expectations are about Vanward; the
/// peers show that the plans and their drivers work.
fn resilience(root: &Path, steps: &mut Steps) -> Result<(), String> {
    let directory = Scratch::new("resilience")?;
    let command = |plan: &str| {
        let mut command = cargo(root, &["run", "--quiet", "--release", "--", "lab", "resilience", plan]);
        command.args(["--quick", "--out"]).arg(directory.path().join(plan));
        command
    };
    let heading = format!("{} and {} others", step::shown(&command(PLANS[0])), PLANS.len() - 1);
    steps.run(CiStep::Resilience.name(), &heading, || {
        for plan in PLANS {
            // A busy machine makes figures invalid, and the code is not at fault.
            step::run_allowing(&mut command(plan), &[step::INVALID_RUN])?;
            let file = directory.path().join(plan).join("results.json");
            let results =
                fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            let is_whole = results.contains("\"absent\": []");
            if !is_whole && std::env::var_os("CI").is_some() {
                return Err(format!("{plan}: a proxy was left out: see above, and install it"));
            }
        }
        Ok(())
    })
}

fn cargo(root: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(words).current_dir(root);
    command
}

/// Returns a cargo command at low priority.
fn nice_build(root: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "19", "cargo"]).args(words).current_dir(root);
    command
}

fn again(step: CiStep) -> String {
    format!("Repeat it alone with: cargo xtask ci --only {}", step.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_commits_each_step_with_turns_has_one() {
        let left_out = [7, 8].map(turn_of_another);
        assert!(TURNS.iter().all(|step| left_out.contains(step)));
    }
}
