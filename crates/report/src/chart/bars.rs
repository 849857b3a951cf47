//! Bar chart of the CPU time per request: user and system time, with the spread of the sum.

use std::fmt::Write as _;

use super::{axis, escaped, series};
use crate::figure;
use crate::results::Role;
use crate::statistics::Estimate;
use crate::summary::{CaseSummary, Metric, Row};

const WIDTH: f64 = 520.0;
const LEFT: f64 = 96.0;
const RIGHT: f64 = 78.0;
const ROW: f64 = 34.0;
const BAR: f64 = 20.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 40.0;

/// A proxy and its figure with user and sum; `None` without a valid measurement.
type Bar<'c> = (series::Look, &'c Row<'c>, Option<(Estimate, [f64; 2])>);

/// Draws the proxies of a case: user time dark, system time light, a whisker for the range. `id` is unique in the page.
/// `None` if no proxy has a figure.
pub fn cpu_per_request(case: &CaseSummary<'_>, id: &str) -> Option<String> {
    let proxies: Vec<_> = case.rows.iter().map(|row| row.proxy).collect();
    let figure = |row: &Row<'_>| Some((row.cell(Metric::CpuPerRequest).estimate?, row.cpu_split_us?));
    let bars: Vec<Bar<'_>> = series::looks(&proxies)
        .into_iter()
        .zip(&case.rows)
        .filter(|(_, row)| row.proxy.role != Role::Direct)
        .map(|(look, row)| (look, row, figure(row)))
        .filter(|(_, row, figure)| figure.is_some() || row.lacks().is_some())
        .collect();
    let figures = bars.iter().filter_map(|(_, _, figure)| figure.as_ref());
    let most = figures.map(|(total, _)| total.high).reduce(f64::max)?;
    let ticks = axis::linear(most, 4);
    let end = *ticks.last()?;
    let x = |us: f64| LEFT + (WIDTH - LEFT - RIGHT) * us / end;
    let floor = TOP + ROW * bars.len() as f64;
    let height = floor + BOTTOM;
    let title = format!("CPU time per request: {}", case.title());
    let mut out = format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" \
         aria-labelledby=\"{id}\"><title id=\"{id}\">{}. The table below has the figures.</title>",
        escaped(&title)
    );
    for tick in &ticks {
        let at = x(*tick);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{floor}\"/>\
             <text class=\"quiet middle\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
            floor + 16.0,
            short_number(*tick)
        );
    }
    let _ = write!(
        out,
        "<text class=\"quiet middle\" x=\"{:.1}\" y=\"{:.1}\">µs of CPU time: user (full), system (light)</text>",
        x(end / 2.0),
        floor + 33.0
    );
    for (index, (look, row, figure)) in bars.iter().enumerate() {
        let middle = TOP + ROW * (index as f64 + 0.5);
        out.push_str(&name(row, middle));
        match figure {
            Some((total, split)) => out.push_str(&bar(*look, total, *split, middle, x)),
            None => {
                let (at, baseline, word) = (LEFT + 6.0, middle + 4.0, row.lacks().unwrap_or_default());
                let _ = write!(out, "<text class=\"quiet\" x=\"{at:.1}\" y=\"{baseline:.1}\">{word}</text>");
            }
        }
    }
    let _ =
        write!(out, "<line class=\"base\" x1=\"{LEFT}\" y1=\"{TOP}\" x2=\"{LEFT}\" y2=\"{floor}\"/></svg>");
    Some(out)
}

fn bar(look: series::Look, total: &Estimate, split: [f64; 2], middle: f64, x: impl Fn(f64) -> f64) -> String {
    let user = x(split[0]);
    let end = x(total.median);
    let (low, high) = (x(total.low), x(total.high));
    let class = look.class();
    let (top, tick, baseline) = (middle - BAR / 2.0, middle - 4.0, middle + 4.0);
    let parts = format!(
        "<rect class=\"user {class}\" x=\"{LEFT}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{BAR}\"/>\
         <rect class=\"system {class}\" x=\"{user:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{BAR}\"/>",
        user - LEFT,
        end - user
    );
    let whisker = format!(
        "<path class=\"whisker\" d=\"M{low:.1} {middle:.1}H{high:.1}M{low:.1} {tick:.1}v8M{high:.1} {tick:.1}v8\"/>"
    );
    let value = format!(
        "<text x=\"{:.1}\" y=\"{baseline:.1}\">{}</text>",
        high.max(end) + 7.0,
        figure::duration_us(total.median)
    );
    parts + &whisker + &value
}

fn name(row: &Row<'_>, middle: f64) -> String {
    let (at, baseline, name) = (LEFT - 8.0, middle + 4.0, escaped(&row.proxy.name));
    format!("<text class=\"end\" x=\"{at:.1}\" y=\"{baseline:.1}\">{name}</text>")
}

/// A number for a tick: `2.5`, `20`.
fn short_number(value: f64) -> String {
    format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').to_owned()
}
