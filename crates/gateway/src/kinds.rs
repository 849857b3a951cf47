//! The kinds of objects of the Gateway API and of Kubernetes that are read, as they come from its API.
//!
//! Fields that change what is served and that are not known here are kept in `other`, so that they can be refused.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::object::{LabelSelector, Metadata, Object};

/// A class of gateways.
pub(crate) type GatewayClass = Object<GatewayClassSpec>;
/// A gateway.
pub(crate) type Gateway = Object<GatewaySpec>;
/// A route of HTTP.
pub(crate) type HttpRoute = Object<HttpRouteSpec>;
/// A route of gRPC.
pub(crate) type GrpcRoute = Object<GrpcRouteSpec>;
/// A permission to refer to objects of a namespace.
pub(crate) type ReferenceGrant = Object<ReferenceGrantSpec>;
/// A service.
pub(crate) type Service = Object<ServiceSpec>;

/// Who serves a class.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GatewayClassSpec {
    /// The name of its controller.
    pub(crate) controller_name: String,
    /// Parameters, of which there are none here.
    #[serde(default)]
    pub(crate) parameters_ref: Option<Value>,
}

/// The listeners of a gateway.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GatewaySpec {
    /// The class.
    pub(crate) gateway_class_name: String,
    /// At least one.
    #[serde(default)]
    pub(crate) listeners: Vec<GatewayListener>,
    /// Addresses that it wants.
    #[serde(default)]
    pub(crate) addresses: Vec<GatewayAddress>,
    /// What is said of the objects that a controller makes for a gateway. None are made here.
    #[serde(default)]
    pub(crate) infrastructure: Option<Infrastructure>,
    /// What is not known here.
    #[serde(flatten)]
    pub(crate) other: Map<String, Value>,
}

/// What is said of the objects that a controller makes for a gateway.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Infrastructure {
    /// Parameters, of which there are none here.
    #[serde(default)]
    pub(crate) parameters_ref: Option<Value>,
}

/// An address of a gateway.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct GatewayAddress {
    /// IPAddress, Hostname or another.
    #[serde(rename = "type", default)]
    pub(crate) kind: Option<String>,
    /// The address.
    #[serde(default)]
    pub(crate) value: String,
}

/// A listener of a gateway.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GatewayListener {
    /// Unique in its gateway.
    pub(crate) name: String,
    /// The host that clients ask for.
    #[serde(default)]
    pub(crate) hostname: Option<String>,
    /// The port.
    pub(crate) port: u16,
    /// HTTP, HTTPS, TLS, TCP, UDP or another.
    pub(crate) protocol: String,
    /// TLS of HTTPS and TLS.
    #[serde(default)]
    pub(crate) tls: Option<GatewayTls>,
    /// Which routes may attach.
    #[serde(default)]
    pub(crate) allowed_routes: AllowedRoutes,
}

/// TLS of a listener.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GatewayTls {
    /// Terminate or Passthrough.
    #[serde(default)]
    pub(crate) mode: Option<String>,
    /// Certificates with their keys.
    #[serde(default)]
    pub(crate) certificate_refs: Vec<ObjectRef>,
    /// What is not known here, such as options.
    #[serde(flatten)]
    pub(crate) other: Map<String, Value>,
}

/// Which routes may attach to a listener.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub(crate) struct AllowedRoutes {
    /// Of which namespaces.
    #[serde(default)]
    pub(crate) namespaces: RouteNamespaces,
    /// Of which kinds; empty: those of the protocol.
    #[serde(default)]
    pub(crate) kinds: Vec<RouteKind>,
}

/// The namespaces of routes.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub(crate) struct RouteNamespaces {
    /// Same, All, Selector or None.
    #[serde(default)]
    pub(crate) from: Option<String>,
    /// With Selector: which ones.
    #[serde(default)]
    pub(crate) selector: LabelSelector,
}

/// A kind of routes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct RouteKind {
    /// Its group; by default that of the Gateway API.
    #[serde(default)]
    pub(crate) group: Option<String>,
    /// Its name.
    pub(crate) kind: String,
}

/// An object that a gateway refers to.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct ObjectRef {
    /// Its group; by default the core.
    #[serde(default)]
    pub(crate) group: Option<String>,
    /// Its kind.
    #[serde(default)]
    pub(crate) kind: Option<String>,
    /// Its name.
    pub(crate) name: String,
    /// Its namespace; by default that of who refers to it.
    #[serde(default)]
    pub(crate) namespace: Option<String>,
}

/// A gateway that a route attaches to.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ParentRef {
    /// Its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<String>,
    /// Its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// Its namespace; by default that of the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    /// Its name.
    pub(crate) name: String,
    /// The listener by name; by default all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) section_name: Option<String>,
    /// The listeners by port; by default all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) port: Option<u16>,
}

/// What a route of HTTP wants.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HttpRouteSpec {
    /// The gateways.
    #[serde(default)]
    pub(crate) parent_refs: Vec<ParentRef>,
    /// The hosts; empty: those of the listeners.
    #[serde(default)]
    pub(crate) hostnames: Vec<String>,
    /// The rules.
    #[serde(default)]
    pub(crate) rules: Vec<HttpRule>,
}

/// A rule of a route of HTTP.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HttpRule {
    /// Its name.
    pub(crate) name: Option<String>,
    /// A request matches if one of these does; empty: all do.
    pub(crate) matches: Vec<HttpMatch>,
    /// What is done with requests and responses.
    pub(crate) filters: Vec<HttpFilter>,
    /// Who answers.
    pub(crate) backend_refs: Vec<BackendRef>,
    /// Time-outs.
    pub(crate) timeouts: Option<HttpTimeouts>,
    /// What is not known here.
    #[serde(flatten)]
    pub(crate) other: Map<String, Value>,
}

/// Conditions on a request, all of which must hold.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HttpMatch {
    /// The path.
    pub(crate) path: Option<PathMatch>,
    /// Header fields.
    pub(crate) headers: Vec<NamedMatch>,
    /// Parameters of the query.
    pub(crate) query_params: Vec<NamedMatch>,
    /// The method.
    pub(crate) method: Option<String>,
    /// What is not known here.
    #[serde(flatten)]
    pub(crate) other: Map<String, Value>,
}

/// A condition on the path.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PathMatch {
    /// Exact, PathPrefix or RegularExpression.
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    /// The path.
    pub(crate) value: Option<String>,
}

/// A condition on a field or a parameter.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct NamedMatch {
    /// Exact or RegularExpression.
    #[serde(rename = "type", default)]
    pub(crate) kind: Option<String>,
    /// Its name.
    pub(crate) name: String,
    /// Its value.
    #[serde(default)]
    pub(crate) value: String,
}

/// What is done with requests or responses.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HttpFilter {
    /// Which of the following.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Edits of request fields.
    #[serde(default)]
    pub(crate) request_header_modifier: Option<HeaderModifier>,
    /// Edits of response fields.
    #[serde(default)]
    pub(crate) response_header_modifier: Option<HeaderModifier>,
    /// A redirect.
    #[serde(default)]
    pub(crate) request_redirect: Option<RequestRedirect>,
    /// Another path and host for servers.
    #[serde(default)]
    pub(crate) url_rewrite: Option<UrlRewrite>,
    /// A copy for another backend.
    #[serde(default)]
    pub(crate) request_mirror: Option<RequestMirror>,
    /// Which other origins may read responses.
    #[serde(default)]
    pub(crate) cors: Option<Cors>,
}

/// Edits of header fields.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HeaderModifier {
    /// Fields that get this value and no other.
    pub(crate) set: Vec<Header>,
    /// Fields that are added.
    pub(crate) add: Vec<Header>,
    /// Fields that are removed.
    pub(crate) remove: Vec<String>,
    /// What is not known here.
    #[serde(flatten)]
    pub(crate) other: Map<String, Value>,
}

/// A header field.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Header {
    /// Its name.
    pub(crate) name: String,
    /// Its value.
    pub(crate) value: String,
}

/// A redirect.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RequestRedirect {
    /// http or https.
    pub(crate) scheme: Option<String>,
    /// The host.
    pub(crate) hostname: Option<String>,
    /// The path.
    pub(crate) path: Option<PathModifier>,
    /// The port.
    pub(crate) port: Option<u16>,
    /// The status; by default 302.
    pub(crate) status_code: Option<u16>,
    /// What is not known here.
    #[serde(flatten)]
    pub(crate) other: Map<String, Value>,
}

/// Another path and host for servers.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct UrlRewrite {
    /// The host.
    pub(crate) hostname: Option<String>,
    /// The path.
    pub(crate) path: Option<PathModifier>,
    /// What is not known here.
    #[serde(flatten)]
    pub(crate) other: Map<String, Value>,
}

/// Another path.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PathModifier {
    /// ReplaceFullPath or ReplacePrefixMatch.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The whole path.
    #[serde(default)]
    pub(crate) replace_full_path: Option<String>,
    /// What comes in place of the prefix that matched.
    #[serde(default)]
    pub(crate) replace_prefix_match: Option<String>,
}

/// A copy for another backend.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestMirror {
    /// The backend.
    pub(crate) backend_ref: BackendRef,
    /// The share of the requests in percent.
    #[serde(default)]
    pub(crate) percent: Option<u32>,
    /// The share of the requests.
    #[serde(default)]
    pub(crate) fraction: Option<Fraction>,
    /// What is not known here.
    #[serde(flatten)]
    pub(crate) other: Map<String, Value>,
}

/// A share.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Fraction {
    /// How many.
    pub(crate) numerator: u32,
    /// Of how many; by default 100.
    #[serde(default)]
    pub(crate) denominator: Option<u32>,
}

/// Which other origins may read responses.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Cors {
    /// The origins.
    pub(crate) allow_origins: Vec<String>,
    /// Whether requests have cookies and the like.
    pub(crate) allow_credentials: Option<bool>,
    /// The methods.
    pub(crate) allow_methods: Vec<String>,
    /// Request fields.
    pub(crate) allow_headers: Vec<String>,
    /// Response fields.
    pub(crate) expose_headers: Vec<String>,
    /// How long the answer is kept, in seconds.
    pub(crate) max_age: Option<u32>,
    /// What is not known here.
    #[serde(flatten)]
    pub(crate) other: Map<String, Value>,
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct BackendRef {
    /// The group; by default the core.
    #[serde(default)]
    pub(crate) group: Option<String>,
    /// The kind; by default Service.
    #[serde(default)]
    pub(crate) kind: Option<String>,
    /// The name.
    pub(crate) name: String,
    /// The namespace; by default that of the route.
    #[serde(default)]
    pub(crate) namespace: Option<String>,
    /// The port of the service.
    #[serde(default)]
    pub(crate) port: Option<u16>,
    /// Its share, relative to the others; by default 1.
    #[serde(default)]
    pub(crate) weight: Option<u32>,
    /// Filters for this backend alone.
    #[serde(default)]
    pub(crate) filters: Vec<Value>,
}

impl BackendRef {
    /// A port of a service in the same namespace.
    pub(crate) fn to(service: &str, port: Option<u16>) -> Self {
        let name = service.to_owned();
        Self { group: None, kind: None, name, namespace: None, port, weight: None, filters: Vec::new() }
    }
}

/// What a route of gRPC wants.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GrpcRouteSpec {
    /// The gateways.
    #[serde(default)]
    pub(crate) parent_refs: Vec<ParentRef>,
    /// The hosts; empty: those of the listeners.
    #[serde(default)]
    pub(crate) hostnames: Vec<String>,
    /// The rules.
    #[serde(default)]
    pub(crate) rules: Vec<GrpcRule>,
}

/// A rule of a route of gRPC.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct GrpcRule {
    /// Its name.
    pub(crate) name: Option<String>,
    /// A call matches if one of these does; empty: all do.
    pub(crate) matches: Vec<GrpcMatch>,
    /// What is done with calls and answers.
    pub(crate) filters: Vec<HttpFilter>,
    /// Who answers.
    pub(crate) backend_refs: Vec<BackendRef>,
    /// What is not known here.
    #[serde(flatten)]
    pub(crate) other: Map<String, Value>,
}

/// Conditions on a call, all of which must hold.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct GrpcMatch {
    /// The method.
    pub(crate) method: Option<GrpcMethod>,
    /// Metadata.
    pub(crate) headers: Vec<NamedMatch>,
    /// What is not known here.
    #[serde(flatten)]
    pub(crate) other: Map<String, Value>,
}

/// A condition on the method of a call.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct GrpcMethod {
    /// Exact or RegularExpression.
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    /// The service with its package; by default all.
    pub(crate) service: Option<String>,
    /// The method; by default all.
    pub(crate) method: Option<String>,
}

/// Time-outs.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HttpTimeouts {
    /// From the request to the response.
    pub(crate) request: Option<String>,
    /// The same of one attempt.
    pub(crate) backend_request: Option<String>,
    /// What is not known here.
    #[serde(flatten)]
    pub(crate) other: Map<String, Value>,
}

/// A permission to refer to objects of a namespace.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct ReferenceGrantSpec {
    /// Who may refer.
    pub(crate) from: Vec<GrantFrom>,
    /// To what.
    pub(crate) to: Vec<GrantTo>,
}

/// Who may refer to objects of a namespace.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct GrantFrom {
    /// The group.
    pub(crate) group: String,
    /// The kind.
    pub(crate) kind: String,
    /// The namespace.
    pub(crate) namespace: String,
}

/// What may be referred to.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct GrantTo {
    /// The group.
    pub(crate) group: String,
    /// The kind.
    pub(crate) kind: String,
    /// The name; by default all.
    #[serde(default)]
    pub(crate) name: Option<String>,
}

/// A service.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ServiceSpec {
    /// Its ports.
    pub(crate) ports: Vec<ServicePort>,
    /// ClusterIP, ExternalName or another.
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    /// IPv4 or IPv6, the first one preferred.
    pub(crate) ip_families: Vec<String>,
}

/// A port of a service.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ServicePort {
    /// Its name, which the ports of the endpoints have too; empty if it is the only one.
    pub(crate) name: Option<String>,
    /// The port.
    pub(crate) port: u16,
    /// What is spoken there.
    pub(crate) app_protocol: Option<String>,
}

/// Addresses of the servers of a service.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct EndpointSlice {
    /// Its name, and the service in a label.
    pub(crate) metadata: Metadata,
    /// IPv4, IPv6 or FQDN.
    pub(crate) address_type: String,
    /// The servers.
    pub(crate) endpoints: Vec<Endpoint>,
    /// Their ports.
    pub(crate) ports: Vec<EndpointPort>,
}

/// A server.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Endpoint {
    /// The first one is its address.
    pub(crate) addresses: Vec<String>,
    /// Whether it can be asked.
    pub(crate) conditions: EndpointConditions,
}

/// Whether a server can be asked.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EndpointConditions {
    /// Not said: it can.
    pub(crate) ready: Option<bool>,
}

/// A port of servers.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EndpointPort {
    /// The name of the service's port.
    pub(crate) name: Option<String>,
    /// The port.
    pub(crate) port: Option<u16>,
}

/// A secret. Its values are not printed.
#[derive(Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Secret {
    /// Its name.
    pub(crate) metadata: Metadata,
    /// kubernetes.io/tls for certificates.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Values in base64.
    pub(crate) data: BTreeMap<String, String>,
}

/// Without the values.
impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Metadata { namespace, name, .. } = &self.metadata;
        write!(formatter, "Secret({namespace}/{name}: {:?})", self.data.keys())
    }
}

/// A namespace.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Namespace {
    /// Its name and labels.
    pub(crate) metadata: Metadata,
}
