//! The terminal: a grid of cells that is drawn as a whole, with sequences that all terminals support (ECMA-48).

use std::io::{self, Write as _};
use std::panic;
use std::sync::OnceLock;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CellStyle {
    bold: bool,
    underlined: bool,
    reversed: bool,
    pub(super) colour: Option<Colour>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Colour {
    Yellow,
    LightRed,
}

impl CellStyle {
    pub(super) fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    pub(super) fn underlined(self) -> Self {
        Self { underlined: true, ..self }
    }

    pub(super) fn reversed(self) -> Self {
        Self { reversed: true, ..self }
    }

    pub(super) fn for_colour(self, colour: Colour) -> Self {
        Self { colour: Some(colour), ..self }
    }

    /// The sequence that selects it, regardless of the previous style.
    fn sequence(self) -> String {
        let mut sequence = "\x1b[0".to_owned();
        let colour = self.colour.map(|colour| match colour {
            Colour::Yellow => "33",
            Colour::LightRed => "91",
        });
        let wanted = [(self.bold, "1"), (self.underlined, "4"), (self.reversed, "7")];
        for code in wanted.into_iter().filter(|(is_wanted, _)| *is_wanted).map(|(_, code)| code).chain(colour)
        {
            sequence.push(';');
            sequence.push_str(code);
        }
        sequence.push('m');
        sequence
    }
}

/// Cells of a screen, initially blank. Text beyond the edge is cut.
pub(super) struct Screen {
    pub(super) width: usize,
    pub(super) height: usize,
    cells: Vec<(char, CellStyle)>,
}

impl Screen {
    pub(super) fn new(width: usize, height: usize) -> Self {
        Self { width, height, cells: vec![(' ', CellStyle::default()); width * height] }
    }

    /// The cells of a line from a column on.
    fn line(&mut self, x: usize, y: usize) -> &mut [(char, CellStyle)] {
        let start = if y < self.height { y * self.width } else { self.cells.len() };
        let end = (start + self.width).min(self.cells.len());
        &mut self.cells[(start + x).min(end)..end]
    }

    /// Writes a text. Returns the column after it.
    pub(super) fn write(&mut self, (x, y): (usize, usize), text: &str, style: CellStyle) -> usize {
        let letters = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
        let count =
            self.line(x, y).iter_mut().zip(letters).map(|(cell, letter)| *cell = (letter, style)).count();
        x + count
    }

    pub(super) fn clear(&mut self, (x, y): (usize, usize), width: usize, style: CellStyle) {
        self.line(x, y).iter_mut().take(width).for_each(|cell| *cell = (' ', style));
    }

    /// Returns the escape sequences and characters that draw all cells from the upper left corner on.
    fn sequences(&self) -> String {
        let (mut out, mut current) = ("\x1b[H\x1b[0m".to_owned(), CellStyle::default());
        for (y, line) in self.cells.chunks(self.width.max(1)).enumerate() {
            if y > 0 {
                out.push_str("\r\n");
            }
            for &(letter, style) in line {
                if style != current {
                    out.push_str(&style.sequence());
                    current = style;
                }
                out.push(letter);
            }
        }
        out
    }
}

/// The terminal of this process in raw mode on the alternate screen, until this is dropped.
pub(super) struct Terminal(());

static BEFORE: OnceLock<Termios> = OnceLock::new();
/// Alternate screen, hidden cursor, no line wrapping.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &[u8] = b"\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";

impl Terminal {
    /// Enters raw mode. A panic restores the terminal before its message.
    pub(super) fn take() -> io::Result<Self> {
        let mut settings = tcgetattr(io::stdin())?;
        let _ = BEFORE.set(settings.clone());
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            restore();
            hook(panic);
        }));
        settings.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &settings)?;
        let terminal = Self(());
        write(ENTER)?;
        Ok(terminal)
    }

    /// Draws with `draw` at the current size of the terminal.
    pub(super) fn show(&self, draw: impl FnOnce(&mut Screen)) -> io::Result<()> {
        let size = tcgetwinsize(io::stdout())?;
        // A terminal without a size, such as a serial line, gets the default.
        let side = |size: u16, usual: usize| if size == 0 { usual } else { size.into() };
        let mut screen = Screen::new(side(size.ws_col, 80), side(size.ws_row, 24));
        draw(&mut screen);
        write(screen.sequences().as_bytes())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    // Nothing can be done if the terminal is closed.
    let _ = write(LEAVE);
    if let Some(before) = BEFORE.get() {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
    }
}

fn write(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

#[cfg(test)]
impl Screen {
    /// The lines without trailing blanks.
    pub(super) fn lines(&self) -> Vec<String> {
        let text = |line: &[(char, CellStyle)]| line.iter().map(|(letter, _)| *letter).collect::<String>();
        self.cells.chunks(self.width.max(1)).map(|line| text(line).trim_end().to_owned()).collect()
    }

    pub(super) fn is_coloured(&self) -> bool {
        self.cells.iter().any(|(_, style)| style.colour.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_beyond_the_edge_is_cut() {
        let mut screen = Screen::new(4, 2);
        assert_eq!(screen.write((1, 0), "abcdef", CellStyle::default()), 4);
        assert_eq!(
            screen.write((0, 1), "a\x1b\u{7f}b", CellStyle::default()),
            4,
            "no sequence of others gets out"
        );
        for place in [(4, 0), (9, 1), (0, 2), (1, 9)] {
            assert_eq!(screen.write(place, "no", CellStyle::default()), place.0);
        }
        assert_eq!(screen.lines(), [" abc", "a  b"]);
        screen.clear((2, 0), 9, CellStyle::default());
        assert_eq!(screen.lines(), [" a", "a  b"]);
    }

    #[test]
    fn styles_change_where_they_differ() {
        let mut screen = Screen::new(3, 2);
        screen.write((1, 0), "ab", CellStyle::default().bold().for_colour(Colour::LightRed));
        screen.write((0, 1), "cd", CellStyle::default().underlined().reversed());
        assert_eq!(screen.sequences(), "\x1b[H\x1b[0m \x1b[0;1;91mab\r\n\x1b[0;4;7mcd\x1b[0m ");
    }
}
