//! Parses X.509 certificates: names and validity. rustls verifies signatures.

use std::net::IpAddr;

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

use crate::problem::CertificateFault;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Certificate {
    /// The certificate's host names in lower case, with wildcards such as `*.example.com`, and its IP addresses as
    /// text.
    pub(crate) names: Vec<String>,
    pub(crate) serial: Vec<u8>,
    /// Start of the validity, in seconds since 1970.
    pub(crate) from: i64,
    /// End of the validity, in seconds since 1970.
    pub(crate) until: i64,
}

impl Certificate {
    pub(crate) fn read(der: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = parse_x509_certificate(der).ok()?;
        // RFC 6125 §6.4.4: a common name is no host name.
        let alternatives = parsed.subject_alternative_name().ok()?;
        let names = alternatives.iter().flat_map(|extension| &extension.value.general_names);
        let names = names.filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.trim_end_matches('.').to_ascii_lowercase()),
            GeneralName::IPAddress(bytes) => address(bytes).map(|address| address.to_string()),
            _ => None,
        });
        Some(Self {
            names: names.collect(),
            serial: parsed.raw_serial().to_vec(),
            from: parsed.validity().not_before.timestamp(),
            until: parsed.validity().not_after.timestamp(),
        })
    }

    /// The fault of a certificate that is expired or not yet valid.
    pub(crate) fn validity_fault(&self, now: i64) -> Option<CertificateFault> {
        if now > self.until {
            return Some(CertificateFault::Expired { until: written_time(self.until) });
        }
        (now < self.from).then(|| CertificateFault::NotYetValid { from: written_time(self.from) })
    }
}

/// RFC 5280 §4.2.1.6: an address of an alternative name.
pub(crate) fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    v4().or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))
}

/// Formats a time, such as `2026-01-31 12:00:00 UTC`.
pub fn written_time(seconds: i64) -> String {
    let Ok(time) = ASN1Time::from_timestamp(seconds) else { return format!("{seconds} s after 1970") };
    let time = time.to_datetime();
    format!(
        "{}-{:02}-{:02} {:02}:{:02}:{:02} UTC",
        time.year(),
        u8::from(time.month()),
        time.day(),
        time.hour(),
        time.minute(),
        time.second()
    )
}
