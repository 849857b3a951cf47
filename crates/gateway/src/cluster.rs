//! The last known state of a cluster's relevant objects.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::ingress_kinds::{Ingress, IngressClass};
use crate::kinds::{
    EndpointSlice, Gateway, GatewayClass, GrpcRoute, HttpRoute, KubernetesSecret, Namespace, ReferenceGrant,
    Service,
};
use crate::listener_set::ListenerSet;
use crate::object::{Metadata, Object, ObjectKind, Reference};
use crate::secrets;
use crate::tls_kinds::{BackendTlsPolicy, ConfigMap, TcpRoute, TlsRoute};

/// Label of an endpoint slice with the name of its service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Cluster {
    pub(crate) classes: Objects<GatewayClass>,
    pub(crate) gateways: Objects<Gateway>,
    pub(crate) listener_sets: Objects<ListenerSet>,
    pub(crate) http_routes: Objects<HttpRoute>,
    pub(crate) grpc_routes: Objects<GrpcRoute>,
    pub(crate) tls_routes: Objects<TlsRoute>,
    pub(crate) tcp_routes: Objects<TcpRoute>,
    pub(crate) ingresses: Objects<Ingress>,
    pub(crate) ingress_classes: Objects<IngressClass>,
    pub(crate) grants: Objects<ReferenceGrant>,
    pub(crate) services: Objects<Service>,
    pub(crate) slices: Objects<EndpointSlice>,
    pub(crate) tls_policies: Objects<BackendTlsPolicy>,
    pub(crate) secrets: Objects<KubernetesSecret>,
    /// Only Secrets with password hashes or CAs, reduced to these.
    pub(crate) passwords: Objects<KubernetesSecret>,
    pub(crate) config_maps: Objects<ConfigMap>,
    pub(crate) namespaces: Objects<Namespace>,
    slices_of: BTreeMap<(String, String), BTreeSet<String>>,
    pub(crate) unreadable: BTreeMap<Reference, String>,
    /// UIDs of objects that get statuses or Events.
    uids: BTreeMap<Reference, String>,
}

type Objects<T> = BTreeMap<(String, String), T>;

impl Cluster {
    pub fn put(&mut self, kind: ObjectKind, object: Value) {
        let metadata = object.get("metadata").cloned().unwrap_or_default();
        let Ok(metadata) = serde_json::from_value::<Metadata>(metadata) else { return };
        let reference = Reference::new(kind, &metadata);
        self.remove(&reference);
        let key = (metadata.namespace.clone(), metadata.name.clone());
        let put = match kind {
            ObjectKind::GatewayClass => put(&mut self.classes, key, object),
            ObjectKind::Gateway => put(&mut self.gateways, key, object),
            ObjectKind::ListenerSet => put(&mut self.listener_sets, key, object),
            ObjectKind::HttpRoute => put(&mut self.http_routes, key, object),
            ObjectKind::GrpcRoute => put(&mut self.grpc_routes, key, object),
            ObjectKind::TlsRoute => put(&mut self.tls_routes, key, object),
            ObjectKind::TcpRoute => put(&mut self.tcp_routes, key, object),
            ObjectKind::Ingress => put(&mut self.ingresses, key, object),
            ObjectKind::IngressClass => put(&mut self.ingress_classes, key, object),
            ObjectKind::ReferenceGrant => put(&mut self.grants, key, object),
            ObjectKind::Service => put(&mut self.services, key, object),
            ObjectKind::EndpointSlice => {
                if let Some(service) = metadata.labels.get(SERVICE_LABEL) {
                    let service = (metadata.namespace.clone(), service.clone());
                    self.slices_of.entry(service).or_default().insert(metadata.name.clone());
                }
                put(&mut self.slices, key, object)
            }
            ObjectKind::BackendTlsPolicy => put(&mut self.tls_policies, key, object),
            ObjectKind::Secret => put(&mut self.secrets, key, object),
            ObjectKind::Passwords => {
                put(&mut self.passwords, key.clone(), object).map(|()| self.keep_known(&key))
            }
            ObjectKind::ConfigMap => put(&mut self.config_maps, key.clone(), object).map(|()| {
                self.config_maps.get_mut(&key).map(ConfigMap::keep_known);
            }),
            ObjectKind::Namespace => put(&mut self.namespaces, key, object),
        };
        if reference.kind.is_told() {
            self.uids.insert(reference.clone(), metadata.uid);
        }
        if let Err(why) = put {
            self.unreadable.insert(reference, why);
        }
    }

    /// Reduces a Secret of unknown content to password hashes and CAs.
    fn keep_known(&mut self, key: &(String, String)) {
        if let Some(secret) = self.passwords.get_mut(key)
            && !secrets::keep_known(secret)
        {
            self.passwords.remove(key);
        }
    }

    pub fn remove(&mut self, reference: &Reference) {
        self.unreadable.remove(reference);
        self.uids.remove(reference);
        let key = (reference.namespace.clone(), reference.name.clone());
        match reference.kind {
            ObjectKind::GatewayClass => drop(self.classes.remove(&key)),
            ObjectKind::Gateway => drop(self.gateways.remove(&key)),
            ObjectKind::ListenerSet => drop(self.listener_sets.remove(&key)),
            ObjectKind::HttpRoute => drop(self.http_routes.remove(&key)),
            ObjectKind::GrpcRoute => drop(self.grpc_routes.remove(&key)),
            ObjectKind::TlsRoute => drop(self.tls_routes.remove(&key)),
            ObjectKind::TcpRoute => drop(self.tcp_routes.remove(&key)),
            ObjectKind::Ingress => drop(self.ingresses.remove(&key)),
            ObjectKind::IngressClass => drop(self.ingress_classes.remove(&key)),
            ObjectKind::ReferenceGrant => drop(self.grants.remove(&key)),
            ObjectKind::Service => drop(self.services.remove(&key)),
            ObjectKind::EndpointSlice => {
                let slice = self.slices.remove(&key);
                let service = slice.and_then(|slice| slice.metadata.labels.get(SERVICE_LABEL).cloned());
                if let Some(service) = service
                    && let Some(slices) = self.slices_of.get_mut(&(key.0, service))
                {
                    slices.remove(&key.1);
                }
            }
            ObjectKind::BackendTlsPolicy => drop(self.tls_policies.remove(&key)),
            ObjectKind::Secret => drop(self.secrets.remove(&key)),
            ObjectKind::Passwords => drop(self.passwords.remove(&key)),
            ObjectKind::ConfigMap => drop(self.config_maps.remove(&key)),
            ObjectKind::Namespace => drop(self.namespaces.remove(&key)),
        }
    }

    pub fn all(&self, kind: ObjectKind) -> Vec<Reference> {
        fn names<T>(objects: &Objects<T>, kind: ObjectKind) -> Vec<Reference> {
            let of = |(namespace, name): &(String, String)| Reference {
                kind,
                namespace: namespace.clone(),
                name: name.clone(),
            };
            objects.keys().map(of).collect()
        }
        match kind {
            ObjectKind::GatewayClass => names(&self.classes, kind),
            ObjectKind::Gateway => names(&self.gateways, kind),
            ObjectKind::ListenerSet => names(&self.listener_sets, kind),
            ObjectKind::HttpRoute => names(&self.http_routes, kind),
            ObjectKind::GrpcRoute => names(&self.grpc_routes, kind),
            ObjectKind::TlsRoute => names(&self.tls_routes, kind),
            ObjectKind::TcpRoute => names(&self.tcp_routes, kind),
            ObjectKind::Ingress => names(&self.ingresses, kind),
            ObjectKind::IngressClass => names(&self.ingress_classes, kind),
            ObjectKind::ReferenceGrant => names(&self.grants, kind),
            ObjectKind::Service => names(&self.services, kind),
            ObjectKind::EndpointSlice => names(&self.slices, kind),
            ObjectKind::BackendTlsPolicy => names(&self.tls_policies, kind),
            ObjectKind::Secret => names(&self.secrets, kind),
            ObjectKind::Passwords => names(&self.passwords, kind),
            ObjectKind::ConfigMap => names(&self.config_maps, kind),
            ObjectKind::Namespace => names(&self.namespaces, kind),
        }
    }

    pub fn status(&self, reference: &Reference) -> Option<(&Value, &Metadata)> {
        fn objects_of<'c, S>(
            objects: &'c Objects<Object<S>>,
            key: &(String, String),
        ) -> Option<(&'c Value, &'c Metadata)> {
            objects.get(key).map(|object| (&object.status, &object.metadata))
        }
        let key = (reference.namespace.clone(), reference.name.clone());
        match reference.kind {
            ObjectKind::GatewayClass => objects_of(&self.classes, &key),
            ObjectKind::Gateway => objects_of(&self.gateways, &key),
            ObjectKind::ListenerSet => objects_of(&self.listener_sets, &key),
            ObjectKind::HttpRoute => objects_of(&self.http_routes, &key),
            ObjectKind::GrpcRoute => objects_of(&self.grpc_routes, &key),
            ObjectKind::TlsRoute => objects_of(&self.tls_routes, &key),
            ObjectKind::TcpRoute => objects_of(&self.tcp_routes, &key),
            ObjectKind::Ingress => objects_of(&self.ingresses, &key),
            ObjectKind::BackendTlsPolicy => objects_of(&self.tls_policies, &key),
            _ => None,
        }
    }

    pub fn uid(&self, reference: &Reference) -> Option<&str> {
        self.uids.get(reference).map(String::as_str)
    }

    pub(crate) fn slices_of(&self, namespace: &str, service: &str) -> impl Iterator<Item = &EndpointSlice> {
        let names = self.slices_of.get(&(namespace.to_owned(), service.to_owned()));
        let namespace = namespace.to_owned();
        names
            .into_iter()
            .flatten()
            .filter_map(move |name| self.slices.get(&(namespace.clone(), name.clone())))
    }

    /// Whether an object may refer to another namespace's object. `from` and `to` begin with group and kind.
    pub(crate) fn is_granted(&self, from: (&str, &str, &str), to: (&str, &str, &str, &str)) -> bool {
        let (group, kind, namespace) = from;
        let (to_group, to_kind, to_namespace, to_name) = to;
        if namespace == to_namespace {
            return true;
        }
        let grants = self.grants.values().filter(|grant| grant.metadata.namespace == to_namespace);
        grants.map(|grant| &grant.spec).any(|grant| {
            let is_from = grant
                .from
                .iter()
                .any(|from| from.group == group && from.kind == kind && from.namespace == namespace);
            let is_to = grant.to.iter().any(|to| {
                let is_name = to.name.as_deref().is_none_or(|name| name.is_empty() || name == to_name);
                to.group == to_group && to.kind == to_kind && is_name
            });
            is_from && is_to
        })
    }
}

fn put<T: DeserializeOwned>(
    objects: &mut Objects<T>,
    key: (String, String),
    object: Value,
) -> Result<(), String> {
    let object = serde_json::from_value(object).map_err(|error| mistake::json_error(&error.to_string()))?;
    objects.insert(key, object);
    Ok(())
}
