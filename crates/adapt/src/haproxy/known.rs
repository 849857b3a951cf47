//! Keywords that no option comes from: those that need nothing, and those that cannot be said, with the reason.

use crate::Kind;
use crate::sheet::Said;

use Kind::{NeedsNothing, Refused};

/// Names, what becomes of them, why, and what to do instead.
struct Row(&'static [&'static str], Kind, &'static str, &'static str);

const ROWS: &[Row] = &[
    Row(&["global", "defaults"], NeedsNothing, "its lines are options by themselves", ""),
    Row(
        &["frontend", "listen"],
        Refused,
        "it has no listener whose requests are answered",
        "write a [[listen]]",
    ),
    Row(&["backend"], Refused, "it has no server", "leave it out"),
    Row(&["mode"], NeedsNothing, "a listener with `tcp` passes bytes on, any other one speaks HTTP", ""),
    Row(
        &[
            "chroot",
            "user",
            "group",
            "daemon",
            "pidfile",
            "uid",
            "gid",
            "master-worker",
            "nbproc",
            "localpeer",
            "node",
            "description",
            "expose-fd",
            "setcap",
            "insecure-fork-wanted",
            "unix-bind",
            "default-path",
            "set-dumpable",
            "zero-warning",
            "expose-experimental-directives",
            "presetenv",
            "setenv",
            "resetenv",
            "unsetenv",
        ],
        NeedsNothing,
        "the service manager decides about it",
        "",
    ),
    Row(
        &[
            "ulimit-n",
            "cpu-map",
            "maxpipes",
            "maxconnrate",
            "maxsslconn",
            "maxsslrate",
            "maxsessrate",
            "numa-cpu-mapping",
            "spread-checks",
            "thread-groups",
            "thread-group",
            "busy-polling",
            "max-spread-checks",
            "tune.bufsize",
            "noepoll",
            "nosplice",
            "server-state-file",
            "load-server-state-from-file",
            "server-state-file-name",
            "fullconn",
            "cpu-policy",
        ],
        NeedsNothing,
        "workers take what the machine has",
        "",
    ),
    Row(
        &[
            "ssl-default-bind-ciphers",
            "ssl-default-bind-ciphersuites",
            "ssl-default-bind-options",
            "ssl-default-bind-curves",
            "ssl-default-server-ciphers",
            "ssl-default-server-ciphersuites",
            "ssl-default-server-options",
            "ssl-dh-param-file",
            "ssl-server-verify",
        ],
        NeedsNothing,
        "versions and cipher suites are those of today: TLS 1.2 and 1.3",
        "",
    ),
    Row(&["ca-base", "crt-base"], NeedsNothing, "no certificate here is relative to it", ""),
    Row(
        &["log", "log-tag", "log-send-hostname", "log-steps"],
        NeedsNothing,
        "[log] says where requests are logged",
        "",
    ),
    Row(
        &["log-format", "log-format-sd", "error-log-format", "unique-id-format"],
        Refused,
        "formats have other names",
        "`format` of [log] is \"extended\", \"combined\", \"json\", \"w3c\" or a text with variables: docs/logging.md",
    ),
    Row(
        &["unique-id-header"],
        Refused,
        "request IDs have options of their own",
        "write `header` of [request_id]",
    ),
    Row(
        &["lua-load", "lua-load-per-thread", "lua-prepend-path", "module-path", "module-load"],
        Refused,
        "there is no scripting",
        "use `forward_auth`, or do it in the server",
    ),
    Row(
        &["nameserver", "resolvers", "resolve_retries", "hold", "accepted_payload_size", "parse-resolv-conf"],
        NeedsNothing,
        "names are resolved as the system does, and again as their records say",
        "",
    ),
    Row(&["timeout resolve", "timeout retry"], NeedsNothing, "names are resolved as the system does", ""),
    Row(
        &[
            "timeout http-request",
            "timeout http-keep-alive",
            "timeout client",
            "timeout connect",
            "timeout server",
            "timeout tunnel",
            "timeout queue",
            "timeout check",
        ],
        NeedsNothing,
        "no frontend or server here goes by it",
        "",
    ),
    Row(
        &[
            "timeout client-fin",
            "timeout server-fin",
            "timeout tarpit",
            "timeout server-close",
            "timeout client-hs",
        ],
        NeedsNothing,
        "the other timeouts bound it",
        "",
    ),
    Row(&["acl"], NeedsNothing, "no rule that was taken over goes by it", ""),
    Row(
        &["stick-table", "stick"],
        Refused,
        "no rate limit or session that was taken over uses it",
        "see `rate_limit` of [[route]] and `sticky` of [upstream.NAME]",
    ),
    Row(&["userlist", "user", "group"], NeedsNothing, "no rule asks for a password of this list", ""),
    Row(
        &[
            "stats",
            "stats enable",
            "stats uri",
            "stats auth",
            "stats refresh",
            "stats admin",
            "stats realm",
            "stats hide-version",
            "stats show-legends",
            "stats show-node",
            "stats socket",
            "stats http-request",
        ],
        Refused,
        "there is no page of statistics at a listener",
        "use `dashboard` and `metrics` (an address each), `vanward top` and `vanward status`",
    ),
    Row(&["stats timeout", "stats maxconn"], NeedsNothing, "the admin API needs no such bound", ""),
    Row(
        &[
            "option httplog",
            "option tcplog",
            "option dontlognull",
            "option logasap",
            "option log-separate-errors",
            "option log-health-checks",
            "option socket-stats",
            "option dontlog-normal",
            "option httpslog",
            "option contstats",
            "no",
        ],
        NeedsNothing,
        "[log] has a line for each request, and messages tell what becomes of servers",
        "",
    ),
    Row(
        &[
            "option http-server-close",
            "option http-keep-alive",
            "option httpclose",
            "option forceclose",
            "option prefer-last-server",
            "option http-tunnel",
            "option http-pretend-keepalive",
            "option http-use-htx",
            "option http-no-delay",
            "option tcp-smart-accept",
            "option tcp-smart-connect",
            "option splice-auto",
            "option splice-request",
            "option splice-response",
            "option clitcpka",
            "option srvtcpka",
            "option tcpka",
            "option nolinger",
            "option abortonclose",
            "option idle-close-on-response",
            "option independent-streams",
            "option disable-h2-upgrade",
            "option http-ignore-probes",
            "option use-small-buffers",
            "http-reuse",
            "pool-max-conn",
        ],
        NeedsNothing,
        "connections of clients and servers are kept and reused by themselves",
        "",
    ),
    Row(
        &["option redispatch", "option persist", "option allbackups"],
        NeedsNothing,
        "a retry prefers servers that have not been tried",
        "",
    ),
    Row(
        &["option forwardfor", "option originalto"],
        NeedsNothing,
        "servers get X-Forwarded-For and Forwarded always",
        "",
    ),
    Row(
        &[
            "option httpchk",
            "http-check send",
            "http-check expect",
            "option log-health-checks",
            "http-check disable-on-404",
            "http-check connect",
            "http-check send-state",
        ],
        NeedsNothing,
        "no server here has `check`",
        "",
    ),
    Row(
        &[
            "option tcp-check",
            "option ssl-hello-chk",
            "option mysql-check",
            "option pgsql-check",
            "option redis-check",
            "option smtpchk",
            "option ldap-check",
            "option spop-check",
            "option external-check",
            "tcp-check",
            "external-check",
        ],
        Refused,
        "a server that accepts a connection is up",
        "`type = \"command\"` of `check` runs a program",
    ),
    Row(
        &[
            "option accept-invalid-http-request",
            "option accept-invalid-http-response",
            "option accept-unsafe-violations-in-http-request",
            "option accept-unsafe-violations-in-http-response",
            "option h1-case-adjust-bogus-client",
            "option h1-case-adjust-bogus-server",
            "h1-case-adjust",
            "h1-case-adjust-file",
            "option http-restrict-req-hdr-names",
            "option http-drop-response-trailers",
            "option http-drop-request-trailers",
            "option checkcache",
        ],
        Refused,
        "messages that break the standard are refused",
        "mend the client or the server",
    ),
    Row(
        &[
            "option http-buffer-request",
            "compression",
            "compression algo",
            "errorfile",
            "http-error",
            "hash-type",
            "default-server",
            "balance",
            "cookie",
            "retries",
            "retry-on",
            "server",
            "server-template",
        ],
        NeedsNothing,
        "no request is passed on to this backend",
        "",
    ),
    Row(
        &["errorfiles", "errorloc", "errorloc302", "errorloc303", "http-errors"],
        Refused,
        "an error page is a file with a body",
        "write `error_pages = { 503 = \"FILE\" }`",
    ),
    Row(
        &["use_backend", "default_backend", "http-request", "http-response"],
        NeedsNothing,
        "no request comes to it",
        "",
    ),
    Row(
        &["use-server"],
        Refused,
        "a server is not chosen by a rule",
        "write an [upstream.NAME] for it, and a [[route]] that leads there",
    ),
    Row(
        &["peers", "peer", "table"],
        Refused,
        "there are no peers",
        "instances share rates and purges through [redis]: docs/fleet.md",
    ),
    Row(
        &["mailers", "mailer", "email-alert"],
        Refused,
        "no mails are sent",
        "docs/alerts.md has rules for Prometheus",
    ),
    Row(
        &[
            "program",
            "command",
            "ring",
            "log-forward",
            "fcgi-app",
            "filter",
            "traces",
            "trace",
            "crt-store",
            "acme",
            "docroot",
            "index",
            "use-fcgi-app",
        ],
        Refused,
        "there is nothing like it",
        "run a program of its own for it",
    ),
    Row(
        &["cache", "total-max-size", "max-object-size", "max-age", "process-vary", "max-secondary-entries"],
        Refused,
        "a cache has options of its own",
        "write `cache = {}` into the [[route]] and a table [cache]",
    ),
    Row(
        &[
            "rate-limit",
            "backlog",
            "id",
            "disabled",
            "enabled",
            "guid",
            "description",
            "bind-process",
            "grace",
            "dispatch",
            "source",
            "force-persist",
            "ignore-persist",
            "persist",
            "declare",
            "monitor-net",
        ],
        Refused,
        "there is nothing like it",
        "look for what it does in docs/configuration.md",
    ),
    Row(
        &["monitor-uri"],
        Refused,
        "a fixed answer is a route",
        "write a [[route]] with path = \"= /path\" and respond = { status = 200 }",
    ),
    Row(&["monitor"], Refused, "a fixed answer is a route", "write a [[route]] with `respond`"),
    Row(&["tcp-response"], Refused, "responses are not looked at as bytes", "leave it out"),
    Row(&["bind"], Refused, "no request that is answered here comes through it", "write a [[listen]]"),
    Row(
        &["option transparent", "option http_proxy", "option http-proxy"],
        Refused,
        "servers are named in the file",
        "write an [upstream.NAME]",
    ),
];

/// What a keyword needs that no option came from.
pub(super) fn known(name: &str, text: &str) -> Said {
    let said = |kind: Kind, why: &str, instead: &str| (kind, why.to_owned(), instead.to_owned());
    if name.starts_with("tune.") || name.starts_with("profiling.") || name.starts_with("shards") {
        return said(NeedsNothing, "it changes how fast HAProxy is, and nothing that clients see", "");
    }
    if name == "tcp-request" {
        let is_inspection = ["inspect-delay", "req_ssl_hello_type", "req.ssl_hello_type"]
            .iter()
            .any(|word| text.contains(word));
        return if is_inspection {
            said(NeedsNothing, "the name that a client asks for is read before a server is chosen", "")
        } else if text.contains("track-sc") {
            said(NeedsNothing, "`rate_limit` counts by itself", "")
        } else {
            said(
                Refused,
                "connections are not refused by rules",
                "write `deny` into the [[route]], or limits of [limits]",
            )
        };
    }
    let row = ROWS.iter().find(|Row(names, ..)| names.contains(&name));
    let row = row.or_else(|| {
        let first = name.split(' ').next().unwrap_or_default();
        ROWS.iter().find(|Row(names, ..)| names.contains(&first))
    });
    match row {
        Some(Row(_, kind, why, instead)) => said(*kind, why, instead),
        None => said(
            Refused,
            "`vanward adapt` does not know this line",
            "look for what it does in docs/configuration.md",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_has_a_way_out() {
        for Row(names, kind, why, instead) in ROWS {
            assert!(!why.is_empty() && (*kind == NeedsNothing || !instead.is_empty()), "{names:?}");
        }
    }
}
