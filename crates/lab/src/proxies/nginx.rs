//! nginx, with buffers that hold a large response whole: it then never writes one to disk.

use std::fmt::Write as _;
use std::path::Path;

use report::results::{File, Role, Version};

use super::{Driver, IDLE_MOST, Installed, Launch, Service, text};
use crate::error::Error;

/// `nginx` in the foreground.
pub const DRIVER: Driver = Driver {
    name: "nginx",
    role: Role::Peer,
    program: Some(("nginx", "-V")),
    remedy: "apt-get install nginx",
    version,
    configure,
};

/// Compiled in by default, and each wants a folder that it may write to; a build can leave it out.
const OPTIONAL_MODULES: [&str; 3] = ["fastcgi", "uwsgi", "scgi"];
/// "Never closes a connection for its age."
const UNLIMITED: u32 = 1_000_000_000;

/// From `nginx version: nginx/1.22.1 (Distribution)`.
fn version(build: &str) -> Option<String> {
    let after = build.split_once("nginx/")?.1;
    after.split_whitespace().next().map(str::to_owned)
}

fn configure(installed: &Installed, service: &Service, folder: &Path) -> Result<Launch, Error> {
    if service.tls.is_some() && !installed.build.contains("--with-http_ssl_module") {
        return Err(Error::Unsupported { name: DRIVER.name, what: "TLS: this build has none" });
    }
    if service.features.delay.is_some() {
        return Err(Error::Unsupported { name: DRIVER.name, what: "a delay of requests" });
    }
    if service.features.rate_bytes_per_second.is_some() {
        // limit_rate holds for each request by itself.
        return Err(Error::Unsupported { name: DRIVER.name, what: "a rate for all clients together" });
    }
    if service.version == Version::Http2 && !installed.build.contains("--with-http_v2_module") {
        return Err(Error::Unsupported { name: DRIVER.name, what: "HTTP/2: this build has none" });
    }
    let file = File { name: "nginx.conf".to_owned(), text: configuration(installed, service) };
    let command = vec![
        text(&installed.program),
        // Every relative path of the file is inside the folder, and so nothing needs root.
        "-p".to_owned(),
        text(folder),
        "-e".to_owned(),
        "stderr".to_owned(),
        "-c".to_owned(),
        text(&folder.join(&file.name)),
    ];
    Ok(Launch { command, files: vec![file], ..Launch::default() })
}

fn configuration(installed: &Installed, service: &Service) -> String {
    let mut out = String::new();
    // Only root may change the user, and the default one may not enter the folder.
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
        // Its files are in the page cache: as near as it comes to memory.
        Some(bytes) => (
            format!(
                "    proxy_cache_path cache keys_zone=lab:10m max_size={bytes} inactive=1h use_temp_path=off;\n"
            ),
            "            proxy_cache lab;\n",
        ),
        None => (String::new(), ""),
    };
    let connection = if service.keep_alive { "\"\"" } else { "close" };
    let (ssl, certificate) = protocol(service);
    let _ = write!(
        out,
        "    }}\n{zone}    server {{\n        listen {} backlog=4096{}{ssl};\n{certificate}        location / {{\n\
         \x20           proxy_pass http://origins;\n            proxy_http_version 1.1;\n\
         \x20           proxy_set_header Connection {connection};\n{cached}        }}\n    }}\n}}\n",
        service.listen,
        // One accept queue a worker: what they are meant to have, once there are several.
        if workers.get() > 1 { " reuseport" } else { "" },
    );
    out
}

/// What a listener speaks: flags of its line, and lines about its certificate.
fn protocol(service: &Service) -> (&'static str, String) {
    match &service.tls {
        None if service.version == Version::Http2 => (" http2", String::new()),
        None => ("", String::new()),
        Some(tls) => (
            match service.version {
                Version::Http1 => " ssl",
                Version::Http2 => " ssl http2",
            },
            format!(
                "        ssl_certificate {};\n        ssl_certificate_key {};\n        ssl_protocols TLSv1.3;\n",
                text(&tls.certificate),
                text(&tls.key)
            ),
        ),
    }
}
