//! What `vanward top` shows, and what keys do about it. No terminal, no socket: keys and answers in, orders out.

use std::time::Instant;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::feed::Fresh;
use super::order::{Order, Server};
use super::sheets::{self, Column, Row, Sheet, Subject, Tab};

/// The longest text of a prompt.
const PROMPT_MAX: usize = 200;
/// Rows of a page up or down.
const PAGE: isize = 10;

/// What the keys mean at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mode {
    /// Tabs and rows.
    View,
    /// The list of keys is shown.
    Help,
    /// A filter is typed.
    Filter,
    /// A text is typed for something.
    Prompt(Wanted, String),
    /// A question is to be answered.
    Confirm(Order),
}

/// What a typed text is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    Weight(Server),
    Purge,
}

/// What follows on a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Course {
    Stay,
    Send(Order),
    Quit,
}

/// What happened last, for the last line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Notice {
    None,
    Done(String),
    Failed(String),
}

/// All that is drawn.
pub(super) struct State {
    /// The socket of the proxy.
    pub(super) place: String,
    pub(super) has_colour: bool,
    pub(super) now: Instant,
    /// What the proxy told last.
    pub(super) fresh: Option<Fresh>,
    /// The requests per second since the time before.
    pub(super) rate_now: Option<f64>,
    /// Why the proxy does not answer.
    pub(super) lost: Option<String>,
    pub(super) tab: Tab,
    /// The number of the column that rows are sorted by; `None` is the order of the file or of time.
    pub(super) sort: Option<usize>,
    pub(super) filter: String,
    pub(super) mode: Mode,
    pub(super) notice: Notice,
    /// The row of the cursor, which keeps its place in the list if it is gone.
    cursor: usize,
    cursor_name: Option<String>,
}

impl State {
    /// Before anything is known.
    pub(super) fn new(place: String, filter: String, has_colour: bool) -> Self {
        Self {
            place,
            has_colour,
            now: Instant::now(),
            fresh: None,
            rate_now: None,
            lost: None,
            tab: Tab::Routes,
            sort: None,
            filter,
            mode: Mode::View,
            notice: Notice::None,
            cursor: 0,
            cursor_name: None,
        }
    }

    /// Takes the proxy's answer, or why there is none.
    pub(super) fn learn(&mut self, answer: Result<Fresh, String>) {
        match answer {
            Ok(fresh) => {
                self.rate_now = self.fresh.as_ref().filter(|_| self.lost.is_none()).and_then(|before| {
                    let seconds = fresh.at.saturating_duration_since(before.at).as_secs_f64();
                    let came = fresh.status.traffic.requests.checked_sub(before.status.traffic.requests)?;
                    (fresh.status.process == before.status.process && seconds > 0.0)
                        .then(|| came as f64 / seconds)
                });
                self.fresh = Some(fresh);
                self.lost = None;
            }
            Err(why) => self.lost = Some(why),
        }
    }

    /// Takes the outcome of an order.
    pub(super) fn done(&mut self, outcome: Result<String, String>) {
        self.notice = match outcome {
            Ok(done) => Notice::Done(done),
            Err(why) => Notice::Failed(why),
        };
    }

    /// The table of the tab, filtered and sorted; `None` before anything is known.
    pub(super) fn sheet(&self) -> Option<Sheet> {
        let Fresh { status, live, .. } = self.fresh.as_ref()?;
        let mut sheet = sheets::sheet(self.tab, status, live);
        sheet.rows.retain(|row| is_met(row, &self.filter));
        if let Some(column) = self.sort.filter(|column| *column < sheet.columns.len()) {
            sheet.rows.sort_by(|one, other| {
                let (one, other) = (&one.cells[column], &other.cells[column]);
                match (one.value, other.value) {
                    (Some(one), Some(other)) => other.total_cmp(&one),
                    _ => one.text.cmp(&other.text),
                }
            });
        }
        Some(sheet)
    }

    /// The row of the cursor: the one with its name, or else the one in its place.
    pub(super) fn row<'s>(&self, sheet: &'s Sheet) -> Option<(usize, &'s Row)> {
        let named =
            self.cursor_name.as_ref().and_then(|name| sheet.rows.iter().position(|row| row.name() == *name));
        let index = named.unwrap_or(self.cursor.min(sheet.rows.len().checked_sub(1)?));
        Some((index, &sheet.rows[index]))
    }

    /// What a key does.
    pub(super) fn press(&mut self, key: KeyEvent) -> Course {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Course::Quit;
        }
        match std::mem::replace(&mut self.mode, Mode::View) {
            Mode::View => self.view(key.code),
            // Any key leaves it.
            Mode::Help => Course::Stay,
            Mode::Filter => {
                match key.code {
                    KeyCode::Esc => self.filter.clear(),
                    KeyCode::Enter => {}
                    code => {
                        typed(&mut self.filter, code);
                        self.mode = Mode::Filter;
                    }
                }
                Course::Stay
            }
            Mode::Prompt(wanted, mut text) => match key.code {
                KeyCode::Esc => Course::Stay,
                KeyCode::Enter => self.answer(wanted, text.trim()),
                code => {
                    typed(&mut text, code);
                    self.mode = Mode::Prompt(wanted, text);
                    Course::Stay
                }
            },
            Mode::Confirm(order) => match key.code {
                KeyCode::Char('y' | 'Y') => self.send(order),
                _ => {
                    self.notice = Notice::Done("nothing was changed".to_owned());
                    Course::Stay
                }
            },
        }
    }

    fn view(&mut self, code: KeyCode) -> Course {
        match code {
            KeyCode::Char('q') => return Course::Quit,
            KeyCode::Char('?') | KeyCode::F(1) => self.mode = Mode::Help,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Esc => {
                self.filter.clear();
                self.notice = Notice::None;
            }
            KeyCode::Tab | KeyCode::Right | KeyCode::Char('l') => self.turn(1),
            KeyCode::BackTab | KeyCode::Left | KeyCode::Char('h') => self.turn(Tab::ALL.len() - 1),
            KeyCode::Char(digit @ '1'..='7') => self.go(Tab::ALL[digit as usize - '1' as usize]),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::PageDown => self.step(PAGE),
            KeyCode::PageUp => self.step(-PAGE),
            KeyCode::Home => self.step(isize::MIN),
            KeyCode::End => self.step(isize::MAX),
            KeyCode::Char('s') => self.sort_by_next(),
            KeyCode::Char(key @ ('d' | 'u' | 'w')) => return self.change_server(key),
            KeyCode::Char('p') => self.mode = Mode::Prompt(Wanted::Purge, String::new()),
            KeyCode::Char('x') => return self.remove_fault(),
            KeyCode::Char('c') => return self.ask(Order::ClearFaults),
            _ => {}
        }
        Course::Stay
    }

    fn turn(&mut self, by: usize) {
        let at = Tab::ALL.iter().position(|tab| *tab == self.tab).unwrap_or(0);
        self.go(Tab::ALL[(at + by) % Tab::ALL.len()]);
    }

    fn go(&mut self, tab: Tab) {
        if tab != self.tab {
            (self.tab, self.sort, self.cursor, self.cursor_name) = (tab, None, 0, None);
        }
    }

    fn step(&mut self, by: isize) {
        let Some(sheet) = self.sheet() else { return };
        let Some((at, _)) = self.row(&sheet) else { return };
        self.cursor = at.saturating_add_signed(by).min(sheet.rows.len() - 1);
        self.cursor_name = sheet.rows.get(self.cursor).map(Row::name);
    }

    fn sort_by_next(&mut self) {
        let columns: &[Column] = self.sheet().map_or(&[], |sheet| sheet.columns);
        self.sort = match self.sort {
            None if !columns.is_empty() => Some(0),
            Some(column) if column + 1 < columns.len() => Some(column + 1),
            _ => None,
        };
        // What comes first now is what one looks for.
        (self.cursor, self.cursor_name) = (0, None);
    }

    fn subject(&self) -> Subject {
        self.sheet()
            .and_then(|sheet| self.row(&sheet).map(|(_, row)| row.subject.clone()))
            .unwrap_or(Subject::Nothing)
    }

    fn change_server(&mut self, key: char) -> Course {
        let Subject::Server(server) = self.subject() else {
            self.notice = Notice::Failed("choose a server first: key 2, then the arrow keys".to_owned());
            return Course::Stay;
        };
        match key {
            'd' => self.ask(Order::Drain(server)),
            'u' => self.ask(Order::Restore(server)),
            _ => {
                self.mode = Mode::Prompt(Wanted::Weight(server), String::new());
                Course::Stay
            }
        }
    }

    fn remove_fault(&mut self) -> Course {
        let Subject::Fault(name) = self.subject() else {
            self.notice = Notice::Failed("choose a fault first: key 6, then the arrow keys".to_owned());
            return Course::Stay;
        };
        self.ask(Order::RemoveFault(name))
    }

    /// What becomes of a typed text.
    fn answer(&mut self, wanted: Wanted, text: &str) -> Course {
        match (wanted, text) {
            (_, "") => Course::Stay,
            (Wanted::Purge, "all") => self.ask(Order::PurgeAll),
            (Wanted::Purge, url) => self.ask(Order::Purge(url.to_owned())),
            (Wanted::Weight(server), text) => match text.parse::<u32>() {
                Ok(weight) if weight <= 1000 => self.ask(Order::Weigh(server, weight)),
                _ => {
                    self.notice = Notice::Failed(format!("{text:?} is no weight: 0 to 1000"));
                    Course::Stay
                }
            },
        }
    }

    /// Sends an order, after a question if it takes something away.
    fn ask(&mut self, order: Order) -> Course {
        if order.question().is_some() {
            self.mode = Mode::Confirm(order);
            return Course::Stay;
        }
        self.send(order)
    }

    fn send(&mut self, order: Order) -> Course {
        if self.lost.is_some() || self.fresh.is_none() {
            self.notice = Notice::Failed("nothing was sent: the proxy does not answer".to_owned());
            return Course::Stay;
        }
        self.notice = Notice::None;
        Course::Send(order)
    }
}

/// Whether a row is of what the filter names: its first cell, or the upstream of a server.
fn is_met(row: &Row, filter: &str) -> bool {
    let upstream = match &row.subject {
        Subject::Server(server) => server.upstream.as_str(),
        _ => "",
    };
    row.cells.first().is_some_and(|cell| cell.text.contains(filter))
        || (!filter.is_empty() && upstream.contains(filter))
}

fn typed(text: &mut String, code: KeyCode) {
    match code {
        KeyCode::Char(char) if text.len() < PROMPT_MAX => text.push(char),
        KeyCode::Backspace => drop(text.pop()),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
