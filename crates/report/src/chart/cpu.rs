//! Bars of the CPU time per request in a case: user and system time, with the spread of the sum.

use super::bars::{Bar, BarFigure, BarGroup, Bars};
use super::{Chart, series};
use crate::figure;
use crate::results::ProxyRole;
use crate::summary::{CaseSummary, Metric, SummaryRow};

/// Draws the proxies of a case: user time solid, system time light, a whisker for the range. `id` is unique in the
/// page. `None` if no proxy has a figure.
pub fn cpu_per_request(case: &CaseSummary<'_>, id: &str) -> Option<Chart> {
    let figure = |row: &SummaryRow<'_>| {
        let (total, split) = (row.cell(Metric::CpuPerRequest).estimate?, row.cpu_split_us?);
        Some(BarFigure { total, full: Some(split[0]) })
    };
    let bars = series::looks(&case.proxies()).into_iter().zip(&case.rows);
    let bars = bars.filter(|(_, row)| row.proxy.role != ProxyRole::Direct).filter_map(|(look, row)| {
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
        groups: vec![BarGroup { name: None, bars: bars.collect() }],
    }
    .chart()
}
