//! Metrics of requests that the proxy makes beside those of clients: copies for a mirror.

use crate::directory::Totals;
use crate::exposition::is_used;
use crate::series::{Classes, MirrorCell, Skipped};
use crate::text::{Text, Type};

/// Writes the families; those of a route that makes no such requests have no samples.
pub(crate) fn write(totals: &Totals, causes: &[&str], text: &mut Text) {
    let mirrors = || totals.routes.iter().filter_map(|(route, cell)| Some((&**route, cell.mirror.look()?)));
    write_mirrors(mirrors, causes, text);
}

fn write_mirrors<'t, Cells>(cells: impl Fn() -> Cells, causes: &[&str], text: &mut Text)
where
    Cells: Iterator<Item = (&'t str, &'t MirrorCell)>,
{
    let help = "Copies of requests for a mirror, by route and class of the response; class none got none.";
    let mut family = text.family("vanward_mirror_requests", Type::Counter, help);
    for (route, cell) in cells() {
        for (class, count) in Classes::NAMES.into_iter().zip(cell.responses.values()) {
            family.sample(&[("route", route), ("class", class)], count);
        }
    }
    let help = "Copies of requests that failed, by cause.";
    let mut family = text.family("vanward_mirror_failures", Type::Counter, help);
    for (route, cell) in cells() {
        let counts = causes.iter().zip(cell.failures.values());
        for (cause, count) in counts.filter(|(_, count)| *count > 0) {
            family.sample(&[("route", route), ("cause", cause)], count);
        }
    }
    let help = "Requests that were not copied for a mirror though it was their turn, by cause.";
    let mut family = text.family("vanward_mirror_skipped", Type::Counter, help);
    for (route, cell) in cells() {
        for (cause, count) in Skipped::NAMES.into_iter().zip(cell.skipped.values()) {
            family.sample(&[("route", route), ("cause", cause)], count);
        }
    }
    let help = "From when a copy of a request was sent to the head of its response.";
    let mut family = text.family("vanward_mirror_first_byte_seconds", Type::Histogram, help);
    for (route, cell) in cells() {
        if is_used(&cell.first_byte) {
            family.histogram(&[("route", route)], &cell.first_byte);
        }
    }
}
