//! All proxies of a chaos proxy, by name: creates, changes and removes them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use shape::number_of;
use telemetry::Syntax;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::refusal::ApiRefusal;
use super::relay;
use super::toxics::{self, Toxics};
use super::traffic::{self, Labels, ProxyTraffic};

pub(super) const PROXIES_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct Proxies {
    seed: u64,
    by_name: BTreeMap<String, ChaosProxy>,
}

#[derive(Debug)]
struct ChaosProxy {
    name: String,
    /// The address as requested; its port may be 0.
    asked_listen: String,
    /// The address with the port that the kernel chose, once the proxy has listened.
    listen: String,
    upstream: String,
    toxics: watch::Sender<Toxics>,
    traffic: ProxyTraffic,
    /// Accepts and relays connections while the proxy is enabled.
    task: Option<JoinHandle<()>>,
}

#[derive(Deserialize)]
pub(super) struct ProxyRequest {
    name: Option<String>,
    listen: Option<String>,
    upstream: Option<String>,
    enabled: Option<bool>,
    /// Toxics for a new proxy. Changes ignore them, because clients send the ones that they once read.
    toxics: Option<Value>,
}

#[derive(Debug, Serialize)]
pub(super) struct ProxyDescription {
    name: String,
    listen: String,
    upstream: String,
    enabled: bool,
    toxics: Vec<toxics::ToxicDescription>,
}

#[derive(Debug)]
pub(super) struct PreparedProxy {
    proxy: ChaosProxy,
    is_enabled: bool,
}

impl PreparedProxy {
    fn new(asked: ProxyRequest) -> Result<Self, ApiRefusal> {
        let is_enabled = asked.enabled.unwrap_or(true);
        Ok(Self { proxy: ChaosProxy::new(asked)?, is_enabled })
    }

    /// Parses a list of proxies: each proxy, or the reason for its refusal.
    pub(super) fn list(asked: Vec<Value>) -> Vec<Result<Self, ApiRefusal>> {
        let mut names = BTreeSet::new();
        let mut read = |(index, asked): (usize, Value)| {
            let wanted = serde_json::from_value(asked).map_err(ApiRefusal::from).and_then(Self::new);
            let wanted = wanted.and_then(|wanted| match names.insert(wanted.proxy.name.clone()) {
                true => Ok(wanted),
                false => Err(ApiRefusal::Twice { name: wanted.proxy.name.clone() }),
            });
            wanted.map_err(|refusal| refusal.at("proxy", index))
        };
        asked.into_iter().enumerate().map(&mut read).collect()
    }
}

impl Proxies {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, by_name: BTreeMap::new() }
    }

    pub(super) fn told(&self) -> BTreeMap<&str, ProxyDescription> {
        self.by_name.iter().map(|(name, proxy)| (name.as_str(), proxy.told())).collect()
    }

    pub(super) fn told_of(&self, name: &str) -> Result<ProxyDescription, ApiRefusal> {
        self.by_name.get(name).map(ChaosProxy::told).ok_or(ApiRefusal::NoProxy)
    }

    pub(super) fn traffic(&self, syntax: Syntax) -> Vec<u8> {
        let mut proxies = Vec::new();
        for ChaosProxy { name, listen, upstream, traffic, .. } in self.by_name.values() {
            proxies.push((Labels { proxy: name, listener: listen, upstream }, traffic));
        }
        traffic::written(&proxies, syntax)
    }

    /// Creates a proxy; its name must be new.
    pub(super) async fn create(&mut self, asked: ProxyRequest) -> Result<ProxyDescription, ApiRefusal> {
        let PreparedProxy { proxy, is_enabled } = PreparedProxy::new(asked)?;
        if self.by_name.contains_key(&proxy.name) {
            return Err(ApiRefusal::ProxyExists);
        }
        self.insert(proxy, is_enabled).await
    }

    /// Creates proxies. An existing proxy of the same name is replaced if its addresses differ; otherwise it gets the
    /// given toxics. An invalid proxy prevents all. If an address cannot be listened on, earlier proxies stay.
    pub(super) async fn populate(
        &mut self,
        asked: Vec<Value>,
    ) -> (Vec<ProxyDescription>, Result<(), ApiRefusal>) {
        match PreparedProxy::list(asked).into_iter().collect() {
            Ok(wanted) => self.make(wanted).await,
            Err(refusal) => (Vec::new(), Err(refusal)),
        }
    }

    /// Creates parsed proxies, under the rules of [`populate`](Self::populate).
    pub(super) async fn make(
        &mut self,
        wanted: Vec<PreparedProxy>,
    ) -> (Vec<ProxyDescription>, Result<(), ApiRefusal>) {
        let mut told = Vec::new();
        for (index, PreparedProxy { proxy, is_enabled }) in wanted.into_iter().enumerate() {
            match self.replace(proxy, is_enabled).await {
                Ok(made) => told.push(made),
                Err(refusal) => return (told, Err(refusal.at("proxy", index))),
            }
        }
        (told, Ok(()))
    }

    async fn replace(&mut self, proxy: ChaosProxy, is_enabled: bool) -> Result<ProxyDescription, ApiRefusal> {
        if let Some(existing) = self.by_name.get_mut(&proxy.name) {
            if existing.listens_as(&proxy.asked_listen) && existing.upstream == proxy.upstream {
                let toxics = proxy.toxics.send_replace(Toxics::default());
                // Some clients always send a list, which is empty if they know no toxics.
                if !toxics.is_empty() {
                    existing.toxics.send_modify(|all| all.become_those(toxics));
                }
                return Ok(existing.told());
            }
            existing.stop().await;
        }
        self.insert(proxy, is_enabled).await
    }

    async fn insert(
        &mut self,
        mut proxy: ChaosProxy,
        is_enabled: bool,
    ) -> Result<ProxyDescription, ApiRefusal> {
        if self.by_name.len() >= PROXIES_MAX && !self.by_name.contains_key(&proxy.name) {
            return Err(ApiRefusal::TooMany { what: "proxies", most: PROXIES_MAX });
        }
        if is_enabled {
            proxy.start(self.seed).await?;
        }
        let told = proxy.told();
        self.by_name.insert(proxy.name.clone(), proxy);
        Ok(told)
    }

    /// Changes the given settings of a proxy. New addresses close its connections, new toxics do not.
    pub(super) async fn change(
        &mut self,
        name: &str,
        asked: ProxyRequest,
    ) -> Result<ProxyDescription, ApiRefusal> {
        let proxy = self.by_name.get_mut(name).ok_or(ApiRefusal::NoProxy)?;
        let is_enabled = asked.enabled.unwrap_or(proxy.is_enabled());
        let listen = asked.listen.filter(|listen| !proxy.listens_as(listen));
        let upstream = asked.upstream.filter(|upstream| *upstream != proxy.upstream);
        if listen.is_some() || upstream.is_some() || !is_enabled {
            proxy.stop().await;
        }
        if let Some(listen) = listen {
            proxy.listen.clone_from(&listen);
            proxy.asked_listen = listen;
            proxy.traffic = ProxyTraffic::default();
        }
        if let Some(upstream) = upstream {
            proxy.upstream = upstream;
            proxy.traffic = ProxyTraffic::default();
        }
        if is_enabled {
            proxy.start(self.seed).await?;
        }
        Ok(proxy.told())
    }

    pub(super) async fn remove(&mut self, name: &str) -> Result<(), ApiRefusal> {
        let mut proxy = self.by_name.remove(name).ok_or(ApiRefusal::NoProxy)?;
        proxy.stop().await;
        Ok(())
    }

    pub(super) async fn reset(&mut self) -> Result<(), ApiRefusal> {
        for proxy in self.by_name.values() {
            proxy.toxics.send_if_modified(Toxics::clear);
        }
        for proxy in self.by_name.values_mut() {
            proxy.start(self.seed).await?;
        }
        Ok(())
    }

    pub(super) fn toxics_of<T>(&self, name: &str, look: impl FnOnce(&Toxics) -> T) -> Result<T, ApiRefusal> {
        let proxy = self.by_name.get(name).ok_or(ApiRefusal::NoProxy)?;
        Ok(look(&proxy.toxics.borrow()))
    }

    /// Changes the toxics of a proxy. Its connections apply the change before they read further bytes.
    pub(super) fn change_toxics<T>(
        &self,
        name: &str,
        change: impl FnOnce(&mut Toxics) -> Result<T, ApiRefusal>,
    ) -> Result<T, ApiRefusal> {
        let proxy = self.by_name.get(name).ok_or(ApiRefusal::NoProxy)?;
        let mut outcome = None;
        proxy.toxics.send_if_modified(|toxics| outcome.insert(change(toxics)).is_ok());
        // `send_if_modified` runs the closure before it returns.
        outcome.unwrap_or(Err(ApiRefusal::NoToxic))
    }
}

impl ChaosProxy {
    /// Makes a proxy that is not enabled yet.
    fn new(asked: ProxyRequest) -> Result<Self, ApiRefusal> {
        let needed = |field: Option<String>, name: &'static str| {
            field.filter(|text| !text.is_empty()).ok_or(ApiRefusal::Missing(name))
        };
        let name = needed(asked.name, "name")?;
        let upstream = needed(asked.upstream, "upstream")?;
        let asked_listen = asked.listen.unwrap_or_default();
        let toxics = asked.toxics.map_or_else(|| Ok(Toxics::default()), Toxics::new)?;
        let (toxics, _) = watch::channel(toxics);
        Ok(Self {
            name,
            listen: asked_listen.clone(),
            asked_listen,
            upstream,
            toxics,
            traffic: ProxyTraffic::default(),
            task: None,
        })
    }

    fn is_enabled(&self) -> bool {
        self.task.is_some()
    }

    /// Whether the proxy listens on this address, or would if it were enabled.
    fn listens_as(&self, listen: &str) -> bool {
        self.listen == listen || self.asked_listen == listen
    }

    fn told(&self) -> ProxyDescription {
        ProxyDescription {
            name: self.name.clone(),
            listen: self.listen.clone(),
            upstream: self.upstream.clone(),
            enabled: self.is_enabled(),
            toxics: self.toxics.borrow().told(),
        }
    }

    /// Starts listening, if it is not enabled.
    async fn start(&mut self, seed: u64) -> Result<(), ApiRefusal> {
        if self.is_enabled() {
            return Ok(());
        }
        let refused =
            |error| ApiRefusal::Listen { name: self.name.clone(), listen: self.listen.clone(), error };
        let listener = listen(&self.listen).await.map_err(refused)?;
        // The proxy keeps the port that the kernel chose when it is enabled again.
        self.listen = listener.local_addr().map_err(refused)?.to_string();
        let source = relay::RelayContext {
            upstream: Arc::from(self.upstream.as_str()),
            toxics: self.toxics.subscribe(),
            traffic: self.traffic.clone(),
            seed,
            proxy: number_of(self.name.as_bytes()),
        };
        self.task = Some(tokio::spawn(relay::run(listener, source)));
        Ok(())
    }

    async fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            // The address is free only after the task has ended.
            let _ = task.await;
        }
    }
}

impl Drop for ChaosProxy {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

/// Listens on `HOST:PORT`. An empty host means all addresses of this machine; an empty text, also any port.
async fn listen(address: &str) -> io::Result<TcpListener> {
    let port = match address {
        "" => Some(0),
        address => address.strip_prefix(':').and_then(|port| port.parse().ok()),
    };
    match port {
        // A machine without IPv6 listens on IPv4 alone.
        Some(port) => {
            let (six, four) = (Ipv6Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED);
            TcpListener::bind(&[SocketAddr::from((six, port)), SocketAddr::from((four, port))][..]).await
        }
        None => TcpListener::bind(address).await,
    }
}
