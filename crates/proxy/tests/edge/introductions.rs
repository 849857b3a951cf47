//! The PROXY protocol to servers: each connection begins with its client's address, and serves that client only.

use route::ProxyVersion;
use testkit::text::GET;

use super::scene::{Scene, addresses, answer, exchange, meet};

fn scene(version: ProxyVersion) -> Scene {
    Scene::with(1, |set| set.config.upstreams[0].send_proxy_protocol = Some(version))
}

#[test]
fn a_line_of_version_1_begins_each_connection() {
    let scene = scene(ProxyVersion::V1);
    let mut client = scene.client();
    let (own, front) = addresses(&client);
    let introduced = |own: u16| {
        let mut server = scene.accept(0);
        server.gets(format!("PROXY TCP4 127.0.0.1 127.0.0.1 {own} {}\r\n", front.port()).as_bytes());
        server
    };
    let mut server = meet(&mut client, || introduced(own.port()));
    answer(&mut client, &mut server);
    // The client's next request reuses the connection; another client must not appear under its address.
    exchange(&mut client, &mut server);
    let mut other = scene.client();
    let (others_own, _) = addresses(&other);
    let mut others = meet(&mut other, || introduced(others_own.port()));
    answer(&mut other, &mut others);
    exchange(&mut client, &mut server);
    assert_eq!(scene.running.counters().upstream_reuses, 2);
    // The connection ends with its client.
    drop(client);
    server.gets_the_end();
    exchange(&mut other, &mut others);
}

#[test]
fn a_header_of_version_2_begins_each_connection() {
    let scene = scene(ProxyVersion::V2);
    let mut client = scene.client();
    let (own, front) = addresses(&client);
    let mut server = meet(&mut client, || {
        let mut server = scene.accept(0);
        let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01".to_vec();
        header.extend(own.port().to_be_bytes());
        header.extend(front.port().to_be_bytes());
        server.gets(&header);
        server
    });
    answer(&mut client, &mut server);
}

/// The facts of a received header are sent to the next proxy.
#[test]
fn what_was_said_is_passed_on() {
    for (header, passed_on) in [
        (
            b"PROXY TCP6 2001:db8::7 2001:db8::1 4711 443\r\n".to_vec(),
            b"PROXY TCP6 2001:db8::7 2001:db8::1 4711 443\r\n".to_vec(),
        ),
        // With the requested host, which version 1 cannot express.
        (
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x12\xc0\0\x02\x07\xc0\0\x02\x01\x12\x67\x01\xbb\x02\0\x03a.b"
                .to_vec(),
            b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 443\r\n".to_vec(),
        ),
    ] {
        let scene = Scene::with(1, |set| {
            set.config.listeners[0].proxy_protocol = vec!["127.0.0.0/8".parse().expect("is a network")];
            set.config.upstreams[0].send_proxy_protocol = Some(ProxyVersion::V1);
        });
        let _client = scene.client().saying([&header, GET.as_bytes()].concat());
        scene.accept(0).gets(&passed_on);
    }
    let header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x17\xc0\0\x02\x07\xc0\0\x02\x01\x12\x67\x01\xbb\
        \x02\0\x03a.b\x05\0\x02id";
    let scene = Scene::with(1, |set| {
        set.config.listeners[0].proxy_protocol = vec!["127.0.0.0/8".parse().expect("is a network")];
        set.config.upstreams[0].send_proxy_protocol = Some(ProxyVersion::V2);
    });
    let _client = scene.client().saying([header, GET.as_bytes()].concat());
    scene.accept(0).gets(header);
}
