//! Files without mistakes mean what they say; no file, whatever is in it, stops the reader.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use config::{
    AccessLog, CertificateFiles, Certificates, ClientCertificates, ClientTrust, Config, HostHeader, Hsts,
    KeyPair, Limits, Listener, ListenerTls, LogFormat, LogTarget, Pool, Protocol, Route, Server, Settings,
    Shared, Timeouts, UnknownNames, UpstreamTls, examine, load, parse,
};
use proptest::prelude::*;

const SMALLEST: &str = r#"
[[listen]]
address = "127.0.0.1:8080"

[[route]]
upstream = "app"

[upstream.app]
servers = ["http://127.0.0.1:9000", { url = "http://127.0.0.1:9001", weight = 2 }]
balance = "round-robin"
"#;

const FULL: &str = r#"
workers = 4
trusted_proxies = ["10.0.0.0/8", "::1"]

[[listen]]
address = "[::]:80"
redirect_to_https = true
[[listen]]
address = "127.0.0.1:8080"
hsts = "365d"
http2 = false
[listen.tls]
unknown_names = "refuse"
client_certificates = { mode = "optional", ca = "/etc/vanward/clients.pem" }
certificates = [
  { cert = "a.pem", key = "a.key", ocsp = "a.ocsp" },
  { cert = "b.pem", key = "b.key" },
]
[[listen]]
address = "127.0.0.1:8443"
tls = { cert = "a.pem", key = "a.key", client_certificates = { mode = "required", ca = "ca.pem" } }
hsts = { max_age = "730d", include_subdomains = true, preload = true }
[[listen]]
address = "127.0.0.1:8444"
tls = { self_signed = true }

[[route]]
host = "API.example.com"
path = "/v1"
upstream = "z"
[[route]]
upstream = "a"

[upstream.z]
servers = ["https://z.internal", "http://z.internal"]
protocol = "h2"
tls = { ca = "ca.pem", name = "Z.example.com", verify = false, cert = "z.pem", key = "z.key" }
host = { set = "z.example.com:8080" }
[upstream.z.pool]
idle = 0
connections = 10
idle_timeout = "1.5s"

[upstream.a]
servers = ["http://[::1]:9000"]
host = "server"

[timeouts]
client_header = "1s"
drain = "0s"

[limits]
header_bytes = 8192
target_bytes = "4KiB"
body_bytes = "10MB"
connections = 1_000
requests_per_connection = 0x64
minimum_rate = "1kbit/s"
rate_window = "1m"

[log]
target = "/var/log/vanward.log"
format = "json"
"#;

#[test]
fn the_smallest_file_means_what_flags_mean() {
    let address: SocketAddr = "127.0.0.1:8080".parse().unwrap();
    let first: Server = "http://127.0.0.1:9000".parse().unwrap();
    let second = Server { port: 9001, weight: 2, ..first.clone() };
    let mut expected = Settings::for_servers(vec![address], vec![first, second]);
    expected.upstreams[0].name = "app".to_owned();
    assert_eq!(parse(SMALLEST, "f"), Config::new(expected));
}

#[test]
fn every_option_is_taken() {
    let config = parse(FULL, "f").unwrap();
    assert_eq!(config.workers, NonZeroUsize::new(4));
    assert_eq!(config.trusted_proxies, ["10.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()]);
    check_listeners(&config.listeners);
    // Upstreams are in the order of the file.
    assert_eq!(
        config.routes,
        [Route::to(Some("api.example.com"), "/v1", 0), Route::to(None, "/", 1)].map(Shared::from)
    );
    let [z, a] = &config.upstreams[..] else { panic!("{:?}", config.upstreams) };
    assert_eq!((z.name.as_str(), z.balance.name), ("z", "round-robin"));
    assert_eq!(z.servers.iter().map(|server| server.port).collect::<Vec<_>>(), [443, 80]);
    let tls = UpstreamTls {
        ca: Some("ca.pem".into()),
        name: Some("z.example.com".to_owned()),
        verify: false,
        certificate: Some(pair("z")),
        ..UpstreamTls::default()
    };
    assert_eq!((z.protocol, &z.tls), (Protocol::Http2, &tls));
    assert_eq!((a.protocol, &a.tls), (Protocol::Http1, &UpstreamTls::default()));
    assert_eq!(z.host, HostHeader::Set("z.example.com:8080".to_owned()));
    assert_eq!(
        z.pool,
        Pool { idle: 0, connections: 10, idle_timeout: Duration::from_millis(1500), ..Pool::default() }
    );
    assert_eq!((a.name.as_str(), &a.host, a.pool), ("a", &HostHeader::Server, Pool::default()));
    let second = Duration::from_secs(1);
    let timeouts = Timeouts { client_header: second, drain: Duration::ZERO, ..Timeouts::default() };
    assert_eq!(config.timeouts, timeouts);
    let limits = Limits {
        header_bytes: 8192,
        target_bytes: 4096,
        body_bytes: Some(10_000_000),
        connections: 1000,
        requests_per_connection: Some(100),
        minimum_rate_bytes_per_second: 125,
        rate_window: 60 * second,
        ..Limits::default()
    };
    assert_eq!(config.limits, limits);
    let target = LogTarget::File("/var/log/vanward.log".into());
    assert_eq!(config.access_logs, [AccessLog::new(target, LogFormat::Json)]);
}

fn pair(name: &str) -> KeyPair {
    KeyPair::new(format!("{name}.pem"), format!("{name}.key"))
}

fn check_listeners(listeners: &[Listener]) {
    let [all, named, required, own] = listeners else { panic!("{listeners:?}") };
    let redirect = Listener { redirect_to_https: true, ..Listener::plain("[::]:80".parse().unwrap()) };
    assert_eq!(*all, redirect);
    let files = |name: &str, ocsp: Option<&str>| CertificateFiles {
        pair: pair(name),
        ocsp: ocsp.map(Into::into),
        names: Vec::new(),
    };
    let certificates = Certificates::Files(vec![files("a", Some("a.ocsp")), files("b", None)]);
    let tls = ListenerTls {
        unknown_names: UnknownNames::Refuse,
        client_certificates: ClientCertificates::Optional(ClientTrust::from(PathBuf::from(
            "/etc/vanward/clients.pem",
        ))),
        ..ListenerTls::new(certificates)
    };
    let year = Duration::from_secs(365 * 24 * 3600);
    let expected = Listener {
        tls: Some(tls),
        hsts: Some(Hsts { max_age: year, include_subdomains: false, preload: false }),
        http2: false,
        ..Listener::plain("127.0.0.1:8080".parse().unwrap())
    };
    assert_eq!(*named, expected);
    let tls = required.tls.as_ref().unwrap();
    assert_eq!(tls.certificates, Certificates::Files(vec![files("a", None)]));
    assert_eq!(tls.unknown_names, UnknownNames::Default);
    assert_eq!(
        tls.client_certificates,
        ClientCertificates::Required(ClientTrust::from(PathBuf::from("ca.pem")))
    );
    let hsts = required.hsts.map(|hsts| hsts.header_value());
    assert_eq!(hsts.as_deref(), Some("max-age=63072000; includeSubDomains; preload"));
    assert_eq!(own.tls.as_ref().unwrap().certificates, Certificates::SelfSigned);
    assert!(own.http2 && own.hsts.is_none());
}

#[test]
fn a_file_is_printed_as_it_was_written() {
    for text in [SMALLEST, FULL] {
        let config = parse(text, "f").unwrap();
        assert_eq!(config.text(&config), text);
    }
}

#[test]
fn a_file_is_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vanward.toml");
    std::fs::write(&path, format!("\u{feff}{}", FULL.replace('\n', "\r\n"))).unwrap();
    assert_eq!(load(&path), parse(FULL, "f"));
}

/// A list of pieces of text to put in, and a place for each.
fn edits() -> impl Strategy<Value = Vec<(usize, usize, String)>> {
    let pieces = prop::sample::select(vec![
        "",
        "\"",
        "'",
        "[",
        "]",
        "{",
        "}",
        "=",
        ".",
        ",",
        "#",
        "\n",
        "\0",
        "\u{e9}",
        "\"\"\"",
        "[[",
        "]]",
        "0",
        "-",
        "1e9",
        "nan",
        "true",
        "1979-05-27",
        "\\u0000",
        "\\",
        "listen",
        "upstream",
        "[upstream",
        "a.b.c=1",
        "{a=1}",
    ]);
    let edit = (any::<prop::sample::Index>(), 0_usize..12, pieces);
    prop::collection::vec(
        edit.prop_map(|(at, removed, piece)| (at.index(FULL.len()), removed, piece.to_owned())),
        1..6,
    )
}

fn edited(edits: Vec<(usize, usize, String)>) -> String {
    let mut text = FULL.to_owned();
    for (at, removed, piece) in edits {
        let at = at.min(text.len());
        let start = (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap();
        let end = (start + removed).min(text.len());
        let end = (end..=text.len()).find(|end| text.is_char_boundary(*end)).unwrap();
        text.replace_range(start..end, &piece);
    }
    text
}

/// Checks an invariant of every text: it has a meaning or mistakes, in order and in the file, and a meaning can be printed.
fn check(text: &str) -> Result<(), TestCaseError> {
    let reading = examine(text, "f");
    prop_assert_eq!(reading.config.is_some(), reading.mistakes.is_empty());
    let places: Vec<(usize, usize)> =
        reading.mistakes.iter().map(|mistake| (mistake.line, mistake.column)).collect();
    prop_assert!(places.is_sorted());
    let lines: Vec<&str> = text.split('\n').collect();
    for (line, column) in places {
        prop_assert!((1..=lines.len()).contains(&line));
        prop_assert!(
            (1..=lines[line - 1].chars().count() + 1).contains(&column),
            "{line}:{column} in {text:?}"
        );
    }
    if let Some(config) = reading.config {
        prop_assert_eq!(parse(&config.text(&config), "printed"), Ok(config));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn any_text(text in any::<String>()) {
        check(&text)?;
    }

    #[test]
    fn text_of_the_file_s_own_characters(text in "[\\[\\]{}=.,\"'#\\n a-e0-9_-]{0,200}") {
        check(&text)?;
    }

    #[test]
    fn a_valid_file_with_edits(edits in edits()) {
        check(&edited(edits))?;
    }

    #[test]
    fn any_value_for_any_option(option in 0_usize..48, value in "(\"[ -~]{0,20}\"|[0-9.a-z:-]{0,20}|\\[\\]|\\{ [a-z]{3} = 1 \\}|true)") {
        let mut options = FULL.lines().filter(|line| line.contains('=')).cycle().skip(option);
        let line = options.next().unwrap_or_default();
        let name = line.split('=').next().unwrap_or_default();
        check(&FULL.replacen(line, &format!("{name}= {value}"), 1))?;
    }
}
