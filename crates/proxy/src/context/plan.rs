//! The plan: the configuration, compiled for the request path, shared by all workers and never changed. A configuration
//! change makes a new plan from the previous one.

/// The servers of a configuration, with resolved names.
mod listed;
/// The control thread's findings about a server.
pub mod server_state;
/// Where TLS goes that is passed on as it is.
mod passthrough;
/// Routes and their policies.
mod routes;
/// Which requests of a route are in the access log.
mod logged;
/// How clients of a route prove who they are.
mod authentication;
/// A route's mirror.
mod mirror;
/// Keys and rules of tokens.
mod tokens;
/// Forward authentication, and its remembered decisions.
mod forward_auth;
/// Ways to other instances.
mod elsewhere;
/// Decisions that instances share.
mod decisions_elsewhere;
/// Bots, and their keys.
mod bots;
/// Upstreams and their servers.
mod upstreams;
/// The instances that share what they store.
mod peers;
/// What keeps clients on their side of a split.
mod split_key;
/// Sessions.
mod stickiness;
/// Sessions that instances share.
mod sessions_elsewhere;

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use balance::{Sessions, Time};
use cache::Space;
use config::{CacheDisk, Certificates, Config, Hsts, IpNet, ListenerTls};
use shape::Queue;
use tls::{Challenges, ClientSide, Problem, QUIC_SECRET_BYTES, ServerSide};

use crate::cache::Cache;
use crate::context::handover_state::HandoverState;
use crate::context::kept_bytes::KeptBytes;
use crate::context::tracing::Tracing;
use crate::forward::verify::Verifier;
use crate::shaping::Limits;
use transport::latency_emulation::Link;
use transport::resolve::Names;

pub(crate) use authentication::{Authentication, Proof};
pub(crate) use bots::{Agent, Bots};
pub(crate) use decisions_elsewhere::read as read_decision;
pub use decisions_elsewhere::{DecisionExchange, Elsewhere};
pub use elsewhere::Way;
pub(crate) use forward_auth::{
    Decision as AuthDecision, Decisions, ForwardAuth, Joined, Question as AuthQuestion, RefusedAnswer, Told,
};
pub(crate) use mirror::{Mirror, Place as MirrorPlace};
pub(crate) use passthrough::Passthrough;
pub(crate) use peers::Peers;
pub(crate) use routes::Compression;
pub use routes::{Auth, Policies, Route, SharedLimit, Table, secret};
pub use sessions_elsewhere::{Precedence, SessionExchange, SharedSessions};
pub(crate) use split_key::{Asking as SplitAsking, SplitKey};
use stickiness::CookieSecret;
pub use stickiness::Stickiness;
pub use tokens::{Keys, RemoteKeys, Tokens};
pub(crate) use upstreams::Last;
pub use upstreams::{ServerPlan, UpstreamPlan};

/// A compiled configuration.
pub struct Plan {
    /// The configuration that the plan was compiled from.
    pub config: Config,
    /// A number that changes when the set of trusted proxies changes.
    pub(crate) trust: u64,
    /// The listeners, in the order of the configuration.
    pub listeners: Vec<Arc<Listener>>,
    /// The upstreams, in the order of the configuration.
    pub upstreams: Vec<Arc<UpstreamPlan>>,
    /// The routes, in the order of the configuration.
    pub routes: Vec<Route>,
    /// The cache spaces that the routes use, without duplicates.
    pub spaces: Vec<Space>,
    /// The plan's places in the counters; `None` while nobody asks for metrics.
    pub places: Option<Arc<telemetry::Places>>,
    pub(crate) table: Arc<Table>,
    pub(crate) verifier: Arc<Verifier>,
    /// What request bodies take that are kept.
    pub(crate) kept_bytes: Arc<KeptBytes>,
    /// Signs the cookies of splits, if the configuration has no secret.
    pub(crate) split_secret: CookieSecret,
    /// Traces, if there are any.
    pub tracing: Option<Arc<Tracing>>,
    /// What connections of QUIC know of the process.
    pub(crate) quic: QuicProcessKeys,
    /// The cache, if a route has one.
    pub cache: Option<Cache>,
    /// The instances that share what they store, if it is shared.
    pub(crate) peers: Option<Peers>,
    /// What certificate authorities ask for, to issue automatic certificates. The same in all plans.
    pub challenges: Arc<Challenges>,
    /// The names of servers. They are resolved for as long as the plan exists.
    pub names: Names,
}

/// What connections of QUIC know of the process.
#[derive(Clone, Copy)]
pub(crate) struct QuicProcessKeys {
    /// What keys are derived from: for connection IDs, tokens and resets. The same in all processes of upgrades.
    pub(crate) secret: [u8; QUIC_SECRET_BYTES],
    /// The number of the process among those.
    pub(crate) generation: u8,
}

/// A listener of the plan.
pub struct Listener {
    /// TLS to clients, if the listener uses it.
    pub tls: Option<Arc<ServerSide>>,
    /// The port for redirects to https, if the listener redirects its requests.
    pub(crate) redirect_port: Option<u16>,
    /// Header lines to add to every response: Strict-Transport-Security, and Alt-Svc once the port is known.
    pub(crate) added: OnceLock<Vec<u8>>,
    /// What it answers to certificate authorities: without TLS, where certificates are automatic.
    pub(crate) challenges: Option<Arc<Challenges>>,
    /// Whether the listener accepts HTTP/2.
    pub(crate) http2: bool,
    /// Whether the listener accepts HTTP/3.
    pub(crate) http3: bool,
    /// Networks whose connections begin with a PROXY header.
    introducers: Vec<IpNet>,
    /// TLS that is passed on as it is, by the name that the client asks for.
    pub(crate) passthrough: Option<Arc<Passthrough>>,
    /// Whether a client's first message decides where its connection goes, or how it is secured.
    pub(crate) reads_client_hello: bool,
    /// For layer 4: the index and name of the upstream that connections are forwarded to.
    pub(crate) passes_on: Option<(usize, String)>,
    /// The bandwidth limits of bodies or forwarded bytes.
    pub(crate) limits: Option<Arc<Limits>>,
    /// The emulated network link of the clients.
    pub(crate) link: Option<Arc<Link>>,
    /// Where datagrams queue, to clients and from them.
    pub(crate) queues: [Option<Queue>; 2],
    /// Whether its clients are other instances.
    pub(crate) is_for_peers: bool,
}

/// What the secret of splits is handed over as; no upstream is called so.
pub(crate) const SPLITS: &str = "";

impl Plan {
    /// Loads certificates and compiles the configuration. Unchanged parts of `previous` are taken over; `names` are the
    /// names of the servers.
    ///
    /// # Errors
    /// Problems of certificates.
    pub fn new(
        config: Config,
        previous: Option<&Self>,
        now: Time,
        names: Names,
    ) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut listeners = Vec::with_capacity(config.listeners.len());
        let challenges = previous.map(|previous| Arc::clone(&previous.challenges)).unwrap_or_default();
        for listener in &config.listeners {
            match Listener::new(listener, &config, previous, &challenges) {
                Ok(listener) => listeners.push(Arc::new(listener)),
                Err(found) => problems.extend(found),
            }
        }
        let mut upstreams = Vec::with_capacity(config.upstreams.len());
        for upstream in &config.upstreams {
            let before = previous.and_then(|previous| previous.upstream(&upstream.name));
            match UpstreamPlan::new(upstream, before, now, &names) {
                Ok(upstream) => upstreams.push(upstream),
                Err(found) => problems.extend(found),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let table = Arc::new(Table::new(&config));
        let verifier = previous.map(|previous| Arc::clone(&previous.verifier)).unwrap_or_default();
        let kept_bytes = previous.map(|previous| Arc::clone(&previous.kept_bytes)).unwrap_or_default();
        let kept = previous.filter(|previous| stores(&previous.config) == stores(&config));
        let cache = match kept {
            Some(previous) => previous.cache.clone(),
            None => config.cache.as_ref().map(Cache::new),
        };
        let before = previous.map(|previous| (&previous.config, &previous.routes[..]));
        let split_secret = previous.map_or_else(routes::secret, |previous| previous.split_secret);
        let fresh = || QuicProcessKeys { secret: routes::secret(), generation: 0 };
        let quic = previous.map_or_else(fresh, |previous| previous.quic);
        let mut routes = routes::routes(&config, before, cache.as_ref().map(Cache::secret));
        routes.iter_mut().for_each(|route| route.sign_splits(&split_secret));
        let tracing = config.tracing.as_ref().map(|settings| {
            let kept = previous.and_then(|previous| previous.tracing.as_ref());
            let kept = kept.filter(|tracing| tracing.settings == *settings);
            kept.map_or_else(|| Arc::new(Tracing::new(settings)), Arc::clone)
        });
        let spaces = routes::spaces(&config, &routes);
        let trust = previous.map_or(0, |previous| {
            previous.trust + u64::from(previous.config.trusted_proxies != config.trusted_proxies)
        });
        Ok(Self {
            trust,
            tracing,
            cache,
            peers: Peers::new(&config),
            challenges,
            listeners,
            upstreams,
            routes,
            spaces,
            places: None,
            table,
            verifier,
            kept_bytes,
            split_secret,
            quic,
            names,
            config,
        })
    }

    /// Takes over the state of the previous process. For the first plan, before anybody else uses it.
    pub fn inherit(&mut self, handover_state: &HandoverState, now: Time) {
        for (listener, configured) in self.listeners.iter().zip(&self.config.listeners) {
            let keys = handover_state.ticket_keys(&configured.address.to_string());
            if let Some((tls, keys)) = listener.tls.as_ref().zip(keys) {
                // Keys for other clients than it lets in now are left: these begin anew.
                tls.adopt_ticket_keys(&keys);
            }
        }
        for upstream in self.upstreams.iter_mut().filter_map(Arc::get_mut) {
            upstream.inherit(handover_state, now);
        }
        if let Some((secret, generation)) = handover_state.quic() {
            self.quic = QuicProcessKeys { secret, generation: generation.wrapping_add(1) };
        }
        if let Some(secret) = handover_state.cookie_secret(SPLITS) {
            self.split_secret = secret;
            self.routes.iter_mut().for_each(|route| route.sign_splits(&secret));
        }
    }

    /// Tells the plan the ports of its listeners, in their order, before anybody else uses it.
    pub fn know_ports(&self, ports: impl Iterator<Item = Option<u16>>) {
        for ((listener, configured), port) in self.listeners.iter().zip(&self.config.listeners).zip(ports) {
            let mut added = configured.hsts.as_ref().map(hsts_line).unwrap_or_default();
            if let Some(port) = port.filter(|_| listener.http3) {
                added.extend_from_slice(&alt_svc_line(port));
            }
            // Nobody has told it before.
            let _ = listener.added.set(added);
        }
    }

    /// The rate limits that instances share.
    pub fn shared_limits(&self) -> impl Iterator<Item = SharedLimit> {
        self.routes.iter().flat_map(Route::shared_limits)
    }

    /// Decisions of authentication servers that instances share.
    pub fn shared_decisions(&self) -> impl Iterator<Item = &Arc<Elsewhere>> {
        self.routes.iter().filter_map(Route::shared_decisions)
    }

    /// Sessions that instances share: their tables, and how they are shared.
    pub fn shared_sessions(&self) -> impl Iterator<Item = (&Sessions, &SharedSessions)> {
        self.upstreams.iter().filter_map(|upstream| upstream.stickiness.as_deref()?.shared())
    }

    /// The number of the process among those of upgrades.
    pub fn quic_generation(&self) -> u8 {
        self.quic.generation
    }

    /// The upstream of this name.
    fn upstream(&self, name: &str) -> Option<&Arc<UpstreamPlan>> {
        self.upstreams.iter().find(|upstream| upstream.config.name == name)
    }

    /// The listener of this name.
    fn listener(&self, name: &str) -> Option<&Arc<Listener>> {
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
            // Those of an upstream follow one another.
            if found.last().is_none_or(|last| !Arc::ptr_eq(last, tls)) {
                found.push(tls);
            }
        }
        found
    }
}

impl Listener {
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
            link: None,
            queues: [None, None],
            is_for_peers: false,
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
    ) -> Result<Self, Vec<Problem>> {
        // The keys of tickets and what is remembered of sessions belong to it.
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
        let answers = listener.tls.is_none() && listener.tcp.is_none() && has_automatic(config);
        let before = previous.and_then(|plan| plan.listener(&listener.name));
        let passthrough = Passthrough::new(listener, config).map(Arc::new);
        let has_rules = tls.as_ref().is_some_and(|tls| tls.has_rules_by_name());
        Ok(Self {
            reads_client_hello: passthrough.is_some() || has_rules,
            passthrough,
            tls,
            redirect_port: listener.redirect_to_https.then(|| https_port(config)),
            added: OnceLock::new(),
            challenges: answers.then(|| Arc::clone(challenges)),
            http2: listener.http2,
            http3: listener.http3,
            introducers: listener.proxy_protocol.clone(),
            link: Link::new(&listener.link, before.and_then(|before| before.link.as_ref())),
            queues: [listener.datagram_rates.down, listener.datagram_rates.up]
                .map(|rate| rate.map(Queue::new)),
            is_for_peers: listener.is_for_peers,
            limits: Limits::new(&listener.bandwidths, before.and_then(|before| before.limits.as_ref())),
            passes_on: listener.tcp.map(|upstream| (upstream, config.upstreams[upstream].name.clone())),
        })
    }
}

/// Whether any listener has automatic certificates.
fn has_automatic(config: &Config) -> bool {
    let is_automatic = |tls: &ListenerTls| matches!(tls.certificates, Certificates::Automatic { .. });
    config.listeners.iter().filter_map(|listener| listener.tls.as_ref()).any(is_automatic)
}

/// Where it is stored: what is stored is kept for as long as this does not change. How much is for `Cache::follow`.
fn stores(config: &Config) -> Option<Option<&CacheDisk>> {
    Some(config.cache.as_ref()?.disk.as_ref())
}

/// Where https is spoken: at its own port if anywhere there, else at the first listener's that has TLS.
fn https_port(config: &Config) -> u16 {
    const HTTPS: u16 = 443;
    let mut ports = config.listeners.iter().filter(|listener| listener.tls.is_some());
    let first = ports.next().and_then(|listener| listener.address.port()).unwrap_or(HTTPS);
    if ports.any(|listener| listener.address.port() == Some(HTTPS)) { HTTPS } else { first }
}

/// RFC 7838 §3, RFC 9114 §3.1.1: for a day, the default.
fn alt_svc_line(port: u16) -> Vec<u8> {
    format!("Alt-Svc: h3=\":{port}\"; ma=86400\r\n").into_bytes()
}

/// RFC 6797 §6.1.
fn hsts_line(hsts: &Hsts) -> Vec<u8> {
    format!("Strict-Transport-Security: {}\r\n", hsts.header_value()).into_bytes()
}
