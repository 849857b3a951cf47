//! Handshake messages after the handshake: key updates, tickets, and all that are not allowed.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::{HandshakeKind, SupportedCipherSuite};
use tls::{Alert, TlsRole};

use super::ends::{
    ALERT, Configs, DATA, Forger, HANDSHAKE, Outcome, ROLES, TLS12, TLS13, connect, gives, said, takes,
};

/// RFC 8446 §4.6.3: a key update of the sender, which requests one of the receiver or does not.
const ASKING: [u8; 5] = [24, 0, 0, 1, 1];
const TELLING: [u8; 5] = [24, 0, 0, 1, 0];

#[test]
fn new_keys_are_taken_and_given_both_ways() {
    const SEALED: usize = 5 + 10 + 17;
    for role in ROLES {
        let mut ends = connect(TLS13, role);
        for round in 0..50_u8 {
            // The peer updates its key and requests one of ours, which is announced before the next bytes, once.
            ends.theirs.refresh_traffic_keys().unwrap();
            let bytes = said(&mut ends.theirs, &[round; 100]);
            assert_eq!(ends.ours.gets(&bytes), Ok((vec![round; 100], Outcome::Open)), "{role:?}");
            for len in [5 + 5 + 17 + SEALED, SEALED] {
                let sealed = ends.ours.seals(&[round; 10], 100);
                assert_eq!(sealed.len(), len);
                assert_eq!(gives(&mut ends.theirs, &sealed).unwrap(), [round; 10]);
            }
        }
    }
}

#[test]
fn several_requests_for_a_new_key_are_answered_by_one() {
    let mut ends = connect(TLS13, TlsRole::Server);
    for _ in 0..5 {
        ends.theirs.refresh_traffic_keys().unwrap();
        let bytes = said(&mut ends.theirs, b"a");
        assert_eq!(ends.ours.gets(&bytes).unwrap().0, b"a");
    }
    let sealed = ends.ours.seals(b"b", 100);
    assert_eq!(sealed.len(), 5 + 5 + 17 + 5 + 1 + 17);
    assert_eq!(gives(&mut ends.theirs, &sealed).unwrap(), b"b");
}

#[test]
fn new_keys_do_not_come_for_ever() {
    for role in ROLES {
        let mut ends = connect(TLS13, role);
        assert_eq!(ends.ours.reads().unwrap().1, Outcome::Open);
        let mut flood = Vec::new();
        for _ in 0..40 {
            ends.theirs.refresh_traffic_keys().unwrap();
            flood.extend(takes(&mut ends.theirs));
        }
        assert_eq!(ends.ours.gets(&flood), Err(Alert::UnexpectedMessage), "{role:?}");
    }
}

/// A message from the other end of these roles, and the expected result.
type Case<'a> = (SupportedCipherSuite, &'a [TlsRole], &'a [u8], Result<(), Alert>);

#[test]
fn unexpected_messages_after_the_handshake_are_refused() {
    let renegotiation = Err(Alert::NoRenegotiation);
    let unexpected = Err(Alert::UnexpectedMessage);
    let undecodable = Err(Alert::DecodeError);
    let cases: &[Case<'_>] = &[
        (TLS13, &ROLES, &TELLING, Ok(())),
        (TLS13, &ROLES, &[24, 0, 0, 1, 2], Err(Alert::IllegalParameter)),
        (TLS13, &ROLES, &[24, 0, 0, 0], undecodable),
        (TLS13, &ROLES, &[24, 0, 0, 2, 0, 0], undecodable),
        // RFC 8446 §5.1: nothing may follow the last message of a key in the same record.
        (TLS13, &ROLES, &[24, 0, 0, 1, 0, 24, 0, 0, 1, 0], unexpected),
        (TLS13, &ROLES, &[24, 0, 0, 1, 0, 24], unexpected),
        (TLS13, &ROLES, &[], unexpected),
        // HelloRequest, ClientHello, ServerHello, Certificate, CertificateRequest, Finished, an unknown one.
        (TLS13, &ROLES, &[0, 0, 0, 0], unexpected),
        (TLS13, &ROLES, &[1, 0, 0, 1, 0], unexpected),
        (TLS13, &ROLES, &[2, 0, 0, 1, 0], unexpected),
        (TLS13, &ROLES, &[11, 0, 0, 1, 0], unexpected),
        (TLS13, &ROLES, &[13, 0, 0, 1, 0], unexpected),
        (TLS13, &ROLES, &[20, 0, 0, 1, 0], unexpected),
        (TLS13, &ROLES, &[99, 0, 0, 1, 0], unexpected),
        // Rejected by its first four bytes, so that nothing of it is kept.
        (TLS13, &[TlsRole::Server], &[1, 0, 0xff, 0xff], unexpected),
        (TLS13, &[TlsRole::Server], &[24, 0, 0xff, 0xff], undecodable),
        (TLS13, &[TlsRole::Client], &[4, 1, 0, 1], undecodable),
        // Only clients accept tickets, and only valid ones.
        (TLS13, &[TlsRole::Server], &[4, 0, 0, 1, 0], unexpected),
        (TLS13, &[TlsRole::Client], &[4, 0, 0, 1, 0], undecodable),
        // RFC 5246 §7.4.1.1, §7.2.2: either side may ask for a second handshake, and is refused.
        (TLS12, &[TlsRole::Client], &[0, 0, 0, 0], renegotiation),
        (TLS12, &[TlsRole::Server], &[1, 0, 0, 1, 0], renegotiation),
        (TLS12, &ROLES, &[24, 0, 0, 1, 0], unexpected),
        (TLS12, &ROLES, &[4, 0, 0, 1, 0], unexpected),
        (TLS12, &ROLES, &[20, 0, 0, 1, 0], unexpected),
        (TLS12, &ROLES, &[], unexpected),
    ];
    for (suite, roles, message, outcome) in cases {
        for &role in *roles {
            let (mut ours, mut forger) = connect(*suite, role).forged();
            let read = ours.gets(&forger.record(HANDSHAKE, message));
            assert_eq!(read, outcome.map(|()| (Vec::new(), Outcome::Open)), "{role:?} {message:?}");
        }
    }
}

#[test]
fn change_cipher_spec_is_refused_sealed() {
    for suite in [TLS13, TLS12] {
        let (mut ours, mut forger) = connect(suite, TlsRole::Server).forged();
        assert_eq!(ours.gets(&forger.record(20, &[1])), Err(Alert::UnexpectedMessage));
    }
}

#[test]
fn a_message_may_be_in_parts_with_nothing_between_them() {
    let (mut ours, mut forger) = connect(TLS13, TlsRole::Server).forged();
    for part in [&TELLING[..1], &TELLING[1..4]] {
        assert_eq!(ours.gets(&forger.record(HANDSHAKE, part)), Ok((Vec::new(), Outcome::Open)));
    }
    // As a complete message it would change the key.
    let mut other = forger.record(HANDSHAKE, &TELLING[4..]);
    assert_eq!(ours.gets(&other), Ok((Vec::new(), Outcome::Open)));
    other = forger.record(DATA, b"with the old key");
    assert_eq!(ours.gets(&other), Err(Alert::BadRecordMac));

    for (kind, content) in [(DATA, &b"a"[..]), (DATA, b""), (ALERT, &[1, 90]), (ALERT, &[1, 0])] {
        let (mut ours, mut forger) = connect(TLS13, TlsRole::Server).forged();
        assert_eq!(ours.gets(&forger.record(HANDSHAKE, &ASKING[..2])), Ok((Vec::new(), Outcome::Open)));
        assert_eq!(ours.gets(&forger.record(kind, content)), Err(Alert::UnexpectedMessage), "{kind}");
    }
}

#[test]
fn tickets_from_a_stranger_are_used() {
    for (suite, is_after) in [(TLS13, true), (TLS12, false)] {
        let configs = Configs::new(suite);
        let mut kinds = Vec::new();
        for _ in 0..3 {
            let mut ends = configs.connect(TlsRole::Client, usize::MAX);
            kinds.push((ends.agreed.is_resumed, ends.theirs.handshake_kind()));
            // In TLS 1.3 tickets come after the handshake.
            assert_eq!(!ends.ours.received.is_empty(), is_after);
            let bytes = said(&mut ends.theirs, b"hello");
            assert_eq!(ends.ours.gets(&bytes), Ok((b"hello".to_vec(), Outcome::Open)));
            assert_eq!(ends.ours.says(&mut ends.theirs, b"hello").unwrap(), b"hello");
        }
        let resumed = (true, Some(HandshakeKind::Resumed));
        assert_eq!(kinds, [(false, Some(HandshakeKind::Full)), resumed, resumed], "{suite:?}");
    }
}

#[test]
fn our_tickets_are_used_by_a_stranger() {
    for suite in [TLS13, TLS12] {
        let configs = Configs::new(suite);
        for round in 0..3 {
            let ends = configs.connect(TlsRole::Server, 100);
            assert_eq!(ends.agreed.is_resumed, round > 0, "{suite:?}");
            assert_eq!(ends.agreed.is_tls13, suite == TLS13);
        }
    }
}

#[test]
fn a_ticket_in_parts_is_used() {
    let mut configs = Configs::new(TLS13);
    let client = Arc::make_mut(&mut configs.client);
    client.resumption = Resumption::in_memory_sessions(4);
    let mut ends = configs.connect(TlsRole::Client, usize::MAX);
    // The peer's own tickets are dropped, and replaced by one made by hand.
    ends.ours.received.clear();
    let secrets = ends.theirs.dangerous_extract_secrets().unwrap();
    let mut forger = Forger::new(0, &secrets.tx.1, rustls::ProtocolVersion::TLSv1_3);
    let ticket = [7; 100];
    let body = [
        &3600_u32.to_be_bytes()[..],
        &9_u32.to_be_bytes(),
        &[4, 1, 2, 3, 4],
        &[0, ticket.len() as u8],
        &ticket,
        &[0, 0],
    ]
    .concat();
    let message = [&[4, 0, 0, body.len() as u8][..], &body].concat();
    for part in message.chunks(30) {
        let read = ends.ours.gets(&forger.record(HANDSHAKE, part));
        assert_eq!(read, Ok((Vec::new(), Outcome::Open)));
    }
    // The next hello shows it.
    let mut out = Vec::new();
    configs.ours(TlsRole::Client).advance(&mut [], &mut out).unwrap();
    assert!(out.windows(ticket.len()).any(|window| window == ticket));
}
