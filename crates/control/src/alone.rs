//! Replaces `shared` in a build without Redis: nothing is shared.

use std::sync::{Arc, Weak};
use std::time::Duration;

use telemetry::SharedSample;

use crate::change::Control;

pub(crate) struct Shared;

impl Shared {
    pub(crate) fn new(_: Option<String>) -> Self {
        Self
    }

    pub(crate) fn problem(&self) -> Option<String> {
        None
    }

    pub(crate) fn sample(&self) -> Option<SharedSample> {
        None
    }

    pub(crate) fn engine(&self) -> Option<Arc<Engine>> {
        None
    }

    pub(crate) fn reach(&self) -> Reach {
        Reach::Nothing
    }
}

pub(crate) async fn run(_: Weak<Control>) {}

#[expect(dead_code, reason = "certificates ask for the other cases")]
pub(crate) enum Reach {
    Nothing,
    Gone(Duration),
    Up(Arc<Engine>),
}

/// Uninhabited, as no Redis is ever reachable.
pub(crate) enum Engine {}

pub(crate) enum Lease {}

impl Engine {
    pub(crate) async fn lease(&self, _: &str) -> Result<Option<Lease>, String> {
        match *self {}
    }

    pub(crate) async fn certificate(&self, _: &str) -> Result<Option<(i64, SharedCertificate)>, String> {
        match *self {}
    }

    pub(crate) async fn put_certificate(
        &self,
        _: &str,
        _: &SharedCertificate,
        _: (i64, Duration),
    ) -> Result<(), String> {
        match *self {}
    }

    pub(crate) async fn account(&self, _: &str) -> Result<Option<Vec<u8>>, String> {
        match *self {}
    }

    pub(crate) async fn put_account(&self, _: &str, _: &[u8]) -> Result<(), String> {
        match *self {}
    }

    pub(crate) async fn remove_account(&self, _: &str) -> Result<(), String> {
        match *self {}
    }
}

pub(crate) struct SharedCertificate {
    pub(crate) chain: String,
    pub(crate) key: String,
    pub(crate) directory: String,
}

#[expect(dead_code, reason = "without the feature `fleet` there is no other instance")]
pub(crate) enum Offer {
    File { token: String, text: String },
    Handshake { name: String, digest: [u8; 32] },
}

/// An answer that other instances give.
pub(crate) enum Offered {}

/// Returns `None`: there are no other instances.
pub(crate) async fn offer(_: &Weak<Control>, _: Offer) -> Option<Offered> {
    None
}
