//! The end of a proxy: requests under way are finished, and no new ones accepted.

use std::net::TcpStream;
use std::time::Duration;

use testkit::text::{GET, GET_SEEN, OK, OK_GOT, expand};
use testkit::wait::PATIENCE;

use super::scene::Scene;

const LAST: &str = "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 2\r\nConnection: close\r\n{via}\r\nok";

/// Waits until the proxy has closed its listening socket.
fn wait_until_refused(address: std::net::SocketAddr) {
    let began = std::time::Instant::now();
    while TcpStream::connect(address).is_ok() {
        assert!(began.elapsed() < PATIENCE, "connections are still accepted");
        std::thread::yield_now();
    }
}

#[test]
fn a_drain_finishes_what_runs_and_answers_what_is_idle_once_more() {
    let scene = Scene::new();
    let address = scene.address();
    let (mut idle, mut late) = (scene.client(), scene.client());
    let (mut busy, mut silent) = (scene.client(), scene.client());
    idle.sends(GET);
    let mut server = scene.accept(0);
    server.gets(&expand(GET_SEEN, ""));
    server.sends(OK);
    idle.gets(&expand(OK_GOT, ""));
    late.sends(GET);
    server.gets(&expand(GET_SEEN, ""));
    server.sends(OK);
    late.gets(&expand(OK_GOT, ""));
    busy.sends(GET);
    server.gets(&expand(GET_SEEN, ""));

    scene.running().drain();
    wait_until_refused(address);
    // The client did not know of the end, so its connection is not closed during the request.
    late.sends(GET);
    let mut second = scene.accept(0);
    second.gets(&expand(GET_SEEN, ""));
    second.sends(OK);
    late.gets(&expand(LAST, ""));
    late.gets_the_end();
    // Its idle time-out is over.
    idle.gets_the_end();
    // The kernel has never passed the connection to the proxy, so the client only learns of its end when it sends.
    silent.sends(GET);
    silent.is_closed();
    busy.has_nothing();
    server.sends(OK);
    busy.gets(&expand(LAST, ""));
    busy.gets_the_end();
    scene.into_running().wait();
    server.is_closed();
}

#[test]
fn a_request_that_has_begun_to_arrive_is_still_served() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.sends("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nhe");
    let mut server = scene.accept(0);
    server.gets(&expand("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n{ours}\r\nhe", ""));
    scene.running().drain();
    wait_until_refused(scene.address());
    client.sends("llo");
    server.gets(b"llo");
    server.sends(OK);
    client.gets(&expand(LAST, ""));
    client.gets_the_end();
    scene.into_running().wait();
}

#[test]
fn a_drain_does_not_wait_beyond_its_deadline() {
    let scene = Scene::with(|config| config.timeouts.drain = Duration::from_millis(300));
    let mut client = scene.client().saying(GET);
    let mut server = scene.accept(0).after_head();
    scene.running().drain();
    // The response is never sent, and the proxy ends nevertheless.
    scene.into_running().wait();
    client.is_closed();
    server.is_closed();
}

#[test]
fn a_stop_does_not_wait_at_all() {
    let scene = Scene::new();
    let mut client = scene.client().saying(GET);
    let mut server = scene.accept(0).after_head();
    scene.running().drain();
    scene.running().stop();
    scene.into_running().wait();
    client.is_closed();
    server.is_closed();
}

#[test]
fn what_several_workers_accepted_is_drained_by_each() {
    let scene = Scene::with(|config| config.workers = Some(3.try_into().expect("is not zero")));
    let mut clients: Vec<_> = (0..12).map(|_| scene.client()).collect();
    let mut servers: Vec<_> = clients
        .iter_mut()
        .map(|client| {
            client.sends(GET);
            let mut server = scene.accept(0);
            server.gets(&expand(GET_SEEN, ""));
            server
        })
        .collect();
    scene.running().drain();
    wait_until_refused(scene.address());
    for (client, server) in clients.iter_mut().zip(&mut servers) {
        server.sends(OK);
        client.gets(&expand(LAST, ""));
        client.gets_the_end();
    }
    scene.into_running().wait();
}

#[test]
fn who_retires_keeps_its_clients_until_their_next_response() {
    let scene = Scene::with(|config| config.timeouts.drain = Duration::ZERO);
    let (mut idle, mut busy) = (scene.client(), scene.client());
    idle.sends(GET);
    let mut server = scene.accept(0);
    server.gets(&expand(GET_SEEN, ""));
    server.sends(OK);
    idle.gets(&expand(OK_GOT, ""));
    busy.sends(GET);
    server.gets(&expand(GET_SEEN, ""));

    scene.running().retire();
    wait_until_refused(scene.address());
    server.sends(OK);
    busy.gets(&expand(LAST, ""));
    busy.gets_the_end();
    idle.sends(GET);
    server.gets(&expand(GET_SEEN, ""));
    server.sends(OK);
    idle.gets(&expand(LAST, ""));
    idle.gets_the_end();
    scene.into_running().wait();
}

#[test]
fn who_retires_can_be_drained_as_well() {
    let scene = Scene::with(|config| config.timeouts.drain = Duration::ZERO);
    let mut client = scene.client().saying(GET);
    let mut server = scene.accept(0).after_head();
    scene.running().retire();
    wait_until_refused(scene.address());
    scene.running().drain();
    scene.into_running().wait();
    client.is_closed();
    server.is_closed();
}
