//! Mutations of valid messages: the fast parser and the oracle always agree.

use http1::{
    BodyFraming, ClientConnection, ConnectionOptions, FramingError, HeadError, HeadLimits, MessageHead, Name,
    Parsed, RequestHead, RequestTarget, ResponseHead, ResponseRewrite,
};
use proptest::prelude::*;

use crate::oracle::{self, Read, Start};
use crate::{LIMITS, text};

/// So small that the messages below exceed each limit.
const TIGHT: HeadLimits = HeadLimits { bytes: 150, fields: 5, target: 16 };

const MESSAGES: [&str; 8] = [
    "GET /tiny HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n",
    "GET /articles/2024/on-proxies?page=2&x=y?z HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: Mozilla/5.0 (X11; \
     Linux x86_64; rv:128.0)\r\nAccept: */*\r\nConnection: keep-alive\r\nSec-Fetch-Dest: document\r\nX-Id2: 1\r\n\r\n",
    "POST http://h:1/a?b HTTP/1.0\r\nhost:h\r\nContent-Length: 12\r\nExpect: 100-continue\r\nContent-Type: a/b\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE, close, X-A\r\nX-A: \t1 \r\nMax-Forwards: 3\r\n\r\n",
    "M-SEARCH / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nX-Forwarded-For: 1.2.3.4\r\nX_Forwarded_Port: 1\r\n\r\n",
    "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: 128\r\n\
     Connection: keep-alive\r\nETag: \"66a2b3c4-80\"\r\nAccept-Ranges: bytes\r\n\r\n",
    "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\nConnection: close\r\nKeep-Alive: timeout=5\r\nvia: 1.1 a\r\n\r\n",
    "HTTP/1.0 204\r\nDate:x\r\nContent-Length: 0\r\nContent-Length: 0\r\nProxy-Authenticate: Basic\r\n\r\nbody",
];

/// A valid message with some bytes replaced, inserted or removed, or two lines replaced by those of others.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => prop::sample::select(b"\r\n\t :;,?#-_/aAzZ@[`{019.\0\x1f\x7f\x80\xff".to_vec()),
        1 => any::<u8>(),
    ];
    let change = (0..4u8, any::<prop::sample::Index>(), any::<prop::sample::Index>(), byte);
    (prop::sample::select(MESSAGES.to_vec()), prop::collection::vec(change, 0..4)).prop_map(
        |(message, changes)| {
            let mut bytes = message.as_bytes().to_vec();
            for (kind, index, other, byte) in changes {
                let at = index.index(bytes.len());
                match kind {
                    0 => bytes[at] = byte,
                    1 => bytes.insert(at, byte),
                    2 if bytes.len() > 1 => drop(bytes.remove(at)),
                    _ => {
                        let lines: Vec<&str> =
                            MESSAGES.iter().flat_map(|message| message.split_inclusive("\r\n")).collect();
                        let line_start =
                            bytes[..at].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
                        let line = other.get(&lines).bytes();
                        bytes.splice(line_start..line_start, line);
                    }
                }
            }
            bytes
        },
    )
}

fn fields<StartLine>(head: &MessageHead<StartLine>, bytes: &[u8]) -> Vec<oracle::Field> {
    let field = |field: &http1::FieldLine| oracle::Field {
        name: field.name.for_bytes(bytes).to_vec(),
        value: field.value.for_bytes(bytes).to_vec(),
        known: field.known,
        line: bytes[field.name.start as usize..field.line_end as usize].to_vec(),
    };
    head.fields.iter().map(field).collect()
}

fn read_request(bytes: &[u8], limits: &HeadLimits) -> Result<Option<(RequestHead, Read)>, HeadError> {
    let mut head = RequestHead::default();
    if head.parse(bytes, limits)? == Parsed::Partial {
        return Ok(None);
    }
    let line = head.start;
    let start = Start::Request {
        method: line.method,
        method_text: line.method_span.for_bytes(bytes).to_vec(),
        target: line.target.for_bytes(bytes).to_vec(),
        version: line.version,
    };
    let read = Read { start, fields: fields(&head, bytes), len: head.len };
    Ok(Some((head, read)))
}

fn read_response(bytes: &[u8], limits: &HeadLimits) -> Result<Option<(ResponseHead, Read)>, HeadError> {
    let mut head = ResponseHead::default();
    if head.parse(bytes, limits)? == Parsed::Partial {
        return Ok(None);
    }
    let line = head.start;
    let start = Start::Response {
        status: line.status,
        reason: line.reason.for_bytes(bytes).to_vec(),
        version: line.version,
    };
    let read = Read { start, fields: fields(&head, bytes), len: head.len };
    Ok(Some((head, read)))
}

/// Checks that lookups by name find the same fields as a linear search.
fn check_lookups<StartLine>(head: &MessageHead<StartLine>, bytes: &[u8], fields: &[oracle::Field]) {
    for name in oracle::NAMES.into_iter().chain([Name::XForwardedOther]) {
        let expected: Vec<&[u8]> =
            fields.iter().filter(|field| field.known == name).map(|field| field.value.as_slice()).collect();
        assert_eq!(head.values(bytes, name).collect::<Vec<_>>(), expected, "{name:?} in {}", text(bytes));
        assert_eq!(head.value(bytes, name), expected.first().copied(), "{name:?} in {}", text(bytes));
    }
}

fn check_options<StartLine>(head: &MessageHead<StartLine>, bytes: &[u8], fields: &[oracle::Field]) {
    let members = oracle::connection(fields);
    let Ok(options) = ConnectionOptions::from_head(head, bytes) else { return };
    let has = |member: &str| members.iter().any(|other| other == member);
    let expected = (has("close"), has("keep-alive"), has("upgrade"));
    assert_eq!((options.close, options.keep_alive, options.upgrade), expected, "{}", text(bytes));
}

/// Checks that a response keeps the lines that must be forwarded, unchanged.
fn check_copied(head: &ResponseHead, bytes: &[u8], fields: &[oracle::Field]) {
    let Ok(connection) = ConnectionOptions::from_head(head, bytes) else { return };
    let client_connection = ClientConnection::Persist;
    let rewrite = ResponseRewrite {
        passes_alt_svc: false,
        edits: None,
        connection,
        framing: BodyFraming::Length(1),
        client_connection,
        date: b"NOW",
        via: http1::Via::Own,
        added: b"",
    };
    let mut out = Vec::new();
    http1::write_response(&mut out, head, bytes, &rewrite);
    let named = oracle::connection(fields);
    let status = head.start.status;
    let stays = |field: &&oracle::Field| {
        let name = String::from_utf8_lossy(&field.name).to_lowercase();
        !named.contains(&name)
            && match field.known {
                Name::ContentLength => status >= 200 && status != 204,
                Name::Connection | Name::KeepAlive | Name::ProxyConnection | Name::ProxyAuthenticate => false,
                Name::ProxyAuthorization | Name::Te | Name::TransferEncoding | Name::Upgrade => false,
                Name::Http2Settings | Name::AltSvc => false,
                _ => true,
            }
    };
    let kept: Vec<u8> = fields.iter().filter(stays).flat_map(|field| field.line.clone()).collect();
    let status_line_len = out.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    assert!(out[status_line_len..].starts_with(&kept), "{} became {}", text(bytes), text(&out));
    let added = text(&out[status_line_len + kept.len()..]);
    assert!(added.starts_with("Via: ") || added.starts_with("Date: NOW") || added.starts_with("Upgrade: "));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn the_quick_and_the_slow_reader_agree(bytes in message()) {
        for limits in [&LIMITS, &TIGHT] {
            let request = read_request(&bytes, limits);
            let expected = oracle::read(&bytes, limits, true);
            let quick = request.as_ref().map(|read| read.as_ref().map(|(_, read)| read)).map_err(|error| *error);
            prop_assert_eq!(quick, expected.as_ref().map(Option::as_ref).map_err(|error| *error), "{}", text(&bytes));
            if let Ok(Some((head, read))) = request {
                check_lookups(&head, &bytes, &read.fields);
                check_options(&head, &bytes, &read.fields);
                let declared = oracle::declared(&read.fields, head.start.version);
                let expected = declared.map(|framing| match framing {
                    None | Some(BodyFraming::Length(0)) => BodyFraming::None,
                    Some(framing) => framing,
                });
                prop_assert_eq!(http1::request_framing(&head, &bytes), expected);
                if let Ok(target) = RequestTarget::from_head(&head, &bytes) {
                    let whole = target.path_and_query.for_bytes(&bytes);
                    let path = whole.split(|&byte| byte == b'?').next();
                    prop_assert_eq!(Some(target.path.for_bytes(&bytes)), path);
                }
            }
            let response = read_response(&bytes, limits);
            let expected = oracle::read(&bytes, limits, false);
            let quick = response.as_ref().map(|read| read.as_ref().map(|(_, read)| read)).map_err(|error| *error);
            prop_assert_eq!(quick, expected.as_ref().map(Option::as_ref).map_err(|error| *error), "{}", text(&bytes));
            if let Ok(Some((head, read))) = response {
                check_lookups(&head, &bytes, &read.fields);
                check_options(&head, &bytes, &read.fields);
                check_copied(&head, &bytes, &read.fields);
                let declared: Result<_, FramingError> = oracle::declared(&read.fields, head.start.version);
                if !matches!(head.start.status, 204 | 304) {
                    let expected = declared.map(|framing| match framing {
                        None => BodyFraming::UntilClose,
                        Some(BodyFraming::Length(0)) => BodyFraming::None,
                        Some(framing) => framing,
                    });
                    prop_assert_eq!(http1::response_framing(&head, &bytes, false), expected);
                }
            }
        }
    }
}
