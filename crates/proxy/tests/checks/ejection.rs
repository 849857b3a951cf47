//! Servers that are worse than the others are ejected, but never too many.

use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use balance::EjectionSettings;
use config::Settings;

use super::scene::{Scene, at_one_port, check, get, waits_until};

fn ejecting(settings: EjectionSettings) -> impl FnOnce(&mut Settings) {
    move |config| {
        config.upstreams[0].settings.ejection = Some(settings);
        config.upstreams[0].retry.attempts = 1;
    }
}

/// Frequent comparisons, and long ejections.
const QUICK: EjectionSettings = EjectionSettings {
    failures_in_a_row: None,
    interval: Duration::from_millis(500),
    requests_min: 3,
    failures_percent: NonZeroU32::new(20),
    // A busy machine makes any server slow for a moment.
    latency_factor: None,
    latency_floor: Duration::from_millis(100),
    base: Duration::from_secs(300),
    longest: Duration::from_secs(300),
    up_percent_min: 50,
};

#[test]
fn a_server_that_is_slower_than_the_others_is_left_out() {
    // A server that was slow by chance returns soon.
    let base = Duration::from_secs(1);
    // Long enough for the minimum number of sequential requests, to the slow server, too.
    let interval = Duration::from_secs(2);
    let settings =
        EjectionSettings { latency_factor: NonZeroU32::new(5), base, longest: base, interval, ..QUICK };
    let scene = Scene::new(4, ejecting(settings));
    scene.servers[2].delay_ms.store(200, SeqCst);
    scene.waits_for(&["1", "2", "4"]);
}

#[test]
fn a_server_that_fails_more_than_the_others_is_left_out() {
    let scene = Scene::new(4, ejecting(QUICK));
    scene.servers[3].fails.store(true, SeqCst);
    scene.waits_for(&["1", "2", "3"]);
}

#[test]
fn never_are_more_left_out_than_may_be() {
    let scene = Scene::new(4, ejecting(EjectionSettings { failures_in_a_row: NonZeroU32::new(3), ..QUICK }));
    for server in &scene.servers[1..] {
        server.fails.store(true, SeqCst);
    }
    waits_until("fewer are left out", || scene.who().len() == 2);
    for _ in 0..20 {
        let who = scene.who();
        assert!(who.len() == 2 && who[0] == "1", "{who:?} are asked: half of four, of which one is well");
    }
}

#[test]
fn an_ejection_ends_by_itself() {
    let base = Duration::from_millis(300);
    let settings = EjectionSettings { failures_in_a_row: NonZeroU32::new(3), base, longest: base, ..QUICK };
    let scene = Scene::new(2, ejecting(settings));
    scene.servers[1].fails.store(true, SeqCst);
    scene.waits_for(&["1"]);
    scene.servers[1].fails.store(false, SeqCst);
    scene.waits_for(&["1", "2"]);
}

#[test]
fn checks_that_succeed_end_an_ejection_for_failures() {
    let settings = EjectionSettings { failures_in_a_row: NonZeroU32::new(3), ..QUICK };
    let scene = Scene::new(2, |config| {
        ejecting(settings)(config);
        config.upstreams[0].check = Some(check(get()));
    });
    // It fails its requests at once, and its checks when they are due.
    scene.servers[1].is_ill.store(true, SeqCst);
    scene.servers[1].fails.store(true, SeqCst);
    scene.waits_for(&["1"]);
    scene.servers[1].fails.store(false, SeqCst);
    scene.servers[1].is_ill.store(false, SeqCst);
    scene.waits_for(&["1", "2"]);
}

#[test]
fn a_server_that_is_gone_and_back_is_asked_before_its_ejection_is_over() {
    let (port, mut listeners) = at_one_port(2);
    listeners.truncate(1);
    let first = listeners.remove(0);
    // Longer than the test waits.
    let settings = EjectionSettings { failures_in_a_row: NonZeroU32::new(3), ..QUICK };
    let scene = Scene::new(2, |config| {
        ejecting(settings)(config);
        config.upstreams[0].servers.iter_mut().for_each(|server| server.port = port);
    });
    scene.serves(0, first);
    waits_until("it is still asked", || (0..8).all(|_| scene.ask() == "1"));
    let back = TcpListener::bind(SocketAddr::from(([127, 0, 0, 2], port))).expect("the port is still ours");
    scene.serves(1, back);
    scene.waits_for(&["1", "2"]);
}
