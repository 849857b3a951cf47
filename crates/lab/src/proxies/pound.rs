//! Driver of Pound. Its fork zproxy reads the same language with some other words.

use std::fmt::Write as _;
use std::path::Path;

use report::results::ProxyRole;

use super::{Driver, Installed, Launch, Service, text};
use crate::error::Error;

pub const DRIVER: Driver = Driver {
    name: "pound",
    role: ProxyRole::Peer,
    program: Some(("pound", "-V")),
    remedy: "apt-get install pound, from Debian 13 on; or build it from its source, https://www.gnu.org.ua/software/pound",
    version,
    configure,
};

/// Parses the version from `pound (GNU Pound) 4.12` or `Version 2.8`.
pub(super) fn version(build: &str) -> Option<String> {
    let is_version =
        |word: &&str| word.starts_with(|first: char| first.is_ascii_digit()) && word.contains('.');
    build.split_whitespace().find(is_version).map(str::to_owned)
}

fn configure(installed: &Installed, service: &Service, folder: &Path) -> Result<Launch, Error> {
    service.keeps_alive_unlogged(DRIVER.name)?;
    service.passes_on_only(DRIVER.name)?;
    service.is_http1(DRIVER.name)?;
    // A thread serves a connection, so the number of threads is not the number of cores.
    let head = "Daemon 0\nLogLevel 0\nAlive 30\nClient 75\nThreads 512\n".to_owned();
    Ok(Launch::with(
        (installed, folder),
        ("pound.cfg", head + &listener(service)),
        &["-f", "{file}", "-p", "{folder}/pound.pid"],
    ))
}

pub(super) fn listener(service: &Service) -> String {
    let kind = if service.tls.is_some() { "ListenHTTPS" } else { "ListenHTTP" };
    let (ip, port) = (service.listen.ip(), service.listen.port());
    let mut out = format!("{kind}\n    Address {ip}\n    Port {port}\n    RewriteLocation 0\n");
    if let Some(tls) = &service.tls {
        let _ = write!(out, "    Cert \"{}\"\n    Disable TLSv1_2\n", text(&tls.pair));
    }
    out.push_str("    Service \"origins\"\n");
    for origin in &service.origins {
        let (ip, port) = (origin.ip(), origin.port());
        let _ =
            write!(out, "        BackEnd\n            Address {ip}\n            Port {port}\n        End\n");
    }
    out.push_str("    End\nEnd\n");
    out
}
