//! A configuration in etcd that instances share: versions, trials, rollbacks, starts without etcd.
//!
//! `location` and `etcd` are the URL and the client, `tree` is a version of the configuration. `rollout` decides which
//! instance applies it, and when. `store` has the fleet's state in etcd, `disk` an instance's; `follow` combines all.
//! `map_store` and `map_follow` do the same for changes of maps.

/// The last good version on the disk.
mod disk;
/// A client of etcd.
mod etcd;
/// An instance that follows the configuration.
mod follow;
/// Follows changes of maps, and makes them.
mod map_follow;
/// Changes of maps.
mod map_store;
/// URLs of etcd.
mod location;
/// Decides which instance applies a new version, and when.
mod rollout;
/// The fleet's state beside its configuration.
mod store;
/// Versions of a configuration.
mod tree;

pub use etcd::{EtcdClient, EtcdCredentials, EtcdEvent, EtcdFailure, EtcdKeys, EtcdWatch, KeyValue, Write};
pub use follow::{CurrentVersion, FollowStart, FollowedProxy, InstanceOptions, begin};
pub use location::{EtcdEndpoint, Location};
pub use map_follow::MapOrder;
pub use map_store::{ChangedEntry, MapBase, MapChange, MapState, MapWork};
pub use rollout::{RolloutPolicy, TrialVerdict};
pub use store::{
    EtcdStore, InstanceStanding, InstanceState, SeenState, StoreMember, StoredVersion, VERSIONS_MAX, now,
    runs_everywhere,
};
pub use tree::{FIRST, Tree, WrittenSecrets};
