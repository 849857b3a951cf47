//! Clients that leave, stall, flood, or break the rules of their protocol.

use std::sync::Arc;
use std::thread;

use proxy::failure::Failure;
use quinn_proto::TransportConfig;
use quinn_proto::congestion::CubicConfig;
use testkit::http1::Http1Peer;
use testkit::http2::frame::{
    CANCEL, INITIAL_WINDOW_SIZE, block, data, headers, last_headers, ping, raw, reset, settings,
    window_update,
};
use testkit::http3::frame::{head, request};
use testkit::http3::{H3TestClient, RawClient};

use crate::causes::asked::Asked;
use crate::causes::caller::{Caller, Seen, Wire};
use crate::causes::cells::{Case, EACH, ONE, OVER_TCP, Play, Row, STREAMS, THREE, TWO};
use crate::causes::scene::Spoken;

const OF_CLIENTS: &str =
    "the failure is one of a client, and ends the request in the same way whatever its server speaks";
const OF_HTTP2: &str = "the failure is one of HTTP/2";
const OF_HTTP3: &str = "the failure is one of HTTP/3";
const HEAD: &str = ":method: GET\n:scheme: http\n:authority: test\n:path: /\n";
const FLOODS: &str = "[limits.http2]\nresets_per_second = 20\nsettings_per_second = 20\npings_per_second = 20\n\
                      priorities_per_second = 20\nempty_frames_per_second = 20\nerrors_per_second = 20\n\
                      overhead_per_second = 20\n";
/// More than the kernel and the windows hold.
const LONG: usize = 64 << 20;

pub(crate) fn rows() -> Vec<Row> {
    let of_clients = |failure: Failure| Row::of(failure).no_servers(EACH, OF_CLIENTS);
    let flood2 = |failure: Failure, case: Case| {
        of_clients(failure)
            .case(flood(case).clients(TWO))
            .no_clients(ONE, OF_HTTP2)
            .no_clients(THREE, OF_HTTP2)
    };
    let flood3 = |failure: Failure, case: Case| {
        of_clients(failure).case(flood(case).clients(THREE)).no_clients(OVER_TCP, OF_HTTP3)
    };
    vec![
        of_clients(Failure::ClientHeaderTimeout)
            .case(
                Case::new("half a head", half_a_head)
                    .front("timeouts = { client_header = \"1s\" }")
                    .clients(ONE)
                    .detail("only 16 bytes of the head arrived within timeouts.client_header, 1s"),
            )
            .case(
                Case::new("half a head", half_a_head)
                    .front("timeouts = { client_header = \"1s\" }")
                    .clients(STREAMS)
                    .seen(0, 0, "")
                    .details([
                        "",
                        "only 53 bytes of a header block on stream 1 arrived within",
                        "reset with H3_REQUEST_CANCELLED: ",
                    ]),
            ),
        of_clients(Failure::ClientBodyTimeout).case(
            Case::new("half a body", half_a_body)
                .front("timeouts = { client_body = \"1s\" }")
                .clients(EACH)
                .detail("the client sent no more of the body within timeouts.client_body, 1s"),
        ),
        of_clients(Failure::ClientTooSlow).case(
            Case::new("half a body", half_a_body)
                .front("limits = { minimum_rate = \"1MB/s\", rate_window = \"1s\" }")
                .clients(EACH)
                .detail("the client sent the body more slowly than limits.minimum_rate, 1000000 bytes a second over \
                         1s"),
        ),
        of_clients(Failure::ClientGone)
            .case(
                Case::new("a client that leaves", |play| {
                    let mut caller = play.caller();
                    caller.asks("GET", "/", "");
                    let mut server = play.scene.accept1();
                    server.head();
                    caller.cancels();
                    server.is_closed();
                    Seen::nothing()
                })
                .clients(STREAMS)
                .details([
                    "",
                    "it reset the stream with CANCEL",
                    "it reset the stream with H3_REQUEST_CANCELLED",
                ]),
            )
            .case(
                Case::new("a client that leaves while it gets its response", |play| {
                    let mut caller = play.caller();
                    caller.asks("GET", "/", "");
                    let mut server = play.scene.accept1();
                    server.head();
                    server.sends("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n");
                    caller.gets_head();
                    caller.cancels();
                    while server.can_send(b"2\r\nok\r\n") {}
                    Seen { status: 200, ..Seen::nothing() }
                })
                .clients(EACH)
                .cut(200)
                .details([
                    "",
                    "it reset the stream with CANCEL",
                    "it reset the stream with H3_REQUEST_CANCELLED",
                ]),
            ),
        of_clients(Failure::ClientStalled).case(
            Case::new("a client that takes nothing", takes_nothing)
                .front("timeouts = { client_write = \"1s\" }")
                .clients(EACH)
                .cut(200)
                .detail("the client read nothing within timeouts.client_write, 1s"),
        ),
        of_clients(Failure::ClientBehind).case(
            Case::new("a slow client beside a fast one", is_behind)
                .route("upstream = \"app\"\ncache = {}")
                .tables("[cache]\nmemory = \"16MiB\"\nobject = \"64KiB\"\n")
                .clients(EACH)
                .target("/shared")
                .cut(200)
                .detail("the client was too slow for a response that is shared and too large to be stored"),
        ),
        flood2(
            Failure::ResetFlood,
            Case::new("resets", |play| {
                floods2(play, "", |at| {
                    let head = HEAD.replace("GET", "TRACE");
                    [last_headers(1 + 2 * at, &head), reset(1 + 2 * at, CANCEL)].concat()
                })
            }),
        ),
        flood2(
            Failure::SettingsFlood,
            Case::new("SETTINGS", |play| floods2(play, "", |_| settings(&[(INITIAL_WINDOW_SIZE, 1)]))),
        ),
        flood2(Failure::PingFlood, Case::new("PING", |play| floods2(play, "", |_| ping([0; 8])))),
        flood2(
            Failure::PriorityFlood,
            Case::new("PRIORITY", |play| floods2(play, "", |_| raw(2, 0, 3, &[0, 0, 0, 0, 1]))),
        ),
        flood2(
            Failure::EmptyFrameFlood,
            Case::new("empty DATA", |play| floods2(play, "POST", |_| data(1, ""))),
        ),
        flood2(
            Failure::OverheadFlood,
            Case::new("WINDOW_UPDATE", |play| floods2(play, "", |_| window_update(0, 1))),
        ),
        flood2(
            Failure::Http2Excess,
            Case::new("malformed requests", |play| {
                floods2(play, "", |at| last_headers(1 + 2 * at, &format!("{HEAD}connection: x\n")))
            })
            .behind_others(),
        )
        .case(
            Case::new("a head without an end", |play| {
                let mut client = play.scene.client2();
                client.sends(raw(1, 1, 1, &block(HEAD)));
                (0..1000).take_while(|_| client.can_send(&raw(9, 0, 1, b"x"))).count();
                client.ends();
                Seen::nothing()
            })
            .clients(TWO)
            .detail("ended with ENHANCE_YOUR_CALM for "),
        ),
        of_clients(Failure::Http2Malformed)
            .case(
                Case::new("a field of the connection", |play| play.asks("GET", "/", "connection: x\n"))
                    .clients(TWO)
                    .detail("reset with PROTOCOL_ERROR: "),
            )
            .case(
                Case::new("trailers that are none", |play| {
                    let mut caller = play.caller();
                    caller.begins("POST", "/", "");
                    let mut server = play.scene.accept1();
                    server.head();
                    server.sends("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n");
                    caller.gets_head();
                    let Wire::Two(end) = &mut caller.wire else { unreachable!() };
                    end.sends(last_headers(1, "x y: 1\n"));
                    caller.gets()
                })
                .clients(TWO)
                .cut(200)
                .detail("in the trailers: "),
            )
            .case(
                Case::new("a frame of another stream in a head", |play| {
                    let mut client = play.scene.client2();
                    client.sends([raw(1, 1, 1, &block(HEAD)), ping([0; 8])].concat());
                    client.ends();
                    Seen::nothing()
                })
                .clients(TWO)
                .detail("ended with PROTOCOL_ERROR for "),
            )
            .no_clients(ONE, OF_HTTP2)
            .no_clients(THREE, OF_HTTP2),
        flood3(
            Failure::Http3ResetFlood,
            Case::new("resets", |play| {
                let client = play.scene.client3();
                for _ in 0..200 {
                    let Some(mut stream) = client.try_open() else { break };
                    stream.asks("GET", "/", "");
                    let _ = stream.receive.stop(0x10c_u32.into());
                }
                client.closed();
                Seen::nothing()
            })
            .behind_others(),
        ),
        flood3(
            Failure::Http3PriorityFlood,
            Case::new("PRIORITY_UPDATE", |play| {
                on_control(play, &[&head(0xf0700, 4)[..], &[0x00], b"u=1"].concat())
            }),
        ),
        flood3(
            Failure::Http3EmptyFrameFlood,
            Case::new("empty DATA", |play| {
                let client = play.scene.client3();
                let mut stream = client.open();
                stream.sends_head(&request("POST", "/", ""));
                stream.can_send(&head(0, 0).repeat(2_000));
                client.closed();
                Seen::nothing()
            })
            .behind_others(),
        ),
        flood3(
            Failure::Http3InsertionFlood,
            Case::new("insertions", |play| {
                let client = play.scene.client3();
                // RFC 9204 §4.3.1, §4.3.3: a capacity of 1,024 bytes, and entries with literal names.
                let _encoder = client.unidirectional(
                    &[&[0x02, 0x3f, 0xe1, 0x07][..], &[0x41, b'a', 0x01, b'b'].repeat(20_000)].concat(),
                );
                client.closed();
                Seen::nothing()
            }),
        ),
        flood3(Failure::Http3FragmentFlood, Case::new("a body with gaps", with_gaps).behind_others()),
        flood3(
            Failure::Http3OverheadFlood,
            Case::new("frames without meaning", |play| on_control(play, &head(0x21, 0))),
        ),
        flood3(
            Failure::Http3Excess,
            Case::new("malformed requests", |play| {
                let client = play.scene.client3();
                for _ in 0..200 {
                    let Some(mut stream) = client.try_open() else { break };
                    stream.asks("GET", "/", "connection: x\n");
                }
                client.closed();
                Seen::nothing()
            })
            .behind_others(),
        ),
        of_clients(Failure::Http3Malformed)
            .case(
                Case::new("a field of the connection", |play| play.asks("GET", "/", "connection: x\n"))
                    .clients(THREE)
                    .detail("reset with H3_MESSAGE_ERROR: "),
            )
            .case(
                Case::new("trailers that are none", |play| {
                    let mut caller = play.caller();
                    caller.begins("POST", "/", "");
                    let mut server = play.scene.accept1();
                    server.head();
                    server.sends("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n");
                    caller.gets_head();
                    let Wire::Three(stream, _) = &mut caller.wire else { unreachable!() };
                    stream.sends_head("x y: 1\n");
                    caller.gets()
                })
                .clients(THREE)
                .cut(200)
                .detail("in the trailers: "),
            )
            .case(
                Case::new("a control stream without SETTINGS", |play| {
                    let address = play.scene.address(1);
                    let client =
                        H3TestClient::try_connect(address, &[b"h3"], quinn::TransportConfig::default());
                    let mut client = client.unwrap_or_else(|error| panic!("no connection: {error}"));
                    client.control(&[0x07, 0x01, 0x00]);
                    client.closed();
                    Seen::nothing()
                })
                .clients(THREE)
                .detail("ended with H3_MISSING_SETTINGS for "),
            )
            .no_clients(OVER_TCP, OF_HTTP3),
        of_clients(Failure::ClientHandshake)
            .case(
                Case::new("a record that is none", |play| {
                    let mut client = Http1Peer::new("client", play.scene.connect(1));
                    client.sends(b"\x16\x03\x01\x00\x05hello");
                    client.rest();
                    Seen::nothing()
                })
                .clients(ONE)
                .without_version()
                .detail("what it sends is no TLS"),
            )
            .case(
                Case::new("another protocol", |play| {
                    let address = play.scene.address(1);
                    let refused = H3TestClient::try_connect(
                        address,
                        &[b"hq-interop"],
                        quinn::TransportConfig::default(),
                    );
                    assert!(refused.is_err());
                    Seen::nothing()
                })
                .clients(THREE)
                .detail("the cryptographic handshake failed: error 120: it speaks none of the protocols"),
            )
            .no_clients(TWO, "the version is agreed on in the handshake"),
        of_clients(Failure::ClientCertificate)
            .case(
                Case::new("no certificate", |play| {
                    let config = Arc::new(testkit::http3::trusting(&[b"http/1.1"]));
                    let mut client = testkit::tls::TlsEnd::client(play.scene.connect(2), &config, "test");
                    let _ = client.shakes_hands();
                    client.rest();
                    Seen::nothing()
                })
                .tables(super::policies::REQUIRED)
                .files(&[super::policies::CA])
                .clients(ONE)
                .without_version()
                .detail("it has no certificate, and one is required"),
            )
            .case(
                Case::new("no certificate", |play| {
                    // The client's side of the handshake completes before the proxy's.
                    let address = play.scene.address(2);
                    let client =
                        H3TestClient::try_connect(address, &[b"h3"], quinn::TransportConfig::default());
                    if let Ok(client) = client {
                        client.quic.close_reason();
                    }
                    Seen::nothing()
                })
                .tables(super::policies::REQUIRED)
                .files(&[super::policies::CA])
                .clients(THREE)
                .detail("it has no certificate, and one is required"),
            )
            .no_clients(TWO, "the version is agreed on in the handshake"),
        proxied(
            Failure::BadProxyHeader,
            Case::new("a request without the header", |play| {
                let mut client = play.scene.client1();
                client.sends("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
                Seen::of(client)
            })
            .detail("the connection does not begin with a PROXY protocol header"),
        ),
        proxied(
            Failure::ProxyHeaderTimeout,
            Case::new("half a header", |play| {
                let mut client = play.scene.client1();
                client.sends("PROXY TCP4 192.0.2.7");
                Seen::of(client)
            })
            .front("timeouts = { client_header = \"1s\" }")
            .detail("no complete PROXY header arrived within timeouts.client_header, 1s"),
        ),
        Row::of(Failure::TunnelIdle)
            .case(
                Case::new("a tunnel without bytes", is_silent)
                    .front("timeouts = { tunnel_idle = \"1s\" }")
                    .clients(ONE)
                    .servers(EACH)
                    .seen(101, 101, "")
                    .detail("neither side sent anything within timeouts.tunnel_idle, 1s"),
            )
            .case(
                Case::new("a tunnel without bytes", is_silent)
                    .front("timeouts = { tunnel_idle = \"1s\" }")
                    .clients(STREAMS)
                    .seen(200, 200, "")
                    .detail("neither side sent anything within timeouts.tunnel_idle, 1s"),
            ),
    ]
}

/// A flood without TLS and with low limits.
fn flood(case: Case) -> Case {
    case.tables(FLOODS).detail("ended with ")
}

/// A failure of the PROXY protocol.
fn proxied(failure: Failure, case: Case) -> Row {
    let case = case.listener("proxy_protocol = [\"127.0.0.0/8\"]").without_version();
    Row::of(failure)
        .case(case.clients(ONE))
        .no_clients(TWO, "the header comes before the version is known")
        .no_clients(THREE, "a connection of QUIC has no PROXY header")
        .no_servers(EACH, "the failure is one of a listener")
}

fn half_a_head(play: &Play<'_>) -> Seen {
    match play.client {
        Spoken::Http1 => {
            let mut client = play.scene.client1();
            client.sends("GET / HTTP/1.1\r\n");
            Seen::of(client)
        }
        Spoken::Http2 => {
            let mut client = play.scene.client2();
            client.is_heard();
            client.sends(raw(1, 1, 1, &block(HEAD)));
            Caller::over(Wire::Two(client)).gets()
        }
        Spoken::Http3 => {
            let client = play.scene.client3();
            let mut stream = client.open();
            stream.sends(&[0x01, 0x20, 0x00]);
            Caller::over(Wire::Three(stream, client)).gets()
        }
    }
}

fn half_a_body(play: &Play<'_>) -> Seen {
    let mut caller = play.caller();
    caller.begins("POST", "/", "content-length: 9\n");
    caller.sends(b"abc");
    let mut server = play.scene.accept1();
    server.head();
    caller.gets()
}

/// Opens a tunnel, and waits for its end.
fn is_silent(play: &Play<'_>) -> Seen {
    let mut caller = play.caller();
    caller.upgrades("echo");
    let _server = Asked::switches(play.scene, play.server, "echo");
    caller.gets()
}

/// Requests a long response, and reads only its head until the proxy gives up.
fn takes_nothing(play: &Play<'_>) -> Seen {
    let mut caller = play.caller();
    if let Wire::Two(end) = &mut caller.wire {
        end.takes_all = false;
    }
    caller.asks("GET", "/", "");
    let mut server = play.scene.accept1();
    server.head();
    server.sends(format!("HTTP/1.1 200 OK\r\nContent-Length: {LONG}\r\n\r\n"));
    caller.gets_head();
    while server.can_send(&[b'x'; 65_536]) {}
    caller.gets()
}

/// A client reads nothing of a response that another one reads to its end.
fn is_behind(play: &Play<'_>) -> Seen {
    let mut fast = play.caller();
    fast.asks("GET", "/shared", "");
    let mut server = play.scene.accept1();
    server.head();
    let mut slow = play.caller();
    if let Wire::Two(end) = &mut slow.wire {
        end.takes_all = false;
    }
    slow.asks("GET", "/shared", "");
    play.scene.waits("the second client waits for the first", |counters| counters.cache_waits > 0);
    server.sends("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n\r\nbegin");
    slow.gets_head();
    thread::scope(|scope| {
        scope.spawn(|| fast.gets());
        // More than QUIC's windows or the kernel's buffers hold. When both clients are behind, the proxy reads no more.
        let count = if play.client == Spoken::Http3 { 128 } else { 256 };
        (0..count).take_while(|_| server.can_send(&[b'x'; 65_536])).count();
        drop(server);
    });
    if let Wire::Two(end) = &mut slow.wire {
        end.takes_all = true;
        end.sends([window_update(0, LONG as u32), window_update(1, LONG as u32)].concat());
    }
    slow.gets()
}

/// Sends HTTP/2 frames repeatedly until the connection ends.
fn floods2(play: &Play<'_>, method: &str, frames: fn(u32) -> Vec<u8>) -> Seen {
    let mut client = play.scene.client2();
    if !method.is_empty() {
        client.sends(headers(1, &HEAD.replace("GET", method)));
    }
    (0..100_000).take_while(|at| client.can_send(&frames(*at))).count();
    client.ends();
    Seen::nothing()
}

/// Sends an HTTP/3 frame repeatedly on the control stream.
fn on_control(play: &Play<'_>, frame: &[u8]) -> Seen {
    let mut client = play.scene.client3();
    client.control(&frame.repeat(3_000));
    client.closed();
    Seen::nothing()
}

/// Sends a body of which every second datagram is lost, without noticing.
fn with_gaps(play: &Play<'_>) -> Seen {
    // Sends without waiting for acknowledgments.
    let mut congestion = CubicConfig::default();
    congestion.initial_window(u64::MAX >> 8);
    let mut transport = TransportConfig::default();
    transport.send_window(u64::MAX).congestion_controller_factory(Arc::new(congestion));
    let mut client = RawClient::connect(play.scene.address(1), transport);
    let stream = client.asks("POST", "/", "", false);
    let mut server = play.scene.accept1();
    server.head();
    (client.is_deaf, client.sends_each) = (true, 2);
    for _ in 0..4_000 {
        client.write(stream, b"x");
        client.turn();
    }
    client.is_deaf = false;
    server.is_closed();
    Seen::nothing()
}
