//! The certificate that every proxy of a run shows, made for it alone: ECDSA P-256, for 127.0.0.1, gone with its folder.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};

use crate::error::Error;

/// The one version of TLS that the generator offers, and so every proxy speaks.
pub const VERSION: &str = "TLSv1.3";
/// The one cipher suite that the generator offers.
pub const CIPHER: &str = "TLS_AES_128_GCM_SHA256";

/// Files of a certificate, PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The certificate, which signs itself.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Both, for those that want them in one file.
    pub pair: PathBuf,
}

impl Certificate {
    /// Makes one in that folder. Only its owner can read the key.
    pub(crate) fn make(folder: &Path) -> Result<Self, Error> {
        let made = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).and_then(|key| {
            let parameters = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()])?;
            Ok((parameters.self_signed(&key)?.pem(), key.serialize_pem()))
        });
        let (certificate, key) = made.map_err(|error| Error::System {
            action: "make a certificate",
            source: io::Error::other(error),
        })?;
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            match private(&path, text) {
                Ok(()) => Ok(path),
                Err(source) => Err(Error::Write { path, source }),
            }
        };
        Ok(Self {
            pair: file("pair.pem", &format!("{certificate}{key}"))?,
            certificate: file("cert.pem", &certificate)?,
            key: file("key.pem", &key)?,
        })
    }
}

/// Writes a new file that nobody else may read.
fn private(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn nobody_else_can_read_the_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let made = Certificate::make(folder.path()).expect("a certificate");
        for path in [&made.key, &made.pair] {
            let text = std::fs::read_to_string(path).expect("a file");
            assert!(text.contains("PRIVATE KEY"));
            let mode = path.metadata().expect("a file").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", path.display());
        }
        assert!(!std::fs::read_to_string(&made.certificate).expect("a file").contains("PRIVATE KEY"));
    }
}
