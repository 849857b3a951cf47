//! OpenSSL as client and server, for interoperability.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use testkit::tls::{TestAuthority, TlsEnd};

use super::scene::{Scene, loopback};

fn openssl() -> Option<Command> {
    let is_there = Command::new("openssl").arg("version").output().is_ok();
    assert!(
        is_there || std::env::var_os("CI").is_none(),
        "openssl is not installed, and CI is set: install it, e.g. apt-get install openssl"
    );
    is_there.then(|| Command::new("openssl"))
}

/// A program that is killed with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a client with these flags. Returns its output.
pub(crate) fn client(scene: &Scene, server: &mut Option<TlsEnd>, flags: &[&str]) -> Option<String> {
    let mut command = openssl()?;
    command.args(["s_client", "-connect", &scene.address().to_string(), "-servername", "a.example"]);
    command.args(["-verify_return_error", "-CAfile"]).arg(&scene.authority.file).args(flags);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = Running(command.spawn().expect("it starts"));
    let mut input = child.0.stdin.take().expect("it is piped");
    input.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n").expect("it reads");
    let server = server.get_or_insert_with(|| scene.accept());
    server.message();
    server.answers(&[b'x'; 50_000]);
    let mut output = String::new();
    child.0.stdout.take().expect("it is piped").read_to_string(&mut output).expect("is text");
    drop(input);
    assert_eq!(output.matches('x').count() / 10_000, 5, "{output:.2000}");
    Some(output)
}

#[test]
fn openssl_speaks_every_cipher_with_us_and_resumes() {
    let scene = Scene::new();
    let mut server = None;
    let file = scene.authority.path().join("session");
    let file = file.to_str().expect("is text");
    for (version, list, cipher) in [
        ("-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384"),
        ("-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"),
        ("-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"),
        ("-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"),
    ] {
        for (flags, told) in [(["-sess_out", file], "New, "), (["-sess_in", file], "Reused, ")] {
            let flags = [&[version, list, cipher][..], &flags].concat();
            let Some(output) = client(&scene, &mut server, &flags) else { return };
            assert!(output.contains(told) && output.contains(cipher), "{flags:?}: {output:.3000}");
        }
    }
}

#[test]
fn openssl_chooses_what_we_prefer() {
    let scene = Scene::new();
    let mut server = None;
    for (flags, chosen) in [
        (
            &["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256"][..],
            "TLS_AES_128_GCM_SHA256",
        ),
        (
            &["-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES256-GCM-SHA384"],
            "ECDHE-ECDSA-AES256-GCM-SHA384",
        ),
    ] {
        let Some(output) = client(&scene, &mut server, flags) else { return };
        assert!(output.contains(&format!("Cipher is {chosen}")), "{output:.3000}");
    }
}

/// Runs `openssl s_server` with these flags.
fn s_server(authority: &TestAuthority, flags: &[&str]) -> Option<(Running, SocketAddr)> {
    let mut command = openssl()?;
    let files = authority.files("openssl", &["a.example"]).pair;
    // Chosen by the kernel, and free again until openssl takes it.
    let address = std::net::TcpListener::bind(loopback()).and_then(|listener| listener.local_addr());
    let address = address.expect("a port on loopback is free");
    command.args(["s_server", "-accept", &address.to_string(), "-www", "-quiet", "-cert"]);
    command.arg(files.cert).arg("-key").arg(files.key).args(flags);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = Running(command.spawn().expect("it starts"));
    let began = std::time::Instant::now();
    while std::net::TcpStream::connect(address).is_err() {
        assert!(began.elapsed() < testkit::wait::PATIENCE, "openssl does not listen");
        std::thread::yield_now();
    }
    Some((child, address))
}

#[test]
fn we_speak_every_version_and_cipher_with_openssl() {
    let authority = TestAuthority::new();
    for flags in [
        &["-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384"][..],
        &["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"],
        &["-tls1_3", "-num_tickets", "0"],
        &["-tls1_3", "-curves", "P-384"],
        &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"],
        &["-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"],
        &["-tls1_2", "-no_ticket"],
    ] {
        let Some((_server, address)) = s_server(&authority, flags) else { return };
        let scene = Scene::with(|config, _| {
            let upstream = &mut config.upstreams[0];
            upstream.servers[0] = format!("https://{address}").parse().expect("is a URL");
            upstream.tls.ca = Some(authority.file.clone());
        });
        for _ in 0..2 {
            let mut client = scene.client().saying("GET / HTTP/1.0\r\nHost: a.example\r\n\r\n");
            assert!(client.head().starts_with("HTTP/1.1 200 "), "{flags:?}");
            // Its page ends with the connection, with or without close_notify.
            let (page, _) = client.rest();
            let page = String::from_utf8_lossy(&page);
            assert!(page.contains("Ciphers supported"), "{flags:?}: {page:.2000}");
        }
    }
}
