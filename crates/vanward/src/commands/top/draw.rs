//! Draws the state with ratatui. Colours only repeat what words say, and columns give way where it is narrow.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Row as TableRow, Table, TableState, Wrap};

use super::super::table::Align;
use super::super::units::{bytes, count, milliseconds, percent, rate, time};
use super::feed::Fresh;
use super::sheets::{Column, Sheet, Tab, Tone};
use super::state::{Mode, Notice, State, Wanted};

/// The least width of the first column, which has the names.
const NAME_WIDTH_MIN: u16 = 16;
/// Between two columns.
const GAP: u16 = 2;

/// Keys and what they do.
const HELP: &[(&str, &str)] = &[
    ("1 to 7, Tab, ← →", "another tab"),
    ("↑ ↓, PgUp, PgDn, Home, End", "another row"),
    ("s", "sort by the next column"),
    ("/", "only rows whose name has a text; Esc: all"),
    ("d, u", "drain a server, use it again"),
    ("w", "change the weight of a server"),
    ("p", "purge a URL (* for any text), or all"),
    ("x, c", "remove a fault, or all and what is shaped"),
    ("q, Ctrl-C", "quit; the proxy goes on"),
];

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let summary = summary(state);
    // Problems come below the lines that are always there.
    let height = u16::try_from(summary.len()).unwrap_or(u16::MAX).clamp(4, 8);
    let rows = [Constraint::Length(height), Constraint::Length(1), Constraint::Min(3), Constraint::Length(1)];
    let [head, tabs, table, foot] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(Paragraph::new(summary), head);
    frame.render_widget(Paragraph::new(titles(state, tabs.width)), tabs);
    match state.sheet() {
        Some(sheet) => draw_sheet(frame, table, state, &sheet),
        None => frame.render_widget(Paragraph::new("\n  waiting for the proxy"), table),
    }
    frame.render_widget(Paragraph::new(last_line(state)), foot);
    if state.mode == Mode::Help {
        help(frame);
    }
}

/// The lines about the proxy as a whole: four, and one for each problem.
fn summary(state: &State) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if let Some(why) = &state.lost {
        let age = state.fresh.as_ref().map(|fresh| state.now.saturating_duration_since(fresh.at).as_secs());
        let age = age.map(|age| format!(" What is shown is {} old.", time(age))).unwrap_or_default();
        let style = alarm(state).add_modifier(Modifier::REVERSED);
        lines.push(Line::styled(format!(" NO ANSWER: {why}.{age} "), style));
    }
    let Some(Fresh { status, .. }) = &state.fresh else {
        lines.push(Line::raw(format!("vanward top, {}", state.place)));
        return lines;
    };
    lines.push(Line::styled(
        format!(
            "vanward {}, process {}, up {}, {}, {}",
            status.version,
            status.process,
            time(status.uptime_seconds),
            count(status.workers as u64, "worker"),
            count(status.reloads, "reload"),
        ),
        Style::new().add_modifier(Modifier::BOLD),
    ));
    let now = state.rate_now.map(|now| format!(", {}/s now", rate(now))).unwrap_or_default();
    lines.push(Line::raw(format!(
        "{}, {} running{now}; {}/s in, {}/s out",
        count(status.connections, "connection"),
        count(status.requests, "request"),
        bytes(status.last_minute.received_bytes_per_second),
        bytes(status.last_minute.sent_bytes_per_second),
    )));
    let rates = &status.traffic.last_minute;
    let share = |part: f64| percent(part / rates.requests_per_second.max(f64::MIN_POSITIVE));
    lines.push(Line::raw(format!(
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
        lines.push(Line::styled(format!("failures: {}", failures.join(", ")), warning(state)));
    }
    lines.extend(
        status.problems.iter().map(|problem| Line::styled(format!("problem: {problem}"), warning(state))),
    );
    lines
}

/// The tabs, with numbers as far as there is room.
fn titles(state: &State, width: u16) -> Line<'static> {
    let needed: usize = Tab::ALL.iter().map(|tab| tab.title().len() + 4).sum();
    let is_narrow = usize::from(width) < needed;
    let mut spans = Vec::new();
    for (index, tab) in Tab::ALL.into_iter().enumerate() {
        let is_chosen = tab == state.tab;
        let title = if is_narrow && !is_chosen { "" } else { tab.title() };
        let style = match is_chosen {
            true => Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD),
            false => Style::new(),
        };
        let blank = if title.is_empty() { "" } else { " " };
        spans.push(Span::styled(format!(" {}{blank}{title} ", index + 1), style));
    }
    Line::from(spans)
}

fn draw_sheet(frame: &mut Frame<'_>, area: Rect, state: &State, sheet: &Sheet) {
    let [note, table] = Layout::vertical([Constraint::Length(1), Constraint::Min(2)]).areas(area);
    let filter = match state.filter.as_str() {
        "" => String::new(),
        filter => format!("  (only names with {filter:?}: Esc shows all)"),
    };
    frame.render_widget(Paragraph::new(format!("{}{filter}", sheet.note)), note);
    let shown = shown(sheet, table.width);
    let widths: Vec<Constraint> = shown.iter().map(|(_, width)| Constraint::Length(*width)).collect();
    let cell = |text: &str, column: usize| {
        let alignment = match sheet.columns[column].align {
            Align::Left => Alignment::Left,
            Align::Right => Alignment::Right,
        };
        Line::raw(text.to_owned()).alignment(alignment)
    };
    let heading = shown.iter().map(|(column, _)| cell(&heading(sheet.columns, *column, state.sort), *column));
    let heading = TableRow::new(heading).style(Style::new().add_modifier(Modifier::UNDERLINED));
    let rows = sheet.rows.iter().map(|row| {
        let cells = shown.iter().map(|(column, _)| cell(&row.cells[*column].text, *column));
        TableRow::new(cells.collect::<Vec<_>>()).style(match row.tone {
            Tone::Plain => Style::new(),
            Tone::Warning => warning(state),
            Tone::Bad => alarm(state),
        })
    });
    let widget = Table::new(rows, widths)
        .header(heading)
        .column_spacing(GAP)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut cursor = TableState::default().with_selected(state.row(sheet).map(|(index, _)| index));
    frame.render_stateful_widget(widget, table, &mut cursor);
}

fn heading(columns: &[Column], column: usize, sort: Option<usize>) -> String {
    let mark = if sort == Some(column) { "▼" } else { "" };
    format!("{}{mark}", columns[column].heading)
}

/// The columns that have room, with their widths. Names are cut before a column of the lowest ranks is left out.
fn shown(sheet: &Sheet, width: u16) -> Vec<(usize, u16)> {
    let wanted = |column: usize| {
        let cells = sheet.rows.iter().map(|row| row.cells[column].text.chars().count());
        // A heading may get a mark.
        let heading = sheet.columns[column].heading.chars().count() + 1;
        u16::try_from(cells.max().unwrap_or(0).max(heading)).unwrap_or(u16::MAX)
    };
    let mut shown: Vec<(usize, u16)> =
        (0..sheet.columns.len()).map(|column| (column, wanted(column))).collect();
    loop {
        let others: u16 = shown.iter().skip(1).fold(0, |sum, (_, width)| sum.saturating_add(width + GAP));
        let names = shown.first().map_or(0, |(_, width)| *width);
        if others.saturating_add(names.min(NAME_WIDTH_MIN)) <= width {
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

/// What is asked, what happened, or which keys there are.
fn last_line(state: &State) -> Line<'static> {
    let typed = |what: &str, text: &str| {
        Line::styled(format!("{what}: {text}▏"), Style::new().add_modifier(Modifier::BOLD))
    };
    match (&state.mode, &state.notice) {
        (Mode::Filter, _) => typed("only names with", &state.filter),
        (Mode::Prompt(Wanted::Weight(server), text), _) => {
            typed(&format!("weight of {}, 0 to 1000", server.label), text)
        }
        (Mode::Prompt(Wanted::Purge, text), _) => typed("purge which URL (* for any text), or all", text),
        (Mode::Confirm(order), _) => {
            let question = order.question().unwrap_or_default();
            let style = warning(state).add_modifier(Modifier::REVERSED);
            Line::styled(format!(" {question}  y: yes, any other key: no "), style)
        }
        (_, Notice::Done(done)) => Line::raw(done.clone()),
        (_, Notice::Failed(why)) => Line::styled(why.clone(), alarm(state)),
        (_, Notice::None) => Line::raw(match state.tab {
            Tab::Servers => "?: help  q: quit  s: sort  /: filter  d: drain  u: use again  w: weight",
            Tab::Cache => "?: help  q: quit  s: sort  /: filter  p: purge",
            Tab::Faults => "?: help  q: quit  s: sort  /: filter  x: remove  c: remove all",
            _ => "?: help  q: quit  s: sort  /: filter  Tab: next tab",
        }),
    }
}

/// The list of keys, in the middle.
fn help(frame: &mut Frame<'_>) {
    let all = frame.area();
    let width = all.width.min(76);
    let height = all.height.min(HELP.len() as u16 + 6);
    let area = Rect { x: (all.width - width) / 2, y: (all.height - height) / 2, width, height };
    let mut lines: Vec<Line<'_>> =
        HELP.iter().map(|(keys, what)| Line::raw(format!("{keys:<27}  {what}"))).collect();
    lines.push(Line::raw(""));
    lines.push(Line::raw(
        "Rates and percentiles are those of the last minute. Clients are counted while somebody looks.",
    ));
    let block = Block::bordered().title(" keys; any key goes back ");
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block), area);
}

fn warning(state: &State) -> Style {
    let style = Style::new().add_modifier(Modifier::BOLD);
    if state.has_colour { style.fg(Color::Yellow) } else { style }
}

/// Vermilion and yellow differ for every kind of sight; without colour it is underlined as well.
fn alarm(state: &State) -> Style {
    let style = Style::new().add_modifier(Modifier::BOLD);
    if state.has_colour { style.fg(Color::LightRed) } else { style.add_modifier(Modifier::UNDERLINED) }
}

#[cfg(test)]
mod tests;
