//! A run from start to end: threads, the moment at which all begin together, the measured window, the early end.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::arrivals::Arrivals;
use crate::error::Error;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::record::Record;
use crate::schedule::Window;
use crate::summary::{self, Ending, Measured};
use crate::target::{Requests, Targets};
use crate::vigil::Vigil;
use crate::worker::{Live, Orders, Reach, Shared, Worker};
use crate::{multiplex, send};

/// Descriptors that are not connections: standard streams, and a poller, its waker and a timer for each thread.
const OTHER_DESCRIPTORS: u64 = 32;
/// From the moment at which every connection is ready to the first request, so that all threads hear of it.
const HEAD_START: Duration = Duration::from_millis(2);
/// A schedule waits so long for what is under way or overdue when it ends: leaving all of that out would leave out the
/// worst, and with it the run still ends within a second of its time.
const OVERTIME: Duration = Duration::from_millis(800);
/// Between two looks at whether the server is gone.
const BETWEEN_LOOKS: Duration = Duration::from_millis(250);
/// The stack of a load thread, which calls nothing deep.
const STACK_BYTES: usize = 512 * 1024;

/// Runs the plan to its end. Blocks the calling thread, which sends no load itself.
pub fn run(plan: &Plan) -> Result<Outcome, Error> {
    start(plan)?.wait()
}

/// Starts the plan's threads and returns at once.
pub fn start(plan: &Plan) -> Result<Running, Error> {
    plan.check()?;
    let targets = Targets::new(plan)?;
    check_descriptors(plan, targets.servers.len())?;
    let shared = Arc::new(Shared { plan: plan.clone(), targets, reach: Reach::default() });
    let (orders, _) = watch::channel(Orders::default());
    let live: Arc<[Live]> = (0..plan.threads).map(|_| Live::default()).collect();
    let control = Control { orders: Arc::new(orders), live };
    let unready = Arc::new(AtomicUsize::new(plan.threads));
    let mut running = Running { shared, control, threads: Vec::with_capacity(plan.threads) };
    for thread in 0..plan.threads {
        running.threads.push(spawn(&running, thread, Arc::clone(&unready))?);
    }
    Ok(running)
}

type Thread = JoinHandle<Result<Measured, Error>>;

fn spawn(running: &Running, thread: usize, unready: Arc<AtomicUsize>) -> Result<Thread, Error> {
    let (shared, control) = (Arc::clone(&running.shared), running.control.clone());
    let ready = {
        let (shared, control) = (Arc::clone(&shared), control.clone());
        move || {
            // The last thread to get ready starts them all.
            if unready.fetch_sub(1, Ordering::AcqRel) == 1 {
                control.start(&shared);
            }
        }
    };
    let guard = StopOnFailure(Some(control.clone()));
    let load = move || {
        let (orders, live) = (control.orders.subscribe(), Arc::clone(&control.live));
        let measured = measure(Worker::new(shared, thread, orders, live, Box::new(ready)), &control);
        guard.lift(measured.is_ok());
        measured
    };
    let builder = std::thread::Builder::new().name(format!("load-{thread}")).stack_size(STACK_BYTES);
    builder.spawn(load).map_err(|source| Error::System { action: "start a thread", source })
}

/// A run under way.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    control: Control,
    threads: Vec<Thread>,
}

impl Running {
    /// To watch the run and to end it, from any thread.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Blocks until the run is over.
    pub fn wait(self) -> Result<Outcome, Error> {
        let mut parts = Vec::with_capacity(self.threads.len());
        for thread in self.threads {
            parts.push(thread.join().unwrap_or(Err(Error::ThreadEnded)));
        }
        let parts = parts.into_iter().collect::<Result<Vec<_>, _>>()?;
        if let Some(reason) = self.shared.reach.refusal() {
            return Err(Error::Unreachable { reason: reason.to_owned() });
        }
        let Orders { stop, is_gone, .. } = *self.control.orders.borrow();
        let ending = match (is_gone, stop) {
            (true, _) => Ending::Gone,
            (false, true) => Ending::Interrupted,
            (false, false) => Ending::Planned,
        };
        Ok(summary::outcome(&self.shared, parts, ending))
    }
}

/// A handle on a run.
#[derive(Debug, Clone)]
pub struct Control {
    orders: Arc<watch::Sender<Orders>>,
    live: Arc<[Live]>,
}

impl Control {
    /// Begins the load, unless no connection could be opened.
    fn start(&self, shared: &Shared) {
        if shared.reach.refusal().is_some() {
            return self.stop();
        }
        let window = window(&shared.plan, Instant::now() + HEAD_START);
        self.orders.send_modify(|orders| orders.window = Some(window));
    }

    /// Ends the run now; what was measured so far is its outcome.
    pub fn stop(&self) {
        self.orders.send_modify(|orders| orders.stop = true);
    }

    /// Ends the run, since the server is gone.
    fn give_up(&self) {
        self.orders.send_modify(|orders| (orders.stop, orders.is_gone) = (true, true));
    }

    /// Where the run is.
    pub fn progress(&self) -> Progress {
        let since = self
            .orders
            .borrow()
            .window
            .and_then(|window| Instant::now().checked_duration_since(window.start));
        let sum = |count: fn(&Live) -> u64| self.live.iter().map(count).sum();
        Progress {
            measured_seconds: since.map(|elapsed| elapsed.as_secs_f64()),
            requests: sum(|live| live.requests.load(Ordering::Relaxed)),
            errors: sum(|live| live.errors.load(Ordering::Relaxed)),
        }
    }
}

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Since the measured window began; `None` while it connects or warms up.
    pub measured_seconds: Option<f64>,
    /// Successful requests so far.
    pub requests: u64,
    /// Failed ones.
    pub errors: u64,
}

/// Ends the whole run if a thread cannot go on: the others would wait for it for ever.
#[derive(Debug)]
struct StopOnFailure(Option<Control>);

impl StopOnFailure {
    fn lift(mut self, is_well: bool) {
        if is_well {
            self.0 = None;
        }
    }
}

impl Drop for StopOnFailure {
    fn drop(&mut self) {
        if let Some(control) = &self.0 {
            control.stop();
        }
    }
}

fn window(plan: &Plan, load: Instant) -> Window {
    let start = load + Duration::from_secs_f64(plan.warm_up_seconds);
    Window { load, start, end: plan.duration_seconds.map(|seconds| start + Duration::from_secs_f64(seconds)) }
}

/// One load thread, from its runtime to its record.
fn measure(worker: Worker, control: &Control) -> Result<Measured, Error> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build_local(tokio::runtime::LocalOptions::default());
    let runtime = runtime.map_err(|source| Error::System { action: "start an event loop", source })?;
    let worker = Rc::new(worker);
    runtime.block_on(async {
        let mut connections = JoinSet::new();
        for index in 0..worker.connections() {
            match &worker.shared.targets.requests {
                Requests::Http1(_) => drop(connections.spawn_local(send::drive(Rc::clone(&worker), index))),
                Requests::Http2(_) => multiplex::drive_all(&worker, index, &mut connections),
            }
        }
        let window = tokio::select! {
            window = worker.wait_for_window() => window,
            () = all_ended(&mut connections) => worker.wait_for_window().await,
        };
        let Some(window) = window else { return Ok(Measured::nothing()) };
        worker.begin(window).map_err(|source| Error::System { action: "create a timer", source })?;
        let serving = Rc::clone(&worker);
        tokio::task::spawn_local(async move { serving.arrivals().serve().await });
        tokio::select! {
            () = tokio::time::sleep_until(window.start.into()) => {}
            () = worker.wait_for_stop() => return Ok(Measured::nothing()),
        }
        let (started_at, cpu_before, waited_before) = (SystemTime::now(), cpu_time(), waited());
        let end = window.end.map(|end| end + overtime(&worker));
        tokio::select! {
            () = all_done(&mut connections, worker.arrivals(), window.end) => {}
            () = sleep_until(end) => {}
            () = worker.wait_for_stop() => {}
            // The end of a time comes by itself.
            () = until_gone(&worker), if window.end.is_none() => control.give_up(),
        }
        // Whoever is done waits for nobody.
        worker.tell_gone(true);
        let ended = Instant::now();
        let cpu = cpu_time().saturating_sub(cpu_before);
        let (unfinished, oldest_unfinished) = worker.under_way.borrow().at(ended);
        let due_by = window.end.map_or(ended, |end| end.min(ended));
        Ok(Measured {
            window: Some((window, ended)),
            started_at,
            cpu,
            waited: waited().saturating_sub(waited_before),
            unclaimed: worker.arrivals().unclaimed(due_by),
            unfinished,
            oldest_unfinished,
            record: worker.record.replace(Record::new(worker.is_open_model)),
        })
    })
}

/// How long overdue requests and those under way may go on after the window: a closed loop leaves them, a schedule
/// waits for them, as leaving them out would leave out the worst.
fn overtime(worker: &Worker) -> Duration {
    match worker.arrivals() {
        Arrivals::Closed(_) => Duration::ZERO,
        Arrivals::Open(_) => OVERTIME.min(Duration::from_secs_f64(worker.shared.plan.timeout_seconds)),
    }
}

/// Every connection is done: the number of requests is reached, or the window over.
async fn all_done(connections: &mut JoinSet<()>, arrivals: &Arrivals, window_end: Option<Instant>) {
    all_ended(connections).await;
    // The last request of a schedule may be done long before its window ends.
    if !arrivals.is_spent() {
        sleep_until(window_end).await;
    }
}

async fn all_ended(connections: &mut JoinSet<()>) {
    while let Some(ended) = connections.join_next().await {
        // A bug of ours must not pass for a connection that is done.
        if let Err(error) = ended
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

async fn sleep_until(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end.into()).await,
        None => std::future::pending().await,
    }
}

/// Ready when the server is gone for all threads.
async fn until_gone(worker: &Worker) {
    let mut vigil = Vigil::new(worker.senders(), Instant::now());
    loop {
        tokio::time::sleep(BETWEEN_LOOKS).await;
        if worker.tell_gone(worker.is_gone(&mut vigil, Instant::now())) {
            return;
        }
    }
}

/// How long this thread has been ready to run, and waited for a core; 0 where the kernel does not tell.
fn waited() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = told.split_whitespace().nth(1).and_then(|number| number.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// User and system time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// As many files may be open as this takes.
fn check_descriptors(plan: &Plan, servers: usize) -> Result<(), Error> {
    let servers = if plan.http2 { servers as u64 } else { 1 };
    let needed = plan.connections as u64 * servers + OTHER_DESCRIPTORS + 4 * plan.threads as u64;
    let limit = getrlimit(Resource::Nofile).current;
    if limit.is_some_and(|limit| limit < needed) {
        let source = std::io::Error::other(format!("it takes {needed} open files (ulimit -n)"));
        return Err(Error::System { action: "open that many connections (-c)", source });
    }
    Ok(())
}
