//! Request heads: any split parses alike, another parser reads the same, and the forwarded head has the same meaning.

#![no_main]

use fuzz::{LIMITS, assert_same_fields, in_pieces};
use http1::{
    BodyFraming, ConnectionOptions, ForwardedSender, Name, Parsed, RequestHead, RequestRewrite, RequestTarget,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for limits in &LIMITS {
        let (mut whole, mut pieces) = (RequestHead::default(), RequestHead::default());
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

fn check(head: &RequestHead, bytes: &[u8]) {
    let mut fields = [httparse::EMPTY_HEADER; 300];
    let mut other = httparse::Request::new(&mut fields);
    match other.parse(bytes) {
        Ok(status) => {
            assert_eq!(status, httparse::Status::Complete(head.len));
            assert_eq!(other.method.unwrap().as_bytes(), head.start.method_span.for_bytes(bytes));
            assert_eq!(other.path.unwrap().as_bytes(), head.start.target.for_bytes(bytes));
            assert_same_fields(head, bytes, other.headers);
        }
        // httparse does not read HTTP/1.2 and later as HTTP/1.1.
        Err(error) => assert_eq!(error, httparse::Error::Version),
    }
    let verdicts = (
        RequestTarget::from_head(head, bytes),
        http1::request_framing(head, bytes),
        ConnectionOptions::from_head(head, bytes),
    );
    let (Ok(target), Ok(framing), Ok(connection)) = verdicts else { return };
    for is_trusted in [false, true] {
        let address = [192, 0, 2, 7].into();
        let chain = is_trusted.then(|| http1::Chain::new(head, bytes, address, |_| true));
        let client = ForwardedSender { address, scheme: "http", chain };
        let wants_upgrade = http1::wants_upgrade(head, bytes, connection);
        let rewrite = RequestRewrite {
            target: &target,
            connection,
            framing,
            expects: true,
            wants_upgrade,
            client,
            via: http1::Via::Own,
            path_and_query: None,
            host: None,
            added: b"",
            trace: None,
            edits: None,
        };
        check_written(head, bytes, &rewrite);
    }
}

fn check_written(head: &RequestHead, bytes: &[u8], rewrite: &RequestRewrite<'_>) {
    let mut out = Vec::new();
    http1::write_request(&mut out, head, bytes, rewrite);
    let mut fields = [httparse::EMPTY_HEADER; 300];
    let mut other = httparse::Request::new(&mut fields);
    assert_eq!(other.parse(&out), Ok(httparse::Status::Complete(out.len())), "{}", out.escape_ascii());

    let mut again = RequestHead::default();
    assert_eq!(
        again.parse(&out, &http1::HeadLimits { bytes: 1 << 20, fields: 300, target: 1 << 20 }),
        Ok(Parsed::Complete)
    );
    assert_eq!(again.len, out.len());
    assert_eq!(again.start.method_span.for_bytes(&out), head.start.method_span.for_bytes(bytes));
    assert_eq!(http1::request_framing(&again, &out), Ok(rewrite.framing));
    let count = |name| again.values(&out, name).count();
    for once in [Name::Host, Name::XForwardedFor, Name::Forwarded] {
        assert_eq!(count(once), 1, "{}", out.escape_ascii());
    }
    for gone in [Name::KeepAlive, Name::ProxyConnection, Name::ProxyAuthorization, Name::Http2Settings] {
        assert_eq!(count(gone), 0);
    }
    assert!(again.value(&out, Name::XForwardedFor).unwrap().ends_with(b"192.0.2.7"));
    assert!(rewrite.client.chain.is_some() || count(Name::XForwardedOther) == 0);
    assert_eq!(count(Name::TransferEncoding), usize::from(rewrite.framing == BodyFraming::Chunked));
    let options = ConnectionOptions::from_head(&again, &out).expect("what is written is valid");
    assert!(!options.close && !options.keep_alive && !options.names_fields);
    let authority = rewrite.target.authority.for_bytes(bytes);
    assert_eq!(again.value(&out, Name::Host), Some(authority));
    if !authority.is_empty() {
        let read = RequestTarget::from_head(&again, &out).expect("what is written is valid");
        assert_eq!(read.authority.for_bytes(&out), authority);
        assert!(
            read.path_and_query.for_bytes(&out).ends_with(rewrite.target.path_and_query.for_bytes(bytes))
        );
    }
}
