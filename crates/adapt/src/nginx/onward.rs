//! Locations that only send requests on: `location ~ ^/v[0-9]+/(.*)$ { rewrite ^/v[0-9]+/(.*)$ /$1 last; }`.
//!
//! nginx looks for a location again. Here the expression has one route for each location that is a prefix, the longest
//! first, whose servers and files get the new path.

use super::locations::{Location, LocationMatch};
use super::servers::RouteEntry;
use super::syntax::Directive;
use super::{NginxAdapter, from};
use crate::draft::{DraftValue, StatementOrigin};
use crate::values;

/// The group at the end of the expression, which is the new path.
const REST: &str = "(.*)";
/// Directives for which a location would need more than one route.
const BRANCHES: [&str; 3] = ["if", "limit_except", "rewrite"];

impl<'s> NginxAdapter<'s> {
    /// Builds the routes of such a location; `None` for others.
    pub(super) fn moved_on(
        &mut self,
        location: &Location<'s>,
        all: &[Location<'s>],
        server: &'s Directive,
    ) -> Option<Vec<RouteEntry>> {
        let LocationMatch::Pattern { text, ignores_case: false } = &location.matching else { return None };
        let [rewrite] = location.scope.own() else { return None };
        let bare = |text: &str| text.trim_end_matches('$').strip_suffix(REST).map(str::to_owned);
        let before = bare(text)?;
        let is_it = rewrite.name == "rewrite"
            && rewrite.word(1) == "/$1"
            && rewrite.word(2) == "last"
            && before.starts_with('^')
            && !before.contains('(')
            && bare(rewrite.word(0)).as_deref() == Some(before.as_str());
        let mut targets = Vec::new();
        for other in all.iter().filter(|other| other.block.number != location.block.number) {
            match &other.matching {
                LocationMatch::Prefix(path) | LocationMatch::FirstPrefix(path) => {
                    let has_branches =
                        other.scope.own().iter().any(|own| BRANCHES.contains(&own.name.as_str()));
                    targets.push((path.as_str(), other));
                    if has_branches || other.scope.here("alias").is_some() {
                        return None;
                    }
                }
                LocationMatch::Named => {}
                _ => return None,
            }
        }
        if !is_it || !targets.iter().any(|(path, _)| *path == "/") {
            return None;
        }
        targets.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        let mut routes = Vec::new();
        for (path, target) in targets {
            let rest = format!("{before}({}.*)$", values::escaped(path.trim_start_matches('/')));
            let pattern = values::expression(&rest, false).ok()?;
            let mut entry = RouteEntry::new(format!("~ {pattern}"), from(location.block));
            let within = Location {
                matching: LocationMatch::Pattern { text: rest, ignores_case: false },
                ..target.clone()
            };
            self.content(&within, server, &mut entry);
            if entry.options.inner("rewrite", "path").is_some() {
                return None;
            }
            let origin = vec![StatementOrigin::Directive(rewrite.number)];
            entry.options.extend("rewrite", ("path", DraftValue::from("/$1")), origin);
            routes.push(entry);
        }
        Some(routes)
    }
}
