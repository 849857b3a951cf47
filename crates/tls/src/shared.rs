//! Intermediate certificates, each stored once for all chains: a few CAs sign thousands of certificates.
//!
//! They stay as long as the process runs. The number is limited, so that reloads with new ones use little memory.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

use rustls::pki_types::CertificateDer;

/// The number of shared certificates; further ones are stored with their chain.
const SHARED_MAX: usize = 1024;

/// The shared copy of a certificate.
pub(crate) fn shared(certificate: CertificateDer<'static>) -> CertificateDer<'static> {
    static KNOWN: LazyLock<Mutex<HashSet<&'static [u8]>>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(same) = known.get(&*certificate) {
        return CertificateDer::from_slice(same);
    }
    if known.len() == SHARED_MAX {
        return certificate;
    }
    let stays: &'static [u8] = Vec::leak(certificate.to_vec());
    known.insert(stays);
    CertificateDer::from_slice(stays)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_certificates_are_stored_once_up_to_a_limit() {
        let certificate = |number: usize| CertificateDer::from(number.to_be_bytes().to_vec());
        let places: Vec<_> = (0..SHARED_MAX + 8).map(|number| shared(certificate(number))).collect();
        let same = places.iter().enumerate().filter(|(number, place)| {
            let again = shared(certificate(*number));
            assert_eq!(again, **place);
            again.as_ptr() == place.as_ptr()
        });
        // Other tests of the process share certificates, too.
        assert!((SHARED_MAX - 200..=SHARED_MAX).contains(&same.count()));
    }
}
