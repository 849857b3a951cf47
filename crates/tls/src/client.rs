//! TLS to servers: trusted CAs, client certificate, and the name in each server's certificate.

use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use arc_swap::ArcSwap;
use config::{Check, KeyPair, Probe, Protocol, Scheme, Server, ServerHost, Upstream, UpstreamTls};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption, WebPkiServerVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::file::{self, WatchedFiles};
use crate::key_log;
use crate::pair;
use crate::problem::{CertificateFault, CertificateProblem};
use crate::provider;
use crate::quic::{H3, QuicClient};
use crate::server::{Reload, now};

/// Servers whose sessions are kept, a few tickets for each.
const SESSIONS: usize = 1024;

/// The TLS client configuration of one upstream, shared by all workers.
#[derive(Debug)]
pub struct ClientSide {
    config: ArcSwap<ClientConfig>,
    tls: UpstreamTls,
    protocol: Protocol,
    /// By server index; `None` for servers without TLS.
    names: Vec<Option<ServerName<'static>>>,
    watched: Mutex<WatchedFiles>,
    remarks: Vec<CertificateProblem>,
}

impl ClientSide {
    /// Loads the TLS configuration of an upstream. `None` if none of its servers uses TLS.
    ///
    /// # Errors
    /// All problems that make the configuration unusable.
    pub fn load(upstream: &Upstream) -> Result<Option<Self>, Vec<CertificateProblem>> {
        let Upstream { servers, tls, protocol, .. } = upstream;
        // A health check may use TLS where requests do not.
        let is_checked = matches!(upstream.check, Some(Check { probe: Probe::Tls, .. }));
        let has_tls = |server: &Server| is_checked || server.scheme == Scheme::Https;
        if !servers.iter().any(has_tls) {
            return Ok(None);
        }
        let names = servers.iter().map(|server| has_tls(server).then(|| name(server, tls)).transpose());
        let names: Result<Vec<_>, CertificateProblem> = names.collect();
        let watched = WatchedFiles::new(
            tls.ca.iter().chain(tls.certificate.iter().flat_map(KeyPair::files)).cloned().collect(),
        );
        match (names, client_config(tls, *protocol)) {
            (Ok(names), Ok((config, remarks))) => Ok(Some(Self {
                config: ArcSwap::from_pointee(config),
                tls: tls.clone(),
                protocol: *protocol,
                names,
                watched: Mutex::new(watched),
                remarks,
            })),
            (names, config) => {
                Err(names.err().into_iter().chain(config.err().into_iter().flatten()).collect())
            }
        }
    }

    /// The rustls configuration for a handshake. Get it for each connection, because it changes with its files.
    pub fn config(&self) -> Arc<ClientConfig> {
        self.config.load_full()
    }

    /// The configuration for a QUIC handshake. `None` if the library has no suite for it.
    pub fn quic(&self) -> Option<Arc<dyn quinn_proto::crypto::ClientConfig>> {
        Some(Arc::new(QuicClient::new(self.config())?))
    }

    /// The name that is sent to the server at this index (SNI) and that its certificate must contain. `None` without
    /// TLS.
    pub fn name(&self, server: usize) -> Option<&ServerName<'static>> {
        self.names.get(server)?.as_ref()
    }

    /// The protocol that ALPN offers.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Problems of the client certificate that do not prevent its use.
    pub fn remarks(&self) -> &[CertificateProblem] {
        &self.remarks
    }

    /// The table of the options, for messages that name one.
    pub fn table(&self) -> &'static str {
        self.tls.table
    }

    /// Checks the files, and reloads them if they changed, but not since the previous tick.
    pub fn tick(&self) -> Reload {
        self.reload_where(WatchedFiles::has_settled_change)
    }

    pub fn reload(&self) -> Reload {
        self.reload_where(|_| true)
    }

    fn reload_where(&self, is_due: impl Fn(&mut WatchedFiles) -> bool) -> Reload {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_due(&mut watched) {
            return Reload::default();
        }
        watched.mark_read();
        match client_config(&self.tls, self.protocol) {
            Ok((config, problems)) => {
                self.config.store(Arc::new(config));
                Reload { taken: watched.paths().to_vec(), problems }
            }
            Err(problems) => Reload { taken: Vec::new(), problems },
        }
    }
}

fn name(server: &Server, tls: &UpstreamTls) -> Result<ServerName<'static>, CertificateProblem> {
    let written = match (&tls.name, &server.host) {
        (Some(name), _) | (None, ServerHost::Name(name)) => name.trim_end_matches('.').to_owned(),
        (None, ServerHost::Service(name)) => domain_of(name.trim_end_matches('.')).to_owned(),
        // Only if certificates are not verified: otherwise the configuration must name the host.
        (None, ServerHost::Catalog(service)) => service.name.clone(),
        // Only a health check uses TLS over a Unix socket.
        (None, ServerHost::Unix(_)) => "localhost".to_owned(),
        (None, ServerHost::Address(address)) => return Ok(ServerName::IpAddress((*address).into())),
    };
    let name = ServerName::try_from(written.clone());
    name.map_err(|_| CertificateProblem { file: None, fault: CertificateFault::NotAName(written) })
}

/// The domain of a service: the part of its name behind `_http._tcp.`. RFC 6125 §6.2.1: the certificate must be for the
/// configured domain, because records may name any host.
fn domain_of(mut service: &str) -> &str {
    while let Some((label, rest)) = service.split_once('.')
        && label.starts_with('_')
    {
        service = rest;
    }
    service
}

fn client_config(
    tls: &UpstreamTls,
    protocol: Protocol,
) -> Result<(ClientConfig, Vec<CertificateProblem>), Vec<CertificateProblem>> {
    let certificate = tls.certificate.as_ref().map(|pair| pair::load(pair, now())).transpose();
    let (verifier, certificate) = match (verifier(tls), certificate) {
        (Ok(verifier), Ok(certificate)) => (verifier, certificate),
        (verifier, certificate) => {
            return Err(verifier.err().into_iter().chain(certificate.err().into_iter().flatten()).collect());
        }
    };
    let builder = ClientConfig::builder_with_provider(provider::for_servers(&tls.negotiation));
    let builder = builder.with_protocol_versions(&provider::versions(&tls.negotiation));
    let builder = builder.map_err(|error| vec![refused(&error)])?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let (mut config, mut remarks) = match certificate {
        Some((certified, remarks)) => (builder.with_client_cert_resolver(shown(certified)), remarks),
        None => (builder.with_no_client_auth(), Vec::new()),
    };
    config.alpn_protocols = match protocol {
        Protocol::Http1 => vec![b"http/1.1".to_vec()],
        Protocol::Http2 => vec![b"h2".to_vec()],
        Protocol::Http3 => vec![H3.into()],
        // No such server has TLS.
        Protocol::Fastcgi => Vec::new(),
    };
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    // RFC 8446 §8: early data could be replayed.
    config.enable_early_data = false;
    config.enable_secret_extraction = true;
    if tls.key_log {
        config.key_log = key_log::open(&mut remarks);
    }
    Ok((config, remarks))
}

fn shown(certified: CertifiedKey) -> Arc<dyn ResolvesClientCert> {
    Arc::new(SingleCertAndKey::from(certified))
}

/// Checks that a file has certificates of CAs.
///
/// # Errors
/// The problem with the file.
pub fn check_authorities(ca: &Path) -> Result<(), CertificateProblem> {
    file::roots(ca, file::certificates(ca)?).map(drop)
}

/// Checks that a text in PEM has certificates of CAs; without one, that the system has some.
///
/// # Errors
/// The problem with the text.
pub fn check_authorities_pem(pem: Option<&[u8]>) -> Result<(), CertificateProblem> {
    let Some(pem) = pem else { return system_roots().map(drop) };
    let name = Path::new("the list of CAs");
    file::roots(name, file::certificates_in(name, pem)?).map(drop)
}

fn verifier(tls: &UpstreamTls) -> Result<Arc<dyn ServerCertVerifier>, CertificateProblem> {
    if !tls.verify {
        let algorithms = provider::for_certificates().signature_verification_algorithms;
        return Ok(Arc::new(AnyCertificate(algorithms)));
    }
    let roots = match &tls.ca {
        Some(path) => Arc::new(file::roots(path, file::certificates(path)?)?),
        None => system_roots()?,
    };
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider::for_certificates());
    match verifier.build() {
        Ok(verifier) => Ok(verifier),
        Err(error) => Err(CertificateProblem {
            file: tls.ca.clone(),
            fault: CertificateFault::Refused(error.to_string()),
        }),
    }
}

/// Read once: there are hundreds of them, and they change only with the system's updates.
fn system_roots() -> Result<Arc<RootCertStore>, CertificateProblem> {
    static ROOTS: LazyLock<Result<Arc<RootCertStore>, CertificateProblem>> = LazyLock::new(|| {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let errors: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
            let reason = if errors.is_empty() { "none was found".to_owned() } else { errors.join(", ") };
            return Err(CertificateProblem { file: None, fault: CertificateFault::NoSystemRoots(reason) });
        }
        Ok(Arc::new(roots))
    });
    ROOTS.clone()
}

fn refused(error: &Error) -> CertificateProblem {
    CertificateProblem { file: None, fault: CertificateFault::Refused(error.to_string()) }
}

/// Accepts every certificate, for `verify = false`. The server still has to prove that it has the key.
#[derive(Debug)]
struct AnyCertificate(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc6125_6_2_1_the_configuration_names_the_service() {
        for (service, expected) in [
            ("_https._tcp.app.example", "app.example"),
            ("web.service.consul", "web.service.consul"),
            ("_https._tcp", "_tcp"),
        ] {
            assert_eq!(domain_of(service), expected);
        }
    }
}
