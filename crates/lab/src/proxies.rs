//! The proxies that the lab can drive, from one neutral description. A new one is a file and a row of `PEERS`.
//!
//! Each is given its own best settings for the features asked for. Nothing here starts a process but to ask its
//! version.

/// No proxy at all: the client talks to the origin.
pub mod direct;
/// Ours.
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
/// Any other program, by its command line.
pub mod command;

use std::collections::BTreeMap;
use std::env;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;

use report::figure;
use report::judge::Trait;
use report::results::{Absent, File, Layer, Role, Upstream, Version};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::agent::words::Wanted;
use crate::certificate::{self, Certificate};
use crate::error::Error;
use crate::plan::{Deviation, Features, Own};

/// Idle connections to the origins that those keep who have to be told how many: more than any plan here has clients.
const IDLE_MOST: usize = 1024;

/// What few can, as the end of a sentence.
const LAYER_4: &str = "passing on at layer 4";
/// The name in the certificate of the origins.
const ORIGIN_NAME: &str = "localhost";

/// Those that need no looking for.
const OWN: [&Driver; 2] = [&direct::DRIVER, &vanward::DRIVER];

/// The other proxies, in the order of the tables.
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

/// How to drive a proxy.
#[derive(Debug)]
pub struct Driver {
    /// Short, as in tables.
    pub name: &'static str,
    /// Its part in a comparison.
    pub role: Role,
    /// The program's name, and the argument that makes it tell its version; `None` where there is no program.
    pub program: Option<(&'static str, &'static str)>,
    /// How to get it.
    pub remedy: &'static str,
    /// Finds the version in what the program then wrote.
    pub version: fn(&str) -> Option<String>,
    /// Turns the description into a command and its files.
    pub configure: fn(&Installed, &Service, &Path) -> Result<Launch, Error>,
}

/// A proxy that is there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Installed {
    /// Short and unique in a plan.
    pub name: String,
    /// How to drive it.
    #[serde(serialize_with = "driver_name", deserialize_with = "driver_named")]
    pub driver: &'static Driver,
    /// Where it is; empty where there is no program.
    pub program: PathBuf,
    /// As it says itself.
    pub version: String,
    /// All that it said when asked for its version; of ours, what flags it has.
    pub build: String,
    /// The command line of one that is known by that alone.
    pub template: Vec<String>,
    /// What the plan gives it otherwise than the others.
    pub deviation: Deviation,
}

/// What a proxy is to do, in words that fit all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Speaks TLS to clients, with this certificate; `None` is plain HTTP.
    pub tls: Option<Certificate>,
    /// What it speaks with clients: this alone has to work.
    pub version: Version,
    /// The servers behind it, each in turn.
    pub origins: Vec<SocketAddr>,
    /// What they speak.
    pub upstream: Upstream,
    /// The certificate that they show, where they speak TLS.
    pub origins_certificate: Option<PathBuf>,
    /// The layer at which it passes on.
    pub layer: Layer,
    /// Worker threads or processes.
    pub workers: NonZeroUsize,
    /// Whether connections stay open between requests, on both sides.
    pub keep_alive: bool,
    /// Whether each request is logged, to `access.log` in the proxy's folder.
    pub access_log: bool,
    /// What it does beside passing requests on.
    pub features: Features,
    /// The target of all requests, path and query; `None` where they have many.
    pub target: Option<String>,
}

impl Service {
    /// Refuses, for one that only passes requests on to servers of plain HTTP/1.1, what is asked for beside that.
    fn passes_on_only(&self, name: &'static str) -> Result<(), Error> {
        self.has_no_features(name)?;
        let upstream = match self.upstream {
            Upstream::Http => None,
            Upstream::Https => Some("origins over TLS"),
            Upstream::H2 => Some("origins over HTTP/2"),
        };
        refuse(name, (self.layer == Layer::Four).then_some(LAYER_4).or(upstream))
    }

    /// Refuses, for one that only passes on, what is asked for beside that.
    fn has_no_features(&self, name: &'static str) -> Result<(), Error> {
        let Features { cache_bytes, delay, rate_bytes_per_second } = self.features;
        let cache = cache_bytes.map(|_| "a cache in memory");
        let delay = delay.map(|_| "a delay of requests");
        let rate = rate_bytes_per_second.map(|_| "a rate for all clients together");
        refuse(name, cache.or(delay).or(rate))
    }

    /// What clients trust: the certificate of whoever ends their TLS, which at layer 4 are the origins.
    pub(crate) fn trusted(&self) -> Option<&Path> {
        match &self.tls {
            Some(tls) => Some(&tls.certificate),
            None => self.origins_certificate.as_deref().filter(|_| self.layer == Layer::Four),
        }
    }

    /// Refuses, for one whose configuration here is for connections that are kept, other kinds, and logs.
    fn keeps_alive_unlogged(&self, name: &'static str) -> Result<(), Error> {
        let log = self.access_log.then_some("an access log to a file");
        refuse(name, log.or((!self.keep_alive).then_some("keep-alive off")))
    }

    /// The one origin, for those that cannot balance here.
    fn only_origin(&self, name: &'static str) -> Result<SocketAddr, Error> {
        match self.origins[..] {
            [origin] => Ok(origin),
            _ => Err(Error::Unsupported { name, what: "several origins" }),
        }
    }

    /// Refuses HTTP/2.
    fn is_http1(&self, name: &'static str) -> Result<(), Error> {
        refuse(name, (self.version == Version::Http2).then_some("HTTP/2"))
    }

    /// Refuses HTTP/2 in the clear, which few can.
    fn is_http1_or_tls(&self, name: &'static str) -> Result<(), Error> {
        let is_clear = self.version == Version::Http2 && self.tls.is_none();
        refuse(name, is_clear.then_some("HTTP/2 without TLS"))
    }

    /// What it is given otherwise than the others of a plan.
    pub(crate) fn deviating(self, deviation: Deviation) -> Self {
        Self {
            workers: deviation.workers.unwrap_or(self.workers),
            access_log: deviation.access_log.unwrap_or(self.access_log),
            keep_alive: deviation.keep_alive.unwrap_or(self.keep_alive),
            ..self
        }
    }

    /// What has to be alike for figures to be compared. The generator asks for no compression.
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

    /// What is spoken on either side, as a phrase.
    fn protocols(&self) -> String {
        let clients = match self.version {
            Version::Http1 => "HTTP/1.1",
            Version::Http2 => "HTTP/2",
        };
        let origins = match self.upstream {
            Upstream::Http => "HTTP/1.1",
            Upstream::Https => "HTTP/1.1 over TLS, verified,",
            Upstream::H2 => "HTTP/2",
        };
        match self.layer {
            Layer::Four => format!("{clients} passed on at layer 4, as the bytes of a connection"),
            Layer::Seven if clients == origins => format!("{clients} on both sides"),
            Layer::Seven => format!("{clients} from clients, {origins} to the origins"),
        }
    }

    /// Refuses TLS.
    fn is_plain(&self, name: &'static str) -> Result<(), Error> {
        refuse(name, self.tls.as_ref().map(|_| "TLS"))
    }

    /// What is alike for every proxy that is given this, a phrase each.
    pub fn features(&self) -> Vec<String> {
        let mut features = vec![
            self.protocols(),
            figure::things(self.workers.get(), "worker"),
            format!("{} in turn", figure::things(self.origins.len(), "origin")),
            format!("keep-alive {} both sides", if self.keep_alive { "on" } else { "off on" }),
            format!("access log {}", if self.access_log { "to a file" } else { "off" }),
            "no load shed".to_owned(),
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

/// A driver, by its name.
fn driver_name<S: Serializer>(driver: &&'static Driver, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(driver.name)
}

fn driver_named<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static Driver, D::Error> {
    let name = String::deserialize(deserializer)?;
    let all = OWN.into_iter().chain(PEERS).chain([&command::DRIVER]);
    let unknown = || serde::de::Error::custom(format!("no proxy is called {name}"));
    all.into_iter().find(|driver| driver.name == name).ok_or_else(unknown)
}

fn refuse(name: &'static str, what: Option<&'static str>) -> Result<(), Error> {
    what.map_or(Ok(()), |what| Err(Error::Unsupported { name, what }))
}

/// A command, and the files that have to be there first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Launch {
    /// Program and arguments; empty where there is nothing to start.
    pub command: Vec<String>,
    /// Named relative to the folder.
    pub files: Vec<File>,
    /// What it is told once it runs, for those that no file tells everything.
    pub settings: Vec<Setting>,
}

/// A POST of JSON to a proxy's own interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Where that listens.
    pub address: SocketAddr,
    /// What is set.
    pub path: String,
    /// And to what.
    pub body: String,
}

impl Installed {
    /// One that needs no looking for: `direct`, and our own binary.
    pub fn own(driver: &'static Driver, own: &Own) -> Self {
        let (program, version, build) = match driver.role {
            Role::Direct => Default::default(),
            Role::Subject | Role::Peer => (own.program.clone(), own.version.clone(), flags(&own.program)),
        };
        let name = driver.name.to_owned();
        let deviation = Deviation::default();
        Self { name, driver, program, version, build, template: Vec::new(), deviation }
    }

    /// Any program, by its command line.
    pub fn command(name: &str, template: Vec<String>) -> Self {
        let program = PathBuf::from(template.first().map(String::as_str).unwrap_or_default());
        let (version, build) = (String::new(), String::new());
        let deviation = Deviation::default();
        Self { name: name.to_owned(), driver: &command::DRIVER, program, version, build, template, deviation }
    }
}

/// What our proxy says of its flags: an older binary lacks some, and then cannot do what they do.
fn flags(program: &Path) -> String {
    let told = Command::new(program).args(["proxy", "--help"]).output();
    told.map(|told| String::from_utf8_lossy(&told.stdout).into_owned()).unwrap_or_default()
}

/// `direct`, ours, and each peer of the demo that is found.
pub fn installed(own: &Own) -> Vec<Installed> {
    let ours = OWN.map(|driver| Installed::own(driver, own));
    ours.into_iter().chain(DEMO.into_iter().filter_map(find)).collect()
}

/// The peers of the demo: those that every distribution has.
const DEMO: [&Driver; 2] = [&nginx::DRIVER, &haproxy::DRIVER];

/// The names of the demo's peers that are not installed.
pub fn missing(installed: &[Installed]) -> Vec<&'static str> {
    let is_there = |name: &str| installed.iter().any(|each| each.name == name);
    DEMO.into_iter().map(|driver| driver.name).filter(|name| !is_there(name)).collect()
}

/// Whether a plan may name it.
pub fn is_known(name: &str) -> bool {
    names().contains(&name)
}

/// All names that a plan may have.
pub fn names() -> Vec<&'static str> {
    let ours = [direct::DRIVER.name, vanward::DRIVER.name];
    let peers = PEERS.iter().map(|driver| driver.name);
    ours.into_iter().chain(peers).collect()
}

/// Those of a plan that are here, in its order, and those that are not.
pub(crate) fn chosen(wanted: &Wanted, own: &Own) -> (Vec<Installed>, Vec<Absent>) {
    let Wanted { names, commands, deviations } = wanted;
    let (mut here, mut absent) = (Vec::new(), Vec::new());
    for name in names {
        match look(name, commands, own) {
            Ok(installed) => {
                let deviation = deviations.get(name).copied().unwrap_or_default();
                here.push(Installed { deviation, ..installed });
            }
            Err(remedy) => absent.push(Absent { proxy: name.clone(), remedy }),
        }
    }
    (here, absent)
}

/// One by its name, or how to get it.
fn look(name: &str, commands: &[(String, Vec<String>)], own: &Own) -> Result<Installed, String> {
    if let Some((_, template)) = commands.iter().find(|(known, _)| known == name) {
        return Ok(Installed::command(name, template.clone()));
    }
    if let Some(driver) = OWN.into_iter().find(|driver| driver.name == name) {
        return Ok(Installed::own(driver, own));
    }
    match PEERS.into_iter().find(|driver| driver.name == name) {
        Some(driver) => find(driver).ok_or_else(|| driver.remedy.to_owned()),
        None => Err("give its command line in [command]".to_owned()),
    }
}

/// Each proxy that is known, in the order of [`names`], with its version or how to get it.
pub fn census(own: &Own) -> Vec<(&'static str, Result<Installed, String>)> {
    names()
        .into_iter()
        .filter(|name| *name != direct::DRIVER.name)
        .map(|name| (name, look(name, &[], own)))
        .collect()
}

/// Looks for a peer and asks its version; one that can't tell is not used.
pub fn find(driver: &'static Driver) -> Option<Installed> {
    let (name, version_argument) = driver.program?;
    let program = on_path(name)?;
    let told = Command::new(&program).arg(version_argument).output().ok()?;
    let build = format!("{}{}", String::from_utf8_lossy(&told.stdout), String::from_utf8_lossy(&told.stderr));
    let version = (driver.version)(&build)?;
    let name = driver.name.to_owned();
    let deviation = Deviation::default();
    Some(Installed { name, driver, program, version, build, template: Vec::new(), deviation })
}

/// Servers are often in `sbin`, which is not on the path of people without root.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let beyond = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    on_own_path(name).or_else(|| program_in(beyond, name))
}

/// Where a program is that is started by its name alone.
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

/// A path as an argument or in a configuration, which are text.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
