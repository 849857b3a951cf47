//! Certificates, and TLS configurations for clients and servers of a test.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::{CertificateFiles, KeyPair};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod,
    RevokedCertParams, SerialNumber,
};
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tempfile::TempDir;
use x509_parser::parse_x509_certificate;

/// A certificate authority (CA), with a temporary folder for files.
pub struct TestAuthority {
    issuer: Issuer<'static, rcgen::KeyPair>,
    certificate: CertificateDer<'static>,
    folder: TempDir,
    /// The certificate of the CA.
    pub file: PathBuf,
}

pub struct Issued {
    pub certificate: CertificateDer<'static>,
    key: rcgen::KeyPair,
    pem: String,
}

impl Default for TestAuthority {
    fn default() -> Self {
        Self::new()
    }
}

impl TestAuthority {
    pub fn new() -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).expect("no names are valid");
        parameters.distinguished_name.push(DnType::CommonName, "the test's CA");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().expect("a key can be made");
        let made = parameters.self_signed(&key).expect("it can be signed");
        let folder = tempfile::tempdir().expect("there is a place for it");
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, made.pem()).expect("it can be written");
        let certificate = made.der().clone();
        Self { issuer: Issuer::new(parameters, key), certificate, folder, file }
    }

    pub fn issue(&self, names: &[&str]) -> Issued {
        self.issue_until(names, 4000)
    }

    pub fn issue_until(&self, names: &[&str], year: i32) -> Issued {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut parameters = CertificateParams::new(names).expect("the names are valid");
        parameters.distinguished_name.push(DnType::CommonName, "alice");
        parameters.not_before = rcgen::date_time_ymd(2020, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = rcgen::KeyPair::generate().expect("a key can be made");
        let made = parameters.signed_by(&key, &self.issuer).expect("it can be signed");
        Issued { certificate: made.der().clone(), key, pem: made.pem() }
    }

    /// Writes certificate and key to files, atomically replacing files of the same name.
    pub fn put(&self, name: &str, issued: &Issued) -> CertificateFiles {
        let write = |file: &str, content: String| {
            let draft = self.folder.path().join("draft");
            let path = self.folder.path().join(file);
            std::fs::write(&draft, content).expect("it can be written");
            // The proxy warns about keys that others can read.
            std::fs::set_permissions(&draft, Permissions::from_mode(0o600)).expect("it is this user's");
            std::fs::rename(draft, &path).expect("it can be moved");
            path
        };
        let cert = write(&format!("{name}.pem"), issued.pem.clone());
        let key = write(&format!("{name}.key"), issued.key.serialize_pem());
        CertificateFiles { pair: KeyPair::new(cert, key), ocsp: None, names: Vec::new() }
    }

    pub fn files(&self, name: &str, names: &[&str]) -> CertificateFiles {
        self.put(name, &self.issue(names))
    }

    /// Writes a revocation list with these certificates in PEM, valid until this year, replacing the last one.
    pub fn revokes(&self, revoked: &[&Issued], year: i32) -> PathBuf {
        let date = |year| rcgen::date_time_ymd(year, 1, 1);
        let revoked_certs = revoked.iter().map(|issued| {
            let (_, parsed) = parse_x509_certificate(&issued.certificate).expect("it was just made");
            RevokedCertParams {
                serial_number: SerialNumber::from_slice(parsed.raw_serial()),
                revocation_time: date(2020),
                reason_code: None,
                invalidity_date: None,
            }
        });
        let list = CertificateRevocationListParams {
            this_update: date(2020),
            next_update: date(year),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: revoked_certs.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let (draft, path) = (self.folder.path().join("draft"), self.folder.path().join("ca.crl"));
        let list = list.signed_by(&self.issuer).expect("it can be signed");
        std::fs::write(&draft, list.pem().expect("it is text")).expect("it can be written");
        std::fs::rename(draft, &path).expect("it can be moved");
        path
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).expect("it is a CA");
        roots
    }

    /// Configuration of a client that trusts this CA.
    pub fn client(&self, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
        let builder = ClientConfig::builder_with_provider(provider());
        let builder = builder.with_protocol_versions(versions).expect("they are spoken");
        builder.with_root_certificates(self.roots()).with_no_client_auth()
    }

    /// Configuration of a TLS 1.3 client with these key exchange groups; it sends a key share of the first.
    pub fn client_sharing(&self, kx_groups: Vec<&'static dyn SupportedKxGroup>) -> ClientConfig {
        let provider = CryptoProvider { kx_groups, ..default_provider() };
        let builder = ClientConfig::builder_with_provider(Arc::new(provider));
        let builder = builder.with_protocol_versions(&[&TLS13]).expect("it is spoken");
        builder.with_root_certificates(self.roots()).with_no_client_auth()
    }

    /// Configuration of a client that trusts this CA and has a client certificate.
    pub fn client_showing(&self, issued: &Issued) -> ClientConfig {
        let builder = ClientConfig::builder_with_provider(provider());
        let builder = builder.with_safe_default_protocol_versions().expect("they are spoken");
        let builder = builder.with_root_certificates(self.roots());
        let shown = builder.with_client_auth_cert(vec![issued.certificate.clone()], issued.private_key());
        shown.expect("the key fits")
    }

    /// Configuration of a client whose certificate chain includes the CA of another authority.
    pub fn client_showing_chain(&self, issued: &Issued, authority: &Self) -> ClientConfig {
        let builder = ClientConfig::builder_with_provider(provider());
        let builder = builder.with_safe_default_protocol_versions().expect("they are spoken");
        let chain = vec![issued.certificate.clone(), authority.certificate.clone()];
        let shown = builder.with_root_certificates(self.roots());
        shown.with_client_auth_cert(chain, issued.private_key()).expect("the key fits")
    }

    pub fn own_certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    pub fn server(&self, issued: &Issued, version: &'static SupportedProtocolVersion) -> ServerConfig {
        let builder = ServerConfig::builder_with_provider(provider());
        let builder = builder.with_protocol_versions(&[version]).expect("it is spoken");
        let certificate = vec![issued.certificate.clone()];
        let config = builder.with_no_client_auth().with_single_cert(certificate, issued.private_key());
        config.expect("the key fits")
    }

    /// Configuration of a server that requires a client certificate of this CA.
    pub fn server_asking(&self, issued: &Issued) -> ServerConfig {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(self.roots()), provider());
        let builder = ServerConfig::builder_with_provider(provider());
        let builder = builder.with_safe_default_protocol_versions().expect("they are spoken");
        let builder = builder.with_client_cert_verifier(verifier.build().expect("there is a CA"));
        let config = builder.with_single_cert(vec![issued.certificate.clone()], issued.private_key());
        config.expect("the key fits")
    }
}

impl Issued {
    pub fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.key.serialize_der().into())
    }
}

/// The default crypto provider with an additional key exchange group, which the proxy does not support.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = default_provider();
    provider.kx_groups.push(kx_group::MLKEM768);
    Arc::new(provider)
}
