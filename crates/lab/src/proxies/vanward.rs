//! Driver of Vanward with its defaults: started by flags, or by a file if there is no flag for a setting.

use std::fmt::Write as _;
use std::path::Path;

use report::results::{ClientVersion, File, Layer, OriginProtocol, ProxyRole};

use super::{Driver, Installed, Launch, OriginVerification, Service, text};
use crate::error::Error;
use crate::plan::Features;

/// Runs `vanward proxy`, or `vanward run` with a file.
pub const DRIVER: Driver = Driver {
    name: "vanward",
    role: ProxyRole::Subject,
    program: None,
    remedy: "",
    version: |_| None,
    configure,
};

fn configure(installed: &Installed, service: &Service, folder: &Path) -> Result<Launch, Error> {
    if !service.keep_alive {
        return Err(Error::Unsupported { name: DRIVER.name, what: "keep-alive off" });
    }
    if service.layer == Layer::Four
        || service.upstream != OriginProtocol::Http
        || service.version == ClientVersion::Http3
    {
        return by_file(installed, service, folder);
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

/// Launch with a file, for layer 4, HTTP/3, and origins with TLS or HTTP/2.
pub(crate) fn by_file(installed: &Installed, service: &Service, folder: &Path) -> Result<Launch, Error> {
    service.has_no_features(DRIVER.name)?;
    let mut out = format!("workers = {}\n", service.workers);
    if service.access_log {
        if service.layer == Layer::Four {
            return Err(Error::Unsupported { name: DRIVER.name, what: "an access log at layer 4" });
        }
        let _ = writeln!(out, "[log]\ntarget = {:?}", text(&folder.join("access.log")));
    }
    let _ = writeln!(out, "[[listen]]\naddress = \"{}\"", service.listen);
    if let Some(tls) = &service.tls {
        let _ = writeln!(out, "tls = {{ cert = {:?}, key = {:?} }}", text(&tls.certificate), text(&tls.key));
    }
    if service.version == ClientVersion::Http3 {
        out += "http3 = true\n";
    }
    // At layer 4, clients and servers choose their protocol.
    let (scheme, rest) = match (service.layer, service.upstream, &service.origins_certificate) {
        (Layer::Four, ..) => ("http", String::new()),
        (Layer::Seven, OriginProtocol::Https, Some(OriginVerification { authority, name })) => {
            ("https", format!("tls = {{ ca = {:?}, name = \"{name}\" }}\n", text(authority)))
        }
        (Layer::Seven, OriginProtocol::H2, _) => ("http", "protocol = \"h2\"\n".to_owned()),
        (Layer::Seven, ..) => ("http", String::new()),
    };
    out += match service.layer {
        Layer::Four => "tcp = \"origins\"\n",
        Layer::Seven => "[[route]]\nupstream = \"origins\"\n",
    };
    let servers: Vec<String> =
        service.origins.iter().map(|origin| format!("\"{scheme}://{origin}\"")).collect();
    let _ = write!(out, "[upstream.origins]\nservers = [{}]\n{rest}", servers.join(", "));
    let file = File { name: "vanward.toml".to_owned(), text: out };
    let command = [text(&installed.program), "run".into(), "--config".into(), text(&folder.join(&file.name))];
    Ok(Launch { command: command.to_vec(), files: vec![file], ..Launch::default() })
}
