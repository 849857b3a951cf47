//! A configuration from the objects of a Kubernetes cluster: its Gateway API, services, endpoints and secrets.
//!
//! `location` and `client` reach the API server. `watch` follows the objects of a kind, and `current` makes a valid
//! configuration of them (with the crate `gateway`). `lease` elects the instance that writes statuses; `follow`
//! combines all. Nothing is stored on disk: secrets stay in memory.

/// Address and credentials of the API server.
mod location;
/// A client of the API.
mod client;
/// Follows the objects of a kind.
mod watch;
/// Times in the API's format.
mod time;
/// Checks that need the machine: certificates and ports.
mod machine;
/// The configuration in force.
mod current;
/// Elects the instance that writes statuses.
mod lease;
/// Events about refused objects.
mod events;
/// An instance that follows a cluster.
mod follow;

pub use client::{ClusterClient, ClusterFailure};
pub use current::CurrentConfig;
pub use follow::{ClusterStart, Following, FollowingProxy, begin};
pub use gateway::OperatorOptions;
pub use location::{ClusterCredentials, LocationFlags, own_namespace};
