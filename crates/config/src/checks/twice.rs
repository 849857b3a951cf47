//! Duplicate addresses and conditions.

use std::collections::HashMap;

use ::route::{HostRule, PathRule, RouteRule};

use crate::option::host::ListenAddress;

/// A value that another one, which comes first, excludes.
pub(crate) struct Twice {
    pub(crate) second: usize,
    pub(crate) first: usize,
    pub(crate) message: String,
}

/// Addresses that are the same, and addresses of one family beside all of both. Each has the name of its option.
pub(crate) fn addresses(all: &[(&ListenAddress, &str)]) -> Vec<Twice> {
    let mut firsts = HashMap::new();
    let mut twice = Vec::new();
    // Port 0 is another port each time.
    let with_port = || all.iter().enumerate().filter(|(_, (address, _))| address.port() != Some(0));
    for (second, (address, option)) in with_port() {
        let first = *firsts.entry(address).or_insert(second);
        if first != second {
            twice.push(Twice { second, first, message: format!("{option}: {address} appears twice") });
        }
    }
    for (both, first) in &firsts {
        let ListenAddress::Any(port) = both else { continue };
        for (one, second) in &firsts {
            if matches!(one, ListenAddress::Tcp(address) if address.port() == *port && address.ip().is_unspecified())
            {
                let message = format!("address: {one} is already included in {both}");
                twice.push(Twice { second: *second, first: *first, message });
            }
        }
    }
    twice
}

/// Rules that obviously match the same requests. Each has the index of its route.
pub(crate) fn rules<'r>(rules: impl Iterator<Item = (usize, &'r RouteRule)>) -> Vec<Twice> {
    let mut firsts = HashMap::new();
    let mut twice = Vec::new();
    for (second, rule) in rules {
        let identity = (host_text(&rule.host), path_text(&rule.path), conditions_text(rule));
        let first = *firsts.entry(identity).or_insert(second);
        if first != second {
            let host = match &rule.host {
                HostRule::Any => "any host".to_owned(),
                host => format!("host {:?}", host.to_string()),
            };
            let message = format!("[[route]]: {host} with path {:?} appears twice", rule.path.to_string());
            twice.push(Twice { second, first, message });
        }
    }
    twice
}

fn host_text(host: &HostRule) -> (u8, &str) {
    match host {
        HostRule::Any => (0, ""),
        HostRule::Exact(host) => (1, host),
        HostRule::Below(parent) => (2, parent),
        HostRule::Pattern(pattern) => (3, pattern.as_str()),
    }
}

fn path_text(path: &PathRule) -> (u8, &str) {
    match path {
        PathRule::Exact(path) => (0, path),
        PathRule::Prefix(path) => (1, path),
        PathRule::Pattern(pattern) => (2, pattern.as_str()),
        PathRule::TextPrefix(text) => (3, text),
    }
}

/// A text that is equal for rules whose conditions, besides host and path, are obviously the same; empty without any.
fn conditions_text(rule: &RouteRule) -> String {
    let RouteRule { listeners, host: _, path: _, methods, headers, cookies, query, claims, when, clients } =
        rule;
    if (listeners.len() + methods.len() + headers.len() + cookies.len() + query.len() + clients.len() == 0)
        && claims.values.is_empty()
        && when.is_none()
    {
        return String::new();
    }
    let (mut listeners, mut methods) = (listeners.clone(), methods.clone());
    listeners.sort_unstable();
    methods.sort_unstable();
    format!("{listeners:?} {methods:?} {headers:?} {cookies:?} {query:?} {claims:?} {when:?} {clients:?}")
}
