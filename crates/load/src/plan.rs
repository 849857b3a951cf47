//! Plan of a run: URLs, arrivals, connections, and duration.
//!
//! Plain serialisable values. Nothing here opens a socket or resolves a name. `Plan::check` reports mistakes.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::listed::{Check, LISTED_MAX, Listed};
use crate::stream::{self, StreamsPlan};

pub const THREADS_MAX: usize = 256;
/// Over all threads.
pub const CONNECTIONS_MAX: usize = 100_000;
/// Maximum number of concurrent requests on one HTTP/2 connection.
pub const STREAMS_MAX: usize = 1_000;
pub const URLS_MAX: usize = 1_000_000;
const STAGES_MAX: usize = 1_000;
/// Maximum duration of a run or a wait: a year.
const SECONDS_MAX: f64 = 366.0 * 86_400.0;
/// Maximum requests per second, over all threads.
const RATE_MAX: f64 = 10_000_000.0;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoadPlan {
    /// Absolute URLs, `http://HOST[:PORT][/PATH]` or `https://HOST[:PORT][/PATH]`, requested in turn. At least one.
    pub urls: Vec<String>,
    /// Requests in place of `urls`, `method` and `body`, sent by their weights.
    pub listed: Vec<Listed>,
    /// Streams to the one URL, in place of requests.
    pub stream: Option<Box<StreamsPlan>>,
    /// Seed of random values in `listed`.
    pub values_seed: u64,
    /// Seed that shuffles the URLs once, or the requests of the list; `None` keeps their order.
    pub shuffle_seed: Option<u64>,
    pub method: String,
    /// Header fields, `Name: value`, sent after Host. A Host field replaces the Host of the URL.
    pub headers: Vec<String>,
    /// Request body; empty for none.
    pub body: Vec<u8>,
    /// Credentials, `NAME:PASSWORD`, sent as HTTP Basic authentication to the servers of the URLs.
    pub user: Option<String>,
    /// Initial cookies, `name=value; name2=value2`, of each connection (over HTTP/2, of each stream). It also stores
    /// those that servers set. `None` ignores cookies.
    pub cookies: Option<String>,
    /// Maximum number of redirects that a request follows, to hosts of the URLs; `None` follows none.
    pub redirects_max: Option<u32>,
    /// Requirements for each response, except for those of `listed` that have a separate check.
    pub check: Check,
    /// Requirements for responses to requests without a check.
    pub responses: Responses,
    pub directions: ConnectTargets,
    /// Keeps connections open between requests; otherwise each request opens a connection.
    pub keepalive: bool,
    /// TLS settings, for `https` URLs.
    pub tls: Tls,
    /// Uses HTTP/2: over TLS by ALPN, over TCP by prior knowledge.
    pub http2: bool,
    /// Uses HTTP/3: over QUIC, for `https` URLs.
    pub http3: bool,
    /// Concurrent requests on each connection; more than one requires HTTP/2 or HTTP/3.
    pub streams: usize,
    pub connections: usize,
    /// Number of OS threads, which share the connections.
    pub threads: usize,
    pub arrival: Arrival,
    /// Closed loop: pause of each connection between a response and its next request.
    pub think_time: Option<ThinkTime>,
    /// Tables of figures by part of the run.
    pub breakdowns: Vec<Breakdown>,
    /// Process of the server on this machine, whose CPU time and memory are measured too, with its children.
    pub server_process: Option<u32>,
    /// Whether figures of each second are recorded, for [`crate::RunningLoad::seconds`].
    pub seconds: bool,
    /// Length of the slots of [`crate::RunOutcome::slots`], if requested; at least a millisecond.
    pub slot: Option<Duration>,
    /// Ends the run after this time; `None` runs until `requests` are done. Not for stages, which have their own end.
    pub duration_seconds: Option<f64>,
    /// Ends the run after this many requests, failed ones included; `None` runs for `duration_seconds`.
    pub requests: Option<u64>,
    /// Duration of load before the measured window.
    pub warm_up_seconds: f64,
    /// Timeout of a request, until its response is complete.
    pub timeout_seconds: f64,
}

/// Requirements for responses to requests without a check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Responses {
    /// Any response with status 2xx or 3xx.
    #[default]
    Any,
    /// Like the first responses to the same request: equal status and media type, and a body if they have one; if all
    /// their bodies were equal, an equal body. For unsafe methods, only the status class must be equal.
    Same,
}

/// Targets of connections, if not those of the URL. Host fields and certificate names stay those of the URL.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConnectTargets {
    /// `HOST:PORT:ADDRESS[,ADDRESS]`: addresses of a host at a port.
    pub resolve: Vec<String>,
    /// `HOST:PORT:OTHER:PORT`: another host and port to connect to.
    pub connect_to: Vec<String>,
    pub unix_socket: Option<PathBuf>,
    /// Resolves host names again at this interval. After another answer, connections are closed after their requests,
    /// and new ones take the new addresses in turn.
    pub resolve_every_seconds: Option<u32>,
}

/// TLS settings of the generator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// Whether to verify the server's certificate; false accepts any.
    pub verify: bool,
    /// PEM file of the CAs to trust instead of the system's.
    pub ca: Option<PathBuf>,
    /// Whether connections resume an earlier session, if the server allows it.
    pub resume: bool,
    /// Highest TLS version to offer; `None` is the latest.
    pub version_max: Option<TlsVersion>,
    /// Only cipher suite to offer, by its IANA name; `None` offers all safe ones.
    pub cipher: Option<String>,
    /// Server name for SNI and verification, instead of the URL's host.
    pub server_name: Option<String>,
    /// PEM file of the client's certificate and its chain.
    pub certificate: Option<PathBuf>,
    /// PEM file of the client's private key; `None` takes it from `certificate`.
    pub key: Option<PathBuf>,
}

impl Default for Tls {
    fn default() -> Self {
        Self {
            verify: true,
            ca: None,
            resume: true,
            version_max: None,
            cipher: None,
            server_name: None,
            certificate: None,
            key: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TlsVersion {
    #[serde(rename = "1.2")]
    Tls12,
    #[serde(rename = "1.3")]
    Tls13,
}

/// Pause of a connection between requests, uniformly random between two values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ThinkTime {
    pub least_seconds: f64,
    pub most_seconds: f64,
}

/// The key of a table's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Breakdown {
    /// The class of the status: `2xx`, `4xx`. Times of all complete responses, not only of successes.
    Status,
    Url,
    /// The name of the URL: its fragment, otherwise its path without the query.
    Name,
    /// The stage of the schedule in which the request was due.
    Stage,
}

/// Part of a schedule: a rate that is constant, or changes linearly.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RateStage {
    pub seconds: f64,
    /// Rate at its start, over all threads.
    pub from_per_second: f64,
    pub to_per_second: f64,
}

impl std::fmt::Display for RateStage {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seconds, from_per_second: from, to_per_second: to } = self;
        if from == to {
            write!(formatter, "{seconds}s at {to}/s")
        } else {
            write!(formatter, "{seconds}s from {from}/s to {to}/s")
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Arrival {
    /// Closed loop: each connection sends its next request as soon as a response is complete.
    Closed,
    /// Constant rate: requests fall due at equal intervals, even if responses are late.
    Constant {
        /// Rate over all threads.
        requests_per_second: f64,
    },
    /// Poisson process: requests fall due at random and independently, like those of many users.
    Poisson {
        /// Mean rate over all threads.
        requests_per_second: f64,
        /// Equal seeds give equal arrivals.
        seed: u64,
    },
    /// Rates that are constant or change linearly, one after the other. The run ends with the last stage.
    Stages {
        /// At least one.
        stages: Vec<RateStage>,
        /// Seed of random arrivals (a Poisson process); `None` for equal intervals at a constant rate.
        seed: Option<u64>,
    },
}

impl Arrival {
    /// The requested rate, or the mean of the stages; `None` for a closed loop.
    pub fn requests_per_second(&self) -> Option<f64> {
        match self {
            Self::Closed => None,
            Self::Constant { requests_per_second } | Self::Poisson { requests_per_second, .. } => {
                Some(*requests_per_second)
            }
            Self::Stages { stages, .. } => {
                let requests =
                    |stage: &RateStage| stage.seconds * (stage.from_per_second + stage.to_per_second) / 2.0;
                let seconds: f64 = stages.iter().map(|stage| stage.seconds).sum();
                Some(stages.iter().map(requests).sum::<f64>() / seconds)
            }
        }
    }

    /// The stages; empty for other arrivals.
    pub fn stages(&self) -> &[RateStage] {
        match self {
            Self::Stages { stages, .. } => stages,
            _ => &[],
        }
    }
}

impl Default for LoadPlan {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            listed: Vec::new(),
            stream: None,
            values_seed: 1,
            shuffle_seed: None,
            method: "GET".to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            user: None,
            cookies: None,
            redirects_max: None,
            check: Check::default(),
            responses: Responses::Any,
            directions: ConnectTargets::default(),
            keepalive: true,
            tls: Tls::default(),
            http2: false,
            http3: false,
            streams: 1,
            connections: 10,
            threads: 1,
            arrival: Arrival::Closed,
            think_time: None,
            breakdowns: Vec::new(),
            server_process: None,
            seconds: false,
            slot: None,
            duration_seconds: Some(10.0),
            requests: None,
            warm_up_seconds: 0.0,
            timeout_seconds: 10.0,
        }
    }
}

impl LoadPlan {
    /// A closed loop of 10 connections on one URL for 10 s, as a start for other plans.
    pub fn new(url: impl Into<String>) -> Self {
        Self { urls: vec![url.into()], ..Self::default() }
    }

    /// Duration of the measured window: the sum of the stages, or the planned one.
    pub fn window_seconds(&self) -> Option<f64> {
        match self.arrival.stages() {
            [] => self.duration_seconds,
            stages => Some(stages.iter().map(|stage| stage.seconds).sum()),
        }
    }

    pub(crate) fn all_urls(&self) -> impl Iterator<Item = &str> {
        self.urls.iter().chain(self.listed.iter().map(|request| &request.url)).map(String::as_str)
    }

    pub(crate) fn url(&self, planned: usize) -> &str {
        let listed = || self.listed.get(planned).map(|request| &request.url);
        self.urls.get(planned).or_else(listed).map_or("", String::as_str)
    }

    /// Whether connections have several streams: HTTP/2 and HTTP/3.
    pub(crate) fn has_streams(&self) -> bool {
        self.http2 || self.http3
    }

    /// Whether requests depend on earlier responses.
    pub(crate) fn has_visits(&self) -> bool {
        self.cookies.is_some() || self.redirects_max.is_some()
    }

    /// Tables of the run: the requested ones, and one by stage if there are several.
    pub(crate) fn tables(&self) -> Vec<Breakdown> {
        let has_stages = self.arrival.stages().len() > 1
            && !self.breakdowns.contains(&Breakdown::Stage)
            && self.stream.is_none();
        has_stages.then_some(Breakdown::Stage).into_iter().chain(self.breakdowns.iter().copied()).collect()
    }

    /// Reports values out of range. The parsers of URLs and headers report their mistakes.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |what: &'static str, expected: String| Err(Error::Plan { what, expected });
        if !self.listed.is_empty() {
            if !self.urls.is_empty() || self.listed.len() > LISTED_MAX {
                return wrong(
                    "the number of listed requests",
                    format!("1 to {LISTED_MAX}, without other URLs"),
                );
            }
        } else if self.urls.is_empty() || self.urls.len() > URLS_MAX {
            return wrong("the number of URLs", format!("1 to {URLS_MAX}"));
        }
        if self.threads == 0 || self.threads > THREADS_MAX {
            return wrong("the number of threads (-t)", format!("1 to {THREADS_MAX}"));
        }
        if self.connections < self.threads || self.connections > CONNECTIONS_MAX {
            let least = self.threads;
            return wrong(
                "the number of connections (-c)",
                format!("{least} to {CONNECTIONS_MAX}: at least one for each thread"),
            );
        }
        if self.streams == 0
            || self.streams > STREAMS_MAX
            || self.connections * self.streams > CONNECTIONS_MAX
        {
            return wrong(
                "the number of streams on each connection (-m)",
                format!("1 to {STREAMS_MAX}, and {CONNECTIONS_MAX} at most over all connections"),
            );
        }
        if self.streams > 1 && !(self.has_streams() && self.keepalive) {
            return wrong(
                "the number of streams on each connection (-m)",
                "1 without HTTP/2 (--h2) or HTTP/3 (--h3) and connections that are kept".to_owned(),
            );
        }
        self.check_http3()?;
        self.check_arrival()?;
        if let Some(streams) = &self.stream {
            stream::check(self, streams)?;
        }
        if self.window_seconds().is_none() && self.requests.is_none() {
            return wrong("the end of the run", "a duration (-d) or a number of requests (-n)".to_owned());
        }
        if self.requests == Some(0) {
            return wrong("the number of requests (-n)", "at least 1".to_owned());
        }
        if self.window_seconds().is_some_and(|seconds| !(seconds > 0.0 && seconds <= SECONDS_MAX)) {
            return wrong("the duration (-d)", "more than 0 and at most a year".to_owned());
        }
        if !(self.timeout_seconds > 0.0 && self.timeout_seconds <= SECONDS_MAX) {
            return wrong("the time-out", "more than 0 and at most a year".to_owned());
        }
        if !(0.0..=SECONDS_MAX).contains(&self.warm_up_seconds) {
            return wrong("the warm-up", "0 to a year".to_owned());
        }
        match self.arrival.requests_per_second() {
            Some(rate) if !(rate > 0.0 && rate <= RATE_MAX) => {
                let flag = if self.arrival.stages().is_empty() {
                    "the rate (-R)"
                } else {
                    "the mean rate (--stages)"
                };
                wrong(flag, format!("more than 0 and at most {RATE_MAX} requests a second"))
            }
            _ => Ok(()),
        }
    }

    /// Reports options that HTTP/3 cannot be combined with.
    fn check_http3(&self) -> Result<(), Error> {
        let wrong =
            |what: &'static str, expected: &str| Err(Error::Plan { what, expected: expected.to_owned() });
        match self {
            Self { http3: false, .. } => Ok(()),
            Self { http2: true, .. } => wrong("the version of HTTP", "one of --h2 and --h3"),
            Self { stream: Some(_), .. } => {
                wrong("the version of HTTP", "HTTP/1.1, or HTTP/2 (--h2): streams are not sent over HTTP/3")
            }
            Self { directions: ConnectTargets { unix_socket: Some(_), .. }, .. } => wrong(
                "the Unix socket (--unix-socket)",
                "left out with HTTP/3 (--h3), which is sent over UDP",
            ),
            Self { tls: Tls { version_max: Some(TlsVersion::Tls12), .. }, .. } => {
                wrong("the highest TLS version (--tls)", "1.3 with HTTP/3 (--h3): QUIC has no other")
            }
            _ => Ok(()),
        }
    }

    fn check_arrival(&self) -> Result<(), Error> {
        let wrong = |what: &'static str, expected: String| Err(Error::Plan { what, expected });
        let stages = self.arrival.stages();
        if matches!(self.arrival, Arrival::Stages { .. }) {
            if stages.is_empty() || stages.len() > STAGES_MAX {
                return wrong("the number of stages (--stages)", format!("1 to {STAGES_MAX}"));
            }
            if self.duration_seconds.is_some() {
                return wrong(
                    "the duration (-d)",
                    "left out: the stages have their own (--stages)".to_owned(),
                );
            }
        }
        let is_rate = |rate: f64| (0.0..=RATE_MAX).contains(&rate);
        let is_good = |stage: &RateStage| {
            stage.seconds > 0.0 && is_rate(stage.from_per_second) && is_rate(stage.to_per_second)
        };
        if !stages.iter().all(is_good) {
            return wrong(
                "a stage (--stages)",
                format!("longer than 0, with rates from 0 to {RATE_MAX} requests a second"),
            );
        }
        let Some(ThinkTime { least_seconds, most_seconds }) = self.think_time else { return Ok(()) };
        if self.arrival != Arrival::Closed {
            return wrong(
                "the think time (--think-time)",
                "left out with a rate: the schedule says when requests are sent".to_owned(),
            );
        }
        if !(0.0..=most_seconds).contains(&least_seconds) || most_seconds > SECONDS_MAX {
            return wrong(
                "the think time (--think-time)",
                "a range from 0 to a year, such as 100ms..1s".to_owned(),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_that_cannot_run_is_refused_by_the_name_of_its_flag() {
        let base = || LoadPlan::new("http://127.0.0.1/");
        let stage =
            |seconds, from_per_second, to_per_second| RateStage { seconds, from_per_second, to_per_second };
        let staged = |stages: &[RateStage]| LoadPlan {
            duration_seconds: None,
            arrival: Arrival::Stages { stages: stages.to_vec(), seed: None },
            ..base()
        };
        staged(&[stage(1.0, 0.0, 5.0)]).check().expect("a ramp runs");
        let think = |least_seconds, most_seconds| Some(ThinkTime { least_seconds, most_seconds });
        let cases: [(LoadPlan, &str); 20] = [
            (staged(&[]), "--stages"),
            (staged(&[stage(0.0, 1.0, 1.0)]), "--stages"),
            (staged(&[stage(1.0, -1.0, 1.0)]), "--stages"),
            (staged(&[stage(1.0, 0.0, 0.0)]), "mean rate"),
            (LoadPlan { duration_seconds: Some(1.0), ..staged(&[stage(1.0, 1.0, 1.0)]) }, "-d"),
            (LoadPlan { think_time: think(2.0, 1.0), ..base() }, "--think-time"),
            (LoadPlan { think_time: think(0.0, 1.0), ..staged(&[stage(1.0, 1.0, 1.0)]) }, "--think-time"),
            (LoadPlan::default(), "URLs"),
            (LoadPlan { threads: 0, ..base() }, "-t"),
            (LoadPlan { threads: 4, connections: 3, ..base() }, "-c"),
            (LoadPlan { connections: CONNECTIONS_MAX + 1, ..base() }, "-c"),
            (LoadPlan { streams: 2, ..base() }, "-m"),
            (LoadPlan { streams: 2, http2: true, keepalive: false, ..base() }, "-m"),
            (LoadPlan { streams: 1_000, http2: true, connections: 101, ..base() }, "-m"),
            (LoadPlan { duration_seconds: None, ..base() }, "-d"),
            (LoadPlan { duration_seconds: Some(f64::NAN), ..base() }, "-d"),
            (LoadPlan { requests: Some(0), ..base() }, "-n"),
            (LoadPlan { timeout_seconds: 0.0, ..base() }, "time-out"),
            (LoadPlan { warm_up_seconds: f64::INFINITY, ..base() }, "warm-up"),
            (LoadPlan { arrival: Arrival::Constant { requests_per_second: -1.0 }, ..base() }, "-R"),
        ];
        for (plan, named) in cases {
            let message = plan.check().expect_err(named).to_string();
            assert!(message.contains(named), "{message:?} does not name {named}");
        }
        base().check().expect("the default plan runs");
    }

    #[test]
    fn a_plan_survives_json() {
        let plan = LoadPlan {
            arrival: Arrival::Poisson { requests_per_second: 12.5, seed: 7 },
            body: b"x=1".to_vec(),
            tls: Tls { ca: Some("ca.pem".into()), version_max: Some(TlsVersion::Tls12), ..Tls::default() },
            http2: true,
            ..LoadPlan::new("https://127.0.0.1/")
        };
        let text = serde_json::to_string(&plan).expect("serialises");
        assert_eq!(serde_json::from_str::<LoadPlan>(&text).expect("parses"), plan);
    }
}
