//! Routing and route policies as decisions: the route of a request, and the route's actions. Compiled once, evaluated
//! for every request.
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
/// Lookup of addresses in networks.
mod network;
/// Rules: the conditions of a route.
mod rule;
/// A hash table with text keys.
mod text_map;
/// Prefixes of paths as texts.
mod text_prefixes;
/// Lookup of hosts, most specific first.
mod host;
/// Lookup of path prefixes, longest first.
mod prefixes;
/// Alternative readings of ambiguous paths.
mod readings;
/// The routing table.
mod table;
/// Finds rules that no request can reach.
mod reach;
/// Explains why a request takes its route.
mod explain;
/// Facts for expressions.
mod facts;
/// Facts of an exchange that are known after the request.
mod later_facts;
/// The values of variables in templates.
mod variable_values;
/// Parser for templates with variables.
mod template;
/// Named expressions in templates.
mod named_values;
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
/// Redirects to sign-in pages.
mod sign_in;
/// Rewriting of Location.
mod location;
/// Rewriting of Set-Cookie.
mod set_cookie;

pub use access::{AccessDecision, AccessList};
pub use answer::{
    ErrorPages, FixedResponse, FixedResponseError, PageFor, Redirect, RedirectStatus, may_have_body,
    response_status,
};
pub use auth_key::{AuthKeyPart, write_auth_key};
pub use basic::{
    CREDENTIAL_BYTES_MAX, Credentials, CredentialsDigest, CredentialsError, UserFault, UserFaultKind, Users,
    VerifiedCredentials, challenge,
};
pub use cors::{AllowedOrigin, Cors, OriginError};
pub use edits::{
    ActiveEdits, EDIT_GROUPS_MAX, GroupCondition, HeaderEdit, HeaderEditError, HeaderEdits, Present,
    RemovedFields,
};
pub use explain::{ExplainedRule, Explanation, Miss, RuleOutcome};
pub use facts::{MapLookup, NoConditions, NoMaps, RequestConditions, RequestFacts, RequestSource};
pub use later_facts::{LaterFacts, ResponseFacts};
pub use limit::{
    Alone, Concurrency, ConcurrencyDemand, ConcurrencyEntry, ConcurrencyKey, ConcurrencyLimiter,
    ConcurrencyTicket, FirstRequests, KEY_BYTES, KeyCount, Quota, Rate, RateError, RateKey, RateKeyPart,
    RateLimiter, RateVerdict, ShareStanding, SharedIdentity, Spent,
};
pub use location::{LocationRewrite, MappedUrls, url_of_refresh};
pub use named_values::{NamedValues, OfClient, TemplateScope, is_variable};
pub use network::{Networks, network_of};
pub use path::{doubts, has_dot_segments};
pub use pattern::{BytePattern, Captures, PATTERN_BYTES_MAX, PatternError};
pub use proxy_protocol::{
    PROXY_HEADER_BYTES_MAX, ProxyHeader, ProxyHeaderError, ProxyIntroduction, ProxyOrigin, ProxyVersion, Tlv,
    parse_proxy_header, tlv_kind, write_proxy_header,
};
pub use reach::covered;
pub use request::{FieldLookup, NoFields, RequestParts, cookie, cookie_value, parameters};
pub use rewrite::{AmbiguousPath, HostRewrite, NotAHost, PathRewrite};
pub use rule::{Condition, HostRule, PathRule, RouteRule, ValueRule};
pub use set_cookie::{CookieRewrite, CookieRewriteError, DomainRewrite, SameSite};
pub use sign_in::{RETURN_PARAMETER, SignIn};
pub use split::{CONDITIONAL_BRANCHES_MAX, Split, SplitChoice, SplitShare};
pub use table::RouteTable;
pub use template::{
    ContentSyntax, RouteTemplate, TEMPLATE_BYTES_MAX, TemplateError, TemplateFault, TemplateStage,
    TemplateToken, TemplateUse, VARIABLES, token,
};
pub use token::{ClaimRules, TokenSource, without_parameter};
pub use variable_values::{ProxyCount, ProxyCounts, TlsFacts, VariableValues};
