//! A client's TLS session in the forms that servers, templates and the log need. Shared by all requests and streams of
//! a connection.

use std::cell::OnceCell;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use config::{ClientCertFields, ClientCertificates};
use rustls::pki_types::CertificateDer;
use tls::{Agreed, VerifiedClient};

/// Longest certificates that are passed to servers. Longer ones are omitted completely, because few servers would
/// accept them.
const CERTIFICATES_BYTES_MAX: usize = 12 * 1024;

pub(crate) struct ClientTls {
    version: &'static str,
    cipher: &'static str,
    protocol: &'static str,
    server_name: Box<str>,
    /// The rule by which the client was asked for a certificate.
    asked: Arc<ClientCertificates>,
    /// Boxed, because most clients have none.
    certificate: Option<Box<PresentedCertificate>>,
}

struct PresentedCertificate {
    peer: VerifiedClient,
    /// The lines for servers that identify the certificate.
    lines: Box<[u8]>,
    /// The certificate and its chain.
    all: Box<[CertificateDer<'static>]>,
    /// The lines for servers with the certificate, once a route wants them: one cell for each form.
    fields: [OnceCell<Box<[u8]>>; 3],
}

impl ClientTls {
    pub(crate) fn new(agreed: Agreed, asked: Arc<ClientCertificates>) -> Self {
        let version = agreed.version();
        let mut chain = agreed.chain;
        let certificate = agreed.certificate.map(|certificate| {
            let peer = VerifiedClient::from_certificate(&certificate);
            let VerifiedClient { subject, fingerprint, .. } = &peer;
            // Written once for the connection, because every request to a server may carry them.
            let lines =
                format!("X-Client-Cert-Subject: {subject}\r\nX-Client-Cert-Fingerprint: {fingerprint}\r\n");
            chain.insert(0, certificate);
            let lines = lines.into_bytes().into();
            Box::new(PresentedCertificate { peer, lines, all: chain.into(), fields: Default::default() })
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

    /// Whether the session satisfies a rule: it was made with the same one, or the rule asks for no certificate.
    pub(crate) fn satisfies(&self, rule: &Arc<ClientCertificates>) -> bool {
        // Nearly always it is the same rule, which the pointer shows without comparing its content.
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

    /// The header lines for servers of a route that also wants the certificate.
    #[cold]
    pub(crate) fn lines_with(&self, wanted: ClientCertFields) -> &[u8] {
        let Some(certificate) = &self.certificate else { return b"" };
        certificate.fields[wanted as usize].get_or_init(|| certificate.write_lines(wanted))
    }

    /// The version and the cipher suite, as variables have them.
    pub(crate) fn session(&self) -> (&[u8], &[u8]) {
        (self.version.as_bytes(), self.cipher.as_bytes())
    }

    pub(crate) fn variables(&self) -> route::TlsFacts<'_> {
        let peer = self.peer();
        route::TlsFacts {
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

    pub(crate) fn entry(&self) -> telemetry::LoggedTls<'_> {
        let peer = self.peer();
        telemetry::LoggedTls {
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

    fn peer(&self) -> Option<&VerifiedClient> {
        self.certificate.as_ref().map(|certificate| &certificate.peer)
    }
}

impl PresentedCertificate {
    fn write_lines(&self, wanted: ClientCertFields) -> Box<[u8]> {
        let mut lines = self.lines.to_vec();
        let (certificate, chain) = self.all.split_at(1);
        match wanted {
            ClientCertFields::Pem => push_pem(&mut lines, certificate),
            ClientCertFields::Certificate => push_certificates(&mut lines, "Client-Cert", certificate),
            ClientCertFields::Chain => {
                push_certificates(&mut lines, "Client-Cert", certificate);
                push_certificates(&mut lines, "Client-Cert-Chain", chain);
            }
        }
        lines.into()
    }
}

/// Writes a certificate in PEM, with percent escapes because fields have no line breaks.
fn push_pem(lines: &mut Vec<u8>, certificates: &[CertificateDer<'_>]) {
    const LINE: usize = 64;
    let Some(certificate) = certificates.first().filter(|one| one.len() <= CERTIFICATES_BYTES_MAX) else {
        return;
    };
    lines.extend_from_slice(b"ssl-client-cert: -----BEGIN%20CERTIFICATE-----%0A");
    for line in BASE64_STANDARD.encode(certificate).as_bytes().chunks(LINE) {
        for byte in line {
            match byte {
                b'+' => lines.extend_from_slice(b"%2B"),
                b'/' => lines.extend_from_slice(b"%2F"),
                b'=' => lines.extend_from_slice(b"%3D"),
                byte => lines.push(*byte),
            }
        }
        lines.extend_from_slice(b"%0A");
    }
    lines.extend_from_slice(b"-----END%20CERTIFICATE-----%0A\r\n");
}

/// Writes certificates in DER as byte sequences of a structured field (RFC 9440 §2.2, §2.3; RFC 8941 §3.3.5).
fn push_certificates(lines: &mut Vec<u8>, name: &str, certificates: &[CertificateDer<'_>]) {
    let bytes: usize = certificates.iter().map(|certificate| certificate.len()).sum();
    if certificates.is_empty() || bytes > CERTIFICATES_BYTES_MAX {
        return;
    }
    let sequences: Vec<String> =
        certificates.iter().map(|one| format!(":{}:", BASE64_STANDARD.encode(one))).collect();
    lines.extend_from_slice(format!("{name}: {}\r\n", sequences.join(", ")).as_bytes());
}
