//! Follows a cluster: applies changes, and writes the results into the objects. While the API server is
//! unreachable, the configuration stays in force.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use gateway::{Cluster, ObjectKind, ObjectStatus, OperatorOptions, Reference, Translation};
use serde_json::Value;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::Instant;

use crate::client::{ClusterClient, ClusterFailure};
use crate::current::{CurrentConfig, InForce, valid};
use crate::events::{Refusal, Reporter, WrittenEvents, event};
use crate::lease::{Election, TICK};
use crate::location::ClusterCredentials;
use crate::time::{now, now_us};
use crate::watch::{News, watch};

/// Changes within this time are applied together.
const GATHERING: Duration = Duration::from_millis(100);
/// Received changes that are not applied yet.
const NEWS_MAX: usize = 1024;
/// Time until a failed status is written again.
const STATUS_PAUSE: Duration = Duration::from_secs(5);
/// Maximum time for API requests at the end of the proxy.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub struct Following {
    pub access: ClusterCredentials,
    pub options: OperatorOptions,
    /// Unique name of this instance.
    pub instance: String,
    /// Namespace and name of the lease. Its holder writes statuses.
    pub lease: (String, String),
    /// Whether another process hands over its sockets: a port that seems taken may be one of them.
    pub takes_over: bool,
}

pub trait FollowingProxy: Send + Sync + 'static {
    /// Reloads the configuration, and waits until it is in force. Returns why it is not.
    fn reload(&self) -> Result<(), String>;
    /// Reports to operators why the cluster is not watched; `None` if it is.
    fn note(&self, failure: Option<String>);
    fn warn(&self, message: &str);
    fn inform(&self, message: &str);
}

pub struct ClusterStart {
    pub current: CurrentConfig,
    cluster: Cluster,
    translation: Translation,
    ports: BTreeSet<u16>,
    following: Following,
    client: ClusterClient,
    news: Receiver<News>,
}

/// Reads a cluster. Waits for its API server, and reports that through `tell`. Fails on mistakes in the files for TLS,
/// or in the operator's own file.
pub async fn begin(following: Following, tell: impl Fn(&str)) -> Result<ClusterStart, String> {
    let client = ClusterClient::new(following.access.clone())?;
    let (sender, mut news) = channel(NEWS_MAX);
    start(&client, &sender);
    let mut cluster = Cluster::default();
    let mut missing: Vec<ObjectKind> = ObjectKind::ALL.to_vec();
    let mut told = BTreeSet::new();
    while !missing.is_empty() {
        let Some(one) = news.recv().await else {
            return Err("the watch of the cluster has ended".to_owned());
        };
        match &one {
            News::All(kind, _) => missing.retain(|other| other != kind),
            News::Missing(kind) => {
                missing.retain(|other| other != kind);
                tell(&not_installed(*kind));
            }
            News::Trouble(_, Some(failure)) => {
                // Reported once for all kinds, unless it concerns one.
                let why = failure.to_string();
                if told.insert(why.clone()) {
                    tell(&format!("waiting for the cluster: {why}"));
                }
            }
            News::Put(..) | News::Gone(..) | News::Trouble(_, None) => {}
        }
        apply(&mut cluster, one);
    }
    let none = BTreeSet::new();
    let own = (!following.takes_over).then_some(&none);
    let (translation, ports) = valid(&cluster, &following.options, own)?;
    let current = CurrentConfig::default();
    tls::keep_in_memory(&translation.files);
    current.set(InForce::from(&translation));
    Ok(ClusterStart { current, cluster, translation, ports, following, client, news })
}

fn start(client: &ClusterClient, sender: &Sender<News>) {
    for kind in ObjectKind::ALL {
        tokio::task::spawn_local(watch(client.clone(), kind, sender.clone()));
    }
}

fn not_installed(kind: ObjectKind) -> String {
    let (group, version, plural) = kind.path();
    format!(
        "the cluster does not know {plural} of {group}/{version}: they are not watched until it knows them"
    )
}

/// Applies changes to the cluster. Returns whether it may differ now.
fn apply(cluster: &mut Cluster, news: News) -> bool {
    match news {
        News::All(kind, objects) => {
            cluster.all(kind).iter().for_each(|known| cluster.remove(known));
            objects.into_iter().for_each(|object| cluster.put(kind, object));
        }
        News::Put(kind, object) => cluster.put(kind, object),
        News::Gone(kind, object) => {
            let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
            cluster.remove(&Reference { kind, namespace: text("namespace"), name: text("name") });
        }
        News::Missing(kind) => cluster.all(kind).iter().for_each(|known| cluster.remove(known)),
        News::Trouble(..) => return false,
    }
    true
}

impl ClusterStart {
    /// Follows the cluster until the proxy ends, that is until `ended` resolves.
    pub async fn follow(self, proxy: impl FollowingProxy, ended: impl Future) {
        let Self { current, cluster, translation, ports, following, client, news } = self;
        let (namespace, name) = following.lease.clone();
        let election = Election::new(client.clone(), namespace, name, following.instance.clone());
        let mut instance = ClusterInstance {
            proxy: Arc::new(proxy),
            current,
            cluster,
            translation,
            ports,
            following,
            client,
            election,
            unwritten: BTreeMap::new(),
            troubled: BTreeMap::new(),
            told: BTreeMap::new(),
            looked_at_lease: None,
            events: WrittenEvents::new(Instant::now()),
        };
        tokio::select! {
            () = instance.run(news) => {}
            _ = ended => {}
        }
        let _ = tokio::time::timeout(FAREWELL_MAX, instance.election.release()).await;
    }
}

struct ClusterInstance<P> {
    proxy: Arc<P>,
    current: CurrentConfig,
    cluster: Cluster,
    translation: Translation,
    ports: BTreeSet<u16>,
    following: Following,
    client: ClusterClient,
    election: Election,
    /// Statuses that could not be written, and the time of the next attempt.
    unwritten: BTreeMap<Reference, Instant>,
    troubled: BTreeMap<ObjectKind, Instant>,
    /// Last message to operators, by subject.
    told: BTreeMap<String, String>,
    looked_at_lease: Option<Instant>,
    events: WrittenEvents,
}

impl<P: FollowingProxy> ClusterInstance<P> {
    async fn run(&mut self, mut news: Receiver<News>) {
        self.tell_unreadable();
        self.proxy.note(None);
        loop {
            self.look_at_lease().await;
            if self.election.holds() {
                self.write_statuses().await;
                self.write_events().await;
            }
            let Ok(one) = tokio::time::timeout(TICK, news.recv()).await else { continue };
            let Some(one) = one else { return };
            let mut is_changed = self.apply(one);
            let until = Instant::now() + GATHERING;
            while let Ok(Some(one)) = tokio::time::timeout_at(until, news.recv()).await {
                is_changed |= self.apply(one);
            }
            if is_changed {
                self.take_up().await;
            }
        }
    }

    fn apply(&mut self, news: News) -> bool {
        match &news {
            News::Trouble(kind, Some(failure)) => {
                let why = format!("the cluster is not watched, the configuration in force stays: {failure}");
                if self.troubled.is_empty() {
                    self.proxy.warn(&why);
                }
                self.proxy.note(Some(why));
                self.troubled.entry(*kind).or_insert_with(Instant::now);
            }
            News::Trouble(kind, None) => {
                if let Some(since) = self.troubled.remove(kind)
                    && self.troubled.is_empty()
                {
                    self.proxy.inform(&format!(
                        "the cluster is watched again, after {} s",
                        since.elapsed().as_secs()
                    ));
                    self.proxy.note(None);
                }
            }
            News::Missing(kind) => self.tell(kind.name(), &not_installed(*kind)),
            _ => {}
        }
        apply(&mut self.cluster, news)
    }

    /// Sends a message about a subject to operators, unless it repeats the last one.
    fn tell(&mut self, about: &str, message: &str) {
        if self.told.insert(about.to_owned(), message.to_owned()).as_deref() != Some(message) {
            self.proxy.warn(message);
        }
    }

    /// Applies the cluster's objects. Invalid ones change nothing.
    async fn take_up(&mut self) {
        let valid = valid(&self.cluster, &self.following.options, Some(&self.ports));
        let (translation, ports) = match valid {
            Ok(valid) => valid,
            Err(why) => {
                return self.tell("the whole", &format!("the cluster's configuration is not applied: {why}"));
            }
        };
        let before = self.current.get();
        tls::keep_in_memory(&translation.files);
        let after = InForce::from(&translation);
        if after != before {
            self.current.set(after);
            let proxy = Arc::clone(&self.proxy);
            // The reload waits for the workers.
            let reloaded = tokio::task::spawn_blocking(move || proxy.reload()).await;
            if let Err(why) = reloaded.unwrap_or_else(|error| Err(error.to_string())) {
                self.current.set(before);
                tls::keep_in_memory(&self.translation.files);
                return self.tell("the whole", &format!("the cluster's configuration is not applied: {why}"));
            }
        }
        self.told.remove("the whole");
        self.translation = translation;
        self.ports = ports;
        self.tell_unreadable();
    }

    fn tell_unreadable(&mut self) {
        for (object, why) in self.translation.unreadable.clone() {
            self.tell(&object.to_string(), &format!("{object} cannot be read and is left out: {why}"));
        }
        let mut remarks: BTreeMap<Reference, Vec<String>> = BTreeMap::new();
        for (object, why) in &self.translation.remarks {
            remarks.entry(object.clone()).or_default().push(why.clone());
        }
        for (object, why) in remarks {
            self.tell(&object.to_string(), &format!("{object}: {}", why.join("; ")));
        }
    }

    async fn look_at_lease(&mut self) {
        if self.looked_at_lease.is_some_and(|at| at.elapsed() < TICK) {
            return;
        }
        self.looked_at_lease = Some(Instant::now());
        let was_held = self.election.holds();
        match self.election.tick().await {
            Ok(()) => drop(self.told.remove("the lease")),
            // Another message reports an unreachable server.
            Err(ClusterFailure::Unreachable(_)) => {}
            Err(failure) => {
                self.tell(
                    "the lease",
                    &format!("no statuses are written, because there is no lease: {failure}"),
                );
            }
        }
        if self.election.holds() && !was_held {
            self.proxy.inform("this instance writes the statuses of the cluster");
        }
    }

    async fn write_statuses(&mut self) {
        let (controller, now) = (self.following.options.controller.clone(), now());
        for status in self.translation.statuses.clone() {
            // A slow server must not cost the lease.
            self.look_at_lease().await;
            if !self.election.holds() {
                return;
            }
            let Some((version, after)) = self.changed(&status, &controller, &now) else { continue };
            let object = &status.object;
            if self.unwritten.get(object).is_some_and(|until| Instant::now() < *until) {
                continue;
            }
            let written = self.client.write_status(object, &version, &after).await;
            // The watch returns the written status; until then it is not written again.
            self.unwritten.insert(object.clone(), Instant::now() + STATUS_PAUSE);
            match written {
                Ok(()) => drop(self.told.remove(&format!("the status of {object}"))),
                Err(failure) if failure.is_conflict() || failure.is_missing() => {
                    self.unwritten.remove(object);
                }
                Err(ClusterFailure::Unreachable(_)) => return,
                Err(failure) => {
                    let about = format!("the status of {object}");
                    self.tell(&about, &format!("{about} cannot be written: {failure}"));
                }
            }
        }
    }

    async fn write_events(&mut self) {
        let Translation { unreadable, remarks, .. } = &self.translation;
        let unreadable = unreadable.iter().map(|(object, why)| (object, format!("it cannot be read: {why}")));
        let remarks = remarks.iter().map(|(object, why)| (object, why.clone()));
        let refusals = unreadable.chain(remarks).map(|(object, why)| (object.clone(), why));
        let refusals: BTreeSet<Refusal> = refusals.collect();
        for (refusal, times) in self.events.due(&refusals, Instant::now()) {
            self.look_at_lease().await;
            let uid = self.cluster.uid(&refusal.0).unwrap_or_default().to_owned();
            let Following { options, instance, .. } = &self.following;
            let by = Reporter { controller: &options.controller, instance, now: now_us() };
            let written = if self.election.holds() {
                self.client.write_event(event(&refusal, &uid, times, &by)).await
            } else {
                Err(ClusterFailure::Unreachable(String::new()))
            };
            match written {
                Ok(()) => drop(self.told.remove("the Events")),
                // Written once the server is back, or by the next holder of the lease.
                Err(ClusterFailure::Unreachable(_)) => self.events.failed(&refusal),
                Err(failure) => self.tell("the Events", &format!("Events cannot be written: {failure}")),
            }
        }
    }

    /// Returns an object's version and new status, if that differs; `None` if the object has changed since it was read.
    fn changed(&mut self, status: &ObjectStatus, controller: &str, now: &str) -> Option<(String, Value)> {
        let (before, metadata) = self.cluster.status(&status.object)?;
        if metadata.generation != status.generation {
            return None;
        }
        match status.changed(before, controller, now) {
            Some(after) => Some((metadata.resource_version.clone(), after)),
            None => {
                self.unwritten.remove(&status.object);
                None
            }
        }
    }
}
