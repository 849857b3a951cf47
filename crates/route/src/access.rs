//! Access control by client network: allow and deny lists, of which the longest matching prefix decides.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::network::Networks;

/// Networks that may access a route, and networks that may not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessList {
    networks: Networks<AccessDecision>,
    otherwise: AccessDecision,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessDecision {
    Allowed,
    /// The client gets 403.
    Denied,
}

impl AccessList {
    /// The longest network that contains the client decides; a network in both lists is denied. A client in no network
    /// is denied if `allowed` has any, otherwise allowed.
    ///
    /// The cost does not depend on the number of networks: see [`Networks`].
    pub fn new(allowed: impl IntoIterator<Item = IpNet>, denied: impl IntoIterator<Item = IpNet>) -> Self {
        let mut otherwise = AccessDecision::Allowed;
        let allowed = allowed.into_iter().map(|network| {
            otherwise = AccessDecision::Denied;
            (network, AccessDecision::Allowed)
        });
        // The later of two entries for a network counts.
        let networks =
            Networks::new(allowed.chain(denied.into_iter().map(|network| (network, AccessDecision::Denied))));
        Self { networks, otherwise }
    }

    /// Allocates nothing.
    #[inline]
    pub fn access(&self, client: IpAddr) -> AccessDecision {
        self.networks.for_address(client).unwrap_or(self.otherwise)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_network_decides() {
        let networks = |list: &[&str]| list.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpNet>>();
        for (allowed, denied, client, access) in [
            (&[][..], &[][..], "192.0.2.1", AccessDecision::Allowed),
            (&[], &["192.0.2.0/24"], "192.0.2.1", AccessDecision::Denied),
            (&[], &["192.0.2.0/24"], "::ffff:192.0.2.1", AccessDecision::Denied),
            (&[], &["192.0.2.0/24"], "192.0.3.1", AccessDecision::Allowed),
            (&["10.0.0.0/8"], &[], "10.1.2.3", AccessDecision::Allowed),
            (&["10.0.0.0/8"], &[], "11.1.2.3", AccessDecision::Denied),
            (&["10.0.0.0/8"], &[], "::1", AccessDecision::Denied),
            (&["10.0.0.0/8", "10.1.2.3/32"], &["10.1.0.0/16"], "10.1.2.4", AccessDecision::Denied),
            (&["10.0.0.0/8", "10.1.2.3/32"], &["10.1.0.0/16"], "10.1.2.3", AccessDecision::Allowed),
            (&["10.0.0.0/8"], &["10.0.0.0/8"], "10.1.2.3", AccessDecision::Denied),
            (&["2001:db8::/32"], &["::/0"], "2001:db8::1", AccessDecision::Allowed),
            (&["2001:db8::/32"], &["::/0"], "2001:db9::1", AccessDecision::Denied),
        ] {
            let list = AccessList::new(networks(allowed), networks(denied));
            assert_eq!(list.access(client.parse().unwrap()), access, "{allowed:?} {denied:?} {client}");
        }
    }
}
