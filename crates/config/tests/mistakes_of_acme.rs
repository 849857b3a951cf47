//! Automatic certificates: what is refused, and why; what a file means, and that it can be printed and read again.

use std::path::PathBuf;

use config::{Certificates, Config, DnsWay, KeyType, examine, parse};

/// A listener with automatic certificates, one without TLS, and a route for `hosts`.
fn file(hosts: &str, tls: &str, acme: &str) -> String {
    format!(
        "listen = [{{ address = \"*:443\", tls = {{ certificates = \"auto\"{tls} }} }}, {{ address = \"*:80\" }}]\n\
         route = [{{ {hosts}upstream = \"app\" }}]\n\
         upstream.app.servers = [\"http://127.0.0.1:9000\"]\n\
         {acme}"
    )
}

fn names(config: &Config) -> (Vec<String>, PathBuf) {
    let tls = config.listeners[0].tls.as_ref().expect("it has TLS");
    match &tls.certificates {
        Certificates::Automatic { names, folder, .. } => (names.clone(), folder.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn names_are_those_of_the_routes_or_as_written() {
    const DNS: &str = "[acme]\ndns = { command = [\"hook\"] }";
    for (hosts, tls, acme, expected) in [
        ("host = [\"www.Example.com\", \"example.com\"], ", "", "", &["www.example.com", "example.com"][..]),
        ("host = [\"a.example\", \"*.a.example\"], ", "", DNS, &["a.example", "*.a.example"]),
        ("host = \"192.0.2.1\", ", "", "", &["192.0.2.1"]),
        (
            "host = \"a.example\", ",
            ", names = [\"b.example\", \"2001:db8::1\"]",
            "",
            &["b.example", "2001:db8::1"],
        ),
        ("", ", names = [\"*.b.example\"]", DNS, &["*.b.example"]),
        // The routes of another listener do not count.
        (
            "host = \"b.example\", listener = \"*:80\", upstream = \"app\" }, { host = \"a.example\", ",
            "",
            "",
            &["a.example"],
        ),
    ] {
        let text = file(hosts, tls, acme);
        let config = parse(&text, "f").unwrap_or_else(|mistakes| panic!("{mistakes:#?}\n{text}"));
        assert_eq!(names(&config).0, expected, "{text}");
    }
}

#[test]
fn one_certificate_may_have_all_names() {
    let listen = |port: u16, names: &str, more: &str| {
        format!("{{ address = \"*:{port}\", tls = {{ certificates = \"auto\", names = {names}{more} }} }}")
    };
    let parsed = |listeners: &[String], more: &str| {
        let text = format!(
            "listen = [{}, {{ address = \"*:80\" }}]\nroute = [{{ upstream = \"app\" }}]\n\
             upstream.app.servers = [\"http://127.0.0.1:9000\"]\n{more}",
            listeners.join(", ")
        );
        parse(&text, "f").map_err(|mistakes| mistakes[0].to_string())
    };
    let (both, one) = ("[\"a.example\", \"b.example\"]", ", one_certificate = true");
    let is_one = |config: &Config| {
        let tls = config.listeners[0].tls.as_ref().expect("it has TLS");
        matches!(&tls.certificates, Certificates::Automatic { is_one: true, .. })
    };
    let config = parsed(&[listen(443, both, one)], "").expect("is valid");
    assert!(is_one(&config) && is_one(&parse(&config.text(&config), "printed").expect("is valid")));
    assert!(!is_one(&parsed(&[listen(443, both, ", one_certificate = false")], "").expect("is valid")));
    // The same certificate for two listeners, and others beside it.
    let others = [listen(443, both, one), listen(8443, both, one), listen(9443, "[\"c.example\"]", "")];
    assert!(parsed(&others, "[acme]\nports_forwarded = true").is_ok());
    for other in [listen(8443, "[\"b.example\"]", ""), listen(8443, "[\"b.example\"]", one)] {
        let refused = parsed(&[listen(443, both, one), other], "").expect_err("is refused");
        assert!(refused.contains("one_certificate: b.example has a separate certificate"), "{refused}");
    }
    let files = "{ address = \"*:443\", tls = { self_signed = true, one_certificate = true } }".to_owned();
    let refused = parsed(&[files], "").expect_err("is refused");
    assert!(refused.contains("one_certificate is for automatic certificates"), "{refused}");
}

#[test]
fn what_no_authority_could_issue_is_refused() {
    let said = |text: &str| {
        let mistakes = parse(text, "f").err().unwrap_or_default();
        mistakes
            .iter()
            .map(|mistake| mistake.to_string().replacen("f:", "", 1))
            .collect::<Vec<_>>()
            .join("\n")
    };
    const HOST: &str = "host = \"a.example\", ";
    for (hosts, tls, acme, expected) in [
        (HOST, "", "", ""),
        ("", "", "", "certificates = \"auto\": no route has a host to certify; expected a route with a host"),
        (
            "host = \"*.a.example\", ",
            "",
            "",
            "*.a.example: only DNS can prove a wildcard; expected dns in [acme]",
        ),
        (HOST, ", names = [\"a/b\"]", "", "names: \"a/b\""),
        (HOST, ", self_signed = true", "", "tls has certificates in more than one way"),
        (HOST, ", cert = \"a.pem\", key = \"a.key\"", "", "tls has certificates in more than one way"),
        (HOST, "", "[acme]\nchallenges = [\"dns-01\"]", "a DNS challenge needs dns"),
        (
            HOST,
            "",
            "[acme]\ndns = {}",
            "dns does not say how to create records; expected one of command, server",
        ),
        (
            HOST,
            "",
            "[acme]\ndns = { command = [\"x\"], persist = true }",
            "dns has several ways to create records",
        ),
        (
            HOST,
            "",
            "[acme]\ndns = { command = [\"x\"], zone = \"a.example\" }",
            "zone and keys apply only to dynamic updates",
        ),
        (
            HOST,
            "",
            "[acme]\ndns = { server = \"192.0.2.1:53\", key_name = \"k\" }",
            "a TSIG key consists of a name and a file",
        ),
        (
            HOST,
            "",
            "[acme]\nchallenges = [\"dns-01\"]\ndns = { persist = true }",
            "persist is for \"dns-persist-01\"",
        ),
        (
            HOST,
            "",
            "[acme]\nchallenges = [\"dns-persist-01\"]\ndns = { command = [\"x\"] }",
            "\"dns-persist-01\" needs persist",
        ),
        (
            HOST,
            ", names = [\"192.0.2.1\"]",
            "[acme]\nchallenges = [\"dns-01\"]\ndns = { command = [\"x\"] }",
            "192.0.2.1: DNS cannot prove an address",
        ),
        (
            HOST,
            "",
            "[acme]\ndirectory = \"http://ca.example/\"",
            "is not https; did you mean \"https://ca.example/\"?",
        ),
        (HOST, "", "[acme]\ncontact = \"ops\"", "is no e-mail address"),
        (HOST, "", "[acme]\nexternal_account = { id = \"k\" }", "external_account has no key_file"),
        (HOST, "", "[acme]\nfallback = { profile = \"x\" }", "fallback has no directory"),
        (HOST, "", "[acme]\nkey_type = \"ecdsa\"", "unknown word \"ecdsa\""),
        (
            HOST,
            ", max_version = \"1.2\", ciphers = [\"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\"]",
            "",
            "ciphers has no suite for ECDSA keys, the type of the automatic certificates",
        ),
        (
            HOST,
            ", max_version = \"1.2\", ciphers = [\"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256\"]",
            "[acme]\nkey_type = \"rsa-2048\"",
            "ciphers has no suite for RSA keys",
        ),
        (
            HOST,
            ", max_version = \"1.2\", ciphers = [\"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\"]",
            "[acme]\nkey_type = \"rsa-2048\"",
            "",
        ),
        (HOST, ", ciphers = [\"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\", \"TLS_AES_128_GCM_SHA256\"]", "", ""),
    ] {
        let told = said(&file(hosts, tls, acme));
        assert!(told.contains(expected) && told.is_empty() == expected.is_empty(), "{acme} {tls}\n{told}");
    }
    let alone = "listen = [{ address = \"*:5432\", tcp = \"app\", tls = { certificates = \"auto\", names = [\"a.example\"] } }]\n\
                 upstream.app.servers = [\"tcp://127.0.0.1:9000\"]\n";
    assert!(said(alone).contains("no listener can answer its challenges"), "{}", said(alone));
    let named = "listen = [{ address = \"*:443\", tls = { self_signed = true, names = [\"a.example\"] } }]\n\
                 route = [{ upstream = \"app\" }]\nupstream.app.servers = [\"http://127.0.0.1:9000\"]\n";
    assert!(said(named).contains("names is for automatic certificates"), "{}", said(named));
}

#[test]
fn hosts_without_a_certificate_are_remarked() {
    let reading = examine(&file("host = [\"a.example\", \"~ b[0-9]+\"], ", "", ""), "f");
    let warnings: Vec<String> = reading.warnings.iter().map(ToString::to_string).collect();
    assert!(
        warnings.len() == 1 && warnings[0].contains("hosts like ~ b[0-9]+ get no certificate"),
        "{warnings:?}"
    );
}

#[test]
fn every_option_can_be_printed_and_read_again() {
    const ACME: &str = r#"
[acme]
directory = "https://ca.example:14000/dir"
contact = ["mailto:ops@example.com", "sec@example.com"]
folder = "/srv/acme"
profile = "shortlived"
key_type = "rsa-4096"
ca = "/etc/ca.pem"
external_account = { id = "kid", key_file = "/etc/eab" }
fallback = { directory = "https://other.example/", profile = "p", ca = "/etc/other.pem", external_account = { id = "k", key_file = "/f" } }
challenges = ["tls-alpn-01", "http-01", "dns-01"]
dns = { server = "192.0.2.53:53", zone = "example.com", key_name = "key.", key_file = "/etc/tsig", algorithm = "hmac-sha512", wait = "1m" }
"#;
    let others = [
        "[acme]\ndns = { command = [\"/hook\", \"-v\"], wait = \"0s\" }",
        "[acme]\ndns = { persist = true }\nchallenges = [\"dns-persist-01\"]",
        "",
    ];
    for acme in [ACME].into_iter().chain(others) {
        let text = file("host = \"a.example\", ", "", acme);
        let config = parse(&text, "f").unwrap_or_else(|mistakes| panic!("{mistakes:#?}"));
        let printed = config.text(&config);
        let again = parse(&printed, "printed").unwrap_or_else(|mistakes| panic!("{mistakes:#?}\n{printed}"));
        assert_eq!(again.acme, config.acme);
        assert_eq!(names(&again), names(&config));
    }
    let config = parse(&file("host = \"a.example\", ", "", ACME), "f").expect("it is valid");
    assert_eq!(config.acme.contact, ["ops@example.com", "sec@example.com"]);
    assert_eq!(config.acme.key_type, KeyType::Rsa4096);
    assert!(matches!(&config.acme.dns.as_ref().expect("it is there").way, DnsWay::Update(_)));
    assert_eq!(names(&config).1, PathBuf::from("/srv/acme"));
}

#[test]
fn listeners_at_ports_that_authorities_do_not_connect_to_are_remarked_on() {
    let http = "authorities connect to port 80 (\"http-01\"), but no listener without tls uses it";
    let tls = "authorities connect to port 443 (\"tls-alpn-01\"), but this listener has another port";
    let both = "authorities connect to port 80 (\"http-01\") or 443 (\"tls-alpn-01\"), but no listener for \
                these challenges";
    for (plain, secure, acme, expected) in [
        (Some("*:80"), "*:443", "", None),
        (Some("*:8080"), "*:443", "", None),
        (Some("*:80"), "*:8443", "", None),
        (None, "*:443", "", None),
        (Some("*:8080"), "*:8443", "", Some(both)),
        (None, "127.0.0.1:0", "", Some(both)),
        (Some("*:8080"), "*:443", "challenges = [\"http-01\"]", Some(http)),
        (Some("*:80"), "*:8443", "challenges = [\"tls-alpn-01\"]", Some(tls)),
        (Some("unix:/run/web"), "*:8443", "", None),
        (Some("*:8080"), "*:8443", "dns = { command = [\"hook\"] }", None),
        (Some("*:8080"), "*:8443", "ports_forwarded = true", None),
        (None, "*:8443", "ports_forwarded = true\nchallenges = [\"tls-alpn-01\"]", None),
        (Some("*:8080"), "*:8443", "ports_forwarded = false", Some(both)),
    ] {
        let plain = plain.map(|address| format!(", {{ address = \"{address}\" }}")).unwrap_or_default();
        let text = format!(
            "listen = [{{ address = \"{secure}\", tls = {{ certificates = \"auto\" }} }}{plain}]\n\
             route = [{{ host = \"a.example\", upstream = \"app\" }}]\n\
             upstream.app.servers = [\"http://127.0.0.1:9000\"]\n[acme]\n{acme}\n"
        );
        let reading = examine(&text, "f");
        assert!(reading.config.is_some(), "{:?}\n{text}", reading.mistakes);
        let said: Vec<String> = reading.warnings.iter().map(ToString::to_string).collect();
        match expected {
            Some(expected) => {
                assert!(
                    said.len() == 1 && said[0].contains(expected) && said[0].contains("; expected"),
                    "{said:?}\n{text}"
                );
            }
            None => assert!(said.is_empty(), "{said:?}\n{text}"),
        }
    }
}
