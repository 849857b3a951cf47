//! The rules of RFC 9111 and its neighbours, each with its table, then what holds for every input.

/// What is stored, and why not.
mod storing;
/// How long it is fresh, and what answers a request.
mod freshness;
/// Which variant fits.
mod varying;
/// What a stored response is found by.
mod keys;
/// Preconditions and ranges.
mod parts;
/// What a 304 changes.
mod refreshing;
/// What unsafe requests make invalid, and what clients are told.
mod telling;
/// What holds for every input.
mod properties;

use cache::{Asked, Decision, Found, Policy, Refusal, Stored, Times, admit, decide};
use http1::{HeadLimits, Parsed, RequestHead, ResponseHead};

pub(crate) const LIMITS: HeadLimits = HeadLimits { bytes: 64 * 1024, fields: 256, target: 16 * 1024 };

/// Sun, 06 Nov 1994 08:49:37 GMT, when every response of these tests arrives.
pub(crate) const NOW_MS: u64 = 784_111_777_000;
pub(crate) const NOW: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
pub(crate) const TIMES: Times = Times { requested_ms: NOW_MS, received_ms: NOW_MS };

/// A head and the bytes that it was parsed from.
pub(crate) struct Request {
    pub(crate) head: RequestHead,
    pub(crate) bytes: Vec<u8>,
}

/// A head and the bytes that it was parsed from.
pub(crate) struct Response {
    pub(crate) head: ResponseHead,
    pub(crate) bytes: Vec<u8>,
}

impl Request {
    pub(crate) fn new(method: &str, fields: &str) -> Self {
        let bytes = format!("{method} /path HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n").into_bytes();
        let mut head = RequestHead::default();
        assert_eq!(head.parse(&bytes, &LIMITS), Ok(Parsed::Complete), "{fields}");
        Self { head, bytes }
    }

    pub(crate) fn get(fields: &str) -> Self {
        Self::new("GET", fields)
    }

    pub(crate) fn asked(&self) -> Asked {
        Asked::of(&self.head, &self.bytes)
    }
}

impl Response {
    pub(crate) fn new(status: u16, fields: &str) -> Self {
        Self::read(format!("HTTP/1.1 {status} Word\r\n{fields}\r\n").into_bytes())
    }

    pub(crate) fn read(bytes: Vec<u8>) -> Self {
        let mut head = ResponseHead::default();
        assert_eq!(head.parse(&bytes, &LIMITS), Ok(Parsed::Complete), "{}", bytes.escape_ascii());
        Self { head, bytes }
    }
}

/// What is stored of a 200 with these fields that answers a plain GET, and its head.
pub(crate) fn store(fields: &str) -> Result<(Stored, Vec<u8>), Refusal> {
    store_for(&Request::get(""), &Response::new(200, fields), &Policy::default())
}

pub(crate) fn store_for(
    request: &Request,
    response: &Response,
    policy: &Policy,
) -> Result<(Stored, Vec<u8>), Refusal> {
    let mut head = Vec::new();
    let stored = admit(&request.asked(), &response.head, &response.bytes, TIMES, policy, &mut head)?;
    Ok((stored, head))
}

/// What becomes of a GET with these fields so many seconds after the response came.
pub(crate) fn decide_after(stored: &Stored, seconds: u64, fields: &str) -> Decision {
    let asked = Request::get(fields).asked();
    decide(&asked, Found::Variant(stored), &Policy::default(), NOW_MS + seconds * 1000)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
