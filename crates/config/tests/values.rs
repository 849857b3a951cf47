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
        ("values = { a = 'response.status' }", ROUTE, "1:17: a: response.status is known only once"),
        (
            "values = { a = 'jwt.claims.sub' }",
            ROUTE,
            "1:17: a: jwt.claims is known only once the client is authenticated",
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
