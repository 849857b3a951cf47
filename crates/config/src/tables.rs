//! A module for each table of the file: its options, and the struct that holds their values.

/// Settings: listeners, routes, upstreams, time-outs, limits.
pub(crate) mod settings;
/// All options, declared once.
pub(crate) mod file;
/// The reference of all options.
pub(crate) mod reference;
/// Names that other tables refer to.
pub(crate) mod names;
/// Listeners.
pub(crate) mod listen;
/// TLS settings for clients and for servers.
pub(crate) mod tls;
/// Automatic certificates.
pub(crate) mod acme;
/// Names for expressions.
pub(crate) mod values;
/// Options that select requests.
pub(crate) mod requests;
/// Routes and their policies.
pub(crate) mod route;
/// Named sets of header edits, and the one that is built in.
pub(crate) mod headers;
/// Routes that answer with files.
pub(crate) mod files;
/// Tokens: keys, rules, and where requests have them.
pub(crate) mod jwt;
/// Forward authentication.
pub(crate) mod forward_auth;
/// Upstreams: servers, load balancing, checks, pools and retries.
pub(crate) mod upstream;
/// The cache store.
pub(crate) mod cache;
/// Maps for expressions.
pub(crate) mod map;
/// Link profiles.
pub(crate) mod profile;
/// Shaping: rate limits and delays.
pub(crate) mod shaping;
/// Faults.
pub(crate) mod fault;
/// Time-outs.
pub(crate) mod timeouts;
/// Limits, and load shedding.
pub(crate) mod limits;
/// Request buffering.
pub(crate) mod request_buffering;
/// Options of `[request_id]`.
pub(crate) mod request_id;
/// Access logs.
pub(crate) mod log;
/// Traces.
pub(crate) mod tracing;
/// The store that instances share.
pub(crate) mod redis;
/// The catalog of Consul.
pub(crate) mod consul;
/// The dashboard.
pub(crate) mod dashboard;
/// Options of messages.
pub(crate) mod messages;
