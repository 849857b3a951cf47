//! `vanward status`: shows the state of the running proxy, as a table or as JSON.

/// The part of the status about the cache.
mod cache;

use std::fmt::Write;
use std::io::{IsTerminal, Write as _};
use std::process::ExitCode;

use api::status::{ServerState, ServerStatus, Status, UpstreamStatus};

use super::reach::Reach;
use super::{faults, maintenance, shape};

/// Shows the state of the running proxy: listeners, upstreams, and each server with its state and the reason.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Print everything as JSON, including counters and routes
    #[arg(long, conflicts_with = "configuration")]
    json: bool,

    /// Print the active configuration with every option, as a file
    #[arg(long)]
    configuration: bool,

    #[command(flatten)]
    reach: Reach,
}

const EXAMPLES: &str = "\
Examples:
  vanward status                               the proxy whose `admin` socket vanward.toml names
  vanward status --socket /run/vanward.sock
  vanward status --json | jq '.upstreams[].servers[] | select(.state != \"up\")'
  vanward status --configuration               the active one, including servers of `vanward add`";

pub(crate) fn run(arguments: &Args) -> ExitCode {
    shown(arguments).map_or_else(
        |code| code,
        |text| {
            // Who reads no further has seen enough.
            let _ = std::io::stdout().lock().write_all(text.as_bytes());
            ExitCode::SUCCESS
        },
    )
}

fn shown(arguments: &Args) -> Result<String, ExitCode> {
    if arguments.configuration {
        return Ok(String::from_utf8_lossy(&arguments.reach.get("/configuration")?.body).into_owned());
    }
    let answer = arguments.reach.get("/status")?;
    let status: Status = answer.told()?;
    if arguments.json {
        return Ok(String::from_utf8_lossy(&answer.body).into_owned());
    }
    let has_colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    Ok(page(&status, has_colour))
}

fn page(status: &Status, has_colour: bool) -> String {
    let mut page = String::new();
    // Writing into a String does not fail.
    let _ = writeln!(
        page,
        "vanward {}, process {}, up {}, {}, {}",
        status.version,
        status.process,
        time(status.uptime_seconds),
        count(status.workers as u64, "worker"),
        count(status.reloads, "reload"),
    );
    let (connections, requests) =
        (count(status.connections, "connection"), count(status.requests, "request"));
    let _ = writeln!(page, "{connections}, {requests} running");
    let listeners: Vec<String> = status
        .listeners
        .iter()
        .map(|listener| format!("{}{}", listener.address, if listener.has_tls { " (TLS)" } else { "" }))
        .collect();
    let _ = writeln!(page, "listening on {}", listeners.join(", "));
    for upstream in &status.upstreams {
        let sessions = upstream.sessions.map(|sessions| format!(", {}", count(sessions as u64, "session")));
        let sessions = sessions.unwrap_or_default();
        let _ = writeln!(page, "\nupstream {} ({}){sessions}", upstream.name, upstream.balance);
        table(&mut page, upstream, has_colour);
    }
    if let Some(stored) = &status.cache {
        cache::told(&mut page, stored, &status.routes);
    }
    if !status.maintenance.is_empty() {
        let _ = writeln!(page, "\nmaintenance; `vanward maintenance off --all` ends it");
        page += &maintenance::table(&status.maintenance);
    }
    if !status.faults.is_empty() {
        let _ = writeln!(page, "\nfaults, injected on purpose; `vanward faults clear` removes them");
        page += &faults::table(&status.faults);
    }
    if !status.shaping.is_empty() {
        let _ = writeln!(page, "\nrates and delays; `vanward shape clear` takes back what is changed");
        page += &shape::table(&status.shaping);
    }
    page
}

fn table(page: &mut String, upstream: &UpstreamStatus, has_colour: bool) {
    let mut rows = vec![["SERVER", "STATE", "WEIGHT", "REQUESTS", "RESPONSE", ""].map(str::to_owned)];
    rows.extend(upstream.servers.iter().map(row));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    for (index, [server, state, weight, requests, response, note]) in rows.iter().enumerate() {
        let colour = index.checked_sub(1).filter(|_| has_colour).map(|server| upstream.servers[server].state);
        let (on, off) = colour.map_or(("", ""), |state| (colour_of(state), "\x1b[0m"));
        let [server_width, state_width, weight_width, requests_width, response_width, _] = widths;
        let line = format!(
            "  {server:server_width$}  {on}{state:state_width$}{off}  {weight:>weight_width$}  \
             {requests:>requests_width$}  {response:>response_width$}  {note}"
        );
        let _ = writeln!(page, "{}", line.trim_end());
    }
}

fn row(server: &ServerStatus) -> [String; 6] {
    let changed: Vec<&str> =
        server.changes.iter().map(String::as_str).filter(|change| *change != "drained").collect();
    let changed = match changed.as_slice() {
        [] => None,
        ["weight"] => Some("weight is not the file's".to_owned()),
        _ => Some("not in the file".to_owned()),
    };
    let notes: Vec<String> = server.reason.clone().into_iter().chain(changed).collect();
    [
        server.label.clone(),
        word(server.state).to_owned(),
        server.weight.to_string(),
        server.requests.to_string(),
        server.response_time_ms.map_or_else(|| "-".to_owned(), |time| format!("{time:.1} ms")),
        notes.join("; "),
    ]
}

fn word(state: ServerState) -> &'static str {
    match state {
        ServerState::Up => "up",
        ServerState::Draining => "draining",
        ServerState::Ejected => "ejected",
        ServerState::Down => "down",
        ServerState::Open => "open circuit",
    }
}

fn colour_of(state: ServerState) -> &'static str {
    match state {
        ServerState::Up => "\x1b[32m",
        ServerState::Draining => "\x1b[33m",
        ServerState::Ejected | ServerState::Down | ServerState::Open => "\x1b[31m",
    }
}

fn count(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Text of a duration: `3 d 4 h`, `4 h 5 min`, `5 min 6 s`, `6 s`.
fn time(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use api::status::ListenerStatus;

    use super::*;

    fn server(label: &str, state: ServerState, reason: Option<&str>) -> ServerStatus {
        ServerStatus {
            url: format!("http://{label}"),
            label: label.to_owned(),
            state,
            reason: reason.map(str::to_owned),
            weight: 1,
            priority: 0,
            requests: 12,
            response_time_ms: None,
            changes: Vec::new(),
        }
    }

    fn upstream() -> UpstreamStatus {
        let weighed = ServerStatus {
            weight: 100,
            response_time_ms: Some(1.25),
            changes: vec!["drained".to_owned(), "weight".to_owned()],
            ..server("a", ServerState::Draining, Some("no running requests"))
        };
        let servers = vec![server("10.0.0.1:9000", ServerState::Up, None), weighed];
        UpstreamStatus { name: "app".to_owned(), balance: "round-robin".to_owned(), sessions: None, servers }
    }

    #[test]
    fn columns_are_aligned_and_states_are_words() {
        let mut page = String::new();
        table(&mut page, &upstream(), false);
        let expected = "  \
  SERVER         STATE     WEIGHT  REQUESTS  RESPONSE
  10.0.0.1:9000  up             1        12         -
  a              draining     100        12    1.2 ms  no running requests; weight is not the file's
";
        assert_eq!(page, expected);
    }

    #[test]
    fn a_page_says_who_runs_where_and_what_each_upstream_has() {
        let listener = |address: &str, has_tls| ListenerStatus {
            name: "front".to_owned(),
            address: address.to_owned(),
            has_tls,
        };
        let table = UpstreamStatus {
            name: "kept".to_owned(),
            balance: "least-connections".to_owned(),
            sessions: Some(1),
            servers: vec![server("b:80", ServerState::Down, Some("its checks fail: refused"))],
        };
        let status = Status {
            version: "1.2.3".to_owned(),
            process: 77,
            uptime_seconds: 3661,
            reloads: 1,
            workers: 2,
            connections: 1,
            requests: 0,
            listeners: vec![listener("127.0.0.1:8080", false), listener("[::]:8443", true)],
            routes: Vec::new(),
            cache: None,
            faults: Vec::new(),
            maintenance: Vec::new(),
            shaping: Vec::new(),
            upstreams: vec![upstream(), table],
            counters: BTreeMap::new(),
            failures: BTreeMap::new(),
        };
        let expected = "\
vanward 1.2.3, process 77, up 1 h 1 min, 2 workers, 1 reload
1 connection, 0 requests running
listening on 127.0.0.1:8080, [::]:8443 (TLS)

upstream app (round-robin)
  SERVER         STATE     WEIGHT  REQUESTS  RESPONSE
  10.0.0.1:9000  up             1        12         -
  a              draining     100        12    1.2 ms  no running requests; weight is not the file's

upstream kept (least-connections), 1 session
  SERVER  STATE  WEIGHT  REQUESTS  RESPONSE
  b:80    down        1        12         -  its checks fail: refused
";
        assert_eq!(page(&status, false), expected);
    }

    #[test]
    fn every_state_has_a_word_and_a_server_that_was_added_is_told_as_such() {
        for (state, word) in [
            (ServerState::Up, "up"),
            (ServerState::Draining, "draining"),
            (ServerState::Ejected, "ejected"),
            (ServerState::Down, "down"),
            (ServerState::Open, "open circuit"),
        ] {
            let added = ServerStatus {
                changes: vec!["added".to_owned(), "weight".to_owned()],
                ..server("a", state, None)
            };
            let [_, told, .., note] = row(&added);
            assert_eq!((told.as_str(), note.as_str()), (word, "not in the file"));
        }
    }

    #[test]
    fn colours_change_nothing_but_the_colour() {
        let (mut plain, mut coloured) = (String::new(), String::new());
        table(&mut plain, &upstream(), false);
        table(&mut coloured, &upstream(), true);
        assert!(coloured.contains("\x1b[32mup      \x1b[0m"), "{coloured}");
        for code in ["\x1b[32m", "\x1b[33m", "\x1b[0m"] {
            coloured = coloured.replace(code, "");
        }
        assert_eq!(plain, coloured);
    }

    #[test]
    fn times_have_two_units() {
        for (seconds, text) in
            [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (3661, "1 h 1 min"), (90_000, "1 d 1 h")]
        {
            assert_eq!(time(seconds), text);
        }
    }
}
