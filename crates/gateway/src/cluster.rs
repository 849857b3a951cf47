//! The objects of a cluster that count, as they were last seen.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::ingress_kinds::{Ingress, IngressClass};
use crate::kinds::{
    EndpointSlice, Gateway, GatewayClass, GrpcRoute, HttpRoute, Namespace, ReferenceGrant, Secret, Service,
};
use crate::object::{Kind, Metadata, Object, Reference};
use crate::secrets;
use crate::tls_kinds::{BackendTlsPolicy, ConfigMap, TlsRoute};

/// The label of an endpoint slice with the name of its service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// The objects, by namespace and name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Cluster {
    pub(crate) classes: Objects<GatewayClass>,
    pub(crate) gateways: Objects<Gateway>,
    pub(crate) http_routes: Objects<HttpRoute>,
    pub(crate) grpc_routes: Objects<GrpcRoute>,
    pub(crate) tls_routes: Objects<TlsRoute>,
    pub(crate) ingresses: Objects<Ingress>,
    pub(crate) ingress_classes: Objects<IngressClass>,
    pub(crate) grants: Objects<ReferenceGrant>,
    pub(crate) services: Objects<Service>,
    pub(crate) slices: Objects<EndpointSlice>,
    pub(crate) tls_policies: Objects<BackendTlsPolicy>,
    pub(crate) secrets: Objects<Secret>,
    /// Only those with hashes of passwords, and without anything else.
    pub(crate) passwords: Objects<Secret>,
    pub(crate) config_maps: Objects<ConfigMap>,
    pub(crate) namespaces: Objects<Namespace>,
    /// The slices of a service.
    slices_of: BTreeMap<(String, String), BTreeSet<String>>,
    /// What could not be read, and why.
    pub(crate) unreadable: BTreeMap<Reference, String>,
    /// What tells objects from others of their names, of those that may be told something.
    uids: BTreeMap<Reference, String>,
}

/// Objects by namespace and name.
type Objects<T> = BTreeMap<(String, String), T>;

impl Cluster {
    /// An object is there, or is another one now.
    pub fn put(&mut self, kind: Kind, object: Value) {
        let metadata = object.get("metadata").cloned().unwrap_or_default();
        let Ok(metadata) = serde_json::from_value::<Metadata>(metadata) else { return };
        let reference = Reference::of(kind, &metadata);
        self.remove(&reference);
        let key = (metadata.namespace.clone(), metadata.name.clone());
        let put = match kind {
            Kind::GatewayClass => put(&mut self.classes, key, object),
            Kind::Gateway => put(&mut self.gateways, key, object),
            Kind::HttpRoute => put(&mut self.http_routes, key, object),
            Kind::GrpcRoute => put(&mut self.grpc_routes, key, object),
            Kind::TlsRoute => put(&mut self.tls_routes, key, object),
            Kind::Ingress => put(&mut self.ingresses, key, object),
            Kind::IngressClass => put(&mut self.ingress_classes, key, object),
            Kind::ReferenceGrant => put(&mut self.grants, key, object),
            Kind::Service => put(&mut self.services, key, object),
            Kind::EndpointSlice => {
                if let Some(service) = metadata.labels.get(SERVICE_LABEL) {
                    let service = (metadata.namespace.clone(), service.clone());
                    self.slices_of.entry(service).or_default().insert(metadata.name.clone());
                }
                put(&mut self.slices, key, object)
            }
            Kind::BackendTlsPolicy => put(&mut self.tls_policies, key, object),
            Kind::Secret => put(&mut self.secrets, key, object),
            Kind::Passwords => put(&mut self.passwords, key.clone(), object).map(|()| self.keep_users(&key)),
            Kind::ConfigMap => put(&mut self.config_maps, key, object),
            Kind::Namespace => put(&mut self.namespaces, key, object),
        };
        if reference.kind.is_told() {
            self.uids.insert(reference.clone(), metadata.uid);
        }
        if let Err(why) = put {
            self.unreadable.insert(reference, why);
        }
    }

    /// Of secrets that could have anything, what is no hash of a password is not kept.
    fn keep_users(&mut self, key: &(String, String)) {
        if let Some(secret) = self.passwords.get_mut(key)
            && !secrets::keep_users(secret)
        {
            self.passwords.remove(key);
        }
    }

    /// An object is gone.
    pub fn remove(&mut self, reference: &Reference) {
        self.unreadable.remove(reference);
        self.uids.remove(reference);
        let key = (reference.namespace.clone(), reference.name.clone());
        match reference.kind {
            Kind::GatewayClass => drop(self.classes.remove(&key)),
            Kind::Gateway => drop(self.gateways.remove(&key)),
            Kind::HttpRoute => drop(self.http_routes.remove(&key)),
            Kind::GrpcRoute => drop(self.grpc_routes.remove(&key)),
            Kind::TlsRoute => drop(self.tls_routes.remove(&key)),
            Kind::Ingress => drop(self.ingresses.remove(&key)),
            Kind::IngressClass => drop(self.ingress_classes.remove(&key)),
            Kind::ReferenceGrant => drop(self.grants.remove(&key)),
            Kind::Service => drop(self.services.remove(&key)),
            Kind::EndpointSlice => {
                let slice = self.slices.remove(&key);
                let service = slice.and_then(|slice| slice.metadata.labels.get(SERVICE_LABEL).cloned());
                if let Some(service) = service
                    && let Some(slices) = self.slices_of.get_mut(&(key.0, service))
                {
                    slices.remove(&key.1);
                }
            }
            Kind::BackendTlsPolicy => drop(self.tls_policies.remove(&key)),
            Kind::Secret => drop(self.secrets.remove(&key)),
            Kind::Passwords => drop(self.passwords.remove(&key)),
            Kind::ConfigMap => drop(self.config_maps.remove(&key)),
            Kind::Namespace => drop(self.namespaces.remove(&key)),
        }
    }

    /// All objects of a kind.
    pub fn all(&self, kind: Kind) -> Vec<Reference> {
        fn names<T>(objects: &Objects<T>, kind: Kind) -> Vec<Reference> {
            let of = |(namespace, name): &(String, String)| Reference {
                kind,
                namespace: namespace.clone(),
                name: name.clone(),
            };
            objects.keys().map(of).collect()
        }
        match kind {
            Kind::GatewayClass => names(&self.classes, kind),
            Kind::Gateway => names(&self.gateways, kind),
            Kind::HttpRoute => names(&self.http_routes, kind),
            Kind::GrpcRoute => names(&self.grpc_routes, kind),
            Kind::TlsRoute => names(&self.tls_routes, kind),
            Kind::Ingress => names(&self.ingresses, kind),
            Kind::IngressClass => names(&self.ingress_classes, kind),
            Kind::ReferenceGrant => names(&self.grants, kind),
            Kind::Service => names(&self.services, kind),
            Kind::EndpointSlice => names(&self.slices, kind),
            Kind::BackendTlsPolicy => names(&self.tls_policies, kind),
            Kind::Secret => names(&self.secrets, kind),
            Kind::Passwords => names(&self.passwords, kind),
            Kind::ConfigMap => names(&self.config_maps, kind),
            Kind::Namespace => names(&self.namespaces, kind),
        }
    }

    /// What controllers have found about an object, and the version and generation of it that is known here.
    pub fn status(&self, reference: &Reference) -> Option<(&Value, &Metadata)> {
        fn of<'c, S>(
            objects: &'c Objects<Object<S>>,
            key: &(String, String),
        ) -> Option<(&'c Value, &'c Metadata)> {
            objects.get(key).map(|object| (&object.status, &object.metadata))
        }
        let key = (reference.namespace.clone(), reference.name.clone());
        match reference.kind {
            Kind::GatewayClass => of(&self.classes, &key),
            Kind::Gateway => of(&self.gateways, &key),
            Kind::HttpRoute => of(&self.http_routes, &key),
            Kind::GrpcRoute => of(&self.grpc_routes, &key),
            Kind::TlsRoute => of(&self.tls_routes, &key),
            Kind::Ingress => of(&self.ingresses, &key),
            Kind::BackendTlsPolicy => of(&self.tls_policies, &key),
            _ => None,
        }
    }

    /// What tells an object from others of its name.
    pub fn uid(&self, reference: &Reference) -> Option<&str> {
        self.uids.get(reference).map(String::as_str)
    }

    /// The slices of a service.
    pub(crate) fn slices_of(&self, namespace: &str, service: &str) -> impl Iterator<Item = &EndpointSlice> {
        let names = self.slices_of.get(&(namespace.to_owned(), service.to_owned()));
        let namespace = namespace.to_owned();
        names
            .into_iter()
            .flatten()
            .filter_map(move |name| self.slices.get(&(namespace.clone(), name.clone())))
    }

    /// Whether an object of one namespace may refer to one of another. `from` and `to` are group and kind.
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
    let object = serde_json::from_value(object).map_err(|error| error.to_string())?;
    objects.insert(key, object);
    Ok(())
}
