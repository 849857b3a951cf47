//! Attaches routes to listeners: selects listeners and hosts, or gives the reason why a route does not attach.

use crate::cluster::Cluster;
use crate::condition::Fault;
use crate::hostname::intersection;
use crate::kinds::ParentRef;
use crate::listeners::{OwnGateway, TranslatedListener};
use crate::object::{GATEWAY_GROUP, Metadata};

/// A route's reference to one of our gateways.
pub(crate) struct Attachment<'c> {
    pub(crate) parent: &'c ParentRef,
    /// Gateway and listener indices, with the route's hosts there; `None` stands for all hosts.
    pub(crate) listeners: Vec<(usize, usize, Vec<Option<String>>)>,
    pub(crate) fault: Option<Fault>,
}

/// The properties of a route that decide where it attaches.
pub(crate) struct Attaching<'c> {
    pub(crate) kind: &'static str,
    pub(crate) metadata: &'c Metadata,
    pub(crate) parents: &'c [ParentRef],
    pub(crate) hosts: &'c [String],
}

/// Attaches a route to our gateways among its parents.
pub(crate) fn attach<'c>(
    route: &Attaching<'c>,
    gateways: &[OwnGateway<'_>],
    cluster: &Cluster,
) -> Vec<Attachment<'c>> {
    let of_parent = |parent: &'c ParentRef| {
        let own = &route.metadata.namespace;
        let namespace = parent.namespace.as_ref().unwrap_or(own);
        let is_gateway = parent.group.as_deref().is_none_or(|group| group == GATEWAY_GROUP)
            && parent.kind.as_deref().is_none_or(|kind| kind == "Gateway");
        let is_meant = |gateway: &OwnGateway<'_>| {
            let metadata = &gateway.gateway.metadata;
            is_gateway && metadata.name == parent.name && metadata.namespace == *namespace
        };
        let index = gateways.iter().position(is_meant)?;
        Some(to_gateway(route, parent, (index, &gateways[index]), cluster))
    };
    route.parents.iter().filter_map(of_parent).collect()
}

fn to_gateway<'c>(
    route: &Attaching<'c>,
    parent: &'c ParentRef,
    (index, gateway): (usize, &OwnGateway<'_>),
    cluster: &Cluster,
) -> Attachment<'c> {
    let none = |reason, message| Attachment { parent, listeners: Vec::new(), fault: Some((reason, message)) };
    let is_named = |listener: &TranslatedListener<'_>| {
        parent.section_name.as_deref().is_none_or(|name| name == listener.spec.name)
            && parent.port.is_none_or(|port| port == listener.spec.port)
    };
    let listeners = || gateway.listeners.iter().enumerate().filter(|(_, listener)| is_named(listener));
    if listeners().next().is_none() {
        return none("NoMatchingParent", "the gateway has no such listener".to_owned());
    }
    let allows = |listener: &TranslatedListener<'_>| {
        listener.kinds.contains(&route.kind)
            && is_namespace_allowed(
                listener,
                &gateway.gateway.metadata.namespace,
                &route.metadata.namespace,
                cluster,
            )
    };
    let mut allowed = listeners().filter(|(_, listener)| allows(listener)).peekable();
    if allowed.peek().is_none() {
        let message =
            format!("no listener accepts an {} from namespace {}", route.kind, route.metadata.namespace);
        return none("NotAllowedByListeners", message);
    }
    let with_hosts =
        allowed.map(|(place, listener)| (index, place, intersection(listener.hostname(), route.hosts)));
    let listeners: Vec<_> = with_hosts.filter(|(.., hosts)| !hosts.is_empty()).collect();
    if listeners.is_empty() {
        return none("NoMatchingListenerHostname", "no listener has one of the hostnames".to_owned());
    }
    Attachment { parent, listeners, fault: None }
}

fn is_namespace_allowed(
    listener: &TranslatedListener<'_>,
    own: &str,
    namespace: &str,
    cluster: &Cluster,
) -> bool {
    let allowed = &listener.spec.allowed_routes.namespaces;
    match allowed.from.as_deref().unwrap_or("Same") {
        "All" => true,
        "Same" => own == namespace,
        "Selector" => {
            let object = cluster.namespaces.get(&(String::new(), namespace.to_owned()));
            object.is_some_and(|object| allowed.selector.selects(&object.metadata.labels))
        }
        _ => false,
    }
}
