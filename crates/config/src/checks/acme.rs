//! Checks automatic certificates: names that no challenge can prove, ports that authorities do not reach.

use crate::document::reader::{Reader, Span, refuse};
use crate::option::kind::Located;
use crate::option::table::Element;
use crate::tables::acme::options::AcmeWritten;
use crate::tables::acme::resolve::{meaning, names_of_routes};
use crate::tables::acme::{Acme, ChallengeKind, KeyType};
use crate::tables::file::File;
use crate::tables::listen::Listen;
use crate::tables::route::Route;
use crate::tables::tls::negotiation::TlsVersion;
use crate::tables::tls::negotiation_options;
use crate::tables::tls::negotiation_options::NegotiationWritten;

/// Adds mistakes about automatic certificates: names that there are none of, or that no challenge can prove.
pub(crate) fn check_acme(file: &File, routes: &[Option<Route>], reader: &mut Reader<'_>) {
    check_dns(&file.acme, reader);
    if !reader.is_whole() || reader.has_mistakes() {
        return;
    }
    let Some(acme) = meaning(file.acme.clone()) else { return };
    for (index, listen) in file.listen.iter().enumerate() {
        let Some(tls) = listen.value.tls.as_ref().filter(|tls| tls.is_intact) else { continue };
        if !tls.value.certificates.is_automatic() {
            if let Some(one) = &tls.value.one_certificate {
                let expected = "certificates = \"auto\"";
                refuse(&one.at, "one_certificate is for automatic certificates", expected, reader);
            }
            if let Some(name) = tls.value.names.first() {
                let expected = "certificates = \"auto\"";
                refuse(&name.at, "names is for automatic certificates", expected, reader);
            }
            continue;
        }
        let written: Vec<String> = tls.value.names.iter().map(|name| name.value.clone()).collect();
        let (names, patterns) = match written.is_empty() {
            true => names_of_routes(index, routes.iter().flatten()),
            false => (written, Vec::new()),
        };
        if names.is_empty() {
            let expected = "a route with a host such as host = \"www.example.com\", or names beside it";
            refuse(&tls.at, "certificates = \"auto\": no route has a host to certify", expected, reader);
        } else if !patterns.is_empty() {
            let (at, patterns) = (&tls.at, patterns.join(", "));
            let message = format!("certificates = \"auto\": hosts like {patterns} get no certificate");
            let warning = reader.mistake(at, message);
            reader.warn(warning.expecting("names beside it, with the hosts that clients use"));
        }
        for name in &names {
            check_name(&acme, (file, &listen.value), name, &tls.at, reader);
        }
        if let Some(one) = tls.value.one_certificate.as_ref().filter(|one| one.value) {
            check_one(&one.at, index, (file, routes), &names, reader);
        }
        if !acme.ports_forwarded {
            check_ports(&acme, (file, &listen.value), &names, &tls.at, reader);
        }
        check_suites(acme.key_type, &tls.value.negotiation, reader);
    }
}

/// A certificate that no client could be shown: in TLS 1.2 a cipher suite is for one kind of key (RFC 5246 §7.4.2), in
/// TLS 1.3 for all.
pub(crate) fn check_suites(key_type: KeyType, written: &NegotiationWritten, reader: &mut Reader<'_>) {
    let Some(Located { value: ciphers, at }) = &written.ciphers else { return };
    let negotiation = negotiation_options::settings(written.clone());
    let kind = key_type.kind();
    if !negotiation.permits(TlsVersion::Tls13)
        && !ciphers.iter().any(|cipher| cipher.key_kind() == Some(kind))
    {
        let message = format!("ciphers has no suite for {kind} keys, the type of the automatic certificates");
        let expected = format!("a suite with {kind} in its name, TLS 1.3, or another key_type in [acme]");
        refuse(at, &message, &expected, reader);
    }
}

/// A name has one certificate, alone or together with others.
pub(crate) fn check_one(
    at: &Span,
    listener: usize,
    (file, routes): (&File, &[Option<Route>]),
    names: &[String],
    reader: &mut Reader<'_>,
) {
    if file.redis.as_ref().is_some_and(|redis| redis.value.secret().is_some()) {
        let message =
            "one_certificate: instances that share certificates through [redis] have one for each name";
        return refuse(at, message, "[redis] without secret_file, or no one_certificate", reader);
    }
    let others = file.listen.iter().enumerate().filter(|(index, _)| *index != listener);
    for (index, other) in others {
        let Some(tls) = other.value.tls.as_ref().filter(|tls| tls.value.certificates.is_automatic()) else {
            continue;
        };
        let written: Vec<String> = tls.value.names.iter().map(|name| name.value.clone()).collect();
        let its =
            if written.is_empty() { names_of_routes(index, routes.iter().flatten()).0 } else { written };
        let is_one = tls.value.one_certificate.as_ref().is_some_and(|one| one.value);
        let is_same = is_one && its == names;
        if let Some(name) = its.iter().find(|name| names.contains(name)).filter(|_| !is_same) {
            let line = reader.line(&other.at);
            let message =
                format!("one_certificate: {name} has a separate certificate for the listener in {line}");
            refuse(at, &message, "one_certificate with the same names there", reader);
        }
    }
}

pub(crate) fn check_name(
    acme: &Acme,
    (file, listen): (&File, &Listen),
    name: &str,
    at: &Span,
    reader: &mut Reader<'_>,
) {
    let challenges = acme.provable(name);
    let refused = |message: &str, expected: &str, reader: &mut Reader<'_>| {
        refuse(at, &format!("certificates = \"auto\": {name}: {message}"), expected, reader);
    };
    if challenges.is_empty() {
        let (message, expected) = if name.starts_with("*.") {
            ("only DNS can prove a wildcard", "dns in [acme], with a command, a server or persist = true")
        } else if name.parse::<std::net::IpAddr>().is_ok() {
            ("DNS cannot prove an address", "\"http-01\" or \"tls-alpn-01\" in challenges of [acme]")
        } else {
            ("no challenge in [acme] can be used", "\"http-01\" or \"tls-alpn-01\" in challenges, or dns")
        };
        return refused(message, expected, reader);
    }
    let has_plain = file.listen.iter().any(|listen| listen.value.tls.is_none() && listen.value.tcp.is_none());
    let is_possible = |kind: &ChallengeKind| match kind {
        ChallengeKind::Http01 => has_plain,
        // Forwarded bytes have separate protocols.
        ChallengeKind::TlsAlpn01 => listen.tcp.is_none(),
        ChallengeKind::Dns01 | ChallengeKind::DnsPersist01 => true,
    };
    if !challenges.iter().any(is_possible) {
        let expected = "a [[listen]] at port 80 without tls, which answers \"http-01\"";
        refused("no listener can answer its challenges", expected, reader);
    }
}

/// Remarks on listeners at ports that authorities do not connect to: they may be reached from there all the same.
pub(crate) fn check_ports(
    acme: &Acme,
    (file, listen): (&File, &Listen),
    names: &[String],
    at: &Span,
    reader: &mut Reader<'_>,
) {
    let is_at = |listen: &Listen, port: u16| {
        // A Unix socket is behind something that has the port.
        listen.address.as_ref().is_none_or(|address| address.value.port().is_none_or(|own| own == port))
    };
    let mut plain = file.listen.iter().map(|listen| &listen.value);
    let has_http = plain.any(|listen| listen.tls.is_none() && listen.tcp.is_none() && is_at(listen, 80));
    let has_tls = listen.tcp.is_none() && is_at(listen, 443);
    let is_reached = |kind: &ChallengeKind| match kind {
        ChallengeKind::Http01 => has_http,
        ChallengeKind::TlsAlpn01 => has_tls,
        ChallengeKind::Dns01 | ChallengeKind::DnsPersist01 => true,
    };
    let Some(challenges) = names
        .iter()
        .map(|name| acme.provable(name))
        .find(|challenges| !challenges.is_empty() && !challenges.iter().any(is_reached))
    else {
        return;
    };
    let has = |kind| challenges.contains(&kind);
    let (message, expected) = match (has(ChallengeKind::Http01), has(ChallengeKind::TlsAlpn01)) {
        (true, true) => (
            "authorities connect to port 80 (\"http-01\") or 443 (\"tls-alpn-01\"), but no listener for \
             these challenges uses either port",
            "a [[listen]] at \"*:80\" without tls, or ports_forwarded = true in [acme] if one of these ports \
             is forwarded to its listener",
        ),
        (true, false) => (
            "authorities connect to port 80 (\"http-01\"), but no listener without tls uses it",
            "a [[listen]] at \"*:80\" without tls, or ports_forwarded = true in [acme] if port 80 is \
             forwarded to one",
        ),
        _ => (
            "authorities connect to port 443 (\"tls-alpn-01\"), but this listener has another port",
            "address = \"*:443\", or ports_forwarded = true in [acme] if port 443 is forwarded to this \
             listener",
        ),
    };
    let remark = reader.mistake(at, format!("certificates = \"auto\": {message}"));
    reader.warn(remark.expecting(expected));
}

pub(crate) fn check_dns(acme: &AcmeWritten, reader: &mut Reader<'_>) {
    let has = |kind| acme.challenges.iter().find(|challenge| challenge.value == kind);
    let Some(Element { value: dns, at, is_intact: true, .. }) = &acme.dns else {
        if let Some(challenge) =
            has(ChallengeKind::Dns01).or(has(ChallengeKind::DnsPersist01)).filter(|_| acme.dns.is_none())
        {
            let message = "challenges: a DNS challenge needs dns";
            refuse(&challenge.at, message, "dns with one of command, server and persist = true", reader);
        }
        return;
    };
    const WAYS: &str = "one of command, server and persist = true";
    let ways = [!dns.command.is_empty(), dns.server.is_some(), dns.persist];
    match ways.iter().filter(|way| **way).count() {
        0 => return refuse(at, "dns does not say how to create records", WAYS, reader),
        1 => {}
        _ => return refuse(at, "dns has several ways to create records", WAYS, reader),
    }
    let of_update = dns.zone.is_some() || dns.key_name.is_some() || dns.key_file.is_some();
    if dns.server.is_none() && of_update {
        refuse(at, "dns: zone and keys apply only to dynamic updates", "server beside them", reader);
    }
    if dns.key_name.is_some() != dns.key_file.is_some() {
        refuse(at, "dns: a TSIG key consists of a name and a file", "both key_name and key_file", reader);
    }
    if let Some(challenge) = has(ChallengeKind::Dns01).filter(|_| dns.persist) {
        refuse(&challenge.at, "challenges: persist is for \"dns-persist-01\"", "that one", reader);
    }
    if let Some(challenge) = has(ChallengeKind::DnsPersist01).filter(|_| !dns.persist) {
        refuse(
            &challenge.at,
            "challenges: \"dns-persist-01\" needs persist",
            "persist = true in dns",
            reader,
        );
    }
}
