//! Translates TLSRoutes: TLS connections are passed through by server name (SNI) to servers that have the certificates.

use std::collections::{BTreeMap, BTreeSet};

use crate::attach::{self, Attaching, Attachment, attach};
use crate::backends::{Backends, Referring, Spoken};
use crate::cluster::Cluster;
use crate::condition::{Fault, StatusCondition};
use crate::hostname::is_name;
use crate::http_route::{places, shared};
use crate::listeners::{ListenerProtocol, OwnGateway, Port, on_port, pattern};
use crate::object::{ObjectKind, Reference, unknown};
use crate::status::{ObjectStatus, ParentFound, StatusFindings};
use crate::tls_kinds::TlsRoute;
use crate::translate::Refused;
use crate::written::{inline, list, text};

/// Values of the option `passthrough`, by port.
pub(crate) type PassedOn = BTreeMap<Port, Vec<String>>;

/// Adds the passthrough of the routes, oldest first, and returns their statuses.
pub(crate) fn translate(
    cluster: &Cluster,
    refused: &Refused,
    gateways: &mut [OwnGateway<'_>],
    backends: &mut Backends<'_>,
) -> (PassedOn, Vec<ObjectStatus>, Vec<(Reference, String)>) {
    let mut routes: Vec<&TlsRoute> = cluster.tls_routes.values().collect();
    routes.sort_by_key(|route| route.metadata.age());
    let (mut passed_on, mut statuses, mut remarks) = (PassedOn::new(), Vec::new(), Vec::new());
    let mut claims = BTreeSet::new();
    for route in routes {
        let reference = Reference::new(ObjectKind::TlsRoute, &route.metadata);
        let attaching = Attaching {
            kind: ObjectKind::TlsRoute.name(),
            metadata: &route.metadata,
            parents: &route.spec.parent_refs,
            hosts: &route.spec.hostnames,
        };
        let attachments = attach(&attaching, gateways, cluster);
        let told = refused.get(&reference).map(|why| ("UnsupportedValue", why.clone()));
        let fault = told.or_else(|| supported(route).err().map(|why| ("UnsupportedValue", why)));
        let mut unresolved = Vec::new();
        if !attachments.is_empty() && fault.is_none() {
            let to;
            (to, unresolved) = upstreams(route, &reference, backends);
            for (port, (_, hosts)) in places(&attachments, gateways, |_| true) {
                let free = hosts.into_iter().filter(|host| claims.insert((port, host.clone())));
                let names: Vec<String> = free.map(|host| text(&pattern(host.as_deref()))).collect();
                if !names.is_empty() {
                    passed_on.entry(port).or_default().push(entry(names, &to));
                }
            }
            attach::count(&attachments, gateways);
        }
        // A condition has room for one.
        let more = unresolved.iter().skip(1);
        remarks.extend(more.map(|(_, why)| (reference.clone(), format!("backendRefs: {why}"))));
        let generation = route.metadata.generation;
        statuses.push(status(reference, generation, &attachments, fault.as_ref(), unresolved.first()));
    }
    elsewhere(gateways, &mut claims, &mut passed_on, backends);
    (passed_on, statuses, remarks)
}

fn entry(names: Vec<String>, to: &[(String, u32)]) -> String {
    inline([("names", list(names)), shared(to)])
}

fn supported(route: &TlsRoute) -> Result<(), String> {
    let is_pattern = |host: &String| is_name(host.strip_prefix("*.").unwrap_or(host));
    if let Some(host) = route.spec.hostnames.iter().find(|host| !is_pattern(host)) {
        return Err(format!("hostnames: {host:?} is not a host name"));
    }
    let [rule] = route.spec.rules.as_slice() else {
        return Err("rules: only one is supported, because nothing distinguishes several".to_owned());
    };
    match unknown(&rule.other) {
        Some(names) => Err(format!("not supported: {names}")),
        None => Ok(()),
    }
}

fn upstreams(
    route: &TlsRoute,
    reference: &Reference,
    backends: &mut Backends<'_>,
) -> (Vec<(String, u32)>, Vec<Fault>) {
    let namespace = &route.metadata.namespace;
    let gateways = BTreeSet::new();
    let from = Referring {
        kind: ObjectKind::TlsRoute.name(),
        namespace,
        gateways: &gateways,
        spoken: Spoken::Http1,
        client: None,
        own: None,
    };
    let refs = route.spec.rules.iter().flat_map(|rule| &rule.backend_refs);
    backends.passed_on(from, reference, refs)
}

/// Claims hostnames of listeners without a route: their connections must not reach routes of a less specific listener.
fn elsewhere(
    gateways: &[OwnGateway<'_>],
    claims: &mut BTreeSet<(Port, Option<String>)>,
    passed_on: &mut PassedOn,
    backends: &mut Backends<'_>,
) {
    let listeners = gateways.iter().flat_map(|gateway| &gateway.listeners);
    let ports: BTreeSet<Port> = listeners
        .filter(|listener| listener.served() == Some(ListenerProtocol::Tls))
        .map(|listener| listener.port)
        .collect();
    for port in ports {
        let hosts = on_port(gateways, port).filter_map(|listener| listener.hostname());
        for host in hosts.map(str::to_ascii_lowercase).collect::<BTreeSet<_>>() {
            if claims.insert((port, Some(host.clone()))) {
                let names = vec![text(&pattern(Some(&host)))];
                passed_on.entry(port).or_default().push(entry(names, &[(backends.invalid(), 1)]));
            }
        }
    }
}

/// Returns the status of a route of layer 4.
pub(crate) fn status(
    object: Reference,
    generation: i64,
    attachments: &[Attachment<'_>],
    fault: Option<&Fault>,
    unresolved: Option<&Fault>,
) -> ObjectStatus {
    let of_parent = |attachment: &Attachment<'_>| {
        let accepted = attachment.fault.as_ref().or(fault).cloned();
        let conditions = vec![
            StatusCondition::new("Accepted", "Accepted", accepted),
            StatusCondition::new("ResolvedRefs", "ResolvedRefs", unresolved.cloned()),
        ];
        ParentFound { parent: serde_json::to_value(attachment.parent).unwrap_or_default(), conditions }
    };
    ObjectStatus {
        object,
        generation,
        found: StatusFindings::Route(attachments.iter().map(of_parent).collect()),
    }
}
