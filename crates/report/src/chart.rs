//! Charts as inline SVG. Colours come from the page's style, so that they follow light, dark and print.
//!
//! Each series has a colour, a dash and a marker of its own: no chart needs its colours to be told apart.

/// Ticks of linear and logarithmic axes.
mod axis;
/// Horizontal bars with their spread.
mod bars;
/// Every proxy beside the others, case by case.
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

/// Text that may stand between tags or in a quoted attribute.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
