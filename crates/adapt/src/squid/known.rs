//! Lines that no option comes from: those that need nothing, and those that cannot be said, with the reason.

use crate::Kind;
use crate::sheet::Said;

use Kind::{NeedsNothing, Refused};

/// Names, what becomes of them, why, and what to do instead.
struct Row(&'static [&'static str], Kind, &'static str, &'static str);

const ROWS: &[Row] = &[
    Row(&["include"], NeedsNothing, "its lines were read and are in the result", ""),
    Row(&["acl"], NeedsNothing, "no rule that was taken over goes by it", ""),
    Row(
        &[
            "visible_hostname",
            "unique_hostname",
            "cache_mgr",
            "coredump_dir",
            "pid_filename",
            "cache_effective_user",
            "cache_effective_group",
            "dns_nameservers",
            "dns_v4_first",
            "hosts_file",
            "netdb_filename",
            "logfile_rotate",
            "cache_log",
            "cache_store_log",
            "debug_options",
            "httpd_suppress_version_string",
            "error_directory",
            "error_default_language",
            "pinger_enable",
            "client_db",
            "half_closed_clients",
            "pipeline_prefetch",
            "max_filedescriptors",
            "memory_pools",
            "buffered_logs",
            "positive_dns_ttl",
            "negative_dns_ttl",
            "server_persistent_connections",
            "client_persistent_connections",
            "icp_port",
            "htcp_port",
            "snmp_port",
            "always_direct",
            "never_direct",
            "forwarded_for",
            "client_lifetime",
            "pconn_timeout",
            "quick_abort_min",
            "quick_abort_max",
            "quick_abort_pct",
            "collapsed_forwarding",
            "cpu_affinity_map",
            "dns_timeout",
        ],
        NeedsNothing,
        "it is decided without an option, or by the service manager",
        "",
    ),
    Row(
        &[
            "cache_swap_low",
            "cache_swap_high",
            "cache_replacement_policy",
            "memory_replacement_policy",
            "minimum_object_size",
            "maximum_object_size",
            "maximum_object_size_in_memory",
            "store_dir_select_algorithm",
            "memory_cache_mode",
            "memory_cache_shared",
            "ipcache_size",
            "fqdncache_size",
        ],
        NeedsNothing,
        "the least recently used responses make room, within `memory` and `disk` of [cache]",
        "",
    ),
    Row(&["logformat"], Refused, "formats have other names", "`format` of [log]: docs/logging.md"),
    Row(
        &["auth_param", "external_acl_type", "authenticate_ttl"],
        Refused,
        "there are no helpers",
        "write `auth`, `jwt` or `forward_auth` into the [[route]]",
    ),
    Row(
        &[
            "url_rewrite_program",
            "url_rewrite_children",
            "url_rewrite_access",
            "store_id_program",
            "redirect_program",
        ],
        Refused,
        "there are no helpers",
        "write `rewrite` or `redirect` into the [[route]]",
    ),
    Row(
        &["icap_enable", "icap_service", "adaptation_access", "ecap_enable"],
        Refused,
        "bodies are not sent elsewhere to be changed",
        "leave it to the server",
    ),
    Row(
        &["delay_pools", "delay_class", "delay_access", "delay_parameters"],
        Refused,
        "rates have options of their own",
        "write `rate` into [[listen]] or [[route]]: docs/shaping.md",
    ),
    Row(
        &["follow_x_forwarded_for"],
        Refused,
        "proxies in front are networks",
        "name them in `trusted_proxies`",
    ),
    Row(
        &["deny_info"],
        Refused,
        "no rule that refuses ends with its ACL, or it is a page",
        "write `redirect`, or `error_pages`",
    ),
    Row(
        &["cache_peer"],
        Refused,
        "it is no server (originserver), or no request may go to it",
        "name it in `servers` of [upstream.NAME]",
    ),
    Row(
        &["http_access", "cache", "no_cache", "cache_peer_access", "refresh_pattern"],
        NeedsNothing,
        "a rule before it decides, or no listener answers for servers",
        "",
    ),
    Row(
        &["access_log", "read_timeout", "request_body_max_size", "workers"],
        Refused,
        "its value is not understood",
        "see docs/configuration.md",
    ),
    Row(
        &[
            "request_header_access",
            "reply_header_access",
            "request_header_add",
            "reply_header_add",
            "request_header_replace",
            "reply_header_replace",
        ],
        Refused,
        "fields are removed and set for a route, without variables of Squid",
        "write `request_headers` or `response_headers`",
    ),
    Row(&["via"], NeedsNothing, "it is the default", ""),
    Row(&["http_port", "https_port"], Refused, "it has no address", "write a [[listen]]"),
    Row(
        &["ssl_bump", "sslcrtd_program", "sslproxy_cert_error"],
        Refused,
        "connections of others are not decrypted",
        "leave it to Squid",
    ),
];

/// What a line needs that no option came from.
pub(super) fn known(name: &str) -> Said {
    let said = |kind: Kind, why: &str, instead: &str| (kind, why.to_owned(), instead.to_owned());
    match ROWS.iter().find(|Row(names, ..)| names.contains(&name)) {
        Some(Row(_, kind, why, instead)) => said(*kind, why, instead),
        None => said(
            Refused,
            "`vanward adapt` does not know this line",
            "look for what it does in docs/configuration.md",
        ),
    }
}
