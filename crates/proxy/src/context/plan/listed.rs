//! The servers of a configuration, with names replaced by the addresses that they currently resolve to.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use balance::{SERVERS_MAX, ServerId, WEIGHT_MAX};
use config::{Dns, Server, ServerHost, Upstream};

use transport::resolve::{Resolved, ServerNames, ServiceTarget};

/// A server of an upstream, as listed in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Index in the configuration; servers from one name with several addresses share it.
    pub(crate) place: usize,
    /// Identity of the server, kept across reloads.
    pub(crate) id: ServerId,
    /// For operators: name or `host:port` if that is unique in the upstream, else the URL. With the address if the name
    /// has several, or with host and port of a service.
    pub(crate) label: String,
    /// The server's address, if its name has several.
    pub(crate) address: Option<IpAddr>,
    /// The addresses to connect to, in order; empty until the name is resolved.
    pub(crate) addresses: Vec<SocketAddr>,
    /// As configured; for a service with host, port, priority and weight of the record.
    pub(crate) server: Server,
}

/// Lists the servers of an upstream: at least one, each ID once.
pub(crate) fn listed(upstream: &Upstream, names: &ServerNames) -> Vec<Listed> {
    // There is room for one server per configured entry; further addresses share the rest, in order.
    let mut room = SERVERS_MAX.saturating_sub(upstream.servers.len());
    let mut all = Vec::with_capacity(upstream.servers.len());
    for (((place, server), key), label) in
        upstream.servers.iter().enumerate().zip(keys(upstream)).zip(labels(upstream))
    {
        let at = |address: &IpAddr| SocketAddr::new(*address, server.port);
        let one = |addresses: &[IpAddr]| Listed {
            place,
            id: ServerId::from_name(&key),
            label: label.clone(),
            address: None,
            addresses: addresses.iter().map(at).collect(),
            server: server.clone(),
        };
        let several = match (&server.host, names.found(&server.host).as_deref()) {
            (ServerHost::Address(address), _) => vec![one(&[*address])],
            (_, Some(Resolved::Targets(targets))) => of_service(&one(&[]), &key, targets),
            (_, Some(Resolved::Addresses(found))) if upstream.dns == Dns::One => vec![one(found)],
            (_, Some(Resolved::Addresses(found))) => one_by_one(found)
                .iter()
                .map(|addresses| Listed {
                    // The address is part of the identity: a server keeps its health while others come and go.
                    id: ServerId::from_name(&format!("{key}@{}", addresses[0])),
                    label: format!("{label} ({})", addresses[0]),
                    address: Some(addresses[0]),
                    ..one(addresses)
                })
                .collect(),
            (_, None) => vec![one(&[])],
        };
        // At least one server is listed, even without an address, so that no upstream is empty.
        if several.is_empty() {
            all.push(one(&[]));
            continue;
        }
        let count = several.len().min(room + 1);
        room -= count - 1;
        all.extend(several.into_iter().take(count));
    }
    all
}

/// Returns the servers of a service, one for each of its records whose host has an address; `one` is the configured
/// server.
fn of_service(one: &Listed, key: &str, targets: &[ServiceTarget]) -> Vec<Listed> {
    let weights = weights(targets);
    let server = |(target, weight): (&ServiceTarget, u32)| {
        let authority = format!("{}:{}", target.host, target.port);
        let weight = one.server.weight.saturating_mul(weight).min(WEIGHT_MAX);
        let server = Server {
            host: target.host.clone(),
            port: target.port,
            weight,
            priority: one.server.priority.saturating_add(target.priority),
            ..one.server.clone()
        };
        Listed {
            id: ServerId::from_name(&format!("{key}@{authority}")),
            label: format!("{} ({authority})", one.label),
            addresses: target
                .addresses
                .iter()
                .map(|address| SocketAddr::new(*address, target.port))
                .collect(),
            server,
            ..one.clone()
        }
    };
    let is_found = |(target, _): &(&ServiceTarget, u32)| !target.addresses.is_empty();
    targets.iter().zip(weights).filter(is_found).map(server).collect()
}

/// A record with weight 1 gets this many times the weight of one without weight.
const WITHOUT_WEIGHT: u32 = 100;

/// Returns weights for a fleet, proportional among records of the same priority, none of them 0. RFC 2782: a record
/// with weight 0 has a very small chance beside others.
fn weights(targets: &[ServiceTarget]) -> Vec<u32> {
    let of = |target: &ServiceTarget| {
        let alike = targets.iter().filter(|other| other.priority == target.priority);
        let (mut most, mut has_none) = (1, false);
        for other in alike {
            most = most.max(u32::from(other.weight));
            has_none |= other.weight == 0;
        }
        let wanted = if has_none { WITHOUT_WEIGHT } else { 1 };
        let weight = u32::from(target.weight);
        // Weights beyond the largest permitted one are scaled down together, which keeps their proportion.
        let scaled = if most * wanted <= WEIGHT_MAX { weight * wanted } else { weight * WEIGHT_MAX / most };
        // Weight 0 would drain the server. RFC 2782 only gives it a very small share.
        scaled.max(1)
    };
    targets.iter().map(of).collect()
}

/// Returns the addresses of each server of a name, in an order independent of that of its records.
///
/// A machine with both families is one server, known by its IPv4 address. If there is a single IPv4 address, the IPv6
/// addresses are tried after it: a server on `localhost` may only listen on `::1`.
fn one_by_one(found: &[IpAddr]) -> Vec<Vec<IpAddr>> {
    let (mut four, mut six): (Vec<_>, Vec<_>) = found.iter().partition(|address| address.is_ipv4());
    // DNS servers rotate their records. Sorted, these lead to the same servers.
    for family in [&mut four, &mut six] {
        family.sort_unstable();
        family.dedup();
    }
    match four.as_slice() {
        [] => six.into_iter().map(|address| vec![address]).collect(),
        [only] => vec![std::iter::once(*only).chain(six).collect()],
        _ => four.into_iter().map(|address| vec![address]).collect(),
    }
}

/// Returns the label of each server, unique within the upstream, because metrics use it.
fn labels(upstream: &Upstream) -> impl Iterator<Item = String> {
    let called = |server: &Server| server.name.clone().unwrap_or_else(|| server.authority());
    let mut counts: HashMap<String, usize> = HashMap::new();
    for server in &upstream.servers {
        *counts.entry(called(server)).or_default() += 1;
    }
    upstream.servers.iter().zip(keys(upstream)).map(move |(server, key)| {
        let called = called(server);
        if counts[&called] == 1 { called } else { key }
    })
}

/// Returns a key for each server: its label, with the number of earlier equal ones.
fn keys(upstream: &Upstream) -> impl Iterator<Item = String> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    upstream.servers.iter().map(move |server| {
        let label = server.label();
        let count = counts.entry(label.clone()).or_default();
        *count += 1;
        if *count == 1 { label } else { format!("{label}#{}", *count - 1) }
    })
}

#[cfg(test)]
mod tests {
    use config::Config;

    use super::*;

    /// Returns an upstream of these servers, with unresolved names.
    fn upstream(servers: &[&str]) -> (Upstream, ServerNames) {
        let servers = servers.iter().map(|url| url.parse().expect("is a URL")).collect();
        let config = Config::for_servers(vec![SocketAddr::from(([127, 0, 0, 1], 0))], servers);
        let (names, _) = ServerNames::from_config(&config, None);
        (Upstream::clone(&config.upstreams[0]), names)
    }

    fn app() -> ServerHost {
        ServerHost::Name("app.test".to_owned())
    }

    fn ips(addresses: &[&str]) -> Resolved {
        Resolved::Addresses(addresses.iter().map(|address| address.parse().expect("is an address")).collect())
    }

    fn target(host: &str, port: u16, priority: u16, weight: u16) -> ServiceTarget {
        let host = host.parse().map_or_else(|_| ServerHost::Name(host.to_owned()), ServerHost::Address);
        ServiceTarget { host, port, priority, weight, addresses: vec![[10, 0, 0, 1].into()] }
    }

    #[test]
    fn rfc2782_a_service_is_as_many_servers_as_it_has_records() {
        let (mut upstream, names) = upstream(&["http+srv://_http._tcp.app.test", "http://10.9.9.9"]);
        (upstream.servers[0].weight, upstream.servers[0].priority) = (2, 5);
        let service = ServerHost::Service("_http._tcp.app.test".to_owned());
        let shown = |targets: &[ServiceTarget]| -> Vec<String> {
            names.set(&service, Resolved::Targets(targets.to_vec()));
            let listed = listed(&upstream, &names);
            assert_eq!(listed[listed.len() - 1].label, "10.9.9.9");
            let shown = |one: &Listed| {
                let Server { weight, priority, .. } = one.server;
                let addresses: Vec<String> = one.addresses.iter().map(ToString::to_string).collect();
                format!(
                    "{} {} {weight} {priority} {}",
                    one.label,
                    one.server.authority(),
                    addresses.join(",")
                )
            };
            listed[..listed.len() - 1].iter().map(shown).collect()
        };
        assert_eq!(shown(&[]), ["_http._tcp.app.test _http._tcp.app.test 2 5 "], "without an address");
        let lost = ServiceTarget { addresses: Vec::new(), ..target("c.test", 80, 1, 1) };
        assert_eq!(
            shown(&[target("::1", 8080, 0, 1)]),
            ["_http._tcp.app.test ([::1]:8080) [::1]:8080 2 5 10.0.0.1:8080"]
        );
        assert_eq!(
            shown(&[target("a.test", 80, 1, 3), lost, target("b.test", 8080, 10, 0)]),
            [
                "_http._tcp.app.test (a.test:80) a.test 6 6 10.0.0.1:80",
                "_http._tcp.app.test (b.test:8080) b.test:8080 2 15 10.0.0.1:8080"
            ]
        );
    }

    #[test]
    fn weights_of_records_keep_their_proportion() {
        for (given, expected) in [
            (&[0, 0][..], &[1, 1][..]),
            (&[1, 3], &[1, 3]),
            (&[0, 1, 3], &[1, 100, 300]),
            (&[0, 60], &[1, 1000]),
            (&[65535, 32768, 1, 0], &[1000, 500, 1, 1]),
        ] {
            let targets: Vec<ServiceTarget> =
                given.iter().map(|&weight| target("a.test", 80, 1, weight)).collect();
            let other = target("b.test", 80, 2, 7);
            let all = [targets, vec![other]].concat();
            let expected: Vec<u32> = expected.iter().copied().chain([7]).collect();
            assert_eq!(weights(&all), expected, "{given:?}");
        }
    }

    #[test]
    fn a_name_is_as_many_servers_as_it_has_addresses() {
        let (upstream, names) = upstream(&["http://app.test:81", "http://10.9.9.9"]);
        for (found, servers) in [
            (&[][..], &[&[][..]][..]),
            (&["10.0.0.2", "10.0.0.1"], &[&["10.0.0.1:81"], &["10.0.0.2:81"]]),
            (&["10.0.0.1", "10.0.0.1"], &[&["10.0.0.1:81"]]),
            (&["10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"], &[&["10.0.0.1:81"], &["10.0.0.2:81"]]),
            (&["127.0.0.1", "::1"], &[&["127.0.0.1:81", "[::1]:81"]]),
            (&["fd00::2", "fd00::1"], &[&["[fd00::1]:81"], &["[fd00::2]:81"]]),
        ] {
            names.set(&app(), ips(found));
            let listed = listed(&upstream, &names);
            let addresses: Vec<Vec<String>> = listed
                .iter()
                .map(|server| server.addresses.iter().map(ToString::to_string).collect())
                .collect();
            assert_eq!(addresses[..addresses.len() - 1], *servers, "{found:?}");
            assert_eq!(addresses[addresses.len() - 1], ["10.9.9.9:80"]);
        }
    }

    #[test]
    fn each_server_keeps_its_id_whatever_the_others() {
        let (upstream, names) = upstream(&["http://app.test", "http://app.test", "http://app.test:81"]);
        names.set(&app(), ips(&["10.0.0.1", "10.0.0.2"]));
        let before = listed(&upstream, &names);
        let mut ids: Vec<ServerId> = before.iter().map(|server| server.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 6, "each id is one server");
        names.set(&app(), ips(&["10.0.0.3", "10.0.0.2"]));
        let after = listed(&upstream, &names);
        assert_eq!((before[1].id, before[1].address), (after[0].id, after[0].address));
        assert!(before.iter().all(|server| server.id != after[1].id));
    }

    #[test]
    fn no_two_servers_are_known_by_the_same() {
        let (upstream, names) = upstream(&[
            "http://10.0.0.1:81",
            "https://10.0.0.1:81",
            "http://10.0.0.2",
            "http://10.0.0.3:81",
            "http://10.0.0.3:81",
        ]);
        let labels: Vec<String> = listed(&upstream, &names).into_iter().map(|server| server.label).collect();
        let expected = [
            "http://10.0.0.1:81",
            "https://10.0.0.1:81",
            "10.0.0.2",
            "http://10.0.0.3:81",
            "http://10.0.0.3:81#1",
        ];
        assert_eq!(labels, expected);
    }

    #[test]
    fn servers_beyond_the_limit_are_left_out_but_none_that_is_written() {
        let urls: Vec<String> =
            (0..SERVERS_MAX - 2).map(|port| format!("http://n.test:{}", port + 1)).collect();
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        let (upstream, names) = upstream(&urls);
        names.set(&ServerHost::Name("n.test".to_owned()), ips(&["10.0.0.1", "10.0.0.2"]));
        let listed = listed(&upstream, &names);
        assert_eq!(listed.len(), SERVERS_MAX);
        assert!((0..urls.len()).all(|place| listed.iter().any(|server| server.place == place)));
    }
}
