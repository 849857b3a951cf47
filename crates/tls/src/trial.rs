//! Detects records that rustls could not decrypt. rustls skips early data that it does not accept, but does not report
//! how much. Without this module it would see and count the same bytes again with each further record.

use std::cell::Cell;

use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, InboundPlainMessage, Iv, MessageDecrypter, MessageEncrypter,
    Tls13AeadAlgorithm, UnsupportedOperationError,
};
use rustls::{CipherSuiteCommon, ConnectionTrafficSecrets, Error, SupportedCipherSuite, Tls13CipherSuite};

thread_local! {
    static HAS_FAILED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a record could not be decrypted on this thread since the last call.
pub(crate) fn take_failure() -> bool {
    HAS_FAILED.take()
}

/// Wraps a cipher suite so that failed decryptions are recorded. Leaks memory on purpose: call it once for each suite.
pub(crate) fn telling(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    let SupportedCipherSuite::Tls13(suite) = suite else { return suite };
    let telling = Tls13CipherSuite {
        common: CipherSuiteCommon { ..suite.common },
        aead_alg: Box::leak(Box::new(Telling(suite.aead_alg))),
        ..*suite
    };
    SupportedCipherSuite::Tls13(Box::leak(Box::new(telling)))
}

struct Telling(&'static dyn Tls13AeadAlgorithm);

impl Tls13AeadAlgorithm for Telling {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        self.0.encrypter(key, iv)
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        Box::new(TellingDecrypter(self.0.decrypter(key, iv)))
    }

    fn key_len(&self) -> usize {
        self.0.key_len()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.0.extract_keys(key, iv)
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }
}

struct TellingDecrypter(Box<dyn MessageDecrypter>);

impl MessageDecrypter for TellingDecrypter {
    fn decrypt<'a>(
        &mut self,
        record: InboundOpaqueMessage<'a>,
        seq: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        let opened = self.0.decrypt(record, seq);
        if opened.is_err() {
            HAS_FAILED.set(true);
        }
        opened
    }
}
