//! Configurations are judged by the programs themselves, where they are installed.

use super::*;

fn service(workers: usize, keep_alive: bool) -> Service {
    Service {
        listen: "127.0.0.1:18080".parse().expect("an address"),
        tls: None,
        origins: vec![
            "127.0.0.1:18081".parse().expect("an address"),
            "[::1]:18082".parse().expect("an address"),
        ],
        workers: NonZeroUsize::new(workers).expect("not zero"),
        keep_alive,
        access_log: false,
        features: Features::default(),
    }
}

/// The peer, or `None` where it may be missing: in CI it may not.
fn peer(driver: &'static Driver) -> Option<Installed> {
    let found = find(driver);
    let ci = env::var_os("CI").is_some();
    assert!(found.is_some() || !ci, "{} has to be installed in CI: apt-get install {0}", driver.name);
    found
}

/// Writes the configuration, and has the program check it.
fn check(driver: &'static Driver, arguments: &[&str]) {
    let Some(installed) = peer(driver) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let tls = Some(Certificate::make(folder.path()).expect("a certificate"));
    let https = Service { tls, ..service(1, true) };
    for service in [service(1, true), service(2, true), service(1, false), https] {
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
fn nginx_accepts_its_configuration() {
    check(&nginx::DRIVER, &["-t"]);
}

#[test]
fn haproxy_accepts_its_configuration() {
    check(&haproxy::DRIVER, &["-c"]);
}

#[test]
fn versions_are_found_in_what_programs_say() {
    let cases: [(&Driver, &str, Option<&str>); 5] = [
        (&nginx::DRIVER, "nginx version: nginx/1.22.1\nbuilt with OpenSSL", Some("1.22.1")),
        (&nginx::DRIVER, "nginx version: nginx/1.18.0 (Ubuntu)\n", Some("1.18.0")),
        (&nginx::DRIVER, "command not found", None),
        (&haproxy::DRIVER, "HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https", Some("2.6.12-1+deb12u4")),
        (&haproxy::DRIVER, "HA-Proxy version 2.0.13 2020/02/13", Some("2.0.13")),
    ];
    for (driver, said, expected) in cases {
        assert_eq!((driver.version)(said).as_deref(), expected, "{said}");
    }
}

#[test]
fn a_feature_that_a_proxy_lacks_is_an_error_and_not_left_out() {
    let own = Own { program: "/bin/vanward".into(), version: "1".to_owned() };
    let installed = Installed::own(&vanward::DRIVER, &own);
    let asked = service(1, false);
    let refused =
        (vanward::DRIVER.configure)(&installed, &asked, Path::new("/tmp")).expect_err("no flag for it");
    assert!(refused.to_string().contains("keep-alive"), "{refused}");
}

#[test]
fn ours_is_given_the_certificate() {
    let own = Own { program: "/bin/vanward".into(), version: "1".to_owned() };
    let installed = Installed::own(&vanward::DRIVER, &own);
    let path = PathBuf::from;
    let tls = Certificate { certificate: path("/c"), key: path("/k"), pair: path("/p") };
    let service = Service { tls: Some(tls), ..service(1, true) };
    let launch = (installed.driver.configure)(&installed, &service, Path::new("/tmp")).expect("a command");
    let command = launch.command.join(" ");
    assert!(command.contains(" --cert /c --key /k") && !command.contains("/p"), "{command}");
}

#[test]
fn ours_is_started_with_every_origin() {
    let own = Own { program: "/bin/vanward".into(), version: "1".to_owned() };
    let installed = Installed::own(&vanward::DRIVER, &own);
    let launch =
        (installed.driver.configure)(&installed, &service(2, true), Path::new("/tmp")).expect("a command");
    assert_eq!(
        launch.command.join(" "),
        "/bin/vanward proxy --from 127.0.0.1:18080 --to http://127.0.0.1:18081 --to http://[::1]:18082 --workers 2"
    );
}
