//! Flow control windows: wide over a long link, narrow if the receiver does not read.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use config::Protocol;
use socket2::SockRef;
use testkit::http2::H2End;
use testkit::http2::frame::{
    H2Frame, INITIAL_WINDOW_SIZE, data, headers, last_data, last_headers, window_update,
};

use super::scene::{Scene, fills, loopback};

const DELAY: Duration = Duration::from_millis(25);
/// Bytes in flight on a link of 50 ms at 100 MB/s.
const IN_FLIGHT: u32 = 5_000_000;
/// Upper limit of what a test sends: far more than the windows need to grow.
const ENOUGH: usize = 200 << 20;
const POST: &str = ":method: POST\n:scheme: http\n:authority: test\n:path: /\n";

/// A link that delays every byte in both directions, without a rate limit.
fn delayed(target: SocketAddr, listener: TcpListener) {
    thread::spawn(move || {
        for near in listener.incoming() {
            let near = near.expect("is connected");
            let far = TcpStream::connect(target).expect("the target listens");
            for (from, to) in [(&near, &far), (&far, &near)] {
                let (from, to) =
                    (from.try_clone().expect("is a socket"), to.try_clone().expect("is a socket"));
                to.set_nodelay(true).expect("is a socket");
                delay(from, to);
            }
        }
    });
}

fn delay(mut from: TcpStream, mut to: TcpStream) {
    let (enter, leave) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut bytes = vec![0; 256 * 1024];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if enter.send((Instant::now() + DELAY, bytes[..count].to_vec())).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (due, bytes) in leave {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                return;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Write);
    });
}

/// Reads everything, on another thread.
fn drain(mut stream: TcpStream) {
    thread::spawn(move || {
        let mut bytes = vec![0; 256 * 1024];
        while stream.read(&mut bytes).is_ok_and(|count| count > 0) {}
    });
}

/// Sends a body over a long link until the window is wide enough.
fn widens(end: &mut H2End, stream: u32) {
    assert_eq!(end.setting(INITIAL_WINDOW_SIZE), Some(65_536));
    let piece = vec![b'x'; 256 * 1024];
    let mut sent = 0;
    while end.setting(INITIAL_WINDOW_SIZE) < Some(IN_FLIGHT) {
        end.sends_body(stream, &piece, false);
        sent += piece.len();
        assert!(sent < ENOUGH, "the window is still {:?}", end.setting(INITIAL_WINDOW_SIZE));
    }
}

#[test]
fn an_upload_over_a_long_link_gets_a_wide_window() {
    let scene = Scene::to_http1();
    let link = TcpListener::bind(loopback()).expect("a port on loopback is free");
    let address = link.local_addr().expect("it listens");
    delayed(scene.running.addresses()[0], link);
    let mut client = H2End::client(TcpStream::connect(address).expect("it listens"), &[]);
    client.sends(headers(1, POST));
    drain(scene.accept_stream(0));
    widens(&mut client, 1);
}

#[test]
fn a_download_over_a_long_link_gets_a_wide_window() {
    let link = TcpListener::bind(loopback()).expect("a port on loopback is free");
    let address = link.local_addr().expect("it listens");
    let scene = Scene::with(Protocol::Http2, 1, |config| {
        config.upstreams[0].servers = vec![format!("http://{address}").parse().expect("is a URL")];
    });
    delayed(scene.server_address(), link);
    let mut client = scene.connect();
    client.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").expect("is connected");
    let mut server = scene.accept();
    server.whole(1);
    server.sends(headers(1, ":status: 200\n"));
    drain(client);
    widens(&mut server, 1);
}

#[test]
fn a_client_that_takes_nothing_slows_its_server() {
    const BODY_BYTES: usize = 1 << 30;
    for (name, window) in [("no window", 0), ("a small one", 65_535)] {
        let scene = Scene::to_http1();
        let mut client = scene.client_with(&[(INITIAL_WINDOW_SIZE, window)]);
        client.takes_all = false;
        client.sends(last_headers(1, &POST.replace("POST", "GET")));
        let server = scene.accept_stream(0);
        SockRef::from(&server).set_send_buffer_size(16 * 1024).expect("is a socket");
        write!(&server, "HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n").expect("is connected");
        let sent = fills(&server);
        // Most of it is in the kernel's buffers.
        assert!(sent < 8 << 20, "{name}: {sent}");
        // It continues when the window opens.
        client.takes_all = true;
        client.sends([window_update(0, 1 << 20), window_update(1, 1 << 20)].concat());
        let mut got = 0;
        while got < 2 * sent {
            match client.next_on(1) {
                H2Frame::Headers { .. } => {}
                H2Frame::Data { bytes, .. } => {
                    got += bytes.len();
                    let _ = (&server).write(&vec![b'x'; bytes.len()]);
                }
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_server_that_takes_nothing_slows_its_client() {
    let scene = Scene::to_http1();
    let mut client = scene.client().saying(headers(1, POST));
    let server = scene.accept_stream(0);
    let sent = client.sends_what_it_may(1);
    assert!(sent < 24 << 20, "{sent} bytes went somewhere");
    drain(server);
    client.sends_body(1, &vec![b'x'; 16 << 20], false);
}

#[test]
fn a_stream_that_nobody_takes_keeps_no_other_waiting() {
    // A client that reads nothing fills its stream of the connection that it shares.
    let scene = Scene::to_http2();
    let mut stalled = scene.client_with(&[(INITIAL_WINDOW_SIZE, 0)]);
    let mut servers = Vec::new();
    for at in 0..50 {
        stalled.sends(last_headers(1 + 2 * at, &POST.replace("POST", "GET")));
    }
    let mut server = scene.accept();
    for at in 0..50 {
        let stream = 1 + 2 * at;
        server.whole(stream);
        server.sends(headers(stream, ":status: 200\n"));
        servers.push(stream);
    }
    for stream in servers {
        while server.room(stream) > 0 {
            let count = server.room(stream).min(16_384);
            server.sends_body(stream, &vec![b'x'; count], false);
        }
        server.is_heard();
    }
    let mut client = scene.client().saying(last_headers(1, &POST.replace("POST", "GET")));
    server.whole(101);
    let taking = thread::spawn(move || {
        client.next_on(1);
        let mut got = 0;
        while got < 1_000_000 {
            match client.next_on(1) {
                H2Frame::Data { bytes, .. } => got += bytes.len(),
                other => panic!("{other:?}"),
            }
        }
        client
    });
    server.sends(headers(101, ":status: 200\n"));
    server.sends_body(101, &vec![b'y'; 1_000_000], false);
    taking.join().expect("no panic");
}

#[test]
fn a_client_that_does_not_read_is_still_read() {
    const WINDOW: u32 = 1 << 30;
    let scene = Scene::to_http2();
    let mut client = scene.client_with(&[(INITIAL_WINDOW_SIZE, WINDOW)]);
    client.sends([window_update(0, WINDOW), last_headers(1, &POST.replace("POST", "GET"))].concat());
    let mut server = scene.accept();
    server.whole(1);
    server.sends(headers(1, ":status: 200\n"));
    // Its windows are open, but no more data goes to it.
    let mut idle = 0;
    while idle < 5 {
        idle = if server.sends_what_it_may(1) > 0 { 0 } else { idle + 1 };
        // Further window updates would come before the answer.
        server.is_heard();
    }
    client.sends(headers(3, POST));
    server.find(|frame| matches!(frame, H2Frame::Headers { stream: 3, .. }));
}

#[test]
fn a_body_in_crumbs_waits_like_any_other() {
    // RFC 9113 §5.2: a server within its windows does nothing wrong, and others share its connection.
    let scene = Scene::to_http2();
    let mut client = scene.client_with(&[(INITIAL_WINDOW_SIZE, 0)]);
    client.sends(last_headers(1, &POST.replace("POST", "GET")));
    let mut server = scene.accept();
    server.whole(1);
    server.sends([headers(1, ":status: 200\n"), data(1, "a crumb of 20 bytes.").repeat(3000)].concat());
    server.is_heard();
    let mut other = scene.client1().saying("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    server.whole(3);
    server.sends([headers(3, ":status: 200\ncontent-length: 2\n"), last_data(3, "ok")].concat());
    assert_eq!(other.message().status(), 200);
    client.sends(window_update(1, 1 << 20));
    client.next_on(1);
    client.gets_data(1, &"a crumb of 20 bytes.".repeat(3000));
    server.sends(last_data(1, ""));
    assert_eq!(client.whole(1), "---\n\n---\n");
}

#[test]
fn a_client_whose_small_windows_follow_each_other_is_above_the_minimum_rate() {
    const WINDOW: u32 = 1000;
    const WINDOWS: u32 = 8;
    let scene = Scene::with(Protocol::Http1, 1, |config| {
        config.limits.minimum_rate_bytes_per_second = 100;
        // Longer than a busy machine delays a thread.
        config.limits.rate_window = Duration::from_secs(1);
        config.timeouts.client_header = Duration::from_millis(200);
    });
    let mut client = scene.client_with(&[(INITIAL_WINDOW_SIZE, WINDOW)]);
    client.takes_all = false;
    client.sends(last_headers(1, &POST.replace("POST", "GET")));
    let mut server = scene.accept1().after_head();
    server.sends(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", WINDOW * WINDOWS));
    server.sends([b'x'; WINDOW as usize]);
    assert!(matches!(client.next_on(1), H2Frame::Headers { .. }));
    let mut taken = 0;
    while taken < WINDOW * WINDOWS {
        if taken > 0 && taken.is_multiple_of(WINDOW) {
            server.sends([b'x'; WINDOW as usize]);
            // An incomplete head times out after a part of the rate's window.
            let mut clock = scene.client1().saying("GET / HTTP");
            assert_eq!(clock.message().status(), 408);
            client.sends(window_update(1, WINDOW));
        }
        let H2Frame::Data { bytes, .. } = client.next_on(1) else { panic!("the body is cut after {taken}") };
        taken += bytes.len() as u32;
    }
}
