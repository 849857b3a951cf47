//! Servers of a service: SRV records (RFC 2782), and the addresses of the hosts that they name.

use std::fmt::Display;
use std::net::IpAddr;
use std::time::Instant;

use config::{CatalogService, ServerHost};
use hickory_resolver::TokioResolver;
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{RData, RecordType};
use telemetry::message;
use tokio::task::JoinSet;

use super::{addresses_of, reason};

/// Records of one service that count; those beyond are left out.
const TARGETS_MAX: usize = 256;

/// A server of a service, as a record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The server's host: its address, or its name in lower case, without the dot of the root.
    pub host: ServerHost,
    /// Its port.
    pub port: u16,
    /// Its priority: the lowest is asked first.
    pub priority: u16,
    /// Its share of the requests among those of its priority.
    pub weight: u16,
    /// Its addresses, those of IPv4 first; empty if they were never found.
    pub addresses: Vec<IpAddr>,
}

/// Looks the service up. Returns its servers and how long they hold. `before` are those that it had, which keep their addresses
/// if these cannot be found.
///
/// # Errors
/// A description, if there are no records.
pub(super) async fn look_up(
    service: &str,
    before: &[Target],
    resolver: &TokioResolver,
) -> Result<(Vec<Target>, Instant), String> {
    let lookup = resolver.lookup(service, RecordType::SRV).await;
    let lookup = lookup
        .map_err(|error| format!("cannot resolve {service}: {}", reason(&error, "it has no SRV records")))?;
    let records = lookup.answers().iter().filter_map(|record| match &record.data {
        RData::SRV(record) => Some(record),
        _ => None,
    });
    let mut targets: Vec<Target> = Vec::new();
    let mut is_named = false;
    for record in records {
        is_named = true;
        // RFC 2782: a root as the target means that the service is not available.
        if record.target.is_root() {
            continue;
        }
        match target(record) {
            Ok(target) => targets.push(target),
            Err(why) => message::warn(&format!("{service}: a record is left out: {why}")),
        }
    }
    if !is_named {
        return Err(format!("cannot resolve {service}: it has no SRV records"));
    }
    let mut targets = in_order(&service, targets);
    let addresses = find_addresses(&mut targets, before, resolver).await;
    Ok((targets, addresses.into_iter().fold(lookup.valid_until(), Instant::min)))
}

/// Records and instances come in any order. Each server is one, whatever its records.
pub(super) fn in_order(service: &impl Display, mut targets: Vec<Target>) -> Vec<Target> {
    targets.sort_by(|one, other| {
        let order = |target: &Target| (target.priority, target.host.clone(), target.port);
        order(one).cmp(&order(other)).then(other.weight.cmp(&one.weight))
    });
    targets.dedup_by(|one, other| (&one.host, one.port) == (&other.host, other.port));
    if targets.len() > TARGETS_MAX {
        let count = targets.len();
        message::warn(&format!("{service} has {count} servers; only {TARGETS_MAX} are used"));
        targets.truncate(TARGETS_MAX);
    }
    targets
}

/// What a record says; a description if it cannot be used.
fn target(record: &SRV) -> Result<Target, String> {
    let host = record.target.to_ascii().trim_end_matches('.').to_ascii_lowercase();
    if !is_host(&host) {
        return Err(format!("{host:?} is no host"));
    }
    if record.port == 0 {
        return Err(format!("{host} has the port 0"));
    }
    let SRV { port, priority, weight, .. } = *record;
    Ok(Target { host: ServerHost::Name(host), port, priority, weight, addresses: Vec::new() })
}

/// Whether a text can be a host's name: it becomes part of Host and of labels.
pub fn is_host(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Instances of a service, those with names with their addresses. `before` are those that it had, which keep their addresses if
/// these cannot be found; what has no address is left out.
pub async fn with_addresses(
    service: &CatalogService,
    (targets, before): (Vec<Target>, &[Target]),
    resolver: impl Future<Output = Option<&TokioResolver>>,
) -> Vec<Target> {
    let mut targets = in_order(service, targets);
    if targets.iter().any(|target| target.addresses.is_empty())
        && let Some(resolver) = resolver.await
    {
        find_addresses(&mut targets, before, resolver).await;
    }
    targets.retain(|target| !target.addresses.is_empty());
    targets
}

/// Finds the addresses of all that have none yet, at the same time. Returns until when each holds.
async fn find_addresses(targets: &mut [Target], before: &[Target], resolver: &TokioResolver) -> Vec<Instant> {
    let mut lookups = JoinSet::new();
    let unknown = targets.iter().filter(|target| target.addresses.is_empty());
    let mut hosts: Vec<ServerHost> = unknown.map(|target| target.host.clone()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    for host in hosts {
        let resolver = resolver.clone();
        lookups.spawn(async move {
            // The name is whole: no search list is for it.
            let found = addresses_of(&format!("{host}."), &resolver).await;
            (host, found)
        });
    }
    let mut holds = Vec::new();
    for (host, found) in lookups.join_all().await {
        let addresses = match found {
            Ok((addresses, until)) => {
                holds.push(until);
                addresses
            }
            Err(why) => {
                message::warn(&why);
                let known = before.iter().find(|target| target.host == host);
                holds.push(Instant::now());
                known.map(|known| known.addresses.clone()).unwrap_or_default()
            }
        };
        for target in targets.iter_mut().filter(|target| target.host == host) {
            target.addresses.clone_from(&addresses);
        }
    }
    holds
}
