//! Driver of nginx, with buffers that hold a large response, so that nginx never writes one to disk.

use std::fmt::Write as _;
use std::path::Path;

use report::results::{ClientVersion, Layer, OriginProtocol, ProxyRole};

use super::{Driver, IDLE_MOST, Installed, Launch, OriginVerification, Service, text, version_behind};
use crate::error::Error;

pub const DRIVER: Driver = Driver {
    name: "nginx",
    role: ProxyRole::Peer,
    program: Some(("nginx", "-V")),
    remedy: "apt-get install nginx",
    version: |build| version_behind(build, "nginx/"),
    configure,
};

/// Modules of the default build that each need a writable folder; a build can leave them out.
const OPTIONAL_MODULES: [&str; 3] = ["fastcgi", "uwsgi", "scgi"];
/// Value for no limit on the age of a connection.
const UNLIMITED: u32 = 1_000_000_000;
/// Timeout of streams, which may be silent for long.
const STREAM: &str = "1h";

fn configure(installed: &Installed, service: &Service, folder: &Path) -> Result<Launch, Error> {
    if (service.tls.is_some() || service.upstream == OriginProtocol::Https)
        && !installed.build.contains("--with-http_ssl_module")
    {
        return Err(Error::Unsupported { name: DRIVER.name, what: "TLS: this build has none" });
    }
    if service.features.delay.is_some() {
        return Err(Error::Unsupported { name: DRIVER.name, what: "a delay of requests" });
    }
    if service.features.rate_bytes_per_second.is_some() {
        // limit_rate applies to each request separately.
        return Err(Error::Unsupported { name: DRIVER.name, what: "a rate for all clients together" });
    }
    if service.version == ClientVersion::Http2 && !installed.build.contains("--with-http_v2_module") {
        return Err(Error::Unsupported { name: DRIVER.name, what: "HTTP/2: this build has none" });
    }
    if service.version == ClientVersion::Http3 && !installed.build.contains("--with-http_v3_module") {
        return Err(Error::Unsupported { name: DRIVER.name, what: "HTTP/3: this build has none" });
    }
    if service.upstream == OriginProtocol::H2
        && service.layer == Layer::Seven
        && !speaks_h2_to_origins(&installed.version)
    {
        return Err(Error::Unsupported {
            name: DRIVER.name,
            what: "origins over HTTP/2, before nginx 1.29.4",
        });
    }
    if service.layer == Layer::Seven {
        passes_streams(installed, service)?;
    }
    let configuration = match service.layer {
        Layer::Seven => configuration(installed, service),
        Layer::Four => {
            if !passes_on(installed) {
                return Err(Error::Unsupported {
                    name: DRIVER.name,
                    what: "forwarding at layer 4: this build has no stream module",
                });
            }
            if service.access_log {
                return Err(Error::Unsupported { name: DRIVER.name, what: "an access log at layer 4" });
            }
            if service.features.cache_bytes.is_some() {
                return Err(Error::Unsupported { name: DRIVER.name, what: "a cache at layer 4" });
            }
            layer_4(service)
        }
    };
    // Every relative path of the file is inside the folder, so nothing needs root.
    Ok(Launch::with(
        (installed, folder),
        ("nginx.conf", configuration),
        &["-p", "{folder}", "-e", "stderr", "-c", "{file}"],
    ))
}

/// Rejects streams that this build does not forward.
fn passes_streams(installed: &Installed, service: &Service) -> Result<(), Error> {
    let Some(kind) = service.streams else { return Ok(()) };
    let has_no_grpc = installed.build.contains("--without-http_grpc_module");
    let what = match (kind.is_websocket(), kind.is_grpc()) {
        (true, _) if service.version == ClientVersion::Http2 => "WebSockets over HTTP/2",
        (_, true) if has_no_grpc => "gRPC: this build has none",
        _ => return Ok(()),
    };
    Err(Error::Unsupported { name: DRIVER.name, what })
}

fn configuration(installed: &Installed, service: &Service) -> String {
    let mut out = String::new();
    // Only root may change the user, and the default user may not enter the folder.
    if rustix::process::geteuid().is_root() {
        out.push_str("user root;\n");
    }
    let workers = service.workers;
    let log = if service.access_log { "access.log" } else { "off" };
    let _ = write!(
        out,
        "daemon off;\nworker_processes {workers};\npid nginx.pid;\nerror_log stderr warn;\n\
         events {{\n    worker_connections 8192;\n}}\n\
         http {{\n    access_log {log};\n    sendfile on;\n    tcp_nopush on;\n    tcp_nodelay on;\n\
         \x20   client_body_temp_path body;\n    proxy_temp_path proxy;\n"
    );
    for module in OPTIONAL_MODULES {
        if !installed.build.contains(&format!("--without-http_{module}_module")) {
            let _ = writeln!(out, "    {module}_temp_path {module};");
        }
    }
    let client = if service.keep_alive {
        format!("keepalive_timeout 75s;\n    keepalive_requests {UNLIMITED};")
    } else {
        "keepalive_timeout 0;".to_owned()
    };
    let _ = write!(
        out,
        "    {client}\n    proxy_buffer_size 64k;\n    proxy_buffers 8 64k;\n    proxy_busy_buffers_size 128k;\n\
         \x20   upstream origins {{\n"
    );
    for origin in &service.origins {
        let _ = writeln!(out, "        server {origin};");
    }
    if service.keep_alive {
        let _ = writeln!(out, "        keepalive {IDLE_MOST};\n        keepalive_requests {UNLIMITED};");
    }
    let (zone, cached) = match service.features.cache_bytes {
        // nginx caches in files, which are in the page cache: this is closest to memory.
        Some(bytes) => (
            format!(
                "    proxy_cache_path cache keys_zone=lab:10m max_size={bytes} inactive=1h use_temp_path=off;\n"
            ),
            "            proxy_cache lab;\n",
        ),
        None => (String::new(), ""),
    };
    let (before, passed) = passed(service, cached);
    let (ssl, certificate) = protocol(service, &installed.version);
    let _ = write!(
        out,
        "    }}\n{zone}{before}    server {{\n        listen {}{}{ssl};\n{certificate}\
         \x20       location / {{\n{passed}        }}\n    }}\n}}\n",
        service.listen,
        match (service.version, workers.get()) {
            // reuseport sends the datagrams of a connection to its worker.
            (ClientVersion::Http3, _) => " reuseport",
            // An accept queue for each worker, as nginx recommends for several workers.
            (_, 2..) => " backlog=4096 reuseport",
            _ => " backlog=4096",
        },
    );
    out
}

/// Configuration lines before the server, and in its location: how requests and streams are forwarded.
fn passed(service: &Service, cached: &str) -> (&'static str, String) {
    let (scheme, upstream) = upstream(service);
    let (before, connection, streams) = match service.streams {
        Some(kind) if kind.is_grpc() => {
            // Clients decide how long a stream lasts, and how much they send in it.
            let lines = format!(
                "            grpc_pass grpc://origins;\n            grpc_read_timeout {STREAM};\n\
                 \x20           grpc_send_timeout {STREAM};\n            client_max_body_size 0;\n\
                 \x20           client_body_timeout {STREAM};\n"
            );
            return ("", lines);
        }
        Some(kind) if kind.is_websocket() => (
            "    map $http_upgrade $upgraded {\n        default upgrade;\n        '' '';\n    }\n",
            "$upgraded",
            format!(
                "            proxy_set_header Upgrade $http_upgrade;\n            proxy_read_timeout {STREAM};\n\
                 \x20           proxy_send_timeout {STREAM};\n"
            ),
        ),
        Some(_) => (
            "",
            "\"\"",
            format!("            proxy_buffering off;\n            proxy_read_timeout {STREAM};\n"),
        ),
        None if service.keep_alive => ("", "\"\"", String::new()),
        None => ("", "close", String::new()),
    };
    let lines = format!(
        "            proxy_pass {scheme}://origins;\n{upstream}            proxy_set_header Connection {connection};\n\
         {streams}{cached}"
    );
    (before, lines)
}

/// URL scheme of the origins, and configuration lines for their protocol.
fn upstream(service: &Service) -> (&'static str, String) {
    let version = |version| format!("            proxy_http_version {version};\n");
    match (service.upstream, &service.origins_certificate) {
        (OriginProtocol::Https, Some(OriginVerification { authority, name })) => (
            "https",
            format!(
                "{}            proxy_ssl_protocols TLSv1.3;\n            proxy_ssl_verify on;\n\
                 \x20           proxy_ssl_trusted_certificate {};\n            proxy_ssl_name {name};\n\
                 \x20           proxy_ssl_server_name on;\n",
                version("1.1"),
                text(authority)
            ),
        ),
        (OriginProtocol::H2, _) => ("http", version("2")),
        (OriginProtocol::Http | OriginProtocol::Https, _) => ("http", version("1.1")),
    }
}

/// Configuration for layer 4: forwards connections.
fn layer_4(service: &Service) -> String {
    let mut out = String::new();
    if rustix::process::geteuid().is_root() {
        out.push_str("user root;\n");
    }
    let workers = service.workers;
    let _ = write!(
        out,
        "daemon off;\nworker_processes {workers};\npid nginx.pid;\nerror_log stderr warn;\n\
         events {{\n    worker_connections 8192;\n}}\nstream {{\n    upstream origins {{\n"
    );
    for origin in &service.origins {
        let _ = writeln!(out, "        server {origin};");
    }
    let _ = write!(
        out,
        "    }}\n    server {{\n        listen {} backlog=4096{};\n        proxy_pass origins;\n\
         \x20       proxy_buffer_size 64k;\n    }}\n}}\n",
        service.listen,
        if workers.get() > 1 { " reuseport" } else { "" },
    );
    out
}

/// Whether the build supports layer 4; a loadable module (`--with-stream=dynamic`) is a separate package.
pub(super) fn passes_on(installed: &Installed) -> bool {
    installed.build.split_whitespace().any(|argument| argument == "--with-stream")
}

/// Whether this version supports HTTP/2 with origins.
pub(super) fn speaks_h2_to_origins(version: &str) -> bool {
    is_since(version, [1, 29, 4])
}

fn is_since(version: &str, first: [u32; 3]) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let version = [numbers.next(), numbers.next(), numbers.next()].map(|number| number.unwrap_or(0));
    version >= first
}

/// Protocol flags of the listen line, and configuration lines for the certificate.
fn protocol(service: &Service, version: &str) -> (&'static str, String) {
    let is_http2 = service.version == ClientVersion::Http2;
    // HTTP/2 is a flag of the listen line before 1.25.1, and a separate line since.
    let has_line = is_since(version, [1, 25, 1]);
    let http2 = if is_http2 && has_line { "        http2 on;\n" } else { "" };
    match &service.tls {
        Some(tls) if service.version == ClientVersion::Http3 => (
            " quic",
            format!(
                "        ssl_certificate {};\n        ssl_certificate_key {};\n        ssl_protocols TLSv1.3;\n\
                 \x20       quic_gso on;\n",
                text(&tls.certificate),
                text(&tls.key)
            ),
        ),
        None if is_http2 && !has_line => (" http2", String::new()),
        None if is_http2 => ("", http2.to_owned()),
        None => ("", String::new()),
        Some(tls) => (
            if is_http2 && !has_line { " ssl http2" } else { " ssl" },
            format!(
                "{http2}        ssl_certificate {};\n        ssl_certificate_key {};\n        ssl_protocols TLSv1.3;\n",
                text(&tls.certificate),
                text(&tls.key)
            ),
        ),
    }
}
