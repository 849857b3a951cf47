//! Options of routes, declared once. Their relations are in `route_resolve`.

use std::num::NonZeroU32;
use std::sync::Arc;

use ::route::{DomainRewrite, ErrorPages, PageFor, Pattern, RedirectStatus, SameSite, ValueRule};
use ipnet::IpNet;
use shape::Delay;

use crate::bandwidth::BANDWIDTH;
use crate::bot_options::{BotsWritten, WEB_BOT_AUTH};
use crate::cache_options::{ROUTE_CACHE, RouteCacheWritten};
use crate::compress_options::{Compress, CompressKind};
use crate::cors_options::{CORS, CorsWritten};
use crate::declared::{count, joined, options};
use crate::delay::DELAY;
use crate::files_options::{FILES, FilesWritten};
use crate::forward_auth_options::{FORWARD_AUTH, ForwardAuthWritten};
use crate::jwt_options::{JWT, JwtWritten};
use crate::kind::{At, Boxed, List, Located, Made, Maybe, Name, Switch, Template, Unless, Word};
use crate::log_options::RouteLogKind;
use crate::maintenance_options::MaintenanceKind;
use crate::matching::{FieldName, PATTERN, ValueRuleKind, parameter_name};
use crate::mirror_options::{MIRROR, MirrorWritten};
use crate::named_file::{FileKind, PAGE, USERS, UsersFile};
use crate::options::NETWORK_KIND;
use crate::pairs::{OneOrMany, Pair, Pairs, pair};
use crate::range::{Count, NonZero, Unit};
use crate::rate_limit_options::{RATE_LIMIT, RateLimitWritten};
use crate::request_buffering_options::BufferingKind;
use crate::requests::{self, Requests};
use crate::retry_options::RETRY_OF_ROUTE;
use crate::route_kinds::{DomainKind, PROXY_NAME, REALM, RedirectStatusKind, VIA};
use crate::route_limits_options::{LIMITS, TIMEOUTS};
use crate::settings::{
    Bandwidth, ClientCertFields, Maintenance, Page, Pages, RequestBuffering, Require, Retry, RouteLimits,
    RouteLog, RouteTimeouts, Via,
};
use crate::split_options::STICKY_SPLIT;
use crate::sticky_options::StickyWritten;
use crate::table::{Declared, Element, Inline, Table, Within, key, required};
use crate::value_error::{ValueError, ValueFault};

/// The parsed table `[[route]]`.
#[derive(Debug, Clone, Default)]
pub(crate) struct RouteWritten {
    pub(crate) name: Option<Located<String>>,
    pub(crate) requests: Requests,
    pub(crate) claim: Option<Located<Vec<Pair<String, ValueRule>>>>,
    pub(crate) upstream: Option<Located<String>>,
    pub(crate) split: Option<Located<Vec<Pair<String, u32>>>>,
    pub(crate) sticky: Option<Box<Element<StickyWritten>>>,
    pub(crate) redirect: Option<Box<Element<RedirectWritten>>>,
    pub(crate) respond: Option<Box<Element<RespondWritten>>>,
    pub(crate) files: Option<Box<Element<FilesWritten>>>,
    pub(crate) allow: Vec<IpNet>,
    pub(crate) deny: Vec<IpNet>,
    pub(crate) auth: Option<Box<Element<AuthWritten>>>,
    pub(crate) jwt: Option<Box<Element<JwtWritten>>>,
    pub(crate) web_bot_auth: Option<Box<Element<BotsWritten>>>,
    pub(crate) forward_auth: Option<Box<Element<ForwardAuthWritten>>>,
    pub(crate) require: Option<Located<Require>>,
    pub(crate) rate_limit: Vec<Element<RateLimitWritten>>,
    pub(crate) cors: Option<Box<Element<CorsWritten>>>,
    pub(crate) mirror: Option<Box<Element<MirrorWritten>>>,
    pub(crate) request_buffering: Option<Located<Option<RequestBuffering>>>,
    pub(crate) rewrite: Option<Box<Element<RewriteWritten>>>,
    pub(crate) request_headers: Option<Box<Element<EditsWritten>>>,
    pub(crate) response_headers: Option<Box<Element<EditsWritten>>>,
    pub(crate) location: Option<bool>,
    pub(crate) cookies: Option<Box<Element<CookiesWritten>>>,
    pub(crate) options: RouteOptions,
    pub(crate) retry: Option<Box<Element<Retry>>>,
    pub(crate) timeouts: Option<Box<Element<RouteTimeouts>>>,
    pub(crate) limits: Option<Box<Element<RouteLimits>>>,
    pub(crate) rate: Vec<Bandwidth>,
    pub(crate) upload_rate: Vec<Bandwidth>,
    pub(crate) weight: Option<NonZeroU32>,
    pub(crate) delay: Option<Delay>,
    pub(crate) response_delay: Option<Located<Delay>>,
    pub(crate) cache: Option<Box<Element<RouteCacheWritten>>>,
}

pub(crate) static ROUTE: Table<RouteWritten> = Table { options: ENTRIES };
/// The options that all routes may have from `[route_defaults]`.
pub(crate) static ROUTE_DEFAULTS: Table<RouteWritten> = Table { options: POLICIES };

const ENTRIES: &[&dyn Declared<RouteWritten>] = {
    const PARTS: &[&[&dyn Declared<RouteWritten>]] = &[OWN, POLICIES];
    const ALL: [&dyn Declared<RouteWritten>; count(PARTS)] = joined(PARTS);
    &ALL
};

/// The options that say which requests a route is for, and what it answers with.
const OWN: &[&dyn Declared<RouteWritten>] = &[
    &key(
        "name",
        Maybe(At(Name { expected: "a name for the route" })),
        |route: &mut RouteWritten| &mut route.name,
        "Name in logs and metrics. Default: its host and path.",
    ),
    &Within { place: requests, option: requests::LISTENER },
    &Within { place: requests, option: requests::HOST },
    &Within { place: requests, option: requests::PATH },
    &Within { place: requests, option: requests::METHODS },
    &Within { place: requests, option: requests::HEADERS },
    &Within { place: requests, option: requests::COOKIE },
    &Within { place: requests, option: requests::QUERY },
    &key(
        "claim",
        Maybe(At(Pairs {
            expected: "a table such as { tenant = \"acme\", \"realm_access.roles\" = \"admin\" }",
            name: parameter_name,
            print_name: String::clone,
            kind: ValueRuleKind,
        })),
        |route: &mut RouteWritten| &mut route.claim,
        "Claims of the token that must match, all of them, written like `headers`; of a list one has to. The route's \
         `jwt` then verifies the token: a forged one is refused there.",
    ),
    &Within { place: requests, option: requests::CLIENTS },
    &key(
        "upstream",
        Maybe(At(Name { expected: "the name of an upstream: NAME of [upstream.NAME]" })),
        |route: &mut RouteWritten| &mut route.upstream,
        "The upstream that serves these requests. Exactly one of `upstream`, `split`, `redirect`, \
         `respond` and `files` is required.",
    ),
    &key(
        "split",
        Maybe(At(SPLIT)),
        |route: &mut RouteWritten| &mut route.split,
        "Distributes requests over several upstreams by weight: `{ app = 9, canary = 1 }`.",
    ),
    &key(
        "sticky",
        Maybe(Boxed(STICKY_SPLIT)),
        |route: &mut RouteWritten| &mut route.sticky,
        "Keeps a client on its side of `split`: `{ by = \"cookie\" }` gives it a number in a signed cookie, \
         `{ by = \"client\" }` goes by its address. When weights change, only as many clients move as must.",
    ),
    &key(
        "redirect",
        Maybe(Boxed(REDIRECT)),
        |route: &mut RouteWritten| &mut route.redirect,
        "Redirects clients to another URL.",
    ),
    &key(
        "respond",
        Maybe(Boxed(RESPOND)),
        |route: &mut RouteWritten| &mut route.respond,
        "Sends a fixed response, without a server.",
    ),
    &key(
        "files",
        Maybe(Boxed(FILES)),
        |route: &mut RouteWritten| &mut route.files,
        "Sends files of this machine, without a server: see [files.md](files.md).",
    ),
];

/// All other options.
const POLICIES: &[&dyn Declared<RouteWritten>] = {
    const BEFORE: &[&dyn Declared<RouteWritten>] = &[
        &key(
            "allow",
            List { kind: NETWORK_KIND, may_be_empty: true },
            |route: &mut RouteWritten| &mut route.allow,
            "Networks of clients that are allowed; others get 403. Empty: all are. If `allow` and `deny` \
             both contain a client, the longer prefix decides.",
        ),
        &key(
            "deny",
            List { kind: NETWORK_KIND, may_be_empty: true },
            |route: &mut RouteWritten| &mut route.deny,
            "Networks of clients that get 403.",
        ),
        &key(
            "auth",
            Maybe(Boxed(AUTH)),
            |route: &mut RouteWritten| &mut route.auth,
            "Basic authentication; without valid credentials the response is 401.",
        ),
        &key(
            "jwt",
            Maybe(Boxed(JWT)),
            |route: &mut RouteWritten| &mut route.jwt,
            "Requires a JSON Web Token; without a valid one the response is 401. See [JWT](jwt.md).",
        ),
        &key(
            "web_bot_auth",
            Maybe(Boxed(WEB_BOT_AUTH)),
            |route: &mut RouteWritten| &mut route.web_bot_auth,
            "Requires the signature of a bot (Web Bot Auth, RFC 9421); without a valid one the response is 403. See \
             [bots](bots.md).",
        ),
        &key(
            "forward_auth",
            Maybe(Boxed(FORWARD_AUTH)),
            |route: &mut RouteWritten| &mut route.forward_auth,
            "Asks another server whether a request is let in: a 2xx answer lets it in, any other is passed \
             on to the client as a whole.",
        ),
        &key(
            "require",
            Maybe(At(Word { words: &[("all", Require::All), ("any", Require::Any)] })),
            |route: &mut RouteWritten| &mut route.require,
            "How many of several ways to prove who one is are needed. Default: all.",
        ),
        &key(
            "rate_limit",
            OneOrMany(RATE_LIMIT),
            |route: &mut RouteWritten| &mut route.rate_limit,
            "Limits the request rate, over all workers; further requests get 429 with Retry-After. Of \
             several limits all must admit a request.",
        ),
        &key(
            "cors",
            Maybe(Boxed(CORS)),
            |route: &mut RouteWritten| &mut route.cors,
            "Lets pages of other origins read responses (CORS). Preflights are answered here, before \
             `rate_limit` and `auth`; the CORS fields of servers are replaced.",
        ),
        &key(
            "mirror",
            Maybe(Boxed(MIRROR)),
            |route: &mut RouteWritten| &mut route.mirror,
            "Also sends a copy of the requests that are let in to another upstream, and throws its \
             responses away. Clients never wait for it.",
        ),
        &key(
            "request_buffering",
            Maybe(At(BufferingKind)),
            |route: &mut RouteWritten| &mut route.request_buffering,
            "Reads the whole request body before a server is chosen, so that a slow client holds no server: \
             `true`, or a table. Longer bodies wait on disk, within the bounds of `[request_buffering]`. Not for \
             calls that answer before the request has ended, such as gRPC streams. See \
             [request buffering](request-buffering.md).",
        ),
        &key(
            "rewrite",
            Maybe(Boxed(REWRITE)),
            |route: &mut RouteWritten| &mut route.rewrite,
            "Changes the path and host that servers see.",
        ),
        &key(
            "request_headers",
            Maybe(Boxed(EDITS)),
            |route: &mut RouteWritten| &mut route.request_headers,
            "Sets, adds and removes request fields.",
        ),
        &key(
            "response_headers",
            Maybe(Boxed(EDITS)),
            |route: &mut RouteWritten| &mut route.response_headers,
            "Sets, adds and removes response fields. `$status` is available here.",
        ),
        &key(
            "location",
            Maybe(Switch),
            |route: &mut RouteWritten| &mut route.location,
            "Maps Location, Content-Location and Refresh of responses back from the server's URLs to the \
             client's. Default: only with `rewrite`.",
        ),
        &key(
            "cookies",
            Maybe(Boxed(COOKIES)),
            |route: &mut RouteWritten| &mut route.cookies,
            "Changes the cookies that servers set. Default: if `rewrite` replaces a prefix, their Path is \
             mapped back.",
        ),
    ];
    const AFTER: &[&dyn Declared<RouteWritten>] = &[
        &key(
            "retry",
            Maybe(Boxed(RETRY_OF_ROUTE)),
            |route: &mut RouteWritten| &mut route.retry,
            "Replaces the retry rules of the upstream; options not set here have their defaults.",
        ),
        &key(
            "timeouts",
            Maybe(Boxed(TIMEOUTS)),
            |route: &mut RouteWritten| &mut route.timeouts,
            "Replaces timeouts of `[timeouts]` for this route.",
        ),
        &key(
            "limits",
            Maybe(Boxed(LIMITS)),
            |route: &mut RouteWritten| &mut route.limits,
            "Replaces limits of `[limits]` for this route.",
        ),
        &key(
            "rate",
            OneOrMany(BANDWIDTH),
            |route: &mut RouteWritten| &mut route.rate,
            "Limits the rate of response bodies: all of the route together, over all workers, shared \
             fairly. Header sections do not count. `per client`, `per client/24` (network), \
             `per connection` or `per request` give each one its own limit. `burst 64KB` makes \
             a token bucket: that much unused rate is saved and may be sent at once. Without \
             it nothing is saved. Several limits apply together.",
        ),
        &key(
            "upload_rate",
            OneOrMany(BANDWIDTH),
            |route: &mut RouteWritten| &mut route.upload_rate,
            "Limits the rate of request bodies, like `rate`.",
        ),
        &key(
            "weight",
            Maybe(NonZero(Count { range: 1..=1000, unit: Unit::Things })),
            |route: &mut RouteWritten| &mut route.weight,
            "Share of a rate limit that several routes use together, relative to the other routes. \
             Default: 1.",
        ),
        &key(
            "delay",
            Unless { word: "off", kind: DELAY },
            |route: &mut RouteWritten| &mut route.delay,
            "Holds each request back for this time. `\"2s±100ms\"`: uniform distribution; `\"2s±100ms \
             normal\"`: normal, with that standard deviation; `\"2s±100ms pareto\"`: only \
             longer, by that much on average; `\"50ms trace FILE\"`: adds the values of a \
             file, one per line, in turn.",
        ),
        &key(
            "response_delay",
            Unless { word: "off", kind: At(DELAY) },
            |route: &mut RouteWritten| &mut route.response_delay,
            "Holds each response of a server back for this time. Not for routes with `cache`.",
        ),
        &key(
            "cache",
            Maybe(Boxed(ROUTE_CACHE)),
            |route: &mut RouteWritten| &mut route.cache,
            "Stores responses in the cache of `[cache]` as RFC 9111 allows; `{}` has all defaults. \
             Default: nothing is stored. Each upstream has its own cache; so does any route \
             that matches on more than host and path.",
        ),
    ];
    const PARTS: &[&[&dyn Declared<RouteWritten>]] = &[BEFORE, USED_AS_WRITTEN, AFTER];
    const ALL: [&dyn Declared<RouteWritten>; count(PARTS)] = joined(PARTS);
    &ALL
};

options! {
    /// Options of a route whose value needs no conversion. To add one without relations to others, add one entry here;
    /// the proxy reads it from the `options` of `Policies`.
    pub struct RouteOptions in RouteWritten.options as USED_AS_WRITTEN {
        access_log: Option<RouteLog> = RouteLogKind,
            "Whether the requests of the route are in the access log of `[log]`. `\"1%\"` logs that share of them, with \
             the weight of each, and all that fail or are answered with 5xx. `false` leaves all of them out, also \
             those that fail; metrics count them. Default: true.";
        via: Via = VIA,
            "Name of this proxy in Via, in requests and responses; `\"off\"` adds no Via. (nginx does not \
             compress responses to requests with a Via, unless its `gzip_proxied` allows it.) \
             Via fields of others are forwarded; `request_headers` and `response_headers` can \
             remove them.";
        proxy_status: Option<String> = Maybe(PROXY_NAME),
            "Name of this proxy in `Proxy-Status` (RFC 9209), which tells clients what failed, and whether a response is \
             a server's. Default: no such field of this proxy; those of servers are passed on.";
        client_cert: Option<ClientCertFields> = Maybe(Word {
                words: &[
                    ("certificate", ClientCertFields::Certificate),
                    ("chain", ClientCertFields::Chain),
                ],
            }),
            "Tells servers the client's certificate in `Client-Cert` (RFC 9440), with `\"chain\"` also the \
             certificates behind it in `Client-Cert-Chain`. Clients cannot send these fields themselves.";
        maintenance: Option<Maintenance> = MaintenanceKind,
            "Answers with 503 and Retry-After instead of asking a server or the cache. `true` has all \
             defaults. `vanward maintenance` switches it while the proxy runs.";
        error_pages: Pages = Made { kind: ERROR_PAGES, make: pages, written: written_pages },
            "Error pages of the route; they take precedence over those of the top level.";
        replace_errors: bool = Switch,
            "Also replaces the bodies of errors from servers, with these pages and those of the top level. \
             Other response fields stay, except those about the content.";
        compress: Option<Arc<Compress>> = CompressKind,
            "Compresses responses for clients that accept it, by Accept-Encoding; `true` has all defaults. \
             Each piece of a stream leaves at once. With `cache`, a stored response is compressed once for \
             each coding. Responses that servers have compressed are passed on, and decompressed for clients \
             that do not accept their coding. Default: nothing is compressed.";
        grpc_web: bool = Switch,
            "Translates calls of gRPC-Web, which browsers can send over HTTP/1.1 and HTTP/2, to gRPC, and the \
             responses back. All other requests pass as they are. The upstream needs `protocol = \"h2\"` or `\"h3\"`. With \
             `cors`, scripts may send and read the fields of gRPC-Web. See [gRPC](grpc.md).";
    }
}

fn requests(route: &mut RouteWritten) -> &mut Requests {
    &mut route.requests
}

/// The parsed option `redirect`.
#[derive(Debug, Clone)]
pub(crate) struct RedirectWritten {
    pub(crate) to: Option<Located<String>>,
    pub(crate) status: RedirectStatus,
    pub(crate) pattern: Option<Located<Pattern>>,
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
            &required(
                "to",
                Maybe(At(Template { expected: "a URL such as https://www.example.com$path, or a path" })),
                |redirect: &mut RedirectWritten| &mut redirect.to,
                "Target: a URL or a path, with variables. `$1` is the first group of the route's `path`, \
                 if that is a regular expression. The client's query is appended unless \
                 the target has one; a `?` at its end leaves the query out: `\"/new?\"`.",
            ),
            &key(
                "status",
                RedirectStatusKind,
                |redirect: &mut RedirectWritten| &mut redirect.status,
                "301 and 308 are permanent, 302 and 307 temporary; 307 and 308 keep the method, 303 asks with GET.",
            ),
            &key(
                "pattern",
                Maybe(At(PATTERN)),
                |redirect: &mut RedirectWritten| &mut redirect.pattern,
                "A regular expression whose groups `to` has, instead of the route's `path`. If it does not match the \
                 path, they are empty.",
            ),
        ],
    },
};

/// The parsed option `respond`.
#[derive(Debug, Clone, Default)]
pub(crate) struct RespondWritten {
    pub(crate) status: Option<Located<u16>>,
    pub(crate) body: Option<Located<String>>,
    pub(crate) file: Option<Located<Page>>,
    pub(crate) content_type: Option<Located<String>>,
}

const RESPOND: Inline<RespondWritten> = Inline {
    title: "respond",
    example: "{ status = 200, body = \"ok\" }",
    table: &Table {
        options: &[
            &required(
                "status",
                Maybe(At(Count { range: 200..=599, unit: Unit::Things })),
                |respond: &mut RespondWritten| &mut respond.status,
                "Status of the response.",
            ),
            &key(
                "body",
                Maybe(At(Name { expected: "text" })),
                |respond: &mut RespondWritten| &mut respond.body,
                "Body of the response.",
            ),
            &key(
                "file",
                Maybe(At(PAGE)),
                |respond: &mut RespondWritten| &mut respond.file,
                "File with the body; read at the start and at each reload.",
            ),
            &key(
                "content_type",
                Maybe(At(Name { expected: "a media type such as text/plain" })),
                |respond: &mut RespondWritten| &mut respond.content_type,
                "Content-Type. Default: by the extension of `file`, or text/plain.",
            ),
        ],
    },
};

/// The parsed option `auth`.
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
            &required(
                "users",
                Maybe(USERS),
                |auth: &mut AuthWritten| &mut auth.users,
                "File of `NAME:HASH` lines as `htpasswd -B` writes them: bcrypt, SHA-256 and SHA-512 \
                 crypt, and `$apr1$`. Read at the start and at each reload.",
            ),
            &key(
                "realm",
                REALM,
                |auth: &mut AuthWritten| &mut auth.realm,
                "Realm: the text that clients show when they ask for the password.",
            ),
        ],
    },
};

/// The parsed option `rewrite`.
#[derive(Debug, Clone, Default)]
pub(crate) struct RewriteWritten {
    pub(crate) path: Option<Located<String>>,
    pub(crate) pattern: Option<Located<Pattern>>,
    pub(crate) host: Option<Located<String>>,
}

const REWRITE: Inline<RewriteWritten> = Inline {
    title: "rewrite",
    example: "{ path = \"/v1\" }",
    table: &Table {
        options: &[
            &key(
                "path",
                Maybe(At(Template { expected: "a path such as /v1, or with variables /users/$1" })),
                |rewrite: &mut RewriteWritten| &mut rewrite.path,
                "Replaces what the route's `path` matches: a prefix, keeping the rest; or the whole path \
                 if `path` is exact or a regular expression, whose groups are `$1`, `$2` \
                 and `$capture.NAME`.",
            ),
            &key(
                "pattern",
                Maybe(At(PATTERN)),
                |rewrite: &mut RewriteWritten| &mut rewrite.pattern,
                "A regular expression to match the path with, instead of the route's `path`. Paths that it \
                 does not match stay as they are.",
            ),
            &key(
                "host",
                Maybe(At(Template { expected: "a host such as $host or tenant.internal:8080" })),
                |rewrite: &mut RewriteWritten| &mut rewrite.host,
                "Host field that servers get, with variables, instead of the upstream's `host`.",
            ),
        ],
    },
};

/// The parsed options `request_headers` and `response_headers`.
#[derive(Debug, Clone, Default)]
pub(crate) struct EditsWritten {
    pub(crate) uses: Vec<Located<String>>,
    pub(crate) default: Vec<Pair<FieldName, Located<String>>>,
    pub(crate) set: Vec<Pair<FieldName, Located<String>>>,
    pub(crate) add: Vec<Pair<FieldName, Located<String>>>,
    pub(crate) remove: Vec<Located<String>>,
}

/// Upstreams with their weights.
pub(crate) const SPLIT: Pairs<String, Count> = Pairs {
    expected: "weights of upstreams such as { app = 9, canary = 1 }",
    name: parameter_name,
    print_name: String::clone,
    kind: Count { range: 0..=1_000_000, unit: Unit::Things },
};

const FIELDS: Pairs<FieldName, At<Template>> = Pairs {
    expected: "names with values such as { X-Tenant = \"$host\" }",
    name: FieldName::read,
    print_name: FieldName::print,
    kind: At(Template { expected: "a value, with variables such as $client_address" }),
};

const EDITS: Inline<EditsWritten> = Inline {
    title: "these headers",
    example: "{ set = { X-Tenant = \"$host\" }, remove = [\"Server\"] }",
    table: &Table {
        options: &[
            &key(
                "use",
                OneOrMany(At(Name { expected: "the name of a set: NAME of [headers.NAME], or security" })),
                |edits: &mut EditsWritten| &mut edits.uses,
                "Sets of `[headers.NAME]`, in order; `\"security\"` is built in, for responses. What is written \
                 here replaces what they say of the same field.",
            ),
            SET,
            ADD,
            DEFAULT,
            REMOVE,
        ],
    },
};

/// The table `[headers.NAME]`.
pub(crate) static HEADER_SET: Table<EditsWritten> = Table { options: &[SET, ADD, DEFAULT, REMOVE] };

const SET: &dyn Declared<EditsWritten> = &key(
    "set",
    FIELDS,
    |edits: &mut EditsWritten| &mut edits.set,
    "Fields that get this value and no other. If the value is empty, the field is removed.",
);

const ADD: &dyn Declared<EditsWritten> = &key(
    "add",
    FIELDS,
    |edits: &mut EditsWritten| &mut edits.add,
    "Fields that are added to those that exist.",
);

const DEFAULT: &dyn Declared<EditsWritten> = &key(
    "default",
    FIELDS,
    |edits: &mut EditsWritten| &mut edits.default,
    "Fields that get this value if the message has none.",
);

const REMOVE: &dyn Declared<EditsWritten> = &key(
    "remove",
    OneOrMany(At(Name { expected: FieldName::EXPECTED })),
    |edits: &mut EditsWritten| &mut edits.remove,
    "Fields that are removed, from trailers too.",
);

/// The parsed option `cookies`.
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
            &key(
                "names",
                OneOrMany(Name { expected: "the name of a cookie" }),
                |cookies: &mut CookiesWritten| &mut cookies.names,
                "Only these cookies. Default: all.",
            ),
            &key(
                "domain",
                DomainKind,
                |cookies: &mut CookiesWritten| &mut cookies.domain,
                "`\"remove\"` removes Domain, so that the cookie is only for the requested host. A table \
                 replaces domains: `{ \"app.internal\" = \"www.example.com\" }`.",
            ),
            &key(
                "path",
                Switch,
                |cookies: &mut CookiesWritten| &mut cookies.path,
                "Maps Path back where `rewrite` replaces a prefix.",
            ),
            &key(
                "secure",
                Maybe(Switch),
                |cookies: &mut CookiesWritten| &mut cookies.secure,
                "Adds or removes Secure.",
            ),
            &key(
                "http_only",
                Maybe(Switch),
                |cookies: &mut CookiesWritten| &mut cookies.http_only,
                "Adds or removes HttpOnly.",
            ),
            &key(
                "same_site",
                Maybe(Word {
                    words: &[("strict", SameSite::Strict), ("lax", SameSite::Lax), ("none", SameSite::None)],
                }),
                |cookies: &mut CookiesWritten| &mut cookies.same_site,
                "Sets SameSite. `\"none\"` needs `secure = true`.",
            ),
        ],
    },
};

/// The kind of value for error pages by status, of a route and of all routes.
pub(crate) const ERROR_PAGES: Pairs<PageFor, FileKind<Page>> = Pairs {
    expected: "files by status such as { 404 = \"404.html\", 5xx = \"error.html\" }",
    name: |text| {
        let fault = || ValueFault::Unknown {
            written: text.to_owned(),
            why: "is no status of an error",
            nearest: None,
        };
        PageFor::of(text)
            .ok_or_else(|| ValueError { fault: fault(), expected: "404, 4xx, 5xx, or * for all errors" })
    },
    print_name: ToString::to_string,
    kind: PAGE,
};

/// Converts parsed error pages.
pub(crate) fn pages(written: Vec<Pair<PageFor, Page>>) -> Pages {
    ErrorPages::new(written.into_iter().map(|page| (page.name, page.value)))
}

/// Converts error pages back to parsed options, for printing.
pub(crate) fn written_pages(pages: &Pages) -> Vec<Pair<PageFor, Page>> {
    pages.pages().map(|(scope, page)| pair(scope, page.clone())).collect()
}
