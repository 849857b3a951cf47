//! Load generators, a process for each measurement: Vanward's own, and others to cross-check it.
//!
//! Only Vanward's generator sends at a rate and checks itself. A generator rejects unsupported requests by name.

/// `vanward load`.
mod own;
/// wrk.
mod wrk;
/// h2load.
mod h2load;
/// ab.
mod ab;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use report::latency::LatencyHistogram;
use report::results::{ClientVersion, MeasuredFigures, MeasurementOutcome};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::error::Error;
use crate::group::ProcessGroup;
use crate::plan::{OwnProgram, RequestOptions, StreamPlan};
use crate::stat::{ProcessFacts, ticks_per_second};
use crate::usage::Root;
use crate::{proxies, start};

pub(crate) use own::errors_by_kind;

/// Time that a generator gets for start and end, beyond the load and the last responses.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum duration of a load with a fixed number of requests.
const COUNTED_MOST: Duration = Duration::from_secs(600);
/// Share of failed requests above which a measurement is invalid.
const FAILED_MOST: f64 = 0.01;

/// Vanward's own first.
pub const ALL: [&Generator; 4] = [&own::GENERATOR, &wrk::GENERATOR, &h2load::GENERATOR, &ab::GENERATOR];

#[derive(Debug)]
pub struct Generator {
    pub name: &'static str,
    /// Name of the program; `None` for `vanward load`.
    program: Option<&'static str>,
    /// Instructions to install it.
    pub remedy: &'static str,
    /// Returns the feature of a request that the generator does not support, if any.
    refuses: fn(&GeneratorRequest) -> Option<&'static str>,
    script: Option<(&'static str, &'static str)>,
    threads_most: usize,
    command: fn(&Path, &GeneratorRequest, &Path) -> Vec<String>,
    read: fn(&GeneratorRequest, &str, &Path) -> Result<MeasurementOutcome, String>,
}

pub fn named(name: &str) -> Option<&'static Generator> {
    ALL.into_iter().find(|generator| generator.name == name)
}

pub fn names() -> String {
    ALL.map(|generator| generator.name).join(", ")
}

impl Generator {
    pub fn program(&self, own: &OwnProgram) -> Option<PathBuf> {
        self.program.map_or_else(|| Some(own.program.clone()), proxies::on_path)
    }
}

/// Order to a generator for one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct GeneratorRequest {
    pub(crate) url: String,
    pub(crate) version: ClientVersion,
    /// Certificate to trust, if the URL is `https` and the proxy is the lab's.
    pub(crate) trusted: Option<PathBuf>,
    /// Certificates of authorities to trust, of a service that is not the lab's; `None` trusts those of the system.
    pub(crate) authority: Option<PathBuf>,
    pub(crate) connections: usize,
    pub(crate) threads: usize,
    pub(crate) end: LoadEnd,
    /// Constant rate; `None` is a closed loop.
    pub(crate) rate_per_second: Option<f64>,
    /// File with paths to request instead of the URL's path.
    pub(crate) urls: Option<PathBuf>,
    /// File with a list of requests to send instead of the URL's path, from [`crate::plan::RequestList`].
    pub(crate) requests_from: Option<PathBuf>,
    /// Differences from a plain GET.
    pub(crate) message: RequestOptions,
    pub(crate) streams: Option<StreamPlan>,
    pub(crate) timeout: Duration,
    /// Check of each response; `None` compares with the first ones, as `responses` says.
    pub(crate) check: Option<load::Check>,
    pub(crate) responses: load::Responses,
    pub(crate) says_keep_alive: bool,
}

/// The end of a load: a time, or a number of requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) enum LoadEnd {
    After(Duration),
    Requests(u64),
}

/// A running generator. Its process ends when this is dropped.
#[derive(Debug)]
pub(crate) struct RunningGenerator<'r> {
    generator: &'static Generator,
    request: &'r GeneratorRequest,
    group: ProcessGroup,
    folder: &'r Path,
    /// CPU time of children that ended before: the kernel reports only the sum of all ended children.
    ended_before_seconds: Option<f64>,
}

impl GeneratorRequest {
    /// The share of part number `part` (from 0), if `of` generators send the load together.
    pub(crate) fn part(&self, part: usize, of: usize) -> Self {
        let share = |whole: usize| whole / of + usize::from(part < whole % of);
        let connections = share(self.connections);
        Self {
            connections,
            threads: self.threads.min(connections),
            end: match self.end {
                LoadEnd::After(duration) => LoadEnd::After(duration),
                LoadEnd::Requests(all) => {
                    LoadEnd::Requests(share(usize::try_from(all).unwrap_or(usize::MAX)) as u64)
                }
            },
            rate_per_second: self.rate_per_second.map(|rate| rate / of as f64),
            ..self.clone()
        }
    }

    /// Makes the file names of the request relative to this folder.
    pub(crate) fn within(self, folder: &Path) -> Self {
        let inside = |name: PathBuf| folder.join(name);
        Self {
            trusted: self.trusted.map(inside),
            authority: self.authority.map(inside),
            urls: self.urls.map(inside),
            requests_from: self.requests_from.map(inside),
            ..self
        }
    }

    /// Starts a generator for the request on these cores. Its output goes to the folder.
    pub(crate) fn start<'r>(
        &'r self,
        generator: &'static Generator,
        own: &OwnProgram,
        cores: &[usize],
        folder: &'r Path,
    ) -> Result<RunningGenerator<'r>, Error> {
        let refused = |reason: &str| Error::Generator { reason: reason.to_owned(), log: String::new() };
        if let Some(reason) = (generator.refuses)(self) {
            return Err(refused(reason));
        }
        let missing = || refused(&format!("{} is not installed: {}", generator.name, generator.remedy));
        let program = generator.program(own).ok_or_else(missing)?;
        if let Some((name, text)) = generator.script {
            let path = folder.join(name);
            fs::write(&path, text).map_err(|source| Error::Write { path, source })?;
        }
        let ended_before_seconds = children_seconds();
        let group = ProcessGroup::start("load", &(generator.command)(&program, self, folder), cores, folder)?;
        Ok(RunningGenerator { generator, request: self, group, folder, ended_before_seconds })
    }

    /// The command as it would be typed in a shell.
    pub(crate) fn typed(&self, generator: &Generator, own: &OwnProgram, folder: &Path) -> String {
        let program = generator.program(own).unwrap_or_else(|| PathBuf::from(generator.name));
        start::typed(&(generator.command)(&program, self, folder))
    }
}

impl RunningGenerator<'_> {
    /// Process tree to read the usage from.
    pub(crate) fn root(&self) -> Root {
        self.group.root()
    }

    /// Waits for the end of the generator, and reads its figures. The caller adds the proxy's usage.
    pub(crate) async fn finish(mut self) -> Result<MeasurementOutcome, Error> {
        let failed =
            |group: &ProcessGroup, reason: String| Err(Error::Generator { reason, log: group.log_tail() });
        let limit = self.request.timeout
            + PATIENCE
            + match self.request.end {
                LoadEnd::After(duration) => duration,
                LoadEnd::Requests(_) => COUNTED_MOST,
            };
        match timeout(limit, self.group.wait()).await {
            Err(_) => return failed(&self.group, format!("it did not end within {limit:?}")),
            Ok(Err(error)) => return failed(&self.group, error.to_string()),
            // A bad exit code also shows in the figures.
            Ok(Ok(_)) => {}
        }
        let mut outcome = match (self.generator.read)(self.request, &self.group.output(), self.folder) {
            Ok(outcome) => outcome,
            Err(reason) => return failed(&self.group, reason),
        };
        if let MeasurementOutcome::Measured(measured) | MeasurementOutcome::Invalid { measured, .. } =
            &mut outcome
        {
            let GeneratorRequest { threads, connections, .. } = *self.request;
            measured.load_threads = Some(threads.min(connections).min(self.generator.threads_most));
            if measured.load_cpu_seconds.is_none() {
                // Includes the generator's start, which is small.
                let used = children_seconds().zip(self.ended_before_seconds).map(|(now, then)| now - then);
                measured.load_cpu_seconds = used.map(|seconds| seconds.max(0.0));
            }
        }
        Ok(outcome)
    }
}

/// CPU time of all ended children of this process.
fn children_seconds() -> Option<f64> {
    let stat = ProcessFacts::own()?;
    Some((stat.children_user_ticks + stat.children_system_ticks) as f64 / ticks_per_second() as f64)
}

/// Rejects rates and lists of URLs, for generators without them.
fn closed_loop_of_one_url(request: &GeneratorRequest) -> Option<&'static str> {
    let rate =
        request.rate_per_second.map(|_| "only vanward's own generator can send at a constant rate here");
    let list = request.urls.as_ref().or(request.requests_from.as_ref());
    let list = list.map(|_| "only vanward's own generator takes a list here");
    let message = "only vanward's own generator sends other methods, fields and bodies here";
    let streams = request.streams.as_ref().map(|_| "only vanward's own generator measures streams here");
    rate.or(list).or(streams).or((!request.message.is_plain()).then_some(message))
}

/// Rejects HTTP/3, for generators whose packages do not support it.
fn no_http3(request: &GeneratorRequest) -> Option<&'static str> {
    (request.version == ClientVersion::Http3).then_some("only vanward's own generator speaks HTTP/3 here")
}

/// Arguments for the field `Connection: keep-alive`, if requests have it.
fn keep_alive(request: &GeneratorRequest) -> Option<[String; 2]> {
    request.says_keep_alive.then(|| ["-H", "Connection: keep-alive"].map(str::to_owned))
}

/// Duration in whole seconds, for generators without fractions.
fn whole_seconds(request: &GeneratorRequest) -> u64 {
    match request.end {
        LoadEnd::After(duration) => (duration.as_secs_f64().ceil() as u64).max(1),
        LoadEnd::Requests(_) => 1,
    }
}

/// Figures that every generator has; others are empty.
fn measured(seconds: f64, requests: u64, received_bytes: u64, latency: LatencyHistogram) -> MeasuredFigures {
    MeasuredFigures {
        seconds,
        requests,
        received_bytes,
        errors: BTreeMap::new(),
        latency,
        lateness_p99_us: None,
        usage: None,
        first_byte: LatencyHistogram::default(),
        connect: LatencyHistogram::default(),
        load_cpu_seconds: None,
        load_threads: None,
        origins_cpu_seconds: None,
        origin_connections: None,
        machine_cpu_seconds: None,
        samples: Vec::new(),
        load: None,
        origins: None,
        network: None,
        streams: None,
    }
}

/// Whether too many requests failed.
fn fails(measured: &MeasuredFigures) -> bool {
    let failed = measured.error_count();
    failed as f64 > FAILED_MOST * (failed + measured.requests) as f64
}

/// A valid outcome, or an invalid one if too many requests failed. Without any response there are no figures.
fn counted(measured: MeasuredFigures, counted: &str, example: &str) -> MeasurementOutcome {
    let failed = measured.error_count();
    let all = failed + measured.requests;
    if all == 0 {
        return MeasurementOutcome::Failed { reason: format!("no {counted} succeeded{example}") };
    }
    if fails(&measured) {
        let reason = format!("{failed} of {all} {counted}s failed{example}");
        return MeasurementOutcome::Invalid { reason, measured, is_generators: false };
    }
    MeasurementOutcome::Measured(measured)
}

/// The failures with a count above 0.
fn errors<const N: usize>(all: [(&str, u64); N]) -> BTreeMap<String, u64> {
    all.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count)).collect()
}

fn number_after(output: &str, label: &str) -> Option<f64> {
    let rest = output.split_once(label)?.1.trim_start();
    let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use report::results::StreamKind;

    use super::*;

    /// A second over one connection.
    pub(super) fn request() -> GeneratorRequest {
        GeneratorRequest {
            url: "http://127.0.0.1:1/tiny".to_owned(),
            version: ClientVersion::Http1,
            trusted: None,
            authority: None,
            connections: 4,
            threads: 2,
            end: LoadEnd::After(Duration::from_millis(1500)),
            rate_per_second: None,
            urls: None,
            requests_from: None,
            message: RequestOptions::default(),
            streams: None,
            timeout: Duration::from_secs(10),
            check: None,
            responses: load::Responses::Same,
            says_keep_alive: false,
        }
    }

    #[test]
    fn each_is_asked_in_its_own_words() {
        let commands: Vec<String> = ALL
            .into_iter()
            .map(|generator| (generator.command)(Path::new("/p"), &request(), Path::new("/f")).join(" "))
            .collect();
        assert_eq!(
            commands,
            [
                "/p load --json --quiet -c 4 -t 2 -d 1500ms --timeout 10000ms http://127.0.0.1:1/tiny",
                "/p -t2 -c4 -d2s --timeout 10s -s /f/wrk.lua http://127.0.0.1:1/tiny",
                "/p -t2 -c4 -D2 --h1 -m1 -T10 --log-file=/f/h2load.tsv http://127.0.0.1:1/tiny",
                "/p -q -k -l -c4 -s10 -t2 -n200000 -e /f/ab.csv http://127.0.0.1:1/tiny",
            ]
        );
    }

    #[test]
    fn streams_are_commands_of_their_own() {
        let streams = |kind| StreamPlan {
            kind,
            per_connection: NonZeroUsize::MIN,
            message: None,
            size_bytes: 0,
            in_flight: None,
            senders: None,
            messages: None,
            fields: load::StampFields::default(),
        };
        let two = NonZeroUsize::new(2);
        let command = |streams: StreamPlan, version| {
            let request = GeneratorRequest { streams: Some(streams), version, ..request() };
            let command = (ALL[0].command)(Path::new("/p"), &request, Path::new("/f")).join(" ");
            let (flags, _) = command.split_once(" --quiet -c 4").expect("the flags of all");
            (flags.to_owned(), command.contains(" --h2 "))
        };
        let fan_out = StreamPlan { senders: two, size_bytes: 200, ..streams(StreamKind::FanOut) };
        let time = load::StampFields { time: "ts".to_owned(), ..load::StampFields::default() };
        let events =
            StreamPlan { per_connection: two.expect("2"), fields: time, ..streams(StreamKind::Events) };
        let message = Some("-x".to_owned());
        let bidi = StreamPlan { messages: two, message, ..streams(StreamKind::GrpcBidi) };
        let loops = StreamPlan { in_flight: two, ..streams(StreamKind::Echo) };
        for (streams, version, expected) in [
            (
                fan_out,
                ClientVersion::Http1,
                ("/p load websocket --fan-out --senders=2 --size=200 --json", false),
            ),
            (events, ClientVersion::Http2, ("/p load events -m 2 --time-field=ts --json", true)),
            (bidi, ClientVersion::Http2, ("/p load grpc --bidi --messages=2 --message=-x --json", false)),
            (loops, ClientVersion::Http1, ("/p load websocket --echo --in-flight=2 --json", false)),
        ] {
            let (flags, has_h2) = command(streams, version);
            assert_eq!((flags.as_str(), has_h2), expected);
        }
        let others = GeneratorRequest { streams: Some(streams(StreamKind::Echo)), ..request() };
        assert!(ALL[1..].iter().all(|generator| (generator.refuses)(&others).is_some()));
    }

    #[test]
    fn each_says_that_it_keeps_connections_where_that_is_asked_for() {
        let asked = GeneratorRequest { says_keep_alive: true, ..request() };
        for generator in ALL {
            let command = (generator.command)(Path::new("/p"), &asked, Path::new("/f")).join(" ");
            // ab sends the field without a flag.
            let says = command.contains("-H Connection: keep-alive ")
                || generator.name == "ab" && command.contains(" -k ");
            assert!(says && command.ends_with("/tiny"), "{command}");
        }
    }

    #[test]
    fn the_parts_of_a_load_make_the_whole() {
        let whole =
            GeneratorRequest { rate_per_second: Some(90.0), end: LoadEnd::Requests(100), ..request() };
        let parts: Vec<GeneratorRequest> = (0..3).map(|part| whole.part(part, 3)).collect();
        let all: Vec<(usize, usize, LoadEnd)> =
            parts.iter().map(|part| (part.connections, part.threads, part.end)).collect();
        let ended = |requests| LoadEnd::Requests(requests);
        assert_eq!(all, [(2, 2, ended(34)), (1, 1, ended(33)), (1, 1, ended(33))]);
        assert_eq!(parts[2].rate_per_second, Some(30.0));
        assert_eq!(whole.part(0, 1), whole);
    }

    #[test]
    fn what_one_cannot_do_is_refused() {
        let rate = GeneratorRequest { rate_per_second: Some(5.0), ..request() };
        let http2 = GeneratorRequest { version: ClientVersion::Http2, ..request() };
        let counted = GeneratorRequest { end: LoadEnd::Requests(5), ..request() };
        let refused = |name: &str, request: &GeneratorRequest| {
            let generator = named(name).expect("one of the four");
            (generator.refuses)(request).is_some()
        };
        assert!(!refused("vanward", &rate) && refused("wrk", &rate) && refused("h2load", &rate));
        assert!(refused("ab", &http2) && !refused("h2load", &http2));
        assert!(refused("wrk", &counted) && !refused("ab", &counted));
    }

    #[test]
    fn too_many_failures_make_the_rest_invalid() {
        let mut measured = measured(1.0, 990, 1, LatencyHistogram::default());
        measured.errors = errors([("read", 10), ("write", 0)]);
        assert_eq!(measured.errors.len(), 1);
        let read = |measured| counted(measured, "request", "");
        assert!(matches!(read(measured.clone()), MeasurementOutcome::Measured(_)));
        measured.errors = errors([("read", 11)]);
        assert!(matches!(read(measured.clone()), MeasurementOutcome::Invalid { .. }));
        // A round without any success keeps its errors.
        measured.requests = 0;
        let refused = read(measured.clone());
        assert_eq!(refused.figures().map(MeasuredFigures::error_count), Some(11));
        assert_eq!(refused.refusal(), Some("11 of 11 requests failed"));
        measured.errors.clear();
        assert_eq!(read(measured), MeasurementOutcome::Failed { reason: "no request succeeded".to_owned() });
    }
}
