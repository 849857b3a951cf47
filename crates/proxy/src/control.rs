//! The control side: starting and ending the workers, signals, and what is said on standard error.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use config::{Config, ListenAddress, LogFormat, LogTarget};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use telemetry::{AccessLog, Counters, Reader, Series, Snapshot};
use tokio::runtime::{Builder, LocalOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::certificates;
use crate::change::{Control, Sockets};
use crate::ejection;
use crate::metrics::{self, Metrics};
use crate::pressure;
use crate::probe;
use crate::resolve::{self, Wanted};
use crate::worker::{self, Message, Parts};

/// Why a proxy did not start.
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
    /// The access log could not be opened.
    #[error("cannot open the access log {target}: {error}")]
    Log {
        /// As configured.
        target: String,
        /// What the system said.
        error: io::Error,
    },
    /// A certificate or key could not be used.
    #[error("cannot use TLS as configured: {}", listed(.0))]
    Tls(Vec<tls::Problem>),
    /// A thread or its runtime could not be made.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

fn listed(problems: &[tls::Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn remedy(address: &ListenAddress, error: &io::Error) -> &'static str {
    match (address, error.kind()) {
        (ListenAddress::Tcp(_), io::ErrorKind::AddrInUse) => {
            "; another process listens there: stop it or choose another port"
        }
        (ListenAddress::Tcp(_), io::ErrorKind::PermissionDenied) => {
            "; ports below 1024 need the capability CAP_NET_BIND_SERVICE"
        }
        (ListenAddress::Tcp(_), io::ErrorKind::AddrNotAvailable) => "; this machine has no such address",
        (ListenAddress::Unix(_), io::ErrorKind::AddrInUse) => {
            "; another process listens there: stop it or choose another path"
        }
        (ListenAddress::Unix(_), io::ErrorKind::AlreadyExists) => "; choose another path",
        (ListenAddress::Unix(_), io::ErrorKind::PermissionDenied) => {
            "; the process has to be allowed to write to its directory"
        }
        (ListenAddress::Unix(_), io::ErrorKind::NotFound) => "; its directory has to exist",
        _ => "",
    }
}

/// A running proxy. Dropped, it stops at once.
pub struct Running {
    control: Arc<Control>,
    workers: Vec<JoinHandle<()>>,
    log: Option<AccessLog>,
    // Dropped, it ends the control thread.
    _control_thread: oneshot::Sender<()>,
}

/// Opens the listeners, resolves names, and starts the workers.
///
/// # Errors
/// When an address cannot be listened on, the log cannot be opened, or a thread cannot be started.
pub fn start(config: Config) -> Result<Running, StartError> {
    start_resolving(config, Box::new(resolve::resolver))
}

/// The same with a resolver of one's own.
pub(crate) fn start_resolving(config: Config, resolver: resolve::Maker) -> Result<Running, StartError> {
    raise_descriptor_limit();
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let count = config.workers.unwrap_or(cores).get();
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| mpsc::unbounded_channel()).unzip();
    let counting: Vec<_> = (0..count).map(|_| (Counters::new(), Series::new())).collect();
    let readers: Vec<Reader> = counting.iter().map(|(counters, _)| counters.reader()).collect();
    let (sockets, serving) = mpsc::unbounded_channel();
    let series = counting.iter().map(|(_, series)| series.reader()).collect();
    let metrics = Metrics::new(readers, series, sockets);
    let (wanted, resolving) = mpsc::unbounded_channel();
    let (end, ended) = oneshot::channel::<()>();
    let (begin, begun) = oneshot::channel();
    on_thread("control".to_owned(), || run_control(resolving, resolver, serving, begun, ended))?;
    let control = Control::new(config, senders.into(), wanted, metrics)?;
    // It ends with the proxy, whatever it still does then.
    let _ = begin.send(Arc::downgrade(&control));
    let mut sockets = control.listen()?;
    let plan = control.plan();
    let log = plan.config.access_log.as_ref().map(open_log).transpose()?;

    if let Some(log) = &log {
        control.metrics.tell_of(log);
    }

    let loads = (0..count).map(|_| AtomicUsize::new(0)).collect();
    let mut running = Running { control, workers: Vec::new(), log, _control_thread: end };
    for (index, (messages, (counters, series))) in receivers.into_iter().zip(counting).enumerate() {
        let own = |(id, sockets): &mut Sockets| Some((*id, sockets.pop()?));
        let parts = Parts {
            index,
            plan: Arc::clone(&plan),
            listeners: sockets.iter().map(|(id, _)| *id).collect(),
            opened: sockets.iter_mut().filter_map(own).collect(),
            messages,
            others: Arc::clone(&running.control.workers),
            loads: Arc::clone(&loads),
            log: running.log.as_ref().map(AccessLog::for_worker),
            counters,
            series,
            epoch: running.control.epoch,
            pressure: Arc::clone(&running.control.pressure),
        };
        running.workers.push(on_thread(format!("worker-{index}"), || worker::run(parts))?);
    }
    Ok(running)
}

fn open_log(config: &config::AccessLog) -> Result<AccessLog, StartError> {
    let (target, name) = match &config.target {
        LogTarget::Stdout => (telemetry::Target::Stdout, "stdout".to_owned()),
        LogTarget::File(path) => (telemetry::Target::File(path.clone()), path.display().to_string()),
    };
    let format = match config.format {
        LogFormat::Combined => telemetry::Format::Combined,
        LogFormat::Json => telemetry::Format::Json,
    };
    AccessLog::open(target, format).map_err(|error| StartError::Log { target: name, error })
}

/// Starts a thread with a runtime of its own, and returns once that runs.
fn on_thread<F: Future<Output = ()>>(
    name: String,
    body: impl FnOnce() -> F + Send + 'static,
) -> Result<JoinHandle<()>, StartError> {
    let (ready, started) = std::sync::mpsc::channel();
    let run = move || match Builder::new_current_thread().enable_all().build_local(LocalOptions::default()) {
        Ok(runtime) => {
            let _ = ready.send(Ok(()));
            runtime.block_on(body());
        }
        Err(error) => {
            let _ = ready.send(Err(error));
        }
    };
    let thread = std::thread::Builder::new().name(name).spawn(run).map_err(StartError::Thread)?;
    let outcome = started.recv().unwrap_or_else(|_| Err(io::Error::other("the thread ended")));
    outcome.map_err(StartError::Thread)?;
    Ok(thread)
}

/// What the control thread does until the proxy ends: it resolves names, checks and compares servers, looks at
/// certificates, and serves metrics.
async fn run_control(
    resolving: mpsc::UnboundedReceiver<Wanted>,
    resolver: resolve::Maker,
    serving: mpsc::UnboundedReceiver<metrics::Socket>,
    begun: oneshot::Receiver<Weak<Control>>,
    ended: oneshot::Receiver<()>,
) {
    let changed = Rc::new(Notify::new());
    tokio::task::spawn_local(resolve::watch(resolving, resolver, Rc::clone(&changed)));
    tokio::task::spawn_local(async move {
        if let Ok(control) = begun.await {
            tokio::task::spawn_local(metrics::serve(control.clone(), serving));
            tokio::task::spawn_local(resolve::follow(Weak::clone(&control), changed));
            tokio::task::spawn_local(pressure::watch(Weak::clone(&control)));
            if let Some(epoch) = control.upgrade().map(|control| control.epoch) {
                let shared = Rc::new(probe::Shared::new(epoch));
                tokio::task::spawn_local(probe::run(Weak::clone(&control), Rc::clone(&shared)));
                tokio::task::spawn_local(ejection::run(Weak::clone(&control), shared));
            }
            certificates::watch(control).await;
        }
    });
    // Told or dropped: either way the proxy has ended, and the tasks with this runtime.
    let _ = ended.await;
}

/// Lets the process have as many descriptors as it may.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Best effort: without it fewer connections fit, which is noticed when they run out.
    let _ = setrlimit(Resource::Nofile, raised);
}

impl Running {
    /// What is listened on, in the order of the configuration, with the ports that the kernel chose.
    pub fn listeners(&self) -> Vec<ListenAddress> {
        self.control.addresses()
    }

    /// The addresses of TCP among them.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners().iter().filter_map(ListenAddress::tcp).collect()
    }

    /// The address that metrics are served on, with the port that the kernel chose.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.control.metrics.address()
    }

    /// Puts another configuration in force, and returns when all workers go by it: requests that have begun, connections
    /// and pools stay. The number of workers and the log are those of the start.
    ///
    /// # Errors
    /// Why everything stays as it is.
    pub fn reload(&self, config: Config) -> Result<(), StartError> {
        self.control.change(config)
    }

    /// What all workers have counted so far.
    pub fn counters(&self) -> Snapshot {
        self.control.metrics.counters()
    }

    /// The words of the failures that `Snapshot::failures` counts, by index.
    pub fn failure_words() -> &'static [&'static str] {
        crate::failure::Failure::WORDS
    }

    /// Stops accepting, since another process does, and ends when all clients have gone: each is told with its next
    /// response.
    pub fn retire(&self) {
        self.tell(|| Message::Retire);
    }

    /// Stops accepting, and ends when the requests under way have. Idle clients have two seconds for another request.
    pub fn drain(&self) {
        self.tell(|| Message::Drain);
    }

    /// Ends at once.
    pub fn stop(&self) {
        self.tell(|| Message::Stop);
    }

    /// Waits until the workers have ended, after `drain` or `stop`.
    pub fn wait(mut self) {
        self.join();
    }

    fn tell(&self, message: impl Fn() -> Message) {
        for worker in self.control.workers.iter() {
            // A worker that has ended needs no telling.
            let _ = worker.send(message());
        }
    }

    fn join(&mut self) {
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                notice("a worker ended in a panic");
            }
        }
        if let Some(log) = self.log.take() {
            log.close();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        self.join();
    }
}

/// Runs until SIGTERM or SIGINT, then drains; a second one stops at once. `announce` is called once signals are listened
/// to: who waits for what it says can send one.
///
/// # Errors
/// When signals cannot be listened to.
pub fn run_until_signal(running: Running, announce: impl FnOnce(&Running)) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        announce(&running);
        let mut either = async || {
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        };
        either().await;
        notice("draining: requests under way are finished, a second signal stops at once");
        running.drain();
        let messages = Arc::clone(&running.control.workers);
        let ended = tokio::task::spawn_blocking(move || running.wait());
        tokio::select! {
            _ = ended => {}
            () = either() => {
                for worker in messages.iter() {
                    let _ = worker.send(Message::Stop);
                }
            }
        }
        Ok(())
    })
}

/// Says something to the operator, each text at most once a second.
pub(crate) fn notice(text: &str) {
    static LAST: Mutex<Vec<(String, Instant)>> = Mutex::new(Vec::new());
    let now = Instant::now();
    let mut last = LAST.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    last.retain(|(_, said)| now.duration_since(*said) < Duration::from_secs(1));
    if last.iter().any(|(said, _)| said == text) {
        return;
    }
    last.push((text.to_owned(), now));
    // Nothing can be done where nobody listens.
    let _ = writeln!(io::stderr(), "vanward: {text}");
}

#[cfg(test)]
impl Running {
    /// Where the servers of the first upstream are.
    pub(crate) fn server_addresses(&self) -> Vec<std::net::IpAddr> {
        let plan = self.control.plan();
        let servers = plan.upstreams[0].servers.iter();
        servers
            .flat_map(|server| server.addresses.load_full().iter().map(SocketAddr::ip).collect::<Vec<_>>())
            .collect()
    }
}
