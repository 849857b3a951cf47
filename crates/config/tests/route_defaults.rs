//! `[route_defaults]`: what routes have from it, what they have instead, and what mistakes say of both places.

use config::{Config, examine, parse};
use proptest::prelude::*;

const BEFORE: &str = "[[listen]]\naddress = \"127.0.0.1:8080\"\n[cache]\nmemory = \"64MiB\"\n";
const AFTER: &str = "[upstream.app]\nservers = [\"http://127.0.0.1:9000\"]\n";

/// Options that routes may have from there.
const OPTIONS: [&str; 28] = [
    "allow = [\"10.0.0.0/8\"]",
    "deny = [\"10.1.0.0/16\"]",
    "jwt = { jwks = \"https://a.example/keys\" }",
    "web_bot_auth = { agents = \"https://bot.example\" }",
    "rate_limit = { rate = \"10/s\" }",
    "concurrency = { max = 20 }",
    "cors = { origins = [\"https://a.example\"] }",
    "rewrite = { path = \"/v1\" }",
    "request_headers = { set = { X-A = \"$host\" } }",
    "response_headers = { remove = [\"Server\"] }",
    "location = false",
    "cookies = { secure = true }",
    "via = \"edge\"",
    "replace_errors = true",
    "alt_svc = true",
    "compress = true",
    "request_buffering = true",
    "retry = { attempts = 1 }",
    "timeouts = { upstream_first_byte = \"5m\" }",
    "limits = { body_bytes = \"1GB\" }",
    "rate = \"1MB/s\"",
    "upload_rate = \"1MB/s per client\"",
    "weight = 3",
    "delay = \"10ms\"",
    "response_delay = \"10ms\"",
    "cache = { ttl = \"1m\" }",
    "mirror = { upstream = \"app\", share = \"10%\" }",
    "error_pages = {}",
];

fn config(text: &str) -> Config {
    parse(text, "f").unwrap_or_else(|mistakes| panic!("{mistakes:#?}\n{text}"))
}

fn mistakes(text: &str) -> Vec<String> {
    parse(text, "f").expect_err(text).iter().map(ToString::to_string).collect()
}

/// Routes with these options each.
fn file<const N: usize>(defaults: &str, routes: [&str; N]) -> String {
    let defaults =
        if defaults.is_empty() { String::new() } else { format!("[route_defaults]\n{defaults}\n") };
    let route = |(index, options): (usize, &&str)| {
        format!("[[route]]\npath = \"/{index}\"\nupstream = \"app\"\n{options}\n")
    };
    let routes: String = routes.iter().enumerate().map(route).collect();
    format!("{BEFORE}{defaults}{routes}{AFTER}")
}

#[test]
fn every_option_that_is_no_condition_and_no_action_has_a_default() {
    let own = [
        "name", "listener", "host", "path", "methods", "headers", "query", "clients", "upstream", "split",
        "redirect", "respond",
    ];
    let schema = config::schema();
    let has = |table: &serde_json::Value, name: &str| !table["properties"][name].is_null();
    let (route, defaults) =
        (&schema["properties"]["route"]["items"], &schema["properties"]["route_defaults"]);
    assert!(own.iter().all(|name| has(route, name) && !has(defaults, name)));
    assert!(has(route, "auth") && has(defaults, "auth"));
    for name in OPTIONS.iter().filter_map(|line| line.split(" = ").next()) {
        assert!(has(route, name) && has(defaults, name), "{name}");
    }
}

#[test]
fn a_route_has_the_default_unless_it_has_its_own() {
    let all = "allow = [\"10.0.0.0/8\"]\nlimits = { body_bytes = \"1MB\", rate_window = \"9s\" }\ncache = {}\ndelay = \"1s\"\nrate_limit = { rate = \"1/s\" }";
    let own =
        "rate_limit = []\ndelay = \"off\"\nallow = []\nlimits = { body_bytes = \"2MB\" }\ncache = \"off\"";
    let config = config(&file(all, ["", own]));
    let [with, without] = &config.routes[..] else { panic!("{:?}", config.routes) };
    assert_eq!((with.policies.access.allow.len(), without.policies.access.allow.len()), (1, 0));
    assert!(with.cache.is_some() && without.cache.is_none());
    assert!(with.shaping.delay.is_some() && without.shaping.delay.is_none());
    assert!(!with.policies.rate_limits.is_empty() && without.policies.rate_limits.is_empty());
    let limits = *without.policies.limits;
    assert_eq!((limits.body_bytes, limits.rate_window), (Some(Some(2_000_000)), None), "nothing is joined");
}

#[test]
fn what_a_route_cannot_use_it_does_not_have() {
    let all = "compress = true\nalt_svc = true\nrequest_buffering = true\ncache = {}\nretry = { attempts = 1 }\nrequest_headers = { set = { A = \"b\" } }\n\
               response_headers = { set = { A = \"b\" } }";
    let routes = "[[route]]\npath = \"/r\"\nredirect = { to = \"/\" }\n[[route]]\npath = \"/f\"\nrespond = { status = 204 }\n";
    let reading = examine(&(file(all, [""]) + routes), "f");
    assert_eq!((&reading.mistakes[..], &reading.warnings[..]), (&[][..], &[][..]));
    let config = reading.config.expect("it is valid");
    let compresses = |index: usize| config.routes[index].policies.options.compress.is_some();
    assert_eq!([0, 1, 2].map(compresses), [true, false, true]);
    let passes = |index: usize| config.routes[index].policies.options.alt_svc;
    assert_eq!([0, 1, 2].map(passes), [true, false, false]);
    let buffers = |index: usize| config.routes[index].policies.request_buffering.is_some();
    assert_eq!([0, 1, 2].map(buffers), [true, false, false]);
    assert!(config.routes.iter().all(|route| !route.policies.response_headers.is_empty()));
}

#[test]
fn mistakes_name_both_places() {
    for (defaults, route, expected) in [
        ("hots = 1", "", &["f:6:1: unknown key \"hots\" in [route_defaults]; expected allow, deny,"][..]),
        ("upstream = \"app\"", "", &["f:6:1: unknown key \"upstream\" in [route_defaults];"]),
        ("weight = 0", "", &["f:6:10: weight: 0 is too small;"]),
        (
            "cache = {}",
            "response_delay = \"1s\"",
            &["f:10:18: response_delay: a route with cache cannot use it (cache is from \
               [route_defaults], line 6);"],
        ),
        (
            "response_delay = \"1s\"",
            "cache = {}",
            &["f:6:18: response_delay: a route with cache cannot use it, for the route of line 7;"],
        ),
        (
            "request_headers = { set = { A = \"$nothing\" } }",
            "",
            &["f:6:34: set: there is no variable $nothing, for the route of line 7;"],
        ),
        (
            "cors = { origins = [\"https://a.example\"] }",
            "methods = [\"GET\"]",
            &["f:6:8: cors: browsers send OPTIONS first, which methods of this route excludes, for the \
               route of line 7;"],
        ),
        (
            "cors = { origins = [\"https://a.example\"] }",
            "response_headers = { set = { Access-Control-Allow-Origin = \"*\" } }",
            &[
                "f:10:30: response_headers: cors writes Access-Control-Allow-Origin (cors is from [route_defaults], line 6);",
            ],
        ),
        (
            "compress = { dictionaries = [\"/\"] }",
            "",
            &[
                "f:7:1: compress: dictionaries are stored responses, and the route has no cache (compress is from [route_defaults], line 6);",
            ],
        ),
    ] {
        let said = mistakes(&file(defaults, [route]));
        assert_eq!(said.len(), expected.len(), "{said:?}");
        for (said, expected) in said.iter().zip(expected) {
            assert!(said.starts_with(expected), "{said}\n{expected}");
        }
        // Once for all routes, with the first of them.
        if route.is_empty() && expected[0].starts_with("f:6") {
            assert_eq!(mistakes(&file(defaults, ["", "", ""])).len(), 1, "{defaults}");
        }
    }
    let twice = format!("route_defaults = 1\n{}", file("", [""]));
    assert_eq!(
        mistakes(&twice)[0],
        "f:1:18: route_defaults is an integer; expected a table [route_defaults]"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// With defaults as with the same options in each route, and as it is printed.
    #[test]
    fn defaults_mean_the_same_as_options_of_each_route(
        chosen in proptest::sample::subsequence(&OPTIONS[..], 0..12),
        own in any::<prop::sample::Index>(),
    ) {
        let lines = |options: &[&str]| options.join("\n");
        let own = chosen.get(own.index(chosen.len().max(1))).copied().unwrap_or_default();
        let other = own.split(" = ").next().filter(|name| *name == "weight").map_or(own, |_| "weight = 7");
        let rest: Vec<&str> = chosen.iter().copied().filter(|option| *option != own).collect();
        let with = parse(&file(&lines(&chosen), ["", other]), "f");
        let without = parse(&file("", [&lines(&chosen), &format!("{}\n{other}", lines(&rest))]), "f");
        match (with, without) {
            (Ok(with), Ok(without)) => {
                prop_assert_eq!(&with, &without);
                prop_assert_eq!(parse(&with.text(&with), "printed"), Ok(with));
            }
            (with, without) => prop_assert_eq!(with.is_err(), without.is_err(), "{:?}", chosen),
        }
    }
}
