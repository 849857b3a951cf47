//! A single request to the server for all instances, and the responses to clients.

use testkit::scene::{BodylessRequest, get};

use super::fleet::{Fleet, ok};

#[test]
fn all_instances_make_one_request_for_a_key() {
    let fleet = Fleet::new(3);
    for number in 0..30 {
        let path = format!("/{number}");
        for round in 0..2 {
            for instance in 0..3 {
                let got = fleet.ask((number + instance) % 3, &get(&path));
                assert_eq!((got.status, got.body.as_str()), (200, path.as_str()), "round {round}");
            }
        }
        assert_eq!(fleet.server.heads(&path).len(), 1, "{path}");
    }
    let served: Vec<u64> = (0..3).map(|number| fleet.served(number)).collect();
    assert!(served.iter().all(|count| *count > 0), "each owns some: {served:?}");
    // Each key was requested four times from instances that do not own it.
    assert_eq!(served.iter().sum::<u64>(), 30 * 4);
    let counters: Vec<_> = (0..3).map(|number| fleet.instance(number).counters()).collect();
    assert_eq!(counters.iter().map(|counters| counters.cache_peer_requests).sum::<u64>(), 120);
    assert_eq!(counters.iter().map(|counters| counters.cache_peer_failures).sum::<u64>(), 0);
    let hits: u64 = counters.iter().map(|counters| counters.cache_peer_hits).sum();
    assert!((90..120).contains(&hits), "{hits} of 120 were hits: some keys were first asked for elsewhere");
}

#[test]
fn the_server_sees_the_client_and_one_proxy() {
    let fleet = Fleet::new(2);
    let path = fleet.foreign_path(0, 1);
    let heads = fleet.server.heads(&path);
    let [head] = &heads[..] else { panic!("{heads:?}") };
    let lower = head.to_lowercase();
    for line in ["\r\nhost: test\r\n", "x-forwarded-for: 127.0.0.1\r\n", "x-forwarded-proto: http\r\n"] {
        assert_eq!(lower.matches(line).count(), 1, "{line} in {head}");
    }
    assert_eq!(lower.matches("via: ").count(), 1, "{head}");
    assert!(!lower.contains("vanward-peer"), "{head}");
    let got = fleet.ask(0, &get(&path));
    assert_eq!(got.all("via"), ["2.0 vanward"]);
    assert_eq!(got.all("cache-status").len(), 2, "{got:?}");
    assert!(got.all("cache-status")[0].starts_with("vanward; hit"), "{got:?}");
    assert_eq!(got.all("cache-status")[1], "vanward; fwd=uri-miss; detail=peer");
    assert!(got.field("age").is_some(), "{got:?}");
    assert_eq!(got.field("etag"), Some("\"1\""));
}

#[test]
fn what_a_client_says_of_peers_is_not_believed() {
    let fleet = Fleet::new(2);
    let marker = format!("vanward-peer: {} 192.0.2.1 80 https", "0".repeat(32));
    let request = |target| BodylessRequest { fields: &marker, ..get(target) };
    let path = fleet.foreign_path(0, 1);
    let got = fleet.ask(0, &request(&path));
    assert_eq!((got.status, got.body.as_str()), (200, path.as_str()));
    let again = format!("{path}&again");
    fleet.ask(0, &request(&again));
    fleet.ask(1, &request(&again));
    let heads = fleet.server.heads(&again);
    assert_eq!(heads.len(), 1);
    assert!(heads[0].to_lowercase().contains("x-forwarded-for: 127.0.0.1\r\n"), "{heads:?}");
}

#[test]
fn conditions_ranges_and_heads_are_those_of_the_client() {
    let fleet = Fleet::new(2);
    let path = fleet.foreign_path(0, 1);
    let with = |fields| BodylessRequest { fields, ..get(&path) };
    assert_eq!(fleet.ask(0, &with("if-none-match: \"1\"")).status, 304);
    assert_eq!(fleet.ask(0, &with("if-none-match: \"2\"")).body, path);
    let part = fleet.ask(0, &with("range: bytes=1-2"));
    assert_eq!((part.status, part.body.as_str()), (206, &path[1..3]));
    let mut client = fleet.client(0).asking(&BodylessRequest { method: "HEAD", ..get(&path) });
    let got = client.gets_head_alone();
    assert_eq!((got.status, got.field("content-length")), (200, Some(path.len().to_string().as_str())));
    assert_eq!(fleet.server.heads(&path).len(), 1, "all were answered by the owner");
}

#[test]
fn variants_are_told_apart_by_their_owner() {
    let fleet = Fleet::new(3);
    let path = fleet.foreign_path(0, 1);
    let target = format!("{path}&varies");
    let answer = |language: &str| ok(language, "Cache-Control: max-age=60\r\nVary: Accept-Language\r\n");
    let ask = |instance, language: &str| {
        let fields = format!("accept-language: {language}");
        fleet.ask(instance, &BodylessRequest { fields: &fields, ..get(&target) }).body
    };
    for language in ["nl", "fr"] {
        fleet.server.answers(&target, &answer(language));
        for instance in 0..3 {
            assert_eq!(ask(instance, language), language);
        }
    }
    for instance in 0..3 {
        assert_eq!((ask(instance, "nl"), ask(instance, "fr")), ("nl".to_owned(), "fr".to_owned()));
    }
    assert_eq!(fleet.server.heads(&target).len(), 2);
}

/// The owner revalidates, and all instances get the result.
#[test]
fn a_client_that_wants_it_anew_reaches_the_server_through_the_owner() {
    let fleet = Fleet::new(2);
    let path = fleet.foreign_path(0, 1);
    fleet.server.answers(&path, &ok("new", "Cache-Control: max-age=60\r\nETag: \"2\"\r\n"));
    assert_eq!(fleet.ask(0, &get(&path)).body, path);
    assert_eq!(
        fleet.ask(0, &BodylessRequest { fields: "cache-control: no-cache", ..get(&path) }).body,
        "new"
    );
    assert_eq!(fleet.ask(0, &get(&path)).body, "new");
    assert_eq!(fleet.ask(1, &get(&path)).body, "new");
    assert_eq!(fleet.server.heads(&path).len(), 2);
}

/// Hidden fields decide whether a response may be stored: without them the owner would not be asked again.
#[test]
fn fields_for_this_cache_alone_pass_between_instances() {
    let fleet = Fleet::new(2);
    for number in 0..8 {
        let target = format!("/targeted-{number}");
        let fields = "Cache-Control: private\r\nSurrogate-Control: max-age=60\r\nSurrogate-Key: a\r\n";
        fleet.server.answers(&target, &ok("body", fields));
        for instance in [0, 1, 0, 1, 0, 1] {
            let got = fleet.ask(instance, &get(&target));
            assert_eq!((got.status, got.field("cache-control")), (200, Some("private")));
            assert_eq!((got.field("surrogate-control"), got.field("surrogate-key")), (None, None));
        }
        assert_eq!(fleet.server.heads(&target).len(), 1, "{target}");
    }
}

#[test]
fn the_policies_of_the_route_are_applied_once() {
    let route = "cache = {}\nrate_limit = { rate = \"1/s\", burst = 3 }\nrewrite = { path = \"/inner/\" }\n\
                 response_headers = { add = { x-edge = \"seen\" } }\nrequest_headers = { add = { x-app = \"seen\" } }\n\
                 compress = {}";
    let fleet = Fleet::with(2, route, "", |_, addresses| addresses.to_vec());
    let body = "long enough to be worth it ".repeat(100);
    let fields = "Cache-Control: max-age=60\r\nContent-Type: text/plain\r\nSurrogate-Key: tag\r\n";
    fleet.server.answers("/inner/a", &ok(&body, fields));
    let ask = |instance| {
        let mut client = fleet.client(instance);
        client.asks(&BodylessRequest { fields: "accept-encoding: gzip", ..get("/a") });
        let testkit::scene::SceneClient::One(mut peer) = client else {
            unreachable!("it is one of HTTP/1.1")
        };
        peer.message().head.to_lowercase()
    };
    for instance in [0, 1, 0, 1, 0, 1] {
        let head = ask(instance);
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert_eq!(head.matches("x-edge: seen").count(), 1, "{head}");
        assert_eq!(head.matches("content-encoding: gzip").count(), 1, "{head}");
        assert!(!head.contains("surrogate-key"), "{head}");
    }
    // Each instance's rate limit counts its own clients only.
    for instance in [0, 1] {
        assert!(ask(instance).starts_with("http/1.1 429"));
    }
    let heads = fleet.server.heads("/inner/a");
    assert_eq!(heads.len(), 1);
    assert_eq!(heads[0].to_lowercase().matches("x-app: seen").count(), 1, "{heads:?}");
}
