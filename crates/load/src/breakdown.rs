//! Figures of parts of a run: by status class, URL, name or stage. Recorded only on request.

use std::time::Duration;

use crate::plan::{Breakdown, LoadPlan};
use crate::record::TimeHistogram;
use crate::stages;

/// Maximum number of rows by URL or name. Later ones share the last row: a histogram takes up to 200 KB.
pub(crate) const ROWS_MAX: usize = 256;
/// Label of the shared row.
const OTHERS: &str = "(others)";
/// Rows by status: 2xx to 5xx, other statuses, and no complete response.
const CLASSES: [&str; 6] = ["2xx", "3xx", "4xx", "5xx", "other", "no response"];

/// The rows of a table, and the row of each request in the list.
#[derive(Debug, Clone)]
pub(crate) struct BreakdownTable {
    pub(crate) by: Breakdown,
    pub(crate) labels: Vec<String>,
    /// Row of each request of the list; empty if the row does not depend on it.
    row_of: Vec<u32>,
}

/// Facts about a request that select its row in a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TablePart {
    pub(crate) request: usize,
    /// When the request was due, from the start of the window.
    pub(crate) due: Duration,
    /// Status of a complete response.
    pub(crate) status: Option<u16>,
    pub(crate) is_success: bool,
}

impl BreakdownTable {
    /// Makes a table by stage, by status, or by the list of requests, which have these labels.
    pub(crate) fn new(by: Breakdown, plan: &LoadPlan, labels: impl Iterator<Item = String>) -> Self {
        match by {
            Breakdown::Status => Self::fixed(by, CLASSES.map(str::to_owned).into()),
            Breakdown::Stage => {
                let stages = plan.arrival.stages().iter().enumerate();
                Self::fixed(by, stages.map(|(index, stage)| format!("{}: {stage}", index + 1)).collect())
            }
            Breakdown::Url | Breakdown::Name => Self::listed(by, labels),
        }
    }

    fn fixed(by: Breakdown, labels: Vec<String>) -> Self {
        Self { by, labels, row_of: Vec::new() }
    }

    fn listed(by: Breakdown, all: impl Iterator<Item = String>) -> Self {
        let mut known = std::collections::HashMap::new();
        let (mut labels, mut row_of) = (Vec::new(), Vec::new());
        for label in all {
            let row = *known.entry(label).or_insert_with_key(|label| {
                if labels.len() < ROWS_MAX {
                    labels.push(label.clone());
                } else if labels.len() == ROWS_MAX {
                    labels.push(OTHERS.to_owned());
                }
                labels.len() - 1
            });
            row_of.push(u32::try_from(row).unwrap_or(u32::MAX));
        }
        Self { by, labels, row_of }
    }

    /// Applies a new order of the list.
    pub(crate) fn reorder(&mut self, shuffle: impl FnOnce(&mut [u32])) {
        shuffle(&mut self.row_of);
    }

    fn row(&self, part: &TablePart, plan: &LoadPlan) -> usize {
        match (self.by, part.status) {
            (Breakdown::Status, Some(status @ 200..600)) => usize::from(status / 100 - 2),
            (Breakdown::Status, Some(_)) => 4,
            (Breakdown::Status, None) => 5,
            (Breakdown::Stage, _) => stages::at(plan.arrival.stages(), part.due),
            (Breakdown::Url | Breakdown::Name, _) => {
                self.row_of.get(part.request).map_or(0, |row| *row as usize)
            }
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct BreakdownRow {
    pub(crate) requests: u64,
    pub(crate) failed: u64,
    /// Times of the successful requests; by status, of all complete responses.
    pub(crate) times: TimeHistogram,
}

/// Measurements of all tables, of one thread. Rows are allocated at their first request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rows(Vec<Vec<Option<Box<BreakdownRow>>>>);

impl Rows {
    /// Records a request in every table. `time` is the latency of a complete response.
    #[cold]
    pub(crate) fn record(
        &mut self,
        tables: &[BreakdownTable],
        plan: &LoadPlan,
        part: TablePart,
        time: Option<Duration>,
    ) {
        self.0.resize_with(tables.len(), Vec::new);
        let is_success = part.is_success;
        for (table, rows) in tables.iter().zip(&mut self.0) {
            rows.resize_with(table.labels.len(), || None);
            let Some(row) = rows.get_mut(table.row(&part, plan)) else { continue };
            let row = row.get_or_insert_with(|| Box::new(BreakdownRow::new()));
            row.requests += u64::from(is_success);
            row.failed += u64::from(!is_success);
            if let Some(time) = time.filter(|_| is_success || table.by == Breakdown::Status) {
                row.times.record_growing(time);
            }
        }
    }

    /// Records the age of an unanswered request in each table that has a row for it. `request`: its index, if chosen.
    pub(crate) fn unanswered(
        &mut self,
        tables: &[BreakdownTable],
        plan: &LoadPlan,
        (request, due): (Option<usize>, Duration),
        age: Duration,
    ) {
        self.0.resize_with(tables.len(), Vec::new);
        for (table, rows) in tables.iter().zip(&mut self.0) {
            let is_listed = matches!(table.by, Breakdown::Url | Breakdown::Name);
            if is_listed && request.is_none() {
                continue;
            }
            rows.resize_with(table.labels.len(), || None);
            let part = TablePart { request: request.unwrap_or(0), due, status: None, is_success: false };
            if let Some(row) = rows.get_mut(table.row(&part, plan)) {
                row.get_or_insert_with(|| Box::new(BreakdownRow::new())).times.record_censored(age);
            }
        }
    }

    pub(crate) fn for_table(&self, table: usize) -> impl Iterator<Item = (usize, &BreakdownRow)> {
        let rows = self.0.get(table).into_iter().flatten().enumerate();
        rows.filter_map(|(index, row)| Some((index, row.as_deref()?)))
    }

    pub(crate) fn merge(&mut self, other: Self) {
        if self.0.len() < other.0.len() {
            self.0.resize_with(other.0.len(), Vec::new);
        }
        for (rows, others) in self.0.iter_mut().zip(other.0) {
            if rows.len() < others.len() {
                rows.resize_with(others.len(), || None);
            }
            for (row, other) in rows.iter_mut().zip(others) {
                match (&mut *row, other) {
                    (Some(row), Some(other)) => {
                        row.requests += other.requests;
                        row.failed += other.failed;
                        row.times.merge(&other.times);
                    }
                    (None, other) => *row = other,
                    (Some(_), None) => {}
                }
            }
        }
    }
}

impl BreakdownRow {
    fn new() -> Self {
        Self { requests: 0, failed: 0, times: TimeHistogram::growing() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Arrival, RateStage};

    fn part(request: usize, due_ms: u64, status: Option<u16>) -> TablePart {
        TablePart {
            request,
            due: Duration::from_millis(due_ms),
            status,
            is_success: status.is_some_and(|status| (200..400).contains(&status)),
        }
    }

    #[test]
    fn requests_go_to_the_row_of_their_status_label_and_stage() {
        let stage = |seconds| RateStage { seconds, from_per_second: 1.0, to_per_second: 1.0 };
        let plan = LoadPlan {
            urls: ["a", "b", "a"].map(str::to_owned).into(),
            arrival: Arrival::Stages { stages: vec![stage(1.0), stage(2.0)], seed: None },
            ..LoadPlan::default()
        };
        let tables = [Breakdown::Status, Breakdown::Url, Breakdown::Stage]
            .map(|by| BreakdownTable::new(by, &plan, plan.urls.iter().map(|url| url.to_uppercase())));
        let mut rows = Rows::default();
        let ms = |ms| Some(Duration::from_millis(ms));
        rows.record(&tables, &plan, part(0, 0, Some(200)), ms(1));
        rows.record(&tables, &plan, part(1, 1_000, Some(503)), ms(20_000));
        let mut more = Rows::default();
        more.record(&tables, &plan, part(2, 2_999, Some(204)), ms(3));
        more.record(&tables, &plan, part(1, 3_000, None), None);
        rows.merge(more);
        let told = |table: usize| -> Vec<_> {
            let told = |(index, row): (usize, &BreakdownRow)| {
                (tables[table].labels[index].clone(), row.requests, row.failed, row.times.histogram.len())
            };
            rows.for_table(table).map(told).collect()
        };
        let row = |label: &str, requests, failed, times| (label.to_owned(), requests, failed, times);
        assert_eq!(told(0), [row("2xx", 2, 0, 2), row("5xx", 0, 1, 1), row("no response", 0, 1, 0)]);
        let (_, failed) = rows.for_table(0).nth(1).expect("a row of 5xx");
        assert!(failed.times.histogram.max() >= 20_000_000, "it grows");
        assert_eq!(told(1), [row("A", 2, 0, 2), row("B", 0, 2, 0)]);
        assert_eq!(told(2), [row("1: 1s at 1/s", 1, 0, 1), row("2: 2s at 1/s", 1, 2, 1)]);
    }

    #[test]
    fn rows_beyond_the_limit_are_one() {
        let labels = (0..ROWS_MAX + 10).map(|index| index.to_string());
        let table = BreakdownTable::new(Breakdown::Name, &LoadPlan::default(), labels);
        assert_eq!(table.labels.len(), ROWS_MAX + 1);
        assert_eq!(table.labels[ROWS_MAX], OTHERS);
        assert_eq!(table.row_of[ROWS_MAX..], [ROWS_MAX as u32; 10]);
    }
}
