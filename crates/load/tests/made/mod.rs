//! Certificates made for a test, in a separate folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;

/// A certificate and its key, which only this test trusts.
pub(crate) struct Made {
    folder: PathBuf,
    made: rcgen::CertifiedKey<rcgen::KeyPair>,
}

impl Made {
    pub(crate) fn new(test: &str, names: &[&str]) -> Self {
        let folder = std::env::temp_dir().join(format!("vanward-load-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let names: Vec<String> = names.iter().copied().map(str::to_owned).collect();
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        std::fs::write(folder.join("cert.pem"), made.cert.pem()).expect("a file");
        std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).expect("a file");
        Self { folder, made }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.join("cert.pem")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.folder.join("key.pem")
    }

    pub(crate) fn config(&self, protocol: &str) -> Arc<ServerConfig> {
        let key = PrivateKeyDer::try_from(self.made.signing_key.serialize_der()).expect("a key");
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_protocol_versions(rustls::ALL_VERSIONS).expect("versions");
        let config = builder.with_no_client_auth().with_single_cert(vec![self.made.cert.der().clone()], key);
        let mut config = config.expect("a pair that fits");
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        Arc::new(config)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
