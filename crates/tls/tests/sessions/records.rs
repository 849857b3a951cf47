//! Data in records: every suite, size and split, and tampering.

use proptest::prelude::*;
use tls::{Alert, OpenedRecord, PLAINTEXT_MAX, TlsRole, TlsSession};

use super::ends::{DATA, Outcome, ROLES, SUITES, TLS12, TLS12_CHACHA, TLS13, connect, gives, said};

fn counted(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index % 251) as u8).collect()
}

#[test]
fn every_suite_carries_bytes_both_ways() {
    assert_eq!(SUITES.len(), 9);
    for &suite in SUITES {
        for role in ROLES {
            let mut ends = connect(suite, role);
            for len in [1, 2, 100, PLAINTEXT_MAX, PLAINTEXT_MAX + 1, 100_000] {
                let data = counted(len);
                assert!(ends.ours.says(&mut ends.theirs, &data).unwrap() == data, "{suite:?} {role:?} {len}");
                let bytes = said(&mut ends.theirs, &data);
                assert!(ends.ours.gets(&bytes).unwrap() == (data, Outcome::Open), "{suite:?} {role:?} {len}");
            }
        }
    }
}

#[test]
fn the_first_record_has_the_requested_length() {
    // Overhead of a record without its header: type or nonce, and tag.
    for (suite, overhead) in [(TLS13, 17), (TLS12, 24), (TLS12_CHACHA, 16)] {
        let mut ends = connect(suite, TlsRole::Server);
        for (len, first, records) in [
            (0, 4096, vec![]),
            (1, 4096, vec![1]),
            (4096, 4096, vec![4096]),
            (4097, 4096, vec![4096, 1]),
            (40_000, 4096, vec![4096, PLAINTEXT_MAX, PLAINTEXT_MAX, 3136]),
            (40_000, PLAINTEXT_MAX, vec![PLAINTEXT_MAX, PLAINTEXT_MAX, 7232]),
            (3, 0, vec![1, 2]),
            (PLAINTEXT_MAX + 1, usize::MAX, vec![PLAINTEXT_MAX, 1]),
        ] {
            let sealed = ends.ours.seals(&counted(len), first);
            let (mut rest, mut found) = (&sealed[..], Vec::new());
            while let Some((header, behind)) = rest.split_first_chunk::<5>() {
                assert_eq!(header[..3], [DATA, 3, 3]);
                let (record, behind) =
                    behind.split_at(usize::from(u16::from_be_bytes([header[3], header[4]])));
                found.push(record.len() - overhead);
                rest = behind;
            }
            assert_eq!(found, records, "{suite:?} {len} {first}");
            assert!(gives(&mut ends.theirs, &sealed).unwrap() == counted(len));
        }
    }
}

#[test]
fn records_are_opened_from_empty_to_full_and_no_larger() {
    for suite in [TLS13, TLS12, TLS12_CHACHA] {
        for (len, outcome) in [
            (0, Ok(())),
            (1, Ok(())),
            (PLAINTEXT_MAX, Ok(())),
            (PLAINTEXT_MAX + 1, Err(Alert::RecordOverflow)),
            (PLAINTEXT_MAX + 200, Err(Alert::RecordOverflow)),
        ] {
            let (mut ours, mut forger) = connect(suite, TlsRole::Server).forged();
            let data = counted(len);
            let read = ours.gets(&forger.record(DATA, &data));
            assert!(read == outcome.map(|()| (data, Outcome::Open)), "{suite:?} {len}");
        }
    }
}

#[test]
fn padding_is_taken_off_and_counts_towards_the_limit() {
    // RFC 8446 §5.2, §5.4: content, type and padding are 2^14 + 1 bytes at most.
    for (len, padding, outcome) in [
        (5, 1, Ok(())),
        (5, 1000, Ok(())),
        (0, 1000, Ok(())),
        (1, PLAINTEXT_MAX - 1, Ok(())),
        (1, PLAINTEXT_MAX, Err(Alert::RecordOverflow)),
        (PLAINTEXT_MAX, 1, Err(Alert::RecordOverflow)),
    ] {
        let (mut ours, mut forger) = connect(TLS13, TlsRole::Server).forged();
        let data = counted(len);
        let read = ours.gets(&forger.padded(DATA, &data, padding));
        assert!(read == outcome.map(|()| (data, Outcome::Open)), "{len} {padding}");
    }
    // RFC 8446 §5.4: nothing but padding.
    let (mut ours, mut forger) = connect(TLS13, TlsRole::Server).forged();
    assert_eq!(ours.gets(&forger.padded(0, &[], 10)), Err(Alert::UnexpectedMessage));
}

#[test]
fn headers_are_judged_before_the_record_is_whole() {
    for (suite, header, outcome) in [
        (TLS13, &[23, 3, 3, 0x41, 0x00][..], Ok(OpenedRecord::Partial)),
        (TLS13, &[23, 3, 3, 0x41, 0x01], Err(Alert::RecordOverflow)),
        (TLS13, &[23, 3, 3, 0xff, 0xff], Err(Alert::RecordOverflow)),
        (TLS13, &[23, 3, 3, 0, 15], Err(Alert::BadRecordMac)),
        (TLS13, &[23, 3, 1, 0, 100], Err(Alert::ProtocolVersion)),
        (TLS13, &[23, 2, 3, 0, 100], Err(Alert::ProtocolVersion)),
        // RFC 8446 §5: after the handshake there are no plaintext records, not even an old change_cipher_spec.
        (TLS13, &[20, 3, 3, 0, 1], Err(Alert::UnexpectedMessage)),
        (TLS13, &[21, 3, 3, 0, 2], Err(Alert::UnexpectedMessage)),
        (TLS13, &[22, 3, 3, 0, 100], Err(Alert::UnexpectedMessage)),
        (TLS13, &[24, 3, 3, 0, 100], Err(Alert::UnexpectedMessage)),
        (TLS13, b"GET /", Err(Alert::UnexpectedMessage)),
        (TLS13, &[23, 3, 3, 0], Ok(OpenedRecord::Partial)),
        (TLS13, &[], Ok(OpenedRecord::Partial)),
        (TLS12, &[23, 3, 3, 0, 23], Err(Alert::BadRecordMac)),
        (TLS12, &[23, 3, 3, 0, 24], Ok(OpenedRecord::Partial)),
        (TLS12, &[21, 3, 3, 0, 26], Ok(OpenedRecord::Partial)),
        (TLS12, &[24, 3, 3, 0, 26], Err(Alert::UnexpectedMessage)),
        (TLS12_CHACHA, &[23, 3, 3, 0, 15], Err(Alert::BadRecordMac)),
    ] {
        let (mut ours, _) = connect(suite, TlsRole::Server).forged();
        assert_eq!(ours.session.open(header, &mut [0; 64]), outcome, "{header:?}");
    }
}

#[test]
fn a_record_that_has_no_room_waits_until_it_has() {
    let (mut ours, mut forger) = connect(TLS13, TlsRole::Server).forged();
    let record = forger.padded(DATA, b"hello", 3);
    for room in 0..9 {
        assert_eq!(ours.session.open(&record, &mut vec![0; room]), Ok(OpenedRecord::NoRoom(9)));
    }
    let mut out = [0; 9];
    assert_eq!(
        ours.session.open(&record, &mut out),
        Ok(OpenedRecord::Data { consumed: record.len(), data: 5 })
    );
    assert_eq!(&out[..5], b"hello");
}

#[test]
fn a_tampered_record_is_refused_wherever_it_is_tampered_with() {
    for suite in [TLS13, TLS12, TLS12_CHACHA] {
        let len = {
            let mut ends = connect(suite, TlsRole::Server);
            said(&mut ends.theirs, b"hello").len()
        };
        for at in 0..len {
            let mut ends = connect(suite, TlsRole::Server);
            let mut record = said(&mut ends.theirs, b"hello");
            record[at] ^= 1 << (at % 8);
            let read = ends.ours.gets(&record);
            // A larger length announces more bytes.
            let is_waiting = (at == 3 || at == 4) && read == Ok((Vec::new(), Outcome::Open));
            assert!(read.is_err() || is_waiting, "{suite:?}, byte {at}: {read:?}");
            if is_waiting {
                assert!(ends.ours.gets(&[0; 20_000]).is_err(), "{suite:?}, byte {at}");
            }
        }
    }
}

#[test]
fn records_that_are_lost_repeated_or_in_another_order_are_refused() {
    for suite in [TLS13, TLS12, TLS12_CHACHA] {
        for order in [&[0, 0][..], &[1], &[1, 0], &[0, 2], &[0, 1, 0]] {
            let mut ends = connect(suite, TlsRole::Client);
            assert_eq!(ends.ours.reads().unwrap().1, Outcome::Open);
            let records: Vec<_> = [&b"a"[..], b"b", b"c"].map(|data| said(&mut ends.theirs, data)).into();
            let bytes: Vec<u8> = order.iter().flat_map(|&index: &usize| records[index].clone()).collect();
            assert_eq!(ends.ours.gets(&bytes), Err(Alert::BadRecordMac), "{suite:?} {order:?}");
        }
    }
}

#[test]
fn after_a_refusal_nothing_is_opened_or_sealed_any_more() {
    let mut ends = connect(TLS13, TlsRole::Server);
    let good = said(&mut ends.theirs, b"good");
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    assert_eq!(ends.ours.gets(&bad), Err(Alert::BadRecordMac));
    ends.ours.received.clear();
    assert_eq!(ends.ours.gets(&good), Err(Alert::BadRecordMac));
    let mut out = [0; 200];
    assert_eq!(ends.ours.session.seal(b"more", 100, &mut out), Err(Alert::InternalError));
    let len = ends.ours.session.seal_alert(Alert::BadRecordMac, &mut out).unwrap();
    let told = gives(&mut ends.theirs, &out[..len]).unwrap_err();
    assert_eq!(told, rustls::Error::AlertReceived(rustls::AlertDescription::BadRecordMac));
}

#[test]
fn empty_records_are_let_pass_up_to_a_limit() {
    for suite in [TLS13, TLS12] {
        let (mut ours, mut forger) = connect(suite, TlsRole::Server).forged();
        for _ in 0..3 {
            for _ in 0..32 {
                assert_eq!(ours.gets(&forger.record(DATA, b"")), Ok((Vec::new(), Outcome::Open)));
            }
            assert_eq!(ours.gets(&forger.record(DATA, b"a")), Ok((b"a".to_vec(), Outcome::Open)));
        }
        let flood: Vec<u8> = (0..33).flat_map(|_| forger.record(DATA, b"")).collect();
        assert_eq!(ours.gets(&flood), Err(Alert::UnexpectedMessage));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_split_of_any_bytes_arrives(
        suite in prop::sample::select(vec![TLS13, TLS12, TLS12_CHACHA]),
        lens in prop::collection::vec(0_usize..40_000, 1..5),
        first in 1_usize..20_000,
        pieces in prop::collection::vec(1_usize..5000, 1..20),
        room in 1_usize..40_000,
    ) {
        let mut ends = connect(suite, TlsRole::Server);
        let all: Vec<Vec<u8>> = lens.iter().map(|&len| counted(len)).collect();
        // From the peer to our end, in pieces, into a buffer that may be too small for the next record.
        let bytes: Vec<u8> = all.iter().flat_map(|data| said(&mut ends.theirs, data)).collect();
        let (mut read, mut out) = (Vec::new(), vec![0; room]);
        let (mut received, mut rest) = (Vec::new(), &bytes[..]);
        for &piece in pieces.iter().cycle() {
            let (arrived, behind) = rest.split_at(piece.min(rest.len()));
            received.extend_from_slice(arrived);
            rest = behind;
            loop {
                match ends.ours.session.open(&received, &mut out).unwrap() {
                    OpenedRecord::Data { consumed, data } => {
                        read.extend_from_slice(&out[..data]);
                        received.drain(..consumed);
                    }
                    OpenedRecord::NoRoom(needed) => {
                        prop_assert!(needed > out.len());
                        out.resize(needed, 0);
                    }
                    OpenedRecord::Partial => break,
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            if rest.is_empty() {
                break;
            }
        }
        prop_assert!(received.is_empty());
        prop_assert!(read == all.concat());
        // From our end to the peer.
        for data in &all {
            let mut sealed = vec![0; TlsSession::sealed_len_max(data.len())];
            let len = ends.ours.session.seal(data, first, &mut sealed).unwrap();
            prop_assert!(gives(&mut ends.theirs, &sealed[..len]).unwrap() == *data);
        }
    }
}
