//! ListenerSets: listeners that other objects add to a gateway.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use gateway::{Cluster, ObjectKind, Translation};
use serde_json::{Value, json};

use crate::scene::{
    CONTROLLER, answer, backend, cluster, conditions, config, gateway, listener, messages, object, translated,
};

const WELL: &str =
    "Accepted=Accepted !Conflicted=NoConflicts ResolvedRefs=ResolvedRefs Programmed=Programmed";

/// A gateway with a listener of a hostname, which permits sets of some namespaces.
fn scene(allowed: &Value) -> Cluster {
    let mut cluster = cluster();
    let mut edge = gateway("infra", "edge", &json!([listener("own", 80, json!("own.example"))]));
    if !allowed.is_null() {
        edge["spec"]["allowedListeners"] = json!({ "namespaces": allowed });
    }
    cluster.put(ObjectKind::Gateway, edge);
    cluster
}

fn everyone() -> Value {
    json!({ "from": "All" })
}

fn set(name: &str, listeners: &[Value]) -> Value {
    let parent = json!({ "name": "edge", "namespace": "infra" });
    object("shop", name, json!({ "parentRef": parent, "listeners": listeners }))
}

fn created(mut object: Value, at: &str) -> Value {
    object["metadata"]["creationTimestamp"] = json!(at);
    object
}

/// A route to `cart` by the path `/NAME`, with a parent.
fn route(name: &str, parent: Value) -> Value {
    let matches = json!([{ "path": { "type": "PathPrefix", "value": format!("/{name}") } }]);
    let rules = json!([{ "matches": matches, "backendRefs": [backend("cart")] }]);
    object("shop", name, json!({ "parentRefs": [parent], "rules": rules }))
}

fn of_set(name: &str) -> Value {
    json!({ "group": "gateway.networking.k8s.io", "kind": "ListenerSet", "name": name })
}

fn status(translation: &Translation, kind: ObjectKind, name: &str) -> Value {
    let found =
        translation.statuses.iter().find(|status| status.object.kind == kind && status.object.name == name);
    let status = found.expect("a status").changed(&Value::Null, CONTROLLER, "2026-01-01T00:00:00Z");
    status.expect("a change")
}

#[test]
fn the_gateway_decides_whose_listeners_it_serves() {
    let selector =
        |team: &str| json!({ "from": "Selector", "selector": { "matchLabels": { "team": team } } });
    for (allowed, is_permitted) in [
        (Value::Null, false),
        (json!({}), false),
        (json!({ "from": "None" }), false),
        (json!({ "from": "Same" }), false),
        (json!({ "from": "All" }), true),
        (selector("shop"), true),
        (selector("other"), false),
    ] {
        let mut cluster = scene(&allowed);
        let namespace = json!({ "metadata": { "name": "shop", "labels": { "team": "shop" } } });
        cluster.put(ObjectKind::Namespace, namespace);
        cluster.put(ObjectKind::ListenerSet, set("more", &[listener("web", 80, json!("more.example"))]));
        cluster.put(ObjectKind::HttpRoute, route("r", of_set("more")));
        let translation = translated(&cluster);
        let found = answer(&config(&translation), 80, "GET http://more.example/r");
        let told = conditions(&translation, ObjectKind::ListenerSet, "more");
        let of_route = conditions(&translation, ObjectKind::HttpRoute, "r");
        let count = &status(&translation, ObjectKind::Gateway, "edge")["attachedListenerSets"];
        if is_permitted {
            assert_eq!(found, "shop.cart.80", "{allowed}");
            let kinds = r#"["HTTPRoute", "GRPCRoute"]"#;
            assert_eq!(told, format!("Accepted=Accepted Programmed=Programmed | web 1 {kinds}: {WELL}"));
            assert_eq!(of_route, "Accepted=Accepted ResolvedRefs=ResolvedRefs");
            assert_eq!(*count, json!(1));
        } else {
            assert_eq!(found, "404", "{allowed}");
            assert_eq!(told, "!Accepted=NotAllowed !Programmed=NotAllowed", "{allowed}");
            assert_eq!(of_route, "!Accepted=NoMatchingParent ResolvedRefs=ResolvedRefs");
            // Older CRDs do not know the field.
            assert_eq!(*count, Value::Null);
        }
        let told = conditions(&translation, ObjectKind::Gateway, "edge");
        assert!(told.starts_with("Accepted=Accepted") && !told.contains("| web"), "{told}");
    }
    // The gateway's namespace is the same.
    let mut cluster = scene(&json!({ "from": "Same" }));
    let mut own = set("more", &[listener("web", 80, json!("more.example"))]);
    own["metadata"]["namespace"] = json!("infra");
    cluster.put(ObjectKind::ListenerSet, own);
    let told = conditions(&translated(&cluster), ObjectKind::ListenerSet, "more");
    assert!(told.starts_with("Accepted=Accepted"), "{told}");
}

#[test]
fn routes_attach_to_the_listeners_of_their_parent_alone() {
    let mut cluster = scene(&everyone());
    // A name may repeat in another object.
    let listeners = [listener("own", 80, json!("set.example")), listener("b", 8080, Value::Null)];
    cluster.put(ObjectKind::ListenerSet, set("more", &listeners));
    let to_gateway = json!({ "name": "edge", "namespace": "infra" });
    let section = |mut parent: Value, name: &str| {
        parent["sectionName"] = json!(name);
        parent
    };
    let elsewhere = json!({ "group": "gateway.networking.x-k8s.io", "kind": "XListenerSet", "name": "more" });
    let mut port = of_set("more");
    port["port"] = json!(8080);
    for (parent, expected) in [
        (to_gateway.clone(), "cart 404 404"),
        (section(to_gateway.clone(), "own"), "cart 404 404"),
        // A set's listener is no section of the gateway.
        (section(to_gateway, "b"), "404 404 404 NoMatchingParent"),
        (of_set("more"), "404 cart cart"),
        (section(of_set("more"), "own"), "404 cart 404"),
        (section(of_set("more"), "gone"), "404 404 404 NoMatchingParent"),
        (port, "404 404 cart"),
        // Of another kind: no parent of ours.
        (elsewhere, "404 404 404"),
        (of_set("gone"), "404 404 404"),
    ] {
        let mut cluster = cluster.clone();
        cluster.put(ObjectKind::HttpRoute, route("r", parent.clone()));
        let translation = translated(&cluster);
        let config = config(&translation);
        let requests = [(80, "own.example"), (80, "set.example"), (8080, "any.example")];
        let mut found = requests
            .map(|(port, host)| {
                answer(&config, port, &format!("GET http://{host}/r")).replace("shop.cart.80", "cart")
            })
            .join(" ");
        let told = conditions(&translation, ObjectKind::HttpRoute, "r");
        if let Some(reason) = told.strip_prefix("!Accepted=") {
            found += " ";
            found += reason.split(' ').next().unwrap_or_default();
        }
        assert_eq!(found, expected, "{parent}");
    }
}

/// The listeners of a set permit routes of the set's namespace by default.
#[test]
fn the_same_namespace_is_that_of_the_set() {
    for (from, of_shop, of_infra) in [("Same", true, false), ("All", true, true), ("None", false, false)] {
        let mut cluster = scene(&everyone());
        let mut web = listener("web", 80, json!("more.example"));
        web["allowedRoutes"]["namespaces"]["from"] = json!(from);
        cluster.put(ObjectKind::ListenerSet, set("more", &[web]));
        let mut parent = of_set("more");
        parent["namespace"] = json!("shop");
        cluster.put(ObjectKind::HttpRoute, route("a", parent.clone()));
        let mut other = route("b", parent);
        other["metadata"]["namespace"] = json!("infra");
        cluster.put(ObjectKind::HttpRoute, other);
        let translation = translated(&cluster);
        for (name, is_accepted) in [("a", of_shop), ("b", of_infra)] {
            let told = conditions(&translation, ObjectKind::HttpRoute, name);
            let expected = if is_accepted { "Accepted=Accepted" } else { "!Accepted=NotAllowedByListeners" };
            assert_eq!(told.split(' ').next(), Some(expected), "{from} {name}");
        }
    }
}

#[test]
fn the_gateway_precedes_older_sets_and_those_younger_ones() {
    let with_protocol = |mut listener: Value, protocol: &str| {
        listener["protocol"] = json!(protocol);
        listener.as_object_mut().expect("an object").remove("hostname");
        listener
    };
    let conflict = |reason: &str| {
        format!("!Accepted={reason} Conflicted={reason} ResolvedRefs=ResolvedRefs !Programmed={reason}")
    };
    let host = |name: &str, host: &str| listener(name, 80, json!(host));
    let mut cluster = scene(&everyone());
    for (name, at, listeners) in [
        (
            "z",
            "2026-02-01",
            vec![host("a", "z.example"), host("b", "OWN.example"), host("c", "both.example")],
        ),
        ("y", "2026-03-01", vec![host("a", "both.example"), host("b", "y.example")]),
        ("x", "2026-04-01", vec![with_protocol(host("a", ""), "TCP")]),
        // Conflicting listeners of others do not count.
        ("w", "2026-05-01", vec![listener("a", 5432, Value::Null)]),
        ("v", "2026-06-01", vec![with_protocol(listener("a", 5432, Value::Null), "TCP")]),
    ] {
        let set = created(set(name, &listeners), &format!("{at}T00:00:00Z"));
        cluster.put(ObjectKind::ListenerSet, set);
    }
    let translation = translated(&cluster);
    let told = |name: &str| conditions(&translation, ObjectKind::ListenerSet, name);
    let kinds = r#"["HTTPRoute", "GRPCRoute"]"#;
    let partly = "Accepted=ListenersNotValid Programmed=Programmed";
    let none = "!Accepted=ListenersNotValid !Programmed=ListenersNotValid";
    let host_conflict = conflict("HostnameConflict");
    let protocol_conflict = conflict("ProtocolConflict");
    for (name, expected) in [
        ("z", format!("{partly} | a 0 {kinds}: {WELL} | b 0 {kinds}: {host_conflict} | c 0 {kinds}: {WELL}")),
        ("y", format!("{partly} | a 0 {kinds}: {host_conflict} | b 0 {kinds}: {WELL}")),
        ("x", format!("{none} | a 0 [\"TCPRoute\"]: {protocol_conflict}")),
        ("w", format!("Accepted=Accepted Programmed=Programmed | a 0 {kinds}: {WELL}")),
        ("v", format!("{none} | a 0 [\"TCPRoute\"]: {protocol_conflict}")),
    ] {
        assert_eq!(told(name), expected, "{name}");
    }
    let of_gateway = conditions(&translation, ObjectKind::Gateway, "edge");
    assert!(of_gateway.starts_with("Accepted=Accepted") && !of_gateway.contains("Conflict="), "{of_gateway}");
    assert_eq!(status(&translation, ObjectKind::Gateway, "edge")["attachedListenerSets"], json!(3));
    // Names of other namespaces stay unknown.
    assert_eq!(
        messages(&translation, ObjectKind::ListenerSet, "y").split("; ").last(),
        Some("a listener of an older ListenerSet has the same port and hostname")
    );
}

#[test]
fn certificates_of_a_set_are_in_its_namespace_or_granted_to_it() {
    let mut cluster = scene(&everyone());
    for namespace in ["infra", "shop"] {
        let data =
            json!({ "tls.crt": BASE64_STANDARD.encode("a.example"), "tls.key": BASE64_STANDARD.encode("k") });
        let metadata = json!({ "namespace": namespace, "name": "web" });
        cluster.put(
            ObjectKind::Secret,
            json!({ "metadata": metadata, "type": "kubernetes.io/tls", "data": data }),
        );
    }
    let served = |cluster: &Cluster| {
        let translation = translated(cluster);
        let ports: Vec<u16> = config(&translation)
            .listeners
            .iter()
            .filter(|one| one.tls.is_some())
            .filter_map(|one| one.address.port())
            .collect();
        (ports, conditions(&translation, ObjectKind::ListenerSet, "more"))
    };
    let of = |namespace: Value| {
        let mut secure = listener("web", 443, Value::Null);
        secure["protocol"] = json!("HTTPS");
        secure["tls"] = json!({ "certificateRefs": [{ "name": "web", "namespace": namespace }] });
        set("more", &[secure])
    };
    cluster.put(ObjectKind::ListenerSet, of(Value::Null));
    assert_eq!(served(&cluster).0, [443]);
    cluster.put(ObjectKind::ListenerSet, of(json!("infra")));
    let grant = |kind: &str| {
        let from = json!([{ "group": "gateway.networking.k8s.io", "kind": kind, "namespace": "shop" }]);
        object("infra", "g", json!({ "from": from, "to": [{ "group": "", "kind": "Secret" }] }))
    };
    // A grant for gateways is none for sets.
    for (kind, expected) in [("Gateway", &[][..]), ("ListenerSet", &[443])] {
        cluster.put(ObjectKind::ReferenceGrant, grant(kind));
        let (ports, told) = served(&cluster);
        assert_eq!(ports, expected, "{kind}: {told}");
        assert_eq!(told.contains("!ResolvedRefs=RefNotPermitted"), expected.is_empty(), "{told}");
    }
}

#[test]
fn sets_that_cannot_be_served_say_why() {
    let web = || vec![listener("web", 80, json!("more.example"))];
    let unknown = |mut set: Value| {
        set["spec"]["more"] = json!(1);
        set
    };
    for (set, allowed, expected) in [
        (
            set("more", &[listener("web", 81, Value::Null)]),
            everyone(),
            "!Accepted=ListenersNotValid !Programmed=ListenersNotValid | web",
        ),
        // The Gateway, whose port it shares, must not suffer.
        (
            set("more", &[listener("web", 80, json!("a_b.example"))]),
            everyone(),
            "!Accepted=ListenersNotValid !Programmed=ListenersNotValid | web 0 [\"HTTPRoute\", \"GRPCRoute\"]: !Accepted=Invalid",
        ),
        (unknown(set("more", &web())), everyone(), "!Accepted=Invalid !Programmed=Invalid"),
        // What the gateway does not permit is not read further.
        (unknown(set("more", &web())), Value::Null, "!Accepted=NotAllowed !Programmed=NotAllowed"),
    ] {
        let mut cluster = scene(&allowed);
        cluster.put(ObjectKind::ListenerSet, set.clone());
        let told = conditions(&translated(&cluster), ObjectKind::ListenerSet, "more");
        assert!(told.starts_with(expected), "{set}: {told}");
    }
    let mut cluster = scene(&everyone());
    cluster.put(ObjectKind::ListenerSet, set("more", &web()));
    let mut edge = gateway("infra", "edge", &json!([]));
    edge["spec"]["allowedListeners"] = json!({ "namespaces": { "from": "All" } });
    // A gateway without listeners lives by those of its sets.
    cluster.put(ObjectKind::Gateway, edge.clone());
    let translation = translated(&cluster);
    let told = conditions(&translation, ObjectKind::Gateway, "edge");
    assert_eq!(told, "Accepted=Accepted Programmed=Programmed ResolvedRefs=ResolvedRefs");
    edge["spec"]["allowedListeners"]["more"] = json!(1);
    cluster.put(ObjectKind::Gateway, edge);
    let translation = translated(&cluster);
    let told = messages(&translation, ObjectKind::Gateway, "edge");
    assert!(told.contains("allowedListeners: not supported: more"), "{told}");
    let told = conditions(&translation, ObjectKind::ListenerSet, "more");
    assert_eq!(told, "!Accepted=ParentNotAccepted !Programmed=ParentNotProgrammed");
}

#[test]
fn sets_of_gateways_of_others_are_left_alone() {
    let mut cluster = scene(&everyone());
    let mut theirs = set("more", &[listener("web", 80, Value::Null)]);
    theirs["spec"]["parentRef"]["name"] = json!("theirs");
    cluster.put(ObjectKind::ListenerSet, theirs);
    let translation = translated(&cluster);
    assert!(translation.statuses.iter().all(|status| status.object.kind != ObjectKind::ListenerSet));
}

/// Before release 1.5 of the API they were XListenerSets of another group, and their statuses had ports.
#[test]
fn sets_of_the_experimental_group_have_its_names_and_ports() {
    let mut cluster = scene(&everyone());
    let mut experimental = set("more", &[listener("web", 80, json!("more.example"))]);
    experimental["apiVersion"] = json!("gateway.networking.x-k8s.io/v1alpha1");
    cluster.put(ObjectKind::ListenerSet, experimental);
    let parent = json!({ "group": "gateway.networking.x-k8s.io", "kind": "XListenerSet", "name": "more" });
    cluster.put(ObjectKind::HttpRoute, route("r", parent));
    let translation = translated(&cluster);
    assert_eq!(answer(&config(&translation), 80, "GET http://more.example/r"), "shop.cart.80");
    assert_eq!(status(&translation, ObjectKind::ListenerSet, "more")["listeners"][0]["port"], json!(80));
    // The CRD of Gateways does not know it either.
    assert_eq!(status(&translation, ObjectKind::Gateway, "edge")["attachedListenerSets"], Value::Null);
    cluster.put(ObjectKind::ListenerSet, set("more", &[listener("web", 80, json!("more.example"))]));
    let found = status(&translated(&cluster), ObjectKind::ListenerSet, "more");
    assert_eq!(found["listeners"][0]["port"], Value::Null);
    assert_eq!(found["listeners"][0]["name"], json!("web"));
}

#[test]
fn connections_go_to_tcp_routes_of_a_set() {
    let mut cluster = scene(&everyone());
    let mut db = listener("db", 5432, Value::Null);
    db["protocol"] = json!("TCP");
    cluster.put(ObjectKind::ListenerSet, set("more", &[db]));
    let rules = json!([{ "backendRefs": [backend("cart")] }]);
    let spec = json!({ "parentRefs": [of_set("more")], "rules": rules });
    cluster.put(ObjectKind::TcpRoute, object("shop", "r", spec));
    let config = config(&translated(&cluster));
    let db = config.listeners.iter().find(|listener| listener.address.port() == Some(5432)).expect("a port");
    let to: Vec<&str> = db.passes_on_to().map(|index| config.upstreams[index].name.as_str()).collect();
    assert_eq!(to, ["shop.cart.80.tcp"]);
}
