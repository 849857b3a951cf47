//! Authorities, certificates and their files; and handshakes in memory, with a rustls client.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use config::{CertificateFiles, Certificates, KeyPair, Listener, ListenerTls};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod,
    RevokedCertParams, SerialNumber, SignatureAlgorithm,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Error, RootCertStore, ServerConfig, ServerConnection};
use tempfile::TempDir;

/// A CA and a folder for files.
pub(crate) struct Scene {
    pub(crate) folder: TempDir,
    pub(crate) authority: Authority,
}

pub(crate) struct Authority {
    issuer: Issuer<'static, rcgen::KeyPair>,
    pub(crate) certificate: CertificateDer<'static>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap().der().clone();
        Self { issuer: Issuer::new(parameters, key), certificate }
    }

    /// A CA with a certificate of this one.
    pub(crate) fn below(&self, name: &str) -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap().der().clone();
        Self { issuer: Issuer::new(parameters, key), certificate }
    }
}

pub(crate) struct Issued {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) key: rcgen::KeyPair,
}

impl Issued {
    pub(crate) fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.key.serialize_der().into())
    }
}

/// The parameters of a certificate, except its names.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) algorithm: &'static SignatureAlgorithm,
    pub(crate) years: (i32, i32),
    pub(crate) serial: u8,
}

pub(crate) const USUAL: Wanted =
    Wanted { algorithm: &rcgen::PKCS_ECDSA_P256_SHA256, years: (2020, 4000), serial: 7 };

impl Authority {
    pub(crate) fn issue(&self, names: &[&str], wanted: Wanted) -> Issued {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut parameters = CertificateParams::new(names).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, "alice");
        parameters.not_before = rcgen::date_time_ymd(wanted.years.0, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(wanted.years.1, 1, 1);
        parameters.serial_number = Some(SerialNumber::from(vec![wanted.serial]));
        let key = rcgen::KeyPair::generate_for(wanted.algorithm).unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap().der().clone();
        Issued { certificate, key }
    }
}

impl Authority {
    pub(crate) fn sign(&self, wanted: CertificateParams, key: &rcgen::KeyPair) -> CertificateDer<'static> {
        wanted.signed_by(key, &self.issuer).unwrap().der().clone()
    }

    /// A revocation list in DER with these serial numbers, whose next update is due in this year.
    pub(crate) fn revokes(&self, serials: &[u8], year: i32) -> Vec<u8> {
        let revoked = |serial: &u8| RevokedCertParams {
            serial_number: SerialNumber::from(vec![*serial]),
            revocation_time: rcgen::date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2020, 1, 1),
            next_update: rcgen::date_time_ymd(year, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().der().to_vec()
    }
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), authority: Authority::new("the test's CA") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file atomically: under another name first.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let draft = self.path("draft");
        fs::write(&draft, content).unwrap();
        // A key that other users can read causes a remark.
        fs::set_permissions(&draft, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(draft, self.path(name)).unwrap();
        self.path(name)
    }

    /// Writes `NAME.pem` and `NAME.key`.
    pub(crate) fn put(&self, name: &str, issued: &Issued) -> CertificateFiles {
        let cert = self.write(&format!("{name}.pem"), pem("CERTIFICATE", &issued.certificate));
        let key = self.write(&format!("{name}.key"), issued.key.serialize_pem());
        CertificateFiles { pair: KeyPair::new(cert, key), ocsp: None, names: Vec::new() }
    }

    /// Issues a usual certificate and writes its files.
    pub(crate) fn files(&self, name: &str, names: &[&str]) -> CertificateFiles {
        self.put(name, &self.authority.issue(names, USUAL))
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.write("ca.pem", pem("CERTIFICATE", &self.authority.certificate))
    }

    /// A client that trusts the CA.
    pub(crate) fn client(&self) -> ClientConfig {
        self.client_with(aws_lc_rs::default_provider(), &[&rustls::version::TLS13, &rustls::version::TLS12])
    }

    pub(crate) fn client_with(
        &self,
        provider: CryptoProvider,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> ClientConfig {
        let builder = self.builder(provider, versions);
        builder.with_no_client_auth()
    }

    /// `client` with a client certificate.
    pub(crate) fn client_showing(&self, issued: &Issued) -> ClientConfig {
        self.client_showing_chain(issued, &[])
    }

    pub(crate) fn client_showing_chain(&self, issued: &Issued, chain: &[&Authority]) -> ClientConfig {
        let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
        let builder = self.builder(aws_lc_rs::default_provider(), &versions);
        let chain = chain.iter().map(|authority| authority.certificate.clone());
        let shown = [issued.certificate.clone()].into_iter().chain(chain).collect();
        builder.with_client_auth_cert(shown, issued.private_key()).unwrap()
    }

    fn builder(
        &self,
        provider: CryptoProvider,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.certificate.clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(provider));
        builder.with_protocol_versions(versions).unwrap().with_root_certificates(roots)
    }
}

pub(crate) fn listener(files: Vec<CertificateFiles>) -> Listener {
    Listener { tls: Some(server_tls(files)), ..Listener::plain(SocketAddr::from(([127, 0, 0, 1], 0))) }
}

pub(crate) fn server_tls(files: Vec<CertificateFiles>) -> ListenerTls {
    ListenerTls::new(Certificates::Files(files))
}

pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// The two ends of a connection after their handshake.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) client: ClientConnection,
    pub(crate) server: ServerConnection,
}

impl Connected {
    /// The certificate that the client got.
    pub(crate) fn shown(&self) -> CertificateDer<'static> {
        self.client.peer_certificates().unwrap()[0].clone().into_owned()
    }
}

/// The side that ended a handshake.
#[derive(Debug)]
pub(crate) enum Refusal {
    Client(Error),
    Server(Error),
}

/// A handshake in memory, and the tickets that come after it.
pub(crate) fn connect(
    server: &Arc<ServerConfig>,
    client: &Arc<ClientConfig>,
    name: &str,
) -> Result<Connected, Refusal> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::clone(client), name).unwrap();
    let mut server = ServerConnection::new(Arc::clone(server)).unwrap();
    for _ in 0..8 {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets().map_err(Refusal::Server)?;
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().map_err(Refusal::Client)?;
        }
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok(Connected { client, server })
}

/// An unsigned OCSP response about the certificate with this serial number (RFC 6960 §4.2.1).
pub(crate) fn ocsp_response(serial: u8, status: u8, next_update: Option<&str>) -> Vec<u8> {
    let time = |text: &str| der(0x18, &[text.as_bytes()]);
    let algorithm = der(0x30, &[&der(0x06, &[&[0x2b, 0x0e, 0x03, 0x02, 0x1a]])]);
    let hash = der(0x04, &[&[0; 20]]);
    let id = der(0x30, &[&algorithm, &hash, &hash, &der(0x02, &[&[serial]])]);
    let next_update = next_update.map(|text| der(0xa0, &[&time(text)])).unwrap_or_default();
    let single = der(0x30, &[&id, &der(status, &[]), &time("20200101000000Z"), &next_update]);
    let responder = der(0xa2, &[&der(0x04, &[&[0; 20]])]);
    let data = der(0x30, &[&responder, &time("20200101000000Z"), &der(0x30, &[&single])]);
    let basic = der(0x30, &[&data, &algorithm, &der(0x03, &[&[0, 0]])]);
    let kind = der(0x06, &[&[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01, 0x01]]);
    let bytes = der(0xa0, &[&der(0x30, &[&kind, &der(0x04, &[&basic])])]);
    der(0x30, &[&der(0x0a, &[&[0]]), &bytes])
}

pub(crate) const GOOD: u8 = 0x80;
pub(crate) const REVOKED: u8 = 0xa1;
pub(crate) const FAR_AWAY: Option<&str> = Some("39990101000000Z");

fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let inside = parts.concat();
    let length = u16::try_from(inside.len()).unwrap().to_be_bytes();
    [&[tag, 0x82], &length[..], &inside].concat()
}

/// The content of the first element with this tag inside a sequence.
pub(crate) fn inside(der: &[u8], tag: u8) -> Vec<u8> {
    let step = |der: &[u8]| -> (u8, usize, usize) {
        match der[1] {
            0x81 => (der[0], 3, usize::from(der[2])),
            0x82 => (der[0], 4, usize::from(der[2]) << 8 | usize::from(der[3])),
            length => (der[0], 2, usize::from(length)),
        }
    };
    let (_, header, _) = step(der);
    let mut rest = &der[header..];
    loop {
        let (found, header, length) = step(rest);
        if found == tag {
            return rest[header..header + length].to_vec();
        }
        rest = &rest[header + length..];
    }
}
