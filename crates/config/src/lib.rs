//! The configuration: the text of a file, its `Settings`, and the `Config`: settings without mistakes.
//!
//! A `Config` is always valid: it is read from a file, or changed with `Config::edit`, which checks the result. Nothing here opens a socket or resolves a name.

/// What can be wrong with one value, and how that is said.
mod value_error;
/// Durations, sizes and rates.
mod quantity;
/// Delays that vary.
mod delay;
/// Limits on bandwidth.
mod bandwidth;
/// What goes wrong on purpose, as it is written.
mod fault_kinds;
/// The same with connections.
mod fault_connection;
/// Links by name.
mod profile;
/// Hosts, ports, listening addresses and networks.
mod host;
/// Servers as URLs.
mod server;
/// Path prefixes of routes.
mod prefix;
/// What other proxies call things.
mod foreign;
/// Whose file one is.
mod foreign_file;
/// A file being read: its syntax, and the mistakes so far.
mod reader;
/// Tables as declarations that are read, printed and documented.
mod table;
/// Options whose value is used as it is written, one declaration each.
mod declared;
/// Kinds of values.
mod kind;
/// Kinds of values with a least and a most.
mod range;
/// Kinds of values with several in them.
mod pairs;
/// Tables that may be off.
mod section;
/// What requests have to be like, as it is written.
mod matching;
/// What requests are told apart by, as it is written.
mod keys;
/// Statuses, as they are written.
mod statuses;
/// Files that are read with the configuration.
mod named_file;
/// Every option, declared once.
mod options;
/// Those of the access log.
mod log_options;
/// Those of connections of HTTP/2.
mod http2_options;
/// Those of messages.
mod message_options;
/// Those that say which requests something is for.
mod requests;
/// Those of routes.
mod route_options;
/// Kinds of values that only routes have.
mod route_kinds;
/// The options of upstreams.
mod upstream_options;
/// Those of sticky sessions.
mod sticky_options;
/// Those of checks, ejection and circuits.
mod watch_options;
/// Those of retries.
mod retry_options;
/// Those of the cache.
mod cache_options;
/// Those of what goes wrong on purpose.
mod fault_options;
/// Those of TLS.
mod tls_options;
/// Relations between values; from the file as written to its meaning, and back.
mod resolve;
/// Routes that no request reaches.
mod unreachable;
/// The same for routes.
mod route_resolve;
/// Routes as they would have been written.
mod route_written;
/// And for upstreams.
mod upstream_resolve;
/// And for what goes wrong on purpose.
mod fault_resolve;
/// Faults for a proxy that runs.
mod fault_read;
/// And for TLS.
mod tls_resolve;
/// What has to be there on the machine.
mod needs;
/// From text to meaning, or to every mistake.
mod read;
/// Settings without mistakes, and checked edits of them.
mod checked;
/// What was read means: listeners, routes, upstreams, time-outs and limits.
mod settings;
/// What TLS needs, towards clients and towards servers.
mod tls;
/// The reference of all options.
mod reference;

pub use bandwidth::{bandwidth, written_bandwidth};
pub use checked::Config;
pub use delay::{delay, loss, written_delay, written_loss};
pub use fault_kinds::{injection, written_fault, written_share};
pub use fault_read::{faults, written_rule};
pub use host::{listen_address, network};
pub use ipnet::IpNet;
pub use mistake::Mistake;
pub use needs::{Need, Needed};
pub use profile::{OwnProfile, PROFILES, Profile};
pub use quantity::{duration, size, written_duration};
pub use read::{NamedFile, Owner, Reading, examine, examine_file, load, parse};
pub use reference::{reference, schema};
pub use route_options::RouteOptions;
pub use settings::{
    Access, AccessLog, Action, Auth, Bandwidth, Bandwidths, BodyRule, CacheDisk, CacheStore, Check,
    CookieSecrets, Dns, FaultRule, Faults, First, HostHeader, Http2Limits, Limits, Link, ListenAddress,
    Listener, LogFormat, LogQuery, LogTarget, MemoryBound, MessageFormat, MessageLevel, Messages, Page,
    Pages, Policies, Pool, Probe, Protocol, QueueSettings, RateLimit, Respond, Retry, RetryOn, Rewrite,
    Route, RouteLimits, RouteTimeouts, Scheme, Scope, Server, ServerHost, Settings, Shaping, Shedding,
    Statuses, StickyCookie, StickySessions, StickyTable, Timeouts, Upstream, Via,
};
pub use tls::{
    CertificateFiles, Certificates, ClientCertificates, Hsts, KeyPair, ListenerTls, UnknownNames, UpstreamTls,
};
pub use value_error::{HostProblem, PrefixProblem, ValueError, ValueFault};
