//! Replaces the configuration while requests run: builds a plan, opens new listeners, and gives the plan to every
//! worker. An invalid configuration changes nothing.

/// Opens sockets of listeners and distributes them to workers.
mod sockets;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc as blocking};
use std::time::Instant;

use arc_swap::ArcSwap;
use balance::Time;
use config::{Config, ListenAddress, Mistake, Reading};
use mistake::repeated;
use telemetry::message;
use telemetry::{AccessLog, CounterPlaces, CounterReader, WorkerLog};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use crate::admin::Admin;
use crate::admin::maps::now_ms;
use crate::capture_files::CaptureFiles;
use crate::certificates;
use crate::control_listener::{ControlListener, PageAddress};
use crate::handover::{self, Handover, Inheritance, Purpose};
use crate::map_sharing::{MapSharing, ShareMap};
use crate::metrics::Metrics;
use crate::open_log::open_logs;
use crate::retired::Retired;
use crate::runtime_overrides::{
    Amendment, MaintenanceRefusal, OverrideRefusal, ReshapeRefusal, RuntimeOverrides,
};
use crate::server_changes;
use crate::shared::Shared;
use crate::{Reread, StartError, speak};
use api::maintenance::MaintenanceOrder;
use api::shaping::{PlaceKind, PlaceNamed, ShapingOrder};
use proxy::cache::Cache;
use proxy::context::plan::Plan;
use proxy::context::worker::{ListeningSocket, LogChange, PlanChange, WorkerMessage};
use proxy::faults::Faults;
use proxy::faults::listeners;
use proxy::listening::ListenerId;
use proxy::owned::pressure::Pressure;
use proxy::owned::quic_processes::QuicProcesses;
use proxy::shared::captures::Captures;
use proxy::shared::handover_state::HandoverState;
use proxy::shared::live_maps::LiveMaps;
use proxy::worker::listen::OpenSockets;
pub(crate) use sockets::{Sockets, WorkerStart, deal};
use transport::resolve::{RESOLVE_FIRST, ResolvedName, ServerNames, WantedNames};
use transport::unix::SocketFile;

/// Owns the plan in force and replaces it. Shared by everything that changes the configuration.
pub(crate) struct Control {
    plan: ArcSwap<Plan>,
    pub(crate) epoch: Instant,
    pub(crate) workers: Arc<[UnboundedSender<WorkerMessage>]>,
    pub(crate) readers: Vec<CounterReader>,
    /// Held during a change, so that there is one at a time. `held` stays free meanwhile.
    turn: Mutex<()>,
    /// Set when another process has taken over, or the proxy ends: no change follows.
    is_leaving: AtomicBool,
    held: Mutex<Held>,
    last_listener: AtomicU64,
    reloads: AtomicU64,
    wanted: UnboundedSender<WantedNames>,
    reread: Option<Reread>,
    pub(crate) metrics: Metrics,
    pub(crate) pressure: Arc<Pressure>,
    /// The fault rules. A change of them is in force at once, not with the next plan.
    pub(crate) faults: Arc<Faults>,
    /// Captures of running traffic, and those of them that routes write to files.
    pub(crate) captures: Arc<Captures>,
    pub(crate) capture_files: CaptureFiles,
    /// Notified when operators have changed rates or delays.
    pub(crate) shaping_overrides: Arc<Notify>,
    /// The plans before the one in force.
    pub(crate) retired: Retired,
    /// Returns freed memory to the system; see `Setup`.
    release_memory: Option<fn()>,
    /// Notified when there is a new plan.
    pub(crate) changes: watch::Sender<()>,
    pub(crate) admin: Admin,
    pub(crate) dashboard: ControlListener<PageAddress>,
    pub(crate) acme: crate::acme::AcmeProgress,
    pub(crate) shared: Shared,
    /// Set if instances share their maps.
    pub(crate) map_sharing: Option<MapSharing>,
    /// Previous processes that may have QUIC connections.
    pub(crate) quic_processes: Arc<QuicProcesses>,
}

struct Held {
    file: Config,
    overrides: RuntimeOverrides,
    open: Vec<Open>,
    /// Whether another process is taking over: it then controls the sockets.
    is_lent: bool,
    log: Option<AccessLog>,
}

#[derive(Debug, Clone)]
struct Open {
    id: ListenerId,
    /// As configured: the port may be 0.
    configured: ListenAddress,
    /// With the actual port.
    bound: ListenAddress,
    /// All its sockets, for an upgrade.
    copies: Arc<[OwnedFd]>,
    /// All its QUIC sockets, for an upgrade.
    udp: Arc<[OwnedFd]>,
    /// Removed when the address is no longer used.
    file: Option<Arc<SocketFile>>,
}

#[derive(Debug, Default)]
pub(crate) struct Reloaded {
    pub(crate) warnings: Vec<Mistake>,
    /// Remarks on changes that need a restart or an upgrade.
    pub(crate) remarks: Vec<String>,
}

/// Why a reload failed and changed nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReloadError {
    #[error("{}", listed(.0))]
    Mistakes(Vec<Mistake>),
    #[error("{0}")]
    NotPossible(#[from] StartError),
    #[error("the proxy was configured by flags and has no file to reload")]
    NoFile,
}

/// Why a change by the admin API failed and changed nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AmendError {
    #[error("{0}")]
    Refused(#[from] OverrideRefusal),
    #[error("{0}")]
    NotReshaped(#[from] ReshapeRefusal),
    #[error("{0}")]
    NotSwitched(#[from] MaintenanceRefusal),
    /// The change would make the configuration invalid.
    #[error("{}", sentences(.0))]
    Mistakes(Vec<Mistake>),
    #[error("{0}")]
    NotPossible(#[from] StartError),
}

/// Joins mistakes into one text, without places, because this configuration is in no file.
pub(crate) fn sentences(mistakes: &[Mistake]) -> String {
    mistakes.iter().map(Mistake::sentence).collect::<Vec<_>>().join("; ")
}

fn listed(mistakes: &[Mistake]) -> String {
    repeated(mistakes).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

pub(crate) struct Means {
    pub(crate) workers: Arc<[UnboundedSender<WorkerMessage>]>,
    pub(crate) readers: Vec<CounterReader>,
    pub(crate) wanted: UnboundedSender<WantedNames>,
    pub(crate) metrics: Metrics,
    pub(crate) admin: Admin,
    pub(crate) dashboard: ControlListener<PageAddress>,
    pub(crate) reread: Option<Reread>,
    pub(crate) instance: Option<String>,
    pub(crate) share_map: Option<ShareMap>,
    pub(crate) release_memory: Option<fn()>,
}

impl Control {
    /// Builds the first plan, with the previous process's state. Opens no listeners yet. Fails if certificates have
    /// problems.
    pub(crate) fn new(
        file: Config,
        inherited: &mut Inheritance,
        means: Means,
    ) -> Result<Arc<Self>, StartError> {
        let Means {
            workers,
            readers,
            wanted,
            metrics,
            admin,
            dashboard,
            reread,
            instance,
            share_map,
            release_memory,
        } = means;
        let overrides = std::mem::take(&mut inherited.overrides);
        let config = overrides.over(&file).map_err(StartError::Overrides)?;
        let (names, new) = ServerNames::from_config(&config, None);
        resolve(&wanted, new);
        let mut plan = Plan::new(config, None, Time::START, names).map_err(StartError::Tls)?;
        plan.places = metrics.places(&plan);
        plan.inherit(&std::mem::take(&mut inherited.handover_state), Time::START);
        plan.remark_on_quic_key(&plan.config).iter().for_each(|remark| message::warn(remark));
        overrides.settle(&plan, Time::START);
        let dropped = plan.maps.inherit(std::mem::take(&mut inherited.maps), now_ms());
        dropped.iter().for_each(|why| message::warn(why));
        if reread.is_none() {
            // Otherwise the configuration's mistakes and warnings report them with their places.
            certificates::remark(&plan, None);
        }
        let faults = Faults::new(&file, std::mem::take(&mut inherited.faults));
        Ok(Arc::new(Self {
            plan: ArcSwap::from_pointee(plan),
            epoch: Instant::now(),
            workers,
            readers,
            turn: Mutex::default(),
            is_leaving: AtomicBool::new(false),
            held: Mutex::new(Held { file, overrides, open: Vec::new(), is_lent: false, log: None }),
            last_listener: AtomicU64::new(0),
            reloads: AtomicU64::new(0),
            wanted,
            reread,
            metrics,
            pressure: Arc::default(),
            faults,
            captures: Arc::default(),
            capture_files: CaptureFiles::default(),
            shaping_overrides: Arc::default(),
            retired: Retired::default(),
            release_memory,
            changes: watch::Sender::new(()),
            admin,
            dashboard,
            acme: Default::default(),
            shared: Shared::new(instance),
            map_sharing: share_map.map(MapSharing::new),
            quic_processes: Arc::new(QuicProcesses::new(std::mem::take(&mut inherited.processes))),
        }))
    }

    /// Returns memory to the system that this thread has freed. Takes milliseconds after a reload of many routes.
    pub(crate) fn release_memory(&self) {
        if let Some(release) = self.release_memory {
            release();
        }
    }

    /// Whether another process has taken over, or the proxy ends.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    pub(crate) fn plan(&self) -> Arc<Plan> {
        self.plan.load_full()
    }

    /// The addresses of the open listeners, in the order of the configuration.
    pub(crate) fn addresses(&self) -> Vec<ListenAddress> {
        lock(&self.held).open.iter().map(|open| open.bound.clone()).collect()
    }

    /// The number of successful configuration changes.
    pub(crate) fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Relaxed)
    }

    pub(crate) fn overrides(&self) -> RuntimeOverrides {
        lock(&self.held).overrides.clone()
    }

    /// Opens the sockets of the first plan, unless the previous process handed them over, and the access log.
    /// Returns the initial state of each worker, in the workers' order.
    pub(crate) fn listen(&self, inherited: &mut Inheritance) -> Result<Vec<WorkerStart>, StartError> {
        let plan = self.plan();
        let (next, opened) = self.open(&plan.config, &[], inherited)?;
        plan.know_ports(next.iter().map(|open| open.bound.port()));
        if let Some(address) = inherited.activated.left() {
            return Err(StartError::Activated(address.clone()));
        }
        let own = self.open_own(&plan.config, inherited)?;
        let log = open_logs(&plan.config.access_logs)?;
        let opened_captures = self.capture_files.open(&plan.config)?;
        self.capture_files
            .follow(&plan.config, &self.captures, opened_captures)
            .map_err(StartError::Thread)?;
        speak(&plan.config.messages);
        self.listen_own(own);
        self.metrics.tell_of(log.as_ref());
        let listeners: Vec<ListenerId> = next.iter().map(|open| open.id).collect();
        let dealt = deal(opened, self.workers.len());
        let mut held = lock(&self.held);
        (held.open, held.log) = (next, log);
        let beginning = |opened| WorkerStart {
            listeners: listeners.clone(),
            opened,
            log: held.log.as_ref().map(AccessLog::for_worker),
        };
        Ok(dealt.into_iter().map(beginning).collect())
    }

    /// Replaces the configuration, and returns when every worker uses the new one. Requests under way keep the old one.
    /// Returns remarks on changes that need a restart. After an error nothing has changed. Blocks, so the control
    /// thread must not call it: the change waits for its name look-ups.
    pub(crate) fn change(&self, file: Config) -> Result<Vec<String>, StartError> {
        let outcome = self.take_over(file);
        self.metrics.changed(outcome.is_ok());
        outcome
    }

    fn take_over(&self, file: Config) -> Result<Vec<String>, StartError> {
        let turn = self.turn()?;
        let (held_file, overrides) = {
            let held = lock(&self.held);
            (held.file.clone(), held.overrides.clone())
        };
        let file = file.sharing(&held_file);
        drop(held_file);
        let mut remarks = self.remarks(&file);
        let before = self.plan();
        let config = overrides.over(&file).map_err(StartError::Overrides)?;
        let settled = self.put(file, config, overrides)?;
        server_changes::tell(&before, &self.plan(), "by the file");
        settled.iter().for_each(|change| message::info(&format!("{change}, by the file")));
        remarks.extend(proxy::cache::follow(&before, &self.plan()));
        remarks.extend(self.plan().names.unresolved());
        drop(turn);
        self.reloads.fetch_add(1, Ordering::Relaxed);
        Ok(remarks)
    }

    /// Reloads the file, and writes the outcome as messages, which end in `asked`, the initiator. Blocks, as `change`
    /// does.
    pub(crate) fn reload(&self, asked: &str) -> Result<Reloaded, ReloadError> {
        let outcome = self.reread();
        self.release_memory();
        match &outcome {
            Ok(Reloaded { warnings, remarks }) => {
                repeated(warnings).iter().for_each(|warning| message::warn(&warning.to_string()));
                remarks.iter().for_each(|remark| message::warn(remark));
                message::info(&format!("reloaded{asked}"));
            }
            Err(ReloadError::Mistakes(mistakes)) => {
                for mistake in repeated(mistakes) {
                    message::error(&format!("not reloaded, nothing has changed: {mistake}"));
                }
            }
            Err(error) => message::error(&format!("not reloaded, nothing has changed: {error}")),
        }
        outcome
    }

    fn reread(&self) -> Result<Reloaded, ReloadError> {
        let Reading { config, mistakes, warnings, .. } = self.reread.as_ref().ok_or(ReloadError::NoFile)?();
        let Some(config) = config else {
            self.metrics.changed(false);
            return Err(ReloadError::Mistakes(mistakes));
        };
        let remarks = self.change(config)?;
        Ok(Reloaded { warnings, remarks })
    }

    /// Changes servers at run time. Returns upstream and URL of each changed server. Blocks, as `change` does.
    pub(crate) fn amend(
        &self,
        amendment: &Amendment,
        server: &str,
        upstream: Option<&str>,
    ) -> Result<Vec<(String, String)>, AmendError> {
        self.overlaid(|file, overrides| {
            Ok(overrides.amend(amendment, server, upstream, (file, &self.plan().config))?)
        })
    }

    /// Changes the rates or delays of a place at run time. Returns the place. Blocks, as `change` does.
    pub(crate) fn reshape(&self, order: &ShapingOrder) -> Result<PlaceNamed, AmendError> {
        self.overlaid(|file, overrides| Ok(overrides.shaping.amend(order, file, self.time())?))
    }

    /// Resets the rates and delays of a place to the file's settings. Blocks, as `change` does.
    pub(crate) fn unshape(&self, place: PlaceKind, name: &str) -> Result<(), AmendError> {
        self.overlaid(|file, overrides| Ok(overrides.shaping.remove(place, name, file)?))
    }

    /// Resets all rates and delays to the file's settings. Returns the number of changes. Blocks, as `change` does.
    pub(crate) fn unshape_all(&self) -> Result<usize, AmendError> {
        self.overlaid(|_, overrides| Ok(overrides.shaping.clear()))
    }

    /// Resets the rates and delays whose changes have expired. Returns their places. Blocks, as `change` does.
    pub(crate) fn expire(&self) -> Result<Vec<PlaceNamed>, AmendError> {
        self.overlaid(|_, overrides| Ok(overrides.shaping.expire(self.time())))
    }

    /// Switches the maintenance of routes at run time. Returns their names. Blocks, as `change` does.
    pub(crate) fn switch_maintenance(
        &self,
        order: &MaintenanceOrder,
        begins: bool,
    ) -> Result<Vec<String>, AmendError> {
        self.overlaid(|file, overrides| {
            let maintenance = &mut overrides.maintenance;
            Ok(if begins { maintenance.begin(order, file) } else { maintenance.end(order, file) }?)
        })
    }

    /// Applies the file's configuration with amended overrides. Blocks, as `change` does.
    pub(crate) fn overlaid<T>(
        &self,
        amend: impl FnOnce(&Config, &mut RuntimeOverrides) -> Result<T, AmendError>,
    ) -> Result<T, AmendError> {
        let _turn = self.turn()?;
        let (file, mut overrides) = {
            let held = lock(&self.held);
            (held.file.clone(), held.overrides.clone())
        };
        let before = overrides.clone();
        let done = amend(&file, &mut overrides)?;
        if overrides != before {
            let config = overrides.over(&file).map_err(AmendError::Mistakes)?;
            self.put(file, config, overrides)?;
            self.shaping_overrides.notify_one();
        }
        Ok(done)
    }

    /// Changes maps, while no other change of the configuration is under way. Blocks until the other has ended.
    pub(crate) fn change_maps<T>(&self, change: impl FnOnce(&LiveMaps) -> T) -> Result<T, StartError> {
        let _turn = self.turn()?;
        Ok(change(&self.plan().maps))
    }

    /// Updates the plan to the current addresses of server names. Blocks, as `change` does.
    pub(crate) fn follow_names(&self) {
        let Ok(_turn) = self.turn() else { return };
        let before = self.plan();
        if before.upstreams.iter().all(|upstream| upstream.follows(&before.names)) {
            return;
        }
        // Certificates are kept from the plan before, so no invalid file can be read.
        let Ok(mut plan) = Plan::new(before.config.clone(), Some(&before), self.time(), before.names.clone())
        else {
            return;
        };
        plan.places = self.places(&plan, &before);
        self.overrides().settle(&plan, self.time());
        let open = lock(&self.held).open.clone();
        let _none: Vec<WorkerLog> = self.tell(plan, &open, Vec::new(), None);
        server_changes::tell(&before, &self.plan(), "as discovery reports");
    }

    /// Makes listeners refuse or accept connections according to the fault rules. Does not wait.
    pub(crate) fn settle_refusals(&self) {
        let held = lock(&self.held);
        if held.is_lent || self.is_leaving.load(Ordering::Acquire) {
            return;
        }
        let now_ns = self.time_ns();
        let of_tcp = |(_, open): &(usize, &Open)| open.bound.tcp().is_some();
        for (place, Open { id, bound, copies, .. }) in held.open.iter().enumerate().filter(of_tcp) {
            let rule = self.faults.refuses(place, now_ns);
            let turn = Cell::new(0);
            let take = |stream, peer| {
                let worker = turn.replace(turn.get() + 1) % self.workers.len();
                // A worker that has ended takes none.
                let _ = self.workers[worker].send(WorkerMessage::Connection(stream, peer, *id));
            };
            match (listeners::settle(copies, rule.is_some(), &take), rule) {
                (Ok(true), Some(rule)) => rule.count(),
                (Ok(true), None) => self.tell_workers(|| WorkerMessage::Listen(*id)),
                (Ok(false), _) => {}
                (Err(error), rule) => {
                    let done = if rule.is_some() { "refuse" } else { "accept" };
                    message::warn(&format!(
                        "listener {bound} cannot {done} connections for a fault: {error}"
                    ));
                }
            }
        }
    }

    pub(crate) fn reopen_log(&self) {
        if let Some(log) = &lock(&self.held).log {
            log.reopen();
        }
    }

    pub(crate) fn time(&self) -> Time {
        Time::from_micros(self.epoch.elapsed().as_micros() as u64)
    }

    /// The current time on the workers' clock, in nanoseconds.
    pub(crate) fn time_ns(&self) -> u64 {
        // 2^64 nanoseconds are 584 years.
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Takes over the socket files from the previous process.
    pub(crate) fn claim(&self) {
        lock(&self.held).open.iter().filter_map(|open| open.file.as_ref()).for_each(|file| file.claim());
        self.admin.claim();
    }

    /// Ends the workers by `message`, and closes all listening sockets. With a successor, files of Unix sockets stay.
    pub(crate) fn leave(&self, has_successor: bool, message: impl Fn() -> WorkerMessage) {
        self.is_leaving.store(true, Ordering::Release);
        for open in &mut lock(&self.held).open {
            (open.copies, open.udp) = Default::default();
            if let Some(file) = open.file.take().filter(|_| has_successor) {
                file.leave();
            }
        }
        self.captures.end_all();
        if has_successor {
            if let Some(cache) = &self.plan().cache {
                cache.leave();
            }
            self.leave_own();
        }
        self.tell_workers(message);
    }

    pub(crate) fn tell_workers(&self, message: impl Fn() -> WorkerMessage) {
        for worker in self.workers.iter() {
            // A worker that has ended needs no message.
            let _ = worker.send(message());
        }
    }

    /// Takes the access log once the workers have ended.
    pub(crate) fn take_log(&self) -> Option<AccessLog> {
        lock(&self.held).log.take()
    }

    /// Runs `upgrade` with everything that a new process needs to take over, and without concurrent changes. On
    /// success this process leaves, and sends later purges over the returned channel.
    pub(crate) fn hand_over<T, E: From<io::Error> + From<StartError>>(
        &self,
        upgrade: impl FnOnce(&Handover) -> Result<(T, OwnedFd), E>,
    ) -> Result<T, E> {
        let turn = self.turn()?;
        let (open, overrides) = {
            let mut held = lock(&self.held);
            held.is_lent = true;
            (held.open.clone(), held.overrides.clone())
        };
        let _lent = Lent(self);
        let mut sockets = Vec::new();
        for open in &open {
            let copies = open.copies.iter().map(handover::copy).collect::<io::Result<_>>()?;
            sockets.push((Purpose::Clients(open.configured.to_string()), copies));
        }
        sockets.extend(self.pass_on_own()?);
        let quic = self.pass_on_quic(&open)?;
        let handover_state = HandoverState::new(&self.plan(), self.time());
        let faults = self.faults.handover(&self.plan().config, self.time_ns());
        let shaping = overrides.shaping.orders(self.time()).collect();
        let maps = self.plan().maps.handover(now_ms());
        // The new process stores responses once it serves, which is before it reports that.
        let orders = self.plan().cache.as_ref().map(Cache::hand_over_purges);
        let (successor, channel) =
            upgrade(&Handover { sockets, quic, overrides, shaping, faults, maps, handover_state })?;
        // Waiting changes then find that it is too late: the other process has the state.
        self.is_leaving.store(true, Ordering::Release);
        drop(turn);
        if let Some(orders) = orders {
            orders.begin(channel);
        }
        self.leave(true, || WorkerMessage::Retire);
        Ok(successor)
    }

    fn turn(&self) -> Result<MutexGuard<'_, ()>, StartError> {
        let turn = lock(&self.turn);
        if self.is_leaving.load(Ordering::Acquire) { Err(StartError::Leaving) } else { Ok(turn) }
    }

    /// Remarks on changes in a file that need another process.
    fn remarks(&self, file: &Config) -> Vec<String> {
        let (now, wanted) = (self.workers.len(), worker_count(file));
        let other = (now != wanted).then(|| {
            format!(
                "workers: {now} are running; the change to {wanted} applies after an upgrade (SIGUSR2) or a \
                     restart"
            )
        });
        other.into_iter().chain(self.plan().remark_on_quic_key(file)).collect()
    }

    /// The only way from a plan to the next: steps that can fail come first. `config` is that of the file with the
    /// overrides applied. Returns which servers get requests now, or no longer.
    fn put(
        &self,
        file: Config,
        config: Config,
        overrides: RuntimeOverrides,
    ) -> Result<Vec<String>, StartError> {
        let before = self.plan();
        // Routes and upstreams that an override changed in the same way are kept, too.
        let config = config.sharing(&before.config);
        let (names, new) = ServerNames::from_config(&config, Some(&before.names));
        resolve(&self.wanted, new);
        let now = self.time();
        let mut plan = Plan::new(config, Some(&before), now, names).map_err(StartError::Tls)?;
        let inherited = &mut Inheritance::default();
        let open = lock(&self.held).open.clone();
        let (next, opened) = self.open(&plan.config, &open, inherited)?;
        let own = self.open_own(&plan.config, inherited)?;
        let wanted_logs = &plan.config.access_logs;
        let is_same_log = *wanted_logs == before.config.access_logs;
        let log = if is_same_log { None } else { Some(open_logs(wanted_logs)?) };
        let captures = self.capture_files.open(&plan.config)?;
        self.capture_files.follow(&plan.config, &self.captures, captures).map_err(StartError::Thread)?;

        self.listen_own(own);
        plan.places = self.places(&plan, &before);
        let settled = overrides.settle(&plan, now);
        if self.reread.is_none() {
            certificates::remark(&plan, Some(&before));
        }
        drop(open);
        self.close_copies(&next);
        let given_back = self.tell(plan, &next, opened, log.as_ref());
        self.faults.reread(&file, self.time_ns());
        let mut held = lock(&self.held);
        (held.file, held.overrides, held.open) = (file, overrides, next);
        let last = log.map(|log| std::mem::replace(&mut held.log, log));
        let log = held.log.clone();
        drop(held);
        if let Some(last) = last {
            if let Some(last) = last {
                // Its losses count until it is closed.
                let lost = last.clone();
                last.close_after(given_back);
                self.metrics.add_dropped(lost.dropped());
            }
            self.metrics.tell_of(log.as_ref());
        }
        self.settle_refusals();
        Ok(settled)
    }

    /// Assigns the plan's places in the counters: those of the previous plan, if the names are the same.
    fn places(&self, plan: &Plan, before: &Plan) -> Option<Arc<CounterPlaces>> {
        let same = before.places.as_ref().filter(|_| Metrics::counts(plan) && plan.is_named_like(before));
        same.map_or_else(|| self.metrics.places(plan), |same| Some(Arc::clone(same)))
    }

    /// Returns the listeners of a configuration, given the open ones, and the sockets to open for them.
    fn open(
        &self,
        config: &Config,
        before: &[Open],
        inherited: &mut Inheritance,
    ) -> Result<(Vec<Open>, Vec<Sockets>), StartError> {
        let mut known = before.to_vec();
        let mut next = Vec::with_capacity(config.listeners.len());
        let mut opened = Vec::new();
        let goes = |open: &&Open| config.listeners.iter().all(|kept| kept.address != open.configured);
        let leaving: Vec<_> = before.iter().filter(goes).map(|open| open.bound.clone()).collect();
        for listener in &config.listeners {
            let address = &listener.address;
            let failed = |error| StartError::Listen { address: address.clone(), error };
            let passed_on = inherited.take_udp(&address.to_string());
            if let Some(place) = known.iter().position(|open| open.configured == *address) {
                let mut open = known.remove(place);
                if !listener.http3 {
                    open.udp = Arc::default();
                } else if open.udp.is_empty() {
                    let (udp, sockets) = self.open_udp(&open.bound, passed_on).map_err(failed)?;
                    opened.push((open.id, sockets));
                    open.udp = udp;
                }
                next.push(open);
                continue;
            }
            let passed_on = (inherited.take_listening(address), passed_on);
            let (OpenSockets { sockets, bound, file }, of_quic) =
                self.open_listener(listener, passed_on, &leaving).map_err(failed)?;
            let shared = match address {
                ListenAddress::Tcp(_) | ListenAddress::Any(_) => &sockets[..],
                // All workers share the socket.
                ListenAddress::Unix(_) => &sockets[..1],
            };
            let copies = shared.iter().map(handover::copy).collect::<io::Result<_>>().map_err(failed)?;
            let id = ListenerId(self.last_listener.fetch_add(1, Ordering::Relaxed));
            opened.push((id, sockets.into_iter().map(ListeningSocket::Tcp).collect()));
            let mut udp = Arc::default();
            if let Some((copies, sockets)) = of_quic {
                opened.push((id, sockets));
                udp = copies;
            }
            let (configured, file) = (address.clone(), file.map(Arc::new));
            next.push(Open { id, configured, bound, copies, udp, file });
        }
        Ok((next, opened))
    }

    /// Closes the control side's copies of the sockets of listeners that are not in `next`. A copy would keep a
    /// socket open after the workers close theirs, and the kernel would reset clients that it assigns there.
    fn close_copies(&self, next: &[Open]) {
        let mut held = lock(&self.held);
        let goes = |open: &&mut Open| next.iter().all(|kept| kept.id != open.id);
        held.open.iter_mut().filter(goes).for_each(|open| (open.copies, open.udp) = Default::default());
    }

    /// Puts a plan in force. `log` is sent if it is a new one; the workers return their buffers for the old one.
    fn tell(
        &self,
        plan: Plan,
        listeners: &[Open],
        opened: Vec<Sockets>,
        log: Option<&Option<AccessLog>>,
    ) -> Vec<WorkerLog> {
        plan.know_ports(listeners.iter().map(|open| open.bound.port()));
        let plan = Arc::new(plan);
        self.retired.free_unused();
        self.retired.add(self.plan.swap(Arc::clone(&plan)));
        let (done, mut all_done) = unbounded_channel();
        for (worker, opened) in self.workers.iter().zip(deal(opened, self.workers.len())) {
            let change = PlanChange {
                plan: Arc::clone(&plan),
                listeners: listeners.iter().map(|open| open.id).collect(),
                opened,
                log: match log {
                    Some(log) => LogChange::Other(log.as_ref().map(AccessLog::for_worker)),
                    None => LogChange::Same,
                },
                done: done.clone(),
            };
            // A worker that has ended needs no message.
            let _ = worker.send(WorkerMessage::Change(Box::new(change)));
        }
        drop(done);
        self.changes.send_replace(());
        std::iter::from_fn(|| all_done.blocking_recv()).collect()
    }
}

/// Marks the sockets as lent until it is dropped.
struct Lent<'c>(&'c Control);

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        lock(&self.0.held).is_lent = false;
        if !self.0.is_leaving.load(Ordering::Acquire) {
            self.0.faults.give_back();
        }
        // A process that failed to take over may have made them refuse connections.
        self.0.settle_refusals();
    }
}

pub(crate) fn worker_count(config: &Config) -> usize {
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    config.workers.unwrap_or(cores).get()
}

/// A panic in a change leaves complete state behind a lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits a limited time for the first addresses of these names.
fn resolve(wanted: &UnboundedSender<WantedNames>, names: Vec<Arc<ResolvedName>>) {
    if names.is_empty() {
        return;
    }
    let (first, resolved) = blocking::channel();
    if wanted.send(WantedNames { names, first }).is_ok() {
        let _: Result<(), _> = resolved.recv_timeout(RESOLVE_FIRST);
    }
}
