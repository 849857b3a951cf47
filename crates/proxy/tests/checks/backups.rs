//! Servers of a later priority take over at once, and give back.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use balance::{AddressPrefixes, EjectionSettings, SessionSource};
use config::{Settings, StickySessions, StickyTable};
use route::Split;
use testkit::ports;

use super::scene::{Scene, at_one_port, waits_until};

/// Ejections that last longer than the test.
const LONG: Duration = Duration::from_secs(300);

/// Sets the priorities of the servers. The first ones listen nowhere.
fn with_priorities(gone: usize, priorities: &[u16]) -> impl FnOnce(&mut Settings) {
    move |config| {
        let servers = &mut config.upstreams[0].servers;
        for (server, priority) in servers.iter_mut().zip(priorities) {
            server.priority = *priority;
        }
        // Each at its own address, as a server is listed once.
        servers.iter_mut().take(gone).for_each(|server| server.port = ports::nobody().port());
    }
}

fn ejecting(base: Duration) -> EjectionSettings {
    EjectionSettings {
        base,
        longest: base,
        interval: Duration::from_millis(100),
        ..EjectionSettings::default()
    }
}

/// Sends a request with this head on its own connection. Returns status and body.
fn ask(address: SocketAddr, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let length = body.len();
    let text = format!("{head}Host: test\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("has a head");
    (head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("has a status"), body.to_owned())
}

#[test]
fn retries_go_on_with_the_next_priority() {
    for (gone, priorities, eject) in [
        (1, &[0, 1][..], false),
        (1, &[0, 1], true),
        (2, &[0, 0, 1, 1], false),
        (2, &[0, 0, 1, 1], true),
        // More than there are attempts.
        (4, &[0, 0, 0, 0, 1], false),
        (4, &[0, 0, 0, 0, 1], true),
        (2, &[0, 1, 2], false),
    ] {
        let scene = Scene::new(priorities.len() as u8, |config| {
            with_priorities(gone, priorities)(config);
            config.upstreams[0].settings.ejection = eject.then(|| ejecting(LONG));
            // Each request needs retries.
            config.upstreams[0].retry_budget.per_second_min = 1_000_000;
        });
        let backups: Vec<String> = (gone + 1..=priorities.len()).map(|who| who.to_string()).collect();
        for _ in 0..30 {
            let (status, who) = ask(scene.proxy.addresses()[0], "GET / HTTP/1.1\r\n", "");
            assert!(status == 200 && backups.contains(&who), "{priorities:?}, {eject}: {status}, {who}");
        }
        // Without retries each request would fail; with ejections, the dead servers are no longer asked.
        let refused = scene.proxy.counters().upstream_retries;
        assert!(if eject { refused <= 5 * gone as u64 + 2 } else { refused >= 30 }, "{refused} retries");
    }
}

#[test]
fn hash_policies_keep_a_key_on_one_server_of_the_backup() {
    for policy in ["client-address", "consistent-hash"] {
        let scene = Scene::new(4, |config| {
            with_priorities(1, &[0, 1, 1, 1])(config);
            config.upstreams[0].balance = balance::policy(policy).expect("a policy");
            config.upstreams[0].settings.ejection = Some(ejecting(LONG));
        });
        let first = scene.ask();
        assert!((0..20).all(|_| scene.ask() == first), "{policy}");
    }
}

/// A server that accepts requests, and answers each as the test says: with its number, or by closing.
struct Fickle {
    address: SocketAddr,
    works: Sender<bool>,
}

impl Fickle {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let (address, (works, told)) = (listener.local_addr().expect("it listens"), channel());
        std::thread::spawn(move || serve(&listener, &told));
        Self { address, works }
    }
}

fn serve(listener: &TcpListener, told: &Receiver<bool>) {
    let mut works = false;
    for mut stream in listener.incoming().flatten() {
        let mut bytes = [0; 4096];
        // A connection without a request is a check.
        while stream.read(&mut bytes).is_ok_and(|count| count > 0) {
            works = told.try_iter().last().unwrap_or(works);
            if !works {
                break;
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nF");
        }
    }
}

fn with_fickle(fickle: &Fickle, base: Duration) -> impl FnOnce(&mut Settings) {
    move |config| {
        with_priorities(0, &[0, 1])(config);
        config.upstreams[0].servers[0].host = config::ServerHost::Address(fickle.address.ip());
        config.upstreams[0].servers[0].port = fickle.address.port();
        config.upstreams[0].settings.ejection = Some(ejecting(base));
    }
}

#[test]
fn requests_that_are_not_retried_fail_until_the_ejection() {
    let fickle = Fickle::new();
    let scene = Scene::new(2, with_fickle(&fickle, LONG));
    let statuses: Vec<u16> =
        (0..20).map(|_| ask(scene.proxy.addresses()[0], "POST / HTTP/1.1\r\n", "").0).collect();
    let failed = statuses.iter().filter(|status| **status == 502).count();
    assert_eq!(failed, 5, "{statuses:?}");
    assert!(statuses[5..].iter().all(|status| *status == 200), "{statuses:?}");
}

#[test]
fn a_trial_request_brings_a_priority_back() {
    let fickle = Fickle::new();
    let scene = Scene::new(2, with_fickle(&fickle, Duration::from_millis(100)));
    scene.waits_for(&["2"]);
    // Its trials fail, and are retried.
    let retries = scene.proxy.counters().upstream_retries;
    waits_until("no trial", || scene.ask() == "2" && scene.proxy.counters().upstream_retries > retries + 1);
    fickle.works.send(true).expect("it serves");
    scene.waits_for(&["F"]);
}

#[test]
fn a_server_that_listens_again_is_used_before_its_ejection_is_over() {
    let (port, mut listeners) = at_one_port(2);
    let first = listeners.remove(0);
    let address = first.local_addr().expect("it listens");
    drop(listeners);
    drop(first);
    let scene = Scene::new(2, |config| {
        with_priorities(0, &[0, 1])(config);
        config.upstreams[0].servers[0].port = port;
        config.upstreams[0].settings.ejection = Some(ejecting(LONG));
    });
    (0..10).for_each(|_| assert_eq!(scene.ask(), "2"));
    scene.serves(0, TcpListener::bind(address).expect("the port is still ours"));
    scene.waits_for(&["1"]);
}

#[test]
fn where_all_priorities_fail_the_first_is_used_again() {
    let scene = Scene::new(2, |config| {
        with_priorities(2, &[0, 1])(config);
        config.upstreams[0].settings.ejection = Some(ejecting(LONG));
        config.upstreams[0].settings.none_up = balance::NoneUp::Refuse;
    });
    for _ in 0..40 {
        let (status, _) = ask(scene.proxy.addresses()[0], "GET / HTTP/1.1\r\n", "");
        assert_eq!(status, 502, "never 503: an ejection alone takes no server away");
    }
}

#[test]
fn a_session_moves_to_the_backup_with_its_client() {
    let fickle = Fickle::new();
    fickle.works.send(true).expect("it serves");
    let scene = Scene::new(2, |config| {
        with_fickle(&fickle, LONG)(config);
        config.upstreams[0].sticky = Some(StickySessions::Table(StickyTable {
            source: SessionSource::ClientAddress(AddressPrefixes::default()),
            ttl: LONG,
            sessions_max: 10,
            shared: None,
        }));
    });
    assert_eq!(scene.ask(), "F");
    fickle.works.send(false).expect("it serves");
    assert_eq!(scene.ask(), "2", "the request is retried on the backup");
    fickle.works.send(true).expect("it serves");
    assert!((0..5).all(|_| scene.ask() == "2"), "the session stays");
}

#[test]
fn a_request_that_finds_no_room_and_no_queue_goes_to_the_backup() {
    let held = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let at = held.local_addr().expect("it listens");
    let scene = Scene::new(2, |config| {
        with_priorities(0, &[0, 1])(config);
        let upstream = &mut config.upstreams[0];
        upstream.servers[0].host = config::ServerHost::Address(at.ip());
        upstream.servers[0].port = at.port();
        upstream.servers[0].max_requests = NonZeroU32::new(1);
        upstream.queue.length = 0;
    });
    let mut first = TcpStream::connect(scene.proxy.addresses()[0]).expect("it listens");
    first.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").expect("it reads");
    let (mut server, _) = held.accept().expect("the request reaches the first server");
    assert_eq!(scene.ask(), "2");
    let _ = server.read(&mut [0; 4096]).expect("the request");
    server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").expect("it reads");
    assert!(first.read(&mut [0; 4096]).expect("an answer") > 0);
}

#[test]
fn connections_of_layer_4_go_to_the_backup() {
    let scene = Scene::new(2, |config| {
        with_priorities(1, &[0, 1])(config);
        config.upstreams[0].servers.iter_mut().for_each(|server| server.scheme = config::Scheme::Tcp);
        config.listeners[0].tcp = Split::new([(0, "", 1)]);
        config.routes.clear();
    });
    for _ in 0..20 {
        let mut stream = TcpStream::connect(scene.proxy.addresses()[0]).expect("it listens");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").expect("it reads");
        // The server leaves the connection open.
        let mut answer = vec![0; "HTTP/1.1 200 OK\r\nX-Who: 2\r\nContent-Length: 1\r\n\r\n2".len()];
        stream.read_exact(&mut answer).expect("it answers");
        assert!(answer.ends_with(b"\r\n\r\n2"), "{}", answer.escape_ascii());
    }
}
