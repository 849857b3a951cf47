//! The end of a connection from either side, and alerts that are no end.

use rustls::{AlertDescription, Error};
use tls::{Alert, TlsRole};

use super::ends::{ALERT, DATA, Outcome, ROLES, TLS12, TLS13, connect, gives, said, takes};

#[test]
fn close_notify_goes_both_ways() {
    for suite in [TLS13, TLS12] {
        for role in ROLES {
            let mut ends = connect(suite, role);
            ends.theirs.send_close_notify();
            let bytes = [takes(&mut ends.theirs), b"anything".to_vec()].concat();
            // RFC 8446 §6.1: bytes behind close_notify are ignored.
            assert_eq!(ends.ours.gets(&bytes), Ok((Vec::new(), Outcome::Closed)));
            assert_eq!(ends.ours.gets(b"more of it"), Ok((Vec::new(), Outcome::Closed)));
            // Our side stays open until we end it.
            assert_eq!(ends.ours.says(&mut ends.theirs, b"still").unwrap(), b"still");
            let mut out = [0; 64];
            let len = ends.ours.session.seal_close(&mut out).unwrap();
            assert!(!ends.theirs.process_new_packets().unwrap().peer_has_closed());
            gives(&mut ends.theirs, &out[..len]).unwrap();
            assert!(ends.theirs.process_new_packets().unwrap().peer_has_closed());
        }
    }
}

#[test]
fn the_reason_for_a_refusal_is_sent() {
    for (alert, told) in [
        (Alert::UnexpectedMessage, AlertDescription::UnexpectedMessage),
        (Alert::BadRecordMac, AlertDescription::BadRecordMac),
        (Alert::RecordOverflow, AlertDescription::RecordOverflow),
        (Alert::IllegalParameter, AlertDescription::IllegalParameter),
        (Alert::DecodeError, AlertDescription::DecodeError),
        (Alert::ProtocolVersion, AlertDescription::ProtocolVersion),
        (Alert::InternalError, AlertDescription::InternalError),
        (Alert::NoRenegotiation, AlertDescription::NoRenegotiation),
    ] {
        for suite in [TLS13, TLS12] {
            let mut ends = connect(suite, TlsRole::Server);
            let mut out = [0; 64];
            let len = ends.ours.session.seal_alert(alert, &mut out).unwrap();
            assert_eq!(gives(&mut ends.theirs, &out[..len]), Err(Error::AlertReceived(told)));
        }
    }
}

#[test]
fn alerts_are_ends_errors_or_nothing() {
    let open = Ok((Vec::new(), Outcome::Open));
    let closed = Ok((Vec::new(), Outcome::Closed));
    let aborted = |alert| Ok((Vec::new(), Outcome::Aborted(alert)));
    for (alert, in_tls13, in_tls12) in [
        (&[1, 0][..], closed.clone(), closed.clone()),
        (&[2, 0], closed.clone(), closed.clone()),
        // RFC 8446 §6: errors at any level, except for a cancelled handshake; in TLS 1.2 warnings are no errors.
        (&[1, 90], open.clone(), open.clone()),
        (&[2, 90], open.clone(), aborted(90)),
        (&[1, 100], aborted(100), open.clone()),
        (&[1, 112], aborted(112), open.clone()),
        (&[1, 255], aborted(255), open.clone()),
        (&[2, 20], aborted(20), aborted(20)),
        (&[2, 40], aborted(40), aborted(40)),
        (&[7, 40], aborted(40), aborted(40)),
        // RFC 8446 §5.4 and §5.1: an alert must not be empty, split, or combined with another.
        (&[], Err(Alert::UnexpectedMessage), Err(Alert::UnexpectedMessage)),
        (&[2], Err(Alert::DecodeError), Err(Alert::DecodeError)),
        (&[1, 0, 1, 0], Err(Alert::DecodeError), Err(Alert::DecodeError)),
    ] {
        for (suite, outcome) in [(TLS13, &in_tls13), (TLS12, &in_tls12)] {
            let (mut ours, mut forger) = connect(suite, TlsRole::Client).forged();
            assert_eq!(&ours.gets(&forger.record(ALERT, alert)), outcome, "{suite:?} {alert:?}");
            let after = ours.gets(&forger.record(DATA, b"more"));
            match outcome {
                Ok((_, Outcome::Open)) => assert_eq!(after, Ok((b"more".to_vec(), Outcome::Open))),
                ended => assert_eq!(&after, ended, "{suite:?} {alert:?}"),
            }
        }
    }
}

#[test]
fn nothing_is_sent_after_a_fatal_alert() {
    let (mut ours, mut forger) = connect(TLS13, TlsRole::Server).forged();
    assert_eq!(ours.gets(&forger.record(ALERT, &[2, 80])), Ok((Vec::new(), Outcome::Aborted(80))));
    assert_eq!(ours.session.seal(b"more", 100, &mut [0; 100]), Err(Alert::InternalError));
}

#[test]
fn warnings_do_not_go_on_for_ever() {
    let (mut ours, mut forger) = connect(TLS12, TlsRole::Server).forged();
    let flood: Vec<u8> = (0..33).flat_map(|_| forger.record(ALERT, &[1, 90])).collect();
    assert_eq!(ours.gets(&flood), Err(Alert::UnexpectedMessage));
}

#[test]
fn data_before_the_end_is_read_first() {
    let mut ends = connect(TLS13, TlsRole::Server);
    let mut bytes = said(&mut ends.theirs, b"last words");
    ends.theirs.send_close_notify();
    bytes.extend(takes(&mut ends.theirs));
    assert_eq!(ends.ours.gets(&bytes), Ok((b"last words".to_vec(), Outcome::Closed)));
}
