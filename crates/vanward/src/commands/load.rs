//! `vanward load`: turns flags into a plan, shows progress, and prints the outcome as text or JSON.

/// Values of flags.
mod values;
/// Expectations of a run.
mod expect;
/// Progress of a run.
mod watch;
/// The files of a run.
mod out;
/// The page of a run, and of several.
mod page;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ArgGroup;
use load::{Arrival, Directions, Outcome, Plan, ThinkTime, Tls, TlsVersion};
use report::condition::Condition;

use values::{By, Stages, rate, seconds, whole_number};
use watch::Watch;

/// Exit code: the run is invalid.
const INVALID: u8 = 98;
/// Exit code: an expectation was missed.
const MISSED: u8 = 99;
/// A body or a URL list is read whole into memory.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Duration of a run without -d and -n.
const DURATION_DEFAULT_SECONDS: f64 = 10.0;

/// Generates load over HTTP/1.1 or HTTP/2, with or without TLS, and measures latency.
///
/// Without -R it is a closed loop: each connection sends its next request when the response is complete. With -R,
/// requests follow a schedule, however slow the server is, and latency counts from the scheduled time.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(group(ArgGroup::new("paced").args(["rate", "stages"])))]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// `http://HOST[:PORT]/PATH`, or https. Optional with --urls; with it, lines of the file that start with / are
    /// paths of this host.
    #[arg(required_unless_present = "urls")]
    url: Option<String>,
    /// Number of connections, over all threads
    #[arg(short = 'c', long, value_name = "N", value_parser = whole_number, default_value = "10")]
    connections: u64,
    /// Number of threads, which share the connections
    #[arg(short = 't', long, value_name = "N", value_parser = whole_number, default_value = "1")]
    threads: u64,
    /// Duration: 30s, 2m, 500ms [default: 10s, without -n]
    #[arg(short = 'd', long, value_name = "DURATION", value_parser = seconds)]
    duration: Option<f64>,
    /// Number of requests, including failed ones
    #[arg(short = 'n', long, value_name = "N", value_parser = whole_number)]
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
    /// Seed of --poisson
    #[arg(long, value_name = "SEED", requires = "poisson", default_value_t = 1)]
    seed: u64,
    /// Without a rate: pause of each connection between response and next request, 100ms or at random 100ms..1s
    #[arg(long, value_name = "DURATION", value_parser = values::think_time, conflicts_with = "paced")]
    think_time: Option<ThinkTime>,
    /// Request the URLs of this file in turn, one per line; # starts a comment
    #[arg(long, value_name = "FILE")]
    urls: Option<PathBuf>,
    /// Shuffle the URLs once, with this seed
    #[arg(long, value_name = "SEED", requires = "urls")]
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
    /// Credentials for HTTP Basic authentication: NAME:PASSWORD, or @FILE with that. They are in no output
    #[arg(short = 'u', long, value_name = "USER")]
    user: Option<String>,
    /// Cookies that each connection has at first, 'a=b; c=d' or '' for none; it keeps those that servers set
    #[arg(short = 'b', long = "cookie", value_name = "COOKIES")]
    cookies: Option<String>,
    /// Follow redirects to hosts of the URLs; a request then counts once, with its last response
    #[arg(short = 'L', long, visible_alias = "location")]
    follow: bool,
    /// Most redirects that a request follows
    #[arg(long, value_name = "N", requires = "follow", default_value_t = 10)]
    max_redirs: u32,
    /// Connect to these addresses instead, HOST:PORT:ADDRESS[,ADDRESS], as curl does. Can be repeated
    #[arg(long, value_name = "ENTRY")]
    resolve: Vec<String>,
    /// Connect to another host and port instead, HOST:PORT:OTHER:PORT, as curl does. Can be repeated
    #[arg(long, value_name = "ENTRY")]
    connect_to: Vec<String>,
    /// Connect to this Unix socket instead
    #[arg(long, value_name = "PATH", conflicts_with_all = ["resolve", "connect_to"])]
    unix_socket: Option<PathBuf>,
    /// Open a new connection for each request; its time counts as part of the request
    #[arg(long)]
    no_keepalive: bool,
    /// Use HTTP/2: with https by ALPN, with http by prior knowledge
    #[arg(long)]
    h2: bool,
    /// Concurrent requests on each HTTP/2 connection
    #[arg(short = 'm', long, value_name = "N", value_parser = whole_number, requires = "h2", default_value = "1")]
    streams: u64,
    /// Accept any certificate, without verification
    #[arg(short = 'k', long)]
    insecure: bool,
    /// Trust the CAs in this PEM file instead of the system's
    #[arg(long, value_name = "FILE", visible_alias = "cacert", conflicts_with = "insecure")]
    ca: Option<PathBuf>,
    /// Server name to ask for (SNI) and to verify, instead of the URL's host
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,
    /// Client certificate, with its chain: a PEM file
    #[arg(short = 'E', long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// Private key of --cert: a PEM file [default: the file of --cert]
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Do not resume TLS sessions: every handshake is full
    #[arg(long)]
    no_resume: bool,
    /// Highest TLS version [default: 1.3]
    #[arg(long, value_name = "VERSION")]
    tls_max: Option<TlsMax>,
    /// Only cipher suite, by its IANA name: TLS_AES_128_GCM_SHA256
    #[arg(long, value_name = "NAME")]
    cipher: Option<String>,
    /// Timeout of a request, until its response is complete
    #[arg(long, value_name = "DURATION", value_parser = seconds, default_value = "10s")]
    timeout: f64,
    /// Exit with 1 if more requests fail than this number or percentage: 10, 0.1% [default: 0, or no limit if --expect is
    /// about errors]
    #[arg(long, value_name = "N", value_parser = max_errors)]
    max_errors: Option<MaxErrors>,
    /// Exit with 99 unless this holds: 'p99 < 50ms', 'errors < 0.1%', 'rate > 1000/s'. Can be repeated
    #[arg(long = "expect", value_name = "CONDITION", value_parser = expect::condition)]
    expectations: Vec<Condition>,
    /// Warm-up: send load for this time without counting it
    #[arg(long, value_name = "DURATION", value_parser = seconds, default_value = "0s")]
    warm_up: f64,
    /// Also print figures by part, separated by commas
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    by: Vec<By>,
    /// Print the result as JSON, with complete histograms
    #[arg(long)]
    json: bool,
    /// Write the result to this directory: a page, JSON, CSV, percentiles (.hgrm), and a line of JSON for each second
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Do not show progress
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Write the percentiles of the latency to this file, for HdrHistogram's plotters
    #[arg(long, value_name = "FILE")]
    hgrm: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum Command {
    Report(page::Args),
}

/// Maximum of failed requests: a number, or a share of all requests.
#[derive(Debug, Clone, Copy, PartialEq)]
enum MaxErrors {
    Count(u64),
    /// A share of all requests.
    Share(f64),
}

impl MaxErrors {
    fn are_exceeded_by(self, outcome: &Outcome) -> bool {
        let failed = outcome.errors.total();
        match self {
            Self::Count(most) => failed > most,
            Self::Share(most) => failed as f64 > most * (failed + outcome.requests) as f64,
        }
    }
}

impl std::fmt::Display for MaxErrors {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Count(most) => write!(formatter, "{most}"),
            Self::Share(most) => write!(formatter, "{}%", most * 100.0),
        }
    }
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum TlsMax {
    #[value(name = "1.2")]
    Tls12,
    #[value(name = "1.3")]
    Tls13,
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
  vanward load --by status,name --urls list.txt -d 30s      also by status class, and by name of the URL
  vanward load --urls list.txt --shuffle 7 -d 30s           a list of URLs in a random order that repeats
  vanward load --ca ca.pem -c 64 https://localhost:8443/    over TLS, with your own CA
  vanward load --insecure --no-keepalive https://[::1]/     handshakes per second; --no-resume for full ones
  vanward load --h2 -c 16 -m 32 https://127.0.0.1:8443/     32 concurrent requests on each of 16 connections
  vanward load -R 500 --expect 'p99 < 50ms' --expect 'errors < 0.1%' http://127.0.0.1:8080/   a gate for CI
  vanward load --resolve shop.test:443:127.0.0.1 -k https://shop.test/     the name of production, another server
  vanward load --cert me.pem --key me.key --sni api.test https://10.0.0.7/  a client certificate, another name
  vanward load --unix-socket /run/app.sock http://localhost/
  vanward load -L -b '' -u user:password http://127.0.0.1:8080/login       redirects, cookies, credentials
  make-body | vanward load --body @- http://127.0.0.1:8080/orders
  vanward load --body @order.json -H 'Content-Type: application/json' http://127.0.0.1:8080/orders

Times with -R count from when a request is due: due to done (the main figure: a stall of the server counts for all
requests that were due in it), sent to done, due to sent, and 'own lateness': how late the generator sent although a
connection was free.

With https, TLS handshakes have their own times and counts, full and resumed. Kept connections do their handshake
before the measured period. A failed handshake or an untrusted certificate is an error of class TLS; a request that an
HTTP/2 server resets or refuses is an error of class reset.

With -d a run ends within a second of its time. It reports the number and age of unfinished requests; they are not in
the times, nor are requests that timed out. With -n alone it ends when the server is gone: no response for 5 seconds, and
every connection failed at least twice.

A run with -R is invalid (exit code 98) if own lateness at p99 is above 1 ms and above a tenth of the main figure's
p99; if the last request was sent later than a hundredth of the run (at least 10 ms); or if more than one request
in a hundred was never sent. The exit code is 1 without a success, if the server was gone before the end, or if more
requests failed than --max-errors allows.

--follow leads only to hosts that a URL of the run names, on any port; another host is an error of class redirect, so that
load is sent to nobody else. Methods change as in a browser (RFC 9110): 303 asks with GET, and so do 301 and 302 after
POST. Credentials and a given Host or Cookie field are not sent to another origin. Each connection is a user with cookies
of its own; over HTTP/2, each stream.

--expect takes a figure, one of < <= = >= >, and a value. Figures: any percentile of the main figure (p50, p99, p99.9),
mean and max; errors, 2xx, 3xx, 4xx and 5xx as a number or with % as a share of all requests; rate, successful requests
per second. Each is printed with what was measured. If one is missed the exit code is 99, before all other codes; what
was not measured is missed.";

pub(crate) fn run(arguments: &Args) -> ExitCode {
    if let Some(Command::Report(arguments)) = &arguments.command {
        return page::run(arguments);
    }
    let plan = match plan(arguments) {
        Ok(plan) => plan,
        Err(message) => return super::fail(2, message),
    };
    let folder = arguments.out.as_deref().map(out::Folder::create).transpose();
    let watch = folder.and_then(|folder| {
        let seconds = folder.as_ref().map(out::Folder::seconds);
        Ok((folder, Watch::new(arguments.quiet, plan.window_seconds(), seconds)?))
    });
    let (folder, mut watch) = match watch {
        Ok(watch) => watch,
        Err(message) => return super::fail(super::FAILED, message),
    };
    let outcome = match load::start(&plan).and_then(|running| watch.wait(running)) {
        Ok(outcome) => Outcome { expectations: expect::judge(&arguments.expectations, &outcome), ..outcome },
        Err(
            error @ (load::Error::Plan { .. }
            | load::Error::Url { .. }
            | load::Error::Request { .. }
            | load::Error::Direction { .. }
            | load::Error::Tls { .. }),
        ) => return super::fail(2, error),
        Err(error) => return super::fail(super::FAILED, error),
    };
    let written = watch.failure().and_then(|()| folder.map_or(Ok(()), |folder| folder.write(&outcome)));
    let presented = present(arguments, &outcome);
    if let Err(message) = written {
        return super::fail(super::FAILED, message);
    }
    match presented {
        Ok(()) if let Some(message) = expect::missed(&outcome) => super::fail(MISSED, message),
        Ok(()) if let Some(reason) = &outcome.server_gone => {
            super::fail(super::FAILED, format_args!("the server is gone: {reason}"))
        }
        Ok(()) if outcome.requests == 0 => super::fail(super::FAILED, "no request succeeded"),
        Ok(()) if let Some(most) = max_errors_of(arguments).filter(|most| most.are_exceeded_by(&outcome)) => {
            let failed = outcome.errors.total();
            super::fail(super::FAILED, format_args!("{failed} requests failed, and --max-errors is {most}"))
        }
        Ok(()) if !outcome.is_valid() => ExitCode::from(INVALID),
        Ok(()) => ExitCode::SUCCESS,
        // Nobody reads any longer: as with any filter, that is no failure of this command.
        Err(Unwritten::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => super::fail(super::FAILED, error),
    }
}

/// Limit on failed requests: none by default if an expectation is about them.
fn max_errors_of(arguments: &Args) -> Option<MaxErrors> {
    let is_expected = arguments.expectations.iter().any(expect::is_about_errors);
    arguments.max_errors.or((!is_expected).then_some(MaxErrors::Count(0)))
}

fn plan(arguments: &Args) -> Result<Plan, String> {
    let urls = match &arguments.urls {
        Some(file) => url_list(file, arguments.url.as_deref())?,
        None => arguments.url.iter().cloned().collect(),
    };
    let body = match arguments.body.as_deref().map(|text| (text, text.strip_prefix('@'))) {
        None => Vec::new(),
        Some((_, Some("-"))) => standard_input()?,
        Some((_, Some(file))) => read(Path::new(file), "--body")?,
        Some((text, None)) => text.as_bytes().to_vec(),
    };
    let method_default = if arguments.body.is_some() { "POST" } else { "GET" };
    let arrival = match (arguments.rate, &arguments.stages) {
        (None, None) => Arrival::Closed,
        (None, Some(Stages(stages))) => {
            Arrival::Stages { stages: stages.clone(), seed: arguments.poisson.then_some(arguments.seed) }
        }
        (Some(requests_per_second), _) if arguments.poisson => {
            Arrival::Poisson { requests_per_second, seed: arguments.seed }
        }
        (Some(requests_per_second), _) => Arrival::Constant { requests_per_second },
    };
    let needs_duration = arguments.requests.is_none() && arguments.stages.is_none();
    let duration_default = needs_duration.then_some(DURATION_DEFAULT_SECONDS);
    Ok(Plan {
        urls,
        shuffle_seed: arguments.shuffle,
        method: arguments.method.clone().unwrap_or_else(|| method_default.to_owned()),
        headers: arguments.headers.clone(),
        body,
        user: arguments.user.as_deref().map(credentials).transpose()?,
        cookies: arguments.cookies.clone(),
        redirects_max: arguments.follow.then_some(arguments.max_redirs),
        directions: Directions {
            resolve: arguments.resolve.clone(),
            connect_to: arguments.connect_to.clone(),
            unix_socket: arguments.unix_socket.clone(),
        },
        keepalive: !arguments.no_keepalive,
        tls: Tls {
            verify: !arguments.insecure,
            ca: arguments.ca.clone(),
            resume: !arguments.no_resume,
            version_max: arguments.tls_max.map(|version| match version {
                TlsMax::Tls12 => TlsVersion::Tls12,
                TlsMax::Tls13 => TlsVersion::Tls13,
            }),
            cipher: arguments.cipher.clone(),
            server_name: arguments.sni.clone(),
            certificate: arguments.cert.clone(),
            key: arguments.key.clone(),
        },
        http2: arguments.h2,
        streams: usize::try_from(arguments.streams).unwrap_or(usize::MAX),
        connections: usize::try_from(arguments.connections).unwrap_or(usize::MAX),
        threads: usize::try_from(arguments.threads).unwrap_or(usize::MAX),
        arrival,
        think_time: arguments.think_time,
        seconds: !arguments.quiet || arguments.out.is_some(),
        breakdowns: arguments.by.iter().map(|by| by.breakdown()).collect(),
        duration_seconds: arguments.duration.or(duration_default),
        requests: arguments.requests,
        warm_up_seconds: arguments.warm_up,
        timeout_seconds: arguments.timeout,
    })
}

/// Credentials of `--user`: as written, or from a file.
fn credentials(user: &str) -> Result<String, String> {
    let Some(file) = user.strip_prefix('@') else { return Ok(user.to_owned()) };
    let text = String::from_utf8(read(Path::new(file), "--user")?);
    let text = text.map_err(|_| format!("--user {file}: the file is not UTF-8 text"))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// The body from standard input.
fn standard_input() -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    let read = std::io::stdin().lock().take(FILE_BYTES_MAX + 1).read_to_end(&mut body);
    read.map_err(|error| format!("--body @-: cannot read standard input: {error}"))?;
    if body.len() as u64 > FILE_BYTES_MAX {
        return Err("--body @-: standard input is larger than 256 MiB".to_owned());
    }
    Ok(body)
}

fn url_list(file: &Path, base: Option<&str>) -> Result<Vec<String>, String> {
    let text = String::from_utf8(read(file, "--urls")?)
        .map_err(|_| format!("--urls {}: the file is not UTF-8 text", file.display()))?;
    let (mut urls, base) = (Vec::new(), base.map(authority));
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match (line.strip_prefix('/'), base) {
            (None, _) => urls.push(line.to_owned()),
            (Some(path), Some(base)) => urls.push(format!("{base}/{path}")),
            (Some(_), None) => {
                let file = file.display();
                return Err(format!(
                    "--urls {file}, line {number}: a path needs a host; give one as URL: vanward load --urls {file} \
                     http://HOST[:PORT]/"
                ));
            }
        }
    }
    if urls.is_empty() {
        return Err(format!("--urls {}: the file has no URL; write one a line", file.display()));
    }
    Ok(urls)
}

/// Scheme and authority of a URL.
fn authority(url: &str) -> &str {
    let host_at = url.find("://").map_or(0, |at| at + 3);
    url[host_at..].find(['/', '?', '#']).map_or(url, |length| &url[..host_at + length])
}

fn read(file: &Path, flag: &str) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("{flag}: cannot read {}: {error}", file.display());
    let size_bytes = std::fs::metadata(file).map_err(failed)?.len();
    if size_bytes > FILE_BYTES_MAX {
        return Err(format!("{flag}: {} is larger than 256 MiB", file.display()));
    }
    std::fs::read(file).map_err(failed)
}

fn max_errors(text: &str) -> Result<MaxErrors, String> {
    let Some(percent) = text.strip_suffix('%') else { return whole_number(text).map(MaxErrors::Count) };
    let percent = percent.parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent));
    let expected = || "expected a number such as 10, or a percentage from 0% to 100%".to_owned();
    percent.map(|percent| MaxErrors::Share(percent / 100.0)).ok_or_else(expected)
}

/// Why results could not be written.
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

fn present(arguments: &Args, outcome: &Outcome) -> Result<(), Unwritten> {
    if let Some(file) = &arguments.hgrm {
        let text = load::percentiles(&outcome.latency).map_err(Unwritten::Histogram)?;
        std::fs::write(file, text).map_err(|error| Unwritten::Percentiles(file.clone(), error))?;
    }
    let text = if arguments.json {
        serde_json::to_string(outcome).map_err(Unwritten::Json)? + "\n"
    } else {
        load::report(outcome)
    };
    std::io::stdout().write_all(text.as_bytes()).map_err(Unwritten::Output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_on_errors_is_a_number_or_a_share() {
        assert_eq!(max_errors("10k"), Ok(MaxErrors::Count(10_000)));
        assert_eq!(max_errors("0.5%"), Ok(MaxErrors::Share(0.005)));
        for text in ["", "%", "-1", "1.5", "101%", "NaN%", "-0.1%"] {
            assert!(max_errors(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_authority_of_a_url_is_what_paths_are_put_behind() {
        let cases = [
            ("http://a:1/b?c", "http://a:1"),
            ("http://a", "http://a"),
            ("http://a?b", "http://a"),
            ("a/b", "a"),
            ("http://[::1]:8/", "http://[::1]:8"),
        ];
        for (url, expected) in cases {
            assert_eq!(authority(url), expected);
        }
    }
}
