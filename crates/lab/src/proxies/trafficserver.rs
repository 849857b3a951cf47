//! Driver of Apache Traffic Server in a separate folder, without its cache: one origin, HTTP/2 only over TLS.

use std::path::Path;

use report::results::{ClientVersion, File, ProxyRole};

use super::{Driver, Installed, Launch, Service, text, version_behind};
use crate::error::Error;

/// Runs `traffic_server` without its manager.
pub const DRIVER: Driver = Driver {
    name: "trafficserver",
    role: ProxyRole::Peer,
    program: Some(("traffic_server", "--version")),
    remedy: "apt-get install trafficserver",
    version: |build| version_behind(build, "Traffic Server "),
    configure,
};

fn configure(installed: &Installed, service: &Service, folder: &Path) -> Result<Launch, Error> {
    service.keeps_alive_unlogged(DRIVER.name)?;
    service.passes_on_only(DRIVER.name)?;
    service.is_http1_or_tls(DRIVER.name)?;
    let origin = service.only_origin(DRIVER.name)?;
    let file = |name: &str, text: String| File { name: name.to_owned(), text };
    let files = vec![
        file("runroot.yaml", layout(&installed.program, folder)),
        file("records.config", records(service, folder)),
        file("remap.config", format!("map / http://{origin}/\n")),
        file("ssl_multicert.config", certificates(service)),
        file(
            "ip_allow.yaml",
            "ip_allow:\n- apply: in\n  ip_addrs: 127.0.0.0/8\n  action: allow\n  methods: ALL\n".to_owned(),
        ),
        file("storage.config", String::new()),
    ];
    let layout = text(&folder.join("runroot.yaml"));
    let command = vec![text(&installed.program), format!("--run-root={layout}")];
    Ok(Launch { command, files, ..Launch::default() })
}

/// Folder layout: programs and modules as installed, all else in this folder.
fn layout(program: &Path, folder: &Path) -> String {
    let prefix = program.parent().and_then(Path::parent).map_or_else(|| "/usr".to_owned(), text);
    let mut out = format!(
        "prefix: {0}\nexec_prefix: {prefix}\nbindir: {prefix}/bin\nsbindir: {prefix}/sbin\nlibdir: {prefix}/lib\n\
         libexecdir: {prefix}/lib/trafficserver/modules\nincludedir: {prefix}/include\n",
        text(folder)
    );
    for name in ["sysconfdir", "datadir", "localstatedir", "runtimedir", "logdir", "cachedir"] {
        out.push_str(&format!("{name}: {}\n", text(folder)));
    }
    out
}

fn records(service: &Service, folder: &Path) -> String {
    let ssl = if service.tls.is_some() { ":ssl" } else { "" };
    let protocol = if service.version == ClientVersion::Http2 { "http2" } else { "http" };
    let (ip, port) = (service.listen.ip(), service.listen.port());
    let values = [
        ("http.server_ports", format!("STRING {port}:ip-in={ip}:proto={protocol}{ssl}")),
        ("admin.user_id", "STRING #-1".to_owned()),
        ("crash_log_helper", "STRING NULL".to_owned()),
        ("exec_thread.autoconfig", "INT 0".to_owned()),
        ("exec_thread.limit", format!("INT {}", service.workers)),
        ("accept_threads", "INT 0".to_owned()),
        ("log.logging_enabled", "INT 0".to_owned()),
        ("url_remap.remap_required", "INT 1".to_owned()),
        ("http.cache.http", "INT 0".to_owned()),
        ("http.insert_request_via_str", "INT 0".to_owned()),
        ("http.insert_response_via_str", "INT 0".to_owned()),
        ("http.insert_squid_x_forwarded_for", "INT 0".to_owned()),
        ("http.keep_alive_no_activity_timeout_in", "INT 75".to_owned()),
        ("http.keep_alive_no_activity_timeout_out", "INT 75".to_owned()),
        ("net.connections_throttle", "INT 30000".to_owned()),
        ("ssl.server.cert.path", format!("STRING {}", text(folder))),
        ("ssl.server.private_key.path", format!("STRING {}", text(folder))),
        ("ssl.TLSv1_2", "INT 0".to_owned()),
    ];
    values.into_iter().map(|(name, value)| format!("CONFIG proxy.config.{name} {value}\n")).collect()
}

fn certificates(service: &Service) -> String {
    service.tls.as_ref().map_or_else(String::new, |tls| {
        format!("dest_ip=* ssl_cert_name={} ssl_key_name={}\n", text(&tls.certificate), text(&tls.key))
    })
}
