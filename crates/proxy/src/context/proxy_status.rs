//! This proxy's member of Proxy-Status (RFC 9209): whether a response is a server's, and what failed otherwise.

use std::io::Write;

use crate::context::failure::{Failure, Party};

/// Who a response is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// A server, with this status.
    Server(u16),
    /// The proxy or its cache.
    Proxy,
    /// The proxy, as something failed.
    Failure(Failure),
}

/// Appends the field line with the member of the proxy of this name, which is a token. RFC 9209 §2: whoever is nearer to
/// the client stands further back, so that a line behind those of servers is in its place.
#[cold]
pub(crate) fn write(name: &str, source: Source, out: &mut Vec<u8>) {
    let _ = write!(out, "Proxy-Status: {name}");
    let _ = match source {
        // RFC 9209 §2.1.4.
        Source::Server(status) => write!(out, "; received-status={status}"),
        Source::Proxy => Ok(()),
        // RFC 9209 §2.1.1, §2.1.5. The details are the word in the log: no address of a server is told.
        Source::Failure(failure) => {
            write!(out, "; error={}; details=\"{}\"", error(failure), failure.facts().word)
        }
    };
    out.extend_from_slice(b"\r\n");
}

/// The error type of a failure (RFC 9209 §2.3).
fn error(failure: Failure) -> &'static str {
    use Failure as F;
    match failure {
        F::UpstreamUnknown => "dns_error",
        F::NoRoute => "destination_not_found",
        F::NoServer | F::NoBackend | F::FetchFailed | F::UpstreamStatus | F::Maintenance => {
            "destination_unavailable"
        }
        F::UpstreamRefused => "connection_refused",
        F::UpstreamClosed | F::UpstreamReset => "connection_terminated",
        F::UpstreamConnectTimeout => "connection_timeout",
        F::UpstreamStalled => "connection_read_timeout",
        F::Shed | F::QueueTimeout | F::UpstreamFull | F::TooManyConnections => "connection_limit_reached",
        F::UpstreamHandshake => "tls_protocol_error",
        F::UpstreamTruncated => "http_response_incomplete",
        F::UpstreamHeadTooLarge => "http_response_header_section_size",
        F::UpstreamTimeout => "http_response_timeout",
        F::UpstreamSwitch | F::NotUpgraded => "http_upgrade_failed",
        F::UpstreamMalformed | F::UpstreamInterims | F::UpstreamFraming => "http_protocol_error",
        // What the proxy answers as it is asked to.
        F::NoFile
        | F::FileHidden
        | F::FileMethod
        | F::FileForbidden
        | F::PreconditionFailed
        | F::NotStored
        | F::FaultInjected => "proxy_internal_response",
        other if other.is_of_policy() => "http_request_denied",
        other if other.facts().party == Party::Client => "http_request_error",
        // Authentication servers are no next hop.
        _ => "proxy_internal_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_has_its_member() {
        for (source, line) in [
            (Source::Server(404), "Proxy-Status: edge; received-status=404\r\n"),
            (Source::Proxy, "Proxy-Status: edge\r\n"),
            (
                Source::Failure(Failure::UpstreamConnectTimeout),
                "Proxy-Status: edge; error=connection_timeout; details=\"upstream-connect-timeout\"\r\n",
            ),
            (
                Source::Failure(Failure::RateLimited),
                "Proxy-Status: edge; error=http_request_denied; details=\"rate-limited\"\r\n",
            ),
            (
                Source::Failure(Failure::BadFraming),
                "Proxy-Status: edge; error=http_request_error; details=\"bad-framing\"\r\n",
            ),
            (
                Source::Failure(Failure::AuthTimeout),
                "Proxy-Status: edge; error=proxy_internal_error; details=\"auth-timeout\"\r\n",
            ),
        ] {
            let mut out = Vec::new();
            write("edge", source, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), line);
        }
    }
}
