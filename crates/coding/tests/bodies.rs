//! Encodes and decodes bodies in pieces of any size.

use coding::{BodyDecoder, BodyEncoder, Coding, Flush, Levels};
use proptest::prelude::*;

fn decode(coding: Coding, coded: &[u8], piece_bytes: usize, room: usize) -> Result<Vec<u8>, String> {
    let mut decoder = BodyDecoder::new(coding).expect("it needs no dictionary");
    let mut body = Vec::new();
    for mut piece in coded.chunks(piece_bytes.max(1)) {
        loop {
            let decoded = decoder.decode(piece, room, &mut body).map_err(|error| error.to_string())?;
            piece = &piece[decoded.used..];
            if piece.is_empty() && decoded.wants_input {
                break;
            }
        }
    }
    if decoder.is_over() { Ok(body) } else { Err("it is cut short".to_owned()) }
}

fn encode(coding: Coding, pieces: &[Vec<u8>], flush: Flush, size: Option<u64>) -> Vec<u8> {
    let mut encoder = BodyEncoder::new(coding, Levels::default(), size);
    let mut coded = Vec::new();
    for piece in pieces {
        encoder.encode(piece, flush, &mut coded).expect("it has memory");
    }
    encoder.encode(b"", Flush::End, &mut coded).expect("it has memory");
    coded
}

fn coding() -> impl Strategy<Value = Coding> {
    prop::sample::select(Coding::PLAIN.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_coded_is_decoded(
        coding in coding(),
        pieces in prop::collection::vec(prop::collection::vec(b'a'..b'f', 0..3000), 0..6),
        is_flushed in any::<bool>(),
        piece_bytes in 1..5000_usize,
        room in 1..5000_usize,
    ) {
        let flush = if is_flushed { Flush::Piece } else { Flush::Nothing };
        let body = pieces.concat();
        for size in [None, Some(body.len() as u64)] {
            let coded = encode(coding, &pieces, flush, size);
            prop_assert_eq!(decode(coding, &coded, piece_bytes, room), Ok(body.clone()));
        }
    }

    #[test]
    fn anything_is_decoded_or_refused(coding in coding(), bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _: Result<Vec<u8>, String> = decode(coding, &bytes, 7, 64);
    }
}

#[test]
fn each_piece_can_be_decoded_when_it_was_flushed() {
    for coding in Coding::PLAIN {
        let mut encoder = BodyEncoder::new(coding, Levels::default(), None);
        let mut decoder = BodyDecoder::new(coding).expect("it needs no dictionary");
        for number in 0..20 {
            let event = format!("data: {{\"token\": {number}}}\n\n");
            let (mut coded, mut seen) = (Vec::new(), Vec::new());
            let (piece, last) = event.as_bytes().split_at(number % 2 * 5);
            encoder.encode(piece, Flush::Nothing, &mut coded).expect("it has memory");
            encoder.encode(last, Flush::Nothing, &mut coded).expect("it has memory");
            encoder.encode(b"", Flush::Piece, &mut coded).expect("it has memory");
            let decoded = decoder.decode(&coded, 1000, &mut seen).expect("it is well coded");
            assert_eq!(
                (decoded.used, String::from_utf8_lossy(&seen)),
                (coded.len(), event.into()),
                "{coding:?}"
            );
        }
    }
}

#[test]
fn a_bomb_takes_no_more_memory_than_there_is_room() {
    for coding in Coding::PLAIN {
        let coded = encode(coding, &[vec![b'a'; 2 << 20]], Flush::Nothing, None);
        assert!(coded.len() < 8_000, "{coding:?}: {}", coded.len());
        let mut decoder = BodyDecoder::new(coding).expect("it needs no dictionary");
        let (mut used, mut total_bytes) = (0, 0);
        while !decoder.is_over() {
            let mut out = Vec::new();
            used += decoder.decode(&coded[used..], 16 << 10, &mut out).expect("it is well coded").used;
            assert!(out.len() <= 16 << 10, "{coding:?}");
            total_bytes += out.len();
        }
        assert_eq!(total_bytes, 2 << 20, "{coding:?}");
    }
}

#[test]
fn a_body_that_is_cut_short_or_goes_on_is_not_whole() {
    for coding in Coding::PLAIN {
        let coded = encode(coding, &[b"hello, world".to_vec()], Flush::Nothing, None);
        assert!(decode(coding, &coded[..coded.len() - 1], 100, 100).is_err(), "{coding:?}");
        let longer = [&coded[..], b"no member, no frame"].concat();
        assert!(decode(coding, &longer, 100, 100).is_err(), "{coding:?}");
        // Servers name a coding of empty bodies, too.
        let mut decoder = BodyDecoder::new(coding).expect("it needs no dictionary");
        assert!(decoder.is_whole() && !decoder.is_over(), "{coding:?}");
        decoder.decode(b"", 100, &mut Vec::new()).expect("nothing is malformed");
        assert!(decoder.is_whole(), "{coding:?}");
        decoder.decode(&coded[..1], 100, &mut Vec::new()).expect("it is well coded");
        assert!(!decoder.is_whole(), "{coding:?}");
    }
    // RFC 1952 §2.2: members may follow each other.
    let member = encode(Coding::Gzip, &[b"hello".to_vec()], Flush::Nothing, None);
    assert_eq!(decode(Coding::Gzip, &member.repeat(2), 100, 100), Ok(b"hellohello".to_vec()));
}

#[test]
fn a_coder_of_gzip_can_be_used_again() {
    let mut encoder = BodyEncoder::new(Coding::Gzip, Levels::default(), None);
    let mut first = Vec::new();
    encoder.encode(b"hello", Flush::Piece, &mut first).expect("it has memory");
    assert!(encoder.reset(Levels::default()));
    let mut coded = Vec::new();
    encoder.encode(b"hello, world", Flush::End, &mut coded).expect("it has memory");
    assert_eq!(decode(Coding::Gzip, &coded, 100, 100), Ok(b"hello, world".to_vec()));
    assert!(!encoder.reset(Levels { gzip: 9, ..Levels::default() }), "it has another level");
}

#[test]
fn a_dictionary_makes_what_is_like_it_short() {
    let dictionary: Vec<u8> =
        (0..20_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let mut body = dictionary.clone();
    body[40_000] ^= 1;
    let digest = [7; 32];
    for (coding, magic) in [(Coding::DictionaryBrotli, 4), (Coding::DictionaryZstd, 8)] {
        let size = Some(body.len() as u64);
        let levels = Levels::default();
        let mut encoder =
            BodyEncoder::with_dictionary(coding, levels, size, (&dictionary, &digest)).expect("it fits");
        let mut coded = Vec::new();
        encoder.encode(&body, Flush::End, &mut coded).expect("it has memory");
        assert!(coded.len() < 1000, "{coding:?}: {}", coded.len());
        assert_eq!(coded[magic..magic + 32], digest, "{coding:?}");
    }
}
