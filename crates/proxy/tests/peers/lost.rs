//! Instances that are down, silent or slow, or that disagree.

use std::time::Duration;

use testkit::ports;
use testkit::scene::get;
use testkit::wait::assert_soon;

use super::fleet::Fleet;

#[test]
fn a_lost_owner_costs_hits_and_nothing_else() {
    let mut fleet = Fleet::new(3);
    let path = fleet.foreign_path(0, 1);
    fleet.end(1);
    for round in 0..20 {
        for instance in [0, 2] {
            let got = fleet.ask(instance, &get(&path));
            assert_eq!((got.status, got.body.as_str()), (200, path.as_str()), "round {round}");
        }
    }
    // After a few failures another instance owns its share, for both.
    let before = fleet.server.heads(&path).len();
    for instance in [0, 2, 0, 2] {
        fleet.ask(instance, &get(&path));
    }
    assert_eq!(fleet.server.heads(&path).len(), before, "one of them has it now");
}

/// The silent owner accepts connections, like a stopped process.
#[test]
fn a_silent_owner_is_waited_for_no_longer_than_the_timeout() {
    let silent = ports::listen();
    let silent_address = silent.local_addr().expect("it listens");
    let fleet = Fleet::with(1, "cache = {}", "timeout = \"100ms\"", |_, addresses| {
        vec![addresses[0], silent_address]
    });
    for number in 0..40 {
        let path = format!("/{number}");
        let got = fleet.ask(0, &get(&path));
        assert_eq!((got.status, got.body.as_str()), (200, path.as_str()));
    }
    let counters = fleet.instance(0).counters();
    assert!(counters.cache_peer_failures > 0);
    assert!(counters.cache_peer_failures < 20, "it has lost its share: {}", counters.cache_peer_failures);
}

/// Each instance takes another one for the owner of everything.
#[test]
fn instances_that_disagree_make_one_hop_at_most() {
    let fleet = Fleet::with(3, "cache = {}", "", |number, addresses| match number {
        0 => vec![addresses[0], addresses[1]],
        1 => vec![addresses[1], addresses[2]],
        _ => vec![addresses[2], addresses[0]],
    });
    for number in 0..40 {
        for instance in 0..3 {
            let path = format!("/{number}");
            let got = fleet.ask(instance, &get(&path));
            assert_eq!((got.status, got.body.as_str()), (200, path.as_str()));
        }
    }
    let counters: Vec<_> = (0..3).map(|number| fleet.instance(number).counters()).collect();
    let requested: u64 = counters.iter().map(|counters| counters.cache_peer_requests).sum();
    let served: u64 = counters.iter().map(|counters| counters.cache_peer_served).sum();
    assert_eq!(requested, served);
    assert!((20..=120).contains(&served), "{served} of 120 were asked for elsewhere");
}

/// A slow server does not make the owner look dead: the owner announces that it waits.
#[test]
fn an_owner_that_waits_for_the_server_is_waited_for() {
    let fleet = Fleet::with(2, "cache = {}", "timeout = \"500ms\"", |_, addresses| addresses.to_vec());
    let path = fleet.foreign_path(0, 1) + "&slow";
    let held = fleet.server.holds();
    let mut client = fleet.client(0);
    let before = fleet.server.count();
    client.asks(&get(&path));
    assert_soon("the server is asked", || fleet.server.count() > before);
    // Much longer than an owner may be silent.
    std::thread::sleep(Duration::from_millis(1500));
    drop(held);
    assert_eq!(client.gets().body, path);
    assert_eq!(fleet.instance(0).counters().cache_peer_failures, 0);
    assert_eq!(fleet.server.heads(&path).len(), 1);
}
