//! The matrix: for each failure, each version and each side, a case or the reason why there is none.

/// Requests that are invalid, or exceed a limit.
mod requests;
/// Requests that a policy rejects.
mod policies;
/// Clients that leave, stall, flood, or break the rules of their protocol.
mod connections;
/// Files, the cache, and limits of the proxy.
mod resources;
/// Servers, and connections to them.
mod upstreams;

use proxy::failure::Failure;

use super::cells::Row;

/// The file of each failure's row. A new failure does not compile until it is listed here.
macro_rules! parts {
    ($($part:ident: $($failure:ident)*;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Part { $($part,)* }

        fn part_of(failure: Failure) -> Part {
            match failure {
                $($(Failure::$failure)|* => Part::$part,)*
            }
        }

        const ALL: &[Failure] = &[$($(Failure::$failure,)*)*];
    };
}

parts! {
    Requests: BadRequest PlainHttp BadHost BadFraming BadBody RequestBufferExceeded RequestBuffersFull RequestBufferFailed
        BadText BadFault AmbiguousPath MethodRefused BodyTooLarge TargetTooLong HeadTooLarge UpstreamHeadLimit
        ClientHeadLimit MethodTooLong ProtocolRefused VersionRefused;
    Policies: Unauthorized TokenMissing TokenRefused TokenInsufficient BotUnsigned BotRefused Forbidden Denied NoRoute
        Misdirected RateLimited ConcurrencyLimited Maintenance NamedUpstreamUnknown StatusInvalid VerifierBusy TokenKeysMissing AuthUnreachable AuthFailed AuthTooLarge
        AuthUnavailable AuthTimeout FaultInjected;
    Connections: ClientHeaderTimeout ClientBodyTimeout ClientTooSlow ClientGone ClientStalled ClientBehind ResetFlood
        SettingsFlood PingFlood PriorityFlood EmptyFrameFlood OverheadFlood Http2Excess Http2Malformed Http3ResetFlood
        Http3PriorityFlood Http3EmptyFrameFlood Http3InsertionFlood Http3FragmentFlood Http3OverheadFlood Http3Excess
        Http3Malformed ClientHandshake ClientCertificate BadProxyHeader ProxyHeaderTimeout TunnelIdle;
    Resources: NoFile FileHidden FileMethod PreconditionFailed FileForbidden FileUnreadable FileTruncated Shed
        ShortOfMemory QueueTimeout UpstreamFull PurgesFull TooManyConnections OutOfDescriptors OutOfPorts FetchFailed
        NotStored;
    Upstreams: UpstreamRefused UpstreamHandshake UpstreamCertificate UpstreamAlert UpstreamProtocol UpstreamClosed
        UpstreamReset UpstreamMalformed UpstreamHeadTooLarge UpstreamInterims UpstreamFraming UpstreamSwitch
        UpstreamTruncated UpstreamUndecodable UpstreamStatus UpstreamUnknown NoServer NoBackend NotUpgraded
        UpstreamConnectTimeout UpstreamTimeout UpstreamStalled RequestTimeout;
}

/// Asserts that a part has a row for each of its failures, and runs the rows. `CAUSES` may name the words to run.
fn play(part: Part, rows: &[Row]) {
    let expected = ALL.iter().filter(|failure| part_of(**failure) == part);
    assert_eq!(rows.iter().map(|row| row.failure).collect::<Vec<_>>(), expected.copied().collect::<Vec<_>>());
    let only = std::env::var("CAUSES").unwrap_or_default();
    let is_played = |row: &&Row| only.is_empty() || only.split(',').any(|word| word == row.word());
    let wrong: Vec<String> = rows.iter().filter(is_played).flat_map(Row::play).collect();
    assert!(wrong.is_empty(), "{} cells are wrong:\n\n{}", wrong.len(), wrong.join("\n\n"));
}

#[test]
fn each_failure_is_in_the_matrix() {
    assert_eq!(ALL.len(), Failure::WORDS.len());
}

#[test]
fn requests_that_are_not_valid() {
    play(Part::Requests, &requests::rows());
}

#[test]
fn requests_that_a_policy_refuses() {
    play(Part::Policies, &policies::rows());
}

#[test]
fn clients_that_leave_stall_or_flood() {
    play(Part::Connections, &connections::rows());
}

#[test]
fn resources_that_are_missing() {
    resources::obey_permissions();
    play(Part::Resources, &resources::rows());
}

#[test]
fn servers_that_fail() {
    play(Part::Upstreams, &upstreams::rows());
}
