//! Line chart: latency against rate, and the usage of a proxy over time.

use std::fmt::Write as _;

use super::{Chart, axis, escaped, series::Look};

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 270.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 26.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;
/// Lines with at most this many points have a marker at each.
const MARKED_MOST: usize = 14;

pub(crate) struct LineChart<'s> {
    /// Unique in the page.
    pub(crate) id: &'s str,
    pub(crate) title: &'s str,
    /// Label of the horizontal axis.
    pub(crate) axis: &'s str,
    /// Whether the vertical axis is logarithmic.
    pub(crate) is_logarithmic: bool,
    /// Formats a tick of the horizontal axis.
    pub(crate) across: fn(f64) -> String,
    /// Formats a tick of the vertical axis.
    pub(crate) upwards: fn(f64) -> String,
    /// The look and the points of each line, from left to right.
    pub(crate) lines: Vec<(Look, Vec<(f64, f64)>)>,
}

/// A series with its name, for a chart that also marks missing points.
pub(crate) struct NamedSeries {
    pub(crate) look: Look,
    pub(crate) name: String,
    /// Positions without a point, with the word for each: `no valid round`.
    pub(crate) lacks: Vec<(f64, &'static str)>,
}

impl LineChart<'_> {
    /// Renders the chart for a page that names its series; `None` without points.
    pub(crate) fn draw(&self) -> Option<String> {
        self.chart(&[]).map(|chart| chart.markup())
    }

    /// Draws the chart of these series; `None` without points. A missing point is a cross at the upper edge.
    pub(crate) fn chart(&self, series: &[NamedSeries]) -> Option<Chart> {
        let all = || self.lines.iter().flat_map(|(_, points)| points);
        let lacking = series.iter().flat_map(|one| &one.lacks).map(|(at, _)| *at);
        let most = all().map(|point| point.1).reduce(f64::max)?;
        let across = axis::linear(all().map(|point| point.0).chain(lacking).reduce(f64::max)?, 5);
        let least = all().map(|point| point.1).reduce(f64::min)?;
        let up = if self.is_logarithmic { axis::logarithmic(least, most) } else { axis::linear(most, 4) };
        let (end, bottom, top) = (*across.last()?, *up.first()?, *up.last()?);
        let x = |value: f64| LEFT + (WIDTH - LEFT - RIGHT) * value / end;
        let y = |value: f64| {
            let share = match self.is_logarithmic {
                true => (value.max(bottom) / bottom).ln() / (top / bottom).ln(),
                false => (value - bottom) / (top - bottom),
            };
            HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share
        };
        let mut out = String::new();
        self.grid(&mut out, (&across, &x), (&up, &y));
        for (look, points) in &self.lines {
            let at: Vec<(f64, f64)> = points.iter().map(|&(right, up)| (x(right), y(up))).collect();
            let path: Vec<String> = at.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
            let _ = write!(out, "<path class=\"curve {}\" d=\"M{}\"/>", look.class(), path.join("L"));
            let step = at.len().div_ceil(MARKED_MOST).max(1);
            for (x, y) in at.into_iter().step_by(step) {
                out.push_str(&look.marker(x, y));
            }
        }
        for (index, one) in series.iter().filter(|one| !one.lacks.is_empty()).enumerate() {
            lacks(&mut out, one, index, x);
        }
        let named = series.iter().map(|one| (one.look, one.name.clone())).collect();
        let (id, title) = (self.id.to_owned(), self.title.to_owned());
        Some(Chart { id, title, width: WIDTH, height: HEIGHT, body: out, html: None, named })
    }

    fn grid(
        &self,
        out: &mut String,
        (across, x): (&[f64], &dyn Fn(f64) -> f64),
        (up, y): (&[f64], &dyn Fn(f64) -> f64),
    ) {
        let (floor, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for tick in up {
            let at = y(*tick);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\"/>\
                 <text class=\"quiet end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                LEFT - 7.0,
                at + 4.0,
                (self.upwards)(*tick)
            );
        }
        for tick in across {
            let _ = write!(
                out,
                "<text class=\"quiet middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x(*tick),
                floor + 17.0,
                (self.across)(*tick)
            );
        }
        let _ = write!(
            out,
            "<line class=\"base\" x1=\"{LEFT}\" y1=\"{floor}\" x2=\"{right}\" y2=\"{floor}\"/>\
             <text class=\"quiet middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            (LEFT + right) / 2.0,
            HEIGHT - 8.0,
            escaped(self.axis)
        );
    }
}

/// Draws a cross for each missing point, with its word. `index` keeps the words of several series apart.
fn lacks(out: &mut String, series: &NamedSeries, index: usize, x: impl Fn(f64) -> f64) {
    let class = series.look.class();
    for (at, _) in &series.lacks {
        let _ = write!(
            out,
            "<path class=\"cross {class}\" d=\"M{:.1} {:.1}l7 7m0 -7l-7 7\"/>",
            x(*at) - 3.5,
            TOP - 3.5
        );
    }
    let mut words: Vec<&str> = series.lacks.iter().map(|(_, word)| *word).collect();
    words.dedup();
    let (at, baseline) = (WIDTH - RIGHT - 6.0, TOP + 18.0 + 15.0 * index as f64);
    let said = escaped(&format!("{}: {}", series.name, words.join(", ")));
    let _ = write!(out, "<text class=\"quiet end\" x=\"{at:.1}\" y=\"{baseline:.1}\">✕ {said}</text>");
}
