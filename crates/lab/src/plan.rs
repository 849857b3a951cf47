//! Plan of a run: cases, proxies and durations. No I/O.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use report::figure;
use report::results::{
    Absent, ClientScheme, ClientVersion, DELAYED, File, LIMITED, Layer, OriginProtocol, ProxyRole, Published,
    StreamKind,
};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::expect::{Bound, Expect};
use crate::generator::Generator;
use crate::proxies::Installed;

#[derive(Debug, Clone)]
pub struct LabPlan {
    pub title: String,
    /// The command that repeats the run.
    pub command: String,
    pub file: Option<File>,
    /// Vanward's own program: proxy, origin and load generator.
    pub own: OwnProgram,
    /// Proxies to compare, in the order of the tables.
    pub proxies: Vec<Installed>,
    /// Proxies of the plan that are not installed.
    pub absent: Vec<Absent>,
    /// In the order of the tables.
    pub cases: Vec<CasePlan>,
    pub origins: OriginPlan,
    pub timing: Timing,
    /// Seed of the random order.
    pub seed: u64,
    /// Notes for readers of the report, in whole sentences.
    pub notes: Vec<String>,
    /// Differences from the plan's file, a phrase each.
    pub changes: Vec<String>,
    /// Published figures of the same experiment.
    pub published: Vec<Published>,
    pub expectations: Vec<Expect>,
    /// Whether clients and origins send `Connection: keep-alive`, as HTTP/1.0 requires.
    pub says_keep_alive: bool,
    /// Certificates of authorities in PEM, for services that run already, by service name.
    pub authorities: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginPlan {
    pub source: OriginSource,
    /// Path that is answered with 200 once a server is ready; `None` is the path of each case.
    pub ready: Option<String>,
    /// TLS of servers that run already.
    pub tls: Option<OriginsTls>,
}

/// TLS of origins that are not the lab's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginsTls {
    /// Certificates of authorities, in PEM.
    pub authority: String,
    pub name: String,
}

/// The kind of servers behind the proxies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OriginSource {
    /// This number of `vanward origin` processes.
    Own(NonZeroUsize),
    /// This number of processes of another program, started and stopped by the lab.
    Command(NonZeroUsize, Vec<String>),
    /// Servers that run already, as `HOST:PORT`.
    Running(Vec<String>),
    /// No servers: the plan measures services that run already.
    Nothing,
}

impl OriginPlan {
    /// Makes a plan with this number of `vanward origin` processes.
    pub fn own(count: NonZeroUsize) -> Self {
        Self { source: OriginSource::Own(count), ready: None, tls: None }
    }

    /// Replaces `vanward origin` by nothing, for services that run already.
    #[must_use]
    pub(crate) fn unless_own(self) -> Self {
        if self.is_own() { Self { source: OriginSource::Nothing, ..self } } else { self }
    }

    /// Whether they are `vanward origin`, whose responses are known.
    pub fn is_own(&self) -> bool {
        matches!(self.source, OriginSource::Own(_))
    }
}

impl LabPlan {
    /// The response that shows that a proxy is ready for a case.
    pub(crate) fn probe(&self, case: &CasePlan) -> OriginPayload {
        match &self.origins.ready {
            Some(path) => OriginPayload { path: path.clone(), bytes: None, ..case.payload.clone() },
            // A stream has no end to wait for.
            None if case.streams.is_some() => OriginPayload::tiny(),
            None => case.payload.clone(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnProgram {
    pub program: PathBuf,
    /// Version, as `vanward --version` prints it.
    pub version: String,
}

/// Case of a plan: the task of every proxy.
#[derive(Debug, Clone)]
pub struct CasePlan {
    /// Unique in the plan.
    pub name: String,
    pub scheme: ClientScheme,
    /// HTTP version of the clients.
    pub version: ClientVersion,
    pub upstream: OriginProtocol,
    /// Layer at which the proxies forward.
    pub layer: Layer,
    /// Requested response. With a list of URLs, used only to probe the proxy.
    pub payload: OriginPayload,
    /// List of URLs to request instead of the payload.
    pub urls: Option<UrlList>,
    /// List of requests to send instead of the payload, by their weights.
    pub requests_from: Option<RequestList>,
    /// Differences of the requests from a plain GET.
    pub message: RequestOptions,
    /// Streams in place of requests, at the payload's path.
    pub streams: Option<StreamPlan>,
    /// When requests, or messages of streams, are sent.
    pub load: PlanLoad,
    pub generator: &'static Generator,
    pub connections: NonZeroUsize,
    /// Threads of the generator; `None` is one for each of its cores.
    pub threads: Option<NonZeroUsize>,
    /// Worker threads or processes of each proxy.
    pub workers: NonZeroUsize,
    /// Ends a measurement after this many requests, without a warm-up; `None` measures for a time.
    pub requests: Option<u64>,
    /// Duration of a measurement, or of each step of a search; `None` is [`Timing::measured`].
    pub measured: Option<Duration>,
    pub timeout: Duration,
    /// Whether responses have to be those of the origins, or like the first ones.
    pub responses: load::Responses,
    /// Features of the proxies beside forwarding.
    pub features: Features,
    pub published: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamPlan {
    pub kind: StreamKind,
    /// Streams on each connection; more than one only over HTTP/2.
    pub per_connection: NonZeroUsize,
    /// Template of the sent messages; `None` is the default of `vanward load`.
    pub message: Option<String>,
    /// Shorter messages are padded to this size.
    pub size_bytes: usize,
    /// In a closed loop: messages that a stream sends before the first is answered.
    pub in_flight: Option<NonZeroUsize>,
    /// Number of streams that send, in a fan-out.
    pub senders: Option<NonZeroUsize>,
    /// Messages of a gRPC call.
    pub messages: Option<NonZeroUsize>,
    /// Names of the fields with number, time and sender.
    pub fields: load::StampFields,
}

/// A list of requests, for origins or services of any kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestList {
    /// The file, or the plan itself, for the report.
    pub source: String,
    /// The requests; their URLs are paths.
    pub requests: Arc<Vec<load::Listed>>,
}

impl RequestList {
    /// Text of the list for `vanward load`.
    pub(crate) fn text(&self) -> Result<String, Error> {
        let broken =
            |error| Error::System { action: "hand over a list", source: std::io::Error::other(error) };
        serde_json::to_string(&*self.requests).map_err(broken)
    }

    /// Describes the list for the report.
    pub fn phrase(&self) -> String {
        format!("{} of {}", figure::things(self.requests.len(), "request"), self.source)
    }
}

/// Differences of a case's requests from a plain GET.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestOptions {
    /// `None` is GET, or POST with a body.
    pub method: Option<String>,
    /// As `Name: value`.
    pub headers: Vec<String>,
    pub body: Option<String>,
}

impl RequestOptions {
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// Size of a cache in memory.
    pub cache_bytes: Option<u64>,
    pub delay: Option<Duration>,
    /// Rate limit of responses, for all clients together.
    pub rate_bytes_per_second: Option<u64>,
}

impl Features {
    /// Describes the features, a phrase each.
    pub fn phrases(&self) -> Vec<String> {
        let cache = self.cache_bytes.map(|bytes| format!("cache of {}", figure::bytes(bytes as f64)));
        let delay = self.delay.map(|delay| format!("{delay:?}{DELAYED}"));
        let rate = self.rate_bytes_per_second.map(|rate| format!("{}{LIMITED}", figure::bytes(rate as f64)));
        [cache, delay, rate].into_iter().flatten().collect()
    }
}

/// Settings that differ for one proxy from the others. The judge reports them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deviation {
    pub workers: Option<NonZeroUsize>,
    /// Whether each request is logged to a file.
    pub access_log: Option<bool>,
    /// Whether connections stay open between requests.
    pub keep_alive: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginPayload {
    pub name: String,
    /// Path of the response on the origin.
    pub path: String,
    /// Size of the body; `None` if it depends on the request.
    pub bytes: Option<u64>,
}

impl OriginPayload {
    /// 128 bytes: shows the cost per request.
    pub fn tiny() -> Self {
        Self::from_written("tiny")
    }

    /// 165,854 bytes: shows the cost of moving a body.
    pub fn large() -> Self {
        Self::from_written("large")
    }

    /// Makes the payload for a fixed page of the origin by its name, or for any path, which is also the name.
    pub fn from_written(written: &str) -> Self {
        let path = format!("/{}", written.trim_start_matches('/'));
        let words: Vec<&str> = path
            .split(|letter: char| !letter.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty())
            .collect();
        Self { name: words.join("-"), bytes: body_bytes(&path), path }
    }
}

/// Size of the body that the origin sends for a path.
fn body_bytes(path: &str) -> Option<u64> {
    let path = path.split('?').next().unwrap_or(path);
    let number = |prefix: &str| path.strip_prefix(prefix)?.parse::<u64>().ok();
    match path {
        "/tiny" => Some(128),
        "/small" => Some(3269),
        "/medium" => Some(11_268),
        "/large" => Some(165_854),
        "/hello.html" => Some(42),
        _ => number("/blank/").or_else(|| number("/varnish/gen/")?.checked_mul(1024)),
    }
}

/// URL list of the Varnish experiment: sizes from 10 to 40 KiB, nearly nine in ten cacheable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UrlList {
    pub total: usize,
    /// Equal seeds give equal lists.
    pub seed: u64,
}

impl UrlList {
    /// The check that all responses of `vanward origin` to the list meet.
    pub(crate) fn check(self) -> load::Check {
        let [least, most] =
            [Self::KILOBYTES.start(), Self::KILOBYTES.end()].map(|size| u64::from(*size) * 1024);
        load::Check { status: vec![(200, 200)], size: Some((least, most)), ..load::Check::default() }
    }

    /// Sizes of the pages in KiB.
    const KILOBYTES: RangeInclusive<u32> = 10..=40;

    /// Text of the list, one path per line.
    pub fn text(&self) -> String {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let line = |_| {
            let (size, number) = (random.u32(Self::KILOBYTES), random.u32(1..=100));
            // The script's rule: the number of a cacheable URL does not begin with 1.
            let cacheable = !number.to_string().starts_with('1');
            if cacheable {
                format!("/varnish/gen/{size}?as={number}\n")
            } else {
                format!("/varnish/gen/{size}\n")
            }
        };
        (0..self.total).map(line).collect()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum PlanLoad {
    /// Closed loop: each connection sends its next request when the last response is complete.
    Closed,
    /// Constant rate for all proxies: this share of the slowest proxy's requests per second in the matching closed
    /// loop, which the plan must contain.
    ShareOfSlowest(f64),
    /// Constant rate in requests per second.
    Rate(f64),
    /// Search for the highest rate of each proxy that meets the bound.
    Search(Bound),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Number of rounds: every proxy does every case once in each.
    pub rounds: usize,
    /// Duration of one measurement, except for cases with their own duration.
    pub measured: Duration,
    /// Duration of the uncounted load before each measurement.
    pub warm_up: Duration,
}

/// Time for starting and stopping a proxy and two runs of the generator.
const OVERHEAD: Duration = Duration::from_millis(200);
/// Default warm-up: enough to open the connections and fill caches.
const WARM_UP: Duration = Duration::from_millis(150);
/// Numbers of rounds, and the minimum duration of a measurement for each.
const ROUNDS: [(usize, Duration); 4] = [
    (7, Duration::from_millis(900)),
    (5, Duration::from_millis(600)),
    (3, Duration::from_millis(150)),
    (1, Duration::ZERO),
];
/// Minimum duration of a measurement: some kernels report CPU time in hundredths of a second.
const MEASURED_LEAST: Duration = Duration::from_millis(100);

/// Number of measurements in one round: each proxy in each of its cases.
pub fn cells(proxies: &[Installed], cases: &[CasePlan]) -> usize {
    let of_case = |case: &CasePlan| proxies.iter().filter(|proxy| case.includes(proxy)).count();
    cases.iter().map(of_case).sum()
}

impl CasePlan {
    /// Whether its responses are compared with the pages of the origins, if those are known.
    pub(crate) fn asks_for_pages(&self) -> bool {
        self.responses == load::Responses::Same
            && self.message.is_plain()
            && self.streams.is_none()
            && self.requests_from.is_none()
    }

    /// Duration of one measurement that does not end after a number of requests.
    pub fn measured(&self, timing: Timing) -> Duration {
        self.measured.unwrap_or(timing.measured)
    }

    pub fn includes(&self, proxy: &Installed) -> bool {
        self.includes_role(proxy.driver.role)
    }

    /// Whether proxies with this role take part in the case: `direct` only if neither clients nor origins use TLS.
    pub(crate) fn includes_role(&self, role: ProxyRole) -> bool {
        (self.scheme == ClientScheme::Http && self.upstream != OriginProtocol::Https)
            || role != ProxyRole::Direct
    }

    /// Whether requests differ in their paths.
    pub(crate) fn has_list(&self) -> bool {
        self.urls.is_some() || self.requests_from.is_some()
    }

    /// Contradiction in the case: a list with other requests, or at layer 4 clients and origins of two protocols.
    pub(crate) fn contradiction(&self) -> Option<String> {
        if self.requests_from.is_some() && (self.urls.is_some() || !self.message.is_plain()) {
            return Some(format!(
                "{:?} has requests_from, which says what is sent; leave out request and urls",
                self.name
            ));
        }
        if self.requests_from.is_some() && self.generator.name != report::results::OWN_GENERATOR {
            return Some(format!(
                "{:?} has requests_from, which only the generator \"vanward\" supports",
                self.name
            ));
        }
        if self.version == ClientVersion::Http3 {
            let wrong = match () {
                () if self.scheme == ClientScheme::Http => {
                    Some("HTTP/3 is always encrypted; expected scheme = \"https\"")
                }
                () if self.layer == Layer::Four => {
                    Some("HTTP/3 cannot be forwarded at layer 4; expected layer 7")
                }
                () if self.streams.is_some() => Some("streams are sent over HTTP/1.1 or HTTP/2"),
                () => None,
            };
            if let Some(wrong) = wrong {
                return Some(format!("{:?}: {wrong}", self.name));
            }
        }
        if self.layer == Layer::Seven {
            return None;
        }
        let expected = match (self.scheme, self.version) {
            (ClientScheme::Https, _) => OriginProtocol::Https,
            (ClientScheme::Http, ClientVersion::Http1) => OriginProtocol::Http,
            (ClientScheme::Http, ClientVersion::Http2 | ClientVersion::Http3) => OriginProtocol::H2,
        };
        let word = expected.word();
        (self.upstream != expected).then(|| {
            format!(
                "at layer 4 clients speak directly to the origins: the version and scheme of {:?} need upstream = \
                 {word:?}",
                self.name
            )
        })
    }

    /// Whether this case is the closed loop that determines the rate of `paced`.
    pub(crate) fn is_closed_loop_of(&self, paced: &Self) -> bool {
        let key = |case: &Self| {
            let protocol = (case.scheme, case.version, case.upstream, case.layer);
            let list = case.requests_from.clone();
            let streams =
                case.streams.as_ref().map(|streams| StreamPlan { in_flight: None, ..streams.clone() });
            let asked = (case.payload.clone(), case.urls, list, case.message.clone(), streams);
            (asked, protocol, case.connections, case.workers, case.features)
        };
        self.load == PlanLoad::Closed
            && key(self) == key(paced)
            && self.generator.name == paced.generator.name
    }
}

impl Timing {
    /// The most rounds, with long enough measurements, that fit in a time budget. `cells`: measurements per round.
    pub fn within(budget: Duration, cells: usize) -> Self {
        let measured = |rounds: usize| {
            let share = budget / u32::try_from((rounds * cells).max(1)).unwrap_or(u32::MAX);
            share.saturating_sub(OVERHEAD + WARM_UP)
        };
        let rounds = ROUNDS
            .iter()
            .find(|(rounds, least)| measured(*rounds) >= *least)
            .map_or(1, |(rounds, _)| *rounds);
        Self { rounds, measured: measured(rounds).max(MEASURED_LEAST), warm_up: WARM_UP }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_not_exceeded_and_buys_repeats_before_length() {
        // Seconds, cells, rounds.
        let cases = [(50, 22, 3), (50, 16, 3), (50, 8, 5), (120, 16, 5), (8, 16, 1), (600, 16, 7)];
        for (seconds, cells, rounds) in cases {
            let budget = Duration::from_secs(seconds);
            let timing = Timing::within(budget, cells);
            assert_eq!(timing.rounds, rounds, "{seconds} s for {cells} cells");
            let run = timing.measured + timing.warm_up + OVERHEAD;
            assert!(run * (timing.rounds * cells) as u32 <= budget, "{timing:?} exceeds {seconds} s");
        }
    }

    #[test]
    fn too_small_a_budget_still_measures_something() {
        let timing = Timing::within(Duration::from_secs(1), 100);
        assert_eq!((timing.rounds, timing.measured), (1, MEASURED_LEAST));
        assert!(Timing::within(Duration::from_secs(1), 0).rounds >= 1);
    }

    #[test]
    fn payloads_are_named_and_sized_by_their_paths() {
        let cases = [
            ("tiny", "tiny", "/tiny", Some(128)),
            ("/blank/5000", "blank-5000", "/blank/5000", Some(5000)),
            ("/varnish/gen/10?as=1", "varnish-gen-10-as-1", "/varnish/gen/10?as=1", Some(10_240)),
            ("/cgi-bin/second.pl", "cgi-bin-second-pl", "/cgi-bin/second.pl", None),
        ];
        for (written, name, path, bytes) in cases {
            let payload = OriginPayload::from_written(written);
            assert_eq!((&*payload.name, &*payload.path, payload.bytes), (name, path, bytes), "{written}");
        }
    }

    #[test]
    fn a_list_is_mostly_cacheable_and_the_same_for_its_seed() {
        let text = UrlList { total: 10_000, seed: 1 }.text();
        assert_eq!(text, UrlList { total: 10_000, seed: 1 }.text());
        assert_ne!(text, UrlList { total: 10_000, seed: 2 }.text());
        let cacheable = text.lines().filter(|line| line.contains("?as=")).count();
        // 88 of the numbers from 1 to 100 do not begin with 1.
        assert!((8_600..9_000).contains(&cacheable), "{cacheable}");
    }
}
