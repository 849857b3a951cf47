//! What an operator wants to know of a certificate in use.

use std::path::PathBuf;

use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

use crate::problem::{Fault, Problem};

/// A certificate in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateInUse {
    /// Host names and addresses of the certificate.
    pub names: Vec<String>,
    /// The issuer's distinguished name.
    pub issuer: String,
    /// The serial number, in hexadecimal digits.
    pub serial: String,
    /// Start of the validity, in seconds since 1970.
    pub from: i64,
    /// End of the validity, in seconds since 1970.
    pub until: i64,
    /// Where it comes from.
    pub source: Source,
    /// Problems that do not prevent its use.
    pub problems: Vec<Problem>,
}

/// Where a certificate comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file that is configured.
    File(PathBuf),
    /// An authority, for this configured name; it is in this file.
    Automatic(String, PathBuf),
    /// The proxy, until an authority issues one for this configured name.
    StandIn(String),
    /// The proxy, as configured.
    SelfSigned,
}

impl CertificateInUse {
    /// Parses a certificate in DER, wherever it comes from. `None` if it is not one.
    pub fn parse(der: &[u8]) -> Option<Self> {
        Self::read(der, Source::SelfSigned, Vec::new(), i64::MIN)
    }

    /// Parses a certificate. `None` if it is not one.
    pub(crate) fn read(der: &[u8], source: Source, problems: Vec<Problem>, now: i64) -> Option<Self> {
        let (_, parsed) = parse_x509_certificate(der).ok()?;
        let alternatives = parsed.subject_alternative_name().ok()?;
        let names = alternatives.iter().flat_map(|extension| &extension.value.general_names);
        let names = names.filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => address(bytes),
            _ => None,
        });
        let until = parsed.validity().not_after.timestamp();
        // What was remarked when it was read: it may have expired since.
        let has_expired = problems.iter().any(|problem| matches!(problem.fault, Fault::Expired { .. }));
        let mut problems = problems;
        if until < now && !has_expired {
            let until = crate::certificate::written_time(until);
            problems.push(Problem { file: None, fault: Fault::Expired { until } });
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
