//! Prometheus remote write (protocol 1.0): the figures of each second, pushed while the load runs.
//!
//! The messages are three levels of protobuf, and snappy allows literals alone: both are written here, without a crate
//! and a build step for either. Pushes are requests of the load generator itself.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use load::{Outcome, Plan, Second};

/// Timeout of a push.
const TIMEOUT_SECONDS: f64 = 5.0;
/// Seconds that are kept while the receiver does not answer.
const KEPT_MOST: usize = 600;
/// Quantiles of the latency.
const QUANTILES: [&str; 5] = ["0.5", "0.9", "0.99", "0.999", "1"];
/// Maximum length of a literal with a length of two bytes.
const LITERAL_MOST: usize = 1 << 16;

/// Pushes seconds, on a thread of its own.
pub(super) struct RemoteWrite {
    sender: Sender<(u64, Second)>,
    thread: JoinHandle<Result<(), String>>,
}

/// What is pushed where.
struct Target {
    plan: Plan,
    labels: Vec<(String, String)>,
}

impl RemoteWrite {
    /// Begins to push to a URL. `labels` are `NAME=VALUE`; the load itself is described by `plan`.
    pub(super) fn start(url: &str, labels: &[String], plan: &Plan) -> Result<Self, String> {
        let mut all = vec![
            ("connections".to_owned(), plan.connections.to_string()),
            ("job".to_owned(), "vanward-load".to_owned()),
            ("method".to_owned(), plan.method.clone()),
            ("url".to_owned(), plan.urls.first().cloned().unwrap_or_default()),
        ];
        for label in labels {
            let (name, value) = label.split_once('=').unwrap_or((label, ""));
            if !is_label(name) || value.is_empty() {
                return Err(format!(
                    "--remote-label {label:?}: write NAME=VALUE; a name has letters, digits and underscores"
                ));
            }
            all.retain(|(known, _)| known != name);
            all.push((name.to_owned(), value.to_owned()));
        }
        let target = Target { plan: push(url, plan), labels: all };
        load::check(&target.plan).map_err(|error| format!("--remote-write: {error}"))?;
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("remote-write".to_owned());
        let thread = thread.spawn(move || work(target, &receiver));
        let thread = thread.map_err(|error| format!("--remote-write: cannot start a thread: {error}"))?;
        Ok(Self { sender, thread })
    }

    /// Pushes a second that ended at this time, in milliseconds since 1970.
    pub(super) fn push(&self, unix_ms: u64, second: &Second) {
        // A thread that has ended says why at the end.
        let _ = self.sender.send((unix_ms, second.clone()));
    }

    /// Pushes what is left. The error says what was not received.
    pub(super) fn finish(self) -> Result<(), String> {
        drop(self.sender);
        self.thread.join().unwrap_or_else(|_| Err("--remote-write: its thread ended early".to_owned()))
    }
}

/// A plan of one push, without its body.
fn push(url: &str, load: &Plan) -> Plan {
    let headers = [
        "Content-Type: application/x-protobuf",
        "Content-Encoding: snappy",
        "X-Prometheus-Remote-Write-Version: 0.1.0",
        "User-Agent: vanward-load",
    ];
    Plan {
        method: "POST".to_owned(),
        headers: headers.map(str::to_owned).into(),
        connections: 1,
        duration_seconds: None,
        requests: Some(1),
        timeout_seconds: TIMEOUT_SECONDS,
        // The same authority as for the load.
        tls: load::Tls { verify: load.tls.verify, ca: load.tls.ca.clone(), ..load::Tls::default() },
        ..Plan::new(url)
    }
}

/// A name of a label, as Prometheus has it; those that begin with two underscores are its own.
fn is_label(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    name.bytes().next().is_some_and(is_letter)
        && name.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
        && !name.starts_with("__")
}

/// Pushes what comes until nothing comes any more.
fn work(mut target: Target, seconds: &Receiver<(u64, Second)>) -> Result<(), String> {
    let (mut totals, mut kept, mut lost) = (Totals::default(), Vec::new(), 0_usize);
    let mut failure = None;
    while let Ok(first) = seconds.recv() {
        for (unix_ms, second) in std::iter::once(first).chain(seconds.try_iter()) {
            totals.add(&second);
            kept.push((unix_ms, second, totals));
        }
        let excess = kept.len().saturating_sub(KEPT_MOST);
        lost += kept.drain(..excess).count();
        match target.send(&kept) {
            Sent::Received => kept.clear(),
            Sent::Refused(reason) => {
                lost += kept.drain(..).count();
                failure = Some(reason);
            }
            // With what comes next.
            Sent::Failed(reason) => failure = Some(reason),
        }
    }
    if !kept.is_empty() && !matches!(target.send(&kept), Sent::Received) {
        lost += kept.len();
    }
    match (lost, failure) {
        (0, _) => Ok(()),
        (lost, reason) => Err(format!(
            "--remote-write: {} not received: {}; does the receiver take remote write (Prometheus: \
             --web.enable-remote-write-receiver, at /api/v1/write)?",
            if lost == 1 { "1 second was".to_owned() } else { format!("{lost} seconds were") },
            reason.unwrap_or_else(|| "it does not answer".to_owned())
        )),
    }
}

enum Sent {
    Received,
    /// It would be refused again.
    Refused(String),
    Failed(String),
}

/// Counters from the start of the run.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    requests: u64,
    failed: u64,
    bytes_received: u64,
}

impl Totals {
    fn add(&mut self, second: &Second) {
        self.requests += second.requests;
        self.failed += second.failed;
        self.bytes_received += second.bytes_received;
    }
}

impl Target {
    fn send(&mut self, seconds: &[(u64, Second, Totals)]) -> Sent {
        self.plan.body = snappy(&write_request(&self.labels, seconds));
        let outcome = match load::run(&self.plan) {
            Ok(outcome) => outcome,
            Err(error) => return Sent::Failed(error.to_string()),
        };
        let said = |outcome: &Outcome| outcome.error_examples.values().next().cloned().unwrap_or_default();
        match outcome.statuses.keys().next() {
            Some(200..300) => Sent::Received,
            // The protocol: what was refused is not sent again, but for 429.
            Some(429) => Sent::Failed(said(&outcome)),
            Some(400..500) => Sent::Refused(said(&outcome)),
            _ => Sent::Failed(said(&outcome)),
        }
    }
}

/// A `prometheus.WriteRequest`: `timeseries = 1`.
fn write_request(labels: &[(String, String)], seconds: &[(u64, Second, Totals)]) -> Vec<u8> {
    type Value<'v> = &'v dyn Fn(&Second, &Totals) -> Option<f64>;
    let mut message = Vec::new();
    let mut add = |name: &str, quantile: Option<&str>, value: Value<'_>| {
        let samples =
            seconds.iter().filter_map(|(unix_ms, second, totals)| Some((value(second, totals)?, *unix_ms)));
        let samples: Vec<(f64, u64)> = samples.collect();
        if !samples.is_empty() {
            let series = time_series(&all_labels(name, quantile, labels), &samples);
            field(&mut message, 1, &series);
        }
    };
    add("vanward_load_requests_total", None, &|_, totals| Some(totals.requests as f64));
    add("vanward_load_failed_total", None, &|_, totals| Some(totals.failed as f64));
    add("vanward_load_received_bytes_total", None, &|_, totals| Some(totals.bytes_received as f64));
    add("vanward_load_requests_per_second", None, &|second, _| Some(second.requests_per_second()));
    for (index, quantile) in QUANTILES.iter().enumerate() {
        add("vanward_load_latency_seconds", Some(quantile), &|second, _| {
            let times = [second.p50_us, second.p90_us, second.p99_us, second.p99_9_us, second.max_us];
            (second.requests > 0).then(|| times[index] as f64 / 1e6)
        });
    }
    message
}

/// The labels of a series, in the order of their names.
fn all_labels<'l>(
    name: &'l str,
    quantile: Option<&'l str>,
    labels: &'l [(String, String)],
) -> Vec<(&'l str, &'l str)> {
    let mut all = vec![("__name__", name)];
    all.extend(quantile.map(|quantile| ("quantile", quantile)));
    all.extend(labels.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    all.sort_unstable();
    all
}

/// A `TimeSeries`: `labels = 1` (`name = 1`, `value = 2`), `samples = 2` (`value = 1`, `timestamp = 2`).
fn time_series(labels: &[(&str, &str)], samples: &[(f64, u64)]) -> Vec<u8> {
    let mut series = Vec::new();
    for (name, value) in labels {
        let mut label = Vec::new();
        field(&mut label, 1, name.as_bytes());
        field(&mut label, 2, value.as_bytes());
        field(&mut series, 1, &label);
    }
    for (value, unix_ms) in samples {
        // Field 1, a double; field 2, a varint.
        let mut sample = vec![1 << 3 | 1];
        sample.extend_from_slice(&value.to_le_bytes());
        sample.push(2 << 3);
        varint(&mut sample, *unix_ms);
        field(&mut series, 2, &sample);
    }
    series
}

/// A field with a length.
fn field(out: &mut Vec<u8>, number: u8, content: &[u8]) {
    out.push(number << 3 | 2);
    varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The block format of snappy, with literals alone: the length, then pieces with theirs.
fn snappy(content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + 16);
    varint(&mut out, content.len() as u64);
    for piece in content.chunks(LITERAL_MOST) {
        // Tag 61: two bytes of length less one follow.
        out.push(61 << 2);
        out.extend_from_slice(&((piece.len() - 1) as u16).to_le_bytes());
        out.extend_from_slice(piece);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_bytes_that_prometheus_reads() {
        let series = time_series(&[("__name__", "up"), ("job", "x")], &[(1.5, 300)]);
        let expected = [
            &b"\x0a\x0e\x0a\x08__name__\x12\x02up"[..],
            b"\x0a\x08\x0a\x03job\x12\x01x",
            b"\x12\x0c\x09\0\0\0\0\0\0\xf8\x3f\x10\xac\x02",
        ];
        assert_eq!(series, expected.concat());
        assert_eq!(snappy(b"abc"), b"\x03\xf4\x02\x00abc");
        let long = snappy(&vec![7; 70_000]);
        assert_eq!(long[..6], [0xf0, 0xa2, 0x04, 0xf4, 0xff, 0xff]);
        assert_eq!(long.len(), 3 + 3 + 65_536 + 3 + 4_464);
    }

    #[test]
    fn every_series_of_a_second_is_there_and_its_labels_are_in_order() {
        let mut second = Second::default();
        (second.requests, second.seconds, second.p99_us) = (10, 1.0, 2_000);
        let labels = [("url".to_owned(), "http://a/".to_owned()), ("job".to_owned(), "j".to_owned())];
        let told = all_labels("n", Some("0.9"), &labels);
        assert_eq!(told, [("__name__", "n"), ("job", "j"), ("quantile", "0.9"), ("url", "http://a/")]);
        let count = |seconds: &[(u64, Second, Totals)]| {
            let message = write_request(&labels, seconds);
            message.windows(8).filter(|window| *window == b"__name__").count()
        };
        assert_eq!(count(&[(1, second, Totals::default())]), 4 + QUANTILES.len());
        // Without a success there is no latency.
        assert_eq!(count(&[(1, Second::default(), Totals::default())]), 4);
        assert_eq!(count(&[]), 0);
    }

    #[test]
    fn labels_are_those_of_prometheus() {
        for (name, is_good) in
            [("a", true), ("_a1", true), ("", false), ("1a", false), ("a-b", false), ("__a", false)]
        {
            assert_eq!(is_label(name), is_good, "{name}");
        }
    }
}
