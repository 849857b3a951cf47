//! Ours, as anybody would start it: the defaults, by flags.

use std::path::Path;

use report::results::Role;

use super::{Driver, Installed, Launch, Service, text};
use crate::error::Error;
use crate::plan::Features;

/// `vanward proxy`.
pub const DRIVER: Driver =
    Driver { name: "vanward", role: Role::Subject, program: None, remedy: "", version: |_| None, configure };

fn configure(installed: &Installed, service: &Service, folder: &Path) -> Result<Launch, Error> {
    if !service.keep_alive {
        return Err(Error::Unsupported { name: DRIVER.name, what: "keep-alive off" });
    }
    let mut command: Vec<String> =
        vec![text(&installed.program), "proxy".into(), "--from".into(), service.listen.to_string()];
    for origin in &service.origins {
        command.extend(["--to".to_owned(), format!("http://{origin}")]);
    }
    if let Some(tls) = &service.tls {
        command.extend(["--cert".to_owned(), text(&tls.certificate), "--key".to_owned(), text(&tls.key)]);
    }
    command.extend(["--workers".to_owned(), service.workers.to_string()]);
    let Features { cache_bytes, delay, rate_bytes_per_second } = service.features;
    let asked = [
        ("--cache", "a cache in memory", cache_bytes.map(|bytes| bytes.to_string())),
        ("--delay", "a delay of requests", delay.map(|delay| format!("{}ms", delay.as_millis()))),
        ("--rate", "a rate for all clients together", rate_bytes_per_second.map(|rate| format!("{rate}B/s"))),
    ];
    for (flag, what, value) in asked {
        let Some(value) = value else { continue };
        if !installed.build.contains(&format!("{flag} <")) {
            return Err(Error::Unsupported { name: DRIVER.name, what });
        }
        command.extend([flag.to_owned(), value]);
    }
    if service.access_log {
        command.extend(["--log".to_owned(), text(&folder.join("access.log"))]);
    }
    Ok(Launch { command, ..Launch::default() })
}
