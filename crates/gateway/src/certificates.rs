//! Which certificate a client gets: one of the listener whose hostname is the nearest to the name that it asks for.

use std::collections::BTreeSet;

use crate::hostname::{covers, is_name};
use crate::listeners::{Listener, OwnGateway, Port, is_of_narrower, on_port, pattern};
use crate::object::Reference;

/// The certificates of a port, each with the names that clients ask for who get it, as the option `names` has them. Of listeners
/// with one hostname the oldest gateway's counts: nobody takes over the names of others.
pub(crate) fn by_listener<'g>(
    gateways: &'g [OwnGateway<'_>],
    port: Port,
) -> Vec<(&'g Reference, Vec<String>)> {
    let host = |listener: &Listener<'_>| listener.hostname().map(str::to_ascii_lowercase);
    let all: Vec<Option<String>> = on_port(gateways, port).map(host).collect();
    let mut seen = BTreeSet::new();
    let mut certificates: Vec<(&Reference, Vec<String>)> = Vec::new();
    for listener in on_port(gateways, port) {
        let host = host(listener);
        if !seen.insert(host.clone()) {
            continue;
        }
        let are_several = listener.certificates.len() > 1;
        for (place, (secret, own)) in listener.certificates.iter().enumerate() {
            // Of several certificates of a listener each is for its own names, and the first one for all others.
            let own = own.iter().filter(|_| are_several).filter_map(|name| within(name, host.as_deref()));
            let own = own.filter(|name| !is_of_narrower(name, host.as_deref(), &all));
            for name in own.chain((place == 0).then(|| pattern(host.as_deref()))) {
                match certificates.iter_mut().find(|(known, _)| *known == secret) {
                    Some((_, known)) if known.contains(&name) => {}
                    Some((_, known)) => known.push(name),
                    None => certificates.push((secret, vec![name])),
                }
            }
        }
    }
    certificates
}

/// What both a name in a certificate and the hostname of a listener are for, as far as the option `names` can say it.
fn within(name: &str, host: Option<&str>) -> Option<String> {
    let name = name.to_ascii_lowercase();
    if !is_name(name.strip_prefix("*.").unwrap_or(&name)) {
        return None;
    }
    let Some(host) = host else { return Some(name) };
    // RFC 9525 §6.3: a wildcard in a certificate is for one label.
    let is_for_host = name.strip_prefix("*.").is_some_and(|below| {
        host.split_once('.').is_some_and(|(first, parent)| first != "*" && parent == below)
    });
    match covers(host, &name) {
        true => Some(name),
        false => is_for_host.then(|| host.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_certificates_count_within_the_hostname() {
        for (name, host, expected) in [
            ("A.example", None, Some("a.example")),
            ("*.example", None, Some("*.example")),
            ("10.0.0.1", None, None),
            ("a_b.example", None, None),
            ("a.example", Some("a.example"), Some("a.example")),
            ("*.example", Some("a.example"), Some("a.example")),
            ("*.example", Some("a.b.example"), None),
            ("b.example", Some("a.example"), None),
            ("a.b.example", Some("*.example"), Some("a.b.example")),
            ("*.b.example", Some("*.example"), Some("*.b.example")),
            ("*.example", Some("*.example"), Some("*.example")),
            ("*.example", Some("*.b.example"), None),
        ] {
            assert_eq!(within(name, host).as_deref(), expected, "{name} {host:?}");
        }
    }
}
