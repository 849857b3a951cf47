//! The table of the corpus: how many files of each program have which verdict.

use std::collections::BTreeMap;
use std::fmt;

use super::KINDS;
use super::expected::CorpusVerdict;

const COLUMNS: [(CorpusVerdict, &str); 5] = [
    (CorpusVerdict::Equal, "equal"),
    (CorpusVerdict::Untested, "equal, partly untested"),
    (CorpusVerdict::Named, "differs with a remark"),
    (CorpusVerdict::Differs, "differs"),
    (CorpusVerdict::Open, "OPEN"),
];

/// The number of files by program and verdict.
pub(super) struct Verdicts(BTreeMap<(&'static str, CorpusVerdict), usize>);

impl Verdicts {
    pub(super) fn of(all: impl Iterator<Item = (&'static str, CorpusVerdict)>) -> Self {
        let mut counts = BTreeMap::new();
        for key in all {
            *counts.entry(key).or_default() += 1;
        }
        Self(counts)
    }

    fn count(&self, kind: Option<&str>, verdict: Option<CorpusVerdict>) -> usize {
        let fits = |key: &(&str, CorpusVerdict)| {
            kind.is_none_or(|kind| kind == key.0) && verdict.is_none_or(|verdict| verdict == key.1)
        };
        self.0.iter().filter(|(key, _)| fits(key)).map(|(_, count)| count).sum()
    }
}

/// A table of Markdown, as in docs/adapt.md.
impl fmt::Display for Verdicts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads: Vec<&str> = COLUMNS.iter().map(|(_, head)| *head).collect();
        writeln!(formatter, "| program | files | {} |", heads.join(" | "))?;
        writeln!(formatter, "|---|{}", "---|".repeat(1 + COLUMNS.len()))?;
        let rows = KINDS.iter().map(|(kind, _)| (*kind, Some(*kind))).chain([("all", None)]);
        for (name, kind) in rows {
            let counts: Vec<String> = std::iter::once(None)
                .chain(COLUMNS.iter().map(|(verdict, _)| Some(*verdict)))
                .map(|verdict| self.count(kind, verdict).to_string())
                .collect();
            writeln!(formatter, "| {name} | {} |", counts.join(" | "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_has_a_row_and_so_have_all() {
        let all = [
            ("nginx", CorpusVerdict::Equal),
            ("nginx", CorpusVerdict::Equal),
            ("nginx", CorpusVerdict::Open),
            ("caddy", CorpusVerdict::Named),
        ];
        let table = Verdicts::of(all.into_iter()).to_string();
        assert!(table.contains("| nginx | 3 | 2 | 0 | 0 | 0 | 1 |\n"), "{table}");
        assert!(table.ends_with("| all | 4 | 2 | 0 | 1 | 0 | 1 |\n"), "{table}");
    }
}
