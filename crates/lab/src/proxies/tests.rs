//! Tests of the configurations; the installed programs check them.

use super::*;
use crate::certificate::Pem;
use report::results::StreamKind;

fn service(workers: usize, keep_alive: bool) -> Service {
    Service {
        listen: "127.0.0.1:18080".parse().expect("an address"),
        tls: None,
        version: ClientVersion::Http1,
        origins: vec![
            "127.0.0.1:18081".parse().expect("an address"),
            "[::1]:18082".parse().expect("an address"),
        ],
        upstream: OriginProtocol::Http,
        origins_certificate: None,
        layer: Layer::Seven,
        workers: NonZeroUsize::new(workers).expect("not zero"),
        keep_alive,
        access_log: false,
        features: Features::default(),
        target: Some("/tiny".to_owned()),
        streams: None,
    }
}

/// The peer; `None` if it is not installed, which CI does not allow.
fn peer(driver: &'static Driver) -> Option<Installed> {
    let found = find(driver);
    let ci = env::var_os("CI").is_some();
    assert!(found.is_some() || !ci, "{} has to be installed in CI: apt-get install {0}", driver.name);
    found
}

fn certificate(folder: &Path) -> CertificatePaths {
    let certificate = CertificatePaths::within(folder);
    let made = Pem::make([127, 0, 0, 1].into()).expect("a certificate");
    for (path, text) in made.files(&certificate) {
        std::fs::write(path, text).expect("a file");
    }
    certificate
}

/// A service with origins that use TLS with the certificate in this folder.
fn behind_tls(folder: &Path) -> Service {
    Service {
        origins_certificate: Some(OriginVerification::own(&CertificatePaths::within(folder))),
        ..service(1, true)
    }
}

/// Writes the configuration and lets the program check it.
fn check(driver: &'static Driver, arguments: &[&str]) {
    let Some(installed) = peer(driver) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let tls = Some(certificate(folder.path()));
    let https = Service { tls, ..service(1, true) };
    let http2 = [service(1, true), https.clone()].map(|one| Service { version: ClientVersion::Http2, ..one });
    let [clear, encrypted] = http2;
    let [to_tls, to_h2] = [OriginProtocol::Https, OriginProtocol::H2]
        .map(|upstream| Service { upstream, ..behind_tls(folder.path()) });
    let passing = Service { layer: Layer::Four, ..service(2, true) };
    let all = [
        service(1, true),
        service(2, true),
        service(1, false),
        https.clone(),
        clear,
        encrypted,
        to_tls,
        to_h2,
        passing,
    ];
    let streams = [
        (StreamKind::Events, ClientVersion::Http1, OriginProtocol::Http),
        (StreamKind::Echo, ClientVersion::Http1, OriginProtocol::Http),
        (StreamKind::GrpcBidi, ClientVersion::Http2, OriginProtocol::H2),
    ];
    let streams = streams.map(|(kind, version, upstream)| Service {
        version,
        upstream,
        streams: Some(kind),
        ..service(1, true)
    });
    let http3 = Service { version: ClientVersion::Http3, ..https };
    let speaks_http3 = installed.configure(&http3, folder.path()).is_ok();
    for service in all.into_iter().chain(streams).chain(speaks_http3.then_some(http3)) {
        // A distribution's program may lack some features.
        if driver.name == "nginx"
            && service.upstream == OriginProtocol::H2
            && !nginx::speaks_h2_to_origins(&installed.version)
        {
            continue;
        }
        if driver.name == "nginx" && service.layer == Layer::Four && !nginx::passes_on(&installed) {
            continue;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let launch = (driver.configure)(&installed, &service, folder.path()).expect("a configuration");
        for file in &launch.files {
            std::fs::write(folder.path().join(&file.name), &file.text).expect("a file");
        }
        let output = Command::new(&launch.command[0])
            .args(&launch.command[1..])
            .args(arguments)
            .output()
            .expect("it was found a moment ago");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{service:?}: {said}\n{}", launch.files[0].text);
        assert!(!said.to_lowercase().contains("warn"), "{service:?}: {said}");
    }
}

#[test]
fn streams_are_passed_on_by_who_can_and_refused_by_others_with_their_name() {
    let streams = |kind, version| Service { streams: Some(kind), version, ..service(1, true) };
    let text = |driver: &Driver, service: &Service| {
        let peer = every_peer().find(|peer| peer.name == driver.name).expect("it is one of them");
        let launch = (driver.configure)(&peer, service, Path::new("/f"));
        launch.map(|launch| launch.files.into_iter().map(|file| file.text).collect::<String>())
    };
    let echo = streams(StreamKind::Echo, ClientVersion::Http1);
    let nginx_text = text(&nginx::DRIVER, &echo).expect("it passes WebSockets on");
    assert!(nginx_text.contains("proxy_set_header Connection $upgraded;"), "{nginx_text}");
    assert!(text(&haproxy::DRIVER, &echo).expect("it does").contains("timeout tunnel"));
    let events = text(&nginx::DRIVER, &streams(StreamKind::Events, ClientVersion::Http1)).expect("it does");
    assert!(events.contains("proxy_buffering off;") && !events.contains("upgrade"), "{events}");
    let grpc =
        Service { upstream: OriginProtocol::H2, ..streams(StreamKind::GrpcBidi, ClientVersion::Http2) };
    let grpc = text(&nginx::DRIVER, &grpc).expect("it does");
    assert!(grpc.contains("grpc_pass grpc://origins;") && !grpc.contains("proxy_pass"), "{grpc}");
    let over_h2 =
        text(&nginx::DRIVER, &streams(StreamKind::Echo, ClientVersion::Http2)).expect_err("it cannot");
    assert!(over_h2.to_string().contains("WebSockets over HTTP/2"), "{over_h2}");
    let squid = text(&squid::DRIVER, &echo).expect_err("nothing is configured for it").to_string();
    assert!(squid.contains("squid") && squid.contains("WebSockets"), "{squid}");
}

#[test]
fn http_3_is_configured_for_who_has_it_and_refused_for_others_with_their_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let tls = Some(certificate(folder.path()));
    let origins = vec!["127.0.0.1:18081".parse().expect("an address")];
    let service = Service { version: ClientVersion::Http3, tls, origins, ..service(1, true) };
    for mut peer in every_peer() {
        peer.build = "--with-http_ssl_module --with-http_v3_module +QUIC +QUIC_OPENSSL_COMPAT".to_owned();
        let told = peer.configure(&service, Path::new("/f"));
        let told = told.map(|launch| launch.files.into_iter().map(|file| file.text).collect::<String>());
        let words = match peer.driver.name {
            "nginx" => " reuseport quic;",
            "haproxy" => "alpn h3",
            "caddy" => "default_sni 127.0.0.1\n    servers {\n        protocols h1 h2 h3",
            "h2o" => "listen:\n  type: quic\n  host: 127.0.0.1\n",
            "envoy" => "codec_type: HTTP3",
            "traefik" => "http3: {}",
            _ => {
                let refused = told.expect_err("nothing is configured for it").to_string();
                assert!(refused.contains(peer.driver.name) && refused.contains("HTTP/3"), "{refused}");
                continue;
            }
        };
        assert!(told.as_ref().is_ok_and(|text| text.contains(words)), "{}: {told:?}", peer.name);
        peer.build = "--with-http_ssl_module -QUIC".to_owned();
        if matches!(peer.driver.name, "nginx" | "haproxy") {
            assert!(peer.configure(&service, Path::new("/f")).is_err(), "this build has none");
        }
        if peer.driver.name == "h2o" {
            peer.version = "2.2.5".to_owned();
            let refused = peer.configure(&service, Path::new("/f")).expect_err("2.3 is the first with QUIC");
            assert!(refused.to_string().contains("HTTP/3: this release has none"), "{refused}");
        }
    }
}

#[test]
fn nginx_accepts_its_configuration() {
    check(&nginx::DRIVER, &["-t"]);
}

#[test]
fn haproxy_accepts_its_configuration() {
    check(&haproxy::DRIVER, &["-c"]);
}

#[test]
fn apache_accepts_its_configuration() {
    check_if_here(&apache::DRIVER, &["-t"]);
}

#[test]
fn h2o_accepts_its_configuration() {
    check_if_here(&h2o::DRIVER, &["-t"]);
}

/// [`check`] for a peer that may be missing even in CI.
fn check_if_here(driver: &'static Driver, arguments: &[&str]) {
    let Some(installed) = find(driver) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let tls = Some(certificate(folder.path()));
    let one = Service { origins: vec!["127.0.0.1:18081".parse().expect("an address")], ..service(1, true) };
    let https = Service { tls, ..one.clone() };
    let http2 = Service { version: ClientVersion::Http2, ..https.clone() };
    for service in [one, https, http2] {
        let folder = tempfile::tempdir().expect("a folder");
        let Ok(launch) = (driver.configure)(&installed, &service, folder.path()) else { continue };
        for file in &launch.files {
            std::fs::write(folder.path().join(&file.name), &file.text).expect("a file");
        }
        let checked = Command::new(&launch.command[0]).args(&launch.command[1..]).args(arguments).output();
        let checked = checked.expect("it was found a moment ago");
        let said = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{service:?}: {said}\n{}", launch.files[0].text);
    }
}

/// Every peer, as if it were installed.
fn every_peer() -> impl Iterator<Item = Installed> {
    PEERS.into_iter().map(|driver| Installed {
        name: driver.name.to_owned(),
        driver,
        program: PathBuf::from("/usr/bin/peer"),
        version: "9".to_owned(),
        build: "--with-http_ssl_module --with-http_v2_module".to_owned(),
        template: CommandTemplate::default(),
        deviation: Deviation::default(),
    })
}

#[test]
fn every_peer_listens_where_it_is_told_and_asks_its_origin() {
    let origin: SocketAddr = "127.0.0.1:18081".parse().expect("an address");
    let plain = Service { origins: vec![origin], ..service(1, true) };
    let caching =
        Service { features: Features { cache_bytes: Some(1 << 28), ..Features::default() }, ..plain.clone() };
    for installed in every_peer().filter(|peer| peer.name != "apache") {
        let launch = (installed.driver.configure)(&installed, &plain, Path::new("/f"))
            .or_else(|_| (installed.driver.configure)(&installed, &caching, Path::new("/f")))
            .expect(&installed.name);
        let all: String = launch.files.iter().map(|file| file.text.as_str()).collect::<String>()
            + &launch.command.join(" ");
        assert!(all.contains("18080") && all.contains("18081"), "{}: {all}", installed.name);
    }
}

#[test]
fn those_that_are_in_no_package_are_told_what_their_documentation_asks_for() {
    let cases: [(&str, &[&str]); 2] = [
        // By default zproxy has a thread for each core of the machine.
        ("zproxy", &["\nThreads 1\n", "LogLevel 0\n", "ListenHTTP\n"]),
        // Some versions of monolake have no default for the server's kind.
        (
            "monolake",
            &[
                "\nproxy_type = \"http\"\n",
                "worker_threads = 1\n",
                "\npath = \"/tiny\"\n",
                "http://127.0.0.1:18081/tiny\"",
            ],
        ),
    ];
    let asked = Service { origins: vec!["127.0.0.1:18081".parse().expect("an address")], ..service(1, true) };
    for (name, lines) in cases {
        let installed = every_peer().find(|peer| peer.name == name).expect("it is one of them");
        let launch = (installed.driver.configure)(&installed, &asked, Path::new("/f")).expect("a command");
        let text = &launch.files[0].text;
        assert!(lines.iter().all(|line| text.contains(line)), "{name}: {text}");
    }
}

#[test]
fn nobody_does_in_silence_what_it_cannot() {
    let paced = Features { rate_bytes_per_second: Some(5_000), ..Features::default() };
    let asked = Service { features: paced, ..service(1, true) };
    for installed in every_peer() {
        let refused = (installed.driver.configure)(&installed, &asked, Path::new("/f"));
        assert!(refused.is_err(), "{} has no rate for all clients together", installed.name);
    }
}

#[test]
fn origins_over_tls_or_http_2_and_layer_4_are_refused_by_all_that_are_not_driven_so() {
    let asked = [
        Service { upstream: OriginProtocol::Https, ..behind_tls(Path::new("/f")) },
        Service { upstream: OriginProtocol::H2, ..service(1, true) },
        Service { layer: Layer::Four, ..service(1, true) },
    ];
    let can = ["nginx", "haproxy"];
    let configured = |installed: &Installed, asked: &Service| {
        (installed.driver.configure)(installed, asked, Path::new("/f"))
    };
    for (installed, asked) in
        every_peer().flat_map(|peer| asked.iter().map(move |asked| (peer.clone(), asked)))
    {
        let installed = Installed {
            version: "2.0.0".to_owned(),
            build: "--with-stream ".to_owned() + &installed.build,
            ..installed
        };
        match configured(&installed, asked) {
            Ok(_) => assert!(can.contains(&&*installed.name), "{} does {asked:?}", installed.name),
            Err(error) => {
                assert!(!can.contains(&&*installed.name), "{error}");
                let said = error.to_string();
                assert!(said.contains(&installed.name), "{said}");
            }
        }
    }
    // Older versions lack it.
    let nginx = every_peer().find(|peer| peer.name == "nginx").expect("it is one of them");
    let old = Installed { version: "1.29.3".to_owned(), ..nginx.clone() };
    for (installed, asked, lacks) in [(&old, &asked[1], "HTTP/2"), (&nginx, &asked[2], "no stream")] {
        assert!(configured(installed, asked).expect_err(lacks).to_string().contains(lacks));
    }
    let command = vec!["mine".to_owned(), "{listen}".to_owned()];
    let template = Installed::command("mine", CommandTemplate { command, ..CommandTemplate::default() });
    assert!(asked.iter().all(|asked| configured(&template, asked).is_err()), "nobody knows what it would do");
}

#[test]
fn ours_has_a_file_for_what_there_is_no_flag_for() {
    let own = OwnProgram { program: "/bin/vanward".into(), version: "1".to_owned() };
    let installed = Installed::own(&vanward::DRIVER, &own);
    let text = |asked: &Service| {
        let launch = (installed.driver.configure)(&installed, asked, Path::new("/f")).expect("a command");
        assert_eq!(launch.command.join(" "), "/bin/vanward run --config /f/vanward.toml");
        launch.files[0].text.clone()
    };
    let to_tls = text(&Service { upstream: OriginProtocol::Https, ..behind_tls(Path::new("/c")) });
    assert!(to_tls.contains("servers = [\"https://127.0.0.1:18081\", \"https://[::1]:18082\"]"), "{to_tls}");
    assert!(to_tls.contains("tls = { ca = \"/c/cert.pem\", name = \"localhost\" }"), "{to_tls}");
    assert!(
        text(&Service { upstream: OriginProtocol::H2, ..service(1, true) }).contains("protocol = \"h2\"\n")
    );
    let passing =
        text(&Service { layer: Layer::Four, upstream: OriginProtocol::Https, ..behind_tls(Path::new("/c")) });
    assert!(
        passing.contains("tcp = \"origins\"\n") && passing.contains("http://127.0.0.1:18081"),
        "{passing}"
    );
}

#[test]
fn a_delay_is_set_in_toxiproxy_once_it_runs() {
    let delayed = Features { delay: Some(std::time::Duration::from_secs(2)), ..Features::default() };
    let origins = vec!["127.0.0.1:18081".parse().expect("an address")];
    let asked = Service { features: delayed, origins, ..service(1, true) };
    let installed = every_peer().find(|peer| peer.name == "toxiproxy").expect("it is one of them");
    let launch = (installed.driver.configure)(&installed, &asked, Path::new("/f")).expect("a command");
    assert!(launch.settings[0].body.contains("\"latency\": 2000"), "{:?}", launch.settings);
    assert_eq!(launch.settings[0].address.to_string(), "127.0.0.2:18080");
}

#[test]
fn versions_are_found_in_what_programs_say() {
    let cases: [(&Driver, &str, Option<&str>); 13] = [
        (&nginx::DRIVER, "nginx version: nginx/1.22.1\nbuilt with OpenSSL", Some("1.22.1")),
        (&nginx::DRIVER, "nginx version: nginx/1.18.0 (Ubuntu)\n", Some("1.18.0")),
        (&nginx::DRIVER, "command not found", None),
        (&haproxy::DRIVER, "HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https", Some("2.6.12-1+deb12u4")),
        (&haproxy::DRIVER, "HA-Proxy version 2.0.13 2020/02/13", Some("2.0.13")),
        (&apache::DRIVER, "Server version: Apache/2.4.57 (Debian)\nServer built: x", Some("2.4.57")),
        (&trafficserver::DRIVER, "Traffic Server 9.2.9 Apr  4 2026 14:52:39 localhost", Some("9.2.9")),
        (&h2o::DRIVER, "h2o version 2.2.5\nOpenSSL: OpenSSL 3.0.19\n", Some("2.2.5")),
        (&pound::DRIVER, "pound (GNU Pound) 4.12\nCopyright", Some("4.12")),
        (&zproxy::DRIVER, "zproxy version 0.1.2", Some("0.1.2")),
        (&monolake::DRIVER, "monolake 0.3.0\n", Some("0.3.0")),
        (&toxiproxy::DRIVER, "toxiproxy-server version 2.9.0\n", Some("2.9.0")),
        (&pingap::DRIVER, "pingap 0.11.1\n", Some("0.11.1")),
    ];
    for (driver, said, expected) in cases {
        assert_eq!((driver.version)(said).as_deref(), expected, "{said}");
    }
}

#[test]
fn a_feature_that_a_proxy_lacks_is_an_error_and_not_left_out() {
    let own = OwnProgram { program: "/bin/vanward".into(), version: "1".to_owned() };
    let installed = Installed::own(&vanward::DRIVER, &own);
    let asked = service(1, false);
    let refused =
        (vanward::DRIVER.configure)(&installed, &asked, Path::new("/tmp")).expect_err("no flag for it");
    assert!(refused.to_string().contains("keep-alive"), "{refused}");
}

#[test]
fn ours_is_given_the_certificate() {
    let own = OwnProgram { program: "/bin/vanward".into(), version: "1".to_owned() };
    let installed = Installed::own(&vanward::DRIVER, &own);
    let path = PathBuf::from;
    let tls = CertificatePaths { certificate: path("/c"), key: path("/k"), pair: path("/p") };
    let service = Service { tls: Some(tls), ..service(1, true) };
    let launch = (installed.driver.configure)(&installed, &service, Path::new("/tmp")).expect("a command");
    let command = launch.command.join(" ");
    assert!(command.contains(" --cert /c --key /k") && !command.contains("/p"), "{command}");
}

#[test]
fn ours_is_started_with_every_origin() {
    let own = OwnProgram { program: "/bin/vanward".into(), version: "1".to_owned() };
    let installed = Installed::own(&vanward::DRIVER, &own);
    let launch =
        (installed.driver.configure)(&installed, &service(2, true), Path::new("/tmp")).expect("a command");
    assert_eq!(
        launch.command.join(" "),
        "/bin/vanward proxy --from 127.0.0.1:18080 --to http://127.0.0.1:18081 --to http://[::1]:18082 --workers 2"
    );
}

#[test]
fn every_proxy_of_the_lab_has_a_look_of_its_own_in_charts() {
    for driver in OWN.iter().chain(&PEERS) {
        assert!(
            report::chart::has_own_look(driver.name),
            "{}: give it one in report/src/chart/series.rs",
            driver.name
        );
    }
}
