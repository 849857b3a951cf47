//! A service that runs already, by its URL in the plan. Nothing is started, and only its responses are measured.

use std::path::Path;

use report::results::{Layer, ProxyRole};

use super::{Driver, Installed, LAYER_4, Launch, Service, refuse};
use crate::error::Error;

pub const DRIVER: Driver =
    Driver { name: "target", role: ProxyRole::Peer, program: None, remedy: "", version: |_| None, configure };

fn configure(installed: &Installed, service: &Service, _folder: &Path) -> Result<Launch, Error> {
    service.has_no_features(DRIVER.name)?;
    service.keeps_alive_unlogged(DRIVER.name)?;
    refuse(DRIVER.name, (service.layer == Layer::Four).then_some(LAYER_4))?;
    let is_https = installed.target().is_some_and(|(server, _)| server.starts_with("https://"));
    let refused = match (is_https, service.tls.is_some()) {
        (true, false) => Some("HTTP without TLS"),
        (false, true) => Some("TLS"),
        _ => None,
    };
    refuse(DRIVER.name, refused)?;
    Ok(Launch::default())
}
