//! Finds the names of automatic certificates, and converts their options to settings.

use ::route::{HostRule, RouteRule};

use crate::option::kind::Located;
use crate::option::table::Element;
use crate::tables::acme::options::{
    AcmeWritten, DnsWritten, ExternalAccountWritten, FallbackWritten, certificate_name,
};
use crate::tables::acme::{Acme, Authority, DnsChallenge, DnsUpdate, DnsWay, ExternalAccount, TsigKey};
use crate::tables::listen::Listener;
use crate::tables::route::Route;
use crate::tables::tls::Certificates;

/// The names that routes give to a listener, and the patterns that no certificate can have.
pub(crate) fn names_of_routes<'r>(
    listener: usize,
    routes: impl Iterator<Item = &'r Route>,
) -> (Vec<String>, Vec<String>) {
    let (mut names, mut patterns) = (Vec::new(), Vec::new());
    let is_for = |rule: &&RouteRule| rule.listeners.is_empty() || rule.listeners.contains(&listener);
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
        if let Certificates::Automatic { names, folder, .. } = &mut tls.certificates {
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
        ports_forwarded,
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
        ports_forwarded,
        dns,
    })
}

fn authority(
    directory: crate::tables::jwt::KeyUrl,
    ca: crate::option::path::Path,
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
