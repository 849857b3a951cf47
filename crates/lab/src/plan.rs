//! What a run is to measure, and how long each part of it lasts. Nothing here touches the system.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use report::figure;
use report::results::{Absent, File, Layer, Published, Role, Scheme, Upstream, Version};
use serde::{Deserialize, Serialize};

use crate::expect::{Bound, Expect};
use crate::generator::Generator;
use crate::proxies::Installed;

/// One run of the lab.
#[derive(Debug, Clone)]
pub struct Plan {
    /// A heading for the report.
    pub title: String,
    /// The command that repeats the run.
    pub command: String,
    /// The file that it was read from, if one was.
    pub file: Option<File>,
    /// Our own binary: proxy, origin and load generator.
    pub own: Own,
    /// What is compared, in the order of the tables.
    pub proxies: Vec<Installed>,
    /// What would be compared, were it installed.
    pub absent: Vec<Absent>,
    /// What each is asked to do, in the order of the tables.
    pub cases: Vec<CasePlan>,
    /// Origins behind each proxy.
    pub origins: NonZeroUsize,
    /// How often and how long.
    pub timing: Timing,
    /// Shuffles the order.
    pub seed: u64,
    /// What a reader of the report has to know, in whole sentences.
    pub notes: Vec<String>,
    /// What is otherwise than the file says, a phrase each.
    pub changes: Vec<String>,
    /// What others published of the same.
    pub published: Vec<Published>,
    /// What figures have to be.
    pub expectations: Vec<Expect>,
    /// Whether clients and origins say `Connection: keep-alive`, as those of HTTP/1.0 had to.
    pub says_keep_alive: bool,
}

/// Our own binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    /// Where it is.
    pub program: PathBuf,
    /// As `vanward --version` says it.
    pub version: String,
}

/// What every proxy is asked to do.
#[derive(Debug, Clone)]
pub struct CasePlan {
    /// Short and unique in the plan.
    pub name: String,
    /// What the client speaks.
    pub scheme: Scheme,
    /// Its version of HTTP.
    pub version: Version,
    /// What the origins speak.
    pub upstream: Upstream,
    /// The layer at which proxies pass on.
    pub layer: Layer,
    /// What is asked for; of a list, what a proxy is probed with.
    pub payload: Payload,
    /// A list of URLs that is asked for instead.
    pub urls: Option<UrlList>,
    /// When it is asked for.
    pub load: Load,
    /// What sends the requests.
    pub generator: &'static Generator,
    /// Client connections.
    pub connections: NonZeroUsize,
    /// Threads of the generator; `None` is one for each of its cores.
    pub threads: Option<NonZeroUsize>,
    /// Worker threads or processes of each proxy.
    pub workers: NonZeroUsize,
    /// Ends a measurement after this many requests, without a warm-up; `None` measures for a time.
    pub requests: Option<u64>,
    /// What a measurement, or each step of a search, lasts; `None` is [`Timing::measured`].
    pub measured: Option<Duration>,
    /// When a request is given up.
    pub timeout: Duration,
    /// What proxies do beside passing requests on.
    pub features: Features,
    /// The case of the published figures to set beside it.
    pub published: Option<String>,
}

/// What proxies may be asked to do beside passing requests on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// Keeps responses in memory, as much as this.
    pub cache_bytes: Option<u64>,
    /// Waits this long for each request.
    pub delay: Option<Duration>,
    /// Sends no more than this to all clients together.
    pub rate_bytes_per_second: Option<u64>,
}

impl Features {
    /// A phrase each.
    pub fn phrases(&self) -> Vec<String> {
        let cache = self.cache_bytes.map(|bytes| format!("cache of {}", figure::bytes(bytes as f64)));
        let delay = self.delay.map(|delay| format!("{delay:?} of delay for each request"));
        let rate = self.rate_bytes_per_second.map(|rate| format!("{}/s in all", figure::bytes(rate as f64)));
        [cache, delay, rate].into_iter().flatten().collect()
    }
}

/// What a plan gives one proxy otherwise than the others; the judge then has something to say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deviation {
    /// Worker threads or processes.
    pub workers: Option<NonZeroUsize>,
    /// Whether each request is logged to a file.
    pub access_log: Option<bool>,
    /// Whether connections stay open between requests.
    pub keep_alive: Option<bool>,
}

/// A response of the origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payload {
    /// `tiny`
    pub name: String,
    /// The path that serves it.
    pub path: String,
    /// Bytes of its body; `None` where that depends on the request.
    pub bytes: Option<u64>,
}

impl Payload {
    /// 128 bytes: what a request costs by itself.
    pub fn tiny() -> Self {
        Self::of("tiny")
    }

    /// 165,854 bytes: what moving a body costs.
    pub fn large() -> Self {
        Self::of("large")
    }

    /// One of the origin's four by its name, or any path. A path is named after itself.
    pub fn of(written: &str) -> Self {
        let path = format!("/{}", written.trim_start_matches('/'));
        let words: Vec<&str> = path
            .split(|letter: char| !letter.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty())
            .collect();
        Self { name: words.join("-"), bytes: body_bytes(&path), path }
    }
}

/// What the origin's own paths promise.
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

/// A list of URLs as in the Varnish experiment: sizes from 10 to 40 KiB, nearly nine in ten cacheable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UrlList {
    /// How many.
    pub total: usize,
    /// The same seed gives the same list.
    pub seed: u64,
}

impl UrlList {
    /// A path a line.
    pub fn text(&self) -> String {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let line = |_| {
            let (size, number) = (random.u32(10..=40), random.u32(1..=100));
            // The script's rule: what is cacheable has a number that does not begin with 1.
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

/// When requests are sent.
#[derive(Debug, Clone, PartialEq)]
pub enum Load {
    /// As soon as the last response is complete.
    Closed,
    /// At one rate for all: this share of the slowest one's requests per second in the closed loop that is otherwise
    /// alike, which the plan has to have.
    ShareOfSlowest(f64),
    /// At this rate.
    Rate(f64),
    /// At rising and falling rates, for the highest of each proxy that keeps to the bound.
    Search(Bound),
}

/// How often and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Times that every proxy does every case.
    pub rounds: usize,
    /// What one measurement lasts, but in cases that say it themselves.
    pub measured: Duration,
    /// Load before each, not counted.
    pub warm_up: Duration,
}

/// Starting a proxy and two runs of the generator, and stopping them, beside the load itself.
const OVERHEAD: Duration = Duration::from_millis(200);
/// Enough to open the connections and fill what fills once.
const WARM_UP: Duration = Duration::from_millis(150);
/// Round counts, and how long a measurement has to last to prefer them over fewer.
const ROUNDS: [(usize, Duration); 4] = [
    (7, Duration::from_millis(900)),
    (5, Duration::from_millis(600)),
    (3, Duration::from_millis(150)),
    (1, Duration::ZERO),
];
/// CPU time is told in hundredths of a second by some kernels: less than this measures nothing.
const MEASURED_LEAST: Duration = Duration::from_millis(100);

/// Measurements of one round: each proxy in each case that it takes part in.
pub fn cells(proxies: &[Installed], cases: &[CasePlan]) -> usize {
    let of_case = |case: &CasePlan| proxies.iter().filter(|proxy| case.includes(proxy)).count();
    cases.iter().map(of_case).sum()
}

impl CasePlan {
    /// What one measurement lasts that does not end by its requests.
    pub fn measured(&self, timing: Timing) -> Duration {
        self.measured.unwrap_or(timing.measured)
    }

    /// Whether a proxy takes part.
    pub fn includes(&self, proxy: &Installed) -> bool {
        self.includes_role(proxy.driver.role)
    }

    /// Whether a proxy of that role takes part: `direct` does where neither clients nor origins speak TLS.
    pub(crate) fn includes_role(&self, role: Role) -> bool {
        (self.scheme == Scheme::Http && self.upstream != Upstream::Https) || role != Role::Direct
    }

    /// What cannot be asked together: at layer 4 clients speak with the origins themselves.
    pub(crate) fn contradiction(&self) -> Option<String> {
        if self.layer == Layer::Seven {
            return None;
        }
        let expected = match (self.scheme, self.version) {
            (Scheme::Https, _) => Upstream::Https,
            (Scheme::Http, Version::Http1) => Upstream::Http,
            (Scheme::Http, Version::Http2) => Upstream::H2,
        };
        let word = expected.word();
        (self.upstream != expected).then(|| {
            format!(
                "at layer 4 clients speak with the origins themselves: what {:?} has clients speak takes upstream = {word:?}",
                self.name
            )
        })
    }

    /// Whether it is the closed loop that the rate of `paced` follows from.
    pub(crate) fn is_closed_loop_of(&self, paced: &Self) -> bool {
        let key = |case: &Self| {
            let protocol = (case.scheme, case.version, case.upstream, case.layer);
            (case.payload.clone(), protocol, case.connections, case.workers, case.features, case.urls)
        };
        self.load == Load::Closed && key(self) == key(paced) && self.generator.name == paced.generator.name
    }
}

impl Timing {
    /// As many rounds of as long measurements as a budget holds, for this many proxies times cases.
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
            let payload = Payload::of(written);
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
