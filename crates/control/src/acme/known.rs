//! A certificate in the folder, with the properties that decide its renewal.

use config::KeyPair;
use instant_acme::CertificateIdentifier;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tls::CertificateInUse;

use super::schedule::Validity;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UsableCertificate {
    pub(crate) validity: Validity,
    pub(crate) serial: String,
    pub(crate) der: CertificateDer<'static>,
    /// The authority's identifier for it (RFC 9773 §4.1).
    pub(crate) id: Option<CertificateIdentifier<'static>>,
}

impl UsableCertificate {
    /// Reads a certificate. `None` if it is missing, unusable, or lacks one of the names.
    pub(crate) fn read(files: &KeyPair, names: &[String]) -> Option<Self> {
        tls::check(files).ok()?;
        let text = std::fs::read(&files.cert).ok()?;
        let der = CertificateDer::from_pem_slice(&text).ok()?;
        let certificate = CertificateInUse::parse(&der)?;
        if !names.iter().all(|name| tls::is_for(&certificate.names, name)) {
            return None;
        }
        Some(Self {
            validity: Validity { from: certificate.from, until: certificate.until },
            serial: certificate.serial,
            id: CertificateIdentifier::try_from(&der).ok(),
            der,
        })
    }
}
