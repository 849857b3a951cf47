//! Driver of zproxy, with a configuration in Pound's language.

use std::path::Path;

use report::results::{File, Role};

use super::{Driver, Installed, Launch, Service, pound, text};
use crate::error::Error;

/// Driver that runs `zproxy` in the foreground.
pub const DRIVER: Driver = Driver {
    name: "zproxy",
    role: Role::Peer,
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
    let file = File { name: "zproxy.cfg".to_owned(), text: head + &pound::listener(service) };
    let command = vec![
        text(&installed.program),
        "-D".to_owned(),
        "-f".to_owned(),
        text(&folder.join(&file.name)),
        "-p".to_owned(),
        text(&folder.join("zproxy.pid")),
    ];
    Ok(Launch { command, files: vec![file], ..Launch::default() })
}
