//! What a request meets on its way to a server and back, as decisions: which route it takes and what that route does
//! with it. Compiled once, asked for every request.
//!
//! Bytes and `now` in, edits and verdicts out: no sockets, clocks, threads or files. Matching reads a path as a lenient
//! server would (`RouteTable::find`); what two servers could read as two paths is the caller's (`has_dot_segments`).

#![forbid(unsafe_code)]

/// Who a connection is from, said by the proxy in front.
mod proxy_protocol;
/// What is seen of a request.
mod request;
/// A path as a lenient server reads it.
mod path;
/// A query's names and values as a form's reader has them.
mod form;
/// Regular expressions over whole texts, with limits.
mod pattern;
/// Networks and what holds for the addresses in them.
mod network;
/// What a request must be like to take a route.
mod rule;
/// Texts to values.
mod text_map;
/// Hosts to values, the most specific first.
mod host;
/// Path prefixes to values, the longest first.
mod prefixes;
/// Other ways in which servers may read a path.
mod readings;
/// Requests to routes.
mod table;
/// Rules that no request reaches.
mod reach;
/// Why a request takes its route.
mod explain;
/// What is known of an exchange.
mod exchange;
/// Texts with variables, read.
mod template;
/// Templates filled in, safely.
mod fill;
/// Clients allowed and denied by network.
mod access;
/// Basic authentication.
mod basic;
/// Requests counted by key.
mod limit;
/// Upstreams by weight.
mod split;
/// The path and the host that a server sees.
mod rewrite;
/// Header fields set, added and removed.
mod edits;
/// Answers that need no server.
mod answer;
/// Location as clients have to read it.
mod location;
/// Set-Cookie as clients have to read it.
mod set_cookie;

pub use access::{Access, AccessList};
pub use answer::{ErrorPages, FixedResponse, FixedResponseError, PageFor, Redirect, RedirectStatus};
pub use basic::{
    CREDENTIAL_BYTES_MAX, Credentials, CredentialsDigest, CredentialsError, UserFault, UserFaultKind, Users,
    Verified, challenge,
};
pub use edits::{HeaderEdit, HeaderEditError, HeaderEdits, RemovedFields};
pub use exchange::{ClientTls, Exchange};
pub use explain::{Explanation, Miss, Outcome, Step};
pub use limit::{
    FirstRequests, KEY_BYTES, KeyCount, Rate, RateError, RateKey, RateKeyPart, RateLimiter, RateVerdict,
};
pub use location::{LocationRewrite, url_of_refresh};
pub use network::{Networks, network_of};
pub use path::{doubts, has_dot_segments};
pub use pattern::{Captures, PATTERN_BYTES_MAX, Pattern, PatternError};
pub use proxy_protocol::{
    PROXY_HEADER_BYTES_MAX, ProxyHeader, ProxyHeaderError, ProxyIntroduction, ProxyOrigin, ProxyVersion, Tlv,
    parse_proxy_header, tlv_kind, write_proxy_header,
};
pub use reach::covered;
pub use request::{Fields, NoFields, Request, cookie, parameters};
pub use rewrite::{AmbiguousPath, HostRewrite, NotAHost, PathRewrite};
pub use rule::{Condition, HostRule, PathRule, Rule, ValueRule};
pub use set_cookie::{CookieRewrite, CookieRewriteError, DomainRewrite, SameSite};
pub use split::Split;
pub use table::RouteTable;
pub use template::{
    OfClient, Place, Stage, TEMPLATE_BYTES_MAX, Template, TemplateError, TemplateFault, VARIABLES,
};
