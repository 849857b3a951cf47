//! The plan: the configuration, compiled for the request path, shared by all workers and immutable. A configuration
//! change makes a new plan from the previous one.

/// The servers of a configuration, with resolved names.
mod listed;
/// The control thread's findings about a server.
pub mod server_state;
/// Routes undecrypted TLS by server name.
mod passthrough;
/// Limits of routes on requests.
mod request_limits;
/// Routes and their policies.
mod routes;
/// Conditions of options.
mod conditions;
/// Sampling of the access log.
mod logged;
/// The proofs of identity that a route requires.
mod authentication;
/// A route's mirror.
mod mirror;
/// Keys and rules of tokens.
mod tokens;
/// Forward authentication, and its remembered decisions.
mod forward_auth;
/// Channels to other instances.
mod elsewhere;
/// Authentication decisions that instances share.
mod decisions_elsewhere;
/// Bots, and their keys.
mod bots;
/// Upstreams and their servers.
mod upstreams;
/// The instances that share a cache.
mod peers;
/// Keeps clients on their side of a split.
mod split_key;
/// The kinds of entity tags that servers send.
mod sent_tags;
/// Session affinity.
mod stickiness;
/// Sessions that instances share.
mod sessions_elsewhere;

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};

use balance::{Sessions, Time};
use cache::Space;
use config::{CacheDisk, Certificates, Config, Hsts, IpNet, ListenerTls};
use expression::Expression;
use route::Concurrency;
use shape::Queue;
use tls::{CertificateProblem, Challenges, ClientSide, QUIC_SECRET_BYTES, ServerSide};

pub use crate::shared::concurrency::SharedConcurrency;
use crate::shared::concurrency::{ConcurrencyLimiter, Counted, Entered};
use crate::shared::handover_state::HandoverState;
use crate::shared::kept_bytes::KeptBytes;
use crate::shared::limits::BandwidthLimits;
use crate::shared::live_maps::LiveMaps;
use crate::shared::tracing::Tracing;
use crate::shared::verifier::Verifier;
use crate::store::Cache;
use transport::latency_emulation::EmulatedLink;
use transport::resolve::ServerNames;

pub(crate) use authentication::{Authentication, Proof};
pub(crate) use bots::{BotAgent, Bots};
pub(crate) use decisions_elsewhere::read as read_decision;
pub use decisions_elsewhere::{DecisionExchange, Elsewhere};
pub use elsewhere::InstanceWay;
pub(crate) use forward_auth::{
    Decision as AuthDecision, DecisionSource, Decisions, ForwardAuth, OpenQuestion as AuthQuestion,
    QuestionOutcome, RefusedAnswer,
};
pub(crate) use mirror::{Mirror, MirrorPermit as MirrorPlace};
pub(crate) use passthrough::{Passthrough, UpstreamShares};
pub(crate) use peers::Peers;
pub use request_limits::SharedLimit;
pub(crate) use request_limits::{ConcurrencyLimit, Limit};
pub(crate) use routes::{Accel, Compression, NO_UPSTREAM};
pub use routes::{Auth, PlanRoute, PlanRouteTable, RoutePolicies, secret};
pub(crate) use sent_tags::TagKinds;
pub use sessions_elsewhere::{Precedence, SessionExchange, SharedSessions};
pub(crate) use split_key::{SplitInput as SplitAsking, SplitKey};
use stickiness::CookieSecret;
pub use stickiness::Stickiness;
pub use tokens::{LiveTokenKeys, RemoteKeys, Tokens};
pub(crate) use upstreams::Last;
pub use upstreams::{ServerPlan, UpstreamPlan};

pub struct Plan {
    pub config: Config,
    /// Changes when the set of trusted proxies changes.
    pub(crate) trust: u64,
    /// In the order of the configuration.
    pub listeners: Vec<Arc<PlanListener>>,
    /// In the order of the configuration.
    pub upstreams: Vec<Arc<UpstreamPlan>>,
    /// In the order of the configuration.
    pub routes: Vec<Arc<PlanRoute>>,
    /// The bandwidth limits of listeners, routes and upstreams.
    pub(crate) limits: Vec<Arc<BandwidthLimits>>,
    /// The cache spaces that the routes use, without duplicates.
    pub spaces: Vec<Space>,
    /// The plan's places in the counters; `None` if metrics are off.
    pub places: Option<Arc<telemetry::CounterPlaces>>,
    pub(crate) table: Arc<PlanRouteTable>,
    /// The conditions of options with regular expressions, which each worker copies.
    pub(crate) conditions: Arc<[Arc<Expression>]>,
    pub(crate) verifier: Arc<Verifier>,
    /// Limits the memory and disk space of kept request bodies.
    pub(crate) kept_bytes: Arc<KeptBytes>,
    /// The name of this machine, for texts with variables.
    pub(crate) hostname: Arc<str>,
    /// Signs the cookies of splits, if the configuration has no secret.
    pub(crate) split_secret: CookieSecret,
    pub tracing: Option<Arc<Tracing>>,
    /// The keys of the process for QUIC connections.
    pub(crate) quic: QuicProcessKeys,
    /// `None` if no route has a cache.
    pub cache: Option<Cache>,
    /// The instances that share a cache, if it is shared.
    pub(crate) peers: Option<Arc<Peers>>,
    /// Challenges of certificate authorities for automatic certificates. Shared by all plans.
    pub challenges: Arc<Challenges>,
    /// The maps of the configuration, with operators' changes.
    pub maps: LiveMaps,
    /// The names of servers. They are resolved for as long as the plan exists.
    pub names: ServerNames,
}

/// The keys of the process for QUIC connections.
#[derive(Clone, Copy)]
pub(crate) struct QuicProcessKeys {
    /// Keys of connection IDs, tokens and resets derive from it. Equal in all processes of a chain of upgrades.
    pub(crate) secret: [u8; QUIC_SECRET_BYTES],
    /// The number of the process in the chain of upgrades.
    pub(crate) generation: u8,
}

impl QuicProcessKeys {
    /// Creates the keys of a process without predecessor: from the configured key, or random.
    fn new(config: &Config) -> Self {
        let written = config.quic_key.as_ref().map(|key| tls::quic_secret(&key.bytes));
        Self { secret: written.unwrap_or_else(routes::secret), generation: 0 }
    }
}

pub struct PlanListener {
    pub tls: Option<Arc<ServerSide>>,
    /// The port for redirects to https, if the listener redirects its requests.
    pub(crate) redirect_port: Option<u16>,
    /// Lines to add to every response: Strict-Transport-Security, and Alt-Svc once the port is known.
    pub(crate) added: OnceLock<Vec<u8>>,
    /// Answers to certificate authorities. Set for listeners without TLS if certificates are automatic.
    pub(crate) challenges: Option<Arc<Challenges>>,
    pub(crate) http2: bool,
    pub(crate) http3: bool,
    /// Networks whose connections begin with a PROXY header.
    introducers: Vec<IpNet>,
    /// The rules for TLS that is passed on undecrypted, by server name.
    pub(crate) passthrough: Option<Arc<Passthrough>>,
    /// Whether the ClientHello decides where a connection goes, or how it is secured.
    pub(crate) reads_client_hello: bool,
    /// For layer 4: the upstreams.
    pub(crate) passes_on: Option<UpstreamShares>,
    /// The bandwidth limits of bodies or forwarded bytes.
    pub(crate) limits: Option<Arc<BandwidthLimits>>,
    /// The limit on the connections of a client, and their counts.
    pub(crate) per_client: Option<(NonZeroU32, ConcurrencyLimiter)>,
    /// The emulated network link of the clients.
    pub(crate) link: Option<Arc<EmulatedLink>>,
    /// The queues of the emulated link for datagrams, to clients and from them.
    pub(crate) queues: [Option<Queue>; 2],
    /// Whether its clients are other instances.
    pub(crate) is_for_peers: bool,
}

/// The name in place of an upstream's under which the secret of splits is handed over; no upstream has it.
pub(crate) const SPLITS: &str = "";

/// The number of the list of trusted proxies. After a change, connections judge their client again with the next request.
fn trust(previous: Option<&Plan>, config: &Config) -> u64 {
    previous.map_or(0, |previous| {
        previous.trust + u64::from(previous.config.trusted_proxies != config.trusted_proxies)
    })
}

/// The name of this machine: read once.
fn hostname(previous: Option<&Plan>) -> Arc<str> {
    previous.map_or_else(|| telemetry::host_name().into(), |previous| Arc::clone(&previous.hostname))
}

impl Plan {
    /// Loads certificates and compiles the configuration. Unchanged parts of `previous` are kept; `names` are the names
    /// of the servers.
    ///
    /// # Errors
    /// Problems of certificates.
    pub fn new(
        config: Config,
        previous: Option<&Self>,
        now: Time,
        names: ServerNames,
    ) -> Result<Self, Vec<CertificateProblem>> {
        let mut problems = Vec::new();
        let mut listeners = Vec::with_capacity(config.listeners.len());
        let challenges = previous.map(|previous| Arc::clone(&previous.challenges)).unwrap_or_default();
        for listener in &config.listeners {
            match PlanListener::new(listener, &config, previous, &challenges) {
                Ok(listener) => listeners.push(Arc::new(listener)),
                Err(found) => problems.extend(found),
            }
        }
        let upstreams = Self::upstreams(&config, previous, now, &names, &mut problems);
        // Problems of all certificates are reported together.
        if !problems.is_empty() {
            return Err(problems);
        }
        let maps = LiveMaps::new(&config, previous.map(|previous| &previous.maps));
        let verifier = previous.map(|previous| Arc::clone(&previous.verifier)).unwrap_or_default();
        let kept_bytes = previous.map(|previous| Arc::clone(&previous.kept_bytes)).unwrap_or_default();
        let kept = previous.filter(|previous| stores(&previous.config) == stores(&config));
        let new_cache = || config.cache.as_ref().map(Cache::new);
        let cache = kept.map_or_else(new_cache, |previous| previous.cache.clone());
        // Kept over reloads, so that cookies at clients stay valid.
        let split_secret = previous.map_or_else(routes::secret, |previous| previous.split_secret);
        let quic = previous.map_or_else(|| QuicProcessKeys::new(&config), |previous| previous.quic);
        let alike = kept.filter(|previous| routes::are_surroundings_alike(&previous.config, &config));
        let secrets = (cache.as_ref().map(Cache::secret), &split_secret);
        let routes = routes::routes(&config, previous, alike, secrets);
        let table = previous.filter(|previous| routes::have_same_rules(&previous.config, &config));
        let table =
            table.map_or_else(|| Arc::new(PlanRouteTable::new(&config)), |same| Arc::clone(&same.table));
        let same = alike.filter(|previous| routes::are_same(&previous.routes, &routes));
        let tracing = config.tracing.as_ref().map(|settings| {
            let kept = previous.and_then(|previous| previous.tracing.as_ref());
            let kept = kept.filter(|tracing| tracing.settings == *settings);
            kept.map_or_else(|| Arc::new(Tracing::new(settings)), Arc::clone)
        });
        let spaces = same.map_or_else(|| routes::spaces(&config, &routes), |same| same.spaces.clone());
        let conditions =
            same.map_or_else(|| conditions::with_patterns(&config), |same| Arc::clone(&same.conditions));
        let peers = same.filter(|same| same.config.cache == config.cache);
        let peers = peers.map_or_else(|| Peers::new(&config).map(Arc::new), |same| same.peers.clone());
        Ok(Self {
            trust: trust(previous, &config),
            tracing,
            cache,
            peers,
            challenges,
            limits: limits(&listeners, &routes, &upstreams),
            listeners,
            upstreams,
            routes,
            spaces,
            places: None,
            table,
            conditions,
            verifier,
            kept_bytes,
            hostname: hostname(previous),
            split_secret,
            quic,
            names,
            maps,
            config,
        })
    }

    /// Compiles the upstreams, and adds problems of their certificates.
    fn upstreams(
        config: &Config,
        previous: Option<&Self>,
        now: Time,
        names: &ServerNames,
        problems: &mut Vec<CertificateProblem>,
    ) -> Vec<Arc<UpstreamPlan>> {
        let mut upstreams = Vec::with_capacity(config.upstreams.len());
        let mut by_name = None;
        for (place, upstream) in config.upstreams.iter().enumerate() {
            let before = previous.and_then(|previous| previous.upstream(place, upstream, &mut by_name));
            match UpstreamPlan::new(upstream, before, now, names) {
                Ok(upstream) => upstreams.push(upstream),
                Err(found) => problems.extend(found),
            }
        }
        upstreams
    }

    /// Takes over the state of the previous process. Called for the first plan, before it is shared.
    pub fn inherit(&mut self, handover_state: &HandoverState, now: Time) {
        for (listener, configured) in self.listeners.iter().zip(&self.config.listeners) {
            let keys = handover_state.ticket_keys(&configured.address.to_string());
            if let Some((tls, keys)) = listener.tls.as_ref().zip(keys) {
                // Keys for another rule about client certificates are refused, so such listeners start with new keys.
                tls.adopt_ticket_keys(&keys);
            }
        }
        // The plan is not shared yet, so each pointer has one owner.
        for upstream in self.upstreams.iter_mut().filter_map(Arc::get_mut) {
            upstream.inherit(handover_state, now);
        }
        if let Some((secret, generation)) = handover_state.quic() {
            // The number is one byte, so it wraps in a long chain of upgrades.
            self.quic = QuicProcessKeys { secret, generation: generation.wrapping_add(1) };
        }
        if let Some(secret) = handover_state.cookie_secret(SPLITS) {
            self.split_secret = secret;
            self.routes.iter_mut().filter_map(Arc::get_mut).for_each(|route| route.sign_splits(&secret));
        }
    }

    /// Returns a message if the QUIC key of a configuration takes no effect: a process keeps its first one.
    pub fn remark_on_quic_key(&self, config: &Config) -> Option<String> {
        let key = config.quic_key.as_ref()?;
        let is_in_use = tls::quic_secret(&key.bytes) == self.quic.secret;
        (!is_in_use).then(|| {
            format!(
                "quic_key_file: {} takes effect after a restart, not a reload or an upgrade",
                key.file.display()
            )
        })
    }

    /// Sets the ports of the listeners, in order. Called before the plan is shared.
    pub fn know_ports(&self, ports: impl Iterator<Item = Option<u16>>) {
        for ((listener, configured), port) in self.listeners.iter().zip(&self.config.listeners).zip(ports) {
            let mut added = configured.hsts.as_ref().map(hsts_line).unwrap_or_default();
            if let Some(port) = port.filter(|_| listener.http3) {
                added.extend_from_slice(&alt_svc_line(port));
            }
            // It was not set before.
            let _ = listener.added.set(added);
        }
    }

    /// The rate limits that instances share, each zone once.
    pub fn shared_limits(&self) -> impl Iterator<Item = SharedLimit> {
        let mut zones = HashSet::new();
        let limits = self.routes.iter().flat_map(|route| route.rate_limits());
        limits.filter_map(move |limit| {
            let is_first = limit.settings.zone.as_ref().is_none_or(|zone| zones.insert(zone));
            if is_first { limit.shared() } else { None }
        })
    }

    /// The limits on requests under way that instances share, each once.
    pub fn shared_concurrency(&self) -> impl Iterator<Item = SharedConcurrency> {
        let mut zones = HashSet::new();
        let limits = self.routes.iter().flat_map(|route| route.concurrency_limits());
        limits.filter_map(move |limit| {
            let is_first = limit.settings.zone.as_ref().is_none_or(|zone| zones.insert(zone));
            if is_first { limit.shared() } else { None }
        })
    }

    /// The channels of authentication decisions that instances share.
    pub fn shared_decisions(&self) -> impl Iterator<Item = &Arc<Elsewhere>> {
        self.routes.iter().filter_map(|route| route.shared_decisions())
    }

    /// The sessions that instances share: tables, and channels.
    pub fn shared_sessions(&self) -> impl Iterator<Item = (&Sessions, &SharedSessions)> {
        self.upstreams.iter().filter_map(|upstream| upstream.stickiness.as_deref()?.shared())
    }

    /// The number of the process in the chain of upgrades.
    pub fn quic_generation(&self) -> u8 {
        self.quic.generation
    }

    /// Returns the upstream with the name of another, which is usually at the same index.
    fn upstream<'p>(
        &'p self,
        place: usize,
        wanted: &config::Upstream,
        by_name: &mut Option<HashMap<&'p str, &'p Arc<UpstreamPlan>>>,
    ) -> Option<&'p Arc<UpstreamPlan>> {
        // Usually no upstream has moved, and no map of names is made.
        let at_place = self.upstreams.get(place).filter(|upstream| upstream.config.name == wanted.name);
        at_place.or_else(|| {
            let named = |upstream: &'p Arc<UpstreamPlan>| (upstream.config.name.as_str(), upstream);
            let by_name = by_name.get_or_insert_with(|| self.upstreams.iter().map(named).collect());
            by_name.get(wanted.name.as_str()).copied()
        })
    }

    /// Whether listeners, routes, upstreams and servers have the names of another plan, at the same indices.
    pub fn is_named_like(&self, other: &Self) -> bool {
        let listener = |listener: &config::Listener| listener.tcp.as_ref().map(|_| listener.name.clone());
        let [own, others] = [self, other].map(|plan| plan.config.listeners.iter().map(listener));
        let server = |(one, other): (&Arc<ServerPlan>, &Arc<ServerPlan>)| one.label == other.label;
        // Parts that both plans share are equal without a comparison.
        let upstream = |(one, other): (&Arc<UpstreamPlan>, &Arc<UpstreamPlan>)| {
            Arc::ptr_eq(one, other)
                || one.config.name == other.config.name
                    && one.servers.len() == other.servers.len()
                    && one.servers.iter().zip(&other.servers).all(server)
        };
        let route = |(one, other): (&Arc<PlanRoute>, &Arc<PlanRoute>)| {
            Arc::ptr_eq(one, other) || one.label == other.label
        };
        own.eq(others)
            && (self.routes.len(), self.upstreams.len()) == (other.routes.len(), other.upstreams.len())
            && self.upstreams.iter().zip(&other.upstreams).all(upstream)
            && self.routes.iter().zip(&other.routes).all(route)
    }

    fn listener(&self, name: &str) -> Option<&Arc<PlanListener>> {
        let place = self.config.listeners.iter().position(|listener| listener.name == name)?;
        self.listeners.get(place)
    }

    /// Whether a client with this address is a trusted proxy.
    pub(crate) fn trusts(&self, address: IpAddr) -> bool {
        self.config.trusted_proxies.iter().any(|network: &IpNet| network.contains(&address))
    }

    /// The TLS configurations of upstreams, without duplicates.
    pub fn upstream_tls(&self) -> Vec<&Arc<ClientSide>> {
        let servers = self.upstreams.iter().flat_map(|upstream| &upstream.servers);
        let mut found: Vec<&Arc<ClientSide>> = Vec::new();
        for (tls, _) in servers.filter_map(|server| server.tls.as_ref()) {
            // Servers of one upstream are adjacent.
            if found.last().is_none_or(|last| !Arc::ptr_eq(last, tls)) {
                found.push(tls);
            }
        }
        found
    }
}

impl PlanListener {
    /// A listener without any special settings.
    pub(crate) const fn none() -> Self {
        Self {
            tls: None,
            redirect_port: None,
            added: OnceLock::new(),
            challenges: None,
            http2: false,
            http3: false,
            introducers: Vec::new(),
            passthrough: None,
            reads_client_hello: false,
            passes_on: None,
            limits: None,
            per_client: None,
            link: None,
            queues: [None, None],
            is_for_peers: false,
        }
    }

    /// Counts a connection of a client, until the result is dropped; `None` if there is no limit.
    ///
    /// # Errors
    /// The limit, if the client has as many connections.
    pub(crate) fn count_client(&self, client: IpAddr) -> Result<Option<Counted>, NonZeroU32> {
        let Some((max, limiter)) = &self.per_client else { return Ok(None) };
        let limit = Concurrency { max: *max, waiting_max: 0 };
        match limiter.enter(limiter.counts().key_of_client(client), limit) {
            Entered::UnderWay(counted) => Ok(Some(counted)),
            Entered::Waits(_) | Entered::Full => Err(*max),
        }
    }

    /// Whether connections from this address begin with a PROXY header.
    pub(crate) fn is_introduced_by(&self, address: IpAddr) -> bool {
        self.introducers.iter().any(|network| network.contains(&address))
    }

    fn new(
        listener: &config::Listener,
        config: &Config,
        previous: Option<&Plan>,
        challenges: &Arc<Challenges>,
    ) -> Result<Self, Vec<CertificateProblem>> {
        // A listener keeps its ticket keys and remembered sessions.
        let kept = previous.and_then(|previous| {
            let what = |of: &config::Listener| {
                (of.address.clone(), of.http2, of.http3, of.tcp.is_some(), of.tls.clone())
            };
            let mut before = previous.config.listeners.iter();
            let place = before.position(|before| what(before) == what(listener))?;
            previous.listeners[place].tls.clone()
        });
        let tls = match kept {
            Some(tls) => Some(tls),
            None => ServerSide::load_answering(listener, challenges)?.map(Arc::new),
        };
        // RFC 8555 §8.3: authorities ask by plain HTTP.
        let answers = listener.tls.is_none() && listener.tcp.is_none() && has_automatic(config);
        let before = previous.and_then(|plan| plan.listener(&listener.name));
        let passthrough = Passthrough::new(listener, config).map(Arc::new);
        let has_rules = tls.as_ref().is_some_and(|tls| tls.has_rules_by_name());
        Ok(Self {
            reads_client_hello: passthrough.is_some() || has_rules,
            passthrough,
            tls,
            redirect_port: listener.redirect_to_https.then(|| https_port(config)),
            // `know_ports` sets it once the kernel has chosen the ports.
            added: OnceLock::new(),
            challenges: answers.then(|| Arc::clone(challenges)),
            http2: listener.http2,
            http3: listener.http3,
            introducers: listener.proxy_protocol.clone(),
            link: EmulatedLink::new(&listener.link, before.and_then(|before| before.link.as_ref())),
            queues: [listener.datagram_rates.down, listener.datagram_rates.up]
                .map(|rate| rate.map(Queue::new)),
            is_for_peers: listener.is_for_peers,
            per_client: listener.connections_per_client.map(|max| {
                let kept = before.and_then(|before| before.per_client.as_ref());
                (max, kept.map_or_else(ConcurrencyLimiter::new, |(_, counts)| counts.clone()))
            }),
            limits: BandwidthLimits::new(
                &listener.bandwidths,
                before.and_then(|before| before.limits.as_ref()),
            ),
            passes_on: listener.tcp.as_ref().map(|to| UpstreamShares::new(to, config)),
        })
    }
}

/// All bandwidth limits of a plan.
fn limits(
    listeners: &[Arc<PlanListener>],
    routes: &[Arc<PlanRoute>],
    upstreams: &[Arc<UpstreamPlan>],
) -> Vec<Arc<BandwidthLimits>> {
    let of_listeners = listeners.iter().filter_map(|listener| listener.limits.clone());
    let of_routes = routes.iter().filter_map(|route| route.limits.clone());
    let of_upstreams = upstreams.iter().filter_map(|upstream| upstream.limits.clone());
    of_listeners.chain(of_routes).chain(of_upstreams).collect()
}

/// Whether any listener has automatic certificates.
fn has_automatic(config: &Config) -> bool {
    let is_automatic = |tls: &ListenerTls| matches!(tls.certificates, Certificates::Automatic { .. });
    config.listeners.iter().filter_map(|listener| listener.tls.as_ref()).any(is_automatic)
}

/// Where responses are stored: the store is kept as long as this does not change. `Cache::follow` handles the sizes.
fn stores(config: &Config) -> Option<Option<&CacheDisk>> {
    Some(config.cache.as_ref()?.disk.as_ref())
}

/// Returns the port of https: 443 if a listener with TLS has it, else that of the first one with TLS.
fn https_port(config: &Config) -> u16 {
    const HTTPS: u16 = 443;
    let mut ports = config.listeners.iter().filter(|listener| listener.tls.is_some());
    let first = ports.next().and_then(|listener| listener.address.port()).unwrap_or(HTTPS);
    if ports.any(|listener| listener.address.port() == Some(HTTPS)) { HTTPS } else { first }
}

/// RFC 7838 §3, RFC 9114 §3.1.1: valid for a day, the default.
fn alt_svc_line(port: u16) -> Vec<u8> {
    format!("Alt-Svc: h3=\":{port}\"; ma=86400\r\n").into_bytes()
}

/// RFC 6797 §6.1.
fn hsts_line(hsts: &Hsts) -> Vec<u8> {
    format!("Strict-Transport-Security: {}\r\n", hsts.header_value()).into_bytes()
}
