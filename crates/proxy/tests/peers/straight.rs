//! Requests that go to the server directly, and their invalidations.

use testkit::scene::{BodylessRequest, get};

use super::fleet::{Fleet, ok};

#[test]
fn what_is_for_one_client_alone_reaches_no_owner() {
    let fleet = Fleet::new(2);
    let path = fleet.foreign_path(0, 1);
    let before = fleet.served(1);
    for (method, fields) in [
        ("GET", "authorization: Basic eDp5"),
        ("GET", "cache-control: no-store"),
        ("POST", "content-length: 0"),
        ("DELETE", ""),
        ("OPTIONS", ""),
    ] {
        let target = format!("{path}&{method}");
        let got = fleet.ask(0, &BodylessRequest { method, fields, ..get(&target) });
        assert_eq!(got.status, 200, "{method} {fields}");
        assert!(!fleet.server.heads(&target).is_empty(), "{method} {fields}");
    }
    assert_eq!(fleet.served(1), before);
}

#[test]
fn what_could_not_be_stored_is_not_asked_for_there_for_a_while() {
    let fleet = Fleet::new(2);
    let path = fleet.foreign_path(0, 1);
    let before = fleet.served(1);
    let target = format!("{path}&private");
    fleet.server.answers(&target, &ok("mine", "Cache-Control: private\r\n"));
    for _ in 0..5 {
        assert_eq!(fleet.ask(0, &get(&target)).body, "mine");
    }
    assert!(fleet.served(1) - before <= 1, "only the first one");
    assert_eq!(fleet.server.heads(&target).len(), 5);
    // Once the response may be stored, it comes from the owner again.
    fleet.server.answers(&target, &ok("all's", "Cache-Control: max-age=60\r\n"));
    for _ in 0..5 {
        assert_eq!(fleet.ask(0, &get(&target)).body, "all's");
        assert_eq!(fleet.ask(1, &get(&target)).body, "all's");
    }
    assert!(fleet.server.heads(&target).len() <= 5 + 2);
}

#[test]
fn a_status_of_the_server_is_the_clients() {
    let fleet = Fleet::new(2);
    let path = fleet.foreign_path(0, 1);
    for status in
        ["404 Not Found", "500 Internal Server Error", "503 Service Unavailable", "421 Misdirected Request"]
    {
        let target = format!("{path}&{}", &status[..3]);
        fleet.server.answers(&target, &format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nno"));
        let got = fleet.ask(0, &get(&target));
        assert_eq!((got.status.to_string().as_str(), got.body.as_str()), (&status[..3], "no"));
    }
}

/// RFC 9111 §4.4: the instance with the client's request notifies the others.
#[test]
fn what_a_client_changes_is_stale_on_no_instance() {
    let fleet = Fleet::new(3);
    for number in 0..10 {
        let path = format!("/{number}");
        let moved = format!("{path}-moved");
        for target in [&path, &moved] {
            assert_eq!(fleet.ask(1, &get(target)).body, *target);
            fleet
                .server
                .answers(target, &ok("new", &format!("Cache-Control: max-age=60\r\nLocation: {moved}\r\n")));
            assert_eq!(fleet.ask(2, &get(target)).body, *target);
        }
        let got = fleet.ask(0, &BodylessRequest { method: "DELETE", ..get(&path) });
        assert_eq!(got.status, 200);
        for target in [&path, &moved] {
            for instance in 0..3 {
                assert_eq!(fleet.ask(instance, &get(target)).body, "new", "{target} by {instance}");
            }
        }
    }
}
