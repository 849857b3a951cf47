//! Turns the results of a lab run into what people read: a terminal table, Markdown, and one HTML page.
//!
//! Pure: results in, text out. It reads no file, no clock and no network, and measures nothing.

/// What a run measured, as `results.json` holds it.
pub mod results;
/// Latencies as counted buckets: percentiles and merging.
pub mod latency;
/// Medians, intervals, and whether two of them differ.
pub mod statistics;
/// Requests per second against workers: the Universal Scalability Law.
pub mod scaling;
/// Where latency against rate bends.
pub mod knee;
/// Results by case and proxy: each figure with its spread, and how it stands beside Vanward's.
pub mod summary;
/// Whether figures may be ranked, and if not, why.
pub mod judge;
/// What others published of the same experiments, and whether it can be ranked.
pub mod published;
/// What stands out, in sentences.
pub mod findings;
/// Two results beside each other.
pub mod compare;
/// Numbers as people read them, with their units.
pub mod figure;
/// Rows and columns, before they become text, Markdown or HTML.
pub mod table;
/// The terminal report.
pub mod text;
/// The Markdown report.
pub mod markdown;
/// Charts as inline SVG.
pub mod chart;
/// What a page shows above the single cases.
pub mod overview;
/// Files for other programs.
pub mod export;
/// The HTML page.
pub mod page;

pub use results::Results;
pub use summary::Summary;
