//! Gateways and their listeners, also those of ListenerSets: which are ours, which can be served, and why others cannot.

use std::net::IpAddr;

use serde_json::{Map, Value};

use crate::client_identity::{self, Identity};
use crate::cluster::Cluster;
use crate::condition::{Fault, StatusCondition};
use crate::conflicts::{find_conflicts, find_taken_ports};
use crate::frontend_tls::{self, ClientAuthorities};
use crate::hostname;
use crate::kinds::{Gateway, GatewayClass, GatewayListener, ObjectRef};
use crate::listener_set::{self, OwnSet};
use crate::object::{GATEWAY_GROUP, ObjectKind, Reference, unknown};
use crate::secrets;
use crate::status::{ObjectStatus, StatusFindings};
use crate::translate::{MachineFacts, OperatorOptions, Refused};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenerProtocol {
    Http,
    Https,
    Tls,
    Tcp,
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
    /// The address to listen at; `None` means all.
    pub(crate) address: Option<IpAddr>,
    /// Why the gateway is not served at all.
    pub(crate) fault: Option<Fault>,
    /// In the order of precedence: its own, then those of ListenerSets.
    pub(crate) listeners: Vec<TranslatedListener<'c>>,
    pub(crate) sets: Vec<OwnSet<'c>>,
    /// The certificate for servers.
    pub(crate) identity: Option<Identity>,
}

/// The object that a listener belongs to.
#[derive(Clone, Copy)]
pub(crate) struct ListenerOwner<'a> {
    group: &'static str,
    kind: &'static str,
    namespace: &'a str,
}

impl<'a> ListenerOwner<'a> {
    pub(crate) fn gateway(gateway: &'a Gateway) -> Self {
        let kind = ObjectKind::Gateway.name();
        Self { group: GATEWAY_GROUP, kind, namespace: &gateway.metadata.namespace }
    }

    fn set(set: &OwnSet<'a>) -> Self {
        let (group, kind) = set.group_and_kind();
        Self { group, kind, namespace: &set.set.metadata.namespace }
    }
}

pub(crate) struct TranslatedListener<'c> {
    /// The number of its ListenerSet; `None` for listeners of the gateway itself.
    pub(crate) set: Option<usize>,
    pub(crate) spec: &'c GatewayListener,
    pub(crate) protocol: Option<ListenerProtocol>,
    pub(crate) port: Port,
    /// Kinds of routes that may attach.
    pub(crate) kinds: Vec<&'static str>,
    pub(crate) certificates: Vec<(Reference, Vec<String>)>,
    /// The CAs of clients, which have to present certificates.
    pub(crate) clients: Option<ClientAuthorities>,
    pub(crate) accepted: Option<Fault>,
    pub(crate) conflicted: Option<Fault>,
    pub(crate) resolved: Option<Fault>,
    pub(crate) attached: usize,
}

impl TranslatedListener<'_> {
    pub(crate) fn served(&self) -> Option<ListenerProtocol> {
        let has_certificate = self.protocol != Some(ListenerProtocol::Https) || !self.certificates.is_empty();
        let is_served = self.accepted.is_none() && self.conflicted.is_none() && has_certificate;
        self.protocol.filter(|_| is_served)
    }

    pub(crate) fn hostname(&self) -> Option<&str> {
        let host = self.spec.hostname.as_deref().filter(|host| !host.is_empty());
        // The API ignores it where the protocol has no names.
        host.filter(|_| self.protocol != Some(ListenerProtocol::Tcp))
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
    cluster: &'c Cluster,
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
    let unknown = unknown.or_else(|| frontend_tls::unsupported(gateway));
    let unknown = unknown.or_else(|| listener_set::unsupported(gateway)).map(|why| ("Invalid", why));
    let parameters = spec.infrastructure.as_ref().and_then(|wanted| wanted.parameters_ref.as_ref());
    let parameters = parameters.map(|_| {
        ("InvalidParameters", "infrastructure.parametersRef: parameters are not supported".to_owned())
    });
    let told = refused.get(&reference).map(|why| ("Invalid", why.clone()));
    let fault = told.or(unknown).or(parameters).or(fault);
    let sets = listener_set::of_gateway(gateway, fault.as_ref(), cluster, refused);
    let own = spec.listeners.iter().map(|spec| (None, ListenerOwner::gateway(gateway), spec));
    let of_sets = sets.iter().enumerate().filter(|(_, set)| set.fault.is_none()).flat_map(|(number, set)| {
        set.set.spec.listeners.iter().map(move |spec| (Some(number), ListenerOwner::set(set), spec))
    });
    let listeners = own.chain(of_sets).map(|(set, owner, spec)| {
        let mut listener = of_listener((gateway, owner), spec, cluster, machine);
        (listener.set, listener.port.address) = (set, address);
        if fault.is_some() {
            listener.accepted = Some(("Pending", "its gateway is not accepted".to_owned()));
        } else if listener.accepted.is_none()
            && let Err(why) = machine.port(address, spec.port)
        {
            listener.accepted = Some(("PortUnavailable", why));
        }
        listener
    });
    let identity = client_identity::of_gateway(gateway, cluster, machine);
    OwnGateway { gateway, address, listeners: listeners.collect(), sets, fault, identity }
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
    (gateway, owner): (&Gateway, ListenerOwner<'_>),
    spec: &'c GatewayListener,
    cluster: &Cluster,
    machine: &dyn MachineFacts,
) -> TranslatedListener<'c> {
    let protocol = protocol(spec);
    let known = match protocol {
        Ok(ListenerProtocol::Http | ListenerProtocol::Https) => vec!["HTTPRoute", "GRPCRoute"],
        Ok(ListenerProtocol::Tls) => vec!["TLSRoute"],
        Ok(ListenerProtocol::Tcp) => vec!["TCPRoute"],
        Err(_) => Vec::new(),
    };
    let (kinds, unknown_kind) = kinds(spec, &known);
    let mut resolved = unknown_kind.filter(|_| protocol.is_ok());
    let mut certificates = Vec::new();
    if protocol == Ok(ListenerProtocol::Https) {
        for wanted in spec.tls.iter().flat_map(|tls| &tls.certificate_refs) {
            match certificate(owner, wanted, cluster, machine) {
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
    // A port may be shared with other objects, which must not suffer from the mistake.
    let is_name = |host: &str| hostname::is_name(host.strip_prefix("*.").unwrap_or(host));
    if let Some(host) = spec.hostname.as_deref().filter(|host| !host.is_empty() && !is_name(host)) {
        accepted = accepted.or_else(|| Some(("Invalid", format!("hostname: {host:?} is not a host name"))));
    }
    let port = Port { address: None, number: spec.port };
    TranslatedListener {
        set: None,
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
        ("TCP", _) if spec.tls.is_some() => {
            let why = "TCP cannot have tls: its bytes are forwarded as they are; HTTPS decrypts";
            Err(("UnsupportedValue", why.to_owned()))
        }
        ("TCP", _) => Ok(ListenerProtocol::Tcp),
        (other, _) => {
            Err(("UnsupportedProtocol", format!("{other} is not supported; HTTP, HTTPS, TLS and TCP are")))
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
pub(crate) fn certificate(
    owner: ListenerOwner<'_>,
    wanted: &ObjectRef,
    cluster: &Cluster,
    machine: &dyn MachineFacts,
) -> Result<(Reference, Vec<String>), Fault> {
    let namespace = wanted.namespace.as_deref().unwrap_or(owner.namespace);
    let (group, kind) = (wanted.group.as_deref().unwrap_or(""), wanted.kind.as_deref().unwrap_or("Secret"));
    let invalid = |why: String| ("InvalidCertificateRef", why);
    if (group, kind) != ("", "Secret") {
        return Err(invalid(format!("{kind} {}: only Secrets can have certificates", wanted.name)));
    }
    let to = ("", "Secret", namespace, wanted.name.as_str());
    if !cluster.is_granted((owner.group, owner.kind, owner.namespace), to) {
        let why = format!("Secret {namespace}/{}: no ReferenceGrant in {namespace} permits it", wanted.name);
        return Err(("RefNotPermitted", why));
    }
    let reference =
        Reference { kind: ObjectKind::Secret, namespace: namespace.to_owned(), name: wanted.name.clone() };
    let key = (namespace.to_owned(), wanted.name.clone());
    let secret = cluster.secrets.get(&key).ok_or_else(|| invalid(format!("{reference} does not exist")))?;
    let checked =
        secrets::pair(secret).and_then(|(certificate, key)| machine.certificate(&certificate, &key));
    let names = checked.map_err(|why| invalid(format!("{reference}: {why}")))?;
    Ok((reference, names))
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
