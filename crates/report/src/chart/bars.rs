//! Horizontal bars in groups, each with its own axis. As HTML they shrink with the screen, but not their text.

use std::fmt::Write as _;

use super::{Chart, Look, axis, escaped};
use crate::statistics::Estimate;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 118.0;
const RIGHT: f64 = 96.0;
const ROW: f64 = 18.0;
const BAR: f64 = 12.0;
const HEAD: f64 = 24.0;
const TICKS: f64 = 24.0;
const BOTTOM: f64 = 18.0;
const STEPS: usize = 4;

pub(super) struct Bars {
    pub(super) id: String,
    pub(super) title: String,
    /// Label of the axes, with the unit.
    pub(super) axis: String,
    /// Formats a figure with its unit.
    pub(super) figure: fn(f64) -> String,
    pub(super) groups: Vec<BarGroup>,
}

/// Bars that share an axis.
pub(super) struct BarGroup {
    /// `None` for a single group.
    pub(super) name: Option<String>,
    pub(super) bars: Vec<Bar>,
}

pub(super) struct Bar {
    pub(super) look: Look,
    pub(super) name: String,
    /// The figure, or the reason why there is none.
    pub(super) figure: Result<BarFigure, &'static str>,
}

pub(super) struct BarFigure {
    pub(super) total: Estimate,
    /// The part that is drawn solid; the rest is light. `None`: everything.
    pub(super) full: Option<f64>,
}

/// Scale of a group: ticks from 0 to the end.
struct BarScale {
    ticks: Vec<f64>,
    end: f64,
}

impl BarScale {
    /// `None` if no bar has a figure.
    fn from_group(group: &BarGroup) -> Option<Self> {
        let highs = group.bars.iter().filter_map(|bar| Some(bar.figure.as_ref().ok()?.total.high));
        let ticks = axis::linear(highs.reduce(f64::max)?, STEPS);
        let end = *ticks.last()?;
        Some(Self { ticks, end })
    }

    fn percent(&self, value: f64) -> f64 {
        100.0 * value / self.end
    }
}

impl Bars {
    /// Draws the chart; `None` if nothing was measured.
    pub(super) fn chart(self) -> Option<Chart> {
        let has_figures = |group: &BarGroup| group.bars.iter().any(|bar| bar.figure.is_ok());
        self.groups.iter().any(has_figures).then(|| {
            let (body, height) = self.svg();
            let mut named: Vec<(Look, String)> = Vec::new();
            for bar in self.groups.iter().flat_map(|group| &group.bars) {
                if !named.iter().any(|(_, name)| *name == bar.name) {
                    named.push((bar.look, bar.name.clone()));
                }
            }
            let html = Some(self.html());
            Chart { id: self.id, title: self.title, width: WIDTH, height, body, html, named }
        })
    }

    fn tick(&self, value: f64) -> String {
        if value == 0.0 { "0".to_owned() } else { (self.figure)(value) }
    }

    fn html(&self) -> String {
        let mut out = String::new();
        for group in &self.groups {
            let scale = BarScale::from_group(group);
            let steps = scale.as_ref().map_or(1, |scale| scale.ticks.len() - 1);
            let _ = write!(out, "<div class=\"group\" style=\"--n:{steps}\">");
            if let Some(name) = &group.name {
                let _ = write!(out, "<p>{}</p>", escaped(name));
            }
            for bar in &group.bars {
                self.html_bar(&mut out, bar, scale.as_ref());
            }
            if let Some(scale) = scale {
                out.push_str("<div class=\"ticks\">");
                for tick in &scale.ticks {
                    let (at, figure) = (scale.percent(*tick), self.tick(*tick));
                    let _ = write!(out, "<span style=\"left:{at:.1}%\">{figure}</span>");
                }
                out.push_str("</div>");
            }
            out.push_str("</div>");
        }
        let _ = write!(out, "<p class=\"axis\">{}</p>", escaped(&self.axis));
        out
    }

    fn html_bar(&self, out: &mut String, bar: &Bar, scale: Option<&BarScale>) {
        let _ = write!(
            out,
            "<div class=\"bar\"><span>{}<s class=\"{} {}\"></s></span>",
            escaped(&bar.name),
            bar.look.class(),
            bar.look.shape_class()
        );
        match (&bar.figure, scale) {
            (Ok(BarFigure { total, full }), Some(scale)) => {
                let class = bar.look.class();
                let percent = |value| scale.percent(value);
                let (from, low, high) = (full.unwrap_or(total.median), total.low, total.high);
                let _ = write!(
                    out,
                    "<span class=\"track\"><i class=\"{class}\" style=\"width:{:.1}%\"></i>",
                    percent(from)
                );
                if full.is_some() {
                    let (left, width) = (percent(from), percent(total.median - from));
                    let _ = write!(
                        out,
                        "<i class=\"light {class}\" style=\"left:{left:.1}%;width:{width:.1}%\"></i>"
                    );
                }
                if high > low {
                    let (left, width) = (percent(low), percent(high - low));
                    let _ = write!(out, "<b style=\"left:{left:.1}%;width:{width:.1}%\"></b>");
                }
                let (end, figure) = (percent(high.max(total.median)), (self.figure)(total.median));
                let _ = write!(out, "<em style=\"left:{end:.1}%\">{figure}</em></span></div>");
            }
            (figure, _) => {
                let word = figure.as_ref().err().copied().unwrap_or_default();
                let _ = write!(out, "<span class=\"track none\"><em>{word}</em></span></div>");
            }
        }
    }

    /// Returns SVG elements, and their height.
    fn svg(&self) -> (String, f64) {
        let mut out = String::new();
        let mut top = 0.0;
        for group in &self.groups {
            if let Some(name) = &group.name {
                let _ = write!(
                    out,
                    "<rect class=\"head\" x=\"0\" y=\"{:.1}\" width=\"{WIDTH}\" height=\"18\"/>\
                     <text class=\"strong\" x=\"6\" y=\"{:.1}\">{}</text>",
                    top + 1.0,
                    top + 14.5,
                    escaped(name)
                );
                top += HEAD;
            }
            let scale = BarScale::from_group(group);
            let floor = top + ROW * group.bars.len() as f64;
            let x = |scale: &BarScale, value: f64| LEFT + (WIDTH - LEFT - RIGHT) * value / scale.end;
            for tick in scale.iter().flat_map(|scale| &scale.ticks) {
                let at = scale.as_ref().map_or(LEFT, |scale| x(scale, *tick));
                let _ = write!(
                    out,
                    "<line class=\"grid\" x1=\"{at:.1}\" y1=\"{top:.1}\" x2=\"{at:.1}\" y2=\"{floor:.1}\"/>\
                     <text class=\"quiet middle\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
                    floor + 14.0,
                    self.tick(*tick)
                );
            }
            for (index, bar) in group.bars.iter().enumerate() {
                let middle = top + ROW * (index as f64 + 0.5);
                self.svg_bar(&mut out, bar, middle, |value| {
                    scale.as_ref().map_or(LEFT, |scale| x(scale, value))
                });
            }
            let _ = write!(
                out,
                "<line class=\"base\" x1=\"{LEFT}\" y1=\"{top:.1}\" x2=\"{LEFT}\" y2=\"{floor:.1}\"/>"
            );
            top = floor + if scale.is_some() { TICKS } else { 0.0 };
        }
        let (middle, baseline) = (LEFT + (WIDTH - LEFT - RIGHT) / 2.0, top + 8.0);
        let _ = write!(
            out,
            "<text class=\"quiet middle\" x=\"{middle:.1}\" y=\"{baseline:.1}\">{}</text>",
            escaped(&self.axis)
        );
        (out, top + BOTTOM)
    }

    fn svg_bar(&self, out: &mut String, bar: &Bar, middle: f64, x: impl Fn(f64) -> f64) {
        let (at, baseline, top, tick) = (LEFT - 20.0, middle + 4.0, middle - BAR / 2.0, middle - 3.0);
        let _ = write!(
            out,
            "<text class=\"end\" x=\"{at:.1}\" y=\"{baseline:.1}\">{}</text>{}",
            escaped(&bar.name),
            bar.look.marker(LEFT - 10.0, middle)
        );
        let BarFigure { total, full } = match &bar.figure {
            Ok(figure) => figure,
            Err(word) => {
                let (width, inside) = (WIDTH - LEFT - RIGHT, LEFT + 6.0);
                let _ = write!(
                    out,
                    "<rect class=\"none\" x=\"{LEFT}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{BAR}\"/>\
                     <text class=\"quiet\" x=\"{inside:.1}\" y=\"{baseline:.1}\">{word}</text>"
                );
                return;
            }
        };
        let class = bar.look.class();
        let (from, end) = (x(full.unwrap_or(total.median)), x(total.median));
        let (low, high) = (x(total.low), x(total.high));
        let _ = write!(
            out,
            "<rect class=\"user {class}\" x=\"{LEFT}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{BAR}\"/>",
            from - LEFT
        );
        if full.is_some() {
            let width = end - from;
            let _ = write!(
                out,
                "<rect class=\"system {class}\" x=\"{from:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{BAR}\"/>"
            );
        }
        let _ = write!(
            out,
            "<path class=\"whisker\" d=\"M{low:.1} {middle:.1}H{high:.1}M{low:.1} {tick:.1}v6M{high:.1} {tick:.1}v6\"/>\
             <text x=\"{:.1}\" y=\"{baseline:.1}\">{}</text>",
            high.max(end) + 6.0,
            (self.figure)(total.median)
        );
    }
}
