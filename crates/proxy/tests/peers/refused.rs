//! Admission of instances by certificate and address.

use std::net::TcpStream;
use std::sync::Arc;

use testkit::http2::H2End;
use testkit::http2::frame::{H2Frame, last_headers};
use testkit::scene::get;
use testkit::tls::{TestAuthority, tunnel};

use super::fleet::Fleet;

const FIELDS: &str = ":method: GET\n:scheme: https\n:authority: test\n:path: /a\n";

#[test]
fn who_has_no_certificate_of_the_authority_is_not_let_in() {
    let fleet = Fleet::new(1);
    let stranger = TestAuthority::new();
    let foreign = stranger.issue(&["edge.internal"]);
    for config in [
        fleet.authority.client(rustls::ALL_VERSIONS),
        fleet.authority.client_showing_chain(&foreign, &stranger),
    ] {
        let tcp = TcpStream::connect(fleet.addresses[0]).expect("it listens");
        let mut end = testkit::tls::TlsEnd::client(tcp, &Arc::new(config), "127.0.0.1");
        let handshake = end.shakes_hands();
        // With TLS 1.3 the client completes its handshake before its certificate is verified.
        if handshake.is_ok() {
            end.asks("/a");
            assert!(end.rest().0.is_empty(), "nothing is answered");
        }
    }
    assert_eq!(fleet.server.count(), 0);
}

#[test]
fn a_request_without_the_word_of_an_instance_is_declined() {
    let fleet = Fleet::new(1);
    let issued = fleet.authority.issue(&["127.0.0.1"]);
    let connect = || {
        let tcp = TcpStream::connect(fleet.addresses[0]).expect("it listens");
        let stream = tunnel::client_with(fleet.authority.client_showing(&issued), true, tcp);
        H2End::client(stream, &[])
    };
    let number = "1".repeat(32);
    for marker in [
        String::new(),
        "vanward-peer: hello\n".to_owned(),
        // A number that no route has.
        format!("vanward-peer: {number} 192.0.2.1 80 https\n"),
    ] {
        let mut end = connect();
        end.sends(last_headers(1, &format!("{FIELDS}{marker}")));
        assert!(end.whole(1).starts_with(":status: 421\n"), "{marker:?}");
    }
    assert_eq!(fleet.server.count(), 0);
    assert_eq!(fleet.ask(0, &get("/a")).status, 200, "its clients are served");
}

#[test]
fn instances_without_the_wanted_name_are_not_believed() {
    let fleet = Fleet::with(2, "cache = {}", "name = \"other.internal\"", |_, addresses| addresses.to_vec());
    for number in 0..20 {
        assert_eq!(fleet.ask(number % 2, &get(&format!("/{number}"))).status, 200);
    }
    assert_eq!(fleet.served(0) + fleet.served(1), 0);
    let failures: u64 = (0..2).map(|number| fleet.instance(number).counters().cache_peer_failures).sum();
    assert!(failures > 0);
}

#[test]
fn an_instance_is_believed_by_its_name() {
    let listener = testkit::ports::listen();
    let other = listener.local_addr().expect("it listens");
    let fleet = Fleet::with(1, "cache = {}", &format!("name = {:?}", tunnel::NAME), |_, addresses| {
        vec![addresses[0], other]
    });
    // The test plays the other instance, and receives requests from instances.
    let mut clients: Vec<_> = (0..30).map(|_| fleet.client(0)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.asks(&get(&format!("/{number}")));
    }
    // A health check only connects, and sends nothing.
    let mut connections = std::iter::repeat_with(|| testkit::ports::accept(&listener));
    let stream = connections.find(|stream| stream.peek(&mut [0]).is_ok_and(|count| count > 0));
    let stream = stream.expect("it is asked");
    let asking = tunnel::server_named(&fleet.authority, tunnel::NAME, true, stream);
    let mut end = H2End::server(asking, &[]);
    let fields = loop {
        if let H2Frame::Headers { fields, .. } = end.next_on(1) {
            break fields;
        }
    };
    let marker = fields.lines().find(|line| line.starts_with("vanward-peer: ")).expect("it says who asks");
    for (names, status) in [(&["127.0.0.1"][..], 421), (&["127.0.0.1", tunnel::NAME], 200)] {
        let issued = fleet.authority.issue(names);
        let tcp = TcpStream::connect(fleet.addresses[0]).expect("it listens");
        let stream = tunnel::client_with(fleet.authority.client_showing(&issued), true, tcp);
        let mut end = H2End::client(stream, &[]);
        end.sends(last_headers(1, &format!("{FIELDS}{marker}\n")));
        let got = end.whole(1);
        assert!(got.contains(&format!(":status: {status}\n")), "{names:?}: {got}");
    }
}
