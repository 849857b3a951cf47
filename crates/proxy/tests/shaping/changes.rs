//! Limits that are added, changed and removed while bodies are under way.

use std::io::Read;
use std::time::{Duration, Instant};

use super::scene::{Options, ask, client, in_pieces, origin, read_head};

const BODY_BYTES: usize = 100_000;

/// Without a limit, or with one that causes no wait.
fn of_route(route: &str) -> Options<'_> {
    Options { route, ..Options::default() }
}

#[test]
fn who_waits_for_a_slow_limit_goes_on_once_it_is_another_or_gone() {
    // At a byte per second the body would take a day.
    for (before, after) in [
        ("rate = \"1B/s\"", ""),
        ("rate = \"1B/s\"", "rate = \"100MB/s\""),
        ("rate = \"1B/s per request\"", "rate = \"100MB/s per request\""),
        ("rate = \"1B/s per connection\"", "rate = \"100MB/s per connection\""),
        ("rate = \"1B/s per client\"", "rate = \"100MB/s per client\""),
        ("rate = [\"1GB/s\", \"1B/s per client\"]", "rate = \"1GB/s\""),
        ("rate = \"1B/s per client\"", "rate = \"100MB/s\""),
    ] {
        let origin = origin(BODY_BYTES);
        let proxy = of_route(before).start(origin);
        let mut client = client(&proxy);
        ask(&mut client);
        let length = read_head(&mut client).expect("a head");
        let mut first = [0];
        client.read_exact(&mut first).expect("a byte");
        proxy.reload(of_route(after).config(origin)).expect("another limit");
        client
            .read_exact(&mut vec![0; length - 1])
            .unwrap_or_else(|error| panic!("{before} {after}: {error}"));
    }
}

#[test]
fn a_body_that_is_under_way_is_slowed_down_as_well() {
    for before in ["", "rate = \"1GB/s\"", "rate = \"1GB/s per connection\""] {
        let (origin, pieces) = in_pieces(BODY_BYTES);
        let proxy = of_route(before).start(origin);
        let mut client = client(&proxy);
        ask(&mut client);
        read_head(&mut client).expect("a head");
        pieces.send(BODY_BYTES - 5_000).expect("a server");
        client.read_exact(&mut vec![0; BODY_BYTES - 5_000]).expect("what is not limited yet");
        proxy.reload(of_route("rate = \"20KB/s\"").config(origin)).expect("a limit");
        let began = Instant::now();
        pieces.send(5_000).expect("a server");
        client.read_exact(&mut [0; 5_000]).expect("the rest");
        // At most 32 ms of allowance are left from before.
        assert!(began.elapsed() >= Duration::from_millis(217), "{before:?}: {:?}", began.elapsed());
    }
}
