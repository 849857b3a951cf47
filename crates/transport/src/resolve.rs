//! DNS resolution of server names and services, repeated when records expire. Runs on the control thread. Services of Consul are
//! handed over to whoever asks it.
//!
//! A name that fails to resolve keeps its previous addresses. How the plan changes with addresses is decided elsewhere.

/// Servers of a service.
mod service;

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, Weak, mpsc as blocking};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use config::{CatalogService, Config, Consul, ServerHost};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
pub use service::{Target, is_host, with_addresses};
use telemetry::message;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, watch as life};
use tokio::task::JoinSet;

/// How long a configuration change waits for the first addresses of new names.
pub const RESOLVE_FIRST: Duration = Duration::from_secs(5);

/// The minimum time that a record is kept, even if its TTL is shorter.
pub const TTL_MIN: Duration = Duration::from_secs(1);
/// And for at most this long.
const TTL_MAX: Duration = Duration::from_secs(300);
/// After a failure the next attempt comes after this, then twice that, and so on.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Addresses of one name that count; those beyond are left out.
const ADDRESSES_MAX: usize = 256;

/// A server name and its addresses, or a service and its servers. It is resolved again for as long as a plan uses it.
pub struct Name {
    host: ServerHost,
    /// Where a service of a catalog is asked for.
    consul: Option<Arc<Consul>>,
    found: ArcSwap<Found>,
    /// Why the last look-up came to nothing.
    trouble: ArcSwapOption<String>,
    /// Ends with the name, for who waits for something else meanwhile.
    life: life::Sender<()>,
}

/// What was found last; empty until something is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The addresses of a name as its records came, but those of IPv4 first.
    Addresses(Vec<IpAddr>),
    /// The servers of a service, in the order of their priorities. Empty also where its record says that it is not available.
    Targets(Vec<Target>),
}

/// The server names and services of a configuration, without duplicates.
#[derive(Clone, Default)]
pub struct Names(HashMap<ServerHost, Arc<Name>>);

/// Names to resolve and watch from now on.
pub struct Wanted {
    /// The names, without duplicates.
    pub names: Vec<Arc<Name>>,
    /// Dropped once every name has been looked up for the first time.
    pub first: blocking::Sender<()>,
}

impl Names {
    /// The names of `config`, and those among them that `before` does not have.
    pub fn of(config: &Config, before: Option<&Self>) -> (Self, Vec<Arc<Name>>) {
        let mut names = Self::default();
        let mut wanted = Vec::new();
        let consul = Arc::new(config.consul.clone());
        for server in config.upstreams.iter().flat_map(|upstream| &upstream.servers) {
            let Some(new) = Name::of(&server.host, &consul) else { continue };
            if names.0.contains_key(&server.host) {
                continue;
            }
            let known = before.and_then(|before| before.0.get(&server.host)).cloned();
            // A service that another agent is asked for from now on keeps what is known of it until then.
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

    /// The names without addresses, and services without servers, as texts that say why.
    pub fn unresolved(&self) -> Vec<String> {
        let unresolved = self.0.values().filter(|name| name.found.load().is_empty());
        let reason = |name: &Arc<Name>| match &*name.trouble.load() {
            Some(trouble) => String::clone(trouble),
            None => format!("cannot resolve {}: no answer yet", name.host),
        };
        let mut reasons: Vec<String> = unresolved.map(reason).collect();
        reasons.sort();
        reasons
    }

    /// Why services of a catalog are not what it says by now, as sentences.
    pub fn catalog_troubles(&self) -> Vec<String> {
        let of_catalog = self.0.values().filter(|name| name.consul.is_some());
        let troubles = of_catalog.filter_map(|name| Some(String::clone(&*name.trouble.load_full()?)));
        let mut troubles: Vec<String> = troubles.collect();
        troubles.sort();
        troubles
    }

    /// What was found of a host last; `None` if it is none that is looked up.
    pub fn found(&self, host: &ServerHost) -> Option<Arc<Found>> {
        Some(self.0.get(host)?.found.load_full())
    }

    /// Sets what was found of a host. For tests.
    pub fn set(&self, host: &ServerHost, found: Found) {
        self.0[host].found.store(Arc::new(found));
    }
}

impl Found {
    fn is_empty(&self) -> bool {
        match self {
            Self::Addresses(addresses) => addresses.is_empty(),
            Self::Targets(targets) => targets.is_empty(),
        }
    }
}

/// Resolves all names that arrive on `wanted`, and watches them; notifies `changed` of new addresses. `of_catalog` gets the
/// services of a catalog, with what is dropped once it has been asked for the first time.
pub async fn watch(
    mut wanted: UnboundedReceiver<Wanted>,
    mut resolver: Maker,
    changed: Rc<Notify>,
    of_catalog: impl Fn(&Arc<Name>, blocking::Sender<()>),
) {
    let mut made = None;
    while let Some(Wanted { names, first }) = wanted.recv().await {
        for name in names {
            if name.consul.is_some() {
                of_catalog(&name, first.clone());
                continue;
            }
            if made.is_none() {
                made = resolver();
            }
            let Some(resolver) = &made else { continue };
            let lookups =
                watch_name(resolver.clone(), Arc::downgrade(&name), first.clone(), Rc::clone(&changed));
            tokio::task::spawn_local(lookups);
        }
    }
}

/// Creates a resolver when the first name needs one.
pub type Maker = Box<dyn FnMut() -> Option<TokioResolver> + Send>;

/// A resolver with the machine's settings. Without settings, it only reads the hosts file.
pub fn resolver() -> Option<TokioResolver> {
    let builder = TokioResolver::builder_tokio().unwrap_or_else(|error| {
        message::warn(&format!("no name servers: {error}; names are resolved only with the hosts file"));
        let none = ResolverConfig::from_parts(None, Vec::new(), Vec::new());
        TokioResolver::builder_with_config(none, TokioRuntimeProvider::default())
    });
    let mut builder = builder;
    let options = builder.options_mut();
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    // A name that does not exist yet is not to be believed missing for a day.
    options.negative_max_ttl = Some(TTL_MIN);
    builder.build().map_err(|error| message::error(&format!("cannot resolve names: {error}"))).ok()
}

async fn watch_name(
    resolver: TokioResolver,
    name: Weak<Name>,
    first: blocking::Sender<()>,
    changed: Rc<Notify>,
) {
    let mut first = Some(first);
    let mut retry = RETRY_MIN;
    loop {
        // When it is in no plan any more, nobody waits for it.
        let Some(name) = name.upgrade() else { return };
        let wait = match name.look_up(&resolver).await {
            Ok((news, holds)) => {
                name.trouble.store(None);
                if news == News::Some {
                    changed.notify_one();
                }
                retry = RETRY_MIN;
                holds
            }
            Err(reason) => {
                message::warn(&reason);
                name.trouble.store(Some(Arc::new(reason)));
                let wait = retry;
                retry = (retry * 2).min(RETRY_MAX);
                wait
            }
        };
        // Whoever waits for the first answer has waited enough.
        drop((name, first.take()));
        tokio::time::sleep(wait).await;
    }
}

/// Looks up each host once, all at the same time. Returns those without an address, and services without records, with the
/// reasons.
///
/// # Errors
/// If the runtime for the look-ups cannot be created.
pub fn unresolved(hosts: Vec<ServerHost>) -> io::Result<Vec<(ServerHost, String)>> {
    let look_up = async {
        let Some(resolver) = resolver() else { return Vec::new() };
        let mut lookups = JoinSet::new();
        for host in hosts {
            let Some(name) = Name::of(&host, &Arc::default()) else { continue };
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

/// Why a name could not be resolved; `none` says that it has no records of the kind that was asked for.
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

/// Whether a look-up found other addresses than the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// The same addresses as before.
    None,
    /// Other addresses than before.
    Some,
}

impl Name {
    /// A name that was not looked up yet.
    pub fn new(text: &str) -> Self {
        Self::finding(ServerHost::Name(text.to_owned()), Found::Addresses(Vec::new()))
    }

    /// What has to be looked up of a host, if anything has.
    fn of(host: &ServerHost, consul: &Arc<Consul>) -> Option<Self> {
        match host {
            ServerHost::Name(text) => Some(Self::new(text)),
            ServerHost::Service(_) => Some(Self::finding(host.clone(), Found::Targets(Vec::new()))),
            ServerHost::Catalog(_) => Some(Self {
                consul: Some(Arc::clone(consul)),
                ..Self::finding(host.clone(), Found::Targets(Vec::new()))
            }),
            ServerHost::Address(_) | ServerHost::Unix(_) => None,
        }
    }

    fn finding(host: ServerHost, nothing: Found) -> Self {
        let found = ArcSwap::from_pointee(nothing);
        Self { host, consul: None, found, trouble: ArcSwapOption::empty(), life: life::Sender::new(()) }
    }

    /// The service of a catalog that it is, and where that is asked for.
    pub fn of_catalog(&self) -> Option<(&CatalogService, &Arc<Consul>)> {
        match (&self.host, &self.consul) {
            (ServerHost::Catalog(service), Some(consul)) => Some((service, consul)),
            _ => None,
        }
    }

    /// Tells, by an error of `changed`, when no plan has the name any more.
    pub fn end(&self) -> life::Receiver<()> {
        self.life.subscribe()
    }

    /// The servers of a service; empty until they are known, and for a name.
    pub fn targets(&self) -> Vec<Target> {
        match &**self.found.load() {
            Found::Addresses(_) => Vec::new(),
            Found::Targets(targets) => targets.clone(),
        }
    }

    /// Takes servers of a service, in an order that depends on nothing else. Returns whether they are others than before.
    pub fn take(&self, targets: Vec<Target>) -> News {
        self.put(Found::Targets(service::in_order(&self.host, targets)))
    }

    /// Takes the reason why nothing is known, or not what is so by now.
    pub fn note(&self, trouble: Option<String>) {
        self.trouble.store(trouble.map(Arc::new));
    }

    fn put(&self, found: Found) -> News {
        if **self.found.load() == found {
            return News::None;
        }
        self.found.store(Arc::new(found));
        News::Some
    }

    /// The addresses; empty until it is resolved, and for a service.
    pub fn addresses(&self) -> Vec<IpAddr> {
        match &**self.found.load() {
            Found::Addresses(addresses) => addresses.clone(),
            Found::Targets(_) => Vec::new(),
        }
    }

    /// Resolves the name once. Returns whether something else was found than before, and how long that is valid.
    ///
    /// # Errors
    /// A description, if the name has no address, or the service no records.
    pub async fn look_up(&self, resolver: &TokioResolver) -> Result<(News, Duration), String> {
        let (news, until) = match &self.host {
            ServerHost::Name(text) => {
                let (addresses, until) = addresses_of(text, resolver).await?;
                (self.put(Found::Addresses(addresses)), until)
            }
            ServerHost::Service(text) => {
                let (targets, until) = service::look_up(text, &self.targets(), resolver).await?;
                (self.take(targets), until)
            }
            ServerHost::Address(_) | ServerHost::Catalog(_) | ServerHost::Unix(_) => {
                return Err(format!("{} is not in DNS", self.host));
            }
        };
        let ttl = until.saturating_duration_since(Instant::now());
        Ok((news, ttl.clamp(TTL_MIN, TTL_MAX)))
    }
}

/// Looks up the addresses of a name: at least one, those of IPv4 first, and until when they hold.
async fn addresses_of(name: &str, resolver: &TokioResolver) -> Result<(Vec<IpAddr>, Instant), String> {
    let lookup = resolver.lookup_ip(name).await;
    let lookup =
        lookup.map_err(|error| format!("cannot resolve {name}: {}", reason(&error, "it has no address")))?;
    let mut found: Vec<_> = lookup.iter().collect();
    // A host without a route to IPv6 would wait for every connection.
    found.sort_by_key(IpAddr::is_ipv6);
    if found.is_empty() {
        return Err(format!("{name} has no address"));
    }
    if found.len() > ADDRESSES_MAX {
        let count = found.len();
        message::warn(&format!("{name} has {count} addresses; only {ADDRESSES_MAX} are used"));
        // Always the same ones.
        found.sort_by_key(|address| (address.is_ipv6(), *address));
        found.truncate(ADDRESSES_MAX);
    }
    Ok((found, lookup.valid_until()))
}
