//! Configuration changes: unchanged parts continue, and removed ones end without a loss.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use config::{Listener, Settings};
use testkit::http1::Http1Peer;
use testkit::scene::valid;
use testkit::text::{GET, GET_SEEN, OK, OK_GOT, expand};
use testkit::wait::PATIENCE;

use super::scene::{Scene, listen, loopback};

const LAST: &str = "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\nConnection: close\r\n{via}\r\nok";

fn scene(change: impl FnOnce(&mut Settings)) -> (Scene, Settings) {
    let mut kept = None;
    let scene = Scene::with(|config| {
        change(config);
        kept = Some(config.clone());
    });
    (scene, kept.expect("it is made once"))
}

/// Sends a request on a new server connection, and answers it.
fn asks(scene: &Scene, client: &mut Http1Peer) -> Http1Peer {
    client.sends(GET);
    let mut server = scene.accept(0);
    answers(client, &mut server);
    server
}

fn answers(client: &mut Http1Peer, server: &mut Http1Peer) {
    server.gets(&expand(GET_SEEN, ""));
    server.sends(OK);
    client.gets(&expand(OK_GOT, ""));
}

#[test]
fn connections_and_pools_outlive_a_reload() {
    let (scene, mut config) = scene(|_| ());
    let address = scene.address();
    let mut client = scene.client();
    let mut server = asks(&scene, &mut client);
    config.timeouts.client_body = Duration::from_secs(7);
    config.listeners.push(Listener::plain(loopback()));
    scene.running().reload(valid(config)).expect("it is valid");

    let addresses = scene.running().addresses();
    assert_eq!((addresses.len(), addresses[0]), (2, address), "a port that the kernel chose stays");
    client.sends(GET);
    answers(&mut client, &mut server);
    let mut other = Http1Peer::new("client", TcpStream::connect(addresses[1]).expect("it listens"));
    other.sends(GET);
    answers(&mut other, &mut server);
    scene.assert_no_more_connections();
}

#[test]
fn a_request_under_way_ends_as_it_began() {
    let (scene, mut config) = scene(|_| ());
    let mut client = scene.client().saying(GET);
    let mut server = scene.accept(0);
    server.gets(&expand(GET_SEEN, ""));
    let gone = listen();
    config.upstreams[0].servers =
        vec![format!("http://{}", gone.local_addr().expect("it listens")).parse().expect("is a URL")];
    scene.running().reload(valid(config)).expect("it is valid");
    server.sends(OK);
    client.gets(&expand(OK_GOT, ""));
    // The removed server gets no more requests.
    server.is_closed();
    client.sends(GET);
    let mut next = Http1Peer::new("server", gone.accept().expect("it is asked from now on").0);
    next.head();
    next.sends(OK);
    client.gets(&expand(OK_GOT, ""));
}

#[test]
fn a_listener_that_is_gone_lets_its_clients_go_with_their_next_response() {
    let (scene, mut config) = scene(|config| config.listeners.push(Listener::plain(loopback())));
    let gone = scene.running().addresses()[1];
    let mut client = Http1Peer::new("client", TcpStream::connect(gone).expect("it listens"));
    let mut stays = scene.client();
    let mut server = asks(&scene, &mut client);
    stays.sends(GET);
    answers(&mut stays, &mut server);
    config.listeners.pop();
    scene.running().reload(valid(config)).expect("it is valid");
    let began = std::time::Instant::now();
    while TcpStream::connect(gone).is_ok() {
        assert!(began.elapsed() < PATIENCE, "connections are still accepted");
        std::thread::yield_now();
    }
    client.sends(GET);
    server.gets(&expand(GET_SEEN, ""));
    server.sends(OK);
    client.gets(&expand(LAST, ""));
    client.gets_the_end();
    stays.sends(GET);
    answers(&mut stays, &mut server);
}

/// From one address of the machine to all, and back: for a moment both sockets exist.
#[test]
fn a_listener_may_widen_to_all_addresses_and_narrow_again() {
    // No client of another test gets this port while the listener wants it at all addresses.
    let here = testkit::ports::free(1)[0];
    let (scene, mut config) = scene(|config| config.listeners = vec![Listener::plain(here)]);
    let elsewhere = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), here.port()));
    TcpStream::connect(elsewhere).expect_err("nobody listens there");
    let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, here.port()));
    let mut client = scene.client();
    let mut server = asks(&scene, &mut client);
    for (listens, is_everywhere) in [(everywhere, true), (here, false), (everywhere, true)] {
        config.listeners = vec![Listener::plain(listens)];
        scene.running().reload(valid(config.clone())).expect("it is ours");
        assert_eq!(scene.running().addresses(), [listens]);
        // Until then a client may still reach the socket that is about to close.
        let began = std::time::Instant::now();
        while TcpStream::connect(elsewhere).is_ok() != is_everywhere {
            assert!(began.elapsed() < PATIENCE, "{elsewhere} with {listens}");
            std::thread::yield_now();
        }
        let reached = if is_everywhere { elsewhere } else { here };
        let mut client = Http1Peer::new("client", TcpStream::connect(reached).expect("it listens"));
        client.sends(GET);
        answers(&mut client, &mut server);
    }
}

#[test]
fn what_cannot_be_put_in_force_changes_nothing() {
    let (scene, config) = scene(|_| ());
    let mut client = scene.client();
    let mut server = asks(&scene, &mut client);
    let taken = listen();
    let mut next = config.clone();
    next.listeners.push(Listener::plain(loopback()));
    next.listeners.push(Listener::plain(taken.local_addr().expect("it listens")));
    next.upstreams[0].servers.clone_from(&vec!["http://127.0.0.1:1".parse().expect("is a URL")]);
    let error = scene.running().reload(valid(next)).expect_err("the address is taken").to_string();
    assert!(error.contains("another process listens there"), "{error}");
    assert_eq!(scene.running().addresses().len(), 1);
    client.sends(GET);
    answers(&mut client, &mut server);

    let mut next = config;
    next.workers = Some(2.try_into().expect("is not zero"));
    let remarks = scene.running().reload(valid(next)).expect("it is valid");
    assert!(remarks[0].starts_with("workers: 1 are running; the change to 2 applies after"), "{remarks:?}");
    scene.running().drain();
    assert!(
        scene
            .running()
            .reload(config::Config::for_servers(
                vec![loopback()],
                Vec::from(["http://a".parse().expect("is a URL")])
            ))
            .is_err()
    );
}
