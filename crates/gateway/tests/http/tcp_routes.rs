//! TCPRoutes: connections of a port go to services.

use gateway::{Cluster, ObjectKind, Translation};
use serde_json::{Value, json};

use crate::scene::{
    backend, cluster, conditions, config, gateway, listener as http, messages, object, service, translated,
};

const WELL: &str = "Accepted=Accepted ResolvedRefs=ResolvedRefs";
const CART: &str = "tcp://10.0.0.1:8080 tcp://10.0.0.2:8080";
const NOBODY: &str = "http://127.0.0.1:9 (down)";

fn listener(name: &str, port: u16) -> Value {
    json!({ "name": name, "port": port, "protocol": "TCP",
        "allowedRoutes": { "namespaces": { "from": "All" } } })
}

fn scene(listeners: &[Value]) -> Cluster {
    let mut cluster = cluster();
    cluster.put(ObjectKind::Gateway, gateway("infra", "edge", &json!(listeners)));
    cluster
}

fn route(name: &str, backends: &Value) -> Value {
    let parents = json!([{ "name": "edge", "namespace": "infra" }]);
    let rules = json!([{ "backendRefs": backends }]);
    object("shop", name, json!({ "parentRefs": parents, "rules": rules }))
}

fn created(mut object: Value, at: &str) -> Value {
    object["metadata"]["creationTimestamp"] = json!(at);
    object
}

/// Describes where the connections of each TCP port go: servers, with the share of each upstream.
fn forwarded(translation: &Translation) -> Vec<String> {
    let config = config(translation);
    let servers = |upstream: usize| {
        let servers = config.upstreams[upstream].servers.iter();
        let servers = servers.map(|one| format!("{one}{}", if one.down { " (down)" } else { "" }));
        servers.collect::<Vec<_>>().join(" ")
    };
    let of_listener = |listener: &config::Listener| {
        let shares: Vec<(usize, u32)> = listener.tcp.as_ref()?.shares().collect();
        let to = match shares.as_slice() {
            [(upstream, _)] => servers(*upstream),
            several => {
                let one = |(upstream, weight): &(usize, u32)| format!("{weight} of {}", servers(*upstream));
                several.iter().map(one).collect::<Vec<_>>().join(", ")
            }
        };
        Some(format!("{}: {to}", listener.address.port()?))
    };
    config.listeners.iter().filter_map(of_listener).collect()
}

#[test]
fn connections_go_to_the_services_of_a_route_by_weight() {
    let weighted = |name: &str, weight: u32| json!({ "name": name, "port": 80, "weight": weight });
    for (backends, expected) in [
        (json!([backend("cart")]), format!("5432: {CART}")),
        (
            json!([weighted("cart", 9), weighted("one", 1)]),
            format!("5432: 9 of {CART}, 1 of tcp://10.0.2.1:8443"),
        ),
        // However many servers a service has, and however often it is named.
        (
            json!([weighted("cart", 1), weighted("one", 1), weighted("cart", 1)]),
            format!("5432: 2 of {CART}, 1 of tcp://10.0.2.1:8443"),
        ),
        (
            json!([weighted("cart", 1_000_000), weighted("one", 250_000)]),
            format!("5432: 1000 of {CART}, 250 of tcp://10.0.2.1:8443"),
        ),
        (json!([weighted("cart", 0), weighted("one", 1)]), "5432: tcp://10.0.2.1:8443".to_owned()),
        (json!([weighted("cart", 0)]), format!("5432: {NOBODY}")),
        // A service without endpoints has its share refused.
        (
            json!([weighted("empty", 1), weighted("one", 3)]),
            format!("5432: 1 of {NOBODY}, 3 of tcp://10.0.2.1:8443"),
        ),
        (json!([]), format!("5432: {NOBODY}")),
    ] {
        let mut cluster = scene(&[listener("db", 5432)]);
        service(&mut cluster, "shop", "one", 8443, &["10.0.2.1"]);
        cluster.put(ObjectKind::TcpRoute, route("r", &backends));
        let translation = translated(&cluster);
        assert_eq!(forwarded(&translation), [expected], "{backends}");
        assert_eq!(conditions(&translation, ObjectKind::TcpRoute, "r"), WELL, "{backends}");
        let told = conditions(&translation, ObjectKind::Gateway, "edge");
        assert!(told.contains("| db 1 [\"TCPRoute\"]: Accepted=Accepted"), "{told}");
        assert!(told.ends_with("Programmed=Programmed"), "{told}");
    }
}

/// The protocol of a port says nothing about bytes.
#[test]
fn a_service_of_any_protocol_gets_bytes() {
    for protocol in ["postgresql", "kubernetes.io/h2c", "grpc", "https"] {
        let mut cluster = scene(&[listener("db", 5432)]);
        let spec = json!({ "ports": [{ "name": "web", "port": 80, "appProtocol": protocol }] });
        cluster.put(ObjectKind::Service, object("shop", "cart", spec));
        cluster.put(ObjectKind::TcpRoute, route("r", &json!([backend("cart")])));
        let translation = translated(&cluster);
        assert_eq!(forwarded(&translation), [format!("5432: {CART}")], "{protocol}");
        assert_eq!(conditions(&translation, ObjectKind::TcpRoute, "r"), WELL, "{protocol}");
    }
}

#[test]
fn a_backend_tls_policy_holds_for_bytes_as_well() {
    let mut cluster = scene(&[listener("db", 5432)]);
    cluster.put(ObjectKind::TcpRoute, route("r", &json!([backend("cart")])));
    let policy = |validation: Value| {
        let targets = json!([{ "group": "", "kind": "Service", "name": "cart" }]);
        object("shop", "p", json!({ "targetRefs": targets, "validation": validation }))
    };
    let system = json!({ "hostname": "cart.internal", "wellKnownCACertificates": "System" });
    cluster.put(ObjectKind::BackendTlsPolicy, policy(system));
    let translation = translated(&cluster);
    assert_eq!(forwarded(&translation), ["5432: https://10.0.0.1:8080 https://10.0.0.2:8080"]);
    assert_eq!(conditions(&translation, ObjectKind::BackendTlsPolicy, "p"), WELL);
    cluster.put(ObjectKind::BackendTlsPolicy, policy(json!({ "hostname": "cart.internal" })));
    let translation = translated(&cluster);
    assert_eq!(forwarded(&translation), [format!("5432: {NOBODY}")]);
    let told = conditions(&translation, ObjectKind::TcpRoute, "r");
    assert_eq!(told, "Accepted=Accepted !ResolvedRefs=InvalidBackendTLSPolicy");
}

#[test]
fn sections_and_ports_of_parents_choose_listeners() {
    let listeners = [listener("db", 5432), listener("queue", 5672), http("web", 80, Value::Null)];
    for (parent, served, expected) in [
        (json!({}), &[5432, 5672][..], WELL),
        (json!({ "sectionName": "db" }), &[5432], WELL),
        (json!({ "port": 5672 }), &[5672], WELL),
        (json!({ "sectionName": "db", "port": 5432 }), &[5432], WELL),
        (
            json!({ "sectionName": "db", "port": 5672 }),
            &[],
            "!Accepted=NoMatchingParent ResolvedRefs=ResolvedRefs",
        ),
        (json!({ "sectionName": "gone" }), &[], "!Accepted=NoMatchingParent ResolvedRefs=ResolvedRefs"),
        (json!({ "sectionName": "web" }), &[], "!Accepted=NotAllowedByListeners ResolvedRefs=ResolvedRefs"),
    ] {
        let mut cluster = scene(&listeners);
        let mut route = route("r", &json!([backend("cart")]));
        let parent = parent.as_object().expect("an object").clone();
        route["spec"]["parentRefs"][0].as_object_mut().expect("an object").extend(parent.clone());
        cluster.put(ObjectKind::TcpRoute, route);
        let translation = translated(&cluster);
        let to = |port: &u16| format!("{port}: {}", if served.contains(port) { CART } else { NOBODY });
        assert_eq!(forwarded(&translation), [5432, 5672].iter().map(to).collect::<Vec<_>>(), "{parent:?}");
        assert_eq!(conditions(&translation, ObjectKind::TcpRoute, "r"), expected, "{parent:?}");
        let told = conditions(&translation, ObjectKind::Gateway, "edge");
        for (name, port) in [("db", 5432), ("queue", 5672)] {
            let attached = usize::from(served.contains(&port));
            assert!(told.contains(&format!("| {name} {attached} [")), "{told}");
        }
    }
}

/// GEP-2644: all routes of a listener are accepted, and the oldest one gets the connections.
#[test]
fn the_oldest_route_of_a_listener_gets_its_connections() {
    let mut cluster = scene(&[listener("db", 5432), listener("queue", 5672)]);
    service(&mut cluster, "shop", "one", 8443, &["10.0.2.1"]);
    let mut older = created(route("z", &json!([backend("cart")])), "2026-02-01T00:00:00Z");
    older["spec"]["parentRefs"][0]["sectionName"] = json!("db");
    cluster.put(ObjectKind::TcpRoute, older);
    cluster.put(
        ObjectKind::TcpRoute,
        created(route("a", &json!([backend("one"), backend("gone")])), "2026-03-01T00:00:00Z"),
    );
    let translation = translated(&cluster);
    assert_eq!(
        forwarded(&translation),
        [format!("5432: {CART}"), format!("5672: 1 of tcp://10.0.2.1:8443, 1 of {NOBODY}")]
    );
    assert_eq!(conditions(&translation, ObjectKind::TcpRoute, "z"), WELL);
    let told = conditions(&translation, ObjectKind::TcpRoute, "a");
    assert_eq!(told, "Accepted=Accepted !ResolvedRefs=BackendNotFound");
    let told = conditions(&translation, ObjectKind::Gateway, "edge");
    assert!(told.contains("| db 2 [") && told.contains("| queue 1 ["), "{told}");
    let remarks: Vec<String> =
        translation.remarks.iter().map(|(object, why)| format!("{object}: {why}")).collect();
    assert_eq!(remarks, ["TCPRoute shop/a: it gets no connections of port 5432: TCPRoute shop/z is older"]);
    // A route that is not accepted leaves the port to the next one.
    let mut broken = created(route("z", &json!([backend("cart")])), "2026-02-01T00:00:00Z");
    broken["spec"]["rules"] = json!([{}, {}]);
    cluster.put(ObjectKind::TcpRoute, broken);
    let one = format!("1 of tcp://10.0.2.1:8443, 1 of {NOBODY}");
    assert_eq!(forwarded(&translated(&cluster)), [format!("5432: {one}"), format!("5672: {one}")]);
}

#[test]
fn unsupported_routes_get_no_connection_and_a_condition() {
    let rules = |backends: Value| json!([{ "backendRefs": backends }]);
    let mut filtered = backend("cart");
    filtered["filters"] = json!([{ "type": "X" }]);
    for (rules, expected) in [
        (rules(json!([backend("gone")])), "Accepted=Accepted !ResolvedRefs=BackendNotFound"),
        (rules(json!([{ "name": "cart", "port": 81 }])), "Accepted=Accepted !ResolvedRefs=BackendNotFound"),
        (
            rules(json!([{ "name": "stock", "namespace": "other", "port": 80 }])),
            "Accepted=Accepted !ResolvedRefs=RefNotPermitted",
        ),
        (
            rules(json!([{ "name": "x", "kind": "Bucket", "group": "a", "port": 80 }])),
            "Accepted=Accepted !ResolvedRefs=InvalidKind",
        ),
        (rules(json!([filtered])), "!Accepted=UnsupportedValue ResolvedRefs=ResolvedRefs"),
        (json!([{}, {}]), "!Accepted=UnsupportedValue ResolvedRefs=ResolvedRefs"),
        (json!([]), "!Accepted=UnsupportedValue ResolvedRefs=ResolvedRefs"),
        (
            json!([{ "backendRefs": [backend("cart")], "more": 1 }]),
            "!Accepted=UnsupportedValue ResolvedRefs=ResolvedRefs",
        ),
    ] {
        let mut cluster = scene(&[listener("db", 5432)]);
        let mut route = route("r", &json!([]));
        route["spec"]["rules"] = rules.clone();
        cluster.put(ObjectKind::TcpRoute, route);
        let translation = translated(&cluster);
        assert_eq!(conditions(&translation, ObjectKind::TcpRoute, "r"), expected, "{rules}");
        assert_eq!(forwarded(&translation), [format!("5432: {NOBODY}")], "{rules}");
    }
}

#[test]
fn a_grant_of_tcp_routes_permits_services_of_another_namespace() {
    let mut cluster = scene(&[listener("db", 5432)]);
    cluster.put(
        ObjectKind::TcpRoute,
        route("r", &json!([{ "name": "stock", "namespace": "other", "port": 80 }])),
    );
    for (kind, is_permitted) in [("TLSRoute", false), ("TCPRoute", true)] {
        let from = json!([{ "group": "gateway.networking.k8s.io", "kind": kind, "namespace": "shop" }]);
        let grant = json!({ "from": from, "to": [{ "group": "", "kind": "Service" }] });
        cluster.put(ObjectKind::ReferenceGrant, object("other", "g", grant));
        let told = forwarded(&translated(&cluster));
        let to = if is_permitted { "tcp://10.0.1.1:8080" } else { NOBODY };
        assert_eq!(told, [format!("5432: {to}")], "{kind}");
    }
}

/// GEP-2644: nothing but its port distinguishes a TCP listener.
#[test]
fn tcp_listeners_share_their_port_with_no_other() {
    const CONFLICT: &str = "!Accepted=ProtocolConflict Conflicted=ProtocolConflict";
    for other in [listener("other", 5432), http("other", 5432, Value::Null)] {
        let mut cluster = scene(&[listener("db", 5432), other.clone()]);
        cluster.put(ObjectKind::TcpRoute, route("r", &json!([backend("cart")])));
        let translation = translated(&cluster);
        let told = conditions(&translation, ObjectKind::Gateway, "edge");
        assert_eq!(told.matches(CONFLICT).count(), 2, "{told}");
        assert!(forwarded(&translation).is_empty(), "{other}");
    }
    // A second gateway does not get the port either, nor its routes.
    let mut cluster = scene(&[listener("db", 5432)]);
    let younger = gateway("infra", "younger", &json!([listener("db", 5432)]));
    cluster.put(ObjectKind::Gateway, created(younger, "2026-02-01T00:00:00Z"));
    let mut route = route("r", &json!([backend("cart")]));
    route["spec"]["parentRefs"][0]["name"] = json!("younger");
    cluster.put(ObjectKind::TcpRoute, route);
    let translation = translated(&cluster);
    assert_eq!(forwarded(&translation), [format!("5432: {NOBODY}")]);
    let told = messages(&translation, ObjectKind::Gateway, "younger");
    assert!(told.contains("port 5432 is that of Gateway infra/edge"), "{told}");
}

#[test]
fn tls_of_a_tcp_listener_is_refused_and_its_hostname_ignored() {
    let mut secured = listener("db", 5432);
    secured["tls"] = json!({ "certificateRefs": [{ "name": "web" }] });
    let translation = translated(&scene(&[secured]));
    assert!(conditions(&translation, ObjectKind::Gateway, "edge").contains("!Accepted=UnsupportedValue"));
    assert!(messages(&translation, ObjectKind::Gateway, "edge").contains("HTTPS decrypts"));
    let mut named = listener("db", 5432);
    named["hostname"] = json!("db.example");
    let mut cluster = scene(&[named]);
    cluster.put(ObjectKind::TcpRoute, route("r", &json!([backend("cart")])));
    assert_eq!(forwarded(&translated(&cluster)), [format!("5432: {CART}")]);
}
