//! Builds clusters in a few lines, translates them, and routes requests through the result.

use std::net::IpAddr;

use config::{Action, Config};
use gateway::{
    Cluster, MachineFacts, ObjectKind, OperatorOptions, Refused, StatusFindings, Translation, translate,
};
use route::{FieldLookup, RequestParts, RouteTable, VariableValues};
use serde_json::{Value, json};

use crate::no_machine::NoMachine;

pub(crate) const CONTROLLER: &str = "vanward.dev/gateway";

/// A class, a gateway with an HTTP listener for all namespaces, and two services.
pub(crate) fn cluster() -> Cluster {
    let mut cluster = Cluster::default();
    cluster.put(ObjectKind::GatewayClass, object("", "vanward", json!({ "controllerName": CONTROLLER })));
    cluster.put(ObjectKind::Gateway, gateway("infra", "edge", &json!([listener("http", 80, Value::Null)])));
    for name in ["cart", "blog"] {
        service(&mut cluster, "shop", name, 8080, &["10.0.0.1", "10.0.0.2"]);
    }
    service(&mut cluster, "other", "stock", 8080, &["10.0.1.1"]);
    service(&mut cluster, "shop", "empty", 8080, &[]);
    cluster
}

pub(crate) fn object(namespace: &str, name: &str, spec: Value) -> Value {
    json!({ "metadata": { "namespace": namespace, "name": name, "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z" }, "spec": spec })
}

pub(crate) fn gateway(namespace: &str, name: &str, listeners: &Value) -> Value {
    object(namespace, name, json!({ "gatewayClassName": "vanward", "listeners": listeners }))
}

pub(crate) fn listener(name: &str, port: u16, hostname: Value) -> Value {
    json!({ "name": name, "port": port, "protocol": "HTTP", "hostname": hostname,
        "allowedRoutes": { "namespaces": { "from": "All" } } })
}

pub(crate) fn service(cluster: &mut Cluster, namespace: &str, name: &str, port: u16, addresses: &[&str]) {
    let spec = json!({ "ports": [{ "name": "web", "port": 80 }] });
    cluster.put(ObjectKind::Service, object(namespace, name, spec));
    let endpoints: Vec<Value> = addresses.iter().map(|address| json!({ "addresses": [address] })).collect();
    cluster.put(
        ObjectKind::EndpointSlice,
        json!({ "metadata": { "namespace": namespace, "name": format!("{name}-1"),
                "labels": { "kubernetes.io/service-name": name } },
            "addressType": "IPv4", "endpoints": endpoints, "ports": [{ "name": "web", "port": port }] }),
    );
}

pub(crate) fn http_route(name: &str, hosts: &[&str], rules: &Value) -> Value {
    let parents = json!([{ "name": "edge", "namespace": "infra" }]);
    object("shop", name, json!({ "parentRefs": parents, "hostnames": hosts, "rules": rules }))
}

pub(crate) fn backend(name: &str) -> Value {
    json!({ "name": name, "port": 80 })
}

/// A machine on which every certificate except a bad one is valid, and every port except one is free. The text of a
/// certificate is its names.
pub(crate) struct Test;

impl MachineFacts for Test {
    fn certificate(&self, certificate: &[u8], _: &[u8]) -> Result<Vec<String>, String> {
        match std::str::from_utf8(certificate).expect("a text") {
            "bad" => Err("it is bad".to_owned()),
            text => Ok(text.split_whitespace().map(str::to_owned).collect()),
        }
    }

    fn authorities(&self, pem: Option<&[u8]>) -> Result<(), String> {
        if pem == Some(b"bad") { Err("it is bad".to_owned()) } else { Ok(()) }
    }

    fn users(&self, lines: &[u8]) -> Result<(), String> {
        config::check_users(lines)
    }

    fn port(&self, _: Option<IpAddr>, port: u16) -> Result<(), String> {
        if port == 81 { Err("port 81 is in use".to_owned()) } else { Ok(()) }
    }
}

pub(crate) fn options() -> OperatorOptions {
    OperatorOptions {
        controller: CONTROLLER.to_owned(),
        addresses: vec!["192.0.2.1".to_owned()],
        base: None,
        ready: "127.0.0.1:9000".parse().expect("an address"),
        ingress_ports: [80, 443],
        cookie_secret: None,
    }
}

pub(crate) fn translated(cluster: &Cluster) -> Translation {
    translate(cluster, &options(), &Refused::new(), &Test)
}

pub(crate) fn config(translation: &Translation) -> Config {
    let reading = examined(translation);
    reading.config.unwrap_or_else(|| panic!("{:#?}\n{}", reading.mistakes, translation.written.text))
}

pub(crate) fn mistakes(translation: &Translation) -> Vec<config::Mistake> {
    examined(translation).mistakes
}

fn examined(translation: &Translation) -> config::Reading {
    config::examine_in(&translation.written.text, "kubernetes", &NoMachine(&translation.files))
}

/// Returns the result of a request at a port: the upstreams, the target of a redirect, or a status.
pub(crate) fn answer(config: &Config, port: u16, request: &str) -> String {
    answer_with(config, port, request, &[])
}

pub(crate) fn answer_with(config: &Config, port: u16, request: &str, fields: &[(&str, &str)]) -> String {
    let Some(index) = chosen(config, port, request, fields) else { return "404".to_owned() };
    let upstream = |index: usize| config.upstreams[index].name.clone();
    match &config.routes[index].action {
        Action::Upstream(index) => upstream(*index),
        Action::Split(split) => {
            let shares = split.shares().map(|(index, weight)| format!("{}={weight}", upstream(index)));
            shares.collect::<Vec<_>>().join(" ")
        }
        Action::Redirect(redirect) => with_request(config, port, request, fields, |request| {
            let mut location = Vec::new();
            redirect.location(&VariableValues::from_request(request, "http"), &mut location).expect("a host");
            format!("{} {}", redirect.status.code(), String::from_utf8_lossy(&location))
        }),
        Action::Respond(respond) => respond.response.status().to_string(),
        Action::Named(named) => named.name.as_str().to_owned(),
        Action::Files(_) => "files".to_owned(),
    }
}

pub(crate) fn chosen(config: &Config, port: u16, request: &str, fields: &[(&str, &str)]) -> Option<usize> {
    let (owners, rules): (Vec<_>, Vec<_>) = config.rules().map(|(index, rule)| (index, rule.clone())).unzip();
    let table = RouteTable::compile(rules);
    with_request(config, port, request, fields, |request| table.choose(&request)).map(|rule| owners[rule])
}

pub(crate) fn path_for_servers(config: &Config, port: u16, request: &str) -> String {
    let index = chosen(config, port, request, &[]).expect("a route");
    let rewrite = config.routes[index].policies.rewrite.path.as_ref().expect("a rewrite");
    with_request(config, port, request, &[], |request| {
        let mut path = Vec::new();
        rewrite.apply(&VariableValues::from_request(request, "http"), &mut path).expect("a path");
        String::from_utf8(path).expect("text")
    })
}

fn with_request<T>(
    config: &Config,
    port: u16,
    request: &str,
    fields: &[(&str, &str)],
    with: impl FnOnce(RequestParts<'_, [(&str, &str)]>) -> T,
) -> T {
    let listener = config.listeners.iter().position(|listener| listener.address.port() == Some(port));
    let (method, url) = request.split_once(' ').expect("a method and a URL");
    let rest = url.strip_prefix("http://").expect("a URL");
    let (host, path) = rest.split_at(rest.find('/').expect("a path"));
    let (path, query) =
        path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query.as_bytes())));
    with(RequestParts {
        listener: listener.expect("a listener"),
        host: host.as_bytes(),
        path: path.as_bytes(),
        query,
        method: method.as_bytes(),
        client: [127, 0, 0, 1].into(),
        fields: fields as &[(&str, &str)],
        conditions: &route::NoConditions,
    })
}

const _: fn() = || {
    fn is_fields<F: FieldLookup + ?Sized>() {}
    is_fields::<[(&str, &str)]>();
};

/// Lists an object's conditions as `Type=Reason`, with `!` for those that do not hold. A gateway's listeners
/// follow, each with its name and number of routes.
pub(crate) fn conditions(translation: &Translation, kind: ObjectKind, name: &str) -> String {
    let told = |conditions: &[gateway::StatusCondition]| {
        let one = |condition: &gateway::StatusCondition| {
            let not = if condition.holds { "" } else { "!" };
            format!("{not}{}={}", condition.kind, condition.reason)
        };
        conditions.iter().map(one).collect::<Vec<_>>().join(" ")
    };
    let status =
        translation.statuses.iter().find(|status| status.object.kind == kind && status.object.name == name);
    match &status.expect("a status").found {
        StatusFindings::Class(conditions) => told(conditions),
        StatusFindings::Gateway { conditions, listeners, .. }
        | StatusFindings::ListenerSet { conditions, listeners, .. } => {
            let listeners = listeners.iter().map(|listener| {
                let kinds: Vec<&str> = listener.kinds.iter().map(|(_, kind)| *kind).collect();
                format!(
                    " | {} {} {kinds:?}: {}",
                    listener.name,
                    listener.attached,
                    told(&listener.conditions)
                )
            });
            told(conditions) + &listeners.collect::<String>()
        }
        StatusFindings::Route(parents) => {
            parents.iter().map(|parent| told(&parent.conditions)).collect::<Vec<_>>().join(" | ")
        }
        StatusFindings::Ingress(addresses) => addresses.join(" "),
        StatusFindings::Policy(ancestors) => {
            ancestors.iter().map(|ancestor| told(&ancestor.conditions)).collect::<Vec<_>>().join(" | ")
        }
    }
}

pub(crate) fn messages(translation: &Translation, kind: ObjectKind, name: &str) -> String {
    let status =
        translation.statuses.iter().find(|status| status.object.kind == kind && status.object.name == name);
    let conditions: Vec<gateway::StatusCondition> = match &status.expect("a status").found {
        StatusFindings::Class(conditions) => conditions.clone(),
        StatusFindings::Gateway { conditions, listeners, .. }
        | StatusFindings::ListenerSet { conditions, listeners, .. } => {
            let of_listeners = listeners.iter().flat_map(|listener| listener.conditions.clone());
            conditions.iter().cloned().chain(of_listeners).collect()
        }
        StatusFindings::Route(parents) => {
            parents.iter().flat_map(|parent| parent.conditions.clone()).collect()
        }
        StatusFindings::Ingress(_) => Vec::new(),
        StatusFindings::Policy(ancestors) => {
            ancestors.iter().flat_map(|ancestor| ancestor.conditions.clone()).collect()
        }
    };
    conditions
        .into_iter()
        .map(|condition| condition.message)
        .filter(|message| !message.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}
