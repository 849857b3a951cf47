//! The terminal report. Plain text without escapes: it pipes as it reads.

use crate::findings;
use crate::summary::Summary;
use crate::table::{self, Table};

/// Every case as a table, then what stands out and what a reader has to know.
pub fn render(summary: &Summary<'_>) -> String {
    let mut out = String::new();
    for case in &summary.cases {
        out.push_str(&aligned(&table::figures(case)));
        out.push('\n');
    }
    out.push_str(&legend(summary));
    out.push_str("\n\n");
    for sentence in findings::sentences(summary).iter().chain(&findings::caveats(summary)) {
        out.push_str(&wrapped(sentence, 100));
    }
    out
}

/// What the marks in the tables mean.
pub fn legend(summary: &Summary<'_>) -> String {
    let rounds = summary.results.conditions.rounds;
    let subject = summary.subject().map_or("the subject", |proxy| proxy.name.as_str());
    match rounds {
        0 | 1 => "One round: the figures have no spread, and no difference is claimed.".to_owned(),
        _ => format!(
            "Medians of {rounds} rounds; ± is the farthest from it. {} marks what differs from {subject} by less \
             than the spread.",
            table::EVEN
        ),
    }
}

/// Columns as wide as their widest cell; names to the left, figures to the right.
fn aligned(table: &Table) -> String {
    let lines: Vec<&Vec<String>> = std::iter::once(&table.headings).chain(&table.rows).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..table.headings.len()).map(width).collect();
    let mut out = format!("{}\n", table.caption);
    for line in lines {
        let mut text = format!("  {:<1$}", line[0], widths[0]);
        for (cell, width) in line.iter().zip(&widths).skip(1) {
            text.push_str(&format!("  {cell:>width$}"));
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

/// A list item, broken between words.
fn wrapped(sentence: &str, width: usize) -> String {
    let mut out = String::new();
    let mut line = "-".to_owned();
    for word in sentence.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > width {
            out.push_str(&line);
            out.push('\n');
            line = " ".to_owned();
        }
        line.push(' ');
        line.push_str(word);
    }
    out.push_str(&line);
    out.push('\n');
    out
}
