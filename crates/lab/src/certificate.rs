//! The certificate that every proxy of a run shows, made for it alone: ECDSA P-256, for its address, gone with its
//! folder.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The one version of TLS that the generator offers, and so every proxy speaks.
pub const VERSION: &str = "TLSv1.3";
/// The one cipher suite that the generator offers.
pub const CIPHER: &str = "TLS_AES_128_GCM_SHA256";

/// Files of a certificate, PEM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// The certificate, which signs itself.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Both, for those that want them in one file.
    pub pair: PathBuf,
}

/// A certificate and its key, PEM.
pub(crate) struct Pem {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Certificate {
    /// Where its files are in a folder.
    pub(crate) fn within(folder: &Path) -> Self {
        Self {
            certificate: folder.join("cert.pem"),
            key: folder.join("key.pem"),
            pair: folder.join("pair.pem"),
        }
    }
}

impl Pem {
    /// Makes one for a proxy at that address.
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

    /// What a proxy reads, by the file that it is in.
    pub(crate) fn files<'f>(&self, at: &'f Certificate) -> [(&'f Path, String); 3] {
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
