//! Selects the certificate for a client: by the name that it asks for, then by its signature algorithms.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use config::UnknownNames;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{SignatureAlgorithm, SignatureScheme};

use crate::challenges::{ACME_TLS, Challenges};
use crate::names::Names;
use crate::pair::Pair;

/// The certificates of a listener. A reload replaces all of them at once, so that no handshake waits or sees a mixture.
#[derive(Debug)]
pub(crate) struct Store {
    shelf: ArcSwap<Shelf>,
    unknown_names: UnknownNames,
    /// Where certificates are automatic: what authorities ask for.
    challenges: Option<Arc<Challenges>>,
}

impl Store {
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

impl ResolvesServerCert for Store {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // RFC 6066 §3: an address is no server name, so its clients ask for none.
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

/// RFC 8737 §3: an authority offers this protocol alone.
fn is_from_authority(hello: &ClientHello<'_>) -> bool {
    hello
        .alpn()
        .is_some_and(|mut offered| offered.next() == Some(ACME_TLS.as_bytes()) && offered.next().is_none())
}

/// RFC 6066 §3, RFC 8446 §9.2: what a client is told that asks for a name that nobody has here, or for none.
const UNRECOGNIZED_NAME: u8 = 112;
pub(crate) const MISSING_EXTENSION: u8 = 109;

thread_local! {
    /// The alert of a refusal, on its way past rustls, which has another for every refusal.
    static REFUSAL: Cell<Option<u8>> = const { Cell::new(None) };
    /// The address that a client has connected to, on its way past rustls.
    static ADDRESS: Cell<Option<IpAddr>> = const { Cell::new(None) };
    /// The name that a client has asked for, on its way past rustls, which keeps it to itself.
    static NAME: RefCell<Option<Box<str>>> = const { RefCell::new(None) };
}

/// The alert that explains why the last handshake step on this thread found no certificate, if that was the reason.
pub(crate) fn take_refusal() -> Option<u8> {
    REFUSAL.take()
}

/// Sets the address that the client of the next handshake step on this thread has connected to.
pub(crate) fn set_address(address: Option<IpAddr>) {
    ADDRESS.set(address);
}

/// The server name (SNI) that a client asked for in the last handshake step on this thread.
pub(crate) fn take_name() -> Option<Box<str>> {
    NAME.take()
}

/// Certificates in the order of their signing cost, cheapest first.
#[derive(Debug)]
pub(crate) struct Shelf {
    keys: Vec<Arc<CertifiedKey>>,
    names: Names,
    has_addresses: bool,
    /// The first of the configuration, and those that have the same names with another kind of key.
    defaults: Vec<usize>,
    /// Those that are meant for all other names and for none.
    others: Vec<usize>,
}

impl Shelf {
    /// Builds the collection from certificates in the order of the configuration, at least one.
    pub(crate) fn new<'p>(pairs: impl IntoIterator<Item = &'p Pair>) -> Self {
        let mut pairs: Vec<&Pair> = pairs.into_iter().collect();
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
            names: Names::new(pairs.iter().map(|pair| pair.names.as_slice())),
            keys: pairs.iter().map(|pair| Arc::clone(&pair.key)).collect(),
        }
    }

    /// The first that the client can verify; else the first, so that the refusal says what is wrong.
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

fn sorted(pair: &Pair) -> Vec<&String> {
    let mut names: Vec<&String> = pair.names.iter().collect();
    names.sort();
    names
}

/// Signing with RSA costs twenty times as much as with ECDSA; Ed25519 is not understood by browsers.
fn cost(algorithm: SignatureAlgorithm) -> u8 {
    match algorithm {
        SignatureAlgorithm::ECDSA => 0,
        SignatureAlgorithm::ED25519 => 1,
        _ => 2,
    }
}
