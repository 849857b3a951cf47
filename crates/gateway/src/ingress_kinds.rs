//! Ingresses and their classes, as they come from the API.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::object::Object;

/// A class of Ingresses.
pub(crate) type IngressClass = Object<IngressClassSpec>;
/// An Ingress.
pub(crate) type Ingress = Object<IngressSpec>;

/// Who serves a class.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct IngressClassSpec {
    /// The name of its controller.
    pub(crate) controller: String,
    /// Parameters, of which there are none here.
    pub(crate) parameters: Option<Value>,
}

/// What an Ingress wants.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct IngressSpec {
    /// The class.
    pub(crate) ingress_class_name: Option<String>,
    /// Who answers what no rule takes.
    pub(crate) default_backend: Option<IngressBackend>,
    /// Certificates.
    pub(crate) tls: Vec<IngressTls>,
    /// The rules.
    pub(crate) rules: Vec<IngressRule>,
}

/// A certificate of an Ingress.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct IngressTls {
    /// The hosts that it is for; empty: the names in it.
    pub(crate) hosts: Vec<String>,
    /// The secret.
    pub(crate) secret_name: Option<String>,
}

/// The paths of a host.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct IngressRule {
    /// The host; by default any.
    pub(crate) host: Option<String>,
    /// The paths; without them the default backend answers.
    pub(crate) http: Option<IngressPaths>,
}

/// The paths of a host.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct IngressPaths {
    /// The paths.
    pub(crate) paths: Vec<IngressPath>,
}

/// A path, and who answers there.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IngressPath {
    /// The path.
    #[serde(default)]
    pub(crate) path: Option<String>,
    /// Exact, Prefix or ImplementationSpecific.
    #[serde(default)]
    pub(crate) path_type: String,
    /// Who answers.
    pub(crate) backend: IngressBackend,
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct IngressBackend {
    /// A service.
    pub(crate) service: Option<IngressService>,
    /// What else there is.
    #[serde(flatten)]
    pub(crate) other: Map<String, Value>,
}

/// A port of a service.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct IngressService {
    /// The service.
    pub(crate) name: String,
    /// Its port.
    pub(crate) port: IngressPort,
}

/// A port, by its number or its name.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct IngressPort {
    /// The number.
    pub(crate) number: Option<u16>,
    /// The name.
    pub(crate) name: Option<String>,
}
