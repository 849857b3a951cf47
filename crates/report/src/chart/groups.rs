//! Bars of all proxies: a group for each case.

use super::bars::{Bar, BarFigure, BarGroup, Bars};
use super::{Chart, series};
use crate::statistics::Estimate;
use crate::summary::{CaseSummary, Summary, SummaryRow};

pub struct Groups<'s> {
    /// Unique in the page.
    pub id: &'s str,
    pub title: &'s str,
    pub axis: &'s str,
    pub includes: fn(&CaseSummary<'_>) -> bool,
    pub value: fn(&SummaryRow<'_>) -> Option<Estimate>,
    /// Formats a figure with its unit.
    pub figure: fn(f64) -> String,
}

impl Groups<'_> {
    /// Draws the chart; `None` if nothing was measured.
    pub fn draw(&self, summary: &Summary<'_>) -> Option<Chart> {
        let cases = summary.cases.iter().filter(|case| (self.includes)(case));
        let groups = cases.map(|case| BarGroup { name: Some(case.title()), bars: self.bars(case) });
        Bars {
            id: self.id.to_owned(),
            title: self.title.to_owned(),
            axis: self.axis.to_owned(),
            figure: self.figure,
            groups: groups.filter(|group| !group.bars.is_empty()).collect(),
        }
        .chart()
    }

    /// Makes the bars of a case. A missing figure has a word in place of the bar, unless the proxy cannot have this
    /// figure. `direct` is left out if only the proxies are slowed.
    fn bars(&self, case: &CaseSummary<'_>) -> Vec<Bar> {
        let looks = series::looks(&case.proxies()).into_iter().zip(&case.rows);
        let bar = |(look, row): (series::Look, &SummaryRow<'_>)| {
            let figure = match (self.value)(row) {
                Some(total) => Ok(BarFigure { total, full: None }),
                None => Err(row.lacks()?),
            };
            Some(Bar { look, name: row.proxy.name.clone(), figure })
        };
        looks.filter(|(_, row)| case.draws(row)).filter_map(bar).collect()
    }
}
