//! Annotations that limit requests by client.

use super::{Annotations, number, texts};
use crate::written::{inline, list, quoted, text};

impl Annotations<'_> {
    /// Returns the options `rate_limit` and `concurrency`.
    pub(super) fn limits(&mut self) -> Vec<(&'static str, String)> {
        let multiplier = self.value("limit-burst-multiplier", number).unwrap_or(5);
        let (second, minute) = (self.value("limit-rps", number), self.value("limit-rpm", number));
        let exempt = ["limit-whitelist", "limit-allowlist"];
        let exempt = exempt.iter().find_map(|name| self.value(name, texts));
        let when = exempt.map(|networks| {
            let networks = list(networks.into_iter().map(quoted));
            ("when", text(&format!("!(client.address in {networks})")))
        });
        let limit = |rate: Option<u32>, unit| {
            let rate = rate?;
            // nginx admits this many requests above the rate at once.
            let burst = rate.saturating_mul(multiplier).saturating_add(1);
            let options = [("rate", text(&format!("{rate}/{unit}"))), ("burst", burst.to_string())];
            Some(inline(options.into_iter().chain(when.clone())))
        };
        let limits: Vec<String> = [limit(second, "s"), limit(minute, "m")].into_iter().flatten().collect();
        let rates = (!limits.is_empty()).then(|| ("rate_limit", list(limits)));
        let under_way = self.value("limit-connections", number).map(|max| {
            let options = [("max", max.to_string())];
            ("concurrency", inline(options.into_iter().chain(when.clone())))
        });
        rates.into_iter().chain(under_way).collect()
    }
}
