//! The names of servers, resolved again when their records expire. Runs on the control thread.
//!
//! A name that fails to resolve keeps the addresses that it had.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use config::ServerHost;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;

use crate::control::notice;
use crate::plan::Addresses;

/// Records are kept for at least this long, whatever they say.
const TTL_MIN: Duration = Duration::from_secs(1);
/// And for at most this long.
const TTL_MAX: Duration = Duration::from_secs(300);
/// After a failure the next attempt comes after this, then twice that, and so on.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// A name whose addresses are to be kept up to date.
pub(crate) struct Watched {
    pub(crate) name: String,
    pub(crate) port: u16,
    pub(crate) addresses: Addresses,
}

/// The addresses of a server: known at once, or to be watched.
pub(crate) fn addresses(server: &config::Server, watched: &mut Vec<Watched>) -> Addresses {
    match &server.host {
        ServerHost::Address(address) => {
            Arc::new(ArcSwap::from_pointee(vec![SocketAddr::new(*address, server.port)]))
        }
        ServerHost::Unix(_) => Addresses::default(),
        ServerHost::Name(name) => {
            let addresses = Addresses::default();
            let shared = Arc::clone(&addresses);
            watched.push(Watched { name: name.clone(), port: server.port, addresses: shared });
            addresses
        }
    }
}

/// A resolver for the machine's own settings; without any it still knows the hosts file.
pub(crate) fn resolver() -> Option<TokioResolver> {
    let builder = TokioResolver::builder_tokio().unwrap_or_else(|error| {
        notice(&format!("no name servers: {error}; names are looked up in the hosts file alone"));
        let none = ResolverConfig::from_parts(None, Vec::new(), Vec::new());
        TokioResolver::builder_with_config(none, TokioRuntimeProvider::default())
    });
    let mut builder = builder;
    builder.options_mut().ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    builder.build().map_err(|error| notice(&format!("cannot resolve names: {error}"))).ok()
}

/// Resolves a name once and says how long the answer holds, or `None` where it failed.
pub(crate) async fn resolve(resolver: &TokioResolver, watched: &Watched) -> Option<Duration> {
    match resolver.lookup_ip(watched.name.as_str()).await {
        Ok(lookup) => {
            let mut found: Vec<_> =
                lookup.iter().map(|address| SocketAddr::new(address, watched.port)).collect();
            // IPv4 first: a host without a route to IPv6 would wait for every connection.
            found.sort_by_key(SocketAddr::is_ipv6);
            if found.is_empty() {
                notice(&format!("{} has no address", watched.name));
                return None;
            }
            if *watched.addresses.load_full() != found {
                watched.addresses.store(Arc::new(found));
            }
            let ttl = lookup.valid_until().saturating_duration_since(Instant::now());
            Some(ttl.clamp(TTL_MIN, TTL_MAX))
        }
        Err(error) => {
            notice(&format!("cannot resolve {}: {error}", watched.name));
            None
        }
    }
}

/// Keeps a name's addresses up to date for as long as somebody asks for them. `holds` is how long the first answer does.
pub(crate) async fn watch(resolver: TokioResolver, watched: Watched, mut holds: Option<Duration>) {
    let mut retry = RETRY_MIN;
    loop {
        let wait = holds.unwrap_or(retry);
        retry = if holds.is_some() { RETRY_MIN } else { (retry * 2).min(RETRY_MAX) };
        tokio::time::sleep(wait).await;
        if Arc::strong_count(&watched.addresses) == 1 {
            // Its server is in no plan any more.
            return;
        }
        holds = resolve(&resolver, &watched).await;
    }
}
