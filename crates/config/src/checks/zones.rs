//! Zones of limits, in which several routes count, and files of captures, which several routes share.

use std::collections::HashMap;

use std::num::NonZeroU32;

use ::route::{Alone, RateKey};

use crate::checks::twice::Twice;
use crate::tables::route::{RateLimit, Route};

/// A zone, and what its limits have in common.
type ConcurrencyTerms<'r> = (&'r Option<Box<str>>, (&'r RateKey, Option<Alone>, Option<NonZeroU32>));

/// Limits of one zone that cannot count together, and captures that cannot share their file. Each has the index of its
/// route.
pub(crate) fn disagreements<'r>(routes: impl Iterator<Item = (usize, &'r Route)>) -> Vec<Twice> {
    let (mut rates, mut concurrency, mut captures) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut found = Vec::new();
    for (second, route) in routes {
        for limit in &route.policies.rate_limits {
            let Some(zone) = &limit.zone else { continue };
            let (first, known) = *rates.entry(zone).or_insert((second, limit));
            if !limit.is_of_one_zone(known) {
                let burst = if limit.shared.is_some() { ", burst" } else { "" };
                let message = format!(
                    "rate_limit: the limits of zone {zone:?} need the same rate{burst}, key, keys_max and shared"
                );
                found.push(Twice { second, first, message });
            }
        }
        for limit in &route.policies.concurrency {
            let Some(zone) = &limit.zone else { continue };
            let (first, terms) = *concurrency.entry(zone).or_insert((second, limit.zone_terms()));
            if limit.zone_terms() != terms {
                let max = if limit.shared.is_some() { "max, " } else { "" };
                let message =
                    format!("concurrency: the limits of zone {zone:?} need the same {max}by and shared");
                found.push(Twice { second, first, message });
            }
        }
        if let Some(capture) = &route.policies.capture {
            let (first, known) = *captures.entry(&capture.file).or_insert((second, capture));
            if capture != known {
                let file = capture.file.display();
                let message =
                    format!("capture: routes that share {file} need the same requests, keep and bodies");
                found.push(Twice { second, first, message });
            }
        }
    }
    found
}

/// Whether two versions of a route have the same limits in zones, and the same capture.
pub(crate) fn are_alike(before: &Route, after: &Route) -> bool {
    fn zones(
        route: &Route,
    ) -> (impl Iterator<Item = &RateLimit>, impl Iterator<Item = ConcurrencyTerms<'_>>) {
        let rates = route.policies.rate_limits.iter().filter(|limit| limit.zone.is_some());
        let concurrency = route.policies.concurrency.iter().filter(|limit| limit.zone.is_some());
        (rates, concurrency.map(|limit| (&limit.zone, limit.zone_terms())))
    }
    let ((rates, counts), (rates_after, counts_after)) = (zones(before), zones(after));
    rates.eq(rates_after) && counts.eq(counts_after) && before.policies.capture == after.policies.capture
}
