//! Choice of servers by policy and session; retries; and the queue for servers with limits.

use std::time::Duration;

use balance::{AddressPrefixes, CookieAttributes, RetrySettings, SessionSource};
use config::{QueueSettings, RetryOn, Statuses, StickyCookie, StickySessions, StickyTable, Upstream};
use testkit::http1::Http1Peer;
use testkit::text::{GET, GET_SEEN, OK, OK_GOT, expand, failure_and_go_on, failure_of_load};
use testkit::wait::{PATIENCE, Patience, assert_soon};

use super::scene::Scene;

/// A request with a field, as sent and as the server receives it.
fn request_with(field: &str) -> (String, String) {
    let with = |text: &str| text.replace("Host: test\r\n", &format!("Host: test\r\n{field}\r\n"));
    (with(GET), with(GET_SEEN))
}

/// Two servers with their accepted connections.
struct Pair {
    scene: Scene,
    connections: [Option<Http1Peer>; 2],
}

impl Pair {
    fn new(change: impl FnOnce(&mut Upstream)) -> Self {
        let scene = Scene::with_servers(&[1, 1], |config| change(&mut config.upstreams[0]));
        Self { scene, connections: [None, None] }
    }

    /// Returns which server gets the client's request, without answering it.
    fn server_of(&mut self, client: &mut Http1Peer, request: &str, seen: &str) -> usize {
        client.sends(request);
        let patience = Patience::new();
        let server = loop {
            for server in [0, 1] {
                if self.connections[server].is_none() {
                    self.connections[server] = self.scene.try_accept(server);
                }
            }
            let has_something =
                |connection: &Option<Http1Peer>| connection.as_ref().is_some_and(Http1Peer::has_something);
            if let Some(server) = self.connections.iter().position(has_something) {
                break server;
            }
            patience.wait("no server is asked");
        };
        self.peer(server).gets(&expand(seen, ""));
        server
    }

    /// Like `server_of`, and answers.
    fn answered_by(&mut self, client: &mut Http1Peer, request: &str, seen: &str) -> usize {
        let server = self.server_of(client, request, seen);
        self.peer(server).sends(OK);
        client.gets(&expand(OK_GOT, ""));
        server
    }

    fn peer(&mut self, server: usize) -> &mut Http1Peer {
        self.connections[server].as_mut().expect("the server has accepted")
    }
}

#[test]
fn a_request_goes_to_another_server_when_its_own_dies_before_anything_was_passed_on() {
    let half = "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Length: 5\r\n\r\nhal";
    for answer in ["", "HTTP/1.1 2", half] {
        let mut pair = Pair::new(|_| ());
        let mut client = pair.scene.client();
        let first = pair.server_of(&mut client, GET, GET_SEEN);
        let mut dying = pair.connections[first].take().expect("it is connected");
        dying.sends(answer);
        drop(dying);
        let mut second = pair.scene.accept(1 - first);
        second.gets(&expand(GET_SEEN, ""));
        second.sends(OK);
        client.gets(&expand(OK_GOT, ""));
        assert_eq!(pair.scene.running().counters().upstream_retries, 1, "{answer:?}");
    }
}

#[test]
fn statuses_are_tried_elsewhere_where_that_is_asked_for_and_the_last_answer_counts() {
    let refused = "HTTP/1.1 503 Service Unavailable\r\nDate: D\r\nContent-Length: 0\r\n\r\n";
    let mut pair = Pair::new(|upstream| {
        upstream.retry.on = RetryOn { status: Statuses::from_statuses([503]), ..RetryOn::default() };
        upstream.retry.attempts = 2;
    });
    let mut client = pair.scene.client();
    let first = pair.server_of(&mut client, GET, GET_SEEN);
    pair.peer(first).sends(refused);
    let mut second = pair.scene.accept(1 - first);
    second.gets(&expand(GET_SEEN, ""));
    second.sends(refused);
    client.gets(&expand(&refused.replace("\r\n\r\n", "\r\n{via}\r\n"), ""));
}

#[test]
fn a_body_whose_end_has_been_sent_is_not_tried_elsewhere_without_it() {
    let refused = "HTTP/1.1 503 Service Unavailable\r\nDate: D\r\nContent-Length: 0\r\n\r\n";
    let mut pair = Pair::new(|upstream| {
        upstream.retry.on = RetryOn { status: Statuses::from_statuses([503]), ..RetryOn::default() };
    });
    let mut client = pair.scene.client();
    let put = "PUT / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let seen = "PUT / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n{ours}\r\n5\r\nhello\r\n";
    let first = pair.server_of(&mut client, put, seen);
    client.sends("0\r\n\r\n");
    pair.peer(first).gets(b"0\r\n\r\n");
    pair.peer(first).sends(refused);
    client.gets(&expand(&refused.replace("\r\n\r\n", "\r\n{via}\r\n"), ""));
    assert!(pair.scene.try_accept(1 - first).is_none());
}

#[test]
fn a_status_is_the_answer_where_no_other_server_is_left() {
    let refused = "HTTP/1.1 503 Busy\r\nDate: D\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nno";
    let passed_on = refused.replace("\r\n\r\n", "\r\n{via}\r\n");
    let on_status = |upstream: &mut Upstream| {
        upstream.retry.on = RetryOn { status: Statuses::from_statuses([503]), ..RetryOn::default() };
    };
    let scene = Scene::with(|config| on_status(&mut config.upstreams[0]));
    let mut client = scene.client().saying(GET);
    let mut server = scene.accept(0);
    for turn in 0..2 {
        server.gets(&expand(GET_SEEN, ""));
        server.sends(refused);
        client.gets(&expand(&passed_on, ""));
        if turn == 0 {
            client.sends(GET);
        }
    }
    scene.assert_no_more_connections();
    assert_eq!(scene.running().counters().upstream_retries, 0);
    // More attempts than servers.
    let mut pair = Pair::new(on_status);
    let mut client = pair.scene.client();
    let first = pair.server_of(&mut client, GET, GET_SEEN);
    pair.peer(first).sends(refused);
    let mut second = pair.scene.accept(1 - first);
    second.gets(&expand(GET_SEEN, ""));
    second.sends(refused);
    client.gets(&expand(&passed_on, ""));
    assert_eq!(pair.scene.running().counters().upstream_retries, 1);
}

#[test]
fn a_lone_server_that_refuses_a_connection_is_tried_again() {
    // No program listens there.
    let scene = Scene::with(|config| config.upstreams[0].servers[0].port = 1);
    let mut client = scene.client().saying(GET);
    let refused = failure_and_go_on("502 Bad Gateway", "The server could not be reached.");
    client.gets(&expand(&refused, ""));
    let counted = scene.running().counters();
    assert_eq!((counted.upstream_retries, counted.upstream_connect_failures), (2, 3));
}

#[test]
fn what_may_not_be_done_twice_is_not_tried_elsewhere() {
    let refused = "HTTP/1.1 503 Service Unavailable\r\nDate: D\r\nContent-Length: 0\r\n\r\n";
    let mut pair = Pair::new(|upstream| {
        upstream.retry.on = RetryOn { status: Statuses::from_statuses([503]), ..RetryOn::default() };
    });
    let mut client = pair.scene.client();
    let (post, seen) = (GET.replace("GET", "POST"), GET_SEEN.replace("GET", "POST"));
    let first = pair.server_of(&mut client, &post, &seen);
    pair.peer(first).sends(refused);
    client.gets(&expand(&refused.replace("\r\n\r\n", "\r\n{via}\r\n"), ""));
    assert!(pair.scene.try_accept(1 - first).is_none());
}

#[test]
fn retries_keep_to_their_budget() {
    let refused = failure_and_go_on("502 Bad Gateway", "The server reset the connection without a response.");
    let mut pair = Pair::new(|upstream| {
        upstream.retry_budget = RetrySettings { percent: 50, per_second_min: 0 };
        upstream.settings.ejection = None;
    });
    let mut client = pair.scene.client();
    for turn in 1..=8 {
        let first = pair.server_of(&mut client, GET, GET_SEEN);
        pair.connections[first].take().expect("it is connected").resets();
        // Every second request earns a retry.
        if turn % 2 == 0 {
            let mut second = pair.scene.accept(1 - first);
            second.gets(&expand(GET_SEEN, ""));
            second.sends(OK.replace("Date", "Connection: close\r\nDate"));
            client.gets(&expand(OK_GOT, ""));
        } else {
            client.gets(&expand(&refused, ""));
        }
    }
    let counted = pair.scene.running().counters();
    assert_eq!((counted.upstream_retries, counted.upstream_retries_denied), (4, 4));
}

#[test]
fn requests_wait_for_a_server_with_room_first_come_first_served() {
    let scene = Scene::with(|config| config.upstreams[0].servers[0].max_requests = 1.try_into().ok());
    let mut clients: Vec<Http1Peer> = (0..4).map(|_| scene.client()).collect();
    clients[0].sends(GET);
    let mut server = scene.accept(0);
    server.gets(&expand(GET_SEEN, ""));
    for (place, client) in clients.iter_mut().enumerate().skip(1) {
        let (request, _) = request_with(&format!("X-Place: {place}"));
        client.sends(request);
        assert_soon("the request is not queued", || {
            scene.running().counters().requests_queued >= place as u64
        });
    }
    for (place, client) in clients.iter_mut().enumerate() {
        if place > 0 {
            let (_, seen) = request_with(&format!("X-Place: {place}"));
            server.gets(&expand(&seen, ""));
        }
        server.sends(OK);
        client.gets(&expand(OK_GOT, ""));
    }
    scene.assert_no_more_connections();
}

#[test]
fn a_queue_has_a_length_and_a_time() {
    let full = failure_of_load("Too many requests are in progress.");
    // With a long time-out, the queue is full before a wait ends, however slow the test is.
    for (timeout, cause) in [(PATIENCE, "upstream-full"), (Duration::from_millis(100), "queue-timeout")] {
        let scene = Scene::with(|config| {
            config.upstreams[0].servers[0].max_requests = 1.try_into().ok();
            config.upstreams[0].queue = QueueSettings { length: 1, timeout };
        });
        let [mut first, mut second, mut third] = [scene.client(), scene.client(), scene.client()];
        first.sends(GET);
        let mut server = scene.accept(0);
        server.gets(&expand(GET_SEEN, ""));
        second.sends(GET);
        assert_soon("the request is not queued", || scene.running().counters().requests_queued >= 1);
        if cause == "queue-timeout" {
            second.gets(&expand(&full, ""));
            server.sends(OK);
        } else {
            third.sends(GET);
            third.gets(&expand(&full, ""));
            server.sends(OK);
            server.gets(&expand(GET_SEEN, ""));
            server.sends(OK);
            second.gets(&expand(OK_GOT, ""));
        }
        first.gets(&expand(OK_GOT, ""));
        scene.assert_failures(&[cause]);
    }
}

#[test]
fn whoever_leaves_the_queue_is_not_served() {
    // By a close, a reset, or with the next request on its way.
    for leaving in 0..3 {
        let scene = Scene::with(|config| config.upstreams[0].servers[0].max_requests = 1.try_into().ok());
        let [mut first, mut gone, mut last] = [scene.client(), scene.client(), scene.client()];
        first.sends(GET);
        let mut server = scene.accept(0);
        server.gets(&expand(GET_SEEN, ""));
        let (request, _) = request_with("X-Who: gone");
        let again = if leaving == 2 { &request } else { "" };
        gone.sends(format!("{request}{again}"));
        assert_soon("the request is not queued", || scene.running().counters().requests_queued >= 1);
        let (request, seen) = request_with("X-Who: last");
        last.sends(request);
        assert_soon("the request is not queued", || scene.running().counters().requests_queued >= 2);
        match leaving {
            1 => gone.resets(),
            _ => drop(gone),
        }
        server.sends(OK);
        first.gets(&expand(OK_GOT, ""));
        server.gets(&expand(&seen, ""));
        server.sends(OK);
        last.gets(&expand(OK_GOT, ""));
        scene.assert_failures(&["client-gone"]);
    }
}

fn cookie() -> StickySessions {
    StickySessions::Cookie(StickyCookie {
        name: "vanward".to_owned(),
        ttl: Some(Duration::from_secs(60)),
        attributes: CookieAttributes::default(),
        secrets: None,
    })
}

#[test]
fn a_cookie_keeps_a_client_on_its_server() {
    let mut pair = Pair::new(|upstream| upstream.sticky = Some(cookie()));
    let mut client = pair.scene.client();
    let first = pair.server_of(&mut client, GET, GET_SEEN);
    pair.peer(first).sends(OK);
    let got = client.head();
    let set = got.lines().find_map(|line| line.strip_prefix("Set-Cookie: ")).expect("a cookie is set");
    let (pair_text, attributes) = set.split_once("; ").expect("it has attributes");
    assert!(pair_text.starts_with("vanward=") && attributes.contains("HttpOnly"), "{set}");
    client.gets(b"ok");
    let (request, seen) = request_with(&format!("Cookie: {pair_text}"));
    for _ in 0..4 {
        // No new cookie is set, because it is fresh.
        assert_eq!(pair.answered_by(&mut client, &request, &seen), first);
    }
    // A forged cookie is ignored.
    let forged = request.replace("vanward=", "vanward=A");
    let forged_seen = seen.replace("vanward=", "vanward=A");
    let server = pair.server_of(&mut client, &forged, &forged_seen);
    pair.peer(server).sends(OK);
    assert!(client.head().contains("Set-Cookie: vanward="));
    client.gets(b"ok");
}

#[test]
fn a_response_that_begins_a_session_is_private_if_that_is_wanted() {
    let attributes = CookieAttributes { is_private: true, ..CookieAttributes::default() };
    let StickySessions::Cookie(cookie) = cookie() else { unreachable!("it is a cookie") };
    let sticky = StickySessions::Cookie(StickyCookie { attributes, ..cookie });
    let mut pair = Pair::new(|upstream| upstream.sticky = Some(sticky));
    let mut client = pair.scene.client();
    let first = pair.server_of(&mut client, GET, GET_SEEN);
    pair.peer(first).sends(OK);
    let got = client.head();
    assert!(got.contains("\r\nCache-Control: private\r\n"), "{got}");
    client.gets(b"ok");
    let set = got.lines().find_map(|line| line.strip_prefix("Set-Cookie: ")).expect("a cookie is set");
    let (request, seen) = request_with(&format!("Cookie: {}", set.split(';').next().unwrap_or_default()));
    // Without a new cookie, the response is as the server sent it.
    assert_eq!(pair.answered_by(&mut client, &request, &seen), first);
}

#[test]
fn sessions_are_kept_by_whatever_names_them() {
    let table = |source| {
        StickySessions::Table(StickyTable {
            source,
            ttl: Duration::from_secs(60),
            sessions_max: 100,
            shared: None,
        })
    };
    for (source, field, other_field) in [
        (SessionSource::ClientAddress(AddressPrefixes::default()), "X-Any: 1", "X-Any: 2"),
        (SessionSource::Header("X-Session".to_owned()), "X-Session: a", "X-Session: a"),
        (SessionSource::BasicUser, "Authorization: Basic YTpi", "Authorization: Basic YTpj"),
    ] {
        let mut pair = Pair::new(|upstream| upstream.sticky = Some(table(source.clone())));
        let mut client = pair.scene.client();
        let (request, seen) = request_with(field);
        let first = pair.answered_by(&mut client, &request, &seen);
        let (other, other_seen) = request_with(other_field);
        let mut another = pair.scene.client();
        for _ in 0..3 {
            assert_eq!(pair.answered_by(&mut another, &other, &other_seen), first, "{source:?}");
        }
    }
}

#[test]
fn a_cookie_of_the_server_is_learnt() {
    let source = SessionSource::Cookie("SID".to_owned());
    let sticky = StickySessions::Table(StickyTable {
        source,
        ttl: Duration::from_secs(60),
        sessions_max: 100,
        shared: None,
    });
    let mut pair = Pair::new(|upstream| upstream.sticky = Some(sticky));
    let mut client = pair.scene.client();
    let first = pair.server_of(&mut client, GET, GET_SEEN);
    pair.peer(first).sends(OK.replace("Date: D\r\n", "Date: D\r\nSet-Cookie: SID=77; Path=/\r\n"));
    assert!(client.head().contains("Set-Cookie: SID=77"));
    client.gets(b"ok");
    let (request, seen) = request_with("Cookie: a=b; SID=77");
    for _ in 0..4 {
        assert_eq!(pair.answered_by(&mut client, &request, &seen), first);
    }
}

#[test]
fn a_session_whose_server_is_gone_moves_on_and_stays_there() {
    let source = SessionSource::Header("X-Session".to_owned());
    let sticky = StickySessions::Table(StickyTable {
        source,
        ttl: Duration::from_secs(60),
        sessions_max: 100,
        shared: None,
    });
    let mut pair = Pair::new(|upstream| upstream.sticky = Some(sticky));
    let mut client = pair.scene.client();
    let (request, seen) = request_with("X-Session: a");
    let first = pair.server_of(&mut client, &request, &seen);
    pair.peer(first).sends(OK);
    client.gets(&expand(OK_GOT, ""));
    assert_eq!(pair.server_of(&mut client, &request, &seen), first);
    pair.connections[first].take().expect("it is connected").resets();
    // A retry on a new connection to the same server, because the pooled one may have been stale; then on another
    // server.
    let again = pair.scene.accept(first);
    again.resets();
    let mut second = pair.scene.accept(1 - first);
    second.gets(&expand(&seen, ""));
    second.sends(OK);
    client.gets(&expand(OK_GOT, ""));
    pair.connections[1 - first] = Some(second);
    for _ in 0..3 {
        assert_eq!(pair.answered_by(&mut client, &request, &seen), 1 - first);
    }
}

#[test]
fn who_waits_for_its_own_server_keeps_nobody_from_another() {
    let source = SessionSource::Header("X-Session".to_owned());
    let sticky = StickySessions::Table(StickyTable {
        source,
        ttl: Duration::from_secs(60),
        sessions_max: 100,
        shared: None,
    });
    let mut pair = Pair::new(|upstream| {
        upstream.sticky = Some(sticky);
        upstream.servers.iter_mut().for_each(|server| server.max_requests = 1.try_into().ok());
    });
    let [mut client, mut waiting, mut other] = [(); 3].map(|()| pair.scene.client());
    let (request, seen) = request_with("X-Session: a");
    let own = pair.answered_by(&mut client, &request, &seen);
    assert_eq!(pair.server_of(&mut client, &request, &seen), own);
    waiting.sends(&request);
    assert_soon("the request is not queued", || pair.scene.running().counters().requests_queued >= 1);
    assert_eq!(pair.server_of(&mut other, GET, GET_SEEN), 1 - own);
    assert_eq!(pair.scene.running().counters().requests_queued, 1);
    pair.peer(own).sends(OK);
    client.gets(&expand(OK_GOT, ""));
    pair.peer(own).gets(&expand(&seen, ""));
    pair.peer(own).sends(OK);
    waiting.gets(&expand(OK_GOT, ""));
    pair.peer(1 - own).sends(OK);
    other.gets(&expand(OK_GOT, ""));
}

#[test]
fn a_hash_of_a_header_chooses_the_server() {
    let mut pair = Pair::new(|upstream| {
        upstream.balance = balance::policy("consistent-hash").expect("it is one");
        upstream.hash_key = SessionSource::Header("X-Key".to_owned());
    });
    let mut client = pair.scene.client();
    let mut servers = [0; 2];
    for key in 0..20 {
        let (request, seen) = request_with(&format!("X-Key: {key}"));
        let server = pair.answered_by(&mut client, &request, &seen);
        assert_eq!(pair.answered_by(&mut client, &request, &seen), server);
        servers[server] += 1;
    }
    assert!(servers.iter().all(|count| *count > 2), "{servers:?}");
}

#[test]
fn the_time_that_a_client_takes_for_its_body_is_not_the_servers() {
    let mut pair =
        Pair::new(|upstream| upstream.balance = balance::policy("response-time").expect("it is one"));
    let mut client = pair.scene.client();
    let with_body = |text: &str| {
        let text =
            text.replace("GET", "POST").replace("Host: test\r\n", "Host: test\r\nContent-Length: 4\r\n");
        text + "ab"
    };
    let quick = pair.server_of(&mut client, &with_body(GET), &with_body(GET_SEEN));
    std::thread::sleep(Duration::from_secs(1));
    client.sends("cd");
    pair.peer(quick).gets(b"cd");
    pair.peer(quick).sends(OK);
    client.gets(&expand(OK_GOT, ""));
    let mut asked = [0; 2];
    for _ in 0..10 {
        let server = pair.server_of(&mut client, GET, GET_SEEN);
        asked[server] += 1;
        if server != quick {
            std::thread::sleep(Duration::from_millis(50));
        }
        pair.peer(server).sends(OK);
        client.gets(&expand(OK_GOT, ""));
    }
    assert!(asked[quick] >= 5, "{asked:?}: the quick one is {quick}");
}

/// Eight servers that never answer, and eight that answer at once, with four workers: a request at a silent server
/// stays there. Workers that counted separately would each try every silent server once, 32 in total. Two choices may
/// both be silent by chance.
#[test]
fn what_is_under_way_is_counted_over_all_workers() {
    for (policy, stuck_max) in [("least-connections", 8), ("two-choices", 26)] {
        let scene = Scene::with_servers(&[1; 16], |config| {
            config.workers = 4.try_into().ok();
            config.upstreams[0].balance = balance::policy(policy).expect("it is one");
        });
        let mut connections: Vec<Vec<Http1Peer>> = (0..16).map(|_| Vec::new()).collect();
        let mut stuck = Vec::new();
        for _ in 0..200 {
            // The kernel distributes the connections over the workers.
            let mut client = scene.client().saying(GET);
            let patience = Patience::new();
            let (server, place) = loop {
                for (server, known) in connections.iter_mut().enumerate() {
                    known.extend(scene.try_accept(server));
                }
                let asked = connections.iter().enumerate().find_map(|(server, known)| {
                    Some((server, known.iter().position(Http1Peer::has_something)?))
                });
                if let Some(asked) = asked {
                    break asked;
                }
                patience.wait("no server is asked");
            };
            let peer = &mut connections[server][place];
            peer.gets(&expand(GET_SEEN, ""));
            if server < 8 {
                stuck.push(client);
                continue;
            }
            peer.sends(OK);
            client.gets(&expand(OK_GOT, ""));
            // A request is under way until all of it is done, which its client may know first.
            assert_soon("requests do not end", || {
                scene.running().counters().requests_active <= stuck.len() as u64
            });
        }
        assert!((8..=stuck_max).contains(&stuck.len()), "{policy}: {} requests stuck", stuck.len());
    }
}
