//! `vanward demo`: a short run of the lab, with a table and a page.
//!
//! This module selects the measurements and the place of the report; the crates `lab` and `report` do the rest.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::lab::{
    CasePlan, ExperimentProgress, Features, LabPlan, OriginPayload, OriginPlan, OwnProgram, Placement,
    PlanLoad, RequestOptions, Serving, Sites, Timing, generator, proxies,
};
use report::results::{ClientScheme, ClientVersion, Layer, OriginProtocol};
use report::{Summary, figure};
use tokio::signal::unix::{SignalKind, signal};

use super::lab_files::RunFolder;
use super::verdict;

const DEBUG_BUILD: &str =
    "This Vanward is a debug build, several times slower than a release: its figures mean nothing.";

/// Measures the cost of a proxied request: Vanward beside the installed peers.
///
/// Starts two test servers and, in random order and several rounds, Vanward and each of nginx and HAProxy that is
/// installed, with the same features. It loads each with a small and a large response: as fast as possible, at one
/// rate for all, and as fast as possible over HTTPS. All use the same certificate and cipher suite (TLS 1.3,
/// TLS_AES_128_GCM_SHA256). All measurements have the same duration; with both peers, 16 of 22 are HTTP and 6 HTTPS.
/// Prints the figures with their spread, and writes report.html and results.json.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DemoArgs {
    /// Maximum duration in seconds; longer gives more and longer rounds
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(5..=3600))]
    seconds: u64,
    /// Directory for report.html, results.json and junit.xml; created if missing. Earlier results in it are moved
    /// to earlier-1, earlier-2 and so on
    #[arg(long, value_name = "DIR", default_value = "vanward-demo")]
    out: PathBuf,
    /// Leave Vanward and its test servers running afterwards, until Ctrl-C
    #[arg(long)]
    serve: bool,
    /// Print results.json instead of the table
    #[arg(long)]
    json: bool,
    /// Seed of the random order of the measurements
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

const EXAMPLES: &str = "\
Examples:
  vanward demo                        less than a minute, report in ./vanward-demo
  vanward demo --seconds 300          narrower spreads
  vanward demo --serve                keeps running, to try it with curl
  vanward demo --json | jq '.runs[0]'

Exit codes: 0 done, 1 failed or interrupted, 98 a figure is missing or invalid.";

/// Client connections: enough to keep a proxy busy, few enough for one core of load.
const CONNECTIONS: NonZeroUsize = NonZeroUsize::new(32).expect("not zero");
const ORIGINS: NonZeroUsize = NonZeroUsize::new(2).expect("not zero");
const TIMEOUT: Duration = Duration::from_secs(10);
/// Constant rate as a share of the slowest proxy's capacity. Every proxy can sustain it, even if the generator
/// shares a core with the origins: single requests cost both twice as much as batches.
const RATE_SHARE: f64 = 0.3;

pub(crate) fn run(arguments: &DemoArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let shown = runtime.map_err(|error| format!("cannot start: {error}")).and_then(|runtime| {
        runtime.block_on(show(arguments)) // Dropping what runs inside ends every process that it started.
    });
    match shown {
        Ok(code) => code,
        Err(message) => super::fail(super::FAILED, message),
    }
}

async fn show(arguments: &DemoArgs) -> Result<ExitCode, String> {
    let own = OwnProgram {
        program: std::env::current_exe()
            .map_err(|error| format!("cannot find this program's file: {error}"))?,
        version: env!("VANWARD_VERSION").to_owned(),
    };
    let mut folder = RunFolder::open(&arguments.out, false)?;
    let plan = plan(arguments, &own);
    let mut interrupted = false;
    let told = ProgressLine::new();
    let interrupt = async {
        interruption().await;
        interrupted = true;
    };
    let results = {
        let (here, mut interrupt) = (Placement::default(), pin!(interrupt));
        // Polled first, so that signal handlers are installed before the first process starts.
        let sites = tokio::select! {
            biased;
            () = &mut interrupt => Err(::lab::Error::Interrupted),
            sites = Sites::open(&here, &own, NonZeroUsize::MIN) => sites,
        };
        match sites {
            Ok(sites) => {
                let mut watcher = |progress: ExperimentProgress<'_>| told.progress(&progress);
                ::lab::run(&plan, sites, None, interrupt, &mut watcher).await
            }
            Err(error) => Err(error),
        }
    };
    told.clear();
    let results = results.map_err(|error| error.to_string())?;
    let summary = Summary::from_results(&results);
    let judged = match interrupted {
        true => Err((super::FAILED, "interrupted: the report has what was measured until then".to_owned())),
        false => verdict::of_lab(&results, &summary),
    };
    let written = folder.write_demo(&results, &summary);
    // Even if the files fail, the figures are on the terminal.
    let mut text = if arguments.json { results.to_json() + "\n" } else { report::text::render(&summary) };
    if !arguments.json && written.is_ok() {
        text += &format!("\nReport: {}\n", folder.file("report.html").display());
    }
    let judged = verdict::after(written.and(print(&text)), &judged);
    let filed = folder.judge(&verdict::junit_of_lab(&results, &judged));
    if arguments.serve && !interrupted {
        serve(&own).await?;
    }
    if matches!(judged, Err((verdict::INVALID, _))) {
        super::say("try again on an idle machine, or with more --seconds");
    }
    Ok(verdict::ended(verdict::after(filed, &judged)))
}

fn not_here(name: &str) -> String {
    format!("{name} is not installed here and was left out; to compare with it: apt-get install {name}.")
}

fn plan(arguments: &DemoArgs, own: &OwnProgram) -> LabPlan {
    let proxies = proxies::installed(own);
    let mut notes: Vec<String> = proxies::missing(&proxies).into_iter().map(not_here).collect();
    notes.push(
        "Vanward adds Via, Forwarded and X-Forwarded-* to each request; the peers, as configured here, add none of them."
            .to_owned(),
    );
    notes.push(
        "HTTPS has no row for direct, because the origins speak plain HTTP. Its CPU time includes one handshake for \
         each connection."
            .to_owned(),
    );
    notes.extend(cfg!(debug_assertions).then(|| DEBUG_BUILD.to_owned()));
    let case = |scheme: ClientScheme, payload: OriginPayload, load: PlanLoad| {
        let scheme_name = if scheme == ClientScheme::Https { "-https" } else { "" };
        let load_name = if load == PlanLoad::Closed { "closed" } else { "constant" };
        CasePlan {
            name: format!("{}{scheme_name}-{load_name}", payload.name),
            scheme,
            payload,
            version: ClientVersion::Http1,
            upstream: OriginProtocol::Http,
            layer: Layer::Seven,
            urls: None,
            requests_from: None,
            message: RequestOptions::default(),
            streams: None,
            generator: generator::ALL[0],
            load,
            connections: CONNECTIONS,
            threads: None,
            workers: NonZeroUsize::MIN,
            requests: None,
            measured: None,
            timeout: TIMEOUT,
            responses: ::load::Responses::Same,
            features: Features::default(),
            published: None,
        }
    };
    let cases: Vec<CasePlan> = [
        (ClientScheme::Http, PlanLoad::Closed),
        (ClientScheme::Http, PlanLoad::ShareOfSlowest(RATE_SHARE)),
        (ClientScheme::Https, PlanLoad::Closed),
    ]
    .into_iter()
    .flat_map(|(scheme, load)| {
        [OriginPayload::tiny(), OriginPayload::large()].map(|payload| case(scheme, payload, load.clone()))
    })
    .collect();
    LabPlan {
        title: "What a proxied request costs".to_owned(),
        command: format!("vanward demo --seconds {} --seed {}", arguments.seconds, arguments.seed),
        own: own.clone(),
        timing: Timing::within(Duration::from_secs(arguments.seconds), ::lab::plan::cells(&proxies, &cases)),
        proxies,
        cases,
        origins: OriginPlan::own(ORIGINS),
        file: None,
        absent: Vec::new(),
        seed: arguments.seed,
        notes,
        changes: Vec::new(),
        published: Vec::new(),
        expectations: Vec::new(),
        says_keep_alive: false,
        authorities: BTreeMap::new(),
    }
}

async fn serve(own: &OwnProgram) -> Result<(), String> {
    let mut stop = pin!(interruption());
    let mut serving = tokio::select! {
        biased;
        () = &mut stop => return Ok(()),
        serving = Serving::start(own, ORIGINS, NonZeroUsize::MIN) => serving.map_err(|error| error.to_string())?,
    };
    print(&format!(
        "\nRunning until Ctrl-C: {}\nTry it:\n  curl -i http://{}/hello.html\n",
        serving.command(),
        serving.address()
    ))?;
    tokio::select! {
        () = stop => Ok(()),
        error = serving.ended() => Err(error.to_string()),
    }
}

/// Completes on SIGINT, SIGTERM or SIGHUP.
pub(super) async fn interruption() {
    let signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
    // Without handlers these signals end the process, as they do by default.
    let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = signals else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}

pub(super) fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader has seen enough; the report is in its file.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(|error| format!("cannot write to standard output: {error}")),
    }
}

/// In seconds since 1970.
pub(super) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A progress line on standard error that overwrites itself, if standard error is a terminal.
pub(super) struct ProgressLine {
    is_terminal: bool,
}

impl ProgressLine {
    pub(super) fn new() -> Self {
        Self { is_terminal: std::io::stderr().is_terminal() }
    }

    pub(super) fn progress(&self, progress: &ExperimentProgress<'_>) {
        let ExperimentProgress { done, total, proxy, case, round, left } = progress;
        let end = figure::date(unix_seconds() + left.as_secs());
        let left = figure::span(left.as_secs_f64());
        self.show(&format!("[{done}/{total}] round {round}: {case}, {proxy}; {left} left, until {end}"));
    }

    pub(super) fn clear(&self) {
        self.show("");
    }

    pub(super) fn show(&self, text: &str) {
        if self.is_terminal {
            // A closed terminal is no reason to end the run.
            let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
        }
    }
}
