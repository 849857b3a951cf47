//! Kinds for TLS passthrough, TCP and TLS to servers, and ConfigMaps, as the API's JSON has them.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::annotations::is_token;
use crate::kinds::kinds;
use crate::kinds::{BackendRef, ParentRef};
use crate::object::Object;
use crate::secrets::AUTHORITIES;

pub(crate) type TlsRoute = Object<TlsRouteSpec>;
pub(crate) type TcpRoute = Object<TcpRouteSpec>;
pub(crate) type BackendTlsPolicy = Object<BackendTlsPolicySpec>;

kinds! {
    TlsRouteSpec {
        #[serde(default)]
        parent_refs: Vec<ParentRef>,
        /// Server names (SNI); empty means those of the listeners.
        #[serde(default)]
        hostnames: Vec<String>,
        #[serde(default)]
        rules: Vec<TlsRule>,
    }

    TlsRule = Default {
        name: Option<String>,
        backend_refs: Vec<BackendRef>,
        ..other
    }

    TcpRouteSpec {
        #[serde(default)]
        parent_refs: Vec<ParentRef>,
        #[serde(default)]
        rules: Vec<TcpRule>,
    }

    TcpRule = Default {
        name: Option<String>,
        backend_refs: Vec<BackendRef>,
        ..other
    }

    BackendTlsPolicySpec {
        #[serde(default)]
        target_refs: Vec<PolicyTarget>,
        validation: TlsValidation,
        /// Options of implementations, such as TLS versions.
        #[serde(default)]
        options: Map<String, Value>,
    }

    /// A target in the policy's namespace.
    PolicyTarget {
        /// Empty for the core group.
        #[serde(default)]
        group: String,
        kind: String,
        name: String,
        /// Name of a port; `None` means all.
        section_name: Option<String>,
    }

    TlsValidation {
        #[serde(default, rename = "caCertificateRefs")]
        ca_certificate_refs: Vec<AuthorityRef>,
        #[serde(default, rename = "wellKnownCACertificates")]
        well_known: Option<String>,
        /// Sent as SNI, and verified in the certificate.
        #[serde(default)]
        hostname: String,
        /// If set, one of these is verified instead.
        #[serde(default)]
        subject_alt_names: Vec<AltName>,
        ..other
    }

    /// An object with CA certificates, in the referring object's namespace.
    AuthorityRef {
        /// Empty for the core group.
        #[serde(default)]
        group: String,
        /// ConfigMap or Secret.
        kind: String,
        name: String,
    }

    AltName {
        /// Hostname or URI.
        #[serde(rename = "type")]
        kind: String,
        /// With kind Hostname.
        #[serde(default)]
        hostname: String,
    }
}

/// A gateway that a policy affects, as in its status.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Ancestor<'a> {
    pub(crate) group: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

kinds! {
    ConfigMap = Default {
        data: BTreeMap<String, String>,
    }
}

/// The most response fields in a ConfigMap.
const FIELDS_MAX: usize = 64;
const FIELD_BYTES_MAX: usize = 4096;

impl ConfigMap {
    /// CA certificates in PEM.
    pub(crate) fn authorities(&self) -> Option<&str> {
        self.data.get(AUTHORITIES).map(String::as_str)
    }

    /// Response fields; `None` if an entry cannot be one, or there are none.
    pub(crate) fn fields(&self) -> Option<&BTreeMap<String, String>> {
        Some(&self.data).filter(|data| !data.is_empty() && !data.contains_key(AUTHORITIES))
    }

    /// Removes everything except CAs, or response fields if all entries can be ones.
    pub(crate) fn keep_known(&mut self) {
        let is_field = |(name, value): (&String, &String)| {
            is_token(name) && value.len() <= FIELD_BYTES_MAX && !value.chars().any(char::is_control)
        };
        let are_fields = self.data.len() <= FIELDS_MAX && self.data.iter().all(is_field);
        if !are_fields {
            self.data.retain(|key, _| key == AUTHORITIES);
        }
    }
}
