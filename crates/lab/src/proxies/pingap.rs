//! Driver of Pingap, which uses Pingora.

use std::fmt::Write as _;
use std::path::Path;

use report::results::{ClientVersion, ProxyRole};

use super::{Driver, Installed, Launch, Service, text, version_behind};
use crate::error::Error;

pub const DRIVER: Driver = Driver {
    name: "pingap",
    role: ProxyRole::Peer,
    program: Some(("pingap", "--version")),
    remedy: "cargo install pingap",
    version: |build| version_behind(build, "pingap "),
    configure,
};

fn configure(installed: &Installed, service: &Service, folder: &Path) -> Result<Launch, Error> {
    service.keeps_alive_unlogged(DRIVER.name)?;
    service.passes_on_only(DRIVER.name)?;
    let origins: Vec<String> = service.origins.iter().map(|origin| format!("\"{origin}\"")).collect();
    let mut configuration = format!(
        "[upstreams.origins]\naddrs = [{}]\nalgo = \"round_robin\"\n\n[locations.all]\npath = \"/\"\nupstream = \"origins\"\n\n\
         [servers.lab]\naddr = \"{}\"\nlocations = [\"all\"]\nthreads = {}\nenabled_h2 = {}\n",
        origins.join(", "),
        service.listen,
        service.workers,
        service.version == ClientVersion::Http2
    );
    if let Some(tls) = &service.tls {
        let _ = write!(
            configuration,
            "global_certificates = true\ntls_min_version = \"tlsv1.3\"\n\n[certificates.lab]\ntls_cert = \"{}\"\ntls_key = \"{}\"\n\
             is_default = true\n",
            text(&tls.certificate),
            text(&tls.key)
        );
    }
    Ok(Launch::with((installed, folder), ("pingap.toml", configuration), &["-c", "{file}"]))
}
