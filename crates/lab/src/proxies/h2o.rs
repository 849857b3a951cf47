//! Driver of H2O. Its release 2.2 supports one origin per path, and neither TLS 1.3 nor HTTP/3.

use std::path::Path;

use report::results::{ClientVersion, ProxyRole};

use super::{Driver, Installed, Launch, Service, refuse, text, version_behind};
use crate::error::Error;

pub const DRIVER: Driver = Driver {
    name: "h2o",
    role: ProxyRole::Peer,
    program: Some(("h2o", "-v")),
    remedy: "apt-get install h2o",
    version: |build| version_behind(build, "h2o version "),
    configure,
};

fn configure(installed: &Installed, service: &Service, folder: &Path) -> Result<Launch, Error> {
    service.keeps_alive_unlogged(DRIVER.name)?;
    service.passes_on_only(DRIVER.name)?;
    service.is_http1_or_tls(DRIVER.name)?;
    let is_old = installed.version.starts_with("2.2.");
    let lacks = match service.version {
        ClientVersion::Http3 => "HTTP/3: this release has none",
        ClientVersion::Http1 | ClientVersion::Http2 => "TLS 1.3: this release has none",
    };
    refuse(DRIVER.name, (is_old && service.tls.is_some()).then_some(lacks))?;
    let origin = service.only_origin(DRIVER.name)?;
    let user = if rustix::process::geteuid().is_root() { "user: root\n" } else { "" };
    let ssl = service.tls.as_ref().map_or_else(String::new, |tls| {
        format!(
            "  ssl:\n    certificate-file: {}\n    key-file: {}\n    minimum-version: TLSv1.3\n",
            text(&tls.certificate),
            text(&tls.key)
        )
    });
    // HTTP/3 has a separate UDP socket in each thread.
    let quic = if service.version == ClientVersion::Http3 { "  type: quic\n" } else { "" };
    let configuration = format!(
        "num-threads: {}\nmax-connections: 8192\n{user}pid-file: {}\nerror-log: /dev/stderr\nhttp1-request-timeout: 75\n\
         proxy.timeout.keepalive: 75000\nproxy.emit-x-forwarded-headers: OFF\nproxy.emit-via-header: OFF\n\
         listen:\n{quic}  host: {}\n  port: {}\n{ssl}hosts:\n  default:\n    paths:\n      \"/\":\n\
         \x20       proxy.reverse.url: \"http://{origin}/\"\n",
        service.workers,
        text(&folder.join("h2o.pid")),
        service.listen.ip(),
        service.listen.port(),
    );
    Ok(Launch::with((installed, folder), ("h2o.yaml", configuration), &["-c", "{file}"]))
}
