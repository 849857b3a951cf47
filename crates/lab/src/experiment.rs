//! The run itself: rounds of every case and proxy, a fresh process of the proxy for each measurement.
//!
//! Closed loops come first: the constant rates, equal for all, follow from the slowest of them. A measurement that
//! fails is a result; only what makes every further one worthless ends the run.

use std::collections::HashSet;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use report::Summary;
use report::results::{
    Arrivals, Case, Conditions, Cores, Lacking, Measured, Outcome, Process, Proxy, Results, Run, SCHEMA,
    Sample, Scheme,
};
use report::statistics::Estimate;
use rustix::process::Pid;
use tokio::time::sleep;

use crate::certificate::Certificate;
use crate::error::Error;
use crate::generator::{self, End, Request};
use crate::origins::Origins;
use crate::plan::{CasePlan, Load, Plan, UrlList};
use crate::proxies::{Installed, Service};
use crate::usage::{Memory, Reading};
use crate::{connections, cores, expect, machine, start};

/// A process that was asked to end gets this long.
const GRACE: Duration = Duration::from_millis(500);
/// More threads than this send load no better.
const LOAD_THREADS_MOST: usize = 8;
/// One measurement in this many may be repeated if it was invalid: a busy machine must not make the run endless.
const REPEATED_SHARE: usize = 8;
/// The longest that goes unseen what a proxy uses.
const BETWEEN_SAMPLES: Duration = Duration::from_secs(1);

/// Where a run is, before each measurement.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'p> {
    /// Measurements made.
    pub done: usize,
    /// Measurements in all.
    pub total: usize,
    /// The proxy measured next.
    pub proxy: &'p str,
    /// The case measured next.
    pub case: &'p str,
    /// The round, from 1.
    pub round: usize,
}

/// Who follows a run.
pub trait Watcher {
    /// A measurement is about to be made.
    fn next(&mut self, progress: Progress<'_>);

    /// One was made: the results until now, for whoever keeps them against what may come.
    fn measured(&mut self, _results: &Results) {}
}

impl<F: FnMut(Progress<'_>)> Watcher for F {
    fn next(&mut self, progress: Progress<'_>) {
        self(progress);
    }
}

/// Runs the plan. If `interrupted` is ready first, what was measured by then is the result, with a note.
///
/// No process outlives the returned future, however it ends.
pub async fn run(
    plan: &Plan,
    interrupted: impl Future<Output = ()>,
    watcher: &mut impl Watcher,
) -> Result<Results, Error> {
    if plan.proxies.is_empty() || plan.cases.is_empty() {
        return Err(Error::Empty(if plan.cases.is_empty() { "case" } else { "proxy" }));
    }
    let mut interrupted = pin!(interrupted);
    // Asked first, so that the caller's signal handlers are there before the first process is.
    let mut experiment = tokio::select! {
        biased;
        () = &mut interrupted => return Err(Error::Interrupted),
        experiment = Experiment::prepare(plan) => experiment?,
    };
    let stopped = tokio::select! {
        biased;
        () = &mut interrupted => Some("it was interrupted".to_owned()),
        // What was measured before is worth keeping, whatever ended it.
        result = experiment.measure_all(watcher) => result.err().map(|error| error.to_string()),
    };
    Ok(experiment.finish(stopped))
}

/// A run under way.
struct Experiment<'p> {
    plan: &'p Plan,
    cores: Cores,
    folder: tempfile::TempDir,
    origins: Origins,
    /// What proxies show clients that speak TLS; `None` if no case is of it.
    certificate: Option<Certificate>,
    random: fastrand::Rng,
    began: Instant,
    repeats: usize,
    results: Results,
    _stay: cores::Stay,
}

impl<'p> Experiment<'p> {
    async fn prepare(plan: &'p Plan) -> Result<Self, Error> {
        let load_before = machine::load_average();
        let cores = cores::assign()?;
        let mut all: Vec<usize> =
            [&cores.proxy, &cores.origins, &cores.load].into_iter().flatten().copied().collect();
        all.sort_unstable();
        all.dedup();
        // This process reads /proc during measurements: not on the proxy's core.
        let stay = cores::stay_on(&cores.load)
            .map_err(|source| Error::System { action: "choose the cores of this process", source })?;
        let folder = tempfile::Builder::new().prefix("vanward-lab-").tempdir();
        let folder = folder.map_err(|source| Error::Write { path: std::env::temp_dir(), source })?;
        let origins = Origins::start(&plan.own, plan.origins, &cores.origins, folder.path()).await?;
        let has_tls = plan.cases.iter().any(|case| case.scheme == Scheme::Https);
        let certificate = has_tls.then(|| Certificate::make(folder.path())).transpose()?;
        let results = Results {
            schema: SCHEMA,
            title: plan.title.clone(),
            measured_by: format!("vanward {}", plan.own.version),
            command: plan.command.clone(),
            started_unix_seconds: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            took_seconds: 0.0,
            machine: machine::describe(all.len()),
            conditions: Conditions {
                load_before,
                rounds: plan.timing.rounds,
                measured_seconds: plan.timing.measured.as_secs_f64(),
                warm_up_seconds: plan.timing.warm_up.as_secs_f64(),
                seed: plan.seed,
                cores: cores.clone(),
                alike: alike(plan, &origins, certificate.as_ref()),
            },
            proxies: plan.proxies.iter().map(described).collect(),
            origins: origins.processes.clone(),
            cases: plan.cases.iter().map(described_case).collect(),
            runs: Vec::new(),
            notes: plan.notes.clone(),
            plan: plan.file.clone(),
            absent: plan.absent.clone(),
            lacking: lacking(plan, &origins, certificate.as_ref(), folder.path()),
            published: plan.published.clone(),
            expectations: Vec::new(),
            incomplete: None,
        };
        for urls in plan.cases.iter().filter_map(|case| case.urls) {
            let path = folder.path().join(list_name(&urls));
            fs::write(&path, urls.text()).map_err(|source| Error::Write { path, source })?;
        }
        let random = fastrand::Rng::with_seed(plan.seed);
        Ok(Self {
            plan,
            cores,
            folder,
            origins,
            certificate,
            random,
            began: Instant::now(),
            repeats: 0,
            results,
            _stay: stay,
        })
    }

    /// The closed loops, then the constant rates that follow from them.
    async fn measure_all(&mut self, watcher: &mut impl Watcher) -> Result<(), Error> {
        let (closed, paced): (Vec<usize>, Vec<usize>) =
            (0..self.plan.cases.len()).partition(|&index| self.plan.cases[index].load == Load::Closed);
        self.measure_rounds(&closed, watcher).await?;
        let paced: Vec<usize> = paced.into_iter().filter(|&index| self.set_rate(index)).collect();
        self.measure_rounds(&paced, watcher).await
    }

    /// Every round has every case once in a new order, and within it every proxy in a new order: what drifts, drifts
    /// for all of them alike.
    async fn measure_rounds(&mut self, cases: &[usize], watcher: &mut impl Watcher) -> Result<(), Error> {
        let plan = self.plan;
        for round in 1..=plan.timing.rounds {
            let mut cases = cases.to_vec();
            self.random.shuffle(&mut cases);
            for case in cases {
                let mut proxies: Vec<usize> =
                    (0..plan.proxies.len()).filter(|&proxy| self.takes_part(proxy, case)).collect();
                self.random.shuffle(&mut proxies);
                for proxy in proxies {
                    watcher.next(Progress {
                        done: self.results.runs.len(),
                        total: self.total(),
                        proxy: &plan.proxies[proxy].name,
                        case: &plan.cases[case].name,
                        round,
                    });
                    self.measure(proxy, case, round).await;
                    if self.may_repeat() {
                        self.measure(proxy, case, round).await;
                    }
                    watcher.measured(&self.results);
                    if let Some(error) = self.origins.ended() {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether the last measurement is worth another try: it ran, but the generator could not do its part. Both stay
    /// in the results.
    fn may_repeat(&mut self) -> bool {
        let is_invalid =
            self.results.runs.last().is_some_and(|run| matches!(run.outcome, Outcome::Invalid { .. }));
        let may = is_invalid && self.repeats < self.planned() / REPEATED_SHARE;
        self.repeats += usize::from(may);
        may
    }

    /// Measurements, as long as nothing has to be repeated.
    fn planned(&self) -> usize {
        let plan = self.plan;
        let of_case = |case| (0..plan.proxies.len()).filter(|&proxy| self.takes_part(proxy, case)).count();
        (0..plan.cases.len()).map(of_case).sum::<usize>() * plan.timing.rounds
    }

    fn takes_part(&self, proxy: usize, case: usize) -> bool {
        let (proxy, case) = (&self.plan.proxies[proxy], &self.plan.cases[case]);
        let lacks = |lacking: &Lacking| lacking.proxy == proxy.name && lacking.case == case.name;
        case.includes(proxy) && !self.results.lacking.iter().any(lacks)
    }

    /// Measurements in all, as far as is known.
    fn total(&self) -> usize {
        self.planned() + self.repeats
    }

    /// One measurement: start, warm up, measure, stop.
    async fn measure(&mut self, proxy: usize, case: usize, round: usize) {
        let began_seconds = self.began.elapsed().as_secs_f64();
        let mut command = String::new();
        let outcome = match self.measured(proxy, case, &mut command).await {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Failed { reason: error.to_string() },
        };
        let (proxy, case) = (self.plan.proxies[proxy].name.clone(), self.plan.cases[case].name.clone());
        self.results.runs.push(Run { proxy, case, round, began_seconds, command, outcome });
    }

    async fn measured(&mut self, proxy: usize, case: usize, command: &mut String) -> Result<Outcome, Error> {
        let plan = self.plan;
        let payload = &plan.cases[case].payload;
        let installed = &plan.proxies[proxy];
        let folder = tempfile::Builder::new().prefix(&installed.name).tempdir_in(self.folder.path());
        let folder = folder.map_err(|source| Error::Write { path: self.folder.path().to_owned(), source })?;
        let service = service(&plan.cases[case], &self.origins, self.certificate.clone());
        let running = start::proxy(installed, &service, &self.cores.proxy, folder.path(), payload).await?;
        if let Some(running) = &running {
            self.note_process(proxy, plan.cases[case].scheme, &running.process);
        }
        let group = running.as_ref().map(|running| running.group.id());
        let address = running.as_ref().map_or(self.origins.addresses[0], |running| running.address);
        let scheme = if service.tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{address}{}", payload.path);
        let request = self.request(case, url, service.tls.map(|tls| tls.certificate));
        *command = request.typed(&plan.own);
        if !plan.timing.warm_up.is_zero() && matches!(request.end, End::After(_)) {
            let warm_up = Request { end: End::After(plan.timing.warm_up), ..request.clone() };
            warm_up.run(&plan.own, &self.cores.load, folder.path()).await?;
        }

        let before = group.map(Reading::of).transpose()?;
        let used_before = (self.origins.cpu_seconds(), machine::cpu_seconds());
        let load = request.run(&plan.own, &self.cores.load, folder.path());
        let every = (plan.timing.measured / 2).min(BETWEEN_SAMPLES);
        let ports =
            std::iter::once(address).chain(self.origins.addresses.iter().copied()).map(|at| at.port());
        let (told, samples) = watching(group, before.as_ref(), &ports.collect::<Vec<_>>(), every, load).await;
        let mut outcome = generator::outcome(&told?);
        if let Outcome::Measured(measured) | Outcome::Invalid { measured, .. } = &mut outcome {
            let since = |now: Option<f64>, then: Option<f64>| Some((now? - then?).max(0.0));
            measured.origins_cpu_seconds = since(self.origins.cpu_seconds(), used_before.0);
            measured.machine_cpu_seconds = since(machine::cpu_seconds(), used_before.1);
            if let (Some(group), Some(before)) = (group, before) {
                let most = samples.iter().map(|sample| sample.memory_bytes).max().unwrap_or(0);
                let memory = Memory { bytes: most.max(Memory::of(group)?.bytes) };
                measured.usage = Some(Reading::of(group)?.since(&before, memory));
            }
            measured.samples = samples;
        }
        if let Some(running) = running {
            running.group.stop(GRACE).await;
        }
        Ok(outcome)
    }

    /// How a proxy is started, once for each scheme.
    fn note_process(&mut self, proxy: usize, scheme: Scheme, process: &Process) {
        let known = &mut self.results.proxies[proxy];
        match scheme {
            Scheme::Http if known.process == Process::default() => known.process = process.clone(),
            Scheme::Https => drop(known.https_process.get_or_insert_with(|| process.clone())),
            Scheme::Http => {}
        }
    }

    fn request(&self, case: usize, url: String, trusted: Option<PathBuf>) -> Request {
        let plan = &self.plan.cases[case];
        let connections = plan.connections.get();
        let threads = plan.threads.map_or(self.cores.load.len().min(LOAD_THREADS_MOST), NonZeroUsize::get);
        Request {
            url,
            trusted,
            connections,
            threads: threads.min(connections),
            end: plan.requests.map_or(End::After(self.plan.timing.measured), End::Requests),
            rate_per_second: match self.results.cases[case].arrivals {
                Arrivals::Closed => None,
                Arrivals::Constant { rate_per_second } => Some(rate_per_second),
            },
            urls: plan.urls.map(|urls| self.folder.path().join(list_name(&urls))),
            timeout: plan.timeout,
        }
    }

    /// Sets the rate of a case from the slowest of the closed loops with its payload; without one it is left out.
    fn set_rate(&mut self, case: usize) -> bool {
        let plan = &self.plan.cases[case];
        let Load::ShareOfSlowest(share) = plan.load else { return true };
        let closed = self.plan.cases.iter().find(|each| each.is_closed_loop_of(plan));
        let slowest = closed.and_then(|closed| self.slowest_per_second(closed));
        let Some(slowest) = slowest else {
            self.results.notes.push(format!(
                "{} was not measured: its rate follows from a closed loop that is otherwise alike, and there is none that \
                 every proxy went through.",
                plan.name
            ));
            return false;
        };
        let arrivals = Arrivals::Constant { rate_per_second: round_rate(slowest * share) };
        self.results.cases[case].arrivals = arrivals;
        true
    }

    /// The least of the proxies' median requests per second in a case; `None` if one has none.
    fn slowest_per_second(&self, case: &CasePlan) -> Option<f64> {
        let rate = |measured: &Measured| measured.requests as f64 / measured.seconds;
        let lacks =
            |name: &str| self.results.lacking.iter().any(|each| each.proxy == name && each.case == case.name);
        let proxies = self.plan.proxies.iter().filter(|proxy| case.includes(proxy) && !lacks(&proxy.name));
        let medians = proxies.map(|proxy| {
            let is_its = |run: &&Run| run.proxy == proxy.name && run.case == case.name;
            let runs = self.results.runs.iter().filter(is_its);
            Estimate::of(runs.filter_map(|run| run.outcome.valid()).map(rate)).map(|estimate| estimate.median)
        });
        medians.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::min)
    }

    /// The results, with what stopped early said in them.
    fn finish(mut self, stopped: Option<String>) -> Results {
        self.results.took_seconds = self.began.elapsed().as_secs_f64();
        self.results.incomplete = stopped.map(|why| {
            let (made, total) = (self.results.runs.len(), self.total());
            format!("The run ended after {made} of {total} measurements: {why}.")
        });
        if let Some(missing) = &self.results.incomplete {
            self.results.notes.insert(0, missing.clone());
        }
        let measured = |case: &Case| self.results.runs.iter().any(|run| run.case == case.name);
        let cases = self.results.cases.iter().filter(|case| measured(case)).cloned().collect();
        self.results.cases = cases;
        self.results.expectations = expect::judge(&self.plan.expectations, &Summary::of(&self.results));
        self.results
    }
}

/// What every proxy is given in a case, but for where it listens.
fn service(case: &CasePlan, origins: &Origins, certificate: Option<Certificate>) -> Service {
    Service {
        listen: start::ANY_PORT,
        tls: certificate.filter(|_| case.scheme == Scheme::Https),
        origins: origins.addresses.clone(),
        workers: case.workers,
        keep_alive: true,
        access_log: false,
        features: case.features,
    }
}

/// What is alike for every proxy in every case, a phrase each: what only some cases have is said with those.
fn alike(plan: &Plan, origins: &Origins, certificate: Option<&Certificate>) -> Vec<String> {
    let of_case = |case: &CasePlan| service(case, origins, certificate.cloned()).features();
    let mut phrases: Vec<String> = plan.cases.iter().flat_map(of_case).collect();
    let mut seen = HashSet::new();
    phrases.retain(|phrase| seen.insert(phrase.clone()));
    phrases
}

/// Every case that a proxy would take part in and cannot do, by asking for its configuration.
fn lacking(plan: &Plan, origins: &Origins, certificate: Option<&Certificate>, folder: &Path) -> Vec<Lacking> {
    let cells = plan.cases.iter().flat_map(|case| plan.proxies.iter().map(move |proxy| (case, proxy)));
    let refused = cells.filter(|(case, proxy)| case.includes(proxy)).filter_map(|(case, proxy)| {
        let service = service(case, origins, certificate.cloned());
        let reason = (proxy.driver.configure)(proxy, &service, folder).err()?.to_string();
        Some(Lacking { proxy: proxy.name.clone(), case: case.name.clone(), reason })
    });
    refused.collect()
}

/// Waits for `load`, and sees meanwhile what the group uses.
async fn watching<T>(
    group: Option<Pid>,
    before: Option<&Reading>,
    ports: &[u16],
    every: Duration,
    load: impl Future<Output = T>,
) -> (T, Vec<Sample>) {
    let mut load = pin!(load);
    let mut samples = Vec::new();
    let (Some(group), Some(first)) = (group, before) else { return (load.await, samples) };
    let mut last = first.clone();
    loop {
        tokio::select! {
            done = &mut load => return (done, samples),
            () = sleep(every) => {
                // One that ended has nothing: the load will say what came of that.
                let (Ok(now), Ok(memory)) = (Reading::of(group), Memory::of(group)) else { continue };
                let used = now.since(&last, memory);
                samples.push(Sample {
                    at_seconds: (now.at() - first.at()).as_secs_f64(),
                    busy_cores: (used.user_seconds + used.system_seconds) / used.seconds.max(f64::MIN_POSITIVE),
                    memory_bytes: memory.bytes,
                    threads: now.threads(),
                    connections: connections::established(ports),
                });
                last = now;
            }
        }
    }
}

/// The file of a list of URLs.
fn list_name(urls: &UrlList) -> String {
    format!("urls-{}-{}.txt", urls.total, urls.seed)
}

/// The two leading digits: a rate that people can read and type.
fn round_rate(rate_per_second: f64) -> f64 {
    let unit = 10f64.powf(rate_per_second.max(1.0).log10().floor() - 1.0).max(1.0);
    ((rate_per_second / unit).floor() * unit).max(1.0)
}

fn described(installed: &Installed) -> Proxy {
    Proxy {
        name: installed.name.clone(),
        role: installed.driver.role,
        version: installed.version.clone(),
        process: Process::default(),
        https_process: None,
    }
}

fn described_case(case: &CasePlan) -> Case {
    Case {
        name: case.name.clone(),
        scheme: case.scheme,
        payload: case.payload.name.clone(),
        payload_bytes: case.payload.bytes.unwrap_or(0),
        connections: case.connections.get(),
        arrivals: match case.load {
            // A share becomes a rate once the closed loops are measured.
            Load::Closed | Load::ShareOfSlowest(_) => Arrivals::Closed,
            Load::Rate(rate_per_second) => Arrivals::Constant { rate_per_second },
        },
        workers: case.workers.get(),
        requests: case.requests,
        features: case.features.phrases(),
        published: case.published.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Own, Timing};

    #[test]
    fn rates_have_two_digits_and_are_never_more_than_asked() {
        let cases = [(13_742.0, 13_000.0), (999.0, 990.0), (87.6, 87.0), (7.9, 7.0), (0.2, 1.0)];
        for (rate, expected) in cases {
            assert_eq!(round_rate(rate), expected, "{rate}");
        }
    }

    #[tokio::test]
    async fn a_plan_without_cases_is_refused() {
        let own = Own { program: "/bin/true".into(), version: String::new() };
        let plan = Plan {
            title: String::new(),
            command: String::new(),
            file: None,
            proxies: crate::proxies::installed(&own),
            own,
            absent: Vec::new(),
            cases: Vec::new(),
            origins: NonZeroUsize::MIN,
            timing: Timing::within(Duration::from_secs(1), 1),
            seed: 1,
            notes: Vec::new(),
            published: Vec::new(),
            expectations: Vec::new(),
        };
        let refused =
            run(&plan, std::future::pending(), &mut |_: Progress<'_>| {}).await.expect_err("nothing to do");
        assert!(refused.to_string().contains("case"), "{refused}");
    }
}
