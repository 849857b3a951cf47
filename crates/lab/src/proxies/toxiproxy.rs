//! Driver of Toxiproxy: forwards bytes, with a delay if requested. Its rate limit is per connection, never shared.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use report::results::{File, ProxyRole};

use super::{Driver, Installed, Launch, Service, Setting, refuse, text, version_behind};
use crate::error::Error;
use crate::plan::Features;

pub const DRIVER: Driver = Driver {
    name: "toxiproxy",
    role: ProxyRole::Peer,
    program: Some(("toxiproxy-server", "--version")),
    remedy: "go install github.com/Shopify/toxiproxy/v2/cmd/server@latest, and call it toxiproxy-server",
    version: |build| version_behind(build, "version "),
    configure,
};

fn configure(installed: &Installed, service: &Service, folder: &Path) -> Result<Launch, Error> {
    service.is_plain(DRIVER.name)?;
    service.keeps_alive_unlogged(DRIVER.name)?;
    let passing =
        Service { features: Features { delay: None, ..service.features }, ..service.without_streams() };
    passing.passes_on_only(DRIVER.name)?;
    refuse(DRIVER.name, (service.workers.get() > 1).then_some("a number of workers"))?;
    let origin = service.only_origin(DRIVER.name)?;
    let file = File {
        name: "toxiproxy.json".to_owned(),
        text: format!(
            "[{{\"name\": \"lab\", \"listen\": \"{}\", \"upstream\": \"{origin}\", \"enabled\": true}}]\n",
            service.listen
        ),
    };
    // The proxy's port is probably free at another loopback address, too.
    let control = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), service.listen.port());
    let delay = service.features.delay.map(|delay| Setting {
        address: control,
        path: "/proxies/lab/toxics".to_owned(),
        body: format!(
            "{{\"name\": \"delay\", \"type\": \"latency\", \"stream\": \"upstream\", \"attributes\": {{\"latency\": {}}}}}",
            delay.as_millis()
        ),
    });
    let command = vec![
        "env".to_owned(),
        format!("GOMAXPROCS={}", service.workers),
        "LOG_LEVEL=error".to_owned(),
        text(&installed.program),
        "-host".to_owned(),
        control.ip().to_string(),
        "-port".to_owned(),
        control.port().to_string(),
        "-config".to_owned(),
        text(&folder.join(&file.name)),
    ];
    Ok(Launch { command, files: vec![file], settings: delay.into_iter().collect() })
}
