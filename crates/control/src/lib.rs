//! The control side: starts and ends the workers, and does everything that is not on the path of a request.

/// Automatic certificates.
mod acme;
/// The admin API.
mod admin;
/// Watches certificate files.
mod certificates;
/// Replaces the configuration.
mod change;
/// Opens the access log as it is configured.
mod open_log;
/// Outlier ejection: servers that respond worse than the others.
mod ejection;
/// What changes of the plan do to servers.
mod server_changes;
/// Which instances share what they store.
mod cache_peers;
/// What a process hands over to its successor.
mod handover;
/// Listeners of the admin API and of the metrics.
mod control_listener;
/// The listeners of the control thread, over changes of the configuration.
mod own_listeners;
/// The endpoint of metrics for Prometheus.
mod metrics;
/// The dashboard, a page for operators.
mod dashboard;
/// Messages to the service manager.
mod notify;
/// Listening sockets of the service manager.
mod activation;
/// Tells the service manager that the workers do their work.
mod watchdog;
/// The memory limit.
mod pressure;
/// Keys of tokens, which are fetched.
mod keys;
/// Connections to servers of URLs.
mod outbound;
/// Services of Consul.
mod catalog;
/// Active health checks.
mod probe;
/// Operators' changes at run time.
mod runtime_overrides;
/// A small HTTP server for the admin API and metrics.
pub mod service;
/// What instances share through Redis.
mod shared;
/// Explains which route a request takes.
mod route_explained;
/// Sends traces to a collector.
mod tracing;
/// Signal handling.
mod signals;
/// Tasks that look again and again wake up together.
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
    /// Tests of connections and logs that workers hand over.
    mod workers;
}

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use config::{Config, ListenAddress, MessageFormat, MessageLevel, Reading};
use rustix::io::Errno;
use telemetry::{Counters, Reader, Series, Snapshot, message};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::admin::{Admin, AdminPath};
use crate::catalog::Catalog;
use crate::change::{Beginning, Control, Means, worker_count};
use crate::control_listener::{Listener, PageAddress};
pub use crate::handover::Inheritance;
use crate::handover::Predecessor;
use crate::metrics::Metrics;
use crate::outbound::Outbound;
pub use crate::route_explained::{RouteExplained, explain_route};
use crate::runtime_overrides::shaping_overrides;
pub use crate::signals::run_until_signal;
use proxy::cache;
use proxy::context::plan::Plan;
use proxy::context::worker::Message;
use proxy::worker::{self, Parts};
use transport::descriptors::RAISE_LIMIT;
use transport::resolve;
use transport::resolve::Wanted;
pub use transport::resolve::unresolved;

/// Why the proxy did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listening socket could not be opened.
    #[error("cannot listen on {address}: {error}{}", remedy(.address, .error))]
    Listen {
        /// As configured.
        address: ListenAddress,
        /// What the system said.
        error: io::Error,
    },
    /// The service manager listens where no listener does: who connects there would wait for ever.
    #[error(
        "the service manager passes a socket for {0}, and no [[listen]] has that address: add it, or remove it from the socket unit"
    )]
    Activated(ListenAddress),
    /// The access log could not be opened.
    #[error("cannot open the access log {target}: {error}{}", room_for_folder(.error))]
    Log {
        /// As configured.
        target: String,
        /// What the system said.
        error: io::Error,
    },
    /// A certificate or key could not be used.
    #[error("cannot use TLS as configured: {}", listed(.0))]
    Tls(Vec<tls::Problem>),
    /// The operators' runtime overrides do not fit the configuration.
    #[error("overrides of the admin API do not fit the configuration; remove them first: {}", change::sentences(.0))]
    Overrides(Vec<config::Mistake>),
    /// The proxy is ending, and nothing can be changed.
    #[error("this process is on its way out: another one has taken over, or it drains")]
    Leaving,
    /// A thread or its runtime could not be created.
    #[error("cannot start a thread: {}{}", .0, room_for_files(.0))]
    Thread(io::Error),
}

fn listed(problems: &[tls::Problem]) -> String {
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

/// What to do about a file of which the folder is missing, or closed to us.
fn room_for_folder(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; its directory has to exist",
        io::ErrorKind::PermissionDenied => "; the process has to be allowed to write to it and its directory",
        _ => room_for_files(error),
    }
}

/// That, where the process may not open one more file.
fn room_for_files(error: &io::Error) -> &'static str {
    let is_full = Errno::from_io_error(error) == Some(Errno::MFILE);
    if is_full { RAISE_LIMIT } else { "" }
}

/// Reads the configuration again. Returns all its mistakes, too.
pub type Reread = Box<dyn Fn() -> Reading + Send + Sync>;

/// What a proxy is started with besides its configuration.
#[derive(Default)]
pub struct Setup {
    /// Reads the configuration for a reload. Without it, reloads are rejected.
    pub reread: Option<Reread>,
    /// What the previous process or the service manager handed over.
    pub inheritance: Inheritance,
    /// The name of this instance among others; `None` means that of the machine.
    pub instance: Option<String>,
}

/// A running proxy, for other threads. It does not keep the proxy running.
#[derive(Clone)]
pub struct Handle(Weak<Control>);

impl Handle {
    /// Reads the configuration again and puts it in force. Writes the outcome as messages, too; `asked` is their end, and
    /// says who asked. Blocks until all workers use it.
    ///
    /// # Errors
    /// Why nothing was changed.
    pub fn reload(&self, asked: &str) -> Result<(), String> {
        let control = self.0.upgrade().ok_or("the proxy has ended")?;
        control.reload(asked).map(drop).map_err(|error| error.to_string())
    }

    /// Where other instances reach this one (HOST:PORT), if they share what they store and learn of each other through
    /// etcd.
    pub fn peer_address(&self) -> Option<String> {
        let address = self.0.upgrade()?.peer_address()?;
        Some(format!("{}:{}", address.host, address.port))
    }

    /// Takes these for the instances that share what they store. Blocks until all workers know them.
    ///
    /// # Errors
    /// Why nothing was changed.
    pub fn take_peers(&self, addresses: &[String]) -> Result<(), String> {
        let control = self.0.upgrade().ok_or("the proxy has ended")?;
        control.take_peers(addresses).map_err(|error| error.to_string())
    }

    /// The sums of all workers' counters.
    pub fn counters(&self) -> Snapshot {
        self.0.upgrade().map(|control| Snapshot::sum(&control.readers)).unwrap_or_default()
    }
}

/// How long the control thread has for whom it is answering when the workers have ended.
const LAST_ANSWERS_MAX: Duration = Duration::from_secs(1);
/// How much of that collectors of traces have: the rest is to tell what they did not take.
const LAST_SPANS_MAX: Duration = Duration::from_millis(800);

/// Dropped once the control thread has ended.
type Ended = std::sync::mpsc::Sender<()>;

/// A running proxy. Dropping it stops the proxy at once.
pub struct Running {
    pub(crate) control: Arc<Control>,
    workers: Vec<JoinHandle<()>>,
    predecessor: Option<Predecessor>,
    /// Workers that have panicked.
    pub(crate) panicked: mpsc::UnboundedReceiver<usize>,
    /// Told or dropped, it ends the control thread, which drops what it was told with.
    control_thread: Option<oneshot::Sender<Ended>>,
}

/// Opens the listeners, resolves names, and starts the workers.
///
/// # Errors
/// If an address cannot be listened on, the log cannot be opened, or a thread cannot be started.
pub fn start(config: Config) -> Result<Running, StartError> {
    start_with(config, Setup::default())
}

/// Starts a proxy as [`start`] does, one that may be reloaded, or takes over from another process.
///
/// # Errors
/// As [`start`].
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
    let readers: Vec<Reader> = counting.iter().map(|(counters, _)| counters.reader()).collect();
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
        dashboard: Listener::new(dashboard_sockets),
        reread: setup.reread,
        instance: setup.instance,
    };
    let control = Control::new(config, &mut inherited, means)?;
    // It ends with the proxy, whatever it still does then.
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
    for (index, ((messages, (counters, series)), Beginning { listeners, opened, log })) in each {
        let parts = Parts {
            index,
            plan: running.control.plan(),
            listeners,
            opened,
            messages,
            others: Arc::clone(&running.control.workers),
            loads: Arc::clone(&loads),
            log,
            counters,
            series,
            epoch: running.control.epoch,
            pressure: Arc::clone(&running.control.pressure),
            faults: Arc::clone(&running.control.faults),
            quic_processes: Arc::clone(&running.control.quic_processes),
            quic_beginnings: Arc::clone(&quic_beginnings),
        };
        running.workers.push(start_worker(parts, &tell_panic)?);
    }
    Ok(running)
}

/// Starts the thread of a worker, which tells `panicked` if it does.
fn start_worker(parts: Parts, panicked: &mpsc::UnboundedSender<usize>) -> Result<JoinHandle<()>, StartError> {
    let death = Death { index: parts.index, tell: panicked.clone() };
    on_thread(format!("worker-{}", parts.index), Builder::enable_io, || {
        let body = worker::begin(parts)?;
        Ok(async move {
            let _death = death;
            body.await;
        })
    })
}

/// Tells that a worker has panicked: nobody serves its connections then, and who comes to its sockets waits in vain.
struct Death {
    index: usize,
    tell: mpsc::UnboundedSender<usize>,
}

impl Drop for Death {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Where nobody listens the process ends already.
            let _ = self.tell.send(self.index);
        }
    }
}

/// Starts a thread with its own runtime, configured by `enable`. Returns when `body` has run; its future runs there.
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

/// What the control thread needs.
struct ControlWork {
    resolving: mpsc::UnboundedReceiver<Wanted>,
    resolver: resolve::Maker,
    metrics: mpsc::UnboundedReceiver<Option<OwnedFd>>,
    admin: mpsc::UnboundedReceiver<Option<OwnedFd>>,
    dashboard: mpsc::UnboundedReceiver<Option<OwnedFd>>,
    begun: oneshot::Receiver<Weak<Control>>,
}

/// What the control thread does until the proxy ends: it resolves names, fetches keys, checks and compares servers, looks at
/// certificates, and serves metrics and the admin API.
async fn run_control(work: ControlWork, ended: oneshot::Receiver<Ended>) {
    let guests = service::ServedConnections::default();
    let ControlWork { resolving, resolver, metrics, admin, dashboard, begun } = work;
    let changed = Rc::new(Notify::new());
    let outbound = Rc::new(Outbound::new(Rc::new(probe::Shared::new(Instant::now()))));
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
            tokio::task::spawn_local(pressure::watch(Weak::clone(&control)));
            tokio::task::spawn_local(admin::problems::watch(Weak::clone(&control)));
            tokio::task::spawn_local(metrics::sample(Weak::clone(&control)));
            tokio::task::spawn_local(shared::run(Weak::clone(&control)));
            tokio::task::spawn_local(cache::sweep(plan_of(Weak::clone(&control))));
            if let Some(epoch) = control.upgrade().map(|control| control.epoch) {
                let shared = Rc::new(probe::Shared::new(epoch));
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
            certificates::watch(control).await;
        }
    });
    // Told or dropped: either way the proxy has ended, and the tasks with this runtime. Another process may listen on the
    // same sockets by now, but what this one has accepted nobody else can answer.
    if let Ok(_ended) = ended.await {
        tokio::task::yield_now().await;
        let _ = last_call.send(Some(tokio::time::Instant::now() + LAST_SPANS_MAX));
        let _ = tokio::time::timeout(LAST_ANSWERS_MAX, guests.gone()).await;
    }
}

impl Running {
    /// The addresses of the open listeners, in the order of the configuration, with the ports that the kernel chose.
    pub fn listeners(&self) -> Vec<ListenAddress> {
        self.control.addresses()
    }

    /// The TCP addresses of the open listeners, with the ports that the kernel chose.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners().iter().filter_map(ListenAddress::tcp).collect()
    }

    /// The challenges of certificate authorities that the proxy answers. Those that it asks itself are put here as well.
    pub fn challenges(&self) -> Arc<tls::Challenges> {
        Arc::clone(&self.control.plan().challenges)
    }

    /// The address of the metrics endpoint, with the port that the kernel chose.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.control.metrics.address()
    }

    /// The address of the dashboard, with the port that the kernel chose.
    pub fn dashboard_address(&self) -> Option<SocketAddr> {
        self.control.dashboard.lock().as_ref().map(|open| open.known)
    }

    /// Tells the previous process, if there is one, that this one serves and that it may end.
    pub fn take_over(&mut self) {
        if let Some(predecessor) = self.predecessor.take() {
            predecessor.may_go();
            self.control.claim();
            cache::successor::listen(predecessor.into_channel(), plan_of(Arc::downgrade(&self.control)));
        }
    }

    /// Replaces the configuration, and returns when all workers use the new one. Requests under way, connections and
    /// pools stay. Returns remarks about changes that need more than a reload.
    ///
    /// # Errors
    /// Why nothing was changed.
    pub fn reload(&self, config: Config) -> Result<Vec<String>, StartError> {
        self.control.change(config)
    }

    /// The proxy, for other threads.
    pub fn handle(&self) -> Handle {
        Handle(Arc::downgrade(&self.control))
    }

    /// The sums of all workers' counters.
    pub fn counters(&self) -> Snapshot {
        Snapshot::sum(&self.control.readers)
    }

    /// The log words of the causes that `Snapshot::failures` counts, by index.
    pub fn failure_words() -> &'static [&'static str] {
        proxy::context::failure::Failure::WORDS
    }

    /// Stops accepting, since another process does, and ends when all clients have gone. HTTP connections end with
    /// their next response.
    pub fn retire(&self) {
        self.control.leave(true, || Message::Retire);
    }

    /// Stops accepting, and ends when the requests under way are done. Idle clients have two seconds for another
    /// request.
    pub fn drain(&self) {
        self.control.leave(false, || Message::Drain);
    }

    /// Stops the proxy at once.
    pub fn stop(&self) {
        self.control.leave(false, || Message::Stop);
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
        if let Some(cache) = &self.control.plan().cache {
            cache.finish();
        }
        let (ended, wait) = std::sync::mpsc::channel();
        if self.control_thread.take().is_some_and(|thread| thread.send(ended).is_ok()) {
            // Nothing is ever sent: it is over when the other end is gone.
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

/// Sets the format and level of messages.
pub fn speak(messages: &config::Messages) {
    let form = match messages.format {
        MessageFormat::Text => message::Form::Text,
        MessageFormat::Json => message::Form::Json,
    };
    let level = match messages.level {
        MessageLevel::Error => message::Level::Error,
        MessageLevel::Warn => message::Level::Warn,
        MessageLevel::Info => message::Level::Info,
    };
    message::set(form, level);
}

/// Has listeners refuse connections when it is time, and take them again, until the proxy ends.
async fn watch_refusals(control: Weak<Control>) {
    loop {
        let Some(strong) = control.upgrade() else { return };
        strong.settle_refusals();
        let faults = Arc::clone(&strong.faults);
        let rest = faults.refusals_change_in(strong.time_ns());
        drop(strong);
        match rest {
            // A change meanwhile leaves word, so none is missed.
            Some(rest) => drop(tokio::time::timeout(rest, faults.changed()).await),
            None => faults.changed().await,
        }
    }
}

/// Names that change together make one change of the plan.
const GATHERING: Duration = Duration::from_millis(50);

/// Changes the plan after names have changed, until the proxy ends.
async fn follow_names(control: Weak<Control>, changed: Rc<Notify>) {
    loop {
        changed.notified().await;
        tokio::time::sleep(GATHERING).await;
        let Some(control) = control.upgrade() else { return };
        // It waits for the workers.
        let _ = tokio::task::spawn_blocking(move || control.follow_names()).await;
    }
}

/// The plan in force, for as long as the proxy runs.
fn plan_of(control: Weak<Control>) -> impl Fn() -> Option<Arc<Plan>> + Send + 'static {
    move || control.upgrade().map(|control| control.plan())
}

#[cfg(test)]
impl Running {
    /// For tests: the addresses of the first upstream's servers.
    pub(crate) fn server_addresses(&self) -> Vec<std::net::IpAddr> {
        let plan = self.control.plan();
        let servers = plan.upstreams[0].servers.iter();
        servers
            .flat_map(|server| server.addresses.load_full().iter().map(SocketAddr::ip).collect::<Vec<_>>())
            .collect()
    }
}
