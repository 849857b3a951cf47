//! DNS resolution of server names and services, repeated when records expire. Runs on the control thread. Services of
//! Consul are handed over to the module that queries it.
//!
//! A name that fails to resolve keeps its previous addresses. Other code decides how the plan changes with addresses.

/// Servers of a service, from its SRV records.
mod service;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, Weak, mpsc as blocking};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::{ArcSwap, ArcSwapOption};
use config::{CatalogService, Config, Consul, ServerHost};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::RecordType;
use service::KnownService;
pub use service::{ServiceTarget, is_host, with_addresses};
use telemetry::message;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, watch as life};
use tokio::task::JoinSet;

/// How long a configuration change waits for the first addresses of new names.
pub const RESOLVE_FIRST: Duration = Duration::from_secs(5);

/// The minimum time that a record is kept, even if its TTL is shorter.
pub const TTL_MIN: Duration = Duration::from_secs(1);
/// The maximum time that a record is kept.
// A record with a TTL of days would keep a server that has moved.
const TTL_MAX: Duration = Duration::from_secs(300);
/// Delay of the first retry after a failure. It doubles with each retry.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Addresses of one name that are used; further ones are ignored.
const ADDRESSES_MAX: usize = 256;

/// A server name and its addresses, or a service and its servers. It is resolved again as long as a plan uses it.
pub struct ResolvedName {
    host: ServerHost,
    /// The Consul agent that knows the service, if it is a service of a catalog.
    consul: Option<Arc<Consul>>,
    found: ArcSwap<Resolved>,
    /// Why the last lookup failed or was incomplete.
    trouble: ArcSwapOption<Trouble>,
    /// Closes when the name is dropped, to end waits for other events.
    life: life::Sender<()>,
}

/// Why the addresses of a name are missing or outdated.
#[derive(Debug, Clone)]
pub struct Trouble {
    /// A sentence.
    pub why: String,
    /// When it began, in seconds since 1970.
    pub since: u64,
    /// When it began, on the monotonic clock.
    began: Instant,
    /// Whether the source gave no usable answer. If false, its answer itself is the trouble.
    pub is_failure: bool,
}

/// The source of a name's servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerSource {
    /// Address records.
    Dns,
    Srv,
    Consul,
}

impl ServerSource {
    /// The label in metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Srv => "srv",
            Self::Consul => "consul",
        }
    }
}

/// The result of the last successful lookup; empty before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved {
    /// The addresses of a name in the order of its records, but IPv4 first.
    Addresses(Vec<IpAddr>),
    /// The servers of a service, in the order of their priorities. Empty also if its record says that the service is
    /// not available.
    Targets(Vec<ServiceTarget>),
}

/// The server names and services of a configuration, without duplicates.
#[derive(Clone, Default)]
pub struct ServerNames(HashMap<ServerHost, Arc<ResolvedName>>);

/// Names to resolve and watch from now on.
pub struct WantedNames {
    /// The names, without duplicates.
    pub names: Vec<Arc<ResolvedName>>,
    /// Dropped once every name has been looked up for the first time.
    pub first: blocking::Sender<()>,
}

impl ServerNames {
    /// The names of `config`, and those among them that `before` lacks.
    pub fn from_config(config: &Config, before: Option<&Self>) -> (Self, Vec<Arc<ResolvedName>>) {
        let mut names = Self::default();
        let mut wanted = Vec::new();
        let consul = Arc::new(config.consul.clone());
        for server in config.upstreams.iter().flat_map(|upstream| &upstream.servers) {
            let Some(new) = ResolvedName::from_host(&server.host, &consul) else { continue };
            // A single lookup for all servers with this name.
            if names.0.contains_key(&server.host) {
                continue;
            }
            let known = before.and_then(|before| before.0.get(&server.host)).cloned();
            // A service that moves to another agent keeps its servers until that agent answers.
            let moved = known.as_ref().filter(|known| known.consul != new.consul);
            if let Some(moved) = moved {
                new.found.store(moved.found.load_full());
            }
            let name = known.filter(|known| known.consul == new.consul).unwrap_or_else(|| {
                wanted.push(Arc::new(new));
                Arc::clone(&wanted[wanted.len() - 1])
            });
            names.0.insert(server.host.clone(), name);
        }
        (names, wanted)
    }

    /// Names without addresses, and services without servers, with the reasons.
    pub fn unresolved(&self) -> Vec<String> {
        let unresolved = self.0.values().filter(|name| name.found.load().is_empty());
        let reason = |name: &Arc<ResolvedName>| match &*name.trouble.load() {
            Some(trouble) => trouble.why.clone(),
            None => format!("cannot resolve {}: no answer yet", name.host),
        };
        let mut reasons: Vec<String> = unresolved.map(reason).collect();
        reasons.sort();
        reasons
    }

    /// Each source in use, with the troubles of its names, sorted by their sentences.
    pub fn troubles(&self) -> BTreeMap<ServerSource, Vec<Arc<Trouble>>> {
        let mut sources: BTreeMap<ServerSource, Vec<Arc<Trouble>>> = BTreeMap::new();
        for name in self.0.values() {
            sources.entry(name.source()).or_default().extend(name.trouble.load_full());
        }
        sources.values_mut().for_each(|troubles| troubles.sort_by(|one, other| one.why.cmp(&other.why)));
        sources
    }

    /// The last result for a host. `None` if the host is not looked up.
    pub fn found(&self, host: &ServerHost) -> Option<Arc<Resolved>> {
        Some(self.0.get(host)?.found.load_full())
    }

    /// Sets the result for a host. For tests.
    pub fn set(&self, host: &ServerHost, found: Resolved) {
        self.0[host].found.store(Arc::new(found));
    }
}

impl Resolved {
    fn is_empty(&self) -> bool {
        match self {
            Self::Addresses(addresses) => addresses.is_empty(),
            Self::Targets(targets) => targets.is_empty(),
        }
    }
}

/// Resolves all names that arrive on `wanted`, and watches them. Notifies `changed` of new addresses. Sends the
/// services of a catalog to `of_catalog`, each with a guard to drop after its first query.
pub async fn watch(
    mut wanted: UnboundedReceiver<WantedNames>,
    mut resolver: Maker,
    changed: Rc<Notify>,
    of_catalog: impl Fn(&Arc<ResolvedName>, blocking::Sender<()>),
) {
    let mut made = None;
    while let Some(WantedNames { names, first }) = wanted.recv().await {
        for name in names {
            if name.consul.is_some() {
                of_catalog(&name, first.clone());
                continue;
            }
            if made.is_none() {
                // Only now, because a configuration without names needs no name server.
                made = resolver();
            }
            let Some(resolver) = &made else { continue };
            let lookups =
                // Weak, so that the lookups end with the last plan that has the name.
                watch_name(resolver.clone(), Arc::downgrade(&name), first.clone(), Rc::clone(&changed));
            tokio::task::spawn_local(lookups);
        }
    }
}

/// Creates a resolver when the first name needs one.
pub type Maker = Box<dyn FnMut() -> Option<TokioResolver> + Send>;

/// Creates a resolver with the machine's settings. Without settings, it only reads the hosts file.
pub fn resolver() -> Option<TokioResolver> {
    let builder = TokioResolver::builder_tokio().unwrap_or_else(|error| {
        message::warn(&format!("no name servers: {error}; names are resolved only with the hosts file"));
        let none = ResolverConfig::from_parts(None, Vec::new(), Vec::new());
        TokioResolver::builder_with_config(none, TokioRuntimeProvider::default())
    });
    let mut builder = builder;
    let options = builder.options_mut();
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    // A name that does not exist yet must not count as missing for a day.
    options.negative_max_ttl = Some(TTL_MIN);
    builder.build().map_err(|error| message::error(&format!("cannot resolve names: {error}"))).ok()
}

async fn watch_name(
    resolver: TokioResolver,
    name: Weak<ResolvedName>,
    first: blocking::Sender<()>,
    changed: Rc<Notify>,
) {
    let mut first = Some(first);
    let mut retry = RETRY_MIN;
    loop {
        // The name is in no plan any more.
        let Some(name) = name.upgrade() else { return };
        let wait = match name.look_up(&resolver).await {
            Ok(LookedUp { news, holds, remark }) => {
                if let Some(remark) = remark {
                    name.fail(remark);
                } else if let Some(past) = name.settle(None) {
                    let seconds = past.began.elapsed().as_secs();
                    message::info(&format!("{} is resolved again, after {seconds} s", name.host));
                }
                if news == News::Some {
                    changed.notify_one();
                }
                retry = RETRY_MIN;
                holds
            }
            Err(reason) => {
                let stays = if name.found.load().is_empty() { "" } else { "; its last servers stay" };
                name.fail(format!("{reason}{stays}"));
                let wait = retry;
                // Doubles, so that many names do not press a name server that is down.
                retry = (retry * 2).min(RETRY_MAX);
                wait
            }
        };
        // The first lookup is done: releases those who wait for it.
        drop((name, first.take()));
        tokio::time::sleep(wait).await;
    }
}

/// Looks up each host once, all at the same time. Returns hosts without an address, and services without records, with
/// the reasons.
///
/// # Errors
/// The runtime for the lookups cannot be created.
pub fn unresolved(hosts: Vec<ServerHost>) -> io::Result<Vec<(ServerHost, String)>> {
    let look_up = async {
        let Some(resolver) = resolver() else { return Vec::new() };
        let mut lookups = JoinSet::new();
        for host in hosts {
            let Some(name) = ResolvedName::from_host(&host, &Arc::default()) else { continue };
            let resolver = resolver.clone();
            lookups.spawn(async move {
                let looked_up = tokio::time::timeout(RESOLVE_FIRST, name.look_up(&resolver)).await;
                let late = || format!("cannot resolve {host}: no name server has answered in time");
                let reason = looked_up.unwrap_or_else(|_| Err(late())).err();
                reason.map(|reason| (host, reason))
            });
        }
        lookups.join_all().await.into_iter().flatten().collect()
    };
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(look_up))
}

/// Why a name could not be resolved. `none` is the text for a name without records of the requested type.
fn reason(error: &NetError, none: &str) -> String {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(found)) => match found.response_code {
            ResponseCode::NXDomain => "there is no such name".to_owned(),
            ResponseCode::NoError => none.to_owned(),
            code => format!("the name server answers \"{code}\""),
        },
        NetError::Dns(DnsError::ResponseCode(code)) => format!("the name server answers \"{code}\""),
        NetError::Timeout => "no name server has answered in time".to_owned(),
        NetError::NoConnections => "no name server can be reached".to_owned(),
        other => other.to_string(),
    }
}

/// Whether the error proves that there are no records of the requested type (RFC 2308).
fn is_none(error: &NetError) -> bool {
    let NetError::Dns(DnsError::NoRecordsFound(found)) = error else { return false };
    [ResponseCode::NXDomain, ResponseCode::NoError].contains(&found.response_code)
}

/// The result of a lookup.
#[derive(Debug)]
pub struct LookedUp {
    pub news: News,
    /// How long the result is valid.
    pub holds: Duration,
    /// A warning about a host that could not be resolved, while its old addresses stay.
    pub remark: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    None,
    Some,
}

impl ResolvedName {
    /// Creates a name that was not looked up yet.
    pub fn new(text: &str) -> Self {
        Self::finding(ServerHost::Name(text.to_owned()), Resolved::Addresses(Vec::new()))
    }

    /// Creates the name of a host that has to be looked up. `None` for other hosts.
    fn from_host(host: &ServerHost, consul: &Arc<Consul>) -> Option<Self> {
        match host {
            ServerHost::Name(text) => Some(Self::new(text)),
            ServerHost::Service(_) => Some(Self::finding(host.clone(), Resolved::Targets(Vec::new()))),
            ServerHost::Catalog(_) => Some(Self {
                consul: Some(Arc::clone(consul)),
                ..Self::finding(host.clone(), Resolved::Targets(Vec::new()))
            }),
            ServerHost::Address(_) | ServerHost::Unix(_) => None,
        }
    }

    fn finding(host: ServerHost, nothing: Resolved) -> Self {
        let found = ArcSwap::from_pointee(nothing);
        Self { host, consul: None, found, trouble: ArcSwapOption::empty(), life: life::Sender::new(()) }
    }

    /// The service of a catalog, and the agent that knows it.
    pub fn of_catalog(&self) -> Option<(&CatalogService, &Arc<Consul>)> {
        match (&self.host, &self.consul) {
            (ServerHost::Catalog(service), Some(consul)) => Some((service, consul)),
            _ => None,
        }
    }

    /// A receiver that fails with an error when no plan has the name any more.
    pub fn end(&self) -> life::Receiver<()> {
        self.life.subscribe()
    }

    /// The servers of a service. Empty until they are known, and for a name.
    pub fn targets(&self) -> Vec<ServiceTarget> {
        match &**self.found.load() {
            Resolved::Addresses(_) => Vec::new(),
            Resolved::Targets(targets) => targets.clone(),
        }
    }

    /// Stores the servers of a service in a fixed order. Returns whether they have changed.
    pub fn take(&self, targets: Vec<ServiceTarget>) -> News {
        self.put(Resolved::Targets(service::in_order(&self.host, targets)))
    }

    /// Stores why the source gives no usable answer, and logs it if the reason is new.
    pub fn fail(&self, why: String) {
        // Once per reason: a name server that is down would fill the log with each retry.
        if self.trouble.load().as_ref().is_none_or(|before| before.why != why) {
            message::warn(&why);
        }
        self.note(why, true);
    }

    /// Records that the source has answered, and what its answer lacks. Returns the previous trouble.
    pub fn settle(&self, lack: Option<String>) -> Option<Arc<Trouble>> {
        let past = self.trouble.load_full();
        match lack {
            Some(lack) => self.note(lack, false),
            None => self.trouble.store(None),
        }
        past
    }

    /// Stores a trouble. If there was one of the same kind, its start time remains, even if the reason differs.
    pub fn note(&self, why: String, is_failure: bool) {
        let past = self.trouble.load_full().filter(|past| past.is_failure == is_failure);
        let (since, began) = past.map_or_else(
            || (SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(), Instant::now()),
            |past| (past.since, past.began),
        );
        self.trouble.store(Some(Arc::new(Trouble { why, since, began, is_failure })));
    }

    fn source(&self) -> ServerSource {
        match (&self.host, &self.consul) {
            (_, Some(_)) => ServerSource::Consul,
            (ServerHost::Service(_), _) => ServerSource::Srv,
            _ => ServerSource::Dns,
        }
    }

    fn put(&self, found: Resolved) -> News {
        // An unchanged answer must not make a plan.
        if **self.found.load() == found {
            return News::None;
        }
        self.found.store(Arc::new(found));
        News::Some
    }

    /// The addresses. Empty until the name is resolved, and for a service.
    pub fn addresses(&self) -> Vec<IpAddr> {
        match &**self.found.load() {
            Resolved::Addresses(addresses) => addresses.clone(),
            Resolved::Targets(_) => Vec::new(),
        }
    }

    /// Resolves the name once.
    ///
    /// # Errors
    /// A description, if the name has no address, or the service no records.
    pub async fn look_up(&self, resolver: &TokioResolver) -> Result<LookedUp, String> {
        let (news, until, remark) = match &self.host {
            ServerHost::Name(text) => {
                let (mut addresses, until) = addresses_of(text, resolver).await?;
                let remark = keep_family(&mut addresses, &self.addresses(), text, resolver).await;
                (self.put(Resolved::Addresses(addresses)), until, remark)
            }
            ServerHost::Service(text) => {
                let KnownService { targets, until, remark } =
                    service::look_up(text, &self.targets(), resolver).await?;
                (self.take(targets), until, remark)
            }
            ServerHost::Address(_) | ServerHost::Catalog(_) | ServerHost::Unix(_) => {
                return Err(format!("{} is not in DNS", self.host));
            }
        };
        let ttl = until.saturating_duration_since(Instant::now());
        // A TTL of 0 must not cause one lookup after the other.
        Ok(LookedUp { news, holds: ttl.clamp(TTL_MIN, TTL_MAX), remark })
    }
}

/// Keeps the previous addresses of a family, unless its lookup proves that there are none: one of a name's two lookups
/// may fail. Returns whether it did.
async fn keep_family(
    addresses: &mut Vec<IpAddr>,
    before: &[IpAddr],
    name: &str,
    resolver: &TokioResolver,
) -> Option<String> {
    let mut remark = None;
    for (is_six, kind) in [(false, RecordType::A), (true, RecordType::AAAA)] {
        let is_lost = !addresses.iter().any(|address| address.is_ipv6() == is_six);
        let mut kept = before.iter().copied().filter(|address| address.is_ipv6() == is_six).peekable();
        if !is_lost || kept.peek().is_none() {
            continue;
        }
        // Looked up again, because the joint lookup does not show which family failed.
        if let Err(error) = resolver.lookup(name, kind).await
            && !is_none(&error)
        {
            let why = reason(&error, "it has no address");
            remark = Some(format!("cannot resolve {name} ({kind}): {why}; these addresses stay"));
            addresses.extend(kept);
        }
    }
    addresses.sort_by_key(IpAddr::is_ipv6);
    remark
}

/// Looks up the addresses of a name: at least one, IPv4 first, and until when they are valid.
async fn addresses_of(name: &str, resolver: &TokioResolver) -> Result<(Vec<IpAddr>, Instant), String> {
    let lookup = resolver.lookup_ip(name).await;
    let lookup =
        lookup.map_err(|error| format!("cannot resolve {name}: {}", reason(&error, "it has no address")))?;
    let mut found: Vec<_> = lookup.iter().collect();
    // A host without an IPv6 route would wait for every connection.
    found.sort_by_key(IpAddr::is_ipv6);
    if found.is_empty() {
        return Err(format!("{name} has no address"));
    }
    if found.len() > ADDRESSES_MAX {
        let count = found.len();
        message::warn(&format!("{name} has {count} addresses; only {ADDRESSES_MAX} are used"));
        // Always chooses the same addresses.
        found.sort_by_key(|address| (address.is_ipv6(), *address));
        found.truncate(ADDRESSES_MAX);
    }
    Ok((found, lookup.valid_until()))
}
