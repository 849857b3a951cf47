//! Text report for a terminal, without escape sequences, so that it can be piped.

use crate::compare::{Comparison, show};
use crate::findings;
use crate::summary::{CaseSummary, Summary};
use crate::table::{self, TextTable};

/// Width at which sentences are wrapped. Tables may be wider.
const WIDTH: usize = 96;

/// Renders the complete report: why nothing is ranked, if so; each case as a table; then findings and caveats.
pub fn render(summary: &Summary<'_>) -> String {
    let mut out = findings::headline(summary).map(|line| wrapped("", &line) + "\n").unwrap_or_default();
    for case in &summary.cases {
        out.push_str(&aligned(&table::figures(case)));
        for more in [table::streams(case), table::errors(case)].iter().flatten() {
            out.push_str(&aligned(more));
        }
        out.push('\n');
    }
    out.push_str(&wrapped("", &legend(summary)));
    out.push('\n');
    for sentence in findings::all(summary) {
        out.push_str(&wrapped("- ", &sentence));
    }
    out
}

/// Comparison of two results: the table, then sentences.
pub fn comparison(comparison: &Comparison<'_>) -> String {
    let mut out = aligned(&show::table(comparison));
    out.push('\n');
    for sentence in show::sentences(comparison) {
        out.push_str(&wrapped("- ", &sentence));
    }
    out
}

/// Explanation of the marks in the tables.
pub fn legend(summary: &Summary<'_>) -> String {
    let rounds = summary.results.conditions.rounds;
    let subject = summary.subject().map_or("the subject", |proxy| proxy.name.as_str());
    let marks = match rounds {
        0 | 1 => "One round: the figures have no spread, and no difference is claimed.".to_owned(),
        _ => format!(
            "Medians of {rounds} rounds; ± is the largest distance of a round from the median. {} marks figures that \
             differ from {subject} by less than the spread.",
            table::EVEN
        ),
    };
    let tells = |case: &CaseSummary<'_>| case.rows.iter().any(|row| row.origin_connections().is_some());
    match summary.cases.iter().any(tells) {
        true => marks + " Connects are connections opened to the origins during the load.",
        false => marks,
    }
}

/// Aligns a table: names left, figures right, marks in their own column.
pub(crate) fn aligned(table: &TextTable) -> String {
    let lines: Vec<&Vec<String>> = std::iter::once(&table.headings).chain(&table.rows).collect();
    let is_marked = |cell: &str| cell.ends_with(table::EVEN);
    let columns: Vec<(usize, bool)> = (0..table.headings.len())
        .map(|column| {
            let cells = || lines.iter().map(|line| line[column].as_str());
            let figure = |cell: &str| cell.trim_end_matches(table::EVEN).trim_end().chars().count();
            (cells().map(figure).max().unwrap_or(0), cells().any(is_marked))
        })
        .collect();
    let mut out = format!("{}\n", table.caption);
    for line in lines {
        let mut text = format!("  {:<1$}", line[0], columns[0].0);
        for (cell, (width, has_marks)) in line.iter().zip(&columns).skip(1) {
            let figure = cell.trim_end_matches(table::EVEN).trim_end();
            let mark = match (has_marks, is_marked(cell)) {
                (false, _) => String::new(),
                (true, false) => "  ".to_owned(),
                (true, true) => format!(" {}", table::EVEN),
            };
            text.push_str(&format!("  {figure:>width$}{mark}"));
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

/// A paragraph or list item, wrapped between words.
fn wrapped(bullet: &str, sentence: &str) -> String {
    let mut out = String::new();
    let mut line = bullet.to_owned();
    let mut is_first = true;
    for word in sentence.split_whitespace() {
        if !is_first && line.chars().count() + 1 + word.chars().count() > WIDTH {
            out.push_str(&line);
            out.push('\n');
            line = " ".repeat(bullet.len());
            is_first = true;
        }
        if !is_first {
            line.push(' ');
        }
        line.push_str(word);
        is_first = false;
    }
    out.push_str(&line);
    out.push('\n');
    out
}
