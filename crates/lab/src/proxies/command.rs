//! Driver of any program, by its command line in the plan: `{listen}`, `{port}`, `{origin}`, `{origins}` and
//! `{workers}` are replaced. It supports no features beside forwarding.

use std::path::Path;

use report::results::Role;

use super::{Driver, Installed, Launch, Service};
use crate::error::Error;

/// Driver that runs the command line of the plan.
pub const DRIVER: Driver =
    Driver { name: "command", role: Role::Peer, program: None, remedy: "", version: |_| None, configure };

fn configure(installed: &Installed, service: &Service, _folder: &Path) -> Result<Launch, Error> {
    service.is_plain(DRIVER.name)?;
    service.is_http1(DRIVER.name)?;
    service.keeps_alive_unlogged(DRIVER.name)?;
    service.passes_on_only(DRIVER.name)?;
    let origins: Vec<String> = service.origins.iter().map(ToString::to_string).collect();
    let filled = |word: &String| {
        word.replace("{listen}", &service.listen.to_string())
            .replace("{port}", &service.listen.port().to_string())
            .replace("{origin}", origins.first().map_or("", String::as_str))
            .replace("{origins}", &origins.join(","))
            .replace("{workers}", &service.workers.to_string())
    };
    let command = installed.template.iter().map(filled).collect();
    Ok(Launch { command, ..Launch::default() })
}
