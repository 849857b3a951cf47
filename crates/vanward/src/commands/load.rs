//! `vanward load`: turns flags into a plan, shows progress, and prints the outcome as text or JSON.

/// Values of flags.
mod values;
/// Flags for connections and TLS.
mod connecting;
/// Builds the plan from the flags.
mod planned;
/// Streams in place of requests.
mod streams;
/// Load from several machines.
mod agents;
/// Runs with several numbers of connections.
mod sweep;
/// Expectations of a run.
mod expect;
/// Limits on failures, and the verdict on a run.
mod limits;
/// Progress of a run.
mod watch;
/// Prometheus remote write.
mod remote_write;
/// The files of a run.
mod out;
/// The page of one or several runs.
mod page;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ArgGroup;
use load::{LoadPlan, RunOutcome, ThinkTime};
use report::condition::FigureCondition;

use connecting::Connecting;
use limits::FailureLimits;
use remote_write::RemoteWrite;
use values::{By, MaxErrors, Stages, max_errors, rate, seconds, whole_number};
use watch::RunWatch;

use super::verdict::{self, Judged};

/// Generates load over HTTP/1.1, HTTP/2 or HTTP/3, with or without TLS, and measures latency.
///
/// Without -R it is a closed loop: each connection sends its next request when the response is complete. With -R,
/// requests follow a schedule, however slow the server is, and latency counts from the scheduled time.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(group(ArgGroup::new("paced").args(["rate", "stages"])))]
#[command(group(ArgGroup::new("seeded").args(["poisson", "requests_from"]).multiple(true)))]
#[command(group(ArgGroup::new("multiplexed").args(["h2", "h3"])))]
#[command(group(ArgGroup::new("listed").args(["urls", "requests_from"])))]
pub(crate) struct LoadArgs {
    #[command(subcommand)]
    command: Option<LoadCommand>,
    /// `http://HOST[:PORT]/PATH`, or https. Optional with --urls and --requests-from, where entries that
    /// start with / are paths on this host
    #[arg(required_unless_present = "listed")]
    url: Option<String>,
    /// Number of connections, over all threads; several, such as 1,10,100,1k, for one run after the other
    #[arg(short = 'c', long, value_name = "N", value_parser = whole_number, value_delimiter = ',', default_value = "10")]
    connections: Vec<u64>,
    /// Number of threads, which share the connections
    #[arg(short = 't', long, value_name = "N", value_parser = whole_number, default_value = "1")]
    threads: u64,
    /// Duration: 30s, 2m, 500ms [default: 10s, without -n]
    #[arg(short = 'd', long, value_name = "DURATION", value_parser = seconds)]
    duration: Option<f64>,
    /// Number of requests, including failed ones
    #[arg(short = 'n', long, value_name = "N", value_parser = values::requests)]
    requests: Option<u64>,
    /// Requests per second over all threads: 500, 20k, 0.5
    #[arg(short = 'R', long, value_name = "N", value_parser = rate)]
    rate: Option<f64>,
    /// Rates that change: 10s:1000 holds a rate, 30s:..5000 ramps to one, 30s:1000..5000 between two
    #[arg(long, value_name = "STAGES", value_parser = values::stages, conflicts_with_all = ["rate", "duration"])]
    stages: Option<Stages>,
    /// Random arrivals (a Poisson process) at the rate of -R or --stages, instead of equal intervals
    #[arg(long, requires = "paced")]
    poisson: bool,
    /// Seed of --poisson, and of random values in --requests-from
    #[arg(long, value_name = "SEED", requires = "seeded", default_value_t = 1)]
    seed: u64,
    /// Without a rate: pause of each connection between response and next request, 100ms or at random 100ms..1s
    #[arg(long, value_name = "DURATION", value_parser = values::think_time, conflicts_with = "paced")]
    think_time: Option<ThinkTime>,
    /// Request the URLs of this file in turn, one per line, or METHOD URL, optionally followed by a body or @FILE;
    /// # starts a comment
    #[arg(long, value_name = "FILE")]
    urls: Option<PathBuf>,
    /// Send the requests of this file by their weights: TOML with `[[request]]`, .http, or .har
    #[arg(long, value_name = "FILE", conflicts_with_all = ["method", "body"])]
    requests_from: Option<PathBuf>,
    /// Format of --requests-from [default: by the file name's extension]
    #[arg(long, value_name = "FORMAT", requires = "requests_from")]
    requests_format: Option<RequestsFormat>,
    /// Send the requests of a recording (HAR) to these hosts only [default: the host of the URL]
    #[arg(long, value_name = "HOSTS", value_delimiter = ',', requires = "requests_from")]
    hosts: Vec<String>,
    /// Shuffle the URLs once, or the requests of the file, with this seed
    #[arg(long, value_name = "SEED", requires = "listed")]
    shuffle: Option<u64>,
    /// Add a header field, 'Name: value'. Can be repeated
    #[arg(short = 'H', long = "header", value_name = "FIELD")]
    headers: Vec<String>,
    /// Method [default: GET, or POST with --body]
    #[arg(short = 'X', long, value_name = "METHOD")]
    method: Option<String>,
    /// Request body: text, @FILE, or @- for standard input
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// Credentials for HTTP Basic authentication: NAME:PASSWORD, or @FILE with that. They appear in no output
    #[arg(short = 'u', long, value_name = "USER")]
    user: Option<String>,
    /// Initial cookies of each connection, 'a=b; c=d' or '' for none; it keeps those that servers set
    #[arg(short = 'b', long = "cookie", value_name = "COOKIES")]
    cookies: Option<String>,
    /// Follow redirects to hosts of the URLs; a request then counts once, with its last response
    #[arg(short = 'L', long, visible_alias = "location")]
    follow: bool,
    /// Maximum number of redirects that a request follows
    #[arg(long, value_name = "N", requires = "follow", default_value_t = 10)]
    max_redirs: u32,
    /// Open a new connection for each request; its time counts as part of the request
    #[arg(long)]
    no_keepalive: bool,
    /// Use HTTP/2: with https by ALPN, with http by prior knowledge
    #[arg(long)]
    h2: bool,
    /// Use HTTP/3, over UDP; for https
    #[arg(long, conflicts_with_all = ["h2", "unix_socket"])]
    h3: bool,
    /// Concurrent requests on each connection of HTTP/2 or HTTP/3
    #[arg(short = 'm', long, value_name = "N", value_parser = whole_number, requires = "multiplexed", default_value = "1")]
    streams: u64,
    #[command(flatten)]
    connecting: Connecting,
    /// Check each response: 'status 200', 'header Content-Type text/*', 'size 1KB..', 'contains total' or 'digest
    /// crc32:0d4a1185'. Can be repeated. Not for requests of a file with their own checks
    #[arg(long = "check", value_name = "CHECK", value_parser = values::check)]
    checks: Vec<String>,
    /// Without a check: whether responses must match the first ones to the same request
    #[arg(long, value_name = "WHICH", default_value = "same")]
    responses: ResponsesOf,
    /// Timeout of a request, until its response is complete
    #[arg(long, value_name = "DURATION", value_parser = seconds, default_value = "10s")]
    timeout: f64,
    /// Exit with 1 if more requests fail than this number or percentage: 10, 0.1% [default: 0, or no limit if --expect is
    /// about errors]
    #[arg(long, value_name = "N", value_parser = max_errors)]
    max_errors: Option<MaxErrors>,
    /// Exit with 99 unless this holds: 'p99 < 50ms', 'errors < 0.1%', 'rate > 1000/s'. Can be repeated
    #[arg(long = "expect", value_name = "CONDITION", value_parser = expect::condition)]
    expectations: Vec<FigureCondition>,
    /// Warm-up: send load for this time without counting it
    #[arg(long, value_name = "DURATION", value_parser = seconds, default_value = "0s")]
    warm_up: f64,
    /// Also measure the server: CPU time per request and memory of this process and its children, on this machine
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Also print figures by part, separated by commas
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    by: Vec<By>,
    /// Print the result as JSON, with complete histograms
    #[arg(long)]
    json: bool,
    /// Write the result to this directory: a page, JSON, CSV, percentiles (.hgrm), and a line of JSON for each second
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Push the figures of each second to a Prometheus remote write receiver
    #[arg(long, value_name = "URL")]
    remote_write: Option<String>,
    /// Label of what --remote-write pushes, NAME=VALUE. Can be repeated
    #[arg(long = "remote-label", value_name = "LABEL", requires = "remote_write")]
    remote_labels: Vec<String>,
    /// Send a part of the load from another machine. The command runs `vanward load agent` there: 'ssh HOST vanward
    /// load agent', 'kubectl attach -qi POD'. Given once for each machine
    #[arg(long = "agent", value_name = "COMMAND")]
    agents: Vec<String>,
    /// An agent is lost if it is silent for this time, or has not ended this long after its time. The result
    /// then covers only the other agents, and is invalid
    #[arg(long, value_name = "DURATION", value_parser = seconds, requires = "agents", default_value = "30s")]
    agent_timeout: f64,
    /// Do not show progress
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Write the percentiles of the latency to this file, for HdrHistogram's plotters
    #[arg(long, value_name = "FILE")]
    hgrm: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum LoadCommand {
    Report(page::LoadPageArgs),
    Events(streams::EventsArgs),
    Websocket(streams::WebSocketArgs),
    Grpc(streams::GrpcArgs),
    /// Sends a part of a load, controlled by `vanward load --agent COMMAND` over standard input
    Agent,
}

/// A format of a list of requests.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum RequestsFormat {
    Toml,
    Http,
    Har,
    /// Passed on by a lab that has read the list.
    #[value(hide = true)]
    Handed,
}

/// Requirement for responses without a check.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ResponsesOf {
    /// A status, type or body different from the first responses is an error; a body that varies from the start may
    /// vary
    Same,
    /// Any response with status 2xx or 3xx is good
    Any,
}

const EXAMPLES: &str = "\
Examples:
  vanward load -c 64 -t 2 -d 30s http://127.0.0.1:8080/     as fast as the server answers, as wrk does
  vanward load -n 10000 -c 10 http://127.0.0.1:8080/        10,000 requests, as ab does
  vanward load -c 200 -R 5000 -d 1m http://127.0.0.1:8080/  5,000 requests/s, as wrk2 does
  vanward load -c 500 --stages 10s:..1000,1m:1000,10s:..0 http://127.0.0.1:8080/   up, hold, and down again
  vanward load -c 100 --think-time 1s..3s -d 1m http://127.0.0.1:8080/    100 users who read for a while
  vanward load --out before -d 30s http://127.0.0.1:8080/   also a page, JSON, CSV, and a line of JSON for each second
  vanward load report before after                          one page of both
  vanward load -c 1,10,100,1k,10k -d 10s --pid 4711 http://127.0.0.1:8080/   how figures and the server's cost grow
  vanward load --remote-write http://127.0.0.1:9090/api/v1/write -d 1h -R 500 http://127.0.0.1:8080/
  vanward load --by status,name --urls list.txt -d 30s      also by status class, and by name of the URL
  vanward load --urls list.txt --shuffle 7 -d 30s           a list of URLs in a random order that repeats
  vanward load --requests-from shop.toml --by name http://127.0.0.1:8080/  a mix by weights, with responses checked
  vanward load --requests-from api.http -R 200 -d 1m   requests of an editor's .http file
  vanward load --requests-from visit.har --hosts shop.test --resolve shop.test:443:10.0.0.7   a recording, elsewhere
  vanward load --ca ca.pem -c 64 https://localhost:8443/    over TLS, with your own CA
  vanward load --insecure --no-keepalive https://[::1]/     handshakes per second; --no-resume for full ones
  vanward load --h2 -c 16 -m 32 https://127.0.0.1:8443/     32 concurrent requests on each of 16 connections
  vanward load --h3 -c 16 -m 32 -k https://127.0.0.1:8443/  the same over HTTP/3
  vanward load -R 500 --expect 'p99 < 50ms' --expect 'errors < 0.1%' http://127.0.0.1:8080/   a gate for CI
  vanward load --resolve shop.test:443:127.0.0.1 -k https://shop.test/     the name of production, another server
  vanward load --cert me.pem --key me.key --sni api.test https://10.0.0.7/  a client certificate, another name
  vanward load --unix-socket /run/app.sock http://localhost/
  vanward load -L -b '' -u user:password http://127.0.0.1:8080/login       redirects, cookies, credentials
  vanward load --agent 'ssh a vanward load agent' --agent 'ssh b vanward load agent' -c 200 -R 40k https://shop.test/
  vanward load events -c 100 http://127.0.0.1:8080/events   server-sent events: messages, delays, gaps
  vanward load websocket -c 100 -R 5000 http://127.0.0.1:8080/ws   WebSockets that echo; --fan-out for many receivers
  vanward load grpc -c 4 -m 25 --method /pkg.Service/Method http://127.0.0.1:8080   gRPC calls
  make-body | vanward load --body @- http://127.0.0.1:8080/orders
  vanward load --body @order.json -H 'Content-Type: application/json' http://127.0.0.1:8080/orders

Times with -R count from when a request is due: due to done (the main figure: a stall of the server counts for all
requests that were due in it), sent to done, due to sent, and 'own lateness': how late the generator sent although a
connection was free.

With https, TLS handshakes have their own times and counts, full and resumed. Kept connections do their handshake
before the measured period. A failed handshake or an untrusted certificate is an error of class TLS; a request that an
HTTP/2 server resets or refuses is an error of class reset.

With -d a run ends within a second of its time. Requests that have no answer by then, that timed out, or that -R could
not send count with their age. Percentiles among them are printed with ≥ (at least), and meet no upper limit of
--expect. With -n alone it ends when the server is gone: no response for 5 seconds, and every connection failed at
least twice.

A run with -R is invalid (exit code 98) if own lateness at p99 is above 1 ms and above a tenth of the main figure's
p99; if the last request was sent later than a hundredth of the run (at least 10 ms); or if more than one request
in a hundred was never sent. Any run is invalid if requests hang at its end, the oldest for more than 500 ms and four times
the slowest answer. The exit code is 1 without a success, if the run was interrupted or
the server gone before the end, if more requests failed than --max-errors allows, or if WebSockets or gRPC calls lost messages. The reason is on standard error.

--follow follows redirects only to hosts in the URLs of the run, on any port. A redirect to another host is an error of
class redirect, so no other server gets load. Methods change as in a browser (RFC 9110): after 303, and after 301 or 302
for a POST, the next request is a GET. Credentials and a given Host or Cookie field are not sent to another origin. Each
connection is a user with separate cookies; over HTTP/2, each stream.

--requests-from takes a list in TOML: [[request]] with path or url, and name, method, headers = { .. }, body or body_file,
weight, and check = { status = [200, \"4xx\"], header = { Content-Type = \"text/*\" }, contains = \"total\", size = \"1KB..\",
digest = \"crc32:0d4a1185\" }.
In path, headers and body {{counter}}, {{random 1 100}}, {{uuid}}, {{timestamp}} and {{timestamp_ms}} differ each time.
A response that misses a check is an error of class check. It also takes .http files of VS Code's REST Client and of IntelliJ,
with '# @weight 3' and '# @check status 200' in comments, and HAR recordings, of which only the hosts of --hosts or of the URL
get requests. Mistakes in the file are reported before anything is sent.

--expect takes a figure, one of < <= = >= >, and a value. Figures: any percentile of the main figure (p50, p99, p99.9),
mean and max; errors, 2xx, 3xx, 4xx and 5xx as a number or with % as a share of all requests; rate, successful requests
per second. Each is printed with what was measured. If one is missed the exit code is 99, which precedes all other
codes. A figure that was not measured counts as missed.";

pub(crate) fn run(arguments: &LoadArgs) -> ExitCode {
    match &arguments.command {
        Some(LoadCommand::Report(arguments)) => return page::run(arguments),
        Some(LoadCommand::Events(arguments)) => return streams::run(arguments.plan(), arguments.common()),
        Some(LoadCommand::Websocket(arguments)) => return streams::run(arguments.plan(), arguments.common()),
        Some(LoadCommand::Grpc(arguments)) => return streams::run(arguments.plan(), arguments.common()),
        Some(LoadCommand::Agent) => return agents::agent(),
        None => {}
    }
    if !arguments.agents.is_empty() {
        return agents::run(arguments);
    }
    let plan = match planned::plan(arguments) {
        Ok(plan) => plan,
        Err(message) => return super::fail(super::USAGE, message),
    };
    if let [_, _, ..] = arguments.connections[..] {
        return sweep::run(arguments, &plan);
    }
    let outcome = match measured(arguments, &plan, arguments.out.as_deref()) {
        Ok(outcome) => outcome,
        Err(code) => return code,
    };
    told(arguments, &outcome)
}

impl LoadArgs {
    fn limits(&self) -> FailureLimits<'_> {
        FailureLimits { max_errors: self.max_errors, expectations: &self.expectations }
    }
}

/// Prints a result. Returns its exit code.
fn told(arguments: &LoadArgs, outcome: &RunOutcome) -> ExitCode {
    let printed = present(arguments.hgrm.as_deref(), arguments.json, outcome);
    settled(arguments.out.as_deref(), outcome, printed, &arguments.limits().judge(outcome))
}

/// Returns the exit code of a run, independent of readers of the printed output. The JUnit file says the same.
fn settled(
    folder: Option<&Path>,
    outcome: &RunOutcome,
    printed: Result<(), Unwritten>,
    judged: &Judged,
) -> ExitCode {
    let printed = match printed {
        // A closed pipe is no failure, as with any filter.
        Err(Unwritten::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed.map_err(|error| error.to_string()),
    };
    let judged = verdict::after(printed, judged);
    let filed = folder.map_or(Ok(()), |folder| out::judge(folder, outcome, &judged));
    verdict::ended(verdict::after(filed, &judged))
}

/// Runs a plan, shows its progress, and writes its files to the directory. Prints the reason if that fails.
fn measured(arguments: &LoadArgs, plan: &LoadPlan, folder: Option<&Path>) -> Result<RunOutcome, ExitCode> {
    let failed = |message| super::fail(super::FAILED, message);
    let folder = folder.map(out::OutFolder::create).transpose().map_err(failed)?;
    let seconds = folder.as_ref().map(out::OutFolder::seconds);
    let remote = arguments.remote_write.as_deref();
    let remote = remote.map(|url| RemoteWrite::start(url, &arguments.remote_labels, plan)).transpose();
    let remote = remote.map_err(|message| super::fail(super::USAGE, message))?;
    let mut watch = RunWatch::new(arguments.quiet, plan, seconds, remote).map_err(failed)?;
    let outcome = load::start(plan).and_then(|running| watch.wait(running)).map_err(refused)?;
    let outcome = RunOutcome { expectations: expect::judge(&arguments.expectations, &outcome), ..outcome };
    watch.failure().map_err(failed)?;
    folder.map_or(Ok(()), |folder| folder.write(&outcome)).map_err(failed)?;
    Ok(outcome)
}

fn refused(error: load::Error) -> ExitCode {
    match error {
        load::Error::Plan { .. }
        | load::Error::Url { .. }
        | load::Error::Request { .. }
        | load::Error::Listed { .. }
        | load::Error::Direction { .. }
        | load::Error::Tls { .. } => super::fail(super::USAGE, error),
        error => super::fail(super::FAILED, error),
    }
}

enum Unwritten {
    Output(std::io::Error),
    Json(serde_json::Error),
    Percentiles(PathBuf, std::io::Error),
    Histogram(load::Error),
}

impl std::fmt::Display for Unwritten {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Output(error) => write!(formatter, "cannot write to standard output: {error}"),
            Self::Json(error) => write!(formatter, "cannot write the outcome as JSON: {error}"),
            Self::Percentiles(file, error) => {
                write!(formatter, "--hgrm: cannot write {}: {error}", file.display())
            }
            Self::Histogram(error) => write!(formatter, "--hgrm: {error}"),
        }
    }
}

fn present(hgrm: Option<&Path>, is_json: bool, outcome: &RunOutcome) -> Result<(), Unwritten> {
    if let Some(file) = hgrm {
        let text = load::percentiles(&outcome.latency).map_err(Unwritten::Histogram)?;
        std::fs::write(file, text).map_err(|error| Unwritten::Percentiles(file.to_owned(), error))?;
    }
    let text = if is_json {
        serde_json::to_string(outcome).map_err(Unwritten::Json)? + "\n"
    } else {
        load::report(outcome)
    };
    std::io::stdout().write_all(text.as_bytes()).map_err(Unwritten::Output)
}
