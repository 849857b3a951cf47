//! Whom a route lets in: networks allowed and denied, the longest prefix deciding.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::network::Networks;

/// Networks that are let in and networks that are not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessList {
    networks: Networks<Access>,
    otherwise: Access,
}

/// Whether a client is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It is.
    Allowed,
    /// It is answered 403.
    Denied,
}

impl AccessList {
    /// The longest network that holds a client decides; one that is in both lists is denied. A client in none is denied
    /// if any network is allowed, else allowed.
    ///
    /// Ten thousand networks cost as little to ask as ten: see [`Networks`].
    pub fn new(allowed: impl IntoIterator<Item = IpNet>, denied: impl IntoIterator<Item = IpNet>) -> Self {
        let mut otherwise = Access::Allowed;
        let allowed = allowed.into_iter().map(|network| {
            otherwise = Access::Denied;
            (network, Access::Allowed)
        });
        // The later of two holds.
        let networks =
            Networks::new(allowed.chain(denied.into_iter().map(|network| (network, Access::Denied))));
        Self { networks, otherwise }
    }

    /// Whether a client is let in. Allocates nothing.
    #[inline]
    pub fn access(&self, client: IpAddr) -> Access {
        self.networks.of(client).unwrap_or(self.otherwise)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_network_decides() {
        let networks = |list: &[&str]| list.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpNet>>();
        for (allowed, denied, client, access) in [
            (&[][..], &[][..], "192.0.2.1", Access::Allowed),
            (&[], &["192.0.2.0/24"], "192.0.2.1", Access::Denied),
            (&[], &["192.0.2.0/24"], "::ffff:192.0.2.1", Access::Denied),
            (&[], &["192.0.2.0/24"], "192.0.3.1", Access::Allowed),
            (&["10.0.0.0/8"], &[], "10.1.2.3", Access::Allowed),
            (&["10.0.0.0/8"], &[], "11.1.2.3", Access::Denied),
            (&["10.0.0.0/8"], &[], "::1", Access::Denied),
            (&["10.0.0.0/8", "10.1.2.3/32"], &["10.1.0.0/16"], "10.1.2.4", Access::Denied),
            (&["10.0.0.0/8", "10.1.2.3/32"], &["10.1.0.0/16"], "10.1.2.3", Access::Allowed),
            (&["10.0.0.0/8"], &["10.0.0.0/8"], "10.1.2.3", Access::Denied),
            (&["2001:db8::/32"], &["::/0"], "2001:db8::1", Access::Allowed),
            (&["2001:db8::/32"], &["::/0"], "2001:db9::1", Access::Denied),
        ] {
            let list = AccessList::new(networks(allowed), networks(denied));
            assert_eq!(list.access(client.parse().unwrap()), access, "{allowed:?} {denied:?} {client}");
        }
    }
}
