//! Objects of the Gateway API: what requests get of them, and what is written into them.

/// Clusters for tests.
mod scene;
/// What may be read for them.
mod no_machine;
/// Which rule a request takes.
mod matches;
/// Which listeners a route attaches to.
mod attaching;
/// Who answers.
mod backends;
/// Routes of TLS that is passed on.
mod tls_routes;
/// Ingresses.
mod ingresses;
/// Who may ask Ingresses, sessions, canaries.
mod ingress_policies;
/// TLS to servers.
mod backend_tls;
/// Routes of gRPC.
mod grpc;
/// What filters do.
mod filters;
/// Conditions of gateways and listeners.
mod gateways;
