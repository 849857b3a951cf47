//! Several instances with one configuration, which is kept in etcd: versions, who runs which, trials of new ones, the way
//! back, and what an instance goes on with while etcd is gone.
//!
//! `location` and `etcd` are the place and its client, `tree` is a version of the configuration, `rollout` decides who takes
//! it up when, `store` is what the fleet keeps beside it, `disk` what an instance keeps, `follow` puts them together.

/// The last good version on the disk.
mod disk;
/// A client of etcd.
mod etcd;
/// An instance that follows the configuration.
mod follow;
/// URLs of etcd.
mod location;
/// Who takes up a new version, and when.
mod rollout;
/// What a fleet keeps beside its configuration.
mod store;
/// Versions of a configuration.
mod tree;

pub use etcd::{Access, Client, Entry, Failure, Keys, Write};
pub use follow::{Beginning, Current, Options, Proxy, begin};
pub use location::{Endpoint, Location};
pub use rollout::{Policy, Verdict};
pub use store::{Member, Seen, State, Store, VERSIONS_MAX, Version, now};
pub use tree::{FIRST, Tree, WrittenSecrets};
