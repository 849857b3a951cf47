//! The last failed requests of a worker, for operators who watch the proxy. Only failed requests write here.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::SystemTime;

use api::live::RequestError;

/// Failures that are kept; alike ones in succession count as one.
const KEPT_MAX: usize = 50;

/// The last failures of a worker, the newest last.
#[derive(Default)]
pub(crate) struct RecentErrors(RefCell<VecDeque<RequestError>>);

/// Facts about a request that failed.
pub(crate) struct FailedExchange<'r> {
    pub(crate) at: SystemTime,
    pub(crate) route: Option<&'r str>,
    pub(crate) upstream: Option<&'r str>,
    pub(crate) server: Option<&'r str>,
    pub(crate) status: u16,
    /// The word in the log.
    pub(crate) cause: &'static str,
    pub(crate) detail: Option<&'r str>,
}

impl RecentErrors {
    #[cold]
    pub(crate) fn note(&self, failed: &FailedExchange<'_>) {
        let FailedExchange { at, route, upstream, server, status, cause, detail } = *failed;
        let at = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let mut errors = self.0.borrow_mut();
        // A dead server fails many requests alike, which would push out all others.
        let is_alike = |last: &&mut RequestError| {
            last.route.as_deref() == route
                && last.server.as_deref() == server
                && (last.status, last.cause.as_str()) == (status, cause)
        };
        if let Some(last) = errors.back_mut().filter(is_alike) {
            last.at_seconds = at;
            last.count += 1;
            return;
        }
        if errors.len() == KEPT_MAX {
            errors.pop_front();
        }
        let owned = |text: Option<&str>| text.map(str::to_owned);
        errors.push_back(RequestError {
            at_seconds: at,
            route: owned(route),
            upstream: owned(upstream),
            server: owned(server),
            status,
            cause: cause.to_owned(),
            detail: owned(detail),
            count: 1,
        });
    }

    pub(crate) fn all(&self) -> Vec<RequestError> {
        self.0.borrow().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_last_failures_are_kept_and_alike_ones_count_as_one() {
        let errors = RecentErrors::default();
        let note = |second: u64, server: &str| {
            errors.note(&FailedExchange {
                at: SystemTime::UNIX_EPOCH + Duration::from_secs(second),
                route: Some("/"),
                upstream: Some("app"),
                server: Some(server),
                status: 502,
                cause: "upstream-refused",
                detail: None,
            });
        };
        (0..3).for_each(|second| note(second, "a"));
        note(3, "b");
        let kept: Vec<_> =
            errors.all().into_iter().map(|one| (one.at_seconds, one.server, one.count)).collect();
        assert_eq!(kept, [(2.0, Some("a".to_owned()), 3), (3.0, Some("b".to_owned()), 1)]);
        (0..100).for_each(|second| note(second, &second.to_string()));
        let kept = errors.all();
        assert_eq!((kept.len(), kept[0].at_seconds), (KEPT_MAX, 50.0));
    }
}
