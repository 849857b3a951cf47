//! The control side: starts and ends the workers, and does everything outside of the path of a request.

/// Automatic certificates.
mod acme;
/// The admin API.
mod admin;
/// Watches certificate files.
mod certificates;
/// Watches the files of maps.
mod map_files;
/// Changes of maps that several instances make together.
mod map_sharing;
/// Replaces the configuration.
mod change;
/// Plans that were replaced, until no request uses them.
mod retired;
/// Captures that routes write to files.
mod capture_files;
/// Opens the access log as it is configured.
mod open_log;
/// Outlier ejection: compares servers.
mod ejection;
/// Reports servers that go on failing requests.
mod failing_servers;
/// Descriptions of listeners.
mod served;
/// Reports changes of servers in a new plan.
mod server_changes;
/// Instances that share a cache.
mod cache_peers;
/// The handover to the new process in an upgrade.
mod handover;
/// Listeners of the admin API and of the metrics.
mod control_listener;
/// The listeners of the control thread, across configuration changes.
mod own_listeners;
/// The endpoint of metrics for Prometheus.
mod metrics;
/// The dashboard, a page for operators.
mod dashboard;
/// Messages to the service manager.
mod notify;
/// Listening sockets of the service manager.
mod activation;
/// Reports healthy workers to the service manager.
mod watchdog;
/// The memory limit.
mod pressure;
/// Fetches keys of tokens.
mod keys;
/// Connections to servers outside of upstreams.
mod outbound;
/// Services of Consul.
mod catalog;
/// Sources of servers and of the configuration, and their failures.
mod sources;
/// Active health checks.
mod probe;
/// Operators' changes at run time.
mod runtime_overrides;
/// A small HTTP server for the admin API and metrics.
pub mod service;
/// Sharing through Redis.
#[cfg(feature = "redis")]
mod shared;
/// Replaces `shared` in a build without Redis.
#[cfg(not(feature = "redis"))]
mod alone;
/// Explains which route a request takes.
mod route_explained;
/// Explains the conditions of a route's options.
mod route_conditions;
/// Values of a request in a route, for explanations.
mod route_values;
/// Sends traces to a collector.
mod tracing;
/// Signal handling.
mod signals;
/// Periodic tasks that wake up together.
mod tick;
/// Starts the new process of an upgrade.
mod upgrade;

#[cfg(test)]
mod tests {
    /// Tests of server names whose addresses change.
    mod names;
    /// Tests of services in Consul.
    mod catalog;
    /// Tests of services and their SRV records.
    mod services;
    /// Tests of connections and logs between workers.
    mod workers;
}

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use config::{Config, ListenAddress, MessageFormat, MessageLevel, Reading};
use rustix::io::Errno;
use telemetry::{CounterReader, Counters, Series, Snapshot, message};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::admin::{Admin, AdminPath};
#[cfg(not(feature = "redis"))]
use crate::alone as shared;
use crate::catalog::Catalog;
use crate::change::{Control, Means, WorkerStart, worker_count};
use crate::control_listener::{ControlListener, PageAddress};
pub use crate::handover::Inheritance;
use crate::handover::Predecessor;
pub use crate::map_sharing::{ShareMap, SharedMapOrder};
use crate::metrics::Metrics;
use crate::outbound::Outbound;
pub use crate::route_explained::{RouteExplained, explain_route};
use crate::runtime_overrides::shaping_overrides;
pub use crate::signals::run_until_signal;
pub use crate::sources::{SharedConfiguration, SourceFailure};
use proxy::cache;
use proxy::context::plan::Plan;
use proxy::context::worker::WorkerMessage;
pub use proxy::shared::live_maps::{SharedBase, SharedChange, SharedState};
use proxy::worker::{self, WorkerParts};
use transport::descriptors::RAISE_LIMIT;
use transport::resolve;
use transport::resolve::WantedNames;
pub use transport::resolve::unresolved;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {address}: {error}{}", remedy(.address, .error))]
    Listen {
        /// As configured.
        address: ListenAddress,
        error: io::Error,
    },
    /// Otherwise clients of that socket would wait for ever, because no listener serves it.
    #[error(
        "the service manager passes a socket for {0}, and no [[listen]] has that address: add it, or remove it from the socket unit"
    )]
    Activated(ListenAddress),
    #[error("cannot open the access log {target}: {error}{}", room_for_folder(.error))]
    Log {
        /// As configured.
        target: String,
        error: io::Error,
    },
    #[error("cannot create the capture {}: {error}{}", .file.display(), room_for_folder(.error))]
    Capture { file: PathBuf, error: io::Error },
    #[error("cannot use TLS as configured: {}", listed(.0))]
    Tls(Vec<tls::CertificateProblem>),
    #[error("overrides of the admin API do not fit the configuration; remove them first: {}", change::sentences(.0))]
    Overrides(Vec<config::Mistake>),
    #[error("this process is on its way out: another one has taken over, or it drains")]
    Leaving,
    #[error("cannot start a thread: {}{}", .0, room_for_files(.0))]
    Thread(io::Error),
}

fn listed(problems: &[tls::CertificateProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn remedy(address: &ListenAddress, error: &io::Error) -> &'static str {
    match (address, error.kind()) {
        (ListenAddress::Tcp(_) | ListenAddress::Any(_), io::ErrorKind::AddrInUse) => {
            "; another process listens there: stop it or choose another port"
        }
        (ListenAddress::Tcp(_) | ListenAddress::Any(_), io::ErrorKind::PermissionDenied) => {
            "; ports below 1024 need the capability CAP_NET_BIND_SERVICE"
        }
        (ListenAddress::Tcp(_) | ListenAddress::Any(_), io::ErrorKind::AddrNotAvailable) => {
            "; this machine has no such address"
        }
        (ListenAddress::Unix(_), io::ErrorKind::AddrInUse) => {
            "; another process listens there: stop it or choose another path"
        }
        (ListenAddress::Unix(_), io::ErrorKind::AlreadyExists) => "; choose another path",
        (ListenAddress::Unix(_), io::ErrorKind::PermissionDenied) => {
            "; the process has to be allowed to write to its directory"
        }
        (ListenAddress::Unix(_), io::ErrorKind::NotFound) => "; its directory has to exist",
        _ => room_for_files(error),
    }
}

/// The remedy for a file whose folder is missing or inaccessible.
fn room_for_folder(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; its directory has to exist",
        io::ErrorKind::PermissionDenied => "; the process has to be allowed to write to it and its directory",
        _ => room_for_files(error),
    }
}

/// The remedy if the process has too many open files.
fn room_for_files(error: &io::Error) -> &'static str {
    let is_full = Errno::from_io_error(error) == Some(Errno::MFILE);
    if is_full { RAISE_LIMIT } else { "" }
}

/// Reloads the configuration. Also returns all its mistakes.
pub type Reread = Box<dyn Fn() -> Reading + Send + Sync>;

#[derive(Default)]
pub struct Setup {
    /// Reads the configuration for a reload. Without it, reloads are rejected.
    pub reread: Option<Reread>,
    pub inheritance: Inheritance,
    /// The name of this instance among others; `None` means the host name.
    pub instance: Option<String>,
    /// Shares changes of maps with other instances. Without it, each change applies to this instance alone.
    pub share_map: Option<ShareMap>,
    /// Returns the memory that the calling thread has freed to the system. Called after a reload and after a plan is freed,
    /// never on a worker: allocators keep what they had at the most, and reading takes more memory than its result.
    pub release_memory: Option<fn()>,
}

/// Access to a running proxy from other threads. It does not keep the proxy running.
#[derive(Clone)]
pub struct Handle(Weak<Control>);

impl Handle {
    /// Reloads the configuration. Also writes the outcome as messages, which end in `asked`, the initiator. Blocks
    /// until all workers use it. After an error nothing has changed.
    pub fn reload(&self, asked: &str) -> Result<(), String> {
        let control = self.0.upgrade().ok_or("the proxy has ended")?;
        control.reload(asked).map(drop).map_err(|error| error.to_string())
    }

    /// The address (HOST:PORT) of this instance for its peers, if it shares a cache and finds peers in etcd.
    pub fn peer_address(&self) -> Option<String> {
        let address = self.0.upgrade()?.peer_address()?;
        Some(format!("{}:{}", address.host, address.port))
    }

    /// Sets the instances that share the cache. Blocks until all workers know them. After an error nothing has changed.
    pub fn take_peers(&self, addresses: &[String]) -> Result<(), String> {
        let control = self.0.upgrade().ok_or("the proxy has ended")?;
        control.take_peers(addresses).map_err(|error| error.to_string())
    }

    /// The maps of the configuration in force, with the generations of their shared states.
    pub fn maps(&self) -> Vec<(String, Option<String>)> {
        self.0.upgrade().map(|control| control.plan().maps.generations()).unwrap_or_default()
    }

    /// Takes the state of a map that instances share. Blocks until it is in force; what does not fit is left out with a
    /// message.
    pub fn take_map(&self, name: &str, state: SharedState) {
        if let Some(control) = self.0.upgrade() {
            control.take_map(name, state);
        }
    }

    /// Takes changes of a map that all instances make, in order. Blocks until they are in force; what does not fit is
    /// left out with a message.
    pub fn take_map_changes(&self, name: &str, changes: &[SharedChange]) {
        if let Some(control) = self.0.upgrade() {
            control.take_map_changes(name, changes);
        }
    }

    /// Takes the time up to which the maps have the shared state, in seconds since 1970.
    pub fn note_maps(&self, as_of: u64) {
        if let Some(sharing) = self.0.upgrade().as_ref().and_then(|control| control.map_sharing.as_ref()) {
            sharing.note(as_of);
        }
    }

    /// Takes the state of the shared configuration in this instance, for status and metrics.
    pub fn note_configuration(&self, configuration: SharedConfiguration) {
        if let Some(control) = self.0.upgrade() {
            control.metrics.sources.note_configuration(configuration);
        }
    }

    /// Takes why a source of servers fails; `None` if it works.
    pub fn note_source(&self, source: &str, failure: Option<String>) {
        if let Some(control) = self.0.upgrade() {
            control.metrics.sources.note(source, failure);
        }
    }

    pub fn counters(&self) -> Snapshot {
        self.0.upgrade().map(|control| Snapshot::sum(&control.readers)).unwrap_or_default()
    }
}

/// Maximum time for open responses of the control thread after the workers have ended.
const LAST_ANSWERS_MAX: Duration = Duration::from_secs(1);
/// The part of it for trace collectors. The rest is for reporting lost spans.
const LAST_SPANS_MAX: Duration = Duration::from_millis(800);

/// Dropped once the control thread has ended.
type Ended = std::sync::mpsc::Sender<()>;

/// A running proxy. Dropping it stops the proxy at once.
pub struct Running {
    pub(crate) control: Arc<Control>,
    workers: Vec<JoinHandle<()>>,
    predecessor: Option<Predecessor>,
    pub(crate) panicked: mpsc::UnboundedReceiver<usize>,
    /// A message on it, or dropping it, ends the control thread. The thread drops the message when it has ended.
    control_thread: Option<oneshot::Sender<Ended>>,
}

/// Opens the listeners, resolves names, and starts the workers. Fails if an address cannot be bound, the log cannot be
/// opened, or a thread cannot be started.
pub fn start(config: Config) -> Result<Running, StartError> {
    start_with(config, Setup::default())
}

/// Starts a proxy as [`start`] does, with support for reloads and upgrades.
pub fn start_with(config: Config, setup: Setup) -> Result<Running, StartError> {
    start_resolving(config, setup, Box::new(resolve::resolver))
}

/// Starts a proxy as [`start_with`] does, with another name resolver.
pub(crate) fn start_resolving(
    config: Config,
    setup: Setup,
    resolver: resolve::Maker,
) -> Result<Running, StartError> {
    speak(&config.messages);
    let mut inherited = setup.inheritance;
    let count = worker_count(&config);
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| mpsc::unbounded_channel()).unzip();
    let counting: Vec<_> = (0..count).map(|_| (Counters::new(), Series::new())).collect();
    let readers: Vec<CounterReader> = counting.iter().map(|(counters, _)| counters.reader()).collect();
    let all_counters: Arc<[CounterReader]> = readers.clone().into();
    let series = counting.iter().map(|(_, series)| series.reader()).collect();
    let (metrics_sockets, metrics) = mpsc::unbounded_channel();
    let (admin_sockets, admin) = mpsc::unbounded_channel();
    let (dashboard_sockets, dashboard) = mpsc::unbounded_channel();
    let (wanted, resolving) = mpsc::unbounded_channel();
    let (end, ended) = oneshot::channel();
    let (begin, begun) = oneshot::channel();
    let work = ControlWork { resolving, resolver, metrics, admin, dashboard, begun };
    on_thread("control".to_owned(), Builder::enable_all, || Ok(run_control(work, ended)))?;
    let means = Means {
        workers: senders.into(),
        readers: readers.clone(),
        wanted,
        metrics: Metrics::new(readers, series, metrics_sockets),
        admin: Admin::new(admin_sockets),
        dashboard: ControlListener::new(dashboard_sockets),
        reread: setup.reread,
        instance: setup.instance,
        share_map: setup.share_map,
        release_memory: setup.release_memory,
    };
    let control = Control::new(config, &mut inherited, means)?;
    // The control thread ends with the proxy, whatever it does at that time.
    let _ = begin.send(Arc::downgrade(&control));
    let beginnings = control.listen(&mut inherited)?;
    control.settle_refusals();

    let loads = (0..count).map(|_| AtomicUsize::new(0)).collect();
    let quic_beginnings = Arc::default();
    let predecessor = inherited.predecessor.take();
    let (tell_panic, panicked) = mpsc::unbounded_channel();
    let mut running =
        Running { control, workers: Vec::new(), predecessor, panicked, control_thread: Some(end) };
    let each = receivers.into_iter().zip(counting).zip(beginnings).enumerate();
    for (index, ((messages, (counters, series)), WorkerStart { listeners, opened, log })) in each {
        let parts = WorkerParts {
            index,
            plan: running.control.plan(),
            listeners,
            opened,
            messages,
            others: Arc::clone(&running.control.workers),
            loads: Arc::clone(&loads),
            log,
            counters,
            all_counters: Arc::clone(&all_counters),
            series,
            epoch: running.control.epoch,
            pressure: Arc::clone(&running.control.pressure),
            faults: Arc::clone(&running.control.faults),
            captures: Arc::clone(&running.control.captures),
            quic_processes: Arc::clone(&running.control.quic_processes),
            quic_beginnings: Arc::clone(&quic_beginnings),
        };
        running.workers.push(start_worker(parts, &tell_panic)?);
    }
    Ok(running)
}

fn start_worker(
    parts: WorkerParts,
    panicked: &mpsc::UnboundedSender<usize>,
) -> Result<JoinHandle<()>, StartError> {
    let death = Death { index: parts.index, tell: panicked.clone() };
    on_thread(format!("worker-{}", parts.index), Builder::enable_io, || {
        let body = worker::begin(parts)?;
        Ok(async move {
            let _death = death;
            body.await;
        })
    })
}

/// Reports on drop that a worker has panicked. Its connections, and new ones on its sockets, would wait for ever.
struct Death {
    index: usize,
    tell: mpsc::UnboundedSender<usize>,
}

impl Drop for Death {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Without a receiver, the process is ending already.
            let _ = self.tell.send(self.index);
        }
    }
}

/// Starts a thread with its own runtime, configured by `enable`. Returns when `body` has run there; its future runs on.
pub fn on_thread<F: Future<Output = ()>>(
    name: String,
    enable: fn(&mut Builder) -> &mut Builder,
    body: impl FnOnce() -> io::Result<F> + Send + 'static,
) -> Result<JoinHandle<()>, StartError> {
    let (ready, started) = std::sync::mpsc::channel();
    let run = move || match enable(&mut Builder::new_current_thread()).build_local(LocalOptions::default()) {
        Ok(runtime) => runtime.block_on(async {
            match body() {
                Ok(body) => {
                    let _ = ready.send(Ok(()));
                    body.await;
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                }
            }
        }),
        Err(error) => {
            let _ = ready.send(Err(error));
        }
    };
    let thread = std::thread::Builder::new().name(name).spawn(run).map_err(StartError::Thread)?;
    let outcome = started.recv().unwrap_or_else(|_| Err(io::Error::other("it has panicked, as said above")));
    outcome.map_err(StartError::Thread)?;
    Ok(thread)
}

struct ControlWork {
    resolving: mpsc::UnboundedReceiver<WantedNames>,
    resolver: resolve::Maker,
    metrics: mpsc::UnboundedReceiver<Option<OwnedFd>>,
    admin: mpsc::UnboundedReceiver<Option<OwnedFd>>,
    dashboard: mpsc::UnboundedReceiver<Option<OwnedFd>>,
    begun: oneshot::Receiver<Weak<Control>>,
}

/// Runs the control thread until the proxy ends. It resolves names, fetches keys, checks and compares servers,
/// watches certificates, and serves metrics and the admin API.
async fn run_control(work: ControlWork, ended: oneshot::Receiver<Ended>) {
    let guests = service::ServedConnections::default();
    let ControlWork { resolving, resolver, metrics, admin, dashboard, begun } = work;
    let changed = Rc::new(Notify::new());
    let outbound = Rc::new(Outbound::new(Rc::new(probe::ProbeShared::new(Instant::now()))));
    let catalog = Catalog::new(outbound, Rc::clone(&changed));
    let of_catalog = move |name: &Arc<_>, first| catalog.follow(name, first);
    tokio::task::spawn_local(resolve::watch(resolving, resolver, Rc::clone(&changed), of_catalog));
    let (hosts, senders) = (guests.clone(), guests.clone());
    let (last_call, ending) = watch::channel(None);
    tokio::task::spawn_local(async move {
        if let Ok(control) = begun.await {
            let [of_metrics, of_admin, of_dashboard] = [(); 3].map(|()| control.clone());
            tokio::task::spawn_local(control_listener::serve::<PageAddress>(
                || metrics::router(of_metrics),
                metrics,
                hosts.clone(),
            ));
            tokio::task::spawn_local(control_listener::serve::<AdminPath>(
                || admin::router(of_admin),
                admin,
                hosts.clone(),
            ));
            tokio::task::spawn_local(control_listener::serve::<PageAddress>(
                || dashboard::router(of_dashboard),
                dashboard,
                hosts,
            ));
            tokio::task::spawn_local(follow_names(Weak::clone(&control), changed));
            tokio::task::spawn_local(shaping_overrides::watch(Weak::clone(&control)));
            tokio::task::spawn_local(watch_refusals(Weak::clone(&control)));
            tokio::task::spawn_local(retired::watch(Weak::clone(&control)));
            tokio::task::spawn_local(pressure::watch(Weak::clone(&control)));
            tokio::task::spawn_local(admin::problems::watch(Weak::clone(&control)));
            tokio::task::spawn_local(failing_servers::watch(Weak::clone(&control)));
            tokio::task::spawn_local(metrics::sample(Weak::clone(&control)));
            tokio::task::spawn_local(shared::run(Weak::clone(&control)));
            tokio::task::spawn_local(cache::sweep(plan_of(Weak::clone(&control))));
            if let Some(epoch) = control.upgrade().map(|control| control.epoch) {
                let shared = Rc::new(probe::ProbeShared::new(epoch));
                tokio::task::spawn_local(probe::run(Weak::clone(&control), Rc::clone(&shared)));
                let outbound = Rc::new(Outbound::new(Rc::clone(&shared)));
                tokio::task::spawn_local(keys::run(Weak::clone(&control), Rc::clone(&outbound)));
                tokio::task::spawn_local(tracing::run(
                    Weak::clone(&control),
                    Rc::clone(&outbound),
                    senders,
                    ending,
                ));
                tokio::task::spawn_local(acme::run(Weak::clone(&control), outbound));
                tokio::task::spawn_local(ejection::run(Weak::clone(&control), shared));
            }
            tokio::join!(certificates::watch(Weak::clone(&control)), map_files::watch(control));
        }
    });
    // In both cases the proxy has ended, and the tasks end with this runtime. Another process may use the same
    // sockets, but only this one can respond on its accepted connections.
    if let Ok(_ended) = ended.await {
        tokio::task::yield_now().await;
        let _ = last_call.send(Some(tokio::time::Instant::now() + LAST_SPANS_MAX));
        let _ = tokio::time::timeout(LAST_ANSWERS_MAX, guests.gone()).await;
    }
}

impl Running {
    /// The addresses of the open listeners, in the order of the configuration, with the ports that the kernel selected.
    pub fn listeners(&self) -> Vec<ListenAddress> {
        self.control.addresses()
    }

    /// The open listeners as URLs, with their protocols and certificates, in the order of the configuration.
    pub fn served(&self) -> Vec<String> {
        let plan = self.control.plan();
        let certificates = admin::certificates::statuses(&self.control, acme::now());
        let each = plan.config.listeners.iter().zip(self.control.addresses());
        each.map(|(listener, address)| served::describe(listener, &address, &certificates)).collect()
    }

    /// The TCP addresses of the open listeners, with the ports that the kernel selected.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners().iter().filter_map(ListenAddress::tcp).collect()
    }

    /// The challenges of certificate authorities that the proxy answers, including the ones for its orders.
    pub fn challenges(&self) -> Arc<tls::Challenges> {
        Arc::clone(&self.control.plan().challenges)
    }

    /// With the port that the kernel selected.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.control.metrics.address()
    }

    /// With the port that the kernel selected.
    pub fn dashboard_address(&self) -> Option<SocketAddr> {
        self.control.dashboard.lock().as_ref().map(|open| open.known)
    }

    /// Tells the previous process, if there is one, that this one serves, so that it may end.
    pub fn take_over(&mut self) {
        if let Some(predecessor) = self.predecessor.take() {
            predecessor.may_go();
            self.control.claim();
            cache::told::listen(predecessor.into_channel(), plan_of(Arc::downgrade(&self.control)));
        }
    }

    /// Replaces the configuration, and returns when all workers use the new one. Requests under way, connections and
    /// pools stay. Returns remarks on changes that need a restart. After an error nothing has changed.
    pub fn reload(&self, config: Config) -> Result<Vec<String>, StartError> {
        self.control.change(config)
    }

    pub fn handle(&self) -> Handle {
        Handle(Arc::downgrade(&self.control))
    }

    pub fn counters(&self) -> Snapshot {
        Snapshot::sum(&self.control.readers)
    }

    /// The log words of the causes that `Snapshot::failures` counts, by index.
    pub fn failure_words() -> &'static [&'static str] {
        proxy::failure::Failure::WORDS
    }

    /// Stops accepting, because another process has taken over, and ends when all clients have gone. HTTP
    /// connections end with their next response.
    pub fn retire(&self) {
        self.control.leave(true, || WorkerMessage::Retire);
    }

    /// Stops accepting, and ends when requests under way are done. Idle clients may send another one within two
    /// seconds.
    pub fn drain(&self) {
        self.control.leave(false, || WorkerMessage::Drain);
    }

    pub fn stop(&self) {
        self.control.leave(false, || WorkerMessage::Stop);
    }

    /// Waits until the workers have ended, after `retire`, `drain` or `stop`.
    pub fn wait(mut self) {
        self.join();
    }

    fn join(&mut self) {
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                message::error("a worker thread panicked");
            }
        }
        if let Some(log) = self.control.take_log() {
            log.close();
        }
        self.control.capture_files.close(&self.control.captures);
        if let Some(cache) = &self.control.plan().cache {
            cache.finish();
        }
        let (ended, wait) = std::sync::mpsc::channel();
        if self.control_thread.take().is_some_and(|thread| thread.send(ended).is_ok()) {
            // No message is ever sent: the wait ends when the other end is dropped.
            let _ = wait.recv_timeout(LAST_ANSWERS_MAX);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        self.join();
    }
}

pub fn speak(messages: &config::Messages) {
    let form = match messages.format {
        MessageFormat::Text => message::MessageForm::Text,
        MessageFormat::Json => message::MessageForm::Json,
    };
    let level = match messages.level {
        MessageLevel::Error => message::Level::Error,
        MessageLevel::Warn => message::Level::Warn,
        MessageLevel::Info => message::Level::Info,
    };
    message::set(form, level);
}

/// Makes listeners refuse and accept connections at the times in the fault rules, until the proxy ends.
async fn watch_refusals(control: Weak<Control>) {
    loop {
        let Some(strong) = control.upgrade() else { return };
        strong.settle_refusals();
        let faults = Arc::clone(&strong.faults);
        let rest = faults.refusals_change_in(strong.time_ns());
        drop(strong);
        match rest {
            // `changed` remembers a change in between, so none is missed.
            Some(rest) => drop(tokio::time::timeout(rest, faults.changed()).await),
            None => faults.changed().await,
        }
    }
}

/// Changes of names within this time make one change of the plan.
const GATHERING: Duration = Duration::from_millis(50);

/// Updates the plan after changes of names, until the proxy ends.
async fn follow_names(control: Weak<Control>, changed: Rc<Notify>) {
    loop {
        changed.notified().await;
        tokio::time::sleep(GATHERING).await;
        let Some(control) = control.upgrade() else { return };
        // The call waits for the workers.
        let _ = tokio::task::spawn_blocking(move || control.follow_names()).await;
    }
}

/// Returns the plan in force, or `None` once the proxy has ended.
fn plan_of(control: Weak<Control>) -> impl Fn() -> Option<Arc<Plan>> + Send + 'static {
    move || control.upgrade().map(|control| control.plan())
}

#[cfg(test)]
impl Running {
    pub(crate) fn server_addresses(&self) -> Vec<std::net::IpAddr> {
        let plan = self.control.plan();
        let servers = plan.upstreams[0].servers.iter();
        servers
            .flat_map(|server| server.addresses.load_full().iter().map(SocketAddr::ip).collect::<Vec<_>>())
            .collect()
    }
}
