//! The middleware `errors`: a service that answers in place of error statuses.

use super::middlewares::MiddlewareDraft;
use super::{TraefikAdapter, find, from, text};
use crate::draft::DraftValue;
use crate::source::Directive;

const INSTEAD: &str = "write `on_status = { \"5xx\" = { upstream = \"NAME\", path = \"/{status}.html\", keep_status = true } }`";
/// Statuses that a range may stand for, unless it is a class.
const STATUSES_MAX: u16 = 20;

impl<'s> TraefikAdapter<'s> {
    pub(super) fn errors(&mut self, kind: &'s Directive, made: &mut MiddlewareDraft<'_>) {
        let Some(status) = find(kind, "status") else {
            return self.refuse_all(kind, "it names no status", INSTEAD);
        };
        let scopes: Option<Vec<Vec<String>>> = status.words.iter().map(|word| scopes(word)).collect();
        let Some(scopes) = scopes.map(|scopes| scopes.concat()) else {
            return self.refuse_all(kind, "its statuses are not those of errors, or too many", INSTEAD);
        };
        let query = text(kind, "query");
        let path = query.map_or("/", |(query, _)| query);
        if !is_path(path) {
            return self.refuse_all(kind, "its query has another variable than {status}", INSTEAD);
        }
        let Some((name, place)) = text(kind, "service") else {
            return self.refuse_all(kind, "it names no service", INSTEAD);
        };
        let Some(service) = self.service(name, place, 0) else {
            return self.refuse_all(kind, "its service was not taken over", INSTEAD);
        };
        let Some(upstream) = service.only().map(str::to_owned) else {
            return self.refuse_all(kind, "its service is several, or has options of a route", INSTEAD);
        };
        let mut origins = from(kind);
        origins.extend(from(status));
        origins.extend(from(place));
        origins.extend(query.map(|(_, place)| from(place)).unwrap_or_default());
        for scope in &scopes {
            let fallback = vec![
                ("upstream".to_owned(), DraftValue::from(upstream.as_str())),
                ("path".to_owned(), path.into()),
                ("keep_status".to_owned(), true.into()),
            ];
            made.for_servers.extend("on_status", (scope, DraftValue::Table(fallback)), origins.clone());
        }
        if scopes.iter().any(|scope| scope.starts_with('4')) {
            let why = "it replaces responses of servers: those of other middlewares, such as 401, stay";
            self.sheet.differs(kind.number, why, "write `error_pages` for these");
        }
    }
}

/// Converts `404` or `500-599` to keys of `on_status`.
fn scopes(word: &str) -> Option<Vec<String>> {
    let (first, last) = word.trim().split_once('-').unwrap_or((word.trim(), word.trim()));
    let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
    match (first, last) {
        (400, 499) => Some(vec!["4xx".to_owned()]),
        (500, 599) => Some(vec!["5xx".to_owned()]),
        (400..=599, 400..=599) if first <= last && last - first < STATUSES_MAX => {
            Some((first..=last).map(|status| status.to_string()).collect())
        }
        _ => None,
    }
}

fn is_path(path: &str) -> bool {
    let rest = path.replace("{status}", "");
    path.starts_with('/')
        && rest.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'#' | b'{' | b'}' | b'\\'))
}
