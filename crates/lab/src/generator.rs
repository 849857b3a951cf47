//! The load generator: our own `vanward load`, a process for each measurement.
//!
//! It judges itself (late, or a rate that it missed); what it reports is passed on, with its doubts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use report::latency::Latency;
use report::results::{Measured, Outcome};
use tokio::time::timeout;

use crate::certificate::{CIPHER, VERSION};
use crate::error::Error;
use crate::group::Group;
use crate::plan::Own;
use crate::start;

/// Beyond the load itself and its last responses: to start, and to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// A load that ends with its count is not waited for without end.
const COUNTED_MOST: Duration = Duration::from_secs(600);
/// A share of failed requests above which the rest is no measurement of the same thing.
const FAILED_MOST: f64 = 0.01;

/// What the generator is asked to do once.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Request {
    pub(crate) url: String,
    /// The certificate to trust, where the URL is `https`.
    pub(crate) trusted: Option<PathBuf>,
    pub(crate) connections: usize,
    pub(crate) threads: usize,
    pub(crate) end: End,
    /// `None` is a closed loop.
    pub(crate) rate_per_second: Option<f64>,
    /// A file of paths that are asked for instead of the URL's.
    pub(crate) urls: Option<PathBuf>,
    /// When a request is given up.
    pub(crate) timeout: Duration,
}

/// What ends the load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum End {
    After(Duration),
    Requests(u64),
}

impl Request {
    /// The command line.
    pub(crate) fn command(&self, own: &Own) -> Vec<String> {
        let mut command =
            vec![own.program.to_string_lossy().into_owned(), "load".to_owned(), "--json".to_owned()];
        command.extend(["-c".to_owned(), self.connections.to_string()]);
        command.extend(["-t".to_owned(), self.threads.to_string()]);
        match self.end {
            End::After(duration) => command.extend(["-d".to_owned(), format!("{}ms", duration.as_millis())]),
            End::Requests(requests) => command.extend(["-n".to_owned(), requests.to_string()]),
        }
        command.extend(["--timeout".to_owned(), format!("{}ms", self.timeout.as_millis())]);
        if let Some(urls) = &self.urls {
            command.extend(["--urls".to_owned(), urls.to_string_lossy().into_owned()]);
        }
        if let Some(rate) = self.rate_per_second {
            command.extend(["-R".to_owned(), format!("{rate}")]);
        }
        if let Some(trusted) = &self.trusted {
            let trusted = trusted.to_string_lossy().into_owned();
            command.extend(["--ca".to_owned(), trusted, "--cipher".to_owned(), CIPHER.to_owned()]);
        }
        command.push(self.url.clone());
        command
    }

    /// How it is typed.
    pub(crate) fn typed(&self, own: &Own) -> String {
        start::typed(&self.command(own))
    }

    /// Runs it to its end.
    pub(crate) async fn run(
        &self,
        own: &Own,
        cores: &[usize],
        folder: &Path,
    ) -> Result<load::Outcome, Error> {
        let mut group = Group::start("load", &self.command(own), cores, folder)?;
        let failed = |group: &Group, reason: String| Err(Error::Generator { reason, log: group.log_tail() });
        let limit = self.timeout
            + PATIENCE
            + match self.end {
                End::After(duration) => duration,
                End::Requests(_) => COUNTED_MOST,
            };
        match timeout(limit, group.wait()).await {
            Err(_) => return failed(&group, format!("it did not end within {limit:?}")),
            Ok(Err(error)) => return failed(&group, error.to_string()),
            // Whatever its exit code says is in its figures too.
            Ok(Ok(_)) => {}
        }
        match serde_json::from_str(&group.output()) {
            Ok(outcome) => Ok(outcome),
            Err(error) => failed(&group, error.to_string()),
        }
    }
}

/// The generator's figures in the report's form, and whether they count. The proxy's usage is added by who read it.
pub(crate) fn outcome(told: &load::Outcome) -> Outcome {
    if told.requests == 0 {
        return Outcome::Failed { reason: format!("no request succeeded{}", examples(told)) };
    }
    let distributions = [&told.latency, &told.first_byte, &told.connect].map(counted);
    let [latency, first_byte, connect] = match distributions {
        [Ok(latency), Ok(first_byte), Ok(connect)] => [latency, first_byte, connect],
        [Err(reason), ..] | [_, Err(reason), _] | [.., Err(reason)] => return Outcome::Failed { reason },
    };
    let measured = Measured {
        seconds: told.measured_seconds,
        requests: told.requests,
        received_bytes: told.bytes_received,
        errors: errors(&told.errors),
        latency,
        lateness_p99_us: told.schedule.as_ref().map(|schedule| schedule.own_lateness.p99_us),
        usage: None,
        first_byte,
        connect,
        load_cpu_seconds: Some(told.cpu.total_seconds),
        origins_cpu_seconds: None,
        machine_cpu_seconds: None,
        samples: Vec::new(),
    };
    match doubt(told) {
        Some(reason) => Outcome::Invalid { reason, measured },
        None => Outcome::Measured(measured),
    }
}

/// The buckets of a distribution; none where nothing was recorded.
fn counted(distribution: &load::Distribution) -> Result<Latency, String> {
    if distribution.count == 0 {
        return Ok(Latency::default());
    }
    let histogram = distribution.histogram().map_err(|error| error.to_string())?;
    let steps = histogram.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()));
    Ok(Latency::from_counts(steps))
}

/// Why the figures do not count, if they don't.
fn doubt(told: &load::Outcome) -> Option<String> {
    if let Some(problem) = told.problems.first() {
        return Some(match *problem {
            load::Problem::GeneratorLate { own_lateness_p99_us, limit_us } => format!(
                "the load generator was late by {own_lateness_p99_us} µs at its 99th percentile, more than \
                 {limit_us} µs: it was short of processor time"
            ),
            load::Problem::RateMissed { due, unsent, slip_us, waited_for_connection, .. } => format!(
                "the rate was missed: {unsent} of {due} requests were never sent and the last was {slip_us} µs late; {}",
                if waited_for_connection * 2 > due {
                    "the proxy was too slow for it"
                } else {
                    "the load generator was"
                }
            ),
        });
    }
    if let Some(tls) = &told.tls
        && tls.agreed != [format!("{VERSION} {CIPHER}")]
    {
        return Some(format!("it spoke {} and not {VERSION} {CIPHER}", tls.agreed.join(", ")));
    }
    let failed = told.errors.total();
    let share = failed as f64 / (failed + told.requests) as f64;
    (share > FAILED_MOST)
        .then(|| format!("{failed} of {} requests failed{}", failed + told.requests, examples(told)))
}

fn errors(told: &load::Errors) -> BTreeMap<String, u64> {
    let load::Errors { connect, read, write, timeout, status, malformed, tls, reset } = *told;
    let all = [
        ("connect", connect),
        ("read", read),
        ("write", write),
        ("timeout", timeout),
        ("status", status),
        ("malformed", malformed),
        ("tls", tls),
        ("reset", reset),
    ];
    all.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count)).collect()
}

/// The first failure, as the end of a sentence.
fn examples(told: &load::Outcome) -> String {
    told.error_examples.values().next().map(|example| format!(": {example}")).unwrap_or_default()
}
