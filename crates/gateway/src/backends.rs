//! Upstreams from the backends of routes: services and their endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::backend_tls::{ServerTls, TlsPolicies};
use crate::client_identity::{ClientIdentity, Identity};
use crate::cluster::Cluster;
use crate::condition::Fault;
use crate::filters::Options;
use crate::kinds::{BackendRef, Service, ServicePort};
use crate::object::{GATEWAY_GROUP, NETWORKING_GROUP, ObjectKind, Reference};
use crate::translate::Refused;
use crate::written::{WrittenTable, inline, list, text};

const NAME_BYTES_MAX: usize = 64;
const WEIGHT_MAX: f64 = 1000.0;
/// Upstream for backends that do not exist.
const INVALID: &str = "invalid-backend";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Spoken {
    Http1,
    Http2,
    /// No protocol: bytes of connections.
    Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PortUpstream {
    service: Reference,
    port: u16,
    servers: Vec<(IpAddr, u16)>,
    spoken: Spoken,
    tls: Option<ServerTls>,
    /// The certificate for servers that ask for one.
    client: Option<ClientIdentity>,
    /// The object that needs a separate upstream, and its options.
    own: Option<(Reference, Options)>,
}

/// An upstream for TLS passthrough, from ports of several services.
struct PassedOn {
    owner: Reference,
    servers: BTreeMap<(IpAddr, u16), f64>,
}

pub(crate) struct Backends<'c> {
    cluster: &'c Cluster,
    refused: &'c Refused,
    pub(crate) policies: TlsPolicies<'c>,
    upstreams: BTreeMap<String, PortUpstream>,
    passed_on: BTreeMap<String, PassedOn>,
    needs_invalid: bool,
}

/// The object that refers to a backend.
#[derive(Clone, Copy)]
pub(crate) struct Referring<'r> {
    pub(crate) kind: &'static str,
    pub(crate) namespace: &'r str,
    pub(crate) gateways: &'r BTreeSet<usize>,
    /// Protocol for services that do not name one.
    pub(crate) spoken: Spoken,
    /// The certificate that the gateways present to servers with TLS.
    pub(crate) client: Option<&'r Identity>,
    /// Set if the object needs a separate upstream with these options.
    pub(crate) own: Option<(&'r Reference, &'r [(&'static str, String)])>,
}

impl<'c> Backends<'c> {
    pub(crate) fn new(cluster: &'c Cluster, refused: &'c Refused, policies: TlsPolicies<'c>) -> Self {
        Self {
            cluster,
            refused,
            policies,
            upstreams: BTreeMap::new(),
            passed_on: BTreeMap::new(),
            needs_invalid: false,
        }
    }

    pub(crate) fn upstream(&mut self, from: Referring<'_>, backend: &BackendRef) -> Result<String, Fault> {
        let (service, port) = self.referred(from, backend)?;
        let (namespace, name) = (&service.metadata.namespace, &service.metadata.name);
        let policy = self.policies.for_service((namespace, name), port.name.as_deref(), from.gateways);
        let tls = policy.map(|policy| self.policies.wanted(policy).cloned()).transpose();
        let tls = tls.map_err(|why| {
            ("InvalidBackendTLSPolicy", format!("Service {namespace}/{name} gets no requests: {why}"))
        })?;
        let spoken = spoken(port, from.spoken, tls.is_some()).map_err(|why| {
            ("UnsupportedProtocol", format!("Service {namespace}/{name}: port {}: {why}", port.port))
        })?;
        let suffix = match spoken {
            Spoken::Http1 => "",
            Spoken::Http2 => ".h2",
            Spoken::Bytes => ".tcp",
        };
        let client = match from.client.filter(|_| tls.is_some()) {
            None => None,
            Some(Ok(client)) => Some(client.clone()),
            Some(Err((_, why))) => {
                let why = format!("Service {namespace}/{name} gets no requests: the Gateway's {why}");
                return Err(("InvalidClientCertificateRef", why));
            }
        };
        let by = client.as_ref().map(|client| format!(".{}", client.suffix())).unwrap_or_default();
        let shared = format!("{namespace}.{name}.{}{suffix}{by}", port.port);
        let own = from.own.map(|(owner, options)| (owner.clone(), options.to_vec()));
        let upstream = upstream_name(&match &own {
            Some((owner, options)) => {
                let options: Vec<&str> = options.iter().map(|(_, value)| value.as_str()).collect();
                format!("{shared}.{}.{:016x}", owner.name, hash(&options.join("\n")))
            }
            None => shared,
        });
        let reference = Reference::new(ObjectKind::Service, &service.metadata);
        match self.upstreams.get(&upstream) {
            Some(known)
                if (&known.service, known.port, &known.own) == (&reference, port.port, &own)
                    && known.client == client => {}
            Some(known) => {
                let why = format!("{reference}: its name has the same hash as {}", known.service);
                return Err(("BackendNotFound", why));
            }
            None => {
                let servers = self.servers(service, port);
                let made =
                    PortUpstream { service: reference, port: port.port, servers, spoken, tls, client, own };
                self.upstreams.insert(upstream.clone(), made);
            }
        }
        Ok(upstream)
    }

    /// Returns upstreams with positive weights, and the faults of backends. An invalid backend has its share refused.
    pub(crate) fn shares(
        &mut self,
        from: Referring<'_>,
        backends: &[BackendRef],
    ) -> (Vec<(String, u32)>, Vec<Fault>) {
        let (mut shares, mut faults): (Vec<(String, u32)>, Vec<Fault>) = Default::default();
        for backend in backends {
            let weight = backend.weight.unwrap_or(1);
            let upstream = self.upstream(from, backend).unwrap_or_else(|fault| {
                faults.push(fault);
                self.invalid()
            });
            match shares.iter_mut().find(|(known, _)| *known == upstream) {
                Some((_, known)) => *known = known.saturating_add(weight),
                None => shares.push((upstream, weight)),
            }
        }
        shares.retain(|(_, weight)| *weight > 0);
        (shares, faults)
    }

    /// Returns upstreams for TLS passthrough with weights, and the faults of backends. One upstream has the servers
    /// of all valid backends, weighted by backend. Another one refuses connections for invalid backends.
    pub(crate) fn passed_on<'b>(
        &mut self,
        from: Referring<'_>,
        owner: &Reference,
        backends: impl Iterator<Item = &'b BackendRef>,
    ) -> (Vec<(String, u32)>, Vec<Fault>) {
        let (mut servers, mut faults) = (BTreeMap::new(), Vec::new());
        let (mut valid, mut invalid) = (0_u32, 0_u32);
        for backend in backends {
            let weight = backend.weight.unwrap_or(1);
            let own = match self.referred(from, backend) {
                Ok((service, port)) => self.servers(service, port),
                Err(fault) => {
                    faults.push(fault);
                    Vec::new()
                }
            };
            // TLSRoute: a service without endpoints has its share refused, like an invalid backend.
            let side = if own.is_empty() { &mut invalid } else { &mut valid };
            *side = side.saturating_add(weight);
            let share = f64::from(weight) / own.len().max(1) as f64;
            for server in own {
                *servers.entry(server).or_default() += share;
            }
        }
        let refused = (invalid > 0 || valid == 0).then(|| (self.invalid(), invalid.max(1)));
        if valid == 0 {
            return (refused.into_iter().collect(), faults);
        }
        let name = upstream_name(&format!("{}.{}.tls", owner.namespace, owner.name));
        match self.passed_on.get(&name) {
            Some(known) if known.owner != *owner => {
                faults.push(("BackendNotFound", format!("its name has the same hash as {}", known.owner)));
                return (vec![(self.invalid(), 1)], faults);
            }
            _ => drop(self.passed_on.insert(name.clone(), PassedOn { owner: owner.clone(), servers })),
        }
        ([(name, valid)].into_iter().chain(refused).collect(), faults)
    }

    fn referred(
        &self,
        from: Referring<'_>,
        backend: &BackendRef,
    ) -> Result<(&'c Service, &'c ServicePort), Fault> {
        let BackendRef { group, kind, name, .. } = backend;
        let (group, kind) = (group.as_deref().unwrap_or(""), kind.as_deref().unwrap_or("Service"));
        let namespace = backend.namespace.as_deref().unwrap_or(from.namespace);
        if (group, kind) != ("", "Service") {
            return Err(("InvalidKind", format!("{kind} {name}: only Services can be backends")));
        }
        let is_granted = self
            .cluster
            .is_granted((group_of(from.kind), from.kind, from.namespace), ("", "Service", namespace, name));
        if !is_granted {
            let why = format!("Service {namespace}/{name}: no ReferenceGrant in {namespace} permits it");
            return Err(("RefNotPermitted", why));
        }
        self.service_port(namespace, name, backend.port)
    }

    pub(crate) fn port_named(&self, namespace: &str, service: &str, name: &str) -> Option<u16> {
        let service = self.cluster.services.get(&(namespace.to_owned(), service.to_owned()))?;
        let port = service.spec.ports.iter().find(|port| port.name.as_deref() == Some(name))?;
        Some(port.port)
    }

    pub(crate) fn first_port(&self, namespace: &str, service: &str) -> Option<u16> {
        let service = self.cluster.services.get(&(namespace.to_owned(), service.to_owned()))?;
        service.spec.ports.first().map(|port| port.port)
    }

    pub(crate) fn has_servers(&self, upstream: &str) -> bool {
        self.upstreams.get(upstream).is_some_and(|upstream| !upstream.servers.is_empty())
    }

    /// Whether servers of an upstream must prove their identity (TLS).
    pub(crate) fn is_secure(&self, upstream: &str) -> bool {
        self.upstreams.get(upstream).is_some_and(|upstream| upstream.tls.is_some())
    }

    /// Returns the upstream that answers with 500.
    pub(crate) fn invalid(&mut self) -> String {
        self.needs_invalid = true;
        INVALID.to_owned()
    }

    fn service_port(
        &self,
        namespace: &str,
        name: &str,
        port: Option<u16>,
    ) -> Result<(&'c Service, &'c ServicePort), Fault> {
        let not_found = |why: String| ("BackendNotFound", why);
        let key = (namespace.to_owned(), name.to_owned());
        let reference =
            Reference { kind: ObjectKind::Service, namespace: key.0.clone(), name: key.1.clone() };
        if let Some(why) = self.refused.get(&reference) {
            return Err(not_found(format!("{reference}: {why}")));
        }
        let service = self.cluster.services.get(&key);
        let service = service.ok_or_else(|| not_found(format!("{reference} does not exist")))?;
        if service.spec.kind.as_deref() == Some("ExternalName") {
            // Its DNS name could lead to internal hosts that only the proxy reaches (CVE-2021-25740).
            return Err(not_found(format!("{reference} is an ExternalName, which is not supported")));
        }
        let Some(number) = port else {
            return Err(not_found(format!("{reference}: the backend has no port")));
        };
        let known = service.spec.ports.iter().find(|known| known.port == number);
        known
            .map(|port| (service, port))
            .ok_or_else(|| not_found(format!("{reference} has no port {number}")))
    }

    /// Returns the ready addresses of a service's port, of the preferred family: a dual-stack server would count twice.
    fn servers(&self, service: &Service, port: &ServicePort) -> Vec<(IpAddr, u16)> {
        let name = |name: &Option<String>| name.clone().unwrap_or_default();
        let wanted = name(&port.name);
        let mut servers = Vec::new();
        for slice in self.cluster.slices_of(&service.metadata.namespace, &service.metadata.name) {
            let number = slice.ports.iter().find(|port| name(&port.name) == wanted);
            let Some(number) = number.and_then(|port| port.port) else { continue };
            let ready = slice.endpoints.iter().filter(|endpoint| endpoint.conditions.ready != Some(false));
            let addresses = ready.filter_map(|endpoint| endpoint.addresses.first()?.parse::<IpAddr>().ok());
            servers.extend(addresses.map(|address| (address, number)));
        }
        let prefers_ipv6 = service.spec.ip_families.first().is_some_and(|family| family == "IPv6");
        let has_preferred = servers.iter().any(|(address, _)| address.is_ipv6() == prefers_ipv6);
        servers.retain(|(address, _)| !has_preferred || address.is_ipv6() == prefers_ipv6);
        servers.sort_unstable();
        servers.dedup();
        servers
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = (String, Vec<u8>)> {
        let of_tls = self.upstreams.values().filter_map(|upstream| upstream.tls.as_ref());
        let of_clients = self.upstreams.values().filter_map(|upstream| upstream.client.as_ref());
        of_tls.filter_map(|tls| tls.authorities.clone()).chain(of_clients.flat_map(ClientIdentity::files))
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (Option<Reference>, WrittenTable)> {
        let of_services = self
            .upstreams
            .iter()
            .map(|(name, upstream)| (Some(upstream.owner().clone()), upstream.table(name)));
        let invalid = WrittenTable::new(format!("[upstream.{INVALID}]"))
            .with("servers", list([nobody()]))
            .with("none_up", text("fail"));
        let passed_on = self
            .passed_on
            .iter()
            .map(|(name, upstream)| (Some(upstream.owner.clone()), upstream.table(name)));
        of_services.chain(passed_on).chain(self.needs_invalid.then_some((None, invalid)))
    }
}

impl PassedOn {
    fn table(&self, name: &str) -> WrittenTable {
        let highest = self.servers.values().copied().fold(0.0, f64::max);
        let servers =
            self.servers.iter().filter(|(_, share)| **share > 0.0).map(|((address, port), share)| {
                let weight = (share / highest * WEIGHT_MAX).ceil() as u32;
                let url = text(&format!("tcp://{}", std::net::SocketAddr::new(*address, *port)));
                inline([("url", url), ("weight", weight.to_string())])
            });
        WrittenTable::new(format!("[upstream.\"{name}\"]")).with("servers", list(servers))
    }
}

impl PortUpstream {
    /// Returns the object to blame for a mistake in the upstream.
    fn owner(&self) -> &Reference {
        self.own.as_ref().map_or(&self.service, |(owner, _)| owner)
    }

    fn table(&self, name: &str) -> WrittenTable {
        let scheme = match (&self.tls, self.spoken) {
            (Some(_), _) => "https",
            (None, Spoken::Bytes) => "tcp",
            (None, Spoken::Http1 | Spoken::Http2) => "http",
        };
        let servers = self.servers.iter().map(|(address, port)| {
            text(&format!("{scheme}://{}", std::net::SocketAddr::new(*address, *port)))
        });
        let servers = if self.servers.is_empty() { list([nobody()]) } else { list(servers) };
        let protocol = (self.spoken == Spoken::Http2).then(|| text("h2"));
        let tls = self.tls.as_ref().filter(|_| !self.servers.is_empty());
        let table = WrittenTable::new(format!("[upstream.\"{name}\"]"))
            .with("servers", servers)
            .maybe("protocol", protocol)
            .maybe("tls", tls.map(|tls| tls.option(self.client.as_ref())));
        let own = self.own.iter().flat_map(|(_, options)| options);
        own.fold(table, |table, (option, value)| table.with(option, value.clone()))
    }
}

/// A placeholder server that gets no requests.
fn nobody() -> String {
    inline([("url", text("http://127.0.0.1:9")), ("name", text("none")), ("down", "true".to_owned())])
}

/// Returns the protocol of a service's port (KEP-3726), over TLS if a policy requires it.
fn spoken(port: &ServicePort, default: Spoken, is_secure: bool) -> Result<Spoken, String> {
    if default == Spoken::Bytes {
        return Ok(default);
    }
    // RFC 6335 §5.1: names of services ignore case.
    let protocol = port.app_protocol.as_ref().map(|protocol| protocol.to_ascii_lowercase());
    match (protocol.as_deref(), is_secure) {
        (None, _) => Ok(default),
        (Some("http" | "kubernetes.io/ws"), _) => Ok(Spoken::Http1),
        (Some("grpc"), _) | (Some("kubernetes.io/h2c"), false) => Ok(Spoken::Http2),
        (Some("https" | "kubernetes.io/wss"), true) => Ok(Spoken::Http1),
        (Some(other @ ("https" | "kubernetes.io/wss")), false) => {
            Err(format!("appProtocol {other:?} needs a BackendTLSPolicy, which names the trusted CAs"))
        }
        (Some(other @ "kubernetes.io/h2c"), true) => {
            Err(format!("appProtocol {other:?} has no TLS, which a BackendTLSPolicy requires"))
        }
        (Some(other), _) => Err(format!("appProtocol {other:?} is not supported")),
    }
}

/// Returns the name, shortened to a prefix and a hash if it is too long.
fn upstream_name(name: &str) -> String {
    if name.len() <= NAME_BYTES_MAX {
        return name.to_owned();
    }
    let beginning: String = name.chars().take(NAME_BYTES_MAX - 17).collect();
    format!("{beginning}-{:016x}", hash(name))
}

/// FNV-1a. Callers notice collisions.
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The API group of a kind that refers to backends.
fn group_of(kind: &str) -> &'static str {
    if kind == ObjectKind::Ingress.name() { NETWORKING_GROUP } else { GATEWAY_GROUP }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_stay_apart_within_the_limit() {
        let long = format!("{}.{}.80", "n".repeat(63), "s".repeat(63));
        let other = format!("{}.{}.81", "n".repeat(63), "s".repeat(63));
        let (one, two) = (upstream_name(&long), upstream_name(&other));
        assert_eq!((one.len(), two.len()), (NAME_BYTES_MAX, NAME_BYTES_MAX));
        assert_ne!(one, two);
        assert_eq!(upstream_name("shop.cart.80"), "shop.cart.80");
    }
}
