//! `vanward lab`: lists, shows and runs experiments. The crate `lab` runs them, the crate `report` interprets the
//! results.

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ::lab::generator::{self, Generator};
use ::lab::{
    AgentService, Changes, ExperimentProgress, Forecast, LabPlan, MeasuredService, OwnProgram, Sites,
    Watcher, WrittenPlan, experiments,
};
use config::Mistake;
use report::chart::{self, Theme};
use report::results::{File, Results};
use report::{Summary, figure, text};
use serde_json::json;

use super::demo::{ProgressLine, interruption, print, unix_seconds};
use super::lab_files::{RunFolder, SavedResults};
use super::{lab_compare, lab_files, lab_resilience, verdict};

pub(super) use super::verdict::{INVALID as INVALID_RUN, MISSED};

/// Maximum size of a plan file, which is written by hand.
pub(super) const PLAN_BYTES_MAX: u64 = 1024 * 1024;
const BETWEEN_KEEPING: Duration = Duration::from_secs(5);

/// Compares proxies: built-in experiments, or your own from a short file.
///
/// Each proxy is restarted for each measurement, in random order and several rounds, on separate cores if there are
/// enough. Proxies that are not installed are left out, with a message.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(clap::Subcommand)]
enum LabCommand {
    /// List the built-in experiments
    List,
    /// Print the plan of an experiment, to change it and run it as a file
    Show {
        /// Name of the experiment or of the resilience run, as in `vanward lab list`
        name: String,
    },
    /// Run an experiment and write its results and report
    Run(LabRunArgs),
    /// Show which proxies and load generators are installed, and how to get the others
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write the reports of existing results again
    Report {
        /// Directories with results.json or results.json.gz
        #[arg(required = true, value_name = "DIR")]
        folders: Vec<PathBuf>,
        /// Write only report.html
        #[arg(long, conflicts_with = "plots")]
        page: bool,
        #[command(flatten)]
        plots: Plots,
    },
    Compare(lab_compare::LabCompareArgs),
    Resilience(lab_resilience::LabResilienceArgs),
    /// Agent of a lab on this machine; reads its orders from standard input
    #[command(hide = true)]
    Agent {
        /// Exit after this time without an order
        #[arg(long, value_name = "DURATION", value_parser = config::duration)]
        silence: Option<Duration>,
    },
}

#[derive(clap::Args)]
struct LabRunArgs {
    /// Name of an experiment, or a plan file
    plan: String,
    /// Use the `quick` tables of the plan: minutes instead of hours
    #[arg(long)]
    quick: bool,
    /// Directory for results.json, the reports and their data [default: lab-NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Continue the run in that directory, after an interruption or with more rounds, without repeating measurements
    #[arg(long)]
    resume: bool,
    /// Measure only these proxies of the plan, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    proxies: Vec<String>,
    /// Measure only these cases of the plan, separated by commas; `*` matches any text
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',')]
    cases: Vec<String>,
    /// Measure this service, which runs already, in place of the plan's proxies: `http://HOST[:PORT]`
    #[arg(long, value_name = "URL", value_parser = target, conflicts_with = "proxies")]
    target: Option<AgentService>,
    /// Trust the authorities in this PEM file for the certificate of --target, in place of the system's
    #[arg(long, value_name = "FILE", requires = "target")]
    ca: Option<PathBuf>,
    /// Number of rounds, instead of the plan's
    #[arg(long, value_name = "N")]
    repeats: Option<NonZeroUsize>,
    /// Duration of each measurement that does not end after a number of requests
    #[arg(long, value_name = "DURATION", value_parser = some_time)]
    duration: Option<Duration>,
    /// Duration of load before each measurement, which is not counted
    #[arg(long, value_name = "DURATION", value_parser = config::duration)]
    warm_up: Option<Duration>,
    /// Seed of the random order
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Load generator of every case: vanward, wrk, h2load or ab
    #[arg(long, value_name = "NAME", value_parser = one_generator)]
    generator: Option<&'static Generator>,
    #[command(flatten)]
    plots: Plots,
    /// Print the results as JSON instead of tables
    #[arg(long)]
    json: bool,
}

/// Flags for chart files.
#[derive(clap::Args)]
struct Plots {
    /// Also write each chart as SVG and PNG files, to `plots`
    #[arg(long)]
    plots: bool,
    /// Colours of these files: for bright and dark screens, or for print in black and white
    #[arg(long, value_name = "STYLE", value_enum, default_value_t = ChartStyle::Screen, requires = "plots")]
    style: ChartStyle,
}

/// Colours of chart files.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ChartStyle {
    Screen,
    Paper,
}

impl Plots {
    fn themes(&self) -> &'static [Theme] {
        match (self.plots, self.style) {
            (false, _) => &[],
            (true, ChartStyle::Screen) => &[chart::LIGHT, chart::DARK],
            (true, ChartStyle::Paper) => &[chart::PAPER],
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  vanward lab list
  vanward lab run zproxy --quick                  two origins, 42 bytes, 400 connections, in a minute
  vanward lab run monolake --quick --out results  HTTP and HTTPS by payload
  vanward lab show monolake > mine.toml           a plan as a start for your own
  vanward lab run mine.toml --proxies vanward,nginx --cases 'https-*'
  vanward lab run monolake --duration 10s         the full plan, in less time
  vanward lab run zproxy --quick --generator wrk  another generator, as a cross-check
  vanward lab run monolake --resume               continues an interrupted run
  vanward lab run zproxy --resume --repeats 20    adds 15 rounds to the plan's 5
  vanward lab run mine.toml --target http://127.0.0.1:8080   a service that runs already
  vanward lab doctor                              shows what is installed
  vanward lab report results --plots              writes the reports again, and each chart as a file
  vanward lab report results --plots --style paper  the charts for print
  vanward lab compare before after --fail-on 5    differences beyond noise
  vanward lab resilience dying-servers --quick    what clients get while servers die; see its --help

A run writes results.json, results.csv, report.html, report.md and junit.xml to its directory, latency distributions to
latency/*.hgrm, and the CPU, memory and network use of proxy, generator and origins per second to usage/*.csv. Existing
results are moved to earlier-1, earlier-2 and so on in that directory. junit.xml fails whenever the exit code is not 0.

Exit codes: 0 done, 1 failed or interrupted, 78 mistake in the plan, 98 figures missing or invalid,
99 an expectation of the plan failed.";

pub(crate) fn run(arguments: &LabArgs) -> ExitCode {
    let done = match &arguments.command {
        LabCommand::List => list(),
        LabCommand::Show { name } => show(name),
        LabCommand::Run(run) => return run_plan(run),
        LabCommand::Resilience(arguments) => return lab_resilience::run(arguments),
        LabCommand::Agent { silence } => agent(*silence),
        LabCommand::Doctor { json } => doctor(*json),
        LabCommand::Report { folders, page, plots } => remake(folders, *page, plots),
        LabCommand::Compare(arguments) => {
            return lab_compare::run(arguments).unwrap_or_else(|message| super::fail(super::FAILED, message));
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => super::fail(super::FAILED, message),
    }
}

fn list() -> Result<(), String> {
    let mut out = String::new();
    for experiment in experiments::ALL {
        let (title, times) = title_and_times(experiment)?;
        out += &format!("{:<18}{title}\n{:18}{times}\n", experiment.name, "");
    }
    print(&(out + &lab_resilience::list()?))
}

fn show(name: &str) -> Result<(), String> {
    if let Some(plan) = experiments::resilience_named(name) {
        return print(plan.text);
    }
    let names = || {
        let all = experiments::ALL.into_iter().chain(experiments::RESILIENCE);
        all.map(|experiment| experiment.name).collect::<Vec<_>>().join(", ")
    };
    let experiment = experiments::named(name)
        .ok_or_else(|| format!("no experiment is named {name:?}; expected one of {}", names()))?;
    // Not in the plan itself, which the user may change.
    super::say(format_args!("{name}: {}", title_and_times(experiment)?.1));
    print(experiment.text)
}

/// Title of an experiment, and its duration with every proxy, in full and with `--quick`.
fn title_and_times(experiment: experiments::BuiltInPlan) -> Result<(String, String), String> {
    let plan = |is_quick| {
        WrittenPlan::read(experiment.text, experiment.name, is_quick)
            .map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    };
    let (full, quick) = (plan(false)?, plan(true)?);
    let [times, times_quick] = [&full, &quick].map(|plan| times(&plan.forecast()));
    let title = format!("{} ({})", full.title, figure::things(full.cases.len(), "case"));
    Ok((title, format!("{times}; with --quick {times_quick}")))
}

/// Reports the mistakes of a plan, each with its place and the line of the file.
pub(super) fn refused(mistakes: &[Mistake]) -> ExitCode {
    let lines: String = mistakes.iter().map(|mistake| format!("{mistake}\n{}", mistake.shown())).collect();
    // The exit code says the same if standard error is closed.
    let _ = std::io::stderr().lock().write_all(lines.as_bytes());
    ExitCode::from(super::BAD_CONFIGURATION)
}

/// Formats the duration of a run, as far as its plan determines it.
fn times(forecast: &Forecast) -> String {
    let least = forecast.least().as_secs_f64();
    let longest = forecast.longest_searches().as_secs_f64();
    let mut said = if longest > least {
        format!("{} to {}, as searches go", figure::span(least), figure::span(longest))
    } else {
        format!("at least {}", figure::span(least))
    };
    if forecast.counted() > 0 {
        said += &format!(", and {} that end by requests", figure::things(forecast.counted(), "measurement"));
    }
    said
}

pub(super) fn own() -> Result<OwnProgram, String> {
    let program =
        std::env::current_exe().map_err(|error| format!("cannot find this program's file: {error}"))?;
    Ok(OwnProgram { program, version: env!("VANWARD_VERSION").to_owned() })
}

/// Runs the agent, and ends its processes after a signal too.
fn agent(silence: Option<Duration>) -> Result<(), String> {
    let own = own()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    runtime.block_on(async {
        tokio::select! {
            biased;
            () = interruption() => Ok(()),
            ended = ::lab::agent(&own, silence) => ended.map_err(|error| error.to_string()),
        }
    })
}

fn doctor(as_json: bool) -> Result<(), String> {
    let own = own()?;
    let proxies = ::lab::proxies::census(&own);
    let generators = generator::ALL.map(|generator| (generator, generator.program(&own)));
    let cores = ::lab::cores::assign_all().map_err(|error| error.to_string())?;
    if as_json {
        let proxies = proxies.iter().map(|(name, found)| match found {
            Ok(installed) => {
                json!({ "name": name, "version": installed.version, "program": installed.program })
            }
            Err(remedy) => json!({ "name": name, "remedy": remedy }),
        });
        let generators = generators.iter().map(|(generator, program)| match program {
            Some(program) => json!({ "name": generator.name, "program": program }),
            None => json!({ "name": generator.name, "remedy": generator.remedy }),
        });
        let told = json!({
            "proxies": proxies.collect::<Vec<_>>(),
            "generators": generators.collect::<Vec<_>>(),
            "cores": cores,
        });
        return print(&format!("{told}\n"));
    }
    let mut out = "Proxies\n".to_owned();
    for (name, found) in proxies {
        let said = match found {
            Ok(installed) => format!("{} ({})", installed.version, installed.program.display()),
            Err(remedy) => format!("not installed: {remedy}"),
        };
        out += &format!("  {name:<15}{said}\n");
    }
    out += "\nGenerators\n";
    for (generator, program) in generators {
        let said = match program {
            Some(program) => program.display().to_string(),
            None => format!("not installed: {}", generator.remedy),
        };
        out += &format!("  {:<15}{said}\n", generator.name);
    }
    let shares = cores.origins.iter().any(|core| cores.load.contains(core)) || cores.proxy == cores.load;
    out += &format!(
        "\nCores: proxy {:?}, origins {:?}, load {:?}{}\n",
        cores.proxy,
        cores.origins,
        cores.load,
        if shares { "; some are shared: with four or more cores, each part has separate ones" } else { "" }
    );
    print(&out)
}

/// Parses a nonzero duration.
fn some_time(text: &str) -> Result<Duration, String> {
    let time = config::duration(text).map_err(|error| error.to_string())?;
    if time.is_zero() { Err("expected a duration above zero".to_owned()) } else { Ok(time) }
}

fn target(url: &str) -> Result<AgentService, String> {
    AgentService::try_from(url.to_owned())
}

fn one_generator(name: &str) -> Result<&'static Generator, String> {
    generator::named(name).ok_or_else(|| format!("expected one of {}", generator::names()))
}

fn remake(folders: &[PathBuf], only_page: bool, plots: &Plots) -> Result<(), String> {
    for folder in folders {
        let results = match lab_files::read_kept(folder)? {
            SavedResults::Lab(results) => results,
            SavedResults::Resilience(results) => {
                lab_resilience::remake(folder, &results, only_page, !plots.themes().is_empty())?;
                continue;
            }
        };
        let summary = Summary::from_results(&results);
        if only_page {
            lab_files::write_page(folder, &summary)?;
            print(&format!("{}\n", folder.join("report.html").display()))?;
        } else {
            lab_files::write_reports(folder, &results, &summary, plots.themes())?;
            let judged = verdict::of_lab(&results, &summary);
            lab_files::judge(folder, &verdict::junit_of_lab(&results, &judged))?;
            print(&text::render(&summary))?;
        }
    }
    Ok(())
}

fn run_plan(run: &LabRunArgs) -> ExitCode {
    let (name, text) = match experiments::named(&run.plan) {
        Some(experiment) => (format!("{}.toml", experiment.name), experiment.text.to_owned()),
        None => match lab_files::read(Path::new(&run.plan), PLAN_BYTES_MAX) {
            Ok(text) => (run.plan.clone(), text),
            Err(message) => {
                let names = experiments::ALL.map(|experiment| experiment.name).join(", ");
                let message = format!("{message}; expected a plan file, or one of {names}");
                return super::fail(super::USAGE, message);
            }
        },
    };
    let target = match run.target() {
        Ok(target) => target,
        Err(message) => return super::fail(super::USAGE, message),
    };
    let mut written = match WrittenPlan::read_for(target, &text, &name, run.quick) {
        Ok(written) => written,
        Err(mistakes) => return refused(&mistakes),
    };
    let changes = match run.changes().apply(&mut written) {
        Ok(changes) => changes,
        Err(message) => return super::fail(super::USAGE, message),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.map_err(|error| format!("cannot start: {error}")).and_then(|runtime| {
        // Dropping the future ends every process that it started.
        runtime.block_on(measure(run, written, changes, File { name, text }))
    });
    done.unwrap_or_else(|message| super::fail(super::FAILED, message))
}

impl LabRunArgs {
    fn target(&self) -> Result<Option<MeasuredService>, String> {
        let Some(server) = self.target.clone() else { return Ok(None) };
        if self.ca.is_some() && !server.url.starts_with("https://") {
            return Err("--ca needs a target with TLS: --target https://HOST".to_owned());
        }
        let authority = self.ca.as_deref().map(::lab::authority_of).transpose();
        let authority = authority.map_err(|message| format!("--ca: {message}"))?;
        Ok(Some(MeasuredService { server, authority }))
    }

    /// Changes of the command line to the plan, without its `quick` tables.
    fn changes(&self) -> Changes {
        Changes {
            rounds: self.repeats,
            measured: self.duration,
            warm_up: self.warm_up,
            cases: self.cases.clone(),
            proxies: self.proxies.clone(),
            generator: self.generator,
        }
    }

    fn command(&self) -> String {
        let list = |flag: &str, names: &[String]| {
            (!names.is_empty()).then(|| format!("{flag} '{}'", names.join(",")))
        };
        let time = |flag: &str, time: Option<Duration>| time.map(|time| format!("{flag} {time:?}"));
        let flags = [
            self.quick.then(|| "--quick".to_owned()),
            list("--proxies", &self.proxies),
            self.target.as_ref().map(|target| format!("--target {}", target.url)),
            self.ca.as_ref().map(|file| format!("--ca {}", file.display())),
            list("--cases", &self.cases),
            self.repeats.map(|repeats| format!("--repeats {repeats}")),
            time("--duration", self.duration),
            time("--warm-up", self.warm_up),
            self.generator.map(|generator| format!("--generator {}", generator.name)),
            Some(format!("--seed {}", self.seed)),
        ];
        let flags: Vec<String> = flags.into_iter().flatten().collect();
        format!("vanward lab run {} {}", self.plan, flags.join(" "))
    }
}

/// Builds the plan of the run, and connects its machines.
async fn plan(
    run: &LabRunArgs,
    written: WrittenPlan,
    mut changes: Vec<String>,
    file: File,
) -> Result<(LabPlan, Sites), String> {
    let own = own()?;
    let of_all = written.cases.iter().map(|case| case.workers);
    let of_some = written.wanted.deviations.values().filter_map(|deviation| deviation.workers);
    let workers = of_all.chain(of_some).max().unwrap_or(NonZeroUsize::MIN);
    let sites = async {
        let mut sites = Sites::open(&written.placement, &own, workers).await?;
        let (proxies, absent) = sites.look(written.wanted).await?;
        Ok((sites, proxies, absent))
    };
    let (sites, proxies, absent) = sites.await.map_err(|error: ::lab::Error| error.to_string())?;
    let mut notes = Vec::new();
    if cfg!(debug_assertions) {
        notes.push(
            "This Vanward is a debug build, several times slower than a release: its figures mean nothing."
                .to_owned(),
        );
    }
    if run.quick {
        changes.insert(0, "its short form, by --quick".to_owned());
    }
    let plan = LabPlan {
        title: written.title,
        command: run.command(),
        file: Some(file),
        published: written.published.as_deref().map(experiments::published).unwrap_or_default(),
        own,
        proxies,
        absent,
        cases: written.cases,
        origins: written.origins,
        timing: written.timing,
        seed: run.seed,
        notes,
        changes,
        expectations: written.expectations,
        says_keep_alive: written.says_keep_alive,
        authorities: written.authorities,
    };
    Ok((plan, sites))
}

/// The default output directory: `lab-zproxy` for `zproxy` and for `plans/zproxy.toml`.
fn folder(run: &LabRunArgs) -> PathBuf {
    let stem = Path::new(&run.plan).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    run.out.clone().unwrap_or_else(|| PathBuf::from(format!("lab-{stem}")))
}

async fn measure(
    run: &LabRunArgs,
    written: WrittenPlan,
    changes: Vec<String>,
    file: File,
) -> Result<ExitCode, String> {
    let out = folder(run);
    let earlier = run.resume.then(|| lab_files::read_results(&out)).transpose()?;
    let folder = RunFolder::open(&out, run.resume)?;
    let mut interrupted = pin!(interruption());
    // Polled first, so that signal handlers are installed before the first process starts.
    let (plan, sites) = tokio::select! {
        biased;
        () = &mut interrupted => return Err(::lab::Error::Interrupted.to_string()),
        made = plan(run, written, changes, file) => made?,
    };
    let mut keeper = ResultKeeper { told: ProgressLine::new(), folder, kept: Instant::now(), failed: None };
    let results = ::lab::run(&plan, sites, earlier, interrupted, &mut keeper).await;
    keeper.told.clear();
    if let Some(error) = keeper.failed {
        super::say(format_args!("{error}; the run went on, and the results are written again now"));
    }
    let results = results.map_err(|error| error.to_string())?;
    let summary = Summary::from_results(&results);
    let written = keeper.folder.write(&results, &summary, run.plots.themes());
    // Even if the files fail, the figures are on the terminal.
    let mut text = if run.json { results.to_json() + "\n" } else { text::render(&summary) };
    if !run.json && written.is_ok() {
        text += &format!("\nReport: {}\n", keeper.folder.file("report.html").display());
    }
    let judged = verdict::after(written.and(print(&text)), &verdict::of_lab(&results, &summary));
    let filed = keeper.folder.judge(&verdict::junit_of_lab(&results, &judged));
    Ok(verdict::ended(verdict::after(filed, &judged)))
}

/// Shows the progress of a run, and saves its results.
struct ResultKeeper {
    told: ProgressLine,
    folder: RunFolder,
    kept: Instant,
    /// Why the last attempt to save failed.
    failed: Option<String>,
}

impl Watcher for ResultKeeper {
    fn begins(&mut self, forecast: &Forecast) {
        let done = unix_seconds() + forecast.least().as_secs();
        let there = match forecast.skipped() {
            0 => String::new(),
            there => format!("{} there already, and ", figure::things(there, "measurement")),
        };
        super::say(format_args!(
            "{there}{}, {}: done after {} at the earliest",
            figure::things(forecast.measurements(), "measurement"),
            times(forecast),
            figure::date(done)
        ));
    }

    fn next(&mut self, progress: ExperimentProgress<'_>) {
        self.told.progress(&progress);
    }

    fn measured(&mut self, results: &Results) {
        if self.kept.elapsed() < BETWEEN_KEEPING {
            return;
        }
        self.kept = Instant::now();
        self.failed = self.folder.keep(&results.to_json()).err();
    }
}
