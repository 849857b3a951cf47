//! No proxy at all: what client and origin cost and manage by themselves.

use std::path::Path;

use report::results::Role;

use super::{Driver, Installed, Launch, Service};
use crate::error::Error;

/// Starts nothing.
pub const DRIVER: Driver =
    Driver { name: "direct", role: Role::Direct, program: None, remedy: "", version: |_| None, configure };

fn configure(_installed: &Installed, _service: &Service, _folder: &Path) -> Result<Launch, Error> {
    Ok(Launch::default())
}
