//! Properties of every input: any split of the bytes parses alike, and another parser reads the same from the output.

use http1::{
    BodyFraming, ChunkError, ChunkLimits, ChunkedDecoder, ClientConnection, ConnectionOptions, HeadError,
    HeadLimits, MessageHead, Parsed, RequestHead, RequestTarget, ResponseHead, ResponseRewrite, chunk_prefix,
};
use proptest::prelude::*;

use crate::{LIMITS, parse_response, write_request};

/// So small that generated heads exceed each limit.
const TIGHT: HeadLimits = HeadLimits { bytes: 160, fields: 4, target: 24 };

/// Pieces of heads, valid and invalid.
fn head_pieces() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => prop::sample::select(vec![
            "GET / HTTP/1.1\r\n", "POST /a?b HTTP/1.0\r\n", "HTTP/1.1 200 OK\r\n", "HTTP/1.0 204\r\n", "\r\n", "Host: a\r\n",
            "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n", "Connection: close\r\n", "A: b c\t\r\n",
            "A : b\r\n", " folded\r\n", "A: b\n", "A: b\rc\r\n", "OPTIONS * HTTP/1.1\r\n", "GET http://h/ HTTP/1.1\r\n",
            "Via: 1.1 x\r\n", "Upgrade: x\r\n", "TE: trailers\r\n", "\n", "\r", ":", " ", "\t", "HTTP/2.0",
        ]).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..6),
    ];
    prop::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat())
}

/// Valid requests, with known and unknown fields.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let field = prop_oneof![
        "[A-Za-z][A-Za-z0-9!#$%&'*+.^_`|~-]{0,12}:[ \t]{0,2}([!-~][ -~\t\u{80}-\u{ff}]{0,20})?",
        prop::sample::select(vec![
            "Connection: close, X-A",
            "Connection: keep-alive",
            "X-A: 1",
            "Keep-Alive: 5",
            "Transfer-Encoding: chunked",
            "TE: trailers",
            "Upgrade: websocket",
            "Connection: upgrade",
            "X-Forwarded-For: 1.2.3.4",
            "Via: 1.0 a",
            "Forwarded: for=x",
            "Expect: 100-continue",
            "X-Forwarded-Proto: https",
            "Max-Forwards: 3",
        ])
        .prop_map(str::to_owned),
    ];
    let target = prop_oneof!["/[a-z/?%=]{0,12}", "http://t[a-z.]{0,5}(:[0-9]{0,4})?(/[a-z?]{0,5})?"];
    (
        prop::sample::select(vec!["GET", "POST", "OPTIONS", "X"]),
        target,
        "1\\.[019]",
        prop::collection::vec(field, 0..8),
    )
        .prop_map(|(method, target, version, fields)| {
            let fields = fields.iter().fold(String::new(), |all, field| all + field + "\r\n");
            format!("{method} {target} HTTP/{version}\r\nHost: a.example\r\n{fields}\r\n").into_bytes()
        })
}

/// Feeds a head in pieces that end at these positions.
macro_rules! parse_in_pieces {
    ($head:ty, $bytes:expr, $cuts:expr, $limits:expr) => {{
        let (bytes, mut head) = ($bytes, <$head>::default());
        let mut cuts: Vec<usize> = $cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        cuts.push(bytes.len());
        let outcomes = cuts.into_iter().map(|cut| head.parse(&bytes[..cut], $limits));
        let last = outcomes.skip_while(|outcome| *outcome == Ok(Parsed::Partial)).next();
        facts(last.unwrap_or(Ok(Parsed::Partial)), head)
    }};
}

type Facts<Start> = Result<(Parsed, Option<(Start, Vec<http1::FieldLine>, usize)>), HeadError>;

fn facts<Start>(outcome: Result<Parsed, HeadError>, head: MessageHead<Start>) -> Facts<Start> {
    outcome.map(|parsed| {
        (parsed, (parsed == Parsed::Complete).then_some((head.start, head.fields.to_vec(), head.len)))
    })
}

fn decode_in_pieces(
    bytes: &[u8],
    cuts: &[prop::sample::Index],
) -> Result<(Vec<u8>, Vec<u8>, bool), ChunkError> {
    let limits = ChunkLimits { extension_bytes: 64, trailer_bytes: 128 };
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.sort_unstable();
    cuts.push(bytes.len());
    let (mut chunked, mut data, mut start, mut is_done) = (ChunkedDecoder::default(), Vec::new(), 0, false);
    for cut in cuts {
        let mut piece = bytes[start..cut].to_vec();
        let decoded = chunked.decode(&mut piece, &limits)?;
        data.extend_from_slice(&piece[..decoded.data]);
        start += decoded.consumed;
        is_done = decoded.done;
    }
    Ok((data, chunked.trailers().to_vec(), is_done))
}

/// Fields by lower-case name, parsed by httparse.
fn fields_by_httparse(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut fields);
    assert_eq!(request.parse(bytes), Ok(httparse::Status::Complete(bytes.len())));
    request.headers.iter().map(|field| (field.name.to_ascii_lowercase(), field.value.to_vec())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_split_of_a_head_parses_alike(bytes in head_pieces(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        for limits in [&LIMITS, &TIGHT] {
            let whole = parse_in_pieces!(RequestHead, &bytes, [] as [prop::sample::Index; 0], limits);
            prop_assert_eq!(parse_in_pieces!(RequestHead, &bytes, cuts, limits), whole);
            let whole = parse_in_pieces!(ResponseHead, &bytes, [] as [prop::sample::Index; 0], limits);
            prop_assert_eq!(parse_in_pieces!(ResponseHead, &bytes, cuts, limits), whole);
        }
    }

    #[test]
    fn nothing_in_a_parsed_head_ends_a_line(bytes in head_pieces()) {
        let mut head = RequestHead::default();
        if head.parse(&bytes, &LIMITS) == Ok(Parsed::Complete) {
            for field in &head.fields {
                for part in [field.name.for_bytes(&bytes), field.value.for_bytes(&bytes)] {
                    prop_assert!(!part.iter().any(|byte| b"\r\n\0".contains(byte)));
                }
            }
            prop_assert!(!head.start.target.for_bytes(&bytes).iter().any(|&byte| byte <= b' ' || byte >= 0x7f));
            // None of these may panic, whatever they return.
            let _ = (RequestTarget::from_head(&head, &bytes), http1::request_framing(&head, &bytes), ConnectionOptions::from_head(&head, &bytes));
        }
    }

    #[test]
    fn any_split_of_a_body_decodes_alike(
        pieces in prop::collection::vec(prop_oneof![
            prop::sample::select(vec![
                "5\r\nhello\r\n", "1;a=b\r\nx\r\n", "0\r\n", "\r\n", "A: b\r\n", "Host: x\r\n", "0", "5", "\r", "\n", ";", " ",
                "ffffffffffffffff", "a\r\n0123456789\r\n",
            ]).prop_map(|piece| piece.as_bytes().to_vec()),
            prop::collection::vec(any::<u8>(), 0..4),
        ], 0..10),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let bytes = pieces.concat();
        prop_assert_eq!(decode_in_pieces(&bytes, &cuts), decode_in_pieces(&bytes, &[]));
    }

    #[test]
    fn decoding_inverts_encoding(
        chunks in prop::collection::vec((prop::collection::vec(any::<u8>(), 1..40), "(;[a-z=\"]{0,5})?"), 0..8),
        trailers in prop::collection::vec("X[a-z]{0,6}: [!-~]{0,8}\r\n", 0..3),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut bytes = Vec::new();
        for (data, extension) in &chunks {
            let (prefix, start) = chunk_prefix(data.len());
            let size = prefix[start..].strip_suffix(b"\r\n").unwrap();
            bytes.extend([size, extension.as_bytes(), b"\r\n", data, b"\r\n"].concat());
        }
        bytes.extend([b"0\r\n", trailers.concat().as_bytes(), b"\r\n"].concat());
        let data: Vec<u8> = chunks.into_iter().flat_map(|(data, _)| data).collect();
        prop_assert_eq!(decode_in_pieces(&bytes, &cuts), Ok((data, trailers.concat().into_bytes(), true)));
    }

    #[test]
    fn a_written_request_reads_as_it_is_meant(bytes in request(), is_trusted in any::<bool>()) {
        let mut head = RequestHead::default();
        prop_assert_eq!(head.parse(&bytes, &LIMITS), Ok(Parsed::Complete));
        let verdicts = (RequestTarget::from_head(&head, &bytes), http1::request_framing(&head, &bytes), ConnectionOptions::from_head(&head, &bytes));
        let (Ok(target), Ok(framing), Ok(options)) = verdicts else { return Ok(()) };
        // The helper takes text; fuzz targets cover other bytes.
        prop_assume!(std::str::from_utf8(&bytes).is_ok());
        let out = write_request::written(&bytes, "192.0.2.7", is_trusted, None).into_bytes();
        let fields = fields_by_httparse(&out);
        let count = |name: &str| fields.iter().filter(|(other, _)| other == name).count();
        for gone in ["keep-alive", "proxy-connection"] {
            prop_assert_eq!(count(gone), 0);
        }
        if options.names_fields {
            prop_assert_eq!(count("x-a"), 0);
        }
        for once in ["host", "x-forwarded-for", "x-forwarded-host", "forwarded"] {
            prop_assert_eq!(count(once), 1, "{}", once);
        }
        let value = |name: &str| fields.iter().rfind(|(other, _)| other == name).map(|(_, value)| value.as_slice());
        prop_assert_eq!(value("host"), Some(target.authority.for_bytes(&bytes)));
        prop_assert!(value("via").unwrap().ends_with(b" vanward"));
        prop_assert!(value("x-forwarded-for").unwrap().ends_with(b"192.0.2.7"));
        prop_assert!(is_trusted || value("x-forwarded-proto") == Some(b"http"));
        prop_assert_eq!(count("transfer-encoding"), usize::from(framing == BodyFraming::Chunked));

        let mut again = RequestHead::default();
        prop_assert_eq!(again.parse(&out, &LIMITS), Ok(Parsed::Complete));
        prop_assert_eq!(again.len, out.len());
        prop_assert_eq!(http1::request_framing(&again, &out), Ok(framing));
        prop_assert_eq!(again.start.method_span.for_bytes(&out), head.start.method_span.for_bytes(&bytes));
        let read = RequestTarget::from_head(&again, &out).unwrap();
        prop_assert_eq!(read.authority.for_bytes(&out), target.authority.for_bytes(&bytes));
        prop_assert!(read.path_and_query.for_bytes(&out).ends_with(target.path_and_query.for_bytes(&bytes)));
    }

    #[test]
    fn a_written_response_reads_as_it_is_meant(
        status in 200u16..600,
        reason in "( [ -~]{0,8})?",
        fields in prop::collection::vec(prop_oneof!["[A-Z][a-z]{0,8}: [!-~]{0,9}", Just("Connection: X-A".to_owned()), Just("X-A: 1".to_owned())], 0..6),
        is_chunked in any::<bool>(),
    ) {
        let fields = fields.iter().fold(String::new(), |all, field| all + field + "\r\n");
        let bytes = format!("HTTP/1.1 {status}{reason}\r\n{fields}\r\n").into_bytes();
        let head = parse_response(&bytes).unwrap();
        let Ok(connection) = ConnectionOptions::from_head(&head, &bytes) else { return Ok(()) };
        let framing = if is_chunked { BodyFraming::Chunked } else { BodyFraming::UntilClose };
        let client_connection = ClientConnection::Close;
        let rewrite =
        ResponseRewrite { connection, framing, client_connection, date: b"NOW", via: http1::Via::Own, added: b"", edits: None, passes_alt_svc: false };
        let mut out = Vec::new();
        http1::write_response(&mut out, &head, &bytes, &rewrite);

        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut headers);
        prop_assert_eq!(response.parse(&out), Ok(httparse::Status::Complete(out.len())));
        prop_assert_eq!(response.code, Some(status));
        prop_assert_eq!(response.headers.iter().filter(|field| field.name == "Date").count(), 1);
        prop_assert_eq!(response.headers.iter().filter(|field| field.name == "Connection").count(), 1);
        prop_assert!(!connection.names_fields || response.headers.iter().all(|field| field.name != "X-A"));

        let again = parse_response(&out).unwrap();
        prop_assert_eq!(again.len, out.len());
        prop_assert_eq!(again.start.reason.for_bytes(&out), head.start.reason.for_bytes(&bytes));
        let expected = if matches!(status, 204 | 304) { BodyFraming::None } else { framing };
        prop_assert_eq!(http1::response_framing(&again, &out, false), Ok(expected));
    }
}
