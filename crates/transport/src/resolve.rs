//! DNS resolution of server names, repeated when records expire. Runs on the control thread.
//!
//! A name that fails to resolve keeps its previous addresses. How the plan changes with addresses is decided elsewhere.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, Weak, mpsc as blocking};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use config::{Config, ServerHost};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use telemetry::message;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
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

/// A server name and its addresses. It is resolved again for as long as a plan uses it.
pub struct Name {
    text: String,
    /// As its records came, but those of IPv4 first; empty until it is resolved.
    found: ArcSwap<Vec<IpAddr>>,
    /// Why the last look-up came to nothing.
    trouble: ArcSwapOption<String>,
}

/// The server names of a configuration, without duplicates.
#[derive(Clone, Default)]
pub struct Names(HashMap<String, Arc<Name>>);

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
        for server in config.upstreams.iter().flat_map(|upstream| &upstream.servers) {
            let ServerHost::Name(text) = &server.host else { continue };
            if names.0.contains_key(text) {
                continue;
            }
            let known = before.and_then(|before| before.0.get(text)).cloned();
            let name = known.unwrap_or_else(|| {
                wanted.push(Arc::new(Name::new(text)));
                Arc::clone(&wanted[wanted.len() - 1])
            });
            names.0.insert(text.clone(), name);
        }
        (names, wanted)
    }

    /// The names without addresses, as texts that say why.
    pub fn unresolved(&self) -> Vec<String> {
        let unresolved = self.0.values().filter(|name| name.found.load().is_empty());
        let reason = |name: &Arc<Name>| match &*name.trouble.load() {
            Some(trouble) => String::clone(trouble),
            None => format!("cannot resolve {}: no answer yet", name.text),
        };
        let mut reasons: Vec<String> = unresolved.map(reason).collect();
        reasons.sort();
        reasons
    }

    /// The addresses of a name; empty until it is resolved.
    pub fn addresses(&self, name: &str) -> Arc<Vec<IpAddr>> {
        self.0.get(name).map(|name| name.found.load_full()).unwrap_or_default()
    }
}

impl Names {
    /// Sets the addresses of a name. For tests.
    pub fn set(&self, name: &str, addresses: &[IpAddr]) {
        self.0[name].found.store(Arc::new(addresses.to_vec()));
    }
}

/// Resolves all names that arrive on `wanted`, and watches them; notifies `changed` of new addresses.
pub async fn watch(mut wanted: UnboundedReceiver<Wanted>, mut resolver: Maker, changed: Rc<Notify>) {
    let mut made = None;
    while let Some(Wanted { names, first }) = wanted.recv().await {
        if made.is_none() {
            made = resolver();
        }
        let Some(resolver) = &made else { continue };
        for name in names {
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

/// Looks up each name once, all at the same time. Returns those without an address, with the reasons.
///
/// # Errors
/// If the runtime for the look-ups cannot be created.
pub fn unresolved(names: Vec<String>) -> io::Result<Vec<(String, String)>> {
    let look_up = async {
        let Some(resolver) = resolver() else { return Vec::new() };
        let mut lookups = JoinSet::new();
        for text in names {
            let resolver = resolver.clone();
            lookups.spawn(async move {
                let name = Name::new(&text);
                let looked_up = tokio::time::timeout(RESOLVE_FIRST, name.look_up(&resolver)).await;
                let late = || format!("cannot resolve {text}: no name server has answered in time");
                let reason = looked_up.unwrap_or_else(|_| Err(late())).err();
                reason.map(|reason| (text, reason))
            });
        }
        lookups.join_all().await.into_iter().flatten().collect()
    };
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(look_up))
}

/// Why a name could not be resolved.
fn reason(error: &NetError) -> String {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => match none.response_code {
            ResponseCode::NXDomain => "there is no such name".to_owned(),
            ResponseCode::NoError => "it has no address".to_owned(),
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
        Self { text: text.to_owned(), found: ArcSwap::default(), trouble: ArcSwapOption::empty() }
    }

    /// The addresses; empty until it is resolved.
    pub fn addresses(&self) -> Arc<Vec<IpAddr>> {
        self.found.load_full()
    }

    /// Resolves the name once. Returns whether its addresses changed, and how long they are valid.
    ///
    /// # Errors
    /// A description, if the name has no address.
    pub async fn look_up(&self, resolver: &TokioResolver) -> Result<(News, Duration), String> {
        let lookup = resolver.lookup_ip(self.text.as_str()).await;
        let lookup = lookup.map_err(|error| format!("cannot resolve {}: {}", self.text, reason(&error)))?;
        let mut found: Vec<_> = lookup.iter().collect();
        // A host without a route to IPv6 would wait for every connection.
        found.sort_by_key(IpAddr::is_ipv6);
        if found.is_empty() {
            return Err(format!("{} has no address", self.text));
        }
        if found.len() > ADDRESSES_MAX {
            let count = found.len();
            message::warn(&format!("{} has {count} addresses; only {ADDRESSES_MAX} are used", self.text));
            // Always the same ones.
            found.sort_by_key(|address| (address.is_ipv6(), *address));
            found.truncate(ADDRESSES_MAX);
        }
        let news = if **self.found.load() == found { News::None } else { News::Some };
        if news == News::Some {
            self.found.store(Arc::new(found));
        }
        let ttl = lookup.valid_until().saturating_duration_since(Instant::now());
        Ok((news, ttl.clamp(TTL_MIN, TTL_MAX)))
    }
}
