//! Checks across a configuration change: results are kept.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use config::Settings;

use super::scene::{Scene, check, get, waits_until};

/// A scene whose second server is down.
fn half_down() -> Scene {
    let scene = Scene::checked(check(get()));
    scene.servers[1].is_ill.store(true, SeqCst);
    scene.waits_for(&["1"]);
    scene
}

#[test]
fn a_server_that_is_down_stays_down() {
    let scene = half_down();
    let never = |config: &mut Settings| {
        let check = config.upstreams[0].check.as_mut().expect("it is checked");
        check.settings.interval = Duration::from_secs(3600);
        check.settings.interval_in_doubt = Duration::from_secs(3600);
    };
    scene.reload(|_| ());
    assert_eq!(scene.who(), ["1"], "after a change of nothing");
    scene.reload(|config| config.upstreams[0].servers[1].weight = 7);
    assert_eq!(scene.who(), ["1"], "after a change of a weight");
    scene.reload(never);
    assert_eq!(scene.who(), ["1"], "after a change of the check itself, which is not made yet");
    // The check continues with its previous results.
    scene.reload(|_| ());
    scene.servers[1].is_ill.store(false, SeqCst);
    scene.waits_for(&["1", "2"]);
}

#[test]
fn one_failure_of_another_check_says_no_more_than_one_of_the_check_before() {
    // Too few failures before the reload, however many there are.
    let mut first = check(get());
    first.settings.fall = 999;
    let scene = Scene::checked(first);
    let checks = |server: usize| scene.servers[server].checks.load(SeqCst);
    // The second check begins once the result of the first is known.
    waits_until("no checks", || checks(0) > 1 && checks(1) > 1);
    scene.servers[1].is_ill.store(true, SeqCst);
    scene.reload(|config| {
        let check = config.upstreams[0].check.as_mut().expect("it is checked");
        check.settings.fall = 1000;
    });
    let seen = checks(1);
    waits_until("its checks go on", || checks(1) > seen + 3);
    assert_eq!(scene.who(), ["1", "2"]);
}

#[test]
fn without_a_check_its_verdict_does_not_count() {
    let scene = half_down();
    scene.reload(|config| config.upstreams[0].check = None);
    scene.waits_for(&["1", "2"]);
}

#[test]
fn a_server_that_leaves_is_not_checked_any_more() {
    // Too few failures before the reload, however many there are.
    let mut first = check(get());
    first.settings.fall = 999;
    let scene = Scene::checked(first);
    let checks = |server: usize| scene.servers[server].checks.load(SeqCst);
    waits_until("no checks", || checks(0) > 0 && checks(1) > 0);
    scene.reload(|config| config.upstreams[0].servers.truncate(1));
    let first = checks(0);
    waits_until("its checks go on", || checks(0) > first + 2);
    let (first, second) = (checks(0), checks(1));
    waits_until("its checks go on", || checks(0) > first + 5);
    assert_eq!(checks(1), second);
}
