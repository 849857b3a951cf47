//! From one configuration to the next while requests run: what is valid becomes a plan, new addresses are listened on,
//! and every worker goes on with it. What is not valid changes nothing.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc as blocking};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use balance::Time;
use config::{Config, ListenAddress};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use crate::certificates;
use crate::control::StartError;
use crate::listen::{self, ListenerId, Opened};
use crate::metrics::Metrics;
use crate::plan::Plan;
use crate::pressure::Pressure;
use crate::resolve::{Name, Names, Wanted};
use crate::unix::SocketFile;
use crate::worker::{Change, Message};

/// How long a change waits for the first addresses of names.
const RESOLVE_FIRST: Duration = Duration::from_secs(5);

/// Which plan is in force, and how it becomes another one. Shared by all that change something.
pub(crate) struct Control {
    plan: ArcSwap<Plan>,
    pub(crate) epoch: Instant,
    pub(crate) workers: Arc<[UnboundedSender<Message>]>,
    /// What is listened on. Held for the length of a change: one at a time.
    open: Mutex<Vec<Open>>,
    last_listener: AtomicU64,
    wanted: UnboundedSender<Wanted>,
    pub(crate) metrics: Metrics,
    /// Whether memory is short.
    pub(crate) pressure: Arc<Pressure>,
    /// Told when there is another plan.
    pub(crate) changes: watch::Sender<()>,
}

/// An address that is listened on.
#[derive(Debug, Clone)]
struct Open {
    id: ListenerId,
    /// As it is configured: its port may be 0.
    configured: ListenAddress,
    /// As it is.
    bound: ListenAddress,
    /// Removed when it is not listened on any more.
    _file: Option<Arc<SocketFile>>,
}

/// Sockets of a listener, one for each worker.
pub(crate) type Sockets = (ListenerId, Vec<TcpListener>);

impl Control {
    /// The first plan. Nothing is listened on yet; `wanted` leads to the thread that resolves names.
    ///
    /// # Errors
    /// What is wrong with certificates.
    pub(crate) fn new(
        config: Config,
        workers: Arc<[UnboundedSender<Message>]>,
        wanted: UnboundedSender<Wanted>,
        metrics: Metrics,
    ) -> Result<Arc<Self>, StartError> {
        let (names, new) = Names::of(&config, None);
        resolve(&wanted, new);
        let mut plan = Plan::new(config, None, Time::START, names).map_err(StartError::Tls)?;
        plan.places = metrics.places(&plan);
        certificates::remark(&plan, None);
        Ok(Arc::new(Self {
            plan: ArcSwap::from_pointee(plan),
            epoch: Instant::now(),
            workers,
            open: Mutex::default(),
            last_listener: AtomicU64::new(0),
            wanted,
            metrics,
            pressure: Arc::default(),
            changes: watch::Sender::new(()),
        }))
    }

    /// The plan in force.
    pub(crate) fn plan(&self) -> Arc<Plan> {
        self.plan.load_full()
    }

    /// The addresses that are listened on, in the order of the configuration.
    pub(crate) fn addresses(&self) -> Vec<ListenAddress> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.iter().map(|open| open.bound.clone()).collect()
    }

    /// Opens the sockets of the first plan.
    pub(crate) fn listen(&self) -> Result<Vec<Sockets>, StartError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = self.plan();
        let (next, opened) = self.open(&plan.config, &open)?;
        if let Some(moved) = self.metrics.open(plan.config.metrics)? {
            self.metrics.listen(moved);
        }
        *open = next;
        Ok(opened)
    }

    /// Puts a configuration in force, and returns when every worker goes by it. Requests that have begun keep to theirs.
    /// Blocks: not for the control thread itself, whose look-ups are waited for.
    ///
    /// # Errors
    /// Why everything stays as it is.
    pub(crate) fn change(&self, config: Config) -> Result<(), StartError> {
        let outcome = self.exchange(config);
        self.metrics.changed(outcome.is_ok());
        outcome
    }

    fn exchange(&self, config: Config) -> Result<(), StartError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.plan();
        let (names, new) = Names::of(&config, Some(&before.names));
        resolve(&self.wanted, new);
        let mut plan = Plan::new(config, Some(&before), self.time(), names).map_err(StartError::Tls)?;
        let (next, opened) = self.open(&plan.config, &open)?;
        if let Some(moved) = self.metrics.open(plan.config.metrics)? {
            self.metrics.listen(moved);
        }
        plan.places = self.metrics.places(&plan);
        certificates::remark(&plan, Some(&before));
        let plan = Arc::new(plan);
        self.plan.store(Arc::clone(&plan));
        self.tell(&plan, &next, opened);
        *open = next;
        Ok(())
    }

    /// Goes on with the servers that names stand for now. Blocks, as `change` does.
    pub(crate) fn follow_names(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.plan();
        if before.upstreams.iter().all(|upstream| upstream.follows(&before.names)) {
            return;
        }
        // Nothing is read that could be wrong: certificates are taken over.
        let Ok(mut plan) = Plan::new(before.config.clone(), Some(&before), self.time(), before.names.clone())
        else {
            return;
        };
        plan.places = self.metrics.places(&plan);
        let plan = Arc::new(plan);
        self.plan.store(Arc::clone(&plan));
        self.tell(&plan, &open, Vec::new());
    }

    /// Time, as the workers have it.
    pub(crate) fn time(&self) -> Time {
        Time::from_micros(self.epoch.elapsed().as_micros() as u64)
    }

    /// What a configuration listens on, given what is listened on already, and the sockets that this takes.
    fn open(&self, config: &Config, before: &[Open]) -> Result<(Vec<Open>, Vec<Sockets>), StartError> {
        let mut known = before.to_vec();
        let mut next = Vec::with_capacity(config.listeners.len());
        let mut opened = Vec::new();
        for listener in &config.listeners {
            let address = &listener.address;
            if let Some(place) = known.iter().position(|open| open.configured == *address) {
                next.push(known.remove(place));
                continue;
            }
            let Opened { sockets, bound, file } = listen::open(address, self.workers.len())
                .map_err(|error| StartError::Listen { address: address.clone(), error })?;
            let id = ListenerId(self.last_listener.fetch_add(1, Ordering::Relaxed));
            next.push(Open { id, configured: address.clone(), bound, _file: file.map(Arc::new) });
            opened.push((id, sockets));
        }
        Ok((next, opened))
    }

    fn tell(&self, plan: &Arc<Plan>, listeners: &[Open], mut opened: Vec<Sockets>) {
        let (done, mut all_done) = unbounded_channel();
        for worker in self.workers.iter() {
            let own = |(id, sockets): &mut Sockets| Some((*id, sockets.pop()?));
            let change = Change {
                plan: Arc::clone(plan),
                listeners: listeners.iter().map(|open| open.id).collect(),
                opened: opened.iter_mut().filter_map(own).collect(),
                done: done.clone(),
            };
            // A worker that has ended needs no telling.
            let _ = worker.send(Message::Change(change));
        }
        drop(done);
        self.changes.send_replace(());
        let _ = all_done.blocking_recv();
    }
}

/// Waits for the first addresses of these names, for a while.
fn resolve(wanted: &UnboundedSender<Wanted>, names: Vec<Arc<Name>>) {
    if names.is_empty() {
        return;
    }
    let (first, resolved) = blocking::channel();
    if wanted.send(Wanted { names, first }).is_ok() {
        let _: Result<(), _> = resolved.recv_timeout(RESOLVE_FIRST);
    }
}
