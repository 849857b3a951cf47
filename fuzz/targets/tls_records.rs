//! What comes in over TLS: a handshake of any bytes, and records that are sealed as they should be, or not, with anything
//! in them, in any pieces. Nothing panics, nothing is read twice, and an end stays the end.
//!
//! The first byte says which connection it is. Then come parts: a byte, a length, and as many bytes. A type below 128 is
//! a record's, sealed; others are bytes as they are.

#![no_main]

use std::sync::LazyLock;

use fuzz::cuts;
use libfuzzer_sys::fuzz_target;
use tls::{Opened, RECORD_MAX, Role};

/// Both ends of a connection, as in the tests.
#[path = "../../crates/tls/tests/sessions/ends.rs"]
#[allow(dead_code, reason = "the tests have more ways to make a connection")]
mod ends;

use ends::{Configs, Forger, Ours, TLS12, TLS13};

/// Kept, so that all connections but the first are resumed, which costs little.
static CONFIGS: LazyLock<[Configs; 2]> = LazyLock::new(|| [TLS13, TLS12].map(Configs::new));

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let configs = &CONFIGS[usize::from(first & 1)];
    let role = if first & 2 == 0 { Role::Server } else { Role::Client };
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

/// The parts of an input as they travel.
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
            Ok(Opened::Data { consumed, data }) => {
                assert!(data < consumed && consumed <= ours.received.len());
                ours.received.drain(..consumed);
            }
            Ok(Opened::Partial) => {
                assert!(ours.received.len() < RECORD_MAX);
                return;
            }
            end => {
                assert!(!matches!(end, Ok(Opened::NoRoom(_))));
                assert_eq!(ours.session.open(&ours.received, &mut out), end);
                return;
            }
        }
    }
}

fn handshake(configs: &Configs, role: Role, bytes: &[u8]) {
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
