//! Each row of the table of retries, with one server and with two, for clients and servers of either version.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use balance::RetrySettings;
use config::{Protocol, RetryOn, Statuses, Upstream};
use socket2::SockRef;

use super::scene::Scene;

/// A server's reaction to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Answers,
    Refuses,
    Resets,
    /// Resets the stream; over HTTP/1, closes the connection.
    Ends,
    Waits,
}
use Deed::{Answers, Ends, Refuses, Resets, Waits};
use testkit::http2::frame::{INTERNAL_ERROR, headers, last_data, last_headers, raw, reset, settings};

/// The configuration, the reactions of the servers in order, and the client's status.
struct Row {
    name: &'static str,
    change: fn(&mut Upstream),
    method: &'static str,
    deeds: &'static [Deed],
    status: u16,
    /// Number of attempts with one server and with two.
    attempts: [usize; 2],
}

const ROWS: &[Row] = &[
    Row {
        name: "reset",
        change: |_| (),
        method: "GET",
        deeds: &[Resets, Answers],
        status: 200,
        attempts: [2, 2],
    },
    Row {
        name: "end",
        change: |_| (),
        method: "GET",
        deeds: &[Ends, Answers],
        status: 200,
        attempts: [2, 2],
    },
    Row {
        name: "an empty PUT",
        change: |_| (),
        method: "PUT",
        deeds: &[Resets, Answers],
        status: 200,
        attempts: [2, 2],
    },
    Row {
        name: "not on reset",
        change: |upstream| upstream.retry.on = RetryOn { connect: true, ..RetryOn::none() },
        method: "GET",
        deeds: &[Resets, Answers],
        status: 502,
        attempts: [1, 1],
    },
    Row {
        name: "timeout",
        change: |upstream| upstream.retry.on = RetryOn { timeout: true, ..RetryOn::none() },
        method: "GET",
        deeds: &[Waits, Answers],
        status: 200,
        attempts: [2, 2],
    },
    Row {
        name: "not on timeout",
        change: |_| (),
        method: "GET",
        deeds: &[Waits, Answers],
        status: 504,
        attempts: [1, 1],
    },
    Row {
        name: "status",
        change: |upstream| {
            upstream.retry.on = RetryOn { status: Statuses::from_statuses([503]), ..RetryOn::none() }
        },
        method: "GET",
        deeds: &[Refuses, Answers],
        // The status is passed on if no other server has room.
        status: 0,
        attempts: [1, 2],
    },
    Row {
        name: "not on status",
        change: |_| (),
        method: "GET",
        deeds: &[Refuses, Answers],
        status: 503,
        attempts: [1, 1],
    },
    Row {
        name: "attempts",
        change: |_| (),
        method: "GET",
        deeds: &[Resets; 9],
        status: 502,
        attempts: [3, 3],
    },
    Row {
        name: "attempts = 2",
        change: |upstream| upstream.retry.attempts = 2,
        method: "GET",
        deeds: &[Ends; 9],
        status: 502,
        attempts: [2, 2],
    },
    Row {
        name: "attempts = 1",
        change: |upstream| upstream.retry.attempts = 1,
        method: "GET",
        deeds: &[Resets, Answers],
        status: 502,
        attempts: [1, 1],
    },
    Row {
        name: "within",
        change: |upstream| {
            upstream.retry.on = RetryOn { timeout: true, ..RetryOn::none() };
            upstream.retry.within = Duration::from_millis(1);
        },
        method: "GET",
        deeds: &[Waits, Answers],
        status: 504,
        attempts: [1, 1],
    },
    Row {
        name: "POST",
        change: |_| (),
        method: "POST",
        deeds: &[Resets, Answers],
        status: 502,
        attempts: [1, 1],
    },
    Row {
        name: "non_idempotent",
        change: |upstream| upstream.retry.non_idempotent = true,
        method: "POST",
        deeds: &[Resets, Answers],
        status: 200,
        attempts: [2, 2],
    },
    Row {
        name: "no budget",
        change: |upstream| upstream.retry_budget = RetrySettings { percent: 0, per_second_min: 0 },
        method: "GET",
        deeds: &[Resets, Answers],
        status: 502,
        attempts: [1, 1],
    },
    Row {
        name: "budget",
        change: |upstream| upstream.retry_budget = RetrySettings { percent: 100, per_second_min: 0 },
        method: "GET",
        deeds: &[Resets; 9],
        status: 502,
        attempts: [2, 2],
    },
    Row {
        name: "per_second_min",
        change: |upstream| upstream.retry_budget = RetrySettings { percent: 0, per_second_min: 1 },
        method: "GET",
        deeds: &[Resets; 9],
        status: 502,
        attempts: [2, 2],
    },
];

#[test]
fn each_row_of_the_table_of_retries_holds() {
    for row in ROWS {
        for count in [1, 2] {
            for protocol in [Protocol::Http1, Protocol::Http2] {
                for is_client_http2 in [false, true] {
                    check(row, count, protocol, is_client_http2);
                }
            }
        }
    }
}

fn check(row: &Row, count: usize, protocol: Protocol, is_client_http2: bool) {
    let name = format!(
        "{} with {count} of {protocol:?}, client of HTTP/{}",
        row.name,
        1 + u8::from(is_client_http2)
    );
    let scene = Scene::with(protocol, count, |config| {
        config.timeouts.upstream_first_byte = Duration::from_millis(200);
        (row.change)(&mut config.upstreams[0]);
    });
    let status = match (row.status, count) {
        (0, 1) => 503,
        (0, _) => 200,
        (status, _) => status,
    };
    let asked = Mutex::new(Vec::new());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for server in 0..count {
            let (scene, asked, is_over) = (&scene, &asked, &is_over);
            scope.spawn(move || {
                loop {
                    let stream = scene.accept_stream(server);
                    if is_over.load(Ordering::SeqCst) {
                        return;
                    }
                    let deed = move || {
                        let mut asked = asked.lock().expect("nobody panics with it");
                        asked.push(server);
                        row.deeds[asked.len() - 1]
                    };
                    scope.spawn(move || match protocol {
                        Protocol::Http1 => serve_http1(stream, deed),
                        Protocol::Http2 => serve_http2(stream, deed),
                        Protocol::Http3 | Protocol::Fastcgi => unreachable!("no row asks for it"),
                    });
                }
            });
        }
        let got = ask(&scene, row.method, is_client_http2);
        let asked = asked.lock().expect("nobody panics with it").clone();
        is_over.store(true, Ordering::SeqCst);
        (0..count).for_each(|server| drop(TcpStream::connect(scene.server_address_of(server))));
        scene.running.stop();
        assert_eq!(got, status, "{name}");
        assert_eq!(asked.len(), row.attempts[count - 1], "{name}: {asked:?}");
        // Another server, if there is one.
        assert!(count == 1 || asked.windows(2).all(|pair| pair[0] != pair[1]), "{name}: {asked:?}");
        let retries = scene.running.counters().upstream_retries;
        assert_eq!(retries, asked.len() as u64 - 1, "{name}");
    });
}

#[test]
fn a_server_that_nobody_listens_at_is_connected_to_again_or_another_is() {
    for (count, attempts, failures, status) in
        [(1, 3, 3, 502), (1, 1, 1, 502), (2, 3, 1, 200), (2, 1, 1, 502)]
    {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            for is_client_http2 in [false, true] {
                let name =
                    format!("{count} of {protocol:?}, {attempts} attempts, to HTTP/2: {is_client_http2}");
                let scene = Scene::with(protocol, count, |config| {
                    // No program listens there; this server is asked first.
                    config.upstreams[0].servers[0].port = 1;
                    config.upstreams[0].servers[0].weight = 1000;
                    config.upstreams[0].retry.attempts = attempts;
                });
                thread::scope(|scope| {
                    if status == 200 {
                        scope.spawn(|| {
                            let stream = scene.accept_stream(count - 1);
                            match protocol {
                                Protocol::Http1 => serve_http1(stream, || Answers),
                                Protocol::Http2 => serve_http2(stream, || Answers),
                                Protocol::Http3 | Protocol::Fastcgi => unreachable!("no row asks for it"),
                            }
                        });
                    }
                    // A request that no server saw may be retried.
                    let got = ask(&scene, "POST", is_client_http2);
                    scene.running.stop();
                    assert_eq!(got, status, "{name}");
                    assert_eq!(scene.running.counters().upstream_connect_failures, failures, "{name}");
                });
            }
        }
    }
}

/// Sends a request. Returns the status.
fn ask(scene: &Scene, method: &str, is_http2: bool) -> u16 {
    if !is_http2 {
        let mut client = scene.client1();
        client.sends(format!("{method} / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n"));
        return client.message().status();
    }
    let mut client = scene.client();
    client.sends(last_headers(1, &format!(":method: {method}\n:scheme: http\n:authority: test\n:path: /\n")));
    let whole = client.whole(1);
    let status = whole.strip_prefix(":status: ").and_then(|rest| rest.get(..3)).map(str::parse);
    status.and_then(Result::ok).unwrap_or_else(|| panic!("no response: {whole}"))
}

fn resets(stream: &TcpStream) {
    SockRef::from(stream).set_linger(Some(Duration::ZERO)).expect("is a socket");
}

/// Serves an HTTP/1 connection until its end.
fn serve_http1(mut stream: TcpStream, deed: impl Fn() -> Deed) {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        bytes.extend_from_slice(&piece[..count]);
        if !bytes.ends_with(b"\r\n\r\n") {
            continue;
        }
        bytes.clear();
        let answer = match deed() {
            Answers => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            Refuses => "HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno",
            Waits => continue,
            Resets => return resets(&stream),
            Ends => return,
        };
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Serves an HTTP/2 connection until its end.
fn serve_http2(mut stream: TcpStream, deed: impl Fn() -> Deed) {
    let mut preface = [0; 24];
    if stream.read_exact(&mut preface).is_err() || stream.write_all(&settings(&[])).is_err() {
        return;
    }
    let mut head = [0; 9];
    while stream.read_exact(&mut head).is_ok() {
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        if stream.read_exact(&mut payload).is_err() {
            return;
        }
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let answer = |status: &str, body: &str| [headers(id, status), last_data(id, body)].concat();
        let said = match (head[3], head[4] & 1) {
            (4, 0) => raw(4, 1, 0, b""),
            // A request. It ends with its head here.
            (1, _) => match deed() {
                Answers => answer(":status: 200\n", "ok"),
                Refuses => answer(":status: 503\n", "no"),
                Waits => continue,
                Resets => return resets(&stream),
                Ends => reset(id, INTERNAL_ERROR),
            },
            _ => continue,
        };
        if stream.write_all(&said).is_err() {
            return;
        }
    }
}
