//! Tests of connections handed over between workers, and of logs that workers return.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use config::{Config, Settings};

use tokio::runtime::Builder;
use tokio::sync::mpsc;

use crate::{Death, Running, on_thread, run_until_signal, start};
use proxy::context::worker::{LogChange, PlanChange, WorkerMessage};
use proxy::listening::{ListenerId, NOWHERE};

fn connection() -> (TcpStream, TcpStream) {
    let between = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let client = TcpStream::connect(between.local_addr().expect("it listens")).expect("it listens");
    let (stream, _) = between.accept().expect("it was connected to");
    stream.set_nonblocking(true).expect("it is a socket");
    (client, stream)
}

/// Hands a connection over as another worker would, and returns the client's end.
fn hand_over(proxy: &Running, listener: ListenerId) -> TcpStream {
    let (client, stream) = connection();
    let sent = proxy.control.workers[0].send(WorkerMessage::Connection(stream, NOWHERE, listener));
    assert!(sent.is_ok(), "it runs");
    client
}

#[test]
fn a_connection_handed_over_to_an_ending_worker_is_served() {
    let any: SocketAddr = "127.0.0.1:0".parse().expect("is an address");
    for _ in 0..20 {
        let server = "http://127.0.0.1:1".parse().expect("is a URL");
        let proxy = start(
            Config::new(Settings {
                workers: Some(const { std::num::NonZeroUsize::new(1).unwrap() }),
                ..Settings::for_servers(vec![any], vec![server])
            })
            .expect("is valid"),
        );
        let proxy = proxy.expect("it starts");
        let (mut client, stream) = connection();
        let worker = &proxy.control.workers[0];
        assert!(worker.send(WorkerMessage::Retire).is_ok(), "it runs");
        if worker.send(WorkerMessage::Connection(stream, NOWHERE, ListenerId(0))).is_err() {
            // The other worker keeps it.
            continue;
        }
        client.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").expect("it is there");
        let mut response = String::new();
        client.read_to_string(&mut response).expect("it answers");
        assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
    }
}

/// A service manager would not restart a process that listens but serves nothing.
#[test]
fn a_process_whose_worker_panics_ends_with_an_error() {
    let any = "127.0.0.1:0".parse().expect("is an address");
    let server = "http://127.0.0.1:1".parse().expect("is a URL");
    let config = Config::new(Settings::for_servers(vec![any], vec![server])).expect("is valid");
    let mut proxy = start(config).expect("it starts");
    let (tell, panicked) = mpsc::unbounded_channel();
    proxy.panicked = panicked;
    let death = Death { index: 0, tell };
    let begin = || {
        Ok(async move {
            let _death = death;
            panic!("the test makes it panic");
        })
    };
    let doomed = on_thread("doomed".to_owned(), Builder::enable_io, begin).expect("it starts");
    let ended = run_until_signal(proxy, None, |_| ());
    assert_eq!(ended.expect_err("it says so").to_string(), "a worker has panicked");
    doomed.join().expect_err("it has panicked");
}

/// Dropping it on a worker would wait for a slow target, and block all of the worker's clients.
#[test]
fn a_log_that_is_not_used_any_more_is_given_away() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let any = "127.0.0.1:0".parse().expect("is an address");
    let server = "http://127.0.0.1:1".parse().expect("is a URL");
    let target = config::LogTarget::File(folder.path().join("log"));
    let proxy = start(
        Config::new(Settings {
            workers: Some(const { std::num::NonZeroUsize::new(1).unwrap() }),
            access_logs: vec![config::AccessLog::new(target, config::LogFormat::Json)],
            ..Settings::for_servers(vec![any], vec![server])
        })
        .expect("is valid"),
    );
    let proxy = proxy.expect("it starts");
    let (done, mut all_done) = tokio::sync::mpsc::unbounded_channel();
    let change = PlanChange {
        plan: proxy.control.plan(),
        listeners: vec![ListenerId(0)],
        opened: Vec::new(),
        log: LogChange::Other(None),
        done,
    };
    assert!(proxy.control.workers[0].send(WorkerMessage::Change(Box::new(change))).is_ok(), "it runs");
    assert!(all_done.blocking_recv().is_some());
    assert!(all_done.blocking_recv().is_none());
}

#[test]
fn a_connection_that_is_handed_over_for_a_listener_of_before_has_an_end() {
    let any = "127.0.0.1:0".parse().expect("is an address");
    let server = "http://127.0.0.1:1".parse().expect("is a URL");
    let config = |listeners| {
        Config::new(Settings {
            workers: Some(const { std::num::NonZeroUsize::new(1).unwrap() }),
            ..Settings::for_servers(vec![any; listeners], vec![config::Server::clone(&server)])
        })
        .expect("is valid")
    };
    let ask = |mut client: TcpStream| {
        // It may be closed already.
        let _ = client.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n");
        let mut response = Vec::new();
        let _ = client.read_to_end(&mut response);
        String::from_utf8(response).expect("it is text")
    };
    let (second, third) = (ListenerId(1), ListenerId(2));
    let proxy = start(config(2)).expect("it starts");
    proxy.reload(config(1)).expect("it is valid");
    let response = ask(hand_over(&proxy, second));
    assert!(response.starts_with("HTTP/1.1 502 "), "by the worker's last change: {response}");
    assert!(response.contains("\r\nConnection: close\r\n"), "it is the last: {response}");
    proxy.reload(config(1)).expect("it is valid");
    assert_eq!(ask(hand_over(&proxy, second)), "", "nothing is known of it any more");
    let mut early = hand_over(&proxy, third);
    proxy.reload(config(2)).expect("it is valid");
    early.write_all(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").expect("it is there");
    let mut response = String::new();
    early.read_to_string(&mut response).expect("it answers");
    assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
}
