//! Names of options in other proxies, for hints to users who know them.
//!
//! A hint names options as "`OPTION` of TABLE"; a test checks that they exist.

/// Names in other proxies for one thing, and its name here.
struct Foreign {
    names: &'static [&'static str],
    here: &'static str,
}

const fn foreign(names: &'static [&'static str], here: &'static str) -> Foreign {
    Foreign { names, here }
}

/// In lower case, with `_` for each `-`, and a space between two words.
const KEYS: &[Foreign] = &[
    // Addresses and routes.
    foreign(
        &["port", "bind", "http_port", "https_port", "listen_address", "entrypoints", "entrypoint"],
        "here it is `address` of [[listen]]",
    ),
    foreign(
        &["frontend", "server_block", "virtualhost", "virtual_hosts", "filter_chains", "vhost"],
        "here [[listen]] has the address, and each [[route]] the host, the path and where they lead",
    ),
    foreign(
        &["server_name", "hostname", "hosts", "domains", "domain", "hdr(host)", "serveralias", "servername"],
        "here it is `host` of [[route]]",
    ),
    foreign(
        &["location", "routers", "router", "handle", "handle_path", "routes", "acl", "match", "matcher"],
        "here each is a [[route]], with `host`, `path`, `methods`, `headers` and more",
    ),
    foreign(&["rule", "prefix", "path_prefix", "pathprefix"], "here it is `path` of [[route]]"),
    foreign(
        &[
            "proxy_pass",
            "reverse_proxy",
            "proxypass",
            "default_backend",
            "use_backend",
            "service",
            "cluster",
            "pass",
            "to",
        ],
        "here it is `upstream` of [[route]], and the URLs are `servers` of [upstream.NAME]",
    ),
    foreign(
        &[
            "backend",
            "backends",
            "services",
            "clusters",
            "cache_peer",
            "loadbalancer",
            "load_balancer",
            "upstreams",
            "director",
            "pool_members",
            "balancer",
        ],
        "here it is [upstream.NAME], with `servers`",
    ),
    foreign(
        &["server", "endpoints", "lb_endpoints", "load_assignment", "member"],
        "here they are `servers` of [upstream.NAME]: [\"http://127.0.0.1:9000\"]",
    ),
    foreign(&["stream", "mode", "tcp_proxy"], "`tcp` of [[listen]] forwards other protocols than HTTP"),
    foreign(
        &["return", "redir", "http_request redirect", "redirect_scheme"],
        "here it is `redirect` or `respond` of [[route]], or `redirect_to_https` of [[listen]]",
    ),
    foreign(
        &[
            "real_ip_header",
            "set_real_ip_from",
            "trusted_ips",
            "forwardedheaders",
            "option forwardfor",
            "xff_num_trusted_hops",
        ],
        "servers always get the client's address; `trusted_proxies` at the top level names proxies whose \
         fields count",
    ),
    foreign(
        &["root", "alias", "try_files", "file_server", "index", "documentroot"],
        "here it is `files` of [[route]]: { root = \"/srv/www\" }",
    ),
    foreign(
        &["include", "import"],
        "here it is `include` of the file, with paths and patterns of TOML files",
    ),
    foreign(
        &[
            "http",
            "events",
            "global",
            "defaults",
            "static_resources",
            "dynamic_resources",
            "providers",
            "apps",
        ],
        "options need no block around them: they stand at the top level and in tables such as [[listen]], \
         [[route]] and [upstream.NAME]",
    ),
    // TLS.
    foreign(
        &["ssl_certificate", "crt", "certfile", "tls_cert", "certificate", "ssl_certificate_file"],
        "here it is `tls` of [[listen]]: { cert = \"…\", key = \"…\" }",
    ),
    foreign(
        &["ssl_certificate_key", "keyfile", "tls_key", "certificate_key"],
        "here it is `tls` of [[listen]]: { cert = \"…\", key = \"…\" }",
    ),
    foreign(
        &["ssl", "ssl_protocols", "ssl_ciphers", "ciphers", "tls_minimum_protocol_version"],
        "here they are `preset`, `min_version` and `ciphers` in `tls` of [[listen]]; the oldest version is \
         TLS 1.2",
    ),
    foreign(
        &["email", "mail", "acme_email", "account_email"],
        "here it is `contact` of [acme]: [\"admin@example.com\"]",
    ),
    foreign(
        &["certresolver", "acme", "letsencrypt", "acme_ca"],
        "here it is `certificates = \"auto\"` in `tls` of [[listen]], with the authority in [acme]",
    ),
    foreign(
        &["proxy_ssl_verify", "ca_file", "insecureskipverify", "proxy_ssl_trusted_certificate", "verify"],
        "`tls` of [upstream.NAME] sets how servers are verified",
    ),
    // Balancing and health.
    foreign(
        &["least_conn", "ip_hash", "lb_policy", "lb_algorithm", "hash", "random", "lbpolicy", "algorithm"],
        "here it is `balance` of [upstream.NAME]",
    ),
    foreign(
        &["max_fails", "outlier_detection", "observe", "max_fails_timeout", "passive_health_check"],
        "here it is `eject` of [upstream.NAME], or `breaker` of [upstream.NAME]",
    ),
    foreign(
        &["fail_timeout", "fail_duration", "base_ejection_time"],
        "here it is `eject` of [upstream.NAME], with `base` for how long",
    ),
    foreign(
        &["circuit_breakers", "circuitbreaker", "circuit_breaker", "circuit"],
        "here it is `breaker` of [upstream.NAME]",
    ),
    foreign(
        &[
            "health_check",
            "healthcheck",
            "health_checks",
            "health_uri",
            "option httpchk",
            "httpchk",
            "probe",
            "health_path",
        ],
        "here it is `check` of [upstream.NAME]",
    ),
    foreign(
        &["backup", "down", "disabled"],
        "backup servers have a higher `priority` number, as tables in `servers` of [upstream.NAME]",
    ),
    foreign(
        &[
            "proxy_next_upstream",
            "retries",
            "retry_policy",
            "redispatch",
            "option redispatch",
            "retry_on",
            "lb_try_duration",
        ],
        "here it is `retry` of [upstream.NAME] or `retry` of [[route]]",
    ),
    foreign(
        &["keepalive", "http_reuse", "idle_connections", "maxidleconnsperhost", "pool_size"],
        "here it is `pool` of [upstream.NAME]",
    ),
    foreign(
        &["stick_table", "stick", "sticky_cookie", "cookie", "session_affinity", "affinity", "stickiness"],
        "here it is `sticky` of [upstream.NAME]",
    ),
    foreign(
        &["maxconn", "worker_connections", "max_connections"],
        "here it is `connections` of [limits], and for servers `pool` of [upstream.NAME]",
    ),
    foreign(
        &["resolver", "resolvers", "dns_lookup_family"],
        "names are resolved with the system's resolv.conf; `dns` of [upstream.NAME] sets how several \
         addresses are used",
    ),
    // Waits and limits.
    foreign(
        &[
            "timeout",
            "timeout_connect",
            "timeout connect",
            "proxy_connect_timeout",
            "connect_timeout",
            "dial_timeout",
            "connecttimeout",
        ],
        "here it is `upstream_connect` of [timeouts], and for some servers `connect_timeout` in `pool` of [upstream.NAME]",
    ),
    foreign(
        &[
            "timeout_server",
            "timeout server",
            "proxy_read_timeout",
            "response_header_timeout",
            "first_byte_timeout",
            "read_timeout",
            "responseheadertimeout",
        ],
        "here it is `upstream_first_byte` of [timeouts] for the beginning of a response, and `upstream_body` \
         of [timeouts] for the rest",
    ),
    foreign(
        &["proxy_send_timeout", "grpc_send_timeout"],
        "here it is `upstream_send` of [timeouts], and in `timeouts` of [[route]]",
    ),
    foreign(
        &["timeout_client", "timeout client", "send_timeout", "write_timeout"],
        "here it is `client_write` of [timeouts], and `client_body` of [timeouts] for what clients send",
    ),
    foreign(
        &["client_header_timeout", "timeout http_request", "request_headers_timeout", "read_header_timeout"],
        "here it is `client_header` of [timeouts]",
    ),
    foreign(&["client_body_timeout"], "here it is `client_body` of [timeouts]"),
    foreign(
        &["keepalive_timeout", "timeout http_keep_alive", "idle_timeout", "keep_alive_timeout"],
        "here it is `keep_alive` of [timeouts]",
    ),
    foreign(&["timeout tunnel"], "here it is `tunnel_idle` of [timeouts]"),
    foreign(&["timeout queue"], "here it is `queue` of [upstream.NAME]"),
    foreign(&["timeout check"], "here it is `check` of [upstream.NAME]"),
    foreign(
        &["client_max_body_size", "max_request_body_size", "request_body", "maxrequestbodybytes", "max_body"],
        "here it is `body_bytes` of [limits]",
    ),
    foreign(
        &["proxy_request_buffering", "http_buffer_request", "option http_buffer_request", "buffering"],
        "here it is `request_buffering` of [[route]]",
    ),
    foreign(
        &["client_body_buffer_size", "memrequestbodybytes"],
        "here it is `memory` in `request_buffering` of [[route]]",
    ),
    foreign(&["client_body_temp_path"], "here it is `path` of [request_buffering]"),
    foreign(
        &["large_client_header_buffers", "client_header_buffer_size", "max_header_size", "tune.maxrewrite"],
        "here it is `header_bytes` of [limits]",
    ),
    foreign(
        &["keepalive_requests", "max_requests_per_connection"],
        "here it is `requests_per_connection` of [limits]",
    ),
    foreign(
        &["limit_req", "limit_req_zone", "ratelimit", "rate_limits"],
        "here it is `rate_limit` of [[route]]",
    ),
    foreign(&["limit_conn", "limit_conn_zone", "inflightreq"], "here it is `concurrency` of [[route]]"),
    foreign(&["limit_rate", "bwlimit_out"], "here it is `rate` of [[route]]"),
    // Messages.
    foreign(
        &[
            "proxy_set_header",
            "header_up",
            "http_request",
            "http_request set_header",
            "request_headers_to_add",
            "customrequestheaders",
        ],
        "here it is `request_headers` of [[route]]: { set = { X-Name = \"value\" } }",
    ),
    foreign(
        &[
            "add_header",
            "header_down",
            "header",
            "http_response",
            "http_response set_header",
            "response_headers_to_add",
            "customresponseheaders",
        ],
        "here it is `response_headers` of [[route]]: { set = { X-Name = \"value\" } }",
    ),
    foreign(
        &["auth_basic", "auth_basic_user_file", "basicauth", "basic_auth", "http_request auth"],
        "here it is `auth` of [[route]]",
    ),
    foreign(
        &[
            "auth_jwt",
            "auth_jwt_key_file",
            "auth_jwt_key_request",
            "jwt_authn",
            "http_auth_bearer",
            "jwtauth",
        ],
        "here it is `jwt` of [[route]]",
    ),
    foreign(
        &["forwardauth", "auth_request", "ext_authz", "forward_auth_url", "auth_url"],
        "here it is `forward_auth` of [[route]]: { upstream = \"NAME\", path = \"/verify\" }",
    ),
    foreign(
        &["authresponseheaders", "auth_request_set", "authresponseheadersregex"],
        "here it is `copy_headers` of `forward_auth`",
    ),
    foreign(&["authrequestheaders"], "here it is `request_headers` of `forward_auth`"),
    foreign(&["satisfy"], "here it is `require` of [[route]]"),
    foreign(
        &["http_access", "ipallowlist", "ipwhitelist", "remote_ip"],
        "here it is `allow` of [[route]] and `deny` of [[route]]",
    ),
    foreign(
        &["middlewares", "http_filters", "plugins", "directive"],
        "here requests are processed by options of [[route]], such as `rewrite`, `auth` and `rate_limit`",
    ),
    foreign(
        &["strip_prefix", "stripprefix", "uri", "http_request set_path", "regex_rewrite", "prefix_rewrite"],
        "here it is `rewrite` of [[route]]",
    ),
    foreign(&["gzip", "brotli", "encode", "compression", "compress"], "here it is `compress` of [[route]]"),
    foreign(
        &["mirror", "mirroring", "request_mirror_policies", "shadow", "mirror_request_body"],
        "here it is `mirror` of [[route]]: { upstream = \"NAME\", share = \"10%\", bodies = \"64KB\" }",
    ),
    // Cache.
    foreign(
        &["proxy_cache", "proxy_cache_valid", "default_ttl", "ttl"],
        "here it is `cache` of [[route]], with the store in [cache]",
    ),
    foreign(&["proxy_cache_path", "cache_dir", "storage"], "here it is `disk` of [cache]"),
    foreign(&["cache_mem", "total_max_size", "malloc"], "here it is `memory` of [cache]"),
    // The process.
    foreign(
        &["worker_processes", "nbthread", "nbproc", "threads", "concurrency"],
        "here it is `workers` of the file",
    ),
    foreign(
        &["access_log", "accesslog", "option httplog", "log_format", "logformat"],
        "here it is `target` of [log]",
    ),
    foreign(
        &["error_log", "log_level", "loglevel", "logging"],
        "here it is `level` of [messages], on standard error",
    ),
    foreign(
        &["stats", "stub_status", "prometheus", "stats socket"],
        "here it is `metrics` of the file, and `admin` of the file",
    ),
    foreign(
        &["user", "group", "daemon", "pid", "pidfile", "chroot"],
        "leave it to the service manager, or use `--pid-file` of `vanward run`",
    ),
];

/// Names of option values in other proxies.
const WORDS: &[(&[&str], &str)] = &[
    (&["least_conn", "leastconn", "least_request", "least", "leastconnections", "wlc"], "least-connections"),
    (&["roundrobin", "rr", "wrr", "static_rr", "round_robin"], "round-robin"),
    (&["ip_hash", "source", "iphash", "client_ip_hash", "sourceip"], "client-address"),
    (
        &["uri", "hash", "url_param", "ring_hash", "maglev", "consistent", "uri_hash", "ketama"],
        "consistent-hash",
    ),
    (&["random", "random_choose", "p2c", "power_of_two", "random two"], "two-choices"),
    (&["least_time", "ewma", "peak_ewma", "fastest"], "response-time"),
    (&["http2", "http/2", "h2c", "grpc"], "h2"),
    (&["http3", "http/3", "quic"], "h3"),
    (&["http1", "http/1.1", "h1"], "http/1.1"),
    (&["main", "common", "clf", "tcplog", "httplog"], "combined"),
    (&["off", "none", "no"], "off"),
    (&["error", "crit", "emerg", "alert", "fatal"], "error"),
    (&["warning"], "warn"),
    (&["notice", "debug", "trace"], "info"),
];

fn folded(name: &str) -> String {
    name.trim().to_lowercase().replace('-', "_")
}

/// The hint for a key of another proxy.
pub(crate) fn key(name: &str) -> Option<&'static str> {
    let folded = folded(name);
    KEYS.iter().find(|foreign| foreign.names.contains(&folded.as_str())).map(|foreign| foreign.here)
}

/// The hint for a line of another proxy's file, by its first two words or its first.
pub(crate) fn line(text: &str) -> Option<&'static str> {
    let mut words = text.split(|character: char| character.is_whitespace() || "={:;\"".contains(character));
    let mut next = || words.by_ref().find(|word| !word.is_empty());
    let first = next()?;
    let both = next().and_then(|second| key(&format!("{first} {second}")));
    both.or_else(|| key(first))
}

/// The one of `names` that corresponds to a word of another proxy.
pub(crate) fn word(written: &str, names: &[&'static str]) -> Option<&'static str> {
    let folded = folded(written);
    let ours = WORDS.iter().find(|(others, _)| others.contains(&folded.as_str()))?.1;
    names.iter().find(|name| **name == ours).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each "`OPTION` of TABLE", and each table that is named.
    #[test]
    fn hints_name_options_that_there_are() {
        let tables = crate::tables::reference::options_by_table();
        let options =
            |table: &str| tables.iter().find(|(title, _)| title == table).map(|(_, options)| options);
        let mut named = 0;
        for Foreign { names, here } in KEYS {
            let parts: Vec<&str> = here.split('`').collect();
            for (at, option) in parts.iter().enumerate().skip(1).step_by(2) {
                let Some(of) = parts.get(at + 1).and_then(|rest| rest.strip_prefix(" of ")) else { continue };
                let Some((table, known)) = tables.iter().find(|(title, _)| of.starts_with(title.as_str()))
                else {
                    assert!(of.is_empty(), "{names:?}: {of}");
                    continue;
                };
                assert!(known.iter().any(|known| known == option), "{option} of {table}: {here}");
                named += 1;
            }
            for name in *names {
                assert_eq!(*name, folded(name));
                assert_eq!(KEYS.iter().filter(|other| other.names.contains(name)).count(), 1, "{name}");
            }
        }
        assert!(named > 50, "{named}");
        for table in ["[timeouts]", "[[route]]", "[upstream.NAME]", "the file", "[cache]", "[log]"] {
            assert!(options(table).is_some(), "{table}");
        }
        for name in balance::POLICIES.iter().map(|policy| policy.name) {
            assert!(WORDS.iter().any(|(_, ours)| *ours == name), "{name} is called something elsewhere");
        }
    }

    #[test]
    fn words_and_lines_of_others_are_understood() {
        assert_eq!(word("LEAST_CONN", &["round-robin", "least-connections"]), Some("least-connections"));
        assert_eq!(word("least_conn", &["json"]), None);
        for (text, here) in [
            ("proxy_pass http://app;", "upstream"),
            ("    timeout connect 5s", "upstream_connect"),
            ("timeout http-request = \"5s\"", "client_header"),
            ("max_fails=3", "eject"),
            ("server_name example.com;", "host"),
        ] {
            assert!(line(text).is_some_and(|hint| hint.contains(here)), "{text}: {:?}", line(text));
        }
        assert_eq!(line(""), None);
    }
}
