//! The Gateway API of Kubernetes as a configuration of Vanward. Pure: objects in; a text of `vanward.toml`, and the statuses
//! of the objects out.
//!
//! What Vanward cannot do is never left out in silence: it is a condition of the object that wants it, and what depends on
//! it is answered with an error. `crates/kubernetes` fetches the objects and writes the statuses.

/// What all objects have.
mod object;
/// The kinds of objects.
mod kinds;
/// Kinds about TLS that is passed on, and TLS to servers.
mod tls_kinds;
/// Ingresses and their classes.
mod ingress_kinds;
/// The objects of a cluster.
mod cluster;
/// Conditions of objects.
mod condition;
/// Statuses of objects.
mod status;
/// Texts of TOML.
mod written;
/// Hosts of listeners and routes.
mod hostname;
/// Certificates in secrets.
mod secrets;
/// Gateways and their listeners.
mod listeners;
/// Which certificate a client gets.
mod certificates;
/// Which listeners a route attaches to.
mod attach;
/// TLS to servers.
mod backend_tls;
/// Services as upstreams.
mod backends;
/// Filters of rules.
mod filters;
/// Routes of gRPC as routes of HTTP.
mod grpc_route;
/// Routes of HTTP.
mod http_route;
/// Routes of TLS that is passed on.
mod tls_route;
/// Annotations of Ingresses.
mod annotations;
/// Authentication servers at the host of a request.
mod own_host;
/// Ingresses.
mod ingress;
/// All of it together.
mod translate;
/// Until Vanward takes it.
mod settle;

pub use cluster::Cluster;
pub use condition::Condition;
pub use object::{Kind, Metadata, Reference};
pub use settle::{Complaint, settle};
pub use status::{AncestorFound, Found, ListenerFound, ParentFound, Status};
pub use translate::{Machine, Options, Refused, Translation, translate};
pub use written::Written;
