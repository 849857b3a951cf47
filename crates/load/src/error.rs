//! Errors of a run that cannot be started. Failures of single requests are counted, not returned.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A value of the plan is out of range.
    #[error("{what} must be {expected}")]
    Plan {
        /// The value and its flag.
        what: &'static str,
        expected: String,
    },
    /// The URL is not `http://HOST[:PORT][/PATH]` or `https://HOST[:PORT][/PATH]`.
    #[error("URL {url:?}: {reason}")]
    Url {
        /// The URL as it was written.
        url: String,
        /// The mistake, and the expected form.
        reason: &'static str,
    },
    /// The method or a header field cannot be sent.
    #[error("{what} {value:?}: {reason}")]
    Request {
        /// The part of the request: method or header field.
        what: &'static str,
        /// The value as it was written.
        value: String,
        /// The mistake, and the expected form.
        reason: &'static str,
    },
    /// A request of a list cannot be sent.
    #[error("{place}: {source}")]
    Listed {
        /// Its file and line.
        place: String,
        source: Box<Error>,
    },
    /// A direction for connections cannot be used.
    #[error("{what} {value:?}: {reason}")]
    Direction {
        what: &'static str,
        /// The value as it was written.
        value: String,
        /// The mistake, and the expected form.
        reason: &'static str,
    },
    /// A TLS setting cannot be used.
    #[error("{what}: {reason}")]
    Tls {
        /// The setting and its flag.
        what: &'static str,
        /// The mistake, and the expected form.
        reason: String,
    },
    /// A host name has no address.
    #[error("cannot resolve {host}: {source}; check the name, or write an address")]
    Resolve { host: String, source: io::Error },
    /// No connection could be opened before the load began, so there is nothing to measure.
    #[error("{reason}")]
    Unreachable {
        /// Error of the first attempt, and a hint.
        reason: String,
    },
    /// The system refused a thread, a runtime or a timer.
    #[error("cannot {action}: {source}; check the limits of this process (ulimit -n, ulimit -u)")]
    System { action: &'static str, source: io::Error },
    #[error("the histogram does not decode: {reason}; it must be base64 of the HdrHistogram V2 deflate form")]
    Histogram { reason: String },
    /// A generator reported a second other than the next one.
    #[error("second {told} was reported, but {expected} is the next one")]
    Second {
        /// The reported second.
        told: u64,
        /// The next second.
        expected: u64,
    },
    /// A thread ended because of a bug in this program.
    #[error("a load thread ended early; this is a bug of vanward, please report it")]
    ThreadEnded,
}
