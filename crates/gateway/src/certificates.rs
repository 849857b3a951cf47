//! Selects the certificate for a server name: that of the listener with the most specific hostname.

use std::collections::BTreeSet;

use crate::hostname::{covers, is_name};
use crate::listeners::{OwnGateway, Port, TranslatedListener, is_of_narrower, on_port, pattern};
use crate::object::Reference;

/// Lists the certificates of a port with their server names, as in the option `names`. If listeners have the same
/// hostname, the oldest gateway wins, so no other gateway can take over names.
pub(crate) fn by_listener<'g>(
    gateways: &'g [OwnGateway<'_>],
    port: Port,
) -> Vec<(&'g Reference, Vec<String>)> {
    let host = |listener: &TranslatedListener<'_>| listener.hostname().map(str::to_ascii_lowercase);
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
            // Each of a listener's certificates serves its own names; the first one also serves all others.
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

/// Intersects a certificate's name with a listener's hostname, as far as the option `names` can express it.
fn within(name: &str, host: Option<&str>) -> Option<String> {
    let name = name.to_ascii_lowercase();
    if !is_name(name.strip_prefix("*.").unwrap_or(&name)) {
        return None;
    }
    let Some(host) = host else { return Some(name) };
    // RFC 9525 §6.3: a wildcard in a certificate matches one label.
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
