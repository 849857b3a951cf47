//! Routing and route policies as decisions: which route a request takes, and what the route does with it. Compiled
//! once, evaluated for every request.
//!
//! No sockets, clocks, threads or files. Paths are matched as a lenient server reads them (`RouteTable::find`); the
//! caller rejects ambiguous ones (`has_dot_segments`).

#![forbid(unsafe_code)]

/// The PROXY protocol.
mod proxy_protocol;
/// The request, as routes see it.
mod request;
/// The token of a request, and its claims.
mod token;
/// Paths, as a lenient server reads them.
mod path;
/// Query parameters, decoded as form data.
mod form;
/// Regular expressions that match whole texts, with limits.
mod pattern;
/// Look-up of addresses in networks.
mod network;
/// Rules: the conditions of a route.
mod rule;
/// A hash table with text keys.
mod text_map;
/// Look-up of hosts, most specific first.
mod host;
/// Look-up of path prefixes, longest first.
mod prefixes;
/// Alternative readings of ambiguous paths.
mod readings;
/// The routing table.
mod table;
/// Finds rules that no request can reach.
mod reach;
/// Explains why a request takes its route.
mod explain;
/// The variables of an exchange.
mod exchange;
/// Parser for templates with variables.
mod template;
/// Fills in templates, with escaping.
mod fill;
/// Access control by client network.
mod access;
/// Basic authentication.
mod basic;
/// Rate limits.
mod limit;
/// Keys of remembered decisions about clients.
mod auth_key;
/// Traffic splitting by weight.
mod split;
/// Rewriting of path and host.
mod rewrite;
/// Edits of header fields.
mod edits;
/// Cross-origin resource sharing.
mod cors;
/// Responses without a server.
mod answer;
/// Where clients that have not signed in are sent.
mod sign_in;
/// Rewriting of Location.
mod location;
/// Rewriting of Set-Cookie.
mod set_cookie;

pub use access::{Access, AccessList};
pub use answer::{ErrorPages, FixedResponse, FixedResponseError, PageFor, Redirect, RedirectStatus};
pub use auth_key::{AuthKeyPart, write_auth_key};
pub use basic::{
    CREDENTIAL_BYTES_MAX, Credentials, CredentialsDigest, CredentialsError, UserFault, UserFaultKind, Users,
    Verified, challenge,
};
pub use cors::{AllowedOrigin, Cors, OriginError};
pub use edits::{HeaderEdit, HeaderEditError, HeaderEdits, Present, RemovedFields};
pub use exchange::{ClientTls, Exchange};
pub use explain::{Explanation, Miss, Outcome, Step};
pub use limit::{
    Alone, FirstRequests, KEY_BYTES, KeyCount, Rate, RateError, RateKey, RateKeyPart, RateLimiter,
    RateVerdict, SharedIdentity, Spent, Standing,
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
pub use request::{Fields, NoFields, Request, cookie, cookie_value, parameters};
pub use rewrite::{AmbiguousPath, HostRewrite, NotAHost, PathRewrite};
pub use rule::{Condition, HostRule, PathRule, Rule, ValueRule};
pub use set_cookie::{CookieRewrite, CookieRewriteError, DomainRewrite, SameSite};
pub use sign_in::SignIn;
pub use split::Split;
pub use table::RouteTable;
pub use template::{
    OfClient, Place, Stage, TEMPLATE_BYTES_MAX, Template, TemplateError, TemplateFault, Token, VARIABLES,
    token,
};
pub use token::{ClaimRules, TokenSource};
