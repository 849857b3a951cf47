//! Checks relations between the options of automatic certificates, finds their names, and converts them to settings and
//! back.

use ::route::{HostRule, Rule};

use crate::acme_options::{
    AcmeWritten, DnsWritten, ExternalAccountWritten, FallbackWritten, certificate_name,
};
use crate::kind::{Located, located};
use crate::negotiation::TlsVersion;
use crate::negotiation_options::{self, NegotiationWritten};
use crate::options::{File, Listen};
use crate::reader::{Reader, Span};
use crate::settings::{
    Acme, Authority, ChallengeKind, DnsChallenge, DnsUpdate, DnsWay, ExternalAccount, KeyType, Listener,
    Route, TsigKey,
};
use crate::table::{Element, element};
use crate::tls::Certificates;

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
            let message =
                format!("certificates = \"auto\": no certificate is asked for hosts like {patterns}");
            let warning = reader.mistake(at, message);
            reader.warn(warning.expecting("names beside it, for those that clients will use"));
        }
        for name in &names {
            check_name(&acme, (file, &listen.value), name, &tls.at, reader);
        }
        check_ports(&acme, (file, &listen.value), &names, &tls.at, reader);
        check_suites(acme.key_type, &tls.value.negotiation, reader);
    }
}

/// A certificate that no client could be shown: in TLS 1.2 a cipher suite is for one kind of key (RFC 5246 §7.4.2), in
/// TLS 1.3 for all.
fn check_suites(key_type: KeyType, written: &NegotiationWritten, reader: &mut Reader<'_>) {
    let Some(Located { value: ciphers, at }) = &written.ciphers else { return };
    let negotiation = negotiation_options::settings(written.clone());
    let kind = key_type.kind();
    if !negotiation.permits(TlsVersion::Tls13)
        && !ciphers.iter().any(|cipher| cipher.key_kind() == Some(kind))
    {
        let message = format!("ciphers has none for {kind} keys, and certificates = \"auto\" asks for one");
        let expected = format!("a suite with {kind} in its name, TLS 1.3, or another key_type in [acme]");
        refuse(at, &message, &expected, reader);
    }
}

fn check_name(acme: &Acme, (file, listen): (&File, &Listen), name: &str, at: &Span, reader: &mut Reader<'_>) {
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
            ("no challenge of [acme] can be used", "\"http-01\" or \"tls-alpn-01\" in challenges, or dns")
        };
        return refused(message, expected, reader);
    }
    let has_plain = file.listen.iter().any(|listen| listen.value.tls.is_none() && listen.value.tcp.is_none());
    let is_possible = |kind: &ChallengeKind| match kind {
        ChallengeKind::Http01 => has_plain,
        // Bytes that are passed on have protocols of their own.
        ChallengeKind::TlsAlpn01 => listen.tcp.is_none(),
        ChallengeKind::Dns01 | ChallengeKind::DnsPersist01 => true,
    };
    if !challenges.iter().any(is_possible) {
        let expected = "a [[listen]] at port 80 without tls, which answers \"http-01\"";
        refused("no listener can answer its challenges", expected, reader);
    }
}

/// Remarks on listeners at ports that authorities do not connect to: they may be reached from there all the same.
fn check_ports(
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
            "authorities connect to port 80 (\"http-01\") or 443 (\"tls-alpn-01\"), and no listener that answers is at one",
            "one of these ports forwarded to its listener, or a [[listen]] at \"*:80\" without tls",
        ),
        (true, false) => (
            "authorities connect to port 80 (\"http-01\"), and no listener without tls is there",
            "a [[listen]] at \"*:80\" without tls, or port 80 forwarded to one",
        ),
        _ => (
            "authorities connect to port 443 (\"tls-alpn-01\"), and this listener is not there",
            "address = \"*:443\", or port 443 forwarded to this listener",
        ),
    };
    let remark = reader.mistake(at, format!("certificates = \"auto\": {message}"));
    reader.warn(remark.expecting(expected));
}

fn check_dns(acme: &AcmeWritten, reader: &mut Reader<'_>) {
    let has = |kind| acme.challenges.iter().find(|challenge| challenge.value == kind);
    let Some(Element { value: dns, at, is_intact: true, .. }) = &acme.dns else {
        if let Some(challenge) =
            has(ChallengeKind::Dns01).or(has(ChallengeKind::DnsPersist01)).filter(|_| acme.dns.is_none())
        {
            let message = "challenges: a challenge by DNS is there without dns";
            refuse(&challenge.at, message, "dns = { command = [...] } or one of its other ways", reader);
        }
        return;
    };
    const WAYS: &str = "one of command, server and persist = true";
    let ways = [!dns.command.is_empty(), dns.server.is_some(), dns.persist];
    match ways.iter().filter(|way| **way).count() {
        0 => return refuse(at, "dns has no way to make records", WAYS, reader),
        1 => {}
        _ => return refuse(at, "dns has several ways to make records", WAYS, reader),
    }
    let of_update = dns.zone.is_some() || dns.key_name.is_some() || dns.key_file.is_some();
    if dns.server.is_none() && of_update {
        refuse(at, "dns: zone and keys are for updates", "server beside them", reader);
    }
    if dns.key_name.is_some() != dns.key_file.is_some() {
        refuse(at, "dns: a TSIG key is a name and a file", "both key_name and key_file", reader);
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

fn refuse(at: &Span, message: &str, expected: &str, reader: &mut Reader<'_>) {
    let mistake = reader.mistake(at, message);
    reader.add(mistake.expecting(expected));
}

/// The names that routes give to a listener, and the patterns that no certificate can have.
fn names_of_routes<'r>(
    listener: usize,
    routes: impl Iterator<Item = &'r Route>,
) -> (Vec<String>, Vec<String>) {
    let (mut names, mut patterns) = (Vec::new(), Vec::new());
    let is_for = |rule: &&Rule| rule.listeners.is_empty() || rule.listeners.contains(&listener);
    for rule in routes.flat_map(|route| &route.rules).filter(is_for) {
        let written = match &rule.host {
            HostRule::Any => continue,
            HostRule::Exact(host) => host.trim_matches(['[', ']']).to_owned(),
            HostRule::Below(host) => format!("*.{host}"),
            HostRule::Pattern(_) => rule.host.to_string(),
        };
        let (list, name) = match (&rule.host, certificate_name(written.trim_end_matches('.'))) {
            (HostRule::Exact(_) | HostRule::Below(_), Ok(name)) => (&mut names, name),
            _ => (&mut patterns, written),
        };
        if !list.contains(&name) {
            list.push(name);
        }
    }
    (names, patterns)
}

/// Gives listeners with automatic certificates their names and their folder.
pub(crate) fn complete(listeners: &mut [Listener], routes: &[Route], acme: &Acme) {
    for (index, listener) in listeners.iter_mut().enumerate() {
        let Some(tls) = &mut listener.tls else { continue };
        if let Certificates::Automatic { names, folder } = &mut tls.certificates {
            if names.is_empty() {
                *names = names_of_routes(index, routes.iter()).0;
            }
            folder.clone_from(&acme.folder);
        }
    }
}

/// Converts the options to settings; `None` if any required part is missing.
pub(crate) fn meaning(written: AcmeWritten) -> Option<Acme> {
    let AcmeWritten {
        directory,
        ca,
        profile,
        external_account,
        fallback,
        contact,
        key_type,
        folder,
        challenges,
        dns,
    } = written;
    let fallback = match fallback {
        Some(Element { value: FallbackWritten { directory, ca, profile, external_account }, .. }) => {
            Some(authority(directory?, ca, profile, external_account)?)
        }
        None => None,
    };
    let dns = match dns {
        Some(dns) => Some(dns_challenge(dns.value)?),
        None => None,
    };
    Some(Acme {
        authority: authority(directory.value, ca, profile, external_account)?,
        fallback,
        contact,
        key_type,
        folder: folder.map_or_else(|| Acme::FOLDER.into(), |folder| folder.value),
        challenges: challenges.into_iter().map(|challenge| challenge.value).collect(),
        dns,
    })
}

fn authority(
    directory: crate::settings::KeyUrl,
    ca: crate::tls_options::Path,
    profile: Option<String>,
    external_account: Option<Element<ExternalAccountWritten>>,
) -> Option<Authority> {
    let external_account = match external_account {
        Some(Element { value: ExternalAccountWritten { id, key_file }, .. }) => {
            Some(ExternalAccount { id: id?, key_file: key_file?.value })
        }
        None => None,
    };
    Some(Authority { directory, ca: ca.map(|ca| ca.value), profile, external_account })
}

fn dns_challenge(written: DnsWritten) -> Option<DnsChallenge> {
    let DnsWritten { command, server, zone, key_name, key_file, algorithm, persist, wait } = written;
    let way = match server {
        _ if persist => DnsWay::Persistent,
        None => DnsWay::Command(command),
        Some(server) => {
            let key = key_name.zip(key_file);
            let key = key.map(|(name, Located { value: file, .. })| TsigKey { name, file, algorithm });
            DnsWay::Update(DnsUpdate { server, zone, key })
        }
    };
    Some(DnsChallenge { way, wait })
}

/// Converts back to parsed options, for printing.
impl From<&Acme> for AcmeWritten {
    fn from(acme: &Acme) -> Self {
        let Acme { authority, fallback, contact, key_type, folder, challenges, dns } = acme;
        let account = |account: &ExternalAccount| {
            let ExternalAccount { id, key_file } = account;
            element(ExternalAccountWritten {
                id: Some(id.clone()),
                key_file: Some(located(key_file.clone())),
            })
        };
        let fallback = fallback.as_ref().map(|authority| {
            element(FallbackWritten {
                directory: Some(authority.directory.clone()),
                ca: authority.ca.clone().map(located),
                profile: authority.profile.clone(),
                external_account: authority.external_account.as_ref().map(account),
            })
        });
        Self {
            directory: located(authority.directory.clone()),
            ca: authority.ca.clone().map(located),
            profile: authority.profile.clone(),
            external_account: authority.external_account.as_ref().map(account),
            fallback,
            contact: contact.clone(),
            key_type: *key_type,
            folder: Some(located(folder.clone())),
            challenges: challenges.iter().copied().map(located).collect(),
            dns: dns.as_ref().map(|dns| element(DnsWritten::from(dns))),
        }
    }
}

impl From<&DnsChallenge> for DnsWritten {
    fn from(DnsChallenge { way, wait }: &DnsChallenge) -> Self {
        let written = Self { wait: *wait, ..Self::default() };
        match way {
            DnsWay::Persistent => Self { persist: true, ..written },
            DnsWay::Command(command) => Self { command: command.clone(), ..written },
            DnsWay::Update(DnsUpdate { server, zone, key }) => Self {
                server: Some(*server),
                zone: zone.clone(),
                key_name: key.as_ref().map(|key| key.name.clone()),
                key_file: key.as_ref().map(|key| located(key.file.clone())),
                algorithm: key.as_ref().map(|key| key.algorithm).unwrap_or_default(),
                ..written
            },
        }
    }
}
