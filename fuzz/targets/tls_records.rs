//! Bytes over TLS: a handshake of any bytes, and valid or invalid sealed records with any content, in any pieces.
//! Nothing panics, nothing is read twice, and an end stays the end.
//!
//! The first byte selects the connection. Parts follow: a byte, a length, and as many bytes. A byte below 128 is
//! the type of a record to seal; other parts are sent unsealed.

#![no_main]

use std::sync::LazyLock;

use fuzz::cuts;
use libfuzzer_sys::fuzz_target;
use tls::{OpenedRecord, RECORD_MAX, TlsRole};

/// Both ends of a connection, as in the tests.
#[path = "../../crates/tls/tests/sessions/ends.rs"]
#[allow(dead_code, reason = "the tests have more ways to make a connection")]
mod ends;

use ends::{Configs, Forger, Ours, TLS12, TLS13};

/// Shared, so that all connections except the first are resumed, which is cheap.
static CONFIGS: LazyLock<[Configs; 2]> = LazyLock::new(|| [TLS13, TLS12].map(Configs::new));

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let configs = &CONFIGS[usize::from(first & 1)];
    let role = if first & 2 == 0 { TlsRole::Server } else { TlsRole::Client };
    if first & 4 == 0 {
        let (mut ours, mut forger) = configs.connect(role, usize::MAX).forged();
        let arriving = sealed(rest, &mut forger);
        let mut arrived = 0;
        for cut in cuts(&arriving) {
            ours.received.extend_from_slice(&arriving[arrived..cut]);
            arrived = cut;
            read(&mut ours);
        }
    } else {
        handshake(configs, role, rest);
    }
});

/// Encodes the parts of an input for the wire.
fn sealed(mut input: &[u8], forger: &mut Forger) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some((&[kind, len], behind)) = input.split_first_chunk::<2>() {
        let (content, behind) = behind.split_at(usize::from(len).min(behind.len()));
        input = behind;
        match kind {
            0..128 => bytes.extend(forger.record(kind, content)),
            128.. => bytes.extend_from_slice(content),
        }
    }
    bytes
}

fn read(ours: &mut Ours) {
    let mut out = [0; RECORD_MAX];
    loop {
        match ours.session.open(&ours.received, &mut out) {
            Ok(OpenedRecord::Data { consumed, data }) => {
                assert!(data < consumed && consumed <= ours.received.len());
                ours.received.drain(..consumed);
            }
            Ok(OpenedRecord::Partial) => {
                assert!(ours.received.len() < RECORD_MAX);
                return;
            }
            end => {
                assert!(!matches!(end, Ok(OpenedRecord::NoRoom(_))));
                assert_eq!(ours.session.open(&ours.received, &mut out), end);
                return;
            }
        }
    }
}

fn handshake(configs: &Configs, role: TlsRole, bytes: &[u8]) {
    let mut handshake = configs.ours(role);
    let (mut received, mut out) = (Vec::new(), Vec::new());
    let mut arrived = 0;
    for cut in cuts(bytes) {
        received.extend_from_slice(&bytes[arrived..cut]);
        arrived = cut;
        let Ok(advance) = handshake.advance(&mut received, &mut out) else { return };
        assert!(!advance.is_done, "nobody guesses a secret");
        received.drain(..advance.consumed);
    }
}
