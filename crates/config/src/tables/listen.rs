//! The table `[[listen]]`: addresses and protocols of listeners.

use std::net::SocketAddr;
use std::num::NonZeroU32;

use ipnet::IpNet;
use route::Split;
use shape::Bottleneck;

use crate::option::bandwidth::{BANDWIDTH, Bandwidths};
use crate::option::bottleneck::BOTTLENECK;
use crate::option::delay::{DELAY, LOSS};
use crate::option::host::{ANY_LISTEN_ADDRESS, ListenAddress, NETWORK_KIND};
use crate::option::kind::{At, List, Located, Maybe, Name, Switch, Text, located};
use crate::option::pairs::{OneOrMany, Pair};
use crate::option::range::{Count, NonZero, Unit};
use crate::option::table::{Element, Table, key, required};
use crate::tables::listen::layer4::SharesKind;
use crate::tables::listen::passthrough::{PASSTHROUGH, PassthroughWritten};
use crate::tables::names::unique;
use crate::tables::shaping::{DatagramRates, Link};
use crate::tables::tls::options::{HstsKind, SERVER_TLS, ServerTlsWritten};
use crate::tables::tls::{Hsts, ListenerTls};
use crate::tables::values::{ValuesKind, ValuesWritten};

/// Options of TLS that is passed on.
pub(crate) mod passthrough;
/// The option for bytes that are forwarded.
pub(crate) mod layer4;

/// A listener: an address that clients connect to.
#[derive(Debug, Clone, PartialEq)]
pub struct Listener {
    /// The name in routes, logs and metrics; by default the address. Unique.
    pub name: String,
    pub address: ListenAddress,
    /// Networks whose connections must start with a PROXY header, of version 1 or 2. Connections from others never have
    /// one. Empty turns it off. Peers of a Unix socket count as 127.0.0.1.
    pub proxy_protocol: Vec<IpNet>,
    /// Passes on all bytes without HTTP to these shares of `Settings::upstreams`. Routes are then ignored, `http2` is
    /// meaningless, and `redirect_to_https` and `hsts` are not allowed.
    pub tcp: Option<Split>,
    /// TLS that is passed on as it is, by the name that the client asks for; all other connections are for `tls`, or else
    /// for `tcp`.
    pub passthrough: Vec<Passthrough>,
    /// TLS with these certificates: HTTPS, or around what `tcp` passes on; `None` means no TLS.
    pub tls: Option<ListenerTls>,
    /// Redirects every request to its `https` URL with 308; never together with `tls`.
    pub redirect_to_https: bool,
    /// Strict-Transport-Security in every response; only together with `tls`.
    pub hsts: Option<Hsts>,
    /// Whether HTTP/2 is spoken besides HTTP/1.1: by ALPN with `tls`, otherwise by prior knowledge.
    pub http2: bool,
    /// Whether HTTP/3 is spoken at the same port of UDP; only together with `tls`.
    pub http3: bool,
    /// The most open connections of a client's address; trusted proxies have no limit.
    pub connections_per_client: Option<NonZeroU32>,
    /// Bandwidth limits on bodies, or on what `tcp` passes on.
    pub bandwidths: Bandwidths,
    /// The emulated network link of the clients.
    pub link: Link,
    /// Rates of datagrams; only together with `http3`.
    pub datagram_rates: DatagramRates,
    /// Whether its clients are other instances (`CachePeers`). It is in no file.
    pub is_for_peers: bool,
}

/// TLS that is passed on as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passthrough {
    /// The server names (SNI) in lower case, with wildcards such as `*.example.com`, or `*` for all.
    pub names: Vec<String>,
    /// Only clients that offer one of these protocols (ALPN); empty means all.
    pub protocols: Vec<String>,
    /// Where to, shares of `Settings::upstreams`.
    pub to: Split,
}

impl Passthrough {
    /// The upstreams that get connections, as indices into `Settings::upstreams`.
    pub fn upstreams(&self) -> impl Iterator<Item = usize> {
        self.to.shares().map(|(upstream, _)| upstream)
    }
}

impl Listener {
    /// The upstreams that get connections without HTTP, as indices into `Settings::upstreams`.
    pub fn passes_on_to(&self) -> impl Iterator<Item = usize> {
        let tcp = self.tcp.iter().flat_map(|to| to.shares().map(|(upstream, _)| upstream));
        tcp.chain(self.passthrough.iter().flat_map(Passthrough::upstreams))
    }

    /// An HTTP listener at a TCP address, with defaults.
    pub fn plain(address: SocketAddr) -> Self {
        Self::at(ListenAddress::Tcp(address))
    }

    /// An HTTP listener at any kind of address, with defaults.
    pub fn at(address: ListenAddress) -> Self {
        Self {
            name: address.to_string(),
            address,
            proxy_protocol: Vec::new(),
            tcp: None,
            passthrough: Vec::new(),
            tls: None,
            redirect_to_https: false,
            hsts: None,
            http2: true,
            http3: false,
            connections_per_client: None,
            bandwidths: Bandwidths::default(),
            link: Link::default(),
            datagram_rates: DatagramRates::default(),
            is_for_peers: false,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Listen {
    pub(crate) name: Option<Located<String>>,
    pub(crate) values: ValuesWritten,
    pub(crate) address: Option<Located<ListenAddress>>,
    pub(crate) proxy_protocol: Vec<IpNet>,
    pub(crate) tcp: Option<Located<Vec<Pair<String, u32>>>>,
    pub(crate) passthrough: Vec<Element<PassthroughWritten>>,
    pub(crate) tls: Option<Element<ServerTlsWritten>>,
    pub(crate) redirect_to_https: Located<bool>,
    pub(crate) hsts: Option<Located<Hsts>>,
    pub(crate) http2: bool,
    pub(crate) http3: Located<bool>,
    pub(crate) connections_per_client: Option<Located<NonZeroU32>>,
    pub(crate) bandwidths: Bandwidths,
    pub(crate) profile: Option<Located<String>>,
    pub(crate) link: Link,
    pub(crate) datagram_rate: Option<Located<Bottleneck>>,
    pub(crate) datagram_upload_rate: Option<Located<Bottleneck>>,
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            name: None,
            values: Vec::new(),
            address: None,
            proxy_protocol: Vec::new(),
            tcp: None,
            passthrough: Vec::new(),
            tls: None,
            redirect_to_https: located(false),
            hsts: None,
            http2: true,
            http3: located(false),
            connections_per_client: None,
            bandwidths: Bandwidths::default(),
            profile: None,
            link: Link::default(),
            datagram_rate: None,
            datagram_upload_rate: None,
        }
    }
}

/// The names of listeners: the written name or the address, with a number if it is taken.
pub(crate) fn listener_names(all: &[Element<Listen>]) -> Vec<String> {
    let written = all.iter().map(|listen| listen.value.name.as_ref().map(|name| name.value.clone()));
    let address =
        |listen: &Listen| listen.address.as_ref().map(|it| it.value.to_string()).unwrap_or_default();
    let defaults = all.iter().map(|listen| address(&listen.value));
    unique(written.zip(defaults))
}

pub(crate) static LISTEN: Table<Listen> = Table {
    options: &[
        required!(
            "address",
            Maybe(At(Text::<ListenAddress> {
                expected: ANY_LISTEN_ADDRESS,
                read: str::parse,
                print: ToString::to_string
            })),
            Listen.address,
            "Address to listen on. `0.0.0.0` is every IPv4 address, `[::]` every IPv6 address without \
             IPv4, `*` every address of both. With port 0 the kernel chooses a port. \
             `unix:/PATH` is a Unix socket with mode 0660; its clients count as 127.0.0.1.",
        ),
        key!(
            "name",
            Maybe(At(Name { expected: "a name for the listener" })),
            Listen.name,
            "Name in routes, logs and metrics. Default: the address.",
        ),
        key!(
            "values",
            ValuesKind { is_local: true },
            Listen.values,
            "Values for requests of this listener, instead of equal names of `[values]`, of the same types. Values of \
             routes come before them. See [values](conditions.md#values).",
        ),
        key!(
            "proxy_protocol",
            List { kind: NETWORK_KIND, may_be_empty: true },
            Listen.proxy_protocol,
            "Networks whose connections must begin with a PROXY header, version 1 or 2; without one they \
             are closed. Connections from other networks must begin with a request. The header \
             names the client; version 2 also says whether the client used TLS.",
        ),
        key!(
            "tcp",
            Maybe(At(SharesKind)),
            Listen.tcp,
            "Forwards the bytes of each connection to this upstream (layer 4), without routes. With `tls` \
             the proxy decrypts them first. `{ old = 9, new = 1 }` distributes connections over several \
             upstreams by weight.",
        ),
        key!(
            "passthrough",
            List { kind: PASSTHROUGH, may_be_empty: true },
            Listen.passthrough,
            "TLS passthrough: connections with certain server names (SNI) are forwarded without decryption. \
             All others are decrypted with `tls`, or without `tls` forwarded by `tcp`.",
        ),
        key!(
            "tls",
            Maybe(SERVER_TLS),
            Listen.tls,
            "HTTPS, with TLS 1.3 and 1.2. Certificate files are read again when they change. Default: \
             plain HTTP.",
        ),
        key!(
            "redirect_to_https",
            At(Switch),
            Listen.redirect_to_https,
            "Redirects requests to their `https` URL (308), on a listener without `tls`. Exceptions: \
             routes whose `listener` names only listeners without `tls` (certificate \
             challenges), and requests that arrived by HTTPS at a proxy of `trusted_proxies` \
             or `proxy_protocol`.",
        ),
        key!(
            "hsts",
            Maybe(At(HstsKind)),
            Listen.hsts,
            "Strict-Transport-Security: browsers use only HTTPS for this long. Sent to clients that use \
             HTTPS, on a listener with `tls` or as reported by a proxy of `trusted_proxies` or \
             `proxy_protocol`.",
        ),
        key!(
            "http2",
            Switch,
            Listen.http2,
            "Accepts HTTP/2 as well as HTTP/1.1: by ALPN with `tls`, by prior knowledge without.",
        ),
        key!(
            "http3",
            At(Switch),
            Listen.http3,
            "Accepts HTTP/3 (QUIC) as well, at the same port of UDP, on a listener with `tls`. Responses \
             over HTTP/1.1 and HTTP/2 announce it to clients (`Alt-Svc`). See [HTTP/3](http3.md).",
        ),
        key!(
            "connections_per_client",
            Maybe(At(NonZero(Count { range: 1..=1_000_000, unit: Unit::Things }))),
            Listen.connections_per_client,
            "Maximum number of open connections for each client address, or for the first 64 bits of an IPv6 address. \
             Further ones are refused as beyond `limits.connections`. Connections of `trusted_proxies` do not count; \
             with `proxy_protocol`, the client in the header counts. See \
             [rate limits](rate-limits.md#connections-per-client).",
        ),
        key!(
            "rate",
            OneOrMany(BANDWIDTH),
            Listen.bandwidths.down,
            "Limits the rate of response bodies, or with `tcp` of data to clients: see `rate` of \
             `[[route]]`. Limits of listener, route and upstream apply together.",
        ),
        key!(
            "upload_rate",
            OneOrMany(BANDWIDTH),
            Listen.bandwidths.up,
            "Limits the rate of request bodies, or with `tcp` of data from clients.",
        ),
        key!(
            "profile",
            Maybe(At(Name {
                expected: "the name of a link such as lte, 3g, dsl, satellite or transpacific",
            })),
            Listen.profile,
            "Emulates a network link between each client and the proxy, with its rate, round-trip time and \
             packet loss: one of `[profile.NAME]`, or one that `vanward proxy --help` lists. \
             `rate` and `upload_rate` apply in addition to those of the profile; \
             `connect_delay`, `latency` and `loss` replace them.",
        ),
        key!(
            "connect_delay",
            Maybe(DELAY),
            Listen.link.connect_delay,
            "Delays new connections, before the TLS handshake. See `delay` of `[[route]]`.",
        ),
        key!(
            "latency",
            Maybe(DELAY),
            Listen.link.latency,
            "Delays all data in both directions, in order. The rate stays the same, as long as at \
             most 16 MiB are in transit in each direction of a connection.",
        ),
        key!(
            "loss",
            Maybe(LOSS),
            Listen.link.loss,
            "Emulates packet loss: the share of packets of 1460 bytes that are lost, and the time until \
             each is sent again. Packets behind a lost one wait for it.",
        ),
        key!(
            "datagram_rate",
            Maybe(At(BOTTLENECK)),
            Listen.datagram_rate,
            "Emulates a link of this rate for the datagrams of HTTP/3 to all clients together. Datagrams \
             wait in its queue, and are lost if it is full. `10Mbit/s queue 64KB` sets its size; default: \
             100 ms of the rate, and at least 16 kB. Needs `http3`.",
        ),
        key!(
            "datagram_upload_rate",
            Maybe(At(BOTTLENECK)),
            Listen.datagram_upload_rate,
            "The same for datagrams from clients.",
        ),
    ],
};
