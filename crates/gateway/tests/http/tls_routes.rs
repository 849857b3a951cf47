//! TLSRoutes: servers by server name.

use gateway::{Cluster, ObjectKind, Translation};
use serde_json::{Value, json};

use crate::scene::{backend, cluster, conditions, config, gateway, messages, object, service, translated};

const WELL: &str = "Accepted=Accepted ResolvedRefs=ResolvedRefs";

fn listener(name: &str, hostname: Value) -> Value {
    json!({ "name": name, "port": 443, "protocol": "TLS", "hostname": hostname, "tls": { "mode": "Passthrough" },
        "allowedRoutes": { "namespaces": { "from": "All" } } })
}

fn scene(listeners: &[Value]) -> Cluster {
    let mut cluster = cluster();
    cluster.put(ObjectKind::Gateway, gateway("infra", "edge", &json!(listeners)));
    cluster
}

fn route(name: &str, hosts: &[&str], backends: &Value) -> Value {
    let parents = json!([{ "name": "edge", "namespace": "infra" }]);
    let rules = json!([{ "backendRefs": backends }]);
    object("shop", name, json!({ "parentRefs": parents, "hostnames": hosts, "rules": rules }))
}

/// Describes the passthrough of port 443: names with servers and weights, and the shares of several upstreams.
fn passed_on(translation: &Translation) -> Vec<String> {
    let config = config(translation);
    let listener = config.listeners.iter().find(|listener| listener.address.port() == Some(443));
    let listener = listener.expect("a listener");
    let servers = |upstream: usize| {
        let servers = &config.upstreams[upstream].servers;
        let one =
            |server: &config::Server| format!("{server}={}", if server.down { 0 } else { server.weight });
        servers.iter().map(one).collect::<Vec<_>>().join(" ")
    };
    assert!(
        servers(
            listener.tcp.as_ref().and_then(|to| to.shares().next()).expect("an upstream for all others").0
        )
        .ends_with("=0")
    );
    let one = |one: &config::Passthrough| {
        let shares: Vec<(usize, u32)> = one.to.shares().collect();
        let to = match shares.as_slice() {
            [(upstream, _)] => servers(*upstream),
            several => {
                let share = |(upstream, weight): &(usize, u32)| format!("{weight} of {}", servers(*upstream));
                several.iter().map(share).collect::<Vec<_>>().join(", ")
            }
        };
        format!("{}: {to}", one.names.join(" "))
    };
    listener.passthrough.iter().map(one).collect()
}

#[test]
fn connections_go_by_name_to_the_servers_of_a_route() {
    const CART: &str = "tcp://10.0.0.1:8080=1000 tcp://10.0.0.2:8080=1000";
    for (host, hosts, expected) in [
        (Value::Null, &["a.example"][..], vec![format!("a.example: {CART}")]),
        (Value::Null, &["a.example", "*.b"], vec![format!("a.example **.b: {CART}")]),
        (Value::Null, &[], vec![format!("*: {CART}")]),
        (json!("*.example"), &[], vec![format!("**.example: {CART}")]),
        (
            json!("*.example"),
            &["A.example", "b.other"],
            vec![format!("a.example: {CART}"), "**.example: http://127.0.0.1:9=0".to_owned()],
        ),
        (json!("a.example"), &["*.example"], vec![format!("a.example: {CART}")]),
    ] {
        let mut cluster = scene(&[listener("tls", host.clone())]);
        cluster.put(ObjectKind::TlsRoute, route("r", hosts, &json!([backend("cart")])));
        let translation = translated(&cluster);
        assert_eq!(passed_on(&translation), expected, "{host} {hosts:?}");
        assert_eq!(conditions(&translation, ObjectKind::TlsRoute, "r"), WELL);
        let told = conditions(&translation, ObjectKind::Gateway, "edge");
        assert!(told.contains("| tls 1 [\"TLSRoute\"]: Accepted=Accepted"), "{told}");
    }
}

#[test]
fn weights_are_those_of_services_however_many_servers_they_have() {
    let mut cluster = scene(&[listener("tls", Value::Null)]);
    service(&mut cluster, "shop", "one", 8443, &["10.0.2.1"]);
    let weighted = |name: &str, weight: u32| json!({ "name": name, "port": 80, "weight": weight });
    for (backends, expected) in [
        (
            json!([weighted("cart", 1), weighted("one", 1)]),
            "*: tcp://10.0.0.1:8080=500 tcp://10.0.0.2:8080=500 tcp://10.0.2.1:8443=1000",
        ),
        (
            json!([weighted("cart", 9), weighted("one", 1)]),
            "*: tcp://10.0.0.1:8080=1000 tcp://10.0.0.2:8080=1000 tcp://10.0.2.1:8443=223",
        ),
        (json!([weighted("cart", 0), weighted("one", 1)]), "*: tcp://10.0.2.1:8443=1000"),
        // A service without endpoints has its share refused.
        (
            json!([weighted("empty", 1), weighted("one", 3)]),
            "*: 3 of tcp://10.0.2.1:8443=1000, 1 of http://127.0.0.1:9=0",
        ),
        (json!([weighted("empty", 0), weighted("one", 1)]), "*: tcp://10.0.2.1:8443=1000"),
        (json!([weighted("empty", 1)]), "*: http://127.0.0.1:9=0"),
    ] {
        cluster.put(ObjectKind::TlsRoute, route("r", &[], &backends));
        let translation = translated(&cluster);
        assert_eq!(passed_on(&translation), [expected], "{backends}");
        assert_eq!(conditions(&translation, ObjectKind::TlsRoute, "r"), WELL);
    }
}

#[test]
fn a_name_is_of_the_oldest_route_and_of_the_nearest_listener() {
    let mut cluster = scene(&[listener("all", Value::Null), listener("a", json!("a.example"))]);
    let created = |mut route: Value, at: &str| {
        route["metadata"]["creationTimestamp"] = json!(at);
        route
    };
    let later = route("later", &["b.example"], &json!([backend("blog")]));
    cluster.put(ObjectKind::TlsRoute, created(later, "2026-03-01T00:00:00Z"));
    let mut first = route("first", &["a.example", "b.example"], &json!([backend("stock")]));
    first["spec"]["parentRefs"][0]["sectionName"] = json!("all");
    first["spec"]["rules"][0]["backendRefs"][0]["namespace"] = json!("shop");
    service(&mut cluster, "shop", "stock", 1, &["10.0.3.1"]);
    cluster.put(ObjectKind::TlsRoute, created(first, "2026-02-01T00:00:00Z"));
    // Connections for the more specific listener reach no route of the other one.
    assert_eq!(
        passed_on(&translated(&cluster)),
        ["b.example: tcp://10.0.3.1:1=1000", "a.example: http://127.0.0.1:9=0"]
    );
}

#[test]
fn unsupported_routes_get_no_connection_and_a_condition() {
    let with = |more: Value| {
        let mut route = route("r", &["a.example"], &json!([backend("cart")]));
        route["spec"]
            .as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        route
    };
    let rules = |backends: Value| with(json!({ "rules": [{ "backendRefs": backends }] }));
    for (route, expected) in [
        (rules(json!([backend("gone")])), "Accepted=Accepted !ResolvedRefs=BackendNotFound"),
        (
            rules(json!([{ "name": "stock", "namespace": "other", "port": 80 }])),
            "Accepted=Accepted !ResolvedRefs=RefNotPermitted",
        ),
        (
            rules(json!([{ "name": "x", "kind": "Bucket", "group": "a", "port": 80 }])),
            "Accepted=Accepted !ResolvedRefs=InvalidKind",
        ),
        (with(json!({ "rules": [{}, {}] })), "!Accepted=UnsupportedValue ResolvedRefs=ResolvedRefs"),
        (
            with(json!({ "rules": [{ "backendRefs": [backend("cart")], "more": 1 }] })),
            "!Accepted=UnsupportedValue ResolvedRefs=ResolvedRefs",
        ),
        (with(json!({ "hostnames": ["a_b"] })), "!Accepted=UnsupportedValue ResolvedRefs=ResolvedRefs"),
    ] {
        let mut cluster = scene(&[listener("tls", Value::Null)]);
        cluster.put(ObjectKind::TlsRoute, route.clone());
        let translation = translated(&cluster);
        assert_eq!(conditions(&translation, ObjectKind::TlsRoute, "r"), expected, "{route}");
        assert!(passed_on(&translation).iter().all(|one| one.ends_with("=0")), "{route}");
    }
}

/// GEP-2643: an invalid backend costs only its share.
#[test]
fn of_several_backends_those_that_lead_nowhere_are_refused_their_share() {
    let weighted = |name: &str, weight: u32| json!({ "name": name, "port": 80, "weight": weight });
    let backends = json!([
        weighted("cart", 6),
        weighted("gone", 1),
        { "name": "stock", "namespace": "other", "port": 80, "weight": 1 },
    ]);
    let mut cluster = scene(&[listener("tls", Value::Null)]);
    cluster.put(ObjectKind::TlsRoute, route("r", &["a.example"], &backends));
    let translation = translated(&cluster);
    let servers = "tcp://10.0.0.1:8080=1000 tcp://10.0.0.2:8080=1000";
    assert_eq!(passed_on(&translation), [format!("a.example: 6 of {servers}, 2 of http://127.0.0.1:9=0")]);
    let told = conditions(&translation, ObjectKind::TlsRoute, "r");
    assert_eq!(told, "Accepted=Accepted !ResolvedRefs=BackendNotFound");
    // A condition has one reason: a remark reports the other one.
    let remarks: Vec<String> =
        translation.remarks.iter().map(|(object, why)| format!("{object}: {why}")).collect();
    let other = "TLSRoute shop/r: backendRefs: Service other/stock: no ReferenceGrant in other permits it";
    assert_eq!(remarks, [other]);
}

#[test]
fn listeners_take_the_routes_of_their_protocol_alone() {
    let mut cluster = scene(&[crate::scene::listener("http", 80, Value::Null)]);
    cluster.put(ObjectKind::TlsRoute, route("r", &[], &json!([backend("cart")])));
    let told = conditions(&translated(&cluster), ObjectKind::TlsRoute, "r");
    assert_eq!(told, "!Accepted=NotAllowedByListeners ResolvedRefs=ResolvedRefs");
    let mut terminating = listener("tls", Value::Null);
    terminating["tls"]["mode"] = json!("Terminate");
    let translation = translated(&scene(&[terminating]));
    assert!(conditions(&translation, ObjectKind::Gateway, "edge").contains("!Accepted=UnsupportedValue"));
    assert!(messages(&translation, ObjectKind::Gateway, "edge").contains("HTTPS decrypts"));
}
