//! `grpc_web` of a route: what it brings along, and what it does not go with.

use config::{Config, examine, parse};

fn file(defaults: &str, route: &str, upstream: &str) -> String {
    format!(
        "[[listen]]\naddress = \"127.0.0.1:8080\"\n{defaults}\n[[route]]\n{route}\n\
         [upstream.app]\nservers = [\"http://127.0.0.1:9000\"]\n{upstream}\n"
    )
}

fn config(text: &str) -> Config {
    parse(text, "f").unwrap_or_else(|mistakes| panic!("{mistakes:#?}\n{text}"))
}

#[test]
fn cors_permits_the_fields_of_grpc_web() {
    let cors =
        "cors = { origins = [\"https://app.example.com\"], headers = \"x-grpc-web\", expose = \"X-Total\" }";
    for (is_on, headers, expose) in [
        (false, &["x-grpc-web"][..], &["X-Total"][..]),
        (
            true,
            &["x-grpc-web", "Content-Type", "X-User-Agent", "Grpc-Timeout"],
            &["X-Total", "Grpc-Status", "Grpc-Message", "Grpc-Status-Details-Bin"],
        ),
    ] {
        let route = format!("upstream = \"app\"\ngrpc_web = {is_on}\n{cors}");
        let config = config(&file("", &route, "protocol = \"h2\""));
        let found = config.routes[0].policies.cors.as_ref().expect("it is there");
        assert_eq!(found.headers, headers);
        assert_eq!(found.expose, expose);
        assert_eq!(parse(&config.text(&config), "printed"), Ok(config));
    }
    let any =
        "upstream = \"app\"\ngrpc_web = true\ncors = { origins = \"*\", headers = \"*\", expose = \"*\" }";
    let config = config(&file("", any, "protocol = \"h2\""));
    let found = config.routes[0].policies.cors.as_ref().expect("it is there");
    assert_eq!((&found.headers[..], &found.expose[..]), (&["*".to_owned()][..], &["*".to_owned()][..]));
}

#[test]
fn what_cannot_serve_calls_is_refused() {
    for (route, upstream, expected) in [
        (
            "upstream = \"app\"\ngrpc_web = true",
            "",
            "f:4:1: grpc_web: upstream \"app\" speaks HTTP/1.1, and gRPC is HTTP/2 or HTTP/3; expected protocol = \"h2\" in \
             [upstream.app]",
        ),
        (
            "split = { app = 1, old = 1 }\ngrpc_web = true",
            "protocol = \"h2\"\n[upstream.old]\nservers = [\"http://127.0.0.1:9001\"]",
            "f:4:1: grpc_web: upstream \"old\" speaks HTTP/1.1, and gRPC is HTTP/2 or HTTP/3; expected protocol = \"h2\" in \
             [upstream.old]",
        ),
        (
            "respond = { status = 204 }\ngrpc_web = true",
            "",
            "f:4:1: grpc_web: this route asks no server; expected upstream or split",
        ),
        (
            "upstream = \"app\"\ngrpc_web = true\ncache = {}",
            "protocol = \"h2\"\n[cache]\nmemory = \"1MiB\"",
            "f:7:9: cache: a route with grpc_web stores no responses; expected one of them",
        ),
    ] {
        let mistakes = parse(&file("", route, upstream), "f").expect_err("it is refused");
        let said: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        assert_eq!(said, [expected], "{route}");
    }
}

#[test]
fn alt_svc_needs_a_server_that_sends_it() {
    for action in ["respond = { status = 204 }", "redirect = { to = \"/\" }"] {
        let mistakes =
            parse(&file("", &format!("{action}\nalt_svc = true"), ""), "f").expect_err("it is refused");
        let said: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            ["f:4:1: alt_svc: this route asks no server; expected upstream or split"],
            "{action}"
        );
    }
}

#[test]
fn routes_without_a_server_take_it_from_no_defaults() {
    let defaults =
        "[route_defaults]\ngrpc_web = true\n[[route]]\npath = \"/own\"\nrespond = { status = 204 }";
    let reading = examine(&file(defaults, "upstream = \"app\"", "protocol = \"h2\""), "f");
    assert_eq!((&reading.mistakes[..], &reading.warnings[..]), (&[][..], &[][..]));
    let config = reading.config.expect("it is valid");
    let is_on = |index: usize| config.routes[index].policies.options.grpc_web;
    assert_eq!([0, 1].map(is_on), [false, true]);
}
