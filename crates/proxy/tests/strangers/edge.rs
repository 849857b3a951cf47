//! Unix sockets, PROXY headers on either side, and layer 4.

use std::net::SocketAddr;

use config::{CertificateFiles, Certificates, KeyPair, ListenAddress, Listener, ListenerTls, Settings};
use control::Running;
use route::{ProxyVersion, Split};
use testkit::scene::valid;

use super::curl::curl;
use super::haproxy::Haproxy;
use super::installed::installed;
use super::nginx::{Nginx, Pair, Secured, large_body};

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn proxy_to(server: &str, change: impl FnOnce(&mut Settings)) -> Running {
    let mut config = Settings::for_servers(vec![any_port()], vec![server.parse().expect("is a URL")]);
    change(&mut config);
    control::start(valid(config)).expect("it starts")
}

fn tls_of(pair: &Pair) -> ListenerTls {
    let files = CertificateFiles { pair: KeyPair::new(&pair.cert, &pair.key), ocsp: None, names: Vec::new() };
    ListenerTls::new(Certificates::Files(vec![files]))
}

fn from_the_machine(config: &mut Settings) {
    config.listeners[0].proxy_protocol = vec!["127.0.0.0/8".parse().expect("is a network")];
}

#[test]
fn curl_gets_pages_of_nginx_over_unix_sockets() {
    let (Some(program), Some(nginx)) = (installed("curl"), Nginx::start()) else { return };
    let front = nginx.root().join("front.sock");
    let server = format!("http+unix:{}", nginx.socket().display());
    let _proxy = proxy_to(&server, |config| {
        config.listeners = vec![Listener::at(ListenAddress::Unix(front.clone()))];
    });
    let socket = front.to_str().expect("is text");
    let get =
        |path: &str| curl(&program, &["--unix-socket", socket, &format!("http://any.test{path}")]).stdout;
    assert_eq!(get("/small.txt"), b"hello\n");
    assert!(get("/large.bin") == large_body());
    assert_eq!(String::from_utf8_lossy(&get("/seen")), "any.test 127.0.0.1 1.1 vanward\n");
}

/// The client is the one that curl names, directly or through HAProxy.
#[test]
fn the_client_is_whom_the_header_names() {
    let (Some(program), Some(nginx)) = (installed("curl"), Nginx::start()) else { return };
    let proxy = proxy_to(&format!("http://{}", nginx.address), from_the_machine);
    let front = proxy.addresses()[0];
    let seen = |address: SocketAddr, arguments: &[&str]| {
        let url = format!("http://{address}/seen");
        let from = ["--interface", "127.0.0.7", &url];
        String::from_utf8(curl(&program, &[arguments, &from].concat()).stdout).expect("is text")
    };
    let said = seen(front, &["--haproxy-protocol"]);
    assert_eq!(said, format!("{front} 127.0.0.7 1.1 vanward\n"));
    let Some(haproxy) = Haproxy::start(front) else { return };
    for door in &haproxy.doors {
        assert_eq!(seen(*door, &[]), format!("{door} 127.0.0.7 1.1 vanward\n"));
    }
}

#[test]
fn nginx_hears_whom_a_connection_is_from() {
    let (Some(program), Some(nginx)) = (installed("curl"), Nginx::start()) else { return };
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        let proxy = proxy_to(&format!("http://{}", nginx.introduced), |config| {
            config.upstreams[0].send_proxy_protocol = Some(version);
        });
        let url = format!("http://{}/", proxy.addresses()[0]);
        let said = curl(&program, &["--interface", "127.0.0.7", &url, &url]).stdout;
        assert_eq!(String::from_utf8_lossy(&said), "127.0.0.7 127.0.0.7\n".repeat(2), "{version:?}");
    }
}

/// The header precedes TLS, and applies to each HTTP/2 stream.
#[test]
fn a_header_comes_before_tls() {
    let (Some(program), Some(nginx)) = (installed("curl"), Nginx::start_secured()) else { return };
    let Secured { pair, .. } = nginx.secured.as_ref().expect("it has a certificate");
    let proxy = proxy_to(&format!("http://{}", nginx.introduced), |config| {
        config.listeners[0] = Listener { tls: Some(tls_of(pair)), ..Listener::plain(any_port()) };
        config.upstreams[0].send_proxy_protocol = Some(ProxyVersion::V2);
        from_the_machine(config);
    });
    let cert = pair.cert.to_str().expect("is text");
    let port = proxy.addresses()[0].port();
    let url = format!("https://localhost:{port}/");
    let to = format!("localhost:{port}:127.0.0.1");
    for version in ["--http1.1", "--http2"] {
        let arguments = [version, "--haproxy-protocol", "--interface", "127.0.0.7", "--resolve", &to];
        let said = curl(&program, &[&arguments[..], &["--cacert", cert, &url, &url]].concat()).stdout;
        assert_eq!(String::from_utf8_lossy(&said), "127.0.0.7 127.0.0.7\n".repeat(2), "{version}");
    }
}

/// nginx's TLS and HTTP/2 pass through; and TLS ends at the proxy where configured.
#[test]
fn what_is_passed_on_arrives() {
    let (Some(program), Some(nginx)) = (installed("curl"), Nginx::start_secured()) else { return };
    let Secured { tls, pair, .. } = nginx.secured.as_ref().expect("it has a certificate");
    let cert = pair.cert.to_str().expect("is text");
    let through = proxy_to(&format!("tcp://{tls}"), |config| {
        config.listeners[0].tcp = Split::new([(0, "", 1)]);
        config.routes.clear();
    });
    let ends_here = proxy_to(&format!("tcp://{}", nginx.address), |config| {
        config.listeners[0] = Listener {
            tls: Some(tls_of(pair)),
            tcp: Split::new([(0, "", 1)]),
            ..Listener::plain(any_port())
        };
        config.routes.clear();
    });
    let get = |proxy: &Running, path: &str| {
        let port = proxy.addresses()[0].port();
        let (url, to) = (format!("https://localhost:{port}{path}"), format!("localhost:{port}:127.0.0.1"));
        curl(&program, &["--http2", "--resolve", &to, "--cacert", cert, &url]).stdout
    };
    assert_eq!(get(&through, "/spoken"), b"HTTP/2.0 TLSv1.3 localhost\n");
    assert_eq!(get(&ends_here, "/spoken"), b"HTTP/1.1  \n");
    for proxy in [&through, &ends_here] {
        assert!(get(proxy, "/large.bin") == large_body());
    }
}
