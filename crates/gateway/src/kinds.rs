//! Kinds of the Gateway API and of Kubernetes, as the API's JSON has them.
//!
//! Unknown fields that change the behavior are kept in `other`, so that they can be refused.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::object::{LabelSelector, Metadata, Object};

/// Declares types with derives and JSON names. `= Default` makes all fields optional; `..other` has unknown fields.
macro_rules! kinds {
    ($(
        $(#[$meta:meta])*
        $name:ident $(= $default:ident)? {
            $($(#[$of_field:meta])* $field:ident: $kind:ty,)*
            $(..$other:ident)?
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, serde::Deserialize)]
        $(#[derive($default)] #[serde(default)])?
        #[serde(rename_all = "camelCase")]
        pub(crate) struct $name {
            $($(#[$of_field])* pub(crate) $field: $kind,)*
            $(#[serde(flatten)] pub(crate) $other: serde_json::Map<String, serde_json::Value>,)?
        }
    )*};
}
pub(crate) use kinds;

pub(crate) type GatewayClass = Object<GatewayClassSpec>;
pub(crate) type Gateway = Object<GatewaySpec>;
pub(crate) type HttpRoute = Object<HttpRouteSpec>;
pub(crate) type GrpcRoute = Object<GrpcRouteSpec>;
pub(crate) type ReferenceGrant = Object<ReferenceGrantSpec>;
pub(crate) type Service = Object<ServiceSpec>;

kinds! {
    GatewayClassSpec {
        controller_name: String,
        /// Unsupported.
        parameters_ref: Option<Value>,
    }

    GatewaySpec {
        gateway_class_name: String,
        /// At least one.
        #[serde(default)]
        listeners: Vec<GatewayListener>,
        #[serde(default)]
        addresses: Vec<GatewayAddress>,
        /// Unsupported.
        infrastructure: Option<Infrastructure>,
        tls: Option<GatewayTlsConfig>,
        /// The ListenerSets that may attach; `None` means none.
        allowed_listeners: Option<AllowedListeners>,
        ..other
    }

    /// TLS settings for all listeners.
    GatewayTlsConfig = Default {
        /// For connections of clients.
        frontend: Option<FrontendTls>,
        /// For connections to servers.
        backend: Option<BackendTls>,
        ..other
    }

    BackendTls = Default {
        /// A certificate that servers may ask for.
        client_certificate_ref: Option<ObjectRef>,
        ..other
    }

    FrontendTls = Default {
        default: Option<PortTls>,
        per_port: Vec<FrontendPort>,
        ..other
    }

    /// Settings for a port, instead of the default.
    FrontendPort {
        port: u16,
        #[serde(default)]
        tls: PortTls,
    }

    PortTls = Default {
        validation: Option<FrontendValidation>,
        ..other
    }

    /// Verification of clients.
    FrontendValidation = Default {
        ca_certificate_refs: Vec<ObjectRef>,
        /// AllowValidOnly or AllowInsecureFallback.
        mode: Option<String>,
        ..other
    }

    /// Settings for objects that a controller creates for a gateway. This one creates none.
    Infrastructure {
        /// Unsupported.
        parameters_ref: Option<Value>,
    }

    GatewayAddress {
        /// IPAddress, Hostname or another.
        #[serde(rename = "type")]
        kind: Option<String>,
        #[serde(default)]
        value: String,
    }

    GatewayListener {
        /// Unique in its gateway.
        name: String,
        /// Matches the server name or Host; `None` means any.
        hostname: Option<String>,
        port: u16,
        /// HTTP, HTTPS, TLS, TCP, UDP or another.
        protocol: String,
        tls: Option<GatewayTls>,
        #[serde(default)]
        allowed_routes: AllowedRoutes,
    }

    GatewayTls {
        /// Terminate or Passthrough.
        mode: Option<String>,
        #[serde(default)]
        certificate_refs: Vec<ObjectRef>,
        ..other
    }

    AllowedListeners = Default {
        namespaces: Option<RouteNamespaces>,
        ..other
    }

    #[derive(Default)]
    AllowedRoutes {
        #[serde(default)]
        namespaces: RouteNamespaces,
        /// Empty means all kinds of the protocol.
        #[serde(default)]
        kinds: Vec<RouteKind>,
    }

    #[derive(Default)]
    RouteNamespaces {
        /// Same, All, Selector or None.
        from: Option<String>,
        #[serde(default)]
        selector: LabelSelector,
    }

    RouteKind {
        /// `None` means the Gateway API's group.
        group: Option<String>,
        kind: String,
    }

    ObjectRef {
        /// `None` means the core group.
        group: Option<String>,
        kind: Option<String>,
        name: String,
        /// `None` means the referring object's namespace.
        namespace: Option<String>,
    }

    #[derive(Serialize)]
    ParentRef {
        #[serde(skip_serializing_if = "Option::is_none")]
        group: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        kind: Option<String>,
        /// `None` means the route's namespace.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        name: String,
        /// Name of a listener; `None` means all.
        #[serde(skip_serializing_if = "Option::is_none")]
        section_name: Option<String>,
        /// Port of listeners; `None` means all.
        #[serde(skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
    }

    HttpRouteSpec {
        #[serde(default)]
        parent_refs: Vec<ParentRef>,
        /// Empty means those of the listeners.
        #[serde(default)]
        hostnames: Vec<String>,
        #[serde(default)]
        rules: Vec<HttpRule>,
    }

    HttpRule = Default {
        name: Option<String>,
        /// A request must match one of these; empty means all requests.
        matches: Vec<HttpMatch>,
        filters: Vec<HttpFilter>,
        backend_refs: Vec<BackendRef>,
        timeouts: Option<HttpTimeouts>,
        ..other
    }

    /// Conditions that must all hold.
    HttpMatch = Default {
        path: Option<PathMatch>,
        headers: Vec<NamedMatch>,
        query_params: Vec<NamedMatch>,
        method: Option<String>,
        ..other
    }

    PathMatch = Default {
        /// Exact, PathPrefix or RegularExpression.
        #[serde(rename = "type")]
        kind: Option<String>,
        value: Option<String>,
    }

    NamedMatch {
        /// Exact or RegularExpression.
        #[serde(rename = "type")]
        kind: Option<String>,
        name: String,
        #[serde(default)]
        value: String,
    }

    HttpFilter {
        /// Which of the following.
        #[serde(rename = "type")]
        kind: String,
        request_header_modifier: Option<HeaderModifier>,
        response_header_modifier: Option<HeaderModifier>,
        request_redirect: Option<RequestRedirect>,
        /// Changes host and path of the request to the server.
        url_rewrite: Option<UrlRewrite>,
        request_mirror: Option<RequestMirror>,
        cors: Option<Cors>,
    }

    HeaderModifier = Default {
        /// Replace existing values.
        set: Vec<Header>,
        add: Vec<Header>,
        remove: Vec<String>,
        ..other
    }

    Header {
        name: String,
        value: String,
    }

    RequestRedirect = Default {
        /// http or https.
        scheme: Option<String>,
        hostname: Option<String>,
        path: Option<PathModifier>,
        port: Option<u16>,
        /// 302 by default.
        status_code: Option<u16>,
        ..other
    }

    UrlRewrite = Default {
        hostname: Option<String>,
        path: Option<PathModifier>,
        ..other
    }

    PathModifier {
        /// ReplaceFullPath or ReplacePrefixMatch.
        #[serde(rename = "type")]
        kind: String,
        replace_full_path: Option<String>,
        replace_prefix_match: Option<String>,
    }

    RequestMirror {
        backend_ref: BackendRef,
        /// The share of requests in percent.
        percent: Option<u32>,
        fraction: Option<Fraction>,
        ..other
    }

    Fraction {
        numerator: u32,
        /// 100 by default.
        denominator: Option<u32>,
    }

    Cors = Default {
        allow_origins: Vec<String>,
        /// Whether cross-origin requests may have cookies and other credentials.
        allow_credentials: Option<bool>,
        allow_methods: Vec<String>,
        allow_headers: Vec<String>,
        expose_headers: Vec<String>,
        /// How long browsers cache the preflight response, in seconds.
        max_age: Option<u32>,
        ..other
    }

    BackendRef {
        /// `None` means the core group.
        group: Option<String>,
        /// `None` means Service.
        kind: Option<String>,
        name: String,
        /// `None` means the route's namespace.
        namespace: Option<String>,
        port: Option<u16>,
        /// Relative to other backends; 1 by default.
        weight: Option<u32>,
        /// For requests to this backend only.
        #[serde(default)]
        filters: Vec<Value>,
    }
}

/// Whether objects of a namespace are selected by those of the namespace `own`. `default` stands for an absent `from`.
pub(crate) fn permits(
    allowed: &RouteNamespaces,
    default: &str,
    own: &str,
    namespace: &str,
    cluster: &Cluster,
) -> bool {
    match allowed.from.as_deref().unwrap_or(default) {
        "All" => true,
        "Same" => own == namespace,
        "Selector" => {
            let object = cluster.namespaces.get(&(String::new(), namespace.to_owned()));
            object.is_some_and(|object| allowed.selector.selects(&object.metadata.labels))
        }
        _ => false,
    }
}

impl BackendRef {
    /// Refers to a port of a service in the same namespace.
    pub(crate) fn to(service: &str, port: Option<u16>) -> Self {
        let name = service.to_owned();
        Self { group: None, kind: None, name, namespace: None, port, weight: None, filters: Vec::new() }
    }
}

kinds! {
    GrpcRouteSpec {
        #[serde(default)]
        parent_refs: Vec<ParentRef>,
        /// Empty means those of the listeners.
        #[serde(default)]
        hostnames: Vec<String>,
        #[serde(default)]
        rules: Vec<GrpcRule>,
    }

    GrpcRule = Default {
        name: Option<String>,
        /// A call must match one of these; empty means all calls.
        matches: Vec<GrpcMatch>,
        filters: Vec<HttpFilter>,
        backend_refs: Vec<BackendRef>,
        ..other
    }

    /// Conditions that must all hold.
    GrpcMatch = Default {
        method: Option<GrpcMethod>,
        headers: Vec<NamedMatch>,
        ..other
    }

    GrpcMethod = Default {
        /// Exact or RegularExpression.
        #[serde(rename = "type")]
        kind: Option<String>,
        /// With its package; `None` means all.
        service: Option<String>,
        /// `None` means all.
        method: Option<String>,
    }

    HttpTimeouts = Default {
        request: Option<String>,
        /// For each attempt.
        backend_request: Option<String>,
        ..other
    }

    ReferenceGrantSpec {
        from: Vec<GrantFrom>,
        to: Vec<GrantTo>,
    }

    GrantFrom {
        group: String,
        kind: String,
        namespace: String,
    }

    GrantTo {
        group: String,
        kind: String,
        /// `None` means all.
        name: Option<String>,
    }

    ServiceSpec = Default {
        ports: Vec<ServicePort>,
        /// ClusterIP, ExternalName or another.
        #[serde(rename = "type")]
        kind: Option<String>,
        /// IPv4 or IPv6, preferred one first.
        ip_families: Vec<String>,
    }

    ServicePort = Default {
        /// Endpoint slices use the same name; empty for an only port.
        name: Option<String>,
        port: u16,
        app_protocol: Option<String>,
    }

    EndpointSlice = Default {
        /// The service is in a label.
        metadata: Metadata,
        /// IPv4, IPv6 or FQDN.
        address_type: String,
        endpoints: Vec<Endpoint>,
        ports: Vec<EndpointPort>,
    }

    Endpoint = Default {
        /// Only the first one is used.
        addresses: Vec<String>,
        conditions: EndpointConditions,
    }

    EndpointConditions = Default {
        /// `None` means ready.
        ready: Option<bool>,
    }

    EndpointPort = Default {
        name: Option<String>,
        port: Option<u16>,
    }
}

/// A Secret. `Debug` hides its values.
#[derive(Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct KubernetesSecret {
    pub(crate) metadata: Metadata,
    /// kubernetes.io/tls for certificates.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Values in base64.
    pub(crate) data: BTreeMap<String, String>,
}

/// Omits the values.
impl std::fmt::Debug for KubernetesSecret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Metadata { namespace, name, .. } = &self.metadata;
        write!(formatter, "Secret({namespace}/{name}: {:?})", self.data.keys())
    }
}

kinds! {
    Namespace = Default {
        metadata: Metadata,
    }
}
