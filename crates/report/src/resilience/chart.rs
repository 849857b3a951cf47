//! Load, faults and events, errors and latency of one proxy on one time axis, as inline SVG.

use std::fmt::Write as _;

use crate::figure;
use crate::resilience::{Mark, ResilienceRun, Results, TimeSlot};

/// Maximum number of points of a line. Further slots are drawn together.
const POINTS_MOST: usize = 600;
const RIGHT: f64 = 12.0;
/// Height of a row of marks, and of the row with the numbers of the phases.
const ROW: f64 = 20.0;
const RATE_HEIGHT: f64 = 130.0;
const LATENCY_HEIGHT: f64 = 170.0;
/// Room between panels, for the legend of the next.
const GAP: f64 = 34.0;
/// Mean width of a letter of a label.
const LETTER: f64 = 6.4;

pub(crate) const STYLE: &str = include_str!("chart.css");

/// A size of the chart. A page has both, and shows the one that fits its window.
#[derive(Debug, Clone, Copy)]
struct Size {
    name: &'static str,
    width: f64,
    /// Room for the labels of the vertical axes.
    left: f64,
    /// Room between parts of a legend.
    gap: f64,
    ticks_most: f64,
}

const BROAD: Size = Size { name: "broad", width: 960.0, left: 72.0, gap: 18.0, ticks_most: 12.0 };
const NARROW: Size = Size { name: "narrow", width: 400.0, left: 56.0, gap: 8.0, ticks_most: 6.0 };

/// Upper and lower ends of the vertical axes: the same for all proxies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct AxisScale {
    rate_most: f64,
    /// Powers of ten of microseconds.
    least: f64,
    most: f64,
}

impl AxisScale {
    pub(crate) fn from_results(results: &Results) -> Self {
        let points: Vec<SlotPoint> =
            results.runs.iter().flat_map(|run| points(run, results.slot_seconds)).collect();
        let due = results.phases.iter().map(|phase| phase.due_per_second);
        let seen = points.iter().flat_map(|point| [point.requests_per_second, point.failed_per_second]);
        let all = || points.iter().flat_map(|point| [point.p50_us, point.p99_us]).filter(|us| *us > 0);
        let least = (all().min().unwrap_or(100) as f64).log10().floor();
        let most = (all().max().unwrap_or(1_000) as f64).log10().ceil().max(least + 1.0);
        Self { rate_most: due.chain(seen).fold(1.0, f64::max), least, most }
    }
}

/// Draws the chart of a proxy, in both sizes.
pub(crate) fn draw(results: &Results, run: &ResilienceRun, scale: AxisScale, id: &str) -> String {
    [BROAD, NARROW].map(|size| drawn(results, run, scale, size, &format!("{id}-{}", size.name))).concat()
}

fn drawn(results: &Results, run: &ResilienceRun, scale: AxisScale, size: Size, id: &str) -> String {
    let seconds = results.phases.last().map_or(1.0, |phase| phase.until_seconds).max(0.1);
    let axis = Axis { seconds, size };
    let rows = rows(&results.marks, axis);
    let marks_height = ROW * (1 + rows.iter().max().map_or(0, |row| row + 1)) as f64;
    let rate_top = marks_height + GAP;
    let latency_top = rate_top + RATE_HEIGHT + GAP;
    let bottom = latency_top + LATENCY_HEIGHT;
    let height = bottom + 40.0;
    let points = points(run, results.slot_seconds);
    let Size { name, width, .. } = size;
    let mut out = format!(
        "<svg class=\"chart time {name}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\"><title id=\"{id}-t\">{} over time</title><desc id=\"{id}-d\">{}</desc>",
        escaped(&run.proxy),
        escaped(&described(results, run))
    );
    phases(&mut out, results, axis, bottom);
    marks(&mut out, &results.marks, &rows, axis, bottom);
    rates(&mut out, results, &points, (axis, scale), rate_top);
    latencies(&mut out, &points, (axis, scale), latency_top);
    times(&mut out, axis, bottom);
    out + "</svg>"
}

/// Describes the chart, for screen readers.
fn described(results: &Results, run: &ResilienceRun) -> String {
    let told = results.phases.iter().zip(&run.phases).map(|(phase, figures)| {
        let p99 = figures
            .p99_us
            .map_or("no success".to_owned(), |us| format!("p99 {}", figure::duration_us(us as f64)));
        format!(
            "{}: {} of {} failed, {p99}",
            phase.name,
            figures.failed(),
            figures.requests + figures.failed()
        )
    });
    told.collect::<Vec<_>>().join("; ")
}

#[derive(Clone, Copy)]
struct Axis {
    seconds: f64,
    size: Size,
}

impl Axis {
    fn x(self, seconds: f64) -> f64 {
        let left = self.size.left;
        left + (self.right() - left) * (seconds / self.seconds).clamp(0.0, 1.0)
    }

    fn right(self) -> f64 {
        self.size.width - RIGHT
    }
}

/// Several slots as a point.
struct SlotPoint {
    middle_seconds: f64,
    requests_per_second: f64,
    failed_per_second: f64,
    p50_us: u64,
    p99_us: u64,
}

fn points(run: &ResilienceRun, slot_seconds: f64) -> Vec<SlotPoint> {
    let together = run.slots.len().div_ceil(POINTS_MOST).max(1);
    let point = |(index, slots): (usize, &[TimeSlot])| {
        let seconds = slots.len() as f64 * slot_seconds;
        let sum = |count: fn(&TimeSlot) -> u64| slots.iter().map(count).sum::<u64>() as f64 / seconds;
        let most = |time: fn(&TimeSlot) -> u64| slots.iter().map(time).max().unwrap_or_default();
        SlotPoint {
            middle_seconds: (index * together) as f64 * slot_seconds + seconds / 2.0,
            requests_per_second: sum(|slot| slot.requests),
            failed_per_second: sum(|slot| slot.failed),
            p50_us: most(|slot| slot.p50_us),
            p99_us: most(|slot| slot.p99_us),
        }
    };
    run.slots.chunks(together).enumerate().map(point).collect()
}

/// Assigns a row to each mark: overlapping marks get different rows.
fn rows(marks: &[Mark], axis: Axis) -> Vec<usize> {
    let mut ends: Vec<f64> = Vec::new();
    let row = |mark: &Mark| {
        let from = axis.x(mark.from_seconds);
        let bar = mark.until_seconds.map_or(from, |until| axis.x(until));
        let width = label_width(&mark.text) + 8.0;
        let (begin, end) = match side(mark, axis) {
            LabelSide::Behind => (from, bar.max(from + width)),
            LabelSide::Before => (from - width, bar.max(from)),
            LabelSide::Across => (axis.right() - width, axis.right()),
        };
        match ends.iter().position(|taken| *taken <= begin) {
            Some(row) => {
                ends[row] = end;
                row
            }
            None => {
                ends.push(end);
                ends.len() - 1
            }
        }
    };
    marks.iter().map(row).collect()
}

/// Position of a mark's label: behind its line, before it, or, if neither has room, across it.
enum LabelSide {
    Behind,
    Before,
    Across,
}

fn side(mark: &Mark, axis: Axis) -> LabelSide {
    let (from, width) = (axis.x(mark.from_seconds), 4.0 + label_width(&mark.text));
    match () {
        () if from + width <= axis.right() => LabelSide::Behind,
        () if from >= width => LabelSide::Before,
        () => LabelSide::Across,
    }
}

fn label_width(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER
}

/// Draws the bands of the phases, with their numbers.
fn phases(out: &mut String, results: &Results, axis: Axis, bottom: f64) {
    for (index, phase) in results.phases.iter().enumerate() {
        let (from, until) = (axis.x(phase.from_seconds), axis.x(phase.until_seconds));
        if index % 2 == 1 {
            put(
                out,
                format_args!(
                    "<rect class=\"head\" x=\"{from:.1}\" y=\"0\" width=\"{:.1}\" height=\"{bottom}\"/>",
                    until - from
                ),
            );
        }
        let middle = f64::midpoint(from, until);
        put(
            out,
            format_args!("<text class=\"middle strong\" x=\"{middle:.1}\" y=\"14\">{}</text>", index + 1),
        );
    }
}

fn marks(out: &mut String, marks: &[Mark], rows: &[usize], axis: Axis, bottom: f64) {
    for (mark, row) in marks.iter().zip(rows) {
        let top = ROW * (*row as f64 + 1.0);
        let from = axis.x(mark.from_seconds);
        put(out, format_args!("<path class=\"cut\" d=\"M{from:.1} {top:.1}V{bottom}\"/>"));
        if let Some(until) = mark.until_seconds {
            let width = axis.x(until) - from;
            put(
                out,
                format_args!(
                    "<rect class=\"during\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{}\"/>",
                    top + 2.0,
                    ROW - 4.0
                ),
            );
        }
        let (x, class) = match side(mark, axis) {
            LabelSide::Behind => (from + 4.0, ""),
            LabelSide::Before => (from - 4.0, "end"),
            LabelSide::Across => (axis.right(), "end"),
        };
        put(
            out,
            format_args!(
                "<text class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
                top + 14.0,
                escaped(&mark.text)
            ),
        );
    }
}

/// Panel of the rates: due, successful and failed.
fn rates(
    out: &mut String,
    results: &Results,
    points: &[SlotPoint],
    (axis, scale): (Axis, AxisScale),
    top: f64,
) {
    let y = |rate: f64| top + RATE_HEIGHT * (1.0 - rate / (scale.rate_most * 1.05));
    legend(out, axis.size, top, "requests/s", &[("s0", "successful"), ("s1", "failed"), ("due", "due")]);
    for part in [0.0, 0.5, 1.0] {
        let rate = scale.rate_most * part;
        grid(out, axis, y(rate), &figure::rate(rate));
    }
    let mut path = String::new();
    for phase in &results.phases {
        let y = y(phase.due_per_second);
        let verb = if path.is_empty() { 'M' } else { 'L' };
        put(
            &mut path,
            format_args!("{verb}{:.1} {y:.1}H{:.1}", axis.x(phase.from_seconds), axis.x(phase.until_seconds)),
        );
    }
    put(out, format_args!("<path class=\"due\" d=\"{path}\"/>"));
    let series = |value: fn(&SlotPoint) -> f64| {
        line(points.iter().map(|point| Some((axis.x(point.middle_seconds), y(value(point))))))
    };
    put(out, format_args!("<path class=\"curve s0\" d=\"{}\"/>", series(|point| point.requests_per_second)));
    put(out, format_args!("<path class=\"curve s1\" d=\"{}\"/>", series(|point| point.failed_per_second)));
}

/// Panel of the latencies, with a logarithmic axis.
fn latencies(out: &mut String, points: &[SlotPoint], (axis, scale): (Axis, AxisScale), top: f64) {
    let AxisScale { least, most, .. } = scale;
    let y = |us: u64| top + LATENCY_HEIGHT * (1.0 - ((us as f64).log10() - least) / (most - least));
    legend(out, axis.size, top, "latency from the due time", &[("s0", "p50"), ("s3", "p99")]);
    for decade in (least as i32)..=(most as i32) {
        let us = 10f64.powi(decade);
        grid(out, axis, y(us as u64), &figure::duration_us(us));
    }
    let series = |value: fn(&SlotPoint) -> u64| {
        line(points.iter().map(|point| {
            let us = value(point);
            (us > 0).then(|| (axis.x(point.middle_seconds), y(us)))
        }))
    };
    put(out, format_args!("<path class=\"curve s0\" d=\"{}\"/>", series(|point| point.p50_us)));
    put(out, format_args!("<path class=\"curve s3\" d=\"{}\"/>", series(|point| point.p99_us)));
}

/// A path through points, interrupted where one is missing.
fn line(points: impl Iterator<Item = Option<(f64, f64)>>) -> String {
    let mut path = String::new();
    let mut is_open = false;
    for point in points {
        let Some((x, y)) = point else {
            is_open = false;
            continue;
        };
        let verb = if is_open { 'L' } else { 'M' };
        put(&mut path, format_args!("{verb}{x:.1} {y:.1}"));
        is_open = true;
    }
    path
}

/// Draws the legend of a panel above it.
fn legend(out: &mut String, size: Size, top: f64, what: &str, lines: &[(&str, &str)]) {
    let Size { left, gap, .. } = size;
    let y = top - 10.0;
    put(out, format_args!("<text class=\"strong\" x=\"{left}\" y=\"{y:.1}\">{what}</text>"));
    // Bold text is wider.
    let mut x = left + label_width(what) * 1.15 + gap;
    for (class, name) in lines {
        let class = if *class == "due" { "due".to_owned() } else { format!("curve {class}") };
        put(out, format_args!("<path class=\"{class}\" d=\"M{x:.1} {:.1}h24\"/>", y - 4.0));
        put(out, format_args!("<text x=\"{:.1}\" y=\"{y:.1}\">{name}</text>", x + 30.0));
        x += 30.0 + label_width(name) + gap;
    }
}

fn grid(out: &mut String, axis: Axis, y: f64, label: &str) {
    let left = axis.size.left;
    put(out, format_args!("<path class=\"grid\" d=\"M{left} {y:.1}H{}\"/>", axis.right()));
    put(
        out,
        format_args!("<text class=\"quiet end\" x=\"{}\" y=\"{:.1}\">{label}</text>", left - 8.0, y + 4.0),
    );
}

fn times(out: &mut String, axis: Axis, bottom: f64) {
    let step = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0]
        .into_iter()
        .find(|step| axis.seconds / step <= axis.size.ticks_most)
        .unwrap_or(300.0);
    let count = (axis.seconds / step) as usize;
    for index in 0..=count {
        let seconds = index as f64 * step;
        let x = axis.x(seconds);
        put(out, format_args!("<path class=\"base\" d=\"M{x:.1} {bottom}v5\"/>"));
        put(
            out,
            format_args!(
                "<text class=\"quiet middle\" x=\"{x:.1}\" y=\"{:.1}\">{seconds} s</text>",
                bottom + 20.0
            ),
        );
    }
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(text: &str, from_seconds: f64, until_seconds: Option<f64>) -> Mark {
        Mark { text: text.to_owned(), from_seconds, until_seconds }
    }

    #[test]
    fn marks_that_overlap_are_in_different_rows() {
        let axis = Axis { seconds: 10.0, size: BROAD };
        let marks = [
            mark("a", 1.0, Some(5.0)),
            mark("b", 3.0, None),
            mark("c", 6.0, Some(9.0)),
            mark("a long label at the end", 9.9, None),
        ];
        assert_eq!(rows(&marks, axis), [0, 1, 0, 1]);
        assert_eq!(rows(&[], axis), [0usize; 0]);
    }

    #[test]
    fn a_line_is_interrupted_where_nothing_succeeded() {
        let points = [Some((1.0, 2.0)), Some((2.0, 2.0)), None, Some((4.0, 1.0))];
        assert_eq!(line(points.into_iter()), "M1.0 2.0L2.0 2.0M4.0 1.0");
    }
}
