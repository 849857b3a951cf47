//! Every option of the file, declared once: name, kind, default, meaning.
//!
//! To add one, add its field and its line here, and give it its meaning in `resolve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ::route::PageFor;
use balance::ShedSettings;
use ipnet::IpNet;

use crate::bandwidth::BANDWIDTH;
use crate::cache_options::{CACHE, CacheWritten};
use crate::delay::{DELAY, LOSS};
use crate::fault::ValueError;
use crate::host::{ANY_LISTEN_ADDRESS, LISTEN_ADDRESS, NETWORK, listen_address, network};
use crate::http2_options::HTTP2_LIMITS;
use crate::injected_options::{FAULT, FAULTS, FaultWritten, FaultsWritten};
use crate::kind::{At, Kind, List, Located, Maybe, Name, Switch, Text, Unless, located, quoted};
use crate::log_options::{LOG, Log};
use crate::meaning::{
    Bandwidth, GATHER, Limits, Link, ListenAddress, MemoryBound, Messages, Page as RoutePage, Shedding,
    Timeouts,
};
use crate::message_options::MESSAGES;
use crate::pairs::{OneOrMany, Pair};
use crate::profile::{PROFILE, ProfileWritten};
use crate::range::{Count, Unit, Wait};
use crate::reader::{Reader, Span};
use crate::route_options::{ERROR_PAGES, ROUTE, RouteWritten};
use crate::section::Switched;
use crate::server::socket_path;
use crate::table::{Element, Named, Section, Sections, Table, Written, element, key, required};
use crate::tls::Hsts;
use crate::tls_options::{HstsKind, SERVER_TLS, ServerTlsWritten};
use crate::upstream_options::{UPSTREAM, UPSTREAM_NAME, UpstreamWritten, is_upstream_name};

/// A file as written, each value understood, their relations not yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct File {
    pub(crate) workers: Option<usize>,
    pub(crate) gather: Gather,
    pub(crate) admin: Option<Located<PathBuf>>,
    pub(crate) metrics: Option<Located<SocketAddr>>,
    pub(crate) error_pages: Vec<Pair<PageFor, RoutePage>>,
    pub(crate) trusted_proxies: Vec<IpNet>,
    pub(crate) listen: Vec<Element<Listen>>,
    pub(crate) routes: Vec<Element<RouteWritten>>,
    pub(crate) upstreams: Vec<(Span, String, UpstreamWritten)>,
    pub(crate) profiles: Vec<(Span, String, ProfileWritten)>,
    pub(crate) faults: FaultsWritten,
    pub(crate) fault: Vec<Element<FaultWritten>>,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: Limits,
    pub(crate) shed: ShedWritten,
    pub(crate) cache: Option<Element<CacheWritten>>,
    pub(crate) log: Log,
    pub(crate) messages: Messages,
}

/// `gather`, whose default is not zero.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gather(pub(crate) Duration);

impl Default for Gather {
    fn default() -> Self {
        Self(GATHER)
    }
}

pub(crate) static FILE: Table<File> = Table {
    options: &[
        &key(
            "workers",
            Unless { word: "auto", kind: Count { range: 1..=1024, unit: Unit::Things } },
            |file: &mut File| &mut file.workers,
            "Worker threads. `\"auto\"` is one for each core that the process may use.",
        ),
        &key(
            "gather",
            Wait { range: Duration::ZERO..=Duration::from_millis(1) },
            |file: &mut File| &mut file.gather.0,
            "How long a worker that many requests come to sleeps before it looks what has come: one wake-up then stands for \
             many. At most this long and half of what requests take, and not at all where that gathers fewer than a dozen \
             or something is left to do. `\"0s\"` is off.",
        ),
        &key(
            "admin",
            Maybe(At(SOCKET)),
            |file: &mut File| &mut file.admin,
            "The Unix socket of the admin API, for `vanward status`, `reload` and `drain`; only the user of the process may \
             open it. Left out, there is none.",
        ),
        &key(
            "metrics",
            Maybe(At(Text { expected: LISTEN_ADDRESS, read: listen_address, print: ToString::to_string })),
            |file: &mut File| &mut file.metrics,
            "Where metrics are served, in the text format of Prometheus at `/metrics`. Left out, nowhere.",
        ),
        &key(
            "error_pages",
            ERROR_PAGES,
            |file: &mut File| &mut file.error_pages,
            "The bodies of errors that are answered here, by status: `404`, `4xx`, `5xx`, or `*` for all. Files are read at \
             the start and at each reload.",
        ),
        &key(
            "trusted_proxies",
            List { kind: NETWORK_KIND, may_be_empty: true },
            |file: &mut File| &mut file.trusted_proxies,
            "Networks of proxies in front of this one. What they say of the client in `X-Forwarded-For`, `-Proto`, `-Host` and \
             `-Port`, or in `Forwarded`, holds for access lists, limits, redirects, cookies, variables and the log, and servers \
             are told the same in both kinds. If both come and differ, `X-Forwarded-*` counts. What others send of these names, and \
             `X-Real-IP`, is dropped.",
        ),
        &Sections {
            name: "listen",
            table: &LISTEN,
            place: |file: &mut File| &mut file.listen,
            required: true,
            doc: "An address that clients connect to. At least one.",
        },
        &Sections {
            name: "route",
            table: &ROUTE,
            place: |file: &mut File| &mut file.routes,
            required: false,
            doc: "Requests that match, and what they get. At least one, unless every listener has `tcp`. The most specific \
                  route wins, whatever the order: a route for some listeners before one for all; an exact host, then \
                  the nearest name above it, then expressions, then any host; an exact path, then expressions, then the \
                  longest prefix; then methods, headers, query and clients, more before fewer. `vanward check FILE \
                  --route METHOD URL` explains it.",
        },
        &Named {
            name: "upstream",
            table: &UPSTREAM,
            place: |file: &mut File| &mut file.upstreams,
            is_name: is_upstream_name,
            expected_name: UPSTREAM_NAME,
            doc: "Servers that answer for the same routes. NAME is 1 to 64 letters, digits, `.`, `-` and `_`.",
        },
        &Named {
            name: "profile",
            table: &PROFILE,
            place: |file: &mut File| &mut file.profiles,
            is_name: is_upstream_name,
            expected_name: UPSTREAM_NAME,
            doc: "A link, for `profile` of `[[listen]]` or of `vanward shape`. NAME is what an upstream's may be.",
        },
        &Section {
            name: "timeouts",
            table: &TIMEOUTS,
            place: |file: &mut File| &mut file.timeouts,
            doc: "How long each wait may take, kept to within a tenth of a second.",
        },
        &Section {
            name: "limits",
            table: &LIMITS,
            place: |file: &mut File| &mut file.limits,
            doc: "How large or many each thing may be.",
        },
        &Section {
            name: "shed",
            table: &SHED,
            place: |file: &mut File| &mut file.shed,
            doc: "What is answered 503 with Retry-After before everything gets slow.",
        },
        &Switched {
            name: "cache",
            table: &CACHE,
            place: |file: &mut File| &mut file.cache,
            doc: "Responses that are kept to answer others with (RFC 9111), for routes with `cache`.",
        },
        &Section {
            name: "faults",
            table: &FAULTS,
            place: |file: &mut File| &mut file.faults,
            doc: "What holds for all faults that are injected on purpose.",
        },
        &Sections {
            name: "fault",
            table: &FAULT,
            place: |file: &mut File| &mut file.fault,
            required: false,
            doc: "Something that goes wrong on purpose. Of several the first that happens to a request is the only one. Nothing \
                  of a fault outlives `vanward faults clear`.",
        },
        &Section {
            name: "log",
            table: &LOG,
            place: |file: &mut File| &mut file.log,
            doc: "The access log. Without this table there is none.",
        },
        &Section {
            name: "messages",
            table: &MESSAGES,
            place: |file: &mut File| &mut file.messages,
            doc: "What the running program says on standard error. Flags of `vanward run` come before it.",
        },
    ],
};

pub(crate) const NETWORK_KIND: Text<IpNet> =
    Text { expected: NETWORK, read: network, print: IpNet::to_string };

/// `[[listen]]`.
#[derive(Debug, Clone)]
pub(crate) struct Listen {
    pub(crate) name: Option<Located<String>>,
    pub(crate) address: Option<Located<ListenAddress>>,
    pub(crate) proxy_protocol: Vec<IpNet>,
    pub(crate) tcp: Option<Located<String>>,
    pub(crate) tls: Option<Element<ServerTlsWritten>>,
    pub(crate) redirect_to_https: Located<bool>,
    pub(crate) hsts: Option<Located<Hsts>>,
    pub(crate) http2: bool,
    pub(crate) rate: Vec<Bandwidth>,
    pub(crate) upload_rate: Vec<Bandwidth>,
    pub(crate) profile: Option<Located<String>>,
    pub(crate) link: Link,
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            name: None,
            address: None,
            proxy_protocol: Vec::new(),
            tcp: None,
            tls: None,
            redirect_to_https: located(false),
            hsts: None,
            http2: true,
            rate: Vec::new(),
            upload_rate: Vec::new(),
            profile: None,
            link: Link::default(),
        }
    }
}

static LISTEN: Table<Listen> = Table {
    options: &[
        &required(
            "address",
            Maybe(At(Text { expected: ANY_LISTEN_ADDRESS, read: str::parse, print: ToString::to_string })),
            |listen: &mut Listen| &mut listen.address,
            "Where to listen. `0.0.0.0` is all addresses of IPv4, `[::]` all of IPv6 and none of IPv4, `*` all of both; port 0 \
             lets the kernel choose; `unix:/PATH` is a Unix socket with mode 0660, whose clients count as 127.0.0.1.",
        ),
        &key(
            "name",
            Maybe(At(Name { expected: "a name for the listener" })),
            |listen: &mut Listen| &mut listen.name,
            "What it is called in routes, logs and metrics. Left out, its address.",
        ),
        &key(
            "proxy_protocol",
            List { kind: NETWORK_KIND, may_be_empty: true },
            |listen: &mut Listen| &mut listen.proxy_protocol,
            "Networks whose connections begin with a PROXY header, of version 1 or 2, and are refused without one. Those of \
             others begin with a request. The client is whom it names; with version 2 it also says whether the client spoke TLS.",
        ),
        &key(
            "tcp",
            Maybe(At(Name { expected: "the name of an upstream: NAME of [upstream.NAME]" })),
            |listen: &mut Listen| &mut listen.tcp,
            "Passes on what arrives as it is, whatever it is, to this upstream (layer 4). No route counts; with `tls` it is \
             passed on decrypted.",
        ),
        &key(
            "tls",
            Maybe(SERVER_TLS),
            |listen: &mut Listen| &mut listen.tls,
            "HTTPS, with TLS 1.3 and 1.2. Files are read again when they change. Left out, plain HTTP.",
        ),
        &key(
            "redirect_to_https",
            At(Switch),
            |listen: &mut Listen| &mut listen.redirect_to_https,
            "Answers requests 308 to their `https` URL, for a listener without `tls`. Not those of routes whose `listener` names \
             listeners without `tls` alone (certificate challenges), nor those that came by https to a proxy of \
             `trusted_proxies` or `proxy_protocol`.",
        ),
        &key(
            "hsts",
            Maybe(At(HstsKind)),
            |listen: &mut Listen| &mut listen.hsts,
            "Tells browsers to keep to HTTPS for this long (Strict-Transport-Security). It is said to clients that \
             came by https: to a listener with `tls`, or to a proxy of `trusted_proxies` or `proxy_protocol` that says so.",
        ),
        &key(
            "http2",
            Switch,
            |listen: &mut Listen| &mut listen.http2,
            "HTTP/2 beside HTTP/1.1: agreed on in the TLS handshake; without `tls` for clients that begin with it.",
        ),
        &key(
            "rate",
            OneOrMany(BANDWIDTH),
            |listen: &mut Listen| &mut listen.rate,
            "Slows bodies of responses down, or what `tcp` passes on to clients: see `rate` of `[[route]]`. Limits of \
             listeners, routes and upstreams hold at once.",
        ),
        &key(
            "upload_rate",
            OneOrMany(BANDWIDTH),
            |listen: &mut Listen| &mut listen.upload_rate,
            "The same for bodies of requests, or what comes from clients.",
        ),
        &key(
            "profile",
            Maybe(At(Name {
                expected: "the name of a link such as lte, 3g, dsl, satellite or transpacific",
            })),
            |listen: &mut Listen| &mut listen.profile,
            "A link by name between each client and the proxy, with its rates, its round trip and packets that are lost: one of \
             `[profile.NAME]`, or one of those that `vanward proxy --help` lists. `rate` and `upload_rate` hold beside \
             its own; `connect_delay`, `latency` and `loss` go before them.",
        ),
        &key(
            "connect_delay",
            Maybe(DELAY),
            |listen: &mut Listen| &mut listen.link.connect_delay,
            "How late connections begin, TLS included. See `delay` of `[[route]]`.",
        ),
        &key(
            "latency",
            Maybe(DELAY),
            |listen: &mut Listen| &mut listen.link.latency,
            "How late each piece comes, either way, in their order. It narrows nothing: 16 MiB are on their way at most, each \
             way of a connection.",
        ),
        &key(
            "loss",
            Maybe(LOSS),
            |listen: &mut Listen| &mut listen.link.loss,
            "Packets of 1460 bytes that have to be sent once more: how many, and how long that takes. What is behind them \
             waits as well.",
        ),
    ],
};

const DAY: Duration = Duration::from_secs(24 * 3600);
pub(crate) const UP_TO_A_DAY: Wait = Wait { range: Duration::from_millis(1)..=DAY };
pub(crate) const UP_TO_A_YEAR: Wait =
    Wait { range: Duration::from_millis(1)..=Duration::from_secs(365 * 24 * 3600) };

static TIMEOUTS: Table<Timeouts> = Table {
    options: &[
        &key(
            "client_header",
            UP_TO_A_DAY,
            |timeouts: &mut Timeouts| &mut timeouts.client_header,
            "From the first byte of a request, or from accept, to the end of its head; then 408, over HTTP/2 the end of the \
             connection.",
        ),
        &key(
            "client_body",
            UP_TO_A_DAY,
            |timeouts: &mut Timeouts| &mut timeouts.client_body,
            "Without a byte of request body from the client, until the response begins; then 408. A client that waits \
             for `100 Continue` is not waited for.",
        ),
        &key(
            "client_write",
            UP_TO_A_DAY,
            |timeouts: &mut Timeouts| &mut timeouts.client_write,
            "Without a byte of the response taken by the client; then the connection is dropped.",
        ),
        &key(
            "keep_alive",
            UP_TO_A_DAY,
            |timeouts: &mut Timeouts| &mut timeouts.keep_alive,
            "Idle between two requests of a client; then its connection is closed.",
        ),
        &key(
            "upstream_connect",
            UP_TO_A_DAY,
            |timeouts: &mut Timeouts| &mut timeouts.upstream_connect,
            "To establish a connection to a server; then 504, after the other addresses of its name.",
        ),
        &key(
            "upstream_first_byte",
            UP_TO_A_DAY,
            |timeouts: &mut Timeouts| &mut timeouts.upstream_first_byte,
            "From the end of the request to the head of the response; then 504.",
        ),
        &key(
            "upstream_body",
            UP_TO_A_DAY,
            |timeouts: &mut Timeouts| &mut timeouts.upstream_body,
            "Without a byte of response body from the server, nor of a request body that is still on its way; then the \
             response is cut.",
        ),
        &key(
            "tunnel_idle",
            UP_TO_A_YEAR,
            |timeouts: &mut Timeouts| &mut timeouts.tunnel_idle,
            "Without a byte in either direction of an upgraded connection (WebSocket), or one that is passed on; \
             then it is closed.",
        ),
        &key(
            "drain",
            Wait { range: Duration::ZERO..=DAY },
            |timeouts: &mut Timeouts| &mut timeouts.drain,
            "What a drain waits at most for requests that are running.",
        ),
    ],
};

static LIMITS: Table<Limits> = Table {
    options: &[
        &key(
            "header_bytes",
            Count { range: 1024..=1 << 20, unit: Unit::Bytes },
            |limits: &mut Limits| &mut limits.header_bytes,
            "A message's head, start line included; more is 431, from a server 502.",
        ),
        &key(
            "header_count",
            Count { range: 1..=10_000, unit: Unit::Things },
            |limits: &mut Limits| &mut limits.header_count,
            "Header fields of a message; more is 431, from a server 502.",
        ),
        &key(
            "target_bytes",
            Count { range: 64..=1 << 20, unit: Unit::Bytes },
            |limits: &mut Limits| &mut limits.target_bytes,
            "A request's target; more is 414.",
        ),
        &key(
            "body_bytes",
            Unless { word: "none", kind: Count { range: 0..=u64::MAX, unit: Unit::Bytes } },
            |limits: &mut Limits| &mut limits.body_bytes,
            "A request's body; more is 413. `\"none\"` is no limit.",
        ),
        &key(
            "connections",
            Count { range: 1..=10_000_000, unit: Unit::Things },
            |limits: &mut Limits| &mut limits.connections,
            "Client connections in all; those beyond are answered 503 and closed.",
        ),
        &key(
            "requests_per_connection",
            Unless { word: "none", kind: Count { range: 1..=u64::MAX, unit: Unit::Things } },
            |limits: &mut Limits| &mut limits.requests_per_connection,
            "Requests of one client connection before it is closed. `\"none\"` is no limit.",
        ),
        &key(
            "minimum_rate",
            Count { range: 0..=1_000_000_000, unit: Unit::BytesPerSecond },
            |limits: &mut Limits| &mut limits.minimum_rate_bytes_per_second,
            "A client that sends a body or takes a response more slowly than this over `rate_window` is dropped. A body is \
             judged only while announced bytes of it are due: of its length, of a chunk, of a frame. What it waits for the \
             server is not counted, nor is a body that it sends beside the response. 0 is no minimum.",
        ),
        &key(
            "rate_window",
            Wait { range: Duration::from_secs(1)..=Duration::from_secs(3600) },
            |limits: &mut Limits| &mut limits.rate_window,
            "The span over which `minimum_rate` is judged.",
        ),
        &Section {
            name: "http2",
            table: &HTTP2_LIMITS,
            place: |limits: &mut Limits| &mut limits.http2,
            doc: "What a connection of HTTP/2 may send within a second of what costs its sender next to nothing. One that sends \
                  more is ended, with all its streams and a word in the log. Of servers settings, pings, priorities and empty \
                  frames are counted.",
        },
    ],
};

/// `[shed]`.
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
            "The most memory that the process may use before new requests are refused. `\"auto\"` is three quarters of what \
             its control groups or the machine allow.",
        ),
        &Switched {
            name: "concurrency",
            table: &CONCURRENCY,
            place: |shed: &mut ShedWritten| &mut shed.concurrency,
            doc: "How many requests may be under way with an upstream, found by each worker. While answers come in time there is \
                  no limit; once they take too long, it is as many as keep the servers busy, and no queue beyond.",
        },
    ],
};

static CONCURRENCY: Table<ShedSettings> = Table {
    options: &[
        &key(
            "latency_floor",
            Wait { range: Duration::from_millis(1)..=Duration::from_secs(3600) },
            |shed: &mut ShedSettings| &mut shed.latency_floor,
            "Answers up to this are never too late.",
        ),
        &key(
            "tolerance",
            Count { range: 101..=10_000, unit: Unit::Percent },
            |shed: &mut ShedSettings| &mut shed.tolerance_percent,
            "Nor are those up to so much of what they take usually.",
        ),
        &key(
            "min",
            Count { range: 1..=1_000_000, unit: Unit::Things },
            |shed: &mut ShedSettings| &mut shed.min,
            "So many are always admitted at a time.",
        ),
        &key(
            "crowd",
            Count { range: 0..=1_000_000, unit: Unit::Things },
            |shed: &mut ShedSettings| &mut shed.crowd,
            "So many clients may wait their turn: up to here a request is refused only where more come than are answered, and \
             answers take longer than `crowd_latency`.",
        ),
        &key(
            "crowd_latency",
            Wait { range: Duration::from_millis(1)..=Duration::from_secs(3600) },
            |shed: &mut ShedSettings| &mut shed.crowd_latency,
            "What answers may take for `crowd`.",
        ),
        &key(
            "window",
            Wait { range: Duration::from_millis(10)..=Duration::from_secs(60) },
            |shed: &mut ShedSettings| &mut shed.window,
            "How long answers are gathered for one step of the limit, at least.",
        ),
        &key(
            "samples_min",
            Count { range: 1..=balance::SAMPLES_MAX as u64, unit: Unit::Things },
            |shed: &mut ShedSettings| &mut shed.samples_min,
            "How many answers are gathered for one step, at least.",
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
    read: |text| socket_path(text).map_err(|fault| ValueError { fault, expected: SOCKET.expected }),
    print: |path| path.display().to_string(),
};
