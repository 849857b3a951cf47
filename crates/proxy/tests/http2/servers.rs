//! HTTP/2 connections to servers: their number, sharing, and end.

use config::Protocol;
use testkit::http1::Http1Peer;
use testkit::http2::frame::{
    CANCEL, H2Frame, INTERNAL_ERROR, MAX_CONCURRENT_STREAMS, NO_ERROR, REFUSED_STREAM, data, go_away,
    headers, last_data, last_headers, ping, reset, settings,
};
use testkit::http2::{H2End, H2Ended};
use testkit::ports;

use super::scene::Scene;

const GET: &str = "GET / HTTP/1.1\r\nHost: test\r\n\r\n";
const POST: &str = "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\nabc";

fn answer(server: &mut H2End, stream: u32) {
    server.sends([headers(stream, ":status: 200\ncontent-length: 2\n"), last_data(stream, "ok")].concat());
}

fn is_answered(client: &mut Http1Peer) {
    let message = client.message();
    assert_eq!((message.status(), message.body), (200, b"ok".to_vec()));
}

/// Returns a client whose request has reached a server, on this stream of its connection.
fn asks(scene: &Scene, server: &mut H2End, stream: u32) -> Http1Peer {
    let client = scene.client1().saying(GET);
    server.whole(stream);
    client
}

#[test]
fn clients_share_a_connection() {
    let scene = Scene::to_http2();
    let mut first = scene.client1().saying(GET);
    let mut server = scene.accept();
    server.whole(1);
    let mut clients: Vec<_> = (0..20).map(|at| asks(&scene, &mut server, 3 + 2 * at)).collect();
    // In any order of the responses.
    for at in (0..20).rev() {
        answer(&mut server, 3 + 2 * at);
    }
    clients.iter_mut().for_each(is_answered);
    answer(&mut server, 1);
    is_answered(&mut first);
    scene.assert_no_more_connections();
    let counters = scene.running.counters();
    assert_eq!((counters.upstream_connects, counters.upstream_reuses), (1, 20));
}

#[test]
fn requests_that_come_together_make_one_connection() {
    let scene = Scene::to_http2();
    let mut clients: Vec<_> = (0..8).map(|_| scene.client1()).collect();
    clients.iter_mut().for_each(|client| client.sends(GET));
    let mut server = scene.accept();
    for at in 0..8 {
        server.whole(1 + 2 * at);
        answer(&mut server, 1 + 2 * at);
    }
    clients.iter_mut().for_each(is_answered);
    scene.assert_no_more_connections();
}

#[test]
fn another_connection_is_made_where_one_has_no_stream_left() {
    let scene = Scene::to_http2();
    let mut first = scene.client1().saying(GET);
    let mut server = scene.accept_with(&[(MAX_CONCURRENT_STREAMS, 2)]);
    server.whole(1);
    server.is_heard();
    let mut second = asks(&scene, &mut server, 3);
    let mut third = scene.client1().saying(GET);
    let mut other = scene.accept_with(&[(MAX_CONCURRENT_STREAMS, 2)]);
    other.whole(1);
    // When a stream has ended, there is room again.
    answer(&mut server, 1);
    is_answered(&mut first);
    let mut fourth = asks(&scene, &mut server, 5);
    answer(&mut other, 1);
    is_answered(&mut third);
    answer(&mut server, 3);
    answer(&mut server, 5);
    is_answered(&mut second);
    is_answered(&mut fourth);
    scene.assert_no_more_connections();
}

#[test]
fn a_server_may_lower_its_limit() {
    let scene = Scene::to_http2();
    let mut first = scene.client1().saying(GET);
    let mut server = scene.accept();
    server.whole(1);
    let mut second = asks(&scene, &mut server, 3);
    server.sends(settings(&[(MAX_CONCURRENT_STREAMS, 1)]));
    server.is_heard();
    let mut third = scene.client1().saying(GET);
    let mut other = scene.accept();
    other.whole(1);
    answer(&mut other, 1);
    is_answered(&mut third);
    answer(&mut server, 1);
    answer(&mut server, 3);
    is_answered(&mut first);
    is_answered(&mut second);
}

#[test]
fn a_server_that_allows_no_stream_is_not_waited_for() {
    let scene = Scene::with(Protocol::Http2, 1, |config| config.upstreams[0].retry.attempts = 1);
    let mut client = scene.client1().saying(GET);
    let _server = scene.accept_with(&[(MAX_CONCURRENT_STREAMS, 0)]);
    assert_eq!(client.message().status(), 502);
}

#[test]
fn what_a_leaving_server_has_not_seen_goes_elsewhere() {
    // RFC 9113 §6.8: streams above the last one were not processed.
    let scene = Scene::to_http2();
    let mut first = scene.client1().saying(GET);
    let mut server = scene.accept();
    server.whole(1);
    // A POST may be retried, too, because its server has not processed it.
    let mut second = scene.client1().saying(POST);
    server.whole(3);
    server.sends(go_away(1, NO_ERROR));
    let mut other = scene.accept();
    assert!(other.whole(1).ends_with("---\nabc\n---\n"));
    answer(&mut other, 1);
    is_answered(&mut second);
    // It answers the processed one.
    answer(&mut server, 1);
    is_answered(&mut first);
    assert_eq!(server.ends(), H2Ended::Told(NO_ERROR));
    let mut third = asks(&scene, &mut other, 3);
    answer(&mut other, 3);
    is_answered(&mut third);
    assert_eq!(scene.running.counters().upstream_retries, 1);
    assert_eq!(scene.failures(), []);
}

#[test]
fn a_retry_goes_on_with_the_next_priority() {
    let scene = Scene::with(Protocol::Http2, 2, |config| {
        let [first, second] = config.upstreams[0].servers.as_mut_slice() else { panic!("there are two") };
        (first.port, second.priority) = (ports::nobody().port(), 1);
    });
    let mut client = scene.client1().saying(GET);
    let mut backup = H2End::server(scene.accept_stream(1), &[]);
    for stream in [1, 3, 5, 7, 9, 11, 13] {
        if stream > 1 {
            client = scene.client1().saying(GET);
        }
        backup.whole(stream);
        answer(&mut backup, stream);
        is_answered(&mut client);
    }
    // Then the first server is ejected, with its priority.
    assert_eq!(scene.running.counters().upstream_retries, 5);
}

#[test]
fn a_server_that_leaves_within_a_response_finishes_it() {
    let scene = Scene::to_http2();
    let mut client = scene.client1().saying(GET);
    let mut server = scene.accept();
    server.whole(1);
    server.sends(
        [headers(1, ":status: 200\ncontent-length: 2\n"), data(1, "o"), go_away(1, NO_ERROR)].concat(),
    );
    server.sends(last_data(1, "k"));
    is_answered(&mut client);
}

#[test]
fn a_refused_stream_is_tried_again() {
    // RFC 9113 §8.7: also a POST. Without another server, on the same connection (§9.1).
    let scene = Scene::to_http2();
    let mut client = scene.client1().saying(GET);
    let mut server = scene.accept();
    for (at, request) in [GET, POST].into_iter().enumerate() {
        if at > 0 {
            client.sends(request);
        }
        let stream = 1 + 4 * at as u32;
        server.whole(stream);
        server.sends(reset(stream, REFUSED_STREAM));
        server.whole(stream + 2);
        answer(&mut server, stream + 2);
        is_answered(&mut client);
    }
    scene.assert_no_more_connections();
    assert_eq!(scene.running.counters().upstream_retries, 2);
    assert_eq!(scene.failures(), []);
}

#[test]
fn a_refused_stream_is_tried_again_within_the_budget() {
    let scene = Scene::with(Protocol::Http2, 1, |config| {
        config.upstreams[0].retry_budget = balance::RetrySettings { percent: 0, per_second_min: 0 };
    });
    let mut client = scene.client1().saying(GET);
    let mut server = scene.accept();
    for at in 0..20 {
        if at > 0 {
            client.sends(GET);
        }
        server.whole(1 + 2 * at);
        server.sends(reset(1 + 2 * at, REFUSED_STREAM));
        assert_eq!(client.message().status(), 502);
    }
    scene.assert_no_more_connections();
}

#[test]
fn a_server_that_resets_streams_is_asked_on_the_connection_that_is_there() {
    // RFC 9113 §9.1: one connection suffices, however its streams end.
    let scene = Scene::with(Protocol::Http2, 1, |config| {
        config.upstreams[0].retry_budget = balance::RetrySettings { percent: 1000, per_second_min: 0 };
    });
    let mut client = scene.client1().saying(GET);
    let mut server = scene.accept();
    for at in 0..20 {
        if at > 0 {
            client.sends(GET);
        }
        // Three attempts, because there is no other server.
        for stream in (0..3).map(|attempt| 1 + 2 * (3 * at + attempt)) {
            server.whole(stream);
            server.sends(reset(stream, INTERNAL_ERROR));
        }
        assert_eq!(client.message().status(), 502);
    }
    scene.assert_no_more_connections();
    scene.assert_failure("upstream-reset", 20);
}

#[test]
fn what_a_connection_that_dies_had_under_way_goes_to_one_other() {
    let scene = Scene::to_http2();
    let mut first = scene.client1().saying(GET);
    let mut server = scene.accept();
    server.whole(1);
    let mut clients: Vec<_> = (0..20).map(|at| asks(&scene, &mut server, 3 + 2 * at)).collect();
    answer(&mut server, 1);
    is_answered(&mut first);
    server.is_heard();
    drop(server);
    let mut other = scene.accept();
    for at in 0..20 {
        other.whole(1 + 2 * at);
        answer(&mut other, 1 + 2 * at);
    }
    clients.iter_mut().for_each(is_answered);
    scene.assert_no_more_connections();
    assert_eq!(scene.failures(), []);
}

#[test]
fn a_body_that_has_gone_is_not_sent_twice() {
    let scene = Scene::to_http2();
    let mut client = scene.client1();
    client.sends("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 6\r\n\r\nabc");
    let mut server = scene.accept();
    server.next_on(1);
    server.gets_data(1, "abc");
    client.sends("def");
    server.gets_data(1, "def");
    server.sends(reset(1, REFUSED_STREAM));
    assert_eq!(client.message().status(), 502);
    scene.assert_no_more_connections();
}

#[test]
fn what_a_server_may_have_done_is_not_repeated() {
    for (name, request, end) in
        [("reset", POST, reset(1, INTERNAL_ERROR)), ("left with an error", POST, go_away(1, INTERNAL_ERROR))]
    {
        let scene = Scene::to_http2();
        let mut client = scene.client1().saying(request);
        let mut server = scene.accept();
        server.whole(1);
        server.sends(end);
        drop(server);
        assert_eq!(client.message().status(), 502, "{name}");
        scene.assert_no_more_connections();
        scene.assert_failure("upstream-reset", 1);
    }
}

#[test]
fn a_connection_that_dies_cuts_its_responses() {
    let scene = Scene::to_http2();
    let mut begun = scene.client();
    begun.sends(last_headers(1, ":method: GET\n:scheme: http\n:authority: test\n:path: /\n"));
    let mut server = scene.accept();
    server.whole(1);
    server.sends([headers(1, ":status: 200\n"), data(1, "abc")].concat());
    begun.next_on(1);
    begun.gets_data(1, "abc");
    let mut post = scene.client1().saying(POST);
    server.whole(3);
    drop(server);
    begun.gets_reset(1, INTERNAL_ERROR);
    assert_eq!(post.message().status(), 502);
    begun.is_heard();
    scene.assert_failure("upstream-truncated", 1);
    scene.assert_failure("upstream-closed", 1);
}

#[test]
fn a_pooled_connection_that_was_closed_is_made_anew() {
    let scene = Scene::to_http2();
    let mut client = scene.client1().saying(GET);
    let mut server = scene.accept();
    server.whole(1);
    answer(&mut server, 1);
    is_answered(&mut client);
    drop(server);
    client.sends(GET);
    let mut server = scene.accept();
    server.whole(1);
    answer(&mut server, 1);
    is_answered(&mut client);
    assert_eq!(scene.failures(), []);
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let scene = Scene::with(Protocol::Http2, 1, |config| {
        config.timeouts.upstream_connect = std::time::Duration::from_millis(300);
    });
    let mut client = scene.client1().saying(GET);
    let _silent = scene.accept_stream(0);
    assert_eq!(client.message().status(), 504);
}

#[test]
fn a_server_of_http_1_1_is_no_server_of_http_2() {
    let scene = Scene::with(Protocol::Http2, 1, |config| config.upstreams[0].retry.attempts = 1);
    let mut client = scene.client1().saying(GET);
    let mut server = Http1Peer::new("server", scene.accept_stream(0));
    server.sends("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.message().status(), 502);
    scene.assert_failure("upstream-protocol", 1);
}

#[test]
fn a_server_that_asks_whether_we_are_there_is_answered() {
    let scene = Scene::to_http2();
    let mut client = scene.client1().saying(GET);
    let mut server = scene.accept();
    server.whole(1);
    server.sends(ping(*b"are you?"));
    server.find(|frame| *frame == H2Frame::PingAck(*b"are you?"));
    answer(&mut server, 1);
    is_answered(&mut client);
    // Also while idle.
    server.sends(ping(*b"and now?"));
    server.find(|frame| *frame == H2Frame::PingAck(*b"and now?"));
}

#[test]
fn servers_take_turns() {
    let scene = Scene::with(Protocol::Http2, 2, |_| ());
    let mut clients: Vec<_> = (0..2).map(|_| scene.client1()).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        client.sends(GET);
        let mut server = H2End::server(scene.accept_stream(at), &[]);
        server.whole(1);
        answer(&mut server, 1);
        is_answered(client);
    }
}

#[test]
fn a_server_that_refuses_is_left_for_another() {
    let scene = Scene::with(Protocol::Http2, 2, |_| ());
    let mut client = scene.client1().saying(POST);
    let mut server = H2End::server(scene.accept_stream(0), &[]);
    server.whole(1);
    server.sends(reset(1, REFUSED_STREAM));
    let mut server = H2End::server(scene.accept_stream(1), &[]);
    server.whole(1);
    answer(&mut server, 1);
    is_answered(&mut client);
}

#[test]
fn requests_that_one_client_gives_up_break_nobody_elses() {
    // RFC 9113 §5.1: frames that a server sent before it received the resets are ignored, however many.
    let scene = Scene::to_http2();
    let mut client = scene.client();
    let get = ":method: GET\n:scheme: http\n:authority: test\n:path: /\n";
    client.sends(last_headers(1, get));
    let mut server = scene.accept();
    server.whole(1);
    client.sends(reset(1, CANCEL));
    server.gets_reset(1, CANCEL);
    for round in 0..3 {
        let ids = || (0..60).map(|at| 3 + 2 * (60 * round + at));
        client.sends(ids().flat_map(|id| last_headers(id, get)).collect::<Vec<u8>>());
        ids().for_each(|id| drop(server.whole(id)));
        client.sends(ids().flat_map(|id| reset(id, CANCEL)).collect::<Vec<u8>>());
        ids().for_each(|id| server.gets_reset(id, CANCEL));
    }
    let mut other = asks(&scene, &mut server, 363);
    server.sends([headers(1, ":status: 200\n"), data(1, "late"), last_headers(1, "x-sum: 1\n")].concat());
    answer(&mut server, 363);
    is_answered(&mut other);
    client.is_heard();
    scene.assert_no_more_connections();
}

/// A request that waits for another connection takes a stream that becomes free earlier.
#[test]
fn a_request_that_waits_for_a_connection_takes_a_stream_that_becomes_free() {
    let scene = Scene::to_http2();
    let mut first = scene.client1().saying(GET);
    let mut server = scene.accept_with(&[(MAX_CONCURRENT_STREAMS, 1)]);
    server.whole(1);
    server.is_heard();
    let mut second = scene.client1().saying(GET);
    // It stays silent for now.
    let silent = scene.accept_stream(0);
    answer(&mut server, 1);
    is_answered(&mut first);
    server.whole(3);
    answer(&mut server, 3);
    is_answered(&mut second);
    // The other connection is established nevertheless, for requests when the first has no room.
    let mut other = H2End::server(silent, &[(MAX_CONCURRENT_STREAMS, 1)]);
    other.is_heard();
    let mut third = asks(&scene, &mut server, 5);
    let mut fourth = asks(&scene, &mut other, 1);
    answer(&mut server, 5);
    answer(&mut other, 1);
    is_answered(&mut third);
    is_answered(&mut fourth);
    scene.assert_no_more_connections();
}
