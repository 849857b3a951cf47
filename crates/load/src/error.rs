//! Why a run could not be started. What goes wrong with single requests is counted, not returned.

use std::io;

/// Why a run could not be started or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A value of the plan is out of its range.
    #[error("{what} must be {expected}")]
    Plan {
        /// The value and its flag.
        what: &'static str,
        /// Its range.
        expected: String,
    },
    /// A URL that is not `http://HOST[:PORT][/PATH]` or the same with `https`.
    #[error("URL {url:?}: {reason}")]
    Url {
        /// As written.
        url: String,
        /// What is wrong, and what is expected.
        reason: &'static str,
    },
    /// A method or header field that cannot be sent.
    #[error("{what} {value:?}: {reason}")]
    Request {
        /// Which part of the request.
        what: &'static str,
        /// As written.
        value: String,
        /// What is wrong, and what is expected.
        reason: &'static str,
    },
    /// A TLS setting that cannot be used.
    #[error("{what}: {reason}")]
    Tls {
        /// The setting and its flag.
        what: &'static str,
        /// What is wrong, and what is expected.
        reason: String,
    },
    /// A host name without an address.
    #[error("cannot resolve {host}: {source}; check the name, or write an address")]
    Resolve {
        /// Host and port.
        host: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// No connection could be opened before the load began, so that there is nothing to measure.
    #[error("{reason}")]
    Unreachable {
        /// What the first attempt met, and what to look at.
        reason: String,
    },
    /// A thread, runtime or timer that the system refused.
    #[error("cannot {action}: {source}; check the limits of this process (ulimit -n, ulimit -u)")]
    System {
        /// What was refused.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// An encoded histogram that does not decode.
    #[error("the histogram does not decode: {reason}; it must be base64 of the HdrHistogram V2 deflate form")]
    Histogram {
        /// What the decoder said.
        reason: String,
    },
    /// A bug of ours ended a thread.
    #[error("a load thread ended early; this is a bug of vanward, please report it")]
    ThreadEnded,
}
