//! Bandwidth limits: global, per client, per connection and per message, in each place of the configuration.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use super::scene::{Options, ask, client, echo, origin, proxy, read_head, read_response};

#[test]
fn one_response_takes_as_long_as_its_bytes_do() {
    let proxy = proxy("rate = \"20KB/s\"", origin(5_000));
    let mut client = client(&proxy);
    for _ in 0..2 {
        let began = Instant::now();
        ask(&mut client);
        let length = read_head(&mut client).expect("a head");
        client.read_exact(&mut vec![0; length]).expect("a body");
        // A late timer of the first leaves the second at most 32 ms of allowance.
        assert!(began.elapsed() >= Duration::from_millis(217), "{:?}", began.elapsed());
    }
}

#[test]
fn responses_share_a_total_over_all_workers() {
    const CLIENTS: usize = 20;
    let proxy = proxy("rate = \"40KB/s\"", origin(2_000));
    let began = Instant::now();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| client(&proxy)).collect();
    clients.iter_mut().for_each(ask);
    clients.iter_mut().for_each(|client| assert_eq!(read_response(client), 2_000));
    assert!(began.elapsed() >= Duration::from_millis(990), "{:?}", began.elapsed());
}

#[test]
fn uploads_are_slowed_down_as_well() {
    let proxy = proxy("upload_rate = \"20KB/s\"", origin(0));
    let mut client = client(&proxy);
    let began = Instant::now();
    client.write_all(b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5000\r\n\r\n").expect("a head");
    client.write_all(&[b'x'; 5_000]).expect("a body");
    read_head(&mut client).expect("an answer");
    assert!(began.elapsed() >= Duration::from_millis(248), "{:?}", began.elapsed());
}

#[test]
fn what_is_not_limited_is_not_slowed_down_by_what_is() {
    let large = 3_000_000;
    let proxy = proxy("rate = \"1GB/s\"", origin(large));
    let mut client = client(&proxy);
    ask(&mut client);
    let length = read_head(&mut client).expect("a head");
    let mut body = vec![0; length];
    client.read_exact(&mut body).expect("a body");
    assert!(length == large && body.iter().all(|&byte| byte == b'x'), "whole, in large pieces");
}

/// Minimum time of 5000 bytes at 20 kB/s: a link makes up for at most a millisecond.
const LEAST: Duration = Duration::from_millis(248);

#[test]
fn limits_hold_wherever_they_are() {
    let slow = "rate = \"20KB/s\"";
    let nested = "rate = [\"1MB/s\", \"20KB/s per request\"]";
    for (listen, route, upstream) in [
        (slow, "", ""),
        ("", slow, ""),
        ("", "", slow),
        ("rate = \"20KB/s per client\"", "", ""),
        ("", "rate = \"20KB/s per client/24\"", ""),
        ("", "", "rate = \"20KB/s per connection\""),
        ("rate = \"1MB/s\"", nested, "rate = \"1MB/s burst 1MB\""),
    ] {
        let options = Options { listen, route, upstream };
        let proxy = options.start(origin(5_000));
        let mut client = client(&proxy);
        let began = Instant::now();
        ask(&mut client);
        assert_eq!(read_response(&mut client), 5_000);
        assert!(began.elapsed() >= LEAST, "{options:?}: {:?}", began.elapsed());
    }
}

#[test]
fn who_has_a_limit_together() {
    for (scope, is_together) in
        [("", true), (" per client", true), (" per connection", false), (" per request", false)]
    {
        let proxy = proxy(&format!("rate = \"20KB/s{scope}\""), origin(5_000));
        let mut clients = [client(&proxy), client(&proxy)];
        let began = Instant::now();
        clients.iter_mut().for_each(ask);
        clients.iter_mut().for_each(|client| assert_eq!(read_response(client), 5_000));
        let least = if is_together { 2 * LEAST } else { LEAST };
        assert!(began.elapsed() >= least, "{scope:?}: {:?}", began.elapsed());
    }
}

#[test]
fn a_burst_is_sent_at_once_and_is_no_request_s_own() {
    for scope in ["", " per client", " per connection"] {
        // Without its burst a body would take hours.
        let proxy = proxy(&format!("rate = \"1B/s burst 10KB{scope}\""), origin(5_000));
        let mut client = client(&proxy);
        for _ in 0..2 {
            ask(&mut client);
            assert_eq!(read_response(&mut client), 5_000);
        }
        ask(&mut client);
        read_head(&mut client).expect("a head");
        client.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
        let rest = client.read(&mut [0; 5_000]).unwrap_or(0);
        assert!(rest < 100, "{scope:?}: the burst is used up, and {rest} bytes came");
    }
}

#[test]
fn what_is_passed_on_is_limited_both_ways() {
    for (listen, upstream) in [
        ("tcp = \"app\"\nrate = \"20KB/s\"", ""),
        ("tcp = \"app\"\nupload_rate = \"20KB/s per connection\"", ""),
        ("tcp = \"app\"", "upload_rate = \"20KB/s\""),
    ] {
        let options = Options { listen, upstream, ..Options::default() };
        let proxy = options.start(echo());
        let mut client = client(&proxy);
        let began = Instant::now();
        client.write_all(&[b'x'; 5_000]).expect("the proxy takes it");
        client.read_exact(&mut [0; 5_000]).expect("it comes back");
        assert!(began.elapsed() >= LEAST, "{options:?}: {:?}", began.elapsed());
    }
}
