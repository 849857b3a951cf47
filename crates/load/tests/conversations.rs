//! Conversations with servers that comply with HTTP/1.1, or do not: counts and error classes.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::scripted::{OK, Peer, answering, plan, server};
use load::{
    Arrival, Breakdown, Check, ChecksMissed, Error, ErrorClass, Errors, Listed, LoadPlan, MissedBy,
    Responses, RunOutcome, RunProblem,
};

fn run(plan: &LoadPlan) -> RunOutcome {
    load::run(plan).expect("the run starts")
}

#[test]
fn whole_responses_are_counted_over_all_threads() {
    let told = run(&LoadPlan { connections: 5, threads: 2, ..plan(answering(OK), 101) });
    assert_eq!((told.requests, told.errors, told.unfinished), (101, Errors::default(), 0));
    assert_eq!(told.statuses, BTreeMap::from([(200, 101)]));
    assert_eq!((told.body_bytes, told.bytes_received), (505, 101 * OK.len() as u64));
    assert_eq!((told.latency.count, told.service.count, told.first_byte.count), (101, 101, 101));
    assert!(told.latency.max_us > 0 && told.measured_seconds > 0.0 && told.requests_per_second > 0.0);
    assert!(told.cpu.total_seconds > 0.0 && told.is_valid() && !told.interrupted);
    let text = serde_json::to_string(&told).expect("serialises");
    assert_eq!(serde_json::from_str::<RunOutcome>(&text).expect("parses"), told);
}

#[test]
fn responses_in_any_framing_and_in_pieces_are_successes() {
    let responses: [&[u8]; 5] = [
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
        b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 5\r\n\r\nhello",
    ];
    for response in responses {
        let address = server(move |mut peer, _| {
            while peer.request().is_some() {
                response.iter().for_each(|byte| peer.send(&[*byte]));
                if !response.starts_with(b"HTTP/1.1") || response.windows(5).any(|window| window == b"close")
                {
                    return peer.finish();
                }
            }
        });
        let told = run(&plan(address, 3));
        let shown = String::from_utf8_lossy(response);
        assert_eq!((told.requests, told.errors, told.body_bytes), (3, Errors::default(), 15), "{shown}");
    }
}

#[test]
fn failures_are_counted_by_class_and_never_as_successes() {
    type Script = fn(Peer);
    fn say(mut peer: Peer, bytes: &[u8]) {
        peer.request();
        peer.send(bytes);
        peer.finish();
    }
    let cases: [(&str, ErrorClass, Script); 10] = [
        ("closes without a response", ErrorClass::Read, |peer| say(peer, b"")),
        ("closes within the head", ErrorClass::Read, |peer| say(peer, b"HTTP/1.1 200 OK\r\nContent-")),
        ("is shorter than it says", ErrorClass::Read, |peer| say(peer, &OK[..OK.len() - 1])),
        ("cuts its chunks", ErrorClass::Read, |peer| {
            say(peer, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
        }),
        ("resets", ErrorClass::Read, |mut peer| {
            peer.request();
            peer.reset();
        }),
        ("stalls", ErrorClass::Timeout, |mut peer| peer.stall()),
        ("stalls within the body", ErrorClass::Timeout, |mut peer| {
            peer.request();
            peer.send(&OK[..OK.len() - 1]);
            peer.stall();
        }),
        ("is longer than it says", ErrorClass::Malformed, |peer| say(peer, &[OK, b"!"].concat())),
        ("is not HTTP", ErrorClass::Malformed, |peer| say(peer, b"220 mail.example ready\r\n")),
        ("is unavailable", ErrorClass::Status, |peer| {
            say(peer, b"HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }),
    ];
    for (name, class, script) in cases {
        let address = server(move |peer, _| script(peer));
        let told = run(&LoadPlan { timeout_seconds: 0.1, ..plan(address, 3) });
        assert_eq!(
            told.error_examples.keys().collect::<Vec<_>>(),
            [&class],
            "{name}: {:?}",
            told.error_examples
        );
        // Timeouts are among the times, as lower limits.
        let timed = told.latency.count - told.errors.timeout;
        assert_eq!(
            (told.requests, told.errors.total(), timed, told.latency.censored),
            (0, 3, 0, told.errors.timeout),
            "{name}: {:?}",
            told.errors
        );
    }
}

#[test]
fn a_server_that_recovers_is_used_again() {
    let address = server(|mut peer, number| {
        if number % 2 == 0 {
            peer.request();
            return peer.reset();
        }
        peer.request();
        peer.send(OK);
        peer.request();
    });
    let told = run(&plan(address, 6));
    assert!(told.requests >= 2 && told.errors.read >= 2, "{told:?}");
    assert_eq!(told.requests + told.errors.total(), 6);
}

#[test]
fn a_server_that_nobody_reaches_is_not_measured() {
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let error =
        load::run(&LoadPlan { connections: 4, threads: 2, ..plan(closed, 100) }).expect_err("nobody listens");
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(&closed.to_string()), "{error}");
}

#[test]
fn a_server_that_dies_costs_one_request_a_connect() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().expect("a connection");
        drop(listener);
        let mut buffer = [0; 1024];
        assert!(stream.read(&mut buffer).expect("a request") > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").expect("sent");
    });
    let told = run(&plan(address, 6));
    assert_eq!(
        (told.requests, told.errors.connect, told.errors.total()),
        (1, 5, 5),
        "{:?}",
        told.error_examples
    );
}

#[test]
fn an_answer_before_the_end_of_the_request_counts_and_the_connection_is_left() {
    let body = vec![b'x'; 8 << 20];
    let address = server(|mut peer, _| {
        peer.head();
        // Announced, because a machine that sends the whole body first may use the connection again.
        peer.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
        peer.finish();
    });
    let told = run(&LoadPlan { method: "POST".into(), body, ..plan(address, 2) });
    assert_eq!((told.requests, told.errors), (2, Errors::default()), "{:?}", told.error_examples);
}

#[test]
fn requests_arrive_as_they_were_asked_for() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&seen);
    let address = server(move |mut peer, number| {
        while let Some(request) = peer.request() {
            record.lock().expect("no panic").push((number, request));
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
        }
    });
    let told = run(&LoadPlan {
        method: "HEAD".into(),
        headers: vec!["X-Test: 1".into()],
        keepalive: false,
        urls: vec![format!("http://{address}/a"), format!("http://{address}/b?c")],
        ..plan(address, 3)
    });
    assert_eq!((told.requests, told.errors), (3, Errors::default()));
    assert_eq!((told.connections_opened, told.connect.count), (3, 3), "a connection each");
    let text = |number, target: &str| {
        let request =
            format!("HEAD {target} HTTP/1.1\r\nHost: {address}\r\nX-Test: 1\r\nConnection: close\r\n\r\n");
        (number, request)
    };
    assert_eq!(*seen.lock().expect("no panic"), [text(0, "/a"), text(1, "/b?c"), text(2, "/a")]);
}

#[test]
fn a_list_may_lead_to_several_servers() {
    let (one, other) = (answering(OK), answering(b"HTTP/1.1 204 No Content\r\n\r\n"));
    let urls = vec![format!("http://{one}/"), format!("http://{other}/"), format!("http://{other}/again")];
    let told = run(&LoadPlan { urls, ..plan(one, 9) });
    assert_eq!(told.statuses, BTreeMap::from([(200, 3), (204, 6)]));
    // Two requests in a row to the same server share a connection.
    assert_eq!((told.errors, told.connections_opened), (Errors::default(), 6));
}

#[test]
fn a_stall_counts_for_every_request_that_was_due_in_it() {
    let stall = Duration::from_millis(300);
    let address = server(move |mut peer, _| {
        let mut stall = Some(stall);
        while peer.request().is_some() {
            stall.take().into_iter().for_each(thread::sleep);
            peer.send(OK);
        }
    });
    let arrival = Arrival::Constant { requests_per_second: 100.0 };
    let told = run(&LoadPlan { arrival, ..plan(address, 30) });
    let kept = told.schedule.as_ref().expect("a schedule");
    assert_eq!((told.requests, kept.due, kept.unsent), (30, 30, 0), "{told:?}");
    let slow = |distribution: &load::Distribution| {
        let histogram = distribution.histogram().expect("decodes");
        histogram.count_between(100_000, u64::MAX >> 1)
    };
    // 20 of them fell due in the first 200 ms of the stall.
    assert!(slow(&told.latency) >= 20, "{:?}", told.latency);
    assert!(kept.waited_for_connection >= 20 && kept.lateness.max_us >= 200_000, "{kept:?}");
    assert!(slow(&kept.own_lateness) < 20, "the stall is not the generator's fault: {kept:?}");
    assert!(told.service.count == 30 && told.service.max_us >= 299_000);
}

#[test]
fn a_rate_above_what_the_server_can_do_makes_the_run_invalid() {
    let address = server(|mut peer, _| {
        while peer.request().is_some() {
            thread::sleep(Duration::from_millis(20));
            peer.send(OK);
        }
    });
    let arrival = Arrival::Poisson { requests_per_second: 1_000.0, seed: 1 };
    let told = run(&LoadPlan {
        arrival,
        duration_seconds: Some(0.5),
        timeout_seconds: 0.3,
        requests: None,
        ..plan(address, 1)
    });
    let missed = told.problems.iter().find(|problem| matches!(problem, RunProblem::RateMissed { .. }));
    let Some(RunProblem::RateMissed { due, unsent, by, .. }) = missed else { panic!("{:?}", told.problems) };
    assert_eq!(*by, MissedBy::Server, "{:?}", told.schedule);
    assert!(*unsent > 0 && unsent < due && told.requests < *due, "{:?}", told.schedule);
    assert!(!told.is_valid() && load::report(&told).contains("INVALID"));
}

#[test]
fn a_rate_is_missed_by_a_server_that_answers_none_or_whose_connections_fail() {
    // The server stalls: few requests were sent, so few had waited.
    let stalls = server(|mut peer, number| {
        peer.request();
        if number > 0 {
            peer.stall();
        } else {
            peer.send(OK);
        }
        peer.stall();
    });
    let resets = server(|mut peer, number| {
        peer.request();
        if number == 0 {
            peer.send(OK);
        }
        peer.reset();
    });
    for (address, expected) in [(stalls, MissedBy::Server), (resets, MissedBy::Errors)] {
        let arrival = Arrival::Constant { requests_per_second: 1_000.0 };
        let ended = LoadPlan {
            arrival,
            duration_seconds: Some(0.5),
            requests: None,
            connections: 2,
            ..plan(address, 1)
        };
        let told = run(&ended);
        let missed = told.problems.iter().find_map(|problem| match problem {
            RunProblem::RateMissed { by, .. } => Some(*by),
            RunProblem::GeneratorLate { .. } | RunProblem::AgentLost { .. } | RunProblem::Hung { .. } => None,
        });
        // On a busy machine the generator rightly blames itself as well.
        let expected = if was_short_of_time(&told) { missed.unwrap_or(expected) } else { expected };
        assert_eq!(missed, Some(expected), "{:?} {:?}", told.problems, told.errors);
        // A hanging request does not extend the run until its timeout: it is active at the end.
        assert!(address == resets || told.unfinished > 0 && told.errors == Errors::default(), "{told:?}");
    }
}

/// Whether the generator got too little CPU time to find the cause of the missed rate.
fn was_short_of_time(told: &load::RunOutcome) -> bool {
    let is_late = told.problems.iter().any(|problem| matches!(problem, RunProblem::GeneratorLate { .. }));
    let busy_seconds = told.cpu.total_seconds + told.cpu.waited_seconds;
    let schedule = told.schedule.as_ref().expect("it has a rate");
    is_late
        || busy_seconds > 0.9 * told.measured_seconds
        || schedule.own_lateness.max_us * 2 > schedule.lateness.max_us
}

#[test]
fn a_server_that_is_gone_ends_a_run_of_a_number_which_says_so() {
    // After ten answers the server stops listening, hangs, or closes every connection.
    let hangs = server(|mut peer, _| {
        static ANSWERED: AtomicUsize = AtomicUsize::new(0);
        while peer.request().is_some() {
            if ANSWERED.fetch_add(1, Ordering::Relaxed) < 10 {
                peer.send(OK);
            }
        }
    });
    let closes = server(|mut peer, _| {
        static ANSWERED: AtomicUsize = AtomicUsize::new(0);
        while peer.request().is_some() && ANSWERED.fetch_add(1, Ordering::Relaxed) < 10 {
            peer.send(OK);
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let leaves = listener.local_addr().expect("an address");
    thread::spawn(move || {
        use std::io::{Read, Write};
        for mut stream in listener.incoming().flatten().take(10) {
            assert!(stream.read(&mut [0; 1024]).expect("a request") > 0);
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                .expect("sent");
        }
    });
    let runs = [(hangs, 2, 0.2, 4), (closes, 1, 10.0, 4), (leaves, 1, 10.0, 1)].map(
        |(address, threads, timeout_seconds, connections)| {
            let plan = LoadPlan { connections, threads, timeout_seconds, ..plan(address, 1_000_000) };
            thread::spawn(move || run(&plan))
        },
    );
    for (started, example) in runs.into_iter().zip(["no whole response", "connection", "cannot connect"]) {
        let told = started.join().expect("it ends");
        let gone = told.server_gone.as_ref().expect(example);
        assert!(gone.contains(example) && gone.contains("after 10 responses"), "{gone}");
        assert!(!told.interrupted && told.requests == 10, "{told:?}");
        assert!(
            load::report(&told).contains("until the server stopped answering"),
            "{}",
            load::report(&told)
        );
        assert!(
            example != "no whole response" || load::report(&told).contains("timed out after"),
            "{told:?}"
        );
    }
}

#[test]
fn an_idle_connection_that_the_server_closes_is_no_error() {
    let address = server(|mut peer, _| {
        peer.request();
        peer.send(OK);
    });
    let arrival = Arrival::Constant { requests_per_second: 5.0 };
    let told = run(&LoadPlan { arrival, ..plan(address, 3) });
    assert_eq!((told.requests, told.errors), (3, Errors::default()), "{:?}", told.error_examples);
    assert!(told.connections_opened >= 2);
}

#[test]
fn a_run_that_is_stopped_tells_what_it_measured() {
    let (address, served): (SocketAddr, _) = {
        let (sender, receiver) = std::sync::mpsc::channel();
        let sender = Mutex::new(sender);
        let address = server(move |mut peer, _| {
            while peer.request().is_some() {
                peer.send(OK);
                let _ = sender.lock().expect("no panic").send(());
            }
        });
        (address, receiver)
    };
    let running =
        load::start(&LoadPlan { duration_seconds: Some(3600.0), requests: None, ..plan(address, 1) });
    let running = running.expect("the run starts");
    served.iter().take(10).for_each(drop);
    running.control().stop();
    let told = running.wait().expect("an outcome");
    assert!(told.interrupted && told.requests >= 9 && told.measured_seconds < 3600.0, "{told:?}");
    assert!(told.requests_per_second > 0.0);
}

#[test]
fn the_warm_up_is_not_counted() {
    let told = run(&LoadPlan { warm_up_seconds: 0.05, ..plan(answering(OK), 20) });
    assert_eq!((told.requests, told.latency.count, told.body_bytes), (20, 20, 100));
    assert_eq!(told.connections_opened, 0, "they were opened before the window");
}

#[test]
fn what_hangs_at_the_end_is_told_by_how_long_it_has() {
    let address = server(|mut peer, number| {
        while peer.request().is_some() {
            if number > 0 {
                peer.send(OK);
            }
        }
    });
    let ended = LoadPlan { connections: 3, requests: None, duration_seconds: Some(0.5), ..plan(address, 1) };
    let told = run(&ended);
    assert!(told.requests > 0 && told.errors == Errors::default() && told.unfinished > 0, "{told:?}");
    // The first connection has waited since the beginning.
    assert!(told.oldest_unfinished_us as f64 >= 0.8e6 * told.measured_seconds, "{told:?}");
    // The figures include it with its age.
    let latency = &told.latency;
    assert_eq!((latency.count, latency.censored), (told.requests + told.unfinished, told.unfinished));
    assert!(
        latency.is_at_least("max_us") && latency.is_at_least("mean_us") && !latency.is_at_least("p50_us")
    );
    assert!(latency.percentile(1.0).expect("a histogram").is_at_least);
    assert!(
        load::report(&told).contains("more were under way at the end, the oldest for "),
        "{}",
        load::report(&told)
    );
}

/// Answers the first requests with a page, and the others with another response.
fn changing(first: &'static [u8], count: usize, then: &'static [u8]) -> SocketAddr {
    let answered = AtomicUsize::new(0);
    server(move |mut peer, _| {
        while peer.request().is_some() {
            let number = answered.fetch_add(1, Ordering::Relaxed);
            peer.send(if number < count { first } else { then });
        }
    })
}

#[test]
fn responses_unlike_the_first_ones_are_errors_by_their_kind() {
    let [status, header, size] = [
        ChecksMissed { status: 5, ..ChecksMissed::default() },
        ChecksMissed { header: 5, ..ChecksMissed::default() },
        ChecksMissed { size: 5, ..ChecksMissed::default() },
    ];
    let cases: [(&[u8], ChecksMissed); 6] = [
        (OK, ChecksMissed::default()),
        (b"HTTP/1.1 204 No Content\r\n\r\n", status),
        (b"HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n", status),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello", header),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", size),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nhello!\r\n0\r\n\r\n", size),
    ];
    for (then, missed) in cases {
        let plan = LoadPlan { responses: Responses::Same, ..plan(changing(OK, 15, then), 20) };
        let told = run(&plan);
        let shown = String::from_utf8_lossy(then);
        assert_eq!((told.checks_missed, told.errors.total()), (missed, told.errors.check), "{shown}");
        assert_eq!(told.requests + told.errors.check, 20, "{shown}");
        // Unless any response is allowed.
        let plan = LoadPlan { urls: vec![format!("http://{}/", changing(OK, 15, then))], ..plan };
        assert_eq!(run(&LoadPlan { responses: Responses::Any, ..plan }).requests, 20, "{shown}");
    }
    // A 500 is not another version of a page.
    let broken = changing(OK, 15, b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n");
    let told = run(&LoadPlan { responses: Responses::Same, ..plan(broken, 20) });
    assert_eq!((told.errors.status, told.errors.total()), (5, 5));
}

#[test]
fn a_plan_that_knows_its_page_takes_no_other_from_the_first_on() {
    let check = Check {
        status: vec![(200, 200)],
        size: Some((5, 5)),
        digest: Some(load::digest(b"hello")),
        ..Check::default()
    };
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
    let other = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother";
    let redirected = changing(b"HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 2\r\n\r\nhm", 1, OK);
    let cases = [
        (answering(OK), None, 4, ChecksMissed::default()),
        (answering(chunked), None, 4, ChecksMissed::default()),
        (answering(other), None, 0, ChecksMissed { digest: 4, ..ChecksMissed::default() }),
        (
            answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
            None,
            0,
            ChecksMissed { size: 4, ..ChecksMissed::default() },
        ),
        (redirected, Some(3), 4, ChecksMissed::default()),
    ];
    for (number, (address, redirects_max, requests, checks_missed)) in cases.into_iter().enumerate() {
        let told = run(&LoadPlan { check: check.clone(), redirects_max, ..plan(address, 4) });
        assert_eq!((told.requests, told.checks_missed), (requests, checks_missed), "{number}: {told:?}");
    }
}

/// Answers this many requests, then falls silent.
fn falling_silent(after: usize) -> SocketAddr {
    let answered = AtomicUsize::new(0);
    server(move |mut peer, _| {
        while peer.request().is_some() {
            if answered.fetch_add(1, Ordering::Relaxed) < after {
                peer.send(OK);
            }
        }
    })
}

#[test]
fn a_server_that_falls_silent_is_in_the_figures_and_makes_the_run_invalid() {
    // Long enough for the silence to last several times as long as an answer on a busy machine.
    let ended = LoadPlan { requests: None, duration_seconds: Some(2.0), ..plan(falling_silent(0), 1) };
    let arrival = Arrival::Constant { requests_per_second: 40.0 };
    let of = |connections, arrival: &Arrival| LoadPlan {
        urls: vec![format!("http://{}/", falling_silent(50))],
        connections,
        arrival: arrival.clone(),
        breakdowns: vec![Breakdown::Status, Breakdown::Url],
        ..ended.clone()
    };
    // 50 requests are answered; the others wait, or cannot be sent.
    for (plan, count) in [
        (of(10, &Arrival::Closed), 60),
        (of(200, &arrival), 80),
        (of(10, &arrival), 80),
        (LoadPlan { timeout_seconds: 0.6, ..of(100, &arrival) }, 80),
    ] {
        let told = run(&plan);
        let latency = &told.latency;
        assert_eq!((told.requests, latency.count, latency.censored), (50, count, count - 50), "{told:?}");
        assert!(latency.is_at_least("p99_us") && latency.is_at_least("p90_us"), "{latency:?}");
        assert!(!latency.is_at_least("p50_us") && latency.min_us < latency.p90_us, "{latency:?}");
        // The tables include them; unsent requests only in tables that do not need the request.
        let unsent = told.schedule.as_ref().map_or(0, |kept| kept.unsent);
        let of = |by| {
            let table = told.breakdowns.iter().find(|table| table.by == by).expect("a table");
            table.rows.iter().map(|row| row.latency.censored).sum::<u64>()
        };
        assert_eq!(
            (of(Breakdown::Status), of(Breakdown::Url)),
            (count - 50, count - 50 - unsent),
            "{told:?}"
        );
        let is_hung = told.problems.iter().any(|problem| matches!(problem, RunProblem::Hung { .. }));
        assert_eq!(is_hung, plan.timeout_seconds > 1.0, "{:?}", told.problems);
        let text = load::report(&told);
        assert!(text.contains('≥') && text.contains("the server stopped answering") == is_hung, "{text}");
    }
}

/// The requests of a plan that a server receives on one connection, in order.
fn received(plan_of: impl Fn(LoadPlan) -> LoadPlan, requests: u64) -> Vec<String> {
    let received: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&received);
    let address = server(move |mut peer, _| {
        while let Some(request) = peer.request() {
            log.lock().expect("nobody panics").push(request);
            peer.send(OK);
        }
    });
    let base = plan(address, requests);
    let told = load::run(&plan_of(base)).expect("the run starts");
    assert_eq!((told.requests, told.errors.total()), (requests, 0));
    let received = received.lock().expect("nobody panics");
    received.clone()
}

#[test]
fn values_are_those_of_the_seed_and_the_length_is_that_of_the_body() {
    let with = |values_seed| {
        move |base: LoadPlan| {
            let url = base.urls[0].clone();
            let listed = |path: &str, body: &str| Listed {
                method: "POST".into(),
                url: format!("{url}{path}"),
                headers: vec!["Host: h".into(), "X-N: {{counter}}".into()],
                body: body.as_bytes().to_vec(),
                weight: 1,
                is_template: true,
                ..Listed::default()
            };
            let listed =
                vec![listed("{{random:1:1000000}}", "{{counter}}{{counter}}"), listed("b", "{{uuid}}")];
            LoadPlan { urls: Vec::new(), listed, values_seed, ..base }
        }
    };
    let first = received(with(1), 24);
    assert!(first[20].ends_with("\r\nHost: h\r\nX-N: 11\r\nContent-Length: 4\r\n\r\n1111"), "{}", first[20]);
    assert!(
        first[21].starts_with("POST /b HTTP/1.1\r\n")
            && first[21].contains("X-N: 11\r\nContent-Length: 36\r\n")
    );
    assert_eq!(first, received(with(1), 24));
    assert_ne!(first, received(with(2), 24));
}

#[test]
fn fields_of_a_request_replace_those_of_the_plan() {
    let sent = received(
        |base| {
            let listed = Listed {
                method: "GET".into(),
                url: base.urls[0].clone(),
                headers: vec!["x-b: own".into(), "Host: h".into()],
                weight: 1,
                body: b"{{literal".to_vec(),
                is_literal_body: true,
                is_template: true,
                ..Listed::default()
            };
            let headers = vec!["X-A: all".into(), "X-B: all".into()];
            LoadPlan { urls: Vec::new(), listed: vec![listed], headers, ..base }
        },
        1,
    );
    assert_eq!(
        sent,
        ["GET / HTTP/1.1\r\nHost: h\r\nX-A: all\r\nx-b: own\r\nContent-Length: 9\r\n\r\n{{literal"]
    );
}
