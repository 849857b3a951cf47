//! The servers of a configuration, with names replaced by the addresses that they resolve to now.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use balance::{SERVERS_MAX, ServerId};
use config::{Dns, Server, ServerHost, Upstream};

use transport::resolve::Names;

/// A server of an upstream, as it was listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    /// The index in the configuration; servers of one name with several addresses share it.
    pub(crate) place: usize,
    /// The server's identity, which stays over reloads.
    pub(crate) id: ServerId,
    /// The label for operators: name or `host:port` if that is unique in the upstream, else the URL; with the address,
    /// if the name has several.
    pub(crate) label: String,
    /// The server's address, if its name stands for several servers.
    pub(crate) address: Option<IpAddr>,
    /// The addresses to connect to, in order; empty until the name is resolved.
    pub(crate) addresses: Vec<SocketAddr>,
}

/// Lists the servers of an upstream: at least one, each ID once.
pub(crate) fn listed(upstream: &Upstream, names: &Names) -> Vec<Listed> {
    // One for each that is written fits; the rest is for those who come first.
    let mut room = SERVERS_MAX.saturating_sub(upstream.servers.len());
    let mut all = Vec::with_capacity(upstream.servers.len());
    for (((place, server), key), label) in
        upstream.servers.iter().enumerate().zip(keys(upstream)).zip(labels(upstream))
    {
        let at = |address: &IpAddr| SocketAddr::new(*address, server.port);
        let one = |addresses: &[IpAddr]| Listed {
            place,
            id: ServerId::of(&key),
            label: label.clone(),
            address: None,
            addresses: addresses.iter().map(at).collect(),
        };
        let found = match &server.host {
            ServerHost::Address(address) => Arc::new(vec![*address]),
            ServerHost::Name(name) => names.addresses(name),
            ServerHost::Unix(_) => Arc::default(),
        };
        let is_one = !matches!(server.host, ServerHost::Name(_)) || upstream.dns == Dns::One;
        if is_one || found.is_empty() {
            all.push(one(&found));
            continue;
        }
        let several = one_by_one(&found);
        let count = several.len().min(room + 1);
        room -= count - 1;
        all.extend(several[..count].iter().map(|addresses| Listed {
            id: ServerId::of(&format!("{key}@{}", addresses[0])),
            label: format!("{label} ({})", addresses[0]),
            address: Some(addresses[0]),
            ..one(addresses)
        }));
    }
    all
}

/// The addresses of each server that a name stands for, in an order that does not depend on that of its records.
///
/// A machine with an address of each family is one server: those of IPv4 count. Where there is just one of these, the
/// others are tried after it: who calls himself `localhost` may listen on `::1` alone.
fn one_by_one(found: &[IpAddr]) -> Vec<Vec<IpAddr>> {
    let (mut four, mut six): (Vec<_>, Vec<_>) = found.iter().partition(|address| address.is_ipv4());
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

/// What operators read: two servers never share it, as they would a series of the metrics.
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

/// What each server is called; one that is there already, with how many of the same precede it.
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

    /// An upstream of these servers, and names that are not resolved yet.
    fn upstream(servers: &[&str]) -> (Upstream, Names) {
        let servers = servers.iter().map(|url| url.parse().expect("is a URL")).collect();
        let config = Config::for_servers(vec![SocketAddr::from(([127, 0, 0, 1], 0))], servers);
        let (names, _) = Names::of(&config, None);
        (config.upstreams[0].clone(), names)
    }

    fn ips(addresses: &[&str]) -> Vec<IpAddr> {
        addresses.iter().map(|address| address.parse().expect("is an address")).collect()
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
            names.set("app.test", &ips(found));
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
        names.set("app.test", &ips(&["10.0.0.1", "10.0.0.2"]));
        let before = listed(&upstream, &names);
        let mut ids: Vec<ServerId> = before.iter().map(|server| server.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 6, "each id is one server");
        names.set("app.test", &ips(&["10.0.0.3", "10.0.0.2"]));
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
        names.set("n.test", &ips(&["10.0.0.1", "10.0.0.2"]));
        let listed = listed(&upstream, &names);
        assert_eq!(listed.len(), SERVERS_MAX);
        assert!((0..urls.len()).all(|place| listed.iter().any(|server| server.place == place)));
    }
}
