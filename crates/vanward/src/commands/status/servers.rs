//! The part of `vanward status` about upstreams: each with its servers.

use std::fmt::Write;

use api::status::{ServerState, ServerStatus, UpstreamStatus};

use super::super::table::{Align, coloured};
use super::super::units::{count, milliseconds, rate, time};
use super::{Sort, StatusView, by_traffic};

/// Appends an upstream and its servers as a table, unless the filter excludes all of them.
pub(super) fn show(page: &mut String, upstream: &UpstreamStatus, view: &StatusView) {
    let mut servers: Vec<&ServerStatus> = upstream.servers.iter().collect();
    if !view.shows(&upstream.name) {
        servers.retain(|server| view.shows(&server.label));
        if servers.is_empty() {
            return;
        }
    }
    if let Some(Sort::Name) = view.sort {
        servers.sort_by(|one, other| one.label.cmp(&other.label));
    } else if let Some(sort) = view.sort {
        servers.sort_by(|one, other| by_traffic(sort, &one.traffic, &other.traffic));
    }
    let sessions = upstream.sessions.map(|sessions| format!(", {}", count(sessions as u64, "session")));
    let sessions = sessions.unwrap_or_default();
    let queued = match upstream.queued {
        0 => String::new(),
        queued => format!(", {queued} waiting for a server"),
    };
    // Writing to a String does not fail.
    let _ = writeln!(page, "\nupstream {} ({}){sessions}{queued}", upstream.name, upstream.balance);
    let columns = [
        ("SERVER", Align::Left),
        ("STATE", Align::Left),
        ("WEIGHT", Align::Right),
        ("RUNNING", Align::Right),
        ("REQUESTS", Align::Right),
        ("/S", Align::Right),
        ("FAILED/S", Align::Right),
        ("P50", Align::Right),
        ("P99", Align::Right),
        ("", Align::Left),
    ];
    let rows: Vec<_> = servers.iter().map(|server| row(server)).collect();
    let colour =
        |row: usize, column: usize| (view.has_colour && column == 1).then(|| colour_of(servers[row].state));
    *page += &coloured(columns, &rows, colour);
    if !upstream.failures.is_empty() || upstream.retries > 0 {
        let failures = upstream.failures.iter().map(|(word, count)| format!("{word} {count}"));
        let failures: Vec<String> = failures.collect();
        let failures = if failures.is_empty() { "none".to_owned() } else { failures.join(", ") };
        let _ = writeln!(page, "  failed attempts: {failures}; {}", count_retries(upstream.retries));
    }
}

fn count_retries(retries: u64) -> String {
    if retries == 1 { "1 retry".to_owned() } else { format!("{retries} retries") }
}

fn row(server: &ServerStatus) -> [String; 10] {
    let changed: Vec<&str> =
        server.changes.iter().map(String::as_str).filter(|change| *change != "drained").collect();
    let changed = match changed.as_slice() {
        [] => None,
        ["weight"] => Some("weight is not the file's".to_owned()),
        _ => Some("not in the file".to_owned()),
    };
    let notes: Vec<String> = server
        .reason
        .clone()
        .into_iter()
        .chain(priority(server))
        .chain(changed)
        .chain(last_error(server))
        .collect();
    let last_minute = &server.traffic.last_minute;
    [
        server.label.clone(),
        word(server.state).to_owned(),
        server.weight.to_string(),
        server.requests.to_string(),
        server.traffic.requests.to_string(),
        rate(last_minute.requests_per_second),
        rate(last_minute.server_errors_per_second),
        milliseconds(last_minute.p50_ms),
        milliseconds(last_minute.p99_ms),
        notes.join("; "),
    ]
}

/// The note for a server that gets no requests while enough servers of higher priority are up.
pub(crate) fn priority(server: &ServerStatus) -> Option<String> {
    (server.priority > 0).then(|| format!("priority {}", server.priority))
}

/// The note for a server that has failed a request, in any state.
pub(crate) fn last_error(server: &ServerStatus) -> Option<String> {
    let error = server.last_error.as_ref()?;
    Some(format!("last error {} ago: {}", time(error.seconds_ago as u64), error.reason))
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

#[cfg(test)]
mod tests {
    use api::status::ServerErrorStatus;
    use api::traffic::{RatesStatus, TrafficStatus};

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
            traffic: TrafficStatus::default(),
            response_time_ms: None,
            changes: Vec::new(),
            last_error: None,
        }
    }

    fn upstream() -> UpstreamStatus {
        let busy = TrafficStatus {
            requests: 123_456,
            last_minute: RatesStatus {
                requests_per_second: 50.0,
                server_errors_per_second: 0.25,
                p50_ms: Some(1.25),
                p99_ms: Some(1234.0),
                ..RatesStatus::default()
            },
            ..TrafficStatus::default()
        };
        let weighed = ServerStatus {
            weight: 100,
            priority: 1,
            changes: vec!["drained".to_owned(), "weight".to_owned()],
            ..server("a", ServerState::Draining, Some("no running requests"))
        };
        let last_error = Some(ServerErrorStatus {
            seconds_ago: 63.4,
            cause: "upstream-refused".to_owned(),
            reason: "connection refused".to_owned(),
            failures: 3,
        });
        let up = ServerStatus { traffic: busy, last_error, ..server("10.0.0.1:9000", ServerState::Up, None) };
        UpstreamStatus {
            name: "app".to_owned(),
            balance: "round-robin".to_owned(),
            sessions: Some(1),
            traffic: TrafficStatus::default(),
            failures: [("upstream-refused".to_owned(), 3)].into(),
            retries: 1,
            queued: 4,
            servers: vec![up, weighed],
        }
    }

    fn shown(view: &StatusView) -> String {
        let mut page = String::new();
        show(&mut page, &upstream(), view);
        page
    }

    #[test]
    fn an_upstream_has_a_row_for_each_server() {
        let expected = "
upstream app (round-robin), 1 session, 4 waiting for a server
  SERVER         STATE     WEIGHT  RUNNING  REQUESTS    /S  FAILED/S      P50     P99
  10.0.0.1:9000  up             1       12    123456  50.0      0.25  1.25 ms  1.23 s  last error 1 min 3 s ago: connection refused
  a              draining     100       12         0     0         0        -       -  no running requests; priority 1; weight is not the file's
  failed attempts: upstream-refused 3; 1 retry
";
        assert_eq!(shown(&StatusView::default()), expected);
    }

    #[test]
    fn servers_are_sorted_and_filtered() {
        let rows = |view: &StatusView| -> Vec<String> {
            let page = shown(view);
            let rows = page.lines().filter(|line| line.contains(" up ") || line.contains(" draining "));
            rows.map(|row| row.trim().split("  ").next().unwrap_or_default().to_owned()).collect()
        };
        let view = |sort, filter: Option<&str>| StatusView {
            sort,
            filter: filter.map(str::to_owned),
            ..StatusView::default()
        };
        assert_eq!(rows(&view(Some(Sort::Name), None)), ["10.0.0.1:9000", "a"]);
        assert_eq!(rows(&view(Some(Sort::Rate), None)), ["10.0.0.1:9000", "a"]);
        assert_eq!(rows(&view(None, Some("9000"))), ["10.0.0.1:9000"]);
        // The name of the upstream matches all its servers.
        assert_eq!(rows(&view(None, Some("app"))).len(), 2);
        assert_eq!(shown(&view(None, Some("elsewhere"))), "");
    }

    #[test]
    fn every_state_has_a_word_and_added_servers_are_marked() {
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
}
