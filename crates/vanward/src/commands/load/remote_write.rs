//! Prometheus remote write (protocol 1.0): the figures of each second, pushed while the load runs.
//!
//! Snappy permits literals only, so it is written here. Pushes are requests of the load generator itself.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use load::{LoadPlan, MeasuredSecond, RunOutcome};
use telemetry::wire;

const TIMEOUT_SECONDS: f64 = 5.0;
/// Seconds that are kept while the receiver does not respond.
const KEPT_MOST: usize = 600;
const QUANTILES: [&str; 5] = ["0.5", "0.9", "0.99", "0.999", "1"];
/// Maximum length of a literal with a two-byte length.
const LITERAL_MOST: usize = 1 << 16;

/// Pushes seconds on a separate thread.
pub(super) struct RemoteWrite {
    sender: Sender<(u64, MeasuredSecond)>,
    thread: JoinHandle<Result<(), String>>,
}

struct PushTarget {
    plan: LoadPlan,
    labels: Vec<(String, String)>,
}

impl RemoteWrite {
    /// Starts to push to a URL. `labels` are `NAME=VALUE`; labels for the load itself come from `plan`.
    pub(super) fn start(url: &str, labels: &[String], plan: &LoadPlan) -> Result<Self, String> {
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
        let target = PushTarget { plan: push(url, plan), labels: all };
        load::check(&target.plan).map_err(|error| format!("--remote-write: {error}"))?;
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("remote-write".to_owned());
        let thread = thread.spawn(move || work(target, &receiver));
        let thread = thread.map_err(|error| format!("--remote-write: cannot start a thread: {error}"))?;
        Ok(Self { sender, thread })
    }

    /// Pushes a second that ended at this time, in milliseconds since 1970.
    pub(super) fn push(&self, unix_ms: u64, second: &MeasuredSecond) {
        // A thread that has ended gives its reason at the end.
        let _ = self.sender.send((unix_ms, second.clone()));
    }

    /// Pushes the remaining seconds. An error says what was not received.
    pub(super) fn finish(self) -> Result<(), String> {
        drop(self.sender);
        self.thread.join().unwrap_or_else(|_| Err("--remote-write: its thread ended early".to_owned()))
    }
}

/// A plan of one push, without its body.
fn push(url: &str, load: &LoadPlan) -> LoadPlan {
    let headers = [
        "Content-Type: application/x-protobuf",
        "Content-Encoding: snappy",
        "X-Prometheus-Remote-Write-Version: 0.1.0",
        "User-Agent: vanward-load",
    ];
    LoadPlan {
        method: "POST".to_owned(),
        headers: headers.map(str::to_owned).into(),
        connections: 1,
        duration_seconds: None,
        requests: Some(1),
        timeout_seconds: TIMEOUT_SECONDS,
        // The same CAs as for the load.
        tls: load::Tls { verify: load.tls.verify, ca: load.tls.ca.clone(), ..load::Tls::default() },
        ..LoadPlan::new(url)
    }
}

/// Whether a name is valid in Prometheus. Names with two leading underscores are reserved.
fn is_label(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    name.bytes().next().is_some_and(is_letter)
        && name.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
        && !name.starts_with("__")
}

/// Pushes seconds until the sender is dropped.
fn work(mut target: PushTarget, seconds: &Receiver<(u64, MeasuredSecond)>) -> Result<(), String> {
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
            SentSamples::Received => kept.clear(),
            SentSamples::Refused(reason) => {
                lost += kept.drain(..).count();
                failure = Some(reason);
            }
            // Retried with the next seconds.
            SentSamples::Failed(reason) => failure = Some(reason),
        }
    }
    if !kept.is_empty() && !matches!(target.send(&kept), SentSamples::Received) {
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

enum SentSamples {
    Received,
    /// A retry would be rejected again.
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
    fn add(&mut self, second: &MeasuredSecond) {
        self.requests += second.requests;
        self.failed += second.failed;
        self.bytes_received += second.bytes_received;
    }
}

impl PushTarget {
    fn send(&mut self, seconds: &[(u64, MeasuredSecond, Totals)]) -> SentSamples {
        self.plan.body = snappy(&write_request(&self.labels, seconds));
        let outcome = match load::run(&self.plan) {
            Ok(outcome) => outcome,
            Err(error) => return SentSamples::Failed(error.to_string()),
        };
        let said = |outcome: &RunOutcome| outcome.error_examples.values().next().cloned().unwrap_or_default();
        match outcome.statuses.keys().next() {
            Some(200..300) => SentSamples::Received,
            // Protocol: rejected pushes are not repeated, except after 429.
            Some(429) => SentSamples::Failed(said(&outcome)),
            Some(400..500) => SentSamples::Refused(said(&outcome)),
            _ => SentSamples::Failed(said(&outcome)),
        }
    }
}

/// A `prometheus.WriteRequest`: `timeseries = 1`.
fn write_request(labels: &[(String, String)], seconds: &[(u64, MeasuredSecond, Totals)]) -> Vec<u8> {
    type Value<'v> = &'v dyn Fn(&MeasuredSecond, &Totals) -> Option<f64>;
    let mut message = Vec::new();
    let mut add = |name: &str, quantile: Option<&str>, value: Value<'_>| {
        let samples =
            seconds.iter().filter_map(|(unix_ms, second, totals)| Some((value(second, totals)?, *unix_ms)));
        let samples: Vec<(f64, u64)> = samples.collect();
        if !samples.is_empty() {
            let series = time_series(&all_labels(name, quantile, labels), &samples);
            wire::bytes(&mut message, 1, &series);
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

/// The labels of a series, sorted by name.
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
        wire::message(&mut series, 1, |out| {
            wire::bytes(out, 1, name.as_bytes());
            wire::bytes(out, 2, value.as_bytes());
        });
    }
    for (value, unix_ms) in samples {
        wire::message(&mut series, 2, |out| {
            wire::double(out, 1, *value);
            wire::number(out, 2, *unix_ms);
        });
    }
    series
}

/// Encodes in snappy's block format with literals only: the length, then pieces with their lengths.
fn snappy(content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + 16);
    wire::varint(&mut out, content.len() as u64);
    for piece in content.chunks(LITERAL_MOST) {
        // Tag 61: two bytes of length minus one follow.
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
        let mut second = MeasuredSecond::default();
        (second.requests, second.seconds, second.p99_us) = (10, 1.0, 2_000);
        let labels = [("url".to_owned(), "http://a/".to_owned()), ("job".to_owned(), "j".to_owned())];
        let told = all_labels("n", Some("0.9"), &labels);
        assert_eq!(told, [("__name__", "n"), ("job", "j"), ("quantile", "0.9"), ("url", "http://a/")]);
        let count = |seconds: &[(u64, MeasuredSecond, Totals)]| {
            let message = write_request(&labels, seconds);
            message.windows(8).filter(|window| *window == b"__name__").count()
        };
        assert_eq!(count(&[(1, second, Totals::default())]), 4 + QUANTILES.len());
        // Without a success there is no latency.
        assert_eq!(count(&[(1, MeasuredSecond::default(), Totals::default())]), 4);
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
