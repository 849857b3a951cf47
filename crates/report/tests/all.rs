//! Tests of reports of made-up runs.

/// The runs.
mod made;
/// The judge.
mod judge;
/// Page and charts.
mod page;
/// Whole reports.
mod report;
