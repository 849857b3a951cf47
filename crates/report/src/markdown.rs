//! Markdown report, with the tables and sentences of the terminal report.

use crate::compare::{Comparison, show};
use crate::figure;
use crate::findings;
use crate::summary::Summary;
use crate::table::{self, TextTable};
use crate::text;

pub fn render(summary: &Summary<'_>) -> String {
    let results = summary.results;
    let mut out = format!("# {}\n\n", escaped(&results.title));
    out.push_str(&format!(
        "{}, {}, {} cores, {}. Measured by {} with `{}`.\n\n",
        figure::date(results.started_unix_seconds),
        escaped(&results.machine.processor),
        results.machine.cores,
        escaped(&results.machine.kernel),
        escaped(&results.measured_by),
        results.command,
    ));
    out.extend(findings::headline(summary).map(|line| format!("**{}**\n\n", escaped(&line))));
    for case in &summary.cases {
        out.push_str(&format!("## {}\n\n{}\n", case.title(), rows(&table::figures(case))));
        for more in [table::streams(case), table::errors(case)].iter().flatten() {
            out.push_str(&format!("{}\n\n{}\n", escaped(&more.caption), rows(more)));
        }
    }
    out.push_str(&format!("{}\n\n", text::legend(summary)));
    for sentence in findings::all(summary) {
        out.push_str(&format!("- {}\n", escaped(&sentence)));
    }
    out
}

pub fn comparison(comparison: &Comparison<'_>) -> String {
    let table = show::table(comparison);
    let mut out = format!("# {}\n\n{}\n", escaped(&table.caption), rows(&table));
    for sentence in show::sentences(comparison) {
        out.push_str(&format!("- {}\n", escaped(&sentence)));
    }
    out
}

fn rows(table: &TextTable) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| escaped(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut out = line(&table.headings);
    out.push_str(&format!("|---|{}\n", "---:|".repeat(table.headings.len().saturating_sub(1))));
    for row in &table.rows {
        out.push_str(&line(row));
    }
    out
}

/// Escapes text that Markdown would take for markup.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' | '|' | '*' | '_' | '`' | '[' | ']' | '#' => out.extend(['\\', character]),
            '<' => out.push_str("&lt;"),
            '\n' => out.push(' '),
            _ => out.push(character),
        }
    }
    out
}
