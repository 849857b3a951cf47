//! `vanward run --config etcd://…`: an instance with a configuration in etcd.

use std::process::ExitCode;
use std::thread::JoinHandle;

use ::control::{SharedBase, SharedChange, SharedConfiguration, SharedState, SourceFailure};
use ::fleet::{
    ChangedEntry, FollowStart, InstanceOptions, InstanceStanding, Location, MapBase, MapChange, MapOrder,
    MapState, MapWork,
};
use telemetry::message;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot::{self, Receiver};

use super::Operation;
use super::fleet_flags::FleetFlags;

pub(crate) fn run(
    location: &str,
    flags: &FleetFlags,
    operation: &Operation,
    inheritance: ::control::Inheritance,
) -> ExitCode {
    let options = match options(flags, location) {
        Ok(options) => options,
        Err(why) => return super::fail(super::USAGE, why),
    };
    if !options.location.is_secure {
        message::warn(&format!(
            "{location}: the configuration crosses the network in the clear; etcd:// uses TLS"
        ));
    }
    let (location, secrets, name) = (options.location.clone(), options.secrets, options.name.clone());
    let beginning = match on_a_thread(|| ::fleet::begin(options)) {
        Ok(beginning) => beginning,
        Err(why) => return super::not_run(&why),
    };
    beginning.remarks.iter().for_each(|remark| message::warn(remark));
    let (current, operation) = (beginning.current.clone(), operation.clone());
    let over = operation.clone();
    let reread: ::control::Reread =
        Box::new(move || super::run::with_flags(current.examine(&location, secrets), &over));
    let config = match super::run::first(reread()) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let (orders, ordered) = unbounded_channel();
    let setup = ::control::Setup {
        reread: Some(reread),
        inheritance,
        instance: Some(name),
        share_map: Some(share_map(orders)),
        ..Default::default()
    };
    let (end, ended) = oneshot::channel();
    let mut thread = None;
    let code = super::serve_with(config, setup, &operation, |running| {
        thread = follow(beginning, running.handle(), ordered, ended);
    });
    let _ = end.send(());
    if let Some(thread) = thread {
        let _ = thread.join();
    }
    code
}

fn options(flags: &FleetFlags, location: &str) -> Result<InstanceOptions, String> {
    Ok(InstanceOptions {
        location: Location::parse(location)?,
        access: flags.etcd.access(),
        name: flags.name()?,
        folder: flags.folder(),
        program: env!("VANWARD_VERSION").to_owned(),
        secrets: flags.etcd.secrets(),
    })
}

fn follow(
    beginning: FollowStart,
    handle: ::control::Handle,
    orders: UnboundedReceiver<MapOrder>,
    ended: Receiver<()>,
) -> Option<JoinHandle<()>> {
    let started = std::thread::Builder::new().name("fleet".to_owned()).spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
        match runtime {
            Ok(runtime) => runtime.block_on(beginning.follow(FleetProxy(handle), orders, ended)),
            Err(error) => message::error(&format!("etcd is not watched: {error}")),
        }
    });
    started.inspect_err(|error| message::error(&format!("etcd is not watched: {error}"))).ok()
}

/// Makes changes of maps on all instances, by the thread that follows etcd.
fn share_map(orders: UnboundedSender<MapOrder>) -> ::control::ShareMap {
    Box::new(move |map, order| {
        let work = match order {
            ::control::SharedMapOrder::Change(changes) => {
                MapWork::Change(changes.into_iter().map(in_etcd).collect())
            }
            ::control::SharedMapOrder::Replace(text) => MapWork::Replace(text),
            ::control::SharedMapOrder::Reset => MapWork::Reset,
        };
        let (reply, outcome) = oneshot::channel();
        let sent = orders.send(MapOrder { map: map.to_owned(), work, reply });
        let outcome = sent.ok().and_then(|()| outcome.blocking_recv().ok());
        outcome.unwrap_or_else(|| Err("etcd is not watched any more".to_owned()))
    })
}

fn in_etcd(change: SharedChange) -> MapChange {
    match change {
        SharedChange::Set { key, value, ends_ms } => {
            MapChange { key, entry: Some(ChangedEntry { value: Some(value), ends_ms }) }
        }
        SharedChange::Delete { key } => {
            MapChange { key, entry: Some(ChangedEntry { value: None, ends_ms: None }) }
        }
        SharedChange::Drop { key } => MapChange { key, entry: None },
    }
}

fn from_etcd(MapChange { key, entry }: MapChange) -> SharedChange {
    match entry {
        Some(ChangedEntry { value: Some(value), ends_ms }) => SharedChange::Set { key, value, ends_ms },
        Some(ChangedEntry { value: None, .. }) => SharedChange::Delete { key },
        None => SharedChange::Drop { key },
    }
}

/// Waits for a future that stays on its thread.
pub(crate) fn on_a_thread<T, F: Future<Output = Result<T, String>>>(
    future: impl FnOnce() -> F,
) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
    runtime.map_err(|error| error.to_string())?.block_on(async { future().await })
}

/// The proxy as an instance sees it.
struct FleetProxy(::control::Handle);

impl ::fleet::FollowedProxy for FleetProxy {
    fn reload(&self) -> Result<(), String> {
        self.0.reload(", as etcd has a new version")
    }

    fn requests(&self) -> (u64, u64) {
        let counters = self.0.counters();
        (counters.requests, counters.responses_server_error)
    }

    fn peer_address(&self) -> Option<String> {
        self.0.peer_address()
    }

    fn take_peers(&self, addresses: &[String]) {
        if let Err(why) = self.0.take_peers(addresses) {
            message::warn(&format!("the instances of [cache.peers] stay as they were: {why}"));
        }
    }

    fn maps(&self) -> Vec<(String, Option<String>)> {
        self.0.maps()
    }

    fn take_map(&self, name: &str, MapState { generation, base, changes }: MapState) {
        let base = match base {
            MapBase::Known => SharedBase::Known,
            MapBase::Configuration => SharedBase::Configuration,
            MapBase::Text(text) => SharedBase::Text(text),
        };
        let changes = changes.into_iter().map(from_etcd).collect();
        self.0.take_map(name, SharedState { generation, base, changes });
    }

    fn take_map_changes(&self, name: &str, changes: Vec<MapChange>) {
        let changes: Vec<SharedChange> = changes.into_iter().map(from_etcd).collect();
        self.0.take_map_changes(name, &changes);
    }

    fn note_maps(&self, as_of: u64) {
        self.0.note_maps(as_of);
    }

    fn note(&self, standing: &InstanceStanding) {
        let InstanceStanding { version, version_since, state, lost, losses } = standing.clone();
        let failure = lost.map(|(since_seconds, why)| SourceFailure {
            since_seconds,
            why: format!("etcd does not answer, version {version} stays in force: {why}"),
        });
        let (since_seconds, state) = (version_since, state.word());
        self.0.note_configuration(SharedConfiguration { version, since_seconds, state, failure, losses });
    }

    fn warn(&self, message: &str) {
        message::warn(message);
    }

    fn inform(&self, message: &str) {
        message::info(message);
    }
}
