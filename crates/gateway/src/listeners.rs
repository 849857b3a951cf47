//! Gateways and their listeners: which are ours, which can be served, and why others cannot.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Map, Value};

use crate::cluster::Cluster;
use crate::condition::{Fault, StatusCondition};
use crate::frontend_tls::{self, ClientAuthorities};
use crate::hostname;
use crate::kinds::{Gateway, GatewayClass, GatewayListener, ObjectRef};
use crate::object::{GATEWAY_GROUP, ObjectKind, Reference, unknown};
use crate::secrets;
use crate::status::{ListenerFound, ObjectStatus, StatusFindings};
use crate::translate::{MachineFacts, OperatorOptions, Refused};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenerProtocol {
    Http,
    Https,
    Tls,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Port {
    /// `None` stands for all addresses.
    pub(crate) address: Option<IpAddr>,
    pub(crate) number: u16,
}

/// As in the option `address` of `[[listen]]`.
impl std::fmt::Display for Port {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.address {
            Some(address) => std::net::SocketAddr::new(address, self.number).fmt(formatter),
            None => write!(formatter, "*:{}", self.number),
        }
    }
}

pub(crate) struct OwnGateway<'c> {
    pub(crate) gateway: &'c Gateway,
    /// Why the gateway is not served at all.
    fault: Option<Fault>,
    pub(crate) listeners: Vec<TranslatedListener<'c>>,
}

pub(crate) struct TranslatedListener<'c> {
    pub(crate) spec: &'c GatewayListener,
    pub(crate) protocol: Option<ListenerProtocol>,
    pub(crate) port: Port,
    /// Kinds of routes that may attach.
    pub(crate) kinds: Vec<&'static str>,
    pub(crate) certificates: Vec<(Reference, Vec<String>)>,
    /// The CAs of clients, which have to present certificates.
    pub(crate) clients: Option<ClientAuthorities>,
    accepted: Option<Fault>,
    conflicted: Option<Fault>,
    resolved: Option<Fault>,
    pub(crate) attached: usize,
}

impl TranslatedListener<'_> {
    pub(crate) fn served(&self) -> Option<ListenerProtocol> {
        let has_certificate = self.protocol != Some(ListenerProtocol::Https) || !self.certificates.is_empty();
        let is_served = self.accepted.is_none() && self.conflicted.is_none() && has_certificate;
        self.protocol.filter(|_| is_served)
    }

    pub(crate) fn hostname(&self) -> Option<&str> {
        self.spec.hostname.as_deref().filter(|host| !host.is_empty())
    }

    fn found(&self) -> ListenerFound {
        let programmed = match self.served() {
            Some(_) => None,
            None => Some(("Invalid", "this listener is not served: see its other conditions".to_owned())),
        };
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
        ListenerFound {
            name: self.spec.name.clone(),
            kinds: self.kinds.iter().map(|kind| (GATEWAY_GROUP, *kind)).collect(),
            attached: self.attached,
            conditions: vec![
                StatusCondition::new(
                    "Accepted",
                    "Accepted",
                    self.accepted.clone().or_else(|| self.conflicted.clone()),
                ),
                conflicted,
                StatusCondition::new("ResolvedRefs", "ResolvedRefs", self.resolved.clone()),
                StatusCondition::new("Programmed", "Programmed", programmed),
            ],
        }
    }
}

pub(crate) fn classes<'c>(
    cluster: &'c Cluster,
    options: &OperatorOptions,
) -> (Vec<&'c GatewayClass>, Vec<ObjectStatus>) {
    let ours = cluster.classes.values().filter(|class| class.spec.controller_name == options.controller);
    let mut statuses = Vec::new();
    let mut accepted = Vec::new();
    for class in ours {
        let fault = class.spec.parameters_ref.as_ref().map(|_| {
            (
                "InvalidParameters",
                "parametersRef: parameters are not supported; use the flags of vanward run".to_owned(),
            )
        });
        if fault.is_none() {
            accepted.push(class);
        }
        statuses.push(ObjectStatus {
            object: Reference::new(ObjectKind::GatewayClass, &class.metadata),
            generation: class.metadata.generation,
            found: StatusFindings::Class(vec![StatusCondition::new("Accepted", "Accepted", fault)]),
        });
    }
    (accepted, statuses)
}

pub(crate) fn gateways<'c>(
    cluster: &'c Cluster,
    classes: &[&GatewayClass],
    refused: &Refused,
    machine: &dyn MachineFacts,
) -> Vec<OwnGateway<'c>> {
    let is_ours = |gateway: &&Gateway| {
        classes.iter().any(|class| class.metadata.name == gateway.spec.gateway_class_name)
    };
    let mut gateways: Vec<&Gateway> = cluster.gateways.values().filter(is_ours).collect();
    gateways.sort_by_key(|gateway| gateway.metadata.age());
    let mut own: Vec<OwnGateway<'c>> =
        gateways.into_iter().map(|gateway| of_gateway(gateway, cluster, refused, machine)).collect();
    for gateway in &mut own {
        find_conflicts(&mut gateway.listeners);
    }
    find_taken_ports(&mut own);
    own
}

fn of_gateway<'c>(
    gateway: &'c Gateway,
    cluster: &Cluster,
    refused: &Refused,
    machine: &dyn MachineFacts,
) -> OwnGateway<'c> {
    let reference = Reference::new(ObjectKind::Gateway, &gateway.metadata);
    let (address, fault) = match address(gateway) {
        Ok(address) => (address, None),
        Err(fault) => (None, Some(fault)),
    };
    let spec = &gateway.spec;
    let unknown = unknown(&spec.other).map(|names| format!("not supported: {names}"));
    let unknown = unknown.or_else(|| frontend_tls::unsupported(gateway)).map(|why| ("Invalid", why));
    let parameters = spec.infrastructure.as_ref().and_then(|wanted| wanted.parameters_ref.as_ref());
    let parameters = parameters.map(|_| {
        ("InvalidParameters", "infrastructure.parametersRef: parameters are not supported".to_owned())
    });
    let told = refused.get(&reference).map(|why| ("Invalid", why.clone()));
    let fault = told.or(unknown).or(parameters).or(fault);
    let listeners = spec.listeners.iter().map(|spec| {
        let mut listener = of_listener(gateway, spec, cluster, machine);
        listener.port.address = address;
        if fault.is_some() {
            listener.accepted = Some(("Pending", "its gateway is not accepted".to_owned()));
        } else if listener.accepted.is_none()
            && let Err(why) = machine.port(address, spec.port)
        {
            listener.accepted = Some(("PortUnavailable", why));
        }
        listener
    });
    OwnGateway { gateway, listeners: listeners.collect(), fault }
}

fn address(gateway: &Gateway) -> Result<Option<IpAddr>, Fault> {
    let unsupported = |why: String| ("UnsupportedAddress", why);
    match gateway.spec.addresses.as_slice() {
        [] => Ok(None),
        [wanted] if wanted.kind.as_deref().is_none_or(|kind| kind == "IPAddress") => {
            match wanted.value.as_str() {
                "" => Ok(None),
                value => {
                    value.parse().map(Some).map_err(|_| unsupported(format!("{value} is not an IP address")))
                }
            }
        }
        [wanted] => {
            let kind = wanted.kind.as_deref().unwrap_or_default();
            Err(unsupported(format!("addresses of type {kind} are not supported, IPAddress is")))
        }
        _ => Err(unsupported("at most one address is supported".to_owned())),
    }
}

fn of_listener<'c>(
    gateway: &Gateway,
    spec: &'c GatewayListener,
    cluster: &Cluster,
    machine: &dyn MachineFacts,
) -> TranslatedListener<'c> {
    let protocol = protocol(spec);
    let known = match protocol {
        Ok(ListenerProtocol::Http | ListenerProtocol::Https) => vec!["HTTPRoute", "GRPCRoute"],
        Ok(ListenerProtocol::Tls) => vec!["TLSRoute"],
        Err(_) => Vec::new(),
    };
    let (kinds, unknown_kind) = kinds(spec, &known);
    let mut resolved = unknown_kind.filter(|_| protocol.is_ok());
    let mut certificates = Vec::new();
    if protocol == Ok(ListenerProtocol::Https) {
        for wanted in spec.tls.iter().flat_map(|tls| &tls.certificate_refs) {
            match certificate(gateway, wanted, cluster, machine) {
                Ok(secret) => certificates.push(secret),
                Err(fault) => resolved = Some(fault),
            }
        }
    }
    let (protocol, mut accepted) = match protocol {
        Ok(protocol) => (Some(protocol), None),
        Err(fault) => (None, Some(fault)),
    };
    let mut clients = None;
    if protocol == Some(ListenerProtocol::Https) {
        match frontend_tls::for_port(gateway, spec.port, cluster, machine) {
            Ok((wanted, missing)) => {
                clients = wanted;
                resolved = resolved.or(missing);
            }
            Err(fault) => accepted = Some(fault),
        }
    }
    let port = Port { address: None, number: spec.port };
    TranslatedListener {
        spec,
        protocol,
        port,
        kinds,
        certificates,
        clients,
        accepted,
        conflicted: None,
        resolved,
        attached: 0,
    }
}

fn protocol(spec: &GatewayListener) -> Result<ListenerProtocol, Fault> {
    let mode = spec.tls.as_ref().and_then(|tls| tls.mode.as_deref()).unwrap_or("Terminate");
    let no_other = Map::<String, Value>::new();
    let other = spec.tls.as_ref().map_or(&no_other, |tls| &tls.other);
    if let Some(names) = unknown(other) {
        // Client certificate validation is among these: ignoring it would admit every client.
        return Err(("UnsupportedValue", format!("tls: not supported: {names}")));
    }
    match (spec.protocol.as_str(), mode) {
        ("HTTP", _) => Ok(ListenerProtocol::Http),
        ("HTTPS", "Terminate") => Ok(ListenerProtocol::Https),
        ("HTTPS", mode) => Err(("UnsupportedValue", format!("HTTPS cannot have mode {mode}"))),
        ("TLS", "Passthrough") => Ok(ListenerProtocol::Tls),
        ("TLS", mode) => {
            let why = format!("TLS cannot have mode {mode}; Passthrough is supported, and HTTPS decrypts");
            Err(("UnsupportedValue", why))
        }
        (other, _) => {
            Err(("UnsupportedProtocol", format!("{other} is not supported; HTTP, HTTPS and TLS are")))
        }
    }
}

fn kinds(spec: &GatewayListener, known: &[&'static str]) -> (Vec<&'static str>, Option<Fault>) {
    if spec.allowed_routes.kinds.is_empty() {
        return (known.to_vec(), None);
    }
    let (mut kinds, mut fault) = (Vec::new(), None);
    for wanted in &spec.allowed_routes.kinds {
        let is_group = wanted.group.as_deref().is_none_or(|group| group == GATEWAY_GROUP);
        match known.iter().find(|known| is_group && **known == wanted.kind) {
            Some(known) => kinds.push(*known),
            None => {
                let message = format!("{} cannot attach to {}", wanted.kind, spec.protocol);
                fault = Some(("InvalidRouteKinds", message));
            }
        }
    }
    (kinds, fault)
}

/// Returns the Secret with certificate and key, and the names in the certificate.
fn certificate(
    gateway: &Gateway,
    wanted: &ObjectRef,
    cluster: &Cluster,
    machine: &dyn MachineFacts,
) -> Result<(Reference, Vec<String>), Fault> {
    let own = &gateway.metadata.namespace;
    let namespace = wanted.namespace.as_ref().unwrap_or(own);
    let (group, kind) = (wanted.group.as_deref().unwrap_or(""), wanted.kind.as_deref().unwrap_or("Secret"));
    let invalid = |why: String| ("InvalidCertificateRef", why);
    if (group, kind) != ("", "Secret") {
        return Err(invalid(format!("{kind} {}: only Secrets can have certificates", wanted.name)));
    }
    let to = ("", "Secret", namespace.as_str(), wanted.name.as_str());
    if !cluster.is_granted((GATEWAY_GROUP, "Gateway", own), to) {
        let why = format!("Secret {namespace}/{}: no ReferenceGrant in {namespace} permits it", wanted.name);
        return Err(("RefNotPermitted", why));
    }
    let reference =
        Reference { kind: ObjectKind::Secret, namespace: namespace.clone(), name: wanted.name.clone() };
    let key = (namespace.clone(), wanted.name.clone());
    let secret = cluster.secrets.get(&key).ok_or_else(|| invalid(format!("{reference} does not exist")))?;
    let checked =
        secrets::pair(secret).and_then(|(certificate, key)| machine.certificate(&certificate, &key));
    let names = checked.map_err(|why| invalid(format!("{reference}: {why}")))?;
    Ok((reference, names))
}

/// Finds listeners of one gateway that cannot be distinguished.
fn find_conflicts(listeners: &mut [TranslatedListener<'_>]) {
    let faults: Vec<Option<Fault>> = (0..listeners.len())
        .map(|index| {
            let own = &listeners[index];
            let own_protocol = own.protocol?;
            let others = listeners.iter().enumerate();
            let mut others = others.filter(|(other, _)| *other != index).map(|(_, other)| other);
            others.find_map(|other| {
                let protocol = other.protocol.filter(|_| other.port == own.port)?;
                if protocol != own_protocol {
                    let message = format!(
                        "port {} has another protocol in listener {}",
                        own.spec.port, other.spec.name
                    );
                    return Some(("ProtocolConflict", message));
                }
                let is_same = own.hostname().map(str::to_ascii_lowercase)
                    == other.hostname().map(str::to_ascii_lowercase);
                let message = format!("listener {} has the same port and hostname", other.spec.name);
                is_same.then_some(("HostnameConflict", message))
            })
        })
        .collect();
    for (listener, fault) in listeners.iter_mut().zip(faults) {
        listener.conflicted = fault;
    }
}

/// The oldest gateway decides the protocol of a port, because all gateways share the proxy's addresses.
fn find_taken_ports(gateways: &mut [OwnGateway<'_>]) {
    let mut taken: BTreeMap<Port, (ListenerProtocol, String)> = BTreeMap::new();
    for gateway in gateways {
        let name = Reference::new(ObjectKind::Gateway, &gateway.gateway.metadata).to_string();
        for listener in &mut gateway.listeners {
            let Some(protocol) = listener.served() else { continue };
            let (first, owner) = taken.entry(listener.port).or_insert_with(|| (protocol, name.clone()));
            if *first != protocol {
                let message = format!("port {} has another protocol in {owner}", listener.spec.port);
                listener.accepted = Some(("PortUnavailable", message));
            }
        }
    }
}

impl OwnGateway<'_> {
    pub(crate) fn status(&self, options: &OperatorOptions) -> ObjectStatus {
        let served = self.listeners.iter().filter(|listener| listener.served().is_some()).count();
        let faulty = self.listeners.iter().filter(|listener| !listener.is_well()).count();
        let addresses = match self.listeners.first().and_then(|listener| listener.port.address) {
            Some(address) => vec![("IPAddress", address.to_string())],
            None => {
                options.addresses.iter().map(|address| (kind_of_address(address), address.clone())).collect()
            }
        };
        let accepted = match &self.fault {
            Some(fault) => StatusCondition::fails("Accepted", fault.clone()),
            None if faulty == 0 => StatusCondition::holds("Accepted", "Accepted"),
            None => StatusCondition {
                kind: "Accepted",
                holds: served > 0,
                reason: "ListenersNotValid",
                message: format!(
                    "{faulty} of {} listeners have faults: see their conditions",
                    self.listeners.len()
                ),
            },
        };
        let programmed = match (&self.fault, served) {
            (None, 1..) if addresses.is_empty() => {
                Some(("AddressNotAssigned", "vanward run has no --gateway-address".to_owned()))
            }
            (None, 1..) => None,
            _ => Some(("Invalid", "no listener is served".to_owned())),
        };
        ObjectStatus {
            object: Reference::new(ObjectKind::Gateway, &self.gateway.metadata),
            generation: self.gateway.metadata.generation,
            found: StatusFindings::Gateway {
                conditions: vec![accepted, StatusCondition::new("Programmed", "Programmed", programmed)],
                addresses,
                listeners: self.listeners.iter().map(TranslatedListener::found).collect(),
            },
        }
    }
}

impl TranslatedListener<'_> {
    fn is_well(&self) -> bool {
        self.served().is_some() && self.resolved.is_none()
    }
}

fn kind_of_address(address: &str) -> &'static str {
    if address.parse::<IpAddr>().is_ok() { "IPAddress" } else { "Hostname" }
}

pub(crate) fn on_port<'g>(
    gateways: &'g [OwnGateway<'_>],
    port: Port,
) -> impl Iterator<Item = &'g TranslatedListener<'g>> {
    let listeners = gateways.iter().flat_map(|gateway| &gateway.listeners);
    listeners.filter(move |listener| listener.port == port && listener.served().is_some())
}

/// Returns the server name pattern (SNI) of a hostname, as in options; `None` stands for all.
pub(crate) fn pattern(host: Option<&str>) -> String {
    match host {
        None => "*".to_owned(),
        Some(host) if host.starts_with("*.") => format!("*{host}"),
        Some(host) => host.to_owned(),
    }
}

/// Whether a host belongs to a listener with a more specific hostname on the same port.
pub(crate) fn is_of_narrower(host: &str, own: Option<&str>, all: &[Option<String>]) -> bool {
    all.iter().flatten().any(|other| {
        let is_narrower = own.is_none_or(|own| own != other && hostname::covers(own, other));
        is_narrower && hostname::covers(other, host)
    })
}
