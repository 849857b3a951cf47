//! Selects the certificate for a client: by the server name that it requests, then by its signature algorithms.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use config::UnknownNames;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{SignatureAlgorithm, SignatureScheme};

use crate::challenges::{ACME_TLS, Challenges};
use crate::names::HostNames;
use crate::pair::CertificatePair;

/// The certificates of a listener. A reload replaces all of them at once, so that no handshake waits or sees a mixture.
#[derive(Debug)]
pub(crate) struct CertificateStore {
    shelf: ArcSwap<Shelf>,
    unknown_names: UnknownNames,
    /// Challenges to answer, if certificates are automatic.
    challenges: Option<Arc<Challenges>>,
}

impl CertificateStore {
    pub(crate) fn new(
        shelf: Shelf,
        unknown_names: UnknownNames,
        challenges: Option<Arc<Challenges>>,
    ) -> Self {
        Self { shelf: ArcSwap::from_pointee(shelf), unknown_names, challenges }
    }

    pub(crate) fn replace(&self, shelf: Shelf) {
        self.shelf.store(Arc::new(shelf));
    }

    /// Whether a certificate is for an IP address.
    pub(crate) fn has_addresses(&self) -> bool {
        self.shelf.load().has_addresses
    }

    fn choose(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let shelf = self.shelf.load();
        let known = name.and_then(|name| shelf.suitable(shelf.names.having(name), schemes));
        let known = known.or_else(|| shelf.suitable(shelf.others.iter().copied(), schemes));
        let chosen = match self.unknown_names {
            UnknownNames::Default => {
                known.or_else(|| shelf.suitable(shelf.defaults.iter().copied(), schemes))
            }
            UnknownNames::Refuse => known,
        };
        chosen.cloned()
    }
}

impl ResolvesServerCert for CertificateStore {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // RFC 6066 §3: an address is no server name, so clients that use one send no name.
        let address =
            ADDRESS.get().filter(|_| hello.server_name().is_none()).map(|address| address.to_string());
        let name = hello.server_name().or(address.as_deref());
        let chosen = match &self.challenges {
            Some(challenges) if is_from_authority(&hello) => {
                hello.server_name().and_then(|name| challenges.certificate(name))
            }
            _ => self.choose(name, hello.signature_schemes()),
        };
        NAME.set(hello.server_name().map(Box::from));
        if chosen.is_none() {
            let has_name = hello.server_name().is_some();
            REFUSAL.set(Some(if has_name { UNRECOGNIZED_NAME } else { MISSING_EXTENSION }));
        }
        chosen
    }
}

/// RFC 8737 §3: an authority offers only this protocol.
fn is_from_authority(hello: &ClientHello<'_>) -> bool {
    hello
        .alpn()
        .is_some_and(|mut offered| offered.next() == Some(ACME_TLS.as_bytes()) && offered.next().is_none())
}

/// RFC 6066 §3, RFC 8446 §9.2: sent to a client that requests an unknown name, or none.
const UNRECOGNIZED_NAME: u8 = 112;
pub(crate) const MISSING_EXTENSION: u8 = 109;

thread_local! {
    /// The alert of a refusal, passed around rustls, which would send another one.
    static REFUSAL: Cell<Option<u8>> = const { Cell::new(None) };
    /// The local address of a client's connection, passed around rustls.
    static ADDRESS: Cell<Option<IpAddr>> = const { Cell::new(None) };
    /// The requested server name, passed around rustls, which does not expose it.
    static NAME: RefCell<Option<Box<str>>> = const { RefCell::new(None) };
}

/// The alert that explains why the last handshake step on this thread found no certificate, if that was the reason.
pub(crate) fn take_refusal() -> Option<u8> {
    REFUSAL.take()
}

/// Sets the local address of the connection for the next handshake step on this thread.
pub(crate) fn set_address(address: Option<IpAddr>) {
    ADDRESS.set(address);
}

/// The server name (SNI) that a client requested in the last handshake step on this thread.
pub(crate) fn take_name() -> Option<Box<str>> {
    NAME.take()
}

/// Certificates in the order of their signing cost, cheapest first.
#[derive(Debug)]
pub(crate) struct Shelf {
    keys: Vec<Arc<CertifiedKey>>,
    names: HostNames,
    has_addresses: bool,
    /// The first certificate of the configuration, and those with the same names and another kind of key.
    defaults: Vec<usize>,
    /// Certificates for all other names and for no name.
    others: Vec<usize>,
}

impl Shelf {
    /// Builds the collection from certificates in the order of the configuration, at least one.
    pub(crate) fn new<'p>(pairs: impl IntoIterator<Item = &'p CertificatePair>) -> Self {
        let mut pairs: Vec<&CertificatePair> = pairs.into_iter().collect();
        let default_names = pairs.first().map(|pair| sorted(pair));
        pairs.sort_by_key(|pair| cost(pair.key.key.algorithm()));
        let defaults = (0..pairs.len()).filter(|&index| Some(sorted(pairs[index])) == default_names);
        Self {
            defaults: defaults.collect(),
            others: (0..pairs.len())
                .filter(|&index| pairs[index].names.iter().any(|name| name == "*"))
                .collect(),
            has_addresses: pairs
                .iter()
                .any(|pair| pair.names.iter().any(|name| name.parse::<IpAddr>().is_ok())),
            names: HostNames::new(pairs.iter().map(|pair| pair.names.as_slice())),
            keys: pairs.iter().map(|pair| Arc::clone(&pair.key)).collect(),
        }
    }

    /// The first certificate that the client can verify. If there is none, the first one, so that the refusal states
    /// the reason.
    fn suitable(
        &self,
        candidates: impl Iterator<Item = usize> + Clone,
        schemes: &[SignatureScheme],
    ) -> Option<&Arc<CertifiedKey>> {
        let mut keys = candidates.clone().map(|index| &self.keys[index]);
        let suitable = keys.find(|key| key.key.choose_scheme(schemes).is_some());
        suitable.or_else(|| candidates.map(|index| &self.keys[index]).next())
    }
}

fn sorted(pair: &CertificatePair) -> Vec<&String> {
    let mut names: Vec<&String> = pair.names.iter().collect();
    names.sort();
    names
}

/// Signing with RSA costs twenty times as much as with ECDSA; browsers do not support Ed25519.
fn cost(algorithm: SignatureAlgorithm) -> u8 {
    match algorithm {
        SignatureAlgorithm::ECDSA => 0,
        SignatureAlgorithm::ED25519 => 1,
        _ => 2,
    }
}
