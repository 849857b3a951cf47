//! The certificates in use, for operators.

use std::path::PathBuf;

use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

use crate::problem::{CertificateFault, CertificateProblem};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateInUse {
    /// Host names and addresses of the certificate.
    pub names: Vec<String>,
    /// The issuer's distinguished name.
    pub issuer: String,
    /// In hexadecimal digits.
    pub serial: String,
    /// Start of the validity, in seconds since 1970.
    pub from: i64,
    /// End of the validity, in seconds since 1970.
    pub until: i64,
    pub source: InventorySource,
    /// Problems that do not prevent its use.
    pub problems: Vec<CertificateProblem>,
}

/// The origin of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InventorySource {
    File(PathBuf),
    /// An authority, for this configured name; stored in this file.
    Automatic(String, PathBuf),
    /// Self-signed, until an authority issues a certificate for this configured name.
    StandIn(String),
    SelfSigned,
}

impl CertificateInUse {
    /// Parses a certificate in DER from any source. `None` if it is not one.
    pub fn parse(der: &[u8]) -> Option<Self> {
        Self::read(der, InventorySource::SelfSigned, Vec::new(), i64::MIN)
    }

    /// `None` if the bytes are no certificate.
    pub(crate) fn read(
        der: &[u8],
        source: InventorySource,
        problems: Vec<CertificateProblem>,
        now: i64,
    ) -> Option<Self> {
        let (_, parsed) = parse_x509_certificate(der).ok()?;
        let alternatives = parsed.subject_alternative_name().ok()?;
        let names = alternatives.iter().flat_map(|extension| &extension.value.general_names);
        let names = names.filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => address(bytes),
            _ => None,
        });
        let until = parsed.validity().not_after.timestamp();
        // Recalculated, because it may have expired since it was read.
        let has_expired =
            problems.iter().any(|problem| matches!(problem.fault, CertificateFault::Expired { .. }));
        let mut problems = problems;
        if until < now && !has_expired {
            let until = crate::certificate::written_time(until);
            problems.push(CertificateProblem { file: None, fault: CertificateFault::Expired { until } });
        }
        Some(Self {
            names: names.collect(),
            issuer: parsed.issuer().to_string(),
            serial: parsed.raw_serial().iter().map(|byte| format!("{byte:02x}")).collect(),
            from: parsed.validity().not_before.timestamp(),
            until,
            source,
            problems,
        })
    }
}

fn address(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|bytes| std::net::Ipv4Addr::from(bytes).to_string());
    let v6 = <[u8; 16]>::try_from(bytes).map(|bytes| std::net::Ipv6Addr::from(bytes).to_string());
    v4.or(v6).ok()
}
