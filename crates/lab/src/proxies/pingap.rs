//! Driver of Pingap, which uses Pingora.

use std::fmt::Write as _;
use std::path::Path;

use report::results::{File, Role, Version};

use super::{Driver, Installed, Launch, Service, text};
use crate::error::Error;

/// Driver that runs `pingap` with a configuration file.
pub const DRIVER: Driver = Driver {
    name: "pingap",
    role: Role::Peer,
    program: Some(("pingap", "--version")),
    remedy: "cargo install pingap",
    version,
    configure,
};

/// Parses the version from `pingap 0.11.1`.
fn version(build: &str) -> Option<String> {
    build.split_once("pingap ")?.1.split_whitespace().next().map(str::to_owned)
}

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
        service.version == Version::Http2
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
    let file = File { name: "pingap.toml".to_owned(), text: configuration };
    let command = vec![text(&installed.program), "-c".to_owned(), text(&folder.join(&file.name))];
    Ok(Launch { command, files: vec![file], ..Launch::default() })
}
