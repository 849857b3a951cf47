//! Driver of Caddy with a Caddyfile, without its admin endpoint and automatic certificates.

use std::path::Path;

use report::results::{ClientVersion, File, ProxyRole};

use super::{Driver, IDLE_MOST, Installed, Launch, Service, text};
use crate::error::Error;

pub const DRIVER: Driver = Driver {
    name: "caddy",
    role: ProxyRole::Peer,
    program: Some(("caddy", "version")),
    remedy: "apt-get install caddy",
    version,
    configure,
};

/// Parses the version from `2.6.2` or `v2.6.2 h1:…`.
fn version(build: &str) -> Option<String> {
    let word = build.split_whitespace().next()?.trim_start_matches('v');
    word.starts_with(|first: char| first.is_ascii_digit()).then(|| word.to_owned())
}

fn configure(installed: &Installed, service: &Service, folder: &Path) -> Result<Launch, Error> {
    service.keeps_alive_unlogged(DRIVER.name)?;
    service.passes_on_only(DRIVER.name)?;
    let (scheme, tls) = match &service.tls {
        None => ("http", String::new()),
        Some(tls) => (
            "https",
            format!(
                "    tls {} {} {{\n        protocols tls1.3\n    }}\n",
                text(&tls.certificate),
                text(&tls.key)
            ),
        ),
    };
    let protocols = match (service.version, &service.tls) {
        (ClientVersion::Http1, _) => "h1",
        (ClientVersion::Http3, _) => "h1 h2 h3",
        (ClientVersion::Http2, Some(_)) => "h1 h2",
        (ClientVersion::Http2, None) => "h1 h2c",
    };
    // A client that connects to an IP address sends no server name. Over QUIC Caddy does not use the address instead.
    let unnamed = match service.version {
        ClientVersion::Http3 => format!("    default_sni {}\n", service.listen.ip()),
        ClientVersion::Http1 | ClientVersion::Http2 => String::new(),
    };
    let origins: Vec<String> = service.origins.iter().map(ToString::to_string).collect();
    let configuration = format!(
        "{{\n    admin off\n    auto_https off\n{unnamed}    servers {{\n        protocols {protocols}\n    }}\n}}\n\
         {scheme}://{} {{\n{tls}    reverse_proxy {} {{\n        lb_policy round_robin\n        transport http {{\n\
         \x20           keepalive_idle_conns_per_host {IDLE_MOST}\n            compression off\n        }}\n    }}\n}}\n",
        service.listen,
        origins.join(" ")
    );
    let file = File { name: "Caddyfile".to_owned(), text: configuration };
    let command = vec![
        "env".to_owned(),
        format!("GOMAXPROCS={}", service.workers),
        // Folder for the last configuration: before 2.7 Caddy cannot be configured not to save it.
        format!("XDG_CONFIG_HOME={}", text(folder)),
        format!("XDG_DATA_HOME={}", text(folder)),
        text(&installed.program),
        "run".to_owned(),
        "--adapter".to_owned(),
        "caddyfile".to_owned(),
        "--config".to_owned(),
        text(&folder.join(&file.name)),
    ];
    Ok(Launch { command, files: vec![file], ..Launch::default() })
}
