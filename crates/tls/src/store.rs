//! Selects the certificate for a client: by the name that it asks for, then by its signature algorithms.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use arc_swap::ArcSwap;
use config::UnknownNames;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{SignatureAlgorithm, SignatureScheme};

use crate::names::Names;
use crate::pair::Pair;

/// The certificates of a listener. A reload replaces all of them at once, so that no handshake waits or sees a mixture.
#[derive(Debug)]
pub(crate) struct Store {
    shelf: ArcSwap<Shelf>,
    unknown_names: UnknownNames,
}

impl Store {
    pub(crate) fn new(shelf: Shelf, unknown_names: UnknownNames) -> Self {
        Self { shelf: ArcSwap::from_pointee(shelf), unknown_names }
    }

    pub(crate) fn replace(&self, shelf: Shelf) {
        self.shelf.store(Arc::new(shelf));
    }

    fn choose(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let shelf = self.shelf.load();
        let known = name.and_then(|name| shelf.suitable(shelf.names.having(name), schemes));
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
        let chosen = self.choose(hello.server_name(), hello.signature_schemes());
        NAME.set(hello.server_name().map(Box::from));
        if chosen.is_none() {
            let has_name = hello.server_name().is_some();
            REFUSAL.set(Some(if has_name { UNRECOGNIZED_NAME } else { MISSING_EXTENSION }));
        }
        chosen
    }
}

/// RFC 6066 §3, RFC 8446 §9.2: what a client is told that asks for a name that nobody has here, or for none.
const UNRECOGNIZED_NAME: u8 = 112;
const MISSING_EXTENSION: u8 = 109;

thread_local! {
    /// The alert of a refusal, on its way past rustls, which has another for every refusal.
    static REFUSAL: Cell<Option<u8>> = const { Cell::new(None) };
    /// The name that a client has asked for, on its way past rustls, which keeps it to itself.
    static NAME: RefCell<Option<Box<str>>> = const { RefCell::new(None) };
}

/// The alert that explains why the last handshake step on this thread found no certificate, if that was the reason.
pub(crate) fn take_refusal() -> Option<u8> {
    REFUSAL.take()
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
    /// The first of the configuration, and those that have the same names with another kind of key.
    defaults: Vec<usize>,
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
            names: Names::new(pairs.iter().map(|pair| pair.certificate.names.as_slice())),
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
    let mut names: Vec<&String> = pair.certificate.names.iter().collect();
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
