//! Reads certificate revocation lists (RFC 5280 §5). rustls checks signatures and entries.

use std::path::Path;

use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::parse_x509_crl;

use crate::certificate::written_time;
use crate::file;
use crate::problem::{CertificateFault, CertificateProblem};

/// A revocation list, and when its next update is due, in seconds since 1970.
pub(crate) struct RevocationList {
    pub(crate) der: CertificateRevocationListDer<'static>,
    pub(crate) until: Option<i64>,
}

/// Reads the lists of a file: any number in PEM, or one in DER.
pub(crate) fn read(path: &Path) -> Result<Vec<RevocationList>, CertificateProblem> {
    let content = file::read_long(path)?;
    let lists: Vec<CertificateRevocationListDer<'static>> = if content.starts_with(&[DER_SEQUENCE]) {
        vec![content.into()]
    } else {
        let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&content).collect();
        lists.map_err(|error| {
            CertificateProblem::new(path, CertificateFault::BrokenPem(file::pem_fault(&error)))
        })?
    };
    if lists.is_empty() {
        return Err(CertificateProblem::new(path, CertificateFault::NoCrl));
    }
    let read = |(index, der): (usize, CertificateRevocationListDer<'static>)| {
        let not_one = || CertificateProblem::new(path, CertificateFault::NotACrl(index + 1));
        let (rest, parsed) = parse_x509_crl(&der).map_err(|_| not_one())?;
        let until = parsed.next_update().map(|time| time.timestamp());
        if rest.is_empty() { Ok((until, der)) } else { Err(not_one()) }
    };
    let lists = lists.into_iter().enumerate().map(read);
    lists.map(|read| read.map(|(until, der)| RevocationList { der, until })).collect()
}

/// ITU-T X.690 §8.9.1: the first byte of every list in DER, and of no text.
const DER_SEQUENCE: u8 = 0x30;

/// The fault of a list whose next update is due.
pub(crate) fn expired(until: i64, is_refused: bool) -> CertificateFault {
    CertificateFault::CrlExpired { until: written_time(until), is_refused }
}
