//! Failures of requests: their class, the count in the record, and the pause before the next attempt.

use std::io;
use std::time::{Duration, Instant};

use crate::check::{Cut, Malformed};
use crate::directions::DialAddress;
use crate::http2::H2Code;
use crate::outcome::ErrorClass;
use crate::stream::StreamFailure;
use crate::worker::LoadWorker;

/// First pause after repeated failures; each further pause is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(5);
const PAUSE_LONGEST: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadFailure {
    #[error("cannot connect to {address}: {source}")]
    Connect { address: DialAddress, source: io::Error },
    #[error("no connection within {after:?}")]
    ConnectTimeout { after: Duration },
    #[error("the connection ended within the TLS handshake: {0}")]
    Handshake(io::Error),
    #[error("TLS: {error}{}", remedy(error))]
    Tls { error: rustls::Error },
    #[error(
        "the server did not agree to HTTP/2 (ALPN h2); leave --h2 out, or switch HTTP/2 on at the server"
    )]
    NoHttp2,
    #[error(
        "the server's SETTINGS did not arrive within {after:?}, or allow no stream (SETTINGS_MAX_CONCURRENT_STREAMS)"
    )]
    NoStreams { after: Duration },
    #[error("cannot send the request: {0}")]
    Write(io::Error),
    #[error("cannot read the response: {0}")]
    Read(io::Error),
    #[error("{0}")]
    Cut(Cut),
    #[error("no whole response within {after:?}")]
    Timeout { after: Duration },
    #[error("{0}")]
    Malformed(Malformed),
    #[error("the server reset the stream: {0}")]
    Reset(H2Code),
    #[error("the server refused the request with GOAWAY: {0}")]
    GoAway(H2Code),
    #[error("the response breaks HTTP/2: {0}")]
    Http2(&'static str),
    #[error(
        "the server did not agree to HTTP/3 (ALPN h3); leave --h3 out, or switch HTTP/3 on at the server"
    )]
    NoHttp3,
    #[error("the QUIC handshake failed: {0}")]
    QuicHandshake(String),
    #[error("the QUIC connection ended: {0}")]
    Quic(String),
    #[error("the server reset the stream: {0}")]
    Http3Reset(lab_http3::LabH3Code),
    #[error("the response breaks HTTP/3: {0}")]
    Http3(&'static str),
    #[error("a redirect is not followed: {0}")]
    Redirect(&'static str),
    #[error("the request cannot be sent with its values: {0}")]
    Unsent(&'static str),
    #[error("{0}")]
    Stream(#[from] StreamFailure),
}

impl LoadFailure {
    pub(crate) fn class(&self) -> ErrorClass {
        match self {
            Self::Connect { .. } | Self::ConnectTimeout { .. } | Self::NoStreams { .. } => {
                ErrorClass::Connect
            }
            Self::Handshake(_)
            | Self::Tls { .. }
            | Self::NoHttp2
            | Self::NoHttp3
            | Self::QuicHandshake(_) => ErrorClass::Tls,
            Self::Write(_) | Self::Unsent(_) => ErrorClass::Write,
            Self::Read(_) | Self::Cut(_) | Self::Quic(_) => ErrorClass::Read,
            Self::Timeout { .. } => ErrorClass::Timeout,
            Self::Malformed(_) | Self::Http2(_) | Self::Http3(_) => ErrorClass::Malformed,
            Self::Reset(_) | Self::Http3Reset(_) | Self::GoAway(_) => ErrorClass::Reset,
            Self::Redirect(_) => ErrorClass::Redirect,
            Self::Stream(failure) => failure.class(),
        }
    }

    /// Error text with a hint, for a run in which no connection could be opened.
    pub(crate) fn unreached(&self) -> String {
        match self {
            Self::Connect { .. } | Self::ConnectTimeout { .. } | Self::Handshake(_) => {
                format!("{self}; is the server running, and the URL right?")
            }
            _ => self.to_string(),
        }
    }

    /// Whether the server reported that it has not processed the request: it was closing its connection, or had reached
    /// its limit of active requests. The request can then be sent again (RFC 9113 §8.7, RFC 9114 §4.1.1, §5.2).
    pub(crate) fn is_unprocessed(&self) -> bool {
        matches!(self, Self::GoAway(H2Code::NO_ERROR)) || self.is_refused()
    }

    /// Whether the server refused only the stream.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(
            self,
            Self::Reset(H2Code::REFUSED_STREAM) | Self::Http3Reset(lab_http3::LabH3Code::REQUEST_REJECTED)
        )
    }
}

impl From<rustls::Error> for LoadFailure {
    fn from(error: rustls::Error) -> Self {
        Self::Tls { error }
    }
}

/// Hint for a TLS error, as the end of a sentence.
fn remedy(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::InvalidCertificate(_) => {
            "; name the authority that signed it with --ca FILE, or skip the check with --insecure"
        }
        rustls::Error::InvalidMessage(_) => "; does the server speak TLS on this port?",
        _ => "",
    }
}

/// Number of consecutive failures of one sender: determines its pauses, so that it does not spin.
#[derive(Debug, Default)]
pub(crate) struct Setbacks {
    /// Failures since the last success.
    in_a_row: u32,
}

impl Setbacks {
    pub(crate) fn end(&mut self) {
        self.in_a_row = 0;
    }

    /// Records the failure of a request that was due at `due`; for a connect without a request, `due` is now. Pauses if
    /// it follows another failure.
    pub(crate) async fn fail(
        &mut self,
        worker: &LoadWorker,
        failure: &LoadFailure,
        due: Instant,
        counted: bool,
    ) {
        if counted {
            let words = || failure.to_string();
            worker.record.borrow_mut().failure(failure.class(), due, Instant::now(), words);
            worker.publish();
        }
        self.pause().await;
    }

    /// Pauses before an unprocessed request is sent again.
    pub(crate) async fn back_off(&mut self) {
        self.in_a_row = self.in_a_row.max(1);
        self.pause().await;
    }

    pub(crate) async fn pause(&mut self) {
        let doublings = self.in_a_row;
        self.in_a_row = self.in_a_row.saturating_add(1);
        if doublings > 0 {
            let pause = PAUSE_FIRST.saturating_mul(1 << (doublings - 1).min(16)).min(PAUSE_LONGEST);
            tokio::time::sleep(pause).await;
        }
    }
}
