//! Annotations of canaries: an Ingress takes a part of another Ingress's requests, by header, cookie or weight.

use regex_syntax::escape;

use super::Annotations;
use super::affinity::is_token;
use crate::written::{inline, text};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Canary {
    /// Conditions as in routes, with `true` if matching requests go to the canary. Header conditions come first.
    pub(crate) conditions: Vec<(&'static str, String, bool)>,
    /// Weight for all other requests, out of `total`.
    pub(crate) weight: u32,
    pub(crate) total: u32,
}

const TOTAL_MAX: u32 = 1000;

impl Annotations<'_> {
    /// Parses the canary annotations; `None` if the Ingress is no canary.
    pub(super) fn canary(&mut self) -> Option<Canary> {
        let is_on = self.is_on("canary");
        let token = |name: &'_ str| is_token(name).then(|| name.to_owned()).ok_or("a name without spaces");
        let header = self.value("canary-by-header", token);
        let value = self.value("canary-by-header-value", |value| Ok(exactly(value)));
        let pattern = self.value("canary-by-header-pattern", |pattern| {
            // nginx searches the pattern anywhere in the value.
            let pattern = format!("(?s:.*)(?:{pattern})(?s:.*)");
            regex_syntax::parse(&pattern).map(|_| format!("~ {pattern}")).map_err(|_| "a regular expression")
        });
        let cookie = self.value("canary-by-cookie", token);
        let number = |number: &str| {
            number.parse::<u32>().ok().filter(|number| *number <= TOTAL_MAX).ok_or("a number of at most 1000")
        };
        let weight = self.value("canary-weight", number).unwrap_or(0);
        let total = self.value("canary-weight-total", number).unwrap_or(100).max(1);
        if !is_on {
            return None;
        }
        let mut canary = Canary { conditions: Vec::new(), weight: weight.min(total), total };
        let always_and_never = |option, name: &str| {
            let of = |word, is_canary| (option, inline([(name, text(word))]), is_canary);
            [of("always", true), of("never", false)]
        };
        match (header, value.or(pattern)) {
            (Some(name), Some(value)) => {
                canary.conditions.push(("headers", inline([(name.as_str(), text(&value))]), true));
            }
            (Some(name), None) => canary.conditions.extend(always_and_never("headers", &name)),
            (None, _) => {}
        }
        canary.conditions.extend(cookie.iter().flat_map(|name| always_and_never("cookie", name)));
        Some(canary)
    }
}

/// Converts a value to a condition. Values that would be a prefix or an expression are escaped.
pub(crate) fn exactly(value: &str) -> String {
    if value.ends_with('*') || value.starts_with('~') || value.is_empty() {
        return format!("~ (?:{})", escape(value));
    }
    value.to_owned()
}
