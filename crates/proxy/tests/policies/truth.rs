//! Facts that trusted proxies report about a client apply everywhere; those from others are ignored.

use testkit::scene::{BOTH, BodylessRequest, Scene, Spoken, get};

const OK: &str = "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\n\r\nok";

/// A listener that redirects to https, behind a proxy that terminates TLS.
const REDIRECTING: &str = "[[listen]]\nname = \"plain\"\naddress = \"127.0.0.1:0\"\nredirect_to_https = true\nhsts = \"30d\"\n\
    [[route]]\nupstream = \"app\"\n[upstream.app]\nservers = [\"http://{0}\"]\nsticky = { by = \"cookie\" }\n";

fn asked<'a>(fields: &'a str) -> BodylessRequest<'a> {
    BodylessRequest { fields, ..get("/x?y") }
}

/// Returns the values of a field in a head.
fn field<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let pairs = head.lines().filter_map(|line| line.split_once(": "));
    pairs.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
}

#[test]
fn what_came_by_https_to_a_trusted_proxy_is_not_redirected_to_https_again() {
    let scene = Scene::new(&format!("trusted_proxies = [\"127.0.0.0/8\"]\n{REDIRECTING}"));
    for spoken in BOTH {
        for fields in ["x-forwarded-proto: https", "forwarded: for=192.0.2.1;proto=https"] {
            let (seen, got) = scene.exchange(spoken, &asked(fields), OK);
            assert_eq!(got.status, 200, "{spoken:?} {fields}");
            assert_eq!(field(&seen, "X-Forwarded-Proto"), ["https"], "{seen}");
            // RFC 6797 §7.2, and the proxy's cookies.
            assert_eq!(got.field("strict-transport-security"), Some("max-age=2592000"), "{got:?}");
            assert!(got.field("set-cookie").is_some_and(|cookie| cookie.ends_with("; Secure")), "{got:?}");
        }
        for fields in ["", "x-forwarded-proto: http", "forwarded: for=192.0.2.1;proto=http"] {
            let got = scene.answer(spoken, &asked(fields));
            assert_eq!(
                (got.status, got.field("location")),
                (308, Some("https://test/x?y")),
                "{spoken:?} {fields}"
            );
            assert_eq!(got.field("strict-transport-security"), None, "{got:?}");
        }
        // The client's host, which the proxy in front has replaced.
        let got = scene.answer(spoken, &asked("x-forwarded-host: www.example.com:80"));
        assert_eq!(got.field("location"), Some("https://www.example.com/x?y"));
    }
}

#[test]
fn what_a_stranger_says_changes_nothing() {
    let scene = Scene::new(
        "trusted_proxies = [\"10.0.0.0/8\"]\n[[route]]\nupstream = \"app\"\nallow = [\"127.0.0.0/8\"]\n\
         request_headers = { set = { X-Said = \"$scheme $host $port $client_address\" } }\n\
         [upstream.app]\nservers = [\"http://{0}\"]\nsticky = { by = \"cookie\" }\n",
    );
    for spoken in BOTH {
        let fields = "x-forwarded-for: 192.0.2.1\nx-forwarded-proto: https\nx-forwarded-host: evil\nx-forwarded-port: 1\n\
                      x-real-ip: 192.0.2.1\nx_real_ip: 192.0.2.1\nforwarded: for=192.0.2.1;proto=https;host=evil\n";
        let (seen, got) = scene.exchange(spoken, &asked(fields), OK);
        assert_eq!(got.status, 200);
        assert_eq!(field(&seen, "X-Said"), ["http test 80 127.0.0.1"], "{seen}");
        assert_eq!(field(&seen, "Forwarded"), ["for=127.0.0.1;proto=http;host=\"test\""], "{seen}");
        assert!(!seen.contains("192.0.2.1") && !seen.contains("evil"), "{seen}");
        assert!(got.field("set-cookie").is_some_and(|cookie| !cookie.contains("Secure")), "{got:?}");
    }
}

#[test]
fn servers_get_the_name_of_this_machine_and_the_time() {
    let scene = Scene::new(
        "[[route]]\nupstream = \"app\"\nrequest_headers = { set = { X-Said = \"$hostname\", X-Start = \"$time.unix $time.unix_ms\" } }\n\
         [upstream.app]\nservers = [\"http://{0}\"]\n",
    );
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    let now_ms = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.expect("it is later than 1970").as_millis()
    };
    for spoken in BOTH {
        let before = now_ms();
        let (seen, _) = scene.exchange(spoken, &asked(""), OK);
        assert_eq!(field(&seen, "X-Said"), [name.trim()], "{seen}");
        let start = field(&seen, "X-Start")[0].to_owned();
        let (seconds, ms) = start.split_once(' ').expect("two times");
        let ms: u128 = ms.parse().expect("a number");
        assert!((before..=now_ms()).contains(&ms), "{start}");
        let (whole, rest) = seconds.split_once('.').expect("has milliseconds");
        assert_eq!((whole.len(), rest.len()), (10, 3), "{start}");
    }
}

#[test]
fn variables_limits_and_access_follow_the_client_that_a_proxy_names() {
    let scene = Scene::new(
        "trusted_proxies = [\"127.0.0.0/8\"]\n[[route]]\nupstream = \"app\"\ndeny = [\"198.51.100.0/24\"]\n\
         rate_limit = { rate = \"1/h\", key = \"client\" }\n\
         request_headers = { set = { X-Said = \"$scheme $host $port\", X-Real-IP = \"$client_address\", \
         X-Forwarded-Port = \"$port\" } }\n[upstream.app]\nservers = [\"http://{0}\"]\n",
    );
    for (number, (fields, said, port, client)) in [
        (
            "x-forwarded-for: 203.0.113.1\nx-forwarded-proto: https\nx-forwarded-port: 8443",
            "https test 8443",
            "8443",
            "203.0.113.1",
        ),
        (
            "forwarded: for=203.0.113.2;proto=https;host=\"www.example.com:444\"",
            "https www.example.com 444",
            "444",
            "203.0.113.2",
        ),
        ("x-forwarded-for: 203.0.113.3", "http test 80", "80", "203.0.113.3"),
        ("forwarded: for=203.0.113.4;proto=https", "https test 443", "443", "203.0.113.4"),
    ]
    .into_iter()
    .enumerate()
    {
        let spoken = BOTH[number % 2];
        let (seen, got) = scene.exchange(spoken, &asked(fields), OK);
        assert_eq!(got.status, 200, "{fields}");
        assert_eq!(field(&seen, "X-Said"), [said], "{seen}");
        assert_eq!(field(&seen, "X-Forwarded-Port"), [port], "{seen}");
        assert_eq!(field(&seen, "X-Real-IP"), [client], "{seen}");
        assert_eq!(scene.answer(spoken, &asked(fields)).status, 429, "{fields}");
    }
    for fields in ["x-forwarded-for: 198.51.100.1", "forwarded: for=198.51.100.1"] {
        assert_eq!(scene.answer(Spoken::Http1, &asked(fields)).status, 403, "{fields}");
    }
}

/// A certificate authority uses plain HTTP, and follows no redirect to a host without a certificate.
#[test]
fn a_route_for_listeners_without_tls_is_not_redirected() {
    let scene = Scene::new(&format!(
        "trusted_proxies = [\"10.0.0.0/8\"]\n{REDIRECTING}[[route]]\nlistener = \"plain\"\npath = \"/.well-known/acme-challenge\"\nrespond = {{ status = 200, body = \"token\" }}\n"
    ));
    for spoken in BOTH {
        let got = scene.answer(spoken, &get("/.well-known/acme-challenge/a"));
        assert_eq!((got.status, got.body.as_str()), (200, "token"));
        assert_eq!(scene.answer(spoken, &get("/other")).status, 308);
    }
}

/// nginx does not compress responses to requests with Via.
#[test]
fn via_can_be_named_switched_off_and_removed() {
    for (option, in_request, in_response) in [
        ("", vec!["1.0 before", "1.1 vanward"], vec!["1.0 behind", "1.1 vanward"]),
        ("via = \"edge-1\"", vec!["1.0 before", "1.1 edge-1"], vec!["1.0 behind", "1.1 edge-1"]),
        ("via = \"off\"", vec!["1.0 before"], vec!["1.0 behind"]),
        ("request_headers = { remove = \"Via\" }", vec![], vec!["1.0 behind", "1.1 vanward"]),
        ("response_headers = { remove = \"Via\" }", vec!["1.0 before", "1.1 vanward"], vec![]),
        (
            "request_headers = { set = { Via = \"1.1 hidden\" } }",
            vec!["1.1 hidden"],
            vec!["1.0 behind", "1.1 vanward"],
        ),
    ] {
        let scene = Scene::new(&format!(
            "[[route]]\nupstream = \"app\"\n{option}\n[upstream.app]\nservers = [\"http://{{0}}\"]\n"
        ));
        for spoken in BOTH {
            let behind = OK.replace("Date: D", "Via: 1.0 behind");
            let (seen, got) = scene.exchange(spoken, &asked("via: 1.0 before"), &behind);
            let version = if spoken == Spoken::Http2 { "2.0" } else { "1.1" };
            let expected: Vec<String> = in_request
                .iter()
                .map(|via| {
                    via.replace("1.1 v", &format!("{version} v")).replace("1.1 e", &format!("{version} e"))
                })
                .collect();
            assert_eq!(field(&seen, "Via"), expected, "{option} {spoken:?}: {seen}");
            let told: Vec<&str> = got.all("via").iter().map(|via| via.trim_start_matches("1.1 ")).collect();
            let expected: Vec<&str> = in_response.iter().map(|via| via.trim_start_matches("1.1 ")).collect();
            assert_eq!(told, expected, "{option} {spoken:?}");
        }
    }
}

/// Fields that the proxy adds can be removed and set for every source: from a server, and from the cache.
#[test]
fn fields_of_the_proxys_own_are_edited_on_every_way() {
    let scene = Scene::new(
        "[cache]\nmemory = \"16MiB\"\n[[route]]\nupstream = \"app\"\ncache = {}\n\
         request_headers = { remove = [\"Via\", \"X-Forwarded-For\", \"Forwarded\", \"Max-Forwards\"] }\n\
         response_headers = { remove = [\"Via\", \"Age\", \"Cache-Status\", \"Date\"] }\n\
         [upstream.app]\nservers = [\"http://{0}\"]\n",
    );
    let stored = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 2\r\n\r\nok";
    let names = ["via", "age", "cache-status", "date"];
    let (seen, got) = scene.exchange(Spoken::Http1, &get("/a"), stored);
    for name in ["Via", "X-Forwarded-For", "Forwarded"] {
        assert!(field(&seen, name).is_empty(), "{seen}");
    }
    assert!(names.iter().all(|name| got.field(name).is_none()), "{got:?}");
    for spoken in BOTH {
        let got = scene.answer(spoken, &get("/a"));
        assert_eq!((got.status, got.body.as_str()), (200, "ok"), "a hit");
        assert!(names.iter().all(|name| got.field(name).is_none()), "{got:?}");
    }
    let options = BodylessRequest { method: "OPTIONS", fields: "max-forwards: 5", ..get("/b") };
    let (seen, _) = scene.exchange(Spoken::Http1, &options, OK);
    assert!(field(&seen, "Max-Forwards").is_empty(), "{seen}");
}

/// The browser gets URLs for the path that it used, rather than the server's.
#[test]
fn a_rewrite_is_undone_in_locations_refreshes_and_cookies_alike() {
    let scene = Scene::new(
        "[[route]]\npath = \"/api\"\nupstream = \"app\"\nrewrite = { path = \"/v1\" }\n\
         [[route]]\npath = \"/strip\"\nupstream = \"app\"\nrewrite = { path = \"/\" }\n\
         [[route]]\npath = \"/kept\"\nupstream = \"app\"\nrewrite = { path = \"/v1\" }\ncookies = { path = false }\n\
         [upstream.app]\nservers = [\"http://{0}\"]\n",
    );
    let server = scene.server_address(0);
    for (target, sent, name, expected) in [
        ("/api/login", "Location: /v1/home", "location", "/api/home"),
        ("/api/login", &*format!("Location: http://{server}/v1/home"), "location", "http://test/api/home"),
        ("/api/login", &*format!("Location: //{server}/v1/home"), "location", "//test/api/home"),
        ("/api/login", "Location: //test/v1/home", "location", "//test/api/home"),
        ("/api/login", "Location: home", "location", "home"),
        ("/strip", "Location: home", "location", "/strip/home"),
        ("/strip/a", "Location: home", "location", "home"),
        ("/api/login", "Content-Location: /v1/home", "content-location", "/api/home"),
        ("/api/login", "Refresh: 5; url=/v1/home", "refresh", "5; url=/api/home"),
        ("/api/login", "Refresh: 5;/v1/home", "refresh", "5;/api/home"),
        ("/api/login", "Refresh: 5; URL='/v1/home'", "refresh", "5; URL='/api/home'"),
        ("/api/login", "Set-Cookie: s=1; Path=/v1", "set-cookie", "s=1; Path=/api"),
        ("/api/login", "Set-Cookie: s=1; Path=/v1/a; Secure", "set-cookie", "s=1; Path=/api/a; Secure"),
        ("/api/login", "Set-Cookie: s=1; Path=/v10", "set-cookie", "s=1; Path=/v10"),
        ("/strip/a", "Set-Cookie: s=1; Path=/", "set-cookie", "s=1; Path=/strip"),
        ("/kept/a", "Set-Cookie: s=1; Path=/v1", "set-cookie", "s=1; Path=/v1"),
    ] {
        for spoken in BOTH {
            let response = OK.replace("Date: D", sent);
            let (_, got) = scene.exchange(spoken, &get(target), &response);
            assert_eq!(got.field(name), Some(expected), "{target} {sent} {spoken:?}");
        }
    }
}

/// RFC 9440 §4: only from trusted proxies.
#[test]
fn what_clients_say_of_certificates_is_believed_of_trusted_ones() {
    for (trusted, expected) in [("", 0), ("\"127.0.0.1\"", 2)] {
        let scene = Scene::new(&format!(
            "trusted_proxies = [{trusted}]\n[[route]]\nupstream = \"app\"\nclient_cert = \"chain\"\n\
             [upstream.app]\nservers = [\"http://{{0}}\"]\n"
        ));
        for spoken in BOTH {
            let fields = "client-cert: :AAAA:\nclient-cert-chain: :AAAA:\nx-client: a\n";
            let (seen, _) = scene.exchange(
                spoken,
                &BodylessRequest { fields, ..get("/") },
                "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
            );
            assert_eq!(seen.matches("client-cert").count(), expected, "{spoken:?} {trusted}: {seen}");
            assert!(seen.contains("x-client: a"), "{seen}");
        }
    }
}
