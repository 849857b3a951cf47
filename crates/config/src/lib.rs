//! Configuration: parses a file, checks it, and provides the result as a `Config`, which is `Settings` without
//! mistakes.
//!
//! A `Config` is always valid: it is read from a file, or changed with `Config::edit`, which checks the result. Nothing
//! here opens a socket or resolves a name.

/// Mistakes in a value, and their wording.
mod value_error;
/// Parses durations, sizes and rates.
mod quantity;
/// Parses delays with jitter.
mod delay;
/// Parses bandwidth limits.
mod bandwidth;
/// Parses rates of datagrams.
mod bottleneck;
/// Parses faults.
mod fault_kinds;
/// Parses faults of connections.
mod fault_connection;
/// Link profiles.
mod profile;
/// Parses hosts, ports, listening addresses and networks.
mod host;
/// Parses server URLs.
mod server;
/// Parses path prefixes of routes.
mod prefix;
/// Names of options in other proxies, for hints.
mod foreign;
/// Recognises configuration files of other programs.
mod foreign_file;
/// What a configuration reads besides its text.
mod surroundings;
/// The files of a configuration.
mod sources;
/// Environment variables and secrets in texts.
mod substitution;
/// Joins the tables of several files.
mod merge;
/// State of reading a file: its syntax, and the mistakes so far.
mod reader;
/// Declared tables: read, printed and documented from one declaration.
mod table;
/// Options whose value needs no conversion, one declaration each.
mod declared;
/// Kinds of values.
mod kind;
/// The option `rate_limit` of routes.
mod rate_limit_options;
/// Kinds of values with a range.
mod range;
/// Kinds of values with several parts: names with values, one or a list.
mod pairs;
/// Tables that may be off.
mod section;
/// Parses conditions on requests: hosts, paths, methods, values.
mod matching;
/// Parses the keys of sessions, hashes and rate limits.
mod keys;
/// Parses status codes and ranges of them.
mod statuses;
/// Files that are read with the configuration.
mod named_file;
/// All options, declared once.
mod options;
/// Options of the access log.
mod log_options;
/// Options of `[request_id]`.
mod request_id_options;
/// Where the access log goes to.
mod log_target;
/// Options of HTTP/2 limits.
mod http2_options;
/// Options of traces.
mod tracing_options;
/// The table `[consul]`.
mod consul_options;
/// The table `[redis]`.
mod redis_options;
/// The table `[cache.peers]`.
mod peer_options;
/// Options of messages.
mod message_options;
/// The option `mirror`.
mod mirror_options;
/// The option `forward_auth`.
mod forward_auth_options;
/// Options that select requests.
mod requests;
/// The option `jwt` of routes.
mod jwt_options;
/// The option `web_bot_auth` of routes.
mod bot_options;
/// Options of routes.
mod route_options;
/// The option `compress` of routes.
mod compress_options;
/// Options that all routes have unless they have their own.
mod route_defaults;
/// Kinds of values that only routes have.
mod route_kinds;
/// Options of upstreams.
mod upstream_options;
/// Options of sticky sessions.
mod sticky_options;
/// Options of health checks, ejection and circuit breakers.
mod watch_options;
/// Options of retries.
mod retry_options;
/// Options of the cache.
mod cache_options;
/// Options of request buffering.
mod request_buffering_options;
/// Time-outs and limits of routes.
mod route_limits_options;
/// What keeps clients on their side of a split.
mod split_options;
/// Options of CORS.
mod cors_options;
/// The maintenance switch of routes.
mod maintenance_options;
/// Files of routes: their declaration and relations.
mod files_options;
/// Options of faults.
mod fault_options;
/// Options of automatic certificates.
mod acme_options;
/// Options of TLS.
mod tls_options;
/// Options of TLS that is passed on.
mod passthrough_options;
/// Options of client certificates.
mod client_certificate_options;
/// Options of what TLS may negotiate.
mod negotiation_options;
/// Checks relations between values; converts a parsed file to settings and back.
mod resolve;
/// Finds routes that no request reaches.
mod unreachable;
/// Checks and converts the options of routes.
mod route_resolve;
/// Named sets of header edits, and the one that is built in.
mod header_sets;
/// Converts routes back to parsed options, for printing.
mod route_written;
/// Checks and converts the options of upstreams.
mod upstream_resolve;
/// Checks and converts the options of faults.
mod fault_resolve;
/// Parses faults for a running proxy.
mod fault_read;
/// Checks and converts the options of TLS.
mod tls_resolve;
/// Checks and converts the options of automatic certificates.
mod acme_resolve;
/// What must exist on the machine.
mod needs;
/// Reads a file into a `Config`, or into all its mistakes.
mod read;
/// The dashboard.
mod dashboard_options;
/// Prints a configuration without its secrets.
mod masked;
/// Settings without mistakes, and checked edits of them.
mod checked;
/// Settings: listeners, routes, upstreams, time-outs, limits.
mod settings;
/// Values that are kept once.
mod shared;
/// TLS settings for clients and for servers.
mod tls;
/// Versions, cipher suites and groups of TLS.
mod negotiation;
/// The reference of all options.
mod reference;

pub use acme_options::{certificate_name, directory, email};
pub use bandwidth::{bandwidth, written_bandwidth};
pub use checked::Config;
pub use compress_options::Compress;
pub use delay::{delay, loss, written_delay, written_loss};
pub use fault_kinds::{injection, written_fault, written_share};
pub use fault_read::{faults, written_rule};
pub use host::{listen_address, network};
pub use ipnet::IpNet;
pub use logline::{Addresses as LogAddresses, Format as LogFormat, Masks as LogMasks, Query as LogQuery};
pub use mistake::Mistake;
pub use named_file::{check_users, page};
pub use needs::{Need, Needed, SecretForm};
pub use negotiation::{Negotiation, TlsCipher, TlsGroup, TlsPreset, TlsVersion};
pub use profile::{OwnProfile, PROFILES, Profile};
pub use quantity::{duration, size, written_duration};
pub use read::{NamedFile, Owner, Reading, admin_socket, examine, examine_file, examine_in, load, parse};
pub use reference::{reference, schema};
pub use route_options::RouteOptions;
pub use settings::{
    Access, AccessLog, Acme, Action, Auth, AuthCache, Authority, B3, Bandwidth, Bandwidths, BodyRule,
    CacheDisk, CachePeers, CacheStore, CatalogService, ChallengeKind, ChallengePorts, Check,
    ClientCertFields, Consul, CookieSecrets, Dashboard, DashboardTokens, DatagramRates, Dns, DnsChallenge,
    DnsUpdate, DnsWay, ExternalAccount, FaultRule, Faults, Files, First, FollowCallers, ForwardAuth,
    HostHeader, Http2Limits, IdForm, Jwt, KeySource, KeyType, KeyUrl, Limits, Link, ListenAddress, Listener,
    LogRotation, LogTarget, Maintenance, MemoryBound, MessageFormat, MessageLevel, Messages, Mirror, Page,
    Pages, Passthrough, Policies, Pool, Probe, Protocol, QueueSettings, RateLimit, Redis, RedisUrl,
    RequestBuffering, RequestBuffers, RequestIds, Require, Respond, Retry, RetryOn, Rewrite, Route,
    RouteLimits, RouteLog, RouteTimeouts, Scheme, Scope, Server, ServerHost, Settings, Shaping, SharedSecret,
    Shedding, SplitKey, Statuses, StickyCookie, StickySessions, StickyTable, SyslogOptions, SyslogReceiver,
    SyslogTransport, Timeouts, TokenKeys, Tracing, TsigAlgorithm, TsigKey, Upstream, Via, WebBotAuth,
};
pub use shared::Shared;
pub use surroundings::{Machine, Nowhere, Surroundings};
pub use tls::{
    CertificateFiles, Certificates, ClientCertificates, ClientRule, ClientTrust, ExpiredCrls, Hsts, KeyPair,
    ListenerTls, UnknownNames, UpstreamTls,
};
pub use value_error::{HostProblem, PrefixProblem, ValueError, ValueFault};
