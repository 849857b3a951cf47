//! Requests that the proxy itself sends: copies for a mirror, and questions to authentication servers. Clients use both
//! HTTP/1 and HTTP/2.
//!
//! No test depends on sleeping.

/// Mirrors.
mod mirrored;
/// Forward authentication.
mod authenticated;
/// Remembered decisions.
mod remembered;
/// Redirects to a login page, with a cache and with faults.
mod sign_in;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::ports;
use testkit::scene::Scene;
use testkit::wait::holds_soon;

/// Starts a server that sends `answer` to every request until the process ends. Returns its address.
pub(crate) fn server(answer: &'static str) -> String {
    counting_server(answer).0
}

/// Also returns the number of requests so far.
pub(crate) fn counting_server(answer: &'static str) -> (String, Arc<AtomicUsize>) {
    deciding_server(move |_| answer)
}

/// Chooses the answer by the request's head.
pub(crate) fn deciding_server(
    answer: impl Fn(&str) -> &'static str + Clone + Send + 'static,
) -> (String, Arc<AtomicUsize>) {
    let listener = ports::listen();
    let address = listener.local_addr().expect("it listens").to_string();
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let (counter, answer) = (Arc::clone(&counter), answer.clone());
            std::thread::spawn(move || {
                let (mut seen, mut bytes) = (Vec::new(), [0; 4096]);
                while let Ok(count @ 1..) = stream.read(&mut bytes) {
                    seen.extend_from_slice(&bytes[..count]);
                    while let Some(end) = seen.windows(4).position(|window| window == b"\r\n\r\n") {
                        let head: Vec<u8> = seen.drain(..end + 4).collect();
                        counter.fetch_add(1, Ordering::Relaxed);
                        let answer = answer(&String::from_utf8_lossy(&head));
                        if stream.write_all(answer.as_bytes()).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    (address, asked)
}

/// The address of a port where no program listens.
pub(crate) fn nobody() -> String {
    ports::nobody().to_string()
}

/// Reads the metrics, by series.
fn series(scene: &Scene) -> BTreeMap<String, f64> {
    let address = scene.running().metrics_address().expect("metrics are on");
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("it can be sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("is text");
    let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
    lines.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

#[track_caller]
pub(crate) fn assert_told(scene: &Scene, expected: &[(&str, f64)]) {
    let is_told = || {
        let told = series(scene);
        expected.iter().all(|(name, value)| told.get(*name) == Some(value))
    };
    if !holds_soon(is_told) {
        let told = series(scene);
        let about: Vec<_> = told.iter().filter(|(_, value)| **value != 0.0).collect();
        panic!("expected {expected:?}, got {about:#?}");
    }
}
