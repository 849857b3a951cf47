//! Objects of the Gateway API: their effects on requests, and their statuses.

/// Clusters for tests.
mod scene;
/// Refuses access to the machine.
mod no_machine;
/// Rules that requests match.
mod matches;
/// Attachment of routes to listeners.
mod attaching;
/// Backends of routes.
mod backends;
/// TLS passthrough.
mod tls_routes;
/// Bytes of connections.
mod tcp_routes;
/// Ingresses.
mod ingresses;
/// Authentication, sessions and canaries of Ingresses.
mod ingress_policies;
/// Hosts, errors, response fields and client certificates of Ingresses.
mod ingress_annotations;
/// TLS to servers.
mod backend_tls;
/// Certificates of clients at gateways.
mod frontend_tls;
/// Certificates of gateways for servers.
mod client_identity;
/// Listeners of ListenerSets.
mod listener_sets;
/// Routes of gRPC.
mod grpc;
/// Effects of filters.
mod filters;
/// Conditions of gateways and listeners.
mod gateways;
