//! All options of the file, declared once: name, kind, default, meaning.
//!
//! To add one, add its field and its line here, and convert it in `resolve`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ::route::PageFor;
use balance::ShedSettings;
use ipnet::IpNet;
use shape::Bottleneck;

use crate::acme_options::{ACME, AcmeWritten};
use crate::bandwidth::BANDWIDTH;
use crate::bottleneck::BOTTLENECK;
use crate::cache_options::{CACHE, CacheWritten};
use crate::consul_options::{CONSUL, ConsulWritten};
use crate::dashboard_options::TOKENS;
use crate::delay::{DELAY, LOSS};
use crate::fault_options::{FAULT, FAULTS, FaultWritten, FaultsWritten};
use crate::host::{ANY_LISTEN_ADDRESS, LISTEN_ADDRESS, NETWORK, TLS_NAME, listen_address, network, tls_name};
use crate::http2_options::HTTP2_LIMITS;
use crate::kind::{At, Kind, List, Located, Maybe, Name, Switch, Text, Unless, located, quoted};
use crate::log_options::{LOG, Log};
use crate::message_options::MESSAGES;
use crate::pairs::{OneOrMany, Pair};
use crate::passthrough_options::{PASSTHROUGH, PassthroughWritten};
use crate::profile::{PROFILE, ProfileWritten};
use crate::range::{Count, Unit, Wait};
use crate::reader::{Reader, Span};
use crate::redis_options::{REDIS, RedisWritten};
use crate::request_buffering_options::{BUFFERS, BuffersWritten};
use crate::request_id_options::{REQUEST_ID, RequestIdsWritten};
use crate::route_defaults::{DefaultsWritten, RouteDefaults};
use crate::route_options::{ERROR_PAGES, EditsWritten, HEADER_SET, ROUTE, RouteWritten};
use crate::section::{OneOrSections, Switched};
use crate::server::socket_path;
use crate::settings::DashboardTokens;
use crate::settings::{
    Bandwidth, Limits, Link, ListenAddress, MemoryBound, Messages, Page as RoutePage, Shedding, Timeouts,
    WAKEUP_COALESCING,
};
use crate::table::{
    Element, Joined, Named, Section, Sections, Table, Written, element, key, renamed, required,
};
use crate::tls::Hsts;
use crate::tls_options::{HstsKind, SERVER_TLS, ServerTlsWritten};
use crate::tracing_options::{TRACING, TracingWritten};
use crate::upstream_options::{UPSTREAM, UPSTREAM_NAME, UpstreamWritten, is_upstream_name};
use crate::value_error::ValueError;

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
    pub(crate) error_pages: Vec<Pair<PageFor, RoutePage>>,
    pub(crate) trusted_proxies: Vec<IpNet>,
    pub(crate) listen: Vec<Element<Listen>>,
    pub(crate) route_defaults: DefaultsWritten,
    pub(crate) routes: Vec<Element<RouteWritten>>,
    pub(crate) upstreams: Vec<(Span, String, UpstreamWritten)>,
    pub(crate) headers: Vec<(Span, String, EditsWritten)>,
    pub(crate) profiles: Vec<(Span, String, ProfileWritten)>,
    pub(crate) acme: AcmeWritten,
    pub(crate) faults: FaultsWritten,
    pub(crate) fault: Vec<Element<FaultWritten>>,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: Limits,
    pub(crate) shed: ShedWritten,
    pub(crate) cache: Option<Element<CacheWritten>>,
    pub(crate) request_buffering: BuffersWritten,
    pub(crate) request_id: RequestIdsWritten,
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
        &Joined(key(
            "include",
            OneOrMany(Name { expected: "a path such as \"conf.d/*.toml\"" }),
            |file: &mut File| &mut file.include,
            "Other files of the configuration, relative to this one: a path or a pattern with `*`, `?` and \
             `[a-z]`, or several. See [Several files](#several-files).",
        )),
        &key(
            "workers",
            Unless { word: "auto", kind: Count { range: 1..=1024, unit: Unit::Things } },
            |file: &mut File| &mut file.workers,
            "Number of worker threads. `\"auto\"`: one per CPU core that the process may use.",
        ),
        &renamed(
            ("gather", "wakeup_coalescing"),
            Wait { range: Duration::ZERO..=Duration::from_millis(1) },
            |file: &mut File| &mut file.wakeup_coalescing.0,
            "A busy worker waits up to this long, to handle several requests per wake-up. It waits at most \
             half of the mean time of a request, and not at all if that would gather fewer \
             than a dozen requests or if work is pending. `\"0s\"` turns it off. (Formerly `gather`.)",
        ),
        &key(
            "admin",
            Maybe(At(SOCKET)),
            |file: &mut File| &mut file.admin,
            "Unix socket of the admin API, for `vanward status`, `reload`, `drain` and the other commands \
             that talk to the running proxy. Only the user of the process may open it. \
             Default: no admin API.",
        ),
        &key(
            "metrics",
            Maybe(At(Text { expected: LISTEN_ADDRESS, read: listen_address, print: ToString::to_string })),
            |file: &mut File| &mut file.metrics,
            "Address that serves metrics at `/metrics`, in the Prometheus text format. Default: no \
             metrics.",
        ),
        &key(
            "dashboard",
            Maybe(At(Text { expected: LISTEN_ADDRESS, read: listen_address, print: ToString::to_string })),
            |file: &mut File| &mut file.dashboard,
            "Address of the [dashboard](dashboard.md), a page for operators. Other than loopback addresses need \
             `dashboard_token_file`. Default: no dashboard.",
        ),
        &key(
            "dashboard_write",
            Maybe(At(Switch)),
            |file: &mut File| &mut file.dashboard_write,
            "Whether the dashboard may change the proxy: servers, maintenance, cache, faults, rates and delays. \
             Default: it only shows.",
        ),
        &key(
            "dashboard_token_file",
            Maybe(At(TOKENS)),
            |file: &mut File| &mut file.dashboard_token_file,
            "A file of tokens, one per line, 24 bytes or more each. Whoever opens the dashboard has to give one of them. \
             It is read at the start and at each reload.",
        ),
        &key(
            "dashboard_hosts",
            Maybe(At(List {
                kind: Text { expected: TLS_NAME, read: tls_name, print: String::clone },
                may_be_empty: false,
            })),
            |file: &mut File| &mut file.dashboard_hosts,
            "Host names under which browsers open the dashboard. Addresses and `localhost` always work; other names are \
             rejected with 421, since anybody could point them to this machine (DNS rebinding).",
        ),
        &key(
            "error_pages",
            ERROR_PAGES,
            |file: &mut File| &mut file.error_pages,
            "Bodies of the proxy's own error responses, by status: `404`, `4xx`, `5xx`, or `*` for all. \
             Files are read at the start and at each reload.",
        ),
        &key(
            "trusted_proxies",
            List { kind: NETWORK_KIND, may_be_empty: true },
            |file: &mut File| &mut file.trusted_proxies,
            "Networks of trusted proxies in front of this one. Their `X-Forwarded-For`, `-Proto`, `-Host` \
             and `-Port`, or `Forwarded`, decide the client's address, scheme, host and port \
             for access lists, limits, redirects, cookies, variables and the log. Servers get \
             the result in both kinds of fields. If both kinds arrive and differ, \
             `X-Forwarded-*` wins. From other clients these fields and `X-Real-IP` are \
             dropped.",
        ),
        &Sections {
            name: "listen",
            table: &LISTEN,
            place: |file: &mut File| &mut file.listen,
            required: true,
            doc: "An address that clients connect to. At least one is required.",
        },
        &Sections {
            name: "route",
            table: &ROUTE,
            place: |file: &mut File| &mut file.routes,
            required: false,
            doc: "Which requests match, and what happens to them. At least one is required, unless every \
                  listener has `tcp`. The most specific route wins, in any order of the \
                  file. Routes with a `listener` come before those without; an exact host \
                  before the nearest wildcard above it, then expressions, then any host; \
                  an exact path before expressions, then the longest prefix; then more \
                  conditions on methods, headers, cookies, query, claims and clients before fewer. \
                  `vanward check FILE --route METHOD URL` explains the choice.",
        },
        &RouteDefaults {
            doc: "Options that each route has unless it has its own: all of `[[route]]` except its `name`, its conditions \
                  and what it answers with (`upstream`, `split`, `redirect`, `respond`). An option of a route replaces \
                  the default as a whole; lists and tables are not joined. `\"off\"`, or `[]` for a list, leaves \
                  the default out: `auth = \"off\"`. See [Defaults for all routes](#defaults-for-all-routes).",
        },
        &Named {
            name: "upstream",
            table: &UPSTREAM,
            place: |file: &mut File| &mut file.upstreams,
            is_name: is_upstream_name,
            expected_name: UPSTREAM_NAME,
            doc: "A group of servers that serve the same routes. NAME is 1 to 64 letters, digits, `.`, `-` \
                  and `_`.",
        },
        &Named {
            name: "headers",
            table: &HEADER_SET,
            place: |file: &mut File| &mut file.headers,
            is_name: is_upstream_name,
            expected_name: UPSTREAM_NAME,
            doc: "A set of header edits, for `use` in `request_headers` and `response_headers` of routes. NAME has \
                  the same form as an upstream's. See [Sets of headers](#sets-of-headers).",
        },
        &Named {
            name: "profile",
            table: &PROFILE,
            place: |file: &mut File| &mut file.profiles,
            is_name: is_upstream_name,
            expected_name: UPSTREAM_NAME,
            doc: "A network link to emulate, for `profile` of `[[listen]]` or `vanward shape`. NAME has \
                  the same form as an upstream's.",
        },
        &Section {
            name: "acme",
            table: &ACME,
            place: |file: &mut File| &mut file.acme,
            doc: "Automatic certificates (ACME, RFC 8555), for listeners with `certificates = \"auto\"`. See \
                  [certificates](certificates.md).",
        },
        &Section {
            name: "timeouts",
            table: &TIMEOUTS,
            place: |file: &mut File| &mut file.timeouts,
            doc: "Maximum duration of each wait. Precise to a tenth of a second.",
        },
        &Section {
            name: "limits",
            table: &LIMITS,
            place: |file: &mut File| &mut file.limits,
            doc: "Maximum sizes and numbers.",
        },
        &Section {
            name: "shed",
            table: &SHED,
            place: |file: &mut File| &mut file.shed,
            doc: "Load shedding: requests are rejected with 503 and Retry-After before an overload slows \
                  down everything.",
        },
        &Switched {
            name: "cache",
            table: &CACHE,
            place: |file: &mut File| &mut file.cache,
            doc: "Shared HTTP cache (RFC 9111), for routes with `cache`.",
        },
        &Section {
            name: "request_buffering",
            table: &BUFFERS,
            place: |file: &mut File| &mut file.request_buffering,
            doc: "What the request bodies of all routes with `request_buffering` may take together.",
        },
        &Section {
            name: "faults",
            table: &FAULTS,
            place: |file: &mut File| &mut file.faults,
            doc: "Settings of all injected faults.",
        },
        &Sections {
            name: "fault",
            table: &FAULT,
            place: |file: &mut File| &mut file.fault,
            required: false,
            doc: "A fault to inject on purpose. If several match a request, only the first applies. \
                  `vanward faults clear` ends all of them.",
        },
        &Section {
            name: "request_id",
            table: &REQUEST_ID,
            place: |file: &mut File| &mut file.request_id,
            doc: "IDs of requests, for `$request_id` in header edits and for the access log.",
        },
        &OneOrSections {
            name: "log",
            table: &LOG,
            place: |file: &mut File| &mut file.log,
            doc: "Access log. Off without this table. Several logs are several tables `[[log]]`, each with its own target \
                  and format.",
        },
        &Switched {
            name: "tracing",
            table: &TRACING,
            place: |file: &mut File| &mut file.tracing,
            doc: "Traces of requests (OpenTelemetry), sent to a collector. Off without this table. See [traces](traces.md).",
        },
        &Switched {
            name: "redis",
            table: &REDIS,
            place: |file: &mut File| &mut file.redis,
            doc: "Redis or Valkey, through which instances share what they count and purge. See \
                  [several instances](fleet.md).",
        },
        &Section {
            name: "consul",
            table: &CONSUL,
            place: |file: &mut File| &mut file.consul,
            doc: "Consul, which is asked for the instances of services: servers such as `http+consul://NAME`. See \
                  [servers that come and go](discovery.md#consul).",
        },
        &Section {
            name: "messages",
            table: &MESSAGES,
            place: |file: &mut File| &mut file.messages,
            doc: "Messages on standard error. The flags of `vanward run` take precedence.",
        },
    ],
};

pub(crate) const NETWORK_KIND: Text<IpNet> =
    Text { expected: NETWORK, read: network, print: IpNet::to_string };

/// The parsed table `[[listen]]`.
#[derive(Debug, Clone)]
pub(crate) struct Listen {
    pub(crate) name: Option<Located<String>>,
    pub(crate) address: Option<Located<ListenAddress>>,
    pub(crate) proxy_protocol: Vec<IpNet>,
    pub(crate) tcp: Option<Located<String>>,
    pub(crate) passthrough: Vec<Element<PassthroughWritten>>,
    pub(crate) tls: Option<Element<ServerTlsWritten>>,
    pub(crate) redirect_to_https: Located<bool>,
    pub(crate) hsts: Option<Located<Hsts>>,
    pub(crate) http2: bool,
    pub(crate) http3: Located<bool>,
    pub(crate) rate: Vec<Bandwidth>,
    pub(crate) upload_rate: Vec<Bandwidth>,
    pub(crate) profile: Option<Located<String>>,
    pub(crate) link: Link,
    pub(crate) datagram_rate: Option<Located<Bottleneck>>,
    pub(crate) datagram_upload_rate: Option<Located<Bottleneck>>,
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            name: None,
            address: None,
            proxy_protocol: Vec::new(),
            tcp: None,
            passthrough: Vec::new(),
            tls: None,
            redirect_to_https: located(false),
            hsts: None,
            http2: true,
            http3: located(false),
            rate: Vec::new(),
            upload_rate: Vec::new(),
            profile: None,
            link: Link::default(),
            datagram_rate: None,
            datagram_upload_rate: None,
        }
    }
}

static LISTEN: Table<Listen> = Table {
    options: &[
        &required(
            "address",
            Maybe(At(Text { expected: ANY_LISTEN_ADDRESS, read: str::parse, print: ToString::to_string })),
            |listen: &mut Listen| &mut listen.address,
            "Address to listen on. `0.0.0.0` is every IPv4 address, `[::]` every IPv6 address without \
             IPv4, `*` every address of both. With port 0 the kernel chooses a port. \
             `unix:/PATH` is a Unix socket with mode 0660; its clients count as 127.0.0.1.",
        ),
        &key(
            "name",
            Maybe(At(Name { expected: "a name for the listener" })),
            |listen: &mut Listen| &mut listen.name,
            "Name in routes, logs and metrics. Default: the address.",
        ),
        &key(
            "proxy_protocol",
            List { kind: NETWORK_KIND, may_be_empty: true },
            |listen: &mut Listen| &mut listen.proxy_protocol,
            "Networks whose connections must begin with a PROXY header, version 1 or 2; without one they \
             are closed. Connections from other networks must begin with a request. The header \
             names the client; version 2 also says whether the client used TLS.",
        ),
        &key(
            "tcp",
            Maybe(At(Name { expected: "the name of an upstream: NAME of [upstream.NAME]" })),
            |listen: &mut Listen| &mut listen.tcp,
            "Forwards the bytes of each connection to this upstream (layer 4), without routes. With `tls` \
             the proxy decrypts them first.",
        ),
        &key(
            "passthrough",
            List { kind: PASSTHROUGH, may_be_empty: true },
            |listen: &mut Listen| &mut listen.passthrough,
            "TLS that is passed on without being decrypted, by the name that the client asks for (SNI). All \
             other connections are decrypted with `tls`, or without that forwarded by `tcp`.",
        ),
        &key(
            "tls",
            Maybe(SERVER_TLS),
            |listen: &mut Listen| &mut listen.tls,
            "HTTPS, with TLS 1.3 and 1.2. Certificate files are read again when they change. Default: \
             plain HTTP.",
        ),
        &key(
            "redirect_to_https",
            At(Switch),
            |listen: &mut Listen| &mut listen.redirect_to_https,
            "Redirects requests to their `https` URL (308), on a listener without `tls`. Exceptions: \
             routes whose `listener` names only listeners without `tls` (certificate \
             challenges), and requests that arrived by HTTPS at a proxy of `trusted_proxies` \
             or `proxy_protocol`.",
        ),
        &key(
            "hsts",
            Maybe(At(HstsKind)),
            |listen: &mut Listen| &mut listen.hsts,
            "Strict-Transport-Security: browsers use only HTTPS for this long. Sent to clients that use \
             HTTPS, on a listener with `tls` or as reported by a proxy of `trusted_proxies` or \
             `proxy_protocol`.",
        ),
        &key(
            "http2",
            Switch,
            |listen: &mut Listen| &mut listen.http2,
            "Accepts HTTP/2 as well as HTTP/1.1: by ALPN with `tls`, by prior knowledge without.",
        ),
        &key(
            "http3",
            At(Switch),
            |listen: &mut Listen| &mut listen.http3,
            "Accepts HTTP/3 (QUIC) as well, at the same port of UDP, on a listener with `tls`. Responses over \
             HTTP/1.1 and HTTP/2 tell clients of it (`Alt-Svc`). See [HTTP/3](http3.md).",
        ),
        &key(
            "rate",
            OneOrMany(BANDWIDTH),
            |listen: &mut Listen| &mut listen.rate,
            "Limits the rate of response bodies, or with `tcp` of what is sent to clients: see `rate` of \
             `[[route]]`. Limits of listener, route and upstream apply together.",
        ),
        &key(
            "upload_rate",
            OneOrMany(BANDWIDTH),
            |listen: &mut Listen| &mut listen.upload_rate,
            "Limits the rate of request bodies, or with `tcp` of what clients send.",
        ),
        &key(
            "profile",
            Maybe(At(Name {
                expected: "the name of a link such as lte, 3g, dsl, satellite or transpacific",
            })),
            |listen: &mut Listen| &mut listen.profile,
            "Emulates a network link between each client and the proxy, with its rate, round-trip time and \
             packet loss: one of `[profile.NAME]`, or one that `vanward proxy --help` lists. \
             `rate` and `upload_rate` apply in addition to those of the profile; \
             `connect_delay`, `latency` and `loss` replace them.",
        ),
        &key(
            "connect_delay",
            Maybe(DELAY),
            |listen: &mut Listen| &mut listen.link.connect_delay,
            "Delays new connections, before the TLS handshake. See `delay` of `[[route]]`.",
        ),
        &key(
            "latency",
            Maybe(DELAY),
            |listen: &mut Listen| &mut listen.link.latency,
            "Delays everything that is sent and received, in order. The rate stays the same, as long as at \
             most 16 MiB are in transit in each direction of a connection.",
        ),
        &key(
            "loss",
            Maybe(LOSS),
            |listen: &mut Listen| &mut listen.link.loss,
            "Emulates packet loss: the share of packets of 1460 bytes that are lost, and the time until \
             each is sent again. Packets behind a lost one wait for it.",
        ),
        &key(
            "datagram_rate",
            Maybe(At(BOTTLENECK)),
            |listen: &mut Listen| &mut listen.datagram_rate,
            "Emulates a link of this rate for the datagrams of HTTP/3 to all clients together. Datagrams wait in \
             its queue; those that find no room are lost. `10Mbit/s queue 64KB` sets its size; default: what is \
             sent in 100 ms, and at least 16 kB. Needs `http3`.",
        ),
        &key(
            "datagram_upload_rate",
            Maybe(At(BOTTLENECK)),
            |listen: &mut Listen| &mut listen.datagram_upload_rate,
            "The same for datagrams from clients.",
        ),
    ],
};

pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);
pub(crate) const UP_TO_A_DAY: Wait = Wait { range: Duration::from_millis(1)..=DAY };
pub(crate) const UP_TO_A_YEAR: Wait =
    Wait { range: Duration::from_millis(1)..=Duration::from_secs(365 * 24 * 3600) };

static TIMEOUTS: Table<Timeouts> = Table {
    options: &[
        &key(
            "client_header",
            UP_TO_A_DAY,
            |timeouts: &mut Timeouts| &mut timeouts.client_header,
            "From the first byte of a request, or from accept, to the end of its header section; then 408, \
             or with HTTP/2 the connection is closed.",
        ),
        &key(
            "client_body",
            UP_TO_A_DAY,
            |timeouts: &mut Timeouts| &mut timeouts.client_body,
            "Without a byte of the request body from the client, until the response begins; then 408. Does \
             not count while the client waits for `100 Continue`.",
        ),
        &key(
            "client_write",
            UP_TO_A_DAY,
            |timeouts: &mut Timeouts| &mut timeouts.client_write,
            "Without the client accepting a byte of the response; then the connection is reset.",
        ),
        &key(
            "keep_alive",
            UP_TO_A_DAY,
            |timeouts: &mut Timeouts| &mut timeouts.keep_alive,
            "Idle time of a client connection between two requests; then it is closed.",
        ),
        &key(
            "upstream_connect",
            UP_TO_A_DAY,
            |timeouts: &mut Timeouts| &mut timeouts.upstream_connect,
            "To connect to a server; then the next address of its name is tried, and after the last the \
             client gets 504. `pool.connect_timeout` of an upstream replaces it.",
        ),
        &key(
            "upstream_first_byte",
            UP_TO_A_DAY,
            |timeouts: &mut Timeouts| &mut timeouts.upstream_first_byte,
            "From the end of the request to the header section of the response; then 504.",
        ),
        &key(
            "upstream_body",
            UP_TO_A_DAY,
            |timeouts: &mut Timeouts| &mut timeouts.upstream_body,
            "Without a byte of the response body from the server, while no byte of the request body moves \
             either; then the response is aborted.",
        ),
        &key(
            "upstream_send",
            Maybe(UP_TO_A_DAY),
            |timeouts: &mut Timeouts| &mut timeouts.upstream_send,
            "Without the server accepting a byte of the request body; then 504. Default: `upstream_body`.",
        ),
        &key(
            "tunnel_idle",
            UP_TO_A_YEAR,
            |timeouts: &mut Timeouts| &mut timeouts.tunnel_idle,
            "Without a byte in either direction of an upgraded connection (WebSocket) or a `tcp` \
             connection; then it is closed.",
        ),
        &key(
            "drain",
            Wait { range: Duration::ZERO..=DAY },
            |timeouts: &mut Timeouts| &mut timeouts.drain,
            "How long a drain waits for running requests.",
        ),
    ],
};

static LIMITS: Table<Limits> = Table {
    options: &[
        &key(
            "header_bytes",
            Count { range: 1024..=1 << 20, unit: Unit::Bytes },
            |limits: &mut Limits| &mut limits.header_bytes,
            "Header section of a message, including the start line; beyond it 431, for a response 502.",
        ),
        &key(
            "header_count",
            Count { range: 1..=10_000, unit: Unit::Things },
            |limits: &mut Limits| &mut limits.header_count,
            "Number of header fields in a message; beyond it 431, for a response 502.",
        ),
        &key(
            "target_bytes",
            Count { range: 64..=1 << 20, unit: Unit::Bytes },
            |limits: &mut Limits| &mut limits.target_bytes,
            "Request target; beyond it 414.",
        ),
        &key(
            "body_bytes",
            Unless { word: "none", kind: Count { range: 0..=u64::MAX, unit: Unit::Bytes } },
            |limits: &mut Limits| &mut limits.body_bytes,
            "Request body; beyond it 413. `\"none\"`: no limit.",
        ),
        &key(
            "connections",
            Count { range: 1..=10_000_000, unit: Unit::Things },
            |limits: &mut Limits| &mut limits.connections,
            "Client connections in total; further ones get 503 and are closed.",
        ),
        &key(
            "requests_per_connection",
            Unless { word: "none", kind: Count { range: 1..=u64::MAX, unit: Unit::Things } },
            |limits: &mut Limits| &mut limits.requests_per_connection,
            "Requests on a client connection before it is closed. `\"none\"`: no limit.",
        ),
        &key(
            "minimum_rate",
            Count { range: 0..=1_000_000_000, unit: Unit::BytesPerSecond },
            |limits: &mut Limits| &mut limits.minimum_rate_bytes_per_second,
            "Minimum rate, averaged over `rate_window`, at which a client must send a request body or \
             accept a response; slower clients are disconnected. An upload counts only while \
             announced bytes are missing (of the body, a chunk or a frame). Time spent waiting \
             for the server does not count, nor does an upload while the response is sent. 0: \
             no minimum.",
        ),
        &key(
            "rate_window",
            Wait { range: Duration::from_secs(1)..=Duration::from_secs(3600) },
            |limits: &mut Limits| &mut limits.rate_window,
            "Averaging period of `minimum_rate`.",
        ),
        &Section {
            name: "http2",
            table: &HTTP2_LIMITS,
            place: |limits: &mut Limits| &mut limits.http2,
            doc: "Flood protection: how many cheap frames an HTTP/2 connection may send per second. A \
                  connection that exceeds a limit is closed with all its streams, and the \
                  log says why. For connections to servers, only settings, pings, \
                  priorities and empty frames count.",
        },
    ],
};

/// The parsed table `[shed]`.
#[derive(Debug, Clone)]
pub(crate) struct ShedWritten {
    pub(crate) concurrency: Option<Element<ShedSettings>>,
    pub(crate) memory: MemoryBound,
}

impl Default for ShedWritten {
    fn default() -> Self {
        Self::from(&Shedding::default())
    }
}

impl From<&Shedding> for ShedWritten {
    fn from(shed: &Shedding) -> Self {
        Self { concurrency: shed.concurrency.map(element), memory: shed.memory }
    }
}

static SHED: Table<ShedWritten> = Table {
    options: &[
        &key(
            "memory",
            MemoryKind,
            |shed: &mut ShedWritten| &mut shed.memory,
            "Memory limit of the process; above it new requests are rejected. `\"auto\"`: three quarters \
             of what the control groups or the machine allow.",
        ),
        &Switched {
            name: "concurrency",
            table: &CONCURRENCY,
            place: |shed: &mut ShedWritten| &mut shed.concurrency,
            doc: "Adaptive limit on concurrent requests per upstream, in each worker. There is no limit \
                  while responses are fast. Once they are slow, the limit is as many as \
                  keep the servers busy without a queue.",
        },
    ],
};

static CONCURRENCY: Table<ShedSettings> = Table {
    options: &[
        &key(
            "latency_floor",
            Wait { range: Duration::from_millis(1)..=Duration::from_secs(3600) },
            |shed: &mut ShedSettings| &mut shed.latency_floor,
            "Responses within this time are never slow.",
        ),
        &key(
            "tolerance",
            Count { range: 101..=10_000, unit: Unit::Percent },
            |shed: &mut ShedSettings| &mut shed.tolerance_percent,
            "Responses within this percentage of the usual latency are not slow either.",
        ),
        &key(
            "min",
            Count { range: 1..=1_000_000, unit: Unit::Things },
            |shed: &mut ShedSettings| &mut shed.min,
            "The limit never falls below this.",
        ),
        &key(
            "crowd",
            Count { range: 0..=1_000_000, unit: Unit::Things },
            |shed: &mut ShedSettings| &mut shed.crowd,
            "Up to this number of waiting clients, reject requests only while more arrive than finish and \
             latency exceeds `crowd_latency`.",
        ),
        &key(
            "crowd_latency",
            Wait { range: Duration::from_millis(1)..=Duration::from_secs(3600) },
            |shed: &mut ShedSettings| &mut shed.crowd_latency,
            "Latency that `crowd` accepts.",
        ),
        &key(
            "window",
            Wait { range: Duration::from_millis(10)..=Duration::from_secs(60) },
            |shed: &mut ShedSettings| &mut shed.window,
            "Minimum time between two adjustments of the limit.",
        ),
        &key(
            "samples_min",
            Count { range: 1..=balance::SAMPLES_MAX as u64, unit: Unit::Things },
            |shed: &mut ShedSettings| &mut shed.samples_min,
            "Minimum number of responses between two adjustments of the limit.",
        ),
    ],
};

/// `"auto"`, `"off"` or a size.
struct MemoryKind;

const MEMORY: Count = Count { range: 16 << 20..=u64::MAX, unit: Unit::Bytes };

impl Kind<MemoryBound> for MemoryKind {
    fn expected(&self) -> String {
        format!("\"auto\", \"off\" or {}", Kind::<u64>::expected(&MEMORY))
    }

    fn brief(&self) -> String {
        format!("\"auto\", \"off\" or {}", Kind::<u64>::brief(&MEMORY))
    }

    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<MemoryBound> {
        match written.value.get_ref().as_str() {
            Some("auto") => Some(MemoryBound::Auto),
            Some("off") => Some(MemoryBound::Off),
            _ => MEMORY.read(written, reader).map(MemoryBound::Bytes),
        }
    }

    fn print(&self, bound: &MemoryBound) -> Option<String> {
        match bound {
            MemoryBound::Auto => Some(quoted("auto")),
            MemoryBound::Off => Some(quoted("off")),
            MemoryBound::Bytes(bytes) => MEMORY.print(bytes),
        }
    }
}

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
