//! The part of `vanward status` about routes: requests, errors and durations of each.

use api::status::RouteStatus;

use super::super::table::{Align, table};
use super::super::units::{milliseconds, rate};
use super::{Sort, StatusView, by_traffic};

/// Appends the routes that match the filter as a table.
pub(super) fn show(page: &mut String, routes: &[RouteStatus], view: &StatusView) {
    let mut routes: Vec<&RouteStatus> = routes.iter().filter(|route| view.shows(&route.route)).collect();
    if routes.is_empty() {
        return;
    }
    if let Some(Sort::Name) = view.sort {
        routes.sort_by(|one, other| one.route.cmp(&other.route));
    } else if let Some(sort) = view.sort {
        routes.sort_by(|one, other| by_traffic(sort, &one.traffic, &other.traffic));
    }
    let columns = [
        ("ROUTE", Align::Left),
        ("REQUESTS", Align::Right),
        ("/S", Align::Right),
        ("4XX/S", Align::Right),
        ("5XX/S", Align::Right),
        ("P50", Align::Right),
        ("P90", Align::Right),
        ("P99", Align::Right),
    ];
    let rows: Vec<_> = routes.into_iter().map(row).collect();
    *page += "\nroutes\n";
    *page += &table(columns, &rows);
}

fn row(route: &RouteStatus) -> [String; 8] {
    let last_minute = &route.traffic.last_minute;
    [
        route.route.clone(),
        route.traffic.requests.to_string(),
        rate(last_minute.requests_per_second),
        rate(last_minute.client_errors_per_second),
        rate(last_minute.server_errors_per_second),
        milliseconds(last_minute.p50_ms),
        milliseconds(last_minute.p90_ms),
        milliseconds(last_minute.p99_ms),
    ]
}

#[cfg(test)]
mod tests {
    use api::traffic::{RatesStatus, TrafficStatus};

    use super::*;

    fn route(name: &str, requests: u64, p99_ms: Option<f64>, server_errors_per_second: f64) -> RouteStatus {
        let last_minute = RatesStatus {
            requests_per_second: requests as f64 / 60.0,
            server_errors_per_second,
            p50_ms: p99_ms.map(|time| time / 10.0),
            p90_ms: p99_ms.map(|time| time / 2.0),
            p99_ms,
            ..RatesStatus::default()
        };
        let traffic = TrafficStatus { requests, last_minute, ..TrafficStatus::default() };
        RouteStatus { route: name.to_owned(), traffic, cache: None }
    }

    #[test]
    fn routes_are_shown_sorted_and_filtered() {
        let routes = [
            route("/b", 600, Some(20.0), 0.0),
            route("/a", 60, Some(2000.0), 0.5),
            route("(none)", 0, None, 0.0),
        ];
        let shown = |sort, filter: Option<&str>| {
            let mut page = String::new();
            show(
                &mut page,
                &routes,
                &StatusView { sort, filter: filter.map(str::to_owned), ..StatusView::default() },
            );
            page
        };
        let expected = "
routes
  ROUTE   REQUESTS    /S  4XX/S  5XX/S      P50      P90      P99
  /b           600  10.0      0      0  2.00 ms  10.0 ms  20.0 ms
  /a            60  1.00      0   0.50   200 ms   1.00 s   2.00 s
  (none)         0     0      0      0        -        -        -
";
        assert_eq!(shown(None, None), expected);
        let order = |sort| -> Vec<String> {
            let page = shown(Some(sort), None);
            page.lines()
                .skip(3)
                .map(|line| line.trim().split(' ').next().unwrap_or_default().to_owned())
                .collect()
        };
        assert_eq!(order(Sort::Name), ["(none)", "/a", "/b"]);
        assert_eq!(order(Sort::Rate), ["/b", "/a", "(none)"]);
        assert_eq!(order(Sort::Requests), ["/b", "/a", "(none)"]);
        assert_eq!(order(Sort::Errors), ["/a", "/b", "(none)"]);
        assert_eq!(order(Sort::P99), ["/a", "/b", "(none)"]);
        assert!(shown(None, Some("/a")).ends_with("2.00 s\n") && !shown(None, Some("/a")).contains("/b"));
        assert_eq!(shown(None, Some("elsewhere")), "");
    }
}
