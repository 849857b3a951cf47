//! Configuration: parses a file, checks it, and provides the result as a `Config`: the text as it was written, and the
//! `Settings` that it means, without mistakes.
//!
//! A `Config` is always valid: it is read from a file, or changed with `Config::edit`, which checks the result. It is
//! printed as it was written, with the changes. Nothing here opens a socket or resolves a name.

/// Reads a file into a `Config`, or into all its mistakes.
mod read;
/// Settings without mistakes, and checked edits of them.
mod config;
/// Prints a configuration.
mod printed;
/// Checks across tables.
mod checks;
/// The tables of the file.
mod tables;
/// Kinds of options.
mod option;
/// The text of a configuration.
mod document;

pub use crate::checks::needs::{Need, Needed, SecretForm};
pub use crate::checks::tls::{NamedFile, Owner};
pub use crate::config::Config;
pub use crate::document::masks::has_written_secret;
pub use crate::document::reader::WrittenExpression;
pub use crate::document::surroundings::{Machine, Nowhere, Surroundings, shown_path};
pub use crate::document::value_error::{HostProblem, PrefixProblem, ValueError, ValueFault};
pub use crate::option::bandwidth::{Bandwidth, Bandwidths, Scope};
pub use crate::option::bandwidth::{bandwidth, check_rate_unit, written_bandwidth};
pub use crate::option::delay::{delay, loss, written_delay, written_loss};
pub use crate::option::host::ListenAddress;
pub use crate::option::host::{listen_address, network};
pub use crate::option::named_file::{CookieSecrets, Page, Pages};
pub use crate::option::named_file::{check_users, page};
pub use crate::option::quantity::{duration, size, written_duration};
pub use crate::option::server::{CatalogService, Scheme, Server, ServerHost};
pub use crate::option::shared::Shared;
pub use crate::option::statuses::Statuses;
pub use crate::read::{Reading, admin_socket, examine, examine_file, examine_in, load, parse};
pub use crate::tables::acme::options::{certificate_name, directory, email};
pub use crate::tables::acme::{
    Acme, Authority, ChallengeKind, ChallengePorts, DnsChallenge, DnsUpdate, DnsWay, ExternalAccount,
    KeyType, TsigAlgorithm, TsigKey,
};
pub use crate::tables::cache::{CacheDisk, CachePeers, CacheRule, CacheStore};
pub use crate::tables::consul::Consul;
pub use crate::tables::dashboard::{Dashboard, DashboardTokens};
pub use crate::tables::fault::kinds::{injection, written_fault, written_share};
pub use crate::tables::fault::read::{faults, written_rule};
pub use crate::tables::fault::{FaultRule, Faults, First, InjectedResponse};
pub use crate::tables::files::{FilePattern, Files};
pub use crate::tables::forward_auth::{AuthCache, CopiedField, ForwardAuth};
pub use crate::tables::jwt::options::key_url;
pub use crate::tables::jwt::{Jwt, KeySource, KeyUrl, TokenKeys, WebBotAuth};
pub use crate::tables::limits::{Http2Limits, Limits, MemoryBound, Shedding};
pub use crate::tables::listen::{Listener, Passthrough};
pub use crate::tables::log::{
    AccessLog, LogRotation, LogTarget, RouteLog, SyslogOptions, SyslogReceiver, SyslogTransport,
};
pub use crate::tables::map::{FileVersion, Map, MapFile};
pub use crate::tables::messages::{MessageFormat, MessageLevel, Messages};
pub use crate::tables::profile::{OwnProfile, PROFILES, Profile};
pub use crate::tables::redis::{Redis, RedisUrl, SharedSecret};
pub use crate::tables::reference::{reference, schema};
pub use crate::tables::request_buffering::{RequestBuffering, RequestBuffers};
pub use crate::tables::request_id::{IdForm, RequestIds};
pub use crate::tables::route::NamedUpstream;
pub use crate::tables::route::accel::AccelFolder;
pub use crate::tables::route::capture::RouteCapture;
pub use crate::tables::route::compress::Compress;
pub use crate::tables::route::concurrency::ConcurrencyLimit;
pub use crate::tables::route::conditions::RouteCondition;
pub use crate::tables::route::options::RouteOptions;
pub use crate::tables::route::{
    Access, Action, Auth, ClientCertFields, DenyRule, Maintenance, Mirror, Policies, RateLimit, Require,
    Respond, Rewrite, Route, RouteLimits, SplitKey, StatusFallback, StatusFallbacks, Via,
};
pub use crate::tables::settings::Settings;
pub use crate::tables::shaping::{DatagramRates, Link, Shaping};
pub use crate::tables::timeouts::{RouteTimeouts, Timeouts};
pub use crate::tables::tls::negotiation::{Negotiation, TlsCipher, TlsGroup, TlsPreset, TlsVersion};
pub use crate::tables::tls::{
    CertificateFiles, Certificates, ClientCertificates, ClientRule, ClientTrust, ExpiredCrls, Hsts, KeyPair,
    ListenerTls, UnknownNames, UpstreamTls,
};
pub use crate::tables::tracing::{B3, FollowCallers, Tracing};
pub use crate::tables::upstream::{
    BodyRule, Check, Dns, Fastcgi, HostHeader, Pool, Probe, Protocol, QueueSettings, Retry, RetryOn,
    StickyCookie, StickySessions, StickyTable, Upstream,
};
pub use expression::ExpressionLimits;
pub use ipnet::IpNet;
pub use logline::{
    Addresses as LogAddresses, LineFormat as LogFormat, LoggedQuery as LogQuery, Masks as LogMasks,
    Needs as LogNeeds,
};
pub use mistake::Mistake;
