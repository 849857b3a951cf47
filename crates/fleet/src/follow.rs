//! Follows the configuration in etcd: starts with the last good version if etcd is unreachable, applies new
//! versions according to the rollout, and reports the running one.

use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use config::Reading;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use crate::disk::VersionFolder;
use crate::etcd::{EtcdClient, EtcdCredentials, EtcdFailure};
use crate::location::Location;
use crate::map_follow::{MapFollower, MapOrder};
use crate::map_store::{MapChange, MapState};
use crate::rollout::{
    OwnStep, RefusedVersion, RolloutPolicy, RolloutStep, Trial, TrialVerdict, judged, next,
};
use crate::store::{EtcdStore, InstanceStanding, InstanceState, SeenState, StoreMember, now};
use crate::tree::{Tree, WrittenSecrets};

/// An instance counts as gone after this silence.
const LEASE: Duration = Duration::from_secs(10);
/// Interval of the checks that etcd still answers.
pub(crate) const TICK: Duration = Duration::from_secs(1);
/// Interval of reported request rates.
const TOLD_EVERY: Duration = Duration::from_secs(5);
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(100);
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Maximum time for etcd at the end of the proxy.
const FAREWELL_MAX: Duration = Duration::from_secs(1);
/// Keys written within this time make one version.
const GATHERING: Duration = Duration::from_millis(50);

#[derive(Debug, Clone)]
pub struct InstanceOptions {
    pub location: Location,
    pub access: EtcdCredentials,
    /// Unique among the instances.
    pub name: String,
    pub folder: PathBuf,
    pub program: String,
    pub secrets: WrittenSecrets,
}

pub trait FollowedProxy: Send + Sync + 'static {
    /// Reloads the configuration, and waits until it is in force. Returns why it is not.
    fn reload(&self) -> Result<(), String>;
    /// Requests since the start, and how many of them got a 5xx.
    fn requests(&self) -> (u64, u64);
    /// Address for other instances, if they share a cache and find each other in etcd.
    fn peer_address(&self) -> Option<String>;
    /// Sets the instances that share the cache, and waits until that is in force.
    fn take_peers(&self, addresses: &[String]);
    /// The maps of the configuration in force, each with the generation that it has.
    fn maps(&self) -> Vec<(String, Option<String>)>;
    /// Puts the state of etcd into a map, and waits until that is in force.
    fn take_map(&self, name: &str, state: MapState);
    /// Changes entries of a map, in order, and waits until that is in force.
    fn take_map_changes(&self, name: &str, changes: Vec<MapChange>);
    /// Takes the time up to which the maps have the state of etcd, in seconds since 1970.
    fn note_maps(&self, as_of: u64);
    fn note(&self, standing: &InstanceStanding);
    fn warn(&self, message: &str);
    fn inform(&self, message: &str);
}

/// The version in force, shared with the reload.
#[derive(Debug, Clone, Default)]
pub struct CurrentVersion(Arc<Mutex<Tree>>);

impl CurrentVersion {
    fn from_tree(tree: Tree) -> Self {
        Self(Arc::new(Mutex::new(tree)))
    }

    pub fn examine(&self, location: &Location, secrets: WrittenSecrets) -> Reading {
        self.get().examine(location, secrets)
    }

    fn get(&self) -> Tree {
        self.lock().clone()
    }

    fn set(&self, tree: Tree) {
        *self.lock() = tree;
    }

    /// A panic in a holder leaves the tree complete.
    fn lock(&self) -> MutexGuard<'_, Tree> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct FollowStart {
    pub current: CurrentVersion,
    /// Messages about the choice of the version.
    pub remarks: Vec<String>,
    options: InstanceOptions,
    folder: VersionFolder,
}

/// Chooses the first version: the one in etcd, unless it is bad or untried; else the last good one on disk; else the
/// newest good one stored in etcd. Fails if there is none.
pub async fn begin(options: InstanceOptions) -> Result<FollowStart, String> {
    let folder = VersionFolder::open(&options.folder)?;
    let location = options.location.clone();
    let mut remarks = Vec::new();
    let on_disk = folder.read(&location.to_string()).unwrap_or_else(|why| {
        remarks.push(format!("the last good configuration is lost: {why}"));
        None
    });
    let store = EtcdStore { client: EtcdClient::new(location.clone(), options.access.clone())? };
    let seen = store.look().await.map_err(|failure| failure.to_string());
    let untried = match seen.as_ref().map_err(String::clone).and_then(|seen| usable(seen, &options)) {
        Ok(tree) if is_tried(seen.as_ref().ok(), &tree, on_disk.as_ref()) => {
            return Ok(FollowStart { current: CurrentVersion::from_tree(tree), remarks, options, folder });
        }
        Ok(tree) => Ok(tree),
        Err(why) => Err(why),
    };
    let good = match (&on_disk, &seen) {
        (None, Ok(seen)) => newest_good(&store, &seen.version).await,
        _ => None,
    };
    let why = match &untried {
        Ok(tree) => format!("version {} is being tried", tree.version()),
        Err(why) => why.clone(),
    };
    let on_disk = on_disk.map(|tree| (tree, "the last good one on the disk"));
    let good = good.map(|tree| (tree, "the newest good one in etcd"));
    let untried = untried.ok().map(|tree| (tree, "it, as there is no other"));
    let Some((tree, which)) = on_disk.or(good).or(untried) else {
        return Err(format!("{why}; and no configuration was kept at {}", options.folder.display()));
    };
    remarks.push(format!("{location}: {why}; this instance begins with {which}, version {}", tree.version()));
    Ok(FollowStart { current: CurrentVersion::from_tree(tree), remarks, options, folder })
}

fn usable(seen: &SeenState, options: &InstanceOptions) -> Result<Tree, String> {
    let tree = seen.tree.clone()?;
    if let Some(TrialVerdict { is_good: false, by, why }) = &seen.verdict {
        return Err(format!("version {} was found bad by {by}: {why}", seen.version));
    }
    match tree.examine(&options.location, options.secrets).mistakes.first() {
        Some(mistake) => Err(mistake.to_string()),
        None => Ok(tree),
    }
}

/// Returns whether a version needs no trial: there is no canary, it was found good, or it ran here before.
fn is_tried(seen: Option<&SeenState>, tree: &Tree, on_disk: Option<&Tree>) -> bool {
    let is_asked_for = seen.is_some_and(|seen| seen.policy.canary_seconds > 0 && seen.verdict.is_none());
    !is_asked_for || on_disk == Some(tree)
}

/// Returns the newest version in etcd that was found good, other than `but`.
async fn newest_good(store: &EtcdStore, but: &str) -> Option<Tree> {
    let verdicts = store.verdicts().await.ok()?;
    let is_good = |version: &str| verdicts.iter().any(|(known, verdict)| known == version && verdict.is_good);
    let mut kept = store.versions().await.ok()?.into_iter();
    Some(kept.find(|kept| kept.version != but && is_good(&kept.version))?.tree)
}

impl FollowStart {
    /// Follows the configuration and the maps until the proxy ends, that is until `ended` resolves. Then removes the
    /// instance from etcd, unless another process has taken over its name. `orders` change maps for all instances.
    pub async fn follow(
        self,
        proxy: impl FollowedProxy,
        orders: UnboundedReceiver<MapOrder>,
        ended: impl Future,
    ) {
        let Self { current, options, folder, .. } = self;
        let Ok(client) = EtcdClient::new(options.location.clone(), options.access.clone()) else { return };
        let own = OwnStep {
            name: options.name.clone(),
            version: current.get().version(),
            tried_for: None,
            refused: None,
            requests: (0, 0),
        };
        let (began, state) = (Instant::now(), InstanceState::Current);
        let (store, proxy, reloaded) =
            (Rc::new(EtcdStore { client }), Arc::new(proxy), Rc::new(Notify::new()));
        let maps = MapFollower {
            store: Rc::clone(&store),
            proxy: Arc::clone(&proxy),
            orders,
            reloaded: Rc::clone(&reloaded),
            name: options.name.clone(),
            waiting: Vec::new(),
        };
        let mut instance = FleetInstance {
            store,
            reloaded,
            current,
            options,
            folder,
            proxy,
            own,
            version_since: now(),
            trial: None,
            lease: None,
            state,
            why: String::new(),
            since: now(),
            rates: Rates { at: began, counted: (0, 0) },
            told_at: None,
            told_peer: None,
            lost: None,
            losses: 0,
        };
        instance.keep();
        instance.note();
        tokio::select! {
            () = instance.run() => {}
            () = maps.run() => {}
            _ = ended => {}
        }
        if let Some(lease) = instance.lease {
            let _ = tokio::time::timeout(FAREWELL_MAX, instance.store.client.revoke(lease)).await;
        }
    }
}

struct OwnTrial {
    since: Instant,
    counted: (u64, u64),
    before: Tree,
    /// The last known policy, and the revision of the push.
    policy: RolloutPolicy,
    pushed: i64,
}

struct Rates {
    at: Instant,
    counted: (u64, u64),
}

struct EtcdLoss {
    at: Instant,
    /// In seconds since 1970.
    since: u64,
    why: String,
}

struct FleetInstance<P> {
    store: Rc<EtcdStore>,
    /// Notified after each reload.
    reloaded: Rc<Notify>,
    current: CurrentVersion,
    options: InstanceOptions,
    folder: VersionFolder,
    proxy: Arc<P>,
    own: OwnStep,
    /// When the version came into force, in seconds since 1970.
    version_since: u64,
    trial: Option<OwnTrial>,
    lease: Option<i64>,
    state: InstanceState,
    why: String,
    /// When the state began, in seconds since 1970.
    since: u64,
    rates: Rates,
    told_at: Option<Instant>,
    /// The peer address that was written under the current lease.
    told_peer: Option<String>,
    /// Set while etcd does not answer.
    lost: Option<EtcdLoss>,
    losses: u64,
}

impl<P: FollowedProxy> FleetInstance<P> {
    async fn run(&mut self) {
        let mut pause = PAUSE_MIN;
        loop {
            let Err(failure) = self.once().await else {
                pause = PAUSE_MIN;
                continue;
            };
            if self.lost.is_none() {
                let why = failure.to_string();
                let version = &self.own.version;
                self.proxy.warn(&format!("etcd does not answer, version {version} stays in force: {why}"));
                self.lost = Some(EtcdLoss { at: Instant::now(), since: now(), why });
                self.losses += 1;
                self.note();
            }
            self.judge_alone().await;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Looks, acts, and waits until the next look is due.
    async fn once(&mut self) -> Result<(), EtcdFailure> {
        let seen = self.store.look().await?;
        if let Some(loss) = self.lost.take() {
            self.proxy.inform(&format!("etcd answers again, after {} s", loss.at.elapsed().as_secs()));
            self.note();
        }
        if !self.act(&seen).await?.is_rest() {
            self.tell().await?;
            tokio::time::sleep(GATHERING).await;
            return Ok(());
        }
        self.follow_peers(&seen).await;
        let store = Rc::clone(&self.store);
        let (keys, rollout) = (self.options.location.keys(), store.rollout());
        let server = store.client.server();
        let mut files = pin!(store.client.change(&keys, seen.revision + 1));
        let mut rollout = pin!(store.client.change(&rollout, seen.revision + 1));
        let peers = store.peers();
        let shares = self.proxy.peer_address().is_some();
        let mut peers = pin!(store.client.change(&peers, seen.revision + 1));
        loop {
            self.tell().await?;
            // Another server has answered: the watched one is silent.
            if store.client.server() != server {
                return Ok(());
            }
            let known = seen.known();
            if !next(known, &self.measured()).is_rest() {
                return Ok(());
            }
            // The canary may end before it reports that it tries a version.
            if known.is_open() && store.running().await? != seen.running {
                return Ok(());
            }
            let changed = tokio::select! {
                changed = &mut files => changed,
                changed = &mut rollout => changed,
                changed = &mut peers, if shares => changed,
                () = tokio::time::sleep(TICK) => continue,
            };
            // A failed server does no harm while others answer.
            tokio::time::sleep(if changed.is_ok() { GATHERING } else { PAUSE_MIN }).await;
            return Ok(());
        }
    }

    async fn act(&mut self, seen: &SeenState) -> Result<RolloutStep, EtcdFailure> {
        self.own = self.measured();
        let step = next(seen.known(), &self.own);
        match (&step, &seen.tree) {
            (RolloutStep::Stay, _) if self.own.version != seen.version => {}
            (RolloutStep::Stay, _) => self.turn(InstanceState::Current, ""),
            (RolloutStep::GoOn, _) => return self.go_on(seen).await,
            (RolloutStep::Wait(by), _) => {
                self.turn(InstanceState::Waiting, &format!("{by} tries version {}", seen.version));
            }
            (RolloutStep::Reject, Ok(_)) => {
                let why = seen.verdict.as_ref().map(|TrialVerdict { by, why, .. }| format!("{by}: {why}"));
                self.turn(InstanceState::Refusing, &why.unwrap_or_default());
            }
            (RolloutStep::Reject, Err(why)) => self.turn(InstanceState::Refusing, why),
            (RolloutStep::TakeUp, Ok(tree)) => self.take_up(tree, seen.pushed).await?,
            (RolloutStep::Try, Ok(tree)) => self.begin_trial(tree, seen).await?,
            (RolloutStep::Judge(verdict), _) => self.judge(verdict, seen).await?,
            (RolloutStep::GiveUp(why), _) => self.give_up(why).await,
            // Without a readable version there is nothing to apply.
            (RolloutStep::TakeUp | RolloutStep::Try, Err(_)) => {}
        }
        Ok(step)
    }

    /// Starts a trial, unless another instance was first.
    async fn begin_trial(&mut self, tree: &Tree, seen: &SeenState) -> Result<(), EtcdFailure> {
        if !self.claim(seen).await? {
            return Ok(());
        }
        let (before, counted) = (self.current.get(), self.proxy.requests());
        if self.put_in_force(tree, seen.pushed).await {
            let (policy, pushed) = (seen.policy.clone(), seen.pushed);
            self.trial = Some(OwnTrial { since: Instant::now(), counted, before, policy, pushed });
            self.turn(InstanceState::Trying, &format!("for {} s", seen.policy.canary_seconds));
        }
        Ok(())
    }

    /// Continues a trial. Its claim has ended with the lease if etcd was unreachable for long.
    async fn go_on(&mut self, seen: &SeenState) -> Result<RolloutStep, EtcdFailure> {
        if let Some(trial) = &mut self.trial {
            (trial.policy, trial.pushed) = (seen.policy.clone(), seen.pushed);
        }
        let is_claimed = seen.known().trial_by.is_some() || self.claim(seen).await?;
        // Otherwise another instance was first, and the next look decides.
        Ok(if is_claimed { RolloutStep::GoOn } else { RolloutStep::Try })
    }

    async fn claim(&mut self, seen: &SeenState) -> Result<bool, EtcdFailure> {
        let trial = Trial { version: seen.version.clone(), by: self.own.name.clone() };
        let lease = self.hold_lease().await?;
        self.store.claim(seen, &trial, lease).await
    }

    /// Keeps the lease alive, or gets a new one: keys bound to the old one are deleted.
    async fn hold_lease(&mut self) -> Result<i64, EtcdFailure> {
        match self.lease {
            Some(lease) if self.store.client.keep_alive(lease).await? => Ok(lease),
            _ => {
                (self.told_at, self.told_peer) = (None, None);
                let lease = self.store.client.lease(LEASE).await?;
                Ok(*self.lease.insert(lease))
            }
        }
    }

    /// Writes the verdict on the wanted version, and acts on it.
    async fn judge(&mut self, verdict: &TrialVerdict, seen: &SeenState) -> Result<(), EtcdFailure> {
        if !verdict.is_good {
            self.give_up_bad(&verdict.why, seen.pushed).await;
        }
        self.store.judge(&seen.version, verdict).await
    }

    /// Gives up a clearly bad version even while etcd is unreachable. Other instances learn of it later.
    async fn judge_alone(&mut self) {
        let own = self.measured();
        let Some((OwnTrial { policy, pushed, .. }, tried_for)) = self.trial.as_ref().zip(own.tried_for)
        else {
            return;
        };
        if let Some(TrialVerdict { is_good: false, why, .. }) = judged(policy, &own, tried_for) {
            self.give_up_bad(&why, *pushed).await;
        }
    }

    /// Passes the peers that share a cache to the proxy. While etcd is unreachable, the last ones stay.
    async fn follow_peers(&self, seen: &SeenState) {
        if self.proxy.peer_address().is_none() {
            return;
        }
        let (proxy, mut addresses) = (Arc::clone(&self.proxy), seen.peers.clone());
        addresses.sort_unstable();
        addresses.dedup();
        // The call waits for the workers.
        let _ = tokio::task::spawn_blocking(move || proxy.take_peers(&addresses)).await;
    }

    async fn take_up(&mut self, tree: &Tree, pushed: i64) -> Result<(), EtcdFailure> {
        if self.current.get() != *tree && !self.put_in_force(tree, pushed).await {
            return Ok(());
        }
        self.trial = None;
        self.turn(InstanceState::Current, "");
        self.keep();
        self.store.keep(tree).await
    }

    /// Lets the proxy reload a version. If that fails, the previous one stays.
    async fn put_in_force(&mut self, tree: &Tree, pushed: i64) -> bool {
        let version = tree.version();
        let before = self.current.get();
        self.current.set(tree.clone());
        let proxy = Arc::clone(&self.proxy);
        // The reload waits for the workers.
        let reloaded = tokio::task::spawn_blocking(move || proxy.reload()).await;
        match reloaded.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(()) => {
                self.reloaded.notify_one();
                (self.own.version, self.own.refused) = (version, None);
                self.version_since = now();
                true
            }
            Err(why) => {
                self.current.set(before);
                self.turn(InstanceState::Refusing, &why);
                self.own.refused = Some(RefusedVersion { version, pushed, why });
                false
            }
        }
    }

    /// Restores the version before the trial. The next look decides what follows.
    async fn give_up(&mut self, why: &str) {
        let Some(OwnTrial { before, pushed, .. }) = self.trial.take() else { return };
        let (tried, back) = (self.own.version.clone(), before.version());
        self.proxy.warn(&format!("version {tried} is given up, {back} comes back: {why}"));
        self.put_in_force(&before, pushed).await;
        self.told_at = None;
    }

    /// Gives up a bad version on trial. It is not tried again until it is pushed again.
    async fn give_up_bad(&mut self, why: &str, pushed: i64) {
        if self.trial.is_some() {
            let version = self.own.version.clone();
            self.give_up(why).await;
            self.turn(InstanceState::Refusing, why);
            self.own.refused = Some(RefusedVersion { version, pushed, why: why.to_owned() });
        }
    }

    fn measured(&self) -> OwnStep {
        let mut own = self.own.clone();
        own.tried_for = self.trial.as_ref().map(|trial| trial.since.elapsed());
        if let Some(OwnTrial { counted, .. }) = self.trial {
            own.requests = since(self.proxy.requests(), counted);
        }
        own
    }

    fn turn(&mut self, state: InstanceState, why: &str) {
        if self.state == state && self.why == why {
            return;
        }
        (self.state, self.why, self.since, self.told_at) = (state, why.to_owned(), now(), None);
        let version = &self.own.version;
        match state {
            InstanceState::Current => self.proxy.inform(&format!("version {version} of etcd is in force")),
            InstanceState::Trying => {
                self.proxy.inform(&format!("version {version} of etcd is tried here {why}"));
            }
            InstanceState::Waiting => self.proxy.inform(&format!("version {version} stays in force: {why}")),
            InstanceState::Refusing => self.proxy.warn(&format!("version {version} stays in force: {why}")),
        }
        self.note();
    }

    fn note(&self) {
        self.proxy.note(&InstanceStanding {
            version: self.own.version.clone(),
            version_since: self.version_since,
            state: self.state,
            lost: self.lost.as_ref().map(|loss| (loss.since, loss.why.clone())),
            losses: self.losses,
        });
    }

    /// Writes what the instance runs, if that changed or is due, and keeps the lease alive.
    async fn tell(&mut self) -> Result<(), EtcdFailure> {
        let lease = self.hold_lease().await?;
        let peer = self.proxy.peer_address();
        if self.told_peer != peer {
            self.store.tell_peer(&self.own.name, peer.as_deref(), lease).await?;
            self.told_peer = peer;
        }
        if self.told_at.is_some_and(|at| at.elapsed() < TOLD_EVERY) {
            return Ok(());
        }
        let (requests, failed) = since(self.proxy.requests(), self.rates.counted);
        let seconds = self.rates.at.elapsed().as_secs().max(1);
        let member = StoreMember {
            name: self.own.name.clone(),
            version: self.own.version.clone(),
            state: self.state,
            why: self.why.clone(),
            since: self.since,
            program: self.options.program.clone(),
            process: std::process::id(),
            requests_per_second: requests / seconds,
            failures_per_second: failed.div_ceil(seconds),
        };
        self.store.tell(&member, lease).await?;
        self.told_at = Some(Instant::now());
        if self.rates.at.elapsed() >= TOLD_EVERY {
            self.rates = Rates { at: Instant::now(), counted: self.proxy.requests() };
        }
        Ok(())
    }

    fn keep(&self) {
        if let Err(why) = self.folder.keep(&self.options.location.to_string(), &self.current.get()) {
            self.proxy.warn(&format!("the configuration is not kept for a start without etcd: {why}"));
        }
    }
}

fn since(now: (u64, u64), then: (u64, u64)) -> (u64, u64) {
    (now.0.saturating_sub(then.0), now.1.saturating_sub(then.1))
}
