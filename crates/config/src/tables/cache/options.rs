//! Options of the cache, declared once: of the store, and of routes.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cache::{
    ACCEL_EXPIRES, CachePolicy, Heuristic, Ignore, KeyOptions, KeyQuery, Parameter, SURROGATE_CONTROL,
    StatusTtl, TargetedField,
};
use expression::{ExchangeStage, Expression};
use ipnet::IpNet;

use crate::document::reader::Reader;
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::host::NETWORK_KIND;
use crate::option::kind::{At, List, Located, Maybe, Name, Switch, Text, Word};
use crate::option::later_condition::LaterCondition;
use crate::option::matching::{FieldName, is_token};
use crate::option::pairs::{OneOrMany, Pair, Pairs, pair};
use crate::option::range::{Count, UP_TO_A_YEAR, Unit, Wait};
use crate::option::statuses::{status_range, written_range};
use crate::option::table::{Element, Inline, Table, element, key, required};
use crate::tables::cache::peers::{PEERS, PeersWritten};
use crate::tables::cache::{CacheDisk, CacheRule, CacheStore};

#[derive(Debug, Clone)]
pub(crate) struct CacheWritten {
    pub(crate) memory: Option<u64>,
    pub(crate) object: u64,
    pub(crate) disk: Option<Element<DiskWritten>>,
    pub(crate) purge_from: Vec<IpNet>,
    pub(crate) peers: Option<Element<PeersWritten>>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct DiskWritten {
    path: Option<PathBuf>,
    size: Option<u64>,
}

impl Default for CacheWritten {
    fn default() -> Self {
        Self {
            memory: None,
            object: CacheStore::OBJECT_BYTES_MAX,
            disk: None,
            purge_from: Vec::new(),
            peers: None,
        }
    }
}

pub(crate) static CACHE: Table<CacheWritten> = Table {
    options: &[
        required!(
            "memory",
            Maybe(Count { range: 1 << 20..=1 << 44, unit: Unit::Bytes }),
            CacheWritten.memory,
            "Size of the cache in memory, including its overhead. The least recently used responses are \
             evicted.",
        ),
        key!(
            "object",
            Count { range: 1024..=1 << 40, unit: Unit::Bytes },
            CacheWritten.object,
            "The largest response that is stored, at most an eighth of `memory`. Larger ones are forwarded \
             without being stored.",
        ),
        key!(
            "disk",
            Maybe(DISK),
            CacheWritten.disk,
            "Also keeps responses on disk: more of them, and across restarts. After a disk error the cache \
             runs without the disk until the next start, and then begins empty; the log says \
             so.",
        ),
        key!(
            "purge_from",
            List { kind: NETWORK_KIND, may_be_empty: true },
            CacheWritten.purge_from,
            "Networks whose clients may purge with the PURGE method: the request's URL for both http and \
             https, in which `*` matches any text, or the tags in `Surrogate-Key` or \
             `Cache-Tag`. With `Fastly-Soft-Purge: 1` responses become stale instead. Other \
             clients get 403. Default: PURGE is forwarded like any method.",
        ),
        key!(
            "peers",
            Maybe(PEERS),
            CacheWritten.peers,
            "Other instances that share their stored responses: each owns a part of all keys, and the others \
             ask it before the upstream. See [several instances](fleet.md#one-cache).",
        ),
    ],
};

const DISK: Inline<DiskWritten> = Inline {
    title: "disk",
    example: "{ path = \"/var/cache/vanward\", size = \"10G\" }",
    table: &Table {
        options: &[
            required!(
                "path",
                Maybe(FOLDER),
                DiskWritten.path,
                "A directory for the cache alone; created if missing. Other files in it are left alone.",
            ),
            required!(
                "size",
                Maybe(Count { range: 16 << 20..=1 << 44, unit: Unit::Bytes }),
                DiskWritten.size,
                "Total size of the files; the oldest records are evicted. A response may take up to a \
                 sixteenth of it, at most 64 MiB. Each response also takes about 100 bytes \
                 of memory.",
            ),
        ],
    },
};

const FOLDER_EXPECTED: &str = "the path of a folder, with a slash, such as ./cache or /var/cache/vanward";
pub(crate) const FOLDER: Text<PathBuf> = Text {
    expected: FOLDER_EXPECTED,
    read: |text| {
        let fault = match text {
            "" => ValueFault::Empty,
            path if path.contains('/') && !path.contains('\0') => return Ok(PathBuf::from(path)),
            other => ValueFault::NotAPath { written: other.to_owned(), nearest: None },
        };
        Err(ValueError { fault, expected: FOLDER_EXPECTED })
    },
    print: |path| path.display().to_string(),
};

impl CacheWritten {
    /// The store that the options describe; `None` if any required part is missing.
    pub(crate) fn meaning(&self) -> Option<CacheStore> {
        let disk = match &self.disk {
            Some(Element { value, .. }) => {
                Some(CacheDisk { path: value.path.clone()?, size_bytes: value.size? })
            }
            None => None,
        };
        let peers = match &self.peers {
            Some(peers) => Some(peers.value.meaning()?),
            None => None,
        };
        Some(CacheStore {
            memory_bytes: self.memory?,
            object_bytes_max: self.object,
            disk,
            purge_from: self.purge_from.clone(),
            peers,
        })
    }
}

/// The parsed option `cache` of a route.
#[derive(Debug, Clone)]
pub(crate) struct RouteCacheWritten {
    ttl: Option<Duration>,
    default_ttl: Option<Duration>,
    status_ttl: Vec<Pair<RangeInclusive<u16>, Duration>>,
    heuristic: u32,
    heuristic_max: Duration,
    grace: Option<Duration>,
    stale_while_revalidate: Option<Duration>,
    force: bool,
    ignore: Vec<Ignored>,
    query_keep: Vec<String>,
    query_drop: Vec<Located<String>>,
    sort_query: bool,
    key_headers: Vec<Located<String>>,
    key_cookies: Vec<Located<String>>,
    pub(crate) key_values: Vec<Located<String>>,
    min_uses: u8,
    show_key: bool,
    send_tags: bool,
    targets: Vec<Located<String>>,
    send_targets: Vec<Located<String>>,
    pub(crate) when: Option<Located<Arc<Expression>>>,
    pub(crate) rules: Vec<Element<CacheRuleWritten>>,
}

/// A parsed element of `rules`.
#[derive(Debug, Clone, Default)]
pub(crate) struct CacheRuleWritten {
    pub(crate) when: Option<Located<Arc<Expression>>>,
    pub(crate) ttl: Option<Duration>,
}

/// The most rules of a route: each stored response may evaluate them all.
const RULES_MAX: usize = 64;

const RULE_TTL: Wait = Wait { range: Duration::ZERO..=*UP_TO_A_YEAR.range.end() };

const CACHE_RULE: Inline<CacheRuleWritten> = Inline {
    title: "rules",
    example: "{ when = 'response.status == 404', ttl = \"10s\" }",
    table: &Table {
        options: &[
            required!(
                "when",
                Maybe(LaterCondition(ExchangeStage::Response)),
                CacheRuleWritten.when,
                "Condition on the request and its response. See [conditions](conditions.md).",
            ),
            required!(
                "ttl",
                Maybe(RULE_TTL),
                CacheRuleWritten.ttl,
                "Lifetime of such responses; `\"0s\"` stores none.",
            ),
        ],
    },
};

impl Default for RouteCacheWritten {
    fn default() -> Self {
        written(&CachePolicy::default()).value
    }
}

/// A rule of RFC 9111 that may be ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ignored {
    Requests,
    Responses,
    Vary,
    SetCookie,
}

pub(crate) const ROUTE_CACHE: Inline<RouteCacheWritten> = Inline {
    title: "cache",
    example: "{ default_ttl = \"1m\" }, or {} for what responses say themselves",
    table: &Table {
        options: &[
            key!(
                "when",
                Maybe(LaterCondition(ExchangeStage::Authenticated)),
                RouteCacheWritten.when,
                "Condition under which a request uses the cache: `'!(\"session\" in request.cookies)'`. Any other \
                 request goes to a server, and its response is not stored. Default: all. See \
                 [conditions](conditions.md).",
            ),
            key!(
                "ttl",
                Maybe(UP_TO_A_YEAR),
                RouteCacheWritten.ttl,
                "Overrides the lifetime of every storable response. Default: what its fields say. \
                 Responses such as 302, 401 or 500 are storable only if their fields give \
                 a lifetime or `public`; use `status_ttl` for the others.",
            ),
            key!(
                "default_ttl",
                Maybe(UP_TO_A_YEAR),
                RouteCacheWritten.default_ttl,
                "Lifetime of responses that give none, if the status is 200, 203, 204, 206, 300, 301, 308, \
                 404, 405, 410, 414 or 501, or the response says `public`.",
            ),
            key!(
                "status_ttl",
                Pairs {
                    expected: "a table of statuses and durations, such as { 404 = \"10s\", 5xx = \"0s\" }",
                    name: status_range,
                    print_name: written_range,
                    kind: Wait { range: Duration::ZERO..=*UP_TO_A_YEAR.range.end() },
                },
                RouteCacheWritten.status_ttl,
                "Overrides the lifetime by status, and makes the status storable: `404`, `4xx` or \
                 `500-504`. The first match counts; `\"0s\"` stores none.",
            ),
            key!(
                "rules",
                OneOrMany(CACHE_RULE),
                RouteCacheWritten.rules,
                "Lifetimes by condition, which override `ttl` and `status_ttl`; the first whose condition holds \
                 counts. Like `status_ttl`, they make a response storable that gives no lifetime.",
            ),
            key!(
                "heuristic",
                Count { range: 0..=100, unit: Unit::Percent },
                RouteCacheWritten.heuristic,
                "Lifetime of responses that have only Last-Modified: this percentage of their age when \
                 received.",
            ),
            key!(
                "heuristic_max",
                UP_TO_A_YEAR,
                RouteCacheWritten.heuristic_max,
                "Upper bound of the `heuristic` lifetime.",
            ),
            key!(
                "grace",
                Maybe(UP_TO_A_YEAR),
                RouteCacheWritten.grace,
                "How long a stale response is served while servers are down or respond 502, 503 or 504 \
                 (stale-if-error), unless the response forbids it.",
            ),
            key!(
                "stale_while_revalidate",
                Maybe(UP_TO_A_YEAR),
                RouteCacheWritten.stale_while_revalidate,
                "How long a stale response is served at once while it is revalidated in the background, \
                 unless the response says otherwise.",
            ),
            key!(
                "force",
                Switch,
                RouteCacheWritten.force,
                "Also stores responses with `private`, `no-store` or `no-cache`, and responses to requests \
                 with Authorization. Safe only if every client may see the same.",
            ),
            key!(
                "ignore",
                OneOrMany(Word {
                    words: &[
                        ("request-directives", Ignored::Requests),
                        ("response-directives", Ignored::Responses),
                        ("vary", Ignored::Vary),
                        ("set-cookie", Ignored::SetCookie),
                    ],
                }),
                RouteCacheWritten.ignore,
                "`\"request-directives\"`: ignores Cache-Control and Pragma of clients. \
                 `\"response-directives\"`: ignores Cache-Control, Expires and similar \
                 fields of servers. `\"vary\"`: ignores Vary except for Accept-Encoding, \
                 so that all clients share the first response, unless it varies by a \
                 Cookie or Authorization that its request had. `\"set-cookie\"`: stores \
                 such responses, without the cookie.",
            ),
            key!(
                "query_keep",
                OneOrMany(Name { expected: PARAMETER }),
                RouteCacheWritten.query_keep,
                "Query parameters that are part of the cache key. The others are removed from GET and HEAD \
                 requests to servers. Default: all are part of the key.",
            ),
            key!(
                "query_drop",
                OneOrMany(At(Name { expected: PARAMETER })),
                RouteCacheWritten.query_drop,
                "Query parameters that are not part of the cache key, such as `\"utm_*\"`, or `\"*\"` for \
                 the whole query. They are removed from GET and HEAD requests to servers.",
            ),
            key!(
                "sort_query",
                Switch,
                RouteCacheWritten.sort_query,
                "Sorts the query parameters by name, in the cache key and in requests to servers.",
            ),
            key!(
                "key_headers",
                OneOrMany(At(Name { expected: FieldName::EXPECTED })),
                RouteCacheWritten.key_headers,
                "Request fields that are part of the cache key. Fields that do not reach the server are \
                 not.",
            ),
            key!(
                "key_cookies",
                OneOrMany(At(Name { expected: COOKIE })),
                RouteCacheWritten.key_cookies,
                "Cookies that are part of the cache key, all of the same name.",
            ),
            key!(
                "key_values",
                OneOrMany(At(Name { expected: "the name of a value such as app" })),
                RouteCacheWritten.key_values,
                "Values that are part of the cache key, by their names: `\"app\"` of `values`, `\"map.tenant\"` of a map. \
                 See [values](conditions.md#values).",
            ),
            key!(
                "min_uses",
                Count { range: 1..=100, unit: Unit::Things },
                RouteCacheWritten.min_uses,
                "Stores a response only from this number of requests for it on, so that rare ones do not evict others. \
                 Requests are counted approximately, and old ones count less.",
            ),
            key!(
                "show_key",
                Switch,
                RouteCacheWritten.show_key,
                "Sends clients the cache key, in `key` of `Cache-Status` (RFC 9211).",
            ),
            key!(
                "send_tags",
                Switch,
                RouteCacheWritten.send_tags,
                "Sends `Surrogate-Key` and `Cache-Tag` to clients, for a cache in front of this proxy.",
            ),
            key!(
                "targets",
                List { kind: At(Name { expected: TARGET }), may_be_empty: true },
                RouteCacheWritten.targets,
                "Response fields that are obeyed instead of `Cache-Control` and `Expires`: the first one \
                 that is present and valid. See [targeted fields](caching.md#targeted-fields).",
            ),
            key!(
                "send_targets",
                List { kind: At(Name { expected: TARGET }), may_be_empty: true },
                RouteCacheWritten.send_targets,
                "Which of `targets` clients get, for a cache in front of this proxy. The others are removed.",
            ),
        ],
    },
};

const PARAMETER: &str = "the name of a parameter, or its beginning and *";
const COOKIE: &str = "the name of a cookie";
const TARGET: &str =
    "surrogate-control, x-accel-expires, or a name that ends in -cache-control, such as cdn-cache-control";

/// Converts a route's cache options to a policy; `None` if there is a mistake.
pub(crate) fn policy(written: &RouteCacheWritten, reader: &mut Reader<'_>) -> Option<CachePolicy> {
    let refused_before = reader.refused();
    for (option, names, expected) in [
        ("key_headers", &written.key_headers, FieldName::EXPECTED),
        ("key_cookies", &written.key_cookies, COOKIE),
    ] {
        for Located { value, at } in names.iter().filter(|name| !is_token(&name.value)) {
            let mistake = reader.mistake(at, format!("{option}: {value:?} is no name"));
            reader.add(mistake.expecting(expected));
        }
    }
    if let (false, Some(Located { at, .. })) = (written.query_keep.is_empty(), written.query_drop.first()) {
        let mistake = reader.mistake(at, "cache has query_keep and query_drop");
        reader.add(mistake.expecting("one of them"));
    }
    if let Some(Element { at, .. }) = written.rules.get(RULES_MAX) {
        let mistake = reader.mistake(at, "rules: there are too many");
        reader.add(mistake.expecting(format!("at most {RULES_MAX}")));
    }
    let targets = targets(written, reader);
    let parameters = |names: &[String]| names.iter().map(|name| Parameter::from_written(name)).collect();
    let dropped: Vec<String> = written.query_drop.iter().map(|name| name.value.clone()).collect();
    let query = match (written.query_keep.as_slice(), dropped.as_slice()) {
        ([], []) => KeyQuery::Whole,
        ([], [all]) if all == "*" => KeyQuery::None,
        ([], dropped) => KeyQuery::Drop(parameters(dropped)),
        (kept, _) => KeyQuery::Keep(parameters(kept)),
    };
    let bytes = |text: String| text.into_bytes().into_boxed_slice();
    let policy = CachePolicy {
        ttl_ms: written.ttl.map(milliseconds),
        default_ttl_ms: written.default_ttl.map(milliseconds),
        status_ttl: written.status_ttl.iter().map(status_ttl).collect(),
        heuristic: Heuristic { percent: written.heuristic, longest_ms: milliseconds(written.heuristic_max) },
        grace_ms: written.grace.map_or(0, milliseconds),
        stale_while_revalidate_ms: written.stale_while_revalidate.map_or(0, milliseconds),
        min_uses: written.min_uses,
        shows_key: written.show_key,
        force: written.force,
        ignore: Ignore {
            request_directives: written.ignore.contains(&Ignored::Requests),
            response_directives: written.ignore.contains(&Ignored::Responses),
            vary: written.ignore.contains(&Ignored::Vary),
            // Of a route with `cors`: see `route_resolve`.
            origin: false,
            set_cookie: written.ignore.contains(&Ignored::SetCookie),
        },
        key: KeyOptions {
            query,
            sorts_query: written.sort_query,
            cookies: written.key_cookies.iter().map(|name| bytes(name.value.clone())).collect(),
            headers: written.key_headers.iter().map(|name| bytes(name.value.to_ascii_lowercase())).collect(),
            values: written.key_values.iter().map(|name| name.value.clone().into()).collect(),
            ..KeyOptions::default()
        },
        sends_tags: written.send_tags,
        targets,
        ..CachePolicy::default()
    };
    (reader.refused() == refused_before).then_some(policy)
}

/// The lifetimes by condition, in order.
pub(crate) fn rules(written: &RouteCacheWritten) -> Box<[CacheRule]> {
    let rule = |Element { value: CacheRuleWritten { when, ttl }, .. }: &Element<CacheRuleWritten>| {
        Some(CacheRule { when: Arc::clone(&when.as_ref()?.value), ttl_ms: milliseconds((*ttl)?) })
    };
    written.rules.iter().filter_map(rule).collect()
}

/// The targeted fields, in their order.
fn targets(written: &RouteCacheWritten, reader: &mut Reader<'_>) -> Vec<TargetedField> {
    let mut targets: Vec<TargetedField> = Vec::new();
    for Located { value, at } in &written.targets {
        let name = value.to_ascii_lowercase();
        let has_grammar = matches!(name.as_str(), SURROGATE_CONTROL | ACCEL_EXPIRES);
        let is_known = has_grammar || (name.ends_with("-cache-control") && is_token(&name));
        if !is_known || targets.iter().any(|target| target.name == name) {
            let what = if is_known { "appears twice" } else { "is no field with directives for caches" };
            let mistake = reader.mistake(at, format!("targets: {value:?} {what}"));
            reader.add(mistake.expecting(TARGET));
        }
        targets.push(TargetedField { name: name.into(), is_sent: false });
    }
    for Located { value, at } in &written.send_targets {
        match targets.iter_mut().find(|target| target.name.eq_ignore_ascii_case(value)) {
            Some(target) => target.is_sent = true,
            // The default is at no place in the file.
            None if at.is_empty() => {}
            None => {
                let message = format!("send_targets: {value:?} is not in targets, and is sent anyway");
                let mistake = reader.mistake(at, message);
                reader.add(mistake.expecting("names from targets"));
            }
        }
    }
    targets
}

fn status_ttl(pair: &Pair<RangeInclusive<u16>, Duration>) -> StatusTtl {
    let (first, last) = (*pair.name.start(), *pair.name.end());
    StatusTtl { first, last, ttl_ms: milliseconds(pair.value) }
}

fn milliseconds(duration: Duration) -> u64 {
    // No option takes more than a year.
    duration.as_millis() as u64
}

/// Converts a policy back to parsed options: the source of their defaults.
pub(crate) fn written(policy: &CachePolicy) -> Element<RouteCacheWritten> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let names = |parameters: &[Parameter]| -> Vec<String> {
        let name = |parameter: &Parameter| match parameter {
            Parameter::Named(name) => text(name),
            Parameter::Beginning(beginning) => text(beginning) + "*",
        };
        parameters.iter().map(name).collect()
    };
    let some = |time_ms: u64| (time_ms > 0).then(|| Duration::from_millis(time_ms));
    let place = |value: String| crate::option::kind::located(value);
    let (query_keep, query_drop) = match &policy.key.query {
        KeyQuery::Whole => (Vec::new(), Vec::new()),
        KeyQuery::None => (Vec::new(), vec!["*".to_owned()]),
        KeyQuery::Keep(kept) => (names(kept), Vec::new()),
        KeyQuery::Drop(dropped) => (Vec::new(), names(dropped)),
    };
    let Ignore { request_directives, response_directives, vary, set_cookie, origin: _ } = policy.ignore;
    let ignore = [
        (request_directives, Ignored::Requests),
        (response_directives, Ignored::Responses),
        (vary, Ignored::Vary),
        (set_cookie, Ignored::SetCookie),
    ];
    element(RouteCacheWritten {
        when: None,
        rules: Vec::new(),
        ttl: policy.ttl_ms.map(Duration::from_millis),
        default_ttl: policy.default_ttl_ms.map(Duration::from_millis),
        status_ttl: policy
            .status_ttl
            .iter()
            .map(|row| pair(row.first..=row.last, Duration::from_millis(row.ttl_ms)))
            .collect(),
        heuristic: policy.heuristic.percent,
        heuristic_max: Duration::from_millis(policy.heuristic.longest_ms),
        grace: some(policy.grace_ms),
        stale_while_revalidate: some(policy.stale_while_revalidate_ms),
        force: policy.force,
        ignore: ignore.into_iter().filter(|(is_ignored, _)| *is_ignored).map(|(_, word)| word).collect(),
        query_keep,
        query_drop: query_drop.into_iter().map(place).collect(),
        sort_query: policy.key.sorts_query,
        key_headers: policy.key.headers.iter().map(|name| place(text(name))).collect(),
        key_cookies: policy.key.cookies.iter().map(|name| place(text(name))).collect(),
        key_values: policy.key.values.iter().map(|name| place(name.to_string())).collect(),
        min_uses: policy.min_uses,
        show_key: policy.shows_key,
        send_tags: policy.sends_tags,
        targets: policy.targets.iter().map(|target| place(target.name.to_string())).collect(),
        send_targets: policy
            .targets
            .iter()
            .filter(|target| target.is_sent)
            .map(|target| place(target.name.to_string()))
            .collect(),
    })
}
