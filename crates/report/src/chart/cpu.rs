//! Bars of the CPU time per request in a case: user and system time, with the spread of the sum.

use super::bars::{Bar, Bars, Figure, Group};
use super::{Chart, series};
use crate::figure;
use crate::results::Role;
use crate::summary::{CaseSummary, Metric, Row};

/// Draws the proxies of a case: user time full, system time light, a whisker for the range. `id` is unique in the page.
/// `None` if no proxy has a figure.
pub fn cpu_per_request(case: &CaseSummary<'_>, id: &str) -> Option<Chart> {
    let figure = |row: &Row<'_>| {
        let (total, split) = (row.cell(Metric::CpuPerRequest).estimate?, row.cpu_split_us?);
        Some(Figure { total, full: Some(split[0]) })
    };
    let bars = series::looks(&case.proxies()).into_iter().zip(&case.rows);
    let bars = bars.filter(|(_, row)| row.proxy.role != Role::Direct).filter_map(|(look, row)| {
        let figure = match figure(row) {
            Some(figure) => Ok(figure),
            None => Err(row.lacks()?),
        };
        Some(Bar { look, name: row.proxy.name.clone(), figure })
    });
    Bars {
        id: id.to_owned(),
        title: format!("CPU time per {}: {}", case.counted().one(), case.title()),
        axis: "CPU time: user (full), system (light)".to_owned(),
        figure: figure::duration_us,
        groups: vec![Group { name: None, bars: bars.collect() }],
    }
    .chart()
}
