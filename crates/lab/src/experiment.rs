//! Run of a plan: rounds of every case and proxy, with a fresh process of the proxy for each measurement.
//!
//! Closed loops come first, because the constant rates follow from the slowest proxy. A failed measurement is a result;
//! only errors that affect all further measurements end the run.

/// Describes a plan for the results.
pub(crate) mod describe;
/// Forecast of the duration of a run.
mod forecast;
/// Continues an interrupted run.
mod resume;
/// Search for the highest rate that meets a bound.
mod search;

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::certificate::CertificatePaths;
use crate::error::Error;
use crate::expect;
use crate::generator::{GeneratorRequest, LoadEnd};
use crate::origins::Addresses;
use crate::pages;
use crate::plan::{CasePlan, LabPlan, PlanLoad, UrlList};
use crate::proxies::{Installed, OriginVerification, Service};
use crate::sites::{MeasureOrder, Sites};
use report::Summary;
use report::results::{
    Arrivals, Case, ClientScheme, ClientVersion, Conditions, Lacking, MeasuredFigures, MeasurementOutcome,
    OriginProtocol, Results, Run, SCHEMA, SearchStep, Started, StartedProcess,
};
use report::statistics::Estimate;

pub use forecast::Forecast;
pub(crate) use forecast::Takers;
use search::{RateSearch, Tried};

/// Maximum number of load threads: more do not send load better.
const LOAD_THREADS_MOST: usize = 8;
/// Divisor of the number of measurements: this share of them may be repeated if invalid. The limit keeps a busy machine
/// from prolonging the run endlessly.
const REPEATED_SHARE: usize = 8;
/// Longest interval between two samples of a proxy's usage.
const BETWEEN_SAMPLES: Duration = Duration::from_secs(1);
/// First rate of a search without earlier results.
const FIRST_RATE: f64 = 1_000.0;

/// Progress of a run, before each measurement.
#[derive(Debug, Clone, Copy)]
pub struct ExperimentProgress<'p> {
    pub done: usize,
    pub total: usize,
    pub proxy: &'p str,
    pub case: &'p str,
    /// Counts from 1.
    pub round: usize,
    /// Estimated remaining time.
    pub left: Duration,
}

pub trait Watcher {
    /// Called before the first measurement, when everything is started.
    fn begins(&mut self, _forecast: &Forecast) {}

    fn next(&mut self, progress: ExperimentProgress<'_>);

    /// Called after each measurement with all results so far, for example to save them.
    fn measured(&mut self, _results: &Results) {}
}

impl<F: FnMut(ExperimentProgress<'_>)> Watcher for F {
    fn next(&mut self, progress: ExperimentProgress<'_>) {
        self(progress);
    }
}

/// Runs a plan on these machines. If `interrupted` is ready first, returns the results so far, with a note. Does not
/// repeat the measurements of `earlier`, a part of the same run.
///
/// No process outlives the returned future.
pub async fn run(
    plan: &LabPlan,
    sites: Sites,
    earlier: Option<Results>,
    interrupted: impl Future<Output = ()>,
    watcher: &mut impl Watcher,
) -> Result<Results, Error> {
    is_something(plan)?;
    let mut interrupted = pin!(interrupted);
    let mut experiment = tokio::select! {
        biased;
        () = &mut interrupted => return Err(Error::Interrupted),
        experiment = Experiment::prepare(plan, sites, earlier) => experiment?,
    };
    let stopped = tokio::select! {
        biased;
        () = &mut interrupted => Some("it was interrupted".to_owned()),
        // Earlier measurements are kept after any error.
        result = experiment.measure_all(watcher) => result.err().map(|error| error.to_string()),
    };
    Ok(experiment.finish(stopped))
}

fn is_something(plan: &LabPlan) -> Result<(), Error> {
    match (plan.proxies.is_empty(), plan.cases.is_empty()) {
        (_, true) => Err(Error::Empty("case")),
        (true, false) => Err(Error::Empty("proxy")),
        (false, false) => Ok(()),
    }
}

struct Experiment<'p> {
    plan: &'p LabPlan,
    sites: Sites,
    origins: Addresses,
    /// Certificate of the proxies; `None` if no case uses TLS.
    certificate: Option<CertificatePaths>,
    /// Certificate check for origins that are not the lab's.
    verified: Option<OriginVerification>,
    /// Checks of the responses of the lab's own origins, by path.
    pages: BTreeMap<String, load::Check>,
    random: fastrand::Rng,
    began: Instant,
    /// Duration of the interrupted run that this one continues.
    before_seconds: f64,
    /// Number of measurements of the interrupted run.
    before: usize,
    repeats: usize,
    /// Measurements of searches beyond the first of each.
    steps: usize,
    forecast: Forecast,
    results: Results,
}

impl<'p> Experiment<'p> {
    async fn prepare(plan: &'p LabPlan, mut sites: Sites, earlier: Option<Results>) -> Result<Self, Error> {
        let asks = |upstream| plan.cases.iter().any(|case| case.upstream == upstream);
        let has_tls =
            asks(OriginProtocol::Https) || plan.cases.iter().any(|case| case.scheme == ClientScheme::Https);
        let certificate = if has_tls { Some(sites.certify().await?) } else { None };
        let verified = match &plan.origins.tls {
            Some(tls) => Some(sites.trust_origins(tls).await?),
            None => None,
        };
        let (origins, processes) = sites.start_origins(plan, asks(OriginProtocol::Https)).await?;
        put_files(plan, &mut sites).await?;
        let pages = pages_of(plan).await?;
        let given = describe::GivenSettings {
            listen: sites.any_port_of_proxy(),
            origins: &origins,
            certificate: certificate.as_ref(),
            verified: verified.as_ref(),
        };
        let mut results = Results {
            schema: SCHEMA,
            title: plan.title.clone(),
            measured_by: format!("vanward {}", plan.own.version),
            command: plan.command.clone(),
            started_unix_seconds: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            took_seconds: 0.0,
            machine: sites.machine(),
            machines: sites.places(),
            conditions: Conditions {
                load_before: sites.load_before(),
                rounds: plan.timing.rounds,
                measured_seconds: plan.timing.measured.as_secs_f64(),
                warm_up_seconds: plan.timing.warm_up.as_secs_f64(),
                seed: plan.seed,
                cores: sites.cores(),
                alike: describe::alike(plan, &given),
                changes: plan.changes.clone(),
            },
            proxies: plan.proxies.iter().map(describe::proxy).collect(),
            lacking: describe::lacking(plan, &given, &mut sites).await?,
            origins: processes,
            cases: plan.cases.iter().map(describe::case).collect(),
            runs: Vec::new(),
            notes: plan.notes.clone(),
            plan: plan.file.clone(),
            absent: plan.absent.clone(),
            published: plan.published.clone(),
            expectations: Vec::new(),
            incomplete: None,
        };
        let before_seconds = earlier.map_or(Ok(0.0), |earlier| resume::take(earlier, &mut results))?;
        Ok(Self {
            plan,
            sites,
            origins,
            certificate,
            verified,
            pages,
            random: fastrand::Rng::with_seed(plan.seed),
            began: Instant::now(),
            before_seconds,
            before: results.runs.len(),
            repeats: 0,
            steps: 0,
            forecast: forecast(plan, &results),
            results,
        })
    }

    /// Measures the closed loops, then the constant rates that follow from them.
    async fn measure_all(&mut self, watcher: &mut impl Watcher) -> Result<(), Error> {
        watcher.begins(&self.forecast);
        let (closed, paced): (Vec<usize>, Vec<usize>) =
            (0..self.plan.cases.len()).partition(|&index| self.plan.cases[index].load == PlanLoad::Closed);
        self.measure_rounds(&closed, watcher).await?;
        let paced: Vec<usize> = paced.into_iter().filter(|&index| self.set_rate(index)).collect();
        self.measure_rounds(&paced, watcher).await
    }

    /// Measures the rounds. Each round has every case once in random order, and in each case every proxy in random
    /// order, so that drift affects all equally.
    async fn measure_rounds(&mut self, cases: &[usize], watcher: &mut impl Watcher) -> Result<(), Error> {
        let plan = self.plan;
        for round in 1..=plan.timing.rounds {
            let mut cases = cases.to_vec();
            self.random.shuffle(&mut cases);
            for case in cases {
                let mut proxies: Vec<usize> =
                    takers(plan, &self.results.lacking, &plan.cases[case]).collect();
                self.random.shuffle(&mut proxies);
                for proxy in proxies {
                    if is_done(&self.results, plan, (proxy, case, round)) {
                        continue;
                    }
                    watcher.next(ExperimentProgress {
                        done: self.results.runs.len(),
                        total: self.total(),
                        proxy: &plan.proxies[proxy].name,
                        case: &plan.cases[case].name,
                        round,
                        left: self.forecast.left(),
                    });
                    let (began, known) = (Instant::now(), self.results.runs.len());
                    self.take(proxy, case, round).await;
                    self.forecast.took(case, began.elapsed());
                    let are_up = self.sites.are_up().await;
                    if are_up.is_err() {
                        self.forget_failure(known);
                    }
                    // These results may be the last that a watcher saves.
                    self.results.took_seconds = self.seconds();
                    self.results.incomplete = Some(self.unfinished("later measurements were not saved"));
                    watcher.measured(&self.results);
                    are_up?;
                }
            }
        }
        Ok(())
    }

    /// Removes measurements that failed because of the lab itself, so that a continued run repeats them. `known` is the
    /// number of measurements before.
    fn forget_failure(&mut self, known: usize) {
        if self.results.runs[known..]
            .iter()
            .any(|run| matches!(run.outcome, MeasurementOutcome::Failed { .. }))
        {
            self.results.runs.truncate(known);
        }
    }

    /// Measures a proxy in a case for one round: one measurement, perhaps a repetition, or the steps of a search.
    async fn take(&mut self, proxy: usize, case: usize, round: usize) {
        if matches!(self.plan.cases[case].load, PlanLoad::Search(_)) {
            return self.search(proxy, case, round).await;
        }
        self.measure(proxy, case, round, None).await;
        if self.may_repeat() {
            self.measure(proxy, case, round, None).await;
        }
    }

    /// Searches the highest rate. Every step is a measurement; a failed one ends the search. Steps that the generator
    /// spoiled are repeated a few times.
    async fn search(&mut self, proxy: usize, case: usize, round: usize) {
        let mut search = RateSearch::from(self.likely_rate(proxy, case));
        while let Some(rate) = search.next() {
            self.measure(proxy, case, round, Some(rate)).await;
            self.steps += 1;
            let Some(Run { step: Some(step), outcome, .. }) = self.results.runs.last() else { return };
            search.tell(match outcome {
                MeasurementOutcome::Failed { .. } => break,
                MeasurementOutcome::Invalid { is_generators: true, .. } => Tried::Spoiled,
                MeasurementOutcome::Measured(_) | MeasurementOutcome::Invalid { .. } if step.is_met => {
                    Tried::Met(rate)
                }
                MeasurementOutcome::Measured(_) | MeasurementOutcome::Invalid { .. } => Tried::Missed(rate),
            });
        }
        // The forecast counts the round as one measurement already.
        self.steps = self.steps.saturating_sub(1);
    }

    /// First rate of a search: the result of the previous round, or half the rate of the matching closed loop.
    fn likely_rate(&self, proxy: usize, case: usize) -> f64 {
        let plan = &self.plan.cases[case];
        let name = &self.plan.proxies[proxy].name;
        let runs = || self.results.runs.iter().filter(|run| run.proxy == *name);
        let met = |run: &Run| run.step.filter(|step| step.is_met).map(|step| step.rate_per_second);
        let last = runs().filter(|run| run.case == plan.name).filter_map(met).next_back();
        let closed = self.plan.cases.iter().find(|each| each.is_closed_loop_of(plan));
        let managed = || {
            let of_loop = runs().filter(|run| closed.is_some_and(|closed| run.case == closed.name));
            let per_second = |measured: &MeasuredFigures| measured.requests as f64 / measured.seconds;
            let found = of_loop.filter_map(|run| run.outcome.valid()).map(per_second).next_back();
            found.map(|rate| rate / 2.0)
        };
        last.or_else(managed).unwrap_or(FIRST_RATE)
    }

    /// Whether the last measurement is invalid and may be repeated. Both measurements stay in the results.
    fn may_repeat(&mut self) -> bool {
        let is_invalid = self
            .results
            .runs
            .last()
            .is_some_and(|run| matches!(run.outcome, MeasurementOutcome::Invalid { .. }));
        let may = is_invalid && self.repeats < self.forecast.measurements() / REPEATED_SHARE;
        self.repeats += usize::from(may);
        may
    }

    /// Total number of measurements, as far as it is known.
    fn total(&self) -> usize {
        self.before + self.forecast.measurements() + self.repeats + self.steps
    }

    /// Duration of the run so far, without interruptions.
    fn seconds(&self) -> f64 {
        self.before_seconds + self.began.elapsed().as_secs_f64()
    }

    /// Makes one measurement: start, warm up, measure, stop. `rate` is the rate of a step of a search.
    async fn measure(&mut self, proxy: usize, case: usize, round: usize, rate: Option<f64>) {
        let began_seconds = self.seconds();
        let mut command = String::new();
        let outcome = match self.measured(proxy, case, rate, &mut command).await {
            Ok(outcome) => outcome,
            Err(error) => MeasurementOutcome::Failed { reason: error.to_string() },
        };
        let is_met = match (&self.plan.cases[case].load, outcome.valid()) {
            (PlanLoad::Search(bound), Some(measured)) => bound.is_met_by(&measured.latency),
            _ => false,
        };
        let step = rate.map(|rate_per_second| SearchStep { rate_per_second, is_met });
        let (proxy, case) = (self.plan.proxies[proxy].name.clone(), self.plan.cases[case].name.clone());
        self.results.runs.push(Run { proxy, case, round, began_seconds, command, step, outcome });
    }

    async fn measured(
        &mut self,
        proxy: usize,
        case: usize,
        rate: Option<f64>,
        command: &mut String,
    ) -> Result<MeasurementOutcome, Error> {
        let plan = self.plan;
        let (asked, installed) = (&plan.cases[case], &plan.proxies[proxy]);
        let service = self.given().service(asked).deviating(installed.deviation);
        let probed = plan.probe(asked);
        let started = self.sites.start_proxy(installed, &service, &probed).await?;
        if let Some((_, process)) = &started {
            self.note_start(proxy, &asked.name, &service, process);
        }
        let origins = self.origins.that_speak(asked.upstream);
        let address = started.map(|(address, _)| address).or(origins.first().copied());
        let (server, port) = match (installed.target(), address) {
            (Some((server, port)), _) => (server.to_owned(), port),
            (None, Some(address)) => {
                let scheme = if asked.scheme == ClientScheme::Https { "https" } else { "http" };
                (format!("{scheme}://{address}"), address.port())
            }
            (None, None) => return Err(Error::Empty("origin")),
        };
        let url = format!("{server}{}", asked.payload.path);
        let mut request = match installed.target() {
            None => self.request(case, url, service.trusted()),
            Some(_) => {
                let authority =
                    plan.authorities.get(&installed.name).map(|_| authority_name(&installed.name));
                // The lab does not know the pages of a service that runs already.
                let request = GeneratorRequest { check: None, ..self.request(case, url, None) };
                GeneratorRequest { authority: authority.map(PathBuf::from), ..request }
            }
        };
        request.rate_per_second = rate.or(request.rate_per_second);
        if !plan.timing.warm_up.is_zero() && matches!(request.end, LoadEnd::After(_)) {
            let warm_up = GeneratorRequest { end: LoadEnd::After(plan.timing.warm_up), ..request.clone() };
            self.sites.warm_up(asked.generator, &warm_up).await?;
        }
        let order = MeasureOrder {
            port,
            origin_ports: origins.iter().map(SocketAddr::port).collect(),

            every: (asked.measured(plan.timing) / 2).min(BETWEEN_SAMPLES),
            generator: asked.generator,
        };
        let outcome;
        (*command, outcome) = self.sites.measure(&order, &request).await?;
        self.sites.stop_proxy().await?;
        Ok(outcome)
    }

    fn given(&self) -> describe::GivenSettings<'_> {
        describe::GivenSettings {
            listen: self.sites.any_port_of_proxy(),
            origins: &self.origins,
            certificate: self.certificate.as_ref(),
            verified: self.verified.as_ref(),
        }
    }

    /// Records how a proxy is started, once for all cases that give it the same configuration.
    fn note_start(&mut self, proxy: usize, case: &str, service: &Service, process: &StartedProcess) {
        let given = [service.features(), service.features.phrases()].concat();
        // The setup of a command from the plan is unknown.
        let is_known = self.plan.proxies[proxy].template.command.is_empty();
        let setup = if is_known { service.setup() } else { BTreeMap::new() };
        let known = &mut self.results.proxies[proxy].started;
        let known_already = known.iter_mut().find(|started| started.given == given);
        let Some(started) = known_already else {
            known.push(Started { given, cases: vec![case.to_owned()], process: process.clone(), setup });
            return;
        };
        if !started.cases.iter().any(|name| name == case) {
            started.cases.push(case.to_owned());
        }
    }

    /// Request for all clients together. File names are relative to the folder of each client.
    fn request(&self, case: usize, url: String, trusted: Option<&Path>) -> GeneratorRequest {
        let plan = &self.plan.cases[case];
        let connections = plan.connections.get();
        let cores = self.sites.load_cores_least().min(LOAD_THREADS_MOST);
        let threads = plan.threads.map_or(cores, NonZeroUsize::get);
        GeneratorRequest {
            url,
            version: plan.version,
            trusted: trusted.and_then(Path::file_name).map(PathBuf::from),
            authority: None,
            connections,
            threads: threads.min(connections),
            end: plan.requests.map_or(LoadEnd::After(plan.measured(self.plan.timing)), LoadEnd::Requests),
            rate_per_second: match self.results.cases[case].arrivals {
                Arrivals::Closed | Arrivals::Searched { .. } => None,
                Arrivals::Constant { rate_per_second } => Some(rate_per_second),
            },
            urls: plan.urls.map(|urls| PathBuf::from(list_name(&urls))),
            requests_from: plan
                .requests_from
                .is_some()
                .then(|| PathBuf::from(requests_name(self.plan, case))),
            message: plan.message.clone(),
            streams: plan.streams.clone(),
            timeout: plan.timeout,
            check: self.check(plan),
            responses: plan.responses,
            says_keep_alive: self.plan.says_keep_alive && plan.version == ClientVersion::Http1,
        }
    }

    fn check(&self, case: &CasePlan) -> Option<load::Check> {
        match case.urls {
            _ if !self.plan.origins.is_own() || !case.asks_for_pages() => None,
            Some(urls) => Some(urls.check()),
            None => self.pages.get(&case.payload.path).cloned(),
        }
    }

    /// Sets the rate of a case from the slowest matching closed loop. Without one, the case is left out.
    fn set_rate(&mut self, case: usize) -> bool {
        let plan = &self.plan.cases[case];
        let PlanLoad::ShareOfSlowest(share) = plan.load else { return true };
        if matches!(self.results.cases[case].arrivals, Arrivals::Constant { .. }) {
            return true;
        }
        let closed = self.plan.cases.iter().find(|each| each.is_closed_loop_of(plan));
        let slowest = closed.and_then(|closed| self.slowest_per_second(closed));
        let Some(slowest) = slowest else {
            let note = format!(
                "{} was not measured: its rate is a share of a closed loop with otherwise equal settings, which not \
                 every proxy completed.",
                plan.name
            );
            // An interrupted run may have the note already.
            if !self.results.notes.contains(&note) {
                self.results.notes.push(note);
            }
            return false;
        };
        let arrivals = Arrivals::Constant { rate_per_second: round_rate(slowest * share) };
        self.results.cases[case].arrivals = arrivals;
        true
    }

    /// The lowest of the proxies' median requests per second in a case; `None` if a proxy has none.
    fn slowest_per_second(&self, case: &CasePlan) -> Option<f64> {
        let rate = |measured: &MeasuredFigures| measured.requests as f64 / measured.seconds;
        let lacks =
            |name: &str| self.results.lacking.iter().any(|each| each.proxy == name && each.case == case.name);
        let proxies = self.plan.proxies.iter().filter(|proxy| case.includes(proxy) && !lacks(&proxy.name));
        let medians = proxies.map(|proxy| {
            let is_its = |run: &&Run| run.proxy == proxy.name && run.case == case.name;
            let runs = self.results.runs.iter().filter(is_its);
            Estimate::from_values(runs.filter_map(|run| run.outcome.valid()).map(rate))
                .map(|estimate| estimate.median)
        });
        medians.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::min)
    }

    fn unfinished(&self, why: &str) -> String {
        format!("The run ended after {} of {} measurements: {why}.", self.results.runs.len(), self.total())
    }

    /// The results, with a note if the run stopped early.
    fn finish(mut self, stopped: Option<String>) -> Results {
        self.results.took_seconds = self.seconds();
        self.results.incomplete = stopped.map(|why| self.unfinished(&why));
        let measured = |case: &Case| self.results.runs.iter().any(|run| run.case == case.name);
        let cases = self.results.cases.iter().filter(|case| measured(case)).cloned().collect();
        self.results.cases = cases;
        self.results.expectations = expect::judge(self.plan, &Summary::from_results(&self.results));
        self.results
    }
}

/// Indices of the proxies that take part in a case.
fn takers<'p>(
    plan: &'p LabPlan,
    lacking: &'p [Lacking],
    case: &'p CasePlan,
) -> impl Iterator<Item = usize> + 'p {
    let lacks = |proxy: &Installed| {
        lacking.iter().any(|lacking| lacking.proxy == proxy.name && lacking.case == case.name)
    };
    let proxies = plan.proxies.iter().enumerate();
    proxies.filter(move |(_, proxy)| case.includes(proxy) && !lacks(proxy)).map(|(place, _)| place)
}

/// Forecast of the measurements that are missing in the results.
fn forecast(plan: &LabPlan, results: &Results) -> Forecast {
    let role = |place: usize| plan.proxies[place].driver.role;
    let takers = |case| takers(plan, &results.lacking, case);
    let roles: Vec<Takers> =
        plan.cases.iter().map(|case| Takers::from_roles(takers(case).map(role))).collect();
    let mut forecast = Forecast::new(plan.cases.iter().zip(roles), plan.timing);
    for (index, case) in plan.cases.iter().enumerate() {
        let rounds = takers(case).flat_map(|proxy| (1..=plan.timing.rounds).map(move |round| (proxy, round)));
        for (proxy, round) in rounds {
            if is_done(results, plan, (proxy, index, round)) {
                forecast.skip(index);
            }
        }
    }
    forecast
}

fn is_done(results: &Results, plan: &LabPlan, (proxy, case, round): (usize, usize, usize)) -> bool {
    let (proxy, case) = (&plan.proxies[proxy].name, &plan.cases[case].name);
    results.runs.iter().any(|run| run.round == round && run.proxy == *proxy && run.case == *case)
}

/// Checks of the responses of the lab's own origins, by path.
async fn pages_of(plan: &LabPlan) -> Result<BTreeMap<String, load::Check>, Error> {
    let cases = plan.cases.iter().filter(|case| case.asks_for_pages());
    let paths = cases.map(|case| case.payload.path.as_str());
    if plan.origins.is_own() { pages::of_origin(paths).await } else { Ok(BTreeMap::new()) }
}

/// Writes the input files of the generators on every client: authorities, URLs and requests.
async fn put_files(plan: &LabPlan, sites: &mut Sites) -> Result<(), Error> {
    for (name, authority) in &plan.authorities {
        sites.put_for_clients(&authority_name(name), authority).await?;
    }
    let mut lists: Vec<UrlList> = Vec::new();
    for urls in plan.cases.iter().filter_map(|case| case.urls) {
        if !lists.contains(&urls) {
            sites.put_for_clients(&list_name(&urls), &urls.text()).await?;
            lists.push(urls);
        }
    }
    let mut names = HashSet::new();
    for (number, case) in plan.cases.iter().enumerate() {
        let name = requests_name(plan, number);
        if let Some(list) = case.requests_from.as_ref().filter(|_| names.insert(name.clone())) {
            sites.put_for_clients(&name, &list.text()?).await?;
        }
    }
    Ok(())
}

fn list_name(urls: &UrlList) -> String {
    format!("urls-{}-{}.txt", urls.total, urls.seed)
}

/// File name of a case's list of requests. Cases with the same list share it.
fn requests_name(plan: &LabPlan, case: usize) -> String {
    let list = &plan.cases[case].requests_from;
    let first = plan.cases.iter().position(|other| other.requests_from == *list);
    format!("requests-{}.json", first.unwrap_or(case))
}

/// File name of the authorities of a service that runs already.
fn authority_name(service: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    format!("ca-{}.pem", service.chars().map(letter).collect::<String>())
}

/// Rounds a rate to two digits, so that people can read and type it.
fn round_rate(rate_per_second: f64) -> f64 {
    let unit = 10f64.powf(rate_per_second.max(1.0).log10().floor() - 1.0).max(1.0);
    ((rate_per_second / unit).floor() * unit).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{OriginPlan, OwnProgram, Timing};

    #[test]
    fn rates_have_two_digits_and_are_never_more_than_asked() {
        let cases = [(13_742.0, 13_000.0), (999.0, 990.0), (87.6, 87.0), (7.9, 7.0), (0.2, 1.0)];
        for (rate, expected) in cases {
            assert_eq!(round_rate(rate), expected, "{rate}");
        }
    }

    #[test]
    fn a_plan_without_cases_is_refused() {
        let own = OwnProgram { program: "/bin/true".into(), version: String::new() };
        let plan = LabPlan {
            title: String::new(),
            command: String::new(),
            file: None,
            proxies: crate::proxies::installed(&own),
            own,
            absent: Vec::new(),
            cases: Vec::new(),
            origins: OriginPlan::own(NonZeroUsize::MIN),
            timing: Timing::within(Duration::from_secs(1), 1),
            seed: 1,
            notes: Vec::new(),
            changes: Vec::new(),
            published: Vec::new(),
            expectations: Vec::new(),
            says_keep_alive: false,
            authorities: BTreeMap::new(),
        };
        let refused = is_something(&plan).expect_err("nothing to do");
        assert!(refused.to_string().contains("case"), "{refused}");
    }
}
