//! The rules of RFC 9111 and related RFCs, each with its table, then properties of every input.

/// Which responses are stored.
mod storing;
/// Freshness, and when a stored response answers a request.
mod freshness;
/// Variants.
mod varying;
/// Cache keys.
mod keys;
/// Preconditions and ranges.
mod parts;
/// Updates by a 304.
mod refreshing;
/// Invalidation by unsafe requests, and fields for clients.
mod telling;
/// Properties of every input.
mod properties;

use cache::{
    CachePolicy, CacheRequestFields, Decision, KeptHead, LookUp, NotStored, Stored, StoredTimes, admit,
    decide,
};
use http1::{HeadLimits, Parsed, RequestHead, ResponseHead};

pub(crate) const LIMITS: HeadLimits = HeadLimits { bytes: 64 * 1024, fields: 256, target: 16 * 1024 };

/// Sun, 06 Nov 1994 08:49:37 GMT, when every response of these tests arrives.
pub(crate) const NOW_MS: u64 = 784_111_777_000;
pub(crate) const NOW: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
pub(crate) const TIMES: StoredTimes = StoredTimes { requested_ms: NOW_MS, received_ms: NOW_MS, ttl_ms: None };

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

    pub(crate) fn asked(&self) -> CacheRequestFields {
        CacheRequestFields::new(&self.head, &self.bytes)
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

/// Stores a 200 with these fields as the response to a plain GET. Returns metadata and head.
pub(crate) fn store(fields: &str) -> Result<(Stored, Vec<u8>), NotStored> {
    store_for(&Request::get(""), &Response::new(200, fields), &CachePolicy::default())
}

pub(crate) fn store_for(
    request: &Request,
    response: &Response,
    policy: &CachePolicy,
) -> Result<(Stored, Vec<u8>), NotStored> {
    let (stored, kept) = keep(request, response, policy)?;
    Ok((stored, kept.shown))
}

/// As `store_for`, with the whole head.
pub(crate) fn keep(
    request: &Request,
    response: &Response,
    policy: &CachePolicy,
) -> Result<(Stored, KeptHead), NotStored> {
    let mut kept = KeptHead::default();
    let stored = admit(&request.asked(), &response.head, &response.bytes, TIMES, policy, &mut kept)?;
    Ok((stored, kept))
}

/// The decision for a GET with these fields, this many seconds after the response came.
pub(crate) fn decide_after(stored: &Stored, seconds: u64, fields: &str) -> Decision {
    let asked = Request::get(fields).asked();
    decide(&asked, LookUp::Variant(stored), &CachePolicy::default(), NOW_MS + seconds * 1000)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
