//! Translates the objects of a cluster to a configuration of Vanward and statuses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use crate::backend_tls::TlsPolicies;
use crate::backends::Backends;
use crate::certificates;
use crate::cluster::Cluster;
use crate::frontend_tls;
use crate::http_route::{self, Claims};
use crate::ingress::{self, Around, Ingresses};
use crate::listeners::{self, ListenerProtocol, OwnGateway, Port, on_port};
use crate::object::{ObjectKind, Reference};
use crate::secrets;
use crate::status::ObjectStatus;
use crate::tcp_route::{self, Forwarded};
use crate::tls_route::{self, PassedOn};
use crate::written::{WrittenTable, WrittenText, inline, list, text};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorOptions {
    /// The controller's name in GatewayClasses.
    pub controller: String,
    /// The proxy's IP addresses and host names, for statuses.
    pub addresses: Vec<String>,
    /// A file of Vanward for settings outside of the Gateway API, such as log and limits.
    pub base: Option<String>,
    pub ready: SocketAddr,
    pub ingress_ports: [u16; 2],
    /// File with the secrets that sign session cookies, the same for all instances.
    pub cookie_secret: Option<String>,
}

pub trait MachineFacts {
    /// Returns the names in a certificate, if it is valid with its key, both in PEM.
    fn certificate(&self, certificate: &[u8], key: &[u8]) -> Result<Vec<String>, String>;

    /// Checks CA certificates in PEM; `None` stands for the system's.
    fn authorities(&self, pem: Option<&[u8]>) -> Result<(), String>;

    /// Checks users with password hashes, a line for each.
    fn users(&self, lines: &[u8]) -> Result<(), String>;

    /// Checks that the proxy can listen on a port; `None` stands for all addresses.
    fn port(&self, address: Option<IpAddr>, port: u16) -> Result<(), String>;
}

pub type Refused = BTreeMap<Reference, String>;

#[derive(Clone, PartialEq)]
pub struct Translation {
    /// Refers to secrets as files: see `files`.
    pub written: WrittenText,
    /// Contents by file name. They include keys, so `Debug` omits them.
    pub files: BTreeMap<String, Vec<u8>>,
    pub statuses: Vec<ObjectStatus>,
    /// Objects that cannot be parsed, and why.
    pub unreadable: Vec<(Reference, String)>,
    /// Unsupported parts of objects without sufficient conditions.
    pub remarks: Vec<(Reference, String)>,
}

pub fn translate(
    cluster: &Cluster,
    options: &OperatorOptions,
    refused: &Refused,
    machine: &dyn MachineFacts,
) -> Translation {
    let (classes, mut statuses) = listeners::classes(cluster, options);
    let mut gateways = listeners::gateways(cluster, &classes, refused, machine);
    let mut backends = Backends::new(cluster, refused, TlsPolicies::new(cluster, machine));
    let mut claims = Claims::new();
    let of_http = http_route::translate(cluster, refused, &mut gateways, &mut backends, &mut claims);
    let http_route::Translated { tables: routes, statuses: of_routes, mut remarks } = of_http;
    let (passed_on, of_tls_routes, more) =
        tls_route::translate(cluster, refused, &mut gateways, &mut backends);
    remarks.extend(more);
    let of_tcp = tcp_route::translate(cluster, refused, &mut gateways, &mut backends);
    remarks.extend(of_tcp.remarks);
    let taken = ports(&gateways);
    let https = Port { address: None, number: options.ingress_ports[1] };
    let hosts = on_port(&gateways, https).filter_map(|listener| listener.hostname());
    let gateway_hosts: BTreeSet<String> = hosts.map(str::to_ascii_lowercase).collect();
    let around = Around { cluster, options, refused, machine, taken: &taken, gateway_hosts: &gateway_hosts };
    let ingresses = ingress::translate(&around, &mut backends, &mut claims);
    statuses.extend(gateways.iter().flat_map(|gateway| gateway.statuses(options)));
    statuses.extend(of_routes);
    statuses.extend(of_tls_routes);
    statuses.extend(of_tcp.statuses);
    statuses.extend(ingresses.statuses.iter().cloned());
    statuses.extend(backends.policies.statuses(&gateways));

    let mut written = WrittenText::default();
    let mut files = BTreeMap::new();
    let top = WrittenTable::new("# Made from the objects of a Kubernetes cluster.");
    written.table(None, &top.maybe("include", options.base.as_deref().map(text)));
    for table in ready(options) {
        written.table(None, &table);
    }
    let onward = Onward { passed_on, forwarded: of_tcp.forwarded };
    for (owner, table) in listen((&gateways, &ingresses), cluster, onward, &mut backends, &mut files) {
        written.table(Some(owner), &table);
    }
    for (owner, table) in routes.into_iter().chain(ingresses.routes) {
        written.table(Some(owner), &table);
    }
    for (owner, table) in elsewhere(&gateways, &mut claims) {
        written.table(Some(owner), &table);
    }
    files.extend(backends.files());
    files.extend(ingresses.files);
    remarks.extend(ingresses.remarks);
    for (owner, table) in backends.tables() {
        written.table(owner, &table);
    }
    let unreadable = cluster.unreadable.iter().map(|(object, why)| (object.clone(), why.clone()));
    Translation { written, files, statuses, unreadable: unreadable.collect(), remarks }
}

/// Where listeners forward connections without HTTP.
struct Onward {
    passed_on: PassedOn,
    forwarded: Forwarded,
}

/// The readiness endpoint: the proxy listens only once the cluster was read.
fn ready(options: &OperatorOptions) -> [WrittenTable; 2] {
    [
        WrittenTable::new("[[listen]]")
            .with("name", text("ready"))
            .with("address", text(&options.ready.to_string())),
        WrittenTable::new("[[route]]")
            .with("name", text("ready"))
            .with("listener", list([text("ready")]))
            .with("access_log", "false")
            .with("respond", inline([("status", "200".to_owned()), ("body", text("ready\n"))])),
    ]
}

fn listen(
    (gateways, ingresses): (&[OwnGateway<'_>], &Ingresses),
    cluster: &Cluster,
    mut onward: Onward,
    backends: &mut Backends<'_>,
    files: &mut BTreeMap<String, Vec<u8>>,
) -> Vec<(Reference, WrittenTable)> {
    let mut tables = Vec::new();
    let of_ingresses = ingresses.ports.iter().map(|(port, (protocol, _))| (*port, *protocol));
    let all: BTreeMap<Port, ListenerProtocol> = ports(gateways).into_iter().chain(of_ingresses).collect();
    for (port, protocol) in all {
        let listeners = || on_port(gateways, port);
        let of_ingress = ingresses.ports.get(&port);
        let owner = owner(gateways, port).or_else(|| of_ingress.map(|(_, first)| first.clone()));
        let Some(owner) = owner else { continue };
        let is_secure = protocol == ListenerProtocol::Https;
        let tls = is_secure.then(|| {
            let mut certificates = certificates::by_listener(gateways, port);
            let known: BTreeSet<String> = certificates.iter().flat_map(|(_, names)| names.clone()).collect();
            for (secret, names) in ingresses.certificates.iter().filter(|_| of_ingress.is_some()) {
                let names: Vec<String> =
                    names.iter().filter(|name| !known.contains(*name)).cloned().collect();
                if !names.is_empty() {
                    certificates.push((secret, names));
                }
            }
            let certificates = certificates
                .into_iter()
                .filter_map(|(secret, names)| certificate(secret, &names, cluster, files));
            let certificates = ("certificates", list(certificates));
            let takes_all = listeners().any(|listener| listener.hostname().is_none());
            let refuses = (!takes_all).then(|| ("unknown_names", text("refuse")));
            let (all, mut by_name) = frontend_tls::rules(gateways, port, files);
            by_name.extend(ingresses.client_certificates.iter().filter(|_| of_ingress.is_some()).cloned());
            let all = all.map(|rule| ("client_certificates", rule));
            let by_name = (!by_name.is_empty()).then(|| ("client_certificates_by_name", list(by_name)));
            inline([certificates].into_iter().chain(refuses).chain(all).chain(by_name))
        });
        let forwarded = onward.forwarded.remove(&port);
        let owner = forwarded.as_ref().map_or(owner, |(route, _)| route.clone());
        let tcp = match (protocol, forwarded) {
            (_, Some((_, to))) => Some(to),
            // Connections without a route get no server.
            (ListenerProtocol::Tls | ListenerProtocol::Tcp, None) => Some(text(&backends.invalid())),
            (ListenerProtocol::Http | ListenerProtocol::Https, None) => None,
        };
        let table = WrittenTable::new("[[listen]]")
            .with("address", text(&port.to_string()))
            .maybe("tls", tls)
            .maybe("tcp", tcp)
            .maybe("passthrough", onward.passed_on.remove(&port).map(list));
        tables.push((owner, table));
    }
    tables
}

fn certificate(
    secret: &Reference,
    names: &[String],
    cluster: &Cluster,
    files: &mut BTreeMap<String, Vec<u8>>,
) -> Option<String> {
    let Reference { namespace, name, .. } = secret;
    let (certificate, key) = secrets::pair(cluster.secrets.get(&(namespace.clone(), name.clone()))?).ok()?;
    let mut file = |key: &str, content| {
        let path = secrets::path(namespace, name, key);
        files.insert(path.clone(), content);
        text(&path)
    };
    let names = list(names.iter().map(|name| text(name)));
    Some(inline([("cert", file("tls.crt", certificate)), ("key", file("tls.key", key)), ("names", names)]))
}

fn ports(gateways: &[OwnGateway<'_>]) -> BTreeMap<Port, ListenerProtocol> {
    let listeners = gateways.iter().flat_map(|gateway| &gateway.listeners);
    listeners.filter_map(|listener| Some((listener.port, listener.served()?))).collect()
}

/// Returns the object whose listener uses a port first.
fn owner(gateways: &[OwnGateway<'_>], port: Port) -> Option<Reference> {
    gateways.iter().find_map(|gateway| {
        let mut listeners = gateway.listeners.iter();
        let first = listeners.find(|listener| listener.port == port && listener.served().is_some())?;
        Some(match first.set {
            None => Reference::new(ObjectKind::Gateway, &gateway.gateway.metadata),
            Some(set) => Reference::new(ObjectKind::ListenerSet, &gateway.sets[set].set.metadata),
        })
    })
}

/// Claims hostnames of listeners without a route: their requests must not reach routes of a less specific listener.
fn elsewhere(gateways: &[OwnGateway<'_>], claims: &mut Claims) -> Vec<(Reference, WrittenTable)> {
    let mut tables = Vec::new();
    for (port, protocol) in ports(gateways) {
        let hosts: BTreeSet<Option<String>> = on_port(gateways, port)
            .map(|listener| listener.hostname().map(str::to_ascii_lowercase))
            .collect();
        let owner = owner(gateways, port).filter(|_| protocol != ListenerProtocol::Tls && hosts.len() > 1);
        let Some(owner) = owner else { continue };
        for host in hosts.iter().flatten() {
            if !claims.insert((port, Some(host.clone()), "/".to_owned(), Vec::new())) {
                continue;
            }
            let table = WrittenTable::new("[[route]]")
                .with("name", text(&format!("nothing else of {host} {port}")))
                .with("listener", list([text(&port.to_string())]))
                .with("host", list([text(host)]))
                .with("respond", inline([("status", "404".to_owned())]));
            tables.push((owner.clone(), table));
        }
    }
    tables
}
