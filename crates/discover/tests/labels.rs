//! Translates containers as Docker's API describes them into routes, upstreams and remarks, and lets the
//! configuration parse them.

use discover::{Container, Fragment, translate};
use serde_json::{Value, json};

/// Returns the JSON of a container at this address, with only the members that are read.
fn told(name: &str, address: &str, labels: &[(&str, &str)]) -> Value {
    let labels: serde_json::Map<String, Value> =
        labels.iter().map(|(label, value)| ((*label).to_owned(), json!(value))).collect();
    json!({
        "Id": "1c4f328a36ea9d3d6b7e286cb7ac3d8c685fe8e18978c29bfad94897a428772e",
        "Name": format!("/{name}"),
        "State": { "Status": "running", "Running": true, "Paused": false },
        "Config": { "Labels": labels, "ExposedPorts": { "8080/tcp": {} } },
        "HostConfig": { "NetworkMode": "bridge" },
        "NetworkSettings": { "Ports": { "8080/tcp": null }, "Networks": { "bridge": { "IPAddress": address } } },
    })
}

fn translated(told: &[Value]) -> Fragment {
    let containers: Vec<Container> =
        told.iter().map(|told| Container::read(told).expect("a container")).collect();
    let fragment = translate(&containers);
    let whole = format!("[[listen]]\naddress = \"127.0.0.1:0\"\n{}", fragment.toml);
    if fragment.routes > 0
        && let Err(mistakes) = config::parse(&whole, "docker.toml")
    {
        panic!("{}\n{whole}", mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
    }
    fragment
}

fn remarks(fragment: &Fragment) -> Vec<String> {
    fragment.remarks.iter().map(ToString::to_string).collect()
}

#[test]
fn containers_of_one_service_are_servers_of_one_upstream() {
    let labels = [
        ("vanward.enable", "true"),
        ("vanward.host", "a.example, b.example"),
        ("vanward.path", "/api"),
        ("vanward.route.rate_limit", "{ rate = \"10/s\", key = \"client\" }"),
        ("vanward.upstream.balance", "least-connections"),
        ("vanward.upstream.check.type", "http"),
        ("com.docker.compose.project", "shop"),
        ("com.docker.compose.service", "web"),
    ];
    let mut stopped = told("shop-web-3", "172.18.0.4", &labels);
    stopped["State"]["Running"] = json!(false);
    let mut unhealthy = told("shop-web-4", "172.18.0.5", &labels);
    unhealthy["State"]["Health"] = json!({ "Status": "unhealthy" });
    let of = [
        told("shop-web-2", "172.18.0.3", &labels),
        told("shop-web-1", "172.18.0.2", &labels),
        told("db", "172.18.0.9", &[("com.docker.compose.service", "db")]),
        stopped,
        unhealthy,
    ];
    let fragment = translated(&of);
    let expected = "\
[[route]]
name = \"docker-shop-web\"
host = [\"a.example\", \"b.example\"]
path = \"/api\"
upstream = \"docker-shop-web\"
rate_limit = { \"key\" = \"client\", \"rate\" = \"10/s\" }

[upstream.\"docker-shop-web\"]
servers = [
    { url = \"http://172.18.0.2:8080\", name = \"shop-web-1\" },
    { url = \"http://172.18.0.3:8080\", name = \"shop-web-2\" },
]
balance = \"least-connections\"
check.type = \"http\"

";
    assert_eq!(fragment.toml, expected);
    assert_eq!((remarks(&fragment), fragment.routes, fragment.servers), (vec![], 1, 2));
}

#[test]
fn labels_of_traefik() {
    let fragment = translated(&[
        told(
            "api",
            "10.0.0.2",
            &[
                ("traefik.enable", "true"),
                ("traefik.http.routers.api.rule", "Host(`a.example`) && PathPrefix(`/api`)"),
                ("traefik.http.routers.api.entrypoints", "websecure"),
                ("traefik.http.routers.api.tls.certresolver", "le"),
                ("traefik.http.routers.api.middlewares", "strip, gzip@docker"),
                ("traefik.http.routers.plain.rule", "Host(`a.example`)"),
                ("traefik.http.routers.plain.middlewares", "secure"),
                ("traefik.http.middlewares.strip.stripprefix.prefixes", "/api"),
                ("traefik.http.middlewares.gzip.compress", "true"),
                ("traefik.http.middlewares.secure.redirectscheme.scheme", "https"),
                ("traefik.http.services.api.loadbalancer.server.port", "9000"),
                ("traefik.http.services.api.loadbalancer.sticky.cookie", "true"),
                ("traefik.http.services.api.loadbalancer.healthcheck.path", "/health"),
            ],
        ),
        // Without traefik.enable: Traefik's default takes the container.
        told(
            "web",
            "10.0.0.3",
            &[("traefik.http.routers.web.rule", "Host(`b.example`) || PathPrefix(`/web`)")],
        ),
        told(
            "off",
            "10.0.0.4",
            &[("traefik.enable", "false"), ("traefik.http.routers.off.rule", "Host(`c.example`)")],
        ),
    ]);
    let expected = "\
[[route]]
name = \"docker-api\"
host = [\"a.example\"]
path = \"/api\"
upstream = \"docker-api\"
rewrite = { path = \"/\" }
compress = true

[[route]]
name = \"docker-web\"
host = [\"b.example\"]
upstream = \"docker-web\"

[[route]]
name = \"docker-web-2\"
path = \"/web\"
upstream = \"docker-web\"

[upstream.\"docker-api\"]
servers = [
    { url = \"http://10.0.0.2:9000\", name = \"api\" },
]
check.path = \"/health\"
check.type = \"http\"
sticky.by = \"cookie\"

[upstream.\"docker-web\"]
servers = [
    { url = \"http://10.0.0.3:8080\", name = \"web\" },
]

";
    assert_eq!(fragment.toml, expected);
    let expected = [
        "api: traefik.http.routers.api.entrypoints: needs nothing: routes apply to all listeners",
        "api: traefik.http.routers.api.tls.certresolver: needs nothing: TLS is the listener's, tls = { certificates = \"auto\" }",
        "api: traefik.http.routers.plain.middlewares: needs nothing: redirect_to_https = true of the listener without TLS redirects",
    ];
    assert_eq!(remarks(&fragment), expected);
}

/// Each dropped label has a remark. A dropped restriction drops the route, too.
#[test]
fn untranslated_labels_are_reported_with_their_container() {
    let rule = ("traefik.http.routers.r.rule", "Host(`a.example`)");
    for (labels, routes, expected) in [
        (
            vec![("vanward.host", "a.example")],
            0,
            "c: it has labels of Vanward, but not vanward.enable=true: no route leads to it",
        ),
        (
            vec![("vanward.enable", "yes")],
            0,
            "c: vanward.enable: it is neither true nor false, so it counts as false",
        ),
        (
            vec![("vanward.enable", "true")],
            0,
            "c: vanward.enable: there is neither vanward.host nor vanward.path: no route leads to it",
        ),
        (
            vec![("vanward.enable", "true"), ("vanward.path", "/"), ("vanward.port", "http")],
            0,
            "c: vanward.port: \"http\" is not a port; the container is left out",
        ),
        (
            vec![("vanward.enable", "true"), ("vanward.path", "/"), ("vanward.hosts", "a")],
            0,
            "c: vanward.hosts: there is no such label; the labels are enable, host, path, port, network, \
             scheme, name, route.OPTION and upstream.OPTION; the container is left out",
        ),
        (
            vec![
                ("vanward.enable", "true"),
                ("vanward.path", "/"),
                ("vanward.route.files", "{ root = \"/etc\" }"),
            ],
            0,
            "c: vanward.route.files: labels may not set this option; they may set access_log, allow, clients, compress, \
             concurrency, cors, deny, grpc_web, headers, limits, methods, proxy_status, query, rate, rate_limit, request_headers, \
             response_headers, retry, rewrite, timeouts; the container is left out",
        ),
        (
            vec![("traefik.http.routers.r.rule", "Host(`a`) && ClientIP(`10.0.0.0/8`)")],
            0,
            "c: traefik.http.routers.r.rule: ClientIP is not supported; Host, Path, PathPrefix and Method \
             are; the router r is not taken over",
        ),
        (
            vec![rule, ("traefik.http.routers.r.entrypoints", "web, internal")],
            0,
            "c: traefik.http.routers.r.entrypoints: internal: routes apply to all listeners, so only the \
             entry points web and websecure are supported; the router r is not taken over",
        ),
        (
            vec![
                rule,
                ("traefik.http.routers.r.middlewares", "users"),
                ("traefik.http.middlewares.users.basicauth.users", "a:b"),
            ],
            0,
            "c: traefik.http.routers.r.middlewares: users: basicauth.users is not supported; the router r is \
             not taken over",
        ),
        (
            vec![rule, ("traefik.http.routers.r.middlewares", "sso@file")],
            0,
            "c: traefik.http.routers.r.middlewares: sso@file is not in this container's labels; the router r \
             is not taken over",
        ),
        (
            vec![rule, ("traefik.tcp.routers.db.rule", "HostSNI(`*`)")],
            1,
            "c: traefik.tcp.routers.db.rule: it is not taken over: only routers, services and middlewares of \
             HTTP are",
        ),
        (
            vec![rule, ("traefik.http.services.s.loadbalancer.server.port", "x")],
            0,
            "c: traefik.http.services.s.loadbalancer.server.port: \"x\" is not a port; the router r is not \
             taken over",
        ),
        (
            vec![("traefik.enable", "true")],
            0,
            "c: traefik.enable: it has no router: write traefik.http.routers.NAME.rule, or vanward.enable=true and vanward.host",
        ),
    ] {
        let fragment = translated(&[told("c", "10.0.0.2", &labels)]);
        assert_eq!((remarks(&fragment), fragment.routes), (vec![expected.to_owned()], routes), "{labels:?}");
    }
}

#[test]
fn contradictory_labels_are_reported() {
    let own = |host| [("vanward.enable", "true"), ("vanward.host", host), ("vanward.name", "app")];
    let fragment =
        translated(&[told("one", "10.0.0.2", &own("a.example")), told("two", "10.0.0.3", &own("b.example"))]);
    let expected = "two: an earlier container defines route docker-app differently: both need the same \
                    labels";
    assert_eq!((remarks(&fragment), fragment.servers), (vec![expected.to_owned()], 2));
    // Two services want the same requests.
    let own = [("vanward.enable", "true"), ("vanward.host", "a.example")];
    let fragment = translated(&[told("one", "10.0.0.2", &own), told("two", "10.0.0.3", &own)]);
    assert_eq!(fragment.routes, 1);
    assert!(
        remarks(&fragment)[0].contains("is for the same requests as route docker-one"),
        "{:?}",
        fragment.remarks
    );
}

/// A label cannot read files or variables of the host.
#[test]
fn variables_in_labels_are_not_expanded() {
    let labels = [
        ("vanward.enable", "true"),
        ("vanward.path", "/"),
        ("vanward.route.request_headers", "{ set = { X-A = \"${file:/etc/hostname}\" } }"),
    ];
    let fragment = translated(&[told("c", "10.0.0.2", &labels)]);
    assert!(fragment.toml.contains("$${file:/etc/hostname}"), "{}", fragment.toml);
}
