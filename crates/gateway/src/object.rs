//! Common parts of all Kubernetes objects, and references between them.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::listener_set::EXPERIMENTAL_GROUP;

pub(crate) const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

pub(crate) const NETWORKING_GROUP: &str = "networking.k8s.io";

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Object<S> {
    /// Group and version.
    #[serde(default, rename = "apiVersion")]
    pub(crate) api_version: String,
    #[serde(default)]
    pub(crate) metadata: Metadata,
    pub(crate) spec: S,
    /// As JSON; written by controllers.
    #[serde(default)]
    pub(crate) status: Value,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    pub name: String,
    /// Empty for cluster-wide objects.
    pub namespace: String,
    /// Distinguishes the object from earlier and later ones with the same name.
    pub uid: String,
    /// RFC 3339. All times of one server have the same format, so they sort as text.
    pub creation_timestamp: String,
    /// Counts the changes of `spec`.
    pub generation: i64,
    /// For conditional writes.
    pub resource_version: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

impl Metadata {
    /// The sort key of precedence: the older object first, then by name.
    pub(crate) fn age(&self) -> (&str, &str, &str) {
        (&self.creation_timestamp, &self.namespace, &self.name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    GatewayClass,
    Gateway,
    /// Adds listeners to a Gateway.
    ListenerSet,
    HttpRoute,
    GrpcRoute,
    TlsRoute,
    TcpRoute,
    Ingress,
    IngressClass,
    /// Permits references from other namespaces.
    ReferenceGrant,
    /// Sets how TLS servers of a service are verified.
    BackendTlsPolicy,
    Service,
    EndpointSlice,
    /// Secrets with certificates and keys.
    Secret,
    /// Secrets with users and password hashes, or with CAs.
    Passwords,
    /// CA certificates, or response fields.
    ConfigMap,
    /// Only labels are used.
    Namespace,
}

impl ObjectKind {
    /// All kinds. Referenced kinds come before those that refer to them.
    pub const ALL: [Self; 17] = [
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
        Self::ListenerSet,
        Self::HttpRoute,
        Self::GrpcRoute,
        Self::TlsRoute,
        Self::TcpRoute,
        Self::IngressClass,
        Self::Ingress,
    ];

    /// Group, version and plural, as in paths: of the version in use since the latest release of the API.
    pub fn path(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::GatewayClass => (GATEWAY_GROUP, "v1", "gatewayclasses"),
            Self::Gateway => (GATEWAY_GROUP, "v1", "gateways"),
            Self::ListenerSet => (GATEWAY_GROUP, "v1", "listenersets"),
            Self::HttpRoute => (GATEWAY_GROUP, "v1", "httproutes"),
            Self::GrpcRoute => (GATEWAY_GROUP, "v1", "grpcroutes"),
            Self::TlsRoute => (GATEWAY_GROUP, "v1", "tlsroutes"),
            Self::TcpRoute => (GATEWAY_GROUP, "v1", "tcproutes"),
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

    /// The path in clusters with older CRDs, if it is another one.
    pub fn older_path(self) -> Option<(&'static str, &'static str, &'static str)> {
        match self {
            // v1 since 1.5, and since then only in experimental CRDs.
            Self::TlsRoute => Some((GATEWAY_GROUP, "v1alpha2", "tlsroutes")),
            // XListenerSets before 1.5.
            Self::ListenerSet => Some((EXPERIMENTAL_GROUP, "v1alpha1", "xlistenersets")),
            // v1 since 1.6.
            Self::TcpRoute => Some((GATEWAY_GROUP, "v1alpha2", "tcproutes")),
            _ => None,
        }
    }

    /// Whether refusals are reported in the object: not for kinds that change all the time.
    pub(crate) fn is_told(self) -> bool {
        !matches!(
            self,
            Self::EndpointSlice | Self::Secret | Self::Passwords | Self::ConfigMap | Self::Namespace
        )
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::GatewayClass => "GatewayClass",
            Self::Gateway => "Gateway",
            Self::ListenerSet => "ListenerSet",
            Self::HttpRoute => "HTTPRoute",
            Self::GrpcRoute => "GRPCRoute",
            Self::TlsRoute => "TLSRoute",
            Self::TcpRoute => "TCPRoute",
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

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    pub kind: ObjectKind,
    /// Empty for cluster-wide objects.
    pub namespace: String,
    pub name: String,
}

impl Reference {
    pub fn new(kind: ObjectKind, metadata: &Metadata) -> Self {
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

/// Lists the names of unknown fields; `None` if there are none.
pub(crate) fn unknown(other: &Map<String, Value>) -> Option<String> {
    let names: Vec<&str> = other.keys().map(String::as_str).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LabelSelector {
    /// Labels that must have these values.
    pub(crate) match_labels: BTreeMap<String, String>,
    /// Further conditions that must all hold.
    pub(crate) match_expressions: Vec<LabelExpression>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct LabelExpression {
    pub(crate) key: String,
    /// In, NotIn, Exists or DoesNotExist.
    pub(crate) operator: String,
    /// For In and NotIn.
    #[serde(default)]
    pub(crate) values: Vec<String>,
}

impl LabelSelector {
    /// Returns whether labels match. An unknown operator matches none.
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
