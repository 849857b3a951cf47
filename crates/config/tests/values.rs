//! Values: where expressions and texts know them, and the mistakes in them.

use config::{Action, Config, examine, parse};

const ROUTED: &str = "[[listen]]\naddress = \"127.0.0.1:1\"\n[upstream.blue]\nservers = [\"http://a\"]\n\
                      [upstream.green]\nservers = [\"http://b\"]\n[upstream.bytes]\nservers = [\"tcp://c:1\"]\n";

/// A file whose lines begin with `top`, then one route from line `1 + lines of top` on.
fn file(top: &str, route: &str) -> String {
    format!("{top}\n[[route]]\n{route}\n{ROUTED}")
}

fn config(top: &str, route: &str) -> Config {
    parse(&file(top, route), "f").unwrap_or_else(|mistakes| panic!("{top} {route}: {mistakes:?}"))
}

/// The mistakes, a line each, without the file's name.
fn said(top: &str, route: &str) -> Vec<String> {
    let mistakes = parse(&file(top, route), "f").err().unwrap_or_default();
    mistakes.iter().map(|mistake| mistake.to_string().replacen("f:", "", 1)).collect()
}

#[test]
fn values_are_known_in_every_place() {
    let top = r#"values = { app = 'request.headers["x-app"] ?? "www"', is_own = 'values.app == "own"' }"#;
    for route in [
        "upstream = \"blue\"\nwhen = 'values.is_own'",
        "upstream = \"blue\"\nrequest_headers = { set = { X-App = \"$app ${is_own}\" } }",
        "upstream = \"blue\"\nresponse_headers = { add = { X-App = \"${app}\" } }",
        "upstream = \"blue\"\nrewrite = { path = \"/${app}\", host = \"${app}.internal\" }",
        "upstream = \"blue\"\nrate_limit = { rate = \"1/s\", key = [\"client\", \"${app}\"], when = 'values.is_own' }",
        "upstream = \"blue\"\nconcurrency = { max = 5, by = \"${app}\", when = 'values.is_own' }",
        "upstream = \"blue\"\nvalues = { own = 'values.app + \"x\"' }\nwhen = 'values.own != values.app'",
        "upstream = \"${app}\"",
        "upstream = \"${app}-x\"",
        "redirect = { to = \"https://${app}.example.com$path\" }",
        "redirect = { to = \"https://${host_of}/\" }\nvalues = { host_of = 'values.is_own ? \"a.example\" : \"b.example\"' }",
        "respond = { status = 200, body = \"app ${app}, $5\" }",
        "files = { root = \"/tmp/${app}/public\" }",
        "upstream = \"blue\"\ncache = { key_values = \"app\" }\n[cache]\nmemory = \"1MiB\"",
        "upstream = \"blue\"\n[log]\ntarget = \"stdout\"\nformat = '$status \"${app}\"'",
        "upstream = \"blue\"\n[log]\ntarget = \"stdout\"\nformat = \"json\"\nfields = [\"status\", \"app\"]",
        "upstream = \"blue\"\n[[fault]]\ninject = \"503\"\nwhen = 'values.is_own'",
        "upstream = \"blue\"\nresponse_headers = { use = \"app\" }\n[headers.app]\nset = { X-App = \"${app}\" }",
    ] {
        assert_eq!(said(top, route), [""; 0], "{route}");
    }
}

/// Maps with a key are values in texts, as they are in expressions.
#[test]
fn maps_are_known_in_every_place() {
    let top = "[map.app]\nkey = 'request.host'\nentries = { a = \"blue\" }\n\
               [map.banned]\nkey = 'client.address'\nkind = \"network\"\nentries = []";
    for route in [
        "upstream = \"blue\"\nrequest_headers = { set = { X-App = \"$map.app ${map.app} ${map.banned}\" } }",
        "upstream = \"blue\"\nresponse_headers = { add = { X-App = \"${map.app}\" } }",
        "upstream = \"blue\"\nrewrite = { path = \"/${map.app}\", host = \"${map.app}.internal\" }",
        "upstream = \"blue\"\nrate_limit = { rate = \"1/s\", key = [\"client\", \"${map.app}\"] }",
        "upstream = \"blue\"\nvalues = { own = 'map.app ?? \"x\"' }\nrequest_headers = { set = { X = \"${own}${map.app}\" } }",
        "upstream = \"${map.app}\"",
        "redirect = { to = \"https://${map.app}.example.com$path\" }",
        // Clients choose no other host than those of the map.
        "redirect = { to = \"https://${map.app}/\" }",
        "respond = { status = 200, body = \"app ${map.app}, $map.app\" }",
        "files = { root = \"/tmp/${map.app}/public\" }",
        "upstream = \"blue\"\ncache = { key_values = [\"map.app\"] }\n[cache]\nmemory = \"1MiB\"",
        "upstream = \"blue\"\n[log]\ntarget = \"stdout\"\nformat = '$status \"${map.app}\" $map.banned'",
        "upstream = \"blue\"\n[log]\ntarget = \"stdout\"\nformat = \"json\"\nfields = [\"status\", \"map.app\"]",
        "split = { blue = 1, green = 1 }\nsticky = { by = \"${map.app}\" }",
        "upstream = \"pool\"\n[upstream.pool]\nservers = [\"http://d\"]\nhash_key = \"${map.app}\"\nbalance = \"consistent-hash\"",
        "upstream = \"blue\"\nresponse_headers = { use = \"app\" }\n[headers.app]\nset = { X-App = \"${map.app}\" }",
    ] {
        assert_eq!(said(top, route), [""; 0], "{route}");
        let config = config(top, route);
        // What is printed has the same meaning.
        let printed = config.printed(&config);
        assert_eq!(parse(&printed, "f").as_ref(), Ok(&config), "{printed}");
    }
}

/// A map without key has no value for a request: the mistake says what to write.
#[test]
fn maps_without_key_are_no_values() {
    const MAP: &str = "[map.app]\nentries = { a = \"b\" }";
    const HINT: &str = "map.app has no key, so a request has no value of it; expected key = 'request.host' in [map.app], or \
                        a value such as 'map.app[request.host]' in [values]";
    for (route, place) in [
        ("upstream = \"blue\"\nrequest_headers = { set = { X = \"a ${map.app}\" } }", "5:36: set: "),
        ("upstream = \"${map.app}\"", "4:13: upstream: "),
        ("respond = { status = 200, body = \"x ${map.app}\" }", "4:37: body: "),
        ("files = { root = \"/srv/${map.app}\" }", "4:24: root: "),
        ("upstream = \"blue\"\nrate_limit = { rate = \"1/s\", key = \"${map.app}\" }", "5:36: key: "),
        ("split = { blue = 1, green = 1 }\nsticky = { by = \"${map.app}\" }", "5:17: by: "),
        (
            "upstream = \"blue\"\ncache = { key_values = \"map.app\" }\n[cache]\nmemory = \"1MiB\"",
            "5:24: key_values: ",
        ),
        ("upstream = \"blue\"\n[log]\ntarget = \"stdout\"\nformat = '$status ${map.app}'", "7:19: format: "),
    ] {
        assert_eq!(said(MAP, route), [format!("{place}{HINT}")], "{route}");
    }
    let set = "[map.app]\nkind = \"network\"\nentries = [\"10.0.0.0/8\"]";
    let said_of_set = said(set, "upstream = \"blue\"\nrequest_headers = { set = { X = \"${map.app}\" } }");
    assert!(
        said_of_set[0].ends_with("or a value such as 'client.address in map.app' in [values]"),
        "{said_of_set:?}"
    );
    // A misspelt name, and a map that has a mistake of its own.
    let keyed = MAP.replace("entries", "key = 'request.host'\nentries");
    let near = said(&keyed, "upstream = \"blue\"\nrequest_headers = { set = { X = \"${map.ap}\" } }");
    assert!(near[0].contains("there is no variable $map.ap; did you mean \"$map.app\"?"), "{near:?}");
    let near = said(&keyed, "upstream = \"blue\"\nrate_limit = { rate = \"1/s\", key = \"${map.ap}\" }");
    assert!(near[0].contains("no value is named \"map.ap\"; did you mean \"${map.app}\"?"), "{near:?}");
    let broken = said(&keyed.replace("request.host", "request.hots"), "upstream = \"${map.app}\"");
    assert!(broken.len() == 1 && broken[0].contains("request.hots"), "{broken:?}");
}

#[test]
fn mistakes_are_at_their_place() {
    const ROUTE: &str = "upstream = \"blue\"";
    for (top, route, expected) in [
        ("values = 1", ROUTE, "1:10: values: this is an integer; expected names for expressions"),
        ("values = { a = 1 }", ROUTE, "1:16: values: this is an integer; expected an expression"),
        (
            "values = { App = 'true' }",
            ROUTE,
            "1:12: values: \"App\" can't name a value; expected a lower-case letter",
        ),
        ("values = { _a = 'true' }", ROUTE, "1:12: values: \"_a\" can't name a value"),
        ("values = { host = 'true' }", ROUTE, "1:12: values: $host is a variable of every request"),
        ("values = { header = 'true' }", ROUTE, "1:12: values: $header is a variable of every request"),
        ("values = { cause = 'true' }", ROUTE, "1:12: values: $cause is a field of access logs"),
        ("values = { a = 'values.b', b = 'true' }", ROUTE, "1:17: a: the name values.b does not exist"),
        (
            "values = { app = 'request.methud' }",
            ROUTE,
            "1:19: app: the name request.methud does not exist; did you mean \"request.method\"?",
        ),
        (
            "values = { app_host = '\"a\"' }",
            "upstream = \"blue\"\nrequest_headers = { set = { X = \"a ${ap_host}\" } }",
            "4:36: set: there is no variable $ap_host; did you mean \"$app_host\"?",
        ),
        (
            "values = { app = '\"a\"' }",
            "upstream = \"blue\"\nwhen = 'values.ap == \"a\"'",
            "4:9: when: the name values.ap does not exist; did you mean \"values.app\"?",
        ),
        (
            "values = { app = '\"a\"' }",
            "upstream = \"blue\"\nrate_limit = { rate = \"1/s\", key = \"${ap}\" }",
            "4:36: key: no value is named \"ap\"; did you mean \"${app}\"?",
        ),
        (
            "values = { app = '\"a\"' }",
            "upstream = \"blue\"\ncache = { key_values = \"ap\" }\n[cache]\nmemory = \"1MiB\"",
            "4:24: key_values: no value is named \"ap\"; did you mean \"app\"?",
        ),
        (
            "values = { app = '\"a\"' }",
            "respond = { status = 200, body = \"x ${ap}\" }",
            "3:37: body: there is no variable $ap; did you mean \"$app\"?",
        ),
        (
            "values = { app = '\"a\"' }",
            "upstream = \"blue\"\n[log]\ntarget = \"stdout\"\nformat = '$status ${ap}'",
            "6:19: format: there is no field \"ap\" in the log; did you mean \"$app\"?",
        ),
        (
            "values = { app = 'request.path' }",
            "redirect = { to = \"https://${app}/\" }",
            "3:34: to: this could change the host of the URL",
        ),
        (
            "values = { app = 'request.method == \"GET\" ? \"blue\" : \"gren\"' }",
            "upstream = \"${app}\"",
            "3:12: upstream: no upstream is named \"gren\"; did you mean \"green\"?",
        ),
        (
            "values = { app = 'request.method == \"GET\" ? \"blue\" : \"bytes\"' }",
            "upstream = \"${app}\"",
            "3:12: upstream: upstream \"bytes\" has a tcp:// server",
        ),
        (
            "",
            "files = { root = \"${host}\" }",
            "3:18: root: \"${host}\" has no folder that all values stay below",
        ),
        (
            "values = { site = 'request.host' }",
            "files = { root = \"/srv/${site}\", listing = true }",
            "3:18: listing is not possible with a root that has values",
        ),
    ] {
        let said = said(top, route);
        assert!(said.len() == 1 && said[0].starts_with(expected), "{top} {route}: {said:?}");
    }
    let many: Vec<String> = (0..65).map(|number| format!("a{number} = 'true'")).collect();
    let mistakes = said(&format!("values = {{ {} }}", many.join(", ")), ROUTE);
    assert!(
        mistakes[0].starts_with("1:10: values: there are 65 values; at most 64 are allowed"),
        "{mistakes:?}"
    );
}

const LATE: &str = "values = { plan = 'jwt.claims.plan ?? \"free\"', who = 'client.user', at = 'server.name', failed = \
                    'response.status >= 500', took = 'response.time', kind = 'response.headers[\"content-type\"]', \
                    label = 'values.failed ? \"bad\" : \"good\"' }\n\
                    map.tier = { key = 'client.user ?? \"\"', entries = { ann = \"gold\" } }\n";

/// A value has the stage of its expression: places that are evaluated then, or later, can have it.
#[test]
fn values_of_later_facts_are_known_in_later_places() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let keys = folder.path().join("keys.json");
    let key = r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
    std::fs::write(&keys, format!("{{\"keys\":[{key}]}}")).expect("it is writable");
    for route in [
        // Once the client is authenticated.
        "upstream = \"${plan}\"",
        "redirect = { to = \"https://www.example.com/${plan}\" }",
        "respond = { status = 200, body = \"${who}, ${plan}\" }",
        "respond = { status = \"${code}\" }\nvalues = { code = 'client.user == \"ann\" ? 200 : 404' }",
        "files = { root = \"/srv/${who}\" }",
        "upstream = \"blue\"\nrewrite = { path = \"/${plan}\", host = \"${plan}.internal\" }",
        "upstream = \"blue\"\nrate_limit = { rate = \"1/s\", key = \"${plan}\", when = 'values.who != \"ann\"' }",
        "upstream = \"blue\"\nconcurrency = { max = 1, by = \"${who}\", when = 'values.plan == \"free\"' }",
        "split = { blue = 1, green = { weight = 1, when = 'values.plan == \"gold\"' } }\nsticky = { by = \"${who}\" }",
        "upstream = \"blue\"\ncache = { key_values = \"plan\", when = 'values.plan == \"free\"' }\n[cache]\nmemory = \"1MiB\"",
        "upstream = \"blue\"\nmirror = { upstream = \"green\", when = 'values.plan == \"gold\"' }",
        "upstream = \"pool\"\n[upstream.pool]\nservers = [\"http://d\"]\nhash_key = \"${who}\"\nbalance = \"consistent-hash\"",
        "upstream = \"blue\"\nrequest_headers = { set = { X-Plan = \"${plan} ${map.tier}\" } }",
        // Once a server is chosen.
        "upstream = \"blue\"\nrequest_headers = { set = { X-Server = \"${at}\" }, when = 'values.at != \"b\"' }",
        "upstream = \"blue\"\nrewrite = { host = \"${at}\" }",
        // Once the response has arrived.
        "upstream = \"blue\"\nresponse_headers = { set = { X-A = \"${failed} ${took} ${kind} ${label} ${plan} ${at}\" } }",
        "upstream = \"blue\"\nresponse_headers = { remove = \"Server\", when = 'values.failed' }",
        "upstream = \"blue\"\ncompress = { when = 'values.kind != \"image/png\"' }",
        "upstream = \"blue\"\naccess_log = { when = 'values.failed' }",
        "upstream = \"blue\"\ncache = { rules = [{ when = 'values.failed', ttl = \"0s\" }] }\n[cache]\nmemory = \"1MiB\"",
        "upstream = \"blue\"\n[log]\ntarget = \"stdout\"\nformat = '${failed} ${took} ${kind} ${who} ${at} ${map.tier}'",
        "upstream = \"blue\"\n[log]\ntarget = \"stdout\"\nformat = \"json\"\nfields = [\"failed\", \"took\", \"map.tier\"]",
    ] {
        let route = &format!("jwt = {{ keys = {keys:?} }}\n{route}");
        assert_eq!(said(LATE, route), [""; 0], "{route}");
        let config = config(LATE, route);
        let printed = config.printed(&config);
        assert_eq!(parse(&printed, "f").as_ref(), Ok(&config), "{printed}");
    }
}

/// A value in a place that is too early is a mistake, which says why and where it may be.
#[test]
fn values_of_later_facts_are_mistakes_in_earlier_places() {
    const TEXTS: &str = "expected it in response_headers or [log]";
    const CONDITIONS: &str = "expected it in response_headers, cache.rules, compress or access_log";
    let of_status = "is known only once the response has arrived, because it asks for response.status; this";
    let of_user = "is known only once the client is authenticated, because it asks for client.user; this";
    let key_of_status =
        format!("${{failed}} {of_status} key is made once the client is authenticated; {TEXTS}");
    let text_of_status =
        format!("${{failed}} {of_status} text is filled in once the client is authenticated; {TEXTS}");
    for (route, expected) in [
        (
            "upstream = \"blue\"\nwhen = 'values.failed'",
            format!("6:9: when: values.failed {of_status} expression is evaluated once a request has arrived; {CONDITIONS}"),
        ),
        (
            "upstream = \"blue\"\nwhen = 'values.label == \"bad\"'",
            format!("6:9: when: values.label {of_status} expression is evaluated once a request has arrived; {CONDITIONS}"),
        ),
        (
            "upstream = \"blue\"\nwhen = 'has(values.who)'",
            format!("6:13: when: values.who {of_user} expression is evaluated once a request has arrived; expected it in"),
        ),
        (
            "upstream = \"blue\"\nwhen = 'has(map.tier)'",
            format!("6:13: when: map.tier {of_user} expression is evaluated once a request has arrived; expected it in"),
        ),
        (
            "upstream = \"blue\"\ndeny = { when = 'values.plan == \"free\"' }",
            "6:18: when: values.plan is known only once the client is authenticated, because it asks for jwt.claims; this"
                .to_owned(),
        ),
        (
            "upstream = \"blue\"\nrate_limit = { rate = \"1/s\", when = 'has(values.who)' }",
            format!("6:42: when: values.who {of_user} expression is evaluated once a request has arrived; expected it in"),
        ),
        (
            "upstream = \"blue\"\nmirror = { upstream = \"green\", when = 'values.failed' }",
            format!("6:40: when: values.failed {of_status} expression is evaluated once the client is authenticated; {CONDITIONS}"),
        ),
        (
            "upstream = \"blue\"\nrequest_headers = { set = { X = \"a ${failed}\" } }",
            format!("6:36: set: ${{failed}} {of_status} text is filled in once a server is chosen; {TEXTS}"),
        ),
        ("upstream = \"${failed}\"", format!("5:13: upstream: {text_of_status}")),
        ("redirect = { to = \"/${failed}\" }", format!("5:21: to: {text_of_status}")),
        ("respond = { status = 200, body = \"${failed}\" }", format!("5:35: body: {text_of_status}")),
        ("respond = { status = \"${failed}\" }", format!("5:23: status: {text_of_status}")),
        ("files = { root = \"/srv/${failed}\" }", format!("5:24: root: {text_of_status}")),
        ("upstream = \"blue\"\nrewrite = { path = \"/${failed}\" }", format!("6:22: path: {text_of_status}")),
        (
            "upstream = \"blue\"\nrewrite = { path = \"/${at}\" }",
            "6:22: path: ${at} is known only once a server is chosen, because it asks for server.name; this text is filled in \
             once the client is authenticated; expected it in rewrite.host, request_headers, response_headers or [log]"
                .to_owned(),
        ),
        (
            "upstream = \"blue\"\nforward_auth = { upstream = \"green\", sign_in = \"/in/${who}\" }",
            format!("6:53: sign_in: ${{who}} {of_user} text is filled in once a request has arrived; expected it where"),
        ),
        (
            "upstream = \"blue\"\nrate_limit = { rate = \"1/s\", key = \"${failed}\" }",
            format!("6:36: key: {key_of_status}"),
        ),
        (
            "upstream = \"blue\"\nconcurrency = { max = 1, by = \"${failed}\" }",
            format!("6:31: by: {key_of_status}"),
        ),
        ("split = { blue = 1, green = 1 }\nsticky = { by = \"${failed}\" }", format!("6:17: by: {key_of_status}")),
        (
            "upstream = \"blue\"\ncache = { key_values = \"failed\" }\n[cache]\nmemory = \"1MiB\"",
            format!("6:24: key_values: {key_of_status}"),
        ),
        (
            "upstream = \"pool\"\n[upstream.pool]\nservers = [\"http://d\"]\nhash_key = \"${failed}\"\nbalance = \"consistent-hash\"",
            format!("8:12: hash_key: {key_of_status}"),
        ),
        // The key of an upstream has the route's own value of that name.
        (
            "upstream = \"pool\"\nvalues = { who = 'string(response.status)' }\n[upstream.pool]\nservers = [\"http://d\"]\n\
             hash_key = \"${who}\"\nbalance = \"consistent-hash\"",
            format!("6:12: hash_key: {}", key_of_status.replace("failed", "who")),
        ),
    ] {
        let said = said(LATE, route);
        assert!(said.len() == 1 && said[0].starts_with(&expected), "{route}: {said:?}\n{expected}");
    }
}

/// A limit by a value of the user needs users. Edits with such a value get a warning that there are none.
#[test]
fn values_of_users_need_authentication() {
    let limit = said(LATE, "upstream = \"blue\"\nrate_limit = { rate = \"1/s\", key = \"${plan}\" }");
    assert!(limit.len() == 1 && limit[0].contains("does not authenticate clients"), "{limit:?}");
    let route = "upstream = \"blue\"\nrequest_headers = { set = { X = \"${who}\" } }";
    let warnings = examine(&file(LATE, route), "f").warnings;
    let expected = "request_headers: values.who asks for the user, which is always absent here, since the route does not";
    assert!(warnings.iter().any(|warning| warning.to_string().contains(expected)), "{warnings:?}");
    // Other users have no claims.
    let route = "upstream = \"blue\"\nforward_auth = { upstream = \"blue\", user_header = \"X-User\" }\n\
                 request_headers = { set = { X = \"${who}\", Y = \"${plan}\" } }";
    let warnings = examine(&file(LATE, route), "f").warnings;
    let expected = "request_headers: values.plan asks for a claim, which is always absent here, since the route has no jwt";
    assert!(warnings.iter().any(|warning| warning.to_string().contains(expected)), "{warnings:?}");
}

/// A listener's own value makes the value as late as it is.
#[test]
fn values_of_listeners_can_be_later() {
    let text = |route: &str| {
        format!(
            "values = {{ a = '1' }}\n[[listen]]\nname = \"one\"\naddress = \"127.0.0.1:2\"\nvalues = {{ a = 'response.status' }}\n\
             {}",
            file("", route)
        )
    };
    assert!(parse(&text("upstream = \"blue\"\nresponse_headers = { set = { X = \"${a}\" } }"), "f").is_ok());
    let early = parse(&text("upstream = \"blue\"\nrequest_headers = { set = { X = \"${a}\" } }"), "f");
    let said = early.expect_err("is too late")[0].to_string();
    assert!(
        said.contains(
            "${a} is known only once the response has arrived, because it asks for response.status"
        ),
        "{said}"
    );
}

/// The upstreams that a text can name are known if it is one value of constants.
#[test]
fn named_upstreams_are_checked_if_they_are_known() {
    let upstreams = |value: &str, upstream: &str| {
        let reading = examine(&file(&format!("values = {{ app = '{value}' }}"), upstream), "f");
        let config = reading.config.expect("is valid");
        let Action::Named(named) = &config.routes[0].action else { panic!("it is named") };
        let names: Vec<String> = named.upstreams.iter().map(|(name, _)| name.clone()).collect();
        (names, reading.warnings.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let (names, warnings) = upstreams(r#"request.host == "a" ? "blue" : "green""#, "upstream = \"${app}\"");
    assert_eq!(names, ["blue", "green"]);
    assert!(!warnings.iter().any(|warning| warning.contains("not known")), "{warnings:?}");
    let (names, warnings) = upstreams(r#"request.host == "a" ? "blue" : "blue""#, "upstream = \"${app}\"");
    assert_eq!(names, ["blue"]);
    assert!(warnings.iter().any(|warning| warning.contains("no route leads to upstream \"green\"")));
    for upstream in ["upstream = \"${app}\"", "upstream = \"${app}n\""] {
        let (names, warnings) = upstreams(r#"request.headers["x-app"] ?? "blue""#, upstream);
        assert_eq!(names, ["blue", "green"], "all that speak HTTP");
        let warned = "upstream: it is not known which upstreams";
        assert!(warnings.iter().any(|warning| warning.contains(warned)), "{warnings:?}");
    }
}

/// Names in the configuration have to be those of upstreams. Names in a file can change, so a wrong one is a warning.
#[test]
fn upstreams_that_a_map_names_are_checked() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let path = directory.path().join("colors");
    let lines: String = (0..22).map(|number| format!("k{number:02} red{number:02}\n")).collect();
    std::fs::write(&path, format!("a green\n{lines}")).expect("it is writable");
    let of_file = format!("file = {path:?}");
    let examined = |map: &str, route: &str| {
        let top = format!("[map.color]\nkey = 'request.host'\n{map}");
        let reading = examine(&file(&top, route), "f");
        let is_meant = |sentence: &String| sentence != "no route leads to upstream \"bytes\"";
        let said = |list: &[config::Mistake]| -> Vec<String> {
            list.iter().map(config::Mistake::sentence).filter(is_meant).collect()
        };
        (reading.config.clone(), said(&reading.mistakes), said(&reading.warnings))
    };
    const BY_MAP: &str = "upstream = \"${map.color}\"";
    for (map, route) in [
        ("entries = { a = \"blue\", b = \"green\" }", BY_MAP),
        ("entries = { a = \"blue\" }\ndefault = \"green\"", BY_MAP),
        ("entries = { a = \"blue\" }", "upstream = \"${c}\"\nvalues = { c = 'map.color ?? \"green\"' }"),
    ] {
        let (config, mistakes, warnings) = examined(map, route);
        assert_eq!((mistakes, warnings), (Vec::new(), Vec::new()), "{map}");
        let config = config.expect("is valid");
        let Action::Named(named) = &config.routes[0].action else { panic!("it is named") };
        // A command can give an entry any other of them.
        assert_eq!(
            named.upstreams.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["blue", "green"]
        );
    }
    for (map, route, expected) in [
        (
            "entries = { a = \"blue\", b = \"gren\" }",
            BY_MAP,
            "upstream, by an entry of map.color: no upstream is named \"gren\"; did you mean \"green\"? Expected blue, green \
             or bytes",
        ),
        (
            "entries = { a = \"bytes\" }",
            BY_MAP,
            "upstream, by an entry of map.color: upstream \"bytes\" has a tcp:// server, which speaks no HTTP; expected \
             http:// or https:// servers, or a listener with tcp",
        ),
        (
            "entries = { a = \"blue\" }\ndefault = \"gren\"",
            BY_MAP,
            "upstream: no upstream is named \"gren\"; did you mean \"green\"? Expected blue, green or bytes",
        ),
    ] {
        assert_eq!(examined(map, route).1, [expected], "{map}");
    }
    let (config, mistakes, warnings) = examined(&of_file, BY_MAP);
    assert_eq!(mistakes, [""; 0]);
    let config = config.expect("is valid");
    let Action::Named(named) = &config.routes[0].action else { panic!("it is named") };
    assert_eq!(config.possible_upstreams(named).as_deref(), Some("green"));
    let listed: Vec<String> = (0..20).map(|number| format!("red{number:02}")).collect();
    let expected =
        format!("colors has names of no upstream: {} and 2 more; expected names of", listed.join(", "));
    assert!(warnings.len() == 1 && warnings[0].contains(&expected), "{warnings:?}");
}

/// The status of a response can be a value. What it can be is checked, as far as the configuration says.
#[test]
fn statuses_of_values_are_checked() {
    for (top, route) in [
        (
            "",
            "respond = { status = \"${code}\" }\nvalues = { code = 'request.method == \"GET\" ? 200 : 405' }",
        ),
        ("", "respond = { status = \"${code}\" }\nvalues = { code = 'request.headers[\"x-code\"]' }"),
        (
            "",
            "respond = { status = \"4${code}\", body = \"x\" }\nvalues = { code = 'request.headers[\"x-code\"]' }",
        ),
        (
            "[map.code]\nkey = 'request.path'\ndefault = 404\nentries = { \"/a\" = 410, \"/b\" = 204 }",
            "respond = { status = \"${map.code}\", body = \"x\" }",
        ),
    ] {
        let config = config(top, route);
        let Action::Respond(respond) = &config.routes[0].action else { panic!("it responds") };
        assert!(respond.status.is_some(), "{route}");
        let printed = config.printed(&config);
        assert_eq!(parse(&printed, "f").as_ref(), Ok(&config), "{printed}");
    }
    const BY_MAP: &str = "respond = { status = \"${map.code}\" }";
    const EXPECTED: &str = "expected a number or a text from 200 to 599";
    for (top, route, expected) in [
        (
            "",
            "respond = { status = \"${code}\" }\nvalues = { code = 'request.method == \"GET\" ? 200 : 600' }",
            format!("3:22: status: \"600\" is not a status; {EXPECTED}"),
        ),
        (
            "",
            "respond = { status = \"${code}\" }\nvalues = { code = '\"2xx\"' }",
            format!("3:22: status: \"2xx\" is not a status; {EXPECTED}"),
        ),
        (
            "",
            "respond = { status = \"${code}\" }\nvalues = { code = 'request.method == \"GET\"' }",
            format!("3:22: status: ${{code}} is true or false, not a status; {EXPECTED}"),
        ),
        (
            "[map.code]\nkey = 'request.path'\nentries = { \"/a\" = 410, \"/b\" = 99 }",
            BY_MAP,
            format!("5:22: status, by an entry of map.code: \"99\" is not a status; {EXPECTED}"),
        ),
        (
            "",
            "respond = { status = \"404\" }",
            "3:22: status: this is a string; expected a whole number, 200 to 599, or a value such as \"${code}\"".to_owned(),
        ),
        (
            "",
            "respond = { status = \"${cod}\" }\nvalues = { code = '200' }",
            "3:23: status: there is no variable $cod; did you mean \"$code\"? Expected a whole number, 200 to 599, or a value \
             such as \"${code}\""
                .to_owned(),
        ),
    ] {
        assert_eq!(said(top, route), [expected], "{top} {route}");
    }
    let directory = tempfile::tempdir().expect("a temporary folder");
    let path = directory.path().join("codes");
    std::fs::write(&path, "/a 404\n/b none\n").expect("it is writable");
    let reading = examine(&file(&format!("[map.code]\nkey = 'request.path'\nfile = {path:?}"), BY_MAP), "f");
    let warnings: Vec<String> = reading.warnings.iter().map(config::Mistake::sentence).collect();
    assert!(
        warnings[0].contains("codes has entries that are no status: none; expected 200 to 599"),
        "{warnings:?}"
    );
}

#[test]
fn values_of_routes_replace_those_of_the_file() {
    let values = |config: &Config, route: usize| -> Vec<(String, String)> {
        let all = config.routes[route].values.meanings();
        all.map(|(name, value)| (name.to_owned(), value.to_string())).collect()
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let text = format!(
        "values = {{ b = '1', a = '2' }}\n[[route]]\npath = \"/a\"\nvalues = {{ a = 'values.b', c = 'values.a' }}\n\
         upstream = \"blue\"\nwhen = 'values.a < 2'\n[[route]]\nupstream = \"green\"\nwhen = 'values.a == 2'\n{ROUTED}"
    );
    let config = parse(&text, "f").expect("is valid");
    assert_eq!(values(&config, 0), [pair("b", "1"), pair("a", "values.b"), pair("c", "values.a")]);
    assert_eq!(values(&config, 1), [pair("b", "1"), pair("a", "2")]);
    // What a route declares ends with it.
    let leaked = text.replace("'values.a == 2'", "'values.c == 2'");
    assert!(parse(&leaked, "f").unwrap_err()[0].to_string().contains("the name values.c does not exist"));
    // An unchanged file is an unchanged configuration, also in its values.
    assert_eq!(parse(&text, "f").as_ref(), Ok(&config));
    assert_ne!(parse(&text.replace("a = '2'", "a = '3'"), "f").as_ref(), Ok(&config));
}

#[test]
fn values_of_listeners_replace_those_of_the_file() {
    let text = |own: &str| {
        format!(
            "values = {{ a = '\"all\"', b = 'values.a' }}\n[[listen]]\naddress = \"127.0.0.1:2\"\nname = \"in\"\n\
             values = {{ {own} }}\n[[route]]\nupstream = \"blue\"\nwhen = 'values.a == \"in\"'\n{ROUTED}"
        )
    };
    let config = parse(&text("x = '1', a = '\"in\"'"), "f").unwrap_err();
    assert!(config[0].to_string().starts_with("f:5:12: values: x is not in [values]"), "{config:?}");
    let wrong = parse(&text("a = '1'"), "f").unwrap_err();
    assert!(
        wrong[0].to_string().starts_with("f:5:12: values: a is an integer here; expected a text"),
        "{wrong:?}"
    );
    let config = parse(&text("a = 'values.b + \"in\"'"), "f").expect("is valid");
    let (_, value) = config.values.meanings().find(|(name, _)| *name == "a").expect("it is there");
    assert!(value.asks_for(expression::Fact::ListenerName));
}

/// Inserted texts have no variables.
#[test]
fn inserted_texts_stay_texts() {
    let body = |body: &str| {
        let config = config("", &format!("respond = {{ status = 200, body = \"{body}\" }}"));
        let Action::Respond(respond) = &config.routes[0].action else { panic!("it responds") };
        assert!(respond.body.is_none());
        String::from_utf8(respond.response.body().to_vec()).expect("is text")
    };
    for (written, expected) in [
        ("$5 $host", "$5 $host"),
        ("$${host}", "${host}"),
        ("$$$${host}", "$${host}"),
        ("${MISSING:-$5}", "$5"),
        ("$${MISSING}", "${MISSING}"),
    ] {
        assert_eq!(body(written), expected, "{written}");
    }
}

/// Editors complete the tables from the schema.
#[test]
fn the_schema_knows_values() {
    let schema = config::schema();
    let of = |pointer: &str| schema.pointer(pointer).unwrap_or_else(|| panic!("{pointer} is missing"));
    for pointer in [
        "/properties/values",
        "/properties/listen/items/properties/values",
        "/properties/route/items/properties/values",
    ] {
        assert_eq!(of(pointer)["type"], "object", "{pointer}");
        assert!(of(pointer)["additionalProperties"].is_object(), "{pointer}");
    }
}
