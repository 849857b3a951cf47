//! What all objects of Kubernetes have, and how one refers to another.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::{Map, Value};

/// The group of the Gateway API.
pub(crate) const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// The group of Ingresses.
pub(crate) const NETWORKING_GROUP: &str = "networking.k8s.io";

/// An object: its metadata, what is wanted, and what was found about it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Object<S> {
    /// Name, namespace and the like.
    #[serde(default)]
    pub(crate) metadata: Metadata,
    /// What is wanted.
    pub(crate) spec: S,
    /// What controllers have found about it, as it is.
    #[serde(default)]
    pub(crate) status: Value,
}

/// The metadata of an object.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// Its name.
    pub name: String,
    /// Its namespace; empty if it has none.
    pub namespace: String,
    /// What tells it from others of its name, before and after it.
    pub uid: String,
    /// When it was created, in RFC 3339. All of one server are written alike, so texts compare as times do.
    pub creation_timestamp: String,
    /// Counts the changes of `spec`.
    pub generation: i64,
    /// The version of the object, for conditional writes.
    pub resource_version: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
}

impl Metadata {
    /// What of two objects comes first: the older one, then by name.
    pub(crate) fn age(&self) -> (&str, &str, &str) {
        (&self.creation_timestamp, &self.namespace, &self.name)
    }
}

/// The kinds of objects that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Whose gateways are ours.
    GatewayClass,
    /// Listeners.
    Gateway,
    /// Routes of HTTP.
    HttpRoute,
    /// Routes of gRPC.
    GrpcRoute,
    /// Routes of TLS that is passed on.
    TlsRoute,
    /// Hosts and paths, before there were gateways.
    Ingress,
    /// Whose Ingresses are ours.
    IngressClass,
    /// What may be referred to from other namespaces.
    ReferenceGrant,
    /// How servers of a service prove who they are.
    BackendTlsPolicy,
    /// Servers with one name.
    Service,
    /// Addresses of the servers of a service.
    EndpointSlice,
    /// Certificates with their keys.
    Secret,
    /// Secrets that may have users with the hashes of their passwords.
    Passwords,
    /// Certificates of CAs.
    ConfigMap,
    /// Labels of namespaces.
    Namespace,
}

impl Kind {
    /// All of them, in an order in which none is read before what it refers to.
    pub const ALL: [Self; 15] = [
        Self::Namespace,
        Self::ReferenceGrant,
        Self::Secret,
        Self::Passwords,
        Self::ConfigMap,
        Self::EndpointSlice,
        Self::Service,
        Self::BackendTlsPolicy,
        Self::GatewayClass,
        Self::Gateway,
        Self::HttpRoute,
        Self::GrpcRoute,
        Self::TlsRoute,
        Self::IngressClass,
        Self::Ingress,
    ];

    /// Its group, version and the plural that stands in paths.
    pub fn path(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::GatewayClass => (GATEWAY_GROUP, "v1", "gatewayclasses"),
            Self::Gateway => (GATEWAY_GROUP, "v1", "gateways"),
            Self::HttpRoute => (GATEWAY_GROUP, "v1", "httproutes"),
            Self::GrpcRoute => (GATEWAY_GROUP, "v1", "grpcroutes"),
            Self::TlsRoute => (GATEWAY_GROUP, "v1alpha2", "tlsroutes"),
            Self::Ingress => (NETWORKING_GROUP, "v1", "ingresses"),
            Self::IngressClass => (NETWORKING_GROUP, "v1", "ingressclasses"),
            Self::ReferenceGrant => (GATEWAY_GROUP, "v1beta1", "referencegrants"),
            Self::BackendTlsPolicy => (GATEWAY_GROUP, "v1", "backendtlspolicies"),
            Self::Service => ("", "v1", "services"),
            Self::EndpointSlice => ("discovery.k8s.io", "v1", "endpointslices"),
            Self::Secret | Self::Passwords => ("", "v1", "secrets"),
            Self::ConfigMap => ("", "v1", "configmaps"),
            Self::Namespace => ("", "v1", "namespaces"),
        }
    }

    /// Whether objects of the kind are told what is refused of them: not those that change all the time.
    pub(crate) fn is_told(self) -> bool {
        !matches!(
            self,
            Self::EndpointSlice | Self::Secret | Self::Passwords | Self::ConfigMap | Self::Namespace
        )
    }

    /// Its name in references and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::GatewayClass => "GatewayClass",
            Self::Gateway => "Gateway",
            Self::HttpRoute => "HTTPRoute",
            Self::GrpcRoute => "GRPCRoute",
            Self::TlsRoute => "TLSRoute",
            Self::Ingress => "Ingress",
            Self::IngressClass => "IngressClass",
            Self::ReferenceGrant => "ReferenceGrant",
            Self::BackendTlsPolicy => "BackendTLSPolicy",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::Secret | Self::Passwords => "Secret",
            Self::ConfigMap => "ConfigMap",
            Self::Namespace => "Namespace",
        }
    }
}

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty if it has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Reference {
    /// The object with this metadata.
    pub fn of(kind: Kind, metadata: &Metadata) -> Self {
        Self { kind, namespace: metadata.namespace.clone(), name: metadata.name.clone() }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name } = self;
        let kind = kind.name();
        match namespace.as_str() {
            "" => write!(formatter, "{kind} {name}"),
            namespace => write!(formatter, "{kind} {namespace}/{name}"),
        }
    }
}

/// The names of fields that are not known here, so not obeyed; `None` if there are none.
pub(crate) fn unknown(other: &Map<String, Value>) -> Option<String> {
    let names: Vec<&str> = other.keys().map(String::as_str).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Which labels.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LabelSelector {
    /// Labels with these values.
    pub(crate) match_labels: BTreeMap<String, String>,
    /// Further conditions, all of which must hold.
    pub(crate) match_expressions: Vec<LabelExpression>,
}

/// A condition on a label.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct LabelExpression {
    /// The label.
    pub(crate) key: String,
    /// In, NotIn, Exists or DoesNotExist.
    pub(crate) operator: String,
    /// The values of In and NotIn.
    #[serde(default)]
    pub(crate) values: Vec<String>,
}

impl LabelSelector {
    /// Whether labels are selected. An operator that is not known selects none.
    pub(crate) fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let holds = |LabelExpression { key, operator, values }: &LabelExpression| {
            let value = labels.get(key);
            match operator.as_str() {
                "In" => value.is_some_and(|value| values.contains(value)),
                "NotIn" => value.is_none_or(|value| !values.contains(value)),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        };
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_obey_every_operator() {
        let labels = BTreeMap::from([("team".to_owned(), "shop".to_owned())]);
        for (selector, expected) in [
            ("{}", true),
            (r#"{ "matchLabels": { "team": "shop" } }"#, true),
            (r#"{ "matchLabels": { "team": "blog" } }"#, false),
            (
                r#"{ "matchExpressions": [{ "key": "team", "operator": "In", "values": ["a", "shop"] }] }"#,
                true,
            ),
            (r#"{ "matchExpressions": [{ "key": "team", "operator": "In", "values": ["a"] }] }"#, false),
            (
                r#"{ "matchExpressions": [{ "key": "team", "operator": "NotIn", "values": ["shop"] }] }"#,
                false,
            ),
            (r#"{ "matchExpressions": [{ "key": "x", "operator": "NotIn", "values": ["shop"] }] }"#, true),
            (r#"{ "matchExpressions": [{ "key": "team", "operator": "Exists" }] }"#, true),
            (r#"{ "matchExpressions": [{ "key": "x", "operator": "Exists" }] }"#, false),
            (r#"{ "matchExpressions": [{ "key": "x", "operator": "DoesNotExist" }] }"#, true),
            (r#"{ "matchExpressions": [{ "key": "team", "operator": "Like" }] }"#, false),
        ] {
            let selector: LabelSelector = serde_json::from_str(selector).expect("a selector");
            assert_eq!(selector.selects(&labels), expected, "{selector:?}");
        }
    }
}
