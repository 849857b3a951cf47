//! The instances that share what they store: which of them this one is, and under which numbers they speak of routes.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use balance::{Ask, Pick, Picker, Secret, Time};
use cache::{Key, KeySecret};
use config::{CachePeers, Config, Server};
use transport::deadline::Ticks;

use crate::context::plan::UpstreamPlan;

/// The other instances, and this one.
pub(crate) struct Peers {
    /// The index of the upstream that they are.
    pub(crate) upstream: usize,
    /// How long one may be silent.
    pub(crate) timeout: Ticks,
    /// From so many requests on a response is kept that another instance owns, and how many bytes of such may be.
    pub(crate) hot_requests: u32,
    pub(crate) hot_bytes_max: u64,
    /// A name that the certificate of each must have.
    pub(crate) name: Option<String>,
    /// This one, as the others reach it.
    own: Server,
    /// What may be asked for, by number: route and upstream.
    ways: HashMap<u128, Way>,
    /// The number of each way.
    numbers: HashMap<Way, u128>,
}

/// Route and upstream, by index.
type Way = (usize, usize);

impl Peers {
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let store = config.cache.as_ref()?;
        let settings: &CachePeers = store.peers.as_ref()?;
        let upstream = config.peers()?;
        let numbers: HashMap<Way, u128> = ways(config).collect();
        Some(Self {
            upstream,
            timeout: settings.timeout.into(),
            hot_requests: settings.hot_requests,
            hot_bytes_max: store.memory_bytes / 100 * u64::from(settings.hot_percent),
            name: settings.name.clone(),
            own: settings.address.clone(),
            ways: numbers.iter().map(|(way, number)| (*number, *way)).collect(),
            numbers,
        })
    }

    /// The number under which other instances know this way.
    pub(crate) fn number(&self, route: usize, upstream: usize) -> Option<u128> {
        self.numbers.get(&(route, upstream)).copied()
    }

    /// The route and the upstream with this number, if they are configured alike here.
    pub(crate) fn way(&self, number: u128) -> Option<(usize, usize)> {
        self.ways.get(&number).copied()
    }

    /// Whether a server of the upstream is this instance.
    pub(crate) fn is_own(&self, upstream: &UpstreamPlan, server: usize) -> bool {
        let Server { host, port, .. } = &upstream.servers[server].config;
        (host, port) == (&self.own.host, &self.own.port)
    }

    /// Which server owns a key, for operators.
    pub(crate) fn owner_of(&self, plan: &UpstreamPlan, key: Key) -> Option<usize> {
        let wanted = Ask { now: Time::START, random: 0, key: Some(key.as_u128() as u64), tried: &[] };
        match Picker::new(Arc::clone(&plan.fleet), 0).pick(&wanted) {
            Pick::Server(server) => Some(server),
            Pick::Full | Pick::None => None,
        }
    }

    /// What keys are hashed with to find their owner: the same on all instances.
    pub(crate) fn secret(&self, number: u128) -> KeySecret {
        KeySecret::default().of_space(&number.to_le_bytes())
    }
}

/// All ways that may be asked for. Instances with other settings know them under other numbers: what one of them stores
/// may not be meant for the clients of another.
fn ways(config: &Config) -> impl Iterator<Item = (Way, u128)> {
    config.routes.iter().enumerate().flat_map(move |(place, route)| {
        let upstreams = route.cache.iter().flat_map(|_| route.action.upstreams());
        upstreams.map(move |upstream| {
            let mut text = String::new();
            let (name, to, policy) = (&route.name, &config.upstreams[upstream].name, &route.cache);
            // Writing into a text does not fail.
            let _ = write!(text, "{name:?} {to:?} {policy:?}");
            ((place, upstream), Secret::default().hash_wide(text.as_bytes()))
        })
    })
}
