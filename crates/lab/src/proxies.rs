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

use std::env;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;

use report::results::{File, Role};

use crate::certificate::{self, Certificate};
use crate::error::Error;
use crate::plan::Own;

/// The other proxies, in the order of the tables.
pub const PEERS: [&Driver; 2] = [&nginx::DRIVER, &haproxy::DRIVER];

/// How to drive a proxy.
#[derive(Debug)]
pub struct Driver {
    /// Short, as in tables.
    pub name: &'static str,
    /// Its part in a comparison.
    pub role: Role,
    /// The program's name, and the argument that makes it tell its version; `None` where there is no program.
    pub program: Option<(&'static str, &'static str)>,
    /// Finds the version in what the program then wrote.
    pub version: fn(&str) -> Option<String>,
    /// Turns the description into a command and its files.
    pub configure: fn(&Installed, &Service, &Path) -> Result<Launch, Error>,
}

/// A proxy that is there.
#[derive(Debug, Clone)]
pub struct Installed {
    /// How to drive it.
    pub driver: &'static Driver,
    /// Where it is; empty where there is no program.
    pub program: PathBuf,
    /// As it says itself.
    pub version: String,
    /// All that it said when asked for its version.
    pub build: String,
}

/// What a proxy is to do, in words that fit all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Speaks TLS to clients, with this certificate; `None` is plain HTTP.
    pub tls: Option<Certificate>,
    /// The servers behind it, each in turn.
    pub origins: Vec<SocketAddr>,
    /// Worker threads or processes.
    pub workers: NonZeroUsize,
    /// Whether connections stay open between requests, on both sides.
    pub keep_alive: bool,
    /// Whether each request is logged, to `access.log` in the proxy's folder.
    pub access_log: bool,
}

impl Service {
    /// What is alike for every proxy that is given this, a phrase each.
    pub fn features(&self) -> Vec<String> {
        let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let mut features = vec![
            "HTTP/1.1 on both sides".to_owned(),
            count(self.workers.get(), "worker"),
            format!("{} in turn", count(self.origins.len(), "origin")),
            format!("keep-alive {} both sides", if self.keep_alive { "on" } else { "off on" }),
            format!("access log {}", if self.access_log { "to a file" } else { "off" }),
        ];
        if self.tls.is_some() {
            features.push(format!(
                "HTTPS: {}, {}, one ECDSA P-256 certificate for all, plain HTTP to the origins",
                certificate::VERSION,
                certificate::CIPHER
            ));
        }
        features
    }
}

/// A command, and the files that have to be there first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Launch {
    /// Program and arguments; empty where there is nothing to start.
    pub command: Vec<String>,
    /// Named relative to the folder.
    pub files: Vec<File>,
}

impl Installed {
    /// One that needs no looking for: `direct`, and our own binary.
    pub fn own(driver: &'static Driver, own: &Own) -> Self {
        let (program, version) = match driver.role {
            Role::Direct => (PathBuf::new(), String::new()),
            Role::Subject | Role::Peer => (own.program.clone(), own.version.clone()),
        };
        Self { driver, program, version, build: String::new() }
    }
}

/// `direct`, ours, and each peer that is found.
pub fn installed(own: &Own) -> Vec<Installed> {
    let ours = [&direct::DRIVER, &vanward::DRIVER].map(|driver| Installed::own(driver, own));
    ours.into_iter().chain(PEERS.into_iter().filter_map(find)).collect()
}

/// The names of the peers that are not installed.
pub fn missing(installed: &[Installed]) -> Vec<&'static str> {
    let is_there = |name: &str| installed.iter().any(|each| each.driver.name == name);
    PEERS.into_iter().map(|driver| driver.name).filter(|name| !is_there(name)).collect()
}

/// Looks for a peer and asks its version; one that can't tell is not used.
pub fn find(driver: &'static Driver) -> Option<Installed> {
    let (name, version_argument) = driver.program?;
    let program = on_path(name)?;
    let told = Command::new(&program).arg(version_argument).output().ok()?;
    let build = format!("{}{}", String::from_utf8_lossy(&told.stdout), String::from_utf8_lossy(&told.stderr));
    let version = (driver.version)(&build)?;
    Some(Installed { driver, program, version, build })
}

/// Servers are often in `sbin`, which is not on the path of people without root.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let beyond = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&path)
        .chain(beyond)
        .map(|folder| folder.join(name))
        .find(|candidate| is_program(candidate))
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
