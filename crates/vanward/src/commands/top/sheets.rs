//! The tables of the tabs: the proxy's data as rows, each with the object that keys can change.

use api::live::{LiveStatus, RequestStage};
use api::status::{RouteCacheStatus, ServerState, ServerStatus, StatusReport, UpstreamStatus};
use api::traffic::TrafficStatus;

use super::super::status::{last_error, priority};
use super::super::table::Align;
use super::super::units::{bytes, count, milliseconds, percent, rate};
use super::order::TopServer;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tab {
    Routes,
    Servers,
    Clients,
    Requests,
    Cache,
    Faults,
    Listeners,
}

impl Tab {
    /// In the order of their keys.
    pub(super) const ALL: [Self; 7] = [
        Self::Routes,
        Self::Servers,
        Self::Clients,
        Self::Requests,
        Self::Cache,
        Self::Faults,
        Self::Listeners,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Routes => "Routes",
            Self::Servers => "Servers",
            Self::Clients => "Clients",
            Self::Requests => "Requests",
            Self::Cache => "Cache",
            Self::Faults => "Faults",
            Self::Listeners => "Listeners",
        }
    }
}

/// A column. On a narrow terminal, those with the highest rank are dropped first.
pub(super) struct Column {
    pub(super) heading: &'static str,
    pub(super) align: Align,
    pub(super) rank: u8,
}

const fn left(heading: &'static str, rank: u8) -> Column {
    Column { heading, align: Align::Left, rank }
}

const fn right(heading: &'static str, rank: u8) -> Column {
    Column { heading, align: Align::Right, rank }
}

/// A cell, with a number for sorting if it has one.
pub(super) struct SheetCell {
    pub(super) text: String,
    pub(super) value: Option<f64>,
}

fn word(text: impl Into<String>) -> SheetCell {
    SheetCell { text: text.into(), value: None }
}

fn number(value: u64) -> SheetCell {
    SheetCell { text: value.to_string(), value: Some(value as f64) }
}

fn per_second(value: f64) -> SheetCell {
    SheetCell { text: rate(value), value: Some(value) }
}

fn time(value: Option<f64>) -> SheetCell {
    SheetCell { text: milliseconds(value), value: Some(value.unwrap_or(-1.0)) }
}

/// Highlighting of a row. Its text says the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Warning,
    Bad,
}

/// The object of a row that keys can change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RowSubject {
    Nothing,
    Server(TopServer),
    Fault(String),
}

pub(super) struct SheetRow {
    pub(super) cells: Vec<SheetCell>,
    pub(super) tone: Tone,
    pub(super) subject: RowSubject,
}

impl SheetRow {
    /// Identifies the row from one second to the next.
    pub(super) fn name(&self) -> String {
        match &self.subject {
            RowSubject::Server(server) => format!("{} {}", server.upstream, server.url),
            _ => self.cells.first().map(|cell| cell.text.clone()).unwrap_or_default(),
        }
    }
}

/// A table, and a line about it.
pub(super) struct Sheet {
    pub(super) columns: &'static [Column],
    pub(super) rows: Vec<SheetRow>,
    pub(super) note: String,
}

/// Returns the table of a tab, in the order of the file or of time.
pub(super) fn sheet(tab: Tab, status: &StatusReport, live: &LiveStatus) -> Sheet {
    match tab {
        Tab::Routes => routes(status),
        Tab::Servers => servers(status),
        Tab::Clients => clients(live),
        Tab::Requests => requests(live),
        Tab::Cache => cache(status),
        Tab::Faults => faults(status),
        Tab::Listeners => listeners(status),
    }
}

/// Rows of traffic are highlighted if more than a hundredth fails.
fn tone(traffic: &TrafficStatus) -> Tone {
    let last_minute = &traffic.last_minute;
    let (errors, all) = (last_minute.server_errors_per_second, last_minute.requests_per_second);
    match errors {
        0.0 => Tone::Plain,
        errors if errors * 100.0 > all => Tone::Bad,
        _ => Tone::Warning,
    }
}

fn routes(status: &StatusReport) -> Sheet {
    const COLUMNS: &[Column] = &[
        left("ROUTE", 0),
        right("REQUESTS", 4),
        right("/S", 0),
        right("4XX/S", 2),
        right("5XX/S", 1),
        right("P50", 3),
        right("P90", 5),
        right("P99", 1),
        left("MAINTENANCE", 6),
    ];
    let rows = status.routes.iter().map(|route| {
        let last_minute = &route.traffic.last_minute;
        let is_maintained = status.maintenance.iter().any(|one| one.route == route.route && one.is_on);
        SheetRow {
            cells: vec![
                word(&route.route),
                number(route.traffic.requests),
                per_second(last_minute.requests_per_second),
                per_second(last_minute.client_errors_per_second),
                per_second(last_minute.server_errors_per_second),
                time(last_minute.p50_ms),
                time(last_minute.p90_ms),
                time(last_minute.p99_ms),
                word(if is_maintained { "on" } else { "" }),
            ],
            tone: if is_maintained { Tone::Warning } else { tone(&route.traffic) },
            subject: RowSubject::Nothing,
        }
    });
    Sheet { columns: COLUMNS, rows: rows.collect(), note: String::new() }
}

fn servers(status: &StatusReport) -> Sheet {
    const COLUMNS: &[Column] = &[
        left("SERVER", 0),
        left("UPSTREAM", 2),
        left("STATE", 0),
        right("WEIGHT", 4),
        right("RUNNING", 3),
        right("REQUESTS", 6),
        right("/S", 0),
        right("FAILED/S", 1),
        right("P50", 5),
        right("P99", 2),
        left("WHY", 7),
    ];
    let mut rows = Vec::new();
    let mut note = Vec::new();
    for upstream in &status.upstreams {
        rows.extend(upstream.servers.iter().map(|server| of_server(upstream, server)));
        if upstream.queued > 0 {
            note.push(format!("{}: {} wait for a server", upstream.name, upstream.queued));
        }
    }
    Sheet { columns: COLUMNS, rows, note: note.join("; ") }
}

fn of_server(upstream: &UpstreamStatus, server: &ServerStatus) -> SheetRow {
    let last_minute = &server.traffic.last_minute;
    let others = upstream.servers.iter().filter(|other| other.url != server.url);
    let others_up = others.filter(|other| other.state == ServerState::Up).count();
    let (state, mut tone) = match server.state {
        ServerState::Up => ("up", tone(&server.traffic)),
        ServerState::Draining => ("draining", Tone::Warning),
        ServerState::Ejected => ("EJECTED", Tone::Bad),
        ServerState::Down => ("DOWN", Tone::Bad),
        ServerState::Open => ("OPEN", Tone::Bad),
    };
    if server.state == ServerState::Up && others_up == 0 && upstream.servers.len() > 1 && tone == Tone::Plain
    {
        tone = Tone::Warning;
    }
    SheetRow {
        cells: vec![
            word(&server.label),
            word(&upstream.name),
            word(state),
            number(u64::from(server.weight)),
            number(u64::from(server.requests)),
            number(server.traffic.requests),
            per_second(last_minute.requests_per_second),
            per_second(last_minute.server_errors_per_second),
            time(last_minute.p50_ms),
            time(last_minute.p99_ms),
            word(why(server)),
        ],
        tone,
        subject: RowSubject::Server(TopServer {
            upstream: upstream.name.clone(),
            url: server.url.clone(),
            label: server.label.clone(),
            others_up,
        }),
    }
}

/// Why a server gets no requests, and the last one that it failed.
fn why(server: &ServerStatus) -> String {
    let state = server.reason.clone().or_else(|| priority(server));
    let notes: Vec<String> = state.into_iter().chain(last_error(server)).collect();
    notes.join("; ")
}

fn clients(live: &LiveStatus) -> Sheet {
    const COLUMNS: &[Column] = &[left("CLIENT", 0), right("REQUESTS", 0), right("/S", 0), right("SHARE", 1)];
    let all = &live.clients;
    let rows = all.clients.iter().map(|client| {
        let share = client.requests as f64 / all.requests.max(1) as f64;
        let per = client.requests as f64 / all.seconds.max(1.0);
        let share = SheetCell { text: percent(share), value: Some(share) };
        SheetRow {
            cells: vec![word(&client.address), number(client.requests), per_second(per), share],
            tone: Tone::Plain,
            subject: RowSubject::Nothing,
        }
    });
    let error = match all.error {
        0 => String::new(),
        error => format!("; counts may be {error} too low, because there are many clients"),
    };
    let note = format!("{} requests in the last {:.0} s{error}", all.requests, all.seconds);
    Sheet { columns: COLUMNS, rows: rows.collect(), note }
}

fn requests(live: &LiveStatus) -> Sheet {
    const COLUMNS: &[Column] = &[
        left("REQUEST", 0),
        right("SINCE", 0),
        left("WAITS FOR", 1),
        left("CLIENT", 2),
        left("ROUTE", 3),
        left("SERVER", 2),
    ];
    let rows = live.requests.iter().map(|request| {
        let stage = match request.stage {
            RequestStage::Proxy => "proxy",
            RequestStage::Server => "server",
            RequestStage::Response => "response",
        };
        SheetRow {
            cells: vec![
                word(&request.line),
                time(Some(request.seconds * 1e3)),
                word(stage),
                word(&request.client),
                word(&request.route),
                word(request.server.as_deref().unwrap_or("-")),
            ],
            tone: if request.seconds > 10.0 { Tone::Warning } else { Tone::Plain },
            subject: RowSubject::Nothing,
        }
    });
    let rows: Vec<SheetRow> = rows.collect();
    let note = if rows.is_empty() { "no requests are running" } else { "the slowest running requests" };
    Sheet { columns: COLUMNS, rows, note: note.to_owned() }
}

fn cache(status: &StatusReport) -> Sheet {
    const COLUMNS: &[Column] = &[
        left("ROUTE", 0),
        right("HIT RATE", 1),
        right("HITS", 0),
        right("STALE", 3),
        right("WAITED", 4),
        right("MISSES", 0),
        right("STORED", 2),
        right("SENT", 3),
    ];
    let row = |route: &str, counts: &RouteCacheStatus| {
        let misses = counts.misses.values().sum::<u64>();
        let answered = counts.hits + counts.stale + counts.waits;
        let share = answered as f64 / (answered + misses).max(1) as f64;
        SheetRow {
            cells: vec![
                word(route),
                SheetCell { text: percent(share), value: Some(share) },
                number(counts.hits),
                number(counts.stale),
                number(counts.waits),
                number(misses),
                number(counts.stored),
                SheetCell { text: bytes(counts.sent_bytes as f64), value: Some(counts.sent_bytes as f64) },
            ],
            tone: Tone::Plain,
            subject: RowSubject::Nothing,
        }
    };
    let rows = status.routes.iter().filter_map(|route| Some(row(&route.route, route.cache.as_ref()?)));
    let note = match &status.cache {
        None => "the configuration has no [cache]".to_owned(),
        Some(store) => {
            let used = (store.stored_bytes + store.filling_bytes) as f64;
            let disk = store.disk.as_ref().map(|disk| format!("; disk: {}", disk.state)).unwrap_or_default();
            let (used, all) = (bytes(used), bytes(store.memory_bytes as f64));
            format!("{used} of {all} in use, {}, {} evicted{disk}", count(store.keys, "key"), store.evicted)
        }
    };
    Sheet { columns: COLUMNS, rows: rows.collect(), note }
}

fn faults(status: &StatusReport) -> Sheet {
    const COLUMNS: &[Column] = &[
        left("FAULT", 0),
        left("INJECTS", 1),
        left("SHARE", 2),
        left("NOW", 0),
        right("MATCHED", 3),
        right("INJECTED", 0),
        right("ENDS IN", 2),
    ];
    let rows = status.faults.iter().map(|fault| {
        let ends = match fault.expires_in_seconds {
            Some(seconds) => {
                SheetCell { text: super::super::units::time(seconds as u64), value: Some(seconds) }
            }
            None => SheetCell { text: "-".to_owned(), value: Some(f64::MAX) },
        };
        SheetRow {
            cells: vec![
                word(&fault.name),
                word(&fault.inject),
                word(&fault.probability),
                word(if fault.is_on { "on" } else { "off" }),
                number(fault.matched),
                number(fault.injected),
                ends,
            ],
            tone: if fault.is_on { Tone::Warning } else { Tone::Plain },
            subject: RowSubject::Fault(fault.name.clone()),
        }
    });
    let rows: Vec<SheetRow> = rows.collect();
    let shaped = match status.shaping.len() {
        0 => String::new(),
        count => format!("; {count} places have rates or delays: `vanward shape`"),
    };
    let note = if rows.is_empty() { "no faults are injected" } else { "injected on purpose" };
    Sheet { columns: COLUMNS, rows, note: format!("{note}{shaped}") }
}

fn listeners(status: &StatusReport) -> Sheet {
    const COLUMNS: &[Column] = &[left("LISTENER", 0), left("ADDRESS", 0), left("TLS", 1)];
    let rows = status.listeners.iter().map(|listener| SheetRow {
        cells: vec![
            word(&listener.name),
            word(&listener.address),
            word(if listener.has_tls { "yes" } else { "no" }),
        ],
        tone: Tone::Plain,
        subject: RowSubject::Nothing,
    });
    Sheet { columns: COLUMNS, rows: rows.collect(), note: String::new() }
}
