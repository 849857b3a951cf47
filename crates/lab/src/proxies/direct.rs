//! No proxy: shows the cost and the limits of client and origin alone.

use std::path::Path;

use report::results::ProxyRole;

use super::{Driver, Installed, Launch, Service};
use crate::error::Error;

pub const DRIVER: Driver = Driver {
    name: "direct",
    role: ProxyRole::Direct,
    program: None,
    remedy: "",
    version: |_| None,
    configure,
};

fn configure(_installed: &Installed, _service: &Service, _folder: &Path) -> Result<Launch, Error> {
    Ok(Launch::default())
}
