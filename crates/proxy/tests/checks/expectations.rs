//! The requirements of a check on an answer: status, fields, beginning of the body.

use std::sync::atomic::Ordering::SeqCst;

use config::{BodyRule, Probe, Statuses};
use route::ValueRule;

use super::scene::{QUICK, Scene, check, waits_until};

#[test]
fn fields_and_body_decide_as_well() {
    let exact = |value: &str| vec![("x-who".to_owned(), ValueRule::Exact(value.to_owned()))];
    for (headers, body, expected) in [
        (vec![], None, &["1", "2"][..]),
        (exact("2"), None, &["2"]),
        (exact("1"), None, &["1"]),
        (vec![], Some(BodyRule::Contains("2".to_owned())), &["2"]),
        (exact("1"), Some(BodyRule::Contains("1".to_owned())), &["1"]),
    ] {
        let probe = Probe::Http {
            path: "/health".to_owned(),
            host: Some("checked.test".to_owned()),
            status: Statuses::successful(),
            headers,
            body,
        };
        let scene = Scene::checked(check(probe));
        let has_decided = |checks: usize| checks > QUICK.fall as usize + 1;
        waits_until("no checks", || {
            scene.servers.iter().all(|server| has_decided(server.checks.load(SeqCst)))
        });
        scene.waits_for(expected);
        let asked = scene.servers[0].asked.lock().expect("no panic");
        assert!(asked.contains("\r\nHost: checked.test\r\n"), "{asked}");
    }
}

#[test]
fn where_all_are_down_all_are_asked() {
    let scene = Scene::checked(check(super::scene::get()));
    scene.servers.iter().for_each(|server| server.is_ill.store(true, SeqCst));
    let seen = || scene.servers.iter().map(|server| server.checks.load(SeqCst)).min();
    let before = seen();
    waits_until("no checks", || seen() > before.map(|checks| checks + 1 + QUICK.fall as usize));
    assert_eq!(scene.who(), ["1", "2"]);
}
