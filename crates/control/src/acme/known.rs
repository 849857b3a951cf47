//! A certificate in the folder: what its renewal depends on.

use config::KeyPair;
use instant_acme::CertificateIdentifier;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tls::CertificateInUse;

use super::schedule::Validity;

/// A certificate that can be used with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) validity: Validity,
    pub(crate) serial: String,
    pub(crate) der: CertificateDer<'static>,
    /// By which its authority knows it (RFC 9773 §4.1).
    pub(crate) id: Option<CertificateIdentifier<'static>>,
}

impl Known {
    /// Reads a certificate. `None` if there is none, if it cannot be used, or if it is for another name.
    pub(crate) fn read(files: &KeyPair, name: &str) -> Option<Self> {
        tls::check(files).ok()?;
        let text = std::fs::read(&files.cert).ok()?;
        let der = CertificateDer::from_pem_slice(&text).ok()?;
        let certificate = CertificateInUse::parse(&der)?;
        if !certificate.names.iter().any(|own| own.eq_ignore_ascii_case(name)) {
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
