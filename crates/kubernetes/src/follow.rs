//! An instance follows a cluster: it takes up what changes, and tells the objects what was found about them. While the API
//! server is gone, the configuration in force stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use gateway::{Cluster, Kind, Options, Reference, Status, Translation};
use serde_json::Value;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::Instant;

use crate::client::{Client, Failure};
use crate::current::{Current, InForce, valid};
use crate::events::{Events, Refusal, Reporter, event};
use crate::lease::{Election, TICK};
use crate::location::Access;
use crate::time::{now, now_us};
use crate::watch::{News, watch};

/// Objects that change one after the other are taken up together.
const GATHERING: Duration = Duration::from_millis(100);
/// Objects that are told of but not yet looked at.
const NEWS_MAX: usize = 1024;
/// How long until a status is written again that could not be.
const STATUS_PAUSE: Duration = Duration::from_secs(5);
/// How long the end of a proxy waits for the API server.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// What an instance is started with.
#[derive(Debug, Clone)]
pub struct Following {
    /// The API server.
    pub access: Access,
    /// What the operator has said.
    pub options: Options,
    /// The name of this instance, which no other has.
    pub instance: String,
    /// The namespace and the name of the lease that says which instance writes statuses.
    pub lease: (String, String),
    /// Whether another process hands its listening sockets over: a port that seems taken may be one of them.
    pub takes_over: bool,
}

/// The running proxy.
pub trait Proxy: Send + Sync + 'static {
    /// Reads the configuration again, and waits until it is in force. Returns why it is not.
    fn reload(&self) -> Result<(), String>;
    /// Writes a message about something to be looked at.
    fn warn(&self, message: &str);
    /// Writes a message.
    fn inform(&self, message: &str);
}

/// A cluster that was read once.
pub struct Beginning {
    /// The configuration in force.
    pub current: Current,
    cluster: Cluster,
    translation: Translation,
    ports: BTreeSet<u16>,
    following: Following,
    client: Client,
    news: Receiver<News>,
}

/// Reads a cluster. Waits for its API server, and says so by `tell`.
///
/// # Errors
/// What is wrong with the files for TLS, or with the operator's own file.
pub async fn begin(following: Following, tell: impl Fn(&str)) -> Result<Beginning, String> {
    let client = Client::new(following.access.clone())?;
    let (sender, mut news) = channel(NEWS_MAX);
    start(&client, &sender);
    let mut cluster = Cluster::default();
    let mut missing: Vec<Kind> = Kind::ALL.to_vec();
    let mut told = BTreeSet::new();
    while !missing.is_empty() {
        let Some(one) = news.recv().await else { return Err("nobody watches the cluster".to_owned()) };
        match &one {
            News::All(kind, _) => missing.retain(|other| other != kind),
            News::Missing(kind) => {
                missing.retain(|other| other != kind);
                tell(&not_installed(*kind));
            }
            News::Trouble(_, Some(failure)) => {
                // Once for all kinds, unless it is about one.
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
    let current = Current::default();
    tls::keep_in_memory(&translation.files);
    current.set(InForce::from(&translation));
    Ok(Beginning { current, cluster, translation, ports, following, client, news })
}

fn start(client: &Client, sender: &Sender<News>) {
    for kind in Kind::ALL {
        tokio::task::spawn_local(watch(client.clone(), kind, sender.clone()));
    }
}

fn not_installed(kind: Kind) -> String {
    let (group, version, plural) = kind.path();
    format!("the cluster does not know {plural} of {group}/{version}: they are not watched until it does")
}

/// Keeps the cluster up to date. Returns whether it may be another one.
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

impl Beginning {
    /// Follows the cluster until the proxy ends, which `ended` tells.
    pub async fn follow(self, proxy: impl Proxy, ended: impl Future) {
        let Self { current, cluster, translation, ports, following, client, news } = self;
        let (namespace, name) = following.lease.clone();
        let election = Election::new(client.clone(), namespace, name, following.instance.clone());
        let mut instance = Instance {
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
            events: Events::new(Instant::now()),
        };
        tokio::select! {
            () = instance.run(news) => {}
            _ = ended => {}
        }
        let _ = tokio::time::timeout(FAREWELL_MAX, instance.election.release()).await;
    }
}

struct Instance<P> {
    proxy: Arc<P>,
    current: Current,
    cluster: Cluster,
    translation: Translation,
    /// The ports of the configuration in force.
    ports: BTreeSet<u16>,
    following: Following,
    client: Client,
    election: Election,
    /// Statuses that could not be written, and when to try again.
    unwritten: BTreeMap<Reference, Instant>,
    /// Kinds whose objects are not told of now.
    troubled: BTreeMap<Kind, Instant>,
    /// What operators have been told, by what it is about.
    told: BTreeMap<String, String>,
    looked_at_lease: Option<Instant>,
    events: Events,
}

impl<P: Proxy> Instance<P> {
    async fn run(&mut self, mut news: Receiver<News>) {
        self.tell_unreadable();
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
                if self.troubled.is_empty() {
                    self.proxy.warn(&format!(
                        "the cluster is not watched, the configuration in force stays: {failure}"
                    ));
                }
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
                }
            }
            News::Missing(kind) => self.tell(kind.name(), &not_installed(*kind)),
            _ => {}
        }
        apply(&mut self.cluster, news)
    }

    /// Tells operators something about a matter, unless it is what they were told last.
    fn tell(&mut self, about: &str, message: &str) {
        if self.told.insert(about.to_owned(), message.to_owned()).as_deref() != Some(message) {
            self.proxy.warn(message);
        }
    }

    /// Takes up what the cluster has. What cannot be taken up changes nothing.
    async fn take_up(&mut self) {
        let valid = valid(&self.cluster, &self.following.options, Some(&self.ports));
        let (translation, ports) = match valid {
            Ok(valid) => valid,
            Err(why) => return self.tell("the whole", &format!("the cluster is not taken up: {why}")),
        };
        let before = self.current.get();
        tls::keep_in_memory(&translation.files);
        let after = InForce::from(&translation);
        if after != before {
            self.current.set(after);
            let proxy = Arc::clone(&self.proxy);
            // It waits for the workers.
            let reloaded = tokio::task::spawn_blocking(move || proxy.reload()).await;
            if let Err(why) = reloaded.unwrap_or_else(|error| Err(error.to_string())) {
                self.current.set(before);
                tls::keep_in_memory(&self.translation.files);
                return self.tell("the whole", &format!("the cluster is not taken up: {why}"));
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
            // That the server is gone is told elsewhere.
            Err(Failure::Unreachable(_)) => {}
            Err(failure) => {
                self.tell("the lease", &format!("no statuses are written, there is no lease: {failure}"));
            }
        }
        if self.election.holds() && !was_held {
            self.proxy.inform("this instance writes the statuses of the cluster");
        }
    }

    /// Writes the statuses that differ from what the objects have.
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
            // What was written comes back by the watch; until then it is not written again.
            self.unwritten.insert(object.clone(), Instant::now() + STATUS_PAUSE);
            match written {
                Ok(()) => drop(self.told.remove(&format!("the status of {object}"))),
                Err(failure) if failure.is_conflict() || failure.is_missing() => {
                    self.unwritten.remove(object);
                }
                Err(Failure::Unreachable(_)) => return,
                Err(failure) => {
                    let about = format!("the status of {object}");
                    self.tell(&about, &format!("{about} cannot be written: {failure}"));
                }
            }
        }
    }

    /// Writes Events about what is refused.
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
                Err(Failure::Unreachable(String::new()))
            };
            match written {
                Ok(()) => drop(self.told.remove("the Events")),
                // They are written once the server is back, or by whoever holds the lease now.
                Err(Failure::Unreachable(_)) => self.events.failed(&refusal),
                Err(failure) => self.tell("the Events", &format!("Events cannot be written: {failure}")),
            }
        }
    }

    /// The version of an object, and its status if that is to be another one. Nothing if the object has changed since it was
    /// looked at.
    fn changed(&mut self, status: &Status, controller: &str, now: &str) -> Option<(String, Value)> {
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
