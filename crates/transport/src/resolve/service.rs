//! Servers of a service: SRV records (RFC 2782), and the addresses of the hosts that they name.

use std::net::IpAddr;
use std::time::Instant;

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
    /// The server's host, in lower case, without the dot of the root.
    pub host: String,
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
    // Records come in any order. Each server is one, whatever its records.
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
    let addresses = with_addresses(&mut targets, before, resolver).await;
    Ok((targets, addresses.into_iter().fold(lookup.valid_until(), Instant::min)))
}

/// What a record says; a description if it cannot be used.
fn target(record: &SRV) -> Result<Target, String> {
    let host = record.target.to_ascii().trim_end_matches('.').to_ascii_lowercase();
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    // It becomes part of Host and of labels.
    if host.is_empty() || !host.bytes().all(is_host) {
        return Err(format!("{host:?} is no host"));
    }
    if record.port == 0 {
        return Err(format!("{host} has the port 0"));
    }
    let SRV { port, priority, weight, .. } = *record;
    Ok(Target { host, port, priority, weight, addresses: Vec::new() })
}

/// Finds the addresses of all, at the same time. Returns until when each holds.
async fn with_addresses(targets: &mut [Target], before: &[Target], resolver: &TokioResolver) -> Vec<Instant> {
    let mut lookups = JoinSet::new();
    let mut hosts: Vec<&str> = targets.iter().map(|target| target.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    for host in hosts {
        let (resolver, host) = (resolver.clone(), host.to_owned());
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
