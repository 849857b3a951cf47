//! Drivers of the proxies, from one neutral description. A new proxy is a file and a row of `PEERS`.
//!
//! Each proxy gets its best settings for the requested features. No process is started, except to ask for a version.

/// No proxy: the client connects to the origin.
pub mod direct;
/// Vanward.
pub mod vanward;
/// nginx.
pub mod nginx;
/// HAProxy.
pub mod haproxy;
/// Envoy.
pub mod envoy;
/// Traefik.
pub mod traefik;
/// Caddy.
pub mod caddy;
/// Varnish.
pub mod varnish;
/// Squid.
pub mod squid;
/// Apache httpd.
pub mod apache;
/// Apache Traffic Server.
pub mod trafficserver;
/// H2O.
pub mod h2o;
/// Pound.
pub mod pound;
/// zproxy.
pub mod zproxy;
/// monolake.
pub mod monolake;
/// Toxiproxy.
pub mod toxiproxy;
/// Pingap.
pub mod pingap;
/// Any other program, by its command line in the plan.
pub mod command;
/// A service that runs already.
pub mod target;

use std::collections::BTreeMap;
use std::env;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;

use report::figure;
use report::judge::Trait;
use report::results::{Absent, ClientVersion, File, Layer, OriginProtocol, ProxyRole, StreamKind};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::agent::words::{AgentService, WantedProxies};
use crate::certificate::{self, CertificatePaths};
use crate::error::Error;
use crate::plan::{Deviation, Features, OwnProgram};
pub use command::CommandTemplate;

/// Maximum number of idle connections to the origins, for proxies that need a number: more than any plan has clients.
const IDLE_MOST: usize = 1024;

const LAYER_4: &str = "forwarding at layer 4";
/// Name in the lab's certificate of the origins.
const ORIGIN_NAME: &str = "localhost";

/// Drivers that are always available.
const OWN: [&Driver; 2] = [&direct::DRIVER, &vanward::DRIVER];

/// In the order of the tables.
pub const PEERS: [&Driver; 15] = [
    &nginx::DRIVER,
    &haproxy::DRIVER,
    &envoy::DRIVER,
    &traefik::DRIVER,
    &caddy::DRIVER,
    &varnish::DRIVER,
    &squid::DRIVER,
    &apache::DRIVER,
    &trafficserver::DRIVER,
    &h2o::DRIVER,
    &pound::DRIVER,
    &zproxy::DRIVER,
    &monolake::DRIVER,
    &toxiproxy::DRIVER,
    &pingap::DRIVER,
];

#[derive(Debug)]
pub struct Driver {
    pub name: &'static str,
    pub role: ProxyRole,
    /// Name of the program, and its argument that prints the version; `None` if there is no program.
    pub program: Option<(&'static str, &'static str)>,
    /// Instructions to install it.
    pub remedy: &'static str,
    /// Finds the version in the program's output.
    pub version: fn(&str) -> Option<String>,
    /// Turns a service description into a command and configuration files.
    pub configure: fn(&Installed, &Service, &Path) -> Result<Launch, Error>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Installed {
    /// Unique in a plan.
    pub name: String,
    #[serde(serialize_with = "driver_name", deserialize_with = "driver_named")]
    pub driver: &'static Driver,
    /// Empty if there is none.
    pub program: PathBuf,
    /// Version that the program reports.
    pub version: String,
    /// Complete version output of the program; for Vanward, its flags.
    pub build: String,
    /// Command and files of a proxy without a separate driver. For a service that runs already, its URL and port.
    pub template: CommandTemplate,
    /// Settings of the plan that differ for this proxy from the others.
    pub deviation: Deviation,
}

/// Task of a proxy, in terms that fit all proxies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    pub listen: SocketAddr,
    /// Certificate for TLS with clients; `None` is plain HTTP.
    pub tls: Option<CertificatePaths>,
    /// HTTP version of the clients. Only this version must work.
    pub version: ClientVersion,
    /// Servers behind the proxy, used in turn.
    pub origins: Vec<SocketAddr>,
    pub upstream: OriginProtocol,
    /// Certificate check for the origins, if they use TLS.
    pub origins_certificate: Option<OriginVerification>,
    /// Layer at which the proxy forwards.
    pub layer: Layer,
    pub workers: NonZeroUsize,
    /// Whether connections stay open between requests, on both sides.
    pub keep_alive: bool,
    /// Whether each request is logged to `access.log` in the proxy's folder.
    pub access_log: bool,
    pub features: Features,
    /// Path and query of all requests; `None` if they differ.
    pub target: Option<String>,
    /// Streams in place of requests. The probe is a request all the same.
    pub streams: Option<StreamKind>,
}

/// Certificate check of a proxy for its origins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginVerification {
    /// Certificates of authorities, or the certificate itself, in PEM.
    pub authority: PathBuf,
    /// Name in the certificate, and for SNI.
    pub name: String,
}

impl OriginVerification {
    pub(crate) fn own(certificate: &CertificatePaths) -> Self {
        Self { authority: certificate.certificate.clone(), name: ORIGIN_NAME.to_owned() }
    }
}

impl Service {
    /// Rejects everything but forwarding to HTTP/1.1 servers without TLS, for simple proxies.
    fn passes_on_only(&self, name: &'static str) -> Result<(), Error> {
        self.has_no_features(name)?;
        let upstream = match self.upstream {
            OriginProtocol::Http => None,
            OriginProtocol::Https => Some("origins over TLS"),
            OriginProtocol::H2 => Some("origins over HTTP/2"),
        };
        refuse(name, (self.layer == Layer::Four).then_some(LAYER_4).or(upstream))?;
        self.has_no_streams(name)
    }

    /// Rejects streams, for proxies whose driver does not configure them.
    fn has_no_streams(&self, name: &'static str) -> Result<(), Error> {
        let streams = self.streams.map(|kind| match kind {
            StreamKind::Events => "server-sent events here",
            StreamKind::Echo | StreamKind::FanOut => "WebSockets here",
            _ => "gRPC here",
        });
        refuse(name, streams)
    }

    fn without_streams(&self) -> Self {
        Self { streams: None, ..self.clone() }
    }

    /// Rejects features beside forwarding, for proxies without them.
    fn has_no_features(&self, name: &'static str) -> Result<(), Error> {
        let Features { cache_bytes, delay, rate_bytes_per_second } = self.features;
        let cache = cache_bytes.map(|_| "a cache in memory");
        let delay = delay.map(|_| "a delay of requests");
        let rate = rate_bytes_per_second.map(|_| "a rate for all clients together");
        refuse(name, cache.or(delay).or(rate))
    }

    /// Certificate that clients trust: the proxy's, or at layer 4 the origins'.
    pub(crate) fn trusted(&self) -> Option<&Path> {
        match &self.tls {
            Some(tls) => Some(&tls.certificate),
            None => {
                let origins = self.origins_certificate.as_ref().filter(|_| self.layer == Layer::Four);
                origins.map(|verified| verified.authority.as_path())
            }
        }
    }

    /// Rejects keep-alive off and access logs, for drivers that do not configure them.
    fn keeps_alive_unlogged(&self, name: &'static str) -> Result<(), Error> {
        let log = self.access_log.then_some("an access log to a file");
        refuse(name, log.or((!self.keep_alive).then_some("keep-alive off")))
    }

    /// The single origin, for drivers without load balancing.
    fn only_origin(&self, name: &'static str) -> Result<SocketAddr, Error> {
        match self.origins[..] {
            [origin] => Ok(origin),
            _ => Err(Error::Unsupported { name, what: "several origins" }),
        }
    }

    /// Rejects HTTP/2, for proxies without it.
    fn is_http1(&self, name: &'static str) -> Result<(), Error> {
        refuse(name, (self.version == ClientVersion::Http2).then_some("HTTP/2"))
    }

    /// Rejects HTTP/2 without TLS, which few proxies support.
    fn is_http1_or_tls(&self, name: &'static str) -> Result<(), Error> {
        let is_clear = self.version == ClientVersion::Http2 && self.tls.is_none();
        refuse(name, is_clear.then_some("HTTP/2 without TLS"))
    }

    /// The service with the settings that differ for one proxy.
    pub(crate) fn deviating(self, deviation: Deviation) -> Self {
        Self {
            workers: deviation.workers.unwrap_or(self.workers),
            access_log: deviation.access_log.unwrap_or(self.access_log),
            keep_alive: deviation.keep_alive.unwrap_or(self.keep_alive),
            ..self
        }
    }

    /// Settings that must be alike for figures to be compared. The generator does not ask for compression.
    pub(crate) fn setup(&self) -> BTreeMap<Trait, String> {
        let word = |is_on: bool| if is_on { "on" } else { "off" }.to_owned();
        let logging = if self.access_log { "every request to a file" } else { "off" };
        let mut setup = BTreeMap::from([
            (Trait::Logging, logging.to_owned()),
            (Trait::Workers, self.workers.to_string()),
            (Trait::KeepAlive, word(self.keep_alive)),
            (Trait::Compression, word(false)),
        ]);
        if self.tls.is_some() {
            setup.insert(Trait::Ciphers, format!("{} {}", certificate::VERSION, certificate::CIPHER));
        }
        setup
    }

    /// Protocols with clients and origins, as a phrase.
    fn protocols(&self) -> String {
        let clients = match self.version {
            ClientVersion::Http1 => "HTTP/1.1",
            ClientVersion::Http2 => "HTTP/2",
            ClientVersion::Http3 => "HTTP/3",
        };
        let origins = match self.upstream {
            OriginProtocol::Http => "HTTP/1.1",
            OriginProtocol::Https => "HTTP/1.1 over TLS, verified,",
            OriginProtocol::H2 => "HTTP/2",
        };
        match self.layer {
            Layer::Four => format!("{clients} forwarded at layer 4, as the bytes of a connection"),
            Layer::Seven if clients == origins => format!("{clients} on both sides"),
            Layer::Seven => format!("{clients} from clients, {origins} to the origins"),
        }
    }

    /// Rejects TLS, for proxies without it.
    fn is_plain(&self, name: &'static str) -> Result<(), Error> {
        refuse(name, self.tls.as_ref().map(|_| "TLS"))
    }

    /// Describes the common settings of every proxy with this service, a phrase each.
    pub fn features(&self) -> Vec<String> {
        let mut features = vec![
            self.protocols(),
            figure::things(self.workers.get(), "worker"),
            format!("{} in turn", figure::things(self.origins.len(), "origin")),
            format!("keep-alive {} both sides", if self.keep_alive { "on" } else { "off on" }),
            format!("access log {}", if self.access_log { "to a file" } else { "off" }),
            "no load shedding".to_owned(),
        ];
        if self.tls.is_some() {
            features.push(format!(
                "HTTPS: {}, {}, one ECDSA P-256 certificate for all",
                certificate::VERSION,
                certificate::CIPHER
            ));
        }
        features
    }
}

const HTTP3: [&str; 9] = [
    direct::DRIVER.name,
    target::DRIVER.name,
    vanward::DRIVER.name,
    nginx::DRIVER.name,
    haproxy::DRIVER.name,
    caddy::DRIVER.name,
    h2o::DRIVER.name,
    envoy::DRIVER.name,
    traefik::DRIVER.name,
];

impl Installed {
    /// Returns command and files for a service, or the feature that the proxy lacks.
    pub(crate) fn configure(&self, service: &Service, folder: &Path) -> Result<Launch, Error> {
        let name = self.driver.name;
        let lacks = match service.version {
            ClientVersion::Http3 if !HTTP3.contains(&name) => Some("HTTP/3 here"),
            ClientVersion::Http3 if service.layer == Layer::Four => Some("HTTP/3 at layer 4"),
            _ => None,
        };
        refuse(name, lacks)?;
        (self.driver.configure)(self, service, folder)
    }
}

fn driver_name<S: Serializer>(driver: &&'static Driver, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(driver.name)
}

fn driver_named<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static Driver, D::Error> {
    let name = String::deserialize(deserializer)?;
    let all = OWN.into_iter().chain(PEERS).chain([&command::DRIVER, &target::DRIVER]);
    let unknown = || serde::de::Error::custom(format!("no proxy is called {name}"));
    all.into_iter().find(|driver| driver.name == name).ok_or_else(unknown)
}

fn refuse(name: &'static str, what: Option<&'static str>) -> Result<(), Error> {
    what.map_or(Ok(()), |what| Err(Error::Unsupported { name, what }))
}

/// Command to start a proxy, with its configuration files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Launch {
    /// Program and arguments; empty if there is nothing to start.
    pub command: Vec<String>,
    /// Files to write first, with names relative to the folder.
    pub files: Vec<File>,
    /// Requests to send after the start, for proxies that no file configures completely.
    pub settings: Vec<Setting>,
}

impl Launch {
    /// The program with these arguments and one file. `{file}` stands for its path, `{folder}` for the folder's.
    fn with(
        (installed, folder): (&Installed, &Path),
        (name, written): (&str, String),
        arguments: &[&str],
    ) -> Self {
        let filled = |argument: &&str| {
            argument.replace("{file}", &text(&folder.join(name))).replace("{folder}", &text(folder))
        };
        let command = std::iter::once(text(&installed.program)).chain(arguments.iter().map(filled)).collect();
        Self { command, files: vec![File { name: name.to_owned(), text: written }], ..Self::default() }
    }
}

/// Finds a version: the word behind this text.
fn version_behind(build: &str, text: &str) -> Option<String> {
    build.split_once(text)?.1.split_whitespace().next().map(str::to_owned)
}

/// POST request with JSON to a proxy's admin API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    pub address: SocketAddr,
    pub path: String,
    pub body: String,
}

impl Installed {
    /// A proxy that is always available: `direct` or Vanward.
    pub fn own(driver: &'static Driver, own: &OwnProgram) -> Self {
        let (program, version, build) = match driver.role {
            ProxyRole::Direct => Default::default(),
            ProxyRole::Subject | ProxyRole::Peer => {
                (own.program.clone(), own.version.clone(), flags(&own.program))
            }
        };
        let name = driver.name.to_owned();
        let deviation = Deviation::default();
        Self { name, driver, program, version, build, template: CommandTemplate::default(), deviation }
    }

    /// A proxy that is given by its command line.
    pub fn command(name: &str, template: CommandTemplate) -> Self {
        let program = PathBuf::from(template.command.first().map(String::as_str).unwrap_or_default());
        let (version, build) = (template.told_version(), String::new());
        let deviation = Deviation::default();
        Self { name: name.to_owned(), driver: &command::DRIVER, program, version, build, template, deviation }
    }
}

impl Installed {
    /// A service that runs already, at this scheme, host and port.
    pub fn running(name: &str, server: &AgentService) -> Self {
        Self {
            name: name.to_owned(),
            driver: &target::DRIVER,
            program: PathBuf::new(),
            version: String::new(),
            build: String::new(),
            template: CommandTemplate {
                command: vec![server.url.clone(), server.port.to_string()],
                ..CommandTemplate::default()
            },
            deviation: Deviation::default(),
        }
    }

    /// Scheme, host and port of a service that runs already, and the port alone; `None` for a proxy that is started.
    pub(crate) fn target(&self) -> Option<(&str, u16)> {
        match (self.driver.name == target::DRIVER.name, &self.template.command[..]) {
            (true, [url, port]) => Some((url, port.parse().ok()?)),
            _ => None,
        }
    }
}

/// Help text of Vanward's program with its flags: an older program lacks some features.
fn flags(program: &Path) -> String {
    let told = Command::new(program).args(["proxy", "--help"]).output();
    told.map(|told| String::from_utf8_lossy(&told.stdout).into_owned()).unwrap_or_default()
}

/// The proxies of the demo: `direct`, Vanward, and each peer that is installed.
pub fn installed(own: &OwnProgram) -> Vec<Installed> {
    let ours = OWN.map(|driver| Installed::own(driver, own));
    ours.into_iter().chain(DEMO.into_iter().filter_map(find)).collect()
}

/// Peers of the demo: those that every distribution has.
const DEMO: [&Driver; 2] = [&nginx::DRIVER, &haproxy::DRIVER];

/// Names of the demo's peers that are not installed.
pub fn missing(installed: &[Installed]) -> Vec<&'static str> {
    let is_there = |name: &str| installed.iter().any(|each| each.name == name);
    DEMO.into_iter().map(|driver| driver.name).filter(|name| !is_there(name)).collect()
}

/// Whether a plan may use this proxy name.
pub fn is_known(name: &str) -> bool {
    names().contains(&name)
}

/// All proxy names that a plan may use.
pub fn names() -> Vec<&'static str> {
    let ours = [direct::DRIVER.name, vanward::DRIVER.name];
    let peers = PEERS.iter().map(|driver| driver.name);
    ours.into_iter().chain(peers).collect()
}

/// The installed proxies of a plan in its order, and those that are not installed.
pub(crate) fn chosen(wanted: &WantedProxies, own: &OwnProgram) -> (Vec<Installed>, Vec<Absent>) {
    let WantedProxies { names, deviations, .. } = wanted;
    let (mut here, mut absent) = (Vec::new(), Vec::new());
    for name in names {
        match look(name, wanted, own) {
            Ok(installed) => {
                let deviation = deviations.get(name).copied().unwrap_or_default();
                here.push(Installed { deviation, ..installed });
            }
            Err(remedy) => absent.push(Absent { proxy: name.clone(), remedy }),
        }
    }
    (here, absent)
}

/// Finds a proxy by name. Fails with instructions to install it.
fn look(name: &str, wanted: &WantedProxies, own: &OwnProgram) -> Result<Installed, String> {
    if let Some((_, template)) = wanted.commands.iter().find(|(known, _)| known == name) {
        return Ok(Installed::command(name, template.clone()));
    }
    if let Some((_, server)) = wanted.targets.iter().find(|(known, _)| known == name) {
        return Ok(Installed::running(name, server));
    }
    if let Some((_, program)) = wanted.programs.iter().find(|(known, _)| known == name) {
        return variant(name, program);
    }
    if let Some(driver) = OWN.into_iter().find(|driver| driver.name == name) {
        return Ok(Installed::own(driver, own));
    }
    match PEERS.into_iter().find(|driver| driver.name == name) {
        Some(driver) => find(driver).ok_or_else(|| driver.remedy.to_owned()),
        None => Err("give its command line in [command]".to_owned()),
    }
}

/// Every known proxy in the order of [`names`], with its version or instructions to install it.
pub fn census(own: &OwnProgram) -> Vec<(&'static str, Result<Installed, String>)> {
    names()
        .into_iter()
        .filter(|name| *name != direct::DRIVER.name)
        .map(|name| (name, look(name, &WantedProxies::default(), own)))
        .collect()
}

/// Name of the driver in a name such as `nginx` or `nginx@1.22`.
pub(crate) fn driver_of(name: &str) -> &str {
    name.split_once('@').map_or(name, |(driver, _)| driver)
}

/// Another version of a known proxy, by a program in the plan.
fn variant(name: &str, program: &Path) -> Result<Installed, String> {
    let driver = driver_of(name);
    let path = program.display();
    let found = if driver == vanward::DRIVER.name {
        let told = Command::new(program).arg("--version").output();
        let told = told.map_err(|error| format!("{path} cannot be started: {error}"))?;
        let version = String::from_utf8_lossy(&told.stdout);
        let version = version.trim().strip_prefix("vanward ").map(str::to_owned);
        let version = version
            .ok_or_else(|| format!("{path} is not vanward: `{path} --version` does not print that name"))?;
        Installed::own(&vanward::DRIVER, &OwnProgram { program: program.to_owned(), version })
    } else {
        let driver = PEERS.into_iter().find(|known| known.name == driver);
        let told = driver.and_then(|driver| at(driver, program.to_owned()));
        told.ok_or_else(|| format!("{path} cannot be started, or does not print its version"))?
    };
    Ok(Installed { name: name.to_owned(), ..found })
}

/// Finds a peer and asks for its version. `None` if it is not installed or reports no version.
pub fn find(driver: &'static Driver) -> Option<Installed> {
    let (name, _) = driver.program?;
    at(driver, on_path(name)?)
}

/// A peer by its program. `None` if that reports no version.
fn at(driver: &'static Driver, program: PathBuf) -> Option<Installed> {
    let (_, version_argument) = driver.program?;
    let told = Command::new(&program).arg(version_argument).output().ok()?;
    let build = format!("{}{}", String::from_utf8_lossy(&told.stdout), String::from_utf8_lossy(&told.stderr));
    let version = (driver.version)(&build)?;
    let name = driver.name.to_owned();
    let deviation = Deviation::default();
    Some(Installed { name, driver, program, version, build, template: CommandTemplate::default(), deviation })
}

/// Path of a program in PATH or a `sbin` folder, which PATH often lacks for users other than root.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let beyond = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    on_own_path(name).or_else(|| program_in(beyond, name))
}

/// Path of a program in PATH.
pub(crate) fn on_own_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    program_in(env::split_paths(&path), name)
}

fn program_in(folders: impl IntoIterator<Item = PathBuf>, name: &str) -> Option<PathBuf> {
    folders.into_iter().map(|folder| folder.join(name)).find(|candidate| is_program(candidate))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// A path as text, for an argument or a configuration.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
