//! Counters and the metrics listener across configuration changes.

use std::net::{TcpListener, TcpStream};
use testkit::scene::valid;
use testkit::wait::assert_soon;

use super::scene::{Scene, config, loopback, name, server};

#[test]
fn counters_of_what_remains_go_on() {
    let (stays, goes) = (server(), server());
    let before = config(&[("/stays", 0), ("/goes", 0)], &[("app", &[&goes, &stays])]);
    // The same indices refer to other routes and servers now.
    let mut after = config(&[("/comes", 0), ("/stays", 0)], &[("app", &[&stays])]);
    after.listeners = before.listeners.clone();
    after.metrics = before.metrics;
    let scene = Scene::with(before.clone());
    for _ in 0..4 {
        assert_eq!((scene.get("/stays"), scene.get("/goes")), (200, 200));
    }
    let requests = |route: &str| format!("vanward_requests_total{{route=\"{route}\",class=\"2xx\"}}");
    let of_server = format!(
        "vanward_upstream_requests_total{{upstream=\"app\",server=\"{}\",class=\"2xx\"}}",
        name(&stays)
    );
    scene.assert_told(&[(&requests("/stays"), 4.0), (&requests("/goes"), 4.0), (&of_server, 4.0)]);

    scene.running.reload(valid(after)).unwrap_or_else(|error| panic!("it is valid: {error}"));
    assert_eq!((scene.get("/stays"), scene.get("/comes")), (200, 200));
    scene.assert_told(&[(&requests("/stays"), 5.0), (&requests("/comes"), 1.0), (&of_server, 6.0)]);
    // The previous plan lives until its last exchange ends.
    assert_soon("the series of the removed route ends", || !scene.series().contains_key(&requests("/goes")));

    scene.running.reload(valid(before)).unwrap_or_else(|error| panic!("it is valid: {error}"));
    assert_eq!((scene.get("/stays"), scene.get("/goes")), (200, 200));
    scene.assert_told(&[(&requests("/stays"), 6.0), (&requests("/goes"), 1.0)]);
}

#[test]
fn the_listener_moves_and_ends() {
    let mut config = config(&[("/", 0)], &[("app", &[&server()])]);
    config.metrics = None;
    let scene = Scene::with(config.clone());
    let change = |config: &config::Settings| scene.running.reload(valid(config.clone()));
    assert_eq!(scene.get("/"), 200);

    config.metrics = Some(loopback());
    change(&config).unwrap_or_else(|error| panic!("a port is free: {error}"));
    let first = scene.metrics_address();
    assert_eq!(scene.get("/"), 200);
    scene.assert_told(&[("vanward_requests_total{route=\"/\",class=\"2xx\"}", 1.0)]);
    change(&config).unwrap_or_else(|error| panic!("it is the same: {error}"));
    assert_eq!(scene.metrics_address(), first);

    // An address in use leaves the listener unchanged.
    let taken = TcpListener::bind(loopback()).expect("a port on loopback is free");
    config.metrics = taken.local_addr().ok();
    let error = change(&config).expect_err("somebody else listens there").to_string();
    assert!(error.contains(&format!("cannot listen on {}", config.metrics.expect("set"))), "{error}");
    assert_eq!(scene.metrics_address(), first);
    scene.assert_told(&[("vanward_reloads_total", 2.0), ("vanward_reload_failures_total", 1.0)]);
    drop(taken);

    change(&config).unwrap_or_else(|error| panic!("the port is free now: {error}"));
    assert_eq!(Some(scene.metrics_address()), config.metrics);
    scene.assert_told(&[("vanward_requests_total{route=\"/\",class=\"2xx\"}", 1.0)]);
    config.metrics = None;
    change(&config).unwrap_or_else(|error| panic!("none is valid: {error}"));
    assert_eq!(scene.running.metrics_address(), None);
    // Its thread may not have heard of it yet.
    assert_soon("connections are still accepted", || TcpStream::connect(first).is_err());
}
