//! This proxy's member of Proxy-Status (RFC 9209): the source of a response, or the failure.

use std::io::Write;

use crate::failure::Failure;

/// The source of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatusSource {
    /// A server, with its status.
    Server(u16),
    Proxy,
    /// The proxy, because of a failure.
    Failure(Failure),
}

/// Appends the field with this proxy's member; `name` is a token. RFC 9209 §2: members nearer to the client come last,
/// so a line after those of servers is right.
#[cold]
pub(crate) fn write(name: &str, source: StatusSource, out: &mut Vec<u8>) {
    let _ = write!(out, "Proxy-Status: {name}");
    let _ = match source {
        // RFC 9209 §2.1.4.
        StatusSource::Server(status) => write!(out, "; received-status={status}"),
        StatusSource::Proxy => Ok(()),
        // RFC 9209 §2.1.1, §2.1.5. `details` is the word in the log: no server address is disclosed.
        StatusSource::Failure(failure) => {
            let facts = failure.facts();
            write!(out, "; error={}; details=\"{}\"", facts.error, facts.word)
        }
    };
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_has_its_member() {
        for (source, line) in [
            (StatusSource::Server(404), "Proxy-Status: edge; received-status=404\r\n"),
            (StatusSource::Proxy, "Proxy-Status: edge\r\n"),
            (
                StatusSource::Failure(Failure::UpstreamConnectTimeout),
                "Proxy-Status: edge; error=connection_timeout; details=\"upstream-connect-timeout\"\r\n",
            ),
            (
                StatusSource::Failure(Failure::RateLimited),
                "Proxy-Status: edge; error=http_request_denied; details=\"rate-limited\"\r\n",
            ),
            (
                StatusSource::Failure(Failure::BadFraming),
                "Proxy-Status: edge; error=http_request_error; details=\"bad-framing\"\r\n",
            ),
            (
                StatusSource::Failure(Failure::AuthTimeout),
                "Proxy-Status: edge; error=proxy_internal_error; details=\"auth-timeout\"\r\n",
            ),
        ] {
            let mut out = Vec::new();
            write("edge", source, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), line);
        }
    }
}
