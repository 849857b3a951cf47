//! Tables on the terminal: aligned columns, two spaces apart, indented by two.

use std::fmt::Write;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// Formats a table with a heading for each column. The last column may be notes without a heading.
pub(super) fn table<const N: usize>(columns: [(&str, Align); N], rows: &[[String; N]]) -> String {
    coloured(columns, rows, |_, _| None)
}

/// Formats a table whose cells may have a colour: the escape sequence for a row and column.
pub(super) fn coloured<const N: usize>(
    columns: [(&str, Align); N],
    rows: &[[String; N]],
    colour: impl Fn(usize, usize) -> Option<&'static str>,
) -> String {
    let heading = columns.map(|(heading, _)| heading.to_owned());
    let aligns = columns.map(|(_, align)| align);
    let is_headed = heading.iter().any(|heading| !heading.is_empty());
    let lines: Vec<(Option<usize>, &[String; N])> = is_headed
        .then_some((None, &heading))
        .into_iter()
        .chain(rows.iter().enumerate().map(|(row, cells)| (Some(row), cells)))
        .collect();
    let width = |column: usize| lines.iter().map(|(_, cells)| cells[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for (row, cells) in lines {
        let mut line = String::new();
        for (column, cell) in cells.iter().enumerate() {
            let (width, colour) = (widths[column], row.and_then(|row| colour(row, column)));
            let (on, off) = colour.map_or(("", ""), |colour| (colour, "\x1b[0m"));
            // Writing to a String does not fail.
            let _ = match aligns[column] {
                Align::Left => write!(line, "  {on}{cell:width$}{off}"),
                Align::Right => write!(line, "  {on}{cell:>width$}{off}"),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::Align::{Left, Right};
    use super::*;

    const COLUMNS: [(&str, Align); 3] = [("NAME", Left), ("COUNT", Right), ("", Left)];

    fn rows() -> [[String; 3]; 2] {
        [["a", "1000000", ""], ["längst", "2", "a note"]].map(|row| row.map(str::to_owned))
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let expected = "  NAME      COUNT\n  a       1000000\n  längst        2  a note\n";
        assert_eq!(table(COLUMNS, &rows()), expected);
        let unheaded = table([("", Left), ("", Right), ("", Left)], &rows());
        assert_eq!(unheaded, "  a       1000000\n  längst        2  a note\n");
        assert_eq!(table(COLUMNS, &[]), "  NAME  COUNT\n");
    }

    #[test]
    fn colours_change_nothing_but_the_colour() {
        let text = coloured(COLUMNS, &rows(), |row, column| (row == 0 && column == 1).then_some("\x1b[31m"));
        assert!(text.contains("\x1b[31m1000000\x1b[0m"), "{text}");
        assert_eq!(text.replace("\x1b[31m", "").replace("\x1b[0m", ""), table(COLUMNS, &rows()));
    }
}
