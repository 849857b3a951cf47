//! Sharing between instances through Redis or Valkey: counts of limits, purges and invalidations, automatic
//! certificates, decisions of authentication servers, and sessions. It runs only on the control thread. Workers use
//! their memory, so they continue without Redis.

/// Connections to Redis.
mod link;
/// Rate limits over all instances.
mod limits;
/// Limits on requests under way over all instances.
mod requests;
/// The list of running instances.
mod members;
/// Purges for all instances.
mod purges;
/// Invalidations by unsafe requests, for all instances.
mod invalid;
/// Redis access for occasional sharing.
mod engine;
/// Seals secrets that Redis keeps.
mod seal;
/// Locks between instances.
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
use proxy::context::plan::{DecisionExchange, InstanceWay, SessionExchange};
use route::ShareStanding;
use telemetry::{SharedSample, message};
use tokio::sync::Notify;

use crate::change::Control;
use certificates::Board;
pub(crate) use certificates::{Offer, Offered, SharedCertificate, offer};
use decisions::Decisions;
pub(crate) use engine::{Engine, Reach};
use invalid::Teller;
pub(crate) use leases::Lease;
use limits::SharedLimits;
use link::RedisLink;
use members::Members;
use purges::{Publisher, PurgeFollower};
use requests::SharedRequests;
use seal::Seal;
use sessions::SharedSessions;

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(crate) struct Shared {
    state: Mutex<SharedState>,
    /// The default name of this instance, if none is configured.
    instance: String,
    /// Notified by workers whose limits have something to report.
    called: Arc<Notify>,
    counts: SharedCounts,
    /// Challenge responses for other instances to give.
    board: Board,
}

/// Counted since the start.
#[derive(Default)]
struct SharedCounts {
    /// Exchanges that reported admitted requests of limits.
    tells: AtomicU64,
    requests: AtomicU64,
    losses: AtomicU64,
    invalid: Arc<invalid::InvalidationCounts>,
    decisions: Arc<decisions::DecisionCounts>,
    sessions: Arc<sessions::SessionCounts>,
}

#[derive(Default)]
struct SharedState {
    /// The URL of Redis; `None` if nothing is shared.
    url: Option<String>,
    link: LinkState,
    instances: Vec<String>,
    /// Seals secrets, if a secret is configured.
    seal: Option<Arc<Seal>>,
    engine: Option<Arc<Engine>>,
}

#[derive(Default, Clone)]
enum LinkState {
    #[default]
    None,
    /// Not connected yet, without a failure.
    Beginning(Instant),
    Up,
    Down {
        since: Instant,
        why: String,
    },
}

impl Shared {
    /// `instance` is the name of this instance.
    pub(crate) fn new(instance: Option<String>) -> Self {
        Self { instance: instance.unwrap_or_else(host_name), ..Self::default() }
    }

    pub(crate) fn problem(&self) -> Option<String> {
        let state = lock(&self.state);
        match (&state.url, &state.link) {
            (Some(url), LinkState::Down { since, why }) => {
                Some(format!("{url} has been unreachable for {} s: {why}", since.elapsed().as_secs()))
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

    /// Returns Redis for secrets, while it is reachable.
    pub(crate) fn engine(&self) -> Option<Arc<Engine>> {
        lock(&self.state).engine.clone()
    }

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
        let state = settings.map(|redis| SharedState {
            url: Some(redis.url.to_string()),
            link: LinkState::Beginning(Instant::now()),
            seal: Seal::new(redis).map(Arc::new),
            ..SharedState::default()
        });
        *lock(&self.state) = state.unwrap_or_default();
    }

    /// Records a new connection to Redis. Returns access for secrets, if a sealing secret is configured.
    fn open(&self, settings: &Redis, instance: &str, link: &Arc<RedisLink>) -> Option<Arc<Engine>> {
        let mut state = lock(&self.state);
        let engine = state.seal.as_ref().map(|seal| Arc::new(Engine::new(settings, instance, (link, seal))));
        state.engine.clone_from(&engine);
        engine
    }

    /// Records that Redis is reachable, with these instances. Reports it if it is news.
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

    /// Records that Redis is unreachable. Reports it if it is news.
    fn lost(&self, why: &str) {
        let mut state = lock(&self.state);
        let url = state.url.clone().unwrap_or_default();
        let since = match &state.link {
            LinkState::Down { since, .. } => *since,
            LinkState::None | LinkState::Up | LinkState::Beginning(_) => {
                self.counts.losses.fetch_add(1, Ordering::Relaxed);
                message::warn(&format!("{url} cannot be reached, this instance continues alone: {why}"));
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

/// A panic in a holder leaves the state complete.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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

async fn share(control: &Weak<Control>, settings: &Redis) {
    let Some(strong) = control.upgrade() else { return };
    let instance = settings.instance.clone().unwrap_or_else(|| strong.shared.instance.clone());
    if settings.secret.is_none() && crate::acme::has_names(&strong.plan()) {
        message::info(
            "certificates are not shared through Redis, because [redis] has no secret_file: instances share a \
             folder, or each requests its own",
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
    let limits = SharedLimits::new(control, settings);
    let requests = SharedRequests::new(control, settings);
    let certificates = certificates::CertificateFollower::new(control);
    let worker_ways = WorkerWays { decisions: decisions.way(), sessions: sessions.way() };
    let parts = SharedParts {
        instance,
        members,
        limits,
        requests,
        publisher,
        follower,
        invalid,
        certificates,
        decisions,
        sessions,
    };
    tokio::select! {
        () = go_on(control, settings, parts) => {}
        () = attach(control, &ways, &worker_ways) => {}
    }
}

/// Channels from workers to other instances.
struct WorkerWays {
    decisions: InstanceWay<DecisionExchange>,
    sessions: InstanceWay<SessionExchange>,
}

struct SharedParts {
    instance: String,
    members: Members,
    limits: SharedLimits,
    requests: SharedRequests,
    publisher: Publisher,
    follower: PurgeFollower,
    invalid: Teller,
    certificates: certificates::CertificateFollower,
    decisions: Decisions,
    sessions: SharedSessions,
}

/// Connects the caches, decisions and sessions of each new plan to the shared channels, until the proxy ends.
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

/// Reconnects for ever, and shares over each connection.
async fn go_on(control: &Weak<Control>, settings: &Redis, mut parts: SharedParts) {
    let (mut pause, mut why) = (PAUSE_MIN, "no connection yet".to_owned());
    loop {
        let began = Instant::now();
        let alone = ShareStanding::Alone(parts.members.shares());
        parts.limits.stand(alone);
        parts.requests.stand(alone);
        let opened = tokio::select! {
            opened = RedisLink::open(settings) => opened,
            why = parts.publisher.alone(&why) => Err(why),
        };
        why = match opened {
            Ok(link) => serve(control, settings, &Arc::new(link), &mut parts).await,
            Err(why) => why,
        };
        let Some(strong) = control.upgrade() else { return };
        strong.shared.lost(&why);
        drop(strong);
        // Repeated attempts become rarer. After a stable connection, the next attempt is immediate.
        pause = if began.elapsed() > PAUSE_MAX { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
        // While Redis is unreachable, new limits with other shares may appear.
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stand_alone(control, &mut parts.limits, &mut parts.requests, parts.members.shares()) => {}
            _ = parts.publisher.alone(&why) => {}
        }
    }
}

/// Keeps new limits at their shares while Redis is unreachable. Never returns.
async fn stand_alone(
    control: &Weak<Control>,
    limits: &mut SharedLimits,
    requests: &mut SharedRequests,
    instances: u32,
) {
    let Some(strong) = control.upgrade() else { return };
    let mut changes = strong.changes.subscribe();
    drop(strong);
    loop {
        limits.stand(ShareStanding::Alone(instances));
        requests.stand(ShareStanding::Alone(instances));
        if changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Shares over a connection. Returns why it ended.
async fn serve(
    control: &Weak<Control>,
    settings: &Redis,
    link: &Arc<RedisLink>,
    parts: &mut SharedParts,
) -> String {
    let SharedParts {
        instance,
        members,
        limits,
        requests,
        publisher,
        follower,
        invalid,
        certificates,
        decisions,
        sessions,
    } = parts;
    let count = members.count();
    let begun = async {
        let instances = members.tell(link).await?;
        Ok((instances, limits.begin(link, &count).await?, requests.begin(link, &count).await?))
    };
    let (instances, limits_script, requests_script) = match begun.await {
        Ok(begun) => begun,
        Err(why) => return why,
    };
    let Some(strong) = control.upgrade() else { return "the proxy ends".to_owned() };
    // Limits hold over all instances before the message says so.
    strong.shared.reached(instances);
    let engine = strong.shared.open(settings, instance, link);
    drop(strong);
    tokio::select! {
        why = members.go_on(control, link) => why,
        why = limits.go_on(link, &limits_script, &count) => why,
        why = requests.go_on(link, &requests_script, &count) => why,
        why = publisher.go_on(link) => why,
        why = follower.go_on(settings, link) => why,
        why = invalid.go_on(link) => why,
        why = certificates.go_on(engine.clone()) => why,
        why = decisions.go_on(engine.clone()) => why,
        why = sessions.go_on(engine) => why,
    }
}
