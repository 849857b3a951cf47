//! Directives that no option comes from: those that need nothing, and those that cannot be said, with the reason.

use crate::Kind;
use crate::sheet::Said;

use Kind::{NeedsNothing, Refused};

/// Names, what becomes of them, why, and what to do instead.
struct Row(&'static [&'static str], Kind, &'static str, &'static str);

const ROWS: &[Row] = &[
    Row(&["import"], NeedsNothing, "what it imports was read and is in the result", ""),
    Row(&["{"], NeedsNothing, "its options stand at the top of vanward.toml", ""),
    Row(&["admin"], NeedsNothing, "`admin` names a Unix socket for `vanward status` and others", ""),
    Row(
        &[
            "debug",
            "log",
            "persist_config",
            "order",
            "storage",
            "default_sni",
            "fallback_sni",
            "local_certs",
            "skip_install_trust",
            "ocsp_stapling",
            "ocsp_interval",
            "storage_clean_interval",
            "renew_interval",
            "auto_https",
            "default_bind",
            "http_port",
            "https_port",
            "pki",
            "cert_issuer",
            "key_type",
            "email",
            "acme_ca",
        ],
        NeedsNothing,
        "it is decided without an option, or by [acme] and [messages]",
        "",
    ),
    Row(
        &[
            "servers",
            "protocols",
            "listener_wrappers",
            "timeouts",
            "max_header_size",
            "enable_full_duplex",
            "log_credentials",
            "keepalive_interval",
            "strict_sni_host",
            "trusted_proxies",
            "read_header",
            "read_body",
            "write",
            "idle",
        ],
        NeedsNothing,
        "listeners have HTTP/1.1 and HTTP/2, and limits and timeouts of their own",
        "",
    ),
    Row(
        &["metrics"],
        Refused,
        "metrics have an address of their own",
        "write `metrics = \"127.0.0.1:9090\"` at the top",
    ),
    Row(
        &["on_demand_tls", "acme_dns", "acme_ca_root", "acme_eab", "preferred_chains", "tls", "acme_server"],
        Refused,
        "certificates have options of their own",
        "see [acme] and [listen.tls]: docs/certificates.md",
    ),
    Row(
        &["handle_errors"],
        Refused,
        "an error page is a file here",
        "write `error_pages = { 404 = \"FILE\", 5xx = \"FILE\" }`",
    ),
    Row(&["map", "vars"], Refused, "there are no variables of one's own", "write a [[route]] for each case"),
    Row(
        &[
            "templates",
            "invoke",
            "method",
            "push",
            "copy_response",
            "copy_response_headers",
            "intercept",
            "fs",
            "log_append",
            "log_name",
            "tracing",
        ],
        Refused,
        "there is nothing like it",
        "leave it to the server; [tracing] sends traces",
    ),
    Row(
        &[
            "events",
            "layer4",
            "cache",
            "rate_limit",
            "webdav",
            "exec",
            "dynamic_dns",
            "security",
            "crowdsec",
            "replace",
            "git",
            "frankenphp",
            "php_server",
            "mercure",
            "vulcain",
        ],
        Refused,
        "modules of Caddy cannot be loaded",
        "look for what it does in docs/configuration.md: `cache` and `rate_limit` are options of [[route]]",
    ),
    Row(
        &[
            "header",
            "request_header",
            "root",
            "redir",
            "rewrite",
            "uri",
            "try_files",
            "basic_auth",
            "basicauth",
            "forward_auth",
            "encode",
            "handle",
            "handle_path",
            "route",
            "respond",
            "error",
            "abort",
            "reverse_proxy",
            "php_fastcgi",
            "file_server",
            "request_body",
            "bind",
            "log_skip",
            "skip_log",
        ],
        Refused,
        "no request comes to it, or it stands in a block that was not taken over",
        "leave it out, or see what is said of the block around it",
    ),
];

/// What a directive needs that no option came from.
pub(super) fn known(name: &str) -> Said {
    let said = |kind: Kind, why: &str, instead: &str| (kind, why.to_owned(), instead.to_owned());
    if name.starts_with('@') {
        return said(NeedsNothing, "no directive that was taken over goes by it", "");
    }
    if name.starts_with('(') {
        return said(NeedsNothing, "it is read where it is imported", "");
    }
    match ROWS.iter().find(|Row(names, ..)| names.contains(&name)) {
        Some(Row(_, kind, why, instead)) => said(*kind, why, instead),
        None => said(
            Refused,
            "`vanward adapt` does not know this line, or the one around it was not taken over",
            "look for what it does in docs/configuration.md",
        ),
    }
}
