//! `vanward status`: shows the state of the running proxy, as tables or as JSON.

/// The part of the status about the cache.
mod cache;
/// The part of the status about routes.
mod routes;
/// The part of the status about upstreams and their servers.
mod servers;

use std::cmp::Ordering;
use std::fmt::Write;
use std::io::{IsTerminal, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use api::status::StatusReport;
use api::traffic::TrafficStatus;
use clap::ValueEnum;

pub(super) use servers::{last_error, priority};

use super::reach::ProxySelection;
use super::units::{bytes, count, milliseconds, percent, rate, time};
use super::{faults, maintenance, shape};

/// Shows the state of the running proxy: totals and rates of the last minute, routes, and upstreams with their servers.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    /// Print everything as JSON, including counters and failures by cause
    #[arg(long, conflicts_with = "configuration")]
    json: bool,

    /// Print the active configuration as one file: as it was written, with all changes
    #[arg(long)]
    configuration: bool,

    /// Show it again at this interval in seconds, until interrupted; with --json a line each time
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "1",
        value_parser = seconds,
        conflicts_with = "configuration"
    )]
    watch: Option<Duration>,

    /// Sort routes and servers, highest first; names from A to Z [default: the order of the file]
    #[arg(long, value_name = "BY", value_enum, conflicts_with_all = ["json", "configuration"])]
    sort: Option<Sort>,

    /// Show only routes, upstreams and servers whose name contains this text
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["json", "configuration"])]
    filter: Option<String>,

    #[command(flatten)]
    reach: ProxySelection,
}

const EXAMPLES: &str = "\
Rates and percentiles cover the last minute. Percentiles are estimated from a histogram; for a server, they are of the
time to the first byte of its response.

Examples:
  vanward status                               the proxy whose `admin` socket vanward.toml names
  vanward status --socket /run/vanward.sock
  vanward status --watch --sort errors         again every second, highest failure rate first
  vanward status --filter shop                 only names that contain `shop`
  vanward status --json | jq '.upstreams[].servers[] | select(.state != \"up\")'
  vanward status --configuration               the active one, including servers of `vanward add`";

/// Sort key of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// In the order of names
    Name,
    /// Requests since the start
    Requests,
    /// Requests per second
    Rate,
    /// Failed requests and 5xx per second, then 4xx
    Errors,
    /// 99th percentile
    P99,
}

#[derive(Debug, Default)]
struct StatusView {
    sort: Option<Sort>,
    filter: Option<String>,
    has_colour: bool,
}

impl StatusView {
    fn shows(&self, name: &str) -> bool {
        self.filter.as_ref().is_none_or(|text| name.contains(text.as_str()))
    }
}

/// Orders two rows by their traffic, highest first. The rows themselves order names.
fn by_traffic(sort: Sort, one: &TrafficStatus, other: &TrafficStatus) -> Ordering {
    let key = |traffic: &TrafficStatus| {
        let last_minute = &traffic.last_minute;
        match sort {
            Sort::Name => [0.0, 0.0],
            Sort::Requests => [traffic.requests as f64, 0.0],
            Sort::Rate => [last_minute.requests_per_second, 0.0],
            Sort::Errors => [last_minute.server_errors_per_second, last_minute.client_errors_per_second],
            Sort::P99 => [last_minute.p99_ms.unwrap_or(-1.0), 0.0],
        }
    };
    let ([one_first, one_second], [other_first, other_second]) = (key(one), key(other));
    other_first.total_cmp(&one_first).then(other_second.total_cmp(&one_second))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "is a number of seconds, as 1 or 0.5".to_owned())?;
    if !(0.1..=3600.0).contains(&seconds) {
        return Err("is from 0.1 to 3600 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

pub(crate) fn run(arguments: &StatusArgs) -> ExitCode {
    let Some(pause) = arguments.watch else {
        return shown(arguments).map_or_else(
            |code| code,
            |text| {
                // A closed pipe means that the reader has seen enough.
                let _ = std::io::stdout().lock().write_all(text.as_bytes());
                ExitCode::SUCCESS
            },
        );
    };
    watch(arguments, pause)
}

/// Shows the status repeatedly: in place on a terminal, else one after the other. Ends with the reader or the proxy.
fn watch(arguments: &StatusArgs, pause: Duration) -> ExitCode {
    let is_terminal = std::io::stdout().is_terminal();
    loop {
        let text = match shown(arguments) {
            Ok(text) => text,
            Err(code) => return code,
        };
        let text = match (is_terminal, arguments.json) {
            // From the first line of an empty screen.
            (true, false) => format!("\x1b[H\x1b[2J{text}"),
            _ => format!("{text}\n"),
        };
        let mut output = std::io::stdout().lock();
        if output.write_all(text.as_bytes()).and_then(|()| output.flush()).is_err() {
            return ExitCode::SUCCESS;
        }
        drop(output);
        std::thread::sleep(pause);
    }
}

fn shown(arguments: &StatusArgs) -> Result<String, ExitCode> {
    if arguments.configuration {
        return Ok(String::from_utf8_lossy(&arguments.reach.get("/configuration")?.body).into_owned());
    }
    let answer = arguments.reach.get("/status")?;
    if arguments.json && arguments.watch.is_some() {
        // One line for each status.
        return Ok(answer.told::<serde_json::Value>()?.to_string());
    }
    let status: StatusReport = answer.told()?;
    if arguments.json {
        return Ok(String::from_utf8_lossy(&answer.body).into_owned());
    }
    let has_colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let view = StatusView { sort: arguments.sort, filter: arguments.filter.clone(), has_colour };
    Ok(page(&status, &view))
}

fn page(status: &StatusReport, view: &StatusView) -> String {
    let mut page = String::new();
    summary(&mut page, status);
    routes::show(&mut page, &status.routes, view);
    for upstream in &status.upstreams {
        servers::show(&mut page, upstream, view);
    }
    if let Some(stored) = &status.cache {
        cache::told(&mut page, stored, &status.routes);
    }
    if !status.maintenance.is_empty() {
        page += "\nmaintenance; `vanward maintenance off --all` ends it\n";
        page += &maintenance::table(&status.maintenance);
    }
    if !status.faults.is_empty() {
        page += "\nfaults, injected on purpose; `vanward faults clear` removes them\n";
        page += &faults::table(&status.faults);
    }
    if !status.shaping.is_empty() {
        page += "\nrates and delays; `vanward shape clear` reverts changes\n";
        page += &shape::table(&status.shaping);
    }
    page
}

fn summary(page: &mut String, status: &StatusReport) {
    // Writing to a String does not fail.
    let _ = writeln!(
        page,
        "vanward {}, process {}, up {}, {}, {}",
        status.version,
        status.process,
        time(status.uptime_seconds),
        count(status.workers as u64, "worker"),
        count(status.reloads, "reload"),
    );
    let listeners: Vec<String> = status
        .listeners
        .iter()
        .map(|listener| format!("{} ({})", listener.url, listener.protocols.join(", ")))
        .collect();
    let _ = writeln!(page, "listening on {}", listeners.join(", "));
    let (connections, requests) =
        (count(status.connections, "connection"), count(status.requests, "request"));
    let _ = writeln!(page, "{connections}, {requests} running; {} ended", status.traffic.requests);
    let rates = &status.traffic.last_minute;
    let share = |part: f64| percent(part / rates.requests_per_second.max(f64::MIN_POSITIVE));
    let _ = writeln!(
        page,
        "last {:.0} s: {} requests/s, {} with 4xx, {} failed or 5xx; p50 {}, p90 {}, p99 {}; {}/s in, {}/s out",
        rates.seconds,
        rate(rates.requests_per_second),
        share(rates.client_errors_per_second),
        share(rates.server_errors_per_second),
        milliseconds(rates.p50_ms),
        milliseconds(rates.p90_ms),
        milliseconds(rates.p99_ms),
        bytes(status.last_minute.received_bytes_per_second),
        bytes(status.last_minute.sent_bytes_per_second),
    );
    let mut failures: Vec<(&String, &u64)> = status.last_minute.failures.iter().collect();
    failures.sort_by(|one, other| other.1.cmp(one.1));
    if !failures.is_empty() {
        let failures: Vec<String> = failures.iter().map(|(word, count)| format!("{word} {count}")).collect();
        let _ = writeln!(page, "  failures: {}", failures.join(", "));
    }
    for problem in &status.problems {
        let _ = writeln!(page, "problem: {problem}");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use api::status::{ListenerStatus, RouteStatus, UpstreamStatus};
    use api::traffic::{LastMinuteStatus, RatesStatus};

    use super::*;

    #[test]
    fn a_page_shows_process_traffic_and_servers() {
        let listener = |address: &str, has_tls| ListenerStatus {
            name: "front".to_owned(),
            address: address.to_owned(),
            has_tls,
            url: format!("{}://{address}", if has_tls { "https" } else { "http" }),
            protocols: ["HTTP/1.1", "HTTP/3"].map(str::to_owned)[..1 + usize::from(has_tls)].to_vec(),
        };
        let last_minute = RatesStatus {
            seconds: 61.2,
            requests_per_second: 50.0,
            client_errors_per_second: 0.5,
            server_errors_per_second: 0.0,
            p50_ms: Some(1.25),
            p90_ms: Some(3.0),
            p99_ms: Some(20.0),
        };
        let traffic = TrafficStatus { requests: 12_345, last_minute, ..TrafficStatus::default() };
        let table = UpstreamStatus {
            name: "kept".to_owned(),
            balance: "least-connections".to_owned(),
            sessions: Some(1),
            traffic: TrafficStatus::default(),
            failures: BTreeMap::new(),
            retries: 0,
            queued: 0,
            servers: Vec::new(),
        };
        let status = StatusReport {
            version: "1.2.3".to_owned(),
            process: 77,
            uptime_seconds: 3661,
            reloads: 1,
            workers: 2,
            connections: 1,
            requests: 0,
            traffic: traffic.clone(),
            last_minute: LastMinuteStatus {
                received_bytes_per_second: 1200.0,
                sent_bytes_per_second: 3.4e6,
                connections_per_second: 1.0,
                failures: [("bad-request".to_owned(), 3), ("upstream-refused".to_owned(), 12)].into(),
            },
            problems: vec!["the certificate of a.example ends in 3 days".to_owned()],
            listeners: vec![listener("127.0.0.1:8080", false), listener("[::]:8443", true)],
            routes: vec![RouteStatus { route: "/".to_owned(), traffic, cache: None }],
            cache: None,
            faults: Vec::new(),
            maintenance: Vec::new(),
            shaping: Vec::new(),
            upstreams: vec![table],
            counters: BTreeMap::new(),
            failures: BTreeMap::new(),
        };
        let expected = "\
vanward 1.2.3, process 77, up 1 h 1 min, 2 workers, 1 reload
listening on http://127.0.0.1:8080 (HTTP/1.1), https://[::]:8443 (HTTP/1.1, HTTP/3)
1 connection, 0 requests running; 12345 ended
last 61 s: 50.0 requests/s, 1.00% with 4xx, 0% failed or 5xx; p50 1.25 ms, p90 3.00 ms, p99 20.0 ms; 1.20 kB/s in, 3.40 MB/s out
  failures: upstream-refused 12, bad-request 3
problem: the certificate of a.example ends in 3 days

routes
  ROUTE  REQUESTS    /S  4XX/S  5XX/S      P50      P90      P99
  /         12345  50.0   0.50      0  1.25 ms  3.00 ms  20.0 ms

upstream kept (least-connections), 1 session
  SERVER  STATE  WEIGHT  RUNNING  REQUESTS  /S  FAILED/S  P50  P99
";
        assert_eq!(page(&status, &StatusView::default()), expected);
    }

    #[test]
    fn a_pause_is_a_number_of_seconds() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["", "x", "0", "-1", "NaN", "1e9"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
