//! Every option of the file, declared once: name, kind, default, meaning.
//!
//! To add one, add its field and its line here, and give it its meaning in `resolve`.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use toml::de::DeValue;

use crate::fault::{Fault, ValueError};
use crate::host::{
    HOST_HEADER, LISTEN_ADDRESS, NETWORK, ROUTE_HOST, host_header, listen_address, network, route_host,
};
use crate::kind::{
    At, Kind, List, Located, Maybe, Name, Switch, Text, Unless, Word, located, quoted, refuse_type,
};
use crate::meaning::{HostHeader, Limits, LogFormat, LogTarget, Pool, Protocol, Server, Timeouts};
use crate::nearest::nearest;
use crate::prefix::{PREFIX, prefix};
use crate::range::{Count, Unit, Wait};
use crate::reader::{Reader, Span};
use crate::server::SERVER;
use crate::table::{Element, Named, Page, Section, Sections, Table, Written, key, required};
use crate::tls::Hsts;
use crate::tls_options::{HstsKind, SERVER_TLS, ServerTlsWritten, UPSTREAM_TLS, UpstreamTlsWritten};

/// A file as written, each value understood, their relations not yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct File {
    pub(crate) workers: Option<usize>,
    pub(crate) trusted_proxies: Vec<IpNet>,
    pub(crate) listen: Vec<Element<Listen>>,
    pub(crate) routes: Vec<Element<RouteWritten>>,
    pub(crate) upstreams: Vec<(Span, String, UpstreamWritten)>,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: Limits,
    pub(crate) log: Log,
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
            "trusted_proxies",
            List { kind: NETWORK_KIND, may_be_empty: true },
            |file: &mut File| &mut file.trusted_proxies,
            "Networks of proxies in front of this one. Their `Forwarded` and `X-Forwarded-*` headers are appended \
             to; those of others are replaced.",
        ),
        &Sections {
            name: "listen",
            table: &LISTEN,
            place: |file: &mut File| &mut file.listen,
            doc: "An address that clients connect to. At least one.",
        },
        &Sections {
            name: "route",
            table: &ROUTE,
            place: |file: &mut File| &mut file.routes,
            doc: "Requests that match, and the upstream they go to. At least one. The most specific route wins, \
                  whatever the order: an exact host before any host, then the longest path.",
        },
        &Named {
            name: "upstream",
            table: &UPSTREAM,
            place: |file: &mut File| &mut file.upstreams,
            is_name: is_upstream_name,
            expected_name: UPSTREAM_NAME,
            doc: "Servers that answer for the same routes. NAME is 1 to 64 letters, digits, `.`, `-` and `_`.",
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
            name: "log",
            table: &LOG,
            place: |file: &mut File| &mut file.log,
            doc: "The access log. Without this table there is none.",
        },
    ],
};

const NETWORK_KIND: Text<IpNet> = Text { expected: NETWORK, read: network, print: IpNet::to_string };

/// `[[listen]]`.
#[derive(Debug, Clone)]
pub(crate) struct Listen {
    pub(crate) address: Option<Located<std::net::SocketAddr>>,
    pub(crate) tls: Option<Element<ServerTlsWritten>>,
    pub(crate) redirect_to_https: Located<bool>,
    pub(crate) hsts: Option<Located<Hsts>>,
    pub(crate) http2: bool,
}

impl Default for Listen {
    fn default() -> Self {
        Self { address: None, tls: None, redirect_to_https: located(false), hsts: None, http2: true }
    }
}

static LISTEN: Table<Listen> = Table {
    options: &[
        &required(
            "address",
            Maybe(At(Text { expected: LISTEN_ADDRESS, read: listen_address, print: ToString::to_string })),
            |listen: &mut Listen| &mut listen.address,
            "Where to listen. `0.0.0.0` and `[::]` are all addresses of the machine; port 0 lets the kernel choose.",
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
            "Answers every request 308 to its `https` URL, for a listener without `tls`.",
        ),
        &key(
            "hsts",
            Maybe(At(HstsKind)),
            |listen: &mut Listen| &mut listen.hsts,
            "Tells browsers to keep to HTTPS for this long (Strict-Transport-Security), for a listener with `tls`.",
        ),
        &key(
            "http2",
            Switch,
            |listen: &mut Listen| &mut listen.http2,
            "HTTP/2 beside HTTP/1.1: agreed on in the TLS handshake; without `tls` for clients that begin with it.",
        ),
    ],
};

/// `[[route]]`.
#[derive(Debug, Clone)]
pub(crate) struct RouteWritten {
    pub(crate) host: Option<String>,
    pub(crate) path: String,
    pub(crate) upstream: Option<Located<String>>,
}

impl Default for RouteWritten {
    fn default() -> Self {
        Self { host: None, path: "/".to_owned(), upstream: None }
    }
}

static ROUTE: Table<RouteWritten> = Table {
    options: &[
        &key(
            "host",
            Maybe(Text { expected: ROUTE_HOST, read: route_host, print: String::clone }),
            |route: &mut RouteWritten| &mut route.host,
            "The host that requests name, exactly, whatever the port and the case. Left out it is any host.",
        ),
        &key(
            "path",
            Text { expected: PREFIX, read: prefix, print: String::clone },
            |route: &mut RouteWritten| &mut route.path,
            "The start of the path, by whole segments: `/api` is for `/api` and `/api/x`, not for `/apix`.",
        ),
        &required(
            "upstream",
            Maybe(At(Name { expected: "the name of an upstream: NAME of [upstream.NAME]" })),
            |route: &mut RouteWritten| &mut route.upstream,
            "Where these requests go.",
        ),
    ],
};

/// `[upstream.NAME]`.
#[derive(Debug, Clone, Default)]
pub(crate) struct UpstreamWritten {
    pub(crate) servers: Vec<Located<Server>>,
    pub(crate) balance: (),
    pub(crate) host: HostHeader,
    pub(crate) protocol: Protocol,
    pub(crate) tls: Option<Element<UpstreamTlsWritten>>,
    pub(crate) pool: Pool,
}

static UPSTREAM: Table<UpstreamWritten> = Table {
    options: &[
        &required(
            "servers",
            List { kind: At(ServerKind), may_be_empty: false },
            |upstream: &mut UpstreamWritten| &mut upstream.servers,
            "The servers: `\"http://HOST:PORT\"` or `\"https://HOST:PORT\"`, or `{ url = \"http://HOST:PORT\", weight = 2 }`. \
             The port is 80 unless written, with `https` 443.",
        ),
        &key(
            "balance",
            Word { words: &[("round-robin", ())] },
            |upstream: &mut UpstreamWritten| &mut upstream.balance,
            "How a server is picked for a request. `\"round-robin\"`: each in turn, by weight.",
        ),
        &key(
            "host",
            HostKind,
            |upstream: &mut UpstreamWritten| &mut upstream.host,
            "The Host header that servers see: `\"pass\"` the client's, `\"server\"` the server's own, or a fixed one.",
        ),
        &key(
            "protocol",
            Word { words: &[("http/1.1", Protocol::Http1), ("h2", Protocol::Http2)] },
            |upstream: &mut UpstreamWritten| &mut upstream.protocol,
            "What is spoken with the servers. `\"h2\"` is HTTP/2, without `https` from the first byte on.",
        ),
        &key(
            "tls",
            Maybe(UPSTREAM_TLS),
            |upstream: &mut UpstreamWritten| &mut upstream.tls,
            "How `https` servers are verified, and what is shown to them. Files are read again when they change.",
        ),
        &Section {
            name: "pool",
            table: &POOL,
            place: |upstream: &mut UpstreamWritten| &mut upstream.pool,
            doc: "Connections that each worker keeps to each server of the upstream.",
        },
    ],
};

const UPSTREAM_NAME: &str = "1 to 64 letters, digits, '.', '-' and '_'";

fn is_upstream_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

/// A server as a URL, or as a table with its weight.
struct ServerKind;

/// `{ url, weight }`.
#[derive(Debug, Clone)]
struct ServerWritten {
    url: Option<Server>,
    weight: u32,
}

impl Default for ServerWritten {
    fn default() -> Self {
        Self { url: None, weight: 1 }
    }
}

const URL_KIND: Text<Server> = Text { expected: SERVER, read: str::parse, print: Server::to_string };

static SERVER_WRITTEN: Table<ServerWritten> = Table {
    options: &[
        &required(
            "url",
            Maybe(URL_KIND),
            |server: &mut ServerWritten| &mut server.url,
            "The server, where it is written as a table.",
        ),
        &key(
            "weight",
            Count { range: 1..=1000, unit: Unit::Things },
            |server: &mut ServerWritten| &mut server.weight,
            "Its share of the requests, relative to the other servers.",
        ),
    ],
};

impl Kind<Server> for ServerKind {
    fn expected(&self) -> String {
        format!("{SERVER}, or {{ url = \"http://127.0.0.1:9000\", weight = 2 }}")
    }

    fn brief(&self) -> String {
        "URL or table".to_owned()
    }

    fn document(&self, page: &mut Page) {
        SERVER_WRITTEN.document("", page);
    }

    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Server> {
        match written.value.get_ref() {
            DeValue::String(_) => URL_KIND.read(written, reader),
            DeValue::Table(entries) => {
                let names = ("this server", written.path);
                let server = SERVER_WRITTEN.read(names, entries, &written.value.span(), reader);
                Some(Server { weight: server.weight, ..server.url? })
            }
            _ => {
                refuse_type(written, self.expected(), reader);
                None
            }
        }
    }

    fn print(&self, server: &Server) -> Option<String> {
        let url = quoted(&server.to_string());
        Some(match server.weight {
            1 => url,
            weight => format!("{{ url = {url}, weight = {weight} }}"),
        })
    }
}

/// `"pass"`, `"server"` or `{ set = "…" }`.
struct HostKind;

const HOST_WORDS: Word<HostHeader> =
    Word { words: &[("pass", HostHeader::Pass), ("server", HostHeader::Server)] };

/// `{ set }`.
#[derive(Debug, Clone, Default)]
struct HostWritten {
    set: Option<String>,
}

static HOST_WRITTEN: Table<HostWritten> = Table {
    options: &[&required(
        "set",
        Maybe(Text { expected: HOST_HEADER, read: host_header, print: String::clone }),
        |host: &mut HostWritten| &mut host.set,
        "The fixed Host header.",
    )],
};

impl Kind<HostHeader> for HostKind {
    fn expected(&self) -> String {
        "\"pass\", \"server\" or { set = \"www.example.com\" }".to_owned()
    }

    fn document(&self, page: &mut Page) {
        HOST_WRITTEN.document("", page);
    }

    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<HostHeader> {
        match written.value.get_ref() {
            DeValue::Table(entries) => {
                let names = ("this host", written.path);
                HOST_WRITTEN.read(names, entries, &written.value.span(), reader).set.map(HostHeader::Set)
            }
            DeValue::String(text) if !matches!(text.as_ref(), "pass" | "server") => {
                let mistake = reader.mistake(&written.value.span(), format!("host: unknown word {text:?}"));
                let near = nearest(text, ["pass", "server"]).map(str::to_owned);
                reader.add(mistake.expecting(self.expected()).meaning(near));
                None
            }
            DeValue::String(_) => HOST_WORDS.read(written, reader),
            _ => {
                refuse_type(written, self.expected(), reader);
                None
            }
        }
    }

    fn print(&self, host: &HostHeader) -> Option<String> {
        match host {
            HostHeader::Set(value) => Some(format!("{{ set = {} }}", quoted(value))),
            word => HOST_WORDS.print(word),
        }
    }
}

static POOL: Table<Pool> = Table {
    options: &[
        &key(
            "idle",
            Count { range: 0..=1_000_000, unit: Unit::Things },
            |pool: &mut Pool| &mut pool.idle,
            "Idle connections kept for reuse.",
        ),
        &key(
            "connections",
            Count { range: 1..=1_000_000, unit: Unit::Things },
            |pool: &mut Pool| &mut pool.connections,
            "Connections in all, busy ones included; requests beyond are answered 503.",
        ),
        &key(
            "idle_timeout",
            UP_TO_A_DAY,
            |pool: &mut Pool| &mut pool.idle_timeout,
            "An idle connection is closed after this long.",
        ),
    ],
};

const DAY: Duration = Duration::from_secs(24 * 3600);
const UP_TO_A_DAY: Wait = Wait { range: Duration::from_millis(1)..=DAY };
const UP_TO_A_YEAR: Wait = Wait { range: Duration::from_millis(1)..=Duration::from_secs(365 * 24 * 3600) };

static TIMEOUTS: Table<Timeouts> = Table {
    options: &[
        &key(
            "client_header",
            UP_TO_A_DAY,
            |timeouts: &mut Timeouts| &mut timeouts.client_header,
            "From the first byte of a request, or from accept, to the end of its head; then 408.",
        ),
        &key(
            "client_body",
            UP_TO_A_DAY,
            |timeouts: &mut Timeouts| &mut timeouts.client_body,
            "Without a byte of request body from the client; then 408.",
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
            "Without a byte of response body from the server; then the response is cut.",
        ),
        &key(
            "tunnel_idle",
            UP_TO_A_YEAR,
            |timeouts: &mut Timeouts| &mut timeouts.tunnel_idle,
            "Without a byte in either direction of an upgraded connection (WebSocket); then it is closed.",
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
            "A client that sends a body or takes a response more slowly than this over `rate_window` is dropped. \
             0 is no minimum.",
        ),
        &key(
            "rate_window",
            Wait { range: Duration::from_secs(1)..=Duration::from_secs(3600) },
            |limits: &mut Limits| &mut limits.rate_window,
            "The span over which `minimum_rate` is judged.",
        ),
    ],
};

/// `[log]`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log {
    pub(crate) target: Option<LogTarget>,
    pub(crate) format: LogFormat,
}

static LOG: Table<Log> = Table {
    options: &[
        &required(
            "target",
            Unless { word: "off", kind: TARGET_KIND },
            |log: &mut Log| &mut log.target,
            "Standard output, a file that lines are appended to, or nothing.",
        ),
        &key(
            "format",
            Word { words: &[("combined", LogFormat::Combined), ("json", LogFormat::Json)] },
            |log: &mut Log| &mut log.format,
            "`\"combined\"` is the Combined Log Format of Apache httpd; `\"json\"` is one object a line, with timings \
             and the cause of a failure.",
        ),
    ],
};

const TARGET: &str = "\"stdout\" or a path with a /, such as /var/log/vanward.log or ./access.log";
const TARGET_KIND: Text<LogTarget> = Text { expected: TARGET, read: log_target, print: written_target };

/// A path has a slash, so that `"stdot"` doesn't become a file.
fn log_target(text: &str) -> Result<LogTarget, ValueError> {
    match text {
        "stdout" => Ok(LogTarget::Stdout),
        path if path.contains('/') && !path.ends_with('/') && !path.contains('\0') => {
            Ok(LogTarget::File(PathBuf::from(path)))
        }
        other => {
            let nearest = nearest(other, ["stdout", "off"]);
            Err(ValueError {
                fault: Fault::NotAPath { written: other.to_owned(), nearest },
                expected: TARGET,
            })
        }
    }
}

fn written_target(target: &LogTarget) -> String {
    match target {
        LogTarget::Stdout => "stdout".to_owned(),
        LogTarget::File(path) => path.display().to_string(),
    }
}
