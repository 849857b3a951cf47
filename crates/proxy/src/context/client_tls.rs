//! A client's TLS session in the forms that servers, templates and the log need. It is the same for all requests of a
//! connection, and for all its streams.

use tls::{Agreed, Peer};

/// A client's TLS session, and the identity that its certificate proves.
pub(crate) struct ClientTls {
    version: &'static str,
    cipher: &'static str,
    protocol: &'static str,
    server_name: Box<str>,
    /// Most clients have none.
    certificate: Option<Box<Certificate>>,
}

struct Certificate {
    peer: Peer,
    /// What servers are told of it.
    lines: Box<[u8]>,
}

impl ClientTls {
    pub(crate) fn new(agreed: Agreed) -> Self {
        let certificate = agreed.certificate.as_ref().map(|certificate| {
            let peer = Peer::of(certificate);
            let Peer { subject, fingerprint } = &peer;
            let lines =
                format!("X-Client-Cert-Subject: {subject}\r\nX-Client-Cert-Fingerprint: {fingerprint}\r\n");
            Box::new(Certificate { peer, lines: lines.into_bytes().into() })
        });
        Self {
            version: agreed.version(),
            cipher: agreed.cipher,
            protocol: agreed.protocol,
            server_name: agreed.server_name.unwrap_or_default(),
            certificate,
        }
    }

    /// The header lines about the TLS session, for requests to servers.
    pub(crate) fn lines(&self) -> &[u8] {
        self.certificate.as_ref().map_or(b"", |certificate| &certificate.lines)
    }

    /// The TLS session for templates.
    pub(crate) fn variables(&self) -> route::ClientTls<'_> {
        let peer = self.peer();
        route::ClientTls {
            server_name: &self.server_name,
            subject: peer.map_or("", |peer| &peer.subject),
            fingerprint: peer.map_or("", |peer| &peer.fingerprint),
            version: self.version,
            cipher: self.cipher,
            alpn: self.protocol,
        }
    }

    /// The TLS session for the access log.
    pub(crate) fn entry(&self) -> telemetry::ClientTls<'_> {
        telemetry::ClientTls {
            version: self.version,
            cipher: self.cipher,
            server_name: &self.server_name,
            subject: self.peer().map_or("", |peer| &peer.subject),
        }
    }

    fn peer(&self) -> Option<&Peer> {
        self.certificate.as_ref().map(|certificate| &certificate.peer)
    }
}
