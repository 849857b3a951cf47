//! The certificate that a gateway presents to servers (`tls.backend.clientCertificateRef`).
//!
//! Only servers with TLS get it, that is those of services with a BackendTLSPolicy.

use std::collections::BTreeSet;

use crate::cluster::Cluster;
use crate::condition::Fault;
use crate::kinds::Gateway;
use crate::listeners::{ListenerOwner, OwnGateway, certificate};
use crate::object::Reference;
use crate::secrets;
use crate::translate::MachineFacts;
use crate::written::text;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientIdentity {
    secret: Reference,
    /// Certificate and key, in PEM.
    pair: (Vec<u8>, Vec<u8>),
}

/// A gateway's certificate, or why it cannot be used.
pub(crate) type Identity = Result<ClientIdentity, Fault>;

/// Returns the certificate of a gateway; `None` without one.
pub(crate) fn of_gateway(
    gateway: &Gateway,
    cluster: &Cluster,
    machine: &dyn MachineFacts,
) -> Option<Identity> {
    let wanted = gateway.spec.tls.as_ref()?.backend.as_ref()?.client_certificate_ref.as_ref()?;
    let found = certificate(ListenerOwner::gateway(gateway), wanted, cluster, machine);
    let identity = found.and_then(|(secret, _)| {
        let known = cluster.secrets.get(&(secret.namespace.clone(), secret.name.clone()));
        let pair = known.map(secrets::pair).and_then(Result::ok);
        let pair = pair.ok_or_else(|| ("InvalidCertificateRef", format!("{secret} has no certificate")))?;
        Ok(ClientIdentity { secret, pair })
    });
    Some(identity.map_err(|(reason, why)| {
        let reason = if reason == "InvalidCertificateRef" { "InvalidClientCertificateRef" } else { reason };
        (reason, format!("tls.backend: {why}"))
    }))
}

/// Groups gateways that present the same certificate: a route needs separate upstreams for each group. Returns at least one
/// group.
pub(crate) fn groups(through: &BTreeSet<usize>, gateways: &[OwnGateway<'_>]) -> Vec<BTreeSet<usize>> {
    let mut groups: Vec<BTreeSet<usize>> = Vec::new();
    for gateway in through {
        let is_like = |group: &&mut BTreeSet<usize>| {
            group.first().is_some_and(|first| gateways[*first].identity == gateways[*gateway].identity)
        };
        match groups.iter_mut().find(is_like) {
            Some(group) => drop(group.insert(*gateway)),
            None => groups.push([*gateway].into()),
        }
    }
    if groups.is_empty() {
        groups.push(BTreeSet::new());
    }
    groups
}

/// Returns the certificate that a group of gateways presents.
pub(crate) fn of_group<'g>(group: &BTreeSet<usize>, gateways: &'g [OwnGateway<'_>]) -> Option<&'g Identity> {
    gateways[*group.first()?].identity.as_ref()
}

impl ClientIdentity {
    /// The part of an upstream's name for it.
    pub(crate) fn suffix(&self) -> String {
        format!("by.{}.{}", self.secret.namespace, self.secret.name)
    }

    /// The options of `tls` of an upstream.
    pub(crate) fn options(&self) -> [(&'static str, String); 2] {
        let [cert, key] = self.names();
        [("cert", text(&cert)), ("key", text(&key))]
    }

    pub(crate) fn files(&self) -> [(String, Vec<u8>); 2] {
        let [cert, key] = self.names();
        [(cert, self.pair.0.clone()), (key, self.pair.1.clone())]
    }

    fn names(&self) -> [String; 2] {
        let Reference { namespace, name, .. } = &self.secret;
        ["tls.crt", "tls.key"].map(|key| secrets::path(namespace, name, key))
    }
}
