//! Run of a plan: starts threads, begins the load on all of them together, and ends the run, also early.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::arrivals::ArrivalSchedule;
use crate::error::Error;
use crate::outcome::RunOutcome;
use crate::plan::{Arrival, LoadPlan};
use crate::record::ThreadRecord;
use crate::schedule::ScheduleWindow;
use crate::seconds::{self, CurrentSecond, SecondPart, Seconds};
use crate::summary::{self, RunEnding, ThreadMeasurements};
use crate::target::{RenderedRequests, Targets};
use crate::timeline::Timeline;
use crate::usage::{self, Usage};
use crate::vigil::Vigil;
use crate::worker::{Active, Live, LoadShared, LoadWorker, Orders, ServerReach};
use crate::{multiplex, send, stream};

/// File descriptors besides connections: standard streams; and a poller, its waker and a timer for each thread.
const OTHER_DESCRIPTORS: u64 = 32;
/// Delay from the last ready connection to the first request, so that all threads are informed.
const HEAD_START: Duration = Duration::from_millis(2);
/// Time that a run with a schedule waits at its end for active and overdue requests. Without them the slowest would be
/// missing; the run still ends within a second.
const OVERTIME: Duration = Duration::from_millis(800);
/// Interval between checks whether the server is gone.
const BETWEEN_LOOKS: Duration = Duration::from_millis(250);
const STACK_BYTES: usize = 512 * 1024;
/// Stack size with HTTP/3: the QUIC implementation moves connections on the stack while they begin.
const STACK_BYTES_HTTP3: usize = 2 * 1024 * 1024;

/// Runs a plan to its end. Blocks the calling thread, which sends no load itself.
pub fn run(plan: &LoadPlan) -> Result<RunOutcome, Error> {
    start(plan)?.wait()
}

/// # Errors
/// Every reason for which [`start`] refuses a plan before it connects.
pub fn check(plan: &LoadPlan) -> Result<(), Error> {
    checked(plan).map(drop)
}

fn checked(plan: &LoadPlan) -> Result<Targets, Error> {
    plan.check()?;
    let targets = Targets::new(&stream::completed(plan))?;
    check_descriptors(plan, targets.servers.planned())?;
    match plan.server_process {
        Some(process) if usage::usage_of(process).is_none() => Err(Error::Plan {
            what: "the server's process (--pid)",
            expected: format!("a running one; there is no process {process}"),
        }),
        _ => Ok(targets),
    }
}

/// Starts the threads of a plan and returns at once.
pub fn start(plan: &LoadPlan) -> Result<RunningLoad, Error> {
    let targets = checked(plan)?;
    let streams = stream::Prepared::new(plan)?;
    let shared = Arc::new(LoadShared { plan: plan.clone(), targets, streams, reach: ServerReach::default() });
    let (orders, _) = watch::channel(Orders::default());
    let live: Arc<[Live]> = (0..plan.threads).map(|_| Live::default()).collect();
    let control = RunControl { orders: Arc::new(orders), live };
    let unready = Arc::new(AtomicUsize::new(plan.threads));
    let (sender, seconds) = seconds::watching(plan.threads);
    let threads = Vec::with_capacity(plan.threads);
    if let Some(seconds) = plan.directions.resolve_every_seconds {
        resolve_every(Duration::from_secs(seconds.into()), &shared)?;
    }
    let mut running = RunningLoad { shared, control, threads, seconds: plan.seconds.then_some(seconds) };
    for thread in 0..plan.threads {
        let sender = plan.seconds.then(|| sender.clone());
        running.threads.push(spawn(&running, thread, Arc::clone(&unready), sender)?);
    }
    Ok(running)
}

/// Starts a thread that resolves names again until the run is over. It is separate, because a look-up may take seconds.
fn resolve_every(interval: Duration, shared: &Arc<LoadShared>) -> Result<(), Error> {
    let shared = Arc::downgrade(shared);
    let resolve = move || {
        loop {
            std::thread::sleep(interval);
            let Some(shared) = shared.upgrade() else { return };
            shared.targets.servers.resolve_again();
        }
    };
    let builder = std::thread::Builder::new().name("load-names".to_owned()).stack_size(STACK_BYTES);
    let spawned = builder.spawn(resolve).map_err(|source| Error::System { action: "start a thread", source });
    // It ends at its next turn after the run.
    spawned.map(drop)
}

type Thread = JoinHandle<Result<ThreadMeasurements, Error>>;

fn spawn(
    running: &RunningLoad,
    thread: usize,
    unready: Arc<AtomicUsize>,
    seconds: Option<Sender<SecondPart>>,
) -> Result<Thread, Error> {
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
    let stack_bytes = if shared.plan.http3 { STACK_BYTES_HTTP3 } else { STACK_BYTES };
    let load = move || {
        let (orders, live) = (control.orders.subscribe(), Arc::clone(&control.live));
        let worker = LoadWorker::new(shared, thread, orders, live, Box::new(ready));
        worker.record.borrow_mut().second = seconds.map(|sender| Box::new(CurrentSecond::new(sender)));
        let measured = measure(worker, &control);
        guard.lift(measured.is_ok());
        measured
    };
    let builder = std::thread::Builder::new().name(format!("load-{thread}")).stack_size(stack_bytes);
    builder.spawn(load).map_err(|source| Error::System { action: "start a thread", source })
}

#[derive(Debug)]
pub struct RunningLoad {
    shared: Arc<LoadShared>,
    control: RunControl,
    threads: Vec<Thread>,
    seconds: Option<Seconds>,
}

impl RunningLoad {
    /// A handle to watch and stop the run from any thread.
    pub fn control(&self) -> RunControl {
        self.control.clone()
    }

    /// Figures of each second, during the run; `None` if the plan does not request them, or at the second call.
    pub fn seconds(&mut self) -> Option<Seconds> {
        self.seconds.take()
    }

    /// Blocks until the run is over.
    pub fn wait(self) -> Result<RunOutcome, Error> {
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
            (true, _) => RunEnding::Gone,
            (false, true) => RunEnding::Interrupted,
            (false, false) => RunEnding::Planned,
        };
        Ok(summary::outcome(&self.shared, parts, ending))
    }
}

#[derive(Debug, Clone)]
pub struct RunControl {
    orders: Arc<watch::Sender<Orders>>,
    live: Arc<[Live]>,
}

impl RunControl {
    /// Begins the load, unless no connection could be opened.
    fn start(&self, shared: &LoadShared) {
        if shared.reach.refusal().is_some() {
            return self.stop();
        }
        let window = window(&shared.plan, Instant::now() + HEAD_START);
        self.orders.send_modify(|orders| orders.window = Some(window));
    }

    /// Stops the run. Its outcome contains the measurements so far.
    pub fn stop(&self) {
        self.orders.send_modify(|orders| orders.stop = true);
    }

    /// Stops the run because the server is gone.
    fn give_up(&self) {
        self.orders.send_modify(|orders| (orders.stop, orders.is_gone) = (true, true));
    }

    /// Start of the measured window; `None` while connecting.
    pub fn window_start(&self) -> Option<Instant> {
        self.orders.borrow().window.map(|window| window.start)
    }

    pub fn progress(&self) -> RunProgress {
        let since = self
            .orders
            .borrow()
            .window
            .and_then(|window| Instant::now().checked_duration_since(window.start));
        let sum = |count: fn(&Live) -> u64| self.live.iter().map(count).sum();
        RunProgress {
            measured_seconds: since.map(|elapsed| elapsed.as_secs_f64()),
            requests: sum(|live| live.requests.load(Ordering::Relaxed)),
            errors: sum(|live| live.errors.load(Ordering::Relaxed)),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunProgress {
    /// Time since the measured window began; `None` while connecting or warming up.
    pub measured_seconds: Option<f64>,
    pub requests: u64,
    pub errors: u64,
}

/// Guard that stops the run if a thread fails: the other threads would wait for it forever.
#[derive(Debug)]
struct StopOnFailure(Option<RunControl>);

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

fn window(plan: &LoadPlan, load: Instant) -> ScheduleWindow {
    let start = load + Duration::from_secs_f64(plan.warm_up_seconds);
    ScheduleWindow {
        load,
        start,
        end: plan.window_seconds().map(|seconds| start + Duration::from_secs_f64(seconds)),
    }
}

fn drive_all(worker: &Rc<LoadWorker>, connections: &mut JoinSet<()>) {
    for index in 0..worker.connections() {
        match &worker.shared.targets.requests {
            _ if worker.shared.streams.is_some() => stream::drive_all(worker, index, connections),
            RenderedRequests::Http1(_) => {
                drop(connections.spawn_local(send::drive(Rc::clone(worker), index)));
            }
            RenderedRequests::Streams(_) => multiplex::drive_all(worker, index, connections),
        }
    }
}

/// Runs one load thread, from its runtime to its record.
fn measure(worker: LoadWorker, control: &RunControl) -> Result<ThreadMeasurements, Error> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build_local(tokio::runtime::LocalOptions::default());
    let runtime = runtime.map_err(|source| Error::System { action: "start an event loop", source })?;
    let worker = Rc::new(worker);
    runtime.block_on(async {
        let mut connections = JoinSet::new();
        drive_all(&worker, &mut connections);
        let window = tokio::select! {
            window = worker.wait_for_window() => window,
            () = all_ended(&mut connections) => worker.wait_for_window().await,
        };
        let Some(window) = window else { return Ok(ThreadMeasurements::nothing()) };
        worker.record.borrow_mut().timeline =
            worker.shared.plan.slot.map(|slot| Box::new(Timeline::new(window.start, slot)));
        worker.begin(window).map_err(|source| Error::System { action: "create a timer", source })?;
        let serving = Rc::clone(&worker);
        tokio::task::spawn_local(async move { serving.arrivals().serve().await });
        tokio::select! {
            () = tokio::time::sleep_until(window.start.into()) => {}
            () = worker.wait_for_stop() => return Ok(ThreadMeasurements::nothing()),
        }
        let (started_at, cpu_before, waited_before) = (SystemTime::now(), cpu_time(), waited());
        let server_before = worker.server_usage();
        if worker.shared.plan.seconds {
            tokio::task::spawn_local(each_second(Rc::clone(&worker), window.start));
        }
        let end = window.end.map(|end| end + overtime(&worker));
        tokio::select! {
            () = all_done(&mut connections, worker.arrivals(), window.end) => {}
            () = sleep_until(end) => {}
            () = worker.wait_for_stop() => {}
            () = worker.stream_done.notified() => {}
            // A window with an end needs no check.
            () = until_gone(&worker), if window.end.is_none() => control.give_up(),
        }
        if worker.shared.streams.is_some() {
            // When it ends, a stream counts the messages that it has not received.
            connections.shutdown().await;
        }
        // The other threads must not wait for this one.
        worker.tell_gone(true);
        let ended = Instant::now();
        let cpu = cpu_time().saturating_sub(cpu_before);
        let server = worker.server_usage().zip(server_before).map(|(after, before)| Usage {
            cpu: after.cpu.saturating_sub(before.cpu),
            memory_bytes: after.memory_bytes,
        });
        worker.record.borrow_mut().end_second(ended.saturating_duration_since(window.start), true);
        let slowest_us = worker.record.borrow().headline().histogram.max();
        let (unfinished, oldest_unfinished) = worker.under_way.borrow().at(ended);
        let unclaimed = count_unanswered(&worker, window, ended);
        let waited = waited().saturating_sub(waited_before);
        Ok(ThreadMeasurements {
            window: Some((window, ended)),
            started_at,
            cpu,
            waited,
            server,
            unclaimed,
            unfinished,
            oldest_unfinished,
            hanging: oldest_unfinished.saturating_sub(waited),
            slowest_us,
            record: worker.record.replace(ThreadRecord::new(worker.is_open_model)),
        })
    })
}

/// Records the unanswered requests at the end. Returns how many of them were never sent.
fn count_unanswered(worker: &LoadWorker, window: ScheduleWindow, ended: Instant) -> u64 {
    for Active { due, sent, request } in worker.under_way.borrow().all() {
        let [since_due, since_sent] = [due, sent].map(|then| ended.saturating_duration_since(then));
        let mut record = worker.record.borrow_mut();
        record.unanswered(since_due, Some(since_sent));
        if let Some(timeline) = &mut record.timeline {
            timeline.at(sent).unanswered += 1;
        }
        drop(record);
        worker.unanswered_part(request, due, if worker.is_open_model { since_due } else { since_sent });
    }
    let due_by = window.end.map_or(ended, |end| end.min(ended));
    let mut unclaimed = 0;
    for due in worker.arrivals().unclaimed(due_by) {
        let since_due = ended.saturating_duration_since(due);
        worker.record.borrow_mut().unanswered(since_due, None);
        worker.unanswered_part(None, due, since_due);
        unclaimed += 1;
    }
    unclaimed
}

/// Ends each second of a thread's record.
async fn each_second(worker: Rc<LoadWorker>, start: Instant) {
    for number in 1.. {
        let at = Duration::from_secs(number);
        tokio::time::sleep_until((start + at).into()).await;
        worker.record.borrow_mut().end_second(at, false);
    }
}

/// How long active and overdue requests may continue after the window. A closed loop does not wait for them; a schedule
/// does, because without them the slowest would be missing.
fn overtime(worker: &LoadWorker) -> Duration {
    match worker.arrivals() {
        // Receivers wait for the messages of senders in other threads.
        ArrivalSchedule::Closed(_) if worker.shared.plan.arrival == Arrival::Closed => Duration::ZERO,
        _ => OVERTIME.min(Duration::from_secs_f64(worker.shared.plan.timeout_seconds)),
    }
}

/// Waits until every connection is done: after the number of requests, or at the end of the window.
async fn all_done(connections: &mut JoinSet<()>, arrivals: &ArrivalSchedule, window_end: Option<Instant>) {
    all_ended(connections).await;
    // The last request of a schedule may be done long before its window ends.
    if !arrivals.is_spent() {
        sleep_until(window_end).await;
    }
}

async fn all_ended(connections: &mut JoinSet<()>) {
    while let Some(ended) = connections.join_next().await {
        // A panic must not look like a connection that is done.
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

/// Waits until the server is gone for all threads.
async fn until_gone(worker: &LoadWorker) {
    let mut vigil = Vigil::new(worker.senders(), Instant::now());
    loop {
        tokio::time::sleep(BETWEEN_LOOKS).await;
        if worker.tell_gone(worker.is_gone(&mut vigil, Instant::now())) {
            return;
        }
    }
}

/// Time that this thread was ready to run and waited for a core; 0 if the kernel does not report it.
fn waited() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = told.split_whitespace().nth(1).and_then(|number| number.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// User and system CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Checks that the limit on open files suffices for the plan.
fn check_descriptors(plan: &LoadPlan, servers: usize) -> Result<(), Error> {
    let servers = if plan.has_streams() { servers as u64 } else { 1 };
    let needed = plan.connections as u64 * servers + OTHER_DESCRIPTORS + 4 * plan.threads as u64;
    let limit = getrlimit(Resource::Nofile).current;
    if limit.is_some_and(|limit| limit < needed) {
        let source = std::io::Error::other(format!("it takes {needed} open files (ulimit -n)"));
        return Err(Error::System { action: "open that many connections (-c)", source });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};

    use super::*;
    use crate::directions::DialAddress;

    /// A server of HTTP/1.1 or HTTP/2 on loopback, and the number of its requests.
    fn server(http2: bool) -> (SocketAddr, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (address, requests) = (listener.local_addr().expect("an address"), Arc::<AtomicUsize>::default());
        let count = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let count = Arc::clone(&count);
                std::thread::spawn(
                    move || if http2 { streams(stream, &count) } else { exchanges(stream, &count) },
                );
            }
        });
        (address, requests)
    }

    fn exchanges(mut stream: std::net::TcpStream, count: &AtomicUsize) {
        let mut buffer = [0; 4096];
        while matches!(stream.read(&mut buffer), Ok(bytes) if bytes > 0) {
            count.fetch_add(1, Ordering::SeqCst);
            // The generator may have gone.
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
        }
    }

    fn streams(stream: std::net::TcpStream, count: &AtomicUsize) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            stream.set_nonblocking(true).expect("a socket");
            let stream = tokio::net::TcpStream::from_std(stream).expect("a socket");
            let Ok(mut connection) = h2::server::handshake(stream).await else { return };
            while let Some(Ok((_, mut answer))) = connection.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let head = ::http::Response::builder().status(204).body(()).expect("a head");
                let _ = answer.send_response(head, true);
            }
        });
    }

    #[test]
    fn after_another_answer_of_the_name_server_the_load_moves_without_a_failure() {
        for http2 in [false, true] {
            let [(first, before), (second, after)] = [server(http2), server(http2)];
            let mut plan = LoadPlan {
                http2,
                connections: 2,
                streams: if http2 { 4 } else { 1 },
                duration_seconds: None,
                requests: Some(1_000_000_000),
                ..LoadPlan::new(format!("http://localhost:{}/", first.port()))
            };
            // Longer than the test: it stands for the name server.
            plan.directions.resolve_every_seconds = Some(86_400);
            let running = start(&plan).expect("it starts");
            let control = running.control();
            let until = |count: &AtomicUsize, least: usize| {
                while count.load(Ordering::SeqCst) < least {
                    std::thread::yield_now();
                }
            };
            until(&before, 100);
            let addresses = &running.shared.targets.servers.get(0).addresses;
            assert!(addresses.replace(vec![DialAddress::Ip(second)]));
            until(&after, 100);
            let left = before.load(Ordering::SeqCst);
            until(&after, 1000);
            // A request of each stream may have been on its way.
            assert!(before.load(Ordering::SeqCst) <= left + 8, "HTTP/2: {http2}");
            control.stop();
            let told = running.wait().expect("an outcome");
            assert_eq!((told.errors.total(), told.statuses.len()), (0, 1), "HTTP/2: {http2}, {told:?}");
        }
    }
}
