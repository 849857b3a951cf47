//! Chart of latency against percentile, on the axis 1/(1-p): each step to the right is ten times as rare.
//!
//! A curve ends where fewer than ten observations are beyond, because the rest would show single requests.

use std::fmt::Write as _;

use super::{Chart, axis, escaped, series};
use crate::figure;
use crate::latency::LatencyHistogram;
use crate::summary::{CaseCounts, CaseSummary};

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 290.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 34.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 44.0;
/// Points of a curve per decade.
const POINTS: usize = 12;
/// Minimum number of observations beyond the end of a curve.
const BEYOND: f64 = 10.0;
/// Highest percentile shown: 99.9999%.
const DECADES_MOST: f64 = 6.0;

/// A curve through (decades, µs).
struct Curve {
    look: series::Look,
    points: Vec<(f64, f64)>,
}

/// Draws the latency curves of every proxy in a case; that of `direct` only if the proxies are not slowed. `id` is
/// unique in the page. `None` without observations.
pub fn latency(case: &CaseSummary<'_>, id: &str) -> Option<Chart> {
    let rows =
        || series::looks(&case.proxies()).into_iter().zip(&case.rows).filter(|(_, row)| case.draws(row));
    let curves: Vec<Curve> = rows()
        .map(|(look, row)| Curve { look, points: points(&row.latency) })
        .filter(|curve| !curve.points.is_empty())
        .collect();
    let all = || curves.iter().flat_map(|curve| &curve.points);
    let decades = all().map(|point| point.0).reduce(f64::max)?.ceil().max(1.0);
    let least = all().map(|point| point.1).reduce(f64::min)?;
    let most = all().map(|point| point.1).reduce(f64::max)?;
    let ticks = axis::logarithmic(least, most);
    let (bottom, top) = (ticks.first()?.log10(), ticks.last()?.log10());
    let scale = PercentileScale { decades, bottom, top };

    let mut out = String::new();
    grid(&mut out, &scale, &ticks, case.counted().one());
    for curve in &curves {
        draw(&mut out, &scale, curve);
    }
    // Proxies without a curve are named.
    let lacking =
        rows().filter_map(|(_, row)| Some(format!("{}: {}", escaped(&row.proxy.name), row.lacks()?)));
    for (index, said) in lacking.enumerate() {
        let (x, y) = (WIDTH - RIGHT - 6.0, TOP + 14.0 + 15.0 * index as f64);
        let _ = write!(out, "<text class=\"quiet end\" x=\"{x}\" y=\"{y}\">✕ {said}</text>");
    }
    Some(Chart {
        id: id.to_owned(),
        title: format!("{}: {}", heading(case), case.title()),
        width: WIDTH,
        height: HEIGHT,
        body: out,
        html: None,
        named: rows().map(|(look, row)| (look, row.proxy.name.clone())).collect(),
    })
}

pub fn heading(case: &CaseSummary<'_>) -> &'static str {
    match case.counted() {
        CaseCounts::Messages => "Delay of messages by percentile",
        CaseCounts::Requests | CaseCounts::Both => "Latency by percentile",
    }
}

/// Converts values to positions in the drawing.
struct PercentileScale {
    decades: f64,
    /// Logarithms of the lowest and the highest latency.
    bottom: f64,
    top: f64,
}

impl PercentileScale {
    fn x(&self, decades: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * decades / self.decades
    }

    fn y(&self, us: f64) -> f64 {
        let share = (us.log10() - self.bottom) / (self.top - self.bottom);
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share
    }
}

/// Returns latencies at evenly spaced decades, as far as there are enough observations.
fn points(latency: &LatencyHistogram) -> Vec<(f64, f64)> {
    let end = (latency.count() as f64 / BEYOND).log10().min(DECADES_MOST);
    if end <= 0.0 {
        return Vec::new();
    }
    let count = (end * POINTS as f64) as usize;
    let decades: Vec<f64> = (0..=count).map(|index| index as f64 / POINTS as f64).collect();
    let quantiles: Vec<f64> = decades.iter().map(|decade| 1.0 - 10f64.powf(-decade)).collect();
    let latencies = latency.at_quantiles_us(&quantiles);
    // A logarithmic axis has no 0: less than a microsecond is drawn as one.
    decades.into_iter().zip(latencies.into_iter().map(|us| us.max(1) as f64)).collect()
}

fn grid(out: &mut String, scale: &PercentileScale, ticks: &[f64], counted: &str) {
    let (floor, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    for tick in ticks {
        let y = scale.y(*tick);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>\
             <text class=\"quiet end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT - 7.0,
            y + 4.0,
            round_duration(*tick)
        );
    }
    for decade in 0..=scale.decades as usize {
        let x = scale.x(decade as f64);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{floor}\"/>\
             <text class=\"quiet middle\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            floor + 19.0,
            percentile(decade)
        );
    }
    let _ = write!(
        out,
        "<line class=\"base\" x1=\"{LEFT}\" y1=\"{floor}\" x2=\"{right}\" y2=\"{floor}\"/>\
         <text class=\"quiet middle\" x=\"{:.1}\" y=\"{:.1}\">percentile of {counted}s</text>",
        (LEFT + right) / 2.0,
        HEIGHT - 8.0
    );
}

/// Draws a curve, with a marker at every half decade and at the end.
fn draw(out: &mut String, scale: &PercentileScale, curve: &Curve) {
    let at: Vec<(f64, f64)> =
        curve.points.iter().map(|&(decades, us)| (scale.x(decades), scale.y(us))).collect();
    let path: Vec<String> = at.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    let _ = write!(out, "<path class=\"curve {}\" d=\"M{}\"/>", curve.look.class(), path.join("L"));
    let last = at.len() - 1;
    for (index, (x, y)) in at.into_iter().enumerate() {
        if index % (POINTS / 2) == 0 || index == last {
            out.push_str(&curve.look.marker(x, y));
        }
    }
}

/// Label of a decade: `0%`, `90%`, `99%`, `99.9%` for 0, 1, 2, 3.
fn percentile(decade: usize) -> String {
    match decade {
        0 => "0%".to_owned(),
        1 => "90%".to_owned(),
        2 => "99%".to_owned(),
        _ => format!("99.{}%", "9".repeat(decade - 2)),
    }
}

/// A duration without decimals for a tick: `200 µs`, `5 ms`.
fn round_duration(us: f64) -> String {
    if us < 1000.0 {
        format!("{us:.0} µs")
    } else {
        figure::duration_us(us).replace(".00", "").replace(".0", "")
    }
}
