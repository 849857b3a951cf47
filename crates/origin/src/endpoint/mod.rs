//! The endpoints: a catalogue of paths, and the selection of an endpoint for a request.

/// Pages of known size, with validators and ranges.
pub(crate) mod page;
/// Returns the request.
mod echo;
/// URL list of the Varnish experiment.
mod url_list;
/// Bodies in every framing, also slow ones.
mod stream;
/// Statuses, fields, interim and early responses.
mod answer;
/// Faults of a broken server.
mod fault;
/// Upgraded connections that echo bytes.
mod upgrade;
/// WebSockets: echo and fan-out.
mod websocket;
/// Messages at a rate: server-sent events, gRPC.
mod feed;

use std::sync::Arc;
use std::time::Duration;

use crate::connection::Stop;
use crate::exchange::OriginExchange;
use crate::head::{Length, OriginHead};
use crate::request::OwnedRequest;
use crate::stats;
use crate::target::{self, InvalidTarget, ParsedTarget, QueryPairs};
use crate::worker::FAST_PAGES;
use page::SizedPage;

pub(crate) const BODY_BYTES_MAX: u64 = 10 << 30;

/// Maximum bytes of a chunk: not more than `content::pattern` has contiguous.
const CHUNK_BYTES_MAX: u64 = 128 * 1024;

const GENERATED_KIB_MAX: u64 = 64 * 1024;

/// List of paths and their meanings, sent for `/`.
const CATALOGUE: &[(&str, &str)] = &[
    ("/tiny /small /medium /large", "128, 3269, 11268, 165854 bytes"),
    ("/hello.html", "42 bytes of HTML"),
    ("/blank/N", "N bytes"),
    ("/varnish/gen/K[?as=X]", "K KiB; cacheable with as, otherwise no-store"),
    ("/varnish/makelist?total=N&host=H&seed=S", "N+1 URLs of that kind, 10 to 40 KiB, 88 in 100 cacheable"),
    ("/cgi-bin/second.pl", "the request as a CGI program sees it"),
    ("/echo[?json]", "the request: its head as received, then its body"),
    ("/echo-body", "the request's body, streamed, and its trailers"),
    ("/status/N", "that status; 1xx: that interim response, then 200"),
    ("/headers?NAME=VALUE&...", "a response with these fields"),
    ("/early-hints", "103 with a Link, then 200"),
    ("/delay/DURATION", "after that long"),
    ("/early[?close]", "answers before it has read the request's body"),
    ("/chunked/N[?size=B&trailers]", "N bytes in chunks of B"),
    ("/close/N", "N bytes that end with the connection"),
    ("/drip?bytes=N&over=DURATION", "N bytes, evenly over that time"),
    ("/reset[?after=N]", "resets the connection, or the stream of HTTP/2 or HTTP/3, after N bytes of a body"),
    ("/truncate[?length=N&sent=M&chunked]", "promises N bytes, sends M, closes"),
    ("/stall[?after=N]", "sends N bytes of a body, then nothing, until the client goes"),
    ("/garbage", "bytes that are not HTTP"),
    ("/raw[?text=T&keep]", "sends T, or the request's body, unchanged in place of a response"),
    ("/refuse", "HTTP/2, HTTP/3: resets the stream as not processed (REFUSED_STREAM, H3_REQUEST_REJECTED)"),
    (
        "/goaway[?abrupt]",
        "HTTP/2, HTTP/3: answers, then accepts no more requests on the connection; or ends it at once",
    ),
    ("/upgrade", "101, then everything sent comes back"),
    ("/websocket", "a WebSocket that echoes"),
    ("/websocket/fan-out[?room=R]", "a WebSocket whose messages reach all others in the room"),
    ("/events[?rate=N&size=B&count=M&retry=D]", "N server-sent events a second, with number and time"),
    ("/vanward.Origin/Echo[?grpc-status=N]", "a gRPC call that echoes its messages"),
    ("/vanward.Origin/Events[?rate=N&size=B&count=M]", "a gRPC call with N messages a second"),
    ("/stats", "what reached this origin, as JSON; DELETE starts again"),
];

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Index,
    Options,
    Page(SizedPage),
    UrlList(url_list::UrlList),
    Cgi,
    Echo { json: bool },
    EchoBody,
    Status(u16),
    Interim(u16),
    Headers(Vec<(String, String)>),
    EarlyHints,
    Delay(Duration),
    Early { close: bool },
    Chunked { bytes: u64, chunk_bytes: u64, trailers: bool },
    Close { bytes: u64 },
    Drip { bytes: u64, over: Duration },
    Reset { after: Option<u64> },
    Truncate { length: u64, sent: u64, chunked: bool },
    Stall { after: Option<u64> },
    Refuse,
    GoAway { abrupt: bool },
    Garbage,
    Raw { text: Option<String>, keep: bool },
    Upgrade,
    WebSocket,
    FanOut { room: String },
    Events(feed::Feed),
    GrpcEcho { status: u16 },
    GrpcFeed { feed: feed::Feed, status: u16 },
    Stats,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotServed {
    NotFound,
    Method,
    Wrong(InvalidTarget),
}

impl From<InvalidTarget> for NotServed {
    fn from(wrong: InvalidTarget) -> Self {
        Self::Wrong(wrong)
    }
}

impl Endpoint {
    pub(crate) fn find(request: &OwnedRequest, target: &ParsedTarget) -> Result<Self, NotServed> {
        let is_tunnel = matches!(target.path.as_str(), "/upgrade" | "/websocket" | "/websocket/fan-out");
        match (request.method.as_str(), &request.protocol) {
            // RFC 8441 §4.
            ("CONNECT", Some(_)) if is_tunnel => {}
            ("CONNECT" | "TRACE", _) => return Err(NotServed::Method),
            _ => {}
        }
        if let Some((_, page)) = FAST_PAGES.iter().find(|(path, _)| *path == target.path) {
            return Ok(Self::Page(*page));
        }
        let query = &target.query;
        let segments: Vec<&str> = target.path.split('/').skip(1).collect();
        Ok(match *segments.as_slice() {
            [] => Self::Options,
            [""] => Self::Index,
            ["blank", bytes] => {
                Self::Page(SizedPage::Pattern { bytes: target::size("N", bytes, BODY_BYTES_MAX)? })
            }
            ["varnish", "gen", kib] => {
                let bytes = target::size("K", kib, GENERATED_KIB_MAX)? * 1024;
                Self::Page(SizedPage::Generated { bytes, cacheable: query.text("as").is_some() })
            }
            ["varnish", "makelist" | "makelist.php"] => {
                Self::UrlList(url_list::UrlList::new(request, target)?)
            }
            ["cgi-bin", "second.pl"] => Self::Cgi,
            ["echo"] => Self::Echo { json: query.flag("json") },
            ["echo-body"] => Self::EchoBody,
            ["status", status @ ("100" | "102" | "103")] => Self::Interim(status.parse().unwrap_or(103)),
            ["status", status] => Self::Status(target::final_status("N", status)?),
            ["headers"] => Self::Headers(answer::fields(query)?),
            ["early-hints"] => Self::EarlyHints,
            ["delay", wait] => Self::Delay(target::wait("DURATION", wait)?),
            ["early"] => Self::Early { close: query.flag("close") },
            ["chunked", bytes] => Self::chunked(bytes, query)?,
            ["close", bytes] => Self::Close { bytes: target::size("N", bytes, BODY_BYTES_MAX)? },
            ["drip"] => Self::Drip {
                bytes: query.size("bytes", BODY_BYTES_MAX)?.unwrap_or(10),
                over: query.wait("over")?.unwrap_or(Duration::from_secs(1)),
            },
            ["reset"] => Self::Reset { after: query.size("after", BODY_BYTES_MAX)? },
            ["truncate"] => Self::truncate(query)?,
            ["stall"] => Self::Stall { after: query.size("after", BODY_BYTES_MAX)? },
            ["refuse"] => Self::Refuse,
            ["goaway"] => Self::GoAway { abrupt: query.flag("abrupt") },
            ["garbage"] => Self::Garbage,
            ["raw"] => Self::Raw { text: query.text("text").map(str::to_owned), keep: query.flag("keep") },
            ["upgrade"] => Self::Upgrade,
            ["websocket"] => Self::WebSocket,
            ["websocket", "fan-out"] => {
                Self::FanOut { room: query.text("room").unwrap_or_default().to_owned() }
            }
            ["events"] => Self::Events(feed::Feed::new(query)?),
            ["vanward.Origin", "Echo"] => Self::GrpcEcho { status: Self::grpc_status(query)? },
            ["vanward.Origin", "Events"] => {
                Self::GrpcFeed { feed: feed::Feed::new(query)?, status: Self::grpc_status(query)? }
            }
            ["stats"] => Self::Stats,
            _ => return Err(NotServed::NotFound),
        })
    }

    fn grpc_status(query: &QueryPairs) -> Result<u16, InvalidTarget> {
        let status = query.text("grpc-status").unwrap_or("0");
        let known = status.parse().ok().filter(|status| *status <= 16);
        known.ok_or_else(|| InvalidTarget::new("grpc-status", status, "a status from 0 to 16"))
    }

    fn chunked(bytes: &str, query: &QueryPairs) -> Result<Self, InvalidTarget> {
        let chunk_bytes = query.size("size", CHUNK_BYTES_MAX)?.unwrap_or(16 * 1024).max(1);
        let bytes = target::size("N", bytes, BODY_BYTES_MAX)?;
        Ok(Self::Chunked { bytes, chunk_bytes, trailers: query.flag("trailers") })
    }

    fn truncate(query: &QueryPairs) -> Result<Self, InvalidTarget> {
        let length = query.size("length", BODY_BYTES_MAX)?.unwrap_or(1000).max(1);
        let sent = query.size("sent", length - 1)?.unwrap_or(length / 2);
        Ok(Self::Truncate { length, sent, chunked: query.flag("chunked") })
    }

    /// Whether the endpoint reads the request body itself. For the others, the body is read before they answer.
    pub(crate) fn reads_body(&self) -> bool {
        use Endpoint::{Early, Echo, EchoBody, FanOut, GrpcEcho, Raw, Upgrade, WebSocket};
        matches!(
            self,
            Echo { .. }
                | EchoBody
                | Early { .. }
                | Raw { .. }
                | Upgrade
                | WebSocket
                | FanOut { .. }
                | GrpcEcho { .. }
        )
    }

    pub(crate) async fn answer(self, exchange: &mut OriginExchange<'_>) -> Result<(), Stop> {
        match self {
            Self::Index => exchange.respond_text(&index()).await,
            Self::Options => answer::options(exchange).await,
            Self::Page(page) => page.answer(exchange).await,
            Self::UrlList(list) => list.answer(exchange).await,
            Self::Cgi => echo::cgi(exchange).await,
            Self::Echo { json } => echo::request(exchange, json).await,
            Self::EchoBody => echo::body(exchange).await,
            Self::Status(status) => answer::status(exchange, status).await,
            Self::Interim(status) => answer::interim(exchange, status).await,
            Self::Headers(fields) => answer::headers(exchange, fields).await,
            Self::EarlyHints => answer::interim(exchange, 103).await,
            Self::Delay(wait) => answer::delay(exchange, wait).await,
            Self::Early { close } => answer::early(exchange, close).await,
            Self::Chunked { bytes, chunk_bytes, trailers } => {
                stream::chunked(exchange, bytes, chunk_bytes, trailers).await
            }
            Self::Close { bytes } => stream::close(exchange, bytes).await,
            Self::Drip { bytes, over } => stream::drip(exchange, bytes, over).await,
            Self::Reset { after } => fault::reset(exchange, after).await,
            Self::Truncate { length, sent, chunked } => {
                fault::truncate(exchange, length, sent, chunked).await
            }
            Self::Stall { after } => fault::stall(exchange, after).await,
            Self::Refuse => fault::refuse(exchange).await,
            Self::GoAway { abrupt } => fault::go_away(exchange, abrupt).await,
            Self::Garbage | Self::Raw { .. } if exchange.stream().is_some() => {
                fault::other_version(exchange, "HTTP/1").await
            }
            Self::Garbage => fault::garbage(exchange).await,
            Self::Raw { text, keep } => fault::raw(exchange, text, keep).await,
            Self::Upgrade => upgrade::echo(exchange).await,
            Self::WebSocket => websocket::echo(exchange).await,
            Self::FanOut { room } => websocket::fan_out(exchange, &room).await,
            Self::Events(feed) => feed::events(exchange, feed).await,
            Self::GrpcEcho { status } => feed::grpc_echo(exchange, status).await,
            Self::GrpcFeed { feed, status } => feed::grpc_feed(exchange, feed, status).await,
            Self::Stats => count(exchange).await,
        }
    }
}

fn index() -> String {
    let widest = CATALOGUE.iter().map(|(path, _)| path.len()).max().unwrap_or(0);
    let mut text = String::from("vanward origin: a test backend\n\n");
    for (path, meaning) in CATALOGUE {
        text.push_str(&format!("{path:widest$}  {meaning}\n"));
    }
    text.push_str(
        "\nEach accepts ?cache= (seconds, or a Cache-Control value), ?delay= (50ms, 1.5s, 2m) and ?status=.\n\
         Sizes: 5000, 10k, 3M (powers of 1000), 64KiB, 10GiB (of 1024).\n",
    );
    text
}

async fn count(exchange: &mut OriginExchange<'_>) -> Result<(), Stop> {
    let counters = Arc::clone(&exchange.worker.all_counters);
    if exchange.request.method == "DELETE" {
        stats::reset(&counters);
        return exchange.respond(OriginHead::new(204, Length::None), b"").await;
    }
    let mut json = serde_json::to_string_pretty(&stats::sum(&counters)).map_err(std::io::Error::other)?;
    json.push('\n');
    let head =
        OriginHead::new(200, Length::Known(json.len() as u64)).field("Content-Type", "application/json");
    exchange.respond(head.field("Cache-Control", "no-store"), json.as_bytes()).await
}
