//! Upstreams as all workers share them: who their servers are, how each stands, what is spoken with it.
//!
//! What a change of the configuration leaves as it was is taken over from the plan before: a worker's pool belongs to a
//! `ServerPlan`, and so lives for as long as that is passed on.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use balance::{Changes, Event, Fleet, Member, RetryReserve, ServerId, Standing, Time};
use config::{Scheme, Server, Upstream};
use tls::{ClientSide, Problem};

use crate::control::notice;
use crate::resolve::{self, Watched};

/// The addresses of a server; the control thread exchanges them as names are resolved again.
pub(crate) type Addresses = Arc<ArcSwap<Vec<SocketAddr>>>;

/// An upstream.
pub(crate) struct UpstreamPlan {
    pub(crate) config: Upstream,
    /// How its servers stand, in the order of `servers`.
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) servers: Vec<Arc<ServerPlan>>,
    /// Retries that are allowed however few the requests are.
    pub(crate) reserve: Arc<RetryReserve>,
    /// Whether somebody wants to know how long answers take.
    pub(crate) is_timed: bool,
}

/// One of its servers.
pub(crate) struct ServerPlan {
    pub(crate) config: Server,
    /// `host:port`, as Host and in the log.
    pub(crate) authority: String,
    /// The upstream's TLS, and the index of this server in it.
    pub(crate) tls: Option<(Arc<ClientSide>, usize)>,
    pub(crate) addresses: Addresses,
}

impl UpstreamPlan {
    /// The upstream as it is configured now. Of the one that had its name before, `previous`, everything is kept that
    /// has not changed.
    ///
    /// # Errors
    /// What is wrong with its certificates.
    pub(crate) fn new(
        config: &Upstream,
        previous: Option<&Arc<Self>>,
        now: Time,
        watched: &mut Vec<Watched>,
    ) -> Result<Arc<Self>, Vec<Problem>> {
        if let Some(previous) = previous.filter(|previous| previous.config == *config) {
            return Ok(Arc::clone(previous));
        }
        let tls = ClientSide::load(config)?.map(Arc::new);
        let changes = match previous {
            Some(previous) => Arc::clone(previous.fleet.members()[0].standing.changes()),
            None => Arc::<Changes>::default(),
        };
        let mut servers = Vec::with_capacity(config.servers.len());
        let mut members = Vec::with_capacity(config.servers.len());
        for (index, server) in config.servers.iter().enumerate() {
            let id = server_id(config, index);
            let known = previous.and_then(|previous| {
                let place = previous.fleet.index_of(id)?;
                Some((previous, place))
            });
            let standing = match known {
                Some((previous, place)) => Arc::clone(&previous.fleet.members()[place].standing),
                None if previous.is_some() => Standing::joining(&changes, now),
                None => Standing::new(&changes),
            };
            members.push(Member::new(id, server.weight, &standing));
            let same = known.filter(|(previous, place)| is_reached_alike(previous, *place, config, server));
            servers.push(match same {
                Some((previous, place)) => Arc::clone(&previous.servers[place]),
                None => Arc::new(ServerPlan::new(config, index, tls.as_ref(), watched)),
            });
        }
        let fleet = Arc::new(Fleet::new(config.balance, members, config.settings));
        let reserve = previous.map(|previous| Arc::clone(&previous.reserve)).unwrap_or_default();
        let is_timed = fleet.measures() || servers.len() > 1;
        Ok(Arc::new(Self { config: config.clone(), fleet, servers, reserve, is_timed }))
    }
}

impl UpstreamPlan {
    /// Tells the operator what the end of a request has changed about a server.
    #[cold]
    pub(crate) fn tell(&self, server: usize, event: Event, now: Time) {
        let what = match event {
            Event::Ejected(until) => {
                format!("left out for {:?}: its answers fail", until.since(now))
            }
            Event::CircuitOpened(until) => format!("its circuit is open for {:?}", until.since(now)),
            Event::CircuitClosed => "its circuit is closed again".to_owned(),
        };
        let Self { config, servers, .. } = self;
        notice(&format!("upstream {}, server {}: {what}", config.name, servers[server].authority));
    }
}

/// What a server is called over reloads: its URL, and how many of the same precede it.
fn server_id(upstream: &Upstream, index: usize) -> ServerId {
    let url = upstream.servers[index].to_string();
    match upstream.servers[..index].iter().filter(|server| server.to_string() == url).count() {
        0 => ServerId::of(&url),
        repeated => ServerId::of(&format!("{url}#{repeated}")),
    }
}

/// Whether connections to a server of the plan before are as good as new ones.
fn is_reached_alike(previous: &UpstreamPlan, place: usize, config: &Upstream, server: &Server) -> bool {
    let before = &previous.servers[place].config;
    let is_same_tls = server.scheme == Scheme::Http || previous.config.tls == config.tls;
    (before.scheme, &before.host, before.port) == (server.scheme, &server.host, server.port)
        && previous.config.protocol == config.protocol
        && is_same_tls
}

impl ServerPlan {
    fn new(
        upstream: &Upstream,
        index: usize,
        tls: Option<&Arc<ClientSide>>,
        watched: &mut Vec<Watched>,
    ) -> Self {
        let server = &upstream.servers[index];
        Self {
            authority: server.authority(),
            tls: tls.filter(|_| server.scheme == Scheme::Https).map(|tls| (Arc::clone(tls), index)),
            addresses: resolve::addresses(server, watched),
            config: server.clone(),
        }
    }
}
