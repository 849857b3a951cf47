//! Charts: inline in a page, whose style gives them colours for light, dark and print, or as separate files.
//!
//! Each series has its own colour, dash and marker, so that no chart depends on colour alone.

/// Ticks of linear and logarithmic axes.
mod axis;
/// Horizontal bars in groups, as HTML and as SVG.
mod bars;
/// CPU time per request of a case, as bars.
mod cpu;
/// Charts as files.
mod file;
/// Bars of all proxies, case by case.
mod groups;
/// Line charts.
mod lines;
/// Latency against percentile.
mod percentiles;
/// Charts as pixels.
#[cfg(feature = "pictures")]
mod png;
/// Colour, dash and marker of each series.
mod series;

use serde::{Serialize, Serializer};

pub use cpu::cpu_per_request;
pub use file::{DARK, LIGHT, PAPER, Theme};
pub use groups::Groups;
pub(crate) use lines::{LineChart, NamedSeries};
pub use percentiles::{heading as latency_heading, latency};
pub(crate) use series::{Look, looks};
pub use series::{STYLE, has_own_look, legend};

#[derive(Debug, Clone)]
pub struct Chart {
    /// Unique in the page.
    id: String,
    title: String,
    width: f64,
    height: f64,
    /// SVG elements within the width and height.
    body: String,
    /// HTML in place of the SVG in a page, if it fits narrow screens better.
    html: Option<String>,
    named: Vec<(Look, String)>,
}

impl Chart {
    pub fn markup(&self) -> String {
        let Self { id, title, width, height, body, .. } = self;
        let title = escaped(title);
        let said = format!("{title}. The table below has the figures.");
        match &self.html {
            Some(html) => {
                format!("<div class=\"bars\" id=\"{id}\" role=\"img\" aria-label=\"{said}\">{html}</div>")
            }
            None => format!(
                "<svg class=\"chart\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" \
                 aria-labelledby=\"{id}\"><title id=\"{id}\">{said}</title>{body}</svg>"
            ),
        }
    }
}

impl Serialize for Chart {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.markup())
    }
}

/// Escapes text for use between tags or in a quoted attribute.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
