//! Cases of `cargo xtask cost`. Each differs from another one in one respect. None has files: Valgrind 3.19 does not know
//! openat2.

/// A case: what the proxy is configured to do, and what it is asked for.
pub(super) struct CostCase {
    pub(super) name: &'static str,
    /// Options of the listener.
    pub(super) listen: &'static str,
    /// Routes and other tables. The upstream `origin` follows.
    pub(super) tables: &'static str,
    pub(super) server: ServerSide,
    /// Flags of `vanward load`.
    pub(super) flags: &'static [&'static str],
    pub(super) path: &'static str,
    /// Whether the bodies are long, so that fewer requests suffice.
    pub(super) is_large: bool,
    /// By how much a case may become dearer without a reason.
    pub(super) tolerated_percent: f64,
}

/// Protocol of connections to the origin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerSide {
    Http1,
    Tls,
    Http2,
}

/// Where the kernel moves long bodies, the cost depends on the number of pieces: up to 6% more on a busy machine.
const SPLICED_PERCENT: f64 = 10.0;
/// Where pieces become records and frames: up to 1.3% more.
const FRAMED_PERCENT: f64 = 3.0;
/// Acknowledgments depend on time, too: up to 4% more.
const QUIC_PERCENT: f64 = 6.0;

const TLS: &str = "tls = { self_signed = true }\nhttp3 = true\n";
const ALL: &str = "[[route]]\nupstream = \"origin\"\n";
const CACHED: &str =
    "[cache]\nmemory = \"16MB\"\n[[route]]\nupstream = \"origin\"\ncache = { ttl = \"1h\" }\n";
const RESPOND: &str = "[[route]]\nrespond = { status = 200, body = \"hello\" }\n";
const LOG: &str =
    "[log]\ntarget = \"{folder}/access.log\"\nformat = \"json\"\n[[route]]\nupstream = \"origin\"\n";
/// None holds but the last.
const CONDITIONS: &str = "\
[[route]]
when = 'request.headers[\"x-tenant\"] == \"other\"'
respond = { status = 404 }
[[route]]
when = 'request.query[\"debug\"] == \"1\"'
respond = { status = 404 }
[[route]]
when = '\"beta\" in request.cookies[\"group\"]'
respond = { status = 404 }
[[route]]
when = 'client.address in \"10.0.0.0/8\"'
respond = { status = 404 }
[[route]]
when = 'request.path.startsWith(\"/\")'
upstream = \"origin\"
";

const HTTP2: &[&str] = &["--insecure", "--h2"];
const HTTP3: &[&str] = &["--insecure", "--h3"];

/// A case of a tiny response without anything special.
const PLAIN: CostCase = CostCase {
    name: "plain-tiny",
    listen: "",
    tables: ALL,
    server: ServerSide::Http1,
    flags: &[],
    path: "/tiny",
    is_large: false,
    tolerated_percent: 1.0,
};
const LARGE: CostCase = CostCase { name: "plain-large", path: "/large", is_large: true, ..PLAIN };
const OVER_TLS: CostCase = CostCase { name: "tls-tiny", listen: TLS, flags: &["--insecure"], ..PLAIN };
const LARGE_OVER_TLS: CostCase = CostCase { name: "tls-large", listen: TLS, flags: &["--insecure"], ..LARGE };

pub(super) const CASES: [CostCase; 20] = [
    PLAIN,
    CostCase { name: "plain-medium", path: "/medium", ..PLAIN },
    CostCase { tolerated_percent: SPLICED_PERCENT, ..LARGE },
    OVER_TLS,
    LARGE_OVER_TLS,
    CostCase { name: "http2-tiny", flags: HTTP2, ..OVER_TLS },
    CostCase { name: "http2-large", flags: HTTP2, tolerated_percent: FRAMED_PERCENT, ..LARGE_OVER_TLS },
    CostCase { name: "http3-tiny", flags: HTTP3, tolerated_percent: QUIC_PERCENT, ..OVER_TLS },
    CostCase { name: "http3-large", flags: HTTP3, tolerated_percent: QUIC_PERCENT, ..LARGE_OVER_TLS },
    CostCase { name: "cached-tiny", tables: CACHED, ..PLAIN },
    CostCase { name: "cached-large", tables: CACHED, tolerated_percent: SPLICED_PERCENT, ..LARGE },
    CostCase { name: "connection", flags: &["--no-keepalive"], ..PLAIN },
    CostCase { name: "handshake", flags: &["--insecure", "--no-keepalive", "--no-resume"], ..OVER_TLS },
    CostCase { name: "respond", tables: RESPOND, path: "/", ..PLAIN },
    CostCase { name: "conditions", tables: CONDITIONS, ..PLAIN },
    CostCase { name: "log", tables: LOG, ..PLAIN },
    CostCase { name: "server-tls-tiny", server: ServerSide::Tls, ..PLAIN },
    CostCase {
        name: "server-tls-large",
        server: ServerSide::Tls,
        tolerated_percent: FRAMED_PERCENT,
        ..LARGE
    },
    CostCase { name: "server-http2-tiny", server: ServerSide::Http2, ..PLAIN },
    CostCase {
        name: "server-http2-large",
        server: ServerSide::Http2,
        tolerated_percent: FRAMED_PERCENT,
        ..LARGE
    },
];
