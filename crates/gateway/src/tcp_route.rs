//! Translates TCPRoutes: all connections of a listener go to services, by weight.
//!
//! Nothing distinguishes the connections of a listener, so its oldest route gets all of them (GEP-2644).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::attach::{self, Attaching, Attachment, attach};
use crate::backends::{Backends, Referring, Spoken};
use crate::client_identity;
use crate::cluster::Cluster;
use crate::condition::Fault;
use crate::http_route::shared;
use crate::listeners::{ListenerProtocol, OwnGateway, Port};
use crate::object::{ObjectKind, Reference, unknown};
use crate::status::ObjectStatus;
use crate::tls_kinds::{TcpRoute, TcpRule};
use crate::tls_route::status;
use crate::translate::Refused;

/// Values of the option `tcp`, by port, with the route that they come from.
pub(crate) type Forwarded = BTreeMap<Port, (Reference, String)>;

#[derive(Default)]
pub(crate) struct TcpTranslated {
    pub(crate) forwarded: Forwarded,
    pub(crate) statuses: Vec<ObjectStatus>,
    /// Findings that conditions have no room for.
    pub(crate) remarks: Vec<(Reference, String)>,
}

/// Assigns ports to the routes, oldest first, and returns their statuses.
pub(crate) fn translate(
    cluster: &Cluster,
    refused: &Refused,
    gateways: &mut [OwnGateway<'_>],
    backends: &mut Backends<'_>,
) -> TcpTranslated {
    let mut routes: Vec<&TcpRoute> = cluster.tcp_routes.values().collect();
    routes.sort_by_key(|route| route.metadata.age());
    let mut out = TcpTranslated::default();
    for route in routes {
        let reference = Reference::new(ObjectKind::TcpRoute, &route.metadata);
        let attaching = Attaching {
            kind: ObjectKind::TcpRoute.name(),
            metadata: &route.metadata,
            parents: &route.spec.parent_refs,
            hosts: &[],
        };
        let attachments = attach(&attaching, gateways, cluster);
        let told = refused.get(&reference).map(|why| Err(("UnsupportedValue", why.clone())));
        let rule = told.unwrap_or_else(|| rule(route).map_err(|why| ("UnsupportedValue", why)));
        let mut unresolved = Vec::new();
        if let Ok(rule) = rule {
            unresolved = forward((route, rule), &reference, &attachments, gateways, backends, &mut out);
            attach::count(&attachments, gateways);
        }
        // A condition has room for one.
        let more = unresolved.iter().skip(1);
        out.remarks.extend(more.map(|(_, why)| (reference.clone(), format!("backendRefs: {why}"))));
        let generation = route.metadata.generation;
        let fault = rule.err();
        out.statuses.push(status(reference, generation, &attachments, fault.as_ref(), unresolved.first()));
    }
    out
}

fn rule(route: &TcpRoute) -> Result<&TcpRule, String> {
    let [rule] = route.spec.rules.as_slice() else {
        return Err("rules: only one is supported, because nothing distinguishes several".to_owned());
    };
    let has_filters = rule.backend_refs.iter().any(|backend| !backend.filters.is_empty());
    match unknown(&rule.other) {
        Some(names) => Err(format!("not supported: {names}")),
        None if has_filters => Err("filters of backendRefs are not supported".to_owned()),
        None => Ok(rule),
    }
}

/// Forwards the free ports among those of a route. Returns the faults of its backends.
fn forward(
    (route, rule): (&TcpRoute, &TcpRule),
    reference: &Reference,
    attachments: &[Attachment<'_>],
    gateways: &[OwnGateway<'_>],
    backends: &mut Backends<'_>,
    out: &mut TcpTranslated,
) -> Vec<Fault> {
    let listeners = || attachments.iter().flat_map(|attachment| &attachment.listeners);
    let through: BTreeSet<usize> = listeners().map(|(gateway, ..)| *gateway).collect();
    let mut unresolved = Vec::new();
    for (number, group) in client_identity::groups(&through, gateways).iter().enumerate() {
        let from = Referring {
            kind: ObjectKind::TcpRoute.name(),
            namespace: &route.metadata.namespace,
            gateways: &through,
            spoken: Spoken::Bytes,
            client: client_identity::of_group(group, gateways),
            own: None,
        };
        let (mut to, faults) = backends.shares(from, &rule.backend_refs);
        if to.is_empty() {
            to.push((backends.invalid(), 1));
        }
        for fault in faults {
            // Groups differ in faults of their certificates alone.
            if number == 0 || !unresolved.contains(&fault) {
                unresolved.push(fault);
            }
        }
        let own = listeners().filter(|(gateway, ..)| group.contains(gateway));
        let own = own.map(|(gateway, listener, _)| &gateways[*gateway].listeners[*listener]);
        let served = own.filter(|listener| listener.served() == Some(ListenerProtocol::Tcp));
        for port in served.map(|listener| listener.port).collect::<BTreeSet<Port>>() {
            match out.forwarded.entry(port) {
                Entry::Vacant(free) => drop(free.insert((reference.clone(), shared(&to).1))),
                // Both are accepted, as GEP-2644 says, so no condition can tell.
                Entry::Occupied(taken) if taken.get().0 != *reference => {
                    let (older, _) = taken.get();
                    let why = format!("it gets no connections of port {}: {older} is older", port.number);
                    out.remarks.push((reference.clone(), why));
                }
                Entry::Occupied(_) => {}
            }
        }
    }
    unresolved
}
