//! Reasons why a response is not stored, each with a word, an explanation, and advice for the origin's owner.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NotStored {
    /// The method is neither GET nor HEAD, or the request had a body or asked for an upgrade.
    Method,
    /// The response to a HEAD, which has no body to store.
    Head,
    RequestNoStore,
    NoStore,
    /// The response has `no-cache`, and cannot be validated.
    NoCache,
    Private,
    /// The request had Authorization, and the response does not allow sharing.
    Authorization,
    /// The response has Set-Cookie, and does not allow sharing.
    SetCookie,
    VaryStar,
    VaryTooLong,
    /// Vary names a field that the proxy writes itself.
    VaryRewritten,
    /// Vary is ignored by the route, but names a cookie or an Authorization that the request had.
    VaryPersonal,
    /// The request's host is not in normal form: it has capitals, or the default port of its scheme.
    Host,
    /// Vary names Accept-Encoding, and the response has a coding that is not among the known ones that the request
    /// accepts.
    Coding,
    /// The response has `must-understand`, and this cache does not know the requirements of its status.
    NotUnderstood,
    /// The status is not final, or its response only fits its own request: 206 without a usable range, 304, 412, 416.
    Status,
    /// The response has no freshness lifetime, and its status is not heuristically cacheable.
    NoFreshness,
    /// The response is stale on arrival, and cannot be validated.
    Stale,
    /// The route stores no responses with this status.
    StatusTtlZero,
    /// The head could not be parsed again, or lengths contradict each other.
    Malformed,
    /// The body exceeds the limit of one object.
    TooLarge,
    /// The body ended before its length or its last chunk.
    Incomplete,
    /// The response was purged while it arrived.
    Purged,
    /// All memory for responses is in use.
    NoRoom,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusalRow {
    pub refusal: NotStored,
    /// The reason as one word, for logs, metrics and `detail` of Cache-Status.
    pub word: &'static str,
    /// An explanation.
    pub what: &'static str,
    /// Advice for the owner of the origin or of the route.
    pub remedy: &'static str,
}

macro_rules! rows {
    ($($refusal:ident $word:literal $what:literal $remedy:literal,)*) => {
        pub const REFUSALS: &[RefusalRow] = &[
            $(RefusalRow { refusal: NotStored::$refusal, word: $word, what: $what, remedy: $remedy },)*
        ];

        impl NotStored {
            pub fn row(self) -> &'static RefusalRow {
                // The table is indexed by the variant, so a row in another place would give a wrong explanation.
                const { assert!(is_in_order()) };
                &REFUSALS[self as usize]
            }
        }
    };
}

rows! {
    Method "method"
        "only GET and HEAD without a body are answered from the cache"
        "let clients read it with GET",
    Head "head"
        "the response to a HEAD has no body to store"
        "nothing: the first GET is stored, and answers HEAD as well",
    RequestNoStore "request-no-store"
        "the client sent Cache-Control: no-store"
        "set `cache.ignore = \"request-directives\"` for the route so that clients cannot decide this",
    NoStore "no-store"
        "the response has Cache-Control: no-store"
        "remove no-store, and send max-age or s-maxage",
    NoCache "no-cache"
        "the response has Cache-Control: no-cache, and no validator"
        "send an ETag so that it can be validated, or max-age instead of no-cache",
    Private "private"
        "the response has Cache-Control: private"
        "remove private if the response is the same for all clients; private=\"Name\" excludes single fields",
    Authorization "authorization"
        "the request had an Authorization, and the response does not permit sharing"
        "send public, s-maxage or must-revalidate if they may (RFC 9111 section 3.5); a route's own `auth` is no reason, unless `$user` is sent to servers",
    SetCookie "set-cookie"
        "the response sets a cookie"
        "set the cookie in another response, or send public or s-maxage if all clients may share it; `cache.ignore = \
         \"set-cookie\"` removes it",
    VaryStar "vary-star"
        "the response has Vary: *, so it matches no other request"
        "name the request fields that it depends on",
    VaryTooLong "vary-too-long"
        "Vary names too many fields"
        "name only fields that the response depends on",
    VaryRewritten "vary-rewritten"
        "the response's Vary names a field that the proxy or an edit of the route writes"
        "remove the field from Vary and send Cache-Control: private, or name a field that clients send",
    VaryPersonal "vary-personal"
        "the response's Vary names Cookie or Authorization, and the request had it, so the response may be for one \
         client"
        "take the field out of requests by `request_headers`, or name the cookies that count in `cache.key_cookies` and do not ignore Vary",
    Host "host"
        "the request named its host with capitals, or with the default port of its scheme"
        "nothing: a response to a request with the plain name is stored, and answers these as well",
    Coding "coding"
        "the response has a Content-Encoding that the request's Accept-Encoding did not name, or a rare one"
        "send gzip, br, zstd or deflate, and only to clients that accept it; to others no coding",
    NotUnderstood "must-understand"
        "the response has must-understand, and the proxy does not know its status"
        "remove must-understand for this status",
    Status "status"
        "a response with this status does not apply to other requests"
        "nothing: it is meant for its own request",
    NoFreshness "no-freshness"
        "the response does not say how long it is fresh"
        "send Cache-Control: max-age, or Last-Modified or ETag; `cache.default_ttl = \"1m\"` is for origins that cannot",
    Stale "stale"
        "the response arrived stale, and has no validator"
        "send a longer max-age, or an ETag so that it can be validated",
    StatusTtlZero "status-ttl"
        "`cache.status_ttl` or `cache.rules` of the route is zero for this response, or a page of `errors` stands in for it"
        "set a nonzero time to store it",
    Malformed "malformed"
        "the response contradicts itself"
        "check its Content-Length and Content-Range",
    TooLarge "too-large"
        "the body is larger than one object may be"
        "raise the limit if it is worth the memory: `object` of `[cache]`, or its `memory`, of which one object may \
         take an eighth",
    Incomplete "incomplete"
        "the body ended too early"
        "find out why the origin closes connections early",
    Purged "purged"
        "the response was purged while it arrived"
        "nothing: the next request stores it",
    NoRoom "no-room"
        "all stored responses are in use, so none can be evicted"
        "raise `memory` of `[cache]`",
}

/// Whether each row is at the index of its reason.
const fn is_in_order() -> bool {
    let mut at = 0;
    while at < REFUSALS.len() {
        if REFUSALS[at].refusal as usize != at {
            return false;
        }
        at += 1;
    }
    at == NotStored::NoRoom as usize + 1
}

impl fmt::Display for NotStored {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.row().what)
    }
}
