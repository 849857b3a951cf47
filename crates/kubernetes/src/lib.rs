//! A configuration that is the objects of a Kubernetes cluster: its Gateway API, services, endpoints and secrets.
//!
//! `location` and `client` are the API server and how to speak to it, `watch` keeps up with a kind of objects, `current` makes
//! a valid configuration of them (by the crate `gateway`), `lease` says which instance writes statuses, `follow` puts them
//! together. Nothing is kept on the disk: secrets are in memory alone.

/// Where the API server is.
mod location;
/// A client of the API.
mod client;
/// Keeps up with a kind of objects.
mod watch;
/// Times of the API.
mod time;
/// What only the machine knows.
mod machine;
/// The configuration in force.
mod current;
/// Which instance writes statuses.
mod lease;
/// Events about what is refused.
mod events;
/// An instance that follows a cluster.
mod follow;

pub use client::{Client, Failure};
pub use current::Current;
pub use follow::{Beginning, Following, Proxy, begin};
pub use gateway::Options;
pub use location::{Access, Given, own_namespace};
