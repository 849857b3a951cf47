//! Mistakes in upstreams and at the top of the file: what is wrong with a value, and what makes no sense together.

use config::parse;

const LISTEN: &str = "listen = [{ address = \"127.0.0.1:8080\" }]";
const ROUTE: &str = "route = [{ upstream = \"app\" }]";

/// The mistakes of a file, a line each, without its name.
fn said(file: &str) -> Vec<String> {
    let mistakes = parse(file, "f").err().unwrap_or_default();
    mistakes.iter().map(|mistake| mistake.to_string().replacen("f:", "", 1)).collect()
}

#[test]
fn upstreams() {
    let cases: &[(&str, &[&str])] = &[
        (
            "balance = \"random\"",
            &[
                "5:11: balance: unknown word \"random\"; did you mean \"two-choices\"? Expected \"round-robin\", \
                 \"least-connections\", \"two-choices\", \"response-time\", \"client-address\" or \"consistent-hash\"",
            ],
        ),
        (
            "hash_key = \"client\"",
            &["5:12: hash_key: balance = \"round-robin\" does not use it; expected balance = \
               \"consistent-hash\""],
        ),
        (
            "balance = \"client-address\"\nhash_key = \"path\"",
            &["6:12: hash_key: balance = \"client-address\" hashes the client's address; expected client \
               or client/24, or balance = \"consistent-hash\""],
        ),
        (
            "load_bound = \"150%\"",
            &["5:14: load_bound: balance = \"round-robin\" does not use it; expected balance = \
               \"consistent-hash\""],
        ),
        (
            "balance = \"consistent-hash\"\nload_bound = \"50%\"",
            &["6:14: load_bound: 50% is too small; expected a percentage such as 20%, 100% to 10000%"],
        ),
        (
            "slow_start = 5",
            &[
                "5:14: slow_start: 5 has no unit; did you mean \"5s\"? Expected a duration such as 50ms, 1.5s, 2m or 1h, 0s to \
                 1h",
            ],
        ),
        (
            "priority_suffices = 50",
            &[
                "5:21: priority_suffices: 50 has no %; did you mean \"50%\"? Expected a percentage such as 20%, 0% to 100%",
            ],
        ),
        (
            "priority_suffices = \"50\"",
            &[
                "5:21: priority_suffices: \"50\" has no %; did you mean \"50%\"? Expected a percentage such as 20%",
            ],
        ),
        (
            "protocol = \"h2\"\nsend_proxy_protocol = \"v1\"",
            &["6:23: send_proxy_protocol names one client per connection, but with protocol = \"h2\" \
               clients share connections; expected protocol = \"http/1.1\""],
        ),
        (
            "sticky = {}",
            &["5:10: [upstream.app.sticky] has no by; expected cookie, origin-cookie:NAME, client, \
                 client/24, basic-user, header:NAME, query:NAME, a value such as ${app}, or path-parameter:NAME"],
        ),
        (
            "sticky = { by = \"cookie\", sessions = 5 }",
            &["5:38: sticky: an inserted cookie names its server, so no sessions are stored; expected no \
               sessions"],
        ),
        (
            "sticky = { by = \"cookie\", shared = true }",
            &["5:36: sticky: all instances with the same secret_file accept an inserted cookie; expected \
               no shared"],
        ),
        (
            "sticky = { by = \"client\", shared = true }",
            &["5:36: shared: instances share through [redis], which is missing; expected [redis] with \
               its url and secret_file as well, or no shared"],
        ),
        (
            "sticky = { by = \"cookie:id\" }",
            &["5:17: by: \"cookie:id\" does not say who sets the cookie; did you mean \
               \"origin-cookie:id\"? Expected cookie, origin-cookie:NAME, client, client/24, basic-user, \
               header:NAME, query:NAME or path-parameter:NAME"],
        ),
        (
            "sticky = { by = \"client\", name = \"x\", ttl = \"browser\" }",
            &[
                "5:34: sticky: name is for the inserted cookie; expected by = \"cookie\"",
                "5:45: sticky: ttl = \"browser\" is for the inserted cookie; expected a duration such as 30m",
            ],
        ),
        (
            "balance = \"consistent-hash\"\nsticky = { by = \"client\" }",
            &["6:17: sticky: balance = \"consistent-hash\" already keeps clients on their servers; \
               expected another balance, or no sticky sessions"],
        ),
        (
            "sticky = { by = \"cookie\", same_site = \"none\" }",
            &["5:39: sticky: browsers reject same_site = \"none\" without secure; expected secure = true \
               beside it"],
        ),
        (
            "sticky = { by = \"cookie\", secret_file = \"/nowhere/s\" }",
            &["5:41: secret_file: /nowhere/s: it can't be read: No such file or directory (os error 2); \
                 expected the path of a file with a secret of 32 bytes or more on each line, as openssl rand \
                 -hex 32 makes one"],
        ),
        (
            "sticky = { by = \"cookie\", name = \"a b\", path = \"a;b\" }",
            &[
                "5:34: name: \"a b\" cannot be the name of a cookie; expected the name of a cookie",
                "5:48: path: \"a;b\" cannot be the path of a cookie; expected a path such as /app",
            ],
        ),
        (
            "sticky = \"cookie\"",
            &["5:10: sticky is \"cookie\"; expected a table [upstream.app.sticky], or \"off\""],
        ),
        (
            "check = {}",
            &["5:9: [upstream.app.check] has no type; expected \"http\", \"tcp\", \"tls\", \"grpc\" or \
                 \"command\""],
        ),
        (
            "check = { type = \"https\" }",
            &[
                "5:18: type: unknown word \"https\"; did you mean \"http\"? Expected \"http\", \"tcp\", \"tls\", \"grpc\" or \
                 \"command\"",
            ],
        ),
        (
            "check = { type = \"tcp\", path = \"/\" }",
            &["5:32: check: path is not for type = \"tcp\"; expected type = \"http\""],
        ),
        (
            "check = { type = \"command\" }",
            &["5:9: check has no command; expected a program and its arguments"],
        ),
        (
            "check = { type = \"command\", command = [\"\"] }",
            &["5:39: command: the program is empty; expected a program and its arguments"],
        ),
        (
            "check = { type = \"http\", path = \"health\" }",
            &[
                "5:33: path: \"health\" cannot be the target of a request; did you mean \"/health\"? Expected a path such as /health, with a query \
                 or without",
            ],
        ),
        (
            "check = { type = \"http\", status = \"20x\" }",
            &["5:35: status: \"20x\" is no status; expected a status such as 200, \"2xx\" or \
                 \"200-399\""],
        ),
        (
            "check = { type = \"http\", body = \"~ (\" }",
            &["5:36: body: in the expression: unclosed group; expected text that the body contains, or ~ \
                 regex that matches the whole body"],
        ),
        (
            "check = { type = \"tcp\", interval = \"1s\", interval_in_doubt = \"2s\" }",
            &["5:9: check: interval_in_doubt is longer than interval; expected the same or less"],
        ),
        ("check = \"on\"", &["5:9: check is \"on\"; expected a table [upstream.app.check], or \"off\""]),
        ("eject = true", &["5:9: eject is true or false; expected a table [upstream.app.eject], or \"off\""]),
        (
            "eject = { base = \"1m\", longest = \"1s\" }",
            &["5:9: eject: longest is shorter than base; expected the same or more"],
        ),
        (
            "breaker = { open = \"1m\", open_max = \"1s\" }",
            &["5:11: breaker: open_max is shorter than open; expected the same or more"],
        ),
        (
            "retry = { budget = 10 }",
            &[
                "5:20: budget: 10 has no %; did you mean \"10%\"? Expected a percentage such as 20%, 0% to 1000%",
            ],
        ),
        (
            "retry = { on = [\"grpc-unavailble\"] }",
            &[
                "5:17: on: \"grpc-unavailble\" is not known here; did you mean \"grpc-unavailable\"? Expected connect, reset, \
                 timeout, a status such as 503, \"5xx\" or \"502-504\", or a status of gRPC such as grpc-unavailable",
            ],
        ),
        (
            "retry = { on = \"503\" }",
            &["5:16: on: this is a string; expected an array, each connect, reset, timeout, a status \
                 such as 503, \"5xx\" or \"502-504\", or a status of gRPC such as grpc-unavailable"],
        ),
        (
            "queue = { length = -1 }",
            &["5:20: length: -1 is too small; expected a whole number, 0 to 1000000"],
        ),
        (
            "dns = \"al\"",
            &["5:7: dns: unknown word \"al\"; did you mean \"all\"? Expected \"all\" or \"one\""],
        ),
    ];
    for (text, expected) in cases {
        let file = format!("{LISTEN}\n{ROUTE}\n[upstream.app]\nservers = [\"http://a\"]\n{text}");
        assert_eq!(said(&file), *expected, "{text}");
    }
}

#[test]
fn servers() {
    let cases: &[(&str, &[&str])] = &[
        (
            "[{ url = \"http://a\", name = \"x\" }, { url = \"http://b\", name = \"x\" }]",
            &["4:46: servers: the name \"x\" appears twice; expected a name other than the one in line \
               4"],
        ),
        (
            "[\"tcp://a:1\"]",
            &["2:23: upstream: upstream \"app\" has a tcp:// server, which speaks no HTTP; expected \
                 http:// or https:// servers, or a listener with tcp"],
        ),
        (
            "[\"http+unix:a\"]",
            &["4:12: servers: \"a\" is not the path of a socket: it begins with one / and ends in a name; \
                 expected a server such as http://127.0.0.1:9000"],
        ),
        (
            "[{ url = \"http://a\", max_requests = 0 }]",
            &["4:47: max_requests: 0 is too small; expected a whole number, 1 to 1000000"],
        ),
        (
            "[{ url = \"http://a\", name = \"a b\" }]",
            &["4:39: name: \"a b\" cannot be a name; expected 1 to 64 letters, digits, '.', '-' and '_'"],
        ),
    ];
    for (text, expected) in cases {
        let file = format!("{LISTEN}\n{ROUTE}\n[upstream.app]\nservers = {text}");
        assert_eq!(said(&file), *expected, "{text}");
    }
}

#[test]
fn the_top_of_the_file() {
    let cases: &[(&str, &[&str])] = &[
        (
            "admin = \"off\"",
            &["2:9: admin: \"off\" is not the path of a socket: it begins with one / and ends in a \
                 name; expected the path of a Unix socket such as /run/vanward/admin.sock"],
        ),
        (
            "admin = \"127.0.0.1:9901\"",
            &[
                "2:9: admin: \"127.0.0.1:9901\" is not the path of a socket: it begins with one / and ends in a \
                 name; expected the path of a Unix socket such as /run/vanward/admin.sock",
            ],
        ),
        (
            "metrics = \"127.0.0.1:80\"",
            &["1:23: address: 127.0.0.1:80 appears twice; expected an address other than the one in line \
               2"],
        ),
        (
            "error_pages = { 404 = \"/nowhere/404.html\" }",
            &["2:23: error_pages: /nowhere/404.html: it can't be read: No such file or directory (os error \
                 2); expected the path of a page such as /etc/vanward/404.html"],
        ),
        (
            "error_pages = { 302 = \"/dev/null\" }",
            &[
                "2:17: error_pages: \"302\" is no status of an error; expected 404, 4xx, 5xx, or * for all errors",
            ],
        ),
        (
            "listen = [{ address = \"127.0.0.1:1\", tcp = \"x\" }]",
            &["1:44: tcp: no upstream is named \"x\"; expected app"],
        ),
        (
            "listen = [{ address = \"127.0.0.1:1\", tcp = { app = 1, x = 2 } }]",
            &["1:55: tcp: no upstream is named \"x\"; expected app"],
        ),
        (
            "listen = [{ address = \"127.0.0.1:1\", tcp = { app = 0 } }]",
            &["1:44: tcp: no upstream gets a share; expected a weight above 0, such as { old = 9, new = 1 }"],
        ),
        (
            "listen = [{ address = \"127.0.0.1:1\", tcp = 5432 }]",
            &[
                "1:44: tcp: this is an integer; expected the name of an upstream: NAME of [upstream.NAME], or \
               weights of upstreams such as { app = 9, canary = 1 }",
            ],
        ),
        (
            "listen = [{ address = \"127.0.0.1:1\", tcp = \"app\", redirect_to_https = true }]",
            &["1:44: tcp forwards bytes: it has no responses for redirect_to_https or hsts; expected \
               neither of them"],
        ),
        (
            "listen = [{ address = \"unix:run\" }]",
            &["1:23: address: \"run\" is not the path of a socket: it begins with one / and ends in a \
                 name; expected an IP address with a port such as 127.0.0.1:8080 or [::1]:8080, *:8080 or :8080, or \
                 unix:/run/vanward.sock"],
        ),
        (
            "listen = [{ address = \"127.0.0.1:1\", name = \"a\" }, { address = \"127.0.0.1:2\", name = \"a\" }]",
            &["1:86: name: \"a\" appears twice; expected a name other than the one in line 1"],
        ),
        (
            "listen = [{ address = \"127.0.0.1:1\" }]\nshed.memory = \"1k\"",
            &["2:15: memory: 1KB is too small; expected a size in bytes such as 512, 64k, 256MB or 64KiB, \
                 at least 16MiB"],
        ),
        (
            "shed.memory = \"of\"",
            &["2:15: memory: \"of\" is not a number; expected a size in bytes such as 512, 64k, 256MB or \
                 64KiB"],
        ),
        (
            "shed.concurrency = \"of\"",
            &["2:20: concurrency is \"of\"; expected a table [shed.concurrency], or \"off\""],
        ),
        (
            "shed.concurrency = { tolerance = \"50%\" }",
            &["2:34: tolerance: 50% is too small; expected a percentage such as 20%, 101% to 10000%"],
        ),
    ];
    for (text, expected) in cases {
        let listen = if text.contains("listen") { "" } else { "listen = [{ address = \"127.0.0.1:80\" }]\n" };
        let file = format!("{listen}{text}\n{ROUTE}\nupstream.app.servers = [\"http://a\"]\n");
        assert_eq!(said(&file), *expected, "{text}");
    }
}

#[test]
fn what_http3_to_servers_cannot_have() {
    let cases: &[(&str, &str, &[&str])] = &[
        (
            "servers = [\"http://a\", \"https://b\", \"http+unix:/c\"]",
            "",
            &[
                "4:12: servers: http://a:80 has no TLS, which protocol = \"h3\" needs; expected an https:// URL, or \
                 protocol = \"h2\" or \"http/1.1\"",
                "4:37: servers: http+unix:/c has no TLS, which protocol = \"h3\" needs; expected an https:// URL, \
                 or protocol = \"h2\" or \"http/1.1\"",
            ],
        ),
        (
            "servers = [\"https://a\"]\ntls = { max_version = \"1.2\" }",
            "",
            &[
                "5:23: max_version: protocol = \"h3\" needs TLS 1.3, which QUIC is based on; expected \"1.3\", or no \
               max_version",
            ],
        ),
        (
            "servers = [\"https://a\"]\ncheck = { type = \"tcp\" }",
            "",
            &["5:9: check: type = \"tcp\" does not reach servers with protocol = \"h3\", which listen at \
               UDP; expected type = \"tls\", which does a QUIC handshake, or \"http\""],
        ),
        (
            "servers = [\"https://a\"]\nsend_proxy_protocol = \"v2\"",
            "",
            &["5:23: send_proxy_protocol names one client per connection, but with protocol = \"h3\" \
               clients share connections; expected protocol = \"http/1.1\""],
        ),
        (
            "servers = [\"https://a\"]",
            "[[listen]]\naddress = \"127.0.0.1:81\"\ntcp = \"app\"\n[[listen]]\naddress = \"127.0.0.1:80\"",
            &["7:7: tcp: upstream \"app\" has protocol = \"h3\", which cannot carry TCP; expected an \
               upstream without protocol = \"h3\""],
        ),
        (
            "servers = [\"https://a\"]\ntls = { min_version = \"1.3\" }\ncheck = { type = \"tls\" }",
            "[[route]]\npath = \"/web\"\nupstream = \"app\"\ngrpc_web = true",
            &[],
        ),
    ];
    for (upstream, more, expected) in cases {
        let listen = if more.contains("listen") { "" } else { LISTEN };
        let file = format!(
            "{listen}\n[upstream.app]\nprotocol = \"h3\"\n{upstream}\n{more}\n[[route]]\nupstream = \"app\""
        );
        assert_eq!(said(&file), *expected, "{upstream}");
    }
}

#[test]
fn what_fastcgi_cannot_have() {
    let scripts = "fastcgi = { root = \"/srv\", check_files = false }";
    let cases: &[(&str, &str, &[&str])] = &[
        (
            "servers = [\"fcgi://a:9000\"]",
            "",
            &["3:12: servers: fcgi://a:9000 needs to know its scripts; expected fastcgi = { root = \
               \"/srv/app/public\" }"],
        ),
        (
            "servers = [\"http://a\"]",
            scripts,
            &["4:11: fastcgi: there is no fcgi:// server; expected servers such as fcgi://127.0.0.1:9000"],
        ),
        (
            "servers = [\"fcgi://a:9000\", \"http://a\"]",
            scripts,
            &[
                "3:29: servers: http://a:80 does not speak FastCGI as the others do; expected an upstream for each \
               protocol",
            ],
        ),
        (
            "servers = [\"fcgi://a:9000\"]\nsend_proxy_protocol = \"v2\"",
            scripts,
            &[
                "4:23: send_proxy_protocol: applications behind FastCGI read no PROXY header; expected no such \
               option: REMOTE_ADDR names the client",
            ],
        ),
        (
            "servers = [\"fcgi://a:9000\"]\ncheck = { type = \"tls\" }",
            scripts,
            &[
                "4:9: check: fcgi:// servers have neither TLS nor gRPC; expected type = \"http\" with the path of a \
               ping page, or \"tcp\"",
            ],
        ),
        (
            "servers = [\"fcgi://a:9000\"]",
            "fastcgi = { root = \"srv\" }",
            &[
                "4:20: root: \"srv\" is not an absolute path; expected the absolute path of a directory such as \
               /srv/app/public",
            ],
        ),
        (
            "servers = [\"fcgi://a:9000\"]",
            "fastcgi = { root = \"/srv\", check_files = false, split = \"php\" }",
            &[
                "4:57: split: \"php\" is not an extension of scripts; expected a dot and the extension of scripts \
               such as .php",
            ],
        ),
        (
            "servers = [\"fcgi://a:9000\"]",
            "fastcgi = { root = \"/srv\", check_files = false, index = \"index.html\" }",
            &[
                "4:57: index: \"index.html\" is not the name of a script; expected the name of a script that ends in \
               .php",
            ],
        ),
        (
            "servers = [\"fcgi://a:9000\"]",
            "fastcgi = { root = \"/srv\", check_files = false, params = { 1A = \"x\" } }",
            &[
                "4:60: params: \"1A\" cannot be the name of a parameter; expected a name of letters, digits and \
               underscores, such as APP_ENV",
            ],
        ),
        (
            "servers = [\"fcgi://a:9000\", \"fcgi+unix:/run/a.sock\"]\ncheck = { type = \"http\", path = \"/ping\" }",
            scripts,
            &[],
        ),
    ];
    for (upstream, scripts, expected) in cases {
        let file = format!("{LISTEN}\n[upstream.app]\n{upstream}\n{scripts}\n[[route]]\nupstream = \"app\"");
        assert_eq!(said(&file), *expected, "{upstream} {scripts}");
    }
}

#[test]
fn routes_and_listeners_that_applications_cannot_serve() {
    let app =
        "[upstream.app]\nservers = [\"fcgi://a:9000\"]\nfastcgi = { root = \"/srv\", check_files = false }";
    for (rest, expected) in [
        (
            "[[route]]\nupstream = \"app\"\ngrpc_web = true",
            "grpc_web: upstream \"app\" speaks FastCGI, and gRPC is HTTP/2 or HTTP/3",
        ),
        (
            "[[listen]]\naddress = \"127.0.0.1:81\"\ntcp = \"app\"\n[[route]]\nupstream = \"app\"",
            "tcp: upstream \"app\" gets FastCGI requests, not bytes",
        ),
    ] {
        let listen = "[[listen]]\naddress = \"127.0.0.1:80\"";
        let mistakes = said(&format!("{listen}\n{app}\n{rest}")).join("\n");
        assert!(mistakes.contains(expected), "{mistakes}");
    }
}
