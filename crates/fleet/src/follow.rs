//! An instance follows the configuration in etcd: it starts with the last good one if etcd is gone, takes up new versions
//! as the rollout says, and tells what it runs.

use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use config::Reading;
use tokio::time::Instant;

use crate::disk::Folder;
use crate::etcd::{Access, Client, Failure};
use crate::location::Location;
use crate::rollout::{Known, Own, Step, Verdict, next};
use crate::store::{Member, Seen, State, Store, now};
use crate::tree::{Tree, WrittenSecrets};

/// An instance that is not heard of for so long is taken for gone.
const LEASE: Duration = Duration::from_secs(10);
/// How often an instance looks whether its server of etcd still answers.
const TICK: Duration = Duration::from_secs(1);
/// How often it tells its rates.
const TOLD_EVERY: Duration = Duration::from_secs(5);
/// Pauses between attempts while etcd is gone.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long the end of a proxy waits for etcd.
const FAREWELL_MAX: Duration = Duration::from_secs(1);
/// Keys that are written one after the other make one version.
const GATHERING: Duration = Duration::from_millis(50);

/// What an instance is started with.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where its configuration is.
    pub location: Location,
    /// How to be let in.
    pub access: Access,
    /// Its name among the instances.
    pub name: String,
    /// Where the last good version is kept.
    pub folder: PathBuf,
    /// The version of the program.
    pub program: String,
    /// What becomes of secrets in the configuration.
    pub secrets: WrittenSecrets,
}

/// The running proxy.
pub trait Proxy: Send + Sync + 'static {
    /// Reads the configuration again, and waits until it is in force. Returns why it is not.
    fn reload(&self) -> Result<(), String>;
    /// Requests since the start, and those of them that got a 5xx.
    fn requests(&self) -> (u64, u64);
    /// Where other instances reach this one, if they share what they store and learn of each other here.
    fn peer_address(&self) -> Option<String>;
    /// Takes these for the instances that share what they store, and waits until that is in force.
    fn take_peers(&self, addresses: &[String]);
    /// Writes a message about something to be looked at.
    fn warn(&self, message: &str);
    /// Writes a message.
    fn inform(&self, message: &str);
}

/// The version in force, for whoever reads the configuration again.
#[derive(Debug, Clone, Default)]
pub struct Current(Arc<Mutex<Tree>>);

impl Current {
    /// Reads the configuration.
    pub fn examine(&self, location: &Location, secrets: WrittenSecrets) -> Reading {
        self.get().examine(location, secrets)
    }

    fn get(&self) -> Tree {
        self.lock().clone()
    }

    fn set(&self, tree: Tree) {
        *self.lock() = tree;
    }

    /// A panic while it was held leaves it as it was.
    fn lock(&self) -> MutexGuard<'_, Tree> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an instance begins with.
pub struct Beginning {
    /// The version in force.
    pub current: Current,
    /// Messages about it.
    pub remarks: Vec<String>,
    options: Options,
    folder: Folder,
}

/// Finds the version to begin with: that of etcd, unless it is bad or not tried yet; else the last good one on the disk,
/// else the newest good one that is kept in etcd.
///
/// # Errors
/// Why there is none.
pub async fn begin(options: Options) -> Result<Beginning, String> {
    let folder = Folder::open(&options.folder)?;
    let location = options.location.clone();
    let mut remarks = Vec::new();
    let on_disk = folder.read(&location.to_string()).unwrap_or_else(|why| {
        remarks.push(format!("the last good configuration is lost: {why}"));
        None
    });
    let store = Store { client: Client::new(location.clone(), options.access.clone())? };
    let seen = store.look().await;
    let current = |tree| {
        let current = Current::default();
        current.set(tree);
        current
    };
    let fallback = match seen {
        Ok(seen) => match first_choice(&seen, on_disk.as_ref(), &options) {
            Ok(tree) => return Ok(Beginning { current: current(tree), remarks, options, folder }),
            Err(why) => match (on_disk, store.versions().await, store.verdicts().await) {
                (Some(tree), ..) => Some((tree, why, "the last good one on the disk")),
                (None, Ok(versions), Ok(verdicts)) => {
                    let is_good = |version: &str| {
                        verdicts.iter().any(|(known, verdict)| known == version && verdict.is_good)
                    };
                    let wanted = seen.tree.as_ref().map(Tree::version).unwrap_or_default();
                    let mut kept = versions.into_iter();
                    let kept = kept.find(|kept| kept.version != wanted && is_good(&kept.version));
                    let Some(kept) = kept else { return Err(why) };
                    Some((kept.tree, why, "the newest good one in etcd"))
                }
                _ => return Err(why),
            },
        },
        Err(failure) => match on_disk {
            Some(tree) => Some((tree, failure.to_string(), "the last good one on the disk")),
            None => {
                return Err(format!(
                    "{failure}; and no configuration was kept at {}",
                    options.folder.display()
                ));
            }
        },
    };
    let Some((tree, why, which)) = fallback else { return Err("there is no configuration".to_owned()) };
    remarks.push(format!("{location}: {why}; this instance begins with {which}, version {}", tree.version()));
    Ok(Beginning { current: current(tree), remarks, options, folder })
}

/// The version in etcd if an instance may begin with it.
fn first_choice(seen: &Seen, on_disk: Option<&Tree>, options: &Options) -> Result<Tree, String> {
    let location = &options.location;
    let tree = seen.tree.clone()?;
    if tree.files.is_empty() {
        let key = location.shown(crate::tree::FIRST);
        return Err(format!("there is no configuration: `vanward fleet push` puts a file to {key}"));
    }
    let version = tree.version();
    if let Some(Verdict { is_good: false, by, why }) = &seen.verdict {
        return Err(format!("version {version} was found bad by {by}: {why}"));
    }
    let is_untried = seen.policy.canary_seconds > 0 && seen.verdict.is_none();
    if is_untried && on_disk.is_some_and(|kept| kept.version() != version) {
        return Err(format!("version {version} is being tried"));
    }
    match tree.examine(location, options.secrets).mistakes.first() {
        Some(mistake) => Err(mistake.to_string()),
        None => Ok(tree),
    }
}

impl Beginning {
    /// Follows the configuration until the proxy ends, which `ended` tells. Then the instance is no more among those that
    /// run, unless another process has taken over its name.
    pub async fn follow(self, proxy: impl Proxy, ended: impl Future) {
        let Self { current, options, folder, .. } = self;
        let Ok(client) = Client::new(options.location.clone(), options.access.clone()) else { return };
        let version = current.get().version();
        let own = Own {
            name: options.name.clone(),
            version: Some(version),
            tried_for: None,
            refused: None,
            requests: (0, 0),
        };
        let (began, state) = (Instant::now(), State::Current);
        let mut instance = Instance {
            store: Rc::new(Store { client }),
            current,
            options,
            folder,
            proxy: Arc::new(proxy),
            own,
            trial: None,
            lease: None,
            state,
            why: String::new(),
            since: now(),
            rates: Rates { at: began, counted: (0, 0) },
            told_at: None,
            told_peer: None,
            trouble: None,
        };
        instance.keep();
        tokio::select! {
            () = instance.run() => {}
            _ = ended => {}
        }
        if let Some(lease) = instance.lease {
            let _ = tokio::time::timeout(FAREWELL_MAX, instance.store.client.revoke(lease)).await;
        }
    }
}

/// A version that is being tried.
struct Trial {
    since: Instant,
    counted: (u64, u64),
    /// The version before it.
    before: Tree,
}

/// Rates since the last time they were told.
struct Rates {
    at: Instant,
    counted: (u64, u64),
}

struct Instance<P> {
    store: Rc<Store>,
    current: Current,
    options: Options,
    folder: Folder,
    proxy: Arc<P>,
    own: Own,
    trial: Option<Trial>,
    lease: Option<i64>,
    state: State,
    why: String,
    /// When the state began.
    since: u64,
    rates: Rates,
    told_at: Option<Instant>,
    /// Where the others reach it, as was told with the present lease.
    told_peer: Option<String>,
    /// Why etcd does not answer, and since when.
    trouble: Option<Instant>,
}

impl<P: Proxy> Instance<P> {
    async fn run(&mut self) {
        let mut pause = PAUSE_MIN;
        loop {
            let why = match self.once().await {
                Ok(()) => {
                    pause = PAUSE_MIN;
                    continue;
                }
                Err(failure) => failure.to_string(),
            };
            if self.trouble.is_none() {
                self.trouble = Some(Instant::now());
                let version = self.own.version.clone().unwrap_or_default();
                self.proxy.warn(&format!("etcd does not answer, version {version} stays in force: {why}"));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Looks, acts, and waits until it is time to look again.
    async fn once(&mut self) -> Result<(), Failure> {
        let seen = self.store.look().await?;
        if let Some(since) = self.trouble.take() {
            self.proxy.inform(&format!("etcd answers again, after {} s", since.elapsed().as_secs()));
        }
        self.act(&seen).await?;
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
            // Another one has answered: the one that was watched is silent.
            if store.client.server() != server {
                return Ok(());
            }
            if self.trial.is_some() && next(known(&seen, &seen.wanted()), &self.measured()) != Step::GoOn {
                return Ok(());
            }
            let changed = tokio::select! {
                changed = &mut files => changed,
                changed = &mut rollout => changed,
                changed = &mut peers, if shares => changed,
                () = tokio::time::sleep(TICK) => continue,
            };
            // A server that has gone is no trouble while others answer.
            tokio::time::sleep(if changed.is_ok() { GATHERING } else { PAUSE_MIN }).await;
            return Ok(());
        }
    }

    /// Does what is next.
    async fn act(&mut self, seen: &Seen) -> Result<(), Failure> {
        let wanted = seen.wanted();
        self.own = self.measured();
        match (next(known(seen, &wanted), &self.own), &seen.tree) {
            (_, Err(why)) => self.turn(State::Refusing, why),
            (Step::Stay, _) if self.own.refused.as_deref() == Some(&wanted) => {}
            (Step::Stay, _) => self.turn(State::Current, ""),
            (Step::GoOn, _) => {}
            (Step::Wait, _) => self.turn(State::Waiting, &format!("another instance tries version {wanted}")),
            (Step::Reject, _) => {
                let why = seen.verdict.as_ref().map(|Verdict { by, why, .. }| format!("{by}: {why}"));
                self.turn(State::Refusing, &why.unwrap_or_default());
            }
            (Step::TakeUp, Ok(tree)) => {
                self.trial = None;
                self.take_up(tree.clone()).await?;
            }
            (Step::Try, Ok(tree)) => {
                let before = self.current.get();
                let counted = self.proxy.requests();
                if self.put_in_force(tree.clone()).await {
                    self.trial = Some(Trial { since: Instant::now(), counted, before });
                    self.turn(State::Trying, &format!("for {} s", seen.policy.canary_seconds));
                } else {
                    let (by, why) = (self.own.name.clone(), self.why.clone());
                    self.store.judge(&wanted, &Verdict { is_good: false, by, why }).await?;
                }
            }
            (Step::Judge(verdict), Ok(tree)) => {
                self.store.judge(&wanted, &verdict).await?;
                if verdict.is_good {
                    self.trial = None;
                    self.take_up(tree.clone()).await?;
                } else {
                    self.give_up(&verdict.why).await;
                }
            }
            (Step::GiveUp, _) => self.give_up("it was replaced or found bad while it was tried").await,
        }
        Ok(())
    }

    /// Has the proxy know the instances that share what they store. While etcd is gone the last ones stay.
    async fn follow_peers(&self, seen: &Seen) {
        if self.proxy.peer_address().is_none() {
            return;
        }
        let (proxy, mut addresses) = (Arc::clone(&self.proxy), seen.peers.clone());
        addresses.sort_unstable();
        addresses.dedup();
        // It waits for the workers.
        let _ = tokio::task::spawn_blocking(move || proxy.take_peers(&addresses)).await;
    }

    /// Takes up a version for good.
    async fn take_up(&mut self, tree: Tree) -> Result<(), Failure> {
        if self.current.get() != tree && !self.put_in_force(tree.clone()).await {
            return Ok(());
        }
        self.turn(State::Current, "");
        self.keep();
        self.store.keep(&tree).await
    }

    /// Has the proxy read a version. If it cannot, the one before stays.
    async fn put_in_force(&mut self, tree: Tree) -> bool {
        let version = tree.version();
        let before = self.current.get();
        self.current.set(tree);
        let proxy = Arc::clone(&self.proxy);
        // It waits for the workers.
        let reloaded = tokio::task::spawn_blocking(move || proxy.reload()).await;
        match reloaded.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(()) => {
                (self.own.version, self.own.refused) = (Some(version), None);
                true
            }
            Err(why) => {
                self.current.set(before);
                self.own.refused = Some(version);
                self.turn(State::Refusing, &why);
                false
            }
        }
    }

    /// The version before the trial comes back.
    async fn give_up(&mut self, why: &str) {
        let Some(Trial { before, .. }) = self.trial.take() else { return };
        let (tried, back) = (self.own.version.clone().unwrap_or_default(), before.version());
        self.proxy.warn(&format!("version {tried} is given up, {back} comes back: {why}"));
        self.put_in_force(before).await;
        self.turn(State::Refusing, why);
    }

    /// What it does itself, with the figures of now.
    fn measured(&self) -> Own {
        let mut own = self.own.clone();
        own.tried_for = self.trial.as_ref().map(|trial| trial.since.elapsed());
        if let Some(Trial { counted, .. }) = self.trial {
            own.requests = since(self.proxy.requests(), counted);
        }
        own
    }

    fn turn(&mut self, state: State, why: &str) {
        if self.state == state && self.why == why {
            return;
        }
        (self.state, self.why, self.since, self.told_at) = (state, why.to_owned(), now(), None);
        let version = self.own.version.as_deref().unwrap_or_default();
        match state {
            State::Current => self.proxy.inform(&format!("version {version} of etcd is in force")),
            State::Trying => self.proxy.inform(&format!("version {version} of etcd is tried here {why}")),
            State::Waiting => self.proxy.inform(&format!("version {version} stays in force: {why}")),
            State::Refusing => self.proxy.warn(&format!("version {version} stays in force: {why}")),
        }
    }

    /// Tells what it runs, where that is new or due, and that it lives.
    async fn tell(&mut self) -> Result<(), Failure> {
        let lease = match self.lease {
            Some(lease) if self.store.client.keep_alive(lease).await? => lease,
            _ => {
                (self.told_at, self.told_peer) = (None, None);
                let lease = self.store.client.lease(LEASE).await?;
                *self.lease.insert(lease)
            }
        };
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
        let member = Member {
            name: self.own.name.clone(),
            version: self.own.version.clone().unwrap_or_default(),
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

    /// Keeps the version in force on the disk.
    fn keep(&self) {
        if let Err(why) = self.folder.keep(&self.options.location.to_string(), &self.current.get()) {
            self.proxy.warn(&format!("the configuration is not kept for a start without etcd: {why}"));
        }
    }
}

fn known<'s>(seen: &'s Seen, wanted: &'s str) -> Known<'s> {
    Known { policy: &seen.policy, wanted, verdict: seen.verdict.as_ref(), running: &seen.running }
}

fn since(now: (u64, u64), then: (u64, u64)) -> (u64, u64) {
    (now.0.saturating_sub(then.0), now.1.saturating_sub(then.1))
}
