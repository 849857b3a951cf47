//! Metrics of the proxy's own requests: copies for a mirror, and requests to authentication servers.

use crate::counters::Causes;
use crate::directory::Totals;
use crate::series::{AuthCell, Classes, MirrorCell, Skipped};
use crate::text::{Family, MetricsText, Type};

/// Writes the families. Routes without such requests have no samples.
pub(crate) fn write(totals: &Totals, causes: &[&str], text: &mut MetricsText) {
    let mirrors = || totals.routes.iter().filter_map(|(route, cell)| Some((&**route, cell.mirror.look()?)));
    write_mirrors(mirrors, causes, text);
    let auths =
        || totals.routes.iter().filter_map(|(route, cell)| Some((&**route, cell.forward_auth.look()?)));
    write_auths(auths, causes, text);
}

fn write_mirrors<'t, Cells>(cells: impl Fn() -> Cells, causes: &[&str], text: &mut MetricsText)
where
    Cells: Iterator<Item = (&'t str, &'t MirrorCell)>,
{
    let help =
        "Copies of requests for a mirror, by route and class of the response; class none got no response.";
    let mut family = text.family("vanward_mirror_requests", Type::Counter, help);
    for (route, cell) in cells() {
        write_classes(&mut family, route, &cell.responses);
    }
    let help = "Copies of requests that failed, by cause.";
    let mut family = text.family("vanward_mirror_failures", Type::Counter, help);
    for (route, cell) in cells() {
        write_causes(&mut family, route, causes, &cell.failures);
    }
    let help = "Requests that were due to be copied for a mirror but were not, by cause.";
    let mut family = text.family("vanward_mirror_skipped", Type::Counter, help);
    for (route, cell) in cells() {
        for (cause, count) in Skipped::NAMES.into_iter().zip(cell.skipped.values()) {
            family.sample(&[("route", route), ("cause", cause)], count);
        }
    }
    let help = "Time from sending a copy of a request to the head of its response.";
    let mut family = text.family("vanward_mirror_first_byte_seconds", Type::Histogram, help);
    for (route, cell) in cells() {
        if cell.first_byte.is_used() {
            family.histogram(&[("route", route)], &cell.first_byte);
        }
    }
}

fn write_auths<'t, Cells>(cells: impl Fn() -> Cells, causes: &[&str], text: &mut MetricsText)
where
    Cells: Iterator<Item = (&'t str, &'t AuthCell)>,
{
    let help = "Requests to an authentication server, by route and class of the response; class none got no response.";
    let mut family = text.family("vanward_forward_auth_requests", Type::Counter, help);
    for (route, cell) in cells() {
        write_classes(&mut family, route, &cell.responses);
    }
    let help = "Requests to an authentication server that failed, by cause.";
    let mut family = text.family("vanward_forward_auth_failures", Type::Counter, help);
    for (route, cell) in cells() {
        write_causes(&mut family, route, causes, &cell.failures);
    }
    let help = "Requests answered by a cached decision, without asking an authentication server.";
    let mut family = text.family("vanward_forward_auth_cached", Type::Counter, help);
    for (route, cell) in cells() {
        family.sample(&[("route", route)], cell.cached.value());
    }
    let help = "Requests that waited for a decision that another request had asked for.";
    let mut family = text.family("vanward_forward_auth_waits", Type::Counter, help);
    for (route, cell) in cells() {
        family.sample(&[("route", route)], cell.waits.value());
    }
    let help = "Time from a request to an authentication server to its complete response.";
    let mut family = text.family("vanward_forward_auth_duration_seconds", Type::Histogram, help);
    for (route, cell) in cells() {
        if cell.duration.is_used() {
            family.histogram(&[("route", route)], &cell.duration);
        }
    }
}

fn write_classes(family: &mut Family<'_>, route: &str, classes: &Classes) {
    for (class, count) in Classes::NAMES.into_iter().zip(classes.values()) {
        family.sample(&[("route", route), ("class", class)], count);
    }
}

fn write_causes(family: &mut Family<'_>, route: &str, causes: &[&str], counts: &Causes) {
    for (cause, count) in causes.iter().zip(counts.values()).filter(|(_, count)| *count > 0) {
        family.sample(&[("route", route), ("cause", cause)], count);
    }
}
