//! Tests of whole files: what they mean, and the mistakes in them.

/// Files without mistakes.
mod reading;
/// A file with every option.
mod everything;
/// A configuration of several files.
mod files;
/// `[route_defaults]`.
mod route_defaults;
/// Values.
mod values;
/// Sets of header edits.
mod headers;
/// `grpc_web`.
mod grpc;
/// Printed configurations.
mod printed;
/// The configurations on the pages.
mod examples;
/// The page about the file.
mod reference;
/// Maps.
mod maps;
/// Mistakes, with their places.
mod mistakes;
/// Hints, and paths of missing files.
mod hints;
/// Mistakes in routes.
mod mistakes_of_routes;
/// Mistakes in places of files.
mod mistakes_of_files;
/// Mistakes in limits of one zone.
mod mistakes_of_zones;
/// Conditions of options, and the mistakes in them.
mod conditions;
/// Mistakes in upstreams.
mod mistakes_of_upstreams;
/// Mistakes in authentication.
mod mistakes_of_authentication;
/// Mistakes in faults.
mod mistakes_of_faults;
/// Mistakes in peers.
mod mistakes_of_peers;
/// Mistakes in services of Consul.
mod mistakes_of_consul;
/// Mistakes in automatic certificates.
mod mistakes_of_acme;
