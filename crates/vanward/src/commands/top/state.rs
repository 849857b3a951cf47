//! The state of `vanward top`, and the effect of keys. No terminal or socket: keys and answers in, orders out.

use std::time::Instant;

use super::feed::Fresh;
use super::keys::KeyCommand;
use super::order::{TopOrder, TopServer};
use super::sheets::{self, Column, RowSubject, Sheet, SheetRow, Tab};

const PROMPT_MAX: usize = 200;
const PAGE: isize = 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeyMode {
    /// Tabs and rows.
    View,
    Help,
    Filter,
    /// The user types a text for an order.
    Prompt(TextPurpose, String),
    Confirm(TopOrder),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TextPurpose {
    Weight(TopServer),
    Purge,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeyEffect {
    Stay,
    Send(TopOrder),
    Quit,
}

/// The last event, for the last line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Notice {
    None,
    Done(String),
    Failed(String),
}

pub(super) struct TopState {
    pub(super) place: String,
    pub(super) has_colour: bool,
    pub(super) now: Instant,
    pub(super) fresh: Option<Fresh>,
    /// Requests per second since the response before.
    pub(super) rate_now: Option<f64>,
    pub(super) lost: Option<String>,
    pub(super) tab: Tab,
    /// Index of the column that sorts the rows; `None` is the order of the file or of time.
    pub(super) sort: Option<usize>,
    pub(super) filter: String,
    pub(super) mode: KeyMode,
    pub(super) notice: Notice,
    /// Index of the cursor's row. It stays if that row disappears.
    cursor: usize,
    cursor_name: Option<String>,
}

impl TopState {
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
            mode: KeyMode::View,
            notice: Notice::None,
            cursor: 0,
            cursor_name: None,
        }
    }

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

    pub(super) fn done(&mut self, outcome: Result<String, String>) {
        self.notice = match outcome {
            Ok(done) => Notice::Done(done),
            Err(why) => Notice::Failed(why),
        };
    }

    /// Returns the table of the tab, filtered and sorted; `None` before the first response.
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

    /// Returns the row of the cursor: the one with its name, or else the one at its index.
    pub(super) fn row<'s>(&self, sheet: &'s Sheet) -> Option<(usize, &'s SheetRow)> {
        let named =
            self.cursor_name.as_ref().and_then(|name| sheet.rows.iter().position(|row| row.name() == *name));
        let index = named.unwrap_or(self.cursor.min(sheet.rows.len().checked_sub(1)?));
        Some((index, &sheet.rows[index]))
    }

    pub(super) fn press(&mut self, key: KeyCommand) -> KeyEffect {
        if key == KeyCommand::Interrupt {
            return KeyEffect::Quit;
        }
        match std::mem::replace(&mut self.mode, KeyMode::View) {
            KeyMode::View => self.view(key),
            // Any key leaves it.
            KeyMode::Help => KeyEffect::Stay,
            KeyMode::Filter => {
                match key {
                    KeyCommand::Esc => self.filter.clear(),
                    KeyCommand::Enter => {}
                    key => {
                        typed(&mut self.filter, key);
                        self.mode = KeyMode::Filter;
                    }
                }
                KeyEffect::Stay
            }
            KeyMode::Prompt(wanted, mut text) => match key {
                KeyCommand::Esc => KeyEffect::Stay,
                KeyCommand::Enter => self.answer(wanted, text.trim()),
                key => {
                    typed(&mut text, key);
                    self.mode = KeyMode::Prompt(wanted, text);
                    KeyEffect::Stay
                }
            },
            KeyMode::Confirm(order) => match key {
                KeyCommand::Char('y' | 'Y') => self.send(order),
                _ => {
                    self.notice = Notice::Done("nothing was changed".to_owned());
                    KeyEffect::Stay
                }
            },
        }
    }

    fn view(&mut self, key: KeyCommand) -> KeyEffect {
        match key {
            KeyCommand::Char('q') => return KeyEffect::Quit,
            KeyCommand::Char('?') | KeyCommand::Help => self.mode = KeyMode::Help,
            KeyCommand::Char('/') => self.mode = KeyMode::Filter,
            KeyCommand::Esc => {
                self.filter.clear();
                self.notice = Notice::None;
            }
            KeyCommand::Tab | KeyCommand::Right | KeyCommand::Char('l') => self.turn(1),
            KeyCommand::BackTab | KeyCommand::Left | KeyCommand::Char('h') => self.turn(Tab::ALL.len() - 1),
            KeyCommand::Char(digit @ '1'..='7') => self.go(Tab::ALL[digit as usize - '1' as usize]),
            KeyCommand::Down | KeyCommand::Char('j') => self.step(1),
            KeyCommand::Up | KeyCommand::Char('k') => self.step(-1),
            KeyCommand::PageDown => self.step(PAGE),
            KeyCommand::PageUp => self.step(-PAGE),
            KeyCommand::Home => self.step(isize::MIN),
            KeyCommand::End => self.step(isize::MAX),
            KeyCommand::Char('s') => self.sort_by_next(),
            KeyCommand::Char(letter @ ('d' | 'u' | 'w')) => return self.change_server(letter),
            KeyCommand::Char('p') => self.mode = KeyMode::Prompt(TextPurpose::Purge, String::new()),
            KeyCommand::Char('x') => return self.remove_fault(),
            KeyCommand::Char('c') => return self.ask(TopOrder::ClearFaults),
            _ => {}
        }
        KeyEffect::Stay
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
        self.cursor_name = sheet.rows.get(self.cursor).map(SheetRow::name);
    }

    fn sort_by_next(&mut self) {
        let columns: &[Column] = self.sheet().map_or(&[], |sheet| sheet.columns);
        self.sort = match self.sort {
            None if !columns.is_empty() => Some(0),
            Some(column) if column + 1 < columns.len() => Some(column + 1),
            _ => None,
        };
        // The user looks for the first row in the new order.
        (self.cursor, self.cursor_name) = (0, None);
    }

    fn subject(&self) -> RowSubject {
        self.sheet()
            .and_then(|sheet| self.row(&sheet).map(|(_, row)| row.subject.clone()))
            .unwrap_or(RowSubject::Nothing)
    }

    fn change_server(&mut self, key: char) -> KeyEffect {
        let RowSubject::Server(server) = self.subject() else {
            self.notice = Notice::Failed("choose a server first: key 2, then the arrow keys".to_owned());
            return KeyEffect::Stay;
        };
        match key {
            'd' => self.ask(TopOrder::Drain(server)),
            'u' => self.ask(TopOrder::Restore(server)),
            _ => {
                self.mode = KeyMode::Prompt(TextPurpose::Weight(server), String::new());
                KeyEffect::Stay
            }
        }
    }

    fn remove_fault(&mut self) -> KeyEffect {
        let RowSubject::Fault(name) = self.subject() else {
            self.notice = Notice::Failed("choose a fault first: key 6, then the arrow keys".to_owned());
            return KeyEffect::Stay;
        };
        self.ask(TopOrder::RemoveFault(name))
    }

    fn answer(&mut self, wanted: TextPurpose, text: &str) -> KeyEffect {
        match (wanted, text) {
            (_, "") => KeyEffect::Stay,
            (TextPurpose::Purge, "all") => self.ask(TopOrder::PurgeAll),
            (TextPurpose::Purge, url) => self.ask(TopOrder::Purge(url.to_owned())),
            (TextPurpose::Weight(server), text) => match text.parse::<u32>() {
                Ok(weight) if weight <= 1000 => self.ask(TopOrder::Weigh(server, weight)),
                _ => {
                    self.notice = Notice::Failed(format!("{text:?} is not a weight: write 0 to 1000"));
                    KeyEffect::Stay
                }
            },
        }
    }

    /// Sends an order, after a confirmation if it is destructive.
    fn ask(&mut self, order: TopOrder) -> KeyEffect {
        if order.question().is_some() {
            self.mode = KeyMode::Confirm(order);
            return KeyEffect::Stay;
        }
        self.send(order)
    }

    fn send(&mut self, order: TopOrder) -> KeyEffect {
        if self.lost.is_some() || self.fresh.is_none() {
            self.notice = Notice::Failed("not sent, because the proxy does not respond".to_owned());
            return KeyEffect::Stay;
        }
        self.notice = Notice::None;
        KeyEffect::Send(order)
    }
}

/// Whether a row matches the filter: by its first cell, or by the upstream of a server.
fn is_met(row: &SheetRow, filter: &str) -> bool {
    let upstream = match &row.subject {
        RowSubject::Server(server) => server.upstream.as_str(),
        _ => "",
    };
    row.cells.first().is_some_and(|cell| cell.text.contains(filter))
        || (!filter.is_empty() && upstream.contains(filter))
}

fn typed(text: &mut String, key: KeyCommand) {
    match key {
        KeyCommand::Char(char) if text.len() < PROMPT_MAX => text.push(char),
        KeyCommand::Backspace => drop(text.pop()),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
