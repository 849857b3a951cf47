//! Table of failures: who failed, the status for the client, the word in the log, the reason for the client.
//!
//! The client gets the reason in plain words, and no internals.

use http1::{ChunkError, FramingError, HeadError, TargetError};

/// The party that caused a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Party {
    Client,
    Upstream,
    Proxy,
}

/// The properties of a failure: a row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The party that failed.
    pub(crate) party: Party,
    /// The status for the client; 0 if no response is possible any more.
    pub(crate) status: u16,
    /// The word in the access log and the counters.
    pub(crate) word: &'static str,
    /// The reason, as one line for the client.
    pub(crate) text: &'static str,
}

macro_rules! failures {
    ($($variant:ident $party:ident $status:literal $word:literal $reason:literal,)*) => {
        /// Why a request got no response from its server, or no complete one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Failure {
            $(#[doc = concat!("`", $word, "` in the log: ", $reason)] $variant,)*
        }

        impl Failure {
            /// The failure's row of the table.
            pub(crate) fn facts(self) -> Facts {
                match self {
                    $(Failure::$variant => Facts {
                        party: Party::$party, status: $status, word: $word, text: concat!($reason, "\n"),
                    },)*
                }
            }

            /// The log words of all failures, by index.
            pub const WORDS: &'static [&'static str] = &[$($word),*];
        }
    };
}

failures! {
    BadRequest Client 400 "bad-request" "The request is not valid HTTP.",
    PlainHttp Client 400 "plain-http" "This port requires HTTPS: use https:// in the address.",
    BadHost Client 400 "bad-host" "The request has no valid Host.",
    BadFraming Client 400 "bad-framing" "The length of the request body is ambiguous.",
    BadBody Client 400 "bad-body" "The chunked request body is not valid.",
    RequestBufferExceeded Client 413 "request-buffer-exceeded" "The request body is too large.",
    RequestBuffersFull Proxy 503 "request-buffers-full" "Too many requests are in progress.",
    RequestBufferFailed Proxy 500 "request-buffer-failed" "The request body could not be kept.",
    BadText Client 400 "bad-text" "The base64 of the request body is not valid.",
    BadFault Client 400 "bad-fault" "The requested fault is not valid.",
    AmbiguousPath Client 400 "ambiguous-path" "The path is ambiguous.",
    Unauthorized Client 401 "unauthorized" "A user name and a password are required.",
    TokenMissing Client 401 "token-missing" "A token is required.",
    TokenRefused Client 401 "token-refused" "The token is not valid here.",
    TokenInsufficient Client 403 "token-insufficient" "The token does not grant access to this.",
    BotUnsigned Client 403 "bot-unsigned" "The signature of a bot is required.",
    BotRefused Client 403 "bot-refused" "The signature of the bot is not valid here.",
    Forbidden Client 403 "forbidden" "Clients from your network are not allowed.",
    NoRoute Client 404 "no-route" "Nothing is served under this host and path.",
    NoFile Client 404 "no-file" "There is no such file.",
    FileHidden Client 404 "file-hidden" "There is no such file.",
    FileMethod Client 405 "file-method" "Files can only be read.",
    MethodRefused Client 405 "method-refused" "This method is not supported.",
    ClientHeaderTimeout Client 408 "client-header-timeout" "The request head did not arrive in time.",
    ClientBodyTimeout Client 408 "client-body-timeout" "The request body did not arrive in time.",
    ClientTooSlow Client 408 "client-too-slow" "The request body arrives too slowly.",
    Misdirected Client 421 "misdirected" "This connection was made for another host name.",
    PreconditionFailed Client 412 "precondition-failed" "The file is not the one that was expected.",
    BodyTooLarge Client 413 "body-too-large" "The request body is too large.",
    TargetTooLong Client 414 "target-too-long" "The request target is too long.",
    RateLimited Client 429 "rate-limited" "Too many requests; try again later.",
    HeadTooLarge Client 431 "head-too-large" "The request header fields are too large.",
    MethodTooLong Client 501 "method-too-long" "The request method is longer than 64 bytes.",
    ProtocolRefused Client 501 "protocol-refused" "This protocol is not supported.",
    VersionRefused Client 505 "version-refused" "Only HTTP/1.0 and HTTP/1.1 are supported here.",
    ClientGone Client 0 "client-gone" "",
    ClientStalled Client 0 "client-stalled" "",
    ResetFlood Client 0 "http2-reset-flood" "",
    SettingsFlood Client 0 "http2-settings-flood" "",
    PingFlood Client 0 "http2-ping-flood" "",
    PriorityFlood Client 0 "http2-priority-flood" "",
    EmptyFrameFlood Client 0 "http2-empty-frame-flood" "",
    OverheadFlood Client 0 "http2-overhead-flood" "",
    Http2Excess Client 0 "http2-excess" "",
    Http2Malformed Client 0 "http2-malformed" "",
    Http3ResetFlood Client 0 "http3-reset-flood" "",
    Http3PriorityFlood Client 0 "http3-priority-flood" "",
    Http3EmptyFrameFlood Client 0 "http3-empty-frame-flood" "",
    Http3InsertionFlood Client 0 "http3-insertion-flood" "",
    Http3FragmentFlood Client 0 "http3-fragment-flood" "",
    Http3OverheadFlood Client 0 "http3-overhead-flood" "",
    Http3Excess Client 0 "http3-excess" "",
    Http3Malformed Client 0 "http3-malformed" "",
    ClientHandshake Client 0 "tls-handshake" "",
    ClientCertificate Client 0 "client-certificate" "",
    BadProxyHeader Client 0 "bad-proxy-header" "",
    ProxyHeaderTimeout Client 0 "proxy-header-timeout" "",
    TunnelIdle Client 0 "tunnel-idle" "",
    FileForbidden Proxy 403 "file-forbidden" "The file must not be read.",
    FileUnreadable Proxy 500 "file-unreadable" "The file could not be read.",
    FileTruncated Proxy 0 "file-truncated" "",
    FaultInjected Proxy 0 "fault-injected" "",
    UpstreamRefused Upstream 502 "upstream-refused" "The server could not be reached.",
    UpstreamHandshake Upstream 502 "upstream-handshake" "The TLS or HTTP/2 handshake with the server failed.",
    UpstreamClosed Upstream 502 "upstream-closed" "The server closed the connection without a response.",
    UpstreamReset Upstream 502 "upstream-reset" "The server reset the connection without a response.",
    UpstreamMalformed Upstream 502 "upstream-malformed" "The server's response is not valid HTTP.",
    UpstreamHeadTooLarge Upstream 502 "upstream-head-too-large" "The header fields of the server's response are too large.",
    UpstreamInterims Upstream 502 "upstream-interims" "The server sent too many interim responses.",
    UpstreamFraming Upstream 502 "upstream-framing" "The length of the server's response is ambiguous.",
    UpstreamSwitch Upstream 502 "upstream-switch" "The server switched to a protocol that was not requested.",
    UpstreamTruncated Upstream 502 "upstream-truncated" "The server's response ended early.",
    UpstreamStatus Upstream 502 "upstream-status" "The server responded with an error.",
    AuthUnreachable Upstream 502 "auth-unreachable" "The authentication server could not be reached.",
    AuthFailed Upstream 502 "auth-failed" "The authentication server did not give a valid answer.",
    AuthTooLarge Upstream 502 "auth-too-large" "The answer of the authentication server is too large.",
    AuthUnavailable Upstream 503 "auth-unavailable" "The authentication server has too many requests in progress.",
    AuthTimeout Upstream 504 "auth-timeout" "The authentication server did not answer in time.",
    UpstreamUnknown Upstream 503 "upstream-unknown" "The server's name could not be resolved.",
    Maintenance Proxy 503 "maintenance" "Down for maintenance; try again later.",
    VerifierBusy Proxy 503 "verifier-busy" "Too many passwords are being verified.",
    TokenKeysMissing Proxy 503 "token-keys-missing" "The keys that tokens are verified with are not known yet.",
    NoServer Proxy 503 "no-server" "No server is available.",
    NoBackend Proxy 500 "no-backend" "There is no server for this.",
    Shed Proxy 503 "shed" "Too many requests are in progress.",
    ShortOfMemory Proxy 503 "short-of-memory" "Too many requests are in progress.",
    QueueTimeout Proxy 503 "queue-timeout" "Too many requests are in progress.",
    UpstreamFull Proxy 503 "upstream-full" "Too many requests are in progress.",
    PurgesFull Proxy 503 "purges-full" "Too many purges are remembered; purge in larger groups, or later.",
    TooManyConnections Proxy 503 "too-many-connections" "Too many clients are connected.",
    OutOfDescriptors Proxy 503 "out-of-descriptors" "Too many connections are open.",
    NotUpgraded Proxy 502 "not-upgraded" "The server did not switch to the requested protocol.",
    FetchFailed Upstream 502 "fetch-failed" "The server could not be reached.",
    NotStored Proxy 504 "not-stored" "The requested response is not in the cache.",
    UpstreamConnectTimeout Upstream 504 "upstream-connect-timeout" "The server could not be reached in time.",
    UpstreamTimeout Upstream 504 "upstream-timeout" "The server did not respond in time.",
    UpstreamStalled Upstream 504 "upstream-stalled" "The server stopped in the middle of its response.",
}

impl Failure {
    /// Whether the failure is caused by load, so that a later try may succeed.
    pub(crate) fn is_of_load(self) -> bool {
        use Failure::{
            AuthUnavailable, NoServer, OutOfDescriptors, QueueTimeout, RequestBuffersFull, Shed,
            ShortOfMemory, TokenKeysMissing, TooManyConnections, UpstreamFull, VerifierBusy,
        };
        matches!(
            self,
            AuthUnavailable
                | NoServer
                | OutOfDescriptors
                | QueueTimeout
                | RequestBuffersFull
                | Shed
                | ShortOfMemory
                | TokenKeysMissing
                | TooManyConnections
                | UpstreamFull
                | VerifierBusy
        )
    }

    /// Whether the response says how a client may prove who it is.
    pub(crate) fn asks_for_proof(self) -> bool {
        use Failure::{TokenInsufficient, TokenMissing, TokenRefused, Unauthorized};
        matches!(self, Unauthorized | TokenMissing | TokenRefused | TokenInsufficient)
    }

    /// Whether nothing is served in answer to the request, although it is valid.
    pub(crate) fn is_of_policy(self) -> bool {
        use Failure::{
            BotRefused, BotUnsigned, FileHidden, FileMethod, Forbidden, Maintenance, Misdirected, NoFile,
            NoRoute, PreconditionFailed, RateLimited, TokenInsufficient, TokenMissing, TokenRefused,
            Unauthorized,
        };
        matches!(
            self,
            Maintenance
                | Unauthorized
                | TokenMissing
                | TokenRefused
                | TokenInsufficient
                | BotUnsigned
                | BotRefused
                | Forbidden
                | RateLimited
                | NoRoute
                | Misdirected
                | NoFile
                | FileHidden
                | FileMethod
                | PreconditionFailed
        )
    }
}

impl Failure {
    /// The failure for an invalid head of a response.
    pub(crate) fn of_response(error: HeadError) -> Self {
        match error {
            HeadError::TooLarge | HeadError::TooManyFields => Failure::UpstreamHeadTooLarge,
            _ => Failure::UpstreamMalformed,
        }
    }
}

impl From<HeadError> for Failure {
    /// Of a request's head.
    fn from(error: HeadError) -> Self {
        match error {
            // RFC 9112 §3: longer than any that is implemented.
            HeadError::MethodTooLong => Failure::MethodTooLong,
            HeadError::TargetTooLong => Failure::TargetTooLong,
            HeadError::TooLarge | HeadError::TooManyFields => Failure::HeadTooLarge,
            HeadError::Version => Failure::VersionRefused,
            _ => Failure::BadRequest,
        }
    }
}

impl From<TargetError> for Failure {
    fn from(error: TargetError) -> Self {
        match error {
            TargetError::HostMissing | TargetError::HostRepeated | TargetError::HostInvalid => {
                Failure::BadHost
            }
            TargetError::Form | TargetError::Absolute => Failure::BadRequest,
        }
    }
}

impl From<FramingError> for Failure {
    /// Of a request.
    fn from(_: FramingError) -> Self {
        Failure::BadFraming
    }
}

impl From<ChunkError> for Failure {
    /// Of a request.
    fn from(error: ChunkError) -> Self {
        match error {
            ChunkError::ExtensionsTooLarge => Failure::BodyTooLarge,
            ChunkError::TrailersTooLarge => Failure::HeadTooLarge,
            _ => Failure::BadBody,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_unique_and_statuses_fit_the_party() {
        let mut words = Failure::WORDS.to_vec();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Failure::WORDS.len());
        assert!(words.len() <= telemetry::CAUSES_MAX);
        for facts in [Failure::BadRequest.facts(), Failure::HeadTooLarge.facts(), Failure::NoRoute.facts()] {
            assert_eq!((facts.party, facts.status / 100), (Party::Client, 4));
        }
        for facts in [Failure::UpstreamReset.facts(), Failure::UpstreamTimeout.facts()] {
            assert_eq!((facts.party, facts.status / 100), (Party::Upstream, 5));
        }
    }
}
