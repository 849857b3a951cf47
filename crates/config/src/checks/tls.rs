//! Checks relations between the options of TLS, and collects the files that they name.

use std::path::PathBuf;

use mistake::Mistake;

use crate::document::reader::{Reader, Span, refuse};
use crate::option::kind::Located;
use crate::option::path::Path;
use crate::option::server::Scheme;
use crate::option::table::Element;
use crate::tables::file::File;
use crate::tables::listen::Listen;
use crate::tables::tls::negotiation::TlsVersion;
use crate::tables::tls::options::{CertificateWritten, ServerTlsWritten, UpstreamTlsWritten};
use crate::tables::tls::{Hsts, client_certificates, negotiation_options};
use crate::tables::upstream::options::UpstreamWritten;

/// Adds mistakes about relations between the options of TLS. Tables with a mistake are skipped: what seems to be
/// missing may have been rejected.
pub(crate) fn check_tls(file: &File, reader: &mut Reader<'_>) {
    if !reader.is_whole() {
        return;
    }
    for Element { value: listen, is_intact, .. } in &file.listen {
        if let Some(tls) = listen.tls.as_ref().filter(|tls| tls.is_intact) {
            check_certificates(tls, reader);
            negotiation_options::check(&tls.value.negotiation, &tls.at, reader);
            client_certificates::check_rules(&tls.value.client_rules, reader);
        }
        if *is_intact {
            check_listener(listen, !file.trusted_proxies.is_empty(), reader);
        }
    }
    let has_https = file.listen.iter().any(|listen| listen.value.tls.is_some());
    let redirects = file.listen.iter().find(|listen| listen.value.redirect_to_https.value);
    let is_behind = |listen: &Element<Listen>| !listen.value.proxy_protocol.is_empty();
    let has_https = has_https || !file.trusted_proxies.is_empty() || file.listen.iter().any(is_behind);
    if let Some(listen) = redirects.filter(|_| !has_https && !reader.has_mistakes()) {
        let at = &listen.value.redirect_to_https.at;
        let warning = reader.mistake(at, "redirect_to_https: no listener has tls");
        reader.warn(warning.expecting("a [[listen]] with tls, for the redirected clients"));
    }
    let has_http3 = file.listen.iter().any(|listen| listen.value.http3.value);
    if let Some(key) = file.quic_key_file.as_ref().filter(|_| !has_http3 && !reader.has_mistakes()) {
        let warning = reader.mistake(&key.at, "quic_key_file: no listener has http3");
        reader.warn(warning.expecting("a [[listen]] with http3, or no key"));
    }
    for (_, _, upstream) in &file.upstreams {
        if let Some(tls) = upstream.tls.as_ref().filter(|tls| tls.is_intact) {
            check_upstream(upstream, tls, reader);
        }
    }
}

pub(crate) fn check_certificates(tls: &Element<ServerTlsWritten>, reader: &mut Reader<'_>) {
    let Element { value: written, at, .. } = tls;
    check_pair(&written.cert, &written.key, reader);
    check_passphrase(&written.passphrase, &written.key, reader);
    if let (Some(ocsp), None) = (&written.ocsp, &written.cert) {
        refuse(&ocsp.at, "ocsp needs cert", "the certificate that the response is about", reader);
    }
    let has_pair = written.cert.is_some() || written.key.is_some() || written.ocsp.is_some();
    let ways = [
        has_pair,
        !written.certificates.listed().is_empty(),
        written.certificates.is_automatic(),
        written.self_signed,
    ];
    const WAYS: &str = "cert and key, certificates (a list or \"auto\"), or self_signed = true";
    match ways.iter().filter(|way| **way).count() {
        0 => refuse(at, "tls has no certificate", WAYS, reader),
        1 => {}
        _ => refuse(at, "tls has certificates in more than one way", &format!("one of {WAYS}"), reader),
    }
}

pub(crate) fn check_pair(cert: &Path, key: &Path, reader: &mut Reader<'_>) {
    match (cert, key) {
        (Some(cert), None) => refuse(&cert.at, "cert needs key", "the key as well", reader),
        (None, Some(key)) => refuse(&key.at, "key needs cert", "the certificate as well", reader),
        _ => {}
    }
}

pub(crate) fn check_passphrase(passphrase: &Path, key: &Path, reader: &mut Reader<'_>) {
    if let (Some(passphrase), None) = (passphrase, key) {
        refuse(&passphrase.at, "passphrase needs key", "the key that it decrypts", reader);
    }
}

/// The minimum for lists of preloaded hosts, by the submission form of hstspreload.org.
pub(crate) const PRELOAD_SECONDS: u64 = 365 * 24 * 3600;

pub(crate) fn check_listener(listen: &Listen, has_proxies_in_front: bool, reader: &mut Reader<'_>) {
    let Listen { tls, redirect_to_https, hsts, tcp, .. } = listen;
    if let Some(tcp) = tcp {
        let message = "tcp forwards bytes: it has no responses for redirect_to_https or hsts";
        if redirect_to_https.value || hsts.is_some() {
            refuse(&tcp.at, message, "neither of them", reader);
        }
    }
    if tls.is_some() && redirect_to_https.value {
        let message = "redirect_to_https cannot be combined with tls: it would redirect in a loop";
        refuse(&redirect_to_https.at, message, "it on a listener without tls", reader);
    }
    check_http3(listen, reader);
    let is_unix = listen.address.as_ref().is_some_and(|address| address.value.tcp().is_none());
    if let Some(Located { at, .. }) = &listen.connections_per_client
        && is_unix
        && listen.proxy_protocol.is_empty()
    {
        let message = "connections_per_client: the clients of a Unix socket have no addresses";
        refuse(at, message, "proxy_protocol as well, or an address with a port", reader);
    }
    let Some(Located { value, at }) = hsts else { return };
    if tls.is_none() && !has_proxies_in_front && listen.proxy_protocol.is_empty() {
        // RFC 6797 §7.2: not over plain HTTP, where browsers ignore it.
        let expected = "it on a listener with tls, or trusted_proxies or proxy_protocol to report clients \
                        that use https";
        refuse(at, "hsts needs tls", expected, reader);
    }
    let Hsts { max_age, include_subdomains, preload } = value;
    if *preload && (!include_subdomains || max_age.as_secs() < PRELOAD_SECONDS) {
        let expected = "max_age of at least 365d and include_subdomains = true beside it";
        refuse(at, "hsts: preload alone is not accepted", expected, reader);
    }
}

/// Where HTTP/3 cannot be spoken, and why.
pub(crate) fn check_http3(listen: &Listen, reader: &mut Reader<'_>) {
    let Listen { address, proxy_protocol, tcp, passthrough, tls, http3, .. } = listen;
    if !http3.value {
        for (name, rate) in
            [("datagram_rate", &listen.datagram_rate), ("datagram_upload_rate", &listen.datagram_upload_rate)]
        {
            if let Some(Located { at, .. }) = rate {
                let message = format!("{name} needs http3: only HTTP/3 has datagrams");
                refuse(at, &message, "http3 = true, or rate for bodies", reader);
            }
        }
        return;
    }
    let negotiation = |tls: &Element<ServerTlsWritten>| {
        negotiation_options::settings(tls.value.negotiation.clone()).permits(TlsVersion::Tls13)
    };
    let is_unix = address.as_ref().is_some_and(|address| address.value.tcp().is_none());
    let refusals = [
        (is_unix, "http3 cannot use a Unix socket: QUIC needs UDP", "an address with a port"),
        (tcp.is_some(), "http3 cannot be combined with tcp, which forwards TCP connections", "one of them"),
        (
            !passthrough.is_empty(),
            "http3 cannot be combined with passthrough, which forwards TLS over TCP",
            "one of them, or two listeners",
        ),
        (tls.is_none(), "http3 needs tls: QUIC is always encrypted", "it on a listener with tls"),
        (
            !proxy_protocol.is_empty(),
            "http3 cannot be combined with proxy_protocol, which has no form for QUIC",
            "one of them, or two listeners",
        ),
        (
            tls.as_ref().is_some_and(|tls| !negotiation(tls)),
            "http3 needs TLS 1.3, which tls does not permit",
            "max_version = \"1.3\"",
        ),
        (
            tls.as_ref().is_some_and(|tls| !tls.value.client_rules.is_empty()),
            "http3 cannot be combined with client_certificates_by_name: a QUIC handshake begins before the \
             name is known",
            "client_certificates for all names, or two listeners",
        ),
    ];
    if let Some((_, message, expected)) = refusals.into_iter().find(|(is_so, _, _)| *is_so) {
        refuse(&http3.at, message, expected, reader);
    }
}

pub(crate) fn check_upstream(
    upstream: &UpstreamWritten,
    tls: &Element<UpstreamTlsWritten>,
    reader: &mut Reader<'_>,
) {
    let UpstreamTlsWritten { ca, name, verify, cert, key, passphrase, negotiation, key_log: _ } = &tls.value;
    check_pair(cert, key, reader);
    check_passphrase(passphrase, key, reader);
    negotiation_options::check(negotiation, &tls.at, reader);
    if reader.has_mistakes() {
        return;
    }
    let mut warn = |at: &Span, message: &str| {
        let warning = reader.mistake(at, message);
        reader.warn(warning);
    };
    if upstream.servers.iter().all(|server| matches!(server.value.scheme, Scheme::Http | Scheme::Fcgi)) {
        return warn(&tls.at, "tls: this upstream has no https server");
    }
    if verify.value {
        return;
    }
    if let Some(ca) = ca {
        warn(&ca.at, "ca is not used: verify = false accepts any certificate");
    } else if name.is_some() {
        warn(&verify.at, "verify = false: name is sent, but not verified");
    } else {
        warn(&verify.at, "verify = false: an attacker on the network can read and change everything");
    }
}

/// All files that TLS needs, with their positions; and the position of each table that names some.
pub(crate) fn named_files(file: &File, reader: &Reader<'_>) -> Vec<NamedFile> {
    let mut files = Vec::new();
    for (index, listen) in file.listen.iter().enumerate() {
        let Some(Element { value: tls, at, .. }) = &listen.value.tls else { continue };
        let certificates = tls.certificates.listed().iter().map(|Element { value, .. }| value);
        let certificates =
            certificates.flat_map(|CertificateWritten { cert, key, passphrase, ocsp, names: _ }| {
                [("cert", cert), ("key", key), ("passphrase", passphrase), ("ocsp", ocsp)]
            });
        let own =
            [("cert", &tls.cert), ("key", &tls.key), ("passphrase", &tls.passphrase), ("ocsp", &tls.ocsp)];
        let of_rules = tls.client_rules.iter().map(|rule| &rule.value.trust);
        let trusts = tls.client_certificates.iter().map(|clients| &clients.value.trust).chain(of_rules);
        let trusts = trusts.flat_map(client_certificates::files);
        let options = own.into_iter().chain(certificates);
        let options = options.filter_map(|(option, path)| Some((option, path.as_ref()?))).chain(trusts);
        add_files(&mut files, Owner::Listener(index), at, options, reader);
    }
    for (index, (name_at, _, upstream)) in file.upstreams.iter().enumerate() {
        let (at, tls) = match &upstream.tls {
            Some(Element { value, at, .. }) => (at, Some(value)),
            None => (name_at, None),
        };
        let options = tls.into_iter();
        let options = options.flat_map(|tls| {
            [("ca", &tls.ca), ("cert", &tls.cert), ("key", &tls.key), ("passphrase", &tls.passphrase)]
        });
        let options = options.filter_map(|(option, path)| Some((option, path.as_ref()?)));
        add_files(&mut files, Owner::Upstream(index), at, options, reader);
    }
    if let Some(Element { value: peers, at, .. }) =
        file.cache.as_ref().and_then(|cache| cache.value.peers.as_ref())
    {
        // The listener behind the others. The upstream has the same files.
        add_files(&mut files, Owner::Listener(file.listen.len()), at, peers.files(), reader);
    }
    files
}

pub(crate) fn add_files<'w>(
    files: &mut Vec<NamedFile>,
    owner: Owner,
    at: &Span,
    options: impl Iterator<Item = (&'static str, &'w Located<PathBuf>)>,
    reader: &Reader<'_>,
) {
    for (option, Located { value, at }) in options {
        files.push(NamedFile { owner, path: Some(value.clone()), option, place: reader.mistake(at, "") });
    }
    files.push(NamedFile { owner, path: None, option: "tls", place: reader.mistake(at, "") });
}

/// A file that the configuration names, with its position.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedFile {
    pub(crate) owner: Owner,
    /// The path; `None` stands for the owner as a whole.
    pub(crate) path: Option<PathBuf>,
    pub(crate) option: &'static str,
    pub(crate) place: Mistake,
}

/// The part of the configuration that names a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A listener, as an index into `Settings::listeners`.
    Listener(usize),
    /// An upstream, as an index into `Settings::upstreams`.
    Upstream(usize),
}
