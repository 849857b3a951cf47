//! TLS configuration of a run: versions, cipher suites and trust. Each connection has its own session cache for each
//! server, like a separate client: a ticket is valid only for the server that issued it.

use std::cell::OnceCell;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, CipherSuite, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    SupportedCipherSuite, SupportedProtocolVersion,
};

use crate::error::Error;
use crate::plan::{LoadPlan, Tls, TlsVersion};

/// Sessions kept for one server, each used once: as many as a server issues at once.
const SESSIONS: usize = 8;

pub(crate) fn config(plan: &LoadPlan) -> Result<ClientConfig, Error> {
    let tls = &plan.tls;
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites = suites(tls, provider.cipher_suites)?;
    let versions = versions(&provider.cipher_suites);
    if plan.http3 && !versions.contains(&&rustls::version::TLS13) {
        return Err(refused("--cipher", "HTTP/3 has only cipher suites of TLS 1.3".to_owned()));
    }
    let algorithms = provider.signature_verification_algorithms;
    let provider = Arc::new(provider);
    let verifier: Arc<dyn ServerCertVerifier> = match (tls.verify, &tls.ca) {
        (false, _) => Arc::new(Anybody { algorithms }),
        (true, None) => web_pki(roots_of_the_system()?, &provider)?,
        (true, Some(file)) => Arc::new(NamedVerifier::read(file, &provider)?),
    };
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&versions);
    let builder = builder.map_err(|error| refused("the TLS settings", error.to_string()))?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = match &tls.certificate {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let (chain, key) = identity(file, tls.key.as_deref().unwrap_or(file))?;
            let config = builder.with_client_auth_cert(chain, key);
            config.map_err(|error| refused("--cert", format!("{}: {error}", file.display())))?
        }
    };
    let protocol: &[u8] = match plan {
        LoadPlan { http3: true, .. } => b"h3",
        LoadPlan { http2: true, .. } => b"h2",
        _ => b"http/1.1",
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Session caches of one client, one for each server.
#[derive(Debug)]
pub(crate) struct Sessions {
    configs: Box<[OnceCell<Arc<ClientConfig>>]>,
}

impl Sessions {
    pub(crate) fn new(servers: usize) -> Self {
        Self { configs: (0..servers).map(|_| OnceCell::new()).collect() }
    }

    /// The run's configuration with this client's session cache for a server.
    pub(crate) fn config(&self, server: usize, run: &ClientConfig, plan: &LoadPlan) -> Arc<ClientConfig> {
        let own = self.configs[server].get_or_init(|| {
            let mut config = run.clone();
            if plan.tls.resume {
                config.resumption = Resumption::in_memory_sessions(SESSIONS);
            }
            Arc::new(config)
        });
        Arc::clone(own)
    }
}

/// IANA name of a cipher suite.
pub(crate) fn name(suite: CipherSuite) -> String {
    // Only the library adds the version 1.3 to the name.
    suite.as_str().map_or_else(|| format!("{suite:?}"), |name| name.replacen("TLS13_", "TLS_", 1))
}

fn refused(what: &'static str, reason: String) -> Error {
    Error::Tls { what, reason }
}

fn suites(tls: &Tls, all: Vec<SupportedCipherSuite>) -> Result<Vec<SupportedCipherSuite>, Error> {
    let in_version = |suite: &SupportedCipherSuite| match (tls.version_max, suite) {
        (Some(TlsVersion::Tls12), SupportedCipherSuite::Tls13(_)) => false,
        (Some(TlsVersion::Tls12 | TlsVersion::Tls13) | None, _) => true,
    };
    let names: Vec<String> =
        all.iter().filter(|suite| in_version(suite)).map(|suite| name(suite.suite())).collect();
    let chosen: Vec<SupportedCipherSuite> = all
        .into_iter()
        .filter(in_version)
        .filter(|suite| {
            tls.cipher.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(&name(suite.suite())))
        })
        .collect();
    match &tls.cipher {
        Some(cipher) if chosen.is_empty() => {
            Err(refused("--cipher", format!("{cipher:?} is not one of {}", names.join(", "))))
        }
        _ => Ok(chosen),
    }
}

fn versions(suites: &[SupportedCipherSuite]) -> Vec<&'static SupportedProtocolVersion> {
    let has = |version: &&&'static SupportedProtocolVersion| {
        suites.iter().any(|suite| suite.version().version == version.version)
    };
    rustls::ALL_VERSIONS.iter().filter(has).copied().collect()
}

fn roots_of_the_system() -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if !roots.is_empty() {
        return Ok(roots);
    }
    let cause = found.errors.first().map_or_else(|| "none was found".to_owned(), ToString::to_string);
    let reason = format!("{cause}; install them (Debian: ca-certificates), or use --ca FILE or --insecure");
    Err(refused("the system's certificate authorities", reason))
}

fn identity(
    certificate: &Path,
    key: &Path,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Error> {
    let failed = |reason: String| refused("--cert", format!("{}: {reason}", certificate.display()));
    let chain = CertificateDer::pem_file_iter(certificate).map_err(|error| failed(error.to_string()))?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(|error| failed(error.to_string()))?;
    if chain.is_empty() {
        return Err(failed("it has no certificate; it must be PEM, with BEGIN CERTIFICATE lines".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| {
        let remedy = "it must be PEM, with a PRIVATE KEY without a password; name the file with --key";
        refused("--key", format!("{}: {error}; {remedy}", key.display()))
    })?;
    Ok((chain, key))
}

/// Verifier of certificate chains up to one of these roots.
fn web_pki(roots: RootCertStore, provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, Error> {
    let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    builder.build().map_err(|error| refused("the certificate authorities", error.to_string()))
}

/// Verifier of `--ca FILE`: accepts chains to the CAs in the file, and also the exact certificates in it. A self-signed
/// certificate is often both, and no chain may end in its first certificate.
#[derive(Debug)]
struct NamedVerifier {
    web_pki: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

impl NamedVerifier {
    fn read(file: &Path, provider: &Arc<CryptoProvider>) -> Result<Self, Error> {
        let failed = |reason: String| refused("--ca", format!("{}: {reason}", file.display()));
        let certificates = CertificateDer::pem_file_iter(file).map_err(|error| failed(error.to_string()))?;
        let certificates = certificates.collect::<Result<Vec<_>, _>>();
        let certificates = certificates.map_err(|error| failed(error.to_string()))?;
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            roots.add(certificate.clone()).map_err(|error| failed(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(failed(
                "it has no certificate; it must be PEM, with BEGIN CERTIFICATE lines".to_owned(),
            ));
        }
        Ok(Self { web_pki: web_pki(roots, provider)?, certificates })
    }
}

impl ServerCertVerifier for NamedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified =
            self.web_pki.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // The CA's own certificate. Its dates are valid, because they are checked first.
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(_)))
                if self.certificates.contains(end_entity) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.web_pki.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.web_pki.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.web_pki.supported_verify_schemes()
    }
}

/// Verifier of `--insecure`: accepts any certificate, but checks the server's key, at the cost of a trusted one.
#[derive(Debug)]
struct Anybody {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
