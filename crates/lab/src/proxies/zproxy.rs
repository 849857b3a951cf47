//! Driver of zproxy, with a configuration in Pound's language.

use std::path::Path;

use report::results::ProxyRole;

use super::{Driver, Installed, Launch, Service, pound, text};
use crate::error::Error;

pub const DRIVER: Driver = Driver {
    name: "zproxy",
    role: ProxyRole::Peer,
    program: Some(("zproxy", "-V")),
    remedy: "build it from its source, https://github.com/zevenet/zproxy",
    version: pound::version,
    configure,
};

fn configure(installed: &Installed, service: &Service, folder: &Path) -> Result<Launch, Error> {
    service.keeps_alive_unlogged(DRIVER.name)?;
    service.passes_on_only(DRIVER.name)?;
    service.is_http1(DRIVER.name)?;
    let head = format!(
        "LogLevel 0\nThreads {}\nTimeout 60\nConnTO 5\nAlive 30\nClient 75\nThreadModel dynamic\nControl \"{}\"\n",
        service.workers,
        text(&folder.join("control"))
    );
    Ok(Launch::with(
        (installed, folder),
        ("zproxy.cfg", head + &pound::listener(service)),
        &["-D", "-f", "{file}", "-p", "{folder}/zproxy.pid"],
    ))
}
