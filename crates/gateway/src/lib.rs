//! Translates the Gateway API and Ingresses of Kubernetes to a configuration of Vanward. Pure: objects in; a text
//! of `vanward.toml` and the statuses of the objects out.
//!
//! Unsupported features are never ignored silently. The object gets a condition, and affected requests get an
//! error. `crates/kubernetes` fetches the objects and writes the statuses.

/// Common parts of all objects.
mod object;
/// The kinds of objects.
mod kinds;
/// Kinds for TLS passthrough, TCP and TLS to servers.
mod tls_kinds;
/// Ingresses and their classes.
mod ingress_kinds;
/// The objects of a cluster.
mod cluster;
/// Conditions of objects.
mod condition;
/// Statuses of objects.
mod status;
/// Writes TOML with owners of lines.
mod written;
/// Hosts of listeners and routes.
mod hostname;
/// Certificates in secrets.
mod secrets;
/// Certificates of clients at gateways.
mod frontend_tls;
/// Listeners that other objects add to gateways.
mod listener_set;
/// Gateways and their listeners.
mod listeners;
/// Listeners that exclude each other.
mod conflicts;
/// Statuses of gateways.
mod gateway_status;
/// Certificates of gateways for servers.
mod client_identity;
/// Selects certificates by server name.
mod certificates;
/// Attaches routes to listeners.
mod attach;
/// TLS to servers.
mod backend_tls;
/// Upstreams from services.
mod backends;
/// Filters of rules.
mod filters;
/// Converts gRPC routes to HTTP routes.
mod grpc_route;
/// Translates HTTPRoutes.
mod http_route;
/// Translates TLSRoutes (passthrough).
mod tls_route;
/// Translates TCPRoutes.
mod tcp_route;
/// Annotations of Ingresses.
mod annotations;
/// Authentication servers at the request's host.
mod own_host;
/// Hosts with certificates of clients.
mod client_hosts;
/// Hosts of Ingresses beside those of their rules.
mod ingress_hosts;
/// Services of Ingresses.
mod ingress_services;
/// Translates Ingresses.
mod ingress;
/// Translates a whole cluster.
mod translate;
/// Repeats the translation without refused objects.
mod settle;

pub use cluster::Cluster;
pub use condition::StatusCondition;
pub use object::{Metadata, ObjectKind, Reference};
pub use settle::{Complaint, settle};
pub use status::{AncestorFound, ListenerFound, ObjectStatus, ParentFound, StatusFindings};
pub use translate::{MachineFacts, OperatorOptions, Refused, Translation, translate};
pub use written::WrittenText;
