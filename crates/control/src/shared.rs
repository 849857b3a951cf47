//! What instances share through Redis or Valkey: what their limits have counted, what is purged or invalidated, automatic
//! certificates, decisions of authentication servers, and sessions. On the control thread alone: workers go on
//! with what they have in memory, whatever becomes of Redis.

/// Connections to Redis.
mod link;
/// Rate limits over all instances.
mod limits;
/// Which instances there are.
mod members;
/// Purges for all instances.
mod purges;
/// What unsafe requests invalidate, for all instances.
mod invalid;
/// Redis for whoever shares something now and then.
mod engine;
/// Seals secrets that Redis keeps.
mod seal;
/// Locks of all instances.
mod leases;
/// Automatic certificates of all instances.
mod certificates;
/// Exchanges of workers with other instances.
mod exchanges;
/// Decisions of authentication servers for all instances.
mod decisions;
/// Sessions for all instances.
mod sessions;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use config::Redis;
use proxy::cache::Ways;
use proxy::context::plan::{DecisionExchange, SessionExchange, Way};
use route::Standing;
use telemetry::{SharedSample, message};
use tokio::sync::Notify;

use crate::change::Control;
use certificates::Board;
pub(crate) use certificates::{Offer, Offered, SharedCertificate, offer};
use decisions::Decisions;
pub(crate) use engine::{Engine, Reach};
use invalid::Teller;
pub(crate) use leases::Lease;
use limits::Limits;
use link::Link;
use members::Members;
use purges::{Follower, Publisher};
use seal::Seal;
use sessions::SharedSessions;

/// Pauses between attempts while Redis is gone.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How sharing stands, for whoever asks.
#[derive(Default)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// The name of this instance, unless the configuration has one.
    instance: String,
    /// Told by workers whose limits have something to tell.
    called: Arc<Notify>,
    counts: Counts,
    /// Answers to challenges that other instances are to give.
    board: Board,
}

/// Counted since the start.
#[derive(Default)]
struct Counts {
    /// Exchanges in which limits told what they had admitted.
    tells: AtomicU64,
    /// Requests that were told.
    requests: AtomicU64,
    /// How often Redis was lost.
    losses: AtomicU64,
    invalid: Arc<invalid::Counts>,
    decisions: Arc<decisions::Counts>,
    sessions: Arc<sessions::Counts>,
}

#[derive(Default)]
struct State {
    /// What is to be reached; `None` if nothing is shared.
    url: Option<String>,
    link: LinkState,
    /// The instances that run, by name, as Redis told last.
    instances: Vec<String>,
    /// What secrets are sealed with.
    seal: Option<Arc<Seal>>,
    /// Redis, while it is reached.
    engine: Option<Arc<Engine>>,
}

#[derive(Default, Clone)]
enum LinkState {
    /// Nothing is to be reached.
    #[default]
    None,
    /// It was not reached yet, and nothing has failed.
    Beginning(Instant),
    Up,
    Down {
        since: Instant,
        why: String,
    },
}

impl Shared {
    /// For an instance with this name.
    pub(crate) fn new(instance: Option<String>) -> Self {
        Self { instance: instance.unwrap_or_else(host_name), ..Self::default() }
    }

    /// What an operator should see at once.
    pub(crate) fn problem(&self) -> Option<String> {
        let state = lock(&self.state);
        match (&state.url, &state.link) {
            (Some(url), LinkState::Down { since, why }) => {
                Some(format!("{url} is not reached for {} s: {why}", since.elapsed().as_secs()))
            }
            _ => None,
        }
    }

    /// For metrics; `None` if nothing is shared.
    pub(crate) fn sample(&self) -> Option<SharedSample> {
        let state = lock(&self.state);
        state.url.as_ref()?;
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Some(SharedSample {
            is_up: matches!(state.link, LinkState::Up),
            instances: state.instances.len(),
            tells: of(&self.counts.tells),
            requests: of(&self.counts.requests),
            losses: of(&self.counts.losses),
            invalid_told: of(&self.counts.invalid.told),
            invalid_lost: of(&self.counts.invalid.lost),
            decisions_found: of(&self.counts.decisions.found),
            decisions_missed: of(&self.counts.decisions.missed),
            decisions_kept: of(&self.counts.decisions.kept),
            sessions_found: of(&self.counts.sessions.found),
            sessions_missed: of(&self.counts.sessions.missed),
            sessions_told: of(&self.counts.sessions.told),
        })
    }

    /// Redis, while it is reached, for secrets.
    pub(crate) fn engine(&self) -> Option<Arc<Engine>> {
        lock(&self.state).engine.clone()
    }

    /// Whether secrets can be shared now.
    pub(crate) fn reach(&self) -> Reach {
        let state = lock(&self.state);
        match (&state.seal, &state.engine, &state.link) {
            (Some(_), Some(engine), _) => Reach::Up(Arc::clone(engine)),
            (Some(_), None, LinkState::Beginning(since) | LinkState::Down { since, .. }) => {
                Reach::Gone(since.elapsed())
            }
            (Some(_), None, LinkState::Up) => Reach::Gone(Duration::ZERO),
            (None, ..) | (_, None, LinkState::None) => Reach::Nothing,
        }
    }

    fn begin(&self, settings: Option<&Redis>) {
        let state = settings.map(|redis| State {
            url: Some(redis.url.to_string()),
            link: LinkState::Beginning(Instant::now()),
            seal: Seal::new(redis).map(Arc::new),
            ..State::default()
        });
        *lock(&self.state) = state.unwrap_or_default();
    }

    /// Redis is reached over this connection: secrets can be shared, if there is what seals them.
    fn open(&self, settings: &Redis, instance: &str, link: &Arc<Link>) -> Option<Arc<Engine>> {
        let mut state = lock(&self.state);
        let engine = state.seal.as_ref().map(|seal| Arc::new(Engine::new(settings, instance, (link, seal))));
        state.engine.clone_from(&engine);
        engine
    }

    /// Notes that Redis is reached, with these instances, and says so where it is news.
    fn reached(&self, instances: Vec<String>) {
        let mut state = lock(&self.state);
        let url = state.url.clone().unwrap_or_default();
        let count = match instances.len() {
            1 => "1 instance".to_owned(),
            count => format!("{count} instances"),
        };
        match std::mem::replace(&mut state.link, LinkState::Up) {
            LinkState::Up => {}
            LinkState::None | LinkState::Beginning(_) => {
                message::info(&format!("{url} is in use by {count}"));
            }
            LinkState::Down { since, .. } => {
                let seconds = since.elapsed().as_secs();
                message::info(&format!("{url} is back after {seconds} s, in use by {count}"));
            }
        }
        state.instances = instances;
    }

    /// Notes that Redis is not reached, and says so where it is news.
    fn lost(&self, why: &str) {
        let mut state = lock(&self.state);
        let url = state.url.clone().unwrap_or_default();
        let since = match &state.link {
            LinkState::Down { since, .. } => *since,
            LinkState::None | LinkState::Up | LinkState::Beginning(_) => {
                self.counts.losses.fetch_add(1, Ordering::Relaxed);
                message::warn(&format!("{url} is not reached, this instance goes on by itself: {why}"));
                Instant::now()
            }
        };
        state.link = LinkState::Down { since, why: why.to_owned() };
        state.engine = None;
    }
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "vanward".to_owned(),
        name => name.to_owned(),
    }
}

/// A panic while it was held leaves it as it was.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shares what the configuration says, until the proxy ends.
pub(crate) async fn run(control: Weak<Control>) {
    let Some(strong) = control.upgrade() else { return };
    let mut changes = strong.changes.subscribe();
    drop(strong);
    loop {
        let Some(strong) = control.upgrade() else { return };
        changes.mark_unchanged();
        let settings = strong.plan().config.redis.clone();
        strong.shared.begin(settings.as_ref());
        if let (None, Some(cache)) = (&settings, &strong.plan().cache) {
            cache.publish_by(None);
        }
        drop(strong);
        let still_alike = async {
            loop {
                if changes.changed().await.is_err() {
                    return;
                }
                let Some(strong) = control.upgrade() else { return };
                if strong.plan().config.redis != settings {
                    return;
                }
            }
        };
        match &settings {
            None => still_alike.await,
            Some(settings) => tokio::select! {
                () = share(&control, settings) => return,
                () = still_alike => {}
            },
        }
    }
}

/// Shares by these settings until the proxy ends.
async fn share(control: &Weak<Control>, settings: &Redis) {
    let Some(strong) = control.upgrade() else { return };
    let instance = settings.instance.clone().unwrap_or_else(|| strong.shared.instance.clone());
    if settings.secret.is_none() && crate::acme::has_names(&strong.plan()) {
        message::info(
            "certificates are not shared through Redis, which would need secret_file in [redis]: instances share a folder, or \
             each asks for its own",
        );
    }
    let counts = Arc::clone(&strong.shared.counts.invalid);
    let decisions = Decisions::new(Arc::clone(&strong.shared.counts.decisions));
    let sessions = SharedSessions::new(control, Arc::clone(&strong.shared.counts.sessions));
    drop(strong);
    let (publisher, follower) = purges::begin(control, settings, &instance);
    let lost = Arc::clone(&counts.lost);
    let invalid = Teller::new(settings, &instance, counts);
    let ways = Ways { purges: publisher.way(), invalid: invalid.way(), lost };
    let members = Members::new(settings, instance.clone());
    let limits = Limits::new(control, settings);
    let certificates = certificates::Follower::new(control);
    let worker_ways = WorkerWays { decisions: decisions.way(), sessions: sessions.way() };
    let parts =
        Parts { instance, members, limits, publisher, follower, invalid, certificates, decisions, sessions };
    tokio::select! {
        () = go_on(control, settings, parts) => {}
        () = attach(control, &ways, &worker_ways) => {}
    }
}

/// How requests reach other instances.
struct WorkerWays {
    decisions: Way<DecisionExchange>,
    sessions: Way<SessionExchange>,
}

/// What is shared.
struct Parts {
    /// The name of this instance.
    instance: String,
    members: Members,
    limits: Limits,
    publisher: Publisher,
    follower: Follower,
    invalid: Teller,
    certificates: certificates::Follower,
    decisions: Decisions,
    sessions: SharedSessions,
}

/// Has the caches of all plans publish what they purge and invalidate, and what requests meet be shared, until the proxy ends.
async fn attach(control: &Weak<Control>, ways: &Ways, worker_ways: &WorkerWays) {
    let Some(strong) = control.upgrade() else { return };
    let mut changes = strong.changes.subscribe();
    drop(strong);
    loop {
        let Some(strong) = control.upgrade() else { return };
        if let Some(cache) = &strong.plan().cache {
            cache.publish_by(Some(ways.clone()));
        }
        drop(strong);
        decisions::attach(control, &worker_ways.decisions);
        sessions::attach(control, &worker_ways.sessions);
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Connects again and again, and shares over each connection.
async fn go_on(control: &Weak<Control>, settings: &Redis, mut parts: Parts) {
    let (mut pause, mut why) = (PAUSE_MIN, "it was not reached yet".to_owned());
    loop {
        let began = Instant::now();
        parts.limits.stand(Standing::Alone(parts.members.shares()));
        let opened = tokio::select! {
            opened = Link::open(settings) => opened,
            why = parts.publisher.alone(&why) => Err(why),
        };
        why = match opened {
            Ok(link) => serve(control, settings, &Arc::new(link), &mut parts).await,
            Err(why) => why,
        };
        let Some(strong) = control.upgrade() else { return };
        strong.shared.lost(&why);
        drop(strong);
        // Attempts that come one after the other grow rare; a connection that held is tried again at once.
        pause = if began.elapsed() > PAUSE_MAX { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
        // While Redis is gone there may be new limits, with other shares.
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = parts.limits.alone(parts.members.shares()) => {}
            _ = parts.publisher.alone(&why) => {}
        }
    }
}

/// Shares over a connection. Returns why it ended.
async fn serve(control: &Weak<Control>, settings: &Redis, link: &Arc<Link>, parts: &mut Parts) -> String {
    let Parts { instance, members, limits, publisher, follower, invalid, certificates, decisions, sessions } =
        parts;
    let first = match members.tell(link).await {
        Ok(instances) => instances,
        Err(why) => return why,
    };
    let Some(strong) = control.upgrade() else { return "the proxy ends".to_owned() };
    strong.shared.reached(first);
    let engine = strong.shared.open(settings, instance, link);
    drop(strong);
    let count = members.count();
    tokio::select! {
        why = members.go_on(control, link) => why,
        why = limits.go_on(link, &count) => why,
        why = publisher.go_on(link) => why,
        why = follower.go_on(settings, link) => why,
        why = invalid.go_on(link) => why,
        why = certificates.go_on(engine.clone()) => why,
        why = decisions.go_on(engine.clone()) => why,
        why = sessions.go_on(engine) => why,
    }
}
