//! A certificate with its key: read from files and checked, or made on the spot.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use config::{CertificateFiles, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};

use crate::certificate::Certificate;
use crate::file;
use crate::ocsp::{self, Staple};
use crate::problem::{Fault, Problem};
use crate::provider;

/// A certificate that can be shown.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    /// As rustls uses it.
    pub(crate) key: Arc<CertifiedKey>,
    pub(crate) certificate: Certificate,
    /// When the stapled response runs out.
    pub(crate) staple_until: Option<i64>,
    /// What is wrong without keeping it from being used.
    pub(crate) remarks: Vec<Problem>,
}

impl Pair {
    /// Reads the files of a listener's certificate.
    pub(crate) fn load(files: &CertificateFiles, now: i64) -> Result<Self, Vec<Problem>> {
        let (chain, key) = read(&files.pair)?;
        let mut certified = certified(&files.pair, chain, key)?;
        let certificate = read_certificate(&files.pair, &certified.cert)?;
        let mut remarks = Vec::new();
        if let Some(fault) = certificate.validity_fault(now) {
            remarks.push(Problem::new(&files.pair.cert, fault));
        }
        let mut staple_until = None;
        if let Some(path) = &files.ocsp {
            let response = file::read(path).map_err(|problem| vec![problem])?;
            match ocsp::judge(&response, &certificate, now) {
                Ok(Staple { until }) => {
                    certified.ocsp = Some(response);
                    staple_until = until;
                }
                Err(fault) => remarks.push(Problem::new(path, fault)),
            }
        }
        Ok(Self { key: Arc::new(certified), certificate, staple_until, remarks })
    }

    /// Makes a certificate for this machine's own names and `address`, with a key that nobody keeps.
    pub(crate) fn self_signed(address: IpAddr) -> Result<Self, Problem> {
        let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
        let mut names = vec!["localhost".to_owned()];
        names.extend(loopback.map(|address| address.to_string()));
        if !address.is_unspecified() && !loopback.contains(&address) {
            names.push(address.to_string());
        }
        let refused = |error: String| Problem { file: None, fault: Fault::Refused(error) };
        let made = rcgen::generate_simple_self_signed(names).map_err(|error| refused(error.to_string()))?;
        let chain = vec![made.cert.der().clone()];
        let certificate =
            Certificate::read(&chain[0]).ok_or_else(|| refused("the certificate just made".to_owned()))?;
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let certified = CertifiedKey::from_der(chain, key, &provider::for_clients());
        let key = Arc::new(certified.map_err(|error| refused(error.to_string()))?);
        Ok(Self { key, certificate, staple_until: None, remarks: Vec::new() })
    }
}

/// Reads a certificate and its key, to be shown to servers.
pub(crate) fn load(pair: &KeyPair, now: i64) -> Result<(CertifiedKey, Vec<Problem>), Vec<Problem>> {
    let (chain, key) = read(pair)?;
    let certified = certified(pair, chain, key)?;
    let certificate = read_certificate(pair, &certified.cert)?;
    let fault = certificate.validity_fault(now);
    Ok((certified, fault.into_iter().map(|fault| Problem::new(&pair.cert, fault)).collect()))
}

type Files = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Both files, or what is wrong with each.
fn read(pair: &KeyPair) -> Result<Files, Vec<Problem>> {
    match (file::certificates(&pair.cert), file::private_key(&pair.key)) {
        (Ok(chain), Ok(key)) => Ok((chain, key)),
        (chain, key) => Err(chain.err().into_iter().chain(key.err()).collect()),
    }
}

fn certified(
    pair: &KeyPair,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, Vec<Problem>> {
    let signing_key = provider::for_clients().key_provider.load_private_key(key);
    let signing_key = signing_key.map_err(|_| vec![Problem::new(&pair.key, Fault::UnusableKey)])?;
    let certified = CertifiedKey::new(chain, signing_key);
    match certified.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(Error::InconsistentKeys(_)) => {
            Err(vec![Problem::new(&pair.key, Fault::OtherKey(pair.cert.clone()))])
        }
        Err(_) => Err(vec![Problem::new(&pair.cert, Fault::NotACertificate(1))]),
    }
}

/// Understands every certificate of a chain, and returns what the first says.
fn read_certificate(pair: &KeyPair, chain: &[CertificateDer<'static>]) -> Result<Certificate, Vec<Problem>> {
    let mut first = None;
    for (index, der) in chain.iter().enumerate() {
        let Some(certificate) = Certificate::read(der) else {
            return Err(vec![Problem::new(&pair.cert, Fault::NotACertificate(index + 1))]);
        };
        first.get_or_insert(certificate);
    }
    first.ok_or_else(|| vec![Problem::new(&pair.cert, Fault::NoCertificate)])
}
