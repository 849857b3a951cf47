//! Statuses of gateways, their listeners and ListenerSets.

use std::net::IpAddr;

use crate::condition::{Fault, StatusCondition};
use crate::listener_set::OwnSet;
use crate::listeners::{OwnGateway, TranslatedListener};
use crate::object::{GATEWAY_GROUP, ObjectKind, Reference};
use crate::status::{ListenerFound, ObjectStatus, StatusFindings};
use crate::translate::OperatorOptions;

impl OwnGateway<'_> {
    /// Returns the statuses of the gateway and of its ListenerSets.
    pub(crate) fn statuses(&self, options: &OperatorOptions) -> Vec<ObjectStatus> {
        let addresses = match self.address {
            Some(address) => vec![("IPAddress", address.to_string())],
            None => {
                options.addresses.iter().map(|address| (kind_of_address(address), address.clone())).collect()
            }
        };
        let programmed = match (&self.fault, self.served(None) + self.served_of_sets()) {
            (None, 1..) if addresses.is_empty() => {
                Some(("AddressNotAssigned", "vanward run has no --gateway-address".to_owned()))
            }
            (None, 1..) => None,
            _ => Some(("Invalid", "no listener is served".to_owned())),
        };
        let is_attached = |(number, _): &(usize, &OwnSet<'_>)| self.fault_of(*number).is_none();
        let attached: Vec<&OwnSet<'_>> =
            self.sets.iter().enumerate().filter(is_attached).map(|(_, set)| set).collect();
        // CRDs before 1.5 do not have the field, and drop it.
        let has_count = !self.gateway.status["attachedListenerSets"].is_null()
            || attached.iter().any(|set| !set.is_experimental());
        let own = ObjectStatus {
            object: Reference::new(ObjectKind::Gateway, &self.gateway.metadata),
            generation: self.gateway.metadata.generation,
            found: StatusFindings::Gateway {
                conditions: vec![
                    self.accepted(),
                    StatusCondition::new("Programmed", "Programmed", programmed.clone()),
                    StatusCondition::new("ResolvedRefs", "ResolvedRefs", self.unresolved()),
                ],
                addresses,
                listeners: self.of(None).map(TranslatedListener::found).collect(),
                sets: has_count.then_some(attached.len()),
            },
        };
        let sets = self.sets.iter().enumerate();
        let sets = sets.map(|(number, set)| self.status_of(number, set, programmed.as_ref()));
        [own].into_iter().chain(sets).collect()
    }

    /// The listeners of the gateway itself, or of a set.
    fn of(&self, set: Option<usize>) -> impl Iterator<Item = &TranslatedListener<'_>> {
        self.listeners.iter().filter(move |listener| listener.set == set)
    }

    fn served(&self, set: Option<usize>) -> usize {
        self.of(set).filter(|listener| listener.served().is_some()).count()
    }

    fn served_of_sets(&self) -> usize {
        (0..self.sets.len()).map(|set| self.served(Some(set))).sum()
    }

    fn accepted(&self) -> StatusCondition {
        match &self.fault {
            Some(fault) => StatusCondition::fails("Accepted", fault.clone()),
            None => self.accepted_listeners(None),
        }
    }

    fn accepted_listeners(&self, set: Option<usize>) -> StatusCondition {
        let faulty = self.of(set).filter(|listener| !listener.is_well()).count();
        if faulty == 0 {
            return StatusCondition::holds("Accepted", "Accepted");
        }
        StatusCondition {
            kind: "Accepted",
            holds: self.served(set) > 0,
            reason: "ListenersNotValid",
            message: format!(
                "{faulty} of {} listeners have faults: see their conditions",
                self.of(set).count()
            ),
        }
    }

    /// Returns the first reference of the gateway or its listeners that leads nowhere.
    fn unresolved(&self) -> Option<Fault> {
        let own = self.identity.as_ref().and_then(|identity| identity.as_ref().err().cloned());
        let of_listeners = || {
            let names: Vec<&str> = self
                .of(None)
                .filter(|listener| listener.resolved.is_some())
                .map(|listener| listener.spec.name.as_str())
                .collect();
            let why = format!("see the conditions of listeners: {}", names.join(", "));
            (!names.is_empty()).then_some(("ListenersNotResolved", why))
        };
        own.or_else(of_listeners)
    }

    /// Returns why a ListenerSet is not accepted.
    fn fault_of(&self, set: usize) -> Option<Fault> {
        let of_listeners = || {
            let StatusCondition { holds, reason, message, .. } = self.accepted_listeners(Some(set));
            (!holds).then_some((reason, message))
        };
        self.sets[set].fault.clone().or_else(of_listeners)
    }

    fn status_of(&self, number: usize, set: &OwnSet<'_>, of_gateway: Option<&Fault>) -> ObjectStatus {
        let fault = self.fault_of(number);
        let programmed = match (&fault, of_gateway) {
            (Some(("ParentNotAccepted", why)), _) => Some(("ParentNotProgrammed", why.clone())),
            (Some(fault), _) => Some(fault.clone()),
            (None, Some((_, why))) => Some(("ParentNotProgrammed", why.clone())),
            (None, None) => None,
        };
        let accepted = match fault {
            Some(fault) => StatusCondition::fails("Accepted", fault),
            None => self.accepted_listeners(Some(number)),
        };
        ObjectStatus {
            object: Reference::new(ObjectKind::ListenerSet, &set.set.metadata),
            generation: set.set.metadata.generation,
            found: StatusFindings::ListenerSet {
                conditions: vec![accepted, StatusCondition::new("Programmed", "Programmed", programmed)],
                listeners: self.of(Some(number)).map(TranslatedListener::found).collect(),
                has_ports: set.is_experimental(),
            },
        }
    }
}

impl TranslatedListener<'_> {
    fn is_well(&self) -> bool {
        self.served().is_some() && self.resolved.is_none()
    }

    fn found(&self) -> ListenerFound {
        let not_served = || ("Invalid", "this listener is not served: see its other conditions".to_owned());
        // ListenerSets repeat the conflict, so that its reason is in each condition.
        let conflict = self.conflicted.clone().filter(|_| self.set.is_some());
        let programmed = self.served().is_none().then(|| conflict.unwrap_or_else(not_served));
        let conflicted = match &self.conflicted {
            Some((reason, message)) => {
                StatusCondition { kind: "Conflicted", holds: true, reason, message: message.clone() }
            }
            None => StatusCondition {
                kind: "Conflicted",
                holds: false,
                reason: "NoConflicts",
                message: String::new(),
            },
        };
        let accepted = self.accepted.clone().or_else(|| self.conflicted.clone());
        ListenerFound {
            name: self.spec.name.clone(),
            port: self.spec.port,
            kinds: self.kinds.iter().map(|kind| (GATEWAY_GROUP, *kind)).collect(),
            attached: self.attached,
            conditions: vec![
                StatusCondition::new("Accepted", "Accepted", accepted),
                conflicted,
                StatusCondition::new("ResolvedRefs", "ResolvedRefs", self.resolved.clone()),
                StatusCondition::new("Programmed", "Programmed", programmed),
            ],
        }
    }
}

fn kind_of_address(address: &str) -> &'static str {
    if address.parse::<IpAddr>().is_ok() { "IPAddress" } else { "Hostname" }
}
