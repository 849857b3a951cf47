//! Runs a plan: for each proxy it starts the origins anew, sends load, and carries out the steps at their times.

use std::path::Path;
use std::pin::Pin;
use std::time::{Duration, Instant};

use load::{Arrival, Control, Outcome, Problem, Slot as Counted};
use report::condition::Condition;
use report::figure;
use report::resilience::{Phase, Results, Run, SCHEMA, Slot};
use report::results::{Absent, Cores, File, Layer, Upstream, Version};
use rustix::process::Signal;
use tokio::time::sleep_until;

use crate::cores;
use crate::error::Error;
use crate::machine;
use crate::plan::{Features, Own, Payload};
use crate::proxies::{self, Installed, Service};
use crate::resilience::faults::Injector;
use crate::resilience::judge::{self, Measured};
use crate::resilience::plan::{Action, Place, Plan, SLOT, Step};
use crate::resilience::servers::{Servers, fault_name};
use crate::resilience::suited;
use crate::start::{self, Started};

/// How late a step may be carried out before the figures are invalid.
const LATE_MOST: Duration = Duration::from_millis(500);
/// How late the generator may send at p99 although a connection is free: half of the lowest bound on a p99.
const OWN_LATENESS_MOST_US: u64 = 50_000;
/// How often the start of the load is looked for.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// Progress of a run.
#[derive(Debug, Clone, Copy)]
pub enum Told<'t> {
    /// The load on a proxy begins.
    Begins(&'t str),
    /// A step is carried out: proxy, time, and what happens.
    Step(&'t str, Duration, &'t str),
}

/// Runs a plan until its end, or until `interrupted`. The plan's text and the command are for the report.
pub async fn run(
    plan: &Plan,
    own: &Own,
    file: File,
    command: String,
    interrupted: impl Future<Output = ()>,
    told: &mut dyn FnMut(Told<'_>),
) -> Result<Results, Error> {
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let (here, mut absent) = proxies::chosen(&plan.wanted, own);
    let names: Vec<&str> = here.iter().map(|installed| installed.name.as_str()).collect();
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
    let mut interrupted = std::pin::pin!(interrupted);
    for installed in &here {
        if let Err(reason) = can_take_part(plan, installed) {
            absent.push(Absent { proxy: installed.name.clone(), remedy: reason.to_owned() });
            continue;
        }
        let measured = tokio::select! {
            biased;
            () = &mut interrupted => { results.interrupted = true; break }
            measured = measure(plan, own, installed, &assigned, told) => measured,
        };
        match measured {
            Ok((run, measured)) => {
                let judged = judge::judge(&plan.expectations, &names, &results.phases, &run, &measured);
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
        results.expectations.extend(judge::judge_absent(&plan.expectations, &names, &one.proxy));
    }
    results.absent = absent;
    if results.runs.is_empty() && !results.interrupted {
        return Err(Error::Empty("proxy that takes part"));
    }
    Ok(results)
}

/// What is alike for every proxy, a phrase each.
fn alike(plan: &Plan) -> Vec<String> {
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

/// Why a proxy cannot take part, if it cannot.
fn can_take_part(plan: &Plan, installed: &Installed) -> Result<(), &'static str> {
    if plan.reloads() {
        suited::reload(installed)?;
    }
    if installed.target().is_some() && plan.needs_origins() {
        return Err("it runs already: its servers are not the lab's");
    }
    Ok(())
}

/// What a run is carried out on.
struct Stage<'p> {
    plan: &'p Plan,
    installed: &'p Installed,
    servers: Servers,
    /// `None` for a service that runs already.
    proxy: Option<Started>,
    /// Injects faults between clients and proxy.
    front: Option<Injector>,
    /// What happened and was not planned.
    remarks: Vec<String>,
    latest: Duration,
}

async fn measure(
    plan: &Plan,
    own: &Own,
    installed: &Installed,
    assigned: &Cores,
    told: &mut dyn FnMut(Told<'_>),
) -> Result<(Run, Vec<Measured>), Error> {
    let folder = tempfile::Builder::new().prefix("vanward-lab-").tempdir();
    let folder = folder.map_err(|source| Error::Write { path: std::env::temp_dir(), source })?;
    let folder = folder.path();
    let servers = Servers::start(own, plan, &assigned.origins, folder).await?;
    let proxy = start_proxy(plan, installed, &servers, &assigned.proxy, folder).await?;
    let direct = match (&proxy, installed.target()) {
        (Some(proxy), _) => format!("http://{}", proxy.address),
        (None, Some((url, _))) => url.to_owned(),
        (None, None) => return Err(Error::Empty("proxy")),
    };
    let (front, url) = if plan.faults.iter().any(|fault| fault.place == Place::Clients) {
        let listen = start::free_address(start::ANY_PORT.ip())?;
        let front =
            Injector::start(own, "faults-clients", listen, &direct, None, &assigned.load, folder).await?;
        (Some(front), format!("http://{listen}"))
    } else {
        (None, direct)
    };
    let mut stage =
        Stage { plan, installed, servers, proxy, front, remarks: Vec::new(), latest: Duration::ZERO };
    let load = load_plan(plan, &url, assigned.load.len());
    told(Told::Begins(&installed.name));
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
struct StopOnDrop(Control);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn not_loaded(error: load::Error) -> Error {
    Error::Generator { reason: error.to_string(), log: String::new() }
}

async fn start_proxy(
    plan: &Plan,
    installed: &Installed,
    servers: &Servers,
    cores: &[usize],
    folder: &Path,
) -> Result<Option<Started>, Error> {
    let service = Service {
        listen: start::ANY_PORT,
        tls: None,
        version: Version::Http1,
        origins: servers.addresses(),
        upstream: Upstream::Http,
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
        Some(path) => Payload { path: path.clone(), bytes: None, ..plan.payload.clone() },
        None => plan.payload.clone(),
    };
    let launch =
        |service: &Service| suited::launch(installed, service, folder, plan.server_timeout, plan.capacity);
    start::launched(&installed.name, &service, cores, folder, &payload, launch).await
}

fn load_plan(plan: &Plan, url: &str, cores: usize) -> load::Plan {
    let stages = plan.stages();
    let arrival = match stages[..] {
        [_, _, ..] => Arrival::Stages { stages, seed: None },
        _ => Arrival::Constant { requests_per_second: plan.rate },
    };
    let has_stages = !arrival.stages().is_empty();
    load::Plan {
        connections: plan.connections.get(),
        threads: cores.clamp(1, plan.connections.get()),
        arrival,
        slot: Some(SLOT),
        duration_seconds: (!has_stages).then_some(plan.duration.as_secs_f64()),
        warm_up_seconds: plan.warm_up.as_secs_f64(),
        timeout_seconds: plan.timeout.as_secs_f64(),
        ..load::Plan::new(format!("{url}{}", plan.payload.path))
    }
}

type Waiting = tokio::task::JoinHandle<Result<Outcome, load::Error>>;

impl Stage<'_> {
    /// Carries out the steps at their times, and waits for the end of the load.
    async fn carry_out(
        &mut self,
        control: &Control,
        mut waiting: Waiting,
        told: &mut dyn FnMut(Told<'_>),
    ) -> Result<Outcome, Error> {
        let mut ended = Pin::new(&mut waiting);
        let ending = |joined: Result<Result<Outcome, load::Error>, tokio::task::JoinError>| {
            joined
                .map_err(|error| Error::Generator { reason: error.to_string(), log: String::new() })?
                .map_err(not_loaded)
        };
        let start = loop {
            if let Some(start) = control.window_start() {
                break start;
            }
            tokio::select! {
                joined = &mut ended => return ending(joined),
                () = tokio::time::sleep(BETWEEN_LOOKS) => {}
            }
        };
        for (at, step) in self.plan.steps() {
            tokio::select! {
                joined = &mut ended => return ending(joined),
                () = sleep_until((start + at).into()) => {}
            }
            self.latest = self.latest.max(Instant::now().saturating_duration_since(start + at));
            let words = self.words(step);
            told(Told::Step(&self.installed.name, at, &words));
            self.look();
            if let Err(error) = self.step(step).await {
                self.remarks.push(format!("{words} at {at:?}: {error}"));
            }
        }
        let outcome = ending(ended.await);
        self.look();
        outcome
    }

    fn words(&self, step: Step) -> String {
        match step {
            Step::Do(action) => action.to_string(),
            Step::Inject(index) => format!("inject {}", self.plan.faults[index]),
            Step::Lift(index) => format!("end of {}", self.plan.faults[index]),
        }
    }

    async fn step(&mut self, step: Step) -> Result<(), Error> {
        let faults = &self.plan.faults;
        match step {
            Step::Do(Action::Kill(number)) => self.servers.kill(number),
            Step::Do(Action::Start(number)) => self.servers.begin(number, faults).await?,
            Step::Do(Action::Pause(number)) => self.servers.signal(number, Signal::STOP),
            Step::Do(Action::Resume(number)) => self.servers.signal(number, Signal::CONT),
            Step::Do(Action::Reload) => {
                if let (Some(proxy), Ok(signal)) = (&mut self.proxy, suited::reload(self.installed)) {
                    proxy.group.signal_first(signal);
                }
            }
            // A stage of the load.
            Step::Do(Action::Load(_)) => {}
            Step::Inject(index) => {
                let fault = &faults[index];
                match (&self.front, fault.place) {
                    (Some(front), Place::Clients) => front.inject(&fault.kind, &fault_name(index)).await?,
                    _ => self.servers.inject(index, fault).await?,
                }
            }
            Step::Lift(index) => {
                let fault = &faults[index];
                match (&self.front, fault.place) {
                    (Some(front), Place::Clients) => front.lift(&fault.kind, &fault_name(index)).await?,
                    _ => self.servers.lift(index, fault).await?,
                }
            }
        }
        Ok(())
    }

    /// Remarks a proxy that has ended, once.
    fn look(&mut self) {
        if let Some(error) = self.proxy.as_mut().and_then(|proxy| proxy.group.ended())
            && self.remarks.iter().all(|remark| !remark.contains("ended by itself"))
        {
            self.remarks.push(error.to_string());
        }
    }

    fn results(self, outcome: Outcome) -> (Run, Vec<Measured>) {
        let (plan, slot_seconds) = (self.plan, SLOT.as_secs_f64());
        let phases = plan.phases();
        let unsent = outcome.schedule.as_ref().map_or(0, |kept| kept.unsent);
        let mut slots = outcome.slots.clone();
        let count = (plan.duration.as_secs_f64() / slot_seconds).round() as usize;
        // What was sent after the end was due before it.
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
        let (command, files) =
            self.proxy.map(|proxy| (proxy.process.command, proxy.process.files)).unwrap_or_default();
        let run = Run {
            proxy: self.installed.name.clone(),
            version: self.installed.version.clone(),
            command,
            files,
            whole: measured[phases.len()].figures(None),
            phases: figures.collect(),
            recovered: bounds.iter().map(|bound: &Condition| bound.text().to_owned()).collect(),
            slots: slots.iter().map(slot).collect(),
            error_examples: examples(&outcome),
            remarks: self.remarks,
            problems: problems(&outcome, self.latest),
        };
        (run, measured)
    }
}

/// The requests of each phase, then of the whole run. What has no result at the end belongs to the last phase.
fn measured(slots: &[Counted], phases: &[Phase], unanswered: u64, slot_seconds: f64) -> Vec<Measured> {
    let of = |phase: (usize, &Phase)| {
        let (index, phase) = phase;
        let of_phase = judge::of_phase(slots, phase, slot_seconds);
        let is_last = index + 1 == phases.len();
        Measured {
            slot: Counted::merged(of_phase),
            unanswered: if is_last { unanswered } else { 0 },
            seconds: phase.until_seconds - phase.from_seconds,
        }
    };
    let whole =
        Measured { slot: Counted::merged(slots), unanswered, seconds: slots.len() as f64 * slot_seconds };
    phases.iter().enumerate().map(of).chain([whole]).collect()
}

fn slot(slot: &Counted) -> Slot {
    let at = |quantile: f64| slot.quantile_us(quantile).unwrap_or_default();
    Slot {
        requests: slot.requests,
        failed: slot.errors.total() + slot.unanswered,
        p50_us: at(0.5),
        p99_us: at(0.99),
        max_us: at(1.0),
    }
}

fn examples(outcome: &Outcome) -> std::collections::BTreeMap<String, String> {
    let named = outcome.error_examples.iter().map(|(class, text)| {
        (serde_json::to_string(class).unwrap_or_default().trim_matches('"').to_owned(), text.clone())
    });
    named.collect()
}

/// Why the figures are those of the lab, and not of the proxy.
fn problems(outcome: &Outcome, latest: Duration) -> Vec<String> {
    let of_load = outcome.problems.iter().filter_map(|problem| match problem {
        Problem::GeneratorLate { own_lateness_p99_us, .. } if *own_lateness_p99_us > OWN_LATENESS_MOST_US => {
            Some(format!(
                "The load generator had too little CPU time: it sent {} late at p99.",
                figure::duration_us(*own_lateness_p99_us as f64)
            ))
        }
        Problem::RateMissed { by: load::MissedBy::Generator, unsent, .. } => {
            Some(format!("The load generator had too little CPU time: {unsent} requests were never sent."))
        }
        // A proxy that is too slow for the load, or fails it, is what is measured.
        Problem::GeneratorLate { .. } | Problem::RateMissed { .. } | Problem::AgentLost { .. } => None,
    });
    let late = (latest > LATE_MOST).then(|| format!("A step was carried out {latest:?} late."));
    of_load.chain(late).collect()
}
