//! Charts as inline SVG. Their colours come from the style of the page, so they follow light, dark and print.
//!
//! Each series has its own colour, dash and marker: no chart can be read only by colour.

/// Ticks of linear and logarithmic axes.
mod axis;
/// Horizontal bars with the spread.
mod bars;
/// Grouped bars of all proxies, case by case.
mod groups;
/// Lines through points.
mod lines;
/// Latency against percentile.
mod percentiles;
/// Colour, dash and marker of each series.
mod series;

pub use bars::cpu_per_request;
pub use groups::Groups;
pub(crate) use lines::Lines;
pub use percentiles::latency;
pub(crate) use series::{Look, looks};
pub use series::{STYLE, legend};

/// Escapes text for use between tags or in a quoted attribute.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
