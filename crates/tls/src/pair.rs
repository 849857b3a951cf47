//! A certificate with its key: read from files and checked, or self-signed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

use config::{CertificateFiles, KeyPair};
use rcgen::{CertificateParams, DistinguishedName, DnType};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use x509_parser::time::ASN1Time;

use crate::certificate::Certificate;
use crate::file;
use crate::ocsp::{self, Staple};
use crate::problem::{CertificateFault, CertificateProblem};
use crate::provider;
use crate::shared::shared;

/// A certificate and key for a listener.
#[derive(Debug, Clone)]
pub(crate) struct CertificatePair {
    pub(crate) key: Arc<CertifiedKey>,
    /// Names for which clients get the certificate, as in [`Names`](crate::names::Names).
    pub(crate) names: Vec<String>,
    /// When the stapled response expires, in seconds since 1970.
    staple_until: Option<i64>,
    /// Problems that do not prevent the use of the certificate.
    pub(crate) remarks: Vec<CertificateProblem>,
}

impl CertificatePair {
    /// Loads a listener's certificate, key and OCSP response from their files.
    pub(crate) fn load(files: &CertificateFiles, now: i64) -> Result<Self, Vec<CertificateProblem>> {
        let (chain, key) = read(&files.pair)?;
        let mut certified = certified(&files.pair, chain, key)?;
        let certificate = read_certificate(&files.pair, &certified.cert)?;
        let mut remarks: Vec<_> = file::readable_secrets(&files.pair).collect();
        if let Some(fault) = certificate.validity_fault(now) {
            remarks.push(CertificateProblem::new(&files.pair.cert, fault));
        }
        let mut staple_until = None;
        if let Some(path) = &files.ocsp {
            match staple(path, &certificate, now) {
                Ok((response, Staple { until })) => {
                    certified.ocsp = Some(response);
                    staple_until = until;
                }
                Err(fault) => remarks.push(CertificateProblem::new(path, fault)),
            }
        }
        let names = match files.names.as_slice() {
            [] => own_names(&certificate),
            given => given.to_vec(),
        };
        Ok(Self { key: Arc::new(certified), names, staple_until, remarks })
    }

    pub(crate) fn is_staple_stale(&self, now: i64) -> bool {
        self.staple_until.is_some_and(|until| until < now)
    }

    pub(crate) fn remove_staple(&mut self) {
        let certified = CertifiedKey { ocsp: None, ..CertifiedKey::clone(&self.key) };
        self.key = Arc::new(certified);
        self.staple_until = None;
    }

    /// Creates a self-signed certificate for this machine's names and `address`, with a key that is never stored.
    pub(crate) fn self_signed(address: IpAddr, now: i64) -> Result<Self, CertificateProblem> {
        let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
        let mut names = vec!["localhost".to_owned()];
        names.extend(loopback.map(|address| address.to_string()));
        if !address.is_unspecified() && !loopback.contains(&address) {
            names.push(address.to_string());
        }
        Self::self_signed_for(names, now)
    }

    /// Creates a self-signed certificate for these names, with a key that is never stored.
    pub(crate) fn self_signed_for(names: Vec<String>, now: i64) -> Result<Self, CertificateProblem> {
        let refused =
            |error: String| CertificateProblem { file: None, fault: CertificateFault::Refused(error) };
        let (der, key) = made(names, now).map_err(|error| refused(error.to_string()))?;
        let certificate =
            Certificate::read(&der).ok_or_else(|| refused("the certificate just made".to_owned()))?;
        let certified = CertifiedKey::from_der(vec![der], key, &provider::for_certificates());
        let key = Arc::new(certified.map_err(|error| refused(error.to_string()))?);
        let names = own_names(&certificate);
        Ok(Self { key, names, staple_until: None, remarks: Vec::new() })
    }
}

/// The names in a certificate. RFC 9525 §6.3: a wildcard is for one label; only configurations may use other patterns.
fn own_names(certificate: &Certificate) -> Vec<String> {
    certificate.names.iter().filter(|name| !name.starts_with("**.") && *name != "*").cloned().collect()
}

const DAY_SECONDS: i64 = 24 * 3600;
/// The longest validity that all clients accept, minus a day (Apple, for certificates outside of public CAs).
const SELF_SIGNED_DAYS: i64 = 824;

type Made = (CertificateDer<'static>, PrivateKeyDer<'static>);

fn made(names: Vec<String>, now: i64) -> Result<Made, rcgen::Error> {
    let mut parameters = CertificateParams::new(names)?;
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, "vanward, signed by itself");
    // A client's clock may be behind.
    let time = |seconds| ASN1Time::from_timestamp(seconds).map(|time| time.to_datetime());
    let validity =
        time(now - DAY_SECONDS).and_then(|from| Ok((from, time(now + SELF_SIGNED_DAYS * DAY_SECONDS)?)));
    (parameters.not_before, parameters.not_after) = validity.map_err(|_| rcgen::Error::Time)?;
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    let certificate = parameters.self_signed(&key)?;
    Ok((certificate.der().clone(), PrivateKeyDer::Pkcs8(key.serialize_der().into())))
}

/// Reads an OCSP response from a file, if it may be stapled: clients reject connections with an invalid one.
fn staple(path: &Path, certificate: &Certificate, now: i64) -> Result<(Vec<u8>, Staple), CertificateFault> {
    let response = file::read(path).map_err(|problem| match problem.fault {
        CertificateFault::Unreadable(error) => CertificateFault::UnreadableOcsp(error),
        _ => CertificateFault::NotAnOcspResponse,
    })?;
    let staple = ocsp::judge(&response, certificate, now)?;
    Ok((response, staple))
}

/// Checks that a certificate and its key can be used together, regardless of its validity period.
///
/// # Errors
/// All problems.
pub fn check(pair: &KeyPair) -> Result<(), Vec<CertificateProblem>> {
    let (chain, key) = read(pair)?;
    let certified = certified(pair, chain, key)?;
    read_certificate(pair, &certified.cert).map(drop)
}

/// Checks that a certificate and its key can be used together, both as texts of PEM. Returns the names in the
/// certificate.
///
/// # Errors
/// All problems. They name no files.
pub fn check_pem(certificate: &[u8], key: &[u8]) -> Result<Vec<String>, Vec<CertificateProblem>> {
    let pair = KeyPair::new("the certificate", "the key");
    let chain = file::certificates_in(&pair.cert, certificate).map_err(|problem| vec![problem])?;
    let key = file::private_key_in(&pair.key, key, None).map_err(|problem| vec![problem])?;
    let certified = certified(&pair, chain, key)?;
    read_certificate(&pair, &certified.cert).map(|certificate| own_names(&certificate))
}

/// Loads a client certificate and its key, to be presented to servers.
pub(crate) fn load(
    pair: &KeyPair,
    now: i64,
) -> Result<(CertifiedKey, Vec<CertificateProblem>), Vec<CertificateProblem>> {
    let (chain, key) = read(pair)?;
    let certified = certified(pair, chain, key)?;
    let certificate = read_certificate(pair, &certified.cert)?;
    let fault = certificate.validity_fault(now).map(|fault| CertificateProblem::new(&pair.cert, fault));
    Ok((certified, file::readable_secrets(pair).chain(fault).collect()))
}

type Files = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Reads both files, or returns the problems of each.
fn read(pair: &KeyPair) -> Result<Files, Vec<CertificateProblem>> {
    match (file::certificates(&pair.cert), file::private_key(&pair.key, pair.passphrase.as_deref())) {
        (Ok(mut chain), Ok(key)) => {
            let intermediates = chain.drain(1..).map(shared).collect::<Vec<_>>();
            chain.extend(intermediates);
            chain.shrink_to_fit();
            Ok((chain, key))
        }
        (chain, key) => Err(chain.err().into_iter().chain(key.err()).collect()),
    }
}

fn certified(
    pair: &KeyPair,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, Vec<CertificateProblem>> {
    let signing_key = provider::for_certificates().key_provider.load_private_key(key);
    let signing_key =
        signing_key.map_err(|_| vec![CertificateProblem::new(&pair.key, CertificateFault::UnusableKey)])?;
    let certified = CertifiedKey::new(chain, signing_key);
    match certified.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(Error::InconsistentKeys(_)) => {
            Err(vec![CertificateProblem::new(&pair.key, CertificateFault::OtherKey(pair.cert.clone()))])
        }
        Err(_) => Err(vec![CertificateProblem::new(&pair.cert, CertificateFault::NotACertificate(1))]),
    }
}

/// Parses every certificate of a chain, and returns the first one.
fn read_certificate(
    pair: &KeyPair,
    chain: &[CertificateDer<'static>],
) -> Result<Certificate, Vec<CertificateProblem>> {
    let mut first = None;
    for (index, der) in chain.iter().enumerate() {
        let Some(certificate) = Certificate::read(der) else {
            return Err(vec![CertificateProblem::new(
                &pair.cert,
                CertificateFault::NotACertificate(index + 1),
            )]);
        };
        first.get_or_insert(certificate);
    }
    first.ok_or_else(|| vec![CertificateProblem::new(&pair.cert, CertificateFault::NoCertificate)])
}
