//! Upstreams as all workers share them: servers, their health, and the protocol.
//!
//! A configuration change keeps everything that it does not alter: a worker's pool belongs to a `ServerPlan`, and so
//! lives as long as that.

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use balance::{Changes, Fleet, FleetMember, RetryReserve, ServerEvent, ServerHealth, Time, WaitingWorkers};
use config::{Protocol, Scheme, Server, ServerHost, Shared, Upstream};
use tls::{CertificateProblem, ClientSide};

use super::stickiness::Stickiness;
use config::written_duration;
use telemetry::message::{self, Level};

use crate::context::plan::listed::{Listed, listed};
use crate::context::plan::server_state::{ServerWatch, watch_of};
use crate::failure::Failure;
use crate::shared::handover_state::HandoverState;
use crate::shared::limits::BandwidthLimits;
use transport::latency_emulation::EmulatedLink;
use transport::resolve::ServerNames;

/// The addresses of a server, tried in order. They are replaced when its name is resolved again.
pub(crate) type Addresses = Arc<ArcSwap<Vec<SocketAddr>>>;

pub struct UpstreamPlan {
    pub config: Shared<Upstream>,
    /// The health of the servers, in the order of `servers`.
    pub fleet: Arc<Fleet>,
    /// Each address of a name may be a separate server.
    pub servers: Vec<Arc<ServerPlan>>,
    /// The control thread's findings about each server.
    pub watches: Vec<Arc<ServerWatch>>,
    /// The index of each server in the configuration.
    places: Vec<usize>,
    tls: Option<Arc<ClientSide>>,
    /// Retries that are permitted even if there are few requests.
    pub(crate) reserve: Arc<RetryReserve>,
    /// The workers with requests in the wait queue.
    pub(crate) waiting: Arc<WaitingWorkers>,
    pub stickiness: Option<Arc<Stickiness>>,
    /// The bandwidth limits of bodies.
    pub(crate) limits: Option<Arc<BandwidthLimits>>,
    /// The emulated network link of the servers.
    pub(crate) link: Option<Arc<EmulatedLink>>,
}

pub struct ServerPlan {
    /// The name of its upstream.
    pub(crate) upstream: String,
    pub config: Server,
    /// The server with the host and port to connect to: for a service, those of its record.
    pub asked: Server,
    /// `host:port`, for Host and the log.
    pub authority: String,
    /// For operators: see `Listed::label`.
    pub label: String,
    /// The upstream's TLS configuration, and the index of this server in it.
    pub tls: Option<(Arc<ClientSide>, usize)>,
    pub addresses: Addresses,
    /// Whether the last connection attempt of a request has failed.
    is_gone: AtomicBool,
    /// Connections of all workers that were recently in use.
    pub(crate) in_use: AtomicUsize,
}

impl UpstreamPlan {
    /// Builds an upstream from its configuration and the current addresses of its names. Unchanged parts of `previous`,
    /// the upstream of the same name in the previous plan, are kept.
    ///
    /// # Errors
    /// Problems of certificates.
    pub(crate) fn new(
        config: &Shared<Upstream>,
        previous: Option<&Arc<Self>>,
        now: Time,
        names: &ServerNames,
    ) -> Result<Arc<Self>, Vec<CertificateProblem>> {
        let same = previous.filter(|previous| previous.config == *config);
        if let Some(same) = same.filter(|same| same.follows(names)) {
            return Ok(Arc::clone(same));
        }
        let tls = match same {
            Some(same) => same.tls.clone(),
            None => ClientSide::load(config)?.map(Arc::new),
        };
        let changes = match previous {
            Some(previous) => Arc::clone(previous.fleet.members()[0].health.changes()),
            None => Arc::<Changes>::default(),
        };
        let listed = listed(config, names);
        let mut servers = Vec::with_capacity(listed.len());
        let mut members = Vec::with_capacity(listed.len());
        let mut watches = Vec::with_capacity(listed.len());
        for one in &listed {
            let server = &one.server;
            let known = previous.and_then(|previous| {
                let index = previous.fleet.index_of(one.id)?;
                Some((previous, index))
            });
            let health = match known {
                Some((previous, index)) => Arc::clone(&previous.fleet.members()[index].health),
                // A server that joins a running upstream gets its share of requests slowly.
                None if previous.is_some() => ServerHealth::joining(&changes, now),
                None => ServerHealth::new(&changes),
            };
            members.push(FleetMember {
                priority: server.priority,
                in_flight_max: server.max_requests,
                // A server with weight 0 is drained; its sessions continue regardless of the weight.
                ..FleetMember::new(one.id, server.weight.max(1), &health)
            });
            watches.push(watch_of(known.map(|(previous, index)| &previous.watches[index])));
            let same = known.filter(|(previous, index)| is_same(previous, *index, config, one));
            servers.push(match same {
                Some((previous, index)) => {
                    previous.servers[index].is_at(one);
                    Arc::clone(&previous.servers[index])
                }
                None => Arc::new(ServerPlan::new(config, one, tls.as_ref())),
            });
        }
        let fleet = Arc::new(Fleet::new(config.balance, members, config.settings));
        let reserve = previous.map(|previous| Arc::clone(&previous.reserve)).unwrap_or_default();
        let stickiness = stickiness(config, previous, now);
        let places = listed.iter().map(|one| one.place).collect();
        Ok(Arc::new(Self {
            config: config.clone(),
            fleet,
            servers,
            watches,
            places,
            tls,
            reserve,
            waiting: previous.map(|previous| Arc::clone(&previous.waiting)).unwrap_or_default(),
            stickiness,
            link: EmulatedLink::new(&config.link, previous.and_then(|previous| previous.link.as_ref())),
            limits: BandwidthLimits::new(
                &config.bandwidths,
                previous.and_then(|previous| previous.limits.as_ref()),
            ),
        }))
    }

    /// Takes over the state of the previous process.
    pub(super) fn inherit(&mut self, handover_state: &HandoverState, now: Time) {
        let name = &self.config.name;
        for member in self.fleet.members() {
            if let Some(inherited) = handover_state.health(name, member.id) {
                member.health.inherit(inherited, now);
            }
        }
        let sticky = self.config.sticky.as_ref();
        self.stickiness =
            sticky.map(|sticky| Arc::new(Stickiness::going_on(sticky, name, handover_state, now)));
    }

    /// Whether the servers are still the ones that the names resolve to. If only addresses within a server changed,
    /// they are replaced.
    pub fn follows(&self, names: &ServerNames) -> bool {
        let is_fixed = |server: &Server| matches!(server.host, ServerHost::Address(_) | ServerHost::Unix(_));
        if self.config.servers.iter().all(is_fixed) {
            return true;
        }
        let listed = listed(&self.config, names);
        let members = self.fleet.members();
        // Records of a service set priority and weight.
        let is_member = |one: &Listed, member: &FleetMember| {
            let Server { priority, weight, .. } = one.server;
            (one.id, priority, weight.max(1)) == (member.id, member.priority, member.weight)
        };
        let is_same = listed.len() == members.len()
            && listed.iter().zip(members).all(|(one, member)| is_member(one, member));
        if is_same {
            self.servers.iter().zip(&listed).for_each(|(server, one)| server.is_at(one));
        }
        is_same
    }

    /// Returns the TLS configuration for a server, also if its scheme is http.
    pub fn tls_of(&self, server: usize) -> Option<(Arc<ClientSide>, usize)> {
        self.tls.as_ref().map(|tls| (Arc::clone(tls), self.places[server]))
    }

    /// Whether servers have limits on requests under way.
    pub(crate) fn has_limits(&self) -> bool {
        self.fleet.members().iter().any(|member| member.in_flight_max.is_some())
    }

    /// Logs that an ejected server responds again.
    #[cold]
    pub(crate) fn tell_revived(&self, server: usize) {
        let Self { config, servers, .. } = self;
        message::info(&format!(
            "upstream {}, server {}: responds again: a request succeeded; its share of requests grows slowly",
            config.name, servers[server].label
        ));
    }

    /// Records that a server failed a request, and reports the first failure after a success.
    #[cold]
    pub(crate) fn server_failed(&self, server: usize, failure: Failure, why: Option<&str>, now: Time) {
        let facts = failure.facts();
        let reason = in_sentence(why.unwrap_or(facts.text));
        let is_first = self.fleet.members()[server].health.is_first_to_report();
        if self.watches[server].failed(facts.word, &reason, is_first, now) {
            let Self { config, servers, .. } = self;
            let label = &servers[server].label;
            message::warn(&format!("upstream {}, server {label}: a request failed: {reason}", config.name));
        }
    }

    /// Logs how the end of a request changed a server's state. `last` is the request's result.
    #[cold]
    pub(crate) fn tell(&self, server: usize, event: ServerEvent, now: Time, last: Last) {
        // Rounded up to whole milliseconds, for readability.
        let whole = |time: Duration| Duration::from_millis(time.as_micros().div_ceil(1000) as u64);
        let span = |until: Time| written_duration(whole(until.since(now)));
        let what = match event {
            ServerEvent::Ejected(until) => {
                self.watches[server].count_ejection();
                let next = match self.fleet.awaits_trial(server) {
                    true => "; no server of its priority is left, so the next priority takes over",
                    false => "",
                };
                format!("ejected for {}: too many failures in a row, the last one {last}{next}", span(until))
            }
            ServerEvent::Recalled => format!(
                "fails like the servers of earlier priorities, the last time {last}: those get requests again"
            ),
            ServerEvent::CircuitOpened(until) => {
                format!("its circuit is open for {}: requests fail, the last one {last}", span(until))
            }
            ServerEvent::CircuitClosed => {
                "its circuit is closed again: trial requests succeed; its share of requests grows slowly"
                    .to_owned()
            }
        };
        let Self { config, servers, .. } = self;
        let level = if event == ServerEvent::CircuitClosed { Level::Info } else { Level::Warn };
        message::say(level, &format!("upstream {}, server {}: {what}", config.name, servers[server].label));
    }
}

/// Shortens a reason for use after a colon: `Connection refused (os error 111)` becomes `connection refused`.
fn in_sentence(reason: &str) -> Cow<'_, str> {
    let reason = reason.trim_end().trim_end_matches('.');
    let reason = match reason.rsplit_once(" (os error ") {
        Some((text, number)) if number.trim_end_matches(')').bytes().all(|byte| byte.is_ascii_digit()) => {
            text
        }
        _ => reason,
    };
    let mut letters = reason.chars();
    match (letters.next(), letters.clone().next()) {
        // Not for abbreviations and names of fields.
        (Some(first @ 'A'..='Z'), Some('a'..='z' | ' ')) if !reason.contains('-') => {
            Cow::Owned(format!("{}{}", first.to_ascii_lowercase(), letters.as_str()))
        }
        _ => Cow::Borrowed(reason),
    }
}

/// The result of the request that changed a server's state.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Last {
    Answered(u16),
    Failed(Failure),
}

impl fmt::Display for Last {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered(status) => write!(formatter, "with {status}"),
            Self::Failed(failure) => formatter.write_str(failure.facts().word),
        }
    }
}

/// Returns the sessions: kept if their settings are unchanged, otherwise continued in a new table or with a new cookie.
fn stickiness(config: &Upstream, previous: Option<&Arc<UpstreamPlan>>, now: Time) -> Option<Arc<Stickiness>> {
    let kept = previous.filter(|previous| previous.config.sticky == config.sticky);
    match kept {
        Some(previous) => previous.stickiness.clone(),
        None => {
            let before = previous.and_then(|previous| previous.stickiness.as_deref());
            let made = |sticky| Arc::new(Stickiness::new(sticky, &config.name, before, now));
            config.sticky.as_ref().map(made)
        }
    }
}

/// Whether a server of the previous plan is the same, so that its connections can be kept.
fn is_same(previous: &UpstreamPlan, index: usize, config: &Upstream, listed: &Listed) -> bool {
    let Listed { server, label, .. } = listed;
    let ServerPlan { asked: before, label: label_before, .. } = &*previous.servers[index];
    // TLS settings do not concern a server without TLS.
    let is_same_tls = server.scheme == Scheme::Http || previous.config.tls == config.tls;
    (before.scheme, &before.host, before.port) == (server.scheme, &server.host, server.port)
        && previous.config.protocol == config.protocol
        && is_same_tls
        && label_before == label
}

impl ServerPlan {
    fn new(upstream: &Upstream, listed: &Listed, tls: Option<&Arc<ClientSide>>) -> Self {
        let server = &upstream.servers[listed.place];
        Self {
            upstream: upstream.name.clone(),
            authority: listed.server.authority(),
            asked: listed.server.clone(),
            label: listed.label.clone(),
            tls: tls.filter(|_| server.scheme == Scheme::Https).map(|tls| (Arc::clone(tls), listed.place)),
            addresses: Arc::new(ArcSwap::from_pointee(listed.addresses.clone())),
            config: server.clone(),
            is_gone: AtomicBool::new(false),
            in_use: AtomicUsize::new(0),
        }
    }

    pub fn speaks_http3(&self) -> bool {
        self.tls.as_ref().is_some_and(|(tls, _)| tls.protocol() == Protocol::Http3)
    }

    /// Records whether a request could connect to the server.
    pub(crate) fn was_reached(&self, is_reached: bool) {
        // Written only on a change, because all workers read the same cache line.
        if self.is_gone() == is_reached {
            self.is_gone.store(!is_reached, Relaxed);
        }
    }

    /// Whether the last connection attempt of a request has failed.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }

    /// Replaces the addresses if they have changed.
    fn is_at(&self, listed: &Listed) {
        if **self.addresses.load() != listed.addresses {
            self.addresses.store(Arc::new(listed.addresses.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_fit_into_a_sentence() {
        for (reason, expected) in [
            ("Connection refused (os error 111)", "connection refused"),
            ("The server did not respond in time.\n", "the server did not respond in time"),
            ("TLS is required", "TLS is required"),
            ("Content-Length is not a number", "Content-Length is not a number"),
            ("an error (os error x)", "an error (os error x)"),
            ("", ""),
        ] {
            assert_eq!(in_sentence(reason), expected);
        }
    }
}
