//! Converts the options of TLS to settings.

use crate::option::table::Element;
use crate::tables::listen::{Listen, Listener};
use crate::tables::shaping::DatagramRates;
use crate::tables::tls::options::{
    CertificateWritten, CertificatesWritten, ServerTlsWritten, UpstreamTlsWritten,
};
use crate::tables::tls::{
    CertificateFiles, Certificates, KeyPair, ListenerTls, UpstreamTls, client_certificates,
    negotiation_options,
};

/// Converts a listener without mistakes, except its name and its upstream.
pub(crate) fn listener(written: Listen) -> Option<Listener> {
    let Listen {
        address,
        proxy_protocol,
        tls,
        redirect_to_https,
        hsts,
        http2,
        http3,
        connections_per_client,
        bandwidths,
        link,
        datagram_rate,
        datagram_upload_rate,
        ..
    } = written;
    let datagram_rates = DatagramRates {
        down: datagram_rate.map(|rate| rate.value),
        up: datagram_upload_rate.map(|rate| rate.value),
    };
    let tls = match tls {
        Some(tls) => Some(server_tls(tls.value)?),
        None => None,
    };
    Some(Listener {
        tls,
        redirect_to_https: redirect_to_https.value,
        hsts: hsts.map(|hsts| hsts.value),
        http2,
        http3: http3.value,
        proxy_protocol,
        connections_per_client: connections_per_client.map(|limit| limit.value),
        bandwidths,
        link,
        datagram_rates,
        ..Listener::at(address?.value)
    })
}

fn server_tls(written: ServerTlsWritten) -> Option<ListenerTls> {
    let ServerTlsWritten {
        cert,
        key,
        passphrase,
        ocsp,
        certificates,
        names,
        one_certificate,
        self_signed,
        unknown_names,
        client_certificates,
        client_rules,
        negotiation,
        key_log,
    } = written;
    let certificates = match certificates {
        _ if self_signed => Certificates::SelfSigned,
        // The rest of it is known when the routes are: `acme::resolve::complete`.
        CertificatesWritten::Automatic => Certificates::Automatic {
            names: names.into_iter().map(|name| name.value).collect(),
            folder: std::path::PathBuf::new(),
            is_one: one_certificate.is_some_and(|one| one.value),
        },
        CertificatesWritten::Listed(listed) if listed.is_empty() => {
            let own = CertificateWritten { cert, key, passphrase, ocsp, names: Vec::new() };
            Certificates::Files(vec![certificate_files(own)?])
        }
        CertificatesWritten::Listed(listed) => {
            let files = listed.into_iter().map(|written| certificate_files(written.value));
            Certificates::Files(files.collect::<Option<_>>()?)
        }
    };
    let client_rules = client_rules.into_iter().map(|rule| client_certificates::rule(rule.value));
    Some(ListenerTls {
        certificates,
        unknown_names,
        client_certificates: client_certificates::settings(client_certificates)?,
        client_rules: client_rules.collect::<Option<_>>()?,
        negotiation: negotiation_options::settings(negotiation),
        key_log,
    })
}

fn certificate_files(written: CertificateWritten) -> Option<CertificateFiles> {
    let CertificateWritten { cert, key, passphrase, ocsp, names } = written;
    let passphrase = passphrase.map(|passphrase| passphrase.value);
    let pair = KeyPair { cert: cert?.value, key: key?.value, passphrase };
    Some(CertificateFiles { pair, ocsp: ocsp.map(|ocsp| ocsp.value), names })
}

/// Converts an upstream's `tls` option without mistakes.
pub(crate) fn upstream_tls(written: Option<Element<UpstreamTlsWritten>>) -> UpstreamTls {
    let Some(Element { value, .. }) = written else { return UpstreamTls::default() };
    let UpstreamTlsWritten { ca, name, verify, cert, key, passphrase, negotiation, key_log } = value;
    let passphrase = passphrase.map(|passphrase| passphrase.value);
    let pair = cert.zip(key).map(|(cert, key)| KeyPair { cert: cert.value, key: key.value, passphrase });
    UpstreamTls {
        ca: ca.map(|ca| ca.value),
        name,
        verify: verify.value,
        certificate: pair,
        negotiation: negotiation_options::settings(negotiation),
        key_log,
        ..UpstreamTls::default()
    }
}
