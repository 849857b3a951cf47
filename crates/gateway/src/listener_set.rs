//! ListenerSets: listeners that other objects add to a gateway, which has to permit it.

use serde_json::{Map, Value};

use crate::cluster::Cluster;
use crate::condition::Fault;
use crate::kinds::{Gateway, GatewayListener, kinds, permits};
use crate::object::{GATEWAY_GROUP, Object, ObjectKind, Reference, unknown};
use crate::translate::Refused;

/// The group of ListenerSets before release 1.5 of the API, where they are named XListenerSets.
pub(crate) const EXPERIMENTAL_GROUP: &str = "gateway.networking.x-k8s.io";

pub(crate) type ListenerSet = Object<ListenerSetSpec>;

kinds! {
    ListenerSetSpec {
        parent_ref: ParentGateway,
        #[serde(default)]
        listeners: Vec<GatewayListener>,
        ..other
    }

    ParentGateway {
        /// `None` means the Gateway API's group.
        group: Option<String>,
        /// `None` means Gateway.
        kind: Option<String>,
        /// `None` means the ListenerSet's namespace.
        namespace: Option<String>,
        name: String,
    }
}

/// A ListenerSet of one of our gateways.
pub(crate) struct OwnSet<'c> {
    pub(crate) set: &'c ListenerSet,
    /// Why none of its listeners is served.
    pub(crate) fault: Option<Fault>,
}

impl OwnSet<'_> {
    /// Whether it is an XListenerSet.
    pub(crate) fn is_experimental(&self) -> bool {
        self.set.api_version.starts_with(EXPERIMENTAL_GROUP)
    }

    /// Group and kind, as in references to it.
    pub(crate) fn group_and_kind(&self) -> (&'static str, &'static str) {
        match self.is_experimental() {
            true => (EXPERIMENTAL_GROUP, "XListenerSet"),
            false => (GATEWAY_GROUP, ObjectKind::ListenerSet.name()),
        }
    }
}

/// Returns the ListenerSets of a gateway in the order of precedence, oldest first.
pub(crate) fn of_gateway<'c>(
    gateway: &Gateway,
    fault: Option<&Fault>,
    cluster: &'c Cluster,
    refused: &Refused,
) -> Vec<OwnSet<'c>> {
    let is_own = |set: &&ListenerSet| {
        let ParentGateway { group, kind, namespace, name } = &set.spec.parent_ref;
        group.as_deref().is_none_or(|group| group == GATEWAY_GROUP)
            && kind.as_deref().is_none_or(|kind| kind == ObjectKind::Gateway.name())
            && *namespace.as_ref().unwrap_or(&set.metadata.namespace) == gateway.metadata.namespace
            && *name == gateway.metadata.name
    };
    let mut sets: Vec<&ListenerSet> = cluster.listener_sets.values().filter(is_own).collect();
    sets.sort_by_key(|set| set.metadata.age());
    let with_fault = |set: &'c ListenerSet| {
        let told = refused.get(&Reference::new(ObjectKind::ListenerSet, &set.metadata));
        let told = told.map(|why| ("Invalid", why.clone()));
        let unknown = unknown(&set.spec.other).map(|names| ("Invalid", format!("not supported: {names}")));
        let parent = fault.map(|_| ("ParentNotAccepted", "its Gateway is not accepted".to_owned()));
        let fault = denied(gateway, set, cluster).or(told).or(unknown).or(parent);
        OwnSet { set, fault }
    };
    sets.into_iter().map(with_fault).collect()
}

/// Returns the fault of a set that its gateway does not permit, which is the default.
fn denied(gateway: &Gateway, set: &ListenerSet, cluster: &Cluster) -> Option<Fault> {
    let namespace = &set.metadata.namespace;
    let allowed = gateway.spec.allowed_listeners.as_ref().and_then(|allowed| allowed.namespaces.as_ref());
    let is_permitted = allowed
        .is_some_and(|allowed| permits(allowed, "None", &gateway.metadata.namespace, namespace, cluster));
    let why =
        || format!("allowedListeners of the Gateway do not permit ListenerSets of namespace {namespace}");
    (!is_permitted).then(|| ("NotAllowed", why()))
}

/// Unknown fields of `allowedListeners` could narrow it.
pub(crate) fn unsupported(gateway: &Gateway) -> Option<String> {
    let other: &Map<String, Value> = &gateway.spec.allowed_listeners.as_ref()?.other;
    unknown(other).map(|names| format!("allowedListeners: not supported: {names}"))
}
