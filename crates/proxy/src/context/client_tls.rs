//! A client's TLS session in the forms that servers, templates and the log need. It is the same for all requests of a
//! connection, and for all its streams.

use std::cell::OnceCell;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use config::{ClientCertFields, ClientCertificates};
use rustls::pki_types::CertificateDer;
use tls::{Agreed, Peer};

/// The longest certificates that servers are told of. What is longer is left out as a whole, as few servers would take it.
const CERTIFICATES_BYTES_MAX: usize = 12 * 1024;

/// A client's TLS session, and the identity that its certificate proves.
pub(crate) struct ClientTls {
    version: &'static str,
    cipher: &'static str,
    protocol: &'static str,
    server_name: Box<str>,
    /// Which certificate it was asked for.
    asked: Arc<ClientCertificates>,
    /// Most clients have none.
    certificate: Option<Box<Certificate>>,
}

struct Certificate {
    peer: Peer,
    /// What servers are told of it.
    lines: Box<[u8]>,
    /// The certificate, and those behind it.
    all: Box<[CertificateDer<'static>]>,
    /// What servers are told of it and of them, once a route wants that: without the chain, and with it.
    fields: [OnceCell<Box<[u8]>>; 2],
}

impl ClientTls {
    pub(crate) fn new(agreed: Agreed, asked: Arc<ClientCertificates>) -> Self {
        let version = agreed.version();
        let mut chain = agreed.chain;
        let certificate = agreed.certificate.map(|certificate| {
            let peer = Peer::of(&certificate);
            let Peer { subject, fingerprint, .. } = &peer;
            let lines =
                format!("X-Client-Cert-Subject: {subject}\r\nX-Client-Cert-Fingerprint: {fingerprint}\r\n");
            chain.insert(0, certificate);
            let lines = lines.into_bytes().into();
            Box::new(Certificate { peer, lines, all: chain.into(), fields: Default::default() })
        });
        Self {
            version,
            cipher: agreed.cipher,
            protocol: agreed.protocol,
            server_name: agreed.server_name.unwrap_or_default(),
            asked,
            certificate,
        }
    }

    /// Whether the session is as good as one that was made with this rule: the same one, or a rule that asks for nothing.
    pub(crate) fn satisfies(&self, rule: &Arc<ClientCertificates>) -> bool {
        Arc::ptr_eq(&self.asked, rule) || **rule == ClientCertificates::None || self.asked == *rule
    }

    /// The header lines about the TLS session, for requests to servers.
    pub(crate) fn lines(&self) -> &[u8] {
        self.certificate.as_ref().map_or(b"", |certificate| &certificate.lines)
    }

    /// Whether the certificate has this alternative name, of a host or an address.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.peer().is_some_and(|peer| peer.is_named(name))
    }

    /// The header lines for servers of a route that wants the certificate as well.
    #[cold]
    pub(crate) fn lines_with(&self, wanted: ClientCertFields) -> &[u8] {
        let Some(certificate) = &self.certificate else { return b"" };
        let has_chain = wanted == ClientCertFields::Chain;
        certificate.fields[usize::from(has_chain)].get_or_init(|| certificate.write_lines(has_chain))
    }

    /// The TLS session for templates.
    pub(crate) fn variables(&self) -> route::ClientTls<'_> {
        let peer = self.peer();
        route::ClientTls {
            server_name: &self.server_name,
            subject: peer.map_or("", |peer| &peer.subject),
            issuer: peer.map_or("", |peer| &peer.issuer),
            serial: peer.map_or("", |peer| &peer.serial),
            names: peer.map_or("", |peer| &peer.names),
            fingerprint: peer.map_or("", |peer| &peer.fingerprint),
            version: self.version,
            cipher: self.cipher,
            alpn: self.protocol,
        }
    }

    /// The TLS session for the access log.
    pub(crate) fn entry(&self) -> telemetry::ClientTls<'_> {
        let peer = self.peer();
        telemetry::ClientTls {
            version: self.version,
            cipher: self.cipher,
            server_name: &self.server_name,
            subject: peer.map_or("", |peer| &peer.subject),
            issuer: peer.map_or("", |peer| &peer.issuer),
            serial: peer.map_or("", |peer| &peer.serial),
            names: peer.map_or("", |peer| &peer.names),
            fingerprint: peer.map_or("", |peer| &peer.fingerprint),
        }
    }

    fn peer(&self) -> Option<&Peer> {
        self.certificate.as_ref().map(|certificate| &certificate.peer)
    }
}

impl Certificate {
    /// RFC 9440 §2.2, §2.3: certificates in DER as byte sequences of a structured field (RFC 8941 §3.3.5).
    fn write_lines(&self, has_chain: bool) -> Box<[u8]> {
        let mut lines = self.lines.to_vec();
        let (certificate, chain) = self.all.split_at(1);
        push_certificates(&mut lines, "Client-Cert", certificate);
        if has_chain {
            push_certificates(&mut lines, "Client-Cert-Chain", chain);
        }
        lines.into()
    }
}

fn push_certificates(lines: &mut Vec<u8>, name: &str, certificates: &[CertificateDer<'_>]) {
    let bytes: usize = certificates.iter().map(|certificate| certificate.len()).sum();
    if certificates.is_empty() || bytes > CERTIFICATES_BYTES_MAX {
        return;
    }
    let sequences: Vec<String> =
        certificates.iter().map(|one| format!(":{}:", BASE64_STANDARD.encode(one))).collect();
    lines.extend_from_slice(format!("{name}: {}\r\n", sequences.join(", ")).as_bytes());
}
