//! Files with mistakes, and all messages about them.

use std::path::Path;

use config::{Mistake, Owner, examine, examine_file, parse};

/// The minimum of every file, in one line each, so that a case shows only its subject.
const LISTEN: &str = "listen = [{ address = \"127.0.0.1:8080\" }]";
const ROUTE: &str = "route = [{ upstream = \"app\" }]";
const UPSTREAM: &str = "upstream.app.servers = [\"http://127.0.0.1:9000\"]";

/// The mistakes of a file, a line each, without its name.
fn said(text: &str) -> Vec<String> {
    let mistakes = parse(text, "f").err().unwrap_or_default();
    mistakes.iter().map(|mistake| mistake.to_string().replacen("f:", "", 1)).collect()
}

/// `lines` after what every file needs: the first of them is line 4.
fn with(lines: &str) -> String {
    format!("{LISTEN}\n{ROUTE}\n{UPSTREAM}\n{lines}")
}

#[test]
fn one_mistake_each() {
    for (lines, expected) in [
        ("", ""),
        (
            "worker = 2",
            "4:1: unknown key \"worker\" in the file; did you mean \"workers\"? Expected include, workers, wakeup_coalescing, admin, metrics, dashboard, dashboard_write, dashboard_token_file, dashboard_hosts, quic_key_file, error_pages, \
             trusted_proxies, map, values, listen, route, route_defaults, upstream, headers, profile, acme, timeouts, limits, shed, cache, request_buffering, faults, fault, request_id, log, tracing, redis, consul or messages",
        ),
        ("workers = 0", "4:11: workers: 0 is too small; expected a whole number, 1 to 1024"),
        ("workers = \"all\"", "4:11: workers: this is a string; expected a whole number, 1 to 1024"),
        (
            "trusted_proxies = [\"10.0.0.0/8\", \"10.0.0.1/8\"]",
            "4:34: trusted_proxies: 10.0.0.1/8 has address bits beyond its prefix length; did you mean \
             \"10.0.0.0/8\"? Expected a network such as 10.0.0.0/8 or fd00::/8, or one address",
        ),
        (
            "[timeouts]\nkeep_alive = 75",
            "5:14: keep_alive: 75 has no unit; did you mean \"75s\"? Expected a duration such as 50ms, 1.5s, 2m or 1h, 1ms to 1d",
        ),
        (
            "[timeouts]\nkeepalive = \"75s\"",
            "5:1: unknown key \"keepalive\" in [timeouts]; did you mean \"keep_alive\"? Expected client_header, client_body, client_write, \
             keep_alive, upstream_connect, upstream_first_byte, upstream_body, upstream_send, tunnel_idle, request or drain",
        ),
        (
            "[timeouts]\nclient_body = \"0s\"",
            "5:15: client_body: 0s is too small; expected a duration such as 50ms, 1.5s, 2m or 1h, 1ms to 1d",
        ),
        (
            "[request_buffering]\npath = \"/nowhere/at/all\"",
            "5:8: path: /nowhere/at/all is not a directory; expected a directory in which the proxy may create files",
        ),
        (
            "[tracing]\ncollector = \"127.0.0.1:4318\"",
            "5:13: collector: \"127.0.0.1:4318\" has no scheme; did you mean \"https://127.0.0.1:4318\"? Expected a URL such as \
             http://127.0.0.1:4318 or https://collector.example.com/v1/traces",
        ),
        (
            "[tracing]\ncollector = \"http://127.0.0.1:4318\"\nca = \"/ca.pem\"",
            "6:6: ca: the collector is reached without TLS; expected a collector with https://, or no ca",
        ),
        (
            "[redis]\nurl = \"127.0.0.1:6379\"",
            "5:7: url: \"127.0.0.1:6379\" has no scheme; did you mean \"redis://127.0.0.1:6379\"? Expected a URL such as redis://127.0.0.1:6379",
        ),
        (
            "[redis]\nurl = \"redis://me:secret@127.0.0.1\"",
            "5:7: url: \"a user in the URL\" belongs in user, and the password in password_file; expected a URL such as redis://127.0.0.1:6379",
        ),
        (
            "[redis]\nurl = \"rediss://a.example/x\"",
            "5:7: url: \"x\" is not the number of a database; expected a URL such as redis://127.0.0.1:6379",
        ),
        (
            "[redis]\nurl = \"redis://a.example\"\nca = \"/ca.pem\"",
            "6:6: ca: Redis is reached without TLS; expected a url with rediss://, or no ca",
        ),
        (
            "[redis]\nurl = \"redis://a.example\"\nuser = \"me\"",
            "4:1: user: a Redis user needs a password; expected password_file as well, or no user",
        ),
        (
            "[redis]\nurl = \"redis://a.example\"\nname = \"a:b\"",
            "6:8: name: \"a:b\" is no such name; expected letters, digits and -_.@, at most 100",
        ),
        (
            "[request_buffering]\nmemory = -1",
            "5:10: memory: -1 is too small; expected a size in bytes such as 512, 64k, 256MB or 64KiB, 0 to 16TiB",
        ),
        (
            "[limits]\nheader_bytes = \"64m\"",
            "5:16: header_bytes: unknown unit \"m\"; did you mean \"M\"? Expected a size in bytes such as 512, 64k, 256MB or 64KiB",
        ),
        (
            "[limits]\nheader_bytes = \"2MiB\"",
            "5:16: header_bytes: 2MiB is too large; expected a size in bytes such as 512, 64k, 256MB or 64KiB, \
             1KiB to 1MiB",
        ),
        (
            "[limits]\nbody_bytes = 99999999999999999999",
            "5:14: body_bytes: 99999999999999999999 is too large; expected a size in bytes such as 512, 64k, \
             256MB or 64KiB",
        ),
        (
            "[limits]\nheader_count = -1",
            "5:16: header_count: -1 is too small; expected a whole number, 1 to 10000",
        ),
        (
            "[limits]\nheader_count = 1.5",
            "5:16: header_count: this is a number with a fraction; expected a whole number, 1 to 10000",
        ),
        (
            "[limits]\nminimum_rate = \"64 bytes\"",
            "5:16: minimum_rate: unknown unit \"bytes\"; expected a rate in bytes/s such as 500k or 1MB/s, or in bits \
             such as 10Mbit/s",
        ),
        (
            "[log]\nformat = \"json\"",
            "4:1: [log] has no target; expected \"stdout\", \"journald\", \"syslog\", \"syslog:tls://HOST\", or a path with a /, such as \
             /var/log/vanward.log or ./access.log, or \"off\"",
        ),
        (
            "[log]\ntarget = \"stdot\"",
            "5:10: target: \"stdot\" is neither a known word nor a path; did you mean \"stdout\"? Expected \"stdout\", \"journald\", \"syslog\", \"syslog:tls://HOST\", or a path with a /, such as \
             /var/log/vanward.log or ./access.log",
        ),
        (
            "[log]\ntarget = \"stdout\"\nformat = \"jason\"",
            "6:11: format: \"jason\" is no format, and a text without variables says nothing; did you mean \"json\"? \
             Expected \"extended\", \"combined\", \"json\", \"w3c\", or a text with variables such as \
             '$client [$time] \"$request\" $status'",
        ),
        (
            "[log]\ntarget = \"stdout\"\nformat = '$client $stauts'",
            "6:19: format: there is no field \"stauts\" in the log; did you mean \"$status\"? Expected \"extended\", \
             \"combined\", \"json\", \"w3c\", or a text with variables such as '$client [$time] \"$request\" $status'",
        ),
        (
            "[log]\ntarget = \"stdout\"\nformat = \"json\"\nfields = [\"time\", \"statsu\"]",
            "7:19: fields: there is no field \"statsu\" in the log; did you mean \"status\"? Expected the name of a field \
             such as status or header.X-Api-Version",
        ),
        (
            "[log]\ntarget = \"stdout\"\nfields = [\"time\"]",
            "6:10: fields: \"extended\" has no choice of fields; expected format = \"json\" or \"w3c\", or no fields",
        ),
        (
            "[log]\ntarget = \"stdout\"\nformat = '{\"a\":1$status}'",
            "6:10: format: this begins with { but gives no JSON object: expected `,` or `}` at line 1 column 7 in \
             {\"a\":1null}; expected an object such as '{\"ip\":$client,\"path\":$path}'",
        ),
        (
            "[log]\ntarget = \"stdout\"\nhide_headers = [\"X-A\"]\nshow_headers = [\"x-a\"]",
            "7:17: show_headers: x-a is in hide_headers as well; expected each name in one of the two",
        ),
        (
            "[log]\ntarget = \"stdout\"\nrotate = { size = \"1MiB\" }",
            "6:10: rotate: only a file can be rotated; expected the path of a file as the target, or no rotate",
        ),
        (
            "[log]\ntarget = \"/a/b\"\nrotate = { keep = 3 }",
            "6:10: rotate has neither size nor every; expected size, every or both",
        ),
        (
            "[log]\ntarget = \"journald\"\nformat = \"w3c\"",
            "6:10: format: w3c has directives, for which syslog and journald have no place; expected another format, or \
             a file or stdout as the target",
        ),
        (
            "[[log]]\ntarget = \"/a/b\"\n[[log]]\ntarget = \"stdout\"\n[[log]]\ntarget = \"/a/b\"",
            "9:10: target: the log at line 5 writes there as well; expected a file for each log",
        ),
        ("log = \"stdout\"", "4:7: log is a string; expected a table [log], or several [[log]]"),
        (
            "[request_id]\nheader = \"X Y\"",
            "5:10: header: \"X Y\" is no name of a header field; names are letters, digits and -; expected the name of a \
             header field such as X-Tenant",
        ),
        (
            "[request_id]\nform = \"trace\"",
            "5:8: form: without [tracing] requests have no trace ID; expected [tracing], or another form",
        ),
        (
            "[log]\ntarget = \"stdout\"\nquery = \"none\"",
            "6:9: query: unknown word \"none\"; did you mean \"off\"? Expected \"full\", \"masked\" or \"off\"",
        ),
        (
            "[log]\ntarget = \"stdout\"\nquery = \"off\"\nmask = [\"token\"]",
            "7:8: mask: with this `query` no value is logged; expected query = \"full\", or no mask",
        ),
        (
            "[log]\ntarget = \"stdout\"\nmask = [\"\"]",
            "6:9: mask: it is empty; expected the name of a parameter such as token",
        ),
        (
            "[messages]\nformat = \"json\"\nlevel = \"debug\"",
            "6:9: level: unknown word \"debug\"; did you mean \"info\"? Expected \"error\", \"warn\" or \"info\"",
        ),
        ("timeouts = 3", "4:12: timeouts is an integer; expected a table [timeouts]"),
        (
            "[tls]\ncert = \"a\"",
            "4:2: unknown key \"tls\" in the file; it is an option of [[listen]] and [upstream.NAME]; expected include, workers, wakeup_coalescing, admin, metrics, dashboard, dashboard_write, dashboard_token_file, dashboard_hosts, quic_key_file, error_pages, trusted_proxies, \
             map, values, listen, route, route_defaults, upstream, headers, profile, acme, timeouts, limits, shed, cache, request_buffering, faults, fault, request_id, log, tracing, redis, consul or messages",
        ),
    ] {
        let expected: Vec<&str> = Some(expected).filter(|line| !line.is_empty()).into_iter().collect();
        assert_eq!(said(&with(lines)), expected, "{lines}");
    }
}

#[test]
fn listeners() {
    let file = |listen: &str| format!("{ROUTE}\n{UPSTREAM}\n{listen}");
    for (listen, expected) in [
        (
            "[[listen]]\nadress = \"127.0.0.1:80\"",
            "4:1: unknown key \"adress\" in [[listen]]; did you mean \"address\"? Expected address, name, values, proxy_protocol, tcp, passthrough, tls, \
             redirect_to_https, hsts, http2, http3, connections_per_client, rate, upload_rate, profile, connect_delay, latency, loss, datagram_rate or \
             datagram_upload_rate",
        ),
        (
            "[[listen]]",
            "3:1: [[listen]] has no address; expected an IP address with a port such as 127.0.0.1:8080 or [::1]:8080, *:8080 or :8080, \
             or unix:/run/vanward.sock",
        ),
        (
            "[listen]\naddress = \"127.0.0.1:80\"",
            "3:1: [listen] is in single brackets; expected [[listen]] in double brackets",
        ),
        ("listen = \"127.0.0.1:80\"", "3:10: listen is a string; expected [[listen]] in double brackets"),
        ("listen = [\"127.0.0.1:80\"]", "3:11: listen has a string; expected tables [[listen]]"),
        ("listen = []", "3:10: listen is empty; expected at least one [[listen]]"),
        ("", "1:1: the file has no listen; expected at least one [[listen]]"),
        (
            "[[listen]]\naddress = \"localhost:80\"",
            "4:11: address: \"localhost:80\" is not an address with a port; did you mean \"127.0.0.1:80\"? Expected an IP address with a port such as \
             127.0.0.1:8080 or [::1]:8080, *:8080 or :8080, or unix:/run/vanward.sock",
        ),
        ("[[listen]]\naddress = \":80\"", ""),
        (
            "[[listen]]\naddress = \":443\"\n[[listen]]\naddress = \"*:443\"",
            "6:11: address: *:443 appears twice; expected an address other than the one in line 4",
        ),
        (
            "[[listen]]\naddress = \"[::1]:80\"\n[[listen]]\naddress = \"[0::1]:80\"",
            "6:11: address: [::1]:80 appears twice; expected an address other than the one in line 4",
        ),
        ("[[listen]]\naddress = \"127.0.0.1:0\"\n[[listen]]\naddress = \"127.0.0.1:0\"", ""),
    ] {
        let expected: Vec<&str> = Some(expected).filter(|line| !line.is_empty()).into_iter().collect();
        assert_eq!(said(&file(listen)), expected, "{listen}");
    }
}

#[test]
fn routes() {
    let file = |route: &str| format!("{LISTEN}\n{UPSTREAM}\n{route}");
    for (route, expected) in [
        (
            "[[route]]\npath = \"/a\"",
            "3:1: [[route]] has no action; expected upstream, split, redirect, respond or files",
        ),
        (
            "[[route]]\nupstream = \"ap\"",
            "4:12: upstream: no upstream is named \"ap\"; did you mean \"app\"? Expected app",
        ),
        ("[[route]]\nupstream = \"web\"", "4:12: upstream: no upstream is named \"web\"; expected app"),
        (
            "[[route]]\nupstream = \"app\"\npath = \"api\"",
            "5:8: path: \"api\" is not a path prefix: it doesn't start with /; did you mean \"/api\"? Expected a path prefix such as / or /api, /api* for a prefix of the text, \
             = /path for one path, or ~ regex",
        ),
        (
            "[[route]]\nupstream = \"app\"\nhost = \"www.*.com\"",
            "5:8: host: \"www.*.com\" is not a host: only the host of a route may have a *, at the \
             beginning, as in *.example.com; expected a host such as www.example.com, *.example.com or ~ \
             regex, without port",
        ),
        (
            "[[route]]\nupstream = \"app\"\nhost = \"www.example.com:80\"",
            "5:8: host: this host takes no port, but 80 was given; expected a host such as www.example.com, \
             *.example.com or ~ regex, without port",
        ),
        (
            "[[route]]\nupstream = \"app\"\nhost = \"A.example\"\n[[route]]\nupstream = \"app\"\nhost = \"a.example\"\npath = \"/\"",
            "6:1: [[route]]: host \"a.example\" with path \"/\" appears twice; expected a host, path or condition other than the one in line 3",
        ),
    ] {
        assert_eq!(said(&file(route)), [expected], "{route}");
    }
    // Two routes whose hosts are both refused are not the same route.
    let twice = "[[route]]\nupstream = \"app\"\nhost = \"a b\"\n".repeat(2);
    let lines: Vec<usize> =
        parse(&file(&twice), "f").unwrap_err().iter().map(|mistake| mistake.line).collect();
    assert_eq!(lines, [5, 8]);
}

#[test]
fn upstreams() {
    let file = |upstream: &str| format!("{LISTEN}\n{ROUTE}\n{upstream}");
    let server = "a server such as http://127.0.0.1:9000";
    let entry = format!("{server}, or {{ url = \"http://127.0.0.1:9000\", weight = 2 }}");
    let entries = format!("an array, at least one, each {entry}");
    for (upstream, expected) in [
        ("[upstream.app]", format!("3:1: [upstream.app] has no servers; expected {entries}")),
        ("[upstream.app]\nservers = []", format!("4:11: servers: this is empty; expected {entries}")),
        (
            "[upstream.app]\nservers = \"http://a\"",
            format!("4:11: servers: this is a string; expected {entries}"),
        ),
        ("[upstream.app]\nservers = [9000]", format!("4:12: servers: this is an integer; expected {entry}")),
        (
            "[upstream.app]\nservers = [\n  \"http://a\",\n  \"ftp://b\",\n]",
            format!("6:3: servers: unknown scheme \"ftp\"; expected {server}"),
        ),
        (
            "[upstream.app]\nservers = [\"127.0.0.1:9000\"]",
            format!(
                "4:12: servers: \"127.0.0.1:9000\" has no scheme; did you mean \"http://127.0.0.1:9000\"? Expected {server}"
            ),
        ),
        (
            "[upstream.app]\nservers = [{ url = \"http://a\", weight = 1001 }]",
            "4:41: weight: 1001 is too large; expected a whole number, 0 to 1000".to_owned(),
        ),
        ("[upstream.app]\nservers = [{ weight = 2 }]", format!("4:12: this server has no url; expected {server}")),
        (
            "[upstream.app]\nservers = [\"http://a\"]\nbalance = \"round_robin\"",
            "5:11: balance: unknown word \"round_robin\"; did you mean \"round-robin\"? Expected \"round-robin\", \"least-connections\", \"two-choices\", \
             \"response-time\", \"client-address\" or \"consistent-hash\""
                .to_owned(),
        ),
        (
            "[upstream.app]\nservers = [\"http://a\"]\nhost = \"www.example.com\"",
            "5:8: host: unknown word \"www.example.com\"; expected \"pass\", \"server\" or \
             { set = \"www.example.com\" }"
                .to_owned(),
        ),
        (
            "[upstream.app]\nservers = [\"http://a\"]\nhost = { set = \"a/b\" }",
            "5:16: host: \"a/b\" is not a host: names have letters, digits, hyphens and underscores only; \
             expected a host such as www.example.com or www.example.com:8080"
                .replace("host: \"a/b\"", "set: \"a/b\""),
        ),
        (
            "[upstream.app]\nservers = [\"http://a\"]\n[upstream.app.pool]\nidel = 3",
            "6:1: unknown key \"idel\" in [upstream.app.pool]; did you mean \"idle\"? Expected idle, connections, idle_timeout or connect_timeout"
                .to_owned(),
        ),
        (
            "[upstream.app]\nservers = [\"http://a\"]\n[upstream.\"a b\"]\nservers = [\"http://a\"]",
            "5:11: \"a b\" can't name an upstream; expected 1 to 64 letters, digits, '.', '-' and '_'".to_owned(),
        ),
        ("upstream = [\"http://a\"]", "3:12: upstream is an array; expected tables [upstream.NAME]".to_owned()),
    ] {
        // What a route leads to is another matter where the upstreams could not be read.
        let said: Vec<String> = said(&file(upstream)).into_iter().filter(|line| !line.starts_with("2:")).collect();
        assert_eq!(said, [expected], "{upstream}");
    }
}

#[test]
fn tls_of_listeners() {
    let file = |lines: &str| format!("{ROUTE}\n{UPSTREAM}\n[[listen]]\naddress = \"127.0.0.1:443\"\n{lines}");
    const WAYS: &str = "cert and key, certificates (a list or \"auto\"), or self_signed = true";
    for (lines, expected) in [
        ("tls = {}", format!("5:7: tls has no certificate; expected {WAYS}")),
        (
            "tls = true",
            "5:7: tls: this is true or false; expected a table such as { cert = \"site.pem\", key = \"site.key\" }".to_owned(),
        ),
        ("tls = { cert = \"a\" }", "5:16: cert needs key; expected the key as well".to_owned()),
        ("tls = { key = \"a\" }", "5:15: key needs cert; expected the certificate as well".to_owned()),
        (
            "tls = { ocsp = \"a\" }",
            "5:16: ocsp needs cert; expected the certificate that the response is about".to_owned(),
        ),
        (
            "tls = { cert = \"a\", key = \"b\", self_signed = true }",
            format!("5:7: tls has certificates in more than one way; expected one of {WAYS}"),
        ),
        (
            "tls = { cert = \"\", key = \"b\" }",
            "5:16: cert: it is empty; expected the path of a file such as /etc/vanward/site.pem".to_owned(),
        ),
        (
            "tls = { certificates = [{ cert = \"a\" }] }",
            "5:25: this certificate has no key; expected the path of a file such as /etc/vanward/site.pem".to_owned(),
        ),
        (
            "tls = { self_signed = true, min_version = \"1.1\" }",
            "5:43: min_version: unknown word \"1.1\"; did you mean \"1.2\"? Expected \"1.2\" or \"1.3\"".to_owned(),
        ),
        (
            "tls = { self_signed = true, preset = \"modern\", max_version = \"1.2\" }",
            "5:62: max_version 1.2 is below the lowest version, 1.3; expected at least 1.3, or a lower min_version".to_owned(),
        ),
        (
            "tls = { self_signed = true, groups = [\"x448\"] }",
            "5:39: groups: unknown word \"x448\"; expected \"X25519\", \"secp256r1\", \"secp384r1\", \"X25519MLKEM768\", \
             \"SecP256r1MLKEM768\", \"MLKEM768\" or \"MLKEM1024\"".to_owned(),
        ),
        (
            "tls = { self_signed = true, groups = [] }",
            "5:38: groups: this is empty; expected an array, at least one, each \"X25519\", \"secp256r1\", \"secp384r1\", \
             \"X25519MLKEM768\", \"SecP256r1MLKEM768\", \"MLKEM768\" or \"MLKEM1024\"".to_owned(),
        ),
        (
            "tls = { self_signed = true, groups = [\"X25519MLKEM768\"] }",
            "5:38: groups has no group for TLS 1.2, which is permitted here; expected X25519, secp256r1 or secp384r1 as well, or min_version = \"1.3\"".to_owned(),
        ),
        (
            "tls = { self_signed = true, ciphers = [\"TLS_AES_128_GCM_SHA256\"] }",
            "5:39: ciphers has no suite for TLS 1.2, which is permitted here; expected some of \
             TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, \
             TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, \
             TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, or another \
             min_version".to_owned(),
        ),
        (
            "tls = { self_signed = true, preset = \"modern\", ciphers = [\"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\"] }",
            "5:58: ciphers: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is for TLS 1.2, which is not permitted \
             here; expected suites of the permitted versions alone".to_owned(),
        ),
        (
            "tls = { self_signed = 1 }",
            "5:23: self_signed: this is an integer; expected true or false".to_owned(),
        ),
        (
            "tls = { self_signed = true, unknown_names = \"refused\" }",
            "5:45: unknown_names: unknown word \"refused\"; did you mean \"refuse\"? Expected \"default\" or \"refuse\""
                .to_owned(),
        ),
        (
            "tls = { self_signed = true, client_certificates = { mode = \"must\", ca = \"c\" } }",
            "5:60: mode: unknown word \"must\"; expected \"optional\" or \"required\"".to_owned(),
        ),
        (
            "tls = { self_signed = true, client_certificates = { mode = \"optional\" } }",
            "5:51: client_certificates has no ca; expected the path of a file such as /etc/vanward/site.pem".to_owned(),
        ),
        (
            "tls = { self_signed = true, client_certificates_by_name = [{ names = [\"a.example\"], mode = \"required\" }] }",
            "5:60: this rule has no ca; expected the CA that signs client certificates".to_owned(),
        ),
        (
            "tls = { self_signed = true, client_certificates_by_name = [{ names = [\"a.example\"], mode = \"none\", ca = \"c\" }] }",
            "5:105: ca is not used: no certificate is requested; expected another mode".to_owned(),
        ),
        (
            "tls = { self_signed = true, client_certificates_by_name = [{ names = [\"a.example\", \"A.example\"], mode = \"none\" }] }",
            "5:84: names: \"a.example\" has another rule already; expected each name once".to_owned(),
        ),
        (
            "tls = { self_signed = true, client_certificates_by_name = [{ names = [\"*.*.example\"], mode = \"none\" }] }",
            "5:71: names: \"*.example\" is not a host: only the host of a route may have a *, at the \
             beginning, as in *.example.com; expected a host name such as www.example.com, *.example.com or **.example.com, \
             without port".to_owned(),
        ),
        (
            "passthrough = [{ names = [\"a.example\"], upstream = \"app\" }]",
            "5:16: passthrough needs tls or tcp; expected one of them, for all other connections".to_owned(),
        ),
        (
            "tls = { self_signed = true }\npassthrough = [{ names = [\"a.example\", \"a.example\"], upstream = \"app\" }]",
            "6:40: names: an earlier entry already forwards \"a.example\"; expected each name once, or with another alpn".to_owned(),
        ),
        (
            "tls = { self_signed = true }\npassthrough = [{ names = [\"a.example\"], upstream = \"ap\" }]",
            "6:52: upstream: no upstream is named \"ap\"; did you mean \"app\"? Expected app".to_owned(),
        ),
        (
            "tls = { self_signed = true }\npassthrough = [{ names = [\"a.example\"], alpn = [\"\"], upstream = \"app\" }]",
            "6:49: alpn: it is empty; expected a protocol of ALPN such as h2, up to 255 bytes".to_owned(),
        ),
        (
            "tls = { self_signed = true }\npassthrough = [{ names = [\"a.example\"] }]",
            "6:16: this passthrough has no upstream; expected upstream or split".to_owned(),
        ),
        (
            "tls = { self_signed = true }\npassthrough = [{ names = [\"a.example\"], upstream = \"app\", split = { app = 1 } }]",
            "6:67: split cannot be combined with upstream; expected one of them".to_owned(),
        ),
        (
            "tls = { self_signed = true }\npassthrough = [{ names = [\"a.example\"], split = { app = 0 } }]",
            "6:49: split: no upstream gets a share; expected a weight above 0, such as { old = 9, new = 1 }".to_owned(),
        ),
        (
            "tls = { self_signed = true }\npassthrough = [{ names = [\"a.example\"], split = { ap = 1 } }]",
            "6:51: split: no upstream is named \"ap\"; did you mean \"app\"? Expected app".to_owned(),
        ),
        (
            "tls = { self_signed = true }\nredirect_to_https = true",
            "6:21: redirect_to_https cannot be combined with tls: it would redirect in a loop; expected it on a listener without tls"
                .to_owned(),
        ),
        ("hsts = \"365d\"", "5:8: hsts needs tls; expected it on a listener with tls, or trusted_proxies or proxy_protocol to report clients that use https".to_owned()),
        ("connections_per_client = 0", "5:26: connections_per_client: 0 is too small; expected a whole number, 1 to 1000000".to_owned()),
        ("datagram_rate = \"1MB/s\"", "5:17: datagram_rate needs http3: only HTTP/3 has datagrams; expected http3 = true, or rate for bodies".to_owned()),
        ("datagram_upload_rate = \"1MB/s\"", "5:24: datagram_upload_rate needs http3: only HTTP/3 has datagrams; expected http3 = true, or rate for bodies".to_owned()),
        ("http3 = true", "5:9: http3 needs tls: QUIC is always encrypted; expected it on a listener with tls".to_owned()),
        (
            "tls = { self_signed = true, max_version = \"1.2\" }\nhttp3 = true",
            "6:9: http3 needs TLS 1.3, which tls does not permit; expected max_version = \"1.3\"".to_owned(),
        ),
        (
            "tls = { self_signed = true }\nhttp3 = true\nproxy_protocol = [\"10.0.0.0/8\"]",
            "6:9: http3 cannot be combined with proxy_protocol, which has no form for QUIC; expected one of them, or two listeners"
                .to_owned(),
        ),
        (
            "tls = { self_signed = true }\nhttp3 = true\npassthrough = [{ names = [\"a.example\"], upstream = \"app\" }]",
            "6:9: http3 cannot be combined with passthrough, which forwards TLS over TCP; expected one of them, or two listeners"
                .to_owned(),
        ),
        (
            "tls = { self_signed = true }\nhsts = 365",
            "6:8: hsts: this is an integer; expected a duration such as 365d, or { max_age = \"365d\", \
             include_subdomains = true }"
                .to_owned(),
        ),
        (
            "tls = { self_signed = true }\nhsts = { max_age = \"365d\", preload = true }",
            "6:8: hsts: preload alone is not accepted; expected max_age of at least 365d and include_subdomains = true \
             beside it"
                .to_owned(),
        ),
        (
            "tls = { self_signed = true }\nhsts = { preload = true }",
            "6:8: hsts has no max_age; expected a duration such as 50ms, 1.5s, 2m or 1h, 0s to 730d".to_owned(),
        ),
    ] {
        assert_eq!(said(&file(lines)), [expected], "{lines}");
    }
}

#[test]
fn tls_of_upstreams() {
    let file = |lines: &str| format!("{LISTEN}\n{ROUTE}\n[upstream.app]\nservers = [\"https://a\"]\n{lines}");
    for (lines, expected) in [
        ("tls = { cert = \"a\" }", "5:16: cert needs key; expected the key as well"),
        (
            "tls = { name = \"10.0.0.1\" }",
            "5:16: name: \"10.0.0.1\" is not a host: it is an address; expected a host name such as www.example.com, \
             without port",
        ),
        (
            "tls = { name = \"a.example:443\" }",
            "5:16: name: this host takes no port, but 443 was given; expected a host name such as www.example.com, \
             without port",
        ),
        ("tls = { verify = \"no\" }", "5:18: verify: this is a string; expected true or false"),
        (
            "tls = { verifi = false }",
            "5:9: unknown key \"verifi\" in tls; did you mean \"verify\"? Expected ca, name, verify, cert, key, passphrase, key_log, preset, min_version, max_version, ciphers or groups",
        ),
        (
            "protocol = \"h2c\"",
            "5:12: protocol: unknown word \"h2c\"; did you mean \"h2\"? Expected \"http/1.1\", \"h2\" or \"h3\"",
        ),
    ] {
        assert_eq!(said(&file(lines)), [expected], "{lines}");
    }
}

#[test]
fn tls_that_is_hardly_meant_is_a_warning() {
    let warnings = |text: &str| {
        let reading = examine(text, "f");
        assert!(reading.config.is_some(), "{:?}", reading.mistakes);
        reading.warnings.iter().map(Mistake::to_string).collect::<Vec<_>>()
    };
    let upstream = |scheme: &str, tls: &str| {
        warnings(&format!("{LISTEN}\n{ROUTE}\n[upstream.app]\nservers = [\"{scheme}://a\"]\ntls = {tls}"))
    };
    let nobody = "f:5:18: verify = false: an attacker on the network can read and change everything";
    for (scheme, tls, expected) in [
        ("https", "{ ca = \"a\" }", None),
        ("http", "{ ca = \"a\" }", Some("f:5:7: tls: this upstream has no https server")),
        ("https", "{ verify = false }", Some(nobody)),
        (
            "https",
            "{ verify = false, ca = \"a\" }",
            Some("f:5:30: ca is not used: verify = false accepts any certificate"),
        ),
        (
            "https",
            "{ verify = false, name = \"a\" }",
            Some("f:5:18: verify = false: name is sent, but not verified"),
        ),
    ] {
        assert_eq!(upstream(scheme, tls), expected.into_iter().collect::<Vec<_>>(), "{scheme} {tls}");
    }
    let redirect = "[[listen]]\naddress = \"127.0.0.1:80\"\nredirect_to_https = true\n";
    let https = "[[listen]]\naddress = \"127.0.0.1:443\"\ntls = { self_signed = true }\n";
    let alone = "f:5:21: redirect_to_https: no listener has tls; expected a [[listen]] with tls, for the redirected clients";
    let reached = "f:1:10: route \"/\" is never reached: all its listeners redirect to https";
    assert_eq!(warnings(&format!("{ROUTE}\n{UPSTREAM}\n{redirect}")), [reached, alone]);
    // A proxy in front that ends TLS says who came by https.
    let behind = "trusted_proxies = [\"10.0.0.0/8\"]";
    assert_eq!(warnings(&format!("{behind}\n{ROUTE}\n{UPSTREAM}\n{redirect}")), Vec::<String>::new());
    assert_eq!(warnings(&format!("{ROUTE}\n{UPSTREAM}\n{redirect}{https}")), Vec::<String>::new());
}

#[test]
fn what_is_wrong_with_a_file_is_said_where_it_is_named() {
    let text = "\
[[listen]]
address = \"127.0.0.1:443\"
tls = { certificates = [{ cert = \"a\", key = \"b\" }, { cert = \"c\", key = \"b\", ocsp = \"o\" }] }
[[listen]]
address = \"127.0.0.1:8443\"
tls = { cert = \"a\", key = \"b\", client_certificates = { mode = \"required\", ca = \"ca\" } }
[[route]]
upstream = \"app\"
[upstream.app]
servers = [\"https://a\"]
tls = { ca = \"ca\", cert = \"a\", key = \"b\" }
[upstream.other]
servers = [\"https://a\"]
[cache]
memory = \"1MiB\"
[cache.peers]
listen = \"127.0.0.1:7443\"
address = \"127.0.0.1:7443\"
ca = \"peer-ca\"
cert = \"peer\"
key = \"peer-key\"
";
    let reading = examine(text, "f");
    let (listener, upstream) = (Owner::Listener, Owner::Upstream);
    for (owner, file, said) in [
        (listener(0), Some("a"), Some("f:3:34: cert: /here/a: m; expected e")),
        (listener(0), Some("b"), Some("f:3:45: key: /here/b: m; expected e")),
        (listener(0), Some("o"), Some("f:3:84: ocsp: /here/o: m; expected e")),
        (listener(0), None, Some("f:3:7: tls: m; expected e")),
        (listener(1), Some("a"), Some("f:6:16: cert: /here/a: m; expected e")),
        (listener(1), Some("ca"), Some("f:6:80: ca: /here/ca: m; expected e")),
        (upstream(0), Some("ca"), Some("f:11:14: ca: /here/ca: m; expected e")),
        (upstream(0), Some("b"), Some("f:11:38: key: /here/b: m; expected e")),
        (upstream(1), None, Some("f:12:11: tls: m; expected e")),
        (upstream(2), None, None),
        (listener(2), Some("peer-ca"), Some("f:19:6: ca: /here/peer-ca: m; expected e")),
        (listener(2), Some("peer-key"), Some("f:21:7: key: /here/peer-key: m; expected e")),
        (listener(3), None, None),
    ] {
        let mistake = reading.mistake_about(owner, file.map(Path::new), "m", Some("e"));
        // A relative path begins at the folder of the process, which the reader of a message may not know.
        let here = std::env::current_dir().expect("there is one").display().to_string();
        let mistake = mistake.map(|mistake| mistake.to_string().replace(&here, "/here"));
        assert_eq!(mistake.as_deref(), said, "{owner:?} {file:?}");
    }
}

#[test]
fn ten_mistakes_are_reported_at_once_in_the_order_of_the_file() {
    let text = "\
worker = 3
[[listen]]
adress = \"127.0.0.1:80\"
[[route]]
path = \"api\"
upstream = \"ap\"
[upstream.app]
servers = [\"ftp://x\", { url = \"http://y\", weight = -1 }]
balance = \"random\"
[timeouts]
drain = 30
client_header = 10s
[limits]
header_count = \"3\"
";
    let mistakes = parse(text, "vanward.toml").unwrap_err();
    let places: Vec<(usize, usize)> = mistakes.iter().map(|mistake| (mistake.line, mistake.column)).collect();
    let expected = [(1, 1), (3, 1), (5, 8), (6, 12), (8, 12), (8, 52), (9, 11), (11, 9), (12, 17), (14, 16)];
    assert_eq!(places, expected, "{mistakes:#?}");
    assert!(mistakes.iter().all(|mistake| mistake.file == "vanward.toml"));
}

#[test]
fn beside_syntax_errors_nothing_is_called_missing() {
    // The listener's header is broken: the file has none, and that isn't the mistake.
    let text =
        format!("{ROUTE}\n{UPSTREAM}\n[[listen]\naddress = \"127.0.0.1:80\"\n[limits]\nheader_count = 0\n");
    let places: Vec<usize> = parse(&text, "f").unwrap_err().iter().map(|mistake| mistake.line).collect();
    assert_eq!(places.first(), Some(&3));
    assert!(!said(&text).iter().any(|line| line.contains("has no")), "{:?}", said(&text));
    // Nor is anything said of what a lost part may have belonged to.
    let text = format!("{ROUTE}\n{UPSTREAM}\n[[listen]]\naddress = \"127.0.0.1:80\"\nhsts = \"1d\"\ntls\n");
    assert_eq!(said(&text).len(), 1, "{:?}", said(&text));
    // A value that is broken is not missing, and other mistakes are still found.
    let text = "[[listen]]\naddress = 127.0.0.1:80\n[[route]]\nupstream = \"app\"\n[upstream.app]\nservers = [\"a\"]\n";
    let lines: Vec<usize> = parse(text, "f").unwrap_err().iter().map(|mistake| mistake.line).collect();
    assert_eq!(lines, [2, 6]);
}

#[test]
fn what_is_hardly_meant_is_a_warning() {
    let text = with("upstream.old.servers = [\"http://a\", \"http://b\", \"http://a:80\"]");
    let reading = examine(&text, "f");
    assert!(reading.config.is_some());
    let warnings: Vec<String> = reading.warnings.iter().map(Mistake::to_string).collect();
    assert_eq!(
        warnings,
        [
            "f:4:10: no route leads to upstream \"old\"",
            "f:4:49: servers: http://a:80 appears twice; expected a weight on the one of line 4",
        ]
    );
}

#[test]
fn files_that_can_not_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let said = |path: &std::path::Path| {
        let mistakes = examine_file(path).mistakes;
        let messages: Vec<(usize, usize, String)> =
            mistakes.into_iter().map(|mistake| (mistake.line, mistake.column, mistake.message)).collect();
        messages
    };
    let missing = said(&directory.path().join("missing.toml"));
    assert!(matches!(&missing[..], [(1, 1, message)] if message.starts_with("the file can't be read: ")));
    assert!(
        matches!(&said(directory.path())[..], [(1, 1, message)] if message.starts_with("the file can't be read: "))
    );

    let latin = directory.path().join("latin.toml");
    std::fs::write(&latin, b"workers = 1\n# caf\xe9\n").unwrap();
    assert_eq!(said(&latin), [(2, 6, "this is not UTF-8 text".to_owned())]);

    let endless = std::path::Path::new("/dev/zero");
    assert_eq!(said(endless), [(1, 1, "the file is larger than 16 MiB".to_owned())]);
}

/// Hints translate the terms of other proxies.
#[test]
fn names_of_other_proxies_are_understood() {
    let file = |more: &str| {
        format!(
            "[[listen]]\naddress = \"127.0.0.1:1\"\n[[route]]\nupstream = \"a\"\n[upstream.a]\nservers = [\"http://b\"]\n{more}\n"
        )
    };
    for (more, said) in [
        (
            "max_fails = 3",
            "7:1: unknown key \"max_fails\" in [upstream.a]; here it is `eject` of [upstream.NAME]",
        ),
        (
            "balance = \"leastconn\"",
            "7:11: balance: unknown word \"leastconn\"; did you mean \"least-connections\"?",
        ),
        (
            "[[route]]\nserver_name = \"x\"\nproxy_pass = \"http://c\"",
            "8:1: unknown key \"server_name\" in [[route]]; here it is `host`",
        ),
        ("[[route]]\nproxy_pass http://c;", "8:12: key with no value; here it is `upstream` of [[route]]"),
        (
            "timeout connect 5s",
            "7:9: key with no value; here it is `upstream_connect` of [timeouts], and for some servers `connect_timeout` in `pool` of [upstream.NAME]",
        ),
        ("[[backend]]\nname = \"x\"", "7:3: unknown key \"backend\" in the file; here it is [upstream.NAME]"),
        // What is an option elsewhere.
        ("drain = \"5s\"", "7:1: unknown key \"drain\" in [upstream.a]; it is an option of [timeouts]"),
    ] {
        let mistakes = config::parse(&file(more), "f").expect_err("it is wrong");
        let all: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        assert!(all.iter().any(|mistake| mistake.contains(said)), "{more}: {all:#?}");
    }
}

#[test]
fn a_file_of_another_proxy_is_one_mistake() {
    let nginx = "http {\n  server {\n    listen 80;\n    location / { proxy_pass http://a; }\n  }\n}\n";
    let mistakes = config::parse(nginx, "nginx.conf").expect_err("it is no file of ours");
    assert_eq!(mistakes.len(), 1, "{mistakes:#?}");
    let said = "nginx.conf:1:1: this is a configuration of nginx; `vanward adapt nginx nginx.conf` translates it; expected a configuration of vanward, in TOML: ";
    assert!(mistakes[0].to_string().starts_with(said), "{}", mistakes[0]);
    assert_eq!(mistakes[0].shown(), "    1 | http {\n      | ^^^^^^\n");
    let haproxy = "defaults\n  mode http\nfrontend a\n  bind :80\n";
    let mistakes = config::parse(haproxy, "h.cfg").expect_err("it is no file of ours");
    let said = "`vanward adapt haproxy h.cfg` translates it";
    assert_eq!((mistakes.len(), mistakes[0].hint.as_deref()), (1, Some(said)));
    let traefik = "[entryPoints.web]\naddress = \":80\"\n[http.routers.a]\nrule = \"Host(`a`)\"\n";
    let mistakes = config::parse(traefik, "traefik.toml").expect_err("it is no file of ours");
    let said = "`vanward adapt traefik traefik.toml` translates it";
    assert_eq!((mistakes.len(), mistakes[0].hint.as_deref()), (1, Some(said)));
    let envoy = "static_resources:\n  listeners:\n  - name: listener_0\n    address:\n      socket_address: { address: 0.0.0.0 }\n";
    let mistakes = config::parse(envoy, "envoy.yaml").expect_err("it is no file of ours");
    assert_eq!((mistakes.len(), mistakes[0].message.as_str()), (1, "this is a configuration of Envoy"));
    assert_eq!(mistakes[0].hint, None, "there is no such conversion yet");
}

#[test]
fn an_option_is_taken_under_its_former_name_with_a_notice() {
    let file = |line: &str| format!("{line}\n{LISTEN}\n{ROUTE}\n{UPSTREAM}");
    let reading = examine(&file("gather = \"1ms\""), "f");
    let told: Vec<_> = reading.warnings.iter().map(Mistake::to_string).collect();
    assert_eq!(told, ["f:1:1: gather is called wakeup_coalescing now"]);
    let settings = reading.config.expect("it is valid");
    assert_eq!(settings.wakeup_coalescing, std::time::Duration::from_millis(1));
    let reading = examine(&file("wakeup_coalescing = \"0s\"\ngather = \"1ms\""), "f");
    let told: Vec<_> = reading.mistakes.iter().map(Mistake::to_string).collect();
    assert_eq!(told, ["f:1:1: gather is the former name of wakeup_coalescing: write it once"]);
}
