//! TLS configuration of an origin: its certificate, TLS 1.3 and 1.2, HTTP/2 and HTTP/1.1 by ALPN.

use std::fmt::Display;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OriginCertificate {
    Files {
        /// Certificate, followed by its chain.
        certificate: PathBuf,
        key: PathBuf,
    },
    /// Self-signed, new at each start, for `localhost` and the listening addresses. No client trusts it by default.
    SelfSigned,
}

/// `addresses` are for a self-signed certificate; `cipher` is the only cipher suite, if given.
pub(crate) fn config(
    certificate: &OriginCertificate,
    addresses: &[IpAddr],
    cipher: Option<&str>,
) -> io::Result<Arc<ServerConfig>> {
    let (chain, key) = match certificate {
        OriginCertificate::Files { certificate, key } => {
            let failed =
                |file: &PathBuf, error: &dyn Display| invalid(format!("{}: {error}", file.display()));
            let chain =
                CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let chain = chain.map_err(|error| failed(certificate, &error))?;
            if chain.is_empty() {
                return Err(failed(
                    certificate,
                    &"it has no certificate; it must be PEM, with BEGIN CERTIFICATE lines",
                ));
            }
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| failed(key, &error))?;
            (chain, key)
        }
        OriginCertificate::SelfSigned => self_signed(addresses)?,
    };
    let mut provider = aws_lc_rs::default_provider();
    if let Some(cipher) = cipher {
        // The library's name has another prefix: TLS13_AES_128_GCM_SHA256.
        let name = cipher.replacen("TLS_AES", "TLS13_AES", 1).replacen("TLS_CHACHA", "TLS13_CHACHA", 1);
        provider.cipher_suites.retain(|suite| format!("{:?}", suite.suite()) == name);
        if provider.cipher_suites.is_empty() {
            return Err(invalid(format!(
                "there is no cipher suite {cipher}; expected one such as TLS_AES_128_GCM_SHA256"
            )));
        }
    }
    let is_13 = |suite: &rustls::SupportedCipherSuite| suite.tls13().is_some();
    let versions: &[_] = match (cipher, provider.cipher_suites.iter().any(is_13)) {
        (None, _) => rustls::ALL_VERSIONS,
        (Some(_), true) => &[&rustls::version::TLS13],
        (Some(_), false) => &[&rustls::version::TLS12],
    };
    let builder = ServerConfig::builder_with_provider(Arc::new(provider));
    let builder = builder.with_protocol_versions(versions).map_err(invalid)?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key).map_err(invalid)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Tickets contain the sessions, so any worker can resume them.
    config.ticketer = aws_lc_rs::Ticketer::new().map_err(invalid)?;
    Ok(Arc::new(config))
}

fn self_signed(addresses: &[IpAddr]) -> io::Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let names = addresses.iter().map(ToString::to_string).chain(["localhost".to_owned()]);
    let made = rcgen::generate_simple_self_signed(names.collect::<Vec<_>>()).map_err(invalid)?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(invalid)?;
    Ok((vec![made.cert.der().clone()], key))
}

fn invalid(reason: impl Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("the certificate cannot be used: {reason}"))
}
