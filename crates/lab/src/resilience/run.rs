//! Runs a plan: for each proxy, it starts new origins, sends load, and carries out the steps at their times.

use std::path::Path;
use std::pin::Pin;
use std::time::{Duration, Instant};

use load::{Arrival, RunControl, RunOutcome, RunProblem, TimelineSlot as Counted};
use report::condition::FigureCondition;
use report::figure;
use report::resilience::{Phase, ResilienceRun, Results, SCHEMA, TimeSlot};
use report::results::{Absent, ClientVersion, Cores, File, Layer, OriginProtocol};
use tokio::time::sleep_until;

use crate::cores;
use crate::error::Error;
use crate::machine;
use crate::pages;
use crate::plan::{Features, OriginPayload, OwnProgram};
use crate::proxies::{self, Installed, Service};
use crate::resilience::effects::Effect;
use crate::resilience::faults::Injector;
use crate::resilience::judge::{self, Lived, MeasuredTime};
use crate::resilience::plan::{Action, FaultPlace, PlanStep, ResiliencePlan, SLOT};
use crate::resilience::servers::PlanServers;
use crate::resilience::suited;
use crate::start::{self, Started};

/// Lateness of a step above which the figures are invalid.
const LATE_MOST: Duration = Duration::from_millis(500);
/// Allowed lateness of the generator at p99 although a connection is free: half of the lowest bound on a p99.
const OWN_LATENESS_MOST_US: u64 = 50_000;
/// Interval between checks whether the load has started.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, Copy)]
pub enum RunReport<'t> {
    /// The load on a proxy begins.
    Begins(&'t str),
    /// A step is carried out: proxy, time, and the step's text.
    Step(&'t str, Duration, &'t str),
}

/// Runs a plan until its end, or until `interrupted`. The plan's text and the command are for the report.
pub async fn run(
    plan: &ResiliencePlan,
    own: &OwnProgram,
    file: File,
    command: String,
    interrupted: impl Future<Output = ()>,
    told: &mut dyn FnMut(RunReport<'_>),
) -> Result<Results, Error> {
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let (here, mut absent) = proxies::chosen(&plan.wanted, own);
    let names: Vec<&str> = plan.wanted.names.iter().map(String::as_str).collect();
    let assigned = cores::assign_all()?;
    let phases = plan.phases();
    let mut results = Results {
        schema: SCHEMA,
        title: plan.title.clone(),
        command,
        plan: file,
        version: own.version.clone(),
        started_unix_seconds: started.as_secs(),
        machine: machine::describe(cores::allowed()?.len()),
        alike: alike(plan),
        slot_seconds: SLOT.as_secs_f64(),
        marks: plan.marks(),
        phases,
        runs: Vec::new(),
        absent: Vec::new(),
        expectations: Vec::new(),
        interrupted: false,
    };
    let check = check(plan).await?;
    let mut interrupted = std::pin::pin!(interrupted);
    for installed in &here {
        if let Err(reason) = can_take_part(plan, installed) {
            absent.push(Absent { proxy: installed.name.clone(), remedy: reason.to_owned() });
            continue;
        }
        let measured = tokio::select! {
            biased;
            () = &mut interrupted => { results.interrupted = true; break }
            measured = measure(plan, &check, own, installed, &assigned, told) => measured,
        };
        match measured {
            Ok((run, measured, lived)) => {
                let judged =
                    judge::judge(&plan.expectations, &names, &results.phases, &run, &measured, &lived);
                results.expectations.extend(judged);
                results.runs.push(run);
            }
            Err(error @ Error::Unsupported { .. }) => {
                absent.push(Absent { proxy: installed.name.clone(), remedy: error.to_string() });
            }
            Err(error) => return Err(error),
        }
    }
    for one in &absent {
        let judged = judge::judge_absent(&plan.expectations, &names, &results.phases, &one.proxy);
        results.expectations.extend(judged);
    }
    results.absent = absent;
    if results.runs.is_empty() && !results.interrupted {
        return Err(Error::Empty("proxy that takes part"));
    }
    Ok(results)
}

/// Conditions that are the same for every proxy, a phrase each.
fn alike(plan: &ResiliencePlan) -> Vec<String> {
    let capacity = plan
        .capacity
        .map(|most| format!("each origin works on {} at once", figure::things(most.get(), "request")));
    let mut alike = vec![
        format!("{} requests/s", figure::rate(plan.rate)),
        figure::things(plan.connections.get(), "connection"),
        format!("{} for {:?}", plan.payload.path, plan.duration),
        format!("{} behind each proxy", figure::things(plan.origin_count(), "origin")),
        figure::things(plan.workers.get(), "worker"),
        format!("clients wait {:?}, proxies {:?} for a server", plan.timeout, plan.server_timeout),
    ];
    alike.extend(capacity);
    alike
}

/// The reason why a proxy cannot take part, if it cannot.
fn can_take_part(plan: &ResiliencePlan, installed: &Installed) -> Result<(), &'static str> {
    if plan.reloads() {
        suited::reload(installed)?;
    }
    if installed.target().is_some() && plan.needs_origins() {
        return Err("it was already running, with servers that are not the lab's");
    }
    Ok(())
}

/// Parts of the lab during the run of one proxy.
struct RunStage<'p> {
    plan: &'p ResiliencePlan,
    installed: &'p Installed,
    servers: PlanServers,
    /// `None` for a service that runs already.
    proxy: Option<Started>,
    /// Injects faults between clients and proxy.
    front: Option<Injector>,
    /// Effects of each fault of the plan.
    effects: Vec<Effect>,
    /// Steps that did not happen or had no effect: time and reason.
    missing: Vec<(Duration, String)>,
    /// Message that the proxy ended unplanned.
    ended: Option<String>,
    /// When the last of its processes had ended, after the start of the load.
    died: Option<Duration>,
    /// Failure of a part of the lab.
    broken: Option<String>,
    latest: Duration,
}

/// Check of the responses, if the lab knows them.
async fn check(plan: &ResiliencePlan) -> Result<load::Check, Error> {
    let path = plan.payload.path.as_str();
    if !plan.origins.is_own() || plan.responses == load::Responses::Any {
        return Ok(load::Check::default());
    }
    let mut check = pages::of_origin(std::iter::once(path)).await?.remove(path).unwrap_or_default();
    if check.size.is_some_and(|(least, _)| least > 0) {
        // The check of the body suffices, and a bad status stays among the errors of this kind.
        check.status.clear();
    }
    Ok(check)
}

async fn measure(
    plan: &ResiliencePlan,
    check: &load::Check,
    own: &OwnProgram,
    installed: &Installed,
    assigned: &Cores,
    told: &mut dyn FnMut(RunReport<'_>),
) -> Result<(ResilienceRun, Vec<MeasuredTime>, Lived), Error> {
    let folder = tempfile::Builder::new().prefix("vanward-lab-").tempdir();
    let folder = folder.map_err(|source| Error::Write { path: std::env::temp_dir(), source })?;
    let folder = folder.path();
    let servers = PlanServers::start(own, plan, &assigned.origins, folder).await?;
    let proxy = start_proxy(plan, installed, &servers, &assigned.proxy, folder).await?;
    let direct = match (&proxy, installed.target()) {
        (Some(proxy), _) => format!("http://{}", proxy.address),
        (None, Some((url, _))) => url.to_owned(),
        (None, None) => return Err(Error::Empty("proxy")),
    };
    let (front, url) = if plan.faults.iter().any(|fault| fault.place == FaultPlace::Clients) {
        let listen = start::free_address(start::ANY_PORT.ip())?;
        let front =
            Injector::start(own, "faults-clients", listen, &direct, None, &assigned.load, folder).await?;
        (Some(front), format!("http://{listen}"))
    } else {
        (None, direct)
    };
    let mut stage = RunStage {
        plan,
        installed,
        servers,
        proxy,
        front,
        effects: vec![Effect::default(); plan.faults.len()],
        missing: Vec::new(),
        ended: None,
        died: None,
        broken: None,
        latest: Duration::ZERO,
    };
    let load = load_plan(plan, &url, assigned.load.len());
    // The lab does not know the pages of a service that runs already.
    let check = if installed.target().is_none() { check.clone() } else { load::Check::default() };
    let load = load::LoadPlan { check, ..load };
    told(RunReport::Begins(&installed.name));
    let outcome = {
        let _stay = cores::stay_on(&assigned.load);
        let running = load::start(&load);
        drop(_stay);
        let running = running.map_err(not_loaded)?;
        let guard = StopOnDrop(running.control());
        let waiting = tokio::task::spawn_blocking(move || running.wait());
        let outcome = stage.carry_out(&guard.0, waiting, told).await;
        outcome?
    };
    Ok(stage.results(outcome))
}

/// Stops the load when a run is given up.
struct StopOnDrop(RunControl);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn not_loaded(error: load::Error) -> Error {
    Error::Generator { reason: error.to_string(), log: String::new() }
}

async fn start_proxy(
    plan: &ResiliencePlan,
    installed: &Installed,
    servers: &PlanServers,
    cores: &[usize],
    folder: &Path,
) -> Result<Option<Started>, Error> {
    let service = Service {
        listen: start::ANY_PORT,
        tls: None,
        version: ClientVersion::Http1,
        origins: servers.addresses(),
        upstream: OriginProtocol::Http,
        origins_certificate: None,
        layer: Layer::Seven,
        workers: plan.workers,
        keep_alive: true,
        access_log: false,
        features: Features::default(),
        target: None,
        streams: None,
    };
    let payload = match &plan.origins.ready {
        Some(path) => OriginPayload { path: path.clone(), bytes: None, ..plan.payload.clone() },
        None => plan.payload.clone(),
    };
    let launch =
        |service: &Service| suited::launch(installed, service, folder, plan.server_timeout, plan.capacity);
    start::launched(&installed.name, &service, cores, folder, &payload, launch).await
}

fn load_plan(plan: &ResiliencePlan, url: &str, cores: usize) -> load::LoadPlan {
    let stages = plan.stages();
    let arrival = match stages[..] {
        [_, _, ..] => Arrival::Stages { stages, seed: None },
        _ => Arrival::Constant { requests_per_second: plan.rate },
    };
    let has_stages = !arrival.stages().is_empty();
    load::LoadPlan {
        connections: plan.connections.get(),
        threads: cores.clamp(1, plan.connections.get()),
        arrival,
        slot: Some(SLOT),
        duration_seconds: (!has_stages).then_some(plan.duration.as_secs_f64()),
        warm_up_seconds: plan.warm_up.as_secs_f64(),
        timeout_seconds: plan.timeout.as_secs_f64(),
        responses: plan.responses,
        ..load::LoadPlan::new(format!("{url}{}", plan.payload.path))
    }
}

type Waiting = tokio::task::JoinHandle<Result<RunOutcome, load::Error>>;
type Joined = Result<Result<RunOutcome, load::Error>, tokio::task::JoinError>;

fn ending(joined: Joined) -> Result<RunOutcome, Error> {
    joined
        .map_err(|error| Error::Generator { reason: error.to_string(), log: String::new() })?
        .map_err(not_loaded)
}

impl RunStage<'_> {
    /// Carries out the steps at their times, and waits for the end of the load.
    async fn carry_out(
        &mut self,
        control: &RunControl,
        mut waiting: Waiting,
        told: &mut dyn FnMut(RunReport<'_>),
    ) -> Result<RunOutcome, Error> {
        let mut ended = Pin::new(&mut waiting);
        let start = loop {
            if let Some(start) = control.window_start() {
                break start;
            }
            tokio::select! {
                joined = &mut ended => return ending(joined),
                () = tokio::time::sleep(BETWEEN_LOOKS) => {}
            }
        };
        let mut joined = None;
        for (at, step) in self.plan.steps() {
            if joined.is_none() {
                joined = self.until(start + at, start, &mut ended).await;
            }
            let words = self.words(step);
            if joined.is_some() {
                self.missing.push((at, format!("{words} at {at:?}: the load had ended")));
                continue;
            }
            self.latest = self.latest.max(Instant::now().saturating_duration_since(start + at));
            told(RunReport::Step(&self.installed.name, at, &words));
            if let Err(error) = self.step(step).await {
                self.missing.push((at, format!("{words} at {at:?}: {error}")));
            }
        }
        let outcome = loop {
            match joined {
                Some(joined) => break ending(joined)?,
                None => joined = self.until(Instant::now() + SLOT, start, &mut ended).await,
            }
        };
        let noted = match &mut self.front {
            Some(front) => front.note(&mut self.effects).await,
            None => Ok(()),
        };
        if let Err(error) = noted.and(self.servers.note(&mut self.effects).await) {
            self.broken.get_or_insert(format!("The effect of the last faults is unknown: {error}."));
        }
        Ok(outcome)
    }

    /// Waits for a time, or for the end of the load, and returns its result. Checks the processes in each slot.
    async fn until(
        &mut self,
        time: Instant,
        start: Instant,
        ended: &mut Pin<&mut Waiting>,
    ) -> Option<Joined> {
        loop {
            self.look(start);
            tokio::select! {
                biased;
                joined = ended.as_mut() => {
                    self.look(start);
                    return Some(joined);
                }
                () = sleep_until(time.min(Instant::now() + SLOT).into()) => {}
            }
            if Instant::now() >= time {
                self.look(start);
                return None;
            }
        }
    }

    fn words(&self, step: PlanStep) -> String {
        match step {
            PlanStep::Do(action) => action.to_string(),
            PlanStep::Inject(index) => format!("inject {}", self.plan.faults[index]),
            PlanStep::Lift(index) => format!("end of {}", self.plan.faults[index]),
        }
    }

    async fn step(&mut self, step: PlanStep) -> Result<(), Error> {
        let Self { servers, effects, .. } = self;
        let faults = &self.plan.faults;
        match step {
            PlanStep::Do(Action::Kill(number)) => servers.kill(number, effects).await,
            PlanStep::Do(Action::Start(number)) => servers.begin(number, faults, effects).await,
            PlanStep::Do(Action::Pause(number)) => servers.pause(number).await,
            PlanStep::Do(Action::Resume(number)) => servers.resume(number, faults, effects).await,
            PlanStep::Do(Action::Reload) => {
                if let (Some(proxy), Ok(signal)) = (&mut self.proxy, suited::reload(self.installed)) {
                    proxy.group.signal_first(signal);
                }
                Ok(())
            }
            // The load generator changes its rate itself.
            PlanStep::Do(Action::Load(_)) => Ok(()),
            PlanStep::Inject(index) => self.change(index, true).await,
            PlanStep::Lift(index) => self.change(index, false).await,
        }
    }

    async fn change(&mut self, index: usize, is_on: bool) -> Result<(), Error> {
        let (faults, effects) = (&self.plan.faults, &mut self.effects);
        match (&mut self.front, faults[index].place) {
            (Some(front), FaultPlace::Clients) => {
                let mut wanted = front.active();
                wanted.retain(|one| *one != index);
                wanted.extend(is_on.then_some(index));
                front.agree(&wanted, faults, effects).await
            }
            _ => self.servers.change(index, is_on, faults, effects).await,
        }
    }

    /// Notes processes that have ended, once.
    fn look(&mut self, start: Instant) {
        if let Some(proxy) = self.proxy.as_mut().filter(|_| self.died.is_none())
            && let Some(error) = proxy.group.ended()
        {
            let after = Instant::now().saturating_duration_since(start);
            self.ended.get_or_insert_with(|| format!("{error}, after {:.1} s.", after.as_secs_f64()));
            // Workers that outlive their master still answer.
            self.died = (!proxy.group.has_others()).then_some(after);
        }
        if self.broken.is_none() {
            let front = self.front.as_mut().and_then(|front| front.group().ended());
            self.broken = front.or_else(|| self.servers.ended()).map(|error| format!("{error}."));
        }
    }

    /// Indices of the phases that were not tested, with the reason: a step did not happen, or a fault had no effect.
    fn untested(&self, phases: &[Phase]) -> Vec<(Vec<usize>, String)> {
        let during = |from: Duration, until: Duration| {
            let (from, until) = (from.as_secs_f64(), until.as_secs_f64());
            let is_during = |phase: &Phase| phase.from_seconds < until && from < phase.until_seconds;
            (0..phases.len()).filter(|index| is_during(&phases[*index])).collect()
        };
        let steps = self.missing.iter().map(|(at, why)| (during(*at, *at + SLOT), why.clone()));
        let plan = self.plan;
        let faults = plan.faults.iter().zip(&self.effects).filter_map(|(fault, effect)| {
            let due = plan.due(fault.from, fault.until);
            let why = effect.missing(fault, due, plan.origin_count())?;
            // Without an effect there is nothing to recover from, so the phase after it was not tested either.
            Some((during(fault.from, fault.until + SLOT), format!("{fault}: {why}")))
        });
        steps.chain(faults).collect()
    }

    fn results(self, outcome: RunOutcome) -> (ResilienceRun, Vec<MeasuredTime>, Lived) {
        let (plan, slot_seconds) = (self.plan, SLOT.as_secs_f64());
        let phases = plan.phases();
        let unsent = outcome.schedule.as_ref().map_or(0, |kept| kept.unsent);
        let mut slots = outcome.slots.clone();
        let count = (plan.duration.as_secs_f64() / slot_seconds).round() as usize;
        // Requests that were sent after the end were due before it.
        let late = slots.get(count..).map_or(0, |late| late.iter().map(|slot| slot.unanswered).sum());
        let unanswered = unsent + late;
        slots.resize_with(count, Counted::default);
        let measured = measured(&slots, &phases, unanswered, slot_seconds);
        let bounds = match &plan.recovered[..] {
            [] => judge::bounds(&measured[0]),
            given => given.to_vec(),
        };
        let figures = phases.iter().zip(&measured).map(|(phase, measured)| {
            let of_phase = judge::of_phase(&slots, phase, slot_seconds);
            let recovery = (phase.from_seconds > 0.0)
                .then(|| judge::recovery(of_phase, measured.unanswered, slot_seconds, &bounds))
                .flatten();
            measured.figures(recovery)
        });
        let figures = figures.collect();
        let untested = self.untested(&phases);
        let mut problems = self.problems(&outcome);
        let remarks = plan.faults.iter().zip(&self.effects).map(|(fault, effect)| effect.remark(fault));
        let mut remarks: Vec<String> = self.ended.clone().into_iter().chain(remarks).collect();
        // If the run cannot fail because of this proxy, an untested phase is only a remark.
        let is_judged = judge::is_judged(&plan.expectations, &self.installed.name, &plan.wanted.names);
        let told = if is_judged { &mut problems } else { &mut remarks };
        told.extend(not_tested(&phases, &untested));
        let (command, files) =
            self.proxy.map(|proxy| (proxy.process.command, proxy.process.files)).unwrap_or_default();
        let run = ResilienceRun {
            proxy: self.installed.name.clone(),
            version: self.installed.version.clone(),
            command,
            files,
            whole: measured[phases.len()].figures(None),
            phases: figures,
            recovered: bounds.iter().map(|bound: &FigureCondition| bound.text().to_owned()).collect(),
            slots: slots.iter().map(slot).collect(),
            error_examples: examples(&outcome),
            remarks,
            problems,
        };
        let untested = untested.into_iter().flat_map(|(indices, _)| indices).collect();
        (run, measured, Lived { died: self.died, untested })
    }

    /// Reasons why the figures are not the proxy's. Its death is not one, because its clients got these results.
    fn problems(&self, outcome: &RunOutcome) -> Vec<String> {
        let of_load = outcome.problems.iter().filter(|_| self.died.is_none()).filter_map(of_load);
        let late =
            (self.latest > LATE_MOST).then(|| format!("A step of the plan ran {:?} late.", self.latest));
        of_load.chain(late).chain(self.broken.clone()).collect()
    }
}

fn not_tested(phases: &[Phase], untested: &[(Vec<usize>, String)]) -> impl Iterator<Item = String> {
    untested.iter().map(|(indices, why)| {
        let names: Vec<_> = indices.iter().map(|index| format!("{:?}", phases[*index].name)).collect();
        format!("Not tested: {}. {why}.", names.join(", "))
    })
}

/// The requests of each phase, then of the whole run. Requests without a result at the end belong to the last phase.
fn measured(slots: &[Counted], phases: &[Phase], unanswered: u64, slot_seconds: f64) -> Vec<MeasuredTime> {
    let of = |phase: (usize, &Phase)| {
        let (index, phase) = phase;
        let of_phase = judge::of_phase(slots, phase, slot_seconds);
        let is_last = index + 1 == phases.len();
        MeasuredTime {
            slot: Counted::merged(of_phase),
            unanswered: if is_last { unanswered } else { 0 },
            seconds: phase.until_seconds - phase.from_seconds,
        }
    };
    let whole =
        MeasuredTime { slot: Counted::merged(slots), unanswered, seconds: slots.len() as f64 * slot_seconds };
    phases.iter().enumerate().map(of).chain([whole]).collect()
}

fn slot(slot: &Counted) -> TimeSlot {
    let at = |quantile: f64| slot.quantile_us(quantile).unwrap_or_default();
    TimeSlot {
        requests: slot.requests,
        failed: slot.errors.total() + slot.unanswered,
        p50_us: at(0.5),
        p99_us: at(0.99),
        max_us: at(1.0),
    }
}

fn examples(outcome: &RunOutcome) -> std::collections::BTreeMap<String, String> {
    let named = outcome.error_examples.iter().map(|(class, text)| {
        (serde_json::to_string(class).unwrap_or_default().trim_matches('"').to_owned(), text.clone())
    });
    named.collect()
}

/// The reason why a problem of the load makes the figures those of the lab, not of the proxy.
fn of_load(problem: &RunProblem) -> Option<String> {
    match problem {
        RunProblem::GeneratorLate { own_lateness_p99_us, .. }
            if *own_lateness_p99_us > OWN_LATENESS_MOST_US =>
        {
            Some(format!(
                "The load generator had too little CPU time: it sent {} late at p99.",
                figure::duration_us(*own_lateness_p99_us as f64)
            ))
        }
        RunProblem::RateMissed { by: load::MissedBy::Generator, unsent, .. } => {
            Some(format!("The load generator had too little CPU time: {unsent} requests were never sent."))
        }
        // A proxy that is too slow for the load, or fails it, is a valid result.
        RunProblem::GeneratorLate { .. }
        | RunProblem::RateMissed { .. }
        | RunProblem::AgentLost { .. }
        | RunProblem::Hung { .. } => None,
    }
}
