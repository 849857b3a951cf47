//! Report: turns the results of a lab run into a terminal table, Markdown, and an HTML page.
//!
//! Pure: results in, text out. No files, clock, network or measurements.

/// Results of a run, as in `results.json`.
pub mod results;
/// Latencies as counted buckets: percentiles and merging.
pub mod latency;
/// Medians, intervals, and significant differences.
pub mod statistics;
/// Universal Scalability Law: requests per second against workers.
pub mod scaling;
/// Knee of latency against rate.
pub mod knee;
/// Summary: figures by case and proxy with their spread, and the comparison with Vanward.
pub mod summary;
/// Judge: whether figures may be ranked.
pub mod judge;
/// Published figures of the same experiments, and their judgement.
pub mod published;
/// Findings as sentences.
pub mod findings;
/// Leaders of each metric.
pub mod leaders;
/// Comparison of two results.
pub mod compare;
/// Formats numbers with units.
pub mod figure;
/// Parses durations, sizes and rates.
pub mod quantity;
/// Conditions on figures: `p99 < 50ms`.
pub mod condition;
/// Tables, before they become text, Markdown or HTML.
pub mod table;
/// Text report for a terminal.
pub mod text;
/// Markdown report.
pub mod markdown;
/// Charts as inline SVG.
pub mod chart;
/// Overview of a page: all cases together.
pub mod overview;
/// Exports as files for other programs.
pub mod export;
/// HTML page.
pub mod page;
/// JUnit reports for CI servers.
pub mod junit;
/// Results of resilience runs, as text and as a page.
pub mod resilience;
/// HTML page of runs of the load generator.
pub mod load_page;
/// HTML page of a proof that a proxy answers like another one.
pub mod proof_page;

pub use results::Results;
pub use summary::Summary;
