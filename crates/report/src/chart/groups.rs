//! Grouped bar chart of all proxies: a group of horizontal bars for each case, with their spread.

use std::fmt::Write as _;

use super::{axis, escaped, series};
use crate::statistics::Estimate;
use crate::summary::{CaseSummary, Row, Summary};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 118.0;
const RIGHT: f64 = 86.0;
const ROW: f64 = 17.0;
const BAR: f64 = 12.0;
const HEAD: f64 = 24.0;
const GAP: f64 = 8.0;
const BOTTOM: f64 = 42.0;

/// Content of a grouped bar chart.
pub struct Groups<'s> {
    /// ID, unique in the page.
    pub id: &'s str,
    /// Title of the chart.
    pub title: &'s str,
    /// Label of the axis.
    pub axis: &'s str,
    /// Selects the cases.
    pub includes: fn(&CaseSummary<'_>) -> bool,
    /// Figure of a proxy.
    pub value: fn(&Row<'_>) -> Option<Estimate>,
    /// Formats a figure with its unit.
    pub figure: fn(f64) -> String,
}

/// Bar of a proxy in a group.
struct Bar<'c> {
    look: series::Look,
    row: &'c Row<'c>,
    /// The figure, or why it is missing.
    figure: Result<Estimate, &'static str>,
}

impl Groups<'_> {
    /// Draws the chart; `None` if nothing was measured.
    pub fn draw(&self, summary: &Summary<'_>) -> Option<String> {
        let cases: Vec<&CaseSummary<'_>> = summary
            .cases
            .iter()
            .filter(|case| (self.includes)(case) && !self.bars(case).is_empty())
            .collect();
        let all = || cases.iter().flat_map(|case| &case.rows).filter_map(self.value);
        let ticks = axis::linear(all().map(|estimate| estimate.high).reduce(f64::max)?, 5);
        let end = *ticks.last()?;
        let rows: usize = cases.iter().map(|case| self.bars(case).len()).sum();
        let floor = rows as f64 * ROW + cases.len() as f64 * (HEAD + GAP);
        let height = floor + BOTTOM;
        let x = |value: f64| LEFT + (WIDTH - LEFT - RIGHT) * value / end;
        let id = self.id;
        let mut out = format!(
            "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" \
             aria-labelledby=\"{id}\"><title id=\"{id}\">{}. The table below has the figures.</title>",
            escaped(self.title)
        );
        for tick in &ticks {
            let at = x(*tick);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{at:.1}\" y1=\"0\" x2=\"{at:.1}\" y2=\"{floor}\"/>\
                 <text class=\"quiet middle\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
                floor + 16.0,
                (self.figure)(*tick)
            );
        }
        let _ = write!(
            out,
            "<text class=\"quiet middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x(end / 2.0),
            floor + 34.0,
            escaped(self.axis)
        );
        let mut top = 0.0;
        for case in &cases {
            top = self.group(&mut out, case, top, x);
        }
        out.push_str("</svg>");
        Some(out)
    }

    /// Bars of all proxies in a case. A missing figure has a word in place of the bar, unless the proxy cannot have
    /// this figure.
    fn bars<'c>(&self, case: &'c CaseSummary<'c>) -> Vec<Bar<'c>> {
        let proxies: Vec<_> = case.rows.iter().map(|row| row.proxy).collect();
        let looks = series::looks(&proxies).into_iter().zip(&case.rows);
        let bar = |(look, row): (series::Look, &'c Row<'c>)| {
            let figure = (self.value)(row).ok_or(row.lacks());
            match figure {
                Err(None) => None,
                Err(Some(word)) => Some(Bar { look, row, figure: Err(word) }),
                Ok(estimate) => Some(Bar { look, row, figure: Ok(estimate) }),
            }
        };
        looks.filter_map(bar).collect()
    }

    /// Draws the bars of a case below its name. Returns the top of the next group.
    fn group(&self, out: &mut String, case: &CaseSummary<'_>, top: f64, x: impl Fn(f64) -> f64) -> f64 {
        let _ = write!(
            out,
            "<rect class=\"head\" x=\"0\" y=\"{:.1}\" width=\"{WIDTH}\" height=\"18\"/>\
             <text class=\"strong\" x=\"6\" y=\"{:.1}\">{}</text>",
            top + 1.0,
            top + 14.5,
            escaped(&case.title())
        );
        let bars = self.bars(case);
        for (index, Bar { look, row, figure }) in bars.iter().enumerate() {
            let middle = top + HEAD + ROW * (index as f64 + 0.5);
            let estimate = match figure {
                Ok(estimate) => estimate,
                Err(word) => {
                    let (name, baseline) = (escaped(&row.proxy.name), middle + 4.0);
                    let (name_at, word_at) = (LEFT - 20.0, LEFT + 6.0);
                    let marker = look.marker(LEFT - 10.0, middle);
                    let _ = write!(
                        out,
                        "<text class=\"end\" x=\"{name_at:.1}\" y=\"{baseline:.1}\">{name}</text>{marker}\
                         <text class=\"quiet\" x=\"{word_at:.1}\" y=\"{baseline:.1}\">{word}</text>"
                    );
                    continue;
                }
            };
            let (low, high, end) = (x(estimate.low), x(estimate.high), x(estimate.median));
            let (tick, baseline) = (middle - 3.0, middle + 4.0);
            let class = look.class();
            let _ = write!(
                out,
                "<text class=\"end\" x=\"{:.1}\" y=\"{baseline:.1}\">{}</text>{}\
                 <rect class=\"user {class}\" x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{BAR}\"/>\
                 <path class=\"whisker\" d=\"M{low:.1} {middle:.1}H{high:.1}M{low:.1} {tick:.1}v6M{high:.1} {tick:.1}v6\"/>\
                 <text x=\"{:.1}\" y=\"{baseline:.1}\">{}</text>",
                LEFT - 20.0,
                escaped(&row.proxy.name),
                look.marker(LEFT - 10.0, middle),
                middle - BAR / 2.0,
                end - LEFT,
                high.max(end) + 6.0,
                (self.figure)(estimate.median)
            );
        }
        let (begin, end) = (top + HEAD, top + HEAD + ROW * bars.len() as f64);
        let _ = write!(out, "<line class=\"base\" x1=\"{LEFT}\" y1=\"{begin}\" x2=\"{LEFT}\" y2=\"{end}\"/>");
        end + GAP
    }
}
