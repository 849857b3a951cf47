//! Properties of random inputs: the split of the bytes does not change the result, and written records read back.

use fastcgi::{RecordType, Response};
use proptest::prelude::*;

use crate::{LIMITS, end, padded, read_pieces};

/// Records of a response, whole and broken.
fn response_pieces() -> impl Strategy<Value = Vec<u8>> {
    let content = prop_oneof![
        3 => prop::sample::select(vec![
            "", "A: b\r\n", "Status: 404\r\n", "Content-Length: 5\r\n\r\n", "\r\n", "\n", "body", "hello",
            "Location: /x\n\n", "A: b\n\nhello", " folded\n", "\r", "Status: 100\n\n", "content_length: 1\r\n", "A:b\n",
            // Whole heads in the usual form, which are read at once, and heads that are nearly so.
            "Status: 404 Gone\r\nX-A: b\r\nConnection: x\r\n\r\nbody", "Location: /x\r\n\r\n", "A: b\r\n\r\nhello",
            "Content-Type: a\r\ncontent-type: b\r\n\r\n", "Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "TE: a\r\nTE: b\r\nA: b\r\nTE: c\r\nTE: d\r\nTE: e\r\n\r\n", "A: b \r\n\r\n", "A: b\x7f\r\n\r\n",
            "A: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\nE: 5\r\nF: 6\r\nG: 7\r\nH: 8\r\nI: 9\r\n\r\n", "Status: 100\r\n\r\n",
        ])
        .prop_map(|content| content.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..80),
    ];
    let output = prop_oneof![4 => Just(RecordType::Stdout), 1 => Just(RecordType::Stderr)];
    let piece = prop_oneof![
        12 => (output, content, prop_oneof![Just(0), 0..=255u8])
            .prop_map(|(kind, content, padding)| padded(kind, &content, padding)),
        2 => (any::<u32>(), 0..5u8).prop_map(|(app, protocol)| end(app, protocol)),
        1 => (0..13u8, 0..3u8, 0..3u8, 0..9u8).prop_map(|(kind, version, id, content)| {
            vec![version, kind, 0, id, 0, content, 0, 0]
        }),
        1 => prop::collection::vec(any::<u8>(), 0..12),
    ];
    prop::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_split_of_the_bytes_is_read_alike(
        bytes in response_pieces(),
        lens in prop::collection::vec(1..40usize, 0..40),
        to_head: bool,
    ) {
        let read = |lens: Vec<usize>| read_pieces(&mut Response::new(LIMITS, to_head), &bytes, lens);
        let whole = read(vec![]);
        prop_assert_eq!(&read(lens), &whole);
        prop_assert_eq!(&read(vec![1; bytes.len()]), &whole);
    }

    #[test]
    fn what_is_read_is_within_its_limits(bytes in response_pieces()) {
        let seen = read_pieces(&mut Response::new(LIMITS, false), &bytes, []);
        prop_assert!(seen.stderr.len() <= LIMITS.stderr_bytes);
        prop_assert!(seen.end.is_none() || seen.error.is_none());
        if let Some(outline) = seen.outline {
            prop_assert!(seen.head.len() <= LIMITS.head.bytes + 2 * LIMITS.head.fields + 100);
            let mut head = http1::ResponseHead::default();
            let limits = http1::HeadLimits { bytes: 4096, fields: 16, target: 1 };
            prop_assert_eq!(head.parse(seen.head.as_bytes(), &limits), Ok(http1::Parsed::Complete));
            prop_assert_eq!((head.len, head.start.status), (seen.head.len(), outline.status));
            let framing = http1::response_framing(&head, seen.head.as_bytes(), false);
            let expected = match outline.body {
                fastcgi::Body::None | fastcgi::Body::Length(0) => http1::BodyFraming::None,
                fastcgi::Body::Length(length) => http1::BodyFraming::Length(length),
                fastcgi::Body::UntilEnd => http1::BodyFraming::UntilClose,
            };
            prop_assert_eq!(framing, Ok(expected));
        }
    }

    #[test]
    fn bodies_of_any_records_arrive_whole(
        pieces in prop::collection::vec((prop::collection::vec(any::<u8>(), 1..300), any::<u8>()), 0..8),
    ) {
        let body: Vec<u8> = pieces.iter().flat_map(|(content, _)| content.clone()).collect();
        let head = format!("Content-Length: {}\n\n", body.len());
        let mut bytes = padded(RecordType::Stdout, head.as_bytes(), 0);
        pieces.iter().for_each(|(content, padding)| bytes.extend(padded(RecordType::Stdout, content, *padding)));
        bytes.extend(end(0, 0));
        let seen = read_pieces(&mut Response::new(LIMITS, false), &bytes, []);
        prop_assert_eq!((seen.body, seen.error, seen.len), (body, None, bytes.len()));
        prop_assert!(seen.end.is_some());
    }
}
