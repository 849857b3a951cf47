//! Captured traffic: requests that a proxy, a browser or a network interface has seen, from logs, HAR files and pcap
//! files, and the file form that Vanward keeps them in.
//!
//! Pure: bytes in, requests or bytes out.

#![forbid(unsafe_code)]

/// Times of logs as Unix times.
mod time;
/// Lines of access logs.
mod logs;
/// Recordings of browsers.
mod har;
/// Packets of a network interface.
#[cfg(feature = "packets")]
mod pcap;
/// Replaces secrets.
mod mask;
/// The file form of captures.
mod file;

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub use file::{head_line, lost_line, lost_requests, read, request_line, write};
pub use har::har;
pub use logs::{LogReader, LogSource};
pub use mask::Mask;
#[cfg(feature = "packets")]
pub use pcap::pcap;

/// Requests beyond this number are left out.
pub const REQUESTS_MAX: usize = 1_000_000;
/// Longer bodies are left out.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// Longer bodies of running traffic are left out: many may wait in memory.
pub const LIVE_BODY_BYTES_MAX: usize = 64 << 10;

/// Captured requests, in the order of their arrival.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capture {
    /// The kind of file that the requests are from, such as `nginx access log`.
    pub source: String,
    /// Facts that a faithful replay needs and the source does not have.
    pub lacks: Vec<String>,
    pub requests: Vec<CapturedRequest>,
    pub skipped: SkippedEntries,
    /// Whether secrets are replaced.
    pub is_masked: bool,
}

impl Capture {
    /// Returns an empty capture of the running proxy, which masks secrets if there is a mask.
    pub fn of_running_proxy(mask: Option<&Mask>, has_bodies: bool) -> Self {
        let bodies = "bodies of requests";
        let lacks = vec![match has_bodies {
            true => {
                format!("{bodies} that are not buffered, or longer than {} KiB", LIVE_BODY_BYTES_MAX >> 10)
            }
            false => bodies.to_owned(),
        }];
        let mut empty = Self { source: "vanward".to_owned(), lacks, ..Self::default() };
        if let Some(mask) = mask {
            mask.apply(&mut empty);
        }
        empty
    }
}

/// Entries of the source that are no requests, or beyond a limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedEntries {
    pub count: u64,
    /// The first one, with the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
}

impl SkippedEntries {
    pub(crate) fn add(&mut self, why: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.is_none() {
            self.first = Some(why());
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapturedRequest {
    /// Milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<CapturedScheme>,
    /// Host, with the port if the client sent one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    pub method: String,
    /// Path and query.
    pub target: String,
    /// `1.0`, `1.1`, `2` or `3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Without `Host`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<CapturedBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<CapturedResponse>,
}

impl CapturedRequest {
    /// Returns the first field of this name.
    pub fn field(&self, name: &str) -> Option<&str> {
        field(&self.fields, name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CapturedScheme {
    Http,
    Https,
}

impl CapturedScheme {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        match word {
            "http" => Some(Self::Http),
            "https" => Some(Self::Https),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapturedBody {
    pub bytes: u64,
    /// In base64; none if only the length is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
}

impl CapturedBody {
    /// Returns the content, unless only the length is known.
    pub fn content(&self) -> Option<Vec<u8>> {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.decode(self.base64.as_ref()?).ok()
    }

    /// A body with its content, or only its length if it is long.
    pub fn of(content: &[u8]) -> Self {
        use base64::Engine as _;
        let base64 = (content.len() <= BODY_BYTES_MAX)
            .then(|| base64::engine::general_purpose::STANDARD.encode(content));
        Self { bytes: content.len() as u64, base64 }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapturedResponse {
    pub status: u16,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<(String, String)>,
    /// The length of the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_bytes: Option<u64>,
}

impl CapturedResponse {
    /// Returns the first field of this name.
    pub fn field(&self, name: &str) -> Option<&str> {
        field(&self.fields, name)
    }
}

/// Why a file is no capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureError {
    /// Counted from 1.
    pub line: Option<usize>,
    pub why: String,
}

impl CaptureError {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self { line: None, why: why.into() }
    }

    pub(crate) fn at(line: usize, why: impl Into<String>) -> Self {
        Self { line: Some(line), why: why.into() }
    }
}

impl fmt::Display for CaptureError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(formatter, "line {line}: {}", self.why),
            None => formatter.write_str(&self.why),
        }
    }
}

impl std::error::Error for CaptureError {}

fn field<'f>(fields: &'f [(String, String)], name: &str) -> Option<&'f str> {
    fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// Whether a text can be a method: a token (RFC 9110 §9.1), of a usual length.
fn is_method(text: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    (1..=32).contains(&text.len()) && text.bytes().all(is_token)
}

/// Whether a text can be the name of a field (RFC 9110 §5.1).
fn is_field_name(text: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    (1..=256).contains(&text.len()) && text.bytes().all(is_token)
}

/// Refuses a request that cannot be sent.
fn checked(request: CapturedRequest) -> Result<CapturedRequest, String> {
    let CapturedRequest { method, target, fields, host, .. } = &request;
    let is_line = |text: &str| text.bytes().all(|byte| byte > b' ' && byte != 0x7f);
    match fields.iter().find(|(name, _)| !is_field_name(name)) {
        _ if !is_method(method) => Err(format!("`{method}` is no method")),
        _ if !is_line(target) || !target.starts_with('/') && target != "*" => {
            Err(format!("`{target}` is no path"))
        }
        _ if !is_line(host.as_deref().unwrap_or_default()) => Err("the host has spaces".to_owned()),
        Some((wrong, _)) => Err(format!("`{wrong}` is not the name of a field")),
        None => Ok(request),
    }
}

/// Reads `METHOD TARGET VERSION`. Absolute targets also give the host.
fn read_request_line(line: &str, request: &mut CapturedRequest) -> Result<(), String> {
    let shown = || line.chars().take(60).collect::<String>();
    let (method, rest) = line.split_once(' ').ok_or_else(|| format!("`{}` is no request line", shown()))?;
    let (target, version) = match rest.rsplit_once(' ') {
        Some((target, version)) if version.starts_with("HTTP/") => (target, Some(version)),
        _ => (rest, None),
    };
    if !is_method(method) {
        return Err(format!("`{}` is no request line", shown()));
    }
    method.clone_into(&mut request.method);
    request.version = version.and_then(version_of).or(request.version.take());
    set_target(target, request)
}

/// Sets the target. Absolute targets also give the scheme and the host.
fn set_target(target: &str, request: &mut CapturedRequest) -> Result<(), String> {
    let shown = || target.chars().take(60).collect::<String>();
    let target = match target.split_once("://") {
        Some((scheme, rest)) if CapturedScheme::parse(scheme).is_some() => {
            request.scheme = CapturedScheme::parse(scheme);
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            request.host = Some(rest[..end].to_owned());
            match &rest[end..] {
                rest if rest.starts_with('/') => rest.to_owned(),
                rest => format!("/{rest}"),
            }
        }
        _ => target.to_owned(),
    };
    let target = target.split('#').next().unwrap_or_default();
    if !target.starts_with('/') && target != "*" || target.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return Err(format!("`{}` is no path", shown()));
    }
    target.clone_into(&mut request.target);
    Ok(())
}

/// `HTTP/2.0` is `2`.
fn version_of(text: &str) -> Option<String> {
    let version = match text.strip_prefix("HTTP/").unwrap_or(text) {
        "1.0" => "1.0",
        "1.1" => "1.1",
        "2" | "2.0" => "2",
        "3" | "3.0" => "3",
        _ => return None,
    };
    Some(version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_lines() {
        let read = |line: &str| {
            let mut request = CapturedRequest::default();
            read_request_line(line, &mut request)
                .map(|()| (request.method, request.host.unwrap_or_default(), request.target, request.version))
        };
        let text = str::to_owned;
        for (line, host, target, version) in [
            ("GET / HTTP/1.1", "", "/", Some("1.1")),
            ("GET /a?b=c HTTP/2.0", "", "/a?b=c", Some("2")),
            ("GET http://a.example:81/x#y HTTP/1.1", "a.example:81", "/x", Some("1.1")),
            ("GET https://a.example?x HTTP/3.0", "a.example", "/?x", Some("3")),
            ("OPTIONS * HTTP/1.0", "", "*", Some("1.0")),
            ("GET /", "", "/", None),
        ] {
            let method = line.split(' ').next().map(text).unwrap_or_default();
            assert_eq!(read(line), Ok((method, text(host), text(target), version.map(text))), "{line}");
        }
        for wrong in
            ["", "-", "\\x16\\x03\\x01", "GET", "GET a HTTP/1.1", "GET /a b HTTP/1.1", "G(T / HTTP/1.1"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
