//! One finished request, borrowed from wherever its parts are. Nothing here is checked or safe to print: the line
//! escapes it.

use std::net::IpAddr;
use std::time::Duration;

/// What is known of a request when its exchange ends. Bytes are as the client sent them; empty ones are logged as
/// absent.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Who asked.
    pub client: IpAddr,
    /// The method; empty when no request line could be read.
    pub method: &'a [u8],
    /// The target as sent.
    pub target: &'a [u8],
    /// The version of the request line.
    pub version: Version,
    /// The status sent to the client; 0 when the client got none.
    pub status: u16,
    /// Bytes of response body that the client was sent.
    pub body_bytes_sent: u64,
    /// Bytes of the request, head included.
    pub bytes_received: u64,
    /// The Referer header.
    pub referer: &'a [u8],
    /// The User-Agent header.
    pub user_agent: &'a [u8],
    /// The Host header.
    pub host: &'a [u8],
    /// The route that matched.
    pub route: Option<&'a str>,
    /// The upstream of that route.
    pub upstream: Option<&'a str>,
    /// The server that the last attempt went to.
    pub server: Option<&'a str>,
    /// From the first byte of the request to the last of the response.
    pub duration: Duration,
    /// To connect to the server; absent on a reused connection.
    pub upstream_connect: Option<Duration>,
    /// From the start of the attempt to the first byte of the response.
    pub upstream_first_byte: Option<Duration>,
    /// From the start of the attempt to the end of the response.
    pub upstream_total: Option<Duration>,
    /// Attempts after the first.
    pub retries: u8,
    /// The log word of what went wrong.
    pub cause: Option<&'static str>,
}

/// A version of HTTP, major and minor: `Version(1, 1)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version(pub u8, pub u8);
