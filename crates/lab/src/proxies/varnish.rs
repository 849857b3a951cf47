//! Driver of Varnish with a memory cache. It is compared only in cases with a cache.

use std::fmt::Write as _;
use std::path::Path;

use report::results::{File, ProxyRole};

use super::{Driver, Installed, Launch, Service, text};
use crate::error::Error;
use crate::plan::Features;

pub const DRIVER: Driver = Driver {
    name: "varnish",
    role: ProxyRole::Peer,
    program: Some(("varnishd", "-V")),
    remedy: "apt-get install varnish",
    version,
    configure,
};

/// Parses the version from `varnishd (varnish-7.1.1 revision …)`.
fn version(build: &str) -> Option<String> {
    build.split_once("varnish-")?.1.split([' ', ')']).next().map(str::to_owned)
}

fn configure(installed: &Installed, service: &Service, folder: &Path) -> Result<Launch, Error> {
    service.is_plain(DRIVER.name)?;
    service.is_http1(DRIVER.name)?;
    service.keeps_alive_unlogged(DRIVER.name)?;
    let Some(bytes) = service.features.cache_bytes else {
        return Err(Error::Unsupported { name: DRIVER.name, what: "no cache" });
    };
    let passing = Service { features: Features { cache_bytes: None, ..service.features }, ..service.clone() };
    passing.passes_on_only(DRIVER.name)?;
    let mut configuration = "vcl 4.1;\nimport directors;\n".to_owned();
    for (index, origin) in service.origins.iter().enumerate() {
        let (host, port) = (origin.ip(), origin.port());
        let _ = writeln!(
            configuration,
            "backend origin{} {{ .host = \"{host}\"; .port = \"{port}\"; }}",
            index + 1
        );
    }
    configuration += "sub vcl_init {\n    new origins = directors.round_robin();\n";
    for index in 1..=service.origins.len() {
        let _ = writeln!(configuration, "    origins.add_backend(origin{index});");
    }
    configuration += "}\nsub vcl_recv {\n    set req.backend_hint = origins.backend();\n}\n";
    let file = File { name: "lab.vcl".to_owned(), text: configuration };
    let command = ["-F", "-T", "none", "-f"].map(str::to_owned).into_iter().chain([
        text(&folder.join(&file.name)),
        "-a".to_owned(),
        service.listen.to_string(),
        "-n".to_owned(),
        text(&folder.join("varnish")),
        "-s".to_owned(),
        format!("malloc,{bytes}"),
        // Varnish has no setting for cores: a worker is a thread pool.
        "-p".to_owned(),
        format!("thread_pools={}", service.workers),
    ]);
    let command = [text(&installed.program)].into_iter().chain(command).collect();
    Ok(Launch { command, files: vec![file], ..Launch::default() })
}
