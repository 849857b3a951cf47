//! Response heads: any split parses alike, another parser reads the same, and the forwarded head has the same meaning.

#![no_main]

use fuzz::{LIMITS, assert_same_fields, in_pieces};
use http1::{BodyFraming, ClientConnection, ConnectionOptions, Name, Parsed, ResponseHead, ResponseRewrite};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for limits in &LIMITS {
        let (mut whole, mut pieces) = (ResponseHead::default(), ResponseHead::default());
        let verdict = whole.parse(bytes, limits);
        assert_eq!(in_pieces(bytes, |bytes| pieces.parse(bytes, limits)), verdict);
        if verdict == Ok(Parsed::Complete) {
            assert_eq!(
                (pieces.start, &pieces.fields[..], pieces.len),
                (whole.start, &whole.fields[..], whole.len)
            );
            check(&whole, &bytes[..whole.len]);
        }
    }
});

fn check(head: &ResponseHead, bytes: &[u8]) {
    let mut fields = [httparse::EMPTY_HEADER; 300];
    let mut other = httparse::Response::new(&mut fields);
    match other.parse(bytes) {
        Ok(status) => {
            assert_eq!(status, httparse::Status::Complete(head.len));
            assert_eq!(other.code, Some(head.start.status));
            assert_same_fields(head, bytes, other.headers);
        }
        // httparse does not read HTTP/1.2 and later as HTTP/1.1.
        Err(error) => assert_eq!(error, httparse::Error::Version),
    }
    let verdicts = (http1::response_framing(head, bytes, false), ConnectionOptions::from_head(head, bytes));
    let (Ok(framing), Ok(connection)) = verdicts else { return };
    for client_connection in [ClientConnection::Persist, ClientConnection::Close, ClientConnection::Upgrade] {
        let (date, added, edits) = (b"now", b"", None);
        let rewrite = ResponseRewrite {
            passes_alt_svc: false,
            connection,
            framing,
            client_connection,
            date,
            via: http1::Via::Own,
            added,
            edits,
        };
        check_written(head, bytes, &rewrite);
    }
}

fn check_written(head: &ResponseHead, bytes: &[u8], rewrite: &ResponseRewrite<'_>) {
    let mut out = Vec::new();
    http1::write_response(&mut out, head, bytes, rewrite);
    let mut fields = [httparse::EMPTY_HEADER; 300];
    let mut other = httparse::Response::new(&mut fields);
    assert_eq!(other.parse(&out), Ok(httparse::Status::Complete(out.len())), "{}", out.escape_ascii());
    assert_eq!(other.version, Some(1));

    let mut again = ResponseHead::default();
    assert_eq!(
        again.parse(&out, &http1::HeadLimits { bytes: 1 << 20, fields: 300, target: 1 << 20 }),
        Ok(Parsed::Complete)
    );
    assert_eq!((again.len, again.start.status), (out.len(), head.start.status));
    assert_eq!(again.start.reason.for_bytes(&out), head.start.reason.for_bytes(bytes));
    let status = head.start.status;
    let count = |name| again.values(&out, name).count();
    assert_eq!(count(Name::TransferEncoding), usize::from(rewrite.framing == BodyFraming::Chunked));
    assert!(count(Name::ContentLength) == 0 || (status >= 200 && status != 204));
    assert!(count(Name::Date) > 0 || status < 200);
    assert_eq!(count(Name::KeepAlive) + count(Name::ProxyConnection) + count(Name::ProxyAuthenticate), 0);
    let options = ConnectionOptions::from_head(&again, &out).expect("what is written is valid");
    assert_eq!(options.close, rewrite.client_connection == ClientConnection::Close);
    assert!(!options.names_fields);
    if status >= 200 {
        assert_eq!(http1::response_framing(&again, &out, false), Ok(rewrite.framing));
    }
}
