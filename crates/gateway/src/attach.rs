//! Attaches routes to listeners: selects listeners and hosts, or gives the reason why a route does not attach.

use std::collections::BTreeSet;

use crate::cluster::Cluster;
use crate::condition::Fault;
use crate::hostname::intersection;
use crate::kinds::{ParentRef, permits};
use crate::listener_set::OwnSet;
use crate::listeners::{OwnGateway, TranslatedListener};
use crate::object::{GATEWAY_GROUP, Metadata};

/// A route's reference to one of our gateways, or to a ListenerSet of one.
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

/// Attaches a route to our gateways and ListenerSets among its parents.
pub(crate) fn attach<'c>(
    route: &Attaching<'c>,
    gateways: &[OwnGateway<'_>],
    cluster: &Cluster,
) -> Vec<Attachment<'c>> {
    let of_parent = |parent: &'c ParentRef| {
        let own = &route.metadata.namespace;
        let namespace = parent.namespace.as_ref().unwrap_or(own);
        let meant = (parent.group.as_deref().unwrap_or(GATEWAY_GROUP), parent.kind.as_deref());
        let is_named = |metadata: &Metadata| metadata.name == parent.name && metadata.namespace == *namespace;
        gateways.iter().enumerate().find_map(|(index, gateway)| {
            let is_gateway = matches!(meant, (GATEWAY_GROUP, None | Some("Gateway")));
            if is_gateway && is_named(&gateway.gateway.metadata) {
                return Some(to_listeners(route, parent, (index, gateway, None), cluster));
            }
            let is_set = |set: &OwnSet<'_>| {
                let (group, kind) = set.group_and_kind();
                meant == (group, Some(kind)) && is_named(&set.set.metadata)
            };
            let set = gateway.sets.iter().position(is_set)?;
            Some(to_listeners(route, parent, (index, gateway, Some(set)), cluster))
        })
    };
    route.parents.iter().filter_map(of_parent).collect()
}

/// Counts an accepted route at each of its listeners once.
pub(crate) fn count(attachments: &[Attachment<'_>], gateways: &mut [OwnGateway<'_>]) {
    let listeners = attachments.iter().flat_map(|attachment| &attachment.listeners);
    let places: BTreeSet<(usize, usize)> =
        listeners.map(|(gateway, listener, _)| (*gateway, *listener)).collect();
    for (gateway, listener) in places {
        gateways[gateway].listeners[listener].attached += 1;
    }
}

/// Attaches a route to listeners of a gateway itself, or of one of its sets.
fn to_listeners<'c>(
    route: &Attaching<'c>,
    parent: &'c ParentRef,
    (index, gateway, set): (usize, &OwnGateway<'_>, Option<usize>),
    cluster: &Cluster,
) -> Attachment<'c> {
    let none = |reason, message| Attachment { parent, listeners: Vec::new(), fault: Some((reason, message)) };
    let is_named = |listener: &TranslatedListener<'_>| {
        listener.set == set
            && parent.section_name.as_deref().is_none_or(|name| name == listener.spec.name)
            && parent.port.is_none_or(|port| port == listener.spec.port)
    };
    let listeners = || gateway.listeners.iter().enumerate().filter(|(_, listener)| is_named(listener));
    if listeners().next().is_none() {
        let why = match set {
            None => "the gateway has no such listener",
            Some(set) if gateway.sets[set].fault.is_some() => "the ListenerSet is not accepted",
            Some(_) => "the ListenerSet has no such listener",
        };
        return none("NoMatchingParent", why.to_owned());
    }
    let own = match set {
        None => &gateway.gateway.metadata.namespace,
        Some(set) => &gateway.sets[set].set.metadata.namespace,
    };
    let allows = |listener: &TranslatedListener<'_>| {
        let namespaces = &listener.spec.allowed_routes.namespaces;
        listener.kinds.contains(&route.kind)
            && permits(namespaces, "Same", own, &route.metadata.namespace, cluster)
    };
    let mut allowed = listeners().filter(|(_, listener)| allows(listener)).peekable();
    if allowed.peek().is_none() {
        let message = format!(
            "no listener accepts a route of kind {} from namespace {}",
            route.kind, route.metadata.namespace
        );
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
