//! Options of upstreams, declared once. `relations` has their rules, `resolve` converts them.

use std::num::NonZeroU32;
use std::time::Duration;

use ::route::ProxyVersion;
use balance::{BreakerSettings, EjectionSettings, FleetSettings, NoneUp, PolicyRow, SessionSource};
use mistake::nearest;
use toml::de::DeValue;

use crate::document::foreign;
use crate::document::reader::Reader;
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::bandwidth::{BANDWIDTH, Bandwidths};
use crate::option::delay::{DELAY, LOSS};
use crate::option::form::Form;
use crate::option::host::{HOST_HEADER, host_header};
use crate::option::kind::{
    At, Described, Kind, List, Located, Maybe, Switch, Text, Unless, Word, quoted, refuse_type,
};
use crate::option::pairs::OneOrMany;
use crate::option::range::{Count, NonZero, UP_TO_A_DAY, Unit, Wait};
use crate::option::section::{EXPECTED_NAME, is_name, section, switched};
use crate::option::server::{SERVER, Server};
use crate::option::table::{Element, Table, Written, element, key, one_of, required};
use crate::option::value_key::HashKeyKind;
use crate::tables::shaping::Link;
use crate::tables::tls::options::{UPSTREAM_TLS, UpstreamTlsWritten};
use crate::tables::upstream::fastcgi::{FASTCGI, FastcgiWritten};
use crate::tables::upstream::retry::{RETRY, RetryWritten};
use crate::tables::upstream::sticky::{STICKY_TABLE, StickyWritten};
use crate::tables::upstream::watch::{BREAKER, CHECK, CheckWritten, EJECT};
use crate::tables::upstream::{Dns, HostHeader, Pool, Protocol, QueueSettings, Upstream};

#[derive(Debug, Clone)]
pub(crate) struct UpstreamWritten {
    pub(crate) servers: Vec<Located<Server>>,
    pub(crate) dns: Dns,
    pub(crate) balance: &'static PolicyRow,
    pub(crate) hash_key: Option<Located<SessionSource>>,
    pub(crate) load_bound: Option<Located<Option<NonZeroU32>>>,
    /// The fleet settings, without those that have a separate field here.
    pub(crate) settings: FleetSettings,
    pub(crate) sticky: Option<Element<StickyWritten>>,
    pub(crate) queue: QueueSettings,
    pub(crate) check: Option<Element<CheckWritten>>,
    pub(crate) eject: Option<Element<EjectionSettings>>,
    pub(crate) breaker: Option<Element<BreakerSettings>>,
    pub(crate) retry: RetryWritten,
    pub(crate) send_proxy_protocol: Option<Located<ProxyVersion>>,
    pub(crate) host: HostHeader,
    pub(crate) protocol: Protocol,
    pub(crate) fastcgi: Option<Element<FastcgiWritten>>,
    pub(crate) tls: Option<Element<UpstreamTlsWritten>>,
    pub(crate) pool: Pool,
    pub(crate) bandwidths: Bandwidths,
    pub(crate) link: Link,
}

impl Default for UpstreamWritten {
    fn default() -> Self {
        let settings = Upstream::default_settings();
        Self {
            servers: Vec::new(),
            dns: Dns::default(),
            balance: balance::DEFAULT,
            hash_key: None,
            load_bound: None,
            settings,
            sticky: None,
            queue: QueueSettings::default(),
            check: None,
            eject: settings.ejection.map(element),
            breaker: settings.breaker.map(element),
            retry: RetryWritten::default(),
            send_proxy_protocol: None,
            host: HostHeader::default(),
            protocol: Protocol::default(),
            fastcgi: None,
            tls: None,
            pool: Pool::default(),
            bandwidths: Bandwidths::default(),
            link: Link::default(),
        }
    }
}

impl UpstreamWritten {
    /// The protocol that the servers speak: FastCGI has an option with its scripts, the others have a word.
    pub(crate) fn spoken(&self) -> Protocol {
        if self.fastcgi.is_some() { Protocol::Fastcgi } else { self.protocol }
    }

    /// The values in the keys of requests, each with its option.
    pub(crate) fn keyed_by(&self) -> Vec<(&'static str, &str)> {
        let hash_key = self.hash_key.as_ref().map(|key| ("hash_key", &key.value));
        let sticky = self.sticky.as_ref().and_then(|sticky| sticky.value.by.as_ref()?.value.as_ref());
        let all = hash_key.into_iter().chain(sticky.map(|source| ("sticky", source)));
        all.filter_map(|(option, source)| match source {
            SessionSource::Value(name) => Some((option, name.as_str())),
            _ => None,
        })
        .collect()
    }
}

pub(crate) static UPSTREAM: Table<UpstreamWritten> = Table {
    options: &[
        required!(
            "servers",
            List { kind: At(ServerKind), may_be_empty: false },
            UpstreamWritten.servers,
            "Servers: `\"http://HOST:PORT\"`, `\"https://HOST:PORT\"`, `\"http+unix:/PATH\"` for a Unix \
             socket, `\"fcgi://HOST:PORT\"` or `\"fcgi+unix:/PATH\"` for [FastCGI](fastcgi.md), \
             `\"tcp://HOST:PORT\"` for listeners with `tcp`; or a table with more options. Default port: 80, with `https` 443. `\"http+srv://SERVICE\"`, `\"https+srv://SERVICE\"`, \
             `\"tcp+srv://SERVICE\"`: the servers of its SRV records, see [discovery](discovery.md#dns-srv). \
             `\"http+consul://SERVICE?tag=TAG&dc=DATACENTER\"`, `\"https+consul://…\"` or `\"tcp+consul://…\"`: its healthy \
             instances in [Consul](discovery.md#consul).",
        ),
        key!(
            "dns",
            Word { words: &[("all", Dns::All), ("one", Dns::One)] },
            UpstreamWritten.dns,
            "A name with several addresses. `\"all\"`: each address is a server, and servers follow the DNS \
             records; if there are IPv4 and IPv6 addresses, only IPv4 is used, so that a machine with both \
             counts once. `\"one\"`: one server, whose addresses are tried one after the other.",
        ),
        key!(
            "balance",
            PolicyKind,
            UpstreamWritten.balance,
            "Balancing policy; all respect weights. `\"round-robin\"`: in turn. `\"least-connections\"`: \
             the fewest requests in progress. `\"two-choices\"`: the less busy of two random \
             servers. `\"response-time\"`: the one of two that is likely to respond first. \
             `\"client-address\"`: the same server for a client. `\"consistent-hash\"`: the \
             same server for a key.",
        ),
        key!(
            "hash_key",
            Maybe(At(HashKeyKind)),
            UpstreamWritten.hash_key,
            "With `client-address` and `consistent-hash`: what is hashed. `${app}` is a value. Default: `client`, the address, \
             for IPv6 its first 64 bits.",
        ),
        key!(
            "load_bound",
            Maybe(At(Unless {
                word: "off",
                kind: NonZero(Count { range: 100..=10_000, unit: Unit::Percent }),
            })),
            UpstreamWritten.load_bound,
            "With `consistent-hash`: a server takes up to this percentage of its share of concurrent \
             requests; above it keys move to other servers. Default: 125%.",
        ),
        key!(
            "latency_memory",
            Wait { range: Duration::from_millis(100)..=Duration::from_secs(3600) },
            UpstreamWritten.settings.latency_memory,
            "With `response-time`: how long a response influences the choice.",
        ),
        key!(
            "slow_start",
            Wait { range: Duration::ZERO..=Duration::from_secs(3600) },
            UpstreamWritten.settings.slow_start,
            "A returning server starts with a tenth of its weight, and reaches its full weight after \
             this time.",
        ),
        key!(
            "priority_suffices",
            Count { range: 0..=100, unit: Unit::Percent },
            UpstreamWritten.settings.group_suffices_percent,
            "The next priority is used as well when less than this share of a priority's weight is up. 0%: \
             one server is enough.",
        ),
        key!(
            "none_up",
            Word {
                words: &[("try-all", NoneUp::TryAll), ("refuse", NoneUp::Refuse), ("fail", NoneUp::Fail)],
            },
            UpstreamWritten.settings.none_up,
            "If checks leave no server: `\"try-all\"` uses all servers as if they were up, `\"refuse\"` responds 503, \
             `\"fail\"` 500, for servers that will not recover. Ejected servers are used before that.",
        ),
        key!(
            "send_proxy_protocol",
            Maybe(At(Word { words: &[("v1", ProxyVersion::V1), ("v2", ProxyVersion::V2)] })),
            UpstreamWritten.send_proxy_protocol,
            "Starts each connection to a server with a PROXY header that names the client. Such a \
             connection serves only that client.",
        ),
        key!(
            "host",
            HostKind,
            UpstreamWritten.host,
            "Host field that servers get: `\"pass\"` the client's, `\"server\"` the server's own, or a \
             fixed one.",
        ),
        key!(
            "protocol",
            Word {
                words: &[("http/1.1", Protocol::Http1), ("h2", Protocol::Http2), ("h3", Protocol::Http3)],
            },
            UpstreamWritten.protocol,
            "Protocol to servers. `\"h2\"` is HTTP/2; without `https` by prior knowledge. `\"h3\"` is \
             HTTP/3, over QUIC, to `https` servers; no other protocol is tried. See \
             [HTTP/3](http3.md#to-servers).",
        ),
        key!(
            "fastcgi",
            Maybe(FASTCGI),
            UpstreamWritten.fastcgi,
            "For `fcgi` servers: the scripts of the application. See [FastCGI](fastcgi.md).",
        ),
        key!(
            "tls",
            Maybe(UPSTREAM_TLS),
            UpstreamWritten.tls,
            "How the certificates of `https` servers are verified, and the client certificate. Files are \
             read again when they change.",
        ),
        key!(
            "rate",
            OneOrMany(BANDWIDTH),
            UpstreamWritten.bandwidths.down,
            "Limits the rate of data from all these servers together: see `rate` of \
             `[[route]]`.",
        ),
        key!(
            "upload_rate",
            OneOrMany(BANDWIDTH),
            UpstreamWritten.bandwidths.up,
            "Limits the rate of data to these servers.",
        ),
        key!(
            "connect_delay",
            Maybe(DELAY),
            UpstreamWritten.link.connect_delay,
            "Delays connecting to servers; counts towards `upstream_connect`. See `delay` of `[[route]]`.",
        ),
        key!(
            "latency",
            Maybe(DELAY),
            UpstreamWritten.link.latency,
            "Delays all data in both directions: see `latency` of `[[listen]]`.",
        ),
        key!(
            "loss",
            Maybe(LOSS),
            UpstreamWritten.link.loss,
            "Emulates packet loss: see `loss` of `[[listen]]`.",
        ),
        switched!(
            "sticky",
            STICKY_TABLE,
            UpstreamWritten.sticky,
            "Sticky sessions: a client stays on its first server while that server is available."
        ),
        section!(
            "queue",
            QUEUE,
            UpstreamWritten.queue,
            "Queue of requests that wait while every server has its `max_requests`."
        ),
        switched!("check", CHECK, UpstreamWritten.check, "Active health checks of each server."),
        switched!(
            "eject",
            EJECT,
            UpstreamWritten.eject,
            "Outlier ejection (passive health checks): servers that respond worse than the others get \
                  no requests for a while."
        ),
        switched!(
            "breaker",
            BREAKER,
            UpstreamWritten.breaker,
            "Circuit breaker for each server: after failures it gets only a few trial requests."
        ),
        section!("retry", RETRY, UpstreamWritten.retry, "Retries of failed requests, within a budget."),
        section!("pool", POOL, UpstreamWritten.pool, "Connection pool of each worker, for each server."),
    ],
};

static QUEUE: Table<QueueSettings> = Table {
    options: &[
        key!(
            "length",
            Count { range: 0..=1_000_000, unit: Unit::Things },
            QueueSettings.length,
            "Maximum number of waiting requests per worker; further ones get 503. 0: no queue.",
        ),
        key!(
            "timeout",
            UP_TO_A_DAY,
            QueueSettings.timeout,
            "Maximum wait; then 503. A client that closes its connection, or its sending side, leaves the queue.",
        ),
    ],
};

/// A policy of `balance::POLICIES`.
struct PolicyKind;

fn policy_names() -> Vec<&'static str> {
    balance::POLICIES.iter().map(|row| row.name).collect()
}

impl Described for PolicyKind {
    fn form(&self) -> Form {
        Form::words({
            let quoted: Vec<String> = policy_names().into_iter().map(quoted).collect();
            one_of(&quoted.iter().map(String::as_str).collect::<Vec<_>>())
        })
    }
}

impl Kind<&'static PolicyRow> for PolicyKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<&'static PolicyRow> {
        let DeValue::String(text) = written.value.get_ref() else {
            refuse_type(written, self.expected(), reader);
            return None;
        };
        let row = balance::policy(text);
        if row.is_none() {
            let message = format!("{}: unknown word {text:?}", written.name);
            let mistake = reader.mistake(&written.value.span(), message);
            let names = policy_names();
            let meant = foreign::word(text, &names).or_else(|| nearest(text, names.iter().copied()));
            let nearest = meant.map(str::to_owned);
            reader.add(mistake.expecting(self.expected()).meaning(nearest));
        }
        row
    }

    fn print(&self, row: &&'static PolicyRow) -> Option<String> {
        Some(quoted(row.name))
    }
}

/// A server as a URL, or as a table with more.
pub(crate) struct ServerKind;

const SERVER_OR_TABLE: &str =
    "a server such as http://127.0.0.1:9000, or { url = \"http://127.0.0.1:9000\", weight = 2 }";

/// `{ url, weight, … }`.
#[derive(Debug, Clone)]
struct ServerWritten {
    url: Option<Server>,
    name: Option<String>,
    weight: u32,
    down: bool,
    priority: u16,
    max_requests: Option<NonZeroU32>,
}

impl Default for ServerWritten {
    fn default() -> Self {
        Self { url: None, name: None, weight: 1, down: false, priority: 0, max_requests: None }
    }
}

const URL_KIND: Text<Server> = Text { expected: SERVER, read: str::parse, print: Server::to_string };

static SERVER_WRITTEN: Table<ServerWritten> = Table {
    options: &[
        required!("url", Maybe(URL_KIND), ServerWritten.url, "URL of the server, if the server is a table.",),
        key!(
            "weight",
            Count { range: 0..=1000, unit: Unit::Things },
            ServerWritten.weight,
            "Share of the requests, relative to the other servers. 0: no new clients; sticky sessions stay, \
             as with `vanward drain`. `vanward weigh` changes it in the running proxy.",
        ),
        key!(
            "down",
            Switch,
            ServerWritten.down,
            "The server gets no requests at all, and its sticky sessions move to others, until `vanward restore` or a \
             reload without this option.",
        ),
        key!(
            "priority",
            Count { range: 0..=1000, unit: Unit::Things },
            ServerWritten.priority,
            "Servers with the lowest number are used first; the next group is used if too few of these are \
             up, and for retries. See [backups](balancing.md#backups).",
        ),
        key!(
            "max_requests",
            Unless { word: "none", kind: NonZero(Count { range: 1..=1_000_000, unit: Unit::Things }) },
            ServerWritten.max_requests,
            "Maximum number of concurrent requests to the server, over all workers; further requests go to \
             other servers, or wait.",
        ),
        key!(
            "name",
            Maybe(Text { expected: SERVER_NAME, read: server_name, print: String::clone }),
            ServerWritten.name,
            "Name in logs, metrics and sessions. Default: its URL.",
        ),
    ],
};

const SERVER_NAME: &str = EXPECTED_NAME;

fn server_name(text: &str) -> Result<String, ValueError> {
    if is_name(text) {
        return Ok(text.to_owned());
    }
    Err(ValueError {
        fault: ValueFault::Unknown { written: text.to_owned(), why: "cannot be a name", nearest: None },
        expected: SERVER_NAME,
    })
}

impl Described for ServerKind {
    fn form(&self) -> Form {
        Form::WordsOrTable { expected: SERVER_OR_TABLE, brief: "URL or table", table: &SERVER_WRITTEN }
    }
}

impl Kind<Server> for ServerKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Server> {
        match written.value.get_ref() {
            DeValue::String(_) => URL_KIND.read(written, reader),
            DeValue::Table(entries) => {
                let names = ("this server", written.path);
                let server = SERVER_WRITTEN.read(names, entries, &written.value.span(), reader);
                let ServerWritten { url, name, weight, down, priority, max_requests } = server;
                Some(Server { name, weight, down, priority, max_requests, ..url? })
            }
            _ => {
                refuse_type(written, self.expected(), reader);
                None
            }
        }
    }

    fn print(&self, server: &Server) -> Option<String> {
        let Server { name, weight, down, priority, max_requests, .. } = server;
        let (name, weight, down) = (name.clone(), *weight, *down);
        let (priority, max_requests) = (*priority, *max_requests);
        if (&name, weight, down, priority, max_requests) == (&None, 1, false, 0, None) {
            return URL_KIND.print(server);
        }
        let written = ServerWritten { url: Some(server.clone()), name, weight, down, priority, max_requests };
        Some(SERVER_WRITTEN.print_given(&written))
    }
}

/// `"pass"`, `"server"` or `{ set = "…" }`.
struct HostKind;

const HOST_WORDS_OR_TABLE: &str = "\"pass\", \"server\" or { set = \"www.example.com\" }";

const HOST_WORDS: Word<HostHeader> =
    Word { words: &[("pass", HostHeader::Pass), ("server", HostHeader::Server)] };

/// `{ set }`.
#[derive(Debug, Clone, Default)]
struct HostWritten {
    set: Option<String>,
}

static HOST_WRITTEN: Table<HostWritten> = Table {
    options: &[required!(
        "set",
        Maybe(Text { expected: HOST_HEADER, read: host_header, print: String::clone }),
        HostWritten.set,
        "The fixed Host field.",
    )],
};

impl Described for HostKind {
    fn form(&self) -> Form {
        Form::WordsOrTable { expected: HOST_WORDS_OR_TABLE, brief: HOST_WORDS_OR_TABLE, table: &HOST_WRITTEN }
    }
}

impl Kind<HostHeader> for HostKind {
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
        key!(
            "idle",
            Count { range: 0..=1_000_000, unit: Unit::Things },
            Pool.idle,
            "Maximum number of idle connections. How many are kept depends on recent use; the surplus is \
             closed gradually, faster if file descriptors or memory run short. 0: none are \
             kept.",
        ),
        key!(
            "connections",
            Count { range: 1..=1_000_000, unit: Unit::Things },
            Pool.connections,
            "Maximum number of connections, including busy ones; further requests get 503.",
        ),
        key!(
            "idle_timeout",
            UP_TO_A_DAY,
            Pool.idle_timeout,
            "Maximum idle time of a connection; then it is closed.",
        ),
        key!(
            "connect_timeout",
            Maybe(UP_TO_A_DAY),
            Pool.connect_timeout,
            "To connect to one of these servers; then the next address of its name is tried, and after the last \
             the client gets 504. Default: `upstream_connect` in `[timeouts]`.",
        ),
    ],
};
