//! Driver of HAProxy: clients share connections to the origins, and the kernel splices bodies.

use std::fmt::Write as _;
use std::path::Path;

use report::results::{ClientVersion, Layer, OriginProtocol, ProxyRole};

use super::{Driver, Installed, Launch, OriginVerification, Service, text};
use crate::error::Error;

pub const DRIVER: Driver = Driver {
    name: "haproxy",
    role: ProxyRole::Peer,
    program: Some(("haproxy", "-vv")),
    remedy: "apt-get install haproxy",
    version,
    configure,
};

/// Parses the version from `HAProxy version 2.6.12-1 2023/12/16 - https://…`; older programs print `HA-Proxy`.
fn version(build: &str) -> Option<String> {
    let mut words = build.split_whitespace();
    words.next().filter(|word| word.to_ascii_lowercase().starts_with("ha"))?;
    words.next().filter(|word| *word == "version")?;
    words.next().map(str::to_owned)
}

fn configure(installed: &Installed, service: &Service, folder: &Path) -> Result<Launch, Error> {
    if service.access_log {
        // HAProxy logs only to syslog or a descriptor; a file would need another program.
        return Err(Error::Unsupported { name: DRIVER.name, what: "an access log to a file" });
    }
    service.has_no_features(DRIVER.name)?;
    if (service.tls.is_some() || service.upstream == OriginProtocol::Https)
        && installed.build.contains("-OPENSSL ")
    {
        return Err(Error::Unsupported { name: DRIVER.name, what: "TLS: this build has none" });
    }
    if service.version == ClientVersion::Http3 && !installed.build.contains("+QUIC ") {
        return Err(Error::Unsupported { name: DRIVER.name, what: "HTTP/3: this build has none" });
    }
    Ok(Launch::with(
        (installed, folder),
        ("haproxy.cfg", configuration(installed, service)),
        &["-db", "-f", "{file}"],
    ))
}

fn configuration(installed: &Installed, service: &Service) -> String {
    if service.layer == Layer::Four {
        return layer_4(installed, service);
    }
    let (client, server) = if service.keep_alive {
        ("option http-keep-alive", "    http-reuse always\n")
    } else {
        ("option httpclose", "")
    };
    // With a TLS library without a QUIC interface, QUIC needs this option, and has no early data.
    let quic =
        match service.version == ClientVersion::Http3 && installed.build.contains("+QUIC_OPENSSL_COMPAT") {
            true => "    limited-quic\n",
            false => "",
        };
    let mut out = format!(
        "global\n    nbthread {}\n    maxconn 4000\n{quic}\
         defaults\n    mode http\n    {client}\n{server}    timeout connect 5s\n    timeout client 60s\n\
         \x20   timeout server 60s\n    timeout http-keep-alive 75s\n",
        service.workers
    );
    // A build without splicing rejects these options.
    if !installed.build.contains("-LINUX_SPLICE") {
        out.push_str("    option splice-request\n    option splice-response\n");
    }
    if let Some(kind) = service.streams {
        // Messages are short, and must not be delayed.
        out.push_str("    option http-no-delay\n");
        // Other streams are requests, for which the timeouts above hold: 60 s without a message.
        out.push_str(if kind.is_websocket() { "    timeout tunnel 1h\n" } else { "" });
    }
    let ssl = match (&service.tls, service.version) {
        (None, ClientVersion::Http1) => String::new(),
        (None, ClientVersion::Http2 | ClientVersion::Http3) => " proto h2".to_owned(),
        (Some(tls), version) => {
            let protocol = match version {
                ClientVersion::Http1 => "http/1.1",
                ClientVersion::Http2 => "h2",
                ClientVersion::Http3 => "h3",
            };
            format!(" ssl crt {} ssl-min-ver TLSv1.3 alpn {protocol}", text(&tls.pair))
        }
    };
    let socket = match (service.version, service.listen.is_ipv6()) {
        (ClientVersion::Http3, false) => "quic4@",
        (ClientVersion::Http3, true) => "quic6@",
        _ => "",
    };
    let _ = write!(
        out,
        "frontend clients\n    bind {socket}{}{ssl}\n    default_backend origins\nbackend origins\n    balance roundrobin\n",
        service.listen
    );
    for (index, origin) in service.origins.iter().enumerate() {
        let _ =
            writeln!(out, "    server origin{} {origin} pool-max-conn -1{}", index + 1, upstream(service));
    }
    out
}

/// Options of a server line for the protocol of the origins.
fn upstream(service: &Service) -> String {
    match (service.upstream, &service.origins_certificate) {
        (OriginProtocol::Https, Some(OriginVerification { authority, name })) => {
            let ca = text(authority);
            format!(" ssl verify required ca-file {ca} sni str({name}) verifyhost {name} alpn http/1.1")
        }
        (OriginProtocol::H2, _) => " proto h2".to_owned(),
        (OriginProtocol::Http | OriginProtocol::Https, _) => String::new(),
    }
}

/// Configuration for layer 4: forwards connections, with splicing in the kernel.
fn layer_4(installed: &Installed, service: &Service) -> String {
    let splice = if installed.build.contains("-LINUX_SPLICE") {
        ""
    } else {
        "    option splice-request\n    option splice-response\n"
    };
    let mut out = format!(
        "global\n    nbthread {}\n    maxconn 4000\n\
         defaults\n    mode tcp\n    timeout connect 5s\n    timeout client 60s\n    timeout server 60s\n{splice}\
         frontend clients\n    bind {}\n    default_backend origins\nbackend origins\n    balance roundrobin\n",
        service.workers, service.listen
    );
    for (index, origin) in service.origins.iter().enumerate() {
        let _ = writeln!(out, "    server origin{} {origin}", index + 1);
    }
    out
}
