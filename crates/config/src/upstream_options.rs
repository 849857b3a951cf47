//! The options of upstreams, declared once. What they mean together is in `upstream_resolve`.

use std::num::NonZeroU32;
use std::time::Duration;

use ::route::ProxyVersion;
use balance::{BreakerSettings, EjectionSettings, NoneUp, PolicyRow, Settings, Source};
use toml::de::DeValue;

use crate::bandwidth::BANDWIDTH;
use crate::delay::{DELAY, LOSS};
use crate::fault::{Fault, ValueError};
use crate::foreign;
use crate::host::{HOST_HEADER, host_header};
use crate::keys::HASH_KEY;
use crate::kind::{At, Kind, List, Located, Maybe, Text, Unless, Word, quoted, refuse_type};
use crate::meaning::{Bandwidth, Dns, HostHeader, Link, Pool, Protocol, QueueSettings, Server, Upstream};
use crate::options::UP_TO_A_DAY;
use crate::pairs::OneOrMany;
use crate::range::{Count, NonZero, Unit, Wait};
use crate::reader::Reader;
use crate::retry_options::{RETRY, RetryWritten};
use crate::section::Switched;
use crate::server::SERVER;
use crate::sticky_options::{STICKY_TABLE, StickyWritten};
use crate::table::{Element, Page, Section, Table, Written, element, key, one_of, required};
use crate::tls_options::{UPSTREAM_TLS, UpstreamTlsWritten};
use crate::watch_options::{BREAKER, CHECK, CheckWritten, EJECT};
use mistake::nearest;

/// `[upstream.NAME]`.
#[derive(Debug, Clone)]
pub(crate) struct UpstreamWritten {
    pub(crate) servers: Vec<Located<Server>>,
    pub(crate) dns: Dns,
    pub(crate) balance: &'static PolicyRow,
    pub(crate) hash_key: Option<Located<Source>>,
    pub(crate) load_bound: Option<Located<Option<NonZeroU32>>>,
    /// Without what has an option or a table of its own here.
    pub(crate) settings: Settings,
    pub(crate) sticky: Option<Element<StickyWritten>>,
    pub(crate) queue: QueueSettings,
    pub(crate) check: Option<Element<CheckWritten>>,
    pub(crate) eject: Option<Element<EjectionSettings>>,
    pub(crate) breaker: Option<Element<BreakerSettings>>,
    pub(crate) retry: RetryWritten,
    pub(crate) send_proxy_protocol: Option<Located<ProxyVersion>>,
    pub(crate) host: HostHeader,
    pub(crate) protocol: Protocol,
    pub(crate) tls: Option<Element<UpstreamTlsWritten>>,
    pub(crate) pool: Pool,
    pub(crate) rate: Vec<Bandwidth>,
    pub(crate) upload_rate: Vec<Bandwidth>,
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
            tls: None,
            pool: Pool::default(),
            rate: Vec::new(),
            upload_rate: Vec::new(),
            link: Link::default(),
        }
    }
}

pub(crate) static UPSTREAM: Table<UpstreamWritten> = Table {
    options: &[
        &required(
            "servers",
            List { kind: At(ServerKind), may_be_empty: false },
            |upstream: &mut UpstreamWritten| &mut upstream.servers,
            "The servers: `\"http://HOST:PORT\"`, `\"https://HOST:PORT\"`, `\"http+unix:/PATH\"` for a Unix socket, \
             `\"tcp://HOST:PORT\"` for listeners with `tcp`; or a table with more. The port is 80 unless written, with \
             `https` 443.",
        ),
        &key(
            "dns",
            Word { words: &[("all", Dns::All), ("one", Dns::One)] },
            |upstream: &mut UpstreamWritten| &mut upstream.dns,
            "What a name with several addresses stands for. `\"all\"`: as many servers, which come and go with its records; \
             of a name with addresses of both families those of IPv4, as a machine that has one of each is one server. \
             `\"one\"`: one server, whose addresses are tried in turn.",
        ),
        &key(
            "balance",
            PolicyKind,
            |upstream: &mut UpstreamWritten| &mut upstream.balance,
            "How a server is picked for a request, by weight: each in turn; the one with the least under way; the less busy \
             of two drawn at random; the one of two that is likely to answer first; always the same for a client; always \
             the same for a key.",
        ),
        &key(
            "hash_key",
            Maybe(At(HASH_KEY)),
            |upstream: &mut UpstreamWritten| &mut upstream.hash_key,
            "With `client-address` and `consistent-hash`: what stays on one server. Left out, `client`: the address, of \
             IPv6 its first 64 bits.",
        ),
        &key(
            "load_bound",
            Maybe(At(Unless {
                word: "off",
                kind: NonZero(Count { range: 100..=10_000, unit: Unit::Percent }),
            })),
            |upstream: &mut UpstreamWritten| &mut upstream.load_bound,
            "With `consistent-hash`: how much of its share a server may have under way before keys go elsewhere. Left out, \
             125%.",
        ),
        &key(
            "latency_memory",
            Wait { range: Duration::from_millis(100)..=Duration::from_secs(3600) },
            |upstream: &mut UpstreamWritten| &mut upstream.settings.latency_memory,
            "With `response-time`: for how long an answer counts.",
        ),
        &key(
            "slow_start",
            Wait { range: Duration::ZERO..=Duration::from_secs(3600) },
            |upstream: &mut UpstreamWritten| &mut upstream.settings.slow_start,
            "A server that comes back is given its whole weight after this long, from a tenth on.",
        ),
        &key(
            "priority_suffices",
            Count { range: 0..=100, unit: Unit::Percent },
            |upstream: &mut UpstreamWritten| &mut upstream.settings.group_suffices_percent,
            "Servers of one priority suffice while so much of their weight is up; below it those of the next are used as \
             well. At 0% one server suffices.",
        ),
        &key(
            "none_up",
            Word { words: &[("try-all", NoneUp::TryAll), ("refuse", NoneUp::Refuse)] },
            |upstream: &mut UpstreamWritten| &mut upstream.settings.none_up,
            "What to do while checks and ejections leave no server: ask them as if all were up, or answer 503.",
        ),
        &key(
            "send_proxy_protocol",
            Maybe(At(Word { words: &[("v1", ProxyVersion::V1), ("v2", ProxyVersion::V2)] })),
            |upstream: &mut UpstreamWritten| &mut upstream.send_proxy_protocol,
            "Begins each connection to a server with a PROXY header, which says who the client is; a connection then serves \
             one client alone.",
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
        &key(
            "rate",
            OneOrMany(BANDWIDTH),
            |upstream: &mut UpstreamWritten| &mut upstream.rate,
            "Slows down what comes from these servers, all of them together: see `rate` of `[[route]]`.",
        ),
        &key(
            "upload_rate",
            OneOrMany(BANDWIDTH),
            |upstream: &mut UpstreamWritten| &mut upstream.upload_rate,
            "The same for what they are sent.",
        ),
        &key(
            "connect_delay",
            Maybe(DELAY),
            |upstream: &mut UpstreamWritten| &mut upstream.link.connect_delay,
            "How late connections to the servers are made, within `upstream_connect`. See `delay` of `[[route]]`.",
        ),
        &key(
            "latency",
            Maybe(DELAY),
            |upstream: &mut UpstreamWritten| &mut upstream.link.latency,
            "How late each piece comes, either way: see `latency` of `[[listen]]`.",
        ),
        &key(
            "loss",
            Maybe(LOSS),
            |upstream: &mut UpstreamWritten| &mut upstream.link.loss,
            "Packets that have to be sent once more: see `loss` of `[[listen]]`.",
        ),
        &Switched {
            name: "sticky",
            table: &STICKY_TABLE,
            place: |upstream: &mut UpstreamWritten| &mut upstream.sticky,
            doc: "Keeps a client on the server that it began with, for as long as that may be asked.",
        },
        &Section {
            name: "queue",
            table: &QUEUE,
            place: |upstream: &mut UpstreamWritten| &mut upstream.queue,
            doc: "Requests that wait while each server has its `max_requests`.",
        },
        &Switched {
            name: "check",
            table: &CHECK,
            place: |upstream: &mut UpstreamWritten| &mut upstream.check,
            doc: "Active checks of each server.",
        },
        &Switched {
            name: "eject",
            table: &EJECT,
            place: |upstream: &mut UpstreamWritten| &mut upstream.eject,
            doc: "Servers that answer worse than the others are left out for a while, judged by the requests that they get.",
        },
        &Switched {
            name: "breaker",
            table: &BREAKER,
            place: |upstream: &mut UpstreamWritten| &mut upstream.breaker,
            doc: "A circuit breaker for each server: it fails, and is left alone but for a few requests that try it.",
        },
        &Section {
            name: "retry",
            table: &RETRY,
            place: |upstream: &mut UpstreamWritten| &mut upstream.retry,
            doc: "Requests that are tried once more.",
        },
        &Section {
            name: "pool",
            table: &POOL,
            place: |upstream: &mut UpstreamWritten| &mut upstream.pool,
            doc: "Connections that each worker keeps to each server of the upstream.",
        },
    ],
};

pub(crate) const UPSTREAM_NAME: &str = "1 to 64 letters, digits, '.', '-' and '_'";

pub(crate) fn is_upstream_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

static QUEUE: Table<QueueSettings> = Table {
    options: &[
        &key(
            "length",
            Count { range: 0..=1_000_000, unit: Unit::Things },
            |queue: &mut QueueSettings| &mut queue.length,
            "How many may wait with each worker; those beyond are answered 503. 0 is no queue.",
        ),
        &key(
            "timeout",
            UP_TO_A_DAY,
            |queue: &mut QueueSettings| &mut queue.timeout,
            "How long a request waits; then 503.",
        ),
    ],
};

/// One of `balance::POLICIES`.
struct PolicyKind;

fn policy_names() -> Vec<&'static str> {
    balance::POLICIES.iter().map(|row| row.name).collect()
}

impl Kind<&'static PolicyRow> for PolicyKind {
    fn expected(&self) -> String {
        let quoted: Vec<String> = policy_names().into_iter().map(quoted).collect();
        one_of(&quoted.iter().map(String::as_str).collect::<Vec<_>>())
    }

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
struct ServerKind;

/// `{ url, weight, … }`.
#[derive(Debug, Clone)]
struct ServerWritten {
    url: Option<Server>,
    name: Option<String>,
    weight: u32,
    priority: u16,
    max_requests: Option<NonZeroU32>,
}

impl Default for ServerWritten {
    fn default() -> Self {
        Self { url: None, name: None, weight: 1, priority: 0, max_requests: None }
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
        &key(
            "priority",
            Count { range: 0..=1000, unit: Unit::Things },
            |server: &mut ServerWritten| &mut server.priority,
            "Servers of the lowest number are used first; the others where too few of these are up.",
        ),
        &key(
            "max_requests",
            Unless { word: "none", kind: NonZero(Count { range: 1..=1_000_000, unit: Unit::Things }) },
            |server: &mut ServerWritten| &mut server.max_requests,
            "The most requests that may be under way with it, over all workers; those beyond go to other servers, or wait.",
        ),
        &key(
            "name",
            Maybe(Text { expected: SERVER_NAME, read: server_name, print: String::clone }),
            |server: &mut ServerWritten| &mut server.name,
            "What it is called in logs, metrics and sessions. Left out, its URL.",
        ),
    ],
};

const SERVER_NAME: &str = UPSTREAM_NAME;

fn server_name(text: &str) -> Result<String, ValueError> {
    if is_upstream_name(text) {
        return Ok(text.to_owned());
    }
    Err(ValueError {
        fault: Fault::Unknown { written: text.to_owned(), why: "cannot be a name", nearest: None },
        expected: SERVER_NAME,
    })
}

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
                let ServerWritten { url, name, weight, priority, max_requests } = server;
                Some(Server { name, weight, priority, max_requests, ..url? })
            }
            _ => {
                refuse_type(written, self.expected(), reader);
                None
            }
        }
    }

    fn print(&self, server: &Server) -> Option<String> {
        let Server { name, weight, priority, max_requests, .. } = server;
        let (name, weight, priority, max_requests) = (name.clone(), *weight, *priority, *max_requests);
        if (&name, weight, priority, max_requests) == (&None, 1, 0, None) {
            return URL_KIND.print(server);
        }
        let written = ServerWritten { url: Some(server.clone()), name, weight, priority, max_requests };
        Some(format!("{{ {} }}", SERVER_WRITTEN.print(&written, "").trim_end().replace('\n', ", ")))
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
            "Idle connections kept for reuse, at most. How many are kept follows from how many were in use lately; \
             those that are not needed are closed a few each second, sooner where descriptors or memory run short. \
             0 keeps none.",
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
