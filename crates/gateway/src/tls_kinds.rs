//! Kinds of objects about TLS that is passed on and TLS to servers, as they come from the API.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::kinds::{BackendRef, ParentRef};
use crate::object::Object;

/// A route of TLS that is passed on.
pub(crate) type TlsRoute = Object<TlsRouteSpec>;
/// How servers of a service prove who they are.
pub(crate) type BackendTlsPolicy = Object<BackendTlsPolicySpec>;

/// What a route of TLS wants.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TlsRouteSpec {
    /// The gateways.
    #[serde(default)]
    pub(crate) parent_refs: Vec<ParentRef>,
    /// The names that clients ask for; empty: those of the listeners.
    #[serde(default)]
    pub(crate) hostnames: Vec<String>,
    /// The rules.
    #[serde(default)]
    pub(crate) rules: Vec<TlsRule>,
}

/// A rule of a route of TLS.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TlsRule {
    /// Its name.
    pub(crate) name: Option<String>,
    /// Who gets the connections.
    pub(crate) backend_refs: Vec<BackendRef>,
    /// What is not known here.
    #[serde(flatten)]
    pub(crate) other: Map<String, Value>,
}

/// How servers of a service prove who they are.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BackendTlsPolicySpec {
    /// The services.
    #[serde(default)]
    pub(crate) target_refs: Vec<PolicyTarget>,
    /// What is expected of their certificates.
    pub(crate) validation: TlsValidation,
    /// Options of implementations, such as versions of TLS.
    #[serde(default)]
    pub(crate) options: Map<String, Value>,
}

/// What a policy is for, in its own namespace.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PolicyTarget {
    /// The group; empty for the core.
    #[serde(default)]
    pub(crate) group: String,
    /// The kind.
    pub(crate) kind: String,
    /// The name.
    pub(crate) name: String,
    /// The name of a port; by default all.
    #[serde(default)]
    pub(crate) section_name: Option<String>,
}

/// What is expected of certificates of servers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TlsValidation {
    /// Objects with certificates of CAs.
    #[serde(default, rename = "caCertificateRefs")]
    pub(crate) ca_certificate_refs: Vec<AuthorityRef>,
    /// System.
    #[serde(default, rename = "wellKnownCACertificates")]
    pub(crate) well_known: Option<String>,
    /// The name that servers are asked for, and that they must prove.
    #[serde(default)]
    pub(crate) hostname: String,
    /// Other names, one of which they must prove.
    #[serde(default)]
    pub(crate) subject_alt_names: Vec<AltName>,
    /// What is not known here.
    #[serde(flatten)]
    pub(crate) other: Map<String, Value>,
}

/// An object with certificates of CAs, in the namespace of who refers to it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct AuthorityRef {
    /// The group; empty for the core.
    #[serde(default)]
    pub(crate) group: String,
    /// ConfigMap or Secret.
    pub(crate) kind: String,
    /// The name.
    pub(crate) name: String,
}

/// A name that servers may prove.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct AltName {
    /// Hostname or URI.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// With Hostname: the name.
    #[serde(default)]
    pub(crate) hostname: String,
}

/// An object that a policy holds for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Ancestor<'a> {
    /// The group.
    pub(crate) group: &'a str,
    /// The kind.
    pub(crate) kind: &'a str,
    /// The namespace.
    pub(crate) namespace: &'a str,
    /// The name.
    pub(crate) name: &'a str,
}

/// Texts by name, of which only one is kept.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ConfigMap {
    /// The texts.
    pub(crate) data: AuthorityText,
}

/// What counts of a ConfigMap.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AuthorityText {
    /// Certificates of CAs in PEM.
    #[serde(rename = "ca.crt")]
    pub(crate) authorities: Option<String>,
}
