//! Conditions of the options of a route: what each may ask for, and the mistakes in them.

use config::{Action, Config, RouteLog};
use route::ActiveEdits;

const HEAD: &str = "listen = [{ address = \"127.0.0.1:8080\" }]\nupstream = { app = { servers = [\"http://a\"] }, b = { \
                    servers = [\"http://b\"] } }\n[cache]\nmemory = \"1MiB\"\n[[route]]\n";

/// A file with this route from line 6 on, and a file of users.
fn file(route: &str) -> (String, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    std::fs::write(&users, "me:$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW\n").unwrap();
    let action = if route.contains("split") { "" } else { "upstream = \"app\"\n" };
    let auth =
        if route.contains("AUTH") { format!("auth = {{ users = {users:?} }}\n") } else { String::new() };
    (format!("{HEAD}{}\n{action}{auth}", route.replace("AUTH\n", "")), folder)
}

fn said(route: &str) -> Vec<String> {
    let mistakes = config::parse(&file(route).0, "f").err().unwrap_or_default();
    mistakes.iter().map(|mistake| mistake.to_string().replacen("f:", "", 1)).collect()
}

fn read(route: &str) -> Config {
    let (text, _folder) = file(route);
    config::parse(&text, "f").unwrap_or_else(|mistakes| panic!("{route}: {mistakes:#?}"))
}

/// The options with a condition: how it is written, and the last stage whose names it may use.
const PLACES: [(&str, usize); 13] = [
    ("when = WHEN", 0),
    ("deny = { when = WHEN }", 0),
    ("rate_limit = { rate = \"1/s\", when = WHEN }", 0),
    ("rate_limit = { rate = \"1/s\", key = \"user\", when = WHEN }", 1),
    ("concurrency = { max = 1, when = WHEN }", 1),
    ("split = { app = 1, b = { weight = 1, when = WHEN } }", 1),
    ("mirror = { upstream = \"b\", when = WHEN }", 1),
    ("cache = { when = WHEN }", 1),
    ("request_headers = { remove = \"X-A\", when = WHEN }", 2),
    ("response_headers = { remove = \"X-A\", when = WHEN }", 3),
    ("compress = { when = WHEN }", 3),
    ("access_log = { when = WHEN }", 3),
    ("cache = { rules = [{ when = WHEN, ttl = \"1s\" }] }", 3),
];

/// Conditions on names of each stage.
const NAMES: [&[&str]; 4] = [
    &[
        "request.method == \"GET\"",
        "\"a\" in request.headers[\"x-a\"]",
        "client.port > 1",
        "time.getHours() > 1",
    ],
    &["client.user == \"ann\"", "has(client.user)"],
    &["upstream.name == \"app\"", "has(server.name)"],
    &[
        "response.status >= 500",
        "\"a\" in response.headers[\"vary\"]",
        "response.size == 10",
        "response.time > duration(\"1s\")",
        "cache.status == \"hit\"",
    ],
];

/// When names of each stage are known, and where a mistake says that they may be used.
const SINCE: [(&str, &str); 4] = [
    ("", ""),
    (
        "only once the client is authenticated",
        "expected it in request_headers, response_headers, mirror, cache, split,",
    ),
    (
        "only once a server is chosen",
        "expected it in request_headers, response_headers, cache.rules, compress or access_log",
    ),
    (
        "only once the response has arrived",
        "expected it in response_headers, cache.rules, compress or access_log",
    ),
];

#[test]
fn each_place_knows_the_names_of_its_stage() {
    for (place, last) in PLACES {
        for (stage, names) in NAMES.iter().enumerate() {
            for name in *names {
                let route = format!("AUTH\n{}", place.replace("WHEN", &format!("'{name}'")));
                let said = said(&route);
                if stage <= last {
                    assert_eq!(said, Vec::<String>::new(), "{place} {name}");
                    continue;
                }
                let column = place.find("WHEN").unwrap() + 2;
                let (since, expected) = SINCE[stage];
                assert_eq!(said.len(), 1, "{place} {name}: {said:?}");
                assert!(said[0].starts_with("6:") && said[0].contains(since), "{place} {name}: {}", said[0]);
                assert!(
                    said[0].contains(": when: ") && said[0].contains(expected),
                    "{place} {name}: {}",
                    said[0]
                );
                // The place of the name, behind a text that is looked for in it.
                let behind = name.find(" in ").map_or(0, |at| at + 4);
                let behind = if name.starts_with("has(") { 4 } else { behind };
                assert!(
                    said[0].starts_with(&format!("6:{}:", column + behind)),
                    "{place} {name}: {}",
                    said[0]
                );
            }
        }
    }
}

/// A misspelt name gets the nearest one, in each place.
#[test]
fn each_place_says_the_nearest_name() {
    for (place, _) in PLACES {
        for (written, nearest) in [
            ("request.methud == \"GET\"", "request.method"),
            ("client.usr == \"ann\"", "client.user"),
            ("response.statsu == 200", "response.status"),
            ("server.nam == \"a\"", "server.name"),
        ] {
            let route = format!("AUTH\n{}", place.replace("WHEN", &format!("'{written}'")));
            let said = said(&route);
            let expected = format!("; did you mean \"{nearest}\"? Expected");
            assert!(said.len() == 1 && said[0].contains(&expected), "{place} {written}: {said:?}");
        }
    }
}

#[test]
fn other_mistakes() {
    for (route, expected) in [
        ("deny = { status = 404 }", "6:8: deny has no when; expected a condition such as"),
        ("deny = \"10.0.0.0/8\"", "6:8: deny: this is a string; expected an array of networks such as"),
        ("deny = [\"10.0.0.0/8\", { when = 'true', status = 200 }]", "status: 200 is"),
        ("deny = [{ when = 'true', stauts = 404 }]", "did you mean \"status\"?"),
        (
            "deny = [{ when = 'true', status = 401 }]",
            "6:35: status: 401 needs a field that deny does not send",
        ),
        (
            "split = { app = { weight = 1, when = 'true' } }",
            "6:9: split: a request may be outside of all conditions",
        ),
        (
            "split = { app = 0, b = { weight = 1, when = 'true' } }",
            "split: a request may be outside of all conditions",
        ),
        ("split = { app = 0, b = { weight = 0, when = 'true' } }", "6:9: split: no upstream gets a share"),
        ("split = { app = 1, b = { when = 'true' } }", "split has no weight; expected a whole number"),
        ("split = { app = \"1\" }", "6:17: split: this is a string; expected a whole number, 0 to 1000000"),
        (
            "request_headers = { when = 'true' }",
            "6:19: when: this table edits nothing; expected set, add, default",
        ),
        (
            "request_headers = [{ set = { X = \"1\" } }, { when = 'true' }]",
            "6:43: when: this table edits nothing",
        ),
        ("request_headers = true", "expected a table such as"),
        ("cache = { rules = [{ when = 'true' }] }", "rules has no ttl; expected a duration"),
        ("cache = { rules = [{ ttl = \"1s\" }] }", "rules has no when; expected a condition"),
        ("access_log = { share = \"1%\" }", "access_log has no when; expected a condition"),
        ("access_log = 1", "expected true, false, or a share such as 1%, 0.5% or 100%, or a table such as"),
        ("compress = { when = true }", "when: this is true or false; expected a condition"),
        ("compress = { when = 'request.path' }", "when: a condition is true or false; this is a text"),
        (
            "response_headers = { when = '\"a\" in jwt.claims.roles', remove = \"X\" }",
            "6:29: response_headers: the route has no jwt, so no token is verified and there are no claims; expected jwt",
        ),
    ] {
        let said = said(route);
        assert!(said.iter().any(|said| said.contains(expected)), "{route}: {said:?}");
    }
    let many = |one: &str, count| vec![one; count].join(", ");
    for (route, expected) in [
        (
            format!("deny = [{}]", many("{ when = 'true' }", 65)),
            "deny: there are too many conditions; expected at most 64",
        ),
        (
            format!("cache = {{ rules = [{}] }}", many("{ when = 'true', ttl = \"1s\" }", 65)),
            "rules: there are too many; expected at most 64",
        ),
        (
            format!("request_headers = [{}]", many("{ when = 'true', remove = \"X\" }", 64)),
            "there are too many tables of edits; expected at most 63",
        ),
    ] {
        let said = said(&route);
        assert!(said.iter().any(|said| said.contains(expected)), "{said:?}");
    }
}

#[test]
fn a_condition_on_users_where_there_are_none_is_a_warning() {
    for (route, place) in [
        ("mirror = { upstream = \"b\", when = 'client.user == \"a\"' }", "6:35: mirror"),
        ("compress = { when = 'has(client.user)' }", "5:1: compress"),
    ] {
        let reading = config::examine(&file(route).0, "f");
        let warnings: Vec<String> = reading.warnings.iter().map(ToString::to_string).collect();
        let expected = format!(
            "f:{place}: client.user is always absent here, since the route does not authenticate clients"
        );
        assert!(warnings.contains(&expected), "{route}: {warnings:?}");
    }
}

#[test]
fn options_without_a_condition_mean_what_they_did() {
    let config = read(
        "deny = [\"192.0.2.0/24\"]\nsplit = { app = 9, b = 1 }\nrequest_headers = { set = { X-A = \"1\" } }\n\
         response_headers = { remove = \"Server\" }\ncompress = true\naccess_log = \"1%\"\ncache = { ttl = \"1m\" }",
    );
    let route = &config.routes[0];
    assert_eq!(route.conditions().count(), 0);
    let policies = &route.policies;
    assert!(policies.access.rules.is_empty() && policies.access.deny.len() == 1);
    assert!(!policies.request_headers.has_conditions() && !policies.response_headers.has_conditions());
    assert!(policies.response_headers.remove(b"server", ActiveEdits::FIRST));
    assert!(matches!(policies.options.access_log, Some(RouteLog::Share(_))));
    let Action::Split(split) = &route.action else { panic!("{:?}", route.action) };
    assert_eq!((split.shares().count(), split.conditions().count()), (2, 0));
}

#[test]
fn conditions_are_listed_in_the_order_in_which_requests_meet_them() {
    let config = read(
        "AUTH\naccess_log = { when = 'response.status > 1', share = \"5%\" }\ncompress = { when = 'response.status > 2' }\n\
         response_headers = [{ set = { X-A = \"1\" } }, { when = 'response.status > 3', remove = \"X-B\" }]\n\
         request_headers = [{ when = 'client.user == \"4\"', set = { X-A = \"1\" } }, { add = { X-A = \"2\" } }]\n\
         cache = { when = 'request.path == \"/5\"', rules = [{ when = 'response.status == 6', ttl = \"0s\" }, { when = 'true', \
         ttl = \"1m\" }] }\nsplit = { app = 1, b = { weight = 2, when = 'request.path == \"/8\"' } }\n\
         mirror = { upstream = \"b\", when = 'request.path == \"/9\"' }\n\
         deny = [\"10.0.0.0/8\", { when = 'request.path == \"/10\"', status = 451 }]",
    );
    let route = &config.routes[0];
    let options: Vec<&str> = route.conditions().map(|condition| condition.option).collect();
    assert_eq!(
        options,
        [
            "deny",
            "split",
            "mirror",
            "cache",
            "request_headers",
            "cache.rules",
            "cache.rules",
            "response_headers",
            "compress",
            "access_log"
        ]
    );
    assert_eq!((route.cache_rules[0].ttl_ms, route.cache_rules[1].ttl_ms), (0, 60_000));
    assert_eq!(route.policies.access.rules[0].status, 451);
    assert!(
        matches!(&route.policies.options.access_log, Some(RouteLog::When(_, share)) if share.millionths() == 50_000)
    );
}

/// A condition that implies that of an earlier route leaves no request. If that is uncertain, there is no warning.
#[test]
fn a_route_whose_condition_is_implied_is_a_warning() {
    let warnings = |top: &str, first: &str, second: &str| {
        let listen = "[[listen]]\nname = \"web\"\naddress = \"127.0.0.1:8080\"\n";
        let route = |when: &str| format!("[[route]]\n{when}\nrespond = {{ status = 204 }}\n");
        let text = format!("{top}\n{listen}{}{}", route(first), route(second));
        let reading = config::examine(&text, "f");
        assert!(reading.config.is_some(), "{:?}", reading.mistakes);
        reading.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let values = "values = { is_api = 'request.path.startsWith(\"/api\")' }";
    for (top, first, second) in [
        ("", "when = 'request.path.startsWith(\"/a\")'", "when = 'request.path == \"/abc\"'"),
        (
            "",
            "when = 'client.address in \"10.0.0.0/8\"'",
            "when = 'client.address in [\"10.1.0.0/16\", \"10.2.0.1\"]'",
        ),
        (
            "",
            "when = 'request.method in [\"GET\", \"HEAD\"]'",
            "when = 'request.method == \"GET\" && request.host == \"a\"'",
        ),
        ("", "when = 'request.path.matches(\"^/a\")'", "when = 'request.path == \"/abc\"'"),
        ("", "when = 'has(request.headers[\"x\"])'", "when = 'request.headers[\"x\"] == \"1\"'"),
        (values, "when = 'values.is_api'", "when = 'request.path.startsWith(\"/api/v1\")'"),
        ("", "when = 'client.port >= 10'", "when = 'client.port > 100'\npath = \"/\""),
    ] {
        let said = "f:8:1: route \"/ #2\" is never reached: the route in line 5 takes its requests";
        assert_eq!(warnings(top, first, second), [said], "{first} {second}");
    }
    for (first, second) in [
        ("when = 'request.path.startsWith(\"/abc\")'", "when = 'request.path.startsWith(\"/a\")'"),
        ("when = 'request.path.matches(\"^/a\")'", "when = 'request.path.startsWith(\"/abc\")'"),
        // A more specific path comes first, whatever the conditions are.
        ("when = 'request.method == \"GET\"'", "when = 'request.method == \"GET\"'\npath = \"/a\""),
        ("when = 'time.getHours() > 1'", "when = 'time.getHours() > 2 || request.host == \"a\"'"),
    ] {
        assert_eq!(warnings("", first, second), [""; 0], "{first} {second}");
    }
}
