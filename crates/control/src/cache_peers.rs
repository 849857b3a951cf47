//! Instances that share a cache and find each other in etcd.

use config::Server;

use crate::change::{AmendError, Control};
use crate::server_changes;

/// Maximum number of peers, far above real fleets.
const PEERS_MAX: usize = 1024;

impl Control {
    /// The address of this instance for its peers, if it shares a cache and finds peers in etcd.
    pub(crate) fn peer_address(&self) -> Option<Server> {
        let plan = self.plan();
        let peers = plan.config.cache.as_ref()?.peers.as_ref()?;
        peers.members.is_none().then(|| peers.address.clone())
    }

    /// Sets the instances that share the cache; this one is always among them. Blocks, as `change` does.
    pub(crate) fn take_peers(&self, addresses: &[String]) -> Result<(), AmendError> {
        let Some(own) = self.peer_address() else { return Ok(()) };
        let told = addresses.iter().filter_map(|address| format!("https://{address}").parse().ok());
        let mut servers: Vec<Server> = std::iter::once(own).chain(told).collect();
        servers.sort_unstable_by_key(ToString::to_string);
        servers.dedup();
        servers.truncate(PEERS_MAX);
        let before = self.plan();
        self.overlaid(|_, overrides| {
            overrides.peers = servers;
            Ok(())
        })?;
        server_changes::tell(&before, &self.plan(), "as etcd reports");
        Ok(())
    }
}
