//! The instances that share a cache: which of them this one is, and the numbers that identify routes and upstreams.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use balance::{HashSecret, Pick, PickInput, Picker, Time};
use cache::{CacheKey, KeySecret};
use config::{CachePeers, Config, Server};
use transport::deadline::Ticks;

use crate::context::plan::UpstreamPlan;

pub(crate) struct Peers {
    /// Index of the upstream whose servers they are.
    pub(crate) upstream: usize,
    /// How long an instance may be silent.
    pub(crate) timeout: Ticks,
    /// From this number of requests on, a response is kept that another instance owns.
    pub(crate) hot_requests: u32,
    pub(crate) hot_bytes_max: u64,
    /// A name that each instance's certificate must have.
    pub(crate) name: Option<String>,
    /// This instance, as the others reach it.
    own: Server,
    /// Route and upstream, by number.
    ways: HashMap<u128, Way>,
    /// The number of each route and upstream.
    numbers: HashMap<Way, u128>,
}

/// Indices of route and upstream.
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
            // Divided first, so that the product cannot overflow.
            hot_bytes_max: store.memory_bytes / 100 * u64::from(settings.hot_percent),
            name: settings.name.clone(),
            own: settings.address.clone(),
            ways: numbers.iter().map(|(way, number)| (*number, *way)).collect(),
            numbers,
        })
    }

    /// Returns the number by which other instances know this route and upstream.
    pub(crate) fn number(&self, route: usize, upstream: usize) -> Option<u128> {
        self.numbers.get(&(route, upstream)).copied()
    }

    /// Returns the route and the upstream with this number, if they are configured equally here.
    pub(crate) fn way(&self, number: u128) -> Option<(usize, usize)> {
        self.ways.get(&number).copied()
    }

    /// Whether a server of the upstream is this instance.
    pub(crate) fn is_own(&self, upstream: &UpstreamPlan, server: usize) -> bool {
        let Server { host, port, .. } = &upstream.servers[server].config;
        (host, port) == (&self.own.host, &self.own.port)
    }

    /// Returns which server owns a key, for operators.
    pub(crate) fn owner_of(&self, plan: &UpstreamPlan, key: CacheKey) -> Option<usize> {
        let wanted = PickInput { now: Time::START, random: 0, key: Some(key.as_u128() as u64), tried: &[] };
        match Picker::new(Arc::clone(&plan.fleet), 0).pick(&wanted) {
            Pick::Server(server) => Some(server),
            Pick::Full | Pick::None => None,
        }
    }

    /// The secret by which keys are hashed to find their owner: equal on all instances.
    pub(crate) fn secret(&self, number: u128) -> KeySecret {
        // Without a random part, because all instances must find the same owner.
        KeySecret::default().of_space(&number.to_le_bytes())
    }
}

/// Lists all routes and upstreams with their numbers. The numbers depend on the settings: an instance with other
/// settings may store responses that are not meant for this one's clients.
fn ways(config: &Config) -> impl Iterator<Item = (Way, u128)> {
    config.routes.iter().enumerate().flat_map(move |(place, route)| {
        let upstreams = route.cache.iter().flat_map(|_| route.action.upstreams());
        upstreams.map(move |upstream| {
            let mut text = String::new();
            let (name, to, policy) = (&route.name, &config.upstreams[upstream].name, &route.cache);
            // Writing into a string cannot fail.
            let _ = write!(text, "{name:?} {to:?} {policy:?}");
            ((place, upstream), HashSecret::default().hash_wide(text.as_bytes()))
        })
    })
}
