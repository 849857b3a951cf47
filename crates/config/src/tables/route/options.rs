//! Options of routes, declared once. `resolve` has their relations.

use std::num::NonZeroU32;
use std::sync::Arc;

use ::route::{BytePattern, DomainRewrite, MappedUrls, RedirectStatus, SameSite, ValueRule};
use ipnet::IpNet;
use shape::Delay;

use crate::option::bandwidth::{BANDWIDTH, Bandwidths};
use crate::option::declared::{count, joined, options};
use crate::option::delay::DELAY;
use crate::option::host::NETWORK_KIND;
use crate::option::kind::{
    At, Boxed, Content, List, Located, Made, Maybe, Name, Switch, Template, UPSTREAM_NAME, Unless, Word,
};
use crate::option::matching::{PATTERN, ValueRuleKind, parameter_name};
use crate::option::named_file::{PAGE, Page, Pages, USERS, UsersFile};
use crate::option::pairs::{OneOrMany, Pair, Pairs};
use crate::option::range::{Count, NonZero, Unit};
use crate::option::table::{Declared, Element, Inline, Table, inherited, key, required, within};
use crate::tables::cache::options::{ROUTE_CACHE, RouteCacheWritten};
use crate::tables::files::{FILES, FilesWritten};
use crate::tables::forward_auth::{FORWARD_AUTH, ForwardAuthWritten};
use crate::tables::headers::{EditsWritten, REQUEST_EDITS, RESPONSE_EDITS};
use crate::tables::jwt::options::{JWT, JwtWritten};
use crate::tables::log::RouteLog;
use crate::tables::log::RouteLogKind;
use crate::tables::request_buffering::{BUFFERING, RequestBuffering};
use crate::tables::requests::{self, Requests};
use crate::tables::route::accel::{ACCEL, AccelWritten};
use crate::tables::route::capture::{CAPTURE, RouteCapture};
use crate::tables::route::compress::{COMPRESS, Compress};
use crate::tables::route::concurrency::{CONCURRENCY, ConcurrencyWritten};
use crate::tables::route::cors::{CORS, CorsWritten};
use crate::tables::route::deny::{DenyKind, DenyWritten};
use crate::tables::route::error_page::{ERROR_PAGES, pages, written_pages};
use crate::tables::route::kinds::{
    DomainKind, PROXY_NAME, REALM, RedirectStatusKind, StatusKind, StatusWritten, VIA,
};
use crate::tables::route::limits::LIMITS;
use crate::tables::route::maintenance::MAINTENANCE;
use crate::tables::route::mirror::{MIRROR, MirrorWritten};
use crate::tables::route::on_status::{ON_STATUS, OnStatusWritten};
use crate::tables::route::rate_limit::{RATE_LIMIT, RateLimitWritten};
use crate::tables::route::split::{ROUTE_SPLIT, STICKY_SPLIT, ShareWritten};
use crate::tables::route::web_bot_auth::{BotsWritten, WEB_BOT_AUTH};
use crate::tables::route::{ClientCertFields, Maintenance, Require, RouteLimits, Via};
use crate::tables::timeouts::{ROUTE_TIMEOUTS, RouteTimeouts};
use crate::tables::upstream::Retry;
use crate::tables::upstream::retry::RETRY_OF_ROUTE;
use crate::tables::upstream::sticky::StickyWritten;
use crate::tables::values::{ValuesKind, ValuesWritten};

#[derive(Debug, Clone, Default)]
pub(crate) struct RouteWritten {
    pub(crate) name: Option<Located<String>>,
    pub(crate) values: ValuesWritten,
    pub(crate) requests: Requests,
    pub(crate) claim: Option<Located<Vec<Pair<String, ValueRule>>>>,
    pub(crate) upstream: Option<Located<String>>,
    pub(crate) split: Option<Located<Vec<Pair<String, ShareWritten>>>>,
    pub(crate) sticky: Option<Box<Element<StickyWritten>>>,
    pub(crate) redirect: Option<Box<Element<RedirectWritten>>>,
    pub(crate) respond: Option<Box<Element<RespondWritten>>>,
    pub(crate) files: Option<Box<Element<FilesWritten>>>,
    pub(crate) allow: Vec<IpNet>,
    pub(crate) deny: DenyWritten,
    pub(crate) auth: Option<Box<Element<AuthWritten>>>,
    pub(crate) jwt: Option<Box<Element<JwtWritten>>>,
    pub(crate) web_bot_auth: Option<Box<Element<BotsWritten>>>,
    pub(crate) forward_auth: Option<Box<Element<ForwardAuthWritten>>>,
    pub(crate) require: Option<Located<Require>>,
    pub(crate) rate_limit: Vec<Element<RateLimitWritten>>,
    pub(crate) concurrency: Vec<Element<ConcurrencyWritten>>,
    pub(crate) cors: Option<Box<Element<CorsWritten>>>,
    pub(crate) mirror: Option<Box<Element<MirrorWritten>>>,
    pub(crate) capture: Option<Box<Element<RouteCapture>>>,
    pub(crate) on_status: Option<OnStatusWritten>,
    pub(crate) accel: Option<AccelWritten>,
    pub(crate) request_buffering: Option<Located<Option<RequestBuffering>>>,
    pub(crate) rewrite: Option<Box<Element<RewriteWritten>>>,
    pub(crate) request_headers: Vec<Element<EditsWritten>>,
    pub(crate) response_headers: Vec<Element<EditsWritten>>,
    pub(crate) location: Option<Option<MappedUrls>>,
    pub(crate) cookies: Option<Box<Element<CookiesWritten>>>,
    pub(crate) options: RouteOptions,
    pub(crate) retry: Option<Box<Element<Retry>>>,
    pub(crate) timeouts: Option<Box<Element<RouteTimeouts>>>,
    pub(crate) limits: Option<Box<Element<RouteLimits>>>,
    pub(crate) bandwidths: Bandwidths,
    pub(crate) weight: Option<NonZeroU32>,
    pub(crate) delay: Option<Delay>,
    pub(crate) response_delay: Option<Located<Delay>>,
    pub(crate) cache: Option<Box<Element<RouteCacheWritten>>>,
}

pub(crate) static ROUTE: Table<RouteWritten> = Table { options: ENTRIES };
/// The options that all routes may have from `[route_defaults]`.
pub(crate) static ROUTE_DEFAULTS: Table<RouteWritten> = Table { options: POLICIES };

const ENTRIES: &[Declared<RouteWritten>] = {
    const PARTS: &[&[Declared<RouteWritten>]] = &[OWN, POLICIES];
    const ALL: [Declared<RouteWritten>; count(PARTS)] = joined(PARTS);
    &ALL
};

/// The options that say which requests a route is for, and what it answers with.
const OWN: &[Declared<RouteWritten>] = &[
    key!(
        "name",
        Maybe(At(Name { expected: "a name for the route" })),
        RouteWritten.name,
        "Name in logs and metrics. Default: its host and path.",
    ),
    key!(
        "values",
        ValuesKind { is_local: true },
        RouteWritten.values,
        "Names for expressions, for this route. They replace equal names of `[values]`. Conditions in \
         `[route_defaults]` do not see them. See [values](conditions.md#values).",
    ),
    within!(RouteWritten.requests, requests::LISTENER),
    within!(RouteWritten.requests, requests::HOST),
    within!(RouteWritten.requests, requests::PATH),
    within!(RouteWritten.requests, requests::METHODS),
    within!(RouteWritten.requests, requests::HEADERS),
    within!(RouteWritten.requests, requests::COOKIE),
    within!(RouteWritten.requests, requests::QUERY),
    key!(
        "claim",
        Maybe(At(Pairs {
            expected: "a table such as { tenant = \"acme\", \"realm_access.roles\" = \"admin\" }",
            name: parameter_name,
            print_name: String::clone,
            kind: ValueRuleKind,
        })),
        RouteWritten.claim,
        "Claims of the token that must match, all of them, written like `headers`; in a list, one value has \
         to match. The route's `jwt` then verifies the token, and rejects a forged one.",
    ),
    within!(RouteWritten.requests, requests::WHEN),
    within!(RouteWritten.requests, requests::CLIENTS),
    key!(
        "upstream",
        Maybe(At(Template { expected: UPSTREAM_NAME.expected })),
        RouteWritten.upstream,
        "The upstream that serves these requests. `\"${app}\"` is the upstream that a value names; a request whose \
         value names none gets 503. See [values](conditions.md#upstreams). Exactly one of `upstream`, `split`, `redirect`, \
         `respond` and `files` is required.",
    ),
    key!(
        "split",
        Maybe(At(ROUTE_SPLIT)),
        RouteWritten.split,
        "Distributes requests over several upstreams by weight: `{ app = 9, canary = 1 }`. A table adds a condition: \
         `{ app = 9, canary = { weight = 1, when = '\"beta\" in request.cookies[\"group\"]' } }`. Requests outside it \
         go to the other upstreams. See [conditions](conditions.md).",
    ),
    key!(
        "sticky",
        Maybe(Boxed(STICKY_SPLIT)),
        RouteWritten.sticky,
        "Keeps a client on its side of `split`: `{ by = \"cookie\" }` gives it a number in a signed cookie, \
         `{ by = \"client\" }` uses its address. When weights change, as few clients as possible move.",
    ),
    key!("redirect", Maybe(Boxed(REDIRECT)), RouteWritten.redirect, "Redirects clients to another URL.",),
    key!("respond", Maybe(Boxed(RESPOND)), RouteWritten.respond, "Sends a fixed response, without a server.",),
    key!(
        "files",
        Maybe(Boxed(FILES)),
        RouteWritten.files,
        "Sends files from this machine, without a server: see [files.md](files.md).",
    ),
];

/// All other options.
const POLICIES: &[Declared<RouteWritten>] = {
    const BEFORE: &[Declared<RouteWritten>] = &[
        inherited!(
            "allow",
            List { kind: NETWORK_KIND, may_be_empty: true },
            RouteWritten.allow,
            "Networks of clients that are allowed; others get 403. Empty: all are. If `allow` and `deny` \
             both contain a client, the longer prefix decides.",
        ),
        inherited!(
            "deny",
            DenyKind,
            RouteWritten.deny,
            "Networks of clients that get 403. A table denies requests by a condition, also to clients of `allow`: \
             `[\"192.0.2.0/24\", { when = 'request.path.endsWith(\".php\")', status = 404 }]`.",
        ),
        inherited!(
            "auth",
            Maybe(Boxed(AUTH)),
            RouteWritten.auth,
            "Basic authentication; without valid credentials the response is 401.",
        ),
        inherited!(
            "jwt",
            Maybe(Boxed(JWT)),
            RouteWritten.jwt,
            "Requires a JSON Web Token; without a valid one the response is 401. See [JWT](jwt.md).",
        ),
        inherited!(
            "web_bot_auth",
            Maybe(Boxed(WEB_BOT_AUTH)),
            RouteWritten.web_bot_auth,
            "Requires the signature of a bot (Web Bot Auth, RFC 9421); without a valid one the response is 403. See \
             [bots](bots.md).",
        ),
        inherited!(
            "forward_auth",
            Maybe(Boxed(FORWARD_AUTH)),
            RouteWritten.forward_auth,
            "Asks another server whether to admit a request. A 2xx answer admits it; any other answer goes \
             to the client as a whole.",
        ),
        inherited!(
            "require",
            Maybe(At(Word { words: &[("all", Require::All), ("any", Require::Any)] })),
            RouteWritten.require,
            "Whether all of several authentication methods are needed, or any one of them. Default: all.",
        ),
        inherited!(
            "rate_limit",
            OneOrMany(RATE_LIMIT),
            RouteWritten.rate_limit,
            "Limits the request rate, over all workers; further requests get 429 with Retry-After. If there \
             are several limits, all must admit a request.",
        ),
        inherited!(
            "concurrency",
            OneOrMany(CONCURRENCY),
            RouteWritten.concurrency,
            "Limits the requests under way, over all workers, for each client or another key; further requests wait \
             or get 429 with Retry-After. If there are several limits, all must admit a request. See \
             [rate limits](rate-limits.md#requests-under-way).",
        ),
        inherited!(
            "cors",
            Maybe(Boxed(CORS)),
            RouteWritten.cors,
            "Lets pages from other origins read responses (CORS). The proxy answers preflights, before \
             `rate_limit` and `auth`; the CORS fields of servers are replaced.",
        ),
        inherited!(
            "mirror",
            Maybe(Boxed(MIRROR)),
            RouteWritten.mirror,
            "Also sends a copy of admitted requests to another upstream, and discards its responses. Clients \
             never wait for it.",
        ),
        inherited!(
            "capture",
            Maybe(Boxed(CAPTURE)),
            RouteWritten.capture,
            "Writes the route's requests and the heads of their responses to a file, for `vanward adapt --prove`. \
             Secrets are masked, and bodies are left out unless `bodies` is set. See [captured traffic](capture.md).",
        ),
        inherited!(
            "on_status",
            Maybe(At(ON_STATUS)),
            RouteWritten.on_status,
            "Asks another upstream if the server's response has such a status, or if there is none (502, 503, 504): \
             `{ 404 = { upstream = \"legacy\" } }`. A status comes before its class. See \
             [another server's answer](fallbacks.md).",
        ),
        inherited!(
            "accel",
            Maybe(At(ACCEL)),
            RouteWritten.accel,
            "Folders whose files servers may name in X-Accel-Redirect or X-Sendfile, in place of a body: `{ \"/protected/\" = \
             \"/srv/files\" }`. See [files.md](files.md#files-that-a-server-names).",
        ),
        inherited!(
            "request_buffering",
            Maybe(At(BUFFERING)),
            RouteWritten.request_buffering,
            "Reads the whole request body before a server is chosen, so that a slow client holds no server: \
             `true`, or a table. Longer bodies wait on disk, within the bounds of `[request_buffering]`. Not for \
             calls that answer before the request has ended, such as gRPC streams. See \
             [request buffering](request-buffering.md).",
        ),
        inherited!(
            "rewrite",
            Maybe(Boxed(REWRITE)),
            RouteWritten.rewrite,
            "Changes the path and host that servers see.",
        ),
        inherited!(
            "request_headers",
            REQUEST_EDITS,
            RouteWritten.request_headers,
            "Sets, adds and removes request fields. Several tables apply one after the other.",
        ),
        inherited!(
            "response_headers",
            RESPONSE_EDITS,
            RouteWritten.response_headers,
            "Sets, adds and removes response fields. `$status` is available here. Several tables apply one after the \
             other.",
        ),
        inherited!(
            "location",
            Maybe(LOCATION),
            RouteWritten.location,
            "Maps Location, Content-Location and Refresh of responses back from the server's URLs to the \
             client's. `\"absolute\"` maps only URLs with the server's own host, not paths, nor URLs with the \
             client's host. Default: `true` with `rewrite`.",
        ),
        inherited!(
            "cookies",
            Maybe(Boxed(COOKIES)),
            RouteWritten.cookies,
            "Changes the cookies that servers set. Default: if `rewrite` replaces a prefix, their Path is \
             mapped back.",
        ),
    ];
    const AFTER: &[Declared<RouteWritten>] = &[
        inherited!(
            "retry",
            Maybe(Boxed(RETRY_OF_ROUTE)),
            RouteWritten.retry,
            "Replaces the retry rules of the upstream; options not set here have their defaults.",
        ),
        inherited!(
            "timeouts",
            Maybe(Boxed(ROUTE_TIMEOUTS)),
            RouteWritten.timeouts,
            "Replaces timeouts of `[timeouts]` for this route.",
        ),
        inherited!(
            "limits",
            Maybe(Boxed(LIMITS)),
            RouteWritten.limits,
            "Replaces limits of `[limits]` for this route.",
        ),
        inherited!(
            "rate",
            OneOrMany(BANDWIDTH),
            RouteWritten.bandwidths.down,
            "Limits the rate of response bodies: all of the route together, over all workers, shared \
             fairly. Header sections do not count. `per client`, `per client/24` (network), \
             `per connection` or `per request` give each one its own limit. `burst 64KB` makes \
             a token bucket: that much unused rate is saved and may be sent at once. Without \
             it nothing is saved. Several limits apply together.",
        ),
        inherited!(
            "upload_rate",
            OneOrMany(BANDWIDTH),
            RouteWritten.bandwidths.up,
            "Limits the rate of request bodies, like `rate`.",
        ),
        inherited!(
            "weight",
            Maybe(NonZero(Count { range: 1..=1000, unit: Unit::Things })),
            RouteWritten.weight,
            "Share of a rate limit that several routes use together, relative to the other routes. \
             Default: 1.",
        ),
        inherited!(
            "delay",
            Unless { word: "off", kind: DELAY },
            RouteWritten.delay,
            "Holds each request back for this time. `\"2s±100ms\"`: uniform distribution; `\"2s±100ms \
             normal\"`: normal, with that standard deviation; `\"2s±100ms pareto\"`: only longer, by that \
             much on average; `\"50ms trace FILE\"`: adds the values of a file, one per line, one after the \
             other.",
        ),
        inherited!(
            "response_delay",
            Unless { word: "off", kind: At(DELAY) },
            RouteWritten.response_delay,
            "Holds each response of a server back for this time. Not for routes with `cache`.",
        ),
        inherited!(
            "cache",
            Maybe(Boxed(ROUTE_CACHE)),
            RouteWritten.cache,
            "Stores responses in the cache of `[cache]` as RFC 9111 allows; `{}` has all defaults. \
             Default: nothing is stored. Each upstream has its own cache; so does any route \
             that matches on more than host and path.",
        ),
    ];
    const PARTS: &[&[Declared<RouteWritten>]] = &[BEFORE, USED_AS_WRITTEN, AFTER];
    const ALL: [Declared<RouteWritten>; count(PARTS)] = joined(PARTS);
    &ALL
};

options! {
    /// Options of a route whose value needs no conversion. To add one without relations to others, add one entry here;
    /// the proxy reads it from the `options` of `Policies`.
    pub struct RouteOptions in RouteWritten.options as USED_AS_WRITTEN {
        access_log: Option<RouteLog> = RouteLogKind,
            "Whether the requests of the route are in the access log of `[log]`. `\"1%\"` logs that share of \
             them, with the weight of each, and all that fail or get 5xx. A table logs only requests for which \
             its condition holds. `false` logs none, not even failures; metrics count them. Default: true.";
        via: Via = VIA,
            "Name of this proxy in Via, in requests and responses; `\"off\"` adds no Via. (nginx does not \
             compress responses to requests with a Via, unless its `gzip_proxied` allows it.) \
             Via fields from other proxies are forwarded; `request_headers` and `response_headers` can \
             remove them.";
        proxy_status: Option<String> = Maybe(PROXY_NAME),
            "Name of this proxy in `Proxy-Status` (RFC 9209), which names failures, and says whether a \
             response is from a server. Default: this proxy adds none; those from servers are forwarded.";
        alt_svc: bool = Switch,
            "Forwards `Alt-Svc` from servers to clients, for servers that know the ports of this proxy. \
             Stored responses of `cache` never have it. Default: it is removed, because its ports belong to \
             the server.";
        client_cert: Option<ClientCertFields> = Maybe(Word {
                words: &[
                    ("certificate", ClientCertFields::Certificate),
                    ("chain", ClientCertFields::Chain),
                    ("pem", ClientCertFields::Pem),
                ],
            }),
            "Sends servers the client's certificate in `Client-Cert` (RFC 9440), with `\"chain\"` also its \
             intermediate certificates in `Client-Cert-Chain`, with `\"pem\"` in `ssl-client-cert` instead, in \
             PEM with percent escapes. Clients cannot send these fields themselves.";
        maintenance: Option<Maintenance> = MAINTENANCE,
            "Answers with 503 and Retry-After instead of asking a server or the cache. `true` has all \
             defaults. `vanward maintenance` switches it while the proxy runs.";
        error_pages: Pages = Made { kind: ERROR_PAGES, make: pages, written: written_pages },
            "Error pages of the route; they take precedence over those of the top level.";
        replace_errors: bool = Switch,
            "Also replaces the bodies of errors from servers, with these pages and those of the top level. \
             Other response fields stay, except those about the content.";
        compress: Option<Arc<Compress>> = COMPRESS,
            "Compresses responses for clients that accept it, by Accept-Encoding; `true` has all defaults. \
             Each piece of a stream leaves at once. With `cache`, a stored response is compressed once for \
             each coding. Compressed responses from servers are forwarded, and decompressed for clients that \
             do not accept their coding. Default: nothing is compressed.";
        grpc_web: bool = Switch,
            "Translates calls of gRPC-Web, which browsers can send over HTTP/1.1 and HTTP/2, to gRPC, and \
             the responses back. All other requests pass unchanged. The upstream needs `protocol = \"h2\"` \
             or `\"h3\"`. With `cors`, scripts may send and read the fields of gRPC-Web. See \
             [gRPC](grpc.md).";
    }
}

#[derive(Debug, Clone)]
pub(crate) struct RedirectWritten {
    pub(crate) to: Option<Located<String>>,
    pub(crate) status: RedirectStatus,
    pub(crate) pattern: Option<Located<BytePattern>>,
}

impl Default for RedirectWritten {
    fn default() -> Self {
        Self { to: None, status: RedirectStatus::PermanentRedirect, pattern: None }
    }
}

const REDIRECT: Inline<RedirectWritten> = Inline {
    title: "redirect",
    example: "{ to = \"https://$host$path_and_query\" }",
    table: &Table {
        options: &[
            required!(
                "to",
                Maybe(At(Template { expected: "a URL such as https://www.example.com$path, or a path" })),
                RedirectWritten.to,
                "Target: a URL or a path, with variables. `$1` is the first group of the route's `path`, \
                 if that is a regular expression. The client's query is appended unless \
                 the target has one; a `?` at its end leaves the query out: `\"/new?\"`.",
            ),
            key!(
                "status",
                RedirectStatusKind,
                RedirectWritten.status,
                "301 and 308 are permanent, 302 and 307 temporary; 307 and 308 keep the method, 303 changes \
                 it to GET.",
            ),
            key!(
                "pattern",
                Maybe(At(PATTERN)),
                RedirectWritten.pattern,
                "A regular expression whose groups `to` uses, instead of those of the route's `path`. If it \
                 does not match the path, they are empty.",
            ),
        ],
    },
};

#[derive(Debug, Clone, Default)]
pub(crate) struct RespondWritten {
    pub(crate) status: Option<Located<StatusWritten>>,
    pub(crate) body: Option<Located<String>>,
    pub(crate) file: Option<Located<Page>>,
    pub(crate) content_type: Option<Located<String>>,
}

const RESPOND: Inline<RespondWritten> = Inline {
    title: "respond",
    example: "{ status = 200, body = \"ok\" }",
    table: &Table {
        options: &[
            required!(
                "status",
                Maybe(At(StatusKind)),
                RespondWritten.status,
                "Status of the response: a number, or a value that is one. A request whose value is none gets 500.",
            ),
            key!(
                "body",
                Maybe(At(Content { expected: "text" })),
                RespondWritten.body,
                "Body of the response. `${NAME}` is a variable or a value, escaped as `content_type` requires; \
                 `$${` is the text `${`. Other dollar signs stand for themselves. Default: for an error, its page of \
                 `error_pages`.",
            ),
            key!(
                "file",
                Maybe(At(PAGE)),
                RespondWritten.file,
                "File with the body; read at the start and at each reload.",
            ),
            key!(
                "content_type",
                Maybe(At(Name { expected: "a media type such as text/plain" })),
                RespondWritten.content_type,
                "Content-Type. Default: by the extension of `file`, or text/plain.",
            ),
        ],
    },
};

#[derive(Debug, Clone)]
pub(crate) struct AuthWritten {
    pub(crate) realm: String,
    pub(crate) users: Option<UsersFile>,
}

impl Default for AuthWritten {
    fn default() -> Self {
        Self { realm: "Restricted".to_owned(), users: None }
    }
}

const AUTH: Inline<AuthWritten> = Inline {
    title: "auth",
    example: "{ users = \"/etc/vanward/users\" }",
    table: &Table {
        options: &[
            required!(
                "users",
                Maybe(USERS),
                AuthWritten.users,
                "File of `NAME:HASH` lines as `htpasswd -B` writes them: bcrypt, SHA-256 and SHA-512 \
                 crypt, and `$apr1$`. Read at the start and at each reload.",
            ),
            key!(
                "realm",
                REALM,
                AuthWritten.realm,
                "Realm: the text that clients show when they ask for the password.",
            ),
        ],
    },
};

/// `true`, `false` or `"absolute"`.
const LOCATION: Made<Unless<Switch>, Option<bool>, Option<MappedUrls>> = Made {
    kind: Unless { word: "absolute", kind: Switch },
    make: |written| match written {
        None => Some(MappedUrls::Absolute),
        Some(is_on) => is_on.then_some(MappedUrls::All),
    },
    written: |mapped| match mapped {
        Some(MappedUrls::Absolute) => None,
        other => Some(other.is_some()),
    },
};

#[derive(Debug, Clone, Default)]
pub(crate) struct RewriteWritten {
    pub(crate) path: Option<Located<String>>,
    pub(crate) pattern: Option<Located<BytePattern>>,
    pub(crate) normalize: Option<Located<bool>>,
    pub(crate) host: Option<Located<String>>,
}

const REWRITE: Inline<RewriteWritten> = Inline {
    title: "rewrite",
    example: "{ path = \"/v1\" }",
    table: &Table {
        options: &[
            key!(
                "path",
                Maybe(At(Template { expected: "a path such as /v1, or with variables /users/$1" })),
                RewriteWritten.path,
                "Replaces what the route's `path` matches: a prefix, keeping the rest; or the whole path \
                 if `path` is exact or a regular expression, whose groups are `$1`, `$2` \
                 and `$capture.NAME`. For `path = \"/api*\"` it replaces the text: with `/v1`, \
                 `/apix` becomes `/v1x`.",
            ),
            key!(
                "pattern",
                Maybe(At(PATTERN)),
                RewriteWritten.pattern,
                "A regular expression to match the path with, instead of the route's `path`. Other paths are \
                 not changed.",
            ),
            key!(
                "normalize",
                Maybe(At(Switch)),
                RewriteWritten.normalize,
                "Writes the rest of the path behind a prefix as it is read: escapes decoded where a path can have \
                 the character, also `%2F`, and repeated slashes merged. Default: the rest stays as sent.",
            ),
            key!(
                "host",
                Maybe(At(Template { expected: "a host such as $host or tenant.internal:8080" })),
                RewriteWritten.host,
                "Host field that servers get, with variables, instead of the upstream's `host`.",
            ),
        ],
    },
};

#[derive(Debug, Clone)]
pub(crate) struct CookiesWritten {
    pub(crate) names: Vec<String>,
    pub(crate) domain: DomainRewrite,
    pub(crate) path: bool,
    pub(crate) secure: Option<bool>,
    pub(crate) http_only: Option<bool>,
    pub(crate) same_site: Option<SameSite>,
}

impl Default for CookiesWritten {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            domain: DomainRewrite::Keep,
            path: true,
            secure: None,
            http_only: None,
            same_site: None,
        }
    }
}

const COOKIES: Inline<CookiesWritten> = Inline {
    title: "cookies",
    example: "{ domain = \"remove\", secure = true }",
    table: &Table {
        options: &[
            key!(
                "names",
                OneOrMany(Name { expected: "the name of a cookie" }),
                CookiesWritten.names,
                "Only these cookies. Default: all.",
            ),
            key!(
                "domain",
                DomainKind,
                CookiesWritten.domain,
                "`\"remove\"` removes Domain, so that the cookie is only for the requested host. A table \
                 replaces domains: `{ \"app.internal\" = \"www.example.com\" }`.",
            ),
            key!("path", Switch, CookiesWritten.path, "Maps Path back if `rewrite` replaces a prefix.",),
            key!("secure", Maybe(Switch), CookiesWritten.secure, "Adds or removes Secure.",),
            key!("http_only", Maybe(Switch), CookiesWritten.http_only, "Adds or removes HttpOnly.",),
            key!(
                "same_site",
                Maybe(Word {
                    words: &[("strict", SameSite::Strict), ("lax", SameSite::Lax), ("none", SameSite::None)],
                }),
                CookiesWritten.same_site,
                "Sets SameSite. `\"none\"` needs `secure = true`.",
            ),
        ],
    },
};
