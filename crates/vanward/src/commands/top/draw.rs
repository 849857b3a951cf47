//! Draws the state. Colours only repeat the text, and columns are dropped on a narrow terminal.

use std::ops::Range;

use super::super::table::Align;
use super::super::units::{bytes, count, milliseconds, percent, rate, time};
use super::feed::Fresh;
use super::screen::{CellStyle, Colour, Screen};
use super::sheets::{Column, Sheet, Tab, Tone};
use super::state::{KeyMode, Notice, TextPurpose, TopState};

/// Minimum width of the first column, which has the names.
const NAME_WIDTH_MIN: usize = 16;
const GAP: usize = 2;

const HELP: &[(&str, &str)] = &[
    ("1 to 7, Tab, ← →", "another tab"),
    ("↑ ↓, PgUp, PgDn, Home, End", "another row"),
    ("s", "sort by the next column"),
    ("/", "only rows whose name has a text; Esc: all"),
    ("d, u", "drain a server, use it again"),
    ("w", "change the weight of a server"),
    ("p", "purge a URL (* for any text), or all"),
    ("x, c", "remove a fault, or all faults and shaping"),
    ("q, Ctrl-C", "quit; the proxy keeps running"),
];

type Line = (String, CellStyle);

fn plain(text: impl Into<String>) -> Line {
    (text.into(), CellStyle::default())
}

pub(super) fn draw(screen: &mut Screen, state: &TopState) {
    let summary = summary(state);
    // Problems come below the fixed lines, as far as the other parts leave room.
    let head = summary.len().clamp(4, 8).min(screen.height.saturating_sub(5).max(1));
    for (y, (text, style)) in summary.iter().take(head).enumerate() {
        screen.write((0, y), text, *style);
    }
    let mut x = 0;
    for (text, style) in titles(state, screen.width) {
        x = screen.write((x, head), &text, style);
    }
    let foot = screen.height.saturating_sub(1);
    match state.sheet() {
        Some(sheet) => draw_sheet(screen, head + 1..foot, state, &sheet),
        None => _ = screen.write((2, head + 2), "waiting for the proxy", CellStyle::default()),
    }
    screen.clear((0, foot), usize::MAX, CellStyle::default());
    let (text, style) = last_line(state);
    screen.write((0, foot), &text, style);
    if state.mode == KeyMode::Help {
        help(screen);
    }
}

/// Returns the lines about the proxy as a whole: four, and one for each problem.
fn summary(state: &TopState) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(why) = &state.lost {
        let age = state.fresh.as_ref().map(|fresh| state.now.saturating_duration_since(fresh.at).as_secs());
        let age = age.map(|age| format!(" These figures are {} old.", time(age))).unwrap_or_default();
        lines.push((format!(" NO ANSWER: {why}.{age} "), alarm(state).reversed()));
    }
    let Some(Fresh { status, .. }) = &state.fresh else {
        lines.push(plain(format!("vanward top, {}", state.place)));
        return lines;
    };
    lines.push((
        format!(
            "vanward {}, process {}, up {}, {}, {}",
            status.version,
            status.process,
            time(status.uptime_seconds),
            count(status.workers as u64, "worker"),
            count(status.reloads, "reload"),
        ),
        CellStyle::default().bold(),
    ));
    let now = state.rate_now.map(|now| format!(", {}/s now", rate(now))).unwrap_or_default();
    lines.push(plain(format!(
        "{}, {} running{now}; {}/s in, {}/s out",
        count(status.connections, "connection"),
        count(status.requests, "request"),
        bytes(status.last_minute.received_bytes_per_second),
        bytes(status.last_minute.sent_bytes_per_second),
    )));
    let rates = &status.traffic.last_minute;
    let share = |part: f64| percent(part / rates.requests_per_second.max(f64::MIN_POSITIVE));
    lines.push(plain(format!(
        "last {:.0} s: {}/s, {} 4xx, {} failed or 5xx; p50 {}, p99 {}",
        rates.seconds,
        rate(rates.requests_per_second),
        share(rates.client_errors_per_second),
        share(rates.server_errors_per_second),
        milliseconds(rates.p50_ms),
        milliseconds(rates.p99_ms),
    )));
    let mut failures: Vec<(&String, &u64)> = status.last_minute.failures.iter().collect();
    failures.sort_by(|one, other| other.1.cmp(one.1));
    if !failures.is_empty() {
        let failures: Vec<String> = failures.iter().map(|(word, count)| format!("{word} {count}")).collect();
        lines.push((format!("failures: {}", failures.join(", ")), warning(state)));
    }
    lines.extend(status.problems.iter().map(|problem| (format!("problem: {problem}"), warning(state))));
    lines
}

/// Returns the tabs, with numbers if there is room.
fn titles(state: &TopState, width: usize) -> Vec<Line> {
    let needed: usize = Tab::ALL.iter().map(|tab| tab.title().len() + 4).sum();
    let is_narrow = width < needed;
    let title = |(index, tab): (usize, Tab)| {
        let is_chosen = tab == state.tab;
        let title = if is_narrow && !is_chosen { "" } else { tab.title() };
        let style = if is_chosen { CellStyle::default().reversed().bold() } else { CellStyle::default() };
        let blank = if title.is_empty() { "" } else { " " };
        (format!(" {}{blank}{title} ", index + 1), style)
    };
    Tab::ALL.into_iter().enumerate().map(title).collect()
}

/// Draws a note, headings, and as many rows as fit into these lines, including the one with the cursor.
fn draw_sheet(screen: &mut Screen, lines: Range<usize>, state: &TopState, sheet: &Sheet) {
    let filter = match state.filter.as_str() {
        "" => String::new(),
        filter => format!("  (only names with {filter:?}: Esc shows all)"),
    };
    screen.write((0, lines.start), &format!("{}{filter}", sheet.note), CellStyle::default());
    let shown = shown(sheet, screen.width);
    let mut draw_row = |y: usize, style: CellStyle, cell: &dyn Fn(usize) -> String| {
        screen.clear((0, y), usize::MAX, style);
        let mut x = 0;
        for &(column, width) in &shown {
            let text: String = cell(column).chars().take(width).collect();
            let before = match sheet.columns[column].align {
                Align::Left => 0,
                Align::Right => width - text.chars().count(),
            };
            screen.write((x + before, y), &text, style);
            x += width + GAP;
        }
    };
    let headings = CellStyle::default().underlined();
    draw_row(lines.start + 1, headings, &|column| heading(sheet.columns, column, state.sort));
    let lines = lines.start + 2..lines.end;
    let cursor = state.row(sheet).map(|(index, _)| index);
    let first = cursor.map_or(0, |cursor| (cursor + 1).saturating_sub(lines.len()));
    for (y, (index, row)) in lines.zip(sheet.rows.iter().enumerate().skip(first)) {
        let style = match row.tone {
            Tone::Plain => CellStyle::default(),
            Tone::Warning => warning(state),
            Tone::Bad => alarm(state),
        };
        let style = if cursor == Some(index) { style.reversed() } else { style };
        draw_row(y, style, &|column| row.cells[column].text.clone());
    }
}

fn heading(columns: &[Column], column: usize, sort: Option<usize>) -> String {
    let mark = if sort == Some(column) { "▼" } else { "" };
    format!("{}{mark}", columns[column].heading)
}

/// Selects the columns that fit, with their widths. Names are cut before a column of the lowest ranks is dropped.
fn shown(sheet: &Sheet, width: usize) -> Vec<(usize, usize)> {
    let wanted = |column: usize| {
        let cells = sheet.rows.iter().map(|row| row.cells[column].text.chars().count());
        // A heading may get a mark.
        let heading = sheet.columns[column].heading.chars().count() + 1;
        cells.max().unwrap_or(0).max(heading)
    };
    let mut shown: Vec<(usize, usize)> =
        (0..sheet.columns.len()).map(|column| (column, wanted(column))).collect();
    loop {
        let others: usize = shown.iter().skip(1).map(|(_, width)| width + GAP).sum();
        let names = shown.first().map_or(0, |(_, width)| *width);
        if others + names.min(NAME_WIDTH_MIN) <= width {
            let room = width - others;
            if let Some(first) = shown.first_mut() {
                first.1 = names.min(room);
            }
            return shown;
        }
        let last =
            shown.iter().enumerate().skip(1).max_by_key(|(_, (column, _))| sheet.columns[*column].rank);
        match last.map(|(place, _)| place) {
            Some(place) => drop(shown.remove(place)),
            None => return shown,
        }
    }
}

/// Returns the prompt, the last event, or the list of keys.
fn last_line(state: &TopState) -> Line {
    let typed = |what: &str, text: &str| (format!("{what}: {text}▏"), CellStyle::default().bold());
    match (&state.mode, &state.notice) {
        (KeyMode::Filter, _) => typed("only names with", &state.filter),
        (KeyMode::Prompt(TextPurpose::Weight(server), text), _) => {
            typed(&format!("weight of {}, 0 to 1000", server.label), text)
        }
        (KeyMode::Prompt(TextPurpose::Purge, text), _) => {
            typed("purge which URL (* for any text), or all", text)
        }
        (KeyMode::Confirm(order), _) => {
            let question = order.question().unwrap_or_default();
            (format!(" {question}  y: yes, any other key: no "), warning(state).reversed())
        }
        (_, Notice::Done(done)) => plain(done.clone()),
        (_, Notice::Failed(why)) => (why.clone(), alarm(state)),
        (_, Notice::None) => plain(match state.tab {
            Tab::Servers => "?: help  q: quit  s: sort  /: filter  d: drain  u: use again  w: weight",
            Tab::Cache => "?: help  q: quit  s: sort  /: filter  p: purge",
            Tab::Faults => "?: help  q: quit  s: sort  /: filter  x: remove  c: remove all",
            _ => "?: help  q: quit  s: sort  /: filter  Tab: next tab",
        }),
    }
}

fn help(screen: &mut Screen) {
    const TITLE: &str = " keys; press any key to return ";
    const NOTE: &str = "Rates and percentiles cover the last minute. Clients are counted only while this view \
                        or the dashboard is open.";
    let width = screen.width.min(76);
    let inside = width.saturating_sub(2);
    let keys = HELP.iter().map(|(keys, what)| format!("{keys:<27}  {what}"));
    let texts: Vec<String> = keys.chain([String::new(), NOTE.to_owned()]).collect();
    let lines: Vec<String> = texts.iter().flat_map(|text| wrapped(text, inside)).collect();
    let height = (lines.len() + 2).min(screen.height);
    let (left, top) = ((screen.width - width) / 2, (screen.height - height) / 2);
    let plain = CellStyle::default();
    let bar = |middle: &str, [begin, end]: [char; 2]| format!("{begin}{middle:─<inside$.inside$}{end}");
    for y in 0..height {
        let line = match y {
            0 => bar(TITLE, ['┌', '┐']),
            last if last + 1 == height => bar("", ['└', '┘']),
            y => format!("│{:<inside$}│", lines.get(y - 1).map_or("", String::as_str)),
        };
        let line: String = line.chars().take(width).collect();
        screen.write((left, top + y), &line, plain);
    }
}

/// Wraps a text, between words if possible.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut rest) = (Vec::new(), text);
    while let Some((end, _)) = rest.char_indices().nth(width.max(1)) {
        let at = rest[..end].rfind(' ').filter(|at| *at > 0).unwrap_or(end);
        lines.push(rest[..at].to_owned());
        rest = rest[at..].trim_start();
    }
    lines.push(rest.to_owned());
    lines
}

fn warning(state: &TopState) -> CellStyle {
    let style = CellStyle::default().bold();
    if state.has_colour { style.for_colour(Colour::Yellow) } else { style }
}

/// Vermilion and yellow are distinguishable with any colour blindness. Without colour the text is underlined, too.
fn alarm(state: &TopState) -> CellStyle {
    let style = CellStyle::default().bold();
    if state.has_colour { style.for_colour(Colour::LightRed) } else { style.underlined() }
}

#[cfg(test)]
mod tests;
