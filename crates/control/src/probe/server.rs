//! The health checks of one server: their times, effects and messages.

use std::cell::OnceCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use balance::{CheckSettings, CheckTurn, Health, IneligibleCause, ServerHealth, Time};
use config::written_duration;
use config::{Check, Fastcgi, Probe, Protocol};
use route::ProxyVersion;
use telemetry::message::{self, Level};
use tls::ClientSide;
use tokio::sync::Semaphore;

use crate::probe::connect::has_address;
use crate::probe::{command, connect, grpc, http, http3};
use proxy::context::plan::server_state::ServerWatch;
use proxy::context::plan::{ServerPlan, UpstreamPlan};
use transport::quic_client::QuicClients;
use transport::tls::Records;

const COMMANDS_MAX: usize = 16;
/// The check of an ejected server without active checks: a connection.
const RETURN: Check = Check {
    settings: CheckSettings {
        interval: Duration::from_millis(500),
        interval_in_doubt: Duration::from_millis(500),
        jitter_percent: 20,
        rise: 2,
        fall: 1,
    },
    timeout: Check::TIMEOUT,
    port: None,
    probe: Probe::Tcp,
};

pub(crate) struct ProbeShared {
    epoch: Instant,
    pub(super) commands: Semaphore,
    records: OnceCell<Rc<Records>>,
    quic: OnceCell<QuicClients>,
}

impl ProbeShared {
    pub(crate) fn new(epoch: Instant) -> Self {
        Self {
            epoch,
            commands: Semaphore::new(COMMANDS_MAX),
            records: OnceCell::new(),
            quic: OnceCell::new(),
        }
    }

    pub(super) fn now(&self) -> Time {
        Time::from_micros(self.epoch.elapsed().as_micros() as u64)
    }

    /// Buffers for TLS records, allocated at first use.
    pub(crate) fn records(&self) -> &Rc<Records> {
        self.records.get_or_init(Records::new)
    }

    /// Resources of QUIC connections, created at first use.
    pub(super) fn quic(&self) -> io::Result<&QuicClients> {
        if self.quic.get().is_none() {
            // No other task has set it, because there was no await in between.
            let _ = self.quic.set(http3::clients(self.epoch)?);
        }
        self.quic.get().ok_or_else(|| io::ErrorKind::Other.into())
    }
}

pub(super) struct ProbedServer {
    pub(super) upstream: String,
    pub(super) check: Check,
    pub(super) server: Arc<ServerPlan>,
    pub(super) protocol: Protocol,
    pub(super) introduction: Option<ProxyVersion>,
    /// The scripts of an application behind FastCGI.
    pub(super) scripts: Option<Fastcgi>,
    /// The TLS configuration and the server's index in it, if requests or the check use TLS.
    pub(super) tls: Option<(Arc<ClientSide>, usize)>,
    health: Arc<ServerHealth>,
    watch: Arc<ServerWatch>,
}

impl ProbedServer {
    /// Creates the check of a server; `None` if its upstream has no checks.
    pub(super) fn new(upstream: &UpstreamPlan, index: usize) -> Option<Self> {
        Some(Self::with(upstream.config.check.clone()?, upstream, index))
    }

    fn with(check: Check, upstream: &UpstreamPlan, index: usize) -> Self {
        let tls = match check.probe {
            Probe::Tls => upstream.tls_of(index),
            _ => upstream.servers[index].tls.clone(),
        };
        Self {
            upstream: upstream.config.name.clone(),
            check,
            server: Arc::clone(&upstream.servers[index]),
            protocol: upstream.config.protocol,
            introduction: upstream.config.send_proxy_protocol,
            scripts: upstream.config.fastcgi.clone(),
            tls,
            health: Arc::clone(&upstream.fleet.members()[index].health),
            watch: Arc::clone(&upstream.watches[index]),
        }
    }

    /// Whether both checks are equal, so that a running one may continue.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        let of_tls = |subject: &Self| subject.tls.as_ref().map(|(tls, place)| (Arc::as_ptr(tls), *place));
        self.check == other.check
            && Arc::ptr_eq(&self.server, &other.server)
            && self.protocol == other.protocol
            && self.introduction == other.introduction
            && self.scripts == other.scripts
            && of_tls(self) == of_tls(other)
    }

    async fn ask(&self, shared: &ProbeShared) -> Result<(), String> {
        let asked = async {
            match &self.check.probe {
                Probe::Http { .. } => http::ask(self, shared).await,
                Probe::Tcp => connect::reach(self).await.map(drop),
                Probe::Tls => connect::shake_hands(self, shared).await,
                Probe::Grpc { service } => grpc::ask(self, service, shared).await,
                Probe::Command { command } => command::run(self, command).await,
            }
        };
        // The time limit starts after the wait for a turn.
        let _turn = match self.check.probe {
            Probe::Command { .. } => shared.commands.acquire().await.ok(),
            _ => None,
        };
        match tokio::time::timeout(self.check.timeout, asked).await {
            Ok(outcome) => outcome,
            Err(_) => Err(format!("no answer within {}", written_duration(self.check.timeout))),
        }
    }

    fn say(&self, level: Level, what: &str) {
        message::say(level, &format!("upstream {}, server {}: {what}", self.upstream, self.server.label));
    }
}

/// Checks a server until the future is dropped. The results of an earlier check stay valid until the first result.
pub(super) async fn check(subject: Rc<ProbedServer>, shared: Rc<ProbeShared>) {
    let settings = &subject.check.settings;
    // Continues from the findings of earlier checks, because a single check may differ from them.
    let mut health = subject.watch.findings().health;
    let mut revival = Revival::default();
    let mut due = Health::first_due(settings, shared.now(), fastrand::u64(..));
    loop {
        tokio::time::sleep(due.since(shared.now())).await;
        let began = shared.now();
        due = health.due(settings, began, fastrand::u64(..));
        if !has_address(&subject) {
            continue;
        }
        let outcome = subject.ask(&shared).await;
        let now = shared.now();
        let before = health;
        let verdict;
        (health, verdict) = health.checked(outcome.is_ok(), settings);
        subject.watch.checked(health, &outcome, now);
        conclude(&subject, before, health, &outcome, now);
        let is_ejected = revival.checked(&subject, outcome.is_ok(), verdict, now);
        // An ejected server is checked as a failed one, whatever its results.
        let pace = if is_ejected { Health::Down { successes: 0 } } else { health };
        due = pace.due(settings, began, fastrand::u64(..));
    }
}

/// Watches whether an ejected server accepts connections again, until its ejection ends. Does nothing for an upstream with active health
/// checks, which notice that themselves.
pub(crate) fn watch_return(upstream: &UpstreamPlan, index: usize, shared: &Rc<ProbeShared>) {
    if upstream.config.check.is_some() {
        return;
    }
    // Over UDP, only a handshake shows that the server is there.
    let is_http3 = upstream.config.protocol == Protocol::Http3;
    let check = if is_http3 { Check { probe: Probe::Tls, ..RETURN } } else { RETURN };
    let subject = ProbedServer::with(check, upstream, index);
    let shared = Rc::clone(shared);
    tokio::task::spawn_local(async move {
        let mut revival = Revival::default();
        while has_address(&subject) && is_in_use(&subject.health) {
            let began = shared.now();
            let outcome = subject.ask(&shared).await;
            if !revival.checked(&subject, outcome.is_ok(), None, shared.now()) {
                return;
            }
            let due = Health::Unknown.due(&subject.check.settings, began, fastrand::u64(..));
            tokio::time::sleep(due.since(shared.now())).await;
        }
    });
}

/// Whether a server is in use: if its upstream has dropped it, only this watcher has a reference.
fn is_in_use(health: &Arc<ServerHealth>) -> bool {
    Arc::strong_count(health) > 1
}

fn conclude(subject: &ProbedServer, before: Health, health: Health, outcome: &Result<(), String>, now: Time) {
    let settings = &subject.check.settings;
    let is_first = before == Health::Unknown;
    match health {
        Health::Unknown => {}
        Health::Up { .. } => {
            if subject.health.restore(IneligibleCause::Check, now) {
                let what = if is_first {
                    "its check succeeded".to_owned()
                } else {
                    some(settings.rise, "succeeded")
                };
                subject.say(Level::Info, &format!("up, {what}; its share of requests grows slowly"));
            }
        }
        Health::Down { .. } => {
            if subject.health.stop(IneligibleCause::Check) {
                let what = if is_first {
                    "its first check failed".to_owned()
                } else {
                    some(settings.fall, "failed")
                };
                let reason = outcome.as_ref().err().map_or("", String::as_str);
                subject.say(Level::Warn, &format!("down, {what}: {reason}"));
            }
        }
    }
}

fn some(count: u32, what: &str) -> String {
    if count == 1 { format!("a check {what}") } else { format!("{count} checks {what}") }
}

/// Decides whether an ejected server has come back. Successful checks end an ejection for failed requests, but not
/// one for slowness or a share of failures.
#[derive(Default)]
struct Revival {
    successes: u32,
    /// Whether checks or requests found it unreachable.
    has_failed: bool,
}

impl Revival {
    /// Records a check's result. Returns whether the server is still ejected.
    fn checked(
        &mut self,
        subject: &ProbedServer,
        is_success: bool,
        verdict: Option<CheckTurn>,
        now: Time,
    ) -> bool {
        let health = &subject.health;
        if !health.is_stopped_by(IneligibleCause::Ejection) {
            *self = Self::default();
            return false;
        }
        let findings = subject.watch.findings();
        if findings.outlier.is_some_and(|(until, _)| until == health.ejected_until()) {
            return true;
        }
        self.has_failed |= !is_success || subject.server.is_gone();
        self.successes = if is_success { self.successes + 1 } else { 0 };
        // A connection alone says little about requests, except when there was none before.
        let is_telling = self.has_failed || !matches!(subject.check.probe, Probe::Tcp | Probe::Tls);
        let is_back = verdict == Some(CheckTurn::Up)
            || is_telling && is_success && self.successes >= subject.check.settings.rise;
        if is_back && health.restore(IneligibleCause::Ejection, now) {
            subject
                .say(Level::Info, "available again: its checks succeed; its share of requests grows slowly");
        }
        !is_back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_watched_until_it_is_gone() {
        let health = ServerHealth::new(&Arc::default());
        let watched = Arc::clone(&health);
        assert!(is_in_use(&watched));
        drop(health);
        assert!(!is_in_use(&watched), "it is of no upstream any more");
    }
}
