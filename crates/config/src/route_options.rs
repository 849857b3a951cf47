//! The options of routes, declared once. What they mean together is in `route_resolve`.

use std::num::NonZeroU32;
use std::time::Duration;

use ::route::{DomainRewrite, PageFor, Pattern, RateKeyPart, RedirectStatus, SameSite};
use ipnet::IpNet;
use shape::Delay;

use crate::bandwidth::BANDWIDTH;
use crate::cache_options::{ROUTE_CACHE, RouteCacheWritten};
use crate::delay::DELAY;
use crate::fault::{Fault, ValueError};
use crate::keys::RATE_KEY;
use crate::kind::{At, List, Located, Maybe, Name, Switch, Unless, Word};
use crate::matching::{FieldName, PATTERN, parameter_name};
use crate::meaning::{Bandwidth, Page, Retry, RouteLimits, RouteTimeouts, Via};
use crate::named_file::{FileKind, PAGE, USERS, UsersFile};
use crate::options::{NETWORK_KIND, UP_TO_A_DAY, UP_TO_A_YEAR};
use crate::pairs::{OneOrMany, Pair, Pairs};
use crate::range::{Count, NonZero, Unit, Wait};
use crate::requests::{self, Requests};
use crate::retry_options::RETRY_OF_ROUTE;
use crate::route_kinds::{DomainKind, RATE, REALM, RedirectStatusKind, VIA};
use crate::table::{Element, Inline, Table, Within, key, required};

/// `[[route]]`.
#[derive(Debug, Clone, Default)]
pub(crate) struct RouteWritten {
    pub(crate) name: Option<Located<String>>,
    pub(crate) requests: Requests,
    pub(crate) upstream: Option<Located<String>>,
    pub(crate) split: Option<Located<Vec<Pair<String, u32>>>>,
    pub(crate) redirect: Option<Element<RedirectWritten>>,
    pub(crate) respond: Option<Element<RespondWritten>>,
    pub(crate) allow: Vec<IpNet>,
    pub(crate) deny: Vec<IpNet>,
    pub(crate) auth: Option<Element<AuthWritten>>,
    pub(crate) rate_limit: Vec<Element<RateLimitWritten>>,
    pub(crate) rewrite: Option<Element<RewriteWritten>>,
    pub(crate) request_headers: Option<Element<EditsWritten>>,
    pub(crate) response_headers: Option<Element<EditsWritten>>,
    pub(crate) location: Option<bool>,
    pub(crate) cookies: Option<Element<CookiesWritten>>,
    pub(crate) via: Via,
    pub(crate) error_pages: Vec<Pair<PageFor, Page>>,
    pub(crate) replace_errors: bool,
    pub(crate) retry: Option<Element<Retry>>,
    pub(crate) timeouts: Option<Element<RouteTimeouts>>,
    pub(crate) limits: Option<Element<RouteLimits>>,
    pub(crate) rate: Vec<Bandwidth>,
    pub(crate) upload_rate: Vec<Bandwidth>,
    pub(crate) weight: Option<NonZeroU32>,
    pub(crate) delay: Option<Delay>,
    pub(crate) response_delay: Option<Located<Delay>>,
    pub(crate) cache: Option<Element<RouteCacheWritten>>,
}

pub(crate) static ROUTE: Table<RouteWritten> = Table {
    options: &[
        &key(
            "name",
            Maybe(At(Name { expected: "a name for the route" })),
            |route: &mut RouteWritten| &mut route.name,
            "What it is called in logs and metrics. Left out, its host and path.",
        ),
        &Within { place: requests, option: requests::LISTENER },
        &Within { place: requests, option: requests::HOST },
        &Within { place: requests, option: requests::PATH },
        &Within { place: requests, option: requests::METHODS },
        &Within { place: requests, option: requests::HEADERS },
        &Within { place: requests, option: requests::QUERY },
        &Within { place: requests, option: requests::CLIENTS },
        &key(
            "upstream",
            Maybe(At(Name { expected: "the name of an upstream: NAME of [upstream.NAME]" })),
            |route: &mut RouteWritten| &mut route.upstream,
            "Where these requests go. One of `upstream`, `split`, `redirect` and `respond` is required.",
        ),
        &key(
            "split",
            Maybe(At(Pairs {
                expected: "weights of upstreams such as { app = 9, canary = 1 }",
                name: parameter_name,
                print_name: String::clone,
                kind: Count { range: 0..=1_000_000, unit: Unit::Things },
            })),
            |route: &mut RouteWritten| &mut route.split,
            "Several upstreams with the weight of each: `{ app = 9, canary = 1 }`.",
        ),
        &key(
            "redirect",
            Maybe(REDIRECT),
            |route: &mut RouteWritten| &mut route.redirect,
            "Sends clients to another URL.",
        ),
        &key(
            "respond",
            Maybe(RESPOND),
            |route: &mut RouteWritten| &mut route.respond,
            "Answers always the same, without a server.",
        ),
        &key(
            "allow",
            List { kind: NETWORK_KIND, may_be_empty: true },
            |route: &mut RouteWritten| &mut route.allow,
            "Networks of clients that are let in; others are answered 403. Empty, all are. The longest network that holds \
             a client decides between `allow` and `deny`.",
        ),
        &key(
            "deny",
            List { kind: NETWORK_KIND, may_be_empty: true },
            |route: &mut RouteWritten| &mut route.deny,
            "Networks of clients that are answered 403.",
        ),
        &key(
            "auth",
            Maybe(AUTH),
            |route: &mut RouteWritten| &mut route.auth,
            "Asks for a name and a password (basic authentication); without them 401.",
        ),
        &key(
            "rate_limit",
            OneOrMany(RATE_LIMIT),
            |route: &mut RouteWritten| &mut route.rate_limit,
            "How many requests are taken, over all workers; those beyond are answered 429 with Retry-After. Of several \
             limits all have to admit a request.",
        ),
        &key(
            "rewrite",
            Maybe(REWRITE),
            |route: &mut RouteWritten| &mut route.rewrite,
            "What servers see in the place of the path and the host.",
        ),
        &key(
            "request_headers",
            Maybe(EDITS),
            |route: &mut RouteWritten| &mut route.request_headers,
            "Header fields of requests set, added and removed.",
        ),
        &key(
            "response_headers",
            Maybe(EDITS),
            |route: &mut RouteWritten| &mut route.response_headers,
            "Header fields of responses set, added and removed. `$status` is known as well.",
        ),
        &key(
            "location",
            Maybe(Switch),
            |route: &mut RouteWritten| &mut route.location,
            "Whether Location, Content-Location and Refresh of responses are mapped back from what the server calls its URLs. Left \
             out, where there is a `rewrite`.",
        ),
        &key(
            "cookies",
            Maybe(COOKIES),
            |route: &mut RouteWritten| &mut route.cookies,
            "What is changed of cookies that servers set. Left out, their Path is mapped back where `rewrite` exchanges a \
             prefix.",
        ),
        &key(
            "via",
            VIA,
            |route: &mut RouteWritten| &mut route.via,
            "What Via says of this proxy, in requests and responses: another name, or `\"off\"` for no Via of its own. nginx \
             does not compress what it is asked for through a Via (its `gzip_proxied`). What others say in Via is passed on; \
             `request_headers` and `response_headers` can remove it all.",
        ),
        &key(
            "error_pages",
            ERROR_PAGES,
            |route: &mut RouteWritten| &mut route.error_pages,
            "Pages before those of the top level.",
        ),
        &key(
            "replace_errors",
            Switch,
            |route: &mut RouteWritten| &mut route.replace_errors,
            "Whether errors that servers answer with get these pages as well, and those of the top level. The server's other              fields stay, but for those about its content.",
        ),
        &key(
            "retry",
            Maybe(RETRY_OF_ROUTE),
            |route: &mut RouteWritten| &mut route.retry,
            "Retries in the place of those of the upstream; what is left out is at its default.",
        ),
        &key(
            "timeouts",
            Maybe(TIMEOUTS),
            |route: &mut RouteWritten| &mut route.timeouts,
            "Waits in the place of those of `[timeouts]`.",
        ),
        &key(
            "limits",
            Maybe(LIMITS),
            |route: &mut RouteWritten| &mut route.limits,
            "Limits on clients in the place of those of `[limits]`.",
        ),
        &key(
            "rate",
            OneOrMany(BANDWIDTH),
            |route: &mut RouteWritten| &mut route.rate,
            "Slows bodies of responses down to this, all of the route together and on all workers: those that have \
             something to send share it evenly. Heads are not counted. `\"1MB/s per client\"` is for each client, \
             `per client/24` for each network, `per connection` and `per request` for each of these. A link saves nothing \
             while nobody sends; with `\"1MB/s burst 64KB\"` that much is saved, and may then be sent at once. Of several \
             limits all hold.",
        ),
        &key(
            "upload_rate",
            OneOrMany(BANDWIDTH),
            |route: &mut RouteWritten| &mut route.upload_rate,
            "The same for bodies of requests.",
        ),
        &key(
            "weight",
            Maybe(NonZero(Count { range: 1..=1000, unit: Unit::Things })),
            |route: &mut RouteWritten| &mut route.weight,
            "How much each message of the route gets of a rate that it shares with those of other routes, relative to \
             them. Left out, 1.",
        ),
        &key(
            "delay",
            Maybe(DELAY),
            |route: &mut RouteWritten| &mut route.delay,
            "Holds requests back for so long before they go on to a server. `\"2s±100ms\"` varies evenly, \
             `\"2s±100ms normal\"` with that standard deviation, `\"2s±100ms pareto\"` upwards by so much on average; \
             `\"50ms trace FILE\"` adds what is on the lines of a file, one after the other.",
        ),
        &key(
            "response_delay",
            Maybe(At(DELAY)),
            |route: &mut RouteWritten| &mut route.response_delay,
            "Holds responses of servers back before they go on to the client. Not for routes with `cache`.",
        ),
        &key(
            "cache",
            Maybe(ROUTE_CACHE),
            |route: &mut RouteWritten| &mut route.cache,
            "Answers from the store of `[cache]` where RFC 9111 lets it; `{}` is as responses say. Left out, nothing is \
             stored. Upstreams do not share what is stored, nor does a route to which more than host and path leads with \
             others.",
        ),
    ],
};

fn requests(route: &mut RouteWritten) -> &mut Requests {
    &mut route.requests
}

/// `redirect`.
#[derive(Debug, Clone)]
pub(crate) struct RedirectWritten {
    pub(crate) to: Option<Located<String>>,
    pub(crate) status: RedirectStatus,
}

impl Default for RedirectWritten {
    fn default() -> Self {
        Self { to: None, status: RedirectStatus::PermanentRedirect }
    }
}

const REDIRECT: Inline<RedirectWritten> = Inline {
    title: "redirect",
    example: "{ to = \"https://$host$path_and_query\" }",
    table: &Table {
        options: &[
            &required(
                "to",
                Maybe(At(Name { expected: "a URL such as https://www.example.com$path, or a path" })),
                |redirect: &mut RedirectWritten| &mut redirect.to,
                "Where to: a URL or a path, with variables. `$1` is the first group of the route's `path`, where that is \
                 a regular expression. The client's query is appended unless this has one.",
            ),
            &key(
                "status",
                RedirectStatusKind,
                |redirect: &mut RedirectWritten| &mut redirect.status,
                "301 or 308 for good, 302 or 307 this time; 307 and 308 keep the method.",
            ),
        ],
    },
};

/// `respond`.
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
                "The status of the answer.",
            ),
            &key(
                "body",
                Maybe(At(Name { expected: "text" })),
                |respond: &mut RespondWritten| &mut respond.body,
                "Its body.",
            ),
            &key(
                "file",
                Maybe(At(PAGE)),
                |respond: &mut RespondWritten| &mut respond.file,
                "Its body, from a file that is read at the start and at each reload.",
            ),
            &key(
                "content_type",
                Maybe(At(Name { expected: "a media type such as text/plain" })),
                |respond: &mut RespondWritten| &mut respond.content_type,
                "Its Content-Type. Left out, by the ending of `file`, or text/plain.",
            ),
        ],
    },
};

/// `auth`.
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
                "A file with `NAME:HASH` lines as `htpasswd -B` writes them: bcrypt, SHA-256 and SHA-512 crypt, and \
                 `$apr1$`. It is read at the start and at each reload.",
            ),
            &key(
                "realm",
                REALM,
                |auth: &mut AuthWritten| &mut auth.realm,
                "What clients show when they ask.",
            ),
        ],
    },
};

/// `rate_limit`.
#[derive(Debug, Clone)]
pub(crate) struct RateLimitWritten {
    pub(crate) rate: Option<Located<(NonZeroU32, Duration)>>,
    pub(crate) burst: Option<Located<NonZeroU32>>,
    pub(crate) key: Vec<Option<RateKeyPart>>,
    pub(crate) keys_max: usize,
}

impl Default for RateLimitWritten {
    fn default() -> Self {
        let client = RateKeyPart::ClientNetwork { bits_v4: 32, bits_v6: 64 };
        Self { rate: None, burst: None, key: vec![Some(client)], keys_max: 65_536 }
    }
}

const RATE_LIMIT: Inline<RateLimitWritten> = Inline {
    title: "rate_limit",
    example: "{ rate = \"100/s\", key = \"client\" }",
    table: &Table {
        options: &[
            &required(
                "rate",
                Maybe(At(RATE)),
                |limit: &mut RateLimitWritten| &mut limit.rate,
                "How many requests in the long run: `\"100/s\"`, `\"10/m\"`, `\"1000/h\"`, `\"5/10s\"`.",
            ),
            &key(
                "burst",
                Maybe(At(NonZero(Count { range: 1..=u32::MAX as u64, unit: Unit::Things }))),
                |limit: &mut RateLimitWritten| &mut limit.burst,
                "How many at once. Left out, the number of `rate`.",
            ),
            &key(
                "key",
                OneOrMany(RATE_KEY),
                |limit: &mut RateLimitWritten| &mut limit.key,
                "What requests are counted by. `client/24` is by network; an IPv6 address counts by its first 64 bits, \
                 unless it is written `client/32/128`. `route` is all requests of the route together.",
            ),
            &key(
                "keys_max",
                Count { range: 1..=16_777_216, unit: Unit::Things },
                |limit: &mut RateLimitWritten| &mut limit.keys_max,
                "How many keys are remembered, in memory that is taken at once.",
            ),
        ],
    },
};

/// `rewrite`.
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
                Maybe(At(Name { expected: "a path such as /v1, or with variables /users/$1" })),
                |rewrite: &mut RewriteWritten| &mut rewrite.path,
                "What comes in the place of the route's `path`: of a prefix, with what is below it staying; of the whole \
                 path where that is exact or a regular expression, whose groups are `$1`, `$2` and `$capture.NAME`.",
            ),
            &key(
                "pattern",
                Maybe(At(PATTERN)),
                |rewrite: &mut RewriteWritten| &mut rewrite.pattern,
                "A regular expression of its own in the place of the route's `path`; other paths stay as they are.",
            ),
            &key(
                "host",
                Maybe(At(Name { expected: "a host such as $host or tenant.internal:8080" })),
                |rewrite: &mut RewriteWritten| &mut rewrite.host,
                "The Host header that servers see, with variables, in the place of the upstream's `host`.",
            ),
        ],
    },
};

/// `request_headers` and `response_headers`.
#[derive(Debug, Clone, Default)]
pub(crate) struct EditsWritten {
    pub(crate) set: Vec<Pair<FieldName, Located<String>>>,
    pub(crate) add: Vec<Pair<FieldName, Located<String>>>,
    pub(crate) remove: Vec<Located<String>>,
}

const FIELDS: Pairs<FieldName, At<Name>> = Pairs {
    expected: "names with values such as { X-Tenant = \"$host\" }",
    name: FieldName::read,
    print_name: FieldName::print,
    kind: At(Name { expected: "a value, with variables such as $client_address" }),
};

const EDITS: Inline<EditsWritten> = Inline {
    title: "these headers",
    example: "{ set = { X-Tenant = \"$host\" }, remove = [\"Server\"] }",
    table: &Table {
        options: &[
            &key(
                "set",
                FIELDS,
                |edits: &mut EditsWritten| &mut edits.set,
                "Fields that have this value and no other. One whose value comes out empty is not there.",
            ),
            &key(
                "add",
                FIELDS,
                |edits: &mut EditsWritten| &mut edits.add,
                "Fields that are there once more.",
            ),
            &key(
                "remove",
                OneOrMany(At(Name { expected: FieldName::EXPECTED })),
                |edits: &mut EditsWritten| &mut edits.remove,
                "Names of fields that are taken out, of trailers as well.",
            ),
        ],
    },
};

/// `cookies`.
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
                "Only these cookies. Left out, all.",
            ),
            &key(
                "domain",
                DomainKind,
                |cookies: &mut CookiesWritten| &mut cookies.domain,
                "`\"remove\"` leaves Domain out, so that the cookie is for the host that was asked; a table names what \
                 becomes of each domain: `{ \"app.internal\" = \"www.example.com\" }`.",
            ),
            &key(
                "path",
                Switch,
                |cookies: &mut CookiesWritten| &mut cookies.path,
                "Whether Path is mapped back where `rewrite` exchanges a prefix.",
            ),
            &key(
                "secure",
                Maybe(Switch),
                |cookies: &mut CookiesWritten| &mut cookies.secure,
                "Adds or takes out Secure.",
            ),
            &key(
                "http_only",
                Maybe(Switch),
                |cookies: &mut CookiesWritten| &mut cookies.http_only,
                "Adds or takes out HttpOnly.",
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

const TIMEOUTS: Inline<RouteTimeouts> = Inline {
    title: "timeouts",
    example: "{ upstream_first_byte = \"5m\" }",
    table: &Table {
        options: &[
            &key(
                "client_body",
                Maybe(UP_TO_A_DAY),
                |timeouts: &mut RouteTimeouts| &mut timeouts.client_body,
                "Without a byte of request body from the client, until the response begins; then 408. For streams whose \
                 clients may be quiet for long, such as those of gRPC.",
            ),
            &key(
                "client_write",
                Maybe(UP_TO_A_DAY),
                |timeouts: &mut RouteTimeouts| &mut timeouts.client_write,
                "Without the client taking a byte of the response; then the connection is reset.",
            ),
            &key(
                "upstream_first_byte",
                Maybe(UP_TO_A_DAY),
                |timeouts: &mut RouteTimeouts| &mut timeouts.upstream_first_byte,
                "From the end of the request to the head of the response; then 504.",
            ),
            &key(
                "upstream_body",
                Maybe(UP_TO_A_DAY),
                |timeouts: &mut RouteTimeouts| &mut timeouts.upstream_body,
                "Without a byte of response body from the server; then the response is cut.",
            ),
            &key(
                "tunnel_idle",
                Maybe(UP_TO_A_YEAR),
                |timeouts: &mut RouteTimeouts| &mut timeouts.tunnel_idle,
                "Without a byte in either direction of an upgraded connection (WebSocket); then it is closed.",
            ),
        ],
    },
};

const LIMITS: Inline<RouteLimits> = Inline {
    title: "limits",
    example: "{ body_bytes = \"1GB\" }",
    table: &Table {
        options: &[
            &key(
                "body_bytes",
                Maybe(Unless { word: "none", kind: Count { range: 0..=u64::MAX, unit: Unit::Bytes } }),
                |limits: &mut RouteLimits| &mut limits.body_bytes,
                "A request's body; more is 413. `\"none\"` is no limit.",
            ),
            &key(
                "minimum_rate",
                Maybe(Count { range: 0..=1_000_000_000, unit: Unit::BytesPerSecond }),
                |limits: &mut RouteLimits| &mut limits.minimum_rate_bytes_per_second,
                "A client that sends a body or takes a response more slowly than this over `rate_window` is dropped. 0 is \
                 no minimum.",
            ),
            &key(
                "rate_window",
                Maybe(Wait { range: Duration::from_secs(1)..=Duration::from_secs(3600) }),
                |limits: &mut RouteLimits| &mut limits.rate_window,
                "The span over which `minimum_rate` is judged.",
            ),
        ],
    },
};

/// Pages by status, of a route and of all.
pub(crate) const ERROR_PAGES: Pairs<PageFor, FileKind<Page>> = Pairs {
    expected: "files by status such as { 404 = \"404.html\", 5xx = \"error.html\" }",
    name: |text| {
        let fault =
            || Fault::Unknown { written: text.to_owned(), why: "is no status of an error", nearest: None };
        PageFor::of(text)
            .ok_or_else(|| ValueError { fault: fault(), expected: "404, 4xx, 5xx, or * for all errors" })
    },
    print_name: ToString::to_string,
    kind: PAGE,
};
