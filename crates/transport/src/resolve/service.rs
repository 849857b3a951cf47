//! Servers of a service: SRV records (RFC 2782), and the addresses of the hosts that they name.

use std::fmt::Display;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use config::{CatalogService, ServerHost};
use hickory_resolver::TokioResolver;
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use telemetry::message;
use tokio::task::JoinSet;

use super::{addresses_of, reason};

/// Records of one service that are used; further ones are ignored.
const TARGETS_MAX: usize = 256;

/// A server of a service, from an SRV record or a catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceTarget {
    /// The server's host: its address, or its name in lower case, without the root's dot.
    pub host: ServerHost,
    pub port: u16,
    /// The lowest priority is used first.
    pub priority: u16,
    /// Share of the requests among servers of the same priority.
    pub weight: u16,
    /// IPv4 first. Empty if they were never found.
    pub addresses: Vec<IpAddr>,
}

/// The result of a service's lookup.
pub(super) struct KnownService {
    pub(super) targets: Vec<ServiceTarget>,
    /// When the result expires.
    pub(super) until: Instant,
    /// A warning about hosts that could not be resolved, while their old addresses stay.
    pub(super) remark: Option<String>,
}

/// Looks up a service. Its servers `before` keep their addresses if new ones cannot be found.
///
/// # Errors
/// A description, if there are no records, or no usable ones.
pub(super) async fn look_up(
    service: &str,
    before: &[ServiceTarget],
    resolver: &TokioResolver,
) -> Result<KnownService, String> {
    let failed = |why: String| format!("cannot resolve {service}: {why}");
    let (targets, mut until, mut remarks) = records(service, resolver).await.map_err(failed)?;
    let mut targets = in_order(&service, targets);
    let lacks = find_addresses(&mut targets, before, resolver, &mut until).await;
    // An error keeps the previous servers. Servers without addresses would replace them by nothing.
    if !targets.is_empty() && targets.iter().all(|target| target.addresses.is_empty()) {
        return Err(failed(format!("none of its hosts has an address: {}", lacks.join("; "))));
    }
    remarks.extend(lacks);
    let remark = (!remarks.is_empty()).then(|| format!("{service}: {}", remarks.join("; ")));
    Ok(KnownService { targets, until, remark })
}

/// Longest chain of aliases that is followed.
// Aliases may form a circle.
const ALIASES_MAX: usize = 8;

/// Servers, when the records expire, and descriptions of ignored records.
type Said = (Vec<ServiceTarget>, Instant, Vec<String>);

async fn records(service: &str, resolver: &TokioResolver) -> Result<Said, String> {
    let (mut name, mut until) = (service.to_owned(), None::<Instant>);
    for _ in 0..=ALIASES_MAX {
        let error = match resolver.lookup(name.as_str(), RecordType::SRV).await {
            Ok(lookup) => {
                let (targets, additional, left_out) = read(lookup.answers(), lookup.additionals())?;
                let additional = additional.map(|ttl| Instant::now() + ttl);
                let holds =
                    [until, additional].into_iter().flatten().fold(lookup.valid_until(), Instant::min);
                return Ok((targets, holds, left_out));
            }
            Err(error) => error,
        };
        // RFC 1034 §3.6.2: an alias holds for every type. The resolver follows only an alias that comes alone; if its
        // target's records come with it, the resolver continues with their hosts.
        let alias = if super::is_none(&error) { alias(&name, resolver).await } else { None };
        let Some((target, holds)) = alias else { return Err(reason(&error, NO_RECORDS)) };
        (name, until) = (target, Some(until.map_or(holds, |until| until.min(holds))));
    }
    Err(format!("it has more than {ALIASES_MAX} aliases in a row"))
}

const NO_RECORDS: &str = "it has no SRV records";

/// The target of an alias, and until when it is valid.
async fn alias(name: &str, resolver: &TokioResolver) -> Option<(String, Instant)> {
    let lookup = resolver.lookup(name, RecordType::CNAME).await.ok()?;
    let target = lookup.answers().iter().find_map(|record| match &record.data {
        RData::CNAME(target) => Some(target.0.to_ascii()),
        _ => None,
    });
    Some((target?, lookup.valid_until()))
}

/// The servers of an answer, how long their addresses are valid, and descriptions of ignored records.
type AnswerRecords = (Vec<ServiceTarget>, Option<Duration>, Vec<String>);

/// Reads the servers of an answer, with the additional addresses.
///
/// # Errors
/// A description, if no record is usable. RFC 2782: the root as the target means that the service is not available,
/// which is an answer without servers.
fn read(answers: &[Record], additionals: &[Record]) -> Result<AnswerRecords, String> {
    let records = answers.iter().filter_map(|record| match &record.data {
        RData::SRV(record) => Some(record),
        _ => None,
    });
    let (mut targets, mut left_out, mut is_named) = (Vec::new(), Vec::new(), false);
    let mut ttl = None::<u32>;
    for record in records {
        is_named = true;
        if record.target.is_root() {
            continue;
        }
        match target(record) {
            Ok(target) => {
                let beside = additionals.iter().filter(|beside| beside.name == record.target);
                let addresses = beside.filter_map(|beside| {
                    let address = beside.data.ip_addr()?;
                    ttl = Some(ttl.map_or(beside.ttl, |ttl| ttl.min(beside.ttl)));
                    Some(address)
                });
                let mut addresses: Vec<IpAddr> = addresses.collect();
                addresses.sort_by_key(IpAddr::is_ipv6);
                targets.push(ServiceTarget { addresses, ..target });
            }
            Err(why) => left_out.push(format!("a record is left out: {why}")),
        }
    }
    if !is_named {
        return Err(NO_RECORDS.to_owned());
    }
    // Unusable records do not mean that there is no server.
    if targets.is_empty() && !left_out.is_empty() {
        return Err(left_out.join("; "));
    }
    Ok((targets, ttl.map(|ttl| Duration::from_secs(ttl.into())), left_out))
}

/// Sorts servers, because records and instances arrive in any order. Merges records of the same server.
pub(super) fn in_order(service: &impl Display, mut targets: Vec<ServiceTarget>) -> Vec<ServiceTarget> {
    targets.sort_by(|one, other| {
        let order = |target: &ServiceTarget| (target.priority, target.host.clone(), target.port);
        // The heavier of two records of one server comes first, and stays.
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

/// The server of a record, or why the record is unusable.
fn target(record: &SRV) -> Result<ServiceTarget, String> {
    // In one spelling, so that a record whose case changes is no other server.
    let host = record.target.to_ascii().trim_end_matches('.').to_ascii_lowercase();
    if !is_host(&host) {
        return Err(format!("{host:?} is not a host name"));
    }
    if record.port == 0 {
        return Err(format!("{host} has the port 0"));
    }
    let SRV { port, priority, weight, .. } = *record;
    Ok(ServiceTarget { host: ServerHost::Name(host), port, priority, weight, addresses: Vec::new() })
}

/// Whether a text can be a host name. It becomes part of Host and of labels.
pub fn is_host(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Instances of a service with their addresses; names are looked up. Instances `before` keep their addresses if new
/// ones cannot be found; those without an address are left out. Also returns a warning.
pub async fn with_addresses(
    service: &CatalogService,
    (targets, before): (Vec<ServiceTarget>, &[ServiceTarget]),
    resolver: impl Future<Output = Option<&TokioResolver>>,
) -> (Vec<ServiceTarget>, Vec<String>) {
    let mut targets = in_order(service, targets);
    let mut lacks = Vec::new();
    if targets.iter().any(|target| target.addresses.is_empty())
        && let Some(resolver) = resolver.await
    {
        lacks = find_addresses(&mut targets, before, resolver, &mut Instant::now()).await;
    }
    targets.retain(|target| !target.addresses.is_empty());
    (targets, lacks)
}

/// Finds the missing addresses, all at the same time. Shortens `until` to the earliest expiry. Returns why some were
/// not found.
async fn find_addresses(
    targets: &mut [ServiceTarget],
    before: &[ServiceTarget],
    resolver: &TokioResolver,
    until: &mut Instant,
) -> Vec<String> {
    let mut lookups = JoinSet::new();
    let unknown = targets.iter().filter(|target| target.addresses.is_empty());
    let mut hosts: Vec<ServerHost> = unknown.map(|target| target.host.clone()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    for host in hosts {
        let resolver = resolver.clone();
        lookups.spawn(async move {
            // The name is absolute, so search lists do not apply.
            let found = addresses_of(&format!("{host}."), &resolver).await;
            (host, found)
        });
    }
    let mut lacks = Vec::new();
    for (host, found) in lookups.join_all().await {
        let addresses = match found {
            Ok((addresses, holds)) => {
                *until = holds.min(*until);
                addresses
            }
            Err(why) => {
                // Expires at once, so that the lookup is repeated after the least time.
                *until = Instant::now();
                let known = before.iter().find(|target| target.host == host && !target.addresses.is_empty());
                let follows = if known.is_some() { "its last addresses stay" } else { "it is left out" };
                lacks.push(format!("{why}; {follows}"));
                known.map(|known| known.addresses.clone()).unwrap_or_default()
            }
        };
        for target in targets.iter_mut().filter(|target| target.host == host) {
            target.addresses.clone_from(&addresses);
        }
    }
    lacks.sort();
    lacks
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use hickory_resolver::proto::rr::rdata::{A, AAAA};
    use hickory_resolver::proto::rr::{Name, rdata::CNAME};

    use super::*;

    fn name(text: &str) -> Name {
        Name::from_ascii(text).expect("is a name")
    }

    fn srv(owner: &str, port: u16, host: &str) -> Record {
        Record::from_rdata(name(owner), 30, RData::SRV(SRV::new(1, 2, port, name(host))))
    }

    fn at(host: &str, ttl: u32, last: u8) -> Record {
        Record::from_rdata(name(host), ttl, RData::A(A(Ipv4Addr::new(10, 0, 0, last))))
    }

    fn shown(targets: &[ServiceTarget]) -> Vec<String> {
        let shown = |target: &ServiceTarget| {
            let addresses: Vec<String> = target.addresses.iter().map(ToString::to_string).collect();
            format!("{}:{} {}", target.host, target.port, addresses.join(","))
        };
        targets.iter().map(shown).collect()
    }

    const SERVICE: &str = "_http._tcp.app.test.";

    #[test]
    fn addresses_beside_the_records_are_used_where_they_suffice() {
        let six =
            Record::from_rdata(name("a.test."), 9, RData::AAAA(AAAA("fd00::1".parse().expect("is one"))));
        let alias = Record::from_rdata(name("b.test."), 9, RData::CNAME(CNAME(name("c.test."))));
        let records =
            [srv(SERVICE, 80, "A.test."), srv(SERVICE, 81, "b.test."), srv("other.", 82, "d.test.")];
        let beside = [six, at("a.test.", 20, 1), at("A.TEST.", 7, 2), alias, at("c.test.", 5, 3)];
        let (targets, ttl, left_out) = read(&records, &beside).expect("there are records");
        assert_eq!(shown(&targets), ["a.test:80 10.0.0.1,10.0.0.2,fd00::1", "b.test:81 ", "d.test:82 "]);
        assert_eq!((ttl, left_out), (Some(Duration::from_secs(7)), Vec::new()));
        let (targets, ttl, _) = read(&records, &[]).expect("there are records");
        assert!(ttl.is_none() && targets.iter().all(|target| target.addresses.is_empty()));
    }

    /// With any other error, the known servers stay.
    #[test]
    fn rfc2782_only_the_root_means_no_server() {
        let left_out = "a record is left out: \"*.test\" is not a host name";
        let no_port = "a record is left out: a.test has the port 0";
        for (records, expected) in [
            (vec![srv(SERVICE, 0, ".")], Ok(0)),
            (vec![srv(SERVICE, 80, "."), srv(SERVICE, 80, "a.test.")], Ok(1)),
            (vec![srv(SERVICE, 0, "a.test."), srv(SERVICE, 80, "a.test.")], Ok(1)),
            (vec![], Err(NO_RECORDS.to_owned())),
            (vec![at("a.test.", 9, 1)], Err(NO_RECORDS.to_owned())),
            (vec![srv(SERVICE, 0, "a.test.")], Err(no_port.to_owned())),
            (vec![srv(SERVICE, 0, "a.test."), srv(SERVICE, 0, ".")], Err(no_port.to_owned())),
            (vec![srv(SERVICE, 80, "*.test.")], Err(left_out.to_owned())),
        ] {
            let found = read(&records, &[]).map(|(targets, ..)| targets.len());
            assert_eq!(found, expected, "{records:?}");
        }
    }
}
