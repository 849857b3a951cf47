//! Table of failures: the party at fault, status, log word, text for the client.
//!
//! The text is plain, and discloses no internals.

use http1::{ChunkError, FramingError, HeadError, TargetError};
use tls::HandshakeFault;

/// The party that caused a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Party {
    Client,
    Upstream,
    Proxy,
}

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FailureFacts {
    pub(crate) party: Party,
    /// 0 if no response is possible any more.
    pub(crate) status: u16,
    /// The word in the access log and the counters.
    pub(crate) word: &'static str,
    /// The error type of RFC 9209 §2.3. An authentication server is not a next hop, so its errors count as the proxy's.
    pub(crate) error: &'static str,
    /// The text for the client, one line.
    pub(crate) text: &'static str,
}

macro_rules! failures {
    ($($variant:ident $party:ident $status:literal $word:literal $error:literal $reason:literal,)*) => {
        /// Why a request got no response from its server, or an incomplete one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Failure {
            $(#[doc = concat!("`", $word, "` in the log: ", $reason)] $variant,)*
        }

        impl Failure {
            pub(crate) fn facts(self) -> FailureFacts {
                match self {
                    $(Failure::$variant => FailureFacts {
                        party: Party::$party, status: $status, word: $word, error: $error, text: concat!($reason, "\n"),
                    },)*
                }
            }

            /// In the order of the table.
            #[cfg(test)]
            pub(crate) const ALL: &'static [Failure] = &[$(Failure::$variant),*];

            /// The log words, by index.
            pub const WORDS: &'static [&'static str] = &[$($word),*];
        }
    };
}

failures! {
    BadRequest Client 400 "bad-request" "http_request_error" "The request is not valid HTTP.",
    PlainHttp Client 400 "plain-http" "http_request_error" "This port requires HTTPS: use https:// in the address.",
    BadHost Client 400 "bad-host" "http_request_error" "The request has no valid Host.",
    BadFraming Client 400 "bad-framing" "http_request_error" "The length of the request body is ambiguous.",
    BadBody Client 400 "bad-body" "http_request_error" "The chunked request body is not valid.",
    RequestBufferExceeded Client 413 "request-buffer-exceeded" "http_request_error" "The request body is too large.",
    RequestBuffersFull Proxy 503 "request-buffers-full" "proxy_internal_error" "Too many requests are in progress.",
    RequestBufferFailed Proxy 500 "request-buffer-failed" "proxy_internal_error" "The request body could not be buffered.",
    BadText Client 400 "bad-text" "http_request_error" "The base64 of the request body is not valid.",
    BadFault Client 400 "bad-fault" "http_request_error" "The requested fault is not valid.",
    AmbiguousPath Client 400 "ambiguous-path" "http_request_error" "The path is ambiguous.",
    Unauthorized Client 401 "unauthorized" "http_request_denied" "A user name and a password are required.",
    TokenMissing Client 401 "token-missing" "http_request_denied" "A token is required.",
    TokenRefused Client 401 "token-refused" "http_request_denied" "The token is not valid here.",
    TokenInsufficient Client 403 "token-insufficient" "http_request_denied" "The token does not grant access to this.",
    BotUnsigned Client 403 "bot-unsigned" "http_request_denied" "The signature of a bot is required.",
    BotRefused Client 403 "bot-refused" "http_request_denied" "The signature of the bot is not valid here.",
    Forbidden Client 403 "forbidden" "http_request_denied" "Clients from your network are not allowed.",
    // Another status if `deny` of the route says so.
    Denied Client 403 "denied" "http_request_denied" "This request is not allowed.",
    NoRoute Client 404 "no-route" "destination_not_found" "Nothing is served under this host and path.",
    NoFile Client 404 "no-file" "proxy_internal_response" "There is no such file.",
    FileHidden Client 404 "file-hidden" "proxy_internal_response" "There is no such file.",
    FileMethod Client 405 "file-method" "proxy_internal_response" "Files can only be read.",
    MethodRefused Client 405 "method-refused" "http_request_error" "This method is not supported.",
    ClientHeaderTimeout Client 408 "client-header-timeout" "http_request_error" "The request head did not arrive in time.",
    ClientBodyTimeout Client 408 "client-body-timeout" "http_request_error" "The request body did not arrive in time.",
    ClientTooSlow Client 408 "client-too-slow" "http_request_error" "The request body arrives too slowly.",
    // RFC 9110 §15.5.20: the client repeats the request on another connection.
    Misdirected Client 421 "misdirected" "http_request_denied" "This connection was made for another host name.",
    PreconditionFailed Client 412 "precondition-failed" "proxy_internal_response" "The file is not the one that was expected.",
    BodyTooLarge Client 413 "body-too-large" "http_request_error" "The request body is too large.",
    TargetTooLong Client 414 "target-too-long" "http_request_error" "The request target is too long.",
    RateLimited Client 429 "rate-limited" "http_request_denied" "Too many requests; try again later.",
    ConcurrencyLimited Client 429 "concurrency-limited" "http_request_denied" "Too many requests at once; try again later.",
    HeadTooLarge Client 431 "head-too-large" "http_request_error" "The request header fields are too large.",
    // RFC 9114 §4.2.2: the client's fields are too large for the server, not for this proxy.
    UpstreamHeadLimit Client 431 "upstream-head-limit" "http_request_error" "The request header fields are larger than the server accepts.",
    // The server has answered, but its client cannot take the head.
    ClientHeadLimit Client 502 "client-head-limit" "http_response_header_section_size" "The response header fields are larger than the client accepts.",
    MethodTooLong Client 501 "method-too-long" "http_request_error" "The request method is longer than 64 bytes.",
    ProtocolRefused Client 501 "protocol-refused" "http_request_error" "This protocol is not supported.",
    VersionRefused Client 505 "version-refused" "http_request_error" "Only HTTP/1.0 and HTTP/1.1 are supported here.",
    ClientGone Client 0 "client-gone" "http_request_error" "",
    ClientStalled Client 0 "client-stalled" "http_request_error" "",
    ClientBehind Client 0 "client-behind" "http_request_error" "",
    ResetFlood Client 0 "http2-reset-flood" "http_request_error" "",
    SettingsFlood Client 0 "http2-settings-flood" "http_request_error" "",
    PingFlood Client 0 "http2-ping-flood" "http_request_error" "",
    PriorityFlood Client 0 "http2-priority-flood" "http_request_error" "",
    EmptyFrameFlood Client 0 "http2-empty-frame-flood" "http_request_error" "",
    OverheadFlood Client 0 "http2-overhead-flood" "http_request_error" "",
    Http2Excess Client 0 "http2-excess" "http_request_error" "",
    Http2Malformed Client 0 "http2-malformed" "http_request_error" "",
    Http3ResetFlood Client 0 "http3-reset-flood" "http_request_error" "",
    Http3PriorityFlood Client 0 "http3-priority-flood" "http_request_error" "",
    Http3EmptyFrameFlood Client 0 "http3-empty-frame-flood" "http_request_error" "",
    Http3InsertionFlood Client 0 "http3-insertion-flood" "http_request_error" "",
    Http3FragmentFlood Client 0 "http3-fragment-flood" "http_request_error" "",
    Http3OverheadFlood Client 0 "http3-overhead-flood" "http_request_error" "",
    Http3Excess Client 0 "http3-excess" "http_request_error" "",
    Http3Malformed Client 0 "http3-malformed" "http_request_error" "",
    ClientHandshake Client 0 "tls-handshake" "http_request_error" "",
    ClientCertificate Client 0 "client-certificate" "http_request_error" "",
    BadProxyHeader Client 0 "bad-proxy-header" "http_request_error" "",
    ProxyHeaderTimeout Client 0 "proxy-header-timeout" "http_request_error" "",
    TunnelIdle Client 0 "tunnel-idle" "http_request_error" "",
    FileForbidden Proxy 403 "file-forbidden" "proxy_internal_response" "Access to this file is denied.",
    FileUnreadable Proxy 500 "file-unreadable" "proxy_internal_error" "The file could not be read.",
    FileTruncated Proxy 0 "file-truncated" "proxy_internal_error" "",
    FaultInjected Proxy 0 "fault-injected" "proxy_internal_response" "",
    UpstreamRefused Upstream 502 "upstream-refused" "connection_refused" "The server could not be reached.",
    UpstreamHandshake Upstream 502 "upstream-handshake" "tls_protocol_error" "The TLS handshake with the server failed.",
    UpstreamCertificate Upstream 502 "upstream-certificate" "tls_certificate_error" "The certificate of the server is not valid.",
    UpstreamAlert Upstream 502 "upstream-alert" "tls_alert_received" "The server rejected the TLS handshake.",
    UpstreamProtocol Upstream 502 "upstream-protocol" "http_protocol_error" "The server does not speak the configured protocol.",
    UpstreamClosed Upstream 502 "upstream-closed" "connection_terminated" "The server closed the connection without a response.",
    UpstreamReset Upstream 502 "upstream-reset" "connection_terminated" "The server reset the connection without a response.",
    UpstreamMalformed Upstream 502 "upstream-malformed" "http_protocol_error" "The server's response is not valid HTTP.",
    UpstreamHeadTooLarge Upstream 502 "upstream-head-too-large" "http_response_header_section_size" "The header fields of the server's response are too large.",
    UpstreamInterims Upstream 502 "upstream-interims" "http_protocol_error" "The server sent too many interim responses.",
    UpstreamFraming Upstream 502 "upstream-framing" "http_protocol_error" "The length of the server's response is ambiguous.",
    UpstreamSwitch Upstream 502 "upstream-switch" "http_upgrade_failed" "The server switched to a protocol that was not requested.",
    UpstreamTruncated Upstream 502 "upstream-truncated" "http_response_incomplete" "The server's response ended early.",
    UpstreamUndecodable Upstream 502 "upstream-undecodable" "http_response_content_coding" "The content coding of the server's response is not valid.",
    UpstreamStatus Upstream 502 "upstream-status" "destination_unavailable" "The server responded with an error.",
    AuthUnreachable Upstream 502 "auth-unreachable" "proxy_internal_error" "The authentication server could not be reached.",
    AuthFailed Upstream 502 "auth-failed" "proxy_internal_error" "The authentication server did not give a valid answer.",
    AuthTooLarge Upstream 502 "auth-too-large" "proxy_internal_error" "The answer of the authentication server is too large.",
    AuthUnavailable Upstream 503 "auth-unavailable" "proxy_internal_error" "The authentication server has too many requests in progress.",
    AuthTimeout Upstream 504 "auth-timeout" "proxy_internal_error" "The authentication server did not answer in time.",
    UpstreamUnknown Upstream 503 "upstream-unknown" "dns_error" "The server's name could not be resolved.",
    Maintenance Proxy 503 "maintenance" "destination_unavailable" "Down for maintenance; try again later.",
    VerifierBusy Proxy 503 "verifier-busy" "proxy_internal_error" "Too many passwords are being verified.",
    TokenKeysMissing Proxy 503 "token-keys-missing" "proxy_internal_error" "The keys for verifying tokens are not available yet.",
    NoServer Proxy 503 "no-server" "destination_unavailable" "No server is available.",
    NamedUpstreamUnknown Proxy 503 "named-upstream-unknown" "destination_not_found" "No server is configured for this request.",
    StatusInvalid Proxy 500 "status-invalid" "proxy_internal_error" "The response has no valid status.",
    // Kubernetes' Gateway API: a backend that does not exist is answered with 500.
    NoBackend Proxy 500 "no-backend" "destination_unavailable" "No server is configured for this request.",
    Shed Proxy 503 "shed" "connection_limit_reached" "Too many requests are in progress.",
    ShortOfMemory Proxy 503 "short-of-memory" "proxy_internal_error" "Too many requests are in progress.",
    QueueTimeout Proxy 503 "queue-timeout" "connection_limit_reached" "Too many requests are in progress.",
    UpstreamFull Proxy 503 "upstream-full" "connection_limit_reached" "Too many requests are in progress.",
    PurgesFull Proxy 503 "purges-full" "proxy_internal_error" "Too many purges are pending; purge in larger groups, or later.",
    TooManyConnections Proxy 503 "too-many-connections" "connection_limit_reached" "Too many clients are connected.",
    OutOfDescriptors Proxy 503 "out-of-descriptors" "proxy_internal_error" "Too many connections are open.",
    OutOfPorts Proxy 503 "out-of-ports" "connection_limit_reached" "Too many connections to the server are open.",
    // The server has only refused to switch, which is no fault.
    NotUpgraded Proxy 502 "not-upgraded" "http_upgrade_failed" "The server did not switch to the requested protocol.",
    FetchFailed Upstream 502 "fetch-failed" "destination_unavailable" "The server could not be reached.",
    // RFC 9111 §5.2.1.7.
    NotStored Proxy 504 "not-stored" "proxy_internal_response" "The requested response is not in the cache.",
    RequestTimeout Proxy 504 "request-timeout" "http_response_timeout" "The request took too long.",
    UpstreamConnectTimeout Upstream 504 "upstream-connect-timeout" "connection_timeout" "The server could not be reached in time.",
    UpstreamTimeout Upstream 504 "upstream-timeout" "http_response_timeout" "The server did not respond in time.",
    UpstreamStalled Upstream 504 "upstream-stalled" "connection_read_timeout" "The server stopped in the middle of its response.",
}

macro_rules! causes {
    ($($(#[doc = $doc:literal])* $cause:ident: $($failure:ident)+;)*) => {
        /// Groups of failures that retries and authentication treat alike.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Cause {
            $($(#[doc = $doc])* $cause,)*
        }

        impl Failure {
            /// Returns the cause. The match is exhaustive, so a new failure must be classified.
            pub(crate) fn cause(self) -> Cause {
                match self {
                    $($(Failure::$failure)|+ => Cause::$cause,)*
                }
            }
        }
    };
}

causes! {
    /// A limit of the proxy is reached.
    Load: AuthUnavailable NoServer OutOfDescriptors RequestBuffersFull Shed ShortOfMemory TokenKeysMissing
        TooManyConnections VerifierBusy;
    /// No further connection to the server is possible for now.
    Full: OutOfPorts UpstreamFull;
    /// The request waited too long for a server with room.
    Queued: QueueTimeout;
    Handshake: UpstreamHandshake UpstreamCertificate UpstreamAlert UpstreamProtocol;
    Unreachable: UpstreamRefused UpstreamUnknown;
    ConnectTimeout: UpstreamConnectTimeout;
    /// The server ended the connection or the stream without a response.
    Ended: UpstreamReset UpstreamClosed;
    Truncated: UpstreamTruncated;
    /// The response did not begin in time.
    Timeout: UpstreamTimeout;
    /// The response did not continue in time.
    Stalled: UpstreamStalled;
    Other: BadRequest PlainHttp BadHost BadFraming BadBody RequestBufferExceeded RequestBufferFailed BadText
        BadFault AmbiguousPath Unauthorized TokenMissing TokenRefused TokenInsufficient BotUnsigned BotRefused
        Forbidden Denied NoRoute NoFile FileHidden FileMethod MethodRefused ClientHeaderTimeout ClientBodyTimeout
        ClientTooSlow Misdirected PreconditionFailed BodyTooLarge TargetTooLong RateLimited ConcurrencyLimited
        HeadTooLarge UpstreamHeadLimit ClientHeadLimit MethodTooLong ProtocolRefused VersionRefused ClientGone
        ClientStalled ClientBehind ResetFlood SettingsFlood PingFlood PriorityFlood EmptyFrameFlood
        OverheadFlood Http2Excess Http2Malformed Http3ResetFlood Http3PriorityFlood Http3EmptyFrameFlood
        Http3InsertionFlood Http3FragmentFlood Http3OverheadFlood Http3Excess Http3Malformed ClientHandshake
        ClientCertificate BadProxyHeader ProxyHeaderTimeout TunnelIdle FileForbidden FileUnreadable
        FileTruncated FaultInjected UpstreamMalformed UpstreamHeadTooLarge UpstreamInterims UpstreamFraming
        UpstreamSwitch UpstreamUndecodable UpstreamStatus AuthUnreachable AuthFailed AuthTooLarge AuthTimeout
        Maintenance NamedUpstreamUnknown StatusInvalid NoBackend PurgesFull NotUpgraded FetchFailed NotStored RequestTimeout;
}

impl Failure {
    /// Whether the failure ends this request alone: another server or a stored response is no remedy, and other requests
    /// for the same may go on.
    pub(crate) fn is_of_request(self) -> bool {
        self.facts().party == Party::Client || self == Failure::RequestTimeout
    }

    /// Whether the failure is caused by load, so that a later try may succeed.
    pub(crate) fn is_of_load(self) -> bool {
        matches!(self.cause(), Cause::Load | Cause::Full | Cause::Queued)
    }

    /// Whether the handshake with the server failed: another one would fail again.
    pub(crate) fn is_of_handshake(self) -> bool {
        self.cause() == Cause::Handshake
    }

    /// Whether no connection to the server could be made, so that it has seen nothing of the request.
    pub(crate) fn is_of_connecting(self) -> bool {
        matches!(self.cause(), Cause::Unreachable | Cause::Handshake | Cause::ConnectTimeout | Cause::Full)
    }

    /// Whether the response has WWW-Authenticate.
    pub(crate) fn asks_for_proof(self) -> bool {
        use Failure::{TokenInsufficient, TokenMissing, TokenRefused, Unauthorized};
        matches!(self, Unauthorized | TokenMissing | TokenRefused | TokenInsufficient)
    }

    /// Whether a valid request is rejected by a rule, so that its connection can go on.
    pub(crate) fn is_of_policy(self) -> bool {
        use Failure::{
            BotRefused, BotUnsigned, ConcurrencyLimited, Denied, FileHidden, FileMethod, Forbidden,
            Maintenance, Misdirected, NamedUpstreamUnknown, NoFile, NoRoute, PreconditionFailed, RateLimited,
            StatusInvalid, TokenInsufficient, TokenMissing, TokenRefused, Unauthorized,
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
                | Denied
                | RateLimited
                | ConcurrencyLimited
                | NoRoute
                | NamedUpstreamUnknown
                | StatusInvalid
                | Misdirected
                | NoFile
                | FileHidden
                | FileMethod
                | PreconditionFailed
        )
    }
}

impl Failure {
    /// Returns the failure for an invalid response head.
    pub(crate) fn of_response(error: HeadError) -> Self {
        match error {
            // A limit is no syntax error: an operator may raise it.
            HeadError::TooLarge | HeadError::TooManyFields => Failure::UpstreamHeadTooLarge,
            HeadError::BareLf
            | HeadError::BareCr
            | HeadError::RequestLine
            | HeadError::Method
            | HeadError::MethodTooLong
            | HeadError::TargetByte
            | HeadError::TargetTooLong
            | HeadError::StatusLine
            | HeadError::Version
            | HeadError::Folded
            | HeadError::FieldName
            | HeadError::FieldValue => Failure::UpstreamMalformed,
        }
    }
}

impl Failure {
    pub(crate) fn of_client_handshake(fault: HandshakeFault) -> Self {
        match fault {
            HandshakeFault::Certificate => Failure::ClientCertificate,
            HandshakeFault::Alert | HandshakeFault::Protocol | HandshakeFault::Other => {
                Failure::ClientHandshake
            }
        }
    }

    pub(crate) fn of_server_handshake(fault: HandshakeFault) -> Self {
        match fault {
            HandshakeFault::Certificate => Failure::UpstreamCertificate,
            HandshakeFault::Alert => Failure::UpstreamAlert,
            HandshakeFault::Protocol => Failure::UpstreamProtocol,
            HandshakeFault::Other => Failure::UpstreamHandshake,
        }
    }
}

impl From<HeadError> for Failure {
    /// For the head of a request.
    fn from(error: HeadError) -> Self {
        match error {
            // RFC 9112 §3: longer than any implemented method.
            HeadError::MethodTooLong => Failure::MethodTooLong,
            HeadError::TargetTooLong => Failure::TargetTooLong,
            HeadError::TooLarge | HeadError::TooManyFields => Failure::HeadTooLarge,
            HeadError::Version => Failure::VersionRefused,
            HeadError::BareLf
            | HeadError::BareCr
            | HeadError::RequestLine
            | HeadError::Method
            | HeadError::TargetByte
            | HeadError::StatusLine
            | HeadError::Folded
            | HeadError::FieldName
            | HeadError::FieldValue => Failure::BadRequest,
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
    /// For the framing of a request.
    fn from(_: FramingError) -> Self {
        Failure::BadFraming
    }
}

impl From<ChunkError> for Failure {
    /// For the chunks of a request.
    fn from(error: ChunkError) -> Self {
        match error {
            // A limit is no syntax error: extensions count as content (413), trailers as fields (431).
            ChunkError::ExtensionsTooLarge => Failure::BodyTooLarge,
            ChunkError::TrailersTooLarge => Failure::HeadTooLarge,
            ChunkError::Size
            | ChunkError::SizeTooLarge
            | ChunkError::Terminator
            | ChunkError::Extension
            | ChunkError::Trailer => Failure::BadBody,
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
        for &failure in Failure::ALL {
            let FailureFacts { party, status, word, text, error } = failure.facts();
            let fits = match (party, status) {
                // There is no response, and so no text.
                (_, 0) => text == "\n",
                // RFC 9110 §15.6.2, §15.6.6, and responses that the client itself does not accept.
                (Party::Client, 501 | 502 | 505) => text.len() > 1,
                (Party::Client, _) => status / 100 == 4,
                (Party::Upstream, _) => matches!(status, 502..=504),
                // The proxy may not send it, or lacks something for now.
                (Party::Proxy, _) => matches!(status, 403 | 500 | 502..=504),
            };
            assert!(fits, "{word}");
            assert!(error.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase()), "{word}");
        }
    }

    #[test]
    fn each_word_is_explained_on_the_page_of_the_log() {
        let page = include_str!("../../../docs/logging.md");
        for &failure in Failure::ALL {
            let FailureFacts { party, status, word, .. } = failure.facts();
            let status = if status == 0 { "–".to_owned() } else { status.to_string() };
            let party = match party {
                Party::Client => "client",
                Party::Upstream => "server",
                Party::Proxy => "proxy",
            };
            let row = format!("| `{word}` | {status} | {party} | ");
            assert!(page.contains(&row), "docs/logging.md has no row that begins with {row}");
        }
    }
}
