//! Certificate of the proxies: ECDSA P-256, self-signed, made for one run and one address, and deleted with the folder.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The TLS version that the generator offers, so every proxy uses it.
pub const VERSION: &str = "TLSv1.3";
/// The cipher suite that the generator offers, so every proxy uses it.
pub const CIPHER: &str = "TLS_AES_128_GCM_SHA256";

/// Paths of a certificate and its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificatePaths {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Certificate and key in one file, for programs that expect that.
    pub pair: PathBuf,
}

pub(crate) struct Pem {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl CertificatePaths {
    pub(crate) fn within(folder: &Path) -> Self {
        Self {
            certificate: folder.join("cert.pem"),
            key: folder.join("key.pem"),
            pair: folder.join("pair.pem"),
        }
    }
}

impl Pem {
    pub(crate) fn make(address: IpAddr) -> Result<Self, Error> {
        let made = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).and_then(|key| {
            let parameters = CertificateParams::new([address.to_string(), "localhost".to_owned()])?;
            Ok((parameters.self_signed(&key)?.pem(), key.serialize_pem()))
        });
        let (certificate, key) = made.map_err(|error| Error::System {
            action: "make a certificate",
            source: io::Error::other(error),
        })?;
        Ok(Self { certificate, key })
    }

    pub(crate) fn files<'f>(&self, at: &'f CertificatePaths) -> [(&'f Path, String); 3] {
        [
            (&at.pair, format!("{}{}", self.certificate, self.key)),
            (&at.certificate, self.certificate.clone()),
            (&at.key, self.key.clone()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_no_part_of_what_clients_get() {
        let made = Pem::make(IpAddr::from([127, 0, 0, 1])).expect("a certificate");
        assert!(made.key.contains("PRIVATE KEY") && !made.certificate.contains("PRIVATE KEY"));
    }
}
