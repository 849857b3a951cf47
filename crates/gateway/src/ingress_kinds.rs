//! Ingresses and their classes, as the API's JSON has them.

use serde_json::Value;

use crate::kinds::kinds;
use crate::object::Object;

pub(crate) type IngressClass = Object<IngressClassSpec>;
pub(crate) type Ingress = Object<IngressSpec>;

kinds! {
    IngressClassSpec = Default {
        controller: String,
        /// Unsupported.
        parameters: Option<Value>,
    }

    IngressSpec = Default {
        ingress_class_name: Option<String>,
        /// For requests that no rule matches.
        default_backend: Option<IngressBackend>,
        tls: Vec<IngressTls>,
        rules: Vec<IngressRule>,
    }

    IngressTls = Default {
        /// Empty means the names in the certificate.
        hosts: Vec<String>,
        secret_name: Option<String>,
    }

    IngressRule = Default {
        /// `None` means any.
        host: Option<String>,
        /// `None` means the default backend.
        http: Option<IngressPaths>,
    }

    IngressPaths = Default {
        paths: Vec<IngressPath>,
    }

    IngressPath {
        path: Option<String>,
        /// Exact, Prefix or ImplementationSpecific.
        #[serde(default)]
        path_type: String,
        backend: IngressBackend,
    }

    IngressBackend = Default {
        service: Option<IngressService>,
        ..other
    }

    IngressService = Default {
        name: String,
        port: IngressPort,
    }

    /// A port by number or name.
    IngressPort = Default {
        number: Option<u16>,
        name: Option<String>,
    }
}
