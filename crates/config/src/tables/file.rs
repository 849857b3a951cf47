//! All options of the file, declared once: name, kind, default, meaning.
//!
//! To add one, add its field and its line here, and convert it in `resolve`.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ::route::PageFor;
use ipnet::IpNet;
use toml::de::DeValue;

use crate::document::merge::Merging;
use crate::document::reader::{Reader, Span};
use crate::document::value_error::ValueError;
use crate::option::host::{LISTEN_ADDRESS, NETWORK_KIND, TLS_NAME, listen_address, tls_name};
use crate::option::kind::{At, List, Located, Maybe, Name, Switch, Text, Unless};
use crate::option::named_file::Page as RoutePage;
use crate::option::pairs::{OneOrMany, Pair};
use crate::option::range::{Count, Unit, Wait};
use crate::option::section::{
    Below, named, one_or_sections, placed, read_many, refuse, section, sections, switched,
};
use crate::option::server::socket_path;
use crate::option::table::{Declared, Element, Placed, Row, Table, Takes, Written, key, renamed};
use crate::tables::acme::options::{ACME, AcmeWritten};
use crate::tables::cache::options::{CACHE, CacheWritten};
use crate::tables::consul::{CONSUL, ConsulWritten};
use crate::tables::dashboard::{DashboardTokens, TOKENS};
use crate::tables::fault::options::{FAULT, FAULTS, FaultWritten, FaultsWritten};
use crate::tables::headers::{EditsWritten, HEADER_SET};
use crate::tables::limits::{LIMITS, Limits, SHED, Shedding};
use crate::tables::listen::{LISTEN, Listen, listener_names};
use crate::tables::log::{LOG, Log};
use crate::tables::map::{self, MAP, Map};
use crate::tables::messages::{MESSAGES, Messages};
use crate::tables::profile::{OwnProfile, PROFILE};
use crate::tables::redis::{REDIS, RedisWritten, SECRET, SharedSecret};
use crate::tables::request_buffering::{BUFFERS, RequestBuffers};
use crate::tables::request_id::{REQUEST_ID, RequestIds};
use crate::tables::route::defaults::DefaultsWritten;
use crate::tables::route::error_page::ERROR_PAGES;
use crate::tables::route::options::{ROUTE, ROUTE_DEFAULTS, RouteWritten};
use crate::tables::settings::WAKEUP_COALESCING;
use crate::tables::timeouts::{TIMEOUTS, Timeouts};
use crate::tables::tracing::{TRACING, TracingWritten};
use crate::tables::upstream::options::{UPSTREAM, UpstreamWritten};
use crate::tables::values::{ValuesKind, ValuesWritten, replace_by_listeners};

/// A parsed file: each value is valid, but their relations are not checked yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct File {
    pub(crate) include: Vec<String>,
    pub(crate) workers: Option<usize>,
    pub(crate) wakeup_coalescing: WakeupCoalescing,
    pub(crate) admin: Option<Located<PathBuf>>,
    pub(crate) metrics: Option<Located<SocketAddr>>,
    pub(crate) dashboard: Option<Located<SocketAddr>>,
    pub(crate) dashboard_write: Option<Located<bool>>,
    pub(crate) dashboard_token_file: Option<Located<DashboardTokens>>,
    pub(crate) dashboard_hosts: Option<Located<Vec<String>>>,
    pub(crate) quic_key_file: Option<Located<SharedSecret>>,
    pub(crate) error_pages: Vec<Pair<PageFor, RoutePage>>,
    pub(crate) trusted_proxies: Vec<IpNet>,
    pub(crate) values: ValuesWritten,
    pub(crate) listen: Vec<Element<Listen>>,
    pub(crate) route_defaults: DefaultsWritten,
    pub(crate) routes: Vec<Element<RouteWritten>>,
    pub(crate) upstreams: Vec<(Span, String, UpstreamWritten)>,
    pub(crate) headers: Vec<(Span, String, EditsWritten)>,
    pub(crate) profiles: Vec<(Span, String, OwnProfile)>,
    pub(crate) maps: Vec<Map>,
    pub(crate) acme: AcmeWritten,
    pub(crate) faults: FaultsWritten,
    pub(crate) fault: Vec<Element<FaultWritten>>,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: Limits,
    pub(crate) shed: Shedding,
    pub(crate) cache: Option<Element<CacheWritten>>,
    pub(crate) request_buffering: Placed<RequestBuffers>,
    pub(crate) request_id: Placed<RequestIds>,
    pub(crate) log: Vec<Element<Log>>,
    pub(crate) tracing: Option<Element<TracingWritten>>,
    pub(crate) redis: Option<Element<RedisWritten>>,
    pub(crate) consul: ConsulWritten,
    pub(crate) messages: Messages,
}

/// The option `wakeup_coalescing`, whose default is not zero.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WakeupCoalescing(pub(crate) Duration);

impl Default for WakeupCoalescing {
    fn default() -> Self {
        Self(WAKEUP_COALESCING)
    }
}

pub(crate) static FILE: Table<File> = Table {
    options: &[
        key!(
            "include",
            OneOrMany(Name { expected: "a path such as \"conf.d/*.toml\"" }),
            File.include,
            "Other files of the configuration, relative to this one: a path or a pattern with `*`, `?` and \
             `[a-z]`, or several. See [Several files](#several-files).",
        )
        .merged(Merging::Joined),
        key!(
            "workers",
            Unless { word: "auto", kind: Count { range: 1..=1024, unit: Unit::Things } },
            File.workers,
            "Number of worker threads. `\"auto\"`: one per CPU core that the process may use.",
        ),
        renamed!(
            ("gather", "wakeup_coalescing"),
            Wait { range: Duration::ZERO..=Duration::from_millis(1) },
            File.wakeup_coalescing.0,
            "A busy worker waits up to this long, to handle several requests per wake-up. It waits at most \
             half of the mean time of a request, and not at all if that would gather fewer \
             than a dozen requests or if work is pending. `\"0s\"` turns it off. (Formerly `gather`.)",
        ),
        key!(
            "admin",
            Maybe(At(SOCKET)),
            File.admin,
            "Unix socket of the admin API, for `vanward status`, `reload`, `drain` and the other commands \
             that talk to the running proxy. Only the user of the process may open it. \
             Default: no admin API.",
        ),
        key!(
            "metrics",
            Maybe(At(Text { expected: LISTEN_ADDRESS, read: listen_address, print: ToString::to_string })),
            File.metrics,
            "Address that serves metrics at `/metrics`, in the Prometheus text format. Default: no \
             metrics.",
        ),
        key!(
            "dashboard",
            Maybe(At(Text { expected: LISTEN_ADDRESS, read: listen_address, print: ToString::to_string })),
            File.dashboard,
            "Address of the [dashboard](dashboard.md), a page for operators. All addresses except loopback \
             need `dashboard_token_file`. Default: no dashboard.",
        ),
        key!(
            "dashboard_write",
            Maybe(At(Switch)),
            File.dashboard_write,
            "Whether the dashboard may change the proxy: servers, maintenance, cache, faults, rates and delays. \
             Default: it only shows.",
        ),
        key!(
            "dashboard_token_file",
            Maybe(At(TOKENS)),
            File.dashboard_token_file,
            "A file of tokens, one per line, 24 bytes or more each. Browsers must present one of them. \
             It is read at the start and at each reload.",
        ),
        key!(
            "dashboard_hosts",
            Maybe(At(List {
                kind: Text { expected: TLS_NAME, read: tls_name, print: String::clone },
                may_be_empty: false,
            })),
            File.dashboard_hosts,
            "Host names under which browsers open the dashboard. Addresses and `localhost` always work; \
             other names are rejected with 421, because any site can point a name to this machine (DNS \
             rebinding).",
        ),
        key!(
            "quic_key_file",
            Maybe(At(SECRET)),
            File.quic_key_file,
            "File with a secret of 32 bytes or more for HTTP/3, the same after every start. With it, the \
             process after a killed one ends the old connections, so that clients connect again at once. It \
             is read at the start; an upgrade keeps the secret of the old process. Default: a random secret.",
        ),
        key!(
            "error_pages",
            ERROR_PAGES,
            File.error_pages,
            "Bodies of the proxy's own error responses, by status: `404`, `4xx`, `5xx`, or `*` for all. \
             Files are read at the start and at each reload. A text is a table: `{ body = \"error {status}\" }`, \
             with `content_type` if it is not text/plain.",
        ),
        key!(
            "trusted_proxies",
            List { kind: NETWORK_KIND, may_be_empty: true },
            File.trusted_proxies,
            "Networks of trusted proxies in front of this one. Their `X-Forwarded-For`, `-Proto`, `-Host` \
             and `-Port`, or `Forwarded`, decide the client's address, scheme, host and port \
             for access lists, limits, redirects, cookies, variables and the log. Servers get \
             the result in both kinds of fields. If both kinds arrive and differ, \
             `X-Forwarded-*` wins. From other clients these fields and `X-Real-IP` are \
             dropped.",
        ),
        maps(
            "A map from keys of requests to values, for `when` and other expressions. NAME has letters, digits and `_`. \
             See [maps](maps.md).",
        ),
        key!(
            "values",
            ValuesKind { is_local: false },
            File.values,
            "Names for expressions, such as `app = 'request.headers[\"x-app\"] ?? \"www\"'`. Expressions use \
             them as `values.app`, texts with variables as `${app}`. See [values](conditions.md#values).",
        )
        .merged(Merging::Named),
        sections!(
            "listen",
            LISTEN,
            File.listen,
            "An address that clients connect to. At least one is required."
        )
        .required(),
        routes(sections!(
            "route",
            ROUTE,
            File.routes,
            "Which requests match, and what happens to them. At least one is required, unless every \
             listener has `tcp`. The most specific route wins, in any order of the file. A route with a \
             `listener` comes before one without. For hosts, the order is: exact, nearest wildcard, \
             regular expression, any host. For paths, it is: exact, regular expression, longest prefix. \
             Then a route with more conditions on methods, headers, cookies, query and claims comes first, \
             then one with `when`, then one for narrower networks. `vanward check FILE --route METHOD URL` explains the choice."
        )),
        route_defaults(
            "Defaults for all routes: every option of `[[route]]` except its `name`, its conditions and its \
             action (`upstream`, `split`, `redirect`, `respond`). An option of a route replaces the default \
             as a whole; lists and tables are not joined. `\"off\"`, or `[]` for a list, disables a default: \
             `auth = \"off\"`. See [Defaults for all routes](#defaults-for-all-routes).",
        ),
        named!(
            "upstream",
            UPSTREAM,
            File.upstreams,
            "A group of servers that serve the same routes. NAME is 1 to 64 letters, digits, `.`, `-` \
                  and `_`."
        ),
        named!(
            "headers",
            HEADER_SET,
            File.headers,
            "A set of header edits, for `use` in `request_headers` and `response_headers` of routes. NAME has \
                  the same form as an upstream's. See [Sets of headers](#sets-of-headers)."
        ),
        named!(
            "profile",
            PROFILE,
            File.profiles,
            "A network link to emulate, for `profile` of `[[listen]]` or `vanward shape`. NAME has \
                  the same form as an upstream's."
        ),
        section!(
            "acme",
            ACME,
            File.acme,
            "Automatic certificates (ACME, RFC 8555), for listeners with `certificates = \"auto\"`. See \
                  [certificates](certificates.md)."
        ),
        section!(
            "timeouts",
            TIMEOUTS,
            File.timeouts,
            "Maximum duration of each wait. Precise to a tenth of a second."
        ),
        section!("limits", LIMITS, File.limits, "Maximum sizes and numbers."),
        section!(
            "shed",
            SHED,
            File.shed,
            "Load shedding: requests are rejected with 503 and Retry-After before an overload slows \
                  down everything."
        ),
        switched!("cache", CACHE, File.cache, "Shared HTTP cache (RFC 9111), for routes with `cache`."),
        placed!(
            "request_buffering",
            BUFFERS,
            File.request_buffering,
            "Limits for the request bodies of all routes with `request_buffering` together."
        ),
        section!("faults", FAULTS, File.faults, "Settings of all injected faults."),
        sections!(
            "fault",
            FAULT,
            File.fault,
            "A fault to inject on purpose. If several match a request, only the first applies. \
                  `vanward faults clear` ends all of them."
        ),
        placed!(
            "request_id",
            REQUEST_ID,
            File.request_id,
            "IDs of requests, for `$request_id` in header edits and for the access log."
        ),
        one_or_sections!(
            "log",
            LOG,
            File.log,
            "Access log. Off without this table. Several logs are several tables `[[log]]`, each with its own target \
                  and format."
        ),
        switched!(
            "tracing",
            TRACING,
            File.tracing,
            "Traces of requests (OpenTelemetry), sent to a collector. Off without this table. See [traces](traces.md)."
        ),
        switched!(
            "redis",
            REDIS,
            File.redis,
            "Redis or Valkey, through which instances share counts, purges and more. See \
                  [several instances](fleet.md)."
        ),
        section!(
            "consul",
            CONSUL,
            File.consul,
            "Consul, the source for the instances of services: servers such as `http+consul://NAME`. See \
                  [servers that come and go](discovery.md#consul)."
        ),
        section!(
            "messages",
            MESSAGES,
            File.messages,
            "Messages on standard error. The flags of `vanward run` take precedence."
        ),
    ],
};

const SOCKET: Text<PathBuf> = Text {
    expected: "the path of a Unix socket such as /run/vanward/admin.sock",
    read: |text| {
        // Other paths are relative to the working directory, too. What reads as an address or a word is none.
        let reads_as_path =
            text.contains(['/', '.']) && !text.contains(':') && text.parse::<IpAddr>().is_err();
        let is_relative = reads_as_path && !text.starts_with('/');
        let absolute = if is_relative { format!("/{text}") } else { text.to_owned() };
        match socket_path(&absolute) {
            Ok(_) => Ok(PathBuf::from(text)),
            Err(fault) => Err(ValueError { fault, expected: SOCKET.expected }),
        }
    },
    print: |path| path.display().to_string(),
};

/// Completes the declaration of `[[route]]`: before routes are read, values of listeners replace those of the top level.
const fn routes(declared: Declared<File>) -> Declared<File> {
    Declared {
        read: |written, file, reader| {
            replace_by_listeners(&listener_names(&file.listen), &file.listen, &mut file.values, reader);
            read_many(&ROUTE, written, &mut file.routes, reader);
        },
        ..declared
    }
}

/// Declares `[map.NAME]`.
const fn maps(doc: &'static str) -> Declared<File> {
    Declared {
        row: Row {
            name: "map",
            former_name: None,
            required: false,
            merging: Merging::Named,
            takes: Takes::Tables(Below::Named, &MAP),
            doc,
        },
        read: |written, file, reader| file.maps = map::read(written, reader),
        print: |_| None,
        inherit: |_, _| {},
    }
}

pub(crate) const NAME: &str = "route_defaults";

/// Declares `[route_defaults]` with its meaning.
pub(crate) const fn route_defaults(doc: &'static str) -> Declared<File> {
    Declared {
        row: Row {
            name: NAME,
            former_name: None,
            required: false,
            merging: Merging::Once,
            takes: Takes::Tables(Below::Elsewhere, &ROUTE_DEFAULTS),
            doc,
        },
        read,
        print: |_| None,
        inherit: |_, _| {},
    }
}

pub(crate) fn read(written: &Written<'_>, file: &mut File, reader: &mut Reader<'_>) {
    let at = written.value.span();
    let DeValue::Table(entries) = written.value.get_ref() else {
        return refuse(written, Below::Elsewhere, reader);
    };
    let value = ROUTE_DEFAULTS.read((&format!("[{NAME}]"), NAME), entries, &at, reader);
    let place = |(key, value): (&toml::Spanned<Cow<'_, str>>, &toml::Spanned<DeValue<'_>>)| {
        let (_, option) = ROUTE_DEFAULTS.option(key.get_ref())?;
        Some((option.row.name, key.span().start..value.span().end))
    };
    file.route_defaults = DefaultsWritten { value, given: entries.iter().filter_map(place).collect() };
}
