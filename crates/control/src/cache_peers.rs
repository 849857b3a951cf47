//! The instances that share what they store, where they learn of each other through etcd.

use config::Server;

use crate::change::{AmendError, Control};
use crate::server_changes;

/// Instances that share what they store: a few hundred are far more than anybody has.
const PEERS_MAX: usize = 1024;

impl Control {
    /// Where other instances reach this one, if they share what they store and learn of each other through etcd.
    pub(crate) fn peer_address(&self) -> Option<Server> {
        let plan = self.plan();
        let peers = plan.config.cache.as_ref()?.peers.as_ref()?;
        peers.members.is_none().then(|| peers.address.clone())
    }

    /// Takes these for the instances that share what they store; this one is always among them. Blocks, as `change` does.
    ///
    /// # Errors
    /// Why nothing was changed.
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
        server_changes::tell(&before, &self.plan(), "as etcd tells");
        Ok(())
    }
}
