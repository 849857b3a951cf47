//! Hot responses, which an instance keeps although another one owns them.

use testkit::scene::{BodylessRequest, Got, get};

use super::fleet::{Fleet, ok};

fn fleet(count: usize, options: &str) -> Fleet {
    Fleet::with(count, "cache = {}", options, |_, addresses| addresses.to_vec())
}

fn is_hit_here(got: &Got) -> bool {
    got.all("cache-status").last().is_some_and(|last| last.starts_with("vanward; hit"))
}

/// Sends requests until the response is kept here.
fn heat(fleet: &Fleet, path: &str) {
    let mut answers = (0..60).map(|_| fleet.ask(0, &get(path)));
    assert!(answers.any(|got| is_hit_here(&got)), "{path} is kept after a while");
}

#[test]
fn what_is_asked_for_often_is_kept_for_a_while() {
    let fleet = fleet(2, "hot = 5");
    let path = fleet.foreign_path(0, 1);
    heat(&fleet, &path);
    let before = fleet.served(1);
    let hits = (0..10).filter(|_| is_hit_here(&fleet.ask(0, &get(&path)))).count();
    assert!(hits >= 5, "{hits} of 10");
    assert!(fleet.served(1) - before <= 5);
    let got = fleet.ask(0, &get(&path));
    assert_eq!((got.status, got.body.as_str()), (200, path.as_str()));
    assert!(got.field("age").is_some(), "{got:?}");
    assert_eq!(fleet.server.heads(&path).len(), 1);
    assert!(fleet.instance(0).counters().cache_peer_kept > 0);
}

#[test]
fn nothing_is_kept_where_that_is_off() {
    let fleet = fleet(2, "hot = 0");
    let path = fleet.foreign_path(0, 1);
    assert!(!(0..60).any(|_| is_hit_here(&fleet.ask(0, &get(&path)))));
}

#[test]
fn variants_that_are_kept_are_told_apart() {
    let fleet = fleet(2, "hot = 5");
    // Requests different keys until the other instance owns one of them.
    let kept = || fleet.instance(0).counters().cache_peer_kept;
    (0..).find(|number| {
        variants_are_told_apart(&fleet, &format!("/{number}"));
        kept() > 0
    });
    assert!(kept() > 0);
}

fn variants_are_told_apart(fleet: &Fleet, target: &str) {
    let ask = |language: &str| {
        let answer = ok(language, "Cache-Control: max-age=60\r\nVary: Accept-Language\r\n");
        fleet.server.answers(target, &answer);
        fleet.ask(0, &BodylessRequest { fields: &format!("accept-language: {language}"), ..get(target) }).body
    };
    for _ in 0..30 {
        for language in ["nl", "fr"] {
            assert_eq!(ask(language), language);
        }
    }
}

#[test]
fn what_is_purged_or_changed_is_kept_nowhere() {
    let fleet = fleet(2, "hot = 5");
    let path = fleet.foreign_path(0, 1);
    for number in 0..16 {
        let target = format!("{path}-{number}");
        let tagged = |body| ok(body, "Cache-Control: max-age=60\r\nSurrogate-Key: tag\r\n");
        fleet.server.answers(&target, &tagged("old"));
        for _ in 0..40 {
            assert_eq!(fleet.ask(0, &get(&target)).body, "old");
        }
        fleet.server.answers(&target, &tagged("new"));
        if number == 15 {
            // Each instance is purged separately, the owner first, because there is no Redis.
            for instance in [1, 0] {
                let purge = BodylessRequest { method: "PURGE", fields: "surrogate-key: tag", ..get("/any") };
                assert_eq!(fleet.ask(instance, &purge).status, 200);
            }
        } else {
            assert_eq!(fleet.ask(1, &BodylessRequest { method: "DELETE", ..get(&target) }).status, 200);
        }
        for instance in [0, 1, 0, 1] {
            assert_eq!(fleet.ask(instance, &get(&target)).body, "new", "{number}");
        }
    }
    assert!(fleet.instance(0).counters().cache_peer_kept > 0);
}

/// Only the owner knows whether the server has withdrawn a response, so a kept copy is not served stale.
#[test]
fn what_the_owner_has_withdrawn_does_not_come_back_where_it_was_kept() {
    let fleet = fleet(2, "hot = 5");
    let fields = "Cache-Control: max-age=1, stale-if-error=60\r\nAge: 2\r\nETag: \"1\"\r\n";
    for number in 0..16 {
        let target = format!("/withdrawn-{number}");
        fleet.server.answers(&target, &ok("old", fields));
        for _ in 0..20 {
            assert_eq!(fleet.ask(0, &get(&target)).body, "old");
        }
        let empty = |line: &str| format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\n\r\n");
        fleet.server.answers(&target, &empty("404 Not Found"));
        assert_eq!(fleet.ask(1, &get(&target)).status, 404);
        fleet.server.answers(&target, &empty("503 Service Unavailable"));
        for instance in [0, 1] {
            for fields in ["", "cache-control: max-stale\n"] {
                let got = fleet.ask(instance, &BodylessRequest { fields, ..get(&target) });
                assert_eq!(got.status, 503, "{number} {instance}");
            }
        }
    }
    assert!(fleet.instance(0).counters().cache_peer_kept > 0);
}

/// 1% of 64 MB has room for two of these.
#[test]
fn what_is_kept_is_bounded() {
    let fleet = fleet(2, "hot = 3\nhot_memory = \"1%\"");
    let body = "x".repeat(250_000);
    let (path, began) = (fleet.foreign_path(0, 1), std::time::Instant::now());
    for number in 0..24 {
        let target = format!("{path}-{number}");
        fleet.server.answers(&target, &ok(&body, "Cache-Control: max-age=60\r\n"));
        for _ in 0..8 {
            assert_eq!(fleet.ask(0, &get(&target)).body.len(), body.len());
        }
        assert_eq!(fleet.server.heads(&target).len(), 1);
    }
    let kept = fleet.instance(0).counters().cache_peer_kept;
    let periods = began.elapsed().as_secs() / 10 + 2;
    assert!((1..=2 * periods).contains(&kept), "{kept}: two, and two more for each ten seconds");
}

/// Requests beyond the owner's share go to another instance.
#[test]
fn an_owner_with_far_more_than_its_share_is_relieved() {
    const CLIENTS: usize = 150;
    let fleet = fleet(3, "hot = 0\ntimeout = \"30s\"");
    let path = fleet.foreign_path(0, 1) + "&crowd";
    let target = (0..).map(|number| format!("{path}{number}")).find(|target| {
        let before = fleet.served(1);
        fleet.ask(0, &BodylessRequest { fields: "cache-control: no-cache", ..get(target) });
        fleet.served(1) > before
    });
    let target = target.expect("it owns some");
    let (before, asked) = (fleet.served(1), fleet.instance(0).counters().requests);
    let held = fleet.server.holds();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| fleet.client(0)).collect();
    for client in &mut clients {
        client.asks(&BodylessRequest { fields: "cache-control: no-cache", ..get(&target) });
    }
    testkit::wait::assert_soon("all have come", || {
        fleet.instance(0).counters().requests >= asked + CLIENTS as u64
    });
    drop(held);
    for client in &mut clients {
        assert_eq!(client.gets().status, 200);
    }
    let served = fleet.served(1) - before;
    // One and a half times the share among the two others is three quarters; the rest goes to the next on the ring,
    // unless the client's instance is that.
    assert!((60..CLIENTS as u64 * 4 / 5).contains(&served), "{served} of {CLIENTS} were for the owner");
}
