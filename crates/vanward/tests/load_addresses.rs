//! The load generator and names with several addresses: connections take them in turn, over each version of HTTP.

use std::net::SocketAddr;

use load::{ConnectTargets, LoadPlan, Tls};
use origin::{OriginCertificate, OriginOptions, RunningOrigin};

const NAME: &str = "several.test";

/// Origins at one port of 127.0.0.1, 127.0.0.2 and 127.0.0.3.
fn origins(http3: bool) -> (u16, Vec<RunningOrigin>) {
    let origin = |last: u8, port: u16| {
        origin::start(OriginOptions {
            listen: vec![SocketAddr::from(([127, 0, 0, last], port))],
            certificate: Some(OriginCertificate::SelfSigned),
            http3,
            ..OriginOptions::default()
        })
    };
    // The port that the kernel chose for the first may be in use at another address.
    for _ in 0..20 {
        let first = origin(1, 0).expect("it starts");
        let port = first.addresses()[0].port();
        if let (Ok(second), Ok(third)) = (origin(2, port), origin(3, port)) {
            return (port, vec![first, second, third]);
        }
    }
    panic!("no port is free at three addresses");
}

fn plan(port: u16, last: &[u8]) -> LoadPlan {
    let addresses: Vec<String> = last.iter().map(|last| format!("127.0.0.{last}")).collect();
    LoadPlan {
        connections: 6,
        threads: 2,
        requests: Some(60),
        duration_seconds: None,
        tls: Tls { verify: false, ..Tls::default() },
        directions: ConnectTargets {
            resolve: vec![format!("{NAME}:{port}:{}", addresses.join(","))],
            ..ConnectTargets::default()
        },
        ..LoadPlan::new(format!("https://{NAME}:{port}/tiny"))
    }
}

#[test]
fn connections_take_the_addresses_of_a_name_in_turn() {
    for (http2, http3) in [(false, false), (true, false), (false, true)] {
        let (port, origins) = origins(http3);
        let told = load::run(&LoadPlan { http2, http3, ..plan(port, &[1, 2, 3]) }).expect("it runs");
        assert_eq!((told.requests, told.errors.total()), (60, 0), "{told:?}");
        let connections: Vec<u64> = origins.iter().map(|origin| origin.stats().connections).collect();
        assert_eq!(connections, [2, 2, 2], "HTTP/2: {http2}, HTTP/3: {http3}");
        // A new connection for each request: requests are shared alike.
        let fresh = LoadPlan { http2, http3, keepalive: false, requests: Some(30), ..plan(port, &[1, 2, 3]) };
        let told = load::run(&fresh).expect("it runs");
        assert_eq!((told.requests, told.errors.total()), (30, 0), "{told:?}");
        let requests = origins.iter().map(|origin| origin.stats().connections);
        assert!(requests.min() >= Some(10), "HTTP/2: {http2}, HTTP/3: {http3}");
    }
}

#[test]
fn an_address_that_nothing_listens_at_gets_no_requests() {
    for (http2, http3) in [(false, false), (true, false), (false, true)] {
        let (port, origins) = origins(http3);
        let told = load::run(&LoadPlan { http2, http3, ..plan(port, &[4, 2]) }).expect("it runs");
        assert_eq!((told.requests, told.errors.total()), (60, 0), "{told:?}");
        assert_eq!(origins[1].stats().connections, 6, "HTTP/2: {http2}, HTTP/3: {http3}");
    }
}

#[test]
fn resolving_again_needs_a_name() {
    let mut plan = plan(1, &[1]);
    plan.directions.resolve_every_seconds = Some(30);
    let error = load::run(&plan).expect_err("--resolve fixes the addresses").to_string();
    assert!(error.contains("--resolve-every"), "{error}");
}
