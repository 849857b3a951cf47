//! Layer 4: bytes both ways, each direction with a separate end.

use std::time::Duration;

use config::{Listener, Settings};
use route::{ProxyVersion, Split};
use testkit::http1::Http1Peer;
use testkit::scene::valid;
use testkit::wait::assert_soon;

use super::scene::{Scene, Set, addresses, loopback, unix_listener, url};

/// The address of a server that does not exist: the kernel assigns this port only on request.
const NOBODY: &str = "tcp://127.0.0.1:1";

/// A layer 4 listener, and this number of servers.
fn scene(servers: usize) -> Scene {
    scene_with(servers, |_| ())
}

fn scene_with(servers: usize, change: impl FnOnce(&mut Set)) -> Scene {
    Scene::with(servers, |set| {
        set.config.listeners[0].tcp = Split::new([(0, "", 1)]);
        set.config.routes.clear();
        change(set);
    })
}

fn says(from: &mut Http1Peer, to: &mut Http1Peer, text: &str) {
    from.sends(text);
    to.gets(text.as_bytes());
}

#[test]
fn bytes_pass_both_ways_and_either_side_may_begin() {
    let scene = scene(1);
    let (mut client, mut server) = (scene.client(), scene.accept(0));
    says(&mut server, &mut client, "220 welcome\r\n");
    says(&mut client, &mut server, "\x00\x01\x02 no HTTP at all");
    for _ in 0..10 {
        says(&mut client, &mut server, "ping");
        says(&mut server, &mut client, "pong");
    }
    // A half-close is passed on, and the other direction continues.
    client.half_closes();
    server.gets_the_end();
    says(&mut server, &mut client, "still here");
    server.half_closes();
    client.gets_the_end();

    let (mut client, mut server) = (scene.client(), scene.accept(0));
    says(&mut client, &mut server, "hello");
    server.half_closes();
    client.gets_the_end();
    says(&mut client, &mut server, "and here");
    drop(client);
    server.gets_the_end();
    scene.assert_failures(&[]);
    assert_eq!(scene.running.counters().connections_passed_on, 2);
}

#[test]
fn much_passes_unchanged_both_ways_at_once() {
    const BYTES: usize = 8 << 20;
    let bytes: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
    let scene = scene_with(1, |set| {
        set.config
            .listeners
            .push(Listener { tcp: Split::new([(0, "", 1)]), ..unix_listener(set.directory.join("front")) });
    });
    for listener in 0..2 {
        let (client, server) = (scene.client_of(listener), scene.accept(0));
        let send = |peer: &Http1Peer| {
            let mut peer = Http1Peer::new("sender", peer.stream().try_clone().expect("is a socket"));
            peer.sends(&bytes);
            peer.half_closes();
        };
        let receive = |mut peer: Http1Peer| {
            assert!(peer.rest().0 == bytes, "what arrived is not what was sent");
        };
        std::thread::scope(|scope| {
            scope.spawn(|| send(&client));
            scope.spawn(|| send(&server));
            let others = [&client, &server]
                .map(|peer| Http1Peer::new("receiver", peer.stream().try_clone().expect("is a socket")));
            for peer in others {
                scope.spawn(|| receive(peer));
            }
        });
    }
    scene.assert_failures(&[]);
}

#[test]
fn a_reset_is_passed_on_as_one() {
    let scene = scene(1);
    let (mut client, mut server) = (scene.client(), scene.accept(0));
    says(&mut client, &mut server, "hello");
    server.resets();
    client.gets_a_reset();
    scene.assert_failures(&["upstream-reset"]);
    let (mut client, mut server) = (scene.client(), scene.accept(0));
    says(&mut client, &mut server, "hello");
    client.resets();
    server.gets_a_reset();
    scene.assert_failures(&["upstream-reset", "client-gone"]);
}

#[test]
fn what_neither_side_uses_is_closed() {
    let mut log = None;
    let scene = scene_with(1, |set| {
        set.config.timeouts.tunnel_idle = Duration::from_secs(2);
        log = Some(set.logs());
    });
    let (mut client, mut server) = (scene.client(), scene.accept(0));
    says(&mut client, &mut server, "hello");
    client.is_closed();
    server.is_closed();
    scene.assert_failures(&["tunnel-idle"]);
    let lines = scene.log_lines(&log.expect("it was made"));
    let told =
        r#""cause":"tunnel-idle","detail":"neither side sent anything within timeouts.tunnel_idle, 2s""#;
    assert!(lines[0].contains(told), "{lines:?}");
}

#[test]
fn another_server_is_tried_where_one_cannot_be_reached() {
    let scene = scene_with(1, |set| {
        set.config.upstreams[0].servers.insert(0, url(NOBODY));
    });
    for _ in 0..4 {
        let (mut client, mut server) = (scene.client(), scene.accept(0));
        says(&mut client, &mut server, "hello");
    }
    assert!(scene.running.counters().upstream_retries > 0);
    scene.assert_failures(&[]);
}

#[test]
fn a_client_without_a_server_is_let_go() {
    let scene = Scene::with(0, |set| {
        set.config.listeners[0].tcp = Split::new([(0, "", 1)]);
        set.config.routes.clear();
        set.config.upstreams[0].servers = vec![url(NOBODY)];
    });
    scene.client().is_closed();
    scene.assert_failures(&["upstream-refused"]);
}

/// Counts connections, rather than requests.
#[test]
fn whoever_leaves_the_queue_is_not_connected() {
    // By a close, a reset, or a half-close after some bytes.
    for leaving in 0..3 {
        let scene = scene_with(1, |set| set.config.upstreams[0].servers[0].max_requests = 1.try_into().ok());
        let wait_for = |queued| {
            assert_soon("the request is not queued", || scene.running.counters().requests_queued >= queued);
        };
        let (mut first, mut server) = (scene.client(), scene.accept(0));
        says(&mut first, &mut server, "first");
        let mut gone = scene.client();
        gone.sends("gone");
        wait_for(1);
        let mut last = scene.client();
        last.sends("last");
        wait_for(2);
        match leaving {
            0 => drop(gone),
            1 => gone.resets(),
            _ => gone.half_closes(),
        }
        first.half_closes();
        server.gets_the_end();
        server.half_closes();
        first.gets_the_end();
        let mut server = scene.accept(0);
        server.gets(b"last");
        says(&mut server, &mut last, "hello");
        scene.assert_failures(&["client-gone"]);
    }
}

#[test]
fn the_server_with_the_fewest_connections_is_next() {
    let scene = scene_with(2, |set| {
        set.config.upstreams[0].balance = balance::policy("least-connections").expect("is a policy");
    });
    let (first, (idle, mut end)) = (scene.client(), scene.accept_any());
    let (_second, (busy, _end)) = (scene.client(), scene.accept_any());
    assert_ne!(idle, busy);
    drop(first);
    end.gets_the_end();
    drop(end);
    for _ in 0..3 {
        scene.assert_open(1);
        let (client, (server, mut end)) = (scene.client(), scene.accept_any());
        assert_eq!(server, idle);
        drop(client);
        end.gets_the_end();
    }
}

#[test]
fn a_client_keeps_its_server_by_address() {
    let scene = scene_with(3, |set| {
        set.config.upstreams[0].balance = balance::policy("client-address").expect("is a policy");
        set.config.listeners[0].proxy_protocol = vec!["127.0.0.0/8".parse().expect("is a network")];
    });
    let mut found = std::collections::HashSet::new();
    for last in 1..=16 {
        let connect = || {
            let mut client = scene.client();
            client.sends(format!("PROXY TCP4 192.0.2.{last} 192.0.2.100 4711 443\r\nhello"));
            client
        };
        let _first = connect();
        let (server, mut end) = scene.accept_any();
        end.gets(b"hello");
        let _second = connect();
        scene.accept(server).gets(b"hello");
        found.insert(server);
    }
    assert!(found.len() > 1, "all clients are on one server");
}

#[test]
fn the_client_is_introduced_to_the_server() {
    let scene = scene_with(1, |set| set.config.upstreams[0].send_proxy_protocol = Some(ProxyVersion::V1));
    let mut client = scene.client();
    let (own, front) = addresses(&client);
    let mut server = scene.accept(0);
    // Before the client has sent anything.
    server.gets(format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n", own.port(), front.port()).as_bytes());
    says(&mut server, &mut client, "welcome");
}

#[test]
fn a_connection_outlives_reloads_and_its_listener() {
    let mut config = None;
    let scene = scene_with(2, |set| {
        set.config.listeners.push(Listener { tcp: Split::new([(0, "", 1)]), ..Listener::plain(loopback()) });
        config = Some(set.config.clone());
    });
    let config = config.expect("it was made");
    let (mut client, mut server) = (scene.client(), scene.accept(0));
    says(&mut client, &mut server, "before");
    let only_second =
        |config: &Settings| Settings { listeners: vec![config.listeners[1].clone()], ..config.clone() };
    scene.running.reload(valid(config.clone())).expect("nothing is wrong with it");
    says(&mut server, &mut client, "after one reload");
    scene.running.reload(valid(only_second(&config))).expect("nothing is wrong with it");
    says(&mut client, &mut server, "without a listener");
    // A drain waits for it.
    scene.running.drain();
    says(&mut server, &mut client, "in the end");
    client.half_closes();
    server.gets_the_end();
    server.half_closes();
    client.gets_the_end();
}

/// The address stays, while the listener's mode changes.
#[test]
fn a_listener_may_begin_to_pass_on() {
    let mut found = None;
    let scene = Scene::with(1, |set| found = Some(set.config.clone()));
    let mut config = found.expect("it was made");
    config.listeners[0].tcp = Split::new([(0, "", 1)]);
    scene.running.reload(valid(config)).expect("nothing is wrong with it");
    let (mut client, mut server) = (scene.client(), scene.accept(0));
    says(&mut server, &mut client, "welcome");
}

#[test]
fn connections_are_shared_among_upstreams_by_weight() {
    const CONNECTIONS: usize = 64;
    let mut log = None;
    let scene = scene_with(1, |set| {
        let first = config::Upstream::clone(&set.config.upstreams[0]);
        set.config.upstreams.push(config::Upstream { name: "other".to_owned(), ..first.clone() }.into());
        set.config.upstreams.push(config::Upstream { name: "unused".to_owned(), ..first }.into());
        let shares = [(0, "default", 3), (1, "other", 1), (2, "unused", 0)];
        set.config.listeners[0].tcp = Split::new(shares);
        log = Some(set.logs());
    });
    for _ in 0..CONNECTIONS {
        let (mut client, mut server) = (scene.client(), scene.accept(0));
        says(&mut server, &mut client, "welcome");
        server.half_closes();
        client.gets_the_end();
        client.half_closes();
        server.gets_the_end();
    }
    let lines = scene.log_lines(&log.expect("it was made"));
    let of = |name: &str| {
        let is_it = |line: &&String| line.contains(&format!("\"upstream\":\"{name}\""));
        lines.iter().filter(is_it).count()
    };
    // By chance, one of them misses all connections in one of 10⁸ runs.
    assert!(of("default") > 0 && of("other") > 0, "{lines:?}");
    assert_eq!(of("default") + of("other"), CONNECTIONS, "{lines:?}");
}

#[test]
fn who_is_one_too_many_is_let_go_without_a_word() {
    let scene = scene_with(1, |set| set.config.limits.connections = 1);
    let (mut client, mut server) = (scene.client(), scene.accept(0));
    says(&mut client, &mut server, "hello");
    scene.client().is_closed();
    assert_eq!(scene.running.counters().connections_refused, 1);
    says(&mut server, &mut client, "unharmed");
}

#[test]
fn a_connection_is_a_line_of_the_log() {
    let mut log = None;
    let scene = scene_with(1, |set| {
        log = Some(set.logs());
    });
    let (mut client, mut server) = (scene.client(), scene.accept(0));
    says(&mut client, &mut server, "hello");
    says(&mut server, &mut client, "hello to you");
    server.resets();
    client.gets_a_reset();
    let lines = scene.log_lines(&log.expect("it was made"));
    assert_eq!(lines.len(), 1, "{lines:?}");
    let line: serde_json::Value = serde_json::from_str(&lines[0]).expect("is JSON");
    for (name, value) in [("client", "127.0.0.1"), ("upstream", "default"), ("cause", "upstream-reset")] {
        assert_eq!(line[name], value, "{name} in {line}");
    }
    assert_eq!((&line["bytes_received"], &line["body_bytes_sent"]), (&5.into(), &12.into()), "{line}");
    assert!(line["upstream_connect_ms"].is_number() && line["server"].is_string(), "{line}");
}
