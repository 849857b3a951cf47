//! Explains the conditions of a route's options, for `route_explained`.

use config::{Route, RouteCondition};
use expression::ExchangeStage;
use route::{FieldLookup, RequestParts};

/// Returns a line for each condition: its parts with their values, or when they are known.
pub(crate) fn explained<F: FieldLookup + ?Sized>(
    route: &Route,
    request: &RequestParts<'_, F>,
) -> Vec<String> {
    route.conditions().map(|condition| line(condition, request)).collect()
}

fn line<F: FieldLookup + ?Sized>(
    RouteCondition { option, when }: RouteCondition<'_>,
    request: &RequestParts<'_, F>,
) -> String {
    if let Some(known) = known_later(when.stage()) {
        return format!("The condition of {option} is known {known}: {when}");
    }
    let verdict = if request.conditions.hold(when, request.path) { "holds" } else { "does not hold" };
    let trace = request.conditions.explain(when, request.path).to_string();
    let parts: String = trace.lines().map(|part| format!("\n  {part}")).collect();
    let steps = when.cost();
    format!("The condition of {option} {verdict}, in at most {steps} steps:{parts}")
}

/// When names of a stage are known, if that is after the request has arrived.
pub(crate) fn known_later(stage: ExchangeStage) -> Option<&'static str> {
    match stage {
        ExchangeStage::Connection | ExchangeStage::Request => None,
        ExchangeStage::Authenticated => Some("after authentication"),
        ExchangeStage::Forward => Some("once a server is chosen"),
        ExchangeStage::Response => Some("after the response"),
    }
}

#[cfg(test)]
mod tests {
    use api::route::RouteOrder;

    use crate::explain_route;

    const FILE: &str = r#"
[[listen]]
address = "127.0.0.1:80"
[[route]]
upstream = "app"
deny = [{ when = 'request.path == "/no"', status = 404 }]
rate_limit = { rate = "5/s", when = 'client.address in "10.0.0.0/8"' }
mirror = { upstream = "app", when = 'request.method == "GET" && !has(client.user)' }
request_headers = { when = 'server.name == "a"', remove = "X-A" }
response_headers = [{ remove = "Server" }, { when = 'request.method == "GET"', remove = "X-A" }]
access_log = { when = 'response.status >= 400' }
[upstream.app]
servers = ["http://127.0.0.1:9000"]
"#;

    fn notes(url: &str) -> String {
        let order = RouteOrder { url: url.to_owned(), method: "GET".to_owned(), ..RouteOrder::default() };
        let explained = explain_route(&config::parse(FILE, "f").unwrap(), &order).unwrap();
        let start = explained.text.find("The route is").unwrap();
        explained.text[start..].to_owned()
    }

    #[test]
    fn each_condition_has_its_value_or_says_when_it_is_known() {
        assert_eq!(
            notes("http://a.example/yes"),
            "\
The route is /: upstream app, round-robin over 1 server.
Rate limit: 5 requests in 1s, 5 at once; beyond it 429.
Upstream app gets copies of 100% of such requests.
The condition of deny does not hold, in at most 3 steps:
  request.path == \"/no\": false
    request.path: \"/yes\"
The condition of rate_limit does not hold, in at most 3 steps:
  client.address in \"10.0.0.0/8\": false
    client.address: 127.0.0.1
The condition of mirror is known after authentication: request.method == \"GET\" && !has(client.user)
The condition of request_headers is known once a server is chosen: server.name == \"a\"
The condition of response_headers holds, in at most 3 steps:
  request.method == \"GET\": true
    request.method: \"GET\"
The condition of access_log is known after the response: response.status >= 400
"
        );
        let denied = notes("http://a.example/no");
        assert!(denied.contains("It is denied: 404.\n"), "{denied}");
        assert!(denied.contains("The condition of deny holds, in at most"), "{denied}");
    }
}
