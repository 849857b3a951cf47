//! Listeners that cannot be distinguished, within a gateway and between gateways.

use std::collections::BTreeMap;

use crate::condition::Fault;
use crate::listeners::{ListenerProtocol, OwnGateway, Port, TranslatedListener};
use crate::object::{ObjectKind, Reference};

/// Finds listeners of one gateway that cannot be distinguished. Those of the gateway itself come first in `listeners`. They
/// exclude each other; a listener of a ListenerSet yields to all before it.
pub(crate) fn find_conflicts(listeners: &mut [TranslatedListener<'_>]) {
    let of_gateway = listeners.iter().filter(|listener| listener.set.is_none()).count();
    let faults: Vec<Option<Fault>> =
        (0..of_gateway).map(|index| conflict(&listeners[index], index, &listeners[..of_gateway])).collect();
    for (listener, fault) in listeners.iter_mut().zip(faults) {
        listener.conflicted = fault;
    }
    for index in of_gateway..listeners.len() {
        let (before, rest) = listeners.split_at_mut(index);
        rest[0].conflicted = conflict(&rest[0], index, before);
    }
}

/// Returns the conflict of a listener with another one.
fn conflict(own: &TranslatedListener<'_>, index: usize, others: &[TranslatedListener<'_>]) -> Option<Fault> {
    let own_protocol = own.protocol?;
    let mut others = others.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, other)| other);
    others.find_map(|other| {
        if other.set.is_some() && other.conflicted.is_some() {
            return None;
        }
        let protocol = other.protocol.filter(|_| other.port == own.port)?;
        // Other namespaces' names stay unknown to the author of a ListenerSet.
        let who = match (own.set, other.set) {
            (own, other_set) if own == other_set => format!("listener {}", other.spec.name),
            (_, None) => "a listener of the Gateway".to_owned(),
            (_, Some(_)) => "a listener of an older ListenerSet".to_owned(),
        };
        let port = own.spec.port;
        if protocol != own_protocol {
            return Some(("ProtocolConflict", format!("port {port} has another protocol in {who}")));
        }
        if protocol == ListenerProtocol::Tcp {
            // GEP-2644: nothing but the port distinguishes such listeners.
            return Some((
                "ProtocolConflict",
                format!("{who} has the same port, and connections have no names"),
            ));
        }
        let is_same =
            own.hostname().map(str::to_ascii_lowercase) == other.hostname().map(str::to_ascii_lowercase);
        is_same.then(|| ("HostnameConflict", format!("{who} has the same port and hostname")))
    })
}

/// The oldest gateway decides the protocol of a port, because all gateways share the proxy's addresses.
pub(crate) fn find_taken_ports(gateways: &mut [OwnGateway<'_>]) {
    let mut taken: BTreeMap<Port, (ListenerProtocol, String)> = BTreeMap::new();
    for gateway in gateways {
        let name = Reference::new(ObjectKind::Gateway, &gateway.gateway.metadata).to_string();
        for listener in &mut gateway.listeners {
            let Some(protocol) = listener.served() else { continue };
            let (first, owner) = taken.entry(listener.port).or_insert_with(|| (protocol, name.clone()));
            let port = listener.spec.port;
            let message = if *first != protocol {
                format!("port {port} has another protocol in {owner}")
            } else if protocol == ListenerProtocol::Tcp && *owner != name {
                format!("port {port} is that of {owner}, and connections have no names")
            } else {
                continue;
            };
            listener.accepted = Some(("PortUnavailable", message));
        }
    }
}
